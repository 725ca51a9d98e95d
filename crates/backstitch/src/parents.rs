//! Directories that a plan needs and that are gone.

use std::collections::{BTreeSet, HashMap};

use bstr::{BString, ByteSlice};

use crate::{
    error::Result,
    meta::Attrs,
    paths,
    place::{Found, Place},
    plan::{Action, Item, Plan, Stand},
    tree,
    workspace::{Rows, Workspace},
};

impl Workspace {
    /// Directories that an inverse needs and that somebody removed come with it, as the newest row that holds them knew
    /// them. Nothing is put below what is no directory now.
    pub(crate) fn add_missing_parents(
        &self,
        place: &mut Place,
        rows: &Rows,
        plan: &mut Plan,
        present: &mut Vec<Found>,
    ) -> Result<()> {
        let mut missing: BTreeSet<BString> = BTreeSet::new();
        let mut looked: HashMap<BString, bool> = HashMap::new();
        let mut blocked: Vec<BString> = Vec::new();
        for i in plan.items.iter().filter(|i| i.action.changes() && i.to.is_some()) {
            let mut needed = Vec::new();
            for dir in paths::parents(i.path.as_bstr()) {
                let planned = plan.items.binary_search_by(|x| x.path.as_bstr().cmp(dir)).ok();
                if planned.is_some_and(|n| plan.items[n].action.changes() && plan.items[n].becomes_dir()) {
                    break;
                }
                let stands = match looked.get(dir) {
                    Some(known) => *known,
                    None => {
                        let found = place.inspect(dir)?;
                        if !matches!(&found, Found::Absent)
                            && !matches!(&found, Found::Is(s) if s.node.is_dir())
                        {
                            blocked.push(i.path.clone());
                        }
                        let stands = !matches!(found, Found::Absent);
                        looked.insert(dir.to_owned(), stands);
                        stands
                    }
                };
                if stands {
                    break;
                }
                // The plan has a say about it already, and leaves it away.
                if planned.is_some() {
                    blocked.push(i.path.clone());
                    break;
                }
                needed.push(dir.to_owned());
            }
            if blocked.last() != Some(&i.path) {
                missing.extend(needed);
            }
        }
        for path in blocked {
            if let Ok(n) = plan.items.binary_search_by(|x| x.path.cmp(&path)) {
                plan.items[n].leave(Action::Conflict, "parent-changed");
            }
        }
        let odb = place.odb().clone();
        for dir in missing {
            let plain = Stand { node: tree::Node::Dir { mode: 0o755 }, attrs: Attrs::default() };
            let mut to = None;
            for c in rows.all.iter().rev() {
                to = tree::Root::read(&odb, &c.tree)?.find(&odb, dir.as_bstr())?.filter(|e| e.node.is_dir());
                if to.is_some() {
                    break;
                }
            }
            let to = to.as_ref().map_or(plain, Stand::of);
            if let (Err(at), Some(item)) =
                (plan.items.binary_search_by(|x| x.path.cmp(&dir)), Item::transition(dir, None, Some(to)))
            {
                plan.items.insert(at, item);
                present.insert(at, Found::Absent);
            }
        }
        Ok(())
    }
}

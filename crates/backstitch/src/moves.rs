//! Where a path went that is gone: a new path that holds what stood there.

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    attribution::Step,
    diff::{TEXT_LIMIT, common_bytes, is_text},
    error::Result,
    paths,
    place::{Found, Place},
    plan::{Action, Item, Plan, Stand},
    tree::{self, DirRef, Node},
    undo::Resolve,
};

/// Texts below this are taken for moved only where they are the same.
const SMALL: u64 = 8;
/// Texts above this are taken for moved only where they are the same.
const ALIKE_LIMIT: u64 = 1 << 20;

/// Files that came into being between two trees.
pub(crate) struct New<'a> {
    odb: &'a Odb,
    list: Vec<(BString, Oid)>,
}

impl<'a> New<'a> {
    /// Those that `counts`.
    pub fn between(
        odb: &'a Odb,
        base: DirRef,
        live: DirRef,
        counts: &dyn Fn(&BStr) -> bool,
    ) -> Result<New<'a>> {
        let mut list = Vec::new();
        tree::diff(odb, base, live, &mut |p, a, b| {
            if a.is_none()
                && let Some(oid) = b.and_then(|e| e.node.oid())
                && counts(p)
            {
                list.push((p.to_owned(), oid));
            }
            Ok(())
        })?;
        Ok(New { odb, list })
    }

    /// Files of a list.
    pub fn of_list(odb: &'a Odb, list: Vec<(BString, Oid)>) -> New<'a> {
        New { odb, list }
    }

    /// The one that holds `left`. With `loosely`, of several the one of the same name, and else the one that shares most
    /// of its lines, if that is at least half.
    pub fn of(&self, path: &BStr, left: Option<&Stand>, loosely: bool) -> Result<Option<BString>> {
        self.find(path, left, loosely, None)
    }

    /// The same, loosely; `text` is what is not in the store.
    pub fn alike(&self, path: &BStr, left: Option<&Stand>, text: Option<Vec<u8>>) -> Result<Option<BString>> {
        self.find(path, left, true, text)
    }

    fn find(
        &self,
        path: &BStr,
        left: Option<&Stand>,
        loosely: bool,
        text: Option<Vec<u8>>,
    ) -> Result<Option<BString>> {
        let Some(oid) = left.and_then(|s| s.node.oid()) else { return Ok(None) };
        let same: Vec<&BString> = self.list.iter().filter(|(_, o)| *o == oid).map(|(p, _)| p).collect();
        match same.as_slice() {
            [one] => return Ok(Some((*one).clone())),
            [] if loosely => {}
            several => {
                let name = |p: &BStr| paths::split(p).1.to_owned();
                let named: Vec<&&BString> =
                    several.iter().filter(|p| loosely && name(p.as_ref()) == name(path)).collect();
                return Ok(match named.as_slice() {
                    [one] => Some((**one).clone()),
                    _ => None,
                });
            }
        }
        let Some(Stand { node: Node::File { .. }, .. }) = left else { return Ok(None) };
        let old = match text {
            Some(t) => Some(t).filter(|t| is_text(t)),
            None if self.odb.contains(&oid) => self.text(&oid)?,
            None => None,
        };
        let Some(old) = old.filter(|t| t.len() >= SMALL as usize) else { return Ok(None) };
        let mut best: Option<(usize, &BString)> = None;
        for (p, o) in &self.list {
            // What was only hashed, for want of room, is not read here.
            if !self.odb.contains(o) {
                continue;
            }
            let size = self.odb.size(o)?;
            if size > TEXT_LIMIT.min(2 * old.len() as u64) || size * 2 < old.len() as u64 {
                continue;
            }
            let Some(new) = self.text(o)? else { continue };
            let alike = common_bytes(&old, &new);
            if alike * 2 >= old.len().max(new.len()) && best.is_none_or(|(n, _)| alike > n) {
                best = Some((alike, p));
            }
        }
        Ok(best.map(|(_, p)| p.clone()))
    }

    fn text(&self, oid: &Oid) -> Result<Option<Vec<u8>>> {
        if !(SMALL..=ALIKE_LIMIT).contains(&self.odb.size(oid)?) {
            return Ok(None);
        }
        Ok(Some(self.odb.blob(oid)?).filter(|b| is_text(b)))
    }
}

/// The plan found nothing at the path though something was left there.
pub(crate) fn is_gone(plan: &Plan, path: &BStr) -> bool {
    plan.items
        .binary_search_by(|i| i.path.as_bstr().cmp(path))
        .is_ok_and(|n| plan.items[n].reason.as_deref() == Some("deleted-by-other"))
}

/// Takes `steps` back at the place `to`, where what stood at `path` is now; the item of `path` says so.
pub(crate) fn follow(
    place: &mut Place,
    plan: &mut Plan,
    present: &mut Vec<Found>,
    path: &BStr,
    to: BString,
    steps: &[Step],
    how: &Resolve,
) -> Result<()> {
    let Ok(at) = plan.items.binary_search_by(|i| i.path.as_bstr().cmp(path)) else { return Ok(()) };
    plan.items[at].leave(Action::Conflict, "moved");
    plan.items[at].moved_to = Some(to.clone());
    let wanted = steps.first().and_then(|s| s.from.clone());
    let Err(new_at) = plan.items.binary_search_by(|i| i.path.cmp(&to)) else { return Ok(()) };
    // What came into being and was moved by somebody is theirs to remove.
    let (Some(_), found) = (&wanted, place.inspect(to.as_ref())?) else { return Ok(()) };
    let Found::Is(now) = &found else { return Ok(()) };
    let mut item = match Item::transition(to.clone(), Some(now.clone()), wanted) {
        Some(item) => item,
        None => {
            let mut item = Item::keep(to, Action::Keep, "already");
            (item.from, item.to) = (Some(now.clone()), Some(now.clone()));
            item
        }
    };
    let odb = place.odb().clone();
    let mut contents = crate::merge::Contents {
        odb: &odb,
        root: place.root().to_owned(),
        new: std::mem::take(&mut plan.contents),
    };
    how.merge(&mut item, steps, &mut contents)?;
    plan.contents = contents.new;
    plan.items[at].leave(Action::Keep, "moved");
    plan.items.insert(new_at, item);
    present.insert(new_at, found);
    Ok(())
}

//! What stood at a path before a session first touched it: known from the `before` of the first tool window that named it,
//! also where no row of everything looks, as for ignored files and files outside the workspace.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_scan::Rules;
use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage::{self, Coverage, DiskRules},
    error::Result,
    live::Live,
    meta::Attrs,
    paths,
    place::{Found, Place},
    plan::{Action, Item, Plan, Scope, Stand},
    record::{Checkpoint, Kind},
    restore::Options,
    session,
    tree::{self, Node, Root},
    workspace::{Rows, Workspace},
};

/// The row begins a tool window.
pub(crate) fn opens_window(c: &Checkpoint) -> bool {
    c.record.kind == Kind::Tool && c.record.phase.as_deref() == Some("before")
}

/// The files elsewhere that tool windows of a line named, by absolute path.
pub fn outside_of(line: &[&Checkpoint]) -> Vec<BString> {
    let named: BTreeSet<BString> = line
        .iter()
        .filter(|c| c.record.kind == Kind::Tool && !c.record.outside.is_empty())
        .filter_map(|c| c.record.named())
        .flatten()
        .filter(|p| paths::is_outside(p.as_bstr()))
        .collect();
    named.into_iter().collect()
}

/// What is known of paths before the first touch.
#[derive(Debug, Default)]
pub struct Preimages {
    /// By path; `None`: nothing stood there.
    pub paths: BTreeMap<BString, Option<Stand>>,
    /// Directories above them that were there.
    pub above: BTreeMap<BString, Stand>,
}

impl Preimages {
    fn note_above(&mut self, odb: &Odb, root: &Root, path: &BStr) -> Result<()> {
        for dir in paths::parents(path) {
            if !self.above.contains_key(dir)
                && let Some(e) = root.find(odb, dir)?.filter(|e| e.node.is_dir())
            {
                self.above.insert(dir.to_owned(), Stand::of(&e));
            }
        }
        Ok(())
    }
}

/// The earliest pre-image that the line holds of each path named after row number `seq`: the first touch wins.
pub fn earliest(odb: &Odb, line: &[&Checkpoint], seq: u64) -> Result<Preimages> {
    let mut out = Preimages::default();
    // A later touch of a path whose first one was removed on request is not what stood there.
    let mut forgotten: BTreeSet<BString> = BTreeSet::new();
    for c in line.iter().filter(|c| c.record.seq > seq && opens_window(c)) {
        let Some(named) = c.record.named() else { continue };
        let (root, covers) = coverage::of_checkpoint(odb, c)?;
        forgotten.extend(covers.forgotten().map(BStr::to_owned));
        for n in named {
            let known = out.paths.contains_key(&n) || forgotten.contains(&n);
            if n.is_empty() || known || !covers.covers(n.as_bstr()) {
                continue;
            }
            out.note_above(odb, &root, n.as_bstr())?;
            match root.find(odb, n.as_bstr())? {
                Some(e) if e.node.is_dir() => {
                    out.above.insert(n.clone(), Stand::of(&e));
                    tree::walk(odb, e.dir, &mut |below, e| {
                        let path = paths::join(n.as_bstr(), below);
                        if e.node.is_dir() {
                            out.above.insert(path, Stand::of(e));
                        } else if covers.covers(path.as_bstr()) && !forgotten.contains(&path) {
                            out.paths.entry(path).or_insert_with(|| Some(Stand::of(e)));
                        }
                        Ok(())
                    })?;
                }
                e => {
                    out.paths.insert(n, e.as_ref().map(Stand::of));
                }
            }
        }
    }
    Ok(out)
}

/// A row that is gone back to.
pub(crate) struct Known<'a> {
    pub target: &'a Checkpoint,
    pub root: &'a Root,
    pub coverage: &'a Coverage,
    pub rows: &'a Rows,
}

/// The line whose windows speak for a row: of the session that asks, where the row is in it, else of the row's own.
fn line_of<'r>(rows: &'r Rows, target: &Checkpoint, session: Option<&str>) -> Vec<&'r Checkpoint> {
    for id in [session, target.record.session.as_deref()].into_iter().flatten() {
        let line = session::line(rows, &rows.sessions, id);
        if line.iter().any(|c| c.record.id == target.record.id) {
            return line;
        }
    }
    Vec::new()
}

impl Workspace {
    /// Files elsewhere that a restore of the row may change, by absolute path.
    pub(crate) fn elsewhere(&self, target: &Checkpoint, options: &Options) -> Result<Vec<BString>> {
        if !options.outside {
            return Ok(Vec::new());
        }
        let mut all = outside_of(&line_of(&self.rows()?, target, options.session.as_deref()));
        all.extend(target.record.outside_paths());
        Ok(all)
    }

    /// Adds to the plan of a restore what the row says of paths that its tree of the workspace does not cover: files
    /// elsewhere that it looked at, and whatever a later window of its line holds the first pre-image of. Returns `live`
    /// with their present content in it.
    pub(crate) fn touched(
        &self,
        of: &Known<'_>,
        plan: &mut Plan,
        live: Live,
        today: &mut DiskRules<'_>,
        scope: &Scope,
        options: &Options,
    ) -> Result<Live> {
        let odb = live.writer.odb().clone();
        let line = line_of(of.rows, of.target, options.session.as_deref());
        let mut known = match of.target.record.scope.as_str() {
            // A row of named paths speaks for these only.
            "paths" => Preimages::default(),
            _ => earliest(&odb, &line, of.target.record.seq)?,
        };
        known.paths.retain(|p, _| !of.coverage.covers(p.as_bstr()));
        for p in of.target.record.outside_paths().filter(|p| of.coverage.covers(p.as_bstr())) {
            known.note_above(&odb, of.root, p.as_bstr())?;
            let then = of.root.find(&odb, p.as_bstr())?.as_ref().map(Stand::of);
            known.paths.insert(p, then);
        }
        known.paths.retain(|p, _| scope.contains(p.as_bstr(), false));
        if known.paths.is_empty() {
            return Ok(live);
        }
        let never = Some(self.rules()?).filter(Rules::has_never);
        let mut place = Place::of(self, "plan")?;
        let mut items: BTreeMap<BString, (Item, Found)> = BTreeMap::new();
        for (path, then) in known.paths {
            let found = place.inspect(path.as_bstr())?;
            let now = match &found {
                Found::Is(s) => Some(s.clone()),
                Found::Absent => None,
                Found::Special => {
                    items.insert(path.clone(), (Item::keep(path, Action::Conflict, "special"), found));
                    continue;
                }
            };
            let Some(mut item) = Item::transition(path.clone(), now, then) else { continue };
            if never.as_ref().is_some_and(|rules| self.never_stores(rules, &item)) {
                item.leave(Action::Skip, coverage::NEVER_STORED);
            } else if item.is_outside() && !options.outside {
                item.leave(Action::Skip, "outside");
            } else if item.was_dir() && !item.becomes_dir() {
                item.leave(Action::Conflict, "not-empty");
            } else if item.to.is_none() && options.no_delete {
                item.leave(Action::Keep, "no-delete");
            } else if item.to.is_none()
                && !item.is_outside()
                && let Some(why) = today.left_out(path.as_bstr(), false)?
            {
                // What is ignored is deleted by a rewind only.
                item.leave(Action::Keep, why);
            } else if scope.busy.iter().any(|b| paths::is_under(path.as_bstr(), b.as_bstr())) {
                item.leave(Action::Keep, "busy");
            } else if item.to.is_some() {
                let missing = self.missing_above(&mut place, path.as_bstr(), plan, &known.above)?;
                items.extend(missing.into_iter().map(|i| (i.path.clone(), (i, Found::Absent))));
            }
            items.insert(path, (item, found));
        }
        plan.items.retain(|i| !items.contains_key(&i.path));
        let (list, present): (Vec<Item>, Vec<Found>) = items.into_values().unzip();
        let mut touched = Plan { items: list, ..Plan::default() };
        self.find_room(&mut touched, live.writer.odb())?;
        let live = self.hold(live, &touched, present)?;
        plan.items.extend(touched.items);
        plan.unheld.extend(touched.unheld);
        plan.items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(live)
    }

    /// Directories that a path needs and that are gone.
    fn missing_above(
        &self,
        place: &mut Place,
        path: &BStr,
        plan: &Plan,
        above: &BTreeMap<BString, Stand>,
    ) -> Result<Vec<Item>> {
        let mut out = Vec::new();
        for dir in paths::parents(path) {
            let planned = plan.items.iter().any(|i| i.path == dir && i.becomes_dir());
            if planned || !matches!(place.inspect(dir)?, Found::Absent) {
                break;
            }
            let plain = Stand { node: Node::Dir { mode: 0o755 }, attrs: Attrs::default() };
            let to = above.get(dir).cloned().unwrap_or(plain);
            out.extend(Item::transition(dir.to_owned(), None, Some(to)));
        }
        Ok(out)
    }
}

//! A plan is a value: preview shows it, applying takes its digest. One function computes it for both.

mod form;
mod item;
mod scope;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};

pub use self::{
    form::{decode_items, encode_items},
    item::{Action, Item, Progress, Stand},
    scope::Scope,
};
use crate::{
    coverage::{Coverage, DiskRules, RowRules},
    error::{Code, Error, Result},
    paths,
    place::{Found, TEMPORARY},
    settings::digest,
    tree::{self, DirRef},
};

/// The operations that a restore would carry out.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Sorted by path.
    pub items: Vec<Item>,
    /// Contents that items lead to and no row holds yet: merged ones.
    pub contents: BTreeMap<Oid, Vec<u8>>,
    /// Paths whose present content is not copied into the store, for want of room: what is changed of them is moved into
    /// its `parked/`.
    pub unheld: BTreeSet<BString>,
}

impl Plan {
    /// Names exactly this plan: target, paths, actions, both ends.
    pub fn digest(&self, target: &str) -> String {
        let mut bytes = target.as_bytes().to_vec();
        bytes.push(b'\n');
        bytes.extend(encode_items(&self.items));
        digest(&bytes)
    }

    /// The digest of this plan; where one was agreed to, it is that one.
    ///
    /// # Errors
    /// `plan-changed`
    pub(crate) fn agreed(&self, target: &str, wanted: Option<&str>) -> Result<String> {
        let digest = self.digest(target);
        match wanted {
            Some(wanted) if wanted != digest => Err(Error::new(
                Code::PlanChanged,
                format!("the plan is no longer {wanted}: the disk or the operations have changed since"),
            )
            .hint("look at the new plan with --dry-run; nothing was changed")),
            _ => Ok(digest),
        }
    }

    /// What stands at the paths that are changed, as far as the plan was made for it.
    pub(crate) fn present(&self) -> Vec<Found> {
        let of = |i: &Item| match (i.action.changes(), &i.from) {
            (false, _) => Found::Special,
            (true, None) => Found::Absent,
            (true, Some(s)) => Found::Is(s.clone()),
        };
        self.items.iter().map(of).collect()
    }

    /// Items that change something.
    pub fn changes(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|i| i.action.changes())
    }
}

/// What stands there now is not ours to write, whatever stood there once (SEMANTICS 6).
const BOUNDARIES: &[&str] = &["git", "store", "nested", "bare-repository"];

/// Both sides of a restore.
pub struct Sides<'a> {
    /// Reads both.
    pub odb: &'a Odb,
    /// The target's tree.
    pub target: DirRef,
    /// What the target speaks for.
    pub target_coverage: &'a Coverage,
    /// The live tree.
    pub live: DirRef,
    /// What was looked at just now.
    pub live_coverage: &'a Coverage,
}

/// Plans `restore`: covered paths become what the target holds. `probe` lists paths whose present state the scan does
/// not know; their `from` is filled in by the caller before the plan is used.
pub fn restore(
    sides: &Sides<'_>,
    target_rules: &mut RowRules<'_>,
    today: &mut DiskRules<'_>,
    scope: &Scope,
    no_delete: bool,
) -> Result<(Plan, Vec<BString>)> {
    let mut items: BTreeMap<BString, Item> = BTreeMap::new();
    let mut probe = Vec::new();
    let mut kept_above: BTreeSet<BString> = BTreeSet::new();
    // One item for the topmost path that is left alone.
    let is_topmost = |kept: &mut BTreeSet<BString>, path: &BStr| {
        kept.insert(path.to_owned());
        !kept.contains(paths::split(path).0)
    };
    tree::diff(sides.odb, sides.live, sides.target, &mut |path, live, target| {
        let is_dir = live.or(target).is_some_and(|e| e.node.is_dir());
        if !scope.contains(path, is_dir) {
            return Ok(());
        }
        let from = live.map(Stand::of);
        let item = match target {
            Some(t) => {
                // Carried from an earlier row for browsing: unknown, and said so where it was named.
                if !sides.target_coverage.in_scope(path) {
                    if scope.paths.iter().any(|p| p == path) {
                        items.insert(
                            path.to_owned(),
                            Item::keep(path.to_owned(), Action::Skip, "not-covered"),
                        );
                    }
                    return Ok(());
                }
                let left_out = match live {
                    None => sides.live_coverage.skip_at_or_above(path),
                    Some(_) => None,
                };
                if let Some(why) = left_out.filter(|r| BOUNDARIES.contains(r)) {
                    if is_topmost(&mut kept_above, path) {
                        items.insert(path.to_owned(), Item::keep(path.to_owned(), Action::Conflict, why));
                    }
                    return Ok(());
                }
                if live.is_none() && !sides.live_coverage.covers(path) {
                    probe.push(path.to_owned());
                }
                Item::transition(path.to_owned(), from, Some(Stand::of(t)))
            }
            None => {
                if !sides.target_coverage.in_scope(path) {
                    return Ok(());
                }
                let why = match sides.target_coverage.skip_at_or_above(path) {
                    Some(reason) => Some(format!("not-covered-then:{reason}")),
                    None => match target_rules.left_out(path, is_dir)? {
                        Some(reason) => Some(format!("{reason}-then")),
                        None => today.left_out(path, is_dir)?.map(str::to_owned),
                    },
                };
                match why {
                    Some(why) => is_topmost(&mut kept_above, path)
                        .then(|| Item::keep(path.to_owned(), Action::Keep, &why)),
                    None if no_delete => Some(Item::keep(path.to_owned(), Action::Keep, "no-delete")),
                    None => Item::transition(path.to_owned(), from, None),
                }
            }
        };
        if let Some(item) = item {
            items.insert(item.path.clone(), item);
        }
        Ok(())
    })?;
    for (path, why) in sides.live_coverage.missed() {
        // It came since, and is not in the store: it stays, and the outcome says so.
        let known = kept_above.iter().any(|k| paths::is_under(path, k.as_bstr()));
        if !known
            && scope.contains(path, false)
            && sides.target_coverage.covers(path)
            && !items.contains_key(path)
            && tree::lookup(sides.odb, sides.target, path)?.is_none()
        {
            items.insert(path.to_owned(), Item::keep(path.to_owned(), Action::Keep, why));
        }
    }
    add_parents(sides, &mut items)?;
    for b in &scope.busy {
        for i in items
            .values_mut()
            .filter(|i| paths::is_under(i.path.as_bstr(), b.as_bstr()) && i.action.changes())
        {
            i.leave(Action::Keep, "busy");
        }
    }
    Ok((Plan { items: items.into_values().collect(), ..Plan::default() }, probe))
}

/// A named file needs its directories: those that the target holds and the disk does not come with it.
fn add_parents(sides: &Sides<'_>, items: &mut BTreeMap<BString, Item>) -> Result<()> {
    let mut missing: BTreeMap<BString, Item> = BTreeMap::new();
    let mut blocked: Vec<(BString, &'static str)> = Vec::new();
    for item in items.values().filter(|i| i.to.is_some()) {
        let mut parent = paths::split(item.path.as_bstr()).0;
        while !parent.is_empty() {
            if items.contains_key(parent) || missing.contains_key(parent) {
                break;
            }
            match tree::lookup(sides.odb, sides.live, parent)? {
                Some(e) if e.node.is_dir() => break,
                Some(_) => {
                    blocked.push((item.path.clone(), "parent-is-not-a-directory"));
                    break;
                }
                None => {
                    if let Some(t) = tree::lookup(sides.odb, sides.target, parent)?
                        && let Some(i) = Item::transition(parent.to_owned(), None, Some(Stand::of(&t)))
                    {
                        missing.insert(parent.to_owned(), i);
                    }
                }
            }
            parent = paths::split(parent).0;
        }
    }
    items.extend(missing);
    for (path, why) in blocked {
        if let Some(i) = items.get_mut(&path) {
            i.leave(Action::Conflict, why);
        }
    }
    Ok(())
}

/// Makes the items agree with each other: a directory goes only if nothing in it stays, and nothing is put below a
/// path that is not going to be a directory. `stays(path)` tells what else (not covered, not in the plan) is below.
pub fn settle(plan: &mut Plan, has_uncovered_below: &dyn Fn(&BStr) -> bool) {
    // Bottom-up: children come after their parents in path order, so in reverse each is settled before its parent.
    let mut stays: BTreeSet<BString> = BTreeSet::new();
    let note = |stays: &mut BTreeSet<BString>, path: &BStr| {
        let mut at = paths::split(path).0;
        while !at.is_empty() && stays.insert(at.to_owned()) {
            at = paths::split(at).0;
        }
    };
    let mut order: Vec<usize> = (0..plan.items.len()).collect();
    order.sort_by(|a, b| plan.items[*b].path.cmp(&plan.items[*a].path));
    let mut blocked: Vec<BString> = Vec::new();
    for i in order {
        let item = &mut plan.items[i];
        if !item.action.changes() {
            // Where nothing stands, nothing keeps the directory: it is as wanted, or does not come back.
            let absent =
                item.from.is_none() && (item.to.is_some() || item.reason.as_deref() == Some("already"));
            if !absent {
                note(&mut stays, item.path.as_bstr());
            }
            continue;
        }
        let leaves_dir = item.was_dir() && !item.becomes_dir();
        if leaves_dir && (stays.contains(&item.path) || has_uncovered_below(item.path.as_bstr())) {
            if item.action == Action::Rmdir {
                item.leave(Action::Keep, "not-empty");
            } else {
                item.leave(Action::Conflict, "not-empty");
                blocked.push(item.path.clone());
            }
            note(&mut stays, item.path.as_bstr());
        }
    }
    // Below a directory that should have become a file but could not, everything stays.
    for top in blocked {
        for i in &mut plan.items {
            if paths::is_under(i.path.as_bstr(), top.as_bstr()) && i.action.changes() {
                i.leave(Action::Conflict, "not-empty");
            }
        }
    }
    // Nothing is put below a path that stays a file.
    let mut files: Vec<BString> = Vec::new();
    for i in &mut plan.items {
        if i.action.changes()
            && i.to.is_some()
            && files.iter().any(|f| paths::is_under(i.path.as_bstr(), f.as_bstr()))
        {
            i.leave(Action::Conflict, "parent-is-not-a-directory");
        }
        if !i.action.changes() && i.becomes_dir() && !i.was_dir() {
            files.push(i.path.clone());
        }
    }
}

/// The same, for plans that know only their own paths: what else is in a directory shows on the disk.
pub(crate) fn settle_on_disk(root: &Path, plan: &mut Plan) {
    // Those of them that stay all the same are in the plan: `settle` sees them.
    let going: HashSet<BString> =
        plan.items.iter().filter(|i| i.to.is_none()).map(|i| i.path.clone()).collect();
    settle(plan, &|dir: &BStr| {
        // What cannot be listed shows when it is removed.
        let Ok(list) = std::fs::read_dir(paths::to_path(root, dir)) else { return false };
        list.flatten().any(|e| {
            let name = e.file_name();
            let name = name.as_bytes();
            let mut path = dir.to_owned();
            path.push(b'/');
            path.extend_from_slice(name);
            !going.contains(&path) && !name.starts_with(TEMPORARY.as_bytes())
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{meta::Attrs, tree::Node};

    fn oid(n: u8) -> Oid {
        Oid::from_bytes_or_panic(&[n; 20])
    }
    fn file(n: u8) -> Option<Stand> {
        Some(Stand { node: Node::File { oid: oid(n), mode: 0o644 }, attrs: Attrs::default() })
    }
    fn dir() -> Option<Stand> {
        Some(Stand { node: Node::Dir { mode: 0o755 }, attrs: Attrs::default() })
    }
    fn item(path: &str, from: Option<Stand>, to: Option<Stand>) -> Item {
        Item::transition(path.into(), from, to).expect("a change")
    }

    #[test]
    fn actions_follow_from_both_ends() {
        let act = |a, b| Item::transition("p".into(), a, b).map(|i| i.action);
        assert_eq!(act(None, None), None);
        assert_eq!(act(file(1), file(1)), None);
        assert_eq!(act(None, file(1)), Some(Action::Create));
        assert_eq!(act(file(1), file(2)), Some(Action::Overwrite));
        assert_eq!(act(file(1), None), Some(Action::Delete));
        assert_eq!(act(dir(), file(1)), Some(Action::Overwrite));
        assert_eq!(act(dir(), None), Some(Action::Rmdir));
        assert_eq!(act(None, dir()), Some(Action::Mkdir));
        let exec = Some(Stand { node: Node::File { oid: oid(1), mode: 0o755 }, attrs: Attrs::default() });
        assert_eq!(act(file(1), exec), Some(Action::Mode));
    }

    #[test]
    fn items_round_trip_and_the_digest_names_both_ends() {
        let mut a = item("a\n\u{fe}", file(1), file(2));
        a.from.as_mut().expect("set").attrs =
            Attrs { owner: Some((1, 2)), xattrs: vec![("user.x".into(), vec![0, 1, 255].into())] };
        let plan = Plan { items: vec![a, item("b", dir(), None)], ..Plan::default() };
        assert_eq!(decode_items(&encode_items(&plan.items)).expect("read"), plan.items);
        let mut other = plan.clone();
        other.items[0].to = file(3);
        assert_ne!(plan.digest("x"), other.digest("x"));
        assert_ne!(plan.digest("x"), plan.digest("y"));
        assert!(decode_items(b"{}\n").is_err());
        // Absolute paths are taken only from records that say so, and never upwards.
        let away = Plan { items: vec![item("/x/y", file(1), None)], ..Plan::default() };
        let text = encode_items(&away.items);
        assert_eq!(decode_items(&text).expect("read"), away.items);
        let plain = String::from_utf8_lossy(&text).replace("\"outside\":true,", "");
        assert_eq!(decode_items(plain.as_bytes()).expect_err("refused").code, Code::UnsafePath);
        let up = String::from_utf8_lossy(&text).replace("/x/y", "/x/../y");
        assert_eq!(decode_items(up.as_bytes()).expect_err("refused").code, Code::UnsafePath);
    }

    #[test]
    fn a_directory_with_something_left_in_it_stays() {
        let items = vec![item("d", dir(), None), item("d/a", file(1), None)];
        let mut p = Plan { items, ..Plan::default() };
        settle(&mut p, &|path| path == "d");
        assert_eq!(p.items[0].action, Action::Keep);
        assert_eq!(p.items[1].action, Action::Delete);
        let mut p = Plan {
            items: vec![
                item("d", dir(), file(9)),
                item("d/a", file(1), None),
                Item::keep("d/b".into(), Action::Keep, "ignored"),
                item("elsewhere", file(1), None),
            ],
            ..Plan::default()
        };
        settle(&mut p, &|_| false);
        assert_eq!(p.items[0].action, Action::Conflict);
        assert_eq!(p.items[1].action, Action::Conflict, "a half-emptied directory helps nobody");
        assert_eq!(p.items[2].reason.as_deref(), Some("ignored"), "what stays anyway keeps its reason");
        assert_eq!(p.items[3].action, Action::Delete, "and what is elsewhere goes");
    }

    #[test]
    fn nothing_is_put_below_a_file_that_stays() {
        let mut top = item("d", file(1), dir());
        top.leave(Action::Keep, "busy");
        let mut p = Plan { items: vec![top, item("d/a", None, file(2))], ..Plan::default() };
        settle(&mut p, &|_| false);
        assert_eq!(p.items[1].action, Action::Conflict);
    }
}

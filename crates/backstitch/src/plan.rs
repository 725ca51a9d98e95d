//! A plan is a value: preview shows it, applying takes its digest. One function computes it for both.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};
use serde::{Deserialize, Serialize};

use crate::{
    coverage::{Coverage, DiskRules, RowRules},
    error::{Code, Error, Result},
    hunks::Hunk,
    merge::Clash,
    meta::Attrs,
    paths,
    settings::digest,
    tree::{self, DirRef, Entry, Node},
};

/// What stands at a path, with owner and attributes where they are not ordinary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Type, content, mode.
    pub node: Node,
    /// The rest.
    pub attrs: Attrs,
}

impl Stand {
    pub(crate) fn of(e: &Entry) -> Stand {
        Stand { node: e.node.clone(), attrs: e.attrs.clone() }
    }
}

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A file or link comes into being.
    Create,
    /// A file, link or directory is replaced.
    Overwrite,
    /// A file or link goes.
    Delete,
    /// Only the permission bits change.
    Mode,
    /// A directory comes into being.
    Mkdir,
    /// An empty directory goes.
    Rmdir,
    /// Left as it is, by rule.
    Keep,
    /// Left as it is, because somebody else changed it.
    Conflict,
    /// Not spoken for by this call.
    Skip,
}

impl Action {
    /// Something is changed.
    pub fn changes(self) -> bool {
        !matches!(self, Action::Keep | Action::Conflict | Action::Skip)
    }

    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Overwrite => "overwrite",
            Action::Delete => "delete",
            Action::Mode => "mode",
            Action::Mkdir => "mkdir",
            Action::Rmdir => "rmdir",
            Action::Keep => "keep",
            Action::Conflict => "conflict",
            Action::Skip => "skip",
        }
    }

    /// All of them.
    pub const ALL: &'static [Action] = &[
        Action::Create,
        Action::Overwrite,
        Action::Delete,
        Action::Mode,
        Action::Mkdir,
        Action::Rmdir,
        Action::Keep,
        Action::Conflict,
        Action::Skip,
    ];
}

/// How far an item came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Not yet (a preview), or nothing to do.
    Pending,
    /// Done and verified.
    Done,
    /// Not possible; the path is as it was.
    Failed,
}

/// One path of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Relative to the workspace; absolute for a file elsewhere.
    pub path: BString,
    /// What is done.
    pub action: Action,
    /// Why, where it is not obvious: a stable word.
    pub reason: Option<String>,
    /// What must stand there; `None`: nothing.
    pub from: Option<Stand>,
    /// What will stand there; `None`: nothing.
    pub to: Option<Stand>,
    /// How far it came.
    pub result: Progress,
    /// Where somebody moved it.
    pub moved_to: Option<BString>,
    /// Places in it that both sides changed: they stay as they are.
    pub clashes: Vec<Clash>,
    /// Its parts, where they were asked for.
    pub hunks: Vec<Hunk>,
}

impl Item {
    /// The item that takes `from` to `to`; `None` where they are equal.
    pub fn transition(path: BString, from: Option<Stand>, to: Option<Stand>) -> Option<Item> {
        let action = match (from.as_ref().map(|s| &s.node), to.as_ref().map(|s| &s.node)) {
            (None, None) => return None,
            (Some(a), Some(b)) if a == b => return None,
            (None, Some(Node::Dir { .. })) => Action::Mkdir,
            (None, Some(_)) => Action::Create,
            (Some(Node::Dir { .. }), None) => Action::Rmdir,
            (Some(_), None) => Action::Delete,
            (Some(Node::Dir { .. }), Some(Node::Dir { .. })) => Action::Mode,
            (Some(Node::File { oid: a, .. }), Some(Node::File { oid: b, .. })) if a == b => Action::Mode,
            (Some(_), Some(_)) => Action::Overwrite,
        };
        Some(Item {
            path,
            action,
            reason: None,
            from,
            to,
            result: Progress::Pending,
            moved_to: None,
            clashes: Vec::new(),
            hunks: Vec::new(),
        })
    }

    /// Leaves the path alone.
    pub fn keep(path: BString, action: Action, reason: &str) -> Item {
        Item {
            path,
            action,
            reason: Some(reason.to_owned()),
            from: None,
            to: None,
            result: Progress::Pending,
            moved_to: None,
            clashes: Vec::new(),
            hunks: Vec::new(),
        }
    }

    /// Turns a change into leaving alone.
    pub fn leave(&mut self, action: Action, reason: &str) {
        self.action = action;
        self.reason = Some(reason.to_owned());
    }

    /// A file outside the workspace.
    pub fn is_outside(&self) -> bool {
        paths::is_outside(self.path.as_bstr())
    }

    pub(crate) fn was_dir(&self) -> bool {
        self.from.as_ref().is_some_and(|s| s.node.is_dir())
    }

    pub(crate) fn becomes_dir(&self) -> bool {
        self.to.as_ref().is_some_and(|s| s.node.is_dir())
    }
}

/// The operations that a restore would carry out.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Sorted by path.
    pub items: Vec<Item>,
    /// Contents that items lead to and no row holds yet: merged ones.
    pub contents: BTreeMap<Oid, Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct StandRecord {
    t: char,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct ItemRecord {
    path: String,
    /// The path is absolute: a file outside the workspace. Without this word no absolute path is taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    outside: bool,
    action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<StandRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<StandRecord>,
}

fn to_record(s: &Stand) -> StandRecord {
    StandRecord {
        t: match s.node {
            Node::File { .. } => 'f',
            Node::Link { .. } => 'l',
            Node::Dir { .. } => 'd',
        },
        mode: s.node.mode(),
        oid: s.node.oid().map(|o| o.to_string()),
        owner: s.attrs.owner,
        xattrs: s.attrs.xattrs.iter().map(|(k, v)| (paths::escape(k), paths::escape(v))).collect(),
    }
}

fn from_record(r: StandRecord) -> Option<Stand> {
    let oid = || Oid::from_hex(r.oid.as_deref()?.as_bytes()).ok();
    let node = match r.t {
        'f' => Node::File { oid: oid()?, mode: r.mode? & 0o7777 },
        'l' => Node::Link { oid: oid()? },
        'd' => Node::Dir { mode: r.mode? & 0o7777 },
        _ => return None,
    };
    let xattrs = r
        .xattrs
        .iter()
        .map(|(k, v)| Some((paths::unescape(k.as_bytes())?, paths::unescape(v.as_bytes())?)))
        .collect::<Option<_>>()?;
    Some(Stand { node, attrs: Attrs { owner: r.owner, xattrs } })
}

/// Bytes of an operation's `items` blob: one line of JSON per item.
pub fn encode_items(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for i in items {
        let r = ItemRecord {
            path: paths::escape(&i.path),
            outside: i.is_outside(),
            action: i.action,
            reason: i.reason.clone(),
            from: i.from.as_ref().map(to_record),
            to: i.to.as_ref().map(to_record),
        };
        out.extend_from_slice(&serde_json::to_vec(&r).unwrap_or_default());
        out.push(b'\n');
    }
    out
}

/// Inverse of [`encode_items`].
pub fn decode_items(bytes: &[u8]) -> Result<Vec<Item>> {
    let bad = || Error::new(Code::StoreDamaged, "the items of an operation are not in the known form");
    bytes
        .lines()
        .map(|l| {
            let r: ItemRecord = serde_json::from_slice(l).map_err(|_| bad())?;
            let stand = |r: Option<StandRecord>| match r {
                None => Ok(None),
                Some(r) => from_record(r).map(Some).ok_or_else(bad),
            };
            let path = paths::unescape(r.path.as_bytes()).ok_or_else(bad)?;
            let within = match r.outside {
                true => path.strip_prefix(b"/").map(ByteSlice::as_bstr),
                false => Some(path.as_bstr()),
            };
            if !within.is_some_and(paths::is_safe) {
                return Err(Error::new(
                    Code::UnsafePath,
                    format!("an operation names {path:?}, which must never be written"),
                )
                .at_bytes(path)
                .hint("nothing was changed; `backstitch verify` examines the store"));
            }
            Ok(Item {
                path,
                action: r.action,
                reason: r.reason,
                from: stand(r.from)?,
                to: stand(r.to)?,
                result: Progress::Pending,
                moved_to: None,
                clashes: Vec::new(),
                hunks: Vec::new(),
            })
        })
        .collect()
}

impl Plan {
    /// Names exactly this plan: target, paths, actions, both ends.
    pub fn digest(&self, target: &str) -> String {
        let mut bytes = target.as_bytes().to_vec();
        bytes.push(b'\n');
        bytes.extend(encode_items(&self.items));
        digest(&bytes)
    }

    /// Items that change something.
    pub fn changes(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|i| i.action.changes())
    }

    /// Number of items by action.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut c = BTreeMap::new();
        for i in &self.items {
            *c.entry(i.action.as_str()).or_default() += 1;
        }
        c
    }
}

/// Which paths a call speaks about.
#[derive(Default)]
pub struct Scope {
    /// Literal paths, each with all below it.
    pub paths: Vec<BString>,
    /// Patterns in ignore-file syntax.
    pub globs: Vec<gix_glob::Pattern>,
    /// Paths whose open editors hold unsaved text.
    pub busy: Vec<BString>,
}

impl Scope {
    /// Parses patterns.
    pub fn new(paths: Vec<BString>, globs: &[String], busy: Vec<BString>) -> Result<Scope> {
        let globs = globs
            .iter()
            .map(|g| {
                gix_glob::Pattern::from_bytes_without_negation(g.as_bytes())
                    .ok_or_else(|| Error::new(Code::Usage, format!("{g:?} is not a pattern")))
            })
            .collect::<Result<_>>()?;
        Ok(Scope { paths, globs, busy })
    }

    /// Everything is meant.
    pub fn is_everything(&self) -> bool {
        self.paths.is_empty() && self.globs.is_empty()
    }

    /// Every pattern means something: in one of the trees, or among other paths.
    ///
    /// # Errors
    /// `no-such-path` with the pattern.
    pub(crate) fn check_patterns(&self, odb: &Odb, trees: &[DirRef], others: &[&BStr]) -> Result<()> {
        for g in &self.globs {
            let one = Scope { globs: vec![g.clone()], ..Scope::default() };
            let mut hit = others.iter().any(|p| one.contains(p, false));
            for t in trees {
                if hit {
                    break;
                }
                tree::walk(odb, *t, &mut |p, e| {
                    hit = hit || one.contains(p, e.node.is_dir());
                    Ok(())
                })?;
            }
            if !hit {
                return Err(Error::new(Code::NoSuchPath, format!("{g}: nothing matches this pattern"))
                    .at_bytes(g.to_string())
                    .hint(
                        "patterns are those of ignore files, relative to the workspace; nothing was changed",
                    ));
            }
        }
        Ok(())
    }

    /// The path is meant.
    pub fn contains(&self, path: &BStr, is_dir: bool) -> bool {
        self.is_everything()
            || self.paths.iter().any(|p| paths::is_under(path, p.as_bstr()))
            // Patterns speak of the workspace.
            || !paths::is_outside(path) && self.globs.iter().any(|g| {
                let mut at = path;
                let mut dir = is_dir;
                loop {
                    let basename = at.rfind_byte(b'/').map(|i| i + 1);
                    if g.matches_repo_relative_path(
                        at,
                        basename,
                        Some(dir),
                        gix_glob::pattern::Case::Sensitive,
                        gix_glob::wildmatch::Mode::NO_MATCH_SLASH_LITERAL,
                    ) {
                        return true;
                    }
                    if at.find_byte(b'/').is_none() {
                        return false;
                    }
                    at = paths::split(at).0;
                    dir = true;
                }
            })
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
                    let above =
                        !kept_above.insert(path.to_owned()) || kept_above.contains(paths::split(path).0);
                    if above {
                        return Ok(());
                    }
                    items.insert(path.to_owned(), Item::keep(path.to_owned(), Action::Conflict, why));
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
                    Some(why) => {
                        // One item for the topmost path that is left alone.
                        let (parent, _) = paths::split(path);
                        let above = kept_above.contains(parent);
                        kept_above.insert(path.to_owned());
                        if above {
                            return Ok(());
                        }
                        Some(Item::keep(path.to_owned(), Action::Keep, &why))
                    }
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
    for item in items.values().filter(|i| i.action.changes() && i.to.is_some()) {
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
        if item.result == Progress::Failed || !item.action.changes() {
            note(&mut stays, item.path.as_bstr());
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
            if i.path != top && paths::is_under(i.path.as_bstr(), top.as_bstr()) && i.action.changes() {
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
        let stays_no_dir =
            (!i.action.changes() || i.result == Progress::Failed) && i.becomes_dir() && !i.was_dir();
        if stays_no_dir {
            files.push(i.path.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ],
            ..Plan::default()
        };
        settle(&mut p, &|_| false);
        assert_eq!(p.items[0].action, Action::Conflict);
        assert_eq!(p.items[1].action, Action::Conflict, "a half-emptied directory helps nobody");
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

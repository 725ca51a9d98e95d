//! What changed between two rows, or between a row and the live tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage::{self, Coverage},
    error::{Code, Error, Result},
    live, patch, paths, preimage,
    record::Checkpoint,
    session,
    tree::{self, Node, Root},
    workspace::{Control, Rows, Workspace},
};

/// Files above this are compared by id only.
pub(crate) const TEXT_LIMIT: u64 = 16 << 20;
/// Moved files with changes are looked for among at most this many pairs.
const PAIRS: usize = 40_000;

/// Letter of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// New.
    Added,
    /// Content or mode.
    Modified,
    /// Gone.
    Deleted,
    /// Moved, perhaps with small changes.
    Renamed,
    /// Another type.
    TypeChanged,
}

impl Status {
    /// `A`, `M`, `D`, `R`, `T`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Added => "A",
            Status::Modified => "M",
            Status::Deleted => "D",
            Status::Renamed => "R",
            Status::TypeChanged => "T",
        }
    }
}

/// One changed path.
#[derive(Clone, Debug)]
pub struct Change {
    /// The path (a rename's new one).
    pub path: BString,
    /// A rename's old path.
    pub old_path: Option<BString>,
    /// Letter.
    pub status: Status,
    /// Permission bits before and after, where they differ.
    pub mode_change: Option<(u32, u32)>,
    /// Content is not text.
    pub binary: bool,
    /// Lines added; `None` for binary content and where it was not asked for.
    pub added: Option<u64>,
    /// Lines removed.
    pub removed: Option<u64>,
}

/// How to compare.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these, with all below.
    pub paths: Vec<BString>,
    /// Count lines.
    pub stat: bool,
    /// Unified text.
    pub patch: bool,
    /// In a form that `git apply` takes: binary contents as well, and nothing that git cannot say.
    pub binary: bool,
}

/// All changes.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Id of the older side.
    pub from: String,
    /// Id of the newer side, or `live`.
    pub to: String,
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Paths that one side holds and the other does not speak for, with the reason.
    pub not_covered: Vec<(BString, String)>,
    /// Unified text.
    pub patch: Option<Vec<u8>>,
    /// Changes that the text cannot say: empty directories, bits that git does not know.
    pub unsaid: Vec<BString>,
}

/// One side: its trees and what they speak for.
struct Side {
    root: Root,
    coverage: Coverage,
    /// What stood at paths that it does not cover, as the first tool that named them found it. Nodes; `None`: nothing.
    first_touched: BTreeMap<BString, Option<Node>>,
}

impl Side {
    /// Of a row, or of nothing at all.
    fn of(odb: &Odb, rows: &Rows, c: Option<&Checkpoint>) -> Result<Side> {
        let Some(c) = c else {
            let (root, coverage) = (Root::default(), Coverage::everything());
            return Ok(Side { root, coverage, first_touched: BTreeMap::new() });
        };
        let (root, coverage) = coverage::of_checkpoint(odb, c)?;
        // A row of named paths speaks for these only.
        let line = match (&c.record.session, &c.record.covers) {
            (Some(id), None) => session::line(rows, &rows.sessions, id),
            _ => Vec::new(),
        };
        let mut known = preimage::earliest(odb, &line, c.record.seq)?.paths;
        known.retain(|p, _| !coverage.covers(p.as_bstr()));
        let first_touched = known.into_iter().map(|(p, s)| (p, s.map(|s| s.node))).collect();
        Ok(Side { root, coverage, first_touched })
    }
}

impl Workspace {
    /// Compares two rows; without `to`, a row with the live tree, files created since included. `from` of `None` is the
    /// empty tree. A path that one side does not speak for is no change: it is listed in [`Diff::not_covered`].
    pub fn diff(
        &self,
        from: Option<&Checkpoint>,
        to: Option<&Checkpoint>,
        options: &Options,
        control: &Control<'_>,
    ) -> Result<Diff> {
        let odb = self.odb()?;
        let rows = self.rows()?;
        let a = Side::of(&odb, &rows, from)?;
        let name = |c: Option<&Checkpoint>| c.map_or_else(|| "empty".to_owned(), |c| c.record.id.clone());
        if let Some(to) = to {
            let b = Side::of(&odb, &rows, Some(to))?;
            return compare(&odb, (&name(from), &a), (&to.record.id, &b), options);
        }
        let _lock = self.lock_capture()?;
        let live = if self.is_unbounded() || from.is_some_and(|f| f.record.scope == "touched") {
            None
        } else {
            live::scan_all(self, false, crate::capture::Room::unlimited(), control)?
        };
        let mut live = match live {
            Some(live) => live,
            None => {
                let mut covers = Vec::new();
                tree::walk(&odb, a.root.files, &mut |p, e| {
                    if !e.node.is_dir() {
                        covers.push(p.to_owned());
                    }
                    Ok(())
                })?;
                live::scan_named(
                    self,
                    &covers,
                    Default::default(),
                    "touched",
                    crate::capture::Room::unlimited(),
                    control,
                )?
            }
        };
        // Files elsewhere that the row knows, and those inside that no look at everything covers.
        let touched = a.first_touched.keys().cloned();
        let looked = from.into_iter().flat_map(|c| c.record.outside_paths());
        let elsewhere: BTreeSet<BString> =
            touched.chain(looked).filter(|p| paths::is_outside(p.as_bstr())).collect();
        live.outside = a.root.outside;
        live::look_outside(self, &mut live, &elsewhere.into_iter().collect::<Vec<_>>(), control)?;
        let root = Root { files: live.files, outside: live.outside, ..Root::default() };
        let b = Side { root, coverage: live.coverage(), first_touched: BTreeMap::new() };
        let odb = live.writer.odb().clone();
        compare(&odb, (&name(from), &a), ("live", &b), options)
    }
}

fn compare(odb: &Odb, a: (&str, &Side), b: (&str, &Side), options: &Options) -> Result<Diff> {
    let mut out = Diff { from: a.0.to_owned(), to: b.0.to_owned(), ..Diff::default() };
    let mut found: Vec<(BString, Option<Node>, Option<Node>)> = Vec::new();
    let mut unknown: BTreeMap<BString, String> = BTreeMap::new();
    let asked = |path: &BStr| {
        options.paths.is_empty() || options.paths.iter().any(|p| paths::is_under(path, p.as_bstr()))
    };
    Root::diff(odb, &a.1.root, &b.1.root, &mut |path, x, y| {
        if !asked(path) || a.1.first_touched.contains_key(path) {
            return Ok(());
        }
        let silent = match (x, y) {
            (Some(_), None) if !b.1.coverage.covers(path) => Some(&b.1.coverage),
            (None, Some(_)) if !a.1.coverage.covers(path) => Some(&a.1.coverage),
            _ => None,
        };
        // What is elsewhere is carried from row to row: only who asks for it is told.
        if silent.is_some() && paths::is_outside(path) && options.paths.is_empty() {
            return Ok(());
        }
        if let Some(c) = silent {
            let reason = c.skip_at_or_above(path).unwrap_or("not looked at").to_owned();
            let above = unknown.contains_key(paths::split(path).0);
            if !above || x.or(y).is_some_and(|e| e.node.is_dir()) {
                unknown.insert(path.to_owned(), reason);
            }
            return Ok(());
        }
        let node = |e: Option<&tree::Entry>| e.map(|e| e.node.clone());
        let empty = |e: &tree::Entry| e.dir.tree.is_none_or(|t| t.is_empty_tree());
        match (x, y) {
            // A directory shows only where nothing in it does.
            (Some(e), None) | (None, Some(e)) if e.node.is_dir() && !empty(e) => {}
            _ => found.push((path.to_owned(), node(x), node(y))),
        }
        Ok(())
    })?;
    for (path, then) in a.1.first_touched.iter().filter(|(p, _)| asked(p.as_bstr())) {
        if b.1.coverage.covers(path.as_bstr()) {
            let now = b.1.root.find(odb, path.as_bstr())?.map(|e| e.node);
            if now != *then {
                found.push((path.clone(), then.clone(), now));
            }
        }
    }
    // A patch is about one folder.
    if options.binary {
        out.unsaid.extend(found.extract_if(.., |(p, ..)| paths::is_outside(p.as_bstr())).map(|(p, ..)| p));
    }
    for p in &options.paths {
        let mut known = unknown.contains_key(p.as_bstr());
        for side in [a.1, b.1] {
            known |= side.coverage.skip_at_or_above(p.as_bstr()).is_some()
                || side.coverage.has_skip_below(p.as_bstr())
                || side.first_touched.contains_key(p)
                || side.root.find(odb, p.as_bstr())?.is_some();
        }
        if !known {
            return Err(Error::new(Code::NoSuchPath, format!("{}: on neither side", p.to_str_lossy()))
                .at_bytes(p.clone())
                .hint("paths after -- are literal and relative to the current folder"));
        }
    }
    // One line for the topmost path.
    let tops: Vec<(BString, String)> = unknown
        .iter()
        .filter(|(p, _)| !unknown.contains_key(paths::split(p.as_bstr()).0))
        .map(|(p, r)| (p.clone(), r.clone()))
        .collect();
    out.not_covered = tops;
    let renames = renames(odb, &mut found)?;
    let mut text = options.patch.then(Vec::new);
    found.sort_by(|x, y| x.0.cmp(&y.0));
    for (path, x, y) in found {
        let old_path = renames.get(&path).cloned();
        let status = match (&x, &y) {
            _ if old_path.is_some() => Status::Renamed,
            (None, _) => Status::Added,
            (_, None) => Status::Deleted,
            (Some(a), Some(b)) if a.kind() != b.kind() => Status::TypeChanged,
            _ => Status::Modified,
        };
        let mode = |n: &Option<Node>| n.as_ref().and_then(Node::mode);
        let mode_change = mode(&x).zip(mode(&y)).filter(|(a, b)| a != b);
        let mut c = Change { path, old_path, status, mode_change, binary: false, added: None, removed: None };
        let (ox, oy) = (x.as_ref().and_then(Node::oid), y.as_ref().and_then(Node::oid));
        if options.stat || options.patch {
            // A whole patch needs all of it; else large files are compared by id only.
            let read = |oid| match options.binary {
                true => whole(odb, oid),
                false => content(odb, oid),
            };
            let (old, new) = (read(ox)?, read(oy)?);
            c.binary = ox != oy && (is_binary(old.as_deref()) || is_binary(new.as_deref()));
            let (added, removed) = match (&old, &new) {
                (Some(old), Some(new)) if !c.binary && ox != oy => {
                    let (_, added, removed) = patch::lines(old, new);
                    (added, removed)
                }
                _ => (0, 0),
            };
            (c.added, c.removed) = (Some(added), Some(removed));
            if let Some(p) = &mut text {
                let end = |node, content| patch::End { node, content };
                let x = x.as_ref().map(|n| end(n, old.as_deref()));
                let y = y.as_ref().map(|n| end(n, new.as_deref()));
                if !patch::write(p, &c, x.as_ref(), y.as_ref(), options.binary) {
                    out.unsaid.push(c.path.clone());
                }
            }
        } else if ox != oy {
            c.binary = peek_binary(odb, oy.or(ox))?;
        }
        out.changes.push(c);
    }
    out.patch = text;
    Ok(out)
}

/// Content, `None` where it is too large to compare by line.
fn content(odb: &Odb, oid: Option<Oid>) -> Result<Option<Vec<u8>>> {
    let Some(oid) = oid else { return Ok(Some(Vec::new())) };
    if odb.size(&oid)? > TEXT_LIMIT {
        return Ok(None);
    }
    Ok(Some(odb.blob(&oid)?))
}

/// Content of any size.
fn whole(odb: &Odb, oid: Option<Oid>) -> Result<Option<Vec<u8>>> {
    Ok(Some(oid.map(|o| odb.blob(&o)).transpose()?.unwrap_or_default()))
}

fn is_binary(bytes: Option<&[u8]>) -> bool {
    !bytes.is_some_and(is_text)
}

/// No NUL near the beginning.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes[..bytes.len().min(8000)].contains(&0)
}

fn peek_binary(odb: &Odb, oid: Option<Oid>) -> Result<bool> {
    let c = content(odb, oid)?;
    Ok(is_binary(c.as_deref()))
}

/// Pairs new files with gone ones: same content first, then at least half of the lines. A pair becomes one entry at the
/// new path; the map gives its old path.
fn renames(
    odb: &Odb,
    found: &mut Vec<(BString, Option<Node>, Option<Node>)>,
) -> Result<HashMap<BString, BString>> {
    let file = |n: &Option<Node>| n.as_ref().filter(|n| !n.is_dir()).and_then(Node::oid);
    let mut gone: Vec<usize> = Vec::new();
    let mut new: Vec<usize> = Vec::new();
    for (i, (path, x, y)) in found.iter().enumerate() {
        match (file(x), file(y)) {
            _ if paths::is_outside(path.as_bstr()) => {}
            (Some(_), None) if y.is_none() => gone.push(i),
            (None, Some(_)) if x.is_none() => new.push(i),
            _ => {}
        }
    }
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let mut by_oid: HashMap<Oid, Vec<usize>> = HashMap::new();
    for &g in gone.iter().rev() {
        if let Some(oid) = file(&found[g].1) {
            by_oid.entry(oid).or_default().push(g);
        }
    }
    let empty = Oid::empty_blob(gix_hash::Kind::Sha1);
    new.retain(|&n| {
        let Some(oid) = file(&found[n].2).filter(|o| *o != empty) else { return true };
        let Some(list) = by_oid.get_mut(&oid) else { return true };
        // The same name elsewhere is the likelier origin.
        let name = paths::split(found[n].0.as_bstr()).1;
        let at = list
            .iter()
            .rposition(|g| paths::split(found[*g].0.as_bstr()).1 == name)
            .unwrap_or(list.len().wrapping_sub(1));
        if at >= list.len() {
            return true;
        }
        pairs.push((list.remove(at), n));
        false
    });
    gone.retain(|g| !pairs.iter().any(|(x, _)| x == g));
    if !gone.is_empty() && !new.is_empty() && gone.len() * new.len() <= PAIRS {
        let mut scored: Vec<(u64, usize, usize)> = Vec::new();
        let mut cache: HashMap<usize, Option<Vec<u8>>> = HashMap::new();
        for &i in gone.iter().chain(&new) {
            let node = found[i].1.as_ref().or(found[i].2.as_ref());
            let text = match node {
                Some(Node::File { oid, .. }) if (8..=1 << 20).contains(&odb.size(oid)?) => {
                    Some(odb.blob(oid)?)
                }
                _ => None,
            };
            cache.insert(i, text);
        }
        for &g in &gone {
            for &n in &new {
                let (Some(Some(a)), Some(Some(b))) = (cache.get(&g), cache.get(&n)) else { continue };
                let (small, large) = (a.len().min(b.len()), a.len().max(b.len()));
                if small * 2 < large {
                    continue;
                }
                let same = common_bytes(a, b) as u64;
                if same * 2 >= large as u64 {
                    scored.push((same * 1000 / large as u64, g, n));
                }
            }
        }
        scored.sort_by(|x, y| y.cmp(x));
        for (_, g, n) in scored {
            if !pairs.iter().any(|(x, y)| *x == g || *y == n) {
                pairs.push((g, n));
            }
        }
    }
    let mut map = HashMap::new();
    for (g, n) in &pairs {
        found[*n].1 = found[*g].1.clone();
        map.insert(found[*n].0.clone(), found[*g].0.clone());
    }
    let mut drop: Vec<usize> = pairs.iter().map(|p| p.0).collect();
    drop.sort_unstable();
    for g in drop.into_iter().rev() {
        found.swap_remove(g);
    }
    Ok(map)
}

/// Bytes in lines that both hold, as a bag.
pub(crate) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let mut bag: HashMap<&[u8], i64> = HashMap::new();
    for l in a.lines_with_terminator() {
        *bag.entry(l).or_default() += 1;
    }
    let mut same = 0;
    for l in b.lines_with_terminator() {
        if let Some(n) = bag.get_mut(l).filter(|n| **n > 0) {
            *n -= 1;
            same += l.len();
        }
    }
    same
}

/// Changes of one row against its parent, for `show`, `log` and patches.
pub(crate) fn against(
    odb: &Odb,
    rows: &Rows,
    from: Option<&Checkpoint>,
    to: &Checkpoint,
    options: &Options,
) -> Result<Diff> {
    let name = from.map_or_else(|| "empty".to_owned(), |c| c.record.id.clone());
    if !to.record.is_restorable() && to.record.files == 0 && to.record.state != crate::record::State::Complete
    {
        return Err(Error::new(Code::NotRestorable, format!("checkpoint {} holds nothing", to.record.id)));
    }
    compare(
        odb,
        (&name, &Side::of(odb, rows, from)?),
        (&to.record.id, &Side::of(odb, rows, Some(to))?),
        options,
    )
}

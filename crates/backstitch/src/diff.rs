//! What changed between two rows, or between a row and the live tree.

use std::collections::{BTreeMap, HashMap};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};
use imara_diff::{InternedInput, sources::byte_lines};

use crate::{
    coverage::{self, Coverage},
    error::{Code, Error, Result},
    live, merge, paths,
    record::Checkpoint,
    tree::{self, DirRef, Node},
    workspace::{Control, Workspace},
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
}

/// One side: a tree and what it speaks for.
struct Side {
    root: DirRef,
    coverage: Coverage,
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
        let side = |c: Option<&Checkpoint>| -> Result<Side> {
            Ok(match c {
                None => Side { root: DirRef::default(), coverage: Coverage::everything() },
                Some(c) => {
                    let (root, coverage) = coverage::of_checkpoint(&odb, c)?;
                    Side { root: root.files, coverage }
                }
            })
        };
        let a = side(from)?;
        let name = |c: Option<&Checkpoint>| c.map_or_else(|| "empty".to_owned(), |c| c.record.id.clone());
        if let Some(to) = to {
            let b = side(Some(to))?;
            return compare(&odb, (&name(from), &a), (&to.record.id, &b), options);
        }
        let _lock = self.lock_capture()?;
        let live = if self.is_unbounded() || from.is_some_and(|f| f.record.scope == "touched") {
            None
        } else {
            live::scan_all(self, false, crate::capture::Room::unlimited(), control)?
        };
        let live = match live {
            Some(live) => live,
            None => {
                let mut covers = Vec::new();
                tree::walk(&odb, a.root, &mut |p, e| {
                    if !e.node.is_dir() {
                        covers.push(p.to_owned());
                    }
                    Ok(())
                })?;
                live::scan_named(self, &covers, Default::default(), "touched", control)?
            }
        };
        let b = Side { root: live.files, coverage: live.coverage() };
        let odb = live.writer.odb().clone();
        compare(&odb, (&name(from), &a), ("live", &b), options)
    }
}

fn compare(odb: &Odb, a: (&str, &Side), b: (&str, &Side), options: &Options) -> Result<Diff> {
    let mut out = Diff { from: a.0.to_owned(), to: b.0.to_owned(), ..Diff::default() };
    let mut found: Vec<(BString, Option<Node>, Option<Node>)> = Vec::new();
    let mut unknown: BTreeMap<BString, String> = BTreeMap::new();
    tree::diff(odb, a.1.root, b.1.root, &mut |path, x, y| {
        if !options.paths.is_empty() && !options.paths.iter().any(|p| paths::is_under(path, p.as_bstr())) {
            return Ok(());
        }
        let silent = match (x, y) {
            (Some(_), None) if !b.1.coverage.covers(path) => Some(&b.1.coverage),
            (None, Some(_)) if !a.1.coverage.covers(path) => Some(&a.1.coverage),
            _ => None,
        };
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
    // One line for the topmost path.
    let tops: Vec<(BString, String)> = unknown
        .iter()
        .filter(|(p, _)| !unknown.contains_key(paths::split(p.as_bstr()).0))
        .map(|(p, r)| (p.clone(), r.clone()))
        .collect();
    out.not_covered = tops;
    let renames = renames(odb, &mut found)?;
    let mut patch = options.patch.then(Vec::new);
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
            let old = content(odb, ox)?;
            let new = content(odb, oy)?;
            c.binary = ox != oy && (is_binary(old.as_deref()) || is_binary(new.as_deref()));
            let hunks = if c.binary || ox == oy { None } else { Some(lines(&old, &new)) };
            let (added, removed) = hunks.as_ref().map_or((0, 0), |(_, a, r)| (*a, *r));
            (c.added, c.removed) = (Some(added), Some(removed));
            if let Some(p) = &mut patch {
                header(p, &c, x.as_ref(), y.as_ref());
                if c.binary {
                    p.extend_from_slice(b"Binary files differ\n");
                } else if let Some((text, ..)) = hunks.filter(|(t, ..)| !t.is_empty()) {
                    let old_name = c.old_path.as_ref().unwrap_or(&c.path);
                    let name = |there: bool, side: &str, path: &BString| match there {
                        true => quote(format!("{side}/").as_bytes(), path.as_bstr()),
                        false => b"/dev/null".to_vec(),
                    };
                    for (mark, n) in
                        [("---", name(x.is_some(), "a", old_name)), ("+++", name(y.is_some(), "b", &c.path))]
                    {
                        p.extend_from_slice(mark.as_bytes());
                        p.push(b' ');
                        p.extend_from_slice(&n);
                        p.push(b'\n');
                    }
                    p.extend_from_slice(&text);
                }
            }
        } else if ox != oy {
            c.binary = peek_binary(odb, oy.or(ox))?;
        }
        out.changes.push(c);
    }
    out.patch = patch;
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

/// Unified hunks with three lines of context, lines added, lines removed.
fn lines(old: &Option<Vec<u8>>, new: &Option<Vec<u8>>) -> (Vec<u8>, u64, u64) {
    const CONTEXT: u32 = 3;
    let (old, new) = (old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
    let input = InternedInput::new(byte_lines(old), byte_lines(new));
    let list = merge::hunks(&input);
    let mut out = Vec::new();
    let (before, after) = (input.before.len() as u32, input.after.len() as u32);
    let mut hunks = list.iter().cloned().peekable();
    while let Some(first) = hunks.next() {
        let mut group = vec![first];
        while let Some(h) = hunks.peek() {
            let gap = h.before.start - group.last().map_or(0, |g| g.before.end);
            if gap > 2 * CONTEXT {
                break;
            }
            group.extend(hunks.next());
        }
        let (Some(f), Some(l)) = (group.first(), group.last()) else { break };
        let (b0, a0) = (f.before.start.saturating_sub(CONTEXT), f.after.start.saturating_sub(CONTEXT));
        let lead = (f.before.start - b0).min(f.after.start - a0);
        let (b0, a0) = (f.before.start - lead, f.after.start - lead);
        let tail = (before - l.before.end).min(after - l.after.end).min(CONTEXT);
        let (b1, a1) = (l.before.end + tail, l.after.end + tail);
        let range = |s: u32, e: u32| match e - s {
            0 => format!("{s},0"),
            1 => format!("{}", s + 1),
            n => format!("{},{n}", s + 1),
        };
        out.extend_from_slice(format!("@@ -{} +{} @@\n", range(b0, b1), range(a0, a1)).as_bytes());
        let mut put = |mark: u8, token: imara_diff::Token| {
            let line: &[u8] = input.interner[token];
            out.push(mark);
            out.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        };
        let mut at = b0;
        for h in &group {
            for i in at..h.before.start {
                put(b' ', input.before[i as usize]);
            }
            for i in h.before.clone() {
                put(b'-', input.before[i as usize]);
            }
            for i in h.after.clone() {
                put(b'+', input.after[i as usize]);
            }
            at = h.before.end;
        }
        for i in at..b1 {
            put(b' ', input.before[i as usize]);
        }
    }
    let (added, removed) =
        list.iter().fold((0, 0), |(a, r), h| (a + h.after.len() as u64, r + h.before.len() as u64));
    (out, added, removed)
}

fn git_mode(n: &Node) -> u32 {
    match n {
        Node::File { mode, .. } if mode & 0o100 != 0 => 0o100755,
        Node::File { .. } => 0o100644,
        Node::Link { .. } => 0o120000,
        Node::Dir { .. } => 0o40000,
    }
}

/// Quotes like git where a name holds a quote, a backslash, a control character or is not ASCII.
fn quote(prefix: &[u8], path: &BStr) -> Vec<u8> {
    let plain = path.iter().all(|b| (0x20..0x7f).contains(b) && *b != b'"' && *b != b'\\');
    let mut out = Vec::new();
    if !plain {
        out.push(b'"');
    }
    out.extend_from_slice(prefix);
    for &b in path.iter() {
        match b {
            _ if plain => out.push(b),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x20..0x7f => out.push(b),
            _ => out.extend_from_slice(format!("\\{b:03o}").as_bytes()),
        }
    }
    if !plain {
        out.push(b'"');
    }
    out
}

fn header(p: &mut Vec<u8>, c: &Change, x: Option<&Node>, y: Option<&Node>) {
    let old = c.old_path.as_ref().unwrap_or(&c.path);
    p.extend_from_slice(b"diff --git ");
    p.extend_from_slice(&quote(b"a/", old.as_bstr()));
    p.push(b' ');
    p.extend_from_slice(&quote(b"b/", c.path.as_bstr()));
    p.push(b'\n');
    let mut say = |s: String| p.extend_from_slice(s.as_bytes());
    match (x, y) {
        (None, Some(n)) => say(format!("new file mode {:o}\n", git_mode(n))),
        (Some(n), None) => say(format!("deleted file mode {:o}\n", git_mode(n))),
        (Some(a), Some(b)) if git_mode(a) != git_mode(b) => {
            say(format!("old mode {:o}\nnew mode {:o}\n", git_mode(a), git_mode(b)));
        }
        _ => {}
    }
    if let Some(old) = &c.old_path {
        p.extend_from_slice(b"rename from ");
        p.extend_from_slice(&quote(b"", old.as_bstr()));
        p.extend_from_slice(b"\nrename to ");
        p.extend_from_slice(&quote(b"", c.path.as_bstr()));
        p.push(b'\n');
    }
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
    for (i, (_, x, y)) in found.iter().enumerate() {
        match (file(x), file(y)) {
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
    from: Option<&Checkpoint>,
    to: &Checkpoint,
    options: &Options,
) -> Result<Diff> {
    let side = |c: Option<&Checkpoint>| -> Result<Side> {
        Ok(match c {
            None => Side { root: DirRef::default(), coverage: Coverage::everything() },
            Some(c) => {
                let (root, coverage) = coverage::of_checkpoint(odb, c)?;
                Side { root: root.files, coverage }
            }
        })
    };
    let name = from.map_or_else(|| "empty".to_owned(), |c| c.record.id.clone());
    if !to.record.is_restorable() && to.record.files == 0 && to.record.state != crate::record::State::Complete
    {
        return Err(Error::new(Code::NotRestorable, format!("checkpoint {} holds nothing", to.record.id)));
    }
    compare(odb, (&name, &side(from)?), (&to.record.id, &side(Some(to))?), options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_what_git_apply_reads() {
        let old: Vec<u8> = (1..=20).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        let new = old.replace("line 3\n", "line three\n").replace("line 20\n", "line 20\nend");
        let (text, added, removed) = lines(&Some(old), &Some(new));
        assert_eq!((added, removed), (2, 1));
        let text = text.to_str_lossy();
        assert!(
            text.starts_with("@@ -1,6 +1,6 @@\n line 1\n line 2\n-line 3\n+line three\n line 4\n"),
            "{text}"
        );
        assert!(text.ends_with("+end\n\\ No newline at end of file\n"), "{text}");
        let (text, ..) = lines(&Some(Vec::new()), &Some(b"a\n".to_vec()));
        assert_eq!(text.to_str_lossy(), "@@ -0,0 +1 @@\n+a\n");
    }

    #[test]
    fn names_are_quoted_like_gits() {
        assert_eq!(quote(b"a/", BStr::new("x y")), b"a/x y");
        assert_eq!(quote(b"a/", BStr::new("x\ny\"\u{e9}")), b"\"a/x\\ny\\\"\\303\\251\"".to_vec());
    }
}

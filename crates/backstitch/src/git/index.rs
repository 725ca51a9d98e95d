//! The index as data: a tree that shares what `files/` has, and lines for what a tree cannot say.
//!
//! Stat data is no part of it: git looks again.

use std::collections::{BTreeMap, BTreeSet};

use backstitch_scan::{IndexEntry, index_entries};
use backstitch_store::{
    MODE_EXECUTABLE, MODE_FILE, MODE_GITLINK, MODE_LINK, MODE_TREE, Odb, Oid, Scratch, TreeEntry, names,
    tree_id,
};
use bstr::{BStr, BString, ByteSlice};

use super::keep::Keep;
use crate::{
    error::{Code, Error, Result},
    paths,
};

/// What was written.
pub(super) struct Made {
    pub tree: Oid,
    pub flags: Vec<u8>,
    /// Blobs that only `flags` names.
    pub sides: BTreeSet<Oid>,
}

/// The entries, or why they are not recorded.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Vec<IndexEntry>, &'static str> {
    let (entries, extensions) = index_entries(bytes).ok_or("not an index that can be read")?;
    if extensions.iter().any(|e| e == b"link") {
        return Err("a split index");
    }
    if entries.iter().any(|e| e.mode == MODE_TREE) {
        return Err("a sparse index");
    }
    Ok(entries)
}

fn in_tree(e: &IndexEntry) -> bool {
    e.stage == 0
        && !e.intent_to_add
        && matches!(e.mode, MODE_FILE | MODE_EXECUTABLE | MODE_LINK | MODE_GITLINK)
}

/// A line of `flags`: mode, stage, letters (`t`: also in the tree, `a`, `s`, `i`), id, escaped path.
fn line(e: &IndexEntry, in_tree: bool) -> String {
    let letters: String =
        [(in_tree, 't'), (e.assume_valid, 'a'), (e.skip_worktree, 's'), (e.intent_to_add, 'i')]
            .into_iter()
            .filter_map(|(on, c)| on.then_some(c))
            .collect();
    let letters = if letters.is_empty() { "-" } else { &letters };
    format!("{:o} {} {letters} {} {}\n", e.mode, e.stage, e.oid, paths::escape(&e.path))
}

fn parse_line(text: &[u8]) -> Option<(IndexEntry, bool)> {
    let mut f = text.split_str(" ");
    let mode = u32::from_str_radix(f.next()?.to_str().ok()?, 8).ok()?;
    let stage: u8 = f.next()?.to_str().ok()?.parse().ok().filter(|s| *s < 4)?;
    let letters = f.next()?;
    let oid = Oid::from_hex(f.next()?).ok()?;
    let path = paths::unescape(f.next()?).filter(|p| paths::is_safe(p.as_bstr()))?;
    let has = |c: u8| letters.contains(&c);
    let known = matches!(mode, MODE_FILE | MODE_EXECUTABLE | MODE_LINK | MODE_GITLINK);
    let e = IndexEntry {
        path,
        mode,
        oid,
        stage,
        assume_valid: has(b'a'),
        skip_worktree: has(b's'),
        intent_to_add: has(b'i'),
        stat: [0; 40],
    };
    (known && f.next().is_none()).then_some((e, has(b't')))
}

/// A directory of the index with both its ids: as git has it, and with names as stored.
struct Dir<'e> {
    leaves: Vec<(&'e BStr, &'e IndexEntry)>,
    dirs: Vec<(&'e BStr, Dir<'e>)>,
    raw: Oid,
    stored: Oid,
}

fn dir_of<'e>(entries: &[&'e IndexEntry], base: usize, depth: usize) -> Result<Dir<'e>> {
    let odd = || {
        Error::new(Code::Failed, "the index holds paths that no tree can hold")
            .hint("`git fsck` and `git reset` repair an index; everything else was recorded")
    };
    if depth > 2000 {
        return Err(odd());
    }
    let (mut leaves, mut dirs) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < entries.len() {
        let rest: &'e [u8] = &entries[at].path[base..];
        match rest.find_byte(b'/') {
            None => {
                leaves.push((rest.as_bstr(), entries[at]));
                at += 1;
            }
            Some(n) => {
                let start = &entries[at].path[..base + n + 1];
                let end = at + entries[at..].iter().take_while(|e| e.path.starts_with(start)).count();
                dirs.push((rest[..n].as_bstr(), dir_of(&entries[at..end], base + n + 1, depth + 1)?));
                at = end;
            }
        }
    }
    let list = |stored: bool| -> Vec<TreeEntry> {
        let name =
            |n: &BStr| -> BString { if stored { names::encode(n).into_owned().into() } else { n.into() } };
        let leaf = |(n, e): &(&BStr, &IndexEntry)| TreeEntry { mode: e.mode, name: name(n), oid: e.oid };
        let dir = |(n, d): &(&BStr, Dir<'_>)| TreeEntry {
            mode: MODE_TREE,
            name: name(n),
            oid: if stored { d.stored } else { d.raw },
        };
        leaves.iter().map(leaf).chain(dirs.iter().map(dir)).collect()
    };
    let raw = tree_id(&mut list(false)).map_err(|_| odd())?;
    let stored = tree_id(&mut list(true)).map_err(|_| odd())?;
    Ok(Dir { leaves, dirs, raw, stored })
}

impl Dir<'_> {
    /// Writes what `before`, which is in the store, does not have. Objects that cannot be had are collected.
    fn write(
        &self,
        before: Option<Oid>,
        keep: &mut Keep<'_>,
        s: &mut Scratch,
        lost: &mut BTreeSet<Oid>,
    ) -> Result<()> {
        keep.memo.insert(self.raw, self.stored);
        // A tree is given to the writer only after all that it holds: most often the capture has made the same one.
        if before == Some(self.stored) || keep.writer.was_given(&self.stored) {
            self.remember(keep);
            return Ok(());
        }
        let known: BTreeMap<BString, TreeEntry> = match before {
            Some(oid) => keep.writer.odb().tree(&oid)?.into_iter().map(|e| (e.name.clone(), e)).collect(),
            None => BTreeMap::new(),
        };
        let mut list = Vec::with_capacity(self.leaves.len() + self.dirs.len());
        for (name, e) in &self.leaves {
            let name: BString = names::encode(name).into_owned().into();
            let same = known.get(&name).is_some_and(|k| k.oid == e.oid && k.mode != MODE_TREE);
            if e.mode != MODE_GITLINK && !same && !keep.file(s, e.path.as_bstr(), &e.oid)? {
                lost.insert(e.oid);
            }
            list.push(TreeEntry { mode: e.mode, name, oid: e.oid });
        }
        for (name, d) in &self.dirs {
            let name: BString = names::encode(name).into_owned().into();
            let old = known.get(&name).filter(|k| k.mode == MODE_TREE).map(|k| k.oid);
            d.write(old, keep, s, lost)?;
            list.push(TreeEntry { mode: MODE_TREE, name, oid: d.stored });
        }
        if lost.is_empty() {
            keep.writer.tree(s, &mut list)?;
        }
        Ok(())
    }

    fn remember(&self, keep: &mut Keep<'_>) {
        for (_, d) in &self.dirs {
            keep.memo.insert(d.raw, d.stored);
            d.remember(keep);
        }
    }
}

/// Writes the entries. What cannot be had is named in `keep` and stands in the lines only.
pub(super) fn write(
    entries: &[IndexEntry],
    before: Option<Oid>,
    keep: &mut Keep<'_>,
    s: &mut Scratch,
) -> Result<Made> {
    let mut lost: BTreeSet<Oid> = BTreeSet::new();
    loop {
        let fits = |e: &&IndexEntry| in_tree(e) && (e.mode == MODE_GITLINK || !lost.contains(&e.oid));
        let list: Vec<&IndexEntry> = entries.iter().filter(fits).collect();
        let top = dir_of(&list, 0, 0)?;
        let mut more = BTreeSet::new();
        top.write(before, keep, s, &mut more)?;
        if !more.is_empty() {
            // Ids of trees with a hole are remembered for no tree.
            keep.memo.clear();
            lost.extend(more);
            continue;
        }
        if list.is_empty() {
            keep.writer.tree(s, &mut Vec::new())?;
        }
        let (mut flags, mut sides) = (Vec::new(), BTreeSet::new());
        for e in entries {
            let inside = fits(&e);
            if !inside || e.assume_valid || e.skip_worktree {
                flags.extend_from_slice(line(e, inside).as_bytes());
            }
            if !inside
                && e.mode != MODE_GITLINK
                && !lost.contains(&e.oid)
                && keep.file(s, e.path.as_bstr(), &e.oid)?
            {
                sides.insert(e.oid);
            }
        }
        return Ok(Made { tree: top.stored, flags, sides });
    }
}

/// The entries as recorded, in git's order, without stat data.
pub(super) fn read(odb: &Odb, tree: &Oid, flags: Option<&Oid>) -> Result<Vec<IndexEntry>> {
    let damaged = || Error::new(Code::StoreDamaged, "a recorded git index is not in the known form");
    let mut out: BTreeMap<(BString, u8), IndexEntry> = BTreeMap::new();
    let mut todo = vec![(BString::default(), *tree, 0)];
    while let Some((base, oid, depth)) = todo.pop() {
        if depth > 2000 {
            return Err(damaged());
        }
        for e in odb.tree(&oid)? {
            let name = names::decode(&e.name).ok_or_else(damaged)?;
            let path = paths::join(base.as_bstr(), &name);
            if !paths::is_safe(path.as_bstr()) {
                return Err(damaged());
            }
            match e.mode {
                MODE_TREE => todo.push((path, e.oid, depth + 1)),
                MODE_FILE | MODE_EXECUTABLE | MODE_LINK | MODE_GITLINK => {
                    let entry = IndexEntry {
                        path: path.clone(),
                        mode: e.mode,
                        oid: e.oid,
                        stage: 0,
                        assume_valid: false,
                        skip_worktree: false,
                        intent_to_add: false,
                        stat: [0; 40],
                    };
                    out.insert((path, 0), entry);
                }
                _ => return Err(damaged()),
            }
        }
    }
    if let Some(flags) = flags {
        for text in odb.blob(flags)?.lines() {
            let (entry, inside) = parse_line(text).ok_or_else(damaged)?;
            let key = (entry.path.clone(), entry.stage);
            if inside != out.contains_key(&key) {
                return Err(damaged());
            }
            out.insert(key, entry);
        }
    }
    Ok(out.into_values().collect())
}

/// An index file of these entries: version 2, or 3 where one has flags that need it. Stat data is taken over from
/// `present`, the entries of an index that was written at `written` (seconds, nanoseconds), where it is of the same content
/// and older than that index; git looks at all other files again.
pub(super) fn encode(entries: &[IndexEntry], present: &[IndexEntry], written: (u32, u32)) -> Result<Vec<u8>> {
    let known: BTreeMap<(&BStr, u8), &IndexEntry> =
        present.iter().map(|e| ((e.path.as_bstr(), e.stage), e)).collect();
    let extended = |e: &IndexEntry| e.skip_worktree || e.intent_to_add;
    let version: u32 = if entries.iter().any(extended) { 3 } else { 2 };
    let mut out = b"DIRC".to_vec();
    out.extend_from_slice(&version.to_be_bytes());
    let count = u32::try_from(entries.len()).map_err(|_| Error::fault("too many entries"))?;
    out.extend_from_slice(&count.to_be_bytes());
    for e in entries {
        let start = out.len();
        let word =
            |s: &[u8; 40], i: usize| u32::from_be_bytes([s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]]);
        let mut stat = known
            .get(&(e.path.as_bstr(), e.stage))
            .filter(|p| p.oid == e.oid && p.mode == e.mode && (word(&p.stat, 2), word(&p.stat, 3)) < written)
            .map_or([0; 40], |p| p.stat);
        stat[24..28].copy_from_slice(&e.mode.to_be_bytes());
        out.extend_from_slice(&stat);
        out.extend_from_slice(e.oid.as_slice());
        let mut flags = (e.path.len().min(0xfff) as u16) | u16::from(e.stage) << 12;
        if e.assume_valid {
            flags |= 0x8000;
        }
        if extended(e) {
            flags |= 0x4000;
        }
        out.extend_from_slice(&flags.to_be_bytes());
        if extended(e) {
            let more = (u16::from(e.skip_worktree) << 14) | (u16::from(e.intent_to_add) << 13);
            out.extend_from_slice(&more.to_be_bytes());
        }
        out.extend_from_slice(&e.path);
        let len = out.len() - start;
        out.resize(start + (len / 8 + 1) * 8, 0);
    }
    let mut sum = gix_hash::hasher(gix_hash::Kind::Sha1);
    sum.update(&out);
    let sum = sum.try_finalize().map_err(|e| Error::fault(e.to_string()))?;
    out.extend_from_slice(sum.as_slice());
    Ok(out)
}

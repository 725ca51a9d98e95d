//! The objects that a git state needs, so that it can be put back though the user's gc has run.
//!
//! Kept are the commits that HEAD, branches, tags, stashes and an operation under way reach and remote-tracking refs do
//! not, newest first, up to a number; with all that they hold. Nothing else than what the user's repository has is asked:
//! what is older stays where it is.

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, hash_map::Entry},
    time::{Duration, Instant},
};

use backstitch_scan::Rules;
use backstitch_store::{
    MODE_FILE, MODE_GITLINK, MODE_TREE, Odb, Oid, Scratch, TreeEntry, Writer, names, tree_id,
};
use bstr::{BStr, BString, ByteSlice};

use super::{
    About,
    read::{Raw, Repo},
};
use crate::{error::Result, paths};

/// Commits and tags that are kept for one state.
const MOST: usize = 1000;
/// So many are kept however long it takes; the rest comes with later captures where it takes longer than [`PATIENCE`].
const SURE: usize = 100;
const PATIENCE: Duration = Duration::from_millis(150);
/// Commits of remote-tracking refs that are looked at.
const ASIDE: usize = 20_000;
/// Larger blobs are not kept.
const BLOB_MAX: u64 = 32 << 20;
/// Missing objects that are named.
const NAMED: usize = 20;
const DEPTH: usize = 2000;

/// A pack in the making and what went into it from a repository.
pub(super) struct Keep<'a> {
    repo: &'a Repo,
    /// What must not be stored.
    pub rules: &'a Rules,
    pub writer: &'a Writer,
    /// Trees of the repository, and the same with names as stored, which are in the store.
    pub memo: HashMap<Oid, Oid>,
    missing: BTreeSet<Oid>,
    have: HashSet<Oid>,
}

/// What a commit's header says.
struct Commit {
    bytes: Vec<u8>,
    tree: Oid,
    parents: Vec<Oid>,
    time: i64,
}

/// A commit with git's header.
fn parse_commit(bytes: Vec<u8>) -> Option<Commit> {
    let body = &bytes[bytes.find_byte(0)? + 1..];
    let (mut tree, mut parents, mut time) = (None, Vec::new(), 0);
    for line in body.lines() {
        if line.is_empty() {
            break;
        }
        if let Some(hex) = line.strip_prefix(b"tree ") {
            tree = Oid::from_hex(hex).ok();
        } else if let Some(hex) = line.strip_prefix(b"parent ") {
            parents.push(Oid::from_hex(hex).ok()?);
        } else if let Some(who) = line.strip_prefix(b"committer ") {
            let word = who.rsplit_str(" ").nth(1).and_then(|w| w.to_str().ok());
            time = word.and_then(|w| w.parse().ok()).unwrap_or(0);
            break;
        }
    }
    Some(Commit { tree: tree?, parents, time, bytes })
}

/// Every id that is a word of `text`.
fn ids_in(text: &[u8], out: &mut Vec<Oid>) {
    let words = text.split(|b| !b.is_ascii_hexdigit());
    out.extend(words.filter(|w| w.len() == 40).filter_map(|w| Oid::from_hex(w).ok()));
}

/// What was kept before: the object, and a commit's tree.
type Kept = HashMap<Oid, (Oid, Option<Oid>)>;

/// Reads `kept/`.
pub(super) fn read(odb: &Odb, kept: &Oid) -> Result<Kept> {
    let mut out = Kept::new();
    for fan in odb.tree(kept)? {
        for e in odb.tree(&fan.oid)? {
            let (rest, is_tree) = match e.name.strip_suffix(b".tree") {
                Some(rest) => (rest, true),
                None => (e.name.as_slice(), false),
            };
            let Ok(oid) = Oid::from_hex(&[fan.name.as_slice(), rest].concat()) else { continue };
            let known = out.entry(oid).or_insert((oid, None));
            if is_tree { known.1 = Some(e.oid) } else { known.0 = e.oid }
        }
    }
    Ok(out)
}

impl<'a> Keep<'a> {
    pub fn new(repo: &'a Repo, rules: &'a Rules, writer: &'a Writer) -> Keep<'a> {
        Keep { repo, rules, writer, memo: HashMap::new(), missing: BTreeSet::new(), have: HashSet::new() }
    }

    /// The first of what could not be kept.
    pub fn missing(&self) -> Vec<String> {
        self.missing.iter().take(NAMED).map(Oid::to_string).collect()
    }

    /// Puts a blob into the store; `false` where it cannot be had.
    pub fn blob(&mut self, s: &mut Scratch, oid: &Oid) -> Result<bool> {
        if self.have.contains(oid) || self.writer.is_packed(oid) {
            return Ok(true);
        }
        let fits = self.repo.size(oid).is_some_and(|n| n <= BLOB_MAX);
        let bytes = if fits { self.repo.object(oid) } else { None };
        let content = bytes
            .as_deref()
            .and_then(|b| b.strip_prefix(b"blob "))
            .and_then(|b| Some(&b[b.find_byte(0)? + 1..]));
        let had = match content {
            Some(content) => self.writer.blob(s, content)?.0 == *oid,
            None => self.writer.odb().contains(oid),
        };
        if had {
            self.have.insert(*oid);
        } else {
            self.missing.insert(*oid);
        }
        Ok(had)
    }

    /// The same for a file of the work tree, unless it is never to be stored.
    pub fn file(&mut self, s: &mut Scratch, path: &BStr, oid: &Oid) -> Result<bool> {
        if self.rules.is_never_in_git(path, false) {
            self.missing.insert(*oid);
            return Ok(false);
        }
        self.blob(s, oid)
    }

    /// Puts a tree of the repository, with all below, into the store; gives its id there.
    fn tree(&mut self, s: &mut Scratch, at: &BStr, oid: &Oid, depth: usize) -> Result<Option<Oid>> {
        if let Some(stored) = self.memo.get(oid) {
            return Ok(Some(*stored));
        }
        let lose = |keep: &mut Keep<'_>| {
            keep.missing.insert(*oid);
            Ok(None)
        };
        let found = self.repo.objects.iter().find_map(|odb| odb.tree(oid).ok());
        let Some(mut entries) = found.filter(|_| depth < DEPTH) else { return lose(self) };
        // Old or foreign forms of modes are not what an encoder makes.
        if !tree_id(&mut entries.clone()).is_ok_and(|id| id == *oid) {
            return lose(self);
        }
        for e in &mut entries {
            let path = paths::join(at, &e.name);
            e.name = names::encode(&e.name).into_owned().into();
            match e.mode {
                MODE_GITLINK => {}
                MODE_TREE => match self.tree(s, path.as_bstr(), &e.oid, depth + 1)? {
                    Some(stored) => e.oid = stored,
                    None => return Ok(None),
                },
                _ if self.file(s, path.as_bstr(), &e.oid)? => {}
                _ => return Ok(None),
            }
        }
        let stored = self.writer.tree(s, &mut entries)?.0;
        self.memo.insert(*oid, stored);
        Ok(Some(stored))
    }

    /// Puts the commits into the store. `false`: a later look goes on.
    pub fn history(
        &mut self,
        raw: &Raw,
        before: Option<Oid>,
        about: &mut About,
        s: &mut Scratch,
    ) -> Result<(Option<Oid>, bool)> {
        let started = Instant::now();
        let before = match before {
            Some(oid) => read(self.writer.odb(), &oid)?,
            None => Kept::new(),
        };
        let mut named = Vec::new();
        let mut hints = Vec::new();
        ids_in(&raw.head, &mut named);
        raw.refs.values().for_each(|v| ids_in(v, &mut named));
        raw.stash.iter().for_each(|log| {
            // Old and new id begin a line; what follows is a person's text.
            log.lines().for_each(|l| ids_in(&l[..l.len().min(81)], &mut named));
        });
        raw.operation.values().for_each(|text| ids_in(text, &mut hints));
        named.retain(|oid| !oid.is_null());

        let mut out: BTreeMap<Oid, (Oid, Option<Oid>)> = BTreeMap::new();
        let mut aside: HashSet<Oid> = HashSet::new();
        let mut wanted: HashSet<Oid> = HashSet::new();
        let mut heap: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        let mut commits: HashMap<Oid, Commit> = HashMap::new();
        let mut whole = true;

        // Tags first: what they point to is a tip.
        let mut todo: Vec<(Oid, bool)> = named.into_iter().map(|o| (o, true)).collect();
        todo.extend(hints.into_iter().map(|o| (o, false)));
        let mut seen = HashSet::new();
        while let Some((oid, must)) = todo.pop() {
            if !seen.insert(oid) {
                continue;
            }
            let bytes = self
                .repo
                .object(&oid)
                .or_else(|| before.get(&oid).and_then(|(blob, _)| self.writer.odb().blob(blob).ok()));
            match bytes {
                Some(b) if b.starts_with(b"tag ") => {
                    let target = b.find_byte(0).and_then(|n| b[n + 1..].strip_prefix(b"object "));
                    if let Some(target) = target.and_then(|t| Oid::from_hex(t.get(..40)?).ok()) {
                        todo.push((target, must));
                    }
                    out.insert(oid, (self.writer.blob(s, &b)?.0, None));
                }
                Some(b) if b.starts_with(b"commit ") => {
                    if let Some(c) = parse_commit(b) {
                        heap.push((c.time, oid));
                        wanted.insert(oid);
                        commits.insert(oid, c);
                    }
                }
                None if must => {
                    self.missing.insert(oid);
                }
                _ => {}
            }
        }
        for oid in &raw.remotes {
            if let Some(c) =
                self.repo.object(oid).filter(|b| b.starts_with(b"commit ")).and_then(parse_commit)
                && aside.insert(*oid)
            {
                wanted.remove(oid);
                heap.push((c.time, *oid));
                commits.insert(*oid, c);
            }
        }
        let mut looked = 0;
        while let Some((_, oid)) = heap.pop() {
            if wanted.is_empty() {
                break;
            }
            let Some(c) = commits.remove(&oid) else { continue };
            let is_aside = aside.contains(&oid);
            if !is_aside {
                wanted.remove(&oid);
                if out.len() >= MOST || out.len() >= SURE && started.elapsed() > PATIENCE {
                    whole &= out.len() >= MOST;
                    about.older = true;
                    break;
                }
                let known = before.get(&oid).copied().filter(|(_, tree)| tree.is_some());
                let kept = match known {
                    Some(kept) => Some(kept),
                    None => match self.tree(s, BStr::new(""), &c.tree, 0)? {
                        Some(tree) => Some((self.writer.blob(s, &c.bytes)?.0, Some(tree))),
                        None => None,
                    },
                };
                match kept {
                    Some(kept) => {
                        out.insert(oid, kept);
                    }
                    // Without its tree it is not whole.
                    None => {
                        self.missing.insert(oid);
                    }
                }
            } else {
                looked += 1;
                if looked > ASIDE {
                    continue;
                }
            }
            for p in c.parents {
                if is_aside {
                    wanted.remove(&p);
                    if aside.insert(p) && commits.contains_key(&p) {
                        continue;
                    }
                } else if aside.contains(&p) || out.contains_key(&p) {
                    continue;
                }
                if let Entry::Vacant(slot) = commits.entry(p) {
                    let bytes = self
                        .repo
                        .object(&p)
                        .or_else(|| before.get(&p).and_then(|(blob, _)| self.writer.odb().blob(blob).ok()));
                    match bytes.and_then(parse_commit) {
                        Some(c) => {
                            heap.push((c.time, p));
                            slot.insert(c);
                        }
                        None => {
                            about.older |= !is_aside;
                            continue;
                        }
                    }
                }
                if !is_aside {
                    wanted.insert(p);
                }
            }
        }
        about.kept = out.len() as u64;
        if out.is_empty() {
            return Ok((None, whole));
        }
        let mut fans: BTreeMap<String, Vec<TreeEntry>> = BTreeMap::new();
        for (oid, (object, tree)) in out {
            let hex = oid.to_string();
            let (fan, rest) = hex.split_at(2);
            let list = fans.entry(fan.to_owned()).or_default();
            list.push(TreeEntry { mode: MODE_FILE, name: rest.into(), oid: object });
            if let Some(tree) = tree {
                list.push(TreeEntry { mode: MODE_TREE, name: format!("{rest}.tree").into(), oid: tree });
            }
        }
        let mut top = Vec::new();
        for (fan, mut list) in fans {
            let oid = self.writer.tree(s, &mut list)?.0;
            top.push(TreeEntry { mode: MODE_TREE, name: BString::from(fan), oid });
        }
        Ok((Some(self.writer.tree(s, &mut top)?.0), whole))
    }
}

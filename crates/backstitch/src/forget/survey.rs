//! What holds the paths, and what else holds their contents.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};

use super::{Unreached, rewrite::items_of};
use crate::{
    error::{Code, Error, Result},
    paths,
    record::OPERATIONS,
    session::SESSIONS,
    tree::{self, DirRef, Root},
    workspace::{Control, Workspace},
};

/// A ref that holds a path.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub name: String,
    pub commit: Oid,
    pub tree: Oid,
    pub message: BString,
    pub is_operation: bool,
    /// It holds none of the paths, but a git state.
    pub only_state: bool,
}

/// The whole of it.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Refs that are to be written anew.
    pub refs: Vec<Holder>,
    /// Refs that hold none of the paths but a git state.
    states: Vec<Holder>,
    /// Contents at and below the paths.
    pub contents: BTreeSet<Oid>,
    /// Of all contents: the first paths that were not named, with a row that holds it there.
    pub elsewhere: HashMap<Oid, Vec<(BString, String)>>,
    /// Refs that cannot be read.
    pub unreadable: Vec<Unreached>,
}

/// So many other paths of one content are named.
const NAMED: usize = 20;

/// An operation is told from a row by its tree.
pub(super) fn is_operation(odb: &Odb, tree: &Oid) -> Result<bool> {
    Ok(odb.tree(tree)?.iter().any(|e| e.name == "before" || e.name == "items"))
}

pub(super) fn id_of(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

/// The two halves of a row's root, with the paths that lie in each, relative to it.
pub(super) fn halves(root: &Root, named: &[BString]) -> [(DirRef, Vec<BString>, &'static str); 2] {
    let (outside, inside): (Vec<&BString>, Vec<&BString>) =
        named.iter().partition(|p| p.first() == Some(&b'/'));
    [
        (root.files, inside.into_iter().cloned().collect(), ""),
        (root.outside, outside.into_iter().map(|p| p[1..].into()).collect(), "/"),
    ]
}

impl Survey {
    pub fn take(ws: &Workspace, odb: &Odb, named: &[BString], control: &Control<'_>) -> Result<Survey> {
        let mut out = Survey::default();
        let mut walk = Walk { odb, seen: HashSet::new(), found: HashMap::new() };
        let (refs, bad) = ws.store()?.refs().list_all("refs/backstitch/")?;
        for (name, e) in bad {
            out.note(&name, &e.to_string());
        }
        let total = refs.len() as u64;
        for (n, (name, commit)) in refs.into_iter().enumerate() {
            if control.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Error::new(Code::Interrupted, "interrupted; nothing was changed"));
            }
            (control.progress)("looking", n as u64, total);
            if name.starts_with(SESSIONS) {
                continue;
            }
            if let Err(e) = out.look(odb, &mut walk, name.clone(), commit, named) {
                out.note(&name, &e.message);
            }
        }
        out.elsewhere = walk.found;
        // A git state may hold earlier versions of a path, or its bytes at another one: none is kept.
        if !out.refs.is_empty() {
            let states = std::mem::take(&mut out.states);
            out.refs.extend(states);
        }
        Ok(out)
    }

    fn note(&mut self, name: &str, why: &str) {
        self.unreadable.push(Unreached {
            what: "row",
            path: None,
            detail: format!("{name} cannot be read ({why}) and may hold the bytes"),
            rows: vec![id_of(name)],
        });
    }

    fn look(
        &mut self,
        odb: &Odb,
        walk: &mut Walk<'_>,
        name: String,
        commit: Oid,
        named: &[BString],
    ) -> Result<()> {
        let (tree, message) = odb.commit(&commit)?;
        let is_operation = name.starts_with(OPERATIONS) || is_operation(odb, &tree)?;
        let mut roots = vec![tree];
        let mut holds = false;
        if is_operation {
            roots.clear();
            for e in odb.tree(&tree)? {
                if e.name == "before" || e.name == "after" {
                    roots.push(e.oid);
                }
            }
            for i in items_of(odb, &tree)? {
                if !named.iter().any(|p| paths::is_under(i.path.as_bstr(), p.as_bstr())) {
                    continue;
                }
                holds |= i.action.changes();
                let ends = [&i.from, &i.to];
                self.contents.extend(ends.into_iter().flatten().filter_map(|s| s.node.oid()));
            }
        }
        let id = id_of(&name);
        let mut state = false;
        for tree in roots {
            let root = Root::read(odb, &tree)?;
            state |= root.git.is_some();
            for (dir, paths, prefix) in halves(&root, named) {
                for p in &paths {
                    let Some(entry) = tree::lookup(odb, dir, p.as_bstr())? else { continue };
                    holds = true;
                    self.contents.extend(entry.node.oid());
                    tree::walk(odb, entry.dir, &mut |_, e| {
                        self.contents.extend(e.node.oid());
                        Ok(())
                    })?;
                }
                walk.below(dir, &paths, prefix, &id)?;
            }
        }
        let holder = Holder { name, commit, tree, message, is_operation, only_state: !holds };
        match (holds, state) {
            (true, _) => self.refs.push(holder),
            (false, true) => self.states.push(holder),
            (false, false) => {}
        }
        Ok(())
    }

    /// Ids of operations, or of rows, each once.
    pub fn ids(&self, operations: bool) -> Vec<String> {
        let all = self.refs.iter().filter(|h| h.is_operation == operations && !h.only_state);
        let all: BTreeSet<String> = all.map(|h| id_of(&h.name)).collect();
        all.into_iter().collect()
    }
}

/// Every content that is held at a path that was not named.
struct Walk<'a> {
    odb: &'a Odb,
    /// Directories that were walked. One above a named path is only walked for where it stands: elsewhere the same
    /// directory holds the name as another path.
    seen: HashSet<(Option<BString>, DirRef)>,
    found: HashMap<Oid, Vec<(BString, String)>>,
}

impl Walk<'_> {
    fn below(&mut self, dir: DirRef, named: &[BString], prefix: &str, row: &str) -> Result<()> {
        let mut todo = vec![(BString::default(), dir)];
        while let Some((base, dir)) = todo.pop() {
            let above = |at: &BStr| named.iter().any(|p| paths::is_under(p.as_bstr(), at));
            let key = above(base.as_bstr()).then(|| base.clone());
            if dir.tree.is_none() || !self.seen.insert((key, dir)) {
                continue;
            }
            for e in tree::read_dir(self.odb, dir)? {
                let path = paths::join(base.as_bstr(), &e.name);
                if named.iter().any(|p| paths::is_under(path.as_bstr(), p.as_bstr())) {
                    continue;
                }
                if let Some(oid) = e.node.oid() {
                    let at = self.found.entry(oid).or_default();
                    if at.len() < NAMED {
                        at.push(([prefix.as_bytes(), path.as_slice()].concat().into(), row.to_owned()));
                    }
                }
                todo.push((path, e.dir));
            }
        }
        Ok(())
    }
}

/// Rows by the objects that their records are.
pub(super) fn records(ws: &Workspace) -> Result<BTreeMap<Oid, String>> {
    let (refs, _) = ws.store()?.refs().list_all("refs/backstitch/")?;
    Ok(refs.into_iter().map(|(name, oid)| (oid, id_of(&name))).collect())
}

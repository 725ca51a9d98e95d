//! Recorded trees: reading, looking up, comparing and editing `files/` together with its mirrored `meta/`.

use std::collections::BTreeMap;

use backstitch_scan::{Kind, Stat, Xattrs};
use backstitch_store::{Odb, Oid, Scratch, TreeEntry, Writer, names};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    meta::{self, Attrs, Line},
    paths,
};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A regular file with its exact permission bits.
    File {
        /// Content.
        oid: Oid,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link; the blob is its text.
    Link {
        /// Link text.
        oid: Oid,
    },
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
    },
}

impl Node {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Node::File { .. } => Kind::File,
            Node::Link { .. } => Kind::Link,
            Node::Dir { .. } => Kind::Dir,
        }
    }

    /// Content of a file or link.
    pub fn oid(&self) -> Option<Oid> {
        match self {
            Node::File { oid, .. } | Node::Link { oid } => Some(*oid),
            Node::Dir { .. } => None,
        }
    }

    /// Permission bits; links have none of their own.
    pub fn mode(&self) -> Option<u32> {
        match self {
            Node::File { mode, .. } | Node::Dir { mode } => Some(*mode),
            Node::Link { .. } => None,
        }
    }

    /// Is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self, Node::Dir { .. })
    }
}

/// A recorded directory: its tree in `files/` and its mirror in `meta/tree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DirRef {
    /// `None`: not there (compares as an empty directory).
    pub tree: Option<Oid>,
    /// `None`: everything below is ordinary.
    pub meta: Option<Oid>,
}

/// One child of a recorded directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Raw name.
    pub name: BString,
    /// What it is.
    pub node: Node,
    /// Owner and attributes where not ordinary.
    pub attrs: Attrs,
    /// Where a directory's children are.
    pub dir: DirRef,
}

/// The parts of a row's root tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The workspace.
    pub files: DirRef,
    /// Coverage: what was left out and why.
    pub coverage: Option<Oid>,
    /// Sources of ignore rules outside the tree.
    pub rules: Option<Oid>,
    /// Touched files elsewhere.
    pub outside: DirRef,
    /// The user's git state.
    pub git: Option<Oid>,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::new(Code::StoreDamaged, what)
}

const TREE: u32 = 0o40000;
const BLOB: u32 = 0o100644;
const EXEC: u32 = 0o100755;
const LINK: u32 = 0o120000;

impl Root {
    /// Reads the root tree of a row.
    pub fn read(odb: &Odb, tree: &Oid) -> Result<Root> {
        let mut root = Root::default();
        for e in odb.tree(tree)? {
            match e.name.as_slice() {
                b"files" => root.files.tree = Some(e.oid),
                b"outside" => root.outside.tree = Some(e.oid),
                b"meta" => {
                    for m in odb.tree(&e.oid)? {
                        match m.name.as_slice() {
                            b"tree" => root.files.meta = Some(m.oid),
                            b"outside" => root.outside.meta = Some(m.oid),
                            b"coverage" => root.coverage = Some(m.oid),
                            b"rules" => root.rules = Some(m.oid),
                            b"git" => root.git = Some(m.oid),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(root)
    }

    /// Writes it; `files/` is always there.
    pub fn write(&self, w: &Writer, s: &mut Scratch) -> Result<Oid> {
        let mut meta = Vec::new();
        for (name, oid, mode) in [
            ("tree", self.files.meta, TREE),
            ("outside", self.outside.meta, TREE),
            ("coverage", self.coverage, BLOB),
            ("rules", self.rules, BLOB),
            ("git", self.git, TREE),
        ] {
            if let Some(oid) = oid {
                meta.push(TreeEntry { mode, name: name.into(), oid });
            }
        }
        let files = match self.files.tree {
            Some(t) => t,
            None => w.tree(s, &mut Vec::new())?.0,
        };
        let mut entries = vec![TreeEntry { mode: TREE, name: "files".into(), oid: files }];
        if !meta.is_empty() {
            entries.push(TreeEntry { mode: TREE, name: "meta".into(), oid: w.tree(s, &mut meta)?.0 });
        }
        if let Some(oid) = self.outside.tree {
            entries.push(TreeEntry { mode: TREE, name: "outside".into(), oid });
        }
        Ok(w.tree(s, &mut entries)?.0)
    }
}

/// The meta lines of one directory and the meta trees of its children.
fn read_meta(odb: &Odb, dir: DirRef) -> Result<(BTreeMap<BString, Line>, BTreeMap<BString, Oid>)> {
    let mut lines = BTreeMap::new();
    let mut children = BTreeMap::new();
    if let Some(meta) = dir.meta {
        for e in odb.tree(&meta)? {
            if e.name == meta::BLOB {
                lines = meta::decode(&odb.blob(&e.oid)?)
                    .ok_or_else(|| damaged(format!("meta {} is not in the known form", e.oid)))?;
            } else {
                children.insert(e.name, e.oid);
            }
        }
    }
    Ok((lines, children))
}

impl Root {
    /// Without what was written beside the trees.
    pub fn trees(&self) -> Root {
        Root { files: self.files, outside: self.outside, ..Root::default() }
    }

    /// What the row holds at a path in the workspace, or at an absolute one.
    pub fn find(&self, odb: &Odb, path: &BStr) -> Result<Option<Entry>> {
        match paths::is_outside(path) {
            true => lookup(odb, self.outside, path[1..].as_bstr()),
            false => lookup(odb, self.files, path),
        }
    }

    /// Visits every path that differs, in the workspace and elsewhere ([`diff`]).
    pub fn diff(odb: &Odb, a: &Root, b: &Root, visit: &mut Visit<'_>) -> Result<()> {
        diff(odb, a.files, b.files, visit)?;
        diff(odb, a.outside, b.outside, &mut |path, x, y| {
            visit(paths::join("/".into(), path).as_bstr(), x, y)
        })
    }

    /// Applies edits of paths in the workspace and of absolute ones ([`edit`]); `files` and `outside` only.
    pub fn edit(
        &self,
        w: &Writer,
        s: &mut Scratch,
        edits: impl IntoIterator<Item = (BString, Option<Put>)>,
    ) -> Result<Root> {
        let (outside, inside): (Vec<_>, Vec<_>) =
            edits.into_iter().partition(|(p, _)| paths::is_outside(p.as_bstr()));
        let mut root = *self;
        root.files = edit(w, s, self.files, inside)?;
        if !outside.is_empty() {
            let outside = outside.into_iter().map(|(p, put)| (p[1..].into(), put));
            root.outside = edit(w, s, self.outside, outside)?;
            if read_dir(w.odb(), root.outside)?.is_empty() {
                root.outside = DirRef::default();
            }
        }
        Ok(root)
    }
}

/// Own line of a directory.
fn own_line(odb: &Odb, meta: Option<Oid>) -> Result<Option<Line>> {
    let Some(meta) = meta else { return Ok(None) };
    for e in odb.tree(&meta)? {
        if e.name == meta::BLOB {
            let mut lines = meta::decode(&odb.blob(&e.oid)?)
                .ok_or_else(|| damaged(format!("meta {} is not in the known form", e.oid)))?;
            return Ok(lines.remove(BStr::new(".")));
        }
    }
    Ok(None)
}

/// Children sorted by raw name. Hostile names and modes are an error: nothing of such a row is used.
pub fn read_dir(odb: &Odb, dir: DirRef) -> Result<Vec<Entry>> {
    match dir.tree {
        Some(tree) => entries(odb, dir, odb.tree(&tree)?),
        None => Ok(Vec::new()),
    }
}

/// What is not the same in two directories, where that can be told without all of them.
fn read_changes(odb: &Odb, a: DirRef, b: DirRef) -> Result<(Vec<Entry>, Vec<Entry>)> {
    match (a.tree, b.tree) {
        (Some(x), Some(y)) if a.meta.is_none() && b.meta.is_none() => {
            let (left, right) = odb.tree_changes(&x, &y)?;
            Ok((entries(odb, a, left)?, entries(odb, b, right)?))
        }
        _ => Ok((read_dir(odb, a)?, read_dir(odb, b)?)),
    }
}

/// Entries of a directory's tree as what they stand for, sorted by raw name.
fn entries(odb: &Odb, dir: DirRef, of: Vec<TreeEntry>) -> Result<Vec<Entry>> {
    let (mut lines, metas) = read_meta(odb, dir)?;
    let mut out = Vec::with_capacity(of.len());
    for e in of {
        let name: BString = match names::decode(&e.name) {
            Some(n) => n.into_owned().into(),
            None => {
                return Err(Error::new(
                    Code::UnsafePath,
                    format!("the recorded name {:?} is not one that can be written", e.name),
                )
                .at_bytes(e.name)
                .hint("nothing was changed; `backstitch verify` examines the store"));
            }
        };
        if name == ".git"
            || name == "."
            || name == ".."
            || name.is_empty()
            || name.contains(&b'/')
            || name.contains(&0)
        {
            return Err(Error::new(
                Code::UnsafePath,
                format!("the recorded name {name:?} must never be written"),
            )
            .at_bytes(name)
            .hint("nothing was changed; `backstitch verify` examines the store"));
        }
        let line = lines.remove(&name);
        let (node, attrs, dir) = match e.mode {
            TREE => {
                let dir = DirRef { tree: Some(e.oid), meta: metas.get(&e.name).copied() };
                let own = own_line(odb, dir.meta)?;
                let mode = own.as_ref().map_or(0o755, |l| l.mode);
                (Node::Dir { mode }, own.map(|l| l.attrs).unwrap_or_default(), dir)
            }
            BLOB | EXEC => {
                let mode = line.as_ref().map_or(meta::ordinary_mode(Kind::File, e.mode == EXEC), |l| l.mode);
                (
                    Node::File { oid: e.oid, mode },
                    line.map(|l| l.attrs).unwrap_or_default(),
                    DirRef::default(),
                )
            }
            LINK => (Node::Link { oid: e.oid }, line.map(|l| l.attrs).unwrap_or_default(), DirRef::default()),
            other => {
                return Err(Error::new(Code::UnsafePath, format!("{name:?} has the unknown type {other:o}"))
                    .at_bytes(name));
            }
        };
        out.push(Entry { name, node, attrs, dir });
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    if out.windows(2).any(|w| w[0].name == w[1].name) {
        let tree = dir.tree.map(|t| t.to_string()).unwrap_or_default();
        return Err(damaged(format!("tree {tree} holds a name twice")));
    }
    Ok(out)
}

/// The root directory itself as an entry with an empty name.
pub fn root_entry(odb: &Odb, dir: DirRef) -> Result<Entry> {
    let own = own_line(odb, dir.meta)?;
    Ok(Entry {
        name: BString::default(),
        node: Node::Dir { mode: own.as_ref().map_or(0o755, |l| l.mode) },
        attrs: own.map(|l| l.attrs).unwrap_or_default(),
        dir,
    })
}

/// What a row holds at `path`.
pub fn lookup(odb: &Odb, root: DirRef, path: &BStr) -> Result<Option<Entry>> {
    if path.is_empty() {
        return root_entry(odb, root).map(Some);
    }
    let mut dir = root;
    let mut parts = path.split_str("/").peekable();
    while let Some(name) = parts.next() {
        let Some(e) = read_dir(odb, dir)?.into_iter().find(|e| e.name == name) else { return Ok(None) };
        if parts.peek().is_none() {
            return Ok(Some(e));
        }
        if !e.node.is_dir() {
            return Ok(None);
        }
        dir = e.dir;
    }
    Ok(None)
}

/// A visitor of differences: path, entry in `a`, entry in `b`.
pub type Visit<'a> = dyn FnMut(&BStr, Option<&Entry>, Option<&Entry>) -> Result<()> + 'a;

/// Visits every path that differs in type, content or mode, parents before children; directories whose trees and meta
/// are the same are not read. A directory on one side only is visited with everything below it.
pub fn diff(odb: &Odb, a: DirRef, b: DirRef, visit: &mut Visit<'_>) -> Result<()> {
    let mut stack = vec![(BString::default(), a, b)];
    while let Some((base, a, b)) = stack.pop() {
        if a == b {
            continue;
        }
        let (left, right) = read_changes(odb, a, b)?;
        let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
        loop {
            let (x, y) = match (l.peek(), r.peek()) {
                (None, None) => break,
                (Some(_), None) => (l.next(), None),
                (None, Some(_)) => (None, r.next()),
                (Some(p), Some(q)) => match p.name.cmp(&q.name) {
                    std::cmp::Ordering::Less => (l.next(), None),
                    std::cmp::Ordering::Greater => (None, r.next()),
                    std::cmp::Ordering::Equal => (l.next(), r.next()),
                },
            };
            let Some(either) = x.or(y) else { break };
            if let (Some(x), Some(y)) = (x, y)
                && x.node == y.node
                && x.dir == y.dir
            {
                continue;
            }
            let path = paths::join(base.as_bstr(), &either.name);
            if x.map(|e| &e.node) != y.map(|e| &e.node) {
                visit(path.as_bstr(), x, y)?;
            }
            let (da, db) = (x.map(|e| e.dir).unwrap_or_default(), y.map(|e| e.dir).unwrap_or_default());
            if da != db {
                stack.push((path, da, db));
            }
        }
    }
    Ok(())
}

/// Every path below `dir`, parents first.
pub fn walk(odb: &Odb, dir: DirRef, visit: &mut dyn FnMut(&BStr, &Entry) -> Result<()>) -> Result<()> {
    diff(odb, DirRef::default(), dir, &mut |p, _, e| match e {
        Some(e) => visit(p, e),
        None => Ok(()),
    })
}

/// A new content for one path of an edited tree; `None` removes it (with everything below).
#[derive(Clone, Debug)]
pub struct Put {
    /// What stands there.
    pub node: Node,
    /// Owner and attributes.
    pub attrs: Attrs,
    /// A directory's content; `None` keeps what a directory there holds, or starts empty. Edits below it apply on top.
    pub dir: Option<DirRef>,
}

#[derive(Default)]
struct Edits {
    here: Option<Option<Put>>,
    below: BTreeMap<BString, Edits>,
}

/// Applies edits to a recorded directory and writes only the trees that change.
pub fn edit(
    w: &Writer,
    s: &mut Scratch,
    root: DirRef,
    edits: impl IntoIterator<Item = (BString, Option<Put>)>,
) -> Result<DirRef> {
    let mut top = Edits::default();
    for (path, put) in edits {
        let mut at = &mut top;
        if !path.is_empty() {
            for part in path.split_str("/") {
                at = at.below.entry(part.into()).or_default();
            }
        }
        at.here = Some(put);
    }
    let own = root_entry(w.odb(), root)?;
    let own = match top.here.take() {
        Some(Some(put)) => (put.node, put.attrs),
        _ => (own.node, own.attrs),
    };
    edit_dir(w, s, root, own, top)
}

fn edit_dir(w: &Writer, s: &mut Scratch, dir: DirRef, own: (Node, Attrs), edits: Edits) -> Result<DirRef> {
    let mut children: BTreeMap<BString, Entry> =
        read_dir(w.odb(), dir)?.into_iter().map(|e| (e.name.clone(), e)).collect();
    for (name, mut sub) in edits.below {
        match sub.here.take() {
            Some(None) => {
                children.remove(&name);
            }
            Some(Some(put)) => {
                let kept = children.get(&name).filter(|_| put.node.is_dir()).map(|e| e.dir);
                let dir = put.dir.or(kept).unwrap_or_default();
                children.insert(
                    name.clone(),
                    Entry { name: name.clone(), node: put.node, attrs: put.attrs, dir },
                );
            }
            None => {}
        }
        if sub.below.is_empty()
            && children.get(&name).is_none_or(|e| !e.node.is_dir() || e.dir.tree.is_some())
        {
            continue;
        }
        let entry = match children.remove(&name) {
            Some(e) if e.node.is_dir() => e,
            // Something is put below a path that is no directory: the directory comes into being.
            _ if sub.below.values().any(|e| e.puts()) => Entry {
                name: name.clone(),
                node: Node::Dir { mode: 0o755 },
                attrs: Attrs::default(),
                dir: DirRef::default(),
            },
            Some(e) => {
                children.insert(name, e);
                continue;
            }
            None => continue,
        };
        let dir = edit_dir(w, s, entry.dir, (entry.node.clone(), entry.attrs.clone()), sub)?;
        children.insert(name, Entry { dir, ..entry });
    }
    write_dir(w, s, own, children.into_values())
}

impl Edits {
    fn puts(&self) -> bool {
        matches!(self.here, Some(Some(_))) || self.below.values().any(Edits::puts)
    }
}

/// Writes one directory from its complete list of children.
pub fn write_dir(
    w: &Writer,
    s: &mut Scratch,
    own: (Node, Attrs),
    children: impl Iterator<Item = Entry>,
) -> Result<DirRef> {
    let (mut tree, mut meta, mut lines) = (Vec::new(), Vec::new(), BTreeMap::new());
    let own_mode = own.0.mode().unwrap_or(0o755);
    if own_mode != 0o755 || own.1 != Attrs::default() {
        lines.insert(BString::from("."), Line { mode: own_mode, attrs: own.1 });
    }
    for e in children {
        let name: BString = names::encode(&e.name).into_owned().into();
        let (mode, oid) = match &e.node {
            Node::Dir { .. } => {
                let t = match e.dir.tree {
                    Some(t) => t,
                    None => w.tree(s, &mut Vec::new())?.0,
                };
                if let Some(m) = e.dir.meta {
                    meta.push(TreeEntry { mode: TREE, name: name.clone(), oid: m });
                }
                (TREE, t)
            }
            Node::File { oid, mode } => {
                let exec = mode & 0o100 != 0;
                if *mode != meta::ordinary_mode(Kind::File, exec) || e.attrs != Attrs::default() {
                    lines.insert(e.name.clone(), Line { mode: *mode, attrs: e.attrs.clone() });
                }
                (if exec { EXEC } else { BLOB }, *oid)
            }
            Node::Link { oid } => {
                if e.attrs != Attrs::default() {
                    lines.insert(e.name.clone(), Line { mode: 0o777, attrs: e.attrs.clone() });
                }
                (LINK, *oid)
            }
        };
        tree.push(TreeEntry { mode, name, oid });
    }
    if !lines.is_empty() {
        let (oid, _) = w.blob(s, &meta::encode(&lines))?;
        meta.push(TreeEntry { mode: BLOB, name: meta::BLOB.into(), oid });
    }
    let meta = if meta.is_empty() { None } else { Some(w.tree(s, &mut meta)?.0) };
    Ok(DirRef { tree: Some(w.tree(s, &mut tree)?.0), meta })
}

/// The entry that a scanned leaf becomes.
pub fn leaf(stat: &Stat, oid: Oid, xattrs: Option<&Xattrs>, owner: (u32, u32)) -> (Node, Attrs) {
    let attrs = meta::line(stat, xattrs, owner).map(|l| l.attrs).unwrap_or_default();
    let node = match stat.kind {
        Kind::File => Node::File { oid, mode: stat.mode & 0o7777 },
        Kind::Link => Node::Link { oid },
        Kind::Dir => Node::Dir { mode: stat.mode & 0o7777 },
    };
    (node, attrs)
}

//! What a row holds in a folder.

use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage,
    error::{Code, Error, Result},
    paths,
    record::{Checkpoint, SkipRecord},
    tree::{self, Entry, Node, Root},
    workspace::Workspace,
};

/// One path of it.
#[derive(Clone, Debug)]
pub struct Held {
    /// Relative to the workspace.
    pub path: BString,
    /// What stands there.
    pub node: Node,
    /// Of a file: its size. Of a link: that of its text.
    pub bytes: Option<u64>,
    /// Of a link: its text.
    pub target: Option<BString>,
}

/// What is in a folder, and what was left out there.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder; empty for the workspace.
    pub path: BString,
    /// By name; in the whole folder, parents first.
    pub entries: Vec<Held>,
    /// What the row does not speak for, there.
    pub skips: Vec<SkipRecord>,
}

impl Workspace {
    /// What a row holds in a folder; with `deep` everything below it. A path that is no folder is its own only entry.
    ///
    /// # Errors
    /// `no-such-path`.
    pub fn held(&self, c: &Checkpoint, path: &BStr, deep: bool) -> Result<Folder> {
        let odb = self.odb()?;
        let root = Root::read(&odb, &c.tree)?;
        let held = |path: BString, e: &Entry| -> Result<Held> {
            let target = match &e.node {
                Node::Link { oid } => Some(odb.blob(oid)?.into()),
                _ => None,
            };
            let bytes = e.node.oid().map(|oid| odb.size(&oid)).transpose()?;
            Ok(Held { path, node: e.node.clone(), bytes, target })
        };
        let entry = root.find(&odb, path)?.ok_or_else(|| {
            let name = path.to_str_lossy();
            Error::new(Code::NoSuchPath, format!("checkpoint {} does not hold {name}", c.record.id))
                .at_bytes(path)
                .hint("`backstitch files CHECKPOINT` lists what it holds; `backstitch log PATH` the checkpoints of a path")
        })?;
        let below = |name: &BStr| -> BString {
            if path.is_empty() { name.to_owned() } else { bstr::join("/", [path, name]).into() }
        };
        let mut entries = Vec::new();
        if !entry.node.is_dir() {
            entries.push(held(path.to_owned(), &entry)?);
        } else if deep {
            tree::walk(&odb, entry.dir, &mut |p, e| {
                entries.push(held(below(p), e)?);
                Ok(())
            })?;
        } else {
            for e in tree::read_dir(&odb, entry.dir)? {
                entries.push(held(below(e.name.as_bstr()), &e)?);
            }
        }
        let inside = |s: &SkipRecord| {
            let exact = s.path_base64.as_deref().and_then(paths::from_base64);
            let exact = exact.unwrap_or_else(|| s.path.clone().into_bytes());
            let rest = match path.is_empty() {
                true => Some(exact.as_slice()),
                false => exact.strip_prefix(path.as_bytes()).and_then(|r| r.strip_prefix(b"/")),
            };
            rest.is_some_and(|r| !r.is_empty() && (deep || !r.contains(&b'/')))
        };
        let mut skips = coverage::document(&odb, &root)?.skips;
        skips.retain(inside);
        Ok(Folder { path: path.to_owned(), entries, skips })
    }
}

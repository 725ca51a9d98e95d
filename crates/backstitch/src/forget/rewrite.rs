//! Rows and operations anew, without the paths.

use std::collections::HashMap;

use backstitch_store::{Edit, Expect, Odb, Oid, Scratch, TreeEntry, Writer};
use bstr::{BString, ByteSlice};

use super::{
    FORGOTTEN,
    survey::{Holder, halves},
};
use crate::{
    coverage,
    error::Result,
    paths::{self, JsonPath},
    plan::{self, Action, Item},
    record::{self, Record, SkipRecord},
    tree::{self, DirRef, Root},
    workspace::Workspace,
};

/// The items of an operation; none where it has none.
pub(super) fn items_of(odb: &Odb, tree: &Oid) -> Result<Vec<Item>> {
    match odb.tree(tree)?.into_iter().find(|e| e.name == "items") {
        Some(e) => plan::decode_items(&odb.blob(&e.oid)?),
        None => Ok(Vec::new()),
    }
}

/// Writes all of them in one pack; what comes back moves the refs.
pub(super) fn rewrite(ws: &Workspace, odb: &Odb, refs: &[Holder], named: &[BString]) -> Result<Vec<Edit>> {
    let writer = ws.store()?.writer()?;
    let mut r = Rewriter {
        odb,
        s: writer.scratch(),
        writer: &writer,
        named,
        only_state: false,
        done: HashMap::new(),
    };
    let mut edits = Vec::new();
    for h in refs {
        r.only_state = h.only_state;
        let (tree, message, time) = match h.is_operation {
            true => (r.operation(&h.tree)?, h.message.to_vec(), created(&h.message)),
            false => r.row(h)?,
        };
        let commit = writer.commit(&mut r.s, &tree, &message, time)?;
        edits.push(Edit { name: h.name.clone(), expect: Expect::Is(h.commit), new: Some(commit) });
    }
    writer.finish()?;
    Ok(edits)
}

/// Seconds since 1970, as the record has it.
fn created(message: &BString) -> i64 {
    let v = record::decode::<serde_json::Value>(message.as_bstr(), "");
    let ms = v.ok().and_then(|v| v.get("created_ms").and_then(serde_json::Value::as_i64));
    ms.unwrap_or(0).div_euclid(1000)
}

struct Rewriter<'a> {
    odb: &'a Odb,
    writer: &'a Writer,
    s: Scratch,
    named: &'a [BString],
    /// Nothing but the git state goes.
    only_state: bool,
    /// Most rows share their directories with their neighbours.
    done: HashMap<(DirRef, bool), (DirRef, u64)>,
}

impl Rewriter<'_> {
    /// A root tree without the paths, and how many files went.
    fn root(&mut self, tree: &Oid) -> Result<(Oid, u64)> {
        let root = Root::read(self.odb, tree)?;
        if self.only_state {
            return Ok((Root { git: None, ..root }.write(self.writer, &mut self.s)?, 0));
        }
        let [files, outside] = halves(&root, self.named);
        let (files, gone) = self.half(files.0, files.1, false)?;
        let (outside, _) = self.half(outside.0, outside.1, true)?;
        let coverage = match root.coverage {
            None => None,
            Some(_) => {
                let mut doc = coverage::document(self.odb, &root)?;
                let fresh =
                    self.named.iter().map(skip).filter(|s| !doc.skips.contains(s)).collect::<Vec<_>>();
                doc.skips.extend(fresh);
                doc.skips.sort_by(|a, b| a.path.cmp(&b.path));
                let bytes = serde_json::to_vec(&doc).unwrap_or_default();
                Some(self.writer.blob(&mut self.s, &bytes)?.0)
            }
        };
        let new = Root { files, outside, coverage, git: None, ..root };
        Ok((new.write(self.writer, &mut self.s)?, gone))
    }

    fn half(&mut self, dir: DirRef, named: Vec<BString>, outside: bool) -> Result<(DirRef, u64)> {
        if dir.tree.is_none() || named.is_empty() {
            return Ok((dir, 0));
        }
        if let Some(known) = self.done.get(&(dir, outside)) {
            return Ok(*known);
        }
        let mut gone = 0;
        for p in &named {
            let Some(e) = tree::lookup(self.odb, dir, p.as_bstr())? else { continue };
            gone += u64::from(!e.node.is_dir());
            tree::walk(self.odb, e.dir, &mut |_, e| {
                gone += u64::from(!e.node.is_dir());
                Ok(())
            })?;
        }
        let new = match gone {
            // Perhaps an empty directory.
            0 if !self.any(dir, &named)? => dir,
            _ => tree::edit(self.writer, &mut self.s, dir, named.into_iter().map(|p| (p, None)))?,
        };
        self.done.insert((dir, outside), (new, gone));
        Ok((new, gone))
    }

    fn any(&self, dir: DirRef, named: &[BString]) -> Result<bool> {
        for p in named {
            if tree::lookup(self.odb, dir, p.as_bstr())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn row(&mut self, h: &Holder) -> Result<(Oid, Vec<u8>, i64)> {
        let (tree, gone) = self.root(&h.tree)?;
        let time = created(&h.message);
        // A record of a later form keeps its words.
        let Ok(mut record) = record::decode::<Record>(h.message.as_bstr(), &h.name) else {
            return Ok((tree, h.message.to_vec(), time));
        };
        record.files = record.files.saturating_sub(gone);
        record.extra.remove(crate::git::SEEN);
        for s in self.named.iter().filter(|_| !self.only_state).map(skip) {
            if !record.skipped.contains(&s) {
                record.skipped_total += 1;
                record.skipped.push(s);
            }
        }
        Ok((tree, record.message(), time))
    }

    fn operation(&mut self, tree: &Oid) -> Result<Oid> {
        let mut items = items_of(self.odb, tree)?;
        for i in &mut items {
            if !self.only_state && self.named.iter().any(|p| paths::is_under(i.path.as_bstr(), p.as_bstr())) {
                (i.from, i.to) = (None, None);
                i.leave(Action::Keep, FORGOTTEN);
            }
        }
        let mut entries: Vec<TreeEntry> = self.odb.tree(tree)?;
        for e in &mut entries {
            match e.name.as_slice() {
                b"before" | b"after" => e.oid = self.root(&e.oid)?.0,
                b"items" => e.oid = self.writer.blob(&mut self.s, &plan::encode_items(&items))?.0,
                _ => {}
            }
        }
        Ok(self.writer.tree(&mut self.s, &mut entries)?.0)
    }
}

fn skip(path: &BString) -> SkipRecord {
    let p = JsonPath::from(path.as_bstr());
    SkipRecord {
        path: p.path,
        path_base64: p.path_base64,
        reason: FORGOTTEN.to_owned(),
        bytes: None,
        detail: None,
    }
}

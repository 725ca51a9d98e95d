//! A row without what is private: files that the settings name, that look like secrets or that were ignored; files outside,
//! git state, owners, extended attributes, the folder's identity, and prompts unless asked for (SEMANTICS 38).
//!
//! A path that is left out is listed as `private` in the copy's coverage: unknown there, never absent.

use std::collections::{BTreeMap, HashMap};

use backstitch_scan::Kind as What;
use backstitch_store::{
    MODE_EXECUTABLE, MODE_FILE, MODE_LINK, MODE_TREE, Odb, Oid, Scratch, TreeEntry, Writer, names,
};
use bstr::{BStr, BString, ByteSlice};

use super::{ORIGIN, Told, secrets::Patterns};
use crate::{
    coverage::{self, RowRules},
    error::{Code, Error, Result},
    meta,
    paths::{self, JsonPath},
    record::{self, Checkpoint, Incarnation, Record, SkipRecord},
    tree::{DirRef, Root},
    workspace::Workspace,
};

/// Why a path is not in a copy.
pub(super) const PRIVATE: &str = "private";

/// What became of a directory.
type Done = (DirRef, Vec<(BString, &'static str)>);

pub(super) struct Filter<'a> {
    odb: &'a Odb,
    writer: &'a Writer,
    patterns: Patterns,
    origin: &'a str,
    prompts: bool,
    root: String,
    /// By path, content and the rules in force there: most rows share their directories with their neighbours.
    done: HashMap<(BString, DirRef, [u8; 20]), Done>,
}

fn damaged(what: &str) -> Error {
    Error::new(Code::StoreDamaged, format!("a recorded tree is not in the known form: {what}"))
}

/// A path that is left out, for the coverage.
fn skip(path: &BStr) -> SkipRecord {
    let p = JsonPath::from(path);
    SkipRecord {
        path: p.path,
        path_base64: p.path_base64,
        reason: PRIVATE.to_owned(),
        bytes: None,
        detail: None,
    }
}

impl<'a> Filter<'a> {
    pub(super) fn new(
        ws: &Workspace,
        odb: &'a Odb,
        writer: &'a Writer,
        origin: &'a str,
        prompts: bool,
    ) -> Result<Filter<'a>> {
        let s = ws.settings();
        let private = [s.list("sync.private"), s.list("never_store")].concat();
        let patterns = Patterns::new(&private, &s.list("sync.send"))?;
        let root = ws.root().to_string_lossy().into_owned();
        Ok(Filter { odb, writer, patterns, origin, prompts, root, done: HashMap::new() })
    }

    /// The copy of a row, and what is not in it.
    pub(super) fn copy(&mut self, s: &mut Scratch, c: &Checkpoint) -> Result<(Oid, Vec<Told>)> {
        let root = Root::read(self.odb, &c.tree)?;
        let mut rules = RowRules::of_row(self.odb, &root)?;
        let (files, left_out) = self.dir(s, BString::default(), root.files, &mut rules)?;
        let mut doc = coverage::document(self.odb, &root)?;
        doc.outside.clear();
        let open = |p: &str| paths::unescape(p.as_bytes()).is_some_and(|p| !self.patterns.above(p.as_bstr()));
        if let Some(covers) = &mut doc.covers {
            covers.retain(|p| open(p));
        }
        for k in &mut doc.skips {
            k.detail = None;
        }
        doc.skips.retain(|k| !k.path.starts_with('/'));
        let fresh = left_out.iter().map(|(p, _)| skip(p.as_bstr()));
        let fresh: Vec<SkipRecord> = fresh.filter(|k| doc.skips.iter().all(|d| d.path != k.path)).collect();
        doc.skips.extend(fresh);
        doc.skips.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = serde_json::to_vec(&doc).unwrap_or_default();
        let copy = Root {
            files,
            coverage: Some(self.writer.blob(s, &bytes)?.0),
            // A blob of the copy is in the copy's pack or in the store.
            rules: root.rules,
            ..Root::default()
        };
        let tree = copy.write(self.writer, s)?;
        let record = self.record(&c.record, doc.covers, left_out.len() as u64);
        let oid = self.writer.commit(s, &tree, &record.message(), record.created_ms.div_euclid(1000))?;
        let told = left_out
            .into_iter()
            .map(|(p, what)| Told { path: p.to_str_lossy().into_owned(), what: what.to_owned() })
            .collect();
        Ok((oid, told))
    }

    fn record(&self, r: &Record, covers: Option<Vec<String>>, left_out: u64) -> Record {
        let keep = [record::CLOCK, record::GATED];
        let mut extra: serde_json::Map<String, serde_json::Value> = r
            .extra
            .iter()
            .filter(|(k, _)| keep.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        extra.insert(ORIGIN.to_owned(), self.origin.into());
        if left_out > 0 {
            extra.insert("left_out".to_owned(), left_out.into());
        }
        Record {
            prompt: r.prompt.clone().filter(|_| self.prompts),
            files: r.files.saturating_sub(left_out),
            skipped_total: r.skipped_total + left_out,
            skipped: Vec::new(),
            covers,
            outside: Vec::new(),
            pinned: false,
            incarnation: Incarnation { dev: 0, ino: 0, birth_ns: None },
            written: 0,
            // A note may name the folder.
            notes: r.notes.iter().map(|n| n.replace(&self.root, ".")).filter(|n| !n.contains("/")).collect(),
            reason: None,
            operation: None,
            extra,
            ..r.clone()
        }
    }

    fn dir(&mut self, s: &mut Scratch, at: BString, dir: DirRef, rules: &mut RowRules<'_>) -> Result<Done> {
        let Some(tree) = dir.tree else { return Ok((dir, Vec::new())) };
        let here = rules.digest(at.as_bstr())?;
        if let Some(done) = self.done.get(&(at.clone(), dir, here)) {
            return Ok(done.clone());
        }
        let (mut lines, mut metas) = (BTreeMap::new(), BTreeMap::new());
        if let Some(meta) = dir.meta {
            for e in self.odb.tree(&meta)? {
                match e.name == meta::BLOB {
                    true => lines = meta::decode(&self.odb.blob(&e.oid)?).ok_or_else(|| damaged("meta"))?,
                    false => drop(metas.insert(e.name, e.oid)),
                }
            }
        }
        let (mut out, mut out_metas) = (Vec::new(), Vec::new());
        let mut left_out = Vec::new();
        let mut kinds: HashMap<BString, What> = HashMap::from([(".".into(), What::Dir)]);
        let mut executable: HashMap<BString, bool> = HashMap::new();
        for e in self.odb.tree(&tree)? {
            let name: BString = names::decode(&e.name).ok_or_else(|| damaged("a name"))?.into_owned().into();
            let path = paths::join(at.as_bstr(), &name);
            let is_dir = e.mode == MODE_TREE;
            let why = match self.patterns.meant(path.as_bstr(), is_dir) {
                true => Some(PRIVATE),
                false => rules.left_out(path.as_bstr(), is_dir)?.filter(|_| !is_dir),
            };
            if let Some(why) = why {
                lines.remove(&name);
                left_out.push((path, why));
                continue;
            }
            let kind = match e.mode {
                MODE_TREE => What::Dir,
                MODE_LINK => What::Link,
                _ => What::File,
            };
            kinds.insert(name.clone(), kind);
            executable.insert(name, e.mode == MODE_EXECUTABLE);
            debug_assert!(matches!(e.mode, MODE_TREE | MODE_LINK | MODE_FILE | MODE_EXECUTABLE));
            if !is_dir {
                out.push(e);
                continue;
            }
            let below = DirRef { tree: Some(e.oid), meta: metas.get(&e.name).copied() };
            let (new, more) = self.dir(s, path, below, rules)?;
            left_out.extend(more);
            if let Some(meta) = new.meta {
                out_metas.push(TreeEntry { mode: MODE_TREE, name: e.name.clone(), oid: meta });
            }
            out.push(TreeEntry { oid: new.tree.unwrap_or(e.oid), ..e });
        }
        lines.retain(|name, line| {
            line.attrs = meta::Attrs::default();
            let executable = executable.get(name).copied().unwrap_or(false);
            kinds.get(name).is_some_and(|kind| line.mode != meta::ordinary_mode(*kind, executable))
        });
        if !lines.is_empty() {
            let (oid, _) = self.writer.blob(s, &meta::encode(&lines))?;
            out_metas.push(TreeEntry { mode: MODE_FILE, name: meta::BLOB.into(), oid });
        }
        let meta = match out_metas.is_empty() {
            true => None,
            false => Some(self.writer.tree(s, &mut out_metas)?.0),
        };
        let done = (DirRef { tree: Some(self.writer.tree(s, &mut out)?.0), meta }, left_out);
        self.done.insert((at, dir, here), done.clone());
        Ok(done)
    }
}

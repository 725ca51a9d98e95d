//! A recorded git state as names with values, which is what is compared, shown and put back.

use std::collections::BTreeMap;

use backstitch_store::{MODE_FILE, MODE_TREE, Odb, Oid, Scratch, TreeEntry, Writer};
use bstr::{BStr, BString, ByteSlice};

use super::{
    About, index, keep,
    read::{DIRS, FILES, is_ref_name, is_value},
};
use crate::{
    error::{Code, Error, Result},
    paths,
};

/// Name of the index among the values.
pub(crate) const INDEX: &str = "index";
/// Name of the stash's reflog.
pub(crate) const STASH_LOG: &str = "logs/refs/stash";

/// What a name of the state holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// HEAD or a ref: an id, or `ref: ` and a name.
    Text(BString),
    /// A file, as a blob of the store.
    File(Oid),
    /// The index.
    Index { tree: Oid, flags: Option<Oid> },
}

impl Value {
    /// For people and JSON.
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Text(t) => t.to_str_lossy().into_owned(),
            Value::File(oid) => oid.to_string(),
            Value::Index { tree, flags } => flags.map_or(tree.to_string(), |f| format!("{tree}+{f}")),
        }
    }
}

/// A recorded state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// By name: `HEAD`, refs, [`INDEX`], [`STASH_LOG`], files of an operation.
    pub map: BTreeMap<BString, Value>,
    pub about: About,
    pub kept: Option<Oid>,
}

fn damaged(what: &str) -> Error {
    Error::new(Code::StoreDamaged, format!("a recorded git state is not in the known form: {what}"))
}

/// The parts of the tree.
pub(super) fn parts(odb: &Odb, state: &Oid) -> Result<BTreeMap<String, Oid>> {
    Ok(odb.tree(state)?.into_iter().map(|e| (e.name.to_str_lossy().into_owned(), e.oid)).collect())
}

/// Small files as one flat tree.
pub(super) fn write_files<'b>(
    writer: &Writer,
    s: &mut Scratch,
    files: impl Iterator<Item = (&'b BStr, &'b [u8])>,
) -> Result<Oid> {
    let mut list = Vec::new();
    for (path, bytes) in files {
        let name = paths::escape(path).replace('/', "%2f");
        list.push(TreeEntry { mode: MODE_FILE, name: name.into(), oid: writer.blob(s, bytes)?.0 });
    }
    Ok(writer.tree(s, &mut list)?.0)
}

/// The file belongs to an operation under way, as git has it below its directory.
fn is_operation_file(path: &BStr) -> bool {
    let top = path.split_str("/").next().unwrap_or_default();
    let inside = path.len() > top.len();
    let fits = |list: &[&str]| list.iter().any(|n| n.as_bytes() == top);
    paths::is_safe(path) && !path.ends_with(b".lock") && if inside { fits(DIRS) } else { fits(FILES) }
}

impl Values {
    /// # Errors
    /// `store-damaged` for anything that no capture writes: names become paths.
    pub(crate) fn read(odb: &Odb, state: &Oid) -> Result<Values> {
        let parts = parts(odb, state)?;
        let mut out = Values { kept: parts.get("kept").copied(), ..Values::default() };
        if let Some(oid) = parts.get("about") {
            out.about = serde_json::from_slice(&odb.blob(oid)?).map_err(|e| damaged(&e.to_string()))?;
        }
        for part in ["heads", "tags"] {
            let Some(oid) = parts.get(part) else { continue };
            for line in odb.blob(oid)?.lines() {
                let (name, value) = line.split_once_str(" ").ok_or_else(|| damaged("a line of refs"))?;
                let name = paths::unescape(name).ok_or_else(|| damaged("a ref's name"))?;
                let known =
                    name == "HEAD" || is_ref_name(name.as_bstr()) && !name.starts_with(b"refs/remotes/");
                if !known || !is_value(value.as_bstr()) {
                    return Err(damaged("a ref"));
                }
                out.map.insert(name, Value::Text(value.into()));
            }
        }
        if !out.map.contains_key(BStr::new("HEAD")) {
            return Err(damaged("no HEAD"));
        }
        if let Some(oid) = parts.get("stash") {
            out.map.insert(STASH_LOG.into(), Value::File(*oid));
        }
        if let Some(oid) = parts.get("operation") {
            for e in odb.tree(oid)? {
                let path = paths::unescape(&e.name).filter(|p| is_operation_file(p.as_bstr()));
                let path =
                    path.filter(|_| e.mode != MODE_TREE).ok_or_else(|| damaged("a file of an operation"))?;
                out.map.insert(path, Value::File(e.oid));
            }
        }
        if let Some(tree) = parts.get("index") {
            let flags = parts.get("flags").copied();
            out.map.insert(INDEX.into(), Value::Index { tree: *tree, flags });
        }
        Ok(out)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(BStr::new(name))
    }

    /// What a symbolic or plain value comes to.
    pub(crate) fn resolve(&self, name: &BStr) -> Option<Oid> {
        let mut name = name.to_owned();
        for _ in 0..6 {
            let Some(Value::Text(text)) = self.map.get(&name) else { return None };
            match text.strip_prefix(b"ref: ") {
                Some(next) => name = next.into(),
                None => return Oid::from_hex(text).ok(),
            }
        }
        None
    }

    /// What is under way, in a word.
    pub(crate) fn operation(&self) -> Option<&'static str> {
        let has = |n: &str| self.map.contains_key(BStr::new(n));
        let any = |p: &str| self.map.keys().any(|k| k.starts_with_str(p));
        Some(match () {
            () if any("rebase-merge/") || any("rebase-apply/") => "rebase",
            () if has("MERGE_HEAD") => "merge",
            () if has("CHERRY_PICK_HEAD") => "cherry-pick",
            () if has("REVERT_HEAD") => "revert",
            () if has("BISECT_START") || has("BISECT_LOG") => "bisect",
            () if any("sequencer/") => "sequencer",
            () => return None,
        })
    }

    /// The shape in JSON.
    pub(crate) fn view(&self, odb: &Odb) -> serde_json::Value {
        let head = self.get("HEAD").map(Value::text).unwrap_or_default();
        let branch =
            head.strip_prefix("ref: ").map(|n| n.strip_prefix("refs/heads/").unwrap_or(n).to_owned());
        let stashes = match self.get(STASH_LOG) {
            Some(Value::File(oid)) => odb.blob(oid).map_or(0, |b| b.lines().count()),
            _ => 0,
        };
        serde_json::json!({
            "head": head,
            "branch": branch,
            "commit": self.resolve("HEAD".into()).map(|o| o.to_string()),
            "operation": self.operation(),
            "refs": self.map.keys().filter(|n| n.starts_with(b"refs/")).count(),
            "stashes": stashes,
            "index": self.get(INDEX).map(Value::text),
            "index_left_out": self.about.index,
            "kept": self.about.kept,
            "older": self.about.older,
            "missing": self.about.missing,
        })
    }

    /// Entries of the index.
    pub(super) fn index(&self, odb: &Odb) -> Result<Vec<backstitch_scan::IndexEntry>> {
        match self.get(INDEX) {
            Some(Value::Index { tree, flags }) => index::read(odb, tree, flags.as_ref()),
            _ => Ok(Vec::new()),
        }
    }

    /// Commits and tags that are kept.
    pub(super) fn kept(&self, odb: &Odb) -> Result<std::collections::HashMap<Oid, (Oid, Option<Oid>)>> {
        match &self.kept {
            Some(oid) => keep::read(odb, oid),
            None => Ok(Default::default()),
        }
    }
}

/// One name that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub name: BString,
    pub from: Option<Value>,
    pub to: Option<Value>,
}

/// What leads from one state to the other. An index that one of them does not speak for is left alone.
pub(crate) fn changes(from: &Values, to: &Values) -> Vec<Change> {
    let silent = from.about.index.is_some() || to.about.index.is_some();
    let names: std::collections::BTreeSet<&BString> = from.map.keys().chain(to.map.keys()).collect();
    names
        .into_iter()
        .filter(|n| !(silent && *n == INDEX))
        .map(|n| Change { name: n.clone(), from: from.map.get(n).cloned(), to: to.map.get(n).cloned() })
        .filter(|c| c.from != c.to)
        .collect()
}

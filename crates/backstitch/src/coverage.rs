//! What a row speaks for. A path it does not cover is unknown, never absent.

use std::collections::{BTreeMap, HashMap};

use backstitch_scan::{DirRules, Reason, Rules, Skip, Verdict};
use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Code, Error, Result},
    paths,
    record::{Checkpoint, SkipRecord},
    tree::{self, DirRef, Node, Root},
};

/// Why a path that the setting `never_store` names is left alone.
pub(crate) const NEVER_STORED: &str = "never-stored";

/// The coverage blob.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Document {
    /// `workspace`, `touched` or `paths`.
    pub scope: String,
    /// Escaped paths that were looked at, where not all was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<Vec<String>>,
    /// Escaped absolute paths of files elsewhere that were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// Everything left out, sorted by path.
    pub skips: Vec<SkipRecord>,
}

/// Text of a skip's path in the record: exact, in the escaped form, next to the lossy one.
pub fn skip_record(s: &Skip) -> SkipRecord {
    let p = paths::JsonPath::from(s.path.as_bstr());
    SkipRecord {
        path: p.path,
        path_base64: p.path_base64,
        reason: s.reason.as_str().to_owned(),
        bytes: s.bytes,
        detail: s.detail.clone(),
    }
}

fn exact_path(s: &SkipRecord) -> Option<BString> {
    match &s.path_base64 {
        Some(b) => decode_base64(b),
        None => Some(s.path.as_str().into()),
    }
}

fn decode_base64(text: &str) -> Option<BString> {
    let mut out = Vec::new();
    let (mut acc, mut bits) = (0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let v = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        acc = acc << 6 | u32::from(v);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((acc >> bits & 255) as u8);
        }
    }
    Some(out.into())
}

/// The coverage of one row or of the live tree, ready to be asked.
pub struct Coverage {
    /// Looked at nothing but these (and below).
    covers: Option<Vec<BString>>,
    /// Files elsewhere: looked at nothing but these.
    outside: Vec<BString>,
    /// Left out, by path.
    skips: BTreeMap<BString, Option<Reason>>,
}

impl Coverage {
    /// Of a scan of everything.
    pub fn of_scan(skips: &[Skip], covers: Option<&[BString]>, outside: &[BString]) -> Coverage {
        Coverage {
            covers: covers.map(<[BString]>::to_vec),
            outside: outside.to_vec(),
            skips: skips.iter().map(|s| (s.path.clone(), Some(s.reason))).collect(),
        }
    }

    /// Everything in the workspace was looked at.
    pub fn everything() -> Coverage {
        Coverage::of_scan(&[], None, &[])
    }

    /// Of a row.
    pub fn of_row(odb: &Odb, root: &Root) -> Result<Coverage> {
        let doc = document(odb, root)?;
        let read = |list: &[String]| {
            list.iter()
                .map(|p| paths::unescape(p.as_bytes()))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| Error::new(Code::StoreDamaged, "a coverage list is not in the known form"))
        };
        let covers = doc.covers.as_deref().map(read).transpose()?;
        let outside = read(&doc.outside)?;
        let mut skips = BTreeMap::new();
        for s in &doc.skips {
            let path = exact_path(s)
                .ok_or_else(|| Error::new(Code::StoreDamaged, "a coverage list is not in the known form"))?;
            skips.insert(path, Reason::parse(&s.reason));
        }
        Ok(Coverage { covers, outside, skips })
    }

    /// The path was looked at: what is not in the tree was not there.
    pub fn covers(&self, path: &BStr) -> bool {
        self.in_scope(path) && self.skip_at_or_above(path).is_none()
    }

    /// Inside what was looked at, rules and failures aside.
    pub fn in_scope(&self, path: &BStr) -> bool {
        let any = |list: &[BString]| list.iter().any(|c| paths::is_under(path, c.as_bstr()));
        match &self.covers {
            _ if paths::is_outside(path) => any(&self.outside),
            None => true,
            Some(list) => any(list),
        }
    }

    /// The reason why the path, or a directory above it, was left out.
    pub fn skip_at_or_above(&self, path: &BStr) -> Option<&'static str> {
        if self.skips.is_empty() {
            return None;
        }
        let mut at = path;
        loop {
            if let Some(r) = self.skips.get(at) {
                return Some(r.map_or("unknown", |r| r.as_str()));
            }
            if at.is_empty() {
                return None;
            }
            at = paths::split(at).0;
        }
    }

    /// The paths whose bytes a person had removed: what stood there is unknown for good.
    pub fn forgotten(&self) -> impl Iterator<Item = &BStr> {
        self.skips.iter().filter(|(_, r)| **r == Some(Reason::Forgotten)).map(|(p, _)| p.as_bstr())
    }

    /// What was left out against the rules (SEMANTICS 2), and why.
    pub fn missed(&self) -> impl Iterator<Item = (&BStr, &'static str)> {
        self.skips.iter().filter_map(|(p, r)| r.filter(|r| !r.by_rule()).map(|r| (p.as_bstr(), r.as_str())))
    }

    /// Something at or below the path was left out.
    pub fn has_skip_below(&self, path: &BStr) -> bool {
        if path.is_empty() {
            return !self.skips.is_empty();
        }
        self.skips
            .range::<BStr, _>((std::ops::Bound::Included(path), std::ops::Bound::Unbounded))
            .take_while(|(p, _)| p.starts_with(path))
            .any(|(p, _)| paths::is_under(p.as_bstr(), path))
    }
}

/// Reads the coverage blob of a row; rows without one cover nothing.
pub fn document(odb: &Odb, root: &Root) -> Result<Document> {
    match root.coverage {
        None => Ok(Document {
            scope: "paths".to_owned(),
            covers: Some(Vec::new()),
            outside: Vec::new(),
            skips: Vec::new(),
        }),
        Some(oid) => serde_json::from_slice(&odb.blob(&oid)?)
            .map_err(|e| Error::new(Code::StoreDamaged, format!("coverage {oid} cannot be read: {e}"))),
    }
}

/// Ignore decisions for single paths of a recorded tree: its own ignore files plus the row's outside sources.
pub struct RowRules<'a> {
    odb: &'a Odb,
    root: DirRef,
    rules: Option<Rules>,
    cache: HashMap<BString, Option<(DirRules, DirRef)>>,
}

impl<'a> RowRules<'a> {
    /// Of a row (`rules` from its `meta/rules`), or of the live tree with today's sources.
    pub fn new(odb: &'a Odb, root: DirRef, rules: Option<Rules>) -> RowRules<'a> {
        RowRules { odb, root, rules, cache: HashMap::new() }
    }

    /// Reads the sources that a row recorded.
    pub fn of_row(odb: &'a Odb, root: &Root) -> Result<RowRules<'a>> {
        let rules = match root.rules {
            None => None,
            Some(oid) => Some(Rules::from_bytes(&odb.blob(&oid)?).ok_or_else(|| {
                Error::new(Code::StoreDamaged, format!("rules {oid} are not in the known form"))
            })?),
        };
        Ok(RowRules::new(odb, root.files, rules))
    }

    fn ignore_file(&self, dir: DirRef, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(tree) = dir.tree else { return Ok(None) };
        for e in self.odb.tree(&tree)? {
            let raw = backstitch_store::names::decode(&e.name);
            if raw.as_deref() == Some(name.as_bytes()) && e.mode & 0o170000 == 0o100000 {
                return Ok(Some(self.odb.blob(&e.oid)?));
            }
        }
        Ok(None)
    }

    fn dir(&mut self, path: &BStr) -> Result<Option<(DirRules, DirRef)>> {
        if let Some(known) = self.cache.get(path) {
            return Ok(known.clone());
        }
        let found = if path.is_empty() {
            match &self.rules {
                None => None,
                Some(rules) => {
                    let git = self.ignore_file(self.root, ".gitignore")?;
                    let own = self.ignore_file(self.root, ".backstitchignore")?;
                    Some((rules.root(git.as_deref(), own.as_deref()), self.root))
                }
            }
        } else {
            let (parent, name) = paths::split(path);
            match self.dir(parent)? {
                None => None,
                Some((rules, dir)) => {
                    let sub = tree::read_dir(self.odb, dir)?
                        .into_iter()
                        .find(|e| e.name == name && matches!(e.node, Node::Dir { .. }))
                        .map(|e| e.dir)
                        .unwrap_or_default();
                    let git = self.ignore_file(sub, ".gitignore")?;
                    let own = self.ignore_file(sub, ".backstitchignore")?;
                    Some((rules.child_dir(name, git.as_deref(), own.as_deref()), sub))
                }
            }
        };
        self.cache.insert(path.to_owned(), found.clone());
        Ok(found)
    }

    /// What tells the rules in force in a directory from others.
    pub(crate) fn digest(&mut self, dir: &BStr) -> Result<[u8; 20]> {
        Ok(self.dir(dir)?.map_or([0; 20], |(rules, _)| rules.digest()))
    }

    /// `ignored`, `excluded` or `never-stored` if a rule says so for the path or a directory above it.
    pub fn left_out(&mut self, path: &BStr, is_dir: bool) -> Result<Option<&'static str>> {
        from_the_top(path, is_dir, |dir, name, is_dir| {
            Ok(self.dir(dir)?.map(|(rules, _)| rules.verdict(name, is_dir)))
        })
    }
}

/// Ignore decisions for single paths as the disk has them now, whatever was looked at before.
pub struct DiskRules<'a> {
    root: &'a std::path::Path,
    rules: Rules,
    cache: HashMap<BString, DirRules>,
}

impl<'a> DiskRules<'a> {
    /// Of a folder, with today's sources.
    pub fn new(root: &'a std::path::Path, rules: Rules) -> DiskRules<'a> {
        DiskRules { root, rules, cache: HashMap::new() }
    }

    /// `ignored` or `excluded` if a rule says so for the path or a directory above it, and git does not track it.
    pub fn left_out(&mut self, path: &BStr, is_dir: bool) -> Result<Option<&'static str>> {
        from_the_top(path, is_dir, |dir, name, is_dir| {
            if !self.cache.contains_key(dir) {
                let Ok(rules) = self.rules.at(self.root, dir) else { return Ok(None) };
                self.cache.insert(dir.to_owned(), rules);
            }
            let Some(rules) = self.cache.get(dir) else { return Ok(None) };
            Ok(Some(match rules.verdict(name, is_dir) {
                Verdict::Ignore if rules.is_tracked(name, is_dir)? => Verdict::Keep,
                other => other,
            }))
        })
    }
}

/// The first word, from the top, of a rule that leaves out the path or a directory above it. `verdict` is asked for a
/// directory, a name in it and whether that is a directory; where it knows no rules of the directory nothing is left out.
fn from_the_top(
    path: &BStr,
    is_dir: bool,
    mut verdict: impl FnMut(&BStr, &BStr, bool) -> Result<Option<Verdict>>,
) -> Result<Option<&'static str>> {
    for end in path.find_iter(b"/").chain([path.len()]) {
        let (dir, name) = paths::split(path[..end].as_bstr());
        match verdict(dir, name, end < path.len() || is_dir)? {
            None => return Ok(None),
            Some(Verdict::Keep | Verdict::Include) => {}
            Some(Verdict::Ignore) => return Ok(Some("ignored")),
            Some(Verdict::Exclude) => return Ok(Some("excluded")),
            Some(Verdict::Never) => return Ok(Some(NEVER_STORED)),
        }
    }
    Ok(None)
}

/// Coverage and rules of one row together.
pub fn of_checkpoint(odb: &Odb, c: &Checkpoint) -> Result<(Root, Coverage)> {
    let root = Root::read(odb, &c.tree)?;
    let coverage = Coverage::of_row(odb, &root)?;
    Ok((root, coverage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(skips: &[&str], covers: Option<&[&str]>) -> Coverage {
        let skips: Vec<Skip> = skips
            .iter()
            .map(|p| Skip {
                path: (*p).into(),
                reason: Reason::Ignored,
                bytes: None,
                detail: None,
                is_dir: false,
            })
            .collect();
        let covers: Option<Vec<BString>> = covers.map(|c| c.iter().map(|p| (*p).into()).collect());
        Coverage::of_scan(&skips, covers.as_deref(), &[])
    }

    #[test]
    fn what_is_left_out_is_unknown_with_all_below() {
        let c = coverage(&["a/b", "a/bc/d"], None);
        let b = |s: &'static str| BStr::new(s);
        assert!(c.covers(b("a")) && c.covers(b("a/x")) && c.covers(b("a/bc")) && c.covers(b("a/bb")));
        assert!(!c.covers(b("a/b")) && !c.covers(b("a/b/c")) && !c.covers(b("a/bc/d")));
        assert!(c.has_skip_below(b("a")) && c.has_skip_below(b("a/bc")) && c.has_skip_below(b("a/b")));
        assert!(!c.has_skip_below(b("a/bb")) && !c.has_skip_below(b("b")));
    }

    #[test]
    fn named_rows_cover_only_what_was_named() {
        let c = coverage(&[], Some(&["a/b"]));
        let b = |s: &'static str| BStr::new(s);
        assert!(c.covers(b("a/b")) && c.covers(b("a/b/c")));
        assert!(!c.covers(b("a")) && !c.covers(b("a/bc")));
    }

    #[test]
    fn base64_round_trip() {
        for n in 0..20 {
            let v: Vec<u8> = (0..n).map(|i| (i * 37 + 200) as u8).collect();
            assert_eq!(decode_base64(&paths::base64(&v)), Some(v.into()));
        }
    }
}

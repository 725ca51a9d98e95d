//! Two models side by side.

use std::fmt;

use super::{Content, Entry, Kind, TreeModel, Xattrs};
use crate::text::{brief, show};

/// How two models are compared.
#[derive(Clone, Debug)]
pub struct Compare {
    /// Which permission bits count.
    pub mode: ModeRule,
    /// Whether inode, mtime and ctime of files and links must be the same.
    pub identity: bool,
    /// Whether owner and group must be the same.
    pub owner: bool,
    /// Whether the root's own mode counts.
    pub root: bool,
}

/// Which permission bits count in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeRule {
    /// All of `0o7777`.
    Exact,
    /// Of files, whether the owner may execute them; of directories, none. What git keeps.
    Executable,
    /// None.
    Ignore,
}

impl Default for Compare {
    fn default() -> Self {
        Compare { mode: ModeRule::Exact, identity: false, owner: false, root: false }
    }
}

impl Compare {
    /// Type, content, link text and the executable bit: what a stock git tree says.
    pub fn as_git() -> Self {
        Compare { mode: ModeRule::Executable, ..Compare::default() }
    }

    /// As the default, and nothing may have been written: inode, mtime, ctime, owner, group and the root too.
    pub fn untouched() -> Self {
        Compare { mode: ModeRule::Exact, identity: true, owner: true, root: true }
    }
}

/// One difference between two models, as "left" (expected) and "right" (found).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, relative to the root; empty for the root.
    pub path: Vec<u8>,
    /// What differs.
    pub what: What,
}

/// What differs at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    Missing { left: Kind },
    Extra { right: Kind },
    Kind { left: Kind, right: Kind },
    Mode { left: u32, right: u32 },
    Content { left: Content, right: Content },
    Link { left: Vec<u8>, right: Vec<u8> },
    Inode { left: u64, right: u64 },
    Mtime { left: i128, right: i128 },
    Ctime { left: i128, right: i128 },
    Owner { left: (u32, u32), right: (u32, u32) },
    Xattrs { left: Xattrs, right: Xattrs },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", brief(&self.path))?;
        match &self.what {
            What::Missing { left } => write!(f, "missing ({left})"),
            What::Extra { right } => write!(f, "not expected ({right})"),
            What::Kind { left, right } => write!(f, "type {left} -> {right}"),
            What::Mode { left, right } => write!(f, "mode {left:04o} -> {right:04o}"),
            What::Content { left, right } => write!(f, "content {left} -> {right}"),
            What::Link { left, right } => write!(f, "link {} -> {}", brief(left), brief(right)),
            What::Inode { left, right } => write!(f, "inode {left} -> {right}"),
            What::Mtime { left, right } => write!(f, "mtime {left} -> {right}"),
            What::Ctime { left, right } => write!(f, "ctime {left} -> {right}"),
            What::Xattrs { left, right } => {
                let text = |x: &Xattrs| {
                    let pairs: Vec<String> =
                        x.iter().map(|(k, v)| format!("{}={}", show(k), show(v))).collect();
                    format!("{{{}}}", pairs.join(" "))
                };
                write!(f, "attributes {} -> {}", text(left), text(right))
            }
            What::Owner { left, right } => {
                write!(f, "owner {}:{} -> {}:{}", left.0, left.1, right.0, right.1)
            }
        }
    }
}

impl TreeModel {
    /// Every difference, in the order of the paths. `self` is what was expected.
    pub fn differences(&self, found: &TreeModel, compare: &Compare) -> Vec<Difference> {
        let mut out = Vec::new();
        if compare.root {
            differ(&[], &self.root, &found.root, compare, &mut out);
        }
        for (path, left) in &self.entries {
            match found.entries.get(path) {
                None => out.push(Difference { path: path.clone(), what: What::Missing { left: left.kind } }),
                Some(right) => differ(path, left, right, compare, &mut out),
            }
        }
        for (path, right) in &found.entries {
            if !self.entries.contains_key(path) {
                out.push(Difference { path: path.clone(), what: What::Extra { right: right.kind } });
            }
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        out
    }

    /// Whether nothing differs.
    pub fn same(&self, found: &TreeModel, compare: &Compare) -> bool {
        self.differences(found, compare).is_empty()
    }

    /// The differences as text, at most `limit` lines and a count of the rest; `None` when there are none.
    pub fn report(&self, found: &TreeModel, compare: &Compare, limit: usize) -> Option<String> {
        let all = self.differences(found, compare);
        if all.is_empty() {
            return None;
        }
        let mut out = String::new();
        for difference in all.iter().take(limit) {
            out.push_str(&format!("  {difference}\n"));
        }
        if all.len() > limit {
            out.push_str(&format!("  and {} more\n", all.len() - limit));
        }
        Some(out)
    }

    /// Panics with the list of differences, if there are any.
    #[track_caller]
    pub fn assert_same(&self, found: &TreeModel, compare: &Compare, what: &str) {
        if let Some(report) = self.report(found, compare, 40) {
            panic!("{what}: the trees differ (expected -> found):\n{report}");
        }
    }

    /// Files and links that are equal in both and yet were written, replaced or had their times changed.
    ///
    /// This is what a restore must not do: an entry that already matches is never opened for writing.
    pub fn touched_though_equal(&self, after: &TreeModel) -> Vec<Difference> {
        let plain = Compare::default();
        let strict = Compare::untouched();
        let mut out = Vec::new();
        for (path, left) in &self.entries {
            if let Some(right) = after.entries.get(path) {
                let mut found = Vec::new();
                differ(path, left, right, &plain, &mut found);
                if found.is_empty() {
                    differ(path, left, right, &strict, &mut out);
                }
            }
        }
        out
    }

    /// Paths at which this folder is neither as in `old` nor as in `new` (absence included).
    pub fn neither(&self, old: &TreeModel, new: &TreeModel, compare: &Compare) -> Vec<Vec<u8>> {
        let equal =
            |path: &[u8], a: &TreeModel, b: &TreeModel| match (a.entries.get(path), b.entries.get(path)) {
                (None, None) => true,
                (Some(l), Some(r)) => {
                    let mut found = Vec::new();
                    differ(path, l, r, compare, &mut found);
                    found.is_empty()
                }
                _ => false,
            };
        let mut paths: Vec<&Vec<u8>> =
            self.entries.keys().chain(old.entries.keys()).chain(new.entries.keys()).collect();
        paths.sort();
        paths.dedup();
        paths.into_iter().filter(|p| !equal(p, old, self) && !equal(p, new, self)).cloned().collect()
    }

    /// The entries for which `keep` says yes.
    pub fn filter(&self, keep: impl Fn(&[u8], &Entry) -> bool) -> TreeModel {
        TreeModel {
            root: self.root.clone(),
            entries: self
                .entries
                .iter()
                .filter(|(p, e)| keep(p, e))
                .map(|(p, e)| (p.clone(), e.clone()))
                .collect(),
        }
    }

    /// The number of entries of a type.
    pub fn count(&self, kind: Kind) -> usize {
        self.entries.values().filter(|e| e.kind == kind).count()
    }
}

fn differ(path: &[u8], left: &Entry, right: &Entry, compare: &Compare, out: &mut Vec<Difference>) {
    let mut push = |what| out.push(Difference { path: path.to_vec(), what });
    if left.kind != right.kind {
        push(What::Kind { left: left.kind, right: right.kind });
        return;
    }
    let bits = |entry: &Entry| match (compare.mode, entry.kind) {
        (ModeRule::Ignore, _) | (_, Kind::Link) => 0,
        (ModeRule::Exact, _) => entry.mode,
        (ModeRule::Executable, Kind::File) => {
            if entry.mode & 0o100 == 0 {
                0o644
            } else {
                0o755
            }
        }
        (ModeRule::Executable, _) => 0,
    };
    if bits(left) != bits(right) {
        push(What::Mode { left: bits(left), right: bits(right) });
    }
    if let (Some(l), Some(r)) = (&left.content, &right.content)
        && l != r
    {
        push(What::Content { left: l.clone(), right: r.clone() });
    } else if left.content.is_some() != right.content.is_some() {
        let text = |c: &Option<Content>| c.clone().unwrap_or(Content::Unreadable("not read".into()));
        push(What::Content { left: text(&left.content), right: text(&right.content) });
    }
    if left.link != right.link {
        let text = |l: &Option<Vec<u8>>| l.clone().unwrap_or_default();
        push(What::Link { left: text(&left.link), right: text(&right.link) });
    }
    if let (Some(l), Some(r)) = (&left.xattrs, &right.xattrs)
        && l != r
    {
        push(What::Xattrs { left: l.clone(), right: r.clone() });
    }
    if let (Some(l), Some(r)) = (left.identity, right.identity) {
        if compare.identity && left.kind != Kind::Dir {
            if (l.dev, l.ino) != (r.dev, r.ino) {
                push(What::Inode { left: l.ino, right: r.ino });
            }
            if l.mtime_ns != r.mtime_ns {
                push(What::Mtime { left: l.mtime_ns, right: r.mtime_ns });
            }
            if l.ctime_ns != r.ctime_ns {
                push(What::Ctime { left: l.ctime_ns, right: r.ctime_ns });
            }
        }
        if compare.owner && (l.uid, l.gid) != (r.uid, r.gid) {
            push(What::Owner { left: (l.uid, l.gid), right: (r.uid, r.gid) });
        }
    }
}

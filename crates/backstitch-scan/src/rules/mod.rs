//! Which paths are looked at: git's rules, our own ignore files, configuration and built-ins.
//!
//! [`Rules`] holds what comes from outside the tree and is read once per operation. [`DirRules`] is the chain for one
//! directory: a child's chain points at its parent's, so that a chain costs one small allocation per directory and none
//! is ever changed.
//!
//! Order of precedence for a path, first answer wins:
//! 0. it is the name of a device of Windows, and those are left out: exclude; a pattern of the setting `never_store` matches:
//!    never, whoever names the path and whatever was covered before;
//! 1. a pattern of the setting `include` matches: include;
//! 2. a pattern of the setting `exclude` matches: exclude;
//! 3. the directory it lies in is itself ignored or excluded: the same;
//! 4. `.backstitchignore`, from the path's own directory upwards: exclude, or keep if the pattern is negated;
//! 5. the directory it lies in is included: include;
//! 6. `.gitignore`, from the path's own directory up to the top of its repository, then `info/exclude`, then git's global
//!    excludes file: ignore, or keep if the pattern is negated;
//! 7. built-in excludes: exclude;
//! 8. keep.
//!
//! What a repository's index lists is kept in spite of 6 and 7; that is the scan's business, not the chain's.

mod chain;

use std::{path::PathBuf, sync::Arc};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    builtin,
    digest::{Digest, digest},
    index::Tracked,
    pattern::List,
    seed::Origin,
};
pub use chain::DirRules;
pub(crate) use chain::{Matcher, State, read_both};

/// What the user's settings say about rules.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// Patterns in gitignore syntax that pin: what they match is covered whatever other rules say, without size limits.
    pub include: Vec<String>,
    /// Patterns in gitignore syntax that leave out.
    pub exclude: Vec<String>,
    /// Patterns in gitignore syntax, compared without regard to case, of what is never read or recorded.
    pub never: Vec<String>,
    /// Honour git's global excludes file; by default only inside a git work tree.
    pub global_excludes: Option<bool>,
    /// Honour `.gitignore` outside of git work trees (true).
    pub gitignore_outside_git: bool,
    /// Let `.backstitchignore` leave things out (true); if false it can only re-admit, for a clone nobody trusts yet.
    pub trust_backstitchignore: bool,
    /// Leave out what Windows takes for devices (`NUL`, `com1.txt`), whatever other rules and git's index say (on Windows).
    pub device_names: bool,
    /// The home folder, where not the user's own; its git configuration is read.
    pub home: Option<PathBuf>,
}

impl Default for RuleSettings {
    fn default() -> Self {
        RuleSettings {
            include: Vec::new(),
            exclude: Vec::new(),
            never: Vec::new(),
            global_excludes: None,
            gitignore_outside_git: true,
            trust_backstitchignore: true,
            device_names: cfg!(windows),
            home: None,
        }
    }
}

/// The answer for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Ordinary content.
    Keep,
    /// Left out by an ignore rule; small files may be kept all the same.
    Ignore,
    /// Left out by configuration, `.backstitchignore` or a built-in: never kept.
    Exclude,
    /// Pinned by the setting `include`.
    Include,
    /// Named by the setting `never_store`: nothing re-admits it, no call that names it and no earlier coverage.
    Never,
}

/// A verdict, and whether git's index may overrule it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The path is kept after all if git tracks it.
    pub(crate) unless_tracked: bool,
    /// And it does: the path is kept, or for a directory something below it.
    pub(crate) tracked: bool,
}

/// What one git repository contributes: read once where it begins.
#[derive(Debug, Default)]
pub(crate) struct Repo {
    /// Contents of git's global excludes file.
    pub(crate) global: Option<Vec<u8>>,
    /// Contents of `info/exclude`.
    pub(crate) exclude: Option<Vec<u8>>,
    /// `core.ignoreCase`.
    pub(crate) fold: bool,
    /// What its index lists; `None` where no repository is at hand.
    pub(crate) tracked: Option<Tracked>,
    /// False for the rules that hold outside of any repository.
    pub(crate) is_git: bool,
    /// Where it is, if it is at hand.
    pub(crate) origin: Option<Origin>,
}

impl Repo {
    fn digest(&self) -> Digest {
        digest(&[
            flag(self.global.is_some()),
            self.global.as_deref().unwrap_or_default(),
            flag(self.exclude.is_some()),
            self.exclude.as_deref().unwrap_or_default(),
            flag(self.fold),
            flag(self.is_git),
        ])
    }
}

fn flag(b: bool) -> &'static [u8] {
    if b { b"1" } else { b"0" }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) repo: Arc<Repo>,
    /// From the top of the git work tree down to the root's parent: the name below it on the way to the root, and the
    /// contents of its `.gitignore`.
    pub(crate) above: Vec<(BString, Option<Vec<u8>>)>,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) gitignore: bool,
    pub(crate) trust_own: bool,
    /// How nested repositories find their configuration.
    pub(crate) settings: RuleSettings,
    pub(crate) include_list: List,
    pub(crate) exclude_list: List,
    pub(crate) never_list: List,
    pub(crate) litter: List,
    pub(crate) remade: List,
}

/// Sources of rules outside the tree, found once per operation; cheap to clone.
#[derive(Clone, Debug)]
pub struct Rules(pub(crate) Arc<Inner>);

/// First byte of the stored form, and of that with patterns of what is never stored at its end.
const VERSION: u8 = 1;
const WITH_NEVER: u8 = 2;

impl Rules {
    pub(crate) fn new(repo: Repo, above: Vec<(BString, Option<Vec<u8>>)>, settings: &RuleSettings) -> Rules {
        let gitignore = repo.is_git || settings.gitignore_outside_git;
        Rules(Arc::new(Inner {
            repo: Arc::new(repo),
            above,
            include_list: List::from_lines(settings.include.iter().map(String::as_str)),
            exclude_list: List::from_lines(settings.exclude.iter().map(String::as_str)),
            never_list: List::from_lines(settings.never.iter().map(String::as_str)),
            include: settings.include.clone(),
            exclude: settings.exclude.clone(),
            gitignore,
            trust_own: settings.trust_backstitchignore,
            settings: settings.clone(),
            litter: List::from_lines(builtin::LITTER.iter().copied()),
            remade: List::from_lines(builtin::REMADE.iter().copied()),
        }))
    }

    /// All sources as bytes, to be stored on a row.
    ///
    /// Together with the tree's own ignore files they decide every path. What git's index lists is not part of them, nor are
    /// `info/exclude` and configuration of nested repositories.
    pub fn to_bytes(&self) -> Vec<u8> {
        let inner = &*self.0;
        let never = &inner.settings.never;
        let mut out = vec![if never.is_empty() { VERSION } else { WITH_NEVER }];
        let devices = inner.settings.device_names;
        let flags = [inner.repo.fold, inner.repo.is_git, inner.gitignore, inner.trust_own, devices];
        out.push(flags.iter().enumerate().map(|(i, f)| u8::from(*f) << i).sum());
        put_optional(&mut out, inner.repo.global.as_deref());
        put_optional(&mut out, inner.repo.exclude.as_deref());
        for list in [&inner.include, &inner.exclude] {
            out.extend((list.len() as u32).to_le_bytes());
            list.iter().for_each(|line| put(&mut out, line.as_bytes()));
        }
        out.extend((inner.above.len() as u32).to_le_bytes());
        for (name, content) in &inner.above {
            put(&mut out, name);
            put_optional(&mut out, content.as_deref());
        }
        // The built-in lists belong to what decides, and may change from version to version.
        for list in [builtin::LITTER, builtin::REMADE] {
            out.extend((list.len() as u32).to_le_bytes());
            list.iter().for_each(|line| put(&mut out, line.as_bytes()));
        }
        if !never.is_empty() {
            out.extend((never.len() as u32).to_le_bytes());
            never.iter().for_each(|line| put(&mut out, line.as_bytes()));
        }
        out
    }

    /// Reads what [`Rules::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(b: &[u8]) -> Option<Rules> {
        let mut r = Reader(b);
        let version = r.byte()?;
        if !matches!(version, VERSION | WITH_NEVER) {
            return None;
        }
        let flags = r.byte()?;
        let flag = |i: u8| flags & (1 << i) != 0;
        let repo = Repo {
            global: r.optional()?,
            exclude: r.optional()?,
            fold: flag(0),
            is_git: flag(1),
            tracked: None,
            origin: None,
        };
        let include = r.lines()?;
        let exclude = r.lines()?;
        let count = r.count()?;
        let mut above = Vec::new();
        for _ in 0..count {
            above.push((r.bytes()?.into(), r.optional()?));
        }
        let litter = r.lines()?;
        let remade = r.lines()?;
        let never = if version == WITH_NEVER { r.lines()? } else { Vec::new() };
        if !r.0.is_empty() {
            return None;
        }
        let settings = RuleSettings {
            include,
            exclude,
            never,
            gitignore_outside_git: flag(2),
            trust_backstitchignore: flag(3),
            device_names: flag(4),
            ..RuleSettings::default()
        };
        let mut inner = Arc::into_inner(Rules::new(repo, above, &settings).0)?;
        inner.gitignore = flag(2);
        inner.litter = List::from_lines(litter.iter().map(String::as_str));
        inner.remade = List::from_lines(remade.iter().map(String::as_str));
        Some(Rules(Arc::new(inner)))
    }

    /// Whether there are patterns of what is never stored.
    pub fn has_never(&self) -> bool {
        !self.0.never_list.is_empty()
    }

    /// True if the path, relative to the root, or a directory above it is never to be stored. A path elsewhere is asked for
    /// as what it is below `/`.
    pub fn is_never(&self, path: &BStr, is_dir: bool) -> bool {
        self.has_never()
            && path.find_iter(b"/").chain([path.len()]).any(|end| {
                let above = path[..end].as_bstr();
                let name = above.rfind_byte(b'/').map_or(above, |slash| above[slash + 1..].as_bstr());
                self.0.never_list.decide(above, name, end < path.len() || is_dir, true) == Some(false)
            })
    }

    /// The same for a path relative to the top of the git work tree that the root lies in.
    pub fn is_never_in_git(&self, path: &BStr, is_dir: bool) -> bool {
        let mut inside: &[u8] = path;
        for (name, _) in &self.0.above {
            match inside.strip_prefix(name.as_slice()).and_then(|rest| rest.strip_prefix(b"/")) {
                Some(rest) => inside = rest,
                // Beside the root it is meant by its name.
                None => return self.is_never(path, is_dir),
            }
        }
        self.is_never(inside.as_bstr(), is_dir)
    }

    /// The patterns of what is never stored, one a line.
    pub fn never(&self) -> String {
        self.0.settings.never.join("\n")
    }

    /// A digest of all sources.
    pub fn digest(&self) -> [u8; 20] {
        digest(&[&self.to_bytes()])
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    put(out, bytes.unwrap_or_default());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn count(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.count()? as usize;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn optional(&mut self) -> Option<Option<Vec<u8>>> {
        let there = self.byte()? == 1;
        let bytes = self.bytes()?;
        Some(there.then(|| bytes.to_vec()))
    }

    fn lines(&mut self) -> Option<Vec<String>> {
        let count = self.count()?;
        (0..count).map(|_| String::from_utf8(self.bytes()?.to_vec()).ok()).collect()
    }
}

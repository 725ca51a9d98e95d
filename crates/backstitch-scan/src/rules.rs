//! Which paths are looked at: git's rules, our own ignore files, configuration and built-ins.
//!
//! [`Rules`] holds what comes from outside the tree and is read once per operation. [`DirRules`] is the chain for one
//! directory: a child's chain points at its parent's, so that a chain costs one small allocation per directory and none
//! is ever changed.
//!
//! Order of precedence for a path, first answer wins:
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

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    builtin,
    digest::{Digest, digest},
    index::Tracked,
    pattern::List,
    types::ScanError,
};

/// What the user's settings say about rules.
#[derive(Clone, Debug)]
pub struct RuleSettings {
    /// Patterns in gitignore syntax that pin: what they match is covered whatever other rules say, without size limits.
    pub include: Vec<String>,
    /// Patterns in gitignore syntax that leave out.
    pub exclude: Vec<String>,
    /// Honour git's global excludes file; by default only inside a git work tree.
    pub global_excludes: Option<bool>,
    /// Honour `.gitignore` outside of git work trees (true).
    pub gitignore_outside_git: bool,
    /// Let `.backstitchignore` leave things out (true); if false it can only re-admit, for a clone nobody trusts yet.
    pub trust_backstitchignore: bool,
    /// The home folder, where not the user's own; its git configuration is read.
    pub home: Option<PathBuf>,
}

impl Default for RuleSettings {
    fn default() -> Self {
        RuleSettings {
            include: Vec::new(),
            exclude: Vec::new(),
            global_excludes: None,
            gitignore_outside_git: true,
            trust_backstitchignore: true,
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
}

/// A verdict, and whether git's index may overrule it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The path is kept after all if git tracks it.
    pub(crate) unless_tracked: bool,
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
    pub(crate) litter: List,
    pub(crate) remade: List,
}

/// Sources of rules outside the tree, found once per operation; cheap to clone.
#[derive(Clone, Debug)]
pub struct Rules(pub(crate) Arc<Inner>);

/// First byte of the stored form.
const VERSION: u8 = 1;

impl Rules {
    pub(crate) fn new(repo: Repo, above: Vec<(BString, Option<Vec<u8>>)>, settings: &RuleSettings) -> Rules {
        let gitignore = repo.is_git || settings.gitignore_outside_git;
        Rules(Arc::new(Inner {
            repo: Arc::new(repo),
            above,
            include_list: List::from_lines(settings.include.iter().map(String::as_str)),
            exclude_list: List::from_lines(settings.exclude.iter().map(String::as_str)),
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
        let mut out = vec![VERSION];
        let flags = [inner.repo.fold, inner.repo.is_git, inner.gitignore, inner.trust_own];
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
        out
    }

    /// Reads what [`Rules::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(b: &[u8]) -> Option<Rules> {
        let mut r = Reader(b);
        if r.byte()? != VERSION {
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
        if !r.0.is_empty() {
            return None;
        }
        let settings = RuleSettings {
            include,
            exclude,
            gitignore_outside_git: flag(2),
            trust_backstitchignore: flag(3),
            ..RuleSettings::default()
        };
        let mut inner = Arc::into_inner(Rules::new(repo, above, &settings).0)?;
        inner.gitignore = flag(2);
        inner.litter = List::from_lines(litter.iter().map(String::as_str));
        inner.remade = List::from_lines(remade.iter().map(String::as_str));
        Some(Rules(Arc::new(inner)))
    }

    /// A digest of all sources.
    pub fn digest(&self) -> [u8; 20] {
        digest(&[&self.to_bytes()])
    }

    /// The rules for the root directory, given the contents of its own `.gitignore` and `.backstitchignore`.
    pub fn root(&self, gitignore: Option<&[u8]>, backstitchignore: Option<&[u8]>) -> DirRules {
        let inner = &self.0;
        let mut git = repo_lists(&inner.repo, 0);
        let repo = Arc::new(RepoNode { repo: inner.repo.clone(), off: 0, outer: None });
        let mut parent = None;
        let mut path_len = 0;
        let mut name = BString::default();
        for (next, content) in &inner.above {
            if let Some(content) = content {
                git = Some(ListNode::push(git, content, path_len));
            }
            let level = Level {
                parent,
                name: std::mem::replace(&mut name, next.clone()),
                path_len,
                root_off: 0,
                git: None,
                own: None,
                repo: repo.clone(),
                base: self.clone(),
                state: State::Normal,
                digest: Digest::default(),
            };
            path_len += next.len() + 1;
            parent = Some(DirRules(Arc::new(level)));
        }
        if let Some(content) = gitignore.filter(|_| inner.gitignore) {
            git = Some(ListNode::push(git, content, path_len));
        }
        let digest = digest(&[
            &self.digest(),
            flag(gitignore.is_some()),
            gitignore.unwrap_or_default(),
            flag(backstitchignore.is_some()),
            backstitchignore.unwrap_or_default(),
        ]);
        DirRules(Arc::new(Level {
            parent,
            name,
            path_len,
            root_off: path_len,
            git,
            own: backstitchignore.map(|content| ListNode::push(None, content, path_len)),
            repo,
            base: self.clone(),
            state: State::Normal,
            digest,
        }))
    }
}

/// The lists of a repository that begins at a directory whose path has `off` bytes.
fn repo_lists(repo: &Repo, off: usize) -> Option<Arc<ListNode>> {
    let mut lists = None;
    for content in [&repo.global, &repo.exclude].into_iter().flatten() {
        lists = Some(ListNode::push(lists, content, off));
    }
    lists
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

/// One ignore file of a chain, parsed when it is first asked.
#[derive(Debug)]
struct ListNode {
    bytes: Vec<u8>,
    list: OnceLock<List>,
    /// Length of the path of the directory that it belongs to, with its slash.
    off: usize,
    /// The list that is asked next.
    next: Option<Arc<ListNode>>,
}

impl ListNode {
    fn push(next: Option<Arc<ListNode>>, bytes: &[u8], off: usize) -> Arc<ListNode> {
        Arc::new(ListNode { bytes: bytes.to_vec(), list: OnceLock::new(), off, next })
    }

    fn list(&self) -> &List {
        self.list.get_or_init(|| List::parse(&self.bytes))
    }
}

/// Takes a chain apart link by link: a chain may be as deep as the tree, and dropping it must not recurse.
impl Drop for ListNode {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.next.take();
        }
    }
}

/// What a directory hands down to all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Normal,
    Included,
    Ignored,
    /// By a built-in; what git tracks is kept.
    Excluded,
    /// By configuration; nothing but `include` re-admits.
    Barred,
}

impl State {
    pub(crate) fn of(decision: Decision) -> State {
        match decision.verdict {
            Verdict::Keep => State::Normal,
            Verdict::Ignore => State::Ignored,
            Verdict::Exclude if decision.unless_tracked => State::Excluded,
            Verdict::Exclude => State::Barred,
            Verdict::Include => State::Included,
        }
    }
}

/// A repository of a chain, and those that it lies in.
#[derive(Debug)]
struct RepoNode {
    repo: Arc<Repo>,
    /// Length of the path of the top of its work tree.
    off: usize,
    outer: Option<Arc<RepoNode>>,
}

/// As for [`ListNode`].
impl Drop for RepoNode {
    fn drop(&mut self) {
        let mut next = self.outer.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.outer.take();
        }
    }
}

#[derive(Debug)]
struct Level {
    parent: Option<DirRules>,
    /// Name in the parent; empty at the top of the chain.
    name: BString,
    /// Length of the path from the top of the chain, with a slash at its end.
    path_len: usize,
    /// The same for the workspace's root.
    root_off: usize,
    git: Option<Arc<ListNode>>,
    own: Option<Arc<ListNode>>,
    /// The repository that this directory belongs to.
    repo: Arc<RepoNode>,
    base: Rules,
    state: State,
    digest: Digest,
}

impl Drop for Level {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut level) = next.and_then(|rules| Arc::into_inner(rules.0)) {
            next = level.parent.take();
        }
    }
}

/// The rules in force for the children of one directory; clones are cheap.
#[derive(Clone, Debug)]
pub struct DirRules(Arc<Level>);

impl DirRules {
    /// The rules of the child directory `name`, given the contents of its own ignore files.
    ///
    /// A child that is itself ignored hands that down: everything below it is ignored, whatever its own files say.
    pub fn child_dir(&self, name: &BStr, gitignore: Option<&[u8]>, backstitchignore: Option<&[u8]>) -> DirRules {
        let state = State::of(Matcher::new(self).decide(name, true));
        self.child(name, state, gitignore, backstitchignore, None)
    }

    pub(crate) fn child(
        &self,
        name: &BStr,
        state: State,
        gitignore: Option<&[u8]>,
        backstitchignore: Option<&[u8]>,
        repo: Option<Arc<Repo>>,
    ) -> DirRules {
        let level = &*self.0;
        let path_len = level.path_len + name.len() + 1;
        let same = state == level.state && gitignore.is_none() && backstitchignore.is_none() && repo.is_none();
        let digest = if same {
            level.digest
        } else {
            digest(&[
                &level.digest,
                &[state as u8],
                flag(gitignore.is_some()),
                gitignore.unwrap_or_default(),
                flag(backstitchignore.is_some()),
                backstitchignore.unwrap_or_default(),
                &repo.as_ref().map(|r| r.digest()).unwrap_or_default(),
            ])
        };
        let base = &level.base;
        let mut git = match &repo {
            Some(repo) => repo_lists(repo, path_len),
            None => level.git.clone(),
        };
        let honoured = base.0.gitignore || repo.is_some() || level.repo.repo.is_git;
        if let Some(content) = gitignore.filter(|_| honoured) {
            git = Some(ListNode::push(git, content, path_len));
        }
        let own = match backstitchignore {
            Some(content) => Some(ListNode::push(level.own.clone(), content, path_len)),
            None => level.own.clone(),
        };
        DirRules(Arc::new(Level {
            parent: Some(self.clone()),
            name: name.into(),
            path_len,
            root_off: level.root_off,
            git,
            own,
            repo: match repo {
                Some(repo) => Arc::new(RepoNode { repo, off: path_len, outer: Some(level.repo.clone()) }),
                None => level.repo.clone(),
            },
            base: base.clone(),
            state,
            digest,
        }))
    }

    /// The answer for the child `name`.
    pub fn verdict(&self, name: &BStr, is_dir: bool) -> Verdict {
        Matcher::new(self).decide(name, is_dir).verdict
    }

    /// Equal digests mean equal answers for equal names at the same place in the tree.
    pub fn digest(&self) -> [u8; 20] {
        self.0.digest
    }

    pub(crate) fn state(&self) -> State {
        self.0.state
    }
}

/// [`DirRules`] made ready for many questions.
pub(crate) struct Matcher {
    rules: DirRules,
    /// Path from the top of the chain, kept up to the directory.
    path: Vec<u8>,
}

impl Matcher {
    pub(crate) fn new(rules: &DirRules) -> Matcher {
        let mut path = vec![0; rules.0.path_len];
        let mut level = &*rules.0;
        loop {
            if !level.name.is_empty() {
                let start = level.path_len - level.name.len() - 1;
                path[start..level.path_len - 1].copy_from_slice(&level.name);
                path[level.path_len - 1] = b'/';
            }
            match &level.parent {
                Some(parent) => level = &parent.0,
                None => break,
            }
        }
        Matcher { rules: rules.clone(), path }
    }

    fn set(&mut self, name: &BStr) {
        self.path.truncate(self.rules.0.path_len);
        self.path.extend_from_slice(name);
    }

    pub(crate) fn decide(&mut self, name: &BStr, is_dir: bool) -> Decision {
        self.set(name);
        let level = &*self.rules.0;
        let base = &*level.base.0;
        let from_root = self.path[level.root_off..].as_bstr();
        // Folding of case follows the repository that the path belongs to.
        let fold = level.repo.repo.fold;
        let fixed = |verdict| Decision { verdict, unless_tracked: false };
        if !base.include_list.is_empty() && base.include_list.decide(from_root, name, is_dir, fold) == Some(false) {
            return fixed(Verdict::Include);
        }
        if !base.exclude_list.is_empty() && base.exclude_list.decide(from_root, name, is_dir, fold) == Some(false) {
            return fixed(Verdict::Exclude);
        }
        match level.state {
            State::Ignored => return Decision { verdict: Verdict::Ignore, unless_tracked: true },
            State::Excluded => return Decision { verdict: Verdict::Exclude, unless_tracked: true },
            State::Barred => return fixed(Verdict::Exclude),
            State::Normal | State::Included => {}
        }
        match ask(&level.own, &self.path, name, is_dir, fold) {
            Some(true) => return fixed(Verdict::Keep),
            Some(false) if base.trust_own => return fixed(Verdict::Exclude),
            _ => {}
        }
        if level.state == State::Included {
            return fixed(Verdict::Include);
        }
        match ask(&level.git, &self.path, name, is_dir, fold) {
            Some(true) => return fixed(Verdict::Keep),
            Some(false) => return Decision { verdict: Verdict::Ignore, unless_tracked: true },
            None => {}
        }
        let remade = !level.repo.repo.is_git && base.remade.decide(from_root, name, is_dir, fold) == Some(false);
        if remade || base.litter.decide(from_root, name, is_dir, fold) == Some(false) {
            return Decision { verdict: Verdict::Exclude, unless_tracked: true };
        }
        fixed(Verdict::Keep)
    }

    /// True if a git index lists the child `name`, or for a directory anything below it.
    pub(crate) fn is_tracked(&mut self, name: &BStr, is_dir: bool) -> Result<bool, ScanError> {
        self.set(name);
        let mut next = Some(&self.rules.0.repo);
        while let Some(node) = next {
            if let Some(tracked) = &node.repo.tracked
                && tracked.lists(self.path[node.off..].as_bstr(), is_dir)?
            {
                return Ok(true);
            }
            next = node.outer.as_ref();
        }
        Ok(false)
    }

    /// True if the setting `include` names something below the child directory `name`.
    pub(crate) fn included_below(&mut self, name: &BStr) -> bool {
        let list = &self.rules.0.base.0.include_list;
        if list.is_empty() || !list.needs_path() {
            return false;
        }
        self.set(name);
        let list = &self.rules.0.base.0.include_list;
        list.may_match_below(self.path[self.rules.0.root_off..].as_bstr(), self.rules.0.repo.repo.fold)
    }
}

/// Asks a chain of lists, nearest first: `Some(true)` if the deciding pattern is negated.
fn ask(lists: &Option<Arc<ListNode>>, path: &[u8], name: &BStr, is_dir: bool, fold: bool) -> Option<bool> {
    let mut next = lists.as_ref();
    while let Some(node) = next {
        let answer = node.list().decide(path[node.off..].as_bstr(), name, is_dir, fold);
        if answer.is_some() {
            return answer;
        }
        next = node.next.as_ref();
    }
    None
}

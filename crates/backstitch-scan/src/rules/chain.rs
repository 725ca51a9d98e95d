//! The chain of rules for one directory.

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Arc, OnceLock},
};

use bstr::{BStr, BString, ByteSlice};
use rustix::io::Errno;

use super::{Decision, Repo, Rules, Verdict, flag};
use crate::{
    builtin::is_device_name,
    digest::{Digest, digest},
    handle,
    pattern::List,
    repository::{GitDirs, read_repo},
    types::ScanError,
};

impl Rules {
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
                git: git.clone(),
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

impl Rules {
    /// True if git's rules from above leave out the root, or a directory on the way to it, and the index lists nothing
    /// below the root: then the repository above has nothing to say about it.
    pub(crate) fn ignores_root(&self) -> Result<bool, ScanError> {
        let root = self.root(None, None);
        let fold = root.0.repo.repo.fold;
        let mut path = Matcher::new(&root).path;
        path.pop();
        let mut level = &root;
        let mut ignored = false;
        while let Some(parent) = &level.0.parent {
            let end = level.0.path_len - 1;
            let name = level.0.name.as_bstr();
            ignored |= ask(&parent.0.git, &path[..end], name, true, fold) == Some(false);
            level = parent;
        }
        match &root.0.repo.repo.tracked {
            Some(tracked) if ignored => Ok(!tracked.lists(path.as_bstr(), true)?),
            _ => Ok(ignored),
        }
    }

    /// The rules for the directory `dir` below `root` as they are on disk now, nested repositories included.
    ///
    /// # Errors
    ///
    /// [`ScanError::Rules`] if an ignore file on the way cannot be read, [`ScanError::Io`] if a directory cannot be opened.
    pub fn at(&self, root: &Path, dir: &BStr) -> Result<DirRules, ScanError> {
        let io = |path: &Path, source: Errno| ScanError::Io { path: path.to_owned(), source: source.into() };
        let mut fd = handle::open_root(root).map_err(|e| io(root, e))?;
        let mut path = root.to_owned();
        let (git, own) = read_both(fd.as_fd(), &path)?;
        let mut rules = self.root(git.as_deref(), own.as_deref());
        for name in dir.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            path.push(OsStr::from_bytes(name));
            let c_name = CString::new(name).map_err(|_| io(&path, Errno::INVAL))?;
            fd = handle::open_dir(fd.as_fd(), &c_name).map_err(|e| io(&path, e))?;
            let name = name.as_bstr();
            let state = State::of(Matcher::new(&rules).decide(name, true));
            let (git, own) = match state {
                State::Normal | State::Included => read_both(fd.as_fd(), &path)?,
                _ => (None, None),
            };
            let repo = match GitDirs::of(&path)? {
                Some(dirs) => Some(Arc::new(read_repo(&path, &dirs, &self.0.settings)?)),
                None => None,
            };
            rules = rules.child(name, state, git.as_deref(), own.as_deref(), repo);
        }
        Ok(rules)
    }
}

/// Contents of one file, if it is there.
type Content = Option<Vec<u8>>;

/// Reads a directory's two ignore files.
pub(crate) fn read_both(dir: BorrowedFd<'_>, path: &Path) -> Result<(Content, Content), ScanError> {
    let read = |name: &std::ffi::CStr| {
        handle::read_rules(dir, name).map_err(|e| ScanError::Rules {
            path: path.join(OsStr::from_bytes(name.to_bytes())),
            what: handle::error_text(&e),
        })
    };
    Ok((read(c".gitignore")?, read(c".backstitchignore")?))
}

/// The lists of a repository that begins at a directory whose path has `off` bytes.
fn repo_lists(repo: &Repo, off: usize) -> Option<Arc<ListNode>> {
    let mut lists = None;
    for content in [&repo.global, &repo.exclude].into_iter().flatten() {
        lists = Some(ListNode::push(lists, content, off));
    }
    lists
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
            Verdict::Exclude | Verdict::Never => State::Barred,
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
    pub fn child_dir(
        &self,
        name: &BStr,
        gitignore: Option<&[u8]>,
        backstitchignore: Option<&[u8]>,
    ) -> DirRules {
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
        let same =
            state == level.state && gitignore.is_none() && backstitchignore.is_none() && repo.is_none();
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

    /// True if a git index lists the child `name`, or for a directory anything below it: then no ignore rule of git's and
    /// no built-in leaves it out.
    ///
    /// # Errors
    ///
    /// [`ScanError::Rules`] if an index cannot be read.
    pub fn is_tracked(&self, name: &BStr, is_dir: bool) -> Result<bool, ScanError> {
        Matcher::new(self).is_tracked(name, is_dir)
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
        let fixed = |verdict| Decision { verdict, unless_tracked: false, tracked: false };
        let unless_tracked = |verdict| Decision { verdict, unless_tracked: true, tracked: false };
        if base.settings.device_names && is_device_name(name) {
            return fixed(Verdict::Exclude);
        }
        // A secret's name is meant however it is written.
        if !base.never_list.is_empty() && base.never_list.decide(from_root, name, is_dir, true) == Some(false)
        {
            return fixed(Verdict::Never);
        }
        if !base.include_list.is_empty()
            && base.include_list.decide(from_root, name, is_dir, fold) == Some(false)
        {
            return fixed(Verdict::Include);
        }
        if !base.exclude_list.is_empty()
            && base.exclude_list.decide(from_root, name, is_dir, fold) == Some(false)
        {
            return fixed(Verdict::Exclude);
        }
        match level.state {
            State::Ignored => return unless_tracked(Verdict::Ignore),
            State::Excluded => return unless_tracked(Verdict::Exclude),
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
            Some(false) => return unless_tracked(Verdict::Ignore),
            None => {}
        }
        let remade =
            !level.repo.repo.is_git && base.remade.decide(from_root, name, is_dir, fold) == Some(false);
        if remade || base.litter.decide(from_root, name, is_dir, fold) == Some(false) {
            return unless_tracked(Verdict::Exclude);
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
        let base = &self.rules.0.base.0;
        let list = &base.include_list;
        if list.is_empty() || !list.needs_path() || base.settings.device_names && is_device_name(name) {
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

//! Entering a directory.

use std::{
    collections::BTreeSet,
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use bstr::{BString, ByteSlice};
use rustix::io::Errno;

use super::{
    GROUP, Halt, Task, Walk, Worker, is_reserved,
    node::{Body, Done, KEEP, Node, items},
    queue::lock,
};
use crate::{
    handle::{self, Hint, Node as Seen},
    repository::{self, GitDirs},
    rules::{Decision, DirRules, Repo, State, Verdict},
    table::{
        quiet::{Quiet, skips_in},
        record::{self, Entry, EntryKind, Record, Sum},
    },
    types::{Kind, Reason, ScanError, Sink, Stat},
};

/// A directory on its way in.
struct Entering<'t> {
    parent: Option<(Arc<Node<'t>>, u32)>,
    fd: OwnedFd,
    decision: Decision,
    record: Option<Record<'t>>,
    id: u32,
    stat: Stat,
    /// The clock before anything was looked at.
    clock: i128,
}

/// What the names of a directory tell about it.
#[derive(Clone, Copy, Default)]
struct Marks {
    gitignore: bool,
    backstitchignore: bool,
    dot_git: bool,
    bare: bool,
}

impl Marks {
    fn of<'a>(names: impl Iterator<Item = &'a [u8]>) -> Marks {
        let mut marks = Marks::default();
        let mut bare = 0;
        for name in names {
            match name {
                b".gitignore" => marks.gitignore = true,
                b".backstitchignore" => marks.backstitchignore = true,
                b".git" => marks.dot_git = true,
                b"HEAD" | b"objects" | b"refs" => bare += 1,
                _ => {}
            }
        }
        marks.bare = bare == 3;
        marks
    }
}

impl<'t, S: Sink> Walk<'t, '_, S> {
    pub(super) fn enter_root(&self, w: &mut Worker<'t, S>) -> Result<(), Halt> {
        let root_error = |e: Errno| ScanError::Io { path: self.root.to_owned(), source: e.into() };
        // Opened anew: a duplicate would share the place up to which the directory was listed.
        let fd = handle::open_dir(self.start.fd.as_fd(), c".").map_err(root_error)?;
        self.enter(w, None, fd, KEEP, self.start.record, 0)
    }

    /// The path of a directory that is not entered yet.
    fn path_in(&self, parent: Option<&(Arc<Node<'t>>, u32)>) -> BString {
        match parent {
            Some((parent, slot)) => self.path_of(parent, *slot),
            None => self.start.path.clone(),
        }
    }

    pub(super) fn enter_child(
        &self,
        w: &mut Worker<'t, S>,
        parent: Arc<Node<'t>>,
        slot: u32,
        decision: Decision,
    ) -> Result<(), Halt> {
        if self.is_late() {
            return self.deliver(w, parent, slot, Done::skip(Reason::Time, true));
        }
        if let Some((id, record)) = self.quiet_child(&parent, slot) {
            let (stat, ids, sum) = (record.stat(), record.ids(), record.sum());
            self.take_quiet(w, (&parent, slot), (id, &sum))?;
            let done = Done::Dir {
                stat,
                ids,
                id,
                decision,
                xattrs: None,
                same: true,
                sum: Box::new(sum),
                sum_same: true,
            };
            return self.deliver(w, parent, slot, done);
        }
        let timed = self.pace.is_wanted().then(|| self.clock.now_ns());
        let opened = self.fd_of(&parent).and_then(|dir| self.open_dir(dir.as_fd(), parent.name(slot)));
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => {
                let done = self.examine_replaced(w, &parent, slot)?;
                return self.deliver(w, parent, slot, done);
            }
            Err(e) => return self.deliver(w, parent, slot, Done::unreadable(&e.into(), true, None)),
        };
        if let Some(begun) = timed {
            self.pace.add(self.clock.now_ns() - begun);
        }
        let known = parent.old_entry(slot).and_then(|e| e.directory());
        let record = known.and_then(|id| self.table.and_then(|t| t.record(id)));
        let id = match (&record, known) {
            (Some(_), Some(id)) => id,
            _ => self.next_id.fetch_add(1, Ordering::Relaxed),
        };
        self.enter(w, Some((parent, slot)), fd, decision, record, id)
    }

    /// What is known of a child directory that need not be looked at, if it is one.
    fn quiet_child(&self, parent: &Node<'t>, slot: u32) -> Option<(u32, Record<'t>)> {
        let quiet = self.quiet.filter(|q| !q.prove && !self.options.paranoid)?;
        // Rules and git index above are those under which it was looked at.
        if !self.is_as_it_was(parent) {
            return None;
        }
        let id = parent.old_entry(slot).filter(|e| e.is_covered())?.directory()?;
        let record = self.table?.record(id)?;
        self.is_quiet(quiet, parent.loud, id, record).then_some((id, record))
    }

    /// True if a directory is the one of the table, and what the table decided in it still holds.
    pub(super) fn is_as_it_was(&self, node: &Node<'t>) -> bool {
        let (dev, trust) = self.root_trust;
        let same = |r: Record<'_>| (r.dev(), r.stat().ino) == (dev, node.stat.ino) && node.stat.dev == dev;
        node.decided && !node.index_changed && trust.dirs && node.record.is_some_and(same)
    }

    /// True if the watcher is heard at all on what is in the table.
    pub(super) fn hears(&self) -> bool {
        self.policy_holds && self.options.table_vouched && self.start.rules.is_none()
    }

    /// True if the table leaves no doubt of a directory, with all below it, in which nothing is said to have happened.
    pub(super) fn is_quiet(&self, quiet: &Quiet, loud: bool, id: u32, record: Record<'_>) -> bool {
        self.hears() && !loud && quiet.holds(id) && record.dev() == self.root_trust.0 && record.sum().settled
    }

    /// The names that may be other than they were in a directory that is looked at.
    fn heard(&self, node: &Node<'t>) -> Option<Arc<BTreeSet<BString>>> {
        let quiet = self.quiet.filter(|q| !q.prove && !self.options.paranoid)?;
        if !self.hears() || node.loud || !self.is_as_it_was(node) {
            return None;
        }
        quiet.names(node.id)
    }

    /// Nothing is opened and nothing asked of the system.
    fn take_quiet(
        &self,
        w: &mut Worker<'t, S>,
        (parent, slot): (&Node<'t>, u32),
        (id, sum): (u32, &Sum),
    ) -> Result<(), Halt> {
        w.tally.files += sum.files;
        w.tally.dirs += sum.dirs;
        w.tally.links += sum.links;
        w.tally.bytes += sum.bytes;
        w.tally.ignored += sum.ignored;
        if let Some(table) = self.table.filter(|_| sum.skips > 0) {
            table.skips(id, self.path_of(parent, slot), &mut w.skips);
        }
        self.count(w, sum.entries)
    }

    fn enter(
        &self,
        w: &mut Worker<'t, S>,
        parent: Option<(Arc<Node<'t>>, u32)>,
        fd: OwnedFd,
        decision: Decision,
        record: Option<Record<'t>>,
        id: u32,
    ) -> Result<(), Halt> {
        let clock = self.clock.now_ns();
        let leave = |w: &mut Worker<'t, S>, parent: Option<(Arc<Node<'t>>, u32)>, done: Done| match parent {
            Some((parent, slot)) => self.deliver(w, parent, slot, done),
            None => {
                *lock(&self.result) = Some(done);
                self.queue.stop();
                Ok(())
            }
        };
        let stat = match handle::stat_fd(&fd) {
            Ok(Seen::Covered(stat)) if stat.kind == Kind::Dir => stat,
            Ok(_) => return leave(w, parent, Done::skip(Reason::Unstable, true)),
            Err(e) => return leave(w, parent, Done::unreadable(&e.into(), true, None)),
        };
        if parent.is_some() {
            let place = (stat.dev, stat.ino);
            if self.options.never.contains(&place) {
                return leave(w, parent, Done::skip(Reason::Store, true));
            }
            if self.git_dirs.contains(&place) {
                return leave(w, parent, Done::skip(Reason::Git, true));
            }
        }
        let trust = self.trust(stat.dev, &fd);
        let known = trust.dirs && !self.options.paranoid && record.is_some_and(|r| r.stat_equals(&stat));
        let listing = record.filter(|r| known && r.has(record::CLEAN));
        let marks = match listing {
            Some(record) if self.policy_holds => Marks {
                gitignore: record.has(record::RULE_FILES),
                backstitchignore: record.has(record::RULE_FILES),
                dot_git: record.has(record::DOT_GIT),
                // It would not have been covered.
                bare: false,
            },
            Some(record) => Marks::of(record.entries().map(|e| e.name().map_or(&b""[..], CStr::to_bytes))),
            None => {
                w.tally.listed += 1;
                w.names.clear();
                if let Err(e) = handle::list(fd.as_fd(), &mut w.buf, &mut w.names) {
                    return leave(w, parent, Done::unreadable(&e.into(), true, None));
                }
                let pool = &w.names.pool;
                w.names.list.retain(|(start, ..)| !is_reserved(&pool[*start as usize..]));
                w.names.sort();
                Marks::of(
                    w.names
                        .list
                        .iter()
                        .map(|(start, len, _)| &w.names.pool[*start as usize..][..usize::from(*len)]),
                )
            }
        };
        if marks.bare && !self.options.bare_is_content && parent.is_some() && !marks.dot_git {
            return leave(w, parent, Done::skip(Reason::BareRepository, true));
        }
        let repo = if marks.dot_git { self.repository(parent.as_ref())? } else { None };
        if repo.is_some() && parent.is_some() && !self.options.nested_is_content {
            return leave(w, parent, Done::skip(Reason::Nested, true));
        }
        let entering = Entering { parent, fd, decision, record, id, stat, clock };
        self.enter_with(w, entering, marks, listing, repo, trust)
    }

    /// Everything that could keep the directory out has been asked.
    fn enter_with(
        &self,
        w: &mut Worker<'t, S>,
        e: Entering<'t>,
        marks: Marks,
        listing: Option<Record<'t>>,
        repo: Option<Arc<Repo>>,
        trust: handle::Trust,
    ) -> Result<(), Halt> {
        let (rules, digest, state) = self.rules_of(&e, marks, repo.clone())?;
        let (index, mut index_changed) = self.index_of(&e, repo.as_deref());
        let decided = self.policy_holds && e.record.is_some_and(|r| r.rules() == digest);
        if let Some((parent, _)) = &e.parent {
            index_changed |= parent.index_changed;
        }
        let mut node = Node {
            stat: e.stat,
            xattrs: None,
            id: e.id,
            record: e.record,
            flags: 0,
            decision: e.decision,
            state,
            digest,
            index,
            index_changed,
            decided,
            loud: e.parent.as_ref().is_some_and(|(parent, _)| parent.loud)
                || self.quiet.is_some_and(|q| q.is_loud(e.id)),
            heard: None,
            rules: rules.map_or_else(OnceLock::new, OnceLock::from),
            fd: Mutex::default(),
            body: Body::Same(Box::default()),
            pending: AtomicU32::new(0),
            done: Mutex::default(),
            parent: e.parent,
        };
        node.heard = self.heard(&node);
        if let Some(record) = listing
            && decided
            && self.options.table_vouched
            && record.index() == index
            && !(record.len() > GROUP as usize * 2 && self.options.threads > 1)
            && !record.has(record::XATTRS)
            && let Some(children) = self.is_same(w, &node, e.fd.as_fd(), record)?
        {
            return self.enter_same(w, node, e.fd, record, children);
        }
        let had = listing.is_some();
        let clean = |ns: i128| ns + trust.granularity_ns < e.clock && record::time(ns) != i64::MIN;
        node.flags = flag(had || clean(e.stat.mtime_ns) && clean(e.stat.ctime_ns), record::CLEAN)
            | flag(marks.gitignore || marks.backstitchignore, record::RULE_FILES)
            | flag(marks.dot_git, record::DOT_GIT);
        match handle::xattrs(&e.fd) {
            Ok(xattrs) => node.xattrs = xattrs.map(Box::new),
            Err(error) => {
                let done = Done::unreadable(&error.into(), true, None);
                return match node.parent.take() {
                    Some((parent, slot)) => self.deliver(w, parent, slot, done),
                    None => Err(ScanError::Io { path: self.root.to_owned(), source: error.into() }.into()),
                };
            }
        }
        if let Some(record) = listing {
            w.names.clear();
            for entry in record.entries() {
                let hint = if entry.is_dir() { Hint::Dir } else { Hint::Other };
                w.names.push(entry.name().map_or(&b""[..], CStr::to_bytes), hint);
            }
        }
        node.body = items(&w.names, e.record);
        let count = w.names.list.len() as u32;
        self.count(w, 1 + u64::from(count))?;
        *node.fd.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::new(e.fd));
        let groups = if self.options.threads > 1 { count.div_ceil(GROUP).max(1) } else { 1 };
        node.pending = AtomicU32::new(groups);
        let node = Arc::new(node);
        if groups == 1 {
            return self.examine_group(w, node, 0, count, false);
        }
        self.fds.note(&node);
        for group in (0..groups).rev() {
            let (from, to) = (group * GROUP, ((group + 1) * GROUP).min(count));
            w.tasks.push_back(Task::Items { node: node.clone(), from, to });
        }
        Ok(())
    }

    /// The whole of a directory that is proven unchanged but for its child directories.
    fn enter_same(
        &self,
        w: &mut Worker<'t, S>,
        mut node: Node<'t>,
        fd: OwnedFd,
        record: Record<'t>,
        children: u32,
    ) -> Result<(), Halt> {
        if children == 0 {
            w.tally.dirs += 1;
            let done = Done::Dir {
                stat: node.stat,
                ids: record.ids(),
                id: node.id,
                decision: node.decision,
                xattrs: None,
                same: true,
                sum: Box::new(record.sum()),
                sum_same: true,
            };
            return match node.parent.take() {
                Some((parent, slot)) => self.deliver(w, parent, slot, done),
                None => {
                    *lock(&self.result) = Some(done);
                    self.queue.stop();
                    Ok(())
                }
            };
        }
        node.flags = flag(record.has(record::RULE_FILES), record::RULE_FILES)
            | flag(record.has(record::DOT_GIT), record::DOT_GIT)
            | record::CLEAN;
        node.body = Body::Same(w.stats.as_slice().into());
        node.pending = AtomicU32::new(children);
        *node.fd.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::new(fd));
        let node = Arc::new(node);
        self.fds.note(&node);
        for (slot, entry) in record.entries().enumerate().filter(|(_, e)| e.kind() == EntryKind::Dir) {
            w.tasks.push_back(Task::Dir {
                node: node.clone(),
                slot: slot as u32,
                decision: entry.decision(),
            });
        }
        Ok(())
    }

    /// Looks at every name that the table knows; the number of child directories if all is as it was.
    ///
    /// Nothing is allocated and nothing is decided here: the first doubt ends it.
    fn is_same(
        &self,
        w: &mut Worker<'t, S>,
        node: &Node<'t>,
        fd: BorrowedFd<'_>,
        record: Record<'t>,
    ) -> Result<Option<u32>, Halt> {
        let mut tally = w.tally;
        let dev = record.dev();
        let nothing = Stat { size: 0, ..node.stat };
        let (mut children, mut skips) = (0, false);
        w.stats.clear();
        for (i, entry) in record.entries().enumerate() {
            if i % 64 == 63 {
                self.check()?;
            }
            let Some(name) = entry.name() else { return Ok(None) };
            match entry.kind() {
                EntryKind::Leaf(kind) => match seen(node, &entry, fd, name) {
                    Ok(Seen::Covered(stat)) if entry.proves(&stat, dev) => {
                        let decision = entry.decision();
                        if left_out(decision) && decision.tracked {
                            if node.index_changed {
                                return Ok(None);
                            }
                        } else if left_out(decision) {
                            if !self.keeps(decision, node.state, &stat) {
                                return Ok(None);
                            }
                            tally.ignored += stat.stored_size();
                        }
                        if kind == Kind::File {
                            tally.files += 1;
                            tally.bytes += stat.size;
                        } else {
                            tally.links += 1;
                        }
                        w.stats.push(stat);
                    }
                    _ => return Ok(None),
                },
                EntryKind::Dir => {
                    let decision = entry.decision();
                    if left_out(decision) && (!decision.tracked || node.index_changed) {
                        return Ok(None);
                    }
                    children += 1;
                    w.stats.push(nothing);
                }
                EntryKind::Skip(reason) => {
                    let asks_index = entry.decision().unless_tracked && node.index_changed;
                    let stays = match reason {
                        Reason::Ignored => entry.is_dir() && !asks_index,
                        Reason::Excluded => !asks_index,
                        Reason::NeverStored | Reason::Git | Reason::Special(_) => true,
                        _ => false,
                    };
                    if !stays {
                        return Ok(None);
                    }
                    skips = true;
                    w.stats.push(nothing);
                }
            }
        }
        w.tally = tally;
        self.count(w, 1 + record.len() as u64)?;
        if skips {
            skips_in(record, &self.path(node), &mut w.skips);
        }
        Ok(Some(children))
    }

    /// The directory's chain where it has to be made now, its digest, and what it hands down.
    fn rules_of(
        &self,
        e: &Entering<'t>,
        marks: Marks,
        repo: Option<Arc<Repo>>,
    ) -> Result<(Option<DirRules>, crate::digest::Digest, State), Halt> {
        let read = |there: bool, name: &CStr| -> Result<Option<Vec<u8>>, ScanError> {
            if !there {
                return Ok(None);
            }
            handle::read_rules(e.fd.as_fd(), name).map_err(|error| {
                let dir = self.path_in(e.parent.as_ref());
                let path = super::below(self.root, handle::join(&dir, name.to_bytes()).as_bstr());
                ScanError::Rules { path, what: handle::error_text(&error) }
            })
        };
        let Some((parent, slot)) = &e.parent else {
            let git = read(marks.gitignore, c".gitignore")?;
            let own = read(marks.backstitchignore, c".backstitchignore")?;
            let rules = match &self.start.rules {
                // A directory that was named is looked at whatever the rules say of it.
                Some((rules, name)) => {
                    rules.child(name.as_bstr(), State::Normal, git.as_deref(), own.as_deref(), repo)
                }
                None => self.options.rules.root(git.as_deref(), own.as_deref()),
            };
            let (digest, state) = (rules.digest(), rules.state());
            return Ok((Some(rules), digest, state));
        };
        let state = State::of(e.decision);
        let open = matches!(state, State::Normal | State::Included);
        // Below an ignored directory no ignore file counts.
        let git = read(marks.gitignore && open, c".gitignore")?;
        let own = read(marks.backstitchignore && open, c".backstitchignore")?;
        if git.is_none() && own.is_none() && repo.is_none() && state == parent.state {
            return Ok((None, parent.digest, state));
        }
        let name = parent.name(*slot).to_bytes().as_bstr();
        let rules = parent.rules().child(name, state, git.as_deref(), own.as_deref(), repo);
        let digest = rules.digest();
        Ok((Some(rules), digest, state))
    }

    /// Which state of a git index decides here, and whether it is another than the last time.
    fn index_of(&self, e: &Entering<'t>, repo: Option<&Repo>) -> (u32, bool) {
        let tracked = match (repo, &e.parent) {
            (Some(repo), _) => repo.tracked.as_ref(),
            (None, None) if self.start.rules.is_none() => self.options.rules.0.repo.tracked.as_ref(),
            (None, _) => None,
        };
        match tracked {
            // Never 0, which stands for none.
            Some(tracked) => {
                let now = crc32fast::hash(&tracked.identity()) | 1;
                (now, e.record.is_none_or(|r| r.index() != now))
            }
            None if e.parent.is_some() => (0, false),
            // Of a directory that was named, nobody asked its repository yet.
            None => (0, self.start.rules.is_some() || e.record.is_none_or(|r| r.index() != 0)),
        }
    }

    /// What the repository whose `.git` lies in a directory contributes; at the root the caller has asked already.
    fn repository(&self, parent: Option<&(Arc<Node<'t>>, u32)>) -> Result<Option<Arc<Repo>>, Halt> {
        let path = self.path_in(parent);
        let top = super::below(self.root, path.as_bstr());
        if let Some(place) = repository::place_of_gitfile(&top.join(".git"))? {
            lock(&self.found_git_dirs).push(place);
        }
        if parent.is_none() && self.start.rules.is_none() {
            return Ok(None);
        }
        let Some(dirs) = GitDirs::of(&top)? else { return Ok(None) };
        let settings = &self.options.rules.0.settings;
        Ok(Some(Arc::new(repository::read_repo(&top, &dirs, settings)?)))
    }
}

/// What stands at a name: what the table says where the watcher heard nothing of it, else what the system says.
pub(super) fn seen(
    node: &Node<'_>,
    old: &Entry<'_>,
    dir: BorrowedFd<'_>,
    name: &CStr,
) -> rustix::io::Result<Seen> {
    match node.unheard(old) {
        Some(stat) => Ok(Seen::Covered(stat)),
        None => handle::stat_at(dir, name),
    }
}

/// True if a rule leaves the path out, whatever else keeps it.
pub(super) fn left_out(decision: Decision) -> bool {
    matches!(decision.verdict, Verdict::Ignore | Verdict::Exclude)
}

fn flag(on: bool, flag: u32) -> u32 {
    if on { flag } else { 0 }
}

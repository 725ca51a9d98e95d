//! The walk: one parallel pass that stats everything, reads what changed and makes directory ids bottom-up.
//!
//! A directory is entered by one thread. If the table proves that nothing but child directories can have changed, that is
//! all there is to it ([`enter`]). Otherwise its names are examined one by one ([`examine`]), large directories in groups
//! by several threads. Each child directory becomes a task. Whoever finishes the last name of a directory concludes it and
//! hands the result to its parent ([`conclude`]), up to the root. Nothing recurses by depth.

mod conclude;
mod enter;
pub(crate) mod examine;
mod fds;
mod group;
pub(crate) mod node;
mod pace;
pub(crate) mod queue;
mod read;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use bstr::{BString, ByteSlice};

use crate::{
    clock::Clock,
    digest::{Digest, digest},
    handle::{self, Names, Trust},
    repository,
    rules::Decision,
    table::{self, Table, quiet::Quiet, record::Record},
    types::{DirIds, Ignored, Options, Outcome, ScanError, Sink, Skip, Stat, Xattrs},
};
use node::{Done, Node};
use queue::{Queue, StopOnPanic, lock};

/// Names of one directory from which it is split among threads.
const GROUP: u32 = 512;

/// Names that begin like this are temporaries of a restore: neither captured nor listed.
const RESERVED: &[u8] = b".backstitch-tmp-";

pub(crate) enum Task<'t> {
    /// Enter a child directory.
    Dir { node: Arc<Node<'t>>, slot: u32, decision: Decision },
    /// Examine a group of names.
    Items { node: Arc<Node<'t>>, from: u32, to: u32 },
    /// Enter where the walk begins.
    Start,
}

/// Why a thread ends early.
pub(crate) enum Halt {
    /// Somebody else said why.
    Stopped,
    Error(ScanError),
}

impl From<ScanError> for Halt {
    fn from(e: ScanError) -> Halt {
        Halt::Error(e)
    }
}

/// Counts of one thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) files: u64,
    pub(crate) dirs: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    pub(crate) read_files: u64,
    pub(crate) read_bytes: u64,
    pub(crate) listed: u64,
    /// Bytes of ignored files that were kept before and are kept now.
    pub(crate) ignored: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.files = self.files.wrapping_add(other.files);
        self.dirs += other.dirs;
        self.links = self.links.wrapping_add(other.links);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.read_files += other.read_files;
        self.read_bytes += other.read_bytes;
        self.listed += other.listed;
        self.ignored += other.ignored;
    }
}

/// What one thread works with.
pub(crate) struct Worker<'t, S: Sink> {
    pub(crate) scratch: S::Scratch,
    tasks: VecDeque<Task<'t>>,
    names: Names,
    buf: Vec<MaybeUninit<u8>>,
    stats: Vec<Stat>,
    skips: Vec<Skip>,
    updates: Vec<(u32, Vec<u8>)>,
    tally: Tally,
    /// Ignored files that would be kept for the first time.
    candidates: Vec<(BString, u64)>,
    /// Entries since progress was last reported.
    quiet: u64,
}

/// Where a pass begins: at the root, or at a directory below it that was named.
#[derive(Clone)]
pub(crate) struct Start<'t> {
    pub(crate) fd: Arc<OwnedFd>,
    /// Path from the root; empty for the root.
    pub(crate) path: BString,
    /// The rules of the parent and the name there, unless it is the root.
    pub(crate) rules: Option<(crate::DirRules, BString)>,
    pub(crate) record: Option<Record<'t>>,
}

/// What all passes of one scan share.
pub(crate) struct Ground<'o, S> {
    pub(crate) root: &'o Path,
    pub(crate) sink: &'o S,
    pub(crate) options: &'o Options<'o>,
    pub(crate) clock: &'o dyn Clock,
    /// What gitfiles point to; never entered.
    pub(crate) git_dirs: &'o HashSet<(u64, u64)>,
    /// Ignored files for which there is no room.
    pub(crate) dropped: &'o HashSet<BString>,
    /// Paths were named: rules about size and kind do not hold for files.
    pub(crate) named: bool,
    /// What a watcher vouches for.
    pub(crate) quiet: Option<&'o Quiet>,
}

/// What one pass over the tree shares.
pub(crate) struct Walk<'t, 'o, S: Sink> {
    pub(crate) sink: &'o S,
    pub(crate) options: &'o Options<'o>,
    pub(crate) clock: &'o dyn Clock,
    named: bool,
    pub(crate) quiet: Option<&'o Quiet>,
    /// A file has another name that it had not: it may have been written to under that, unheard.
    pub(crate) newly_linked: AtomicBool,
    table: Option<&'t table::Inner>,
    start: Start<'t>,
    /// The options that decisions in the table were made under are those of today.
    policy_holds: bool,
    root: &'o Path,
    git_dirs: &'o HashSet<(u64, u64)>,
    /// More of them, found on the way.
    found_git_dirs: Mutex<Vec<repository::Pointed>>,
    dropped: &'o HashSet<BString>,
    queue: Queue<Task<'t>>,
    trusts: RwLock<HashMap<u64, Trust>>,
    root_trust: (u64, Trust),
    fds: fds::Budget<'t>,
    pace: pace::Pace,
    next_id: AtomicU32,
    entries: AtomicU64,
    read_bytes: AtomicU64,
    unbounded: AtomicBool,
    failure: Mutex<Option<ScanError>>,
    /// Directories that were held for quiet and are not as they were.
    lies: Mutex<Vec<BString>>,
    result: Mutex<Option<Done>>,
}

/// What is behind one pass.
pub(crate) struct Pass {
    pub(crate) ids: Option<(DirIds, Stat, Option<Box<Xattrs>>)>,
    pub(crate) outcome: Outcome,
    candidates: Vec<(BString, u64)>,
    ignored: u64,
    found_git_dirs: Vec<repository::Pointed>,
}

/// The options that decisions about ignored things depend on.
pub(crate) fn policy(options: &Options<'_>) -> Digest {
    let ignored = match options.ignored {
        Ignored::None => 0,
        Ignored::Small => 1,
        Ignored::All => 2,
    };
    digest(&[
        &[ignored, options.nested_is_content.into(), options.bare_is_content.into()],
        &options.limits.ignored_file.to_le_bytes(),
    ])
}

/// Walks as often as is needed for a result that does not depend on who came first: once more if what a gitfile points to
/// was entered before the gitfile was seen, once more if the ignored files together are over their budget, and once more,
/// whatever a watcher vouches for, if a file got another name.
pub(crate) fn run<'t, S: Sink>(
    ground: &Ground<'_, S>,
    table: Option<&'t Table>,
    start: &Start<'t>,
) -> Result<Pass, ScanError> {
    let mut git_dirs = ground.git_dirs.clone();
    git_dirs.extend(repository::place_of_gitfile(&ground.root.join(".git"))?.map(|(place, _)| place));
    let mut dropped = HashSet::new();
    let mut quiet = ground.quiet;
    loop {
        let ground = Ground { git_dirs: &git_dirs, dropped: &dropped, quiet, ..*ground };
        let walk = Walk::new(&ground, table.map(|t| &*t.0), start.clone());
        let workers = walk.work(ground.options.threads.max(1));
        let linked = walk.newly_linked.load(Ordering::Relaxed);
        let mut pass = walk.gather(workers)?;
        // What a gitfile points to is most often inside of some `.git`, which nobody enters.
        let skips = &pass.outcome.skips;
        let entered = |(place, target): &repository::Pointed| {
            !git_dirs.contains(place) && repository::is_reached(ground.root, target, skips)
        };
        let entered: Vec<_> =
            pass.found_git_dirs.iter().filter(|found| entered(found)).map(|(place, _)| *place).collect();
        let total: u64 = pass.ignored + pass.candidates.iter().map(|(_, size)| size).sum::<u64>();
        let room = ground.options.limits.ignored_total;
        let over = dropped.is_empty() && total > room;
        if pass.outcome.unbounded || entered.is_empty() && !over && !linked {
            if let Some(update) = &mut pass.outcome.update {
                update.old = table.map(|t| t.0.clone());
            }
            return Ok(pass);
        }
        if linked {
            quiet = None;
        }
        git_dirs.extend(entered);
        if over {
            let mut room = room.saturating_sub(pass.ignored);
            pass.candidates.sort();
            for (path, size) in pass.candidates {
                match room.checked_sub(size) {
                    Some(left) => room = left,
                    None => {
                        dropped.insert(path);
                    }
                }
            }
        }
    }
}

impl<'t, 'o, S: Sink> Walk<'t, 'o, S> {
    pub(crate) fn new(ground: &Ground<'o, S>, table: Option<&'t table::Inner>, start: Start<'t>) -> Self {
        let options = ground.options;
        // A handle that cannot be looked at trusts nothing.
        let dev = match handle::stat_fd(&start.fd) {
            Ok(handle::Node::Covered(stat)) => stat.dev,
            _ => 0,
        };
        Walk {
            sink: ground.sink,
            options,
            clock: ground.clock,
            named: ground.named,
            quiet: ground.quiet,
            newly_linked: AtomicBool::new(false),
            table,
            policy_holds: table.is_some_and(|t| t.state.policy == policy(options)),
            root: ground.root,
            root_trust: (dev, handle::trust_of(&start.fd)),
            start,
            git_dirs: ground.git_dirs,
            found_git_dirs: Mutex::default(),
            dropped: ground.dropped,
            queue: Queue::new(Task::Start),
            trusts: RwLock::default(),
            fds: fds::Budget::new(),
            pace: pace::Pace::default(),
            next_id: AtomicU32::new(table.map_or(1, |t| t.state.next_id)),
            entries: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            unbounded: AtomicBool::new(false),
            failure: Mutex::default(),
            lies: Mutex::default(),
            result: Mutex::default(),
        }
    }

    /// Lets the threads work until the root is done or somebody stops. The others are started once there is work for them.
    fn work(&self, threads: usize) -> Vec<Worker<'t, S>> {
        let finished = Mutex::new(Vec::new());
        self.pace.begin(threads > 1);
        std::thread::scope(|scope| self.work_alone(scope, &finished));
        std::mem::take(&mut *lock(&finished))
    }

    /// Starts more threads, as many as the system gives.
    fn hire<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        finished: &'s Mutex<Vec<Worker<'t, S>>>,
        more: usize,
    ) {
        for _ in 0..more {
            self.queue.expect();
            let started =
                std::thread::Builder::new().spawn_scoped(scope, || self.work_alone(scope, finished));
            if started.is_err() {
                self.queue.give_up();
                return;
            }
        }
    }

    fn work_alone<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        finished: &'s Mutex<Vec<Worker<'t, S>>>,
    ) {
        let _guard = StopOnPanic(&self.queue);
        let mut worker = Worker::new(self.sink.scratch());
        while let Some(task) = self.queue.next(&mut worker.tasks) {
            if let Err(halt) = self.perform(&mut worker, task) {
                if let Halt::Error(e) = halt {
                    lock(&self.failure).get_or_insert(e);
                }
                self.queue.stop();
            }
            let threads = self.options.threads.max(1);
            if self.pace.take_long(|| !worker.tasks.is_empty()) {
                self.hire(scope, finished, threads - 1);
            }
            if self.pace.take_slow() {
                self.hire(scope, finished, pace::MANY.saturating_sub(threads));
            }
        }
        lock(finished).push(worker);
    }

    fn gather(self, workers: Vec<Worker<'t, S>>) -> Result<Pass, ScanError> {
        if let Some(e) = lock(&self.failure).take() {
            return Err(e);
        }
        let unbounded = self.unbounded.load(Ordering::Relaxed);
        let mut tally = Tally::default();
        let (mut skips, mut changed, mut candidates) = (Vec::new(), Vec::new(), Vec::new());
        for worker in workers {
            tally.add(&worker.tally);
            skips.extend(worker.skips);
            changed.extend(worker.updates);
            candidates.extend(worker.candidates);
        }
        skips.sort_by(|a, b| a.path.cmp(&b.path));
        let ids = match lock(&self.result).take() {
            Some(Done::Dir { stat, ids, xattrs, .. }) => Some((ids, stat, xattrs)),
            Some(Done::Skip { detail, .. }) => {
                let source = std::io::Error::other(detail.unwrap_or_else(|| "cannot be scanned".into()));
                return Err(ScanError::Io { path: below(self.root, self.start.path.as_bstr()), source });
            }
            _ if unbounded => None,
            // Every thread ended without a result: only an interrupt does that without saying so.
            _ => return Err(ScanError::Interrupted),
        };
        (self.options.progress)(
            self.entries.load(Ordering::Relaxed),
            self.read_bytes.load(Ordering::Relaxed),
        );
        let policy = policy(self.options);
        let state =
            table::State { policy, next_id: self.next_id.load(Ordering::Relaxed), note: BString::default() };
        // What was looked up one by one because no row vouched for it is vouched for by the next.
        let unvouched = self.table.is_some() && !self.options.table_vouched && !self.named;
        let anew = !self.policy_holds || unvouched || !changed.is_empty() || self.options.note_anew;
        let update = (anew && ids.is_some()).then_some(table::TableUpdate { old: None, changed, state });
        let outcome = Outcome {
            root: ids.as_ref().map(|(ids, ..)| *ids),
            root_stat: ids.as_ref().map(|(_, stat, _)| *stat),
            skips,
            files: tally.files,
            dirs: tally.dirs,
            links: tally.links,
            bytes: tally.bytes,
            read_files: tally.read_files,
            read_bytes: tally.read_bytes,
            listed_dirs: tally.listed,
            unbounded,
            update,
            lies: std::mem::take(&mut *lock(&self.lies)),
        };
        let found_git_dirs = std::mem::take(&mut *lock(&self.found_git_dirs));
        Ok(Pass { ids, outcome, candidates, ignored: tally.ignored, found_git_dirs })
    }

    fn perform(&self, w: &mut Worker<'t, S>, task: Task<'t>) -> Result<(), Halt> {
        self.check()?;
        if w.quiet >= 1024 {
            w.quiet = 0;
            (self.options.progress)(
                self.entries.load(Ordering::Relaxed),
                self.read_bytes.load(Ordering::Relaxed),
            );
        }
        match task {
            Task::Start => self.enter_root(w),
            Task::Dir { node, slot, decision } => self.enter_child(w, node, slot, decision),
            Task::Items { node, from, to } => self.examine_group(w, node, from, to, true),
        }
    }

    /// Fails if the walk is to end.
    fn check(&self) -> Result<(), Halt> {
        if self.options.interrupt.load(Ordering::Relaxed) {
            return Err(Halt::Error(ScanError::Interrupted));
        }
        if self.queue.is_stopped() {
            return Err(Halt::Stopped);
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Counts entries; more than the limit ends the walk.
    fn count(&self, w: &mut Worker<'t, S>, entries: u64) -> Result<(), Halt> {
        w.quiet += entries;
        let before = self.entries.fetch_add(entries, Ordering::Relaxed);
        if before + entries > self.options.limits.entries {
            self.unbounded.store(true, Ordering::Relaxed);
            self.queue.stop();
            return Err(Halt::Stopped);
        }
        Ok(())
    }

    fn trust(&self, dev: u64, fd: impl AsFd) -> Trust {
        if dev == self.root_trust.0 {
            return self.root_trust.1;
        }
        if let Some(trust) = self.trusts.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&dev) {
            return *trust;
        }
        let trust = handle::trust_of(fd);
        self.trusts.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(dev, trust);
        trust
    }

    pub(crate) fn path(&self, node: &Node<'t>) -> BString {
        node.path(self.start.path.as_bstr())
    }

    pub(crate) fn path_of(&self, node: &Node<'t>, slot: u32) -> BString {
        handle::join(&self.path(node), node.name(slot).to_bytes())
    }

    /// Lists a skip under its path.
    fn list_skip(&self, w: &mut Worker<'t, S>, node: &Node<'t>, slot: u32, done: &Done) {
        if let Done::Skip { reason, is_dir, size, detail, .. } = done {
            w.skips.push(Skip {
                path: self.path_of(node, slot),
                reason: *reason,
                bytes: *size,
                detail: detail.clone(),
                is_dir: *is_dir,
            });
        }
    }
}

impl<S: Sink> Worker<'_, S> {
    pub(crate) fn new(scratch: S::Scratch) -> Self {
        Worker {
            scratch,
            tasks: VecDeque::new(),
            names: Names::default(),
            buf: vec![MaybeUninit::uninit(); 1 << 16],
            stats: Vec::new(),
            skips: Vec::new(),
            updates: Vec::new(),
            tally: Tally::default(),
            candidates: Vec::new(),
            quiet: 0,
        }
    }
}

/// True for what belongs to a restore in flight.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(RESERVED)
}

/// The root's path joined with a path below it.
pub(crate) fn below(root: &Path, path: &bstr::BStr) -> std::path::PathBuf {
    if path.is_empty() {
        return root.to_owned();
    }
    use std::os::unix::ffi::OsStrExt;
    root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

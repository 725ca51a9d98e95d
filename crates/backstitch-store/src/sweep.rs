//! The short moments in which files go.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    Error, Lock, Odb, Oid, Store, adopt, files, hash,
    inventory::{BESIDE, Inventory},
    layout::Step,
    loose,
    mark::Marks,
};

/// So long files are removed before captures are let through again.
const SLICE: Duration = Duration::from_millis(4);
/// So long captures that are about to begin wait for those that run.
const HUSH: Duration = Duration::from_millis(30);
/// And so long they are then let through.
const PAUSE: Duration = Duration::from_millis(20);
/// More than this that is new is looked at beside captures first.
const FEW: usize = 500;
/// Refs below this may need what is lost.
const DAMAGED: &str = "refs/backstitch/damaged/";

/// What became of the files of a step.
#[derive(Default)]
pub(crate) struct Gone {
    /// Allocated bytes of what was removed.
    pub(crate) bytes: u64,
    pub(crate) packs: u64,
    pub(crate) loose: u64,
    pub(crate) end: End,
}

/// Why no more was removed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// It was all.
    #[default]
    Done,
    /// No moment without captures was found.
    Busy,
    /// A capture needs what was about to go.
    Revived,
}

pub(crate) struct Sweeper<'a> {
    store: &'a Store,
    odb: &'a Odb,
    inventory: &'a Inventory,
    refs: HashMap<String, Oid>,
    /// Packs that hold nothing that is new.
    packs: HashSet<PathBuf>,
    loose: HashSet<Oid>,
}

impl<'a> Sweeper<'a> {
    pub(crate) fn new(store: &'a Store, odb: &'a Odb, inventory: &'a Inventory) -> Sweeper<'a> {
        Sweeper {
            store,
            odb,
            inventory,
            refs: HashMap::new(),
            packs: inventory.packs.iter().map(|f| f.pack.path.clone()).collect(),
            loose: HashSet::new(),
        }
    }

    /// Marks what refs reach that are new or have moved since the last call, but for those in `let_go`. Nothing may be
    /// in doubt.
    pub(crate) fn mark_refs(&mut self, marks: &mut Marks<'_>, let_go: &[(String, Oid)]) -> Result<(), Error> {
        let refs = self.new_refs(let_go)?;
        self.mark(marks, refs)
    }

    fn new_refs(&self, let_go: &[(String, Oid)]) -> Result<Vec<(String, Oid)>, Error> {
        let (refs, bad) = self.store.refs().list_all("refs/")?;
        if let Some((_, e)) = bad.into_iter().next() {
            return Err(e);
        }
        let let_go: HashSet<(&str, &Oid)> = let_go.iter().map(|(name, oid)| (name.as_str(), oid)).collect();
        let new = |(name, oid): &(String, Oid)| {
            self.refs.get(name) != Some(oid) && !let_go.contains(&(name.as_str(), oid))
        };
        Ok(refs.into_iter().filter(new).collect())
    }

    fn mark(&mut self, marks: &mut Marks<'_>, refs: Vec<(String, Oid)>) -> Result<(), Error> {
        for (name, oid) in refs {
            marks.root(oid, name.starts_with(DAMAGED)).map_err(|e| match e {
                Error::Interrupted => e,
                e => Error::Damaged {
                    path: self.store.git_dir(),
                    what: format!("{name} needs an object that cannot be read ({e}); nothing is removed"),
                },
            })?;
            self.refs.insert(name, oid);
        }
        Ok(())
    }

    /// Marks what has come since the inventory: refs, and objects whether a ref reaches them or not. False if there is
    /// more of it than `limit`.
    fn catch_up(&mut self, marks: &mut Marks<'_>, limit: usize) -> Result<bool, Error> {
        let refs = self.new_refs(&[])?;
        self.odb.refresh()?;
        let set = self.odb.packs()?;
        let packs: Vec<_> = set.packs.iter().filter(|p| !self.packs.contains(&p.path)).cloned().collect();
        let loose: Vec<Oid> = loose::list(self.odb.objects_dir())?
            .into_iter()
            .map(|(oid, _)| oid)
            .filter(|oid| !self.loose.contains(oid) && self.inventory.find(&hash::raw(oid)).is_none())
            .collect();
        // Of what came from elsewhere only what refs reach counts.
        let (seeds, packs): (Vec<_>, Vec<_>) = packs.into_iter().partition(|p| adopt::is_seed(&p.path));
        let objects: usize = packs.iter().map(|p| p.idx.len() as usize).sum();
        if refs.len() + loose.len() + objects > limit {
            return Ok(false);
        }
        self.mark(marks, refs)?;
        for pack in packs {
            let entries = pack.idx.entries().map_err(|what| Error::damaged(&pack.path, what))?;
            for e in entries {
                marks.root(Oid::from(e.oid), true)?;
            }
            self.packs.insert(pack.path.clone());
        }
        self.packs.extend(seeds.iter().map(|p| p.path.clone()));
        for oid in loose {
            marks.root(oid, true)?;
            self.loose.insert(oid);
        }
        Ok(true)
    }

    /// Calls `work` in a moment without captures and operations, with everything marked that came before it. What such
    /// a moment was not found for is nothing.
    pub(crate) fn alone<T: Default>(
        &mut self,
        marks: &mut Marks<'_>,
        wait: Duration,
        work: impl FnOnce(&Marks<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let end = Instant::now() + wait;
        loop {
            self.catch_up(marks, usize::MAX)?;
            let left = end.saturating_duration_since(Instant::now());
            let Some(_alone) = self.store.moment(left)? else { return Ok(T::default()) };
            if self.catch_up(marks, FEW)? {
                return work(marks);
            }
        }
    }

    /// Removes the files of `step`, whose objects are in `new` as far as they stay. With a guard (marks, and what was
    /// decided to stay) nothing is removed that a capture has come to need meanwhile.
    pub(crate) fn retire(
        &mut self,
        step: &Step,
        new: Option<&Path>,
        mut guard: Option<(&mut Marks<'_>, &[bool])>,
        wait: Duration,
    ) -> Result<Gone, Error> {
        self.packs.extend(new.map(Path::to_owned));
        let inventory = self.inventory;
        let mut packs = step.packs.iter().map(|p| &inventory.packs[*p]).peekable();
        let mut loose = step.loose.iter().map(|n| &inventory.loose[*n]).peekable();
        let mut gone = Gone::default();
        let mut dirs = HashSet::new();
        let end = Instant::now() + wait;
        while packs.peek().is_some() || loose.peek().is_some() {
            if let Some((marks, _)) = &mut guard {
                self.catch_up(marks, usize::MAX)?;
            }
            let Some(alone) = self.store.moment(end.saturating_duration_since(Instant::now()))? else {
                gone.end = End::Busy;
                break;
            };
            if let Some((marks, keep)) = &mut guard {
                if !self.catch_up(marks, FEW)? {
                    continue;
                }
                if marks.fresh.drain(..).any(|n| !keep[n as usize]) {
                    gone.end = End::Revived;
                    break;
                }
            }
            // However slow it goes, something does.
            let start = Instant::now();
            let mut some = false;
            let mut more = || !std::mem::replace(&mut some, true) || start.elapsed() < SLICE;
            let mut doomed = Vec::new();
            while packs.peek().is_some()
                && more()
                && let Some(file) = packs.next()
            {
                // Written anew under its own name: the old file went with that.
                if new != Some(file.pack.path.as_path()) {
                    doomed.extend(self.hide(&file.pack.path)?);
                    self.packs.remove(&file.pack.path);
                }
                gone.bytes += file.disk;
                gone.packs += 1;
            }
            while packs.peek().is_none()
                && loose.peek().is_some()
                && more()
                && let Some(file) = loose.next()
            {
                remove(&file.path)?;
                dirs.extend(file.path.parent());
                gone.bytes += file.disk;
                gone.loose += 1;
            }
            if packs.peek().is_none() && loose.peek().is_none() {
                // Who writes a loose object makes its directory, while holding off such moments.
                gone.bytes += dirs.iter().filter(|d| fs::remove_dir(d).is_ok()).count() as u64 * 4096;
            }
            drop(alone);
            // The blocks of a large file take a while to be given back.
            doomed.iter().try_for_each(|p| remove(p))?;
        }
        let pack_dir = self.odb.objects_dir().join("pack");
        files::sync_dir(&pack_dir, self.store.durability())?;
        self.odb.refresh()?;
        Ok(gone)
    }

    /// Takes a pack out of sight. What is left to be removed is returned; if this process dies it is a stale temporary.
    fn hide(&self, pack: &Path) -> Result<Option<PathBuf>, Error> {
        let dir = self.odb.objects_dir().join("pack");
        // It may name the pack, and stock git would believe it.
        remove(&dir.join("multi-pack-index"))?;
        for x in BESIDE {
            remove(&pack.with_extension(x))?;
        }
        let stem = pack.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let to = dir.join(format!("{}gone_{}_{stem}", files::TEMP_PREFIX, std::process::id()));
        match fs::rename(pack, &to) {
            Ok(()) => Ok(Some(to)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(pack)(e)),
        }
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path)(e)),
        _ => Ok(()),
    }
}

impl Store {
    /// The lock `store` alone, for some milliseconds. Captures that begin wait for it a little, so that they cannot keep
    /// it away for ever by overlapping. None if none was found within `wait`.
    fn moment(&self, wait: Duration) -> Result<Option<Lock>, Error> {
        let end = Instant::now() + wait;
        loop {
            {
                let _gate = match self.lock_exclusive(crate::GATE, HUSH) {
                    Ok(gate) => Some(gate),
                    Err(Error::Busy { .. }) => None,
                    Err(e) => return Err(e),
                };
                match self.lock_exclusive("store", HUSH) {
                    Ok(lock) => return Ok(Some(lock)),
                    Err(Error::Busy { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Removes packs without an index and indexes without a pack, which no ref was found to need, unless somebody is
    /// about to write the other half.
    pub(crate) fn remove_orphans(&self, orphans: &[PathBuf]) -> Result<u64, Error> {
        use std::os::unix::fs::MetadataExt;
        let Ok(_alone) = self.lock_exclusive(crate::ALIVE, Duration::ZERO) else { return Ok(0) };
        let mut bytes = 0;
        let other = |p: &Path| {
            p.with_extension(if p.extension().is_some_and(|e| e == "idx") { "pack" } else { "idx" })
        };
        for path in orphans.iter().filter(|p| !other(p).exists()) {
            let blocks = fs::metadata(path).map_or(0, |m| m.blocks());
            remove(path)?;
            bytes += blocks * 512;
        }
        Ok(bytes)
    }

    /// Deletes everything that is only a copy of what objects and refs say.
    pub(crate) fn drop_caches(&self) -> Result<(), Error> {
        let state = self.state_dir();
        for name in files::names(&state)? {
            let path = state.join(name);
            if path.is_file() {
                remove(&path)?;
            }
        }
        let objects = self.git_dir().join("objects");
        remove(&objects.join("pack/multi-pack-index"))?;
        remove(&objects.join("info/commit-graph"))
    }
}

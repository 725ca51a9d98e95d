//! What is watched, and where something happened.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{CStr, OsStr},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use backstitch_scan::{Heard, Noise, Table};
use bstr::{BStr, BString, ByteSlice};
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use super::wire::Token;
use crate::{paths, record};

/// Everything that changes a directory or what stands in it. A write through a memory map tells nothing before it is
/// closed.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// More directories than this with noise: from then on anything may have happened.
const NOISY_MAX: usize = 50_000;

/// More names than this in one directory: anything in it may have changed.
const NAMES_MAX: usize = 64;

/// What happened in one directory, each with the epoch in which it last did.
#[derive(Default)]
struct Place {
    last: u64,
    /// Something that names nothing, or too much.
    all: u64,
    names: BTreeMap<BString, u64>,
    /// Anything below may be other than it was: holds until everybody has looked.
    below: bool,
}

impl Place {
    fn what(&self, since: u64) -> Heard {
        if self.below {
            return Heard::Below;
        }
        if self.all > since {
            return Heard::All;
        }
        Heard::Names(self.names.iter().filter(|(_, e)| **e > since).map(|(n, _)| n.clone()).collect())
    }
}

/// Why watching cannot go on.
#[derive(Debug)]
pub(super) enum End {
    /// The workspace or its store is not what it was.
    Gone,
    /// The system gives no more watches, or no queue.
    Limit(io::Error),
}

/// What one event says.
enum Told<'a> {
    Name(&'a BStr),
    All,
    Below,
}

/// The noise of one life.
pub(super) struct Ears {
    inotify: OwnedFd,
    root: PathBuf,
    state: PathBuf,
    state_watch: i32,
    /// Paths by watch: one directory may stand at several places.
    paths: HashMap<i32, Vec<BString>>,
    watches: BTreeMap<BString, i32>,
    /// Directories of the table that are not watched, with what is below them.
    deaf: BTreeSet<BString>,
    noisy: BTreeMap<BString, Place>,
    instance: String,
    epoch: u64,
    /// The table was written since it was last read.
    table_changed: bool,
    /// The cookie came by.
    cookie: bool,
    cookies: u64,
}

impl Ears {
    /// Begins to watch all directories of the table; none if there is no table yet.
    pub fn open(root: &Path, state: &Path) -> Result<Ears, End> {
        let limit = |e: Errno| End::Limit(e.into());
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(limit)?;
        let mask = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let state_watch = inotify::add_watch(&inotify, state, mask).map_err(|e| match e {
            Errno::NOENT | Errno::NOTDIR => End::Gone,
            e => limit(e),
        })?;
        let mut ears = Ears {
            inotify,
            root: root.to_owned(),
            state: state.to_owned(),
            state_watch,
            paths: HashMap::new(),
            watches: BTreeMap::new(),
            deaf: BTreeSet::new(),
            noisy: BTreeMap::new(),
            instance: record::new_id(record::now_ms()),
            epoch: 1,
            table_changed: false,
            cookie: false,
            cookies: 0,
        };
        ears.follow_table()?;
        Ok(ears)
    }

    pub fn queue(&self) -> &OwnedFd {
        &self.inotify
    }

    pub fn watched(&self) -> usize {
        self.watches.len()
    }

    pub fn noisy(&self) -> usize {
        self.noisy.len()
    }

    /// Everything that happened before this call is taken in when it returns; `false` where the cookie did not come by.
    pub fn catch_up(&mut self) -> Result<bool, End> {
        self.cookies += 1;
        let name = self.state.join(format!("watch.cookie-{}", std::process::id()));
        self.cookie = false;
        // The content is of no use: what comes by is its name.
        if std::fs::write(&name, b"").is_err() {
            return self.drain().map(|()| false);
        }
        let _ = std::fs::remove_file(&name);
        // Events are queued before the call that causes them returns.
        self.drain()?;
        self.follow()?;
        Ok(self.cookie)
    }

    /// Watches what the table covers now, if it was written since. Goes through all of it: best done while nobody waits.
    pub fn follow(&mut self) -> Result<(), End> {
        if self.table_changed { self.follow_table() } else { Ok(()) }
    }

    /// Where something happened since, and the moment until which that holds.
    pub fn since(&mut self, since: Option<&Token>) -> (Token, Option<Vec<Noise>>) {
        let token = Token { instance: self.instance.clone(), epoch: self.epoch };
        self.epoch += 1;
        let known = since.filter(|t| t.instance == self.instance && t.epoch < token.epoch);
        let noise = known.filter(|_| self.noisy.len() + self.deaf.len() <= NOISY_MAX).map(|since| {
            let noisy = self.noisy.iter().filter(|(_, place)| place.last > since.epoch);
            let noisy =
                noisy.map(|(path, place)| Noise { path: path.clone(), what: place.what(since.epoch) });
            noisy
                .chain(self.deaf.iter().map(|path| Noise { path: path.clone(), what: Heard::Below }))
                .collect()
        });
        (token, noise)
    }

    fn note(&mut self, path: &BStr, what: Told<'_>) {
        let place = self.noisy.entry(path.to_owned()).or_default();
        place.last = self.epoch;
        match what {
            Told::Name(name) if place.names.len() < NAMES_MAX || place.names.contains_key(name) => {
                place.names.insert(name.to_owned(), self.epoch);
            }
            Told::Name(_) | Told::All => {
                place.all = self.epoch;
                place.names.clear();
            }
            Told::Below => place.below = true,
        }
    }

    /// Takes in what waits in the queue.
    pub fn drain(&mut self) -> Result<(), End> {
        let mut buf = [const { MaybeUninit::uninit() }; 1 << 16];
        let mut events: Vec<(i32, ReadFlags, Option<BString>)> = Vec::new();
        loop {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buf);
            loop {
                match reader.next() {
                    Ok(e) => {
                        let name = e.file_name().map(CStr::to_bytes).filter(|n| !n.is_empty());
                        events.push((e.wd(), e.events(), name.map(BString::from)));
                        if reader.is_buffer_empty() {
                            break;
                        }
                    }
                    Err(Errno::AGAIN) => {
                        return events
                            .into_iter()
                            .try_for_each(|(w, f, n)| self.take(w, f, n.as_ref().map(|n| n.as_bstr())));
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(End::Limit(e.into())),
                }
            }
            for (watch, flags, name) in events.drain(..) {
                self.take(watch, flags, name.as_ref().map(|n| n.as_bstr()))?;
            }
        }
    }

    fn take(&mut self, watch: i32, flags: ReadFlags, name: Option<&BStr>) -> Result<(), End> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.begin_anew();
        }
        let own = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        if watch == self.state_watch {
            if flags.intersects(own) {
                return Err(End::Gone);
            }
            let name = name.unwrap_or_default();
            self.cookie |= name.starts_with(b"watch.cookie-");
            self.table_changed |= name.starts_with(b"stat.") && name != "stat.lock";
            return Ok(());
        }
        let Some(places) = self.paths.get(&watch).cloned() else { return Ok(()) };
        for dir in places {
            if flags.intersects(own) {
                if dir.is_empty() {
                    return Err(End::Gone);
                }
                self.forget(dir.as_bstr());
                self.note(dir.as_bstr(), Told::Below);
                continue;
            }
            self.note(dir.as_bstr(), name.map_or(Told::All, Told::Name));
            let moves = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if let Some(name) = name.filter(|_| flags.contains(ReadFlags::ISDIR) && flags.intersects(moves)) {
                // Another directory stands at this path, or none.
                let child = paths::join(dir.as_bstr(), name);
                self.forget(child.as_bstr());
                self.note(child.as_bstr(), Told::Below);
            }
        }
        Ok(())
    }

    /// No path at or below this one is watched any longer under this name; what the table has of it is deaf.
    fn forget(&mut self, path: &BStr) {
        let from = self.watches.range(path.to_owned()..).map(|(p, _)| p);
        let below: Vec<BString> = from
            .take_while(|p| p.starts_with(path))
            .filter(|p| paths::is_under(p.as_bstr(), path))
            .cloned()
            .collect();
        for p in below {
            if let Some(watch) = self.watches.remove(&p) {
                let rest = self.paths.get_mut(&watch);
                if rest.is_some_and(|all| {
                    all.retain(|q| *q != p);
                    all.is_empty()
                }) {
                    self.paths.remove(&watch);
                    // Its directory may be gone already.
                    let _ = inotify::remove_watch(&self.inotify, watch);
                }
            }
            self.deaf.insert(p);
        }
    }

    /// Events were lost, or the system changed under us: another life, of which nobody has a token.
    pub fn begin_anew(&mut self) -> Result<(), End> {
        *self = Ears::open(&self.root, &self.state)?;
        Ok(())
    }

    /// Watches what the table covers, and no more. What is watched from now on counts as noisy once.
    fn follow_table(&mut self) -> Result<(), End> {
        self.table_changed = false;
        let Some(table) = Table::open(&self.state) else { return Ok(()) };
        let wanted: BTreeSet<BString> = table.directories().into_iter().collect();
        let left: Vec<BString> = self.watches.keys().filter(|p| !wanted.contains(*p)).cloned().collect();
        for path in left {
            self.forget(path.as_bstr());
            self.note(path.as_bstr(), Told::Below);
        }
        self.deaf.clear();
        for path in wanted {
            if self.watches.contains_key(&path) {
                continue;
            }
            let full = self.root.join(OsStr::from_bytes(&path));
            match inotify::add_watch(&self.inotify, &full, MASK) {
                Ok(watch) => {
                    self.paths.entry(watch).or_default().push(path.clone());
                    self.watches.insert(path.clone(), watch);
                    self.note(path.as_bstr(), Told::All);
                }
                Err(e @ (Errno::NOSPC | Errno::NOMEM)) => return Err(End::Limit(e.into())),
                Err(_) => {
                    self.deaf.insert(path);
                }
            }
        }
        // Where all have looked long ago there is no news.
        if self.noisy.len() > NOISY_MAX {
            self.instance = record::new_id(record::now_ms());
            self.noisy.clear();
        }
        Ok(())
    }
}

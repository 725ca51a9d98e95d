//! The sink of a scan: contents, trees and meta go into one pack in the making.

use std::{
    fs::File,
    io::{self, Read},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use backstitch_scan::{ChildId, Dir, DirIds, Kind, SeedPlace, Sink, SinkError, Stat};
use backstitch_store::{Oid, Scratch, Writer};
use bstr::{BStr, BString};

use crate::{
    meta, paths, place,
    seed::Seeding,
    tree::{self, DirRef, Entry},
};

/// Files up to this size are read whole into a thread's buffer; above, they are streamed.
const WHOLE: u64 = 8 << 20;

/// Feeds a [`Writer`].
pub struct StoreSink<'a> {
    /// The pack in the making.
    pub writer: &'a Writer,
    /// The owner that needs no meta line.
    pub owner: (u32, u32),
    /// New content that this capture may add.
    pub room: &'a Room,
    /// Looked at inside huge files; the scan looks at it between files.
    pub interrupt: &'a AtomicBool,
    /// Notes what changed while it was looked at.
    pub late: Option<&'a Late>,
    /// What need not be read.
    pub(crate) seed: Option<&'a Seeding<'a>>,
}

/// What changed since a moment, as the capture saw it: a row that is filled while tools run must not call this "before".
#[derive(Debug)]
pub struct Late {
    since_ns: i128,
    found: Mutex<Vec<Changed>>,
}

/// One path that changed.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Relative to the root.
    pub path: BString,
    /// When, in nanoseconds since 1970.
    pub ctime_ns: i128,
    /// A directory: something came, went, or its own attributes changed.
    pub is_dir: bool,
}

impl Late {
    /// Of a clock reading in nanoseconds since 1970.
    pub fn since(since_ns: i128) -> Late {
        Late { since_ns, found: Mutex::new(Vec::new()) }
    }

    /// What was found.
    pub fn into_found(self) -> Vec<Changed> {
        self.found.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn note(&self, dir: &Dir<'_>) {
        let own = (dir.stat.ctime_ns >= self.since_ns).then(|| Changed {
            path: dir.path.to_owned(),
            ctime_ns: dir.stat.ctime_ns,
            is_dir: true,
        });
        // A directory notes itself when it is done.
        let children = dir.children.iter().filter(|c| c.stat.kind != Kind::Dir);
        let late = children.filter(|c| c.stat.ctime_ns >= self.since_ns).map(|c| Changed {
            path: paths::join(dir.path, c.name),
            ctime_ns: c.stat.ctime_ns,
            is_dir: false,
        });
        self.found.lock().unwrap_or_else(|e| e.into_inner()).extend(own.into_iter().chain(late));
    }
}

/// What may still be added.
#[derive(Debug)]
pub struct Room {
    limit: u64,
    used: AtomicU64,
    /// What does not fit is hashed all the same.
    hashing: bool,
    /// Something was only hashed.
    passed: AtomicBool,
}

impl Room {
    /// At most this many bytes; what does not fit is left out.
    pub fn of(limit: u64) -> Room {
        Room { limit, used: AtomicU64::new(0), hashing: false, passed: AtomicBool::new(false) }
    }

    /// At most this many bytes; what does not fit is looked at, and its content is not kept.
    pub fn then_hashing(limit: u64) -> Room {
        Room { hashing: true, ..Room::of(limit) }
    }

    /// As much as there is.
    pub fn unlimited() -> Room {
        Room::of(u64::MAX)
    }

    /// Trees were made of contents that are not kept: they are good for a plan, not for a row.
    pub fn was_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }

    /// New content is kept, whatever there is of it.
    pub(crate) fn keeps_all(&self) -> bool {
        !self.hashing
    }

    /// False: only to be hashed.
    fn admits(&self, size: u64) -> Result<bool, SinkError> {
        if self.used.load(Ordering::Relaxed).saturating_add(size) <= self.limit {
            return Ok(true);
        }
        if self.hashing {
            self.passed.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let text = "the limit of one checkpoint is reached";
        Err(SinkError::Read(io::Error::new(io::ErrorKind::QuotaExceeded, text)))
    }

    fn note(&self, size: u64, new: bool) {
        if new {
            self.used.fetch_add(size, Ordering::Relaxed);
        }
    }
}

/// Per thread.
pub struct Buffers {
    scratch: Scratch,
    bytes: Vec<u8>,
    place: SeedPlace,
}

fn fatal(e: backstitch_store::Error) -> SinkError {
    SinkError::Fatal(Box::new(e))
}

/// Remembers whether reading (not storing) failed.
struct Watched<'a> {
    interrupt: &'a AtomicBool,
    file: &'a mut File,
    failed: Option<io::Error>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.interrupt.load(Ordering::Relaxed) {
            self.failed = Some(io::Error::other("interrupted"));
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buf).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.failed = Some(io::Error::new(e.kind(), e.to_string()));
            }
        })
    }
}

impl Sink for StoreSink<'_> {
    type Scratch = Buffers;

    fn scratch(&self) -> Buffers {
        Buffers { scratch: self.writer.scratch(), bytes: Vec::new(), place: SeedPlace::default() }
    }

    fn file(&self, s: &mut Buffers, _path: &BStr, file: &mut File, stat: &Stat) -> Result<Oid, SinkError> {
        if !self.room.admits(stat.size)? {
            let mut watched = Watched { interrupt: self.interrupt, file, failed: None };
            return place::hash_file(&mut watched, stat.size).map_err(SinkError::Read);
        }
        if stat.size <= WHOLE {
            let size = stat.size as usize;
            s.bytes.resize(size, 0);
            file.read_exact(&mut s.bytes).map_err(SinkError::Read)?;
            let (oid, new) = self.writer.blob(&mut s.scratch, &s.bytes).map_err(fatal)?;
            self.room.note(stat.size, new);
            return Ok(oid);
        }
        let mut watched = Watched { interrupt: self.interrupt, file, failed: None };
        match self.writer.blob_from(&mut s.scratch, &mut watched, stat.size) {
            Ok((oid, new)) => {
                self.room.note(stat.size, new);
                Ok(oid)
            }
            Err(e) => Err(match watched.failed {
                Some(e) => SinkError::Read(e),
                None => match e {
                    backstitch_store::Error::Io { source, .. }
                        if source.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        SinkError::Read(source)
                    }
                    e => fatal(e),
                },
            }),
        }
    }

    fn known(&self, s: &mut Buffers, path: &BStr, stat: &Stat, granularity_ns: i128) -> Option<Oid> {
        self.seed?.known(self.writer, (&mut s.scratch, &mut s.place), path, stat, granularity_ns)
    }

    fn link(&self, s: &mut Buffers, _path: &BStr, target: &[u8]) -> Result<Oid, SinkError> {
        Ok(self.writer.blob(&mut s.scratch, target).map_err(fatal)?.0)
    }

    fn dir(&self, s: &mut Buffers, dir: &Dir<'_>) -> Result<DirIds, SinkError> {
        if let Some(late) = self.late {
            late.note(dir);
        }
        let own = tree::leaf(dir.stat, self.null(), dir.xattrs, self.owner);
        let children = dir.children.iter().map(|c| {
            let (oid, sub) = match c.id {
                ChildId::Leaf(oid) => (oid, DirRef::default()),
                ChildId::Dir(ids) => (ids.tree, DirRef { tree: Some(ids.tree), meta: ids.meta }),
            };
            let (node, attrs) = tree::leaf(c.stat, oid, c.xattrs, self.owner);
            // A directory's own line stands in its own blob.
            let attrs = if c.stat.kind == Kind::Dir { meta::Attrs::default() } else { attrs };
            Entry { name: c.name.to_owned(), node, attrs, dir: sub }
        });
        let ids = tree::write_dir(self.writer, &mut s.scratch, own, children)
            .map_err(|e| SinkError::Fatal(Box::new(e)))?;
        match ids.tree {
            Some(t) => Ok(DirIds { tree: t, meta: ids.meta }),
            None => Err(SinkError::Fatal("a directory without a tree".into())),
        }
    }

    fn has(&self, id: &Oid) -> bool {
        self.writer.odb().contains(id)
    }
}

impl StoreSink<'_> {
    fn null(&self) -> Oid {
        Oid::null(gix_hash::Kind::Sha1)
    }
}

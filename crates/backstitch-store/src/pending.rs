//! What a writer has taken and not finished: buffers, the growing pack, and reading both back.

use std::{
    collections::{HashMap, hash_map},
    fmt,
    fs::File,
    hash::{BuildHasherDefault, Hasher},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    Durability, Error, Oid,
    deflate::Deflater,
    files::Temp,
    hash::{self, OID_LEN},
    idx::IdxEntry,
    inflate::Inflater,
    loose::{self, Collect},
    object::Kind,
    pack::{self, Entry},
};

/// A buffer is appended to the pack when it has this many bytes.
pub(crate) const FLUSH: usize = 1 << 20;
/// The first room of a buffer.
const FIRST_ROOM: usize = 16 << 10;
/// Buffers that a large object made larger than this are given back.
pub(crate) const KEEP: usize = 4 << 20;
const SHARDS: usize = 64;

/// What the writer, its scratches and its reading handles share.
pub(crate) struct Pending {
    pub(crate) objects: PathBuf,
    pub(crate) seen: Vec<Mutex<OidMap<Seen>>>,
    pub(crate) buffers: Mutex<Vec<Arc<Mutex<Buffer>>>>,
    pub(crate) tail: Mutex<Tail>,
    /// Commits wait in memory: one alone becomes a loose object.
    pub(crate) commits: Mutex<Vec<(Oid, Vec<u8>)>>,
    pub(crate) big: Mutex<Vec<Big>>,
    /// Trees as they were given, since most are read again to tell what changed.
    pub(crate) trees: Mutex<Trees>,
    /// A write failed: nothing more is accepted.
    pub(crate) failed: AtomicBool,
    /// Finished or dropped: reading handles that live on look into the store only.
    pub(crate) closed: AtomicBool,
    pub(crate) durability: Durability,
    pub(crate) early: Mutex<Early>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// Some of the trees, up to [`TREES_KEPT`].
#[derive(Default)]
pub(crate) struct Trees {
    bytes: usize,
    all: OidMap<Box<[u8]>>,
}

/// Bytes of trees that are kept in memory beside what is written of them.
const TREES_KEPT: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Big {
    pub(crate) oid: Oid,
    pub(crate) size: u64,
    pub(crate) stored: u64,
    pub(crate) temp: Temp,
}

/// Entries that are not in the file yet; offsets count from the buffer's start.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) used: usize,
    pub(crate) entries: Vec<IdxEntry>,
}

/// The end of the new pack.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) temp: Option<Temp>,
    pub(crate) file: Option<Arc<File>>,
    pub(crate) end: u64,
    pub(crate) entries: Vec<IdxEntry>,
    /// For reading back: where the first `located` entries are.
    pub(crate) offsets: OidMap<u64>,
    pub(crate) located: usize,
}

/// A sync that runs beside the work.
#[derive(Default)]
pub(crate) struct Early {
    at: u64,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Bytes between two early syncs.
const WRITE_BACK: u64 = 24 << 20;

pub(crate) type OidMap<T> = HashMap<[u8; OID_LEN], T, BuildHasherDefault<OidHasher>>;

/// Where an object that was added is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Here, or about to be.
    Here,
    /// It was in the store before.
    Store,
}

/// Ids are evenly spread already.
#[derive(Default)]
pub(crate) struct OidHasher(u64);

impl Hasher for OidHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        // The first byte chooses the shard, so the last ones are used here.
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }
    fn write_usize(&mut self, _: usize) {}
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    pub(crate) fn new(objects: PathBuf, durability: Durability) -> Pending {
        Pending {
            objects,
            durability,
            early: Mutex::default(),
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            buffers: Mutex::default(),
            tail: Mutex::default(),
            commits: Mutex::default(),
            big: Mutex::default(),
            trees: Mutex::default(),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn shard(&self, id: &[u8; OID_LEN]) -> MutexGuard<'_, OidMap<Seen>> {
        lock(&self.seen[usize::from(id[0]) % SHARDS])
    }

    /// True for the first who asks.
    pub(crate) fn claim(&self, id: &[u8; OID_LEN]) -> bool {
        match self.shard(id).entry(*id) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(slot) => {
                slot.insert(Seen::Here);
                true
            }
        }
    }

    /// Remembers a tree that was appended, if there is room.
    pub(crate) fn keep_tree(&self, id: [u8; OID_LEN], data: &[u8]) {
        let mut trees = lock(&self.trees);
        if trees.bytes + data.len() <= TREES_KEPT {
            trees.bytes += data.len();
            trees.all.insert(id, data.into());
        }
    }

    pub(crate) fn earlier_failure(&self) -> Error {
        Error::Io {
            path: self.objects.clone(),
            source: io::Error::other("an earlier write of this pack failed"),
        }
    }

    pub(crate) fn append(
        &self,
        b: &mut Buffer,
        deflater: &mut Deflater,
        kind: Kind,
        id: [u8; OID_LEN],
        data: &[u8],
    ) -> Result<(), Error> {
        let room = pack::ENTRY_HEADER_MAX + Deflater::bound(data.len());
        if b.used > 0 && b.used + room > 2 * FLUSH {
            self.flush(b)?;
        }
        // Grows with what there is: most rows are a few small objects, and memory costs time when it is first touched.
        let need = b.used + room;
        if b.bytes.len() < need {
            b.bytes.resize(need.max((2 * b.bytes.len()).clamp(FIRST_ROOM, 2 * FLUSH)), 0);
        }
        let start = b.used;
        let head = pack::entry_header(kind, data.len() as u64, &mut b.bytes[start..]);
        let n = head + deflater.zlib(data, &mut b.bytes[start + head..]);
        let crc = crc32fast::hash(&b.bytes[start..start + n]);
        b.entries.push(IdxEntry { oid: id, crc, offset: start as u64 });
        b.used += n;
        if b.used >= FLUSH {
            self.flush(b)?;
        }
        Ok(())
    }

    /// Appends a buffer to the pack. The place is reserved under the lock, the bytes are written outside of it.
    pub(crate) fn flush(&self, b: &mut Buffer) -> Result<(), Error> {
        if b.used == 0 {
            return Ok(());
        }
        let done = self.flush_unchecked(b);
        b.used = 0;
        b.entries.clear();
        if b.bytes.len() > KEEP {
            b.bytes = Vec::new();
        }
        done.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn flush_unchecked(&self, b: &mut Buffer) -> Result<(), Error> {
        let (file, at) = {
            let mut tail = lock(&self.tail);
            if tail.temp.is_none() {
                let temp = Temp::new(&self.objects.join("pack"), "pack")?;
                tail.file = Some(temp.share());
                tail.end = pack::HEADER_LEN;
                tail.temp = Some(temp);
            }
            let at = tail.end;
            tail.end += b.used as u64;
            tail.entries.extend(b.entries.iter().map(|e| IdxEntry { offset: at + e.offset, ..*e }));
            (tail.file.clone(), at)
        };
        let Some(file) = file else { return Ok(()) };
        file.write_all_at(&b.bytes[..b.used], at)
            .map_err(|source| Error::Io { path: self.objects.join("pack"), source })?;
        self.write_back(&file, at + b.used as u64);
        Ok(())
    }

    /// Keeps the disk busy beside the threads that compress: what is written already is on its way before the last sync,
    /// which alone counts.
    fn write_back(&self, file: &Arc<File>, end: u64) {
        if self.durability == Durability::None {
            return;
        }
        let mut early = lock(&self.early);
        if end < early.at + WRITE_BACK || early.thread.as_ref().is_some_and(|t| !t.is_finished()) {
            return;
        }
        early.at = end;
        let file = file.clone();
        early.thread = std::thread::Builder::new().spawn(move || drop(file.sync_data())).ok();
    }

    /// Waits for the last early sync, so that none outlives the pack.
    pub(crate) fn end_write_back(&self) {
        if let Some(t) = lock(&self.early).thread.take() {
            let _ = t.join();
        }
    }

    pub(crate) fn flush_all(&self) -> Result<(), Error> {
        let buffers = lock(&self.buffers).clone();
        for b in buffers {
            self.flush(&mut lock(&b))?;
        }
        Ok(())
    }

    /// Whether the object was added here and is in no pack yet.
    pub(crate) fn has(&self, oid: &Oid) -> bool {
        let id = hash::raw(oid);
        !self.closed.load(Ordering::Acquire) && self.shard(&id).get(&id) == Some(&Seen::Here)
    }

    /// The temporary of a huge blob.
    pub(crate) fn big(&self, oid: &Oid) -> Option<PathBuf> {
        lock(&self.big).iter().find(|b| b.oid == *oid).map(|b| b.temp.path().to_owned())
    }

    /// Where the object is in the unfinished pack.
    fn place(&self, id: &[u8; OID_LEN]) -> Result<Option<(Arc<File>, u64, u64)>, Error> {
        for _ in 0..1000 {
            self.flush_all()?;
            let mut tail = lock(&self.tail);
            let Tail { file, end, entries, offsets, located, .. } = &mut *tail;
            offsets.extend(entries[*located..].iter().map(|e| (e.oid, e.offset)));
            *located = entries.len();
            match (offsets.get(id), file) {
                (Some(&at), Some(file)) => return Ok(Some((file.clone(), at, *end))),
                _ if self.shard(id).get(id) != Some(&Seen::Here) => return Ok(None),
                // Another thread has claimed it and is about to write it.
                _ => {}
            }
            drop(tail);
            std::thread::yield_now();
            if self.failed.load(Ordering::Relaxed) {
                return Err(self.earlier_failure());
            }
        }
        Ok(None)
    }

    /// Kind and size of an object added here.
    pub(crate) fn head(&self, oid: &Oid) -> Result<Option<(Kind, u64)>, Error> {
        if !self.has(oid) {
            return Ok(None);
        }
        if let Some(b) = lock(&self.big).iter().find(|b| b.oid == *oid) {
            return Ok(Some((Kind::Blob, b.size)));
        }
        Ok(self.read(oid)?.map(|(kind, data)| (kind, data.len() as u64)))
    }

    /// An object added here; none if it was not, or is in the store.
    pub(crate) fn read(&self, oid: &Oid) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        if !self.has(oid) {
            return Ok(None);
        }
        if let Some((_, data)) = lock(&self.commits).iter().find(|(id, _)| id == oid) {
            return Ok(Some((Kind::Commit, data.clone())));
        }
        if let Some(data) = lock(&self.trees).all.get(&hash::raw(oid)) {
            return Ok(Some((Kind::Tree, data.to_vec())));
        }
        if let Some(path) = self.big(oid) {
            let mut found = Collect::default();
            loose::read(&mut Inflater::new(), &path, &mut found)?;
            return Ok(Some((Kind::Blob, found.data)));
        }
        let Some((file, at, end)) = self.place(&hash::raw(oid))? else { return Ok(None) };
        let mut inflater = Inflater::new();
        let mut input = inflater.open(&file, at, end);
        let dir = self.objects.join("pack");
        let fault = |f: String| pack::damaged_at(&dir, at, &f);
        match pack::read_entry(&mut input, at).map_err(fault)? {
            (Entry::Plain(kind), size) => Ok(Some((kind, input.whole(size).map_err(fault)?))),
            _ => Err(fault("an unfinished pack holds no deltas".into())),
        }
    }
}

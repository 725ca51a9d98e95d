//! One new pack: many threads hash and compress into buffers of their own and append them.

use std::{
    collections::{HashMap, hash_map},
    fmt,
    fs::File,
    hash::{BuildHasherDefault, Hasher},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    Durability, Error, Lock, Odb, Oid, TreeEntry,
    deflate::{Deflater, PIECE},
    files::{self, Temp},
    hash::{self, OID_LEN, Sha1},
    idx::{self, IdxEntry},
    inflate::Inflater,
    loose::{self, Collect},
    object::{self, Kind},
    odb::PackSet,
    pack::{self, Entry},
};

/// Blobs above this size become loose objects, written as they are read.
pub(crate) const BIG: u64 = 16 << 20;
/// A buffer is appended to the pack when it has this many bytes.
const FLUSH: usize = 1 << 20;
/// Buffers that a large object made larger than this are given back.
const KEEP: usize = 4 << 20;
const SHARDS: usize = 64;

/// A new pack in the making, for many threads, each with a [`Scratch`] of its own.
///
/// Nothing is visible to others before [`finish`](Writer::finish); dropping the writer removes what it wrote.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    odb: Odb,
    /// Packs that were there at the start: for look-ups, which are many and mostly miss.
    packs: Arc<PackSet>,
    /// Bit n: there are loose objects whose first byte is n.
    loose: [u64; 4],
    durability: Durability,
    /// Proves to `clean_stale` that the temporaries have an owner.
    _alive: Lock,
}

/// Buffers of one thread. What it holds is written at the latest by [`Writer::finish`], also if it was dropped before.
pub struct Scratch {
    shared: Arc<Shared>,
    buffer: Arc<Mutex<Buffer>>,
    deflater: Deflater,
    data: Vec<u8>,
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// What a finished writer wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// New objects, loose ones included.
    pub objects: u64,
    /// Bytes of new files.
    pub bytes: u64,
    /// The new pack; none if there was nothing to put into one.
    pub pack: Option<PathBuf>,
}

/// What the writer, its scratches and its reading handles share.
pub(crate) struct Shared {
    objects: PathBuf,
    seen: Vec<Mutex<OidMap<Seen>>>,
    buffers: Mutex<Vec<Arc<Mutex<Buffer>>>>,
    tail: Mutex<Tail>,
    /// Commits wait in memory: one alone becomes a loose object.
    commits: Mutex<Vec<(Oid, Vec<u8>)>>,
    big: Mutex<Vec<Big>>,
    /// A write failed: nothing more is accepted.
    failed: AtomicBool,
    /// Finished or dropped: reading handles that live on look into the store only.
    closed: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

#[derive(Debug)]
struct Big {
    oid: Oid,
    size: u64,
    stored: u64,
    temp: Temp,
}

/// Entries that are not in the file yet; offsets count from the buffer's start.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<IdxEntry>,
}

/// The end of the new pack.
#[derive(Default)]
struct Tail {
    temp: Option<Temp>,
    file: Option<Arc<File>>,
    end: u64,
    entries: Vec<IdxEntry>,
    /// For reading back: where the first `located` entries are.
    offsets: OidMap<u64>,
    located: usize,
}

type OidMap<T> = HashMap<[u8; OID_LEN], T, BuildHasherDefault<OidHasher>>;

/// Where an object that was added is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Here, or about to be.
    Here,
    /// It was in the store before.
    Store,
}

/// Ids are evenly spread already.
#[derive(Default)]
struct OidHasher(u64);

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

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(crate) fn new(base: &Odb, alive: Lock, durability: Durability) -> Result<Writer, Error> {
        base.refresh()?;
        let objects = base.objects_dir().to_owned();
        let mut loose = [0; 4];
        for name in files::names(&objects)? {
            let byte = name.to_str().filter(|n| n.len() == 2).and_then(|n| u8::from_str_radix(n, 16).ok());
            if let Some(b) = byte {
                loose[usize::from(b >> 6)] |= 1u64 << (b & 63);
            }
        }
        let shared = Arc::new(Shared {
            objects,
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            buffers: Mutex::default(),
            tail: Mutex::default(),
            commits: Mutex::default(),
            big: Mutex::default(),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        Ok(Writer {
            odb: base.with_pending(shared.clone()),
            packs: base.packs()?,
            shared,
            loose,
            durability,
            _alive: alive,
        })
    }

    /// Buffers for one more thread, about 2 MB in use.
    pub fn scratch(&self) -> Scratch {
        let buffer = Arc::<Mutex<Buffer>>::default();
        lock(&self.shared.buffers).push(buffer.clone());
        Scratch { shared: self.shared.clone(), buffer, deflater: Deflater::new(), data: Vec::new() }
    }

    /// Adds a blob. The flag tells whether it is new: neither added to this writer before nor in the store.
    pub fn blob(&self, s: &mut Scratch, data: &[u8]) -> Result<(Oid, bool), Error> {
        if data.len() as u64 > BIG {
            return self.stream(s, &mut &data[..], data.len() as u64);
        }
        self.add(s, Kind::Blob, data)
    }

    /// Adds a blob of exactly `size` bytes from a reader, in bounded memory at any size. If the reader has fewer the
    /// error is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), if more [`Other`](io::ErrorKind::Other), and nothing
    /// is kept.
    pub fn blob_from(&self, s: &mut Scratch, from: &mut dyn Read, size: u64) -> Result<(Oid, bool), Error> {
        if size > BIG {
            return self.stream(s, from, size);
        }
        let len = usize::try_from(size).map_err(|e| Error::invalid(e.to_string()))?;
        let mut data = std::mem::take(&mut s.data);
        if data.len() < len {
            data.resize(len, 0);
        }
        let got = from.read_exact(&mut data[..len]).and_then(|()| at_end(from));
        let added = match got {
            Ok(()) => self.add(s, Kind::Blob, &data[..len]),
            Err(e) => Err(source_error(e)),
        };
        if data.len() <= KEEP {
            s.data = data;
        }
        added
    }

    /// Adds a tree of `entries`, in any order, with names as stored; they are sorted here. Doubles and names that git
    /// cannot hold are refused.
    pub fn tree(&self, s: &mut Scratch, entries: &mut Vec<TreeEntry>) -> Result<(Oid, bool), Error> {
        object::sort_tree(entries)?;
        let mut data = std::mem::take(&mut s.data);
        data.clear();
        object::encode_tree(entries, &mut data);
        let added = match data.is_empty() {
            true => Ok((hash::empty_tree(), false)),
            false => self.add(s, Kind::Tree, &data),
        };
        if data.capacity() <= KEEP {
            s.data = data;
        }
        added
    }

    /// Adds a parentless commit by `backstitch <backstitch@localhost>`; the time is clamped to what git takes.
    pub fn commit(&self, s: &mut Scratch, tree: &Oid, message: &[u8], time_s: i64) -> Result<Oid, Error> {
        self.check(s)?;
        let data = object::encode_commit(tree, message, time_s)?;
        let oid = hash::object_id(Kind::Commit, &data)?;
        let id = hash::raw(&oid);
        if self.shared.claim(&id) && !self.in_store(&oid) {
            lock(&self.shared.commits).push((oid, data));
        }
        Ok(oid)
    }

    /// A reading handle that also sees what was added here.
    pub fn odb(&self) -> &Odb {
        &self.odb
    }

    fn check(&self, s: &Scratch) -> Result<(), Error> {
        if !Arc::ptr_eq(&s.shared, &self.shared) {
            return Err(Error::invalid("a scratch belongs to the writer that made it"));
        }
        if self.shared.failed.load(Ordering::Relaxed) {
            return Err(self.shared.earlier_failure());
        }
        Ok(())
    }

    fn in_store(&self, oid: &Oid) -> bool {
        let id = hash::raw(oid);
        let loose = self.loose[usize::from(id[0] >> 6)] & 1 << (id[0] & 63) != 0;
        let there = self.odb.knows(&self.packs, oid)
            || (loose && std::fs::symlink_metadata(loose::path(&self.shared.objects, oid)).is_ok());
        if there {
            self.shared.shard(&id).insert(id, Seen::Store);
        }
        there
    }

    fn add(&self, s: &mut Scratch, kind: Kind, data: &[u8]) -> Result<(Oid, bool), Error> {
        self.check(s)?;
        let oid = hash::object_id(kind, data)?;
        let id = hash::raw(&oid);
        // Claimed before it is looked up and written, so that two threads never write one object.
        if !self.shared.claim(&id) || self.in_store(&oid) {
            return Ok((oid, false));
        }
        self.shared.append(&mut lock(&s.buffer), &mut s.deflater, kind, id, data)?;
        Ok((oid, true))
    }

    /// A blob that is never in memory as a whole: a loose object, hashed and compressed as it is read.
    fn stream(&self, s: &mut Scratch, from: &mut dyn Read, size: u64) -> Result<(Oid, bool), Error> {
        self.check(s)?;
        let mut temp = Temp::new(&self.shared.objects, "obj")?;
        let mut hash = Sha1::object(Kind::Blob, size);
        let Scratch { deflater, data, .. } = s;
        let mut out = Vec::new();
        let mut stream = deflater.stream();
        stream.feed(&hash::header(Kind::Blob, size), false, &mut out);
        temp.write(&out)?;
        data.resize(PIECE.max(data.len()), 0);
        let mut left = size;
        let mut stored = out.len() as u64;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            from.read_exact(&mut data[..n]).map_err(source_error)?;
            left -= n as u64;
            if left == 0 {
                at_end(from).map_err(source_error)?;
            }
            hash.update(&data[..n]);
            stream.feed(&data[..n], left == 0, &mut out);
            temp.write(&out).inspect_err(|_| self.shared.failed.store(true, Ordering::Relaxed))?;
            stored += out.len() as u64;
        }
        let oid = hash.finish()?;
        if !self.shared.claim(&hash::raw(&oid)) || self.in_store(&oid) {
            return Ok((oid, false));
        }
        lock(&self.shared.big).push(Big { oid, size, stored, temp });
        Ok((oid, true))
    }

    /// Puts everything in place: huge blobs, then the pack, then its index, each synced before. Nothing added, nothing
    /// written; a commit alone becomes a loose object.
    pub fn finish(self) -> Result<Written, Error> {
        let shared = &self.shared;
        if shared.failed.load(Ordering::Relaxed) {
            return Err(shared.earlier_failure());
        }
        shared.flush_all()?;
        let mut written = Written::default();
        for big in lock(&shared.big).drain(..) {
            big.temp.sync(self.durability)?;
            loose::place(&shared.objects, &big.oid, big.temp, self.durability)?;
            written.objects += 1;
            written.bytes += big.stored;
        }
        let commits = std::mem::take(&mut *lock(&shared.commits));
        let mut deflater = None;
        if lock(&shared.tail).entries.is_empty() {
            if let [(_, data)] = &commits[..] {
                let deflater = deflater.insert(Deflater::new());
                let (_, bytes) =
                    loose::write(&shared.objects, Kind::Commit, data, deflater, self.durability)?;
                written.objects += 1;
                written.bytes += bytes;
                return Ok(written);
            }
            if commits.is_empty() {
                return Ok(written);
            }
        }
        let mut buffer = Buffer::default();
        for (oid, data) in &commits {
            let deflater = deflater.get_or_insert_with(Deflater::new);
            shared.append(&mut buffer, deflater, Kind::Commit, hash::raw(oid), data)?;
        }
        shared.flush(&mut buffer)?;
        self.place_pack(&mut written)?;
        Ok(written)
    }

    fn place_pack(&self, written: &mut Written) -> Result<(), Error> {
        let mut tail = lock(&self.shared.tail);
        let Tail { temp, end, entries, .. } = &mut *tail;
        let Some(temp) = temp.take() else { return Ok(()) };
        let count =
            u32::try_from(entries.len()).map_err(|_| Error::invalid("too many objects for one pack"))?;
        let io = |e| Error::io(temp.path())(e);
        temp.file().write_all_at(&pack::header(count), 0).map_err(io)?;
        // The bytes are on their way to the disk while they are read again for the checksum.
        let sum = std::thread::scope(|scope| {
            let early = (*end > 8 * FLUSH as u64).then(|| scope.spawn(|| temp.sync(self.durability)));
            let sum = checksum(temp.file(), *end).map_err(Error::io(temp.path())).and_then(Sha1::finish);
            match early.map(|e| e.join()) {
                Some(Ok(Err(e))) => Err(e),
                _ => sum,
            }
        })?;
        temp.file().write_all_at(sum.as_slice(), *end).map_err(io)?;
        temp.sync(self.durability)?;
        let bytes = idx::encode(entries, &sum)?;
        let dir = self.shared.objects.join("pack");
        let mut index = Temp::new(&dir, "idx")?;
        index.write(&bytes)?;
        index.sync(self.durability)?;
        let path = dir.join(format!("pack-{sum}.pack"));
        temp.place(&path)?;
        index.place(&path.with_extension("idx"))?;
        files::sync_dir(&dir, self.durability)?;
        written.objects += u64::from(count);
        written.bytes += *end + OID_LEN as u64 + bytes.len() as u64;
        written.pack = Some(path);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Reading handles and scratches may live on; the temporaries do not.
        self.shared.closed.store(true, Ordering::Release);
        lock(&self.shared.tail).temp = None;
        lock(&self.shared.big).clear();
    }
}

fn checksum(file: &File, end: u64) -> io::Result<Sha1> {
    let mut hash = Sha1::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while at < end {
        let n = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..n], at)?;
        hash.update(&buffer[..n]);
        at += n as u64;
    }
    Ok(hash)
}

fn at_end(from: &mut dyn Read) -> io::Result<()> {
    let mut more = [0];
    loop {
        match from.read(&mut more) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(io::Error::other("more bytes than announced")),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The reader's path is not known here; the caller knows it.
fn source_error(source: io::Error) -> Error {
    Error::Io { path: PathBuf::from("content to store"), source }
}

impl Shared {
    fn shard(&self, id: &[u8; OID_LEN]) -> MutexGuard<'_, OidMap<Seen>> {
        lock(&self.seen[usize::from(id[0]) % SHARDS])
    }

    /// True for the first who asks.
    fn claim(&self, id: &[u8; OID_LEN]) -> bool {
        match self.shard(id).entry(*id) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(slot) => {
                slot.insert(Seen::Here);
                true
            }
        }
    }

    fn earlier_failure(&self) -> Error {
        Error::Io {
            path: self.objects.clone(),
            source: io::Error::other("an earlier write of this pack failed"),
        }
    }

    fn append(
        &self,
        b: &mut Buffer,
        deflater: &mut Deflater,
        kind: Kind,
        id: [u8; OID_LEN],
        data: &[u8],
    ) -> Result<(), Error> {
        let room = pack::ENTRY_HEADER_MAX + Deflater::bound(data.len());
        if b.used > 0 && b.used + room > b.bytes.len() {
            self.flush(b)?;
        }
        if b.bytes.len() < room {
            b.bytes.resize(room.max(2 * FLUSH), 0);
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
    fn flush(&self, b: &mut Buffer) -> Result<(), Error> {
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
        match file {
            Some(file) => file
                .write_all_at(&b.bytes[..b.used], at)
                .map_err(|source| Error::Io { path: self.objects.join("pack"), source }),
            None => Ok(()),
        }
    }

    fn flush_all(&self) -> Result<(), Error> {
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

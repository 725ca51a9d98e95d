//! One new pack: many threads hash and compress into buffers of their own and append them.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, atomic::Ordering},
};

use crate::{
    Durability, Error, Lock, Odb, Oid, TreeEntry, adopt,
    deflate::{Deflater, PIECE},
    files::{self, Temp, Unsynced},
    hash::{self, OID_LEN, Sha1},
    idx,
    inflate::Inflater,
    loose,
    object::{self, Kind},
    odb::PackSet,
    pack,
    pending::{Big, Buffer, FLUSH, KEEP, Pending, Seen, Tail, lock},
    refs::Staged,
    usage,
};

/// Blobs above this size become loose objects, written as they are read.
pub(crate) const BIG: u64 = 16 << 20;

/// A new pack in the making, for many threads, each with a [`Scratch`] of its own.
///
/// Nothing is visible to others before [`finish`](Writer::finish); dropping the writer removes what it wrote.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Pending>,
    odb: Odb,
    /// Packs that were there at the start: for look-ups, which are many and mostly miss.
    packs: Arc<PackSet>,
    /// The same, after packs were taken over.
    packs_now: OnceLock<Arc<PackSet>>,
    /// Links that were made, to be made durable.
    linked: Mutex<Vec<PathBuf>>,
    /// Bit n: there are loose objects whose first byte is n.
    loose: [u64; 4],
    damaged: std::collections::HashSet<Oid>,
    durability: Durability,
    /// Proves to `clean_stale` that the temporaries have an owner.
    alive: Arc<Lock>,
}

/// Buffers of one thread. What it holds is written at the latest by [`Writer::finish`], also if it was dropped before.
pub struct Scratch {
    shared: Arc<Pending>,
    buffer: Arc<Mutex<Buffer>>,
    /// Made when something new comes: most captures read and find everything known.
    deflater: Option<Deflater>,
    inflater: Option<Inflater>,
    data: Vec<u8>,
}

impl Scratch {
    pub(crate) fn inflater(&mut self) -> &mut Inflater {
        self.inflater.get_or_insert_with(Inflater::new)
    }
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
        let shared = Arc::new(Pending::new(objects, durability));
        Ok(Writer {
            odb: base.with_pending(shared.clone()),
            packs: base.packs()?,
            packs_now: OnceLock::new(),
            linked: Mutex::default(),
            shared,
            loose,
            damaged: crate::verify::known_damage(base.objects_dir()),
            durability,
            alive: Arc::new(alive),
        })
    }

    /// Buffers for one more thread, about 2 MB in use.
    pub fn scratch(&self) -> Scratch {
        let buffer = Arc::<Mutex<Buffer>>::default();
        lock(&self.shared.buffers).push(buffer.clone());
        Scratch { shared: self.shared.clone(), buffer, deflater: None, inflater: None, data: Vec::new() }
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
    pub fn tree(&self, s: &mut Scratch, entries: &mut [TreeEntry]) -> Result<(Oid, bool), Error> {
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

    /// True if this object was given to this writer, whether or not the store had it before.
    pub fn was_given(&self, oid: &Oid) -> bool {
        let id = hash::raw(oid);
        self.shared.shard(&id).contains_key(&id)
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

    pub(crate) fn objects(&self) -> &Path {
        &self.shared.objects
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub(crate) fn packs(&self) -> &Arc<PackSet> {
        self.packs_now.get().unwrap_or(&self.packs)
    }

    pub(crate) fn packs_know(&self, oid: &Oid) -> bool {
        self.odb.knows(self.packs(), oid)
    }

    /// The store's copy cannot be read, as `verify --repair` wrote down.
    pub(crate) fn is_damaged(&self, oid: &Oid) -> bool {
        self.damaged.contains(oid)
    }

    /// Packs were taken over: look-ups find what is in them.
    pub(crate) fn look_again(&self) -> Result<(), Error> {
        self.odb.refresh()?;
        let _ = self.packs_now.set(self.odb.packs()?);
        Ok(())
    }

    pub(crate) fn note_linked(&self, paths: [PathBuf; 2]) {
        lock(&self.linked).extend(paths);
    }

    fn in_store(&self, oid: &Oid) -> bool {
        // What is known to be damaged is written again: readers find the sound copy.
        if self.is_damaged(oid) {
            return false;
        }
        let id = hash::raw(oid);
        let loose = self.loose[usize::from(id[0] >> 6)] & 1 << (id[0] & 63) != 0;
        let there = self.packs_know(oid)
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
        let deflater = s.deflater.get_or_insert_with(Deflater::new);
        self.shared.append(&mut lock(&s.buffer), deflater, kind, id, data)?;
        if kind == Kind::Tree {
            self.shared.keep_tree(id, data);
        }
        Ok((oid, true))
    }

    /// A blob that is never in memory as a whole: a loose object, hashed and compressed as it is read.
    fn stream(&self, s: &mut Scratch, from: &mut dyn Read, size: u64) -> Result<(Oid, bool), Error> {
        self.check(s)?;
        let mut temp = Temp::new(&self.shared.objects, "obj")?;
        let mut hash = Sha1::object(Kind::Blob, size);
        let Scratch { deflater, data, .. } = s;
        let mut out = Vec::new();
        let mut stream = deflater.get_or_insert_with(Deflater::new).stream();
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

    /// Puts everything in place: huge blobs, then the pack, then its index, all synced before. Nothing added, nothing
    /// written; a commit alone becomes a loose object.
    pub fn finish(self) -> Result<Written, Error> {
        self.finish_with(None)
    }

    /// The same, and the file of a ref to come is written and synced together with the objects, which [`Refs::set_staged`]
    /// puts in place. Until then nothing points to them.
    ///
    /// [`Refs::set_staged`]: crate::Refs::set_staged
    pub fn finish_for(self, commit: &Oid) -> Result<(Written, Staged), Error> {
        let git = self.shared.objects.parent().unwrap_or(&self.shared.objects);
        let staged = Staged::new(git, commit, self.alive.clone())?;
        let written = self.finish_with(Some(staged.temp()))?;
        Ok((written, staged))
    }

    fn finish_with(self, beside: Option<&Temp>) -> Result<Written, Error> {
        let written = self.place_all(beside)?;
        if written.objects > 0 {
            usage::note_written(self.odb.store_dir(), written.bytes);
        }
        Ok(written)
    }

    fn place_all(&self, beside: Option<&Temp>) -> Result<Written, Error> {
        let shared = &self.shared;
        if shared.failed.load(Ordering::Relaxed) {
            return Err(shared.earlier_failure());
        }
        shared.flush_all()?;
        let mut written = Written::default();
        // Before anything is durable that needs what is in them.
        adopt::sync(&lock(&self.linked), &shared.objects.join("pack"), self.durability)?;
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
                let (_, bytes) = loose::write_with(
                    &shared.objects,
                    Kind::Commit,
                    data,
                    deflater,
                    beside,
                    self.durability,
                )?;
                written.objects += 1;
                written.bytes += bytes;
                return Ok(written);
            }
            if commits.is_empty() {
                beside.map_or(Ok(()), |temp| temp.sync(self.durability))?;
                return Ok(written);
            }
        }
        let mut buffer = Buffer::default();
        for (oid, data) in &commits {
            let deflater = deflater.get_or_insert_with(Deflater::new);
            shared.append(&mut buffer, deflater, Kind::Commit, hash::raw(oid), data)?;
        }
        shared.flush(&mut buffer)?;
        self.place_pack(&mut written, beside)?;
        Ok(written)
    }

    fn place_pack(&self, written: &mut Written, beside: Option<&Temp>) -> Result<(), Error> {
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
        let bytes = idx::encode(entries, &sum)?;
        let dir = self.shared.objects.join("pack");
        let mut index = Temp::new(&dir, "idx")?;
        index.write(&bytes)?;
        let unsynced: Vec<_> = [&temp, &index].into_iter().chain(beside).map(Unsynced::File).collect();
        files::sync_together(&unsynced, self.durability)?;
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
        self.shared.end_write_back();
        self.shared.closed.store(true, Ordering::Release);
        lock(&self.shared.tail).temp = None;
        lock(&self.shared.big).clear();
    }
}

fn checksum(file: &File, end: u64) -> io::Result<Sha1> {
    let mut hash = Sha1::new();
    let mut buffer = vec![0; usize::try_from(end).unwrap_or(usize::MAX).min(256 << 10)];
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

//! Reading objects: packs, deltas, loose files, and what a writer has not finished yet.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use bstr::BString;

use crate::{
    Error, Oid, TreeEntry,
    bases::{BaseKey, Bases},
    files,
    hash::{self, OID_LEN, Sha1},
    inflate::Inflater,
    loose::{self, Collect, Hashing, ReadError},
    object::{self, Kind, ObjectKind},
    pack::{self, Entry, Pack},
    parked,
    pending::{Pending, lock},
};

/// An undeltified object above this size is streamed.
const STREAM: u64 = 1 << 20;
/// Git itself never makes longer chains.
const CHAIN_MAX: usize = 4096;
/// How many packs are open at a time.
const OPEN_MAX: usize = 64;

/// A reading handle. Cheap to clone, for any thread; packs that appear later are found when an object is missed.
///
/// Whatever is read is checked against its id. Where one copy of an object is damaged and another is not, the other is
/// returned.
#[derive(Clone, Debug)]
pub struct Odb {
    inner: Arc<Inner>,
    pending: Option<Arc<Pending>>,
}

#[derive(Debug)]
struct Inner {
    store: PathBuf,
    objects: PathBuf,
    packs: RwLock<Option<Arc<PackSet>>>,
    opened: AtomicUsize,
    pool: Mutex<Vec<Pooled>>,
    bases: Mutex<Bases>,
}

/// The packs that were there at the last look.
#[derive(Debug, Default)]
pub(crate) struct PackSet {
    pub(crate) packs: Vec<Arc<Pack>>,
    /// Indexes that cannot be read, and why.
    pub(crate) broken: Vec<(PathBuf, String)>,
    /// Packs of which only the index is there: what is in them is not.
    pub(crate) lost: Vec<Arc<Pack>>,
    recent: AtomicUsize,
}

struct Pooled(Box<Inflater>);

impl std::fmt::Debug for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inflater")
    }
}

impl PackSet {
    /// Where `oid` is, looking first where the last one was; `skip` that many places.
    pub(crate) fn find(&self, oid: &[u8; OID_LEN], skip: usize) -> Option<(Arc<Pack>, Result<u64, String>)> {
        let n = self.packs.len();
        let start = self.recent.load(Ordering::Relaxed);
        (0..n)
            .map(|i| (start + i) % n)
            .filter_map(|i| Some((i, self.packs[i].idx.find(oid).transpose()?)))
            .nth(skip)
            .map(|(i, at)| {
                if skip == 0 {
                    self.recent.store(i, Ordering::Relaxed);
                }
                (self.packs[i].clone(), at)
            })
    }
}

impl Odb {
    pub(crate) fn new(store: &Path, objects: PathBuf) -> Odb {
        let inner = Inner {
            store: store.to_owned(),
            objects,
            packs: RwLock::default(),
            opened: AtomicUsize::new(0),
            pool: Mutex::default(),
            bases: Mutex::default(),
        };
        Odb { inner: Arc::new(inner), pending: None }
    }

    /// Reads the objects of any repository, such as the one of the folder that a store is about. Alternates are not
    /// followed.
    pub fn of_repository(objects: &Path) -> Odb {
        Odb::new(objects, objects.to_owned())
    }

    /// The same, and what `pending` holds.
    pub(crate) fn with_pending(&self, pending: Arc<Pending>) -> Odb {
        Odb { inner: self.inner.clone(), pending: Some(pending) }
    }

    pub(crate) fn store_dir(&self) -> &Path {
        &self.inner.store
    }

    pub(crate) fn objects_dir(&self) -> &Path {
        &self.inner.objects
    }

    /// The packs as last seen.
    pub(crate) fn packs(&self) -> Result<Arc<PackSet>, Error> {
        let seen = self.inner.packs.read().unwrap_or_else(PoisonError::into_inner).clone();
        match seen {
            Some(set) => Ok(set),
            None => self.rescan(),
        }
    }

    /// Looks which packs there are now. Done by every read that misses; to be called where a stale "no" matters.
    pub fn refresh(&self) -> Result<(), Error> {
        self.rescan().map(drop)
    }

    fn rescan(&self) -> Result<Arc<PackSet>, Error> {
        let dir = self.inner.objects.join("pack");
        let names = files::names(&dir)?;
        let present: HashSet<PathBuf> =
            names.iter().filter(|n| files::stem(n, ".pack").is_some()).map(|n| dir.join(n)).collect();
        let mut paths: Vec<PathBuf> = names
            .iter()
            .filter_map(|n| files::stem(n, ".idx").filter(|s| s.starts_with("pack-")))
            .map(|s| dir.join(format!("{s}.pack")))
            .collect();
        paths.sort_unstable();
        let mut slot = self.inner.packs.write().unwrap_or_else(PoisonError::into_inner);
        let known: HashMap<&Path, &Arc<Pack>> =
            slot.iter().flat_map(|s| &s.packs).map(|p| (p.path.as_path(), p)).collect();
        let mut fresh = PackSet::default();
        for path in paths {
            if let Some(p) = known.get(path.as_path()) {
                fresh.packs.push((*p).clone());
                continue;
            }
            match Pack::open(path.clone()) {
                // The names are not of one moment: a pack gets its own before its index does.
                Ok(p) if !present.contains(path.as_path()) && !path.exists() => fresh.lost.push(Arc::new(p)),
                Ok(p) => fresh.packs.push(Arc::new(p)),
                Err(e) if e.is_not_found() => {}
                Err(Error::Io { path, source }) => return Err(Error::Io { path, source }),
                Err(Error::Damaged { path, what }) => fresh.broken.push((path, what)),
                Err(e) => fresh.broken.push((path, e.to_string())),
            }
        }
        let fresh = Arc::new(fresh);
        *slot = Some(fresh.clone());
        Ok(fresh)
    }

    pub(crate) fn with_inflater<T>(&self, f: impl FnOnce(&mut Inflater) -> T) -> T {
        let mut inflater = lock(&self.inner.pool).pop().unwrap_or_else(|| Pooled(Box::new(Inflater::new())));
        let out = f(&mut inflater.0);
        lock(&self.inner.pool).push(inflater);
        out
    }

    /// Keeps the number of open files bounded.
    fn note_open(&self, set: &PackSet, pack: &Pack) {
        if !pack.is_open() && self.inner.opened.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX {
            set.packs.iter().for_each(|p| p.close());
            self.inner.opened.store(1, Ordering::Relaxed);
        }
    }

    /// One object of one pack, its deltas applied; not yet checked against an id.
    pub(crate) fn decode(
        &self,
        set: &PackSet,
        pack: &Arc<Pack>,
        offset: u64,
        inflater: &mut Inflater,
    ) -> Result<(Kind, Vec<u8>), Error> {
        enum Step {
            Done(Kind, Vec<u8>),
            On(Entry, Vec<u8>),
        }
        let mut chain: Vec<(Spot, Vec<u8>)> = Vec::new();
        let mut at = (pack.clone(), offset);
        let (kind, mut data) = loop {
            if !chain.is_empty()
                && let Some(found) = lock(&self.inner.bases).get(&base_key(&at))
            {
                break found;
            }
            self.note_open(set, &at.0);
            let step = at.0.entry(inflater, at.1, |entry, size, input| {
                let data = input.whole(size).map_err(|f| at.0.fault(at.1, &f))?;
                Ok(match entry {
                    Entry::Plain(kind) => Step::Done(kind, data),
                    entry => Step::On(entry, data),
                })
            })?;
            match step {
                Step::Done(kind, data) if chain.is_empty() => return Ok((kind, data)),
                Step::Done(kind, data) => {
                    let data = Arc::new(data);
                    lock(&self.inner.bases).put(base_key(&at), (kind, data.clone()));
                    break (kind, data);
                }
                Step::On(entry, delta) => {
                    chain.push((at.clone(), delta));
                    if chain.len() > CHAIN_MAX {
                        return Err(pack.fault(offset, "a chain of deltas has no end"));
                    }
                    at = match entry {
                        Entry::Offset(base) => (at.0, base),
                        Entry::Base(id) => match at.0.idx.find(&id).transpose() {
                            Some(base) => (at.0.clone(), base.map_err(|f| at.0.fault(at.1, &f))?),
                            None => {
                                let (p, base) = set
                                    .find(&id, 0)
                                    .ok_or_else(|| at.0.fault(at.1, "a delta's base is missing"))?;
                                let base = base.map_err(|f| p.fault(0, &f))?;
                                (p, base)
                            }
                        },
                        Entry::Plain(_) => return Err(pack.fault(offset, "a chain of deltas has no base")),
                    };
                }
            }
        };
        while let Some((at, delta)) = chain.pop() {
            let made = pack::apply_delta(&data, &delta).map_err(|f| at.0.fault(at.1, &f))?;
            if chain.is_empty() {
                return Ok((kind, made));
            }
            data = Arc::new(made);
            lock(&self.inner.bases).put(base_key(&at), (kind, data.clone()));
        }
        Ok((kind, data.to_vec()))
    }

    /// The object, from whichever copy is sound.
    pub(crate) fn read(&self, oid: &Oid) -> Result<(Kind, Vec<u8>), Error> {
        if *oid == hash::empty_tree() {
            return Ok((Kind::Tree, Vec::new()));
        }
        if let Some(pending) = &self.pending
            && let Some(found) = pending.read(oid)?
        {
            return Ok(found);
        }
        self.attempt(oid, |place| match place {
            Place::Packed(set, pack, at) => {
                let (kind, data) = self.with_inflater(|i| self.decode(set, pack, at, i))?;
                match hash::object_id(kind, &data)? == *oid {
                    true => Ok((kind, data)),
                    false => Err(pack.fault(at, &format!("object {oid} has changed"))),
                }
            }
            Place::Loose(path) => self.read_loose(oid, path),
            Place::Parked(path) => Ok((Kind::Blob, parked::read(oid, path)?)),
        })
    }

    /// Hashes one entry of one pack, large ones piece by piece; its kind and size if it is `oid`.
    pub(crate) fn check_packed(
        &self,
        set: &PackSet,
        pack: &Arc<Pack>,
        at: u64,
        oid: &Oid,
    ) -> Result<(Kind, u64), Error> {
        self.with_inflater(|inflater| {
            self.note_open(set, pack);
            if let Some(found) = stream_entry(inflater, pack, at, oid, &mut |_| Ok(()))? {
                return Ok(found);
            }
            let (kind, data) = self.decode(set, pack, at, inflater)?;
            match hash::object_id(kind, &data)? == *oid {
                true => Ok((kind, data.len() as u64)),
                false => Err(pack.fault(at, &format!("object {oid} has changed"))),
            }
        })
    }

    /// Whole loose file at `path`, checked.
    pub(crate) fn read_loose(&self, oid: &Oid, path: &Path) -> Result<(Kind, Vec<u8>), Error> {
        let mut found = Collect::default();
        self.with_inflater(|i| loose::read(i, path, &mut found))?;
        match found.header {
            Some((kind, _)) if hash::object_id(kind, &found.data)? == *oid => Ok((kind, found.data)),
            _ => Err(Error::damaged(path, format!("object {oid} has changed"))),
        }
    }

    /// Tries every copy of `oid` until one serves; looks for new packs once.
    fn attempt<T>(&self, oid: &Oid, mut get: impl FnMut(Place<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let id = hash::raw(oid);
        let mut first = None;
        for round in 0..2 {
            let set = if round == 0 { self.packs()? } else { self.rescan()? };
            let mut skip = 0;
            while let Some((pack, at)) = set.find(&id, skip) {
                skip += 1;
                let got = match at {
                    Ok(at) => get(Place::Packed(&set, &pack, at)),
                    Err(f) => Err(Error::damaged(&pack.path.with_extension("idx"), f)),
                };
                match got {
                    Ok(got) => return Ok(got),
                    Err(e) if e.is_not_found() => {}
                    Err(e) => first = first.or(Some(e)),
                }
            }
            match get(Place::Loose(&loose::path(&self.inner.objects, oid))) {
                Ok(got) => return Ok(got),
                Err(e) if e.is_not_found() => {}
                Err(e) => first = first.or(Some(e)),
            }
            if round == 1 {
                match get(Place::Parked(&parked::path(&self.inner.store, oid))) {
                    Ok(got) => return Ok(got),
                    Err(e) if e.is_not_found() => {}
                    Err(e) => first = first.or(Some(e)),
                }
            }
            if let (1, None, Some((path, what))) = (round, &first, set.broken.first()) {
                first = Some(Error::damaged(path, format!("{what}; object {oid} may be in its pack")));
            }
        }
        Err(first.unwrap_or_else(|| self.missing(oid)))
    }

    fn expect(&self, oid: &Oid, want: Kind) -> Result<Vec<u8>, Error> {
        match self.read(oid)? {
            (kind, data) if kind == want => Ok(data),
            (kind, _) => Err(self.mistaken(oid, &format!("is a {}, not a {}", kind.name(), want.name()))),
        }
    }

    pub(crate) fn missing(&self, oid: &Oid) -> Error {
        Error::Missing { path: self.inner.store.clone(), oid: *oid }
    }

    pub(crate) fn mistaken(&self, oid: &Oid, what: &str) -> Error {
        Error::damaged(&self.inner.store, format!("object {oid} {what}"))
    }

    /// Whether the object is there. True does not mean that it is sound.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.has(oid, true)
    }

    /// As [`contains`](Self::contains), but what is only parked, as a file that was moved here, does not count.
    pub fn holds_copy(&self, oid: &Oid) -> bool {
        self.has(oid, false)
    }

    fn has(&self, oid: &Oid, parked: bool) -> bool {
        if *oid == hash::empty_tree() || self.pending.as_ref().is_some_and(|p| p.has(oid)) {
            return true;
        }
        self.attempt(oid, |place| match place {
            Place::Packed(..) => Ok(()),
            Place::Parked(_) if !parked => Err(self.missing(oid)),
            Place::Loose(path) | Place::Parked(path) => {
                std::fs::symlink_metadata(path).map(drop).map_err(Error::io(path))
            }
        })
        .is_ok()
    }

    /// As [`contains`](Self::contains), but packs that appeared since the last look are not looked for: for the many
    /// look-ups of new objects, where a needless copy is harmless.
    pub(crate) fn knows(&self, set: &PackSet, oid: &Oid) -> bool {
        set.find(&hash::raw(oid), 0).is_some()
    }

    /// Size of the content, read from the object's head.
    pub fn size(&self, oid: &Oid) -> Result<u64, Error> {
        Ok(self.head(oid)?.1)
    }

    /// What kind of object it is.
    pub fn kind(&self, oid: &Oid) -> Result<ObjectKind, Error> {
        let kind = match self.head(oid)? {
            (Some(kind), _) => kind,
            (None, _) => self.read(oid)?.0,
        };
        kind.public().ok_or_else(|| self.mistaken(oid, "is a tag"))
    }

    /// Kind (not known for deltas without reading on) and size.
    pub(crate) fn head(&self, oid: &Oid) -> Result<(Option<Kind>, u64), Error> {
        if *oid == hash::empty_tree() {
            return Ok((Some(Kind::Tree), 0));
        }
        if let Some(pending) = &self.pending
            && let Some((kind, size)) = pending.head(oid)?
        {
            return Ok((Some(kind), size));
        }
        self.attempt(oid, |place| match place {
            Place::Packed(set, pack, at) => self.with_inflater(|i| self.head_of(set, pack, at, i)),
            Place::Loose(path) => {
                let mut found = Collect { only_header: true, ..Collect::default() };
                self.with_inflater(|i| loose::read(i, path, &mut found))?;
                let (kind, size) = found.header.ok_or_else(|| Error::damaged(path, "no object header"))?;
                Ok((Some(kind), size))
            }
            Place::Parked(path) => Ok((Some(Kind::Blob), parked::size(path)?)),
        })
    }

    /// Kind, where it is no delta, and size of one entry of one pack. Only its beginning is read.
    fn head_of(
        &self,
        set: &PackSet,
        pack: &Pack,
        at: u64,
        inflater: &mut Inflater,
    ) -> Result<(Option<Kind>, u64), Error> {
        self.note_open(set, pack);
        pack.peek(inflater, at, |entry, size, input| match entry {
            Entry::Plain(kind) => Ok((Some(kind), size)),
            _ => {
                let mut start = Vec::new();
                input
                    .pieces(|bytes| -> Result<bool, ReadError> {
                        start.extend_from_slice(bytes);
                        Ok(start.len() < 20)
                    })
                    .and_then(|()| Ok((None, pack::delta_result_size(&start)?)))
                    .map_err(|e| e.at(&pack.path))
            }
        })
    }

    /// Size of a blob by its entry in a pack; what is known to be something else is an error.
    pub(crate) fn packed_head(
        &self,
        set: &PackSet,
        pack: &Pack,
        at: u64,
        inflater: &mut Inflater,
    ) -> Result<u64, Error> {
        match self.head_of(set, pack, at, inflater)? {
            (None | Some(Kind::Blob), size) => Ok(size),
            _ => Err(pack.fault(at, "is no blob")),
        }
    }

    /// The content of a blob.
    pub fn blob(&self, oid: &Oid) -> Result<Vec<u8>, Error> {
        self.expect(oid, Kind::Blob)
    }

    /// Writes the content of a blob to `out`, without holding it in memory where it is large and stored undeltified.
    /// Then the id can only be checked at the end: on an error what `out` received is void.
    pub fn blob_to(&self, oid: &Oid, out: &mut dyn io::Write) -> Result<u64, Error> {
        let receiver = PathBuf::from(format!("receiver of object {oid}"));
        let mut started = false;
        if let Some(path) = self.pending.as_ref().and_then(|p| p.big(oid)) {
            let sink = &mut |bytes: &[u8]| out.write_all(bytes).map_err(Error::io(&receiver));
            return self.stream_loose(oid, &path, sink);
        }
        let pending = match &self.pending {
            Some(p) => p.read(oid)?,
            None => None,
        };
        let streamed = match pending {
            Some(found) => Err(found),
            None => {
                let mut sink = |bytes: &[u8]| {
                    started = true;
                    out.write_all(bytes).map_err(Error::io(&receiver))
                };
                let mut failed = None;
                let got = self.attempt(oid, |place| {
                    if failed.is_some() {
                        return Err(Error::Interrupted);
                    }
                    let got = self.stream_or_read(oid, place, &mut sink);
                    match got {
                        // What was passed on cannot be taken back, so no other copy is tried.
                        Err((true, e)) => {
                            failed = Some(e);
                            Err(Error::Interrupted)
                        }
                        Err((false, e)) => Err(e),
                        Ok(ok) => Ok(ok),
                    }
                });
                match failed {
                    Some(e) => return Err(e),
                    None => got?,
                }
            }
        };
        match streamed {
            Ok(size) => Ok(size),
            Err((Kind::Blob, data)) => {
                out.write_all(&data).map_err(Error::io(&receiver))?;
                Ok(data.len() as u64)
            }
            Err((kind, _)) => Err(self.mistaken(oid, &format!("is a {}, not a blob", kind.name()))),
        }
    }

    /// Ok(Ok(size)) if it was streamed, Ok(Err(object)) if it was read; an error says whether bytes were passed on.
    #[allow(clippy::type_complexity)]
    fn stream_or_read(
        &self,
        oid: &Oid,
        place: Place<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Result<u64, (Kind, Vec<u8>)>, (bool, Error)> {
        let mut passed = false;
        let mut sink = |bytes: &[u8]| {
            passed = true;
            sink(bytes)
        };
        let mut go = || match place {
            Place::Parked(path) => parked::stream(oid, path, &mut sink).map(Ok),
            Place::Loose(path) => {
                let mut head = Collect { only_header: true, ..Collect::default() };
                self.with_inflater(|i| loose::read(i, path, &mut head))?;
                match head.header {
                    Some((Kind::Blob, size)) if size > STREAM => {
                        self.stream_loose(oid, path, &mut sink).map(Ok)
                    }
                    _ => self.read_loose(oid, path).map(Err),
                }
            }
            Place::Packed(set, pack, at) => self.with_inflater(|inflater| {
                self.note_open(set, pack);
                match stream_entry(inflater, pack, at, oid, &mut sink)? {
                    Some((_, size)) => Ok(Ok(size)),
                    None => {
                        let (kind, data) = self.decode(set, pack, at, inflater)?;
                        match hash::object_id(kind, &data)? == *oid {
                            true => Ok(Err((kind, data))),
                            false => Err(pack.fault(at, &format!("object {oid} has changed"))),
                        }
                    }
                }
            }),
        };
        let got = go();
        got.map_err(|e| (passed, e))
    }

    fn stream_loose(
        &self,
        oid: &Oid,
        path: &Path,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let mut hashing = Hashing { out: Some(sink), header: None, hash: None };
        self.with_inflater(|i| loose::read(i, path, &mut hashing))?;
        let Hashing { header, hash, .. } = hashing;
        match (header, hash.map(Sha1::finish).transpose()?) {
            (Some((_, size)), Some(id)) if id == *oid => Ok(size),
            _ => Err(Error::damaged(path, format!("object {oid} has changed"))),
        }
    }

    /// The entries of a tree in git's order; the empty tree is always there.
    pub fn tree(&self, oid: &Oid) -> Result<Vec<TreeEntry>, Error> {
        let data = self.expect(oid, Kind::Tree)?;
        object::parse_tree(&data).map_err(|f| self.mistaken(oid, &format!("is no sound tree: {f}")))
    }

    /// The entries of two trees that are not the same in both; now and then one that is, on both sides.
    pub fn tree_changes(&self, a: &Oid, b: &Oid) -> Result<(Vec<TreeEntry>, Vec<TreeEntry>), Error> {
        let (old, new) = (self.expect(a, Kind::Tree)?, self.expect(b, Kind::Tree)?);
        // Whichever of them is unsound.
        object::parse_changes(&old, &new).or_else(|_| Ok((self.tree(a)?, self.tree(b)?)))
    }

    /// An object of any kind with git's header (`commit 234`, NUL) before its content: its SHA-1 is the object's id.
    pub fn serialized(&self, oid: &Oid) -> Result<Vec<u8>, Error> {
        let (kind, data) = self.read(oid)?;
        let mut out = hash::header(kind, data.len() as u64);
        out.extend_from_slice(&data);
        Ok(out)
    }

    /// Tree and whole message of a commit.
    pub fn commit(&self, oid: &Oid) -> Result<(Oid, BString), Error> {
        let data = self.expect(oid, Kind::Commit)?;
        object::parse_commit(&data).map_err(|f| self.mistaken(oid, &format!("is no sound commit: {f}")))
    }
}

/// An entry of a pack.
type Spot = (Arc<Pack>, u64);

fn base_key((pack, offset): &Spot) -> BaseKey {
    (pack.path.clone(), *offset)
}

/// Where a copy of an object is.
enum Place<'a> {
    Packed(&'a PackSet, &'a Arc<Pack>, u64),
    Loose(&'a Path),
    /// Looked at last: a copy in the store is as it was written, a parked file is what somebody left in it.
    Parked(&'a Path),
}

/// Passes a large undeltified blob on piece by piece and checks its id at the end. None: it is something else.
fn stream_entry(
    inflater: &mut Inflater,
    pack: &Pack,
    at: u64,
    oid: &Oid,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<Option<(Kind, u64)>, Error> {
    pack.entry(inflater, at, |entry, size, input| match entry {
        Entry::Plain(Kind::Blob) if size > STREAM => {
            let mut hash = Sha1::object(Kind::Blob, size);
            let mut n = 0;
            let pieces = input.pieces(|bytes| -> Result<bool, ReadError> {
                n += bytes.len() as u64;
                if n > size {
                    return Err(ReadError::Fault("an object is longer than it says".into()));
                }
                hash.update(bytes);
                sink(bytes).map_err(ReadError::Sink)?;
                Ok(true)
            });
            pieces.map_err(|e| match e {
                ReadError::Fault(f) => pack.fault(at, &f),
                ReadError::Sink(e) => e,
            })?;
            match n == size && hash.finish()? == *oid {
                true => Ok(Some((Kind::Blob, size))),
                false => Err(pack.fault(at, &format!("object {oid} has changed"))),
            }
        }
        _ => Ok(None),
    })
}

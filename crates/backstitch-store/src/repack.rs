//! A new pack made of entries of other packs, copied as they are, or as deltas against another version of the same file.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    Durability, Error, MODE_TREE, Odb, Oid,
    deflate::Deflater,
    delta,
    files::{self, Temp},
    hash::{self, Sha1},
    idx::{self, IdxEntry},
    inventory::{self, Inventory, PackFile, Packed, Place},
    object::{self, Kind},
    pack::{self, Entry},
    pending::OidMap,
};

/// What is collected before it is written.
const BUFFER: usize = 1 << 20;
/// Entries below this gain nothing by being a delta.
const DELTA_MIN: u64 = 64;
/// Both contents are in memory.
const DELTA_MAX: u64 = 128 << 20;
/// So many deltas are applied one after the other to read an object.
const CHAIN_MAX: u32 = 24;
/// Contents above this size are deltas of a whole one: a long chain of them would be slow to read.
const STAR: u64 = 256 << 10;

/// Versions of the same thing: objects by number, the name of the thing as a hash.
pub(crate) type Versions = HashMap<u32, u64>;

/// What is at the same path in the commits among these objects.
pub(crate) fn versions(odb: &Odb, inventory: &Inventory, objects: &[u32]) -> Result<Versions, Error> {
    let here: HashSet<u32> = objects.iter().copied().collect();
    let mut out = Versions::new();
    let mut trees: Vec<(Oid, u64)> = Vec::new();
    for n in objects {
        let oid = inventory.oid(*n);
        if odb.head(&oid).is_ok_and(|(kind, _)| kind == Some(Kind::Commit)) {
            let (_, data) = odb.read(&oid)?;
            // Commits stay whole: what they are shows without reading others.
            if let Ok((tree, _)) = object::parse_commit(&data) {
                trees.push((tree, name(0, b"tree")));
            }
        }
    }
    while let Some((oid, of)) = trees.pop() {
        let Some(n) = inventory.find(&hash::raw(&oid)).filter(|n| here.contains(n)) else { continue };
        // Seen at another place, too: the first counts.
        if out.contains_key(&n) {
            continue;
        }
        out.insert(n, of);
        let (_, data) = odb.read(&oid)?;
        for e in object::parse_tree(&data).unwrap_or_default() {
            let of = name(of, &e.name);
            match inventory.find(&hash::raw(&e.oid)) {
                _ if e.mode == MODE_TREE => trees.push((e.oid, of)),
                Some(n) if here.contains(&n) => drop(out.entry(n).or_insert(of)),
                _ => {}
            }
        }
    }
    Ok(out)
}

fn name(above: u64, name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut h = DefaultHasher::new();
    (above, name).hash(&mut h);
    h.finish()
}

/// A pack in the making, whose number of objects is known from the start.
pub(crate) struct Repack<'a> {
    odb: &'a Odb,
    inventory: &'a Inventory,
    temp: Temp,
    hash: Sha1,
    buffer: Vec<u8>,
    written: u64,
    count: u32,
    entries: Vec<IdxEntry>,
    /// Where an object is in the new pack.
    at: OidMap<u64>,
    deflater: Deflater,
    raw: Vec<u8>,
    versions: Versions,
    /// Of each thing the version that the next one may build on.
    latest: HashMap<u64, u32>,
    /// How many deltas there are to an object, where there are any.
    depth: HashMap<u32, u32>,
}

impl<'a> Repack<'a> {
    /// A pack of the store that the objects are in.
    pub(crate) fn new(odb: &'a Odb, inventory: &'a Inventory, count: u32) -> Result<Repack<'a>, Error> {
        Repack::into(odb, inventory, count, &odb.objects_dir().join("pack"))
    }

    /// A pack in another folder.
    pub(crate) fn into(
        odb: &'a Odb,
        inventory: &'a Inventory,
        count: u32,
        dir: &Path,
    ) -> Result<Repack<'a>, Error> {
        let mut new = Repack {
            odb,
            inventory,
            temp: Temp::new(dir, "pack")?,
            hash: Sha1::new(),
            buffer: Vec::with_capacity(BUFFER),
            written: 0,
            count,
            entries: Vec::with_capacity(count as usize),
            at: OidMap::default(),
            deflater: Deflater::new(),
            raw: Vec::new(),
            versions: Versions::new(),
            latest: HashMap::new(),
            depth: HashMap::new(),
        };
        new.buffer.extend_from_slice(&pack::header(count));
        Ok(new)
    }

    /// Versions of the same thing that come later in this pack are written as deltas, where that is smaller.
    pub(crate) fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds an object from the copy that counts.
    pub(crate) fn add(&mut self, object: u32) -> Result<(), Error> {
        match self.inventory.home[object as usize] {
            Place::Loose(n) => {
                let (oid, path) = (self.inventory.oid(object), &self.inventory.loose[n as usize].path);
                let (kind, data) = self.odb.read_loose(&oid, path)?;
                self.made(object, kind, &data)
            }
            Place::Packed(p, i) => {
                let file = &self.inventory.packs[p as usize];
                let entry = file.entries[i as usize];
                let mut raw = std::mem::take(&mut self.raw);
                let added =
                    inventory::raw(file, &entry, &mut raw).and_then(|bytes| self.copy(file, &entry, bytes));
                self.raw = raw;
                added
            }
        }
    }

    fn copy(&mut self, file: &PackFile, e: &Packed, bytes: &[u8]) -> Result<(), Error> {
        let fault = |f: String| file.pack.fault(e.offset, &f);
        let (entry, size, head) = pack::entry_of(bytes, e.offset).map_err(fault)?;
        let base = match entry {
            Entry::Plain(_) => {
                if self.base_of(e.object, size, bytes.len() as u64).is_some() {
                    let oid = self.inventory.oid(e.object);
                    let (kind, data) = self.odb.read(&oid)?;
                    if self.delta(e.object, kind, &data, bytes.len())? {
                        return Ok(());
                    }
                }
                self.push(e.object, e.crc, &[bytes], None);
                return self.spill(BUFFER);
            }
            Entry::Offset(at) => {
                let i = file.entries.binary_search_by_key(&at, |e| e.offset);
                let i = i.map_err(|_| file.pack.fault(e.offset, "a delta's base is no object"))?;
                self.inventory.ids[file.entries[i].object as usize]
            }
            Entry::Base(id) => id,
        };
        let placed = self.inventory.find(&base).filter(|n| self.depth_of(*n) < CHAIN_MAX);
        match placed.and_then(|n| Some((n, self.at.get(&base)?))) {
            Some((base, at)) => {
                let header = pack::delta_header(size, self.offset() - at);
                let mut crc = crc32fast::Hasher::new();
                crc.update(&header);
                crc.update(&bytes[head..]);
                self.push(e.object, crc.finalize(), &[&header, &bytes[head..]], Some(base));
                self.spill(BUFFER)
            }
            // The base stays behind, or is too deep: what was made from it is made anew.
            None => {
                let oid = self.inventory.oid(e.object);
                let (kind, data) = self.odb.read(&oid)?;
                self.made(e.object, kind, &data)
            }
        }
    }

    /// An object whose content is at hand: as a delta, or whole.
    fn made(&mut self, object: u32, kind: Kind, data: &[u8]) -> Result<(), Error> {
        let mut out = vec![0; pack::ENTRY_HEADER_MAX + Deflater::bound(data.len())];
        let head = pack::entry_header(kind, data.len() as u64, &mut out);
        let n = head + self.deflater.zlib(data, &mut out[head..]);
        if self.base_of(object, data.len() as u64, n as u64).is_some() && self.delta(object, kind, data, n)? {
            return Ok(());
        }
        self.push(object, crc32fast::hash(&out[..n]), &[&out[..n]], None);
        self.spill(BUFFER)
    }

    fn depth_of(&self, object: u32) -> u32 {
        self.depth.get(&object).copied().unwrap_or(0)
    }

    /// What an object of this size, which takes so many bytes now, may be a delta of.
    fn base_of(&self, object: u32, size: u64, stored: u64) -> Option<u32> {
        let base = *self.latest.get(self.versions.get(&object)?)?;
        let fits = (DELTA_MIN..=DELTA_MAX).contains(&size) && stored >= DELTA_MIN;
        (fits && base != object && self.depth_of(base) < CHAIN_MAX).then_some(base)
    }

    /// Writes the object as a delta, if that takes at most three quarters of what it takes now.
    fn delta(&mut self, object: u32, kind: Kind, data: &[u8], stored: usize) -> Result<bool, Error> {
        let Some(base) = self.base_of(object, data.len() as u64, stored as u64) else { return Ok(false) };
        let id = self.inventory.oid(base);
        if !self.odb.head(&id).is_ok_and(|(_, size)| size <= DELTA_MAX) {
            return Ok(false);
        }
        let (of, from) = self.odb.read(&id)?;
        let delta = match of == kind {
            true => delta::encode(&from, data, data.len() / 2),
            false => None,
        };
        let (Some(delta), Some(at)) = (delta, self.at.get(&self.inventory.ids[base as usize])) else {
            return Ok(false);
        };
        let mut out = pack::delta_header(delta.len() as u64, self.offset() - at);
        let head = out.len();
        out.resize(head + Deflater::bound(delta.len()), 0);
        let n = head + self.deflater.zlib(&delta, &mut out[head..]);
        if n > stored / 4 * 3 {
            return Ok(false);
        }
        self.push(object, crc32fast::hash(&out[..n]), &[&out[..n]], Some(base));
        self.spill(BUFFER)?;
        Ok(true)
    }

    fn push(&mut self, object: u32, crc: u32, parts: &[&[u8]], base: Option<u32>) {
        let (oid, offset) = (self.inventory.ids[object as usize], self.offset());
        if let Some(base) = base {
            self.depth.insert(object, self.depth_of(base) + 1);
        }
        if let Some(of) = self.versions.get(&object)
            && !(base.is_some() && self.inventory.stored(object) > STAR)
        {
            self.latest.insert(*of, object);
        }
        self.entries.push(IdxEntry { oid, crc, offset });
        self.at.insert(oid, offset);
        parts.iter().for_each(|p| self.buffer.extend_from_slice(p));
    }

    fn spill(&mut self, limit: usize) -> Result<(), Error> {
        if self.buffer.len() < limit {
            return Ok(());
        }
        self.hash.update(&self.buffer);
        self.temp.file().write_all_at(&self.buffer, self.written).map_err(Error::io(self.temp.path()))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Puts pack and index in place, durable, with the age of what they were made of. Returns the pack.
    pub(crate) fn finish(mut self, modified: SystemTime, durability: Durability) -> Result<PathBuf, Error> {
        if self.entries.len() != self.count as usize {
            return Err(Error::invalid("a pack has not the objects that were planned"));
        }
        self.spill(1)?;
        let Repack { temp, hash, written, mut entries, .. } = self;
        let sum = hash.finish()?;
        temp.file().write_all_at(sum.as_slice(), written).map_err(Error::io(temp.path()))?;
        // Age decides what is recent enough to be kept without a ref.
        temp.file().set_modified(modified).map_err(Error::io(temp.path()))?;
        temp.sync(durability)?;
        let bytes = idx::encode(&mut entries, &sum)?;
        let dir = temp.path().parent().map(Path::to_owned).unwrap_or_default();
        let mut index = Temp::new(&dir, "idx")?;
        index.write(&bytes)?;
        index.sync(durability)?;
        let path = dir.join(format!("pack-{sum}.pack"));
        temp.place(&path)?;
        index.place(&path.with_extension("idx"))?;
        files::sync_dir(&dir, durability)?;
        Ok(path)
    }
}

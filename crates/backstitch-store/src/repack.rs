//! A new pack made of entries of other packs, copied as they are.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    Durability, Error, Odb,
    deflate::Deflater,
    files::{self, Temp},
    hash::Sha1,
    idx::{self, IdxEntry},
    inventory::{self, Inventory, PackFile, Packed, Place},
    object::Kind,
    pack::{self, Entry},
    pending::OidMap,
};

/// What is collected before it is written.
const BUFFER: usize = 1 << 20;

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
        };
        new.buffer.extend_from_slice(&pack::header(count));
        Ok(new)
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
                self.whole(object, kind, &data)
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
                self.push(e.object, e.crc, &[bytes]);
                return self.spill(BUFFER);
            }
            Entry::Offset(at) => {
                let i = file.entries.binary_search_by_key(&at, |e| e.offset);
                let i = i.map_err(|_| file.pack.fault(e.offset, "a delta's base is no object"))?;
                self.inventory.ids[file.entries[i].object as usize]
            }
            Entry::Base(id) => id,
        };
        match self.at.get(&base) {
            Some(at) => {
                let header = pack::delta_header(size, self.offset() - at);
                let mut crc = crc32fast::Hasher::new();
                crc.update(&header);
                crc.update(&bytes[head..]);
                self.push(e.object, crc.finalize(), &[&header, &bytes[head..]]);
                self.spill(BUFFER)
            }
            // The base stays behind: what was made from it has to stand by itself.
            None => {
                let oid = self.inventory.oid(e.object);
                let (kind, data) = self.odb.read(&oid)?;
                self.whole(e.object, kind, &data)
            }
        }
    }

    fn whole(&mut self, object: u32, kind: Kind, data: &[u8]) -> Result<(), Error> {
        let mut out = vec![0; pack::ENTRY_HEADER_MAX + Deflater::bound(data.len())];
        let head = pack::entry_header(kind, data.len() as u64, &mut out);
        let n = head + self.deflater.zlib(data, &mut out[head..]);
        self.push(object, crc32fast::hash(&out[..n]), &[&out[..n]]);
        self.spill(BUFFER)
    }

    fn push(&mut self, object: u32, crc: u32, parts: &[&[u8]]) {
        let (oid, offset) = (self.inventory.ids[object as usize], self.offset());
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

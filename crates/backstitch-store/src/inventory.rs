//! What is on the disk: every copy of every object, with its length.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use crate::{
    Error, Odb, Oid, adopt, files,
    hash::{self, OID_LEN},
    loose,
    odb::PackSet,
    pack::Pack,
    pending::OidMap,
};

/// All objects of a store, numbered, and all files that hold them.
pub(crate) struct Inventory {
    pub(crate) set: Arc<PackSet>,
    /// In falling order of size, so that of several copies the one in the largest pack is the first.
    pub(crate) packs: Vec<PackFile>,
    pub(crate) loose: Vec<LooseFile>,
    /// Packs without an index.
    pub(crate) orphans: Vec<PathBuf>,
    /// Ids by number.
    pub(crate) ids: Vec<[u8; OID_LEN]>,
    /// The copy that counts, by number.
    pub(crate) home: Vec<Place>,
    numbers: OidMap<u32>,
}

/// Where a copy is: file, and entry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Packed(u32, u32),
    Loose(u32),
}

pub(crate) struct PackFile {
    pub(crate) pack: Arc<Pack>,
    /// In the order of the file.
    pub(crate) entries: Vec<Packed>,
    /// Allocated bytes of the pack and what belongs to it, as far as they become free when it goes.
    pub(crate) disk: u64,
    pub(crate) modified: SystemTime,
    /// Something outside of the store links to it.
    pub(crate) linked: bool,
    /// It came from another repository.
    pub(crate) seed: bool,
    /// Somebody asked by a `.keep` file that it stays.
    pub(crate) kept: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) object: u32,
    pub(crate) crc: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

pub(crate) struct LooseFile {
    pub(crate) object: u32,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) disk: u64,
    pub(crate) modified: SystemTime,
}

/// What may lie beside a pack, and goes with it. The index goes first: a pack without one is not looked at.
pub(crate) const BESIDE: [&str; 4] = ["idx", "rev", "bitmap", "mtimes"];

impl Inventory {
    /// Looks at everything. A pack whose index cannot be read is left out; it is in `set.broken`.
    pub(crate) fn take(odb: &Odb) -> Result<Inventory, Error> {
        odb.refresh()?;
        let set = odb.packs()?;
        let mut inv = Inventory {
            orphans: orphans(odb.objects_dir(), &set)?,
            packs: Vec::with_capacity(set.packs.len()),
            loose: Vec::new(),
            ids: Vec::new(),
            home: Vec::new(),
            numbers: OidMap::default(),
            set: set.clone(),
        };
        let mut packs = Vec::with_capacity(set.packs.len());
        for pack in &set.packs {
            match std::fs::metadata(&pack.path) {
                Ok(meta) => packs.push((pack.clone(), meta)),
                // Gone since the directory was read.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io(&pack.path)(e)),
            }
        }
        packs.sort_by(|(a, x), (b, y)| y.len().cmp(&x.len()).then_with(|| a.path.cmp(&b.path)));
        for (n, (pack, meta)) in packs.into_iter().enumerate() {
            let file = inv.pack_file(n, pack, &meta)?;
            inv.packs.push(file);
        }
        for (oid, path) in loose::list(odb.objects_dir())? {
            let meta = match std::fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io(&path)(e)),
            };
            let object = inv.number(hash::raw(&oid), Place::Loose(inv.loose.len() as u32));
            inv.loose.push(LooseFile {
                object,
                path,
                len: meta.len(),
                disk: meta.blocks() * 512,
                modified: modified(&meta),
            });
        }
        inv.choose_sound_copies();
        Ok(inv)
    }

    fn pack_file(&mut self, n: usize, pack: Arc<Pack>, meta: &Metadata) -> Result<PackFile, Error> {
        let idx = pack.path.with_extension("idx");
        let mut entries = pack.idx.entries().map_err(|what| Error::damaged(&idx, what))?;
        entries.sort_unstable_by_key(|e| e.offset);
        let end = meta.len().saturating_sub(OID_LEN as u64);
        let mut out = Vec::with_capacity(entries.len());
        for (i, e) in entries.iter().enumerate() {
            let next = entries.get(i + 1).map_or(end, |e| e.offset);
            let len = next.checked_sub(e.offset).filter(|len| *len > 0);
            let len = len.ok_or_else(|| Error::damaged(&idx, "the index does not fit its pack"))?;
            let object = self.number(e.oid, Place::Packed(n as u32, i as u32));
            out.push(Packed { object, crc: e.crc, offset: e.offset, len });
        }
        let beside = BESIDE.iter().filter_map(|x| std::fs::metadata(pack.path.with_extension(x)).ok());
        Ok(PackFile {
            entries: out,
            disk: (own(meta) + beside.map(|m| own(&m)).sum::<u64>()) * 512,
            modified: modified(meta),
            linked: meta.nlink() > 1,
            seed: adopt::is_seed(&pack.path),
            kept: pack.path.with_extension("keep").exists(),
            pack,
        })
    }

    fn number(&mut self, id: [u8; OID_LEN], place: Place) -> u32 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.home.push(place);
            (self.ids.len() - 1) as u32
        })
    }

    /// The number of an object that is here.
    pub(crate) fn find(&self, id: &[u8; OID_LEN]) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    pub(crate) fn oid(&self, object: u32) -> Oid {
        Oid::from(self.ids[object as usize])
    }

    /// Where there are several copies, one whose bytes have changed does not count.
    fn choose_sound_copies(&mut self) {
        let mut better = Vec::new();
        for (p, file) in self.packs.iter().enumerate() {
            for (i, e) in file.entries.iter().enumerate() {
                let here = Place::Packed(p as u32, i as u32);
                let home = self.home[e.object as usize];
                if home != here && !self.is_sound(home) && self.is_sound(here) {
                    better.push((e.object, here));
                }
            }
        }
        better.into_iter().for_each(|(object, place)| self.home[object as usize] = place);
    }

    /// The bytes in the pack have the checksum that its index says.
    pub(crate) fn is_sound(&self, place: Place) -> bool {
        match place {
            Place::Loose(_) => true,
            Place::Packed(p, i) => {
                let file = &self.packs[p as usize];
                let sound = raw(file, &file.entries[i as usize], &mut Vec::new()).is_ok();
                file.pack.close();
                sound
            }
        }
    }

    /// The copy that counts takes no room of this store's own: its pack is linked.
    pub(crate) fn is_free(&self, object: u32) -> bool {
        matches!(self.home[object as usize], Place::Packed(p, _) if self.packs[p as usize].linked)
    }

    /// Bytes that the copy which counts takes, without what its file needs beside.
    pub(crate) fn stored(&self, object: u32) -> u64 {
        match self.home[object as usize] {
            Place::Packed(p, i) => self.packs[p as usize].entries[i as usize].len,
            Place::Loose(n) => self.loose[n as usize].len,
        }
    }
}

/// Reads an entry as it is and checks it.
pub(crate) fn raw<'b>(file: &PackFile, e: &Packed, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
    let len = usize::try_from(e.len).map_err(|e| Error::invalid(e.to_string()))?;
    if buffer.len() < len {
        buffer.try_reserve(len - buffer.len()).map_err(|e| Error::invalid(e.to_string()))?;
        buffer.resize(len, 0);
    }
    file.pack.read_raw(e.offset, &mut buffer[..len])?;
    match crc32fast::hash(&buffer[..len]) == e.crc {
        true => Ok(&buffer[..len]),
        false => Err(file.pack.fault(e.offset, "an object has changed")),
    }
}

/// Blocks that nobody else holds by a link.
fn own(meta: &Metadata) -> u64 {
    if meta.nlink() > 1 { 0 } else { meta.blocks() }
}

fn modified(meta: &Metadata) -> SystemTime {
    meta.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Packs that have no index, and indexes that have no pack: a power cut may leave either where names land in any order.
pub(crate) fn orphans(objects: &Path, set: &PackSet) -> Result<Vec<PathBuf>, Error> {
    let dir = objects.join("pack");
    let known: std::collections::HashSet<PathBuf> = set
        .packs
        .iter()
        .map(|p| p.path.clone())
        .chain(set.broken.iter().map(|(p, _)| p.with_extension("pack")))
        .collect();
    let names = files::names(&dir)?;
    let packs = names.iter().filter(|n| files::stem(n, ".pack").is_some()).map(|n| dir.join(n));
    let lost = set.lost.iter().map(|p| p.path.with_extension("idx"));
    let mut out: Vec<PathBuf> = packs.filter(|p| !known.contains(p)).chain(lost).collect();
    out.sort_unstable();
    Ok(out)
}

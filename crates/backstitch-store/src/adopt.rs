//! Objects of another repository, taken over with its packs.
//!
//! Packs are linked, under names that tell them from our own: `pack-seed-<checksum>`. So their blobs are in this store
//! whatever becomes of that repository, and no byte was copied. Collection replaces such a pack by what is needed of it
//! ([`collect`](crate::Store::collect)). Where linking is not possible, entries are copied as they are. Nothing is borrowed.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use crate::{
    Durability, Error, Odb, Oid, Writer, files,
    hash::{self, OID_LEN},
    idx::Idx,
    inventory::{Inventory, Place},
    pack,
    repack::Repack,
};

/// What the names of packs begin with that came from elsewhere.
const SEED: &str = "pack-seed-";
/// A repository with more objects in packs than this is not taken over: to collect it later takes memory for each.
const OBJECTS_MAX: u64 = 2_000_000;

/// The pack came from elsewhere, whether that still links to it or not.
pub(crate) fn is_seed(pack: &Path) -> bool {
    pack.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(SEED.as_bytes()))
}

/// What [`Writer::adopt`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Packs that are linked now.
    pub linked: u64,
    /// Bytes that were copied.
    pub copied: u64,
}

/// A pack of the other repository.
struct Theirs {
    pack: PathBuf,
    /// Its checksum, as its index says it.
    sum: Oid,
    objects: u32,
}

impl Theirs {
    /// `None` for what is not whole, or has an index of another version. A link to a file elsewhere is not followed: a hard
    /// link would be one to the link.
    fn look(pack: PathBuf) -> Option<Theirs> {
        let index = pack.with_extension("idx");
        if ![&pack, &index].iter().all(|p| fs::symlink_metadata(p).is_ok_and(|m| m.is_file())) {
            return None;
        }
        let idx = Idx::open(&index).ok()?;
        let sum = tail(&index, 2 * OID_LEN as u64)?;
        let head = {
            let mut head = [0; pack::HEADER_LEN as usize];
            File::open(&pack).ok()?.read_exact_at(&mut head, 0).ok()?;
            head
        };
        let whole = head == pack::header(idx.len()) && tail(&pack, OID_LEN as u64) == Some(sum);
        whole.then(|| Theirs { pack, sum, objects: idx.len() })
    }
}

/// The id that stands so many bytes before the end.
fn tail(path: &Path, before_end: u64) -> Option<Oid> {
    let file = File::open(path).ok()?;
    let mut id = [0; OID_LEN];
    file.read_exact_at(&mut id, file.metadata().ok()?.len().checked_sub(before_end)?).ok()?;
    Some(Oid::from(id))
}

impl Writer {
    /// Makes the packed objects of the repository with this `objects` directory objects of this store: by linking its packs,
    /// or, where that is not possible and `may_copy` says so, by copying those of `wanted`. They can be asked for with
    /// [`packed_size`](Self::packed_size) at once, and are durable after [`finish`](Self::finish). Loose objects, and those
    /// of alternates, are not taken.
    ///
    /// A pack that is damaged inside is found when it is read, as always.
    ///
    /// # Errors
    /// None but of this store's own folder: what of the other repository cannot be read, linked or copied is left out, and
    /// so is what is still to be copied when `interrupt` is set.
    pub fn adopt(
        &self,
        objects: &Path,
        may_copy: bool,
        wanted: &mut dyn Iterator<Item = Oid>,
        interrupt: &AtomicBool,
    ) -> Result<Adopted, Error> {
        let mut done = Adopted::default();
        let dir = objects.join("pack");
        let packs = files::names(&dir).unwrap_or_default().into_iter();
        let packs = packs.filter_map(|n| Some(dir.join(files::stem(&n, ".idx")?).with_extension("pack")));
        let theirs: Vec<Theirs> = packs.filter_map(Theirs::look).collect();
        if theirs.iter().map(|t| u64::from(t.objects)).sum::<u64>() > OBJECTS_MAX {
            return Ok(done);
        }
        let mut refused = false;
        for t in &theirs {
            match self.link(t) {
                Ok(new) => done.linked += u64::from(new),
                Err(_) => refused = true,
            }
        }
        if refused && may_copy {
            done.copied = self.copy(objects, wanted, interrupt).unwrap_or(0);
        }
        if done != Adopted::default() {
            self.look_again()?;
        }
        Ok(done)
    }

    /// Pack first: one without an index is not looked at.
    fn link(&self, theirs: &Theirs) -> io::Result<bool> {
        let pack = self.objects().join("pack").join(format!("{SEED}{}.pack", theirs.sum));
        let index = pack.with_extension("idx");
        let mut new = false;
        for (from, to) in [(&theirs.pack, &pack), (&theirs.pack.with_extension("idx"), &index)] {
            match fs::hard_link(from, to) {
                // Another capture was here, or somebody who died between the two. By its name it is the same pack.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                linked => {
                    linked?;
                    new = true;
                }
            }
        }
        self.note_linked([pack, index]);
        Ok(new)
    }

    fn copy(
        &self,
        objects: &Path,
        wanted: &mut dyn Iterator<Item = Oid>,
        interrupt: &AtomicBool,
    ) -> Result<u64, Error> {
        let odb = Odb::of_repository(objects);
        let inventory = Inventory::take(&odb)?;
        let mut keep = vec![false; inventory.ids.len()];
        for oid in wanted.filter(|oid| !self.packs_know(oid)) {
            let at = inventory.find(&hash::raw(&oid));
            let packed = at.filter(|n| matches!(inventory.home[*n as usize], Place::Packed(..)));
            if let Some(n) = packed {
                keep[n as usize] = true;
            }
        }
        inventory.keep_bases(&mut keep);
        let order: Vec<u32> = inventory.at_home(&keep).collect();
        let count = u32::try_from(order.len()).map_err(|e| Error::invalid(e.to_string()))?;
        if count == 0 {
            return Ok(0);
        }
        let mut new = Repack::into(&odb, &inventory, count, &self.objects().join("pack"))?;
        for n in order {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            new.add(n)?;
        }
        let path = new.finish(SystemTime::now(), self.durability())?;
        let len = |path: &Path| fs::metadata(path).map_or(0, |m| m.size());
        Ok(len(&path) + len(&path.with_extension("idx")))
    }

    /// Size of an object that is in a pack of the store and not known to be damaged.
    pub fn packed_size(&self, s: &mut crate::Scratch, oid: &Oid) -> Option<u64> {
        let set = self.packs().clone();
        let (pack, at) = set.find(&hash::raw(oid), 0)?;
        let at = at.ok().filter(|_| !self.is_damaged(oid))?;
        self.odb().packed_head(&set, &pack, at, s.inflater()).ok()
    }

    /// True if one of the store's packs has the object, and nobody found it damaged.
    pub fn is_packed(&self, oid: &Oid) -> bool {
        let set = self.packs().clone();
        set.find(&hash::raw(oid), 0).is_some_and(|(_, at)| at.is_ok()) && !self.is_damaged(oid)
    }
}

impl Inventory {
    /// Objects whose copy that counts is in a pack, in the order in which a pack of them is written best.
    pub(crate) fn at_home<'a>(&'a self, keep: &'a [bool]) -> impl Iterator<Item = u32> + 'a {
        self.packs.iter().enumerate().flat_map(move |(p, file)| {
            let here = move |i: usize| Place::Packed(p as u32, i as u32);
            let kept = move |(i, e): &(usize, &crate::inventory::Packed)| {
                keep[e.object as usize] && self.home[e.object as usize] == here(*i)
            };
            file.entries.iter().enumerate().filter(kept).map(|(_, e)| e.object)
        })
    }

    /// Keeps also what kept entries build on.
    pub(crate) fn keep_bases(&self, keep: &mut [bool]) {
        for (p, file) in self.packs.iter().enumerate() {
            // A base comes before what builds on it, but for one that is named by its id.
            for (i, e) in file.entries.iter().enumerate().rev() {
                let home = Place::Packed(p as u32, i as u32);
                if !keep[e.object as usize] || self.home[e.object as usize] != home {
                    continue;
                }
                let mut head = [0; pack::ENTRY_HEADER_MAX + OID_LEN];
                let len = usize::try_from(e.len).unwrap_or(usize::MAX).min(head.len());
                // What cannot be read or understood is told by whoever copies it.
                let read = file.pack.read_raw(e.offset, &mut head[..len]);
                let base = match read.ok().and_then(|()| pack::entry_of(&head[..len], e.offset).ok()) {
                    Some((pack::Entry::Offset(at), ..)) => {
                        let i = file.entries.binary_search_by_key(&at, |e| e.offset);
                        i.ok().map(|i| file.entries[i].object)
                    }
                    Some((pack::Entry::Base(id), ..)) => self.find(&id),
                    _ => None,
                };
                if let Some(base) = base {
                    keep[base as usize] = true;
                }
            }
            file.pack.close();
        }
    }
}

/// Makes files and their folder durable.
pub(crate) fn sync(linked: &[PathBuf], dir: &Path, durability: Durability) -> Result<(), Error> {
    if linked.is_empty() || durability == Durability::None {
        return Ok(());
    }
    for path in linked {
        File::open(path).and_then(|f| f.sync_data()).map_err(Error::io(path))?;
    }
    files::sync_dir(dir, durability)
}

impl crate::Store {
    /// Packs are here that came from another repository and were not yet replaced by what is needed of them.
    pub fn has_seeds(&self) -> bool {
        let names = files::names(&self.git_dir().join("objects/pack")).unwrap_or_default();
        names.iter().any(|n| is_seed(Path::new(n)) && files::stem(n, ".idx").is_some())
    }
}

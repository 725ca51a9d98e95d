//! What becomes free when refs go.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::MetadataExt,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{Error, Odb, Oid, Store, hash, loose, object::Kind, parked, reach};

/// An entry of an index: id, checksum, offset.
const INDEXED: u64 = 28;
/// Checksum at a pack's end.
const TRAILER: u64 = 20;

impl Store {
    /// Bytes on disk of every object: its entries in packs with their share of the indexes, and its loose or parked
    /// file. Objects in damaged indexes are not listed.
    ///
    /// # Errors
    /// The store's folders cannot be read.
    pub fn object_sizes(&self) -> Result<HashMap<Oid, u64>, Error> {
        let odb = self.odb()?;
        odb.refresh()?;
        let mut out: HashMap<Oid, u64> = HashMap::new();
        for pack in &odb.packs()?.packs {
            let Ok(mut entries) = pack.idx.entries() else { continue };
            let Ok(meta) = std::fs::metadata(&pack.path) else { continue };
            entries.sort_unstable_by_key(|e| e.offset);
            let end = meta.len().saturating_sub(TRAILER);
            let ends: Vec<u64> = entries.iter().skip(1).map(|e| e.offset).chain([end]).collect();
            for (e, end) in entries.iter().zip(ends) {
                let Some(oid) = hash::oid(&e.oid) else { continue };
                *out.entry(oid).or_default() += end.saturating_sub(e.offset) + INDEXED;
            }
        }
        for (oid, path) in loose::list(odb.objects_dir())? {
            if let Ok(meta) = std::fs::symlink_metadata(&path) {
                *out.entry(oid).or_default() += meta.blocks() * 512;
            }
        }
        for (oid, path) in parked::list(self.dir())? {
            if let Ok(meta) = std::fs::symlink_metadata(&path) {
                *out.entry(oid).or_default() += meta.blocks() * 512;
            }
        }
        Ok(out)
    }

    /// What dropping the commits of `order` one after the other frees at each step, while those of `keep` stay: bytes on
    /// disk of what no commit that is left reaches. What is shared counts at the step that drops its last holder.
    /// Objects that cannot be read count as nothing.
    ///
    /// # Errors
    /// The store's folders cannot be read; `interrupt` was set.
    pub fn released(&self, keep: &[Oid], order: &[Oid], interrupt: &AtomicBool) -> Result<Vec<u64>, Error> {
        let sizes = self.object_sizes()?;
        let odb = self.odb()?;
        let mut seen = HashSet::new();
        for oid in keep {
            reached(&odb, *oid, &mut seen, interrupt, &mut |_| {})?;
        }
        let mut out = vec![0; order.len()];
        // From the last step on: the first that reaches an object is the one that drops its last holder.
        for (n, oid) in order.iter().enumerate().rev() {
            let bytes = &mut out[n];
            reached(&odb, *oid, &mut seen, interrupt, &mut |o| *bytes += sizes.get(o).copied().unwrap_or(0))?;
        }
        Ok(out)
    }
}

/// Everything below `root` that was not seen before.
fn reached(
    odb: &Odb,
    root: Oid,
    seen: &mut HashSet<Oid>,
    interrupt: &AtomicBool,
    visit: &mut dyn FnMut(&Oid),
) -> Result<(), Error> {
    let mut todo = vec![(root, None)];
    while let Some((oid, kind)) = todo.pop() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if !seen.insert(oid) {
            continue;
        }
        visit(&oid);
        if kind == Some(Kind::Blob) {
            continue;
        }
        if let Ok((kind, data)) = odb.read(&oid) {
            todo.extend(reach::links(kind, &data).unwrap_or_default());
        }
    }
    Ok(())
}

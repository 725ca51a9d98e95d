//! What a store takes on disk.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use crate::{Error, Store};

/// Bytes on disk (allocated blocks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// All of the store.
    pub total: u64,
    /// Packs and their indexes.
    pub packs: u64,
    /// Loose objects.
    pub loose: u64,
    /// Caches.
    pub state: u64,
    /// Refs, loose and packed.
    pub refs: u64,
    /// Contained in `packs`: files that something outside of the store links to as well.
    pub linked: u64,
}

/// Below the store's caches: bytes of the last measurement, then what each writer has written since, eight bytes each.
const ADDED_UP: &str = "used";
/// So many entries are added up before it is measured again.
const ENTRIES: usize = 4096;
/// Taken for each writer besides its objects: a ref, a folder, rounding to blocks.
const BESIDE: u64 = 16 << 10;

/// A writer has written so many bytes. Without a measurement nothing is added up.
pub(crate) fn note_written(store: &Path, bytes: u64) {
    let open = OpenOptions::new().append(true).open(store.join("state").join(ADDED_UP));
    // Only a cache: what is torn is measured again.
    let _ = open.and_then(|mut f| f.write_all(&bytes.saturating_add(BESIDE).to_le_bytes()));
}

impl Store {
    /// The store's own bytes on disk, without those that it shares by links: measured once, and added up since. What
    /// collections freed and other processes removed since is still counted; caches that grew are not.
    ///
    /// # Errors
    /// As [`disk_usage`](Self::disk_usage).
    pub fn used_at_most(&self) -> Result<u64, Error> {
        let file = self.state_dir().join(ADDED_UP);
        let bytes = fs::read(&file).unwrap_or_default();
        let (entries, torn) = bytes.as_chunks::<8>();
        if !entries.is_empty() && torn.is_empty() && entries.len() <= ENTRIES {
            return Ok(entries.iter().fold(0, |sum, e| sum.saturating_add(u64::from_le_bytes(*e))));
        }
        self.used()
    }

    /// The same, measured now; what follows is added to it.
    ///
    /// # Errors
    /// As [`disk_usage`](Self::disk_usage).
    pub fn used(&self) -> Result<u64, Error> {
        let u = self.disk_usage()?;
        let own = u.total.saturating_sub(u.linked);
        let file = self.state_dir().join(ADDED_UP);
        let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
        let _ = open.and_then(|mut f| f.write_all(&own.to_le_bytes()));
        Ok(own)
    }

    /// Bytes on disk. What vanishes meanwhile is not counted.
    pub fn disk_usage(&self) -> Result<DiskUsage, Error> {
        let mut u = DiskUsage::default();
        let git = self.git_dir();
        let objects = git.join("objects");
        let pack = objects.join("pack");
        let refs = git.join("refs");
        let state = self.state_dir();
        let mut todo = vec![self.dir().to_owned()];
        while let Some(dir) = todo.pop() {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io(&dir)(e)),
            };
            for entry in entries {
                let entry = entry.map_err(Error::io(&dir))?;
                let path = entry.path();
                let meta = match fs::symlink_metadata(&path) {
                    Ok(meta) => meta,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(Error::io(&path)(e)),
                };
                let bytes = meta.blocks() * 512;
                u.total += bytes;
                if path.starts_with(&pack) {
                    u.packs += bytes;
                    if meta.is_file() && meta.nlink() > 1 {
                        u.linked += bytes;
                    }
                } else if path.starts_with(&objects) {
                    u.loose += bytes;
                } else if path.starts_with(&state) {
                    u.state += bytes;
                } else if path.starts_with(&refs) || is_packed_refs(&path, &git) {
                    u.refs += bytes;
                }
                if meta.is_dir() {
                    todo.push(path);
                }
            }
        }
        Ok(u)
    }
}

fn is_packed_refs(path: &Path, git: &Path) -> bool {
    path.parent() == Some(git) && path.file_name().is_some_and(|n| n == "packed-refs")
}

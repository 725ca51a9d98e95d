//! What a store takes on disk.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

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

impl Store {
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

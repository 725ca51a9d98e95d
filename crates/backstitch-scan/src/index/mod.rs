//! The paths that a git index lists.
//!
//! Only the paths are read, of versions 2, 3 and 4, of repositories with SHA-1 and SHA-256 ids alike. Of a split index the
//! paths of both halves count together, and below a directory entry of a sparse index everything counts: in doubt a path
//! is tracked, which means that it is kept.

pub(crate) mod entries;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use bstr::{BStr, BString};

use crate::types::ScanError;

/// The index of one repository, read when it is first asked.
#[derive(Debug)]
pub(crate) struct Tracked {
    file: PathBuf,
    /// Bytes of one object id.
    hash_len: usize,
    fold: bool,
    paths: OnceLock<Result<Paths, String>>,
}

impl Tracked {
    pub(crate) fn new(file: PathBuf, hash_len: usize, fold: bool) -> Tracked {
        Tracked { file, hash_len, fold, paths: OnceLock::new() }
    }

    fn paths(&self) -> Result<&Paths, ScanError> {
        self.paths
            .get_or_init(|| Paths::read(&self.file, self.hash_len, self.fold))
            .as_ref()
            .map_err(|what| ScanError::Rules { path: self.file.clone(), what: what.clone() })
    }

    /// True if the index lists the file `path` (from the top of the work tree), or for a directory anything below it.
    pub(crate) fn lists(&self, path: &BStr, is_dir: bool) -> Result<bool, ScanError> {
        let mut full = path.to_owned();
        if self.fold {
            full.make_ascii_lowercase();
        }
        Ok(self.paths()?.lists(&mut full, is_dir))
    }

    /// What tells one state of the index file from another; empty if there is none.
    pub(crate) fn identity(&self) -> Vec<u8> {
        use std::os::unix::fs::MetadataExt;
        match fs::metadata(&self.file) {
            Ok(m) => [
                m.dev(),
                m.ino(),
                m.size(),
                m.mtime() as u64,
                m.mtime_nsec() as u64,
                m.ctime() as u64,
                m.ctime_nsec() as u64,
            ]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Paths in byte order, one after the other.
#[derive(Debug, Default)]
struct Paths {
    pool: Vec<u8>,
    /// Start and length in `pool`.
    spans: Vec<(u32, u32)>,
    /// Directory entries of a sparse index are among the paths.
    sparse: bool,
}

impl Paths {
    fn read(file: &Path, hash_len: usize, fold: bool) -> Result<Paths, String> {
        let mut paths = Paths::default();
        let data = match fs::read(file) {
            Ok(data) => data,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(paths),
            Err(e) => return Err(e.to_string()),
        };
        let shared = paths.add(&data, hash_len).ok_or("not a git index that can be read")?;
        let mut sorted = true;
        if let Some(hex) = shared {
            let base = file.with_file_name(format!("sharedindex.{hex}"));
            let data = fs::read(&base).map_err(|e| format!("{}: {e}", base.display()))?;
            paths.add(&data, hash_len).ok_or_else(|| format!("{}: not a git index", base.display()))?;
            sorted = false;
        }
        if fold {
            paths.pool.make_ascii_lowercase();
            sorted = false;
        }
        if !sorted {
            let pool = &paths.pool;
            paths.spans.sort_by(|a, b| span(pool, *a).cmp(span(pool, *b)));
        }
        Ok(paths)
    }

    /// Adds the paths of one index file; returns the name of the shared index that it stands on.
    fn add(&mut self, data: &[u8], hash_len: usize) -> Option<Option<String>> {
        let extensions = entries::read(data, hash_len, |entry| {
            // An empty path in a split index takes its path from the shared one.
            if entry.path.is_empty() {
                return Some(());
            }
            self.sparse |= entry.mode() == 0o40000;
            let from = u32::try_from(self.pool.len()).ok()?;
            self.pool.extend_from_slice(entry.path);
            self.spans.push((from, entry.path.len() as u32));
            Some(())
        })?;
        let mut shared = None;
        for (name, body) in extensions {
            if name == b"link" {
                let id = body.get(..hash_len)?;
                if id.iter().any(|b| *b != 0) {
                    shared = Some(id.iter().map(|b| format!("{b:02x}")).collect());
                }
            }
        }
        Some(shared)
    }

    fn lists(&self, path: &mut BString, is_dir: bool) -> bool {
        if is_dir {
            path.push(b'/');
        }
        let at = self.spans.partition_point(|s| span(&self.pool, *s) < path.as_slice());
        let found = self.spans.get(at).is_some_and(|s| {
            let there = span(&self.pool, *s);
            if is_dir { there.starts_with(path) } else { there == path.as_slice() }
        });
        found || self.sparse && self.below_sparse(path)
    }

    /// True if a directory entry of a sparse index lies above `path`.
    fn below_sparse(&self, path: &[u8]) -> bool {
        path.iter().enumerate().filter(|(_, b)| **b == b'/').any(|(i, _)| {
            let dir = &path[..=i];
            self.spans.binary_search_by(|s| span(&self.pool, *s).cmp(dir)).is_ok()
        })
    }
}

fn span(pool: &[u8], (start, len): (u32, u32)) -> &[u8] {
    &pool[start as usize..(start + len) as usize]
}

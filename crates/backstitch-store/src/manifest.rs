//! `manifest.json`: whose history this is.

use std::{io, path::Path};

use crate::{Durability, Error, files};

/// The newest format that this program writes and reads.
pub const FORMAT: u32 = 1;

pub(crate) const NAME: &str = "manifest.json";

/// What a store says about its workspace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// Version of the store's format, see [`FORMAT`].
    pub format: u32,
    /// Real path of the workspace, bytes kept exactly (percent-escaped when not UTF-8).
    pub path: String,
    /// Its device.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// When that inode was made, where the file system says so.
    pub birth_ns: Option<i128>,
    /// When the store was made.
    pub created_ms: i64,
    /// When it was last used.
    pub last_used_ms: i64,
    /// Unknown fields are kept.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Manifest {
    pub(crate) fn read(dir: &Path) -> Result<Manifest, Error> {
        let path = dir.join(NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(Error::NoStore { path: dir.to_owned() });
            }
            Err(e) => return Err(Error::io(&path)(e)),
        };
        // The format is looked at first: a newer one may have changed everything else.
        #[derive(serde::Deserialize)]
        struct Head {
            format: u32,
        }
        let damaged = |e: serde_json::Error| Error::damaged(&path, e.to_string());
        let head: Head = serde_json::from_slice(&bytes).map_err(damaged)?;
        if head.format > FORMAT {
            return Err(Error::TooNew { path, found: head.format, known: FORMAT });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    pub(crate) fn write(&self, dir: &Path, durability: Durability) -> Result<(), Error> {
        let path = dir.join(NAME);
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|e| Error::invalid(format!("the manifest: {e}")))?;
        bytes.push(b'\n');
        files::replace(dir, "manifest", &path, &bytes, durability)?;
        files::sync_dir(dir, durability)
    }
}

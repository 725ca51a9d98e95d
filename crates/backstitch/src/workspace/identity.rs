//! Which folder it is, and what its store is called.

use std::{
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use backstitch_store::Manifest;

use crate::{
    error::{Error, Result},
    paths,
    record::{self, Incarnation},
    settings,
};

/// The real path where it resolves, else the real path of the nearest parent that does, else lexical.
pub(crate) fn real_path(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir).map_err(|e| Error::io(dir, e))?;
    let mut rest = Vec::new();
    let mut at = absolute.as_path();
    loop {
        match at.canonicalize() {
            Ok(mut p) => {
                for part in rest.iter().rev() {
                    p.push(part);
                }
                return Ok(p);
            }
            Err(_) => match (at.parent(), at.file_name()) {
                (Some(parent), Some(name)) => {
                    rest.push(name.to_owned());
                    at = parent;
                }
                _ => return Ok(absolute),
            },
        }
    }
}

/// `<name>-<16 hex of the path's hash>`.
pub fn store_name(root: &Path) -> String {
    let name: String = root
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_else(|| "root".to_owned())
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .take(40)
        .collect();
    let name = name.trim_start_matches('.');
    let hash = settings::digest(root.as_os_str().as_bytes());
    format!("{}-{}", if name.is_empty() { "dir" } else { name }, &hash[..16.min(hash.len())])
}

pub(super) fn has_git(dir: &Path) -> bool {
    dir.join(".git").symlink_metadata().is_ok()
}

/// Exactly `/`, home, volume roots, Desktop, Documents, Downloads (SEMANTICS 25).
pub fn is_unbounded(root: &Path, home: Option<&Path>) -> bool {
    if root.parent().is_none() {
        return true;
    }
    if let Some(home) = home {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        if root == home || ["Desktop", "Documents", "Downloads"].iter().any(|d| root == home.join(d)) {
            return true;
        }
    }
    let parent_dev = root.parent().and_then(|p| p.metadata().ok()).map(|m| m.dev());
    let own = root.metadata().ok().map(|m| m.dev());
    let name = root.parent().map(|p| p.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    // A mount point directly below a place where volumes are mounted.
    parent_dev.is_some()
        && own.is_some()
        && parent_dev != own
        && (matches!(name.as_slice(), b"/mnt" | b"/media" | b"/Volumes")
            || name.starts_with(b"/media/")
            || name.starts_with(b"/run/media/"))
}

/// Device, inode and birth time of a folder.
pub fn incarnation(root: &Path) -> Result<Incarnation> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let m = root.metadata().map_err(|e| Error::io(root, e))?;
    let birth_ns = statx(CWD, root, AtFlags::empty(), StatxFlags::BTIME)
        .ok()
        .filter(|s| s.stx_mask & StatxFlags::BTIME.bits() != 0)
        .map(|s| s.stx_btime.tv_sec * 1_000_000_000 + i64::from(s.stx_btime.tv_nsec));
    Ok(Incarnation { dev: m.dev(), ino: m.ino(), birth_ns })
}

/// Wrapper for paths in the manifest.
pub fn manifest_path(root: &Path) -> String {
    match root.to_str() {
        Some(s) if !s.contains('%') => s.to_owned(),
        _ => root.as_os_str().as_bytes().iter().map(|b| paths::escape(&[*b])).collect(),
    }
}

/// Inverse of [`manifest_path`].
pub fn from_manifest_path(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    match paths::unescape(text.as_bytes()) {
        Some(b) => PathBuf::from(std::ffi::OsString::from_vec(b.into())),
        None => PathBuf::from(text),
    }
}

/// The manifest of a store to come.
pub(super) fn new_manifest(root: &Path) -> Result<Manifest> {
    let inc = incarnation(root)?;
    let m = root.metadata().map_err(|e| Error::io(root, e))?;
    let now = record::now_ms();
    let mut extra = serde_json::Map::new();
    extra.insert("uid".to_owned(), m.uid().into());
    extra.insert("gid".to_owned(), m.gid().into());
    Ok(Manifest {
        format: 1,
        path: manifest_path(root),
        dev: inc.dev,
        ino: inc.ino,
        birth_ns: inc.birth_ns.map(i128::from),
        created_ms: now,
        last_used_ms: now,
        extra,
    })
}

/// A store of any workspace.
#[derive(Clone, Debug)]
pub struct KnownStore {
    /// The store's folder.
    pub dir: PathBuf,
    /// Its manifest; an unreadable one is the error.
    pub manifest: std::result::Result<Manifest, String>,
}

/// All stores below a base folder; a missing base gives an empty list.
pub fn stores(base: &Path) -> Vec<KnownStore> {
    let Ok(dir) = std::fs::read_dir(base.join("stores")) else { return Vec::new() };
    let mut all: Vec<KnownStore> = dir
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| {
            let dir = e.path();
            let manifest = std::fs::read(dir.join("manifest.json"))
                .map_err(|e| e.to_string())
                .and_then(|b| serde_json::from_slice(&b).map_err(|e| e.to_string()));
            KnownStore { dir, manifest }
        })
        .collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
}

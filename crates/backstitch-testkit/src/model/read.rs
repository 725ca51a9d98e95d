//! A model read from a disk.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

use super::{Content, Entry, Identity, Kind, TreeModel, Xattrs};
use crate::text::show;

/// What to read of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether entries named exactly `.git` are entered.
    pub git: bool,
    /// Whether the content of files is read.
    pub content: bool,
    /// Whether extended attributes are read, of what can be opened.
    pub xattrs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { git: false, content: true, xattrs: false }
    }
}

impl TreeModel {
    /// Reads a folder without what is named `.git`.
    pub fn read(root: &Path) -> io::Result<Self> {
        Self::read_with(root, Options::default())
    }

    /// Reads a folder with every `.git` in it.
    pub fn read_all(root: &Path) -> io::Result<Self> {
        Self::read_with(root, Options { git: true, ..Options::default() })
    }

    /// Reads a folder. Links are never followed; an entry that vanishes meanwhile is an error.
    pub fn read_with(root: &Path, options: Options) -> io::Result<Self> {
        let dir = rustix::fs::openat(CWD, root, DIR_FLAGS, Mode::empty())
            .map_err(|e| at(root.as_os_str().as_bytes(), e))?;
        let stat = rustix::fs::fstat(&dir)?;
        let mut model = TreeModel { root: entry_of(&stat, Kind::Dir), entries: BTreeMap::new() };
        read_dir(&dir, &mut Vec::new(), options, &mut model.entries)?;
        Ok(model)
    }
}

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

fn at(path: &[u8], error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", show(path)))
}

fn entry_of(stat: &rustix::fs::Stat, kind: Kind) -> Entry {
    let nanos = |s: i64, n: i64| i128::from(s) * 1_000_000_000 + i128::from(n);
    #[allow(clippy::unnecessary_cast)]
    let identity = Identity {
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        mtime_ns: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink as u64,
    };
    #[allow(clippy::unnecessary_cast)]
    let mode = if kind == Kind::Link { 0 } else { stat.st_mode as u32 & 0o7777 };
    Entry { kind, mode, content: None, link: None, xattrs: None, identity: Some(identity) }
}

fn read_dir(
    dir: &OwnedFd,
    prefix: &mut Vec<u8>,
    options: Options,
    out: &mut BTreeMap<Vec<u8>, Entry>,
) -> io::Result<()> {
    let mut names = Vec::new();
    for item in Dir::read_from(dir).map_err(|e| at(prefix, e))? {
        let item = item.map_err(|e| at(prefix, e))?;
        let name = item.file_name().to_bytes();
        if name != b"." && name != b".." && (options.git || name != b".git") {
            names.push(item.file_name().to_owned());
        }
    }
    let base = prefix.len();
    for name in names {
        if base > 0 {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(name.to_bytes());
        let stat = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| at(prefix, e))?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        };
        let mut entry = entry_of(&stat, kind);
        match kind {
            Kind::Link => {
                let text = rustix::fs::readlinkat(dir, &name, Vec::new()).map_err(|e| at(prefix, e))?;
                entry.link = Some(text.into_bytes());
            }
            Kind::File if options.content => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                entry.content = Some(match rustix::fs::openat(dir, &name, flags, Mode::empty()) {
                    Ok(fd) => {
                        if options.xattrs {
                            entry.xattrs = Some(xattrs(&fd).map_err(|e| at(prefix, e))?);
                        }
                        blob(fs::File::from(fd)).map_err(|e| at(prefix, e))?
                    }
                    Err(error) => Content::Unreadable(error.to_string()),
                });
            }
            Kind::Dir => match rustix::fs::openat(dir, &name, DIR_FLAGS, Mode::empty()) {
                Ok(fd) => {
                    if options.xattrs {
                        entry.xattrs = Some(xattrs(&fd).map_err(|e| at(prefix, e))?);
                    }
                    read_dir(&fd, prefix, options, out)?;
                }
                Err(error) => entry.content = Some(Content::Unreadable(error.to_string())),
            },
            _ => {}
        }
        out.insert(prefix.clone(), entry);
        prefix.truncate(base);
    }
    Ok(())
}

/// The attributes that a checkpoint keeps; a file system without any has none.
fn xattrs(fd: &OwnedFd) -> io::Result<Xattrs> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(fd, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut out = Xattrs::new();
    for name in names[..length].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        if name.starts_with(b"user.")
            || name.starts_with(b"system.posix_acl_")
            || name == b"security.capability"
        {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::fgetxattr(fd, name, &mut value[..])?;
            value.truncate(length);
            out.insert(name.to_vec(), value);
        }
    }
    Ok(out)
}

/// The id that git gives to what is left to read of `file`.
fn blob(mut file: fs::File) -> io::Result<Content> {
    let size = file.metadata()?.len();
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(format!("blob {size}\0").as_bytes());
    let mut buffer = vec![0; (size.clamp(1, 1 << 18)) as usize];
    let mut seen = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                seen += n as u64;
            }
        }
    }
    if seen != size {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok(Content::Blob { id: hex(hasher)?, size })
}

/// The id that git gives to these bytes as a blob.
pub fn blob_id(bytes: &[u8]) -> io::Result<String> {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(format!("blob {}\0", bytes.len()).as_bytes());
    hasher.update(bytes);
    hex(hasher)
}

fn hex(hasher: gix_hash::Hasher) -> io::Result<String> {
    Ok(hasher.try_finalize().map_err(io::Error::other)?.to_hex().to_string())
}

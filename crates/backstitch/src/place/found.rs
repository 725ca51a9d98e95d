//! What stands at a path, content hashed.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd},
};

use backstitch_store::Oid;
use bstr::{BStr, BString, ByteSlice};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, openat, readlinkat, statx},
    io::Errno,
};

use super::{Place, last_name};
use crate::{error::Result, meta::Attrs, plan::Stand, tree::Node};

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// File, link or directory.
    Is(Stand),
    /// A FIFO, socket or device.
    Special,
}

/// Compares what was found with what was expected: type, content, permission bits.
pub fn matches(found: &Found, want: Option<&Stand>) -> bool {
    match (found, want) {
        (Found::Absent, None) => true,
        (Found::Is(a), Some(b)) => a.node == b.node,
        _ => false,
    }
}

impl Place {
    /// What stands at `path` now, content hashed. A parent that is missing or no directory means nothing stands there.
    pub fn inspect(&mut self, path: &BStr) -> Result<Found> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => {
                return match Errno::from_io_error(&e) {
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Found::Absent),
                    _ => Err(self.error(path, e)),
                };
            }
        }
        let name = last_name(path).to_owned();
        self.inspect_name(&name).map_err(|e| self.error(path, e))
    }

    pub(super) fn inspect_name(&self, name: &[u8]) -> io::Result<Found> {
        let dir = self.dir();
        let want = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID | StatxFlags::SIZE;
        let s = match statx(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW, want) {
            Ok(s) => s,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Found::Absent),
            Err(e) => return Err(e.into()),
        };
        let mode = u32::from(s.stx_mode);
        let owner = ((s.stx_uid, s.stx_gid) != self.owner).then_some((s.stx_uid, s.stx_gid));
        let mut attrs = Attrs { owner, xattrs: Vec::new() };
        let node = match FileType::from_raw_mode(mode) {
            FileType::Directory => Node::Dir { mode: mode & 0o7777 },
            FileType::Symlink => {
                let text = readlinkat(dir, name.as_bytes(), Vec::new())?;
                Node::Link { oid: hash(text.as_bytes())? }
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let mut f = File::from(openat(dir, name.as_bytes(), flags, Mode::empty())?);
                attrs.xattrs = xattrs(f.as_fd());
                let size = f.metadata()?.len();
                Node::File { oid: hash_file(&mut f, size)?, mode: mode & 0o7777 }
            }
            _ => return Ok(Found::Special),
        };
        Ok(Found::Is(Stand { node, attrs }))
    }
}

fn blob_header(size: u64) -> gix_hash::Hasher {
    let mut h = gix_hash::hasher(gix_hash::Kind::Sha1);
    h.update(format!("blob {size}\0").as_bytes());
    h
}

fn finish(h: gix_hash::Hasher) -> io::Result<Oid> {
    h.try_finalize().map_err(|e| io::Error::other(e.to_string()))
}

/// The id of a blob.
pub(crate) fn hash(bytes: &[u8]) -> io::Result<Oid> {
    let mut h = blob_header(bytes.len() as u64);
    h.update(bytes);
    finish(h)
}

/// Hashes exactly what is there; a file that grows or shrinks meanwhile has an id that matches nothing.
pub(crate) fn hash_file(f: &mut impl Read, size: u64) -> io::Result<Oid> {
    let mut h = blob_header(size);
    let mut buf = vec![0u8; usize::try_from(size.clamp(1, 1 << 17)).unwrap_or(1 << 17)];
    loop {
        match f.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => h.update(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    finish(h)
}

/// The attributes that are kept.
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> Vec<(BString, BString)> {
    let mut list = vec![0u8; 512];
    let mut listed = rustix::fs::flistxattr(fd, &mut list[..]);
    if listed == Err(Errno::RANGE) {
        list.resize(1 << 16, 0);
        listed = rustix::fs::flistxattr(fd, &mut list[..]);
    }
    let Ok(n) = listed else { return Vec::new() };
    let mut out = Vec::new();
    for key in list[..n].split(|b| *b == 0).filter(|k| !k.is_empty()) {
        let kept =
            key.starts_with(b"user.") || key == b"system.posix_acl_access" || key == b"security.capability";
        if !kept {
            continue;
        }
        let mut value = vec![0u8; 1 << 16];
        if let Ok(n) = rustix::fs::fgetxattr(fd, key, &mut value) {
            value.truncate(n);
            out.push((key.into(), value.into()));
        }
    }
    out.sort();
    out
}

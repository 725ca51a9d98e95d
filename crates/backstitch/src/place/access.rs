//! What the system lets this process do at a path.

use std::io;

use bstr::{BStr, ByteSlice};
use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::Errno,
};

use super::{Place, last_name};

/// What [`Place::parent_access`] found.
#[derive(Clone, Copy, Debug)]
pub struct ParentAccess {
    /// Permission bits.
    pub mode: u32,
    /// Belongs to this user.
    pub owned: bool,
    /// Entries may be changed.
    pub writable: bool,
    /// Mounted read-only.
    pub read_only_fs: bool,
}

impl Place {
    /// Mode, owner and whether this process may change entries of the directory that holds `path`.
    pub fn parent_access(&mut self, path: &BStr) -> io::Result<ParentAccess> {
        self.parent(path)?;
        let s = rustix::fs::fstat(self.dir())?;
        let euid = rustix::process::geteuid().as_raw();
        let ok = rustix::fs::accessat(
            self.dir(),
            ".",
            rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
            AtFlags::EACCESS,
        );
        Ok(ParentAccess {
            mode: s.st_mode & 0o7777,
            owned: s.st_uid == euid,
            writable: ok.is_ok(),
            read_only_fs: ok == Err(Errno::ROFS),
        })
    }

    /// The file system forbids changes of this path whatever the mode says.
    pub fn is_immutable(&mut self, path: &BStr) -> bool {
        if self.parent(path).is_err() {
            return false;
        }
        let bits = |name: &[u8]| {
            statx(self.dir(), name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
                .map(|s| {
                    s.stx_attributes
                        & (rustix::fs::StatxAttributes::IMMUTABLE | rustix::fs::StatxAttributes::APPEND)
                })
                .is_ok_and(|b| !b.is_empty())
        };
        bits(last_name(path)) || bits(b".")
    }

    /// The directory looks like a repository's own folder: HEAD, objects and refs, or a linked work tree's.
    pub fn is_repository(&self, dir: &BStr) -> bool {
        let Ok(fd) = self.open_dir(dir) else { return false };
        let there = |name: &str| statx(&fd, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok();
        there("HEAD") && (there("objects") && there("refs") || there("commondir")) && !there(".git")
    }

    /// Number of names of the file at `path`.
    pub fn links(&mut self, path: &BStr) -> u32 {
        if self.parent(path).is_err() {
            return 0;
        }
        statx(self.dir(), last_name(path).as_bytes(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::NLINK)
            .map_or(0, |s| s.stx_nlink)
    }
}

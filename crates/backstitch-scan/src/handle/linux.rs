//! The calls of Linux: statx, and getdents64 into a buffer of our own.

use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, FileType, RawDir, Statx, StatxFlags},
    io::Errno,
};

use super::{Names, Node, node, portable};

const MASK: StatxFlags = StatxFlags::BASIC_STATS.difference(StatxFlags::ATIME);

fn to_node(x: &Statx) -> Node {
    let time = |t: rustix::fs::StatxTimestamp| i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec);
    node(
        FileType::from_raw_mode(x.stx_mode.into()),
        crate::types::Stat {
            kind: crate::types::Kind::File,
            mode: u32::from(x.stx_mode) & 0o7777,
            size: x.stx_size,
            blocks512: x.stx_blocks,
            mtime_ns: time(x.stx_mtime),
            ctime_ns: time(x.stx_ctime),
            dev: rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor),
            ino: x.stx_ino,
            nlink: x.stx_nlink.into(),
            uid: x.stx_uid,
            gid: x.stx_gid,
        },
    )
}

#[inline]
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Node, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(dir, name, flags, MASK) {
        Ok(x) => Ok(to_node(&x)),
        // An old kernel, or a sandbox that does not know the call.
        Err(Errno::NOSYS) => portable::stat_at(dir, name),
        Err(e) => Err(e),
    }
}

#[inline]
pub(crate) fn stat_fd(fd: impl AsFd) -> Result<Node, Errno> {
    let fd = fd.as_fd();
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MASK) {
        Ok(x) => Ok(to_node(&x)),
        Err(Errno::NOSYS) => portable::stat_fd(fd),
        Err(e) => Err(e),
    }
}

pub(crate) fn list(dir: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>], names: &mut Names) -> Result<(), Errno> {
    let mut entries = RawDir::new(dir, buf);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.push_entry(entry.file_name().to_bytes(), entry.file_type());
    }
    Ok(())
}

//! System calls: everything goes through handles of directories and never follows a link.

#[cfg(target_os = "linux")]
mod linux;
mod portable;

use std::{
    ffi::CStr,
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use bstr::{BString, ByteSlice};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags},
    io::Errno,
};

use crate::types::{Kind, SpecialType, Stat, Xattrs};
#[cfg(target_os = "linux")]
use linux as native;
#[cfg(not(target_os = "linux"))]
use portable as native;

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// What there is at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Covered(Stat),
    /// Neither file, link nor directory, with its device and inode.
    Special(SpecialType, u64, u64),
}

/// Puts together what a call said, whose kind is not filled in yet.
fn node(file_type: FileType, stat: Stat) -> Node {
    let special = |special| Node::Special(special, stat.dev, stat.ino);
    let kind = match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        FileType::Directory => Kind::Dir,
        FileType::Fifo => return special(SpecialType::Fifo),
        FileType::Socket => return special(SpecialType::Socket),
        FileType::CharacterDevice => return special(SpecialType::CharDevice),
        FileType::BlockDevice => return special(SpecialType::BlockDevice),
        FileType::Unknown => return special(SpecialType::Unknown),
    };
    Node::Covered(Stat { kind, ..stat })
}

/// Looks at the child `name`, never through it.
#[inline]
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Node, Errno> {
    native::stat_at(dir, name)
}

/// The same by a path, of a file, link or directory.
pub(crate) fn stat_path(path: &Path) -> io::Result<Stat> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    match stat_at(CWD, &name)? {
        Node::Covered(stat) => Ok(stat),
        Node::Special(..) => Err(io::Error::other("neither file, link nor directory")),
    }
}

/// Looks at what is open.
#[inline]
pub(crate) fn stat_fd(fd: impl AsFd) -> Result<Node, Errno> {
    native::stat_fd(fd)
}

/// Lists a directory, without `.` and `..`, in the order that the system gives.
pub(crate) fn list(dir: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>], names: &mut Names) -> Result<(), Errno> {
    native::list(dir, buf, names)
}

/// Opens the root; a link there is followed, since the caller named it.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, DIR_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty())
}

/// Opens the child directory `name`.
#[inline]
pub(crate) fn open_dir(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIR_FLAGS, Mode::empty())
}

/// Opens the child file `name`; it may turn out to be something else.
pub(crate) fn open_file(dir: BorrowedFd<'_>, name: &CStr) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// Reads the text of the child link `name`.
pub(crate) fn read_link(dir: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(dir, name, Vec::new()).map(|text| text.into_bytes())
}

/// Names of one directory, each with a NUL at its end, one after the other.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) pool: Vec<u8>,
    /// Start in `pool`, length without the NUL, and what the directory says of the type.
    pub(crate) list: Vec<(u32, u16, Hint)>,
}

/// What a directory says of the type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Dir,
    Other,
    Unknown,
}

impl Names {
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        self.list.clear();
    }

    pub(crate) fn push(&mut self, name: &[u8], hint: Hint) {
        let start = self.pool.len() as u32;
        self.pool.extend_from_slice(name);
        self.pool.push(0);
        self.list.push((start, name.len() as u16, hint));
    }

    /// Adds what a directory lists; `.` and `..` do not count.
    fn push_entry(&mut self, name: &[u8], file_type: FileType) {
        if name == b"." || name == b".." {
            return;
        }
        let hint = match file_type {
            FileType::Directory => Hint::Dir,
            FileType::Unknown => Hint::Unknown,
            _ => Hint::Other,
        };
        self.push(name, hint);
    }

    /// Sorts by raw name.
    pub(crate) fn sort(&mut self) {
        let pool = &self.pool;
        let name = |&(start, len, _): &(u32, u16, Hint)| &pool[start as usize..][..usize::from(len)];
        self.list.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        // A directory that changes while it is listed may give a name twice.
        self.list.dedup_by(|a, b| name(a) == name(b));
    }
}

/// How far the times of a file system can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// Two changes within this time may leave one time stamp.
    pub(crate) granularity_ns: i128,
    /// A directory whose own stat is unchanged holds the same names. True where it was tested.
    pub(crate) dirs: bool,
}

/// What is known of the file system that `fd` lies on.
pub(crate) fn trust_of(fd: impl AsFd) -> Trust {
    #[cfg(target_os = "linux")]
    {
        const EXT: i64 = 0xef53;
        const XFS: i64 = 0x5846_5342;
        const BTRFS: i64 = 0x9123_683e;
        const TMPFS: i64 = 0x0102_1994;
        // The type of `f_type` differs from machine to machine.
        #[allow(clippy::unnecessary_cast)]
        let magic = rustix::fs::fstatfs(&fd).map(|s| s.f_type as i64);
        if let Ok(EXT | XFS | BTRFS | TMPFS) = magic {
            return Trust { granularity_ns: 20_000_000, dirs: true };
        }
    }
    let _ = fd;
    Trust { granularity_ns: 2_000_000_000, dirs: false }
}

fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default" | b"security.capability")
}

/// Reads the extended attributes that are kept. A file system without any has none.
pub(crate) fn xattrs(fd: impl AsFd) -> Result<Option<Xattrs>, Errno> {
    let fd = fd.as_fd();
    xattrs_by(|list| rustix::fs::flistxattr(fd, list), |name, value| rustix::fs::fgetxattr(fd, name, value))
}

/// The same, of a name in a directory that is open, without opening it; a link is not followed. `None` where this system
/// has no way to.
pub(crate) fn xattrs_at(dir: BorrowedFd<'_>, name: &CStr) -> Option<Result<Option<Xattrs>, Errno>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    // By the open directory and not by its path, which may lead elsewhere by now.
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes_with_nul());
    let path = CStr::from_bytes_with_nul(&path).ok()?;
    let found = xattrs_by(
        |list| rustix::fs::llistxattr(path, list),
        |name, value| rustix::fs::lgetxattr(path, name, value),
    );
    match found {
        // Gone, or there is no `/proc`.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => None,
        found => Some(found),
    }
}

fn xattrs_by(
    list_into: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get_into: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<Xattrs>, Errno> {
    let mut list = [0u8; 512];
    let mut long = Vec::new();
    let names = match list_into(&mut list[..]) {
        Ok(0) => return Ok(None),
        Ok(len) => &list[..len],
        Err(Errno::RANGE) => {
            long.resize(1 << 16, 0);
            let len = list_into(&mut long[..])?;
            &long[..len]
        }
        // Some file systems say so in their own way.
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut found: Xattrs = Vec::new();
    for name in names.split(|b| *b == 0).filter(|name| is_kept(name)) {
        let mut value = vec![0u8; 1 << 10];
        let len = match get_into(name, &mut value[..]) {
            Err(Errno::RANGE) => {
                value.resize(1 << 16, 0);
                get_into(name, &mut value[..])
            }
            other => other,
        };
        match len {
            Ok(len) => {
                value.truncate(len);
                found.push((name.into(), value.into()));
            }
            // Gone since it was listed.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    found.sort();
    Ok((!found.is_empty()).then_some(found))
}

/// Reads the ignore file `name`: `None` unless it is a regular file. A link is not followed; git does not either.
pub(crate) fn read_rules(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let absent = |e: Errno| matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    match stat_at(dir, name) {
        Ok(Node::Covered(Stat { kind: Kind::File, .. })) => {}
        Ok(_) => return Ok(None),
        Err(e) if absent(e) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    let file = match open_file(dir, name) {
        Ok(file) => file,
        Err(e) if absent(e) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match stat_fd(&file)? {
        Node::Covered(Stat { kind: Kind::File, .. }) => crate::repository::read_limited(file).map(Some),
        _ => Ok(None),
    }
}

/// The same, in the directory at `dir`.
pub(crate) fn read_rules_at(dir: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let fd = open_root(dir)?;
    let name = std::ffi::CString::new(name)?;
    read_rules(fd.as_fd(), &name)
}

/// The system's text for an error, without its number.
pub(crate) fn error_text(e: &io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Joins a directory's path and a name.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> BString {
    let mut path = BString::from(dir);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.trim_end_with(|c| c == '\0').as_bytes());
    path
}

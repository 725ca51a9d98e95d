//! The only module that changes a work tree. Every step goes through directory handles, never follows a link, never
//! leaves the root, never enters a `.git`. Absolute paths are files elsewhere that a session touched: they start at `/`, by the
//! same rules, and enter no store.
//!
//! Protocol of one file, on which recovery relies (`<op>` is the operation's id, `<n>` the item's number):
//! - new content is written to an unnamed file where the system has them, else to `.backstitch-tmp-<op>-w<n>`; a `w` name
//!   may hold anything and is only ever removed;
//! - complete content gets the name `.backstitch-tmp-<op>-x<n>` and is then *exchanged* with the target. What stands under
//!   an `x` name is either our complete new content or what came out of the target;
//! - what is deleted is first renamed to `.backstitch-tmp-<op>-d<n>`, then looked at, then unlinked;
//! - nothing is unlinked whose bytes the store has no copy of: it is renamed to the store's `parked/<id>`.

mod access;
mod found;
mod leftovers;
mod park;
mod put;

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags, chmodat, fchown, fsetxattr,
    mkdirat, openat, renameat_with, statx, unlinkat,
};
use rustix::io::Errno;

pub(crate) use self::found::{hash, hash_file};
pub use self::{
    access::ParentAccess,
    found::{Found, matches},
    put::Ready,
};
use crate::{
    error::{Code, Error, Result},
    meta::Attrs,
    paths,
    plan::{Item, Progress, Stand},
    workspace::Workspace,
};

/// Prefix of every temporary; the scan never captures such a name.
pub const TEMPORARY: &str = ".backstitch-tmp-";

const OPEN_DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The path is not what was expected: nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

/// Outcome of one step: done, or left alone because of what was found.
pub type Step = std::result::Result<(), Unexpected>;

/// When new contents become durable. All but the last keep to the order: content, then name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Each file by itself, before it gets its name.
    Each,
    /// Many files, which have no names yet, by one sync of their file system.
    Batches,
    /// By the caller, when all is done: for a folder that nobody relies on before.
    AtEnd,
}

impl Syncs {
    /// What is fitting for these.
    pub fn of(items: &[Item]) -> Syncs {
        let many = items.iter().filter(|i| i.action.changes() && i.result == Progress::Pending).count() > 64;
        // Files elsewhere may lie on another file system.
        if many && !items.iter().any(Item::is_outside) { Syncs::Batches } else { Syncs::Each }
    }
}

/// A work tree that may be changed.
pub struct Place {
    root: PathBuf,
    root_fd: OwnedFd,
    /// Directories that absolute paths must not lead into: device and inode.
    never: Vec<(u64, u64)>,
    /// Where contents go that the store has no copy of.
    parked: Option<PathBuf>,
    odb: Odb,
    op: String,
    /// Setuid, setgid and capabilities may come back.
    pub privileged: bool,
    /// When contents become durable.
    pub syncs: Syncs,
    owner: (u32, u32),
    /// The directory that was opened last, with those above it.
    chain: Chain,
    copy: Vec<u8>,
}

/// Handles of a directory and of those above it, so that what lies next to it is found without beginning at the root.
#[derive(Default)]
struct Chain {
    path: BString,
    /// Where in the path the name of each ends. The root is not among them.
    steps: Vec<(usize, OwnedFd)>,
}

/// Of a deeper directory only the handles of the topmost are kept, and its own.
const KEPT_HANDLES: usize = 24;

impl Chain {
    /// Keeps what leads to `dir`; how much of it that is.
    fn keep(&mut self, dir: &BStr) -> usize {
        let leads =
            |end: usize| dir.get(..end) == self.path.get(..end) && dir.get(end).is_none_or(|b| *b == b'/');
        let keep = self.steps.iter().take_while(|(end, _)| leads(*end)).count();
        self.steps.truncate(keep);
        self.path = dir.to_owned();
        self.steps.last().map_or(0, |(end, _)| *end)
    }

    fn push(&mut self, end: usize, fd: OwnedFd) {
        if self.steps.len() == KEPT_HANDLES {
            self.steps.pop();
        }
        self.steps.push((end, fd));
    }
}

fn last_name(path: &BStr) -> &BStr {
    paths::split(path).1
}

impl Place {
    /// Opens the root.
    pub fn open(root: &Path, odb: Odb, op: &str, owner: (u32, u32)) -> Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = openat(CWD, root, flags, Mode::empty()).map_err(|e| Error::io(root, e))?;
        Ok(Place {
            root: root.to_owned(),
            root_fd,
            never: Vec::new(),
            parked: None,
            odb,
            op: op.to_owned(),
            privileged: false,
            syncs: Syncs::Each,
            owner,
            chain: Chain::default(),
            copy: Vec::new(),
        })
    }

    /// A workspace's tree, and files elsewhere by absolute path.
    pub fn of(ws: &Workspace, op: &str) -> Result<Place> {
        let mut place = Place::open(ws.root(), ws.odb()?, op, ws.owner())?;
        place.never = ws.never();
        place.parked = Some(ws.store()?.parked_dir());
        Ok(place)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where contents come from.
    pub fn odb(&self) -> &Odb {
        &self.odb
    }

    /// Another handle on the same work, for another thread.
    pub fn another(&self) -> Result<Place> {
        let mut p = Place::open(&self.root, self.odb.clone(), &self.op, self.owner)?;
        p.never.clone_from(&self.never);
        p.parked.clone_from(&self.parked);
        p.privileged = self.privileged;
        p.syncs = self.syncs;
        Ok(p)
    }

    fn error(&self, path: &BStr, e: impl Into<io::Error>) -> Error {
        let e: io::Error = e.into();
        let full = self.root.join(std::ffi::OsStr::from_bytes(path));
        Error::new(Code::Io, format!("{}: {e}", full.display())).at_bytes(path)
    }

    /// A name that must never be written.
    fn check_name(&self, dir: BorrowedFd<'_>, path: &BStr) -> Result<()> {
        let name = last_name(path);
        let bad = name.is_empty()
            || name == "."
            || name == ".."
            || name.contains(&0)
            || name.starts_with(TEMPORARY.as_bytes())
            || name == ".git"
            || (name.eq_ignore_ascii_case(b".git") && self.is_git(dir, name));
        if bad {
            return Err(
                Error::new(Code::UnsafePath, format!("{path:?} must never be written")).at_bytes(path)
            );
        }
        Ok(())
    }

    /// This file system takes the name for `.git`.
    fn is_git(&self, dir: BorrowedFd<'_>, name: &BStr) -> bool {
        let id = |n: &[u8]| {
            statx(dir, n, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO)
                .ok()
                .map(|s| (s.stx_dev_major, s.stx_dev_minor, s.stx_ino))
        };
        id(name).is_some() && id(name) == id(b".git")
    }

    /// Handle of the directory that holds `path`. Components are opened one by one, links refused.
    fn parent(&mut self, path: &BStr) -> io::Result<()> {
        let dir = paths::split(path).0;
        if self.chain.path == dir {
            return Ok(());
        }
        let opened = self.chain_to(dir);
        if opened.is_err() {
            self.forget();
        }
        opened
    }

    fn chain_to(&mut self, dir: &BStr) -> io::Result<()> {
        if paths::is_outside(dir) {
            let fd = self.open_dir(dir)?;
            self.chain = Chain { path: dir.to_owned(), steps: vec![(dir.len(), fd)] };
            return Ok(());
        }
        let mut at = self.chain.keep(dir);
        while at < dir.len() {
            let start = if at == 0 { 0 } else { at + 1 };
            let end = dir[start..].find_byte(b'/').map_or(dir.len(), |n| start + n);
            let fd = self.enter(self.dir(), dir[start..end].as_bstr())?;
            at = end;
            self.chain.push(at, fd);
        }
        Ok(())
    }

    fn open_dir(&self, dir: &BStr) -> io::Result<OwnedFd> {
        let outside = paths::is_outside(dir);
        let (mut fd, rest) = match outside {
            true => (openat(CWD, "/", OPEN_DIR, Mode::empty())?, dir[1..].as_bstr()),
            false => (self.root_fd.try_clone()?, dir),
        };
        if rest.is_empty() {
            return Ok(fd);
        }
        for part in rest.split_str("/") {
            fd = self.enter(fd.as_fd(), part.as_bstr())?;
            if outside {
                let s = rustix::fs::fstat(&fd)?;
                if self.never.contains(&(s.st_dev, s.st_ino)) {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
            }
        }
        Ok(fd)
    }

    /// Opens one directory in another.
    fn enter(&self, dir: BorrowedFd<'_>, part: &BStr) -> io::Result<OwnedFd> {
        let git = part == ".git" || part.eq_ignore_ascii_case(b".git") && self.is_git(dir, part);
        if git || part == ".." || part == "." || part.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(openat(dir, part.as_bytes(), OPEN_DIR, Mode::empty())?)
    }

    /// Forgets cached handles: directories may have been replaced.
    pub fn forget(&mut self) {
        self.chain = Chain::default();
    }

    fn dir(&self) -> BorrowedFd<'_> {
        match self.chain.steps.last() {
            Some((_, fd)) => fd.as_fd(),
            None => self.root_fd.as_fd(),
        }
    }

    fn temporary(&self, kind: char, n: usize) -> BString {
        format!("{TEMPORARY}{}-{kind}{n}", self.op).into()
    }

    fn missing_parent(&self, path: &BStr, e: io::Error) -> Result<Step> {
        match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Err(Unexpected("parent-changed"))),
            _ => Err(self.error(path, e)),
        }
    }

    /// Setuid and setgid come back only where they are already present, or when asked for.
    pub fn allowed_mode(&self, mode: u32, present: Option<u32>) -> u32 {
        if self.privileged { mode } else { mode & !(0o6000 & !present.unwrap_or(0)) }
    }

    /// Removes a file or link if it is still what was expected.
    pub fn delete(&mut self, n: usize, path: &BStr, from: &Stand) -> Result<Step> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return self.missing_parent(path, e),
        }
        self.check_name(self.dir(), path)?;
        let name = last_name(path).to_owned();
        let d = self.temporary('d', n);
        match rename_new(self.dir(), &name, &d) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Err(Unexpected("changed"))),
            Err(e) => return Err(self.error(path, e)),
        }
        let out = self.inspect_name(&d).map_err(|e| self.error(path, e))?;
        let step = match matches(&out, Some(from)) {
            true => self.discard(path, &d, &out)?,
            false => Err(Unexpected("changed")),
        };
        if step.is_err() {
            rename_new(self.dir(), &d, &name).map_err(|e| self.error(path, e))?;
        }
        Ok(step)
    }

    /// Makes a directory, private until [`Place::chmod`] gives it its mode.
    pub fn mkdir(&mut self, path: &BStr) -> Result<Step> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return self.missing_parent(path, e),
        }
        self.check_name(self.dir(), path)?;
        match mkdirat(self.dir(), last_name(path).as_bytes(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(Ok(())),
            Err(Errno::EXIST) => Ok(Err(Unexpected("changed"))),
            Err(e) => Err(self.error(path, e)),
        }
    }

    /// Gives a new directory the owner and attributes of the row, as far as this user may.
    pub fn dress_dir(&mut self, path: &BStr, attrs: &Attrs) -> Result<()> {
        self.parent(path).map_err(|e| self.error(path, e))?;
        let name = last_name(path).to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            openat(self.dir(), name.as_bytes(), flags, Mode::empty()).map_err(|e| self.error(path, e))?;
        let s = rustix::fs::fstat(&fd).map_err(|e| self.error(path, e))?;
        let (uid, gid) = attrs.owner.unwrap_or(self.owner);
        if (s.st_uid, s.st_gid) != (uid, gid) {
            let _ = fchown(&fd, Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)));
        }
        for (k, v) in &attrs.xattrs {
            let _ = fsetxattr(&fd, k.as_bytes(), v, XattrFlags::empty());
        }
        Ok(())
    }

    /// Removes a directory if it is empty.
    pub fn rmdir(&mut self, path: &BStr) -> Result<Step> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return self.missing_parent(path, e),
        }
        self.check_name(self.dir(), path)?;
        match unlinkat(self.dir(), last_name(path).as_bytes(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(Ok(())),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Err(Unexpected("not-empty"))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Err(Unexpected("changed"))),
            Err(e) => Err(self.error(path, e)),
        }
    }

    /// Sets permission bits of a file or directory, never of what a link points to.
    pub fn chmod(&mut self, path: &BStr, expect_dir: bool, mode: u32) -> Result<Step> {
        let name = if path.is_empty() {
            self.forget();
            BString::from(".")
        } else {
            match self.parent(path) {
                Ok(()) => {}
                Err(e) => return self.missing_parent(path, e),
            }
            last_name(path).to_owned()
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(self.dir(), name.as_bytes(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Err(Unexpected("changed"))),
            Err(e) => return Err(self.error(path, e)),
        };
        let s = rustix::fs::fstat(&fd).map_err(|e| self.error(path, e))?;
        let kind = FileType::from_raw_mode(s.st_mode);
        let right = if expect_dir { kind == FileType::Directory } else { kind == FileType::RegularFile };
        if !right {
            return Ok(Err(Unexpected("changed")));
        }
        let proc_path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        chmodat(CWD, proc_path.as_str(), Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(|e| self.error(path, e))?;
        Ok(Ok(()))
    }

    /// Everything written so far reaches the disk.
    pub fn sync_all(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, &self.root, flags, Mode::empty()).map_err(|e| Error::io(&self.root, e))?;
        rustix::fs::syncfs(&fd).map_err(|e| Error::io(&self.root, e))
    }

    /// The permission bits of a file reach the disk.
    pub fn sync_file(&mut self, path: &BStr) -> Result<()> {
        if self.parent(path).is_err() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(self.dir(), last_name(path).as_bytes(), flags, Mode::empty()) {
            Ok(fd) => rustix::fs::fsync(&fd).map_err(|e| self.error(path, e)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            // It can have lost the bits by which it could be opened.
            Err(_) => self.sync_all(),
        }
    }

    /// The directory's entries reach the disk. A directory that is gone needs nothing.
    pub fn sync_dir(&self, dir: &BStr) -> Result<()> {
        let Ok(fd) = self.open_dir(dir) else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&fd, ".", flags, Mode::empty()) {
            Ok(fd) => rustix::fs::fsync(&fd).map_err(|e| self.error(dir, e)),
            Err(Errno::ACCESS) => self.sync_all(),
            Err(e) => Err(self.error(dir, e)),
        }
    }
}

/// Renames without ever replacing.
fn rename_new(dir: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> rustix::io::Result<()> {
    match renameat_with(dir, from.as_bytes(), dir, to.as_bytes(), RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if statx(dir, to.as_bytes(), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok() {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(dir, from.as_bytes(), dir, to.as_bytes())
        }
        r => r,
    }
}

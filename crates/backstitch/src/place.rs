//! The only module that changes a work tree. Every step goes through directory handles, never follows a link, never
//! leaves the root, never enters a `.git`. Absolute paths are files elsewhere that a session touched: they start at `/`, by the
//! same rules, and enter no store.
//!
//! Protocol of one file, on which recovery relies (`<op>` is the operation's id, `<n>` the item's number):
//! - new content is written to an unnamed file where the system has them, else to `.backstitch-tmp-<op>-w<n>`; a `w` name
//!   may hold anything and is only ever removed;
//! - complete content gets the name `.backstitch-tmp-<op>-x<n>` and is then *exchanged* with the target. What stands under
//!   an `x` name is either our complete new content or what came out of the target;
//! - what is deleted is first renamed to `.backstitch-tmp-<op>-d<n>`, then looked at, then unlinked.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags, chmodat, chownat, fchmod,
    fchown, fsetxattr, linkat, mkdirat, openat, readlinkat, renameat_with, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::{
    error::{Code, Error, Result},
    meta::Attrs,
    paths,
    plan::Stand,
    tree::Node,
    workspace::Workspace,
};

/// Prefix of every temporary; the scan never captures such a name.
pub const TEMPORARY: &str = ".backstitch-tmp-";

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

/// The path is not what was expected: nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

/// Outcome of one step: done, or left alone because of what was found.
pub type Step = std::result::Result<(), Unexpected>;

/// What a replacement takes over from the present file: owner, group, permission bits, attributes.
type Dress = (u32, u32, u32, Vec<(BString, BString)>);

/// A work tree that may be changed.
pub struct Place {
    root: PathBuf,
    root_fd: OwnedFd,
    /// Directories that absolute paths must not lead into: device and inode.
    never: Vec<(u64, u64)>,
    odb: Odb,
    op: String,
    /// Setuid, setgid and capabilities may come back.
    pub privileged: bool,
    /// Sync each file as it is written; else the caller syncs the file system once.
    pub sync_each: bool,
    owner: (u32, u32),
    last: Option<(BString, OwnedFd)>,
    copy: Vec<u8>,
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
            odb,
            op: op.to_owned(),
            privileged: false,
            sync_each: true,
            owner,
            last: None,
            copy: Vec::new(),
        })
    }

    /// A workspace's tree, and files elsewhere by absolute path.
    pub fn of(ws: &Workspace, op: &str) -> Result<Place> {
        let mut place = Place::open(ws.root(), ws.odb()?, op, ws.owner())?;
        place.never = ws.never();
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
        p.privileged = self.privileged;
        p.sync_each = self.sync_each;
        Ok(p)
    }

    fn error(&self, path: &BStr, e: impl Into<io::Error>) -> Error {
        let e: io::Error = e.into();
        let code = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::OverBudget,
            _ => Code::Io,
        };
        Error::new(code, format!("{}: {e}", self.root.join(std::ffi::OsStr::from_bytes(path)).display()))
            .at_bytes(path)
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
        if self.last.as_ref().is_some_and(|(p, _)| p == dir) {
            return Ok(());
        }
        let fd = self.open_dir(dir)?;
        self.last = Some((dir.to_owned(), fd));
        Ok(())
    }

    fn open_dir(&self, dir: &BStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refused = || io::Error::from(io::ErrorKind::InvalidInput);
        let outside = paths::is_outside(dir);
        let (mut fd, rest) = match outside {
            true => (openat(CWD, "/", flags, Mode::empty())?, dir[1..].as_bstr()),
            false => (self.root_fd.try_clone()?, dir),
        };
        if rest.is_empty() {
            return Ok(fd);
        }
        for part in rest.split_str("/") {
            let git = part == b".git"
                || part.eq_ignore_ascii_case(b".git") && self.is_git(fd.as_fd(), part.as_bstr());
            if git || part == b".." || part == b"." || part.is_empty() {
                return Err(refused());
            }
            fd = openat(&fd, part, flags, Mode::empty())?;
            if outside {
                let s = rustix::fs::fstat(&fd)?;
                if self.never.contains(&(s.st_dev, s.st_ino)) {
                    return Err(refused());
                }
            }
        }
        Ok(fd)
    }

    /// Forgets cached handles: directories may have been replaced.
    pub fn forget(&mut self) {
        self.last = None;
    }

    fn dir(&self) -> BorrowedFd<'_> {
        match &self.last {
            Some((_, fd)) => fd.as_fd(),
            None => self.root_fd.as_fd(),
        }
    }

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

    fn inspect_name(&self, name: &[u8]) -> io::Result<Found> {
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

    fn temporary(&self, kind: char, n: usize) -> BString {
        format!("{TEMPORARY}{}-{kind}{n}", self.op).into()
    }

    /// Puts a file or link where `from` stands now. Whoever opens the path sees the old or the new, never a mixture.
    pub fn put(&mut self, n: usize, path: &BStr, from: Option<&Stand>, to: &Stand) -> Result<Step> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return self.missing_parent(path, e),
        }
        self.check_name(self.dir(), path)?;
        let name = last_name(path).to_owned();
        // Owner, group, ACL and attributes are those of the file that is replaced, else of the row.
        let present = match from {
            Some(_) => match self.present_attrs(&name) {
                Ok(p) => Some(p),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Err(Unexpected("changed"))),
                Err(e) => return Err(self.error(path, e)),
            },
            None => None,
        };
        match &to.node {
            Node::File { oid, mode } => self.put_file(n, path, &name, from, *oid, *mode, present, &to.attrs),
            Node::Link { oid } => self.put_link(n, path, &name, from, oid, present, &to.attrs),
            Node::Dir { .. } => {
                Err(Error::new(Code::Failed, "a directory is not put as a file").at_bytes(path))
            }
        }
    }

    fn missing_parent(&self, path: &BStr, e: io::Error) -> Result<Step> {
        match Errno::from_io_error(&e) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Err(Unexpected("parent-changed"))),
            _ => Err(self.error(path, e)),
        }
    }

    /// Owner, mode and attributes of what stands there.
    fn present_attrs(&self, name: &[u8]) -> io::Result<Dress> {
        let s = statx(
            self.dir(),
            name.as_bytes(),
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID,
        )?;
        let mode = u32::from(s.stx_mode);
        let x = if FileType::from_raw_mode(mode) == FileType::RegularFile {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(self.dir(), name.as_bytes(), flags, Mode::empty()) {
                Ok(f) => xattrs(f.as_fd()),
                Err(_) => Vec::new(),
            }
        } else {
            Vec::new()
        };
        Ok((s.stx_uid, s.stx_gid, mode & 0o7777, x))
    }

    #[allow(clippy::too_many_arguments)]
    fn put_file(
        &mut self,
        n: usize,
        path: &BStr,
        name: &[u8],
        from: Option<&Stand>,
        oid: Oid,
        mode: u32,
        present: Option<Dress>,
        row: &Attrs,
    ) -> Result<Step> {
        let unnamed = openat(
            self.dir(),
            ".",
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        );
        let (fd, named) = match unnamed {
            Ok(fd) => (fd, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                let w = self.temporary('w', n);
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = openat(self.dir(), w.as_bytes(), flags, Mode::from_raw_mode(0o600))
                    .map_err(|e| self.error(path, e))?;
                (fd, Some(w))
            }
            Err(e) => return Err(self.error(path, e)),
        };
        let mut file = File::from(fd);
        let result = match self.fill(&mut file, path, oid, mode, present.as_ref(), row) {
            Ok(Ok(())) => self.name_and_swap(n, path, name, from, &file, named.as_ref()),
            other => other,
        };
        if !matches!(result, Ok(Ok(())))
            && let Some(w) = &named
        {
            let _ = unlinkat(self.dir(), w.as_bytes(), AtFlags::empty());
        }
        result
    }

    /// Content, owner, attributes, mode, sync: all before the file has a name that means something.
    fn fill(
        &mut self,
        file: &mut File,
        path: &BStr,
        oid: Oid,
        mode: u32,
        present: Option<&Dress>,
        row: &Attrs,
    ) -> Result<Step> {
        let mut out = Sparse { file, at: 0 };
        match self.odb.size(&oid) {
            Ok(size) if size <= 4 << 20 => {
                self.copy = self.odb.blob(&oid)?;
                let copy = std::mem::take(&mut self.copy);
                out.write_all(&copy).map_err(|e| self.error(path, e))?;
                self.copy = copy;
            }
            _ => {
                self.odb.blob_to(&oid, &mut out).map_err(|e| match e {
                    backstitch_store::Error::Io { source, .. } => self.error(path, source),
                    e => e.into(),
                })?;
            }
        }
        let at = out.at;
        file.set_len(at).map_err(|e| self.error(path, e))?;
        let s = rustix::fs::fstat(&*file).map_err(|e| self.error(path, e))?;
        let (uid, gid) = match present {
            Some((u, g, ..)) => (*u, *g),
            None => row.owner.unwrap_or(self.owner),
        };
        if (s.st_uid, s.st_gid) != (uid, gid) {
            let to = |a: u32, b: u32| (a != b).then_some(b);
            let r = fchown(
                &*file,
                to(s.st_uid, uid).map(rustix::fs::Uid::from_raw),
                to(s.st_gid, gid).map(rustix::fs::Gid::from_raw),
            );
            // A file that comes into being belongs to its maker where the recorded owner cannot be given.
            if r.is_err() && present.is_some() {
                return Ok(Err(Unexpected("owner")));
            }
        }
        let list: &[(BString, BString)] = match present {
            Some((.., x)) => x,
            None => &row.xattrs,
        };
        for (k, v) in list {
            if k == "security.capability" && !self.privileged && present.is_none() {
                continue;
            }
            if let Err(e) = fsetxattr(&*file, k.as_bytes(), v, XattrFlags::empty())
                && present.is_some()
                && e != Errno::OPNOTSUPP
            {
                return Ok(Err(Unexpected("attributes")));
            }
        }
        let mode = self.allowed_mode(mode, present.map(|p| p.2));
        fchmod(&*file, Mode::from_raw_mode(mode)).map_err(|e| self.error(path, e))?;
        if self.sync_each {
            file.sync_all().map_err(|e| self.error(path, e))?;
        }
        Ok(Ok(()))
    }

    /// Setuid and setgid come back only where they are already present, or when asked for.
    pub fn allowed_mode(&self, mode: u32, present: Option<u32>) -> u32 {
        if self.privileged { mode } else { mode & !(0o6000 & !present.unwrap_or(0)) }
    }

    fn name_and_swap(
        &mut self,
        n: usize,
        path: &BStr,
        name: &[u8],
        from: Option<&Stand>,
        file: &File,
        named: Option<&BString>,
    ) -> Result<Step> {
        let proc_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if from.is_none() {
            let r = match named {
                None => linkat(CWD, proc_path.as_str(), self.dir(), name.as_bytes(), AtFlags::SYMLINK_FOLLOW),
                Some(w) => rename_new(self.dir(), w, name),
            };
            return match r {
                Ok(()) => Ok(Ok(())),
                Err(Errno::EXIST) => {
                    if let Some(w) = named {
                        let _ = unlinkat(self.dir(), w.as_bytes(), AtFlags::empty());
                    }
                    Ok(Err(Unexpected("changed")))
                }
                Err(e) => Err(self.error(path, e)),
            };
        }
        let x = self.temporary('x', n);
        match named {
            None => linkat(CWD, proc_path.as_str(), self.dir(), x.as_bytes(), AtFlags::SYMLINK_FOLLOW),
            Some(w) => rename_new(self.dir(), w, &x),
        }
        .map_err(|e| self.error(path, e))?;
        self.swap(path, name, &x, from)
    }

    /// Exchanges the complete `x` with the target and looks at what came out.
    fn swap(&mut self, path: &BStr, name: &[u8], x: &[u8], from: Option<&Stand>) -> Result<Step> {
        let exchange = |a: &[u8], b: &[u8]| {
            renameat_with(self.dir(), a.as_bytes(), self.dir(), b.as_bytes(), RenameFlags::EXCHANGE)
        };
        match exchange(x, name) {
            Ok(()) => {
                let out = self.inspect_name(x).map_err(|e| self.error(path, e))?;
                if matches(&out, from) {
                    unlinkat(self.dir(), x.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
                    return Ok(Ok(()));
                }
                exchange(x, name).map_err(|e| self.error(path, e))?;
                unlinkat(self.dir(), x.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
                Ok(Err(Unexpected("changed")))
            }
            Err(Errno::NOENT) => {
                let _ = unlinkat(self.dir(), x.as_bytes(), AtFlags::empty());
                Ok(Err(Unexpected("changed")))
            }
            // No exchange here: re-read just before, then rename over.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let now = self.inspect_name(name).map_err(|e| self.error(path, e))?;
                if !matches(&now, from) {
                    let _ = unlinkat(self.dir(), x.as_bytes(), AtFlags::empty());
                    return Ok(Err(Unexpected("changed")));
                }
                rustix::fs::renameat(self.dir(), x.as_bytes(), self.dir(), name.as_bytes())
                    .map_err(|e| self.error(path, e))?;
                Ok(Ok(()))
            }
            Err(e) => {
                let _ = unlinkat(self.dir(), x.as_bytes(), AtFlags::empty());
                Err(self.error(path, e))
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn put_link(
        &mut self,
        n: usize,
        path: &BStr,
        name: &[u8],
        from: Option<&Stand>,
        oid: &Oid,
        present: Option<Dress>,
        row: &Attrs,
    ) -> Result<Step> {
        let text = self.odb.blob(oid)?;
        let at: BString = if from.is_none() { name.into() } else { self.temporary('x', n) };
        match symlinkat(text.as_slice(), self.dir(), at.as_bytes()) {
            Ok(()) => {}
            Err(Errno::EXIST) if from.is_none() => return Ok(Err(Unexpected("changed"))),
            Err(e) => return Err(self.error(path, e)),
        }
        let (uid, gid) = match &present {
            Some((u, g, ..)) => (*u, *g),
            None => row.owner.unwrap_or(self.owner),
        };
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if (uid, gid) != own {
            // Best effort: the owner of a link guards nothing.
            let _ = chownat(
                self.dir(),
                at.as_bytes(),
                Some(rustix::fs::Uid::from_raw(uid)),
                Some(rustix::fs::Gid::from_raw(gid)),
                AtFlags::SYMLINK_NOFOLLOW,
            );
        }
        if from.is_none() {
            return Ok(Ok(()));
        }
        self.swap(path, name, &at, from)
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
        if matches(&out, Some(from)) {
            unlinkat(self.dir(), d.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
            return Ok(Ok(()));
        }
        rename_new(self.dir(), &d, &name).map_err(|e| self.error(path, e))?;
        Ok(Err(Unexpected("changed")))
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
            self.last = None;
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

    /// Everything written so far reaches the disk.
    pub fn sync_all(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, &self.root, flags, Mode::empty()).map_err(|e| Error::io(&self.root, e))?;
        rustix::fs::syncfs(&fd).map_err(|e| Error::io(&self.root, e))
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

    /// Settles the temporaries that a dead process left for item `n` at `path`: removes ours, puts back what came out.
    pub fn settle_temporaries(
        &mut self,
        n: usize,
        path: &BStr,
        from: Option<&Stand>,
        to: Option<&Stand>,
    ) -> Result<()> {
        self.forget();
        if self.parent(path).is_err() {
            return Ok(());
        }
        let name = last_name(path).to_owned();
        let remove = |p: &Place, t: &[u8]| match unlinkat(p.dir(), t.as_bytes(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(p.error(path, e)),
        };
        let w = self.temporary('w', n);
        remove(self, &w)?;
        let x = self.temporary('x', n);
        match self.inspect_name(&x).map_err(|e| self.error(path, e))? {
            Found::Absent => {}
            // Our own complete content, not yet exchanged.
            ref found if matches(found, to) => remove(self, &x)?,
            // What came out of the target: it goes back.
            found => {
                let target = self.inspect_name(&name).map_err(|e| self.error(path, e))?;
                if target == Found::Absent {
                    rename_new(self.dir(), &x, &name).map_err(|e| self.error(path, e))?;
                } else if from.is_some() && matches(&found, from) && matches(&target, from) {
                    remove(self, &x)?;
                } else if matches(&target, to) {
                    renameat_with(
                        self.dir(),
                        x.as_bytes(),
                        self.dir(),
                        name.as_bytes(),
                        RenameFlags::EXCHANGE,
                    )
                    .map_err(|e| self.error(path, e))?;
                    remove(self, &x)?;
                } else {
                    self.keep_beside(path, &name, &x)?;
                }
            }
        }
        let d = self.temporary('d', n);
        match self.inspect_name(&d).map_err(|e| self.error(path, e))? {
            Found::Absent => {}
            found => match rename_new(self.dir(), &d, &name) {
                Ok(()) => {}
                // Both ends of the item are in the store.
                Err(Errno::EXIST) if matches(&found, from) || matches(&found, to) => remove(self, &d)?,
                Err(Errno::EXIST) => self.keep_beside(path, &name, &d)?,
                Err(e) => return Err(self.error(path, e)),
            },
        }
        Ok(())
    }

    /// Two states claim one path and neither may be lost: the older gets a name of its own beside it.
    fn keep_beside(&self, path: &BStr, name: &[u8], temporary: &[u8]) -> Result<()> {
        let mut beside = name.to_vec();
        beside.truncate(200);
        beside.extend_from_slice(format!(".backstitch-kept-{}", self.op).as_bytes());
        rename_new(self.dir(), temporary, &beside).map_err(|e| self.error(path, e))
    }
}

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

/// Compares what was found with what was expected: type, content, permission bits.
pub fn matches(found: &Found, want: Option<&Stand>) -> bool {
    match (found, want) {
        (Found::Absent, None) => true,
        (Found::Is(a), Some(b)) => a.node == b.node,
        _ => false,
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
fn hash_file(f: &mut File, size: u64) -> io::Result<Oid> {
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
fn xattrs(fd: BorrowedFd<'_>) -> Vec<(BString, BString)> {
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

/// Leaves holes where a whole block of zeros would be written.
struct Sparse<'a> {
    file: &'a mut File,
    at: u64,
}

impl Write for Sparse<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        const BLOCK: usize = 64 << 10;
        const HOLE: usize = 4 << 10;
        let mut rest = buf;
        while !rest.is_empty() {
            // Pieces end where blocks end, however the bytes come in.
            let room = BLOCK - usize::try_from(self.at % BLOCK as u64).unwrap_or(0);
            let n = rest.len().min(room);
            let (part, tail) = rest.split_at(n);
            if n < HOLE || part.iter().any(|b| *b != 0) {
                self.file.write_all_at(part, self.at)?;
            }
            self.at += n as u64;
            rest = tail;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

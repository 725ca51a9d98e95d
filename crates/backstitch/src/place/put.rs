//! Putting a file or link where another one, or nothing, stands: complete under a name of its own first, then exchanged.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd},
};

use backstitch_store::Oid;
use bstr::{BStr, BString, ByteSlice};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags, chownat, fchmod, fchown,
        fsetxattr, linkat, openat, renameat_with, statx, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::{
    Place, Step, Syncs, Unexpected,
    found::{matches, xattrs},
    last_name, rename_new,
};
use crate::{
    error::{Error, Result},
    meta::Attrs,
    plan::Stand,
    room::NO_ROOM,
    tree::Node,
};

/// What a replacement takes over from the present file: owner, group, permission bits, attributes.
type Dress = (u32, u32, u32, Vec<(BString, BString)>);

/// New content that waits for its name.
#[derive(Default)]
pub struct Ready {
    /// None for a link, whose text comes with its name.
    file: Option<File>,
    /// Its `w` name where the system has no unnamed files.
    named: Option<BString>,
    present: Option<Dress>,
}

impl Place {
    /// Puts a file or link where `from` stands now. Whoever opens the path sees the old or the new, never a mixture.
    pub fn put(&mut self, n: usize, path: &BStr, from: Option<&Stand>, to: &Stand) -> Result<Step> {
        match self.ready(n, path, from, to)? {
            Ok(ready) => self.put_ready(n, path, from, to, ready),
            Err(why) => Ok(Err(why)),
        }
    }

    /// The first half of [`Place::put`]: the new content, complete and as durable as [`Place::syncs`] says, without a
    /// name that means something. A file must be durable before the second half: after a power cut a name without its
    /// content would be taken for somebody else's work.
    pub fn ready(
        &mut self,
        n: usize,
        path: &BStr,
        from: Option<&Stand>,
        to: &Stand,
    ) -> Result<std::result::Result<Ready, Unexpected>> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return Ok(self.missing_parent(path, e)?.map(|()| Ready::default())),
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
            Node::File { oid, mode } => self.ready_file(n, path, *oid, *mode, present, &to.attrs),
            Node::Link { .. } => Ok(Ok(Ready { present, ..Ready::default() })),
            Node::Dir { .. } => Err(Error::fault("a directory is not put as a file").at_bytes(path)),
        }
    }

    /// The second half of [`Place::put`]: the name.
    pub fn put_ready(
        &mut self,
        n: usize,
        path: &BStr,
        from: Option<&Stand>,
        to: &Stand,
        ready: Ready,
    ) -> Result<Step> {
        match self.parent(path) {
            Ok(()) => {}
            Err(e) => return self.missing_parent(path, e),
        }
        self.check_name(self.dir(), path)?;
        let name = last_name(path).to_owned();
        let Ready { file: Some(file), named, .. } = &ready else {
            return match &to.node {
                Node::Link { oid } => self.put_link(n, path, &name, from, oid, ready.present, &to.attrs),
                _ => Err(Error::fault("a file without its content").at_bytes(path)),
            };
        };
        let result = self.name_and_swap(n, path, &name, from, file, named.as_ref());
        if !matches!(result, Ok(Ok(())))
            && let Some(w) = named
        {
            let _ = unlinkat(self.dir(), w.as_bytes(), AtFlags::empty());
        }
        result
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

    fn ready_file(
        &mut self,
        n: usize,
        path: &BStr,
        oid: Oid,
        mode: u32,
        present: Option<Dress>,
        row: &Attrs,
    ) -> Result<std::result::Result<Ready, Unexpected>> {
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
        let filled = self.fill(&mut file, path, oid, mode, present.as_ref(), row);
        if !matches!(filled, Ok(Ok(())))
            && let Some(w) = &named
        {
            let _ = unlinkat(self.dir(), w.as_bytes(), AtFlags::empty());
        }
        Ok(filled?.map(|()| Ready { file: Some(file), named, present }))
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
        if self.syncs == Syncs::Each {
            file.sync_all().map_err(|e| self.error(path, e))?;
        }
        Ok(Ok(()))
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
        self.swap(n, path, name, &x, from)
    }

    /// Exchanges the complete `x` with the target and looks at what came out.
    fn swap(&mut self, n: usize, path: &BStr, name: &[u8], x: &[u8], from: Option<&Stand>) -> Result<Step> {
        let exchange = |a: &[u8], b: &[u8]| {
            renameat_with(self.dir(), a.as_bytes(), self.dir(), b.as_bytes(), RenameFlags::EXCHANGE)
        };
        let renameat =
            |a: &[u8], b: &[u8]| rustix::fs::renameat(self.dir(), a.as_bytes(), self.dir(), b.as_bytes());
        match exchange(x, name) {
            Ok(()) => {
                let out = self.inspect_name(x).map_err(|e| self.error(path, e))?;
                let step = match matches(&out, from) {
                    true => self.discard(path, x, &out)?,
                    false => Err(Unexpected("changed")),
                };
                if step.is_err() {
                    exchange(x, name).map_err(|e| self.error(path, e))?;
                    unlinkat(self.dir(), x.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
                }
                Ok(step)
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
                if self.is_held(&now) {
                    renameat(x, name).map_err(|e| self.error(path, e))?;
                    return Ok(Ok(()));
                }
                // What must not be lost has two names while it is replaced.
                let d = self.temporary('d', n);
                if linkat(self.dir(), name, self.dir(), d.as_bytes(), AtFlags::empty()).is_err() {
                    unlinkat(self.dir(), x.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
                    return Ok(Err(Unexpected(NO_ROOM)));
                }
                renameat(x, name).map_err(|e| self.error(path, e))?;
                let out = self.inspect_name(&d).map_err(|e| self.error(path, e))?;
                let step = match matches(&out, from) {
                    true => self.discard(path, &d, &out)?,
                    false => Err(Unexpected("changed")),
                };
                if step.is_err() {
                    renameat(&d, name).map_err(|e| self.error(path, e))?;
                }
                Ok(step)
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
        self.swap(n, path, name, &at, from)
    }
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

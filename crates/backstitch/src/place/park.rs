//! What comes out of the tree and goes: unlinked where the store has a copy of its bytes, else moved into the store.

use bstr::{BStr, ByteSlice};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fchmod, fstat, fsync, openat, renameat, statx, unlinkat},
    io::Errno,
};

use backstitch_store::Oid;

use super::{Found, Place, Step, Unexpected, last_name};
use crate::{
    error::{Error, Result},
    plan::Stand,
    room::NO_ROOM,
    tree::Node,
};

impl Place {
    /// What stands at `path` can be moved into the store's `parked/` by a rename, and nobody else has a name for it.
    pub fn can_park(&mut self, path: &BStr) -> bool {
        let Some(parked) = self.parked.clone() else { return false };
        if self.parent(path).is_err() {
            return false;
        }
        let flags = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let (Ok(dir), Ok(store), Ok(file)) = (
            statx(self.dir(), "", AtFlags::EMPTY_PATH, flags),
            statx(CWD, &parked, AtFlags::SYMLINK_NOFOLLOW, flags),
            statx(self.dir(), last_name(path).as_bytes(), AtFlags::SYMLINK_NOFOLLOW, flags),
        ) else {
            return false;
        };
        let mount = |s: &rustix::fs::Statx| (s.stx_dev_major, s.stx_dev_minor, s.stx_mnt_id);
        let user = rustix::process::geteuid();
        mount(&dir) == mount(&store)
            && file.stx_nlink == 1
            && (user.is_root() || file.stx_uid == user.as_raw())
    }

    /// What was found there is no file, or the store has a copy of its bytes.
    pub(super) fn is_held(&self, found: &Found) -> bool {
        match found {
            Found::Is(Stand { node: Node::File { oid, .. }, .. }) => self.odb.holds_copy(oid),
            _ => true,
        }
    }

    /// Lets `name`, where `out` was found just now, go. Where its bytes are neither in the store nor can be moved there it
    /// stays, and the caller puts it back.
    pub(super) fn discard(&self, path: &BStr, name: &[u8], out: &Found) -> Result<Step> {
        match out {
            Found::Is(Stand { node: Node::File { oid, .. }, .. }) if !self.is_held(out) => {
                self.park(path, name, oid)
            }
            _ => {
                unlinkat(self.dir(), name.as_bytes(), AtFlags::empty()).map_err(|e| self.error(path, e))?;
                Ok(Ok(()))
            }
        }
    }

    /// Durable when this returns. The mode changes after the move: what is still in the tree keeps its own.
    fn park(&self, path: &BStr, name: &[u8], oid: &Oid) -> Result<Step> {
        let no_room = Ok(Err(Unexpected(NO_ROOM)));
        let Some(parked) = &self.parked else { return no_room };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            openat(self.dir(), name.as_bytes(), flags, Mode::empty()).map_err(|e| self.error(path, e))?;
        // Whoever has another name for it could change it there.
        if fstat(&file).map_err(|e| self.error(path, e))?.st_nlink != 1 {
            return no_room;
        }
        fsync(&file).map_err(|e| self.error(path, e))?;
        let in_store = |e: Errno| Error::io(parked, e);
        let dir = openat(CWD, parked, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(in_store)?;
        match renameat(self.dir(), name.as_bytes(), &dir, oid.to_string().as_str()) {
            Ok(()) => {}
            Err(Errno::XDEV) => return no_room,
            Err(e) => return Err(self.error(path, e)),
        }
        fchmod(&file, Mode::from_raw_mode(0o600)).map_err(in_store)?;
        fsync(&dir).map_err(in_store)?;
        Ok(Ok(()))
    }
}

//! Advisory locks that the system drops with their owner.

use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    time::{Duration, Instant},
};

use crate::{Error, files};

/// A held lock; released on drop and by the death of the process. Passing it on proves that it is held.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct Lock {
    /// None only for a shared lock on a read-only file system: nobody can write there.
    _file: Option<File>,
}

const FIRST_NAP: Duration = Duration::from_micros(500);
const LONGEST_NAP: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// Takes `dir/name`, trying again with growing pauses until `wait` has passed.
pub(crate) fn take(dir: &Path, name: &str, mode: Mode, wait: Duration) -> Result<Lock, Error> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Error::invalid(format!("{name:?} is no name for a lock")));
    }
    let path = dir.join(name);
    let file = match open(dir, &path) {
        Ok(file) => file,
        Err(Error::Io { source, .. })
            if mode == Mode::Shared && source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
        {
            return Ok(Lock { _file: None });
        }
        Err(e) => return Err(e),
    };
    let start = Instant::now();
    loop {
        let tried = match mode {
            Mode::Shared => file.try_lock_shared(),
            Mode::Exclusive => file.try_lock(),
        };
        match tried {
            Ok(()) => return Ok(Lock { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(e)) => return Err(Error::io(&path)(e)),
        }
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Error::Busy { path });
        }
        // Whoever has waited for long may wait a little longer; a lock held for a moment is taken soon after.
        let nap = (start.elapsed() / 8).clamp(FIRST_NAP, LONGEST_NAP);
        std::thread::sleep(nap.min(left));
    }
}

/// The lock file is created once and never removed, so that all lock the same inode.
fn open(dir: &Path, path: &Path) -> Result<File, Error> {
    let mut made_dir = false;
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if is_read_only(&e) => {
                // A store that may only be read can still be locked where the file exists.
                return File::open(path).map_err(|_| Error::io(path)(e));
            }
            Err(e) => return Err(Error::io(path)(e)),
        }
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => {
                file.set_permissions(Permissions::from_mode(0o600)).map_err(Error::io(path))?;
                return Ok(file);
            }
            // Another one made it just now.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound && !made_dir => {
                made_dir = true;
                files::ensure_dir(dir)?;
            }
            Err(e) => return Err(Error::io(path)(e)),
        }
    }
}

fn is_read_only(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

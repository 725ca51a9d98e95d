//! New files beside those that they will replace, outside the store.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{place::TEMPORARY, record};

/// A new file in a folder, under a name that only we use, until it is put in place. Its owner holds a lock on it, so that
/// whoever makes the next one there removes those of dead processes.
///
/// # Example
///
/// ```
/// use std::io::Write;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let target = dir.path().join("settings.json");
/// let mut new = backstitch::settings::Beside::new(dir.path(), 0o600)?;
/// new.file.write_all(b"{}")?;
/// new.place(&target)?;
/// assert_eq!(std::fs::read(target)?, b"{}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Beside {
    /// The open file.
    pub file: File,
    path: PathBuf,
    placed: bool,
}

impl Beside {
    /// Makes one with these permission bits, less the umask.
    ///
    /// # Errors
    /// Where the folder cannot be written to.
    pub fn new(dir: &Path, mode: u32) -> io::Result<Beside> {
        remove_dead(dir);
        loop {
            let path = dir.join(format!("{TEMPORARY}{}", record::new_id(record::now_ms())));
            let file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            // Somebody who tidies up may have taken it for a dead one's before the lock was there.
            let held = match file.try_lock() {
                Ok(()) => file.metadata()?.nlink() > 0,
                Err(TryLockError::WouldBlock) => false,
                // No locks on this file system: nobody else gets one either.
                Err(TryLockError::Error(_)) => true,
            };
            let beside = Beside { file, path, placed: false };
            if held {
                return Ok(beside);
            }
        }
    }

    /// Makes it durable and renames it over `target`.
    ///
    /// # Errors
    /// The file system's; the target is as it was then.
    pub fn place(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, target)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing can be done about a failure here; the next one made there gets it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes files of this kind on which nobody holds a lock. They cost a name only, so nothing is told of what fails.
fn remove_dead(dir: &Path) {
    for item in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = item.file_name();
        // Operations have temporaries with more behind the id, and a journal that speaks of them.
        let is_ours = name.to_str().and_then(|n| n.strip_prefix(TEMPORARY)).is_some_and(|id| {
            id.len() == 16 && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
        });
        if is_ours
            && item.file_type().is_ok_and(|t| t.is_file())
            && let Ok(file) = File::open(item.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(item.path());
        }
    }
}

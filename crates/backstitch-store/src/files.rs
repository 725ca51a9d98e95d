//! Private directories, temporaries and durable replacement: every write of the store goes through here.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Durability, Error};

/// What the names of all temporaries start with.
pub(crate) const TEMP_PREFIX: &str = "tmp_";

/// Creates `dir` and its missing parents, each 0700 whatever the umask is.
pub(crate) fn ensure_dir(dir: &Path) -> Result<bool, Error> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {
            // The umask can only have taken bits away.
            fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(Error::io(dir))?;
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
            match parent {
                Some(parent) if !parent.is_dir() => {
                    ensure_dir(parent)?;
                    ensure_dir(dir)
                }
                _ => Err(Error::io(dir)(e)),
            }
        }
        Err(e) => Err(Error::io(dir)(e)),
    }
}

/// The same, and the names of all that was made are durable.
pub(crate) fn ensure_dir_durable(dir: &Path, durability: Durability) -> Result<(), Error> {
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.is_dir()).collect();
    ensure_dir(dir)?;
    missing.iter().rev().filter_map(|d| d.parent()).try_for_each(|parent| {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        sync_dir(parent, durability)
    })
}

/// Makes the entries of `dir` durable.
pub(crate) fn sync_dir(dir: &Path, durability: Durability) -> Result<(), Error> {
    match durability {
        Durability::None => Ok(()),
        Durability::Full => File::open(dir).and_then(|d| d.sync_all()).map_err(Error::io(dir)),
    }
}

/// Makes all of these durable at the same time: one wait for the disk instead of one for each.
pub(crate) fn sync_together(what: &[Unsynced<'_>], durability: Durability) -> Result<(), Error> {
    let (Durability::Full, Some((first, others))) = (durability, what.split_first()) else { return Ok(()) };
    std::thread::scope(|scope| {
        let started: Vec<_> = others
            .iter()
            .map(|u| std::thread::Builder::new().spawn_scoped(scope, || u.sync()).map_err(|_| u))
            .collect();
        let mut done = first.sync();
        for other in started {
            let ended = match other {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(Error::invalid("a sync has panicked"))),
                // The system gives no more threads.
                Err(u) => u.sync(),
            };
            done = done.and(ended);
        }
        done
    })
}

/// What is written and not durable yet.
#[derive(Clone, Copy)]
pub(crate) enum Unsynced<'a> {
    /// The content of a temporary.
    File(&'a Temp),
    /// The entries of a directory.
    Dir(&'a Path),
}

impl Unsynced<'_> {
    fn sync(&self) -> Result<(), Error> {
        match self {
            Unsynced::File(temp) => temp.sync(Durability::Full),
            Unsynced::Dir(dir) => sync_dir(dir, Durability::Full),
        }
    }
}

/// A new private file under a temporary name; removed on drop unless it was put in place.
#[derive(Debug)]
pub(crate) struct Temp {
    path: PathBuf,
    file: Arc<File>,
    placed: bool,
}

impl Temp {
    /// Creates `tmp_<kind>_<random>` in `dir`, and `dir` too if a copying tool dropped it.
    pub(crate) fn new(dir: &Path, kind: &str) -> Result<Temp, Error> {
        let mut made_dir = false;
        loop {
            // Unique by O_EXCL; the random part only makes a second round unlikely.
            let tag = RandomState::new().build_hasher().finish();
            let path = dir.join(format!("{TEMP_PREFIX}{kind}_{}_{tag:016x}", std::process::id()));
            let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            match open {
                Ok(file) => {
                    let temp = Temp { path, file: Arc::new(file), placed: false };
                    temp.file
                        .set_permissions(Permissions::from_mode(0o600))
                        .map_err(Error::io(&temp.path))?;
                    return Ok(temp);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound && !made_dir => {
                    made_dir = true;
                    ensure_dir(dir)?;
                }
                Err(e) => return Err(Error::io(&path)(e)),
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The open file, for readers that may outlive the temporary.
    pub(crate) fn share(&self) -> Arc<File> {
        self.file.clone()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        (&*self.file).write_all(bytes).map_err(Error::io(&self.path))
    }

    /// Makes the content durable.
    pub(crate) fn sync(&self, durability: Durability) -> Result<(), Error> {
        match durability {
            Durability::None => Ok(()),
            Durability::Full => self.file.sync_data().map_err(Error::io(&self.path)),
        }
    }

    /// Renames to `to`, replacing what is there. The content must have been synced before.
    pub(crate) fn place(mut self, to: &Path) -> Result<(), Error> {
        let mut moved = fs::rename(&self.path, to);
        if let (Err(e), Some(parent)) = (&moved, to.parent())
            && e.kind() == io::ErrorKind::NotFound
            && !parent.is_dir()
        {
            // A collection has just removed it as empty.
            ensure_dir(parent)?;
            moved = fs::rename(&self.path, to);
        }
        moved.map_err(Error::io(to))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing can be done about a failure here; `clean_stale` gets it later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces `to` by `bytes`: temporary in `temp_dir` (same file system), sync, rename. The directory is not synced.
pub(crate) fn replace(
    temp_dir: &Path,
    kind: &str,
    to: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), Error> {
    let mut temp = Temp::new(temp_dir, kind)?;
    temp.write(bytes)?;
    temp.sync(durability)?;
    if let Some(parent) = to.parent()
        && parent != temp_dir
    {
        ensure_dir(parent)?;
    }
    temp.place(to)
}

/// Removes the temporaries in `dir`; the caller holds what proves that they have no owner. Returns how many.
pub(crate) fn remove_temps(dir: &Path) -> Result<u64, Error> {
    let mut n = 0;
    for name in names(dir)? {
        if name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            let path = dir.join(&name);
            match fs::remove_file(&path) {
                Ok(()) => n += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io(&path)(e)),
            }
        }
    }
    Ok(n)
}

/// The names in `dir`; none if it is not there.
pub(crate) fn names(dir: &Path) -> Result<Vec<std::ffi::OsString>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(dir)(e)),
    };
    entries.map(|e| e.map(|e| e.file_name()).map_err(Error::io(dir))).collect()
}

/// `name` as text where it ends in `suffix`, without it.
pub(crate) fn stem<'a>(name: &'a OsStr, suffix: &str) -> Option<&'a str> {
    name.to_str()?.strip_suffix(suffix)
}

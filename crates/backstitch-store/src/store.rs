//! The layout of a store, and the doors to its parts.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crate::{
    Error, Lock, Manifest, Odb, Refs, Writer,
    deflate::Deflater,
    files, hash,
    lock::{self, Mode},
    loose, manifest,
    object::Kind,
};

/// How much is synced before something is reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Pack, index, directory and ref, in that order.
    #[default]
    Full,
    /// Nothing (tests, scratch).
    None,
}

/// Objects, refs, locks and manifest of one workspace's history.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    manifest: Manifest,
    durability: Durability,
    odb: Arc<OnceLock<Odb>>,
}

/// Lock that whoever has temporaries holds shared.
pub(crate) const ALIVE: &str = "writers";
/// Lock that who takes `store` shared passes through, and that whoever waits for `store` alone holds for a moment.
pub(crate) const GATE: &str = "gate";

const DIRS: [&str; 9] = [
    "git",
    "git/objects",
    "git/objects/pack",
    "git/objects/info",
    "git/refs",
    "state",
    "journal",
    "parked",
    "locks",
];

const HEAD: &[u8] = b"ref: refs/heads/none\n";
const DESCRIPTION: &[u8] = b"Backstitch store. Any git can read it; only backstitch writes it.\n";
/// A stock git that is let loose here must not clean up what it does not know to be needed.
const CONFIG: &[u8] = b"[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
\tpruneExpire = never
[maintenance]
\tauto = false
[receive]
\tautogc = false
";

const CREATE_WAIT: Duration = Duration::from_secs(30);

impl Store {
    /// Makes a store in `dir`, private from the first byte. Where there is one already it is opened, with the manifest
    /// it has; an interrupted creation is completed.
    pub fn create(dir: &Path, manifest: &Manifest, durability: Durability) -> Result<Store, Error> {
        files::ensure_dir_durable(dir, durability)?;
        let locks = dir.join("locks");
        files::ensure_dir(&locks)?;
        let _lock = lock::take(&locks, "create", Mode::Exclusive, CREATE_WAIT)?;
        match Store::open(dir) {
            Ok(store) => return Ok(store.with_durability(durability)),
            Err(Error::NoStore { .. }) => {}
            Err(e) => return Err(e),
        }
        for sub in DIRS {
            files::ensure_dir(&dir.join(sub))?;
        }
        let git = dir.join("git");
        for (name, bytes) in [("HEAD", HEAD), ("config", CONFIG), ("description", DESCRIPTION)] {
            files::replace(&git, "new", &git.join(name), bytes, durability)?;
        }
        let objects = git.join("objects");
        if !loose::path(&objects, &hash::empty_tree()).exists() {
            loose::write(&objects, Kind::Tree, b"", &mut Deflater::new(), durability)?;
        }
        files::sync_dir(&git, durability)?;
        // The manifest comes last: it says that the rest is there.
        manifest.write(dir, durability)?;
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            files::sync_dir(parent, durability)?;
        }
        Store::open(dir).map(|s| s.with_durability(durability))
    }

    /// Opens the store in `dir`. Directories that a copying tool dropped are made again if that is possible; a store
    /// that may only be read opens for reading.
    pub fn open(dir: &Path) -> Result<Store, Error> {
        let manifest = Manifest::read(dir)?;
        for sub in DIRS {
            let sub = dir.join(sub);
            if !sub.is_dir() {
                // Needed by writers, who will fail with the reason, and by stock git.
                let _ = files::ensure_dir(&sub);
            }
        }
        Ok(Store { dir: dir.to_owned(), manifest, durability: Durability::Full, odb: Arc::default() })
    }

    /// The same store, with another durability than [`Durability::Full`].
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Store {
        self.durability = durability;
        self
    }

    /// What is synced.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The bare git repository.
    pub fn git_dir(&self) -> PathBuf {
        self.dir.join("git")
    }

    /// Caches, which may be deleted at any moment.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The restore in flight, if any.
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Files that could not be copied and were moved here.
    pub fn parked_dir(&self) -> PathBuf {
        self.dir.join("parked")
    }

    /// What the store says about its workspace, as of when it was opened.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Replaces the manifest at once and wholly.
    pub fn write_manifest(&self, m: &Manifest) -> Result<(), Error> {
        if m.format > manifest::FORMAT {
            return Err(Error::TooNew {
                path: self.dir.join(manifest::NAME),
                found: m.format,
                known: manifest::FORMAT,
            });
        }
        let _alive = self.alive()?;
        m.write(&self.dir, self.durability)
    }

    /// Writes `HEAD`, `config` and `description` of the repository anew where they are missing; `true` if any was.
    pub fn mend(&self) -> Result<bool, Error> {
        let git = self.git_dir();
        let mut any = false;
        for (name, bytes) in [("HEAD", HEAD), ("config", CONFIG), ("description", DESCRIPTION)] {
            if std::fs::symlink_metadata(git.join(name)).is_err() {
                files::replace(&git, "new", &git.join(name), bytes, self.durability())?;
                any = true;
            }
        }
        Ok(any)
    }

    /// A reading handle; all handles of one store share what they know.
    pub fn odb(&self) -> Result<Odb, Error> {
        Ok(self.odb.get_or_init(|| Odb::new(&self.dir, self.git_dir().join("objects"))).clone())
    }

    /// A new pack in the making. What dead processes left behind is removed first, if nobody else is writing.
    pub fn writer(&self) -> Result<Writer, Error> {
        if self.has_temps()? {
            // Only room is lost if it fails.
            let _ = self.clean_stale();
        }
        Writer::new(&self.odb()?, self.alive()?, self.durability)
    }

    /// The refs.
    pub fn refs(&self) -> Refs<'_> {
        Refs { store: self }
    }

    /// Takes the advisory lock `name` together with other shared holders, waiting up to `wait`.
    ///
    /// The lock `store` keeps the files in place that its holder has looked up: whoever captures holds it from its first
    /// look-up until its ref is in place.
    pub fn lock_shared(&self, name: &str, wait: Duration) -> Result<Lock, Error> {
        let start = Instant::now();
        let _through = match name {
            "store" => Some(lock::take(&self.dir.join("locks"), GATE, Mode::Shared, wait)?),
            _ => None,
        };
        let wait = wait.saturating_sub(start.elapsed());
        lock::take(&self.dir.join("locks"), name, Mode::Shared, wait)
    }

    /// Takes a lock alone in a store that may be too damaged to be opened.
    pub fn lock_at(dir: &Path, name: &str, wait: Duration) -> Result<Lock, Error> {
        lock::take(&dir.join("locks"), name, Mode::Exclusive, wait)
    }

    /// Takes the advisory lock `name` alone, waiting up to `wait`.
    pub fn lock_exclusive(&self, name: &str, wait: Duration) -> Result<Lock, Error> {
        lock::take(&self.dir.join("locks"), name, Mode::Exclusive, wait)
    }

    pub(crate) fn alive(&self) -> Result<Lock, Error> {
        // The other side holds it for as long as it takes to unlink a few files.
        self.lock_shared(ALIVE, CREATE_WAIT)
    }

    /// Where temporaries are made.
    fn temp_dirs(&self) -> [PathBuf; 5] {
        let git = self.git_dir();
        let objects = git.join("objects");
        [self.dir.clone(), self.state_dir(), git, objects.clone(), objects.join("pack")]
    }

    /// Somebody is writing, or died while doing so.
    fn has_temps(&self) -> Result<bool, Error> {
        for dir in self.temp_dirs() {
            let is_temp =
                |n: &std::ffi::OsString| n.as_encoded_bytes().starts_with(files::TEMP_PREFIX.as_bytes());
            if files::names(&dir)?.iter().any(is_temp) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the temporaries that dead processes left, which are harmless but take room. Does nothing while anybody
    /// is writing. Returns how many.
    pub fn clean_stale(&self) -> Result<u64, Error> {
        let alone = self.lock_exclusive(ALIVE, Duration::ZERO);
        let refs = self.lock_exclusive("refs", Duration::ZERO);
        let (_alone, _refs) = match (alone, refs) {
            (Ok(a), Ok(r)) => (a, r),
            (Err(Error::Busy { .. }), _) | (_, Err(Error::Busy { .. })) => return Ok(0),
            (Err(e), _) | (_, Err(e)) => return Err(e),
        };
        self.temp_dirs().iter().map(|d| files::remove_temps(d)).sum()
    }
}

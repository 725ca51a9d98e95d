//! One folder and its store: finding both, identity, locks.

mod identity;
mod lock;
mod rows;
mod surroundings;

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use backstitch_scan::{Limits, RuleSettings, Rules};
use backstitch_store::{Durability, Odb, Oid, Store};
use bstr::BString;

pub(crate) use self::identity::real_path;
use self::identity::{has_git, new_manifest};
pub use self::{
    identity::{
        KnownStore, from_manifest_path, incarnation, is_unbounded, manifest_path, store_name, stores,
    },
    lock::{CaptureLock, OperationLock},
    rows::Rows,
    surroundings::Surroundings,
};
use crate::{
    error::{Code, Error, Result},
    paths,
    record::{self, Record},
    settings::{self, Settings, Sources},
};

/// A repository around the base does not see it. A file that is there is left alone.
fn ignore_everything(base: &Path) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let path = base.join(".gitignore");
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => {
            file.write_all(b"*\n").and_then(|()| file.sync_all()).map_err(|e| Error::io(&path, e))
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Error::io(&path, e)),
    }
}

/// A directory with all above it; the names of those that were made are durable.
pub(crate) fn private_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.is_dir()).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Error::io(dir, e))?;
    for parent in missing.iter().rev().filter_map(|d| d.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        std::fs::File::open(parent).and_then(|d| d.sync_all()).map_err(|e| Error::io(parent, e))?;
    }
    Ok(())
}

/// A workspace, with its store if there is one.
pub struct Workspace {
    root: PathBuf,
    store_dir: PathBuf,
    store: Option<Store>,
    surroundings: Surroundings,
    settings: Settings,
    interrupt: Option<Arc<AtomicBool>>,
    /// What recovery did when this workspace was opened.
    pub recovered: Option<String>,
    /// The store that was there before is gone; the next row says so.
    pub(crate) lost: Option<String>,
    /// Records of rows by commit, as of the last look.
    records: Mutex<HashMap<Oid, Arc<Record>>>,
}

impl Workspace {
    /// The root of the workspace that `dir` belongs to (CONTRACT: the nearest known workspace at or above it, else the git work
    /// tree's top, else the folder itself). Looks at names only.
    ///
    /// # Errors
    /// `io` where the present folder is gone.
    pub fn find_root(dir: &Path, surroundings: &Surroundings) -> Result<PathBuf> {
        let start = real_path(dir)?;
        let base = &surroundings.store_base;
        let known = |root: &Path| {
            base.join("stores").join(store_name(root)).join("manifest.json").symlink_metadata().is_ok()
        };
        let home = surroundings.home.as_deref();
        for at in start.ancestors() {
            if at != start && is_unbounded(at, home) {
                break;
            }
            if known(at) || has_git(at) {
                return Ok(at.to_owned());
            }
        }
        Ok(start)
    }

    /// Opens the workspace of `dir` ([`Workspace::find_root`]). Creates nothing.
    ///
    /// A restore that a dead process left behind is finished or rolled back first, unless its lock is held.
    pub fn open(dir: &Path, surroundings: Surroundings) -> Result<Workspace> {
        let root = Workspace::find_root(dir, &surroundings)?;
        let store_dir = surroundings.store_base.join("stores").join(store_name(&root));
        let known = || store_dir.join("manifest.json").symlink_metadata().is_ok();
        let has_rows =
            || ["git/refs/backstitch", "git/packed-refs"].iter().any(|r| store_dir.join(r).exists());
        let mut sources = Sources {
            user: surroundings.user_config.clone(),
            project: Some(root.join(settings::PROJECT_FILE)),
            environment: surroundings.settings.clone(),
            trusted: Vec::new(),
        };
        if sources.project.as_ref().is_some_and(|p| p.exists()) {
            sources.trusted = surroundings.trusted();
        }
        let settings = Settings::load(&sources);
        let mut mended = None;
        let store = match store_dir.join("git").symlink_metadata().is_ok() || known() {
            false => None,
            true => {
                match Store::open(&store_dir) {
                    Ok(store) => {
                        let git = store.git_dir();
                        if !git.join("config").exists() && !git.join("HEAD").exists() {
                            return Err(Error::new(
                            Code::StoreDamaged,
                            format!("{}: the checkpoints are gone: there is a store without its repository", git.display()),
                        )
                        .at(&git)
                        .hint("put the folder back from a copy, or give it up with `backstitch stores purge`"));
                        }
                        Some(store)
                    }
                    // Neither manifest nor rows: it is in the making, by another process or by one that died there.
                    Err(backstitch_store::Error::NoStore { .. }) if !has_rows() => None,
                    // The name of the store's folder proves whose it is: the manifest can be written again.
                    Err(
                        e @ (backstitch_store::Error::NoStore { .. }
                        | backstitch_store::Error::Damaged { .. }),
                    ) if store_dir.join("git/objects").is_dir() => {
                        let file = store_dir.join("manifest.json");
                        if matches!(e, backstitch_store::Error::Damaged { .. }) {
                            let aside = file.with_extension(format!("damaged-{}", record::now_ms()));
                            std::fs::rename(&file, &aside).map_err(|e| Error::io(&file, e))?;
                        }
                        let manifest = new_manifest(&root)?;
                        let created = manifest.created_ms;
                        let store = Store::create(&store_dir, &manifest, Durability::Full)?;
                        // Not where its maker was only not yet done.
                        if store.manifest().created_ms == created {
                            mended = Some(
                                "the store's manifest was missing or damaged, and was written anew"
                                    .to_owned(),
                            );
                        }
                        Some(store)
                    }
                    Err(e) => return Err(e.into()),
                }
            }
        };
        let mut ws = Workspace {
            root,
            store_dir,
            store,
            surroundings,
            settings,
            interrupt: None,
            recovered: None,
            lost: None,
            records: Mutex::default(),
        };
        if let Some(store) = &ws.store {
            let recorded = from_manifest_path(&store.manifest().path);
            if recorded != ws.root {
                return Err(Error::new(
                    Code::WrongWorkspace,
                    format!("the store {} belongs to {}", store.dir().display(), recorded.display()),
                )
                .at(&ws.root)
                .hint("`backstitch relink OLD-PATH` attaches a moved workspace"));
            }
        }
        // What cannot be taken back stops changes, not reading: the locks try again and tell.
        match crate::recover::if_needed(&ws) {
            Ok(said) => ws.recovered = said.or(mended),
            Err(e) => {
                ws.recovered =
                    Some(format!("an interrupted operation could not be taken back: {}", e.message));
            }
        }
        Ok(ws)
    }

    /// Once this is set, no lock is waited for any longer: the call ends with `interrupted`.
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = Some(flag);
    }

    /// The root's real path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// An absolute path's place in the workspace; `None` outside. Lexical, but for links on the way to the last name: a
    /// link that is named is the link itself. The workspace itself is the empty path.
    pub fn locate(&self, absolute: &Path) -> Option<BString> {
        paths::relative(&self.root, &paths::lexical(absolute)).map(|p| paths::bytes(&p).into())
    }

    /// The same for a path that may be outside: there it is absolute, below its real parent. What tools name is given so.
    pub fn locate_anywhere(&self, absolute: &Path) -> BString {
        let plain = paths::lexical(absolute);
        if let Some(inside) = paths::relative(&self.root, &plain) {
            return paths::bytes(&inside).into();
        }
        let real = match (plain.parent().map(real_path), plain.file_name()) {
            (Some(Ok(parent)), Some(name)) => parent.join(name),
            _ => plain,
        };
        paths::bytes(real.strip_prefix(&self.root).unwrap_or(&real)).into()
    }

    /// Where the store is, or would be.
    pub fn store_dir(&self) -> &Path {
        &self.store_dir
    }

    /// The store; `no-such-store` where nothing was ever recorded.
    ///
    /// # Errors
    /// `wrong-workspace`, naming `relink`, where this folder's rows were made at another path.
    pub fn store(&self) -> Result<&Store> {
        if let Some(store) = &self.store {
            return Ok(store);
        }
        self.refuse_moved()?;
        let below: Vec<String> = stores(&self.surroundings.store_base)
            .into_iter()
            .filter_map(|k| k.manifest.ok().map(|m| from_manifest_path(&m.path)))
            .filter(|p| p.starts_with(&self.root))
            .map(|p| p.display().to_string())
            .collect();
        let hint = match below.first() {
            _ if self.vanished().is_some() => {
                "put the store's folder back from a copy; the next `backstitch checkpoint` makes a new, empty one".to_owned()
            }
            None => "`backstitch checkpoint` records the folder".to_owned(),
            Some(first) => format!(
                "there are checkpoints of {first}: name it with -C; `backstitch stores list` shows all"
            ),
        };
        let gone = self.vanished();
        let said = gone.unwrap_or_else(|| format!("nothing is recorded for {}", self.root.display()));
        Err(Error::new(Code::NoSuchStore, said).at(&self.root).list(below).hint(hint))
    }

    /// A folder without a store that is, by device, inode and birth time, the one of another store whose path is gone.
    pub(crate) fn refuse_moved(&self) -> Result<()> {
        if self.store.is_some() || !self.root.is_dir() {
            return Ok(());
        }
        let now = incarnation(&self.root)?;
        for m in stores(&self.surroundings.store_base).into_iter().filter_map(|k| k.manifest.ok()) {
            let old = from_manifest_path(&m.path);
            let same = (m.dev, m.ino, m.birth_ns) == (now.dev, now.ino, now.birth_ns.map(i128::from));
            let there = incarnation(&old).is_ok_and(|i| i == now);
            if same && old != self.root && !there {
                return Err(Error::new(
                    Code::WrongWorkspace,
                    format!("{} was {} when its checkpoints were made", self.root.display(), old.display()),
                )
                .at(&self.root)
                .hint(format!("`backstitch relink {}` attaches them to the new place", old.display())));
            }
        }
        Ok(())
    }

    /// There is a store.
    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The surroundings it was opened with.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Why nothing is recorded here, if so.
    pub fn disabled(&self) -> Option<String> {
        if self.surroundings.disabled {
            return Some("BACKSTITCH_DISABLE is set".to_owned());
        }
        if !self.settings.flag("enabled") {
            let source = self.settings.get("enabled").map(|(_, s)| s);
            return Some(match source {
                Ok(s) => format!(
                    "`enabled = false` in the {} settings",
                    serde_json::to_string(&s).unwrap_or_default().trim_matches('"')
                ),
                Err(_) => "`enabled = false`".to_owned(),
            });
        }
        let off =
            self.store.as_ref().and_then(|s| s.manifest().extra.get("disabled")).and_then(|v| v.as_bool());
        (off == Some(true)).then(|| "switched off by `backstitch disable`".to_owned())
    }

    /// Switches recording of this workspace on or off, for good.
    pub fn set_enabled(&mut self, on: bool) -> Result<()> {
        self.surroundings.refuse_agents(if on { "enable" } else { "disable" })?;
        let store = self.create_store()?;
        let mut m = store.manifest().clone();
        if on {
            m.extra.remove("disabled");
        } else {
            m.extra.insert("disabled".to_owned(), true.into());
        }
        store.write_manifest(&m)?;
        self.store = Some(Store::open(&self.store_dir)?);
        Ok(())
    }

    /// Opens the store, creating it on first use. Idempotent.
    pub fn create_store(&mut self) -> Result<&Store> {
        if self.store.is_none() {
            crate::network::check(&self.surroundings.store_base, &self.settings)?;
            self.lost = self.vanished();
            let manifest = new_manifest(&self.root)?;
            private_dir(&self.surroundings.store_base)?;
            private_dir(&self.surroundings.store_base.join("stores"))?;
            ignore_everything(&self.surroundings.store_base)?;
            self.store = Some(Store::create(&self.store_dir, &manifest, self.durability())?);
        }
        self.note_known()?;
        self.store()
    }

    fn durability(&self) -> Durability {
        match self.settings.word("durability") {
            "none" => Durability::None,
            _ => Durability::Full,
        }
    }

    /// Reading handle.
    pub fn odb(&self) -> Result<Odb> {
        Ok(self.store()?.odb()?)
    }

    /// The owner that needs no meta line: the workspace's when the store was made.
    pub fn owner(&self) -> (u32, u32) {
        let m = self.store.as_ref().map(|s| s.manifest());
        let n = |k: &str| {
            m.and_then(|m| m.extra.get(k)).and_then(|v| v.as_u64()).and_then(|v| u32::try_from(v).ok())
        };
        match (n("uid"), n("gid")) {
            (Some(u), Some(g)) => (u, g),
            _ => (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        }
    }

    /// How long to wait for others.
    pub fn lock_wait(&self) -> Duration {
        Duration::from_secs(self.settings.int("lock_wait"))
    }

    /// Ignore rules in force today.
    pub fn rules(&self) -> Result<Rules> {
        let s = &self.settings;
        Ok(Rules::discover(
            &self.root,
            &RuleSettings {
                include: s.list("include"),
                exclude: s.list("exclude"),
                never: s.list("never_store"),
                global_excludes: match s.word("global_excludes") {
                    "always" => Some(true),
                    "never" => Some(false),
                    _ => None,
                },
                gitignore_outside_git: s.flag("gitignore_outside_git"),
                device_names: match s.word("windows_names") {
                    "leave-out" => true,
                    "keep" => false,
                    _ => cfg!(windows),
                },
                home: self.surroundings.home.clone(),
                trust_backstitchignore: self.trusts_ignore_file(),
            },
        )?)
    }

    /// `.backstitchignore` may narrow coverage only once a person has trusted its content (SEMANTICS 37).
    fn trusts_ignore_file(&self) -> bool {
        match settings::read_file(&self.root.join(".backstitchignore")) {
            Ok(Some(bytes)) => self.surroundings.trusted().contains(&settings::digest(&bytes)),
            _ => false,
        }
    }

    /// Limits in force.
    pub fn limits(&self) -> Limits {
        let s = &self.settings;
        Limits {
            new_file: s.int("limits.new_file"),
            grown_file: s.int("limits.grown_file"),
            ignored_file: s.int("limits.ignored_file"),
            ignored_total: s.int("limits.ignored_total"),
            entries: s.int("limits.entries"),
        }
    }

    /// Threads of a capture.
    pub fn threads(&self) -> usize {
        match self.settings.int("threads") {
            0 => std::thread::available_parallelism().map_or(2, |n| n.get()),
            n => usize::try_from(n).unwrap_or(2).min(64),
        }
    }

    /// Folders that are never entered: every store.
    pub fn never(&self) -> Vec<(u64, u64)> {
        let base = &self.surroundings.store_base;
        [base.clone(), base.join("stores"), self.store_dir.clone()]
            .iter()
            .filter_map(|p| p.metadata().ok())
            .map(|m| (m.dev(), m.ino()))
            .collect()
    }

    /// The folder is narrowed to touched files from the start.
    pub fn is_unbounded(&self) -> bool {
        is_unbounded(&self.root, self.surroundings.home.as_deref())
    }
}

/// Passed to long work.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Set to stop: the work ends with `interrupted` and leaves nothing half done.
    pub interrupt: &'a AtomicBool,
    /// Told (what, done, total or 0).
    pub progress: &'a (dyn Fn(&str, u64, u64) + Sync),
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Default for Control<'_> {
    fn default() -> Self {
        Control { interrupt: &NEVER, progress: &|_, _, _| {} }
    }
}

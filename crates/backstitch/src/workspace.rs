//! One folder and its store: finding both, identity, locks.

use std::{
    collections::BTreeMap,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use backstitch_scan::{Limits, RuleSettings, Rules};
use backstitch_store::{Durability, Lock, Manifest, Odb, Store};
use bstr::{BString, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    paths,
    record::{self, Checkpoint, Incarnation, Record},
    session::SessionRecord,
    settings::{self, Settings, Sources},
};

/// What the library may know of its surroundings. [`Surroundings::of_process`] reads them; the engine itself never
/// looks at the environment.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The user's settings file.
    pub user_config: Option<PathBuf>,
    /// Base folder of all stores.
    pub store_base: PathBuf,
    /// `BACKSTITCH_DISABLE=1`.
    pub disabled: bool,
    /// The session in whose name rows are made.
    pub session: Option<String>,
    /// The session inside which the process runs: it is not removed from below it.
    pub inside: Option<String>,
    /// Settings by environment variable.
    pub settings: Vec<(String, String)>,
    /// The host variable that shows that an agent is calling (SEMANTICS 36).
    pub agent_context: Option<String>,
    /// The `backstitch` program, where processes that tidy up may be started; none: nothing runs by itself.
    pub program: Option<PathBuf>,
}

/// Variables by which agents are recognised.
const AGENT_VARIABLES: &[&str] = &[
    "BACKSTITCH_SESSION",
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_THREAD_ID",
    "GEMINI_CLI",
    "OPENCODE",
    "PI_CODING_AGENT",
];

impl Surroundings {
    /// Reads the process's environment.
    pub fn of_process() -> Surroundings {
        let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty());
        let home = var("HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let absolute = |n: &str| var(n).map(PathBuf::from).filter(|p| p.is_absolute());
        let under_home = |rel: &str| home.as_ref().map(|h| h.join(rel));
        let (data, config) = if cfg!(target_os = "macos") {
            (under_home("Library/Application Support"), under_home("Library/Application Support"))
        } else {
            (
                absolute("XDG_DATA_HOME").or_else(|| under_home(".local/share")),
                absolute("XDG_CONFIG_HOME").or_else(|| under_home(".config")),
            )
        };
        let truthy = |v: &std::ffi::OsStr| !matches!(v.to_str(), Some("0" | "false" | "no" | ""));
        Surroundings {
            store_base: var("BACKSTITCH_STORE_DIR").map(PathBuf::from).unwrap_or_else(|| {
                data.unwrap_or_else(|| {
                    std::env::temp_dir().join(format!("backstitch-{}", rustix::process::getuid().as_raw()))
                })
                .join("backstitch")
            }),
            user_config: var("BACKSTITCH_CONFIG")
                .map(PathBuf::from)
                .or_else(|| config.map(|c| c.join("backstitch/config.toml"))),
            disabled: var("BACKSTITCH_DISABLE").is_some_and(|v| truthy(&v)),
            session: var("BACKSTITCH_SESSION").and_then(|v| v.into_string().ok()),
            inside: var("BACKSTITCH_SESSION").and_then(|v| v.into_string().ok()),
            settings: std::env::vars().filter(|(k, _)| k.starts_with("BACKSTITCH_")).collect(),
            program: None,
            agent_context: AGENT_VARIABLES.iter().find(|n| var(n).is_some()).map(|n| n.to_string()),
            home,
        }
    }

    fn trust_file(&self) -> PathBuf {
        self.store_base.join("trust.json")
    }

    /// Digests of project files that a person trusts.
    pub fn trusted(&self) -> Vec<String> {
        std::fs::read(self.trust_file())
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or_default()
    }

    /// Adds a digest.
    pub fn trust(&self, digest: &str) -> Result<()> {
        let mut all = self.trusted();
        if !all.iter().any(|d| d == digest) {
            all.push(digest.to_owned());
            let json = serde_json::to_vec(&all).unwrap_or_default();
            private_dir(&self.store_base)?;
            settings::write_file(&self.trust_file(), &json)?;
        }
        Ok(())
    }
}

/// A repository around the base does not see it. A file that is there is left alone.
fn ignore_everything(base: &Path) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let path = base.join(".gitignore");
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => file.write_all(b"*\n").map_err(|e| Error::io(&path, e)),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Error::io(&path, e)),
    }
}

pub(crate) fn private_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Error::io(dir, e))
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
}

/// The real path where it resolves, else the real path of the nearest parent that does, else lexical.
pub(crate) fn real_path(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir).map_err(|e| Error::io(dir, e))?;
    let mut rest = Vec::new();
    let mut at = absolute.as_path();
    loop {
        match at.canonicalize() {
            Ok(mut p) => {
                for part in rest.iter().rev() {
                    p.push(part);
                }
                return Ok(p);
            }
            Err(_) => match (at.parent(), at.file_name()) {
                (Some(parent), Some(name)) => {
                    rest.push(name.to_owned());
                    at = parent;
                }
                _ => return Ok(absolute),
            },
        }
    }
}

/// `<name>-<16 hex of the path's hash>`.
pub fn store_name(root: &Path) -> String {
    let name: String = root
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_else(|| "root".to_owned())
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .take(40)
        .collect();
    let name = name.trim_start_matches('.');
    let hash = settings::digest(root.as_os_str().as_bytes());
    format!("{}-{}", if name.is_empty() { "dir" } else { name }, &hash[..16.min(hash.len())])
}

fn has_git(dir: &Path) -> bool {
    dir.join(".git").symlink_metadata().is_ok()
}

/// Exactly `/`, home, volume roots, Desktop, Documents, Downloads (SEMANTICS 25).
pub fn is_unbounded(root: &Path, home: Option<&Path>) -> bool {
    if root.parent().is_none() {
        return true;
    }
    if let Some(home) = home {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        if root == home || ["Desktop", "Documents", "Downloads"].iter().any(|d| root == home.join(d)) {
            return true;
        }
    }
    let parent_dev = root.parent().and_then(|p| p.metadata().ok()).map(|m| m.dev());
    let own = root.metadata().ok().map(|m| m.dev());
    let name = root.parent().map(|p| p.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    // A mount point directly below a place where volumes are mounted.
    parent_dev.is_some()
        && own.is_some()
        && parent_dev != own
        && (matches!(name.as_slice(), b"/mnt" | b"/media" | b"/Volumes")
            || name.starts_with(b"/media/")
            || name.starts_with(b"/run/media/"))
}

/// Device, inode and birth time of a folder.
pub fn incarnation(root: &Path) -> Result<Incarnation> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let m = root.metadata().map_err(|e| Error::io(root, e))?;
    let birth_ns = statx(CWD, root, AtFlags::empty(), StatxFlags::BTIME)
        .ok()
        .filter(|s| s.stx_mask & StatxFlags::BTIME.bits() != 0)
        .map(|s| s.stx_btime.tv_sec * 1_000_000_000 + i64::from(s.stx_btime.tv_nsec));
    Ok(Incarnation { dev: m.dev(), ino: m.ino(), birth_ns })
}

/// Wrapper for paths in the manifest.
pub fn manifest_path(root: &Path) -> String {
    match root.to_str() {
        Some(s) if !s.contains('%') => s.to_owned(),
        _ => root.as_os_str().as_bytes().iter().map(|b| paths::escape(&[*b])).collect(),
    }
}

/// Inverse of [`manifest_path`].
pub fn from_manifest_path(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    match paths::unescape(text.as_bytes()) {
        Some(b) => PathBuf::from(std::ffi::OsString::from_vec(b.into())),
        None => PathBuf::from(text),
    }
}

/// The manifest of a store to come.
fn new_manifest(root: &Path) -> Result<Manifest> {
    let inc = incarnation(root)?;
    let m = root.metadata().map_err(|e| Error::io(root, e))?;
    let now = record::now_ms();
    let mut extra = serde_json::Map::new();
    extra.insert("uid".to_owned(), m.uid().into());
    extra.insert("gid".to_owned(), m.gid().into());
    Ok(Manifest {
        format: 1,
        path: manifest_path(root),
        dev: inc.dev,
        ino: inc.ino,
        birth_ns: inc.birth_ns.map(i128::from),
        created_ms: now,
        last_used_ms: now,
        extra,
    })
}

/// A store of any workspace.
#[derive(Clone, Debug)]
pub struct KnownStore {
    /// The store's folder.
    pub dir: PathBuf,
    /// Its manifest; an unreadable one is the error.
    pub manifest: std::result::Result<Manifest, String>,
}

/// All stores below a base folder; a missing base gives an empty list.
pub fn stores(base: &Path) -> Vec<KnownStore> {
    let Ok(dir) = std::fs::read_dir(base.join("stores")) else { return Vec::new() };
    let mut all: Vec<KnownStore> = dir
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| {
            let dir = e.path();
            let manifest = std::fs::read(dir.join("manifest.json"))
                .map_err(|e| e.to_string())
                .and_then(|b| serde_json::from_slice(&b).map_err(|e| e.to_string()));
            KnownStore { dir, manifest }
        })
        .collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
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
                Some(match Store::open(&store_dir) {
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
                        store
                    }
                    // The name of the store's folder proves whose it is: the manifest can be written again.
                    Err(
                        backstitch_store::Error::NoStore { .. } | backstitch_store::Error::Damaged { .. },
                    ) if store_dir.join("git/objects").is_dir() => {
                        let file = store_dir.join("manifest.json");
                        if file.exists() {
                            let aside = file.with_extension(format!("damaged-{}", record::now_ms()));
                            std::fs::rename(&file, &aside).map_err(|e| Error::io(&file, e))?;
                        }
                        mended = Some(
                            "the store's manifest was missing or damaged, and was written anew".to_owned(),
                        );
                        Store::create(&store_dir, &new_manifest(&root)?, Durability::Full)?
                    }
                    Err(e) => return Err(e.into()),
                })
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

    /// Takes a lock, waiting as long as the settings say or until it is interrupted.
    pub(crate) fn lock(&self, store: &Store, name: &str, exclusive: bool) -> Result<Lock> {
        const SLICE: Duration = Duration::from_millis(100);
        crate::network::check(store.dir(), &self.settings)?;
        let end = Instant::now() + self.lock_wait();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = left.min(SLICE);
            let taken = match exclusive {
                true => store.lock_exclusive(name, wait),
                false => store.lock_shared(name, wait),
            };
            let interrupted = self.interrupt.as_ref().is_some_and(|i| i.load(Ordering::Relaxed));
            match taken {
                Err(backstitch_store::Error::Busy { .. }) if interrupted => {
                    return Err(Error::new(
                        Code::Interrupted,
                        "interrupted while waiting for another process; nothing was changed",
                    ));
                }
                Err(backstitch_store::Error::Busy { .. }) if left > SLICE => {}
                r => return Ok(r?),
            }
        }
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

    /// All rows, oldest first; damaged ones as warnings, never dropped in silence.
    pub fn rows(&self) -> Result<Rows> {
        let (rows, bad) = self.store()?.refs().rows(record::CHECKPOINTS)?;
        let mut out = Rows {
            all: Vec::with_capacity(rows.len()),
            damaged: Vec::new(),
            sessions: self.session_records().unwrap_or_default(),
        };
        for (name, e) in bad {
            out.damaged.push((name, e.to_string()));
        }
        for row in rows {
            match Record::parse(&row) {
                Ok(record) => out.all.push(Checkpoint { record, commit: row.commit, tree: row.tree }),
                Err(e) => out.damaged.push((row.name.clone(), e.message)),
            }
        }
        out.all.sort_by(|a, b| a.record.order().cmp(&b.record.order()));
        Ok(out)
    }

    /// Ignore rules in force today.
    pub fn rules(&self) -> Result<Rules> {
        let s = &self.settings;
        Ok(Rules::discover(
            &self.root,
            &RuleSettings {
                include: s.list("include"),
                exclude: s.list("exclude"),
                global_excludes: match s.word("global_excludes") {
                    "always" => Some(true),
                    "never" => Some(false),
                    _ => None,
                },
                gitignore_outside_git: s.flag("gitignore_outside_git"),
                home: self.surroundings.home.clone(),
                trust_backstitchignore: self.trusts_ignore_file(),
            },
        )?)
    }

    /// `.backstitchignore` may narrow coverage only once a person has trusted its content (SEMANTICS 37).
    fn trusts_ignore_file(&self) -> bool {
        match std::fs::read(self.root.join(".backstitchignore")) {
            Ok(bytes) => self.surroundings.trusted().contains(&settings::digest(&bytes)),
            Err(_) => false,
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

    /// Known workspaces above and below, and those that hold the files elsewhere, with their stores.
    fn relatives(&self, elsewhere: &[BString]) -> BTreeMap<PathBuf, PathBuf> {
        stores(&self.surroundings.store_base)
            .into_iter()
            .filter_map(|k| k.manifest.ok().map(|m| (from_manifest_path(&m.path), k.dir)))
            .filter(|(p, dir)| {
                let holds = |f: &BString| paths::to_path(&self.root, f.as_bstr()).starts_with(p);
                *dir != self.store_dir
                    && (p.starts_with(&self.root) || self.root.starts_with(p) || elsewhere.iter().any(holds))
            })
            .collect()
    }

    /// Many captures at once; excludes operations on the work tree.
    pub fn lock_capture(&self) -> Result<CaptureLock> {
        let store = self.store()?;
        // A process that died since this workspace was opened may have left the tree half way.
        for _ in 0..8 {
            let held = CaptureLock {
                _workspace: self.lock(store, "workspace", false)?,
                _store: self.lock(store, "store", false)?,
            };
            if !crate::recover::is_pending(self) {
                return Ok(held);
            }
            drop(held);
            crate::recover::if_needed(self)?;
        }
        Err(Error::new(Code::Busy, format!("{}: an operation waits to be taken back", self.root.display()))
            .at(&self.root)
            .hint("try again in a moment"))
    }

    /// One operation at a time, here and in every known workspace above and below. Locks are taken in the order of
    /// their workspaces' paths, so two operations cannot wait for each other.
    pub fn lock_operation(&self) -> Result<OperationLock> {
        self.lock_operation_with(&[])
    }

    /// The same for an operation that may change these files elsewhere, by absolute path.
    pub(crate) fn lock_operation_with(&self, elsewhere: &[BString]) -> Result<OperationLock> {
        let mut order = self.relatives(elsewhere);
        order.insert(self.root.clone(), self.store_dir.clone());
        let mut held = Vec::new();
        for (root, dir) in order {
            let store = Store::open(&dir)?;
            held.push(self.lock(&store, "workspace", true).map_err(|e| {
                match e.code {
                    Code::Busy => Error::new(
                        Code::Busy,
                        format!("{}: a capture or an operation is running here", root.display()),
                    )
                    .at(&root)
                    .hint("try again when it has ended; nothing was changed"),
                    _ => e,
                }
            })?);
        }
        let store = self.lock(self.store()?, "store", false)?;
        if crate::recover::is_pending(self) {
            crate::recover::locked(self)?;
        }
        Ok(OperationLock { _workspaces: held, _store: store })
    }
}

/// Proof that captures may write rows: holds the workspace's and the store's lock shared.
pub struct CaptureLock {
    _workspace: Lock,
    _store: Lock,
}

/// Proof that the work tree may be changed.
pub struct OperationLock {
    _workspaces: Vec<Lock>,
    _store: Lock,
}

/// Proof that nothing is recorded and no work tree changes.
pub(crate) struct WorkspaceLock {
    _workspaces: Vec<Lock>,
}

impl OperationLock {
    /// Lets go of the store, which whoever removes files from it takes alone.
    pub(crate) fn without_store(self) -> WorkspaceLock {
        WorkspaceLock { _workspaces: self._workspaces }
    }
}

/// All rows of a workspace.
#[derive(Debug, Default)]
pub struct Rows {
    /// Oldest first.
    pub all: Vec<Checkpoint>,
    /// Ref names that cannot be read, and why.
    pub damaged: Vec<(String, String)>,
    /// Records of sessions by id, as far as they can be read.
    pub sessions: BTreeMap<String, SessionRecord>,
}

impl Rows {
    /// The newest.
    pub fn newest(&self) -> Option<&Checkpoint> {
        self.all.last()
    }

    /// The row that a new one is compared with: the newest of its session that `@` counts, else the newest that `@`
    /// counts, else the newest that is no gap.
    pub fn parent(&self, session: Option<&str>) -> Option<&Checkpoint> {
        let counted = |c: &&Checkpoint| {
            c.record.kind.is_counted()
                && matches!(c.record.state, record::State::Complete | record::State::Partial)
        };
        let own = |c: &&Checkpoint| session.is_none() || c.record.session.as_deref() == session;
        self.all
            .iter()
            .rev()
            .find(|c| counted(c) && own(c))
            .or_else(|| self.all.iter().rev().find(counted))
            .or_else(|| self.all.iter().rev().find(|c| c.record.state != record::State::Gap))
    }

    /// By id.
    pub fn by_id(&self, id: &str) -> Option<&Checkpoint> {
        self.all.iter().find(|c| c.record.id == id)
    }

    /// The next row's order.
    pub fn next_seq(&self) -> u64 {
        self.all.last().map_or(1, |c| c.record.seq + 1)
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

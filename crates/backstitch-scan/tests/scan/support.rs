//! A sink in memory, trees on disk, and real git.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use backstitch_scan::*;

/// A clock that is this many nanoseconds ahead, so that files made just now count as old.
pub struct Ahead(pub i128);

impl Clock for Ahead {
    fn now_ns(&self) -> i128 {
        SystemClock.now_ns() + self.0
    }
}

/// An hour.
pub const LATER: Ahead = Ahead(3_600_000_000_000);

/// What the sink was given under one id.
#[derive(Clone, Debug)]
pub enum Stored {
    File(Vec<u8>),
    Link(Vec<u8>),
    Dir(Vec<(BString, u32, ChildId, Option<Xattrs>)>),
}

/// Called with the path before a file is read.
pub type OnFile = Box<dyn Fn(&BStr) + Sync + Send>;

/// Keeps everything, and counts calls.
#[derive(Default)]
pub struct Memory {
    pub stored: Mutex<HashMap<Oid, Stored>>,
    pub files: AtomicU64,
    pub links: AtomicU64,
    pub dirs: AtomicU64,
    /// One for each thread.
    pub scratches: AtomicU64,
    /// Called with the path before a file is read.
    pub on_file: Option<OnFile>,
    /// Ids that [`Sink::has`] denies.
    pub gone: Mutex<Vec<Oid>>,
    /// Answers of [`Sink::covered`].
    pub known: Mutex<HashMap<BString, u64>>,
}

pub fn hash(kind: &str, bytes: &[u8]) -> Oid {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(kind.as_bytes());
    hasher.update(bytes);
    hasher.try_finalize().unwrap()
}

impl Sink for Memory {
    type Scratch = ();
    fn scratch(&self) {
        self.scratches.fetch_add(1, Ordering::Relaxed);
    }

    fn file(&self, (): &mut (), path: &BStr, file: &mut File, stat: &Stat) -> Result<Oid, SinkError> {
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Some(call) = &self.on_file {
            call(path);
        }
        let mut bytes = vec![0; stat.size as usize];
        file.read_exact(&mut bytes).map_err(SinkError::Read)?;
        let id = hash("file", &bytes);
        self.stored.lock().unwrap().insert(id, Stored::File(bytes));
        Ok(id)
    }

    fn link(&self, (): &mut (), _: &BStr, target: &[u8]) -> Result<Oid, SinkError> {
        self.links.fetch_add(1, Ordering::Relaxed);
        let id = hash("link", target);
        self.stored.lock().unwrap().insert(id, Stored::Link(target.to_vec()));
        Ok(id)
    }

    fn dir(&self, (): &mut (), dir: &Dir<'_>) -> Result<DirIds, SinkError> {
        self.dirs.fetch_add(1, Ordering::Relaxed);
        let mut text = Vec::new();
        let mut children = Vec::new();
        for child in dir.children {
            text.extend_from_slice(child.name);
            text.push(0);
            text.extend(child.stat.mode.to_le_bytes());
            text.extend(format!("{:?}{:?}{:?}", child.stat.kind, child.id, child.xattrs).into_bytes());
            children.push((child.name.to_owned(), child.stat.mode, child.id.clone(), child.xattrs.cloned()));
        }
        assert!(children.is_sorted_by(|a, b| a.0 < b.0), "children are sorted");
        let id = hash("dir", &text);
        self.stored.lock().unwrap().insert(id, Stored::Dir(children));
        Ok(DirIds { tree: id, meta: dir.xattrs.map(|x| hash("xattrs", format!("{x:?}").as_bytes())) })
    }

    fn has(&self, id: &Oid) -> bool {
        !self.gone.lock().unwrap().contains(id) && self.stored.lock().unwrap().contains_key(id)
    }

    fn covered(&self, path: &BStr) -> Option<u64> {
        self.known.lock().unwrap().get(path).copied()
    }
}

impl Memory {
    pub fn reset(&self) {
        for counter in [&self.files, &self.links, &self.dirs] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn calls(&self) -> (u64, u64, u64) {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        (get(&self.files), get(&self.links), get(&self.dirs))
    }

    /// Every covered path below an id, with a letter for its kind and its content.
    pub fn flatten(&self, ids: &DirIds) -> BTreeMap<BString, (char, Vec<u8>)> {
        let stored = self.stored.lock().unwrap();
        let mut found = BTreeMap::new();
        let mut pending = vec![(BString::default(), ids.tree)];
        while let Some((dir, id)) = pending.pop() {
            let Some(Stored::Dir(children)) = stored.get(&id) else { panic!("no directory {id}") };
            for (name, _, id, _) in children {
                let mut path = dir.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                match id {
                    ChildId::Dir(ids) => {
                        found.insert(path.clone(), ('d', Vec::new()));
                        pending.push((path, ids.tree));
                    }
                    ChildId::Leaf(id) => {
                        let what = match &stored[id] {
                            Stored::File(bytes) => ('f', bytes.clone()),
                            Stored::Link(target) => ('l', target.clone()),
                            Stored::Dir(_) => panic!("a leaf is a directory"),
                        };
                        found.insert(path, what);
                    }
                }
            }
        }
        found
    }
}

/// What a scan is run with; the fields are changed by tests.
pub struct Setup {
    pub rules: Rules,
    pub threads: usize,
    pub limits: Limits,
    pub ignored: Ignored,
    pub nested: bool,
    pub bare: bool,
    pub never: Vec<(u64, u64)>,
    pub keep_covered: bool,
    pub paranoid: bool,
    pub quiet: Option<Quiet>,
    pub vouched: bool,
    pub deadline: Option<std::time::Instant>,
    pub interrupt: AtomicBool,
    pub clock: Ahead,
}

impl Setup {
    pub fn with(rules: Rules) -> Setup {
        Setup {
            rules,
            threads: 2,
            limits: Limits::default(),
            ignored: Ignored::None,
            nested: true,
            bare: false,
            never: Vec::new(),
            keep_covered: false,
            paranoid: false,
            quiet: None,
            vouched: true,
            deadline: None,
            interrupt: AtomicBool::new(false),
            clock: LATER,
        }
    }

    /// The rules of the folder itself, with a home that has no configuration.
    pub fn of(root: &Path) -> Setup {
        Setup::with(rules(root, &RuleSettings::default()))
    }

    pub fn options(&self) -> Options<'_> {
        Options {
            threads: self.threads,
            rules: &self.rules,
            limits: self.limits.clone(),
            ignored: self.ignored,
            nested_is_content: self.nested,
            bare_is_content: self.bare,
            never: &self.never,
            keep_covered: self.keep_covered,
            paranoid: self.paranoid,
            quiet: self.quiet.as_ref(),
            note_anew: false,
            table_vouched: self.vouched,
            deadline: self.deadline,
            interrupt: &self.interrupt,
            progress: &|_, _| {},
        }
    }

    pub fn try_scan(&self, root: &Path, table: Option<&Table>, sink: &Memory) -> Result<Outcome, ScanError> {
        scan_at(root, table, sink, &self.options(), &self.clock)
    }

    pub fn scan(&self, root: &Path, table: Option<&Table>, sink: &Memory) -> Outcome {
        self.try_scan(root, table, sink).unwrap()
    }

    pub fn find(&self, root: &Path, paths: &[&str], table: Option<&Table>, sink: &Memory) -> Vec<Found> {
        let paths: Vec<BString> = paths.iter().map(|p| BString::from(*p)).collect();
        scan_paths_at(root, &paths, table, sink, &self.options(), &self.clock).unwrap()
    }

    /// Scans without a table and gives the covered paths.
    pub fn covered(&self, root: &Path) -> Vec<String> {
        let sink = Memory::default();
        let outcome = self.scan(root, None, &sink);
        sink.flatten(&outcome.root.unwrap()).into_keys().map(|p| p.to_string()).collect()
    }
}

pub fn rules(root: &Path, settings: &RuleSettings) -> Rules {
    let settings = RuleSettings {
        home: Some(settings.home.clone().unwrap_or("/nonexistent".into())),
        ..settings.clone()
    };
    Rules::discover(root, &settings).unwrap()
}

/// A workspace, a place for its table, and a sink that lives through several scans.
pub struct World {
    pub dir: tempfile::TempDir,
    pub state: tempfile::TempDir,
    pub sink: Memory,
}

impl World {
    pub fn new() -> World {
        World { dir: temp(), state: temp(), sink: Memory::default() }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        write(self.root(), path, bytes);
    }

    pub fn table(&self) -> Option<Table> {
        Table::open(self.state.path())
    }

    /// Scans with the saved table and saves what changed; counters of the sink are those of this scan.
    pub fn scan(&self, setup: &Setup) -> Outcome {
        let table = self.table();
        self.sink.reset();
        let mut outcome = setup.scan(self.root(), table.as_ref(), &self.sink);
        if let Some(update) = outcome.update.take() {
            update.save(self.state.path(), b"note".as_bstr()).unwrap();
        }
        self.tick();
        outcome
    }

    /// Waits until the file system gives another time stamp than now: the tests' clock says that it has long done so.
    fn tick(&self) {
        use std::os::unix::fs::MetadataExt;
        let file = self.state.path().join("tick");
        let stamp = || {
            fs::write(&file, "x").unwrap();
            let meta = fs::metadata(&file).unwrap();
            (meta.ctime(), meta.ctime_nsec())
        };
        let first = stamp();
        while stamp() == first {}
    }

    /// Asserts that a scan with the table sees what a scan without it sees, and returns it.
    pub fn check(&self, setup: &Setup) -> Outcome {
        let outcome = self.scan(setup);
        let fresh = Memory::default();
        let full = setup.scan(self.root(), None, &fresh);
        assert_eq!(self.sink.flatten(&outcome.root.unwrap()), fresh.flatten(&full.root.unwrap()));
        assert_eq!(outcome.root, full.root);
        assert_eq!(paths(&outcome.skips), paths(&full.skips));
        assert_eq!(
            (outcome.files, outcome.dirs, outcome.links, outcome.bytes),
            (full.files, full.dirs, full.links, full.bytes)
        );
        outcome
    }

    /// Asserts that nothing is read, made, listed or to be saved.
    pub fn check_unchanged(&self, setup: &Setup) {
        let table = self.table();
        self.sink.reset();
        let outcome = setup.scan(self.root(), table.as_ref(), &self.sink);
        assert_eq!(self.sink.calls(), (0, 0, 0));
        assert_eq!(outcome.read_files, 0);
        assert!(outcome.update.is_none());
    }
}

pub fn temp() -> tempfile::TempDir {
    // Not below a repository that tests happen to run in.
    tempfile::Builder::new().prefix("backstitch-scan-").tempdir().unwrap()
}

pub fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Sets the time of last modification.
pub fn touch(path: &Path, time: SystemTime) {
    File::options().read(true).open(path).unwrap().set_modified(time).unwrap();
}

pub fn ago(seconds: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(seconds)
}

pub fn paths(skips: &[Skip]) -> Vec<(String, &'static str)> {
    skips.iter().map(|s| (s.path.to_string(), s.reason.as_str())).collect()
}

pub fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Real git in a clean environment.
pub fn git(dir: &Path, args: &[&str]) -> Vec<u8> {
    git_with(dir, args, &[])
}

pub fn git_with(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@b")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@b")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git runs");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stderr);
    // 1 is how check-ignore says that nothing is ignored.
    assert!(
        output.status.success() || args[0] == "check-ignore" && output.status.code() == Some(1),
        "{args:?}: {shown}"
    );
    output.stdout
}

pub fn init(dir: &Path) {
    git(dir, &["init", "-q", "-b", "main"]);
}

/// A small generator of numbers; the same seed gives the same numbers everywhere.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % sides.max(1)
    }

    pub fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

/// Runs an ignored test in a process of its own, which may give up rights and limits, or has an environment.
pub fn in_child(test: &str, world: &World, variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env("BACKSTITCH_CHILD", world.root())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && out.contains("1 passed"), "{out}");
}

/// The workspace that such a test was given.
pub fn child_root() -> Option<PathBuf> {
    std::env::var_os("BACKSTITCH_CHILD").map(Into::into)
}

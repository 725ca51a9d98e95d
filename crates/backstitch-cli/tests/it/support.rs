//! A folder, a program, and what both hold before and after.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use backstitch_testkit::{
    Cli, Compare, TreeModel,
    cli::{Run, run_to_end},
};
use serde_json::{Map, Value};

/// One workspace with a program and a home of its own.
pub struct World {
    pub cli: Cli,
    pub ws: PathBuf,
    pub top: PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    /// With `a.txt`, `sub/b.txt`, `bin` and `run.sh`; nothing recorded.
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let ws = top.join("project");
        fs::create_dir_all(ws.join("sub")).unwrap();
        let cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
        let w = World { cli, ws, top, _dir: dir };
        w.write("a.txt", "one\ntwo\nthree\n");
        w.write("sub/b.txt", "b\n");
        w.write("bin", b"\0\x01\x02");
        w.write("run.sh", "#!/bin/sh\n");
        w.chmod("run.sh", 0o755);
        w
    }

    /// With a first checkpoint; returns its id.
    pub fn recorded() -> (World, String) {
        let w = World::new();
        let id = w.save(&[]);
        (w, id)
    }

    /// With a first checkpoint and changes of every kind since.
    pub fn changed() -> (World, String) {
        let (w, id) = World::recorded();
        w.write("a.txt", "one\nTWO\nthree\n");
        w.chmod("run.sh", 0o700);
        fs::rename(w.ws.join("sub/b.txt"), w.ws.join("sub/c.txt")).unwrap();
        w.write("new.txt", "new\n");
        (w, id)
    }

    pub fn path(&self, rel: &str) -> PathBuf {
        self.ws.join(rel)
    }

    pub fn write(&self, rel: &str, content: impl AsRef<[u8]>) {
        let path = self.ws.join(rel);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, rel: &str) -> String {
        fs::read_to_string(self.ws.join(rel)).unwrap()
    }

    pub fn exists(&self, rel: &str) -> bool {
        self.ws.join(rel).symlink_metadata().is_ok()
    }

    pub fn chmod(&self, rel: &str, mode: u32) {
        fs::set_permissions(self.ws.join(rel), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Run {
        self.cli.run(&self.ws, args).unwrap()
    }

    /// The one document of a run that must end with 0.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        self.cli.json(&self.ws, args).unwrap().ok().unwrap()
    }

    /// The one document of a run that must end with this code.
    pub fn json_with<S: AsRef<OsStr>>(&self, code: i32, args: &[S]) -> Value {
        self.cli.json(&self.ws, args).unwrap().expect(code).unwrap()
    }

    /// Text on standard output of a run that must end with 0.
    pub fn text<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, Some(0), "{run}");
        String::from_utf8(run.stdout).unwrap()
    }

    /// While this is held captures in the background do not begin.
    pub fn hold_captures(&self) -> fs::File {
        self.hold("background")
    }

    /// A lock of the store, held alone.
    pub fn hold(&self, name: &str) -> fs::File {
        let store = PathBuf::from(self.json(&["status"])["store"].as_str().unwrap());
        let mut open = fs::File::options();
        let file =
            open.create(true).truncate(false).write(true).open(store.join("locks").join(name)).unwrap();
        file.lock().unwrap();
        file
    }

    /// Records; returns the id.
    pub fn save(&self, args: &[&str]) -> String {
        let mut words = vec!["checkpoint"];
        words.extend(args);
        self.json(&words)["checkpoint"]["id"].as_str().unwrap().to_owned()
    }

    /// A run in a folder, without `-C`.
    pub fn run_in<S: AsRef<OsStr>>(&self, dir: &Path, args: &[S]) -> Run {
        let mut c = self.bare();
        c.args(args).current_dir(dir);
        let shown = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>();
        run_to_end(&mut c, self.cli.timeout, shown.join(" ")).unwrap()
    }

    pub fn json_in<S: AsRef<OsStr>>(&self, dir: &Path, args: &[S]) -> Value {
        let mut words: Vec<OsString> = vec!["--json".into()];
        words.extend(args.iter().map(|a| a.as_ref().to_owned()));
        self.run_in(dir, &words).ok().unwrap()
    }

    /// The program in its surroundings, with no argument.
    pub fn bare(&self) -> Command {
        let pattern = self.cli.command(&self.ws, [] as [&str; 0]);
        let mut c = Command::new(self.cli.binary());
        c.env_clear().stdin(std::process::Stdio::null());
        for (k, v) in pattern.get_envs() {
            if let Some(v) = v {
                c.env(k, v);
            }
        }
        c
    }

    pub fn tree(&self) -> TreeModel {
        TreeModel::read_all(&self.ws).unwrap()
    }

    /// All that counts of the stores: not the empty files that locks are taken on, nor the copy that speeds up listing.
    fn stores(&self) -> TreeModel {
        let cache = |p: &str| {
            ["/locks/", "/state/rows-", "/state/used", "/state/watch"].iter().any(|part| p.contains(part))
        };
        match self.cli.store_dir().exists() {
            true => TreeModel::read_all(&self.cli.store_dir())
                .unwrap()
                .filter(|p, _| !cache(&String::from_utf8_lossy(p))),
            false => TreeModel::empty(),
        }
    }

    /// A run that must fail with this code, and change neither the folder nor a store. Returns the error.
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, args: &[S]) -> Value {
        self.fails_in(&self.cli, code, args)
    }

    /// The same with another program's surroundings.
    pub fn fails_in<S: AsRef<OsStr>>(&self, cli: &Cli, code: i32, args: &[S]) -> Value {
        let (tree, stores) = (self.tree(), self.stores());
        let run = cli.json(&self.ws, args).unwrap();
        assert_eq!(run.code, Some(code), "{run}");
        assert!(run.stdout.is_empty(), "{run}");
        let error: Value = serde_json::from_str(run.stderr.trim()).unwrap_or_else(|e| panic!("{e}\n{run}"));
        tree.assert_same(&self.tree(), &Compare::untouched(), "the folder");
        stores.assert_same(&self.stores(), &Compare::default(), "the stores");
        let e = error["error"].clone();
        assert!(e["code"].is_string() && e["message"].is_string(), "{run}");
        assert!(e["hint"].is_string() || e["list"].is_array(), "an error must say what to do\n{run}");
        // The same for people: no document, nothing on standard output.
        let run = cli.run(&self.ws, args).unwrap();
        assert_eq!(run.code, Some(code), "{run}");
        let told = run.stderr.lines().find(|l| !l.starts_with("warning: ")).unwrap_or_default();
        assert!(run.stdout.is_empty() && told.starts_with("error: "), "{run}");
        tree.assert_same(&self.tree(), &Compare::untouched(), "the folder");
        e
    }

    /// A run whose standard output, with all that varies replaced, is this.
    pub fn shows(&self, args: &[&str], want: &str) {
        let text = self.text(args);
        let found = Normal::new(self).text(&text);
        assert_eq!(found.trim_end(), want.trim_matches('\n'), "backstitch {}", args.join(" "));
    }
}

/// Replaces ids, hashes, times, ages and paths, the same by the same.
pub struct Normal {
    paths: Vec<(String, &'static str)>,
    ids: Vec<String>,
    hashes: BTreeMap<String, usize>,
}

pub const ROOT: &str = "/home/me/project";
pub const TIME: &str = "2026-01-31T14:05:00.000Z";

impl Normal {
    pub fn new(w: &World) -> Normal {
        let mut paths = Vec::new();
        if let Ok(store) = w.cli.only_store() {
            let name = store.file_name().unwrap().to_str().unwrap().to_owned();
            let stores = "/home/me/.local/share/backstitch/stores/project-4f2c9a0b8d7e6f15";
            paths.push((store.to_str().unwrap().to_owned(), stores));
            paths.push((name, "project-4f2c9a0b8d7e6f15"));
        }
        paths.push((w.ws.to_str().unwrap().to_owned(), ROOT));
        paths.push((w.top.to_str().unwrap().to_owned(), "/home/me"));
        paths.push((w.cli.home().to_str().unwrap().to_owned(), "/home/me"));
        Normal { paths, ids: Vec::new(), hashes: BTreeMap::new() }
    }

    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.paths {
            text = text.replace(from, to);
        }
        let mut out = String::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            if end == 0 {
                let c = rest.chars().next().unwrap();
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            out.push_str(&self.word(&rest[..end]));
            rest = &rest[end..];
        }
        times(&out)
    }

    fn word(&mut self, w: &str) -> String {
        let is_id = |b: u8| b.is_ascii_digit() || (b.is_ascii_lowercase() && !b"ilou".contains(&b));
        if w.len() == 40 && w.bytes().all(|b| b.is_ascii_hexdigit()) {
            let n = self.hashes.len() + 1;
            let n = *self.hashes.entry(w.to_owned()).or_insert(n);
            return format!("{n:02}").repeat(20);
        }
        if (8..=16).contains(&w.len()) && w.starts_with("01") && w.bytes().all(is_id) {
            let n = match self.ids.iter().position(|i| i.starts_with(w) || w.starts_with(i.as_str())) {
                Some(n) => n,
                None => {
                    self.ids.push(w.to_owned());
                    self.ids.len() - 1
                }
            };
            return format!("01k3w8v7q2zc5n{:02}", n + 1);
        }
        w.to_owned()
    }

    pub fn value(&mut self, v: &Value) -> Value {
        match v {
            Value::String(s) => self.text(s).into(),
            Value::Array(a) => a.iter().map(|v| self.value(v)).collect(),
            Value::Object(m) => m
                .iter()
                .map(|(k, v)| {
                    let sized = matches!(
                        k.as_str(),
                        "bytes"
                            | "used_bytes"
                            | "freed_bytes"
                            | "live_bytes"
                            | "garbage_bytes"
                            | "unique"
                            | "shared"
                    ) && v.as_u64().is_some_and(|n| n > 100);
                    let shown = match k.as_str() {
                        _ if sized => 4096.into(),
                        "pid" if v.is_u64() => 4711.into(),
                        _ => self.value(v),
                    };
                    (k.clone(), shown)
                })
                .collect(),
            other => other.clone(),
        }
    }
}

/// Times and ages.
fn times(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let mut line = line.to_owned();
        let shape = "dddd-dd-ddTdd:dd:dd.dddZ";
        let fits = |s: &str, shape: &str| {
            s.len() == shape.len()
                && s.bytes()
                    .zip(shape.bytes())
                    .all(|(b, p)| if p == b'd' { b.is_ascii_digit() } else { b == p })
        };
        let mut at = 0;
        while at < line.len() {
            if line.get(at..at + shape.len()).is_some_and(|s| fits(s, shape)) {
                line.replace_range(at..at + shape.len(), TIME);
            }
            at += 1;
        }
        if let Some(end) = line.find("s ago") {
            let start = line[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
            line.replace_range(start..end, "0");
        }
        out.push_str(&line);
    }
    out
}

/// The examples stored in this file of the crate are these.
pub fn check_examples(file: &str, found: &Map<String, Value>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = serde_json::to_string_pretty(found).unwrap() + "\n";
    if std::env::var_os("BACKSTITCH_UPDATE").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap();
    for (a, b) in stored.lines().zip(text.lines()) {
        assert_eq!(a, b, "run the tests with BACKSTITCH_UPDATE=1, and look at what changed");
    }
    assert!(stored == text);
}

//! What the case tests share: shells, other processes, stores written by somebody else.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use backstitch::{
    checkpoint,
    error::Error,
    operation::Outcome,
    record::Checkpoint,
    restore, undo,
    workspace::{Control, Surroundings, Workspace},
};
use backstitch_store::Oid;
use backstitch_testkit::{Git, TreeModel, model::Options};

use crate::world::World;

/// What an agent types.
pub fn shell(dir: &Path, script: &str) {
    let out = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    String::from_utf8_lossy(&Git::new().unwrap().run(dir, args).unwrap()).into_owned()
}

/// A repository with everything in it committed.
pub fn repository(dir: &Path) {
    git(dir, &["init", "-q"]);
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "--allow-empty", "-m", "start"]);
}

pub fn open_at(w: &World, dir: &Path) -> Workspace {
    Workspace::open(dir, w.surroundings.clone()).unwrap()
}

pub fn checkpoint_at(w: &World, dir: &Path) -> Checkpoint {
    open_at(w, dir)
        .checkpoint(&checkpoint::Options::default(), &Control::default())
        .unwrap()
        .checkpoint
        .unwrap()
}

pub fn restore_at(w: &World, dir: &Path, c: &Checkpoint) -> Result<Outcome, Error> {
    open_at(w, dir).restore(c, &restore::Options::default(), &Control::default())
}

/// Everything that is not below a `.git`.
pub fn content(dir: &Path) -> TreeModel {
    TreeModel::read(dir).unwrap()
}

/// Everything with extended attributes.
pub fn with_xattrs(dir: &Path) -> TreeModel {
    TreeModel::read_with(dir, Options { git: true, content: true, xattrs: true }).unwrap()
}

/// Nothing in `dir` was written, made, removed or had its times changed.
#[track_caller]
pub fn untouched(before: &TreeModel, dir: &Path, what: &str) {
    before.assert_same(&TreeModel::read_all(dir).unwrap(), &backstitch_testkit::Compare::untouched(), what);
}

/// Items as `path: action` for messages and comparisons.
pub fn items(o: &Outcome) -> Vec<String> {
    o.items
        .iter()
        .map(|i| {
            let reason = i.reason.as_deref().map(|r| format!(" ({r})")).unwrap_or_default();
            format!("{}: {}{reason}", i.path, i.action.as_str())
        })
        .collect()
}

/// No name of ours is left in the tree.
#[track_caller]
pub fn no_litter(m: &TreeModel) {
    for path in m.entries.keys() {
        let text = String::from_utf8_lossy(path);
        assert!(!text.contains(".backstitch"), "{text} was left behind");
    }
}

const CHILD: &str = "BACKSTITCH_TEST_CHILD";

/// A process of its own that does `words` in the world's workspace; see [`child`]. Set variables on it before it is started.
pub fn process(w: &World, words: &[&str]) -> Command {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.args(["--exact", "support::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, words.join(" "))
        .env("BACKSTITCH_TEST_ROOT", w.root())
        .env("BACKSTITCH_TEST_BASE", &w.surroundings.store_base)
        .env("BACKSTITCH_TEST_HOME", w.surroundings.home.as_ref().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

/// Ids that a finished child printed.
#[track_caller]
pub fn ids(child: Child) -> Vec<String> {
    let out = child.wait_with_output().unwrap();
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    lines(&out.stdout)
}

pub fn lines(stdout: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(stdout)
        .lines()
        .filter_map(|l| l.rsplit_once("id=").map(|(_, id)| id.to_owned()))
        .collect()
}

/// The other process. `checkpoint N`, `restore NAME`, `undo`, `redo`; prints `id=…` for each row or operation made.
#[test]
#[ignore = "the body of processes that other tests start"]
fn child() {
    let var = |n: &str| std::env::var_os(n);
    let words = std::env::var(CHILD).expect("started by another test");
    let words: Vec<&str> = words.split(' ').collect();
    let root = PathBuf::from(var("BACKSTITCH_TEST_ROOT").unwrap());
    let surroundings = Surroundings {
        home: var("BACKSTITCH_TEST_HOME").map(PathBuf::from),
        store_base: var("BACKSTITCH_TEST_BASE").unwrap().into(),
        settings: vec![
            ("BACKSTITCH_FREE_FLOOR".into(), "0".into()),
            ("BACKSTITCH_LOCK_WAIT".into(), "120".into()),
        ],
        agent_context: None,
        session: None,
        ..Surroundings::of_process()
    };
    let kill_after: Option<u64> =
        std::env::var("BACKSTITCH_TEST_KILL_AFTER").ok().map(|n| n.parse().unwrap());
    let progress = |what: &str, done: u64, _: u64| {
        let steps = matches!(what, "restoring" | "putting the git state back");
        if steps && kill_after.is_some_and(|n| done >= n) {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    };
    let control = Control { progress: &progress, ..Control::default() };
    let say = |id: &str| {
        let mut out = std::io::stdout();
        writeln!(out, "id={id}").unwrap();
        out.flush().unwrap();
    };
    let mut ws = Workspace::open(&root, surroundings).unwrap();
    match words[..] {
        ["checkpoint", n] => {
            for _ in 0..n.parse::<u64>().unwrap() {
                let out = ws.checkpoint(&checkpoint::Options::default(), &control).unwrap();
                say(&out.checkpoint.unwrap().record.id);
            }
        }
        ["git-state", name] => {
            let rows = ws.rows().unwrap();
            let c = backstitch::names::resolve(&rows, name, None).unwrap();
            let o = restore::Options { git_state: true, ..restore::Options::default() };
            say(&ws.restore(c, &o, &control).unwrap().operation.unwrap());
        }
        ["restore", name] => {
            let rows = ws.rows().unwrap();
            let c = backstitch::names::resolve(&rows, name, None).unwrap();
            let out = ws.restore(c, &restore::Options::default(), &control).unwrap();
            assert!(!out.partial, "{:?}", items(&out));
            say(&out.operation.unwrap_or_default());
        }
        ["undo"] => say(&ws.undo(&undo::Options::default(), &control).unwrap().operation.unwrap_or_default()),
        ["redo"] => say(&ws.redo(&undo::Options::default(), &control).unwrap().operation.unwrap_or_default()),
        _ => panic!("{words:?}"),
    }
}

/// Writes an object with stock git, which takes any bytes when told to; what it refuses even then is written by hand.
pub fn object(git_dir: &Path, kind: &str, bytes: &[u8]) -> Oid {
    let mut child = Git::new()
        .unwrap()
        .command(git_dir, ["hash-object", "--literally", "-w", "-t", kind, "--stdin"])
        .env("GIT_DIR", git_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Oid::from_hex(out.stdout.trim_ascii_end()).unwrap()
}

/// The bytes of a tree, exactly as given: nothing is sorted, nothing is refused.
pub fn tree_bytes(entries: &[(&str, &[u8], Oid)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (mode, name, oid) in entries {
        out.extend_from_slice(mode.as_bytes());
        out.push(b' ');
        out.extend_from_slice(name);
        out.push(0);
        out.extend_from_slice(oid.as_bytes());
    }
    out
}

/// Puts a commit in the place of a row's, with another tree and a record changed by `change`.
pub fn doctor(
    w: &World,
    c: &Checkpoint,
    tree: &Oid,
    change: impl Fn(&mut backstitch::record::Record),
) -> Checkpoint {
    let git_dir = w.git_dir();
    let mut record = backstitch::record::Record::clone(&c.record);
    change(&mut record);
    let mut commit =
        format!("tree {tree}\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\n\n").into_bytes();
    commit.extend_from_slice(&record.message());
    let oid = object(&git_dir, "commit", &commit);
    set_ref(&git_dir, &format!("{}{}", backstitch::record::CHECKPOINTS, c.record.id), &oid);
    Checkpoint { record: record.into(), commit: oid, tree: *tree }
}

pub fn set_ref(git_dir: &Path, name: &str, oid: &Oid) {
    let path = git_dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{oid}\n")).unwrap();
}

/// Id of what stands at `spec`, such as `COMMIT:files`.
pub fn rev(git_dir: &Path, spec: &str) -> Oid {
    let out =
        Git::new().unwrap().command(git_dir, ["rev-parse", spec]).env("GIT_DIR", git_dir).output().unwrap();
    assert!(out.status.success(), "{spec}: {}", String::from_utf8_lossy(&out.stderr));
    Oid::from_hex(out.stdout.trim_ascii_end()).unwrap()
}

pub fn mkfifo(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

/// A loop-mounted file system of its own kind, gone with the value.
pub struct Volume {
    dir: tempfile::TempDir,
}

impl Volume {
    /// A file system that takes `A` and `a` for one name, or a visible skip.
    pub fn folding(what: &str) -> Option<Volume> {
        if !backstitch_testkit::privilege::is_root() {
            backstitch_testkit::skip::skip(what, "mounting needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let mount = dir.path().join("m");
        fs::create_dir(&mount).unwrap();
        let image_text = image.to_str().unwrap();
        let mount_text = mount.to_str().unwrap();
        let run = |words: &[&str]| {
            let out = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
            out.is_ok_and(|o| o.status.success())
        };
        let size = "--size=400M";
        let made: [(&[&str], &str); 3] = [
            (&["mkfs.vfat", image_text], "loop,shortname=mixed"),
            (&["mkfs.ext4", "-q", "-O", "casefold", image_text], "loop"),
            (&["mkfs.xfs", "-q", "-n", "version=ci", image_text], "loop"),
        ];
        let volume = Volume { dir };
        for (make, options) in made {
            let _ = fs::remove_file(&image);
            if !run(&["truncate", size, image_text])
                || !run(make)
                || !run(&["mount", "-o", options, image_text, mount_text])
            {
                continue;
            }
            // Directories of ext4 fold only where they are told to.
            let _ = run(&["chattr", "+F", mount_text]);
            fs::write(mount.join("Probe"), "x").unwrap();
            let folds = mount.join("pROBE").exists();
            fs::remove_file(mount.join("Probe")).unwrap();
            let _ = fs::remove_dir(mount.join("lost+found"));
            if folds {
                return Some(volume);
            }
            run(&["umount", mount_text]);
        }
        backstitch_testkit::skip::skip(what, "no file system that folds case can be mounted here");
        None
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("m")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).stderr(Stdio::null()).status();
    }
}

/// Ends the other threads of a test, also when the test fails.
pub struct Stop<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A world whose workspace is a folder elsewhere.
pub fn world_at(dir: &Path) -> World {
    let mut w = World::new();
    w.surroundings.home = Some(w.dir.path().join("home"));
    fs::remove_dir(w.dir.path().join("w")).unwrap();
    std::os::unix::fs::symlink(dir, w.dir.path().join("w")).unwrap();
    w
}

pub fn os(bytes: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

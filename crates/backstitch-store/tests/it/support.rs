//! A store in a temporary directory, and git as the oracle.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use backstitch_store::*;
pub use backstitch_testkit::generate::noise;
use tempfile::TempDir;

pub struct Fixture {
    pub tmp: TempDir,
    pub store: Store,
}

pub fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        path: "/somewhere".into(),
        dev: 1,
        ino: 2,
        birth_ns: Some(1_700_000_000_123_456_789),
        created_ms: 5,
        last_used_ms: 6,
        extra: Default::default(),
    }
}

pub fn fixture() -> Fixture {
    let tmp = tempfile::tempdir().unwrap();
    let store = Store::create(&tmp.path().join("store"), &manifest(), Durability::None).unwrap();
    Fixture { tmp, store }
}

impl Fixture {
    pub fn git(&self, args: &[&str]) -> Vec<u8> {
        git_in(&self.store.git_dir(), self.tmp.path(), args)
    }

    pub fn fsck(&self) {
        self.git(&["fsck", "--strict", "--full"]);
    }

    pub fn path(&self) -> &Path {
        self.tmp.path()
    }

    /// Writes blobs, one tree of them and a commit with a ref.
    pub fn checkpoint(&self, id: &str, files: &[(&str, &[u8])]) -> (Oid, Oid) {
        let w = self.store.writer().unwrap();
        let mut s = w.scratch();
        let mut entries: Vec<TreeEntry> =
            files.iter().map(|(n, d)| file(n, w.blob(&mut s, d).unwrap().0)).collect();
        let tree = w.tree(&mut s, &mut entries).unwrap().0;
        let commit = w.commit(&mut s, &tree, format!("{id}\n").as_bytes(), 7).unwrap();
        w.finish().unwrap();
        self.set(id, commit);
        (commit, tree)
    }

    pub fn set(&self, id: &str, commit: Oid) {
        self.store.refs().apply(&[Edit { name: name(id), expect: Expect::Any, new: Some(commit) }]).unwrap();
    }

    pub fn files_in(&self, sub: &str) -> Vec<PathBuf> {
        let mut out = Vec::new();
        let mut todo = vec![self.store.dir().join(sub)];
        while let Some(dir) = todo.pop() {
            for e in std::fs::read_dir(dir).unwrap() {
                let p = e.unwrap().path();
                if p.is_dir() { todo.push(p) } else { out.push(p) }
            }
        }
        out.sort();
        out
    }

    pub fn packs(&self) -> Vec<PathBuf> {
        let is_pack = |p: &PathBuf| p.extension().is_some_and(|e| e == "pack");
        self.files_in("git/objects/pack").into_iter().filter(is_pack).collect()
    }
}

pub fn name(id: &str) -> String {
    format!("refs/backstitch/checkpoints/{id}")
}

pub fn file(name: &str, oid: Oid) -> TreeEntry {
    TreeEntry { mode: MODE_FILE, name: name.into(), oid }
}

pub fn try_git(dir: &Path, home: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap()
}

pub fn git_in(dir: &Path, home: &Path, args: &[&str]) -> Vec<u8> {
    let out = try_git(dir, home, args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "git {args:?}: {}{err}", String::from_utf8_lossy(&out.stdout));
    assert!(!err.contains("error") && !err.contains("warning"), "git {args:?}: {err}");
    out.stdout
}

//! What is on disk, who may read it, and what happens to a copy.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::{concurrent::as_child, support::*};
use backstitch_store::*;

fn walk(dir: &Path, see: &mut dyn FnMut(&Path, u32)) {
    let mode = |p: &Path| std::fs::symlink_metadata(p).unwrap().permissions().mode() & 0o7777;
    see(dir, mode(dir));
    for e in std::fs::read_dir(dir).unwrap() {
        let p = e.unwrap().path();
        if p.is_dir() { walk(&p, see) } else { see(&p, mode(&p)) }
    }
}

#[test]
fn process_with_a_strange_umask() {
    let Some((dir, _)) = as_child() else { return };
    let store = Store::create(&dir.join("deep/er/store"), &manifest(), Durability::None).unwrap();
    let w = store.writer().unwrap();
    let mut s = w.scratch();
    let blob = w.blob(&mut s, b"secret").unwrap().0;
    w.blob(&mut s, &noise(17 << 20, 1)).unwrap();
    let tree = w.tree(&mut s, &mut [file("a", blob)]).unwrap().0;
    let commit = w.commit(&mut s, &tree, b"x\n", 0).unwrap();
    w.finish().unwrap();
    let w = store.writer().unwrap();
    let lone = w.commit(&mut w.scratch(), &tree, b"lone\n", 0).unwrap();
    w.finish().unwrap();
    let edit = |id: &str, c| Edit { name: name(id), expect: Expect::Any, new: Some(c) };
    store.refs().apply(&[edit("a", commit), edit("b", lone)]).unwrap();
    store.refs().pack().unwrap();
    store.refs().apply(&[edit("a/c", commit), edit("d", commit)][1..]).unwrap();
    for i in 0..40 {
        store.refs().apply(&[edit(&format!("n{i}"), commit)]).unwrap();
    }
    store.refs().rows("refs/").unwrap();
    store.write_manifest(&manifest()).unwrap();
}

#[test]
fn everything_is_private_whatever_the_umask() {
    for umask in ["000", "022", "077", "277"] {
        let tmp = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let ok = Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$0\" --exact layout::process_with_a_strange_umask")])
            .arg(exe)
            .env("BACKSTITCH_TEST_DIR", tmp.path())
            .env("BACKSTITCH_TEST_N", "0")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(ok.success());
        let mut n = 0;
        walk(&tmp.path().join("deep"), &mut |p, mode| {
            n += 1;
            let want = if p.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, want, "{p:?} under umask {umask}: {mode:o}");
        });
        assert!(n > 30);
    }
}

#[test]
fn a_copy_without_empty_directories_works() {
    let f = fixture();
    let (commit, _) = f.checkpoint("a", &[("x", b"x")]);
    f.store.refs().pack().unwrap();
    let copy = f.path().join("copy");
    for p in f.files_in("") {
        if p.starts_with(f.store.dir().join("locks")) {
            continue;
        }
        let to = copy.join(p.strip_prefix(f.store.dir()).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&p, &to).unwrap();
    }
    assert!(!copy.join("git/refs/backstitch").exists());
    let store = Store::open(&copy).unwrap();
    assert_eq!(store.refs().get(&name("a")).unwrap(), Some(commit));
    assert!(store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    git_in(&copy.join("git"), f.path(), &["fsck", "--strict"]);
    let g = Fixture { store, tmp: tempfile::tempdir().unwrap() };
    g.checkpoint("b", &[("y", b"y")]);
    g.fsck();
    // The directories vanish while the store is open.
    for sub in ["git/objects/pack", "git/refs/backstitch", "locks", "state"] {
        let dir = copy.join(sub);
        if sub != "git/objects/pack" {
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
    g.checkpoint("c", &[("z", b"z")]);
    g.fsck();
}

#[test]
fn a_store_that_may_only_be_read_opens() {
    let f = fixture();
    let (commit, tree) = f.checkpoint("a", &[("x", b"x")]);
    walk(f.store.dir(), &mut |p, _| {
        let mode = if p.is_dir() { 0o500 } else { 0o400 };
        std::fs::set_permissions(p, std::fs::Permissions::from_mode(mode)).unwrap();
    });
    let store = Store::open(f.store.dir()).unwrap();
    assert_eq!(store.odb().unwrap().commit(&commit).unwrap().0, tree);
    let (rows, bad) = store.refs().rows("refs/").unwrap();
    assert_eq!((rows.len(), bad.len()), (1, 0));
    assert!(store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    let mut dirs = vec![];
    walk(f.store.dir(), &mut |p, _| {
        if p.is_dir() {
            dirs.push(p.to_owned());
        }
    });
    for d in dirs {
        std::fs::set_permissions(d, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn the_manifest_comes_back_with_what_is_not_known() {
    let f = fixture();
    let mut m = manifest();
    m.path = "/odd \u{fffd} %ff name".into();
    m.birth_ns = Some(i128::from(i64::MAX) * 3);
    m.extra.insert("later".into(), serde_json::json!({"a": [1, 2.5, null]}));
    f.store.write_manifest(&m).unwrap();
    assert_eq!(*Store::open(f.store.dir()).unwrap().manifest(), m);
    let path = f.store.dir().join("manifest.json");
    std::fs::write(&path, r#"{"format": 99, "everything": "else"}"#).unwrap();
    assert!(matches!(Store::open(f.store.dir()), Err(Error::TooNew { found: 99, known: FORMAT, .. })));
    std::fs::write(&path, "{").unwrap();
    assert!(matches!(Store::open(f.store.dir()), Err(Error::Damaged { .. })));
    assert!(matches!(Store::open(f.path()), Err(Error::NoStore { .. })));
    assert!(matches!(Store::open(&path), Err(Error::NoStore { .. })));
}

#[test]
fn creating_again_opens() {
    let f = fixture();
    let (commit, _) = f.checkpoint("a", &[("x", b"x")]);
    let mut other = manifest();
    other.path = "/elsewhere".into();
    let again = Store::create(f.store.dir(), &other, Durability::None).unwrap();
    assert_eq!(again.manifest(), &manifest());
    assert_eq!(again.refs().get(&name("a")).unwrap(), Some(commit));
    let dir = f.path().join("raced");
    std::thread::scope(|s| {
        let h: Vec<_> = (0..8)
            .map(|_| s.spawn(|| Store::create(&dir, &manifest(), Durability::None).map(drop)))
            .collect();
        h.into_iter().for_each(|h| h.join().unwrap().unwrap());
    });
}

#[test]
fn disk_usage_counts_each_part() {
    let f = fixture();
    f.checkpoint("a", &[("x", &noise(200_000, 1))]);
    let pack = f.packs().remove(0);
    let u = f.store.disk_usage().unwrap();
    assert!(
        u.packs >= 200_000 && u.loose > 0 && u.refs > 0 && u.total >= u.packs + u.loose + u.state + u.refs
    );
    assert_eq!(u.linked, 0);
    std::fs::hard_link(&pack, f.path().join("elsewhere")).unwrap();
    assert!(f.store.disk_usage().unwrap().linked >= 200_000);
}

//! Writers that end in the middle.

use crate::{
    big::{SIZE, source},
    concurrent::{as_child, child},
    support::*,
};
use backstitch_store::*;

fn fill(w: &Writer, s: &mut Scratch) {
    for i in 0..40 {
        w.blob(s, &noise(100_000, i)).unwrap();
    }
    w.blob(s, &noise(17 << 20, 99)).unwrap();
}

#[test]
fn dropping_a_writer_leaves_nothing() {
    let f = fixture();
    let before = f.files_in("git");
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    fill(&w, &mut s);
    let odb = w.odb().clone();
    let (oid, _) = w.blob(&mut s, b"only here").unwrap();
    assert_eq!(odb.blob(&oid).unwrap(), b"only here");
    assert!(f.files_in("git").len() > before.len());
    drop(w);
    assert_eq!(f.files_in("git"), before);
    assert!(matches!(odb.blob(&oid), Err(Error::Missing { .. })));
    assert_eq!(f.files_in("git"), before);
    drop(s);
    assert_eq!(f.files_in("git"), before);
}

#[test]
fn dying_process() {
    let Some((dir, _)) = as_child() else { return };
    let store = Store::open(&dir).unwrap();
    let w = store.writer().unwrap();
    fill(&w, &mut w.scratch());
    // Locks die with their owner.
    let _refs = store.lock_exclusive("refs", std::time::Duration::ZERO).unwrap();
    std::process::abort();
}

#[test]
fn what_a_dead_process_left_is_harmless_and_removed() {
    let f = fixture();
    let (commit, _) = f.checkpoint("a", &[("x", b"x")]);
    let before = f.files_in("git");
    let mut c = child("crash::dying_process", f.store.dir(), 0);
    assert!(!c.stderr(std::process::Stdio::null()).status().unwrap().success());
    assert!(f.files_in("git").len() > before.len());
    assert_eq!(f.store.odb().unwrap().commit(&commit).unwrap().1, "a\n");
    f.git(&["cat-file", "-p", &commit.to_string()]);
    // The next writer makes room.
    f.checkpoint("b", &[("y", b"y")]);
    let temps = |dir| {
        let is_temp = |p: &std::path::PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with("tmp_");
        f.files_in(dir).iter().filter(|p| is_temp(p)).count()
    };
    assert_eq!(temps("git/objects"), 0);
    for extra in ["git/tmp_ref_1", "state/tmp_rows_1", "tmp_manifest_1", "git/objects/tmp_obj_x"] {
        std::fs::write(f.store.dir().join(extra), "junk").unwrap();
    }
    let report = f.store.verify(&|_, _| {}, &false.into()).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    // The next writer removes them wherever they are, but not what comes while it writes.
    let w = f.store.writer().unwrap();
    assert_eq!(temps(""), 0);
    for extra in ["git/tmp_ref_1", "state/tmp_rows_1", "tmp_manifest_1", "git/objects/tmp_obj_x"] {
        std::fs::write(f.store.dir().join(extra), "junk").unwrap();
    }
    assert_eq!(f.store.clean_stale().unwrap(), 0);
    drop(w);
    assert_eq!(temps(""), 4);
    assert!(f.store.clean_stale().unwrap() >= 4);
    assert!(f.files_in("").iter().all(|p| !p.file_name().unwrap().to_str().unwrap().starts_with("tmp_")));
    f.fsck();
}

#[test]
fn a_pack_without_its_index_is_named_and_harmless() {
    let f = fixture();
    f.checkpoint("a", &[("x", b"x")]);
    let pack = f.packs().remove(0);
    let orphan = pack.with_file_name("pack-0000000000000000000000000000000000000000.pack");
    std::fs::copy(&pack, &orphan).unwrap();
    let report = f.store.verify(&|_, _| {}, &false.into()).unwrap();
    assert_eq!(report.orphans, [orphan]);
    assert!(report.damage.is_empty());
}

#[test]
fn an_interrupted_creation_is_completed() {
    let f = fixture();
    let files = f.files_in("");
    for (cut, file) in files.iter().enumerate() {
        let dir = f.path().join(format!("cut{cut}"));
        Store::create(&dir, &manifest(), Durability::None).unwrap();
        std::fs::remove_file(dir.join("manifest.json")).unwrap();
        let gone = file.strip_prefix(f.store.dir()).unwrap();
        let _ = std::fs::remove_file(dir.join(gone));
        assert!(matches!(Store::open(&dir), Err(Error::NoStore { .. })));
        Store::create(&dir, &manifest(), Durability::Full).unwrap();
        git_in(&dir.join("git"), f.path(), &["fsck", "--strict"]);
    }
}

#[test]
fn process_with_little_room() {
    let Some((dir, _)) = as_child() else { return };
    let store = Store::open(&dir).unwrap();
    let is_full = |e: &Error| matches!(e, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge);
    // A pack that does not fit.
    let w = store.writer().unwrap();
    let mut s = w.scratch();
    let failed = (0..60).find_map(|i| w.blob(&mut s, &noise(100_000, i)).err()).unwrap();
    assert!(is_full(&failed), "{failed}");
    assert!(w.blob(&mut s, b"more").is_err());
    assert!(w.finish().is_err());
    // A huge blob that does not.
    let w = store.writer().unwrap();
    let failed = w.blob_from(&mut w.scratch(), &mut source(true), SIZE).unwrap_err();
    assert!(is_full(&failed), "{failed}");
    drop(w);
    // What fits still works.
    let w = store.writer().unwrap();
    let mut s = w.scratch();
    let blob = w.blob(&mut s, b"small").unwrap().0;
    let tree = w.tree(&mut s, &mut [file("f", blob)]).unwrap().0;
    let commit = w.commit(&mut s, &tree, b"small\n", 0).unwrap();
    w.finish().unwrap();
    store.refs().apply(&[Edit { name: name("small"), expect: Expect::Absent, new: Some(commit) }]).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let f = fixture();
    f.checkpoint("a", &[("x", b"x")]);
    let ok = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact crash::process_with_little_room"])
        .arg(std::env::current_exe().unwrap())
        .env("BACKSTITCH_TEST_DIR", f.store.dir())
        .env("BACKSTITCH_TEST_N", "0")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(ok.success());
    assert!(f.files_in("").iter().all(|p| !p.file_name().unwrap().to_str().unwrap().starts_with("tmp_")));
    assert_eq!(f.packs().len(), 2);
    assert!(f.store.refs().get(&name("small")).unwrap().is_some());
    assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    f.fsck();
}

#[test]
fn the_file_of_a_ref_to_come_is_nobodys_until_it_is_set() {
    let f = fixture();
    let before = f.files_in("git");
    let row = |commit, tree| Row { name: name("a"), commit, tree, message: "a\n".into() };
    let make = |message: &[u8]| {
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let (tree, _) = w.tree(&mut s, &mut []).unwrap();
        let commit = w.commit(&mut s, &tree, message, 0).unwrap();
        let (written, staged) = w.finish_for(&commit).unwrap();
        assert_eq!((written.objects, written.pack), (1, None));
        (row(commit, tree), staged)
    };
    let (first, staged) = make(b"a\n");
    // Whoever tidies up sees that it has an owner; a reader sees nothing.
    assert_eq!(f.store.clean_stale().unwrap(), 0);
    assert_eq!(f.store.refs().get(&first.name).unwrap(), None);
    f.store.refs().set_staged(&first, Expect::Absent, staged).unwrap();
    assert_eq!(f.store.refs().get(&first.name).unwrap(), Some(first.commit));
    // A swap that does not happen leaves nothing of it behind.
    let (second, staged) = make(b"b\n");
    let refused = f.store.refs().set_staged(&second, Expect::Absent, staged);
    assert!(matches!(refused, Err(Error::RefMoved { .. })));
    assert_eq!(f.store.refs().get(&first.name).unwrap(), Some(first.commit));
    // One that was staged for another commit is not taken for this one.
    let (_, staged) = make(b"c\n");
    f.store.refs().set_staged(&second, Expect::Is(first.commit), staged).unwrap();
    assert_eq!(f.store.refs().get(&first.name).unwrap(), Some(second.commit));
    let new = f.files_in("git").len() - before.len();
    assert_eq!(new, 4, "three commits and a ref");
}

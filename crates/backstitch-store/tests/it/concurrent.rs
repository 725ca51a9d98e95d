//! Many threads, many processes.

use std::{process::Command, time::Duration};

use crate::support::*;
use backstitch_store::*;

/// Runs test `name` of this binary in another process, where `BACKSTITCH_TEST_DIR` is set.
pub fn child(name: &str, dir: &std::path::Path, n: usize) -> Command {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.args(["--exact", name, "--nocapture"])
        .env("BACKSTITCH_TEST_DIR", dir)
        .env("BACKSTITCH_TEST_N", n.to_string())
        .stdout(std::process::Stdio::null());
    c
}

pub fn as_child() -> Option<(std::path::PathBuf, usize)> {
    let dir = std::env::var_os("BACKSTITCH_TEST_DIR")?;
    Some((dir.into(), std::env::var("BACKSTITCH_TEST_N").ok()?.parse().ok()?))
}

#[test]
fn threads_share_a_writer() {
    let f = fixture();
    let w = f.store.writer().unwrap();
    let lists: Vec<Vec<(Oid, Vec<u8>)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8u64)
            .map(|t| {
                let w = &w;
                scope.spawn(move || {
                    let mut s = w.scratch();
                    (0..200u64)
                        .map(|i| {
                            // Half of them are the same in every thread.
                            let seed = if i % 2 == 0 { i } else { i + 1000 * t };
                            let len = if i % 50 == 0 { 1 << 20 } else { (i * 37 % 5000) as usize };
                            let data = noise(len, seed);
                            let oid = w.blob(&mut s, &data).unwrap().0;
                            // Reading back while others write.
                            if i % 40 == 1 {
                                assert!(w.odb().blob(&oid).unwrap() == data);
                            }
                            (oid, data)
                        })
                        .collect()
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    let written = w.finish().unwrap();
    let mut all: Vec<_> = lists.concat();
    all.sort();
    all.dedup();
    assert_eq!(written.objects as usize, all.len());
    let odb = f.store.odb().unwrap();
    for (oid, data) in &all {
        assert!(odb.blob(oid).unwrap() == *data);
    }
    f.fsck();
}

#[test]
fn writer_process() {
    let Some((dir, n)) = as_child() else { return };
    let store = Store::open(&dir).unwrap();
    for round in 0..8 {
        let w = store.writer().unwrap();
        let mut s = w.scratch();
        let mut entries: Vec<TreeEntry> = (0..20)
            .map(|i| file(&format!("f{i}"), w.blob(&mut s, format!("{n} {round} {i}").as_bytes()).unwrap().0))
            .collect();
        entries.push(file("same", w.blob(&mut s, b"same").unwrap().0));
        let tree = w.tree(&mut s, &mut entries).unwrap().0;
        let commit = w.commit(&mut s, &tree, format!("{n} {round}\n").as_bytes(), 1).unwrap();
        w.finish().unwrap();
        let own = Edit { name: name(&format!("{n}-{round}")), expect: Expect::Absent, new: Some(commit) };
        store.refs().apply(&[own]).unwrap();
        // One ref that all count up; a loser tries again.
        loop {
            let old = store.refs().get(&name("shared")).unwrap();
            let expect = old.map_or(Expect::Absent, Expect::Is);
            match store.refs().apply(&[Edit { name: name("shared"), expect, new: Some(commit) }]) {
                Ok(()) => break,
                Err(Error::RefMoved { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
        if round % 3 == n % 3 {
            store.refs().pack().unwrap();
        }
        assert!(store.refs().list("refs/").unwrap().len() > round);
    }
}

#[test]
fn processes_share_a_store() {
    let f = fixture();
    let children: Vec<_> =
        (0..8).map(|n| child("concurrent::writer_process", f.store.dir(), n).spawn().unwrap()).collect();
    for mut c in children {
        assert!(c.wait().unwrap().success());
    }
    assert_eq!(f.store.refs().list("refs/").unwrap().len(), 8 * 8 + 1);
    let (rows, bad) = f.store.refs().rows("refs/").unwrap();
    assert_eq!((rows.len(), bad.len()), (65, 0));
    f.fsck();
    assert!(f.files_in("").iter().all(|p| !p.file_name().unwrap().to_str().unwrap().starts_with("tmp_")));
}

#[test]
fn one_winner_per_swap() {
    let f = fixture();
    let (base, _) = f.checkpoint("x", &[("a", b"a")]);
    let targets: Vec<Oid> = (0..8).map(|n| f.checkpoint(&format!("t{n}"), &[("a", &[n])]).0).collect();
    let won: usize = std::thread::scope(|scope| {
        let handles: Vec<_> = targets
            .iter()
            .map(|t| {
                let store = &f.store;
                scope.spawn(move || {
                    let edit = Edit { name: name("x"), expect: Expect::Is(base), new: Some(*t) };
                    usize::from(store.refs().apply(&[edit]).is_ok())
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
}

#[test]
fn locks_exclude_and_name_their_file() {
    let f = fixture();
    let a = f.store.lock_shared("x", Duration::ZERO).unwrap();
    let b = f.store.lock_shared("x", Duration::ZERO).unwrap();
    match f.store.lock_exclusive("x", Duration::ZERO) {
        Err(Error::Busy { path }) => assert_eq!(path, f.store.dir().join("locks/x")),
        other => panic!("{other:?}"),
    }
    drop((a, b));
    let x = f.store.lock_exclusive("x", Duration::ZERO).unwrap();
    assert!(matches!(f.store.lock_shared("x", Duration::from_millis(2)), Err(Error::Busy { .. })));
    // The waiting side gets it once it is free.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| f.store.lock_exclusive("x", Duration::from_secs(600)).map(drop));
        drop(x);
        waiting.join().unwrap().unwrap();
    });
    for bad in ["", "a/b", "..", "."] {
        assert!(matches!(f.store.lock_shared(bad, Duration::ZERO), Err(Error::Invalid { .. })));
    }
}

#[test]
fn readers_see_every_ref_at_every_moment() {
    let f = fixture();
    let values: Vec<Oid> = (1..=50u8).map(|n| Oid::from([n; 20])).collect();
    let set =
        |id: &str, new| f.store.refs().apply(&[Edit { name: name(id), expect: Expect::Any, new }]).unwrap();
    set("x", Some(values[0]));
    set("still", Some(values[0]));
    struct Done<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let refs = f.store.refs();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(values.contains(&refs.get(&name("x")).unwrap().unwrap()));
                    assert_eq!(refs.get(&name("still")).unwrap(), Some(values[0]));
                    let listed = refs.list("refs/").unwrap();
                    assert!(listed.iter().any(|(n, _)| *n == name("x")), "{listed:?}");
                    assert!(listed.iter().any(|(n, _)| *n == name("still")), "{listed:?}");
                }
            });
        }
        // Also when something fails here, so that the readers end.
        let _done = Done(&done);
        for (i, v) in values.iter().cycle().take(300).enumerate() {
            set("x", Some(*v));
            // Comes and goes, so that `packed-refs` is written in all ways.
            set("y", (i % 3 != 0).then_some(*v));
            if i % 2 == 0 {
                f.store.refs().pack().unwrap();
            }
        }
    });
}

//! Many at once: captures, collections, restores, an editor, and the user's own git, without a pause between them.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use backstitch::{
    operation::OpState,
    restore,
    workspace::{Control, Workspace},
};

use crate::{
    support::{Stop, git, ids, process, repository},
    world::World,
};

fn patient(w: &World) -> Workspace {
    let mut s = w.surroundings.clone();
    s.settings.push(("BACKSTITCH_LOCK_WAIT".into(), "120".into()));
    Workspace::open(&w.root(), s).unwrap()
}

fn all_rows_can_be_restored(w: &World) {
    let ws = w.open();
    let rows = ws.rows().unwrap();
    assert!(rows.damaged.is_empty(), "{:?}", rows.damaged);
    for (c, why) in ws.check_all(&rows).unwrap() {
        assert!(why.is_none(), "{}: {why:?}", c.record.id);
    }
    w.check_store();
}

#[test]
fn r101_captures_beside_collections_restores_and_an_editor() {
    let w = World::new();
    for i in 0..40 {
        w.write(&format!("old/f{i}"), format!("{i}"));
    }
    w.write("edited", "save 0");
    let first = w.checkpoint();
    let done = AtomicBool::new(false);
    let saves = AtomicUsize::new(0);
    let told: Vec<String> = std::thread::scope(|s| {
        s.spawn(|| {
            // As editors save: beside it, then over it.
            while !done.load(Ordering::Relaxed) {
                let n = saves.fetch_add(1, Ordering::Relaxed) + 1;
                fs::write(w.path("edited~"), format!("save {n}")).unwrap();
                fs::rename(w.path("edited~"), w.path("edited")).unwrap();
            }
        });
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = patient(&w).gc(false, &Control::default()).unwrap();
            }
        });
        let _stop = Stop(&done);
        let captures: Vec<_> = (0..2).map(|_| process(&w, &["checkpoint", "8"]).spawn().unwrap()).collect();
        for n in 0..8 {
            fs::write(w.path(&format!("old/f{n}")), format!("changed {n}")).unwrap();
            let only = restore::Options { paths: vec!["old".into()], ..Default::default() };
            let o = patient(&w).restore(&first, &only, &Control::default()).unwrap();
            assert!(!o.partial);
            assert_eq!(w.read(&format!("old/f{n}")), n.to_string());
        }
        captures.into_iter().flat_map(ids).collect()
    });
    assert_eq!(told.len(), 16);
    let n = saves.load(Ordering::Relaxed);
    assert_eq!(w.read("edited"), format!("save {n}"), "what the editor saved last is there");
    let rows = w.open().rows().unwrap();
    assert!(told.iter().all(|id| rows.by_id(id).is_some()), "what was reported is there");
    all_rows_can_be_restored(&w);
}

#[test]
fn r101_two_restores_at_once_leave_one_of_the_two_states() {
    let w = World::new();
    for i in 0..100 {
        w.write(&format!("d{}/f{i}", i % 9), format!("one {i}"));
    }
    let one = w.checkpoint();
    let first = w.model();
    for i in 0..100 {
        w.write(&format!("d{}/f{i}", i % 9), format!("two {i}"));
    }
    w.write("extra/x", "x");
    let two = w.checkpoint();
    let second = w.model();
    std::thread::scope(|s| {
        for row in [&one, &two] {
            let w = &w;
            s.spawn(move || {
                for _ in 0..5 {
                    let o =
                        patient(w).restore(row, &restore::Options::default(), &Control::default()).unwrap();
                    assert!(!o.partial);
                }
            });
        }
    });
    let found = w.model();
    let plain = backstitch_testkit::Compare::default();
    assert!(
        first.same(&found, &plain) || second.same(&found, &plain),
        "{:?}",
        first.report(&found, &plain, 10)
    );
    assert!(w.open().operations().unwrap().iter().all(|o| o.record.state == OpState::Done));
    all_rows_can_be_restored(&w);
}

/// The user commits, rebases and collects garbage in a loop while rows are made and one file is restored.
#[test]
fn r100_the_users_git_at_work_beside_captures_and_restores() {
    let w = World::new();
    for i in 0..20 {
        w.write(&format!("src/f{i}"), format!("{i}"));
    }
    repository(&w.root());
    w.write("notes", "then");
    let first = w.checkpoint();
    let done = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let root = w.root();
            let mut n = 0;
            while !done.load(Ordering::Relaxed) || n < 2 {
                n += 1;
                fs::write(root.join("src/f1"), format!("main {n}")).unwrap();
                git(&root, &["checkout", "-q", "-b", &format!("topic{n}")]);
                fs::write(root.join("src/f2"), format!("topic {n}")).unwrap();
                git(&root, &["commit", "-q", "-m", "topic", "--", "src/f2"]);
                git(&root, &["checkout", "-q", "-"]);
                git(&root, &["commit", "-q", "-m", "main", "--", "src/f1"]);
                git(&root, &["rebase", "-q", "HEAD", &format!("topic{n}")]);
                git(&root, &["checkout", "-q", "-"]);
                git(&root, &["gc", "-q", "--prune=now"]);
                rounds.store(n, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&done);
        for n in 0..12 {
            fs::write(w.path("notes"), format!("now {n}")).unwrap();
            w.checkpoint();
            let only = restore::Options { paths: vec!["notes".into()], ..Default::default() };
            let o = patient(&w).restore(&first, &only, &Control::default()).unwrap();
            assert!(!o.partial);
            assert_eq!(w.read("notes"), "then");
        }
    });
    let n = rounds.load(Ordering::Relaxed);
    assert!(n >= 2);
    git(&w.root(), &["fsck", "--strict"]);
    assert_eq!(git(&w.root(), &["branch", "--list", "topic*"]).lines().count(), n, "no branch was lost");
    assert!(!w.root().join(".git/index.lock").exists());
    all_rows_can_be_restored(&w);
}

//! Faults of earlier engines in what they remember: rows, sessions, locks. One test for each.

use std::{
    collections::BTreeMap,
    fs::{self, FileTimes},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    sync::Mutex,
    time::SystemTime,
};

use backstitch::{
    error::Code,
    record::{CHECKPOINTS, Kind},
    restore,
    workspace::{Control, Workspace},
};
use backstitch_testkit::{Git, privilege};

use crate::{
    cases_k1::open_to_all,
    sessions::Agent,
    support::{items, object, repository, rev, set_ref, untouched},
    world::{World, action, same},
};

fn packs(w: &World) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(w.git_dir().join("objects/pack")).unwrap().flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

/// A row for every turn, no new content for a state that was seen before, and rules as they are now.
#[test]
fn t01_an_unchanged_turn_has_a_row_and_shares_any_earlier_state() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    let first = w.checkpoint();
    let again = w.checkpoint();
    assert!(again.record.unchanged && again.tree == first.tree && again.record.id != first.record.id);
    w.write("a", "2");
    let second = w.checkpoint();
    let before = packs(&w);
    // Not the last state but the one before it: still nothing new to store.
    w.write("a", "1");
    let back = w.checkpoint();
    assert_eq!(back.tree, first.tree);
    assert!(!back.record.unchanged, "it differs from the row before it");
    assert_eq!(packs(&w), before, "one commit, and no content");
    let refs = w.open().rows().unwrap().all;
    assert_eq!(refs.len(), 4, "every row has a ref of its own");
    // One row can go without the others.
    w.open().delete(&[&first, &second]).unwrap();
    w.write("a", "3");
    w.restore(&back);
    assert_eq!(w.read("a"), "1");
    // The user's private rules are read each time, not copied once.
    let exclude = w.path(".git/info/exclude");
    fs::write(&exclude, "logs/\n").unwrap();
    w.write("logs/x", "x");
    let without = w.checkpoint();
    assert!(without.record.skipped.iter().any(|s| s.path == "logs" && s.reason == "ignored"));
    fs::remove_file(&exclude).unwrap();
    assert_eq!(w.checkpoint().record.files, without.record.files + 1);
}

/// A deletion that fails is told, and what is deleted is known by name, not from somebody's output.
#[test]
fn t03_a_deletion_that_fails_is_told_and_names_are_not_read_from_output() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("t03", "needs root to drop its user id");
    }
    let w = World::new();
    w.write("keep", "1");
    w.write("shut/old", "1");
    let odd =
        ["Removing x", "Entferne y", "new\nline", "tab\t", "quo\"te", "\u{fc}\u{3042}", "shut/made since"];
    open_to_all(&w);
    let c = privilege::run_as(65534, || w.checkpoint()).unwrap();
    for n in odd {
        w.write(n, n);
    }
    w.write("keep", "2");
    open_to_all(&w);
    // Nobody but root may delete in there.
    std::os::unix::fs::chown(w.path("shut"), Some(0), Some(0)).unwrap();
    let o = privilege::run_as(65534, || w.restore_with(&c, restore::Options::default()).unwrap()).unwrap();
    assert!(o.partial, "{:?}", items(&o));
    for n in odd {
        let item = o.items.iter().find(|i| i.path == n).unwrap_or_else(|| panic!("{n:?}: {:?}", items(&o)));
        if n.starts_with("shut/") {
            assert!(w.exists(n) && item.reason.is_some(), "{:?}", items(&o));
            assert_ne!(item.result, backstitch::plan::Progress::Done);
        } else {
            assert!(!w.exists(n), "{n:?}");
            assert_eq!((item.action.as_str(), item.result), ("delete", backstitch::plan::Progress::Done));
        }
    }
    assert_eq!(w.read("keep"), "1", "the rest is done");
}

/// Two sessions at once lose no row, and one bad row costs only itself.
#[test]
fn t04_two_sessions_lose_no_row_and_a_bad_row_costs_only_itself() {
    const TURNS: u64 = 8;
    let mut w = World::new();
    w.set("BACKSTITCH_LOCK_WAIT", "120");
    w.write("a", "1");
    w.checkpoint();
    std::thread::scope(|scope| {
        for id in ["left", "right"] {
            let w = &w;
            scope.spawn(move || {
                let s = Agent { w, id };
                for n in 1..=TURNS {
                    s.begin(&format!("k{n}"));
                    s.write(&format!("c{n}"), id, &format!("{n}"));
                    assert!(s.end().is_some());
                }
            });
        }
    });
    let rows = w.open().rows().unwrap();
    for id in ["left", "right"] {
        for kind in [Kind::Prompt, Kind::Turn] {
            let turns: Vec<u64> = rows
                .all
                .iter()
                .filter(|c| c.record.session.as_deref() == Some(id) && c.record.kind == kind)
                .filter_map(|c| c.record.turn)
                .collect();
            assert_eq!(turns, (1..=TURNS).collect::<Vec<_>>(), "{id}");
        }
    }
    // A row's record is destroyed, and the caches with it.
    let victim = &rows.all[3];
    let tree = rev(&w.git_dir(), &format!("{}^{{tree}}", victim.commit));
    let commit = format!("tree {tree}\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\n\nno record\n");
    let bad = object(&w.git_dir(), "commit", commit.as_bytes());
    set_ref(&w.git_dir(), &format!("{CHECKPOINTS}{}", victim.record.id), &bad);
    fs::remove_dir_all(w.open().store_dir().join("state")).unwrap();
    let made = w.checkpoint();
    let after = w.open().rows().unwrap();
    assert_eq!(after.damaged.len(), 1, "{:?}", after.damaged);
    assert!(after.damaged[0].0.contains(&victim.record.id), "{:?}", after.damaged);
    for c in rows.all.iter().filter(|c| c.record.id != victim.record.id) {
        assert_eq!(after.by_id(&c.record.id).map(|c| c.commit), Some(c.commit));
    }
    assert_eq!(after.all.len(), rows.all.len(), "one less, one more");
    w.write("a", "2");
    w.restore(&made);
    assert_eq!(w.read("a"), "1");
}

/// Going back is no end of what came later.
#[test]
fn t12_later_rows_and_the_safety_row_outlive_a_restore_and_foreign_collection() {
    let w = World::new();
    let mut rows = Vec::new();
    let mut models = Vec::new();
    for i in 0..5 {
        w.write("f", format!("state {i}"));
        w.write(&format!("only{i}"), format!("{i}"));
        models.push(w.model());
        rows.push(w.checkpoint());
    }
    w.write("f", "never recorded");
    let unsaved = w.model();
    let o = w.restore(&rows[0]);
    let gc = Git::new()
        .unwrap()
        .command(&w.git_dir(), ["gc", "-q", "--prune=now"])
        .env("GIT_DIR", w.git_dir())
        .status()
        .unwrap();
    assert!(gc.success());
    let ws = w.open();
    let all = ws.rows().unwrap();
    assert!(ws.check_all(&all).unwrap().iter().all(|(_, why)| why.is_none()));
    let safety = all.by_id(o.safety.as_deref().unwrap()).unwrap().clone();
    for (row, model) in rows.iter().zip(&models).rev() {
        w.restore(row);
        same(model, &w.model(), "a row");
    }
    w.restore(&safety);
    same(&unsaved, &w.model(), "what no row but the safety row held");
    w.check_store();
}

/// A lock belongs to whoever holds it, however old its file looks; and a fork is no copy.
#[test]
fn t13_no_lock_is_taken_over_and_a_fork_copies_nothing() {
    let w = World::new();
    w.write("a/f", "recorded");
    w.write("b/f", "recorded");
    let c = w.checkpoint();
    w.write("a/f", "present");
    w.write("b/f", "present");
    let locks = w.open().store_dir().join("locks");
    let inodes = || -> BTreeMap<PathBuf, u64> {
        let all = fs::read_dir(&locks).unwrap().flatten();
        all.map(|e| (e.path(), e.metadata().unwrap().ino())).collect()
    };
    let mut impatient = w.surroundings.clone();
    impatient.settings.push(("BACKSTITCH_LOCK_WAIT".into(), "0".into()));
    let refused: Mutex<Vec<Code>> = Mutex::new(Vec::new());
    let progress = |stage: &str, _: u64, _: u64| {
        if stage != "restoring" || !refused.lock().unwrap().is_empty() {
            return;
        }
        // The holder has been asleep for years, it seems.
        for path in inodes().keys() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        }
        let mut other = Workspace::open(&w.root(), impatient.clone()).unwrap();
        let e = other.checkpoint(&Default::default(), &Control::default()).unwrap_err();
        let f = other.restore(&c, &Default::default(), &Control::default()).unwrap_err();
        refused.lock().unwrap().extend([e.code, f.code]);
    };
    let control = Control { progress: &progress, ..Control::default() };
    let held = inodes();
    let o = w.open().restore(&c, &restore::Options::default(), &control).unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(*refused.lock().unwrap(), [Code::Busy, Code::Busy]);
    assert!(held.iter().all(|(path, ino)| inodes().get(path) == Some(ino)), "nobody removes a lock's file");
    w.write("a/f", "held by the store alone");
    w.checkpoint();

    let s = Agent { w: &w, id: "parent" };
    s.begin("k1");
    s.write("c1", "a/f", "by the agent");
    let ended = s.end().unwrap();
    let before = packs(&w);
    w.open().fork("fork", &ended).unwrap();
    assert_eq!(packs(&w), before, "nothing was copied");
    // The content behind the inherited turn is lost: the fork says so before it changes anything.
    for pack in before {
        fs::remove_file(pack).unwrap();
    }
    let now = w.model();
    let f = Agent { w: &w, id: "fork" };
    match f.rewind_with("1", Default::default()) {
        Ok(o) => panic!("{:?}", items(&o)),
        Err(e) => assert_eq!(e.code, Code::StoreDamaged, "{e}"),
    }
    untouched(&now, &w.root(), "nothing was begun");
}

/// What stays although it came later is named.
#[test]
fn t17_files_made_since_go_or_are_named() {
    let w = World::new();
    w.write(".gitignore", "*.o\n");
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    w.write("gen/x", "made since");
    w.write("gen/x.o", "ignored");
    let made = w.model();
    let o = w.restore_with(&c, restore::Options { no_delete: true, ..Default::default() }).unwrap();
    assert_eq!(action(&o, "gen/x").as_deref(), Some("keep:no-delete"), "{:?}", items(&o));
    assert_eq!((w.read("a"), w.exists("gen/x")), ("1".into(), true));
    w.undo().unwrap();
    same(&made, &w.model(), "undone");
    let o = w.restore(&c);
    assert!(!w.exists("gen/x") && w.exists("gen/x.o"));
    assert_eq!(action(&o, "gen/x").as_deref(), Some("delete"));
    assert_eq!(action(&o, "gen").as_deref(), Some("keep:not-empty"), "and why it stays: {:?}", items(&o));
    w.undo().unwrap();
    same(&made, &w.model(), "undone");
}

/// Two sessions that take turns: each row stands on its own session's, and each rewind is of its own work.
#[test]
fn t18_interleaved_sessions_keep_their_own_parents_and_work() {
    let w = World::new();
    w.write("x", "0");
    w.write("y", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    for n in 1..=2 {
        let key = format!("k{n}");
        let begun = (a.begin(&key), b.begin(&key));
        a.write(&format!("c{n}"), "x", &format!("a{n}"));
        b.write(&format!("c{n}"), "y", &format!("b{n}"));
        let ended = (a.end().unwrap(), b.end().unwrap());
        for (begun, ended) in [(&begun.0, &ended.0), (&begun.1, &ended.1)] {
            assert_eq!(ended.record.parent.as_deref(), Some(begun.record.id.as_str()));
        }
    }
    let rows = w.open().rows().unwrap();
    for c in rows.all.iter().filter(|c| c.record.turn != Some(1) || c.record.kind != Kind::Prompt) {
        let parent = rows.by_id(c.record.parent.as_deref().unwrap()).unwrap();
        assert_eq!(parent.record.session, c.record.session, "{}", c.record.id);
    }
    let o = a.rewind("2");
    assert_eq!(items(&o), ["x: overwrite"], "nothing of the other's");
    assert_eq!((w.read("x"), w.read("y")), ("a1".into(), "b2".into()));
    let o = b.rewind("1");
    assert_eq!(items(&o), ["y: overwrite"]);
    assert_eq!((w.read("x"), w.read("y")), ("a1".into(), "0".into()));
}

//! K9: locks, crashes, corruption.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use backstitch::{
    checkpoint,
    error::Code,
    operation::OpState,
    record::Checkpoint,
    restore,
    workspace::{Control, Workspace},
};
use backstitch_testkit::{Git, TreeModel, generate::noise, privilege::Tmpfs};

use crate::{
    support::{Stop, ids, items, lines, no_litter, open_at, process, rev, untouched, world_at},
    world::{World, everything_below, same},
};

#[test]
fn r101_many_processes_on_one_store_and_two_that_are_killed() {
    let w = World::new();
    for i in 0..200 {
        w.write(&format!("d{}/f{i}", i % 7), format!("content {i}"));
    }
    // Also the store is made by whoever comes first.
    let mut victims: Vec<_> =
        (0..2).map(|_| process(&w, &["checkpoint", "1000000"]).spawn().unwrap()).collect();
    let workers: Vec<_> = (0..8).map(|_| process(&w, &["checkpoint", "8"]).spawn().unwrap()).collect();
    let mut told: Vec<String> = Vec::new();
    for v in &mut victims {
        // Dies in the middle of its work: after its first row was reported, while it makes the next ones.
        let mut out = BufReader::new(v.stdout.take().unwrap());
        let mut line = Vec::new();
        while lines(&line).is_empty() {
            line.clear();
            if out.read_until(b'\n', &mut line).unwrap() == 0 {
                let mut why = String::new();
                v.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("the victim ended by itself: {why}");
            }
        }
        told.extend(lines(&line));
        v.kill().unwrap();
        v.wait().unwrap();
    }
    for child in workers {
        let made = ids(child);
        assert_eq!(made.len(), 8);
        told.extend(made);
    }
    assert!(told.iter().all(|id| backstitch::names::is_full_id(id)), "{told:?}");
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len(), "every id is its own");
    let ws = w.open();
    let rows = ws.rows().unwrap();
    assert!(rows.damaged.is_empty(), "{:?}", rows.damaged);
    for id in &told {
        assert!(rows.by_id(id).is_some(), "{id} was reported and is not there");
    }
    // Nobody's lock is left: exclusive work starts at once.
    drop(ws.lock_operation().unwrap());
    let c = rows.newest().unwrap().clone();
    w.write("d1/f1", "changed");
    w.restore(&c);
    assert_eq!(w.read("d1/f1"), "content 1");
    w.check_store();
}

#[test]
fn r101_captures_and_operations_of_many_threads() {
    let w = World::new();
    for i in 0..50 {
        w.write(&format!("f{i}"), format!("{i}"));
    }
    let c = w.checkpoint();
    let patient = || {
        let mut s = w.surroundings.clone();
        s.settings.push(("BACKSTITCH_LOCK_WAIT".into(), "120".into()));
        backstitch::workspace::Workspace::open(&w.root(), s).unwrap()
    };
    std::thread::scope(|s| {
        for t in 0..4 {
            let (w, c, patient) = (&w, &c, &patient);
            s.spawn(move || {
                for n in 0..6 {
                    if t % 2 == 0 {
                        let out = patient()
                            .checkpoint(&checkpoint::Options::default(), &Control::default())
                            .unwrap();
                        assert!(out.checkpoint.is_some());
                    } else {
                        w.write(&format!("f{}", t * 10 + n), "changed");
                        let o =
                            patient().restore(c, &restore::Options::default(), &Control::default()).unwrap();
                        assert!(
                            o.items
                                .iter()
                                .all(|i| !i.action.changes() || i.result == backstitch::plan::Progress::Done),
                            "{:?}",
                            items(&o)
                        );
                    }
                }
            });
        }
    });
    w.restore(&c);
    for i in 0..50 {
        assert_eq!(w.read(&format!("f{i}")), format!("{i}"));
    }
    no_litter(&w.model());
    assert!(w.open().operations().unwrap().iter().all(|o| o.record.state == OpState::Done));
    w.check_store();
}

/// What copying programs do that know nothing of empty folders.
fn drop_empty_dirs(dir: &Path) {
    for e in fs::read_dir(dir).unwrap().flatten() {
        if e.file_type().unwrap().is_dir() {
            drop_empty_dirs(&e.path());
            let _ = fs::remove_dir(e.path());
        }
    }
}

#[test]
fn r103_a_store_without_its_empty_folders_works() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    let dir = w.open().store_dir().to_owned();
    drop_empty_dirs(&dir);
    // Lock files are empty, but files; a copy may well leave them out, too.
    let _ = fs::remove_dir_all(dir.join("locks"));
    assert!(!dir.join("journal").exists() && !dir.join("git/objects/info").exists());
    assert_eq!(w.open().rows().unwrap().all.len(), 1);
    w.restore(&c);
    assert_eq!(w.read("a"), "1");
    w.undo().unwrap();
    w.checkpoint();
    w.check_store();
}

/// The packs of a store.
fn packs(w: &World) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(w.git_dir().join("objects/pack"))
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "pack"))
        .collect();
    all.sort();
    all
}

fn flip(path: &Path, at: u64) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let f = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut b = [0];
    f.read_exact_at(&mut b, at).unwrap();
    f.write_all_at(&[!b[0]], at).unwrap();
}

/// Where an object's entry stands in a pack, with its size there, as stock git tells.
fn entry(w: &World, pack: &Path, oid: &str) -> Option<(u64, u64)> {
    let out = Git::new()
        .unwrap()
        .run(&w.git_dir(), ["verify-pack".as_ref(), "-v".as_ref(), pack.as_os_str()])
        .unwrap();
    String::from_utf8(out).unwrap().lines().find(|l| l.starts_with(oid)).map(|l| {
        let f: Vec<&str> = l.split_ascii_whitespace().collect();
        (f[4].parse().unwrap(), f[3].parse().unwrap())
    })
}

/// Damages the stored content of one file of a row.
fn damage(w: &World, c: &Checkpoint, path: &str) {
    let oid = rev(&w.git_dir(), &format!("{}:files/{path}", c.commit)).to_string();
    for pack in packs(w) {
        if let Some((at, size)) = entry(w, &pack, &oid) {
            // In the middle of the compressed bytes.
            flip(&pack, at + size - 6);
            return;
        }
    }
    panic!("{path} is in no pack");
}

#[test]
fn r103_verify_names_the_rows_hit_and_repair_keeps_the_store_in_place() {
    let w = World::new();
    w.write("same", "in all rows");
    w.write("a", "only in the first row: ".repeat(50));
    let hit = w.checkpoint();
    w.write("a", "second");
    let sound = w.checkpoint();
    damage(&w, &hit, "a");
    let v = w.open().verify(false, &Control::default()).unwrap();
    assert_eq!(v["ok"], false);
    let text = v["damage"].to_string();
    assert!(text.contains(&hit.record.id) && !text.contains(&sound.record.id), "{v:#}");
    let dir = w.open().store_dir().to_owned();
    // The store never goes away while it is repaired.
    let done = AtomicBool::new(false);
    let repaired = std::thread::scope(|s| {
        let watch = s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(dir.join("manifest.json").exists() && dir.join("git/HEAD").exists());
                assert!(w.open().rows().unwrap().by_id(&sound.record.id).is_some());
            }
        });
        let stop = Stop(&done);
        let r = w.open().verify(true, &Control::default()).unwrap();
        drop(stop);
        watch.join().unwrap();
        r
    });
    assert!(repaired["repaired"].to_string().contains("1 damaged object"), "{repaired:#}");
    // The row that is hit says so and stays: what else it holds can be restored.
    let rows = w.open().rows().unwrap();
    let row = |c: &Checkpoint| rows.by_id(&c.record.id).unwrap().clone();
    assert!(w.open().check(&row(&hit)).unwrap().is_some() && w.open().check(&row(&sound)).unwrap().is_none());
    w.write("same", "changed");
    let only = restore::Options { paths: vec!["same".into()], ..Default::default() };
    w.restore_with(&hit, only).unwrap();
    assert_eq!(w.read("same"), "in all rows");
    assert_eq!(w.restore_with(&hit, Default::default()).unwrap_err().code, Code::StoreDamaged);
    w.write("a", "third");
    w.restore(&sound);
    assert_eq!(w.read("a"), "second");
    // Whoever still has the content heals the row by recording it.
    w.write("a", "only in the first row: ".repeat(50));
    w.checkpoint();
    assert!(w.open().check(&row(&hit)).unwrap().is_none());
    assert_eq!(w.open().verify(false, &Control::default()).unwrap()["ok"], true);
}

#[test]
fn r104_a_write_that_fails_puts_back_what_was_deleted() {
    let w = World::new();
    for i in 1..=5 {
        w.write(&format!("f{i}"), format!("recorded {i} ").repeat(40));
    }
    // A directory that becomes a file is emptied before anything is written.
    w.write("swap", "a file then");
    let c = w.checkpoint();
    for i in 1..=5 {
        w.write(&format!("f{i}"), format!("present {i}"));
    }
    fs::remove_file(w.path("swap")).unwrap();
    w.write("swap/inner", "deleted early");
    w.write("new1", "to be deleted");
    w.write("new/2", "to be deleted");
    w.chmod("new", 0o750);
    damage(&w, &c, "f3");
    let before = w.model();
    let e = w.restore_with(&c, restore::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::StoreDamaged, "{e}");
    same(&before, &w.model(), "as before the restore");
    let all = w.open().operations().unwrap();
    assert!(all.iter().all(|o| o.record.state == OpState::RolledBack));
    assert_eq!(w.undo().unwrap_err().code, Code::NothingToUndo, "what was rolled back is not undone again");
    // What is sound can still be had by name.
    let o = w
        .restore_with(&c, restore::Options { paths: vec!["f1".into(), "swap".into()], ..Default::default() })
        .unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("swap"), "a file then");
}

#[test]
fn r104_a_full_disk_puts_everything_back() {
    let Some(disk) = Tmpfs::mount("r104_a_full_disk_puts_everything_back", 4 << 20, "").unwrap() else {
        return;
    };
    let w = world_at(disk.path());
    let noise = |seed: u64| noise(900_000, seed);
    for i in 0..3 {
        w.write(&format!("f{i}"), noise(i));
    }
    let c = w.checkpoint();
    for i in 0..3 {
        w.write(&format!("f{i}"), "small");
    }
    // Deleted only after the contents are written: there is no room for all of them beside it.
    w.write("hog", noise(9));
    w.write("hog2", noise(10));
    let before = w.model();
    let e = w.restore_with(&c, restore::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::Io, "{e}");
    same(&before, &w.model(), "as before the restore");
    no_litter(&w.model());
    fs::remove_file(w.path("hog")).unwrap();
    let o = w.restore_with(&c, restore::Options::default()).unwrap();
    assert!(!o.partial);
    assert_eq!(fs::read(w.path("f1")).unwrap(), noise(1));
}

#[test]
fn r105_an_object_behind_a_row_is_gone() {
    let w = World::new();
    w.write("a", "first");
    w.write("deep/b", "first of another kind");
    let c1 = w.checkpoint();
    let old: BTreeSet<PathBuf> = packs(&w).into_iter().collect();
    w.write("a", "second");
    w.write("deep/b", "second");
    let c2 = w.checkpoint();
    let before = w.model();
    // A foreign clean-up keeps everything of that pack but one object.
    let oid = rev(&w.git_dir(), &format!("{}:files/deep/b", c1.commit)).to_string();
    let pack = old.iter().find(|p| entry(&w, p, &oid).is_some()).unwrap();
    let aside = w.dir.path().join("aside.pack");
    fs::rename(pack, &aside).unwrap();
    fs::remove_file(pack.with_extension("idx")).unwrap();
    let mut unpack = Git::new().unwrap().command(&w.git_dir(), ["unpack-objects", "-q"]);
    unpack.env("GIT_DIR", w.git_dir()).stdin(fs::File::open(&aside).unwrap());
    assert!(unpack.status().unwrap().success());
    fs::remove_file(w.git_dir().join("objects").join(&oid[..2]).join(&oid[2..])).unwrap();

    let ws = w.open();
    let rows = ws.rows().unwrap();
    assert_eq!(rows.all.len(), 2, "it is still listed");
    for (c, why) in ws.check_all(&rows).unwrap() {
        assert_eq!(why.is_some(), c.record.id == c1.record.id, "{why:?}");
    }
    for dry_run in [true, false] {
        let e = w.restore_with(&c1, restore::Options { dry_run, ..Default::default() }).unwrap_err();
        assert_eq!((e.code, e.code.exit()), (Code::StoreDamaged, 7), "{e}");
    }
    untouched(&before, &w.root(), "nothing was written");
    // The other rows and the other files are as good as ever.
    w.write("a", "third");
    w.restore(&c2);
    same(&before, &w.model(), "the second row");
    let o = w.restore_with(&c1, restore::Options { paths: vec!["a".into()], ..Default::default() }).unwrap();
    assert!(!o.partial);
    assert_eq!(w.read("a"), "first");
}

#[test]
fn r105_trees_and_records_that_are_gone() {
    for what in ["files", "files/deep", "meta", ""] {
        let w = World::new();
        w.write("a", "first");
        w.write("deep/b", "first");
        let c1 = w.checkpoint();
        let first = packs(&w);
        w.write("a", "second");
        w.write("deep/b", "second");
        w.checkpoint();
        let before = w.model();
        let spec =
            if what.is_empty() { format!("{}^{{tree}}", c1.commit) } else { format!("{}:{what}", c1.commit) };
        let oid = rev(&w.git_dir(), &spec).to_string();
        let (at, size) = entry(&w, &first[0], &oid).unwrap();
        flip(&first[0], at + size - 6);
        let ws = w.open();
        let rows = ws.rows().unwrap();
        let listed = rows.by_id(&c1.record.id).cloned();
        match &listed {
            Some(c) => assert!(ws.check(c).unwrap().is_some(), "{what}: marked"),
            None => assert!(!rows.damaged.is_empty(), "{what}: named"),
        }
        let e = w.restore_with(&c1, restore::Options::default()).unwrap_err();
        assert_eq!(e.code, Code::StoreDamaged, "{what}: {e}");
        untouched(&before, &w.root(), what);
    }
}

#[test]
fn r108_an_editor_saves_while_three_processes_capture() {
    let w = World::new();
    for i in 0..30 {
        w.write(&format!("f{i}"), format!("{i}"));
    }
    let children: Vec<_> = (0..3).map(|_| process(&w, &["checkpoint", "12"]).spawn().unwrap()).collect();
    let done = AtomicBool::new(false);
    let told: Vec<String> = std::thread::scope(|s| {
        s.spawn(|| {
            let mut n = 0u64;
            while !done.load(Ordering::Relaxed) {
                // As editors save: beside it, then over it.
                fs::write(w.path("f1~"), format!("save {n}")).unwrap();
                fs::rename(w.path("f1~"), w.path("f1")).unwrap();
                n += 1;
            }
        });
        let _stop = Stop(&done);
        children.into_iter().flat_map(ids).collect()
    });
    let rows = w.open().rows().unwrap();
    assert!(rows.damaged.is_empty());
    assert_eq!(told.len(), 36);
    assert_eq!(rows.all.len(), 36, "no row was made twice or lost");
    // One straight history: every row comes after its parent, and no two rows have one place.
    let at = |id: &str| rows.all.iter().position(|c| c.record.id == id).unwrap();
    for (i, c) in rows.all.iter().enumerate() {
        match &c.record.parent {
            None => assert_eq!(i, 0, "only the first row has no parent"),
            Some(p) => assert_eq!(at(p) + 1, i, "{} has a parent that is not the row before it", c.record.id),
        }
    }
    let seqs: BTreeSet<u64> = rows.all.iter().map(|c| c.record.seq).collect();
    assert_eq!(seqs.len(), rows.all.len(), "no two rows claim one place");
    w.check_store();
}

/// A restore that was killed is taken back by the next command, whoever gives it; the list stays usable throughout.
#[test]
fn r101_a_killed_restore_leaves_old_or_new() {
    let w = World::new();
    for i in 0..60 {
        w.write(&format!("d{}/f{i}", i % 6), format!("old {i}"));
    }
    let c = w.checkpoint();
    let old = w.model();
    for i in 0..60 {
        w.write(&format!("d{}/f{i}", i % 6), format!("new {i}"));
    }
    w.write("extra/x", "x");
    let new = w.model();
    for steps in [1u32, 3, 7, 20, 59] {
        // Killed from inside, when that many files have been put back.
        let mut child = process(&w, &["restore", &c.record.id]);
        child.env("BACKSTITCH_TEST_KILL_AFTER", steps.to_string());
        let out = child.spawn().unwrap().wait_with_output().unwrap();
        assert!(!out.status.success());
        let ws = open_at(&w, &w.root());
        assert!(ws.recovered.is_some(), "after {steps}");
        same(&new, &everything_below(&w.root()), &format!("killed after {steps}"));
        assert!(open_at(&w, &w.root()).recovered.is_none(), "once is enough");
    }
    w.restore(&c);
    same(&old, &TreeModel::read_all(&w.root()).unwrap(), "restored in the end");
    w.check_store();
}

#[test]
fn r103_a_store_without_its_repository_is_never_an_empty_one() {
    let w = World::new();
    w.write("a", "1");
    w.checkpoint();
    let store = w.open().store_dir().to_owned();
    let keep = w.dir.path().join("keep");
    fs::rename(store.join("git"), &keep).unwrap();
    let e = Workspace::open(&w.root(), w.surroundings.clone()).map(|_| ()).unwrap_err();
    assert_eq!(e.code, Code::StoreDamaged);
    let _ = fs::remove_dir_all(store.join("git"));
    fs::rename(&keep, store.join("git")).unwrap();
    // The manifest says nothing that cannot be said again.
    for broken in [None, Some("junk")] {
        fs::remove_file(store.join("manifest.json")).unwrap();
        if let Some(text) = broken {
            fs::write(store.join("manifest.json"), text).unwrap();
        }
        let ws = w.open();
        assert!(ws.recovered.as_ref().unwrap().contains("manifest"), "{:?}", ws.recovered);
        assert_eq!(ws.rows().unwrap().all.len(), 1);
    }
}

#[test]
fn r103_a_store_that_lost_all_its_refs_says_so_and_lists_its_rows_again() {
    let w = World::new();
    w.write("a", "1");
    let first = w.checkpoint();
    w.write("a", "2");
    let second = w.checkpoint();
    fs::remove_dir_all(w.git_dir().join("refs")).unwrap();
    let _ = fs::remove_file(w.git_dir().join("packed-refs"));
    let ws = w.open();
    assert!(ws.rows().unwrap().all.is_empty());
    let told = ws.verify(false, &Control::default()).unwrap();
    assert_eq!(told["ok"], false, "{told}");
    assert_eq!(told["rows_damaged"].as_array().unwrap().len(), 2, "{told}");
    let told = ws.verify(true, &Control::default()).unwrap();
    assert_eq!((&told["ok"], &told["checkpoints"]), (&true.into(), &2.into()), "{told}");
    let ids: Vec<String> = ws.rows().unwrap().all.into_iter().map(|c| c.record.id.clone()).collect();
    assert_eq!(ids, [first.record.id.clone(), second.record.id.clone()]);
    w.restore(&first);
    assert_eq!(w.read("a"), "1");
    w.check_store();
}

#[test]
fn r105_a_row_never_stands_on_objects_that_are_gone() {
    let w = World::new();
    for i in 0..20 {
        w.write(&format!("f{i}"), format!("content {i}").repeat(20));
    }
    w.checkpoint();
    for e in fs::read_dir(w.git_dir().join("objects/pack")).unwrap().flatten() {
        fs::remove_file(e.path()).unwrap();
    }
    // The files are there, so a row that says complete can be restored.
    let c = w.checkpoint();
    for i in 0..20 {
        fs::remove_file(w.path(&format!("f{i}"))).unwrap();
    }
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!(w.read("f7"), "content 7".repeat(20));
}

#[test]
fn r01_rules_of_today_are_those_on_the_disk_also_for_named_paths() {
    let w = World::new();
    w.write("x", "1");
    let c = w.checkpoint();
    w.write("new/big", "never covered");
    w.write(".env", "KEY");
    w.write(".gitignore", "/new/\n.env\n");
    for p in ["new", ".env", "new/big"] {
        let only = restore::Options { paths: vec![p.into()], ..Default::default() };
        let o = w.restore_with(&c, only).unwrap();
        assert!(o.items.iter().all(|i| !i.action.changes()), "{p}: {:?}", o.items);
    }
    assert!(w.exists("new/big") && w.exists(".env"));
}

#[test]
fn r102_of_two_collections_one_works_and_the_other_leaves_it_to_it() {
    let w = World::new();
    w.write("a", "1");
    w.checkpoint();
    let ws = w.open();
    let held = ws.store().unwrap().lock_exclusive("collect", std::time::Duration::from_secs(10)).unwrap();
    assert!(w.open().maintain(&Control::default()).unwrap().is_none(), "no error, and no second one");
    // Turns go on beside it.
    let s = crate::sessions::Agent { w: &w, id: "s" };
    s.begin("k");
    w.write("a", "2");
    assert!(s.end().is_some());
    drop(held);
    // Many at once: each ends well, whoever of them did it.
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|n| {
                let w = &w;
                scope.spawn(move || match n % 2 {
                    0 => w.open().maintain(&Control::default()).map(|_| ()),
                    _ => w.open().gc(false, &Control::default()).map(|_| ()),
                })
            })
            .collect();
        all.into_iter().for_each(|t| t.join().unwrap().unwrap());
    });
    w.check_store();
}

#[test]
fn r43_the_temporary_of_a_journal_does_not_outlive_the_next_command() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    let journal = w.open().store().unwrap().journal_dir();
    // As an operation leaves it that dies while it writes its journal.
    fs::write(journal.join("operation.new"), "{").unwrap();
    w.open();
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
    // Not while its writer is at work.
    let at_work = w.open();
    let lock = at_work.lock_operation().unwrap();
    fs::write(journal.join("operation.new"), "{").unwrap();
    w.open();
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 1);
    drop(lock);
    w.write("a", "2");
    w.restore(&c);
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
}

#[test]
fn r101_the_next_new_file_beside_another_removes_those_of_dead_processes_and_no_others() {
    use backstitch::settings::Beside;
    let dir = tempfile::tempdir().unwrap();
    let names = || {
        let mut all: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    };
    for name in [".backstitch-tmp-01m8qsak5a59d0vb", ".backstitch-tmp-01m8qsak5a59d0vb-x1", "other"] {
        fs::write(dir.path().join(name), "left").unwrap();
    }
    let alive = Beside::new(dir.path(), 0o600).unwrap();
    let second = Beside::new(dir.path(), 0o600).unwrap();
    assert_eq!(names().len(), 4, "{:?}", names());
    second.place(&dir.path().join("target")).unwrap();
    drop(alive);
    assert_eq!(names(), [".backstitch-tmp-01m8qsak5a59d0vb-x1", "other", "target"]);
}

#[test]
fn r29_a_store_in_the_making_is_no_damaged_one() {
    let w = World::new();
    w.write("a", "1");
    w.checkpoint();
    let store = w.open().store_dir().to_owned();
    fs::remove_file(store.join("manifest.json")).unwrap();
    assert!(w.open().recovered.is_some(), "it holds a checkpoint");
    // The same without any: another process makes it right now.
    fs::remove_file(store.join("manifest.json")).unwrap();
    fs::remove_dir_all(store.join("git/refs/backstitch")).unwrap();
    assert_eq!(w.open().recovered, None);
}

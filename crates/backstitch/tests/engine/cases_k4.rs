//! K4: the store stays small, and a full disk takes nothing with it.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use backstitch::{
    checkpoint,
    error::Code,
    prune,
    record::{self, State},
    restore,
    workspace::Control,
};
use backstitch_testkit::{Compare, generate::noise, privilege, privilege::Tmpfs};

use crate::{
    cases_k1::open_to_all,
    sessions::Agent,
    support::{git, open_at, repository, untouched},
    world::{World, everything_below},
};

/// Bytes of all files.
fn bytes(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .unwrap()
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => bytes(&e.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn r47_ten_sessions_on_one_tree_share_one_copy() {
    let w = World::new();
    for i in 0..8 {
        w.write(&format!("d{i}/f"), noise(400_000, i));
    }
    w.checkpoint();
    let one = bytes(w.open().store_dir());
    for n in 0..10 {
        let id = format!("s{n}");
        let s = Agent { w: &w, id: &id };
        s.begin("k1");
        s.shell("c1", || ());
        s.end();
    }
    let all = bytes(w.open().store_dir());
    assert!(all * 10 <= one * 11, "{all} for ten sessions, {one} for the first row");
}

#[test]
fn r51_a_database_that_changes_each_turn_adds_nothing_to_the_users_repository() {
    let w = World::new();
    w.write("db", noise(2_000_000, 1));
    git(&w.root(), &["init", "-q"]);
    let before = everything_below(&w.path(".git"));
    let s = Agent { w: &w, id: "s" };
    for n in 0..20u64 {
        s.begin(&format!("k{n}"));
        s.shell(&format!("c{n}"), || {
            let mut page = fs::read(w.path("db")).unwrap();
            page[4096 * n as usize..][..4096].copy_from_slice(&noise(4096, n + 9));
            fs::write(w.path("db"), page).unwrap();
        });
        s.end();
    }
    untouched(&before, &w.path(".git"), "a repository without a commit");
}

#[test]
fn r52_a_folder_that_always_fails_is_one_line_each_time_and_leaves_nothing_behind() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("r52", "needs root to drop its user id");
    }
    let w = World::new();
    w.write("a", "0");
    w.write("shut/huge", noise(100_000, 1));
    repository(&w.root());
    open_to_all(&w);
    w.chmod("shut", 0o000);
    let repo = everything_below(&w.path(".git"));
    let mut size = 0;
    for n in 0..20 {
        w.write("a", format!("{n}"));
        let o = privilege::run_as(65534, || w.record(checkpoint::Options::default()).unwrap()).unwrap();
        let row = o.checkpoint.unwrap();
        let failed: Vec<_> = row.record.skipped.iter().filter(|s| s.reason == "unreadable").collect();
        assert_eq!((row.record.state, failed.len()), (State::Partial, 1), "{failed:?}");
        if n == 9 {
            size = bytes(w.open().store_dir());
        }
    }
    let grown = bytes(w.open().store_dir()) - size;
    assert!(grown < 60_000, "ten rows took {grown} bytes");
    untouched(&repo, &w.path(".git"), "the user's repository");
    w.chmod("shut", 0o755);
}

#[test]
fn r53_an_unchanged_row_costs_next_to_nothing_however_many_files_there_are() {
    const ROWS: u64 = 40;
    let w = World::new();
    for i in 0..5000 {
        let dir = w.path(&format!("d{}", i % 50));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), "x").unwrap();
    }
    // A row that settles what was too young to be trusted.
    w.checkpoint();
    w.checkpoint();
    let before = bytes(&w.git_dir());
    for _ in 0..ROWS {
        assert!(w.checkpoint().record.unchanged);
    }
    let each = (bytes(&w.git_dir()) - before) / ROWS;
    assert!(each < 4096, "{each} bytes for a row");
}

#[test]
fn r55_a_full_disk_takes_nothing_with_it() {
    let Some(disk) = Tmpfs::mount("r55_a_full_disk_takes_nothing_with_it", 8 << 20, "").unwrap() else {
        return;
    };
    let mut w = World::new();
    w.surroundings.store_base = disk.path().join("data");
    w.write("a", "one");
    w.write("big", noise(300_000, 1));
    let c = w.checkpoint();
    w.open().set_enabled(true).unwrap();
    w.write("a", "two");
    let hog = disk.path().join("hog");
    let mut file = fs::File::create(&hog).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    drop(file);
    let before = w.model();
    w.write("big", noise(300_000, 2));
    let full = w.model();
    for _ in 0..2 {
        let e = w.record(checkpoint::Options::default()).unwrap_err();
        assert!(matches!(e.code, Code::OverBudget | Code::Io), "{e:?}");
        // Below the floor what has no room anywhere is kept, and told.
        let o = w.restore_with(&c, restore::Options::default()).unwrap();
        assert!(o.partial && o.operation.is_none(), "{o:?}");
        assert!(o.items.iter().all(|i| i.reason.as_deref() == Some("no-room")), "{o:?}");
        assert!(o.warnings[0].contains("free some space"), "{o:?}");
        full.assert_same(&w.model(), &Compare::untouched(), "nothing was begun");
        // What is there can be read.
        let ws = open_at(&w, &w.root());
        let rows = ws.rows().unwrap();
        assert!(rows.damaged.is_empty() && rows.all.len() == 1);
        assert!(ws.check(&rows.all[0]).unwrap().is_none());
        ws.status().unwrap();
    }
    fs::remove_file(hog).unwrap();
    w.write("big", noise(300_000, 1));
    assert_eq!(w.read("a"), "two", "{} entries", before.entries.len());
    w.restore(&c);
    assert_eq!(w.read("a"), "one");
    w.check_store();
}

#[test]
fn r43_collections_that_are_cut_off_leave_nothing_behind() {
    let w = World::new();
    let mut rows = Vec::new();
    for n in 0..12 {
        w.write("big", noise(200_000, n));
        w.write(&format!("d{n}/f"), noise(20_000, 100 + n));
        rows.push(w.checkpoint());
    }
    w.open().delete(&rows[..10].iter().collect::<Vec<_>>()).unwrap();
    let ws = w.open();
    let stop = AtomicBool::new(false);
    // Each attempt ends a little later than the one before.
    let attempt = |calls: usize| {
        stop.store(false, Ordering::Relaxed);
        let seen = AtomicUsize::new(0);
        let progress = |_: &str, _: u64, _: u64| {
            if seen.fetch_add(1, Ordering::Relaxed) == calls {
                stop.store(true, Ordering::Relaxed);
            }
        };
        ws.gc(false, &Control { interrupt: &stop, progress: &progress }).map(|_| ())
    };
    let before = bytes(ws.store_dir());
    let mut cut = 0;
    for n in 0..10 {
        let Err(e) = attempt(n) else { break };
        assert_eq!(e.code, Code::Interrupted);
        cut += 1;
        let now = bytes(ws.store_dir());
        assert!(now <= before + 4096, "attempt {n}: {now} bytes of {before}");
    }
    assert!(cut > 0, "none was cut off");
    // The next one that is let is as good as the first.
    let done = ws.gc(false, &Control::default()).unwrap();
    assert!(!done.is_partial());
    assert!(bytes(ws.store_dir()) * 2 < before);
    w.restore(&rows[11]);
    w.check_store();
}

#[test]
fn r59_what_branches_do_is_nothing_to_retention() {
    let w = World::new();
    w.write("a", "0");
    repository(&w.root());
    let mut ids = Vec::new();
    let mut row = || ids.push(w.checkpoint().record.id.clone());
    row();
    for words in [
        &["checkout", "-q", "-b", "work"][..],
        &["branch", "-m", "work", "renamed"],
        &["checkout", "-q", "--detach"],
        &["branch", "-D", "renamed"],
        &["checkout", "-q", "-b", "work"],
    ] {
        git(&w.root(), words);
        w.write("a", words.join(" "));
        row();
        git(&w.root(), &["commit", "-qam", "step"]);
        row();
    }
    let s = Agent { w: &w, id: "s" };
    ids.push(s.begin("k").record.id.clone());
    ids.push(s.end().unwrap().record.id.clone());
    let young = record::now_ms() + 29 * 86_400_000;
    let o = prune::Options { now_ms: Some(young), ..Default::default() };
    w.open().prune(&o, &Control::default()).unwrap();
    w.open().gc(false, &Control::default()).unwrap();
    let left: Vec<String> = w.open().rows().unwrap().all.iter().map(|c| c.record.id.clone()).collect();
    assert_eq!(left, ids);
    w.check_store();
}

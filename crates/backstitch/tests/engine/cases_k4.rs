//! K4: the store stays small, and a full disk takes nothing with it.

use std::{fs, path::Path};

use backstitch::{checkpoint, error::Code, record::State, restore};
use backstitch_testkit::{Compare, privilege, privilege::Tmpfs};

use crate::{
    cases_k1::open_to_all,
    sessions::Agent,
    support::{git, open_at, repository, untouched},
    world::{World, everything_below},
};

fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 11) as u8
        })
        .collect()
}

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
        w.write(&format!("d{i}/f"), noise(i, 400_000));
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
    w.write("db", noise(1, 2_000_000));
    git(&w.root(), &["init", "-q"]);
    let before = everything_below(&w.path(".git"));
    let s = Agent { w: &w, id: "s" };
    for n in 0..20u32 {
        s.begin(&format!("k{n}"));
        s.shell(&format!("c{n}"), || {
            let mut page = fs::read(w.path("db")).unwrap();
            page[4096 * n as usize..][..4096].copy_from_slice(&noise(n + 9, 4096));
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
    w.write("shut/huge", noise(1, 100_000));
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
    w.write("big", noise(1, 300_000));
    let c = w.checkpoint();
    w.open().set_enabled(true).unwrap();
    w.write("a", "two");
    let hog = disk.path().join("hog");
    let mut file = fs::File::create(&hog).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    drop(file);
    let before = w.model();
    w.write("big", noise(2, 300_000));
    let full = w.model();
    for _ in 0..2 {
        let e = w.record(checkpoint::Options::default()).unwrap_err();
        assert!(matches!(e.code, Code::OverBudget | Code::Io), "{e:?}");
        let e = w.restore_with(&c, restore::Options::default()).unwrap_err();
        assert!(matches!(e.code, Code::OverBudget | Code::Io), "{e:?}");
        full.assert_same(&w.model(), &Compare::untouched(), "nothing was begun");
        // What is there can be read.
        let ws = open_at(&w, &w.root());
        let rows = ws.rows().unwrap();
        assert!(rows.damaged.is_empty() && rows.all.len() == 1);
        assert!(ws.check(&rows.all[0]).unwrap().is_none());
        ws.status().unwrap();
    }
    fs::remove_file(hog).unwrap();
    w.write("big", noise(1, 300_000));
    assert_eq!(w.read("a"), "two", "{} entries", before.entries.len());
    w.restore(&c);
    assert_eq!(w.read("a"), "one");
    w.check_store();
}

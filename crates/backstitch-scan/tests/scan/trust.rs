//! What the table may be trusted with.

use std::{fs, os::unix::fs::PermissionsExt, sync::atomic::Ordering};

use backstitch_scan::*;

use crate::support::*;

fn small_world() -> World {
    let world = World::new();
    world.write("a.txt", "one");
    world.write("dir/b.txt", "two");
    world.write("dir/deep/c.txt", "three");
    world.write("dir/deep/d.txt", "four");
    world.write("other/e.txt", "five");
    std::os::unix::fs::symlink("a.txt", world.path("link")).unwrap();
    fs::create_dir(world.path("empty")).unwrap();
    world
}

#[test]
fn an_unchanged_tree_costs_no_call() {
    let world = small_world();
    let setup = Setup::of(world.root());
    let first = world.scan(&setup);
    assert_eq!(world.sink.calls(), (5, 1, 5));
    assert_eq!((first.files, first.links, first.dirs, first.bytes), (5, 1, 5, 19));
    assert_eq!((first.read_files, first.read_bytes, first.listed_dirs), (5, 19, 5));
    for threads in [1, 2, 7] {
        world.check_unchanged(&Setup { threads, ..Setup::of(world.root()) });
    }
    let again = world.check(&setup);
    assert_eq!(again.root, first.root);
    assert_eq!(again.listed_dirs, 0);
}

#[test]
fn a_change_costs_what_changed() {
    let world = small_world();
    let setup = Setup::of(world.root());
    world.scan(&setup);
    fs::write(world.path("dir/deep/c.txt"), "changed").unwrap();
    let outcome = world.check(&setup);
    assert_eq!(world.sink.calls(), (1, 0, 3), "one file, and the directories above it");
    assert_eq!(outcome.listed_dirs, 0);
    world.check_unchanged(&setup);

    world.write("dir/new.txt", "new");
    fs::remove_file(world.path("dir/b.txt")).unwrap();
    world.check(&setup);
    assert_eq!(world.sink.calls(), (1, 0, 2));
    world.check_unchanged(&setup);

    fs::remove_dir_all(world.path("dir/deep")).unwrap();
    fs::rename(world.path("other"), world.path("dir/other")).unwrap();
    world.check(&setup);
    world.check_unchanged(&setup);
}

#[test]
fn types_change_places() {
    let world = small_world();
    let setup = Setup::of(world.root());
    world.scan(&setup);
    fs::remove_file(world.path("a.txt")).unwrap();
    world.write("a.txt/inside", "now a directory");
    fs::remove_dir_all(world.path("dir")).unwrap();
    world.write("dir", "now a file");
    fs::remove_file(world.path("link")).unwrap();
    world.write("link", "now a file");
    fs::remove_dir(world.path("empty")).unwrap();
    std::os::unix::fs::symlink("a.txt", world.path("empty")).unwrap();
    world.check(&setup);
    world.check_unchanged(&setup);
}

/// The system's own clock: what was just written is not trusted, so that an edit of the same size within one tick is seen.
#[test]
fn a_same_size_edit_within_the_racy_window_is_found() {
    let world = World::new();
    world.write("file", "aaaa");
    let setup = Setup { clock: Ahead(0), ..Setup::of(world.root()) };
    let first = world.scan(&setup);
    let time = fs::metadata(world.path("file")).unwrap().modified().unwrap();
    fs::write(world.path("file"), "bbbb").unwrap();
    touch(&world.path("file"), time);
    let second = world.check(&setup);
    assert_ne!(first.root, second.root);
    // And the directory, which was listed within the window, is listed again.
    assert_eq!(second.listed_dirs, 1);
}

#[test]
fn what_was_racy_is_settled_by_the_next_scan() {
    let world = small_world();
    let now = Setup { clock: Ahead(0), ..Setup::of(world.root()) };
    world.scan(&now);
    let setup = Setup::of(world.root());
    let second = world.check(&setup);
    assert_eq!(second.read_files, 5, "read once more, to be sure");
    assert_eq!(world.sink.calls().2, 0, "but no directory is made anew");
    world.check_unchanged(&setup);
}

#[test]
fn a_restored_mtime_is_found_through_ctime() {
    let world = World::new();
    world.write("file", "aaaa");
    touch(&world.path("file"), ago(1000));
    let setup = Setup::of(world.root());
    let first = world.scan(&setup);
    let time = fs::metadata(world.path("file")).unwrap().modified().unwrap();
    fs::write(world.path("file"), "bbbb").unwrap();
    touch(&world.path("file"), time);
    let second = world.check(&setup);
    assert_ne!(first.root, second.root);
    assert_eq!(second.read_files, 1);
}

#[test]
fn a_replaced_inode_is_found() {
    let world = World::new();
    world.write("file", "aaaa");
    world.write("new", "bbbb");
    let time = ago(1000);
    touch(&world.path("file"), time);
    touch(&world.path("new"), time);
    let setup = Setup::of(world.root());
    world.scan(&setup);
    fs::rename(world.path("new"), world.path("file")).unwrap();
    world.check(&setup);
    world.check_unchanged(&setup);
}

#[test]
fn a_changed_mode_is_found() {
    let world = small_world();
    let setup = Setup::of(world.root());
    world.scan(&setup);
    fs::set_permissions(world.path("a.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.path("dir/deep"), fs::Permissions::from_mode(0o700)).unwrap();
    let before = world.table();
    world.check(&setup);
    drop(before);
    world.check_unchanged(&setup);
}

#[test]
fn a_file_that_came_and_went_costs_no_new_ids() {
    let world = small_world();
    let setup = Setup::of(world.root());
    let first = world.scan(&setup);
    world.write("dir/deep/passing", "x");
    fs::remove_file(world.path("dir/deep/passing")).unwrap();
    let second = world.check(&setup);
    assert_eq!(world.sink.calls(), (0, 0, 0));
    assert_eq!((second.listed_dirs, first.root), (1, second.root));
    world.check_unchanged(&setup);
}

#[test]
fn paranoid_reads_everything() {
    let world = small_world();
    world.scan(&Setup::of(world.root()));
    let outcome = world.scan(&Setup { paranoid: true, ..Setup::of(world.root()) });
    assert_eq!((outcome.read_files, outcome.listed_dirs), (5, 5));
}

#[test]
fn an_unvouched_table_is_checked_id_by_id() {
    let world = small_world();
    let first = world.scan(&Setup::of(world.root()));
    let setup = Setup { vouched: false, ..Setup::of(world.root()) };
    let outcome = world.check(&setup);
    assert_eq!(world.sink.calls(), (0, 0, 5), "leaves are vouched for by the sink, directories made anew");
    assert_eq!(outcome.root, first.root);
    world.sink.gone.lock().unwrap().push(hash("file", b"three"));
    world.scan(&setup);
    assert_eq!(world.sink.files.load(Ordering::Relaxed), 1);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_read_again() {
    let world = World::new();
    world.write("file", "0");
    let path = world.path("file");
    let times = std::sync::atomic::AtomicU64::new(0);
    let sink = Memory {
        on_file: Some(Box::new(move |_| {
            // Changes twice, then holds still; the size differs each time, so that no clock is needed.
            let n = times.fetch_add(1, Ordering::Relaxed);
            if n < 2 {
                fs::write(&path, "x".repeat(2 + n as usize)).unwrap();
            }
        })),
        ..Memory::default()
    };
    let outcome = Setup::of(world.root()).scan(world.root(), None, &sink);
    assert_eq!(sink.calls().0, 3);
    assert_eq!(sink.flatten(&outcome.root.unwrap())[b"file".as_bstr()].1, b"xxx");
    assert!(outcome.skips.is_empty());
}

#[test]
fn a_file_that_never_holds_still_is_unstable() {
    let world = World::new();
    world.write("file", "0");
    world.write("other", "1");
    let path = world.path("file");
    let times = std::sync::atomic::AtomicU64::new(0);
    let sink = Memory {
        on_file: Some(Box::new(move |name| {
            if name == "file" {
                let n = times.fetch_add(1, Ordering::Relaxed);
                fs::write(&path, "x".repeat(2 + n as usize)).unwrap();
            }
        })),
        ..Memory::default()
    };
    let outcome = Setup::of(world.root()).scan(world.root(), None, &sink);
    assert_eq!(paths(&outcome.skips), [("file".into(), "unstable")]);
    assert_eq!(outcome.files, 1);
}

#[test]
fn a_file_that_goes_away_is_absent() {
    let world = World::new();
    world.write("a", "1");
    world.write("b", "2");
    let path = world.path("b");
    let sink = Memory { on_file: Some(Box::new(move |_| drop(fs::remove_file(&path)))), ..Memory::default() };
    let setup = Setup { threads: 1, ..Setup::of(world.root()) };
    let outcome = setup.scan(world.root(), None, &sink);
    assert_eq!((outcome.files, outcome.skips.len()), (1, 0));
}

#[test]
fn a_failing_sink_ends_the_scan_and_a_failing_read_does_not() {
    struct Failing(bool);
    impl Sink for Failing {
        type Scratch = ();
        fn scratch(&self) {}
        fn file(&self, (): &mut (), _: &BStr, _: &mut fs::File, _: &Stat) -> Result<Oid, SinkError> {
            Err(if self.0 {
                SinkError::Fatal("full".into())
            } else {
                SinkError::Read(std::io::Error::other("bad disk"))
            })
        }
        fn link(&self, (): &mut (), _: &BStr, target: &[u8]) -> Result<Oid, SinkError> {
            Ok(hash("link", target))
        }
        fn dir(&self, (): &mut (), _: &Dir<'_>) -> Result<DirIds, SinkError> {
            Ok(DirIds { tree: hash("dir", b""), meta: None })
        }
        fn has(&self, _: &Oid) -> bool {
            true
        }
    }
    let world = small_world();
    let setup = Setup::of(world.root());
    let fatal = scan(world.root(), None, &Failing(true), &setup.options());
    assert!(matches!(fatal, Err(ScanError::Sink(e)) if e.to_string() == "full"));
    let outcome = scan(world.root(), None, &Failing(false), &setup.options()).unwrap();
    assert_eq!((outcome.files, outcome.links, outcome.skips.len()), (0, 1, 5));
    assert!(
        outcome
            .skips
            .iter()
            .all(|s| s.reason == Reason::Unreadable && s.detail.as_deref() == Some("bad disk"))
    );
}

#[test]
fn interrupt_and_deadline() {
    let world = small_world();
    let setup = Setup::of(world.root());
    setup.interrupt.store(true, Ordering::Relaxed);
    assert!(matches!(setup.try_scan(world.root(), None, &world.sink), Err(ScanError::Interrupted)));
    let late = Setup { deadline: Some(std::time::Instant::now()), ..Setup::of(world.root()) };
    let outcome = late.scan(world.root(), None, &world.sink);
    let skips = paths(&outcome.skips);
    assert!(
        skips.contains(&("a.txt".into(), "time")) && skips.contains(&("dir".into(), "time")),
        "{skips:?}"
    );
    // With a table, what is proven unchanged needs no time.
    world.scan(&setup_again(&world));
    let outcome = world.scan(&Setup { deadline: Some(std::time::Instant::now()), ..Setup::of(world.root()) });
    assert_eq!(outcome.files, 1);
}

fn setup_again(world: &World) -> Setup {
    Setup::of(world.root())
}

#[test]
fn many_rounds_of_random_edits() {
    for seed in 0..12 {
        let world = World::new();
        let setup = Setup { threads: 1 + seed as usize % 3, ..Setup::of(world.root()) };
        let mut dice = Dice(seed);
        for round in 0..12 {
            for _ in 0..1 + dice.roll(6) {
                edit(&world, &mut dice, round);
            }
            world.check(&setup);
            world.check_unchanged(&setup);
        }
    }
}

pub fn edit(world: &World, dice: &mut Dice, round: usize) {
    let mut path = String::new();
    for _ in 0..=dice.roll(3) {
        path = format!(
            "{path}{}{}",
            if path.is_empty() { "" } else { "/" },
            dice.pick(&["a", "b", "c", "d", "e"])
        );
    }
    let full = world.path(&path);
    match dice.roll(7) {
        0 | 1 => {
            let _ = fs::create_dir_all(full.parent().unwrap());
            let _ = fs::write(&full, format!("{round}{}", dice.roll(10)));
        }
        2 => drop(fs::create_dir_all(&full)),
        3 => drop(fs::remove_file(&full)),
        4 => drop(fs::remove_dir_all(&full)),
        5 => {
            let to = world.path(dice.pick(&["a", "b", "c", "x"]));
            let _ = fs::rename(&full, to);
        }
        _ => drop(std::os::unix::fs::symlink(dice.pick(&["a", "b/c", "nowhere"]), &full)),
    }
}

#[test]
fn what_could_not_be_captured_once_is_no_stranger_the_next_time() {
    let world = World::new();
    world.write("dir/large", "x".repeat(500));
    world.write("dir/small", "x");
    let normal = || Setup::of(world.root());
    let limits = Limits { new_file: 1000, grown_file: 5000, ..Limits::default() };
    world.scan(&normal());
    // It grows beyond what a new file may have, and then there is no time for it.
    fs::write(world.path("dir/large"), "y".repeat(2000)).unwrap();
    let late = Setup { deadline: Some(std::time::Instant::now()), limits: limits.clone(), ..normal() };
    let outcome = world.scan(&late);
    assert_eq!(paths(&outcome.skips), [("dir".into(), "time")]);
    world.write("top", "new");
    world.scan(&late);
    let outcome = world.scan(&Setup { limits: limits.clone(), ..normal() });
    assert_eq!(paths(&outcome.skips), [], "the directory and what it held are known");
    assert_eq!(world.sink.calls().0, 2, "only what changed is read");
    world.check(&normal());
    // Grown too far, and back.
    fs::write(world.path("dir/large"), "y".repeat(9000)).unwrap();
    let limited = Setup { limits: limits.clone(), ..normal() };
    assert_eq!(paths(&world.scan(&limited).skips), [("dir/large".into(), "limit")]);
    fs::write(world.path("dir/large"), "y".repeat(4000)).unwrap();
    assert_eq!(paths(&world.scan(&limited).skips), []);
    // Without the table the sink may know.
    assert_eq!(paths(&limited.scan(world.root(), None, &world.sink).skips), [("dir/large".into(), "limit")]);
    world.sink.known.lock().unwrap().insert("dir/large".into(), 4000);
    assert_eq!(paths(&limited.scan(world.root(), None, &world.sink).skips), []);
}

#[test]
fn a_database_and_its_log_are_read_together() {
    let world = World::new();
    world.write("app.db", "one");
    world.write("app.db-wal", "log one");
    world.write("other-wal", "alone");
    let setup = Setup { threads: 1, ..Setup::of(world.root()) };
    world.scan(&setup);
    // While the log is read, the database, which was just found unchanged, is written.
    fs::write(world.path("app.db-wal"), "log two!").unwrap();
    let path = world.path("app.db");
    let once = std::sync::Once::new();
    let sink = Memory {
        on_file: Some(Box::new(move |name| {
            if name == "app.db-wal" {
                once.call_once(|| fs::write(&path, "two").unwrap());
            }
        })),
        stored: std::sync::Mutex::new(world.sink.stored.lock().unwrap().clone()),
        ..Memory::default()
    };
    let table = world.table();
    let outcome = setup.scan(world.root(), table.as_ref(), &sink);
    let found = sink.flatten(&outcome.root.unwrap());
    assert_eq!(found[b"app.db".as_bstr()].1, b"two");
    assert_eq!((outcome.files, outcome.bytes), (3, 3 + 8 + 5));
}

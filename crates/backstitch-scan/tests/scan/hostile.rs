//! Trees that are meant to break a walk.

use std::{
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::Path,
};

use backstitch_scan::*;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::support::*;

#[test]
fn every_byte_and_the_longest_name() {
    let world = World::new();
    for byte in (1..=255u8).filter(|b| *b != b'/') {
        let name = [b'x', byte];
        fs::write(world.root().join(os(&name)), [byte]).unwrap();
    }
    let long = [0xf0u8; 255];
    fs::create_dir(world.root().join(os(&long))).unwrap();
    fs::write(world.root().join(os(&long)).join(os(&long)), "deep").unwrap();
    let setup = Setup::of(world.root());
    let outcome = world.check(&setup);
    assert_eq!((outcome.files, outcome.skips.len()), (255, 0));
    let found = world.sink.flatten(&outcome.root.unwrap());
    assert_eq!(found[[b'x', 0xff].as_bstr()].1, [0xff]);
    world.check_unchanged(&setup);
}

/// Makes a chain of directories through handles, since its path is too long for any call.
fn make_deep(root: &Path, name: &str, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir: OwnedFd = openat(CWD, root, flags, Mode::empty()).unwrap();
    for level in 0..depth {
        mkdirat(&dir, name, Mode::from_raw_mode(0o755)).unwrap();
        if level % 100 == 0 {
            // A sibling on the way down, so that a parent is needed again later.
            mkdirat(&dir, "aside", Mode::from_raw_mode(0o755)).unwrap();
            file_at(dir.as_fd(), "file");
        }
        dir = openat(&dir, name, flags, Mode::empty()).unwrap();
    }
    file_at(dir.as_fd(), "bottom");
}

fn file_at(dir: std::os::fd::BorrowedFd<'_>, name: &str) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&fd, b"content").unwrap();
}

/// Removes such a chain without recursion: each directory is moved up before it is emptied.
fn remove_deep(root: &Path, name: &str) {
    for level in 0.. {
        let top = root.join(format!("moved{level}"));
        let from =
            if level == 0 { root.join(name) } else { root.join(format!("moved{}", level - 1)).join(name) };
        if fs::rename(&from, &top).is_err() {
            break;
        }
    }
}

#[test]
fn a_thousand_levels() {
    let world = World::new();
    let name = "a-rather-long-name-for-a-directory";
    make_deep(world.root(), name, 1000);
    for threads in [1, 4] {
        let setup = Setup { threads, ..Setup::of(world.root()) };
        let outcome = setup.scan(world.root(), None, &world.sink);
        assert_eq!((outcome.files, outcome.dirs, outcome.skips.len()), (11, 1011, 0));
    }
    let setup = Setup::of(world.root());
    world.scan(&setup);
    world.check_unchanged(&setup);
    assert_eq!(bare_walk(world.root(), 2).unwrap().0, 1021);
    remove_deep(world.root(), name);
}

#[test]
fn twenty_thousand_names_in_one_directory() {
    let world = World::new();
    fs::create_dir(world.path("wide")).unwrap();
    for i in 0..20_000 {
        fs::write(world.path(&format!("wide/file-{i}")), [i as u8]).unwrap();
    }
    let ids: Vec<_> = [1, 2, 5]
        .map(|threads| {
            let setup = Setup { threads, ..Setup::of(world.root()) };
            let outcome = setup.scan(world.root(), None, &world.sink);
            assert_eq!(outcome.files, 20_000);
            outcome.root
        })
        .to_vec();
    assert!(ids.windows(2).all(|w| w[0] == w[1]));
    for threads in [1, 2] {
        let setup = Setup { threads, ..Setup::of(world.root()) };
        world.scan(&setup);
        world.check_unchanged(&setup);
        fs::write(world.path("wide/file-777"), format!("changed {threads}")).unwrap();
        world.check(&setup);
        assert_eq!(world.sink.calls(), (1, 0, 2));
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let world = World::new();
    let mut dice = Dice(7);
    for i in 0..600 {
        let path: Vec<String> = (0..dice.roll(5)).map(|_| format!("d{}", dice.roll(4))).collect();
        world.write(format!("{}/f{i}", path.join("/")).trim_start_matches('/'), format!("{i}"));
    }
    world.write("d1/.gitignore", "*7\nd2/d3/\n");
    let run = |threads| {
        let sink = Memory::default();
        let setup = Setup { threads, ignored: Ignored::Small, ..Setup::of(world.root()) };
        let outcome = setup.scan(world.root(), None, &sink);
        (outcome.root, outcome.skips, outcome.files, outcome.dirs, outcome.bytes)
    };
    let one = run(1);
    for threads in [2, 3, 8, 16] {
        assert_eq!(run(threads), one);
    }
}

#[test]
fn links_are_never_followed() {
    let outside = temp();
    write(outside.path(), "secret", "x");
    let world = World::new();
    world.write("dir/file", "x");
    std::os::unix::fs::symlink(outside.path(), world.path("out")).unwrap();
    std::os::unix::fs::symlink(".", world.path("dir/loop")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.path("dangling")).unwrap();
    std::os::unix::fs::symlink("dir/", world.path("slash")).unwrap();
    let setup = Setup::of(world.root());
    let outcome = world.check(&setup);
    assert_eq!((outcome.files, outcome.links, outcome.dirs), (1, 4, 2));
    let found = world.sink.flatten(&outcome.root.unwrap());
    assert_eq!(found[b"slash".as_bstr()], ('l', b"dir/".to_vec()));
    world.check_unchanged(&setup);
    // A known directory becomes a link to somewhere with the same names.
    fs::rename(world.path("dir"), world.path("moved")).unwrap();
    std::os::unix::fs::symlink("moved", world.path("dir")).unwrap();
    let outcome = world.check(&setup);
    assert_eq!((outcome.files, outcome.links), (1, 5));
}

#[test]
fn few_open_files() {
    let world = World::new();
    make_deep(world.root(), "directory-in-directory", 1000);
    for i in 0..300 {
        world.write(&format!("wide/d{i}/sub/file"), format!("{i}"));
    }
    in_child("hostile::child_with_few_open_files", &world, &[]);
    remove_deep(world.root(), "directory-in-directory");
}

#[test]
#[ignore = "run by few_open_files in a process of its own"]
fn child_with_few_open_files() {
    let Some(root) = child_root() else { return };
    for limit in [256, 64, 32] {
        let limits = rustix::process::Rlimit { current: Some(limit), maximum: Some(256) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
        for threads in [1, 4] {
            let sink = Memory::default();
            let setup = Setup { threads, ..Setup::of(&root) };
            let outcome = setup.scan(&root, None, &sink);
            assert_eq!((outcome.files, outcome.skips.as_slice()), (311, &[][..]), "{limit} {threads}");
        }
    }
}

#[test]
fn as_somebody_without_rights() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    fs::set_permissions(world.root(), fs::Permissions::from_mode(0o755)).unwrap();
    world.write("open/file", "x");
    world.write("closed/file", "x");
    world.write("unlisted/file", "x");
    world.write("unsearchable/file", "x");
    world.write("unreadable", "x");
    let mode =
        |path: &str, mode| fs::set_permissions(world.path(path), fs::Permissions::from_mode(mode)).unwrap();
    mode("closed", 0o700);
    mode("unlisted", 0o711);
    mode("unsearchable", 0o744);
    mode("unreadable", 0o600);
    in_child("hostile::child_without_rights", &world, &[]);
    world.write("open/.gitignore", "*");
    mode("open/.gitignore", 0o600);
    in_child("hostile::child_without_rules", &world, &[]);
}

fn give_up_rights() {
    use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
    let gid = rustix::process::Gid::from_raw(65534);
    let uid = rustix::process::Uid::from_raw(65534);
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

#[test]
#[ignore = "run by as_somebody_without_rights in a process of its own"]
fn child_without_rights() {
    let Some(root) = child_root() else { return };
    // Threads of the scan inherit from this one.
    give_up_rights();
    for threads in [1, 3] {
        let setup = Setup { threads, ..Setup::of(&root) };
        let sink = Memory::default();
        let outcome = setup.scan(&root, None, &sink);
        assert_eq!(
            paths(&outcome.skips),
            [
                ("closed".into(), "unreadable"),
                ("unlisted".into(), "unreadable"),
                ("unreadable".into(), "unreadable"),
                ("unsearchable/file".into(), "unreadable"),
            ]
        );
        assert!(outcome.skips.iter().all(|s| s.detail.as_deref() == Some("Permission denied")));
        assert!(outcome.skips[0].is_dir && !outcome.skips[2].is_dir);
        assert_eq!(outcome.files, 1);
        let found = setup.find(&root, &["closed/file", "unreadable", "open/file"], None, &sink);
        assert!(matches!(&found[0].what, FoundWhat::Skip(s) if s.reason == Reason::Unreadable));
        assert!(matches!(&found[1].what, FoundWhat::Skip(s) if s.reason == Reason::Unreadable));
        assert!(matches!(&found[2].what, FoundWhat::Leaf { .. }));
    }
}

#[test]
#[ignore = "run by as_somebody_without_rights in a process of its own"]
fn child_without_rules() {
    let Some(root) = child_root() else { return };
    give_up_rights();
    let failed = Setup::of(&root).try_scan(&root, None, &Memory::default());
    assert!(
        matches!(&failed, Err(ScanError::Rules { path, what }) if path.ends_with("open/.gitignore") && what == "Permission denied"),
        "{failed:?}"
    );
}

#[test]
fn a_root_that_is_none() {
    let world = World::new();
    world.write("file", "x");
    let setup = Setup::of(world.root());
    for path in ["nowhere", "file"] {
        let failed = setup.try_scan(&world.path(path), None, &world.sink);
        assert!(matches!(failed, Err(ScanError::Io { .. })), "{path}");
    }
    assert!(bare_walk(&world.path("nowhere"), 1).is_err());
}

#[test]
fn a_tree_that_changes_under_the_walk() {
    let world = World::new();
    for i in 0..400 {
        world.write(&format!("d{}/e{}/f{i}", i % 10, i % 7), "x".repeat(i));
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(3);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (a, b) = (dice.roll(10), dice.roll(10));
                let _ = fs::rename(world.path(&format!("d{a}")), world.path(&format!("d{b}x")));
                let _ = fs::rename(world.path(&format!("d{b}x")), world.path(&format!("d{a}")));
                let path = world.path(&format!("d{a}/e{}", b % 7));
                let _ = fs::remove_dir_all(&path);
                let _ = fs::write(&path, "a file now");
                let _ = fs::remove_file(&path);
                let _ = std::os::unix::fs::symlink("/", &path);
                let _ = fs::remove_file(&path);
                let _ = fs::create_dir(&path);
                let _ = fs::write(path.join("new"), "x");
            }
        });
        for threads in [1, 2, 4, 2, 1, 3, 2, 2] {
            let setup = Setup { threads, ..Setup::of(world.root()) };
            world.scan(&setup);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // Whatever it saw then, at rest it sees what is there.
    world.check(&Setup::of(world.root()));
}

#[test]
fn r62_a_slow_file_system_gets_many_threads() {
    /// Each look at it takes a millisecond.
    struct Slow(std::sync::atomic::AtomicU64);
    impl Clock for Slow {
        fn now_ns(&self) -> i128 {
            let calls = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            SystemClock.now_ns() + 3_600_000_000_000 + i128::from(calls) * 1_000_000
        }
    }
    let world = World::new();
    for i in 0..100 {
        world.write(&format!("d{i}/e/file"), format!("{i}"));
    }
    let setup = Setup::of(world.root());
    let slow = Memory::default();
    let outcome = scan_at(world.root(), None, &slow, &setup.options(), &Slow(Default::default())).unwrap();
    assert_eq!(outcome.root, world.scan(&setup).root);
    let threads = |sink: &Memory| sink.scratches.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((threads(&slow), threads(&world.sink)), (32, 2));
}

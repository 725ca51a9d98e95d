//! Folders too wide to be covered whole: a home.

use std::{collections::BTreeSet, fs, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use backstitch_testkit::Cli;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use serde_json::Value;

use crate::support::World;

/// Counts directories that are listed.
struct Listings(OwnedFd);

impl Listings {
    fn of(top: &Path) -> Listings {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&fd, top, WatchFlags::ACCESS).unwrap();
        for e in fs::read_dir(top).unwrap() {
            let path = e.unwrap().path();
            if path.is_dir() {
                inotify::add_watch(&fd, &path, WatchFlags::ACCESS).unwrap();
            }
        }
        let l = Listings(fd);
        l.so_far();
        l
    }

    /// How many directories were listed since the last call.
    fn so_far(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut seen = BTreeSet::new();
        while let Ok(event) = reader.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            // One with a name is told to the folder above.
            if event.events().contains(ReadFlags::ISDIR) && event.file_name().is_none() {
                seen.insert(event.wd());
            }
        }
        seen.len()
    }
}

/// 200,000 files, as in the home that filled a disk elsewhere: bounded by what is listed, not by the clock.
#[test]
fn r42_r56_a_home_of_two_hundred_thousand_files_is_never_walked() {
    const DIRS: usize = 400;
    const FILES: usize = 500;
    // In memory where that is possible: after many deletions some file systems make new files slowly.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let home = dir.path().canonicalize().unwrap();
    let cli = Cli::with_home(env!("CARGO_BIN_EXE_backstitch"), &home).unwrap();
    let heap = home.join("heap");
    std::thread::scope(|s| {
        for half in 0..2 {
            let heap = &heap;
            s.spawn(move || {
                for d in (half..DIRS).step_by(2) {
                    let dir = heap.join(format!("d{d}"));
                    fs::create_dir_all(&dir).unwrap();
                    for f in 0..FILES {
                        fs::File::create(dir.join(format!("f{f}"))).unwrap();
                    }
                    fs::write(dir.join("f0"), "not empty").unwrap();
                }
            });
        }
    });
    fs::write(heap.join("d3/f3"), "0").unwrap();
    fs::File::create(heap.join("image")).unwrap().set_len(5 << 30).unwrap();
    let run = |code: i32, args: &[&str]| -> Value { cli.json(&home, args).unwrap().expect(code).unwrap() };
    let listings = Listings::of(&heap);
    fs::read_dir(heap.join("d7")).unwrap().for_each(drop);
    assert_eq!(listings.so_far(), 1, "a listing is seen");

    // Said before it is needed, after a look at 20,000 entries at most.
    let v = run(0, &["status"]);
    assert_eq!((&v["scope"], &v["exists"]), (&"touched".into(), &false.into()));
    let first = &v["not_covered"][0];
    assert_eq!((&first["path"], &first["reason"]), (&"heap".into(), &"scope".into()), "{v:#}");
    assert!(
        first["bytes"].as_u64().unwrap() > 0 && first["setting"].as_str().unwrap().contains("heap"),
        "{v:#}"
    );
    assert_eq!(first["at_least"], true);
    let listed = listings.so_far();
    assert!((1..=20_000 / FILES + 2).contains(&listed), "{listed} of {DIRS} folders were listed");

    // Six sessions, each with two turns.
    for s in 0..6 {
        let session = format!("s{s}");
        for n in 1..=2 {
            let (key, call) = (format!("k{n}"), format!("c{n}"));
            let v = run(3, &["turn", "begin", "--session", &session, "--key", &key]);
            assert_eq!(v["checkpoint"]["scope"], "touched");
            run(0, &["tool", "before", "--session", &session, "--call", &call, "heap/d3/f3"]);
            fs::write(heap.join("d3/f3"), format!("{s}.{n}")).unwrap();
            run(0, &["tool", "after", "--session", &session, "--call", &call]);
            run(3, &["turn", "end", "--session", &session]);
        }
    }
    let last = ["--session", "s5"];
    let v = run(0, &[&["rewind", "2"][..], &last].concat());
    assert_eq!(v["items"].as_array().unwrap().len(), 1, "{v:#}");
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "5.1");
    run(0, &["undo"]);
    // What the row of a turn does not cover, the first touch after it knows.
    run(0, &[&["restore", "prompt:1"][..], &last].concat());
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "4.2");
    run(0, &["undo"]);
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "5.2");
    assert_eq!(listings.so_far(), 0, "nothing of it was walked");

    let v = run(3, &["checkpoint"]);
    assert!(v["warnings"][0].as_str().unwrap().contains("only named files"), "{v:#}");
    assert_eq!(listings.so_far(), 0);
    let used = run(0, &["status"])["used_bytes"].as_u64().unwrap();
    assert!(used < 1 << 20, "{used}");

    // An ordinary project in it is covered whole, whatever a shell does.
    let project = home.join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("a"), "1").unwrap();
    let run = |code: i32, args: &[&str]| cli.json(&project, args).unwrap().expect(code).unwrap();
    run(0, &["turn", "begin", "--session", "p"]);
    fs::write(project.join("a"), "2").unwrap();
    fs::write(project.join("b"), "2").unwrap();
    run(0, &["turn", "end", "--session", "p"]);
    run(0, &["rewind", "1", "--session", "p"]);
    assert_eq!(fs::read_to_string(project.join("a")).unwrap(), "1");
    assert!(!project.join("b").exists());
}

#[test]
fn a_folder_over_the_limit_is_walked_once() {
    let mut w = World::new();
    for d in 0..4 {
        for f in 0..25 {
            w.write(&format!("heap/d{d}/f{f}"), "0");
        }
    }
    w.cli.env("BACKSTITCH_LIMITS_ENTRIES", "50");
    let v = w.json_with(3, &["turn", "begin", "--session", "s"]);
    assert_eq!(v["checkpoint"]["scope"], "touched");
    let listings = Listings::of(&w.path("heap"));
    w.json(&["tool", "before", "--session", "s", "--call", "c", "heap/d0/f0"]);
    w.write("heap/d0/f0", "agent");
    w.json(&["tool", "after", "--session", "s", "--call", "c"]);
    w.json_with(3, &["turn", "end", "--session", "s"]);
    w.json(&["rewind", "1"]);
    assert_eq!(w.read("heap/d0/f0"), "0");
    assert_eq!(listings.so_far(), 0, "it was known to be too wide");
    // A person may have made it smaller.
    w.json_with(3, &["checkpoint"]);
    assert!(listings.so_far() > 0);
}

//! Folders too wide to be covered whole: a home.

use std::{fs, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

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

    fn so_far(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut n = 0;
        while let Ok(event) = reader.next() {
            n += usize::from(event.events().contains(ReadFlags::ISDIR));
        }
        n
    }
}

#[test]
fn r42_a_home_is_never_walked() {
    let w = World::new();
    let home = w.cli.home().to_owned();
    let heap = home.join("heap");
    for d in 0..40 {
        let dir = heap.join(format!("d{d}"));
        fs::create_dir_all(&dir).unwrap();
        for f in 0..25 {
            fs::write(dir.join(format!("f{f}")), "0").unwrap();
        }
    }
    fs::write(home.join("small"), "0").unwrap();
    let run = |code: i32, args: &[&str]| -> Value { w.cli.json(&home, args).unwrap().expect(code).unwrap() };
    let listings = Listings::of(&heap);
    fs::read_dir(heap.join("d7")).unwrap().for_each(drop);
    assert!(listings.so_far() > 0, "a listing is seen");

    // Said before it is needed.
    let v = run(0, &["status"]);
    assert_eq!((&v["scope"], &v["exists"]), (&"touched".into(), &false.into()));
    let first = &v["not_covered"][0];
    assert_eq!((&first["path"], &first["reason"]), (&"heap".into(), &"scope".into()), "{v:#}");
    assert!(
        first["bytes"].as_u64().unwrap() > 0 && first["setting"].as_str().unwrap().contains("heap"),
        "{v:#}"
    );
    listings.so_far();

    for n in 1..=2 {
        let v = run(3, &["turn", "begin", "--session", "s", "--key", &format!("k{n}")]);
        assert_eq!(v["checkpoint"]["scope"], "touched");
        let file = heap.join("d3/f3");
        run(0, &["tool", "before", "--session", "s", "--call", &format!("c{n}"), "heap/d3/f3"]);
        fs::write(&file, n.to_string()).unwrap();
        run(0, &["tool", "after", "--session", "s", "--call", &format!("c{n}")]);
        run(3, &["turn", "end", "--session", "s"]);
    }
    let v = run(0, &["rewind", "2"]);
    assert_eq!(v["items"].as_array().unwrap().len(), 1, "{v:#}");
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "1");
    run(0, &["undo"]);
    // What the row of a turn does not cover, the first touch after it knows.
    run(0, &["restore", "prompt:1", "--session", "s"]);
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "0");
    run(0, &["undo"]);
    assert_eq!(fs::read_to_string(heap.join("d3/f3")).unwrap(), "2");
    assert_eq!(listings.so_far(), 0, "nothing of it was walked");

    let v = run(3, &["checkpoint"]);
    assert!(v["warnings"][0].as_str().unwrap().contains("only named files"), "{v:#}");
    assert_eq!(listings.so_far(), 0);
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

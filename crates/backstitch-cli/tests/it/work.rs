//! Work is bounded by what changed: counted by what the system is asked for, not by the clock.

use std::{collections::BTreeSet, fs, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use backstitch_testkit::privilege::has_program;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::support::World;

/// Names of the files that were opened in some folders.
struct Opens(OwnedFd);

impl Opens {
    fn of<'a>(dirs: impl Iterator<Item = &'a Path>) -> Opens {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        for dir in dirs {
            inotify::add_watch(&fd, dir, WatchFlags::OPEN).unwrap();
        }
        Opens(fd)
    }

    fn so_far(&self) -> BTreeSet<String> {
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut seen = BTreeSet::new();
        while let Ok(event) = reader.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            let name = event.file_name().and_then(|n| n.to_str().ok()).unwrap_or_default();
            // Files without a name are shown by their number.
            if !event.events().contains(ReadFlags::ISDIR) && !name.is_empty() && !name.starts_with('#') {
                seen.insert(name.to_owned());
            }
        }
        seen
    }
}

#[test]
fn r65_a_restore_opens_what_changed_and_nothing_else() {
    const DIRS: usize = 30;
    let w = World::new();
    let dir = |d: usize| w.path(&format!("tree/d{d}"));
    for d in 0..DIRS {
        fs::create_dir_all(dir(d)).unwrap();
        for f in 0..100 {
            fs::write(dir(d).join(format!("{d}-{f}")), format!("{d} {f}")).unwrap();
        }
    }
    w.save(&[]);
    // Of age, so that nothing has to be read again because of its youth.
    let id = w.save(&[]);
    let change = |text: &str| {
        let mut names = BTreeSet::new();
        for d in 0..10 {
            for f in 0..10 {
                let name = format!("{d}-{f}");
                fs::write(dir(d).join(&name), text).unwrap();
                names.insert(name);
            }
        }
        names
    };
    let paths: Vec<_> = (0..DIRS).map(dir).collect();
    let opens = Opens::of(paths.iter().map(|p| p.as_path()));
    for round in 0..2 {
        let changed = change("agent");
        opens.so_far();
        let v = w.json(&["restore", &id]);
        assert_eq!(v["items"].as_array().unwrap().len(), 100);
        let opened = opens.so_far();
        let others: Vec<&String> =
            opened.iter().filter(|n| !n.starts_with(".backstitch") && !changed.contains(*n)).collect();
        assert!(others.is_empty() && opened.len() >= 100, "round {round}: {others:?}");
        // The same with a longer history.
        for n in 0..10 {
            w.write("a.txt", n.to_string());
            w.save(&[]);
        }
        w.json(&["restore", &id, "--", "a.txt"]);
    }
}

#[test]
fn r68_a_step_starts_no_process() {
    backstitch_testkit::require!(has_program("strace"), "needs strace");
    let (mut w, _) = World::recorded();
    let log = w.top.join("calls");
    let path = log.to_str().unwrap().to_owned();
    let calls = "trace=execve,execveat,fork,vfork";
    w.cli.wrap(["strace", "-f", "-qq", "-o", &path, "-e", calls, "--"]);
    for n in 0..10 {
        let session = format!("s{n}");
        for step in [
            &["turn", "begin"][..],
            &["tool", "before", "--call", "c"],
            &["tool", "after", "--call", "c"],
            &["turn", "end"],
        ] {
            let run = w.cli.json(&w.ws, [step, &["--session", &session]].concat()).unwrap();
            run.ok().unwrap();
            let seen = fs::read_to_string(&log).unwrap();
            if !seen.contains("execve") {
                return backstitch_testkit::skip::skip("r68", "strace cannot trace here");
            }
            // The program itself, and nothing that it starts.
            let lines: Vec<&str> =
                seen.lines().filter(|l| !l.contains("+++") && !l.contains("---")).collect();
            assert_eq!(lines.len(), 1, "{step:?}: {lines:?}");
        }
    }
}

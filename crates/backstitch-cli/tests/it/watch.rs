//! The watcher: a capture is the same with one, without one, and with one that lies or dies.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::mpsc,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::World;

/// Chance that can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

fn world() -> World {
    let w = World::new();
    for d in 0..6 {
        for f in 0..5 {
            w.write(&format!("d{d}/e{}/f{f}.txt", f % 2), format!("{d} {f}"));
        }
    }
    w.write("d0/.gitignore", "*.out\n");
    w.write("d0/left.out", vec![b'x'; 3 << 20]);
    w.save(&[]);
    w
}

fn state(w: &World) -> PathBuf {
    PathBuf::from(w.json(&["status"])["store"].as_str().unwrap()).join("state")
}

fn start(w: &World) -> Pid {
    let v = w.json(&["watch", "start"]);
    assert_eq!(v["watcher"]["running"], true, "{v}");
    Pid::from_raw(v["watcher"]["pid"].as_i64().unwrap() as i32).unwrap()
}

/// The newest row holds what reading everything finds.
fn is_right(w: &World, what: &str) {
    let v = w.json(&["checkpoint", "--if-changed", "--paranoid"]);
    assert_eq!(v["checkpoint"], Value::Null, "{what}: {v:#}");
}

/// Files that a capture opened, and calls that asked the system about one.
fn cost(w: &mut World) -> usize {
    let trace = w.top.join("trace");
    w.cli.wrap([
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=openat,newfstatat,statx,getdents64",
        "-o",
        trace.to_str().unwrap(),
        "--",
    ]);
    w.json(&["checkpoint"]);
    w.cli.wrap([] as [&str; 0]);
    let text = fs::read_to_string(&trace).unwrap();
    text.lines().filter(|l| l.contains("/d") || l.contains("\"f") || l.contains("\"e")).count()
}

/// One change of a kind that a person, a tool or an agent makes.
fn disturb(w: &World, dice: &mut Dice, n: usize) {
    let dir = format!("d{}/e{}", dice.roll(6), dice.roll(2));
    let file = format!("{dir}/f{}.txt", dice.roll(5));
    let there = |p: &str| w.path(p).symlink_metadata().is_ok_and(|m| !m.is_dir());
    match dice.roll(14) {
        0 | 1 => w.write(&format!("{dir}/new{n}.txt"), format!("new {n}")),
        2 | 3 if there(&file) => w.write(&file, format!("changed {n}")),
        // The same size.
        4 if there(&file) => w.write(&file, format!("{n:03}")),
        5 if there(&file) => fs::remove_file(w.path(&file)).unwrap(),
        6 if there(&file) => w.chmod(&file, [0o644, 0o600, 0o755][n % 3]),
        7 => drop(fs::rename(w.path(&dir), w.path(&format!("d{}/moved{n}", dice.roll(6))))),
        8 => drop(fs::remove_dir_all(w.path(&dir))),
        9 => fs::create_dir_all(w.path(&format!("{dir}/deep{n}/er"))).unwrap(),
        10 if there(&file) => fs::hard_link(w.path(&file), w.path(&format!("link{n}"))).unwrap(),
        11 => fs::write(w.path("d0/.gitignore"), format!("*.out\nnew{n}*\n")).unwrap(),
        12 => drop(std::os::unix::fs::symlink("a.txt", w.path(&format!("d{}/symlink{n}", dice.roll(6))))),
        13 => {
            // Two directories change places.
            let (a, b) = (w.path(&format!("d{}", dice.roll(6))), w.path(&format!("d{}", dice.roll(6))));
            let aside = w.top.join("aside");
            if a != b && a.exists() && b.exists() {
                fs::rename(&a, &aside).unwrap();
                fs::rename(&b, &a).unwrap();
                fs::rename(&aside, &b).unwrap();
            }
        }
        _ => w.write("a.txt", format!("at the top {n}")),
    }
}

#[test]
fn sem_33_a_capture_with_a_watcher_sees_what_one_without_sees() {
    for seed in [3, 20, 77, 411] {
        let (w, mut dice) = (world(), Dice(seed));
        start(&w);
        for n in 0..14 {
            for k in 0..dice.roll(4) {
                disturb(&w, &mut dice, n * 10 + k);
            }
            w.run(&["checkpoint"]);
            // Through the short cut once more: what was quiet stays so.
            if dice.roll(2) == 0 {
                is_right(&w, &format!("seed {seed}, round {n}"));
            }
        }
        is_right(&w, &format!("seed {seed}"));
        let v = w.json(&["watch", "status"]);
        assert_eq!((&v["watcher"]["running"], &v["watcher"]["reason"]), (&true.into(), &Value::Null), "{v}");
    }
}

#[test]
fn what_is_quiet_is_not_asked_about() {
    let mut w = world();
    start(&w);
    // Everything once more, and once more where it was not watched yet.
    for _ in 0..3 {
        w.save(&[]);
    }
    let quiet = cost(&mut w);
    w.write("d3/e1/f1.txt", "changed");
    let one = cost(&mut w);
    w.json(&["watch", "stop"]);
    let all = cost(&mut w);
    assert!(quiet < 8 && one < 30 && all > 40, "{quiet} {one} {all}");
    is_right(&w, "after all");
}

#[test]
fn a_watcher_that_dies_or_hangs_is_done_without() {
    let w = world();
    let watcher = start(&w);
    w.save(&[]);
    kill_process(watcher, Signal::STOP).unwrap();
    w.write("d1/e1/f1.txt", "while it hangs");
    w.save(&[]);
    is_right(&w, "it hangs");
    kill_process(watcher, Signal::CONT).unwrap();
    w.write("d2/e1/f1.txt", "it goes on");
    w.save(&[]);
    is_right(&w, "it goes on");
    kill_process(watcher, Signal::KILL).unwrap();
    w.write("d3/e1/f1.txt", "it is dead");
    w.save(&[]);
    is_right(&w, "it is dead");
    // Another one takes over its socket, and knows that it knows nothing.
    w.write("d4/e1/f1.txt", "nobody watches");
    let next = start(&w);
    assert_ne!(next, watcher);
    w.save(&[]);
    is_right(&w, "another one");
    assert_eq!(w.json(&["watch", "stop"])["watcher"]["running"], false);
    assert_eq!(w.json(&["watch", "stop"])["watcher"]["running"], false, "twice");
}

#[test]
fn a_large_workspace_gets_a_watcher_by_itself_and_another_when_that_was_killed() {
    let mut w = world();
    let running = |w: &World| w.json(&["watch", "status"])["watcher"]["running"] == true;
    assert!(!running(&w), "31 files are not large");
    w.cli.env("BACKSTITCH_WATCH_FROM", "10");
    w.cli.env("BACKSTITCH_WATCH", "off");
    w.save(&[]);
    assert!(!running(&w), "switched off");
    w.cli.env("BACKSTITCH_WATCH", "auto");
    w.save(&[]);
    assert!(running(&w));
    let pid = w.json(&["watch", "status"])["watcher"]["pid"].as_i64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    // Whether or not the system has buried it by now.
    while !running(&w) {
        w.save(&[]);
    }
    assert_ne!(w.json(&["watch", "status"])["watcher"]["pid"].as_i64(), Some(pid.into()));
}

#[test]
fn more_events_than_the_queue_holds() {
    let w = world();
    let watcher = start(&w);
    w.save(&[]);
    w.save(&[]);
    let most: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    kill_process(watcher, Signal::STOP).unwrap();
    // No two events in a row are equal, or they would count as one.
    let (a, b) = (w.path("d1/x"), w.path("d1/y"));
    fs::write(&a, "x").unwrap();
    for _ in 0..most / 4 + 100 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    w.write("d5/e1/f1.txt", "lost");
    kill_process(watcher, Signal::CONT).unwrap();
    w.save(&[]);
    is_right(&w, "overflow");
    w.write("d5/e1/f1.txt", "seen");
    w.save(&[]);
    is_right(&w, "after it");
}

/// Stands in for a watcher; answers each question by `answer`.
fn pretend(w: &World, answer: impl Fn(&Value) -> Option<Value> + Send + 'static) -> mpsc::Receiver<Value> {
    let socket = state(w).join("watch.sock");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let (send, heard) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let asked: Value = serde_json::from_str(&line).unwrap();
            if let Some(said) = answer(&asked) {
                let _ = writeln!(stream, "{said}");
            }
            if send.send(asked).is_err() {
                return;
            }
        }
    });
    heard
}

#[test]
fn answers_that_make_no_sense_are_not_believed() {
    let w = world();
    let nothing = |instance: &str, epoch: u64| json!({"noise": {"token": {"instance": instance, "epoch": epoch}, "noise": []}});
    type Answer = Box<dyn Fn(&Value) -> Option<Value> + Send>;
    let answers: Vec<(&str, Answer)> = vec![
        ("silence", Box::new(|_| None)),
        ("garbage", Box::new(|_| Some(json!("nothing happened")))),
        (
            "another kind",
            Box::new(|_| Some(json!({"status": {"pid": 1, "directories": 1, "since_ms": 1, "noisy": 0}}))),
        ),
        ("another life", Box::new(move |_| Some(nothing("other", 9)))),
        (
            "an epoch that was",
            Box::new(move |q| {
                let instance = q["since"]["instance"].as_str().unwrap_or("first").to_owned();
                Some(nothing(&instance, 1))
            }),
        ),
        (
            "a path that is none",
            Box::new(|q| {
                let instance = q["since"]["instance"].as_str().unwrap_or("first").to_owned();
                let epoch = q["since"]["epoch"].as_u64().unwrap_or(0) + 1;
                Some(
                    json!({"noise": {"token": {"instance": instance, "epoch": epoch}, "noise": [["%zz", false]]}}),
                )
            }),
        ),
    ];
    for (what, answer) in answers {
        let heard = pretend(&w, answer);
        for n in 0..3 {
            w.write("d2/e0/f2.txt", format!("{what} {n}"));
            w.save(&[]);
            is_right(&w, what);
        }
        assert!(heard.try_iter().count() >= 3, "{what}: it was asked");
    }
}

#[test]
fn a_watcher_that_misses_something_is_found_out() {
    let w = world();
    let epoch = std::sync::atomic::AtomicU64::new(1);
    let heard = pretend(&w, move |q| {
        let at = epoch.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        q.get("since").map(|_| json!({"noise": {"token": {"instance": "liar", "epoch": at}, "noise": []}}))
    });
    w.save(&[]);
    w.write("d2/e0/f2.txt", "missed");
    // Nothing shows it before the next proof: that is what reading everything is for.
    w.save(&[]);
    w.json(&["checkpoint", "--paranoid"]);
    is_right(&w, "by reading");
    drop(heard);
    // The proof is due as soon as the table does not say when the last one was.
    let v = w.json(&["watch", "status"]);
    assert_eq!(v["watcher"]["running"], false);
    assert!(v["watcher"]["reason"].as_str().is_some_and(|r| r.contains("d2/e0")), "{v}");
    // Until a person starts one again, nobody is asked.
    w.write("d3/e0/f2.txt", "seen");
    w.save(&[]);
    is_right(&w, "without it");
    start(&w);
    assert_eq!(w.json(&["watch", "status"])["watcher"]["reason"], Value::Null);
}

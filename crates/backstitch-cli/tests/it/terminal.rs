//! Questions, on a terminal.

use backstitch_testkit::Compare;
use rustix::process::{Pid, Signal, kill_process};

use crate::{pty::Session, support::World};

const QUESTION: &str = "Carry out this plan? [y/N] ";

#[test]
fn no_changes_nothing() {
    for answer in ["n\n", "\n", "yesterday\n", "\u{4}"] {
        let (w, id) = World::changed();
        let before = w.tree();
        let rows = w.json(&["list"]);
        let mut s = Session::start(&w, &["restore", &id]);
        assert!(s.until(Some(QUESTION)).contains("overwrite"));
        s.answer(answer);
        let (code, seen) = s.end();
        assert_eq!(code, Some(130), "{seen}");
        assert!(seen.contains("not confirmed; nothing was changed."), "{seen}");
        before.assert_same(&w.tree(), &Compare::untouched(), "the folder");
        assert_eq!(w.json(&["list"]), rows);
    }
}

#[test]
fn yes_goes_on() {
    for answer in ["y\n", "yes\n", " YES \n"] {
        let (w, id) = World::changed();
        let mut s = Session::start(&w, &["restore", &id]);
        s.until(Some(QUESTION));
        s.answer(answer);
        let (code, seen) = s.end();
        assert_eq!(code, Some(0), "{seen}");
        assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
        assert!(seen.contains("take it back: backstitch undo"), "{seen}");
    }
}

#[test]
fn the_plan_that_was_shown_is_the_plan_that_is_carried_out() {
    let (w, id) = World::changed();
    let mut s = Session::start(&w, &["restore", &id]);
    s.until(Some(QUESTION));
    w.write("a.txt", "changed while the question stood\n");
    s.answer("y\n");
    let (code, seen) = s.end();
    assert_eq!(code, Some(5), "{seen}");
    assert_eq!(w.read("a.txt"), "changed while the question stood\n");
    assert!(w.exists("new.txt"), "nothing at all was changed");
}

#[test]
fn a_signal_ends_the_question() {
    for signal in [Signal::INT, Signal::TERM] {
        let (w, id) = World::changed();
        let before = w.tree();
        let mut s = Session::start(&w, &["restore", &id]);
        s.until(Some(QUESTION));
        kill_process(Pid::from_child(&s.child), signal).unwrap();
        let (code, seen) = s.end();
        assert_eq!(code, Some(130), "{seen}");
        before.assert_same(&w.tree(), &Compare::untouched(), "the folder");
    }
}

#[test]
fn a_signal_ends_the_reading_of_a_prompt() {
    let w = World::new();
    let mut s = Session::start(&w, &["checkpoint", "--prompt-file", "-"]);
    // The handler is in place once the kernel says so.
    let status = format!("/proc/{}/status", s.child.id());
    backstitch_testkit::require!(std::path::Path::new(&status).exists(), "needs /proc");
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0) & (1 << (Signal::TERM.as_raw() - 1)) != 0
    };
    while !caught() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&s.child), Signal::TERM).unwrap();
    s.until(Some("interrupted"));
    let (code, seen) = s.end();
    assert_eq!(code, Some(130), "{seen}");
    assert!(!w.cli.store_dir().exists());
}

#[test]
fn nobody_is_asked_without_need() {
    // --yes, --json, a named plan, a plan that destroys nothing, undo.
    let (w, id) = World::changed();
    let plan = w.json(&["restore", &id, "--dry-run"])["plan"].as_str().unwrap().to_owned();
    for args in [
        &["restore", &id, "--yes"][..],
        &["undo"],
        &["--json", "restore", &id],
        &["undo"],
        &["restore", &id, "--plan", &plan],
        &["undo"],
        &["restore", &id, "--", "sub/b.txt"],
    ] {
        let (code, seen) = Session::start(&w, args).end();
        assert_eq!(code, Some(0), "{args:?}\n{seen}");
        assert!(!seen.contains(QUESTION), "{args:?}\n{seen}");
    }
}

/// An undo that would overwrite what was written since, at its question.
fn undo_over_newer_work() -> (World, Session) {
    let (w, id) = World::changed();
    w.json(&["restore", &id]);
    w.write("a.txt", "newer\n");
    let mut s = Session::start(&w, &["undo", "--on-conflict", "overwrite"]);
    s.until(Some(QUESTION));
    (w, s)
}

#[test]
fn undo_asks_before_it_overwrites_newer_work() {
    let (w, mut s) = undo_over_newer_work();
    s.answer("n\n");
    assert_eq!(s.end().0, Some(130));
    assert_eq!(w.read("a.txt"), "newer\n");
    let (code, _) = Session::start(&w, &["undo", "--on-conflict", "overwrite", "--yes"]).end();
    assert_eq!(code, Some(0));
    assert_eq!(w.read("a.txt"), "one\nTWO\nthree\n");
}

#[test]
fn the_undo_that_was_shown_is_the_one_that_is_carried_out() {
    let (w, mut s) = undo_over_newer_work();
    w.write("a.txt", "changed while the question stood\n");
    s.answer("y\n");
    let (code, seen) = s.end();
    assert_eq!(code, Some(5), "{seen}");
    assert_eq!(w.read("a.txt"), "changed while the question stood\n");
}

/// Two turns that each wrote `a.txt`.
pub fn two_turns() -> World {
    let (w, _) = World::recorded();
    let s = crate::sessions::Agent { w: &w, id: "s" };
    for n in 1..=2 {
        s.turn(&format!("k{n}"), "a.txt", &format!("{n}\n"));
    }
    w
}

#[test]
fn rewind_asks_and_is_bound_to_what_was_shown() {
    let w = two_turns();
    let mut s = Session::start(&w, &["rewind", "1"]);
    s.until(Some(QUESTION));
    s.answer("n\n");
    assert_eq!(s.end().0, Some(130));
    assert_eq!(w.read("a.txt"), "2\n");
    let mut s = Session::start(&w, &["rewind", "1"]);
    s.until(Some(QUESTION));
    w.write("a.txt", "meanwhile\n");
    s.answer("y\n");
    assert_eq!(s.end().0, Some(5));
    assert_eq!(w.read("a.txt"), "meanwhile\n");
    w.write("a.txt", "2\n");
    let (code, seen) = Session::start(&w, &["rewind", "1", "--yes"]).end();
    assert!(code == Some(0) && !seen.contains(QUESTION), "{seen}");
}

#[test]
fn a_signal_ends_the_waiting_for_a_lock() {
    let (w, id) = World::changed();
    let store = backstitch_store::Store::open(&w.cli.only_store().unwrap()).unwrap();
    let held = store.lock_shared("workspace", std::time::Duration::ZERO).unwrap();
    let mut s = Session::start(&w, &["restore", &id, "--yes"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let begun = std::time::Instant::now();
    kill_process(Pid::from_child(&s.child), Signal::TERM).unwrap();
    s.until(Some("interrupted"));
    let (code, seen) = s.end();
    assert_eq!(code, Some(130), "{seen}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{seen}");
    drop(held);
}

#[test]
fn colours_on_a_terminal() {
    let (w, _) = World::changed();
    let (_, seen) = Session::start(&w, &["diff"]).end();
    assert!(seen.contains("\x1b["), "{seen}");
    for (key, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (mut plain, _) = World::recorded();
        plain.cli.env(key, value);
        let (_, seen) = Session::start(&plain, &["list"]).end();
        assert!(!seen.contains("\x1b["), "{seen}");
    }
}

#[test]
fn a_signal_in_the_middle_of_a_restore_puts_everything_back() {
    use backstitch_testkit::privilege::has_program;
    backstitch_testkit::require!(has_program("strace"), "needs strace");
    let (mut w, id) = World::recorded();
    for n in 0..30 {
        w.write(&format!("many/{n}"), format!("{n}\n"));
    }
    let full = w.save(&[]);
    w.json(&["restore", &id]);
    let (before, mut ended) = (w.tree(), Vec::new());
    let none: [&str; 0] = [];
    for when in (40..).step_by(12) {
        let inject = format!("inject=openat:signal=SIGTERM:when={when}");
        w.cli.wrap(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", &inject, "--"]);
        let run = w.cli.json(&w.ws, ["restore", &full]).unwrap();
        w.cli.wrap(none);
        if run.code == Some(0) {
            break;
        }
        assert_eq!((run.code, run.error_code().as_deref()), (Some(130), Some("interrupted")), "{run}");
        before.assert_same(&w.tree(), &Compare { root: false, ..Compare::default() }, "the folder");
        assert_eq!(w.json(&["status"])["in_flight"], serde_json::Value::Null);
        ended.push(when);
    }
    if ended.is_empty() {
        backstitch_testkit::skip::skip("signal in a restore", "strace cannot trace here");
    }
}

#[test]
fn hunk_by_hunk() {
    let (w, id) = World::recorded();
    let after = "ONE\ntwo\nthree\n1\n2\n3\n4\nFOUR\n";
    let start = || {
        w.write("a.txt", after);
        w.write("new.txt", "new\n");
        Session::start(&w, &["restore", &id, "--hunks"])
    };
    let mut s = start();
    s.until(Some("(1/2) Restore this hunk [y,n,q,a,d,?]? "));
    s.answer("?\n");
    s.until(Some("leave it as it is"));
    s.answer("n\n");
    s.until(Some("(2/2) Restore this hunk"));
    s.answer("y\n");
    s.until(Some("Restore this path"));
    s.answer("n\n");
    let (code, seen) = s.end();
    assert_eq!(code, Some(0), "{seen}");
    assert_eq!(w.read("a.txt"), "ONE\ntwo\nthree\n");
    assert!(w.exists("new.txt"));
    // All of one path, and no more.
    let mut s = start();
    s.until(Some("(1/2)"));
    s.answer("a\n");
    s.until(Some("Restore this path"));
    s.answer("q\n");
    assert_eq!(s.end().0, Some(0));
    assert_eq!((w.read("a.txt").as_str(), w.exists("new.txt")), ("one\ntwo\nthree\n", true));
    // None.
    let mut s = start();
    s.until(Some("(1/2)"));
    s.answer("d\n");
    s.until(Some("Restore this path"));
    s.answer("\n");
    let (code, seen) = s.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("Nothing was chosen"), "{seen}");
    assert_eq!(w.read("a.txt"), after);
}

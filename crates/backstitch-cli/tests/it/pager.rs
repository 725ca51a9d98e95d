//! Long results on a terminal go through a pager.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::{pty::Session, support::World};

fn paged(by: &str) -> World {
    let (mut w, _) = World::recorded();
    w.write("a.txt", "one\nTWO\nthree\n");
    w.cli.env("BACKSTITCH_PAGER", by);
    w
}

#[test]
fn what_may_be_long_is_paged_and_nothing_else() {
    let w = paged("sed s/^/paged:/");
    for args in [
        &["list"][..],
        &["diff"],
        &["diff", "--patch"],
        &["log", "a.txt"],
        &["blame", "a.txt"],
        &["show", "@"],
    ] {
        let (code, seen) = Session::start(&w, args).end();
        assert_eq!(code, Some(0), "{args:?}\n{seen}");
        assert!(seen.contains("paged:"), "{args:?}\n{seen}");
    }
    for args in
        [&["--no-pager", "list"][..], &["--json", "list"], &["status"], &["restore", "@", "--dry-run"]]
    {
        let (_, seen) = Session::start(&w, args).end();
        assert!(!seen.contains("paged:"), "{args:?}\n{seen}");
    }
    // Into a pipe.
    assert!(!w.text(&["list"]).contains("paged:"));
}

#[test]
fn the_environment_says_which() {
    for (own, others, is_paged) in [
        ("", "sed s/^/paged:/", false),
        ("cat", "sed s/^/paged:/", false),
        ("sed s/^/paged:/ | cat", "cat", true),
    ] {
        let mut w = paged(own);
        w.cli.env("PAGER", others);
        let (_, seen) = Session::start(&w, &["list"]).end();
        assert_eq!(seen.contains("paged:"), is_paged, "{own:?}\n{seen}");
    }
    let mut w = paged("sed s/^/paged:/");
    w.cli.env("TERM", "dumb");
    assert!(!Session::start(&w, &["list"]).end().1.contains("paged:"));
}

#[test]
fn a_pager_that_is_not_there_is_not_missed() {
    let w = paged("no-such-program-is-here --at-all");
    let (code, seen) = Session::start(&w, &["list"]).end();
    assert!(code == Some(0) && seen.contains("manual"), "{seen}");
}

#[test]
fn a_pager_that_ends_early_is_no_error() {
    let w = paged("true");
    for n in 0..3000 {
        w.write(&format!("many/{n}"), "x");
    }
    let (code, seen) = Session::start(&w, &["diff"]).end();
    assert!(code == Some(0) && !seen.contains("error"), "{seen}");
}

#[test]
fn what_is_said_beside_comes_after_the_pager() {
    let w = paged("sed s/^/paged:/");
    let (code, seen) = Session::start(&w, &["log", "nowhere.txt"]).end();
    assert!(code == Some(4) && seen.contains("error:") && !seen.contains("paged:"), "{seen}");
}

#[test]
fn ctrl_c_is_the_pagers_business() {
    let mut w = paged("");
    let go = w.top.join("go");
    let wait = format!("trap '' INT; cat; echo shown; until test -e '{}'; do sleep 0.02; done", go.display());
    w.cli.env("BACKSTITCH_PAGER", wait);
    let mut s = Session::start(&w, &["list"]);
    s.until(Some("shown"));
    for _ in 0..3 {
        kill_process(Pid::from_child(&s.child), Signal::INT).unwrap();
    }
    fs::write(&go, "").unwrap();
    let (code, seen) = s.end();
    assert_eq!(code, Some(0), "{seen}");
}

#[test]
fn words_that_changed_are_set_apart_and_nothing_is_obeyed() {
    let (w, _) = World::recorded();
    w.write("a.txt", "one\ntwo two two two\nthree\n");
    w.save(&[]);
    w.write("a.txt", "one\ntwo two two 2\x1b]0;owned\x07\nthree\n");
    let (_, seen) = Session::start(&w, &["diff", "--patch"]).end();
    assert!(seen.contains("\x1b[31m-two two two \x1b[7mtwo\x1b[27m"), "{seen:?}");
    assert!(!seen.contains("\x1b]0;") && seen.contains("\\u{1b}]0;owned"), "{seen:?}");
    // Who reads it from a pipe gets the bytes.
    let patch = w.text(&["diff", "--patch"]);
    assert!(patch.contains("+two two two 2\x1b]0;owned\x07\n"), "{patch:?}");
}

//! What stays taken back, what stays somebody else's, and plans that say what will be done.

use std::fs;

use backstitch::{
    error::Code,
    operation::Outcome,
    restore, rewind,
    undo::{self, OnConflict},
    workspace::Control,
};

use crate::{
    sessions::Agent,
    support::items,
    world::{World, action},
};

/// The plan is what is then done: the same items, with the same actions and reasons.
fn as_planned(s: &Agent<'_>, to: &str) -> Outcome {
    let plan = s.rewind_with(to, rewind::Options { dry_run: true, ..Default::default() }).unwrap();
    let done = s.rewind(to);
    assert_eq!((items(&plan), plan.plan), (items(&done), done.plan.clone()));
    done
}

#[test]
fn a_rewind_of_a_later_turn_does_not_go_forward_to_it() {
    let w = World::new();
    for f in ["x", "y"] {
        w.write(f, "0");
    }
    let s = Agent { w: &w, id: "s" };
    for n in ["1", "2"] {
        s.begin(n);
        s.shell(n, || ["x", "y"].iter().for_each(|f| w.write(f, n)));
        s.end();
    }
    // Of one path only: the other still is as turn 2 left it.
    let one = rewind::Options { paths: vec!["x".into()], ..Default::default() };
    s.rewind_with("1", one).unwrap();
    let o = as_planned(&s, "2");
    assert_eq!((w.read("x"), w.read("y")), ("0".into(), "1".into()), "{:?}", items(&o));
    assert!(s.rewind("2").operation.is_none(), "it finds it done");
    // Once it is undone, the turns are there again, and so is what a rewind takes back of them.
    w.undo().unwrap();
    w.undo().unwrap();
    s.rewind("2");
    assert_eq!((w.read("x"), w.read("y")), ("1".into(), "1".into()));
    w.undo().unwrap();
    w.redo().unwrap();
    assert!(s.rewind("2").operation.is_none());
    // What comes after it stands on what was left.
    s.rewind("1");
    s.turn("3", "x", "3");
    s.rewind("2");
    assert_eq!(w.read("x"), "0", "before turn 3");
    s.rewind("1");
    assert_eq!((w.read("x"), w.read("y")), ("0".into(), "0".into()));
}

#[test]
fn a_restore_that_goes_forward_again_is_what_the_session_left() {
    let w = World::new();
    w.write("x", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("1", "x", "1");
    s.turn("2", "x", "2");
    let after = w.find("turn:2").unwrap();
    for session in [Some("s".to_owned()), None] {
        s.rewind("1");
        w.restore_with(&after, restore::Options { session, ..Default::default() }).unwrap();
        assert_eq!(w.read("x"), "2");
        s.rewind("2");
        assert_eq!(w.read("x"), "1");
    }
}

#[test]
fn a_rewind_does_not_bring_back_what_a_revert_took() {
    let w = World::new();
    w.write("f", "a\nb\nc\nd\ne\n");
    let s = Agent { w: &w, id: "s" };
    s.turn("1", "f", "a\nB\nc\nd\ne\n");
    s.turn("2", "f", "a\nB\nc\nd\nE\n");
    s.revert("1");
    let o = s.rewind("2");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed"));
    assert_eq!(w.read("f"), "a\nb\nc\nd\nE\n");
    s.rewind_with("2", rewind::Options { on_conflict: OnConflict::Merge, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "a\nb\nc\nd\ne\n");
}

#[test]
fn what_a_person_restored_is_theirs() {
    let w = World::new();
    w.write("f", "seven");
    w.write("g", "0");
    let seven = w.checkpoint();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("1");
    s.shell("1", || ["f", "g"].iter().for_each(|f| w.write(f, "1")));
    s.end();
    let only = restore::Options { paths: vec!["f".into()], ..Default::default() };
    w.restore_with(&seven, only).unwrap();
    let o = as_planned(&s, "1");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed"));
    assert_eq!((w.read("f"), w.read("g")), ("seven".into(), "0".into()));
    // Taken back, it is again what the session left.
    w.undo().unwrap();
    w.undo().unwrap();
    s.rewind("1");
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_plan_knows_what_else_is_in_a_directory() {
    let w = World::new();
    w.write("keep", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("1");
    s.shell("1", || {
        for f in ["d/mine", "e/mine", "f/mine"] {
            w.write(f, "1");
        }
    });
    s.end();
    w.write("d/theirs", "a person's");
    // What stood in it went somewhere else: nothing is left of it here.
    fs::rename(w.path("e/mine"), w.path("moved")).unwrap();
    let o = as_planned(&s, "1");
    assert_eq!(action(&o, "d").as_deref(), Some("keep:not-empty"), "{:?}", items(&o));
    assert_eq!(action(&o, "e").as_deref(), Some("rmdir"), "{:?}", items(&o));
    assert!(w.exists("d/theirs") && !w.exists("d/mine") && !w.exists("e") && !w.exists("f"));
}

#[test]
fn a_directory_that_is_to_be_a_file_again_and_holds_more_stays_whole() {
    let w = World::new();
    w.write("p", "a file");
    let s = Agent { w: &w, id: "s" };
    s.begin("1");
    s.shell("1", || {
        fs::remove_file(w.path("p")).unwrap();
        w.write("p/mine", "1");
    });
    s.end();
    w.write("p/theirs", "a person's");
    let o = as_planned(&s, "1");
    assert_eq!(action(&o, "p/mine").as_deref(), Some("conflict:not-empty"), "{:?}", items(&o));
    assert!(w.exists("p/mine") && w.exists("p/theirs"));
}

#[test]
fn a_file_comes_back_with_the_directory_that_somebody_removed() {
    let w = World::new();
    for f in ["d/e/x", "d/y"] {
        w.write(f, "0");
    }
    w.chmod("d/e", 0o750);
    let s = Agent { w: &w, id: "s" };
    s.begin("1");
    s.shell("1", || fs::remove_file(w.path("d/e/x")).unwrap());
    s.end();
    fs::remove_dir_all(w.path("d")).unwrap();
    let o = as_planned(&s, "1");
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("d/e/x"), "0");
    assert!(!w.exists("d/y"), "nobody's to bring back");
    w.undo().unwrap();
    assert!(!w.exists("d"));
    // Something else stands there: nothing is put below it.
    w.write("d", "a person's file");
    let o = as_planned(&s, "1");
    assert!(o.partial && w.read("d") == "a person's file", "{:?}", items(&o));
}

#[test]
fn a_window_is_open_until_it_is_ended_whatever_else_ran() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.turn("1", "f", "1");
    b.begin("1");
    b.tool(true, "shell", &[]);
    b.write("beside", "g", "1");
    assert_eq!(a.rewind_with("1", rewind::Options::default()).unwrap_err().code, Code::Busy);
    b.tool(false, "shell", &[]);
    a.rewind("1");
    assert_eq!(w.read("f"), "0");
}

#[test]
fn without_a_safety_row_what_no_row_holds_is_kept_by_a_rewind_too() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    s.turn("1", "n", "1");
    w.write("n", "typed since");
    let o = rewind::Options { no_safety: true, on_conflict: OnConflict::Overwrite, ..Default::default() };
    let o = s.rewind_with("1", o).unwrap();
    assert_eq!(action(&o, "n").as_deref(), Some("keep:no-safety"));
    assert_eq!(w.read("n"), "typed since");
}

#[test]
fn a_rewind_and_its_undo_know_a_folder_that_was_replaced() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("1", "f", "1");
    s.rewind("1");
    let replace = |text: &str| {
        let root = w.root();
        fs::rename(&root, root.with_extension(format!("old-{text}"))).unwrap();
        fs::create_dir(&root).unwrap();
        w.write("f", text);
    };
    replace("0");
    let undo =
        |replaced| w.open().undo(&undo::Options { replaced, ..Default::default() }, &Control::default());
    assert_eq!(undo(false).unwrap_err().code, Code::ReplacedWorkspace);
    assert_eq!(w.read("f"), "0");
    undo(true).unwrap();
    assert_eq!(w.read("f"), "1");
    let to = |replaced| s.rewind_with("1", rewind::Options { replaced, ..Default::default() });
    assert_eq!(to(false).unwrap_err().code, Code::ReplacedWorkspace);
    to(true).unwrap();
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_call_that_begins_again_with_other_paths_gets_their_pre_images() {
    let w = World::new();
    w.write(".gitignore", "out/\n");
    for f in ["out/a", "out/b", "out/c"] {
        w.write(f, "0");
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("1");
    let first = s.tool(true, "c", &["out/a"]).checkpoint.unwrap();
    let again = s.tool(true, "c", &["out/a"]).checkpoint.unwrap();
    assert_eq!(first.record.id, again.record.id, "a repeated begin is the same row");
    s.tool(true, "c", &["out/a", "out/b"]);
    ["out/a", "out/b"].iter().for_each(|f| w.write(f, "1"));
    let end = s.tool(false, "c", &[]).checkpoint.unwrap();
    assert_eq!(s.tool(false, "c", &[]).checkpoint.unwrap().record.id, end.record.id);
    // The host gives the same id to another call.
    s.write("c", "out/c", "1");
    s.end();
    let o = s.rewind("1");
    for f in ["out/a", "out/b", "out/c"] {
        assert_eq!(w.read(f), "0", "{f}: {:?}", items(&o));
    }
}

#[test]
fn numbers_of_deleted_turns_are_not_given_out_again() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    for n in ["1", "2"] {
        s.turn(n, "f", n);
    }
    let gone = |turn| {
        let rows = w.open().rows().unwrap();
        let of: Vec<_> = rows.all.iter().filter(|c| c.record.turn >= Some(turn)).collect();
        w.open().delete(&of).unwrap();
    };
    gone(2);
    assert_eq!(s.begin("3").record.turn, Some(3));
    s.end();
    gone(1);
    assert!(w.open().sessions().unwrap().is_empty(), "a session without rows is not listed");
    assert_eq!(s.begin("4").record.turn, Some(4));
}

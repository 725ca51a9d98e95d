//! Whose change it was: windows that follow each other, nest, have no ids or no end.

use std::fs;

use backstitch::{rewind, session::ToolOptions, undo::OnConflict, workspace::Control};
use backstitch_testkit::generate::noise;

use crate::{
    sessions::Agent,
    support::items,
    world::{World, action},
};

/// One end of a window of a host that gives its calls no ids.
fn nameless(w: &World, before: bool) {
    let o = ToolOptions {
        session: "s".into(),
        call: None,
        tool: Some("bash".into()),
        agent: None,
        paths: Vec::new(),
    };
    w.open().tool(before, &o, &Control::default()).unwrap();
}

#[test]
fn windows_one_after_the_other_do_not_overlap() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.begin("a1");
    b.begin("b1");
    b.write("c1", "f", "by b");
    a.shell("c1", || w.write("f", "by a"));
    a.end();
    b.end();
    let o = a.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("overwrite"), "{:?}", items(&o));
    assert_eq!(w.read("f"), "by b");
}

#[test]
fn calls_without_ids_are_paired_in_their_order() {
    let w = World::new();
    for f in ["x", "y", "z"] {
        w.write(f, "0");
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    // An end whose beginning was missed.
    nameless(&w, false);
    nameless(&w, true);
    nameless(&w, true);
    w.write("x", "1");
    nameless(&w, false);
    w.write("y", "1");
    nameless(&w, false);
    w.write("z", "typed after the last of them");
    s.end();
    let o = s.rewind("1");
    assert_eq!((w.read("x"), w.read("y")), ("0".into(), "0".into()), "{:?}", items(&o));
    assert_eq!(action(&o, "z").as_deref(), Some("skip:unattributed"));
}

#[test]
fn a_window_without_an_end_lasts_to_the_next_look_at_everything() {
    let w = World::new();
    for f in ["victim", "other"] {
        w.write(f, "0");
    }
    let (s, b) = (Agent { w: &w, id: "s" }, Agent { w: &w, id: "b" });
    s.begin("k1");
    s.tool(true, "c1", &[]);
    fs::remove_file(w.path("victim")).unwrap();
    // The host dies. Rows that look at one file only say nothing of the rest.
    b.tool(true, "b1", &["other"]);
    b.tool(false, "b1", &["other"]);
    s.begin("k2");
    s.end();
    let o = s.rewind("1");
    assert_eq!(w.read("victim"), "0", "{:?}", items(&o));
}

#[test]
fn a_turn_without_windows_and_without_an_end() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    w.write("f", "1");
    // The host dies; its next turn ends this one, with a row that is a copy of an earlier look.
    s.begin("k2");
    s.end();
    let o = s.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("skip:unattributed"), "{:?}", items(&o));
    s.rewind_with("1", rewind::Options { include_unattributed: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_window_of_another_session_without_an_end_explains_nothing() {
    let w = World::new();
    w.write("f", "0");
    w.write("mine", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    b.begin("b1");
    b.tool(true, "c1", &[]);
    a.begin("a1");
    a.write("c1", "f", "1");
    w.write("mine", "typed");
    a.end();
    let o = a.rewind_with("1", rewind::Options { force: true, ..Default::default() }).unwrap();
    assert_eq!(action(&o, "mine").as_deref(), Some("skip:unattributed"), "{:?}", items(&o));
    assert_eq!((w.read("f"), w.read("mine")), ("0".into(), "typed".into()));
}

#[test]
fn what_a_restore_put_there_over_a_hand_edit_is_not_the_sessions() {
    let w = World::new();
    w.write("f", "5");
    let five = w.checkpoint();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1");
    w.write("f", "2");
    w.restore(&five);
    let o = s.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed"), "{:?}", items(&o));
    assert_eq!(w.read("f"), "5");
}

#[test]
fn a_name_counts_in_its_own_window_only() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.begin("a1");
    a.write("c1", "f", "1");
    b.begin("b1");
    a.tool(true, "sh", &[]);
    b.write("c1", "f", "by b");
    a.tool(false, "sh", &[]);
    a.end();
    b.end();
    let o = a.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed"), "b named it: {:?}", items(&o));
    let o = b.rewind("1");
    assert_eq!((action(&o, "f").as_deref(), w.read("f").as_str()), (Some("overwrite"), "1"));
}

#[test]
fn what_grew_out_of_the_limits_is_not_taken_for_deleted() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1KiB");
    w.set("BACKSTITCH_LIMITS_GROWN_FILE", "2KiB");
    w.write("grows", "x");
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.shell("c1", || {
        let noise = noise(40_000, 1);
        w.write("grows", noise);
        w.write("f", "1");
    });
    s.end();
    let o = s.rewind("1");
    assert_eq!(w.read("f"), "0");
    assert_eq!(fs::metadata(w.path("grows")).unwrap().len(), 40_000);
    assert!(o.items.iter().all(|i| i.path != "grows" || i.action.as_str() != "conflict"), "{:?}", items(&o));
}

#[test]
fn a_folder_above_a_named_path_is_the_tools_only_if_it_made_it() {
    use std::os::unix::fs::PermissionsExt;
    let w = World::new();
    w.write("d/f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.tool(true, "c1", &["d/f", "made/g"]);
    w.write("d/f", "1");
    w.write("made/g", "1");
    // A person's, while it ran.
    w.chmod("d", 0o700);
    w.write("theirs/h", "1");
    s.tool(false, "c1", &["d/f", "made/g"]);
    // A look at everything comes between this window and the next.
    w.checkpoint();
    s.write("c2", "d/f", "2");
    s.end();
    let o = s.rewind("1");
    assert_eq!(w.read("d/f"), "0");
    assert!(!w.exists("made") && w.exists("theirs/h"), "{:?}", items(&o));
    assert_eq!(fs::metadata(w.path("d")).unwrap().permissions().mode() & 0o777, 0o700);
    // Inside the turn, outside of its windows: told, and left.
    for p in ["d", "theirs", "theirs/h"] {
        assert_eq!(action(&o, p).as_deref(), Some("skip:unattributed"), "{p}");
    }
}

#[test]
fn what_came_after_a_named_window_without_an_end_is_not_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let w = World::new();
    w.write("d/f", "0");
    for dir in ["gone", "other"] {
        fs::create_dir(w.path(dir)).unwrap();
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.tool(true, "c1", &["d/f"]);
    w.write("d/f", "1");
    // The tool dies. A person's, before the next look at everything.
    fs::remove_dir(w.path("gone")).unwrap();
    w.chmod("other", 0o700);
    s.shell("c2", || ());
    let o = s.rewind_with("1", rewind::Options { include_unattributed: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("d/f"), "0", "{:?}", items(&o));
    assert!(!w.exists("gone"), "{:?}", items(&o));
    assert_eq!(fs::metadata(w.path("other")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_window_that_began_after_a_change_has_no_claim_to_it() {
    let w = World::new();
    w.write("f", "0");
    w.write("g", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.begin("a1");
    a.tool(true, "c1", &[]);
    w.write("f", "1");
    b.begin("b1");
    b.tool(true, "c2", &[]);
    w.write("g", "1");
    a.tool(false, "c1", &[]);
    b.tool(false, "c2", &[]);
    a.end();
    b.end();
    let o = a.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("overwrite"), "{:?}", items(&o));
    assert_eq!(action(&o, "g").as_deref(), Some("conflict:shared"));
    assert_eq!((w.read("f"), w.read("g")), ("0".into(), "1".into()));
    // What is as wanted is no conflict; and asked to, it takes back what may be the other's.
    w.write("g", "0");
    assert_eq!(action(&a.rewind("1"), "g").as_deref(), Some("keep:already"));
    w.write("g", "1");
    let all = rewind::Options { on_conflict: OnConflict::Overwrite, ..Default::default() };
    a.rewind_with("1", all).unwrap();
    assert_eq!(w.read("g"), "0");
}

#[test]
fn windows_that_ended_before_or_never_explain_nothing() {
    let w = World::new();
    for f in ["f", "old", "mine"] {
        w.write(f, "0");
    }
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    b.begin("b1");
    b.shell("c1", || w.write("old", "1"));
    a.begin("a1");
    // The host of this one dies: the end of `a`'s turn is the next look.
    b.tool(true, "c2", &[]);
    a.write("c1", "f", "1");
    w.write("old", "typed");
    w.write("mine", "typed");
    a.end();
    let o = a.rewind_with("1", rewind::Options { force: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "0");
    for f in ["old", "mine"] {
        assert_eq!(action(&o, f).as_deref(), Some("skip:unattributed"), "{f}: {:?}", items(&o));
    }
}

#[test]
fn what_was_changed_and_changed_back_within_a_turn_is_nothing() {
    let w = World::new();
    w.write("f", "0");
    w.write("mine", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    w.write("mine", "typed");
    s.shell("c1", || w.write("f", "1"));
    w.write("mine", "0");
    s.end();
    let o = s.rewind("1");
    assert_eq!((w.read("f"), action(&o, "mine")), ("0".into(), None), "{:?}", items(&o));
}

#[test]
fn what_was_done_after_a_turn_counts_for_nothing_in_its_revert() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1");
    s.rewind("1");
    let o = s.revert("1");
    assert_eq!(action(&o, "f").as_deref(), Some("keep:already"), "{:?}", items(&o));
    assert_eq!(w.read("f"), "0");
}

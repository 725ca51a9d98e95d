//! What a rewind goes back to, and what a revert takes back: turns by their number, or by the name of a row.

use backstitch::{
    error::Code, record::CHECKPOINTS, rewind, session::ToolOptions, undo::OnConflict, workspace::Control,
};

use crate::{
    sessions::Agent,
    support::{doctor, items, object, set_ref},
    world::{World, action},
};

/// Three turns that write 1, 2 and 3, and rows by hand: within the first turn, after it, and at the end.
struct Three {
    w: World,
    prompts: Vec<String>,
    ends: Vec<String>,
    within: String,
    between: String,
    last: String,
}

impl Three {
    fn new() -> Three {
        let w = World::new();
        w.write("f", "0");
        let s = Agent { w: &w, id: "s" };
        let (mut prompts, mut ends) = (Vec::new(), Vec::new());
        let (mut within, mut between) = (String::new(), String::new());
        for n in 1..=3 {
            prompts.push(s.begin(&format!("k{n}")).record.id.clone());
            s.write("c1", "f", &n.to_string());
            if n == 1 {
                within = w.checkpoint().record.id.clone();
                s.write("c2", "g", "1");
            }
            ends.push(s.end().unwrap().record.id.clone());
            if n == 1 {
                between = w.checkpoint().record.id.clone();
            }
        }
        let last = w.checkpoint().record.id.clone();
        Three { w, prompts, ends, within, between, last }
    }

    /// The turns that a rewind to this name takes back, and what it leaves.
    fn rewind(&self, to: &str) -> (Vec<u64>, String) {
        let s = Agent { w: &self.w, id: "s" };
        let o = s.rewind(to);
        let left = self.w.read("f");
        if o.operation.is_some() {
            self.w.undo().unwrap();
        }
        (o.takes_back, left)
    }
}

#[test]
fn a_row_names_the_first_turn_to_go() {
    let t = Three::new();
    for (name, first, left) in [
        ("2", 2, "1"),
        ("turn:2", 2, "1"),
        ("prompt:3", 3, "2"),
        // The state before a turn, the state after one, and a row by hand: what came after it goes.
        (&t.prompts[1], 2, "1"),
        (&t.ends[0], 2, "1"),
        (&t.within, 2, "1"),
        (&t.between, 2, "1"),
        (&t.prompts[0], 1, "0"),
        (&t.ends[2], 4, "3"),
        (&t.last, 4, "3"),
    ] {
        assert_eq!(t.rewind(name), ((first..=3).collect(), left.into()), "{name}");
    }
}

#[test]
fn a_row_of_another_session_is_only_a_time() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.turn("a1", "f", "1");
    a.turn("a2", "f", "2");
    let first = b.begin("b1").record.id.clone();
    let end = b.end().unwrap().record.id.clone();
    a.turn("a3", "f", "3");
    assert_eq!(a.revert_with(&first, rewind::Options::default()).unwrap_err().code, Code::NoSuchCheckpoint);
    for name in [first, end] {
        let o = a.rewind(&name);
        assert_eq!((o.takes_back.as_slice(), w.read("f").as_str()), (&[3][..], "2"), "{:?}", items(&o));
        w.undo().unwrap();
    }
}

#[test]
fn the_state_after_a_turn_is_known_without_the_prompt_of_the_next() {
    let t = Three::new();
    let ws = t.w.open();
    let rows = ws.rows().unwrap();
    let gone = rows.all.iter().find(|c| c.record.id == t.prompts[1]).unwrap();
    ws.delete(&[gone]).unwrap();
    assert_eq!(t.rewind(&t.ends[0]).1, "1");
}

#[test]
fn a_revert_takes_the_turn_that_a_row_is_of() {
    let t = Three::new();
    let s = Agent { w: &t.w, id: "s" };
    let o = s.revert(&t.ends[2]);
    assert_eq!((t.w.read("f"), o.takes_back.as_slice()), ("2".into(), &[3][..]), "{:?}", items(&o));
    assert_eq!(o.target, "s/turn:3");
    // A row by hand is of no turn.
    let refused = s.revert_with(&t.between, rewind::Options::default()).unwrap_err();
    assert_eq!(refused.code, Code::NoSuchCheckpoint);
}

#[test]
fn what_is_not_there_is_refused() {
    let t = Three::new();
    let s = Agent { w: &t.w, id: "s" };
    for name in ["4", "turn:0"] {
        let refused = s.rewind_with(name, rewind::Options::default()).unwrap_err();
        assert_eq!(refused.code, Code::NoSuchCheckpoint, "{name}");
    }
    let nobody = Agent { w: &t.w, id: "nobody" };
    let refused = nobody.rewind_with("1", rewind::Options::default()).unwrap_err();
    assert_eq!(refused.code, Code::NoSuchSession);
    assert_eq!(t.w.read("f"), "3");
}

#[test]
fn a_turn_in_which_nothing_was_recorded_yet_is_taken_back_too() {
    let t = Three::new();
    let s = Agent { w: &t.w, id: "s" };
    s.begin("k4");
    assert_eq!(s.rewind("3").takes_back, [3, 4]);
    assert_eq!(t.w.read("f"), "2");
}

#[test]
fn a_call_without_an_id_that_ended_is_not_waited_for() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.turn("a1", "f", "1");
    b.begin("b1");
    let nameless = |before: bool| {
        let o = ToolOptions { session: "b".into(), tool: Some("bash".into()), ..Default::default() };
        w.open().tool(before, &o, &Control::default()).unwrap();
    };
    nameless(true);
    nameless(true);
    nameless(false);
    assert_eq!(a.rewind_with("1", rewind::Options::default()).unwrap_err().code, Code::Busy, "one is open");
    nameless(false);
    a.rewind("1");
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_window_that_is_open_for_more_than_an_hour_is_not_waited_for() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.turn("a1", "f", "1");
    b.begin("b1");
    let open = b.tool(true, "c1", &[]).checkpoint.unwrap();
    assert_eq!(a.rewind_with("1", rewind::Options::default()).unwrap_err().code, Code::Busy);
    doctor(&w, &open, &open.tree, |r| r.created_ms -= 2 * 3_600_000);
    a.rewind("1");
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_damaged_row_is_in_the_way_only_if_it_may_be_of_the_turns() {
    let t = Three::new();
    let s = Agent { w: &t.w, id: "s" };
    let damage = |id: &str| {
        let git_dir = t.w.git_dir();
        let no_commit = object(&git_dir, "blob", b"no commit");
        set_ref(&git_dir, &format!("{CHECKPOINTS}{id}"), &no_commit);
    };
    damage(&t.ends[0]);
    assert_eq!(t.rewind("2").1, "1");
    damage(&t.ends[1]);
    let refused = s.rewind_with("2", rewind::Options::default()).unwrap_err();
    assert_eq!((refused.code, t.w.read("f").as_str()), (Code::StoreDamaged, "3"));
    assert_eq!(t.rewind("3").1, "2");
}

#[test]
fn what_a_session_put_back_itself_is_nothing() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "1");
    s.write("c2", "f", "0");
    s.end();
    for on_conflict in [OnConflict::Keep, OnConflict::Merge] {
        let o = s.rewind_with("1", rewind::Options { on_conflict, ..Default::default() }).unwrap();
        assert_eq!((action(&o, "f"), w.read("f")), (None, "0".into()), "{:?}", items(&o));
    }
}

#[test]
fn a_named_path_means_something_on_the_disk_or_in_the_session() {
    let w = World::new();
    w.write("f", "0");
    w.write("same", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "1");
    s.write("c2", "made", "1");
    s.end();
    std::fs::remove_file(w.path("made")).unwrap();
    let only =
        |path: &str| s.rewind_with("1", rewind::Options { paths: vec![path.into()], ..Default::default() });
    assert_eq!(only("nowhere").unwrap_err().code, Code::NoSuchPath);
    // It is there, and the session did nothing to it; it is gone, and the session made it.
    for path in ["same", "made"] {
        let o = only(path).unwrap();
        assert!(o.items.iter().all(|i| i.path == path && !i.action.changes()), "{path}: {:?}", items(&o));
    }
    assert_eq!(w.read("f"), "1");
    only("f").unwrap();
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_hand_edit_that_the_session_undid_comes_back_with_a_merge() {
    let w = World::new();
    let original = "a\nb\nc\nd\ne\n";
    w.write("f", original);
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "a\nb\nc\nd\nE\n");
    w.write("f", "A\nb\nc\nd\nE\n");
    // It writes what stood there before both.
    s.write("c2", "f", original);
    s.end();
    let o = rewind::Options { on_conflict: OnConflict::Merge, ..Default::default() };
    let o = s.rewind_with("1", o).unwrap();
    assert_eq!(w.read("f"), "A\nb\nc\nd\ne\n", "{:?}", items(&o));
}

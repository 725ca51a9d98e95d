//! Turns, tool windows, attribution, rewind.

use std::fs;

use backstitch::{
    checkpoint::Outcome as Recorded,
    error::{Code, Result},
    operation::Outcome,
    record::{Checkpoint, Kind},
    rewind,
    session::{ToolOptions, TurnOptions},
    undo::OnConflict,
    workspace::Control,
};
use backstitch_testkit::Compare;

use crate::world::{World, action, same};

/// An agent's session, driven as a host does it.
pub struct Agent<'a> {
    pub w: &'a World,
    pub id: &'a str,
}

impl Agent<'_> {
    pub fn begin(&self, key: &str) -> Checkpoint {
        let o = TurnOptions {
            session: self.id.into(),
            key: Some(key.into()),
            prompt: Some(format!("do {key}")),
            entry: None,
        };
        self.w.open().turn_begin(&o, &Control::default()).unwrap().checkpoint.unwrap()
    }

    pub fn end(&self) -> Option<Checkpoint> {
        self.w.open().turn_end(self.id, None, "completed", &Control::default()).unwrap().checkpoint
    }

    pub fn tool(&self, before: bool, call: &str, paths: &[&str]) -> Recorded {
        self.w.open().tool(before, &self.call(call, paths), &Control::default()).unwrap()
    }

    pub fn call(&self, call: &str, paths: &[&str]) -> ToolOptions {
        ToolOptions {
            session: self.id.into(),
            call: Some(call.into()),
            tool: Some(if paths.is_empty() { "bash" } else { "write" }.into()),
            agent: None,
            paths: paths.iter().map(|p| (*p).into()).collect(),
        }
    }

    pub fn write(&self, call: &str, path: &str, text: &str) {
        self.tool(true, call, &[path]);
        self.w.write(path, text);
        self.tool(false, call, &[path]);
    }

    /// A whole turn in which a file tool writes one file.
    pub fn turn(&self, key: &str, path: &str, text: &str) {
        self.begin(key);
        self.write(key, path, text);
        self.end();
    }

    pub fn shell(&self, call: &str, work: impl FnOnce()) {
        self.tool(true, call, &[]);
        work();
        self.tool(false, call, &[]);
    }

    pub fn rewind_with(&self, to: &str, o: rewind::Options) -> Result<Outcome> {
        let o = rewind::Options { to: to.into(), session: Some(self.id.into()), ..o };
        self.w.open().rewind(&o, &Control::default())
    }

    pub fn revert_with(&self, to: &str, o: rewind::Options) -> Result<Outcome> {
        let o = rewind::Options { to: to.into(), session: Some(self.id.into()), ..o };
        self.w.open().revert(&o, &Control::default())
    }

    pub fn revert(&self, to: &str) -> Outcome {
        self.revert_with(to, rewind::Options::default()).unwrap()
    }

    pub fn rewind(&self, to: &str) -> Outcome {
        self.rewind_with(to, rewind::Options::default()).unwrap()
    }
}

#[test]
fn begin_and_end_are_idempotent_and_numbers_are_never_reused() {
    let w = World::new();
    w.write("a", "1");
    let s = Agent { w: &w, id: "s" };
    let one = s.begin("k1");
    assert_eq!(s.begin("k1").record.id, one.record.id, "the same key is the same turn");
    let end = s.end().unwrap();
    assert_eq!((one.record.turn, end.record.turn, end.record.kind), (Some(1), Some(1), Kind::Turn));
    assert!(s.end().is_none(), "no open turn");
    assert_eq!(s.begin("k2").record.turn, Some(2));
    // Crash: the next turn closes it.
    assert_eq!(s.begin("k3").record.turn, Some(3));
    let rows = w.open().rows().unwrap();
    let crashed = rows.all.iter().find(|c| c.record.kind == Kind::Turn && c.record.turn == Some(2)).unwrap();
    assert_eq!(crashed.record.status.as_deref(), Some("crashed"));
    w.check_store();
}

#[test]
fn binding_is_first_wins() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.end();
    s.begin("k2");
    let mut ws = w.open();
    let (c, ok) = ws.turn_bind("s", None, "entry-1").unwrap();
    assert!(ok && c.record.turn == Some(1));
    let (c, ok) = ws.turn_bind("s", None, "entry-1").unwrap();
    assert!(ok && c.record.turn == Some(1), "repeated");
    let (c, ok) = ws.turn_bind("s", Some("k1"), "other").unwrap();
    assert!(!ok && c.record.entry.as_deref() == Some("entry-1"));
    let (c, _) = ws.turn_bind("s", None, "entry-2").unwrap();
    assert_eq!(c.record.turn, Some(2));
    assert_eq!(ws.turn_bind("s", None, "entry-3").unwrap_err().code, Code::NoSuchCheckpoint);
}

#[test]
fn r15_a_rewind_leaves_the_users_own_work() {
    let w = World::new();
    w.write("a", "0");
    w.write("b", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "a", "agent");
    w.write("b", "a week of my own");
    let o = s.rewind("1");
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!(o.takes_back, [1]);
    assert_eq!((w.read("a"), w.read("b")), ("0".into(), "a week of my own".into()));
    w.undo().unwrap();
    assert_eq!(w.read("a"), "agent");
}

#[test]
fn r13_r36_a_hand_edit_is_a_conflict_and_named() {
    let w = World::new();
    w.write("a", "0");
    w.write("b", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "a", "v1");
    s.write("c2", "b", "v1");
    s.end();
    w.write("b", "v2 by hand");
    let o = s.rewind("1");
    assert!(o.partial);
    assert_eq!(action(&o, "b").as_deref(), Some("conflict:changed"));
    assert_eq!((w.read("a"), w.read("b")), ("0".into(), "v2 by hand".into()));
    let before = w.model();
    let e = s
        .rewind_with("1", rewind::Options { on_conflict: OnConflict::Refuse, ..Default::default() })
        .unwrap_err();
    assert_eq!((e.code, e.list.as_slice()), (Code::Conflict, &["b".to_owned()][..]));
    before.assert_same(&w.model(), &Compare::untouched(), "refused");
    s.rewind_with("1", rewind::Options { on_conflict: OnConflict::Overwrite, ..Default::default() }).unwrap();
    assert_eq!(w.read("b"), "0");
    w.undo().unwrap();
    assert_eq!(w.read("b"), "v2 by hand");
}

#[test]
fn r14_another_sessions_work_is_not_taken_back() {
    let w = World::new();
    w.write("x", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    b.begin("b1");
    a.turn("a1", "x", "by a");
    b.end();
    let before = w.model();
    let o = b.rewind("1");
    assert!(o.operation.is_none(), "{:?}", o.items);
    before.assert_same(&w.model(), &Compare::untouched(), "nothing of b's");
    a.rewind("1");
    assert_eq!(w.read("x"), "0");
}

#[test]
fn r03_a_file_that_the_user_put_in_place_stays() {
    let w = World::new();
    w.write("a", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.tool(true, "read", &["notes.md"]);
    s.tool(false, "read", &["notes.md"]);
    s.end();
    w.write("notes.md", "mine");
    s.rewind("1");
    assert_eq!(w.read("notes.md"), "mine");
}

#[test]
fn r70_r71_what_a_shell_command_did_comes_back() {
    let w = World::new();
    for n in ["a", "b", "c", "gone", "moved"] {
        w.write(n, format!("{n} 0"));
    }
    w.chmod("gone", 0o750);
    let old = w.model();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.shell("c1", || {
        for n in ["a", "b", "c"] {
            w.write(n, "sed -i");
        }
        w.write("here/doc", "new");
        fs::remove_file(w.path("gone")).unwrap();
        fs::rename(w.path("moved"), w.path("elsewhere")).unwrap();
        w.chmod("a", 0o755);
    });
    s.end();
    let new = w.model();
    let o = s.rewind("1");
    assert!(!o.partial, "{:?}", o.items);
    same(&old, &w.model(), "rewound");
    w.undo().unwrap();
    same(&new, &w.model(), "undone");
}

#[test]
fn earliest_pre_image_from_the_target_on() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    for i in 1..=4 {
        s.begin(&format!("k{i}"));
        s.write(&format!("c{i}"), "f", &format!("{i}"));
        s.end();
    }
    let o = s.rewind("turn:2");
    assert_eq!(o.takes_back, [2, 3, 4]);
    assert_eq!(w.read("f"), "1");
    // Its own rewind is nobody else's work: further back goes on.
    let o = s.rewind("1");
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!(w.read("f"), "0");
    w.undo().unwrap();
    w.undo().unwrap();
    assert_eq!(w.read("f"), "4");
    // Work after a rewind counts from what the rewind left.
    s.rewind("3");
    s.turn("k5", "f", "5");
    let o = s.rewind("2");
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!(w.read("f"), "1");
}

#[test]
fn an_ignored_file_that_a_window_saw_come_into_being_goes() {
    let w = World::new();
    w.write(".gitignore", ".env\nbig/\n");
    w.write("a", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", ".env", "KEY=1");
    s.write("c2", "big/made", "by a tool that named it");
    s.end();
    s.turn("k2", ".env", "KEY=2");
    s.rewind("2");
    assert_eq!(w.read(".env"), "KEY=1");
    let o = s.rewind("1");
    assert!(!w.exists(".env") && !w.exists("big/made"), "{:?}", o.items);
    w.undo().unwrap();
    assert_eq!(w.read(".env"), "KEY=1");
    assert!(w.exists("big/made"));
}

#[test]
fn a_turn_without_windows_is_one_window() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    w.write("f", "1");
    w.write("new", "x");
    s.end();
    s.rewind("1");
    assert_eq!(w.read("f"), "0");
    assert!(!w.exists("new"));
}

#[test]
fn changes_outside_the_windows_of_a_turn_are_unattributed() {
    let w = World::new();
    w.write("f", "0");
    w.write("mine", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "agent");
    w.write("mine", "typed while the model was thinking");
    s.end();
    let o = s.rewind("1");
    assert_eq!(action(&o, "mine").as_deref(), Some("skip:unattributed"));
    assert_eq!((w.read("f"), w.read("mine")), ("0".into(), "typed while the model was thinking".into()));
    w.undo().unwrap();
    s.rewind_with("1", rewind::Options { include_unattributed: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("mine"), "0");
}

#[test]
fn folders_that_a_tool_made_for_its_file_go_with_it() {
    let w = World::new();
    w.write("a", "1");
    let before = w.model();
    let s = Agent { w: &w, id: "s" };
    s.begin("k");
    s.write("c1", "new/deep/file", "made");
    s.write("c2", "kept/file", "made");
    w.write("kept/mine", "by hand");
    s.end();
    let o = s.rewind("1");
    assert_eq!(action(&o, "new").as_deref(), Some("rmdir"));
    assert_eq!(action(&o, "new/deep").as_deref(), Some("rmdir"));
    assert_eq!(w.read("kept/mine"), "by hand");
    assert!(!w.exists("new") && !w.exists("kept/file"));
    fs::remove_dir_all(w.path("kept")).unwrap();
    same(&before, &w.model(), "all that the agent made is gone");
    w.check_store();
}

#[test]
fn what_one_window_saw_half_done_beside_another_is_the_sessions() {
    let w = World::new();
    w.write("f", "one");
    let s = Agent { w: &w, id: "s" };
    s.begin("k");
    s.tool(true, "edit", &["f"]);
    s.tool(true, "shell", &[]);
    w.write("f", "");
    s.tool(false, "shell", &[]);
    w.write("f", "two");
    s.tool(false, "edit", &["f"]);
    s.end();
    let o = s.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("overwrite"));
    assert_eq!(w.read("f"), "one");
}

/// Two sessions, `a` and `b`, with turns open: while a call of `a` ran that named nothing, one of `b` wrote `named` and named
/// it, and one of them wrote `both`.
pub fn overlapping(w: &World) -> (Agent<'_>, Agent<'_>) {
    for n in ["named", "both"] {
        w.write(n, "0\n");
    }
    let (a, b) = (Agent { w, id: "a" }, Agent { w, id: "b" });
    a.begin("a1");
    b.begin("b1");
    a.tool(true, "sh", &[]);
    b.tool(true, "w", &["named"]);
    b.tool(true, "sh2", &[]);
    w.write("named", "by b\n");
    w.write("both", "by one of them\n");
    b.tool(false, "sh2", &[]);
    b.tool(false, "w", &["named"]);
    a.tool(false, "sh", &[]);
    (a, b)
}

#[test]
fn overlapping_windows_belong_to_whoever_named_the_path() {
    let w = World::new();
    let (a, b) = overlapping(&w);
    a.end();
    b.end();
    let o = a.rewind("1");
    assert_eq!(action(&o, "named"), None, "b named it: {:?}", o.items);
    assert_eq!(action(&o, "both").as_deref(), Some("conflict:shared"));
    assert_eq!(w.read("named"), "by b\n");
    let o = b.rewind("1");
    assert_eq!(action(&o, "named").as_deref(), Some("overwrite"), "{:?}", o.items);
    assert_eq!((w.read("named"), w.read("both")), ("0\n".into(), "by one of them\n".into()));
}

#[test]
fn somebody_elses_edit_in_between_is_a_conflict() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "agent 1");
    w.write("f", "mine");
    s.turn("k2", "f", "agent 2");
    s.rewind("2");
    assert_eq!(w.read("f"), "mine");
    let o = s.rewind("1");
    assert_eq!(w.read("f"), "mine", "{:?}", o.items);
    assert!(o.partial);
}

#[test]
fn s13_moved_and_deleted_by_others() {
    let w = World::new();
    w.write("f", "0");
    w.write("g", "0");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "agent f");
    s.write("c2", "g", "agent g");
    s.end();
    fs::rename(w.path("f"), w.path("renamed")).unwrap();
    fs::remove_file(w.path("g")).unwrap();
    let o = s.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:moved"));
    assert_eq!(action(&o, "g").as_deref(), Some("conflict:deleted-by-other"));
    let moved = o.items.iter().find(|i| i.path == "f").unwrap();
    assert_eq!(moved.moved_to.as_ref().unwrap(), "renamed");
    assert!(!w.exists("f") && !w.exists("g") && w.exists("renamed"));
}

#[test]
fn r132_a_fork_can_take_back_its_line_and_the_parent_is_somebody_else() {
    let w = World::new();
    w.write("f", "0");
    let p = Agent { w: &w, id: "parent" };
    let mut last = None;
    for i in 1..=3 {
        p.begin(&format!("k{i}"));
        p.write(&format!("c{i}"), "f", &format!("{i}"));
        last = p.end();
    }
    let mut ws = w.open();
    let fork = ws.fork("fork", &last.unwrap()).unwrap();
    assert_eq!(fork.parent.as_deref(), Some("parent"));
    let f = Agent { w: &w, id: "fork" };
    assert_eq!(f.begin("f1").record.turn, Some(4));
    f.write("fc1", "own", "of the fork");
    f.end();
    p.turn("k4", "g", "of the parent, after the fork");
    let o = f.rewind("2");
    assert_eq!(o.takes_back, [2, 3, 4]);
    assert_eq!(w.read("f"), "1");
    assert!(!w.exists("own") && w.exists("g"));
    // The parent rewinds the same inherited turn: it is done already.
    let o = p.rewind("prompt:4");
    assert!(!w.exists("g"), "{:?}", o.items);
    let o = p.rewind("2");
    assert_eq!(o.items.iter().filter(|i| i.action.changes()).count(), 0, "{:?}", o.items);
    assert!(o.operation.is_none() && !o.partial);
    assert!(ws.fork("parent", &w.find("@").unwrap()).is_err());
}

#[test]
fn r131_turns_survive_a_restart_and_a_crash_in_the_middle() {
    let w = World::new();
    w.write("f", "0");
    w.write("victim", "precious");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "1");
    // Dies in the middle of a shell command.
    s.tool(true, "c2", &[]);
    w.write("f", "2");
    fs::remove_file(w.path("victim")).unwrap();
    // Next start.
    s.begin("k2");
    s.end();
    let o = s.rewind("1");
    assert_eq!(w.read("victim"), "precious", "a deletion is put back: {:?}", o.items);
    assert_eq!(action(&o, "f").as_deref(), Some("skip:unattributed"));
    s.rewind_with("1", rewind::Options { include_unattributed: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_window_that_outlives_its_turn_is_of_that_turn() {
    let w = World::new();
    w.write("other", "mine");
    let a = Agent { w: &w, id: "s" };
    a.begin("k1");
    a.tool(true, "late", &[]);
    a.begin("k2");
    w.write("inner", "by a sub-agent");
    let after = a.tool(false, "late", &[]).checkpoint.unwrap();
    assert_eq!((after.record.turn, after.record.phase.as_deref()), (Some(1), Some("after")));
    // Repeated, it is the same row; and a second turn may use the same id again.
    assert_eq!(a.tool(false, "late", &[]).checkpoint.unwrap().record.id, after.record.id);
    assert_eq!(a.tool(true, "late", &[]).checkpoint.unwrap().record.turn, Some(2));
    assert_eq!(a.tool(false, "late", &[]).checkpoint.unwrap().record.turn, Some(2));
    a.rewind("2");
    assert!(w.path("inner").exists(), "the first turn made it");
    a.rewind("1");
    assert!(!w.path("inner").exists());
}

#[test]
fn opening_a_session_again_closes_what_was_left_open() {
    let w = World::new();
    let mut ws = w.open();
    ws.session_open("s").unwrap();
    assert!(!ws.has_store(), "nothing is written before the first row");
    Agent { w: &w, id: "s" }.begin("k1");
    let mut ws = w.open();
    ws.session_end("s").unwrap();
    Agent { w: &w, id: "s" }.begin("k2");
    ws.session_open("s").unwrap();
    let s = ws.sessions().unwrap().remove(0);
    assert_eq!((s.record.ended, s.open_turn, s.turns), (false, None, 2));
    let crashed = ws.rows().unwrap().all.into_iter().filter(|c| c.record.kind == Kind::Turn);
    assert_eq!(crashed.map(|c| c.record.status.clone().unwrap()).collect::<Vec<_>>(), ["crashed", "crashed"]);
}

#[test]
fn an_open_window_of_another_session_blocks_unless_forced() {
    let w = World::new();
    w.write("f", "0");
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.turn("a1", "f", "1");
    b.begin("b1");
    b.tool(true, "sh", &[]);
    let e = a.rewind_with("1", rewind::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::Busy);
    assert!(e.message.contains("\"b\""));
    assert_eq!(w.read("f"), "1");
    let row = w.find("@~2").unwrap();
    assert_eq!(w.restore_with(&row, Default::default()).unwrap_err().code, Code::Busy);
    a.rewind_with("1", rewind::Options { force: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "0");
}

#[test]
fn a_preview_has_the_plan_that_is_applied() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1");
    let before = w.model();
    let p = s.rewind_with("1", rewind::Options { dry_run: true, ..Default::default() }).unwrap();
    before.assert_same(&w.model(), &Compare::untouched(), "preview");
    let o = s.rewind_with("1", rewind::Options { plan: Some(p.plan.clone()), ..Default::default() }).unwrap();
    assert_eq!(o.plan, p.plan);
    let e = s.rewind_with("1", rewind::Options { plan: Some(p.plan), ..Default::default() }).unwrap_err();
    assert_eq!(e.code, Code::PlanChanged);
}

/// Two installations of one hook, or a host that says it again before it had an answer: the second process read the rows
/// before the first had written its own.
#[test]
fn an_end_of_a_call_that_is_told_twice_at_once_is_one_row() {
    let w = World::new();
    w.write("a", "1");
    let s = Agent { w: &w, id: "s" };
    s.begin("k");
    let late = |before, call: &str, first: &[&str], second: &[&str]| {
        let mut ws = w.open();
        let knows = ws.rows().unwrap();
        let row = s.tool(before, call, first).checkpoint.unwrap();
        let again = ws.tool_knowing(knows, before, &s.call(call, second), &Control::default()).unwrap();
        (row.record.id.clone(), again.repeated, again.checkpoint.unwrap().record.id.clone())
    };
    for (call, paths) in [("shell", &[][..]), ("file", &["a"])] {
        for before in [true, false] {
            let (first, repeated, second) = late(before, call, paths, paths);
            assert!(repeated, "{call} {before}");
            assert_eq!(first, second);
        }
    }
    // What only the second one names has no pre-image yet.
    let (first, repeated, second) = late(true, "more", &["a"], &["b"]);
    assert!(!repeated && first != second);
    let (_, repeated, second) = late(true, "none", &["a"], &[]);
    assert!(!repeated, "everything is more than a file: {second}");
    let rows = w.open().rows().unwrap();
    assert_eq!(rows.all.iter().filter(|c| c.record.kind == Kind::Tool).count(), 8);
}

//! Turns that begin at once: what tools do beside the capture is never "before".

use std::{fs, sync::atomic::AtomicBool, time::Duration};

use backstitch::{
    checkpoint,
    error::Code,
    record::{Checkpoint, State},
    restore, rewind,
    session::{ToolOptions, TurnOptions},
    workspace::Control,
};

use crate::world::{World, action};

fn reserve(w: &World, key: &str, gated: bool) -> Checkpoint {
    let o = TurnOptions { session: "s".into(), key: Some(key.into()), ..TurnOptions::default() };
    w.open().turn_reserve(&o, gated).unwrap().checkpoint.unwrap()
}

fn tool(w: &World, before: bool, call: &str, paths: &[&str]) -> Checkpoint {
    let o = ToolOptions {
        session: "s".into(),
        call: Some(call.into()),
        paths: paths.iter().map(|p| (*p).into()).collect(),
        ..ToolOptions::default()
    };
    w.open().tool(before, &o, &Control::default()).unwrap().checkpoint.unwrap()
}

fn capture(w: &World, id: &str) -> Checkpoint {
    w.open().turn_capture(id, &|| {}, &Control::default()).unwrap().checkpoint.unwrap()
}

/// Until what changes from now on has a later date than all that is there, by the clock that a row reads: some systems
/// date a file that somebody just looked at more finely than that clock runs.
fn a_tick_passes(w: &World) {
    use std::os::unix::fs::MetadataExt;
    let probe = w.dir.path().join("probe");
    fs::write(&probe, "").unwrap();
    let m = fs::metadata(&probe).unwrap();
    loop {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec) > (m.ctime(), m.ctime_nsec()) {
            break;
        }
        std::thread::yield_now();
    }
}

fn skips(w: &World, c: &Checkpoint) -> Vec<(String, String)> {
    let c = w.open().rows().unwrap().by_id(&c.record.id).unwrap().clone();
    c.record.skipped.iter().map(|s| (s.path.clone(), s.reason.clone())).collect()
}

#[test]
fn s_4_what_tools_change_beside_a_capture_is_never_before() {
    let w = World::new();
    for (path, text) in [("named", "0"), ("shell", "0"), ("still", "0"), ("gone", "0"), ("d/x", "0")] {
        w.write(path, text);
    }
    w.checkpoint();
    a_tick_passes(&w);
    let row = reserve(&w, "k1", true);
    assert_eq!((row.record.state, row.record.in_flight(), row.record.turn), (State::Gap, true, Some(1)));
    assert_eq!(reserve(&w, "k1", true).record.id, row.record.id, "the same key is the same turn");
    assert!(w.restore_with(&row, Default::default()).is_err(), "a gap is no target");
    a_tick_passes(&w);
    // A file tool does not wait; beside it a process of the agent's goes on in the background.
    tool(&w, true, "c1", &["named", "made/deep"]);
    w.write("named", "agent");
    w.write("made/deep", "agent");
    tool(&w, false, "c1", &[]);
    w.write("shell", "agent");
    w.write("new/y", "agent");
    fs::remove_file(w.path("gone")).unwrap();
    let c = capture(&w, &row.record.id);
    assert_eq!((&c.record.id, c.record.seq), (&row.record.id, row.record.seq));
    assert_eq!(c.record.state, State::Partial);
    let unstable = |p: &str| (p.to_owned(), "unstable".to_owned());
    assert_eq!(skips(&w, &c), [unstable("gone"), unstable("new"), unstable("shell")]);
    // Going back to it: pre-images come back, what is not known is left.
    let o = w.restore_with(&c, restore::Options::default()).unwrap();
    assert_eq!(w.read("named"), "0");
    assert!(!w.exists("made"), "{:?}", o.items);
    assert_eq!(
        (w.read("shell"), w.read("new/y"), w.read("still")),
        ("agent".into(), "agent".into(), "0".into())
    );
    assert!(!w.exists("gone"));
    w.undo().unwrap();
    let o = w.open().rewind(
        &rewind::Options { to: "1".into(), session: Some("s".into()), ..Default::default() },
        &Control::default(),
    );
    let o = o.unwrap();
    assert_eq!((action(&o, "named").as_deref(), action(&o, "shell")), (Some("overwrite"), None));
    w.check_store();
}

#[test]
fn a_capture_that_nobody_disturbed_is_complete() {
    let w = World::new();
    w.write("a", "0");
    let row = reserve(&w, "k1", true);
    let mut ws = w.open();
    // What is said of it meanwhile stays.
    ws.turn_bind("s", None, "entry").unwrap();
    let c = capture(&w, &row.record.id);
    assert_eq!((c.record.state, c.record.entry.as_deref()), (State::Complete, Some("entry")));
    assert!(!c.record.in_flight() && c.record.extra.is_empty());
    assert_eq!((c.record.parent.as_deref(), c.record.summary.added), (None, 1));
    assert_eq!(
        ws.turn_capture(&row.record.id, &|| {}, &Control::default()).unwrap_err().code,
        Code::NoSuchCheckpoint
    );
    w.write("a", "1");
    w.restore(&c);
    assert_eq!(w.read("a"), "0");
    // The table that it left is trusted by the next.
    assert!(w.checkpoint().record.summary.is_empty());
}

#[test]
fn without_a_gate_nothing_later_is_before() {
    let w = World::new();
    w.write("a", "0");
    w.write("b", "0");
    a_tick_passes(&w);
    let row = reserve(&w, "k1", false);
    assert_eq!(row.record.gated(), Some(false));
    w.write("a", "by a tool that did not wait");
    let c = capture(&w, &row.record.id);
    assert_eq!(skips(&w, &c), [("a".to_owned(), "unstable".to_owned())]);
    assert_eq!(c.record.gated(), Some(false));
}

#[test]
fn r33_a_gate_ends_and_the_next_turn_is_as_ever() {
    let mut w = World::new();
    w.set("BACKSTITCH_GATE_TIMEOUT", "0");
    w.write("a", "0");
    let row = reserve(&w, "k1", true);
    let ws = w.open();
    // Somebody is at it.
    let gate = format!("capture-{}", &row.record.id[15..]);
    let held = ws.store().unwrap().lock_exclusive(&gate, Duration::ZERO).unwrap();
    let gap = tool(&w, true, "c1", &[]);
    assert_eq!(gap.record.state, State::Gap);
    assert!(gap.record.reason.as_deref().unwrap().contains("not done"), "{:?}", gap.record.reason);
    // Named paths never wait.
    assert_eq!(tool(&w, true, "c2", &["a"]).record.state, State::Complete);
    w.write("a", "1");
    tool(&w, false, "c2", &[]);
    tool(&w, false, "c1", &[]);
    // Its process dies: nobody waits for it any longer.
    drop(held);
    assert_eq!(tool(&w, true, "c3", &[]).record.state, State::Complete);
    tool(&w, false, "c3", &[]);
    let c = ws.turn_wait(&row.record.id, Duration::from_secs(60), &Control::default()).unwrap();
    assert!(c.record.in_flight(), "comes back at once");
    // The next turns have what this one lacks.
    let next = capture(&w, &reserve(&w, "k2", true).record.id);
    assert_eq!(next.record.state, State::Complete);
    let all = rewind::Options { to: "1".into(), session: Some("s".into()), ..Default::default() };
    w.open().rewind(&all, &Control::default()).unwrap();
    assert_eq!(w.read("a"), "0", "named windows do not need the row");
}

#[test]
fn r66_a_cancelled_capture_leaves_a_gap_and_nothing_else() {
    let w = World::new();
    w.write("a", "0");
    let row = reserve(&w, "k1", true);
    let stop = AtomicBool::new(true);
    let control = Control { interrupt: &stop, ..Control::default() };
    let e = w.open().turn_capture(&row.record.id, &|| {}, &control).unwrap_err();
    assert_eq!(e.code, Code::Interrupted);
    assert!(w.find(&row.record.id).unwrap().record.in_flight());
    w.check_store();
    assert_eq!(capture(&w, &row.record.id).record.state, State::Complete, "it may be tried again");
}

#[test]
fn a_capture_whose_time_is_over_is_partial_and_says_so() {
    let w = World::new();
    w.write("a", "0");
    w.write("d/b", "0");
    let now = std::time::Instant::now();
    let o = checkpoint::Options { time: checkpoint::Time::Until(now), ..Default::default() };
    let c = w.record(o).unwrap().checkpoint.unwrap();
    assert_eq!(c.record.state, State::Partial);
    assert!(skips(&w, &c).iter().any(|(_, r)| r == "time"), "{:?}", skips(&w, &c));
    w.write("d/new", "later");
    let o = w.restore_with(&c, restore::Options { force: true, ..Default::default() }).unwrap();
    assert!(w.exists("d/new") && w.exists("a"), "what was not looked at is unknown: {:?}", o.items);
    assert_eq!(w.checkpoint().record.state, State::Complete);
}

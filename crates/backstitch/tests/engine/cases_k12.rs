//! K12: history and controls.

use backstitch::{
    record::{Checkpoint, Kind},
    restore, rewind,
    workspace::Control,
};
use backstitch_testkit::Compare;

use crate::{
    sessions::Agent,
    support::{git, items, open_at, repository},
    world::{World, action},
};

/// Whoever cannot be asked looks at a plan first, and applies exactly that one.
#[test]
fn r127_a_plan_writes_nothing_and_is_applied_by_its_digest() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1");
    let c = w.find("@~1").unwrap();
    let before = w.model();
    let seen = w.restore_with(&c, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    let also = s.rewind_with("1", rewind::Options { dry_run: true, ..Default::default() }).unwrap();
    for o in [&seen, &also] {
        assert_eq!(items(o), ["f: overwrite"]);
        assert!(o.dry_run && o.operation.is_none() && o.safety.is_none());
    }
    before.assert_same(&w.model(), &Compare::untouched(), "looked at");
    let o = s.rewind_with("1", rewind::Options { plan: Some(also.plan.clone()), ..Default::default() });
    assert_eq!(o.unwrap().plan, also.plan);
    assert_eq!(w.read("f"), "0");
}

#[test]
fn r130_every_row_outlives_many_rewinds() {
    const ROUNDS: usize = 20;
    let w = World::new();
    w.write("f", "0");
    w.record(backstitch::checkpoint::Options { label: Some("start".into()), ..Default::default() }).unwrap();
    let s = Agent { w: &w, id: "s" };
    let mut made = Vec::new();
    for n in 1..=ROUNDS {
        let begun = s.begin(&format!("k{n}"));
        w.write("f", format!("turn {n}"));
        made.push((begun, s.end().unwrap()));
        let o = s.rewind(&format!("{n}"));
        assert_eq!((o.takes_back.as_slice(), w.read("f").as_str()), (&[n as u64][..], "0"));
    }
    let ws = open_at(&w, &w.root());
    let rows = ws.rows().unwrap();
    assert!(ws.check_all(&rows).unwrap().iter().all(|(_, why)| why.is_none()));
    for (n, (begun, ended)) in made.iter().enumerate() {
        assert!(rows.by_id(&begun.record.id).is_some());
        assert_eq!(rows.by_id(&ended.record.id).unwrap().record.turn, Some(n as u64 + 1));
    }
    for n in [0, ROUNDS / 2, ROUNDS - 1] {
        ws.restore(&made[n].1, &restore::Options::default(), &Control::default()).unwrap();
        assert_eq!(w.read("f"), format!("turn {}", n + 1));
    }
    let start = w.find("start").unwrap();
    w.restore(&start);
    assert_eq!(w.read("f"), "0");
}

#[test]
fn r138_a_cancelled_run_has_a_row_before_each_edit_that_was_made() {
    let w = World::new();
    for f in ["a", "b", "c"] {
        w.write(f, "0");
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "a", "1");
    s.write("c2", "a", "2");
    s.tool(true, "c3", &["b"]);
    // Cancelled before the tool wrote, and before two more edits.
    w.open().turn_end("s", None, "cancelled", &Control::default()).unwrap();
    let rows = w.open().rows().unwrap();
    let before: Vec<_> = rows
        .all
        .iter()
        .filter(|c| c.record.kind == Kind::Tool && c.record.phase.as_deref() == Some("before"))
        .collect();
    assert_eq!(before.len(), 3);
    for (row, text) in before.iter().zip(["0", "1"]) {
        let o = w.restore_with(row, restore::Options { force: true, ..Default::default() }).unwrap();
        assert_eq!(action(&o, "a").as_deref(), Some("overwrite"), "{:?}", items(&o));
        assert_eq!(w.read("a"), text);
        w.undo().unwrap();
        assert_eq!(w.read("a"), "2");
    }
    s.rewind("1");
    assert_eq!((w.read("a"), w.read("b")), ("0".into(), "0".into()));
}

#[test]
fn r37_every_commit_of_a_turn_and_every_turn_has_its_row() {
    let w = World::new();
    w.write("a", "0");
    repository(&w.root());
    let s = Agent { w: &w, id: "s" };
    let mut commits = Vec::new();
    s.begin("k1");
    for n in 1..=3 {
        s.shell(&format!("c{n}"), || {
            w.write("a", format!("{n}"));
            git(&w.root(), &["commit", "-q", "-a", "-m", "by the agent"]);
        });
        commits.push(git(&w.root(), &["rev-parse", "HEAD"]));
    }
    s.end();
    for n in 4..=5 {
        s.turn(&format!("k{n}"), "a", &format!("{n}"));
    }
    let rows = w.open().rows().unwrap();
    let text = |c: &Checkpoint| {
        let mut bytes = Vec::new();
        w.open().cat(c, "a".into(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let after = |turn| -> Vec<String> {
        let tools = rows.all.iter().filter(|c| c.record.phase.as_deref() == Some("after"));
        tools.filter(|c| c.record.turn == Some(turn)).map(text).collect()
    };
    assert_eq!(
        (after(1), after(2), after(3)),
        (vec!["1".into(), "2".into(), "3".into()], vec!["4".into()], vec!["5".into()])
    );
    let ends: Vec<String> = rows.all.iter().filter(|c| c.record.kind == Kind::Turn).map(text).collect();
    assert_eq!(ends, ["3", "4", "5"]);
    assert_eq!(git(&w.root(), &["rev-list", "HEAD"]).lines().count(), 4, "the user's history is the user's");
    assert_eq!(commits.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

//! The policy at work in a store: prunes, what they free, sessions deleted and taken back, and room under the budget.

use std::collections::BTreeSet;

use backstitch::{
    checkpoint,
    operation::OpKind,
    prune, record,
    record::{Checkpoint, Kind},
    retention::{self, Facts, Policy},
    undo,
    workspace::Control,
};
use backstitch_testkit::generate::noise;

use crate::{
    retention::{DAY, P},
    world::World,
};

fn record(w: &World, kind: Kind, session: &str) -> Checkpoint {
    let o = checkpoint::Options { kind, session: Some(session.to_owned()), ..Default::default() };
    w.record(o).unwrap().checkpoint.unwrap()
}

fn listed(w: &World) -> Vec<String> {
    w.open().rows().unwrap().all.iter().map(|c| c.record.id.clone()).collect()
}

fn in_days(days: i64) -> Option<i64> {
    Some(record::now_ms() + days * DAY)
}

#[test]
fn r139_the_saves_of_one_day_stay_and_come_back() {
    let w = World::new();
    let rows: Vec<Checkpoint> = (0..120)
        .map(|n| {
            w.write("a", format!("save {n}"));
            w.checkpoint()
        })
        .collect();
    let o = prune::Options { now_ms: in_days(400), ..Default::default() };
    assert_eq!(w.open().prune(&o, &Control::default()).unwrap().rows.len(), 0);
    for n in [0, 7, 60, 119] {
        w.restore(&rows[n]);
        assert_eq!(w.read("a"), format!("save {n}"));
    }
}

#[test]
fn s3_50_a_preview_moves_nothing_and_tells_the_same() {
    let w = World::new();
    for n in 0..4 {
        w.write("a", vec![n as u8; 40_000]);
        record(&w, Kind::Turn, "s");
    }
    w.write("a", "last");
    let kept = w.checkpoint();
    let before = listed(&w);
    let ws = w.open();
    let run = |dry_run| {
        ws.prune(&prune::Options { dry_run, now_ms: in_days(31), ..Default::default() }, &Control::default())
            .unwrap()
    };
    let told = run(true);
    assert_eq!(listed(&w), before);
    assert_eq!((told.rows.len(), told.operation.is_none(), told.dry_run), (4, true, true));
    assert_eq!(told.json()["candidates"][0]["why"], "session-age");
    let done = run(false);
    assert_eq!(listed(&w), [kept.record.id.as_str()]);
    let shape = |o: &prune::Outcome| {
        let mut v = o.json();
        for k in ["operation", "dry_run", "deleted"] {
            v.as_object_mut().unwrap().remove(k);
        }
        v
    };
    assert_eq!(shape(&told), shape(&done), "R135");
    assert_eq!(done.json()["deleted"].as_array().unwrap().len(), 4);
    assert_eq!(done.json()["classes"]["standard"]["rows"], 4);
    assert!(told.bytes > 0 && told.bytes == told.rows.iter().map(|p| p.bytes).sum::<u64>());
    // R22: what was removed comes back exactly.
    w.undo().unwrap();
    assert_eq!(listed(&w), before);
    w.redo().unwrap();
    assert_eq!(listed(&w).len(), 1);
    w.undo().unwrap();
    assert_eq!(listed(&w), before);
    // Nothing to do writes nothing.
    let operations = ws.operations().unwrap().len();
    let o = ws.prune(&prune::Options::default(), &Control::default()).unwrap();
    assert!(o.rows.is_empty() && o.operation.is_none());
    assert_eq!(ws.operations().unwrap().len(), operations);
    w.check_store();
}

#[test]
fn s0_67_the_cap_holds_by_itself_and_is_no_step_of_undo() {
    let mut w = World::new();
    w.set("BACKSTITCH_RETENTION_ROWS", "5");
    w.write("a", "one");
    let first = record(&w, Kind::SessionStart, "s");
    let manual = w.checkpoint();
    w.write("a", "two");
    w.restore(&first);
    let mut all = Vec::new();
    for _ in 0..12 {
        all.push(record(&w, Kind::Turn, "s").record.id.clone());
    }
    let left = listed(&w);
    assert!(left.contains(&first.record.id) && left.contains(&manual.record.id));
    let automatic: Vec<&String> = left.iter().filter(|id| all.contains(id)).collect();
    assert_eq!(automatic, all[7..].iter().collect::<Vec<_>>());
    // A session at its cap does not add an operation with each row.
    let prunes =
        |w: &World| w.open().operations().unwrap().iter().filter(|o| o.record.kind == OpKind::Prune).count();
    assert_eq!(prunes(&w), 1);
    // The next thing to take back is the restore.
    let o = w.undo().unwrap();
    assert!(!o.partial);
    assert_eq!(w.read("a"), "two");
    w.redo().unwrap();
    // Who wants them names the operation.
    let op = w.open().operations().unwrap().into_iter().find(|o| o.record.kind == OpKind::Prune).unwrap();
    let o = undo::Options { operation: Some(op.record.id.clone()), ..Default::default() };
    w.open().undo(&o, &Control::default()).unwrap();
    assert!(listed(&w).contains(&op.record.rows[0].0));
    w.check_store();
}

#[test]
fn what_the_policy_did_within_a_day_is_a_few_operations() {
    let mut w = World::new();
    w.set("BACKSTITCH_RETENTION_ROWS", "1");
    w.write("a", "one");
    let mut all = Vec::new();
    for _ in 0..37 {
        all.push(record(&w, Kind::Turn, "s").record.id.clone());
    }
    // The first and the newest are listed; thirty-five went.
    let ops = w.open().operations().unwrap();
    let counts: Vec<usize> = ops.iter().map(|o| o.record.rows.len()).collect();
    assert_eq!(counts, [32, 3]);
    let gone: Vec<&String> = ops.iter().flat_map(|o| o.record.rows.iter().map(|(id, _)| id)).collect();
    assert_eq!(gone, all[1..36].iter().collect::<Vec<_>>());
    // What a person had done in between is not mixed with it.
    w.open().delete(&[&w.find(&all[0]).unwrap()]).unwrap();
    record(&w, Kind::Turn, "s");
    record(&w, Kind::Turn, "s");
    let ops = w.open().operations().unwrap();
    assert_eq!(
        ops.iter().map(|o| o.record.kind).collect::<Vec<_>>(),
        [OpKind::Prune, OpKind::Prune, OpKind::Delete, OpKind::Prune]
    );
    // Each brings back what it took.
    let o = undo::Options { operation: Some(ops[0].record.id.clone()), ..Default::default() };
    w.open().undo(&o, &Control::default()).unwrap();
    let left = listed(&w);
    assert!(all[1..33].iter().all(|id| left.contains(id)) && !left.contains(&all[33]));
    w.check_store();
}

#[test]
fn a_deleted_fork_that_is_taken_back_is_as_before() {
    let w = World::new();
    w.write("a", "one");
    let from = record(&w, Kind::Turn, "parent");
    w.open().fork("fork", &from).unwrap();
    w.write("a", "two");
    record(&w, Kind::Turn, "fork");
    let shown = |w: &World| {
        let all = w.open().sessions().unwrap();
        all.into_iter().map(|s| (s.record.id.clone(), s.rows, s.record.extra.len())).collect::<BTreeSet<_>>()
    };
    let before = shown(&w);
    // A fork protects the row that it stands on; a deleted one does not.
    let keeps = |w: &World| {
        let ws = w.open();
        let (rows, sessions) = (ws.rows().unwrap(), ws.session_records().unwrap());
        let facts =
            Facts { rows: &rows.all, sessions: &sessions, operations: &[], now_ms: in_days(90).unwrap() };
        !retention::select(&facts, &P).iter().any(|(c, _)| c.record.id == from.record.id)
    };
    record(&w, Kind::Turn, "third");
    let before = {
        let mut b = before;
        b.insert(("third".into(), 1, 0));
        b
    };
    assert!(keeps(&w));
    w.open().session_delete("fork", false).unwrap();
    assert!(!keeps(&w));
    for _ in 0..2 {
        w.undo().unwrap();
        assert_eq!(shown(&w), before);
        assert!(keeps(&w));
        w.redo().unwrap();
        assert!(!keeps(&w) && shown(&w).len() == 2);
    }
}

#[test]
fn s2_43_expired_sessions_are_swept_at_the_next_row() {
    let w = World::new();
    w.write("a", "one");
    let old = record(&w, Kind::Turn, "old");
    let git = w.git_dir();
    let tree = crate::support::rev(&git, &format!("{}^{{tree}}", old.commit));
    crate::support::doctor(&w, &old, &tree, |r| r.created_ms -= 40 * DAY);
    // Swept today already: a count is all that a row costs.
    record(&w, Kind::Turn, "new");
    assert!(listed(&w).contains(&old.record.id));
    std::fs::remove_file(w.open().store().unwrap().state_dir().join("pruned")).unwrap();
    record(&w, Kind::Tool, "new");
    assert!(listed(&w).contains(&old.record.id), "never while a turn runs");
    record(&w, Kind::Turn, "new");
    assert!(!listed(&w).contains(&old.record.id));
}

#[test]
fn s0_70_pruning_never_fails_a_capture() {
    let mut w = World::new();
    w.set("BACKSTITCH_RETENTION_ROWS", "2");
    w.write("a", "one");
    for _ in 0..3 {
        record(&w, Kind::Turn, "s");
    }
    // Another process is at it.
    let store = w.open().store().unwrap().clone();
    let held = store.lock_exclusive("prune", std::time::Duration::from_secs(10)).unwrap();
    record(&w, Kind::Turn, "s");
    assert_eq!(listed(&w).len(), 4);
    drop(held);
    // A record that cannot be read stops it, and is a warning.
    let git = w.git_dir();
    let blob = crate::support::object(&git, "blob", b"x");
    let name = "refs/backstitch/operations/0123456789abcdef";
    crate::support::set_ref(&git, name, &blob);
    let o = checkpoint::Options { kind: Kind::Turn, session: Some("s".into()), ..Default::default() };
    let out = w.record(o).unwrap();
    assert!(
        out.checkpoint.is_some() && out.warnings.iter().any(|m| m.contains("pruned")),
        "{:?}",
        out.warnings
    );
    std::fs::remove_file(git.join(name)).unwrap();
    record(&w, Kind::Turn, "s");
    assert_eq!(listed(&w).len(), 3);
}

#[test]
fn sem30_an_interrupted_delete_is_undone_as_far_as_it_came() {
    let w = World::new();
    w.write("a", "one");
    let rows: Vec<Checkpoint> = (0..3).map(|_| w.checkpoint()).collect();
    let ws = w.open();
    ws.delete(&rows.iter().collect::<Vec<_>>()).unwrap();
    // As a kill between two refs leaves it: the last row is still listed.
    let git = w.git_dir();
    let last = &rows[2];
    std::fs::remove_file(git.join(format!("{}{}", record::TRASH, last.record.id))).unwrap();
    crate::support::set_ref(&git, &format!("{}{}", record::CHECKPOINTS, last.record.id), &last.commit);
    let o = w.undo().unwrap();
    assert!(!o.partial && o.warnings.is_empty(), "{:?}", o.warnings);
    assert_eq!(listed(&w).len(), 3);
}

#[test]
fn delete_tells_of_a_row_that_changed_since_it_was_read() {
    let w = World::new();
    w.write("a", "one");
    let stale = w.checkpoint();
    w.open().pin(&stale, true).unwrap();
    let e = w.open().delete(&[&stale]).unwrap_err();
    assert_eq!(e.code, backstitch::error::Code::Busy);
    assert_eq!(listed(&w), [stale.record.id.as_str()]);
    assert!(w.open().operations().unwrap().is_empty());
}

#[test]
fn r50_r57_what_is_told_is_what_is_freed() {
    let w = World::new();
    let mut large = 0;
    for n in 0..100 {
        w.write("build/out", noise(40_000, n + 1));
        w.write("src/main.rs", format!("fn main() {{ step({n}) }}\n"));
        let kind = if n % 10 == 9 { Kind::Manual } else { Kind::Turn };
        record(&w, kind, "s");
        large += u64::from(kind == Kind::Turn) * 40_000;
    }
    let ws = w.open();
    let policy = Some(Policy { rows: 1, ..P });
    let now_ms = in_days(31);
    let told = ws.prune(&prune::Options { dry_run: true, now_ms, policy }, &Control::default()).unwrap();
    assert_eq!(told.rows.len(), 90);
    ws.prune(&prune::Options { now_ms, policy, ..Default::default() }, &Control::default()).unwrap();
    let store = ws.store().unwrap();
    let before = store.disk_usage().unwrap().total;
    // Collecting by a person empties the trash.
    let trash: Vec<backstitch_store::Edit> = store
        .refs()
        .list(record::TRASH)
        .unwrap()
        .into_iter()
        .map(|(name, _)| backstitch_store::Edit { name, expect: backstitch_store::Expect::Any, new: None })
        .collect();
    store.refs().apply(&trash).unwrap();
    store.consolidate(&Default::default()).unwrap();
    let packed = store.disk_usage().unwrap().total;
    store.collect(std::time::Duration::ZERO, &[], &Default::default()).unwrap();
    let freed = packed - store.disk_usage().unwrap().total;
    let off = freed.abs_diff(told.bytes) as f64 / freed as f64;
    assert!(off < 0.05, "told {}, freed {freed}", told.bytes);
    assert!(freed * 10 >= large * 8 && before > packed, "R57: {freed} of {large}");
    assert_eq!(listed(&w).len(), 10);
    w.check_store();
}

#[test]
fn r48_over_budget_the_oldest_go_and_the_newest_and_pinned_stay() {
    let mut w = World::new();
    w.set("BACKSTITCH_BUDGET", "6MiB");
    let mut ids = Vec::new();
    for n in 0..20 {
        w.write("big", noise(1 << 20, n + 1));
        let o = checkpoint::Options { pin: n == 1, ..Default::default() };
        ids.push(w.record(o).unwrap().checkpoint.unwrap().record.id.clone());
        let used = w.open().store().unwrap().disk_usage().unwrap().total;
        assert!(used < (6 << 20) + (3 << 19), "row {n}: {used}");
    }
    let left = listed(&w);
    assert!(left.contains(&ids[1]) && left.contains(&ids[19]) && left.contains(&ids[18]));
    assert!(!left.contains(&ids[0]) && !left.contains(&ids[2]) && left.len() >= 4, "{}", left.len());
    for id in [&ids[1], &ids[19]] {
        let c = w.find(id).unwrap();
        assert_eq!(w.open().check(&c).unwrap(), None);
    }
    // What cannot be reached costs nothing: it is refused with every row in place.
    let budget = w.surroundings.settings.clone();
    w.set("BACKSTITCH_BUDGET", "100KiB");
    assert_eq!(
        w.record(checkpoint::Options::default()).unwrap_err().code,
        backstitch::error::Code::OverBudget
    );
    assert_eq!(listed(&w), left);
    w.surroundings.settings = budget;
    // Pinned rows alone over the budget: refused, with the way out.
    for id in &left {
        w.open().pin(&w.find(id).unwrap(), true).unwrap();
    }
    w.set("BACKSTITCH_BUDGET", "1MiB");
    let e = w.record(checkpoint::Options::default()).unwrap_err();
    assert_eq!(e.code, backstitch::error::Code::OverBudget);
    assert!(e.hint.unwrap().contains("unpin"));
    assert_eq!(listed(&w), left);
    w.check_store();
}

#[test]
fn over_budget_the_trash_goes_first() {
    let mut w = World::new();
    let mut rows = Vec::new();
    for n in 0..4 {
        w.write("big", noise(1 << 20, n + 1));
        rows.push(w.checkpoint());
    }
    w.open().delete(&[&rows[0], &rows[1]]).unwrap();
    w.set("BACKSTITCH_BUDGET", "4MiB");
    w.write("small", "x");
    w.checkpoint();
    assert_eq!(listed(&w)[..2], [rows[2].record.id.clone(), rows[3].record.id.clone()]);
    // The delete is still known, and says that nothing can bring the rows back.
    let op = w.open().operations().unwrap()[0].record.id.clone();
    let e = w.open().undo(&undo::Options { operation: Some(op), ..Default::default() }, &Control::default());
    assert_eq!(e.unwrap_err().code, backstitch::error::Code::NoSuchCheckpoint);
}

#[test]
fn what_cannot_be_read_may_be_what_keeps_the_others() {
    let w = World::new();
    w.write("a", "one");
    let rows: Vec<_> = (0..3).map(|_| record(&w, Kind::Turn, "s")).collect();
    let ws = w.open();
    let name = format!("git/refs/backstitch/checkpoints/{}", rows[1].record.id);
    let path = ws.store_dir().join(name);
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, "no id\n").unwrap();
    let before = listed(&w);
    assert_eq!(before.len(), 2);
    let options = prune::Options { now_ms: in_days(31), ..Default::default() };
    let e = ws.prune(&options, &Control::default()).unwrap_err();
    assert_eq!(e.code, backstitch::error::Code::StoreDamaged);
    assert!(e.message.contains(&rows[1].record.id), "{e}");
    assert_eq!(listed(&w), before);
    std::fs::write(&path, sound).unwrap();
    assert_eq!(ws.prune(&options, &Control::default()).unwrap().rows.len(), 2);
}

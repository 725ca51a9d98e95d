//! What the policy lets go, and that nothing else goes.

use std::collections::{BTreeMap, BTreeSet};

use backstitch::{
    checkpoint,
    operation::{OpKind, OpState, Operation},
    prune, record,
    record::{Checkpoint, Kind, Retention},
    retention::{self, Facts, Policy, Why},
    session::SessionRecord,
    undo,
    workspace::Control,
};
use backstitch_store::Oid;
use proptest::prelude::*;
use serde_json::json;

use crate::world::World;

const DAY: i64 = 86_400_000;
const NOW: i64 = 1_000 * DAY;

/// A row as far as the policy looks at it.
#[derive(Clone, Debug)]
struct R {
    kind: Kind,
    session: u8,
    /// Days before now.
    age: i64,
    class: Retention,
    pinned: bool,
    turn: Option<u64>,
}

fn r(kind: Kind, age: i64) -> R {
    let class =
        if matches!(kind, Kind::Manual | Kind::Safety) { Retention::Forensic } else { Retention::Standard };
    R { kind, session: 0, age, class, pinned: false, turn: None }
}

fn id(n: usize) -> String {
    format!("r{n:04}")
}

fn rows(list: &[R]) -> Vec<Checkpoint> {
    let null = Oid::from_hex(&[b'1'; 40]).unwrap();
    list.iter()
        .enumerate()
        .map(|(n, r)| {
            let record = serde_json::from_value(json!({
                "v": 1, "id": id(n), "seq": n + 1, "kind": r.kind, "session": format!("s{}", r.session),
                "turn": r.turn, "created_ms": NOW - r.age * DAY, "state": "complete", "unchanged": false,
                "summary": {"added": 1, "modified": 0, "deleted": 0, "renamed": 0}, "files": 1, "skipped_total": 0,
                "skipped": [], "scope": "workspace", "retention": r.class, "pinned": r.pinned,
                "incarnation": {"dev": 1, "ino": 1}, "written": 0,
            }))
            .unwrap();
            Checkpoint { record, commit: null, tree: null }
        })
        .collect()
}

fn operation(n: u64, kind: OpKind, age: i64, session: Option<&str>) -> Operation {
    let null = Oid::from_hex(&[b'1'; 40]).unwrap();
    let record = serde_json::from_value(json!({
        "v": 1, "id": format!("o{n:04}"), "seq": n, "kind": kind, "state": OpState::Done, "target": "x",
        "session": session, "plan": "", "created_ms": NOW - age * DAY, "changed": 1, "at": 1_000_000,
    }))
    .unwrap();
    Operation { record, commit: null, tree: null }
}

type Sessions = BTreeMap<String, SessionRecord>;

fn gone_with(
    list: &[R],
    sessions: &Sessions,
    operations: &[Operation],
    policy: &Policy,
) -> Vec<(usize, Why)> {
    let rows = rows(list);
    let facts = Facts { rows: &rows, sessions, operations, now_ms: NOW };
    retention::select(&facts, policy)
        .into_iter()
        .map(|(c, why)| (c.record.id[1..].parse().unwrap(), why))
        .collect()
}

fn gone(list: &[R], policy: &Policy) -> Vec<(usize, Why)> {
    gone_with(list, &Sessions::new(), &[], policy)
}

fn ids(list: &[(usize, Why)]) -> Vec<usize> {
    list.iter().map(|(n, _)| *n).collect()
}

const P: Policy = Policy { days: 30, short_days: 7, rows: 100 };

#[test]
fn s0_67_at_most_a_hundred_automatic_rows_the_oldest_go_first() {
    let mut list = vec![r(Kind::SessionStart, 1)];
    for _ in 0..60 {
        list.push(r(Kind::Prompt, 1));
        list.push(r(Kind::Turn, 1));
    }
    // The session's first row stays; of the other 120 the oldest 20 go.
    let out = gone(&list, &P);
    assert_eq!(ids(&out), (1..=20).collect::<Vec<_>>());
    assert!(out.iter().all(|(_, w)| *w == Why::Cap));
    assert_eq!(gone(&list, &Policy { rows: 1000, ..P }), []);
    assert_eq!(gone(&list, &Policy { rows: 3, ..P }).len(), 117);
}

#[test]
fn d11_pinned_manual_safety_and_forensic_rows_and_the_first_are_outside_the_cap() {
    let policy = Policy { rows: 2, ..P };
    let mut list = vec![r(Kind::Turn, 1)];
    let pinned = R { pinned: true, ..r(Kind::Turn, 1) };
    let forensic = R { class: Retention::Forensic, ..r(Kind::Turn, 1) };
    list.extend([pinned, r(Kind::Manual, 1), r(Kind::Safety, 1), forensic]);
    list.extend([r(Kind::Turn, 1), r(Kind::Tool, 1), r(Kind::AgentRun, 1), r(Kind::Turn, 1)]);
    assert_eq!(ids(&gone(&list, &policy)), [5, 6]);
    // Another session has its own.
    let mut two = list.clone();
    two.extend(list.iter().map(|x| R { session: 1, ..x.clone() }));
    assert_eq!(ids(&gone(&two, &policy)), [5, 6, 14, 15]);
}

#[test]
fn s0_69_a_session_goes_whole_thirty_days_after_its_last_activity() {
    let old = |age| vec![r(Kind::Turn, age), r(Kind::Safety, age), r(Kind::Prompt, age)];
    let mut list = old(40);
    // Somebody else's row is the newest.
    list.push(R { session: 1, ..r(Kind::Turn, 0) });
    assert_eq!(ids(&gone(&list, &P)), [0, 1, 2]);
    assert_eq!(gone(&list, &Policy { days: 40, ..P }), [], "the days are a parameter");
    // One recent row keeps all.
    let mut kept = old(40);
    kept.push(r(Kind::Turn, 29));
    kept.push(R { session: 1, ..r(Kind::Turn, 0) });
    assert_eq!(gone(&kept, &P), []);
    // A restore is activity as well; moving rows to the trash is not.
    let none = Sessions::new();
    assert_eq!(gone_with(&list, &none, &[operation(1, OpKind::Restore, 3, Some("s0"))], &P), []);
    let mut of_row = operation(1, OpKind::Restore, 3, None);
    of_row.record.target = id(0);
    assert_eq!(gone_with(&list, &none, &[of_row], &P), []);
    assert_eq!(gone_with(&list, &none, &[operation(1, OpKind::Delete, 3, Some("s0"))], &P).len(), 3);
    // What a person pinned or recorded stays.
    list[0].pinned = true;
    list[2] = r(Kind::Manual, 40);
    assert_eq!(ids(&gone(&list, &P)), [1]);
}

#[test]
fn a_fork_keeps_what_it_stands_on() {
    let list =
        vec![r(Kind::Prompt, 90), r(Kind::Turn, 90), r(Kind::Turn, 90), R { session: 2, ..r(Kind::Turn, 0) }];
    assert_eq!(ids(&gone(&list, &P)), [0, 1, 2]);
    let fork = |age: i64, ended| {
        let s = SessionRecord {
            id: "fork".into(),
            parent: Some("s0".into()),
            fork_row: Some(id(1)),
            fork_seq: 2,
            created_ms: NOW - age * DAY,
            ended,
            ..SessionRecord::default()
        };
        Sessions::from([("fork".to_owned(), s)])
    };
    assert_eq!(gone_with(&list, &fork(3, false), &[], &P), [], "its activity is its parent's");
    assert_eq!(ids(&gone_with(&list, &fork(60, false), &[], &P)), [0, 2], "the fork's own row stays");
    assert_eq!(ids(&gone_with(&list, &fork(60, true), &[], &P)), [0, 1, 2]);
}

#[test]
fn s3_48_the_class_short_has_an_age_of_its_own() {
    let short = |age| R { class: Retention::Short, ..r(Kind::Manual, age) };
    let list = vec![short(9), short(8), short(6), r(Kind::Manual, 9), r(Kind::Turn, 0)];
    assert_eq!(gone(&list, &P), [(0, Why::Class), (1, Why::Class)]);
    assert_eq!(ids(&gone(&list, &Policy { short_days: 1, ..P })), [0, 1, 2]);
}

#[test]
fn d13_twenty_safety_rows_and_all_of_a_week() {
    let mut list: Vec<R> = (0..25).map(|_| r(Kind::Safety, 8)).collect();
    list.push(r(Kind::Turn, 0));
    assert_eq!(ids(&gone(&list, &P)), [0, 1, 2, 3, 4]);
    let mut young: Vec<R> = (0..25).map(|_| r(Kind::Safety, 6)).collect();
    young.push(r(Kind::Turn, 0));
    assert_eq!(gone(&young, &P), []);
}

#[test]
fn an_open_turn_and_the_newest_row_stay() {
    let policy = Policy { rows: 1, ..P };
    let turn = |kind, age| R { turn: Some(7), ..r(kind, age) };
    let list = |age| {
        vec![
            r(Kind::SessionStart, age),
            r(Kind::Turn, age),
            turn(Kind::Prompt, age),
            turn(Kind::Tool, age),
            turn(Kind::Tool, age),
            R { session: 1, ..r(Kind::Turn, 0) },
        ]
    };
    assert_eq!(ids(&gone(&list(0), &policy)), [1], "its windows are needed");
    assert_eq!(ids(&gone(&list(2), &policy)), [1, 2, 3], "nobody was there for a day");
    let ended = Sessions::from([(
        "s0".to_owned(),
        SessionRecord { id: "s0".into(), ended: true, ..SessionRecord::default() },
    )]);
    assert_eq!(ids(&gone_with(&list(0), &ended, &[], &policy)), [1, 2, 3]);
    // Nothing but old rows: the newest stays, and the newest that can be gone back to.
    let old = vec![r(Kind::Turn, 90), r(Kind::Turn, 90), r(Kind::Safety, 90), r(Kind::Safety, 90)];
    assert_eq!(ids(&gone(&old, &P)), [0, 2]);
}

#[test]
fn sem18_operations_are_kept_thirty_days_and_a_hundred_of_them() {
    let which = |ops: &[Operation], rows: &[Checkpoint], days| -> Vec<u64> {
        let facts = Facts { rows, sessions: &Sessions::new(), operations: ops, now_ms: NOW };
        retention::operations(&facts, &Policy { days, ..P }).iter().map(|o| o.record.seq).collect()
    };
    let old: Vec<Operation> = (1..=103).map(|n| operation(n, OpKind::Restore, 31, None)).collect();
    assert_eq!(which(&old, &[], 30), [1, 2, 3]);
    assert_eq!(which(&old, &[], 1), [1, 2, 3], "never less than that");
    assert_eq!(which(&old, &[], 40), [] as [u64; 0], "a longer promise holds for them too");
    let young: Vec<Operation> = (1..=103).map(|n| operation(n, OpKind::Restore, 29, None)).collect();
    assert_eq!(which(&young, &[], 30), [] as [u64; 0]);
    // A rewind says that turns were left, as long as they are listed; what took it back goes with it or stays with it.
    let mut ops = old.clone();
    ops[0] = operation(1, OpKind::Rewind, 31, Some("s0"));
    ops[0].record.takes_back = vec![4];
    ops[1] = operation(2, OpKind::Undo, 31, Some("s0"));
    ops[1].record.inverts = Some("o0001".into());
    let turn = rows(&[R { turn: Some(4), ..r(Kind::Turn, 1) }]);
    assert_eq!(which(&ops, &turn, 30), [3]);
    assert_eq!(which(&ops, &[], 30), [1, 2, 3]);
    // What the policy did by itself does not count among the hundred.
    let mut more = old.clone();
    for n in 104..150 {
        let mut o = operation(n, OpKind::Prune, 29, None);
        o.record.extra.insert("automatic".into(), true.into());
        more.push(o);
    }
    assert_eq!(which(&more, &[], 30), [1, 2, 3]);
    ops[2].record.state = OpState::Running;
    assert_eq!(which(&ops, &[], 30), [1, 2]);
}

#[test]
fn r48_room_is_made_by_the_oldest_of_the_shortest_lived() {
    let list = [
        r(Kind::Manual, 9),
        r(Kind::Turn, 8),
        R { pinned: true, ..r(Kind::Turn, 8) },
        r(Kind::Safety, 7),
        R { class: Retention::Short, ..r(Kind::Turn, 1) },
        r(Kind::Manual, 1),
        r(Kind::Turn, 0),
    ];
    let rows = rows(&list);
    let facts = Facts { rows: &rows, sessions: &Sessions::new(), operations: &[], now_ms: NOW };
    let order: Vec<&str> = retention::for_room(&facts).iter().map(|c| c.record.id.as_str()).collect();
    assert_eq!(order, [id(4), id(1), id(3), id(0), id(5)]);
}

/// The same rules told row by row, without any regard for cost.
fn model(list: &[R], policy: &Policy) -> BTreeSet<usize> {
    let counted = |r: &R| matches!(r.kind, Kind::SessionStart | Kind::Prompt | Kind::Turn | Kind::Manual);
    let newest = list.len().checked_sub(1);
    let usable = list.iter().rposition(counted);
    let safe = |n: usize| list[n].pinned || Some(n) == newest || Some(n) == usable;
    let mut out = BTreeSet::new();
    for s in 0..3u8 {
        let of: Vec<usize> = (0..list.len()).filter(|n| list[*n].session == s).collect();
        let last = of.iter().map(|n| list[*n].age).min().unwrap_or(0);
        for &n in &of {
            let r = &list[n];
            let whole =
                last > policy.days as i64 && (r.class != Retention::Forensic || r.kind == Kind::Safety);
            let class = r.class == Retention::Short && r.age > policy.short_days as i64;
            if (whole || class) && !safe(n) {
                out.insert(n);
            }
        }
        let automatic = |n: &usize| {
            let r = &list[*n];
            !matches!(r.kind, Kind::Manual | Kind::Safety) && !r.pinned && r.class != Retention::Forensic
        };
        loop {
            let now: Vec<usize> = of
                .iter()
                .copied()
                .filter(|n| automatic(n) && Some(n) != of.first() && !out.contains(n))
                .collect();
            let Some(oldest) = now.iter().find(|n| !safe(**n)) else { break };
            if now.len() as u64 <= policy.rows {
                break;
            }
            out.insert(*oldest);
        }
        loop {
            let now: Vec<usize> =
                of.iter().copied().filter(|n| list[*n].kind == Kind::Safety && !out.contains(n)).collect();
            let older = now.len().saturating_sub(20);
            let Some(n) = now[..older].iter().copied().find(|n| list[*n].age > 7 && !safe(*n)) else { break };
            out.insert(n);
        }
    }
    out
}

fn any_row() -> impl Strategy<Value = R> {
    let kind = prop::sample::select(Kind::ALL);
    let class = prop::sample::select(&[Retention::Short, Retention::Standard, Retention::Forensic][..]);
    (kind, 0u8..3, 0i64..60, class, prop::bool::weighted(0.1))
        .prop_map(|(kind, session, age, class, pinned)| R { kind, session, age, class, pinned, turn: None })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Open turns are left out: they have a test of their own.
    #[test]
    fn the_policy_is_its_model(
        mut list in prop::collection::vec(any_row(), 0..120),
        days in 1u64..50, short_days in 1u64..20, cap in 1u64..30,
    ) {
        for r in &mut list {
            if r.kind == Kind::Prompt {
                r.kind = Kind::Turn;
            }
        }
        let policy = Policy { days, short_days, rows: cap };
        let out: BTreeSet<usize> = ids(&gone(&list, &policy)).into_iter().collect();
        prop_assert_eq!(&out, &model(&list, &policy));
        prop_assert!(list.iter().enumerate().all(|(n, r)| !r.pinned || !out.contains(&n)));
        prop_assert!(list.is_empty() || !out.contains(&(list.len() - 1)), "the newest stays");
    }
}

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
        all.push(record(&w, Kind::Turn, "s").record.id);
    }
    let left = listed(&w);
    assert!(left.contains(&first.record.id) && left.contains(&manual.record.id));
    let automatic: Vec<&String> = left.iter().filter(|id| all.contains(id)).collect();
    assert_eq!(automatic, all[7..].iter().collect::<Vec<_>>());
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

/// Bytes that no compression shortens.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .collect()
}

#[test]
fn r50_r57_what_is_told_is_what_is_freed() {
    let w = World::new();
    let mut large = 0;
    for n in 0..100 {
        w.write("build/out", noise(n + 1, 40_000));
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
        w.write("big", noise(n + 1, 1 << 20));
        let o = checkpoint::Options { pin: n == 1, ..Default::default() };
        ids.push(w.record(o).unwrap().checkpoint.unwrap().record.id);
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
        w.write("big", noise(n + 1, 1 << 20));
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

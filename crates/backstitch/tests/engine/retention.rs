//! What the policy lets go, and that nothing else goes: rows as lists, without a store.

use std::collections::{BTreeMap, BTreeSet};

use backstitch::{
    operation::{OpKind, OpState, Operation},
    record::{Checkpoint, Kind, Retention},
    retention::{self, Facts, Policy, Why},
    session::SessionRecord,
};
use backstitch_store::Oid;
use proptest::prelude::*;
use serde_json::json;

pub const DAY: i64 = 86_400_000;
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
            let record: backstitch::record::Record = serde_json::from_value(json!({
                "v": 1, "id": id(n), "seq": n + 1, "kind": r.kind, "session": format!("s{}", r.session),
                "turn": r.turn, "created_ms": NOW - r.age * DAY, "state": "complete", "unchanged": false,
                "summary": {"added": 1, "modified": 0, "deleted": 0, "renamed": 0}, "files": 1, "skipped_total": 0,
                "skipped": [], "scope": "workspace", "retention": r.class, "pinned": r.pinned,
                "incarnation": {"dev": 1, "ino": 1}, "written": 0,
            }))
            .unwrap();
            Checkpoint { record: record.into(), commit: null, tree: null }
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

pub const P: Policy = Policy { days: 30, short_days: 7, rows: 100 };

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
fn d11_windows_of_tools_do_not_count_and_go_with_their_turns() {
    let mut list = vec![r(Kind::SessionStart, 1)];
    let mut number = |kind, turn| {
        list.push(R { turn: Some(turn), ..r(kind, 1) });
        list.len() - 1
    };
    let mut last_of = Vec::new();
    for turn in 0..40 {
        number(Kind::Prompt, turn);
        for _ in 0..6 {
            number(Kind::Tool, turn);
        }
        number(Kind::AgentRun, turn);
        last_of.push(number(Kind::Turn, turn));
    }
    // Eighty ends of turns: all of their windows stay too.
    assert_eq!(gone(&list, &P), []);
    // Of the six last turns nothing goes, of the others everything.
    assert_eq!(ids(&gone(&list, &Policy { rows: 12, ..P })), (1..=last_of[33]).collect::<Vec<_>>());
    // A host that tells of no turns has its windows counted.
    let bare: Vec<R> = (0..10).map(|_| r(Kind::Tool, 1)).collect();
    assert_eq!(ids(&gone(&bare, &Policy { rows: 4, ..P })), [1, 2, 3, 4, 5]);
    // Nothing goes for the sake of windows alone.
    let one: Vec<R> = (0..300).map(|_| R { turn: Some(1), ..r(Kind::Tool, 1) }).collect();
    assert_eq!(gone(&one, &P), []);
}

#[test]
fn r139_a_thousand_saves_of_one_day_all_stay_and_an_agents_first_and_last() {
    // What a person records does not go by count or age.
    let mut list: Vec<R> = (0..1000).map(|_| r(Kind::Manual, 29)).collect();
    list.push(R { session: 1, ..r(Kind::Turn, 0) });
    assert_eq!(gone(&list, &P), []);
    assert_eq!(gone(&list, &Policy { days: 1, ..P }), []);
    // Of what an agent's turns record, the way back to its beginning and the newest hundred.
    let turns: Vec<R> = (0..1000).map(|_| r(Kind::Turn, 1)).collect();
    let left: Vec<usize> = (0..1000).filter(|n| !ids(&gone(&turns, &P)).contains(n)).collect();
    assert_eq!(left, std::iter::once(0).chain(900..1000).collect::<Vec<_>>());
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
    // A week is a week to the end.
    let mut week: Vec<R> = (0..25).map(|_| r(Kind::Safety, 7)).collect();
    week.push(r(Kind::Turn, 0));
    assert_eq!(gone(&week, &P), []);
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
            // Of another branch, say.
            r(Kind::Turn, age),
            r(Kind::Turn, age),
            R { session: 1, ..r(Kind::Turn, 0) },
        ]
    };
    assert_eq!(ids(&gone(&list(0), &policy)), [1, 5, 6], "its windows are needed");
    assert_eq!(ids(&gone(&list(2), &policy)), [1, 2, 3, 4, 5], "nobody was there for a day");
    let ended = Sessions::from([(
        "s0".to_owned(),
        SessionRecord { id: "s0".into(), ended: true, ..SessionRecord::default() },
    )]);
    assert_eq!(ids(&gone_with(&list(0), &ended, &[], &policy)), [1, 2, 3, 4, 5]);
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
    // Rows of other sessions, of other turns, and later ones say nothing of it.
    let theirs = R { session: 1, turn: Some(4), ..r(Kind::Turn, 1) };
    let of_another = R { turn: Some(5), ..r(Kind::Turn, 1) };
    let later = R { turn: Some(4), ..r(Kind::Turn, 1) };
    for (row, at) in [(theirs, 1_000_000), (of_another, 1_000_000), (later, 1)] {
        ops[0].record.at = at;
        assert_eq!(which(&ops, &rows(&[row]), 30), [1, 2, 3]);
    }
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

//! Which rows and operations the policy lets go. Pure: facts in, candidates out; [`crate::prune`] carries it out.
//!
//! One engine for everything that goes by itself: the age of a session, the ages of classes, the cap of automatic rows,
//! the own limit of safety rows, and, where room is needed, the order in which rows make it. Never a candidate: a pinned
//! row, the newest row, what an active session or a fork stands on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    operation::{OpKind, OpState, Operation},
    record::{Checkpoint, Kind, Retention},
    session::{SessionRecord, open_turn},
    settings::Settings,
    trash,
};

const DAY_MS: i64 = 86_400_000;
/// Safety rows kept per session whatever their age.
const SAFETY_ROWS: usize = 20;
/// Safety rows younger than this are kept however many there are.
const SAFETY_MS: i64 = 7 * DAY_MS;
/// A turn that is open and was active within this time needs all its rows.
const OPEN_MS: i64 = DAY_MS;
/// Undo reaches at least this far, in days and in operations (SEMANTICS 18).
const OPERATION_DAYS: u64 = 30;
const OPERATIONS: usize = 100;

/// How long rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Days after the last activity of a session, after which it goes as a whole.
    pub days: u64,
    /// Days of rows of the class `short`.
    pub short_days: u64,
    /// Automatic rows kept per session; what lies inside a turn goes with its turn, and does not count.
    pub rows: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { days: 30, short_days: 7, rows: 100 }
    }
}

impl Policy {
    /// From the settings in force.
    pub fn of(s: &Settings) -> Policy {
        Policy {
            days: s.int("retention.days"),
            short_days: s.int("retention.short_days"),
            rows: s.int("retention.rows"),
        }
    }
}

/// Why a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its session was not active for too long.
    Session,
    /// It is older than its class is kept.
    Class,
    /// There are more automatic rows in its session than are kept.
    Cap,
    /// There are newer safety rows, and it is no longer young.
    Safety,
    /// The store has to become smaller.
    Budget,
}

impl Why {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Session => "session-age",
            Why::Class => "class-age",
            Why::Cap => "cap",
            Why::Safety => "safety-limit",
            Why::Budget => "budget",
        }
    }
}

/// All that the policy looks at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Oldest first.
    pub rows: &'a [Checkpoint],
    /// Records of sessions, by id.
    pub sessions: &'a BTreeMap<String, SessionRecord>,
    /// Oldest first.
    pub operations: &'a [Operation],
    /// The clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// Made by a host, not by a person, and not for a restore.
fn is_automatic(c: &Checkpoint) -> bool {
    !matches!(c.record.kind, Kind::Manual | Kind::Safety)
}

/// A window of a tool or a sub-agent's end inside a turn: it is as good as the rows of its turn, and goes with them.
fn is_inside_turn(c: &Checkpoint) -> bool {
    matches!(c.record.kind, Kind::Tool | Kind::AgentRun) && c.record.turn.is_some()
}

/// May go where a session has too many, and counts as one of them unless it is [inside a turn](is_inside_turn).
fn is_capped(c: &Checkpoint) -> bool {
    is_automatic(c) && !c.record.pinned && c.record.retention != Retention::Forensic
}

/// How many of these rows of one session the cap counts; its first row is one of them here.
pub(crate) fn counted<'a>(own: impl Iterator<Item = &'a Checkpoint>) -> usize {
    own.filter(|c| is_capped(c) && !is_inside_turn(c)).count()
}

fn age_is_over(now_ms: i64, since_ms: i64, days: u64) -> bool {
    let days = i64::try_from(days).unwrap_or(i64::MAX);
    now_ms.saturating_sub(since_ms) > days.saturating_mul(DAY_MS)
}

type SessionId<'a> = Option<&'a str>;

fn by_session(rows: &[Checkpoint]) -> BTreeMap<SessionId<'_>, Vec<&Checkpoint>> {
    let mut out: BTreeMap<SessionId<'_>, Vec<&Checkpoint>> = BTreeMap::new();
    for c in rows {
        out.entry(c.record.session.as_deref()).or_default().push(c);
    }
    out
}

impl<'a> Facts<'a> {
    /// When each session last did something: its newest row, its newest operation, an operation that went to one of its
    /// rows, and whatever its forks did, because their lines stand on its rows.
    fn activity(&self) -> HashMap<SessionId<'a>, i64> {
        let mut last: HashMap<SessionId<'a>, i64> = HashMap::new();
        let mut note = |s: SessionId<'a>, ms: i64| {
            let at = last.entry(s).or_insert(i64::MIN);
            *at = (*at).max(ms);
        };
        let mut of_row: HashMap<&str, SessionId<'a>> = HashMap::new();
        for c in self.rows {
            of_row.insert(&c.record.id, c.record.session.as_deref());
            note(c.record.session.as_deref(), c.record.created_ms);
        }
        for o in self.operations.iter().filter(|o| is_work(o.record.kind)) {
            note(o.record.session.as_deref(), o.record.created_ms);
            if let Some(s) = of_row.get(o.record.target.as_str()) {
                note(*s, o.record.created_ms);
            }
        }
        for s in self.sessions.values() {
            let mut at = s;
            let mut seen = BTreeSet::new();
            let ms = last.get(&Some(s.id.as_str())).copied().unwrap_or(s.created_ms);
            while let Some(parent) = at.parent.as_deref().filter(|p| seen.insert(p.to_string())) {
                let known = last.entry(Some(parent)).or_insert(i64::MIN);
                *known = (*known).max(ms);
                match self.sessions.get(parent) {
                    Some(p) => at = p,
                    None => break,
                }
            }
        }
        last
    }

    /// Rows that nothing lets go.
    fn protected(&self) -> HashSet<&'a str> {
        let mut out: HashSet<&str> =
            self.rows.iter().filter(|c| c.record.pinned).map(|c| c.record.id.as_str()).collect();
        out.extend(self.rows.last().map(|c| c.record.id.as_str()));
        // The newest that can be gone back to, which may not be the newest.
        let usable = |c: &&Checkpoint| c.record.kind.is_counted() && c.record.is_restorable();
        out.extend(self.rows.iter().rev().find(usable).map(|c| c.record.id.as_str()));
        out.extend(
            self.sessions
                .values()
                .filter(|s| !s.ended && !s.was_deleted())
                .filter_map(|s| s.fork_row.as_deref()),
        );
        for own in by_session(self.rows).values() {
            let (Some(begun), Some(last)) = (open_turn(own), own.last()) else { continue };
            let ended =
                begun.record.session.as_ref().and_then(|s| self.sessions.get(s)).is_some_and(|s| s.ended);
            if !ended && self.now_ms.saturating_sub(last.record.created_ms) <= OPEN_MS {
                out.extend(
                    own.iter().filter(|c| c.record.turn == begun.record.turn).map(|c| c.record.id.as_str()),
                );
            }
        }
        out
    }
}

/// Rows that go, oldest first, each with the first reason that holds.
pub fn select<'a>(facts: &Facts<'a>, policy: &Policy) -> Vec<(&'a Checkpoint, Why)> {
    let keep = facts.protected();
    let activity = facts.activity();
    let mut out: Vec<(&Checkpoint, Why)> = Vec::new();
    for (session, own) in by_session(facts.rows) {
        let last = activity.get(&session).copied().unwrap_or(i64::MAX);
        let over = age_is_over(facts.now_ms, last, policy.days);
        let mut left: Vec<&Checkpoint> = Vec::new();
        for c in own.iter().copied() {
            let r = &c.record;
            let why = if over && (r.retention != Retention::Forensic || r.kind == Kind::Safety) {
                Some(Why::Session)
            } else if r.retention == Retention::Short
                && age_is_over(facts.now_ms, r.created_ms, policy.short_days)
            {
                Some(Why::Class)
            } else {
                None
            };
            match why.filter(|_| !keep.contains(r.id.as_str())) {
                Some(why) => out.push((c, why)),
                None => left.push(c),
            }
        }
        // Protected rows count, and are not taken.
        let first = own.first().map(|c| c.record.id.as_str());
        let free = |c: &&Checkpoint| !keep.contains(c.record.id.as_str());
        let capped: Vec<&Checkpoint> =
            left.iter().copied().filter(|c| is_capped(c) && Some(c.record.id.as_str()) != first).collect();
        let ends: Vec<&Checkpoint> = capped.iter().copied().filter(|c| !is_inside_turn(c)).collect();
        let excess = ends.len().saturating_sub(usize::try_from(policy.rows).unwrap_or(usize::MAX));
        let going: HashSet<&str> =
            ends.into_iter().filter(free).take(excess).map(|c| c.record.id.as_str()).collect();
        // Windows as old as the newest of these have lost their turns.
        let edge = capped.iter().rposition(|c| going.contains(c.record.id.as_str())).map_or(0, |n| n + 1);
        out.extend(
            capped[..edge]
                .iter()
                .copied()
                .filter(|c| going.contains(c.record.id.as_str()) || is_inside_turn(c))
                .filter(free)
                .map(|c| (c, Why::Cap)),
        );
        let safety: Vec<&Checkpoint> =
            left.iter().copied().filter(|c| c.record.kind == Kind::Safety).collect();
        let older = safety.len().saturating_sub(SAFETY_ROWS);
        out.extend(
            safety
                .into_iter()
                .take(older)
                .filter(|c| facts.now_ms.saturating_sub(c.record.created_ms) > SAFETY_MS)
                .filter(free)
                .map(|c| (c, Why::Safety)),
        );
    }
    out.sort_by(|a, b| a.0.record.order().cmp(&b.0.record.order()));
    out
}

/// Rows that may make room, in the order in which they do: what is short-lived, then what a host or an operation made,
/// then what a person made; the oldest of each first.
pub fn for_room<'a>(facts: &Facts<'a>) -> Vec<&'a Checkpoint> {
    let keep = facts.protected();
    let mut out: Vec<&Checkpoint> =
        facts.rows.iter().filter(|c| !keep.contains(c.record.id.as_str())).collect();
    let rank = |c: &Checkpoint| match (c.record.retention, c.record.kind) {
        (Retention::Short, _) => 0,
        (Retention::Standard, _) | (_, Kind::Safety) => 1,
        (Retention::Forensic, _) => 2,
    };
    out.sort_by_key(|c| rank(c));
    out
}

/// Changes the work tree, so that somebody was at work.
fn is_work(kind: OpKind) -> bool {
    !matches!(kind, OpKind::Delete | OpKind::Prune)
}

/// Operations that undo need not reach any longer: older than 30 days (or `days`, if that is more) and not among the
/// newest 100. Kept beyond that: what is running, a rewind whose turns still have rows (it says that they were left),
/// and whatever takes a kept one back.
pub fn operations<'a>(facts: &Facts<'a>, policy: &Policy) -> Vec<&'a Operation> {
    let days = policy.days.max(OPERATION_DAYS);
    // What the policy did by itself is not among what undo walks through.
    let automatic = |o: &Operation| o.record.extra.contains_key(trash::AUTOMATIC);
    let mut older = facts.operations.iter().filter(|o| !automatic(o)).count().saturating_sub(OPERATIONS);
    let mut kept: HashSet<&str> = HashSet::new();
    let mut out = Vec::new();
    for o in facts.operations {
        let r = &o.record;
        let is_new = !automatic(o) && older == 0;
        older = older.saturating_sub(usize::from(!automatic(o)));
        let speaks = r.kind == OpKind::Rewind
            && facts.rows.iter().any(|c| {
                c.record.session == r.session
                    && c.record.seq < r.at
                    && c.record.turn.is_some_and(|t| r.takes_back.contains(&t))
            });
        let stays = is_new
            || r.state == OpState::Running
            || !age_is_over(facts.now_ms, r.created_ms, days)
            || speaks
            || r.inverts.as_deref().is_some_and(|i| kept.contains(i));
        if stays {
            kept.insert(&r.id);
        } else {
            out.push(o);
        }
    }
    out
}

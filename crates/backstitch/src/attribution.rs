//! Who changed it: the windows of a session, what changed inside them, and what that adds up to path by path.
//!
//! A change belongs to a session if it happened inside one of its tool windows, or inside its turn where the host gives no
//! windows. The evidence is `named` (the tool named the path), `window`, or `shared` (windows of several sessions overlapped
//! and none, or more than one, named it).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use backstitch_store::Odb;
use bstr::{BString, ByteSlice};

use crate::{
    coverage,
    error::Result,
    operation::{OpState, Operation},
    paths,
    plan::{Progress, Stand},
    record::{Checkpoint, Kind},
    session::{self, SessionRecord},
    tree,
    workspace::Rows,
};

/// A stretch of a session's work with a row at both ends.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: u64,
    /// State before.
    pub before: &'a Checkpoint,
    /// State after; `None` while it is open and nothing was recorded since.
    pub after: Option<&'a Checkpoint>,
    /// The paths that the tool named; `None`: the whole workspace.
    pub named: Option<Vec<BString>>,
    /// It was never ended: its after is a later row.
    pub crashed: bool,
}

impl Window<'_> {
    fn overlaps(&self, other: &Window<'_>) -> bool {
        let end = |w: &Window<'_>| w.after.map_or(u64::MAX, |a| a.record.seq);
        self.before.record.seq <= end(other) && other.before.record.seq <= end(self)
    }
}

/// One path changed inside a window.
#[derive(Clone, Debug)]
pub struct Touched {
    /// The path.
    pub path: BString,
    /// What stood there before; `None`: nothing.
    pub from: Option<Stand>,
    /// What the window left.
    pub to: Option<Stand>,
}

/// The row looked at the whole workspace by itself; the end of a crashed turn is a copy of an earlier look.
fn looked(c: &Checkpoint) -> bool {
    c.record.covers.is_none() && c.record.is_restorable() && c.record.status.as_deref() != Some("crashed")
}

/// The windows of a line from turn `first` on, in the order of their beginning.
pub fn windows<'a>(rows: &'a Rows, line: &[&'a Checkpoint], id: &str, first: u64) -> Vec<Window<'a>> {
    let mut out = Vec::new();
    let mut turns: Vec<u64> = line.iter().filter_map(|c| c.record.turn).filter(|t| *t >= first).collect();
    turns.sort_unstable();
    turns.dedup();
    for turn in turns {
        let of_turn: Vec<&Checkpoint> =
            line.iter().copied().filter(|c| c.record.turn == Some(turn)).collect();
        let tools: Vec<&Checkpoint> =
            of_turn.iter().copied().filter(|c| c.record.kind == Kind::Tool).collect();
        let mut used: Vec<&str> = Vec::new();
        for b in tools.iter().filter(|c| c.record.phase.as_deref() == Some("before")) {
            let after = tools.iter().find(|a| {
                a.record.phase.as_deref() == Some("after")
                    && a.record.call == b.record.call
                    && a.record.seq > b.record.seq
                    && !used.contains(&a.record.id.as_str())
            });
            let crashed = after.is_none();
            let after = match after {
                Some(a) => {
                    used.push(&a.record.id);
                    Some(*a)
                }
                // The first later row that looked at the whole workspace.
                None => rows.all.iter().find(|c| c.record.seq > b.record.seq && looked(c)),
            };
            let named = b.record.named();
            out.push(Window { session: id.to_owned(), turn, before: b, after, named, crashed });
        }
        if tools.is_empty() {
            let begun = of_turn.iter().find(|c| c.record.kind == Kind::Prompt);
            let ended = of_turn.iter().find(|c| c.record.kind == Kind::Turn);
            if let Some(begun) = begun {
                let crashed = ended.is_none_or(|e| e.record.status.as_deref() == Some("crashed"));
                let after = ended
                    .copied()
                    .filter(|_| !crashed)
                    .or_else(|| rows.all.iter().find(|c| c.record.seq > begun.record.seq && looked(c)));
                out.push(Window { session: id.to_owned(), turn, before: begun, after, named: None, crashed });
            }
        }
    }
    out.sort_by_key(|w| w.before.record.seq);
    out
}

/// What changed inside a window, as far as both of its ends speak for it.
pub fn changes(odb: &Odb, w: &Window<'_>) -> Result<Vec<Touched>> {
    let Some(after) = w.after else { return Ok(Vec::new()) };
    let (a, ca) = coverage::of_checkpoint(odb, w.before)?;
    let (b, cb) = coverage::of_checkpoint(odb, after)?;
    let mut out = Vec::new();
    tree::Root::diff(odb, &a, &b, &mut |path, x, y| {
        // A directory above a named path that came into being, or went: rows of windows looked whether it was there.
        let above = w.named.as_ref().is_some_and(|named| {
            x.or(y).is_some_and(|e| e.node.is_dir())
                && (x.is_none() || y.is_none())
                && named.iter().any(|n| n != path && paths::is_under(n.as_bstr(), path))
        });
        if let Some(named) = &w.named
            && !above
            && !named.iter().any(|n| paths::is_under(path, n.as_bstr()))
        {
            return Ok(());
        }
        // Absent is evidence only where the row looked.
        let known = above && after.record.kind == Kind::Tool
            || (x.is_some() || ca.covers(path) || named_at(w, path))
                && (y.is_some() || cb.covers(path) || named_at(w, path) && w.after.is_some())
                && ca.in_scope(path)
                && (cb.in_scope(path) || w.crashed);
        if known {
            out.push(Touched { path: path.to_owned(), from: x.map(Stand::of), to: y.map(Stand::of) });
        }
        Ok(())
    })?;
    Ok(out)
}

fn named_at(w: &Window<'_>, path: &bstr::BStr) -> bool {
    w.named.as_ref().is_some_and(|n| n.iter().any(|p| p == path))
}

/// Changes of a session to one path that nobody else's came between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Before the first of them.
    pub from: Option<Stand>,
    /// What the last one left there.
    pub left: Option<Stand>,
}

/// What a session did to one path in some turns.
#[derive(Clone, Debug)]
pub struct Sum {
    /// In their order, at least one; more than one where somebody else changed the path in between.
    pub steps: Vec<Step>,
    /// Order of the row (or of the operation) that saw what it last left.
    pub at: u64,
    /// More than one session may have done it.
    pub shared: bool,
    /// A window that was never ended is the only evidence for the last state.
    pub crashed: bool,
}

impl Sum {
    /// Before the first of its changes.
    pub fn from(&self) -> Option<&Stand> {
        self.steps.first().and_then(|s| s.from.as_ref())
    }

    /// What it last left there.
    pub fn left(&self) -> Option<&Stand> {
        self.steps.last().and_then(|s| s.left.as_ref())
    }
}

/// Adds up what the session `id` did in `turns`. `operations` explain changes in between: a rewind of its own is nobody
/// else's work. Of turns with an end, what happened after them counts for nothing.
pub fn sum(
    odb: &Odb,
    rows: &Rows,
    sessions: &BTreeMap<String, SessionRecord>,
    operations: &[Operation],
    id: &str,
    turns: &RangeInclusive<u64>,
) -> Result<(BTreeMap<BString, Sum>, BTreeMap<BString, Touched>)> {
    let line = session::line(rows, sessions, id);
    let mut own = windows(rows, &line, id, *turns.start());
    own.retain(|w| turns.contains(&w.turn));
    let until = match *turns.end() {
        u64::MAX => u64::MAX,
        _ => own.iter().filter_map(|w| w.after).map(|a| a.record.seq).max().unwrap_or(0),
    };
    let in_line: Vec<&str> = line.iter().map(|c| c.record.id.as_str()).collect();
    // Windows of everybody else.
    let mut others: Vec<Window<'_>> = Vec::new();
    let mut ids: Vec<&str> = rows.all.iter().filter_map(|c| c.record.session.as_deref()).collect();
    ids.sort_unstable();
    ids.dedup();
    for other in ids {
        let all: Vec<&Checkpoint> = rows
            .all
            .iter()
            .filter(|c| {
                c.record.session.as_deref() == Some(other) && !in_line.contains(&c.record.id.as_str())
            })
            .collect();
        if other != id {
            others.extend(windows(rows, &all, other, 0));
        }
    }
    let mut sums: BTreeMap<BString, Sum> = BTreeMap::new();
    let mut theirs: BTreeSet<BString> = BTreeSet::new();
    // Changes inside windows and by operations, in their order.
    enum Event<'e, 'a> {
        Window(&'e Window<'a>),
        Operation(&'e Operation),
    }
    let mut events: Vec<(u64, Event<'_, '_>)> =
        own.iter().map(|w| (w.before.record.seq, Event::Window(w))).collect();
    events.extend(
        operations
            .iter()
            .filter(|o| o.record.state == OpState::Done && o.record.rows.is_empty() && o.record.at <= until)
            .map(|o| (o.record.at, Event::Operation(o))),
    );
    events.sort_by_key(|(at, _)| *at);
    // Which operations changed what the session had left: an inverse of another one brings nothing of the session's back.
    let mut known: BTreeSet<(&str, BString)> = BTreeSet::new();
    for (_, event) in events {
        match event {
            Event::Operation(o) => {
                if sums.is_empty() {
                    continue;
                }
                for i in o.items(odb)?.into_iter().filter(|i| i.result == Progress::Done) {
                    let inverts = o.record.inverts.as_deref();
                    if let Some(s) = sums.get_mut(&i.path)
                        && let Some(step) = s.steps.last_mut()
                        && same(&step.left, &i.from)
                        && inverts.is_none_or(|t| known.contains(&(t, i.path.clone())))
                    {
                        step.left = i.to;
                        s.at = s.at.max(o.record.at);
                        known.insert((o.record.id.as_str(), i.path));
                    }
                }
            }
            Event::Window(w) => {
                let overlapping: Vec<(&Window<'_>, Vec<Touched>)> = others
                    .iter()
                    .filter(|o| o.overlaps(w))
                    .map(|o| Ok((o, changes(odb, o)?)))
                    .collect::<Result<_>>()?;
                for t in changes(odb, w)? {
                    // Naming is the session's: a shell window may run inside the window of a tool that names the path.
                    let i_named = own.iter().any(|o| o.overlaps(w) && named_at(o, t.path.as_bstr()));
                    let claims: Vec<bool> = overlapping
                        .iter()
                        .filter(|(_, c)| c.iter().any(|x| x.path == t.path))
                        .map(|(o, _)| named_at(o, t.path.as_bstr()))
                        .collect();
                    let they_named = claims.iter().filter(|n| **n).count();
                    // Exactly one session named it: it is that session's.
                    if they_named == 1 && !i_named {
                        theirs.insert(t.path);
                        continue;
                    }
                    let settled = claims.is_empty() || i_named && they_named == 0;
                    let shared = !settled;
                    let s = sums.entry(t.path.clone()).or_insert(Sum {
                        steps: Vec::new(),
                        at: 0,
                        shared: false,
                        crashed: false,
                    });
                    s.shared |= shared;
                    s.crashed |= w.crashed;
                    let seen = w.after.map_or(0, |a| a.record.seq);
                    let later = seen >= s.at;
                    s.at = s.at.max(seen);
                    match s.steps.last_mut() {
                        // Two windows of its own over one change say the same thing twice.
                        Some(step) if same(&step.left, &t.from) || same(&step.left, &t.to) => {
                            step.left = t.to;
                        }
                        // Its own windows ran side by side: what one of them saw half done is nobody else's work.
                        Some(step) if own.iter().any(|o| !std::ptr::eq(o, w) && o.overlaps(w)) => {
                            if later {
                                step.left = t.to;
                            }
                        }
                        _ => s.steps.push(Step { from: t.from, left: t.to }),
                    }
                }
            }
        }
    }
    let loose = unattributed(odb, &line, &own, turns)?;
    let mut loose: BTreeMap<BString, Touched> =
        loose.into_iter().filter(|(p, _)| !sums.contains_key(p) && !theirs.contains(p)).collect();
    // What the window of another session explains is that session's, and nothing to be asked about.
    let begun =
        line.iter().filter(|c| c.record.turn.is_some_and(|t| turns.contains(&t))).map(|c| c.record.seq).min();
    for w in others.iter().filter(|w| !w.crashed && w.after.map(|a| a.record.seq) >= begun) {
        if loose.is_empty() {
            break;
        }
        for t in changes(odb, w)? {
            loose.remove(&t.path);
        }
    }
    Ok((sums, loose))
}

/// Equal for this purpose: type, content, mode.
pub(crate) fn same(a: &Option<Stand>, b: &Option<Stand>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.node == b.node,
        _ => false,
    }
}

/// Changes inside turns that have windows, but outside all of them.
fn unattributed(
    odb: &Odb,
    line: &[&Checkpoint],
    own: &[Window<'_>],
    turns: &RangeInclusive<u64>,
) -> Result<BTreeMap<BString, Touched>> {
    let mut out: BTreeMap<BString, Touched> = BTreeMap::new();
    for begun in line
        .iter()
        .filter(|c| c.record.kind == Kind::Prompt && c.record.turn.is_some_and(|t| turns.contains(&t)))
    {
        let turn = begun.record.turn;
        let has_tools = own.iter().any(|w| Some(w.turn) == turn && w.before.record.kind == Kind::Tool);
        let ended = line.iter().find(|c| c.record.kind == Kind::Turn && c.record.turn == turn);
        let (true, Some(ended)) = (has_tools, ended) else { continue };
        let whole = Window {
            session: String::new(),
            turn: turn.unwrap_or(0),
            before: begun,
            after: Some(*ended),
            named: None,
            crashed: false,
        };
        if ended.record.covers.is_some() {
            continue;
        }
        for t in changes(odb, &whole)? {
            out.entry(t.path.clone()).and_modify(|o| o.to = t.to.clone()).or_insert(t);
        }
    }
    Ok(out)
}

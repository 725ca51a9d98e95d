//! Who changed it: the windows of a session, what changed inside them, and what that adds up to path by path.
//!
//! A change belongs to a session if it happened inside one of its tool windows, or inside its turn where the host gives no
//! windows. The evidence is `named` (the tool named the path), `window`, or `shared` (windows of several sessions overlapped
//! and none, or more than one, named it).

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::RangeInclusive,
};

use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage,
    error::Result,
    operation::Operation,
    past::Past,
    paths,
    plan::{Progress, Stand},
    record::{Checkpoint, Kind, State},
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
    let mut turns: BTreeMap<u64, Vec<&Checkpoint>> = BTreeMap::new();
    for c in line {
        if let Some(turn) = c.record.turn.filter(|t| *t >= first) {
            turns.entry(turn).or_default().push(c);
        }
    }
    for (turn, of_turn) in turns {
        let tools: Vec<&Checkpoint> =
            of_turn.iter().copied().filter(|c| c.record.kind == Kind::Tool).collect();
        let mut used: Vec<&str> = Vec::new();
        for b in tools.iter().filter(|c| c.record.phase.as_deref() == Some("before")) {
            let after = tools.iter().find(|a| {
                a.record.phase.as_deref() == Some("after")
                    && a.record.call == b.record.call
                    && a.record.seq > b.record.seq
                    // A call with an id may begin more than once: the end is the end of each.
                    && (a.record.call.is_some() || !used.contains(&a.record.id.as_str()))
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
                // An end whose capture failed saw as little as none.
                let crashed = ended.is_none_or(|e| {
                    e.record.status.as_deref() == Some("crashed") || e.record.state == State::Gap
                });
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
    changes_beside(odb, w, &mut BTreeSet::new())
}

/// The same; adds the paths whose bytes a person had removed from one of its ends: nobody knows what became of them.
fn changes_beside(odb: &Odb, w: &Window<'_>, forgotten: &mut BTreeSet<BString>) -> Result<Vec<Touched>> {
    let Some(after) = w.after else { return Ok(Vec::new()) };
    let (a, ca) = coverage::of_checkpoint(odb, w.before)?;
    let (b, cb) = coverage::of_checkpoint(odb, after)?;
    let gone: BTreeSet<BString> = ca.forgotten().chain(cb.forgotten()).map(BStr::to_owned).collect();
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
        if gone.contains(path) {
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
    forgotten.extend(gone);
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

/// How a step came about.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    /// Of the window in which it began.
    pub turn: u64,
    /// Of the row before that window.
    pub session: Option<String>,
    /// Its order.
    pub seq: u64,
    /// What the windows left one after the other.
    pub left: Vec<Option<Stand>>,
}

impl Begun {
    fn of(w: &Window<'_>) -> Begun {
        let r = &w.before.record;
        Begun { turn: w.turn, session: r.session.clone(), seq: r.seq, left: Vec::new() }
    }
}

/// What a session did to one path in some turns.
#[derive(Clone, Debug)]
pub struct Sum {
    /// In their order, at least one; more than one where somebody else changed the path in between.
    pub steps: Vec<Step>,
    /// Where each of them began.
    pub(crate) begun: Vec<Begun>,
    /// Order of the row (or of the operation) that saw what it last left.
    pub at: u64,
    /// More than one session may have done it.
    pub shared: bool,
    /// A window that was never ended is the only evidence for the last state.
    pub crashed: bool,
    /// What stood there before an earlier change was removed on request: nothing to go back to.
    pub forgotten: bool,
}

impl Sum {
    /// Before the first of its changes.
    pub fn from(&self) -> Option<&Stand> {
        self.steps.first().and_then(|s| s.from.as_ref())
    }

    pub(crate) fn leave(&mut self, left: Option<Stand>) {
        if let (Some(step), Some(begun)) = (self.steps.last_mut(), self.begun.last_mut()) {
            begun.left.push(step.left.clone());
            step.left = left;
        }
    }

    /// The last step left this at some time.
    pub(crate) fn has_left(&self, what: &Option<Stand>) -> bool {
        let earlier = self.begun.last().into_iter().flat_map(|b| &b.left);
        earlier.chain(self.steps.last().map(|s| &s.left)).any(|l| same(l, what))
    }

    pub(crate) fn truncate(&mut self, steps: usize) {
        self.steps.truncate(steps);
        self.begun.truncate(steps);
    }

    /// What it last left there.
    pub fn left(&self) -> Option<&Stand> {
        self.steps.last().and_then(|s| s.left.as_ref())
    }
}

/// A window of another session. What changed in it is found once, and only where it matters.
struct Other<'a> {
    window: Window<'a>,
    paths: Option<HashSet<BString>>,
}

impl Other<'_> {
    /// The paths that changed inside it.
    fn paths(&mut self, odb: &Odb) -> Result<&HashSet<BString>> {
        if self.paths.is_none() {
            self.paths = Some(changes(odb, &self.window)?.into_iter().map(|t| t.path).collect());
        }
        Ok(self.paths.get_or_insert_default())
    }

    fn changed(&self, path: &bstr::BStr) -> bool {
        self.paths.as_ref().is_some_and(|p| p.contains(path))
    }
}

/// The windows of everybody but one session and its line.
struct Others<'a>(Vec<Other<'a>>);

impl<'a> Others<'a> {
    fn of(rows: &'a Rows, line: &[&Checkpoint], id: &str) -> Others<'a> {
        let in_line: HashSet<&str> = line.iter().map(|c| c.record.id.as_str()).collect();
        let mut sessions: BTreeMap<&str, Vec<&Checkpoint>> = BTreeMap::new();
        for c in &rows.all {
            if let Some(other) = c.record.session.as_deref().filter(|s| *s != id)
                && !in_line.contains(c.record.id.as_str())
            {
                sessions.entry(other).or_default().push(c);
            }
        }
        let windows = sessions.iter().flat_map(|(other, all)| windows(rows, all, other, 0));
        Others(windows.map(|window| Other { window, paths: None }).collect())
    }

    /// Those that ran at the same time as `w`, with what changed in them.
    fn beside(&mut self, odb: &Odb, w: &Window<'_>) -> Result<Vec<&Other<'a>>> {
        let mut out = Vec::new();
        for o in self.0.iter_mut().filter(|o| o.window.overlaps(w)) {
            o.paths(odb)?;
            out.push(&*o);
        }
        Ok(out)
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
    let mut others = Others::of(rows, &line, id);
    let mut sums: BTreeMap<BString, Sum> = BTreeMap::new();
    let mut forgotten: BTreeSet<BString> = BTreeSet::new();
    let mut theirs: BTreeSet<BString> = BTreeSet::new();
    // Changes inside windows and by operations, in their order.
    enum Event<'e, 'a> {
        Window(&'e Window<'a>),
        Operation(&'e Operation),
    }
    let mut events: Vec<(u64, Event<'_, '_>)> =
        own.iter().map(|w| (w.before.record.seq, Event::Window(w))).collect();
    events.extend(
        operations.iter().filter(|o| o.record.at <= until).map(|o| (o.record.at, Event::Operation(o))),
    );
    events.sort_by_key(|(at, _)| *at);
    let mut past = Past::of(sessions, id);
    for (_, event) in events {
        match event {
            Event::Operation(o) => {
                if sums.is_empty() && past.is_empty() {
                    continue;
                }
                for i in o.items(odb)?.into_iter().filter(|i| i.result == Progress::Done) {
                    past.operation(&mut sums, o, i);
                }
            }
            Event::Window(w) => {
                let beside: Vec<&Window<'_>> = own.iter().filter(|o| o.overlaps(w)).collect();
                let theirs_beside = others.beside(odb, w)?;
                for t in changes_beside(odb, w, &mut forgotten)? {
                    // Naming is the session's: a shell window may run inside the window of a tool that names the path.
                    let i_named = beside.iter().any(|o| named_at(o, t.path.as_bstr()));
                    let claims: Vec<bool> = theirs_beside
                        .iter()
                        .filter(|o| o.changed(t.path.as_bstr()))
                        .map(|o| named_at(&o.window, t.path.as_bstr()))
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
                        begun: Vec::new(),
                        at: 0,
                        shared: false,
                        crashed: false,
                        forgotten: false,
                    });
                    s.forgotten |= forgotten.contains(&t.path);
                    s.shared |= shared;
                    s.crashed |= w.crashed;
                    let seen = w.after.map_or(0, |a| a.record.seq);
                    let later = seen >= s.at;
                    s.at = s.at.max(seen);
                    match s.steps.last() {
                        // Two windows of its own over one change say the same thing twice.
                        Some(step) if same(&step.left, &t.from) || same(&step.left, &t.to) => s.leave(t.to),
                        // Its own windows ran side by side: what one of them saw half done is nobody else's work.
                        Some(_) if beside.iter().any(|o| !std::ptr::eq(*o, w)) => {
                            if later {
                                s.leave(t.to);
                            }
                        }
                        _ => {
                            s.steps.push(Step { from: t.from, left: t.to });
                            s.begun.push(Begun::of(w));
                        }
                    }
                }
            }
        }
    }
    let loose = unattributed(odb, &line, &own, turns)?;
    let mut loose: BTreeMap<BString, Touched> = loose
        .into_iter()
        .filter(|(p, _)| !sums.contains_key(p) && !theirs.contains(p) && !past.changed(p))
        .collect();
    // What the window of another session explains is that session's, and nothing to be asked about.
    let begun =
        line.iter().filter(|c| c.record.turn.is_some_and(|t| turns.contains(&t))).map(|c| c.record.seq).min();
    for o in
        others.0.iter_mut().filter(|o| !o.window.crashed && o.window.after.map(|a| a.record.seq) >= begun)
    {
        if loose.is_empty() {
            break;
        }
        for path in o.paths(odb)? {
            loose.remove(path);
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

//! The versions of one path: which rows saw it change, who changed it, and where it was before it was moved.
//!
//! # Limits
//!
//! A change is known by the first row that saw it. What changed twice between two rows that look at the path is one change.
//! A path is followed to another name if that one went away in the same step and holds at least half of the lines.

use std::{cell::OnceCell, collections::BTreeMap};

use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    attribution::{self, Window, same},
    coverage::{self, Coverage},
    diff::{Change, Status},
    error::{Code, Error, Result},
    moves,
    operation::{OpState, Operation},
    paths,
    plan::{Progress, Stand},
    record::Checkpoint,
    session,
    tree::{self, DirRef, Root},
    workspace::{Rows, Workspace},
};

/// Who made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct By {
    /// `turn`, `shared` (more than one session may have), `operation` (restore, undo and the like), or `outside`.
    pub who: &'static str,
    /// The session of the turn, of the operation; of `shared` the first.
    pub session: Option<String>,
    /// All sessions that may have.
    pub sessions: Vec<String>,
    /// The turn.
    pub turn: Option<u64>,
    /// The tool whose call it was; `None` where several calls ran at once.
    pub tool: Option<String>,
    /// The host's id of that call.
    pub call: Option<String>,
    /// The sub-agent that made the call.
    pub agent: Option<String>,
    /// `named` (the call named the path), `window` (it happened while the call or the turn ran), `shared`.
    pub evidence: Option<&'static str>,
    /// The operation.
    pub operation: Option<String>,
}

impl By {
    fn outside() -> By {
        By { who: "outside", ..By::default() }
    }
}

/// What stood at a path from one change to the next.
#[derive(Clone, Debug)]
pub struct Version {
    /// Where.
    pub path: BString,
    /// Where it was before, if this change moved it.
    pub old_path: Option<BString>,
    /// The first row that saw it; `None`: no row did yet.
    pub row: Option<Checkpoint>,
    /// What; `None`: nothing.
    pub stand: Option<Stand>,
    /// What stood there before.
    pub before: Option<Stand>,
    /// Who made it so.
    pub by: By,
}

impl Version {
    /// As a change.
    fn change(&self) -> Change {
        let (a, b) = (&self.before, &self.stand);
        let mode = |s: &Option<Stand>| s.as_ref().and_then(|s| s.node.mode());
        Change {
            path: self.path.clone(),
            old_path: self.old_path.clone(),
            status: match (a, b) {
                _ if self.old_path.is_some() => Status::Renamed,
                (None, _) => Status::Added,
                (_, None) => Status::Deleted,
                (Some(a), Some(b)) if a.node.kind() != b.node.kind() => Status::TypeChanged,
                _ => Status::Modified,
            },
            mode_change: mode(a).zip(mode(b)).filter(|(a, b)| a != b),
            binary: false,
            added: None,
            removed: None,
        }
    }
}

/// A row that changed a path.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The row.
    pub checkpoint: Checkpoint,
    /// What changed.
    pub change: Change,
    /// Who did it.
    pub by: By,
}

/// A row with what it holds and what it speaks for, read when it is asked for.
struct Look<'a> {
    row: &'a Checkpoint,
    read: OnceCell<(Root, Coverage)>,
}

impl Look<'_> {
    fn get(&self, odb: &Odb) -> Result<&(Root, Coverage)> {
        if let Some(r) = self.read.get() {
            return Ok(r);
        }
        let read = coverage::of_checkpoint(odb, self.row)?;
        Ok(self.read.get_or_init(|| read))
    }
}

/// What stands at a path: a stand, and a directory's content.
type State = (Option<Stand>, DirRef);

fn differ(a: &State, b: &State) -> bool {
    !same(&a.0, &b.0) || a.1 != b.1
}

/// Everything that tells who did what.
pub(crate) struct Witness<'a> {
    windows: Vec<(Window<'a>, u64)>,
    operations: Vec<Operation>,
}

impl<'a> Witness<'a> {
    pub fn of(rows: &'a Rows, operations: Vec<Operation>) -> Witness<'a> {
        let mut by_session: BTreeMap<&str, Vec<&Checkpoint>> = BTreeMap::new();
        for c in &rows.all {
            if let Some(s) = c.record.session.as_deref() {
                by_session.entry(s).or_default().push(c);
            }
        }
        let mut windows = Vec::new();
        for (id, own) in by_session {
            let open = session::open_turn(&own).and_then(|c| c.record.turn);
            for w in attribution::windows(rows, &own, id, 0) {
                // A window of the turn that still runs has no end yet, whoever looked meanwhile.
                let end = match w.after {
                    Some(a) if !(w.crashed && open == Some(w.turn)) => a.record.seq,
                    _ => u64::MAX,
                };
                windows.push((w, end));
            }
        }
        let done = |o: &Operation| o.record.state == OpState::Done && o.record.rows.is_empty();
        Witness { windows, operations: operations.into_iter().filter(done).collect() }
    }

    /// Who took `path` from one state to another between two looks.
    fn by(&self, odb: &Odb, path: &BStr, from: (u64, &State), to: (u64, &State)) -> Result<By> {
        for o in self.operations.iter().rev().filter(|o| from.0 <= o.record.at && o.record.at <= to.0) {
            let hit = o.items(odb)?.into_iter().any(|i| {
                i.path == path
                    && i.result == Progress::Done
                    && same(&i.from, &from.1.0)
                    && same(&i.to, &to.1.0)
            });
            if hit {
                return Ok(By {
                    who: "operation",
                    session: o.record.session.clone(),
                    operation: Some(o.record.id.clone()),
                    ..By::default()
                });
            }
        }
        let names = |w: &Window<'_>| {
            w.named.as_ref().is_some_and(|n| n.iter().any(|n| paths::is_under(path, n.as_bstr())))
        };
        let mut claims: Vec<&(Window<'_>, u64)> = self
            .windows
            .iter()
            .filter(|(w, end)| w.before.record.seq <= from.0 && to.0 <= *end)
            .filter(|(w, _)| w.named.is_none() || names(w))
            .collect();
        let named = claims.iter().any(|(w, _)| names(w));
        if named {
            claims.retain(|(w, _)| names(w));
        }
        // The one that began last is the innermost.
        claims.sort_by_key(|(w, _)| w.before.record.seq);
        let Some((w, end)) = claims.last() else { return Ok(By::outside()) };
        let mut sessions: Vec<String> = claims.iter().map(|(w, _)| w.session.clone()).collect();
        sessions.sort();
        sessions.dedup();
        if sessions.len() > 1 {
            return Ok(By {
                who: "shared",
                session: sessions.first().cloned(),
                sessions,
                evidence: Some("shared"),
                ..By::default()
            });
        }
        let r = &w.before.record;
        // Calls that ran beside each other cannot be told apart; one that ran inside another can.
        let told = claims.iter().all(|(_, e)| e >= end);
        let tool = told && r.phase.is_some();
        Ok(By {
            who: "turn",
            session: Some(w.session.clone()),
            sessions,
            turn: Some(w.turn),
            tool: r.tool.clone().filter(|_| tool),
            call: r.call.clone().filter(|_| tool),
            agent: r.agent.clone().filter(|_| tool),
            evidence: Some(if named { "named" } else { "window" }),
            operation: None,
        })
    }
}

impl Workspace {
    /// The rows that changed a path, newest first, with who changed it; renames are followed.
    ///
    /// # Errors
    /// `no-such-path` where no row ever held it.
    pub fn log(&self, path: &BStr) -> Result<Vec<Entry>> {
        let rows = self.rows()?;
        let odb = self.odb()?;
        let witness = Witness::of(&rows, self.operations()?);
        let out: Vec<Entry> = versions(self, &odb, &rows, &witness, path, None, None)?
            .into_iter()
            .filter_map(|v| Some(Entry { change: v.change(), checkpoint: v.row?, by: v.by }))
            .collect();
        if out.is_empty() {
            return Err(Error::new(Code::NoSuchPath, format!("no checkpoint holds {}", path.to_str_lossy()))
                .at_bytes(path)
                .hint("`backstitch show CHECKPOINT` tells what a checkpoint holds and left out"));
        }
        Ok(out)
    }
}

/// The versions of a path, newest first: up to the row `at`, else up to the last row, and `live` where that is given.
pub(crate) fn versions(
    ws: &Workspace,
    odb: &Odb,
    rows: &Rows,
    witness: &Witness<'_>,
    path: &BStr,
    at: Option<&Checkpoint>,
    live: Option<&Stand>,
) -> Result<Vec<Version>> {
    let looks: Vec<Look<'_>> = rows
        .all
        .iter()
        .filter(|c| c.record.is_restorable() && at.is_none_or(|a| c.record.seq <= a.record.seq))
        .map(|row| Look { row, read: OnceCell::new() })
        .collect();
    let mut out: Vec<Version> = Vec::new();
    let mut path = path.to_owned();
    // What stands there, and the first look (from the end) that saw it.
    let mut now: Option<(State, Option<usize>)> = live.map(|s| ((Some(s.clone()), DirRef::default()), None));
    for n in (0..looks.len()).rev() {
        let (root, cover) = looks[n].get(odb)?;
        if !cover.in_scope(path.as_bstr()) {
            continue;
        }
        // Most rows hold the same tree as the one after them.
        if let Some((state, Some(later))) = &mut now
            && looks[*later].get(odb)?.0.files == root.files
            && (state.0.is_some() || cover.covers(path.as_bstr()))
        {
            *later = n;
            continue;
        }
        let entry = tree::lookup(odb, root.files, path.as_bstr())?;
        if entry.is_none() && !cover.covers(path.as_bstr()) {
            continue;
        }
        let then: State = match entry {
            Some(e) => {
                let dir = if e.node.is_dir() { e.dir } else { DirRef::default() };
                (Some(Stand::of(&e)), dir)
            }
            None => Default::default(),
        };
        let Some((state, seen)) = now.take() else {
            now = Some((then, Some(n)));
            continue;
        };
        if !differ(&state, &then) {
            now = Some((then, Some(n)));
            continue;
        }
        let seq = |n: Option<usize>| n.map_or(u64::MAX, |n| looks[n].row.record.seq);
        let by = witness.by(odb, path.as_bstr(), (seq(Some(n)), &then), (seq(seen), &state))?;
        let mut version = Version {
            path: path.clone(),
            old_path: None,
            row: seen.map(|n| looks[n].row.clone()),
            stand: state.0,
            before: then.0.clone(),
            by,
        };
        let mut next = (then, Some(n));
        let came = version.before.is_none() && version.stand.as_ref().is_some_and(|s| !s.node.is_dir());
        if came && let Some((old, stand)) = origin(ws, odb, &looks, n, seen, &version)? {
            version.before = Some(stand.clone());
            version.old_path = Some(old.clone());
            path = old;
            next.0 = (Some(stand), DirRef::default());
        }
        out.push(version);
        now = Some(next);
    }
    // Before anything was recorded.
    if let Some((state, seen)) = now.filter(|(s, _)| s.0.is_some()) {
        out.push(Version {
            path,
            old_path: None,
            row: seen.map(|n| looks[n].row.clone()),
            stand: state.0,
            before: None,
            by: By::outside(),
        });
    }
    Ok(out)
}

/// Where a file came from that look `before` did not see and `seen` did: a path that went away.
fn origin(
    ws: &Workspace,
    odb: &Odb,
    looks: &[Look<'_>],
    before: usize,
    seen: Option<usize>,
    version: &Version,
) -> Result<Option<(BString, Stand)>> {
    let (old, _) = looks[before].get(odb)?;
    // Whether a path is gone is known where everything was looked at, at the latest on the disk.
    let full = seen.and_then(|n| looks[n..].iter().find(|l| l.row.record.covers.is_none()));
    let mut gone: Vec<(BString, Stand)> = Vec::new();
    match full {
        Some(look) => {
            let (new, cover) = look.get(odb)?;
            tree::diff(odb, old.files, new.files, &mut |p, a, b| {
                if let (Some(a), None) = (a, b)
                    && !a.node.is_dir()
                    && cover.covers(p)
                {
                    gone.push((p.to_owned(), Stand::of(a)));
                }
                Ok(())
            })?;
        }
        None => {
            tree::walk(odb, old.files, &mut |p, e| {
                let here = || paths::to_path(ws.root(), p).symlink_metadata().is_ok();
                if !e.node.is_dir() && !here() {
                    gone.push((p.to_owned(), Stand::of(e)));
                }
                Ok(())
            })?;
        }
    }
    let list = gone.iter().filter_map(|(p, s)| Some((p.clone(), s.node.oid()?))).collect();
    let text = match version.row {
        Some(_) => None,
        None => std::fs::read(paths::to_path(ws.root(), version.path.as_bstr())).ok(),
    };
    let found = moves::New::of_list(odb, list).alike(version.path.as_bstr(), version.stand.as_ref(), text)?;
    Ok(found.and_then(|p| gone.into_iter().find(|(g, _)| *g == p)))
}

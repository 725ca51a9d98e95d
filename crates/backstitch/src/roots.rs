//! A session at work in several workspaces: what it did in the others, by absolute path, so that one operation here takes
//! back all of it, and one undo brings all of it back.

use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
    path::PathBuf,
};

use backstitch_store::{Odb, Oid};
use bstr::{BString, ByteSlice};

use crate::{
    attribution::{self, Sum, Touched},
    error::Result,
    paths,
    plan::Stand,
    record::{Checkpoint, Kind},
    rewind::refuse_open,
    session,
    workspace::{Rows, Workspace, from_manifest_path, stores},
};

/// Another workspace in which the session has rows.
pub(crate) struct OtherRoot {
    ws: Workspace,
    /// What the session did there in the turns meant.
    pub sums: BTreeMap<BString, Sum>,
    /// What changed there in these turns, outside of all windows.
    pub loose: BTreeMap<BString, Touched>,
}

/// The turns meant, as another workspace can know them: numbers are given out in each for itself.
pub(crate) struct Meant<'a> {
    keys: HashSet<&'a str>,
    /// When the first of them began, in milliseconds since 1970; `None`: only the keys count.
    since_ms: Option<i64>,
}

impl<'a> Meant<'a> {
    /// Of the `prompt` rows of a line. `onwards`: all later turns as well.
    pub fn of(begun: &[&'a Checkpoint], onwards: bool) -> Meant<'a> {
        let first = begun.iter().map(|c| c.record.created_ms).min();
        Meant {
            keys: begun.iter().filter_map(|c| c.record.turn_key.as_deref()).collect(),
            since_ms: first.filter(|_| onwards),
        }
    }

    /// The turns of a line in another workspace.
    fn turns(&self, line: &[&Checkpoint]) -> Option<RangeInclusive<u64>> {
        let ended = |turn: Option<u64>| {
            line.iter().filter(|c| c.record.turn == turn).map(|c| c.record.created_ms).max().unwrap_or(0)
        };
        let of = |c: &&&Checkpoint| match (&c.record.turn_key, self.since_ms) {
            (Some(key), _) if !self.keys.is_empty() => {
                self.keys.contains(key.as_str()) || self.since_ms.is_some_and(|t| c.record.created_ms >= t)
            }
            // Without keys the clock decides: what was at work after the first of them had begun.
            (_, Some(t)) => c.record.created_ms >= t || ended(c.record.turn) > t,
            (_, None) => false,
        };
        let begun = line.iter().filter(|c| c.record.kind == Kind::Prompt);
        let first = begun.filter(of).filter_map(|c| c.record.turn).min()?;
        Some(first..=if self.since_ms.is_some() { u64::MAX } else { first })
    }
}

impl Workspace {
    /// Other workspaces, beside this one and neither above nor below it, in which the session has rows.
    pub(crate) fn other_roots(&self, id: &str, rows: &Rows) -> Vec<PathBuf> {
        // When a store was used last is noted once an hour.
        const NOTED_MS: i64 = 2 * 3_600_000;
        let line = session::line(rows, &rows.sessions, id);
        let Some(since) = line.first().map(|c| c.record.created_ms.saturating_sub(NOTED_MS)) else {
            return Vec::new();
        };
        let beside = |p: &PathBuf| !p.starts_with(self.root()) && !self.root().starts_with(p) && p.is_dir();
        let known = stores(&self.surroundings().store_base);
        known
            .into_iter()
            .filter_map(|k| k.manifest.ok().filter(|m| m.last_used_ms >= since))
            .map(|m| from_manifest_path(&m.path))
            .filter(beside)
            .filter(|p| {
                let rows = Workspace::open(p, self.surroundings().clone()).and_then(|ws| ws.rows());
                rows.is_ok_and(|r| r.all.iter().any(|c| c.record.session.as_deref() == Some(id)))
            })
            .collect()
    }

    /// What the session did in these workspaces in the turns meant.
    ///
    /// # Errors
    /// `busy` where another session has a tool window open there, unless `force`; what reading a store may fail with.
    pub(crate) fn in_other_roots(
        &self,
        id: &str,
        roots: &[PathBuf],
        meant: &Meant<'_>,
        force: bool,
    ) -> Result<Vec<OtherRoot>> {
        let mut out = Vec::new();
        for root in roots {
            let ws = Workspace::open(root, self.surroundings().clone())?;
            let rows = ws.rows()?;
            let Some(turns) = meant.turns(&session::line(&rows, &rows.sessions, id)) else { continue };
            if !force {
                refuse_open(&rows, Some(id))?;
            }
            let odb = ws.odb()?;
            let (sums, loose) = attribution::sum(&odb, &rows, &rows.sessions, &ws.operations()?, id, &turns)?;
            let place = |p: BString| -> BString {
                match paths::is_outside(p.as_bstr()) {
                    true => p,
                    false => paths::bytes(&paths::to_path(ws.root(), p.as_bstr())).to_owned(),
                }
            };
            let sums = sums.into_iter().map(|(p, s)| (place(p), s)).collect();
            let loose = loose.into_iter().map(|(p, t)| (place(p), t)).collect();
            out.push(OtherRoot { ws, sums, loose });
        }
        Ok(out)
    }

    /// Copies the contents that another workspace's store holds into this one's: an operation stands on its own store.
    pub(crate) fn adopt(&self, other: &OtherRoot) -> Result<()> {
        let (from, own): (Odb, Odb) = (other.ws.odb()?, self.odb()?);
        let stands = other.sums.values().flat_map(|s| &s.steps).flat_map(|s| [&s.from, &s.left]);
        let loose = other.loose.values().flat_map(|t| [&t.from, &t.to]);
        let needed: HashSet<Oid> = stands
            .chain(loose)
            .filter_map(|s: &Option<Stand>| s.as_ref().and_then(|s| s.node.oid()))
            .filter(|o| !own.contains(o))
            .collect();
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        for oid in needed {
            writer.blob(&mut s, &from.blob(&oid)?)?;
        }
        writer.finish()?;
        Ok(())
    }
}

//! Carrying out the retention policy: by a person, by itself after a row, and where the store has to become smaller.

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, SystemTime},
};

use backstitch_store::Oid;
use serde_json::{Value, json};

use crate::{
    error::Result,
    operation::{OpKind, Operation},
    record::{self, Checkpoint, Kind, Retention, TRASH, rfc3339},
    retention::{self, Facts, Policy, Why},
    trash,
    workspace::{CaptureLock, Control, Rows, Workspace},
};

/// How to prune.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tell, and move nothing.
    pub dry_run: bool,
    /// The clock in milliseconds since 1970; `None` is now.
    pub now_ms: Option<i64>,
    /// The policy; `None` is that of the settings.
    pub policy: Option<Policy>,
}

/// A row that goes or would go.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// The row.
    pub row: Checkpoint,
    /// Why.
    pub why: Why,
    /// What collecting frees for it, if those before it in the list are collected too.
    pub bytes: u64,
}

/// What pruning did or would do: a preview and a real run choose by the same function.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The operation that brings everything back; `None` for previews and where there was nothing to do.
    pub operation: Option<String>,
    /// A preview.
    pub dry_run: bool,
    /// Rows, oldest first.
    pub rows: Vec<Pruned>,
    /// Operations that undo no longer reaches.
    pub operations: Vec<String>,
    /// Names that stayed because somebody changed them meanwhile.
    pub failed: Vec<String>,
    /// What collecting frees.
    pub bytes: u64,
}

impl Outcome {
    /// The JSON shape.
    pub fn json(&self) -> Value {
        let mut classes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for class in ["short", "standard", "forensic"] {
            classes.insert(class, (0, 0));
        }
        for p in &self.rows {
            let at = classes.entry(class(p.row.record.retention)).or_default();
            *at = (at.0 + 1, at.1 + p.bytes);
        }
        let candidates: Vec<Value> = self
            .rows
            .iter()
            .map(|p| {
                let r = &p.row.record;
                json!({
                    "id": r.id,
                    "kind": r.kind.as_str(),
                    "session": r.session,
                    "retention": class(r.retention),
                    "created": rfc3339(r.created_ms),
                    "why": p.why.as_str(),
                    "bytes": p.bytes,
                })
            })
            .collect();
        let deleted: Vec<&str> = match self.dry_run {
            true => Vec::new(),
            false => self.rows.iter().map(|p| p.row.record.id.as_str()).collect(),
        };
        json!({
            "operation": self.operation,
            "dry_run": self.dry_run,
            "candidates": candidates,
            "deleted": deleted,
            "operations": self.operations,
            "failed": self.failed.iter().map(|id| json!({"id": id, "error": "changed meanwhile"})).collect::<Vec<_>>(),
            "bytes": self.bytes,
            "classes": classes.iter().map(|(k, (n, b))| ((*k).to_owned(), json!({"rows": n, "bytes": b})))
                .collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn class(r: Retention) -> &'static str {
    match r {
        Retention::Short => "short",
        Retention::Standard => "standard",
        Retention::Forensic => "forensic",
    }
}

/// After this time ages are looked at again by themselves.
const SWEEP: Duration = Duration::from_secs(86_400);

impl Workspace {
    /// Moves to the trash what the policy lets go, as one operation that `undo` takes back. Its bytes are freed by
    /// collecting.
    ///
    /// # Errors
    /// `no-such-store`, `busy`, `interrupted`, `store-damaged` where a row or an operation cannot be read; nothing is
    /// moved then.
    pub fn prune(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let lock = match options.dry_run {
            true => None,
            false => Some(self.lock_operation()?),
        };
        let rows = self.rows()?.all_readable()?;
        let operations = self.operations()?;
        let sessions = self.session_records()?;
        let facts = Facts {
            rows: &rows.all,
            sessions: &sessions,
            operations: &operations,
            now_ms: options.now_ms.unwrap_or_else(record::now_ms),
        };
        let policy = options.policy.unwrap_or_else(|| Policy::of(self.settings()));
        let gone = retention::select(&facts, &policy);
        let old = retention::operations(&facts, &policy);
        let order: Vec<Oid> =
            gone.iter().map(|(c, _)| c.commit).chain(old.iter().map(|o| o.commit)).collect();
        let bytes = self.released(&order, control)?;
        let mut out = Outcome {
            dry_run: options.dry_run,
            operations: old.iter().map(|o| o.record.id.clone()).collect(),
            bytes: bytes.iter().sum(),
            rows: gone
                .iter()
                .zip(&bytes)
                .map(|((c, why), bytes)| Pruned { row: (*c).clone(), why: *why, bytes: *bytes })
                .collect(),
            ..Outcome::default()
        };
        if lock.is_some() {
            let moved = self.to_trash(OpKind::Prune, moves(&gone, &old), trash::Extra::new())?;
            out.operation = moved.operation;
            let stayed: HashSet<&str> = moved.failed.iter().map(String::as_str).collect();
            out.rows.retain(|p| !stayed.contains(p.row.record.id.as_str()));
            out.failed = moved.failed;
        }
        Ok(out)
    }

    /// What dropping these commits one after the other frees, once the trash is collected too.
    pub(crate) fn released(&self, order: &[Oid], control: &Control<'_>) -> Result<Vec<u64>> {
        if order.is_empty() {
            return Ok(Vec::new());
        }
        let gone: HashSet<&Oid> = order.iter().collect();
        let (refs, _) = self.store()?.refs().list_all("refs/")?;
        let keep: Vec<Oid> = refs
            .into_iter()
            .filter(|(name, oid)| !name.starts_with(TRASH) && !gone.contains(oid))
            .map(|(_, oid)| oid)
            .collect();
        Ok(self.store()?.released(&keep, order, control.interrupt)?)
    }

    /// Lets the policy act after a row was recorded: where its session has more automatic rows than are kept, and once
    /// a day, in a process of its own where one may be started. Costs a count otherwise. A failure is a warning and
    /// never fails the capture; what another process is pruning already is left to it.
    pub(crate) fn prune_after(&self, rows: &Rows, new: &Checkpoint, lock: &CaptureLock) -> Option<String> {
        // A turn's windows are not taken while it runs; its ends are often enough.
        if matches!(new.record.kind, Kind::Tool | Kind::AgentRun | Kind::Safety) {
            return None;
        }
        let policy = Policy::of(self.settings());
        let own = rows.all.iter().filter(|c| c.record.session == new.record.session);
        let capped = retention::counted(own) as u64;
        let stamp = self.store().ok()?.state_dir().join("pruned");
        let swept = std::fs::metadata(&stamp).and_then(|m| m.modified()).ok();
        let stale = swept.is_none_or(|t| SystemTime::now().duration_since(t).is_ok_and(|d| d > SWEEP));
        if capped < policy.rows && !stale {
            return None;
        }
        if self.tends_itself() {
            // A store that was never looked through is a new one, or has lost its caches.
            match swept {
                None if capped < policy.rows => drop(private_file(&stamp)),
                _ => self.start_tending(),
            }
            return None;
        }
        let done = self.prune_by_itself(&policy, lock);
        // A cache of when it was: without it the next row looks again.
        let _ = private_file(&stamp);
        done.err().map(|e| format!("old checkpoints could not be pruned: {}", e.message))
    }

    /// What [`prune_after`](Self::prune_after) left to the process that tends the store.
    pub(crate) fn prune_when_idle(&self) -> Result<()> {
        if self.disabled().is_some() {
            return Ok(());
        }
        let lock = self.lock_capture()?;
        self.prune_by_itself(&Policy::of(self.settings()), &lock)?;
        let _ = private_file(&self.store()?.state_dir().join("pruned"));
        Ok(())
    }

    fn prune_by_itself(&self, policy: &Policy, _lock: &CaptureLock) -> Result<()> {
        let Ok(_one) = self.store()?.lock_exclusive("prune", Duration::ZERO) else { return Ok(()) };
        let rows = self.rows()?.all_readable()?;
        let operations = self.operations()?;
        let sessions = self.session_records()?;
        let facts =
            Facts { rows: &rows.all, sessions: &sessions, operations: &operations, now_ms: record::now_ms() };
        let gone = retention::select(&facts, policy);
        // Old operations alone are no reason to write one more.
        if gone.is_empty() {
            return Ok(());
        }
        let moves = moves(&gone, &retention::operations(&facts, policy));
        self.to_trash(OpKind::Prune, moves, trash::automatic())?;
        Ok(())
    }
}

fn moves(rows: &[(&Checkpoint, Why)], operations: &[&Operation]) -> Vec<(String, Oid)> {
    rows.iter().map(|(c, _)| trash::row(c)).chain(operations.iter().map(|o| trash::operation(o))).collect()
}

/// Makes an empty file, or its times new.
fn private_file(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let f = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    f.set_modified(SystemTime::now())
}

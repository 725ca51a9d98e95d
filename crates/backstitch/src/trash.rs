//! The trash: rows and operations that were deleted or pruned, until they are collected (SEMANTICS 30).
//!
//! Moving is an operation of its own, whose record is durable before the first ref moves: what is in the trash is always
//! named by an operation that brings it back. Interrupted, a move is complete as far as it came, and its undo brings back
//! just that.

use backstitch_store::{Edit, Expect, Oid};

use crate::{
    error::{Code, Error, Result},
    operation::{OpKind, OpRecord, OpState, Operation, Outcome},
    plan::Plan,
    record::{self, CHECKPOINTS, Checkpoint, OPERATIONS, TRASH},
    undo::Options,
    workspace::Workspace,
};

/// Before the id of an operation among the moved refs of a record; rows are named by their ids alone.
const OF_OPERATIONS: &str = "operations/";

/// Says that nobody asked for it: the walk of undo passes it over, `undo --operation` does not.
pub(crate) const AUTOMATIC: &str = "automatic";

/// The session that was deleted as a whole, if it has a record: the record says so, and no longer once it is taken back.
pub(crate) const OF_SESSION: &str = "deleted_session";

/// What the policy did by itself within a day is one operation of up to so many rows, so that a session at its cap does not
/// add one with every turn.
const TOGETHER: usize = 32;
const TOGETHER_MS: i64 = 86_400_000;

/// The ref in the list, and the one in the trash, of a moved name.
fn places(name: &str) -> (String, String) {
    let listed = match name.strip_prefix(OF_OPERATIONS) {
        Some(id) => format!("{OPERATIONS}{id}"),
        None => format!("{CHECKPOINTS}{name}"),
    };
    (listed, format!("{TRASH}{name}"))
}

/// A row as a moved ref.
pub(crate) fn row(c: &Checkpoint) -> (String, Oid) {
    (c.record.id.clone(), c.commit)
}

/// An operation as a moved ref.
pub(crate) fn operation(o: &Operation) -> (String, Oid) {
    (format!("{OF_OPERATIONS}{}", o.record.id), o.commit)
}

/// The first names of a move, for people.
fn shown(rows: &[(String, String)]) -> String {
    let first: Vec<&str> = rows.iter().take(5).map(|(n, _)| n.as_str()).collect();
    match rows.len().saturating_sub(first.len()) {
        0 => first.join(" "),
        more => format!("{} and {more} more", first.join(" ")),
    }
}

/// Members of a record beyond its fields.
pub(crate) type Extra = serde_json::Map<String, serde_json::Value>;

/// The policy acts by itself.
pub(crate) fn automatic() -> Extra {
    [(AUTOMATIC.to_owned(), true.into())].into_iter().collect()
}

/// What a move did.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The operation, unless there was nothing to move.
    pub operation: Option<String>,
    /// Refs that were changed by somebody meanwhile, and stay.
    pub failed: Vec<String>,
}

impl Workspace {
    /// Moves rows to the trash as one operation, and returns its id. `undo` brings them back.
    ///
    /// # Errors
    /// `conflict` for a pinned row: nothing is moved; `busy` where a row was changed meanwhile.
    pub fn delete(&self, rows: &[&Checkpoint]) -> Result<String> {
        self.delete_as(rows, Extra::new())
    }

    /// The same, with what else the operation's record says.
    pub(crate) fn delete_as(&self, rows: &[&Checkpoint], extra: Extra) -> Result<String> {
        let _lock = self.lock_operation()?;
        if let Some(p) = rows.iter().find(|c| c.record.pinned) {
            return Err(Error::new(Code::Conflict, format!("checkpoint {} is pinned", p.record.id))
                .hint("`backstitch unpin` first; nothing was deleted"));
        }
        // Captures are kept out, so that what was read before the lock either still stands or is told now.
        for c in rows {
            if self.store()?.refs().get(&places(&c.record.id).0)? != Some(c.commit) {
                return Err(Error::new(
                    Code::Busy,
                    format!("checkpoint {} was changed meanwhile", c.record.id),
                )
                .hint("try again; nothing was deleted"));
            }
        }
        let moved = self.to_trash(OpKind::Delete, rows.iter().map(|c| row(c)).collect(), extra)?;
        moved.operation.ok_or_else(|| {
            Error::new(Code::Usage, "no checkpoint was named")
                .hint("`backstitch list --all` shows every checkpoint")
        })
    }

    /// Writes the operation, then moves the refs. One that changed meanwhile stays, and does not stop the others.
    pub(crate) fn to_trash(&self, kind: OpKind, refs: Vec<(String, Oid)>, extra: Extra) -> Result<Moved> {
        if refs.is_empty() {
            return Ok(Moved::default());
        }
        self.keep_numbers(&refs.iter().map(|(n, _)| n.as_str()).collect())?;
        let now = record::now_ms();
        let rows: Vec<(String, String)> = refs.iter().map(|(n, c)| (n.clone(), c.to_string())).collect();
        let operations = self.operations()?;
        let together = operations.last().filter(|o| {
            let r = &o.record;
            let is_automatic = |e: &Extra| e.contains_key(AUTOMATIC);
            (r.kind, r.state) == (kind, OpState::Done)
                && is_automatic(&extra)
                && is_automatic(&r.extra)
                && r.rows.len() + rows.len() <= TOGETHER
                && now.saturating_sub(r.created_ms) < TOGETHER_MS
        });
        let operation = match together {
            Some(last) => {
                let mut op = last.record.clone();
                op.rows.extend(rows);
                op.target = shown(&op.rows);
                op.created_ms = now;
                self.rewrite_operation(last, &op)?
            }
            None => {
                let op = OpRecord {
                    v: 1,
                    id: record::new_id(now),
                    seq: operations.last().map_or(1, |o| o.record.seq + 1),
                    kind,
                    state: OpState::Done,
                    target: shown(&rows),
                    inverts: None,
                    session: self.surroundings().session.clone().filter(|_| kind == OpKind::Delete),
                    safety: None,
                    plan: String::new(),
                    created_ms: now,
                    changed: 0,
                    at: 0,
                    takes_back: Vec::new(),
                    exceptions: Vec::new(),
                    rows,
                    extra,
                };
                self.write_operation(&op, None)?
            }
        };
        let mut moved = Moved { operation: Some(operation), failed: Vec::new() };
        let mut left = refs;
        while !left.is_empty() {
            let edits: Vec<Edit> = left
                .iter()
                .flat_map(|(name, commit)| {
                    let (listed, trash) = places(name);
                    // What is expected comes first: where it does not hold, the trash is not touched.
                    [
                        Edit { name: listed, expect: Expect::Is(*commit), new: None },
                        Edit { name: trash, expect: Expect::Any, new: Some(*commit) },
                    ]
                })
                .collect();
            match self.store()?.refs().apply(&edits) {
                Ok(()) => break,
                Err(backstitch_store::Error::RefMoved { name }) => {
                    let Some(n) = left.iter().position(|(m, _)| places(m).0 == name) else { break };
                    moved.failed.push(left.remove(n).0);
                    // What came before it is moved.
                    left.drain(..n);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(moved)
    }

    /// Moves rows between the list and the trash: the inverse of a delete or prune, or the inverse of that.
    pub(crate) fn invert_rows(
        &self,
        kind: OpKind,
        op: &Operation,
        options: &Options,
        all: &[Operation],
    ) -> Result<Outcome> {
        let refs = self.store()?.refs();
        // A delete and its redo put rows into the trash; its undo brings them back.
        let back = op.record.kind != OpKind::Undo;
        let mut missing = Vec::new();
        let plan = Plan::default().agreed(&op.record.id, options.plan.as_deref())?;
        let mut moves = Vec::new();
        for (name, _) in &op.record.rows {
            let (listed, trash) = places(name);
            let (from, to) = if back { (trash, listed) } else { (listed, trash) };
            match refs.get(&from)? {
                // Where a collection frees it just now, nothing is set.
                Some(current) => moves.push([
                    Edit { name: from, expect: Expect::Is(current), new: None },
                    Edit { name: to, expect: Expect::Any, new: Some(current) },
                ]),
                // A move that was interrupted, or a row that stayed.
                None if refs.get(&to)?.is_some() => {}
                None => missing.push(name.clone()),
            }
        }
        if !missing.is_empty() && missing.len() == op.record.rows.len() && options.operation.is_some() {
            return Err(Error::new(
                Code::NoSuchCheckpoint,
                format!("the space of what {} {} removed was freed", op.record.kind.as_str(), op.record.id),
            )
            .list(missing)
            .hint("nothing can bring it back; nothing was changed"));
        }
        let id = if options.dry_run {
            None
        } else {
            match refs.apply(moves.as_flattened()) {
                // One by one, so that each says for itself whether it is still there.
                Err(backstitch_store::Error::RefMoved { .. }) => {
                    for m in &moves {
                        match refs.apply(m) {
                            Err(backstitch_store::Error::RefMoved { .. })
                                if refs.get(&m[1].name)?.is_none() =>
                            {
                                missing.push(m[1].name.rsplit('/').next().unwrap_or_default().to_owned());
                            }
                            Err(backstitch_store::Error::RefMoved { .. }) => {}
                            done => done?,
                        }
                    }
                }
                done => done?,
            }
            let record = OpRecord {
                id: record::new_id(record::now_ms()),
                seq: all.last().map_or(1, |o| o.record.seq + 1),
                kind,
                target: op.record.id.clone(),
                inverts: Some(op.record.id.clone()),
                created_ms: record::now_ms(),
                extra: op.record.extra.clone().into_iter().filter(|(k, _)| k == OF_SESSION).collect(),
                ..op.record.clone()
            };
            let id = self.write_operation(&record, None)?;
            if let Some(session) = record.extra.get(OF_SESSION).and_then(|s| s.as_str()) {
                self.mark_deleted(session, !back)?;
            }
            Some(id)
        };
        Ok(Outcome {
            operation: id,
            dry_run: options.dry_run,
            plan,
            target: op.record.id.clone(),
            safety: None,
            items: Vec::new(),
            verified: true,
            partial: !missing.is_empty(),
            rows_back: back,
            rows: (op.record.rows.iter())
                .map(|(name, _)| name.clone())
                .filter(|name| !name.starts_with(OF_OPERATIONS) && !missing.contains(name))
                .collect(),
            takes_back: Vec::new(),
            warnings: missing.iter().map(|m| format!("{m} is no longer in the store")).collect(),
            git: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint,
        workspace::{Control, Surroundings},
    };

    #[test]
    fn s3_52_one_that_changed_stays_and_the_rest_goes() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("w");
        std::fs::create_dir(&root).expect("made");
        let s = Surroundings { store_base: dir.path().join("data"), ..Surroundings::default() };
        let mut ws = Workspace::open(&root, s).expect("opened");
        let rows: Vec<Checkpoint> = (0..4)
            .map(|_| {
                let out = ws.checkpoint(&checkpoint::Options::default(), &Control::default());
                out.expect("recorded").checkpoint.expect("a row")
            })
            .collect();
        // Somebody pins one after the policy has looked.
        ws.pin(&rows[1], true).expect("pinned");
        let refs = rows[..3].iter().map(row).collect();
        let moved = ws.to_trash(OpKind::Prune, refs, automatic()).expect("moved");
        assert_eq!(moved.failed, [rows[1].record.id.clone()]);
        let left: Vec<String> =
            ws.rows().expect("rows").all.into_iter().map(|c| c.record.id.clone()).collect();
        assert_eq!(left, [rows[1].record.id.clone(), rows[3].record.id.clone()]);
        let trash = ws.store().expect("a store").refs().list(TRASH).expect("listed");
        assert_eq!(trash.len(), 2, "{trash:?}");
        // Where it is the first, nothing at all has come into the trash.
        let refs = rows[1..2].iter().map(row).collect();
        assert_eq!(ws.to_trash(OpKind::Prune, refs, automatic()).expect("moved").failed.len(), 1);
        assert_eq!(ws.store().expect("a store").refs().list(TRASH).expect("listed"), trash);
    }
}

//! Removing sessions: into the trash, or for good.

use std::collections::BTreeMap;

use backstitch_store::{Edit, Expect};
use bstr::ByteSlice;

use crate::{
    error::{Code, Error, Result},
    record::{self, CHECKPOINTS, Checkpoint},
    session::{SessionRecord, no_session, open_turn, session_ref},
    trash,
    workspace::{Control, Workspace},
};

/// The turn that was begun, not ended, and active within the last hour.
pub(crate) fn live_turn(own: &[&Checkpoint]) -> Option<u64> {
    const LIVE_MS: i64 = 3_600_000;
    let live = own.last().is_some_and(|c| record::now_ms().saturating_sub(c.record.created_ms) < LIVE_MS);
    open_turn(own).filter(|_| live).and_then(|c| c.record.turn)
}

/// What a purge removed.
#[derive(Clone, Debug, Default)]
pub struct Purged {
    /// Rows of the list.
    pub rows: Vec<String>,
    /// Rows of the trash.
    pub trash: Vec<String>,
    /// Operations.
    pub operations: Vec<String>,
}

impl Workspace {
    /// Moves all rows of a session to the trash as one operation, and returns its id and theirs. `undo` brings them back.
    ///
    /// # Errors
    /// `no-such-session`, `store-damaged` where a row cannot be read; without `force`: `busy` while a turn of it has been open for less than an hour, `conflict`
    /// where another session was forked from it; `conflict` for a pinned row. Nothing is moved then.
    pub fn session_delete(&self, session: &str, force: bool) -> Result<(String, Vec<String>)> {
        let rows = self.rows()?.all_readable()?;
        let own = rows.of_session(session);
        let records = self.session_records()?;
        if own.is_empty() {
            return Err(match records.get(session).filter(|s| !s.was_deleted() && !s.ended) {
                Some(_) => Error::new(
                    Code::NoSuchSession,
                    format!("session {session:?} has no checkpoints of its own"),
                )
                .hint("`backstitch session end` takes it off the list"),
                None => no_session(session),
            });
        }
        self.refuse_in_use(session, &own, &records, force)?;
        let ids = own.iter().map(|c| c.record.id.clone()).collect();
        let is_marked = records.get(session).is_some_and(|s| !s.was_deleted());
        let said = is_marked.then(|| (trash::OF_SESSION.to_owned(), session.into()));
        let operation = self.delete_as(&own, said.into_iter().collect())?;
        if is_marked {
            self.mark_deleted(session, true)?;
        }
        Ok((operation, ids))
    }

    /// Says in the record of a session, if it has one, whether it was deleted as a whole.
    pub(crate) fn mark_deleted(&self, session: &str, deleted: bool) -> Result<()> {
        let Some(mut s) = self.session_records()?.remove(session) else { return Ok(()) };
        match deleted {
            true => s.extra.insert(SessionRecord::DELETED.to_owned(), true.into()),
            false => s.extra.remove(SessionRecord::DELETED),
        };
        self.write_session(&s)
    }

    /// A session that somebody stands on is not removed.
    fn refuse_in_use(
        &self,
        session: &str,
        own: &[&Checkpoint],
        records: &BTreeMap<String, SessionRecord>,
        force: bool,
    ) -> Result<()> {
        if self.surroundings().inside.as_deref() == Some(session) {
            return Err(Error::new(Code::Conflict, format!("this process runs inside session {session:?}"))
                .hint("remove it from outside of it; nothing was removed"));
        }
        if force {
            return Ok(());
        }
        if let Some(turn) = live_turn(own) {
            return Err(Error::new(Code::Busy, format!("turn {turn} of session {session:?} is open"))
                .hint("end it first, or say --force; nothing was removed"));
        }
        let forks: Vec<String> = records
            .values()
            .filter(|s| s.parent.as_deref() == Some(session) && !s.was_deleted())
            .map(|s| s.id.clone())
            .collect();
        if !forks.is_empty() {
            return Err(Error::new(
                Code::Conflict,
                match forks.len() {
                    1 => format!("a session was forked from {session:?}"),
                    n => format!("{n} sessions were forked from {session:?}"),
                },
            )
            .list(forks)
            .hint(
                "their lines need its checkpoints; --force removes them all the same; nothing was removed",
            ));
        }
        Ok(())
    }

    /// Removes a session for good: its rows, those in the trash, its operations and its record. Cannot be undone. For
    /// what `session delete` does not take, too: sessions without rows, or with rows in the trash only.
    ///
    /// # Errors
    /// `no-such-session`, `store-damaged` where a row cannot be read; `conflict` from inside the session; without `force`: `busy` while a turn of it has been open
    /// for less than an hour, `conflict` where another was forked from it or a row is pinned. Nothing is removed then.
    pub fn session_purge(&self, session: &str, force: bool, control: &Control<'_>) -> Result<Purged> {
        let lock = self.lock_operation()?;
        let rows = self.rows()?.all_readable()?;
        let own = rows.of_session(session);
        self.refuse_in_use(session, &own, &self.session_records().unwrap_or_default(), force)?;
        if let Some(p) = own.iter().find(|c| c.record.pinned && !force) {
            return Err(Error::new(Code::Conflict, format!("checkpoint {} is pinned", p.record.id))
                .hint("`backstitch unpin` first, or say --force; nothing was removed"));
        }
        let refs = self.store()?.refs();
        let mut out = Purged::default();
        let mut edits: Vec<Edit> = Vec::new();
        let mut take =
            |name: String, commit| edits.push(Edit { name, expect: Expect::Is(commit), new: None });
        for c in &own {
            out.rows.push(c.record.id.clone());
            take(format!("{CHECKPOINTS}{}", c.record.id), c.commit);
        }
        // What cannot be read cannot be told to be this session's, and stays for `verify --repair`.
        for prefix in [record::TRASH, record::OPERATIONS] {
            for r in refs.rows(prefix)?.0 {
                let of = |v: &serde_json::Value| v.get("session").and_then(|s| s.as_str()) == Some(session);
                let Ok(v) = record::decode::<serde_json::Value>(r.message.as_bstr(), &r.name) else {
                    continue;
                };
                if !of(&v) {
                    continue;
                }
                let id = r.name.rsplit('/').next().unwrap_or_default().to_owned();
                match v.get("state").and_then(|s| s.as_str()) {
                    Some("running") => continue,
                    Some("done" | "rolled-back") => out.operations.push(id),
                    _ => out.trash.push(id),
                }
                take(r.name, r.commit);
            }
        }
        let name = session_ref(session);
        if let Some(commit) = refs.get(&name)? {
            take(name, commit);
        }
        if edits.is_empty() {
            return Err(no_session(session));
        }
        refs.apply(&edits)?;
        // For good means the bytes too. What is left of them when this fails is what no ref needs: any collection takes it.
        let _alone = lock.without_store();
        self.collect_now(control)?;
        Ok(out)
    }
}

//! Sessions, turns and tool windows: rows made around what an agent does.
//!
//! A turn has a `prompt` row before it and a `turn` row after it; between them lie tool windows, each a pair of `tool` rows
//! with one call id. All calls may be repeated by a host and tolerate missing neighbours. Numbers of turns are given out
//! under the lock `turns` and never twice in a session.

use std::collections::{BTreeMap, HashSet};

use backstitch_store::{Edit, Expect};
use bstr::{BString, ByteSlice};
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::{Options, Outcome},
    error::{Code, Error, Result},
    operation::{OpKind, OpState, Operation},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, Kind, Record, State, Summary},
    undo,
    workspace::{Control, Rows, Workspace},
};

/// Where sessions' own records live.
pub const SESSIONS: &str = "refs/backstitch/sessions/";

/// What is known of a session beyond its rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Version.
    pub v: u32,
    /// The session.
    pub id: String,
    /// The session that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The row at which it was forked; rows of the parent up to it are the fork's own line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_row: Option<String>,
    /// Order of that row.
    #[serde(default)]
    pub fork_seq: u64,
    /// Ended by its host.
    #[serde(default)]
    pub ended: bool,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl SessionRecord {
    /// Its rows were moved to the trash once.
    fn was_deleted(&self) -> bool {
        self.extra.contains_key("deleted")
    }
}

/// A session and its rows.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its record.
    pub record: SessionRecord,
    /// Own rows, without its parent's.
    pub rows: u64,
    /// Highest turn number in its line.
    pub turns: u64,
    /// Of its newest row.
    pub last_ms: i64,
    /// A turn was begun and not ended.
    pub open_turn: Option<u64>,
}

/// Which turn is meant.
#[derive(Clone, Debug, Default)]
pub struct TurnOptions {
    /// The session.
    pub session: String,
    /// The host's key: the same key means the same turn.
    pub key: Option<String>,
    /// The prompt.
    pub prompt: Option<String>,
    /// Id of the conversation's entry, where it is known already.
    pub entry: Option<String>,
}

/// One end of a tool window.
#[derive(Clone, Debug, Default)]
pub struct ToolOptions {
    /// The session.
    pub session: String,
    /// The host's id of the call.
    pub call: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The sub-agent.
    pub agent: Option<String>,
    /// Paths that the tool names; without them the whole workspace is looked at.
    pub paths: Vec<BString>,
}

/// A session's id is used in names and refs.
pub fn check_session(id: &str) -> Result<()> {
    let ok = !id.is_empty()
        && id.len() <= 200
        && !id.starts_with('.')
        && !id.starts_with('-')
        && !id.ends_with(".lock")
        && !id.contains("..")
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'@'));
    if ok && !id.starts_with('@') {
        return Ok(());
    }
    Err(Error::new(Code::Usage, format!("{id:?} is not a session id"))
        .hint("letters, digits and . _ - : @ inside, up to 200 of them"))
}

/// A session's line: its parents' rows up to the fork points, and its own (SEMANTICS 12).
pub fn line<'a>(rows: &'a Rows, sessions: &BTreeMap<String, SessionRecord>, id: &str) -> Vec<&'a Checkpoint> {
    let mut parts: Vec<(String, u64)> = vec![(id.to_owned(), u64::MAX)];
    let mut at = id.to_owned();
    while let Some((parent, seq)) = sessions.get(&at).and_then(|s| s.parent.clone().map(|p| (p, s.fork_seq)))
    {
        if parts.iter().any(|(p, _)| *p == parent) {
            break;
        }
        let limit = parts.last().map_or(seq, |(_, l)| seq.min(*l));
        parts.push((parent.clone(), limit));
        at = parent;
    }
    rows.all
        .iter()
        .filter(|c| {
            parts.iter().any(|(s, limit)| c.record.session.as_deref() == Some(s) && c.record.seq <= *limit)
        })
        .collect()
}

/// The outcome of a call that was made before.
fn again(c: Option<&Checkpoint>) -> Outcome {
    Outcome { checkpoint: c.cloned(), skips: Vec::new(), warnings: Vec::new(), read: (0, 0) }
}

/// There is no such session.
pub fn no_session(id: &str) -> Error {
    Error::new(Code::NoSuchSession, format!("there is no session {id:?} here"))
        .hint("`backstitch session list` shows all")
}

/// The turn of a line that was begun and not ended.
fn open_turn<'a>(own: &[&'a Checkpoint]) -> Option<&'a Checkpoint> {
    let newest = own.iter().rev().find(|c| c.record.kind == Kind::Prompt)?;
    let ended = own.iter().any(|c| c.record.kind == Kind::Turn && c.record.turn == newest.record.turn);
    (!ended).then_some(*newest)
}

/// Ids of rows of turns that a rewind took back, as long as nobody undid it: the conversation went on before them.
pub fn abandoned<'a>(rows: &'a Rows, operations: &[Operation]) -> HashSet<&'a str> {
    let undone = undo::undone(operations);
    let mut out = HashSet::new();
    for o in operations.iter().map(|o| &o.record).filter(|r| {
        r.kind == OpKind::Rewind
            && r.state == OpState::Done
            && !undone.contains(r.id.as_str())
            && !r.extra.contains_key("narrowed")
    }) {
        out.extend(
            rows.all
                .iter()
                .map(|c| &c.record)
                .filter(|c| c.session == o.session && c.seq < o.at)
                .filter(|c| c.turn.is_some_and(|t| o.takes_back.contains(&t)))
                .map(|c| c.id.as_str()),
        );
    }
    out
}

impl Workspace {
    /// Records of sessions by id.
    pub fn session_records(&self) -> Result<BTreeMap<String, SessionRecord>> {
        let (rows, _) = self.store()?.refs().rows(SESSIONS)?;
        rows.iter()
            .map(|r| record::decode::<SessionRecord>(r.message.as_bstr(), &r.name).map(|s| (s.id.clone(), s)))
            .collect()
    }

    fn write_session(&self, s: &SessionRecord) -> Result<()> {
        let writer = self.store()?.writer()?;
        let mut scratch = writer.scratch();
        let (tree, _) = writer.tree(&mut scratch, &mut Vec::new())?;
        let message = record::encode(&format!("session {}", s.id), s);
        let commit = writer.commit(&mut scratch, &tree, &message, s.created_ms.div_euclid(1000))?;
        writer.finish()?;
        let name = format!("{SESSIONS}{}", s.id.replace(':', "%3a").replace('@', "%40"));
        self.store()?.refs().apply(&[Edit { name, expect: Expect::Any, new: Some(commit) }])?;
        Ok(())
    }

    /// All sessions, the one with the newest row first.
    pub fn sessions(&self) -> Result<Vec<Session>> {
        let rows = self.rows()?;
        let records = self.session_records()?;
        let mut ids: Vec<&str> = rows.all.iter().filter_map(|c| c.record.session.as_deref()).collect();
        ids.extend(records.keys().map(String::as_str));
        ids.sort_unstable();
        ids.dedup();
        let mut out: Vec<Session> = ids
            .into_iter()
            .map(|id| {
                let own: Vec<&Checkpoint> =
                    rows.all.iter().filter(|c| c.record.session.as_deref() == Some(id)).collect();
                let known = records.get(id).map_or(0, |r| r.created_ms);
                let created = own.first().map_or(known, |c| c.record.created_ms);
                Session {
                    record: records.get(id).cloned().unwrap_or(SessionRecord {
                        v: 1,
                        id: id.to_owned(),
                        created_ms: created,
                        ..SessionRecord::default()
                    }),
                    rows: own.len() as u64,
                    turns: line(&rows, &records, id).iter().filter_map(|c| c.record.turn).max().unwrap_or(0),
                    last_ms: own.last().map_or(created, |c| c.record.created_ms),
                    open_turn: open_turn(&own).and_then(|c| c.record.turn),
                }
            })
            // All of its rows were deleted; a fork that has none yet stands on its parent's.
            .filter(|s| s.rows > 0 || s.record.fork_row.is_some() && !s.record.ended && !s.record.was_deleted())
            .collect();
        out.sort_by_key(|s| std::cmp::Reverse(s.last_ms));
        Ok(out)
    }

    /// The session meant: named, or the only one there is, or a first one called `default`.
    ///
    /// # Errors
    /// `ambiguous` with the list.
    pub fn session_or_only(&self, session: Option<&str>) -> Result<String> {
        if let Some(s) = session {
            check_session(s)?;
            return Ok(s.to_owned());
        }
        if !self.has_store() {
            return Ok("default".to_owned());
        }
        match self.rows().and_then(|r| crate::names::session_of(&r, None).map(str::to_owned)) {
            Err(e) if e.code == Code::NoSuchSession => Ok("default".to_owned()),
            r => r,
        }
    }

    /// Starts a session from a row of another: nothing is copied.
    ///
    /// # Errors
    /// `conflict` where the new session has rows or a record already; `usage`.
    pub fn fork(&mut self, new: &str, from: &Checkpoint) -> Result<SessionRecord> {
        check_session(new)?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let rows = self.rows()?;
        let records = self.session_records()?;
        if let Some(known) = records.get(new) {
            if known.fork_row.as_deref() == Some(&from.record.id) && !known.was_deleted() {
                return Ok(known.clone());
            }
            return Err(Error::new(Code::Conflict, format!("there is a session {new:?} already")));
        }
        if rows.all.iter().any(|c| c.record.session.as_deref() == Some(new)) {
            return Err(Error::new(Code::Conflict, format!("session {new:?} has checkpoints already"))
                .hint("fork into a new id"));
        }
        let s = SessionRecord {
            v: 1,
            id: new.to_owned(),
            parent: from.record.session.clone(),
            fork_row: Some(from.record.id.clone()),
            fork_seq: from.record.seq,
            created_ms: record::now_ms(),
            ..SessionRecord::default()
        };
        self.write_session(&s)?;
        Ok(s)
    }

    /// Moves all rows of a session to the trash as one operation, and returns its id and theirs. `undo` brings them back.
    ///
    /// # Errors
    /// `no-such-session`; without `force`: `busy` while a turn of it has been open for less than an hour, `conflict`
    /// where another session was forked from it; `conflict` for a pinned row. Nothing is moved then.
    pub fn session_delete(&self, session: &str, force: bool) -> Result<(String, Vec<String>)> {
        const LIVE_MS: i64 = 3_600_000;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(session)).collect();
        let mut records = self.session_records()?;
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
        let open = open_turn(&own).filter(|_| {
            own.last().is_some_and(|c| record::now_ms().saturating_sub(c.record.created_ms) < LIVE_MS)
        });
        if let Some(turn) = open.and_then(|c| c.record.turn).filter(|_| !force) {
            return Err(Error::new(Code::Busy, format!("turn {turn} of session {session:?} is open"))
                .hint("end it first, or say --force; nothing was deleted"));
        }
        let forks: Vec<String> = records
            .values()
            .filter(|s| s.parent.as_deref() == Some(session) && !s.was_deleted())
            .map(|s| s.id.clone())
            .collect();
        if !forks.is_empty() && !force {
            return Err(Error::new(
                Code::Conflict,
                format!("{} sessions were forked from {session:?}", forks.len()),
            )
            .list(forks)
            .hint(
                "their lines need its checkpoints; --force deletes them all the same; nothing was deleted",
            ));
        }
        let ids = own.iter().map(|c| c.record.id.clone()).collect();
        let operation = self.delete(&own)?;
        if let Some(mut s) = records.remove(session).filter(|s| !s.was_deleted()) {
            s.extra.insert("deleted".to_owned(), true.into());
            self.write_session(&s)?;
        }
        Ok((operation, ids))
    }

    /// Records the present state as a row of a session's turn: of the one with `options.turn_key`, else a new one for a
    /// `prompt` row, else the open one (or the last) for `turn`, `tool` and `agent-run` rows. Rows without a session, and
    /// others without a key, belong to no turn. A repeated `prompt` row with the same key is the same row.
    ///
    /// # Errors
    /// As [`Workspace::checkpoint`].
    pub fn checkpoint_in_turn(&mut self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let kind = options.kind;
        let in_turn = matches!(kind, Kind::Prompt | Kind::Turn | Kind::Tool | Kind::AgentRun);
        let session = options.session.clone().filter(|_| in_turn || options.turn_key.is_some());
        let (Some(session), None, None) = (session, self.disabled(), options.turn) else {
            return self.checkpoint(options, control);
        };
        if let Some(label) = &options.label {
            crate::checkpoint::check_label(label)?;
        }
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(&session)).collect();
        let keyed = own.iter().copied().find(|c| {
            options.turn_key.is_some() && c.record.turn.is_some() && c.record.turn_key == options.turn_key
        });
        let mut options = options.clone();
        match (kind, keyed) {
            (Kind::Prompt, Some(c)) if c.record.kind == Kind::Prompt => return Ok(again(Some(c))),
            (_, Some(c)) => options.turn = c.record.turn,
            (Kind::Prompt, None) => {
                self.close_open_turn(&rows, &session)?;
                let records = self.session_records()?;
                let highest = line(&rows, &records, &session).iter().filter_map(|c| c.record.turn).max();
                options.turn = Some(highest.unwrap_or(0) + 1);
            }
            (_, None) if in_turn && options.turn_key.is_none() => {
                let of =
                    open_turn(&own).or_else(|| own.iter().rev().find(|c| c.record.turn.is_some()).copied());
                options.turn = of.and_then(|c| c.record.turn);
                options.turn_key = of.and_then(|c| c.record.turn_key.clone());
            }
            _ => {}
        }
        self.checkpoint(&options, control)
    }

    /// Marks a session as ended; an open turn ends as `crashed`. Repeating it does nothing.
    pub fn session_end(&mut self, session: &str) -> Result<SessionRecord> {
        check_session(session)?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let rows = self.rows()?;
        self.close_open_turn(&rows, session)?;
        let mut s = self.session_records()?.remove(session).unwrap_or(SessionRecord {
            v: 1,
            id: session.to_owned(),
            created_ms: record::now_ms(),
            ..SessionRecord::default()
        });
        if !s.ended {
            s.ended = true;
            self.write_session(&s)?;
        }
        Ok(s)
    }

    /// Begins a turn: its `prompt` row. The same key gives the same row. A turn left open ends as `crashed` first; its
    /// after is its last row.
    pub fn turn_begin(&mut self, o: &TurnOptions, control: &Control<'_>) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let lock = self.lock_capture()?;
        let mut rows = self.rows()?;
        let known = rows.all.iter().find(|c| {
            c.record.kind == Kind::Prompt
                && c.record.session.as_deref() == Some(&o.session)
                && o.key.is_some()
                && c.record.turn_key == o.key
        });
        if let Some(c) = known {
            return Ok(again(Some(c)));
        }
        if self.close_open_turn(&rows, &o.session)? {
            rows = self.rows()?;
        }
        let records = self.session_records()?;
        let highest =
            line(&rows, &records, &o.session).iter().filter_map(|c| c.record.turn).max().unwrap_or(0);
        let options = Options {
            kind: Kind::Prompt,
            session: Some(o.session.clone()),
            turn: Some(highest + 1),
            turn_key: o.key.clone(),
            prompt: o.prompt.clone(),
            entry: o.entry.clone(),
            ..Options::default()
        };
        self.record_row(&options, control, &lock, &rows, Vec::new())
    }

    /// Ends the open turn (or the one with this key): its `turn` row. Without an open turn nothing happens and no row
    /// comes back; an ended turn gives its row again.
    pub fn turn_end(
        &mut self,
        session: &str,
        key: Option<&str>,
        status: &str,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        check_session(session)?;
        if !matches!(status, "completed" | "error" | "cancelled") {
            return Err(Error::new(Code::Usage, format!("{status:?} is not completed, error or cancelled")));
        }
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(session)).collect();
        let begun = match key {
            Some(k) => own
                .iter()
                .copied()
                .find(|c| c.record.kind == Kind::Prompt && c.record.turn_key.as_deref() == Some(k)),
            None => open_turn(&own),
        };
        let Some(begun) = begun else { return Ok(again(None)) };
        let ended = own.iter().find(|c| c.record.kind == Kind::Turn && c.record.turn == begun.record.turn);
        if let Some(c) = ended {
            return Ok(again(Some(c)));
        }
        let options = Options {
            kind: Kind::Turn,
            session: Some(session.to_owned()),
            turn: begun.record.turn,
            turn_key: begun.record.turn_key.clone(),
            status: Some(status.to_owned()),
            ..Options::default()
        };
        self.record_row(&options, control, &lock, &rows, Vec::new())
    }

    /// Gives the oldest `prompt` row without one (or the turn with this key) the id of its conversation entry. First
    /// binding wins: `false` where the row has another already.
    pub fn turn_bind(&mut self, session: &str, key: Option<&str>, entry: &str) -> Result<(Checkpoint, bool)> {
        check_session(session)?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let _lock = self.lock_capture()?;
        let rows = self.rows()?;
        let mut prompts = rows
            .all
            .iter()
            .filter(|c| c.record.kind == Kind::Prompt && c.record.session.as_deref() == Some(session));
        let found = match key {
            Some(k) => prompts.find(|c| c.record.turn_key.as_deref() == Some(k)),
            None => prompts
                .clone()
                .find(|c| c.record.entry.as_deref() == Some(entry))
                .or_else(|| prompts.find(|c| c.record.entry.is_none())),
        };
        let c = found.ok_or_else(|| {
            Error::new(
                Code::NoSuchCheckpoint,
                format!("session {session:?} has no turn that waits for an entry"),
            )
        })?;
        match &c.record.entry {
            Some(e) => Ok((c.clone(), e == entry)),
            None => Ok((self.rewrite(c, &|r| r.entry = Some(entry.to_owned()))?, true)),
        }
    }

    /// One end of a tool window. With paths only these are looked at, wherever rules would leave them out; the after
    /// of a window looks at the paths of its before.
    pub fn tool(&mut self, before: bool, o: &ToolOptions, control: &Control<'_>) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(&o.session)).collect();
        let turn = open_turn(&own).or(own.iter().rev().find(|c| c.record.turn.is_some()).copied());
        let phase = if before { "before" } else { "after" };
        let of_call = |p: &str| {
            own.iter().rev().find(|c| {
                c.record.kind == Kind::Tool
                    && c.record.phase.as_deref() == Some(p)
                    && c.record.call == o.call
                    && c.record.turn == turn.and_then(|t| t.record.turn)
            })
        };
        // A repeated end of one call is the same row.
        if let (Some(_), Some(c)) = (&o.call, of_call(phase)) {
            return Ok(again(Some(c)));
        }
        let mut names = o.paths.clone();
        let mut tool = o.tool.clone();
        let mut agent = o.agent.clone();
        if !before && let Some(b) = of_call("before") {
            if let Some(covers) = &b.record.covers {
                names.extend(covers.iter().filter_map(|p| paths::unescape(p.as_bytes())));
            } else {
                // The before looked at everything: so does the after.
                names.clear();
            }
            tool = tool.or_else(|| b.record.tool.clone());
            agent = agent.or_else(|| b.record.agent.clone());
        }
        names.sort();
        names.dedup();
        let options = Options {
            kind: Kind::Tool,
            session: Some(o.session.clone()),
            turn: turn.and_then(|t| t.record.turn),
            turn_key: turn.and_then(|t| t.record.turn_key.clone()),
            agent,
            tool,
            phase: Some(phase.to_owned()),
            call: o.call.clone(),
            paths: names,
            ..Options::default()
        };
        self.record_row(&options, control, &lock, &rows, Vec::new())
    }

    /// Recording is on and there is a store.
    fn ready(&mut self) -> Result<()> {
        if let Some(reason) = self.disabled() {
            return Err(Error::new(Code::Disabled, format!("nothing is recorded: {reason}")));
        }
        self.refuse_moved()?;
        self.create_store()?;
        self.check_room()
    }

    /// An open turn ends as `crashed`: its after is its last row. `true` if there was one.
    fn close_open_turn(&self, rows: &Rows, session: &str) -> Result<bool> {
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(session)).collect();
        let Some(begun) = open_turn(&own) else { return Ok(false) };
        let last = own.iter().rev().find(|c| c.record.turn == begun.record.turn).copied().unwrap_or(begun);
        let now = record::now_ms();
        let r = Record {
            id: record::new_id(now),
            seq: rows.next_seq(),
            kind: Kind::Turn,
            turn: begun.record.turn,
            turn_key: begun.record.turn_key.clone(),
            status: Some("crashed".to_owned()),
            prompt: None,
            entry: None,
            label: None,
            tool: None,
            agent: None,
            phase: None,
            call: None,
            parent: Some(begun.record.id.clone()),
            created_ms: now,
            unchanged: last.record.id == begun.record.id,
            summary: if last.record.id == begun.record.id { Summary::default() } else { last.record.summary },
            state: if last.record.state == State::Failed { State::Gap } else { last.record.state },
            pinned: false,
            operation: None,
            ..last.record.clone()
        };
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        let commit = writer.commit(&mut s, &last.tree, &r.message(), now.div_euclid(1000))?;
        writer.finish()?;
        self.store()?.refs().apply(&[Edit {
            name: format!("{CHECKPOINTS}{}", r.id),
            expect: Expect::Absent,
            new: Some(commit),
        }])?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids() {
        for ok in ["a", "01J", "550e8400-e29b-41d4-a716-446655440000", "s.1_x:y"] {
            assert!(check_session(ok).is_ok(), "{ok}");
        }
        for bad in ["", "a/b", "..", "a..b", ".x", "-x", "a b", "é", "@x", "x.lock"] {
            assert!(check_session(bad).is_err(), "{bad}");
        }
    }
}

//! Sessions: the rows made around what an agent does, and how conversations branch.
//!
//! A turn has a `prompt` row before it and a `turn` row after it; between them lie tool windows, each a pair of `tool` rows
//! with one call id. All calls may be repeated by a host and tolerate missing neighbours. Numbers of turns are given out
//! under the lock `turns` and never twice in a session.

use std::collections::{BTreeMap, HashSet};

use backstitch_store::{Expect, Row};
use bstr::ByteSlice;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Code, Error, Result},
    operation::{OpKind, OpState, Operation},
    record::{self, Checkpoint, Kind},
    undo,
    workspace::{Rows, Workspace},
};
pub use crate::{tool::ToolOptions, turn::TurnOptions};

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
    /// The highest number of a turn whose rows are gone: it is not given out again.
    pub(crate) const TURNS: &'static str = "turns";

    /// What says so in the record.
    pub(crate) const DELETED: &'static str = "deleted";

    /// Its rows were moved to the trash, and nobody took that back.
    pub(crate) fn was_deleted(&self) -> bool {
        self.extra.contains_key(SessionRecord::DELETED)
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

/// The highest number of a turn that was given out in the line of a session, deleted and pruned ones included.
pub(crate) fn highest_turn(rows: &Rows, sessions: &BTreeMap<String, SessionRecord>, id: &str) -> u64 {
    let gone = sessions.get(id).and_then(|s| s.extra.get(SessionRecord::TURNS)).and_then(|n| n.as_u64());
    let listed = line(rows, sessions, id).iter().filter_map(|c| c.record.turn).max();
    listed.max(gone).unwrap_or(0)
}

/// A session's line: its parents' rows up to the fork points, and its own (SEMANTICS 12).
pub fn line<'a>(rows: &'a Rows, sessions: &BTreeMap<String, SessionRecord>, id: &str) -> Vec<&'a Checkpoint> {
    let parts = parts(sessions, id);
    let of = |c: &Checkpoint| {
        parts.iter().any(|(s, limit)| c.record.session.as_deref() == Some(s) && c.record.seq <= *limit)
    };
    rows.all.iter().filter(|c| of(c)).collect()
}

/// The sessions of a line, itself first, each with the order of the last of its rows that is part of it.
pub(crate) fn parts(sessions: &BTreeMap<String, SessionRecord>, id: &str) -> Vec<(String, u64)> {
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
    parts
}

/// Where a session's record is.
pub(crate) fn session_ref(id: &str) -> String {
    format!("{SESSIONS}{}", id.replace(':', "%3a").replace('@', "%40"))
}

/// There is no such session.
pub fn no_session(id: &str) -> Error {
    Error::new(Code::NoSuchSession, format!("there is no session {id:?} here"))
        .hint("`backstitch session list` shows all")
}

/// The turn of a line that was begun and not ended.
pub(crate) fn open_turn<'a>(own: &[&'a Checkpoint]) -> Option<&'a Checkpoint> {
    let newest = own.iter().rev().find(|c| c.record.kind == Kind::Prompt)?;
    let ended = own.iter().any(|c| c.record.kind == Kind::Turn && c.record.turn == newest.record.turn);
    (!ended).then_some(*newest)
}

/// Ids of rows of turns that a rewind took back, as long as nobody undid it: the conversation went on before them. Seen
/// from the line of a session, where one is given: what its parent took back after the fork is still part of it, and what
/// it took back of its inherited turns is not.
pub fn abandoned<'a>(rows: &'a Rows, operations: &[Operation], of: Option<&str>) -> HashSet<&'a str> {
    let undone = undo::undone(operations);
    let mut out = HashSet::new();
    let line = of.map(|id| (parts(&rows.sessions, id), line(rows, &rows.sessions, id)));
    for o in operations.iter().map(|o| &o.record).filter(|r| {
        r.kind == OpKind::Rewind
            && r.state == OpState::Done
            && !undone.contains(r.id.as_str())
            && !r.extra.contains_key("narrowed")
    }) {
        let own;
        let seen = match &line {
            None => {
                own = o.session.as_deref().map(|id| rows.of_session(id)).unwrap_or_default();
                &own
            }
            Some((parts, line)) => {
                let of_line =
                    |(s, limit): &(String, u64)| o.session.as_deref() == Some(s.as_str()) && o.at <= *limit;
                if !parts.iter().any(of_line) {
                    continue;
                }
                line
            }
        };
        out.extend(
            seen.iter()
                .map(|c| &c.record)
                .filter(|c| c.seq < o.at)
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

    /// Those that can be read: one that is damaged takes no other with it.
    pub(crate) fn readable_sessions(&self) -> Result<BTreeMap<String, SessionRecord>> {
        let (rows, _) = self.store()?.refs().rows(SESSIONS)?;
        let read = |r: &Row| record::decode::<SessionRecord>(r.message.as_bstr(), &r.name).ok();
        Ok(rows.iter().filter_map(read).map(|s| (s.id.clone(), s)).collect())
    }

    pub(crate) fn write_session(&self, s: &SessionRecord) -> Result<()> {
        let writer = self.store()?.writer()?;
        let mut scratch = writer.scratch();
        let (tree, _) = writer.tree(&mut scratch, &mut Vec::new())?;
        let message = record::encode(&format!("session {}", s.id), s);
        let commit = writer.commit(&mut scratch, &tree, &message, s.created_ms.div_euclid(1000))?;
        let (_, staged) = writer.finish_for(&commit)?;
        let row = Row { name: session_ref(&s.id), commit, tree, message: message.into() };
        Ok(self.store()?.refs().set_staged(&row, Expect::Any, staged)?)
    }

    /// Before rows leave the list: the numbers of their turns stay given out (SEMANTICS 9).
    pub(crate) fn keep_numbers(&self, leaving: &HashSet<&str>) -> Result<()> {
        let rows = self.rows()?;
        let mut highest: BTreeMap<&str, (Option<u64>, Option<u64>)> = BTreeMap::new();
        for c in rows.all.iter().filter(|c| c.record.turn.is_some()) {
            let Some(id) = c.record.session.as_deref() else { continue };
            let (gone, stays) = highest.entry(id).or_default();
            let of = if leaving.contains(c.record.id.as_str()) { gone } else { stays };
            *of = (*of).max(c.record.turn);
        }
        for (id, (gone, stays)) in highest {
            if gone <= stays {
                continue;
            }
            let mut s = rows.sessions.get(id).cloned().unwrap_or(SessionRecord {
                v: 1,
                id: id.to_owned(),
                created_ms: rows.of_session(id).first().map_or(0, |c| c.record.created_ms),
                ..SessionRecord::default()
            });
            let noted = s.extra.get(SessionRecord::TURNS).and_then(|n| n.as_u64());
            if noted < gone {
                s.extra.insert(SessionRecord::TURNS.to_owned(), gone.into());
                self.write_session(&s)?;
            }
        }
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
                let own = rows.of_session(id);
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

    /// Opens a session, for the first time or again: a turn that was left open ends as `crashed`, and a session that had
    /// ended has not. What is not known yet stays so: nothing is written before the first row.
    pub fn session_open(&mut self, session: &str) -> Result<()> {
        check_session(session)?;
        if !self.has_store() || self.disabled().is_some() {
            return Ok(());
        }
        let _turns = self.lock(self.store()?, "turns", true)?;
        let rows = self.rows()?;
        self.close_open_turn(&rows, session)?;
        if let Some(mut s) = self.session_records()?.remove(session).filter(|s| s.ended) {
            s.ended = false;
            self.write_session(&s)?;
        }
        Ok(())
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

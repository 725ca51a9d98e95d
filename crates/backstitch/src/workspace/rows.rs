//! All rows of a workspace.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError},
};

use super::Workspace;
use crate::{
    error::{Code, Error, Result},
    record::{self, Checkpoint, Record},
    session::SessionRecord,
};

/// All rows of a workspace.
#[derive(Debug, Default)]
pub struct Rows {
    /// Oldest first.
    pub all: Vec<Checkpoint>,
    /// Ref names that cannot be read, and why.
    pub damaged: Vec<(String, String)>,
    /// Records of sessions by id, as far as they can be read.
    pub sessions: BTreeMap<String, SessionRecord>,
}

impl Rows {
    /// The newest.
    pub fn newest(&self) -> Option<&Checkpoint> {
        self.all.last()
    }

    /// The row that a new one is compared with: the newest of its session that `@` counts, else the newest that `@`
    /// counts, else the newest that is no gap.
    pub fn parent(&self, session: Option<&str>) -> Option<&Checkpoint> {
        self.parent_among(session, &|_| true)
    }

    fn parent_among(
        &self,
        session: Option<&str>,
        sound: &dyn Fn(&Checkpoint) -> bool,
    ) -> Option<&Checkpoint> {
        let counted = |c: &&Checkpoint| {
            c.record.kind.is_counted()
                && matches!(c.record.state, record::State::Complete | record::State::Partial)
                && sound(c)
        };
        let own = |c: &&Checkpoint| session.is_none() || c.record.session.as_deref() == session;
        self.all
            .iter()
            .rev()
            .find(|c| counted(c) && own(c))
            .or_else(|| self.all.iter().rev().find(counted))
            .or_else(|| self.all.iter().rev().find(|c| c.record.state != record::State::Gap && sound(c)))
    }

    /// Those of one session, oldest first.
    pub fn of_session(&self, id: &str) -> Vec<&Checkpoint> {
        self.all.iter().filter(|c| c.record.session.as_deref() == Some(id)).collect()
    }

    /// By id.
    pub fn by_id(&self, id: &str) -> Option<&Checkpoint> {
        self.all.iter().find(|c| c.record.id == id)
    }

    /// For who takes rows away by looking at the others: one that cannot be read now may be what keeps them.
    pub(crate) fn all_readable(self) -> Result<Self> {
        match self.damaged.first() {
            None => Ok(self),
            Some((name, why)) => Err(Error::new(Code::StoreDamaged, format!("{name} cannot be read: {why}"))
                .hint("`backstitch verify --repair` sets aside what is damaged; nothing was removed")),
        }
    }

    /// The next row's order.
    pub fn next_seq(&self) -> u64 {
        self.all.last().map_or(1, |c| c.record.seq + 1)
    }
}

impl Workspace {
    /// The row that a new one is compared with, of those whose commits are in the store: nothing stands on what is gone.
    pub(crate) fn parent<'r>(&self, rows: &'r Rows, session: Option<&str>) -> Result<Option<&'r Checkpoint>> {
        let odb = self.odb()?;
        Ok(rows.parent_among(session, &|c| odb.commit(&c.commit).is_ok()))
    }

    /// All rows, oldest first; damaged ones as warnings, never dropped in silence.
    pub fn rows(&self) -> Result<Rows> {
        let (rows, bad) = self.store()?.refs().rows(record::CHECKPOINTS)?;
        let mut out = Rows {
            all: Vec::with_capacity(rows.len()),
            damaged: Vec::new(),
            sessions: self.readable_sessions().unwrap_or_default(),
        };
        for (name, e) in bad {
            out.damaged.push((name, e.to_string()));
        }
        let mut seen = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = HashMap::with_capacity(rows.len());
        for row in rows {
            // An id never changes its meaning; what was read under one name proves nothing for another.
            let known = seen.remove(&row.commit).filter(|r| record::check_id(&r.id, &row.name).is_ok());
            match known.map_or_else(|| Record::parse(&row).map(Arc::new), Ok) {
                Ok(record) => {
                    now.insert(row.commit, Arc::clone(&record));
                    out.all.push(Checkpoint { record, commit: row.commit, tree: row.tree });
                }
                Err(e) => out.damaged.push((row.name.clone(), e.message)),
            }
        }
        *seen = now;
        drop(seen);
        out.all.sort_by(|a, b| a.record.order().cmp(&b.record.order()));
        Ok(out)
    }
}

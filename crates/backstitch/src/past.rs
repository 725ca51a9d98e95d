//! What rewinds, reverts, restores and their inverses did to what a session had left, path by path.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;

use crate::{
    attribution::{Sum, same},
    operation::{OpKind, Operation},
    plan::{Item, Stand},
    session::{self, SessionRecord},
};

/// What operations did to what the session had left.
pub(crate) struct Past<'a> {
    sessions: &'a BTreeMap<String, SessionRecord>,
    id: &'a str,
    /// The parts of the lines of sessions that operations belong to.
    of_line: BTreeMap<String, Vec<(String, u64)>>,
    /// By operation and path: the sum before it, if there was one, and what stood there.
    before: BTreeMap<(String, BString), (Option<Sum>, Option<Stand>)>,
    /// The paths in them: what has no sum now was taken back.
    paths: BTreeSet<BString>,
    /// Sums of which steps were taken back, as they were: a restore may go forward to them.
    whole: BTreeMap<BString, Sum>,
}

impl<'a> Past<'a> {
    pub fn of(sessions: &'a BTreeMap<String, SessionRecord>, id: &'a str) -> Past<'a> {
        Past {
            sessions,
            id,
            of_line: BTreeMap::new(),
            before: BTreeMap::new(),
            paths: BTreeSet::new(),
            whole: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// An operation changed what the session had left there.
    pub fn changed(&self, path: &BString) -> bool {
        self.paths.contains(path)
    }

    /// A row of `of` in this order is part of the line of `session`.
    fn in_line(&mut self, session: &str, of: Option<&str>, seq: u64) -> bool {
        let sessions = self.sessions;
        let parts =
            self.of_line.entry(session.to_owned()).or_insert_with_key(|s| session::parts(sessions, s));
        parts.iter().any(|(s, limit)| of == Some(s) && seq <= *limit)
    }

    /// An own operation carries on what the session left. A rewind ends the steps that it took back wholly, so that no
    /// other one goes forward to the middle of them; so does a restore to where a step began. The inverse of either brings
    /// back what was before it. All else is somebody else's work.
    pub fn operation(&mut self, sums: &mut BTreeMap<BString, Sum>, o: &Operation, i: Item) {
        let r = &o.record;
        if let Some(inverted) = &r.inverts {
            let Some((sum, stood)) = self.before.get(&(inverted.clone(), i.path.clone())) else { return };
            if same(stood, &i.to) {
                let now = match sum.clone() {
                    Some(sum) => sums.insert(i.path.clone(), sum),
                    None => sums.remove(&i.path),
                };
                self.before.insert((r.id.clone(), i.path), (now, i.from));
            }
            return;
        }
        let id = self.id;
        let own = self.in_line(id, r.session.as_deref(), r.at);
        if let Some(old) = self.whole.get(&i.path).filter(|_| r.kind == OpKind::Restore)
            && sums.get(&i.path).is_none_or(|s| s.steps.len() < old.steps.len())
            && (own || old.has_left(&i.to))
        {
            let mut sum = old.clone();
            sum.leave(i.to);
            sum.at = sum.at.max(r.at);
            let before = sums.insert(i.path.clone(), sum);
            self.before.insert((r.id.clone(), i.path), (before, i.from));
            return;
        }
        let Some(s) = sums.get(&i.path) else { return };
        let (Some(step), Some(begun)) = (s.steps.last(), s.begun.last()) else { return };
        if !same(&step.left, &i.from) {
            return;
        }
        let mut sum = s.clone();
        let first = r.takes_back.first().copied();
        let (of, seq) = (begun.session.as_deref(), begun.seq);
        // What it took back in the line of its session is taken back in every line that has it.
        let shares = r.session.as_deref().is_some_and(|s| self.in_line(s, of, seq));
        match (r.kind, first) {
            (OpKind::Rewind, Some(first)) if shares => {
                match sum.begun.iter().take_while(|b| b.turn < first).count() {
                    whole if whole < sum.steps.len() => sum.truncate(whole),
                    _ => sum.leave(i.to),
                }
            }
            // What it took back of an earlier turn is below the step, and nothing that the step did.
            (OpKind::Revert, Some(first)) if shares && first >= begun.turn => sum.leave(i.to),
            (OpKind::Restore, _) if same(&step.from, &i.to) => sum.truncate(sum.steps.len() - 1),
            (OpKind::Restore, _) if own || s.has_left(&i.to) => sum.leave(i.to),
            _ => return,
        }
        if sum.steps.len() < s.steps.len() {
            self.whole.insert(i.path.clone(), s.clone());
        }
        sum.at = sum.at.max(r.at);
        let before = match sum.steps.is_empty() {
            true => sums.remove(&i.path),
            false => sums.insert(i.path.clone(), sum),
        };
        self.paths.insert(i.path.clone());
        self.before.insert((r.id.clone(), i.path), (before, i.from));
    }
}

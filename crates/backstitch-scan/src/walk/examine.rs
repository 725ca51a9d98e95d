//! Examining names one by one: what each is, whether it is covered, and whether it must be read.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, atomic::Ordering},
};

use bstr::{BStr, ByteSlice};
use rustix::io::Errno;

use super::{
    Halt, Task, Walk, Worker,
    enter::seen,
    node::{Body, Done, Node},
    queue::lock,
};
use crate::{
    handle::{self, Hint, Node as Seen},
    rules::{Decision, Matcher, State, Verdict},
    table::record::{self, Entry, EntryKind},
    types::{Ignored, Kind, Reason, Sink, Stat},
};

/// Files from this size on become tasks of their own.
const LARGE: u64 = 4 << 20;

/// What is known of one name.
pub(super) enum Step {
    Done(Done),
    /// A directory to be entered.
    Enter(Decision),
    /// A large file, left to whoever has time.
    Later,
}

/// A directory whose names are being examined.
pub(crate) struct Place<'a, 't> {
    pub(crate) node: &'a Arc<Node<'t>>,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) matcher: Option<Matcher>,
    /// The clock before any of its names was looked at.
    pub(crate) clock: i128,
}

/// A file that is longer than this and mostly holes is left out.
const HOLES: u64 = 4 << 30;

impl Place<'_, '_> {
    fn matcher(&mut self) -> &mut Matcher {
        self.matcher.get_or_insert_with(|| Matcher::new(&self.node.rules()))
    }
}

impl<'t, S: Sink> Walk<'t, '_, S> {
    /// Examines the names `from..to`; `alone` if they are a task of their own.
    pub(super) fn examine_group(
        &self,
        w: &mut Worker<'t, S>,
        node: Arc<Node<'t>>,
        from: u32,
        to: u32,
        alone: bool,
    ) -> Result<(), Halt> {
        let mut batch = Vec::with_capacity((to - from) as usize);
        let mut noted = alone;
        match self.fd_of(&node) {
            Ok(fd) => {
                let mut place =
                    Place { node: &node, fd: fd.as_fd(), matcher: None, clock: self.clock.now_ns() };
                for slot in from..to {
                    if slot % 16 == 0 {
                        self.check()?;
                    }
                    match self.examine(w, &mut place, slot, to - from > 1)? {
                        Step::Done(done) => {
                            self.list_skip(w, &node, slot, &done);
                            batch.push((slot, done));
                        }
                        Step::Enter(decision) => {
                            node.pending.fetch_add(1, Ordering::Relaxed);
                            w.tasks.push_back(Task::Dir { node: node.clone(), slot, decision });
                            if !noted {
                                self.fds.note(&node);
                                noted = true;
                            }
                        }
                        Step::Later => {
                            node.pending.fetch_add(1, Ordering::Relaxed);
                            w.tasks.push_back(Task::Items { node: node.clone(), from: slot, to: slot + 1 });
                        }
                    }
                }
            }
            // The directory itself was replaced meanwhile.
            Err(_) => {
                for slot in from..to {
                    let done = Done::skip(Reason::Unstable, false);
                    self.list_skip(w, &node, slot, &done);
                    batch.push((slot, done));
                }
            }
        }
        for (_, done) in &batch {
            self.count_leaf(w, done, true);
        }
        let mut done = lock(&node.done);
        if done.is_empty() {
            *done = batch;
        } else {
            done.append(&mut batch);
        }
        drop(done);
        self.release(w, node)
    }

    /// What stands now at a name that was a directory when its parent was listed.
    pub(super) fn examine_replaced(
        &self,
        w: &mut Worker<'t, S>,
        node: &Arc<Node<'t>>,
        slot: u32,
    ) -> Result<Done, Halt> {
        let Ok(fd) = self.fd_of(node) else { return Ok(Done::skip(Reason::Unstable, true)) };
        let mut place = Place { node, fd: fd.as_fd(), matcher: None, clock: self.clock.now_ns() };
        match handle::stat_at(place.fd, node.name(slot)) {
            Err(Errno::NOENT) => Ok(Done::Absent),
            Err(e) => Ok(Done::unreadable(&e.into(), true, None)),
            // A directory again, after it was none: it changes too fast.
            Ok(Seen::Covered(stat)) if stat.kind == Kind::Dir => Ok(Done::skip(Reason::Unstable, true)),
            Ok(seen) => match self.examine_leaf(w, &mut place, slot, seen, None, false)? {
                Step::Done(done) => Ok(done),
                _ => Ok(Done::skip(Reason::Unstable, false)),
            },
        }
    }

    fn examine(
        &self,
        w: &mut Worker<'t, S>,
        place: &mut Place<'_, 't>,
        slot: u32,
        may_defer: bool,
    ) -> Result<Step, Halt> {
        let node = place.node.clone();
        let name = node.name(slot);
        let raw = name.to_bytes().as_bstr();
        let hint = match &node.body {
            Body::Items { items, .. } => items.get(slot as usize).map_or(Hint::Unknown, |item| item.hint),
            Body::Same(_) => Hint::Unknown,
        };
        let old = node.old_entry(slot);
        if hint == Hint::Dir {
            if is_dot_git(place.fd, name, None) {
                return Ok(Step::Done(Done::skip(Reason::Git, true)));
            }
            return self.examine_dir(place, slot, raw, old);
        }
        // Gone since it was listed? Asked once more, then it is simply not there.
        let stands = match &old {
            Some(old) => seen(&node, old, place.fd, name),
            None => handle::stat_at(place.fd, name),
        };
        match stands.or_else(|_| handle::stat_at(place.fd, name)) {
            Err(Errno::NOENT) => Ok(Step::Done(Done::Absent)),
            Err(e) => Ok(Step::Done(Done::unreadable(&e.into(), false, None))),
            Ok(Seen::Covered(stat)) if stat.kind == Kind::Dir => {
                if is_dot_git(place.fd, name, Some((stat.dev, stat.ino))) {
                    return Ok(Step::Done(Done::skip(Reason::Git, true)));
                }
                self.examine_dir(place, slot, raw, old)
            }
            Ok(seen) => self.examine_leaf(w, place, slot, seen, old, may_defer),
        }
    }

    /// The decision of the table, where it still holds.
    fn decided(&self, node: &Node<'t>, old: Option<Entry<'_>>, is_dir: bool) -> Option<Decision> {
        let old = old.filter(|old| node.decided && old.is_dir() == is_dir)?;
        match old.kind() {
            EntryKind::Skip(Reason::Ignored | Reason::Excluded) | EntryKind::Leaf(_) | EntryKind::Dir => {
                Some(old.decision())
            }
            EntryKind::Skip(_) => None,
        }
    }

    /// True if a git index lists the name, or something below it, though a rule would leave it out.
    fn is_tracked(
        &self,
        place: &mut Place<'_, 't>,
        raw: &BStr,
        old: Option<Entry<'_>>,
        is_dir: bool,
    ) -> Result<bool, Halt> {
        // Under the same rules and the same index the answer was found before.
        if let Some(decision) = self.decided(place.node, old, is_dir)
            && !place.node.index_changed
        {
            return Ok(decision.tracked);
        }
        Ok(place.matcher().is_tracked(raw, is_dir)?)
    }

    fn examine_dir(
        &self,
        place: &mut Place<'_, 't>,
        slot: u32,
        raw: &BStr,
        old: Option<Entry<'_>>,
    ) -> Result<Step, Halt> {
        debug_assert_eq!(place.node.name(slot).to_bytes(), raw.as_bytes());
        let mut decision = match self.decided(place.node, old, true) {
            Some(decision) => decision,
            None => place.matcher().decide(raw, true),
        };
        let reason = match decision.verdict {
            Verdict::Keep | Verdict::Include => return Ok(Step::Enter(decision)),
            Verdict::Ignore => Reason::Ignored,
            Verdict::Exclude => Reason::Excluded,
            Verdict::Never => return Ok(Step::Done(Done::skip(Reason::NeverStored, true))),
        };
        decision.tracked = decision.unless_tracked && self.is_tracked(place, raw, old, true)?;
        let enter = decision.tracked
            || reason == Reason::Ignored && self.options.ignored == Ignored::All
            || self.was_covered(place, slot, old.map(|old| old.directory().is_some()))
            || place.matcher().included_below(raw);
        if enter {
            return Ok(Step::Enter(decision));
        }
        Ok(Step::Done(Done::Skip { reason, is_dir: true, size: None, detail: None, decision, sticky: false }))
    }

    /// True if a path that a rule would leave out was covered, and that is to count. `known` is the table's answer, the sink
    /// is asked for what the table does not know.
    fn was_covered(&self, place: &Place<'_, 't>, slot: u32, known: Option<bool>) -> bool {
        self.options.keep_covered
            && known.unwrap_or_else(|| self.sink.covered(self.path_of(place.node, slot).as_bstr()).is_some())
    }

    /// True if a covered path stays covered though a rule would leave it out.
    pub(super) fn keeps(&self, decision: Decision, state: State, stat: &Stat) -> bool {
        self.options.keep_covered || self.keeps_by_policy(decision, state, stat)
    }

    /// The same by the policy alone, under which the table was written.
    pub(super) fn keeps_by_policy(&self, decision: Decision, state: State, stat: &Stat) -> bool {
        decision.verdict == Verdict::Ignore
            && match self.options.ignored {
                Ignored::None => false,
                Ignored::All => true,
                Ignored::Small => self.is_small(state, stat),
            }
    }

    /// True if an ignored file stands beside covered ones and is small.
    fn is_small(&self, state: State, stat: &Stat) -> bool {
        matches!(state, State::Normal | State::Included)
            && stat.stored_size() <= self.options.limits.ignored_file
    }

    pub(super) fn examine_leaf(
        &self,
        w: &mut Worker<'t, S>,
        place: &mut Place<'_, 't>,
        slot: u32,
        seen: Seen,
        old: Option<Entry<'t>>,
        may_defer: bool,
    ) -> Result<Step, Halt> {
        let node = place.node.clone();
        let name = node.name(slot);
        let raw = name.to_bytes().as_bstr();
        let stat = match seen {
            Seen::Covered(stat) => stat,
            Seen::Special(special, ..) => return Ok(Step::Done(Done::skip(Reason::Special(special), false))),
        };
        if record::is_linked(&stat)
            && self.quiet.is_some_and(|q| !q.prove)
            && !old.is_some_and(|old| old.is_linked())
        {
            self.newly_linked.store(true, Ordering::Relaxed);
        }
        if is_dot_git(place.fd, name, Some((stat.dev, stat.ino))) {
            return Ok(Step::Done(Done::skip(Reason::Git, false)));
        }
        let mut decision = match self.decided(&node, old, false) {
            Some(decision) => decision,
            None => place.matcher().decide(raw, false),
        };
        if decision.verdict == Verdict::Never {
            return Ok(Step::Done(Done::skip(Reason::NeverStored, false)));
        }
        let covered = old.filter(|old| matches!(old.kind(), EntryKind::Leaf(_)));
        let skip = |reason, decision, detail, sticky| {
            Ok(Step::Done(Done::Skip {
                reason,
                is_dir: false,
                size: Some(stat.size),
                detail,
                decision,
                sticky,
            }))
        };
        if matches!(decision.verdict, Verdict::Ignore | Verdict::Exclude) {
            let reason = if decision.verdict == Verdict::Ignore { Reason::Ignored } else { Reason::Excluded };
            decision.tracked = decision.unless_tracked && self.is_tracked(place, raw, old, false)?;
            if decision.tracked {
            } else if covered.is_some() && self.keeps(decision, node.state, &stat)
                || self.was_covered(place, slot, old.map(|old| old.last_size().is_some()))
            {
                w.tally.ignored += stat.stored_size();
            } else if reason == Reason::Ignored && self.options.ignored == Ignored::All {
            } else if reason == Reason::Ignored
                && self.options.ignored == Ignored::Small
                && self.is_small(node.state, &stat)
            {
                let sticky = node.decided && old.is_some_and(|old| old.is_sticky());
                let path = self.path_of(&node, slot);
                if sticky || self.dropped.contains(&path) {
                    let detail = Some("no room left for ignored files".to_owned());
                    return skip(reason, decision, detail, true);
                }
                w.candidates.push((path, stat.stored_size()));
            } else {
                return skip(reason, decision, None, false);
            }
        }
        if stat.kind == Kind::File
            && decision.verdict != Verdict::Include
            && let Some(limit) = self.limit(place, slot, &stat)?
        {
            return skip(Reason::Limit, decision, Some(limit.to_string()), false);
        }
        if let Some(done) = self.proven(&node, covered, stat, decision) {
            return Ok(Step::Done(done));
        }
        if self.is_late() {
            return skip(Reason::Time, decision, None, false);
        }
        if may_defer && self.options.threads > 1 && stat.kind == Kind::File && stat.size >= LARGE {
            return Ok(Step::Later);
        }
        self.read(w, place, slot, decision, Some(stat)).map(Step::Done)
    }

    /// A file or link that the table proves to be unchanged.
    pub(super) fn proven(
        &self,
        node: &Node<'t>,
        covered: Option<Entry<'_>>,
        stat: Stat,
        decision: Decision,
    ) -> Option<Done> {
        let old = covered?;
        let proven = !self.options.paranoid
            && node.record.is_some_and(|r| old.proves(&stat, r.dev()))
            && (self.options.table_vouched || self.sink.has(&old.oid()));
        proven.then(|| Done::Leaf {
            stat,
            oid: old.oid(),
            decision,
            xattrs: None,
            has_xattrs: old.has_xattrs(),
            clean: true,
            same: true,
        })
    }

    /// The limit that a file is over, if any.
    pub(super) fn limit(
        &self,
        place: &mut Place<'_, 't>,
        slot: u32,
        stat: &Stat,
    ) -> Result<Option<u64>, Halt> {
        let size = stat.stored_size();
        let limits = &self.options.limits;
        // Mostly holes: its size on disk is small, but reading it would take as long as its length says.
        if stat.size > HOLES && size < stat.size / 4 {
            return Ok(Some(HOLES));
        }
        if self.named {
            return Ok((size > limits.grown_file).then_some(limits.grown_file));
        }
        if size <= limits.new_file.min(limits.grown_file) {
            return Ok(None);
        }
        let node = place.node.clone();
        let before = node
            .old_entry(slot)
            .map_or_else(|| self.sink.covered(self.path_of(&node, slot).as_bstr()), |old| old.last_size());
        if let Some(before) = before {
            let grown = size > limits.grown_file && before <= limits.grown_file
                || size.saturating_sub(before) > limits.grown_file;
            return Ok(grown.then_some(limits.grown_file));
        }
        let raw = node.name(slot).to_bytes().as_bstr();
        if size <= limits.new_file {
            return Ok(None);
        }
        // Left out before, and the index is the same.
        let known = !node.index_changed
            && node.old_entry(slot).is_some_and(|old| old.kind() == EntryKind::Skip(Reason::Limit));
        if !known && place.matcher().is_tracked(raw, false)? {
            return Ok(None);
        }
        Ok(Some(limits.new_file))
    }
}

/// True if this file system takes the name for `.git`: equal, or a spelling that leads to the same place as `.git` does.
pub(crate) fn is_dot_git(dir: BorrowedFd<'_>, name: &CStr, place: Option<(u64, u64)>) -> bool {
    let raw = name.to_bytes();
    if raw == b".git" {
        return true;
    }
    if !could_fold_to_dot_git(raw) {
        return false;
    }
    let of = |seen| match seen {
        Seen::Covered(stat) => (stat.dev, stat.ino),
        Seen::Special(_, dev, ino) => (dev, ino),
    };
    let Ok(dot_git) = handle::stat_at(dir, c".git").map(of) else { return false };
    match place.or_else(|| handle::stat_at(dir, name).map(of).ok()) {
        Some(place) => place == dot_git,
        None => false,
    }
}

/// A cheap test that spares almost every name the question: other case, code points that some file systems leave out,
/// dots and spaces at the end, short names.
fn could_fold_to_dot_git(raw: &[u8]) -> bool {
    let folded = raw.iter().filter(|b| b.is_ascii() && !matches!(b, b' ')).map(u8::to_ascii_lowercase);
    let mut folded: Vec<u8> = match raw.first() {
        Some(b'.' | b'g' | b'G' | 0x80..) if raw.len() <= 64 => folded.collect(),
        _ => return false,
    };
    while folded.len() > 4 && folded.ends_with(b".") {
        folded.pop();
    }
    folded == b".git" || folded.starts_with(b"git~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_dot_git() {
        for name in [".git", ".GIT", ".Git", ".git.", ".git .", ".g\u{200c}it", "git~1", "GIT~2"] {
            assert!(could_fold_to_dot_git(name.as_bytes()), "{name}");
        }
        for name in ["git", ".gitignore", ".github", "a.git", ".gi"] {
            assert!(!could_fold_to_dot_git(name.as_bytes()), "{name}");
        }
    }
}

//! Reading one file or link.

use std::{ffi::CStr, os::fd::AsFd, sync::atomic::Ordering};

use bstr::{BStr, ByteSlice};
use rustix::io::Errno;

use super::{
    Halt, Walk, Worker,
    examine::Place,
    node::{Done, KEEP},
};
use crate::{
    Oid,
    handle::{self, Node as Seen},
    rules::{Decision, Verdict},
    table::record::EntryKind,
    types::{Kind, Reason, ScanError, Sink, SinkError, Stat, Xattrs},
};

/// How often a file is read that changes meanwhile.
const TRIES: usize = 3;

/// What is being read.
struct Reading<'a> {
    slot: u32,
    name: &'a CStr,
    path: &'a BStr,
    decision: Decision,
    /// The clock before it was opened.
    clock: i128,
}

/// One try.
enum Try {
    Done(Done),
    /// It changed under our hands.
    Again,
}

impl<'t, S: Sink> Walk<'t, '_, S> {
    /// Hands a file or link to the sink, again if it changed while it was read. `seen` is what was just seen there.
    pub(crate) fn read(
        &self,
        w: &mut Worker<'t, S>,
        place: &mut Place<'_, 't>,
        slot: u32,
        decision: Decision,
        mut seen: Option<Stat>,
    ) -> Result<Done, Halt> {
        let node = place.node.clone();
        let name = node.name(slot);
        let path = self.path_of(&node, slot);
        for _ in 0..TRIES {
            // Before anything is opened: what changes later can be told from it.
            let clock = self.clock.now_ns();
            let stat = match seen.take() {
                Some(stat) => stat,
                None => match handle::stat_at(place.fd, name) {
                    Err(Errno::NOENT) => return Ok(Done::Absent),
                    Err(e) => return Ok(Done::unreadable(&e.into(), false, None)),
                    Ok(Seen::Special(special, ..)) => return Ok(Done::skip(Reason::Special(special), false)),
                    Ok(Seen::Covered(stat)) => stat,
                },
            };
            let mut reading = Reading { slot, name, path: path.as_bstr(), decision, clock };
            if stat.kind == Kind::File
                && !self.options.paranoid
                && let Some(done) = self.known(w, place, &mut reading, stat)
            {
                return Ok(done);
            }
            let tried = match stat.kind {
                Kind::Dir => Try::Again,
                Kind::Link => self.read_link(w, place, &reading, stat)?,
                Kind::File => self.read_file(w, place, &reading, stat)?,
            };
            match tried {
                Try::Done(done) => return Ok(done),
                Try::Again => {}
            }
        }
        Ok(Done::skip(Reason::Unstable, false))
    }

    /// The one name of a place that was made for it.
    pub(crate) fn read_named(&self, w: &mut Worker<'t, S>, mut place: Place<'_, 't>) -> Result<Done, Halt> {
        let node = place.node.clone();
        let seen = match handle::stat_at(place.fd, node.name(0)) {
            Ok(seen) => seen,
            Err(Errno::NOENT) => return Ok(Done::Absent),
            Err(e) => return Ok(Done::unreadable(&e.into(), false, None)),
        };
        let stat = match seen {
            Seen::Covered(stat) => stat,
            Seen::Special(special, ..) => return Ok(Done::skip(Reason::Special(special), false)),
        };
        let covered = node.old_entry(0).filter(|old| matches!(old.kind(), EntryKind::Leaf(_)));
        if let Some(limit) = self.limit(&mut place, 0, &stat)? {
            let detail = Some(limit.to_string());
            let (reason, size) = (Reason::Limit, Some(stat.size));
            return Ok(Done::Skip { reason, is_dir: false, size, detail, decision: KEEP, sticky: false });
        }
        match self.proven(&node, covered, stat, KEEP) {
            Some(Done::Leaf { stat, oid, decision, has_xattrs, clean, same, .. }) => {
                let xattrs = if has_xattrs { self.reread_xattrs(&node, 0).map(Box::new) } else { None };
                Ok(Done::Leaf { stat, oid, decision, xattrs, has_xattrs, clean, same })
            }
            _ => self.read(w, &mut place, 0, KEEP, Some(stat)),
        }
    }

    /// A file whose content the sink knows without reading it.
    fn known(
        &self,
        w: &mut Worker<'t, S>,
        place: &Place<'_, 't>,
        reading: &mut Reading<'_>,
        stat: Stat,
    ) -> Option<Done> {
        let granularity = self.trust(stat.dev, place.fd.as_fd()).granularity_ns;
        let oid = self.sink.known(&mut w.scratch, reading.path, &stat, granularity)?;
        let xattrs = handle::xattrs_at(place.fd, reading.name)?.ok()?;
        let clock = std::mem::replace(&mut reading.clock, place.clock);
        let done = self.leaf(place, reading, stat, oid, xattrs);
        reading.clock = clock;
        Some(done)
    }

    fn read_link(
        &self,
        w: &mut Worker<'t, S>,
        place: &Place<'_, 't>,
        reading: &Reading<'_>,
        stat: Stat,
    ) -> Result<Try, Halt> {
        let target = match handle::read_link(place.fd, reading.name) {
            Ok(target) => target,
            // No link any more.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(Try::Again),
            Err(e) => return Ok(Try::Done(Done::unreadable(&e.into(), false, Some(stat.size)))),
        };
        match handle::stat_at(place.fd, reading.name) {
            Ok(Seen::Covered(after)) if is_unchanged(&stat, &after) => {}
            _ => return Ok(Try::Again),
        }
        match self.sink.link(&mut w.scratch, reading.path, &target) {
            Ok(oid) => Ok(Try::Done(self.leaf(place, reading, stat, oid, None))),
            Err(SinkError::Fatal(e)) => Err(ScanError::Sink(e).into()),
            Err(SinkError::Read(e)) => Ok(Try::Done(Done::unreadable(&e, false, Some(stat.size)))),
        }
    }

    fn read_file(
        &self,
        w: &mut Worker<'t, S>,
        place: &mut Place<'_, 't>,
        reading: &Reading<'_>,
        seen: Stat,
    ) -> Result<Try, Halt> {
        let unreadable = |e: &std::io::Error| Ok(Try::Done(Done::unreadable(e, false, Some(seen.size))));
        let mut file = match self.open_file(place, reading.name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(Try::Again),
            Err(e) => return unreadable(&e.into()),
        };
        let before = match handle::stat_fd(&file) {
            Ok(Seen::Covered(stat)) if stat.kind == Kind::File => stat,
            Ok(_) => return Ok(Try::Again),
            Err(e) => return unreadable(&e.into()),
        };
        let decision = reading.decision;
        if decision.verdict != Verdict::Include
            && !is_unchanged(&seen, &before)
            && let Some(limit) = self.limit(place, reading.slot, &before)?
        {
            let detail = Some(limit.to_string());
            let (reason, size) = (Reason::Limit, Some(before.size));
            return Ok(Try::Done(Done::Skip {
                reason,
                is_dir: false,
                size,
                detail,
                decision,
                sticky: false,
            }));
        }
        let taken = self.sink.file(&mut w.scratch, reading.path, &mut file, &before);
        self.check()?;
        let after = match handle::stat_fd(&file) {
            Ok(Seen::Covered(stat)) => stat,
            Ok(_) => return Ok(Try::Again),
            Err(e) => return unreadable(&e.into()),
        };
        let oid = match taken {
            Err(SinkError::Fatal(e)) => return Err(ScanError::Sink(e).into()),
            _ if !is_unchanged(&before, &after) => return Ok(Try::Again),
            Err(SinkError::Read(e)) => return unreadable(&e),
            Ok(oid) => oid,
        };
        w.tally.read_files += 1;
        w.tally.read_bytes += before.size;
        self.read_bytes.fetch_add(before.size, Ordering::Relaxed);
        w.quiet += 1 + before.size / (1 << 16);
        match handle::xattrs(&file) {
            Ok(xattrs) => Ok(Try::Done(self.leaf(place, reading, before, oid, xattrs))),
            Err(e) => unreadable(&e.into()),
        }
    }

    fn open_file(&self, place: &Place<'_, 't>, name: &CStr) -> Result<std::fs::File, Errno> {
        match handle::open_file(place.fd, name) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.fds.close_all();
                handle::open_file(place.fd, name)
            }
            other => other,
        }
    }

    fn leaf(
        &self,
        place: &Place<'_, 't>,
        reading: &Reading<'_>,
        stat: Stat,
        oid: Oid,
        xattrs: Option<Xattrs>,
    ) -> Done {
        let node = place.node;
        let granularity = self.trust(stat.dev, place.fd.as_fd()).granularity_ns;
        let settled =
            |ns: i128| ns + granularity < reading.clock && crate::table::record::time(ns) != i64::MIN;
        let dev = node.record.map_or(0, |r| r.dev());
        let old = node.old_entry(reading.slot).filter(|old| old.is_covered());
        Done::Leaf {
            clean: settled(stat.mtime_ns) && settled(stat.ctime_ns),
            same: old.is_some_and(|old| old.stat_equals(&stat, dev) && old.oid() == oid),
            has_xattrs: xattrs.is_some(),
            xattrs: xattrs.map(Box::new),
            stat,
            oid,
            decision: reading.decision,
        }
    }
}

/// True if nothing happened between two looks.
pub(super) fn is_unchanged(a: &Stat, b: &Stat) -> bool {
    a.kind == b.kind
        && (a.dev, a.ino, a.size) == (b.dev, b.ino, b.size)
        && (a.mtime_ns, a.ctime_ns) == (b.mtime_ns, b.ctime_ns)
}

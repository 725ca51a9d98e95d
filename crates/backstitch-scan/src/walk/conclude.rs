//! Concluding directories, bottom-up.

use std::{
    collections::HashSet,
    ffi::CStr,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
};

use bstr::{BString, ByteSlice};

use super::{
    Halt, Walk, Worker,
    enter::left_out,
    node::{Body, Done, Node},
    queue::lock,
};
use crate::{
    handle,
    table::quiet::Quiet,
    table::record::{self, Builder, EntryKind, NewEntry, NewHead, Sum},
    types::{Child, ChildId, Dir, DirIds, Kind, Reason, ScanError, Sink, SinkError, Xattrs},
};

impl<'t, S: Sink> Walk<'t, '_, S> {
    /// Hands the result for one name to its directory.
    pub(super) fn deliver(
        &self,
        w: &mut Worker<'t, S>,
        node: Arc<Node<'t>>,
        slot: u32,
        done: Done,
    ) -> Result<(), Halt> {
        self.list_skip(w, &node, slot, &done);
        lock(&node.done).push((slot, done));
        self.release(w, node)
    }

    /// One name, or group of names, is done; concludes the directory if it was the last, and so on upwards.
    pub(super) fn release(&self, w: &mut Worker<'t, S>, mut node: Arc<Node<'t>>) -> Result<(), Halt> {
        loop {
            if node.pending.fetch_sub(1, Ordering::AcqRel) != 1 {
                return Ok(());
            }
            let done = self.conclude(w, &node)?;
            let Some((parent, slot)) = node.parent.clone() else {
                *lock(&self.result) = Some(done);
                self.queue.stop();
                return Ok(());
            };
            lock(&parent.done).push((slot, done));
            node = parent;
        }
    }

    fn conclude(&self, w: &mut Worker<'t, S>, node: &Arc<Node<'t>>) -> Result<Done, Halt> {
        w.tally.dirs += 1;
        let mut done = std::mem::take(&mut *lock(&node.done));
        if let Body::Same(stats) = &node.body {
            if done.iter().all(|(_, done)| matches!(done, Done::Dir { same: true, sum_same: true, .. }))
                && let Some(record) = node.record
            {
                return Ok(self.dir_done(node, record.ids(), record.sum(), true));
            }
            // A child changed after all: the rest is put in as it was found.
            for (i, entry) in node.record.iter().flat_map(|r| r.entries()).enumerate() {
                let slot = i as u32;
                match entry.kind() {
                    EntryKind::Leaf(_) => done.push((
                        slot,
                        Done::Leaf {
                            stat: stats[i],
                            oid: entry.oid(),
                            decision: entry.decision(),
                            xattrs: None,
                            has_xattrs: entry.has_xattrs(),
                            clean: true,
                            same: true,
                        },
                    )),
                    EntryKind::Dir => {}
                    EntryKind::Skip(reason) => done.push((
                        slot,
                        Done::Skip {
                            reason,
                            is_dir: entry.is_dir(),
                            size: Some(entry.size()),
                            detail: None,
                            decision: entry.decision(),
                            sticky: entry.is_sticky(),
                        },
                    )),
                }
            }
        }
        done.sort_unstable_by_key(|(slot, _)| *slot);
        self.settle_groups(w, node, &mut done)?;
        let ids = match self.unchanged(node, &done) {
            Some(ids) => ids,
            None => self.ask_sink(w, node, &mut done)?,
        };
        let sum = self.sum(node, &done);
        let blob = self.record(node, &done, ids, sum);
        if node.record.is_none_or(|r| r.blob() != blob) {
            w.updates.push((node.id, blob));
        }
        let leaves = done;
        let done = self.dir_done(node, ids, sum, false);
        if let Some(quiet) = self.quiet.filter(|q| q.prove) {
            self.prove(quiet, node, &leaves, &done);
        }
        Ok(done)
    }

    /// Lists what the watcher would have let pass, and is not as it was.
    fn prove(&self, quiet: &Quiet, node: &Arc<Node<'t>>, found: &[(u32, Done)], done: &Done) {
        let Some(record) = node.record else { return };
        // Rules above it, or a git index, may be others: that is no lie.
        if node.parent.as_ref().is_some_and(|(parent, _)| !self.is_as_it_was(parent)) {
            return;
        }
        if self.is_quiet(quiet, node.loud, node.id, record) {
            if matches!(done, Done::Dir { same: false, .. }) {
                lock(&self.lies).push(self.path(node));
            }
            return;
        }
        let Some(names) =
            quiet.names(node.id).filter(|_| self.hears() && !node.loud && self.is_as_it_was(node))
        else {
            return;
        };
        let same: HashSet<&[u8]> = found
            .iter()
            .filter(|(_, done)| matches!(done, Done::Leaf { same: true, .. }))
            .map(|(slot, _)| node.name(*slot).to_bytes())
            .collect();
        for entry in record.entries().filter(|e| e.settled_stat(record.dev()).is_some()) {
            let name = entry.name().map_or(&b""[..], CStr::to_bytes);
            if !same.contains(name) && !names.contains(name.as_bstr()) {
                lock(&self.lies).push(handle::join(&self.path(node), name));
            }
        }
    }

    /// What there is in a directory and below it, and whether it is settled: see [`Sum`].
    fn sum(&self, node: &Node<'t>, done: &[(u32, Done)]) -> Sum {
        let mut sum = Sum {
            settled: node.flags & (record::CLEAN | record::DOT_GIT) == record::CLEAN && node.xattrs.is_none(),
            dirs: 1,
            entries: 1 + done.len() as u64,
            ..Sum::default()
        };
        for (_, done) in done {
            match done {
                Done::Leaf { stat, decision, clean, .. } => {
                    let stays = !left_out(*decision) || decision.tracked;
                    sum.settled &= *clean
                        && !record::is_linked(stat)
                        && (stays || self.keeps_by_policy(*decision, node.state, stat));
                    sum.ignored += if stays { 0 } else { stat.stored_size() };
                    if stat.kind == Kind::File {
                        sum.files += 1;
                        sum.bytes += stat.size;
                    } else {
                        sum.links += 1;
                    }
                }
                Done::Dir { stat, decision, sum: below, .. } => {
                    sum.add(below);
                    sum.settled &= stat.dev == node.stat.dev && (!left_out(*decision) || decision.tracked);
                }
                Done::Skip { reason, is_dir, .. } => {
                    sum.skips = sum.skips.saturating_add(1);
                    sum.settled &= match reason {
                        Reason::Ignored => *is_dir,
                        Reason::Excluded | Reason::NeverStored | Reason::Git | Reason::Special(_) => true,
                        _ => false,
                    };
                }
                Done::Absent => {}
            }
        }
        sum
    }

    fn dir_done(&self, node: &Node<'t>, ids: DirIds, sum: Sum, known_same: bool) -> Done {
        let same = known_same
            || node.record.is_some_and(|r| {
                r.ids() == ids && r.attributes_equal(&node.stat) && !self.xattrs_in_doubt(node)
            });
        Done::Dir {
            stat: node.stat,
            ids,
            id: node.id,
            decision: node.decision,
            xattrs: node.xattrs.clone(),
            same,
            sum: Box::new(sum),
            sum_same: node.record.is_some_and(|r| r.sum() == sum),
        }
    }

    /// True if the directory's own extended attributes may be others than those its ids were made of.
    fn xattrs_in_doubt(&self, node: &Node<'t>) -> bool {
        let had = node.record.is_some_and(|r| r.has(record::XATTRS));
        (had || node.xattrs.is_some()) && !node.record.is_some_and(|r| r.stat_equals(&node.stat))
    }

    /// The ids of the table, if they were made of exactly what there is now.
    fn unchanged(&self, node: &Node<'t>, done: &[(u32, Done)]) -> Option<DirIds> {
        let record = node.record.filter(|_| self.options.table_vouched)?;
        if !record.attributes_equal(&node.stat) || self.xattrs_in_doubt(node) {
            return None;
        }
        let mut covered = 0;
        for (_, done) in done {
            match done {
                Done::Leaf { same, .. } | Done::Dir { same, .. } if !same => return None,
                Done::Leaf { .. } | Done::Dir { .. } => covered += 1,
                Done::Skip { .. } | Done::Absent => {}
            }
        }
        (covered == record.entries().filter(|e| e.is_covered()).count()).then(|| record.ids())
    }

    fn ask_sink(
        &self,
        w: &mut Worker<'t, S>,
        node: &Arc<Node<'t>>,
        done: &mut [(u32, Done)],
    ) -> Result<DirIds, Halt> {
        for (slot, done) in done.iter_mut() {
            if let Done::Leaf { xattrs: xattrs @ None, has_xattrs: true, .. } = done {
                *xattrs = self.reread_xattrs(node, *slot).map(Box::new);
            }
        }
        let mut children = Vec::with_capacity(done.len());
        for (slot, done) in done.iter() {
            let (stat, id, xattrs) = match done {
                Done::Leaf { stat, oid, xattrs, .. } => (stat, ChildId::Leaf(*oid), xattrs),
                Done::Dir { stat, ids, xattrs, .. } => (stat, ChildId::Dir(*ids), xattrs),
                Done::Skip { .. } | Done::Absent => continue,
            };
            let name = node.name(*slot).to_bytes().as_bstr();
            children.push(Child { name, stat, id, xattrs: xattrs.as_deref() });
        }
        let path: BString = self.path(node);
        let dir = Dir {
            path: path.as_bstr(),
            stat: &node.stat,
            xattrs: node.xattrs.as_deref(),
            children: &children,
        };
        self.sink.dir(&mut w.scratch, &dir).map_err(|e| match e {
            SinkError::Fatal(e) => ScanError::Sink(e).into(),
            SinkError::Read(source) => {
                ScanError::Io { path: super::below(self.root, path.as_bstr()), source }.into()
            }
        })
    }

    /// The extended attributes of a file that was not read. It is unchanged, so they are what they were; if they cannot
    /// be read any more, there are none to be told.
    pub(super) fn reread_xattrs(&self, node: &Arc<Node<'t>>, slot: u32) -> Option<Xattrs> {
        let dir = self.fd_of(node).ok()?;
        let file = handle::open_file(dir.as_fd(), node.name(slot)).ok()?;
        handle::xattrs(&file).ok()?
    }

    fn record(&self, node: &Node<'t>, done: &[(u32, Done)], ids: DirIds, sum: Sum) -> Vec<u8> {
        let mut builder = Builder::default();
        for (slot, done) in done {
            let name = node.name(*slot).to_bytes().as_bstr();
            let entry = match done {
                Done::Leaf { stat, oid, decision, has_xattrs, clean, .. } => NewEntry::Leaf {
                    stat,
                    oid: *oid,
                    decision: *decision,
                    xattrs: *has_xattrs,
                    clean: *clean,
                },
                Done::Dir { id, decision, .. } => NewEntry::Dir { id: *id, decision: *decision },
                Done::Skip { reason, is_dir, size, decision, sticky, .. } => NewEntry::Skip {
                    reason: *reason,
                    is_dir: *is_dir,
                    size: size.unwrap_or(0),
                    decision: *decision,
                    sticky: *sticky,
                    // What could not be captured this time is no stranger the next time.
                    remembered: match node.old_entry(*slot) {
                        Some(old) if !reason.by_rule() && old.is_dir() == *is_dir => old.remembered(),
                        _ => 0,
                    },
                },
                Done::Absent => continue,
            };
            builder.push(name, entry);
        }
        let xattrs = if node.xattrs.is_some() { record::XATTRS } else { 0 };
        builder.finish(&NewHead {
            stat: &node.stat,
            flags: node.flags | xattrs,
            rules: node.digest,
            ids,
            index: node.index,
            sum,
        })
    }
}

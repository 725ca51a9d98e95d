//! Files that belong together: a database and its logs.
//!
//! `X`, `X-wal` and `X-journal` make sense only together. Where one of them was read, all are looked at once more when the
//! directory is done; if one changed meanwhile it is read again, and all are looked at again. After a few rounds what was
//! read last stands: a database in use is captured as a crash would leave it, at best.

use std::{collections::HashMap, os::fd::AsFd, sync::Arc};

use bstr::{BStr, ByteSlice};

use super::{
    Halt, Walk, Worker,
    examine::Place,
    node::{Done, Node},
    read::is_unchanged,
};
use crate::{
    handle::{self, Node as Seen},
    types::{Kind, Sink},
};

const ROUNDS: usize = 3;
const TAILS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// The name of the database, if this is the name of one of its logs.
fn database_of(name: &[u8]) -> Option<&[u8]> {
    TAILS.iter().find_map(|tail| name.strip_suffix(*tail)).filter(|name| !name.is_empty())
}

fn was_read(done: &Done) -> bool {
    matches!(done, Done::Leaf { stat, same: false, .. } if stat.kind == Kind::File)
}

impl<'t, S: Sink> Walk<'t, '_, S> {
    /// Reads groups again until none of their files changed meanwhile.
    pub(super) fn settle_groups(
        &self,
        w: &mut Worker<'t, S>,
        node: &Arc<Node<'t>>,
        done: &mut [(u32, Done)],
    ) -> Result<(), Halt> {
        if !done.iter().any(|(slot, _)| database_of(node.name(*slot).to_bytes()).is_some()) {
            return Ok(());
        }
        // By database: positions of all its files that are covered.
        let mut groups: HashMap<&BStr, Vec<usize>> = HashMap::new();
        for (slot, _) in done.iter() {
            if let Some(database) = database_of(node.name(*slot).to_bytes()) {
                groups.entry(database.as_bstr()).or_default();
            }
        }
        for (i, (slot, found)) in done.iter().enumerate() {
            let name = node.name(*slot).to_bytes();
            let database = database_of(name).unwrap_or(name).as_bstr();
            if let (Some(group), Done::Leaf { .. }) = (groups.get_mut(database), found) {
                group.push(i);
            }
        }
        let Ok(fd) = self.fd_of(node) else { return Ok(()) };
        let mut place = Place { node, fd: fd.as_fd(), matcher: None, clock: self.clock.now_ns() };
        for group in groups.into_values() {
            if group.len() < 2 || !group.iter().any(|i| was_read(&done[*i].1)) {
                continue;
            }
            for _ in 0..ROUNDS {
                let mut changed = false;
                for i in &group {
                    let (slot, found) = &mut done[*i];
                    let Done::Leaf { stat, decision, .. } = &*found else { continue };
                    let (stat, decision) = (*stat, *decision);
                    match handle::stat_at(place.fd, node.name(*slot)) {
                        Ok(Seen::Covered(now)) if is_unchanged(&stat, &now) => {}
                        _ => {
                            changed = true;
                            self.count_leaf(w, found, false);
                            *found = self.read(w, &mut place, *slot, decision, None)?;
                            self.list_skip(w, node, *slot, found);
                            self.count_leaf(w, found, true);
                        }
                    }
                }
                if !changed {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Counts a covered file or link, or takes it back.
    pub(super) fn count_leaf(&self, w: &mut Worker<'t, S>, done: &Done, add: bool) {
        let Done::Leaf { stat, .. } = done else { return };
        let (counter, bytes) = match stat.kind {
            Kind::File => (&mut w.tally.files, stat.size),
            _ => (&mut w.tally.links, 0),
        };
        // Another thread may have counted what this one takes back: the sum over all threads is what counts.
        if add {
            *counter = counter.wrapping_add(1);
            w.tally.bytes = w.tally.bytes.wrapping_add(bytes);
        } else {
            *counter = counter.wrapping_sub(1);
            w.tally.bytes = w.tally.bytes.wrapping_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs() {
        assert_eq!(database_of(b"app.db-wal"), Some(&b"app.db"[..]));
        assert_eq!(database_of(b"app.db-journal"), Some(&b"app.db"[..]));
        assert_eq!(database_of(b"-wal"), None);
        assert_eq!(database_of(b"app.db"), None);
    }
}

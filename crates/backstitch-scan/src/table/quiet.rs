//! Directories in which nothing can have changed.
//!
//! A watcher names the directories in which something happened since the table was written. What is neither one of them
//! nor above one of them, and leaves no doubt by the sum in its record, need not be looked at, with all below it. Nothing
//! is gone through to find that out: each directory is asked when the walk comes to it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use bstr::{BStr, BString, ByteSlice};

use super::{
    Inner, Table,
    record::{EntryKind, Record},
};
use crate::{
    handle,
    types::{Reason, Skip},
};

/// Where something may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Noise {
    /// Path of a directory, relative to the root.
    pub path: BString,
    /// What may be other than it was.
    pub what: Heard,
}

/// What may be other than it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heard {
    /// In the directory, these names.
    Names(BTreeSet<BString>),
    /// Anything in the directory.
    All,
    /// Anything in the directory and below it.
    Below,
}

/// What need not be looked at: all but these directories, by number in the table that it was made from.
#[derive(Debug, Default)]
pub struct Quiet {
    /// Those that are noisy or above a noisy one.
    noisy: HashMap<u32, Heard>,
    /// Look at everything all the same, and tell what was wrongly held for quiet.
    pub(crate) prove: bool,
}

impl Quiet {
    /// True if everything is looked at all the same.
    pub fn is_proof(&self) -> bool {
        self.prove
    }

    /// Nothing is believed: everything is looked at, and the outcome tells what was wrongly held for quiet.
    pub fn to_be_proven(mut self) -> Quiet {
        self.prove = true;
        self
    }

    /// True if nothing happened in a directory, nor below it, as far as is known of itself.
    pub(crate) fn holds(&self, id: u32) -> bool {
        !self.noisy.contains_key(&id)
    }

    /// True if anything may have happened everywhere below it.
    pub(crate) fn is_loud(&self, id: u32) -> bool {
        self.noisy.get(&id) == Some(&Heard::Below)
    }

    /// The names of a directory that may be other than they were; `None` if any may.
    pub(crate) fn names(&self, id: u32) -> Option<Arc<BTreeSet<BString>>> {
        match self.noisy.get(&id) {
            None => Some(Arc::default()),
            Some(Heard::Names(names)) => Some(Arc::new(names.clone())),
            Some(Heard::All | Heard::Below) => None,
        }
    }
}

impl Table {
    /// Paths of all directories that are covered, parents first; the root is the empty path.
    pub fn directories(&self) -> Vec<BString> {
        let mut all = vec![BString::default()];
        let mut left = vec![(0, BString::default())];
        // A forged table may name a directory twice, and so be without an end.
        let mut seen = HashSet::new();
        while let Some((id, path)) = left.pop().filter(|(id, _)| seen.insert(*id)) {
            for entry in self.0.record(id).iter().flat_map(Record::entries) {
                if let (EntryKind::Dir, Some(child), Some(name)) =
                    (entry.kind(), entry.directory(), entry.name())
                {
                    let path = handle::join(&path, name.to_bytes());
                    all.push(path.clone());
                    left.push((child, path));
                }
            }
        }
        all
    }

    /// What is quiet if there is noise only there. The root is always looked at.
    pub fn quiet(&self, noise: &[Noise]) -> Quiet {
        let mut quiet = Quiet::default();
        for n in noise {
            // What is not in the table any more has a parent that is noisy too.
            let mut ids = self.0.numbers(n.path.as_bstr());
            let Some(last) = ids.pop() else { continue };
            for id in ids {
                quiet.noisy.entry(id).or_insert_with(|| Heard::Names(BTreeSet::new()));
            }
            let heard = quiet.noisy.entry(last).or_insert_with(|| Heard::Names(BTreeSet::new()));
            match (heard, &n.what) {
                (Heard::Names(a), Heard::Names(b)) => a.extend(b.iter().cloned()),
                (heard, what) if *heard < *what => *heard = what.clone(),
                _ => {}
            }
        }
        quiet
    }
}

impl Inner {
    /// The numbers of the covered directories from the root down to a path; none if there is none.
    fn numbers(&self, path: &BStr) -> Vec<u32> {
        let find = || {
            let mut ids = vec![0];
            for name in path.split_str("/").filter(|n| !n.is_empty()) {
                let record = self.record(*ids.last()?)?;
                let entry = record.entry(record.find(name.as_bstr())?);
                ids.push(match entry.kind() {
                    EntryKind::Dir => entry.directory()?,
                    _ => return None,
                });
            }
            Some(ids)
        };
        find().unwrap_or_default()
    }

    /// What is left out in a directory and below it.
    pub(crate) fn skips(&self, id: u32, path: BString, out: &mut Vec<Skip>) {
        let mut left = vec![(id, path)];
        let mut seen = HashSet::new();
        while let Some((id, path)) = left.pop().filter(|(id, _)| seen.insert(*id)) {
            let Some(record) = self.record(id).filter(|r| r.sum().skips > 0) else { continue };
            skips_in(record, &path, out);
            for entry in record.entries().filter(|e| e.kind() == EntryKind::Dir) {
                if let (Some(child), Some(name)) = (entry.directory(), entry.name()) {
                    left.push((child, handle::join(&path, name.to_bytes())));
                }
            }
        }
    }
}

/// What is left out in one directory.
pub(crate) fn skips_in(record: Record<'_>, path: &BString, out: &mut Vec<Skip>) {
    for entry in record.entries() {
        let EntryKind::Skip(reason) = entry.kind() else { continue };
        let is_dir = entry.is_dir();
        let sized = !is_dir && matches!(reason, Reason::Ignored | Reason::Excluded);
        out.push(Skip {
            path: handle::join(path, entry.name().map_or(&b""[..], std::ffi::CStr::to_bytes)),
            reason,
            bytes: sized.then(|| entry.size()),
            detail: None,
            is_dir,
        });
    }
}

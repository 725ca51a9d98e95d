//! A directory that is being walked.

use std::{
    collections::BTreeSet,
    ffi::CStr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU32},
};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    Oid,
    digest::Digest,
    handle::{Hint, Names},
    rules::{Decision, DirRules, State},
    table::record::{Entry, Record, Sum},
    types::{DirIds, Reason, Stat, Xattrs},
};

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) start: u32,
    pub(crate) len: u16,
    pub(crate) hint: Hint,
    /// Position in the table's record, or [`NEW`].
    pub(crate) old: u32,
}

/// No position in the table's record.
pub(crate) const NEW: u32 = u32::MAX;

/// The names of a directory.
pub(crate) enum Body {
    /// Everything but child directories is as the table says; what the system said of each, by position in the record.
    Same(Box<[Stat]>),
    /// Anything may have changed.
    Items { pool: Box<[u8]>, items: Box<[Item]> },
}

/// What became of one name.
#[derive(Debug)]
pub(crate) enum Done {
    Leaf {
        stat: Stat,
        oid: Oid,
        decision: Decision,
        xattrs: Option<Box<Xattrs>>,
        /// There are extended attributes, whether or not they were read now.
        has_xattrs: bool,
        clean: bool,
        /// Equal to what the directory's ids were made of.
        same: bool,
    },
    Dir {
        stat: Stat,
        ids: DirIds,
        id: u32,
        decision: Decision,
        xattrs: Option<Box<Xattrs>>,
        same: bool,
        sum: Box<Sum>,
        /// The sum is the one that the table has.
        sum_same: bool,
    },
    Skip {
        reason: Reason,
        is_dir: bool,
        size: Option<u64>,
        detail: Option<String>,
        decision: Decision,
        sticky: bool,
    },
    Absent,
}

impl Done {
    pub(crate) fn skip(reason: Reason, is_dir: bool) -> Done {
        Done::Skip { reason, is_dir, size: None, detail: None, decision: KEEP, sticky: false }
    }

    pub(crate) fn unreadable(e: &std::io::Error, is_dir: bool, size: Option<u64>) -> Done {
        // A sink that takes no more says so in this way: see `SinkError::Read`.
        let full = e.kind() == std::io::ErrorKind::QuotaExceeded;
        Done::Skip {
            reason: if full { Reason::Budget } else { Reason::Unreadable },
            is_dir,
            size,
            detail: Some(crate::handle::error_text(e)),
            decision: KEEP,
            sticky: false,
        }
    }
}

/// The decision where no rule says anything.
pub(crate) const KEEP: Decision =
    Decision { verdict: crate::Verdict::Keep, unless_tracked: false, tracked: false };

pub(crate) struct Node<'t> {
    /// The parent, and the position among its names.
    pub(crate) parent: Option<(Arc<Node<'t>>, u32)>,
    pub(crate) stat: Stat,
    pub(crate) xattrs: Option<Box<Xattrs>>,
    /// Number in the table.
    pub(crate) id: u32,
    pub(crate) record: Option<Record<'t>>,
    /// Flags of the record to be written.
    pub(crate) flags: u32,
    /// How the directory itself came to be entered.
    pub(crate) decision: Decision,
    pub(crate) state: State,
    pub(crate) digest: Digest,
    /// State of the git index, at a repository's top; 0 elsewhere.
    pub(crate) index: u32,
    /// A git index that decides here is not the one of the last time.
    pub(crate) index_changed: bool,
    /// Decisions in the record still hold.
    pub(crate) decided: bool,
    /// Anything below may have changed, says the watcher.
    pub(crate) loud: bool,
    /// Nothing but these names may have changed, says the watcher.
    pub(crate) heard: Option<Arc<BTreeSet<BString>>>,
    pub(crate) rules: OnceLock<DirRules>,
    /// Open while it may be needed and there are not too many.
    pub(crate) fd: Mutex<Option<Arc<OwnedFd>>>,
    pub(crate) body: Body,
    /// Names, or groups of names, that are not done.
    pub(crate) pending: AtomicU32,
    /// What became of the names, in the order in which they were done.
    pub(crate) done: Mutex<Vec<(u32, Done)>>,
}

impl<'t> Node<'t> {
    pub(crate) fn name(&self, slot: u32) -> &CStr {
        let found = match &self.body {
            Body::Same(_) => self.record.and_then(|r| r.entry(slot as usize).name()),
            Body::Items { pool, items } => items.get(slot as usize).and_then(|item| {
                let start = item.start as usize;
                CStr::from_bytes_with_nul(pool.get(start..start + usize::from(item.len) + 1)?).ok()
            }),
        };
        found.unwrap_or_default()
    }

    /// Position in the table's record of what stands at a position among the names.
    pub(crate) fn old(&self, slot: u32) -> u32 {
        match &self.body {
            Body::Same(_) => slot,
            Body::Items { items, .. } => items.get(slot as usize).map_or(NEW, |item| item.old),
        }
    }

    /// What the table says of what stands at a position among the names.
    pub(crate) fn old_entry(&self, slot: u32) -> Option<Entry<'t>> {
        let old = self.old(slot);
        self.record.filter(|_| old != NEW).map(|r| r.entry(old as usize))
    }

    /// What the system would say of a file or link of which the watcher heard nothing.
    pub(crate) fn unheard(&self, entry: &Entry<'_>) -> Option<Stat> {
        let heard = self.heard.as_ref()?;
        let name = entry.name()?.to_bytes().as_bstr();
        if heard.contains(name) {
            return None;
        }
        entry.settled_stat(self.stat.dev)
    }

    /// The path from the root, put together by climbing.
    pub(crate) fn path(&self, start: &BStr) -> BString {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut node = self;
        while let Some((parent, slot)) = &node.parent {
            names.push(parent.name(*slot).to_bytes());
            node = parent;
        }
        if !start.is_empty() {
            names.push(start);
        }
        names.reverse();
        bstr::join("/", names).into()
    }

    /// The rules for the names in this directory.
    pub(crate) fn rules(&self) -> DirRules {
        let mut chain: Vec<&Node<'t>> = Vec::new();
        let mut node = self;
        let mut rules = loop {
            if let Some(rules) = node.rules.get() {
                break rules.clone();
            }
            chain.push(node);
            match &node.parent {
                Some((parent, _)) => node = parent,
                // The root's rules are set before it has any children.
                None => unreachable!("the root has rules"),
            }
        };
        for node in chain.into_iter().rev() {
            if let Some((parent, slot)) = &node.parent {
                // Directories with ignore files of their own have rules from the start.
                let name = parent.name(*slot).to_bytes().as_bstr();
                let own = rules.child(name, node.state, None, None, None);
                rules = node.rules.get_or_init(|| own).clone();
            }
        }
        rules
    }
}

/// Lets go of the parents one by one: a walk that ends early may drop a chain as deep as the tree.
impl Drop for Node<'_> {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(|(parent, _)| Arc::into_inner(parent)) {
            next = node.parent.take();
        }
    }
}

/// Copies names out of a thread's buffer.
pub(crate) fn items(names: &Names, record: Option<Record<'_>>) -> Body {
    let mut items = Vec::with_capacity(names.list.len());
    let mut old = 0;
    let count = record.map_or(0, |r| r.len());
    for &(start, len, hint) in &names.list {
        let name = &names.pool[start as usize..][..usize::from(len)];
        let mut found = NEW;
        // Both are sorted.
        while let Some(record) = record.filter(|_| old < count) {
            match record.entry(old).name().map_or(&b""[..], CStr::to_bytes).cmp(name) {
                std::cmp::Ordering::Less => old += 1,
                std::cmp::Ordering::Equal => {
                    found = old as u32;
                    old += 1;
                    break;
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        items.push(Item { start, len, hint, old: found });
    }
    Body::Items { pool: names.pool.clone().into_boxed_slice(), items: items.into_boxed_slice() }
}

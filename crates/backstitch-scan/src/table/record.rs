//! Bytes of one directory in the table.
//!
//! All numbers are little-endian. A record is a head, the entries sorted by raw name, and the names:
//!
//! ```text
//! head, 176 bytes                          entry, 72 bytes
//!   0 u32 entries                            0 u32 start of the name among the names
//!   4 u32 bytes of names                     4 u32 directory: its number; file: allocated KiB; skip: the same of
//!                                                  what was covered here before, or 0
//!   8 u32 flags (CLEAN, META, ...)           8 u64 size
//!  12 u32 permission bits                   16 i64 mtime in ns
//!  16 u32 owner   20 u32 group              24 i64 ctime in ns
//!  24 u64 device  32 u64 inode              32 u64 inode
//!  40 i64 mtime   48 i64 ctime              40 [20] content id
//!  56 [20] digest of the rules              60 u16 permission bits
//!  76 [20] tree   96 [20] meta              62 u8  kind, verdict, flags
//! 116 u32 state of the git index            63 u8  reason of a skip, more flags
//! 120 [56] sum of the directory with all     64 u32 owner   68 u32 group
//!          below it
//! ```
//!
//! sum: u32 1 if settled, u32 skips, u64 files, directories, links, bytes, ignored bytes, entries
//!
//! A name is its length (u16), its bytes, and a NUL, so that it can be handed to the system as it lies there.

use std::ffi::CStr;

use bstr::{BStr, ByteSlice};
use gix_hash::ObjectId;

use crate::{
    digest::Digest,
    rules::{Decision, Verdict},
    types::{DirIds, Kind, Reason, Stat},
};

pub(crate) const HEAD: usize = 176;
const SUM: usize = 120;
pub(crate) const ENTRY: usize = 72;

/// The names of the directory can be taken from here while its stat is unchanged.
pub(crate) const CLEAN: u32 = 1;
/// There is a second id.
pub(crate) const META: u32 = 2;
/// The directory has extended attributes that are kept.
pub(crate) const XATTRS: u32 = 4;
/// It holds ignore files that are regular files.
pub(crate) const RULE_FILES: u32 = 8;
/// It holds a `.git`.
pub(crate) const DOT_GIT: u32 = 16;

const E_KIND: u8 = 3;
const E_XATTRS: u8 = 1 << 4;
const E_CLEAN: u8 = 1 << 5;
const E_IS_DIR: u8 = 1 << 6;
const E_STICKY: u8 = 1 << 7;
const E_REASON: u8 = 31;
const E_UNLESS_TRACKED: u8 = 1 << 5;
const E_TRACKED: u8 = 1 << 6;
/// The file has other names too: it may be written to under those.
const E_LINKED: u8 = 1 << 7;

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn id_at(b: &[u8], at: usize) -> [u8; 20] {
    b.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default()
}

/// A time that fits; others are stored as the least one and are never clean.
pub(crate) fn time(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MIN)
}

/// A directory with all that is below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Nothing in it, nor below it, has to be looked at while nothing happens there and the policy is the same.
    pub(crate) settled: bool,
    pub(crate) skips: u32,
    pub(crate) files: u64,
    pub(crate) dirs: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// Of files that are kept though a rule leaves them out.
    pub(crate) ignored: u64,
    pub(crate) entries: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Sum) {
        self.settled &= other.settled;
        self.skips = self.skips.saturating_add(other.skips);
        self.files += other.files;
        self.dirs += other.dirs;
        self.links += other.links;
        self.bytes += other.bytes;
        self.ignored += other.ignored;
        self.entries += other.entries;
    }

    fn numbers(&self) -> [u64; 6] {
        [self.files, self.dirs, self.links, self.bytes, self.ignored, self.entries]
    }
}

/// One directory as the table knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    blob: &'a [u8],
    count: usize,
    names: usize,
}

impl<'a> Record<'a> {
    pub(crate) fn parse(blob: &'a [u8]) -> Option<Record<'a>> {
        if blob.len() < HEAD {
            return None;
        }
        let count = u32_at(blob, 0) as usize;
        let names = HEAD.checked_add(count.checked_mul(ENTRY)?)?;
        if blob.len() != names.checked_add(u32_at(blob, 4) as usize)? {
            return None;
        }
        Some(Record { blob, count, names })
    }

    pub(crate) fn blob(&self) -> &'a [u8] {
        self.blob
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        u32_at(self.blob, 8) & flag != 0
    }

    /// What is known of the directory itself, as far as its parent's ids depend on it.
    pub(crate) fn stat(&self) -> Stat {
        let ns = |at| i128::from(u64_at(self.blob, at) as i64);
        Stat {
            kind: Kind::Dir,
            mode: u32_at(self.blob, 12),
            size: 0,
            blocks512: 0,
            mtime_ns: ns(40),
            ctime_ns: ns(48),
            dev: self.dev(),
            ino: u64_at(self.blob, 32),
            nlink: 0,
            uid: u32_at(self.blob, 16),
            gid: u32_at(self.blob, 20),
        }
    }

    pub(crate) fn rules(&self) -> Digest {
        id_at(self.blob, 56)
    }

    pub(crate) fn ids(&self) -> DirIds {
        DirIds {
            tree: ObjectId::Sha1(id_at(self.blob, 76)),
            meta: self.has(META).then(|| ObjectId::Sha1(id_at(self.blob, 96))),
        }
    }

    pub(crate) fn dev(&self) -> u64 {
        u64_at(self.blob, 24)
    }

    pub(crate) fn sum(&self) -> Sum {
        let n = |i: usize| u64_at(self.blob, SUM + 8 + i * 8);
        Sum {
            settled: u32_at(self.blob, SUM) == 1,
            skips: u32_at(self.blob, SUM + 4),
            files: n(0),
            dirs: n(1),
            links: n(2),
            bytes: n(3),
            ignored: n(4),
            entries: n(5),
        }
    }

    /// Which state of its git index the decisions below a repository's top depend on; 0 elsewhere.
    pub(crate) fn index(&self) -> u32 {
        u32_at(self.blob, 116)
    }

    /// True if nothing that the system says of the directory has changed.
    pub(crate) fn stat_equals(&self, stat: &Stat) -> bool {
        self.dev() == stat.dev
            && u64_at(self.blob, 32) == stat.ino
            && u64_at(self.blob, 40) as i64 == time(stat.mtime_ns)
            && u64_at(self.blob, 48) as i64 == time(stat.ctime_ns)
            && self.attributes_equal(stat)
    }

    /// True if mode and owner, which the parent's ids may depend on, are the same.
    pub(crate) fn attributes_equal(&self, stat: &Stat) -> bool {
        u32_at(self.blob, 12) == stat.mode
            && u32_at(self.blob, 16) == stat.uid
            && u32_at(self.blob, 20) == stat.gid
    }

    pub(crate) fn entry(&self, i: usize) -> Entry<'a> {
        debug_assert!(i < self.count);
        let at = HEAD + i * ENTRY;
        Entry { raw: self.blob.get(at..at + ENTRY).unwrap_or(&[0; ENTRY]), names: &self.blob[self.names..] }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let this = *self;
        (0..this.count).map(move |i| this.entry(i))
    }

    /// Position of the entry with this name.
    pub(crate) fn find(&self, name: &BStr) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle).name().map_or(b"".as_bstr(), |n| n.to_bytes().as_bstr()).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Leaf(Kind),
    Dir,
    Skip(Reason),
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    raw: &'a [u8],
    names: &'a [u8],
}

impl<'a> Entry<'a> {
    /// `None` only if the record is damaged.
    #[inline]
    pub(crate) fn name(&self) -> Option<&'a CStr> {
        let at = u32_at(self.raw, 0) as usize;
        let len = u16::from_le_bytes(*self.names.get(at..)?.first_chunk()?) as usize;
        CStr::from_bytes_with_nul(self.names.get(at + 2..at + 3 + len)?).ok()
    }

    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        match self.raw[62] & E_KIND {
            0 => EntryKind::Leaf(Kind::File),
            1 => EntryKind::Leaf(Kind::Link),
            2 => EntryKind::Dir,
            _ => EntryKind::Skip(Reason::from_code(self.raw[63] & E_REASON).unwrap_or(Reason::Unreadable)),
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == EntryKind::Dir || self.raw[62] & E_IS_DIR != 0
    }

    pub(crate) fn is_covered(&self) -> bool {
        self.raw[62] & E_KIND != 3
    }

    fn detail(&self) -> u32 {
        u32_at(self.raw, 4)
    }

    /// Number of the directory that is, or last was, covered here.
    pub(crate) fn directory(&self) -> Option<u32> {
        (self.is_dir() && (self.is_covered() || self.detail() != 0)).then(|| self.detail())
    }

    pub(crate) fn size(&self) -> u64 {
        u64_at(self.raw, 8)
    }

    /// The size, as far as it counts for limits, of the file that is, or last was, covered here.
    pub(crate) fn last_size(&self) -> Option<u64> {
        let kib = u64::from(self.detail()) * 1024;
        match self.kind() {
            EntryKind::Leaf(_) => Some(self.size().min(kib)),
            EntryKind::Dir => None,
            EntryKind::Skip(_) => (!self.is_dir() && kib != 0).then_some(kib),
        }
    }

    /// What a skip in place of this entry remembers of it.
    pub(crate) fn remembered(&self) -> u32 {
        match self.kind() {
            EntryKind::Leaf(_) => self.detail().max(1),
            EntryKind::Dir | EntryKind::Skip(_) => self.detail(),
        }
    }

    pub(crate) fn oid(&self) -> ObjectId {
        ObjectId::Sha1(id_at(self.raw, 40))
    }

    /// Its times were not fresh when it was read.
    pub(crate) fn is_clean(&self) -> bool {
        self.raw[62] & E_CLEAN != 0
    }

    pub(crate) fn has_xattrs(&self) -> bool {
        self.raw[62] & E_XATTRS != 0
    }

    /// It had other names.
    pub(crate) fn is_linked(&self) -> bool {
        self.raw[63] & E_LINKED != 0
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.raw[62] & E_STICKY != 0
    }

    pub(crate) fn decision(&self) -> Decision {
        let verdict = match self.raw[62] >> 2 & 3 {
            0 => Verdict::Keep,
            1 => Verdict::Ignore,
            2 => Verdict::Exclude,
            _ => Verdict::Include,
        };
        Decision {
            verdict,
            unless_tracked: self.raw[63] & E_UNLESS_TRACKED != 0,
            tracked: self.raw[63] & E_TRACKED != 0,
        }
    }

    /// What the system said of a file or link, where nothing but an event in its own directory can make that another.
    pub(crate) fn settled_stat(&self, dev: u64) -> Option<Stat> {
        let EntryKind::Leaf(kind) = self.kind() else { return None };
        if !self.is_clean() || self.is_linked() {
            return None;
        }
        let ns = |at| i128::from(u64_at(self.raw, at) as i64);
        Some(Stat {
            kind,
            mode: u32::from(u16::from_le_bytes([self.raw[60], self.raw[61]])),
            size: self.size(),
            blocks512: u64::from(self.detail()) * 2,
            mtime_ns: ns(16),
            ctime_ns: ns(24),
            dev,
            ino: u64_at(self.raw, 32),
            nlink: 1,
            uid: u32_at(self.raw, 64),
            gid: u32_at(self.raw, 68),
        })
    }

    /// True if a file or link is proven to be as it was: equal stat, and its times were not fresh when it was read.
    #[inline]
    pub(crate) fn proves(&self, stat: &Stat, dev: u64) -> bool {
        self.is_clean() && self.stat_equals(stat, dev)
    }

    /// True if kind, device, inode, size, times and mode are equal.
    #[inline]
    pub(crate) fn stat_equals(&self, stat: &Stat, dev: u64) -> bool {
        stat.dev == dev
            && u64_at(self.raw, 32) == stat.ino
            && u64_at(self.raw, 24) as i64 == time(stat.ctime_ns)
            && u64_at(self.raw, 16) as i64 == time(stat.mtime_ns)
            && self.size() == stat.size
            && u32::from(u16::from_le_bytes([self.raw[60], self.raw[61]])) == stat.mode
            && self.kind() == EntryKind::Leaf(stat.kind)
    }
}

/// A file with other names: what happens to it need not happen in this directory.
pub(crate) fn is_linked(stat: &Stat) -> bool {
    stat.kind == Kind::File && stat.nlink > 1
}

/// What is to be written of one entry.
pub(crate) enum NewEntry<'a> {
    Leaf { stat: &'a Stat, oid: ObjectId, decision: Decision, xattrs: bool, clean: bool },
    Dir { id: u32, decision: Decision },
    Skip { reason: Reason, is_dir: bool, size: u64, decision: Decision, sticky: bool, remembered: u32 },
}

/// The head of a record to be written.
pub(crate) struct NewHead<'a> {
    pub(crate) stat: &'a Stat,
    pub(crate) flags: u32,
    pub(crate) rules: Digest,
    pub(crate) ids: DirIds,
    pub(crate) index: u32,
    pub(crate) sum: Sum,
}

/// Puts a record together; entries come sorted by name.
#[derive(Default)]
pub(crate) struct Builder {
    entries: Vec<u8>,
    names: Vec<u8>,
}

fn raw_id(id: &ObjectId) -> [u8; 20] {
    id.as_slice().first_chunk().copied().unwrap_or_default()
}

impl Builder {
    pub(crate) fn push(&mut self, name: &BStr, entry: NewEntry<'_>) {
        let mut raw = [0u8; ENTRY];
        raw[0..4].copy_from_slice(&(self.names.len() as u32).to_le_bytes());
        self.names.extend((name.len() as u16).to_le_bytes());
        self.names.extend_from_slice(name);
        self.names.push(0);
        let decided = |raw: &mut [u8; ENTRY], decision: Decision| {
            let verdict = match decision.verdict {
                Verdict::Keep => 0,
                Verdict::Ignore => 1,
                // Asked anew each time, by the reason beside it.
                Verdict::Exclude | Verdict::Never => 2,
                Verdict::Include => 3,
            };
            raw[62] |= verdict << 2;
            raw[63] |= if decision.unless_tracked { E_UNLESS_TRACKED } else { 0 };
            raw[63] |= if decision.tracked { E_TRACKED } else { 0 };
        };
        match entry {
            NewEntry::Leaf { stat, oid, decision, xattrs, clean } => {
                let kib = u32::try_from(stat.blocks512.div_ceil(2)).unwrap_or(u32::MAX);
                raw[4..8].copy_from_slice(&kib.to_le_bytes());
                raw[8..16].copy_from_slice(&stat.size.to_le_bytes());
                raw[16..24].copy_from_slice(&time(stat.mtime_ns).to_le_bytes());
                raw[24..32].copy_from_slice(&time(stat.ctime_ns).to_le_bytes());
                raw[32..40].copy_from_slice(&stat.ino.to_le_bytes());
                raw[40..60].copy_from_slice(&raw_id(&oid));
                raw[60..62].copy_from_slice(&(stat.mode as u16).to_le_bytes());
                raw[62] = u8::from(stat.kind == Kind::Link);
                raw[62] |= if xattrs { E_XATTRS } else { 0 } | if clean { E_CLEAN } else { 0 };
                raw[63] |= if is_linked(stat) { E_LINKED } else { 0 };
                raw[64..68].copy_from_slice(&stat.uid.to_le_bytes());
                raw[68..72].copy_from_slice(&stat.gid.to_le_bytes());
                decided(&mut raw, decision);
            }
            NewEntry::Dir { id, decision } => {
                raw[4..8].copy_from_slice(&id.to_le_bytes());
                raw[62] = 2;
                decided(&mut raw, decision);
            }
            NewEntry::Skip { reason, is_dir, size, decision, sticky, remembered } => {
                raw[4..8].copy_from_slice(&remembered.to_le_bytes());
                raw[8..16].copy_from_slice(&size.to_le_bytes());
                raw[62] = 3 | if is_dir { E_IS_DIR } else { 0 } | if sticky { E_STICKY } else { 0 };
                raw[63] = reason.code();
                decided(&mut raw, decision);
            }
        }
        self.entries.extend_from_slice(&raw);
    }

    pub(crate) fn finish(self, head: &NewHead<'_>) -> Vec<u8> {
        let mut blob = Vec::with_capacity(HEAD + self.entries.len() + self.names.len());
        let stat = head.stat;
        blob.extend(((self.entries.len() / ENTRY) as u32).to_le_bytes());
        blob.extend((self.names.len() as u32).to_le_bytes());
        let flags = head.flags | if head.ids.meta.is_some() { META } else { 0 };
        for n in [flags, stat.mode, stat.uid, stat.gid] {
            blob.extend(n.to_le_bytes());
        }
        for n in [stat.dev, stat.ino, time(stat.mtime_ns) as u64, time(stat.ctime_ns) as u64] {
            blob.extend(n.to_le_bytes());
        }
        blob.extend_from_slice(&head.rules);
        blob.extend_from_slice(&raw_id(&head.ids.tree));
        blob.extend_from_slice(&head.ids.meta.as_ref().map(raw_id).unwrap_or_default());
        blob.extend(head.index.to_le_bytes());
        blob.extend(u32::from(head.sum.settled).to_le_bytes());
        blob.extend(head.sum.skips.to_le_bytes());
        blob.extend(head.sum.numbers().into_iter().flat_map(u64::to_le_bytes));
        debug_assert_eq!(blob.len(), HEAD);
        blob.extend(self.entries);
        blob.extend(self.names);
        blob
    }
}

/// Gives the directories that a record names new numbers.
pub(crate) fn renumber(blob: &mut [u8], mut map: impl FnMut(u32) -> u32) {
    let count = u32_at(blob, 0) as usize;
    for i in 0..count {
        let at = HEAD + i * ENTRY;
        let Some(raw) = blob.get_mut(at..at + ENTRY) else { return };
        if let Some(id) = (Entry { raw, names: &[] }).directory() {
            raw[4..8].copy_from_slice(&map(id).to_le_bytes());
        }
    }
}

//! The stat table: what must be read, and what is known to be unchanged.
//!
//! Two files: a base, which is mapped, and a log of the directories that changed since. Both are only caches; damage,
//! truncation or another version of either reads as "no table", and everything is read once. A record of the base is checked
//! when it is asked for, so that a walk which looks at little reads little: a damaged one is a directory not known yet.
//!
//! ```text
//! base:  magic [8]  base id [16]  length u64  crc32 of what follows up to the records u32  zero u32   (40 bytes)
//!        state, count u32, count x (start u64, length u32, crc32 u32), records
//! log:   magic [8]  base id [16]  crc32 of these 24 bytes u32                   (28 bytes)
//!        then segments: length u32, crc32 u32, body: state, count u32, count x (number u32, length u32, record);
//!        a number with its highest bit set stands before a patch of the record that there was
//! state: digest of the policy [20]  next number u32  note length u32  note
//! ```
//!
//! Directories are numbered; the root is 0. A later segment's record replaces an earlier one's, and a log whose base id
//! is not the base's does not count. Numbers are little-endian. Object ids are SHA-1.

mod map;
mod patch;
pub(crate) mod quiet;
pub(crate) mod record;
mod save;

use std::{collections::HashMap, fs::File, io::Read, path::Path, sync::Arc};

use bstr::{BStr, BString, ByteSlice};

use crate::digest::Digest;
use record::Record;
pub use save::TableUpdate;

pub(crate) const BASE_FILE: &str = "stat.base";
pub(crate) const LOG_FILE: &str = "stat.log";
pub(crate) const LOCK_FILE: &str = "stat.lock";

const BASE_MAGIC: &[u8; 8] = b"bsStatB3";
const LOG_MAGIC: &[u8; 8] = b"bsStatL3";
const BASE_HEAD: usize = 40;
/// What tells where a record lies.
const SPAN: usize = 16;
const LOG_HEAD: usize = 28;

/// What holds for the table as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Options that decisions depend on.
    pub(crate) policy: Digest,
    /// The first number that no directory has.
    pub(crate) next_id: u32,
    pub(crate) note: BString,
}

/// The memory-mapped stat table: flat base and append log, checksum per segment. A cache: any damage reads as "no table".
#[derive(Clone, Debug)]
pub struct Table(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    base: map::Map,
    base_id: [u8; 16],
    /// Where the records' positions lie in the base.
    spans: usize,
    count: u32,
    log: Vec<u8>,
    /// A directory's newest record, where it is not in the base.
    newer: HashMap<u32, Newer>,
    pub(crate) state: State,
}

#[derive(Debug)]
enum Newer {
    /// Start and length in the log.
    Logged(usize, usize),
    Patched(Vec<u8>),
}

/// Marks the number of a directory in the log: a patch follows.
const PATCH: u32 = 1 << 31;

impl Table {
    /// Opens the table in `dir`; `None` if there is none, or none that can be used.
    pub fn open(dir: &Path) -> Option<Table> {
        let base = map::Map::open(&dir.join(BASE_FILE))?;
        let bytes = base.bytes();
        let (head, rest) = bytes.split_at_checked(BASE_HEAD)?;
        if !head.starts_with(BASE_MAGIC) || word64(head, 24)? != bytes.len() as u64 || word(head, 36)? != 0 {
            return None;
        }
        let base_id: [u8; 16] = *head.get(8..)?.first_chunk()?;
        let (state, used) = read_state(rest)?;
        let count = word(rest, used)?;
        let spans = BASE_HEAD + used + 4;
        let records = spans.checked_add((count as usize).checked_mul(SPAN)?)?;
        if word(head, 32)? != crc32fast::hash(bytes.get(BASE_HEAD..records)?) {
            return None;
        }
        let mut table = Inner { base, base_id, spans, count, log: Vec::new(), newer: HashMap::new(), state };
        table.read_log(dir)?;
        table.record(0)?;
        Some(Table(Arc::new(table)))
    }

    /// Opaque note of whoever saved it (the engine stores the vouching row and session).
    pub fn note(&self) -> &BStr {
        self.0.state.note.as_bstr()
    }
}

impl Inner {
    fn read_log(&mut self, dir: &Path) -> Option<()> {
        let mut log = Vec::new();
        match File::open(dir.join(LOG_FILE)) {
            Ok(mut file) => file.read_to_end(&mut log).ok()?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Some(()),
            Err(_) => return None,
        };
        let head = log.get(..LOG_HEAD)?;
        if !head.starts_with(LOG_MAGIC) || word(head, 24)? != crc32fast::hash(&head[..24]) {
            return None;
        }
        if head.get(8..24)? != self.base_id {
            // Left over from the base before.
            return Some(());
        }
        let mut at = LOG_HEAD;
        while at < log.len() {
            let len = word(&log, at)? as usize;
            let body = log.get(at + 8..(at + 8).checked_add(len)?)?;
            if word(&log, at + 4)? != crc32fast::hash(body) {
                return None;
            }
            let (state, used) = read_state(body)?;
            let count = word(body, used)?;
            let mut inner = used + 4;
            for _ in 0..count {
                let id = word(body, inner)?;
                let len = word(body, inner + 4)? as usize;
                let bytes = body.get(inner + 8..(inner + 8).checked_add(len)?)?;
                let start = at + 8 + inner + 8;
                let newer = if id & PATCH == 0 {
                    Newer::Logged(start, len)
                } else {
                    let old = self.record_in(&log, id & !PATCH)?;
                    Newer::Patched(patch::apply(old.blob(), bytes)?)
                };
                self.newer.insert(id & !PATCH, newer);
                inner += 8 + len;
            }
            self.state = state;
            at += 8 + len;
        }
        self.log = log;
        Some(())
    }

    /// What is known of the directory with this number.
    pub(crate) fn record(&self, id: u32) -> Option<Record<'_>> {
        self.record_in(&self.log, id)
    }

    fn record_in<'a>(&'a self, log: &'a [u8], id: u32) -> Option<Record<'a>> {
        if !self.newer.is_empty()
            && let Some(newer) = self.newer.get(&id)
        {
            return Record::parse(match newer {
                Newer::Logged(start, len) => log.get(*start..start + len)?,
                Newer::Patched(blob) => blob,
            });
        }
        if id >= self.count {
            return None;
        }
        let bytes = self.base.bytes();
        let span = self.spans + id as usize * SPAN;
        let start = BASE_HEAD.checked_add(usize::try_from(word64(bytes, span)?).ok()?)?;
        let blob = bytes.get(start..start.checked_add(word(bytes, span + 8)? as usize)?)?;
        Record::parse(blob).filter(|_| word(bytes, span + 12) == Some(crc32fast::hash(blob)))
    }
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn word64(b: &[u8], at: usize) -> Option<u64> {
    b.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

fn read_state(b: &[u8]) -> Option<(State, usize)> {
    let note_len = word(b, 24)? as usize;
    Some((
        State {
            policy: *b.first_chunk()?,
            next_id: word(b, 20)?,
            note: b.get(28..28usize.checked_add(note_len)?)?.into(),
        },
        28 + note_len,
    ))
}

fn write_state(out: &mut Vec<u8>, state: &State) {
    out.extend(state.policy);
    out.extend(state.next_id.to_le_bytes());
    out.extend((state.note.len() as u32).to_le_bytes());
    out.extend_from_slice(&state.note);
}

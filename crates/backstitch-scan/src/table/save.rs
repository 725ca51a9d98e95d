//! Writing the table.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use bstr::BStr;

use super::{
    BASE_FILE, BASE_HEAD, BASE_MAGIC, Inner, LOCK_FILE, LOG_FILE, LOG_HEAD, LOG_MAGIC, PATCH, SPAN, State,
    patch,
    record::{self, Record},
    write_state,
};

/// What a scan learned and the table does not know yet.
#[derive(Debug)]
pub struct TableUpdate {
    pub(crate) old: Option<Arc<Inner>>,
    /// Records of the directories that changed.
    pub(crate) changed: Vec<(u32, Vec<u8>)>,
    pub(crate) state: State,
}

impl TableUpdate {
    /// Appends to the log, or rewrites the base (temporary and rename), under an exclusive try-lock. Losing the race is not
    /// an error: the other's table is as good.
    pub fn save(mut self, dir: &Path, note: &BStr) -> io::Result<()> {
        let lock = private().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        self.state.note = note.to_owned();
        if let Some(old) = &self.old
            && !self.is_current(old, dir)
        {
            return Ok(());
        }
        if let Some(old) = &self.old {
            let logged = self.logged(old);
            if fits_log(old, &logged) {
                return self.append(old, dir, &logged);
            }
        }
        self.rewrite(dir)
    }

    /// True if the files are still those that the scan began with, so that numbers mean the same.
    fn is_current(&self, old: &Inner, dir: &Path) -> bool {
        let mut head = [0u8; 24];
        let base = File::open(dir.join(BASE_FILE)).and_then(|mut f| io::Read::read_exact(&mut f, &mut head));
        if base.is_err() || head[8..24] != old.base_id {
            return false;
        }
        let log = File::open(dir.join(LOG_FILE));
        let (len, same) = match log {
            Ok(mut f) => {
                let same = io::Read::read_exact(&mut f, &mut head).is_ok() && head[8..24] == old.base_id;
                (f.metadata().map_or(u64::MAX, |m| m.len()), same)
            }
            Err(_) => (0, false),
        };
        // A log of an older base counts as none.
        if same { len == old.log.len() as u64 } else { old.log.is_empty() }
    }

    /// What goes into the log for each changed directory: a patch where that is less.
    fn logged(&self, old: &Inner) -> Vec<(u32, Cow<'_, [u8]>)> {
        let changed = self.changed.iter().map(|(id, blob)| {
            match old.record(*id).and_then(|record| patch::make(record.blob(), blob)) {
                Some(patch) => (id | PATCH, Cow::Owned(patch)),
                None => (*id, Cow::Borrowed(blob.as_slice())),
            }
        });
        changed.collect()
    }

    fn append(&self, old: &Inner, dir: &Path, logged: &[(u32, Cow<'_, [u8]>)]) -> io::Result<()> {
        let mut body = Vec::new();
        write_state(&mut body, &self.state);
        body.extend((logged.len() as u32).to_le_bytes());
        for (id, blob) in logged {
            body.extend(id.to_le_bytes());
            body.extend((blob.len() as u32).to_le_bytes());
            body.extend_from_slice(blob);
        }
        let mut segment = Vec::with_capacity(body.len() + 8);
        segment.extend((body.len() as u32).to_le_bytes());
        segment.extend(crc32fast::hash(&body).to_le_bytes());
        segment.extend(body);
        if old.log.is_empty() {
            let mut log = log_head(&old.base_id);
            log.extend(segment);
            return replace(dir, LOG_FILE, &log);
        }
        let mut file = fs::OpenOptions::new().append(true).open(dir.join(LOG_FILE))?;
        // The log is read, never mapped: cutting off what a full disk left is safe.
        file.write_all(&segment).inspect_err(|_| {
            let _ = file.set_len(old.log.len() as u64);
        })
    }

    /// Writes a new base with all records, numbered anew from the root down.
    fn rewrite(&self, dir: &Path) -> io::Result<()> {
        let changed: HashMap<u32, &[u8]> =
            self.changed.iter().map(|(id, blob)| (*id, blob.as_slice())).collect();
        let find = |id: u32| match changed.get(&id) {
            Some(blob) => Record::parse(blob),
            None => self.old.as_ref().and_then(|old| old.record(id)),
        };
        let mut blobs: Vec<u8> = Vec::new();
        // By new number: where the record lies.
        let mut spans: Vec<(u64, u32)> = vec![(0, 0)];
        let mut seen = HashSet::from([0]);
        // The newest first, as a walk goes: what is needed together lies together.
        let mut pending = vec![(0u32, 0u32)];
        while let Some((old, new)) = pending.pop() {
            let Some(record) = find(old) else {
                // A damaged record below what was not looked at: without a table everything is read once.
                fs::remove_file(dir.join(BASE_FILE))?;
                return Err(io::Error::other("table lacks a directory"));
            };
            let mut twice = false;
            let start = blobs.len();
            blobs.extend_from_slice(record.blob());
            record::renumber(&mut blobs[start..], |old| {
                let new = spans.len() as u32;
                twice |= !seen.insert(old);
                spans.push((0, 0));
                pending.push((old, new));
                new
            });
            if twice {
                return Err(io::Error::other("table names a directory twice"));
            }
            spans[new as usize] = (start as u64, record.blob().len() as u32);
        }
        let mut state = self.state.clone();
        state.next_id = spans.len() as u32;
        let mut file = vec![0u8; BASE_HEAD];
        write_state(&mut file, &state);
        file.extend((spans.len() as u32).to_le_bytes());
        // Starts are counted from the end of the base's head.
        let shift = (file.len() + spans.len() * SPAN - BASE_HEAD) as u64;
        for &(start, len) in &spans {
            let blob = blobs.get(start as usize..).and_then(|b| b.get(..len as usize)).unwrap_or_default();
            file.extend((start + shift).to_le_bytes());
            file.extend(len.to_le_bytes());
            file.extend(crc32fast::hash(blob).to_le_bytes());
        }
        let records = file.len();
        file.extend(blobs);
        let id = new_id(&file);
        file[..8].copy_from_slice(BASE_MAGIC);
        file[8..24].copy_from_slice(&id);
        let len = file.len() as u64;
        file[24..32].copy_from_slice(&len.to_le_bytes());
        let crc = crc32fast::hash(&file[BASE_HEAD..records]);
        file[32..36].copy_from_slice(&crc.to_le_bytes());
        // A crash in between leaves the old log, which names another base and does not count.
        replace(dir, BASE_FILE, &file)?;
        replace(dir, LOG_FILE, &log_head(&id))
    }
}

/// True if the log stays small beside the base.
fn fits_log(old: &Inner, logged: &[(u32, Cow<'_, [u8]>)]) -> bool {
    let new: usize = logged.iter().map(|(_, bytes)| bytes.len() + 8).sum();
    old.log.len() + new <= (old.base.bytes().len() / 10).max(1 << 16)
}

fn log_head(base_id: &[u8; 16]) -> Vec<u8> {
    let mut head = LOG_MAGIC.to_vec();
    head.extend(base_id);
    head.extend(crc32fast::hash(&head).to_le_bytes());
    debug_assert_eq!(head.len(), LOG_HEAD);
    head
}

/// A name for a base that no other base of this folder has.
fn new_id(content: &[u8]) -> [u8; 16] {
    use crate::clock::{Clock, SystemClock};
    let tail = content.get(content.len().saturating_sub(256)..).unwrap_or_default();
    let id = crate::digest::digest(&[
        &SystemClock.now_ns().to_le_bytes(),
        &std::process::id().to_le_bytes(),
        &crc32fast::hash(content).to_le_bytes(),
        tail,
    ]);
    id.first_chunk().copied().unwrap_or_default()
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.mode(0o600);
    options
}

/// Puts a file in place in one step. The temporary has a name by which the store's next writer removes it where its owner died; one
/// that is removed under its owner's hands costs this table only.
fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("tmp_{name}"));
    let _ = fs::remove_file(&temporary);
    let written = private()
        .create_new(true)
        .write(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, dir.join(name)));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

const _: () = assert!(LOG_HEAD == 28 && BASE_HEAD == 40);

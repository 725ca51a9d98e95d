//! Entries of git's index, versions 2 to 4, in the order of the file.

use bstr::{BString, ByteSlice};

use crate::Oid;

/// Whatever an entry says, whether anything holds for it or not.
pub(crate) struct Entry<'a> {
    /// Nine numbers of four bytes, as of the last look: ctime and mtime in seconds and nanoseconds, device, inode, mode,
    /// owner, group; then the size.
    pub(crate) stat: &'a [u8; 40],
    /// Object id.
    pub(crate) id: &'a [u8],
    /// `assume-valid` and the stage of a conflict.
    pub(crate) flags: u16,
    /// `skip-worktree` and `intent-to-add`.
    pub(crate) more_flags: u16,
    pub(crate) path: &'a [u8],
}

impl Entry<'_> {
    /// One of the ten numbers of [`stat`](Self::stat).
    pub(crate) fn number(&self, i: usize) -> u32 {
        self.stat.as_chunks::<4>().0.get(i).map_or(0, |word| u32::from_be_bytes(*word))
    }

    pub(crate) fn mode(&self) -> u32 {
        self.number(6)
    }
}

/// An extension: its name and its bytes.
pub(crate) type Extension<'a> = (&'a [u8; 4], &'a [u8]);

/// Calls `each` for every entry and returns the extensions. `None` if this is no index that can be read, or `each` says so.
/// The file's checksum is not verified; git replaces the file by rename, so it is whole.
pub(crate) fn read<'d>(
    data: &'d [u8],
    hash_len: usize,
    mut each: impl FnMut(Entry<'_>) -> Option<()>,
) -> Option<Vec<Extension<'d>>> {
    let word = |at: usize| Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?));
    if data.get(..4)? != b"DIRC" {
        return None;
    }
    let version = word(4)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = word(8)?;
    let end = data.len().checked_sub(hash_len)?;
    let mut at = 12;
    // Paths of version 4 build on the one before.
    let mut last: Vec<u8> = Vec::new();
    for _ in 0..count {
        let start = at;
        let stat = data.get(at..end)?.first_chunk::<40>()?;
        let id = data.get(at + 40..end)?.get(..hash_len)?;
        at += 40 + hash_len;
        let short = |at: usize| Some(u16::from_be_bytes(*data.get(at..end)?.first_chunk()?));
        let flags = short(at)?;
        at += 2;
        let mut more_flags = 0;
        if flags & 0x4000 != 0 {
            if version < 3 {
                return None;
            }
            more_flags = short(at)?;
            at += 2;
        }
        let path;
        if version == 4 {
            let (strip, used) = varint(data.get(at..end)?)?;
            at += used;
            last.truncate(last.len().checked_sub(strip)?);
            let len = data.get(at..end)?.find_byte(0)?;
            last.extend_from_slice(&data[at..at + len]);
            at += len + 1;
            path = &last[..];
        } else {
            let len = data.get(at..end)?.find_byte(0)?;
            path = &data[at..at + len];
            // Entries end with one to eight NULs, at a multiple of eight.
            at = start + ((at + len - start) / 8 + 1) * 8;
        }
        if at > end {
            return None;
        }
        each(Entry { stat, id, flags, more_flags, path })?;
    }
    let mut extensions = Vec::new();
    while at + 8 <= end {
        let len = word(at + 4)? as usize;
        let body = data.get(at + 8..at + 8 + len).filter(|_| at + 8 + len <= end)?;
        extensions.push((data[at..].first_chunk()?, body));
        at += 8 + len;
    }
    Some(extensions)
}

/// One entry of a git index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// From the top of the work tree.
    pub path: BString,
    /// Mode as in trees; of a sparse index also that of a directory.
    pub mode: u32,
    /// What it holds.
    pub oid: Oid,
    /// 0, or the side of a conflict.
    pub stage: u8,
    /// `assume-valid`.
    pub assume_valid: bool,
    /// `skip-worktree`.
    pub skip_worktree: bool,
    /// `intent-to-add`.
    pub intent_to_add: bool,
    /// The stat data of the last look, as it is in the file.
    pub stat: [u8; 40],
}

/// The entries of an index with SHA-1 ids, in its order, and the names of its extensions; `None` if it cannot be read.
pub fn index_entries(data: &[u8]) -> Option<(Vec<IndexEntry>, Vec<[u8; 4]>)> {
    let mut out = Vec::new();
    let extensions = read(data, 20, |e| {
        out.push(IndexEntry {
            path: e.path.into(),
            mode: e.mode(),
            oid: Oid::try_from(e.id).ok()?,
            stage: (e.flags >> 12 & 3) as u8,
            assume_valid: e.flags & 0x8000 != 0,
            skip_worktree: e.more_flags & 0x4000 != 0,
            intent_to_add: e.more_flags & 0x2000 != 0,
            stat: *e.stat,
        });
        Some(())
    })?;
    Some((out, extensions.into_iter().map(|(name, _)| *name).collect()))
}

/// Git's variable-length number, as in offset deltas; returns it and the bytes that it took.
fn varint(data: &[u8]) -> Option<(usize, usize)> {
    let mut value: usize = 0;
    for (i, byte) in data.iter().enumerate().take(9) {
        value = if i == 0 { 0 } else { value.checked_add(1)? };
        value = value.checked_shl(7)? | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

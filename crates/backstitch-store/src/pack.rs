//! Packs: entry headers, and reading entries with their deltas.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Error,
    hash::{self, OID_LEN},
    idx::Idx,
    inflate::{Fault, Inflater, Input},
    object::Kind,
};

/// `PACK`, version 2, number of objects.
pub(crate) const HEADER_LEN: u64 = 12;
/// The most bytes in front of an entry's data.
pub(crate) const ENTRY_HEADER_MAX: usize = 10;

/// Enough for most headers of entries and deltas.
const PEEK: usize = 512;

/// The header of a pack with `count` objects.
pub(crate) fn header(count: u32) -> [u8; HEADER_LEN as usize] {
    let mut out = *b"PACK\0\0\0\x02\0\0\0\0";
    out[8..].copy_from_slice(&count.to_be_bytes());
    out
}

/// Writes type and size of an undeltified entry; returns how many bytes.
pub(crate) fn entry_header(kind: Kind, size: u64, out: &mut [u8]) -> usize {
    type_and_size(kind.code(), size, out)
}

/// The header of a delta of `size` bytes against the entry that starts `back` bytes before it.
pub(crate) fn delta_header(size: u64, back: u64) -> Vec<u8> {
    let mut out = vec![0; ENTRY_HEADER_MAX];
    let n = type_and_size(6, size, &mut out);
    out.truncate(n);
    let mut rest = back;
    let mut digits = vec![(rest & 0x7f) as u8];
    while rest > 0x7f {
        rest = (rest >> 7) - 1;
        digits.push(0x80 | (rest & 0x7f) as u8);
    }
    out.extend(digits.iter().rev());
    out
}

fn type_and_size(code: u8, size: u64, out: &mut [u8]) -> usize {
    let mut rest = size >> 4;
    let mut byte = code << 4 | (size & 15) as u8;
    let mut n = 0;
    while rest > 0 {
        out[n] = byte | 0x80;
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
        n += 1;
    }
    out[n] = byte;
    n + 1
}

/// What an entry says in front of its data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Plain(Kind),
    /// A delta against the entry at this offset.
    Offset(u64),
    /// A delta against this object.
    Base([u8; OID_LEN]),
}

/// A pack with its index.
#[derive(Debug)]
pub(crate) struct Pack {
    /// The `.pack` file.
    pub(crate) path: PathBuf,
    pub(crate) idx: Idx,
    file: Mutex<Option<Opened>>,
}

#[derive(Clone, Debug)]
struct Opened {
    file: Arc<File>,
    /// Where the entries end and the checksum begins.
    end: u64,
}

impl Pack {
    /// `path` is the `.pack` file; its index is read now, itself when first needed.
    pub(crate) fn open(path: PathBuf) -> Result<Pack, Error> {
        let idx = Idx::open(&path.with_extension("idx"))?;
        Ok(Pack { path, idx, file: Mutex::new(None) })
    }

    fn opened(&self) -> Result<Opened, Error> {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(o) = &*slot {
            return Ok(o.clone());
        }
        let file = File::open(&self.path).map_err(Error::io(&self.path))?;
        let len = file.metadata().map_err(Error::io(&self.path))?.size();
        let mut head = [0; HEADER_LEN as usize];
        if len < HEADER_LEN + OID_LEN as u64 {
            return Err(Error::damaged(&self.path, "the pack is cut off"));
        }
        file.read_exact_at(&mut head, 0).map_err(Error::io(&self.path))?;
        if head != header(self.idx.len()) {
            return Err(Error::damaged(&self.path, "the pack's header does not fit its index"));
        }
        let opened = Opened { file: Arc::new(file), end: len - OID_LEN as u64 };
        *slot = Some(opened.clone());
        Ok(opened)
    }

    /// Whether the file is there and looks like the pack of its index.
    pub(crate) fn probe(&self) -> Result<(), Error> {
        self.opened().map(drop)
    }

    /// The bytes of an entry as they are in the file.
    pub(crate) fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let o = self.opened()?;
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > o.end) {
            return Err(self.fault(offset, "an object is outside the pack"));
        }
        o.file.read_exact_at(out, offset).map_err(Error::io(&self.path))
    }

    /// Lets go of the file; the next read opens it again.
    pub(crate) fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Calls `with` at the start of the entry's data.
    pub(crate) fn entry<T>(
        &self,
        inflater: &mut Inflater,
        offset: u64,
        with: impl FnOnce(Entry, u64, &mut Input<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.entry_by(inflater, offset, None, with)
    }

    /// The same, for who needs little of it.
    pub(crate) fn peek<T>(
        &self,
        inflater: &mut Inflater,
        offset: u64,
        with: impl FnOnce(Entry, u64, &mut Input<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.entry_by(inflater, offset, Some(PEEK), with)
    }

    fn entry_by<T>(
        &self,
        inflater: &mut Inflater,
        offset: u64,
        first: Option<usize>,
        with: impl FnOnce(Entry, u64, &mut Input<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let o = self.opened()?;
        if offset < HEADER_LEN || offset >= o.end {
            return Err(Error::damaged(&self.path, format!("an object at {offset} is outside the pack")));
        }
        let mut input = inflater.open(&o.file, offset, o.end);
        if let Some(first) = first {
            input.reads_first(first);
        }
        let (entry, size) = read_entry(&mut input, offset).map_err(|f| self.fault(offset, &f))?;
        with(entry, size, &mut input)
    }

    pub(crate) fn fault(&self, offset: u64, what: &str) -> Error {
        damaged_at(&self.path, offset, what)
    }
}

pub(crate) fn damaged_at(path: &Path, offset: u64, what: &str) -> Error {
    Error::damaged(path, format!("at {offset}: {what}"))
}

/// Type and size of the entry that starts here.
pub(crate) fn read_entry(input: &mut Input<'_>, offset: u64) -> Result<(Entry, u64), Fault> {
    parse_entry(&mut || input.byte(), offset)
}

/// As [`read_entry`], of an entry in memory; also the length of its header.
pub(crate) fn entry_of(bytes: &[u8], offset: u64) -> Result<(Entry, u64, usize), Fault> {
    let mut n = 0;
    let mut next = || {
        n += 1;
        bytes.get(n - 1).copied().ok_or_else(|| Fault::from("an entry is cut off"))
    };
    let (entry, size) = parse_entry(&mut next, offset)?;
    Ok((entry, size, n))
}

fn parse_entry(next: &mut dyn FnMut() -> Result<u8, Fault>, offset: u64) -> Result<(Entry, u64), Fault> {
    let first = next()?;
    let mut size = u64::from(first & 15);
    let mut shift = 4;
    let mut more = first & 0x80 != 0;
    while more {
        let b = next()?;
        if shift > 57 {
            return Err("an object's size is out of range".into());
        }
        size |= u64::from(b & 0x7f) << shift;
        shift += 7;
        more = b & 0x80 != 0;
    }
    let entry = match first >> 4 & 7 {
        6 => {
            let mut b = next()?;
            let mut back = u64::from(b & 0x7f);
            while b & 0x80 != 0 {
                b = next()?;
                back = back
                    .checked_add(1)
                    .and_then(|n| n.checked_mul(128))
                    .ok_or("a delta's base is out of range")?
                    | u64::from(b & 0x7f);
            }
            let base = offset.checked_sub(back).filter(|_| back > 0);
            Entry::Offset(base.ok_or("a delta's base is out of range")?)
        }
        7 => {
            let mut id = [0; OID_LEN];
            for b in &mut id {
                *b = next()?;
            }
            Entry::Base(id)
        }
        code => Entry::Plain(Kind::from_code(code).ok_or("an entry of unknown type")?),
    };
    Ok((entry, size))
}

/// The size that a delta's result has: second number of its head.
pub(crate) fn delta_result_size(mut delta: &[u8]) -> Result<u64, Fault> {
    varint(&mut delta)?;
    varint(&mut delta)
}

/// What `delta` makes of `base`.
pub(crate) fn apply_delta(base: &[u8], mut delta: &[u8]) -> Result<Vec<u8>, Fault> {
    let cut = || Fault::from("a delta is cut off");
    if varint(&mut delta)? != base.len() as u64 {
        return Err("a delta does not fit its base".into());
    }
    let size = usize::try_from(varint(&mut delta)?).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    // A delta may repeat its base many times, so its own length bounds nothing: room grows as it is needed.
    out.try_reserve(size.min(64 << 20)).map_err(|e| e.to_string())?;
    while let Some((&op, rest)) = delta.split_first() {
        delta = rest;
        if op & 0x80 != 0 {
            let mut number = |bits: u8| -> Result<usize, Fault> {
                let mut n = 0;
                for i in 0..4 {
                    if bits & 1 << i != 0 {
                        let (&b, rest) = delta.split_first().ok_or_else(cut)?;
                        delta = rest;
                        n |= usize::from(b) << (8 * i);
                    }
                }
                Ok(n)
            };
            let at = number(op & 0x0f)?;
            let len = match number(op >> 4 & 0x07)? {
                0 => 0x10000,
                n => n,
            };
            let part = at
                .checked_add(len)
                .and_then(|end| base.get(at..end))
                .ok_or("a delta reads outside its base")?;
            if out.len() + part.len() > size {
                return Err("a delta writes more than it says".into());
            }
            out.try_reserve(part.len()).map_err(|e| e.to_string())?;
            out.extend_from_slice(part);
        } else {
            let part = delta.get(..usize::from(op)).filter(|_| op != 0).ok_or_else(cut)?;
            if out.len() + part.len() > size {
                return Err("a delta writes more than it says".into());
            }
            out.extend_from_slice(part);
            delta = &delta[usize::from(op)..];
        }
    }
    if out.len() != size {
        return Err("a delta writes less than it says".into());
    }
    Ok(out)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Fault> {
    let mut n = 0u64;
    for shift in (0..63).step_by(7) {
        let (&b, rest) = bytes.split_first().ok_or("a delta is cut off")?;
        *bytes = rest;
        n |= u64::from(b & 0x7f) << shift;
        if b & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err("a delta's size is out of range".into())
}

/// The checksum at the end of `file` and the one its bytes have.
pub(crate) fn checksums(file: &File, path: &Path, len: u64) -> Result<(crate::Oid, crate::Oid), Error> {
    let body = len.checked_sub(OID_LEN as u64).ok_or_else(|| Error::damaged(path, "the file is cut off"))?;
    let mut h = hash::Sha1::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while at < body {
        let n = usize::try_from(body - at).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(&mut buffer[..n], at).map_err(Error::io(path))?;
        h.update(&buffer[..n]);
        at += n as u64;
    }
    let mut end = [0; OID_LEN];
    file.read_exact_at(&mut end, body).map_err(Error::io(path))?;
    Ok((crate::Oid::from(end), h.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_deltas_are_errors() {
        let base = b"0123456789";
        assert_eq!(apply_delta(base, &[10, 3, 0x91, 2, 3]).expect("valid"), b"234");
        assert_eq!(apply_delta(base, &[10, 4, 0x91, 2, 3, 1, b'x']).expect("valid"), b"234x");
        for bad in [
            &[][..],
            &[10],
            &[9, 1, 1, b'x'],
            &[10, 1],
            &[10, 1, 0],
            &[10, 1, 0x91, 9, 3],
            &[10, 1, 2, b'x'],
            &[10, 200, 0x80],
            &[0xff; 20],
            &[10, 1, 0xff],
            &[10, 1, 0xff, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert!(apply_delta(base, bad).is_err(), "{bad:?}");
        }
    }
}

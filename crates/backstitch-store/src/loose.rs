//! Objects in files of their own: rows' commits, huge files, and what foreign git programs leave.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use crate::{
    Durability, Error, Oid,
    deflate::Deflater,
    files::{self, Temp, Unsynced},
    hash::{self, Sha1},
    inflate::{Fault, Inflater},
    object::Kind,
};

/// `objects/ab/cdef...`.
pub(crate) fn path(objects: &Path, oid: &Oid) -> PathBuf {
    let hex = oid.to_string();
    let (dir, file) = hex.split_at(2);
    objects.join(dir).join(file)
}

/// An error of reading, or of the receiver of what was read.
pub(crate) enum ReadError {
    Fault(Fault),
    Sink(Error),
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> ReadError {
        ReadError::Fault(fault)
    }
}

impl ReadError {
    pub(crate) fn at(self, path: &Path) -> Error {
        match self {
            ReadError::Fault(f) => Error::damaged(path, f),
            ReadError::Sink(e) => e,
        }
    }
}

/// Receives a loose object.
pub(crate) trait Sink {
    /// Type and size come first; false ends the reading.
    fn begin(&mut self, kind: Kind, size: u64) -> Result<bool, Error>;
    /// Then the content, piece by piece.
    fn piece(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

/// Reads the file at `path`; exactly the size that it claims.
pub(crate) fn read(inflater: &mut Inflater, path: &Path, sink: &mut dyn Sink) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let len = file.metadata().map_err(Error::io(path))?.len();
    let mut input = inflater.open(&file, 0, len);
    let mut head = Vec::new();
    let mut left = None;
    let mut stopped = false;
    input
        .pieces(|bytes| -> Result<bool, ReadError> {
            let mut bytes = bytes;
            if left.is_none() {
                let end = bytes.iter().position(|&b| b == 0);
                head.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                let Some(end) = end else {
                    return if head.len() > 40 {
                        Err(ReadError::Fault("no object header".into()))
                    } else {
                        Ok(true)
                    };
                };
                let (kind, size) =
                    parse_header(&head).ok_or_else(|| ReadError::Fault("no object header".into()))?;
                left = Some(size);
                if !sink.begin(kind, size).map_err(ReadError::Sink)? {
                    stopped = true;
                    return Ok(false);
                }
                bytes = &bytes[end + 1..];
            }
            if let Some(left) = &mut left {
                let n = bytes.len() as u64;
                *left = left
                    .checked_sub(n)
                    .ok_or_else(|| ReadError::Fault("an object is longer than it says".into()))?;
            }
            if !bytes.is_empty() {
                sink.piece(bytes).map_err(ReadError::Sink)?;
            }
            Ok(true)
        })
        .map_err(|e| e.at(path))?;
    if stopped {
        return Ok(());
    }
    match left {
        None => Err(Error::damaged(path, "no object header")),
        Some(0) if input.offset() == len => Ok(()),
        Some(0) => Err(Error::damaged(path, "bytes follow the object")),
        Some(_) => Err(Error::damaged(path, "an object is shorter than it says")),
    }
}

fn parse_header(head: &[u8]) -> Option<(Kind, u64)> {
    let text = std::str::from_utf8(head).ok()?;
    let (kind, size) = text.split_once(' ')?;
    let digits = size.bytes().all(|b| b.is_ascii_digit()) && (size == "0" || !size.starts_with('0'));
    Some((Kind::from_name(kind.as_bytes())?, size.parse().ok().filter(|_| digits)?))
}

/// Collects an object in memory, or only its header.
#[derive(Default)]
pub(crate) struct Collect {
    pub(crate) header: Option<(Kind, u64)>,
    pub(crate) only_header: bool,
    pub(crate) data: Vec<u8>,
}

impl Sink for Collect {
    fn begin(&mut self, kind: Kind, size: u64) -> Result<bool, Error> {
        self.header = Some((kind, size));
        Ok(!self.only_header)
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.data
            .try_reserve(bytes.len())
            .map_err(|e| Error::invalid(format!("an object does not fit in memory: {e}")))?;
        self.data.extend_from_slice(bytes);
        Ok(())
    }
}

/// Where content goes, piece by piece.
pub(crate) type Receiver<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Hashes what passes.
pub(crate) struct Hashing<'a> {
    /// Gets the content too.
    pub(crate) out: Option<Receiver<'a>>,
    pub(crate) header: Option<(Kind, u64)>,
    pub(crate) hash: Option<Sha1>,
}

impl Sink for Hashing<'_> {
    fn begin(&mut self, kind: Kind, size: u64) -> Result<bool, Error> {
        self.header = Some((kind, size));
        self.hash = Some(Sha1::object(kind, size));
        Ok(true)
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(h) = &mut self.hash {
            h.update(bytes);
        }
        match &mut self.out {
            Some(out) => out(bytes),
            None => Ok(()),
        }
    }
}

/// Writes a small object; durable when this returns.
pub(crate) fn write(
    objects: &Path,
    kind: Kind,
    data: &[u8],
    deflater: &mut Deflater,
    durability: Durability,
) -> Result<(Oid, u64), Error> {
    write_with(objects, kind, data, deflater, None, durability)
}

/// The same, and the content of `beside` is durable, too.
pub(crate) fn write_with(
    objects: &Path,
    kind: Kind,
    data: &[u8],
    deflater: &mut Deflater,
    beside: Option<&Temp>,
    durability: Durability,
) -> Result<(Oid, u64), Error> {
    let oid = hash::object_id(kind, data)?;
    let plain = [&hash::header(kind, data.len() as u64), data].concat();
    let mut bytes = vec![0; Deflater::bound(plain.len())];
    let n = deflater.zlib(&plain, &mut bytes);
    let mut temp = Temp::new(objects, "obj")?;
    temp.write(&bytes[..n])?;
    let unsynced: Vec<_> = std::iter::once(&temp).chain(beside).map(Unsynced::File).collect();
    files::sync_together(&unsynced, durability)?;
    place(objects, &oid, temp, durability)?;
    Ok((oid, n as u64))
}

/// Puts a synced temporary in its place and makes that durable.
pub(crate) fn place(objects: &Path, oid: &Oid, temp: Temp, durability: Durability) -> Result<(), Error> {
    let to = path(objects, oid);
    let Some(dir) = to.parent() else { return Err(Error::invalid("an object has no directory")) };
    let made = files::ensure_dir(dir)?;
    temp.place(&to)?;
    let dirs = [dir, objects].map(Unsynced::Dir);
    files::sync_together(&dirs[..if made { 2 } else { 1 }], durability)
}

/// Every loose object with its file, in no order; foreign names are left out.
pub(crate) fn list(objects: &Path) -> Result<Vec<(Oid, PathBuf)>, Error> {
    let mut out = Vec::new();
    for dir in files::names(objects)? {
        let Some(prefix) = dir.to_str().filter(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_hexdigit()))
        else {
            continue;
        };
        let sub = objects.join(prefix);
        for name in files::names(&sub)? {
            let oid = name
                .to_str()
                .filter(|n| n.len() == 38)
                .and_then(|n| Oid::from_hex(format!("{prefix}{n}").as_bytes()).ok());
            if let Some(oid) = oid {
                out.push((oid, sub.join(name)));
            }
        }
    }
    Ok(out)
}

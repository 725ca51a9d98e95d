//! Reading compressed objects from a file by offset, whole or in pieces. No mapping: a file that is cut off under us
//! gives an error, not a signal.

use std::{fs::File, os::unix::fs::FileExt};

use sirocco::{
    Format,
    inflate::{Decoder, Error as InflateError},
};

const FIRST_READ: usize = 16 << 10;
const NEXT_READ: usize = 128 << 10;
/// Output buffer of the piecewise form; more than the window of 32 KiB that must stay.
const WINDOW: usize = 256 << 10;
/// The first room made for an object; more follows as data arrives, whatever size the header claims.
const FIRST_ROOM: u64 = 4 << 20;

/// Buffers and tables for one reader at a time.
pub(crate) struct Inflater {
    decoder: Decoder,
    input: Vec<u8>,
    window: Vec<u8>,
}

impl Inflater {
    pub(crate) fn new() -> Inflater {
        Inflater { decoder: Decoder::new(Format::Zlib), input: Vec::new(), window: Vec::new() }
    }

    /// Starts reading `file` at `pos`; nothing at or beyond `end` is looked at.
    pub(crate) fn open<'a>(&'a mut self, file: &'a File, pos: u64, end: u64) -> Input<'a> {
        self.decoder.reset();
        Input {
            file,
            pos,
            end,
            lo: 0,
            hi: 0,
            next: FIRST_READ,
            buffer: &mut self.input,
            decoder: &mut self.decoder,
            window: &mut self.window,
        }
    }
}

/// A place in a file, and the zlib stream that starts there.
pub(crate) struct Input<'a> {
    file: &'a File,
    /// File offset of what follows `buffer[lo..hi]`.
    pos: u64,
    end: u64,
    lo: usize,
    hi: usize,
    /// Bytes of the next read.
    next: usize,
    buffer: &'a mut Vec<u8>,
    decoder: &'a mut Decoder,
    window: &'a mut Vec<u8>,
}

/// What is wrong with the bytes.
pub(crate) type Fault = String;

impl Input<'_> {
    /// So many bytes are read first.
    pub(crate) fn reads_first(&mut self, bytes: usize) {
        self.next = bytes;
    }

    /// File offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.pos - (self.hi - self.lo) as u64
    }

    fn fill(&mut self) -> Result<(), Fault> {
        if self.lo < self.hi || self.pos >= self.end {
            return Ok(());
        }
        let want = std::mem::replace(&mut self.next, NEXT_READ);
        let want = usize::try_from(self.end - self.pos).unwrap_or(usize::MAX).min(want);
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.lo = 0;
        self.hi = 0;
        loop {
            match self.file.read_at(&mut self.buffer[..want], self.pos) {
                Ok(0) => return Err("the file is cut off".into()),
                Ok(n) => {
                    self.hi = n;
                    self.pos += n as u64;
                    return Ok(());
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    /// The next plain byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        self.fill()?;
        if self.lo == self.hi {
            return Err("the file is cut off".into());
        }
        self.lo += 1;
        Ok(self.buffer[self.lo - 1])
    }

    /// The stream from here, which must hold exactly `size` bytes.
    pub(crate) fn whole(&mut self, size: u64) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        let too_large = || format!("{size} bytes do not fit in memory");
        // One byte more than needed shows a stream that is too long.
        let want = usize::try_from(size).ok().and_then(|n| n.checked_add(1)).ok_or_else(too_large)?;
        let first = want.min(FIRST_ROOM as usize);
        out.try_reserve_exact(first).map_err(|_| too_large())?;
        out.resize(first, 0);
        let mut len = 0;
        loop {
            self.fill()?;
            let at_end = self.pos >= self.end;
            let step = self.decoder.decompress(&self.buffer[self.lo..self.hi], &mut out, at_end);
            let (done, full) = match step.map(|p| (p.consumed, p.output.len(), p.done, p.full)) {
                Ok((consumed, made, done, full)) => {
                    self.lo += consumed;
                    len += made;
                    (done, full)
                }
                Err(InflateError::BufferFull) => (false, true),
                Err(e) => return Err(e.to_string()),
            };
            if len as u64 > size || (full && !done && out.len() == want) {
                return Err("an object is longer than it says".into());
            }
            if done {
                break;
            }
            if full {
                grow(&mut out, want).ok_or_else(too_large)?;
            }
        }
        if (len as u64) < size {
            return Err("an object is shorter than it says".into());
        }
        out.truncate(len);
        Ok(out)
    }

    /// The stream from here in pieces of bounded size; `sink` may end it early by returning false.
    pub(crate) fn pieces<E: From<Fault>>(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.window.resize(WINDOW, 0);
        loop {
            self.fill()?;
            let at_end = self.pos >= self.end;
            let p =
                match self.decoder.decompress(&self.buffer[self.lo..self.hi], &mut self.window[..], at_end) {
                    Ok(p) => p,
                    Err(InflateError::BufferFull) => {
                        if self.decoder.make_room(self.window) == 0 {
                            return Err(E::from("invalid compressed data".into()));
                        }
                        continue;
                    }
                    Err(e) => return Err(E::from(e.to_string())),
                };
            self.lo += p.consumed;
            let (done, full) = (p.done, p.full);
            if !p.output.is_empty() && !sink(p.output)? {
                self.decoder.reset();
                return Ok(());
            }
            if done {
                return Ok(());
            }
            if full {
                self.decoder.make_room(self.window);
            }
        }
    }
}

fn grow(out: &mut Vec<u8>, want: usize) -> Option<()> {
    let len = out.len().saturating_mul(2).min(want);
    out.try_reserve_exact(len - out.len()).ok()?;
    out.resize(len, 0);
    Some(())
}

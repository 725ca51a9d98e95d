//! A pack as a stream, for whoever has no store: every object whole, none of them in memory where it is large.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::{
    Error, Odb, Oid,
    deflate::{Deflater, PIECE},
    hash::{self, Sha1},
    object::Kind,
    pack,
};

impl Odb {
    /// Writes a pack with exactly these objects to `out`: version 2, no deltas, in the order given, each named once.
    /// `go_on` is told after each how many there are, and stops it with `false`.
    ///
    /// # Errors
    /// An object is missing or damaged, or `out` fails: what `out` received is void then.
    pub fn write_pack(
        &self,
        objects: &[Oid],
        out: &mut dyn Write,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let count =
            u32::try_from(objects.len()).map_err(|_| Error::invalid("too many objects for one pack"))?;
        let mut out = Summed { out, sum: Sha1::new() };
        let mut deflater = Deflater::new();
        out.put(&pack::header(count))?;
        for (n, oid) in objects.iter().enumerate() {
            let (kind, size) = match self.head(oid)? {
                (Some(kind), size) => (kind, size),
                (None, size) => (self.read(oid)?.0, size),
            };
            let mut head = [0; pack::ENTRY_HEADER_MAX];
            let len = pack::entry_header(kind, size, &mut head);
            out.put(&head[..len])?;
            let mut body =
                Body { out: &mut out, stream: deflater.stream(), piece: Vec::new(), ready: Vec::new() };
            let got = match kind {
                Kind::Blob => self.blob_to(oid, &mut body)?,
                // Every store has it, in no pack.
                _ if *oid == hash::empty_tree() => 0,
                _ => {
                    let (_, data) = self.read(oid)?;
                    body.write_all(&data).map_err(Error::io(Path::new("the pack")))?;
                    data.len() as u64
                }
            };
            if got != size {
                return Err(Error::invalid(format!("object {oid} has {got} bytes and says {size}")));
            }
            body.end()?;
            if !go_on(n as u64 + 1) {
                return Err(Error::Interrupted);
            }
        }
        let Summed { out, sum } = out;
        out.write_all(sum.finish()?.as_slice()).map_err(Error::io(Path::new("the pack")))
    }
}

/// Sums what passes.
struct Summed<'a> {
    out: &'a mut dyn Write,
    sum: Sha1,
}

impl Summed<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sum.update(bytes);
        self.out.write_all(bytes).map_err(Error::io(Path::new("the pack")))
    }
}

/// Compresses the content of one object as it comes.
struct Body<'a, 'b> {
    out: &'a mut Summed<'b>,
    stream: crate::deflate::Stream<'a>,
    piece: Vec<u8>,
    ready: Vec<u8>,
}

impl Body<'_, '_> {
    fn feed(&mut self, last: bool) -> Result<(), Error> {
        self.stream.feed(&self.piece, last, &mut self.ready);
        self.piece.clear();
        self.out.put(&self.ready)
    }

    fn end(mut self) -> Result<(), Error> {
        self.feed(true)
    }
}

impl Write for Body<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE {
            // More comes, so this was not the last.
            self.feed(false).map_err(io::Error::other)?;
        }
        let n = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! The one place that compresses: zlib streams at the speed of level 1, stored where the data does not compress.

use adler32furious::Adler32;
use sirocco::{
    Format,
    deflate::{Encoder, Flush, Level, compress_bound},
};

/// Data is judged and compressed in pieces of this size; a piece knows nothing of the one before it.
pub(crate) const PIECE: usize = 1 << 20;

/// CM 8, 32 KiB window, fastest level; a multiple of 31.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
const STORED_MAX: usize = 0xffff;
/// Flush markers, block headers, trailer.
const SLACK: usize = 64;

/// A reusable compressor, about 350 KB.
pub(crate) struct Deflater {
    encoder: Encoder,
    trial: Vec<u8>,
}

impl Deflater {
    pub(crate) fn new() -> Deflater {
        Deflater { encoder: Encoder::new(Format::Deflate, Level::FASTEST), trial: Vec::new() }
    }

    /// The most bytes that [`zlib`](Self::zlib) writes for `len` bytes.
    pub(crate) fn bound(len: usize) -> usize {
        ZLIB_HEADER.len() + (len / PIECE + 1) * piece_bound(len.min(PIECE)) + 4
    }

    /// A whole zlib stream into `out`, which has room for [`bound`](Self::bound) bytes. Returns how many were written.
    pub(crate) fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> usize {
        out[..2].copy_from_slice(&ZLIB_HEADER);
        let mut n = ZLIB_HEADER.len();
        let mut check = Adler32::new();
        let mut rest = data;
        loop {
            let (piece, tail) = rest.split_at(rest.len().min(PIECE));
            check.update(piece);
            n += self.piece(piece, &mut out[n..], tail.is_empty());
            if tail.is_empty() {
                break;
            }
            rest = tail;
        }
        out[n..n + 4].copy_from_slice(&check.checksum().to_be_bytes());
        n + 4
    }

    /// The blocks of one piece, ending on a byte; `last` ends the stream.
    fn piece(&mut self, data: &[u8], out: &mut [u8], last: bool) -> usize {
        if self.looks_incompressible(data) {
            return store(data, out, last);
        }
        self.encoder.reset();
        let flush = if last { Flush::Finish } else { Flush::Full };
        let p = self.encoder.compress(data, out, flush);
        if p.full || p.consumed != data.len() || p.done != last {
            // The bound was wrong; stored blocks always fit.
            return store(data, out, last);
        }
        p.output.len()
    }

    /// Judged by samples: first by how evenly the bytes are spread, then by compressing a little of it.
    fn looks_incompressible(&mut self, data: &[u8]) -> bool {
        const WINDOWS: usize = 8;
        const WINDOW: usize = 512;
        const SAMPLE: usize = WINDOWS * WINDOW;
        // Evenly spread bytes give about 69,600 here; text gives a million.
        const EVEN: u64 = 90_000;
        if data.len() < 2 * SAMPLE {
            return false;
        }
        let step = (data.len() - WINDOW) / (WINDOWS - 1);
        let mut counts = [0u32; 256];
        for w in 0..WINDOWS {
            for &b in &data[w * step..w * step + WINDOW] {
                counts[usize::from(b)] += 1;
            }
        }
        let squares: u64 = counts.iter().map(|&c| u64::from(c) * u64::from(c)).sum();
        if squares > EVEN {
            return false;
        }
        let middle = &data[data.len() / 2 - SAMPLE / 2..data.len() / 2 + SAMPLE / 2];
        self.trial.resize(compress_bound(Format::Deflate, SAMPLE) + SLACK, 0);
        self.encoder.reset();
        let p = self.encoder.compress(middle, &mut self.trial, Flush::Finish);
        p.output.len() * 100 > SAMPLE * 97
    }

    /// Starts a zlib stream that is fed piece by piece.
    pub(crate) fn stream(&mut self) -> Stream<'_> {
        Stream { deflater: self, check: Adler32::new(), started: false }
    }
}

/// A zlib stream in the making, for data that is never in memory as a whole.
pub(crate) struct Stream<'a> {
    deflater: &'a mut Deflater,
    check: Adler32,
    started: bool,
}

impl Stream<'_> {
    /// Appends at most [`PIECE`] bytes to the stream; `out` receives what to write next.
    pub(crate) fn feed(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) {
        out.clear();
        out.resize(ZLIB_HEADER.len() + piece_bound(piece.len()) + 4, 0);
        let mut n = 0;
        if !self.started {
            self.started = true;
            out[..2].copy_from_slice(&ZLIB_HEADER);
            n = ZLIB_HEADER.len();
        }
        self.check.update(piece);
        n += self.deflater.piece(piece, &mut out[n..], last);
        if last {
            out[n..n + 4].copy_from_slice(&self.check.checksum().to_be_bytes());
            n += 4;
        }
        out.truncate(n);
    }
}

fn piece_bound(len: usize) -> usize {
    (compress_bound(Format::Deflate, len)).max(len + 5 * (len / STORED_MAX + 1)) + SLACK
}

/// Stored blocks: five bytes of header each.
fn store(data: &[u8], out: &mut [u8], last: bool) -> usize {
    if data.is_empty() {
        out[..5].copy_from_slice(&[u8::from(last), 0, 0, 0xff, 0xff]);
        return 5;
    }
    let mut n = 0;
    let mut blocks = data.chunks(STORED_MAX).peekable();
    while let Some(block) = blocks.next() {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out[n] = u8::from(last && blocks.peek().is_none());
        out[n + 1..n + 3].copy_from_slice(&len.to_le_bytes());
        out[n + 3..n + 5].copy_from_slice(&(!len).to_le_bytes());
        out[n + 5..n + 5 + block.len()].copy_from_slice(block);
        n += 5 + block.len();
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(len: usize, mut seed: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed >> 32) as u8
            })
            .collect()
    }

    fn check(d: &mut Deflater, data: &[u8]) -> usize {
        let mut out = vec![0; Deflater::bound(data.len())];
        let n = d.zlib(data, &mut out);
        assert_eq!(sirocco::decompress(Format::Zlib, &out[..n], data.len()).expect("valid"), data);
        let mut streamed = Vec::new();
        let mut stream = d.stream();
        let mut part = Vec::new();
        let mut pieces = data.chunks(PIECE).peekable();
        if data.is_empty() {
            stream.feed(&[], true, &mut part);
            streamed.extend_from_slice(&part);
        }
        while let Some(piece) = pieces.next() {
            stream.feed(piece, pieces.peek().is_none(), &mut part);
            streamed.extend_from_slice(&part);
        }
        assert_eq!(streamed, &out[..n]);
        n
    }

    #[test]
    fn all_sizes_around_the_pieces_come_back() {
        let mut d = Deflater::new();
        for len in [0, 1, 4095, 8192, 65535, 65536, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 77] {
            let random = noise(len, 7 + len as u64);
            let n = check(&mut d, &random);
            assert!(n <= len + len / 1000 + 64, "{n} for {len} bytes of noise");
            let text: Vec<u8> = (0..len).map(|i| b"the quick brown fox "[i % 20]).collect();
            check(&mut d, &text);
            // Half and half: judged piece by piece.
            let mixed = [&random[..], &text[..]].concat();
            check(&mut d, &mixed);
        }
    }

    #[test]
    fn evenly_spread_but_regular_bytes_are_compressed() {
        let data: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        assert!(check(&mut Deflater::new(), &data) < 2_000);
    }

    #[test]
    fn stored_blocks_are_a_stream() {
        for len in [0, 1, STORED_MAX, STORED_MAX + 1, 200_000] {
            let data = noise(len, 3);
            let mut out = vec![0; piece_bound(len)];
            let n = store(&data, &mut out, true);
            assert_eq!(sirocco::decompress(Format::Deflate, &out[..n], len).expect("valid"), data);
            let n = store(&data, &mut out, false);
            out.resize(n, 0);
            out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
            assert_eq!(sirocco::decompress(Format::Deflate, &out, len).expect("valid"), data);
        }
    }

    proptest! {
        #[test]
        fn anything_comes_back(data in proptest::collection::vec(any::<u8>(), 0..20_000), repeat in 1usize..4) {
            check(&mut Deflater::new(), &data.repeat(repeat));
        }
    }
}

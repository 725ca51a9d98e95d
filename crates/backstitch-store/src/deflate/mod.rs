//! The one place that compresses: zlib streams at the highest speed, stored where the data does not compress.

mod bits;
mod codes;
mod huffman;
mod quick;
mod token;

use adler32furious::Adler32;

use self::quick::Quick;

/// Data is judged and compressed in pieces of this size; a piece knows nothing of the one before it.
pub(crate) const PIECE: usize = 1 << 20;

/// CM 8, 32 KiB window, fastest level; a multiple of 31.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
const STORED_MAX: usize = 0xffff;
/// Flush markers, block headers, trailer.
const SLACK: usize = 64;

/// A whole zlib stream of `data`, as objects and git's binary patches hold it.
pub fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; Deflater::bound(data.len())];
    let n = Deflater::new().zlib(data, &mut out);
    out.truncate(n);
    out
}

/// A reusable compressor, about 350 KB.
pub(crate) struct Deflater {
    encoder: Quick,
    trial: Vec<u8>,
}

impl Deflater {
    pub(crate) fn new() -> Deflater {
        Deflater { encoder: Quick::new(), trial: Vec::new() }
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
        self.encoder.compress(data, out, last)
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
        self.trial.resize(Quick::bound(SAMPLE), 0);
        self.encoder.compress(middle, &mut self.trial, true) * 100 > SAMPLE * 97
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
    Quick::bound(len).max(len + 5 * (len / STORED_MAX + 1))
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
    use backstitch_testkit::generate::noise;
    use proptest::prelude::*;

    fn check(d: &mut Deflater, data: &[u8]) -> usize {
        let mut out = vec![0; Deflater::bound(data.len())];
        let n = d.zlib(data, &mut out);
        assert_eq!(sirocco::decompress(sirocco::Format::Zlib, &out[..n], data.len()).expect("valid"), data);
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
        assert_eq!(sirocco::decompress(sirocco::Format::Zlib, &streamed, data.len()).expect("valid"), data);
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
            assert_eq!(sirocco::decompress(sirocco::Format::Deflate, &out[..n], len).expect("valid"), data);
            let n = store(&data, &mut out, false);
            out.resize(n, 0);
            out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
            assert_eq!(sirocco::decompress(sirocco::Format::Deflate, &out, len).expect("valid"), data);
        }
    }

    /// Counts like Fibonacci's numbers give the deepest trees: codes must be cut at 15 bits, and at 7 in the header.
    #[test]
    fn the_deepest_codes_are_cut() {
        let mut counts = vec![1usize, 1];
        while counts.len() < 22 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        for symbols in [8, 16, 17, 19, 22] {
            let mut data: Vec<u8> = Vec::new();
            for (byte, &n) in counts[..symbols].iter().enumerate() {
                data.extend(std::iter::repeat_n(byte as u8 * 7, n));
            }
            // Shuffled, so that matches do not swallow the counts.
            let order = noise(data.len() * 8, 11);
            for i in (1..data.len()).rev() {
                let r = u64::from_le_bytes(order[i * 8..i * 8 + 8].try_into().expect("eight"));
                data.swap(i, (r % (i as u64 + 1)) as usize);
            }
            check(&mut Deflater::new(), &data);
        }
    }

    /// A stream is whole by itself, whichever codes were kept when it was written.
    #[test]
    fn what_was_before_changes_nothing_that_is_read() {
        let text = |words: &[u8]| -> Vec<u8> {
            noise(30_000, 9).iter().map(|&b| words[usize::from(b) % words.len()]).collect()
        };
        let (a, b, c) = (text(b"etaoin shrdlu"), text(b"0123456789abcdef\n"), noise(3_000, 4));
        let mut d = Deflater::new();
        for _ in 0..3 {
            for data in [&a, &b, &c, &[&a[..], &b, &c].concat()] {
                check(&mut d, data);
            }
        }
    }

    /// Text as it is stored most: smaller than what the library at level 1 makes of it, and 6 %.
    #[test]
    fn source_code_becomes_small() {
        let text = [
            include_str!("mod.rs"),
            include_str!("quick.rs"),
            include_str!("../verify.rs"),
            include_str!("../refs.rs"),
        ];
        let (mut ours, mut theirs) = (0, 0);
        for text in text {
            ours += check(&mut Deflater::new(), text.as_bytes());
            theirs +=
                sirocco::compress(sirocco::Format::Zlib, sirocco::deflate::Level::FASTEST, text.as_bytes())
                    .len();
        }
        assert!(ours * 100 < theirs * 106, "{ours} against {theirs}");
    }

    /// What deflate is made of: noise, runs, and copies from near, from the window's edge and from behind it.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = (0u8..5, 1usize..40_000, any::<u64>());
        proptest::collection::vec(piece, 1..12).prop_map(|pieces| {
            let mut data: Vec<u8> = Vec::new();
            for (kind, len, seed) in pieces {
                let seed = seed | 1;
                match kind {
                    0 => data.extend(noise(len.min(3_000), seed)),
                    1 => data.extend(std::iter::repeat_n(seed as u8, len)),
                    2 => data.extend(noise(len, seed).iter().map(|b| b"etaoin shrdlu"[usize::from(*b) % 13])),
                    3 => data.extend(noise(len.min(9_000), seed).iter().map(|b| b & 0x7f)),
                    _ if data.is_empty() => {}
                    _ => {
                        let back = match seed % 3 {
                            0 => 1 + seed as usize % 40,
                            1 => 32_760 + seed as usize % 16,
                            _ => seed as usize % 70_000,
                        };
                        let from = data.len() - back.clamp(1, data.len());
                        for i in 0..len.min(700) {
                            data.push(data[from + i]);
                        }
                    }
                }
            }
            data
        })
    }

    proptest! {
        #[test]
        fn what_deflate_is_made_of_comes_back(data in pieces()) {
            check(&mut Deflater::new(), &data);
        }

        #[test]
        fn anything_comes_back(data in proptest::collection::vec(any::<u8>(), 0..20_000), repeat in 1usize..4) {
            check(&mut Deflater::new(), &data.repeat(repeat));
        }
    }
}

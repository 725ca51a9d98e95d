//! Deflate in one pass over the bytes: one earlier position per hash is tried, two positions at a time, and each block
//! gets Huffman codes of its own, those of a block before, the fixed ones, or none at all.
//!
//! Why our own: of the libraries that are permitted, kept and free of C, the fastest spends half of a first checkpoint
//! here. This one takes about two thirds of its time for 7 % more bytes; `deflate`'s tests hold it against that
//! library's decoder.

use super::{
    bits::Bits,
    codes::Codes,
    huffman::{DISTANCES, LITERALS},
    token::{LENGTHS, MAX_MATCH, Token, slot},
};

const HASH_BITS: u32 = 13;
/// Bytes that go into the hash. A match of fewer is not looked for, and costs more time than it saves bytes.
const HASHED: u32 = 6;
const WINDOW: usize = 1 << 15;
const MIN_MATCH: usize = 4;
/// So close to the end of the data everything is a literal, so that whole words can be loaded.
const TAIL: usize = 18;
/// A block covers at most this many bytes: one stored block can hold it, and its tokens fit.
const BLOCK: usize = 60_000;
/// Room for the tokens of a block; a power of two, so that an index is masked and not checked.
const TOKENS: usize = 1 << 15;

/// One encoder, about 350 KB, for one stream after the other. What it writes depends on what it wrote before, for it may
/// use the codes of earlier blocks; what is read from it does not.
pub(super) struct Quick {
    /// Where bytes of a hash were last: 16 bits of the hash, 16 of the position.
    table: Box<[u32; 1 << HASH_BITS]>,
    tokens: Box<[Token; TOKENS]>,
    /// How often each symbol occurs, in two halves that are added, because neighbours are often equal.
    symbols: Box<[[u32; Token::SYMBOLS]; 2]>,
    slots: [u32; 32],
    codes: Codes,
}

impl Quick {
    pub(super) fn new() -> Quick {
        Quick {
            table: vec![0; 1 << HASH_BITS].into_boxed_slice().try_into().expect("that many"),
            tokens: vec![Token::default(); TOKENS].into_boxed_slice().try_into().expect("that many"),
            symbols: Box::new([[0; Token::SYMBOLS]; 2]),
            slots: [0; 32],
            codes: Codes::new(),
        }
    }

    /// The most bytes that [`compress`](Self::compress) writes for `len`: everything stored, and words written ahead.
    pub(super) fn bound(len: usize) -> usize {
        len + 6 * (len / BLOCK + 1) + 5 + super::SLACK
    }

    /// Writes `data` as whole blocks and says how many bytes they take; `last` ends the stream, otherwise an empty
    /// stored block ends it on a byte. `out` has room for [`bound`](Self::bound) bytes.
    pub(super) fn compress(&mut self, data: &[u8], out: &mut [u8], last: bool) -> usize {
        self.table.fill(0);
        let mut bits = Bits::new(out);
        let mut start = 0;
        loop {
            let (end, count) = self.parse(data, start);
            let ends = end == data.len();
            self.block(&mut bits, &data[start..end], count, ends && last);
            start = end;
            if ends {
                break;
            }
        }
        if !last {
            bits.stored(&[], false);
        }
        bits.finish()
    }

    /// Turns the next block's bytes, from `start`, into tokens; returns where it ends and how many there are.
    fn parse(&mut self, data: &[u8], start: usize) -> (usize, usize) {
        let stop = data.len().min(start + BLOCK);
        // A match that begins before `limit` has room for more than the shortest, and 16 bytes can be loaded there.
        let limit = stop.saturating_sub(2 * MIN_MATCH).min(data.len().saturating_sub(TAIL));
        let Quick { table, tokens, symbols, slots, .. } = self;
        let [even, odd] = &mut **symbols;
        even.fill(0);
        odd.fill(0);
        slots.fill(0);
        let mut count = 0;
        let mut pos = start;
        while pos < limit {
            let word = load64(data, pos);
            let (h0, new0) = entry(word, pos);
            let (h1, new1) = entry(word >> 8, pos + 1);
            let (old0, old1) = (table[h0], table[h1]);
            table[h0] = new0;
            table[h1] = new1;
            let (d0, d1) = (apart(new0, old0), apart(new1, old1));
            let reach = WINDOW.min(pos);
            let hit0 = (d0.wrapping_sub(1) < reach) & same_hash(new0, old0);
            let hit1 = (d1.wrapping_sub(1) < reach) & same_hash(new1, old1);
            let (first, second) = (word as u8, (word >> 8) as u8);
            let skip = usize::from(!hit0);
            let (at, distance) = (pos + skip, if hit0 { d0 } else { d1 });
            let length = match hit0 | hit1 {
                true => common(data, at, distance, stop),
                false => 0,
            };
            if length < MIN_MATCH {
                even[usize::from(first)] += 1;
                odd[usize::from(second)] += 1;
                tokens[count % TOKENS] = Token::literals(first, second);
                count += 1;
                pos += 2;
                continue;
            }
            even[usize::from(first)] += skip as u32;
            odd[(Token::LENGTH + length) % odd.len()] += 1;
            let far = (distance - 1) as u32;
            let slot = slot(far);
            slots[slot as usize % 32] += 1;
            let before = if hit0 { Token::NOTHING } else { u64::from(first) };
            tokens[count % TOKENS] = Token::copy(before, length, slot, far);
            count += 1;
            pos = at + length;
            if pos < limit {
                let word = load64(data, pos - 2);
                let (h, new) = entry(word, pos - 2);
                table[h] = new;
                let (h, new) = entry(word >> 8, pos - 1);
                table[h] = new;
            }
        }
        // A match ends at most at `stop`, and so does a pair.
        for &byte in &data[pos..stop] {
            tokens[count % TOKENS] = Token::literal(byte);
            even[usize::from(byte)] += 1;
            count += 1;
        }
        (stop, count)
    }

    /// Writes the tokens of `data`, or `data` itself where that is shorter.
    fn block(&mut self, bits: &mut Bits<'_>, data: &[u8], count: usize, last: bool) {
        let mut counts = [0; LITERALS + DISTANCES];
        let [even, odd] = &*self.symbols;
        for (sum, (a, b)) in counts.iter_mut().zip(even.iter().zip(odd)).take(256) {
            *sum = a + b;
        }
        counts[256] = 1;
        for (length, told) in LENGTHS.iter().enumerate().skip(3) {
            counts[usize::from(told.symbol)] += odd[Token::LENGTH + length];
        }
        counts[LITERALS..].copy_from_slice(&self.slots[..DISTANCES]);
        let coded = self.codes.choose(&counts);
        if coded.cost(&counts) > 8 * (data.len() as u64 + 4) {
            return bits.stored(data, last);
        }
        coded.begin(bits, last);
        for token in &self.tokens[..count] {
            token.write(bits, coded);
        }
        bits.put((coded.end & 0xff_ffff).into(), coded.end >> 24);
        bits.flush();
    }
}

/// The place in the table for the bytes at `pos`, and what stands there then.
#[inline(always)]
fn entry(word: u64, pos: usize) -> (usize, u32) {
    let product = (word << (64 - 8 * HASHED)).wrapping_mul(0x9e37_79b1_85eb_ca87);
    ((product >> (64 - HASH_BITS)) as usize, ((product >> 32) as u32) << 16 | u32::from(pos as u16))
}

/// How far apart two entries are, if less than 64 KiB. A wrong answer costs time: bytes are compared.
#[inline(always)]
fn apart(new: u32, old: u32) -> usize {
    usize::from((new as u16).wrapping_sub(old as u16))
}

#[inline(always)]
fn same_hash(new: u32, old: u32) -> bool {
    new ^ old < 1 << 16
}

/// How many bytes at `at` are as those `distance` before, up to `stop` and the longest match. 16 can be loaded at `at`.
#[inline(always)]
fn common(data: &[u8], at: usize, distance: usize, stop: usize) -> usize {
    let most = (stop - at).min(MAX_MATCH);
    let differ = load128(data, at) ^ load128(data, at - distance);
    if differ != 0 {
        return ((differ.trailing_zeros() / 8) as usize).min(most);
    }
    let here = &data[at..at + most];
    let there = &data[at - distance..at - distance + most];
    let mut n = 16.min(most);
    while n + 8 <= most {
        let differ = load64(here, n) ^ load64(there, n);
        if differ != 0 {
            return n + (differ.trailing_zeros() / 8) as usize;
        }
        n += 8;
    }
    while n < most && here[n] == there[n] {
        n += 1;
    }
    n
}

#[inline(always)]
fn load64(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*data[at..].first_chunk().expect("eight bytes"))
}

#[inline(always)]
fn load128(data: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(*data[at..].first_chunk().expect("sixteen bytes"))
}

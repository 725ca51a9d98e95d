//! Deflate in one pass over the bytes: one earlier position per hash is tried, two positions at a time, and each block
//! gets its own Huffman codes, the fixed ones, or none at all, whichever is shortest.
//!
//! Why our own: of the libraries that are permitted, kept and free of C, the fastest spends half of a first checkpoint
//! here. This one takes about three quarters of its time for 4 % more bytes; `deflate`'s tests hold it against that
//! library's decoder.

use super::{
    bits::Bits,
    huffman::{Code, DISTANCES, LITERALS},
};

const HASH_BITS: u32 = 13;
/// Bytes that go into the hash. A match of fewer is not looked for, and costs more time than it saves bytes.
const HASHED: u32 = 6;
const WINDOW: usize = 1 << 15;
const MIN_MATCH: usize = 4;
const MAX_MATCH: usize = 258;
/// So close to the end of the data everything is a literal, so that whole words can be loaded.
const TAIL: usize = 18;
/// A block covers at most this many bytes: one stored block can hold it, and its tokens fit.
const BLOCK: usize = 60_000;
/// Room for the tokens of a block; a power of two, so that an index is masked and not checked.
const TOKENS: usize = 1 << 15;

/// A token is what one look at two positions gave: two literals, or a match with or without a literal before it. 10 bits
/// are the first literal or [`NOTHING`], 10 the second or 256 + the length of the match, 5 the slot of its distance, and
/// from bit 32 the distance - 1.
const SYMBOL: u64 = 0x3ff;
const SECOND_SHIFT: u32 = 10;
const SLOT_SHIFT: u32 = 20;
const DISTANCE_SHIFT: u32 = 32;
const LENGTH: usize = 256;
/// The symbol that takes no bits.
const NOTHING: u64 = SYMBOL;
/// The slot of a literal: no code, no bits.
const NO_DISTANCE: u64 = 31 << SLOT_SHIFT;
/// The longest codes: a token fits into what can be written at once, 12 + 12 + 5 + 14 + 13 bits.
const LITERAL_BITS: usize = 12;
const DISTANCE_BITS: usize = 14;

/// One encoder, about 300 KB, for one stream after the other. What it writes depends on the data alone.
pub(super) struct Quick {
    /// Where bytes of a hash were last: 16 bits of the hash, 16 of the position.
    table: Box<[u32; 1 << HASH_BITS]>,
    tokens: Box<[u64; TOKENS]>,
    /// How often each symbol occurs, in two halves that are added, because neighbours are often equal.
    symbols: Box<[[u32; SYMBOL as usize + 1]; 2]>,
    slots: [u32; 32],
}

impl Quick {
    pub(super) fn new() -> Quick {
        Quick {
            table: Box::new([0; 1 << HASH_BITS]),
            tokens: vec![0; TOKENS].into_boxed_slice().try_into().expect("that many"),
            symbols: Box::new([[0; SYMBOL as usize + 1]; 2]),
            slots: [0; 32],
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
        let Quick { table, tokens, symbols, slots } = self;
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
                tokens[count % TOKENS] = u64::from(first) | u64::from(second) << SECOND_SHIFT | NO_DISTANCE;
                count += 1;
                pos += 2;
                continue;
            }
            even[usize::from(first)] += skip as u32;
            odd[(LENGTH + length) % odd.len()] += 1;
            let far = (distance - 1) as u32;
            let slot = slot(far);
            slots[slot as usize % 32] += 1;
            let literal = if hit0 { NOTHING } else { u64::from(first) };
            tokens[count % TOKENS] = literal
                | ((LENGTH + length) as u64) << SECOND_SHIFT
                | u64::from(slot) << SLOT_SHIFT
                | u64::from(far) << DISTANCE_SHIFT;
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
            tokens[count % TOKENS] = u64::from(byte) | NOTHING << SECOND_SHIFT | NO_DISTANCE;
            even[usize::from(byte)] += 1;
            count += 1;
        }
        (stop, count)
    }

    /// Writes the tokens of `data` in the shortest of the three ways.
    fn block(&self, bits: &mut Bits<'_>, data: &[u8], count: usize, last: bool) {
        let mut literals = [0u32; LITERALS];
        let [even, odd] = &*self.symbols;
        for (sum, (a, b)) in literals.iter_mut().zip(even.iter().zip(odd)).take(256) {
            *sum = a + b;
        }
        for (length, n) in odd.iter().enumerate().skip(LENGTH + 3).take(MAX_MATCH - 2) {
            literals[257 + usize::from(LENGTHS[length - LENGTH].slot)] += n;
        }
        literals[256] = 1;
        let distances: &[u32; DISTANCES] = self.slots.first_chunk().expect("30 of 32");
        let own = (Code::new(&literals, LITERAL_BITS), Code::new(distances, DISTANCE_BITS));
        let extra: u64 = extra_bits(&literals, distances);
        let header = super::huffman::Header::new(&own.0, &own.1);
        let own_cost = header.cost() + own.0.cost(&literals) + own.1.cost(distances) + extra;
        let fixed_cost = FIXED_LITERALS.cost(&literals) + FIXED_DISTANCES.cost(distances) + extra;
        if own_cost.min(fixed_cost) > 8 * (data.len() as u64 + 4) {
            return bits.stored(data, last);
        }
        if own_cost < fixed_cost {
            bits.put(u64::from(last) | 2 << 1, 3);
            header.write(bits);
            self.write(bits, &own.0, &own.1, count);
        } else {
            bits.put(u64::from(last) | 1 << 1, 3);
            bits.flush();
            self.write(bits, &FIXED_LITERALS, &FIXED_DISTANCES, count);
        }
    }

    fn write(
        &self,
        bits: &mut Bits<'_>,
        literals: &Code<LITERALS>,
        distances: &Code<DISTANCES>,
        count: usize,
    ) {
        // Per symbol all its bits (at most 20) and from bit 24 how many; per slot its code, how long that is from bit 16,
        // and how many more bits follow from bit 24.
        let mut symbols = [0u32; SYMBOL as usize + 1];
        for (byte, whole) in symbols.iter_mut().enumerate().take(256) {
            let (code, n) = literals.of(byte);
            *whole = code | n << 24;
        }
        for (length, whole) in symbols[LENGTH..].iter_mut().enumerate().take(MAX_MATCH + 1).skip(3) {
            let Length { slot, extra, base } = LENGTHS[length];
            let (code, n) = literals.of(257 + usize::from(slot));
            *whole = code | (length as u32 - u32::from(base)) << n | (n + u32::from(extra)) << 24;
        }
        let mut slots = [0u32; 32];
        for (slot, whole) in slots.iter_mut().enumerate().take(DISTANCES) {
            let (code, n) = distances.of(slot);
            *whole = code | n << 16 | more(slot as u32) << 24;
        }
        for token in &self.tokens[..count] {
            let first = symbols[(token & SYMBOL) as usize];
            let second = symbols[(token >> SECOND_SHIFT & SYMBOL) as usize];
            let slot = slots[(token >> SLOT_SHIFT) as usize % 32];
            let (length, more) = (slot >> 16 & 15, slot >> 24 & 15);
            let rest = (token >> DISTANCE_SHIFT) as u32 & ((1 << more) - 1);
            let distance = u64::from(slot & 0xffff) | u64::from(rest) << length;
            let match_or_literal = u64::from(second & 0xff_ffff) | distance << (second >> 24 & 31);
            bits.put(
                u64::from(first & 0xff_ffff) | match_or_literal << (first >> 24 & 31),
                (first >> 24) + (second >> 24) + length + more,
            );
            bits.flush();
        }
        let (code, n) = literals.of(256);
        bits.put(code.into(), n);
        bits.flush();
    }
}

static FIXED_LITERALS: Code<LITERALS> = Code::fixed_literals();
static FIXED_DISTANCES: Code<DISTANCES> = Code::fixed_distances();

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

/// The slot of a distance, less one.
#[inline(always)]
fn slot(far: u32) -> u32 {
    if far < 2 {
        return far;
    }
    let top = far.ilog2();
    2 * top + (far >> (top - 1) & 1)
}

/// The bits that follow the code of a slot.
#[inline(always)]
fn more(slot: u32) -> u32 {
    (slot / 2).saturating_sub(1)
}

#[derive(Clone, Copy)]
struct Length {
    slot: u8,
    extra: u8,
    base: u16,
}

/// By length, from 3 (RFC 1951, 3.2.5).
const LENGTHS: [Length; MAX_MATCH + 1] = {
    let mut table = [Length { slot: 0, extra: 0, base: 0 }; MAX_MATCH + 1];
    let (mut slot, mut base) = (0, 3);
    while slot < 28 {
        let extra = if slot < 8 { 0 } else { slot / 4 - 1 };
        let mut n = 0;
        while n < 1 << extra && base + n <= MAX_MATCH {
            table[base + n] = Length { slot: slot as u8, extra: extra as u8, base: base as u16 };
            n += 1;
        }
        base += 1 << extra;
        slot += 1;
    }
    table[MAX_MATCH] = Length { slot: 28, extra: 0, base: MAX_MATCH as u16 };
    table
};

fn extra_bits(literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) -> u64 {
    let lengths = literals[257..].iter().enumerate();
    let lengths = lengths
        .map(|(slot, &n)| u64::from(n) * if (8..28).contains(&slot) { slot as u64 / 4 - 1 } else { 0 });
    let distances =
        distances.iter().enumerate().map(|(slot, &n)| u64::from(n) * u64::from(more(slot as u32)));
    lengths.sum::<u64>() + distances.sum::<u64>()
}

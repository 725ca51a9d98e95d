//! Codes that are ready to write blocks with, and which of them a block gets.
//!
//! Building a code and telling it takes a fifth of the time that a short file takes, and the next file of a folder is
//! mostly like the last: so the last few codes are kept, and a block takes one of them if its own would be hardly shorter.

use super::{
    bits::Bits,
    huffman::{Code, DISTANCES, Header, LITERALS},
    token::{LENGTHS, Token, more},
};

/// The longest codes: a token fits into what can be written at once, 12 + 12 + 5 + 14 + 13 bits.
const LITERAL_BITS: usize = 12;
const DISTANCE_BITS: usize = 14;

/// How often each literal, length and slot of a distance occurs in a block: below 2^16 each and together.
pub(super) type Counts = [u32; LITERALS + DISTANCES];

/// So many codes are kept beside the fixed one. More find a match more often, and cost more to ask.
const KEPT: usize = 8;
/// A kept code may take an eighth more than what no code of the block's own could go below.
const SLACK_SHIFT: u32 = 3;
/// About what telling a code takes, in bits.
const TOLD: u32 = 500;
/// The price of a symbol that a code has not: more than any block takes.
const ABSENT: u32 = u32::MAX;

/// Two codes, laid out for writing tokens.
pub(super) struct Coded {
    /// By literal or 256 + length, all the bits (at most 20), and from bit 24 how many.
    pub(super) symbols: [u32; Token::SYMBOLS],
    /// By slot of a distance, its code; from bit 16 how long that is, and from bit 24 how many bits more follow.
    pub(super) slots: [u32; 32],
    /// The end of a block, likewise.
    pub(super) end: u32,
    /// In bits, by symbol.
    prices: Counts,
    /// What tells the type of the block and the codes, in words of 32 bits.
    header: Vec<u32>,
    header_bits: u32,
}

impl Coded {
    fn fixed() -> Coded {
        let mut header = [0; 16];
        let mut bits = Bits::new(&mut header);
        bits.put(1, 2);
        Coded::laid_out(&Code::fixed_literals(), &Code::fixed_distances(), 2, bits)
    }

    /// The codes for such counts, in which what a like block may contain has a code too.
    fn new(counts: &Counts) -> Coded {
        let (literals, distances) = counts.split_at(LITERALS);
        let mut literals: [u32; LITERALS] = literals.try_into().expect("that many");
        let mut distances: [u32; DISTANCES] = distances.try_into().expect("that many");
        let text = literals.iter_mut().enumerate().filter(|(at, _)| matches!(at, 9 | 10 | 32..=126 | 256..));
        for n in text.map(|(_, n)| n).chain(&mut distances[2..]) {
            *n = (*n).max(1);
        }
        let (literals, distances) =
            (Code::new(&literals, LITERAL_BITS), Code::new(&distances, DISTANCE_BITS));
        let header = Header::new(&literals, &distances);
        let mut out = [0; 4 * (LITERALS + DISTANCES)];
        let mut bits = Bits::new(&mut out);
        bits.put(2, 2);
        header.write(&mut bits);
        Coded::laid_out(&literals, &distances, 2 + header.cost(), bits)
    }

    fn laid_out(
        literals: &Code<LITERALS>,
        distances: &Code<DISTANCES>,
        header_bits: u32,
        header: Bits<'_>,
    ) -> Coded {
        let mut symbols = [0; Token::SYMBOLS];
        let mut prices = [ABSENT; LITERALS + DISTANCES];
        let price = |n: u32, more: u32| if n == 0 { ABSENT } else { n + more };
        for (byte, whole) in symbols.iter_mut().enumerate().take(256) {
            let (code, n) = literals.of(byte);
            *whole = code | n << 24;
            prices[byte] = price(n, 0);
        }
        let (code, n) = literals.of(256);
        let end = code | n << 24;
        prices[256] = n;
        for (length, told) in LENGTHS.iter().enumerate().skip(3) {
            let (code, n) = literals.of(told.symbol.into());
            let more = u32::from(told.more);
            symbols[Token::LENGTH + length] =
                code | (length as u32 - u32::from(told.base)) << n | (n + more) << 24;
            prices[usize::from(told.symbol)] = price(n, more);
        }
        let mut slots = [0; 32];
        for (slot, whole) in slots.iter_mut().enumerate().take(DISTANCES) {
            let (code, n) = distances.of(slot);
            let behind = more(slot as u32);
            *whole = code | n << 16 | behind << 24;
            prices[LITERALS + slot] = price(n, behind);
        }
        let header = header.finished().chunks(4).map(|word| {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            u32::from_le_bytes(bytes)
        });
        Coded { symbols, slots, end, prices, header: header.collect(), header_bits }
    }

    /// What a block of these symbols takes, in bits, but for the one that says whether it is the last.
    pub(super) fn cost(&self, counts: &Counts) -> u64 {
        let symbols = counts.iter().zip(&self.prices).map(|(&n, &price)| u64::from(n) * u64::from(price));
        u64::from(self.header_bits) + symbols.sum::<u64>()
    }

    /// Begins a block.
    pub(super) fn begin(&self, bits: &mut Bits<'_>, last: bool) {
        bits.put(last.into(), 1);
        let mut left = self.header_bits;
        for &word in &self.header {
            let n = left.min(32);
            bits.put(word.into(), n);
            bits.flush();
            left -= n;
        }
    }
}

/// The fixed code and those that were built last.
pub(super) struct Codes {
    /// The fixed one stands first.
    known: Vec<Coded>,
    /// Which one goes next.
    oldest: usize,
}

impl Codes {
    pub(super) fn new() -> Codes {
        Codes { known: vec![Coded::fixed()], oldest: 0 }
    }

    /// A good code for these counts.
    pub(super) fn choose(&mut self, counts: &Counts) -> &Coded {
        let least = least(counts);
        let (at, cost) = cheapest(&self.known, counts);
        if cost <= least + (least >> SLACK_SHIFT) {
            return &self.known[at];
        }
        let made = Coded::new(counts);
        if made.cost(counts) >= cost {
            return &self.known[at];
        }
        if self.known.len() <= KEPT {
            self.known.push(made);
            return &self.known[self.known.len() - 1];
        }
        self.oldest = self.oldest % KEPT + 1;
        self.known[self.oldest] = made;
        &self.known[self.oldest]
    }
}

fn cheapest(known: &[Coded], counts: &Counts) -> (usize, u64) {
    let costs = known.iter().map(|code| code.cost(counts)).enumerate();
    costs.min_by_key(|&(_, cost)| cost).unwrap_or((0, u64::MAX))
}

/// About what the best code would take, in bits: what the counts weigh, the bits behind symbols, and telling it.
fn least(counts: &Counts) -> u64 {
    let weight = |counts: &[u32]| {
        let all: u32 = counts.iter().sum();
        n_log2_n(all).saturating_sub(counts.iter().map(|&n| n_log2_n(n)).sum())
    };
    let (literals, distances) = counts.split_at(LITERALS);
    let behind: u32 = counts.iter().zip(&BEHIND).map(|(n, bits)| n * bits).sum();
    u64::from(((weight(literals) + weight(distances)) >> FRACTION) + behind + TOLD)
}

/// Bits behind the point in what follows.
const FRACTION: u32 = 8;

/// For n below 2^16; a power of two times a number of 8 bits is exact up to the fraction, others are rounded down.
fn n_log2_n(n: u32) -> u32 {
    let shift = (n | 1).ilog2().saturating_sub(7);
    n * (LOG2[(n >> shift) as usize] + (shift << FRACTION))
}

/// Of numbers of 8 bits, the logarithm.
static LOG2: [u32; 256] = {
    let mut table = [0; 256];
    let mut n: u32 = 2;
    while n < 256 {
        let whole = n.ilog2();
        let (mut log, mut x) = (whole, ((n as u64) << 31) >> whole);
        let mut bit = 0;
        // Squaring doubles the logarithm.
        while bit < FRACTION {
            x = (x * x) >> 31;
            let above = x >> 32;
            x >>= above;
            log = log << 1 | above as u32;
            bit += 1;
        }
        table[n as usize] = log;
        n += 1;
    }
    table
};

/// The bits behind each symbol.
static BEHIND: Counts = {
    let mut table = [0; LITERALS + DISTANCES];
    let mut slot = 8;
    while slot < 28 {
        table[257 + slot] = slot as u32 / 4 - 1;
        slot += 1;
    }
    let mut slot = 0;
    while slot < DISTANCES {
        table[LITERALS + slot] = more(slot as u32);
        slot += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_rounded_down() {
        for n in 2..1u32 << 16 {
            let exact = f64::from(n) * f64::from(n).log2();
            let ours = f64::from(n_log2_n(n)) / f64::from(1 << FRACTION);
            assert!(ours <= exact && ours >= exact - f64::from(n) * 0.02, "{n}: {ours}, not {exact}");
        }
    }

    #[test]
    fn a_like_block_takes_the_code_of_the_last_one_and_another_its_own() {
        let mut text = [0; LITERALS + DISTANCES];
        for (at, n) in text[97..123].iter_mut().enumerate() {
            *n = 40 + 11 * at as u32;
        }
        text[256] = 1;
        let mut codes = Codes::new();
        let first = codes.choose(&text).cost(&text);
        assert!(first < codes.known[0].cost(&text) && codes.known.len() == 2);
        let mut like = text;
        like[98] += 30;
        like[usize::from(b'~')] += 1;
        codes.choose(&like);
        assert_eq!(codes.known.len(), 2, "nothing was built");
        let mut other = [0; LITERALS + DISTANCES];
        other[200..256].fill(90);
        other[256] = 1;
        let cost = codes.choose(&other).cost(&other);
        assert!(cost < ABSENT.into() && codes.known.len() == 3);
    }

    #[test]
    fn the_oldest_goes() {
        let mut codes = Codes::new();
        for at in 0..5 * KEPT {
            let mut counts = [0; LITERALS + DISTANCES];
            counts[128 + at..133 + at].fill(1_000);
            counts[256] = 1;
            let cost = codes.choose(&counts).cost(&counts);
            assert!(cost < 5_000 * 4, "{cost}");
            assert!(codes.known.len() <= KEPT + 1);
        }
        assert_eq!(codes.known[0].header_bits, 2, "the fixed one stays");
    }
}

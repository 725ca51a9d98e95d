//! Prefix codes for a block, and how a block announces them (RFC 1951, 3.2).

use super::bits::Bits;

/// Literals, the end of a block, lengths.
pub(super) const LITERALS: usize = 286;
/// Slots of distances.
pub(super) const DISTANCES: usize = 30;
/// Symbols in which lengths of codes are told.
const META: usize = 19;

/// A complete prefix code over `N` symbols; those that do not occur have none.
pub(super) struct Code<const N: usize> {
    lengths: [u8; N],
    /// As they are written: the first bit of the code lowest.
    codes: [u16; N],
}

impl<const N: usize> Code<N> {
    /// The shortest code of at most `max` bits for these counts, which sum up to less than 2^16 (nearly the shortest where
    /// `max` binds). There are always two codes at least, which is what decoders like.
    pub(super) fn new(counts: &[u32; N], max: usize) -> Code<N> {
        let mut lengths = [0u8; N];
        let mut leaves = [0u32; N];
        let mut used = 0;
        for (symbol, &count) in counts.iter().enumerate() {
            if count != 0 {
                leaves[used] = count << 9 | symbol as u32;
                used += 1;
            }
        }
        let leaves = &mut leaves[..used];
        match leaves {
            [] => lengths[..2].fill(1),
            [only] => {
                let only = (*only & 511) as usize;
                lengths[only] = 1;
                lengths[usize::from(only == 0)] = 1;
            }
            _ => {
                sort(leaves);
                let mut at = leaves.iter();
                for (length, n) in per_length(leaves, max).into_iter().enumerate().rev() {
                    for leaf in at.by_ref().take(n as usize) {
                        lengths[(leaf & 511) as usize] = length as u8;
                    }
                }
            }
        }
        Code::of_lengths(lengths)
    }

    /// The code that lengths alone determine (RFC 1951, 3.2.2).
    const fn of_lengths(lengths: [u8; N]) -> Code<N> {
        let mut next = [0u32; 17];
        let mut i = 0;
        while i < N {
            next[lengths[i] as usize + 1] += 1;
            i += 1;
        }
        next[1] = 0;
        let mut length = 1;
        while length < 16 {
            // Until here `next[length + 1]` counts the codes of this length.
            next[length + 1] = (next[length] + next[length + 1]) << 1;
            length += 1;
        }
        let mut codes = [0; N];
        let mut i = 0;
        while i < N {
            let length = lengths[i];
            if length != 0 {
                codes[i] = (next[length as usize] as u16).reverse_bits() >> (16 - length);
                next[length as usize] += 1;
            }
            i += 1;
        }
        Code { lengths, codes }
    }

    /// Bits and how many.
    #[inline(always)]
    pub(super) fn of(&self, symbol: usize) -> (u32, u32) {
        (self.codes[symbol].into(), self.lengths[symbol].into())
    }

    /// The bits that so many of each symbol take.
    pub(super) fn cost(&self, counts: &[u32; N]) -> u32 {
        counts.iter().zip(&self.lengths).map(|(&n, &length)| n * u32::from(length)).sum()
    }
}

impl Code<LITERALS> {
    /// RFC 1951, 3.2.6.
    pub(super) const fn fixed_literals() -> Code<LITERALS> {
        // Two lengths stand for symbols that never occur, but take part in the numbering.
        let mut lengths = [8u8; LITERALS + 2];
        let mut i = 144;
        while i < 280 {
            lengths[i] = if i < 256 { 9 } else { 7 };
            i += 1;
        }
        let all = Code::<{ LITERALS + 2 }>::of_lengths(lengths);
        let mut code = Code { lengths: [0; LITERALS], codes: [0; LITERALS] };
        let mut i = 0;
        while i < LITERALS {
            code.lengths[i] = all.lengths[i];
            code.codes[i] = all.codes[i];
            i += 1;
        }
        code
    }
}

impl Code<DISTANCES> {
    /// RFC 1951, 3.2.6.
    pub(super) const fn fixed_distances() -> Code<DISTANCES> {
        Code::of_lengths([5; DISTANCES])
    }
}

/// By count, then symbol: counts are below 2^16 in a block, so that two passes over their bytes do.
fn sort(leaves: &mut [u32]) {
    let mut other = [0u32; LITERALS];
    let other = &mut other[..leaves.len()];
    for shift in [9, 17] {
        let mut starts = [0u16; 256];
        for leaf in &*leaves {
            starts[(leaf >> shift & 255) as usize] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        for leaf in &*leaves {
            let at = &mut starts[(leaf >> shift & 255) as usize];
            other[usize::from(*at)] = *leaf;
            *at += 1;
        }
        leaves.copy_from_slice(other);
    }
}

/// How many codes of each length Huffman's tree over the sorted `leaves` (count above 9 bits of symbol) has.
fn per_length(leaves: &[u32], max: usize) -> [u32; 16] {
    let n = leaves.len();
    // Inner nodes in the order in which they are made, which is that of their weight.
    let mut weights = [0u32; LITERALS];
    // Of leaves first, then of inner nodes: the inner node above.
    let mut above = [0u16; 2 * LITERALS];
    let (mut leaf, mut inner) = (0, 0);
    for made in 0..n - 1 {
        for _ in 0..2 {
            let weight = if leaf < n && (inner == made || leaves[leaf] >> 9 <= weights[inner]) {
                above[leaf] = made as u16;
                leaf += 1;
                leaves[leaf - 1] >> 9
            } else {
                above[n + inner] = made as u16;
                inner += 1;
                weights[inner - 1]
            };
            weights[made] += weight;
        }
    }
    let mut depths = [0u8; LITERALS];
    for node in (0..n - 2).rev() {
        depths[node] = depths[usize::from(above[n + node])] + 1;
    }
    let mut counts = [0u32; 16];
    for &above in &above[..n] {
        counts[(usize::from(depths[usize::from(above)]) + 1).min(max)] += 1;
    }
    // Codes that were cut to `max` take more than there is: a shorter one gets a bit longer and makes room for one of them.
    let room = 1u64 << max;
    let mut taken: u64 = (1..=max).map(|length| u64::from(counts[length]) << (max - length)).sum();
    while taken > room {
        let shorter =
            (1..max).rfind(|&length| counts[length] != 0).expect("more codes than max bits can tell apart");
        counts[shorter] -= 1;
        counts[shorter + 1] += 2;
        counts[max] -= 1;
        taken -= 1;
    }
    counts
}

/// How the two codes of a block are told.
pub(super) struct Header {
    literals: usize,
    distances: usize,
    /// Symbol and the value of the bits behind it.
    items: [(u8, u8); LITERALS + DISTANCES],
    count: usize,
    code: Code<META>,
    lengths: usize,
    cost: u32,
}

/// The order in which the lengths of the meta code are told.
const ORDER: [u8; META] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

impl Header {
    pub(super) fn new(literals: &Code<LITERALS>, distances: &Code<DISTANCES>) -> Header {
        let used = |lengths: &[u8], least: usize| {
            lengths.iter().rposition(|&length| length != 0).map_or(least, |last| (last + 1).max(least))
        };
        let (nl, nd) = (used(&literals.lengths, 257), used(&distances.lengths, 1));
        let mut all = [0; LITERALS + DISTANCES];
        all[..nl].copy_from_slice(&literals.lengths[..nl]);
        all[nl..nl + nd].copy_from_slice(&distances.lengths[..nd]);
        let mut items = [(0, 0); LITERALS + DISTANCES];
        let mut count = 0;
        let mut counts = [0u32; META];
        let mut push = |symbol: u8, value: usize| {
            items[count] = (symbol, value as u8);
            counts[usize::from(symbol)] += 1;
            count += 1;
        };
        for run in all[..nl + nd].chunk_by(|a, b| a == b) {
            let (length, mut left) = (run[0], run.len());
            if length == 0 {
                while left >= 11 {
                    let n = left.min(138);
                    push(18, n - 11);
                    left -= n;
                }
                if left >= 3 {
                    push(17, left - 3);
                    left = 0;
                }
            } else {
                push(length, 0);
                left -= 1;
                while left >= 3 {
                    let n = left.min(6);
                    push(16, n - 3);
                    left -= n;
                }
            }
            for _ in 0..left {
                push(length, 0);
            }
        }
        let code = Code::new(&counts, 7);
        let lengths = ORDER
            .iter()
            .rposition(|&s| code.lengths[usize::from(s)] != 0)
            .map_or(4, |last| (last + 1).max(4));
        let behind = items[..count].iter().map(|&(symbol, _)| behind(symbol)).sum::<u32>();
        let cost = 14 + 3 * lengths as u32 + code.cost(&counts) + behind;
        Header { literals: nl, distances: nd, items, count, code, lengths, cost }
    }

    /// In bits.
    pub(super) fn cost(&self) -> u32 {
        self.cost
    }

    pub(super) fn write(&self, bits: &mut Bits<'_>) {
        bits.put((self.literals - 257) as u64, 5);
        bits.put((self.distances - 1) as u64, 5);
        bits.put((self.lengths - 4) as u64, 4);
        bits.flush();
        for &symbol in &ORDER[..self.lengths] {
            bits.put(self.code.lengths[usize::from(symbol)].into(), 3);
            bits.flush();
        }
        for &(symbol, value) in &self.items[..self.count] {
            let (code, n) = self.code.of(symbol.into());
            bits.put(code.into(), n);
            bits.put(value.into(), behind(symbol));
            bits.flush();
        }
    }
}

/// The bits that follow a symbol of the meta code.
fn behind(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

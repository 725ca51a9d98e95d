//! Making deltas: one content told as parts of another and new bytes, in git's form.

/// What is cut into such pieces to find them again. Larger ones for large contents keep the table small.
const BLOCK: usize = 16;
const LARGE_BLOCK: usize = 64;
const LARGE: usize = 1 << 20;
/// The most bytes that one copying step takes, and one of new bytes.
const COPY_MAX: usize = 0xff_ffff;
const INSERT_MAX: usize = 0x7f;
/// Odd: shifting a byte out undoes shifting it in.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A delta that makes `target` of `base`, if it takes at most `limit` bytes.
pub(crate) fn encode(base: &[u8], target: &[u8], limit: usize) -> Option<Vec<u8>> {
    // Steps name places in the base with 32 bits.
    u32::try_from(base.len()).ok()?;
    let block = if base.len() < LARGE { BLOCK } else { LARGE_BLOCK };
    if base.len() < block || target.len() < block {
        return None;
    }
    let blocks = Blocks::of(base, block);
    let mut out = Vec::new();
    varint(base.len(), &mut out);
    varint(target.len(), &mut out);
    // New bytes since `done` wait for the step that ends them.
    let (mut done, mut at) = (0, 0);
    let mut hash = blocks.hash(&target[..block]);
    while at + block <= target.len() {
        if let Some(found) = blocks.find(hash, &target[at..at + block]) {
            let back = common(base[..found].iter().rev(), target[done..at].iter().rev());
            let forth = common(base[found + block..].iter(), target[at + block..].iter());
            insert(&target[done..at - back], &mut out);
            copy(found - back, back + block + forth, &mut out);
            at += block + forth;
            done = at;
            if let Some(next) = target.get(at..at + block) {
                hash = blocks.hash(next);
            }
        } else {
            if let Some(next) = target.get(at + block) {
                hash = blocks.roll(hash, target[at], *next);
            }
            at += 1;
        }
        if out.len() + (at - done) > limit {
            return None;
        }
    }
    insert(&target[done..], &mut out);
    (out.len() <= limit).then_some(out)
}

fn common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(x, y)| x == y).count()
}

/// Where the blocks of a content are, by a hash that rolls.
struct Blocks<'a> {
    base: &'a [u8],
    block: usize,
    /// Places of blocks, counted from 1; 0 is none.
    table: Vec<u32>,
    shift: u32,
    /// What a byte counts when it leaves the window.
    leaving: u64,
}

impl<'a> Blocks<'a> {
    fn of(base: &'a [u8], block: usize) -> Blocks<'a> {
        let count = base.len() / block;
        let bits = (count * 2).next_power_of_two().trailing_zeros().max(1);
        let leaving = (0..block).fold(1u64, |n, _| n.wrapping_mul(MULTIPLIER));
        let mut blocks = Blocks { base, block, table: vec![0; 1 << bits], shift: 64 - bits, leaving };
        // The first of equal ones stays.
        for n in (0..count).rev() {
            let slot = blocks.slot(blocks.hash(&base[n * block..(n + 1) * block]));
            blocks.table[slot] = n as u32 + 1;
        }
        blocks
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |h: u64, b| h.wrapping_mul(MULTIPLIER).wrapping_add(u64::from(*b) + 1))
    }

    fn roll(&self, hash: u64, out: u8, into: u8) -> u64 {
        let rest =
            hash.wrapping_mul(MULTIPLIER).wrapping_sub((u64::from(out) + 1).wrapping_mul(self.leaving));
        rest.wrapping_add(u64::from(into) + 1)
    }

    fn slot(&self, hash: u64) -> usize {
        ((hash ^ hash >> 32).wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    fn find(&self, hash: u64, bytes: &[u8]) -> Option<usize> {
        let n = self.table[self.slot(hash)] as usize;
        let at = n.checked_sub(1)? * self.block;
        (&self.base[at..at + self.block] == bytes).then_some(at)
    }
}

fn varint(mut n: usize, out: &mut Vec<u8>) {
    while n > 0x7f {
        out.push(0x80 | (n & 0x7f) as u8);
        n >>= 7;
    }
    out.push(n as u8);
}

fn insert(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(INSERT_MAX) {
        out.push(part.len() as u8);
        out.extend_from_slice(part);
    }
}

fn copy(mut at: usize, mut len: usize, out: &mut Vec<u8>) {
    while len > 0 {
        let part = len.min(COPY_MAX);
        let op = out.len();
        out.push(0x80);
        for (bit, byte) in (at as u32).to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                out[op] |= 1 << bit;
                out.push(byte);
            }
        }
        // A length of 0x10000 is told by no byte at all.
        for (bit, byte) in (part as u32).to_le_bytes().into_iter().take(3).enumerate() {
            if byte != 0 && part != 0x1_0000 {
                out[op] |= 1 << (4 + bit);
                out.push(byte);
            }
        }
        at += part;
        len -= part;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pack::apply_delta;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn there_and_back(base: &[u8], target: &[u8], limit: usize) -> Option<usize> {
        let delta = encode(base, target, limit)?;
        assert!(delta.len() <= limit);
        assert_eq!(apply_delta(base, &delta).unwrap(), target);
        Some(delta.len())
    }

    proptest! {
        #[test]
        fn what_is_made_of_the_base_is_the_target(
            seed in any::<u64>(),
            len in 0usize..5000,
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300, prop::collection::vec(any::<u8>(), 0..60)), 0..6),
            small in prop::bool::ANY,
        ) {
            let mut base = noise(seed, len);
            if small {
                base.iter_mut().for_each(|b| *b &= 3);
            }
            let mut target = base.clone();
            for (at, gone, new) in cuts {
                let at = at.index(target.len() + 1);
                let end = (at + gone).min(target.len());
                target.splice(at..end, new);
            }
            there_and_back(&base, &target, usize::MAX);
            there_and_back(&target, &base, target.len() / 2);
        }
    }

    #[test]
    fn a_small_change_takes_few_bytes() {
        // Copies of 0x10000 and of more than one step take, places above 24 bits.
        for len in [40, 0x1_0000, 0x1_0001, 300_000, COPY_MAX + 70, 34 << 20] {
            let base = noise(7, len);
            let mut target = base.clone();
            target[len / 2] ^= 1;
            target.extend_from_slice(b"and more");
            let size = there_and_back(&base, &target, usize::MAX).unwrap();
            assert!(size < 220, "{len}: {size}");
        }
        let doubled = noise(7, 5000).repeat(3);
        assert!(there_and_back(&noise(7, 5000), &doubled, 100).is_some());
    }

    #[test]
    fn what_is_not_alike_is_given_up() {
        let (a, b) = (noise(1, 100_000), noise(2, 100_000));
        assert_eq!(encode(&a, &b, 50_000), None);
        assert_eq!(encode(b"short", &b, usize::MAX), None);
        assert_eq!(encode(&a, b"", usize::MAX), None);
    }
}

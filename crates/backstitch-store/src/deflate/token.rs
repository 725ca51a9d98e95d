//! What a block is made of before it is written.

use super::{bits::Bits, codes::Coded};

pub(super) const MAX_MATCH: usize = 258;

/// What one look at two positions gave: two literals, or a match with or without a literal before it. 10 bits are the first
/// literal or [`NOTHING`](Token::NOTHING), 10 the second or 256 + the length of the match, 5 the slot of its distance, and
/// from bit 32 the distance - 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Token(u64);

const SECOND_SHIFT: u32 = 10;
const SLOT_SHIFT: u32 = 20;
const FAR_SHIFT: u32 = 32;
/// The slot of a literal: no code, no bits.
const NO_DISTANCE: u64 = 31 << SLOT_SHIFT;

impl Token {
    /// Of which fewer than 256 are literals, and those from [`LENGTH`](Token::LENGTH) lengths.
    pub(super) const SYMBOLS: usize = 1 << SECOND_SHIFT;
    pub(super) const LENGTH: usize = 256;
    /// The symbol that takes no bits.
    pub(super) const NOTHING: u64 = Token::SYMBOLS as u64 - 1;

    #[inline(always)]
    pub(super) fn literals(first: u8, second: u8) -> Token {
        Token(u64::from(first) | u64::from(second) << SECOND_SHIFT | NO_DISTANCE)
    }

    #[inline(always)]
    pub(super) fn literal(byte: u8) -> Token {
        Token(u64::from(byte) | Token::NOTHING << SECOND_SHIFT | NO_DISTANCE)
    }

    /// `before` is a literal or [`NOTHING`](Token::NOTHING), `far` the distance - 1.
    #[inline(always)]
    pub(super) fn copy(before: u64, length: usize, slot: u32, far: u32) -> Token {
        Token(
            before
                | ((Token::LENGTH + length) as u64) << SECOND_SHIFT
                | u64::from(slot) << SLOT_SHIFT
                | u64::from(far) << FAR_SHIFT,
        )
    }

    #[inline(always)]
    pub(super) fn write(self, bits: &mut Bits<'_>, coded: &Coded) {
        let first = coded.symbols[self.0 as usize % Token::SYMBOLS];
        let second = coded.symbols[(self.0 >> SECOND_SHIFT) as usize % Token::SYMBOLS];
        let slot = coded.slots[(self.0 >> SLOT_SHIFT) as usize % 32];
        let (code, more) = (slot >> 16 & 15, slot >> 24 & 15);
        let rest = (self.0 >> FAR_SHIFT) as u32 & ((1 << more) - 1);
        let distance = u64::from(slot & 0xffff) | u64::from(rest) << code;
        let match_or_literal = u64::from(second & 0xff_ffff) | distance << (second >> 24 & 31);
        bits.put(
            u64::from(first & 0xff_ffff) | match_or_literal << (first >> 24 & 31),
            (first >> 24) + (second >> 24) + code + more,
        );
        bits.flush();
    }
}

/// The slot of a distance, less one.
#[inline(always)]
pub(super) fn slot(far: u32) -> u32 {
    if far < 2 {
        return far;
    }
    let top = far.ilog2();
    2 * top + (far >> (top - 1) & 1)
}

/// The bits that follow the code of a distance's slot.
#[inline(always)]
pub(super) const fn more(slot: u32) -> u32 {
    (slot / 2).saturating_sub(1)
}

/// A length of a match and how it is told (RFC 1951, 3.2.5).
#[derive(Clone, Copy)]
pub(super) struct Length {
    /// Of the code for literals and lengths.
    pub(super) symbol: u16,
    /// The bits that follow, which hold the length - `base`.
    pub(super) more: u8,
    pub(super) base: u16,
}

/// By length; below 3 there is none.
pub(super) static LENGTHS: [Length; MAX_MATCH + 1] = {
    let mut table = [Length { symbol: 257, more: 0, base: 0 }; MAX_MATCH + 1];
    let (mut slot, mut base) = (0, 3);
    while slot < 28 {
        let more = if slot < 8 { 0 } else { slot / 4 - 1 };
        let mut n = 0;
        while n < 1 << more && base + n <= MAX_MATCH {
            table[base + n] = Length { symbol: 257 + slot as u16, more: more as u8, base: base as u16 };
            n += 1;
        }
        base += 1 << more;
        slot += 1;
    }
    table[MAX_MATCH] = Length { symbol: 285, more: 0, base: MAX_MATCH as u16 };
    table
};

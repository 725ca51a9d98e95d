//! Bits into bytes, the lowest first.

/// A writer of bits into a slice with room for what comes and [`SLACK`](super::SLACK) bytes more.
pub(super) struct Bits<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Not yet written; above `count` all are 0.
    bits: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Bits<'a> {
        Bits { out, at: 0, bits: 0, count: 0 }
    }

    /// Adds the lowest `n` bits of `value`, in which no higher one is set. Between two flushes at most 56 are added.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, n: u32) {
        self.bits |= value << self.count;
        self.count += n;
    }

    /// Writes the whole bytes; fewer than 8 bits remain.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        *self.out[self.at..].first_chunk_mut().expect("room was asked for") = self.bits.to_le_bytes();
        self.at += (self.count / 8) as usize;
        self.bits >>= self.count & 0x38;
        self.count &= 7;
    }

    /// A stored block of at most 65,535 bytes.
    pub(super) fn stored(&mut self, data: &[u8], last: bool) {
        let len = u16::try_from(data.len()).expect("a block is shorter");
        self.put(last.into(), 3);
        self.count = self.count.next_multiple_of(8);
        self.put(u64::from(len) | u64::from(!len) << 16, 32);
        self.flush();
        self.out[self.at..self.at + data.len()].copy_from_slice(data);
        self.at += data.len();
    }

    /// Ends on a byte; returns how many bytes were written.
    pub(super) fn finish(self) -> usize {
        self.finished().len()
    }

    /// Ends on a byte; returns what was written.
    pub(super) fn finished(mut self) -> &'a [u8] {
        self.count = self.count.next_multiple_of(8);
        self.flush();
        &self.out[..self.at]
    }
}

//! How fast the file system answers.
//!
//! On a network file system a walk waits more than it works. The first directories opened are timed; if one takes over half
//! a millisecond on average, the walk goes on with as many threads as waiting in parallel is good for.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Directories that are timed.
const SAMPLES: u32 = 16;
const SLOW_NS: u64 = 500_000;
/// Threads on a slow file system.
pub(crate) const MANY: usize = 32;

#[derive(Default)]
pub(crate) struct Pace {
    samples: AtomicU32,
    ns: AtomicU64,
    slow: AtomicBool,
}

impl Pace {
    pub(crate) fn is_wanted(&self) -> bool {
        self.samples.load(Ordering::Relaxed) < SAMPLES
    }

    pub(crate) fn add(&self, ns: i128) {
        // A clock may step back.
        let ns = u64::try_from(ns).unwrap_or(0);
        let total = self.ns.fetch_add(ns, Ordering::Relaxed) + ns;
        if self.samples.fetch_add(1, Ordering::Relaxed) + 1 == SAMPLES && total > SLOW_NS * u64::from(SAMPLES)
        {
            self.slow.store(true, Ordering::Relaxed);
        }
    }

    /// True once, if the file system turned out to be slow.
    pub(crate) fn take_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) && self.slow.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_once() {
        let pace = Pace::default();
        for _ in 0..SAMPLES {
            assert!(pace.is_wanted() && !pace.take_slow());
            pace.add(600_000);
        }
        assert!(!pace.is_wanted() && pace.take_slow() && !pace.take_slow());
        let fast = Pace::default();
        (0..SAMPLES).for_each(|_| fast.add(-5));
        assert!(!fast.take_slow());
    }
}

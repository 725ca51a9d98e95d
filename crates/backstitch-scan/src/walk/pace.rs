//! How fast the walk goes, and with how many threads it goes on.
//!
//! A thread costs more than a small folder: it has to be started, and at the end somebody waits for it, on a busy machine for
//! milliseconds. So a walk begins with one, and the others come when it turns out not to be done at once. On a network file system a walk waits more than it works. The first directories opened are timed; if one takes over half
//! a millisecond on average, the walk goes on with as many threads as waiting in parallel is good for.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A walk that takes no longer than this is done by one thread.
const SHORT: Duration = Duration::from_micros(500);

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
    begun: OnceLock<Instant>,
    /// Threads wait to be started.
    alone: AtomicBool,
}

impl Pace {
    /// The walk begins; `more`: with fewer threads than it may have.
    pub(crate) fn begin(&self, more: bool) {
        self.begun.get_or_init(Instant::now);
        self.alone.store(more, Ordering::Relaxed);
    }

    /// True once, if the walk was not done at once and there is something to give away.
    pub(crate) fn take_long(&self, is_work: impl FnOnce() -> bool) -> bool {
        self.alone.load(Ordering::Relaxed)
            && is_work()
            && self.begun.get().is_some_and(|at| at.elapsed() > SHORT)
            && self.alone.swap(false, Ordering::Relaxed)
    }

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
    fn others_come_once_and_only_to_a_walk_that_is_not_done_at_once() {
        let long_ago = || Pace { begun: (Instant::now() - 2 * SHORT).into(), ..Pace::default() };
        let pace = long_ago();
        pace.begin(true);
        assert!(!pace.take_long(|| false) && pace.take_long(|| true) && !pace.take_long(|| true));
        let one = long_ago();
        one.begin(false);
        assert!(!one.take_long(|| true));
        let just = Pace { begun: (Instant::now() + Duration::from_secs(60)).into(), ..Pace::default() };
        just.begin(true);
        assert!(!just.take_long(|| true));
    }

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

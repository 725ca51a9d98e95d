//! Where the time comes from.

/// A source of readings of the system's real-time clock.
///
/// Whether a file's stat can be trusted depends on when it was last looked at. Tests pass a clock of their own.
pub trait Clock: Sync {
    /// Nanoseconds since 1970.
    fn now_ns(&self) -> i128;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> i128 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    }
}

//! Calls that were taken on: their lane, the flag that ends them, how far they are.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use backstitch::error::{Code, Error};
use serde_json::Value;

use super::{
    lanes::{Lane, Lanes},
    message::Fault,
};
use crate::context::Tick;

struct Running {
    id: Option<Value>,
    interrupt: Arc<AtomicBool>,
    reads: bool,
}

/// What is done once a call counts as ended: answering it, for the most part.
pub type After = Box<dyn FnOnce()>;

/// All calls of a connection.
#[derive(Default)]
pub struct Calls {
    lanes: Lanes,
    running: Mutex<Vec<Running>>,
}

impl Calls {
    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work into its lane. It is given the flag that ends it, or is told that it was cancelled before it began. `false`: too
    /// much is waiting, and the work is dropped.
    pub fn enqueue(
        self: &Arc<Self>,
        lane: &Lane,
        id: Option<Value>,
        bytes: usize,
        work: impl FnOnce(Result<Arc<AtomicBool>, Fault>) -> After + Send + 'static,
    ) -> bool {
        let interrupt = Arc::new(AtomicBool::new(false));
        let reads = *lane == Lane::Reading;
        self.running().push(Running { id, interrupt: Arc::clone(&interrupt), reads });
        let (calls, flag) = (Arc::clone(self), Arc::clone(&interrupt));
        let job = move || {
            let after = work(match flag.load(Ordering::Relaxed) {
                true => Err(cancelled()),
                false => Ok(Arc::clone(&flag)),
            });
            calls.ended(&flag);
            after();
        };
        let taken = self.lanes.push(lane, bytes, Arc::clone(&interrupt), Box::new(job));
        if !taken {
            self.ended(&interrupt);
        }
        taken
    }

    fn ended(&self, interrupt: &Arc<AtomicBool>) {
        self.running().retain(|r| !Arc::ptr_eq(&r.interrupt, interrupt));
    }

    /// Ends the calls with this id. One that has not begun is answered at once.
    pub fn cancel(&self, id: &Value) {
        self.end(|r| r.id.as_ref() == Some(id));
        self.lanes.take_cancelled().into_iter().for_each(|job| job());
    }

    /// Ends all calls.
    pub fn interrupt_all(&self) {
        self.end(|_| true);
    }

    /// Ends the calls that only read: nobody is there to be told.
    pub fn interrupt_reading(&self) {
        self.end(|r| r.reads);
    }

    fn end(&self, which: impl Fn(&Running) -> bool) {
        self.running().iter().filter(|r| which(r)).for_each(|r| r.interrupt.store(true, Ordering::Relaxed));
    }

    /// Waits until nothing is left to do.
    pub fn finish(&self) {
        self.lanes.finish();
    }
}

/// Tells how far a call is, at most once in so many milliseconds.
pub fn ticker(interval: u64, tell: impl Fn(&str, u64, u64) + Send + Sync + 'static) -> Box<Tick> {
    let (start, last) = (std::time::Instant::now(), AtomicU64::new(0));
    Box::new(move |what, done, total| {
        let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = last.load(Ordering::Relaxed);
        let due = now.saturating_sub(before) >= interval;
        // Where it fails, another thread tells the same.
        if due && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tell(what, done, total);
        }
    })
}

/// Too much is waiting.
pub fn crowded() -> Fault {
    Error::new(Code::Busy, "too many calls are waiting").hint("wait for answers before calling again").into()
}

fn cancelled() -> Fault {
    Error::new(Code::Interrupted, "cancelled before it began; nothing was changed").into()
}

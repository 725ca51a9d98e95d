//! Where calls run: one lane for each workspace that is written to, beside it one for the capture of a turn and one for tools that
//! wait for that, and one pool for all that only reads.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Calls that wait, at most.
const MOST_CALLS: usize = 1_000;
/// Bytes of messages that wait, at most.
const MOST_BYTES: usize = 32 << 20;
/// Workspaces that are written to at once, at most.
const MOST_LANES: usize = 96;
/// Calls that read, or wait at a gate, at once.
const READERS: usize = 4;

/// Which lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Calls that write, in the order in which they came.
    Of(PathBuf),
    /// The capture of a turn, while tools run.
    Beside(PathBuf),
    /// Tools that wait for it.
    Gate(PathBuf),
    /// Calls that only read, in any order.
    Reading,
}

/// A call to be carried out.
pub type Job = Box<dyn FnOnce() + Send>;

struct Waiting {
    bytes: usize,
    interrupt: Arc<AtomicBool>,
    job: Job,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    threads: usize,
}

#[derive(Default)]
struct State {
    lanes: HashMap<Lane, Queue>,
    calls: usize,
    bytes: usize,
}

/// All lanes. Threads live as long as their lane has something to do.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    idle: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    /// Takes a call on. `false` where too many are waiting: the call is dropped.
    pub fn push(&self, lane: &Lane, bytes: usize, interrupt: Arc<AtomicBool>, job: Job) -> bool {
        let mut held = self.0.lock();
        let State { lanes, calls, bytes: all } = &mut *held;
        let full = *calls >= MOST_CALLS
            || *all + bytes > MOST_BYTES
            || (!lanes.contains_key(lane) && lanes.len() >= MOST_LANES);
        if full {
            return false;
        }
        let most = if matches!(lane, Lane::Reading | Lane::Gate(_)) { READERS } else { 1 };
        let queue = lanes.entry(lane.clone()).or_default();
        if queue.threads < most {
            let (shared, own) = (Arc::clone(&self.0), lane.clone());
            let spawned =
                std::thread::Builder::new().name("lane".to_owned()).spawn(move || work(&shared, &own));
            match spawned {
                Ok(_) => queue.threads += 1,
                // The others of this lane take it over.
                Err(_) if queue.threads > 0 => {}
                Err(_) => {
                    lanes.remove(lane);
                    return false;
                }
            }
        }
        queue.waiting.push_back(Waiting { bytes, interrupt, job });
        *calls += 1;
        *all += bytes;
        true
    }

    /// Takes out the calls that were cancelled before they began.
    pub fn take_cancelled(&self) -> Vec<Job> {
        let mut held = self.0.lock();
        let mut out: Vec<Waiting> = Vec::new();
        for queue in held.lanes.values_mut() {
            let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiting)
                .into_iter()
                .partition(|w| w.interrupt.load(Ordering::Relaxed));
            out.extend(gone);
            queue.waiting = kept.into();
        }
        held.calls -= out.len();
        held.bytes -= out.iter().map(|w| w.bytes).sum::<usize>();
        out.into_iter().map(|w| w.job).collect()
    }

    /// Waits until nothing is left to do.
    pub fn finish(&self) {
        let mut held = self.0.lock();
        while !held.lanes.is_empty() {
            held = self.0.idle.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn work(shared: &Shared, lane: &Lane) {
    let mut held = shared.lock();
    loop {
        let next = held.lanes.get_mut(lane).and_then(|q| q.waiting.pop_front());
        let Some(Waiting { bytes, job, .. }) = next else {
            if let Some(q) = held.lanes.get_mut(lane) {
                q.threads -= 1;
                if q.threads == 0 {
                    held.lanes.remove(lane);
                }
            }
            shared.idle.notify_all();
            return;
        };
        drop(held);
        // Whoever waits for the answer is told when the job is dropped.
        let _ = catch_unwind(AssertUnwindSafe(job));
        held = shared.lock();
        held.calls -= 1;
        held.bytes -= bytes;
    }
}

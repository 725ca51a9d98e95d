//! Work shared by the threads of one walk.
//!
//! Each thread keeps its tasks on a stack of its own and takes the newest first, so that few directories are open at a
//! time. While another thread has nothing to do, the oldest tasks, which stand for the largest parts, are given away.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

pub(crate) struct Queue<T> {
    shared: Mutex<VecDeque<T>>,
    wake: Condvar,
    /// Threads that wait.
    idle: AtomicUsize,
    threads: AtomicUsize,
    stopped: AtomicBool,
}

/// Locks even after a panic elsewhere: the panic itself ends the walk.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Queue<T> {
    /// A queue with one task, for one thread; others are announced with [`Queue::expect`].
    pub(crate) fn new(first: T) -> Queue<T> {
        Queue {
            shared: Mutex::new(VecDeque::from([first])),
            wake: Condvar::new(),
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(1),
            stopped: AtomicBool::new(false),
        }
    }

    /// Ends the walk: no thread gets another task.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        drop(lock(&self.shared));
        self.wake.notify_all();
    }

    /// One more thread is about to take tasks.
    pub(crate) fn expect(&self) {
        let _shared = lock(&self.shared);
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// It does not come after all. To be called by a thread that takes tasks itself.
    pub(crate) fn give_up(&self) {
        let _shared = lock(&self.shared);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The next task for a thread; `None` ends it.
    pub(crate) fn next(&self, own: &mut VecDeque<T>) -> Option<T> {
        if self.is_stopped() {
            return None;
        }
        if own.len() > 1 && self.idle.load(Ordering::Relaxed) > 0 {
            self.give(own);
        }
        if let Some(task) = own.pop_back() {
            return Some(task);
        }
        let mut shared = lock(&self.shared);
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(task) = shared.pop_front() {
                return Some(task);
            }
            // Every thread waits and nothing is left: no task can come any more.
            if self.idle.fetch_add(1, Ordering::Relaxed) + 1 == self.threads.load(Ordering::Relaxed) {
                self.stopped.store(true, Ordering::Release);
                self.wake.notify_all();
                return None;
            }
            shared = self.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn give(&self, own: &mut VecDeque<T>) {
        let mut shared = lock(&self.shared);
        if shared.len() >= self.threads.load(Ordering::Relaxed) {
            return;
        }
        let half = own.len() / 2;
        shared.extend(own.drain(..half));
        drop(shared);
        self.wake.notify_all();
    }
}

/// Stops the walk if its thread panics, so that no other waits for it.
pub(crate) struct StopOnPanic<'a, T>(pub(crate) &'a Queue<T>);

impl<T> Drop for StopOnPanic<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

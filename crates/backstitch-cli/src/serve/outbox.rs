//! Everything that goes out, in one order, from one thread.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use backstitch::error::{Code, Error, Result};
use serde_json::Value;

/// Answers wait for the reader above this many bytes; notifications are left out above a part of it.
const MOST: usize = 32 << 20;

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Nothing more comes.
    closed: bool,
    /// The reader is gone: nothing more is kept.
    broken: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, held: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(held).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of bounded size before a writing thread, so that a slow reader stops callers and not a capture that holds locks.
pub struct Outbox {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Outbox {
    /// Starts the writing thread.
    pub fn start(out: impl Write + Send + 'static) -> Result<Outbox> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("outbox".to_owned())
            .spawn(move || write(&own, out))
            .map_err(|e| {
                Error::new(Code::Failed, format!("a thread cannot be started: {e}"))
                    .hint("too many processes or too little memory: `ulimit -u` shows the limit")
            })?;
        Ok(Outbox { shared, writer: Mutex::new(Some(writer)) })
    }

    /// An answer: waits while too much is waiting already.
    pub fn send(&self, message: &Value) {
        let line = line(message);
        let mut held = self.shared.lock();
        while held.bytes > MOST && !held.broken {
            held = self.shared.wait(held);
        }
        self.push(held, line);
    }

    /// A notification: left out while too much is waiting. Never waits.
    pub fn notify(&self, method: &str, params: Value) {
        let line = line(&serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params}));
        let held = self.shared.lock();
        if held.bytes < MOST / 2 {
            self.push(held, line);
        }
    }

    fn push(&self, mut held: MutexGuard<'_, State>, line: Vec<u8>) {
        if !held.broken {
            held.bytes += line.len();
            held.queue.push_back(line);
            self.shared.changed.notify_all();
        }
    }

    /// The reader went away.
    pub fn is_broken(&self) -> bool {
        self.shared.lock().broken
    }

    /// What was sent is written, then the thread ends.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

fn line(message: &Value) -> Vec<u8> {
    // A value has keys of text only: it can be written.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

fn write(shared: &Shared, mut out: impl Write) {
    let mut held = shared.lock();
    loop {
        if let Some(line) = held.queue.pop_front() {
            drop(held);
            let written = out.write_all(&line).and_then(|()| out.flush());
            held = shared.lock();
            held.bytes -= line.len();
            if written.is_err() {
                held.broken = true;
                held.queue.clear();
                held.bytes = 0;
            }
            shared.changed.notify_all();
        } else if held.closed {
            return;
        } else {
            held = shared.wait(held);
        }
    }
}

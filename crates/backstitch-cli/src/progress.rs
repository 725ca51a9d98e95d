//! Progress on a terminal, for work of over half a second.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(500);

/// A line that comes late and goes when the work is done.
#[derive(Clone)]
pub struct Progress(Arc<Inner>);

struct Inner {
    started: Instant,
    enabled: AtomicBool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    /// Shown only where `enabled`.
    pub fn new(enabled: bool) -> Progress {
        Progress(Arc::new(Inner {
            started: Instant::now(),
            enabled: AtomicBool::new(enabled),
            bar: Mutex::new(None),
        }))
    }

    /// Told by the library, from any thread.
    pub fn tick(&self, what: &str, done: u64, total: u64) {
        if !self.0.enabled.load(Ordering::Relaxed) || self.0.started.elapsed() < QUIET {
            return;
        }
        // Another thread is drawing: it says the same.
        let Ok(mut held) = self.0.bar.try_lock() else { return };
        let fresh = held.is_none();
        // Nothing is drawn before it knows what to say.
        let bar = held.get_or_insert_with(ProgressBar::hidden);
        if fresh || bar.message() != what || bar.length() != Some(total).filter(|t| *t > 0) {
            let form = match total {
                0 => "{spinner} {msg} {human_pos}",
                _ => "{msg} {bar:24} {human_pos}/{human_len}",
            };
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            match total {
                0 => bar.unset_length(),
                n => bar.set_length(n),
            }
        }
        bar.set_position(done);
        if fresh {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        let bar = self.0.bar.lock().ok().and_then(|mut held| held.take());
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    /// From now on the line stays away.
    pub fn stop(&self) {
        self.0.enabled.store(false, Ordering::Relaxed);
        self.clear();
    }
}

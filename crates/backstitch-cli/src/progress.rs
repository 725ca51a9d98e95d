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
        let bar =
            held.get_or_insert_with(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        if bar.message() != what {
            bar.set_message(what.to_owned());
        }
        if bar.length() != Some(total).filter(|t| *t > 0) || bar.position() == 0 {
            let form = if total > 0 {
                "{msg} {bar:24} {human_pos}/{human_len}"
            } else {
                "{spinner} {msg} {human_pos}"
            };
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            if total > 0 {
                bar.set_length(total);
            } else {
                bar.unset_length();
            }
        }
        bar.set_position(done);
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

//! Progress on a terminal, for work of over half a second.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(500);

/// A line that comes late and goes when the work is done.
#[derive(Clone)]
pub struct Progress(Arc<Inner>);

struct Inner {
    started: Instant,
    enabled: AtomicBool,
    shown: Mutex<Option<Shown>>,
}

/// A line, and where its work stood when it came.
struct Shown {
    bar: ProgressBar,
    what: String,
    since: Instant,
    from: u64,
}

/// So much in a second, and how long the rest takes.
fn pace(done: u64, total: u64, took: Duration) -> String {
    let took = took.as_secs_f64();
    if done == 0 || took < 0.1 {
        return String::new();
    }
    let rate = done as f64 / took;
    let mut out = format!("{}/s", HumanCount(rate.round() as u64));
    if total > 0 {
        let left = (total.saturating_sub(done) as f64 / rate).ceil() as u64;
        out.push_str(&match left {
            0..60 => format!(", {left} s left"),
            60..3600 => format!(", {} min left", left.div_ceil(60)),
            _ => format!(", {} h {} min left", left / 3600, left % 3600 / 60),
        });
    }
    out
}

impl Progress {
    /// Shown only where `enabled`.
    pub fn new(enabled: bool) -> Progress {
        Progress(Arc::new(Inner {
            started: Instant::now(),
            enabled: AtomicBool::new(enabled),
            shown: Mutex::new(None),
        }))
    }

    /// Told by the library, from any thread.
    pub fn tick(&self, what: &str, done: u64, total: u64) {
        if !self.0.enabled.load(Ordering::Relaxed) || self.0.started.elapsed() < QUIET {
            return;
        }
        // Another thread is drawing: it says the same.
        let Ok(mut held) = self.0.shown.try_lock() else { return };
        let fresh = held.is_none();
        // Nothing is drawn before it knows what to say. Work that takes long enough to be told began with the command.
        let shown = held.get_or_insert_with(|| Shown {
            bar: ProgressBar::hidden(),
            what: what.to_owned(),
            since: self.0.started,
            from: 0,
        });
        if shown.what != what {
            (shown.what, shown.since, shown.from) = (what.to_owned(), Instant::now(), done);
        }
        let bar = &shown.bar;
        if fresh || bar.message() != what || bar.length() != Some(total).filter(|t| *t > 0) {
            let form = match total {
                0 => "{spinner} {msg} {human_pos} {prefix}",
                _ => "{msg} {bar:24} {human_pos}/{human_len} {prefix}",
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
        bar.set_prefix(pace(
            done.saturating_sub(shown.from),
            total.saturating_sub(shown.from.min(total)),
            shown.since.elapsed(),
        ));
        bar.set_position(done);
        if fresh {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        let shown = self.0.shown.lock().ok().and_then(|mut held| held.take());
        if let Some(shown) = shown {
            shown.bar.finish_and_clear();
        }
    }

    /// From now on the line stays away.
    pub fn stop(&self) {
        self.0.enabled.store(false, Ordering::Relaxed);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_says_how_long_the_rest_takes() {
        let s = Duration::from_secs;
        assert_eq!(pace(0, 100, s(5)), "");
        assert_eq!(pace(10, 0, Duration::from_millis(10)), "");
        assert_eq!(pace(5000, 0, s(2)), "2,500/s");
        assert_eq!(pace(50, 100, s(5)), "10/s, 5 s left");
        assert_eq!(pace(10, 1210, s(1)), "10/s, 2 min left");
        assert_eq!(pace(1, 7201, s(1)), "1/s, 2 h 0 min left");
        assert_eq!(pace(100, 50, s(1)), "100/s, 0 s left");
    }
}

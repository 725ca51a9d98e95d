//! Tests that cannot run here.
//!
//! A test that silently passes because something is missing is a lie. [`skip`] says it on the test's output and, where the
//! variable [`LOG`] names a file, appends a line to it, so that the one test command can count what did not run.

use std::{fs::OpenOptions, io::Write};

/// Names the file to which each skip is appended.
pub const LOG: &str = "BACKSTITCH_SKIP_LOG";

/// Records that `what` did not run, because of `reason`. Under nextest the line ends in ` @ ` and the test's full name.
pub fn skip(what: &str, reason: &str) {
    let mut line = format!("{what}: {}", reason.replace('\n', " "));
    if let (Ok(binary), Ok(test)) = (std::env::var("NEXTEST_BINARY_ID"), std::env::var("NEXTEST_TEST_NAME")) {
        line.push_str(&format!(" @ {binary} {test}"));
    }
    line.push('\n');
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os(LOG)
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
        && let Err(error) = file.write_all(line.as_bytes())
    {
        eprintln!("the skip could not be logged: {error}");
    }
}

/// Leaves the calling test, visibly, unless the condition holds.
///
/// ```
/// fn needs_root() {
///     backstitch_testkit::require!(backstitch_testkit::privilege::is_root(), "needs root");
/// }
/// # needs_root();
/// ```
#[macro_export]
macro_rules! require {
    ($condition:expr, $reason:expr) => {
        if !$condition {
            $crate::skip::skip(&format!("{}:{}", file!(), line!()), $reason);
            return;
        }
    };
}

//! The capture of a turn that goes on beside the agent: a process of its own, which outlives the command that started it.

use std::io::Write;

use backstitch::{error::Result, flight};

use crate::{context::Context, table::Capture};

/// The process.
pub fn capture(cx: &Context, a: &Capture) -> Result<u8> {
    // Signals to the host's terminal are not for it, and the agent's own work comes first.
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(10);
    let mut ws = cx.workspace()?;
    let ready = || {
        let mut out = std::io::stdout();
        // Whoever started it may be gone by now: it goes on.
        let _ = writeln!(out, "{}", flight::AT_WORK).and_then(|()| out.flush());
    };
    ws.turn_capture(&a.id, &ready, &cx.control())?;
    Ok(0)
}

//! The capture of a turn that was begun with `--no-wait`: a process of its own, which outlives the command that started it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use backstitch::{
    error::{Code, Error, Result},
    workspace::Workspace,
};

use crate::{context::Context, table::Capture};

/// What the process says once others can see that it is at work.
const READY: &str = "ready";

/// Starts the process, and returns when it is at work. It holds nothing of the caller's: no terminal, no pipe, no folder.
pub fn start(cx: &Context, ws: &Workspace, id: &str) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Code::Io, format!("starting the capture of {id}: {e}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg("-C")
        .arg(ws.root())
        .arg("--store-dir")
        .arg(&cx.surroundings.store_base)
        .args(["capture", id])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said).map_err(failed)?;
    }
    match said.trim_end() {
        READY => Ok(()),
        _ => Err(Error::new(Code::Failed, format!("the capture of {id} ended at once"))),
    }
}

/// The process.
pub fn capture(cx: &Context, a: &Capture) -> Result<u8> {
    // Signals to the host's terminal are not for it, and the agent's own work comes first.
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(10);
    let mut ws = cx.workspace()?;
    let ready = || {
        let mut out = std::io::stdout();
        // Whoever started it may be gone by now: it goes on.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    };
    ws.turn_capture(&a.id, &ready, &cx.control())?;
    Ok(0)
}

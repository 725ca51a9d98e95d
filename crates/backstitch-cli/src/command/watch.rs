//! `watch`

use std::io::Write;

use backstitch::{error::Result, watch, workspace::Workspace};
use serde_json::{Value, json};

use crate::{context::Context, text};

/// Does something to the watcher, and tells how it is then.
pub fn tell(cx: &Context, act: impl Fn(&Workspace) -> Result<Value>) -> Result<u8> {
    let watcher = act(&cx.workspace()?)?;
    if cx.ui.json {
        cx.ui.document(json!({"watcher": watcher}))?;
        return Ok(0);
    }
    cx.ui.line(line(&watcher))?;
    cx.ui.finish()?;
    Ok(0)
}

/// One line about it.
pub fn line(watcher: &Value) -> String {
    let number = |k: &str| watcher.get(k).and_then(Value::as_u64).unwrap_or(0);
    let reason = watcher.get("reason").and_then(Value::as_str).map(text::tame);
    let reason = reason.map(|r| format!(" ({r})")).unwrap_or_default();
    if watcher.get("running") != Some(&true.into()) {
        return format!("none runs{reason}");
    }
    let dirs = match number("directories") {
        1 => "1 directory".to_owned(),
        n => format!("{n} directories"),
    };
    format!("process {} watches {dirs}{reason}", number("pid"))
}

/// The watcher itself. Says one line when it answers, and nothing after that.
pub fn run(cx: &Context) -> Result<u8> {
    // Signals to the host's terminal are not for it, and the agent's own work comes first.
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(5);
    let ws = cx.workspace()?;
    watch::run(&ws, || {
        let mut out = std::io::stdout();
        let _ = out.write_all(b"watching\n");
        let _ = out.flush();
        // Whoever waits for that line need not wait for more.
        let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
    })?;
    Ok(0)
}

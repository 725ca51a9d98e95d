//! `bisect`

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::atomic::Ordering,
    time::Duration,
};

use backstitch::{
    bisect::{Bisected, Ending, Verdict},
    error::{Code, Error, Result},
    record::{Checkpoint, Kind, new_id, now_ms},
    view,
};

use crate::{
    context::{Context, PARTIAL},
    table::Bisect,
    text,
};

/// Exit codes of the command that say something else than "bad".
const SKIP: i32 = 125;
const CANNOT_RUN: [i32; 2] = [126, 127];
/// What this command ends with where no turn broke it.
const NOTHING: u8 = 4;

/// Runs a command in the states between a session's turns.
pub fn run(cx: &Context, a: &Bisect) -> Result<u8> {
    let ws = cx.workspace()?;
    let session = cx.known_session(&ws, Some(&a.id))?.record.id;
    let rows = cx.rows(&ws)?;
    let name = format!("backstitch-bisect-{}-{}", std::process::id(), new_id(now_ms()));
    let scratch = std::env::temp_dir().join(name);
    let mut look = |dir: &Path, row: &Checkpoint| {
        let verdict = verdict(&a.command, &end(cx, &a.command, dir, row)?)?;
        cx.ui.note(format!("{}: {}", state(row), verdict.as_str()));
        Ok(verdict)
    };
    let found = ws.bisect(&rows, &session, &scratch, &mut look, &cx.control());
    // Empty, unless a state could not be removed.
    let _ = std::fs::remove_dir(&scratch);
    let found = found?;
    cx.progress.stop();
    if cx.ui.json {
        cx.ui.document(view::bisected(&session, &found))?;
    } else {
        tell(cx, &session, &found)?;
    }
    Ok(match (found.ending, found.suspects.len()) {
        (Ending::Found, 1) => 0,
        (Ending::Found, _) | (Ending::Untold, _) => PARTIAL,
        _ => NOTHING,
    })
}

fn state(row: &Checkpoint) -> String {
    let turn = row.record.turn.unwrap_or(0);
    match row.record.kind {
        Kind::Prompt => format!("before turn {turn}"),
        _ => format!("after turn {turn}"),
    }
}

/// What would have made a state bad that was good before it.
fn cause(row: &Checkpoint) -> String {
    let turn = row.record.turn.unwrap_or(0);
    match row.record.kind {
        Kind::Prompt => format!("what happened in no turn, before turn {turn}"),
        _ => format!("turn {turn}"),
    }
}

fn tell(cx: &Context, session: &str, found: &Bisected<&Checkpoint>) -> Result<()> {
    match (found.ending, found.suspects.as_slice()) {
        (Ending::NotBroken, _) => cx.ui.line("the newest state is good: no turn broke it"),
        (Ending::BrokenBefore, _) => cx.ui.line("the state before the first turn is bad: no turn broke it"),
        (Ending::Untold, _) => cx.ui.line("the first or the newest state cannot be told"),
        (Ending::Found, [row]) => {
            cx.ui.line(format!("{} broke it", cause(row)))?;
            if let (Kind::Turn, Some(turn)) = (row.record.kind, row.record.turn) {
                let session = text::tame(session);
                cx.ui.note(format!(
                    "see it: backstitch diff --turn {turn} --session {session}\n\
                     take it back: backstitch revert {turn} --session {session}"
                ));
            }
            Ok(())
        }
        (Ending::Found, many) => {
            let causes: Vec<String> = many.iter().map(|row| cause(row)).collect();
            cx.ui.line(format!("one of these broke it: {}", causes.join(", ")))
        }
    }
}

/// Runs the command to its end in `dir`; what it prints goes to standard error.
fn end(cx: &Context, command: &[OsString], dir: &Path, row: &Checkpoint) -> Result<ExitStatus> {
    let (program, words) = command.split_first().ok_or_else(|| {
        Error::new(Code::Usage, "say which command, after `--`")
            .hint("such as `backstitch bisect SESSION -- cargo test`")
    })?;
    let name = program.to_string_lossy();
    let mut child = Command::new(program)
        .args(words)
        .current_dir(dir)
        .env("BACKSTITCH_DISABLE", "1")
        .env("BACKSTITCH_BISECT", &row.record.id)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .spawn()
        .map_err(|e| {
            Error::new(Code::Usage, format!("{name}: cannot be run: {e}"))
                .at(Path::new(program))
                .hint("what follows `--` is a program and its words; `sh -c '...'` runs a line of shell")
        })?;
    loop {
        let gone = child.try_wait().map_err(|e| Error::io(Path::new(program), e))?;
        if cx.interrupt.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new(Code::Interrupted, "interrupted"));
        }
        if let Some(status) = gone {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn verdict(command: &[OsString], status: &ExitStatus) -> Result<Verdict> {
    let stop = |how: String| {
        let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        Err(Error::new(Code::Failed, format!("{name}: {how}: that is no answer")).hint(
            "exit code 0 means good, 125 that it cannot be told, any other below 126 bad; nothing was changed",
        ))
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(Verdict::Good),
        (Some(SKIP), _) => Ok(Verdict::Skip),
        (Some(code), _) if CANNOT_RUN.contains(&code) || code > 127 => stop(format!("exit code {code}")),
        (Some(_), _) => Ok(Verdict::Bad),
        (None, signal) => stop(format!("killed by signal {}", signal.unwrap_or(0))),
    }
}

//! `turn` and `tool`: what a host calls around prompts and tools.

use std::time::Duration;

use backstitch::{
    checkpoint::Outcome,
    error::Result,
    record::Checkpoint,
    tool::ToolOptions,
    turn::{Begun, TurnOptions},
    view,
    workspace::Workspace,
};
use serde_json::json;

use super::checkpoint;
use crate::{
    context::{Context, PARTIAL},
    inside,
    table::{ToolCall, TurnBegin, TurnBind, TurnEnd},
    text,
    ui::style,
};

/// The session of a row to be made; a first one has a name too.
fn session(cx: &Context, ws: &Workspace) -> Result<String> {
    ws.session_or_only(cx.surroundings.session.as_deref())
}

fn nothing() -> Outcome {
    Outcome::default()
}

fn about(c: &Checkpoint) -> String {
    let r = &c.record;
    let turn = r.turn.map(|n| format!(", turn {n}")).unwrap_or_default();
    format!("{} of session {}{turn}", r.kind.as_str(), r.session.as_deref().unwrap_or("-"))
}

fn tell(cx: &Context, ws: &Workspace, out: &Outcome, without: &str) -> Result<u8> {
    cx.progress.stop();
    if cx.ui.json {
        checkpoint::document(cx, ws, out)?;
    } else {
        match &out.checkpoint {
            Some(c) => {
                cx.ui.line(cx.ui.paint(style::ID, &c.record.id))?;
                cx.ui.finish()?;
                cx.ui.note(format!("{}: {}", about(c), c.record.summary.line()));
            }
            None => cx.ui.note(without),
        }
        cx.ui.warn_all(&out.warnings);
        checkpoint::tell_skips(cx, out);
    }
    Ok(if out.is_partial() { PARTIAL } else { 0 })
}

/// Begins a turn.
pub fn begin(cx: &Context, a: TurnBegin) -> Result<u8> {
    if a.no_wait {
        return begin_at_once(cx, a);
    }
    if a.wait {
        return begin_told(cx, a, &|_, _| {});
    }
    let prompt = checkpoint::prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let options = TurnOptions { session: session(cx, &ws)?, key: a.key, prompt, entry: a.entry };
    let time = ws.capture_time().unwrap_or(Duration::MAX);
    let out = ws.turn_begin_within(&options, time, &cx.control())?;
    told_in_flight(cx, &ws, &out)
}

/// That a capture goes on is no shortfall.
fn told_in_flight(cx: &Context, ws: &Workspace, out: &Outcome) -> Result<u8> {
    let code = tell(cx, ws, out, "")?;
    Ok(if out.checkpoint.as_ref().is_some_and(|c| c.record.in_flight()) { 0 } else { code })
}

/// Begins a turn whose capture goes on in another process.
fn begin_at_once(cx: &Context, a: TurnBegin) -> Result<u8> {
    let prompt = checkpoint::prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let options = TurnOptions { session: session(cx, &ws)?, key: a.key, prompt, entry: a.entry };
    let mut out = ws.turn_reserve(&options, !a.ungated)?;
    if let Some(c) = out.checkpoint.as_ref().filter(|c| c.record.in_flight() && !out.repeated)
        && let Err(e) = ws.start_capture(&c.record.id)
    {
        out.warnings.push(format!("the capture could not be started, so this turn has no checkpoint: {e}"));
        tell(cx, &ws, &out, "")?;
        return Ok(PARTIAL);
    }
    told_in_flight(cx, &ws, &out)
}

/// Begins a turn for a server: its session, id and number are told before the capture runs. Where that takes longer than
/// `prompt_time` the row is in flight, and its id comes back: the caller has it filled ([`capture_beside`]).
pub fn begin_beside(cx: &Context, a: TurnBegin, told: &dyn Fn(&str, &Begun)) -> Result<(u8, Option<String>)> {
    let prompt = checkpoint::prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let options = TurnOptions { session: session(cx, &ws)?, key: a.key, prompt, entry: a.entry };
    // Tools of a host that does not wait may run as soon as it is told.
    let time = match a.ungated {
        true => Duration::ZERO,
        false => Duration::from_millis(ws.settings().int("prompt_time")),
    };
    let told = |begun: &Begun| told(&options.session, begun);
    let out = ws.turn_begin_or_reserve(&options, time, !a.ungated, &told, &cx.control())?;
    match &out.checkpoint {
        Some(c) if c.record.in_flight() && !out.repeated => Ok((0, Some(c.record.id.clone()))),
        _ => Ok((told_in_flight(cx, &ws, &out)?, None)),
    }
}

/// Fills a row in flight.
pub fn capture_beside(cx: &Context, id: &str, at_work: &dyn Fn()) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let out = ws.turn_capture(id, at_work, &cx.control())?;
    tell(cx, &ws, &out, "")
}

/// Begins a turn; its session, id and number are told before the capture runs.
pub fn begin_told(cx: &Context, a: TurnBegin, told: &dyn Fn(&str, &Begun)) -> Result<u8> {
    let prompt = checkpoint::prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let options = TurnOptions { session: session(cx, &ws)?, key: a.key, prompt, entry: a.entry };
    let out = ws.turn_begin_told(&options, &|begun| told(&options.session, begun), &cx.control())?;
    tell(cx, &ws, &out, "")
}

/// Ends a turn.
pub fn end(cx: &Context, a: &TurnEnd) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let without = "No turn is open; no row was made.";
    // What never began has no end, and leaves no store behind.
    if !ws.has_store() {
        return tell(cx, &ws, &nothing(), without);
    }
    let session = session(cx, &ws)?;
    let out = ws.turn_end(&session, a.key.as_deref(), a.status.as_str(), &cx.control())?;
    tell(cx, &ws, &out, without)
}

/// Binds a turn to its conversation entry.
pub fn bind(cx: &Context, a: &TurnBind) -> Result<u8> {
    let mut ws = cx.workspace()?;
    ws.store()?;
    let session = session(cx, &ws)?;
    let (c, bound) = ws.turn_bind(&session, a.key.as_deref(), &a.entry)?;
    if cx.ui.json {
        cx.ui.document(json!({"checkpoint": view::checkpoint(&ws, &c), "bound": bound}))?;
        return Ok(0);
    }
    cx.ui.line(cx.ui.paint(style::ID, &c.record.id))?;
    cx.ui.finish()?;
    let entry = c.record.entry.as_deref().map(text::tame).unwrap_or_default();
    match bound {
        true => cx.ui.note(format!("{}: entry {entry}", about(&c))),
        false => cx.ui.warn(&format!("{} is bound to entry {entry} already; that stays", about(&c))),
    }
    Ok(0)
}

/// One end of a tool window.
pub fn tool(cx: &Context, a: ToolCall, before: bool) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let paths = inside::anywhere(&ws, &cx.folder, &a.paths)?;
    let options = ToolOptions {
        session: session(cx, &ws)?,
        call: a.call,
        tool: a.tool,
        agent: a.agent,
        // The workspace itself: all of it.
        paths: if paths.iter().any(|p| p.is_empty()) { Vec::new() } else { paths },
    };
    let out = ws.tool(before, &options, &cx.control())?;
    tell(cx, &ws, &out, "")
}

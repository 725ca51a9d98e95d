//! `turn` and `tool`: what a host calls around prompts and tools.

use backstitch::{
    checkpoint::Outcome,
    error::Result,
    record::{self, Checkpoint},
    tool::ToolOptions,
    turn::{Begun, TurnOptions},
    view,
    workspace::Workspace,
};
use serde_json::json;

use super::{checkpoint, flight};
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
    Outcome { checkpoint: None, skips: Vec::new(), missed: false, warnings: Vec::new(), read: (0, 0) }
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
    begin_told(cx, a, &|_, _| {})
}

/// Begins a turn whose capture goes on in another process.
fn begin_at_once(cx: &Context, a: TurnBegin) -> Result<u8> {
    let prompt = checkpoint::prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let options = TurnOptions { session: session(cx, &ws)?, key: a.key, prompt, entry: a.entry };
    let before = record::now_ms();
    let mut out = ws.turn_reserve(&options, !a.ungated)?;
    if let Some(c) = out.checkpoint.as_ref().filter(|c| c.record.in_flight() && c.record.created_ms >= before)
        && let Err(e) = flight::start(cx, &ws, &c.record.id)
    {
        out.warnings.push(format!("the capture could not be started, so this turn has no checkpoint: {e}"));
        tell(cx, &ws, &out, "")?;
        return Ok(PARTIAL);
    }
    tell(cx, &ws, &out, "")?;
    // That it goes on is no shortfall.
    Ok(if out.checkpoint.is_some_and(|c| c.record.in_flight()) { 0 } else { PARTIAL * u8::from(out.missed) })
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

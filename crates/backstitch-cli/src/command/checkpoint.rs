//! `checkpoint`

use std::{collections::BTreeMap, ffi::OsStr, path::Path};

use backstitch::{
    checkpoint::{Options, Outcome},
    error::{Error, Result},
    settings::show_bytes,
    view,
    workspace::Workspace,
};
use serde_json::{Value, json};

use crate::{
    ask,
    context::{Context, PARTIAL},
    inside,
    table::{Checkpoint, Scope},
    text,
    ui::style,
};

/// Records the present state.
pub fn run(cx: &Context, a: Checkpoint) -> Result<u8> {
    let prompt = prompt(cx, a.prompt.as_deref(), a.prompt_file.as_deref())?;
    let mut ws = cx.workspace()?;
    let first = !ws.has_store();
    let paths = inside::scope(&ws, &cx.folder, &a.paths)?;
    let options = Options {
        kind: a.kind.into(),
        label: a.label,
        prompt,
        entry: a.entry,
        session: cx.surroundings.session.clone(),
        turn_key: a.turn,
        agent: a.agent,
        tool: a.tool,
        retention: a.retention.map(Into::into),
        pin: a.pin,
        touched: a.scope == Scope::Touched,
        if_changed: a.if_changed,
        paranoid: a.paranoid,
        paths,
        ..Options::default()
    };
    let out = ws.checkpoint_in_turn(&options, &cx.control())?;
    cx.progress.stop();
    if cx.ui.json {
        document(cx, &ws, &out)?;
    } else {
        tell(cx, &out, first)?;
    }
    Ok(if out.is_partial() { PARTIAL } else { 0 })
}

/// The document about a row.
pub fn document(cx: &Context, ws: &Workspace, out: &Outcome) -> Result<()> {
    let row = out.checkpoint.as_ref().map_or(Value::Null, |c| view::checkpoint(ws, c));
    cx.ui.document(json!({"checkpoint": row, "warnings": out.warnings}))
}

/// A prompt as text or from a file.
pub fn prompt(cx: &Context, text: Option<&OsStr>, file: Option<&Path>) -> Result<Option<String>> {
    match (text, file) {
        (Some(text), _) => Ok(Some(text.to_string_lossy().into_owned())),
        (None, Some(file)) => read_prompt(cx, file).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_prompt(cx: &Context, file: &Path) -> Result<String> {
    let bytes = if file.as_os_str() == "-" {
        ask::read_stdin(&cx.interrupt)?
    } else {
        std::fs::read(file)
            .map_err(|e| Error::io(file, e).hint("name a file that holds the prompt; nothing was recorded"))?
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tell(cx: &Context, out: &Outcome, first: bool) -> Result<()> {
    let ui = &cx.ui;
    let Some(c) = &out.checkpoint else {
        ui.warn_all(&out.warnings);
        ui.note("Nothing changed since the last checkpoint; no row was made.");
        return Ok(());
    };
    let r = &c.record;
    ui.line(ui.paint(style::ID, &r.id))?;
    ui.line(r.summary.line())?;
    ui.finish()?;
    ui.warn_all(&out.warnings);
    tell_skips(cx, out);
    ui.note(format!("go back: backstitch restore {}", r.id));
    if first {
        ui.note("hint: `backstitch diff` shows what changed since, `backstitch list` every checkpoint.");
    }
    Ok(())
}

/// What was left out: against the rules always, by rule with `-v`, and counted in one line.
pub fn tell_skips(cx: &Context, out: &Outcome) {
    let mut by_reason: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for s in &out.skips {
        *by_reason.entry((s.reason.by_rule(), s.reason.as_str())).or_default() += 1;
    }
    if by_reason.is_empty() {
        return;
    }
    let list = |by_rule: bool| {
        let parts: Vec<String> = by_reason
            .iter()
            .filter(|((rule, _), _)| *rule == by_rule)
            .map(|((_, reason), n)| format!("{n} {reason}"))
            .collect();
        parts.join(", ")
    };
    let (against, by_rule) = (list(false), list(true));
    if !against.is_empty() {
        cx.ui.warn(&format!("not recorded: {against} (this checkpoint is partial)"));
    }
    if !by_rule.is_empty() {
        let more = if cx.ui.verbose { "" } else { "; -v lists them" };
        cx.ui.note(format!("left out by rule: {by_rule}{more}"));
    }
    let mut skips: Vec<_> = out.skips.iter().filter(|s| cx.ui.verbose || !s.reason.by_rule()).collect();
    skips.sort_by(|a, b| a.path.cmp(&b.path));
    let most = if cx.ui.verbose { usize::MAX } else { 20 };
    for s in skips.iter().take(most) {
        let bytes = s.bytes.map(|n| format!(", {}", show_bytes(n))).unwrap_or_default();
        let detail = s.detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
        cx.ui.note(format!("  {} ({}{bytes}){detail}", text::name(&s.path), s.reason.as_str()));
    }
    if skips.len() > most {
        cx.ui.note(format!("  and {} more; -v lists them", skips.len() - most));
    }
}

//! `sync`

use backstitch::{
    error::Result,
    settings::show_bytes,
    sync::{self, Options, Pulled, Pushed, Told},
};

use crate::{
    context::{Context, PARTIAL},
    table::{SyncPull, SyncPush},
    text,
    ui::style,
};

fn list(cx: &Context, head: &str, paths: &[Told]) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let ui = &cx.ui;
    ui.line(format!("\n{head}:"))?;
    let most = if ui.verbose { usize::MAX } else { 20 };
    for t in paths.iter().take(most) {
        ui.line(format!("  {} ({})", text::name(t.path.as_bytes()), text::tame(&t.what)))?;
    }
    if paths.len() > most {
        ui.line(format!("  and {} more; -v lists them", paths.len() - most))?;
    }
    Ok(())
}

/// Sends what the remote does not have.
pub fn push(cx: &Context, a: SyncPush) -> Result<u8> {
    let ws = cx.workspace()?;
    let options = Options {
        remote: sync::remote(&cx.folder, &a.remote),
        dry_run: a.dry_run,
        prompts: a.prompts,
        allow_secrets: a.allow_secrets,
        may_ask: cx.ui.can_ask,
    };
    let out: Pushed = ws.push(&options, &cx.control())?;
    cx.progress.stop();
    if cx.ui.json {
        cx.ui.document(serde_json::to_value(&out).unwrap_or_default())?;
        return Ok(0);
    }
    let verb = if out.dry_run { "to send" } else { "sent" };
    let n = text::count(out.checkpoints.len() as u64, "checkpoint");
    let new =
        format!("{n} {verb}, with {} of {}", text::count(out.contents, "content"), show_bytes(out.bytes));
    cx.ui.line(cx.ui.paint(style::BOLD, &new))?;
    list(cx, "left out", &out.left_out)?;
    list(cx, "looks like a secret", &out.secrets)?;
    Ok(0)
}

/// Takes what is not here.
pub fn pull(cx: &Context, a: SyncPull) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let options = Options {
        remote: sync::remote(&cx.folder, &a.remote),
        dry_run: a.dry_run,
        may_ask: cx.ui.can_ask,
        ..Options::default()
    };
    let out: Pulled = ws.pull(&options, &cx.control())?;
    cx.progress.stop();
    let code = if out.conflicts.is_empty() && out.refused.is_empty() { 0 } else { PARTIAL };
    if cx.ui.json {
        cx.ui.document(serde_json::to_value(&out).unwrap_or_default())?;
        return Ok(code);
    }
    let ui = &cx.ui;
    let verb = if out.dry_run { "to take" } else { "taken" };
    let n = text::count(out.checkpoints.len() as u64, "checkpoint");
    ui.line(ui.paint(style::BOLD, &format!("{n} {verb}")))?;
    if !out.sessions.is_empty() {
        let names: Vec<String> = out.sessions.iter().map(|s| text::tame(s)).collect();
        ui.line(format!("sessions: {}", names.join(", ")))?;
    }
    for c in &out.conflicts {
        let (name, kept) = (text::tame(&c.session), text::tame(&c.kept_as));
        let rows = text::count(c.checkpoints, "checkpoint");
        ui.line(format!("conflict: session {name} was continued on both sides; theirs is {kept} ({rows})"))?;
    }
    for r in &out.refused {
        ui.line(format!("refused: {} ({})", text::tame(&r.checkpoint), text::tame(&r.why)))?;
    }
    Ok(code)
}

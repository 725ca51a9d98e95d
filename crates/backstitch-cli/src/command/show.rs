//! `show`

use std::collections::BTreeMap;

use backstitch::{
    error::Result,
    record::{CHECKPOINTS, rfc3339},
    settings::show_bytes,
    space, view,
};
use serde_json::{Value, json};

use super::{diff, list};
use crate::{
    context::Context,
    table::Named,
    text::{self, Cell},
    ui::style,
};

/// A recorded git state in a line.
pub fn git(v: &Value) -> String {
    let text = |key: &str| v.get(key).and_then(Value::as_str);
    let number = |key: &str| v.get(key).and_then(Value::as_u64).unwrap_or(0);
    let at = text("commit").map_or("no commit yet", |c| c.get(..10).unwrap_or(c));
    let mut out = match text("branch") {
        Some(branch) => format!("{} at {at}", text::tame(branch)),
        None => format!("detached at {at}"),
    };
    if let Some(what) = text("operation") {
        out.push_str(&format!(", {what} under way"));
    }
    out.push_str(&format!(", {}", text::count(number("refs"), "ref")));
    if number("stashes") > 0 {
        out.push_str(&format!(", {} stashed", number("stashes")));
    }
    if v.get("seen").and_then(Value::as_bool) == Some(false) {
        out.push_str(" (as of the checkpoint before)");
    }
    out
}

/// The row, its coverage, its skips, and what changed in it.
pub fn run(cx: &Context, a: &Named) -> Result<u8> {
    cx.ui.page();
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let c = cx.find(&rows, &a.checkpoint)?;
    let (coverage, changes) = ws.show(c)?;
    cx.progress.stop();
    let account = ws.bytes(false, &cx.control())?;
    if cx.ui.json {
        let mut row = view::checkpoint(&ws, c);
        space::put_bytes(&mut row, c, account.as_ref());
        if let Some(m) = row.as_object_mut() {
            m.insert("skipped".to_owned(), json!(coverage.skips));
            m.insert("git".to_owned(), json!(ws.git_state(c)?));
        }
        let list: Vec<Value> = changes.iter().map(view::change).collect();
        cx.ui.document(json!({"checkpoint": row, "changes": list}))?;
        return Ok(0);
    }
    let r = &c.record;
    let ui = &cx.ui;
    let mut facts: Vec<(&str, String)> = vec![
        ("checkpoint", r.id.clone()),
        ("kind", r.kind.as_str().to_owned()),
        ("created", format!("{} ({})", text::age(r.created_ms, true), text::age(r.created_ms, false))),
    ];
    let mut fact = |name, value: Option<&str>| {
        if let Some(v) = value.filter(|v| !v.is_empty()) {
            facts.push((name, text::tame(v).replace('\n', "\n            ")));
        }
    };
    fact("label", r.label.as_deref());
    fact("session", r.session.as_deref());
    fact("turn", r.turn.map(|n| n.to_string()).as_deref());
    fact("agent", r.agent.as_deref());
    fact("tool", r.tool.as_deref());
    fact("entry", r.entry.as_deref());
    fact("prompt", r.prompt.as_deref().map(str::trim_end));
    fact("parent", r.parent.as_deref());
    fact("operation", r.operation.as_deref());
    fact("state", Some(&list::marks(c, None).join(", ")));
    fact("reason", r.reason.as_deref());
    fact("holds", Some(&text::count(r.files, "file")));
    fact("changed", Some(&r.summary.line()));
    let bytes = account.as_ref().and_then(|a| a.refs.get(&format!("{CHECKPOINTS}{}", r.id)));
    let bytes =
        bytes.map(|b| format!("{} of its own, {} shared", show_bytes(b.unique), show_bytes(b.shared)));
    fact("bytes", bytes.as_deref());
    fact("scope", Some(&r.scope));
    let retention = serde_json::to_value(r.retention).ok();
    fact("retention", retention.as_ref().and_then(Value::as_str));
    fact("git", ws.git_state(c)?.as_ref().map(git).as_deref());
    if ui.verbose {
        fact("recorded", Some(&rfc3339(r.created_ms)));
        fact("commit", Some(&c.commit.to_string()));
        fact("tree", Some(&c.tree.to_string()));
    }
    let table: Vec<Vec<Cell>> =
        facts.into_iter().map(|(n, v)| vec![Cell::styled(n, style::DIM), Cell::new(v)]).collect();
    ui.print(text::columns(&table, None, ui.colour))?;
    for n in &r.notes {
        ui.line(format!("note: {}", text::sentence(n)))?;
    }
    if let Some(covers) = &coverage.covers {
        let shown: Vec<String> = covers.iter().map(|p| text::unescaped(p)).collect();
        let what = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") };
        ui.line(format!(
            "\nlooked at {what}; everything else is carried from the row before, and unknown to restore"
        ))?;
    }
    if !coverage.skips.is_empty() {
        let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
        for s in &coverage.skips {
            *by_reason.entry(&s.reason).or_default() += 1;
        }
        let counts: Vec<String> = by_reason.iter().map(|(r, n)| format!("{n} {r}")).collect();
        ui.line(format!("\nleft out: {}", counts.join(", ")))?;
        let most = if ui.verbose { usize::MAX } else { 20 };
        for s in coverage.skips.iter().take(most) {
            let bytes = s.bytes.map(|n| format!(", {}", show_bytes(n))).unwrap_or_default();
            ui.line(format!("  {} ({}{bytes})", text::name(s.path.as_bytes()), s.reason))?;
        }
        if coverage.skips.len() > most {
            ui.line(format!("  and {} more; -v lists them", coverage.skips.len() - most))?;
        }
    }
    if changes.is_empty() {
        ui.line("\nno changes against the checkpoint before")?;
    } else {
        ui.line("")?;
        ui.print(diff::listing(ui, &changes))?;
    }
    Ok(0)
}

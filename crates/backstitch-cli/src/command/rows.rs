//! `pin`, `unpin`, `label`, `delete`

use backstitch::{error::Result, record::Checkpoint, view, workspace::Rows};
use serde_json::{Value, json};

use crate::{
    context::Context,
    table::{Label, Several},
    text,
    ui::style,
};

/// All names are understood before anything is changed.
fn find<'a>(cx: &Context, rows: &'a Rows, a: &Several) -> Result<Vec<&'a Checkpoint>> {
    let mut found: Vec<&Checkpoint> = Vec::new();
    for name in &a.checkpoints {
        let c = cx.find(rows, name)?;
        if !found.iter().any(|f| f.record.id == c.record.id) {
            found.push(c);
        }
    }
    Ok(found)
}

/// Keeps rows whatever the policy says, or no longer.
pub fn pin(cx: &Context, a: &Several, on: bool) -> Result<u8> {
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let changed = find(cx, &rows, a)?.into_iter().map(|c| ws.pin(c, on)).collect::<Result<Vec<_>>>()?;
    if cx.ui.json {
        let list: Vec<Value> = changed.iter().map(|c| view::checkpoint(&ws, c)).collect();
        cx.ui.document(json!({"checkpoints": list}))?;
    } else {
        for c in &changed {
            let word = if on { "pinned" } else { "not pinned" };
            cx.ui.line(format!("{} {word}", cx.ui.paint(style::ID, &c.record.id)))?;
        }
    }
    Ok(0)
}

/// Gives a row a label, or takes it away.
pub fn label(cx: &Context, a: &Label) -> Result<u8> {
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let c = ws.label(cx.find(&rows, &a.checkpoint)?, a.label.as_deref())?;
    if cx.ui.json {
        cx.ui.document(json!({"checkpoint": view::checkpoint(&ws, &c)}))?;
    } else {
        let shown = c.record.label.as_deref().map_or("has no label".to_owned(), text::tame);
        cx.ui.line(format!("{} {shown}", cx.ui.paint(style::ID, &c.record.id)))?;
    }
    Ok(0)
}

/// Moves rows to the trash.
pub fn delete(cx: &Context, a: &Several) -> Result<u8> {
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let found = find(cx, &rows, a)?;
    let operation = ws.delete(&found)?;
    let ids: Vec<&str> = found.iter().map(|c| c.record.id.as_str()).collect();
    if cx.ui.json {
        cx.ui.document(json!({"operation": operation, "deleted": ids}))?;
    } else {
        for id in ids {
            cx.ui.line(format!("{} deleted", cx.ui.paint(style::ID, id)))?;
        }
        cx.ui.finish()?;
        cx.ui.note("take it back: backstitch undo");
    }
    Ok(0)
}

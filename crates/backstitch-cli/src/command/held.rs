//! `files`

use backstitch::{error::Result, held::Held, settings::show_bytes, tree::Node, view};
use bstr::{BString, ByteSlice};

use crate::{
    context::Context,
    inside,
    table::Files,
    text::{self, Cell},
    ui::style,
};

/// What a row holds in a folder.
pub fn run(cx: &Context, a: &Files) -> Result<u8> {
    cx.ui.page();
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let c = cx.find(&rows, &a.checkpoint)?;
    let path = match &a.path {
        Some(p) => inside::one(&ws, &inside::base(&ws, &cx.folder), p)?,
        None => BString::default(),
    };
    let folder = ws.held(c, path.as_bstr(), a.recursive)?;
    cx.progress.stop();
    if cx.ui.json {
        cx.ui.document(view::folder(c, &folder))?;
        return Ok(0);
    }
    let ui = &cx.ui;
    let table: Vec<Vec<Cell>> = folder.entries.iter().map(line).collect();
    ui.print(text::columns(&table, None, ui.colour))?;
    for s in &folder.skips {
        let name = text::name(s.path.as_bytes());
        ui.line(ui.paint(style::DIM, &format!("not covered  {name}  ({})", text::tame(&s.reason))))?;
    }
    let files = folder.entries.iter().filter(|e| !e.node.is_dir());
    let (n, bytes) = files.fold((0, 0), |(n, b), e| (n + 1, b + e.bytes.unwrap_or(0)));
    let folders = folder.entries.len() as u64 - n;
    ui.line(format!(
        "{}, {}, {}",
        text::count(n, "file"),
        text::count(folders, "folder"),
        show_bytes(bytes)
    ))?;
    ui.finish()?;
    if folders > 0 && !a.recursive {
        ui.note("hint: -r lists what is in the folders, too.");
    }
    Ok(0)
}

fn line(e: &Held) -> Vec<Cell> {
    let mode = e.node.mode().map_or("link".to_owned(), |m| format!("{m:04o}"));
    let bytes = match e.node {
        Node::File { .. } => e.bytes.map(show_bytes).unwrap_or_default(),
        _ => String::new(),
    };
    let name = text::name(&e.path);
    let shown = match (&e.node, &e.target) {
        (Node::Dir { .. }, _) => Cell::styled(name + "/", style::BOLD),
        (_, Some(t)) => Cell::new(format!("{name} → {}", text::name(t))),
        _ => Cell::new(name),
    };
    vec![Cell::styled(mode, style::DIM), Cell::new(bytes).right(), shown]
}

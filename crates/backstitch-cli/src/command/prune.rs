//! `prune`

use backstitch::{error::Result, prune::Options, settings::show_bytes};

use crate::{
    context::{Context, PARTIAL},
    table::Prune,
    text::{self, Cell},
    ui::style,
};

/// Moves to the trash what the policy lets go, or tells what would go.
pub fn run(cx: &Context, a: &Prune) -> Result<u8> {
    let ws = cx.workspace()?;
    let out = ws.prune(&Options { dry_run: a.dry_run, ..Options::default() }, &cx.control())?;
    cx.progress.stop();
    let code = if out.failed.is_empty() { 0 } else { PARTIAL };
    if cx.ui.json {
        cx.ui.document(out.json())?;
        return Ok(code);
    }
    let table: Vec<Vec<Cell>> = out
        .rows
        .iter()
        .map(|p| {
            let r = &p.row.record;
            vec![
                Cell::styled(r.id.as_str(), style::ID),
                Cell::styled(text::age(r.created_ms, cx.ui.verbose), style::DIM).right(),
                Cell::new(r.kind.as_str()),
                Cell::new(p.why.as_str()),
                Cell::new(show_bytes(p.bytes)).right(),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    let mut what = text::count(out.rows.len() as u64, "checkpoint");
    if !out.operations.is_empty() {
        what = format!("{what} and {}", text::count(out.operations.len() as u64, "operation"));
    }
    let verb = if a.dry_run { "would go" } else { "went" };
    cx.ui.line(match out.rows.is_empty() && out.operations.is_empty() {
        true => "the policy lets nothing go".to_owned(),
        false => format!("{what} {verb} to the trash; collecting frees {}", show_bytes(out.bytes)),
    })?;
    cx.ui.finish()?;
    if a.dry_run && !out.rows.is_empty() {
        cx.ui.note("carry it out: backstitch prune");
    }
    for id in &out.failed {
        cx.ui.warn(&format!("{id} stays: it was changed meanwhile"));
    }
    if out.operation.is_some() {
        cx.ui.note("take it back: backstitch undo");
        cx.ui.note("free the space: backstitch gc");
    }
    Ok(code)
}

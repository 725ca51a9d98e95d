//! `operations`

use backstitch::{error::Result, operation::OpState, undo, view};
use serde_json::{Value, json};

use crate::{
    context::Context,
    table::Operations,
    text::{self, Cell},
    ui::style,
};

/// Lists operations, newest first, with what the next undo and redo would take back.
pub fn run(cx: &Context, a: &Operations) -> Result<u8> {
    cx.ui.page();
    let ws = cx.workspace()?;
    let all = ws.operations()?;
    let stacks = undo::stacks(&all, cx.session.as_deref());
    let id = |o: Option<&&backstitch::operation::Operation>| o.map(|o| o.record.id.clone());
    let (next_undo, next_redo) = (id(stacks.undo.last()), id(stacks.redo.last()));
    let undone = undo::undone(&all);
    let shown: Vec<_> = all
        .iter()
        .rev()
        .filter(|o| cx.session.as_ref().is_none_or(|s| o.record.session.as_ref() == Some(s)))
        .take(a.limit.unwrap_or(usize::MAX))
        .collect();
    if cx.ui.json {
        let list: Vec<Value> = shown
            .iter()
            .map(|o| {
                let mut v = view::operation(o);
                if let Some(m) = v.as_object_mut() {
                    m.insert("undone".to_owned(), undone.contains(o.record.id.as_str()).into());
                }
                v
            })
            .collect();
        cx.ui.document(json!({"operations": list, "next_undo": next_undo, "next_redo": next_redo}))?;
        return Ok(0);
    }
    let table: Vec<Vec<Cell>> = shown
        .iter()
        .map(|o| {
            let r = &o.record;
            let mut marks = Vec::new();
            match r.state {
                OpState::Done => {}
                OpState::Running => marks.push("running or interrupted"),
                OpState::RolledBack => marks.push("rolled back"),
            }
            if undone.contains(r.id.as_str()) {
                marks.push("undone");
            }
            if next_undo.as_ref() == Some(&r.id) {
                marks.push("next to undo");
            }
            if next_redo.as_ref() == Some(&r.id) {
                marks.push("next to redo");
            }
            let what = if r.rows.is_empty() {
                text::count(r.changed, "path")
            } else {
                text::count(r.rows.len() as u64, "checkpoint")
            };
            let marks = if marks.is_empty() { String::new() } else { format!(" [{}]", marks.join(", ")) };
            vec![
                Cell::styled(r.id.as_str(), style::ID),
                Cell::styled(text::age(r.created_ms, cx.ui.verbose), style::DIM).right(),
                Cell::new(r.kind.as_str()),
                Cell::styled(what, style::CHANGED),
                Cell::new(format!("{}{}{marks}", text::tame(&r.target), turns(&r.takes_back))),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    if shown.is_empty() {
        cx.ui.note("No operation was carried out here yet.");
    }
    Ok(0)
}

/// `, turns 2-4 taken back`
fn turns(list: &[u64]) -> String {
    match list {
        [] => String::new(),
        [n] => format!(", turn {n} taken back"),
        many => format!(", turns {} taken back", text::numbers(many)),
    }
}

//! `session`

use backstitch::{
    error::{Code, Error, Result},
    session::{self, Session},
    view,
    workspace::Workspace,
};
use serde_json::{Value, json};

use super::list;
use crate::{
    context::Context,
    table::{Fork, Purge, SessionDelete, SessionName},
    text::{self, Cell, ShortIds},
    ui::style,
};

fn facts(cx: &Context, s: &Session) -> Vec<Cell> {
    let mut marks = Vec::new();
    if let Some(n) = s.open_turn {
        marks.push(format!("turn {n} is open"));
    }
    if s.record.ended {
        marks.push("ended".to_owned());
    }
    if let Some(p) = &s.record.parent {
        marks.push(format!("forked from {}", text::tame(p)));
    }
    vec![
        Cell::styled(text::tame(&s.record.id), style::ID),
        Cell::styled(text::age(s.last_ms, cx.ui.verbose), style::DIM).right(),
        Cell::new(text::count(s.turns, "turn")).right(),
        Cell::new(text::count(s.rows, "checkpoint")).right(),
        Cell::new(marks.join(", ")),
    ]
}

/// Lists sessions.
pub fn list(cx: &Context) -> Result<u8> {
    let ws = cx.workspace()?;
    let all = ws.sessions()?;
    if cx.ui.json {
        cx.ui.document(json!({"sessions": all.iter().map(view::session).collect::<Vec<_>>()}))?;
        return Ok(0);
    }
    let table: Vec<Vec<Cell>> = all.iter().map(|s| facts(cx, s)).collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    if all.is_empty() {
        cx.ui.note("No session has checkpoints here.");
    }
    Ok(0)
}

/// A session and the rows of its line.
pub fn show(cx: &Context, a: &SessionName) -> Result<u8> {
    let ws = cx.workspace()?;
    let s = cx.known_session(&ws, a.id.as_deref())?;
    let rows = cx.rows(&ws)?;
    let left = session::abandoned(&rows, &ws.operations()?, Some(&s.record.id));
    let line = session::line(&rows, &ws.session_records()?, &s.record.id);
    if cx.ui.json {
        let list: Vec<Value> = line
            .iter()
            .map(|c| {
                let mut v = view::checkpoint(&ws, c);
                if let Some(m) = v.as_object_mut() {
                    m.insert("abandoned".to_owned(), left.contains(c.record.id.as_str()).into());
                }
                v
            })
            .collect();
        cx.ui.document(json!({"session": view::session(&s), "checkpoints": list}))?;
        return Ok(0);
    }
    cx.ui.print(text::columns(&[facts(cx, &s)], None, cx.ui.colour))?;
    let ids = ShortIds::of(&rows);
    let table: Vec<Vec<Cell>> = line.iter().map(|c| list::line(cx, &ids, c, None, &left)).collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    Ok(0)
}

/// Tells about a session that was changed.
fn tell(cx: &Context, ws: &Workspace, id: &str, said: &str) -> Result<u8> {
    let s = ws.sessions()?.into_iter().find(|s| s.record.id == id);
    if cx.ui.json {
        cx.ui.document(json!({"session": s.as_ref().map(view::session)}))?;
    } else {
        cx.ui.line(format!("{} {said}", cx.ui.paint(style::ID, &text::tame(id))))?;
    }
    Ok(0)
}

/// Starts a session from a row of another.
pub fn fork(cx: &Context, a: &Fork) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let from = cx.find(&rows, &a.from)?;
    let s = ws.fork(&a.new, from)?;
    let said = match &s.parent {
        Some(p) => format!("forked from {} at {}", text::tame(p), from.record.id),
        None => format!("started from {}", from.record.id),
    };
    tell(cx, &ws, &s.id, &said)
}

/// Ends a session. One that never had a row has nothing to end.
pub fn end(cx: &Context, a: &SessionName) -> Result<u8> {
    let mut ws = cx.workspace()?;
    let known = match ws.has_store() {
        true => cx.known_session(&ws, a.id.as_deref()),
        false => Err(Error::new(Code::NoSuchSession, "there is no session here")),
    };
    match known {
        Ok(s) => {
            let id = ws.session_end(&s.record.id)?.id;
            tell(cx, &ws, &id, "ended")
        }
        Err(e) if e.code == Code::NoSuchSession => {
            if cx.ui.json {
                cx.ui.document(json!({"session": null}))?;
            }
            cx.ui.note(format!("{}; nothing was to be ended.", e.message));
            Ok(0)
        }
        Err(e) => Err(e),
    }
}

/// Moves all rows of a session to the trash.
pub fn delete(cx: &Context, a: &SessionDelete) -> Result<u8> {
    let ws = cx.workspace()?;
    let (operation, ids) = ws.session_delete(&a.id, a.force)?;
    if cx.ui.json {
        cx.ui.document(json!({"operation": operation, "session": a.id, "deleted": ids}))?;
        return Ok(0);
    }
    let count = text::count(ids.len() as u64, "checkpoint");
    cx.ui.line(format!("{} deleted, {count}", cx.ui.paint(style::ID, &text::tame(&a.id))))?;
    cx.ui.finish()?;
    cx.ui.note("take it back: backstitch undo");
    Ok(0)
}

/// Removes a session for good.
pub fn purge(cx: &Context, a: &Purge) -> Result<u8> {
    let ws = cx.workspace()?;
    cx.warn_for_good(&format!("session {} with its trash and operations", text::tame(&a.id)), a.yes)?;
    let gone = ws.session_purge(&a.id, a.force, &cx.control())?;
    cx.progress.stop();
    if cx.ui.json {
        cx.ui.document(json!({
            "session": a.id,
            "deleted": gone.rows,
            "trash": gone.trash,
            "operations": gone.operations,
        }))?;
        return Ok(0);
    }
    let count = text::count((gone.rows.len() + gone.trash.len()) as u64, "checkpoint");
    cx.ui.line(format!("{} purged, {count}", cx.ui.paint(style::ID, &text::tame(&a.id))))?;
    Ok(0)
}

//! `cat` and `log`

use std::os::unix::ffi::OsStrExt;

use backstitch::{
    error::{Code, Error, Result},
    paths,
    record::Checkpoint,
    view,
    workspace::Rows,
};
use bstr::ByteSlice;
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    inside,
    table::{Cat, Log},
    text::{self, Cell, ShortIds},
    ui::{put_path, style},
};

/// Splits `CHECKPOINT:PATH` at the first colon before which a name stands: names hold colons, too.
fn split<'a, 'b>(cx: &Context, rows: &'a Rows, what: &'b [u8]) -> Result<(&'a Checkpoint, &'b [u8])> {
    let mut first: Option<Error> = None;
    for (at, _) in what.iter().enumerate().filter(|(_, b)| **b == b':') {
        match cx.find(rows, std::ffi::OsStr::from_bytes(&what[..at])) {
            Ok(c) => return Ok((c, &what[at + 1..])),
            Err(e) => {
                // What is ambiguous says more than what is unknown.
                let better =
                    first.as_ref().is_none_or(|f| f.code != Code::Ambiguous && e.code == Code::Ambiguous);
                if better {
                    first = Some(e);
                }
            }
        }
    }
    Err(first.unwrap_or_else(|| {
        Error::new(Code::Usage, format!("{:?} holds no colon", what.to_str_lossy()))
            .hint("a file is named as CHECKPOINT:PATH, such as `@:src/main.rs`")
    }))
}

/// A file as a row holds it.
pub fn cat(cx: &Context, a: &Cat) -> Result<u8> {
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let (c, path) = split(cx, &rows, a.what.as_bytes())?;
    if path.is_empty() {
        return Err(Error::new(Code::Usage, "the path is empty").hint("a file is named as CHECKPOINT:PATH"));
    }
    let path = inside::of_row(&ws, &cx.folder, path)?;
    if cx.ui.json {
        let mut content = Vec::new();
        ws.cat(c, path.as_bstr(), &mut content)?;
        let mut m = Map::new();
        m.insert("checkpoint".to_owned(), c.record.id.clone().into());
        put_path(&mut m, "path", path.as_bstr());
        m.insert("bytes".to_owned(), content.len().into());
        m.insert("content_base64".to_owned(), paths::base64(&content).into());
        cx.ui.document(Value::Object(m))?;
    } else {
        ws.cat(c, path.as_bstr(), &mut cx.ui.writer())?;
    }
    Ok(0)
}

/// Rows that changed a path.
pub fn log(cx: &Context, a: &Log) -> Result<u8> {
    let ws = cx.workspace()?;
    let path = inside::one(&ws, &inside::base(&ws, &cx.folder), &a.path)?;
    let mut found = ws.log(path.as_bstr())?;
    found.truncate(a.limit.unwrap_or(usize::MAX));
    if let Some(s) = &cx.session {
        found.retain(|(c, _)| c.record.session.as_ref() == Some(s));
    }
    cx.progress.stop();
    if cx.ui.json {
        let entries: Vec<Value> = found
            .iter()
            .map(
                |(c, change)| json!({"checkpoint": view::checkpoint(&ws, c), "change": view::change(change)}),
            )
            .collect();
        let mut m = Map::new();
        put_path(&mut m, "path", path.as_bstr());
        m.insert("entries".to_owned(), entries.into());
        cx.ui.document(Value::Object(m))?;
        return Ok(0);
    }
    let rows = cx.rows(&ws)?;
    let ids = ShortIds::of(&rows);
    let table: Vec<Vec<Cell>> = found
        .iter()
        .map(|(c, change)| {
            let r = &c.record;
            let id = if cx.ui.verbose { &r.id } else { ids.short(&r.id) };
            let mut about = text::cut(&text::headline(c), 60);
            if let Some((a, b)) = change.mode_change {
                about = format!("[mode {a:04o} → {b:04o}] {about}");
            }
            vec![
                Cell::styled(id, style::ID),
                Cell::styled(text::age(r.created_ms, cx.ui.verbose), style::DIM).right(),
                Cell::new(change.status.as_str()),
                Cell::new(r.kind.as_str()),
                Cell::new(about.trim_end()),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    Ok(0)
}

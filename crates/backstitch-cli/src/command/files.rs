//! `cat`, `log` and `blame`

use std::os::unix::ffi::OsStrExt;

use backstitch::{
    error::{Code, Error, Result},
    history::{By, Entry},
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
    table::{Blame, Cat, Log},
    text::{self, Cell, ShortIds},
    ui::style,
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
        view::put_path(&mut m, "path", path.as_bstr());
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
    cx.ui.page();
    let ws = cx.workspace()?;
    let path = inside::one(&ws, &inside::base(&ws, &cx.folder), &a.path)?;
    let mut found = ws.log(path.as_bstr())?;
    if let Some(s) = &cx.session {
        found.retain(|e| e.checkpoint.record.session.as_ref() == Some(s));
    }
    found.truncate(a.limit.unwrap_or(usize::MAX));
    cx.progress.stop();
    if cx.ui.json {
        let entries: Vec<Value> = found
            .iter()
            .map(|e| {
                json!({
                    "checkpoint": view::checkpoint(&ws, &e.checkpoint),
                    "change": view::change(&e.change),
                    "by": view::by(&e.by),
                })
            })
            .collect();
        let mut m = Map::new();
        view::put_path(&mut m, "path", path.as_bstr());
        m.insert("entries".to_owned(), entries.into());
        cx.ui.document(Value::Object(m))?;
        return Ok(0);
    }
    let rows = cx.rows(&ws)?;
    let ids = ShortIds::of(&rows);
    let many = several(found.iter().map(|e| &e.by));
    let table: Vec<Vec<Cell>> = found
        .iter()
        .map(|Entry { checkpoint: c, change, by }| {
            let r = &c.record;
            let id = if cx.ui.verbose { &r.id } else { ids.short(&r.id) };
            // A tool that said nothing is named as the author already.
            let silent = r.label.is_none() && r.prompt.is_none() && by.tool == r.tool;
            let mut about = if silent { String::new() } else { text::cut(&text::headline(c), 60) };
            if let Some((a, b)) = change.mode_change {
                about = format!("[mode {a:04o} → {b:04o}] {about}");
            }
            if let Some(old) = &change.old_path {
                about = format!("[was {}] {about}", text::name(old));
            }
            vec![
                Cell::styled(id, style::ID),
                Cell::styled(text::age(r.created_ms, cx.ui.verbose), style::DIM).right(),
                Cell::new(change.status.as_str()),
                Cell::new(r.kind.as_str()),
                Cell::styled(author(by, many), style::CHANGED),
                Cell::new(about.trim_end()),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    Ok(0)
}

/// More than one session is among them, so that each is named.
fn several<'a>(by: impl Iterator<Item = &'a By>) -> bool {
    let mut all: Vec<&str> = by.filter_map(|b| b.session.as_deref()).collect();
    all.sort_unstable();
    all.dedup();
    all.len() > 1
}

/// `turn 3 write (helper)`, `restore`, `outside`.
fn author(by: &By, several: bool) -> String {
    let session = by.session.as_deref().filter(|_| several).map(|s| format!("{s}/")).unwrap_or_default();
    let said = match by.who {
        "turn" => {
            let mut said = format!("{session}turn {}", by.turn.unwrap_or(0));
            for (before, word, after) in [(" ", &by.tool, ""), (" (", &by.agent, ")")] {
                if let Some(w) = word {
                    said.push_str(&format!("{before}{w}{after}"));
                }
            }
            said
        }
        "shared" => by.sessions.join(" or "),
        who => who.to_owned(),
    };
    text::tame(&said)
}

/// Who wrote each line.
pub fn blame(cx: &Context, a: &Blame) -> Result<u8> {
    cx.ui.page();
    let ws = cx.workspace()?;
    let path = inside::one(&ws, &inside::base(&ws, &cx.folder), &a.path)?;
    let rows = cx.rows(&ws)?;
    let at = a.at.as_ref().map(|name| cx.find(&rows, name)).transpose()?;
    let b = ws.blame(path.as_bstr(), at)?;
    cx.progress.stop();
    if cx.ui.json {
        cx.ui.document(view::blame(&b))?;
        return Ok(0);
    }
    let ids = ShortIds::of(&rows);
    let many = several(b.lines.iter().map(|l| &b.versions[l.version].by));
    let table: Vec<Vec<Cell>> = b
        .lines
        .iter()
        .enumerate()
        .map(|(n, l)| {
            let v = &b.versions[l.version];
            let (id, age) = match &v.row {
                Some(c) if cx.ui.verbose => (c.record.id.as_str(), text::age(c.record.created_ms, true)),
                Some(c) => (ids.short(&c.record.id), text::age(c.record.created_ms, false)),
                None => ("", "not recorded".to_owned()),
            };
            let line = l.text.strip_suffix(b"\n").unwrap_or(&l.text).to_str_lossy();
            vec![
                Cell::styled(id, style::ID),
                Cell::styled(author(&v.by, many), style::CHANGED),
                Cell::styled(age, style::DIM).right(),
                Cell::new((n + 1).to_string()).right(),
                Cell::new(text::tame(&line)),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    Ok(0)
}

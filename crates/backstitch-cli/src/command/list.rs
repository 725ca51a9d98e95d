//! `list`

use std::collections::{BTreeMap, HashSet};

use backstitch::{
    error::{Code, Error, Result},
    names,
    record::{Checkpoint, Kind, State},
    session, space, view,
};
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    table::List,
    text::{self, Cell, ShortIds},
    ui::style,
};

/// Lists rows, newest first.
pub fn run(cx: &Context, a: &List) -> Result<u8> {
    let since = match &a.since {
        None => None,
        Some(text) => Some(names::parse_time(text, 0).ok_or_else(|| {
            Error::new(Code::Usage, format!("{text:?} is not a time"))
                .hint("times look like 10m, 2h, 3d, 14:05 or 2026-01-31T14:05:00Z")
        })?),
    };
    let kind: Option<Kind> = a.kind.map(Into::into);
    cx.ui.page();
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let left = session::abandoned(&rows, &ws.operations()?, cx.session.as_deref());
    // A fork's line begins with its parent's rows.
    let line_of: Option<HashSet<&str>> = cx
        .session
        .as_ref()
        .map(|s| session::line(&rows, &rows.sessions, s).iter().map(|c| c.record.id.as_str()).collect());
    let hidden = |k: Kind| !a.all && kind.is_none() && matches!(k, Kind::Tool | Kind::AgentRun);
    let mut chosen: Vec<&Checkpoint> = rows
        .all
        .iter()
        .rev()
        .filter(|c| {
            let r = &c.record;
            kind.is_none_or(|k| k == r.kind)
                && !hidden(r.kind)
                && (a.all || !left.contains(r.id.as_str()))
                && since.is_none_or(|t| r.created_ms >= t)
                && line_of.as_ref().is_none_or(|l| l.contains(r.id.as_str()))
        })
        .take(a.limit.unwrap_or(usize::MAX))
        .collect();
    if a.reverse {
        chosen.reverse();
    }
    let broken: BTreeMap<&str, String> = if a.check {
        let found = ws.check_all(&rows)?;
        let unfit = |c: &Checkpoint| {
            (!c.record.is_restorable()).then(|| match c.record.state {
                State::Failed => "failed".to_owned(),
                State::Gap => "a gap".to_owned(),
                _ => "implausibly empty".to_owned(),
            })
        };
        found
            .into_iter()
            .filter_map(|(c, why)| Some((c.record.id.as_str(), why.or_else(|| unfit(c))?)))
            .collect()
    } else {
        BTreeMap::new()
    };
    cx.progress.stop();
    if cx.ui.json {
        let account = ws.has_store().then(|| ws.bytes(true, &cx.control())).transpose()?.flatten();
        let list = chosen.iter().map(|c| {
            let mut v = view::checkpoint(&ws, c);
            space::put_bytes(&mut v, c, account.as_ref());
            if let Some(m) = v.as_object_mut() {
                m.insert("abandoned".to_owned(), left.contains(c.record.id.as_str()).into());
            }
            if let Some(m) = v.as_object_mut().filter(|_| a.check) {
                let why = broken.get(c.record.id.as_str());
                m.insert("restorable".to_owned(), why.is_none().into());
                m.insert("problem".to_owned(), why.cloned().into());
            }
            v
        });
        let damaged = rows.damaged.iter().map(|(name, why)| json!({"row": name, "why": why})).collect();
        let rest = Map::from_iter([("damaged".to_owned(), Value::Array(damaged))]);
        cx.ui.listing("checkpoints", list, rest)?;
    } else {
        let ids = ShortIds::of(&rows);
        // Whose a row is, where that is a question.
        let several =
            chosen.iter().filter_map(|c| c.record.session.as_deref()).collect::<HashSet<_>>().len() > 1;
        let table: Vec<Vec<Cell>> = chosen
            .iter()
            .map(|c| {
                let mut cells = line(cx, &ids, c, broken.get(c.record.id.as_str()), &left);
                if several {
                    let session = c.record.session.as_deref().unwrap_or_default();
                    cells.insert(2, Cell::styled(text::cut(&text::tame(session), 16), style::DIM));
                }
                cells
            })
            .collect();
        cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
        cx.ui.finish()?;
        let unfit = chosen.iter().filter(|c| broken.contains_key(c.record.id.as_str())).count() as u64;
        if unfit > 0 {
            cx.ui.warn(&format!("{} cannot be restored", text::count(unfit, "checkpoint")));
        }
        if chosen.is_empty() && !rows.all.is_empty() {
            cx.ui
                .note("No checkpoint matches; `--all` lists those of tools and of turns taken back as well.");
        }
    }
    // What could be listed is listed; damage is in the marks and the warnings.
    let lost = rows.all.is_empty() && !rows.damaged.is_empty();
    Ok(if lost { Code::StoreDamaged.exit() } else { 0 })
}

/// Words that set a row apart.
pub fn marks(c: &Checkpoint, broken: Option<&String>) -> Vec<String> {
    let r = &c.record;
    let mut marks = Vec::new();
    match r.state {
        State::Complete => {}
        State::Partial => marks.push("partial".to_owned()),
        State::Failed => marks.push("failed".to_owned()),
        State::Gap => marks.push("gap".to_owned()),
    }
    if r.pinned {
        marks.push("pinned".to_owned());
    }
    if let Some(why) = broken {
        marks.push(format!("cannot be restored: {}", text::tame(why)));
    }
    marks
}

/// One row of the list.
pub fn line(
    cx: &Context,
    ids: &ShortIds,
    c: &Checkpoint,
    broken: Option<&String>,
    left: &HashSet<&str>,
) -> Vec<Cell> {
    let r = &c.record;
    let id = if cx.ui.verbose { &r.id } else { ids.short(&r.id) };
    let kind = match r.turn {
        Some(n) => format!("{} {n}", r.kind.as_str()),
        None => r.kind.as_str().to_owned(),
    };
    let mut about = text::headline(c);
    if !cx.ui.verbose {
        about = text::cut(&about, 60);
    }
    let mut marks = marks(c, broken);
    if let Some(phase) = &r.phase {
        marks.insert(0, text::tame(phase));
    }
    if let Some(status) = r.status.as_deref().filter(|s| *s != "completed") {
        marks.push(text::tame(status));
    }
    if left.contains(r.id.as_str()) {
        marks.push("taken back".to_owned());
    }
    if !marks.is_empty() {
        about = format!("[{}] {about}", marks.join(", "));
    }
    // Where there is little room the signs say enough.
    let mut size = r.summary.line();
    if let (Some((_, signs)), true) = (size.split_once(": "), cx.ui.width().is_some_and(|w| w < 70)) {
        size = signs.to_owned();
    }
    vec![
        Cell::styled(id, style::ID),
        Cell::styled(text::age(r.created_ms, cx.ui.verbose), style::DIM).right(),
        Cell::new(kind),
        Cell::styled(size, style::CHANGED),
        Cell::new(about.trim_end()),
    ]
}

//! `rewind` and `revert`

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use backstitch::{
    error::{Code, Error, Result},
    record::Kind,
    rewind::Options,
    session,
    workspace::Workspace,
};

use super::restore;
use crate::{
    ask,
    context::Context,
    inside,
    table::{Change, Rewind},
    text::{self, Cell},
    ui::style,
};

/// How much is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A turn and all later ones.
    Since,
    /// One turn.
    Only,
}

/// Takes back what a session did in a turn.
pub fn run(cx: &Context, a: Rewind, reach: Reach) -> Result<u8> {
    if a.to.is_none() && !cx.ui.can_ask {
        return Err(Error::new(Code::Usage, "which turn is to be taken back is not said").hint(
            "name it: `backstitch rewind 3`; `backstitch session show` lists the turns. Nothing was changed",
        ));
    }
    let ws = cx.workspace()?;
    ws.store()?;
    let (named, to) = match &a.to {
        Some(to) => narrowed(cx, &ws, to)?,
        None => (None, String::new()),
    };
    let session = cx.known_session(&ws, named.as_deref())?.record.id;
    let to = if a.to.is_none() { choose(cx, &ws, &session, reach)? } else { to };
    let (paths, globs, busy) = inside::change(&ws, &cx.folder, &a.change, a.outside)?;
    let Change { dry_run, no_delete, no_safety, plan, privileged, yes, .. } = a.change;
    let mut options = Options {
        to,
        session: Some(session),
        paths,
        globs,
        dry_run,
        busy,
        on_conflict: a.on_conflict.map(Into::into).unwrap_or_default(),
        include_unattributed: a.include_unattributed,
        no_delete,
        no_safety,
        plan,
        privileged,
        force: a.force,
        replaced: a.replaced,
        outside: a.outside,
        markers: a.markers,
    };
    let step = |o: &Options| match reach {
        Reach::Since => ws.rewind(o, &cx.control()),
        Reach::Only => ws.revert(o, &cx.control()),
    };
    // Who names a plan has seen it.
    if cx.ui.can_ask && !yes && !dry_run && options.plan.is_none() {
        options.plan = restore::agreed(cx, step(&Options { dry_run: true, ..options.clone() })?)?;
    }
    let out = step(&options)?;
    cx.progress.stop();
    restore::finish(&cx.ui, &out, "undo")
}

/// `SESSION/turn:N` names the session as well.
fn narrowed(cx: &Context, ws: &Workspace, to: &OsStr) -> Result<(Option<String>, String)> {
    let to = String::from_utf8_lossy(to.as_bytes()).into_owned();
    let Some((s, rest)) = to.split_once('/') else { return Ok((None, to)) };
    // Labels may hold a slash.
    if !ws.sessions()?.iter().any(|x| x.record.id == s) {
        return Ok((None, to));
    }
    if cx.session.as_deref().is_some_and(|typed| typed != s) {
        return Err(Error::new(Code::Usage, format!("{to:?} is not of the session that --session names"))
            .hint("leave one of them out; nothing was changed"));
    }
    Ok((Some(s.to_owned()), rest.to_owned()))
}

/// A list of turns to choose from.
fn choose(cx: &Context, ws: &Workspace, id: &str, reach: Reach) -> Result<String> {
    let rows = cx.rows(ws)?;
    let left = session::abandoned(&rows, &ws.operations()?, Some(id));
    let line = session::line(&rows, &ws.session_records()?, id);
    let turns: Vec<_> = line
        .iter()
        .filter(|c| c.record.kind == Kind::Prompt && !left.contains(c.record.id.as_str()))
        .collect();
    let table: Vec<Vec<Cell>> = turns
        .iter()
        .map(|c| {
            vec![
                Cell::styled(c.record.turn.map(|n| n.to_string()).unwrap_or_default(), style::ID).right(),
                Cell::styled(text::age(c.record.created_ms, cx.ui.verbose), style::DIM).right(),
                Cell::new(text::headline(c)),
            ]
        })
        .collect();
    let Some(last) = turns.last().and_then(|c| c.record.turn) else {
        return Err(Error::new(Code::NoSuchCheckpoint, format!("session {id:?} has no turn to take back"))
            .hint("`backstitch list --all` shows every checkpoint"));
    };
    cx.progress.clear();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    cx.ui.finish()?;
    let which = match reach {
        Reach::Since => "which turn, and all after it",
        Reach::Only => "which turn",
    };
    let question = format!("Take back {which}? [{last} is the newest; Enter: none] ");
    let answer = ask::line(&question, &cx.interrupt)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.is_empty() || matches!(answer.as_str(), "q" | "n" | "no") {
        return Err(Error::new(Code::Interrupted, "no turn was chosen; nothing was changed")
            .hint("`backstitch rewind N` takes back turn N and all after it"));
    }
    match answer.parse::<u64>() {
        Ok(n) if turns.iter().any(|c| c.record.turn == Some(n)) => Ok(format!("turn:{n}")),
        _ => Err(Error::new(
            Code::NoSuchCheckpoint,
            format!("{answer:?} is not the number of a turn in the list"),
        )
        .hint("nothing was changed")),
    }
}

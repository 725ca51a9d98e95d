//! `rewind` and `revert`

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use backstitch::{
    error::{Code, Error, Result},
    record::Kind,
    rewind::Options,
    workspace::{Rows, Workspace},
};

use super::restore;
use crate::{
    context::Context,
    inside, picker,
    table::{Change, Rewind},
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
    // Who chooses from a list sees all sessions in it, unless one is named.
    let session = match (&a.to, &cx.surroundings.session) {
        (None, None) => None,
        _ => Some(cx.known_session(&ws, named.as_deref())?.record.id),
    };
    let (paths, globs, busy) = inside::change(&ws, &cx.folder, &a.change, a.outside)?;
    let Change { dry_run, no_delete, no_safety, plan, privileged, yes, .. } = a.change;
    let mut options = Options {
        to,
        session,
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
    if a.to.is_none() {
        return picker::run(cx, &ws, picker::Start { options, plain: a.plain, browse: a.browse });
    }
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
    let code = restore::finish(&cx.ui, &out, "undo")?;
    if !out.items.iter().any(|i| i.action.changes())
        && let Some(turn) = cut_short(&cx.rows(&ws)?, options.session.as_deref())
    {
        cx.ui.note(format!(
            "Turn {turn} has not ended, and nothing was recorded since it began to change files. If its agent is gone, \
             `backstitch checkpoint` looks at what it left; then ask again."
        ));
    }
    Ok(code)
}

/// The turn of a session whose last tool began as the last thing that was recorded: what it changed is in no row yet.
fn cut_short(rows: &Rows, session: Option<&str>) -> Option<u64> {
    let r = &rows.newest()?.record;
    let begun = r.kind == Kind::Prompt || r.kind == Kind::Tool && r.phase.as_deref() == Some("before");
    r.turn.filter(|_| begun && r.session.as_deref() == session)
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

//! `undo` and `redo`

use backstitch::{
    error::{Code, Error, Result},
    operation::Outcome,
    undo::{OnConflict, Options},
    view,
    workspace::Workspace,
};
use serde_json::{Value, json};

use super::restore;
use crate::{
    context::{Context, PARTIAL},
    problem,
    table::Walk,
};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Back.
    Undo,
    /// Forward.
    Redo,
}

impl Direction {
    /// The command that takes it back.
    fn back(self) -> &'static str {
        match self {
            Direction::Undo => "redo",
            Direction::Redo => "undo",
        }
    }
}

fn step(cx: &Context, ws: &Workspace, way: Direction, options: &Options) -> Result<Outcome> {
    match way {
        Direction::Undo => ws.undo(options, &cx.control()),
        Direction::Redo => ws.redo(options, &cx.control()),
    }
}

/// Walks the operations, one step or more.
pub fn run(cx: &Context, a: &Walk, way: Direction) -> Result<u8> {
    if a.dry_run && a.steps > 1 {
        return Err(Error::new(Code::Usage, "--dry-run shows one step").hint("leave the number of steps out"));
    }
    if a.plan.is_some() && a.steps > 1 {
        return Err(Error::new(Code::Usage, "--plan is about one step").hint("leave the number of steps out"));
    }
    let on_conflict = a.on_conflict.map(Into::into);
    let ws = cx.workspace()?;
    ws.store()?;
    let mut options = Options {
        operation: a.operation.clone(),
        session: cx.surroundings.session.clone(),
        on_conflict,
        dry_run: a.dry_run,
        plan: a.plan.clone(),
        force: a.force,
        replaced: a.replaced,
        markers: a.markers,
    };
    // By default only what the operation itself left is changed; asked is before newer work is overwritten.
    let ask = cx.ui.can_ask
        && !a.yes
        && !a.dry_run
        && options.plan.is_none()
        && options.on_conflict == Some(OnConflict::Overwrite);
    if ask {
        let preview = step(cx, &ws, way, &Options { dry_run: true, ..options.clone() })?;
        options.plan = restore::agreed(cx, preview)?;
    }
    if a.steps == 1 {
        let out = step(cx, &ws, way, &options)?;
        cx.progress.stop();
        return restore::finish(&cx.ui, &out, way.back());
    }
    many(cx, &ws, a.steps, way, options)
}

/// Stops at the first error, and says how far it came.
fn many(cx: &Context, ws: &Workspace, steps: u32, way: Direction, mut options: Options) -> Result<u8> {
    let mut done: Vec<Outcome> = Vec::new();
    let mut stopped: Option<Error> = None;
    for _ in 0..steps {
        let result = step(cx, ws, way, &options);
        // What was looked at was the first one.
        options.plan = None;
        match result {
            Ok(out) => done.push(out),
            Err(e) => {
                stopped = Some(e);
                break;
            }
        }
    }
    cx.progress.stop();
    let Some(last) = done.last() else {
        return Err(stopped.unwrap_or_else(|| {
            Error::new(Code::Usage, "there is no step to take").hint("the number of steps is at least 1")
        }));
    };
    let name = if way == Direction::Undo { "undo" } else { "redo" };
    let partial = stopped.is_some() || done.iter().any(|o| o.partial);
    if cx.ui.json {
        let mut v = view::outcome(last);
        if let Some(m) = v.as_object_mut() {
            m.insert("partial".to_owned(), partial.into());
            m.insert("steps".to_owned(), done.iter().map(view::outcome).collect());
            let why = stopped.as_ref().map_or(Value::Null, |e| problem::document(e)["error"].clone());
            m.insert("stopped".to_owned(), json!(why));
        }
        cx.ui.document(v)?;
    } else {
        for (n, out) in done.iter().enumerate() {
            cx.ui.line(format!("{name} {} of {steps}: {}", n + 1, out.target))?;
            restore::tell(&cx.ui, out, "")?;
        }
        cx.ui.finish()?;
        if let Some(e) = &stopped {
            problem::report(&cx.ui, e);
            cx.ui.say(format!("{name}: stopped after {} of {steps} steps.", done.len()));
        }
        cx.ui.note(format!("take it back: backstitch {} {}", way.back(), done.len()));
    }
    match stopped {
        Some(e) if e.code == Code::Interrupted => Ok(e.code.exit()),
        _ => Ok(if partial { PARTIAL } else { 0 }),
    }
}

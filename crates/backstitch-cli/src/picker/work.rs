//! All that touches the folder and the store: calls of the engine.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use backstitch::{
    diff,
    error::{Code, Error, Result},
    operation::Outcome,
    restore, rewind, session, undo,
    workspace::{Control, Workspace},
};
use bstr::BString;

use super::{
    timeline::{self, Entry},
    value::{Answer, Ask, Choice, Effect, Look},
};
use crate::context::Context;

/// Turns with more changed files are listed without counting lines.
const COUNTED: usize = 300;

/// The engine at work on one folder.
pub struct Desk<'a> {
    /// The folder.
    pub ws: &'a Workspace,
    /// What every rewind, revert and restore is told.
    pub options: rewind::Options,
    /// In whose name this happens.
    session: Option<String>,
}

impl<'a> Desk<'a> {
    /// For a folder.
    pub fn new(cx: &Context, ws: &'a Workspace, options: rewind::Options) -> Desk<'a> {
        Desk { ws, options, session: cx.surroundings.session.clone() }
    }

    /// The list as it is now.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let rows = self.ws.rows()?;
        let of = self.options.session.as_deref();
        let left = session::abandoned(&rows, &self.ws.operations()?, of);
        let line: Option<HashSet<&str>> = of.map(|s| {
            session::line(&rows, &rows.sessions, s).into_iter().map(|c| c.record.id.as_str()).collect()
        });
        Ok(timeline::entries(&rows, &left, of.zip(line.as_ref())))
    }

    /// Carries out what the model asks for.
    pub fn run(&self, effect: Effect, control: &Control<'_>) -> Answer {
        match effect {
            Effect::Look(e) => Answer::Looked(e.row.clone(), self.look(&e, control)),
            Effect::Patch(e, path) => {
                let patch =
                    self.compare(&e, vec![path.clone()], true, control).map(|d| d.patch.unwrap_or_default());
                Answer::Patched(e.row, path, patch)
            }
            Effect::Marks(e) => {
                let marks = self
                    .plan(&Ask::Rewind(e.clone()), &Choice::of(&self.options), None, control)
                    .map(|out| {
                        let kept = out.items.into_iter().filter(|i| !i.action.changes());
                        kept.map(|i| (i.path, (i.action, i.reason.unwrap_or_default())))
                            .collect::<BTreeMap<_, _>>()
                    });
                Answer::Marked(e.row, marks)
            }
            Effect::Plan { ask, choice, straight } => {
                let out = self.plan(&ask, &choice, None, control);
                Answer::Planned { ask, choice, straight, out }
            }
            Effect::Apply { ask, choice, plan } => {
                let out = self.plan(&ask, &choice, Some(plan), control);
                Answer::Applied { ask, choice, out }
            }
            Effect::Hunks(e, path) => {
                let ask = Ask::Restore { entry: e, paths: vec![path], hunks: None };
                Answer::Hunked(self.restore(&ask, &Choice::of(&self.options), None, true, control))
            }
            Effect::Export(e, to) => {
                let done = self.export(&e, &to, control);
                Answer::Told(done.map(|n| format!("{n} written to {to}")))
            }
            Effect::Pin(e, on) => {
                let done = self.row(&e.row).and_then(|(rows, at)| self.ws.pin(&rows.all[at], on));
                Answer::Told(done.map(|_| if on { "Pinned." } else { "No longer pinned." }.to_owned()))
            }
            Effect::Label(e, label) => {
                let done =
                    self.row(&e.row).and_then(|(rows, at)| self.ws.label(&rows.all[at], label.as_deref()));
                Answer::Told(
                    done.map(|_| label.map_or("The label is gone.".to_owned(), |l| format!("Label: {l}"))),
                )
            }
            Effect::Reload => Answer::Entries(self.entries()),
            Effect::Quit => Answer::Told(Ok(String::new())),
        }
    }

    fn row(&self, id: &str) -> Result<(backstitch::workspace::Rows, usize)> {
        let rows = self.ws.rows()?;
        match rows.all.iter().position(|c| c.record.id == id) {
            Some(at) => Ok((rows, at)),
            None => Err(Error::new(Code::NoSuchCheckpoint, format!("checkpoint {id} is gone"))),
        }
    }

    fn compare(
        &self,
        e: &Entry,
        paths: Vec<BString>,
        patch: bool,
        control: &Control<'_>,
    ) -> Result<diff::Diff> {
        let rows = self.ws.rows()?;
        let find = |id: &Option<String>| id.as_deref().and_then(|id| rows.by_id(id));
        let changed = e.size.map_or(0, |s| s.added + s.modified + s.deleted + s.renamed);
        let stat = usize::try_from(changed).is_ok_and(|n| n <= COUNTED);
        let options = diff::Options { paths, stat, patch, ..diff::Options::default() };
        self.ws.diff(find(&e.from), find(&e.to), &options, control)
    }

    fn look(&self, e: &Entry, control: &Control<'_>) -> Result<Look> {
        let d = self.compare(e, Vec::new(), false, control)?;
        Ok(Look { changes: d.changes, not_covered: d.not_covered, ..Look::default() })
    }

    fn export(&self, e: &Entry, to: &str, control: &Control<'_>) -> Result<String> {
        let (rows, at) = self.row(&e.row)?;
        let n = self.ws.export_dir(&rows.all[at], Path::new(to), control)?;
        Ok(crate::text::count(n, "file"))
    }

    /// A preview, or with a plan the real run.
    fn plan(
        &self,
        ask: &Ask,
        choice: &Choice,
        plan: Option<String>,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        match ask {
            Ask::Rewind(e) | Ask::Revert(e) => {
                let to = e.turn.map(|n| format!("turn:{n}")).unwrap_or_else(|| e.row.clone());
                let o = rewind::Options {
                    to,
                    session: e.session.clone(),
                    dry_run: plan.is_none(),
                    plan,
                    on_conflict: choice.on_conflict,
                    outside: choice.outside,
                    include_unattributed: choice.unattributed,
                    ..self.options.clone()
                };
                match ask {
                    Ask::Rewind(_) => self.ws.rewind(&o, control),
                    _ => self.ws.revert(&o, control),
                }
            }
            Ask::Restore { .. } => self.restore(ask, choice, plan, false, control),
            Ask::Undo(operation) | Ask::Redo(operation) => {
                let o = undo::Options {
                    operation: operation.clone(),
                    session: self.options.session.clone().filter(|_| operation.is_none()),
                    on_conflict: Some(choice.on_conflict),
                    dry_run: plan.is_none(),
                    plan,
                    force: self.options.force,
                    replaced: self.options.replaced,
                    markers: self.options.markers,
                };
                match ask {
                    Ask::Undo(_) => self.ws.undo(&o, control),
                    _ => self.ws.redo(&o, control),
                }
            }
        }
    }

    fn restore(
        &self,
        ask: &Ask,
        choice: &Choice,
        plan: Option<String>,
        list_hunks: bool,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        let Ask::Restore { entry, paths, hunks } = ask else {
            return Err(Error::fault("only a restore has hunks"));
        };
        let (rows, at) = self.row(&entry.row)?;
        let all = &self.options;
        let o = restore::Options {
            paths: if paths.is_empty() { all.paths.clone() } else { paths.clone() },
            globs: if paths.is_empty() { all.globs.clone() } else { Vec::new() },
            dry_run: plan.is_none(),
            plan,
            no_delete: all.no_delete,
            no_safety: all.no_safety,
            busy: all.busy.clone(),
            replaced: all.replaced,
            privileged: all.privileged,
            force: all.force,
            outside: choice.outside,
            session: self.session.clone(),
            hunks: hunks.clone(),
            list_hunks,
            git_state: false,
        };
        self.ws.restore(&rows.all[at], &o, control)
    }
}

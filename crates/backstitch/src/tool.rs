//! Tool windows: a row at both ends of one tool call.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    checkpoint::{Options, Outcome},
    error::Result,
    flight::{self, Gate},
    paths,
    record::{CLOCK, Checkpoint, Kind, Record},
    session::{check_session, open_turn},
    turn::again,
    workspace::{Control, Rows, Workspace, real_path},
};

/// One end of a tool window.
#[derive(Clone, Debug, Default)]
pub struct ToolOptions {
    /// The session.
    pub session: String,
    /// The host's id of the call.
    pub call: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The sub-agent.
    pub agent: Option<String>,
    /// Paths that the tool names, relative to the root or absolute; without them the whole workspace is looked at.
    pub paths: Vec<BString>,
}

/// Where a named path really is: below a symbolic link that is the link's target, so that nothing is ever written through
/// a link; a link that is named itself stands for itself and for the file it leads to.
fn real_places(root: &Path, path: &BStr) -> Vec<BString> {
    let full = paths::to_path(root, path);
    let place = |real: &Path| -> BString {
        let inside = real.strip_prefix(root).unwrap_or(real);
        paths::bytes(inside).to_owned()
    };
    // The root itself, and `/`.
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else { return vec![path.to_owned()] };
    if path.is_empty() {
        return vec![path.to_owned()];
    }
    let Ok(parent) = real_path(parent) else { return vec![path.to_owned()] };
    let here = parent.join(name);
    let mut out = vec![place(&here)];
    let leads_on = here.symlink_metadata().is_ok_and(|m| m.is_symlink());
    if leads_on && let Ok(target) = here.canonicalize().or_else(|_| dangling(&here)) {
        let to = place(&target);
        if !target.is_dir() && !out.contains(&to) {
            out.push(to);
        }
    }
    out
}

/// What a link leads to that is not there: a tool that writes there makes it.
fn dangling(link: &Path) -> std::io::Result<PathBuf> {
    let text = std::fs::read_link(link)?;
    let target = link.parent().unwrap_or(link).join(text);
    match (target.parent().map(Path::canonicalize), target.file_name()) {
        (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
        _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
    }
}

/// The row of this end of this call, which another process has recorded meanwhile: two installations of one hook, or a
/// host that repeats itself before it had an answer.
pub(crate) fn recorded<'r>(rows: &'r Rows, o: &Options) -> Option<&'r Checkpoint> {
    let call = o.call.as_ref().filter(|_| o.kind == Kind::Tool)?;
    let of_call = || {
        rows.all.iter().rev().filter(|c| {
            let r = &c.record;
            r.kind == Kind::Tool
                && r.session == o.session
                && r.call.as_ref() == Some(call)
                && r.turn == o.turn
        })
    };
    if o.phase.as_deref() != Some("before") {
        return of_call().next().filter(|c| c.record.phase == o.phase);
    }
    let begins = || of_call().filter(|c| c.record.phase == o.phase);
    let everything = begins().any(|c| c.record.named().is_none());
    let named: HashSet<BString> = begins().filter_map(|c| c.record.named()).flatten().collect();
    let holds = everything || !o.paths.is_empty() && o.paths.iter().all(|p| named.contains(p));
    begins().next().filter(|_| holds)
}

impl Workspace {
    /// One end of a tool window. With paths only these are looked at, wherever rules would leave them out; the after
    /// of a window looks at the paths of its before.
    pub fn tool(&mut self, before: bool, o: &ToolOptions, control: &Control<'_>) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let rows = self.rows()?;
        self.tool_knowing(rows, before, o, control)
    }

    /// The same for a caller who has just read the rows.
    ///
    /// # Errors
    /// As [`Workspace::checkpoint`].
    pub fn tool_knowing(
        &mut self,
        mut rows: Rows,
        before: bool,
        o: &ToolOptions,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let gate = match before && o.paths.is_empty() {
            true => self.wait_at_gate(&rows, &o.session, control)?,
            false => Gate::Open,
        };
        if !matches!(gate, Gate::Open) {
            rows = self.rows()?;
        }
        let clock = flight::clock_ns();
        let lock = self.lock_capture()?;
        let own: Vec<&Checkpoint> = rows.of_session(&o.session);
        let now = open_turn(&own).or(own.iter().rev().find(|c| c.record.turn.is_some()).copied());
        let phase = if before { "before" } else { "after" };
        // A window belongs to the turn of its beginning, whatever began meanwhile: sub-agents outlive the turn's end.
        let last = own.iter().rev().copied().find(|c| {
            let same_turn = c.record.turn == now.and_then(|t| t.record.turn);
            c.record.kind == Kind::Tool
                && c.record.call == o.call
                && (same_turn || !before && o.call.is_some())
        });
        let begun = last.filter(|c| !before && c.record.phase.as_deref() == Some("before"));
        let mut names: Vec<BString> =
            o.paths.iter().flat_map(|p| real_places(self.root(), p.as_bstr())).collect();
        // The ends of this call that were recorded, newest first.
        let of_call = || {
            let turn = last.and_then(|c| c.record.turn);
            let of = move |c: &&&Checkpoint| {
                c.record.kind == Kind::Tool && c.record.call == o.call && c.record.turn == turn
            };
            own.iter().rev().filter(of).copied()
        };
        let is_before = |c: &Checkpoint| c.record.phase.as_deref() == Some("before");
        if o.call.is_some() && before && last.is_some() {
            // A repeated begin is the same row; what it names beyond that has no pre-image yet.
            let known = || of_call().filter(|c| is_before(c));
            let everything = known().any(|c| c.record.named().is_none());
            let named: HashSet<BString> = known().filter_map(|c| c.record.named()).flatten().collect();
            names.retain(|n| !named.contains(n));
            if let Some(c) = known().next()
                && (everything || names.is_empty())
            {
                return Ok(again(Some(c)));
            }
        } else if o.call.is_some() && begun.is_none() && last.is_some() {
            // A repeated end is the same row.
            if let Some(c) = of_call().find(|c| !is_before(c)) {
                return Ok(again(Some(c)));
            }
        }
        let turn = begun.or(now);
        let mut tool = o.tool.clone();
        let mut agent = o.agent.clone();
        if let Some(b) = begun {
            // All begins since the last end: it is the end of each.
            let open: Vec<&Checkpoint> = match o.call {
                Some(_) => of_call().take_while(|c| is_before(c)).collect(),
                None => vec![b],
            };
            match open.iter().map(|c| c.record.named()).collect::<Option<Vec<_>>>() {
                Some(named) => names.extend(named.into_iter().flatten()),
                // A before looked at everything: so does the after.
                None => names.clear(),
            }
            tool = tool.or_else(|| b.record.tool.clone());
            agent = agent.or_else(|| b.record.agent.clone());
        }
        names.sort();
        names.dedup();
        let options = Options {
            kind: Kind::Tool,
            session: Some(o.session.clone()),
            turn: turn.and_then(|t| t.record.turn),
            turn_key: turn.and_then(|t| t.record.turn_key.clone()),
            agent,
            tool,
            phase: Some(phase.to_owned()),
            call: o.call.clone(),
            paths: names,
            ..Options::default()
        };
        if let Gate::Shut(waited) = gate {
            let why = format!("the turn's checkpoint was not done after {} s", waited.as_secs());
            return self.record_gap(&options, &rows, &lock, &why);
        }
        let beside = own.iter().any(|c| c.record.in_flight());
        // When it began says which changes the capture beside it must not take for the state before.
        let note = |r: &mut Record| drop(r.extra.insert(CLOCK.to_owned(), clock.into()));
        let adjust: Option<&dyn Fn(&mut Record)> = if beside { Some(&note) } else { None };
        self.record_row(&options, control, &lock, &rows, Vec::new(), adjust)
    }
}

//! Tool windows: a row at both ends of one tool call.

use std::path::{Path, PathBuf};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    checkpoint::{Options, Outcome},
    error::Result,
    flight, paths,
    record::{Checkpoint, Kind},
    session::{check_session, open_turn},
    turn::again,
    workspace::{Control, Workspace, real_path},
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

impl Workspace {
    /// One end of a tool window. With paths only these are looked at, wherever rules would leave them out; the after
    /// of a window looks at the paths of its before.
    pub fn tool(&mut self, before: bool, o: &ToolOptions, control: &Control<'_>) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let waited = match before && o.paths.is_empty() {
            true => self.wait_at_gate(&o.session, control)?,
            false => None,
        };
        let clock = flight::clock_ns();
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(&o.session)).collect();
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
        // A repeated end of one call is the same row.
        if o.call.is_some()
            && begun.is_none()
            && let Some(c) = last.filter(|c| before || c.record.phase.as_deref() == Some(phase))
        {
            let same = own.iter().rev().find(|x| {
                x.record.call == c.record.call
                    && x.record.turn == c.record.turn
                    && x.record.phase.as_deref() == Some(phase)
            });
            if same.is_some() {
                return Ok(again(same.copied()));
            }
        }
        let turn = begun.or(now);
        let mut names: Vec<BString> =
            o.paths.iter().flat_map(|p| real_places(self.root(), p.as_bstr())).collect();
        let mut tool = o.tool.clone();
        let mut agent = o.agent.clone();
        if let Some(b) = begun {
            if let Some(named) = b.record.named() {
                names.extend(named);
            } else {
                // The before looked at everything: so does the after.
                names.clear();
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
        if let Some(waited) = waited {
            let why = format!("the turn's checkpoint was not done after {} s", waited.as_secs());
            return self.record_gap(&options, &rows, &lock, &why);
        }
        let beside = own.iter().any(|c| c.record.in_flight());
        self.record_beside(&options, control, &lock, &rows, beside.then_some(clock))
    }
}

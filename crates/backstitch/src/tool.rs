//! Tool windows: a row at both ends of one tool call.

use bstr::BString;

use crate::{
    checkpoint::{Options, Outcome},
    error::Result,
    paths,
    record::{Checkpoint, Kind},
    session::{check_session, open_turn},
    turn::again,
    workspace::{Control, Workspace},
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
    /// Paths that the tool names; without them the whole workspace is looked at.
    pub paths: Vec<BString>,
}

impl Workspace {
    /// One end of a tool window. With paths only these are looked at, wherever rules would leave them out; the after
    /// of a window looks at the paths of its before.
    pub fn tool(&mut self, before: bool, o: &ToolOptions, control: &Control<'_>) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(&o.session)).collect();
        let turn = open_turn(&own).or(own.iter().rev().find(|c| c.record.turn.is_some()).copied());
        let phase = if before { "before" } else { "after" };
        let of_call = |p: &str| {
            own.iter().rev().find(|c| {
                c.record.kind == Kind::Tool
                    && c.record.phase.as_deref() == Some(p)
                    && c.record.call == o.call
                    && c.record.turn == turn.and_then(|t| t.record.turn)
            })
        };
        // A repeated end of one call is the same row.
        if let (Some(_), Some(c)) = (&o.call, of_call(phase)) {
            return Ok(again(Some(c)));
        }
        let mut names = o.paths.clone();
        let mut tool = o.tool.clone();
        let mut agent = o.agent.clone();
        if !before && let Some(b) = of_call("before") {
            if let Some(covers) = &b.record.covers {
                names.extend(covers.iter().filter_map(|p| paths::unescape(p.as_bytes())));
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
        self.record_row(&options, control, &lock, &rows, Vec::new())
    }
}

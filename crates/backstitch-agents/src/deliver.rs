//! From a notice to the engine's calls: one set for every client. Each call works when an earlier one never came, and twice.

use std::{path::PathBuf, time::Duration};

use backstitch::{
    checkpoint::Options,
    error::{Code, Error, Result},
    paths,
    record::{Checkpoint, Kind},
    session,
    tool::ToolOptions,
    turn::TurnOptions,
    workspace::{Control, Rows, Surroundings, Workspace},
};
use bstr::BString;

use crate::{
    Agent, command,
    marks::Marks,
    notice::{Call, Event, Notice, Tool},
    told, transcript,
};

/// A fork whose origin is not known yet; its content is the prompt that waits for it.
const FORK: &str = "fork";
/// The key of a session's first turn, where the client has no keys and its tools came first.
const FIRST: &str = "first";
/// A prompt that begins no turn.
const ASIDE: &str = "aside";
/// A command that was typed as a prompt and carried out.
const TYPED: &str = "typed";

/// What the client is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    #[default]
    Nothing,
    /// The model's next request holds this.
    Tell(String),
    /// The prompt goes no further, and the person reads this.
    Stop(String),
}

/// Carries a notice out.
///
/// # Errors
/// The engine's. `disabled` is none: nothing is recorded then, and nothing said.
pub fn deliver(agent: Agent, n: &Notice, surroundings: &Surroundings) -> Result<Answer> {
    let ws = Workspace::open(&n.folder, surroundings.clone())?;
    if ws.disabled().is_some() {
        return Ok(Answer::Nothing);
    }
    let marks = Marks::of(ws.store_dir());
    let result = Delivery { agent, n, ws, marks, control: Control::default() }.carry_out();
    match result {
        Err(e) if e.code == Code::Disabled => Ok(Answer::Nothing),
        r => r,
    }
}

struct Delivery<'a> {
    agent: Agent,
    n: &'a Notice,
    ws: Workspace,
    marks: Marks,
    control: Control<'a>,
}

impl Delivery<'_> {
    fn carry_out(mut self) -> Result<Answer> {
        let n = self.n;
        match &n.event {
            Event::Open { forked } => self.open(*forked)?,
            Event::Prompt { key, entry, text } => {
                return self.prompt(key.as_deref(), entry.as_deref(), text);
            }
            Event::Aside { key } => {
                self.aside(ASIDE, key.as_deref());
            }
            Event::Before(t) => self.before(t)?,
            Event::After(t) => self.after(t)?,
            Event::End { key } => self.end(key.as_deref())?,
            Event::AgentEnd { agent, key } => self.agent_end(agent, key.as_deref())?,
            Event::Close => {
                if self.ws.has_store() && self.own(&self.ws.rows()?).next().is_some() {
                    self.ws.session_end(&n.session)?;
                }
            }
        }
        Ok(Answer::Nothing)
    }

    /// The session's own rows, oldest first.
    fn own<'r>(&self, rows: &'r Rows) -> impl DoubleEndedIterator<Item = &'r Checkpoint> {
        let id = self.n.session.clone();
        rows.all.iter().filter(move |c| c.record.session.as_deref() == Some(id.as_str()))
    }

    /// The `prompt` row of a turn.
    fn begun<'r>(&self, rows: &'r Rows, key: &str) -> Option<&'r Checkpoint> {
        self.own(rows).find(|c| c.record.kind == Kind::Prompt && c.record.turn_key.as_deref() == Some(key))
    }

    fn has_open_turn(&self, rows: &Rows) -> bool {
        let newest = self.own(rows).rev().find(|c| c.record.kind == Kind::Prompt);
        newest.is_some_and(|p| {
            !self.own(rows).any(|c| c.record.kind == Kind::Turn && c.record.turn == p.record.turn)
        })
    }

    fn aside(&self, what: &str, key: Option<&str>) -> bool {
        let Some(key) = key.filter(|_| self.ws.has_store()) else { return true };
        self.marks.leave(what, &format!("{}/{key}", self.n.session), b"")
    }

    fn is_aside(&self, key: &str) -> bool {
        let name = format!("{}/{key}", self.n.session);
        self.marks.has(ASIDE, &name) || self.marks.has(TYPED, &name)
    }

    fn open(&mut self, forked: bool) -> Result<()> {
        if !self.ws.has_store() {
            return Ok(());
        }
        self.ws.session_open(&self.n.session)?;
        if forked {
            self.marks.leave(FORK, &self.n.session, b"");
            self.adopt()?;
        }
        Ok(())
    }

    fn prompt(&mut self, key: Option<&str>, entry: Option<&str>, text: &str) -> Result<Answer> {
        if let Some(typed) = command::parse(text) {
            // Two installations report one prompt twice.
            if !self.aside(TYPED, key) {
                return Ok(Answer::Stop("Backstitch has done it.".to_owned()));
            }
            return Ok(Answer::Stop(command::run(self.agent, self.n, &mut self.ws, &typed)));
        }
        let mut answer = Answer::Nothing;
        if self.ws.has_store() {
            if self.marks.has(FORK, &self.n.session) && !self.adopt()? {
                // The conversation that tells the origin is written only now: the turn begins with its first tool, before which
                // nothing of it changes. Its number follows those of its line.
                self.marks.clear(FORK, &self.n.session);
                self.marks.leave(FORK, &self.n.session, text.as_bytes());
                return Ok(answer);
            }
            let rows = self.ws.rows()?;
            if let Some(line) = told::since_last_prompt(&self.ws, &rows, &self.n.session, key)? {
                answer = Answer::Tell(line);
            }
        }
        self.begin(key, entry, Some(text))?;
        Ok(answer)
    }

    fn begin(&mut self, key: Option<&str>, entry: Option<&str>, text: Option<&str>) -> Result<()> {
        let o = TurnOptions {
            session: self.n.session.clone(),
            key: key.map(str::to_owned),
            prompt: text.map(str::to_owned),
            entry: entry.map(str::to_owned),
        };
        let time = Duration::from_millis(self.ws.settings().int("prompt_time"));
        self.ws.turn_begin_within(&o, time, &self.control).map(|_| ())
    }

    /// A turn that was never begun begins now: its hook may have been cut short, or installed in the middle.
    /// Returns the rows that it read, where they still hold.
    fn ensure_turn(&mut self, key: Option<&str>) -> Result<Option<Rows>> {
        let waiting = self.marks.read(FORK, &self.n.session);
        if waiting.is_some() {
            self.adopt()?;
            self.marks.clear(FORK, &self.n.session);
        }
        let text = waiting.and_then(|b| String::from_utf8(b).ok()).filter(|t| !t.is_empty());
        if !self.ws.has_store() {
            return self.begin(Some(key.unwrap_or(FIRST)), None, text.as_deref()).map(|()| None);
        }
        let rows = self.ws.rows()?;
        let is_there = match key {
            Some(k) => match self.begun(&rows, k) {
                Some(c) => {
                    let wanted = c.record.entry.is_none();
                    self.bind(wanted, k, true)?;
                    true
                }
                // Work that follows from an aside belongs to the turn before it.
                None => self.is_aside(k),
            },
            None => self.has_open_turn(&rows),
        };
        if is_there {
            return Ok(Some(rows));
        }
        // Tools that run beside each other find the same rows, and begin the same turn.
        let last = self.own(&rows).rev().find(|c| c.record.kind == Kind::Prompt);
        let next = last.map_or_else(|| FIRST.to_owned(), |c| format!("after {}", c.record.id));
        self.begin(Some(key.unwrap_or(&next)), None, text.as_deref()).map(|()| None)
    }

    /// The turn's entry in the conversation, once the client has written it.
    fn bind(&mut self, wanted: bool, key: &str, near: bool) -> Result<()> {
        let Some(file) = self.n.transcript.as_ref().filter(|_| wanted && self.agent == Agent::Claude) else {
            return Ok(());
        };
        if let Some(entry) = transcript::entry_of(file, key, near) {
            self.ws.turn_bind(&self.n.session, Some(key), &entry)?;
        }
        Ok(())
    }

    fn options(&self, t: &Tool, call: String) -> ToolOptions {
        // Inside the workspace relative to it, else absolute.
        let place = |p: &PathBuf| {
            let full = self.n.current.join(p);
            self.ws.locate(&full).unwrap_or_else(|| paths::bytes(&full).to_owned())
        };
        let paths: Vec<BString> = t.paths.iter().map(place).collect();
        ToolOptions {
            session: self.n.session.clone(),
            call: Some(call),
            tool: Some(t.name.clone()),
            agent: t.agent.clone(),
            paths: if paths.iter().any(|p| p.is_empty()) { Vec::new() } else { paths },
        }
    }

    fn before(&mut self, t: &Tool) -> Result<()> {
        let rows = self.ensure_turn(t.key.as_deref())?;
        let call = match &t.call {
            Call::Id(id) => id.clone(),
            Call::Unnamed { digest, at } => format!("{digest}@{at}"),
        };
        let o = self.options(t, call);
        match rows {
            Some(rows) => self.ws.tool_knowing(rows, true, &o, &self.control),
            None => self.ws.tool(true, &o, &self.control),
        }
        .map(|_| ())
    }

    fn after(&mut self, t: &Tool) -> Result<()> {
        if !self.ws.has_store() {
            // Nothing was recorded before it: what it did cannot be told from what was there.
            return Ok(());
        }
        let call = match &t.call {
            Call::Id(id) => id.clone(),
            Call::Unnamed { digest, at } => {
                let rows = self.ws.rows()?;
                open_call(self.own(&rows), digest).unwrap_or_else(|| format!("{digest}@{at}"))
            }
        };
        let o = self.options(t, call);
        self.ws.tool(false, &o, &self.control).map(|_| ())
    }

    fn end(&mut self, key: Option<&str>) -> Result<()> {
        if !self.ws.has_store() {
            return Ok(());
        }
        if self.marks.has(FORK, &self.n.session) {
            drop(self.ensure_turn(key)?);
        }
        let rows = self.ws.rows()?;
        let begun = key.and_then(|k| self.begun(&rows, k).map(|c| (k, c.record.entry.is_none())));
        if let Some((k, wanted)) = begun {
            self.bind(wanted, k, false)?;
        }
        // What follows from an aside ends the turn before it.
        let key = begun.map(|(k, _)| k);
        self.ws.turn_end(&self.n.session, key, "completed", &self.control).map(|_| ())
    }

    fn agent_end(&mut self, agent: &str, key: Option<&str>) -> Result<()> {
        if !self.ws.has_store() {
            return Ok(());
        }
        let rows = self.ws.rows()?;
        let o = Options {
            kind: Kind::AgentRun,
            session: Some(self.n.session.clone()),
            turn_key: key.filter(|k| self.begun(&rows, k).is_some()).map(str::to_owned),
            agent: Some(agent.to_owned()),
            if_changed: true,
            ..Options::default()
        };
        self.ws.checkpoint_in_turn(&o, &self.control).map(|_| ())
    }

    /// Gives a fork its parent, found by what its conversation carries over. `false` while that is not written yet.
    fn adopt(&mut self) -> Result<bool> {
        let Some(found) = self.n.transcript.as_ref().and_then(|t| transcript::inherited(t)) else {
            return Ok(false);
        };
        let rows = self.ws.rows()?;
        let known = self.ws.session_records()?;
        if known.get(&self.n.session).is_some_and(|s| s.parent.is_some()) || self.own(&rows).next().is_some()
        {
            self.marks.clear(FORK, &self.n.session);
            return Ok(true);
        }
        let carried = |c: &&Checkpoint| {
            let r = &c.record;
            let is = |id: &Option<String>| id.as_ref().is_some_and(|id| found.ids.contains(id));
            r.kind == Kind::Prompt && r.session.is_some() && (is(&r.entry) || is(&r.turn_key))
        };
        // The newest turn that came along; of an origin without any, its newest row.
        let last = rows.all.iter().rev().find(carried);
        let parent = last.and_then(|c| c.record.session.clone()).or(found.parent);
        let from = parent.as_ref().and_then(|p| {
            let line = session::line(&rows, &known, p);
            line.into_iter().rev().find(|c| match last {
                Some(l) => c.record.turn == l.record.turn && c.record.session == l.record.session,
                None => c.record.session.as_ref() == Some(p),
            })
        });
        if let Some(from) = from {
            self.ws.fork(&self.n.session, from)?;
        }
        self.marks.clear(FORK, &self.n.session);
        Ok(true)
    }
}

/// The call of the newest window of this tool and input that is still open.
fn open_call<'r>(own: impl DoubleEndedIterator<Item = &'r Checkpoint>, digest: &str) -> Option<String> {
    let mut ended: Vec<&str> = Vec::new();
    for c in own.rev().filter(|c| c.record.kind == Kind::Tool) {
        let Some(call) = c.record.call.as_deref().filter(|c| c.split('@').next() == Some(digest)) else {
            continue;
        };
        match c.record.phase.as_deref() {
            Some("before") if !ended.contains(&call) => return Some(call.to_owned()),
            _ => ended.push(call),
        }
    }
    None
}

/// The problem in a line.
pub fn problem(e: &Error) -> String {
    let hint = e.hint.as_deref().map(|h| format!(" ({h})")).unwrap_or_default();
    format!("{}{hint}", e.message)
}

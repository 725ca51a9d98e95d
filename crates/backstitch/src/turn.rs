//! Turns: what a host calls around a prompt. Numbers of turns are given out under the lock `turns` and never twice in a
//! session; all calls may be repeated by a host and tolerate missing neighbours.

use std::time::{Duration, Instant};

use backstitch_store::Expect;

use crate::{
    checkpoint::{Options, Outcome, Time},
    error::{Code, Error, Result},
    record::{self, Checkpoint, Kind, Record, State, Summary},
    session::{check_session, highest_turn, open_turn},
    workspace::{Control, Rows, Workspace},
};

/// Which turn is meant.
#[derive(Clone, Debug, Default)]
pub struct TurnOptions {
    /// The session.
    pub session: String,
    /// The host's key: the same key means the same turn.
    pub key: Option<String>,
    /// The prompt.
    pub prompt: Option<String>,
    /// Id of the conversation's entry, where it is known already.
    pub entry: Option<String>,
}

/// What is known of a turn as soon as its row has an id, while the capture still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Of its `prompt` row.
    pub id: String,
    /// Its number.
    pub turn: u64,
    /// The row is there already: the key was used before.
    pub recorded: bool,
}

/// What `turn begin` is about.
pub(crate) enum Next {
    /// The key was used before.
    Known(Box<Checkpoint>),
    /// A new turn, after these rows.
    New(Rows, Box<Options>),
}

/// The outcome of a call that was made before.
pub(crate) fn again(c: Option<&Checkpoint>) -> Outcome {
    Outcome { checkpoint: c.cloned(), repeated: true, ..Outcome::default() }
}

impl Workspace {
    /// Records the present state as a row of a session's turn: of the one with `options.turn_key`, else a new one for a
    /// `prompt` row, else the open one (or the last) for `turn`, `tool` and `agent-run` rows. Rows without a session, and
    /// others without a key, belong to no turn. A repeated `prompt` row with the same key is the same row.
    ///
    /// # Errors
    /// As [`Workspace::checkpoint`].
    pub fn checkpoint_in_turn(&mut self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let kind = options.kind;
        let in_turn = matches!(kind, Kind::Prompt | Kind::Turn | Kind::Tool | Kind::AgentRun);
        let session = options.session.clone().filter(|_| in_turn || options.turn_key.is_some());
        let (Some(session), None, None) = (session, self.disabled(), options.turn) else {
            return self.checkpoint(options, control);
        };
        if let Some(label) = &options.label {
            crate::checkpoint::check_label(label)?;
        }
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> = rows.of_session(&session);
        let keyed = own.iter().copied().find(|c| {
            options.turn_key.is_some() && c.record.turn.is_some() && c.record.turn_key == options.turn_key
        });
        let mut options = options.clone();
        match (kind, keyed) {
            (Kind::Prompt, Some(c)) if c.record.kind == Kind::Prompt => return Ok(again(Some(c))),
            (_, Some(c)) => options.turn = c.record.turn,
            (Kind::Prompt, None) => {
                self.close_open_turn(&rows, &session)?;
                options.turn = Some(highest_turn(&rows, &self.session_records()?, &session) + 1);
            }
            (_, None) if in_turn && options.turn_key.is_none() => {
                let of =
                    open_turn(&own).or_else(|| own.iter().rev().find(|c| c.record.turn.is_some()).copied());
                options.turn = of.and_then(|c| c.record.turn);
                options.turn_key = of.and_then(|c| c.record.turn_key.clone());
            }
            _ => {}
        }
        self.checkpoint(&options, control)
    }

    /// Begins a turn: its `prompt` row, which is a gap that says why where the capture fails. The same key gives the same row. A turn left open ends as `crashed` first; its
    /// after is its last row.
    pub fn turn_begin(&mut self, o: &TurnOptions, control: &Control<'_>) -> Result<Outcome> {
        self.turn_begin_told(o, &|_| {}, control)
    }

    /// As [`Workspace::turn_begin`], for a host that shall not wait for long: a capture that takes more than `time` goes on
    /// in a process of its own, and its row is a gap in flight until that is done. Windows that name no path wait for it
    /// ([`Workspace::tool`]). Where no process may be started (no [`Surroundings::program`]) it takes as long as it takes.
    ///
    /// [`Surroundings::program`]: crate::workspace::Surroundings::program
    ///
    /// # Errors
    /// As [`Workspace::turn_begin`].
    pub fn turn_begin_within(
        &mut self,
        o: &TurnOptions,
        time: Duration,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        if self.surroundings().program.is_none() {
            return self.turn_begin(o, control);
        }
        let mut out = self.turn_begin_or_reserve(o, time, true, &|_| {}, control)?;
        let reserved = out.checkpoint.as_ref().filter(|c| !out.repeated && c.record.in_flight());
        let Some(id) = reserved.map(|c| c.record.id.clone()) else { return Ok(out) };
        if let Err(e) = self.start_capture(&id) {
            out = self.turn_capture(&id, &|| {}, control)?;
            out.warnings.push(format!("the capture was not done in the background: {}", e.message));
        }
        Ok(out)
    }

    /// Begins a turn; where its capture takes longer than `time`, its row is left in flight, and the caller has it filled
    /// ([`Workspace::turn_capture`]). The row's id and number are told before the capture begins. `gated`: as for
    /// [`Workspace::turn_reserve`].
    ///
    /// # Errors
    /// As [`Workspace::turn_begin`].
    pub fn turn_begin_or_reserve(
        &mut self,
        o: &TurnOptions,
        time: Duration,
        gated: bool,
        told: &dyn Fn(&Begun),
        control: &Control<'_>,
    ) -> Result<Outcome> {
        let time = match Instant::now().checked_add(time) {
            Some(end) => Time::WholeBy(end),
            None => Time::Unlimited,
        };
        self.begin(o, (time, gated), told, control)
    }

    /// As [`Workspace::turn_begin`], telling the row's id and number before the capture begins. The row is there only once
    /// this returns without an error.
    pub fn turn_begin_told(
        &mut self,
        o: &TurnOptions,
        told: &dyn Fn(&Begun),
        control: &Control<'_>,
    ) -> Result<Outcome> {
        self.begin(o, (Time::Unlimited, true), told, control)
    }

    fn begin(
        &mut self,
        o: &TurnOptions,
        (time, gated): (Time, bool),
        told: &dyn Fn(&Begun),
        control: &Control<'_>,
    ) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        self.ensure_room(control)?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let lock = self.lock_capture()?;
        let (rows, options) = match self.turn_next(o)? {
            Next::Known(c) => {
                told(&Begun { id: c.record.id.clone(), turn: c.record.turn.unwrap_or(0), recorded: true });
                return Ok(again(Some(&c)));
            }
            Next::New(rows, options) => (rows, Options { time, ..*options }),
        };
        if let (Some(id), Some(turn)) = (options.id.clone(), options.turn) {
            told(&Begun { id, turn, recorded: false });
        }
        // What is over before it begins needs no look.
        if !matches!(time, Time::WholeBy(end) if end <= Instant::now()) {
            let out = self.record_or_gap(&options, control, &lock, &rows, None)?;
            if out.checkpoint.is_some() {
                return Ok(out);
            }
        }
        self.reserve(&options, &rows, &lock, gated)
    }

    /// The turn of this key, or the next one: what its row will be. The caller holds the lock `turns`.
    pub(crate) fn turn_next(&self, o: &TurnOptions) -> Result<Next> {
        let mut rows = self.rows()?;
        let known = rows.all.iter().find(|c| {
            c.record.kind == Kind::Prompt
                && c.record.session.as_deref() == Some(&o.session)
                && o.key.is_some()
                && c.record.turn_key == o.key
        });
        if let Some(c) = known {
            return Ok(Next::Known(Box::new(c.clone())));
        }
        if self.close_open_turn(&rows, &o.session)? {
            rows = self.rows()?;
        }
        let highest = highest_turn(&rows, &self.session_records()?, &o.session);
        let options = Options {
            id: Some(record::new_id(record::now_ms())),
            kind: Kind::Prompt,
            session: Some(o.session.clone()),
            turn: Some(highest + 1),
            turn_key: o.key.clone(),
            prompt: o.prompt.clone(),
            entry: o.entry.clone(),
            ..Options::default()
        };
        Ok(Next::New(rows, Box::new(options)))
    }

    /// Ends the open turn (or the one with this key): its `turn` row. Without an open turn nothing happens and no row
    /// comes back; an ended turn gives its row again. Where the capture fails the row is a gap that says why.
    pub fn turn_end(
        &mut self,
        session: &str,
        key: Option<&str>,
        status: &str,
        control: &Control<'_>,
    ) -> Result<Outcome> {
        check_session(session)?;
        if !matches!(status, "completed" | "error" | "cancelled") {
            return Err(Error::new(Code::Usage, format!("{status:?} is not a status of a turn"))
                .hint("say completed, error or cancelled"));
        }
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let own: Vec<&Checkpoint> = rows.of_session(session);
        let begun = match key {
            Some(k) => own
                .iter()
                .copied()
                .find(|c| c.record.kind == Kind::Prompt && c.record.turn_key.as_deref() == Some(k)),
            None => open_turn(&own),
        };
        let Some(begun) = begun else {
            // That there is none is only certain where all could be read.
            rows.all_readable()?;
            return Ok(again(None));
        };
        let ended = own.iter().find(|c| c.record.kind == Kind::Turn && c.record.turn == begun.record.turn);
        if let Some(c) = ended {
            return Ok(again(Some(c)));
        }
        let options = Options {
            kind: Kind::Turn,
            session: Some(session.to_owned()),
            turn: begun.record.turn,
            turn_key: begun.record.turn_key.clone(),
            status: Some(status.to_owned()),
            ..Options::default()
        };
        self.record_or_gap(&options, control, &lock, &rows, None)
    }

    /// Gives the oldest `prompt` row without one (or the turn with this key) the id of its conversation entry. First
    /// binding wins: `false` where the row has another already.
    pub fn turn_bind(&mut self, session: &str, key: Option<&str>, entry: &str) -> Result<(Checkpoint, bool)> {
        check_session(session)?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let _lock = self.lock_capture()?;
        let rows = self.rows()?;
        let mut prompts = rows
            .all
            .iter()
            .filter(|c| c.record.kind == Kind::Prompt && c.record.session.as_deref() == Some(session));
        let found = match key {
            Some(k) => prompts.find(|c| c.record.turn_key.as_deref() == Some(k)),
            None => prompts
                .clone()
                .find(|c| c.record.entry.as_deref() == Some(entry))
                .or_else(|| prompts.find(|c| c.record.entry.is_none())),
        };
        let c = found.ok_or_else(|| {
            Error::new(
                Code::NoSuchCheckpoint,
                format!("session {session:?} has no turn that waits for an entry"),
            )
        })?;
        match &c.record.entry {
            Some(e) => Ok((c.clone(), e == entry)),
            None => Ok((self.rewrite(c, &|r| r.entry = Some(entry.to_owned()))?, true)),
        }
    }

    /// Recording is on and there is a store.
    pub(crate) fn ready(&mut self) -> Result<()> {
        if let Some(reason) = self.disabled() {
            return Err(Error::new(Code::Disabled, format!("nothing is recorded: {reason}")));
        }
        self.refuse_moved()?;
        self.create_store()?;
        self.check_room()
    }

    /// An open turn ends as `crashed`: its after is its last row. `true` if there was one.
    pub(crate) fn close_open_turn(&self, rows: &Rows, session: &str) -> Result<bool> {
        let own: Vec<&Checkpoint> = rows.of_session(session);
        let Some(begun) = open_turn(&own) else { return Ok(false) };
        let last = own.iter().rev().find(|c| c.record.turn == begun.record.turn).copied().unwrap_or(begun);
        let now = record::now_ms();
        let r = Record {
            id: record::new_id(now),
            seq: rows.next_seq(),
            kind: Kind::Turn,
            turn: begun.record.turn,
            turn_key: begun.record.turn_key.clone(),
            status: Some("crashed".to_owned()),
            prompt: None,
            entry: None,
            label: None,
            tool: None,
            agent: None,
            phase: None,
            call: None,
            parent: Some(begun.record.id.clone()),
            created_ms: now,
            unchanged: last.record.id == begun.record.id,
            summary: if last.record.id == begun.record.id { Summary::default() } else { last.record.summary },
            state: if last.record.state == State::Failed { State::Gap } else { last.record.state },
            pinned: false,
            operation: None,
            ..Record::clone(&last.record)
        };
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        let commit = writer.commit(&mut s, &last.tree, &r.message(), now.div_euclid(1000))?;
        let (_, staged) = writer.finish_for(&commit)?;
        self.store()?.refs().set_staged(&r.row(commit, last.tree), Expect::Absent, staged)?;
        Ok(true)
    }
}

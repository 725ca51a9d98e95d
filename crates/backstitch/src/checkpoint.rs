//! Recording the present state.

use std::time::{Duration, Instant};

use backstitch_scan::{Reason, Skip};
use bstr::{BString, ByteSlice};

use crate::{
    capture::{Late, Room},
    error::{Code, Error, Result},
    live::{Live, Look, look_above, look_outside, scan_named, scan_until},
    paths, preimage,
    record::{self, Checkpoint, Kind, Record, Retention, State},
    row::{NewRow, commit_row, save_table},
    session,
    tree::{self, Root},
    turn::again,
    wide::NARROWED,
    workspace::{CaptureLock, Control, Rows, Workspace},
};

/// How long a capture may look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// As long as the setting `capture_time` says; what is not looked at by then is left out, with the reason `time`.
    #[default]
    Settings,
    /// Until then; the same.
    Until(Instant),
    /// Until then; where that is too early nothing is recorded, and no row comes back.
    WholeBy(Instant),
    /// As long as it takes.
    Unlimited,
}

/// What a row is recorded for, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the row to be, from [`crate::record::new_id`]; a new one where not said.
    pub id: Option<String>,
    /// Kind.
    pub kind: Kind,
    /// Label.
    pub label: Option<String>,
    /// Prompt.
    pub prompt: Option<String>,
    /// Conversation entry.
    pub entry: Option<String>,
    /// Session.
    pub session: Option<String>,
    /// The host's key of the turn.
    pub turn_key: Option<String>,
    /// Number of the turn in its session.
    pub turn: Option<u64>,
    /// Sub-agent.
    pub agent: Option<String>,
    /// Tool.
    pub tool: Option<String>,
    /// Tool rows: `before` or `after`.
    pub phase: Option<String>,
    /// Tool rows: the host's id of the call.
    pub call: Option<String>,
    /// Turn rows: how the turn ended.
    pub status: Option<String>,
    /// Retention class; by kind where not said.
    pub retention: Option<Retention>,
    /// Keep whatever the policy says.
    pub pin: bool,
    /// Record only what is named in `paths`, whatever the workspace is.
    pub touched: bool,
    /// No row when nothing changed.
    pub if_changed: bool,
    /// Trust no stat: read every file.
    pub paranoid: bool,
    /// How long it may take to look.
    pub time: Time,
    /// Only these are looked at (literal; relative to the root, or absolute for files elsewhere).
    pub paths: Vec<BString>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            id: None,
            kind: Kind::Manual,
            label: None,
            prompt: None,
            entry: None,
            session: None,
            turn_key: None,
            turn: None,
            agent: None,
            tool: None,
            phase: None,
            call: None,
            status: None,
            retention: None,
            pin: false,
            touched: false,
            if_changed: false,
            paranoid: false,
            time: Time::Settings,
            paths: Vec::new(),
        }
    }
}

/// What [`Workspace::checkpoint`] did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The row; `None` with `if_changed` when nothing changed, and with [`Time::WholeBy`] where the time was too short.
    pub checkpoint: Option<Checkpoint>,
    /// The row was there already: the host has said this before.
    pub repeated: bool,
    /// All that was left out.
    pub skips: Vec<Skip>,
    /// A path that was named is among them by rule.
    pub missed: bool,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Work done: files and bytes read.
    pub read: (u64, u64),
}

impl Outcome {
    /// Something was left out against the rules, or though it was named.
    pub fn is_partial(&self) -> bool {
        self.missed || self.checkpoint.as_ref().is_some_and(|c| c.record.state != State::Complete)
    }
}

/// A label may not look like another form of name (SEMANTICS 7).
pub fn check_label(label: &str) -> Result<()> {
    let bad = |why: &str| {
        Err(Error::new(Code::BadLabel, format!("the label {label:?} {why}")).hint(
            "labels are found by their text, so they may not look like an id, `@…`, `turn:…` or a time",
        ))
    };
    if label.trim().is_empty() {
        return bad("is empty");
    }
    if label.chars().any(|c| c.is_control()) {
        return bad("holds control characters");
    }
    if label.len() > 200 {
        return bad("is longer than 200 bytes");
    }
    if label.starts_with('@') || ["turn:", "prompt:", "label:"].iter().any(|p| label.starts_with(p)) {
        return bad("looks like another form of name");
    }
    if crate::names::parse_time(label, 0).is_some() {
        return bad("looks like a time");
    }
    if crate::names::is_full_id(label) {
        return bad("looks like an id");
    }
    Ok(())
}

impl Workspace {
    /// Records the present state. The row appears whole or not at all.
    ///
    /// # Errors
    /// `disabled`, `bad-label`, `busy` while an operation runs, `over-budget` below the floor of free disk space,
    /// `interrupted`; nothing is recorded then.
    pub fn checkpoint(&mut self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        if let Some(reason) = self.disabled() {
            return Err(Error::new(Code::Disabled, format!("nothing is recorded: {reason}"))
                .hint("`backstitch enable`, or unset the switch"));
        }
        if let Some(label) = &options.label {
            check_label(label)?;
        }
        if !self.root().is_dir() {
            return Err(Error::io(self.root(), std::io::Error::from(std::io::ErrorKind::NotFound)));
        }
        let mut warnings = self.settings().warnings.clone();
        self.refuse_moved()?;
        self.create_store()?;
        self.ensure_room(control)?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        for (name, why) in &rows.damaged {
            warnings.push(format!("{name} is damaged: {why}"));
        }
        self.record_row(options, control, &lock, &rows, warnings, None)
    }

    /// The part of [`Workspace::checkpoint`] below the locks.
    pub(crate) fn record_row(
        &self,
        options: &Options,
        control: &Control<'_>,
        lock: &CaptureLock,
        rows: &Rows,
        mut warnings: Vec<String>,
        adjust: Option<&dyn Fn(&mut Record)>,
    ) -> Result<Outcome> {
        let parent = self.parent(rows, options.session.as_deref())?;
        let mut notes: Vec<String> = self.lost.iter().cloned().collect();
        warnings.extend(self.lost.iter().cloned());
        let (live, carried) =
            self.look_now(options, rows, parent, None, control, (&mut notes, &mut warnings))?;
        let whole =
            !matches!(options.time, Time::WholeBy(_)) || live.skips.iter().all(|s| s.reason != Reason::Time);
        let same = parent.filter(|_| {
            options.if_changed
                && live.trees() == carried.trees()
                && (live.git.is_none() || live.git == carried.git)
        });
        if !whole || same.is_some() {
            // Everything is in the row that there is: it vouches for what was learned on the way.
            if let Some(row) = same.filter(|_| whole) {
                let name = format!("{}{}", record::CHECKPOINTS, row.record.id);
                save_table(self, live.update, name, live.watched)?;
            }
            return Ok(Outcome { skips: live.skips, warnings, read: live.read, ..Outcome::default() });
        }
        // What was named and left out by a rule is never silent.
        let missed: Vec<&Skip> =
            live.skips.iter().filter(|s| s.reason.by_rule() && options.paths.contains(&s.path)).collect();
        for s in &missed {
            let detail = s.detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
            warnings.push(format!(
                "{} was not recorded ({}{detail})",
                s.path.to_str_lossy(),
                s.reason.as_str()
            ));
        }
        let missed = !missed.is_empty();
        let (skips, read) = (live.skips.clone(), live.read);
        let new = NewRow { options, parent, operation: None, notes, adjust };
        let (checkpoint, repeated) = commit_row(self, rows, live, new, lock)?;
        if repeated {
            return Ok(again(Some(&checkpoint)));
        }
        warnings.extend(checkpoint.record.notes.iter().filter(|n| n.contains("less than half")).cloned());
        self.touch_manifest();
        warnings.extend(self.prune_after(rows, &checkpoint, lock));
        Ok(Outcome { checkpoint: Some(checkpoint), skips, missed, warnings, read, ..Outcome::default() })
    }

    /// Looks at what a row is about; also returns the trees of the row that it is compared with.
    pub(crate) fn look_now(
        &self,
        options: &Options,
        rows: &Rows,
        parent: Option<&Checkpoint>,
        late: Option<&Late>,
        control: &Control<'_>,
        (notes, warnings): (&mut Vec<String>, &mut Vec<String>),
    ) -> Result<(Live, Root)> {
        let odb = self.odb()?;
        let carried = match parent {
            Some(p) => Root::read(&odb, &p.tree)?,
            None => Root::default(),
        };
        let base = carried.files;
        let (mut elsewhere, named): (Vec<BString>, Vec<BString>) =
            options.paths.iter().cloned().partition(|p| paths::is_outside(p.as_bstr()));
        // A tool may name a file that is not there yet; a person who does has mistyped.
        for p in named.iter().filter(|_| options.kind == Kind::Manual) {
            let here = paths::to_path(self.root(), p.as_bstr()).symlink_metadata().is_ok();
            if !here && tree::lookup(&odb, base, p.as_bstr())?.is_none() {
                return Err(Error::new(
                    Code::NoSuchPath,
                    format!("{}: neither on the disk nor in the last checkpoint", p.to_str_lossy()),
                )
                .at_bytes(p.clone())
                .hint("nothing was recorded"));
            }
        }
        if self.settings().project_digest.is_some() && !self.settings().untrusted.is_empty() {
            notes.push(format!(
                "untrusted project settings are not in force: {}",
                self.settings().untrusted.join(", ")
            ));
        }
        // Within a session coverage only grows; at its start today's rules hold.
        let keep_covered =
            options.session.is_some() && rows.all.iter().any(|c| c.record.session == options.session);
        // A person's checkpoint tries again what was too wide.
        let wide = self.is_unbounded() || options.kind != Kind::Manual && self.is_wide(rows);
        let touched = options.touched || wide;
        let count = parent.map_or(0, |p| p.record.files);
        let mut live = if touched || !options.paths.is_empty() {
            let scope = if touched { "touched" } else { "paths" };
            if touched && options.paths.is_empty() {
                let why = match wide {
                    true => format!("{} is too wide to be covered whole; {NARROWED}", self.root().display()),
                    false => "only named files were asked for, and none was named".to_owned(),
                };
                notes.push(why.clone());
                warnings.push(why);
            }
            scan_named(self, &named, (base, count), scope, Room::unlimited(), control)?
        } else {
            let deadline = match options.time {
                Time::Settings => self.capture_time().and_then(|time| Instant::now().checked_add(time)),
                Time::Until(at) | Time::WholeBy(at) => Some(at),
                Time::Unlimited => None,
            };
            let room = Room::of(self.settings().int("checkpoint_limit"));
            let look = Look { keep_covered, paranoid: options.paranoid, deadline, late };
            match scan_until(self, &look, room, control)? {
                Some(live) => live,
                None => {
                    let why = format!(
                        "{} holds more than {} entries; {NARROWED}",
                        self.root().display(),
                        self.limits().entries
                    );
                    notes.push(why.clone());
                    warnings.push(why);
                    scan_named(self, &[], (base, count), "touched", Room::unlimited(), control)?
                }
            }
        };
        live.outside = carried.outside;
        // A row of everything looks again at the files elsewhere that its session touched.
        if options.paths.is_empty()
            && let Some(id) = &options.session
        {
            elsewhere = preimage::outside_of(&session::line(rows, &rows.sessions, id));
        }
        look_outside(self, &mut live, &elsewhere, control)?;
        if options.kind == Kind::Tool {
            look_above(self, &mut live, &options.paths)?;
        }
        // A look that was cut short may be thrown away.
        if live.covers.is_none() && live.skips.iter().all(|s| s.reason != Reason::Time) {
            let (state, note) = crate::git::record(self, &live.rules, &live.writer, carried.git);
            live.git = state;
            notes.extend(note);
        }
        Ok((live, carried))
    }

    /// The setting of that name; `None`: no limit.
    pub fn capture_time(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.settings().int("capture_time"))).filter(|t| !t.is_zero())
    }

    fn touch_manifest(&self) {
        let Ok(store) = self.store() else { return };
        let now = record::now_ms();
        // At most once an hour: it is a convenience for `stores list`.
        if now - store.manifest().last_used_ms > 3_600_000 {
            let mut m = store.manifest().clone();
            m.last_used_ms = now;
            let _ = store.write_manifest(&m);
        }
    }
}

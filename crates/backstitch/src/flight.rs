//! Turns that begin at once: their row is there as a gap, and its capture goes on beside the agent's first steps.
//!
//! The process that captures holds a lock of the row's. A row that is in flight while nobody holds it stays
//! a gap: its process died. What tools changed while the capture ran is never recorded as "before" (SEMANTICS 4):
//! for paths that they named the pre-image counts, other paths are `unstable`.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader},
    process::{Command, Stdio},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use backstitch_scan::{Reason, Skip};
use backstitch_store::{Expect, Lock};
use bstr::{BString, ByteSlice};

use crate::{
    capture::{Changed, Late},
    checkpoint::{Options, Outcome, Time},
    coverage,
    error::{Code, Error, Result},
    live::Live,
    paths,
    preimage::opens_window,
    record::{CHECKPOINTS, CLOCK, Checkpoint, GATED, IN_FLIGHT, Kind, Record, State, Summary},
    row::{self, NewRow},
    session::{check_session, open_turn},
    tree::{self, Put, Root},
    turn::{Next, TurnOptions, again},
    workspace::{CaptureLock, Control, Rows, Workspace},
};

/// What the process of a capture says on standard output once others can see that it is at work.
pub const AT_WORK: &str = "ready";

/// The clock by which the system dates changes of files, in nanoseconds since 1970.
pub(crate) fn clock_ns() -> i64 {
    // The coarse one: a change made after this reading has no earlier date.
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(id);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// One of a few locks, so that their files stay few.
fn lock_of(id: &str) -> String {
    format!("capture-{}", &id[id.len().saturating_sub(1)..])
}

fn make_gap(r: &mut Record, why: &str) {
    r.state = State::Gap;
    r.reason = Some(why.to_owned());
    r.summary = Summary::default();
    r.unchanged = false;
    r.files = 0;
    r.notes.clear();
}

impl Workspace {
    /// Begins a turn at once: its row is there as a gap until [`Workspace::turn_capture`] has filled it. The same key gives
    /// the same row, in whatever state it is. `gated`: the host waits before its tools run; else what changes from now on
    /// is never "before".
    ///
    /// # Errors
    /// As [`Workspace::turn_begin`].
    pub fn turn_reserve(&mut self, o: &TurnOptions, gated: bool) -> Result<Outcome> {
        check_session(&o.session)?;
        self.ready()?;
        let _turns = self.lock(self.store()?, "turns", true)?;
        let lock = self.lock_capture()?;
        let (rows, options) = match self.turn_next(o)? {
            Next::Known(c) => return Ok(again(Some(&c))),
            Next::New(rows, options) => (rows, options),
        };
        self.reserve(&options, &rows, &lock, gated)
    }

    /// The row of a turn whose capture is to come.
    pub(crate) fn reserve(
        &self,
        options: &Options,
        rows: &Rows,
        lock: &CaptureLock,
        gated: bool,
    ) -> Result<Outcome> {
        let clock = clock_ns();
        let adjust = |r: &mut Record| {
            make_gap(r, "its capture has not ended");
            r.extra.insert(IN_FLIGHT.to_owned(), true.into());
            r.extra.insert(CLOCK.to_owned(), clock.into());
            if !gated {
                r.extra.insert(GATED.to_owned(), false.into());
            }
        };
        self.commit_gap(options, rows, lock, &adjust)
    }

    /// Starts the process that fills a row in flight ([`Workspace::turn_capture`]), and returns when it is at work. It
    /// outlives this one and holds nothing of it: no terminal, no pipe, no folder.
    ///
    /// # Errors
    /// `failed` where there is no program to start or it ends at once; `io`. The row stays a gap then.
    pub fn start_capture(&self, id: &str) -> Result<()> {
        let failed = |e: io::Error| {
            Error::new(Code::Io, format!("starting the capture of {id}: {e}"))
                .hint("`backstitch checkpoint` records the folder in the foreground")
        };
        let Some(program) = &self.surroundings().program else {
            return Err(Error::fault("there is no program to capture in the background"));
        };
        let mut child = Command::new(program)
            .arg("-C")
            .arg(self.root())
            .arg("--store-dir")
            .arg(&self.surroundings().store_base)
            .args(["capture", id])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut said).map_err(failed)?;
        }
        match said.trim_end() {
            AT_WORK => Ok(()),
            _ => Err(Error::new(Code::Failed, format!("the capture of {id} ended at once"))
                .hint("`backstitch checkpoint` records the folder in the foreground and says why it cannot")),
        }
    }

    /// [`Workspace::record_row`] for a host, which goes on in any case: a capture that failed leaves a row that says so. One
    /// that was interrupted, and one whose gap cannot be written either, leaves none.
    pub(crate) fn record_or_gap(
        &self,
        options: &Options,
        control: &Control<'_>,
        lock: &CaptureLock,
        rows: &Rows,
        adjust: Option<&dyn Fn(&mut Record)>,
    ) -> Result<Outcome> {
        match self.record_row(options, control, lock, rows, Vec::new(), adjust) {
            Err(e) if e.code != Code::Interrupted => {
                let why = format!("there is no checkpoint: {}", e.message);
                self.record_gap(options, rows, lock, &why).map_err(|_| e)
            }
            r => r,
        }
    }

    /// A row that says why there is none.
    pub(crate) fn record_gap(
        &self,
        options: &Options,
        rows: &Rows,
        lock: &CaptureLock,
        why: &str,
    ) -> Result<Outcome> {
        let out = self.commit_gap(options, rows, lock, &|r| make_gap(r, why))?;
        Ok(Outcome { warnings: vec![format!("{why}; this row is a gap")], ..out })
    }

    fn commit_gap(
        &self,
        options: &Options,
        rows: &Rows,
        lock: &CaptureLock,
        adjust: &dyn Fn(&mut Record),
    ) -> Result<Outcome> {
        let live = Live::empty(self.rules()?, self.store()?.writer()?);
        let parent = self.parent(rows, options.session.as_deref())?;
        let new = NewRow { options, parent, operation: None, notes: Vec::new(), adjust: Some(adjust) };
        let (c, repeated) = row::commit_row(self, rows, live, new, lock)?;
        Ok(Outcome { checkpoint: Some(c), repeated, ..Outcome::default() })
    }

    /// Fills the row of a turn that was begun at once. `ready` is called as soon as others can see that this goes on.
    /// Captures of this kind run one at a time, so that they do not take the disk from the agents.
    ///
    /// # Errors
    /// `no-such-checkpoint` where the row is not in flight; as [`Workspace::checkpoint`]: the row stays a gap then.
    pub fn turn_capture(&mut self, id: &str, ready: &dyn Fn(), control: &Control<'_>) -> Result<Outcome> {
        let at_work: Lock = self.lock(self.store()?, &lock_of(id), true)?;
        ready();
        let _one = self.one_at_a_time(control)?;
        self.check_room()?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        let r = &row_in_flight(&rows, id)?.record;
        let options = Options {
            id: Some(r.id.clone()),
            kind: r.kind,
            session: r.session.clone(),
            turn: r.turn,
            turn_key: r.turn_key.clone(),
            time: Time::Unlimited,
            ..Options::default()
        };
        let parent = self.parent(&rows, r.session.as_deref())?;
        let late = Late::since(r.clock_ns().unwrap_or_default());
        let (mut notes, mut warnings) = (Vec::new(), Vec::new());
        let (mut live, base) =
            self.look_now(&options, &rows, parent, Some(&late), control, (&mut notes, &mut warnings))?;
        let beside = self.rows()?;
        set_right(&mut live, &base, &beside, &row_in_flight(&beside, id)?.record, late.into_found())?;
        let (skips, read) = (live.skips.clone(), live.read);
        let new = NewRow { options: &options, parent, operation: None, notes, adjust: None };
        let c = self.fill_row(&rows, live, new, id, &lock)?;
        drop(at_work);
        Ok(Outcome { checkpoint: Some(c), skips, warnings, read, ..Outcome::default() })
    }

    fn one_at_a_time(&self, control: &Control<'_>) -> Result<Lock> {
        loop {
            if control.interrupt.load(Ordering::Relaxed) {
                return Err(Error::new(Code::Interrupted, "interrupted; the turn has no checkpoint"));
            }
            match self.store()?.lock_exclusive("background", Duration::from_millis(100)) {
                Err(backstitch_store::Error::Busy { .. }) => {}
                r => return Ok(r?),
            }
        }
    }

    /// Puts what was found into a row that is in flight; what was said of it meanwhile stays.
    fn fill_row(
        &self,
        rows: &Rows,
        live: Live,
        new: NewRow<'_>,
        id: &str,
        _lock: &CaptureLock,
    ) -> Result<Checkpoint> {
        let (mut found, tree) = row::build_record(self, rows, &live, new)?;
        let Live { writer, update, watched, .. } = live;
        let written = writer.finish()?;
        let name = format!("{CHECKPOINTS}{id}");
        loop {
            let now = self.rows()?;
            let c = row_in_flight(&now, id)?;
            let mut extra = found.extra.clone();
            extra.extend(c.record.extra.clone());
            found = Record {
                seq: c.record.seq,
                created_ms: c.record.created_ms,
                prompt: c.record.prompt.clone(),
                entry: c.record.entry.clone(),
                label: c.record.label.clone(),
                pinned: c.record.pinned,
                retention: c.record.retention,
                extra,
                ..found
            };
            found.extra.remove(IN_FLIGHT);
            found.extra.remove(CLOCK);
            let writer = self.store()?.writer()?;
            let mut s = writer.scratch();
            let seconds = found.created_ms.div_euclid(1000);
            let commit = writer.commit(&mut s, &tree, &found.message(), seconds)?;
            let (_, staged) = writer.finish_for(&commit)?;
            match self.store()?.refs().set_staged(&found.row(commit, tree), Expect::Is(c.commit), staged) {
                Ok(_) => {
                    row::save_table(self, update, name, watched)?;
                    self.tend(&commit, written.pack.is_none());
                    return Ok(Checkpoint { record: found.into(), commit, tree });
                }
                // Bound, labelled or pinned just now.
                Err(_) if self.rows()?.by_id(id).is_some_and(|x| x.commit != c.commit) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits until a row is no longer in flight. Comes back earlier where its process died; a row that is still in flight
    /// then, or after `wait`, is a gap.
    ///
    /// # Errors
    /// `no-such-checkpoint`, `interrupted`.
    pub fn turn_wait(&self, id: &str, wait: Duration, control: &Control<'_>) -> Result<Checkpoint> {
        self.wait_for(id, wait, control).map(|(c, _)| c)
    }

    /// The row, and whether its capture still goes on.
    fn wait_for(&self, id: &str, wait: Duration, control: &Control<'_>) -> Result<(Checkpoint, bool)> {
        const SLICE: Duration = Duration::from_millis(50);
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let held = match self.store()?.lock_shared(&lock_of(id), left.min(SLICE)) {
                Ok(_free) => false,
                Err(backstitch_store::Error::Busy { .. }) => true,
                Err(e) => return Err(e.into()),
            };
            let rows = self.rows()?;
            let c = rows.by_id(id).ok_or_else(|| no_row(id))?;
            if !c.record.in_flight() || !held || left.is_zero() {
                return Ok((c.clone(), held && c.record.in_flight()));
            }
            if control.interrupt.load(Ordering::Relaxed) {
                return Err(Error::new(Code::Interrupted, "interrupted while waiting for a checkpoint"));
            }
        }
    }

    /// Before a tool of which nobody knows what it will change: waits for the checkpoint of the session's turn.
    pub(crate) fn wait_at_gate(&self, rows: &Rows, session: &str, control: &Control<'_>) -> Result<Gate> {
        let own: Vec<&Checkpoint> = rows.of_session(session);
        let Some(turn) = open_turn(&own).filter(|c| c.record.in_flight()) else { return Ok(Gate::Open) };
        let wait = Duration::from_secs(self.settings().int("gate_timeout"));
        // A capture whose process died keeps nobody waiting.
        Ok(match self.wait_for(&turn.record.id, wait, control)? {
            (_, true) => Gate::Shut(wait),
            (_, false) => Gate::Opened,
        })
    }
}

/// How a tool came through the gate.
pub(crate) enum Gate {
    /// There was nothing to wait for.
    Open,
    /// It waited for the checkpoint: there are other rows now.
    Opened,
    /// It waited so long, in vain.
    Shut(Duration),
}

fn no_row(id: &str) -> Error {
    Error::new(Code::NoSuchCheckpoint, format!("there is no checkpoint {id}"))
        .hint("`backstitch list --all` shows every checkpoint")
}

fn row_in_flight<'a>(rows: &'a Rows, id: &str) -> Result<&'a Checkpoint> {
    let c = rows.by_id(id).ok_or_else(|| no_row(id))?;
    if c.record.in_flight() {
        return Ok(c);
    }
    Err(Error::new(Code::NoSuchCheckpoint, format!("checkpoint {id} does not wait for its capture"))
        .hint("it is recorded already"))
}

/// Takes out of a look what tools did while it went on. `late` is what changed since the row began, as the look saw it.
fn set_right(live: &mut Live, base: &Root, rows: &Rows, row: &Record, late: Vec<Changed>) -> Result<()> {
    let odb = live.writer.odb().clone();
    let own: Vec<&Checkpoint> =
        rows.all.iter().filter(|c| c.record.session == row.session && c.record.seq > row.seq).collect();
    let windows: Vec<&Checkpoint> = own.iter().copied().filter(|c| opens_window(c)).collect();
    let first = match windows.first() {
        Some(w) if row.gated() != Some(false) => w.record.clock_ns().unwrap_or_default(),
        None if own.iter().all(|c| c.record.kind != Kind::Turn) && row.gated() != Some(false) => {
            return Ok(());
        }
        // Nobody said when the first tool ran.
        _ => row.clock_ns().unwrap_or_default(),
    };
    // The first touch of a path says what stood there, and which directories above it did.
    let mut before: BTreeMap<BString, Option<Put>> = BTreeMap::new();
    for w in &windows {
        let (root, covers) = coverage::of_checkpoint(&odb, w)?;
        for n in w.record.named().unwrap_or_default() {
            if !covers.covers(n.as_bstr()) {
                continue;
            }
            let above = paths::parents(n.as_bstr()).map(|d| (d.to_owned(), root.find(&odb, d)));
            let missing = above.filter(|(_, e)| matches!(e, Ok(None))).map(|(d, _)| (d, None));
            let stood = root.find(&odb, n.as_bstr())?.map(|e| {
                let dir = e.node.is_dir().then_some(e.dir);
                Put { node: e.node, attrs: e.attrs, dir }
            });
            for (path, put) in missing.chain([(n.clone(), stood)]) {
                before.entry(path).or_insert(put);
            }
        }
    }
    let coverage = live.coverage();
    before.retain(|p, _| coverage.covers(p.as_bstr()));
    let mut edits: Vec<(BString, Option<Put>)> = Vec::new();
    let mut unstable: Vec<Skip> = Vec::new();
    let mut leave = |path: BString, is_dir: bool, edits: &mut Vec<(BString, Option<Put>)>| {
        edits.push((path.clone(), None));
        unstable.push(Skip { path, reason: Reason::Unstable, bytes: None, detail: None, is_dir });
    };
    for c in late.into_iter().filter(|c| c.ctime_ns >= first) {
        if before.keys().any(|p| paths::is_under(c.path.as_bstr(), p.as_bstr())) && !c.is_dir {
            continue;
        }
        if !c.is_dir {
            leave(c.path, false, &mut edits);
            continue;
        }
        let was = tree::lookup(&odb, base.files, c.path.as_bstr())?.filter(|e| e.node.is_dir());
        let Some(was) = was else {
            if !before.contains_key(&c.path) && !c.path.is_empty() {
                leave(c.path, true, &mut edits);
            }
            continue;
        };
        // What went from it went nobody knows when.
        let is = tree::lookup(&odb, live.files, c.path.as_bstr())?.map(|e| e.dir).unwrap_or_default();
        let now: Vec<BString> = tree::read_dir(&odb, is)?.into_iter().map(|e| e.name).collect();
        for gone in tree::read_dir(&odb, was.dir)?.into_iter().filter(|e| !now.contains(&e.name)) {
            let path = paths::join(c.path.as_bstr(), &gone.name);
            if !before.contains_key(&path) && coverage.covers(path.as_bstr()) {
                leave(path, gone.node.is_dir(), &mut edits);
            }
        }
    }
    edits.extend(before);
    let dirs: Vec<BString> = unstable.iter().filter(|s| s.is_dir).map(|s| s.path.clone()).collect();
    let below = |p: &BString| dirs.iter().any(|d| d != p && paths::is_under(p.as_bstr(), d.as_bstr()));
    unstable.retain(|s| !below(&s.path));
    if edits.is_empty() {
        return Ok(());
    }
    live.edit(edits)?;
    live.skips.extend(unstable);
    let mut count = 0;
    tree::walk(&odb_of(live), live.files, &mut |_, e| {
        count += u64::from(!e.node.is_dir());
        Ok(())
    })?;
    live.count = count;
    // The row does not hold all that the table would vouch for.
    live.update = None;
    Ok(())
}

fn odb_of(live: &Live) -> backstitch_store::Odb {
    live.writer.odb().clone()
}

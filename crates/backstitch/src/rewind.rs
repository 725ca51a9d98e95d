//! `rewind`: take back what a session did since a turn, and nothing else. `revert`: one turn, and keep the later ones.

use std::collections::{BTreeMap, btree_map::Entry};

use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    attribution,
    error::{Code, Error, Result},
    live, moves,
    operation::{self, OpKind, Outcome, Request},
    place::{Found, Place},
    plan::{Action, Item, Plan, Scope, Stand},
    preimage,
    record::Kind,
    roots::Meant,
    session,
    tree::{self, DirRef},
    undo::{OnConflict, Resolve, inverse, refuse_conflicts},
    workspace::{Control, Rows, Workspace},
};

/// How to rewind or revert.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `N`, `turn:N`, `prompt:N`, or a checkpoint.
    pub to: String,
    /// The session; the only one where not said.
    pub session: Option<String>,
    /// Only these (relative to the root, literal, with all below).
    pub paths: Vec<BString>,
    /// Only what matches (ignore-file syntax).
    pub globs: Vec<String>,
    /// Preview.
    pub dry_run: bool,
    /// Paths with unsaved text in an editor: left alone.
    pub busy: Vec<BString>,
    /// A path that is not as the session left it.
    pub on_conflict: OnConflict,
    /// Also what changed inside its turns but outside its tool windows.
    pub include_unattributed: bool,
    /// Delete nothing.
    pub no_delete: bool,
    /// No listed safety row.
    pub no_safety: bool,
    /// Apply only if the plan is exactly this one.
    pub plan: Option<String>,
    /// Setuid, setgid and capabilities come back.
    pub privileged: bool,
    /// Also while another session has a tool window open.
    pub force: bool,
    /// Also of turns in a folder that stood at this path before.
    pub replaced: bool,
    /// Also files outside the workspace that the session changed.
    pub outside: bool,
    /// Where lines clash in a merge, put both sides into the file, between conflict markers.
    pub markers: bool,
}

/// The turn that a name means: the first one that a rewind takes back, the one that a revert does.
fn turn_of(
    rows: &Rows,
    session: &str,
    line: &[&crate::record::Checkpoint],
    to: &str,
    kind: OpKind,
) -> Result<u64> {
    let number = to.strip_prefix("turn:").or_else(|| to.strip_prefix("prompt:")).unwrap_or(to);
    let highest = line.iter().filter_map(|c| c.record.turn).max().unwrap_or(0);
    if let Ok(n) = number.parse::<u64>()
        && n <= 1_000_000
    {
        return match line.iter().any(|c| c.record.turn == Some(n)) {
            true => Ok(n),
            false => Err(Error::new(Code::NoSuchCheckpoint, format!("session {session:?} has no turn {n}"))
                .hint(format!(
                    "its turns are 1 to {highest}; `backstitch list --session {session}` shows them"
                ))),
        };
    }
    let c = crate::names::resolve(rows, to, Some(session))?;
    let of_line = line.iter().any(|x| x.record.id == c.record.id);
    if kind == OpKind::Revert {
        return c.record.turn.filter(|_| of_line).ok_or_else(|| {
            Error::new(
                Code::NoSuchCheckpoint,
                format!("checkpoint {} is of no turn of session {session:?}", c.record.id),
            )
            .hint(format!("`backstitch session show {session}` lists its turns"))
        });
    }
    // A row of another line is only a time: its turns have numbers of their own.
    match (c.record.kind, c.record.turn.filter(|_| of_line)) {
        (Kind::Prompt, Some(n)) => Ok(n),
        // The state after a turn: the next one is the first to go.
        (Kind::Turn, Some(n)) => Ok(n + 1),
        _ => Ok(line
            .iter()
            .filter(|x| x.record.kind == Kind::Prompt && x.record.seq > c.record.seq)
            .filter_map(|x| x.record.turn)
            .min()
            .unwrap_or(highest + 1)),
    }
}

impl Workspace {
    /// Takes back what the session did in the named turn and all later ones of its line. A path is changed only if it
    /// is still as the session left it; a path that is already as wanted is kept, whoever made it so. With
    /// [`OnConflict::Merge`] what others changed since is kept line by line, and found again where it was moved.
    ///
    /// # Errors
    /// `no-such-session`, `no-such-checkpoint`, `conflict` with [`OnConflict::Refuse`], `plan-changed`, `busy`.
    pub fn rewind(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        self.take_back(OpKind::Rewind, options, control)
    }

    /// Takes back what the session did in the named turn, and keeps what came later, its own turns included: a merge
    /// line by line, at the place where a file is now. Lines that were changed again since stay and are told as
    /// [`crate::plan::Item::clashes`]; [`OnConflict::Overwrite`] takes them back too.
    ///
    /// # Errors
    /// As [`Workspace::rewind`].
    pub fn revert(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        self.take_back(OpKind::Revert, options, control)
    }

    fn take_back(&self, kind: OpKind, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let rows = self.rows()?;
        let id = crate::names::session_of(&rows, options.session.as_deref())?;
        let roots = self.other_roots(id, &rows);
        let elsewhere = match options.outside {
            true => {
                let mut all = preimage::outside_of(&session::line(&rows, &rows.sessions, id));
                all.extend(roots.iter().map(|r| crate::paths::bytes(r).to_owned()));
                all
            }
            false => Vec::new(),
        };
        let lock = self.lock_operation_with(&elsewhere)?;
        let rows = self.rows()?;
        let id = crate::names::session_of(&rows, options.session.as_deref())?.to_owned();
        let sessions = self.session_records()?;
        let line = session::line(&rows, &sessions, &id);
        if line.is_empty() && !sessions.contains_key(&id) {
            return Err(Error::new(Code::NoSuchSession, format!("there is no session {id:?} here"))
                .hint("`backstitch session list` shows all"));
        }
        let turn = turn_of(&rows, &id, &line, &options.to, kind)?;
        if !options.force && !options.dry_run {
            refuse_open(&rows, Some(&id))?;
        }
        let turns = match kind {
            OpKind::Revert => turn..=turn,
            _ => turn..=u64::MAX,
        };
        let mut takes_back: Vec<u64> = line
            .iter()
            .filter(|c| c.record.kind == Kind::Prompt)
            .filter_map(|c| c.record.turn)
            .filter(|t| turns.contains(t))
            .collect();
        takes_back.sort_unstable();
        takes_back.dedup();
        refuse_damaged(&rows, &line, turn)?;
        let taken = |c: &&crate::record::Checkpoint| c.record.turn.is_some_and(|t| turns.contains(&t));
        self.refuse_replaced(line.iter().copied().filter(taken), options.replaced)?;
        let odb = self.odb()?;
        let (mut sums, mut loose) =
            attribution::sum(&odb, &rows, &sessions, &self.operations()?, &id, &turns)?;
        let begun: Vec<&crate::record::Checkpoint> = line
            .iter()
            .copied()
            .filter(|c| c.record.kind == Kind::Prompt && c.record.turn.is_some_and(|t| turns.contains(&t)))
            .collect();
        let meant = Meant::of(&begun, kind == OpKind::Rewind);
        for other in self.in_other_roots(&id, &roots, &meant, options.force || options.dry_run)? {
            // What is only listed, or only compared, needs no content.
            if options.outside && (!options.dry_run || options.on_conflict == OnConflict::Merge) {
                self.adopt(&other)?;
            }
            for (path, sum) in other.sums {
                sums.entry(path).or_insert(sum);
            }
            for (path, t) in other.loose {
                loose.entry(path).or_insert(t);
            }
        }
        let scope = Scope::new(options.paths.clone(), &options.globs, options.busy.clone())?;

        // What the session did, as done items; their inverse against the disk is the plan.
        let mut how = Resolve::new(options.on_conflict, options.markers);
        how.merge |= kind == OpKind::Revert;
        let mut done: Vec<Item> = Vec::new();
        let mut fixed: BTreeMap<BString, (Action, &'static str)> = BTreeMap::new();
        let mut add = |path: &BString, from: Option<&Stand>, left: Option<&Stand>, merged: bool| {
            let is_dir = [from, left].iter().flatten().any(|s| s.node.is_dir());
            if !scope.contains(path.as_bstr(), is_dir) {
                return false;
            }
            let made = match Item::transition(path.clone(), from.cloned(), left.cloned()) {
                Some(i) => i,
                // It came back to where it had been, over somebody else's change.
                None if merged => {
                    let mut i = Item::keep(path.clone(), Action::Keep, "already");
                    (i.from, i.to) = (from.cloned(), left.cloned());
                    i
                }
                None => return false,
            };
            done.push(made);
            true
        };
        for (path, s) in &sums {
            let mixed = s.steps.len() > 1;
            if !add(path, s.from(), s.left(), mixed && how.merge) {
                continue;
            }
            if s.forgotten {
                fixed.insert(path.clone(), (Action::Keep, crate::forget::FORGOTTEN));
            } else if s.shared {
                fixed.insert(path.clone(), (Action::Conflict, "shared"));
            } else if mixed && !how.merge {
                fixed.insert(path.clone(), (Action::Conflict, "changed-between"));
            } else if s.crashed && s.left().is_some() && !options.include_unattributed {
                fixed.insert(path.clone(), (Action::Skip, "unattributed"));
            }
            if mixed {
                how.steps.insert(path.clone(), s.steps.clone());
            }
        }
        for (path, t) in &loose {
            let added = add(path, t.from.as_ref(), t.to.as_ref(), false);
            if added && !options.include_unattributed {
                fixed.insert(path.clone(), (Action::Skip, "unattributed"));
            }
        }
        done.sort_by(|a, b| a.path.cmp(&b.path));
        let mut place = Place::of(self, "plan")?;
        let (mut plan, mut present) = inverse(&mut place, done, &how)?;
        let mut live = match self.is_wide(&rows) {
            true => None,
            false => live::scan_all(self, true, self.room_to_look()?, control)?,
        };
        let whole = match (&live, rows.newest()) {
            (Some(live), _) => live.files,
            (None, Some(c)) => tree::Root::read(&odb, &c.tree)?.files,
            (None, None) => DirRef::default(),
        };
        let reader = live.as_ref().map_or(&odb, |l| l.writer.odb());
        let mut others: Vec<&BStr> = sums.keys().map(|p| p.as_bstr()).collect();
        others.extend(loose.keys().map(|p| p.as_bstr()));
        if let Some(live) = &live {
            others.extend(live.skips.iter().map(|s| s.path.as_bstr()));
        }
        scope.check_patterns(reader, &[whole], &others)?;
        for p in &scope.paths {
            let here = || crate::paths::to_path(self.root(), p.as_bstr()).symlink_metadata().is_ok();
            if !others.iter().any(|o| crate::paths::is_under(o, p.as_bstr())) && !here() {
                return Err(Error::new(
                    Code::NoSuchPath,
                    format!("{}: neither on the disk nor changed by the session", p.to_str_lossy()),
                )
                .at_bytes(p.clone())
                .hint("paths after -- are literal and relative to the current folder; nothing was changed"));
            }
        }
        if let Some(live) = &mut live {
            live.outside = match rows.newest() {
                Some(c) => tree::Root::read(&odb, &c.tree)?.outside,
                None => DirRef::default(),
            };
            let seen = Seen { odb: live.writer.odb(), rows: &rows, live: live.files, sums: &sums };
            seen.moved(&mut place, &mut plan, &mut present, &fixed, &how)?;
        }
        for i in plan.items.iter_mut().filter(|i| i.reason.as_deref() != Some("already")) {
            match fixed.get(&i.path) {
                Some((Action::Conflict, _)) if options.on_conflict == OnConflict::Overwrite => {}
                Some((action, why)) => {
                    i.leave(*action, why);
                    i.clashes.clear();
                }
                None => {}
            }
            if scope.busy.iter().any(|b| crate::paths::is_under(i.path.as_bstr(), b.as_bstr()))
                && i.action.changes()
            {
                i.leave(Action::Keep, "busy");
            }
            if options.no_delete && matches!(i.action, Action::Delete | Action::Rmdir) {
                i.leave(Action::Keep, "no-delete");
            }
        }
        self.leave_alone(&mut plan)?;
        leave_outside(&mut plan, options.outside);
        self.add_missing_parents(&mut place, &rows, &mut plan, &mut present)?;
        if options.no_safety {
            crate::restore::keep_unheld(&odb, &rows, &mut plan)?;
        }
        // Trees with contents that are nowhere are good for a plan only.
        let live = live.filter(|l| !l.room.was_passed());
        self.find_room(&mut plan, live.as_ref().map_or(&odb, |l| l.writer.odb()))?;
        crate::plan::settle_on_disk(self.root(), &mut plan);
        let target = match kind {
            OpKind::Revert => format!("{id}/turn:{turn}"),
            _ => format!("{id}/prompt:{turn}"),
        };
        if options.on_conflict == OnConflict::Refuse {
            refuse_conflicts(&plan, "paths are not as the session left them", "takes back")?;
        }
        let digest = plan.agreed(&target, options.plan.as_deref())?;
        if options.dry_run {
            return Ok(Outcome::preview(plan.items, digest, target, takes_back));
        }
        let live = match live.filter(|_| plan.unheld.is_empty()) {
            Some(live) => self.hold(live, &plan, present)?,
            None => self.live_of(&rows, &plan, present)?,
        };
        operation::run(
            self,
            Request {
                kind,
                target,
                inverts: None,
                session: Some(id),
                plan,
                live,
                listed_safety: !options.no_safety,
                git: None,
                privileged: options.privileged,
                takes_back,
                narrowed: !scope.is_everything(),
                lock: &lock,
                rows: &rows,
                control,
            },
        )
    }
}

/// A row that cannot be read may be an end of one of the windows: without it nobody knows what the session did since.
pub(crate) fn refuse_damaged(rows: &Rows, line: &[&crate::record::Checkpoint], turn: u64) -> Result<()> {
    let begun =
        line.iter().filter(|c| c.record.turn.is_some_and(|t| t >= turn)).map(|c| c.record.id.as_str()).min();
    match rows.damaged.iter().find(|(name, _)| name.rsplit('/').next() >= begun) {
        Some((name, why)) => Err(Error::new(Code::StoreDamaged, format!("{name} cannot be read: {why}")).hint(
            "`backstitch verify --repair` sets it aside, and `restore` goes back to any other row; nothing was changed",
        )),
        None => Ok(()),
    }
}

/// Files outside the workspace are changed only where they were asked for (SEMANTICS 19).
pub(crate) fn leave_outside(plan: &mut Plan, asked: bool) {
    if asked {
        return;
    }
    for i in plan.items.iter_mut().filter(|i| i.is_outside() && i.reason.as_deref() != Some("already")) {
        i.leave(Action::Skip, "outside");
    }
}

/// While another session has a tool window open, its next step may stand on what would be taken away.
pub(crate) fn refuse_open(rows: &Rows, own: Option<&str>) -> Result<()> {
    const LIVE_MS: i64 = 3_600_000;
    let now = crate::record::now_ms();
    let mut open: BTreeMap<&str, Vec<&crate::record::Record>> = BTreeMap::new();
    // What runs on another machine does not run here.
    for r in rows.all.iter().map(|c| &c.record).filter(|r| !r.extra.contains_key(crate::sync::SYNCED)) {
        let Some(id) = r.session.as_deref().filter(|s| Some(*s) != own) else { continue };
        let of = open.entry(id).or_default();
        match (r.kind, r.phase.as_deref()) {
            (Kind::Tool, Some("before")) => of.push(r),
            (Kind::Tool, _) if r.call.is_some() => of.retain(|b| b.call != r.call),
            (Kind::Tool, _) => {
                if let Some(n) = of.iter().rposition(|b| b.call.is_none()) {
                    of.remove(n);
                }
            }
            // What was not ended before its turn was, or before the next one, is not waited for.
            (Kind::Prompt | Kind::Turn | Kind::SessionStart, _) => of.clear(),
            _ => {}
        }
    }
    match open.iter().find(|(_, of)| of.iter().any(|b| now - b.created_ms < LIVE_MS)) {
        Some((id, _)) => Err(Error::new(Code::Busy, format!("session {id:?} has a tool window open"))
            .hint(format!("wait until its tool has ended, or say --force; where the agent is gone, `backstitch session end {id}`"))),
        None => Ok(()),
    }
}

/// What is needed to find where paths went.
struct Seen<'a> {
    odb: &'a Odb,
    rows: &'a Rows,
    live: DirRef,
    sums: &'a BTreeMap<BString, attribution::Sum>,
}

impl Seen<'_> {
    /// A path that is gone while exactly one new path holds the bytes that the session last left (SEMANTICS 13). A merge
    /// goes on there, also where somebody changed it after the move.
    fn moved(
        &self,
        place: &mut Place,
        plan: &mut Plan,
        present: &mut Vec<Found>,
        fixed: &BTreeMap<BString, (Action, &'static str)>,
        how: &Resolve,
    ) -> Result<()> {
        // New is what the last row up to the session's last look did not hold, and it did not make itself.
        let mut news: BTreeMap<u64, moves::New<'_>> = BTreeMap::new();
        for (path, s) in self.sums {
            // What a session made is gone as it should be, unless it is somewhere else.
            let made = how.merge && s.from().is_none() && s.left().is_some();
            let at = plan.items.binary_search_by(|i| i.path.cmp(path));
            let gone = at.is_ok_and(|n| {
                let i = &plan.items[n];
                i.reason.as_deref() == Some("already") && made && i.from.is_none() && i.to.is_none()
            });
            if !gone && !moves::is_gone(plan, path.as_bstr()) {
                continue;
            }
            let base = self
                .rows
                .all
                .iter()
                .rev()
                .find(|c| c.record.seq <= s.at && c.record.covers.is_none() && c.record.is_restorable());
            let key = base.map_or(0, |c| c.record.seq);
            if let Entry::Vacant(free) = news.entry(key) {
                let files = match base {
                    Some(c) => tree::Root::read(self.odb, &c.tree)?.files,
                    None => DirRef::default(),
                };
                let foreign = |p: &BStr| !self.sums.contains_key(p);
                free.insert(moves::New::between(self.odb, files, self.live, &foreign)?);
            }
            let Some(new) = news.get(&key) else { continue };
            let Some(to) = new.of(path.as_bstr(), s.left(), how.merge)? else { continue };
            if how.merge && !fixed.contains_key(path) {
                moves::follow(place, plan, present, path.as_bstr(), to, &s.steps, how)?;
            } else if let Some(i) = plan.items.iter_mut().find(|i| i.path == *path) {
                i.reason = Some("moved".to_owned());
                i.moved_to = Some(to);
            }
        }
        Ok(())
    }
}

//! `rewind`: take back what a session did since a turn, and nothing else.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice};

use crate::{
    attribution,
    error::{Code, Error, Result},
    live,
    operation::{self, OpKind, Outcome, Request},
    place::Place,
    plan::{Action, Item, Plan, Progress, Scope},
    preimage,
    record::Kind,
    session,
    tree::{self, DirRef},
    undo::{OnConflict, first, inverse},
    workspace::{Control, Rows, Workspace},
};

/// How to rewind.
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
    /// Also files outside the workspace that the session changed.
    pub outside: bool,
}

/// The first turn that is taken back.
fn first_turn(rows: &Rows, session: &str, line: &[&crate::record::Checkpoint], to: &str) -> Result<u64> {
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
    match (c.record.kind, c.record.turn) {
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
    /// is still as the session left it; a path that is already as wanted is kept, whoever made it so.
    ///
    /// # Errors
    /// `no-such-session`, `no-such-checkpoint`, `conflict` with [`OnConflict::Refuse`], `plan-changed`, `busy`.
    pub fn rewind(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let rows = self.rows()?;
        let id = crate::names::session_of(&rows, options.session.as_deref())?;
        let elsewhere = match options.outside {
            true => preimage::outside_of(&session::line(&rows, &rows.sessions, id)),
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
        let turn = first_turn(&rows, &id, &line, &options.to)?;
        if !options.force && !options.dry_run {
            refuse_open(&rows, Some(&id))?;
        }
        let mut takes_back: Vec<u64> = line
            .iter()
            .filter(|c| c.record.kind == Kind::Prompt)
            .filter_map(|c| c.record.turn)
            .filter(|t| *t >= turn)
            .collect();
        takes_back.sort_unstable();
        takes_back.dedup();
        refuse_damaged(&rows, &line, turn)?;
        let odb = self.odb()?;
        let (sums, loose) = attribution::sum(&odb, &rows, &sessions, &self.operations()?, &id, turn)?;
        let scope = Scope::new(options.paths.clone(), &options.globs, options.busy.clone())?;

        // What the session did, as done items; their inverse against the disk is the plan.
        let mut done: Vec<Item> = Vec::new();
        let mut fixed: BTreeMap<BString, (Action, &'static str)> = BTreeMap::new();
        let mut add = |path: &BString, from, left| {
            let is_dir = [&from, &left]
                .iter()
                .any(|s: &&Option<crate::plan::Stand>| s.as_ref().is_some_and(|s| s.node.is_dir()));
            if !scope.contains(path.as_bstr(), is_dir) {
                return false;
            }
            match Item::transition(path.clone(), from, left) {
                Some(mut i) => {
                    i.result = Progress::Done;
                    done.push(i);
                    true
                }
                None => false,
            }
        };
        for (path, s) in &sums {
            if !add(path, s.from.clone(), s.left.clone()) {
                continue;
            }
            if s.shared {
                fixed.insert(path.clone(), (Action::Conflict, "shared"));
            } else if s.mixed {
                fixed.insert(path.clone(), (Action::Conflict, "changed-between"));
            } else if s.crashed && s.left.is_some() && !options.include_unattributed {
                fixed.insert(path.clone(), (Action::Skip, "unattributed"));
            }
        }
        for (path, t) in &loose {
            if add(path, t.from.clone(), t.to.clone()) && !options.include_unattributed {
                fixed.insert(path.clone(), (Action::Skip, "unattributed"));
            }
        }
        done.sort_by(|a, b| a.path.cmp(&b.path));
        let mut place = Place::of(self, "plan")?;
        let (mut plan, present) = inverse(&mut place, done, options.on_conflict)?;
        for i in plan
            .items
            .iter_mut()
            .filter(|i| i.action != Action::Keep || i.reason.as_deref() != Some("already"))
        {
            match fixed.get(&i.path) {
                Some((Action::Conflict, _)) if options.on_conflict == OnConflict::Overwrite => {}
                Some((action, why)) => i.leave(*action, why),
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
        self.keep_out_of_repositories(&mut plan)?;
        leave_outside(&mut plan, options.outside);
        crate::plan::settle(&mut plan, &|_| false);
        let mut live = match self.is_unbounded() {
            true => None,
            false => live::scan_all(self, true, crate::capture::Room::unlimited(), control)?,
        };
        if let Some(live) = &mut live {
            live.outside = match rows.newest() {
                Some(c) => tree::Root::read(&odb, &c.tree)?.outside,
                None => DirRef::default(),
            };
            mark_moved(&odb_of(live), &rows, live.files, &mut plan, &sums)?;
        }
        let target = format!("{id}/prompt:{turn}");
        let conflicts: Vec<String> = plan
            .items
            .iter()
            .filter(|i| i.action == Action::Conflict)
            .map(|i| i.path.to_str_lossy().into_owned())
            .collect();
        if options.on_conflict == OnConflict::Refuse && !conflicts.is_empty() {
            return Err(Error::new(
                Code::Conflict,
                format!("{} paths are not as the session left them: {}", conflicts.len(), first(&conflicts)),
            )
            .at_bytes(conflicts[0].as_str())
            .list(conflicts)
            .hint("--on-conflict keep leaves them alone and takes back the rest; nothing was changed"));
        }
        let digest = plan.digest(&target);
        if let Some(wanted) = options.plan.as_ref().filter(|w| **w != digest) {
            return Err(Error::new(
                Code::PlanChanged,
                format!("the plan is no longer {wanted}: the disk has changed since"),
            )
            .hint("look at the new plan with --dry-run; nothing was changed"));
        }
        if options.dry_run {
            return Ok(Outcome {
                operation: None,
                dry_run: true,
                plan: digest,
                target,
                safety: None,
                verified: false,
                partial: operation::is_partial(&plan.items),
                items: plan.items,
                takes_back,
                warnings: Vec::new(),
            });
        }
        self.check_room()?;
        let live = match live {
            Some(live) => self.hold(live, &plan, present)?,
            None => self.live_of(&rows, &plan, present)?,
        };
        operation::run(
            self,
            Request {
                kind: OpKind::Rewind,
                target,
                inverts: None,
                session: Some(id),
                plan,
                live,
                listed_safety: !options.no_safety,
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

fn odb_of(live: &live::Live) -> backstitch_store::Odb {
    live.writer.odb().clone()
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
    let settled = |i: &Item| i.action == Action::Keep && i.reason.as_deref() == Some("already");
    for i in plan.items.iter_mut().filter(|i| !asked && i.is_outside() && !settled(i)) {
        i.leave(Action::Skip, "outside");
    }
}

/// While another session has a tool window open, its next step may stand on what would be taken away.
pub(crate) fn refuse_open(rows: &Rows, own: Option<&str>) -> Result<()> {
    const LIVE_MS: i64 = 3_600_000;
    let now = crate::record::now_ms();
    let mut ids: Vec<&str> =
        rows.all.iter().filter_map(|c| c.record.session.as_deref()).filter(|s| Some(*s) != own).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let of: Vec<&crate::record::Checkpoint> =
            rows.all.iter().filter(|c| c.record.session.as_deref() == Some(id)).collect();
        let Some(last) = of.last() else { continue };
        let open = last.record.kind == Kind::Tool
            && last.record.phase.as_deref() == Some("before")
            && now - last.record.created_ms < LIVE_MS;
        if open {
            return Err(Error::new(Code::Busy, format!("session {id:?} has a tool window open"))
                .hint("wait until its tool has ended, or say --force"));
        }
    }
    Ok(())
}

/// A path that is gone while exactly one new path holds the bytes that the session last left (SEMANTICS 13).
fn mark_moved(
    odb: &backstitch_store::Odb,
    rows: &Rows,
    live: DirRef,
    plan: &mut Plan,
    sums: &BTreeMap<BString, attribution::Sum>,
) -> Result<()> {
    if !plan.items.iter().any(|i| i.reason.as_deref() == Some("deleted-by-other")) {
        return Ok(());
    }
    let last = rows.all.iter().rev().find(|c| c.record.covers.is_none() && c.record.is_restorable());
    let base = match last {
        Some(c) => tree::Root::read(odb, &c.tree)?.files,
        None => DirRef::default(),
    };
    let mut new: Vec<(BString, backstitch_store::Oid)> = Vec::new();
    tree::diff(odb, base, live, &mut |p, a, b| {
        if a.is_none()
            && let Some(oid) = b.and_then(|e| e.node.oid())
        {
            new.push((p.to_owned(), oid));
        }
        Ok(())
    })?;
    for i in plan.items.iter_mut().filter(|i| i.reason.as_deref() == Some("deleted-by-other")) {
        let Some(oid) = sums.get(&i.path).and_then(|s| s.left.as_ref()).and_then(|s| s.node.oid()) else {
            continue;
        };
        let found: Vec<&BString> = new.iter().filter(|(_, o)| *o == oid).map(|(p, _)| p).collect();
        if let [to] = found.as_slice() {
            i.reason = Some("moved".to_owned());
            i.moved_to = Some((*to).clone());
        }
    }
    Ok(())
}

//! `restore`: the covered paths become what a checkpoint holds.

use std::collections::{HashMap, HashSet};

use backstitch_scan::{self as scan, Found, FoundWhat, Rules, Skip};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage::{self, DiskRules, NEVER_STORED, RowRules},
    error::{Code, Error, Result},
    hunks,
    live::{self, Live},
    merge::Contents,
    operation::{self, OpKind, Outcome, Request},
    place::Place,
    plan::{self, Action, Item, Plan, Scope, Sides, Stand},
    preimage::Known,
    record::{Checkpoint, State},
    tree::{self, DirRef, Put},
    workspace::{Control, Rows, Workspace, incarnation},
};

/// How to restore.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these (relative to the root, literal, with all below).
    pub paths: Vec<BString>,
    /// Only what matches (ignore-file syntax).
    pub globs: Vec<String>,
    /// Preview: nothing is changed and no row is made.
    pub dry_run: bool,
    /// Delete nothing.
    pub no_delete: bool,
    /// No listed safety row; a path whose bytes no listed row holds is kept.
    pub no_safety: bool,
    /// Paths with unsaved text in an editor: left alone.
    pub busy: Vec<BString>,
    /// Apply only if the plan is exactly this one.
    pub plan: Option<String>,
    /// Restore rows of a folder that stood at this path before.
    pub replaced: bool,
    /// Setuid, setgid and capabilities come back.
    pub privileged: bool,
    /// Restore from an implausibly empty row all the same, and while another session has a tool window open.
    pub force: bool,
    /// Also files outside the workspace, as far as the session's rows hold any.
    pub outside: bool,
    /// The session in whose name this happens.
    pub session: Option<String>,
    /// Only the parts with these names, from [`Item::hunks`] of a preview.
    pub hunks: Option<Vec<String>>,
    /// The items of a preview come with their parts.
    pub list_hunks: bool,
    /// HEAD, refs, stash, index and what is under way as well.
    pub git_state: bool,
}

impl Workspace {
    /// Makes the covered paths what `target` holds, deletes by evidence only, and can be undone. With
    /// [`Options::dry_run`] the same plan comes back and nothing is changed.
    ///
    /// # Errors
    /// `not-restorable`, `replaced-workspace`, `no-such-path`, `plan-changed`, `busy`, `unsafe-path`, `store-damaged`,
    /// `over-budget`, `io`: nothing is changed then (what had been changed is put back).
    pub fn restore(&self, target: &Checkpoint, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        self.check_target(target, options)?;
        let (_shared, exclusive);
        if options.dry_run {
            _shared = self.lock_capture()?;
            exclusive = None;
        } else {
            exclusive = Some(self.lock_operation_with(&self.elsewhere(target, options)?)?);
        }
        let rows = self.rows()?;
        if !options.force && !options.dry_run {
            crate::rewind::refuse_open(&rows, options.session.as_deref())?;
        }
        let odb = self.odb()?;
        let (root, target_coverage) = coverage::of_checkpoint(&odb, target)?;
        let scope = Scope::new(options.paths.clone(), &options.globs, options.busy.clone())?;
        let mut live = self.look(&rows, target, root.files, &scope, control)?;
        live.outside = match rows.newest() {
            Some(c) => tree::Root::read(&odb, &c.tree)?.outside,
            None => DirRef::default(),
        };
        let live_coverage = live.coverage();
        let odb = live.writer.odb().clone();
        let mut today = DiskRules::new(self.root(), live.rules.clone());
        let (mut plan, probe) = {
            let sides = Sides {
                odb: &odb,
                target: root.files,
                target_coverage: &target_coverage,
                live: live.files,
                live_coverage: &live_coverage,
            };
            let mut then = RowRules::of_row(&odb, &root)?;
            plan::restore(&sides, &mut then, &mut today, &scope, options.no_delete)?
        };
        let of = Known { target, root: &root, coverage: &target_coverage, rows: &rows };
        live = self.touched(&of, &mut plan, live, &mut today, &scope, options)?;
        for p in &options.paths {
            if p.split_str("/").any(|part| part == b".git") {
                return Err(Error::new(
                    Code::UnsafePath,
                    format!("{} must never be written", p.to_str_lossy()),
                )
                .at_bytes(p.clone())
                .hint("a `.git` is neither recorded nor restored; nothing was changed"));
            }
            self.check_named(&odb, p.as_bstr(), &plan, root.files, &live)?;
            // What was named and left out then is no success.
            for i in plan.items.iter_mut().filter(|i| i.path == *p && i.action == Action::Keep) {
                if i.reason.as_deref().is_some_and(|r| r.starts_with("not-covered-then:")) {
                    i.action = Action::Skip;
                }
            }
        }
        let seen: Vec<&BStr> = (plan.items.iter().map(|i| i.path.as_bstr()))
            .chain(live.skips.iter().map(|s| s.path.as_bstr()))
            .collect();
        scope.check_patterns(&odb, &[root.files, live.files], &seen)?;
        self.probe(&mut plan, &probe, &mut live, control)?;
        self.leave_alone(&mut plan)?;
        plan::settle(&mut plan, &|p: &BStr| live_coverage.has_skip_below(p));
        if let Some(chosen) = &options.hunks {
            let mut contents =
                Contents { odb: &odb, root: self.root().to_owned(), new: std::mem::take(&mut plan.contents) };
            hunks::choose(&mut plan, &mut contents, chosen)?;
            plan.contents = contents.new;
            plan::settle(&mut plan, &|p: &BStr| live_coverage.has_skip_below(p));
        }
        if options.no_safety {
            keep_unheld(&odb, &rows, &mut plan)?;
        }
        // Trees with contents that are nowhere are good for a plan only.
        let live = Some(live).filter(|l| !l.room.was_passed());
        match &live {
            Some(live) => self.find_room(&mut plan, live.writer.odb())?,
            None => self.find_room(&mut plan, &self.odb()?)?,
        }
        // What is kept for want of a row or of room keeps the folders it is in.
        plan::settle(&mut plan, &|p: &BStr| live_coverage.has_skip_below(p));
        let name = operation::describe_target(target);
        let git = match options.git_state {
            true => Some(self.git_to(target, root.git, &rows)?),
            false => None,
        };
        let agreed = git.as_ref().map_or(name.clone(), |(m, _)| m.name(&name));
        let digest = plan.agreed(&agreed, options.plan.as_deref())?;
        if exclusive.is_none() {
            operation::check_contents(&odb, &plan)?;
        }
        if options.list_hunks {
            let contents = Contents { odb: &odb, root: self.root().to_owned(), new: plan.contents.clone() };
            for i in &mut plan.items {
                i.hunks = hunks::of(i, &contents)?;
            }
        }
        match exclusive {
            None => Ok(Outcome::preview(plan.items, digest, name, Vec::new()).with_git(git.map(|(m, _)| m))),
            Some(lock) => {
                let git = match git {
                    Some((m, writer)) => {
                        writer.finish()?;
                        Some(m)
                    }
                    None => None,
                };
                let mut live = match live.filter(|_| plan.unheld.is_empty()) {
                    Some(live) => live,
                    None => self.live_of(&rows, &plan, plan.present())?,
                };
                live.git = git.as_ref().map(|m| m.from);
                operation::run(
                    self,
                    Request {
                        kind: OpKind::Restore,
                        target: name,
                        inverts: None,
                        session: options.session.clone(),
                        plan,
                        live,
                        listed_safety: !options.no_safety,
                        takes_back: Vec::new(),
                        narrowed: false,
                        git,
                        privileged: options.privileged,
                        lock: &lock,
                        rows: &rows,
                        control,
                    },
                )
            }
        }
    }

    fn check_target(&self, target: &Checkpoint, options: &Options) -> Result<()> {
        let r = &target.record;
        let refuse = |why: String| {
            Err(Error::new(Code::NotRestorable, format!("checkpoint {} cannot be restored: {why}", r.id))
                .hint("`backstitch list --check` marks what can be restored"))
        };
        match r.state {
            State::Failed | State::Gap => {
                return refuse(r.reason.clone().unwrap_or_else(|| "it holds nothing".to_owned()));
            }
            State::Complete | State::Partial => {}
        }
        if r.implausible() && !options.force {
            return refuse(
                "it is empty though the checkpoint before it was not (--force restores it all the same)"
                    .to_owned(),
            );
        }
        if !self.root().is_dir() {
            return Err(Error::io(self.root(), std::io::Error::from(std::io::ErrorKind::NotFound))
                .hint("create the folder first; the checkpoints are safe"));
        }
        self.refuse_replaced([target], options.replaced)
    }

    /// What was recorded of a folder that stood here before is not put into the present one, unless that is empty
    /// (SEMANTICS 24).
    ///
    /// # Errors
    /// `replaced-workspace`, naming the first such row.
    pub(crate) fn refuse_replaced<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Checkpoint>,
        replaced: bool,
    ) -> Result<()> {
        let now = incarnation(self.root())?;
        let Some(old) = rows.into_iter().find(|c| c.record.incarnation != now).filter(|_| !replaced) else {
            return Ok(());
        };
        if std::fs::read_dir(self.root()).map_err(|e| Error::io(self.root(), e))?.next().is_none() {
            return Ok(());
        }
        Err(Error::new(
            Code::ReplacedWorkspace,
            format!(
                "{} is not the folder that checkpoint {} was made of",
                self.root().display(),
                old.record.id
            ),
        )
        .at(self.root())
        .hint("go back in an empty folder, or say --replaced; nothing was changed"))
    }

    /// The present state, as far as this restore needs it.
    fn look(
        &self,
        rows: &Rows,
        target: &Checkpoint,
        target_files: DirRef,
        scope: &Scope,
        control: &Control<'_>,
    ) -> Result<Live> {
        let odb = self.odb()?;
        let base = match rows.newest() {
            Some(c) => (tree::Root::read(&odb, &c.tree)?.files, c.record.files),
            None => Default::default(),
        };
        if scope.globs.is_empty() && !scope.paths.is_empty() {
            let inside: Vec<BString> =
                scope.paths.iter().filter(|p| !crate::paths::is_outside(p.as_bstr())).cloned().collect();
            return named(self, &inside, base, control);
        }
        if !self.is_wide(rows)
            && target.record.scope == "workspace"
            && let Some(live) = live::scan_all(self, false, self.room_to_look()?, control)?
        {
            return Ok(live);
        }
        // Touched scope: only what the target speaks for is looked at.
        let covers: Vec<BString> = match &target.record.covers {
            Some(list) => list.iter().filter_map(|p| crate::paths::unescape(p.as_bytes())).collect(),
            None => {
                let mut all = Vec::new();
                tree::walk(&odb, target_files, &mut |p, e| {
                    if !e.node.is_dir() {
                        all.push(p.to_owned());
                    }
                    Ok(())
                })?;
                all
            }
        };
        named(self, &covers, base, control)
    }

    /// A path named in the call exists somewhere.
    fn check_named(
        &self,
        odb: &backstitch_store::Odb,
        path: &BStr,
        plan: &Plan,
        target: DirRef,
        live: &Live,
    ) -> Result<()> {
        let known = plan.items.iter().any(|i| crate::paths::is_under(i.path.as_bstr(), path))
            || tree::lookup(odb, target, path)?.is_some()
            || tree::lookup(odb, live.files, path)?.is_some()
            || live.coverage().skip_at_or_above(path).is_some();
        if known {
            return Ok(());
        }
        Err(Error::new(
            Code::NoSuchPath,
            format!("{}: neither in the checkpoint nor on the disk", path.to_str_lossy()),
        )
        .at_bytes(path))
    }

    /// What is not ours to change, whoever asks: paths whose present bytes could be kept nowhere (`never_store`), and those
    /// below a folder that has become a repository's own, which a look at named paths does not see.
    pub(crate) fn leave_alone(&self, plan: &mut Plan) -> Result<()> {
        let rules = self.rules()?;
        // Also conflicts, whose present bytes an undo would keep.
        for i in plan.items.iter_mut().filter(|i| self.never_stores(&rules, i)) {
            if i.reason.as_deref() != Some("already") {
                i.leave(Action::Skip, NEVER_STORED);
            }
        }
        if self.settings().word("bare") == "content" {
            return Ok(());
        }
        let place = Place::of(self, "")?;
        let mut known: HashMap<BString, bool> = HashMap::new();
        for i in plan.items.iter_mut().filter(|i| i.action.changes()) {
            let path = i.path.clone();
            let inside = crate::paths::parents(path.as_bstr())
                .any(|dir| *known.entry(dir.to_owned()).or_insert_with(|| place.is_repository(dir)));
            if inside {
                i.leave(Action::Conflict, "bare-repository");
            }
        }
        Ok(())
    }

    /// The setting `never_store` names the item's path.
    pub(crate) fn never_stores(&self, rules: &Rules, i: &Item) -> bool {
        let path = i.path.strip_prefix(b"/").unwrap_or(&i.path);
        rules.is_never(path.as_bstr(), i.was_dir() || i.becomes_dir())
    }

    /// Paths of the plan that the scan did not cover are looked at one by one, whatever rules and limits say, so that
    /// the safety row holds them (SEMANTICS 14).
    fn probe(
        &self,
        plan: &mut Plan,
        probe: &[BString],
        live: &mut Live,
        control: &Control<'_>,
    ) -> Result<()> {
        if probe.is_empty() {
            return Ok(());
        }
        let probe: HashSet<&BString> = probe.iter().collect();
        let wanted: Vec<BString> =
            plan.items.iter().map(|i| &i.path).filter(|p| probe.contains(p)).cloned().collect();
        let missed: HashMap<BString, &'static str> = live
            .skips
            .iter()
            .filter(|s| !s.reason.by_rule())
            .map(|s| (s.path.clone(), s.reason.as_str()))
            .collect();
        let found = look_at(self, &wanted, live, control)?;
        let owner = self.owner();
        let mut stands: HashMap<BString, std::result::Result<Option<Stand>, String>> = HashMap::new();
        let mut edits = Vec::new();
        for f in found {
            let seen = match &f.what {
                FoundWhat::Leaf { stat, id, xattrs } => Ok(Some((stat, *id, xattrs))),
                FoundWhat::Dir { stat, xattrs, .. } => {
                    Ok(Some((stat, backstitch_store::Oid::null(gix_hash::Kind::Sha1), xattrs)))
                }
                FoundWhat::Absent => Ok(None),
                FoundWhat::Skip(Skip { reason, .. }) => Err(reason.as_str().to_owned()),
            };
            let stand = seen.map(|seen| {
                seen.map(|(stat, id, xattrs)| {
                    let (node, attrs) = tree::leaf(stat, id, xattrs.as_ref(), owner);
                    Stand { node, attrs }
                })
            });
            if let Ok(Some(Stand { node, attrs })) = &stand {
                let put = Put { node: node.clone(), attrs: attrs.clone(), dir: None };
                edits.push((f.path.clone(), Some(put)));
            }
            stands.insert(f.path, stand);
        }
        plan.items = std::mem::take(&mut plan.items)
            .into_iter()
            .filter_map(|mut i| match stands.remove(&i.path) {
                None => Some(i),
                Some(Ok(from)) => {
                    if from.as_ref().is_some_and(|s| s.node.is_dir()) && !i.becomes_dir() {
                        i.leave(Action::Conflict, "not-empty");
                        return Some(i);
                    }
                    // A directory here and there, of which nobody knows what else is in it by now.
                    if let Some(why) = missed.get(&i.path)
                        && from.as_ref().is_some_and(|s| s.node.is_dir())
                    {
                        return match Item::transition(i.path.clone(), from, i.to) {
                            None => Some(Item::keep(i.path, Action::Keep, why)),
                            Some(mut changed) => {
                                changed.reason = Some((*why).to_owned());
                                Some(changed)
                            }
                        };
                    }
                    Item::transition(i.path, from, i.to)
                }
                Some(Err(reason)) => {
                    let action = if reason == NEVER_STORED { Action::Skip } else { Action::Conflict };
                    i.leave(action, &reason);
                    Some(i)
                }
            })
            .collect();
        let mut s = live.writer.scratch();
        live.files = tree::edit(&live.writer, &mut s, live.files, edits)?;
        Ok(())
    }
}

/// Looks at named paths. What could not be looked at is not taken for what an earlier row carries there.
fn named(ws: &Workspace, list: &[BString], base: (DirRef, u64), control: &Control<'_>) -> Result<Live> {
    let mut live = live::scan_named(ws, list, base, "paths", ws.room_to_look()?, control)?;
    let mut unknown: Vec<(BString, Option<Put>)> =
        live.skips.iter().filter(|s| list.contains(&s.path)).map(|s| (s.path.clone(), None)).collect();
    // Nor is a folder above them that is gone: the topmost of those, with all that the row carries below.
    let gone = |dir: &BStr| {
        let here = crate::paths::to_path(ws.root(), dir);
        here.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    let mut tops: Vec<BString> = list
        .iter()
        .filter_map(|p| crate::paths::parents(p.as_bstr()).take_while(|d| gone(d)).last())
        .map(|d| d.to_owned())
        .collect();
    tops.sort_unstable();
    tops.dedup();
    unknown.extend(tops.into_iter().map(|d| (d, None)));
    if !unknown.is_empty() {
        let mut s = live.writer.scratch();
        live.files = tree::edit(&live.writer, &mut s, live.files, unknown)?;
    }
    Ok(live)
}

/// Reads named paths, whatever rules and limits say of them.
pub(crate) fn look_at(
    ws: &Workspace,
    paths: &[BString],
    live: &Live,
    control: &Control<'_>,
) -> Result<Vec<Found>> {
    let sink = crate::capture::StoreSink {
        writer: &live.writer,
        owner: ws.owner(),
        room: &live.room,
        interrupt: control.interrupt,
        late: None,
        seed: None,
    };
    let unlimited = scan::Limits {
        new_file: u64::MAX,
        grown_file: u64::MAX,
        ignored_file: u64::MAX,
        ignored_total: u64::MAX,
        entries: u64::MAX,
    };
    let never = ws.never();
    let options = scan::Options {
        threads: 1,
        rules: &live.rules,
        limits: unlimited,
        ignored: scan::Ignored::All,
        nested_is_content: true,
        bare_is_content: true,
        never: &never,
        keep_covered: false,
        paranoid: true,
        quiet: None,
        note_anew: false,
        table_vouched: false,
        deadline: None,
        interrupt: control.interrupt,
        progress: &|_, _| {},
    };
    Ok(scan::scan_paths(ws.root(), paths, None, &sink, &options)?)
}

/// Without a safety row, only what a listed row holds may be overwritten or deleted.
pub(crate) fn keep_unheld(odb: &backstitch_store::Odb, rows: &Rows, plan: &mut Plan) -> Result<()> {
    let content = |i: &Item| i.from.as_ref().and_then(|s| s.node.oid());
    let mut unheld: Vec<&mut Item> = plan
        .items
        .iter_mut()
        .filter(|i| i.action.changes() && i.action != Action::Mode && content(i).is_some())
        .collect();
    for c in rows.all.iter().rev() {
        if unheld.is_empty() {
            break;
        }
        let root = tree::Root::read(odb, &c.tree)?;
        let mut left = Vec::with_capacity(unheld.len());
        for i in unheld {
            let there = root.find(odb, i.path.as_bstr())?;
            if !there.is_some_and(|e| !e.node.is_dir() && e.node.oid() == content(i)) {
                left.push(i);
            }
        }
        unheld = left;
    }
    for i in unheld {
        i.leave(Action::Keep, "no-safety");
    }
    Ok(())
}

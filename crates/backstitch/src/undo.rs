//! `undo`, `redo`, `operations`: walking the operations of a workspace (SEMANTICS 18).

use std::collections::{BTreeMap, HashSet};

use backstitch_store::{Expect, Oid, Row};
use bstr::{BString, ByteSlice};

use crate::{
    attribution::{Step, same},
    error::{Code, Error, Result},
    live::{self, Live},
    merge::{Contents, Settle, Verdict},
    moves,
    operation::{self, OpKind, OpRecord, OpState, Operation, Outcome, Request},
    place::{Found, Place},
    plan::{Action, Item, Plan, Progress, Stand},
    tree::{self, Put},
    workspace::{Control, OperationLock, Rows, Workspace},
};

/// What happens to a path that no longer holds what the operation left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// It stays, and is reported.
    #[default]
    Keep,
    /// Nothing at all is done.
    Refuse,
    /// It is overwritten; the safety row holds it.
    Overwrite,
    /// Both changes are merged, line by line; what both changed stays, and is reported.
    Merge,
}

/// How to walk.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Exactly this operation (undo).
    pub operation: Option<String>,
    /// Only operations of this session.
    pub session: Option<String>,
    /// `None`: keep for undo, refuse for redo.
    pub on_conflict: Option<OnConflict>,
    /// Preview.
    pub dry_run: bool,
    /// Apply only if the plan is exactly this one.
    pub plan: Option<String>,
    /// Also while another session has a tool window open.
    pub force: bool,
    /// Also an operation on a folder that stood at this path before.
    pub replaced: bool,
    /// Where lines clash, put both sides into the file, between conflict markers (with [`OnConflict::Merge`]).
    pub markers: bool,
}

/// The operations that can be undone and redone next, newest last.
#[derive(Debug, Default)]
pub struct Stacks<'a> {
    /// To undo.
    pub undo: Vec<&'a Operation>,
    /// Undos that can be redone.
    pub redo: Vec<&'a Operation>,
}

/// Replays the operations: a new one closes the branch of what could be redone.
pub fn stacks<'a>(all: &'a [Operation], session: Option<&str>) -> Stacks<'a> {
    let mut s = Stacks::default();
    for op in all.iter().filter(|o| o.record.state == OpState::Done) {
        if session.is_some() && op.record.session.as_deref() != session {
            continue;
        }
        let inverts = op.record.inverts.as_deref();
        match op.record.kind {
            OpKind::Undo => {
                s.undo.retain(|o| Some(o.record.id.as_str()) != inverts);
                s.redo.push(op);
            }
            OpKind::Redo => {
                s.redo.retain(|o| Some(o.record.id.as_str()) != inverts);
                s.undo.push(op);
            }
            // Nobody did it: it neither is the next thing to take back nor closes a branch.
            OpKind::Prune if op.record.extra.contains_key(crate::trash::AUTOMATIC) => {}
            _ => {
                s.undo.push(op);
                s.redo.clear();
            }
        }
    }
    s
}

/// Ids of the operations that an undo took back and no redo brought back.
pub fn undone(all: &[Operation]) -> HashSet<&str> {
    // Newest first: an inverse that was itself taken back takes nothing back.
    let mut out: HashSet<&str> = HashSet::new();
    for o in all.iter().rev().filter(|o| o.record.state == OpState::Done) {
        if let Some(i) = o.record.inverts.as_deref().filter(|_| !out.contains(o.record.id.as_str())) {
            out.insert(i);
        }
    }
    out
}

impl Workspace {
    /// All operations, oldest first.
    pub fn operations(&self) -> Result<Vec<Operation>> {
        operation::operations(self)
    }

    /// Takes back the newest operation not yet undone, on the paths that it changed only.
    ///
    /// # Errors
    /// `nothing-to-undo`, `no-such-operation`, `conflict` with [`OnConflict::Refuse`], `plan-changed`, `busy`.
    pub fn undo(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        self.invert(OpKind::Undo, options, control)
    }

    /// Takes back the newest undo.
    ///
    /// # Errors
    /// `nothing-to-redo`; `conflict`, naming the paths, when any path that it covers has changed since.
    pub fn redo(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        self.invert(OpKind::Redo, options, control)
    }

    fn invert(&self, kind: OpKind, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let lock = self.lock_operation_with(&self.changed_outside()?)?;
        let all = self.operations()?;
        let s = stacks(&all, options.session.as_deref());
        let nothing = |code, what: &str| {
            Error::new(code, format!("there is nothing to {what}"))
                .hint("`backstitch operations` shows what was done")
        };
        let op = match (&options.operation, kind) {
            (Some(id), _) => {
                let found: Vec<&Operation> =
                    all.iter().filter(|o| o.record.id.starts_with(id.as_str())).collect();
                match found.as_slice() {
                    [] => {
                        return Err(Error::new(
                            Code::NoSuchOperation,
                            format!("no operation is named {id:?}"),
                        )
                        .hint("`backstitch operations` lists them"));
                    }
                    [op] if op.record.state == OpState::Done => *op,
                    [op] => {
                        return Err(Error::new(
                            Code::NoSuchOperation,
                            format!("operation {} changed nothing", op.record.id),
                        ));
                    }
                    many => {
                        return Err(Error::new(
                            Code::Ambiguous,
                            format!("{id:?} stands for {} operations", many.len()),
                        )
                        .list(many.iter().map(|o| o.record.id.clone()).collect()));
                    }
                }
            }
            (None, OpKind::Redo) => {
                s.redo.last().copied().ok_or_else(|| nothing(Code::NothingToRedo, "redo"))?
            }
            (None, _) => s.undo.last().copied().ok_or_else(|| nothing(Code::NothingToUndo, "undo"))?,
        };
        if !op.record.rows.is_empty() {
            return self.invert_rows(kind, op, options, &all);
        }
        let rows = self.rows()?;
        if !options.force && !options.dry_run {
            crate::rewind::refuse_open(&rows, options.session.as_deref().or(op.record.session.as_deref()))?;
        }
        let saved = op.record.safety.as_deref().and_then(|id| rows.by_id(id));
        self.refuse_replaced(saved, options.replaced)?;
        let policy = options.on_conflict.unwrap_or(match kind {
            OpKind::Redo => OnConflict::Refuse,
            _ => OnConflict::Keep,
        });
        let odb = self.odb()?;
        let (forgotten, all_items): (Vec<Item>, Vec<Item>) =
            op.items(&odb)?.into_iter().partition(|i| i.reason.as_deref() == Some(crate::forget::FORGOTTEN));
        let done: Vec<Item> =
            all_items.into_iter().filter(|i| i.action.changes() && i.result == Progress::Done).collect();
        let mut place = Place::of(self, &op.record.id)?;
        let how = Resolve::new(policy, options.markers);
        let (mut plan, mut present) = inverse(&mut place, done, &how)?;
        let gone = plan.items.iter().any(|i| i.reason.as_deref() == Some("deleted-by-other"));
        if how.merge && gone && !self.is_wide(&rows) {
            let live = live::scan_all(self, true, self.room_to_look()?, control)?;
            if let Some(live) = live {
                let after = op.after(&odb)?;
                let odb = live.writer.odb().clone();
                let new = moves::New::between(&odb, after, live.files, &|_| true)?;
                for i in op.items(&odb)? {
                    if !moves::is_gone(&plan, i.path.as_bstr()) {
                        continue;
                    }
                    let Some(to) = new.of(i.path.as_bstr(), i.to.as_ref(), true)? else { continue };
                    let steps = [Step { from: i.from, left: i.to }];
                    moves::follow(&mut place, &mut plan, &mut present, i.path.as_bstr(), to, &steps, &how)?;
                }
            }
        }
        self.leave_alone(&mut plan)?;
        self.add_missing_parents(&mut place, &rows, &mut plan, &mut present)?;
        let (mut plan, present) = with_forgotten(plan, present, forgotten);
        self.find_room(&mut plan, &odb)?;
        if !plan.unheld.is_empty() {
            crate::plan::settle_on_disk(self.root(), &mut plan);
        }
        if policy == OnConflict::Refuse {
            refuse_conflicts(&plan, "of its paths changed since", "does")?;
        }
        let target = op.record.id.clone();
        let git = self.git_back(op, &rows, policy)?;
        let agreed = git.as_ref().map_or(target.clone(), |(m, _)| m.name(&target));
        let digest = plan.agreed(&agreed, options.plan.as_deref())?;
        if options.dry_run {
            return Ok(Outcome::preview(plan.items, digest, target, Vec::new()).with_git(git.map(|(m, _)| m)));
        }
        let mut live = self.live_of(&rows, &plan, present)?;
        let git = match git {
            Some((m, writer)) => {
                writer.finish()?;
                Some(m)
            }
            None => None,
        };
        live.git = git.as_ref().map(|m| m.from);
        operation::run(
            self,
            Request {
                kind,
                target,
                inverts: Some(op.record.id.clone()),
                session: options.session.clone().or_else(|| op.record.session.clone()),
                plan,
                live,
                listed_safety: true,
                takes_back: Vec::new(),
                narrowed: false,
                git,
                privileged: true,
                lock: &lock,
                rows: &rows,
                control,
            },
        )
        .and_then(|mut out| {
            let waits = out.items.iter().any(|i| i.reason.as_deref() == Some(crate::room::NO_ROOM));
            if out.operation.is_none() && kind == OpKind::Undo && !waits {
                out.operation = self.mark_inverted(kind, op, &all, &lock)?;
            }
            Ok(out)
        })
    }

    /// Files elsewhere that operations changed, by absolute path.
    fn changed_outside(&self) -> Result<Vec<BString>> {
        let odb = self.odb()?;
        let mut out = Vec::new();
        for op in self.operations()?.iter().filter(|o| o.record.extra.contains_key("outside")) {
            out.extend(op.items(&odb)?.into_iter().filter(Item::is_outside).map(|i| i.path));
        }
        Ok(out)
    }

    /// The present state of exactly the paths of a plan, as the safety row of an inverse.
    pub(crate) fn live_of(&self, rows: &Rows, plan: &Plan, present: Vec<Found>) -> Result<Live> {
        let odb = self.odb()?;
        let base = match rows.newest() {
            Some(c) => tree::Root::read(&odb, &c.tree)?,
            None => tree::Root::default(),
        };
        let writer = self.store()?.writer()?;
        let count = rows.newest().map_or(0, |c| c.record.files);
        let spoken = plan.items.iter().zip(&present).filter(|(i, f)| is_spoken(plan, i, f));
        let covers = spoken.filter(|(i, _)| !i.is_outside()).map(|(i, _)| i.path.clone()).collect();
        let live = Live {
            files: base.files,
            outside: base.outside,
            covers: Some(covers),
            count,
            ..Live::empty(self.rules()?, writer)
        };
        self.hold(live, plan, present)
    }

    /// Puts the present state of a plan's paths into a live tree, whatever rules left them out of it.
    pub(crate) fn hold(&self, mut live: Live, plan: &Plan, present: Vec<Found>) -> Result<Live> {
        let writer = &live.writer;
        let mut edits: Vec<(BString, Option<Put>)> = Vec::new();
        for (i, found) in plan.items.iter().zip(present) {
            if !is_spoken(plan, i, &found) {
                continue;
            }
            if i.is_outside() {
                live.outside_covers.push(i.path.clone());
            }
            let put = match found {
                Found::Absent => None,
                Found::Special => continue,
                Found::Is(Stand { node, attrs }) => {
                    if let Some(oid) = node.oid().filter(|o| !writer.odb().contains(o)) {
                        self.store_present(writer, i, oid)?;
                    }
                    Some(Put { node, attrs, dir: None })
                }
            };
            edits.push((i.path.clone(), put));
        }
        live.outside_covers.sort_unstable();
        live.outside_covers.dedup();
        live.edit(edits)?;
        Ok(live)
    }

    /// Bytes that no row holds yet go into the store before they are overwritten.
    fn store_present(&self, writer: &backstitch_store::Writer, i: &Item, expect: Oid) -> Result<()> {
        let path = crate::paths::to_path(self.root(), i.path.as_bstr());
        let m = path.symlink_metadata().map_err(|e| Error::io(&path, e))?;
        let mut s = writer.scratch();
        let got = if m.is_symlink() {
            let text = std::fs::read_link(&path).map_err(|e| Error::io(&path, e))?;
            writer.blob(&mut s, crate::paths::bytes(&text))?.0
        } else {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
            let mut f = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(flags.cast_signed())
                .open(&path)
                .map_err(|e| Error::io(&path, e))?;
            let size = f.metadata().map_err(|e| Error::io(&path, e))?.len();
            writer.blob_from(&mut s, &mut f, size)?.0
        };
        if got != expect {
            return Err(Error::new(Code::Conflict, format!("{}: it changes right now", path.display()))
                .at_bytes(i.path.clone())
                .hint("try again; nothing was changed"));
        }
        Ok(())
    }

    /// An inverse that found nothing to do still counts as done, so that the next one goes further.
    fn mark_inverted(
        &self,
        kind: OpKind,
        op: &Operation,
        all: &[Operation],
        _lock: &OperationLock,
    ) -> Result<Option<String>> {
        let record = OpRecord {
            id: crate::record::new_id(crate::record::now_ms()),
            seq: all.last().map_or(1, |o| o.record.seq + 1),
            kind,
            state: OpState::Done,
            target: op.record.id.clone(),
            inverts: Some(op.record.id.clone()),
            safety: None,
            created_ms: crate::record::now_ms(),
            changed: 0,
            exceptions: Vec::new(),
            rows: Vec::new(),
            ..op.record.clone()
        };
        self.write_operation(&record, None).map(Some)
    }

    /// Writes a record whose work is already done; `tree` is empty where it has no items.
    pub(crate) fn write_operation(&self, record: &OpRecord, tree: Option<Oid>) -> Result<String> {
        self.put_operation(record, tree, Expect::Absent)
    }

    /// The record of an operation that nobody has inverted, written anew.
    pub(crate) fn rewrite_operation(&self, old: &Operation, record: &OpRecord) -> Result<String> {
        self.put_operation(record, Some(old.tree), Expect::Is(old.commit))
    }

    fn put_operation(&self, record: &OpRecord, tree: Option<Oid>, expect: Expect) -> Result<String> {
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        let tree = match tree {
            Some(t) => t,
            None => writer.tree(&mut s, &mut Vec::new())?.0,
        };
        let message = crate::record::encode(&format!("{} {}", record.kind.as_str(), record.id), record);
        let commit = writer.commit(&mut s, &tree, &message, record.created_ms.div_euclid(1000))?;
        writer.finish()?;
        let name = format!("{}{}", crate::record::OPERATIONS, record.id);
        self.store()?.refs().set(&Row { name, commit, tree, message: message.into() }, expect)?;
        Ok(record.id.clone())
    }
}

/// A row that is made of a plan's paths speaks for this one: what stands there can be held, and its bytes are.
fn is_spoken(plan: &Plan, i: &Item, found: &Found) -> bool {
    let never = i.reason.as_deref() == Some(crate::coverage::NEVER_STORED);
    !matches!(found, Found::Special) && !plan.unheld.contains(&i.path) && !never
}

/// Paths whose bytes were removed on request are told with every inverse, and left alone.
fn with_forgotten(mut plan: Plan, present: Vec<Found>, forgotten: Vec<Item>) -> (Plan, Vec<Found>) {
    if forgotten.is_empty() {
        return (plan, present);
    }
    let mut all: Vec<(Item, Found)> = std::mem::take(&mut plan.items).into_iter().zip(present).collect();
    all.extend(
        forgotten
            .into_iter()
            // What stands there is nobody's concern here.
            .map(|i| (Item::keep(i.path, Action::Keep, crate::forget::FORGOTTEN), Found::Special)),
    );
    all.sort_by(|a, b| a.0.path.cmp(&b.0.path));
    let (items, present) = all.into_iter().unzip();
    plan.items = items;
    (plan, present)
}

/// No path of the plan is one that is not, or not wholly, brought to where it should be because somebody else changed it.
/// `said` tells what such paths are, `keeping` what is done with the rest when they are kept.
///
/// # Errors
/// `conflict`, with their list.
pub(crate) fn refuse_conflicts(plan: &Plan, said: &str, keeping: &str) -> Result<()> {
    const SHOWN: usize = 5;
    let list: Vec<String> = plan
        .items
        .iter()
        .filter(|i| i.action == Action::Conflict || !i.clashes.is_empty())
        .map(|i| i.path.to_str_lossy().into_owned())
        .collect();
    let Some(first) = list.first().cloned() else { return Ok(()) };
    let mut names = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if list.len() > SHOWN {
        names.push_str(&format!(" and {} more", list.len() - SHOWN));
    }
    Err(Error::new(Code::Conflict, format!("{} {said}: {names}", list.len()))
        .at_bytes(first)
        .list(list)
        .hint(format!("--on-conflict keep leaves them alone and {keeping} the rest; nothing was changed")))
}

/// What an inverse does with paths that are not as they were left.
#[derive(Default)]
pub(crate) struct Resolve {
    pub policy: OnConflict,
    /// Lines that only one side changed are merged.
    pub merge: bool,
    /// Between conflict markers.
    pub markers: bool,
    /// What is taken back, for paths whose changes somebody else's came between.
    pub steps: BTreeMap<BString, Vec<Step>>,
}

impl Resolve {
    pub fn new(policy: OnConflict, markers: bool) -> Resolve {
        Resolve { policy, merge: policy == OnConflict::Merge, markers, ..Resolve::default() }
    }

    fn settle(&self) -> Settle {
        match self.policy {
            OnConflict::Overwrite => Settle::Wanted,
            _ if self.markers => Settle::Markers,
            _ => Settle::Present,
        }
    }

    /// Merges into `item`, which leads from what stands there now to what is wanted.
    pub fn merge(&self, item: &mut Item, steps: &[Step], contents: &mut Contents<'_>) -> Result<()> {
        match contents.take_back(item.path.as_bstr(), steps, item.from.as_ref(), self.settle())? {
            Verdict::To(to, clashes) => {
                let made = Item::transition(item.path.clone(), item.from.clone(), to);
                match made {
                    Some(i) => *item = Item { reason: Some("merged".to_owned()), ..i },
                    None if clashes.is_empty() => {
                        item.to = item.from.clone();
                        item.leave(Action::Keep, "already");
                    }
                    None => item.leave(Action::Conflict, "changed"),
                }
                item.clashes = clashes;
            }
            Verdict::Cannot(_) if self.policy == OnConflict::Overwrite => {}
            Verdict::Cannot(why) => item.leave(Action::Conflict, why),
        }
        Ok(())
    }
}

/// The inverse of done items, against what stands there now.
pub(crate) fn inverse(place: &mut Place, done: Vec<Item>, how: &Resolve) -> Result<(Plan, Vec<Found>)> {
    let present = operation::present(place, &done)?;
    let mut items: BTreeMap<BString, (Item, Found)> = BTreeMap::new();
    let odb = place.odb().clone();
    let mut contents = Contents { odb: &odb, root: place.root().to_owned(), new: BTreeMap::new() };
    for (i, found) in done.into_iter().zip(present) {
        let (left, before) = (i.to, i.from);
        let now = match &found {
            Found::Is(s) => Some(s.clone()),
            Found::Absent => None,
            Found::Special => {
                items.insert(i.path.clone(), (Item::keep(i.path, Action::Conflict, "special"), found));
                continue;
            }
        };
        let both_dirs = |a: &Option<Stand>, b: &Option<Stand>| {
            a.as_ref().is_some_and(|s| s.node.is_dir()) && b.as_ref().is_some_and(|s| s.node.is_dir())
        };
        let steps = how.steps.get(&i.path).filter(|_| how.merge);
        if steps.is_none() && same(&now, &before) {
            let mut item = Item::keep(i.path.clone(), Action::Keep, "already");
            (item.from, item.to) = (now.clone(), now);
            items.insert(i.path, (item, found));
            continue;
        }
        let as_left = steps.is_none() && same(&now, &left)
            // A directory whose bits somebody changed is still the directory that was made.
            || both_dirs(&now, &left) && !both_dirs(&left, &before)
            // The setuid bits that were not given back are no change of somebody else's.
            || i.reason.as_deref() == Some("setid-dropped") && now.as_ref().map(|s| s.node.oid()) == left.as_ref().map(|s| s.node.oid());
        let mut item = match Item::transition(i.path.clone(), now.clone(), before.clone()) {
            Some(item) => item,
            None if steps.is_some() => {
                let mut item = Item::keep(i.path.clone(), Action::Keep, "already");
                (item.from, item.to) = (now.clone(), now.clone());
                item
            }
            None => continue,
        };
        if !as_left && how.merge {
            let one = [Step { from: before, left }];
            how.merge(&mut item, steps.map_or(&one[..], Vec::as_slice), &mut contents)?;
        } else if !as_left && how.policy != OnConflict::Overwrite {
            let why = if now.is_none() { "deleted-by-other" } else { "changed" };
            item.leave(Action::Conflict, why);
        }
        if !as_left
            && item.action.changes()
            && now.as_ref().is_some_and(|s| s.node.is_dir())
            && !item.becomes_dir()
        {
            item.leave(Action::Conflict, "not-empty");
        }
        items.insert(i.path, (item, found));
    }
    let (list, present): (Vec<Item>, Vec<Found>) = items.into_values().unzip();
    let mut plan = Plan { items: list, contents: contents.new, ..Plan::default() };
    crate::plan::settle_on_disk(place.root(), &mut plan);
    Ok((plan, present))
}

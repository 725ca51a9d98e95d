//! One mutation of the work tree, from plan to record. Restore, undo, redo and recovery all go through here.
//!
//! Order: safety row and operation record (both ends of every path) are durable in the store, then the journal, then the
//! tree is changed, verified and synced, then the operation is marked done, then the journal goes. Whoever finds a
//! journal finishes or takes back what it names (see [`crate::recover`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use backstitch_store::{Edit, Expect, Odb, Oid, TreeEntry};
use bstr::{BStr, BString, ByteSlice};
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::Options as RowOptions,
    error::{Code, Error, Result},
    live::Live,
    paths,
    place::{self, Found, Place, Step, Unexpected},
    plan::{self, Action, Item, Plan, Progress},
    record::{self, CHECKPOINTS, Checkpoint, Kind, OPERATIONS},
    row::{self, NewRow},
    tree::{self, DirRef, Put},
    workspace::{Control, OperationLock, Rows, Workspace},
};

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    /// Restore of a checkpoint.
    Restore,
    /// Taking back what a session did.
    Rewind,
    /// Taking back one turn.
    Revert,
    /// Inverse of another operation.
    Undo,
    /// Inverse of an undo.
    Redo,
    /// Rows moved to the trash by name.
    Delete,
    /// Rows and operations moved to the trash by the policy.
    Prune,
}

impl OpKind {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            OpKind::Restore => "restore",
            OpKind::Rewind => "rewind",
            OpKind::Revert => "revert",
            OpKind::Undo => "undo",
            OpKind::Redo => "redo",
            OpKind::Delete => "delete",
            OpKind::Prune => "prune",
        }
    }
}

/// How far an operation came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpState {
    /// In flight, or its process died.
    Running,
    /// Done and verified.
    Done,
    /// Taken back: the tree is as before.
    RolledBack,
}

/// An item that did not come out as planned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exception {
    /// Number of the item.
    pub n: usize,
    /// What became of it.
    pub action: Action,
    /// Why.
    pub reason: String,
}

/// The record of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpRecord {
    /// Version.
    pub v: u32,
    /// Id.
    pub id: String,
    /// Order.
    pub seq: u64,
    /// Kind.
    pub kind: OpKind,
    /// State.
    pub state: OpState,
    /// The row that it went to, or the operation that it inverts.
    pub target: String,
    /// The operation that it takes back (undo, redo).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverts: Option<String>,
    /// Session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The safety row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety: Option<String>,
    /// Digest of the plan.
    pub plan: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Paths changed.
    pub changed: u64,
    /// Where it stands among the rows: the order of its safety row.
    #[serde(default)]
    pub at: u64,
    /// Turns that it took back (rewind).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_back: Vec<u64>,
    /// Items that came out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<Exception>,
    /// Refs moved (delete): name and commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(String, String)>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl OpRecord {
    fn message(&self) -> Vec<u8> {
        record::encode(&format!("{} {} ({} paths)", self.kind.as_str(), self.id, self.changed), self)
    }
}

/// An operation with its objects.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The record.
    pub record: OpRecord,
    /// The commit.
    pub commit: Oid,
    /// `before`, `after`, `items`.
    pub tree: Oid,
}

impl Operation {
    /// What it left in the workspace.
    pub(crate) fn after(&self, odb: &Odb) -> Result<DirRef> {
        match odb.tree(&self.tree)?.into_iter().find(|e| e.name == "after") {
            Some(e) => Ok(tree::Root::read(odb, &e.oid)?.files),
            None => Ok(DirRef::default()),
        }
    }

    /// Its items with their results.
    pub fn items(&self, odb: &Odb) -> Result<Vec<Item>> {
        let entry = odb.tree(&self.tree)?.into_iter().find(|e| e.name == "items");
        let mut items = match entry {
            Some(e) => plan::decode_items(&odb.blob(&e.oid)?)?,
            None => Vec::new(),
        };
        for i in &mut items {
            if self.record.state == OpState::Done && i.action.changes() {
                i.result = Progress::Done;
            }
        }
        for x in &self.record.exceptions {
            if let Some(i) = items.get_mut(x.n) {
                i.result = if x.action.changes() { Progress::Failed } else { Progress::Pending };
                i.leave(x.action, &x.reason);
            }
        }
        Ok(items)
    }
}

/// What an operation did, or would do: preview and real run have the same shape.
#[derive(Debug)]
pub struct Outcome {
    /// The operation; `None` for previews and where there was nothing to do.
    pub operation: Option<String>,
    /// A preview.
    pub dry_run: bool,
    /// Digest of the plan.
    pub plan: String,
    /// Row or operation that it goes to.
    pub target: String,
    /// Safety row.
    pub safety: Option<String>,
    /// Path by path.
    pub items: Vec<Item>,
    /// Every change was read back.
    pub verified: bool,
    /// Something was kept, skipped or failed.
    pub partial: bool,
    /// Turns that it takes back (rewind).
    pub takes_back: Vec<u64>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// An item counts against completeness unless it is settled by rule or already as wanted.
fn is_shortfall(i: &Item) -> bool {
    if !i.clashes.is_empty() {
        return true;
    }
    match i.action {
        Action::Conflict | Action::Skip => true,
        Action::Keep => {
            !matches!(
                i.reason.as_deref(),
                Some(
                    "already"
                        | "moved"
                        | "not-chosen"
                        | "no-delete"
                        | "ignored"
                        | "excluded"
                        | "ignored-then"
                        | "excluded-then"
                        | "not-empty"
                )
            ) && !i.reason.as_deref().is_some_and(|r| r.starts_with("not-covered-then:"))
        }
        _ => i.result == Progress::Failed || i.reason.as_deref() == Some("setid-dropped"),
    }
}

/// Something in these items falls short of what was asked for.
pub fn is_partial(items: &[Item]) -> bool {
    items.iter().any(is_shortfall)
}

/// What is needed to carry out a plan.
pub(crate) struct Request<'a> {
    pub kind: OpKind,
    pub target: String,
    pub inverts: Option<String>,
    pub session: Option<String>,
    pub plan: Plan,
    /// The present state, with every path of the plan in it; becomes the safety row.
    pub live: Live,
    pub listed_safety: bool,
    pub privileged: bool,
    pub takes_back: Vec<u64>,
    /// Only some paths were asked for.
    pub narrowed: bool,
    pub lock: &'a OperationLock,
    pub rows: &'a Rows,
    pub control: &'a Control<'a>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Journal {
    pub op: String,
    pub root: String,
    /// Directories that were opened for the operation, with the bits that they get back.
    #[serde(default)]
    pub loosen: Vec<(String, u32)>,
}

pub(crate) fn journal_file(ws: &Workspace) -> Result<PathBuf> {
    Ok(ws.store()?.journal_dir().join("operation.json"))
}

/// Puts what preflight finds into the plan: nothing of it was touched yet.
pub(crate) fn preflight(place: &mut Place, plan: &mut Plan) -> Vec<(BString, u32)> {
    let mut loosen: BTreeMap<BString, u32> = BTreeMap::new();
    let made: BTreeSet<BString> =
        plan.items.iter().filter(|i| i.action == Action::Mkdir).map(|i| i.path.clone()).collect();
    for i in plan.items.iter_mut().filter(|i| i.action.changes()) {
        let parent = paths::split(i.path.as_bstr()).0.to_owned();
        if place.is_immutable(i.path.as_bstr()) {
            i.result = Progress::Failed;
            i.reason = Some("immutable".to_owned());
            continue;
        }
        if i.action == Action::Mode || made.contains(&parent) {
            continue;
        }
        // A parent that is missing or no directory is created or replaced by another item.
        let Ok(access) = place.parent_access(i.path.as_bstr()) else { continue };
        if access.read_only_fs {
            i.result = Progress::Failed;
            i.reason = Some("read-only-file-system".to_owned());
        } else if !access.writable {
            if access.owned && access.mode & 0o300 != 0o300 && !i.is_outside() {
                loosen.insert(parent, access.mode);
            } else {
                i.result = Progress::Failed;
                i.reason = Some("permission".to_owned());
            }
        }
    }
    loosen.into_iter().collect()
}

/// What will be needed is there: a damaged row is refused before the first write, and so is its preview.
pub(crate) fn check_contents(odb: &Odb, plan: &Plan) -> Result<()> {
    for i in plan.items.iter().filter(|i| todo(i)) {
        if let Some(oid) =
            i.to.as_ref()
                .and_then(|s| s.node.oid())
                .filter(|o| !plan.contents.contains_key(o) && !odb.contains(o))
        {
            return Err(Error::new(
                Code::StoreDamaged,
                format!("{}: its content {oid} is missing from the store", i.path.to_str_lossy()),
            )
            .at_bytes(i.path.clone())
            .hint("nothing was changed; `backstitch verify` names the checkpoints that are hit"));
        }
    }
    Ok(())
}

/// A stronger reason may be given to it.
fn free(i: &Item) -> bool {
    i.reason.as_deref().is_none_or(|r| matches!(r, "merged" | "part"))
}

/// Carries out a plan whose items say what is there now and what shall be there.
pub(crate) fn run(ws: &Workspace, request: Request<'_>) -> Result<Outcome> {
    let Request {
        kind,
        target,
        inverts,
        session,
        mut plan,
        live,
        listed_safety,
        privileged,
        takes_back,
        narrowed,
        lock,
        rows,
        control,
    } = request;
    let digest = plan.digest(&target);
    let odb = ws.odb()?;
    let id = record::new_id(record::now_ms());
    let mut place = Place::of(ws, &id)?;
    place.privileged = privileged;
    let loosen = preflight(&mut place, &mut plan);
    let mut warnings = Vec::new();
    for i in plan.items.iter_mut().filter(|i| i.action.changes() && i.result == Progress::Pending) {
        if let Some(mode) = i.to.as_ref().and_then(|s| s.node.mode()) {
            let present = i.from.as_ref().and_then(|s| s.node.mode());
            if place.allowed_mode(mode, present) != mode && free(i) {
                i.reason = Some("setid-dropped".to_owned());
            }
        }
        if matches!(i.action, Action::Overwrite | Action::Mode)
            && free(i)
            && place.links(i.path.as_bstr()) > 1
            && !i.was_dir()
        {
            i.reason = Some("unlinked".to_owned());
        }
    }
    let work = plan.items.iter().filter(|i| i.action.changes() && i.result == Progress::Pending).count();
    if work == 0 {
        let partial = is_partial(&plan.items);
        return Ok(Outcome {
            operation: None,
            dry_run: false,
            plan: digest,
            target,
            safety: None,
            items: plan.items,
            verified: true,
            partial,
            takes_back,
            warnings,
        });
    }

    check_contents(&odb, &plan)?;

    // Before and after of the whole workspace, safety row and operation: one pack, durable before anything is touched.
    let row =
        RowOptions { kind: Kind::Safety, label: None, session: session.clone(), ..RowOptions::default() };
    let label = format!("before {} of {}", kind.as_str(), target);
    let row = RowOptions { label: Some(label), ..row };
    let parent = rows.parent(row.session.as_deref());
    let new = NewRow { options: &row, parent, operation: Some(id.clone()), notes: Vec::new(), adjust: None };
    let (safety, before) = row::build_record(ws, rows, &live, new)?;
    let edits = plan.items.iter().filter(|i| i.action.changes() && i.result == Progress::Pending).map(|i| {
        let put = i.to.as_ref().map(|s| Put { node: s.node.clone(), attrs: s.attrs.clone(), dir: None });
        (i.path.clone(), put)
    });
    let mut scratch = live.writer.scratch();
    for i in plan.items.iter().filter(|i| todo(i)) {
        if let Some(bytes) = i.to.as_ref().and_then(|s| s.node.oid()).and_then(|o| plan.contents.get(&o)) {
            live.writer.blob(&mut scratch, bytes)?;
        }
    }
    let (_, after) = live.root(live.trees().edit(&live.writer, &mut scratch, edits)?)?;
    let (items_blob, _) = live.writer.blob(&mut scratch, &plan::encode_items(&plan.items))?;
    let mut entries = vec![
        TreeEntry { mode: 0o40000, name: "before".into(), oid: before },
        TreeEntry { mode: 0o40000, name: "after".into(), oid: after },
        TreeEntry { mode: 0o100644, name: "items".into(), oid: items_blob },
    ];
    let (op_tree, _) = live.writer.tree(&mut scratch, &mut entries)?;
    let mut op = OpRecord {
        v: 1,
        id: id.clone(),
        seq: operations(ws)?.last().map_or(1, |o| o.record.seq + 1),
        kind,
        state: OpState::Running,
        target: target.clone(),
        inverts,
        session,
        safety: listed_safety.then(|| safety.id.clone()),
        plan: digest.clone(),
        created_ms: safety.created_ms,
        changed: work as u64,
        at: safety.seq,
        takes_back: takes_back.clone(),
        exceptions: exceptions(&plan.items),
        rows: Vec::new(),
        extra: [("narrowed", narrowed), ("outside", plan.changes().any(Item::is_outside))]
            .into_iter()
            .filter(|(_, on)| *on)
            .map(|(k, _)| (k.to_owned(), true.into()))
            .collect(),
    };
    let seconds = safety.created_ms.div_euclid(1000);
    let safety_commit = live.writer.commit(&mut scratch, &before, &safety.message(), seconds)?;
    let running = live.writer.commit(&mut scratch, &op_tree, &op.message(), seconds)?;
    live.writer.finish()?;
    let op_ref = format!("{OPERATIONS}{id}");
    let refs = ws.store()?.refs();
    if listed_safety {
        refs.apply(&[Edit {
            name: format!("{CHECKPOINTS}{}", safety.id),
            expect: Expect::Absent,
            new: Some(safety_commit),
        }])?;
    }
    refs.apply(&[Edit { name: op_ref.clone(), expect: Expect::Absent, new: Some(running) }])?;
    let journal = journal_file(ws)?;
    let content = Journal {
        op: id.clone(),
        root: crate::workspace::manifest_path(ws.root()),
        loosen: loosen.iter().map(|(p, m)| (paths::escape(p), *m)).collect(),
    };
    write_journal(&journal, &content)?;

    // Files elsewhere may lie on another file system.
    place.sync_each = work <= 64 || plan.items.iter().any(Item::is_outside);
    let applied = apply(&mut place, &mut plan.items, &loosen, ws.threads(), control)
        .and_then(|()| verify(&mut place, &mut plan.items))
        .and_then(|()| sync(&place, &plan.items));
    if let Err(e) = applied {
        let back = crate::recover::roll_back(ws, &op, &plan.items, &loosen).and_then(|left| {
            finish(ws, &mut op, running, &op_tree, OpState::RolledBack, &journal).map(|()| left)
        });
        return Err(match back {
            Ok(left) if left.is_empty() => e.hint("everything was put back as it was before"),
            Ok(left) => e
                .hint("everything else was put back; these paths were changed by somebody meanwhile")
                .list(left),
            Err(b) => Error {
                hint: Some(format!("putting back failed too ({b}); the next backstitch command tries again")),
                ..e
            },
        });
    }
    op.exceptions = exceptions(&plan.items);
    op.changed = plan.items.iter().filter(|i| i.result == Progress::Done).count() as u64;
    if let Err(e) = finish(ws, &mut op, running, &op_tree, OpState::Done, &journal) {
        // Past the point where the record says `done` the work stands, and the next command drops the journal. Before it
        // the tree goes back, as the next command would make it.
        if is_done(ws, &op.id) {
            warnings.push(format!("done, but its end could not be made durable: {}", e.message));
        } else {
            crate::recover::roll_back(ws, &op, &plan.items, &loosen)?;
            let _ = finish(ws, &mut op, running, &op_tree, OpState::RolledBack, &journal);
            return Err(e.hint("everything was put back as it was before"));
        }
    }
    for i in plan.items.iter().filter(|i| i.action == Action::Conflict) {
        warnings.push(format!(
            "{} was left alone: {}",
            i.path.to_str_lossy(),
            i.reason.as_deref().unwrap_or("")
        ));
    }
    let _ = lock;
    Ok(Outcome {
        operation: Some(id),
        dry_run: false,
        plan: digest,
        target,
        safety: listed_safety.then_some(safety.id),
        partial: is_partial(&plan.items),
        items: plan.items,
        verified: true,
        takes_back,
        warnings,
    })
}

/// The record in the store says that the operation is done.
fn is_done(ws: &Workspace, id: &str) -> bool {
    all(ws).is_ok_and(|(ops, _)| ops.iter().any(|o| o.record.id == id && o.record.state == OpState::Done))
}

fn exceptions(items: &[Item]) -> Vec<Exception> {
    items
        .iter()
        .enumerate()
        .filter(|(_, i)| i.result == Progress::Failed || i.action == Action::Conflict)
        .map(|(n, i)| Exception { n, action: i.action, reason: i.reason.clone().unwrap_or_default() })
        .collect()
}

fn write_journal(path: &std::path::Path, content: &Journal) -> Result<()> {
    crate::settings::write_file(path, &serde_json::to_vec(content).unwrap_or_default())?;
    sync_parent(path)
}

fn sync_parent(path: &std::path::Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io(dir, e))
}

/// Marks the operation and drops the journal, in this order.
pub(crate) fn finish(
    ws: &Workspace,
    op: &mut OpRecord,
    from: Oid,
    tree: &Oid,
    state: OpState,
    journal: &std::path::Path,
) -> Result<()> {
    op.state = state;
    let writer = ws.store()?.writer()?;
    let mut s = writer.scratch();
    let commit = writer.commit(&mut s, tree, &op.message(), op.created_ms.div_euclid(1000))?;
    writer.finish()?;
    ws.store()?.refs().apply(&[Edit {
        name: format!("{OPERATIONS}{}", op.id),
        expect: Expect::Is(from),
        new: Some(commit),
    }])?;
    match std::fs::remove_file(journal) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io(journal, e)),
    }
    sync_parent(journal)
}

/// All operations, oldest first.
pub fn operations(ws: &Workspace) -> Result<Vec<Operation>> {
    let (good, bad) = all(ws)?;
    match bad.into_iter().next() {
        None => Ok(good),
        Some((name, why)) => {
            Err(Error::new(Code::StoreDamaged, format!("the operation {name} cannot be read: {why}"))
                .hint("`backstitch verify --repair` sets it aside"))
        }
    }
}

/// Ref names and reasons.
type Unreadable = Vec<(String, String)>;

/// All that can be read, oldest first, and those that cannot, with the reason.
pub(crate) fn all(ws: &Workspace) -> Result<(Vec<Operation>, Unreadable)> {
    let (rows, bad) = ws.store()?.refs().rows(OPERATIONS)?;
    let mut bad: Vec<(String, String)> = bad.into_iter().map(|(n, e)| (n, e.to_string())).collect();
    let mut good = Vec::new();
    for r in rows {
        let record = record::decode::<OpRecord>(r.message.as_bstr(), &r.name)
            .and_then(|record| record::check_id(&record.id, &r.name).map(|()| record));
        match record {
            Ok(record) => good.push(Operation { record, commit: r.commit, tree: r.tree }),
            Err(e) => bad.push((r.name, e.message)),
        }
    }
    good.sort_by(|a, b| (a.record.seq, &a.record.id).cmp(&(b.record.seq, &b.record.id)));
    Ok((good, bad))
}

fn take(item: &mut Item, step: Step) {
    match step {
        Ok(()) => item.result = Progress::Done,
        // What the present file has could not be given to its replacement: it was not touched (SEMANTICS 17).
        Err(Unexpected(why @ ("owner" | "attributes"))) => {
            item.result = Progress::Failed;
            item.reason = Some(why.to_owned());
        }
        Err(Unexpected("not-empty")) if item.action == Action::Rmdir => item.leave(Action::Keep, "not-empty"),
        Err(Unexpected(why)) => item.leave(Action::Conflict, why),
    }
}

fn todo(i: &Item) -> bool {
    i.action.changes() && i.result == Progress::Pending
}

fn check_interrupt(control: &Control<'_>) -> Result<()> {
    if control.interrupt.load(Ordering::Relaxed) {
        return Err(Error::new(Code::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Changes the tree: what is in the way goes first, then directories, contents, deletions, emptied directories, modes.
/// An unforeseen error leaves everything to the caller's rollback.
pub(crate) fn apply(
    place: &mut Place,
    items: &mut [Item],
    loosen: &[(BString, u32)],
    threads: usize,
    control: &Control<'_>,
) -> Result<()> {
    for (dir, mode) in loosen {
        let _ = place.chmod(dir.as_bstr(), true, mode | 0o700)?;
    }
    // In the way: what stands below a directory that becomes a file, and names that only differ in case from new ones.
    let made: BTreeSet<Vec<u8>> =
        items.iter().filter(|i| todo(i) && i.from.is_none()).map(|i| i.path.to_lowercase()).collect();
    let collides = |i: &Item| i.to.is_none() && made.contains(&i.path.to_lowercase());
    let swaps: Vec<BString> = items
        .iter()
        .filter(|i| todo(i) && i.was_dir() && !i.becomes_dir() && (i.to.is_some() || collides(i)))
        .map(|i| i.path.clone())
        .collect();
    let early =
        |i: &Item| collides(i) || swaps.iter().any(|s| paths::is_under(i.path.as_bstr(), s.as_bstr()));
    for n in (0..items.len()).rev() {
        check_interrupt(control)?;
        let i = &mut items[n];
        if !todo(i) || i.to.is_some() || !early(i) {
            continue;
        }
        let step = match &i.from {
            Some(s) if s.node.is_dir() => place.rmdir(i.path.as_bstr())?,
            Some(s) => place.delete(n, i.path.as_bstr(), s)?,
            None => Ok(()),
        };
        take(i, step);
    }
    place.forget();
    // Swapped directories are empty now.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if todo(i)
            && i.was_dir()
            && !i.becomes_dir()
            && i.to.is_some()
            && let Err(Unexpected(why)) = place.rmdir(i.path.as_bstr())?
        {
            i.leave(Action::Conflict, why);
        }
    }
    place.forget();
    // Directories, parents first; a file in the way goes.
    for (n, i) in items.iter_mut().enumerate() {
        if !todo(i) || !i.becomes_dir() || i.was_dir() {
            continue;
        }
        if let Some(from) = i.from.clone()
            && let Err(Unexpected(why)) = place.delete(n, i.path.as_bstr(), &from)?
        {
            i.leave(Action::Conflict, why);
            continue;
        }
        match place.mkdir(i.path.as_bstr())? {
            Ok(()) => {
                if let Some(to) = &i.to {
                    place.dress_dir(i.path.as_bstr(), &to.attrs)?;
                }
            }
            Err(Unexpected(why)) => i.leave(Action::Conflict, why),
        }
    }
    place.forget();
    leaves(place, items, threads, control)?;
    // Emptied directories, children first.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if todo(i) && i.action == Action::Rmdir {
            let step = place.rmdir(i.path.as_bstr())?;
            take(i, step);
        }
    }
    place.forget();
    // Modes, children first: a directory may become read-only.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if !todo(i) {
            continue;
        }
        let Some(mode) = i.to.as_ref().and_then(|s| s.node.mode()) else { continue };
        let present = i.from.as_ref().and_then(|s| s.node.mode());
        let mode = place.allowed_mode(mode, present);
        let step = place.chmod(i.path.as_bstr(), i.becomes_dir(), mode)?;
        take(i, step);
    }
    tighten(place, items, loosen)
}

/// Directories that were opened for this get their bits back, unless an item gave them new ones.
pub(crate) fn tighten(place: &mut Place, items: &[Item], loosen: &[(BString, u32)]) -> Result<()> {
    for (dir, mode) in loosen.iter().rev() {
        if !items.iter().any(|i| i.path == *dir && i.result == Progress::Done) {
            let _ = place.chmod(dir.as_bstr(), true, *mode)?;
        }
    }
    Ok(())
}

/// Files and links: contents first, then deletions, each directory by one thread at a time.
fn leaves(place: &mut Place, items: &mut [Item], threads: usize, control: &Control<'_>) -> Result<()> {
    for deleting in [false, true] {
        let mut groups: BTreeMap<BString, Vec<usize>> = BTreeMap::new();
        let mut total = 0;
        for (n, i) in items.iter().enumerate() {
            let leaf = match deleting {
                // The bits of a file with several names belong to all of them: it is replaced like a changed one.
                false if i.action == Action::Mode => {
                    todo(i) && !i.becomes_dir() && place.links(i.path.as_bstr()) > 1
                }
                false => matches!(i.action, Action::Create | Action::Overwrite) && !i.becomes_dir(),
                true => i.action == Action::Delete,
            };
            if todo(i) && leaf {
                groups.entry(paths::split(i.path.as_bstr()).0.to_owned()).or_default().push(n);
                total += 1;
            }
        }
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        let one = |place: &mut Place, n: usize, i: &Item| -> Result<Step> {
            match (&i.from, &i.to) {
                (Some(from), None) => place.delete(n, i.path.as_bstr(), from),
                // The directory that stood there is gone by now.
                (from, Some(to)) => {
                    place.put(n, i.path.as_bstr(), from.as_ref().filter(|f| !f.node.is_dir()), to)
                }
                (None, None) => Ok(Ok(())),
            }
        };
        let done: Mutex<Vec<(usize, Step)>> = Mutex::new(Vec::with_capacity(total));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let next = AtomicUsize::new(0);
        let work = |place: &mut Place| {
            loop {
                let g = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(g) else { return };
                let mut steps = Vec::with_capacity(group.len());
                for &n in group {
                    let stop = check_interrupt(control).err().or_else(|| match one(place, n, &items[n]) {
                        Ok(step) => {
                            steps.push((n, step));
                            None
                        }
                        Err(e) => Some(e),
                    });
                    if let Some(e) = stop {
                        next.store(groups.len(), Ordering::Relaxed);
                        lock(&failed).get_or_insert(e);
                        break;
                    }
                }
                let mut d = lock(&done);
                d.append(&mut steps);
                (control.progress)("restoring", d.len() as u64, total as u64);
            }
        };
        let helpers = if total < 32 { 0 } else { threads.saturating_sub(1).min(groups.len()) };
        if helpers == 0 {
            work(place);
        } else {
            let mut others = (0..helpers).map(|_| place.another()).collect::<Result<Vec<_>>>()?;
            std::thread::scope(|s| {
                for p in &mut others {
                    let work = &work;
                    s.spawn(move || work(p));
                }
                work(place);
            });
        }
        let steps = done.into_inner().unwrap_or_else(|e| e.into_inner());
        for (n, step) in steps {
            take(&mut items[n], step);
        }
        if let Some(e) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(e);
        }
        place.forget();
    }
    Ok(())
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Reads every changed path back. A path that somebody changed in the meantime is a conflict, not ours.
fn verify(place: &mut Place, items: &mut [Item]) -> Result<()> {
    place.forget();
    for i in items.iter_mut().filter(|i| i.result == Progress::Done) {
        let found = place.inspect(i.path.as_bstr())?;
        let mut want = i.to.clone();
        if let Some(s) = &mut want {
            let present = i.from.as_ref().and_then(|s| s.node.mode());
            match &mut s.node {
                tree::Node::File { mode, .. } | tree::Node::Dir { mode } => {
                    *mode = place.allowed_mode(*mode, present)
                }
                tree::Node::Link { .. } => {}
            }
        }
        if !place::matches(&found, want.as_ref()) {
            i.result = Progress::Failed;
            i.reason = Some("changed-after".to_owned());
        }
    }
    Ok(())
}

/// New names and contents reach the disk before the journal goes.
fn sync(place: &Place, items: &[Item]) -> Result<()> {
    if !place.sync_each {
        return place.sync_all();
    }
    let dirs: BTreeSet<&BStr> = items
        .iter()
        .filter(|i| i.result == Progress::Done)
        .map(|i| paths::split(i.path.as_bstr()).0)
        .collect();
    for d in dirs {
        place.sync_dir(d)?;
    }
    Ok(())
}

/// What stands at each path of the items now, for plans that start from an operation instead of a scan.
pub(crate) fn present(place: &mut Place, items: &[Item]) -> Result<Vec<Found>> {
    items.iter().map(|i| place.inspect(i.path.as_bstr())).collect()
}

/// Rows of one checkpoint for messages.
pub(crate) fn describe_target(c: &Checkpoint) -> String {
    c.record.id.clone()
}

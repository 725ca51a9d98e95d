//! One mutation of the work tree, from plan to record. Restore, undo, redo and recovery all go through here.
//!
//! Order: safety row and operation record (both ends of every path) are durable in the store, then the journal, then the
//! tree is changed, verified and synced, then the operation is marked done, then the journal goes. Whoever finds a
//! journal finishes or takes back what it names (see [`crate::recover`]).

mod apply;
mod journal;
mod outcome;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use backstitch_store::{Edit, Expect, Odb, Oid, TreeEntry};
use bstr::{BString, ByteSlice};

pub(crate) use self::{
    apply::apply,
    journal::{Journal, drop_unfinished, finish, has_unfinished, journal_file},
    record::{all, git_states},
};
use self::{
    apply::{sync, todo, verify},
    journal::{is_done, write_journal},
};
pub use self::{
    outcome::{Outcome, is_partial},
    record::{Exception, OpKind, OpRecord, OpState, Operation, operations},
};
use crate::{
    checkpoint::Options as RowOptions,
    error::{Code, Error, Result},
    git::{self, put::Move},
    live::Live,
    paths,
    place::{Found, Place, Syncs},
    plan::{self, Action, Item, Plan, Progress},
    record::{CHECKPOINTS, Checkpoint, Kind, OPERATIONS, Record, new_id, now_ms},
    row::{self, NewRow},
    tree::Put,
    workspace::{Control, OperationLock, Rows, Workspace},
};

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
    /// The user's git state goes along.
    pub git: Option<Move>,
    pub lock: &'a OperationLock,
    pub rows: &'a Rows,
    pub control: &'a Control<'a>,
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
        git,
        lock,
        rows,
        control,
    } = request;
    let digest = match &git {
        Some(m) => plan.digest(&m.name(&target)),
        None => plan.digest(&target),
    };
    let told = git.clone();
    let moved = git.filter(|m| m.conflict.is_none() && !m.changes.is_empty());
    let odb = ws.odb()?;
    let id = new_id(now_ms());
    let mut place = Place::of(ws, &id)?;
    place.privileged = privileged;
    let loosen = preflight(&mut place, &mut plan);
    let mut warnings = told.as_ref().map_or_else(Vec::new, |m| m.warnings.clone());
    for i in plan.items.iter_mut().filter(|i| i.action.changes() && i.result == Progress::Pending) {
        if let Some(mode) = i.to.as_ref().and_then(|s| s.node.mode()) {
            let present = i.from.as_ref().and_then(|s| s.node.mode());
            let allowed = place.allowed_mode(mode, present);
            if allowed != mode && free(i) {
                match i.action == Action::Mode && present == Some(allowed) {
                    true => i.leave(Action::Keep, "setid-dropped"),
                    false => i.reason = Some("setid-dropped".to_owned()),
                }
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
    if work == 0 && moved.is_none() {
        let partial = is_partial(&plan.items) || told.as_ref().is_some_and(Move::falls_short);
        warnings.extend(crate::room::warning(&plan.items));
        return Ok(Outcome {
            operation: None,
            dry_run: false,
            plan: digest,
            target,
            safety: None,
            items: plan.items,
            verified: true,
            partial,
            rows: Vec::new(),
            rows_back: false,
            takes_back,
            warnings,
            git: told,
        });
    }

    check_contents(&odb, &plan)?;

    // Before and after of the whole workspace, safety row and operation: one pack, durable before anything is touched. They
    // speak for what the store holds; what is to be moved into it follows when it is there.
    let row =
        RowOptions { kind: Kind::Safety, label: None, session: session.clone(), ..RowOptions::default() };
    let label = format!("before {} of {}", kind.as_str(), target);
    let row = RowOptions { label: Some(label), ..row };
    let parent = ws.parent(rows, row.session.as_deref())?;
    let new = NewRow { options: &row, parent, operation: Some(id.clone()), notes: Vec::new(), adjust: None };
    let Described { safety, safety_commit, tree: mut op_tree } =
        describe(ws, rows, &live, &plan, moved.as_ref(), new.clone())?;
    let mut scratch = live.writer.scratch();
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
        extra: [
            ("narrowed", narrowed),
            ("outside", plan.changes().any(Item::is_outside)),
            (git::CHANGED, moved.is_some()),
        ]
        .into_iter()
        .filter(|(_, on)| *on)
        .map(|(k, _)| (k.to_owned(), true.into()))
        .collect(),
    };
    let seconds = safety.created_ms.div_euclid(1000);
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

    let planned = (!plan.unheld.is_empty()).then(|| plan.clone());
    place.syncs = Syncs::of(&plan.items);
    let applied = apply(&mut place, &mut plan.items, &loosen, ws.threads(), control)
        .and_then(|()| verify(&mut place, &mut plan.items, ws.threads(), control))
        .and_then(|()| sync(&mut place, &plan.items, &loosen))
        .and_then(|()| match &moved {
            Some(m) => git::put::apply(
                &git::put::repository(ws)?,
                &ws.odb()?,
                &id,
                &format!("{} {target}", kind.as_str()),
                m,
                control,
            ),
            None => Ok(()),
        })
        .and_then(|()| {
            let Some(mut planned) = planned else { return Ok(()) };
            // What was moved into the store is spoken for from now on.
            for i in plan.items.iter().filter(|i| i.result == Progress::Done) {
                planned.unheld.remove(&i.path);
            }
            let live = ws.live_of(rows, &planned, planned.present())?;
            let row = RowOptions { id: Some(safety.id.clone()), ..row.clone() };
            let same = |r: &mut Record| (r.seq, r.created_ms) = (safety.seq, safety.created_ms);
            let new = NewRow { options: &row, adjust: Some(&same), ..new };
            let now = describe(ws, rows, &live, &planned, moved.as_ref(), new)?;
            live.writer.finish()?;
            op_tree = now.tree;
            if !listed_safety {
                return Ok(());
            }
            let name = format!("{CHECKPOINTS}{}", safety.id);
            let expect = Expect::Is(safety_commit);
            Ok(refs.apply(&[Edit { name, expect, new: Some(now.safety_commit) }])?)
        });
    if let Err(e) = applied {
        let back = crate::recover::roll_back(ws, &op, &op_tree, &plan.items, &loosen).and_then(|left| {
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
            crate::recover::roll_back(ws, &op, &op_tree, &plan.items, &loosen)?;
            let _ = finish(ws, &mut op, running, &op_tree, OpState::RolledBack, &journal);
            return Err(e.hint("everything was put back as it was before"));
        }
    }
    warnings.extend(crate::room::warning(&plan.items));
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
        partial: is_partial(&plan.items) || told.as_ref().is_some_and(Move::falls_short),
        items: plan.items,
        verified: true,
        rows: Vec::new(),
        rows_back: false,
        takes_back,
        warnings,
        git: told,
    })
}

/// What says what an operation changes, as objects.
struct Described {
    safety: Record,
    safety_commit: Oid,
    /// Of the operation's commit.
    tree: Oid,
}

/// Puts the safety row, both states of the workspace and the items into the pack in the making.
fn describe(
    ws: &Workspace,
    rows: &Rows,
    live: &Live,
    plan: &Plan,
    moved: Option<&Move>,
    new: NewRow<'_>,
) -> Result<Described> {
    let (safety, before) = row::build_record(ws, rows, live, new)?;
    let edits = plan.items.iter().filter(|i| todo(i)).map(|i| {
        let put = i.to.as_ref().map(|s| Put { node: s.node.clone(), attrs: s.attrs.clone(), dir: None });
        (i.path.clone(), put)
    });
    let mut scratch = live.writer.scratch();
    for i in plan.items.iter().filter(|i| todo(i)) {
        if let Some(bytes) = i.to.as_ref().and_then(|s| s.node.oid()).and_then(|o| plan.contents.get(&o)) {
            live.writer.blob(&mut scratch, bytes)?;
        }
    }
    let (_, after) =
        live.root_with(live.trees().edit(&live.writer, &mut scratch, edits)?, moved.map(|m| m.to))?;
    let (items, _) = live.writer.blob(&mut scratch, &plan::encode_items(&plan.items))?;
    let mut entries = vec![
        TreeEntry { mode: 0o40000, name: "before".into(), oid: before },
        TreeEntry { mode: 0o40000, name: "after".into(), oid: after },
        TreeEntry { mode: 0o100644, name: "items".into(), oid: items },
    ];
    let (tree, _) = live.writer.tree(&mut scratch, &mut entries)?;
    let seconds = safety.created_ms.div_euclid(1000);
    let safety_commit = live.writer.commit(&mut scratch, &before, &safety.message(), seconds)?;
    Ok(Described { safety, safety_commit, tree })
}

fn exceptions(items: &[Item]) -> Vec<Exception> {
    items
        .iter()
        .enumerate()
        .filter(|(_, i)| i.result == Progress::Failed || i.action == Action::Conflict)
        .map(|(n, i)| Exception { n, action: i.action, reason: i.reason.clone().unwrap_or_default() })
        .collect()
}

/// What stands at each path of the items now, for plans that start from an operation instead of a scan.
pub(crate) fn present(place: &mut Place, items: &[Item]) -> Result<Vec<Found>> {
    items.iter().map(|i| place.inspect(i.path.as_bstr())).collect()
}

/// Rows of one checkpoint for messages.
pub(crate) fn describe_target(c: &Checkpoint) -> String {
    c.record.id.clone()
}

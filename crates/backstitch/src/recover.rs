//! What a dead process left behind is finished or taken back by whoever comes next.

use std::time::Duration;

use bstr::{BString, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    operation::{self, Journal, OpRecord, OpState},
    place::{self, Found, Place, Syncs},
    plan::{Action, Item, Progress},
    workspace::Workspace,
};

/// An operation was begun and neither finished nor taken back.
pub(crate) fn is_pending(ws: &Workspace) -> bool {
    ws.has_store() && operation::journal_file(ws).is_ok_and(|f| f.symlink_metadata().is_ok())
}

/// Looks for a journal; `None` where there is none, or where its owner is alive.
pub(crate) fn if_needed(ws: &Workspace) -> Result<Option<String>> {
    if !(is_pending(ws) || ws.has_store() && operation::has_unfinished(ws)) {
        return Ok(None);
    }
    match ws.store()?.lock_exclusive("workspace", Duration::ZERO) {
        Ok(_lock) => locked(ws),
        // Its owner is at work, or this user may not write here: readers go on.
        Err(_) => Ok(None),
    }
}

/// The same for a caller who holds the workspace's lock alone.
pub(crate) fn locked(ws: &Workspace) -> Result<Option<String>> {
    let file = operation::journal_file(ws)?;
    // It names nothing that was begun, and costs a name only: whoever may write here removes it.
    let _ = operation::drop_unfinished(&file);
    let Ok(bytes) = std::fs::read(&file) else { return Ok(None) };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|e| {
        Error::new(Code::StoreDamaged, format!("{}: the journal cannot be read: {e}", file.display()))
            .at(&file)
            .hint("`backstitch verify --repair` sets it aside; the newest safety checkpoint holds the state before")
    })?;
    let op = operation::operations(ws)?.into_iter().find(|o| o.record.id == journal.op);
    let Some(op) = op else {
        // The record comes before the journal: a journal without one names nothing that was begun.
        std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
        return Ok(None);
    };
    let items = op.items(&ws.odb()?)?;
    let mut record = op.record.clone();
    if record.state != OpState::Running {
        std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
        return Ok(Some(format!(
            "{} {} was complete; its journal was dropped",
            record.kind.as_str(),
            record.id
        )));
    }
    let loosen: Vec<(BString, u32)> = journal
        .loosen
        .iter()
        .filter_map(|(p, m)| crate::paths::unescape(p.as_bytes()).map(|p| (p, *m)))
        .collect();
    let left = roll_back(ws, &record, &op.tree, &items, &loosen)?;
    operation::finish(ws, &mut record, op.commit, &op.tree, OpState::RolledBack, &file)?;
    let mut said = format!(
        "{} {} was interrupted; everything was put back as it was before",
        record.kind.as_str(),
        record.id
    );
    if !left.is_empty() {
        said.push_str(&format!(", but not {}: changed by somebody since", left.join(", ")));
    }
    Ok(Some(said))
}

/// Takes every path of an operation back to what stood there before, wherever it still is as the operation left it.
/// Idempotent: a killed rollback is rolled back again by the next. Returns the paths that somebody else changed.
pub(crate) fn roll_back(
    ws: &Workspace,
    op: &OpRecord,
    tree: &backstitch_store::Oid,
    items: &[Item],
    loosen: &[(BString, u32)],
) -> Result<Vec<String>> {
    let mut left = Vec::new();
    if op.extra.contains_key(crate::git::CHANGED)
        && let (Some(before), Some(after)) = operation::git_states(&ws.odb()?, tree)?
    {
        left = crate::git::put::roll_back(ws, &ws.odb()?, &op.id, &before, &after)?;
    }
    let mut place = Place::of(ws, &op.id)?;
    place.privileged = true;
    for (n, i) in items.iter().enumerate().filter(|(_, i)| i.action.changes()) {
        place.settle_temporaries(n, i.path.as_bstr(), i.from.as_ref(), i.to.as_ref())?;
    }
    place.forget();
    // Same numbers as the operation's items: the next rollback settles the temporaries of this one.
    let mut back: Vec<Item> =
        items.iter().map(|i| Item::keep(i.path.clone(), Action::Keep, "already")).collect();
    for (n, i) in items.iter().enumerate() {
        if !i.action.changes() || i.result == Progress::Failed && i.reason.as_deref() != Some("changed-after")
        {
            continue;
        }
        let found = place.inspect(i.path.as_bstr())?;
        if place::matches(&found, i.from.as_ref()) {
            continue;
        }
        let now = match found {
            Found::Is(s) => Some(s),
            Found::Absent => None,
            Found::Special => {
                left.push(i.path.to_str_lossy().into_owned());
                continue;
            }
        };
        // Ours: what the operation puts there, or a stage on the way (a directory still private or already emptied, a
        // place already cleared, a mode half set).
        let ours = match (&now, &i.to) {
            (None, _) => true,
            (Some(a), Some(b)) => {
                a.node.is_dir() && b.node.is_dir()
                    || a.node.kind() == b.node.kind() && a.node.oid() == b.node.oid()
            }
            (Some(a), None) => i.from.as_ref().is_some_and(|f| f.node.is_dir() && a.node.is_dir()),
        } || matches!((&now, &i.from), (Some(a), Some(f)) if a.node.is_dir() && f.node.is_dir());
        if !ours {
            left.push(i.path.to_str_lossy().into_owned());
            continue;
        }
        if let Some(item) = Item::transition(i.path.clone(), now, i.from.clone()) {
            back[n] = item;
        }
    }
    let quiet = crate::workspace::Control::default();
    let loosened = {
        let mut plan = crate::plan::Plan { items: back, ..Default::default() };
        let mut more = operation::preflight(&mut place, &mut plan);
        back = plan.items;
        for l in loosen {
            if !more.iter().any(|(d, _)| *d == l.0) {
                more.push(l.clone());
            }
        }
        more
    };
    place.syncs = Syncs::of(&back);
    operation::apply(&mut place, &mut back, &loosened, 1, &quiet)?;
    for i in back.iter().filter(|i| i.reason.as_deref() != Some("already")) {
        if i.result != Progress::Done
            && !(i.action == Action::Keep && i.reason.as_deref() == Some("not-empty"))
        {
            left.push(i.path.to_str_lossy().into_owned());
        }
    }
    place.sync_all()?;
    for i in back.iter().filter(|i| i.is_outside() && i.result == Progress::Done) {
        place.sync_dir(crate::paths::split(i.path.as_bstr()).0)?;
    }
    Ok(left)
}

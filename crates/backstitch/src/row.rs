//! One row: its record, its commit, its ref.

use std::collections::{BTreeMap, HashMap};

use backstitch_scan::{Skip, TableUpdate};
use backstitch_store::{Expect, Oid};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    checkpoint::Options,
    coverage::{self, Coverage},
    error::Result,
    git,
    live::{Live, packs, table_dir},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, Incarnation, Kind, Record, Retention, State, Summary},
    tool,
    tree::{self, DirRef, Root},
    trust, watch,
    workspace::{CaptureLock, Rows, Workspace, incarnation},
};

/// Counts changed files between two recorded trees. Paths that `to` does not cover are not counted as deleted
/// (a change of rules must not read as a deletion); nor are paths that `from` did not cover counted as added,
/// unless there is nothing else to say of them.
pub(crate) fn summarize(
    odb: &backstitch_store::Odb,
    from: DirRef,
    to: DirRef,
    to_coverage: Option<&Coverage>,
) -> Result<Summary> {
    let mut s = Summary::default();
    let mut added: HashMap<Oid, u64> = HashMap::new();
    let mut deleted: HashMap<Oid, u64> = HashMap::new();
    tree::diff(odb, from, to, &mut |path, a, b| {
        let leaf = |e: Option<&tree::Entry>| e.filter(|e| !e.node.is_dir()).and_then(|e| e.node.oid());
        match (leaf(a), leaf(b)) {
            (None, None) => {}
            (None, Some(oid)) => *added.entry(oid).or_default() += 1,
            (Some(oid), None) => {
                if to_coverage.is_none_or(|c| c.covers(path)) {
                    *deleted.entry(oid).or_default() += 1;
                }
            }
            (Some(_), Some(_)) => s.modified += 1,
        }
        Ok(())
    })?;
    for (oid, n) in &mut deleted {
        if let Some(m) = added.get_mut(oid) {
            let pairs = (*n).min(*m);
            s.renamed += pairs;
            *n -= pairs;
            *m -= pairs;
        }
    }
    s.added = added.values().sum();
    s.deleted = deleted.values().sum();
    Ok(s)
}

/// Everything that makes up a new row but its tree.
#[derive(Clone)]
pub(crate) struct NewRow<'a> {
    pub options: &'a Options,
    pub parent: Option<&'a Checkpoint>,
    pub operation: Option<String>,
    pub notes: Vec<String>,
    /// Has the last word about the record.
    pub adjust: Option<&'a dyn Fn(&mut Record)>,
}

/// Writes commit and ref of a row whose tree is in `live.writer`; consumes the writer. `true` with the row of another
/// process that has recorded the same end of the same tool call meanwhile: there is one of each.
pub(crate) fn commit_row(
    ws: &Workspace,
    rows: &Rows,
    live: Live,
    new: NewRow<'_>,
    _lock: &CaptureLock,
) -> Result<(Checkpoint, bool)> {
    let refs = ws.store()?.refs();
    let whole = live.covers.is_none();
    let add = |live: &Live, record: &Record, tree: &Oid| -> Result<Oid> {
        let mut s = live.writer.scratch();
        Ok(live.writer.commit(&mut s, tree, &record.message(), record.created_ms.div_euclid(1000))?)
    };
    let (mut record, tree) = build_record(ws, rows, &live, new.clone())?;
    let mut commit = add(&live, &record, &tree)?;
    let (written, mut staged) = live.writer.finish_for(&commit)?;
    // Captures run beside each other, their rows follow one another: a row that was overtaken is told again who is before it.
    let _turn = ws.store()?.lock_exclusive("rows", ws.lock_wait())?;
    if refs.count(CHECKPOINTS)? != rows.all.len() + rows.damaged.len() {
        let rows = ws.rows()?;
        if let Some(c) = tool::recorded(&rows, new.options) {
            return Ok((c.clone(), true));
        }
        let parent = ws.parent(&rows, new.options.session.as_deref())?;
        let live = Live { writer: ws.store()?.writer()?, update: None, watched: None, ..live };
        (record, _) = build_record(ws, &rows, &live, NewRow { parent, ..new })?;
        commit = add(&live, &record, &tree)?;
        (_, staged) = live.writer.finish_for(&commit)?;
    }
    let name = format!("{CHECKPOINTS}{}", record.id);
    refs.set_staged(&record.row(commit, tree), Expect::Absent, staged)?;
    save_table(ws, live.update, name, live.watched)?;
    if whole {
        watch::start_if_wanted(ws, record.files);
    }
    ws.tend(&commit, written.pack.is_none());
    Ok((Checkpoint { record: record.into(), commit, tree }, false))
}

/// The table of stats, vouched for by the row of this ref, with what it says of the watcher.
pub(crate) fn save_table(
    ws: &Workspace,
    update: Option<TableUpdate>,
    name: String,
    watched: Option<String>,
) -> Result<()> {
    if let Some(update) = update {
        // A cache: a failure to write it costs time, not truth.
        let note = std::iter::once(name).chain(packs(ws)).chain(watched).collect::<Vec<_>>().join(" ");
        let _ = update.save(&table_dir(ws)?, BStr::new(&note));
    }
    Ok(())
}

/// The record and root tree of a row to come.
pub(crate) fn build_record(
    ws: &Workspace,
    rows: &Rows,
    live: &Live,
    new: NewRow<'_>,
) -> Result<(Record, Oid)> {
    let options = new.options;
    let odb = live.writer.odb();
    let parent_root = match new.parent {
        Some(p) => Some(Root::read(odb, &p.tree)?),
        None => None,
    };
    // A git state that was not looked at is carried on, as other paths are.
    let carried = parent_root.and_then(|p| p.git).filter(|_| ws.settings().flag("git_state"));
    let (root, tree) = live.root(Root { git: carried, ..live.trees() })?;
    let from = parent_root.map(|r| r.files).unwrap_or_default();
    let live_coverage = live.coverage();
    // Against nothing, everything is new: no need to read the trees again.
    let summary = match new.parent {
        None => Summary { added: live.count, ..Summary::default() },
        Some(_) => summarize(odb, from, live.files, Some(&live_coverage))?,
    };
    let unchanged = parent_root.is_some_and(|p| p.files == root.files && p.outside == root.outside);
    let mut skipped: Vec<&Skip> = live.skips.iter().collect();
    skipped.sort_by(|a, b| (a.reason.by_rule(), &a.path).cmp(&(b.reason.by_rule(), &b.path)));
    let narrowed = live.scope == "touched"
        && live.covers.as_ref().is_some_and(Vec::is_empty)
        && live.outside_covers.is_empty();
    let partial = narrowed || live.skips.iter().any(|s| !s.reason.by_rule());
    let mut notes = new.notes;
    let project = ws.project_files();
    let host = ws.settings().flag("shared_store").then(crate::network::host);
    if let Some(p) = new.parent {
        notes.extend(trust::changes(p.record.extra.get(trust::PROJECT), &project));
        if live.covers.is_none() && p.record.files >= 10 && live.count * 2 < p.record.files {
            notes.push(format!(
                "this row holds {} files, less than half of the {} in {}",
                live.count, p.record.files, p.record.id
            ));
        }
        if p.record.covers.is_none() && live.covers.is_none() {
            notes.extend(shrink_note(odb, from, live.files, &live_coverage)?);
        }
    }
    let inc: Incarnation = incarnation(ws.root())?;
    let prompt = options.prompt.as_deref().and_then(|p| match ws.settings().word("prompts") {
        "none" => None,
        "snippet" => Some(record::one_line(p, 200)),
        _ => Some(p.to_owned()),
    });
    let created_ms = record::now_ms();
    let mut record = Record {
        v: 1,
        id: options.id.clone().unwrap_or_else(|| record::new_id(created_ms)),
        seq: rows.next_seq(),
        kind: options.kind,
        session: options.session.clone(),
        turn: options.turn,
        turn_key: options.turn_key.clone(),
        agent: options.agent.clone(),
        tool: options.tool.clone(),
        phase: options.phase.clone(),
        call: options.call.clone(),
        status: options.status.clone(),
        label: options.label.clone(),
        prompt,
        entry: options.entry.clone(),
        parent: new.parent.map(|p| p.record.id.clone()),
        created_ms,
        state: if partial { State::Partial } else { State::Complete },
        unchanged,
        summary,
        files: live.count,
        skipped_total: live.skips.len() as u64,
        skipped: skipped.iter().take(40).map(|s| coverage::skip_record(s)).collect(),
        scope: live.scope.to_owned(),
        covers: live.covers.as_ref().map(|c| c.iter().map(|p| paths::escape(p)).collect()),
        outside: live.outside_covers.iter().map(|p| paths::escape(p)).collect(),
        retention: options.retention.unwrap_or(match options.kind {
            Kind::Manual | Kind::Safety => Retention::Forensic,
            _ => Retention::Standard,
        }),
        pinned: options.pin,
        incarnation: inc,
        written: 0,
        notes,
        reason: None,
        operation: new.operation,
        extra: trust::digests(&project)
            .map(|d| (trust::PROJECT.to_owned(), d))
            .into_iter()
            .chain(host.map(|h| ("host".to_owned(), h.into())))
            .chain(live.git.map(|_| (git::SEEN.to_owned(), true.into())))
            .collect(),
    };
    if let Some(adjust) = new.adjust {
        adjust(&mut record);
    }
    Ok((record, tree))
}

/// Names paths that the parent covered and the rules of today leave out though they are still there.
fn shrink_note(odb: &backstitch_store::Odb, from: DirRef, to: DirRef, c: &Coverage) -> Result<Vec<String>> {
    let mut gone: BTreeMap<BString, &'static str> = BTreeMap::new();
    let mut total = 0u64;
    tree::diff(odb, from, to, &mut |path, a, b| {
        if a.is_some()
            && b.is_none()
            && let Some(reason) = c.skip_at_or_above(path)
        {
            total += 1;
            if gone.len() < 5 {
                gone.insert(path.to_owned(), reason);
            }
        }
        Ok(())
    })?;
    if total == 0 {
        return Ok(Vec::new());
    }
    let names: Vec<String> = gone.iter().map(|(p, r)| format!("{} ({r})", p.to_str_lossy())).collect();
    Ok(vec![format!("no longer covered: {}{}", names.join(", "), if total > 5 { " and more" } else { "" })])
}

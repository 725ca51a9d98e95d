//! What a remote has becomes rows only after it was looked at whole: it may be anybody's.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::atomic::Ordering,
};

use backstitch_scan::Rules;
use backstitch_store::{
    Edit, Expect, MODE_EXECUTABLE, MODE_FILE, MODE_LINK, MODE_TREE, Oid, Scratch, TreeEntry, Writer, names,
};
use bstr::{BStr, BString, ByteSlice};

use super::{Diverged, Known, Pulled, Refused, SYNCED, Strange, Synced, origin};
use crate::{
    checkpoint::check_label,
    coverage::Document,
    error::{Code, Error, Result},
    meta, paths,
    record::{self, CHECKPOINTS, Record, Retention, State},
    session::{self, SESSIONS, SessionRecord, check_session},
    workspace::{CaptureLock, Control, Rows, Workspace, incarnation},
};

/// Directories in directories.
pub(super) const DEPTH: usize = 1000;
/// Entries of one row.
const ENTRIES: u64 = 5_000_000;
/// Of a link's text, and of one name.
const LINK_MAX: u64 = 4096;
/// Of coverage, rules and one meta blob.
const META_MAX: u64 = 64 << 20;
/// Of a record.
const MESSAGE_MAX: usize = 4 << 20;
const DAY_MS: i64 = 86_400_000;

fn bad(what: impl Into<String>) -> Error {
    Error::new(Code::UnsafePath, what)
}

/// Copies what is sound into the store's pack.
struct Copy<'a> {
    from: &'a Strange<'a>,
    writer: &'a Writer,
    s: Scratch,
    /// Trees that were looked at as directories of files, with the files below and all entries.
    files: HashMap<Oid, (u64, u64)>,
    metas: HashSet<Oid>,
    blobs: HashSet<Oid>,
}

impl Copy<'_> {
    fn blob(&mut self, oid: &Oid, max: u64) -> Result<Vec<u8>> {
        if self.from.size(oid)? > max {
            return Err(bad(format!("{oid} is larger than it may be")));
        }
        let bytes = self.from.blob(oid)?;
        self.writer.blob(&mut self.s, &bytes)?;
        Ok(bytes)
    }

    fn content(&mut self, oid: &Oid) -> Result<()> {
        if self.blobs.insert(*oid) && !self.writer.odb().contains(oid) {
            let bytes = self.from.blob(oid)?;
            self.writer.blob(&mut self.s, &bytes)?;
        }
        Ok(())
    }

    fn tree(&mut self, mut entries: Vec<TreeEntry>, oid: &Oid) -> Result<()> {
        if self.writer.tree(&mut self.s, &mut entries)?.0 == *oid {
            return Ok(());
        }
        Err(bad(format!("the tree {oid} is not as git writes it")))
    }

    /// Files below, and entries.
    fn dir(&mut self, oid: &Oid, depth: usize) -> Result<(u64, u64)> {
        if let Some(known) = self.files.get(oid) {
            return Ok(*known);
        }
        if depth > DEPTH {
            return Err(bad("directories in directories without end"));
        }
        let entries = self.from.tree(oid)?;
        let (mut files, mut all) = (0, 0);
        for e in &entries {
            let name = names::decode(&e.name).ok_or_else(|| bad(format!("the name {:?}", e.name)))?;
            if !paths::is_safe(name.as_bstr()) || name.contains(&b'/') || name.len() as u64 > LINK_MAX {
                return Err(bad(format!("the name {:?}", e.name)));
            }
            all += 1;
            match e.mode {
                MODE_TREE => {
                    let (f, a) = self.dir(&e.oid, depth + 1)?;
                    files += f;
                    all += a;
                }
                MODE_FILE | MODE_EXECUTABLE => {
                    self.content(&e.oid)?;
                    files += 1;
                }
                MODE_LINK => {
                    if self.from.size(&e.oid)? > LINK_MAX {
                        return Err(bad(format!("the link {:?} is too long", e.name)));
                    }
                    self.content(&e.oid)?;
                    files += 1;
                }
                mode => return Err(bad(format!("{:?} has the mode {mode:o}", e.name))),
            }
            if all > ENTRIES {
                return Err(bad("more entries than a row may have"));
            }
        }
        self.tree(entries, oid)?;
        self.files.insert(*oid, (files, all));
        Ok((files, all))
    }

    /// A path of a row's files that is never to be stored here; asked before anything of the row is.
    fn never(&self, rules: &Rules, at: &BStr, oid: &Oid, left: &mut u64) -> Result<Option<BString>> {
        for e in self.from.tree(oid)? {
            *left = left.checked_sub(1).ok_or_else(|| bad("more entries than a row may have"))?;
            let name = names::decode(&e.name).ok_or_else(|| bad(format!("the name {:?}", e.name)))?;
            let path = paths::join(at, &name);
            let is_dir = e.mode == MODE_TREE;
            if rules.is_never(path.as_bstr(), is_dir) {
                return Ok(Some(path));
            }
            let deep = path.find_iter(b"/").nth(DEPTH).is_some();
            if is_dir
                && !deep
                && let Some(found) = self.never(rules, path.as_bstr(), &e.oid, left)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As above, of a row's root.
    fn refuse_never(&self, rules: &Rules, root: &Oid) -> Result<()> {
        let entries = self.from.tree(root)?;
        let Some(files) = entries.iter().find(|e| e.name == "files" && e.mode == MODE_TREE) else {
            return Ok(());
        };
        match self.never(rules, BStr::new(""), &files.oid, &mut { ENTRIES })? {
            Some(path) => Err(bad(format!("{path}, which the setting never_store names"))),
            None => Ok(()),
        }
    }

    fn meta(&mut self, oid: &Oid, depth: usize) -> Result<()> {
        if self.metas.contains(oid) {
            return Ok(());
        }
        if depth > DEPTH {
            return Err(bad("meta without end"));
        }
        let entries = self.from.tree(oid)?;
        for e in &entries {
            match (e.name == meta::BLOB, e.mode) {
                (true, MODE_FILE) => {
                    let bytes = self.blob(&e.oid, META_MAX)?;
                    let lines =
                        meta::decode(&bytes).ok_or_else(|| bad("meta that is not in the known form"))?;
                    if lines.values().any(|l| l.attrs != meta::Attrs::default()) {
                        return Err(bad("owners or extended attributes"));
                    }
                }
                (false, MODE_TREE) if names::decode(&e.name).is_some() => self.meta(&e.oid, depth + 1)?,
                _ => return Err(bad(format!("{:?} in meta", e.name))),
            }
        }
        self.tree(entries, oid)?;
        self.metas.insert(*oid);
        Ok(())
    }

    /// The root of a row; files in it, and its coverage.
    fn root(&mut self, oid: &Oid) -> Result<(u64, Document)> {
        let entries = self.from.tree(oid)?;
        let (mut files, mut doc) = (None, None);
        for e in &entries {
            match (e.name.as_slice(), e.mode) {
                (b"files", MODE_TREE) => files = Some(self.dir(&e.oid, 0)?.0),
                (b"meta", MODE_TREE) => {
                    let parts = self.from.tree(&e.oid)?;
                    for m in &parts {
                        match (m.name.as_slice(), m.mode) {
                            (b"tree", MODE_TREE) => self.meta(&m.oid, 0)?,
                            (b"rules", MODE_FILE) => {
                                let bytes = self.blob(&m.oid, META_MAX)?;
                                Rules::from_bytes(&bytes).ok_or_else(|| bad("rules that cannot be read"))?;
                            }
                            (b"coverage", MODE_FILE) => {
                                let bytes = self.blob(&m.oid, META_MAX)?;
                                let read: Document = serde_json::from_slice(&bytes)
                                    .map_err(|e| bad(format!("coverage: {e}")))?;
                                doc = Some(read);
                            }
                            _ => return Err(bad(format!("{:?} in meta", m.name))),
                        }
                    }
                    self.tree(parts, &e.oid)?;
                }
                _ => return Err(bad(format!("{:?} in its tree", e.name))),
            }
        }
        self.tree(entries, oid)?;
        let doc = doc.ok_or_else(|| bad("no coverage"))?;
        let known = |p: &String| paths::unescape(p.as_bytes()).is_some_and(|p| paths::is_safe(p.as_bstr()));
        if !doc.outside.is_empty() || !doc.covers.iter().flatten().all(known) {
            return Err(bad("coverage of paths that a row cannot have"));
        }
        Ok((files.ok_or_else(|| bad("no files"))?, doc))
    }
}

/// The record, as far as this store wants to have it said.
fn record_of(id: &str, message: &BString, now: i64) -> Result<Record> {
    if message.len() > MESSAGE_MAX {
        return Err(bad("a record that is too long"));
    }
    let r: Record = record::decode(message.as_bstr(), id)?;
    record::check_id(&r.id, id)?;
    if let Some(s) = &r.session {
        check_session(s)?;
    }
    for word in [&r.turn_key, &r.agent, &r.tool, &r.call, &r.entry, &r.phase, &r.status].into_iter().flatten()
    {
        if word.len() > 4096 {
            return Err(bad("a word in its record that is too long"));
        }
    }
    let clean = |s: Option<String>| s.map(|s| s.replace('\0', ""));
    Ok(Record {
        label: r.label.filter(|l| check_label(l).is_ok()),
        prompt: clean(r.prompt),
        parent: r.parent.filter(|p| crate::names::is_full_id(p)),
        created_ms: r.created_ms.clamp(0, now + DAY_MS),
        seq: r.seq.min(u64::MAX / 4),
        retention: Retention::Standard,
        pinned: false,
        written: 0,
        reason: None,
        operation: None,
        outside: Vec::new(),
        notes: r.notes.into_iter().take(20).map(|n| record::one_line(&n, 300)).collect(),
        skipped: Vec::new(),
        ..r
    })
}

struct New {
    record: Record,
    tree: Oid,
    message: String,
    from: String,
}

/// Writes the rows that are sound.
#[allow(clippy::too_many_arguments)]
pub(super) fn take(
    ws: &Workspace,
    from: &Strange<'_>,
    rows: &Rows,
    known: &Known,
    new: &[(&String, &Oid)],
    dry_run: bool,
    control: &Control<'_>,
    _lock: &CaptureLock,
) -> Result<Pulled> {
    let mut out = Pulled::default();
    let writer = ws.store()?.writer()?;
    let mut copy = Copy {
        from,
        s: writer.scratch(),
        writer: &writer,
        files: HashMap::new(),
        metas: HashSet::new(),
        blobs: HashSet::new(),
    };
    let never = ws.rules()?;
    let now = record::now_ms();
    let mut good: Vec<New> = Vec::new();
    for (n, (id, oid)) in new.iter().enumerate() {
        if control.interrupt.load(Ordering::Relaxed) {
            return Err(Error::new(Code::Interrupted, "interrupted; nothing was taken"));
        }
        (control.progress)("taking", n as u64, new.len() as u64);
        let look = |copy: &mut Copy<'_>| -> Result<New> {
            let (tree, message) = from.commit(oid)?;
            let mut record = record_of(id, &message, now)?;
            let origin = origin(&record).filter(|o| crate::names::is_full_id(o)).map(str::to_owned);
            let origin = origin.ok_or_else(|| bad("a record that does not say where it is from"))?;
            if !matches!(record.state, State::Complete | State::Partial) {
                return Err(bad("a row that holds nothing"));
            }
            if never.has_never() {
                copy.refuse_never(&never, &tree)?;
            }
            let (files, doc) = copy.root(&tree)?;
            if doc.covers != record.covers {
                return Err(bad("a record that covers something else than its tree"));
            }
            record.files = files;
            let message = message.to_str().map_err(|_| bad("a record that is no text"))?.to_owned();
            let time =
                record::decode::<Record>(message.as_bytes().as_bstr(), id)?.created_ms.div_euclid(1000);
            // The copy's commit can be made again from what is kept.
            if writer.commit(&mut copy.s, &tree, message.as_bytes(), time)? != **oid
                || time != record.created_ms.div_euclid(1000)
            {
                return Err(bad("a commit that is not as this program writes it"));
            }
            Ok(New { record, tree, message, from: origin })
        };
        match look(&mut copy) {
            Ok(row) => good.push(row),
            Err(e) => out.refused.push(Refused { checkpoint: record::one_line(id, 100), why: e.message }),
        }
    }
    // One store's rows after the other's: what was made elsewhere comes after what is here.
    good.sort_by(|a, b| (&a.from, a.record.order()).cmp(&(&b.from, b.record.order())));
    let _turn = match dry_run {
        true => None,
        false => Some(ws.store()?.lock_exclusive("rows", ws.lock_wait())?),
    };
    let folder = incarnation(ws.root())?;
    let mut place = Sessions::new(rows);
    let mut edits = Vec::new();
    let mut forks: Vec<SessionRecord> = Vec::new();
    for (seq, New { mut record, tree, message, from }) in (rows.next_seq()..).zip(good) {
        let was = record.session.clone();
        if from != known.origin
            && let Some((name, fork)) = place.of(&record, &from)
        {
            if let Some(fork) = fork {
                out.conflicts.push(Diverged {
                    session: was.clone().unwrap_or_default(),
                    kept_as: name.clone(),
                    checkpoints: 0,
                });
                forks.push(fork);
            }
            if let Some(c) = out.conflicts.iter_mut().find(|c| c.kept_as == name) {
                c.checkpoints += 1;
            }
            record.session = Some(name);
        }
        let synced = Synced { origin: from, session: was, message };
        record.extra.retain(|k, _| k == record::GATED || k == record::CLOCK);
        record.extra.insert(SYNCED.to_owned(), serde_json::to_value(synced).unwrap_or_default());
        record.seq = seq;
        record.incarnation = folder;
        place.note(&record);
        out.checkpoints.push(record.id.clone());
        let commit =
            writer.commit(&mut copy.s, &tree, &record.message(), record.created_ms.div_euclid(1000))?;
        edits.push(Edit {
            name: format!("{CHECKPOINTS}{}", record.id),
            expect: Expect::Absent,
            new: Some(commit),
        });
    }
    let sessions: BTreeSet<String> = place.touched.into_iter().collect();
    out.sessions = sessions.into_iter().collect();
    if dry_run || edits.is_empty() {
        return Ok(out);
    }
    drop(copy);
    writer.finish()?;
    ws.store()?.refs().apply(&edits)?;
    for fork in forks {
        ws.write_session(&fork)?;
    }
    Ok(out)
}

/// Where a row stands.
struct Place {
    /// Its session here, and in the store that made it.
    here: Option<String>,
    there: Option<String>,
    seq: u64,
    counted: bool,
    /// Empty for this store.
    origin: String,
}

/// Where the rows of a session go. One that was continued here since the row that another store's row followed is not
/// continued by that: it branches there.
struct Sessions {
    /// By id.
    rows: BTreeMap<String, Place>,
    forks: HashSet<String>,
    touched: HashSet<String>,
}

impl Sessions {
    fn new(rows: &Rows) -> Sessions {
        let mut out = Sessions {
            rows: BTreeMap::new(),
            forks: rows.sessions.keys().cloned().collect(),
            touched: HashSet::new(),
        };
        for c in &rows.all {
            out.add(&c.record);
        }
        out
    }

    fn add(&mut self, r: &Record) {
        let from = Synced::of(r);
        let there = from.as_ref().map_or(r.session.clone(), |s| s.session.clone());
        let origin = from.map(|s| s.origin).unwrap_or_default();
        let here = r.session.clone();
        let place = Place { here, there, seq: r.seq, counted: r.kind.is_counted(), origin };
        self.rows.insert(r.id.clone(), place);
    }

    fn note(&mut self, r: &Record) {
        self.add(r);
        self.touched.extend(r.session.clone());
    }

    /// The session of a row that arrives, and the record of a fork that it begins.
    fn of(&self, r: &Record, from: &str) -> Option<(String, Option<SessionRecord>)> {
        let session = r.session.as_ref()?;
        let parent = r.parent.as_ref().and_then(|p| self.rows.get(p));
        let base = parent.filter(|p| p.there.as_ref() == Some(session));
        let here = base.and_then(|b| b.here.clone()).unwrap_or_else(|| session.clone());
        let after = base.map_or(0, |b| b.seq);
        // Rows of the same store follow one another, whatever parent they name.
        let other = self
            .rows
            .values()
            .any(|p| p.here.as_ref() == Some(&here) && p.seq > after && p.counted && p.origin != from);
        if !other {
            return Some((here, None));
        }
        let fork = format!(
            "{}-{}",
            session.chars().take(180).collect::<String>(),
            &from[from.len().saturating_sub(6)..]
        );
        if self.forks.contains(&fork) || self.rows.values().any(|r| r.here.as_ref() == Some(&fork)) {
            return Some((fork, None));
        }
        let record = SessionRecord {
            v: 1,
            id: fork.clone(),
            parent: base.map(|_| here),
            fork_row: base.and(r.parent.clone()),
            fork_seq: after,
            created_ms: r.created_ms,
            ..SessionRecord::default()
        };
        Some((fork, Some(record)))
    }
}

/// Records of forks that are not here, for sessions whose rows are.
pub(super) fn forks(ws: &Workspace, from: &Strange<'_>, refs: &BTreeMap<String, Oid>) -> Result<()> {
    let rows = ws.rows()?;
    for (name, oid) in refs {
        let Ok((_, message)) = from.commit(oid) else { continue };
        let Ok(r) = record::decode::<SessionRecord>(message.as_bstr(), name) else { continue };
        let sound = check_session(&r.id).is_ok()
            && session::session_ref(&r.id).strip_prefix(SESSIONS) == Some(name)
            && r.parent.as_ref().is_some_and(|p| check_session(p).is_ok() && *p != r.id);
        let at = r.fork_row.as_ref().and_then(|id| rows.by_id(id));
        if !sound || rows.sessions.contains_key(&r.id) || rows.of_session(&r.id).is_empty() {
            continue;
        }
        let Some(at) = at else { continue };
        ws.write_session(&SessionRecord {
            v: 1,
            id: r.id,
            parent: r.parent,
            fork_row: r.fork_row,
            fork_seq: at.record.seq,
            ended: false,
            created_ms: r.created_ms.clamp(0, record::now_ms()),
            extra: Default::default(),
        })?;
    }
    Ok(())
}

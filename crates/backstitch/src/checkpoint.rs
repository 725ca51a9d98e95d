//! Recording the present state.

use std::collections::{BTreeMap, HashMap};

use backstitch_scan::{self as scan, Found, FoundWhat, Ignored, Rules, Skip, Table};
use backstitch_store::{Edit, Expect, Oid, Writer};
use bstr::{BStr, BString, ByteSlice};

use crate::{
    capture::{Room, StoreSink},
    coverage::{self, Coverage, Document},
    error::{Code, Error, Result},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, Incarnation, Kind, Record, Retention, State, Summary},
    tree::{self, DirRef, Node, Put, Root},
    workspace::{CaptureLock, Control, Rows, Workspace, incarnation},
};

/// What a row is recorded for, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kind.
    pub kind: Kind,
    /// Label.
    pub label: Option<String>,
    /// Prompt.
    pub prompt: Option<String>,
    /// Conversation entry.
    pub entry: Option<String>,
    /// Session.
    pub session: Option<String>,
    /// The host's key of the turn.
    pub turn_key: Option<String>,
    /// Number of the turn in its session.
    pub turn: Option<u64>,
    /// Sub-agent.
    pub agent: Option<String>,
    /// Tool.
    pub tool: Option<String>,
    /// Tool rows: `before` or `after`.
    pub phase: Option<String>,
    /// Tool rows: the host's id of the call.
    pub call: Option<String>,
    /// Turn rows: how the turn ended.
    pub status: Option<String>,
    /// Retention class; by kind where not said.
    pub retention: Option<Retention>,
    /// Keep whatever the policy says.
    pub pin: bool,
    /// Record only what is named in `paths`, whatever the workspace is.
    pub touched: bool,
    /// No row when nothing changed.
    pub if_changed: bool,
    /// Only these are looked at (relative to the root, literal).
    pub paths: Vec<BString>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kind: Kind::Manual,
            label: None,
            prompt: None,
            entry: None,
            session: None,
            turn_key: None,
            turn: None,
            agent: None,
            tool: None,
            phase: None,
            call: None,
            status: None,
            retention: None,
            pin: false,
            touched: false,
            if_changed: false,
            paths: Vec::new(),
        }
    }
}

/// What [`Workspace::checkpoint`] did.
#[derive(Debug)]
pub struct Outcome {
    /// The row; `None` with `if_changed` when nothing changed.
    pub checkpoint: Option<Checkpoint>,
    /// All that was left out.
    pub skips: Vec<Skip>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// Work done: files and bytes read.
    pub read: (u64, u64),
}

impl Outcome {
    /// Something was left out against the rules.
    pub fn is_partial(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|c| c.record.state != State::Complete)
    }
}

/// The live tree as objects of a pack in the making.
pub(crate) struct Live {
    pub writer: Writer,
    pub files: DirRef,
    pub skips: Vec<Skip>,
    pub rules: Rules,
    /// Looked at nothing but these.
    pub covers: Option<Vec<BString>>,
    pub scope: &'static str,
    pub count: u64,
    pub read: (u64, u64),
    pub update: Option<scan::TableUpdate>,
}

impl Live {
    pub fn coverage(&self) -> Coverage {
        Coverage::of_scan(&self.skips, self.covers.as_deref())
    }

    fn document(&self) -> Document {
        let mut skips: Vec<&Skip> = self.skips.iter().collect();
        skips.sort_by(|a, b| a.path.cmp(&b.path));
        Document {
            scope: self.scope.to_owned(),
            covers: self.covers.as_ref().map(|c| c.iter().map(|p| paths::escape(p)).collect()),
            skips: skips.into_iter().map(coverage::skip_record).collect(),
        }
    }

    /// Writes the root tree of a row.
    pub fn root(&self, files: DirRef, outside: DirRef) -> Result<(Root, Oid)> {
        let mut s = self.writer.scratch();
        let doc = serde_json::to_vec(&self.document()).unwrap_or_default();
        let root = Root {
            files,
            coverage: Some(self.writer.blob(&mut s, &doc)?.0),
            rules: Some(self.writer.blob(&mut s, &self.rules.to_bytes())?.0),
            outside,
        };
        let oid = root.write(&self.writer, &mut s)?;
        Ok((root, oid))
    }
}

fn table_dir(ws: &Workspace) -> Result<std::path::PathBuf> {
    Ok(ws.store()?.state_dir())
}

/// The row that vouches for the table's ids still has its ref, its commit can be read, and every pack that was there when
/// the table was written is there still.
fn vouched(ws: &Workspace, table: Option<&Table>) -> bool {
    let Some(note) = table.and_then(|t| t.note().to_str().ok()) else { return false };
    let mut words = note.split(' ');
    let Some(name) = words.next() else { return false };
    let Ok(store) = ws.store() else { return false };
    let now = packs(ws);
    words.all(|w| now.iter().any(|p| p == w))
        && store
            .refs()
            .get(name)
            .is_ok_and(|oid| oid.is_some_and(|oid| store.odb().is_ok_and(|odb| odb.commit(&oid).is_ok())))
}

/// Short names of the packs that have an index.
fn packs(ws: &Workspace) -> Vec<String> {
    let Ok(store) = ws.store() else { return Vec::new() };
    let Ok(dir) = std::fs::read_dir(store.git_dir().join("objects/pack")) else { return Vec::new() };
    let names: Vec<String> = dir.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    let mut out: Vec<String> = names
        .iter()
        .filter_map(|n| n.strip_prefix("pack-")?.strip_suffix(".idx"))
        .filter(|n| names.iter().any(|o| *o == format!("pack-{n}.pack")))
        .map(|n| n[..n.len().min(10)].to_owned())
        .collect();
    out.sort();
    out
}

fn scan_options<'a>(
    ws: &Workspace,
    rules: &'a Rules,
    never: &'a [(u64, u64)],
    keep_covered: bool,
    table_vouched: bool,
    control: &'a Control<'_>,
    progress: &'a (dyn Fn(u64, u64) + Sync),
) -> scan::Options<'a> {
    let s = ws.settings();
    scan::Options {
        threads: ws.threads(),
        rules,
        limits: ws.limits(),
        ignored: match s.word("ignored") {
            "none" => Ignored::None,
            "all" => Ignored::All,
            _ => Ignored::Small,
        },
        nested_is_content: s.word("nested") != "boundary",
        bare_is_content: s.word("bare") == "content",
        never,
        keep_covered,
        paranoid: false,
        table_vouched,
        deadline: None,
        interrupt: control.interrupt,
        progress,
    }
}

/// Looks at the whole workspace. Nothing is visible in the store until the writer is finished.
pub(crate) fn scan_all(
    ws: &Workspace,
    keep_covered: bool,
    room: Room,
    control: &Control<'_>,
) -> Result<Option<Live>> {
    let rules = ws.rules()?;
    let never = ws.never();
    let table = Table::open(&table_dir(ws)?);
    let writer = ws.store()?.writer()?;
    let progress = |entries: u64, _: u64| (control.progress)("looking", entries, 0);
    let options =
        scan_options(ws, &rules, &never, keep_covered, vouched(ws, table.as_ref()), control, &progress);
    let sink = StoreSink { writer: &writer, owner: ws.owner(), room, interrupt: control.interrupt };
    let out = scan::scan(ws.root(), table.as_ref(), &sink, &options)?;
    if out.unbounded {
        return Ok(None);
    }
    let Some(ids) = out.root else {
        return Err(Error::new(
            Code::Failed,
            format!("{}: the folder could not be read", ws.root().display()),
        )
        .at(ws.root()));
    };
    Ok(Some(Live {
        files: DirRef { tree: Some(ids.tree), meta: ids.meta },
        writer,
        skips: out.skips,
        rules,
        covers: None,
        scope: "workspace",
        count: out.files + out.links,
        read: (out.read_files, out.read_bytes),
        update: out.update,
    }))
}

/// Looks at named paths only; the tree carries the rest from `base` for browsing.
pub(crate) fn scan_named(
    ws: &Workspace,
    names: &[BString],
    (base, base_count): (DirRef, u64),
    scope: &'static str,
    control: &Control<'_>,
) -> Result<Live> {
    let rules = ws.rules()?;
    let never = ws.never();
    let writer = ws.store()?.writer()?;
    let progress = |entries: u64, _: u64| (control.progress)("looking", entries, 0);
    let options = scan_options(ws, &rules, &never, false, false, control, &progress);
    let sink = StoreSink {
        writer: &writer,
        owner: ws.owner(),
        room: Room::unlimited(),
        interrupt: control.interrupt,
    };
    let found = scan::scan_paths(ws.root(), names, None, &sink, &options)?;
    let (edits, skips) = to_edits(found, ws.owner());
    let mut s = writer.scratch();
    // Only what the edits touch is counted: a named row costs the same at any size of the tree.
    let leaves = |dir: DirRef| -> Result<u64> {
        let mut n = 0;
        tree::walk(writer.odb(), dir, &mut |_, e| {
            n += u64::from(!e.node.is_dir());
            Ok(())
        })?;
        Ok(n)
    };
    let mut count = base_count;
    for (path, put) in &edits {
        if let Some(old) = tree::lookup(writer.odb(), base, path.as_bstr())? {
            let n = if old.node.is_dir() { leaves(old.dir)? } else { 1 };
            count = count.saturating_sub(n);
        }
        count += match put {
            None => 0,
            Some(p) => match p.dir {
                Some(dir) => leaves(dir)?,
                None => 1,
            },
        };
    }
    let files = tree::edit(&writer, &mut s, base, edits)?;
    Ok(Live {
        writer,
        files,
        skips,
        rules,
        covers: Some(names.to_vec()),
        scope,
        count,
        read: (0, 0),
        update: None,
    })
}

/// What was found at named paths, as edits of a tree.
pub(crate) fn to_edits(found: Vec<Found>, owner: (u32, u32)) -> (Vec<(BString, Option<Put>)>, Vec<Skip>) {
    let (mut edits, mut skips) = (Vec::new(), Vec::new());
    for f in found {
        match f.what {
            FoundWhat::Leaf { stat, id, xattrs } => {
                let (node, attrs) = tree::leaf(&stat, id, xattrs.as_ref(), owner);
                edits.push((f.path, Some(Put { node, attrs, dir: None })));
            }
            FoundWhat::Dir { stat, ids, skips: inner, xattrs } => {
                let (node, attrs) = tree::leaf(&stat, ids.tree, xattrs.as_ref(), owner);
                let dir = DirRef { tree: Some(ids.tree), meta: ids.meta };
                edits.push((f.path, Some(Put { node, attrs, dir: Some(dir) })));
                skips.extend(inner);
            }
            FoundWhat::Absent => edits.push((f.path, None)),
            FoundWhat::Skip(s) => skips.push(s),
        }
    }
    (edits, skips)
}

/// Counts changed files between two recorded trees. Paths that `to` does not cover are not counted as deleted
/// (a change of rules must not read as a deletion); nor are paths that `from` did not cover counted as added,
/// unless there is nothing else to say of them.
pub fn summarize(
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

/// A label may not look like another form of name (SEMANTICS 7).
pub fn check_label(label: &str) -> Result<()> {
    let bad = |why: &str| {
        Err(Error::new(Code::BadLabel, format!("the label {label:?} {why}")).hint(
            "labels are found by their text, so they may not look like an id, `@…`, `turn:…` or a time",
        ))
    };
    if label.trim().is_empty() {
        return bad("is empty");
    }
    if label.chars().any(|c| c.is_control()) {
        return bad("holds control characters");
    }
    if label.len() > 200 {
        return bad("is longer than 200 bytes");
    }
    if label.starts_with('@') || ["turn:", "prompt:", "label:"].iter().any(|p| label.starts_with(p)) {
        return bad("looks like another form of name");
    }
    if crate::names::parse_time(label, 0).is_some() {
        return bad("looks like a time");
    }
    if crate::names::is_full_id(label) {
        return bad("looks like an id");
    }
    Ok(())
}

/// Everything that makes up a new row but its tree.
#[derive(Clone)]
pub(crate) struct NewRow<'a> {
    pub options: &'a Options,
    pub parent: Option<&'a Checkpoint>,
    pub operation: Option<String>,
    pub notes: Vec<String>,
}

/// Writes commit and ref of a row whose tree is in `live.writer`; consumes the writer.
pub(crate) fn commit_row(
    ws: &Workspace,
    rows: &Rows,
    live: Live,
    files: DirRef,
    outside: DirRef,
    new: NewRow<'_>,
    _lock: &CaptureLock,
) -> Result<Checkpoint> {
    let refs = ws.store()?.refs();
    let add = |live: &Live, record: &Record, tree: &Oid| -> Result<Oid> {
        let mut s = live.writer.scratch();
        Ok(live.writer.commit(&mut s, tree, &record.message(), record.created_ms.div_euclid(1000))?)
    };
    let (mut record, tree) = build_record(ws, rows, &live, files, outside, new.clone())?;
    let mut commit = add(&live, &record, &tree)?;
    let Live { writer, skips, rules, covers, scope, count, read, update, .. } = live;
    writer.finish()?;
    // Captures run beside each other, their rows follow one another: a row that was overtaken is told again who is before it.
    let _turn = ws.store()?.lock_exclusive("rows", ws.lock_wait())?;
    let (listed, bad) = refs.list_all(CHECKPOINTS)?;
    if listed.len() + bad.len() != rows.all.len() + rows.damaged.len() {
        let rows = ws.rows()?;
        let parent = rows.parent(new.options.session.as_deref());
        let live = Live {
            writer: ws.store()?.writer()?,
            files,
            skips,
            rules,
            covers,
            scope,
            count,
            read,
            update: None,
        };
        (record, _) = build_record(ws, &rows, &live, files, outside, NewRow { parent, ..new })?;
        commit = add(&live, &record, &tree)?;
        live.writer.finish()?;
    }
    let name = format!("{CHECKPOINTS}{}", record.id);
    refs.apply(&[Edit { name: name.clone(), expect: Expect::Absent, new: Some(commit) }])?;
    if let Some(update) = update {
        // A cache: a failure to write it costs time, not truth.
        let note = std::iter::once(name).chain(packs(ws)).collect::<Vec<_>>().join(" ");
        let _ = update.save(&table_dir(ws)?, BStr::new(&note));
    }
    Ok(Checkpoint { record, commit, tree })
}

/// The record and root tree of a row to come.
pub(crate) fn build_record(
    ws: &Workspace,
    rows: &Rows,
    live: &Live,
    files: DirRef,
    outside: DirRef,
    new: NewRow<'_>,
) -> Result<(Record, Oid)> {
    let options = new.options;
    let (root, tree) = live.root(files, outside)?;
    let odb = live.writer.odb();
    let parent_root = match new.parent {
        Some(p) => Some(Root::read(odb, &p.tree)?),
        None => None,
    };
    let from = parent_root.map(|r| r.files).unwrap_or_default();
    let live_coverage = live.coverage();
    // Against nothing, everything is new: no need to read the trees again.
    let summary = match new.parent {
        None => Summary { added: live.count, ..Summary::default() },
        Some(_) => summarize(odb, from, files, Some(&live_coverage))?,
    };
    let unchanged = parent_root.is_some_and(|p| p.files == root.files && p.outside == root.outside);
    let mut skipped: Vec<&Skip> = live.skips.iter().collect();
    skipped.sort_by_key(|s| (s.reason.by_rule(), s.path.clone()));
    let narrowed = live.scope == "touched" && live.covers.as_ref().is_some_and(Vec::is_empty);
    let partial = narrowed || live.skips.iter().any(|s| !s.reason.by_rule());
    let mut notes = new.notes;
    if let Some(p) = new.parent {
        if live.covers.is_none() && p.record.files >= 10 && live.count * 2 < p.record.files {
            notes.push(format!(
                "this row holds {} files, less than half of the {} in {}",
                live.count, p.record.files, p.record.id
            ));
        }
        if p.record.covers.is_none() && live.covers.is_none() {
            notes.extend(shrink_note(odb, from, files, &live_coverage)?);
        }
    }
    let inc: Incarnation = incarnation(ws.root())?;
    let prompt = options.prompt.as_deref().and_then(|p| match ws.settings().word("prompts") {
        "none" => None,
        "snippet" => Some(record::one_line(p, 200)),
        _ => Some(p.to_owned()),
    });
    let created_ms = record::now_ms();
    Ok((
        Record {
            v: 1,
            id: record::new_id(created_ms),
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
            extra: serde_json::Map::new(),
        },
        tree,
    ))
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

impl Workspace {
    /// Records the present state. The row appears whole or not at all.
    ///
    /// # Errors
    /// `disabled`, `bad-label`, `busy` while an operation runs, `over-budget` below the floor of free disk space,
    /// `interrupted`; nothing is recorded then.
    pub fn checkpoint(&mut self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        if let Some(reason) = self.disabled() {
            return Err(Error::new(Code::Disabled, format!("nothing is recorded: {reason}"))
                .hint("`backstitch enable`, or unset the switch"));
        }
        if let Some(label) = &options.label {
            check_label(label)?;
        }
        if !self.root().is_dir() {
            return Err(Error::io(self.root(), std::io::Error::from(std::io::ErrorKind::NotFound)));
        }
        let mut warnings = self.settings().warnings.clone();
        self.refuse_moved()?;
        self.create_store()?;
        self.check_room()?;
        self.check_budget()?;
        let lock = self.lock_capture()?;
        let rows = self.rows()?;
        for (name, why) in &rows.damaged {
            warnings.push(format!("{name} is damaged: {why}"));
        }
        self.record_row(options, control, &lock, &rows, warnings)
    }

    /// The part of [`Workspace::checkpoint`] below the locks.
    pub(crate) fn record_row(
        &self,
        options: &Options,
        control: &Control<'_>,
        lock: &CaptureLock,
        rows: &Rows,
        mut warnings: Vec<String>,
    ) -> Result<Outcome> {
        let parent = rows.parent(options.session.as_deref());
        let odb = self.odb()?;
        let (base, outside) = match parent {
            Some(p) => {
                let r = Root::read(&odb, &p.tree)?;
                (r.files, r.outside)
            }
            None => Default::default(),
        };
        let carried = (base, parent.map_or(0, |p| p.record.files));
        // A tool may name a file that is not there yet; a person who does has mistyped.
        for p in options.paths.iter().filter(|_| options.kind == Kind::Manual) {
            let here = paths::to_path(self.root(), p.as_bstr()).symlink_metadata().is_ok();
            if !here && tree::lookup(&odb, base, p.as_bstr())?.is_none() {
                return Err(Error::new(
                    Code::NoSuchPath,
                    format!("{}: neither on the disk nor in the last checkpoint", p.to_str_lossy()),
                )
                .at_bytes(p.clone())
                .hint("nothing was recorded"));
            }
        }
        let mut notes = Vec::new();
        if self.settings().project_digest.is_some() && !self.settings().untrusted.is_empty() {
            notes.push(format!(
                "untrusted project settings are not in force: {}",
                self.settings().untrusted.join(", ")
            ));
        }
        // Within a session coverage only grows; at its start today's rules hold.
        let keep_covered =
            options.session.is_some() && rows.all.iter().any(|c| c.record.session == options.session);
        let touched = options.touched || self.is_unbounded();
        let live = if touched || !options.paths.is_empty() {
            let scope = if touched { "touched" } else { "paths" };
            if touched && options.paths.is_empty() {
                let why = format!(
                    "{} is too wide to be covered whole; only named files are recorded",
                    self.root().display()
                );
                notes.push(why.clone());
                warnings.push(why);
            }
            scan_named(self, &options.paths, carried, scope, control)?
        } else {
            match scan_all(self, keep_covered, Room::of(self.settings().int("checkpoint_limit")), control)? {
                Some(live) => live,
                None => {
                    let why = format!(
                        "{} holds more than {} entries; only named files are recorded",
                        self.root().display(),
                        self.limits().entries
                    );
                    notes.push(why.clone());
                    warnings.push(why);
                    scan_named(self, &[], carried, "touched", control)?
                }
            }
        };
        if options.if_changed && parent.is_some() && live.files == base {
            return Ok(Outcome { checkpoint: None, skips: live.skips, warnings, read: live.read });
        }
        let (files, skips, read) = (live.files, live.skips.clone(), live.read);
        let checkpoint = commit_row(
            self,
            rows,
            live,
            files,
            outside,
            NewRow { options, parent, operation: None, notes },
            lock,
        )?;
        warnings.extend(checkpoint.record.notes.iter().filter(|n| n.contains("less than half")).cloned());
        self.touch_manifest();
        Ok(Outcome { checkpoint: Some(checkpoint), skips, warnings, read })
    }

    /// The floor of free disk space (DESIGN rule 6), before anything is written.
    pub(crate) fn check_room(&self) -> Result<()> {
        let dir = self.store()?.dir();
        let Ok(v) = rustix::fs::statvfs(dir) else { return Ok(()) };
        let free = v.f_bavail.saturating_mul(v.f_frsize);
        let floor = self.settings().int("free_floor");
        if free < floor {
            return Err(Error::new(
                Code::OverBudget,
                format!(
                    "{}: {} of disk space are free, below the floor of {}",
                    dir.display(),
                    crate::settings::show_bytes(free),
                    crate::settings::show_bytes(floor)
                ),
            )
            .at(dir)
            .hint("free some space, or lower `free_floor`"));
        }
        Ok(())
    }

    /// The store's ceiling, before anything is written.
    fn check_budget(&self) -> Result<()> {
        let store = self.store()?;
        let (used, budget) = (store.disk_usage()?.total, self.settings().int("budget"));
        if used < budget {
            return Ok(());
        }
        Err(Error::new(
            Code::OverBudget,
            format!(
                "{}: the store holds {} of a budget of {}",
                store.dir().display(),
                crate::settings::show_bytes(used),
                crate::settings::show_bytes(budget)
            ),
        )
        .at(store.dir())
        .hint("raise `budget`, or delete checkpoints; nothing was recorded"))
    }

    fn touch_manifest(&self) {
        let Ok(store) = self.store() else { return };
        let now = record::now_ms();
        // At most once an hour: it is a convenience for `stores list`.
        if now - store.manifest().last_used_ms > 3_600_000 {
            let mut m = store.manifest().clone();
            m.last_used_ms = now;
            let _ = store.write_manifest(&m);
        }
    }
}

/// Whether the node is a file or link.
pub(crate) fn is_leaf(n: &Node) -> bool {
    !n.is_dir()
}

impl Live {
    /// A live tree of which nothing was looked at.
    pub(crate) fn empty(rules: Rules, writer: Writer) -> Live {
        Live {
            writer,
            files: DirRef::default(),
            skips: Vec::new(),
            rules,
            covers: Some(Vec::new()),
            scope: "paths",
            count: 0,
            read: (0, 0),
            update: None,
        }
    }
}

//! Around the rows: status, pin, label, delete, log, cat, show, stores, relink.

use std::{
    collections::HashSet,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_store::{Edit, Expect, Odb, Oid, Store};
use bstr::{BStr, ByteSlice};
use serde_json::{Value, json};

use crate::{
    checkpoint::check_label,
    coverage::{self, Document},
    diff::{self, Change, Options as DiffOptions},
    error::{Code, Error, Result},
    operation::{OpKind, OpRecord, OpState},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, Record, TRASH, rfc3339},
    tree::{self, Node, Root},
    view,
    workspace::{
        Rows, Surroundings, Workspace, from_manifest_path, incarnation, manifest_path, store_name, stores,
    },
};

/// The setting that would cover what was left out for this reason.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "ignored" => "include, or ignored = \"all\"",
        "excluded" => "include",
        "limit" => "limits.new_file, limits.grown_file, or include",
        "budget" => "checkpoint_limit",
        "nested" => "nested = \"content\"",
        "bare-repository" => "bare = \"content\"",
        "unreadable" => "the file's permissions",
        _ => "none",
    }
}

impl Workspace {
    /// CONTRACT's `status` object. Works without a store.
    pub fn status(&self) -> Result<Value> {
        let disabled = self.disabled();
        let budget = self.settings().int("budget");
        let mut out = json!({
            "workspace": paths::bytes(self.root()).to_str_lossy(),
            "store": paths::bytes(self.store_dir()).to_str_lossy(),
            "exists": self.has_store(),
            "enabled": disabled.is_none(),
            "reason": disabled,
            "scope": if self.is_unbounded() { "touched" } else { "workspace" },
            "budget_bytes": budget,
            "used_bytes": 0,
            "linked_bytes": 0,
            "checkpoints": 0,
            "sessions": 0,
            "last": Value::Null,
            "not_covered": [],
            "in_flight": Value::Null,
            "watcher": Value::Null,
            "warnings": self.settings().warnings,
            "untrusted": self.settings().untrusted,
            "recovered": self.recovered,
            "damaged": [],
        });
        if let Some(m) = out.as_object_mut().filter(|_| self.is_unbounded()) {
            m.insert("not_covered".into(), self.largest_uncovered().into());
        }
        let Some(m) = out.as_object_mut().filter(|_| self.has_store()) else { return Ok(out) };
        let rows = self.rows()?;
        let sessions: HashSet<&str> = rows.all.iter().filter_map(|c| c.record.session.as_deref()).collect();
        let (used, linked) = self.used()?;
        m.insert("used_bytes".into(), used.into());
        m.insert("linked_bytes".into(), linked.into());
        m.insert("checkpoints".into(), rows.all.len().into());
        m.insert("sessions".into(), sessions.len().into());
        m.insert("damaged".into(), rows.damaged.iter().map(|(n, w)| json!({"row": n, "why": w})).collect());
        if let Some(last) = rows.newest() {
            m.insert("last".into(), view::checkpoint(self, last));
        }
        if self.is_wide(&rows) {
            m.insert("scope".into(), "touched".into());
            m.insert("not_covered".into(), self.largest_uncovered().into());
        } else if let Some(last) = rows.all.iter().rev().find(|c| c.record.covers.is_none()) {
            let odb = self.odb()?;
            let mut skips = coverage::document(&odb, &Root::read(&odb, &last.tree)?)?.skips;
            skips.retain(|s| !matches!(s.reason.as_str(), "git" | "store"));
            skips.sort_by_key(|s| std::cmp::Reverse(s.bytes.unwrap_or(0)));
            let five = skips
                .iter()
                .take(5)
                .map(|s| json!({"path": s.path, "reason": s.reason, "bytes": s.bytes, "setting": remedy(&s.reason)}))
                .collect::<Vec<_>>();
            m.insert("not_covered".into(), five.into());
        }
        let journal = crate::operation::journal_file(self)?;
        if let Ok(bytes) = std::fs::read(&journal) {
            let v: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            m.insert("in_flight".into(), json!({"operation": v.get("op")}));
        }
        Ok(out)
    }

    /// Rewrites a row's record: a new commit with the same tree, moved by compare-and-swap.
    pub(crate) fn rewrite(&self, c: &Checkpoint, change: &dyn Fn(&mut Record)) -> Result<Checkpoint> {
        let mut record = c.record.clone();
        change(&mut record);
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        let commit = writer.commit(&mut s, &c.tree, &record.message(), record.created_ms.div_euclid(1000))?;
        writer.finish()?;
        self.store()?.refs().apply(&[Edit {
            name: format!("{CHECKPOINTS}{}", record.id),
            expect: Expect::Is(c.commit),
            new: Some(commit),
        }])?;
        Ok(Checkpoint { record, commit, tree: c.tree })
    }

    /// Keeps a row whatever the policy says, or no longer.
    pub fn pin(&self, c: &Checkpoint, on: bool) -> Result<Checkpoint> {
        let _lock = self.lock_capture()?;
        self.rewrite(c, &|r| r.pinned = on)
    }

    /// Gives a row a label; `None` takes it away.
    ///
    /// # Errors
    /// `bad-label` where it looks like another form of name.
    pub fn label(&self, c: &Checkpoint, label: Option<&str>) -> Result<Checkpoint> {
        if let Some(l) = label {
            check_label(l)?;
        }
        let _lock = self.lock_capture()?;
        self.rewrite(c, &|r| r.label = label.map(str::to_owned))
    }

    /// Moves rows to the trash as one operation, and returns its id. `undo` brings them back.
    ///
    /// # Errors
    /// `conflict` for a pinned row: nothing is moved.
    pub fn delete(&self, rows: &[&Checkpoint]) -> Result<String> {
        let _lock = self.lock_operation()?;
        if let Some(p) = rows.iter().find(|c| c.record.pinned) {
            return Err(Error::new(Code::Conflict, format!("checkpoint {} is pinned", p.record.id))
                .hint("`backstitch unpin` first; nothing was deleted"));
        }
        let now = record::now_ms();
        let op = OpRecord {
            v: 1,
            id: record::new_id(now),
            seq: self.operations()?.last().map_or(1, |o| o.record.seq + 1),
            kind: OpKind::Delete,
            state: OpState::Done,
            target: rows.iter().map(|c| c.record.id.as_str()).collect::<Vec<_>>().join(" "),
            inverts: None,
            session: self.surroundings().session.clone(),
            safety: None,
            plan: String::new(),
            created_ms: now,
            changed: 0,
            at: 0,
            takes_back: Vec::new(),
            exceptions: Vec::new(),
            rows: rows.iter().map(|c| (c.record.id.clone(), c.commit.to_string())).collect(),
            extra: serde_json::Map::new(),
        };
        // The record comes first: a row in the trash is always named by an operation that brings it back.
        let id = self.write_operation(&op, None)?;
        let refs = self.store()?.refs();
        for c in rows {
            let (from, to) = (format!("{CHECKPOINTS}{}", c.record.id), format!("{TRASH}{}", c.record.id));
            refs.apply(&[
                Edit { name: to, expect: Expect::Any, new: Some(c.commit) },
                Edit { name: from, expect: Expect::Is(c.commit), new: None },
            ])?;
        }
        Ok(id)
    }

    /// Writes a recorded file's bytes, or a link's text.
    ///
    /// # Errors
    /// `no-such-path`; `usage` for a directory.
    pub fn cat(&self, c: &Checkpoint, path: &BStr, out: &mut dyn Write) -> Result<()> {
        let odb = self.odb()?;
        let root = Root::read(&odb, &c.tree)?;
        let missing = || {
            Error::new(Code::NoSuchPath, format!("checkpoint {} does not hold {}", c.record.id, path.to_str_lossy()))
                .at_bytes(path)
                .hint("`backstitch show` lists what a checkpoint changed; `backstitch log PATH` the checkpoints of a path")
        };
        let entry = tree::lookup(&odb, root.files, path)?.ok_or_else(missing)?;
        match entry.node.oid() {
            Some(oid) => {
                odb.blob_to(&oid, out)?;
                Ok(())
            }
            None => {
                Err(Error::new(Code::Usage, format!("{} is a directory", path.to_str_lossy())).at_bytes(path))
            }
        }
    }

    /// All that a row left out, and what changed in it against its parent.
    pub fn show(&self, c: &Checkpoint) -> Result<(Document, Vec<Change>)> {
        let odb = self.odb()?;
        let doc = coverage::document(&odb, &Root::read(&odb, &c.tree)?)?;
        let rows = self.rows()?;
        let parent = c.record.parent.as_deref().and_then(|p| rows.by_id(p));
        if parent.is_none() && c.record.parent.is_some() {
            // The parent was deleted: what changed is no longer known.
            return Ok((doc, Vec::new()));
        }
        let d = diff::against(&odb, parent, c, &DiffOptions { stat: true, ..DiffOptions::default() })?;
        Ok((doc, d.changes))
    }

    /// Why a row cannot be restored, if so: an object that it needs is missing or unreadable.
    pub fn check(&self, c: &Checkpoint) -> Result<Option<String>> {
        if !c.record.is_restorable() {
            return Ok(Some(
                c.record.reason.clone().unwrap_or_else(|| format!("{:?}", c.record.state).to_lowercase()),
            ));
        }
        let odb = self.odb()?;
        Ok(check_tree(&odb, c, &mut HashSet::new()).err().map(|e| e.message))
    }

    /// [`Workspace::check`] for many rows; what they share is looked at once.
    pub fn check_all<'a>(&self, rows: &'a Rows) -> Result<Vec<(&'a Checkpoint, Option<String>)>> {
        let odb = self.odb()?;
        let mut seen = HashSet::new();
        Ok(rows.all.iter().map(|c| (c, check_tree(&odb, c, &mut seen).err().map(|e| e.message))).collect())
    }

    /// Makes the store of `old` the store of this workspace, which was moved here.
    ///
    /// # Errors
    /// `no-such-store`, `wrong-workspace` where the old folder is still there or this one has rows of its own.
    pub fn relink(&mut self, old: &Path) -> Result<()> {
        let old = std::path::absolute(old).map_err(|e| Error::io(old, e))?;
        let real = old.canonicalize();
        let base = &self.surroundings().store_base;
        let dir = base.join("stores").join(store_name(&old));
        if self.has_store() {
            return Err(Error::new(
                Code::WrongWorkspace,
                format!("{} has a store of its own", self.root().display()),
            )
            .at(self.root())
            .hint("`backstitch stores delete` removes it, if its checkpoints are not wanted"));
        }
        // A copy has another inode than the folder that the rows were made of; so has what stands at the old path now.
        if real.as_deref().is_ok_and(|r| r == self.root()) {
            return Err(
                Error::new(Code::WrongWorkspace, format!("{} is this folder", old.display())).at(&old)
            );
        }
        let here = incarnation(self.root())?;
        let recorded_inc = stores(base)
            .into_iter()
            .filter_map(|k| k.manifest.ok())
            .find(|m| from_manifest_path(&m.path) == old);
        let is_this = recorded_inc.is_some_and(|m| {
            (m.dev, m.ino, m.birth_ns) == (here.dev, here.ino, here.birth_ns.map(i128::from))
        });
        if old.is_dir() && !is_this {
            return Err(Error::new(Code::WrongWorkspace, format!("{} is still there", old.display()))
                .at(&old)
                .hint("relink is for a folder that was moved; a copy has a history of its own"));
        }
        let missing = || {
            Error::new(Code::NoSuchStore, format!("there is no store for {}", old.display()))
                .at(&old)
                .hint("`backstitch stores list` shows all")
        };
        if dir.join("manifest.json").symlink_metadata().is_err() {
            return Err(missing());
        }
        let store = Store::open(&dir)?;
        let recorded = from_manifest_path(&store.manifest().path);
        if recorded != old && recorded != self.root() {
            return Err(missing());
        }
        let lock = store.lock_exclusive("workspace", self.lock_wait())?;
        let inc = incarnation(self.root())?;
        let mut m = store.manifest().clone();
        m.path = manifest_path(self.root());
        (m.dev, m.ino, m.birth_ns) = (inc.dev, inc.ino, inc.birth_ns.map(i128::from));
        store.write_manifest(&m)?;
        std::fs::rename(&dir, self.store_dir()).map_err(|e| Error::io(self.store_dir(), e))?;
        drop(lock);
        let again = Workspace::open(self.root(), self.surroundings().clone())?;
        *self = again;
        Ok(())
    }
}

/// Walks a row's trees; an object seen before is not looked at again.
fn check_tree(odb: &Odb, c: &Checkpoint, seen: &mut HashSet<Oid>) -> Result<()> {
    let root = Root::read(odb, &c.tree)?;
    let missing = |oid: &Oid, path: &BStr| {
        Err(Error::new(
            Code::StoreDamaged,
            format!("{}: its content {oid} is missing or damaged", path.to_str_lossy()),
        ))
    };
    for oid in [root.coverage, root.rules].into_iter().flatten() {
        if !odb.contains(&oid) {
            return missing(&oid, BStr::new("meta"));
        }
    }
    let mut stack = vec![(bstr::BString::default(), root.files), (bstr::BString::default(), root.outside)];
    while let Some((base, dir)) = stack.pop() {
        if dir.tree.is_some_and(|t| !seen.insert(t)) {
            continue;
        }
        for e in tree::read_dir(odb, dir)? {
            let path = paths::join(base.as_bstr(), &e.name);
            match e.node {
                Node::Dir { .. } => stack.push((path, e.dir)),
                Node::File { oid, .. } | Node::Link { oid } => {
                    if seen.insert(oid) && odb.blob_to(&oid, &mut std::io::sink()).is_err() {
                        // Not seen: the next row must find it missing too.
                        seen.remove(&oid);
                        if let Some(t) = dir.tree {
                            seen.remove(&t);
                        }
                        return missing(&oid, path.as_bstr());
                    }
                }
            }
        }
    }
    Ok(())
}

/// All stores: `[{"name","dir","workspace","exists","created","last_used","bytes","checkpoints","ok","error"}]`.
pub fn stores_list(surroundings: &Surroundings) -> Result<Vec<Value>> {
    let mut out = Vec::new();
    for k in stores(&surroundings.store_base) {
        let name = k.dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let (mut bytes, mut count, mut error) =
            (Value::Null, Value::Null, k.manifest.as_ref().err().cloned());
        match Store::open(&k.dir) {
            Ok(store) => {
                bytes = store.disk_usage().map(|d| d.total.into()).unwrap_or(Value::Null);
                match store.refs().list(CHECKPOINTS) {
                    Ok(l) => count = l.len().into(),
                    Err(e) => error = error.or(Some(e.to_string())),
                }
            }
            Err(e) => error = error.or(Some(e.to_string())),
        }
        let m = k.manifest.ok();
        let path = m.as_ref().map(|m| from_manifest_path(&m.path));
        out.push(json!({
            "name": name,
            "dir": paths::bytes(&k.dir).to_str_lossy(),
            "workspace": path.as_ref().map(|p| paths::bytes(p).to_str_lossy().into_owned()),
            "exists": path.as_ref().is_some_and(|p| p.is_dir()),
            "created": m.as_ref().map(|m| rfc3339(m.created_ms)),
            "last_used": m.as_ref().map(|m| rfc3339(m.last_used_ms)),
            "bytes": bytes,
            "checkpoints": count,
            "ok": error.is_none(),
            "error": error,
        }));
    }
    Ok(out)
}

/// Removes a store for good. Strict: a plain name, a readable manifest, no live owner; `purge` is for half-broken stores
/// and skips the health check only. Returns the bytes freed. A store that vanished meanwhile is no error.
///
/// # Errors
/// `unsafe-path`, `no-such-store`, `store-damaged` (without `purge`), `busy`.
pub fn stores_delete(surroundings: &Surroundings, name: &str, purge: bool) -> Result<u64> {
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if !plain {
        return Err(Error::new(Code::UnsafePath, format!("{name:?} is not the name of a store")).at(name));
    }
    let base = surroundings.store_base.join("stores");
    let dir = base.join(name);
    match dir.symlink_metadata() {
        Ok(m) if m.is_dir() => {}
        Ok(_) => return Err(Error::new(Code::UnsafePath, format!("{} is no folder", dir.display())).at(&dir)),
        Err(_) => {
            return Err(Error::new(Code::NoSuchStore, format!("there is no store {name:?}"))
                .at(&dir)
                .hint("`backstitch stores list` shows all"));
        }
    }
    let mut locks = Vec::new();
    match Store::open(&dir) {
        Ok(store) => {
            for l in ["workspace", "collect", "store"] {
                locks.push(store.lock_exclusive(l, Duration::ZERO)?);
            }
        }
        Err(e) if !purge => {
            return Err(
                Error::from(e).hint("`backstitch stores purge` removes a store that cannot be opened")
            );
        }
        Err(_) => {}
    }
    let freed = folder_bytes(&dir);
    // Out of sight first: a half-removed store is never taken for a store.
    let aside = surroundings.store_base.join(format!("removed-{}", record::new_id(record::now_ms())));
    match std::fs::rename(&dir, &aside) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::io(&dir, e)),
    }
    std::fs::remove_dir_all(&aside).map_err(|e| Error::io(&aside, e))?;
    Ok(freed)
}

fn folder_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    let mut stack: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(d) = stack.pop() {
        for e in std::fs::read_dir(&d).into_iter().flatten().flatten() {
            let Ok(m) = e.path().symlink_metadata() else { continue };
            total += m.blocks() * 512;
            if m.is_dir() {
                stack.push(e.path());
            }
        }
    }
    total
}

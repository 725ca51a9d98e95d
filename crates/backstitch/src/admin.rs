//! Around the rows: status, pin, label, log, cat, show.

use std::{collections::HashSet, io::Write};

use backstitch_store::{Expect, Odb, Oid};
use bstr::{BStr, ByteSlice};
use serde_json::{Value, json};

use crate::{
    checkpoint::check_label,
    coverage::{self, Document},
    diff::{self, Change, Options as DiffOptions},
    error::{Code, Error, Result},
    paths,
    record::{Checkpoint, Record},
    tree::{self, Node, Root},
    view,
    workspace::{Rows, Workspace},
};

/// The setting that would cover what was left out for this reason.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "ignored" => "include, or ignored = \"all\"",
        "excluded" => "include",
        "never-stored" => "never_store",
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
            "watcher": self.has_store().then(|| self.watcher()),
            "warnings": [],
            "untrusted": self.untrusted(),
            "recovered": self.recovered,
            "damaged": [],
        });
        if let Some(m) = out.as_object_mut().filter(|_| self.is_unbounded()) {
            m.insert("not_covered".into(), self.largest_uncovered().into());
        }
        let mut warnings = self.settings().warnings.clone();
        warnings.extend(self.vanished());
        let Some(m) = out.as_object_mut() else { return Ok(out) };
        if !self.has_store() {
            if let Err(e) = self.refuse_moved() {
                warnings.push(format!("{}; {}", e.message, e.hint.unwrap_or_default()));
            }
            m.insert("warnings".into(), warnings.into());
            return Ok(out);
        }
        let rows = self.rows()?;
        if let Some(paths) = self.unfinished_forget() {
            let names: Vec<String> = paths.iter().map(|p| p.to_str_lossy().into_owned()).collect();
            warnings.push(format!(
                "forgetting {} did not come to its end: call `backstitch forget` again",
                names.join(", ")
            ));
        }
        if let Some(last) = rows.newest() {
            warnings.extend(self.project_changes(&last.record));
        }
        m.insert("warnings".into(), warnings.into());
        let sessions: HashSet<&str> = rows.all.iter().filter_map(|c| c.record.session.as_deref()).collect();
        let (used, linked) = self.used()?;
        m.insert("used_bytes".into(), used.into());
        m.insert("linked_bytes".into(), linked.into());
        m.insert("checkpoints".into(), rows.all.len().into());
        m.insert("sessions".into(), sessions.len().into());
        m.insert("damaged".into(), rows.damaged.iter().map(|(n, w)| json!({"row": n, "why": w})).collect());
        if let Some(last) = rows.newest() {
            m.insert("last".into(), view::checkpoint(self, last));
            m.insert("git".into(), self.git_state(last)?.into());
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
        let mut record = Record::clone(&c.record);
        change(&mut record);
        let writer = self.store()?.writer()?;
        let mut s = writer.scratch();
        let commit = writer.commit(&mut s, &c.tree, &record.message(), record.created_ms.div_euclid(1000))?;
        let (_, staged) = writer.finish_for(&commit)?;
        self.store()?.refs().set_staged(&record.row(commit, c.tree), Expect::Is(c.commit), staged)?;
        Ok(Checkpoint { record: record.into(), commit, tree: c.tree })
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
        let entry = root.find(&odb, path)?.ok_or_else(missing)?;
        match entry.node.oid() {
            Some(oid) => {
                odb.blob_to(&oid, out)?;
                Ok(())
            }
            None => Err(Error::new(Code::Usage, format!("{} is a directory", path.to_str_lossy()))
                .at_bytes(path)
                .hint("`backstitch files` lists what is in it; `export` and `restore` are for folders")),
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
        let d = diff::against(&odb, &rows, parent, c, &DiffOptions { stat: true, ..DiffOptions::default() })?;
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

//! `verify` and `doctor`.

use std::{collections::BTreeMap, time::Duration};

use backstitch_store::{Edit, Expect, Oid, Row, VerifyReport};
use serde_json::{Value, json};

use crate::{
    error::{Code, Error, Result},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, OPERATIONS, Record, State},
    workspace::{Control, Workspace},
};
use bstr::ByteSlice;

/// Where rows that cannot be used are set aside.
pub const DAMAGED: &str = "refs/backstitch/damaged/";

impl Workspace {
    /// Re-hashes every object and checks what every row reaches. Damage is no `Err`: `ok` is false then, and each entry
    /// names the checkpoints hit. With `repair`, rows that cannot be used are set aside (never removed) and caches dropped.
    pub fn verify(&self, repair: bool, control: &Control<'_>) -> Result<Value> {
        let store = self.store()?;
        let mut repaired: Vec<String> = Vec::new();
        let journal = crate::operation::journal_file(self)?;
        if repair && crate::recover::is_pending(self) && crate::recover::if_needed(self).is_err() {
            // It cannot be carried out: set aside, so that the workspace can be used again.
            let aside = journal.with_extension(format!("set-aside-{}", crate::record::now_ms()));
            std::fs::rename(&journal, &aside).map_err(|e| Error::io(&journal, e))?;
            repaired.push(format!("journal, now {}", aside.display()));
        }
        let lock = if repair { Some(self.lock_operation()?) } else { None };
        if repair && store.mend()? {
            repaired.push("the repository's HEAD or config was written anew".to_owned());
        }
        let shared = if repair { None } else { Some(store.lock_shared("store", self.lock_wait())?) };
        let progress = |done: u64, total: u64| (control.progress)("verifying", done, total);
        let mut report: VerifyReport = store.verify(&progress, control.interrupt)?;
        // A damaged object of which there is a sound copy harms nobody, nor does its pack's checksum.
        let odb = store.odb()?;
        let mut healed: Vec<std::path::PathBuf> = Vec::new();
        report.damage.retain(|d| {
            let sound = d.oid.is_some_and(|o| odb.blob_to(&o, &mut std::io::sink()).is_ok());
            if sound {
                healed.push(d.path.clone());
            }
            !sound
        });
        let still: Vec<_> =
            report.damage.iter().filter(|d| d.oid.is_some()).map(|d| d.path.clone()).collect();
        report.damage.retain(|d| d.oid.is_some() || !healed.contains(&d.path) || still.contains(&d.path));
        // All refs are gone, and there were some: a first row's commit is older than its ref, a later one's is not.
        let lost = match report.refs {
            0 => self.unlisted(&report.unnamed)?,
            _ => Vec::new(),
        };
        let gone = lost.iter().any(|(record, _)| record.seq > 1);
        if repair && gone {
            for (record, row) in &lost {
                store.refs().set(row, Expect::Absent)?;
                repaired.push(record.id.clone());
            }
        }
        let rows = self.rows()?;
        let id = |r: &String| r.strip_prefix(CHECKPOINTS).unwrap_or(r).to_owned();
        let damage: Vec<Value> = report
            .damage
            .iter()
            .map(|d| {
                json!({
                    "path": paths::bytes(&d.path).to_str_lossy(),
                    "object": d.oid.map(|o| o.to_string()),
                    "what": d.what,
                    "checkpoints": d.refs.iter().map(id).collect::<Vec<_>>(),
                })
            })
            .collect();
        let mut rows_damaged: Vec<Value> = Vec::new();
        if gone && !repair {
            for (record, row) in &lost {
                rows_damaged.push(json!({"row": row.name, "why": format!("checkpoint {} is there, its ref is gone", record.id)}));
            }
        }
        for (name, why) in &rows.damaged {
            rows_damaged.push(json!({"row": name, "why": why}));
        }
        let (good, bad) = crate::operation::all(self)?;
        drop(good);
        let operations = match bad.as_slice() {
            [] => Value::Null,
            [(_, why), ..] => Value::String(why.clone()),
        };
        if repair {
            // Damaged contents are written anew by the next capture that sees them; rows that need them stay, because
            // what else they hold can be restored. Only records that cannot be read are set aside.
            let ids: Vec<_> = report.damage.iter().filter_map(|d| d.oid).collect();
            if !ids.is_empty() {
                store.note_damage(&ids)?;
            }
            if !ids.is_empty() {
                repaired.push(format!(
                    "{} damaged objects will be stored anew by the next checkpoint",
                    ids.len()
                ));
            }
            let unreadable: Vec<&String> =
                rows.damaged.iter().map(|(n, _)| n).chain(bad.iter().map(|(n, _)| n)).collect();
            let refs = store.refs();
            for name in unreadable {
                let Some(rest) = name.strip_prefix(CHECKPOINTS).or_else(|| name.strip_prefix(OPERATIONS))
                else {
                    continue;
                };
                let Ok(Some(oid)) = refs.get(name) else { continue };
                refs.apply(&[
                    Edit { name: format!("{DAMAGED}{rest}"), expect: Expect::Any, new: Some(oid) },
                    Edit { name: name.clone(), expect: Expect::Is(oid), new: None },
                ])?;
                repaired.push(id(name));
            }
            if let Ok(dir) = std::fs::read_dir(store.state_dir()) {
                for e in dir.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_file())) {
                    let _ = std::fs::remove_file(e.path());
                }
            }
        }
        drop((lock, shared));
        let ok = damage.is_empty() && rows_damaged.is_empty() && operations.is_null();
        Ok(json!({
            "ok": ok,
            "objects": report.objects,
            "bytes": report.bytes,
            "checkpoints": rows.all.len(),
            "damage": damage,
            "rows_damaged": rows_damaged,
            "operations": operations,
            "repaired": repaired,
        }))
    }

    /// The checkpoints among commits that no ref names; of several forms of one, that which was captured.
    fn unlisted(&self, commits: &[Oid]) -> Result<Vec<(Record, Row)>> {
        let odb = self.odb()?;
        let mut all: BTreeMap<String, (Record, Row)> = BTreeMap::new();
        for commit in commits {
            let Ok((tree, message)) = odb.commit(commit) else { continue };
            let Ok(record) = record::decode::<Record>(message.as_bstr(), "a commit") else { continue };
            if !crate::names::is_full_id(&record.id) {
                continue;
            }
            let known = all.get(&record.id).is_some_and(|(r, _)| r.state != State::Gap);
            if !known {
                let row = record.row(*commit, tree);
                all.insert(record.id.clone(), (record, row));
            }
        }
        Ok(all.into_values().collect())
    }

    /// Looks at everything that recording and going back stand on; `drill` restores the newest row into a scratch folder
    /// and compares.
    pub fn doctor(&self, drill: bool, control: &Control<'_>) -> Result<Value> {
        let mut checks: Vec<Value> = Vec::new();
        let mut add = |name: &str, r: std::result::Result<String, String>| {
            let (ok, detail) = match r {
                Ok(d) => (true, d),
                Err(d) => (false, d),
            };
            checks.push(json!({"name": name, "ok": ok, "detail": detail}));
        };
        add(
            "workspace",
            match self.root().is_dir() {
                true => Ok(self.root().display().to_string()),
                false => Err(format!("{} is not there", self.root().display())),
            },
        );
        add(
            "recording",
            match self.disabled() {
                None => Ok("on".to_owned()),
                Some(why) => Err(format!("off: {why}")),
            },
        );
        add(
            "settings",
            match self.settings().warnings.as_slice() {
                [] => Ok("read".to_owned()),
                w => Err(w.join("; ")),
            },
        );
        add("hooks", self.complaints());
        add("rules", self.rules().map(|_| "read".to_owned()).map_err(|e| e.message));
        match self.store() {
            Err(e) => add("store", Err(e.message)),
            Ok(store) => {
                add("store", Ok(store.dir().display().to_string()));
                add("room", self.check_room().map(|()| "above the floor".to_owned()).map_err(|e| e.message));
                add(
                    "rows",
                    self.rows().map_err(|e| e.message).and_then(|r| match r.damaged.len() {
                        0 => Ok(format!("{} readable", r.all.len())),
                        n => Err(format!("{n} damaged")),
                    }),
                );
                add(
                    "operations",
                    self.operations().map(|o| format!("{} readable", o.len())).map_err(|e| e.message),
                );
                let journal = crate::operation::journal_file(self)?;
                add(
                    "journal",
                    match journal.exists() {
                        false => Ok("no operation in flight".to_owned()),
                        true => Err(format!("{}: an operation is in flight", journal.display())),
                    },
                );
                if drill {
                    add("drill", self.drill(control).map_err(|e| e.message));
                }
            }
        }
        let ok = checks.iter().all(|c| c["ok"] == true);
        Ok(json!({"ok": ok, "checks": checks}))
    }

    /// What hooks of agents complained of: the end of their log, where it is young.
    fn complaints(&self) -> std::result::Result<String, String> {
        /// So much of its end is shown.
        const LINES: usize = 3;
        /// Older complaints are history.
        const YOUNG: Duration = Duration::from_secs(7 * 24 * 3600);
        let log = self.surroundings().store_base.join("hooks.log");
        let young = log
            .metadata()
            .and_then(|m| m.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < YOUNG));
        if !young {
            return Ok("no complaint within a week".to_owned());
        }
        let text = std::fs::read(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
        match last.is_empty() {
            true => Ok("no complaint".to_owned()),
            false => Err(format!("{}: {last} (the file may be deleted)", log.display())),
        }
    }

    fn drill(&self, control: &Control<'_>) -> Result<String> {
        let rows = self.rows()?;
        let newest: &Checkpoint = rows
            .all
            .iter()
            .rev()
            .find(|c| c.record.is_restorable())
            .ok_or_else(|| Error::new(Code::NoSuchCheckpoint, "there is nothing to restore yet"))?;
        let scratch = std::env::temp_dir()
            .join(format!("backstitch-drill-{}", crate::record::new_id(crate::record::now_ms())));
        let result = self.export_dir(newest, &scratch, control).and_then(|n| {
            let differ = self.compare_dir(newest, &scratch)?;
            match differ.len() {
                0 => {
                    Ok(format!("{n} files of {} restored into a scratch folder, all equal", newest.record.id))
                }
                d => Err(Error::new(
                    Code::Failed,
                    format!(
                        "paths that differ ({d}): {}",
                        differ.iter().take(5).cloned().collect::<Vec<_>>().join(", ")
                    ),
                )
                .hint("`backstitch verify` says whether the store is damaged")),
            }
        });
        let _ = std::fs::remove_dir_all(&scratch);
        result
    }
}

//! What is recorded, and what must hold in every image of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_testkit::{Cli, Compare, TreeModel, generate};
use serde_json::Value;

use super::{
    disk::{self, Disk, Image},
    record::{self, Recorder},
};
use crate::{Result, campaign};

/// What was reported as done: rows with their commits, operations with what became of them.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    rows: BTreeMap<String, String>,
    operations: BTreeMap<String, String>,
}

/// One recorded command.
pub struct Step {
    /// Its name.
    pub name: String,
    /// Its events, as numbers of the disk's.
    pub events: std::ops::Range<usize>,
    old: TreeModel,
    new: TreeModel,
    before: Facts,
    after: Facts,
    /// That made the step's operation, if it changes the tree.
    undo: Option<&'static str>,
}

/// A workspace with its store, and the recording of what was done to them.
pub struct Story {
    cli: Cli,
    root: PathBuf,
    workspace: PathBuf,
    /// What the disk went through.
    pub disk: Disk,
    /// The commands.
    pub steps: Vec<Step>,
}

/// What is recorded: the words of a command, edits, and a name.
const SCRIPT: &[(&str, &[&str], u64)] = &[
    ("first", &["checkpoint"], 0),
    ("checkpoint", &["checkpoint"], 90),
    ("unchanged", &["checkpoint", "--label", "same"], 0),
    ("restore-many", &["restore", "FIRST"], 0),
    ("undo-many", &["undo"], 0),
    ("restore-few", &["restore", "SECOND"], 7),
    ("redo", &["undo"], 0),
    ("turn-begin", &["turn", "begin", "--session", "s1", "--prompt", "p", "--key", "k1"], 2),
    ("tool-before", &["tool", "before", "--session", "s1", "--call", "c1"], 0),
    ("tool-after", &["tool", "after", "--session", "s1", "--call", "c1"], 3),
    ("turn-end", &["turn", "end", "--session", "s1"], 0),
    ("rewind", &["rewind", "1", "--session", "s1"], 0),
    ("parked", &["restore", "FIRST"], 4),
    ("undo-parked", &["undo"], 0),
    ("delete", &["delete", "SECOND"], 0),
    ("gc", &["gc"], 0),
    ("checkpoint-after-gc", &["checkpoint"], 5),
];

/// The names of the recorded commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCRIPT.iter().map(|(name, ..)| *name)
}

impl Story {
    /// Prepares a workspace below `root` and records the whole script.
    pub fn record(binary: &Path, root: &Path, seed: u64) -> Result<Story> {
        let (workspace, home) = (root.join("workspace"), root.join("home"));
        fs::create_dir_all(&workspace)?;
        fs::create_dir_all(&home)?;
        let mut cli = Cli::with_home(binary, &home)?;
        cli.timeout = Duration::from_secs(60);
        // Nothing runs beside the command that is recorded, or looks at an image.
        cli.env("BACKSTITCH_GC_AUTO", "false");
        generate::project(seed, 120).write(&workspace)?;
        let hostile = workspace.join("hostile");
        fs::create_dir(&hostile)?;
        generate::tree(seed, &generate::Shape { entries: 70, max_file: 40_000, ..Default::default() })
            .write(&hostile)?;
        campaign::own_workspace(&cli, &workspace)?;
        let disk = Disk::of(root)?;
        let mut story = Story { cli, root: root.to_path_buf(), workspace, disk, steps: Vec::new() };
        let mut rows: Vec<String> = Vec::new();
        for (n, (name, words, edits)) in SCRIPT.iter().enumerate() {
            if *edits > 0 {
                generate::edits(seed + n as u64, usize::try_from(*edits)?).apply(&story.workspace)?;
                story.disk.take_over(&story.root, b"workspace")?;
            }
            let named = |n: usize| rows.get(n).cloned().ok_or("no such row yet");
            let words: Vec<String> = words
                .iter()
                .map(|w| match *w {
                    "FIRST" => named(0),
                    "SECOND" => named(1),
                    w => Ok(w.to_owned()),
                })
                .collect::<std::result::Result<_, _>>()?;
            let parked = name.contains("parked");
            if parked {
                story.cli.env("BACKSTITCH_FREE_FLOOR", "8000000TB");
            }
            let before = story.facts()?;
            let old = TreeModel::read(&story.workspace)?;
            let start = story.disk.len();
            story.traced(&words).map_err(|e| format!("{name}: {e}"))?;
            let end = story.disk.len();
            let after = story.facts()?;
            if parked {
                story.cli.env("BACKSTITCH_FREE_FLOOR", "0");
            }
            let new = TreeModel::read(&story.workspace)?;
            rows.extend(after.rows.keys().filter(|id| !before.rows.contains_key(*id)).cloned());
            let undo = match *words[0] {
                _ if old.same(&new, &Compare::default()) => None,
                ref w if w == "undo" => Some("redo"),
                _ => Some("undo"),
            };
            story.same_as_disk(name)?;
            story.steps.push(Step {
                name: (*name).to_owned(),
                events: start..end,
                old,
                new,
                before,
                after,
                undo,
            });
        }
        Ok(story)
    }

    /// The model must be what stands on the disk: otherwise the images would mean nothing.
    fn same_as_disk(&self, step: &str) -> Result<()> {
        let found = disk::read(&self.root)?;
        let model = self.disk.image(
            self.disk.len(),
            disk::Model::Anything,
            disk::Landing::Everything,
            disk::Without::Nothing,
        );
        let differs = |path: &&Vec<u8>| found.get(*path) != model.get(*path);
        let all: BTreeSet<&Vec<u8>> = found.keys().chain(model.keys()).filter(differs).collect();
        // What a log is written to.
        let all: Vec<String> = all
            .into_iter()
            .filter(|p| !p.starts_with(b"trace"))
            .map(|p| {
                let kind = |image: &Image| match image.get(p) {
                    None => "nothing".to_owned(),
                    Some(disk::Entry::Dir(mode)) => format!("a directory {mode:o}"),
                    Some(disk::Entry::File(mode, bytes)) => format!("{} bytes {mode:o}", bytes.len()),
                    Some(disk::Entry::Link(_)) => "a link".to_owned(),
                };
                format!(
                    "{}: {} instead of {}",
                    backstitch_testkit::text::brief(p),
                    kind(&model),
                    kind(&found)
                )
            })
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        Err(format!("after {step} the model is not what the disk holds, at {:?}", &all[..all.len().min(8)])
            .into())
    }

    /// Runs a command and takes what it did over into the model.
    fn traced<S: AsRef<std::ffi::OsStr>>(&mut self, words: &[S]) -> Result<Value> {
        let log = self.root.join("trace");
        self.cli.wrap(record::strace(&log));
        let run = self.cli.json(&self.workspace, words);
        self.cli.wrap([""; 0]);
        let value = run?.ok()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        fs::remove_file(&log)?;
        Recorder::new(&self.root, &mut self.disk).log(&text, self.cli.home())?;
        Ok(value)
    }

    fn facts(&mut self) -> Result<Facts> {
        if self.cli.only_store().is_err() {
            return Ok(Facts::default());
        }
        Facts::read(&self.traced(&["list", "--all"])?, &self.traced(&["operations"])?)
    }

    /// Puts the image on the disk and looks at it with the program. Everything in the first `n` events happened, nothing
    /// after them.
    pub fn check(&self, step: &Step, n: usize, image: &Image) -> Result<()> {
        disk::write(&self.root, image)?;
        let done = n >= step.events.end;
        let status = self.next(&["status"])?;
        if !status["in_flight"].is_null() {
            return Err(format!("an operation is still in flight: {}", status["in_flight"]).into());
        }
        let plain = Compare::default();
        let found = TreeModel::read(&self.workspace)?;
        let (is_old, is_new) = (step.old.same(&found, &plain), step.new.same(&found, &plain));
        if !(is_new || is_old && !done) {
            let model = if done { &step.new } else { &step.old };
            return Err(format!(
                "the tree is neither the old nor the new one (done: {done}):\n{}",
                model.report(&found, &plain, 6).unwrap_or_default()
            )
            .into());
        }
        if self.cli.only_store().is_err() {
            return match step.before.rows.is_empty() && !done {
                true => self.go_on(),
                false => Err("there is no store".into()),
            };
        }
        self.verify()?;
        let facts = Facts::read(&self.next(&["list", "--all"])?, &self.next(&["operations"])?)?;
        facts.hold(if done { &step.after } else { &step.before }, &step.after, &step.before)?;
        self.go_on()?;
        if let (true, Some(undo)) = (done, step.undo) {
            self.next(&[undo])?;
            if let Some(report) = step.old.report(&TreeModel::read(&self.workspace)?, &plain, 6) {
                return Err(format!("{undo} does not lead back:\n{report}").into());
            }
        }
        if n.is_multiple_of(7) {
            self.next(&["gc"])?;
        }
        self.verify()
    }

    /// Life goes on: what is there can be recorded.
    fn go_on(&self) -> Result<()> {
        self.next(&["checkpoint"])?;
        let diff = self.next(&["diff"])?;
        match diff["changes"].as_array() {
            Some(list) if list.is_empty() => Ok(()),
            _ => Err(format!("a new checkpoint differs from the tree: {}", diff["changes"]).into()),
        }
    }

    fn verify(&self) -> Result<()> {
        let value = self.next(&["verify"])?;
        for key in ["damage", "problems", "errors"] {
            if value[key].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(format!("verify: {value}").into());
            }
        }
        Ok(())
    }

    fn next(&self, words: &[&str]) -> Result<Value> {
        let run = self.cli.json(&self.workspace, words)?;
        Ok(run.ok().map_err(|e| format!("{words:?}: {e}"))?)
    }
}

impl Facts {
    fn read(list: &Value, operations: &Value) -> Result<Facts> {
        let damaged = list["damaged"].as_array().is_some_and(|d| !d.is_empty());
        if damaged {
            return Err(format!("damaged rows: {}", list["damaged"]).into());
        }
        let text = |v: &Value, key: &str| -> Result<String> {
            Ok(v[key].as_str().ok_or_else(|| format!("no {key} in {v}"))?.to_owned())
        };
        let mut facts = Facts::default();
        for row in list["checkpoints"].as_array().ok_or("no rows")? {
            facts.rows.insert(text(row, "id")?, text(row, "commit")?);
        }
        for op in operations["operations"].as_array().ok_or("no operations")? {
            facts.operations.insert(text(op, "id")?, text(op, "state")?);
        }
        Ok(facts)
    }

    /// Everything that `sure` and `either` both say is there, with the same content; what only one of them says may be.
    fn hold(&self, sure: &Facts, after: &Facts, before: &Facts) -> Result<()> {
        let certain = |sure: &BTreeMap<String, String>,
                       after: &BTreeMap<String, String>,
                       before: &BTreeMap<String, String>| {
            let done = std::ptr::eq(sure, after);
            let may_go = |id: &String| !done && !after.contains_key(id);
            let may_change = |id: &String| !done && after.get(id) != before.get(id);
            sure.iter()
                .filter(|(id, _)| !may_go(id))
                .map(|(id, v)| (id.clone(), (!may_change(id)).then(|| v.clone())))
                .collect::<Vec<_>>()
        };
        for (what, found, wanted) in [
            ("row", &self.rows, certain(&sure.rows, &after.rows, &before.rows)),
            ("operation", &self.operations, certain(&sure.operations, &after.operations, &before.operations)),
        ] {
            for (id, value) in wanted {
                match (found.get(&id), value) {
                    (None, _) => return Err(format!("the {what} {id} was reported and is gone").into()),
                    (Some(found), Some(value)) if *found != value => {
                        return Err(format!("the {what} {id} is {found} and was {value}").into());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

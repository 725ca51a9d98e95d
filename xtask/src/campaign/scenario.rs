//! One prepared workspace, one operation with a fault in it, and what must hold afterwards.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_testkit::{Cli, Compare, Git, Run, TreeModel, generate};
use serde_json::Value;

use super::trace::Places;
use crate::Result;

/// What is run while the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A checkpoint where no store is yet.
    First,
    /// A checkpoint of many changes.
    Checkpoint,
    /// A restore of an earlier checkpoint.
    Restore,
    /// An undo of that restore.
    Undo,
    /// A collection after rows were deleted.
    Gc,
}

/// All of them, with the names by which they are asked for.
pub const OPERATIONS: &[(&str, Operation)] = &[
    ("first", Operation::First),
    ("checkpoint", Operation::Checkpoint),
    ("restore", Operation::Restore),
    ("undo", Operation::Undo),
    ("gc", Operation::Gc),
];

impl Operation {
    /// Its name.
    pub fn name(self) -> &'static str {
        OPERATIONS.iter().find(|(_, o)| *o == self).map_or("", |(name, _)| name)
    }

    fn writes_the_tree(self) -> bool {
        matches!(self, Operation::Restore | Operation::Undo)
    }
}

/// A workspace and a store, ready for the operation.
pub struct Scenario {
    /// The program, with its home.
    pub cli: Cli,
    /// The folder that it works on.
    pub workspace: PathBuf,
    operation: Operation,
    /// The arguments of the operation.
    pub args: Vec<String>,
    /// The state before the operation.
    old: TreeModel,
    /// The state that the operation leads to.
    new: TreeModel,
    rows: usize,
}

/// In which state the tree was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As before the operation.
    Old,
    /// As after it.
    New,
    /// The operation does not change the tree, and did not.
    Same,
}

impl Scenario {
    /// Makes one below `dir`, which must not exist. The same seed makes the same files, the same edits, the same rows.
    pub fn prepare(binary: &Path, dir: &Path, operation: Operation, seed: u64) -> Result<Scenario> {
        let (workspace, home) = (dir.join("workspace"), dir.join("home"));
        fs::create_dir_all(&workspace)?;
        fs::create_dir_all(&home)?;
        let mut cli = Cli::with_home(binary, &home)?;
        cli.timeout = Duration::from_secs(60);
        generate::project(seed, 90).write(&workspace)?;
        let hostile = workspace.join("hostile");
        fs::create_dir(&hostile)?;
        generate::tree(seed, &generate::Shape { entries: 60, max_file: 60_000, ..Default::default() })
            .write(&hostile)?;
        let start = TreeModel::read(&workspace)?;
        let args = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<String>>();
        own_workspace(&cli, &workspace)?;
        let mut scenario = Scenario {
            cli,
            workspace,
            operation,
            args: args(&["checkpoint"]),
            old: start.clone(),
            new: start.clone(),
            rows: 0,
        };
        if operation == Operation::First {
            return Ok(scenario);
        }
        let first = scenario.checkpoint()?;
        generate::edits(seed, 80).apply(&scenario.workspace)?;
        let edited = TreeModel::read(&scenario.workspace)?;
        scenario.old = edited.clone();
        scenario.new = edited.clone();
        if operation == Operation::Gc {
            // Garbage in some packs, whole packs of it, and loose rows.
            scenario.checkpoint()?;
            generate::edits(seed + 1, 30).apply(&scenario.workspace)?;
            let second = scenario.checkpoint()?;
            generate::edits(seed + 2, 30).apply(&scenario.workspace)?;
            for _ in 0..12 {
                scenario.checkpoint()?;
            }
            scenario.cli.json(&scenario.workspace, ["delete", &first, &second])?.ok()?;
            scenario.new = TreeModel::read(&scenario.workspace)?;
            scenario.args = args(&["gc"]);
        } else if operation != Operation::Checkpoint {
            scenario.checkpoint()?;
            scenario.new = start.clone();
            scenario.args = args(&["restore", &first]);
        }
        if operation == Operation::Undo {
            scenario.cli.json(&scenario.workspace, &scenario.args)?.ok()?;
            scenario.old = start;
            scenario.new = edited;
            scenario.args = args(&["undo"]);
        }
        scenario.rows = scenario.list()?.len();
        // What is compared later includes identities, so it is read from this very disk.
        scenario.old = TreeModel::read(&scenario.workspace)?;
        Ok(scenario)
    }

    /// The folders of this scenario.
    pub fn places<'a>(&'a self, stores: &'a Path) -> Places<'a> {
        Places { workspace: &self.workspace, stores, home: self.cli.home() }
    }

    /// Runs the operation with the wrapper that the caller has set.
    pub fn strike(&mut self, wrapper: &[String]) -> io::Result<Run> {
        self.cli.wrap(wrapper);
        let run = self.cli.json(&self.workspace, &self.args);
        self.cli.wrap([""; 0]);
        run
    }

    /// The operation without any fault must lead to the new state; otherwise the campaign would prove nothing.
    pub fn check_clean(&self, run: &Run) -> Result<()> {
        run.ok()?;
        let found = TreeModel::read(&self.workspace)?;
        match self.new.report(&found, &Compare::default(), 10) {
            None => Ok(()),
            Some(report) => {
                Err(format!("even without a fault, {} ends elsewhere:\n{report}", self.operation.name())
                    .into())
            }
        }
    }

    /// Everything that must hold after a fault. `run` is the run that was hit; the error tells what does not hold.
    pub fn check(&self, run: &Run, killed: bool) -> Result<State> {
        if !killed && !run.ended_properly() {
            return Err(format!("the run did not end in a documented way: {run}").into());
        }
        let code = if killed { None } else { run.code };
        // The next command: whatever it is, it must work, at once, and put things in order.
        let status = self.next(&["status"])?;
        if !status["in_flight"].is_null() {
            return Err(format!(
                "after the next command an operation is still in flight: {}",
                status["in_flight"]
            )
            .into());
        }
        let state = self.state(code, run)?;
        let no_store_yet = self.operation == Operation::First && self.cli.only_store().is_err();
        if !no_store_yet {
            let rows = self.list()?.len();
            // An operation adds its safety row, a checkpoint its own.
            if rows < self.rows || rows > self.rows + 2 {
                return Err(format!("{rows} rows are listed, {} were there before", self.rows).into());
            }
            if self.operation == Operation::Gc {
                if rows != self.rows {
                    return Err(format!("{rows} rows are listed, {} were there before", self.rows).into());
                }
            } else if matches!(code, Some(0 | 3)) && !self.operation.writes_the_tree() && rows == self.rows {
                return Err(format!("reported as done, but no row is listed: {run}").into());
            }
            self.verify("after the fault")?;
            if rows > self.rows && !self.operation.writes_the_tree() {
                self.row_is_true()?;
            }
        }
        self.go_on(state, code == Some(3))?;
        self.no_locks_left()?;
        self.verify("at the end")?;
        Git::new()?.fsck_strict(&self.cli.only_store()?.join("git"))?;
        Ok(state)
    }

    /// In which state the tree is, after the next command.
    fn state(&self, code: Option<i32>, run: &Run) -> Result<State> {
        let found = TreeModel::read(&self.workspace)?;
        if !self.operation.writes_the_tree() {
            return match self.old.report(&found, &Compare::untouched(), 10) {
                None => Ok(State::Same),
                Some(report) => Err(format!("a checkpoint has changed the work tree:\n{report}").into()),
            };
        }
        let plain = Compare::default();
        let (is_old, is_new) = (self.old.same(&found, &plain), self.new.same(&found, &plain));
        match (code, is_old, is_new) {
            (None, true, _) => Ok(State::Old),
            (None | Some(0), _, true) => Ok(State::New),
            // Partly done, and said so: each path by itself is old or new.
            (Some(3), ..) if found.neither(&self.old, &self.new, &plain).is_empty() => Ok(State::New),
            (Some(c), true, _) if c != 0 && c != 3 => Ok(State::Old),
            _ => {
                let torn = found.neither(&self.old, &self.new, &plain);
                let names: Vec<String> =
                    torn.iter().take(10).map(|p| backstitch_testkit::text::brief(p)).collect();
                let what = match (is_old, is_new) {
                    (true, _) => "the tree is the old one".to_owned(),
                    (_, true) => "the tree is the new one".to_owned(),
                    _ => {
                        let report = |model: &TreeModel| model.report(&found, &plain, 10).unwrap_or_default();
                        format!(
                            "the tree is neither the old nor the new one; neither at {names:?}\nagainst the old one:\n{}against the new one:\n{}",
                            report(&self.old),
                            report(&self.new)
                        )
                    }
                };
                Err(format!("exit code {code:?}, and {what}\n{run}").into())
            }
        }
    }

    /// Life goes on: the operation can be done again and taken back.
    fn go_on(&self, state: State, partial: bool) -> Result<()> {
        let plain = Compare::default();
        let is = |model: &TreeModel, what: &str| -> Result<()> {
            match model.report(&TreeModel::read(&self.workspace)?, &plain, 10) {
                None => Ok(()),
                Some(report) => Err(format!("{what}:\n{report}").into()),
            }
        };
        match self.operation {
            Operation::First | Operation::Checkpoint => {
                self.next(&["checkpoint"])?;
                let diff = self.next(&["diff"])?;
                if diff["changes"].as_array().is_none_or(|c| !c.is_empty()) {
                    return Err(
                        format!("a new checkpoint differs from the live tree: {}", diff["changes"]).into()
                    );
                }
            }
            Operation::Gc => {
                self.next(&["gc"])?;
                let told = self.next(&["gc", "--dry-run"])?;
                if told["garbage_objects"] != 0 || told["checkpoints"] != 0 {
                    return Err(format!("a second collection leaves something to free: {told}").into());
                }
                if self.left_in_store() > 0 {
                    return Err("temporaries are left after the next collection".into());
                }
                for row in self.list()? {
                    let id = row["id"].as_str().ok_or("a row without an id")?;
                    self.next(&["restore", id])?;
                    let diff = self.next(&["diff", id])?;
                    if diff["changes"].as_array().is_none_or(|c| !c.is_empty()) {
                        return Err(format!("{id} cannot be restored after the collection: {diff}").into());
                    }
                }
            }
            Operation::Restore => {
                let words: Vec<&str> = self.args.iter().map(String::as_str).collect();
                self.next(&words)?;
                is(&self.new, "the restore, done again, does not lead to the new state")?;
                self.next(&["undo"])?;
                if partial {
                    // The run that was hit did its part as an operation of its own.
                    self.next(&["undo"])?;
                }
                is(&self.old, "undo does not lead back to the old state")?;
            }
            Operation::Undo => {
                if state == State::Old {
                    self.next(&["undo"])?;
                    is(&self.new, "the undo, done again, does not lead to the new state")?;
                }
                self.next(&["redo"])?;
                is(&self.old, "redo does not lead back to the old state")?;
            }
        }
        Ok(())
    }

    /// The newest row must hold what is on disk, and name what it does not hold.
    fn row_is_true(&self) -> Result<()> {
        let rows = self.list()?;
        let id = rows[0]["id"].as_str().ok_or("a row without an id")?;
        let row = &self.next(&["show", id])?["checkpoint"];
        let tree = format!("{}:files", row["commit"].as_str().ok_or("a row without a commit")?);
        let held = Git::new()?.tree_model(&self.cli.only_store()?.join("git"), &tree)?;
        let skipped: Vec<Vec<u8>> = row["skipped"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(backstitch_testkit::cli::path_of)
            .collect();
        if row["state"] == "complete" && !skipped.is_empty() {
            return Err(format!("a complete row has left something out: {row}").into());
        }
        let found = self.old.differences(&held, &Compare::as_git());
        let is_below = |path: &[u8], top: &[u8]| {
            path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || top.is_empty())
        };
        let untold: Vec<String> = found
            .iter()
            .filter(|d| !skipped.iter().any(|top| is_below(&d.path, top)))
            .map(|d| format!("  {d}"))
            .take(10)
            .collect();
        if untold.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the row {id} ({}) does not hold what is on disk, and does not say so:\n{}",
            row["state"],
            untold.join("\n")
        )
        .into())
    }

    fn checkpoint(&self) -> Result<String> {
        let value = self.cli.json(&self.workspace, ["checkpoint"])?.ok()?;
        Ok(value["checkpoint"]["id"]
            .as_str()
            .ok_or_else(|| format!("a checkpoint without an id: {value}"))?
            .to_owned())
    }

    fn list(&self) -> Result<Vec<Value>> {
        let value = self.next(&["list", "--all"])?;
        Ok(value["checkpoints"].as_array().ok_or("list gives no rows")?.clone())
    }

    fn verify(&self, when: &str) -> Result<()> {
        let value = self.next(&["verify"]).map_err(|e| format!("verify {when}: {e}"))?;
        for key in ["damage", "problems", "errors"] {
            if value[key].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(format!("verify {when}: {value}").into());
            }
        }
        Ok(())
    }

    /// A command that must succeed, and soon: nothing waits for a lock whose owner is dead.
    fn next(&self, words: &[&str]) -> Result<Value> {
        let run = self.cli.json(&self.workspace, words)?;
        if run.elapsed > Duration::from_secs(20) {
            return Err(format!("{words:?} took {:?}: a stale lock?", run.elapsed).into());
        }
        Ok(run.ok()?)
    }

    fn no_locks_left(&self) -> Result<()> {
        let mut open = vec![self.cli.only_store()?.join("git")];
        while let Some(dir) = open.pop() {
            for item in fs::read_dir(dir)? {
                let item = item?;
                if item.file_type()?.is_dir() {
                    open.push(item.path());
                } else if item.file_name().to_string_lossy().ends_with(".lock") {
                    return Err(format!("a lock file is left: {}", item.path().display()).into());
                }
            }
        }
        Ok(())
    }

    /// Temporaries that the fault has left in the store; they cost space, nothing else.
    pub fn left_in_store(&self) -> usize {
        let Ok(store) = self.cli.only_store() else { return 0 };
        let mut count = 0;
        let mut open = vec![store];
        while let Some(dir) = open.pop() {
            for item in fs::read_dir(dir).into_iter().flatten().flatten() {
                if item.file_type().is_ok_and(|t| t.is_dir()) {
                    open.push(item.path());
                } else if item.file_name().to_string_lossy().contains("tmp") {
                    count += 1;
                }
            }
        }
        count
    }
}

/// Nothing may be run on a folder above: below a git work tree, the program would take that work tree's top.
pub fn own_workspace(cli: &Cli, workspace: &Path) -> Result<()> {
    let own = workspace.canonicalize()?;
    let above = own.ancestors().skip(1).find(|dir| dir.join(".git").exists());
    if let Some(above) = above {
        return Err(format!(
            "{} lies in the git work tree {}: choose another folder",
            own.display(),
            above.display()
        )
        .into());
    }
    let status = cli.json(workspace, ["status"])?.ok()?;
    match status["workspace"].as_str() {
        Some(taken) if Path::new(taken) == own => Ok(()),
        taken => {
            Err(format!("the program takes {taken:?} for the workspace instead of {}", own.display()).into())
        }
    }
}

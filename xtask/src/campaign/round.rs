//! One command in one world: what it does without a fault, and what must hold after one.

use std::{collections::BTreeMap, fs, path::Path};

use backstitch_testkit::{Git, Run};

use super::{
    fault::{Ends, Fault, all_calls},
    image::{Image, TEMPORARY},
    operation::{Again, Operation},
    shape,
    trace::{self, Call, Class},
    world::{Row, State, World, own_workspace, settings},
};
use crate::Result;

/// In which state the files were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// As before the command.
    Old,
    /// As after it.
    New,
    /// The command does not change files, and did not.
    Same,
}

/// A prepared world with both of its ends.
pub struct Round {
    world: World,
    operation: &'static Operation,
    args: Vec<String>,
    before: State,
    after: State,
    /// The exit code without a fault.
    code: Option<i32>,
    /// How names in the home look that may stay.
    shapes: shape::Shapes,
    /// The calls of the run without a fault.
    pub calls: Vec<Call>,
}

/// How a try went.
pub enum Outcome {
    /// The call that was hit, the exit code, and what was found.
    Hit(Call, Option<i32>, Result<Found>),
    /// The run ended before.
    NotReached,
    /// The call was none that touches what we look at, such as one of the loader.
    Elsewhere,
}

impl Round {
    /// Prepares the world in `dir` and runs the command once to its end, traced, to know its calls and where it leads.
    pub fn prepare(binary: &Path, dir: &Path, operation: &'static Operation, seed: u64) -> Result<Round> {
        let mut world = World::new(binary, dir, seed)?;
        own_workspace(&world.cli, &world.workspace)?;
        let args = (operation.prepare)(&mut world)?;
        for (key, value) in operation.env {
            world.cli.env(*key, *value);
        }
        let mut before = world.state()?;
        let log = dir.join("trace");
        let run = world.run(&args, &strace(&log, &all_calls().join(","), None))?;
        if !matches!(run.code, Some(0 | 3)) {
            return Err(format!("even without a fault: {run}").into());
        }
        let calls = trace::read(&String::from_utf8_lossy(&fs::read(log)?), &world.places());
        if calls.is_empty() {
            return Err("the trace shows no system calls".into());
        }
        let after = world.state()?;
        let mut shapes = shape::Shapes::default();
        shapes.learn(&before.home);
        shapes.learn(&after.home);
        if !before.repository.is_empty() {
            // A cache that is written once the repository has rested for a while.
            let cache = world.cli.only_store()?.join("state/git");
            let inside = cache.strip_prefix(world.cli.home())?;
            shapes.allow(inside.as_os_str().as_encoded_bytes());
        }
        let mut round = Round { world, operation, args, before, after, code: run.code, shapes, calls };
        if let Some(wrong) = round.judge_rows(run.code, &round.after.rows).err() {
            return Err(format!("even without a fault: {wrong}").into());
        }
        round.cycle()?;
        round.shapes.learn(&Image::read(round.world.cli.home())?);
        round.again(Found::New, false)?;
        round.shapes.learn(&Image::read(round.world.cli.home())?);
        before = std::mem::replace(&mut round.before, State::empty());
        round.world.put_back(&mut before)?;
        round.before = before;
        Ok(round)
    }

    /// How many paths the work tree holds.
    pub fn paths(&self) -> usize {
        self.before.workspace.len()
    }

    /// One hit: the world as it was, the command with the fault at the `nth` call of this name, and all checks. With `deep`
    /// the command is done again and taken back, too, and git is asked.
    pub fn hit(&mut self, fault: &Fault, name: &str, nth: usize, deep: bool) -> Result<Outcome> {
        self.world.put_back(&mut self.before)?;
        let log = self.world.workspace.with_file_name("trace");
        let from = if fault.stays { "+" } else { "" };
        let inject = format!("{name}:{}:when={nth}{from}", fault.inject);
        let run = self.world.run(&self.args, &strace(&log, name, Some(&inject)))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let calls = trace::read(&text, &self.world.places());
        let killed = fault.ends == Ends::Killed;
        let reached =
            if killed { text.contains("+++ killed by SIGKILL +++") } else { text.contains("(INJECTED)") };
        let Some(hit) = calls.iter().find(|c| c.nth == nth).filter(|_| reached).cloned() else {
            return Ok(Outcome::NotReached);
        };
        if hit.class == Class::Elsewhere {
            return Ok(Outcome::Elsewhere);
        }
        // Whoever cannot write its answer must not say that all is well, though all was done.
        let mute = calls.iter().any(|c| c.output && (c.nth == nth || fault.stays && c.nth > nth));
        let found = self.check(&run, killed, mute, deep).map_err(|e| {
            let lines: Vec<&str> = text.lines().rev().take(4).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            let said: String = run.to_string().chars().take(900).collect();
            format!("{e}\n{said}\n--- the last traced calls\n{}", lines.join("\n")).into()
        });
        Ok(Outcome::Hit(hit, run.code.filter(|_| !killed), found))
    }

    /// Everything that must hold after a fault. With `mute` the exit code tells nothing.
    fn check(&self, run: &Run, killed: bool, mute: bool, deep: bool) -> Result<Found> {
        if !killed && !run.ended_properly() {
            return Err("the run did not end in a documented way".into());
        }
        let code = if killed || mute { None } else { run.code };
        // The next command: whatever it is, it must work, at once, and put things in order.
        let rows = self.world.rows()?;
        let found = self.judge_files(code)?;
        self.judge_rows(code, &rows)?;
        self.verify("after the fault")?;
        let files = Image::read(&self.world.workspace)?;
        if self.operation.waits {
            let again = self.world.cli.json(&self.world.workspace, &self.args)?;
            if !matches!(again.code, Some(0 | 3 | 4)) {
                return Err(format!("the command, given again: {again}").into());
            }
        }
        self.cycle()?;
        let later = Image::read(&self.world.workspace)?;
        let left: Vec<&[u8]> = later.paths().filter(|p| is_ours(p)).collect();
        if !left.is_empty() {
            return Err(format!("temporaries are left in the work tree: {:?}", names(&left)).into());
        }
        let changed = files.differences(&later, true);
        if !changed.is_empty() {
            return Err(format!("a checkpoint has changed the work tree: {changed:?}").into());
        }
        let unknown = self.shapes.unknown(&Image::read(self.world.cli.home())?);
        if !unknown.is_empty() {
            return Err(format!("left behind in the store or the settings: {unknown:?}").into());
        }
        if deep {
            self.again(found, code == Some(3) && self.code != Some(3))?;
            if self.is_below_floor() {
                // Stock git knows nothing of what is parked.
                self.cycle()?;
            }
            self.verify("at the end")?;
            if let Ok(store) = self.world.cli.only_store() {
                Git::new()?.fsck_strict(&store.join("git"))?;
            }
        }
        Ok(found)
    }

    /// In which state workspace, files elsewhere and settings are.
    fn judge_files(&self, code: Option<i32>) -> Result<Found> {
        let (old, new) = (&self.before, &self.after);
        let workspace = self.world.files()?;
        let repository = self.world.repository()?;
        let elsewhere = Image::read(&self.world.elsewhere)?;
        let home = settings(Image::read(self.world.cli.home())?);
        let torn = home.neither(&old.settings(), &new.settings());
        if !torn.is_empty() {
            return Err(format!("settings are neither the old nor the new ones: {torn:?}").into());
        }
        if code == Some(0) && !new.settings().same(&home) {
            let what = new.settings().differences(&home, true);
            return Err(format!("exit code 0, and the settings are not the new ones: {what:?}").into());
        }
        let writes = !(old.workspace.same(&new.workspace)
            && old.elsewhere.same(&new.elsewhere)
            && old.repository == new.repository);
        if !writes {
            let mut touched = old.workspace.touched(&workspace);
            touched.extend(old.elsewhere.touched(&elsewhere));
            if old.repository != repository {
                touched.push(".git".to_owned());
            }
            return match touched.len() {
                0 => Ok(Found::Same),
                n => {
                    Err(format!("a command that changes no files has changed {n}: {:?}", clip(&touched))
                        .into())
                }
            };
        }
        let is = |state: &State| {
            state.workspace.same(&workspace)
                && state.elsewhere.same(&elsewhere)
                && state.repository == repository
        };
        let (is_old, is_new) = (is(old), is(new));
        let mut torn = workspace.neither(&old.workspace, &new.workspace);
        torn.extend(elsewhere.neither(&old.elsewhere, &new.elsewhere));
        if repository != old.repository && repository != new.repository {
            torn.push(format!(".git, of which git tells:\n{repository}"));
        }
        let done = code.is_some() && code == self.code;
        match code {
            None if is_old => return Ok(Found::Old),
            None if is_new => return Ok(Found::New),
            Some(_) if done && is_new => return Ok(Found::New),
            // Partly done, and said so: each path by itself is old or new.
            Some(3) if torn.is_empty() => return Ok(Found::New),
            Some(c) if !done && c != 0 && c != 3 && is_old => return Ok(Found::Old),
            _ => {}
        }
        let what = match (is_old, is_new) {
            (true, _) => "the files are the old ones".to_owned(),
            (_, true) => "the files are the new ones".to_owned(),
            _ => {
                let mut against_old = old.workspace.differences(&workspace, true);
                against_old.extend(old.elsewhere.differences(&elsewhere, true));
                let mut against_new = new.workspace.differences(&workspace, true);
                against_new.extend(new.elsewhere.differences(&elsewhere, true));
                format!(
                    "the files are neither the old nor the new ones; neither at {:?}\nagainst the old ones: {} {:?}\nagainst the new ones: {} {:?}",
                    clip(&torn),
                    against_old.len(),
                    clip(&against_old),
                    against_new.len(),
                    clip(&against_new)
                )
            }
        };
        Err(format!("exit code {code:?}, and {what}").into())
    }

    /// Nothing that was listed is gone but what the command takes away, and each row is the old or the new one.
    fn judge_rows(&self, code: Option<i32>, rows: &[Row]) -> Result<()> {
        let index = |rows: &[Row]| -> BTreeMap<String, Row> {
            rows.iter().map(|r| (r.id.clone(), r.clone())).collect()
        };
        let (old, new, now) = (index(&self.before.rows), index(&self.after.rows), index(rows));
        for (id, before) in &old {
            match (now.get(id), new.get(id)) {
                (None, None) => {}
                (None, Some(_)) => return Err(format!("the row {id} is gone").into()),
                (Some(row), after) => {
                    let is = |pick: fn(&Row) -> &str| {
                        pick(row) == pick(before) || after.is_some_and(|a| pick(row) == pick(a))
                    };
                    if !is(|r| &r.tree) || !is(|r| &r.marks) {
                        return Err(
                            format!("the row {id} is neither the old nor the new one: {row:?}").into()
                        );
                    }
                }
            }
        }
        let added = |rows: &BTreeMap<String, Row>| rows.keys().filter(|id| !old.contains_key(*id)).count();
        let (more, expected) = (added(&now), added(&new));
        if more > expected + 1 {
            return Err(format!("{more} rows more are listed, {expected} were expected").into());
        }
        if code == Some(0) {
            let gone = |rows: &BTreeMap<String, Row>| old.keys().filter(|id| !rows.contains_key(*id)).count();
            if more < expected || gone(&now) != gone(&new) {
                return Err("reported as done, but the rows say that it is not".into());
            }
            if let Some(id) =
                new.keys().find(|id| now.get(*id).is_some_and(|r| old.contains_key(*id) && r != &new[*id]))
            {
                return Err(format!("reported as done, but the row {id} is the old one").into());
            }
        }
        Ok(())
    }

    fn is_below_floor(&self) -> bool {
        self.operation.env.iter().any(|(key, _)| *key == "BACKSTITCH_FREE_FLOOR")
    }

    /// What a user does anyway: a checkpoint. With room for it, where the command was below the floor.
    fn cycle(&self) -> Result<()> {
        if self.is_below_floor() {
            let mut gc = self.world.cli.command(&self.world.workspace, ["gc", "--json"]);
            let run = gc.env("BACKSTITCH_FREE_FLOOR", "0").output()?;
            if !run.status.success() {
                let said = String::from_utf8_lossy(&run.stderr).into_owned();
                return Err(format!("a collection with room for what was parked: {said}").into());
            }
            let parked = self.world.cli.only_store()?.join("parked");
            let left = fs::read_dir(&parked).map_or(0, Iterator::count);
            return match left {
                0 => self.verify("with what was parked as objects"),
                n => Err(format!("{n} contents are still parked").into()),
            };
        }
        self.world.done(&["checkpoint"]).map(|_| ())
    }

    /// Life goes on: the command can be done again and taken back.
    fn again(&self, found: Found, partial: bool) -> Result<()> {
        let is = |state: &State, what: &str| -> Result<()> {
            let mut wrong = state.workspace.differences(&self.world.files()?, true);
            wrong.extend(state.elsewhere.differences(&Image::read(&self.world.elsewhere)?, true));
            let repository = self.world.repository()?;
            if state.repository != repository {
                wrong.push(format!(".git, of which git tells:\n{repository}"));
            }
            match wrong.len() {
                0 => Ok(()),
                n => Err(format!("{what}: {n} differences: {:?}", clip(&wrong)).into()),
            }
        };
        let words: Vec<&str> = self.args.iter().map(String::as_str).collect();
        match self.operation.again {
            Again::Repeat | Again::Rows | Again::Sent => {
                let run = self.world.cli.json(&self.world.workspace, &words)?;
                // What it names may be gone by then.
                if !matches!(run.code, Some(0 | 3 | 4)) {
                    return Err(format!("the command, given again: {run}").into());
                }
                let diff = self.world.done(&["checkpoint"]).and_then(|_| self.world.done(&["diff"]))?;
                if diff["changes"].as_array().is_none_or(|c| !c.is_empty()) {
                    return Err(
                        format!("a new checkpoint differs from the live tree: {}", diff["changes"]).into()
                    );
                }
                if self.operation.again == Again::Sent {
                    let (there, here) = (self.world.sent()?, self.world.rows()?);
                    if let Some(name) = self.after.sent.iter().find(|name| !there.contains(name)) {
                        return Err(format!("sent again, {name} is not on the remote").into());
                    }
                    if let Some(row) = self.after.rows.iter().find(|row| here.iter().all(|r| r.id != row.id))
                    {
                        return Err(format!("fetched again, the row {} is not here", row.id).into());
                    }
                }
                if self.operation.again == Again::Rows {
                    for row in self.world.rows()? {
                        self.world.done(&["restore", &row.id, "--privileged"])?;
                        let diff = self.world.done(&["diff", &row.id])?;
                        if diff["changes"].as_array().is_none_or(|c| !c.is_empty()) {
                            return Err(format!("{} cannot be restored: {}", row.id, diff["changes"]).into());
                        }
                    }
                }
            }
            Again::Undo => {
                self.world.done(&words)?;
                is(&self.after, "done again, the command does not lead to the new state")?;
                self.world.done(&["undo"])?;
                let back = is(&self.before, "undo does not lead back to the old state");
                if !partial || back.is_ok() {
                    return back;
                }
                // The run that was hit did its part as an operation of its own.
                self.world.done(&["undo"])?;
                is(&self.before, "two undos do not lead back to the old state")?;
            }
            Again::Back(back) if !partial => {
                if found == Found::Old {
                    self.world.done(&words)?;
                    is(&self.after, "done again, the command does not lead to the new state")?;
                }
                self.world.done(&[back])?;
                is(&self.before, &format!("{back} does not lead back to the old state"))?;
            }
            Again::Back(_) => {}
        }
        Ok(())
    }

    fn verify(&self, when: &str) -> Result<()> {
        if self.world.cli.only_store().is_err() {
            return Ok(());
        }
        let value = self.world.done(&["verify"]).map_err(|e| format!("verify {when}: {e}"))?;
        for key in ["damage", "problems", "errors", "rows_damaged"] {
            if value[key].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(format!("verify {when}: {value}").into());
            }
        }
        Ok(())
    }
}

/// Whether any part of the path has a name that only we use.
fn is_ours(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|name| name.starts_with(TEMPORARY))
}

fn names(paths: &[&[u8]]) -> Vec<String> {
    paths.iter().take(8).map(|p| backstitch_testkit::text::brief(p)).collect()
}

fn clip(list: &[String]) -> Vec<&str> {
    list.iter().take(8).map(String::as_str).collect()
}

/// The words that run the program under strace: only these calls are traced, and only they cost time, but where a signal is
/// injected: with `--seccomp-bpf` none arrives (strace 6.1).
fn strace(log: &Path, names: &str, inject: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> = ["strace", "-f", "-y", "-s", "0", "-o"].map(str::to_owned).into();
    words.push(log.to_string_lossy().into_owned());
    if inject.is_none_or(|what| !what.contains(":signal=")) {
        words.push("--seccomp-bpf".to_owned());
    }
    // Some names are no calls of every machine.
    let names: Vec<String> = names.split(',').map(|name| format!("?{name}")).collect();
    words.extend(["-e".to_owned(), format!("trace={}", names.join(","))]);
    if let Some(inject) = inject {
        words.extend(["-e".to_owned(), format!("inject={inject}")]);
    }
    words.push("--".to_owned());
    words
}

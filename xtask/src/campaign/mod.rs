//! `cargo xtask kill-campaign`: the program is hit by a fault at many of its system calls, and must leave the old or the new
//! state, a clean store and no lock.

mod fault;
mod report;
mod scenario;
mod trace;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use fault::{Ends, FAULTS, Fault};
use report::{Report, Strike};
pub use scenario::own_workspace;
use scenario::{OPERATIONS, Operation, Scenario};
use trace::{Call, Class};

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "kill-campaign",
    about: "Kills the program (or lets a system call fail) at many moments and checks what is left",
    details: "For each operation, one run is traced to learn its system calls. Then it is run again and again on a fresh copy of\n\
              the same workspace and store, and hit each time at another call: a third of the hits are spread evenly over all\n\
              calls that touch the store, the work tree or the settings, a third over those among them that change\n\
              something, a third over those that change the store.\n\
              After each hit the next command is run. Then must hold: the tree is exactly the old or exactly the new one,\n\
              nothing of ours is left in it, `verify` is clean, no lock is left, the operation can be done again and undone,\n\
              and `git fsck --strict` finds nothing. The report shows where the hits fell. Needs strace.",
    options: &[
        Opt { name: "--runs", value: Some("N"), help: "hits in each operation (100)" },
        Opt {
            name: "--operation",
            value: Some("LIST"),
            help: "first, checkpoint, restore, undo, gc, or all (all), with commas",
        },
        Opt {
            name: "--fault",
            value: Some("LIST"),
            help: "kill (default), eio-read, eio-write, enospc, eacces, emfile, eintr, or all",
        },
        Opt { name: "--release", value: None, help: "the release build instead of the debug build" },
        Opt { name: "--binary", value: Some("FILE"), help: "this program; nothing is built" },
        Opt { name: "--seed", value: Some("N"), help: "which workspace (1)" },
        Opt { name: "--jobs", value: Some("N"), help: "how many at a time (the number of cores)" },
        Opt {
            name: "--dir",
            value: Some("DIR"),
            help: "where to work; it decides which file system is tested\n(the folder for temporary files); not in a git work tree",
        },
        Opt { name: "--json", value: Some("FILE"), help: "write every hit to this file" },
        Opt {
            name: "--keep",
            value: None,
            help: "keep the folders of the hits that found nothing wrong, too",
        },
    ],
};

/// One operation with one kind of fault.
pub struct Plan {
    operation: Operation,
    fault: &'static Fault,
    runs: usize,
    binary: PathBuf,
    seed: u64,
    jobs: usize,
    dir: PathBuf,
    keep: bool,
}

impl Plan {
    /// One line about it.
    pub fn title(&self) -> String {
        format!("fault campaign: {} during {}, {} times", self.fault.name, self.operation.name(), self.runs)
    }
}

/// The campaigns that are part of the tests.
pub fn standard(binary: &Path, runs: usize) -> Vec<Plan> {
    let dir = std::env::temp_dir();
    OPERATIONS
        .iter()
        .map(|(_, operation)| Plan {
            operation: *operation,
            fault: &FAULTS[0],
            runs,
            binary: binary.to_path_buf(),
            seed: 1,
            jobs: cores(),
            dir: dir.clone(),
            keep: false,
        })
        .collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    tools::can_trace()?;
    let binary = match options.text("--binary") {
        Some(path) => PathBuf::from(path).canonicalize().map_err(|e| format!("{path}: {e}"))?,
        None => {
            let release = options.has("--release");
            let mut args = vec!["build", "--package", "backstitch-cli"];
            args.extend(release.then_some("--release"));
            if !tools::stream(tools::cargo(args)?, |_| ())? {
                return Err("the program does not build".into());
            }
            tools::target()?.join(if release { "release" } else { "debug" }).join("backstitch")
        }
    };
    let dir = match options.text("--dir") {
        Some(dir) => std::path::absolute(dir)?,
        None => std::env::temp_dir(),
    };
    let chosen = |option: &str, default: &str| -> Vec<String> {
        options.text(option).unwrap_or(default).split(',').map(|s| s.trim().to_owned()).collect()
    };
    let mut operations = Vec::new();
    for word in chosen("--operation", "all") {
        let found: Vec<Operation> =
            OPERATIONS.iter().filter(|(name, _)| word == "all" || word == *name).map(|(_, o)| *o).collect();
        if found.is_empty() {
            return Err(format!("no operation {word:?}").into());
        }
        operations.extend(found);
    }
    let mut faults = Vec::new();
    for word in chosen("--fault", "kill") {
        let found: Vec<&'static Fault> = FAULTS.iter().filter(|f| word == "all" || word == f.name).collect();
        if found.is_empty() {
            return Err(format!("no fault {word:?}").into());
        }
        faults.extend(found);
    }
    let mut good = true;
    let mut all = Vec::new();
    for fault in faults {
        for operation in &operations {
            let plan = Plan {
                operation: *operation,
                fault,
                runs: options.value("--runs", 100)?,
                binary: binary.clone(),
                seed: options.value("--seed", 1)?,
                jobs: options.value("--jobs", cores())?.max(1),
                dir: dir.clone(),
                keep: options.has("--keep"),
            };
            println!("\n=== {}", plan.title());
            let report = strike_all(&plan)?;
            report.print();
            good &= report.good();
            all.push(report.to_json());
        }
    }
    if let Some(file) = options.text("--json") {
        fs::write(file, serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(good)
}

/// Carries one plan out, prints its report, and tells whether all was well.
pub fn carry_out(plan: &Plan) -> Result<bool> {
    let report = strike_all(plan)?;
    report.print();
    Ok(report.good())
}

fn strike_all(plan: &Plan) -> Result<Report> {
    let base = plan.dir.join(format!(
        "backstitch-campaign-{}-{}-{}",
        plan.operation.name(),
        plan.fault.name,
        std::process::id()
    ));
    if base.exists() {
        fs::remove_dir_all(&base)?;
    }
    fs::create_dir_all(&base)?;
    // Real paths, as strace shows them.
    let base = base.canonicalize()?;
    let calls = learn(plan, &base.join("learn")).map_err(|e| format!("{e}\n(kept in {})", base.display()))?;
    let suits = |c: &Call| plan.fault.calls.is_empty() || plan.fault.calls.contains(&c.name.as_str());
    let points = trace::spread(&calls, plan.runs, suits);
    let mut report = Report::new(plan.operation, plan.fault.name, &calls);
    let (next, strikes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(point) = points.get(number) else { return };
                    let strike = strike(plan, &base.join(format!("{number:03}")), point);
                    if let Ok(mut all) = strikes.lock() {
                        all.push(strike);
                    }
                }
            });
        }
    });
    report.strikes = strikes.into_inner().map_err(|_| "a thread of the campaign has panicked")?;
    report.strikes.sort_by_key(|s| s.number.clone());
    if report.good() && !plan.keep {
        remove_all(&base)?;
    }
    Ok(report)
}

/// Traces one run without a fault.
fn learn(plan: &Plan, dir: &Path) -> Result<Vec<Call>> {
    let mut scenario = Scenario::prepare(&plan.binary, dir, plan.operation, plan.seed)?;
    let log = dir.join("trace");
    let run = scenario.strike(&strace(&log, None))?;
    scenario.check_clean(&run)?;
    let stores = scenario.cli.store_dir();
    let calls = trace::read(&String::from_utf8_lossy(&fs::read(log)?), &scenario.places(&stores));
    if calls.is_empty() {
        return Err("the trace shows no system calls".into());
    }
    Ok(calls)
}

/// One hit: prepare, strike, check. Where the call is not reached (threads share their work differently each time), an earlier
/// one of the same name is tried.
fn strike(plan: &Plan, dir: &Path, point: &Call) -> Strike {
    let number = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut strike = Strike {
        number,
        dir: dir.to_path_buf(),
        at: point.clone(),
        hit: None,
        state: None,
        left: 0,
        code: None,
        wrong: None,
    };
    let mut nth = point.nth;
    for attempt in 0..6 {
        let dir = dir.join(attempt.to_string());
        match once(plan, &dir, point, nth) {
            Ok(Outcome::Hit(hit, code, state, left)) => {
                strike.hit = Some(hit);
                strike.code = code;
                strike.left = left;
                match state {
                    Ok(state) => {
                        strike.state = Some(state);
                        if !plan.keep
                            && let Err(error) = remove_all(&dir)
                        {
                            strike.wrong = Some(format!("cleaning up: {error}"));
                        }
                    }
                    Err(error) => strike.wrong = Some(error.to_string()),
                }
                return strike;
            }
            Ok(Outcome::NotReached) => nth = (nth * 3 / 4).max(1),
            Ok(Outcome::Loader) => nth += 1,
            Err(error) => {
                strike.wrong = Some(format!("the hit could not be carried out: {error}"));
                return strike;
            }
        }
    }
    strike
}

/// How a try went.
enum Outcome {
    /// The call that was hit, the exit code, what was found afterwards, and the temporaries left in the store.
    Hit(Call, Option<i32>, Result<scenario::State>, usize),
    /// The run ended before.
    NotReached,
    /// A call failed while the program was being loaded: not ours to handle.
    Loader,
}

fn once(plan: &Plan, dir: &Path, point: &Call, nth: usize) -> Result<Outcome> {
    let mut scenario = Scenario::prepare(&plan.binary, dir, plan.operation, plan.seed)?;
    let log = dir.join("trace");
    let from = if plan.fault.stays { "+" } else { "" };
    let inject = format!("{}:{}:when={nth}{from}", point.name, plan.fault.inject);
    let run = scenario.strike(&strace(&log, Some(&inject)))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let stores = scenario.cli.store_dir();
    let calls = trace::read(&text, &scenario.places(&stores));
    let killed = plan.fault.ends == Ends::Killed;
    let reached =
        if killed { text.contains("+++ killed by SIGKILL +++") } else { text.contains("(INJECTED)") };
    let hit = calls.into_iter().find(|c| c.name == point.name && c.nth == nth);
    let (true, Some(hit)) = (reached, hit) else { return Ok(Outcome::NotReached) };
    if !killed && hit.class == Class::Elsewhere {
        return Ok(Outcome::Loader);
    }
    let left = scenario.left_in_store();
    Ok(Outcome::Hit(hit, run.code, scenario.check(&run, killed), left))
}

fn strace(log: &Path, inject: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> =
        ["strace", "-f", "-y", "-s", "0", "-e", "trace=%file,%desc", "-o"].map(str::to_owned).into();
    words.push(log.to_string_lossy().into_owned());
    if let Some(inject) = inject {
        words.extend(["-e".to_owned(), format!("inject={inject}")]);
    }
    words.push("--".to_owned());
    words
}

/// Removes a folder even where a generated directory in it cannot be entered.
fn remove_all(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if fs::remove_dir_all(dir).is_ok() {
        return Ok(());
    }
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for item in fs::read_dir(&dir)? {
            let item = item?;
            if item.file_type()?.is_dir() {
                open.push(item.path());
            }
        }
    }
    Ok(fs::remove_dir_all(dir)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use backstitch_testkit::require;

    use super::*;

    /// A stand-in for the program that copies folders: its checkpoints appear by a rename, its restores take no care at all.
    const CARELESS: &str = r#"#!/bin/sh
set -e
W=$2; shift 3
S=$BACKSTITCH_STORE_DIR/stores/x
row() { echo "{\"checkpoint\":{\"id\":\"$1\"}}"; }
case $1 in
status) echo "{\"workspace\":\"$W\",\"in_flight\":null}" ;;
checkpoint)
  if [ ! -e "$S/manifest.json" ]; then
    mkdir -p "$S/rows"; git init -q --bare "$S/git"; echo '{}' > "$S/manifest.json"
  fi
  N=$(ls "$S/rows" | grep -vc tmp || true)
  rm -rf "$S"/rows/tmp*
  cp -a "$W" "$S/rows/tmp$$"; mv "$S/rows/tmp$$" "$S/rows/$N"; row "$N" ;;
list) echo '{"checkpoints":[1]}' ;;
restore)
  rm -rf "$S/before"; cp -a "$W" "$S/before"
  find "$W" -mindepth 1 -delete; cp -a "$S/rows/$2/." "$W"; echo '{"partial":false}' ;;
undo) find "$W" -mindepth 1 -delete; cp -a "$S/before/." "$W"; echo '{"partial":false}' ;;
verify) echo '{}' ;;
diff) echo '{"changes":[]}' ;;
esac
"#;

    fn campaign(script: &str, operation: Operation, name: &str) -> Report {
        let dir = std::env::temp_dir().join(format!("backstitch-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let binary = dir.join("careless");
        fs::write(&binary, script).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let plan = Plan {
            operation,
            fault: &FAULTS[0],
            runs: 9,
            binary,
            seed: 1,
            jobs: 2,
            dir: dir.clone(),
            keep: false,
        };
        let report = strike_all(&plan).unwrap();
        remove_all(&dir).unwrap();
        report
    }

    #[test]
    fn what_holds_is_not_called_wrong() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let report = campaign(CARELESS, Operation::Checkpoint, "good");
        assert!(report.good(), "{}", report.to_json());
        assert_eq!(report.strikes.len(), 9);
    }

    #[test]
    fn a_torn_tree_is_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let report = campaign(CARELESS, Operation::Restore, "torn");
        assert!(!report.good());
        let wrong = |s: &Strike| s.wrong.as_ref().is_some_and(|w| w.contains("neither the old nor the new"));
        assert!(report.strikes.iter().any(wrong), "{}", report.to_json());
    }

    #[test]
    fn a_checkpoint_that_writes_into_the_tree_is_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let script = CARELESS.replace(
            "cp -a \"$W\" \"$S/rows/tmp$$\"",
            "touch \"$W/left\"; sleep 0.1; cp -a \"$W\" \"$S/rows/tmp$$\"; rm \"$W/left\"",
        );
        let report = campaign(&script, Operation::Checkpoint, "writes");
        assert!(!report.good(), "{}", report.to_json());
    }

    #[test]
    fn damage_and_locks_are_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let damaged = CARELESS.replace("verify) echo '{}'", "verify) echo '{\"damage\":[{}]}'");
        assert!(!campaign(&damaged, Operation::Checkpoint, "damaged").good());
        let locked = CARELESS.replace("cp -a \"$W\" \"$S", ": > \"$S/git/index.lock\"; cp -a \"$W\" \"$S");
        assert!(!campaign(&locked, Operation::Checkpoint, "locked").good());
    }
}

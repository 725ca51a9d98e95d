//! `cargo xtask kill-campaign`: the program is hit by a fault at many of its system calls, and must leave the old or the new
//! state, a clean store and no lock.

mod fault;
mod image;
mod operation;
mod report;
mod round;
mod shape;
mod trace;
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fault::{FAULTS, Fault};
use operation::{OPERATIONS, Operation};
use report::{Report, Strike, Tally};
use round::{Outcome, Round};
pub use world::own_workspace;

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "kill-campaign",
    about: "Kills the program (or lets a system call fail) at many moments and checks what is left",
    details: "For each command, one run is traced to learn its system calls. Then it is run again and again in the same world,\n\
              made again as it was before each run, and hit each time at another call. Where there are more calls than\n\
              hits, a third of the hits are spread evenly over all calls that touch the store, the work tree, files outside\n\
              or the settings, a third over those among them that change something, a third over those that change the store.\n\
              After each hit the next command is run. Then must hold: the files are exactly the old or exactly the new ones,\n\
              each row that was listed is listed and sound, `verify` is clean, and after the next checkpoint nothing is left\n\
              of what the run was about. Every few hits the command is done again and taken back, too, and `git fsck\n\
              --strict` is asked. Each hit is proven by its return in the trace. Needs strace.",
    options: &[
        Opt {
            name: "--full",
            value: None,
            help: "all commands, all faults, up to 360 hits each; an hour or less",
        },
        Opt { name: "--runs", value: Some("N"), help: "hits for each command and fault (100)" },
        Opt {
            name: "--operation",
            value: Some("LIST"),
            help: "which commands, with commas (all); `list` names them",
        },
        Opt {
            name: "--fault",
            value: Some("LIST"),
            help: "which faults, with commas (kill), or all; `list` names them",
        },
        Opt { name: "--at", value: Some("CALL:N"), help: "one hit, at the Nth call of this name" },
        Opt { name: "--minutes", value: Some("N"), help: "begin no further hit after that time (58)" },
        Opt { name: "--release", value: None, help: "the release build instead of the debug build" },
        Opt { name: "--binary", value: Some("FILE"), help: "this program; nothing is built" },
        Opt { name: "--seed", value: Some("N"), help: "which workspace (1)" },
        Opt { name: "--jobs", value: Some("N"), help: "how many at a time (the number of cores)" },
        Opt {
            name: "--dir",
            value: Some("DIR"),
            help: "where to work; it decides which file system is tested\n(/dev/shm, else the folder for temporary files); not in a git work tree",
        },
        Opt { name: "--json", value: Some("FILE"), help: "write every hit to this file" },
        Opt {
            name: "--write",
            value: Some("FILE"),
            help: "put the figures into this page, between its marks",
        },
        Opt {
            name: "--add",
            value: Some("LIST"),
            help: "take up what earlier campaigns wrote with --json, for commands\nand faults that are not run now",
        },
        Opt { name: "--keep", value: None, help: "keep the folders" },
    ],
};

/// Between these lines of a page the figures stand.
const MARKS: [&str; 2] = ["<!-- system calls: ", "<!-- system calls: end -->"];

/// How often a hit is followed by doing the command again and taking it back: after each so-manieth.
const DEEP: usize = 6;

/// One campaign.
pub struct Plan {
    operations: Vec<&'static Operation>,
    faults: Vec<&'static Fault>,
    /// Hits for each fault, or for a command with all its faults together.
    runs: usize,
    together: bool,
    at: Option<(String, usize)>,
    until: Instant,
    binary: PathBuf,
    seed: u64,
    jobs: usize,
    dir: PathBuf,
    keep: bool,
}

/// The campaign that is part of the tests: all commands, killed and with every kind of error, so many hits for each command.
pub fn standard(binary: &Path, hits: usize) -> Plan {
    Plan {
        operations: OPERATIONS.iter().collect(),
        faults: FAULTS.iter().collect(),
        runs: hits,
        together: true,
        at: None,
        until: Instant::now() + Duration::from_secs(600),
        binary: binary.to_path_buf(),
        seed: 1,
        jobs: cores(),
        dir: memory(),
        keep: false,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}

/// Where files cost least.
fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let room = fs::create_dir(shared.join(format!("backstitch-probe-{}", std::process::id())));
    if room.is_err() {
        return std::env::temp_dir();
    }
    let _ = fs::remove_dir(shared.join(format!("backstitch-probe-{}", std::process::id())));
    shared
}

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    let chosen = |option: &str, default: &str| -> Vec<String> {
        options.text(option).unwrap_or(default).split(',').map(|s| s.trim().to_owned()).collect()
    };
    let full = options.has("--full");
    let operations = choose(OPERATIONS, |o| o.name, &chosen("--operation", "all"))
        .map_err(|e| format!("--operation: {e}"))?;
    let faults = choose(FAULTS, |f| f.name, &chosen("--fault", if full { "all" } else { "kill" }))
        .map_err(|e| format!("--fault: {e}"))?;
    let at = match options.text("--at") {
        None => None,
        Some(text) => {
            let (name, nth) = text.split_once(':').ok_or("--at: CALL:N")?;
            Some((name.to_owned(), nth.parse().map_err(|_| format!("--at: cannot read {nth:?}"))?))
        }
    };
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
    let minutes: u64 = options.value("--minutes", 58)?;
    let plan = Plan {
        operations,
        faults,
        runs: options.value("--runs", if full { 360 } else { 100 })?,
        together: false,
        at,
        until: Instant::now() + Duration::from_secs(minutes * 60),
        binary,
        seed: options.value("--seed", 1)?,
        jobs: options.value("--jobs", cores())?.max(1),
        dir: match options.text("--dir") {
            Some(dir) => std::path::absolute(dir)?,
            None => memory(),
        },
        keep: options.has("--keep"),
    };
    let (mut report, paths) = strike_all(&plan, true)?;
    for file in options.text("--add").into_iter().flat_map(|list| list.split(',')) {
        let earlier = serde_json::from_slice(&fs::read(file)?)?;
        report.add(&earlier).ok_or_else(|| format!("{file}: not of this program"))?;
    }
    report.print();
    if let Some(file) = options.text("--json") {
        fs::write(file, serde_json::to_vec_pretty(&report.to_json())?)?;
    }
    if let Some(file) = options.text("--write") {
        tools::write_section(file, MARKS, &report.section(&machine(&plan.dir), paths))?;
    }
    Ok(report.good())
}

fn choose<T>(
    all: &'static [T],
    name: fn(&T) -> &'static str,
    words: &[String],
) -> Result<Vec<&'static T>, String> {
    let mut out = Vec::new();
    for word in words {
        let found: Vec<&T> = all.iter().filter(|t| word == "all" || word == name(t)).collect();
        if found.is_empty() {
            let names: Vec<&str> = all.iter().map(name).collect();
            return Err(format!("one or several of {}, or all", names.join(", ")));
        }
        out.extend(found);
    }
    Ok(out)
}

fn machine(dir: &Path) -> String {
    let said = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|t| !t.is_empty())
    };
    let dir = dir.to_string_lossy();
    let kernel = said("uname", &["-sr"]).unwrap_or_else(|| "an unknown system".into());
    let disk = said("stat", &["-f", "-c", "%T", &dir]).unwrap_or_else(|| "an unknown file system".into());
    format!("{kernel}, {disk}, {} cores", cores())
}

/// Carries the campaign out, prints its report, and tells whether all was well.
pub fn carry_out(plan: &Plan) -> Result<bool> {
    let (report, _) = strike_all(plan, false)?;
    report.print();
    Ok(report.good())
}

/// The report, and the number of paths in the work tree.
fn strike_all(plan: &Plan, each: bool) -> Result<(Report, usize)> {
    let begin = Instant::now();
    let base = plan.dir.join(format!("backstitch-campaign-{}", std::process::id()));
    if base.exists() {
        remove_all(&base)?;
    }
    fs::create_dir_all(&base)?;
    // Real paths, as strace shows them.
    let base = base.canonicalize()?;
    // Parts of about one size, so that no worker is idle at the end.
    let size = if plan.together { plan.faults.len() } else { 3 };
    let parts: Vec<(&'static Operation, &[&'static Fault])> =
        plan.operations.iter().flat_map(|o| plan.faults.chunks(size).map(|f| (*o, f))).collect();
    let (next, results, paths) = (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for worker in 0..plan.jobs {
            let dir = base.join(worker.to_string());
            let (next, results, paths, parts) = (&next, &results, &paths, &parts);
            scope.spawn(move || {
                while let Some((number, (operation, faults))) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, parts.get(n)?)))
                {
                    let tallies = part(plan, &dir, operation, faults, paths);
                    if each {
                        tallies.iter().for_each(Tally::print);
                    }
                    if let Ok(mut all) = results.lock() {
                        all.push((number, tallies));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().map_err(|_| "a thread of the campaign has panicked")?;
    results.sort_by_key(|(number, _)| *number);
    let tallies: Vec<Tally> = results.into_iter().flat_map(|(_, t)| t).collect();
    let report = Report { tallies, elapsed: begin.elapsed() };
    if !each {
        report.tallies.iter().filter(|t| !t.good()).for_each(Tally::print);
    }
    if plan.keep {
        println!("kept in {}", base.display());
    } else {
        remove_all(&base)?;
    }
    Ok((report, paths.into_inner()))
}

/// One command with some faults, in one world.
fn part(
    plan: &Plan,
    dir: &Path,
    operation: &'static Operation,
    faults: &[&'static Fault],
    paths: &AtomicUsize,
) -> Vec<Tally> {
    let mut tallies: Vec<Tally> = faults
        .iter()
        .map(|fault| Tally {
            operation,
            fault,
            places: 0,
            chosen: 0,
            missed: 0,
            late: 0,
            failed: Vec::new(),
            strikes: Vec::new(),
        })
        .collect();
    if Instant::now() > plan.until {
        tallies.iter_mut().for_each(|t| (t.chosen, t.late) = (plan.runs, plan.runs));
        return tallies;
    }
    let removed = if dir.exists() { remove_all(dir) } else { Ok(()) };
    let mut round = match removed.and_then(|()| Round::prepare(&plan.binary, dir, operation, plan.seed)) {
        Ok(round) => round,
        Err(error) => {
            tallies.iter_mut().for_each(|t| t.failed.push(error.to_string()));
            return tallies;
        }
    };
    paths.fetch_max(round.paths(), Ordering::Relaxed);
    for (n, tally) in tallies.iter_mut().enumerate() {
        let all = trace::places_to_hit(&round.calls, |c| tally.fault.suits(c));
        tally.places = all.len();
        // Half of what is shared kills.
        let wanted = match (plan.together, n) {
            (true, 0) => plan.runs / 2,
            (true, _) => (plan.runs / 2 / (faults.len() - 1).max(1)).max(1),
            (false, _) => plan.runs,
        };
        let points: Vec<(String, usize)> = match &plan.at {
            Some(at) => vec![at.clone()],
            None => trace::spread(&all, wanted).into_iter().map(|c| (c.name, c.nth)).collect(),
        };
        tally.chosen = points.len();
        for (number, (name, nth)) in points.into_iter().enumerate() {
            if Instant::now() > plan.until {
                tally.late += 1;
                continue;
            }
            let deep = plan.at.is_some() || number % DEEP == DEEP / 2;
            match round.hit(tally.fault, &name, nth, deep) {
                Ok(Outcome::Hit(call, code, found)) => {
                    tally.strikes.push(Strike { call, code, found: found.map_err(|e| e.to_string()) });
                }
                Ok(Outcome::NotReached | Outcome::Elsewhere) => tally.missed += 1,
                Err(error) => tally.failed.push(format!("{name}:{nth}: {error}")),
            }
        }
    }
    tallies
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
same() { diff -rq --no-dereference "$1" "$W" > /dev/null; }
rows() { ls "$S/rows" | grep -v tmp; }
case $1 in
status) echo "{\"workspace\":\"$W\",\"in_flight\":null}" ;;
checkpoint)
  if [ ! -e "$S/manifest.json" ]; then
    mkdir -p "$S/rows"; git init -q --bare "$S/git"; echo '{}' > "$S/manifest.json"
  fi
  rm -rf "$S"/rows/tmp*
  N=$(rows | wc -l)
  cp -a "$W" "$S/rows/tmp$$"; mv "$S/rows/tmp$$" "$S/rows/$N"; echo "{\"checkpoint\":{\"id\":\"$N\"}}" ;;
list) echo "{\"checkpoints\":[$(rows | sed 's/.*/{"id":"&","tree":"t"}/' | paste -sd,)]}" ;;
restore)
  if ! same "$S/rows/$2"; then
    rm -rf "$S/before"; cp -a "$W" "$S/before"
    find "$W" -mindepth 1 -delete; cp -a "$S/rows/$2/." "$W"
  fi
  echo '{"partial":false}' ;;
undo) find "$W" -mindepth 1 -delete; cp -a "$S/before/." "$W"; echo '{"partial":false}' ;;
verify) echo '{}' ;;
diff) echo '{"changes":[]}' ;;
esac
"#;

    fn campaign(script: &str, operation: &str, name: &str) -> Report {
        let dir = std::env::temp_dir().join(format!("backstitch-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let binary = dir.join("careless");
        fs::write(&binary, script).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let plan = Plan {
            operations: choose(OPERATIONS, |o| o.name, &[operation.to_owned()]).unwrap(),
            faults: vec![&FAULTS[0]],
            runs: 5,
            together: false,
            binary,
            dir: dir.clone(),
            ..standard(Path::new(""), 0)
        };
        let report = strike_all(&plan, true).unwrap().0;
        remove_all(&dir).unwrap();
        report
    }

    fn is_found(report: &Report, what: &str) {
        assert!(!report.good());
        let mut all = report.tallies.iter().flat_map(|t| &t.strikes);
        let is = |s: &Strike| s.found.as_ref().is_err_and(|wrong| wrong.contains(what));
        assert!(all.any(is), "{what}: {}", report.to_json());
    }

    #[test]
    fn what_holds_is_not_called_wrong() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let report = campaign(CARELESS, "checkpoint", "good");
        assert!(report.good(), "{}", report.to_json());
        assert_eq!(report.distinct(), 5);
    }

    #[test]
    fn a_torn_tree_is_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        is_found(&campaign(CARELESS, "restore", "torn"), "neither the old nor the new");
    }

    #[test]
    fn a_checkpoint_that_writes_into_the_tree_is_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let script = CARELESS.replace(
            "cp -a \"$W\" \"$S/rows/tmp$$\"",
            "touch \"$W/left\"; cp -a \"$W\" \"$S/rows/tmp$$\"; rm \"$W/left\"",
        );
        is_found(&campaign(&script, "checkpoint", "writes"), "changes no files has changed");
    }

    #[test]
    fn a_lost_row_damage_and_leftovers_are_found() {
        require!(tools::can_trace().is_ok(), "needs strace");
        let lost = CARELESS.replace(
            "grep -v tmp; }",
            "grep -v tmp | if ls \"$S\"/rows/tmp* > /dev/null 2>&1; then tail -n +2; else cat; fi; }",
        );
        is_found(&campaign(&lost, "checkpoint", "lost"), "is gone");
        let damaged = CARELESS.replace(
            "verify) echo '{}'",
            "verify) if ls \"$S\"/rows/tmp* > /dev/null 2>&1; then echo '{\"damage\":[{}]}'; else echo '{}'; fi",
        );
        is_found(&campaign(&damaged, "checkpoint", "damaged"), "verify after the fault");
        let left = CARELESS.replace("  rm -rf \"$S\"/rows/tmp*\n", "");
        is_found(&campaign(&left, "checkpoint", "left"), "left behind");
    }
}

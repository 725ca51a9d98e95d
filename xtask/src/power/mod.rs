//! `cargo xtask power-loss`: what a power cut may leave of the disk at any moment is rebuilt, and opened with the program.

mod disk;
mod record;
mod story;

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::Instant,
};

use disk::{Landing, Model, Without};
use story::Story;

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "power-loss",
    about: "Rebuilds what a power cut may leave of the disk at many moments, and opens it with the program",
    details: "A script of commands is recorded with all that they write (strace). For moments in it an image of the disk is\n\
              built: what was synced is there, of the rest any part may be. The program must then work: nothing that was\n\
              reported as done is missing, the tree is the old or the new one, `verify` is clean, and life goes on.\n\
              Models of what may be missing: `journal` (ext4, xfs: names land in order, and a sync of any file that has\n\
              grown forces those before it), `ordered` (only the sync of their own directory forces them), `anything`\n\
              (each name by itself). Contents that were not synced are old, empty, zeros, or a mixture of 4 KiB blocks.\n\
              Needs strace.",
    options: &[
        Opt { name: "--runs", value: Some("N"), help: "images of each command in each model (100)" },
        Opt {
            name: "--model",
            value: Some("LIST"),
            help: "journal, ordered, anything, or all (all), with commas",
        },
        Opt { name: "--step", value: Some("LIST"), help: "only these recorded commands, with commas (all)" },
        Opt { name: "--seed", value: Some("N"), help: "which workspace and which dice (1)" },
        Opt {
            name: "--jobs",
            value: Some("N"),
            help: "how many recordings are looked at side by side (the number of cores)",
        },
        Opt { name: "--release", value: None, help: "the release build instead of the debug build" },
        Opt { name: "--binary", value: Some("FILE"), help: "this program; nothing is built" },
        Opt {
            name: "--dir",
            value: Some("DIR"),
            help: "where to work (/dev/shm if there is one, as images are many)",
        },
        Opt {
            name: "--syncs",
            value: None,
            help: "leave out each sync of each command in turn, and tell in which models that is noticed\n(--runs images for each)",
        },
        Opt { name: "--json", value: Some("FILE"), help: "write the counts to this file" },
    ],
};

/// How much is done.
pub struct Plan {
    binary: PathBuf,
    dir: PathBuf,
    runs: usize,
    models: Vec<Model>,
    steps: Vec<String>,
    seed: u64,
    jobs: usize,
}

/// The short form that is part of the tests.
pub fn standard(binary: &Path, runs: usize) -> Plan {
    Plan {
        binary: binary.to_path_buf(),
        dir: place(),
        runs,
        models: vec![Model::Journal, Model::Ordered, Model::Anything],
        steps: Vec::new(),
        seed: 1,
        jobs: cores(),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}

/// In memory where that is possible: nothing here needs a disk that is one.
fn place() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if tempfile::tempdir_in(&shm).is_ok() { shm } else { std::env::temp_dir() }
}

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    tools::can_trace()?;
    let binary = tools::program(options)?;
    let mut plan = standard(&binary, options.value("--runs", 100)?);
    if let Some(dir) = options.text("--dir") {
        plan.dir = std::path::absolute(dir)?;
    }
    plan.seed = options.value("--seed", 1)?;
    plan.jobs = options.value("--jobs", cores())?.max(1);
    plan.models = Model::ALL.to_vec();
    if let Some(list) = options.text("--model").filter(|l| *l != "all") {
        plan.models = list
            .split(',')
            .map(|w| Model::ALL.into_iter().find(|m| m.name() == w).ok_or(format!("no model {w:?}")))
            .collect::<std::result::Result<_, _>>()?;
    }
    if let Some(list) = options.text("--step").filter(|l| *l != "all") {
        plan.steps = list.split(',').map(str::to_owned).collect();
        if let Some(unknown) = plan.steps.iter().find(|s| !story::names().any(|n| n == s.as_str())) {
            return Err(format!("no step {unknown:?}").into());
        }
    }
    if options.has("--syncs") {
        return needed(&plan);
    }
    let report = carry_out(&plan)?;
    if let Some(file) = options.text("--json") {
        fs::write(file, serde_json::to_vec_pretty(&report.to_json())?)?;
    }
    Ok(report.good())
}

/// What was tried and what was found.
#[derive(Default)]
pub struct Report {
    /// By step and model: moments, distinct images.
    counts: BTreeMap<(usize, String, Model), (usize, usize)>,
    faults: Vec<String>,
}

impl Report {
    /// Nothing was lost.
    pub fn good(&self) -> bool {
        self.faults.is_empty() && self.counts.values().any(|(_, images)| *images > 0)
    }

    fn join(&mut self, other: Report) {
        for (key, (moments, images)) in other.counts {
            let count = self.counts.entry(key).or_default();
            *count = (count.0 + moments, count.1 + images);
        }
        self.faults.extend(other.faults);
    }

    fn to_json(&self) -> serde_json::Value {
        let rows: Vec<serde_json::Value> = self
            .counts
            .iter()
            .map(|((_, step, model), (moments, images))| {
                serde_json::json!({"step": step, "model": model.name(), "moments": moments, "images": images})
            })
            .collect();
        serde_json::json!({"images": rows, "faults": self.faults})
    }

    fn print(&self, seconds: f64) {
        println!("{:<22} {:>8} {:>22} {:>22} {:>22}", "command", "moments", "journal", "ordered", "anything");
        let steps: std::collections::BTreeSet<(usize, &String)> =
            self.counts.keys().map(|(n, step, _)| (*n, step)).collect();
        let count = |n: usize, step: &str, model: Model| {
            self.counts.get(&(n, step.to_owned(), model)).copied().unwrap_or_default()
        };
        for (n, step) in steps {
            let images = Model::ALL.map(|m| format!("{:>22}", count(n, step, m).1)).join(" ");
            let moments = Model::ALL.iter().map(|m| count(n, step, *m).0).max().unwrap_or_default();
            println!("{step:<22} {moments:>8} {images}");
        }
        let total: usize = self.counts.values().map(|(_, images)| images).sum();
        println!("{total} images in {seconds:.0} s, {} faults", self.faults.len());
        for fault in &self.faults {
            println!("FAULT {fault}");
        }
    }
}

/// Records, builds, looks, and prints.
pub fn carry_out(plan: &Plan) -> Result<Report> {
    let start = Instant::now();
    let results: Vec<Result<Report>> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..plan.jobs).map(|lane| scope.spawn(move || one_lane(plan, lane))).collect();
        lanes.into_iter().map(|l| l.join().unwrap_or_else(|_| Err("a thread has panicked".into()))).collect()
    });
    let mut report = Report::default();
    for result in results {
        report.join(result?);
    }
    report.print(start.elapsed().as_secs_f64());
    Ok(report)
}

/// Leaves out each sync in turn and prints whether that is noticed. Where it is not, the sync is not needed, or the script
/// and the dice did not find out why it is.
fn needed(plan: &Plan) -> Result<bool> {
    let dir = tempfile::Builder::new().prefix("backstitch-power-").tempdir_in(&plan.dir)?;
    let root = dir.path().canonicalize()?;
    let story = Story::record(&plan.binary, &root, plan.seed)?;
    for step in &story.steps {
        if !plan.steps.is_empty() && !plan.steps.contains(&step.name) {
            continue;
        }
        println!("{}", step.name);
        for (number, what) in story.disk.syncs(step.events.clone()) {
            let missed: Vec<&str> = plan
                .models
                .iter()
                .filter(|m| !look(&story, step, **m, plan.runs, plan.seed, Without::One(number)).2.is_empty())
                .map(|m| m.name())
                .collect();
            let missed = if missed.is_empty() { "not missed".to_owned() } else { missed.join(" ") };
            println!("  {missed:<26} {what}");
        }
    }
    Ok(true)
}

/// Images without any sync of a command must show faults: otherwise the check could not fail.
pub fn notices(plan: &Plan) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("backstitch-power-").tempdir_in(&plan.dir)?;
    let root = dir.path().canonicalize()?;
    let story = Story::record(&plan.binary, &root, plan.seed)?;
    for step in story
        .steps
        .iter()
        .filter(|s| ["checkpoint", "restore-many", "restore-few", "parked"].contains(&s.name.as_str()))
    {
        for model in Model::ALL {
            let without = Without::From(step.events.start);
            if look(&story, step, model, 40, plan.seed, without).2.is_empty() {
                return Err(format!(
                    "{} without any sync shows no fault in the model {}: the check cannot fail",
                    step.name,
                    model.name()
                )
                .into());
            }
        }
    }
    Ok(())
}

/// A recording of its own, as images stand where the recording was made; of its moments every `jobs`-th.
fn one_lane(plan: &Plan, lane: usize) -> Result<Report> {
    let dir = tempfile::Builder::new().prefix("backstitch-power-").tempdir_in(&plan.dir)?;
    let root = dir.path().canonicalize()?;
    let story = Story::record(&plan.binary, &root, plan.seed)?;
    let mut report = Report::default();
    for (number, step) in story.steps.iter().enumerate() {
        if !plan.steps.is_empty() && !plan.steps.contains(&step.name) {
            continue;
        }
        for model in &plan.models {
            let share = plan.runs / plan.jobs + usize::from(lane < plan.runs % plan.jobs);
            let (moments, images, faults) =
                look(&story, step, *model, share, plan.seed ^ (lane as u64) << 32, Without::Nothing);
            report.counts.insert((number, step.name.clone(), *model), (moments, images));
            report.faults.extend(faults);
        }
    }
    Ok(report)
}

/// Looks at up to `wanted` distinct images of one command.
fn look(
    story: &Story,
    step: &story::Step,
    model: Model,
    wanted: usize,
    seed: u64,
    without: Without,
) -> (usize, usize, Vec<String>) {
    let fixed = [Landing::Nothing, Landing::Everything, Landing::Names, Landing::Zeros, Landing::Data];
    // Behind each event, but of a run of writes only the first and the last.
    let all: Vec<usize> = (step.events.start + 1..=step.events.end)
        .filter(|n| story.disk.is_turn(n - 1) || *n == step.events.end || story.disk.is_turn(*n))
        .collect();
    let (mut moments, mut images, mut faults) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut round = 0u64;
    // The end first: there everything was reported.
    let mut tries = 0;
    while images.len() < wanted && tries < wanted * 6 + 12 && !all.is_empty() {
        tries += 1;
        // The end, where everything was reported, and moments before it, in turn.
        let pick = match round {
            r if r < 12 && r % 2 == 0 => all[all.len() - 1],
            r => all[usize::try_from(mix(seed, r) % all.len() as u64).unwrap_or(0)],
        };
        let landing = match round {
            r if r < 10 && r % 2 == 0 => fixed[usize::try_from(r / 2).unwrap_or(0)],
            r if r % 4 == 3 => fixed[usize::try_from(mix(seed, r + 7) % 5).unwrap_or(0)],
            r => Landing::Dice(mix(seed, r)),
        };
        round += 1;
        let image = story.disk.image(pick, model, landing, without);
        let mut hasher = DefaultHasher::new();
        (pick >= step.events.end, &image).hash(&mut hasher);
        if !images.insert(hasher.finish()) {
            continue;
        }
        moments.insert(pick);
        if let Err(error) = story.check(step, pick, &image) {
            faults.push(format!(
                "{} in the model {}, {} of {} events, {landing}: {error}",
                step.name,
                model.name(),
                pick - step.events.start,
                step.events.len()
            ));
            if faults.len() >= 5 || without != Without::Nothing {
                break;
            }
        }
    }
    (moments.len(), images.len(), faults)
}

fn mix(seed: u64, n: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, n).hash(&mut hasher);
    hasher.finish()
}

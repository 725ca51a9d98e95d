//! The table.

use std::time::Duration;

use backstitch_testkit::{Kind, TreeModel};
use serde_json::{Value, json};

use super::{
    stats::{middle, ratio, show},
    trees::Tree,
};

/// What one operation took, round by round.
#[derive(Default)]
pub struct Samples {
    /// Which operation.
    pub name: String,
    /// Ours.
    pub ours: Vec<Duration>,
    /// Git's.
    pub git: Vec<Duration>,
    /// The bare program's.
    pub bare: Vec<Duration>,
    /// Our processor time; unlike the clock, it hardly depends on who else works.
    pub ours_cpu: Vec<Duration>,
    /// Git's.
    pub git_cpu: Vec<Duration>,
    /// Whether somebody else worked on the machine at the time.
    pub disturbed: bool,
}

/// What was measured and found on one tree.
pub struct Report {
    tree: Tree,
    files: usize,
    dirs: usize,
    links: usize,
    samples: Vec<Samples>,
    facts: Vec<(String, Result<(), String>)>,
    /// Bytes of our store after the first checkpoint.
    pub first_store: u64,
    /// Bytes of git's.
    pub git_first_store: u64,
    /// Bytes of our store at the end.
    pub store: u64,
    /// Bytes of git's.
    pub git_store: u64,
    /// The most memory of a first checkpoint.
    pub peak_mib: u64,
}

/// What is wanted on a large tree: the operation, the least ratio of git to us, the greatest ratio of us to the bare program.
const GOALS: &[(&str, f64, f64)] = &[
    ("first", 6.0, f64::INFINITY),
    ("unchanged", 2.8, 1.6),
    ("10", 3.0, f64::INFINITY),
    ("1000", 6.0, f64::INFINITY),
    ("restore-10", 5.0, f64::INFINITY),
    ("restore-1000", 3.5, f64::INFINITY),
    ("restore-half", 3.0, f64::INFINITY),
    ("seeded", 100.0, 2.0),
];

impl Report {
    /// An empty one.
    pub fn new(tree: Tree, model: &TreeModel) -> Report {
        Report {
            tree,
            files: model.count(Kind::File),
            dirs: model.count(Kind::Dir),
            links: model.count(Kind::Link),
            samples: Vec::new(),
            facts: Vec::new(),
            first_store: 0,
            git_first_store: 0,
            store: 0,
            git_store: 0,
            peak_mib: 0,
        }
    }

    /// What the tree is.
    pub fn head(&self) -> String {
        format!("{} files, {} links, {} folders", self.files, self.links, self.dirs)
    }

    /// The samples of an operation.
    pub fn samples(&mut self, operation: &str) -> &mut Samples {
        let at = match self.samples.iter().position(|s| s.name == operation) {
            Some(at) => at,
            None => {
                self.samples.push(Samples { name: operation.to_owned(), ..Samples::default() });
                self.samples.len() - 1
            }
        };
        &mut self.samples[at]
    }

    /// Something that must hold. Said again, a failure stays.
    pub fn fact(&mut self, what: &str, holds: Result<(), String>) {
        match self.facts.iter_mut().find(|(known, _)| known == what) {
            Some((_, known)) if known.is_ok() => *known = holds,
            Some(_) => {}
            None => self.facts.push((what.to_owned(), holds)),
        }
    }

    /// Whether everything that must hold does.
    pub fn correct(&self) -> bool {
        self.facts.iter().all(|(_, holds)| holds.is_ok())
    }

    /// Whether every ratio is as wanted.
    pub fn reaches_goals(&self) -> bool {
        self.samples.iter().all(|s| self.misses(s).is_empty())
    }

    fn misses(&self, samples: &Samples) -> Vec<String> {
        let goal = GOALS.iter().find(|(name, ..)| *name == samples.name);
        // On a small tree a process is mostly its start.
        let Some((_, least, most)) = goal.filter(|_| !self.tree.is_small()) else { return Vec::new() };
        let mut out = Vec::new();
        if ratio(&samples.git, &samples.ours).is_some_and(|r| r < *least) {
            out.push(format!("git/ours < {least}"));
        }
        if ratio(&samples.ours, &samples.bare).is_some_and(|r| r > *most) {
            out.push(format!("ours/bare > {most}"));
        }
        out
    }

    /// The table and the facts.
    pub fn print(&self) {
        println!("{} ({})", self.tree.title(), self.head());
        println!(
            "{:<14} {:>10} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>3}",
            "operation", "ours", "git", "git/ours", "bare", "ours/bare", "cpu ours", "cpu git", "n"
        );
        for samples in &self.samples {
            let time = |list: &[Duration]| middle(list).map_or("-".into(), show);
            let times = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.2}"));
            let mut notes = self.misses(samples);
            if samples.disturbed {
                notes.push("busy machine".into());
            }
            println!(
                "{:<14} {:>10} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>3}  {}",
                samples.name,
                time(&samples.ours),
                time(&samples.git),
                times(ratio(&samples.git, &samples.ours)),
                time(&samples.bare),
                times(ratio(&samples.ours, &samples.bare)),
                time(&samples.ours_cpu),
                time(&samples.git_cpu),
                samples.ours.len(),
                notes.join(", ")
            );
        }
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        if self.first_store > 0 {
            print!("store after the first checkpoint: {}", mib(self.first_store));
            if self.git_first_store > 0 {
                let share = self.first_store as f64 / self.git_first_store as f64;
                print!(", git {}, ours/git {share:.2}", mib(self.git_first_store));
            }
            println!("; most memory of it: {} MiB", self.peak_mib);
        }
        println!("stores at the end: ours {}, git {}", mib(self.store), mib(self.git_store));
        for (what, holds) in &self.facts {
            match holds {
                Ok(()) => println!("ok: {what}"),
                Err(why) => println!("WRONG: {what}\n  {}", why.trim_end().replace('\n', "\n  ")),
            }
        }
    }

    /// Everything, for a machine.
    pub fn to_json(&self) -> Value {
        let seconds = |list: &[Duration]| list.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        let operations: Vec<Value> = self
            .samples
            .iter()
            .map(|s| {
                json!({
                    "operation": s.name,
                    "ours_s": seconds(&s.ours), "git_s": seconds(&s.git), "bare_s": seconds(&s.bare),
                    "ours_cpu_s": seconds(&s.ours_cpu), "git_cpu_s": seconds(&s.git_cpu),
                    "median_s": { "ours": middle(&s.ours).map(|d| d.as_secs_f64()), "git": middle(&s.git).map(|d| d.as_secs_f64()),
                                  "bare": middle(&s.bare).map(|d| d.as_secs_f64()) },
                    "git_to_ours": ratio(&s.git, &s.ours), "ours_to_bare": ratio(&s.ours, &s.bare),
                    "busy": s.disturbed, "misses": self.misses(s),
                })
            })
            .collect();
        let facts: Vec<Value> = self
            .facts
            .iter()
            .map(|(what, holds)| json!({ "what": what, "holds": holds.is_ok(), "why": holds.as_ref().err() }))
            .collect();
        json!({
            "tree": self.tree.name(), "files": self.files, "links": self.links, "folders": self.dirs, "operations": operations,
            "facts": facts, "first_store_bytes": self.first_store, "git_first_store_bytes": self.git_first_store,
            "store_bytes": self.store, "git_store_bytes": self.git_store, "first_peak_mib": self.peak_mib,
        })
    }
}

//! Where the hits fell, and what was left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    fault::{FAULTS, Fault},
    operation::{OPERATIONS, Operation},
    round::Found,
    trace::{Call, Class},
};

/// What a hit came to.
pub struct Strike {
    /// The call that was hit.
    pub call: Call,
    /// The exit code of the run; `None` if it was killed.
    pub code: Option<i32>,
    /// What was found, or what does not hold.
    pub found: Result<Found, String>,
}

/// All hits of one command with one fault.
pub struct Tally {
    /// The command.
    pub operation: &'static Operation,
    /// The fault.
    pub fault: &'static Fault,
    /// How many places there are in a run.
    pub places: usize,
    /// How many were chosen.
    pub chosen: usize,
    /// Runs that ended before the chosen call, or hit one that is not ours.
    pub missed: usize,
    /// Chosen, and not tried for want of time.
    pub late: usize,
    /// What came to nothing, with the place.
    pub failed: Vec<String>,
    /// The hits.
    pub strikes: Vec<Strike>,
}

/// Of fewer hits than these, how many did hit is chance: threads come in their own order.
const FEW: usize = 20;

fn most(hits: usize, tried: usize) -> bool {
    hits * 10 >= tried * 8
}

impl Tally {
    /// Hits that differ in call, number or place.
    pub fn distinct(&self) -> usize {
        let places: BTreeSet<(&str, usize, Class)> =
            self.strikes.iter().map(|s| (&*s.call.name, s.call.nth, s.call.class)).collect();
        places.len()
    }

    /// Hits after which something did not hold.
    pub fn wrong(&self) -> impl Iterator<Item = &Strike> {
        self.strikes.iter().filter(|s| s.found.is_err())
    }

    /// Whether nothing is wrong, and, of more than a few, most of the hits did hit.
    pub fn good(&self) -> bool {
        let sound = self.failed.is_empty() && self.wrong().count() == 0;
        sound && (self.tried() < FEW || most(self.strikes.len(), self.tried()))
    }

    fn tried(&self) -> usize {
        self.chosen - self.late
    }

    /// One line, and one for each thing that is wrong.
    pub fn print(&self) {
        let count = |state: Found| self.strikes.iter().filter(|s| s.found == Ok(state)).count();
        let mut codes: BTreeMap<Option<i32>, usize> = BTreeMap::new();
        self.strikes.iter().for_each(|s| *codes.entry(s.code).or_default() += 1);
        let codes: Vec<String> =
            codes.iter().filter_map(|(code, n)| code.map(|code| format!("{code}: {n}"))).collect();
        println!(
            "{:<14} {:<10} {:>5} hits of {:>5} places: {:>4} old {:>4} new {:>5} same {:>3} WRONG{}{}{}",
            self.operation.name,
            self.fault.name,
            self.distinct(),
            self.places,
            count(Found::Old),
            count(Found::New),
            count(Found::Same),
            self.wrong().count(),
            if codes.is_empty() { String::new() } else { format!("  exit {}", codes.join(", ")) },
            if self.missed > 0 { format!("  {} missed", self.missed) } else { String::new() },
            if self.late > 0 { format!("  {} not tried in time", self.late) } else { String::new() },
        );
        for strike in self.wrong() {
            println!(
                "WRONG: {} ({})\n  {}",
                self.repeat(&strike.call),
                strike.call.class,
                match &strike.found {
                    Err(wrong) => wrong.replace('\n', "\n  "),
                    Ok(_) => String::new(),
                }
            );
        }
        for failed in &self.failed {
            println!("WRONG: {} {}: {failed}", self.operation.name, self.fault.name);
        }
    }

    /// The command that does one hit again.
    fn repeat(&self, call: &Call) -> String {
        format!(
            "cargo xtask kill-campaign --operation {} --fault {} --at {}:{} --keep",
            self.operation.name, self.fault.name, call.name, call.nth
        )
    }

    fn to_json(&self) -> Value {
        let hits: Vec<Value> = self
            .strikes
            .iter()
            .map(|s| {
                json!({
                    "call": s.call.name, "nth": s.call.nth, "phase": s.call.class.to_string(), "code": s.code,
                    "state": s.found.as_ref().ok().map(|f| format!("{f:?}").to_lowercase()),
                    "wrong": s.found.as_ref().err(),
                })
            })
            .collect();
        json!({
            "operation": self.operation.name, "fault": self.fault.name, "places": self.places, "chosen": self.chosen,
            "missed": self.missed, "late": self.late, "failed": self.failed, "hits": hits,
        })
    }
}

impl Tally {
    fn of_json(value: &Value) -> Option<Tally> {
        let number = |key: &str| value[key].as_u64().and_then(|n| usize::try_from(n).ok());
        let strike = |hit: &Value| -> Option<Strike> {
            let class = Class::ALL.iter().find(|c| hit["phase"] == c.to_string())?;
            let states = [("old", Found::Old), ("new", Found::New), ("same", Found::Same)];
            let state = states.iter().find(|(name, _)| hit["state"] == *name);
            Some(Strike {
                call: Call {
                    name: hit["call"].as_str()?.to_owned(),
                    nth: usize::try_from(hit["nth"].as_u64()?).ok()?,
                    class: *class,
                    changes: false,
                    output: false,
                },
                code: hit["code"].as_i64().and_then(|code| i32::try_from(code).ok()),
                found: state.map(|(_, s)| *s).ok_or_else(|| hit["wrong"].as_str().unwrap_or("?").to_owned()),
            })
        };
        Some(Tally {
            operation: OPERATIONS.iter().find(|o| value["operation"] == o.name)?,
            fault: FAULTS.iter().find(|f| value["fault"] == f.name)?,
            places: number("places")?,
            chosen: number("chosen")?,
            missed: number("missed")?,
            late: number("late")?,
            failed: value["failed"]
                .as_array()?
                .iter()
                .map(|f| f.as_str().unwrap_or_default().to_owned())
                .collect(),
            strikes: value["hits"].as_array()?.iter().map(strike).collect::<Option<_>>()?,
        })
    }
}

/// Everything that was tried.
pub struct Report {
    /// One for each command and fault.
    pub tallies: Vec<Tally>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// Whether nothing is wrong, and most of all hits did hit.
    pub fn good(&self) -> bool {
        let hits: usize = self.tallies.iter().map(|t| t.strikes.len()).sum();
        let tried = self.tallies.iter().map(Tally::tried).sum();
        self.tallies.iter().all(Tally::good) && hits > 0 && most(hits, tried)
    }

    /// Distinct hits.
    pub fn distinct(&self) -> usize {
        self.tallies.iter().map(Tally::distinct).sum()
    }

    fn wrong(&self) -> usize {
        self.tallies.iter().map(|t| t.wrong().count() + t.failed.len()).sum()
    }

    /// Where the hits fell: by place and kind of call.
    fn by_place(&self) -> BTreeMap<Class, BTreeMap<&'static str, usize>> {
        let mut rows: BTreeMap<Class, BTreeMap<&'static str, usize>> = BTreeMap::new();
        for tally in &self.tallies {
            for strike in &tally.strikes {
                *rows.entry(strike.call.class).or_default().entry(tally.fault.name).or_default() += 1;
            }
        }
        rows
    }

    /// The closing lines.
    pub fn print(&self) {
        println!("\n{}", self.table());
        println!("{}", self.sentence());
    }

    fn sentence(&self) -> String {
        let all: usize = self.tallies.iter().map(|t| t.strikes.len()).sum();
        let late: usize = self.tallies.iter().map(|t| t.late).sum();
        let missed: usize = self.tallies.iter().map(|t| t.missed).sum();
        let mut text = format!(
            "{all} faults, {} of them distinct, in {} minutes: {}.",
            self.distinct(),
            (self.elapsed.as_secs() + 30) / 60,
            match self.wrong() {
                0 => "nothing lost".to_owned(),
                n => format!("{n} WRONG"),
            }
        );
        if missed > 0 {
            let _ = write!(
                text,
                " {missed} runs ended before the chosen call or hit none of ours, and do not count."
            );
        }
        if late > 0 {
            let _ = write!(text, " {late} were not tried in time.");
        }
        text
    }

    /// Both tables, as Markdown.
    fn table(&self) -> String {
        let faults: Vec<&Fault> =
            FAULTS.iter().filter(|f| self.tallies.iter().any(|t| t.fault.name == f.name)).collect();
        let mut out = String::from("| command |");
        let head = |out: &mut String| {
            for fault in &faults {
                let _ = write!(out, " {} |", fault.title());
            }
            out.push_str(" all |\n|---|");
            out.push_str(&"---:|".repeat(faults.len() + 1));
            out.push('\n');
        };
        head(&mut out);
        let cell = |out: &mut String, n: usize| {
            let _ = if n == 0 { write!(out, " |") } else { write!(out, " {n} |") };
        };
        let mut sums = vec![0; faults.len() + 1];
        for operation in OPERATIONS {
            let of: Vec<&Tally> =
                self.tallies.iter().filter(|t| t.operation.name == operation.name).collect();
            if of.is_empty() {
                continue;
            }
            let _ = write!(out, "| `{}` |", operation.typed);
            let mut all = 0;
            for (n, fault) in faults.iter().enumerate() {
                let count = of.iter().filter(|t| t.fault.name == fault.name).map(|t| t.distinct()).sum();
                cell(&mut out, count);
                sums[n] += count;
                all += count;
            }
            cell(&mut out, all);
            sums[faults.len()] += all;
            out.push('\n');
        }
        out.push_str("| all |");
        sums.iter().for_each(|n| cell(&mut out, *n));
        out.push_str("\n\n| place |");
        head(&mut out);
        for (class, row) in self.by_place() {
            let _ = write!(out, "| {class} |");
            faults.iter().for_each(|f| cell(&mut out, row.get(f.name).copied().unwrap_or(0)));
            cell(&mut out, row.values().sum());
            out.push('\n');
        }
        out
    }

    /// The section of the page on reliability.
    pub fn section(&self, machine: &str, paths: usize) -> String {
        format!(
            "{}\n\nOn {machine}; the work tree holds {paths} paths. A fault is counted once for each command, system call, how-manieth call of its\n\
             thread and place, and only if its return is in the trace.\n\n{}",
            self.sentence(),
            self.table()
        )
    }

    /// Everything, for a machine.
    pub fn to_json(&self) -> Value {
        json!({
            "distinct": self.distinct(), "wrong": self.wrong(), "seconds": self.elapsed.as_secs(),
            "campaigns": self.tallies.iter().map(Tally::to_json).collect::<Vec<_>>(),
        })
    }

    /// Adds what an earlier campaign found, from what [`Report::to_json`] gave. Of two of one command and fault the fuller stays.
    pub fn add(&mut self, earlier: &Value) -> Option<()> {
        self.elapsed += Duration::from_secs(earlier["seconds"].as_u64()?);
        for value in earlier["campaigns"].as_array()? {
            let tally = Tally::of_json(value)?;
            let same =
                |t: &Tally| t.operation.name == tally.operation.name && t.fault.name == tally.fault.name;
            if !self.tallies.iter().any(|t| same(t) && t.distinct() >= tally.distinct()) {
                self.tallies.retain(|t| !same(t));
                self.tallies.push(tally);
            }
        }
        Some(())
    }
}

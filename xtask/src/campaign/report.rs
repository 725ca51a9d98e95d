//! Where the hits fell, and what was left.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};

use super::{
    scenario::{Operation, State},
    trace::{Call, Class},
};

/// One hit.
pub struct Strike {
    /// Its number, as text.
    pub number: String,
    /// Where it was carried out.
    pub dir: PathBuf,
    /// The call that was chosen.
    pub at: Call,
    /// The call that was hit, in the run that was hit; `None` if the run ended before.
    pub hit: Option<Call>,
    /// The state that was found.
    pub state: Option<State>,
    /// Temporaries left in the store.
    pub left: usize,
    /// The exit code of the run.
    pub code: Option<i32>,
    /// What does not hold.
    pub wrong: Option<String>,
}

/// All hits of one operation.
pub struct Report {
    operation: Operation,
    fault: &'static str,
    calls: usize,
    relevant: usize,
    changing: usize,
    /// The hits.
    pub strikes: Vec<Strike>,
}

impl Report {
    /// An empty one.
    pub fn new(operation: Operation, fault: &'static str, calls: &[Call]) -> Report {
        let relevant = || calls.iter().filter(|c| c.class != Class::Elsewhere);
        Report {
            operation,
            fault,
            calls: calls.len(),
            relevant: relevant().count(),
            changing: relevant().filter(|c| c.changes).count(),
            strikes: Vec::new(),
        }
    }

    /// Whether nothing is wrong, and most of the hits did hit.
    pub fn good(&self) -> bool {
        let hits = self.strikes.iter().filter(|s| s.hit.is_some()).count();
        self.strikes.iter().all(|s| s.wrong.is_none()) && hits * 10 >= self.strikes.len() * 8 && hits > 0
    }

    /// The table.
    pub fn print(&self) {
        println!(
            "a run of `{}` makes {} file calls; {} touch the store, the work tree or the settings, {} of them change something",
            self.operation.name(),
            self.calls,
            self.relevant,
            self.changing
        );
        let mut rows: BTreeMap<(Class, &str), [usize; 5]> = BTreeMap::new();
        let mut codes: BTreeMap<Option<i32>, usize> = BTreeMap::new();
        for strike in &self.strikes {
            let Some(hit) = &strike.hit else { continue };
            let row = rows.entry((hit.class, &hit.name)).or_default();
            row[0] += 1;
            match (&strike.wrong, strike.state) {
                (Some(_), _) => row[4] += 1,
                (None, Some(State::Old)) => row[1] += 1,
                (None, Some(State::New)) => row[2] += 1,
                (None, _) => row[3] += 1,
            }
            *codes.entry(strike.code).or_default() += 1;
        }
        println!(
            "  {:<22} {:<16} {:>5} {:>5} {:>5} {:>9} {:>6}",
            "phase", "call", "hits", "old", "new", "untouched", "WRONG"
        );
        let mut sum = [0; 5];
        for ((class, name), row) in &rows {
            println!(
                "  {class:<22} {name:<16} {:>5} {:>5} {:>5} {:>9} {:>6}",
                row[0], row[1], row[2], row[3], row[4]
            );
            sum.iter_mut().zip(row).for_each(|(s, n)| *s += n);
        }
        println!(
            "  {:<22} {:<16} {:>5} {:>5} {:>5} {:>9} {:>6}",
            "all", "", sum[0], sum[1], sum[2], sum[3], sum[4]
        );
        let missed = self.strikes.iter().filter(|s| s.hit.is_none() && s.wrong.is_none()).count();
        if missed > 0 {
            println!("  {missed} runs ended before the chosen call");
        }
        if self.fault != "kill" {
            let text: Vec<String> = codes
                .iter()
                .map(|(code, n)| format!("{}: {n}", code.map_or("signal".to_owned(), |c| c.to_string())))
                .collect();
            println!("  exit codes: {}", text.join(", "));
        }
        let left = self.strikes.iter().filter(|s| s.left > 0).count();
        if left > 0 {
            println!("  {left} hits left temporaries in the store (space only)");
        }
        for strike in self.strikes.iter().filter(|s| s.wrong.is_some()) {
            println!(
                "WRONG: {} number {} {} #{} ({}), kept in {}\n  {}",
                self.operation.name(),
                strike.number,
                strike.at.name,
                strike.at.nth,
                strike.hit.as_ref().map_or("not reached".to_owned(), |h| h.class.to_string()),
                strike.dir.display(),
                strike.wrong.as_deref().unwrap_or_default().replace('\n', "\n  ")
            );
        }
    }

    /// Everything, for a machine.
    pub fn to_json(&self) -> Value {
        let hits: Vec<Value> = self
            .strikes
            .iter()
            .map(|s| {
                json!({
                    "number": s.number, "call": s.at.name, "nth": s.at.nth,
                    "phase": s.hit.as_ref().map(|h| h.class.to_string()),
                    "thread_nth": s.hit.as_ref().map(|h| h.nth),
                    "state": s.state.map(|t| format!("{t:?}").to_lowercase()),
                    "code": s.code, "left_in_store": s.left, "wrong": s.wrong,
                })
            })
            .collect();
        json!({
            "operation": self.operation.name(), "fault": self.fault, "calls": self.calls, "relevant_calls": self.relevant,
            "changing_calls": self.changing, "hits": hits, "good": self.good(),
        })
    }
}

//! What was measured and found on one tree.

use serde_json::{Value, json};

use super::{
    goals::{self, Verdict},
    row::{BARE, GIT, Made, OURS, Row},
    stats::seconds,
};

/// One tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Its name.
    pub tree: String,
    /// What it is.
    pub title: String,
    /// How many regular files it holds.
    pub files: u64,
    /// How many links.
    pub links: u64,
    /// How many folders.
    pub dirs: u64,
    /// How many bytes are in the files.
    pub bytes: u64,
    /// The operations.
    pub rows: Vec<Row>,
    /// What must hold, and why it does not.
    facts: Vec<(String, Result<(), String>)>,
    /// Of the rows that are still to come.
    made: Made,
}

impl Report {
    /// An empty one.
    pub fn new(tree: &str, title: &str, made: &Made) -> Report {
        Report { tree: tree.to_owned(), title: title.to_owned(), made: made.clone(), ..Report::default() }
    }

    /// How large the tree is.
    pub fn head(&self) -> String {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        format!("{} files with {mib:.1} MiB, {} links, {} folders", self.files, self.links, self.dirs)
    }

    /// The row of an operation.
    pub fn row(&mut self, operation: &str) -> &mut Row {
        let at = match self.rows.iter().position(|s| s.operation == operation) {
            Some(at) => at,
            None => {
                self.rows.push(Row::new(operation, &self.made));
                self.rows.len() - 1
            }
        };
        &mut self.rows[at]
    }

    /// Something that must hold. Said again, a failure stays.
    pub fn fact(&mut self, what: &str, holds: Result<(), String>) {
        match self.facts.iter_mut().find(|(known, _)| known == what) {
            Some((_, known)) if known.is_ok() => *known = holds,
            Some(_) => {}
            None => self.facts.push((what.to_owned(), holds)),
        }
    }

    /// What must hold, in order.
    pub fn facts(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.facts.iter().map(|(what, holds)| (what.as_str(), holds.as_ref().err().map(String::as_str)))
    }

    /// Whether everything that must hold does.
    pub fn correct(&self) -> bool {
        self.facts.iter().all(|(_, holds)| holds.is_ok())
    }

    /// How many goals came to each verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let of = |row| goals::judge(&self.tree, row).filter(|(_, _, v)| *v == verdict).count();
        self.rows.iter().map(of).sum()
    }

    /// Whether every goal is reached.
    pub fn reaches_goals(&self) -> bool {
        self.count(Verdict::Near) + self.count(Verdict::Missed) == 0
    }

    /// The table and the facts.
    pub fn print(&self) {
        println!("{} ({})", self.title, self.head());
        println!(
            "{:<22} {:>10} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>3}",
            "operation", "ours", "git", "git/ours", "bare", "ours/bare", "cpu ours", "cpu git", "n"
        );
        let time = |value: Option<f64>| value.map_or("-".into(), seconds);
        let times = |value: Option<f64>| value.map_or("-".into(), |r| format!("{r:.2}"));
        for row in &self.rows {
            let mut notes: Vec<String> = goals::judge(&self.tree, row)
                .map(|(goal, _, verdict)| format!("{} {}", goal.measure, verdict.word()))
                .collect();
            if row.busy {
                notes.push("busy machine".into());
            }
            let others: Vec<(&String, &Vec<f64>)> =
                row.seconds.iter().filter(|(who, _)| ![OURS, GIT, BARE].contains(&who.as_str())).collect();
            for (who, _) in others {
                notes.push(format!("{who} {}", time(row.middle(who))));
            }
            println!(
                "{:<22} {:>10} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>3}  {}",
                row.operation,
                time(row.middle(OURS)),
                time(row.middle(GIT)),
                times(row.ratio(GIT, OURS)),
                time(row.middle(BARE)),
                times(row.ratio(OURS, BARE)),
                time(row.middle_cpu(OURS)),
                time(row.middle_cpu(GIT)),
                row.of(OURS).len(),
                notes.join("; ")
            );
            for (name, value) in &row.figures {
                println!("{:<22} {value:>10.2} {name}", "");
            }
        }
        println!(
            "goals: {} reached, {} missed within 1.5, {} missed",
            self.count(Verdict::Reached),
            self.count(Verdict::Near),
            self.count(Verdict::Missed)
        );
        for (what, holds) in &self.facts {
            match holds {
                Ok(()) => println!("ok: {what}"),
                Err(why) => println!("WRONG: {what}\n  {}", why.trim_end().replace('\n', "\n  ")),
            }
        }
    }

    /// Everything, for a machine.
    pub fn to_json(&self) -> Value {
        let operations: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let mut value = row.to_json();
                value["median_s"] =
                    json!({ "ours": row.middle(OURS), "git": row.middle(GIT), "bare": row.middle(BARE) });
                value["git_to_ours"] = json!(row.ratio(GIT, OURS));
                value["ours_to_bare"] = json!(row.ratio(OURS, BARE));
                let judged = goals::judge(&self.tree, row).map(|(goal, reached, verdict)| {
                    json!({ "goal": goal.measure.to_string(), "value": reached, "verdict": verdict.word() })
                });
                value["goals"] = judged.collect();
                value
            })
            .collect();
        let facts: Vec<Value> = self
            .facts
            .iter()
            .map(|(what, holds)| json!({ "what": what, "holds": holds.is_ok(), "why": holds.as_ref().err() }))
            .collect();
        json!({
            "tree": self.tree, "title": self.title, "files": self.files, "links": self.links, "folders": self.dirs,
            "bytes": self.bytes, "operations": operations, "facts": facts,
        })
    }

    /// What [`Report::to_json`] gave.
    pub fn of_json(value: &Value) -> Option<Report> {
        let fact = |v: &Value| -> Option<(String, Result<(), String>)> {
            let why = v["why"].as_str().unwrap_or("?").to_owned();
            Some((v["what"].as_str()?.to_owned(), if v["holds"].as_bool()? { Ok(()) } else { Err(why) }))
        };
        Some(Report {
            tree: value["tree"].as_str()?.to_owned(),
            title: value["title"].as_str()?.to_owned(),
            files: value["files"].as_u64()?,
            links: value["links"].as_u64()?,
            dirs: value["folders"].as_u64()?,
            bytes: value["bytes"].as_u64()?,
            rows: value["operations"].as_array()?.iter().map(Row::of_json).collect::<Option<_>>()?,
            facts: value["facts"].as_array()?.iter().map(fact).collect::<Option<_>>()?,
            made: Made::default(),
        })
    }

    fn newest(&self) -> &str {
        self.rows.iter().map(|row| row.made.date.as_str()).max().unwrap_or_default()
    }

    /// Takes up another report of the same tree: of each operation the newer row stays.
    fn take_up(&mut self, other: Report) {
        if other.newest() >= self.newest() {
            self.facts.retain(|(what, _)| !other.facts.iter().any(|(known, _)| known == what));
            self.facts.extend(other.facts);
            (self.files, self.links, self.dirs, self.bytes) =
                (other.files, other.links, other.dirs, other.bytes);
            self.title = other.title;
        } else {
            let missing = |(what, _): &(String, _)| !self.facts.iter().any(|(known, _)| known == what);
            let more: Vec<_> = other.facts.into_iter().filter(missing).collect();
            self.facts.extend(more);
        }
        for row in other.rows {
            match self.rows.iter_mut().find(|known| known.operation == row.operation) {
                Some(known) if row.made.date >= known.made.date => *known = row,
                Some(_) => {}
                None => self.rows.push(row),
            }
        }
    }
}

/// Adds what an earlier run wrote with `--json`.
pub fn add(reports: &mut Vec<Report>, earlier: &Value) -> Option<()> {
    for value in earlier["trees"].as_array()? {
        let report = Report::of_json(value)?;
        match reports.iter_mut().find(|known| known.tree == report.tree) {
            Some(known) => known.take_up(report),
            None => reports.push(report),
        }
    }
    Some(())
}

/// The document of a run.
pub fn document(reports: &[Report]) -> Value {
    json!({ "trees": reports.iter().map(Report::to_json).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn measured(tree: &str, date: &str, rows: &[(&str, u64)]) -> Report {
        let made = Made { machine: "m".into(), date: date.into(), commit: "c".into() };
        let mut report = Report::new(tree, "A tree", &made);
        for (operation, ms) in rows {
            report.row(operation).add(OURS, Duration::from_millis(*ms));
        }
        report
    }

    fn middle(report: &Report, operation: &str) -> Option<f64> {
        report.rows.iter().find(|r| r.operation == operation)?.middle(OURS)
    }

    #[test]
    fn of_several_runs_the_newest_row_stays() {
        let mut old = measured("linux", "2026-01-01T00:00:00Z", &[("10", 1), ("1000", 2)]);
        old.fact("sound", Err("it was not".into()));
        let mut new = measured("linux", "2026-01-02T00:00:00Z", &[("10", 3), ("first", 4)]);
        new.fact("sound", Ok(()));
        let other = measured("small", "2026-01-03T00:00:00Z", &[("10", 5)]);
        for order in [[&old, &new], [&new, &old]] {
            let mut all = vec![other.clone()];
            for report in order {
                add(&mut all, &document(std::slice::from_ref(report))).unwrap();
            }
            assert_eq!(all.len(), 2);
            let linux = all.iter().find(|r| r.tree == "linux").unwrap();
            assert_eq!(middle(linux, "10"), Some(0.003));
            assert_eq!((middle(linux, "1000"), middle(linux, "first")), (Some(0.002), Some(0.004)));
            assert!(linux.correct(), "{order:?}");
        }
        assert_eq!(add(&mut Vec::new(), &json!({ "trees": [{ "tree": "linux" }] })), None);
        assert_eq!(add(&mut Vec::new(), &json!({})), None);
    }

    #[test]
    fn goals_are_counted() {
        let report = measured(
            "small",
            "d",
            &[("tool-before", 5), ("tool-after", 8), ("watched-10", 60), ("unchanged", 10)],
        );
        let counts = [Verdict::Reached, Verdict::Near, Verdict::Missed].map(|v| report.count(v));
        assert_eq!(counts, [1, 1, 1]);
        assert!(!report.reaches_goals());
        assert!(measured("small", "d", &[("tool-before", 5)]).reaches_goals());
    }
}

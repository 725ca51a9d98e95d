//! What was measured of one operation on one tree, as it is kept between runs.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::stats;

/// Names of those that take part; other tools go by the names of their programs.
pub const OURS: &str = "ours";
pub const GIT: &str = "git";
pub const BARE: &str = "bare";

/// Where and when something was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The machine, in a line.
    pub machine: String,
    /// In UTC, so that later ones sort later.
    pub date: String,
    /// The commit of the program.
    pub commit: String,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Which one.
    pub operation: String,
    /// Seconds, round by round, of each that took part.
    pub seconds: BTreeMap<String, Vec<f64>>,
    /// Seconds of the processor; unlike the clock, they hardly depend on who else works.
    pub cpu: BTreeMap<String, Vec<f64>>,
    /// Whatever is no time, by its name, of which the last word may be a unit.
    pub figures: BTreeMap<String, f64>,
    /// Whether somebody else worked on the machine at the time.
    pub busy: bool,
    /// Where and when.
    pub made: Made,
}

impl Row {
    /// An empty one.
    pub fn new(operation: &str, made: &Made) -> Row {
        Row { operation: operation.to_owned(), made: made.clone(), ..Row::default() }
    }

    /// Adds what a round took.
    pub fn add(&mut self, who: &str, time: Duration) {
        self.seconds.entry(who.to_owned()).or_default().push(time.as_secs_f64());
    }

    /// Adds what a round took of the processor.
    pub fn add_cpu(&mut self, who: &str, time: Duration) {
        self.cpu.entry(who.to_owned()).or_default().push(time.as_secs_f64());
    }

    /// Sets a figure.
    pub fn set(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// All rounds of one.
    pub fn of(&self, who: &str) -> &[f64] {
        self.seconds.get(who).map_or(&[], Vec::as_slice)
    }

    /// The median of one, in seconds.
    pub fn middle(&self, who: &str) -> Option<f64> {
        stats::median(self.of(who))
    }

    /// The median of the processor's seconds.
    pub fn middle_cpu(&self, who: &str) -> Option<f64> {
        self.cpu.get(who).and_then(|list| stats::median(list))
    }

    /// The median of the pairs' ratios.
    pub fn ratio(&self, above: &str, below: &str) -> Option<f64> {
        stats::ratio(self.of(above), self.of(below))
    }

    /// For a machine.
    pub fn to_json(&self) -> Value {
        json!({
            "operation": self.operation, "seconds": self.seconds, "cpu_seconds": self.cpu, "figures": self.figures,
            "busy": self.busy,
            "made": { "machine": self.made.machine, "date": self.made.date, "commit": self.made.commit },
        })
    }

    /// What [`Row::to_json`] gave.
    pub fn of_json(value: &Value) -> Option<Row> {
        let lists = |key: &str| -> Option<BTreeMap<String, Vec<f64>>> {
            let list = |v: &Value| v.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
            value[key].as_object()?.iter().map(|(who, v)| Some((who.clone(), list(v)?))).collect()
        };
        let text = |v: &Value| v.as_str().map(str::to_owned);
        Some(Row {
            operation: text(&value["operation"])?,
            seconds: lists("seconds")?,
            cpu: lists("cpu_seconds")?,
            figures: value["figures"]
                .as_object()?
                .iter()
                .map(|(name, v)| Some((name.clone(), v.as_f64()?)))
                .collect::<Option<_>>()?,
            busy: value["busy"].as_bool()?,
            made: Made {
                machine: text(&value["made"]["machine"])?,
                date: text(&value["made"]["date"])?,
                commit: text(&value["made"]["commit"])?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_from_its_document() {
        let made = Made { machine: "m".into(), date: "2026-01-02T03:04:05Z".into(), commit: "c".into() };
        let mut row = Row::new("10", &made);
        row.add(OURS, Duration::from_millis(250));
        row.add(GIT, Duration::from_millis(500));
        row.add_cpu(OURS, Duration::from_millis(10));
        row.set("memory MiB", 12.0);
        row.busy = true;
        assert_eq!(Row::of_json(&row.to_json()), Some(row.clone()));
        assert_eq!((row.middle(OURS), row.ratio(GIT, OURS)), (Some(0.25), Some(2.0)));
        assert_eq!((row.middle(BARE), row.ratio(OURS, BARE)), (None, None));
        assert_eq!(Row::of_json(&json!({ "operation": "10" })), None);
    }
}

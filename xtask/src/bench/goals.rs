//! What is wanted, for each tree and operation.

use super::{
    row::{BARE, GIT, OURS, Row},
    stats,
};

/// What of a row is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// So many times as fast as git, at least.
    Git(f64),
    /// So many times as long as the bare program, at most.
    Bare(f64),
    /// So many milliseconds longer than the bare program, at most.
    BarePlus(f64),
    /// So many milliseconds, at most.
    Time(f64),
    /// So many milliseconds in 99 of 100 cases, at most.
    Most(f64),
    /// A figure that is at most this.
    Figure(&'static str, f64),
    /// A figure that is at least this.
    Least(&'static str, f64),
}

/// One goal.
pub struct Goal {
    /// Which trees it is for, by their kind; none stands for all.
    trees: &'static [&'static str],
    /// Which operation; one that ends in a space stands for all that begin with it.
    operation: &'static str,
    /// What is wanted.
    pub measure: Measure,
}

/// How near a goal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is reached.
    Reached,
    /// Missed, by less than half.
    Near,
    /// Missed.
    Missed,
}

/// Missed by no more than this is near.
const NEAR: f64 = 1.5;

const ALL: &[&str] = &[];
const SMALL: &[&str] = &["small"];
const BIG: &[&str] = &["big"];
const LINUX: &[&str] = &["linux", "linux-git"];
const SYNTH: &[&str] = &["synth"];
/// On a small tree a process is mostly its start.
const LARGE: &[&str] = &["linux", "linux-git", "js", "synth"];

const fn goal(trees: &'static [&'static str], operation: &'static str, measure: Measure) -> Goal {
    Goal { trees, operation, measure }
}

/// All goals.
pub const GOALS: &[Goal] = &[
    goal(&["linux"], "first", Measure::Git(10.0)),
    goal(&["js"], "first", Measure::Git(18.0)),
    goal(SYNTH, "first", Measure::Git(20.0)),
    goal(BIG, "first", Measure::Git(30.0)),
    goal(ALL, "first", Measure::Figure("memory MiB", 300.0)),
    goal(&["linux", "js", "synth"], "first", Measure::Figure("store/git", 0.6)),
    // The tree is a clean repository already.
    goal(&["linux-git"], "first", Measure::Git(100.0)),
    goal(&["linux-git"], "first", Measure::Bare(2.0)),
    goal(&["linux"], "seeded", Measure::Git(100.0)),
    goal(LARGE, "seeded", Measure::Bare(2.0)),
    goal(LARGE, "unchanged", Measure::Git(2.8)),
    goal(LARGE, "unchanged", Measure::Bare(1.05)),
    goal(LARGE, "10", Measure::Git(3.0)),
    goal(LARGE, "10", Measure::BarePlus(5.0)),
    goal(LARGE, "1000", Measure::Git(6.0)),
    goal(LARGE, "1000", Measure::Bare(1.5)),
    goal(LARGE, "restore-10", Measure::Git(5.0)),
    goal(LARGE, "restore-10", Measure::Bare(1.15)),
    goal(LARGE, "restore-1000", Measure::Git(3.5)),
    goal(LINUX, "restore-half", Measure::Git(3.0)),
    goal(LINUX, "restore-half", Measure::Bare(1.5)),
    goal(LINUX, "watched-unchanged", Measure::Git(80.0)),
    goal(SYNTH, "watched-unchanged", Measure::Git(400.0)),
    goal(ALL, "watched-unchanged", Measure::Time(3.0)),
    goal(LINUX, "watched-10", Measure::Git(60.0)),
    goal(SYNTH, "watched-10", Measure::Git(300.0)),
    goal(ALL, "watched-10", Measure::Time(6.0)),
    goal(LARGE, "watched-1000", Measure::Git(13.0)),
    goal(ALL, "watched-1000", Measure::Time(65.0)),
    goal(ALL, "watched-restore-10", Measure::Time(10.0)),
    goal(ALL, "watched-restore-1000", Measure::Time(250.0)),
    goal(ALL, "tool-before", Measure::Time(6.0)),
    goal(ALL, "tool-after", Measure::Time(6.0)),
    goal(ALL, "watched-tool-before", Measure::Time(6.0)),
    goal(ALL, "watched-tool-after", Measure::Time(6.0)),
    goal(BIG, "big-edit", Measure::Git(10.0)),
    goal(BIG, "big-edit", Measure::Figure("growth of one after gc MiB", 1.0)),
    goal(LINUX, "history", Measure::Figure("as captured MiB", 70.0)),
    goal(LINUX, "history", Measure::Figure("joined by itself MiB", 20.0)),
    goal(LINUX, "history", Measure::Figure("after gc MiB", 20.0)),
    goal(ALL, "list", Measure::Time(50.0)),
    // Of all of them.
    goal(ALL, "cancel", Measure::Most(100.0)),
    goal(SMALL, "hook ", Measure::Most(15.0)),
    goal(SMALL, "watched-hook ", Measure::Most(5.0)),
    // The store against one copy and the changes.
    goal(ALL, "sessions", Measure::Figure("store/copy and changes", 1.2)),
    // The processor time of a turn. Noise is below this.
    goal(ALL, "sessions", Measure::Figure("later/first turns", 1.5)),
    // Of the bytes that only deleted rows needed.
    goal(ALL, "sessions", Measure::Least("freed", 0.8)),
    goal(ALL, "sessions list", Measure::Time(50.0)),
    goal(ALL, "sessions list --all", Measure::Time(50.0)),
];

/// The kind of a tree, from its name: goals for generated trees hold from 100,000 files.
fn kind(tree: &str) -> &str {
    match tree.strip_prefix("synth-").map(str::parse::<u64>) {
        Some(Ok(files)) if files >= 100_000 => "synth",
        _ => tree,
    }
}

/// The goals of a row, each with what was reached.
pub fn judge<'a>(tree: &'a str, row: &'a Row) -> impl Iterator<Item = (&'static Goal, f64, Verdict)> + 'a {
    GOALS
        .iter()
        .filter(|g| g.is_for(tree, &row.operation))
        .filter_map(|goal| goal.measure.verdict(row).map(|(value, verdict)| (goal, value, verdict)))
}

impl Goal {
    fn is_for(&self, tree: &str, operation: &str) -> bool {
        let named = match self.operation.ends_with(' ') {
            true => operation.starts_with(self.operation),
            false => operation == self.operation,
        };
        named && (self.trees.is_empty() || self.trees.contains(&kind(tree)))
    }
}

impl Measure {
    /// What was measured, and how near it is. A goal of which nothing was measured has none.
    pub fn verdict(self, row: &Row) -> Option<(f64, Verdict)> {
        let ms = |seconds: f64| seconds * 1e3;
        // The value, and by how much it is too slow or too large.
        let (value, off) = match self {
            Measure::Git(least) => row.ratio(GIT, OURS).map(|v| (v, least / v))?,
            Measure::Bare(most) => row.ratio(OURS, BARE).map(|v| (v, v / most))?,
            Measure::BarePlus(more) => {
                let allowed: Vec<f64> = row.of(BARE).iter().map(|bare| bare + more / 1e3).collect();
                (row.ratio(OURS, BARE)?, stats::ratio(row.of(OURS), &allowed)?)
            }
            Measure::Time(most) => row.middle(OURS).map(|v| (v, ms(v) / most))?,
            Measure::Most(most) => stats::part(row.of(OURS), 0.99).map(|v| (v, ms(v) / most))?,
            Measure::Figure(name, most) => row.figures.get(name).map(|v| (*v, v / most))?,
            Measure::Least(name, least) => row.figures.get(name).map(|v| (*v, least / v.max(1e-9)))?,
        };
        let verdict = match off {
            off if off <= 1.0 => Verdict::Reached,
            off if off <= NEAR => Verdict::Near,
            _ => Verdict::Missed,
        };
        Some((value, verdict))
    }
}

impl std::fmt::Display for Measure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Measure::Git(least) => write!(f, "≥ {least}"),
            Measure::Bare(most) => write!(f, "≤ {most}"),
            Measure::BarePlus(ms) => write!(f, "≤ bare + {ms} ms"),
            Measure::Time(ms) => write!(f, "≤ {ms} ms"),
            Measure::Most(ms) => write!(f, "p99 ≤ {ms} ms"),
            Measure::Figure(_, most) => write!(f, "≤ {most}"),
            Measure::Least(_, least) => write!(f, "≥ {least}"),
        }
    }
}

impl Verdict {
    /// A sign for a table.
    pub fn sign(self) -> &'static str {
        match self {
            Verdict::Reached => "✓",
            Verdict::Near => "≈",
            Verdict::Missed => "✗",
        }
    }

    /// A word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Near => "missed within 1.5",
            Verdict::Missed => "missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(operation: &str, ours: &[f64], git: &[f64], bare: &[f64]) -> Row {
        let list = [(OURS, ours), (GIT, git), (BARE, bare)];
        let seconds: BTreeMap<String, Vec<f64>> =
            list.iter().filter(|(_, l)| !l.is_empty()).map(|(w, l)| ((*w).to_owned(), l.to_vec())).collect();
        Row { operation: operation.into(), seconds, ..Row::default() }
    }

    fn verdicts(tree: &str, row: &Row) -> Vec<(String, Verdict)> {
        judge(tree, row).map(|(g, _, v)| (g.measure.to_string(), v)).collect()
    }

    #[test]
    fn ratios_are_judged_on_large_trees_only() {
        let measured = row("unchanged", &[1.0], &[2.0], &[0.5]);
        let wanted = [("≥ 2.8".to_owned(), Verdict::Near), ("≤ 1.05".to_owned(), Verdict::Missed)];
        for tree in ["linux", "linux-git", "js", "synth-100000"] {
            assert_eq!(verdicts(tree, &measured), wanted, "{tree}");
        }
        for tree in ["small", "synth-1000", "big"] {
            assert_eq!(verdicts(tree, &measured), [], "{tree}");
        }
    }

    #[test]
    fn milliseconds_on_top_of_the_bare_program() {
        let verdict = |ours| Measure::BarePlus(5.0).verdict(&row("10", &[ours], &[], &[0.010])).unwrap().1;
        assert_eq!(verdict(0.0149), Verdict::Reached);
        assert_eq!(verdict(0.0151), Verdict::Near);
        assert_eq!(verdict(0.0226), Verdict::Missed);
        assert_eq!(Measure::BarePlus(5.0).verdict(&row("10", &[1.0], &[], &[])), None);
    }

    #[test]
    fn times_and_figures() {
        assert_eq!(
            verdicts("small", &row("tool-before", &[0.005], &[], &[])),
            [("≤ 6 ms".into(), Verdict::Reached)]
        );
        let mut hooks = vec![0.004; 99];
        hooks.push(1.0);
        assert_eq!(
            verdicts("small", &row("hook Stop", &hooks, &[], &[])),
            [("p99 ≤ 15 ms".into(), Verdict::Reached)]
        );
        hooks.push(1.0);
        assert_eq!(
            verdicts("small", &row("hook Stop", &hooks, &[], &[])),
            [("p99 ≤ 15 ms".into(), Verdict::Missed)]
        );
        let mut history = row("history", &[], &[], &[]);
        history.set("as captured MiB", 100.0);
        assert_eq!(verdicts("linux", &history), [("≤ 70".into(), Verdict::Near)]);
        assert_eq!(verdicts("small", &history), []);
        let mut sessions = row("sessions", &[], &[], &[]);
        sessions.set("freed", 0.79);
        assert_eq!(verdicts("sessions", &sessions), [("≥ 0.8".into(), Verdict::Near)]);
        sessions.set("freed", 0.0);
        assert_eq!(verdicts("sessions", &sessions), [("≥ 0.8".into(), Verdict::Missed)]);
    }
}

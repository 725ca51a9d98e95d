//! The section with the figures of the page on performance, as Markdown.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    goals::{self, Measure, Verdict},
    peers,
    report::Report,
    rounds::OPERATIONS,
    row::{BARE, GIT, OURS, Row},
    stats::seconds,
};

/// Between these lines of a page the figures stand.
pub const MARKS: [&str; 2] = ["<!-- figures: made by ", "<!-- figures: end -->"];

/// Everything between the marks.
pub fn section(reports: &[Report], missing: &[&str]) -> String {
    if reports.iter().all(|r| r.rows.is_empty()) {
        return "Nothing has been measured yet.".into();
    }
    let reports = in_order(reports);
    let mut out = String::new();
    let rows = || reports.iter().flat_map(|r| &r.rows);
    let machines: BTreeSet<&str> = rows().map(|r| r.made.machine.as_str()).collect();
    let commits: BTreeSet<&str> = rows().map(|r| r.made.commit.as_str()).collect();
    let days: BTreeSet<&str> =
        rows().map(|r| r.made.date.split('T').next().unwrap_or(&r.made.date)).collect();
    let joined = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join("; ");
    let _ =
        writeln!(out, "On {}. Measured {}, commit {}.\n", joined(machines), joined(days), joined(commits));
    let count = |verdict| reports.iter().map(|r| r.count(verdict)).sum::<usize>();
    let _ = writeln!(
        out,
        "Goals: {} reached ({}), {} missed within 1.5 ({}), {} missed ({}). Rows marked * were measured while somebody else used the machine.",
        count(Verdict::Reached),
        Verdict::Reached.sign(),
        count(Verdict::Near),
        Verdict::Near.sign(),
        count(Verdict::Missed),
        Verdict::Missed.sign()
    );
    out.push_str("\n| tree | files | MiB | links | folders | goals reached | within 1.5 | missed |\n");
    out.push_str("|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for report in &reports {
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {} | {} | {} | {} | {} |",
            report.tree,
            report.files,
            report.bytes as f64 / f64::from(1 << 20),
            report.links,
            report.dirs,
            report.count(Verdict::Reached),
            report.count(Verdict::Near),
            report.count(Verdict::Missed)
        );
    }
    for report in &reports {
        let _ = write!(out, "\n### {}\n", report.title);
        times(&mut out, report);
        figures(&mut out, report);
        others(&mut out, report);
        out.push('\n');
        for (what, why) in report.facts() {
            match why {
                None => {
                    let _ = writeln!(out, "- holds: {what}");
                }
                Some(why) => {
                    let first = why.lines().next().unwrap_or_default();
                    let _ = writeln!(out, "- **DOES NOT HOLD**: {what}: {first}");
                }
            }
        }
    }
    if !missing.is_empty() {
        let _ = write!(
            out,
            "\nNot on the machine when this page was written, and so not measured by that run: {}.",
            missing.join(", ")
        );
    }
    out
}

/// Runs come in any order; trees and operations stand as they are told of.
fn in_order(reports: &[Report]) -> Vec<Report> {
    let tree = |name: &str| -> (usize, u64) {
        let (kind, size) = name.split_once('-').unwrap_or((name, ""));
        let kinds = ["small", "linux", "js", "synth", "big", "sessions"];
        let at = kinds.iter().position(|k| *k == kind).unwrap_or(kinds.len());
        // linux-git after linux, synth by size.
        (at, size.parse().unwrap_or(u64::from(!size.is_empty())))
    };
    let operation = |name: &str| {
        let at = OPERATIONS.iter().position(|o| *o == name);
        // tool-before, history-5, hook Stop: by what they begin with.
        at.or_else(|| OPERATIONS.iter().position(|o| name.starts_with(o.trim_end_matches('s'))))
            .unwrap_or(OPERATIONS.len())
    };
    let mut out = reports.to_vec();
    out.sort_by_key(|r| tree(&r.tree));
    out.iter_mut().for_each(|r| r.rows.sort_by_key(|row| operation(&row.operation)));
    out
}

/// The figures that have a column of their own.
const COLUMNS: [&str; 1] = ["memory MiB"];

fn times(out: &mut String, report: &Report) {
    let timed: Vec<&Row> = report
        .rows
        .iter()
        .filter(|r| !r.of(OURS).is_empty() && peers::split(&r.operation).is_none())
        .collect();
    if timed.is_empty() {
        return;
    }
    out.push_str(
        "\n| operation | ours | goal | git | git/ours | goal | bare | ours/bare | goal | calls | memory | n |\n",
    );
    out.push_str("|---|---:|---|---:|---:|---|---:|---:|---|---:|---:|---:|\n");
    let calls = report.rows.iter().find(|r| r.operation == "calls");
    for row in timed {
        let goal = |is: fn(&Measure) -> bool| {
            let found = goals::judge(&report.tree, row).filter(|(goal, ..)| is(&goal.measure));
            found.map(|(goal, _, v)| format!("{} {}", goal.measure, v.sign())).collect::<Vec<_>>().join(", ")
        };
        let time = |value: Option<f64>| value.map(seconds).unwrap_or_default();
        let times = |value: Option<f64>| value.map(short).unwrap_or_default();
        let memory = row.figures.get("memory MiB").map(|m| {
            let judged = goals::judge(&report.tree, row)
                .find(|(g, ..)| matches!(g.measure, Measure::Figure("memory MiB", _)));
            let judged = judged.map(|(g, _, v)| format!(" ({} {})", g.measure, v.sign()));
            format!("{m:.0} MiB{}", judged.unwrap_or_default())
        });
        let cells = [
            format!("{}{}", row.operation, if row.busy { " *" } else { "" }),
            time(row.middle(OURS)),
            goal(|m| matches!(m, Measure::Time(_) | Measure::Most(_))),
            time(row.middle(GIT)),
            times(row.ratio(GIT, OURS)),
            goal(|m| matches!(m, Measure::Git(_))),
            time(row.middle(BARE)),
            times(row.ratio(OURS, BARE)),
            goal(|m| matches!(m, Measure::Bare(_) | Measure::BarePlus(_))),
            calls.and_then(|c| c.figures.get(&row.operation)).map(|n| format!("{n:.0}")).unwrap_or_default(),
            memory.unwrap_or_default(),
            row.of(OURS).len().to_string(),
        ];
        line(out, &cells);
    }
}

/// What is no time.
fn figures(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for row in report.rows.iter().filter(|r| r.operation != "calls") {
        for (name, value) in row.figures.iter().filter(|(name, _)| !COLUMNS.contains(&name.as_str())) {
            let judged = goals::judge(&report.tree, row).find(
                |(g, ..)| matches!(g.measure, Measure::Figure(n, _) | Measure::Least(n, _) if n == name),
            );
            let judged = judged.map(|(g, _, v)| format!("{} {}", g.measure, v.sign())).unwrap_or_default();
            let busy = if row.busy { " *" } else { "" };
            lines.push([format!("{}{busy}", row.operation), name.clone(), figure(*value), judged]);
        }
    }
    if lines.is_empty() {
        return;
    }
    out.push_str("\n| operation | figure | | goal |\n|---|---|---:|---|\n");
    lines.iter().for_each(|cells| line(out, cells));
}

/// Other tools.
fn others(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for row in &report.rows {
        let Some((who, operation)) = peers::split(&row.operation) else { continue };
        let time = |value: Option<f64>| value.map(seconds).unwrap_or_default();
        lines.push([
            who.to_owned(),
            operation.to_owned(),
            time(row.middle(who)),
            time(row.middle(OURS)),
            row.ratio(who, OURS).map(short).unwrap_or_default(),
        ]);
    }
    if lines.is_empty() {
        return;
    }
    out.push_str("\n| tool | operation | it | ours | it/ours |\n|---|---|---:|---:|---:|\n");
    lines.iter().for_each(|cells| line(out, cells));
}

fn line(out: &mut String, cells: &[String]) {
    out.push('|');
    for cell in cells {
        let _ = if cell.is_empty() { write!(out, " |") } else { write!(out, " {cell} |") };
    }
    out.push('\n');
}

/// Two digits behind the point, and none of a large number.
fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A figure, which may be a count.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { short(value) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::row::Made, *};
    use crate::tools;

    fn report() -> Report {
        let made =
            Made { machine: "two cores".into(), date: "2026-01-02T03:04:05Z".into(), commit: "abc".into() };
        let mut report = Report::new("linux", "LINUX", &made);
        (report.files, report.bytes) = (7, 3 << 20);
        let row = report.row("10");
        row.add(OURS, Duration::from_millis(100));
        row.add(GIT, Duration::from_millis(400));
        row.add(BARE, Duration::from_millis(90));
        row.busy = true;
        let first = report.row("first");
        first.add(OURS, Duration::from_millis(100));
        first.set("memory MiB", 200.0);
        first.set("store/git", 0.95);
        report.row("calls").set("10", 312.0);
        let jj = report.row("jj unchanged");
        jj.add(OURS, Duration::from_millis(100));
        jj.add("jj", Duration::from_millis(300));
        report.fact("it is so", Err("it is\nnot".into()));
        report
    }

    #[test]
    fn the_tables_hold_every_figure_with_its_goal() {
        let text = section(&[report()], &["restic"]);
        for wanted in [
            "On two cores. Measured 2026-01-02, commit abc.",
            "Goals: 2 reached (✓), 1 missed within 1.5 (≈), 1 missed (✗).",
            "| linux | 7 | 3.0 | 0 | 0 | 2 | 1 | 1 |",
            "| 10 * | 100 ms | | 400 ms | 4.00 | ≥ 3 ✓ | 90.0 ms | 1.11 | ≤ bare + 5 ms ≈ | 312 | | 1 |",
            "| first | 100 ms | | | | | | | | | 200 MiB (≤ 300 ✓) | 1 |",
            "| first | store/git | 0.95 | ≤ 0.6 ✗ |",
            "| jj | unchanged | 300 ms | 100 ms | 3.00 |",
            "- **DOES NOT HOLD**: it is so: it is\n",
            "not measured by that run: restic.",
        ] {
            assert!(text.contains(wanted), "{wanted}\n---\n{text}");
        }
    }

    #[test]
    fn trees_and_operations_come_in_their_order() {
        let made = Made::default();
        let trees = ["big", "synth-10000", "synth-1000", "linux-git", "linux", "small"];
        let mut all: Vec<Report> = trees.iter().map(|t| Report::new(t, t, &made)).collect();
        for operation in ["hook Stop", "history-5", "tool-after", "10", "watched-tool-before", "first"] {
            all[5].row(operation).add(OURS, Duration::from_millis(1));
        }
        let sorted = in_order(&all);
        let trees: Vec<&str> = sorted.iter().map(|r| r.tree.as_str()).collect();
        assert_eq!(trees, ["small", "linux", "linux-git", "synth-1000", "synth-10000", "big"]);
        let rows: Vec<&str> = sorted[0].rows.iter().map(|r| r.operation.as_str()).collect();
        assert_eq!(rows, ["first", "10", "tool-after", "watched-tool-before", "history-5", "hook Stop"]);
    }

    #[test]
    fn the_page_has_a_place_for_the_figures() {
        let path = tools::root().unwrap().join("docs/performance.md");
        let page = std::fs::read_to_string(path).unwrap();
        let new = tools::replaced(&page, MARKS, &section(&[report()], &[])).unwrap();
        let again = tools::replaced(&new, MARKS, "Nothing").unwrap();
        assert!(new.contains("### LINUX") && !again.contains("### LINUX"));
        let before = page.find(MARKS[0]).unwrap();
        assert_eq!(new[..before], page[..before]);
    }
}

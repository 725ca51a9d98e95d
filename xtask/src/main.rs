//! The tasks of this project: `cargo xtask` lists them.
//!
//! Everything here runs the product from outside, as a process. Nothing here is published.

mod agents;
mod args;
mod bench;
mod campaign;
mod fuzz;
mod licences;
mod package;
mod pi;
mod power;
mod seeds;
mod test;
mod tools;

use std::process::ExitCode;

use args::{Command, Parsed};

/// What went wrong, in words.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What a task is run by. `Ok(false)` means that it ran and found something wrong.
type Task = fn(&Parsed) -> Result<bool>;

const TASKS: &[(&Command, Task)] = &[
    (&agents::COMMAND, agents::run),
    (&test::COMMAND, test::run),
    (&pi::COMMAND, pi::run),
    (&seeds::COMMAND, seeds::run),
    (&campaign::COMMAND, campaign::run),
    (&power::COMMAND, power::run),
    (&fuzz::COMMAND, fuzz::run),
    (&bench::COMMAND, bench::run),
    (&package::COMMAND, package::run),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let first = words.next().unwrap_or_default();
    let Some((command, task)) = TASKS.iter().find(|(command, _)| command.name == first) else {
        println!("The tasks of this project.\n\nUsage: cargo xtask COMMAND [OPTIONS]\n\nCommands:");
        for (command, _) in TASKS {
            println!("  {:<15} {}", command.name, command.about);
        }
        println!("\n`cargo xtask COMMAND --help` tells the options of each.");
        let asked = matches!(first.as_str(), "" | "help" | "-h" | "--help");
        return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    let words = if first == agents::COMMAND.name { agents::spelled(words) } else { words.collect() };
    let parsed = match command.parse(words) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo xtask {first}: {message}");
            return ExitCode::from(2);
        }
    };
    match task(&parsed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask {first}: {error}");
            ExitCode::FAILURE
        }
    }
}

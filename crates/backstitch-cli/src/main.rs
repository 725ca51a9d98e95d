//! The `backstitch` program: a thin shell around the library.
//!
//! [`table`] is what can be typed, [`context`] what it means after the environment is applied, [`command`] does it through
//! the library, [`ui`] is the only place that writes to standard output and standard error.

mod ask;
mod command;
mod context;
mod inside;
mod mcp;
mod pager;
mod pages;
mod patch;
mod picker;
mod problem;
mod progress;
mod serve;
mod table;
mod text;
mod ui;
mod web;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    // What a host left open for its children is not for ours, which may outlive it.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(hook) = table::Hook::plain(&words) {
        context::run_hook(&hook);
        return ExitCode::SUCCESS;
    }
    open_more_files();
    // An agent takes every other exit code for a reason not to run its tool.
    let is_hook = words.get(1).is_some_and(|w| w == "hook");
    let code = match table::Cli::try_parse_from(&words) {
        Ok(cli) => context::run(cli),
        Err(error) => context::run_alone(&error, &words).unwrap_or_else(|| problem::usage(&error, &words)),
    };
    ExitCode::from(if is_hook { 0 } else { code })
}

/// A restore of many files holds as many open as it may.
fn open_more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const ENOUGH: u64 = 16_384;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|now| now < current) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

//! Words of the commands that remove something.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// `prune`
#[derive(Args, Debug)]
pub struct Prune {
    /// Tell what would go, and what that would free; move nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `forget`
#[derive(Args, Debug)]
pub struct Forget {
    /// Files or folders, relative to the current folder; they need not be there any longer.
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Tell what would be rewritten; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `session purge`
#[derive(Args, Debug)]
pub struct Purge {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub id: String,
    /// Also where a turn of it is open, other sessions were forked from it, or a checkpoint is pinned.
    #[arg(long)]
    pub force: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

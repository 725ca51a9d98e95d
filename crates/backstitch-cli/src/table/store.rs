//! Words of the commands that care for stores.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueHint};

/// `verify`
#[derive(Args, Debug)]
pub struct Verify {
    /// Set damaged parts aside, so that the rest can be used. Never guesses.
    #[arg(long)]
    pub repair: bool,
    /// Also read up to 1,000 files of the folder, others each time, and tell which differ from what their times and sizes
    /// say. `checkpoint --paranoid` records those.
    #[arg(long)]
    pub worktree: bool,
}

/// `gc`
#[derive(Args, Debug)]
pub struct Gc {
    /// Only tell what would be freed.
    #[arg(long)]
    pub dry_run: bool,
    /// What a capture starts by itself: grace for what is young, and nothing if another one runs.
    #[arg(long, hide = true, conflicts_with = "dry_run")]
    pub auto: bool,
}

/// `doctor`
#[derive(Args, Debug)]
pub struct Doctor {
    /// Restore the newest checkpoint into a scratch folder and compare.
    #[arg(long)]
    pub drill: bool,
}

/// `stores`
#[derive(Debug, Subcommand)]
pub enum Stores {
    /// List all stores.
    List,
    /// Remove stores for good, if they are sound and nobody uses them. CANNOT BE UNDONE.
    Delete(StoreNames),
    /// Remove stores for good, damaged ones too. CANNOT BE UNDONE.
    Purge(StoreNames),
}

/// `watch`
#[derive(Debug, Subcommand)]
pub enum Watch {
    /// Start it, unless it runs; returns when it answers.
    Start,
    /// End it; returns when it has.
    Stop,
    /// Tell whether it runs, since when, and how many directories it watches.
    Status,
}

/// `sync`
#[derive(Debug, Subcommand)]
pub enum Sync {
    /// Send the checkpoints that the remote does not have.
    Push(SyncPush),
    /// Take the checkpoints that are not here. A session that was continued on both sides is kept twice, and told (3).
    Pull(SyncPull),
}

/// `sync push`
#[derive(Args, Debug)]
pub struct SyncPush {
    /// The remote.
    #[arg(value_name = "REMOTE", value_hint = ValueHint::AnyPath)]
    pub remote: OsString,
    /// Only tell what would be sent: checkpoints, contents, bytes, paths that are left out, contents that look like secrets.
    #[arg(long)]
    pub dry_run: bool,
    /// Send prompts, too. A later push without it takes them from the remote's checkpoints again.
    #[arg(long)]
    pub prompts: bool,
    /// Send contents that look like secrets; without it they are named and nothing is sent.
    #[arg(long)]
    pub allow_secrets: bool,
}

/// `sync pull`
#[derive(Args, Debug)]
pub struct SyncPull {
    /// The remote.
    #[arg(value_name = "REMOTE", value_hint = ValueHint::AnyPath)]
    pub remote: OsString,
    /// Only tell what would be taken.
    #[arg(long)]
    pub dry_run: bool,
}

/// Names of stores.
#[derive(Args, Debug)]
pub struct StoreNames {
    /// Names as `stores list` shows them.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `relink`
#[derive(Args, Debug)]
pub struct Relink {
    /// Where the folder was.
    #[arg(value_name = "OLD-PATH", value_hint = ValueHint::DirPath)]
    pub old: PathBuf,
}

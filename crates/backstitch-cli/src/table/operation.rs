//! Words of the commands that change the folder.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::words::OnConflict;

/// What every change of the folder to a recorded state is told: which paths, and how.
#[derive(Args, Debug)]
pub struct Change {
    /// Only paths that match (syntax of ignore files, relative to the workspace); may be repeated.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub glob: Vec<String>,
    /// Show the plan; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Delete nothing.
    #[arg(long)]
    pub no_delete: bool,
    /// No safety checkpoint in the list; a path whose present bytes no listed checkpoint holds is kept.
    #[arg(long)]
    pub no_safety: bool,
    /// A path with unsaved text in an editor: left alone; may be repeated.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, allow_hyphen_values = true)]
    pub busy: Vec<OsString>,
    /// Apply only if the plan is exactly the one with this digest (from `--dry-run`).
    #[arg(long, value_name = "DIGEST")]
    pub plan: Option<String>,
    /// Setuid, setgid and capabilities come back.
    #[arg(long)]
    pub privileged: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Only these, with all below.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `restore`
#[derive(Args, Debug)]
pub struct Restore {
    /// Id or prefix, `@`, `@~N`, `turn:N` (the state after it), `prompt:N` (before it), label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// Files outside the workspace as well, as far as the checkpoint or a later tool call of its session holds them. Without
    /// it they are listed and left, and the exit code is 3.
    #[arg(long)]
    pub outside: bool,
    /// Restore a checkpoint of a folder that stood at this path before.
    #[arg(long)]
    pub replaced: bool,
    /// Restore an implausibly empty checkpoint all the same, and also while another session's tool runs.
    #[arg(long)]
    pub force: bool,
    /// Choose parts: on a terminal each is asked about; with `--dry-run` they are listed with their ids.
    ///
    /// A part is a run of changed lines, the mode of a file, or a path as a whole where it has no lines to choose from.
    #[arg(long, conflicts_with = "hunk")]
    pub hunks: bool,
    /// Only the part with this id (from `--hunks --dry-run`); may be repeated, or several separated by commas.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub hunk: Vec<String>,
    /// HEAD, index, refs, stash and a merge or rebase under way of the repository as well: the only option with which
    /// a `.git` is written. `undo` takes that back too.
    #[arg(long)]
    pub git_state: bool,
    /// Which paths, and how.
    #[command(flatten)]
    pub change: Change,
}

/// `rewind`, `revert`
#[derive(Args, Debug)]
pub struct Rewind {
    /// The turn (`N`, `turn:N` or `prompt:N`), or a checkpoint: of `rewind`, where to go back to; of `revert`, one of the
    /// turn. On a terminal, the picker where it is left out.
    #[arg(value_name = "TURN")]
    pub to: Option<OsString>,
    /// The picker as plain numbered questions, for screen readers [default: as the setting `picker` says].
    #[arg(long)]
    pub plain: bool,
    /// No command was typed: choosing nothing is no failure.
    #[arg(skip)]
    pub browse: bool,
    /// What happens to a path that is not as the session left it [default: keep]. `revert` merges lines first, and asks
    /// only about those that were changed again.
    #[arg(long, value_name = "WHAT")]
    pub on_conflict: Option<OnConflict>,
    /// Where lines clash in a merge, put both sides into the file, between conflict markers.
    #[arg(long)]
    pub markers: bool,
    /// Also what changed while a turn ran, but outside its tool calls.
    #[arg(long)]
    pub include_unattributed: bool,
    /// Files outside the workspace as well, as far as the session's tools named them. Without it they are listed and left,
    /// and the exit code is 3.
    #[arg(long)]
    pub outside: bool,
    /// Also turns of a folder that stood at this path before.
    #[arg(long)]
    pub replaced: bool,
    /// Also while another session's tool runs.
    #[arg(long)]
    pub force: bool,
    /// Which paths, and how.
    #[command(flatten)]
    pub change: Change,
}

/// `undo`, `redo`
#[derive(Args, Debug)]
pub struct Walk {
    /// How many steps (at least 1).
    #[arg(value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Exactly this operation.
    #[arg(long, value_name = "ID", conflicts_with = "steps")]
    pub operation: Option<String>,
    /// What happens to a path that changed since [default: keep for undo, refuse for redo].
    #[arg(long, value_name = "WHAT")]
    pub on_conflict: Option<OnConflict>,
    /// Where lines clash in a merge, put both sides into the file, between conflict markers.
    #[arg(long)]
    pub markers: bool,
    /// Understood for the sake of symmetry: what the operation changed outside the workspace is taken back with it anyway.
    #[arg(long)]
    pub outside: bool,
    /// Show the plan of one step; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Apply one step, only if its plan is exactly the one with this digest (from `--dry-run`).
    #[arg(long, value_name = "DIGEST")]
    pub plan: Option<String>,
    /// Understood for the sake of symmetry: setuid, setgid and capabilities that the operation took away come back anyway.
    #[arg(long)]
    pub privileged: bool,
    /// Also an operation on a folder that stood at this path before.
    #[arg(long)]
    pub replaced: bool,
    /// Also while another session has a tool window open.
    #[arg(long)]
    pub force: bool,
    /// Do not ask (asked is only with `--on-conflict overwrite`).
    #[arg(long)]
    pub yes: bool,
}

/// `operations`
#[derive(Args, Debug)]
pub struct Operations {
    /// At most this many.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

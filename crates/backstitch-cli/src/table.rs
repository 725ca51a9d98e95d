//! The one table of commands and options. Help, manual pages, completions and the reference page are made from it.
//!
//! Parsing never touches the disk; what the words mean is decided in [`crate::context`].

mod keep;
mod words;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueHint};

pub use self::keep::{Forget, Prune, Purge};
use self::words::recordable;
pub use self::words::{Agent, Color, Kind, OnConflict, Page, Retention, Scope, Status};

/// Checkpoint and rewind for folders that coding agents work in.
///
/// Records what a folder holds, shows what changed since, goes back to any recorded state, and takes the going-back
/// back. Nothing is ever written into the folder's own `.git`.
#[derive(Debug, Parser)]
#[command(
    name = "backstitch",
    version,
    after_help = "`backstitch COMMAND --help` tells all about a command.",
    after_long_help = AFTER,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    disable_help_subcommand = false
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Checkpoints are named by an id or an unambiguous prefix of it, `@` (the newest), `@~N` (N before it), `turn:N`, \
`prompt:N`, a label, or a time (`10m`, `2h`, `14:05`, RFC 3339). `SESSION/...` narrows a name to one session.

Paths after `--` are literal and relative to the current folder (or, where that lies outside the workspace, to the \
folder named with -C). Nothing in them is a pattern.

Environment:
  BACKSTITCH_STORE_DIR   base folder of all stores
  BACKSTITCH_SESSION     the session a row belongs to
  BACKSTITCH_DISABLE=1   nothing is captured
  BACKSTITCH_CONFIG      the user's settings file
  NO_COLOR               no colours

Exit codes:
  0    done
  1    failed
  2    wrong usage
  3    partial: something was skipped, conflicting or not covered; the list says what
  4    no such checkpoint, session, turn, store or path
  5    refused: a conflict, a changed plan, a wrong workspace, over budget, an unsafe path
  6    busy: a lock or a running operation
  7    the store is damaged
  130  interrupted";

/// Options of every command, anywhere on the line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The workspace, or any folder inside it [default: found from the current folder].
    ///
    /// Without it: the nearest known workspace at or above the current folder, else the top of the git work tree, else
    /// the current folder. The root, a sub-folder and a symlinked spelling give the same workspace.
    #[arg(short = 'C', long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,
    /// Base folder of all stores [default: the platform's data folder + `backstitch`].
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store_dir: Option<PathBuf>,
    /// One JSON document on standard output; errors as JSON on standard error. Never asks.
    #[arg(long, global = true)]
    pub json: bool,
    /// Only results, warnings and errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell more: everything that was skipped, absolute times.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Colours [default: auto].
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = false)]
    pub color: Option<Color>,
    /// Never show progress. It is shown only on a terminal, for work of over half a second.
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// The session that a row belongs to, or that a command is about [default: `BACKSTITCH_SESSION`].
    #[arg(long, global = true, value_name = "ID", allow_hyphen_values = true)]
    pub session: Option<String>,
    /// Carry out a command that is not for agents, though an agent's variable is in the environment.
    #[arg(long, global = true)]
    pub as_person: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record the present state of the folder.
    ///
    /// Prints the id and a summary line. With paths after `--` only those are looked at; the rest is as last recorded.
    #[command(visible_alias = "save")]
    Checkpoint(Checkpoint),
    /// List checkpoints, newest first.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show one checkpoint: its row, its coverage, what it left out, and what changed in it.
    Show(Named),
    /// Compare a checkpoint with another one, or with the folder as it is now.
    ///
    /// Without names: the newest checkpoint against the folder, files created since included. Renames are found.
    Diff(Diff),
    /// Print a file as a checkpoint holds it.
    Cat(Cat),
    /// List the checkpoints that changed a path, newest first, with who changed it. Renames are followed.
    Log(Log),
    /// Tell who wrote each line of a file: a session's turn with its tool and sub-agent, an operation, or "outside".
    ///
    /// "Outside" is what happened in no turn and no tool call: people, builds, and what was there before recording began.
    /// Lines that an operation brought back are told as those who wrote them. Renames are followed.
    Blame(Blame),
    /// Make the covered paths what a checkpoint holds. Can be undone.
    ///
    /// The present state is recorded first. A path is deleted only if the checkpoint positively did not hold it. On a
    /// terminal, a plan that overwrites or deletes is shown and asked about first; an answer other than yes changes
    /// nothing and ends with exit code 130.
    Restore(Restore),
    /// Take back what a session did in a turn and all later ones, and nothing else. Can be undone.
    ///
    /// A path is changed only if it still holds what the session left there. On a terminal, a plan that overwrites or
    /// deletes is shown and asked about first; an answer other than yes changes nothing and ends with exit code 130.
    Rewind(Rewind),
    /// Take back what a session did in one turn, and keep what came later. Can be undone.
    ///
    /// Lines that were not changed again since go back to what they were before the turn, also in files that were moved.
    /// What was changed again stays, and is listed with both sides as a conflict.
    Revert(Rewind),
    /// Take back the newest operation not yet undone, on the paths that it changed only.
    Undo(Walk),
    /// Take back the newest undo.
    Redo(Walk),
    /// List the operations, newest first.
    Operations(Operations),
    /// Begin, end and bind the turns of a session: what a host calls around a prompt.
    #[command(subcommand)]
    Turn(Turn),
    /// Record both ends of a tool call: what a host calls around a tool.
    #[command(subcommand)]
    Tool(Tool),
    /// List, show, fork, end and delete sessions.
    #[command(subcommand)]
    Session(Session),
    /// Tell about workspace, store, size, budget, coverage, and what is not covered.
    Status,
    /// Check every object and every row of the store; name the checkpoints that are hit.
    Verify(Verify),
    /// Check the surroundings: permissions, locks, file systems, settings.
    Doctor(Doctor),
    /// Keep checkpoints whatever the policy says.
    Pin(Several),
    /// Let the policy decide about checkpoints again.
    Unpin(Several),
    /// Give a checkpoint a label, or take it away.
    Label(Label),
    /// Move checkpoints to the trash. `undo` brings them back.
    Delete(Several),
    /// Move to the trash what the retention policy lets go. `undo` brings it back.
    Prune(Prune),
    /// Remove paths from every checkpoint, and their bytes from the store. CANNOT BE UNDONE.
    ///
    /// Files in the folder stay as they are. Ends with a search of the store, and lists what it cannot reach: the same
    /// content at other paths, the folder's own git repository, exports. Called again, it finishes what was interrupted.
    Forget(Forget),
    /// Free the space of what was deleted, at once and for good, and tidy the store.
    ///
    /// Checkpoints in the trash cannot be brought back after this. Runs beside captures. What cannot be rewritten now, for
    /// want of room or because a capture runs all the time, is left and named.
    Gc(Gc),
    /// Write a checkpoint as a folder, an archive, a patch or a git bundle.
    Export(Export),
    /// Serve a host over JSON-RPC 2.0, one message a line, on standard input and output.
    ///
    /// Every command is a method. `-C` and `--session` are the defaults of calls that name none. Ends when the input ends, after
    /// what was begun.
    Serve,
    /// Serve an agent over the Model Context Protocol, on standard input and output.
    ///
    /// An agent may checkpoint, list, compare and show, and take back its own session's work: that of `--session` or
    /// `BACKSTITCH_SESSION`, else a session that begins with this process, whose turns begin with each checkpoint.
    Mcp,
    /// Print a completion script.
    Completions(Completions),
    /// Print the manual page, or write all of them.
    Man(Man),
    /// Read and change settings.
    #[command(subcommand)]
    Config(Config),
    /// Record this workspace again.
    Enable,
    /// Record nothing of this workspace until `enable`.
    Disable,
    /// List and remove stores, of all workspaces.
    #[command(subcommand)]
    Stores(Stores),
    /// Attach the store of a folder that was moved here.
    Relink(Relink),
    /// Take an agent's hook payload on standard input: what an installed agent calls.
    ///
    /// Never fails and never blocks the agent: whatever happens, it ends with exit code 0, and standard output is empty or what
    /// the client reads. Problems are told on standard error and in `hooks.log` in the base folder of all stores.
    Hook(Hook),
    /// Write an agent's configuration, so that its work is recorded. Shows the change first.
    ///
    /// Done twice, it changes nothing. `uninstall` takes it out again, byte for byte.
    Install(Install),
    /// Take out of an agent's configuration what `install` wrote.
    Uninstall(Install),
    /// Fill the row of a turn that was begun with `--no-wait`; started by that command.
    #[command(hide = true)]
    Capture(Capture),
    /// Print a reference page, in Markdown.
    #[command(hide = true)]
    Reference(Reference),
}

/// `checkpoint`
#[derive(Args, Debug)]
pub struct Checkpoint {
    /// A label, by which the checkpoint can be named (at most 200 bytes).
    #[arg(short = 'm', long = "label", value_name = "LABEL", allow_hyphen_values = true)]
    pub label: Option<String>,
    /// The prompt that the turn begins with.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file; `-` is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,
    /// What it is recorded for.
    #[arg(long, value_name = "KIND", default_value = "manual", value_parser = recordable())]
    pub kind: Kind,
    /// Id of the conversation's entry.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub entry: Option<String>,
    /// The host's key of the turn that the row belongs to.
    ///
    /// Without it, rows of a session of the kinds `turn`, `tool` and `agent-run` belong to its open turn, and one of kind
    /// `prompt` begins a new one.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub turn: Option<String>,
    /// The sub-agent.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub agent: Option<String>,
    /// The tool.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub tool: Option<String>,
    /// How long it is kept [default: forensic for manual rows, else standard].
    #[arg(long, value_name = "CLASS")]
    pub retention: Option<Retention>,
    /// Keep it whatever the policy says.
    #[arg(long)]
    pub pin: bool,
    /// How wide to look.
    #[arg(long, value_name = "SCOPE", default_value = "workspace")]
    pub scope: Scope,
    /// No row when nothing changed since the last one.
    #[arg(long)]
    pub if_changed: bool,
    /// Only these are looked at.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `list`
#[derive(Args, Debug)]
pub struct List {
    /// Only rows of this kind.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Only rows recorded at or after this time (`10m`, `2h`, `14:05`, RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// At most this many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// All rows: those of tools and sub-agents, and of turns that a rewind took back, as well.
    #[arg(long)]
    pub all: bool,
    /// Oldest first.
    #[arg(long)]
    pub reverse: bool,
    /// Read every object that a row needs, and mark rows that cannot be restored.
    #[arg(long)]
    pub check: bool,
}

/// One checkpoint.
#[derive(Args, Debug)]
pub struct Named {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
}

/// Some checkpoints.
#[derive(Args, Debug)]
pub struct Several {
    /// Ids or prefixes, `@`, `@~N`, `turn:N`, `prompt:N`, labels, or times.
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub checkpoints: Vec<OsString>,
}

/// `diff`
#[derive(Args, Debug)]
pub struct Diff {
    /// The older side [default: the newest checkpoint].
    #[arg(value_name = "FROM")]
    pub from: Option<OsString>,
    /// The newer side [default: the folder as it is now].
    #[arg(value_name = "TO")]
    pub to: Option<OsString>,
    /// Count changed lines.
    #[arg(long, group = "form")]
    pub stat: bool,
    /// Only letters and paths, separated by tabs.
    #[arg(long, group = "form")]
    pub name_status: bool,
    /// The changed text, as a unified diff.
    #[arg(long, group = "form")]
    pub patch: bool,
    /// What turn N changed: from `prompt:N` to `turn:N`, or to the folder while the turn runs.
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    pub turn: Option<u64>,
    /// Only these, with all below.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `cat`
#[derive(Args, Debug)]
pub struct Cat {
    /// The checkpoint, a colon, and the path, relative to the workspace (`./x`: relative to the current folder).
    #[arg(value_name = "CHECKPOINT:PATH")]
    pub what: OsString,
}

/// `log`
#[derive(Args, Debug)]
pub struct Log {
    /// The path, relative to the current folder.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: OsString,
    /// At most this many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// `blame`
#[derive(Args, Debug)]
pub struct Blame {
    /// The file, relative to the current folder.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: OsString,
    /// As this checkpoint holds it [default: as it is on the disk].
    #[arg(long, value_name = "CHECKPOINT")]
    pub at: Option<OsString>,
}

/// `restore`
#[derive(Args, Debug)]
pub struct Restore {
    /// Id or prefix, `@`, `@~N`, `turn:N` (the state after it), `prompt:N` (before it), label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
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
    /// Files outside the workspace as well, as far as the checkpoint or a later tool call of its session holds them. Without
    /// it they are listed and left, and the exit code is 3.
    #[arg(long)]
    pub outside: bool,
    /// A path with unsaved text in an editor: left alone; may be repeated.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, allow_hyphen_values = true)]
    pub busy: Vec<OsString>,
    /// Apply only if the plan is exactly the one with this digest (from `--dry-run`).
    #[arg(long, value_name = "DIGEST")]
    pub plan: Option<String>,
    /// Restore a checkpoint of a folder that stood at this path before.
    #[arg(long)]
    pub replaced: bool,
    /// Setuid, setgid and capabilities come back.
    #[arg(long)]
    pub privileged: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Restore an implausibly empty checkpoint all the same.
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
    /// HEAD, index and refs of the repository as well. Not available in this version: refused.
    #[arg(long)]
    pub git_state: bool,
    /// Only these, with all below.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `rewind`, `revert`
#[derive(Args, Debug)]
pub struct Rewind {
    /// The turn (`N`, `turn:N` or `prompt:N`), or a checkpoint: of `rewind`, where to go back to; of `revert`, one of the
    /// turn. On a terminal, a list to choose from where it is left out.
    #[arg(value_name = "TURN")]
    pub to: Option<OsString>,
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
    /// Files outside the workspace as well, as far as the session's tools named them. Without it they are listed and left,
    /// and the exit code is 3.
    #[arg(long)]
    pub outside: bool,
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
    /// Also while another session's tool runs.
    #[arg(long)]
    pub force: bool,
    /// Only these, with all below.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `turn`
#[derive(Debug, Subcommand)]
pub enum Turn {
    /// Record the state before a turn. The same key gives the same row.
    ///
    /// A turn of the session that was left open is ended first, as `crashed`.
    Begin(TurnBegin),
    /// Record the state after the open turn, or the one with this key.
    ///
    /// Without an open turn nothing happens; a turn that was ended gives its row again.
    End(TurnEnd),
    /// Give the oldest turn without one, or the one with this key, the id of its conversation entry. The first one stays.
    Bind(TurnBind),
}

/// `turn begin`
#[derive(Args, Debug)]
pub struct TurnBegin {
    /// The host's key of the turn.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
    /// The prompt.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file; `-` is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,
    /// Id of the conversation's entry, where it is known already.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub entry: Option<String>,
    /// Return when the row is recorded [default].
    #[arg(long, conflicts_with = "no_wait")]
    pub wait: bool,
    /// Return at once: the row has its id and is a gap until another process, started here, has recorded it. `tool before`
    /// waits for that one.
    #[arg(long)]
    pub no_wait: bool,
    /// The host cannot hold its tools back: what changes from now on is never taken for the state before the turn, and the
    /// row says `"gated": false`.
    #[arg(long, requires = "no_wait")]
    pub ungated: bool,
}

/// `capture`
#[derive(Args, Debug)]
pub struct Capture {
    /// The row.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `turn end`
#[derive(Args, Debug)]
pub struct TurnEnd {
    /// The host's key of the turn.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
    /// How it ended.
    #[arg(long, value_name = "STATUS", default_value = "completed")]
    pub status: Status,
}

/// `turn bind`
#[derive(Args, Debug)]
pub struct TurnBind {
    /// Id of the conversation's entry.
    #[arg(long, value_name = "ID", required = true, allow_hyphen_values = true)]
    pub entry: String,
    /// The host's key of the turn.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
}

/// `tool`
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Record the state before a tool call: of the paths that it names, else of the whole workspace.
    ///
    /// Without paths it waits for the checkpoint of the turn, up to `gate_timeout`; then the row is a gap, and the exit code
    /// is 3.
    Before(ToolCall),
    /// Record the state after a tool call; the paths of its `before` are looked at again.
    After(ToolCall),
}

/// `tool before`, `tool after`
#[derive(Args, Debug)]
pub struct ToolCall {
    /// The host's id of the call; both ends have the same. A repeated end of one call is the same row.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub call: Option<String>,
    /// The tool.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub tool: Option<String>,
    /// The sub-agent.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub agent: Option<String>,
    /// Paths that the tool names, relative to the current folder, also of files outside the workspace. One that cannot be
    /// recorded is named in a warning, and the exit code is 3.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `session`
#[derive(Debug, Subcommand)]
pub enum Session {
    /// List sessions, the one with the newest checkpoint first.
    List,
    /// Show a session and the checkpoints of its line, oldest first: a fork's line begins with its parent's.
    Show(SessionName),
    /// Start a session from a checkpoint of another. Nothing is copied.
    Fork(Fork),
    /// Mark a session as ended; an open turn ends as `crashed`.
    End(SessionName),
    /// Move all checkpoints of a session to the trash. `undo` brings them back.
    Delete(SessionDelete),
    /// Remove a session for good, trash and operations included. CANNOT BE UNDONE.
    Purge(Purge),
}

/// One session.
#[derive(Args, Debug)]
pub struct SessionName {
    /// The session [default: the one of `--session`, else `BACKSTITCH_SESSION`, else the only one].
    #[arg(value_name = "SESSION")]
    pub id: Option<String>,
}

/// `session fork`
#[derive(Args, Debug)]
pub struct Fork {
    /// Id of the new session.
    #[arg(value_name = "NEW")]
    pub new: String,
    /// The checkpoint at which it starts.
    #[arg(long, value_name = "CHECKPOINT", required = true)]
    pub from: OsString,
}

/// `session delete`
#[derive(Args, Debug)]
pub struct SessionDelete {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub id: String,
    /// Also where a turn of it is open, or other sessions were forked from it.
    #[arg(long)]
    pub force: bool,
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
    /// Setuid, setgid and capabilities come back.
    #[arg(long)]
    pub privileged: bool,
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

/// `verify`
#[derive(Args, Debug)]
pub struct Verify {
    /// Set damaged parts aside, so that the rest can be used. Never guesses.
    #[arg(long)]
    pub repair: bool,
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

/// `label`
#[derive(Args, Debug)]
pub struct Label {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// The label (at most 200 bytes).
    #[arg(value_name = "LABEL", required_unless_present = "clear", conflicts_with = "clear")]
    pub label: Option<String>,
    /// Take the label away.
    #[arg(long)]
    pub clear: bool,
}

/// `export`
#[derive(Args, Debug)]
#[command(
    override_usage = "backstitch export [OPTIONS] <CHECKPOINT> <DIR|--tar FILE|--patch FILE|--bundle FILE>"
)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["dir", "tar", "patch", "bundle"]))]
pub struct Export {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// A folder that is empty or not there yet.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// A tar archive; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tar: Option<PathBuf>,
    /// What changed against the checkpoint before, as a patch; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub patch: Option<PathBuf>,
    /// A git bundle; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bundle: Option<PathBuf>,
    /// Replace a file that is there already.
    #[arg(long, conflicts_with = "dir")]
    pub force: bool,
}

/// `completions`
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Args, Debug)]
pub struct Man {
    /// Write one page for each command into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// `hook`
#[derive(Args, Debug)]
pub struct Hook {
    /// The agent.
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The event, as the client names it [default: as the payload says].
    #[arg(value_name = "EVENT")]
    pub event: Option<String>,
}

/// `install`, `uninstall`
#[derive(Args, Debug)]
pub struct Install {
    /// The agent.
    #[arg(value_name = "AGENT")]
    pub agent: Agent,
    /// The project's configuration, for everybody who works in it [default: the user's, for every project].
    #[arg(long)]
    pub project: bool,
    /// Show the change; write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `reference`
#[derive(Args, Debug)]
pub struct Reference {
    /// Which page.
    #[arg(value_name = "PAGE", default_value = "commands")]
    pub page: Page,
}

/// `config`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show a setting and where it comes from.
    Get(Key),
    /// Change a setting in the user's file, or in the project's.
    Set(Set),
    /// Show all settings.
    List,
    /// Show where settings are read from.
    Path,
    /// Let the project's file, as it is now, narrow what is kept.
    Trust,
}

/// `config get`
#[derive(Args, Debug)]
pub struct Key {
    /// The setting's name, such as `limits.new_file`.
    #[arg(value_name = "KEY")]
    pub key: String,
}

/// `config set`
#[derive(Args, Debug)]
pub struct Set {
    /// The setting's name, such as `limits.new_file`.
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The value: `true`, `32MiB`, `10`, a word, or a list such as `a,b`.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
    /// Change the project's file, `.backstitch.toml`.
    #[arg(long)]
    pub project: bool,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        fn walk(c: &clap::Command) {
            assert!(c.get_about().is_some(), "{}", c.get_name());
            for a in c.get_arguments() {
                assert!(a.get_help().is_some(), "{} {}", c.get_name(), a.get_id());
            }
            c.get_subcommands().for_each(walk);
        }
        let mut c = Cli::command();
        c.build();
        walk(&c);
    }

    #[test]
    fn global_options_stand_anywhere() {
        for line in [
            "backstitch --json -C x list",
            "backstitch list -C x --json",
            "backstitch config get k --json -C x",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect(line);
            assert!(cli.global.json && cli.global.workspace.is_some(), "{line}");
        }
    }

    #[test]
    fn what_follows_two_dashes_is_literal() {
        let cli = Cli::try_parse_from(["backstitch", "diff", "@", "--", "--json", "-x"]).expect("parsed");
        let Command::Diff(d) = cli.command else { panic!("not a diff") };
        assert!(!cli.global.json);
        assert_eq!(d.paths, ["--json", "-x"]);
    }

    #[test]
    fn commands_of_later_issues_do_not_exist() {
        assert!(Cli::try_parse_from(["backstitch", "sync"]).is_err());
    }
}

//! Words of the commands about sessions, their turns and tool calls: what a host calls.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueHint};

use super::{keep::Purge, words::Status};

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

/// `capture`
#[derive(Args, Debug)]
pub struct Capture {
    /// The row.
    #[arg(value_name = "ID")]
    pub id: String,
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

/// `bisect`
#[derive(Args, Debug)]
pub struct Bisect {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub id: String,
    /// A program and its words: exit code 0 is good, 125 means that it cannot be told, any other below 126 is bad.
    #[arg(last = true, value_name = "COMMAND", required = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

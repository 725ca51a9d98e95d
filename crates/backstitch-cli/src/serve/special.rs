//! The methods that no command stands for, in the same form as the table of commands.

use clap::{Args, Parser, Subcommand};

use crate::table::Global;

/// As [`crate::table::Cli`].
#[derive(Debug, Parser)]
#[command(name = "backstitch")]
pub struct Special {
    /// Options of every method.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub method: Method,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Method {
    /// Say hello; every other method is refused before. May be repeated.
    Initialize(Initialize),
    /// The folder that later calls of this connection are about.
    #[command(subcommand)]
    Workspace(Workspace),
    /// The session that later calls of this connection are about.
    #[command(subcommand)]
    Session(Session),
    /// Turns.
    #[command(subcommand)]
    Turn(Turn),
    /// Finish what was begun, answer, and end.
    Shutdown,
}

/// `initialize`
#[derive(Args, Debug)]
pub struct Initialize {
    /// The host's name.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub client: Option<String>,
    /// The host's version.
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    pub version: Option<String>,
    /// Milliseconds between two `$/progress` notifications of one call; the first one comes after as many.
    #[arg(long, value_name = "MS", default_value = "250")]
    pub progress_interval: u64,
}

/// `workspace`
#[derive(Debug, Subcommand)]
pub enum Workspace {
    /// Make `workspace` the folder of later calls that name none. Creates nothing. May be repeated, for several folders.
    Open,
}

/// `session`
#[derive(Debug, Subcommand)]
pub enum Session {
    /// Make `session` the session of later calls that name none. A turn that it left open ends as `crashed`. May be repeated.
    Open(SessionOpen),
}

/// `session/open`
#[derive(Args, Debug)]
pub struct SessionOpen {
    /// The session that this one was forked from, where it is new.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub parent: Option<String>,
    /// The checkpoint at which it was forked [default: the parent's newest].
    #[arg(long, value_name = "CHECKPOINT", requires = "parent", allow_hyphen_values = true)]
    pub from: Option<String>,
}

/// `turn`
#[derive(Debug, Subcommand)]
pub enum Turn {
    /// Wait until the `prompt` row of a turn is recorded; gives it, or the error that kept it from being.
    ///
    /// Without `id` and `key`: the newest turn of the session. No turn: `null`.
    Wait(TurnWait),
}

/// `turn/wait`
#[derive(Args, Debug)]
pub struct TurnWait {
    /// Id of the row, as `turn/begin` gave it.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub id: Option<String>,
    /// The host's key of the turn.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
}

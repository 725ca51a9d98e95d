//! Values that are one of a few words.

use backstitch::{record, undo};
use clap::{ValueEnum, builder::ValueParser};

/// A client that has hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    /// Claude Code.
    #[value(alias = "claude-code")]
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    #[value(alias = "gemini-cli")]
    Gemini,
    /// opencode.
    Opencode,
}

impl From<Agent> for backstitch_agents::Agent {
    fn from(a: Agent) -> Self {
        match a {
            Agent::Claude => backstitch_agents::Agent::Claude,
            Agent::Codex => backstitch_agents::Agent::Codex,
            Agent::Gemini => backstitch_agents::Agent::Gemini,
            Agent::Opencode => backstitch_agents::Agent::Opencode,
        }
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a row is recorded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A session opened.
    SessionStart,
    /// Before a turn.
    Prompt,
    /// After a turn.
    Turn,
    /// Before or after one tool call.
    Tool,
    /// After a sub-agent.
    AgentRun,
    /// Asked for by a person.
    Manual,
    /// The state just before an operation.
    Safety,
}

impl From<Kind> for record::Kind {
    fn from(k: Kind) -> Self {
        match k {
            Kind::SessionStart => record::Kind::SessionStart,
            Kind::Prompt => record::Kind::Prompt,
            Kind::Turn => record::Kind::Turn,
            Kind::Tool => record::Kind::Tool,
            Kind::AgentRun => record::Kind::AgentRun,
            Kind::Manual => record::Kind::Manual,
            Kind::Safety => record::Kind::Safety,
        }
    }
}

/// How long a row is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Retention {
    /// Days.
    Short,
    /// Weeks.
    Standard,
    /// Until deleted by hand or by the budget.
    Forensic,
}

impl From<Retention> for record::Retention {
    fn from(r: Retention) -> Self {
        match r {
            Retention::Short => record::Retention::Short,
            Retention::Standard => record::Retention::Standard,
            Retention::Forensic => record::Retention::Forensic,
        }
    }
}

/// How wide a checkpoint looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// The whole folder.
    Workspace,
    /// Only the named paths.
    Touched,
}

/// What happens to a path that no longer holds what the operation left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// It stays and is reported.
    Keep,
    /// Nothing at all is done.
    Refuse,
    /// It is overwritten; the safety checkpoint holds it.
    Overwrite,
    /// What others changed is kept line by line; lines that both changed stay and are reported.
    Merge,
}

impl From<OnConflict> for undo::OnConflict {
    fn from(c: OnConflict) -> Self {
        match c {
            OnConflict::Keep => undo::OnConflict::Keep,
            OnConflict::Refuse => undo::OnConflict::Refuse,
            OnConflict::Overwrite => undo::OnConflict::Overwrite,
            OnConflict::Merge => undo::OnConflict::Merge,
        }
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Status {
    /// It did what it was asked for.
    Completed,
    /// It failed.
    Error,
    /// It was stopped.
    Cancelled,
}

impl Status {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Completed => "completed",
            Status::Error => "error",
            Status::Cancelled => "cancelled",
        }
    }
}

/// Safety rows are made by operations only.
pub fn recordable() -> ValueParser {
    use clap::builder::TypedValueParser;
    let words: Vec<_> = Kind::value_variants()
        .iter()
        .filter(|k| **k != Kind::Safety)
        .filter_map(ValueEnum::to_possible_value)
        .collect();
    clap::builder::PossibleValuesParser::new(words)
        .map(|word| Kind::from_str(&word, false).unwrap_or(Kind::Manual))
        .into()
}

/// A reference page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// Commands, their options and shapes, error codes.
    Commands,
    /// Settings.
    Settings,
    /// Methods of the server.
    Rpc,
    /// Methods of the server, as OpenRPC.
    RpcSchema,
    /// Tools for agents, as MCP lists them.
    McpSchema,
}

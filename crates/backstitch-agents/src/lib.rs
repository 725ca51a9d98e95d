//! Coding agents as hosts: what their hooks say, put into the engine's calls, and their configuration.
//!
//! # What it does
//!
//! Every client calls `backstitch hook AGENT EVENT` with a payload on standard input. A thin table per client ([`claude`],
//! [`codex`], [`gemini`], [`opencode`]) turns it into one [`notice::Notice`]; [`deliver`] makes the engine's calls, the same for
//! all: session open, prompt, tool before and after, prompt end, session close. Each of them works when an earlier one never
//! came, and twice. [`hook::run`] is the whole of it, and never fails: an agent must not be blocked by its checkpoints.
//!
//! [`install`] writes a client's configuration and takes it out again, byte for byte.
//!
//! # Example
//!
//! ```
//! use backstitch::workspace::Surroundings;
//! use backstitch_agents::{Agent, hook};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path().join("work");
//! # std::fs::create_dir(&folder)?;
//! # std::fs::write(folder.join("a.txt"), "mine")?;
//! let surroundings = Surroundings { store_base: scratch.path().join("data"), ..Surroundings::default() };
//! let payload = format!(
//!     r#"{{"session_id":"s1","cwd":{:?},"hook_event_name":"UserPromptSubmit","prompt_id":"p1","prompt":"Go"}}"#,
//!     folder
//! );
//! let out = hook::answer(Agent::Claude, None, payload.as_bytes(), &hook::Host::bare(surroundings));
//! assert!(out.problem.is_none() && out.stdout.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! Of hooks: none; what went wrong is in [`hook::Said::problem`] and in the log of the base folder of all stores. Of [`install`]:
//! the engine's [`backstitch::error::Error`], naming the file and the line.
//!
//! # Limits
//!
//! A payload is read up to 32 MiB and for at most five seconds. What a client's hooks do not say cannot be known here:
//! `docs/agents.md` has it client by client.
#![deny(missing_docs)]

pub mod claude;
pub mod codex;
pub mod command;
pub mod deliver;
pub mod gemini;
pub mod hook;
pub mod input;
pub mod install;
pub mod marks;
pub mod notice;
pub mod opencode;
pub mod patch;
pub mod payload;
pub mod told;
pub mod transcript;

/// A client that has hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
}

impl Agent {
    /// All of them.
    pub const ALL: &'static [Agent] = &[Agent::Claude, Agent::Codex, Agent::Gemini, Agent::Opencode];

    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Agent::Claude => "claude",
            Agent::Codex => "codex",
            Agent::Gemini => "gemini",
            Agent::Opencode => "opencode",
        }
    }

    /// Inverse of [`Agent::as_str`]; the packages' names are understood too.
    pub fn parse(s: &str) -> Option<Agent> {
        match s {
            "claude-code" => Some(Agent::Claude),
            "gemini-cli" => Some(Agent::Gemini),
            _ => Agent::ALL.iter().copied().find(|a| a.as_str() == s),
        }
    }

    /// As its makers call it.
    pub fn title(self) -> &'static str {
        match self {
            Agent::Claude => "Claude Code",
            Agent::Codex => "Codex",
            Agent::Gemini => "Gemini CLI",
            Agent::Opencode => "opencode",
        }
    }
}

//! What a client said, in one vocabulary.

use std::path::PathBuf;

/// One thing that happened in a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The client's id of the session, in the letters that ids may have.
    pub session: String,
    /// The folder that the session works in.
    pub folder: PathBuf,
    /// What relative paths of tools are relative to.
    pub current: PathBuf,
    /// The file that the client keeps the conversation in.
    pub transcript: Option<PathBuf>,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session began or goes on. `forked`: from another one, which the transcript tells.
    Open {
        /// It carries another session's conversation.
        forked: bool,
    },
    /// A person sent a prompt.
    Prompt {
        /// The client's id of the turn.
        key: Option<String>,
        /// The client's id of the message.
        entry: Option<String>,
        /// What was typed.
        text: String,
    },
    /// A prompt that no person typed: it belongs to the turn before it.
    Aside {
        /// The client's id.
        key: Option<String>,
    },
    /// A tool is about to run.
    Before(Tool),
    /// A tool has run, or failed.
    After(Tool),
    /// The answer is complete.
    End {
        /// The client's id of the turn.
        key: Option<String>,
    },
    /// A sub-agent has stopped.
    AgentEnd {
        /// Its id.
        agent: String,
        /// The client's id of the turn.
        key: Option<String>,
    },
    /// The session is closed.
    Close,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The client's id of the turn.
    pub key: Option<String>,
    /// Which call.
    pub call: Call,
    /// The tool's name.
    pub name: String,
    /// The sub-agent that calls.
    pub agent: Option<String>,
    /// Paths that it names; none: it may write anywhere.
    pub paths: Vec<PathBuf>,
}

/// How both ends of a tool call are known to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The client has an id for it.
    Id(String),
    /// It has none: the same tool with the same input is the same call while its window is open.
    Unnamed {
        /// Of tool and input.
        digest: String,
        /// When, as the client says it: tells repeated reports from a second call.
        at: String,
    },
}

/// A session's id in the letters that ids may have: what others use is replaced, never refused.
pub fn session_id(id: &str) -> Option<String> {
    let mut out: String = id
        .chars()
        .take(200)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '@') { c } else { '_' })
        .collect();
    while out.contains("..") {
        out = out.replace("..", "__");
    }
    if out.starts_with(['.', '-', '@']) {
        out.replace_range(..1, "_");
    }
    if out.ends_with(".lock") {
        out.push('_');
        out = out.chars().skip(out.len().saturating_sub(200)).collect();
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_becomes_one_that_the_engine_takes() {
        for id in
            ["a", "ses_dd2f", "../../x", "-x", "@1", "a b/é", ".hid", "x.lock", &"y".repeat(999), "a...b"]
        {
            let got = session_id(id).expect(id);
            assert!(backstitch::session::check_session(&got).is_ok(), "{id} -> {got}");
        }
        assert_eq!(session_id("550e8400-e29b").as_deref(), Some("550e8400-e29b"));
        assert_eq!(session_id(""), None);
    }
}

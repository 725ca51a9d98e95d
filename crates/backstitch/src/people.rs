//! Which commands are a person's and not an agent's (SEMANTICS 36): those that remove, switch off, or send what is recorded.
//! One rule for command line, RPC and MCP.

use crate::{
    error::{Code, Error, Result},
    workspace::Surroundings,
};

/// These words remove something, or switch something off, wherever they stand in a command.
const REMOVE: &[&str] = &["delete", "forget", "purge", "prune", "gc", "disable", "uninstall", "relink"];
/// These nouns are a person's but for reading.
const NOUNS: &[&str] = &["config", "stores"];
const READING: &[&str] = &["get", "list", "path"];
/// These send what is recorded to others.
const SENDING: &[(&str, &str)] = &[("sync", "push")];

/// `stores delete` and `stores/delete` alike: not for agents.
///
/// ```
/// # use backstitch::people::is_for_people;
/// assert!(is_for_people("session delete") && is_for_people("checkpoint/delete") && is_for_people("config set"));
/// assert!(is_for_people("sync push") && !is_for_people("sync pull"));
/// assert!(!is_for_people("config get") && !is_for_people("restore"));
/// ```
pub fn is_for_people(command: &str) -> bool {
    let mut words = command.split([' ', '/']).filter(|w| !w.is_empty());
    let first = words.next().unwrap_or("");
    let second = words.next();
    let removes = |w: &str| REMOVE.contains(&w);
    removes(first)
        || second.is_some_and(removes)
        || second.is_some_and(|s| SENDING.contains(&(first, s)))
        || NOUNS.contains(&first) && !second.is_some_and(|w| READING.contains(&w))
}

impl Surroundings {
    /// Refuses what is a person's where an agent's variable is in the environment and no person said so.
    ///
    /// # Errors
    /// `agent-context`, naming the variable.
    pub fn refuse_agents(&self, command: &str) -> Result<()> {
        match &self.agent_context {
            Some(variable) if is_for_people(command) => Err(Error::new(
                Code::AgentContext,
                format!("`{}` is not for agents ({variable} is set)", command.replace('/', " ")),
            )
            .hint("a person adds --as-person; nothing was changed")),
            _ => Ok(()),
        }
    }
}

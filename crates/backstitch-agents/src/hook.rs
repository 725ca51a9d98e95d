//! One hook process: payload in, answer out. Whatever goes wrong, the client hears nothing of it and goes on; it is told on
//! standard error and in `hooks.log` in the base folder of all stores.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use backstitch::workspace::Surroundings;
use serde_json::Value;

use crate::{
    Agent, claude, codex,
    deliver::{self, Answer},
    gemini, input,
    notice::{Event, Notice},
    opencode,
};

/// The log is begun anew above this size; the one before is kept.
const LOG_LIMIT: u64 = 1 << 20;

/// What a hook knows of the client besides the payload.
#[derive(Clone, Debug)]
pub struct Host {
    /// The engine's surroundings.
    pub surroundings: Surroundings,
    /// The folder of the project, where the client tells it by a variable.
    pub project: Option<PathBuf>,
    /// The process's folder.
    pub current: PathBuf,
}

impl Host {
    /// From the process's environment.
    pub fn of_process(agent: Agent, surroundings: Surroundings) -> Host {
        let variable = match agent {
            Agent::Claude => Some("CLAUDE_PROJECT_DIR"),
            Agent::Gemini => Some("GEMINI_PROJECT_DIR"),
            Agent::Codex | Agent::Opencode => None,
        };
        let project =
            variable.and_then(std::env::var_os).map(PathBuf::from).filter(|p| p.is_absolute() && p.is_dir());
        let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Host { surroundings, project, current }
    }

    /// Nothing but the engine's surroundings.
    pub fn bare(surroundings: Surroundings) -> Host {
        Host { surroundings, project: None, current: PathBuf::from("/") }
    }
}

/// What a hook says.
#[derive(Debug, Default)]
pub struct Said {
    /// To the client, on standard output: empty, or one JSON document and a line's end.
    pub stdout: String,
    /// What went wrong, in a line.
    pub problem: Option<String>,
}

/// The whole of `backstitch hook`: reads standard input, writes standard output. Never fails.
pub fn run(agent: &str, event: Option<&str>, surroundings: Surroundings) {
    let base = surroundings.store_base.clone();
    let said = guarded(|| {
        let Some(agent) = Agent::parse(agent) else {
            return Said { problem: Some(format!("no agent {agent:?} is known")), ..Said::default() };
        };
        let host = Host::of_process(agent, surroundings);
        let payload = input::read(std::io::stdin(), input::LIMIT, input::WAIT);
        answer(agent, event, &payload, &host)
    });
    if !said.stdout.is_empty() {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(said.stdout.as_bytes()).and_then(|()| out.flush());
    }
    if let Some(problem) = said.problem {
        complain(&base, &format!("hook {agent} {}: {problem}", event.unwrap_or("-")));
    }
}

/// A panic is a problem like any other.
fn guarded(work: impl FnOnce() -> Said) -> Said {
    let silent = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let said = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Said { problem: Some(format!("an error in the program: {text}")), ..Said::default() }
    });
    std::panic::set_hook(silent);
    said
}

/// Tells a problem where it does not disturb: standard error, and the log.
pub fn complain(base: &Path, problem: &str) {
    let problem: String = problem.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(std::io::stderr().lock(), "backstitch: {problem}");
    let log = base.join("hooks.log");
    let write = || -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
        if log.symlink_metadata().is_ok_and(|m| m.len() > LOG_LIMIT) {
            fs::rename(&log, log.with_extension("log.old"))?;
        }
        let mut f = OpenOptions::new().append(true).create(true).mode(0o600).open(&log)?;
        let at = backstitch::record::rfc3339(backstitch::record::now_ms());
        // One call: lines of several processes do not mix.
        f.write_all(format!("{at} {problem}\n").as_bytes())
    };
    let _ = write();
}

/// From a payload to what is said; the engine's calls are made on the way.
pub fn answer(agent: Agent, event: Option<&str>, payload: &[u8], host: &Host) -> Said {
    if host.surroundings.disabled {
        return Said::default();
    }
    // Some shells put a mark before what they pass on.
    let payload = payload.strip_prefix(b"\xef\xbb\xbf").unwrap_or(payload);
    let payload = match input::parse(payload) {
        Ok(v) => v,
        Err(e) => {
            let problem = format!("the payload ({} bytes) cannot be read: {e}", payload.len());
            return Said { problem: Some(problem), ..Said::default() };
        }
    };
    let Some(notice) = read(agent, event, &payload, host) else { return Said::default() };
    match deliver::deliver(agent, &notice, &host.surroundings) {
        Ok(answer) => Said { stdout: say(agent, &notice.event, answer), problem: None },
        Err(e) => Said { problem: Some(deliver::problem(&e)), ..Said::default() },
    }
}

/// The notice in a payload; `None` for what is of no concern here.
pub fn read(agent: Agent, event: Option<&str>, payload: &Value, host: &Host) -> Option<Notice> {
    match agent {
        Agent::Claude => claude::read(event, payload, host),
        Agent::Codex => codex::read(event, payload, host),
        Agent::Gemini => gemini::read(event, payload, host),
        Agent::Opencode => opencode::read(event, payload, host),
    }
}

/// An answer in the client's own form. Only prompts have one.
fn say(agent: Agent, event: &Event, answer: Answer) -> String {
    if !matches!(event, Event::Prompt { .. }) {
        return String::new();
    }
    let name = if agent == Agent::Gemini { "BeforeAgent" } else { "UserPromptSubmit" };
    let value = match (agent, answer) {
        (_, Answer::Nothing) => return String::new(),
        (Agent::Opencode, Answer::Tell(text)) => serde_json::json!({"tell": text}),
        (Agent::Opencode, Answer::Stop(text)) => serde_json::json!({"stop": text}),
        (_, Answer::Tell(text)) => claude::tell(name, &text),
        (_, Answer::Stop(text)) => claude::stop(&text),
    };
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_problem_and_nothing_else() {
        let said = guarded(|| panic!("at the {}", "disco"));
        assert!(said.stdout.is_empty());
        assert_eq!(said.problem.as_deref(), Some("an error in the program: at the disco"));
    }

    #[test]
    fn the_log_stays_small_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("base");
        complain(&base, "first\nsecond");
        let log = base.join("hooks.log");
        let text = fs::read_to_string(&log).expect("written");
        assert!(text.lines().count() == 1 && text.contains("first") && text.contains("second"), "{text}");
        let mode = |p: &Path| fs::metadata(p).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&log), mode(&base)), (0o600, 0o700));
        fs::write(&log, vec![b'x'; LOG_LIMIT as usize + 1]).expect("written");
        complain(&base, "third");
        assert!(fs::metadata(&log).expect("there").len() < 1000 && base.join("hooks.log.old").exists());
    }
}

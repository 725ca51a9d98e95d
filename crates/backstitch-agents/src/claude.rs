//! Claude Code. Turn ids are `prompt_id`; entries are the `uuid` of the prompt's row in the transcript, which is written
//! after the hook has run and is bound later. A fork keeps the uuids and gets new prompt ids.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    hook::Host,
    notice::{Call, Event, Notice, Tool, session_id},
    payload,
};

/// Tools that never write. Sub-agents are windows of the tools that they call.
const READERS: &[&str] = &[
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "KillShell",
    "LS",
    "ListAgents",
    "LSP",
    "ListMcpResourcesTool",
    "NotebookRead",
    "Read",
    "ReadMcpResourceTool",
    "ReportFindings",
    "ScheduleWakeup",
    "SendMessage",
    "Skill",
    "SlashCommand",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
];

/// Tools that write the path in their input, and nothing else. Any other tool may write anywhere.
const WRITERS: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit"];

/// The kind of event: said in the command line, else in the payload.
pub fn event<'a>(said: Option<&'a str>, p: &'a Value) -> Option<&'a str> {
    said.or(payload::text(p, "hook_event_name"))
}

/// The notice in a payload; `None` for what is of no concern here. Codex speaks the same language with other words for turns
/// and tools: `key` is its name of the turn's id.
pub fn read(said: Option<&str>, p: &Value, host: &Host) -> Option<Notice> {
    let key = payload::owned(p, "prompt_id");
    let event = shared(event(said, p)?, p, key, |name, input| {
        named(name, input, READERS, WRITERS, &["file_path", "notebook_path"])
    })?;
    notice(p, host, event)
}

/// A notice of these clients' common fields.
pub(crate) fn notice(p: &Value, host: &Host, event: Event) -> Option<Notice> {
    let current = payload::path(p, "cwd").filter(|c| c.is_absolute()).unwrap_or_else(|| host.current.clone());
    // The shell's folder wanders with `cd`; the session's does not.
    let folder = host.project.clone().unwrap_or_else(|| current.clone());
    Some(Notice {
        session: session_id(payload::text(p, "session_id")?)?,
        folder,
        current,
        transcript: payload::path(p, "transcript_path"),
        event,
    })
}

/// The events that Claude Code and Codex have in common. `writes` tells the paths that a tool names, `None` for one that
/// never writes.
pub(crate) fn shared(
    name: &str,
    p: &Value,
    key: Option<String>,
    writes: impl Fn(&str, &Value) -> Option<Vec<PathBuf>>,
) -> Option<Event> {
    let tool = || {
        let name = payload::text(p, "tool_name")?;
        let input = p.get("tool_input").unwrap_or(&Value::Null);
        let paths = writes(name, input)?;
        Some(Tool {
            key: key.clone(),
            call: match payload::owned(p, "tool_use_id") {
                Some(id) => Call::Id(id),
                None => unnamed(name, input, ""),
            },
            name: name.to_owned(),
            agent: payload::owned(p, "agent_id"),
            paths,
        })
    };
    Some(match name {
        "SessionStart" => match payload::text(p, "source") {
            // In the middle of a turn.
            Some("compact") => return None,
            source => Event::Open { forked: source == Some("fork") },
        },
        "UserPromptSubmit" => {
            let text = payload::text(p, "prompt").unwrap_or_default();
            match text.trim_start().starts_with("<task-notification>") {
                true => Event::Aside { key },
                false => Event::Prompt { key, entry: None, text: text.to_owned() },
            }
        }
        "PreToolUse" => Event::Before(tool()?),
        "PostToolUse" | "PostToolUseFailure" => Event::After(tool()?),
        "SubagentStop" => match (payload::owned(p, "agent_id"), payload::text(p, "agent_type")) {
            (Some(agent), Some(_)) => Event::AgentEnd { agent, key },
            // Compaction stops one without a type.
            _ => return None,
        },
        // The turn goes on while a sub-agent or a command is still at work.
        "Stop" if is_busy(p) => return None,
        "Stop" => Event::End { key },
        "SessionEnd" => Event::Close,
        _ => return None,
    })
}

/// The paths that a tool names: `None` for one that never writes, none for one that may write anywhere.
pub(crate) fn named(
    name: &str,
    input: &Value,
    readers: &[&str],
    writers: &[&str],
    fields: &[&str],
) -> Option<Vec<PathBuf>> {
    match name {
        _ if readers.contains(&name) => None,
        _ if writers.contains(&name) => Some(payload::paths(input, fields)),
        _ => Some(Vec::new()),
    }
}

fn is_busy(p: &Value) -> bool {
    let tasks = p.get("background_tasks").and_then(Value::as_array);
    tasks.is_some_and(|t| t.iter().any(|t| payload::text(t, "status") == Some("running")))
}

/// A call without an id.
pub(crate) fn unnamed(name: &str, input: &Value, at: &str) -> Call {
    let digest = backstitch::settings::digest(format!("{name}\n{input}").as_bytes());
    Call::Unnamed { digest: digest.chars().take(12).collect(), at: at.to_owned() }
}

/// What the client reads on standard output so that the model's next request holds this.
pub fn tell(event: &str, text: &str) -> Value {
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
}

/// What the client reads on standard output so that the prompt goes no further and the person reads this.
pub fn stop(text: &str) -> Value {
    json!({"decision": "block", "reason": text})
}

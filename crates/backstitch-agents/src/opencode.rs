//! opencode: the payloads that our plugin writes, each the arguments of one of its hooks and the folder.

use serde_json::Value;

use crate::{
    claude,
    hook::Host,
    notice::{Call, Event, Notice, Tool, session_id},
    patch, payload,
};

/// Tools that never write.
const READERS: &[&str] = &[
    "read",
    "glob",
    "grep",
    "list",
    "webfetch",
    "websearch",
    "codesearch",
    "todowrite",
    "todoread",
    "task",
    "question",
    "skill",
    "lsp",
    "invalid",
    "batch",
];

/// Tools that write the paths in their input, and nothing else.
const WRITERS: &[&str] = &["write", "edit", "multiedit", "patch", "apply_patch"];

/// The notice in a payload; `None` for what is of no concern here.
pub fn read(said: Option<&str>, p: &Value, host: &Host) -> Option<Notice> {
    let name = said.or(payload::text(p, "hook")).or(payload::text(p, "type"))?;
    let own = payload::first(
        p,
        &["input.sessionID", "message.sessionID", "properties.sessionID", "properties.info.id"],
    )?;
    // A child session is a sub-agent's: it works under its parent's turn. The plugin names the parent.
    let root = payload::text(p, "root").filter(|r| *r != own);
    let agent = root.map(|_| own.to_owned());
    let session = root.unwrap_or(own);
    let tool = || {
        let name = payload::text(p, "input.tool")?;
        let args = p.get("args").or(p.get("input").and_then(|i| i.get("args"))).unwrap_or(&Value::Null);
        let mut paths = claude::named(name, args, READERS, WRITERS, &["filePath"])?;
        if let Some(text) = payload::text(args, "patchText").filter(|_| WRITERS.contains(&name)) {
            paths.extend(patch::paths(text));
        }
        Some(Tool {
            key: None,
            call: Call::Id(payload::owned(p, "input.callID")?),
            name: name.to_owned(),
            agent: agent.clone(),
            paths,
        })
    };
    let event = match name {
        "session.created" if agent.is_some() => return None,
        "session.created" => Event::Open { forked: false },
        "chat.message" if agent.is_some() => return None,
        "chat.message" => Event::Prompt {
            key: payload::owned(p, "message.id"),
            entry: payload::owned(p, "message.id"),
            text: prompt(p),
        },
        "tool.execute.before" => Event::Before(tool()?),
        "tool.execute.after" => Event::After(tool()?),
        "session.idle" => match agent {
            Some(agent) => Event::AgentEnd { agent, key: None },
            None => Event::End { key: None },
        },
        _ => return None,
    };
    let current = payload::path(p, "directory").filter(|d| d.is_absolute()).unwrap_or(host.current.clone());
    Some(Notice { session: session_id(session)?, folder: current.clone(), current, transcript: None, event })
}

fn prompt(p: &Value) -> String {
    let parts = p.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts
        .iter()
        .filter(|x| {
            payload::text(x, "type") == Some("text") && x.get("synthetic") != Some(&Value::Bool(true))
        })
        .filter_map(|x| payload::text(x, "text"))
        .collect();
    texts.join("\n")
}

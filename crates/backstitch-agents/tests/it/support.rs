//! A folder, a base for stores, and a client that calls hooks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use backstitch::{
    record::{Checkpoint, Kind},
    workspace::{Surroundings, Workspace},
};
use backstitch_agents::{
    Agent,
    hook::{self, Host, Said},
};
use serde_json::{Value, json};

/// Where the recorded payloads play.
pub const RECORDED: &str = "/home/dev/project";

pub struct World {
    pub ws: PathBuf,
    pub top: PathBuf,
    pub host: Host,
    _dir: tempfile::TempDir,
}

impl World {
    /// With one file of a person's.
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let ws = top.join("project");
        fs::create_dir(&ws).unwrap();
        let surroundings = Surroundings {
            home: Some(top.join("home")),
            store_base: top.join("base"),
            settings: vec![("BACKSTITCH_DURABILITY".to_owned(), "none".to_owned())],
            ..Surroundings::default()
        };
        let w = World { ws, top, host: Host::bare(surroundings), _dir: dir };
        w.write("mine.txt", "mine\n");
        w
    }

    pub fn write(&self, rel: &str, text: &str) {
        let path = self.ws.join(rel);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, rel: &str) -> Option<String> {
        fs::read_to_string(self.ws.join(rel)).ok()
    }

    pub fn open(&self) -> Workspace {
        Workspace::open(&self.ws, self.host.surroundings.clone()).unwrap()
    }

    pub fn rows(&self) -> Vec<Checkpoint> {
        match self.open() {
            ws if ws.has_store() => ws.rows().unwrap().all,
            _ => Vec::new(),
        }
    }

    /// `prompt 1, tool before Write, ...` of the rows of a session, oldest first.
    pub fn shape(&self, session: &str) -> Vec<String> {
        let of = |c: &Checkpoint| {
            let r = &c.record;
            let turn = r.turn.map(|n| n.to_string()).unwrap_or_else(|| "-".to_owned());
            match r.kind {
                Kind::Tool => format!(
                    "{turn} {} {}{}",
                    r.phase.as_deref().unwrap(),
                    r.tool.as_deref().unwrap_or("-"),
                    if r.covers.is_some() { "*" } else { "" }
                ),
                Kind::Turn => format!("{turn} {}", r.status.as_deref().unwrap()),
                kind => format!("{turn} {}", kind.as_str()),
            }
        };
        self.rows().iter().filter(|c| c.record.session.as_deref() == Some(session)).map(of).collect()
    }

    /// One hook.
    pub fn hook(&self, agent: Agent, event: Option<&str>, payload: &Value) -> Said {
        hook::answer(agent, event, payload.to_string().as_bytes(), &self.host)
    }

    /// One hook that must go well.
    pub fn ok(&self, agent: Agent, event: Option<&str>, payload: &Value) -> String {
        let said = self.hook(agent, event, payload);
        assert_eq!(said.problem, None, "{payload}");
        assert!(said.stdout.is_empty() || serde_json::from_str::<Value>(&said.stdout).is_ok());
        said.stdout
    }

    /// A recorded payload, in this folder.
    pub fn here(&self, payload: &Value) -> Value {
        here(payload, &self.ws)
    }
}

fn here(v: &Value, ws: &Path) -> Value {
    match v {
        Value::String(s) => s.replace(RECORDED, ws.to_str().unwrap()).into(),
        Value::Array(a) => a.iter().map(|v| here(v, ws)).collect(),
        Value::Object(m) => m.iter().map(|(k, v)| (k.clone(), here(v, ws))).collect(),
        other => other.clone(),
    }
}

/// All recorded payloads of a client, by event and tool.
pub fn recorded(agent: Agent) -> serde_json::Map<String, Value> {
    let text = match agent {
        Agent::Claude => include_str!("../payloads/claude.json"),
        Agent::Codex => include_str!("../payloads/codex.json"),
        Agent::Gemini => include_str!("../payloads/gemini.json"),
        Agent::Opencode => include_str!("../payloads/opencode.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// The event that a client names for a recorded payload: the payload's own name, but for opencode's.
pub fn event_of(agent: Agent, name: &str) -> Option<&str> {
    let name = name.strip_prefix("event-").unwrap_or(name);
    (agent == Agent::Opencode).then(|| name.split('-').next().unwrap())
}

/// A client in a session: what a real one calls around prompts and tools.
pub struct Client<'a> {
    pub w: &'a World,
    pub agent: Agent,
    pub session: &'a str,
    pub transcript: PathBuf,
    clock: std::cell::Cell<u32>,
}

impl<'a> Client<'a> {
    pub fn new(w: &'a World, agent: Agent, session: &'a str) -> Client<'a> {
        let transcript = w.top.join(format!("{session}.jsonl"));
        Client { w, agent, session, transcript, clock: std::cell::Cell::new(0) }
    }

    fn send(&self, event: &str, mut fields: Value) -> String {
        let tick = self.clock.get();
        self.clock.set(tick + 1);
        let (w, id) = (self.w, self.session);
        if self.agent == Agent::Opencode {
            fields["directory"] = w.ws.to_str().unwrap().into();
            return w.ok(self.agent, Some(event), &fields);
        }
        let common = json!({
            "session_id": id, "cwd": w.ws, "transcript_path": self.transcript, "hook_event_name": event,
            "timestamp": format!("2026-11-30T15:16:{:02}.{:03}Z", tick / 1000, tick % 1000),
        });
        for (k, v) in common.as_object().unwrap() {
            fields[k] = v.clone();
        }
        w.ok(self.agent, None, &fields)
    }

    pub fn start(&self, source: &str) -> String {
        match self.agent {
            Agent::Opencode => {
                self.send("session.created", json!({"properties": {"sessionID": self.session}}))
            }
            _ => self.send("SessionStart", json!({"source": source})),
        }
    }

    pub fn prompt(&self, key: &str, text: &str) -> String {
        match self.agent {
            Agent::Claude => self.send("UserPromptSubmit", json!({"prompt_id": key, "prompt": text})),
            Agent::Codex => self.send("UserPromptSubmit", json!({"turn_id": key, "prompt": text})),
            Agent::Gemini => self.send("BeforeAgent", json!({"prompt": text})),
            Agent::Opencode => self.send(
                "chat.message",
                json!({"input": {"sessionID": self.session}, "message": {"id": key}, "parts": [{"type": "text", "text": text}]}),
            ),
        }
    }

    fn tool(&self, before: bool, key: &str, call: &str, tool: &Value) {
        let event = match (self.agent, before) {
            (Agent::Claude | Agent::Codex, true) => "PreToolUse",
            (Agent::Claude | Agent::Codex, false) => "PostToolUse",
            (Agent::Gemini, true) => "BeforeTool",
            (Agent::Gemini, false) => "AfterTool",
            (Agent::Opencode, true) => "tool.execute.before",
            (Agent::Opencode, false) => "tool.execute.after",
        };
        let (name, input) = (&tool["name"], &tool["input"]);
        let fields = match self.agent {
            Agent::Claude => {
                json!({"prompt_id": key, "tool_use_id": call, "tool_name": name, "tool_input": input})
            }
            Agent::Codex => {
                json!({"turn_id": key, "tool_use_id": call, "tool_name": name, "tool_input": input})
            }
            Agent::Gemini => json!({"tool_name": name, "tool_input": input}),
            Agent::Opencode if before => json!({
                "input": {"tool": name, "sessionID": self.session, "callID": call}, "args": input,
            }),
            Agent::Opencode => json!({
                "input": {"tool": name, "sessionID": self.session, "callID": call, "args": input},
            }),
        };
        self.send(event, fields);
    }

    /// The client's file tool writes.
    pub fn write(&self, key: &str, call: &str, rel: &str, text: &str) {
        let path = self.w.ws.join(rel);
        let tool = match self.agent {
            Agent::Claude => json!({"name": "Write", "input": {"file_path": path, "content": text}}),
            Agent::Codex => json!({"name": "apply_patch", "input": {
                "command": format!("*** Begin Patch\n*** Add File: {rel}\n+{text}\n*** End Patch"),
            }}),
            Agent::Gemini => json!({"name": "write_file", "input": {"file_path": path, "content": text}}),
            Agent::Opencode => json!({"name": "write", "input": {"filePath": path, "content": text}}),
        };
        self.tool(true, key, call, &tool);
        self.w.write(rel, text);
        self.tool(false, key, call, &tool);
    }

    pub fn shell(&self, key: &str, call: &str, work: impl FnOnce()) {
        let tool = self.command("sed -i s/a/b/ *");
        self.tool(true, key, call, &tool);
        work();
        self.tool(false, key, call, &tool);
    }

    fn command(&self, line: &str) -> Value {
        let name = match self.agent {
            Agent::Claude | Agent::Codex => "Bash",
            Agent::Gemini => "run_shell_command",
            Agent::Opencode => "bash",
        };
        json!({"name": name, "input": {"command": line}})
    }

    /// Only the beginning: the client was interrupted.
    pub fn shell_begins(&self, key: &str, call: &str) {
        self.tool(true, key, call, &self.command("sleep 100"));
    }

    pub fn end(&self, key: &str) {
        match self.agent {
            Agent::Claude => self.send("Stop", json!({"prompt_id": key, "background_tasks": []})),
            Agent::Codex => self.send("Stop", json!({"turn_id": key})),
            Agent::Gemini => self.send("AfterAgent", json!({})),
            Agent::Opencode => self.send("session.idle", json!({"properties": {"sessionID": self.session}})),
        };
    }

    pub fn raw(&self, event: &str, fields: Value) -> String {
        self.send(event, fields)
    }
}

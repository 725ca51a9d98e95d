//! What each recorded payload means.

use backstitch_agents::{
    Agent, hook,
    notice::{Call, Event},
};
use serde_json::json;

use crate::support::{Client, World, event_of, recorded};

/// A notice in a word or two; `-` for what is of no concern.
fn meaning(agent: Agent, name: &str, w: &World) -> String {
    let payload = w.here(&recorded(agent)[name]);
    let Some(n) = hook::read(agent, event_of(agent, name), &payload, &w.host) else { return "-".into() };
    assert_eq!(n.folder, w.ws, "{name}");
    let tool = |what: &str, t: &backstitch_agents::notice::Tool| {
        let paths: Vec<String> = t
            .paths
            .iter()
            .map(|p| p.strip_prefix(&w.ws).unwrap_or(p).to_string_lossy().into_owned())
            .collect();
        let id = if matches!(t.call, Call::Id(_)) { "" } else { " unnamed" };
        let agent = if t.agent.is_some() { " in a sub-agent" } else { "" };
        format!("{what} {}{id}{agent} [{}]", t.name, paths.join(" "))
    };
    match &n.event {
        Event::Open { forked } => format!("open{}", if *forked { " forked" } else { "" }),
        Event::Prompt { key, entry, text } => {
            assert!(key.is_some());
            format!("prompt{} {text}", if entry.is_some() { " bound" } else { "" })
        }
        Event::Aside { key } => format!("aside {}", key.is_some()),
        Event::Before(t) => tool("before", t),
        Event::After(t) => tool("after", t),
        Event::End { .. } => "end".into(),
        Event::AgentEnd { .. } => "agent end".into(),
        Event::Close => "close".into(),
    }
}

fn all(agent: Agent, want: &[(&str, &str)]) {
    let w = World::new();
    let names: Vec<String> = recorded(agent).keys().cloned().collect();
    let found: Vec<(String, String)> = names.iter().map(|n| (n.clone(), meaning(agent, n, &w))).collect();
    let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(found, want);
}

#[test]
fn claude_code() {
    all(
        Agent::Claude,
        &[
            ("MessageDisplay", "-"),
            ("PostCompact", "-"),
            ("PostToolBatch", "-"),
            ("PostToolUse-Agent", "-"),
            ("PostToolUse-Bash", "after Bash []"),
            ("PostToolUse-Edit", "after Edit [a.txt]"),
            ("PostToolUse-Read", "-"),
            ("PostToolUse-Write", "after Write [a.txt]"),
            ("PostToolUse-Write-in-subagent", "after Write in a sub-agent [inner.txt]"),
            ("PostToolUseFailure-Bash", "after Bash []"),
            ("PreCompact", "-"),
            ("PreToolUse-Agent", "-"),
            ("PreToolUse-Bash", "before Bash []"),
            ("PreToolUse-Edit", "before Edit [a.txt]"),
            ("PreToolUse-Read", "-"),
            ("PreToolUse-Write", "before Write [a.txt]"),
            ("PreToolUse-Write-in-subagent", "before Write in a sub-agent [inner.txt]"),
            ("SessionEnd", "close"),
            ("SessionStart-compact", "-"),
            ("SessionStart-fork", "open forked"),
            ("SessionStart-resume", "open"),
            ("SessionStart-startup", "open"),
            ("Stop", "end"),
            ("SubagentStart", "-"),
            ("SubagentStop", "agent end"),
            ("UserPromptExpansion", "-"),
            ("UserPromptSubmit", "prompt SCN-WRITE-A one"),
            ("UserPromptSubmit-task-notification", "aside true"),
        ],
    );
}

#[test]
fn codex() {
    all(
        Agent::Codex,
        &[
            ("PostToolUse-Bash", "after Bash []"),
            ("PostToolUse-apply_patch", "after apply_patch [a.txt]"),
            ("PreToolUse-Bash", "before Bash []"),
            ("PreToolUse-Bash-in-code-mode", "before Bash []"),
            ("PreToolUse-apply_patch", "before apply_patch [a.txt]"),
            ("PreToolUse-apply_patch-in-code-mode", "before apply_patch [cm.txt]"),
            ("SessionEnd", "close"),
            ("SessionStart-fork", "open forked"),
            ("SessionStart-resume", "open"),
            ("SessionStart-startup", "open"),
            ("Stop", "end"),
            ("UserPromptSubmit", "prompt SCN-WRITE-A one"),
        ],
    );
}

#[test]
fn gemini_cli() {
    all(
        Agent::Gemini,
        &[
            ("AfterAgent", "end"),
            ("AfterTool-read_file", "-"),
            ("AfterTool-replace", "after replace unnamed [a.txt]"),
            ("AfterTool-run_shell_command", "after run_shell_command unnamed []"),
            ("AfterTool-write_file", "after write_file unnamed [a.txt]"),
            ("BeforeAgent", "prompt SCN-WRITE-A one"),
            ("BeforeTool-read_file", "-"),
            ("BeforeTool-replace", "before replace unnamed [a.txt]"),
            ("BeforeTool-run_shell_command", "before run_shell_command unnamed []"),
            ("BeforeTool-write_file", "before write_file unnamed [a.txt]"),
            ("PreCompress", "-"),
            ("SessionEnd", "close"),
            ("SessionStart-resume", "open"),
            ("SessionStart-startup", "open"),
        ],
    );
}

#[test]
fn opencode() {
    // The plugin says the folder beside what it was called with.
    let w = World::new();
    let meaning = |name: &str| {
        let mut p = recorded(Agent::Opencode)[name].clone();
        p["directory"] = crate::support::RECORDED.into();
        let p = w.here(&p);
        let n = hook::read(Agent::Opencode, event_of(Agent::Opencode, name), &p, &w.host);
        n.map(|n| (n.folder.clone(), n.event))
    };
    for name in recorded(Agent::Opencode).keys() {
        let got = meaning(name);
        let wanted = ["chat.message", "event-session.created", "event-session.idle"].contains(&name.as_str())
            || name.starts_with("event-session.created")
            || name.starts_with("tool.execute") && !name.ends_with("-read");
        assert_eq!(got.is_some(), wanted, "{name}");
    }
    let Some((folder, Event::Before(t))) = meaning("tool.execute.before-edit") else { panic!("no window") };
    assert_eq!((folder, t.paths), (w.ws.clone(), vec![w.ws.join("a.txt")]));
    let Some((_, Event::Prompt { key, entry, text })) = meaning("chat.message") else { panic!("no prompt") };
    assert!(key == entry && key.is_some() && text.contains("SCN-WRITE-A"));
}

#[test]
fn every_payload_is_taken_once_twice_in_any_order_and_alone() {
    for agent in Agent::ALL {
        let payloads = recorded(*agent);
        let send = |w: &World, name: &str| {
            let mut p = w.here(&payloads[name]);
            if *agent == Agent::Opencode {
                p["directory"] = w.ws.to_str().unwrap().into();
            }
            w.ok(*agent, event_of(*agent, name), &p);
        };
        let w = World::new();
        for name in payloads.keys().chain(payloads.keys().rev()) {
            send(&w, name);
            send(&w, name);
        }
        assert!(w.rows().iter().all(|c| c.record.session.is_some()), "{}", agent.as_str());
        for name in payloads.keys() {
            send(&World::new(), name);
        }
    }
}

#[test]
fn sub_agents_of_opencode_work_under_their_parents_turn() {
    let w = World::new();
    let c = Client::new(&w, Agent::Opencode, "ses_root");
    c.prompt("m1", "Go");
    let inner = json!({"tool": "write", "sessionID": "ses_child", "callID": "c1"});
    let args = json!({"filePath": w.ws.join("x"), "content": "x"});
    c.raw("tool.execute.before", json!({"root": "ses_root", "input": inner, "args": args}));
    w.write("x", "x");
    c.raw("tool.execute.after", json!({"root": "ses_root", "input": inner, "args": args}));
    c.raw("session.idle", json!({"root": "ses_root", "properties": {"sessionID": "ses_child"}}));
    assert_eq!(w.shape("ses_root"), ["1 prompt", "1 before write*", "1 after write*", "1 agent-run"]);
    assert!(w.shape("ses_child").is_empty());
    let agents: Vec<_> = w.rows().into_iter().filter_map(|c| c.record.agent.clone()).collect();
    assert!(agents.iter().all(|a| a == "ses_child") && agents.len() == 3);
}

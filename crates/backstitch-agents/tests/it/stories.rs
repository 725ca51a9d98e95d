//! The whole of it: prompt, tools, rewind, what the model is told, undo.

use backstitch_agents::Agent;
use serde_json::{Value, json};

use crate::support::{Client, World};

/// What a prompt's hook says to the model.
fn told(agent: Agent, stdout: &str) -> String {
    if stdout.is_empty() {
        return String::new();
    }
    let v: Value = serde_json::from_str(stdout).unwrap();
    let text = match agent {
        Agent::Opencode => &v["tell"],
        _ => &v["hookSpecificOutput"]["additionalContext"],
    };
    text.as_str().unwrap_or_else(|| panic!("{stdout}")).to_owned()
}

/// What a prompt's hook says to the person.
fn stopped(agent: Agent, stdout: &str) -> String {
    let v: Value = serde_json::from_str(stdout).unwrap_or_else(|e| panic!("{e}: {stdout}"));
    match agent {
        Agent::Opencode => v["stop"].as_str().unwrap().to_owned(),
        _ => {
            assert_eq!(v["decision"], "block");
            v["reason"].as_str().unwrap().to_owned()
        }
    }
}

#[test]
fn prompt_write_shell_rewind_undo_with_every_client() {
    for agent in Agent::ALL.iter().copied() {
        let w = World::new();
        w.write("src/a.txt", "a\n");
        let c = Client::new(&w, agent, "s-1");
        c.start("startup");
        assert!(!w.open().has_store(), "nothing is recorded before the first prompt");
        assert_eq!(c.prompt("k1", "First"), "");
        c.write("k1", "c1", "new.txt", "new\n");
        c.end("k1");
        // A person works in between.
        w.write("mine.txt", "mine, later\n");
        assert_eq!(c.prompt("k2", "Second"), "", "nothing was taken back");
        c.shell("k2", "c2", || {
            w.write("src/a.txt", "b\n");
            w.write("made/by/shell.txt", "x\n");
            std::fs::remove_file(w.ws.join("new.txt")).unwrap();
        });
        c.shell("k2", "c3", || w.write("src/a.txt", "c\n"));
        c.end("k2");
        let tools = w.shape("s-1").iter().filter(|s| s.starts_with("2 before")).count();
        assert_eq!(
            tools,
            2,
            "{}: the same command twice is two windows: {:?}",
            agent.as_str(),
            w.shape("s-1")
        );

        let list = stopped(agent, &c.prompt("k3", "backstitch rewind"));
        assert!(
            list.contains("First") && list.contains("Second") && !list.contains("backstitch rewind\n"),
            "{list}"
        );
        let preview = stopped(agent, &c.prompt("k4", "/backstitch:rewind 2 --dry-run"));
        assert!(
            preview.contains("would take back") && w.read("src/a.txt").as_deref() == Some("c\n"),
            "{preview}"
        );
        let done = stopped(agent, &c.prompt("k5", "/backstitch:rewind 2"));
        assert!(done.contains("`src/a.txt`") && done.contains("`new.txt`"), "{done}");
        assert_eq!(w.read("src/a.txt").as_deref(), Some("a\n"));
        assert_eq!(w.read("new.txt").as_deref(), Some("new\n"));
        assert!(!w.ws.join("made").exists());
        assert_eq!(w.read("mine.txt").as_deref(), Some("mine, later\n"));

        // The model hears of it once, in one line; said twice, it is the same.
        let line = told(agent, &c.prompt("k6", "Third"));
        for name in ["`src/a.txt` changed", "`new.txt` created", "`made/by/shell.txt` deleted"] {
            assert!(line.contains(name), "{name}: {line}");
        }
        assert!(!line.contains('\n') && !line.contains("mine.txt"));
        if agent != Agent::Gemini {
            assert_eq!(told(agent, &c.prompt("k6", "Third")), line);
        }
        c.end("k6");
        assert_eq!(c.prompt("k7", "Fourth"), "");
        c.end("k7");

        let undone = stopped(agent, &c.prompt("k8", "backstitch undo"));
        assert!(undone.contains("undid"), "{undone}");
        assert_eq!((w.read("src/a.txt").as_deref(), w.read("new.txt")), (Some("c\n"), None));
        // Taken back and put back again between two requests: nothing changed.
        stopped(agent, &c.prompt("k9", "backstitch redo"));
        assert_eq!(w.read("src/a.txt").as_deref(), Some("a\n"));
        assert_eq!(told(agent, &c.prompt("k10", "Fifth")), "");
        // Prompts that were commands are no turns.
        let prompts = w.shape("s-1").into_iter().filter(|s| s.ends_with("prompt")).count();
        assert_eq!(prompts, 5);
    }
}

#[test]
fn r70_r71_r73_what_a_shell_command_deleted_comes_back() {
    let w = World::new();
    w.write("src/lib.rs", "fn main() {}\n");
    w.write(".env", "KEY=1\n");
    w.write(".gitignore", ".env\n");
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k1", "Clean up");
    c.shell("k1", "c1", || {
        for p in ["src", ".env", ".gitignore"] {
            let p = w.ws.join(p);
            if p.is_dir() { std::fs::remove_dir_all(p) } else { std::fs::remove_file(p) }.unwrap();
        }
    });
    c.end("k1");
    stopped(Agent::Claude, &c.prompt("k2", "/backstitch:rewind 1"));
    assert_eq!(w.read(".env").as_deref(), Some("KEY=1\n"));
    assert_eq!(w.read(".gitignore").as_deref(), Some(".env\n"));
    assert_eq!(w.read("src/lib.rs").as_deref(), Some("fn main() {}\n"));
}

#[test]
fn an_interrupt_has_no_closing_event() {
    let w = World::new();
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k1", "Go");
    c.write("k1", "c1", "a.txt", "1");
    c.shell_begins("k1", "c2");
    w.write("half.txt", "half");
    // No PostToolUse, no Stop: the next prompt is all that comes.
    c.prompt("k2", "Something else");
    c.end("k2");
    assert_eq!(
        w.shape("s"),
        [
            "1 prompt",
            "1 before Write*",
            "1 after Write*",
            "1 before Bash",
            "1 crashed",
            "2 prompt",
            "2 completed"
        ]
    );
    // Whether the command or a person made it is not known: it stays, and is named.
    let done = stopped(Agent::Claude, &c.prompt("k3", "/backstitch:rewind 1"));
    assert!(done.contains("left alone: `half.txt` (unattributed)"), "{done}");
    assert!(w.read("a.txt").is_none() && w.read("half.txt").is_some());
}

#[test]
fn a_turn_stays_open_while_a_sub_agent_works() {
    let w = World::new();
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k1", "Go");
    let inner = |event: &str| {
        c.raw(
            event,
            json!({"prompt_id": "k1", "agent_id": "a1", "agent_type": "general", "tool_name": "Write", "tool_use_id": "i1",
                   "tool_input": {"file_path": w.ws.join("inner.txt"), "content": "x"}}),
        )
    };
    inner("PreToolUse");
    let tasks = json!([{"id": "a1", "type": "subagent", "status": "running"}]);
    c.raw("Stop", json!({"prompt_id": "k1", "background_tasks": tasks}));
    w.write("inner.txt", "x");
    inner("PostToolUse");
    c.raw("SubagentStop", json!({"prompt_id": "k1", "agent_id": "a1", "agent_type": "general"}));
    assert_eq!(w.shape("s"), ["1 prompt", "1 before Write*", "1 after Write*", "1 agent-run"]);
    // What the client says to itself is no prompt, and what follows from it is of the turn before.
    let said = c.prompt("n1", "<task-notification>\n<task-id>a1</task-id></task-notification>");
    assert_eq!(said, "");
    c.write("n1", "c9", "more.txt", "y");
    c.end("n1");
    let shape = w.shape("s");
    assert_eq!(shape[4..], ["1 before Write*", "1 after Write*", "1 completed"], "{shape:?}");
}

#[test]
fn what_was_never_announced_begins_with_its_first_tool() {
    for agent in Agent::ALL.iter().copied() {
        let w = World::new();
        let c = Client::new(&w, agent, "s");
        // Installed in the middle of a turn.
        c.write("k1", "c1", "a.txt", "1");
        let begun = w.shape("s").remove(0);
        assert_eq!(begun, "1 prompt", "{}", agent.as_str());
        c.end("k1");
        // The prompt's hook was cut short.
        c.write("k2", "c2", "a.txt", "2");
        c.end("k2");
        assert_eq!(w.shape("s").iter().filter(|s| s.ends_with("prompt")).count(), 2, "{}", agent.as_str());
        stopped(agent, &c.prompt("k3", "backstitch rewind 2"));
        assert_eq!(w.read("a.txt").as_deref(), Some("1"));
    }
}

#[test]
fn an_end_or_a_close_alone_leaves_nothing_behind() {
    for agent in Agent::ALL.iter().copied() {
        let w = World::new();
        let c = Client::new(&w, agent, "s");
        c.end("k");
        if agent != Agent::Opencode {
            c.raw("SessionEnd", json!({"reason": "other"}));
        }
        assert!(!w.top.join("base").exists(), "{}", agent.as_str());
    }
}

#[test]
fn calls_without_ids_are_paired_and_repeats_are_not_windows() {
    let w = World::new();
    let c = Client::new(&w, Agent::Gemini, "s");
    c.prompt("", "Go");
    let tool = json!({
        "session_id": "s", "cwd": w.ws, "hook_event_name": "BeforeTool", "timestamp": "2026-11-30T15:17:00.000Z",
        "tool_name": "run_shell_command", "tool_input": {"command": "make"},
    });
    w.ok(Agent::Gemini, None, &tool);
    w.ok(Agent::Gemini, None, &tool);
    assert_eq!(w.shape("s").len(), 2);
    let mut after = tool.clone();
    after["hook_event_name"] = "AfterTool".into();
    after["timestamp"] = "2026-11-30T15:17:01.000Z".into();
    w.ok(Agent::Gemini, None, &after);
    let rows = w.rows();
    let calls: Vec<_> = rows.iter().filter_map(|c| c.record.call.clone()).collect();
    assert!(calls.len() == 2 && calls[0] == calls[1], "{calls:?}");
}

/// A transcript as Claude Code writes it.
fn transcript(rows: &[(&str, &str)]) -> String {
    let mut parent = Value::Null;
    let mut out = String::new();
    for (uuid, prompt) in rows {
        let user = json!({"type": "user", "uuid": uuid, "parentUuid": parent, "promptId": prompt, "message": {"content": "x"}});
        let answer = json!({"type": "assistant", "uuid": format!("{uuid}-a"), "parentUuid": uuid});
        out.push_str(&format!("{user}\n{answer}\n"));
        parent = format!("{uuid}-a").into();
    }
    out
}

#[test]
fn turns_are_bound_to_the_rows_of_the_transcript_and_forks_find_their_parent() {
    let w = World::new();
    let c = Client::new(&w, Agent::Claude, "parent");
    c.start("startup");
    for (n, key) in ["k1", "k2", "k3"].iter().enumerate() {
        c.prompt(key, key);
        let rows: Vec<(String, &str)> =
            ["k1", "k2", "k3"][..=n].iter().map(|k| (format!("u-{k}"), *k)).collect();
        let rows: Vec<(&str, &str)> = rows.iter().map(|(u, k)| (u.as_str(), *k)).collect();
        std::fs::write(&c.transcript, transcript(&rows)).unwrap();
        c.write(key, &format!("c-{key}"), &format!("{key}.txt"), key);
        if *key != "k3" {
            c.end(key);
        }
    }
    let entries: Vec<_> = w.rows().into_iter().filter_map(|c| c.record.entry.clone()).collect();
    assert_eq!(entries, ["u-k1", "u-k2", "u-k3"]);

    // The conversation that it carries is written only after its first prompt: up to the second turn, with new ids of prompts.
    let f = Client::new(&w, Agent::Claude, "fork");
    f.start("fork");
    assert_eq!(f.prompt("f1", "In the fork"), "");
    assert!(w.shape("fork").is_empty());
    std::fs::write(&f.transcript, transcript(&[("u-k1", "f1"), ("u-k2", "f1"), ("u-f", "f1")])).unwrap();
    f.write("f1", "c-f", "fork.txt", "f");
    f.end("f1");
    assert_eq!(w.shape("fork"), ["3 prompt", "3 before Write*", "3 after Write*", "3 completed"]);
    let prompt = w.rows().into_iter().find(|c| c.record.session.as_deref() == Some("fork")).unwrap();
    assert_eq!(prompt.record.prompt.as_deref(), Some("In the fork"));
    let ws = w.open();
    let record = ws.session_records().unwrap().remove("fork").unwrap();
    assert_eq!(record.parent.as_deref(), Some("parent"));
    // It takes back what it inherited; the parent's third turn is not its own.
    let done = stopped(Agent::Claude, &f.prompt("f2", "/backstitch:rewind 2"));
    assert!(
        w.read("k1.txt").is_some() && w.read("k2.txt").is_none() && w.read("fork.txt").is_none(),
        "{done}"
    );
    assert_eq!(w.read("k3.txt").as_deref(), Some("k3"));
    assert!(done.contains("--resume fork --resume-session-at u-k1-a --fork-session"), "{done}");
}

#[test]
fn a_fork_of_codex_names_its_origin() {
    let w = World::new();
    let c = Client::new(&w, Agent::Codex, "parent");
    c.prompt("t1", "One");
    c.write("t1", "c1", "a.txt", "1");
    c.end("t1");
    let f = Client::new(&w, Agent::Codex, "fork");
    let meta = json!({"type": "session_meta", "payload": {"id": "fork", "forked_from_id": "parent"}});
    std::fs::write(&f.transcript, format!("{meta}\n")).unwrap();
    f.start("fork");
    f.prompt("t2", "Two");
    assert_eq!(w.shape("fork"), ["2 prompt"]);
    stopped(Agent::Codex, &f.prompt("t3", "backstitch rewind 1"));
    assert!(w.read("a.txt").is_none());
}

#[test]
fn a_fork_of_what_was_never_recorded_is_a_session_of_its_own() {
    let w = World::new();
    w.open().checkpoint(&Default::default(), &Default::default()).unwrap();
    let f = Client::new(&w, Agent::Claude, "fork");
    f.start("fork");
    f.prompt("f1", "Go");
    f.end("f1");
    assert_eq!(w.shape("fork"), ["1 prompt", "1 completed"]);
}

#[test]
fn the_session_works_in_its_project_whatever_the_shell_does() {
    let mut w = World::new();
    let elsewhere = w.top.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    w.host.project = Some(w.ws.clone());
    let payload = |event: &str| {
        json!({"session_id": "s", "cwd": elsewhere, "hook_event_name": event, "prompt_id": "k1", "prompt": "Go",
               "tool_name": "Write", "tool_use_id": "c1", "tool_input": {"file_path": w.ws.join("x")}})
    };
    for event in ["UserPromptSubmit", "PreToolUse", "PostToolUse"] {
        w.ok(Agent::Claude, None, &payload(event));
    }
    assert_eq!(w.shape("s"), ["1 prompt", "1 before Write*", "1 after Write*"]);
}

#[test]
fn commands_of_a_prompt_that_is_reported_twice_are_carried_out_once() {
    let w = World::new();
    let c = Client::new(&w, Agent::Claude, "s");
    for key in ["k1", "k2"] {
        c.prompt(key, key);
        c.write(key, key, "a.txt", key);
        c.end(key);
        stopped(Agent::Claude, &c.prompt(&format!("r-{key}"), "backstitch rewind 1"));
    }
    // The plugin and the user's settings both have the hook.
    stopped(Agent::Claude, &c.prompt("u", "backstitch undo"));
    stopped(Agent::Claude, &c.prompt("u", "backstitch undo"));
    assert_eq!(w.read("a.txt").as_deref(), Some("k2"));
}

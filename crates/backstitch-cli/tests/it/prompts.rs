//! A prompt's hook does not wait for the folder: its capture goes on in a process of its own, and tools wait at the gate.

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Stdio},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{FdFlags, fcntl_setfd},
};
use serde_json::{Value, json};

use crate::support::World;

/// What a client calls: its name, the event, the payload.
type Said = (&'static str, &'static str, Value);

fn prompt(agent: &'static str, w: &World) -> Said {
    let common =
        |event: &str| json!({"session_id": "s", "cwd": w.ws, "hook_event_name": event, "prompt": "Go"});
    match agent {
        "claude" => (agent, "UserPromptSubmit", with(common("UserPromptSubmit"), "prompt_id")),
        "codex" => (agent, "UserPromptSubmit", with(common("UserPromptSubmit"), "turn_id")),
        "gemini" => (agent, "BeforeAgent", common("BeforeAgent")),
        _ => (
            "opencode",
            "chat.message",
            json!({"directory": w.ws, "input": {"sessionID": "s"}, "message": {"id": "k"},
                   "parts": [{"type": "text", "text": "Go"}]}),
        ),
    }
}

fn with(mut v: Value, key: &str) -> Value {
    v[key] = "k".into();
    v
}

/// The client's shell is about to run, or its tool that writes this file.
fn before(agent: &'static str, w: &World, file: Option<PathBuf>) -> Said {
    let input = match (&file, agent) {
        (None, _) => json!({"command": "make"}),
        (Some(f), "codex") => {
            let f = f.file_name().unwrap().to_str().unwrap();
            json!({"command": format!("*** Begin Patch\n*** Update File: {f}\n@@\n-x\n+y\n*** End Patch")})
        }
        (Some(f), "opencode") => json!({"filePath": f}),
        (Some(f), _) => json!({"file_path": f}),
    };
    let name = match (agent, file.is_some()) {
        ("codex", true) => "apply_patch",
        ("claude", true) => "Write",
        ("claude" | "codex", false) => "Bash",
        ("gemini", true) => "write_file",
        ("gemini", false) => "run_shell_command",
        (_, true) => "write",
        (_, false) => "bash",
    };
    let call = if file.is_some() { "c-file" } else { "c-shell" };
    match agent {
        "opencode" => (
            agent,
            "tool.execute.before",
            json!({"directory": w.ws, "input": {"tool": name, "sessionID": "s", "callID": call}, "args": input}),
        ),
        _ => {
            let event = if agent == "gemini" { "BeforeTool" } else { "PreToolUse" };
            let mut v = json!({"session_id": "s", "cwd": w.ws, "hook_event_name": event, "tool_use_id": call,
                               "tool_name": name, "tool_input": input, "timestamp": format!("t-{call}")});
            v["prompt_id"] = "k".into();
            v["turn_id"] = "k".into();
            (agent, event, v)
        }
    }
}

/// A hook process that has got its payload. Every capture at a prompt goes to the background.
fn start(w: &World, (agent, event, payload): &Said) -> Child {
    let mut c = w.bare();
    c.args(["hook", agent, event]).current_dir(&w.top).env("BACKSTITCH_PROMPT_TIME", "0");
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
    child
}

fn ends_well(child: Child) {
    let out = child.wait_with_output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert_eq!(
        (out.status.code(), text(&out.stdout), text(&out.stderr)),
        (Some(0), String::new(), String::new())
    );
}

fn prompt_row(w: &World) -> Value {
    let all = w.json(&["list", "--all", "--kind", "prompt"]);
    all["checkpoints"][0].clone()
}

/// The process has the lock of a row's capture open: it asks whether that goes on.
fn is_at_gate(child: &Child) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    fds.flatten()
        .filter_map(|e| fs::read_link(e.path()).ok())
        .any(|p| p.to_str().is_some_and(|p| p.contains("/locks/capture-")))
}

#[test]
fn a_prompt_returns_before_its_capture_and_a_shell_command_waits_for_it() {
    for agent in ["claude", "codex", "gemini", "opencode"] {
        let (w, _) = World::recorded();
        let held = w.hold_captures();
        ends_well(start(&w, &prompt(agent, &w)));
        assert_eq!(
            prompt_row(&w)["state"],
            "gap",
            "{agent}: the prompt's hook has ended, its capture has not begun"
        );
        // A tool that names its file waits for nothing but that file.
        ends_well(start(&w, &before(agent, &w, Some(w.path("a.txt")))));
        w.write("a.txt", "by the agent");
        let mut shell = start(&w, &before(agent, &w, None));
        while !is_at_gate(&shell) {
            assert!(shell.try_wait().unwrap().is_none(), "{agent}: it did not wait");
            std::thread::yield_now();
        }
        assert_eq!(prompt_row(&w)["state"], "gap", "{agent}");
        drop(held);
        ends_well(shell);
        let row = prompt_row(&w);
        assert_eq!((&row["state"], &row["turn"]), (&"complete".into(), &1.into()), "{agent}: {row}");
        // What the tool found is what the turn began with.
        let id = row["id"].as_str().unwrap();
        assert_eq!(w.text(&["cat", &format!("{id}:a.txt")]), "one\ntwo\nthree\n", "{agent}");
        let tools = w.json(&["list", "--all", "--kind", "tool"]);
        let states: Vec<&str> =
            tools["checkpoints"].as_array().unwrap().iter().filter_map(|c| c["state"].as_str()).collect();
        assert_eq!(states, ["complete", "complete"], "{agent}");
        assert!(!w.cli.store_dir().join("hooks.log").exists());
    }
}

#[test]
fn a_capture_in_the_background_holds_nothing_that_the_host_left_open() {
    let (w, _) = World::recorded();
    let held = w.hold_captures();
    let (mut read, write) = std::io::pipe().unwrap();
    fcntl_setfd(&write, FdFlags::empty()).unwrap();
    ends_well(start(&w, &prompt("claude", &w)));
    drop(write);
    assert_eq!(prompt_row(&w)["state"], "gap", "the capture is there, and waits");
    fcntl_setfl(&read, fcntl_getfl(&read).unwrap() | OFlags::NONBLOCK).unwrap();
    // Nobody has the other end: the end of the file, and not that one has to wait.
    assert_eq!(read.read(&mut [0]).unwrap(), 0);
    drop(held);
    ends_well(start(&w, &before("claude", &w, None)));
    assert_eq!(prompt_row(&w)["state"], "complete");
}

#[test]
fn a_gate_that_stays_shut_is_a_gap_and_the_tool_runs() {
    let (w, _) = World::recorded();
    let held = w.hold_captures();
    ends_well(start(&w, &prompt("claude", &w)));
    let (agent, event, payload) = before("claude", &w, None);
    let mut c = w.bare();
    c.args(["hook", agent, event]).env("BACKSTITCH_GATE_TIMEOUT", "0");
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
    ends_well(child);
    let tools = w.json(&["list", "--all", "--kind", "tool"]);
    assert_eq!(tools["checkpoints"][0]["state"], "gap", "{tools}");
    drop(held);
}

#[test]
fn a_turn_that_is_begun_again_while_it_is_captured_is_the_same() {
    let (w, _) = World::recorded();
    let held = w.hold_captures();
    let begin = |args: &[&str]| w.json(&[&["turn", "begin", "--session", "s", "--key", "k"], args].concat());
    let at_once = begin(&["--no-wait"]);
    assert_eq!((&at_once["checkpoint"]["state"], &at_once["exit"]), (&"gap".into(), &Value::Null));
    // Said again it is the same turn, whoever captures it.
    assert_eq!(begin(&[])["checkpoint"]["id"], at_once["checkpoint"]["id"]);
    drop(held);
    w.json(&["tool", "before", "--session", "s", "--call", "c"]);
    assert_eq!(prompt_row(&w)["state"], "complete");
}

/// Without `--wait` and `--no-wait`: what `capture_time` does not suffice for goes on in a process of its own.
#[test]
fn a_turn_whose_capture_takes_too_long_goes_on_in_a_process_of_its_own() {
    let (w, _) = World::recorded();
    let (captures, turns) = (w.hold_captures(), w.hold("turns"));
    let mut c = w.bare();
    c.args(["turn", "begin", "--session", "s", "--key", "k", "--json"]).current_dir(&w.ws);
    c.env("BACKSTITCH_CAPTURE_TIME", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut begin = c.spawn().unwrap();
    let waits = |child: &Child| {
        let fds = fs::read_dir(format!("/proc/{}/fd", child.id()));
        fds.is_ok_and(|fds| {
            let links = fds.flatten().filter_map(|e| fs::read_link(e.path()).ok());
            links.into_iter().any(|p| p.ends_with("locks/turns"))
        })
    };
    while !waits(&begin) {
        assert!(begin.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    // Its time began before it came here; the setting has no smaller unit.
    let since = std::time::Instant::now();
    while since.elapsed() <= std::time::Duration::from_secs(1) {
        std::thread::park_timeout(std::time::Duration::from_secs(1));
    }
    drop(turns);
    let out = begin.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&said["checkpoint"]["state"], &said["checkpoint"]["in_flight"]),
        (&"gap".into(), &true.into())
    );
    assert_eq!(prompt_row(&w)["state"], "gap", "the capture is there, and waits");
    drop(captures);
    w.json(&["tool", "before", "--session", "s", "--call", "c"]);
    let row = prompt_row(&w);
    assert_eq!((&row["id"], &row["state"]), (&said["checkpoint"]["id"], &"complete".into()), "{row}");
}

#[test]
fn doctor_tells_what_hooks_complained_of() {
    let (w, _) = World::recorded();
    let hooks =
        |v: &Value| v["checks"].as_array().unwrap().iter().find(|c| c["name"] == "hooks").unwrap().clone();
    assert_eq!(hooks(&w.json(&["doctor"]))["ok"], true);
    let mut c = w.bare();
    c.args(["hook", "claude", "PreToolUse"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(c.status().unwrap().success());
    let found = hooks(&w.cli.json(&w.ws, ["doctor"]).unwrap().value().unwrap());
    let detail = found["detail"].as_str().unwrap();
    assert!(found["ok"] == false && detail.contains("hook claude PreToolUse"), "{found}");
}

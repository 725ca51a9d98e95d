//! `hook`, `install` and `uninstall` as processes.

use std::{fs, io::Write, process::Stdio};

use serde_json::{Value, json};

use crate::support::World;

/// One hook process: exit code, standard output, standard error.
fn hook(w: &World, words: &[&str], payload: &[u8], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut c = w.bare();
    c.args(words).current_dir(&w.top).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (k, v) in env {
        c.env(k, v);
    }
    let mut child = c.spawn().unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(payload);
    let out = child.wait_with_output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn payload(w: &World, event: &str, more: Value) -> Vec<u8> {
    let mut v = json!({"session_id": "s-1", "cwd": w.ws, "hook_event_name": event, "prompt_id": "p1"});
    for (k, x) in more.as_object().unwrap() {
        v[k] = x.clone();
    }
    v.to_string().into_bytes()
}

const SILENCE: (Option<i32>, &str, &str) = (Some(0), "", "");

fn quiet(got: &(Option<i32>, String, String)) -> (Option<i32>, &str, &str) {
    (got.0, &got.1, &got.2)
}

#[test]
fn a_session_by_hooks_and_a_rewind_by_hand() {
    let w = World::new();
    let run = |event: &str, more: Value| hook(&w, &["hook", "claude", event], &payload(&w, event, more), &[]);
    assert_eq!(quiet(&run("SessionStart", json!({"source": "startup"}))), SILENCE);
    assert_eq!(quiet(&run("UserPromptSubmit", json!({"prompt": "Make it so"}))), SILENCE);
    let write =
        json!({"tool_name": "Write", "tool_use_id": "t1", "tool_input": {"file_path": w.path("a.txt")}});
    assert_eq!(quiet(&run("PreToolUse", write.clone())), SILENCE);
    w.write("a.txt", "by the agent");
    assert_eq!(quiet(&run("PostToolUse", write)), SILENCE);
    assert_eq!(quiet(&run("Stop", json!({"background_tasks": []}))), SILENCE);
    let sessions = w.json(&["session", "list"]);
    assert_eq!(
        (&sessions["sessions"][0]["id"], &sessions["sessions"][0]["turns"]),
        (&json!("s-1"), &json!(1))
    );
    w.json(&["rewind", "1"]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    let (code, out, err) = run("UserPromptSubmit", json!({"prompt_id": "p2", "prompt": "Go on"}));
    let said: Value = serde_json::from_str(&out).unwrap();
    let line = said["hookSpecificOutput"]["additionalContext"].as_str().unwrap();
    assert!(line.contains("`a.txt` changed") && code == Some(0) && err.is_empty(), "{line} {err}");
}

#[test]
fn whatever_is_wrong_the_agent_goes_on() {
    let w = World::new();
    let good = payload(&w, "UserPromptSubmit", json!({"prompt": "x"}));
    let half = &good[..good.len() / 2];
    let cases: &[(&[&str], &[u8])] = &[
        (&["hook"], &good),
        (&["hook", "nobody"], &good),
        (&["hook", "claude", "NoSuchEvent"], &good),
        (&["hook", "claude", "PreToolUse", "and", "more"], &good),
        (&["hook", "claude", "--no-such-option"], &good),
        (&["hook", "claude"], half),
        (&["hook", "claude"], b""),
        (&["hook", "gemini"], b"\xff\xfe\0"),
        (&["hook", "codex", "Stop"], b"[[[[[["),
    ];
    for (words, input) in cases {
        let (code, out, _) = hook(&w, words, input, &[]);
        assert_eq!((code, out.as_str()), (Some(0), ""), "{words:?}");
    }
    // Nothing can be written at all.
    let file = w.top.join("no-folder");
    fs::write(&file, "").unwrap();
    let (code, out, err) =
        hook(&w, &["hook", "claude"], &good, &[("BACKSTITCH_STORE_DIR", file.to_str().unwrap())]);
    assert!(code == Some(0) && out.is_empty() && !err.is_empty(), "{err}");
    // The log tells what was wrong.
    let (code, out, err) = hook(&w, &["hook", "claude"], half, &[]);
    assert!(code == Some(0) && out.is_empty() && err.contains("cannot be read"), "{err}");
    let log = fs::read_to_string(w.cli.store_dir().join("hooks.log")).unwrap();
    assert!(log.lines().last().unwrap().contains("hook claude"), "{log}");
    assert!(!w.cli.store_dir().join("stores").exists(), "nothing was recorded");
}

#[test]
fn switched_off_by_the_environment() {
    let w = World::new();
    let good = payload(&w, "UserPromptSubmit", json!({"prompt": "x"}));
    let got = hook(&w, &["hook", "claude"], &good, &[("BACKSTITCH_DISABLE", "1")]);
    assert_eq!(quiet(&got), SILENCE);
    assert!(!w.cli.store_dir().exists());
}

#[test]
fn an_agents_own_variable_does_not_stop_its_hooks() {
    let w = World::new();
    let good = payload(&w, "UserPromptSubmit", json!({"prompt": "x"}));
    let env = [("CLAUDECODE", "1"), ("BACKSTITCH_SESSION", "another")];
    assert_eq!(quiet(&hook(&w, &["hook", "claude"], &good, &env)), SILENCE);
    assert_eq!(w.json(&["session", "list"])["sessions"][0]["id"], "s-1");
}

#[test]
fn installed_shown_and_taken_out() {
    let w = World::new();
    let home = w.cli.home().join(".claude");
    fs::create_dir_all(&home).unwrap();
    let file = home.join("settings.json");
    let before = "{\n  // mine\n  \"model\": \"x\"\n}\n";
    fs::write(&file, before).unwrap();
    let shown = w.json(&["install", "claude", "--dry-run"]);
    assert_eq!((&shown["files"][0]["action"], &shown["dry_run"]), (&json!("change"), &json!(true)));
    assert!(shown["files"][0]["diff"].as_str().unwrap().contains("+    \"PreToolUse\": ["));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let text = w.text(&["install", "claude-code"]);
    assert!(text.contains("+++ ") && text.contains("hook claude Stop"), "{text}");
    assert!(fs::read_to_string(&file).unwrap().contains("// mine"));
    assert_eq!(w.json(&["install", "claude"])["files"], json!([]));
    // Not for agents.
    let mut cli = backstitch_testkit::Cli::with_home(env!("CARGO_BIN_EXE_backstitch"), w.cli.home()).unwrap();
    cli.env("CLAUDECODE", "1");
    assert_eq!(w.fails_in(&cli, 5, &["uninstall", "claude"])["code"], "agent-context");
    w.json(&["uninstall", "claude"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    fs::write(&file, "{\n\n\"hooks\": 1}").unwrap();
    let e = w.fails(2, &["install", "claude"]);
    assert!(e["message"].as_str().unwrap().contains("settings.json:3:"), "{e}");
    assert_eq!(w.fails(2, &["install", "nobody"])["code"], "usage");
}

#[test]
fn the_project_is_the_workspace() {
    let w = World::new();
    let run = |what: &str| w.cli.json(&w.path("sub"), [what, "opencode", "--project"]).unwrap().ok().unwrap();
    assert_eq!(run("install")["scope"], "project");
    // Without a known workspace it is the folder that was named.
    assert!(w.exists("sub/.opencode/plugin/backstitch.js"));
    run("uninstall");
    assert!(!w.exists("sub/.opencode"));
}

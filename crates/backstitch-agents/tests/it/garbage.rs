//! Whatever comes, nothing fails and nothing is said that a client could take for an answer.

use backstitch_agents::{Agent, hook};
use serde_json::{Value, json};

use crate::support::{Client, World, event_of, recorded};

#[test]
fn truncated_payloads_are_a_problem_and_nothing_else() {
    let w = World::new();
    for agent in Agent::ALL.iter().copied() {
        for (name, payload) in recorded(agent) {
            let bytes = w.here(&payload).to_string().into_bytes();
            for cut in (0..bytes.len()).step_by(53) {
                let said = hook::answer(agent, event_of(agent, &name), &bytes[..cut], &w.host);
                assert!(said.stdout.is_empty() && said.problem.is_some(), "{name} {cut}");
            }
        }
    }
    assert!(!w.top.join("base").exists(), "nothing was recorded");
}

#[test]
fn fields_of_other_types_are_passed_over() {
    let hostile =
        [Value::Null, json!([{"file_path": {}}]), json!("../../../etc/\u{0}passwd"), json!("x".repeat(5000))];
    for agent in Agent::ALL.iter().copied() {
        let w = World::new();
        for (name, payload) in recorded(agent) {
            let payload = w.here(&payload);
            for key in payload.as_object().unwrap().keys().filter(|k| *k != "cwd" && *k != "directory") {
                for h in &hostile {
                    let mut p = payload.clone();
                    p[key] = h.clone();
                    if agent == Agent::Opencode {
                        p["directory"] = w.ws.to_str().unwrap().into();
                    }
                    let said = w.hook(agent, event_of(agent, &name), &p);
                    assert!(
                        said.stdout.is_empty() || serde_json::from_str::<Value>(&said.stdout).is_ok(),
                        "{name} {key} {h}"
                    );
                }
            }
        }
        // Nothing outside was looked at, and nothing became unreadable.
        let ws = w.open();
        assert!(ws.rows().unwrap().damaged.is_empty());
    }
}

#[test]
fn values_that_are_no_object() {
    let w = World::new();
    for text in ["null", "[]", "1", "\"x\"", "{}", "{\"hook_event_name\":\"Stop\"}", "{\"session_id\":\"s\"}"]
    {
        for agent in Agent::ALL.iter().copied() {
            let said = hook::answer(agent, None, text.as_bytes(), &w.host);
            assert!(said.stdout.is_empty() && said.problem.is_none(), "{text}");
        }
    }
    let deep = "[".repeat(100_000);
    assert!(hook::answer(Agent::Claude, None, deep.as_bytes(), &w.host).problem.is_some());
}

#[test]
fn switched_off_nothing_is_recorded_and_nothing_said() {
    let mut w = World::new();
    w.host.surroundings.disabled = true;
    let c = Client::new(&w, Agent::Claude, "s");
    assert_eq!(c.prompt("k", "Go"), "");
    c.write("k", "c", "a.txt", "1");
    assert_eq!(c.prompt("k2", "/backstitch:rewind 1"), "");
    assert!(!w.top.join("base").exists());
    w.host.surroundings.disabled = false;
    w.open().set_enabled(false).unwrap();
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k", "Go");
    c.write("k", "c", "a.txt", "2");
    assert!(w.rows().is_empty());
}

#[test]
fn a_folder_that_is_gone_and_a_store_that_is_broken() {
    let w = World::new();
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k1", "Go");
    let store = w.open().store_dir().to_owned();
    std::fs::remove_file(store.join("git/HEAD")).unwrap();
    std::fs::remove_file(store.join("git/config")).unwrap();
    let p = json!({"session_id": "s", "cwd": w.ws, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "c"});
    let said = w.hook(Agent::Claude, None, &p);
    assert!(said.stdout.is_empty() && said.problem.is_some());
    let p = json!({"session_id": "s", "cwd": w.top.join("gone"), "hook_event_name": "UserPromptSubmit", "prompt": "x"});
    let said = w.hook(Agent::Claude, None, &p);
    assert!(said.stdout.is_empty() && said.problem.is_some());
}

#[test]
fn s2_18_a_file_elsewhere_that_a_tool_names_has_a_pre_image_and_comes_back_when_asked() {
    let w = World::new();
    let file = w.top.join("elsewhere");
    std::fs::write(&file, "before").unwrap();
    let c = Client::new(&w, Agent::Claude, "s");
    c.prompt("k", "Go");
    let p = json!({"prompt_id": "k", "tool_name": "Write", "tool_use_id": "c", "tool_input": {"file_path": file}});
    c.raw("PreToolUse", p.clone());
    std::fs::write(&file, "after").unwrap();
    c.raw("PostToolUse", p);
    c.end("k");
    let said = c.prompt("k2", "/backstitch:rewind 1");
    assert!(said.contains("(outside)"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "after");
    c.prompt("k3", "/backstitch:rewind 1 --outside");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
}

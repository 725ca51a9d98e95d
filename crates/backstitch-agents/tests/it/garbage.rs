//! Whatever comes, nothing fails and nothing is said that a client could take for an answer.

use backstitch::record::Kind;
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

/// JavaScript cuts texts in the middle of a character and writes the half that is left.
#[test]
fn half_a_character_costs_no_row() {
    let w = World::new();
    let text = format!(
        r#"{mark}{{"session_id":"s","cwd":{:?},"hook_event_name":"UserPromptSubmit","prompt_id":"p","prompt":"cut \ud83d"}}"#,
        w.ws,
        mark = '\u{feff}'
    );
    let said = hook::answer(Agent::Claude, None, text.as_bytes(), &w.host);
    assert_eq!(said.problem, None);
    let rows = w.rows();
    assert_eq!(rows[0].record.prompt.as_deref(), Some("cut \u{fffd}"));
}

/// A client whose prompts have no ids, and whose hook of the prompt never came: its tools begin one turn and not one each.
#[test]
fn tools_that_begin_a_turn_at_the_same_moment_begin_one() {
    let w = World::new();
    for round in 1..=3 {
        let call = |n: u32| {
            json!({"session_id": "s", "cwd": w.ws, "hook_event_name": "BeforeTool", "timestamp": "t",
                   "tool_name": "run_shell_command", "tool_input": {"command": format!("{round}-{n}")}})
        };
        std::thread::scope(|scope| {
            for n in 0..6 {
                let (w, call) = (&w, call(n));
                scope.spawn(move || {
                    assert_eq!(w.hook(Agent::Gemini, Some("BeforeTool"), &call).problem, None)
                });
            }
        });
        let end = json!({"session_id": "s", "cwd": w.ws, "hook_event_name": "AfterAgent", "timestamp": "t"});
        w.hook(Agent::Gemini, Some("AfterAgent"), &end);
        let rows = w.rows();
        let count = |kind| rows.iter().filter(|c| c.record.kind == kind).count();
        assert_eq!([Kind::Prompt, Kind::Tool, Kind::Turn].map(count), [round, 6 * round, round]);
    }
}

/// Every field of every recorded payload may hold anything: what is read of it is a notice or none, at once.
#[test]
fn fuzz_hook_payloads() {
    let w = World::new();
    let words: [&[u8]; 10] = [
        b"null",
        b"{}",
        b"[]",
        b"\"../../x\"",
        b"\"/etc/passwd\"",
        b"\"\\u0000\"",
        b"-1",
        b"\"tool_input\":",
        b"\"cwd\":",
        b"*** Update File: ",
    ];
    for agent in Agent::ALL.iter().copied() {
        let payloads = recorded(agent);
        let events: Vec<String> =
            payloads.keys().filter_map(|name| event_of(agent, name).map(str::to_owned)).collect();
        let seeds: Vec<String> = payloads.values().map(|p| w.here(p).to_string()).collect();
        let turn = std::cell::Cell::new(0);
        backstitch_testkit::fuzz::run(&format!("hook-{agent:?}"), &seeds, &words, |input| {
            let Ok(payload) = serde_json::from_slice::<Value>(input) else { return None };
            turn.set(turn.get() + 1);
            let event = events.get(turn.get() % events.len().max(1)).map(String::as_str);
            Some(hook::read(agent, event, &payload, &w.host).map(|n| format!("{n:?}").len() / 64))
        });
    }
    assert!(!w.top.join("base").exists(), "reading records nothing");
}

#[test]
fn fuzz_patches_of_agents() {
    let seeds = ["*** Begin Patch\n*** Update File: a/b.rs\n@@\n-x\n+y\n*** Move to: c\n*** End Patch\n"];
    let words: [&[u8]; 5] = [b"*** Add File: ", b"*** Delete File: ", b"*** Move to: ", b"../", b"\r\n"];
    backstitch_testkit::fuzz::run("agent-patch", &seeds, &words, |input| {
        std::str::from_utf8(input).ok().map(|text| backstitch_agents::patch::paths(text).len())
    });
}

#[test]
fn fuzz_transcripts() {
    let w = World::new();
    let path = w.top.join("transcript.jsonl");
    let seeds = [concat!(
        "{\"type\":\"user\",\"uuid\":\"u1\",\"parentUuid\":null,\"sessionId\":\"s\",\"message\":{\"role\":\"user\",\"content\":\"p\"}}\n",
        "{\"type\":\"assistant\",\"uuid\":\"u2\",\"parentUuid\":\"u1\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}}\n"
    )];
    let words: [&[u8]; 5] = [b"null", b"\"u1\"", b"\n", b"{}", b"\"content\":[]"];
    backstitch_testkit::fuzz::run("transcript", &seeds, &words, |input| {
        std::fs::write(&path, input).unwrap();
        use backstitch_agents::transcript::{answer_before, entry_of, inherited};
        (
            [false, true].map(|near| entry_of(&path, "p", near).is_some()),
            inherited(&path).is_some(),
            answer_before(&path, "u2").is_some(),
        )
    });
}

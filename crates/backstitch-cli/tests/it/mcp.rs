//! `backstitch mcp`: what an agent sees, and what it does not.

use backstitch_testkit::Rpc;
use serde_json::{Value, json};

use crate::support::World;

fn mcp(w: &World, args: &[&str]) -> Rpc {
    let mut words = vec!["mcp"];
    words.extend(args);
    let mut rpc = Rpc::start(w.cli.command(&w.ws, &words)).unwrap();
    let hello = rpc
        .ok(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        )
        .unwrap();
    assert_eq!(
        (&hello["protocolVersion"], &hello["serverInfo"]["name"]),
        (&"2025-06-18".into(), &"backstitch".into())
    );
    rpc.notify("notifications/initialized", json!({})).unwrap();
    rpc
}

/// Calls a tool: its document, and whether it is an error. Both forms of the result are the same.
fn call(rpc: &mut Rpc, tool: &str, arguments: Value) -> (Value, bool) {
    let r = rpc.ok("tools/call", json!({"name": tool, "arguments": arguments})).unwrap();
    let text: Value = serde_json::from_str(r["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&text, &r["content"][0]["type"]), (&r["structuredContent"], &"text".into()));
    (text, r["isError"].as_bool().unwrap())
}

fn ok(rpc: &mut Rpc, tool: &str, arguments: Value) -> Value {
    let (v, is_error) = call(rpc, tool, arguments);
    assert!(!is_error, "{tool}: {v}");
    v
}

fn fails(rpc: &mut Rpc, tool: &str, arguments: Value) -> Value {
    let (v, is_error) = call(rpc, tool, arguments);
    assert!(is_error, "{tool}: {v}");
    assert!(v["error"]["message"].is_string() && v["error"]["hint"].is_string(), "{v}");
    v["error"]["code"].clone()
}

fn end(rpc: Rpc) {
    let (code, stderr) = rpc.end().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn an_agent_alone_takes_back_its_own_work() {
    let w = World::new();
    let mut rpc = mcp(&w, &[]);
    let first = ok(&mut rpc, "checkpoint_create", json!({"label": "before the parser"}));
    assert_eq!(first["checkpoint"]["label"], "before the parser");
    w.write("a.txt", "broken\n");
    w.write("new.txt", "new\n");
    let changes = ok(&mut rpc, "diff", json!({"name_status": true}));
    assert_eq!(changes["changes"].as_array().unwrap().len(), 2);
    let plan = ok(&mut rpc, "rewind_plan", json!({"to": "before the parser"}));
    assert_eq!(w.read("a.txt"), "broken\n");
    let done = ok(&mut rpc, "rewind_apply", json!({"plan": plan["plan"]}));
    assert_eq!((&done["verified"], &done["partial"]), (&true.into(), &false.into()), "{done}");
    assert_eq!((w.read("a.txt").as_str(), w.exists("new.txt")), ("one\ntwo\nthree\n", false));
    ok(&mut rpc, "undo", json!({}));
    assert_eq!((w.read("a.txt").as_str(), w.exists("new.txt")), ("broken\n", true));
    // What it does after a plan belongs to it as well.
    w.write("later.txt", "later\n");
    let plan = ok(&mut rpc, "rewind_plan", json!({"to": "before the parser"}));
    ok(&mut rpc, "rewind_apply", json!({"plan": plan["plan"]}));
    assert_eq!((w.read("a.txt").as_str(), w.exists("later.txt")), ("one\ntwo\nthree\n", false));
    let list = ok(&mut rpc, "checkpoint_list", json!({}));
    assert!(list["checkpoints"].as_array().unwrap().len() <= 20);
    let shown = ok(&mut rpc, "checkpoint_show", json!({"checkpoint": first["checkpoint"]["id"]}));
    assert_eq!(shown["checkpoint"]["id"], first["checkpoint"]["id"]);
    end(rpc);
}

#[test]
fn others_work_is_out_of_reach() {
    let w = World::new();
    // A person's session, and what the person made.
    w.json(&["turn", "begin", "--session", "other", "--key", "k"]);
    w.write("theirs.txt", "theirs\n");
    w.json(&["turn", "end", "--session", "other"]);
    w.write("mine.txt", "mine\n");
    let before = w.tree();
    let mut rpc = mcp(&w, &["--session", "own"]);
    for (tool, arguments) in [
        ("rewind_plan", json!({"to": "other/turn:1"})),
        ("rewind_plan", json!({"to": "1"})),
        ("rewind_plan", json!({"to": "@"})),
        ("rewind_plan", json!({})),
        ("rewind_plan", json!({"to": "1", "session": "other"})),
        ("rewind_plan", json!({"to": "1", "on_conflict": "overwrite"})),
        ("rewind_plan", json!({"to": "1", "include_unattributed": true})),
        ("rewind_plan", json!({"to": "1", "outside": true})),
        ("rewind_plan", json!({"to": "1", "force": true})),
        ("rewind_plan", json!({"to": "1", "workspace": "/"})),
        ("rewind_plan", json!({"to": "--force"})),
        ("revert_plan", json!({"to": "other/turn:1"})),
        ("revert_plan", json!({"to": "1"})),
        ("revert_plan", json!({})),
        ("revert_plan", json!({"to": "1", "session": "other"})),
        ("revert_plan", json!({"to": "1", "on_conflict": "merge"})),
        ("revert_plan", json!({"to": "1", "markers": true})),
        ("revert_plan", json!({"to": "1", "outside": true})),
        ("revert_apply", json!({"plan": "00"})),
        ("blame", json!({"path": "/etc/passwd"})),
        ("blame", json!({"path": "../x"})),
        ("blame", json!({"path": ".git/config"})),
        ("log", json!({"path": "/etc/passwd"})),
        ("log", json!({"path": "a.txt", "workspace": "/"})),
        ("rewind_apply", json!({"plan": "00"})),
        ("rewind_apply", json!({})),
        ("undo", json!({})),
        ("undo", json!({"operation": "01aaaaaaaaaaaaaa"})),
        ("undo", json!({"as_person": true})),
        ("checkpoint_create", json!({"paths": ["../x"]})),
        ("checkpoint_create", json!({"paths": ["/etc/passwd"]})),
        ("checkpoint_create", json!({"pin": true})),
        ("checkpoint_create", json!({"prompt_file": "/etc/passwd"})),
        ("diff", json!({"paths": ["/etc"]})),
        ("diff", json!({"from": "-C/"})),
        ("checkpoint_show", json!({"checkpoint": "@", "store_dir": "/tmp"})),
        ("checkpoint_list", json!({"limit": "all"})),
    ] {
        fails(&mut rpc, tool, arguments);
    }
    // A tool that is not there, is not there.
    for tool in ["restore", "delete", "forget", "config_set", "export", "tools/call", "", "status"] {
        let e = rpc.fails("tools/call", json!({"name": tool, "arguments": {}})).unwrap();
        assert_eq!(e["code"], -32602, "{tool}");
    }
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::untouched(), "the folder");
    // The host's own session can be taken back, and only it.
    w.json(&["turn", "begin", "--session", "own", "--key", "k"]);
    w.json(&["tool", "before", "--session", "own", "--call", "c", "a.txt"]);
    w.write("a.txt", "changed\n");
    w.json(&["tool", "after", "--session", "own", "--call", "c"]);
    w.write("theirs.txt", "newer\n");
    // What the person took back stays so.
    w.json(&["rewind", "1", "--session", "own"]);
    assert_eq!(fails(&mut rpc, "undo", json!({})), "nothing-to-undo");
    w.json(&["undo", "--session", "own"]);
    assert_eq!(w.read("a.txt"), "changed\n");
    let plan = ok(&mut rpc, "rewind_plan", json!({"to": "turn:1"}));
    ok(&mut rpc, "rewind_apply", json!({"plan": plan["plan"]}));
    assert_eq!((w.read("a.txt").as_str(), w.read("theirs.txt").as_str()), ("one\ntwo\nthree\n", "newer\n"));
    end(rpc);
}

#[test]
fn r133_an_agent_takes_back_one_turn_and_sees_who_wrote_what() {
    let w = World::new();
    let text = |a: &str, b: &str| format!("{a}\ntwo\nthree\nfour\n{b}\n");
    w.write("a.txt", text("one", "five"));
    let s = crate::sessions::Agent { w: &w, id: "own" };
    s.turn("k1", "a.txt", &text("ONE", "five"));
    s.turn("k2", "a.txt", &text("ONE", "FIVE"));
    let mut rpc = mcp(&w, &["--session", "own"]);
    let lines = ok(&mut rpc, "blame", json!({"path": "a.txt"}));
    assert_eq!(lines["lines"].as_array().unwrap().len(), 5, "{lines}");
    assert!(ok(&mut rpc, "log", json!({"path": "a.txt"})).to_string().contains("own"));
    let back = ok(&mut rpc, "rewind_plan", json!({"to": "turn:1"}));
    let one = ok(&mut rpc, "revert_plan", json!({"to": "turn:1"}));
    assert_eq!(w.read("a.txt"), text("ONE", "FIVE"), "a plan changes nothing");
    // A plan is carried out as what it was made for.
    fails(&mut rpc, "revert_apply", json!({"plan": back["plan"]}));
    fails(&mut rpc, "rewind_apply", json!({"plan": one["plan"]}));
    ok(&mut rpc, "revert_apply", json!({"plan": one["plan"]}));
    assert_eq!(w.read("a.txt"), text("one", "FIVE"));
    ok(&mut rpc, "undo", json!({}));
    assert_eq!(w.read("a.txt"), text("ONE", "FIVE"));
    // What somebody changed since is a conflict of the part, and stays.
    w.write("a.txt", text("by hand", "FIVE"));
    let one = ok(&mut rpc, "revert_plan", json!({"to": "turn:1"}));
    assert_eq!(one["partial"], true, "{one}");
    ok(&mut rpc, "revert_apply", json!({"plan": one["plan"]}));
    assert_eq!(w.read("a.txt"), text("by hand", "FIVE"));
    end(rpc);
}

#[test]
fn schemas_are_portable() {
    let w = World::new();
    let mut rpc = mcp(&w, &[]);
    let tools = rpc.ok("tools/list", json!({})).unwrap();
    let printed: Value = serde_json::from_str(&w.text(&["reference", "mcp-schema"])).unwrap();
    assert_eq!(tools, printed);
    fn portable(v: &Value, at: &str) {
        match v {
            Value::Object(m) => {
                for key in ["anyOf", "oneOf", "allOf", "$ref", "format", "not", "$defs"] {
                    assert!(!m.contains_key(key), "{at}: {key}");
                }
                assert!(m.get("type").is_none_or(|t| t.is_string() || at.ends_with("/properties")), "{at}");
                m.iter().for_each(|(k, v)| portable(v, &format!("{at}/{k}")));
            }
            Value::Array(a) => a.iter().for_each(|v| portable(v, at)),
            _ => {}
        }
    }
    for t in tools["tools"].as_array().unwrap() {
        let name = t["name"].as_str().unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert!(t["description"].as_str().is_some_and(|d| !d.is_empty()));
        assert_eq!(t["inputSchema"]["type"], "object", "{name}");
        assert_eq!(t["annotations"]["openWorldHint"], false);
        portable(&t["inputSchema"], name);
    }
    end(rpc);
}

#[test]
fn the_protocol_is_kept() {
    let w = World::new();
    let mut rpc = Rpc::start(w.cli.command(&w.ws, ["mcp"])).unwrap();
    assert_eq!(rpc.fails("tools/list", json!({})).unwrap()["code"], -32002);
    assert_eq!(rpc.ok("ping", json!({})).unwrap(), json!({}));
    for (asked, want) in
        [("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")]
    {
        let hello = rpc.ok("initialize", json!({"protocolVersion": asked, "capabilities": {}})).unwrap();
        assert_eq!(hello["protocolVersion"], want);
        assert!(hello["capabilities"]["tools"].is_object());
    }
    for method in ["resources/list", "prompts/list", "checkpoint", "shutdown"] {
        assert_eq!(rpc.fails(method, json!({})).unwrap()["code"], -32601, "{method}");
    }
    rpc.notify("notifications/cancelled", json!({"requestId": 99})).unwrap();
    rpc.notify("notifications/unknown", json!({})).unwrap();
    assert_eq!(rpc.fails("tools/call", json!({"name": "diff", "arguments": []})).unwrap()["code"], -32602);
    rpc.line("{").unwrap();
    assert_eq!(rpc.next_answer().unwrap()["error"]["code"], -32700);
    // A result that would fill the agent's context is refused, with what to do.
    ok(&mut rpc, "checkpoint_create", json!({}));
    w.write("big.txt", "a line that is new\n".repeat(10_000));
    assert_eq!(fails(&mut rpc, "diff", json!({"patch": true})), "usage");
    ok(&mut rpc, "diff", json!({"stat": true}));
    end(rpc);
}

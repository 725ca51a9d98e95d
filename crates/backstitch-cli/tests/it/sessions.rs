//! `turn`, `tool`, `session`: what a host calls.

use std::{io::Write, process::Stdio};

use serde_json::Value;

use crate::support::World;

/// A session as a host drives it.
pub struct Agent<'a> {
    pub w: &'a World,
    pub id: &'a str,
}

impl Agent<'_> {
    pub fn run(&self, args: &[&str]) -> Value {
        self.w.json(&[args, &["--session", self.id]].concat())
    }

    pub fn begin(&self, key: &str) -> Value {
        self.run(&["turn", "begin", "--key", key, "--prompt", &format!("do {key}")])["checkpoint"].clone()
    }

    pub fn end(&self) -> Value {
        self.run(&["turn", "end"])["checkpoint"].clone()
    }

    /// A file tool.
    pub fn write(&self, call: &str, path: &str, text: &str) {
        self.run(&["tool", "before", "--call", call, "--tool", "write", path]);
        self.w.write(path, text);
        self.run(&["tool", "after", "--call", call]);
    }

    /// A whole turn in which a file tool writes one file.
    pub fn turn(&self, key: &str, path: &str, text: &str) {
        self.begin(key);
        self.write(key, path, text);
        self.end();
    }
}

fn ids(v: &Value) -> Vec<String> {
    let list = v["checkpoints"].as_array().unwrap();
    list.iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_and_its_tools() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    let begun = s.begin("k1");
    assert_eq!(
        (&begun["kind"], &begun["turn"], &begun["session"]),
        (&"prompt".into(), &1.into(), &"s".into())
    );
    assert_eq!(begun["prompt"], "do k1");
    let before = s.run(&["tool", "before", "--call", "c1", "--tool", "edit", "--agent", "helper", "a.txt"]);
    let c = &before["checkpoint"];
    assert_eq!((&c["kind"], &c["phase"], &c["call"]), (&"tool".into(), &"before".into(), &"c1".into()));
    assert_eq!((&c["tool"], &c["agent"], &c["turn"]), (&"edit".into(), &"helper".into(), &1.into()));
    assert_eq!(c["covers"], serde_json::json!(["a.txt"]));
    w.write("a.txt", "agent\n");
    let c = s.run(&["tool", "after", "--call", "c1"])["checkpoint"].clone();
    assert_eq!((&c["phase"], &c["tool"]), (&"after".into(), &"edit".into()));
    assert_eq!(c["covers"], serde_json::json!(["a.txt"]), "those of its before");
    let ended = s.run(&["turn", "end", "--status", "error"])["checkpoint"].clone();
    assert_eq!(
        (&ended["kind"], &ended["turn"], &ended["status"]),
        (&"turn".into(), &1.into(), &"error".into())
    );
    // Tool rows are hidden, as ever.
    assert_eq!(w.json(&["list", "--session", "s"])["checkpoints"].as_array().unwrap().len(), 2);
    assert_eq!(w.json(&["list", "--session", "s", "--all"])["checkpoints"].as_array().unwrap().len(), 4);
    let text = w.text(&["list", "--all"]);
    assert!(text.contains("[before] edit") && text.contains("[error]"), "{text}");
}

#[test]
fn every_call_may_be_repeated() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    let call = ["--call", "c1", "a.txt"];
    let tool = |end: &str| s.run(&[&["tool", end], &call[..]].concat())["checkpoint"]["id"].clone();
    assert_eq!(s.begin("k1")["id"], s.begin("k1")["id"]);
    assert_eq!(tool("before"), tool("before"));
    w.write("a.txt", "x\n");
    let after = tool("after");
    w.write("a.txt", "y\n");
    assert_eq!(after, tool("after"), "the row of then");
    let end = s.run(&["turn", "end", "--key", "k1"])["checkpoint"]["id"].clone();
    assert_eq!(s.run(&["turn", "end", "--key", "k1"])["checkpoint"]["id"], end);
    assert_eq!(s.run(&["turn", "end"])["checkpoint"], Value::Null);
    assert_eq!(s.run(&["turn", "end", "--key", "never"])["checkpoint"], Value::Null);
    assert_eq!(w.json(&["list", "--all"])["checkpoints"].as_array().unwrap().len(), 4);
    assert_eq!(s.begin("k2")["turn"], 2);
}

#[test]
fn neighbours_may_be_missing() {
    let w = World::new();
    // No turn, no session, no store.
    assert_eq!(w.json(&["turn", "end"])["checkpoint"], Value::Null);
    assert_eq!(w.json(&["session", "end"])["session"], Value::Null);
    assert!(!w.cli.store_dir().exists());
    assert_eq!(w.text(&["turn", "end"]), "");
    // A first session has a name; an after without a before is a row.
    let c = w.json(&["tool", "after", "--call", "c", "a.txt"])["checkpoint"].clone();
    assert_eq!((&c["session"], &c["phase"]), (&"default".into(), &"after".into()));
    assert_eq!(w.json(&["turn", "begin"])["checkpoint"]["turn"], 1);
    // A turn left open is ended by the next.
    assert_eq!(w.json(&["turn", "begin"])["checkpoint"]["turn"], 2);
    assert_eq!(w.json(&["show", "turn:1"])["checkpoint"]["status"], "crashed");
    assert_eq!(w.json(&["session", "end", "never"])["session"], Value::Null);
    let v = w.json(&["session", "end"]);
    assert_eq!((&v["session"]["ended"], &v["session"]["open_turn"]), (&true.into(), &Value::Null));
    assert_eq!(w.json(&["session", "end"]), v, "repeated");
}

#[test]
fn the_session_is_said_or_the_only_one() {
    let (w, _) = World::recorded();
    Agent { w: &w, id: "a" }.begin("k");
    assert_eq!(w.json(&["turn", "end"])["checkpoint"]["session"], "a");
    Agent { w: &w, id: "b" }.begin("k");
    for args in [
        &["turn", "begin"][..],
        &["turn", "end"],
        &["turn", "bind", "--entry", "e"],
        &["tool", "before", "a.txt"],
        &["rewind", "1"],
        &["session", "show"],
        &["session", "end"],
        &["show", "turn:1"],
    ] {
        let e = w.fails(2, args);
        assert_eq!(
            (&e["code"], &e["list"]),
            (&"ambiguous".into(), &serde_json::json!(["a", "b"])),
            "{args:?}"
        );
    }
    let mut cli = backstitch_testkit::Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_SESSION", "b");
    assert_eq!(cli.json(&w.ws, ["turn", "end"]).unwrap().ok().unwrap()["checkpoint"]["session"], "b");
    let v = cli.json(&w.ws, ["session", "show", "--session", "a"]).unwrap().ok().unwrap();
    assert_eq!(v["session"]["id"], "a", "what is typed wins");
}

#[test]
fn the_first_binding_stays() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    let bind = |args: &[&str]| s.run(&[&["turn", "bind"], args].concat());
    let v = bind(&["--entry", "e1"]);
    assert_eq!((&v["bound"], &v["checkpoint"]["entry"]), (&true.into(), &"e1".into()));
    assert_eq!(bind(&["--entry", "e1"]), v, "repeated");
    let v = bind(&["--entry", "e2", "--key", "k1"]);
    assert_eq!((&v["bound"], &v["checkpoint"]["entry"]), (&false.into(), &"e1".into()));
    assert_eq!(
        w.fails(4, &["turn", "bind", "--entry", "e3", "--session", "s"])["code"],
        "no-such-checkpoint"
    );
    let run = w.run(&["turn", "bind", "--entry", "e2", "--key", "k1", "--session", "s"]);
    assert!(run.code == Some(0) && run.stderr.contains("warning: "), "{run}");
}

#[test]
fn a_prompt_from_standard_input() {
    let w = World::new();
    let mut child = w
        .cli
        .command(&w.ws, ["--json", "turn", "begin", "--entry", "e0", "--prompt-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"several\nlines\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&v["checkpoint"]["prompt"], &v["checkpoint"]["entry"]),
        (&"several\nlines\n".into(), &"e0".into())
    );
}

#[test]
fn r60_a_turn_begins_at_once_and_a_shell_waits_for_its_checkpoint() {
    let w = World::new();
    w.save(&[]);
    // Captures in the background run one at a time: this one has to wait.
    let store = backstitch_store::Store::open(&w.cli.only_store().unwrap()).unwrap();
    let queue = store.lock_exclusive("background", std::time::Duration::ZERO).unwrap();
    let begin = ["turn", "begin", "--session", "s", "--key", "k", "--no-wait"];
    // It returns though the capture holds on: its output ends with it.
    let v = w.json(&begin);
    let c = &v["checkpoint"];
    assert_eq!((&c["state"], &c["in_flight"], &c["turn"]), (&"gap".into(), &true.into(), &1.into()));
    assert_eq!(w.json(&begin)["checkpoint"]["id"], c["id"], "repeated");
    // A file tool does not wait.
    let v = w.json(&["tool", "before", "--session", "s", "--call", "c1", "a.txt"]);
    assert_eq!(v["checkpoint"]["state"], "complete");
    w.write("a.txt", "agent");
    w.json(&["tool", "after", "--session", "s", "--call", "c1"]);
    // A shell does, up to its time.
    let mut cli = backstitch_testkit::Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_GATE_TIMEOUT", "0");
    let shell = ["tool", "before", "--session", "s", "--call", "sh"];
    let v = cli.json(&w.ws, shell).unwrap().expect(3).unwrap();
    assert_eq!(v["checkpoint"]["state"], "gap");
    assert!(v["warnings"][0].as_str().unwrap().contains("gap"), "{v}");
    w.json(&["tool", "after", "--session", "s", "--call", "sh"]);
    // Its turn comes: now it waits as long as it takes.
    drop(queue);
    let v = w.json(&["tool", "before", "--session", "s", "--call", "sh2"]);
    assert_eq!(v["checkpoint"]["state"], "complete");
    let c = w.json(&["show", "prompt:1", "--session", "s"])["checkpoint"].clone();
    assert_eq!((&c["in_flight"], c["state"] == "gap"), (&false.into(), false), "{c}");
    w.json(&["tool", "after", "--session", "s", "--call", "sh2"]);
    w.json(&["restore", "prompt:1", "--session", "s", "--", "a.txt"]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n", "the pre-image, not what the tool wrote");
    let v = w.json(&["turn", "begin", "--session", "s", "--key", "k2", "--no-wait", "--ungated"]);
    assert_eq!(v["checkpoint"]["gated"], false);
    w.json(&["tool", "before", "--session", "s", "--call", "sh3"]);
}

#[test]
fn paths_of_a_tool_are_relative_wherever_they_lead() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    let sub = w.path("sub");
    let v = w.json_in(&sub, &["tool", "before", "--call", "c1", "b.txt", "../a.txt"]);
    assert_eq!(v["checkpoint"]["covers"], serde_json::json!(["a.txt", "sub/b.txt"]));
    let elsewhere = w.top.join("elsewhere").display().to_string();
    let v = w.json(&["tool", "before", "--call", "c2", "../elsewhere", "a.txt"]);
    assert_eq!(v["checkpoint"]["covers"], serde_json::json!(["a.txt"]));
    assert_eq!(v["checkpoint"]["outside"], serde_json::json!([elsewhere]));
    // Only that: a window of one file, not one over everything.
    let v = w.json(&["tool", "before", "--call", "c3", "../elsewhere"]);
    assert_eq!(v["checkpoint"]["covers"], serde_json::json!([]));
    assert_eq!(v["checkpoint"]["outside"], serde_json::json!([elsewhere]));
    // A whole folder, and the workspace itself.
    let v = w.json(&["tool", "before", "--call", "c4", "sub"]);
    assert_eq!(v["checkpoint"]["covers"], serde_json::json!(["sub"]));
    assert_eq!(w.json(&["tool", "before", "--call", "c5", "."])["checkpoint"]["covers"], Value::Null);
}

#[test]
fn checkpoints_of_a_turn() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    let save = |args: &[&str]| s.run(&[&["checkpoint"], args].concat())["checkpoint"].clone();
    assert_eq!(save(&[])["turn"], Value::Null);
    assert_eq!(save(&["--kind", "prompt", "--turn", "k1"])["turn"], 1);
    let again = save(&["--kind", "prompt", "--turn", "k1"]);
    assert_eq!((&again["turn"], &s.begin("k1")["id"]), (&1.into(), &again["id"]));
    assert_eq!(save(&["--kind", "agent-run", "--agent", "helper"])["turn"], 1);
    assert_eq!(save(&["--turn", "k1", "-m", "half way"])["turn"], 1);
    assert_eq!(save(&["--turn", "unknown"])["turn"], Value::Null);
    assert_eq!(save(&["--kind", "turn"])["turn"], 1);
    assert_eq!(s.end(), Value::Null, "that was its end");
    assert_eq!(s.begin("k2")["turn"], 2);
    assert_eq!(save(&["--kind", "prompt"])["turn"], 3);
    let e = w.fails(2, &["checkpoint", "--kind", "prompt", "--session", "t", "-m", "10m"]);
    assert_eq!(e["code"], "bad-label");
}

#[test]
fn sessions_are_listed_shown_and_forked() {
    let (w, _) = World::recorded();
    assert_eq!(w.json(&["session", "list"])["sessions"], serde_json::json!([]));
    let a = Agent { w: &w, id: "a" };
    a.turn("k1", "a.txt", "1\n");
    a.begin("k2");
    let v = w.json(&["session", "show", "a"]);
    let s = &v["session"];
    assert_eq!((&s["rows"], &s["turns"], &s["open_turn"]), (&5.into(), &2.into(), &2.into()));
    assert_eq!(v["checkpoints"].as_array().unwrap().len(), 5);
    let text = w.text(&["session", "show", "a"]);
    assert!(text.contains("turn 2 is open") && text.contains("do k1"), "{text}");

    let v = w.json(&["session", "fork", "b", "--from", "a/turn:1"]);
    assert_eq!((&v["session"]["parent"], &v["session"]["rows"]), (&"a".into(), &0.into()));
    assert_eq!(w.json(&["session", "fork", "b", "--from", "a/turn:1"]), v, "repeated");
    assert_eq!(w.fails(5, &["session", "fork", "b", "--from", "a/prompt:1"])["code"], "conflict");
    assert_eq!(w.fails(5, &["session", "fork", "a", "--from", "a/prompt:1"])["code"], "conflict");
    let of: Vec<Value> = w.json(&["session", "list"])["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["id"].clone())
        .collect();
    assert_eq!(of.len(), 2);
    assert_eq!(w.json(&["session", "show", "b"])["checkpoints"].as_array().unwrap().len(), 4, "its line");
    // Numbers go on; the fork takes back what it inherited.
    assert_eq!(Agent { w: &w, id: "b" }.begin("k2")["turn"], 2);
    let v = w.json(&["rewind", "1", "--session", "b"]);
    assert_eq!(
        (&v["takes_back"], w.read("a.txt").as_str()),
        (&serde_json::json!([1, 2]), "one\ntwo\nthree\n")
    );
    assert!(w.text(&["session", "list"]).contains("forked from a"));
}

#[test]
fn a_session_is_deleted_and_comes_back() {
    let (w, first) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    assert_eq!(w.fails(6, &["session", "delete", "s"])["code"], "busy", "its turn is open");
    s.end();
    let all = ids(&w.json(&["list", "--all"]));
    w.json(&["session", "fork", "t", "--from", "s/turn:1"]);
    assert_eq!(w.json(&["session", "show", "t"])["checkpoints"].as_array().unwrap().len(), 2);
    let last = w.json(&["session", "show", "t"])["session"]["last"].as_str().unwrap().to_owned();
    assert!(last.as_str() > "2020", "a fork without rows is as old as itself: {last}");
    let e = w.fails(4, &["session", "delete", "t"]);
    assert!(e["hint"].as_str().unwrap().contains("session end"), "{e}");
    let e = w.fails(5, &["session", "delete", "s"]);
    assert_eq!((&e["code"], &e["list"]), (&"conflict".into(), &serde_json::json!(["t"])));
    let v = w.json(&["session", "delete", "s", "--force"]);
    assert_eq!((v["deleted"].as_array().unwrap().len(), v["operation"].is_string()), (2, true));
    assert_eq!(ids(&w.json(&["list", "--all"])), [first.as_str()]);
    assert_eq!(w.fails(4, &["session", "show", "s"])["code"], "no-such-session");
    assert_eq!(w.fails(4, &["session", "delete", "s"])["code"], "no-such-session");
    w.json(&["undo"]);
    assert_eq!(ids(&w.json(&["list", "--all"])), all);
    assert_eq!(w.json(&["session", "show", "s"])["session"]["rows"], 2);
    w.json(&["pin", "s/turn:1"]);
    assert_eq!(w.fails(5, &["session", "delete", "s", "--force"])["code"], "conflict", "pinned");
}

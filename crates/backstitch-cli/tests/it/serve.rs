//! `backstitch serve`: what a host sees.

use std::{
    fs::{self, File},
    path::Path,
};

use backstitch_testkit::{Rpc, skip};
use serde_json::{Map, Value, json};

use crate::support::{Normal, World, check_examples};

/// A server for a folder, greeted.
pub fn serve(w: &World) -> Rpc {
    let mut rpc = Rpc::start(w.cli.command(&w.ws, ["serve"])).unwrap();
    rpc.ok("initialize", json!({"client": "test", "version": "1"})).unwrap();
    rpc
}

/// Holds the workspace's lock as an operation does, so that nothing can be recorded.
fn hold(w: &World) -> File {
    let file = w.cli.only_store().unwrap().join("locks/workspace");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(file).unwrap();
    file.lock().unwrap();
    file
}

fn end(rpc: Rpc) {
    let (code, stderr) = rpc.end().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_whole_story() {
    let w = World::new();
    let mut all: Map<String, Value> = Map::new();
    let mut rpc = Rpc::start(w.cli.command(&w.ws, ["serve"])).unwrap();
    let mut call = |rpc: &mut Rpc, method: &str, params: Value| -> Value {
        let result = rpc.ok(method, params.clone()).unwrap();
        all.insert(method.to_owned(), json!({"params": params, "result": result}));
        result
    };
    call(&mut rpc, "initialize", json!({"client": "my-host", "version": "1.0"}));
    call(&mut rpc, "workspace/open", json!({"workspace": w.ws}));
    call(&mut rpc, "session/open", json!({"session": "7f3a"}));
    let begun = call(&mut rpc, "turn/begin", json!({"key": "k1", "prompt": "Make it faster"}));
    let row = call(&mut rpc, "turn/wait", json!({"key": "k1"}));
    assert_eq!((&begun["turn"], &begun["session"]), (&1.into(), &"7f3a".into()));
    assert_eq!(begun["id"], row["checkpoint"]["id"]);
    assert_eq!(row["checkpoint"]["prompt"], "Make it faster");
    let bound = call(&mut rpc, "turn/bind", json!({"key": "k1", "entry": "e1"}));
    assert_eq!(bound["checkpoint"]["entry"], "e1");
    call(&mut rpc, "tool/before", json!({"call": "c1", "tool": "write", "paths": ["a.txt"]}));
    w.write("a.txt", "one\nfaster\n");
    call(&mut rpc, "tool/after", json!({"call": "c1"}));
    // The person's work, beside the agent's.
    w.write("notes.txt", "mine\n");
    call(&mut rpc, "turn/end", json!({"key": "k1", "status": "completed"}));
    call(&mut rpc, "checkpoint/create", json!({"label": "faster"}));
    let list = call(&mut rpc, "checkpoint/list", json!({"limit": 1}));
    assert_eq!(list["checkpoints"][0]["label"], "faster");
    call(&mut rpc, "checkpoint/show", json!({"checkpoint": "turn:1"}));
    call(&mut rpc, "diff", json!({"from": "prompt:1", "patch": true, "paths": ["a.txt"]}));

    let plan = call(&mut rpc, "rewind/plan", json!({"to": "turn:1"}));
    assert_eq!((&plan["dry_run"], &plan["takes_back"]), (&true.into(), &json!([1])));
    assert_eq!(w.read("a.txt"), "one\nfaster\n");
    let done = call(&mut rpc, "rewind/apply", json!({"plan": plan["plan"]}));
    assert_eq!((&done["plan"], &done["verified"]), (&plan["plan"], &true.into()));
    assert_eq!((w.read("a.txt").as_str(), w.read("notes.txt").as_str()), ("one\ntwo\nthree\n", "mine\n"));
    call(&mut rpc, "undo", json!({}));
    assert_eq!(w.read("a.txt"), "one\nfaster\n");
    let plan = call(&mut rpc, "restore/plan", json!({"checkpoint": "prompt:1", "paths": ["a.txt"]}));
    call(&mut rpc, "restore/apply", json!({"plan": plan["plan"]}));
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    call(&mut rpc, "session/end", json!({}));
    let error = rpc.fails("rewind/apply", json!({"plan": plan["plan"]})).unwrap();
    let error = (error, rpc.fails("checkpoint/show", json!({"checkpoint": "nonsense"})).unwrap());
    assert_eq!((&error.0["code"], &error.0["data"]["code"]), (&json!(-32602), &"usage".into()));
    call(&mut rpc, "shutdown", json!({}));
    all.insert("error".to_owned(), error.1);
    end(rpc);

    // The examples of the reference are what was seen here.
    let mut normal = Normal::new(&w);
    for c in w.json(&["list", "--all", "--reverse"])["checkpoints"].as_array().unwrap() {
        normal.value(&c["id"]);
    }
    let found: Map<String, Value> = all.iter().map(|(n, v)| (n.clone(), normal.value(v))).collect();
    check_examples("src/serve/examples.json", &found);
}

#[test]
fn r87_a_method_gives_what_the_command_prints() {
    let (w, id) = World::changed();
    let mut rpc = serve(&w);
    for (method, params, args) in [
        ("list", json!({"all": true}), &["list", "--all"][..]),
        ("checkpoint/show", json!({"checkpoint": id}), &["show", &id]),
        ("diff", json!({"patch": true}), &["diff", "--patch"]),
        (
            "diff",
            json!({"name-status": true, "paths": ["a.txt", "bin"]}),
            &["diff", "--name-status", "--", "a.txt", "bin"],
        ),
        ("cat", json!({"what": format!("{id}:a.txt")}), &["cat", &format!("{id}:a.txt")]),
        ("log", json!({"path": "a.txt"}), &["log", "a.txt"]),
        ("restore/plan", json!({"checkpoint": "@"}), &["restore", "@", "--dry-run"]),
        ("status", json!({}), &["status"]),
        ("operations", json!(null), &["operations"]),
        ("session/list", json!({}), &["session", "list"]),
        ("config/get", json!({"key": "budget"}), &["config", "get", "budget"]),
        ("verify", json!({}), &["verify"]),
        ("stores/list", json!({}), &["stores", "list"]),
        ("completions", json!({"shell": "bash"}), &["completions", "bash"]),
    ] {
        assert_eq!(rpc.ok(method, params).unwrap(), w.json(args), "{method}");
    }
    // Errors, too.
    for (method, params, args) in [
        ("checkpoint/show", json!({"checkpoint": "zzz"}), &["show", "zzz"][..]),
        ("undo", json!({}), &["undo"]),
        ("cat", json!({"what": "nothing"}), &["cat", "nothing"]),
        ("label", json!({"checkpoint": "@", "label": "@x"}), &["label", "@", "@x"]),
        ("session/show", json!({"session": "nobody"}), &["session", "show", "nobody"]),
    ] {
        let e = rpc.fails(method, params).unwrap();
        let run = w.cli.json(&w.ws, args).unwrap();
        let printed: Value = serde_json::from_str(run.stderr.trim()).unwrap();
        assert_eq!(e["message"], printed["error"]["message"], "{method}");
        for key in ["code", "hint", "path", "list"] {
            assert_eq!(e["data"].get(key), printed["error"].get(key), "{method}: {key}");
        }
        assert_eq!(e["data"]["exit"], run.code.unwrap(), "{method}");
    }
    end(rpc);
}

#[test]
fn reading_goes_on_while_a_capture_waits_and_writing_keeps_its_order() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w);
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    let lock = hold(&w);
    let begin = rpc.request("turn/begin", json!({"key": "k"})).unwrap();
    let again = rpc.request("turn/begin", json!({"key": "k"})).unwrap();
    let before = rpc.request("tool/before", json!({"call": "c"})).unwrap();
    let wait = rpc.request("turn/wait", json!({})).unwrap();
    for method in ["list", "status", "operations", "session/list", "config/list"] {
        rpc.ok(method, json!({})).unwrap();
    }
    assert!([begin, again, before, wait].iter().all(|id| rpc.is_open(*id)));
    drop(lock);
    let first = rpc.answer(begin).unwrap();
    assert_eq!(first["result"]["pending"], true, "{first}");
    assert_eq!(rpc.answer(again).unwrap()["result"], first["result"]);
    assert_eq!(rpc.answer(wait).unwrap()["result"]["checkpoint"]["id"], first["result"]["id"]);
    let window = rpc.answer(before).unwrap();
    assert_eq!(window["result"]["checkpoint"]["turn"], 1, "the window is the turn's: {window}");
    end(rpc);
}

#[test]
fn calls_are_cancelled() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w);
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    let lock = hold(&w);
    // One that waits for its lock, one that waits for its turn, and one that only waits for another.
    let begin = rpc.request("turn/begin", json!({"key": "k"})).unwrap();
    let queued = rpc.request("checkpoint/create", json!({})).unwrap();
    let wait = rpc.request("turn/wait", json!({"key": "k"})).unwrap();
    for id in [wait, queued, begin] {
        rpc.notify("$/cancelRequest", json!({"id": id})).unwrap();
        let answer = rpc.answer(id).unwrap();
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["code"]),
            (&json!(-32800), &"interrupted".into()),
            "{answer}"
        );
    }
    drop(lock);
    // What is not known, or has ended, cannot be cancelled, and that is no error.
    for id in [json!(begin), json!("x"), json!(null), json!({"a": 1})] {
        rpc.notify("$/cancelRequest", json!({"id": id})).unwrap();
    }
    rpc.notify("$/cancelRequest", json!({})).unwrap();
    assert_eq!(rpc.ok("list", json!({"all": true})).unwrap()["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(rpc.ok("turn/begin", json!({"key": "k"})).unwrap()["turn"], 1);
    end(rpc);
}

#[test]
fn a_capture_that_is_cancelled_is_there_or_not() {
    let w = World::new();
    for n in 0..1_000 {
        w.write(&format!("many/{}/{n}", n % 50), format!("{n}"));
    }
    let mut rpc = Rpc::start(w.cli.command(&w.ws, ["serve"])).unwrap();
    rpc.ok("initialize", json!({"progress_interval": 0})).unwrap();
    let id = rpc.request("turn/begin", json!({"key": "k", "session": "s"})).unwrap();
    let progress = rpc.note("$/progress").unwrap();
    assert_eq!(progress["params"]["id"], id, "{progress}");
    assert!(progress["params"]["what"].is_string() && progress["params"]["done"].is_u64(), "{progress}");
    rpc.notify("$/cancelRequest", json!({"id": id})).unwrap();
    let row = rpc.answer(id).unwrap()["result"]["id"].clone();
    let waited = rpc.call("turn/wait", json!({"key": "k", "session": "s"})).unwrap();
    let rows = rpc.ok("list", json!({"all": true})).unwrap_or(json!({"checkpoints": []}));
    // Not at all, or as a gap where it was about to go on beside its lane.
    let listed = rows["checkpoints"].as_array().unwrap().iter().find(|c| c["id"] == row);
    let whole = listed.is_some_and(|c| c["state"] == "complete");
    match waited {
        Ok(v) => assert!(whole && v["checkpoint"]["id"] == row, "{v}"),
        Err(e) => assert!(!whole && e["data"]["code"] == "interrupted", "{e}"),
    }
    let (code, stderr) = rpc.end().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(w.json(&["verify"])["ok"], true);
}

#[test]
fn every_call_may_be_repeated() {
    let w = World::new();
    let mut rpc = serve(&w);
    let twice = |rpc: &mut Rpc, method: &str, params: Value| -> Value {
        let first = rpc.ok(method, params.clone()).unwrap();
        let second = rpc.ok(method, params).unwrap();
        let id = |v: &Value| v.pointer("/checkpoint/id").or(v.get("id")).cloned();
        assert_eq!(id(&first), id(&second), "{method}");
        first
    };
    twice(&mut rpc, "initialize", json!({"client": "x", "unknown": {"later": true}}));
    twice(&mut rpc, "workspace/open", json!({"workspace": w.ws}));
    twice(&mut rpc, "session/open", json!({"session": "s"}));
    assert!(!w.cli.store_dir().exists(), "opening creates nothing");
    twice(&mut rpc, "turn/begin", json!({"key": "k"}));
    twice(&mut rpc, "turn/wait", json!({"key": "k"}));
    twice(&mut rpc, "turn/bind", json!({"key": "k", "entry": "e"}));
    twice(&mut rpc, "tool/before", json!({"call": "c", "paths": ["x"]}));
    // A host that starts its extension again in the middle of a turn does not end it.
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    twice(&mut rpc, "tool/after", json!({"call": "c"}));
    let ended = twice(&mut rpc, "turn/end", json!({"key": "k"}));
    assert_eq!(ended["checkpoint"]["status"], "completed");
    twice(&mut rpc, "session/end", json!({}));
    let shown = rpc.ok("session/show", json!({})).unwrap();
    assert_eq!(shown["checkpoints"].as_array().unwrap().len(), 4, "{shown}");
    end(rpc);
}

#[test]
fn neighbours_may_be_missing() {
    let w = World::new();
    let mut rpc = serve(&w);
    assert_eq!(rpc.ok("turn/end", json!({})).unwrap()["checkpoint"], Value::Null);
    assert_eq!(rpc.ok("turn/wait", json!({})).unwrap()["checkpoint"], Value::Null);
    assert_eq!(rpc.ok("session/end", json!({"session": "x"})).unwrap()["session"], Value::Null);
    // No session, no turn, no beginning.
    let after = rpc.ok("tool/after", json!({"call": "c", "paths": ["a.txt"]})).unwrap();
    assert_eq!(after["checkpoint"]["session"], "default");
    let orphan = rpc.ok("session/open", json!({"session": "child", "parent": "unknown"})).unwrap();
    assert_eq!(orphan["session"]["parent"], Value::Null);
    assert!(orphan["warnings"][0].as_str().unwrap().contains("unknown"), "{orphan}");
    assert_eq!(rpc.ok("turn/begin", json!({})).unwrap()["turn"], 1);
    assert_eq!(rpc.ok("turn/wait", json!({"id": "01aaaaaaaaaaaaaa"})).unwrap()["checkpoint"], Value::Null);
    end(rpc);
}

#[test]
fn a_session_is_forked_and_a_crashed_turn_is_ended() {
    let w = World::new();
    let mut rpc = serve(&w);
    rpc.ok("session/open", json!({"session": "old"})).unwrap();
    rpc.ok("turn/begin", json!({"key": "k1"})).unwrap();
    rpc.ok("turn/wait", json!({"key": "k1"})).unwrap();
    drop(rpc);
    let mut rpc = serve(&w);
    let open = rpc.ok("session/open", json!({"session": "old"})).unwrap();
    assert_eq!((&open["session"]["open_turn"], &open["session"]["turns"]), (&Value::Null, &1.into()));
    let list = rpc.ok("list", json!({"limit": 1})).unwrap();
    assert_eq!(list["checkpoints"][0]["status"], "crashed");
    let fork = rpc.ok("session/open", json!({"session": "new", "parent": "old"})).unwrap();
    assert_eq!((&fork["session"]["parent"], &fork["session"]["turns"]), (&"old".into(), &1.into()));
    assert_eq!(rpc.ok("turn/begin", json!({"key": "k2"})).unwrap()["turn"], 2);
    end(rpc);
}

#[test]
fn a_plan_that_no_longer_holds_is_refused() {
    let (w, _) = World::changed();
    let mut rpc = serve(&w);
    let plan = rpc.ok("restore/plan", json!({"checkpoint": "@"})).unwrap();
    w.write("a.txt", "newer\n");
    let e = rpc.fails("restore/apply", json!({"plan": plan["plan"]})).unwrap();
    assert_eq!(
        (&e["code"], &e["data"]["code"], &e["data"]["exit"]),
        (&json!(-32000), &"plan-changed".into(), &5.into())
    );
    assert_eq!(w.read("a.txt"), "newer\n");
    // Nothing is applied unseen; a dry run by the command's own name is a plan.
    for (method, params) in [
        ("restore", json!({"checkpoint": "@"})),
        ("restore", json!({"checkpoint": "@", "dry_run": false})),
        ("restore/apply", json!({"checkpoint": "@"})),
        ("restore/apply", json!({"plan": "0000"})),
        ("restore/plan", json!({"checkpoint": "@", "dry_run": false})),
        ("restore/plan", json!({"checkpoint": "@", "plan": plan["plan"]})),
        ("rewind", json!({"to": 1})),
    ] {
        assert_eq!(rpc.fails(method, params).unwrap()["data"]["code"], "usage", "{method}");
    }
    let plan = rpc.ok("restore", json!({"checkpoint": "@", "dry-run": true})).unwrap();
    // Another connection says what was planned.
    let mut other = serve(&w);
    other.ok("restore/apply", json!({"plan": plan["plan"], "checkpoint": "@"})).unwrap();
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    end(other);
    end(rpc);
}

#[test]
fn two_hosts_in_one_folder() {
    let w = World::new();
    let mut hosts = [serve(&w), serve(&w)];
    for (n, h) in hosts.iter_mut().enumerate() {
        h.ok("session/open", json!({"session": format!("s{n}")})).unwrap();
    }
    for turn in 1..=3 {
        let ids: Vec<u64> = hosts
            .iter_mut()
            .map(|h| h.request("turn/begin", json!({"key": format!("k{turn}")})).unwrap())
            .collect();
        for (n, h) in hosts.iter_mut().enumerate() {
            let begun = h.answer(ids[n]).unwrap();
            assert_eq!(begun["result"]["turn"], turn, "{begun}");
            let path = format!("f{n}");
            h.ok("tool/before", json!({"call": format!("c{turn}"), "paths": [path]})).unwrap();
            w.write(&path, format!("{n} {turn}"));
            h.ok("tool/after", json!({"call": format!("c{turn}")})).unwrap();
            h.ok("turn/end", json!({})).unwrap();
        }
    }
    let [mut a, b] = hosts;
    let plan = a.ok("rewind/plan", json!({"to": 2})).unwrap();
    a.ok("rewind/apply", json!({"plan": plan["plan"]})).unwrap();
    assert_eq!((w.read("f0").as_str(), w.read("f1").as_str()), ("0 1", "1 3"));
    end(a);
    end(b);
    assert_eq!(w.json(&["verify"])["ok"], true);
}

#[test]
fn what_changed_is_told() {
    let (w, id) = World::changed();
    let mut rpc = serve(&w);
    rpc.ok("workspace/open", json!({})).unwrap();
    rpc.ok("checkpoint/label", json!({"checkpoint": id, "label": "x"})).unwrap();
    let told = rpc.note("checkpoint/changed").unwrap();
    assert_eq!((&told["params"]["change"], &told["params"]["id"]), (&"updated".into(), &id.clone().into()));
    assert_eq!(told["params"]["checkpoint"]["label"], "x");
    // What another process did is told with the next call that writes.
    let other = w.save(&[]);
    let plan = rpc.ok("restore/plan", json!({"checkpoint": id})).unwrap();
    assert_eq!(rpc.note("checkpoint/changed").unwrap()["params"]["id"], other);
    let done = rpc.ok("restore/apply", json!({"plan": plan["plan"]})).unwrap();
    let told = rpc.note("operation/changed").unwrap();
    assert_eq!(
        (&told["params"]["id"], &told["params"]["operation"]["state"]),
        (&done["operation"], &"done".into())
    );
    rpc.ok("checkpoint/delete", json!({"checkpoints": [other]})).unwrap();
    let gone = loop {
        let told = rpc.note("checkpoint/changed").unwrap();
        if told["params"]["change"] == "deleted" {
            break told;
        }
    };
    assert_eq!((&gone["params"]["id"], &gone["params"]["checkpoint"]), (&other.into(), &Value::Null));
    end(rpc);
}

#[test]
fn what_was_begun_is_finished_when_the_host_goes() {
    let w = World::new();
    let mut rpc = serve(&w);
    rpc.request("turn/begin", json!({"key": "k", "session": "s"})).unwrap();
    rpc.request("checkpoint/create", json!({"label": "last"})).unwrap();
    end(rpc);
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 2);
    // Also where nobody reads any more.
    let mut command = w.cli.command(&w.ws, ["serve"]);
    let (read, write) = std::io::pipe().unwrap();
    command.stdin(std::process::Stdio::piped()).stdout(write);
    let mut child = command.spawn().unwrap();
    drop(command);
    drop(read);
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "checkpoint/create", "params": {"label": "unread"}}),
    ];
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(w.json(&["list", "--limit", "1"])["checkpoints"][0]["label"], "unread");
}

#[test]
fn a_signal_ends_what_runs() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w);
    let lock = hold(&w);
    let id = rpc.request("checkpoint/create", json!({})).unwrap();
    rpc.ok("list", json!({})).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(rpc.id().try_into().unwrap()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(rpc.answer(id).unwrap()["error"]["data"]["code"], "interrupted");
    let (code, _) = rpc.end().unwrap();
    assert_eq!(code, Some(130));
    drop(lock);
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 1);
}

#[test]
fn paths_are_relative_to_the_workspace() {
    use std::os::unix::ffi::OsStrExt;
    let (w, _) = World::recorded();
    let mut rpc = Rpc::start({
        let mut c = w.cli.command(&w.path("sub"), ["serve"]);
        c.current_dir(w.path("sub"));
        c
    })
    .unwrap();
    rpc.ok("initialize", json!({})).unwrap();
    w.write("sub/b.txt", "other\n");
    fs::write(w.ws.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let one =
        |rpc: &mut Rpc, path: Value| rpc.ok("diff", json!({"paths": [path]})).unwrap()["changes"][0].clone();
    assert_eq!(one(&mut rpc, json!("sub/b.txt"))["path"], "sub/b.txt");
    assert_eq!(one(&mut rpc, json!(w.path("sub/b.txt")))["path"], "sub/b.txt");
    assert_eq!(one(&mut rpc, json!({"path_base64": "/w=="}))["path_base64"], "/w==");
    assert_eq!(rpc.fails("diff", json!({"paths": ["../x"]})).unwrap()["data"]["code"], "unsafe-path");
    let e = rpc.fails("export", json!({"checkpoint": "@", "dir": "copy"})).unwrap();
    assert!(e["message"].as_str().unwrap().contains("absolute"), "{e}");
    rpc.ok("export", json!({"checkpoint": "@", "dir": w.top.join("copy")})).unwrap();
    assert!(w.top.join("copy/a.txt").exists());
    // Another folder, for one call.
    let e = rpc.fails("list", json!({"workspace": w.top.join("copy")})).unwrap();
    assert_eq!(e["data"]["code"], "no-such-store");
    end(rpc);
}

#[test]
fn s36_what_is_a_persons_is_refused_to_agents() {
    let (mut w, id) = World::recorded();
    w.cli.env("CLAUDECODE", "1");
    let mut rpc = serve(&w);
    for (method, params) in [
        ("checkpoint/delete", json!({"checkpoints": [id]})),
        ("disable", json!({})),
        ("config/set", json!({"key": "budget", "value": "1"})),
        ("relink", json!({"old": "/nowhere"})),
        ("stores/purge", json!({"names": ["x"]})),
    ] {
        let e = rpc.fails(method, params).unwrap();
        assert_eq!(
            (&e["data"]["code"], &e["data"]["exit"]),
            (&"agent-context".into(), &5.into()),
            "{method}: {e}"
        );
    }
    rpc.ok("checkpoint/delete", json!({"checkpoints": [id], "as_person": true})).unwrap();
    end(rpc);
}

#[test]
fn a_script_of_the_standard_library_tells_the_story() {
    if !backstitch_testkit::privilege::has_program("python3") {
        return skip::skip("serve: python3 client", "python3 is not there");
    }
    for script in ["rpc_story.py", "mcp_story.py"] {
        let w = World::new();
        let mut c = std::process::Command::new("python3");
        c.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script));
        let pattern = w.cli.command(&w.ws, [] as [&str; 0]);
        c.arg(w.cli.binary()).arg(&w.ws);
        for (k, v) in pattern.get_envs() {
            c.env(k, v.unwrap_or_default());
        }
        let run = backstitch_testkit::cli::run_to_end(&mut c, w.cli.timeout, script.to_owned()).unwrap();
        assert_eq!((run.code, run.stdout.as_slice()), (Some(0), &b"ok\n"[..]), "{run}");
    }
}

//! The server while captures take long, and while what it stands on goes away.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use backstitch_testkit::rpc::Rpc;
use serde_json::{Value, json};

use crate::support::World;

fn serve(w: &World, env: &[(&str, &str)]) -> Rpc {
    let mut command = w.cli.command(&w.ws, ["serve"]);
    command.envs(env.iter().copied());
    let mut rpc = Rpc::start(command).unwrap();
    rpc.ok("initialize", json!({})).unwrap();
    rpc
}

fn end(rpc: Rpc) {
    let (code, stderr) = rpc.end().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// Of a row, as the list has it.
fn state(rpc: &mut Rpc, id: &Value) -> String {
    let list = rpc.ok("list", json!({"all": true})).unwrap();
    let row = list["checkpoints"].as_array().unwrap().iter().find(|c| c["id"] == *id).unwrap();
    row["state"].as_str().unwrap().to_owned()
}

#[test]
fn sem23_a_tool_that_names_its_paths_waits_for_nothing_else() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w, &[("BACKSTITCH_PROMPT_TIME", "0")]);
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    let held = w.hold_captures();
    let begun = rpc.ok("turn/begin", json!({"key": "k"})).unwrap();
    assert_eq!(begun["pending"], true, "{begun}");
    let wait = rpc.request("turn/wait", json!({"key": "k"})).unwrap();
    // One that may write anywhere waits at the gate, and holds up none that comes after it.
    let shell = rpc.request("tool/before", json!({"call": "shell"})).unwrap();
    let file = rpc.ok("tool/before", json!({"call": "file", "paths": ["a.txt"]})).unwrap();
    assert_eq!(file["checkpoint"]["state"], "complete", "{file}");
    w.write("a.txt", "by the agent");
    rpc.ok("tool/after", json!({"call": "file"})).unwrap();
    let create = rpc.request("checkpoint/create", json!({"label": "later"})).unwrap();
    assert_eq!(state(&mut rpc, &begun["id"]), "gap");
    assert!([wait, shell, create].iter().all(|id| rpc.is_open(*id)));
    drop(held);
    let row = rpc.answer(wait).unwrap();
    assert_eq!(row["result"]["checkpoint"]["id"], begun["id"], "{row}");
    assert_eq!(row["result"]["checkpoint"]["state"], "complete", "{row}");
    assert_eq!(rpc.answer(shell).unwrap()["result"]["checkpoint"]["state"], "complete");
    assert_eq!(rpc.answer(create).unwrap()["result"]["checkpoint"]["label"], "later");
    end(rpc);
    let then = format!("{}:a.txt", begun["id"].as_str().unwrap());
    assert_eq!(w.text(&["cat", &then]), "one\ntwo\nthree\n", "the first touch says what stood there");
}

#[test]
fn sem23_a_gate_that_stays_shut_is_a_gap() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w, &[("BACKSTITCH_PROMPT_TIME", "0"), ("BACKSTITCH_GATE_TIMEOUT", "0")]);
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    let held = w.hold_captures();
    rpc.ok("turn/begin", json!({"key": "k"})).unwrap();
    let gap = rpc.ok("tool/before", json!({"call": "c"})).unwrap();
    assert_eq!((&gap["checkpoint"]["state"], &gap["exit"]), (&"gap".into(), &3.into()), "{gap}");
    drop(held);
    assert_eq!(rpc.ok("turn/wait", json!({"key": "k"})).unwrap()["checkpoint"]["state"], "complete");
    end(rpc);
}

#[test]
fn a_capture_beside_its_lane_is_cancelled_and_its_row_stays_a_gap() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w, &[("BACKSTITCH_PROMPT_TIME", "0")]);
    rpc.ok("session/open", json!({"session": "s"})).unwrap();
    let held = w.hold_captures();
    let begin = rpc.request("turn/begin", json!({"key": "k"})).unwrap();
    let id = rpc.answer(begin).unwrap()["result"]["id"].clone();
    let wait = rpc.request("turn/wait", json!({"key": "k"})).unwrap();
    let shell = rpc.request("tool/before", json!({"call": "c"})).unwrap();
    rpc.notify("$/cancelRequest", json!({"id": begin})).unwrap();
    assert_eq!(rpc.answer(wait).unwrap()["error"]["data"]["code"], "interrupted");
    // Nobody captures any more: the gate is open, and nothing is called "before" that was not looked at.
    assert!(rpc.answer(shell).unwrap()["result"]["checkpoint"]["id"].is_string());
    assert_eq!(state(&mut rpc, &id), "gap");
    drop(held);
    end(rpc);
}

#[test]
fn sixty_workspaces_in_one_server() {
    let w = World::new();
    let mut rpc = serve(&w, &[]);
    let folders: Vec<PathBuf> = (0..60).map(|n| w.top.join(format!("many/{n}"))).collect();
    for f in &folders {
        fs::create_dir_all(f).unwrap();
        fs::write(f.join("a"), f.to_str().unwrap()).unwrap();
    }
    let calls: Vec<u64> = folders
        .iter()
        .map(|f| rpc.request("turn/begin", json!({"workspace": f, "session": "s", "key": "k"})).unwrap())
        .collect();
    for id in calls {
        let answer = rpc.answer(id).unwrap();
        assert_eq!(answer["result"]["turn"], 1, "{answer}");
    }
    for f in &folders {
        let row = rpc.ok("turn/wait", json!({"workspace": f, "session": "s", "key": "k"})).unwrap();
        assert_eq!(row["checkpoint"]["state"], "complete", "{row}");
        let list = rpc.ok("list", json!({"workspace": f})).unwrap();
        assert_eq!(list["checkpoints"].as_array().unwrap().len(), 1, "{list}");
    }
    end(rpc);
}

#[test]
fn few_descriptors_end_calls_and_not_the_server() {
    let (w, _) = World::recorded();
    for n in 0..40 {
        w.write(&format!("d{n}/e/f/g"), format!("{n}"));
    }
    for limit in [10, 14, 20, 40] {
        let inner = w.cli.command(&w.ws, ["serve"]);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        command.arg(inner.get_program()).args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let mut rpc = Rpc::start(command).unwrap();
        rpc.ok("initialize", json!({})).unwrap();
        for n in 0..4 {
            w.write("a.txt", format!("{limit} {n}"));
            let made = rpc.call("checkpoint/create", json!({})).unwrap();
            // A row says what it left out; a call that ended says why.
            match made {
                Ok(v) => assert!(v["checkpoint"]["id"].is_string(), "{v}"),
                Err(e) => assert!(e["data"]["code"].is_string() && e["message"].is_string(), "{e}"),
            }
        }
        let (code, _) = rpc.end().unwrap();
        assert_eq!(code, Some(0), "with {limit}");
    }
    let v = w.json(&["verify"]);
    assert_eq!(v["ok"], true, "{v}");
    // With enough of them again, all is as it was.
    assert_eq!(w.json(&["checkpoint"])["checkpoint"]["state"], "complete");
}

/// In one step, whatever is still written into it.
fn take_away(dir: &Path) {
    let aside = tempfile::tempdir_in(dir.parent().unwrap().parent().unwrap().parent().unwrap()).unwrap();
    fs::rename(dir, aside.path().join("gone")).unwrap();
}

#[test]
fn a_store_or_a_folder_that_goes_away_ends_calls_and_not_the_server() {
    let (w, _) = World::recorded();
    let mut rpc = serve(&w, &[]);
    let create = |rpc: &mut Rpc, n: &str| rpc.call("checkpoint/create", json!({"label": n})).unwrap();
    create(&mut rpc, "first").unwrap();
    let store = PathBuf::from(w.json(&["status"])["store"].as_str().unwrap());
    // The whole store: a new one is made, and it is said that the old one is gone.
    take_away(&store);
    let e = rpc.call("list", json!({})).unwrap().unwrap_err();
    assert_eq!(e["data"]["code"], "no-such-store", "{e}");
    let made = create(&mut rpc, "second").unwrap();
    assert!(made["warnings"].to_string().contains("gone"), "{made}");
    assert_eq!(rpc.ok("list", json!({})).unwrap()["checkpoints"].as_array().unwrap().len(), 1);
    // Its repository only: damage, never an empty store.
    take_away(&store.join("git"));
    assert_eq!(create(&mut rpc, "third").unwrap_err()["data"]["code"], "store-damaged");
    take_away(&store);
    // The folder.
    create(&mut rpc, "fourth").unwrap();
    let aside = w.top.join("aside");
    fs::rename(&w.ws, &aside).unwrap();
    let e = create(&mut rpc, "fifth").unwrap_err();
    assert!(e["data"]["code"].is_string() && e["message"].to_string().contains("project"), "{e}");
    fs::rename(&aside, &w.ws).unwrap();
    create(&mut rpc, "sixth").unwrap();
    end(rpc);
}

#[test]
fn closed_streams_end_it_in_order() {
    let (w, _) = World::recorded();
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n";
    let make =
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"checkpoint/create\",\"params\":{\"label\":\"x\"}}\n";
    for (n, closed) in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"].iter().enumerate() {
        let inner = w.cli.command(&w.ws, ["serve"]);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("exec \"$0\" \"$@\" {closed}")]);
        command.arg(inner.get_program()).args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may be gone before it has read that.
        let _ = std::io::Write::write_all(child.stdin.as_mut().unwrap(), [hello, make].concat().as_bytes());
        let out = child.wait_with_output().unwrap();
        assert!(out.status.code().is_some_and(|c| c == 0), "{n}: {:?}", out.status);
        let said = String::from_utf8_lossy(&out.stdout);
        let answers = said.lines().filter(|l| l.contains("\"id\":")).filter(|l| l.contains("result"));
        assert_eq!(answers.count(), if *closed == "2>&-" { 2 } else { 0 }, "{closed}: {said}");
    }
    // What was asked for by whoever did not read was done.
    let labels: Value = w.json(&["list"]);
    let labelled = labels["checkpoints"].as_array().unwrap().iter().filter(|c| c["label"] == "x").count();
    assert_eq!(labelled, 2, "{labels}");
}

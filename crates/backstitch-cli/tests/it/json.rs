//! `--json`: exactly one document for every command, in the documented shape.

use std::fs;

use backstitch_testkit::Git;
use serde_json::{Map, Value, json};

use crate::support::{Normal, World, check_examples};

/// Runs every command; the documents become the examples of the reference page.
fn documents() -> (World, Map<String, Value>) {
    let (w, first) = World::recorded();
    w.write("a.txt", "one\nTWO\nthree\n");
    w.write("new.txt", "new\n");
    let mut all: Vec<(&str, Value)> = Vec::new();
    let mut add = |name: &'static str, v: Value| all.push((name, v));
    add("diff", w.json(&["diff", "--patch", "--", "a.txt"]));
    w.write(".gitignore", "target/\n");
    w.write("target/x", "x");
    add(
        "checkpoint",
        w.json(&[
            "checkpoint",
            "-m",
            "before the parser",
            "--session",
            "7f3a",
            "--prompt",
            "Rewrite the parser",
        ]),
    );
    add("list", w.json(&["list", "--limit", "1"]));
    add("show", w.json(&["show", "@"]));
    add("cat", w.json(&["cat", "@:a.txt"]));
    add("files", w.json(&["files", "@"]));
    add("log", w.json(&["log", "a.txt", "--limit", "1"]));
    add("restore", w.json(&["restore", &first, "--", "a.txt", "new.txt"]));
    add("undo", w.json(&["undo"]));
    add("redo", w.json(&["redo"]));
    add("operations", w.json(&["operations", "--limit", "1"]));
    add("status", w.json(&["status"]));
    add("verify", w.json(&["verify"]));
    add("doctor", w.json(&["doctor", "--drill"]));
    session(&w, &mut add);
    add("pin", w.json(&["pin", &first]));
    add("unpin", w.json(&["unpin", &first]));
    add("label", w.json(&["label", &first, "start"]));
    add("export", w.json(&["export", &first, w.top.join("copy").to_str().unwrap()]));
    synced(&w, &first, &mut add);
    add("delete", w.json(&["delete", &first]));
    let mut gc = w.json(&["gc"]);
    // What the commands before it have left is not the example's matter.
    assert!(gc["packs"]["before"].as_u64() > gc["packs"]["after"].as_u64(), "{gc}");
    gc["packs"] = json!({"before": 12, "after": 2});
    gc["loose"] = json!({"before": 16, "after": 1});
    gc["garbage_objects"] = 14.into();
    add("gc", gc);
    add("prune", w.json(&["prune", "--dry-run"]));
    w.write("key.txt", "correct horse battery staple\n");
    w.json(&["checkpoint"]);
    let mut gone = w.json(&["forget", "key.txt"]);
    gone["bytes"] = 4096.into();
    add("forget", gone);
    w.json(&["checkpoint", "--session", "scratch"]);
    add("session purge", w.json(&["session", "purge", "scratch"]));
    add("config get", w.json(&["config", "get", "budget"]));
    add("config set", w.json(&["config", "set", "--project", "exclude", "*.iso"]));
    add("config path", w.json(&["config", "path"]));
    add("config trust", w.json(&["config", "trust"]));
    let mut list = w.json(&["config", "list"]);
    list["settings"].as_array_mut().unwrap().truncate(1);
    add("config list", list);
    add("disable", w.json(&["disable"]));
    add("enable", w.json(&["enable"]));
    add("stores list", w.json(&["stores", "list"]));
    add("watch status", w.json(&["watch", "status"]));
    add("watch start", w.json(&["watch", "start"]));
    add("watch stop", w.json(&["watch", "stop"]));
    for name in ["install", "uninstall"] {
        let mut v = w.json(&[name, "opencode"]);
        v["files"][0]["diff"] = "…".into();
        // Where the program is not on the search path, another note says so.
        v["notes"].as_array_mut().unwrap().truncate(1);
        add(name, v);
    }
    let mut script = w.json(&["completions", "bash"]);
    script["script"] = "…".into();
    add("completions", script);
    let mut page = w.json(&["man"]);
    page["page"] = "…".into();
    add("man", page);
    let error = w.cli.json(&w.ws, ["restore", "@", "--", "nothing"]).unwrap();
    add("error", serde_json::from_str::<Value>(&error.stderr).unwrap()["error"].clone());
    let mut normal = Normal::new(&w);
    // Ids are numbered in the order of their rows, whatever the order of keys.
    normal.text(&first);
    for c in w.json(&["list", "--all", "--reverse"])["checkpoints"].as_array().unwrap() {
        normal.value(&c["id"]);
    }
    let mut out: Map<String, Value> = all.iter().map(|(n, v)| ((*n).to_owned(), normal.value(v))).collect();
    let error = out["error"].clone();
    out.insert("error".to_owned(), serde_json::json!({"error": error}));
    let moved = w.top.join("moved");
    fs::rename(&w.ws, &moved).unwrap();
    let mut v = w.cli.json(&moved, ["relink", w.ws.to_str().unwrap()]).unwrap().ok().unwrap();
    let own = w.cli.only_store().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    v["store"] = "/home/me/.local/share/backstitch/stores/moved-9e0d1c2b3a4f5e6d".into();
    out.insert("relink".to_owned(), normal.value(&v));
    let mut v = w.cli.json(&w.top, ["stores", "delete", &own]).unwrap().ok().unwrap();
    v["deleted"][0] = "moved-9e0d1c2b3a4f5e6d".into();
    let v = normal.value(&v);
    out.insert("stores purge".to_owned(), v.clone());
    out.insert("stores delete".to_owned(), v);
    (w, out)
}

/// One turn with one tool, taken back.
fn session(w: &World, add: &mut dyn FnMut(&'static str, Value)) {
    let s = ["--session", "7f3a"];
    let run = |args: &[&str]| w.json(&[args, &s[..]].concat());
    add("turn begin", run(&["turn", "begin", "--key", "k1", "--prompt", "Make it faster"]));
    add("tool before", run(&["tool", "before", "--call", "c1", "--tool", "write", "a.txt"]));
    w.write("a.txt", "one\nfaster\n");
    add("tool after", run(&["tool", "after", "--call", "c1"]));
    add("turn end", run(&["turn", "end"]));
    add("turn bind", run(&["turn", "bind", "--entry", "e1"]));
    add("session list", w.json(&["session", "list"]));
    let mut shown = w.json(&["session", "show"]);
    shown["checkpoints"].as_array_mut().unwrap().truncate(1);
    add("session show", shown);
    add("rewind", run(&["rewind", "1"]));
    reverted(w, add);
    add("bisect", w.json(&["bisect", "7f3a", "--", "sh", "-c", "! grep -q again notes.txt"]));
    let mut blame = w.json(&["blame", "notes.txt"]);
    blame["lines"].as_array_mut().unwrap().truncate(2);
    add("blame", blame);
    add("session fork", w.json(&["session", "fork", "7f3b", "--from", "7f3a/prompt:1"]));
    add("session end", w.json(&["session", "end", "7f3b"]));
    w.json(&["checkpoint", "--session", "scratch"]);
    add("session delete", w.json(&["session", "delete", "scratch"]));
}

/// To a remote and back.
fn synced(w: &World, first: &str, add: &mut dyn FnMut(&'static str, Value)) {
    let remote = w.top.join("remote.git");
    fs::create_dir(&remote).unwrap();
    Git::new().unwrap().run(&remote, ["init", "-q", "--bare"]).unwrap();
    let remote = remote.to_str().unwrap();
    let mut sent = w.json(&["sync", "push", remote, "--dry-run"]);
    assert!(sent["bytes"].as_u64() > Some(0) && sent["contents"].as_u64() > Some(0), "{sent}");
    (sent["checkpoints"], sent["bytes"], sent["contents"]) = (json!([first]), 2048.into(), 3.into());
    sent["left_out"] = json!([{"path": ".env", "what": "private"}]);
    sent["secrets"] = json!([{"path": "deploy.md", "what": "AWS access key"}]);
    add("sync push", sent);
    w.json(&["sync", "push", remote]);
    let mut got = w.json(&["sync", "pull", remote]);
    // What was sent from here is here.
    assert_eq!(got["checkpoints"], json!([]));
    got["checkpoints"] = json!([first]);
    got["sessions"] = json!(["7f3a-5n16zc"]);
    got["conflicts"] = json!([{"session": "7f3a", "kept_as": "7f3a-5n16zc", "checkpoints": 1}]);
    add("sync pull", got);
}

/// One turn of two, whose lines were changed again in part.
fn reverted(w: &World, add: &mut dyn FnMut(&'static str, Value)) {
    let s = ["--session", "7f3a"];
    for (key, text) in
        [("k2", "one\ntwo, once\nthree\nfour, once\n"), ("k3", "one\ntwo, twice\nthree\nfour, once\n")]
    {
        w.json(&[&["turn", "begin", "--key", key], &s[..]].concat());
        w.write("notes.txt", text);
        w.json(&[&["turn", "end"], &s[..]].concat());
        if key == "k2" {
            continue;
        }
        w.json(&[&["turn", "begin", "--key", "k4"], &s[..]].concat());
        w.write("notes.txt", "one\ntwo, again\nthree\nfour, once\nfive\n");
        w.json(&[&["turn", "end"], &s[..]].concat());
    }
    add("revert", w.json_with(3, &[&["revert", "3"], &s[..]].concat()));
}

#[test]
fn the_examples_of_the_reference_are_what_is_printed() {
    let (_w, found) = documents();
    check_examples("src/examples.json", &found);
}

#[test]
fn every_command_of_the_contract_has_its_shape() {
    let (_w, d) = documents();
    let keys = |v: &Value| -> Vec<String> { v.as_object().unwrap().keys().cloned().collect() };
    let holds = |v: &Value, want: &str| {
        let have = keys(v);
        for k in want.split(' ') {
            assert!(have.iter().any(|h| h == k), "{k} in {have:?}");
        }
    };
    let row = "id kind session turn agent tool label prompt entry parent created state unchanged tree commit summary \
               skipped scope retention pinned workspace bytes restorable";
    holds(&d["checkpoint"]["checkpoint"], row);
    holds(&d["list"]["checkpoints"][0], row);
    holds(&d["show"]["checkpoint"], row);
    holds(&d["show"]["checkpoint"]["skipped"][0], "path reason bytes");
    holds(&d["show"]["checkpoint"]["summary"], "added modified deleted renamed");
    holds(&d["show"]["changes"][0], "path old_path status mode_change binary added removed");
    holds(&d["diff"], "from to changes patch");
    for name in ["turn begin", "turn end", "turn bind", "tool before", "tool after"] {
        holds(&d[name]["checkpoint"], row);
    }
    holds(&d["turn bind"], "checkpoint bound");
    holds(&d["session list"]["sessions"][0], "id parent ended created last rows turns open_turn");
    holds(&d["session show"], "session checkpoints");
    holds(&d["rewind"], "takes_back");
    holds(&d["log"]["entries"][0], "checkpoint change by");
    holds(&d["blame"]["lines"][0], "line text checkpoint created path by");
    holds(&d["blame"]["lines"][0]["by"], "who session turn tool call agent evidence operation");
    holds(&d["revert"]["items"][0]["conflicts"][0], "what present base wanted");
    for name in ["restore", "rewind", "revert", "undo", "redo"] {
        holds(&d[name], "operation dry_run plan target safety items counts verified partial");
        holds(&d[name]["items"][0], "path action reason result");
    }
    holds(
        &d["status"],
        "workspace store enabled reason scope budget_bytes used_bytes checkpoints sessions last not_covered in_flight watcher",
    );
    holds(&d["gc"], "dry_run freed_bytes used_bytes checkpoints packs left partial");
    holds(&d["show"]["checkpoint"]["bytes"], "unique shared");
    holds(&d["error"]["error"], "code message path hint");
}

#[test]
fn names_that_are_not_utf_8_are_exact() {
    use std::os::unix::ffi::OsStrExt;
    let (w, _) = World::recorded();
    fs::write(w.ws.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let d = w.json(&["diff"]);
    assert_eq!(
        (&d["changes"][0]["path"], &d["changes"][0]["path_base64"]),
        (&"\u{fffd}".into(), &"/w==".into())
    );
    let v = w.json(&["restore", "@"]);
    assert_eq!(v["items"][0]["path_base64"], "/w==");
}

#[test]
fn help_and_wrong_usage_with_json() {
    let w = World::new();
    for args in [&["nonsense", "--json"][..], &["--json"], &["--json", "restore"], &["config", "--json"]] {
        let run = w.run(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{run}");
        let e: Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(e["error"]["code"], "usage");
        assert!(e["error"]["hint"].is_string());
    }
    // After `--` it is a path.
    let run = w.run(&["restore", "--", "--json"]);
    assert!(run.code == Some(2) && run.stderr.starts_with("error: "), "{run}");
}

/// Every way back, without a person: what a dry run says is what is done.
#[test]
fn r135_dry_runs_say_what_real_runs_do() {
    let (w, id) = World::changed();
    w.json(&["turn", "begin", "--session", "s"]);
    w.write("bin", "by the agent");
    w.json(&["turn", "end"]);
    let shape = |v: &Value| -> Vec<(Value, Value, Value)> {
        let items = v["items"].as_array().unwrap().iter();
        items.map(|i| (i["path"].clone(), i["action"].clone(), i["reason"].clone())).collect()
    };
    for args in [&["rewind", "1"][..], &["undo"], &["redo"], &["restore", &id], &["undo"], &["redo"]] {
        let before = w.tree();
        let dry = w.json(&[args, &["--dry-run"]].concat());
        before.assert_same(&w.tree(), &backstitch_testkit::Compare::untouched(), "a dry run");
        let real = w.json(args);
        assert_eq!((shape(&dry), &dry["plan"]), (shape(&real), &real["plan"]), "{args:?}");
        assert!(!shape(&real).is_empty() && real["operation"].is_string(), "{args:?}");
    }
}

//! `checkpoint`, option by option.

use std::{io::Write, process::Stdio};

use serde_json::Value;

use crate::support::World;

fn saved(w: &World, args: &[&str]) -> Value {
    let mut words = vec!["checkpoint"];
    words.extend(args);
    w.json(&words)["checkpoint"].clone()
}

#[test]
fn every_option_arrives_in_the_row() {
    let w = World::new();
    let c = saved(&w, &[]);
    assert_eq!(
        (&c["kind"], &c["retention"], &c["pinned"]),
        (&"manual".into(), &"forensic".into(), &false.into())
    );
    assert_eq!(c["summary"]["added"], 4);
    assert_eq!((&c["unchanged"], &c["restorable"]), (&false.into(), &true.into()));
    for (args, key, want) in [
        (&["-m", "a label"][..], "label", "a label"),
        (&["--label", "another"], "label", "another"),
        (&["--prompt", "do it"], "prompt", "do it"),
        (&["--entry", "e1"], "entry", "e1"),
        (&["--agent", "helper"], "agent", "helper"),
        (&["--tool", "bash"], "tool", "bash"),
        (&["--retention", "short"], "retention", "short"),
        (&["--retention", "standard"], "retention", "standard"),
        (&["--session", "s1"], "session", "s1"),
        (&["--kind", "session-start"], "kind", "session-start"),
        (&["--kind", "prompt"], "kind", "prompt"),
        (&["--kind", "turn"], "kind", "turn"),
        (&["--kind", "tool"], "kind", "tool"),
        (&["--kind", "agent-run"], "kind", "agent-run"),
        (&["--turn", "key-1"], "kind", "manual"),
    ] {
        let c = saved(&w, args);
        assert_eq!(c[key], want, "{args:?}");
        assert_eq!(c["unchanged"], true);
    }
    assert_eq!(saved(&w, &["--pin"])["pinned"], true);
    assert_eq!(saved(&w, &["--kind", "prompt"])["retention"], "standard");
    let mut cli = backstitch_testkit::Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_SESSION", "from-env");
    let v = cli.json(&w.ws, ["save"]).unwrap().ok().unwrap();
    assert_eq!(v["checkpoint"]["session"], "from-env");
}

#[test]
fn a_prompt_comes_from_a_file_or_from_standard_input() {
    let w = World::new();
    let file = w.top.join("prompt");
    let long = "x".repeat(100_000);
    let text = format!("Fix it\n\n{{\"v\":1}}\n\u{1f600}{long}");
    std::fs::write(&file, &text).unwrap();
    assert_eq!(saved(&w, &["--prompt-file", file.to_str().unwrap()])["prompt"], text.as_str());

    let mut child = w
        .cli
        .command(&w.ws, ["--json", "checkpoint", "--prompt-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["checkpoint"]["prompt"], text.as_str());
}

#[test]
fn no_row_when_nothing_changed() {
    let (w, _) = World::recorded();
    assert_eq!(w.json(&["checkpoint", "--if-changed"])["checkpoint"], Value::Null);
    let run = w.run(&["checkpoint", "--if-changed"]);
    assert_eq!((run.code, run.stdout.is_empty()), (Some(0), true), "{run}");
    w.write("a.txt", "changed\n");
    assert!(w.json(&["checkpoint", "--if-changed"])["checkpoint"].is_object());
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 2);
}

#[test]
fn named_paths_only() {
    let (w, id) = World::changed();
    let c = saved(&w, &["--", "a.txt", "sub"]);
    assert_eq!((c["scope"].as_str(), &c["covers"]), (Some("paths"), &serde_json::json!(["a.txt", "sub"])));
    assert_eq!(w.text(&["cat", "@:a.txt"]), "one\nTWO\nthree\n");
    assert_eq!(w.run(&["cat", "@:new.txt"]).code, Some(4));
    let c = saved(&w, &["--scope", "touched", "--", "new.txt"]);
    assert_eq!((c["scope"].as_str(), &c["covers"]), (Some("touched"), &serde_json::json!(["new.txt"])));
    // The whole workspace by its own name.
    assert_eq!(saved(&w, &["--", "."])["scope"], "workspace");
    assert!(!id.is_empty());
}

#[test]
fn it_says_how_to_go_back_and_what_was_left_out() {
    let w = World::new();
    w.write(".gitignore", "node_modules/\n");
    w.write("node_modules/x", "x");
    std::os::unix::net::UnixListener::bind(w.path("socket")).unwrap();
    let run = w.run(&["checkpoint"]);
    let out = String::from_utf8(run.stdout.clone()).unwrap();
    let id = out.lines().next().unwrap();
    assert_eq!(out.lines().nth(1), Some("5 files: +5"), "{run}");
    assert!(run.stderr.contains(&format!("go back: backstitch restore {id}\n")), "{run}");
    assert!(run.stderr.contains("hint: "), "the first time: {run}");
    assert!(run.stderr.contains("left out by rule: 1 ignored, 1 "), "{run}");
    assert!(!run.stderr.contains("node_modules"), "{run}");
    let run = w.run(&["checkpoint", "-v"]);
    assert!(run.stderr.contains("  node_modules (ignored)") && run.stderr.contains("  socket ("), "{run}");
    assert!(!run.stderr.contains("hint: "), "{run}");
    let run = w.run(&["checkpoint", "-q"]);
    assert_eq!(run.stderr, "");
    assert_eq!(String::from_utf8(run.stdout).unwrap().lines().count(), 2);
}

#[test]
fn texts_may_begin_with_a_dash() {
    let w = World::new();
    let c = saved(
        &w,
        &["--prompt", "- fix\n--json", "-m", "-x", "--entry", "-1", "--turn", "--k", "--session", "-s"],
    );
    assert_eq!((&c["prompt"], &c["label"]), (&"- fix\n--json".into(), &"-x".into()));
    assert_eq!((&c["entry"], &c["session"]), (&"-1".into(), &"-s".into()));
    assert_eq!(saved(&w, &["--prompt", "--pin"])["pinned"], false);
    assert_eq!(saved(&w, &["--prompt="])["prompt"], "");
}

//! `undo`, `redo`, `operations`.

use serde_json::Value;

use crate::support::World;

/// Ten states of `a.txt`, restored one after the other.
fn walked() -> World {
    let w = World::new();
    let ids: Vec<String> = (0..5)
        .map(|n| {
            w.write("a.txt", format!("{n}\n"));
            w.save(&[])
        })
        .collect();
    for id in ids.iter().take(4) {
        w.json(&["restore", id]);
    }
    assert_eq!(w.read("a.txt"), "3\n");
    w
}

#[test]
fn back_and_forth() {
    let w = walked();
    for want in ["2\n", "1\n", "0\n", "4\n"] {
        let v = w.json(&["undo"]);
        assert!(v["operation"].is_string());
        assert_eq!(w.read("a.txt"), want);
    }
    assert_eq!(w.fails(4, &["undo"])["code"], "nothing-to-undo");
    for want in ["0\n", "1\n", "2\n", "3\n"] {
        w.json(&["redo"]);
        assert_eq!(w.read("a.txt"), want);
    }
    assert_eq!(w.fails(4, &["redo"])["code"], "nothing-to-redo");
}

#[test]
fn several_steps() {
    let w = walked();
    let v = w.json(&["undo", "3"]);
    assert_eq!(w.read("a.txt"), "0\n");
    assert_eq!((v["steps"].as_array().unwrap().len(), &v["stopped"]), (3, &Value::Null));
    w.json(&["redo", "2"]);
    assert_eq!(w.read("a.txt"), "2\n");
    // Further than there is: it says how far it came.
    let v = w.json_with(3, &["undo", "9"]);
    assert_eq!(w.read("a.txt"), "4\n");
    assert_eq!((v["steps"].as_array().unwrap().len(), &v["partial"]), (3, &true.into()));
    assert_eq!(v["stopped"]["code"], "nothing-to-undo");
    let run = w.run(&["redo", "9"]);
    assert_eq!(run.code, Some(3), "{run}");
    assert!(run.stderr.contains("redo: stopped after 4 of 9 steps."), "{run}");
    assert_eq!(w.read("a.txt"), "3\n");
}

#[test]
fn a_named_operation() {
    let w = walked();
    let all = w.json(&["operations"]);
    let first = all["operations"][3]["id"].as_str().unwrap().to_owned();
    w.write("a.txt", "4\n");
    // The first restore took "4" to "0"; what stands there now is already what it was.
    let v = w.json(&["undo", "--operation", &first]);
    assert_eq!((&v["target"], v["items"][0]["reason"].as_str()), (&first.as_str().into(), Some("already")));
    let v = w.json(&["undo", "--operation", &first[..15], "--dry-run"]);
    assert_eq!(v["dry_run"], true);
}

#[test]
fn sessions_walk_their_own_operations() {
    let w = World::new();
    let a = w.save(&[]);
    w.write("a.txt", "x\n");
    w.write("bin", "y\n");
    w.json(&["--session", "s1", "restore", &a, "--", "a.txt"]);
    w.json(&["--session", "s2", "restore", &a, "--", "bin"]);
    w.json(&["undo", "--session", "s1"]);
    assert_eq!((w.read("a.txt").as_str(), fs_read(&w, "bin")), ("x\n", b"\0\x01\x02".to_vec()));
    assert_eq!(w.fails(4, &["undo", "--session", "s3"])["code"], "nothing-to-undo");
    let shown = w.json(&["operations", "--session", "s2"]);
    assert_eq!(shown["operations"].as_array().unwrap().len(), 1);
    // An agent walks its own session, without saying so.
    let mut cli = backstitch_testkit::Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_SESSION", "s2");
    cli.json(&w.ws, ["undo"]).unwrap().ok().unwrap();
    assert_eq!(w.read("bin"), "y\n");
}

fn fs_read(w: &World, rel: &str) -> Vec<u8> {
    std::fs::read(w.path(rel)).unwrap()
}

#[test]
fn what_changed_since() {
    let w = walked();
    w.write("a.txt", "mine\n");
    assert_eq!(w.fails(5, &["undo", "--on-conflict", "refuse"])["code"], "conflict");
    let v = w.json_with(3, &["undo", "--dry-run", "--on-conflict", "keep"]);
    assert_eq!(v["items"][0]["action"], "conflict");
    w.json(&["undo", "--on-conflict", "overwrite"]);
    assert_eq!(w.read("a.txt"), "2\n");
    w.json(&["undo"]);
    assert_eq!(w.read("a.txt"), "mine\n".replace("mine", "1"));
    w.write("a.txt", "mine\n");
    assert_eq!(w.fails(5, &["redo"])["code"], "conflict");
    w.json_with(3, &["redo", "--on-conflict", "keep"]);
    assert_eq!(w.read("a.txt"), "mine\n");
}

#[test]
fn a_dry_run_changes_nothing() {
    let w = walked();
    let v = w.json(&["undo", "--dry-run"]);
    assert_eq!((&v["dry_run"], &v["operation"]), (&true.into(), &Value::Null));
    assert_eq!(v["items"][0]["action"], "overwrite");
    assert_eq!(w.read("a.txt"), "3\n");
    let real = w.json(&["undo", "--yes", "--outside", "--privileged"]);
    assert_eq!((&real["plan"], &real["items"][0]["path"]), (&v["plan"], &v["items"][0]["path"]));
}

#[test]
fn operations_say_what_comes_next() {
    let w = walked();
    let last = w.json(&["operations"])["operations"][0]["id"].clone();
    w.json(&["undo"]);
    let v = w.json(&["operations"]);
    assert_eq!(v["operations"].as_array().unwrap().len(), 5);
    assert_eq!((&v["operations"][0]["kind"], &v["operations"][0]["inverts"]), (&"undo".into(), &last));
    assert_eq!((&v["operations"][1]["undone"], &v["operations"][2]["undone"]), (&true.into(), &false.into()));
    assert_eq!((&v["next_undo"], &v["next_redo"]), (&v["operations"][2]["id"], &v["operations"][0]["id"]));
    w.json(&["redo"]);
    let v = w.json(&["operations"]);
    assert_eq!((&v["operations"][1]["undone"], &v["operations"][2]["undone"]), (&true.into(), &false.into()));
    assert_eq!(w.json(&["operations", "--limit", "2"])["operations"].as_array().unwrap().len(), 2);
    let text = w.text(&["operations"]);
    assert!(text.lines().next().unwrap().ends_with("[next to undo]"), "{text}");
}

#[test]
fn deleted_rows_come_back() {
    let (w, id) = World::recorded();
    let other = w.save(&["-m", "other"]);
    let v = w.json(&["delete", &id, &id[..15]]);
    assert_eq!(v["deleted"], serde_json::json!([id]));
    assert_eq!(w.fails(4, &["show", &id])["code"], "no-such-checkpoint");
    w.json(&["undo"]);
    assert_eq!(w.json(&["show", &id])["checkpoint"]["id"], id.as_str());
    w.json(&["redo"]);
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(w.json(&["list"])["checkpoints"][0]["id"], other.as_str());
}

//! `rewind`, end to end.

use serde_json::{Value, json};

use crate::{sessions::Agent, support::World};

/// Three turns of one session: `a.txt` in each, `new.txt` in the second, a shell command in the third.
fn worked() -> World {
    let (w, _) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    for n in 1..=3 {
        s.begin(&format!("k{n}"));
        s.write(&format!("c{n}"), "a.txt", &format!("{n}\n"));
        if n == 2 {
            s.write("new", "new.txt", "new\n");
        }
        if n == 3 {
            s.run(&["tool", "before", "--call", "sh", "--tool", "bash"]);
            std::fs::remove_file(w.path("sub/b.txt")).unwrap();
            s.run(&["tool", "after", "--call", "sh"]);
        }
        s.end();
    }
    w
}

fn actions(v: &Value) -> Vec<String> {
    v["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| format!("{} {}", i["action"].as_str().unwrap(), i["path"].as_str().unwrap()))
        .collect()
}

#[test]
fn back_and_undone() {
    let w = worked();
    let after = w.tree();
    w.write("mine.txt", "my own\n");
    let v = w.json(&["rewind", "2"]);
    assert_eq!(
        (&v["takes_back"], &v["partial"], &v["verified"]),
        (&json!([2, 3]), &false.into(), &true.into())
    );
    assert_eq!(actions(&v), ["overwrite a.txt", "delete new.txt", "create sub/b.txt"]);
    assert_eq!((w.read("a.txt").as_str(), w.read("sub/b.txt").as_str()), ("1\n", "b\n"));
    assert!(!w.exists("new.txt"));
    assert_eq!(w.read("mine.txt"), "my own\n", "nothing of anybody else's");
    // The second one finds it done.
    let v = w.json(&["rewind", "2"]);
    assert_eq!((&v["operation"], &v["partial"]), (&Value::Null, &false.into()));
    w.json(&["undo"]);
    std::fs::remove_file(w.path("mine.txt")).unwrap();
    after.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), "undone");
    w.json(&["redo"]);
    assert_eq!(w.read("a.txt"), "1\n");
}

#[test]
fn every_way_to_name_a_turn() {
    let w = worked();
    for (args, back) in [
        (&["2"][..], json!([2, 3])),
        (&["turn:2"], json!([2, 3])),
        (&["prompt:3"], json!([3])),
        (&["s/turn:2"], json!([2, 3])),
        (&["s/3"], json!([3])),
        (&["s/prompt:1", "--session", "s"], json!([1, 2, 3])),
    ] {
        let v = w.json(&[&["rewind", "--dry-run"], args].concat());
        assert_eq!(v["takes_back"], back, "{args:?}");
    }
    let row = |name: &str| w.json(&["show", name])["checkpoint"]["id"].as_str().unwrap().to_owned();
    assert_eq!(w.json(&["rewind", "--dry-run", &row("prompt:2")])["takes_back"], json!([2, 3]));
    assert_eq!(w.json(&["rewind", "--dry-run", &row("turn:2")])["takes_back"], json!([3]));
    assert_eq!(w.fails(4, &["rewind", "9"])["code"], "no-such-checkpoint");
    assert_eq!(w.fails(4, &["rewind", "nothing"])["code"], "no-such-checkpoint");
    assert_eq!(w.fails(4, &["rewind", "1", "--session", "t"])["code"], "no-such-session");
    assert_eq!(w.fails(2, &["rewind"])["code"], "usage", "nobody to ask");
    Agent { w: &w, id: "t" }.begin("k");
    assert_eq!(w.fails(2, &["rewind", "s/2", "--session", "t"])["code"], "usage");
}

#[test]
fn previews_and_plans() {
    let w = worked();
    let before = w.tree();
    let preview = w.json(&["rewind", "1", "--dry-run"]);
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::untouched(), "previewed");
    let plan = preview["plan"].as_str().unwrap();
    assert_eq!(w.fails(5, &["rewind", "1", "--plan", "0123"])["code"], "plan-changed");
    w.write("a.txt", "while it was looked at\n");
    assert_eq!(w.fails(5, &["rewind", "1", "--plan", plan])["code"], "plan-changed");
    w.write("a.txt", "3\n");
    let v = w.json(&["rewind", "1", "--plan", plan]);
    assert_eq!((&v["plan"], actions(&v)), (&preview["plan"], actions(&preview)));
    let text = w.text(&["undo", "--dry-run"]);
    let plan = text.lines().find_map(|l| l.strip_prefix("plan ")).unwrap().to_owned();
    assert_eq!(w.fails(5, &["undo", "--plan", "0123"])["code"], "plan-changed");
    w.json(&["undo", "--plan", &plan]);
    assert_eq!(w.read("a.txt"), "3\n");
    // What it takes back is said first.
    assert!(w.text(&["rewind", "2", "--dry-run"]).starts_with("takes back turns 2-3\n"));
}

#[test]
fn conflicts() {
    let w = worked();
    w.write("a.txt", "by hand\n");
    let e = w.fails(5, &["rewind", "1", "--on-conflict", "refuse"]);
    assert_eq!((&e["code"], &e["list"]), (&"conflict".into(), &json!(["a.txt"])));
    let v = w.json_with(3, &["rewind", "1", "--on-conflict", "keep"]);
    let item = v["items"].as_array().unwrap().iter().find(|i| i["path"] == "a.txt").unwrap();
    assert_eq!((&item["action"], &item["reason"]), (&"conflict".into(), &"changed".into()));
    assert_eq!((w.read("a.txt").as_str(), w.exists("new.txt")), ("by hand\n", false));
    w.json(&["undo"]);
    w.json(&["rewind", "1", "--on-conflict", "overwrite"]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    w.json(&["undo"]);
    assert_eq!(w.read("a.txt"), "by hand\n");
}

#[test]
fn only_some_paths() {
    let w = worked();
    assert_eq!(actions(&w.json(&["rewind", "1", "--dry-run", "--", "sub"])), ["create sub/b.txt"]);
    assert_eq!(actions(&w.json(&["rewind", "1", "--dry-run", "--glob", "new.*"])), ["delete new.txt"]);
    let v =
        w.json(&["rewind", "1", "--no-delete", "--no-safety", "--outside", "--privileged", "--", "new.txt"]);
    assert_eq!((v["items"][0]["reason"].as_str(), w.exists("new.txt")), (Some("no-delete"), true));
    let v = w.json_with(3, &["rewind", "1", "--busy", "a.txt"]);
    assert_eq!(w.read("a.txt"), "3\n");
    assert!(v["items"].as_array().unwrap().iter().any(|i| i["reason"] == "busy"));
}

#[test]
fn two_sessions() {
    let (w, _) = World::recorded();
    let (a, b) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" });
    a.begin("k");
    b.begin("k");
    a.write("c1", "a.txt", "by a\n");
    b.write("c1", "bin", "by b\n");
    b.run(&["tool", "before", "--call", "c2", "--tool", "write", "run.sh"]);
    let e = w.fails(6, &["rewind", "1", "--session", "a"]);
    assert_eq!(e["code"], "busy");
    assert!(e["message"].as_str().unwrap().contains("\"b\""), "{e}");
    let v = w.json(&["rewind", "1", "--session", "a", "--force"]);
    assert_eq!(actions(&v), ["overwrite a.txt"]);
    assert_eq!((w.read("a.txt").as_str(), w.read("bin").as_str()), ("one\ntwo\nthree\n", "by b\n"));
    // Each walks its own operations.
    assert_eq!(w.fails(4, &["undo", "--session", "b"])["code"], "nothing-to-undo");
    assert_eq!(w.fails(6, &["undo", "--session", "a"])["code"], "busy");
    w.json(&["undo", "--session", "a", "--force"]);
    assert_eq!(w.read("a.txt"), "by a\n");
}

#[test]
fn what_no_tool_did_is_left_unless_it_is_asked_for() {
    let (w, _) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    s.begin("k");
    s.write("c1", "a.txt", "agent\n");
    w.write("bin", "typed meanwhile\n");
    s.end();
    let v = w.json_with(3, &["rewind", "1", "--dry-run"]);
    assert_eq!(actions(&v), ["overwrite a.txt", "skip bin"]);
    let v = w.json(&["rewind", "1", "--include-unattributed"]);
    assert_eq!(actions(&v), ["overwrite a.txt", "overwrite bin"]);
}

#[test]
fn turns_taken_back_are_kept_and_hidden() {
    let w = worked();
    let kinds = |args: &[&str]| -> Vec<String> {
        let v = w.json(&[&["list", "--session", "s"], args].concat());
        let list = v["checkpoints"].as_array().unwrap();
        list.iter().map(|c| format!("{} {}", c["kind"].as_str().unwrap(), c["turn"])).collect()
    };
    let all = kinds(&["--all"]).len();
    w.json(&["rewind", "3", "--", "a.txt"]);
    assert_eq!(kinds(&[]).len(), 7, "of one path only: the turns stand");
    w.json(&["undo"]);
    let v = w.json(&["rewind", "2"]);
    let left = kinds(&[]);
    assert!(left.iter().all(|k| !k.ends_with(" 2") && !k.ends_with(" 3")), "{left:?}");
    assert!(left.contains(&"turn 1".to_owned()), "{left:?}");
    assert_eq!(kinds(&["--all"]).len(), all + 3, "the safety rows");
    let rows = w.json(&["list", "--all"]);
    let marked = rows["checkpoints"].as_array().unwrap().iter().filter(|c| c["abandoned"] == true).count();
    assert_eq!(marked, 12, "{rows}");
    assert!(w.text(&["list", "--all"]).contains("taken back"));
    // Its operation says so.
    let ops = w.json(&["operations"]);
    assert_eq!(
        (&ops["operations"][0]["id"], &ops["operations"][0]["takes_back"]),
        (&v["operation"], &json!([2, 3]))
    );
    assert!(w.text(&["operations"]).contains("turns 2-3 taken back"));
    w.json(&["undo"]);
    assert!(kinds(&[]).contains(&"turn 3".to_owned()), "undone");
    // Numbers are not used again.
    w.json(&["redo"]);
    assert_eq!(Agent { w: &w, id: "s" }.begin("k4")["turn"], 4);
}

#[test]
fn a_pattern_or_path_that_means_nothing_is_named() {
    let w = worked();
    for command in ["rewind", "revert"] {
        assert_eq!(w.fails(4, &[command, "1", "--glob", "*.nothing"])["path"], "*.nothing");
        assert_eq!(w.fails(4, &[command, "1", "--", "nowhere"])["path"], "nowhere");
    }
    // What the session removed, and what it never touched.
    w.json(&["rewind", "1", "--dry-run", "--", "sub/b.txt", "bin"]);
}

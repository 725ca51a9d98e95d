//! `revert`, and merging, end to end.

use serde_json::{Value, json};

use crate::{sessions::Agent, support::World};

fn text(changed: &[(usize, &str)]) -> String {
    let line =
        |i: usize| changed.iter().find(|(at, _)| *at == i).map_or(format!("line {i}"), |c| c.1.to_owned());
    (1..=12).map(|i| line(i) + "\n").collect()
}

/// Three turns: the second changes lines 2 and 8, the third 5 and 8.
fn worked() -> World {
    let w = World::new();
    w.write("a.txt", text(&[]));
    w.save(&[]);
    let s = Agent { w: &w, id: "s" };
    for (key, lines) in [
        ("k1", &[(11, "one")][..]),
        ("k2", &[(11, "one"), (2, "two"), (8, "two")]),
        ("k3", &[(11, "one"), (2, "two"), (5, "three"), (8, "three")]),
    ] {
        s.turn(key, "a.txt", &text(lines));
    }
    w
}

fn item<'a>(v: &'a Value, path: &str) -> &'a Value {
    v["items"].as_array().unwrap().iter().find(|i| i["path"] == path).unwrap()
}

#[test]
fn one_turn_in_the_middle() {
    let w = worked();
    let before = w.tree();
    let plan = w.json_with(3, &["revert", "2", "--dry-run"]);
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::untouched(), "previewed");
    let v = w.json_with(3, &["revert", "2", "--plan", plan["plan"].as_str().unwrap()]);
    assert_eq!(w.read("a.txt"), text(&[(11, "one"), (5, "three"), (8, "three")]));
    assert_eq!(
        (&v["takes_back"], &v["partial"], &v["target"]),
        (&json!([2]), &true.into(), &"s/turn:2".into())
    );
    let i = item(&v, "a.txt");
    assert_eq!(
        (&i["action"], &i["reason"], &i["result"]),
        (&"overwrite".into(), &"merged".into(), &"done".into())
    );
    assert_eq!(
        i["conflicts"],
        json!([{
            "what": "lines",
            "present": {"line": 8, "lines": 1, "text": "three\n"},
            "base": {"line": 8, "lines": 1, "text": "two\n"},
            "wanted": {"line": 8, "lines": 1, "text": "line 8\n"},
        }])
    );
    let ops = w.json(&["operations"]);
    assert_eq!(
        (&ops["operations"][0]["kind"], &ops["operations"][0]["takes_back"]),
        (&"revert".into(), &json!([2]))
    );
    // The turn stays in the list: the conversation goes on after it.
    assert!(w.text(&["list"]).contains("do k2"));
    w.json(&["undo"]);
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), "undone");
    w.json(&["redo"]);
    assert_eq!(w.read("a.txt"), text(&[(11, "one"), (5, "three"), (8, "three")]));
    assert_eq!(w.fails(4, &["revert", "9"])["code"], "no-such-checkpoint");
    assert_eq!(w.fails(5, &["revert", "2", "--on-conflict", "refuse"])["list"], json!(["a.txt"]));
}

#[test]
fn people_see_both_sides() {
    let w = worked();
    let run = w.run(&["revert", "prompt:2"]);
    assert_eq!(run.code, Some(3), "{run}");
    let out = String::from_utf8(run.stdout).unwrap();
    assert!(out.starts_with("takes back turn 2\n1 overwritten\n"), "{out}");
    assert!(out.contains("  conflict in a.txt, line 8:\n    stays  | three\n    wanted | line 8\n"), "{out}");
    w.json(&["undo"]);
    w.json_with(3, &["revert", "2", "--markers"]);
    assert!(
        w.read("a.txt")
            .contains("<<<<<<< present\nthree\n||||||| base\ntwo\n=======\nline 8\n>>>>>>> wanted\n")
    );
}

#[test]
fn every_option_of_rewind() {
    let w = worked();
    w.json_with(
        3,
        &["revert", "2", "--dry-run", "--no-delete", "--no-safety", "--outside", "--privileged", "--yes"],
    );
    let v = w.json_with(
        3,
        &["revert", "2", "--busy", "a.txt", "--include-unattributed", "--force", "--", "a.txt"],
    );
    assert_eq!(item(&v, "a.txt")["reason"], "busy");
    assert_eq!(w.json(&["revert", "2", "--glob", "*.sh"])["items"], json!([]));
    w.json(&["revert", "2", "--on-conflict", "overwrite"]);
    assert_eq!(w.read("a.txt"), text(&[(11, "one"), (5, "three")]));
}

#[test]
fn a_rewind_and_an_undo_can_merge() {
    let w = worked();
    w.write("a.txt", text(&[(11, "one"), (2, "mine"), (5, "three"), (8, "three"), (12, "mine")]));
    let v = w.json_with(3, &["rewind", "1", "--on-conflict", "merge"]);
    assert_eq!(w.read("a.txt"), text(&[(2, "mine"), (12, "mine")]));
    assert_eq!(item(&v, "a.txt")["conflicts"][0]["present"]["text"], "mine\n");
    w.write("a.txt", text(&[(2, "mine"), (12, "mine"), (4, "since")]));
    w.json(&["undo", "--on-conflict", "merge"]);
    let all = [(11, "one"), (2, "mine"), (5, "three"), (8, "three"), (12, "mine"), (4, "since")];
    assert_eq!(w.read("a.txt"), text(&all));
}

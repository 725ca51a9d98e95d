//! `restore`, option by option.

use std::{fs, os::unix::fs::PermissionsExt};

use backstitch_testkit::{Compare, TreeModel};
use serde_json::Value;

use crate::support::World;

fn actions(v: &Value) -> Vec<String> {
    let mut all: Vec<String> = v["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| format!("{} {}", i["action"].as_str().unwrap(), i["path"].as_str().unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_dry_run_shows_what_a_real_run_does() {
    let (w, id) = World::changed();
    let before = w.tree();
    let dry = w.json(&["restore", &id, "--dry-run"]);
    before.assert_same(&w.tree(), &Compare::untouched(), "after a dry run");
    assert_eq!(
        (&dry["dry_run"], &dry["operation"], &dry["safety"]),
        (&true.into(), &Value::Null, &Value::Null)
    );
    assert!(dry["items"].as_array().unwrap().iter().all(|i| i["result"] == "pending"));
    let want = ["create sub/b.txt", "delete new.txt", "delete sub/c.txt", "mode run.sh", "overwrite a.txt"];
    assert_eq!(actions(&dry), want);
    let real = w.json(&["restore", &id, "--plan", dry["plan"].as_str().unwrap()]);
    assert_eq!(actions(&real), want);
    assert_eq!((&real["plan"], &real["target"]), (&dry["plan"], &id.as_str().into()));
    assert_eq!(
        (&real["dry_run"], &real["verified"], &real["partial"]),
        (&false.into(), &true.into(), &false.into())
    );
    assert!(real["operation"].is_string() && real["safety"].is_string());
    assert_eq!(real["counts"]["overwrite"], 1);
    assert_eq!(real["counts"].as_object().unwrap().len(), 9);
    assert!(real["items"].as_array().unwrap().iter().all(|i| i["result"] == "done"));
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    // Nothing left to do: no operation.
    let again = w.json(&["restore", &id]);
    assert_eq!((&again["operation"], again["items"].as_array().unwrap().len()), (&Value::Null, 0));
}

#[test]
fn only_what_is_named() {
    let (w, id) = World::changed();
    assert_eq!(actions(&w.json(&["restore", &id, "--dry-run", "--", "a.txt"])), ["overwrite a.txt"]);
    assert_eq!(
        actions(&w.json(&["restore", &id, "--dry-run", "--", "sub"])),
        ["create sub/b.txt", "delete sub/c.txt"]
    );
    assert_eq!(actions(&w.json(&["restore", &id, "--dry-run", "--glob", "*.sh"])), ["mode run.sh"]);
    let both = w.json(&["restore", &id, "--dry-run", "--glob", "*.sh", "--glob", "new.*"]);
    assert_eq!(actions(&both), ["delete new.txt", "mode run.sh"]);
    let mixed = w.json(&["restore", &id, "--dry-run", "--glob", "*.sh", "--", "a.txt"]);
    assert_eq!(actions(&mixed), ["mode run.sh", "overwrite a.txt"]);
    assert_eq!(w.json(&["restore", &id, "--dry-run", "--", "."])["items"].as_array().unwrap().len(), 5);
}

#[test]
fn no_delete() {
    let (w, id) = World::changed();
    let v = w.json(&["restore", &id, "--no-delete"]);
    assert!(w.exists("new.txt") && w.exists("sub/c.txt") && w.exists("sub/b.txt"));
    let kept: Vec<_> = v["items"].as_array().unwrap().iter().filter(|i| i["action"] == "keep").collect();
    assert!(kept.iter().all(|i| i["reason"] == "no-delete") && kept.len() == 2, "{v}");
}

#[test]
fn no_safety_keeps_what_no_row_holds() {
    let (w, id) = World::changed();
    let v = w.json_with(3, &["restore", &id, "--no-safety"]);
    assert_eq!(v["safety"], Value::Null);
    assert_eq!(w.read("a.txt"), "one\nTWO\nthree\n");
    assert_eq!(w.read("sub/b.txt"), "b\n");
    w.save(&[]);
    let v = w.json(&["restore", &id, "--no-safety"]);
    assert_eq!((&v["safety"], w.read("a.txt").as_str()), (&Value::Null, "one\ntwo\nthree\n"));
    assert!(w.json(&["list", "--kind", "safety"])["checkpoints"].as_array().unwrap().is_empty());
}

#[test]
fn busy_files_are_left_alone() {
    let (w, id) = World::changed();
    let v = w.json_with(3, &["restore", &id, "--busy", "a.txt", "--busy", "sub/"]);
    assert_eq!(w.read("a.txt"), "one\nTWO\nthree\n");
    assert!(w.exists("sub/c.txt") && !w.exists("new.txt"));
    let busy = v["items"].as_array().unwrap().iter().filter(|i| i["reason"] == "busy").count();
    assert_eq!(busy, 3, "{v}");
    let v = w.json_with(3, &["restore", &id, "--busy", "."]);
    assert!(v["items"].as_array().unwrap().iter().all(|i| i["action"] == "keep"), "{v}");
}

#[test]
fn force_restores_an_implausibly_empty_row() {
    let w = World::new();
    w.save(&[]);
    for name in ["a.txt", "bin", "run.sh", "sub/b.txt"] {
        fs::remove_file(w.path(name)).unwrap();
    }
    let empty = w.save(&[]);
    w.write("a.txt", "back\n");
    assert_eq!(w.fails(5, &["restore", &empty])["code"], "not-restorable");
    w.json(&["restore", &empty, "--force"]);
    assert!(!w.exists("a.txt"));
    w.json(&["undo"]);
    assert_eq!(w.read("a.txt"), "back\n");
}

#[test]
fn setuid_comes_back_only_when_asked_for() {
    let (w, _) = World::recorded();
    w.chmod("run.sh", 0o4755);
    let id = w.save(&[]);
    fs::remove_file(w.path("run.sh")).unwrap();
    let v = w.json_with(3, &["restore", &id]);
    assert_eq!(v["items"][0]["reason"], "setid-dropped");
    let mode = || w.path("run.sh").metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o755);
    // Where nothing else differs, nothing is changed, and it is said.
    let v = w.json_with(3, &["restore", &id]);
    assert_eq!(
        (&v["items"][0]["action"], &v["items"][0]["reason"]),
        (&"keep".into(), &"setid-dropped".into())
    );
    assert_eq!(v["operation"], serde_json::Value::Null, "{v}");
    fs::remove_file(w.path("run.sh")).unwrap();
    w.json(&["restore", &id, "--privileged"]);
    assert_eq!(mode(), 0o4755);
}

#[test]
fn yes_and_outside_are_understood_without_a_terminal() {
    let (w, id) = World::changed();
    w.json(&["restore", &id, "--yes", "--outside"]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_hostile_tree_comes_back_through_the_program() {
    let w = World::new();
    fs::create_dir(w.path("hostile")).unwrap();
    let shape = backstitch_testkit::generate::Shape { entries: 60, ..Default::default() };
    backstitch_testkit::generate::tree(11, &shape).write(&w.path("hostile")).unwrap();
    let run = w.cli.json(&w.ws, ["checkpoint"]).unwrap();
    assert!(matches!(run.code, Some(0 | 3)), "{run}");
    let id = run.value().unwrap()["checkpoint"]["id"].as_str().unwrap().to_owned();
    let then = TreeModel::read(&w.ws).unwrap();
    backstitch_testkit::generate::edits(12, 40).apply(&w.ws).unwrap();
    let edited = TreeModel::read(&w.ws).unwrap();
    let run = w.cli.json(&w.ws, ["restore", &id]).unwrap();
    assert!(matches!(run.code, Some(0 | 3)), "{run}");
    if run.code == Some(0) {
        then.assert_same(&TreeModel::read(&w.ws).unwrap(), &Compare::default(), "after restore");
    }
    let run = w.cli.json(&w.ws, ["undo"]).unwrap();
    if run.code == Some(0) {
        edited.assert_same(&TreeModel::read(&w.ws).unwrap(), &Compare::default(), "after undo");
    }
}

#[test]
fn hunks_by_their_ids() {
    let (w, id) = World::recorded();
    let after = "ONE\ntwo\nthree\n1\n2\n3\n4\nFOUR\n";
    w.write("a.txt", after);
    w.write("new.txt", "new\n");
    let v = w.json(&["restore", &id, "--hunks", "--dry-run"]);
    let a = &v["items"][0];
    assert_eq!((&a["path"], &a["hunks"][0]["what"]), (&"a.txt".into(), &"lines".into()));
    assert_eq!(a["hunks"][0]["present"], serde_json::json!({"line": 1, "lines": 1, "text": "ONE\n"}));
    assert_eq!(v["items"][1]["hunks"][0]["what"], "whole");
    let ids: Vec<&str> = a["hunks"].as_array().unwrap().iter().map(|h| h["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    let text = w.text(&["restore", &id, "--hunks", "--dry-run"]);
    assert!(
        text.contains(&format!("  hunk {} of a.txt\n  @@ -1,1 +1,1 @@\n  -ONE\n  +one\n", ids[0])),
        "{text}"
    );
    let v = w.json(&["restore", &id, "--hunk", ids[0]]);
    assert_eq!(w.read("a.txt"), after.replace("ONE", "one"));
    assert!(w.exists("new.txt"));
    assert_eq!((&v["partial"], &v["items"][1]["reason"]), (&false.into(), &"not-chosen".into()));
    w.json(&["undo"]);
    assert_eq!(w.read("a.txt"), after);
    assert_eq!(
        w.fails(5, &["restore", &id, "--hunk", &format!("{},0123", ids[0])])["list"],
        serde_json::json!(["0123"])
    );
    w.json(&["restore", &id, "--hunk", &ids.join(",")]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_pattern_or_path_that_means_nothing_is_named() {
    let (w, id) = World::recorded();
    for args in [
        &["restore", &id, "--glob", "*.nothing"][..],
        &["diff", "--", "nowhere"],
        &["diff", &id, &id, "--", "sub", "nowhere"],
    ] {
        let e = w.fails(4, args);
        assert_eq!(e["code"], "no-such-path", "{args:?}");
        assert!(
            e["message"].as_str().unwrap().contains(if args[0] == "diff" { "nowhere" } else { "*.nothing" }),
            "{e}"
        );
    }
    // What only one side holds, or nothing changed in, is there.
    w.write("new.txt", "x");
    w.json(&["diff", "--", "new.txt", "a.txt", "sub"]);
    w.json(&["restore", &id, "--glob", "new.*", "--dry-run"]);
    w.json(&["restore", &id, "--glob", "*.sh", "--dry-run"]);
}

fn floor(w: &mut World, size: &str) {
    w.cli.env("BACKSTITCH_FREE_FLOOR", size);
}

#[test]
fn s4_14_below_the_floor_a_restore_moves_what_it_replaces_into_the_store() {
    let (mut w, id) = World::changed();
    let before = w.tree();
    floor(&mut w, "8000000TB");
    assert_eq!(w.fails(5, &["checkpoint"])["code"], "over-budget");
    let o = w.json(&["restore", &id]);
    assert_eq!((&o["partial"], &o["verified"]), (&false.into(), &true.into()), "{o}");
    let parked = w.cli.only_store().unwrap().join("parked");
    let count = || fs::read_dir(&parked).unwrap().count();
    // The new content of `a.txt`, and the file that came; what was renamed and what got other bits is in the row.
    assert_eq!((count(), w.read("a.txt").as_str()), (2, "one\ntwo\nthree\n"));
    let safety = o["safety"].as_str().unwrap();
    assert_eq!(w.text(&["cat", &format!("{safety}:new.txt")]), "new\n");
    assert!(w.text(&["diff", &id, safety]).contains("a.txt"));
    assert!(w.json(&["verify"])["ok"].as_bool().unwrap());
    assert_eq!(w.json_with(3, &["gc"])["left"].as_array().unwrap().len(), 2);
    w.json(&["undo"]);
    before.assert_same(&w.tree(), &Compare::default(), "undone");
    floor(&mut w, "0");
    w.json(&["gc"]);
    assert_eq!(count(), 0);
    assert_eq!(w.text(&["cat", &format!("{safety}:new.txt")]), "new\n");
}

#[test]
fn s4_14_what_can_neither_be_copied_nor_moved_is_kept_and_told() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    };
    use std::os::unix::fs::MetadataExt;
    let mut w = World::new();
    if fs::metadata(shm.path()).unwrap().dev() == fs::metadata(&w.ws).unwrap().dev() {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    }
    w.cli.env("BACKSTITCH_STORE_DIR", shm.path());
    let id = w.save(&[]);
    w.write("a.txt", "not in the store\n");
    floor(&mut w, "8000000TB");
    let o = w.json_with(3, &["restore", &id]);
    assert_eq!((&o["items"][0]["action"], &o["items"][0]["reason"]), (&"keep".into(), &"no-room".into()));
    assert!(o["warnings"][0].as_str().unwrap().contains("free_floor"), "{o}");
    assert_eq!(w.read("a.txt"), "not in the store\n");
    floor(&mut w, "0");
    assert_eq!(w.json(&["restore", &id])["partial"], false);
}

#[test]
fn s4_14_where_files_cannot_be_exchanged_what_is_replaced_is_moved_all_the_same() {
    backstitch_testkit::require!(backstitch_testkit::privilege::has_program("strace"), "needs strace");
    let (mut w, id) = World::changed();
    let before = w.tree();
    floor(&mut w, "8000000TB");
    let parked = w.cli.only_store().unwrap().join("parked");
    let without = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL", "--"];
    w.cli.wrap(without);
    let o = w.json(&["restore", &id]);
    assert_eq!((&o["partial"], &o["verified"]), (&false.into(), &true.into()), "{o}");
    assert_eq!((fs::read_dir(&parked).unwrap().count(), w.read("a.txt").as_str()), (2, "one\ntwo\nthree\n"));
    w.json(&["undo"]);
    before.assert_same(&w.tree(), &Compare::default(), "undone");
    // At each call that renames, links or unlinks: the next command finds the old or the new state.
    w.cli.wrap([""; 0]);
    w.json(&["redo"]);
    let after = w.tree();
    for call in ["renameat", "linkat", "fchmod"] {
        for n in 1..=4 {
            w.json(&["undo"]);
            let kill = format!("inject={call}:signal=KILL:when={n}");
            let no_exchange = "inject=renameat2:error=EINVAL";
            w.cli.wrap(["strace", "-f", "-qq", "-o", "/dev/null", "-e", &kill, "-e", no_exchange, "--"]);
            let run = w.cli.json(&w.ws, ["redo"]).unwrap();
            w.cli.wrap([""; 0]);
            w.json(&["status"]);
            let (old, new) =
                (before.same(&w.tree(), &Compare::default()), after.same(&w.tree(), &Compare::default()));
            assert!(old || new, "{call} {n}: {run}");
            assert!(w.json(&["verify"])["ok"].as_bool().unwrap(), "{call} {n}");
            if run.code == Some(0) {
                break;
            }
            if old {
                w.json(&["redo"]);
            }
            after.assert_same(&w.tree(), &Compare::default(), "redone");
        }
        if before.same(&w.tree(), &Compare::default()) {
            w.json(&["redo"]);
        }
    }
}

#[test]
fn many_files_come_back_with_few_descriptors() {
    let mut w = World::new();
    let name = |i: usize| format!("many/{}/f{i}", i % 3);
    for i in 0..300 {
        w.write(&name(i), format!("{i}"));
    }
    let id = w.save(&[]);
    for i in 0..300 {
        w.write(&name(i), "changed");
    }
    w.cli.wrap(["sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\""]);
    let v = w.json(&["restore", &id]);
    assert_eq!(v["counts"]["overwrite"], 300, "{v}");
    w.cli.wrap([] as [&str; 0]);
    assert!((0..300).all(|i| w.read(&name(i)) == format!("{i}")));
}

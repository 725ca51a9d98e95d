//! Which folder is meant.

use std::{fs, os::unix::fs::symlink};

use crate::support::World;

#[test]
fn root_sub_folder_and_symlinked_spelling_are_one_store() {
    let (w, _) = World::recorded();
    let store = w.json(&["status"])["store"].clone();
    symlink(&w.ws, w.top.join("link")).unwrap();
    symlink(w.ws.join("sub"), w.top.join("inner")).unwrap();
    for dir in ["project", "project/sub", "project/./sub/..", "link", "link/sub", "inner", "project/sub/gone"]
    {
        let v = w.cli.json(&w.top.join(dir), ["status"]).unwrap().ok().unwrap();
        assert_eq!((&v["store"], v["workspace"].as_str()), (&store, w.ws.to_str()), "{dir}");
    }
    assert_eq!(w.cli.only_store().unwrap().to_str(), store.as_str());
}

#[test]
fn without_an_option_the_current_folder_decides() {
    let (w, _) = World::recorded();
    symlink(&w.ws, w.top.join("link")).unwrap();
    for dir in ["project", "project/sub", "link/sub"] {
        let v = w.json_in(&w.top.join(dir), &["status"]);
        assert_eq!(v["workspace"].as_str(), w.ws.to_str(), "{dir}");
    }
    // Nothing known and no repository: the folder itself.
    let other = w.top.join("other/deep");
    fs::create_dir_all(&other).unwrap();
    assert_eq!(w.json_in(&other, &["status"])["workspace"].as_str(), other.to_str());
    // A repository's top.
    fs::create_dir(w.top.join("other/.git")).unwrap();
    assert_eq!(w.json_in(&other, &["status"])["workspace"].as_str(), w.top.join("other").to_str());
}

#[test]
fn the_option_stands_anywhere_and_has_a_long_form() {
    let (w, id) = World::recorded();
    let dir = w.ws.to_str().unwrap();
    for args in
        [["-C", dir, "list", "--json"], ["list", "--json", "--workspace", dir], ["--json", "list", "-C", dir]]
    {
        let v = w.run_in(&w.top, &args).ok().unwrap();
        assert_eq!(v["checkpoints"][0]["id"], id.as_str(), "{args:?}");
    }
}

#[test]
fn the_base_of_all_stores_can_be_named() {
    let w = World::new();
    let other = w.top.join("elsewhere");
    let v = w.json(&["--store-dir", other.to_str().unwrap(), "checkpoint"]);
    assert!(v["checkpoint"]["id"].is_string());
    assert!(!w.cli.store_dir().exists() && other.join("stores").is_dir());
    // Relative to the current folder.
    let v =
        w.run_in(&w.top, &["-C", "project", "--store-dir", "elsewhere", "--json", "status"]).ok().unwrap();
    assert!(v["store"].as_str().unwrap().starts_with(other.to_str().unwrap()), "{v}");
    assert_eq!(v["checkpoints"], 1);
}

#[test]
fn the_folder_is_not_touched_by_recording() {
    let (w, _) = World::recorded();
    let before = w.tree();
    w.save(&[]);
    w.run(&["list"]);
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::untouched(), "the folder");
}

/// The program alone does all the work: there is no other one to be found.
#[test]
fn s0_13_no_other_program_is_run() {
    let (mut w, _) = World::changed();
    fs::create_dir(w.top.join("empty")).unwrap();
    w.cli.env("PATH", w.top.join("empty"));
    w.cli.env("GIT_EXEC_PATH", w.top.join("empty"));
    let before = w.tree();
    let id = w.save(&["-m", "$(touch owned); `touch owned`"]);
    w.json(&["diff", "@~1", "@", "--patch"]);
    w.json(&["restore", "@~1"]);
    w.json(&["undo"]);
    w.json(&["verify"]);
    w.json(&["doctor", "--drill"]);
    w.json(&["export", &id, "--bundle", w.top.join("b").to_str().unwrap()]);
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), "there and back");
    assert!(!w.exists("owned"));
}

#[test]
fn r77_the_status_of_a_moved_folder_names_its_checkpoints() {
    let (w, _) = World::recorded();
    let moved = w.top.join("moved");
    std::fs::rename(&w.ws, &moved).unwrap();
    let run = w.run_in(&moved, &["status"]);
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &run.stderr;
    assert_eq!(run.code, Some(0), "{run}");
    assert!(said.contains("backstitch relink") && !said.contains("backstitch checkpoint"), "{said}");
}

//! `stores`, `relink`.

use std::fs;

use crate::support::World;

fn name(w: &World) -> String {
    w.cli.only_store().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn list_and_delete() {
    let (w, _) = World::recorded();
    let own = name(&w);
    let other = w.top.join("other");
    fs::create_dir(&other).unwrap();
    w.cli.json(&other, ["checkpoint"]).unwrap().ok().unwrap();
    let v = w.json(&["stores", "list"]);
    let list = v["stores"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    let mine = list.iter().find(|s| s["workspace"].as_str() == w.ws.to_str()).unwrap();
    assert_eq!((&mine["checkpoints"], &mine["exists"], &mine["ok"]), (&1.into(), &true.into(), &true.into()));
    assert!(w.text(&["stores", "list"]).contains(&own));
    // The present one only by `purge`; all names are checked first.
    let theirs = list.iter().find(|s| s["workspace"].as_str() == other.to_str()).unwrap();
    let theirs = theirs["name"].as_str().unwrap();
    assert_eq!(w.fails(5, &["stores", "delete", theirs, &own])["code"], "conflict");
    assert_eq!(w.fails(4, &["stores", "delete", theirs, "nothing"])["code"], "no-such-store");
    let v = w.json(&["stores", "delete", theirs]);
    assert!(v["bytes"].as_u64().unwrap() > 0);
    assert_eq!(w.json(&["stores", "list"])["stores"].as_array().unwrap().len(), 1);
    w.json(&["stores", "purge", &own]);
    assert_eq!(w.json(&["stores", "list"])["stores"].as_array().unwrap().len(), 0);
    assert_eq!(w.fails(4, &["list"])["code"], "no-such-store");
}

#[test]
fn a_damaged_store_can_only_be_purged() {
    let (w, _) = World::recorded();
    let own = name(&w);
    let store = w.cli.only_store().unwrap();
    // A manifest alone can be written again from the folder that it is of.
    fs::write(store.join("manifest.json"), "{").unwrap();
    let run = w.cli.json(&w.top, ["stores", "list"]).unwrap();
    assert_eq!(run.ok().unwrap()["stores"][0]["ok"], false);
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 1);
    // Without the repository there is nothing to go on from, and that is never passed off as an empty store.
    fs::write(store.join("manifest.json"), "{").unwrap();
    fs::remove_dir_all(store.join("git")).unwrap();
    assert_eq!(w.fails(7, &["list"])["code"], "store-damaged");
    let run = w.cli.json(&w.top, ["stores", "delete", &own]).unwrap();
    assert_eq!(run.code, Some(7), "{run}");
    w.cli.json(&w.ws, ["stores", "purge", &own]).unwrap().ok().unwrap();
}

#[test]
fn a_moved_folder_gets_its_store_back() {
    let (mut w, id) = World::recorded();
    let moved = w.top.join("moved");
    let old = w.ws.clone();
    fs::rename(&w.ws, &moved).unwrap();
    w.ws = moved;
    let e = w.fails(5, &["list"]);
    assert_eq!((e["code"].as_str(), e["path"].as_str()), (Some("wrong-workspace"), w.ws.to_str()));
    assert!(e["hint"].as_str().unwrap().contains("relink"));
    assert_eq!(w.fails(4, &["relink", w.top.join("never").to_str().unwrap()])["code"], "no-such-store");
    let v = w.json(&["relink", old.to_str().unwrap()]);
    assert_eq!((v["workspace"].as_str(), &v["checkpoints"]), (w.ws.to_str(), &1.into()));
    w.write("a.txt", "x\n");
    w.json(&["restore", &id]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_copy_is_no_move() {
    let (mut w, _) = World::recorded();
    let old = w.ws.clone();
    w.ws = w.top.join("copy");
    fs::create_dir(&w.ws).unwrap();
    let e = w.fails(5, &["relink", old.to_str().unwrap()]);
    assert_eq!((e["code"].as_str(), e["path"].as_str()), (Some("wrong-workspace"), old.to_str()));
}

/// A host may start its hooks with next to no environment.
#[test]
fn without_home_the_store_is_where_the_system_says_that_the_user_lives() {
    let w = World::new();
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let Some(home) = users.lines().map(fields).find(|f| f.get(2) == Some(&uid)).map(|f| f[5].clone()) else {
        return;
    };
    let mut c = std::process::Command::new(w.cli.binary());
    c.env_clear().args(["status", "--json"]).current_dir(&w.ws);
    let out = c.output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let store = said["store"].as_str().unwrap();
    assert!(store.starts_with(&format!("{home}/")), "{store} is not below {home}");
}

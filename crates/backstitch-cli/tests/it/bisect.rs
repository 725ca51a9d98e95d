//! `bisect`, end to end: which turn broke it.

use serde_json::{Value, json};

use crate::{sessions::Agent, support::World};

/// Eight turns, of which the fifth breaks it; a person broke something else between the second and the third.
fn worked() -> World {
    let (mut w, _) = World::recorded();
    std::fs::create_dir(w.top.join("tmp")).unwrap();
    w.cli.env("TMPDIR", w.top.join("tmp"));
    let s = Agent { w: &w, id: "s" };
    for n in 1..=8 {
        s.begin(&format!("k{n}"));
        s.write(&format!("c{n}"), "a.txt", &format!("{n}\n"));
        if n == 5 {
            s.write("bad", "new.txt", "broken\n");
        }
        s.end();
        if n == 2 {
            w.write("mine.txt", "slow\n");
        }
    }
    w
}

fn sh(line: &str) -> [&str; 6] {
    ["bisect", "s", "--", "sh", "-c", line]
}

fn nothing_is_left(w: &World) {
    assert_eq!(std::fs::read_dir(w.top.join("tmp")).unwrap().count(), 0);
}

#[test]
fn the_turn_is_found_and_nothing_is_touched() {
    let w = worked();
    let (before, rows) = (w.tree(), w.json(&["list", "--all"]));
    let v = w.json(&sh("echo looking; test ! -e new.txt"));
    assert_eq!((&v["result"], &v["turn"]), (&json!("found"), &json!(5)));
    assert_eq!(v["suspects"].as_array().unwrap().len(), 1);
    let steps = v["steps"].as_array().unwrap();
    assert!(steps.len() <= 6, "{} looks at 10 states", steps.len());
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), "the workspace");
    assert_eq!(w.json(&["list", "--all"]), rows, "no row was made");
    nothing_is_left(&w);
}

#[test]
fn what_happened_between_turns_is_no_turns() {
    let w = worked();
    let v = w.json(&sh("! grep -q slow mine.txt"));
    assert_eq!((&v["result"], &v["turn"]), (&json!("found"), &Value::Null));
    assert_eq!((&v["suspects"][0]["kind"], &v["suspects"][0]["turn"]), (&json!("prompt"), &json!(3)));
}

#[test]
fn what_cannot_be_told_is_left_open() {
    let w = worked();
    // After the third and the fourth turn it does not even build.
    let v = w.json_with(3, &sh("grep -q '[34]' a.txt && exit 125; test ! -e new.txt"));
    assert_eq!((&v["result"], &v["turn"]), (&json!("found"), &Value::Null));
    let turns: Vec<&Value> = v["suspects"].as_array().unwrap().iter().map(|s| &s["turn"]).collect();
    assert!(turns.contains(&&json!(5)), "{v}");
    assert!(v["steps"].as_array().unwrap().iter().any(|s| s["verdict"] == "skip"));
}

#[test]
fn where_no_turn_broke_it_the_end_is_4() {
    let w = worked();
    assert_eq!(w.json_with(4, &sh("true"))["result"], "not-broken");
    assert_eq!(w.json_with(4, &sh("false"))["result"], "broken-before");
    assert_eq!(w.json_with(3, &sh("exit 125"))["result"], "untold");
}

#[test]
fn a_command_that_is_none_stops_it() {
    let w = worked();
    let error = |args: &[&str], code: i32| {
        let run = w.cli.json(&w.ws, args).unwrap();
        assert_eq!(run.code, Some(code), "{args:?}");
        serde_json::from_str::<Value>(&run.stderr).unwrap()["error"].clone()
    };
    assert_eq!(error(&["bisect", "s", "--", "no-such-program-here"], 2)["code"], "usage");
    // What the command prints stands on the same standard error.
    assert_eq!(w.cli.json(&w.ws, sh("exit 127")).unwrap().code, Some(1));
    assert_eq!(w.cli.json(&w.ws, sh("kill -9 $$")).unwrap().code, Some(1));
    assert_eq!(error(&["bisect", "nobody", "--", "true"], 4)["code"], "no-such-session");
    w.json(&["checkpoint", "--session", "bare"]);
    assert_eq!(error(&["bisect", "bare", "--", "true"], 4)["code"], "no-such-checkpoint");
    nothing_is_left(&w);
}

/// Read-only directories are removed too, and a fork's line begins with its parent's turns.
#[test]
fn a_forks_line_with_read_only_folders() {
    let w = worked();
    w.json(&["session", "fork", "f", "--from", "s/turn:6"]);
    let f = Agent { w: &w, id: "f" };
    f.begin("f1");
    f.run(&["tool", "before", "--call", "sh", "--tool", "bash"]);
    std::fs::create_dir(w.path("locked")).unwrap();
    w.write("locked/x", "x");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(w.path("locked"), std::fs::Permissions::from_mode(0o555)).unwrap();
    f.run(&["tool", "after", "--call", "sh"]);
    f.end();
    let v = w.json(&["bisect", "f", "--", "sh", "-c", "test ! -e new.txt"]);
    assert_eq!(v["turn"], 5);
    let v = w.json(&["bisect", "f", "--", "sh", "-c", "test ! -e locked"]);
    assert_eq!(v["suspects"][0]["kind"], "turn", "{v}");
    nothing_is_left(&w);
}

#[test]
fn a_command_that_wrecks_its_folder_wrecks_nothing_else() {
    let w = worked();
    let (before, rows) = (w.tree(), w.json(&["list", "--all"]));
    for wreck in [
        "rm -rf ./* ./.??*",
        "chmod -R 000 .",
        "mkdir -p x/y && chmod 500 x/y x",
        "ln -s / root; mkfifo pipe; echo > a.txt; mv a.txt b.txt",
        "cd .. && mv \"$OLDPWD\" gone && mkdir \"$OLDPWD\" && rm -rf gone",
    ] {
        let v = w.json(&sh(&format!("test ! -e new.txt; bad=$?; {wreck}; exit $bad")));
        assert_eq!((&v["result"], &v["turn"]), (&json!("found"), &json!(5)), "{wreck}");
        before.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), wreck);
        nothing_is_left(&w);
    }
    // It may even end whoever runs it.
    let run = w.run(&sh("kill -9 $PPID"));
    assert_eq!(run.code, None, "{run}");
    before.assert_same(&w.tree(), &backstitch_testkit::Compare::default(), "killed");
    assert_eq!(w.json(&["list", "--all"]), rows);
    assert_eq!(w.json(&["verify"])["ok"], true);
}

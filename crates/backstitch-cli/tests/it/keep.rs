//! `prune`, `forget`, `session purge`, guards of `stores`, trust, and a store that is gone.

use std::fs;

use backstitch_testkit::Cli;

use crate::support::World;

fn cli(w: &World, set: &[(&str, &str)]) -> Cli {
    let mut cli = Cli::with_home(env!("CARGO_BIN_EXE_backstitch"), w.cli.home()).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir());
    for (k, v) in set {
        cli.env(k, v);
    }
    cli
}

fn ids(v: &serde_json::Value) -> Vec<String> {
    v.as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap_or_default().to_owned()).collect()
}

fn listed(w: &World) -> Vec<String> {
    ids(&w.json(&["list", "--all"])["checkpoints"])
}

#[test]
fn prune_tells_moves_and_is_undone() {
    let w = World::new();
    let mut all = Vec::new();
    for n in 0..6 {
        w.write("a.txt", format!("{n}\n"));
        all.push(w.save(&["--kind", "turn", "--session", "s"]));
    }
    let few = cli(&w, &[("BACKSTITCH_RETENTION_ROWS", "2")]);
    let told = few.json(&w.ws, ["prune", "--dry-run"]).unwrap().ok().unwrap();
    assert_eq!(ids(&told["candidates"]), all[1..4], "the first of a session stays");
    assert_eq!((&told["operation"], &told["deleted"]), (&serde_json::Value::Null, &serde_json::json!([])));
    assert_eq!(listed(&w).len(), 6);
    let done = few.json(&w.ws, ["prune"]).unwrap().ok().unwrap();
    assert_eq!(done["deleted"], serde_json::json!(all[1..4]));
    assert_eq!((&done["candidates"], &done["bytes"]), (&told["candidates"], &told["bytes"]));
    assert_eq!(listed(&w).len(), 3);
    w.json(&["undo"]);
    assert_eq!(listed(&w).len(), 6);
    let run = few.run(&w.ws, ["prune"]).unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("3 checkpoints went to the trash") && run.stderr.contains("undo"), "{run}");
    assert!(w.text(&["prune"]).contains("the policy lets nothing go"));
    assert_eq!(w.fails_in(&cli(&w, &[("CLAUDECODE", "1")]), 5, &["prune"])["code"], "agent-context");
}

#[test]
fn retention_settings_keep_their_defaults_where_they_make_no_sense() {
    let w = World::new();
    let v = cli(&w, &[("BACKSTITCH_RETENTION_DAYS", "0")]).json(&w.ws, ["config", "get", "retention.days"]);
    let v = v.unwrap().ok().unwrap();
    assert_eq!((&v["value"], &v["source"]), (&30.into(), &"default".into()));
    assert!(v["warnings"][0].as_str().unwrap().contains("at least 1"), "{v}");
    assert_eq!(w.fails(2, &["config", "set", "retention.rows", "-3"])["code"], "bad-setting");
}

#[test]
fn forget_says_first_that_it_is_for_good() {
    let (w, id) = World::recorded();
    let told = w.json(&["forget", "--dry-run", "a.txt"]);
    assert_eq!((&told["dry_run"], &told["checkpoints"]), (&true.into(), &serde_json::json!([id])));
    let run = w.run(&["forget", "a.txt"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(
        run.stderr.starts_with("warning: This removes") && run.stderr.contains("cannot be undone"),
        "{run}"
    );
    assert!(run.stderr.contains("a.txt is still in the folder"), "{run}");
    assert_eq!(w.fails(4, &["cat", "@:a.txt"])["code"], "no-such-path");
    assert_eq!(w.fails(4, &["forget", "a.txt"])["code"], "no-such-path");
    assert_eq!(w.text(&["cat", "@:sub/b.txt"]), "b\n");
    assert_eq!(w.fails(4, &["undo"])["code"], "nothing-to-undo");
    // From below, relative; what cannot be reached has its own exit code.
    w.write("sub/same", "b\n and more than eight bytes");
    w.write("other", "b\n and more than eight bytes");
    w.save(&[]);
    let run = w.run_in(&w.path("sub"), &["--json", "forget", "same"]);
    assert_eq!(run.code, Some(3), "{run}");
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("other-path") && text.contains("\"other\""), "{text}");
}

#[test]
fn s4_32_a_purged_session_is_gone_for_good() {
    let w = World::new();
    let keep = w.save(&["--session", "keep"]);
    w.write("a.txt", "x\n");
    let one = w.save(&["--session", "s"]);
    let two = w.save(&["--session", "s"]);
    w.json(&["restore", &keep, "--session", "s"]);
    w.json(&["delete", &two]);
    let run = w.run(&["session", "purge", "s"]);
    assert!(run.code == Some(0) && run.stderr.starts_with("warning: This removes"), "{run}");
    assert_eq!(listed(&w), [keep.as_str()]);
    let left = w.json(&["operations"])["operations"].to_string();
    assert!(!left.contains(&one) && !left.contains("\"s\""), "{left}");
    let run = w.cli.json(&w.ws, ["undo"]).unwrap();
    assert_ne!(run.code, Some(0), "the row in the trash is gone too: {run}");
    assert_eq!(w.fails(4, &["session", "purge", "s"])["code"], "no-such-session");
    // An orphan: all of its rows are in the trash.
    let o = w.save(&["--session", "orphan"]);
    w.json(&["delete", &o]);
    assert_eq!(w.fails(4, &["session", "delete", "orphan"])["code"], "no-such-session");
    assert_eq!(w.json(&["session", "purge", "orphan"])["trash"], serde_json::json!([o]));
}

#[test]
fn s4_30_a_session_in_use_is_not_removed() {
    let w = World::new();
    w.json(&["turn", "begin", "--session", "s"]);
    let before = listed(&w);
    for command in ["delete", "purge"] {
        assert_eq!(w.fails(6, &["session", command, "s"])["code"], "busy", "{command}");
        let inside = cli(&w, &[("BACKSTITCH_SESSION", "s")]);
        let e = w.fails_in(&inside, 5, &["session", command, "s", "--force", "--as-person"]);
        assert_eq!(e["code"], "conflict", "{command}");
    }
    w.json(&["turn", "end", "--session", "s"]);
    w.json(&["pin", "s/@"]);
    w.json(&["session", "fork", "f", "--from", "s/prompt:1"]);
    for command in ["delete", "purge"] {
        assert!(w.fails(5, &["session", command, "s"])["list"].to_string().contains("f"), "forks: {command}");
    }
    w.json(&["session", "end", "f"]);
    w.json(&["session", "purge", "f"]);
    for command in ["delete", "purge"] {
        assert!(
            w.fails(5, &["session", command, "s"])["message"].to_string().contains("pinned"),
            "{command}"
        );
    }
    assert_eq!(listed(&w).len(), before.len() + 1);
    w.json(&["session", "purge", "s", "--force"]);
    assert!(listed(&w).is_empty());
}

#[test]
fn d40_stores_are_removed_by_plain_name_and_never_in_use() {
    let (w, _) = World::recorded();
    let other = w.top.join("other");
    fs::create_dir(&other).unwrap();
    w.cli.json(&other, ["turn", "begin", "--session", "s"]).unwrap().ok().unwrap();
    let all = w.json(&["stores", "list"]);
    let theirs = all["stores"].as_array().unwrap().iter().find(|s| s["workspace"].as_str() == other.to_str());
    let theirs = theirs.unwrap()["name"].as_str().unwrap().to_owned();
    for command in ["delete", "purge"] {
        for name in ["../x", "a/b", ".", "..", ""] {
            assert_eq!(w.fails(5, &["stores", command, name])["code"], "unsafe-path", "{command} {name:?}");
        }
        let e = w.fails(6, &["stores", command, &theirs]);
        assert!(e["message"].as_str().unwrap().contains("turn 1"), "{e}");
    }
    // A link is no store.
    std::os::unix::fs::symlink(&w.ws, w.cli.store_dir().join("stores/link")).unwrap();
    assert_eq!(w.fails(5, &["stores", "purge", "link"])["code"], "unsafe-path");
    assert!(w.exists("a.txt"));
    w.cli.json(&other, ["session", "end", "s"]).unwrap().ok().unwrap();
    let run = w.run(&["stores", "delete", &theirs]);
    assert!(run.code == Some(0) && run.stderr.contains("cannot be undone"), "{run}");
    // Removed by name is not lost.
    let v = w.cli.json(&other, ["status"]).unwrap().ok().unwrap();
    assert_eq!(v["warnings"], serde_json::json!([]));
}

#[test]
fn sem36_a_store_that_is_gone_is_noticed() {
    let (w, _) = World::recorded();
    let store = w.cli.only_store().unwrap();
    fs::remove_dir_all(&store).unwrap();
    let v = w.json(&["status"]);
    assert!(v["warnings"][0].as_str().unwrap().contains("is gone"), "{v}");
    assert!(w.run(&["status"]).stderr.contains("is gone"));
    let e = w.fails(4, &["list"]);
    assert_eq!(e["code"], "no-such-store");
    assert!(
        e["message"].as_str().unwrap().contains("is gone") && e["hint"].as_str().unwrap().contains("copy"),
        "{e}"
    );
    // Recording goes on, and says so once.
    let v = w.json(&["checkpoint"]);
    assert!(v["warnings"][0].as_str().unwrap().contains("is gone"), "{v}");
    assert!(v["checkpoint"]["notes"][0].as_str().unwrap().contains("is gone"), "{v}");
    let v = w.json(&["checkpoint"]);
    assert_eq!((&v["warnings"], &v["checkpoint"]["notes"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(w.json(&["status"])["warnings"], serde_json::json!([]));
}

#[test]
fn sem37_a_change_of_project_files_is_a_note_and_waits_for_trust() {
    let (w, _) = World::recorded();
    w.write(".backstitchignore", "sub/\n!keep\n");
    let v = w.json(&["status"]);
    assert_eq!(v["untrusted"], serde_json::json!([".backstitchignore"]));
    assert!(v["warnings"].to_string().contains(".backstitchignore changed"), "{v}");
    let v = w.json(&["checkpoint"]);
    assert!(v["checkpoint"]["notes"].to_string().contains(".backstitchignore changed"), "{v}");
    assert_eq!(w.text(&["cat", "@:sub/b.txt"]), "b\n", "still covered");
    w.json(&["config", "trust"]);
    let v = w.json(&["status"]);
    assert_eq!((&v["untrusted"], &v["warnings"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert!(w.json(&["checkpoint"])["checkpoint"]["skipped"].to_string().contains("sub"));
    // Another content needs trust again; what only widens needs none.
    w.write(".backstitchignore", "!keep\n");
    assert_eq!(w.json(&["status"])["untrusted"], serde_json::json!([]));
    w.write(".backstitch.toml", "[retention]\ndays = 5\n");
    assert_eq!(w.json(&["status"])["untrusted"], serde_json::json!(["retention.days"]));
    w.write(".backstitch.toml", "[retention]\ndays = 50\n");
    assert_eq!(w.json(&["config", "get", "retention.days"])["value"], 50);
}

#[test]
fn sem38_prompts_are_recorded_as_far_as_the_setting_says() {
    let w = World::new();
    let text = format!("first line\n{}", "more ".repeat(100));
    let prompt = |how: &str| {
        let cli = cli(&w, &[("BACKSTITCH_PROMPTS", how)]);
        let v = cli.json(&w.ws, ["checkpoint", "--prompt", &text]).unwrap().ok().unwrap();
        let t =
            cli.json(&w.ws, ["turn", "begin", "--session", how, "--prompt", &text]).unwrap().ok().unwrap();
        assert_eq!(v["checkpoint"]["prompt"], t["checkpoint"]["prompt"]);
        v["checkpoint"]["prompt"].as_str().map(str::to_owned)
    };
    assert_eq!(prompt("full").as_deref(), Some(text.as_str()));
    assert_eq!(prompt("snippet").as_deref(), Some("first line"));
    assert_eq!(prompt("none"), None);
    // A clone may not ask for more than the user records.
    fs::write(w.path(".backstitch.toml"), "prompts = \"full\"\n").unwrap();
    w.json(&["config", "set", "prompts", "none"]);
    assert_eq!(w.json(&["config", "get", "prompts"])["value"], "none");
    fs::write(w.path(".backstitch.toml"), "prompts = \"none\"\n").unwrap();
    w.json(&["config", "set", "prompts", "full"]);
    assert_eq!(w.json(&["config", "get", "prompts"])["value"], "none");
}

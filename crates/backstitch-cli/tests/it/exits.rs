//! Every exit code can be produced, names its path, and changes nothing.

use std::{fs, time::Duration};

use backstitch_store::Store;
use backstitch_testkit::Cli;

use crate::support::World;

fn code(e: &serde_json::Value) -> &str {
    e["code"].as_str().unwrap()
}

#[test]
fn zero_is_done() {
    let (w, id) = World::changed();
    assert_eq!(w.run(&["restore", &id]).code, Some(0));
}

#[test]
fn one_is_failed() {
    let (w, _) = World::recorded();
    let target = w.top.join("nowhere/x.tar");
    let e = w.fails(1, &["export".as_ref(), "@".as_ref(), "--tar".as_ref(), target.as_os_str()]);
    assert_eq!(code(&e), "io");
    assert_eq!(e["path"], target.to_str().unwrap());

    let e = w.fails(1, &["checkpoint", "--prompt-file", "/nowhere/prompt"]);
    assert_eq!((code(&e), e["path"].as_str()), ("io", Some("/nowhere/prompt")));
}

#[test]
fn one_is_a_folder_that_is_not_there() {
    let (w, _) = World::recorded();
    let gone = w.top.join("gone");
    let run = w.cli.json(&gone, ["checkpoint"]).unwrap();
    assert_eq!((run.code, run.error_code().as_deref()), (Some(1), Some("io")), "{run}");
    assert!(run.stderr.contains(gone.to_str().unwrap()));
    assert!(!gone.exists());
}

#[test]
fn two_is_wrong_usage() {
    let (w, id) = World::recorded();
    for args in [
        &["rewind"][..],
        &["restore"],
        &["restore", "@", "--nonsense"],
        &["list", "--kind", "nothing"],
        &["list", "--limit", "many"],
        &["list", "--since", "sometime"],
        &["undo", "0"],
        &["undo", "2", "--dry-run"],
        &["undo", "2", "--plan", "0123"],
        &["revert"],
        &["rewind", "1", "--on-conflict", "both"],
        &["turn", "end", "--status", "stopped"],
        &["turn", "bind"],
        &["turn", "begin", "--wait", "--no-wait"],
        &["turn", "begin", "--session", "a/b"],
        &["turn", "begin", "--prompt", "a", "--prompt-file", "b"],
        &["tool", "during"],
        &["tool", "before", "--session", ".."],
        &["session", "fork", "new"],
        &["session", "fork", "a b", "--from", "@"],
        &["checkpoint", "--kind", "safety"],
        &["checkpoint", "--prompt", "a", "--prompt-file", "b"],
        &["diff", "--stat", "--patch"],
        &["export", "@"],
        &["export", "@", "dir", "--tar", "x"],
        &["cat", "nocolon"],
        &["cat", "@:"],
        &["restore", "@", "--hunks"],
        &["restore", "@", "--hunks", "--hunk", "x"],
        &["restore", "@~x"],
        &["log", ""],
        &["-q", "-v", "list"],
        &["--session", "", "list"],
        &["label", "@"],
    ] {
        let e = w.fails(2, args);
        assert_eq!(code(&e), "usage", "{args:?}");
    }
    assert_eq!(code(&w.fails(2, &["config", "get", "nothing"])), "bad-setting");
    assert_eq!(code(&w.fails(2, &["config", "set", "budget", "much"])), "bad-setting");
    for label in ["", "@x", "turn:3", "10m", "a\nb", &id, &"x".repeat(201)] {
        assert_eq!(code(&w.fails(2, &["checkpoint", "-m", label])), "bad-label", "{label:?}");
        assert_eq!(code(&w.fails(2, &["label", "@", label])), "bad-label", "{label:?}");
    }
}

#[test]
fn two_is_an_ambiguous_name_with_the_list() {
    let w = World::new();
    let ids = [w.save(&["-m", "twice"]), w.save(&["-m", "twice"])];
    for args in
        [&["restore", "twice"][..], &["show", "label:twice"], &["cat", "twice:a.txt"], &["delete", "twice"]]
    {
        let e = w.fails(2, args);
        assert_eq!(code(&e), "ambiguous");
        let list = e["list"].to_string();
        assert!(ids.iter().all(|id| list.contains(id)), "{list}");
    }
    let e = w.fails(2, &["show", "01"]);
    assert_eq!(code(&e), "ambiguous");
}

#[test]
fn three_is_partial() {
    let (w, id) = World::changed();
    // A file that grew over the limit is left out against the rules.
    w.write("big", vec![b'x'; 5000]);
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_LIMITS_NEW_FILE", "1000");
    let v = cli.json(&w.ws, ["checkpoint"]).unwrap().expect(3).unwrap();
    assert_eq!(v["checkpoint"]["state"], "partial");
    assert_eq!(v["checkpoint"]["skipped"][0]["path"], "big");

    // A path that changed since is kept by undo.
    w.json(&["restore", &id, "--", "a.txt"]);
    w.write("a.txt", "somebody else\n");
    let v = w.json_with(3, &["undo"]);
    assert_eq!(v["partial"], true);
    assert_eq!(v["items"][0]["action"], "conflict");
    assert_eq!(w.read("a.txt"), "somebody else\n");
}

#[test]
fn three_is_touched_scope_with_nothing_named() {
    let w = World::new();
    let v = w.json_with(3, &["checkpoint", "--scope", "touched"]);
    assert_eq!(v["checkpoint"]["scope"], "touched");
    assert!(!v["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn four_is_not_there() {
    let (w, _) = World::recorded();
    for (args, want) in [
        (&["restore", "nothing"][..], "no-such-checkpoint"),
        (&["show", "@~7"], "no-such-checkpoint"),
        (&["show", "@safety"], "no-such-checkpoint"),
        (&["diff", "10y-ago"], "no-such-checkpoint"),
        (&["cat", "nothing:a.txt"], "no-such-checkpoint"),
        (&["pin", "nothing"], "no-such-checkpoint"),
        (&["label", "nothing", "x"], "no-such-checkpoint"),
        (&["delete", "@", "nothing"], "no-such-checkpoint"),
        (&["export", "nothing", "--tar", "-"], "no-such-checkpoint"),
        (&["show", "turn:1"], "no-such-session"),
        (&["show", "s1/@"], "no-such-session"),
        (&["undo", "--operation", "zzz"], "no-such-operation"),
        (&["rewind", "1"], "no-such-session"),
        (&["rewind", "1", "--session", "s1"], "no-such-session"),
        (&["session", "show", "s1"], "no-such-session"),
        (&["session", "show"], "no-such-session"),
        (&["session", "delete", "s1"], "no-such-session"),
        (&["session", "fork", "s2", "--from", "nothing"], "no-such-checkpoint"),
        (&["turn", "bind", "--entry", "e"], "no-such-checkpoint"),
        (&["undo"], "nothing-to-undo"),
        (&["redo"], "nothing-to-redo"),
        (&["stores", "delete", "nothing"], "no-such-store"),
        (&["config", "trust"], "no-such-path"),
    ] {
        if args.contains(&"-") {
            continue;
        }
        assert_eq!(code(&w.fails(4, args)), want, "{args:?}");
    }
    for args in [&["cat", "@:nothing"][..], &["log", "nothing"], &["restore", "@", "--", "nothing"]] {
        let e = w.fails(4, args);
        assert_eq!((code(&e), e["path"].as_str()), ("no-such-path", Some("nothing")), "{args:?}");
    }
}

#[test]
fn four_is_a_folder_without_a_store() {
    let w = World::new();
    for args in [
        &["list"][..],
        &["show", "@"],
        &["diff"],
        &["undo"],
        &["redo"],
        &["operations"],
        &["verify"],
        &["log", "a"],
        &["rewind", "1"],
        &["session", "list"],
        &["session", "show", "s"],
        &["session", "delete", "s"],
        &["turn", "bind", "--entry", "e"],
    ] {
        let e = w.fails(4, args);
        assert_eq!((code(&e), e["path"].as_str()), ("no-such-store", w.ws.to_str()), "{args:?}");
    }
    assert!(!w.cli.store_dir().exists(), "looking creates nothing");
}

#[test]
fn five_is_refused() {
    let (w, id) = World::changed();
    for path in ["/etc/passwd", "../x", "sub/../../x"] {
        for args in [
            &["restore", &id, "--", path][..],
            &["checkpoint", "--", path],
            &["diff", "--", path],
            &["log", path],
        ] {
            let e = w.fails(5, args);
            assert_eq!((code(&e), e["path"].as_str()), ("unsafe-path", Some(path)), "{args:?}");
        }
    }
    assert_eq!(code(&w.fails(5, &["restore", &id, "--busy", "/x"])), "unsafe-path");
    assert_eq!(code(&w.fails(5, &["restore", &id, "--plan", "0123"])), "plan-changed");
    assert_eq!(code(&w.fails(5, &["stores", "delete", "../x"])), "unsafe-path");
    w.json(&["pin", &id]);
    assert_eq!(code(&w.fails(5, &["delete", &id])), "conflict");

    // redo is refused when what it covers has changed since.
    w.json(&["restore", &id, "--", "a.txt"]);
    w.json(&["undo"]);
    w.write("a.txt", "else\n");
    let e = w.fails(5, &["redo"]);
    assert_eq!((code(&e), e["path"].as_str()), ("conflict", Some("a.txt")));
    assert_eq!(e["list"][0], "a.txt");
}

#[test]
fn five_is_a_folder_that_was_replaced() {
    let (w, id) = World::recorded();
    fs::rename(&w.ws, w.top.join("old")).unwrap();
    fs::create_dir(&w.ws).unwrap();
    w.write("a.txt", "other\n");
    let e = w.fails(5, &["restore", &id]);
    assert_eq!((code(&e), e["path"].as_str()), ("replaced-workspace", w.ws.to_str()));
    w.json(&["restore", &id, "--replaced"]);
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn five_is_disabled() {
    let (w, _) = World::recorded();
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_DISABLE", "1");
    for args in [&["checkpoint"][..], &["turn", "begin"], &["turn", "end"], &["tool", "before"]] {
        assert_eq!(code(&w.fails_in(&cli, 5, args)), "disabled", "{args:?}");
    }
}

#[test]
fn five_is_over_the_floor() {
    let (w, _) = World::recorded();
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_FREE_FLOOR", "8000000TB");
    let e = w.fails_in(&cli, 5, &["checkpoint"]);
    assert_eq!(code(&e), "over-budget");
    assert!(e["path"].as_str().unwrap().starts_with(w.cli.store_dir().to_str().unwrap()));
}

#[test]
fn five_is_a_store_of_another_folder() {
    let (w, _) = World::recorded();
    let manifest = w.cli.only_store().unwrap().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("/project\"", "/other\"")).unwrap();
    let e = w.fails(5, &["list"]);
    assert_eq!((code(&e), e["path"].as_str()), ("wrong-workspace", w.ws.to_str()));
}

#[test]
fn five_is_not_for_agents() {
    let (w, id) = World::recorded();
    let store = w.cli.only_store().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    for variable in ["BACKSTITCH_SESSION", "CLAUDECODE"] {
        let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
        cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env(variable, "x");
        for args in [
            &["delete", &id][..],
            &["prune", "--dry-run"],
            &["forget", "a.txt"],
            &["session", "delete", "s"],
            &["session", "purge", "s"],
            &["disable"],
            &["config", "set", "threads", "1"],
            &["config", "trust"],
            &["stores", "delete", &store],
            &["stores", "purge", &store],
            &["relink", "/nowhere"],
        ] {
            let e = w.fails_in(&cli, 5, args);
            assert_eq!(code(&e), "agent-context", "{args:?}");
            assert!(e["message"].as_str().unwrap().contains(variable));
        }
        // Reading is for everybody.
        for args in [&["config", "get", "threads"][..], &["config", "list"], &["stores", "list"], &["list"]] {
            assert_eq!(cli.json(&w.ws, args).unwrap().code, Some(0), "{args:?}");
        }
    }
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("CLAUDECODE", "1");
    cli.json(&w.ws, ["disable", "--as-person"]).unwrap().ok().unwrap();
    assert_eq!(cli.json(&w.ws, ["status"]).unwrap().ok().unwrap()["enabled"], false);
    cli.json(&w.ws, ["enable", "--as-person"]).unwrap().ok().unwrap();
    cli.json(&w.ws, ["--as-person", "delete", &id]).unwrap().ok().unwrap();
}

#[test]
fn six_is_busy() {
    let (w, id) = World::changed();
    w.json(&["turn", "begin", "--session", "s"]);
    w.json(&["turn", "end"]);
    let store = Store::open(&w.cli.only_store().unwrap()).unwrap();
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_LOCK_WAIT", "0");
    // Another process captures: operations wait, captures do not.
    let shared = store.lock_shared("workspace", Duration::ZERO).unwrap();
    for args in [&["restore", &id][..], &["undo"], &["redo"], &["delete", &id]] {
        let e = w.fails_in(&cli, 6, args);
        assert_eq!((code(&e), e["path"].as_str()), ("busy", w.ws.to_str()), "{args:?}");
    }
    assert_eq!(cli.json(&w.ws, ["checkpoint", "--if-changed"]).unwrap().code, Some(0));
    drop(shared);
    // Another process restores: everything that writes waits; readers do not.
    let exclusive = store.lock_exclusive("workspace", Duration::from_secs(30)).unwrap();
    for args in [
        &["checkpoint"][..],
        &["restore", &id],
        &["pin", &id],
        &["turn", "begin"],
        &["tool", "before", "a.txt"],
        &["rewind", "1", "--session", "s"],
    ] {
        let e = w.fails_in(&cli, 6, args);
        assert_eq!(code(&e), "busy", "{args:?}");
        assert!(e["path"].is_string(), "{args:?}");
    }
    for args in [&["list"][..], &["show", "@"], &["cat", "@:a.txt"], &["status"], &["operations"]] {
        assert_eq!(cli.json(&w.ws, args).unwrap().code, Some(0), "{args:?}");
    }
    drop(exclusive);
    // A child that another test starts at this moment may hold a copy of the lock until it runs its program.
    cli.env("BACKSTITCH_LOCK_WAIT", "30");
    assert_eq!(cli.json(&w.ws, ["restore", &id]).unwrap().code, Some(0));
}

#[test]
fn seven_is_damaged() {
    let (w, first) = World::recorded();
    w.write("a.txt", "changed\n");
    let second = w.save(&[]);
    let packs = w.cli.only_store().unwrap().join("git/objects/pack");
    // The first row's pack holds what both rows need of the other files.
    let mut all: Vec<_> = fs::read_dir(&packs).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "pack"));
    all.sort_by_key(|p| std::cmp::Reverse(p.metadata().unwrap().len()));
    let pack = &all[0];
    let mut bytes = fs::read(pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8].iter_mut().for_each(|b| *b ^= 0x55);
    set_writable(pack);
    fs::write(pack, bytes).unwrap();

    let run = w.cli.json(&w.ws, ["verify"]).unwrap();
    let v = run.expect(7).unwrap();
    assert_eq!(v["ok"], false);
    let text = v.to_string();
    assert!(text.contains(pack.file_name().unwrap().to_str().unwrap()), "{text}");
    assert!(text.contains(&first) || text.contains(&second), "the rows that are hit are named: {text}");
    let run = w.run(&["verify"]);
    assert_eq!(run.code, Some(7), "{run}");
    assert!(run.ended_properly());
}

#[test]
fn seven_is_a_row_that_cannot_be_read() {
    let (w, _) = World::recorded();
    let refs = w.cli.only_store().unwrap().join("git/refs/backstitch/checkpoints");
    let row = fs::read_dir(&refs).unwrap().next().unwrap().unwrap().path();
    set_writable(&row);
    fs::write(&row, format!("{}\n", "12".repeat(20))).unwrap();
    let run = w.run(&["list"]);
    assert_eq!(run.code, Some(7), "{run}");
    assert!(run.stderr.contains(row.file_name().unwrap().to_str().unwrap()), "{run}");

    // With one row that can be listed, the other is a warning.
    let id = w.save(&[]);
    let run = w.run(&["list"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(
        run.stderr.contains("warning: ") && String::from_utf8_lossy(&run.stdout).contains(&id[..8]),
        "{run}"
    );
    assert_eq!(w.json(&["list"])["damaged"].as_array().unwrap().len(), 1);
}

fn set_writable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

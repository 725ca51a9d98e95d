//! `config`, `enable`, `disable`, `status`, and the layers of settings.

use std::fs;

use backstitch_testkit::Cli;
use serde_json::Value;

use crate::support::World;

fn value(w: &World, key: &str) -> (Value, String) {
    let v = w.json(&["config", "get", key]);
    (v["value"].clone(), v["source"].as_str().unwrap().to_owned())
}

#[test]
fn environment_over_project_over_user_over_defaults() {
    let w = World::new();
    assert_eq!(value(&w, "threads"), (0.into(), "default".to_owned()));
    let v = w.json(&["config", "set", "threads", "3"]);
    let file = v["file"].as_str().unwrap();
    assert!(file.starts_with(w.cli.home().to_str().unwrap()) && file.ends_with("backstitch/config.toml"));
    assert_eq!(value(&w, "threads"), (3.into(), "user".to_owned()));
    w.json(&["config", "set", "--project", "threads", "4"]);
    assert!(w.exists(".backstitch.toml"));
    assert_eq!(value(&w, "threads"), (4.into(), "project".to_owned()));
    let mut cli = Cli::with_home(env!("CARGO_BIN_EXE_backstitch"), w.cli.home()).unwrap();
    cli.env("BACKSTITCH_THREADS", "5");
    let v = cli.json(&w.ws, ["config", "get", "threads"]).unwrap().ok().unwrap();
    assert_eq!((&v["value"], &v["source"]), (&5.into(), &"environment".into()));
    // Another user's file.
    let other = w.top.join("other.toml");
    fs::write(&other, "budget = \"1GiB\"\n").unwrap();
    cli.env("BACKSTITCH_CONFIG", &other);
    let v = cli.json(&w.ws, ["config", "get", "budget"]).unwrap().ok().unwrap();
    assert_eq!((&v["value"], &v["source"]), (&1_073_741_824.into(), &"user".into()));
    assert_eq!(cli.json(&w.ws, ["config", "path"]).unwrap().ok().unwrap()["user"], other.to_str().unwrap());
}

#[test]
fn every_form_of_value_can_be_set_and_is_shown() {
    let w = World::new();
    for (key, given, want, shown) in [
        ("enabled", "false", Value::from(false), "false"),
        ("limits.new_file", "5MiB", 5_242_880.into(), "5.0 MiB"),
        ("lock_wait", "7", 7.into(), "7"),
        ("ignored", "all", "all".into(), "all"),
        ("include", "a,*.log", serde_json::json!(["a", "*.log"]), "[\"a\", \"*.log\"]"),
    ] {
        assert_eq!(w.json(&["config", "set", key, given])["value"], want, "{key}");
        assert_eq!(w.text(&["config", "get", key]).trim_end(), shown, "{key}");
    }
    let all = w.json(&["config", "list"]);
    let changed = all["settings"].as_array().unwrap().iter().filter(|s| s["source"] == "user").count();
    assert_eq!(changed, 5);
    assert!(w.text(&["config", "list"]).lines().count() > 15);
    assert_eq!(w.fails(2, &["config", "set", "enabled", "perhaps"])["code"], "bad-setting");
    assert_eq!(w.fails(2, &["config", "set", "nonsense", "1"])["code"], "bad-setting");
}

#[test]
fn a_broken_file_is_a_warning() {
    let (w, _) = World::recorded();
    w.write(".backstitch.toml", "budget = \n");
    let run = w.run(&["status"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("warning: ") && run.stderr.contains(".backstitch.toml"), "{run}");
    let run = w.run(&["checkpoint"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains(".backstitch.toml"), "{run}");
    assert!(w.json(&["config", "list"])["warnings"][0].as_str().unwrap().contains(".backstitch.toml"));
    // It is not overwritten, either.
    assert_eq!(w.fails(2, &["config", "set", "--project", "threads", "1"])["code"], "bad-setting");
}

#[test]
fn a_project_file_that_narrows_needs_trust() {
    let (w, _) = World::recorded();
    w.write(".backstitch.toml", "exclude = [\"sub\"]\n");
    let v = w.json(&["status"]);
    assert_eq!(v["untrusted"], serde_json::json!(["exclude"]));
    assert_eq!(value(&w, "exclude").1, "default");
    let v = w.json(&["config", "trust"]);
    assert_eq!(v["trusted"][0].as_str(), w.path(".backstitch.toml").to_str());
    assert_eq!(value(&w, "exclude").1, "project");
    // Only that content.
    w.write(".backstitch.toml", "exclude = [\"sub\", \"a.txt\"]\n");
    assert_eq!(value(&w, "exclude").1, "default");
}

#[test]
fn switching_off_and_on() {
    let (w, _) = World::recorded();
    let v = w.json(&["disable"]);
    assert_eq!(v["enabled"], false);
    let v = w.json(&["status"]);
    assert_eq!((&v["enabled"], v["reason"].is_string()), (&false.into(), true));
    assert_eq!(w.fails(5, &["checkpoint"])["code"], "disabled");
    // What is recorded stays usable.
    w.write("a.txt", "x\n");
    w.json(&["restore", "@"]);
    assert_eq!(w.json(&["enable"])["enabled"], true);
    w.save(&[]);
    let mut cli = Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_DISABLE", "1");
    let v = cli.json(&w.ws, ["status"]).unwrap().ok().unwrap();
    assert_eq!((&v["enabled"], v["reason"].as_str()), (&false.into(), Some("BACKSTITCH_DISABLE is set")));
}

#[test]
fn status_tells_how_things_stand() {
    let w = World::new();
    let v = w.json(&["status"]);
    assert_eq!((&v["checkpoints"], &v["last"], &v["exists"]), (&0.into(), &Value::Null, &false.into()));
    w.write("large", vec![0u8; 3_000_000]);
    w.write(".gitignore", "large\n");
    let id = w.save(&["--session", "s"]);
    let v = w.json(&["status"]);
    assert_eq!((&v["checkpoints"], &v["sessions"]), (&1.into(), &1.into()));
    assert_eq!(v["last"]["id"], id.as_str());
    assert!(v["used_bytes"].as_u64().unwrap() > 0 && v["budget_bytes"].as_u64().unwrap() > 0);
    assert_eq!(
        (&v["not_covered"][0]["path"], &v["not_covered"][0]["bytes"]),
        (&"large".into(), &3_000_000.into())
    );
    let text = w.text(&["status"]);
    assert!(text.contains("  large (") && text.contains("to cover it: "), "{text}");
    assert!(v.as_object().unwrap().contains_key("recovered"));
}

#[test]
fn a_warning_is_told_once_by_every_command() {
    let (w, _) = World::recorded();
    w.write(".backstitch.toml", "nonsense = 1\n");
    for args in
        [&["list"][..], &["status"], &["config", "list"], &["checkpoint"], &["diff"], &["restore", "@"]]
    {
        let run = w.run(args);
        assert_eq!(run.stderr.matches("nonsense").count(), 1, "{run}");
        // `status` also says that the file changed.
        let told = w.json(args)["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|m| m.to_string().contains("nonsense"))
            .count();
        assert_eq!(told, 1, "{args:?}");
    }
}

#[test]
fn r117_pipes_and_endless_files_in_the_place_of_settings_are_not_waited_for() {
    let mut w = World::new();
    w.write("a.txt", "1\n");
    let user = w.top.join("user.toml");
    w.cli.env("BACKSTITCH_CONFIG", &user);
    let pipe = |p: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(p).status().unwrap().success());
    };
    let files = [w.path(".backstitch.toml"), w.path(".backstitchignore"), user];
    for (n, file) in files.iter().enumerate() {
        for endless in [false, true] {
            match endless {
                false => pipe(file),
                true => std::os::unix::fs::symlink("/dev/zero", file).unwrap(),
            }
            for args in [&["checkpoint"][..], &["status"]] {
                let run = w.run(args);
                assert_eq!(run.code, Some(0), "{run}");
                let warned = run.stderr.contains("not a regular file");
                assert!(warned || n == 1, "{}: {run}", file.display());
            }
            if n != 2 {
                let e = w.fails(1, &["config", "trust"]);
                assert_eq!(e["path"].as_str(), file.to_str());
            }
            std::fs::remove_file(file).unwrap();
        }
    }
}

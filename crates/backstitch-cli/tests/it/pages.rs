//! Pages made from the table.

use std::{fs, path::Path};

use crate::support::World;

#[test]
fn completions_of_every_shell() {
    let w = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = w.text(&["completions", shell]);
        for word in ["checkpoint", "restore", "no-safety", "store-dir"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert_eq!(w.json(&["completions", shell])["script"], script.as_str());
    }
    assert_eq!(w.fails(2, &["completions", "tcl"])["code"], "usage");
}

#[test]
fn manual_pages() {
    let w = World::new();
    let page = w.text(&["man"]);
    assert!(page.starts_with(".ie ") || page.contains(".TH backstitch 1"), "{page}");
    let out = w.top.join("man");
    let v = w.json(&["man", "--out", out.to_str().unwrap()]);
    let names: Vec<String> =
        fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), v["written"].as_array().unwrap().len());
    for name in
        ["backstitch.1", "backstitch-restore.1", "backstitch-config-set.1", "backstitch-stores-purge.1"]
    {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    let page = fs::read_to_string(out.join("backstitch-restore.1")).unwrap();
    assert!(page.contains(".TH backstitch\\-restore 1") || page.contains("backstitch-restore 1"), "{page}");
    assert!(page.contains("no\\-safety"), "{page}");
}

#[test]
fn the_reference_pages_are_up_to_date() {
    let w = World::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, file) in [
        ("commands", "commands.md"),
        ("settings", "settings.md"),
        ("rpc", "rpc.md"),
        ("rpc-schema", "rpc.json"),
        ("mcp-schema", "mcp.json"),
    ] {
        let page = w.text(&["reference", name]);
        let file = folder.join(file);
        if std::env::var_os("BACKSTITCH_UPDATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &page).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap_or_default();
        assert!(stored == page, "run `backstitch reference {name} > {}`", file.display());
    }
}

#[test]
fn help_of_every_command() {
    let w = World::new();
    let help = w.text(&["help"]);
    for name in [
        "checkpoint",
        "list",
        "show",
        "diff",
        "files",
        "cat",
        "log",
        "blame",
        "restore",
        "rewind",
        "revert",
        "undo",
        "redo",
        "operations",
        "turn",
        "tool",
        "session",
        "status",
        "serve",
        "mcp",
        "verify",
        "doctor",
        "pin",
        "unpin",
        "label",
        "delete",
        "export",
        "completions",
        "man",
        "config",
        "enable",
        "disable",
        "stores",
        "relink",
        "hook",
        "install",
        "uninstall",
    ] {
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
        let run = w.run(&[name, "--help"]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{name}");
    }
    assert!(!help.contains("reference"), "hidden");
    let version = w.text(&["--version"]);
    assert!(version.starts_with("backstitch 0."), "{version}");
    // A word that is not known: close ones are named.
    let run = w.run(&["restor"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("restore"), "{run}");
    assert_eq!(w.run(&[] as &[&str]).code, Some(2));
}

/// Help, manual, the server's schema and the agents' tools say the same.
#[test]
fn all_faces_of_the_table_agree() {
    use serde_json::Value;
    let w = World::new();
    let schema: Value = serde_json::from_str(&w.text(&["reference", "rpc-schema"])).unwrap();
    let tools: Value = serde_json::from_str(&w.text(&["reference", "mcp-schema"])).unwrap();
    let commands = w.text(&["reference"]);
    let out = w.top.join("man");
    w.json(&["man", "--out", out.to_str().unwrap()]);
    let terminal =
        ["json", "quiet", "verbose", "color", "no-progress", "no-pager", "plain", "help", "version"];
    let methods = schema["methods"].as_array().unwrap();
    let mut compared = 0;
    for line in commands.lines().filter_map(|l| l.strip_prefix("```text").map(|_| l)) {
        assert_eq!(line, "```text");
    }
    for name in commands.lines().filter_map(|l| l.strip_prefix("## ")) {
        let method = name.replace(' ', "/");
        let Some(m) = methods.iter().find(|m| m["name"] == method.as_str()) else { continue };
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let help = w.text(&words);
        let mut typed: Vec<String> = help
            .lines()
            .map(str::trim_start)
            .filter(|l| l.starts_with('-'))
            .filter_map(|l| l.split([' ', ',', '=', '[']).find_map(|w| w.strip_prefix("--")))
            .filter(|o| !terminal.contains(o) && !o.is_empty())
            .map(|o| o.replace('-', "_"))
            .collect();
        let params = m["params"].as_array().unwrap();
        let mut said: Vec<String> = params
            .iter()
            .map(|p| p["name"].as_str().unwrap().to_owned())
            .filter(|p| typed.contains(p) || help.contains(&format!("--{}", p.replace('_', "-"))))
            .collect();
        typed.sort();
        typed.dedup();
        said.sort();
        assert_eq!(typed, said, "{name}");
        let page = fs::read_to_string(out.join(format!("backstitch-{}.1", name.replace(' ', "-")))).unwrap();
        for o in &typed {
            assert!(page.contains(&o.replace('_', "\\-")), "{name} --{o} in the manual");
        }
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
    // Each argument of a tool is a parameter of its method, with the same form and words.
    for t in tools["tools"].as_array().unwrap() {
        let name = t["name"].as_str().unwrap();
        let method = methods
            .iter()
            .find(|m| m["name"].as_str().unwrap().replace('/', "_") == name)
            .unwrap_or_else(|| panic!("no method for {name}"));
        for (argument, shape) in t["inputSchema"]["properties"].as_object().unwrap() {
            let p = method["params"].as_array().unwrap().iter().find(|p| p["name"] == argument.as_str());
            let p = p.unwrap_or_else(|| panic!("{name}: {argument}"));
            for key in ["type", "enum", "description", "items", "minimum"] {
                assert_eq!(shape.get(key), p["schema"].get(key), "{name}: {argument}");
            }
        }
    }
}

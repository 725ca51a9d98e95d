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
    for name in ["commands", "settings"] {
        let page = w.text(&["reference", name]);
        let file = folder.join(format!("{name}.md"));
        if std::env::var_os("BACKSTITCH_UPDATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &page).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap_or_default();
        assert!(stored == page, "run `backstitch reference {name} > docs/reference/{name}.md`");
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

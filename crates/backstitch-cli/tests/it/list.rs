//! `list`, option by option.

use serde_json::Value;

use crate::support::World;

fn ids(w: &World, args: &[&str]) -> Vec<String> {
    let mut words = vec!["list"];
    words.extend(args);
    let v = w.json(&words);
    v["checkpoints"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_option() {
    let w = World::new();
    let a = w.save(&["-m", "a"]);
    let b = w.save(&["--session", "s1"]);
    let tool = w.save(&["--kind", "tool", "--session", "s1"]);
    let agent = w.save(&["--kind", "agent-run"]);
    let c = w.save(&["--kind", "prompt"]);
    assert_eq!(ids(&w, &[]), [&c, &b, &a].map(String::as_str));
    assert_eq!(ids(&w, &["--all"]), [&c, &agent, &tool, &b, &a].map(String::as_str));
    assert_eq!(ids(&w, &["--reverse"]), [&a, &b, &c].map(String::as_str));
    assert_eq!(ids(&w, &["--limit", "2"]), [&c, &b].map(String::as_str));
    assert_eq!(ids(&w, &["--limit", "2", "--reverse"]), [&b, &c].map(String::as_str));
    assert_eq!(ids(&w, &["--kind", "tool"]), [tool.as_str()]);
    assert_eq!(ids(&w, &["--kind", "manual"]), [&b, &a].map(String::as_str));
    assert_eq!(ids(&w, &["--session", "s1"]), [b.as_str()]);
    assert_eq!(ids(&w, &["--session", "s1", "--all"]), [&tool, &b].map(String::as_str));
    assert_eq!(ids(&w, &["--since", "1h"]).len(), 3);
    assert_eq!(ids(&w, &["--since", "2099-01-01T00:00:00Z"]), [""; 0]);
    assert_eq!(w.run(&["ls"]).code, Some(0));
}

#[test]
fn check_marks_what_cannot_be_restored() {
    let w = World::new();
    let full = w.save(&[]);
    for name in ["a.txt", "bin", "run.sh", "sub/b.txt"] {
        std::fs::remove_file(w.path(name)).unwrap();
    }
    let empty = w.save(&[]);
    let v = w.json(&["list", "--check"]);
    let find = |id: &str| -> Value {
        v["checkpoints"].as_array().unwrap().iter().find(|c| c["id"] == id).unwrap().clone()
    };
    assert_eq!((&find(&full)["restorable"], &find(&full)["problem"]), (&true.into(), &Value::Null));
    assert_eq!(find(&empty)["restorable"], false);
    assert!(find(&empty)["problem"].is_string());
    let run = w.run(&["list", "--check"]);
    assert_eq!(run.code, Some(0));
    assert!(String::from_utf8_lossy(&run.stdout).contains("cannot be restored"), "{run}");
}

#[test]
fn short_ids_find_their_rows() {
    let w = World::new();
    for _ in 0..12 {
        w.save(&[]);
    }
    let text = w.text(&["list"]);
    let full = ids(&w, &[]);
    assert_eq!(text.lines().count(), 12);
    for (line, id) in text.lines().zip(full) {
        let short = line.split_whitespace().next().unwrap();
        assert!(short.len() >= 8 && id.starts_with(short), "{line}");
        assert_eq!(w.json(&["show", short])["checkpoint"]["id"], id.as_str());
    }
}

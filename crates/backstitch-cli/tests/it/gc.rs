//! `gc`, sizes, and what runs by itself.

use std::{
    fs,
    io::Read,
    process::Stdio,
    time::{Duration, Instant},
};

use backstitch_store::Store;
use backstitch_testkit::generate::noise;

use crate::support::World;

fn used(w: &World) -> u64 {
    w.json(&["status"])["used_bytes"].as_u64().unwrap()
}

fn packs(w: &World) -> usize {
    let dir = w.cli.only_store().unwrap().join("git/objects/pack");
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| n.ends_with(".pack")).count()
}

#[test]
fn gc_frees_what_was_deleted_and_tells_before() {
    let w = World::new();
    let first = w.save(&[]);
    w.write("big.bin", noise(300_000, 1));
    let big = w.save(&[]);
    w.write("big.bin", noise(200_000, 2));
    let last = w.save(&[]);
    let shown = w.json(&["show", &big]);
    let unique = shown["checkpoint"]["bytes"]["unique"].as_u64().unwrap();
    assert!((300_000..310_000).contains(&unique), "{unique}");
    assert!(shown["checkpoint"]["bytes"]["shared"].as_u64().unwrap() > 0);
    let listed = w.json(&["list"]);
    assert_eq!(listed["checkpoints"][1]["bytes"], shown["checkpoint"]["bytes"]);
    assert!(w.text(&["show", &big]).contains("of its own"));

    // Nothing to free: nothing changes.
    w.json(&["gc"]);
    let none = w.json(&["gc", "--dry-run"]);
    assert_eq!((none["freed_bytes"].as_u64(), none["checkpoints"].as_u64()), (Some(0), Some(0)));

    w.json(&["delete", &big]);
    let before = used(&w);
    let told = w.json(&["gc", "--dry-run"]);
    assert_eq!(told["dry_run"], true);
    assert_eq!(used(&w), before);
    let done = w.json(&["gc"]);
    let freed = (before - used(&w)) as f64;
    for v in [&told, &done] {
        let said = v["freed_bytes"].as_u64().unwrap() as f64;
        assert!((said - freed).abs() <= 0.05 * freed, "told {said}, freed {freed}: {v}");
    }
    assert!(freed > 300_000.0);
    assert_eq!(done["checkpoints"], 1);
    assert_eq!(done["used_bytes"].as_u64(), Some(used(&w)));
    assert_eq!(w.json(&["verify"])["ok"], true);

    // The row is gone for good, the others are whole, and undo says so.
    w.fails(4, &["show", &big]);
    let undone = w.json_with(3, &["undo"]);
    assert!(undone["warnings"][0].as_str().unwrap().contains("no longer in the store"), "{undone}");
    w.json(&["restore", &last]);
    assert_eq!(fs::read(w.path("big.bin")).unwrap(), noise(200_000, 2));
    w.json(&["restore", &first]);
    assert!(!w.exists("big.bin"));
}

#[test]
fn gc_is_a_persons() {
    let (mut w, id) = World::recorded();
    w.json(&["delete", &id]);
    w.cli.env("CLAUDECODE", "1");
    assert_eq!(w.fails(5, &["gc"])["code"], "agent-context");
    w.json(&["gc", "--as-person"]);
}

#[test]
fn gc_refuses_while_anything_is_in_doubt() {
    let (w, id) = World::changed();
    w.save(&[]);
    w.json(&["delete", &id]);
    let refs = w.cli.only_store().unwrap().join("git/refs/backstitch/checkpoints/torn");
    fs::write(&refs, "?").unwrap();
    assert_eq!(w.fails(7, &["gc"])["code"], "store-damaged");
    fs::remove_file(refs).unwrap();
    w.json(&["undo"]);
    w.json(&["show", &id]);
}

#[test]
fn background_collection_keeps_the_trash() {
    let w = World::new();
    w.save(&[]);
    w.write("x", noise(50_000, 3));
    let id = w.save(&[]);
    w.json(&["delete", &id]);
    w.json(&["gc", "--auto"]);
    w.json(&["undo"]);
    w.json(&["restore", &id, "--", "x"]);
    assert_eq!(fs::read(w.path("x")).unwrap(), noise(50_000, 3));
}

#[test]
fn s4_28_the_capture_that_passes_fifty_packs_has_them_joined() {
    let w = World::new();
    for n in 0..50 {
        w.write("x", format!("{n}\n"));
        w.save(&[]);
    }
    assert_eq!(packs(&w), 50);
    let store = Store::open(&w.cli.only_store().unwrap()).unwrap();
    // While this is held the process that was started can not end.
    let held = store.lock_shared("store", Duration::ZERO).unwrap();
    w.write("x", "more\n");
    // Whatever else a host has left open is not inherited either.
    let mut shell = w.bare();
    let line = "exec \"$0\" --json checkpoint 7>&1";
    let mut c = std::process::Command::new("/bin/sh");
    c.args(["-c", line]).arg(shell.get_program()).env_clear();
    for (key, value) in shell.get_envs() {
        c.env(key, value.unwrap());
    }
    shell.stdin(Stdio::null());
    c.current_dir(&w.ws).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut run = c.spawn().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    run.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(run.wait().unwrap().success(), "{out}{err}");
    assert!(start.elapsed() < Duration::from_secs(30), "the pipes were inherited");
    assert_eq!(w.json(&["list", "--limit", "1"])["checkpoints"].as_array().unwrap().len(), 1);
    drop(held);
    while packs(&w) > 3 {
        assert!(start.elapsed() < Duration::from_secs(120), "{} packs", packs(&w));
        std::thread::yield_now();
    }
    let _ended = store.lock_exclusive("collect", Duration::from_secs(60)).unwrap();
    assert_eq!(w.json(&["verify"])["ok"], true);
    assert_eq!(w.json(&["list"])["checkpoints"].as_array().unwrap().len(), 51);
}

//! Restores of a part, or with conditions: named paths, patterns, previews, no safety row. What is beside it is left alone,
//! and what is left alone is told.

use std::fs;

use backstitch::{error::Code, restore, rewind};
use backstitch_testkit::generate::noise;

use crate::{
    sessions::Agent,
    support::{checkpoint_at, git, items, open_at},
    world::{World, action},
};

fn globs(list: &[&str]) -> restore::Options {
    restore::Options { globs: list.iter().map(|g| (*g).to_owned()).collect(), ..Default::default() }
}

fn paths(list: &[&str]) -> restore::Options {
    restore::Options { paths: list.iter().map(|p| (*p).into()).collect(), ..Default::default() }
}

#[test]
fn s2_21_a_pattern_that_fits_nothing_is_refused() {
    let w = World::new();
    w.write("f", "1");
    w.write("same.txt", "1");
    let c = w.checkpoint();
    w.write("f", "2");
    assert_eq!(w.restore_with(&c, globs(&["f", "nothing*"])).unwrap_err().code, Code::NoSuchPath);
    assert_eq!(w.read("f"), "2");
    // One that fits what has not changed means something.
    let o = w.restore_with(&c, globs(&["same*"])).unwrap();
    assert!(o.items.is_empty() && !o.partial, "{:?}", items(&o));
}

#[test]
fn s2_21_what_no_pattern_fits_is_not_told() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1KiB");
    w.write("f", "1");
    let c = w.checkpoint();
    w.write("f", "2");
    // Too large to be recorded: a restore of everything tells of it.
    w.write("model.bin", noise(40_000, 1));
    let o = w.restore_with(&c, globs(&["f"])).unwrap();
    assert_eq!((items(&o).len(), w.read("f").as_str(), o.partial), (1, "1", false), "{:?}", items(&o));
}

#[test]
fn r11_what_was_left_out_then_below_a_named_folder_is_kept() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1KiB");
    w.write("d/model.bin", noise(40_000, 1));
    w.write("d/f", "1");
    let c = w.checkpoint();
    w.write("d/model.bin", "small");
    w.write("d/f", "2");
    let o = w.restore_with(&c, paths(&["d"])).unwrap();
    assert_eq!(action(&o, "d/model.bin").as_deref(), Some("keep:not-covered-then:limit"), "{:?}", items(&o));
    // Named itself it is no success.
    let o = w.restore_with(&c, paths(&["d", "d/model.bin"])).unwrap();
    assert_eq!(action(&o, "d/model.bin").as_deref(), Some("skip:not-covered-then:limit"), "{:?}", items(&o));
    assert_eq!((w.read("d/f"), w.read("d/model.bin")), ("1".into(), "small".into()));
}

#[test]
fn s3_45_a_file_that_is_recorded_above_a_named_path_is_in_the_way() {
    let w = World::new();
    w.write("d/f", "1");
    let c = w.checkpoint();
    fs::remove_dir_all(w.path("d")).unwrap();
    w.write("d", "a file now");
    w.checkpoint();
    let o = w.restore_with(&c, paths(&["d/f"])).unwrap();
    assert_eq!(action(&o, "d/f").as_deref(), Some("conflict:parent-is-not-a-directory"), "{:?}", items(&o));
    assert_eq!(w.read("d"), "a file now");
}

#[test]
fn t11_a_repository_in_the_place_of_a_folder_is_told_once_at_its_top() {
    let w = World::new();
    for p in ["d/a", "d/b", "d/deep/c"] {
        w.write(p, "1");
    }
    let c = w.checkpoint();
    fs::remove_dir_all(w.path("d")).unwrap();
    fs::create_dir(w.path("d")).unwrap();
    git(&w.path("d"), &["init", "-q", "--bare"]);
    let o = w.restore(&c);
    let told: Vec<String> = items(&o).into_iter().filter(|i| i.starts_with('d')).collect();
    assert_eq!(told, ["d: conflict (bare-repository)"], "{:?}", items(&o));
    assert!(!w.exists("d/a") && w.exists("d/HEAD"));
}

#[test]
fn a_preview_and_force_do_not_wait_for_another_sessions_window() {
    let w = World::new();
    w.write("f", "1");
    let c = w.checkpoint();
    w.write("f", "2");
    let b = Agent { w: &w, id: "b" };
    b.begin("b1");
    b.tool(true, "c1", &[]);
    assert_eq!(w.restore_with(&c, restore::Options::default()).unwrap_err().code, Code::Busy);
    let preview = restore::Options { dry_run: true, ..Default::default() };
    assert_eq!(w.restore_with(&c, preview).unwrap().items.len(), 1);
    assert_eq!(w.read("f"), "2");
    w.restore_with(&c, restore::Options { force: true, ..Default::default() }).unwrap();
    assert_eq!(w.read("f"), "1");
}

#[test]
fn without_a_safety_row_only_bytes_that_no_row_holds_are_kept() {
    let w = World::new();
    w.write("gone", "1");
    w.write("edited", "1");
    let c = w.checkpoint();
    fs::remove_file(w.path("gone")).unwrap();
    w.write("new/unheld", "never recorded");
    w.write("edited", "unsaved text in an editor");
    fs::create_dir(w.path("empty")).unwrap();
    let o = restore::Options { no_safety: true, busy: vec!["edited".into()], ..Default::default() };
    let o = w.restore_with(&c, o).unwrap();
    assert_eq!((w.read("gone"), w.exists("empty")), ("1".into(), false), "{:?}", items(&o));
    for (path, told) in [
        ("new/unheld", "keep:no-safety"),
        // The folder is not tried: it is known to stay.
        ("new", "keep:not-empty"),
        ("edited", "keep:busy"),
    ] {
        assert_eq!(action(&o, path).as_deref(), Some(told), "{path}");
    }
    assert_eq!(w.read("new/unheld"), "never recorded");
}

#[test]
fn r01_a_folder_that_is_ignored_now_gets_back_what_was_in_it() {
    let w = World::new();
    w.write("d/f", "1");
    let c = w.checkpoint();
    w.write(".gitignore", "d/\n");
    w.write("d/f", "2");
    w.write("d/built", "never captured");
    let o = w.restore(&c);
    assert_eq!((w.read("d/f"), w.read("d/built")), ("1".into(), "never captured".into()));
    assert_eq!(action(&o, "d"), None, "it is there: {:?}", items(&o));
}

#[test]
fn a_row_of_everything_comes_back_into_a_folder_that_is_too_wide_now() {
    let mut w = World::new();
    w.write("f", "1");
    w.write("d/g", "1");
    let c = w.checkpoint();
    w.set("BACKSTITCH_LIMITS_ENTRIES", "50");
    for n in 0..60 {
        w.write(&format!("many/{n}"), "x");
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.end();
    for p in ["f", "d/g"] {
        w.write(p, "2");
    }
    let o = w.restore(&c);
    assert_eq!((w.read("f"), w.read("d/g")), ("1".into(), "1".into()), "{:?}", items(&o));
    assert!(w.exists("many/59"), "nobody looked there");
}

#[test]
fn s0_40_a_named_file_elsewhere_comes_back() {
    let w = World::new();
    w.write("f", "0");
    let file = w.dir.path().canonicalize().unwrap().join("beside");
    fs::write(&file, "0").unwrap();
    let name = file.to_str().unwrap();
    let s = Agent { w: &w, id: "s" };
    let c = s.begin("k1");
    s.tool(true, "c1", &[name]);
    fs::write(&file, "1").unwrap();
    s.tool(false, "c1", &[name]);
    s.end();
    let o = restore::Options { outside: true, session: Some("s".into()), ..paths(&[name]) };
    let o = w.restore_with(&c, o).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "0", "{:?}", items(&o));
}

#[test]
fn s0_40_an_undo_waits_for_the_workspace_in_which_it_changes_a_file() {
    let mut w = World::new();
    w.set("BACKSTITCH_LOCK_WAIT", "0");
    w.write("f", "0");
    let other = w.dir.path().canonicalize().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    let file = other.join("g");
    fs::write(&file, "0").unwrap();
    checkpoint_at(&w, &other);
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.tool(true, "c1", &[file.to_str().unwrap()]);
    fs::write(&file, "1").unwrap();
    s.tool(false, "c1", &[file.to_str().unwrap()]);
    s.end();
    let o = s.rewind_with("1", rewind::Options { outside: true, ..Default::default() }).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "0", "{:?}", items(&o));
    let held = open_at(&w, &other)
        .store()
        .unwrap()
        .lock_exclusive("workspace", std::time::Duration::from_secs(10))
        .unwrap();
    assert_eq!(w.undo().unwrap_err().code, Code::Busy);
    drop(held);
    w.undo().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
}

#[test]
fn the_safety_row_holds_all_that_was_looked_at() {
    let w = World::new();
    w.write("f", "0");
    w.write("g", "0");
    let c = w.checkpoint();
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1");
    let held = |text: &str, safety: Option<String>| {
        let mut bytes = Vec::new();
        w.open().cat(&w.find(&safety.unwrap()).unwrap(), "g".into(), &mut bytes).unwrap();
        assert_eq!(bytes, text.as_bytes());
    };
    w.write("g", "typed");
    held("typed", s.rewind("1").safety);
    w.write("f", "2");
    w.write("g", "typed again");
    held("typed again", w.restore_with(&c, globs(&["f"])).unwrap().safety);
    assert_eq!((w.read("f"), w.read("g")), ("0".into(), "typed again".into()));
}

//! What people see.

use std::{io::Read, process::Stdio};

use crate::support::World;

#[test]
fn a_plan_and_an_outcome() {
    let (w, id) = World::changed();
    w.shows(
        &["restore", &id, "--dry-run"],
        "
1 to create, 1 to overwrite, 2 to delete, 1 to change the mode of
  overwrite           a.txt
  delete              new.txt
  change the mode of  run.sh
  create              sub/b.txt
  delete              sub/c.txt
plan 0101010101010101010101010101010101010101",
    );
    w.shows(
        &["restore", &id],
        "
1 created, 1 overwritten, 2 deleted, 1 mode changed
  overwritten   a.txt
  deleted       new.txt
  mode changed  run.sh
  created       sub/b.txt
  deleted       sub/c.txt",
    );
    let run = w.run(&["undo"]);
    assert!(run.stderr.contains("take it back: backstitch redo\n"), "{run}");
    let run = w.run(&["redo"]);
    assert!(run.stderr.contains("take it back: backstitch undo\n"), "{run}");
    w.shows(&["restore", &id], "nothing was to be done");
    w.write("a.txt", "else\n");
    let run = w.run(&["undo"]);
    assert_eq!(run.code, Some(3), "{run}");
    let out = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(out.contains("  conflict  a.txt  (changed since by somebody else)\n"), "{out}");
    assert!(run.stderr.contains("Something was left as it is"), "{run}");
}

#[test]
fn a_deletion_taken_back() {
    let w = World::new();
    let id = w.save(&[]);
    w.text(&["delete", &id]);
    w.shows(&["undo"], "1 checkpoint back in the list");
    w.shows(&["redo"], "1 checkpoint to the trash");
}

#[test]
fn rows() {
    let w = World::new();
    w.save(&["-m", "start"]);
    w.write("a.txt", "x\n");
    w.save(&["--prompt", "Fix the\u{1b}[31m parser\nand more", "--pin", "--session", "s1"]);
    w.shows(
        &["list"],
        "
01k3w8v7q2zc5n01  0s ago  manual  1 file: ~1   [pinned] Fix the\u{fffd}[31m parser
01k3w8v7q2zc5n02  0s ago  manual  4 files: +4  start",
    );
    w.shows(
        &["log", "a.txt"],
        "
01k3w8v7q2zc5n01  0s ago  M  manual  outside  Fix the\u{fffd}[31m parser
01k3w8v7q2zc5n02  0s ago  A  manual  outside  start",
    );
    let text = w.text(&["show", "@"]);
    for line in [
        "session     s1",
        "prompt      Fix the\\u{1b}[31m parser",
        "state       pinned",
        "M  a.txt",
        "1 file: ~1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_diff() {
    let (w, _) = World::changed();
    w.write("we\nird\u{202e}", "x");
    w.shows(
        &["diff"],
        "
M  a.txt
A  new.txt
M  run.sh                 mode 0755 → 0700
R  sub/b.txt → sub/c.txt
A  \"we\\nird\\342\\200\\256\"
5 files: +2 ~2 >1",
    );
}

#[test]
fn errors_end_in_a_sentence_and_a_hint() {
    let (w, _) = World::recorded();
    for (args, want) in [
        (
            &["restore", "nothing"][..],
            "error: no checkpoint is named \"nothing\"\n  hint: `backstitch list --all` shows every checkpoint.\n",
        ),
        (
            &["undo"],
            "error: there is nothing to undo.\n  hint: `backstitch operations` shows what was done.\n",
        ),
    ] {
        assert_eq!(w.run(args).stderr, want);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let w = World::new();
    for n in 0..400 {
        w.write(&format!("many/{n}"), vec![b'x'; 4000]);
    }
    w.save(&[]);
    for args in [&["export", "@", "--tar", "-"][..], &["show", "@", "-v"], &["--json", "show", "@"]] {
        let mut child =
            w.cli.command(&w.ws, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closed before anything is read.
        drop(child.stdout.take());
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn the_exit_code_does_not_depend_on_the_reader() {
    let (w, id) = World::changed();
    w.json(&["restore", &id, "--", "a.txt"]);
    w.write("a.txt", "else\n");
    for args in [&["--json", "undo", "--dry-run"][..], &["undo"]] {
        let mut child =
            w.cli.command(&w.ws, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(3), "{args:?}");
    }
}

#[test]
fn an_output_that_is_full_is_an_error() {
    backstitch_testkit::require!(std::path::Path::new("/dev/full").exists(), "needs /dev/full");
    let (w, _) = World::recorded();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["list"][..], &["cat", "@:a.txt"], &["--json", "status"]] {
        let out = w.cli.command(&w.ws, args).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(!out.stderr.is_empty());
    }
}

#[test]
fn recovery_is_told() {
    let (w, id) = World::changed();
    // An operation whose journal was left behind after it was done.
    w.json(&["restore", &id]);
    let op = w.json(&["operations"])["operations"][0]["id"].as_str().unwrap().to_owned();
    let journal = w.cli.only_store().unwrap().join("journal/operation.json");
    let text = serde_json::json!({"op": op, "root": w.ws.to_str().unwrap()}).to_string();
    std::fs::write(&journal, &text).unwrap();
    let run = w.run(&["list"]);
    assert!(run.stderr.starts_with("note: restore ") && run.stderr.contains(&op), "{run}");
    std::fs::write(&journal, &text).unwrap();
    assert!(w.json(&["status"])["recovered"].as_str().unwrap().contains(&op));
    assert!(!w.run(&["list"]).stderr.contains("note: "));
}

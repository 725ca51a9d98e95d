//! `forget`: the bytes are nowhere, everything else is as before.

use std::{fs, path::Path, sync::atomic::AtomicBool};

use backstitch::{
    checkpoint, coverage,
    error::Code,
    forget::{Options, Outcome},
    record::Checkpoint,
    workspace::Control,
};
use backstitch_testkit::{Git, TreeModel};
use bstr::ByteSlice;

use crate::{
    support::{git, repository, untouched},
    world::{World, action, same},
};

const SECRET: &str = "AKIA-correct-horse-battery-staple-0123456789";

/// Files and objects of the store that hold these bytes, decoded or as they are.
fn holders(w: &World, needle: &[u8]) -> Vec<String> {
    let git_dir = w.git_dir();
    let mut out = Vec::new();
    let batch = Git::new()
        .unwrap()
        .command(&git_dir, ["cat-file", "--batch-all-objects", "--batch"])
        .env("GIT_DIR", &git_dir)
        .output()
        .unwrap();
    assert!(batch.status.success());
    if batch.stdout.contains_str(needle) {
        out.push("an object".to_owned());
    }
    let mut todo = vec![git_dir.parent().unwrap().to_owned()];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(dir).unwrap().flatten() {
            if e.file_type().unwrap().is_dir() {
                todo.push(e.path());
            } else if fs::read(e.path()).unwrap().contains_str(needle) {
                out.push(e.path().display().to_string());
            }
        }
    }
    out
}

fn forget_with(w: &World, o: &Options) -> Result<Outcome, backstitch::error::Error> {
    w.open().forget(o, &Control::default())
}

fn forget(w: &World, paths: &[&str]) -> Outcome {
    forget_with(w, &options(paths)).unwrap()
}

fn options(paths: &[&str]) -> Options {
    Options { paths: paths.iter().map(|p| (*p).into()).collect(), dry_run: false }
}

fn unreached(o: &Outcome) -> Vec<&str> {
    o.unreached.iter().map(|u| u.what).filter(|w| *w != "elsewhere").collect()
}

fn store_model(w: &World) -> TreeModel {
    let locks = |p: &[u8]| p.contains_str("/locks/") || p.starts_with(b"locks") || p.contains_str("state/");
    TreeModel::read_all(w.git_dir().parent().unwrap()).unwrap().filter(|p, _| !locks(p))
}

/// Rows of every kind, in the list and in the trash, operations on the path and beside it.
fn story(w: &World) -> (Checkpoint, TreeModel) {
    w.write("src/main.rs", "fn main() {}\n".repeat(50));
    w.write("conf/.env", format!("KEY={SECRET}\n"));
    w.write("conf/other", "plain");
    w.chmod("conf/.env", 0o600);
    let first = w.checkpoint();
    let model = w.model();
    w.open().pin(&first, true).unwrap();
    w.write("conf/.env", format!("KEY={SECRET}-second\n"));
    w.write("src/main.rs", "fn main() { changed() }\n");
    let second = w.checkpoint();
    w.open().delete(&[&second]).unwrap();
    // Bytes that only an operation and its safety row hold.
    w.write("conf/.env", format!("KEY={SECRET}-third\n"));
    w.restore(&w.find(&first.record.id).unwrap());
    w.write("src/main.rs", "later\n");
    w.checkpoint();
    (first, model)
}

#[test]
fn sem34_the_bytes_leave_rows_trash_operations_and_files() {
    let w = World::new();
    let (first, model) = story(&w);
    assert!(!holders(&w, SECRET.as_bytes()).is_empty(), "the search can find them");
    let told = forget_with(&w, &Options { dry_run: true, ..options(&["conf/.env"]) }).unwrap();
    let o = forget(&w, &["conf/.env"]);
    assert_eq!(
        (&told.rows, &told.operations, told.contents, told.bytes),
        (&o.rows, &o.operations, o.contents, o.bytes)
    );
    assert_eq!(unreached(&o), [] as [&str; 0], "{:?}", o.unreached);
    assert!(o.is_clean() && o.contents == 3 && o.bytes > 0);
    assert_eq!((o.rows.len(), o.operations.len()), (4, 1), "first, second (trash), safety, last");
    assert_eq!(o.present, ["conf/.env"]);
    assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0]);
    w.check_store();
    // Every row is still there, says what it no longer knows, and everything else comes back from it.
    let first = w.find(&first.record.id).unwrap();
    assert!(first.record.pinned && first.record.is_restorable());
    let odb = w.open().odb().unwrap();
    let (_, covers) = coverage::of_checkpoint(&odb, &first).unwrap();
    assert_eq!(covers.skip_at_or_above("conf/.env".into()), Some("forgotten"));
    assert_eq!(first.record.skipped[0].reason, "forgotten");
    w.write("conf/.env", "the present one");
    let before = w.read("conf/.env");
    let out = w.restore(&first);
    assert!(!out.partial, "{:?}", crate::support::items(&out));
    assert_eq!(w.read("conf/.env"), before, "what is not known is left alone");
    let rest = |m: &TreeModel| m.filter(|p, _| p != b"conf/.env");
    same(&rest(&model), &rest(&w.model()), "the rest of the first row");
    // What was in the trash comes back too.
    let delete = w.open().operations().unwrap()[0].record.id.clone();
    let o = backstitch::undo::Options { operation: Some(delete), ..Default::default() };
    w.open().undo(&o, &Control::default()).unwrap();
    assert_eq!(w.open().rows().unwrap().all.iter().filter(|c| c.record.kind.is_counted()).count(), 3);
    w.check_store();
    // Again: what the last safety row recorded since, then nothing is left to forget.
    assert_eq!(forget(&w, &["conf/.env"]).rows.len(), 1);
    assert_eq!(forget_with(&w, &options(&["conf/.env"])).unwrap_err().code, Code::NoSuchPath);
}

#[test]
fn undo_of_an_operation_that_touched_a_forgotten_path_tells_of_it() {
    let w = World::new();
    w.write("secret", SECRET);
    w.write("plain", "one");
    let c = w.checkpoint();
    w.write("secret", format!("{SECRET} changed"));
    w.write("plain", "two");
    w.restore(&c);
    forget(&w, &["secret"]);
    let o = w.undo().unwrap();
    assert_eq!(w.read("plain"), "two");
    assert_eq!(w.read("secret"), SECRET, "left alone");
    assert_eq!(action(&o, "secret").as_deref(), Some("keep:forgotten"));
    assert!(o.partial);
    let o = w.redo().unwrap();
    assert_eq!((w.read("plain").as_str(), action(&o, "plain").as_deref()), ("one", Some("overwrite")));
    // An operation on nothing else is passed.
    w.write("secret", SECRET);
    let c = w.checkpoint();
    w.write("secret", "x");
    w.restore(&c);
    forget(&w, &["secret"]);
    let o = w.undo().unwrap();
    assert!(o.operation.is_some() && o.partial && action(&o, "secret").as_deref() == Some("keep:forgotten"));
    assert_eq!(w.read("secret"), SECRET);
    w.check_store();
}

#[test]
fn a_preview_changes_nothing() {
    let w = World::new();
    story(&w);
    let before = store_model(&w);
    let o = forget_with(&w, &Options { dry_run: true, ..options(&["conf"]) }).unwrap();
    assert!(o.dry_run && o.rows.len() == 4);
    before.assert_same(&store_model(&w), &backstitch_testkit::Compare::default(), "the store");
    assert!(!holders(&w, SECRET.as_bytes()).is_empty());
    let e = forget_with(&w, &options(&["never/was"])).unwrap_err();
    assert_eq!((e.code, e.path.is_some()), (Code::NoSuchPath, true));
    assert_eq!(forget_with(&w, &options(&[""])).unwrap_err().code, Code::Usage);
    before.assert_same(&store_model(&w), &backstitch_testkit::Compare::default(), "the store");
}

#[test]
fn a_folder_is_forgotten_with_all_below_it() {
    let w = World::new();
    for n in 0..5 {
        w.write(&format!("keys/deep/{n}"), format!("{SECRET}-{n}"));
    }
    std::os::unix::fs::symlink(SECRET, w.path("keys/link")).unwrap();
    w.write("plain", "x");
    let c = w.checkpoint();
    let o = forget(&w, &["keys"]);
    assert_eq!(o.contents, 6);
    assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0]);
    let c = w.find(&c.record.id).unwrap();
    assert_eq!(c.record.files, 1);
    let out = w.restore(&c);
    assert!(!out.partial && w.exists("keys/deep/3") && w.exists("keys/link"));
    w.check_store();
}

#[test]
fn the_same_content_elsewhere_is_listed_and_goes_when_it_is_named_too() {
    let w = World::new();
    w.write("a/secret", SECRET);
    w.write("copy", SECRET);
    w.write("b/secret", SECRET);
    w.write("inside", format!("before {SECRET} after"));
    let o = checkpoint::Options { prompt: Some(format!("use {SECRET}")), ..Default::default() };
    let c = w.record(o).unwrap().checkpoint.unwrap();
    let told = forget_with(&w, &Options { dry_run: true, ..options(&["a/secret"]) }).unwrap();
    let found = |o: &Outcome, what: &str| -> Vec<String> {
        let mut l: Vec<String> = o
            .unreached
            .iter()
            .filter(|u| u.what == what)
            .filter_map(|u| u.path.clone())
            .map(|p| p.to_string())
            .collect();
        l.sort();
        l
    };
    assert_eq!(found(&told, "other-path"), ["b/secret", "copy"]);
    assert_eq!(told.contents, 0, "the bytes stay for them");
    // `a` and `b` are the same directory in the store: one of them is written anew.
    let o = forget(&w, &["a/secret"]);
    assert_eq!(found(&o, "other-path"), ["b/secret", "copy"]);
    assert!(!o.is_clean());
    let mut bytes = Vec::new();
    let now = w.find(&c.record.id).unwrap();
    w.open().cat(&now, "b/secret".into(), &mut bytes).unwrap();
    assert_eq!(bytes, SECRET.as_bytes());
    assert_eq!(w.open().cat(&now, "a/secret".into(), &mut bytes).unwrap_err().code, Code::NoSuchPath);
    let o = forget(&w, &["copy", "b/secret"]);
    assert_eq!(found(&o, "other-path"), [] as [&str; 0]);
    assert_eq!(found(&o, "inside"), ["inside"]);
    let record = o.unreached.iter().find(|u| u.what == "record").unwrap();
    assert_eq!(record.rows, [c.record.id.as_str()], "the prompt holds it");
    assert!(!o.is_clean());
    w.check_store();
}

#[test]
fn the_folders_own_repository_is_named_and_not_written() {
    let w = World::new();
    w.write("secret", SECRET);
    w.write("plain", "x");
    repository(&w.root());
    w.checkpoint();
    let before = w.model();
    let o = forget(&w, &["secret"]);
    assert_eq!(unreached(&o), ["repository"]);
    assert!(o.is_clean(), "the store is");
    untouched(&before, &w.root(), "forget");
    assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0]);
    // Packed, and through a linked worktree.
    git(&w.root(), &["repack", "-qad"]);
    w.checkpoint();
    assert_eq!(unreached(&forget(&w, &["secret"])), ["repository"]);
    let tree = w.dir.path().join("tree");
    git(&w.root(), &["worktree", "add", "-q", tree.to_str().unwrap()]);
    crate::support::checkpoint_at(&w, &tree);
    let o = crate::support::open_at(&w, &tree).forget(&options(&["secret"]), &Control::default()).unwrap();
    assert_eq!(unreached(&o), ["repository"]);
}

/// Stops at the first word of this phase.
fn stopped_at(w: &World, phase: &str) -> backstitch::error::Error {
    let flag = AtomicBool::new(false);
    let progress = |what: &str, _: u64, _: u64| {
        if what == phase {
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let control = Control { interrupt: &flag, progress: &progress };
    w.open().forget(&options(&["conf/.env"]), &control).unwrap_err()
}

#[test]
fn what_was_interrupted_is_finished_by_repeating() {
    for phase in ["erasing", "searching"] {
        let w = World::new();
        let (first, _) = story(&w);
        assert_eq!(stopped_at(&w, phase).code, Code::Interrupted, "{phase}");
        let said = w.open().status().unwrap()["warnings"].to_string();
        assert!(said.contains("conf/.env") && said.contains("forget"), "{phase}: {said}");
        let o = forget(&w, &["conf/.env"]);
        assert!(o.resumed && o.is_clean(), "{phase}: {:?}", o.unreached);
        assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0], "{phase}");
        assert_eq!(w.open().status().unwrap()["warnings"].as_array().unwrap().len(), 0);
        assert!(w.open().unfinished_forget().is_none());
        w.restore(&w.find(&first.record.id).unwrap());
        w.check_store();
    }
}

#[test]
fn a_kill_before_the_rows_moved_is_finished_by_repeating() {
    let w = World::new();
    story(&w);
    // As a kill leaves it after the note: some rows done (here: none), the contents noted.
    let odb = w.open().odb().unwrap();
    let row = w.find("@").unwrap();
    let files = backstitch::tree::Root::read(&odb, &row.tree).unwrap().files;
    let oid = backstitch::tree::lookup(&odb, files, "conf/.env".into()).unwrap().unwrap().node.oid().unwrap();
    let note = format!("{{\"paths\":[\"conf/.env\"],\"contents\":[\"{oid}\"]}}");
    fs::write(w.git_dir().parent().unwrap().join("journal/forget.json"), note).unwrap();
    // Captures go on; nothing takes the note for an operation.
    w.write("src/main.rs", "more\n");
    w.checkpoint();
    w.restore(&row);
    let o = forget(&w, &["conf/.env"]);
    assert!(o.resumed && o.is_clean(), "{:?}", o.unreached);
    assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0]);
    w.check_store();
}

#[test]
fn a_parked_copy_and_a_stray_file_are_seen() {
    let w = World::new();
    w.write("secret", SECRET);
    w.checkpoint();
    let store = w.git_dir().parent().unwrap().to_owned();
    let put = |rel: &str| {
        let p: &Path = &store.join(rel);
        fs::create_dir_all(p.parent().unwrap()).unwrap();
        fs::write(p, SECRET).unwrap();
    };
    put("parked/1");
    put("stray");
    let o = forget(&w, &["secret"]);
    assert!(!store.join("parked/1").exists());
    let file = o.unreached.iter().find(|u| u.what == "file").unwrap();
    assert!(file.path.as_ref().unwrap().ends_with_str("/stray"), "{:?}", o.unreached);
    assert!(!o.is_clean());
}

#[test]
fn rows_of_a_session_and_a_rewind_survive_it() {
    let w = World::new();
    let o = |kind| checkpoint::Options { kind, session: Some("s".into()), ..Default::default() };
    w.write("secret", SECRET);
    w.write("plain", "one");
    w.open().checkpoint_in_turn(&o(backstitch::record::Kind::Prompt), &Control::default()).unwrap();
    w.write("secret", format!("{SECRET}-2"));
    w.write("plain", "two");
    w.open().checkpoint_in_turn(&o(backstitch::record::Kind::Turn), &Control::default()).unwrap();
    forget(&w, &["secret"]);
    let ws = w.open();
    let r = backstitch::rewind::Options { to: "1".into(), session: Some("s".into()), ..Default::default() };
    let out = ws.rewind(&r, &Control::default()).unwrap();
    assert_eq!(w.read("plain"), "one");
    assert_eq!(w.read("secret"), format!("{SECRET}-2"), "{:?}", crate::support::items(&out));
}

#[test]
fn a_file_outside_the_workspace_is_forgotten_by_its_absolute_path() {
    let w = World::new();
    w.write("plain", "x");
    let file = w.dir.path().canonicalize().unwrap().join("elsewhere");
    fs::write(&file, SECRET).unwrap();
    let path = file.to_str().unwrap();
    let window = |before| {
        let o = backstitch::session::ToolOptions {
            session: "s".into(),
            call: Some("c".into()),
            paths: vec![path.into()],
            ..Default::default()
        };
        w.open().tool(before, &o, &Control::default()).unwrap();
    };
    w.checkpoint();
    window(true);
    fs::write(&file, format!("{SECRET} changed")).unwrap();
    window(false);
    assert!(!holders(&w, SECRET.as_bytes()).is_empty());
    let o = forget(&w, &[path]);
    assert_eq!((o.contents, o.rows.len()), (2, 2), "{o:?}");
    assert_eq!(holders(&w, SECRET.as_bytes()), [] as [&str; 0]);
    assert_eq!(fs::read(&file).unwrap(), format!("{SECRET} changed").as_bytes());
    w.check_store();
}

#[test]
fn a_later_touch_is_not_taken_for_the_first_that_was_forgotten() {
    let w = World::new();
    w.write(".gitignore", "out/\n");
    let text = |p: &str, n: u32| format!("what {p} holds at {n}");
    let paths = ["secret", "out/env", "a"];
    paths.iter().for_each(|p| w.write(p, text(p, 0)));
    let s = crate::sessions::Agent { w: &w, id: "s" };
    let turn = |n: u32| {
        s.begin(&format!("k{n}"));
        for p in paths {
            s.write(&format!("c{n}{p}"), p, &text(p, n));
        }
        s.end();
    };
    turn(1);
    forget(&w, &["secret", "out/env"]);
    turn(2);
    let is = |n: [u32; 3]| assert_eq!(paths.map(|p| w.read(p)), [0, 1, 2].map(|i| text(paths[i], n[i])));
    let before = w.open().rows().unwrap().all.iter().find(|c| c.record.turn == Some(1)).unwrap().clone();
    w.restore(&before);
    // What the first turn left is no state before it.
    is([2, 2, 0]);
    w.undo().unwrap();
    let o = w.open().rewind(
        &backstitch::rewind::Options { to: "1".into(), session: Some("s".into()), ..Default::default() },
        &Control::default(),
    );
    let o = o.unwrap();
    is([2, 2, 0]);
    for p in ["secret", "out/env"] {
        assert_eq!(action(&o, p).as_deref(), Some("keep:forgotten"), "{p}");
    }
    w.undo().unwrap();
    // The turn after it knows its own beginning.
    let o = w.open().rewind(
        &backstitch::rewind::Options { to: "2".into(), session: Some("s".into()), ..Default::default() },
        &Control::default(),
    );
    assert!(!o.unwrap().partial);
    is([1, 1, 1]);
    w.check_store();
}

//! SEMANTICS 14 below the floor of free disk space: what cannot be copied is moved into the store, and what can be neither
//! is kept.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use backstitch::{
    error::Code, forget, operation::Outcome, record::Checkpoint, restore, rewind, undo::OnConflict,
    workspace::Control,
};
use backstitch_testkit::Compare;

use crate::{
    sessions::Agent,
    world::{World, action, same},
};

/// More than any disk has.
const HUGE: &str = "8000000TB";

fn floor(w: &mut World, size: &str) {
    w.surroundings.settings.retain(|(name, _)| name != "BACKSTITCH_FREE_FLOOR");
    w.set("BACKSTITCH_FREE_FLOOR", size);
}

fn parked_dir(w: &World) -> PathBuf {
    w.open().store().unwrap().parked_dir()
}

fn parked(w: &World) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(parked_dir(w)).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

fn sound(w: &World) {
    let v = w.open().verify(false, &Control::default()).unwrap();
    assert_eq!(v["ok"], true, "{v:#}");
}

fn safety(w: &World, o: &Outcome) -> Checkpoint {
    w.find(o.safety.as_ref().unwrap()).unwrap()
}

/// A row, and changes since of which the store knows only `held`; below the floor from then on.
fn below() -> (World, Checkpoint) {
    let mut w = World::new();
    w.write("a", "one");
    w.write("held", "one");
    w.write("swap/below", "one");
    w.write("mode", "one");
    w.write("gone", "one");
    w.write("same", "one");
    let row = w.checkpoint();
    w.write("held", "two, which a row holds");
    w.checkpoint();
    w.write("a", "two");
    w.chmod("a", 0o640);
    w.write("new/made", "of today");
    fs::write(w.path("new/twin"), "of today").unwrap();
    fs::remove_dir_all(w.path("swap")).unwrap();
    w.write("swap", "a file now");
    w.chmod("mode", 0o600);
    fs::remove_file(w.path("gone")).unwrap();
    floor(&mut w, HUGE);
    (w, row)
}

#[test]
fn s4_14_below_the_floor_what_is_replaced_moves_into_the_store_and_comes_back() {
    let (mut w, row) = below();
    let before = w.model();
    // A preview says the same, and moves nothing.
    let dry = w.restore_with(&row, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    assert!(!dry.partial && parked(&w).is_empty());
    let o = w.restore_with(&row, restore::Options { plan: Some(dry.plan), ..Default::default() }).unwrap();
    assert!(!o.partial && o.verified && o.warnings.is_empty(), "{:?} {:?}", o.items, o.warnings);
    let wanted = w.model();
    assert_eq!(w.read("a"), "one");
    assert!(!w.exists("new") && w.exists("swap/below") && w.exists("gone"));
    // `a`, `swap`, and one for both that were equal; `held` is an object.
    let files = parked(&w);
    assert_eq!(files.len(), 3, "{files:?}");
    for f in &files {
        let m = fs::metadata(f).unwrap();
        assert_eq!((m.permissions().mode() & 0o7777, m.nlink()), (0o600, 1));
    }
    sound(&w);
    let used = w.open().store().unwrap().disk_usage().unwrap().total;
    let before_them = files.iter().map(|f| fs::metadata(f).unwrap().blocks() * 512).sum::<u64>();
    assert!(used > before_them && before_them > 0);

    // The safety row can be read like any other.
    let row_before = safety(&w, &o);
    assert!(row_before.record.is_restorable());
    let out = w.dir.path().join("out");
    w.open().export_dir(&row_before, &out, &Control::default()).unwrap();
    assert_eq!(fs::read(out.join("a")).unwrap(), b"two");
    assert_eq!(fs::read(out.join("new/made")).unwrap(), b"of today");
    let mut patch = Vec::new();
    w.open().export_patch(&row_before, &mut patch, &Control::default()).unwrap();
    assert!(String::from_utf8_lossy(&patch).contains("+of today"));

    w.undo().unwrap();
    same(&w.model(), &before, "undone below the floor");
    w.redo().unwrap();
    same(&w.model(), &wanted, "redone below the floor");
    sound(&w);

    // Too little room to take them in: they stay, and are named.
    let left = w.open().gc(false, &Control::default()).unwrap();
    assert_eq!((left.is_partial(), left.swept.left.len(), parked(&w).len()), (true, 3, 3));
    floor(&mut w, "0");
    let gone = w.open().gc(false, &Control::default()).unwrap();
    assert!(!gone.is_partial() && parked(&w).is_empty(), "{:?}", gone.swept.left);
    w.check_store();
    w.undo().unwrap();
    same(&w.model(), &before, "undone after they became objects");
}

#[test]
fn s4_14_an_undo_below_the_floor_parks_what_it_overwrites() {
    let mut w = World::new();
    w.write("a", "one");
    let row = w.checkpoint();
    w.write("a", "two");
    w.restore(&row);
    w.write("a", "three, by a person");
    floor(&mut w, HUGE);
    let o = backstitch::undo::Options { on_conflict: Some(OnConflict::Overwrite), ..Default::default() };
    let o = w.open().undo(&o, &Control::default()).unwrap();
    assert_eq!((w.read("a").as_str(), parked(&w).len()), ("two", 1));
    let row = safety(&w, &o);
    assert_eq!(row.record.covers.as_deref(), Some(&["a".to_owned()][..]));
    w.restore(&row);
    assert_eq!(w.read("a"), "three, by a person");
    sound(&w);
}

#[test]
fn s4_14_rewind_and_revert_below_the_floor() {
    for revert in [false, true] {
        let mut w = World::new();
        w.write("a", "0\n");
        let s = Agent { w: &w, id: "s" };
        s.turn("k1", "a", "1\n");
        w.write("a", "1\nand a person's\n");
        w.write("other", "a person's");
        floor(&mut w, HUGE);
        let o = rewind::Options { to: "1".into(), session: Some("s".into()), ..Default::default() };
        let o = rewind::Options { on_conflict: OnConflict::Overwrite, ..o };
        let control = Control::default();
        let o = match revert {
            true => w.open().revert(&o, &control).unwrap(),
            false => w.open().rewind(&o, &control).unwrap(),
        };
        assert_eq!(action(&o, "a").as_deref(), Some("overwrite"), "{:?}", o.items);
        assert_eq!((parked(&w).len(), w.read("other").as_str()), (1, "a person's"));
        sound(&w);
        w.undo().unwrap();
        assert_eq!(w.read("a"), "1\nand a person's\n");
    }
}

#[test]
fn s4_14_another_file_system_keeps_what_it_cannot_move() {
    let (mut w, _) = below();
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    };
    if fs::metadata(shm.path()).unwrap().dev() == fs::metadata(w.root()).unwrap().dev() {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    }
    // The same folder with its store elsewhere.
    w.surroundings.store_base = shm.path().join("data");
    floor(&mut w, "0");
    w.write("held", "held");
    let now = w.model();
    let row = w.checkpoint();
    w.write("held", "in a row");
    w.checkpoint();
    w.write("held", "held again by a row");
    w.checkpoint();
    w.write("a", "nowhere but here");
    w.write("fresh/b", "nowhere but here either");
    fs::remove_file(w.path("same")).unwrap();
    floor(&mut w, HUGE);
    let dry = w.restore_with(&row, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    let o = w.restore_with(&row, restore::Options { plan: Some(dry.plan), ..Default::default() }).unwrap();
    assert!(o.partial && parked(&w).is_empty());
    assert_eq!(action(&o, "a").as_deref(), Some("keep:no-room"));
    assert_eq!(action(&o, "fresh/b").as_deref(), Some("keep:no-room"));
    assert_eq!(action(&o, "fresh").as_deref(), Some("keep:not-empty"));
    assert_eq!(action(&o, "held").as_deref(), Some("overwrite"));
    assert_eq!(w.read("a"), "nowhere but here");
    assert_eq!((w.read("held").as_str(), w.read("same").as_str()), ("held", "one"));
    assert!(
        o.warnings[0].contains("a and 1 more were kept") && o.warnings[0].contains("free_floor"),
        "{:?}",
        o.warnings
    );
    sound(&w);
    // With room it is done.
    floor(&mut w, "0");
    assert!(!w.restore(&row).partial);
    same(&w.model(), &now, "restored with room");
    w.check_store();
}

#[test]
fn s4_14_an_undo_that_is_all_kept_is_not_done() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    };
    let mut w = World::new();
    if fs::metadata(shm.path()).unwrap().dev() == fs::metadata(w.root()).unwrap().dev() {
        return backstitch_testkit::skip::skip("s4_14", "there is no second file system");
    }
    w.surroundings.store_base = shm.path().join("data");
    w.write("a", "one");
    let row = w.checkpoint();
    w.write("a", "two");
    w.restore(&row);
    w.write("a", "three");
    floor(&mut w, HUGE);
    let over = backstitch::undo::Options { on_conflict: Some(OnConflict::Overwrite), ..Default::default() };
    let o = w.open().undo(&over, &Control::default()).unwrap();
    assert_eq!((action(&o, "a").as_deref(), o.partial, o.operation), (Some("keep:no-room"), true, None));
    assert_eq!(o.warnings.len(), 1);
    floor(&mut w, "0");
    assert!(w.open().undo(&over, &Control::default()).unwrap().operation.is_some());
    assert_eq!(w.read("a"), "two");
}

#[test]
fn s4_14_a_file_with_another_name_is_kept() {
    let (w, row) = below();
    fs::hard_link(w.path("a"), w.path("other-name")).unwrap();
    let o = w.restore_with(&row, restore::Options::default()).unwrap();
    assert_eq!(action(&o, "a").as_deref(), Some("keep:no-room"));
    assert_eq!(action(&o, "other-name").as_deref(), Some("keep:no-room"));
    assert_eq!(action(&o, "new/made").as_deref(), Some("delete"));
    assert_eq!((o.partial, w.read("a").as_str(), parked(&w).len()), (true, "two", 2));
    sound(&w);
}

#[test]
fn s4_14_without_a_safety_row_what_no_row_holds_is_kept() {
    let (w, row) = below();
    let o = w.restore_with(&row, restore::Options { no_safety: true, ..Default::default() }).unwrap();
    assert_eq!(action(&o, "a").as_deref(), Some("keep:no-safety"));
    assert_eq!(action(&o, "held").as_deref(), Some("overwrite"));
    assert!(o.safety.is_none() && parked(&w).is_empty());
    assert_eq!(w.read("a"), "two");
    sound(&w);
}

#[test]
fn s4_14_what_was_moved_comes_back_when_the_operation_fails() {
    let (mut w, row) = below();
    // Enough files that some are moved before the interrupt is seen.
    for n in 0..40 {
        w.write(&format!("many/{n}"), format!("content {n}"));
        w.write(&format!("many-{n}/f"), format!("another content {n}"));
    }
    let before = w.model();
    let rows = w.open().rows().unwrap().all.len();
    let stop = AtomicBool::new(false);
    let parked_then = AtomicBool::new(false);
    let dir = parked_dir(&w);
    let progress = |what: &str, done: u64, _: u64| {
        if what == "restoring" && done > 0 && fs::read_dir(&dir).unwrap().count() > 3 {
            parked_then.store(true, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control { interrupt: &stop, progress: &progress };
    let e = w.open().restore(&row, &restore::Options::default(), &control).unwrap_err();
    assert_eq!(e.code, Code::Interrupted);
    assert!(parked_then.load(Ordering::Relaxed));
    w.model().assert_same(&before, &Compare::default(), "put back");
    sound(&w);
    // The safety row stays, and speaks for what the store has.
    assert_eq!(w.open().rows().unwrap().all.len(), rows + 1);
    floor(&mut w, "0");
    w.open().gc(false, &Control::default()).unwrap();
    assert_eq!(parked(&w), [] as [PathBuf; 0]);
    w.check_store();
}

#[test]
fn s4_14_what_no_row_needs_is_collected_and_a_dry_run_says_so() {
    let (mut w, row) = below();
    let o = w.restore_with(&row, restore::Options::default()).unwrap();
    let files = parked(&w);
    let bytes: u64 = files.iter().map(|f| fs::metadata(f).unwrap().blocks() * 512).sum();
    w.undo().unwrap();
    w.open().delete(&[&safety(&w, &o)]).unwrap();
    assert_eq!(w.open().gc(false, &Control::default()).unwrap().swept.left.len(), 3, "undo needs them");
    let store = w.open().store().unwrap().clone();
    for r in store.refs().list("refs/backstitch/").unwrap() {
        let keep = r.0.contains("/checkpoints/") && [&row.record.id].iter().any(|id| r.0.ends_with(*id));
        if !keep {
            let edit =
                backstitch_store::Edit { name: r.0, expect: backstitch_store::Expect::Is(r.1), new: None };
            store.refs().apply(&[edit]).unwrap();
        }
    }
    let told = w.open().gc(true, &Control::default()).unwrap();
    assert!(told.freed >= bytes && parked(&w).len() == 3, "{} of {bytes}", told.freed);
    w.open().gc(false, &Control::default()).unwrap();
    assert_eq!(parked(&w), [] as [PathBuf; 0]);
    floor(&mut w, "0");
    w.check_store();
}

#[test]
fn s4_14_a_write_through_an_open_descriptor_is_found() {
    let (mut w, row) = below();
    let mut open = OpenOptions::new().append(true).open(w.path("a")).unwrap();
    let o = w.restore_with(&row, restore::Options::default()).unwrap();
    open.write_all(b" and more").unwrap();
    let v = w.open().verify(false, &Control::default()).unwrap();
    assert_eq!(v["ok"], false, "{v:#}");
    assert!(v.to_string().contains("/parked/"), "{v:#}");
    // Nothing of it is put into the tree, and nobody takes it for an object.
    let e =
        w.restore_with(&safety(&w, &o), restore::Options { paths: vec!["a".into()], ..Default::default() });
    assert_eq!(e.unwrap_err().code, Code::StoreDamaged);
    assert_eq!(w.read("a"), "one");
    floor(&mut w, "0");
    let left = w.open().gc(false, &Control::default()).unwrap();
    assert_eq!((left.swept.left.len(), parked(&w).len()), (1, 1));
    assert!(left.swept.left[0].1.contains("has changed"), "{:?}", left.swept.left);
}

#[test]
fn s4_34_forget_finds_what_is_parked() {
    let mut w = World::new();
    w.write("a", "a first secret");
    let row = w.checkpoint();
    w.write("a", "AKIA-correct-horse-battery-staple");
    w.write("new/made", "of today");
    w.write("plain", "of today, too");
    floor(&mut w, HUGE);
    w.restore_with(&row, restore::Options::default()).unwrap();
    assert_eq!(parked(&w).len(), 3);
    let o = forget::Options { paths: vec!["a".into()], ..Default::default() };
    let o = w.open().forget(&o, &Control::default()).unwrap();
    assert!(o.is_clean(), "{:?}", o.unreached);
    let held = |f: &PathBuf| fs::read_to_string(f).unwrap().contains("AKIA");
    assert_eq!((parked(&w).len(), parked(&w).iter().any(held)), (2, false));
    sound(&w);
    // The rest of the operation can still be taken back.
    let o = w.undo().unwrap();
    assert_eq!(action(&o, "a").as_deref(), Some("keep:forgotten"));
    assert_eq!((w.read("new/made").as_str(), w.read("a").as_str()), ("of today", "a first secret"));
}

#[test]
fn s4_14_the_budget_refuses_no_operation() {
    let mut w = World::new();
    w.write("a", "one");
    let row = w.checkpoint();
    w.write("a", "two");
    let before = w.model();
    w.set("BACKSTITCH_BUDGET", "1KiB");
    assert_eq!(w.record(Default::default()).unwrap_err().code, Code::OverBudget);
    let o = w.restore(&row);
    assert!(!o.partial && parked(&w).is_empty());
    assert_eq!(safety(&w, &o).record.covers, None, "a row of everything");
    w.undo().unwrap();
    same(&w.model(), &before, "undone over the budget");
    w.redo().unwrap();
    w.check_store();
}

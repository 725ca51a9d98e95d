//! K1: a restore never deletes or changes what it has no evidence about.

use std::fs;

use backstitch::{
    checkpoint,
    record::{Kind, State},
    restore,
    workspace::Control,
};
use backstitch_testkit::{Compare, generate::noise, privilege};

use crate::world::{World, action, same};

#[test]
fn r01_paths_that_match_are_neither_deleted_nor_opened() {
    let w = World::new();
    w.write("a.txt", "1");
    w.write("out/data.jsonl", "[]");
    let c = w.checkpoint();
    w.write("a.txt", "2");
    let out = w.model().filter(|p, _| p.starts_with(b"out"));
    let o = w.restore(&c);
    assert_eq!(o.items.iter().filter(|i| i.action.as_str() == "delete").count(), 0);
    let after = w.model().filter(|p, _| p.starts_with(b"out"));
    out.assert_same(&after, &Compare::untouched(), "out/");
    assert_eq!(w.read("a.txt"), "1");
}

#[test]
fn r01_ignored_and_unseen_outputs_stay() {
    let w = World::new();
    w.write(".gitignore", "out/\n*.log\n");
    w.write("a.txt", "1");
    let c = w.checkpoint();
    w.write("out/data.jsonl", "[]");
    w.write("run.log", "new and ignored");
    w.write("a.txt", "2");
    let o = w.restore(&c);
    assert_eq!(o.items.iter().filter(|i| i.action.as_str() == "delete").count(), 0, "{:?}", o.items);
    assert!(w.exists("out/data.jsonl") && w.exists("run.log"));
    assert_eq!(w.read("a.txt"), "1");
}

#[test]
fn r04_when_rules_cannot_be_read_nothing_is_recorded_as_unignored() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("r04", "needs root to drop its user id");
    }
    let w = World::new();
    w.write(".gitignore", "secret/\n");
    w.write("secret/key", "k");
    w.write("a", "1");
    open_to_all(&w);
    let c = privilege::run_as(65534, || w.checkpoint()).unwrap();
    w.chmod(".gitignore", 0o000);
    let e = privilege::run_as(65534, || w.record(checkpoint::Options::default()).map(|_| ())).unwrap();
    if let Err(e) = e {
        assert!(e.to_string().contains(".gitignore"), "{e}");
    } else {
        let rows = w.open().rows().unwrap();
        let last = rows.newest().unwrap();
        assert_ne!(last.record.state, State::Complete);
    }
    let before = w.model();
    let done =
        privilege::run_as(65534, || w.restore_with(&c, restore::Options::default()).map(|_| ())).unwrap();
    drop(done);
    assert!(w.exists("secret/key"));
    let keep = |m: &backstitch_testkit::TreeModel| m.filter(|p, _| p.starts_with(b"secret"));
    keep(&before).assert_same(&keep(&w.model()), &Compare::untouched(), "secret/");
}

pub fn open_to_all(w: &World) {
    use std::os::unix::fs::{PermissionsExt, chown};
    fs::set_permissions(w.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut stack = vec![w.root()];
    while let Some(d) = stack.pop() {
        chown(&d, Some(65534), Some(65534)).unwrap();
        for e in fs::read_dir(&d).unwrap().flatten() {
            std::os::unix::fs::lchown(e.path(), Some(65534), Some(65534)).unwrap();
            if e.file_type().unwrap().is_dir() {
                stack.push(e.path());
            }
        }
    }
}

#[test]
fn r06_names_of_every_script_are_raw_bytes() {
    let w = World::new();
    for n in ["公共.cpp", "仕様.md", "한국어.txt", "плюс.rs"] {
        w.write(n, "then");
    }
    let old = w.model();
    let c = w.checkpoint();
    for n in ["公共.cpp", "仕様.md", "한국어.txt", "плюс.rs"] {
        w.write(n, "now");
    }
    let o = w.restore(&c);
    assert_eq!(o.items.len(), 4);
    same(&old, &w.model(), "restored");
}

#[test]
fn r07_an_implausibly_empty_row_is_no_target() {
    let w = World::new();
    for i in 0..300 {
        w.write(&format!("d{}/f{i}", i % 7), "x");
    }
    w.checkpoint();
    // The snapshot step sees nothing at all.
    let aside = w.dir.path().join("aside");
    fs::create_dir(&aside).unwrap();
    for i in 0..7 {
        fs::rename(w.path(&format!("d{i}")), aside.join(format!("d{i}"))).unwrap();
    }
    let empty = w.checkpoint();
    for i in 0..7 {
        fs::rename(aside.join(format!("d{i}")), w.path(&format!("d{i}"))).unwrap();
    }
    let before = w.model();
    let e = w.restore_with(&empty, restore::Options::default()).unwrap_err();
    assert_eq!(e.code.as_str(), "not-restorable");
    before.assert_same(&w.model(), &Compare::untouched(), "refused");
    assert!(empty.record.notes.iter().any(|n| n.contains("less than half")), "{:?}", empty.record.notes);
}

#[test]
fn r08_a_full_restore_saves_what_it_removes() {
    let w = World::new();
    w.write("readme", "x");
    let c = w.checkpoint();
    for i in 0..500 {
        w.write(&format!("code/f{i}"), format!("{i}"));
    }
    let full = w.model();
    let o = w.restore(&c);
    let safety = o.safety.unwrap();
    assert!(!w.exists("code"));
    let saved = w.find(&safety).unwrap();
    assert_eq!((saved.record.files, saved.record.kind), (501, Kind::Safety));
    w.undo().unwrap();
    same(&full, &w.model(), "undone");
}

#[test]
fn r08_no_delete_keeps_what_came_later() {
    let w = World::new();
    w.write("readme", "x");
    let c = w.checkpoint();
    w.write("readme", "y");
    w.write("code/f", "1");
    let o = w.restore_with(&c, restore::Options { no_delete: true, ..Default::default() }).unwrap();
    assert_eq!(action(&o, "code/f").as_deref(), Some("keep:no-delete"));
    assert!(!o.partial);
    assert_eq!((w.read("readme"), w.read("code/f")), ("x".into(), "1".into()));
}

#[test]
fn r11_what_a_limit_left_out_is_listed_and_never_touched() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "100KiB");
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    w.write("model.bin", &bytes);
    w.write("a", "1");
    let c = w.record(checkpoint::Options::default()).unwrap();
    assert!(c.is_partial());
    let row = c.checkpoint.unwrap();
    let skip = &row.record.skipped[0];
    assert_eq!((skip.path.as_str(), skip.reason.as_str()), ("model.bin", "limit"));
    w.write("a", "2");
    let before = w.model().filter(|p, _| p == b"model.bin");
    w.restore(&row);
    before.assert_same(&w.model().filter(|p, _| p == b"model.bin"), &Compare::untouched(), "model.bin");
    assert_eq!(w.read("a"), "1");
    // Limits lowered or raised later change nothing about what that row says.
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1GiB");
    w.restore(&row);
    assert!(w.exists("model.bin"));
}

#[test]
fn t11_a_rule_that_appears_later_is_no_deletion() {
    let w = World::new();
    w.write("keep.dat", "precious");
    w.write("big/x", "1");
    let c = w.checkpoint();
    w.write(".gitignore", "*.dat\nbig/\n");
    let d = w.record(checkpoint::Options::default()).unwrap().checkpoint.unwrap();
    assert_eq!(d.record.summary.deleted, 0, "{:?}", d.record.summary);
    let diff = w.open().diff(Some(&c), Some(&d), &Default::default(), &Control::default()).unwrap();
    assert!(diff.changes.iter().all(|c| c.status.as_str() != "D"), "{:?}", diff.changes);
    // Going back to the row with the rule does not delete what it leaves out.
    fs::remove_file(w.path(".gitignore")).unwrap();
    w.write("keep.dat", "newer");
    w.restore(&d);
    assert_eq!(w.read("keep.dat"), "precious", "a small ignored file is kept, and put back");
    assert!(w.exists("big/x"));
}

#[test]
fn t11_rules_of_then_protect_what_was_not_there_then() {
    let w = World::new();
    w.write(".gitignore", "*.dat\n");
    w.write("a", "1");
    let c = w.checkpoint();
    fs::remove_file(w.path(".gitignore")).unwrap();
    w.write("new.dat", "made when no rule spoke of it");
    let o = w.restore(&c);
    assert_eq!(action(&o, "new.dat").as_deref(), Some("keep:ignored-then"));
    assert!(w.exists("new.dat") && w.exists(".gitignore"));
}

#[test]
fn s3_named_paths_only() {
    let w = World::new();
    w.write("a", "1");
    w.write("b", "1");
    w.write("d/c", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    w.write("b", "2");
    w.write("d/new", "2");
    w.write("new", "2");
    let o = w
        .restore_with(&c, restore::Options { paths: vec!["a".into(), "d".into()], ..Default::default() })
        .unwrap();
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!((w.read("a"), w.read("b")), ("1".into(), "2".into()));
    assert!(!w.exists("d/new"), "inside the named scope the rule of evidence holds");
    assert!(w.exists("new"), "outside nothing happens");
    let e = w
        .restore_with(&c, restore::Options { paths: vec!["nowhere".into()], ..Default::default() })
        .unwrap_err();
    assert_eq!((e.code.as_str(), e.path.unwrap().to_string().as_str()), ("no-such-path", "nowhere"));
}

#[test]
fn s2_21_names_are_literal_and_globs_are_asked_for() {
    let w = World::new();
    for n in ["note[1].txt", "note1.txt", "d/note1.txt", "*"] {
        w.write(n, "then");
    }
    let c = w.checkpoint();
    for n in ["note[1].txt", "note1.txt", "d/note1.txt", "*"] {
        w.write(n, "now");
    }
    w.restore_with(
        &c,
        restore::Options { paths: vec!["note[1].txt".into(), "*".into()], ..Default::default() },
    )
    .unwrap();
    assert_eq!(
        (w.read("note[1].txt"), w.read("note1.txt"), w.read("*")),
        ("then".into(), "now".into(), "then".into())
    );
    w.restore_with(&c, restore::Options { globs: vec!["note*.txt".into()], ..Default::default() }).unwrap();
    assert_eq!((w.read("note1.txt"), w.read("d/note1.txt")), ("then".into(), "then".into()));
}

#[test]
fn r45_one_checkpoint_takes_no_more_than_its_limit_and_the_next_goes_on() {
    let mut w = World::new();
    w.set("BACKSTITCH_CHECKPOINT_LIMIT", "300KiB");
    for i in 0..10u32 {
        let bytes: Vec<u8> =
            (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8 ^ i as u8).collect();
        w.write(&format!("big{i}"), bytes);
    }
    let o = w.record(checkpoint::Options::default()).unwrap();
    assert!(o.is_partial());
    let left: Vec<_> = o.skips.iter().filter(|s| s.reason.as_str() == "budget").collect();
    assert!((5..=8).contains(&left.len()), "{:?}", o.skips);
    let before = w.model();
    let o2 = w.restore(&o.checkpoint.unwrap());
    assert!(o2.items.iter().all(|i| !i.action.changes()), "{:?}", o2.items);
    before.assert_same(&w.model(), &Compare::untouched(), "nothing is taken for absent");
    let next = w.record(checkpoint::Options::default()).unwrap();
    assert!(next.skips.len() < left.len());
}

#[test]
fn r46_a_file_of_holes_does_not_stall_the_capture() {
    let w = World::new();
    fs::File::create(w.path("disk.img")).unwrap().set_len(1 << 40).unwrap();
    w.write("a", "1");
    let o = w.record(checkpoint::Options::default()).unwrap();
    assert!(o.is_partial());
    assert_eq!((o.skips[0].path.to_string().as_str(), o.skips[0].reason.as_str()), ("disk.img", "limit"));
    w.write("a", "2");
    w.restore(&o.checkpoint.unwrap());
    assert_eq!(fs::metadata(w.path("disk.img")).unwrap().len(), 1 << 40);
}

#[test]
fn r10_what_leaves_the_scope_stays_on_the_disk() {
    let mut w = World::new();
    w.write(".gitignore", "big/\n");
    w.write("a", "1");
    w.write("big/foo", "mine");
    let without = w.checkpoint();
    w.set("BACKSTITCH_INCLUDE", "big/");
    let with = w.checkpoint();
    assert_eq!(with.record.files, without.record.files + 1);
    // The wider scope is taken back.
    w.surroundings.settings.pop();
    let again = w.checkpoint();
    let before = w.model().filter(|p, _| p.starts_with(b"big"));
    for row in [&without, &again, &without, &with] {
        w.write("a", "2");
        w.restore(row);
        before.assert_same(&w.model().filter(|p, _| p.starts_with(b"big")), &Compare::untouched(), "big/");
        w.undo().unwrap();
        before.assert_same(&w.model().filter(|p, _| p.starts_with(b"big")), &Compare::untouched(), "big/");
    }
}

/// A row of named paths speaks for those alone; what it carries is there to be looked at (SEMANTICS 1).
#[test]
fn r01_what_a_row_only_carries_is_neither_put_back_nor_deleted() {
    let w = World::new();
    w.write("a", "1");
    w.write("b", "1");
    w.checkpoint();
    let named = checkpoint::Options { paths: vec!["a".into()], ..Default::default() };
    let c = w.record(named).unwrap().checkpoint.unwrap();
    for p in ["a", "b", "later"] {
        w.write(p, "2");
    }
    let only = |p: &str| {
        w.restore_with(&c, restore::Options { paths: vec![p.into()], ..Default::default() }).unwrap()
    };
    let o = only("b");
    assert_eq!((action(&o, "b").as_deref(), o.partial), (Some("skip:not-covered"), true));
    let o = only("later");
    assert!(o.items.iter().all(|i| !i.action.changes()), "{:?}", o.items);
    assert_eq!((w.read("b"), w.read("later")), ("2".into(), "2".into()));
    let o = w.restore(&c);
    assert_eq!(o.items.iter().filter(|i| i.action.changes()).count(), 1, "{:?}", o.items);
    assert_eq!((w.read("a"), w.read("b"), w.exists("later")), ("1".into(), "2".into(), true));
}

#[test]
fn s2_21_a_pattern_that_fits_a_folder_means_all_below_it() {
    let w = World::new();
    let all = ["gen/deep/x", "gen.d/y", "other/z", "top"];
    for p in all {
        w.write(p, "then");
    }
    let c = w.checkpoint();
    for (glob, fits) in [("gen*", &all[..2]), ("other/", &all[2..3]), ("deep", &all[..1])] {
        for p in all {
            w.write(p, "now");
        }
        w.restore_with(&c, restore::Options { globs: vec![glob.into()], ..Default::default() }).unwrap();
        for p in all {
            assert_eq!(w.read(p), if fits.contains(&p) { "then" } else { "now" }, "{glob}: {p}");
        }
    }
}

#[test]
fn t11_what_is_left_alone_is_told_once_at_its_top() {
    let w = World::new();
    w.write(".gitignore", "made/\n");
    let c = w.checkpoint();
    fs::remove_file(w.path(".gitignore")).unwrap();
    for p in ["made/a", "made/b", "made/deep/c"] {
        w.write(p, "x");
    }
    let o = w.restore(&c);
    let kept: Vec<_> = o.items.iter().filter(|i| i.path.starts_with(b"made")).collect();
    assert_eq!(kept.len(), 1, "{:?}", o.items);
    assert_eq!(action(&o, "made").as_deref(), Some("keep:ignored-then"));
}

#[test]
fn s3_45_a_named_file_brings_the_folders_above_it() {
    let w = World::new();
    w.write("d/e/f", "1");
    w.write("d/other", "1");
    w.chmod("d", 0o750);
    let c = w.checkpoint();
    fs::remove_dir_all(w.path("d")).unwrap();
    let o =
        w.restore_with(&c, restore::Options { paths: vec!["d/e/f".into()], ..Default::default() }).unwrap();
    assert_eq!((action(&o, "d").as_deref(), action(&o, "d/e").as_deref()), (Some("mkdir"), Some("mkdir")));
    assert_eq!((w.read("d/e/f"), w.exists("d/other")), ("1".into(), false));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(w.path("d")).unwrap().permissions().mode() & 0o777, 0o750);
    w.undo().unwrap();
    assert!(!w.exists("d"), "the folders go with it");
    // What has become a file meanwhile is in the way, and stays.
    w.write("d", "a file now");
    let o =
        w.restore_with(&c, restore::Options { paths: vec!["d/e/f".into()], ..Default::default() }).unwrap();
    assert!(o.partial && w.read("d") == "a file now", "{:?}", o.items);
}

#[test]
fn r11_a_named_path_that_was_left_out_then_is_no_success() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1KiB");
    let noise = noise(40_000, 1);
    w.write("model.bin", &noise);
    w.write("a", "1");
    let c = w.checkpoint();
    let o = w
        .restore_with(&c, restore::Options { paths: vec!["model.bin".into()], ..Default::default() })
        .unwrap();
    assert_eq!(
        (action(&o, "model.bin").as_deref(), o.partial),
        (Some("skip:not-covered-then:limit"), true),
        "{:?}",
        o.items
    );
    assert_eq!(fs::read(w.path("model.bin")).unwrap(), noise);
    // The same, where it was not named and would be covered today: what should be there is not known.
    w.write("model.bin", "small");
    let o = w.restore(&c);
    assert_eq!(
        (action(&o, "model.bin").as_deref(), o.partial),
        (Some("keep:not-covered-then:limit"), true),
        "{:?}",
        o.items
    );
    assert_eq!(w.read("model.bin"), "small");
}

#[test]
fn r11_what_came_since_and_is_too_large_stays_and_is_named() {
    let mut w = World::new();
    w.set("BACKSTITCH_LIMITS_NEW_FILE", "1KiB");
    w.write("a", "1");
    w.write("gone/b", "1");
    let c = w.checkpoint();
    let noise = noise(40_000, 1);
    w.write("model.bin", &noise);
    w.write("new/model.bin", &noise);
    w.write("new/small", "1");
    fs::remove_dir_all(w.path("gone")).unwrap();
    w.write("gone", &noise);
    let preview = w
        .restore_with(&c, restore::Options { dry_run: true, no_delete: true, ..Default::default() })
        .unwrap();
    assert!(preview.partial, "{:?}", preview.items);
    let o = w.restore(&c);
    for path in ["model.bin", "new/model.bin"] {
        assert_eq!(action(&o, path).as_deref(), Some("keep:limit"), "{:?}", o.items);
        assert_eq!(fs::read(w.path(path)).unwrap(), noise);
    }
    // What the target holds there is put back, and the safety row has what it replaced.
    assert_eq!((w.read("gone/b"), w.exists("new/small"), o.partial), ("1".into(), false, true));
    w.undo().unwrap();
    assert_eq!(fs::read(w.path("gone")).unwrap(), noise);
    // Elsewhere it is nobody's business.
    let o = w.restore_with(&c, restore::Options { paths: vec!["a".into()], ..Default::default() }).unwrap();
    assert!(!o.partial && o.items.is_empty(), "{:?}", o.items);
}

#[test]
fn r01_an_ignored_folder_in_the_place_of_a_file_stays() {
    let w = World::new();
    w.write("out", "a file then");
    let c = w.checkpoint();
    fs::remove_file(w.path("out")).unwrap();
    w.write(".gitignore", "out/\n");
    w.write("out/data", "never captured");
    let before = w.model().filter(|p, _| p.starts_with(b"out"));
    let o = w.restore(&c);
    assert!(o.partial, "{:?}", o.items);
    before.assert_same(&w.model().filter(|p, _| p.starts_with(b"out")), &Compare::untouched(), "out/");
}

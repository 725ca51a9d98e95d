//! K3 and K5: no false success, no silence, and no stall that outlives its cause.

use std::{fs, sync::atomic::AtomicBool};

use backstitch::{
    checkpoint,
    error::Code,
    record::{Kind, State},
    rewind,
    session::TurnOptions,
    workspace::{Control, Workspace},
};
use backstitch_testkit::{Compare, Git, privilege};

use crate::{
    cases_k1::open_to_all,
    sessions::Agent,
    support::{checkpoint_at, open_at, restore_at},
    world::{World, same},
};

#[test]
fn r24_r27_plain_folders_and_foreign_repositories_are_covered() {
    for foreign in [None, Some(".hg"), Some(".svn")] {
        let w = World::new();
        if let Some(d) = foreign {
            w.write(&format!("{d}/state"), "x");
        }
        w.write("a.txt", "1");
        let c = w.checkpoint();
        w.write("a.txt", "2");
        w.restore(&c);
        assert_eq!(w.read("a.txt"), "1");
    }
}

#[test]
fn r28_a_store_that_cannot_be_written_is_an_error_and_the_rows_stay_readable() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("r28", "needs root to drop its user id");
    }
    let w = World::new();
    w.write("a", "1");
    open_to_all(&w);
    let c = privilege::run_as(65534, || w.checkpoint()).unwrap();
    let store = w.open().store_dir().to_owned();
    lock_down(&store, 0o500, 0o400);
    w.write("a", "2");
    let e = privilege::run_as(65534, || w.record(checkpoint::Options::default()).unwrap_err()).unwrap();
    assert!(e.path.is_some() && e.code.exit() != 0, "{e:?}");
    let list = privilege::run_as(65534, || w.open().rows().unwrap().all.len()).unwrap();
    assert_eq!(list, 1);
    let bytes = privilege::run_as(65534, || {
        let mut b = Vec::new();
        w.open().cat(&c, "a".into(), &mut b).unwrap();
        b
    })
    .unwrap();
    assert_eq!(bytes, b"1");
    lock_down(&store, 0o700, 0o600);
}

#[test]
fn r25_a_turn_whose_capture_fails_says_so_and_offers_nothing() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("r25", "needs root to drop its user id");
    }
    let w = World::new();
    w.write(".gitignore", "");
    w.write("a", "1");
    open_to_all(&w);
    let s = Agent { w: &w, id: "s" };
    let turn = |key: &str, text: Option<&str>| {
        privilege::run_as(65534, || {
            s.begin(key);
            text.into_iter().for_each(|t| w.write("a", t));
            s.end();
        })
        .unwrap();
    };
    turn("k1", None);
    // Rules that cannot be read: nothing can be recorded without guessing.
    w.chmod(".gitignore", 0o000);
    turn("k2", Some("2"));
    w.chmod(".gitignore", 0o644);
    turn("k3", Some("3"));
    let rows = w.open().rows().unwrap();
    let of = |turn| rows.all.iter().filter(move |c| c.record.turn == Some(turn)).collect::<Vec<_>>();
    assert!(of(1).iter().chain(&of(3)).all(|c| c.record.state == State::Complete));
    let failed = of(2);
    assert_eq!(failed.iter().map(|c| c.record.kind).collect::<Vec<_>>(), [Kind::Prompt, Kind::Turn]);
    for c in failed {
        let why = c.record.reason.as_deref().unwrap();
        assert!(
            c.record.state == State::Gap && why.contains("no checkpoint") && why.contains(".gitignore"),
            "{why}"
        );
        assert!(!c.record.is_restorable());
        let v = backstitch::view::checkpoint(&w.open(), c);
        assert_eq!((&v["state"], &v["restorable"]), (&"gap".into(), &false.into()));
        assert_eq!(v["tree"].as_str().unwrap().len(), 40, "no empty id");
        assert_eq!(w.restore_with(c, Default::default()).unwrap_err().code.exit(), 5);
    }
    // The turns around it are as ever; of the one without checkpoints nothing is claimed.
    let rewind = |n: &str| {
        let o = rewind::Options { to: n.into(), session: Some("s".into()), ..Default::default() };
        w.open().rewind(&o, &Control::default()).unwrap()
    };
    rewind("3");
    assert_eq!(w.read("a"), "2");
    let o = rewind("2");
    assert_eq!(
        (w.read("a").as_str(), o.operation.is_some() && !o.items.is_empty() && !o.partial),
        ("2", false)
    );
    // A store that takes no row at all is an error, as ever.
    let store = w.open().store_dir().to_owned();
    lock_down(&store, 0o500, 0o400);
    let o = TurnOptions { session: "s".into(), key: Some("k4".into()), ..Default::default() };
    let e = privilege::run_as(65534, || w.open().turn_begin(&o, &Control::default()).map(|_| ()));
    assert!(e.unwrap().is_err());
    lock_down(&store, 0o700, 0o600);
}

#[test]
fn r32_a_path_with_a_drive_letter_and_mixed_case_keeps_its_rows() {
    for name in ["C:", "C:\\Users\\Me\\Work", "c:", "MiXeD Case"] {
        let w = World::new();
        let dir = w.path(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a"), "1").unwrap();
        let c = checkpoint_at(&w, &dir);
        fs::write(dir.join("a"), "2").unwrap();
        // Each of these opens anew, as another process would.
        let listed: Vec<String> =
            open_at(&w, &dir).rows().unwrap().all.iter().map(|c| c.record.id.clone()).collect();
        assert_eq!(listed, [c.record.id.as_str()], "{name}");
        assert!(!restore_at(&w, &dir, &c).unwrap().partial);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        // The other spelling is another folder here.
        let other = w.path(&name.to_lowercase());
        assert_eq!(open_at(&w, &other).has_store(), other == dir, "{name}");
    }
}

fn lock_down(dir: &std::path::Path, d: u32, f: u32) {
    use std::os::unix::fs::PermissionsExt;
    for e in fs::read_dir(dir).unwrap().flatten() {
        if e.file_type().unwrap().is_dir() {
            lock_down(&e.path(), d, f);
        } else {
            fs::set_permissions(e.path(), fs::Permissions::from_mode(f)).unwrap();
        }
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(d)).unwrap();
}

#[test]
fn r29_set_up_that_fails_says_why_and_changes_nothing() {
    // The base is a file; the store's place is a file; the manifest is no JSON; the manifest names another folder.
    let breaks: [&dyn Fn(&World); 4] = [
        &|w| fs::write(w.dir.path().join("data"), "x").unwrap(),
        &|w| {
            let s = w.open().store_dir().to_owned();
            fs::create_dir_all(s.parent().unwrap()).unwrap();
            fs::write(s, "x").unwrap();
        },
        &|w| {
            let s = w.open().store_dir().to_owned();
            fs::create_dir_all(&s).unwrap();
            fs::write(s.join("manifest.json"), "{").unwrap();
        },
        &|w| {
            w.checkpoint();
            let m = w.open().store_dir().join("manifest.json");
            let text = fs::read_to_string(&m).unwrap().replace("/w\"", "/elsewhere\"");
            fs::write(m, text).unwrap();
        },
    ];
    for (n, break_it) in breaks.iter().enumerate() {
        let w = World::new();
        w.write("a", "1");
        break_it(&w);
        let before = w.model();
        let e = Workspace::open(&w.root(), w.surroundings.clone())
            .and_then(|mut ws| {
                ws.checkpoint(&checkpoint::Options::default(), &Control::default()).map(|_| ())
            })
            .unwrap_err();
        assert!(!e.message.is_empty() && e.path.is_some(), "{n}: {e:?}");
        before.assert_same(&w.model(), &Compare::untouched(), "untouched");
    }
}

#[test]
fn r35_what_cannot_be_carried_out_says_so() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    // The pack behind the row is gone.
    let packs = w.git_dir().join("objects/pack");
    let aside = w.dir.path().join("aside");
    fs::rename(&packs, &aside).unwrap();
    fs::create_dir(&packs).unwrap();
    let before = w.model();
    let ws = w.open();
    match ws.rows() {
        Ok(rows) => {
            assert!(
                rows.all.is_empty()
                    || w.restore_with(&c, Default::default()).unwrap_err().code == Code::StoreDamaged
            );
        }
        Err(e) => assert_eq!(e.code, Code::StoreDamaged),
    }
    before.assert_same(&w.model(), &Compare::untouched(), "untouched");
    // The folder was moved.
    fs::remove_dir_all(&packs).unwrap();
    fs::rename(&aside, &packs).unwrap();
    let moved = w.dir.path().join("moved");
    fs::rename(w.root(), &moved).unwrap();
    let mut ws = Workspace::open(&moved, w.surroundings.clone()).unwrap();
    let e = ws.rows().unwrap_err();
    assert_eq!(e.code, Code::WrongWorkspace);
    assert!(e.hint.unwrap().contains("relink"));
    assert_eq!(
        ws.checkpoint(&checkpoint::Options::default(), &Control::default()).unwrap_err().code,
        Code::WrongWorkspace,
        "a second history would shut the first one out"
    );
    ws.relink(&w.dir.path().join("w")).unwrap();
    let rows = ws.rows().unwrap();
    ws.restore(rows.by_id(&c.record.id).unwrap(), &Default::default(), &Control::default()).unwrap();
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "1");
}

#[test]
fn r39_first_use_in_a_brand_new_folder() {
    let w = World::new();
    let c = w.checkpoint();
    w.write("a", "first file ever");
    w.restore(&c);
    assert!(!w.exists("a"));
    w.undo().unwrap();
    assert_eq!(w.read("a"), "first file ever");
}

#[test]
fn r31_forty_files_in_ten_folders() {
    let w = World::new();
    for i in 0..40 {
        w.write(&format!("d{}/f{i}", i % 10), "then");
    }
    let old = w.model();
    let c = w.checkpoint();
    for i in 0..40 {
        w.write(&format!("d{}/f{i}", i % 10), format!("now {i}"));
    }
    let o = w.restore(&c);
    assert_eq!(o.items.len(), 40);
    assert!(o.verified && !o.partial);
    same(&old, &w.model(), "restored");
}

#[test]
fn r30_list_preview_and_restore_name_the_same_files() {
    let w = World::new();
    for i in 0..60 {
        w.write(&format!("f{i}"), "0");
    }
    w.checkpoint();
    for turn in 0..20 {
        let before = w.find("@").unwrap();
        for i in 0..3 {
            w.write(&format!("f{}", turn * 3 + i), format!("turn {turn}"));
        }
        let row = w.checkpoint();
        assert_eq!(row.record.summary.modified, 3);
        let (_, changes) = w.open().show(&row).unwrap();
        let shown: Vec<_> = changes.iter().map(|c| c.path.clone()).collect();
        let preview = w
            .restore_with(&before, backstitch::restore::Options { dry_run: true, ..Default::default() })
            .unwrap();
        let planned: Vec<_> = preview.items.iter().map(|i| i.path.clone()).collect();
        let real = w.restore(&before);
        let done: Vec<_> = real.items.iter().map(|i| i.path.clone()).collect();
        assert_eq!(shown, planned);
        assert_eq!(planned, done);
        w.undo().unwrap();
    }
}

#[test]
fn r63_ignored_folders_are_not_entered() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("r63", "needs root to drop its user id");
    }
    let w = World::new();
    w.write(".gitignore", "deps/\n");
    w.write("deps/a/b/c", "x");
    w.write("a", "1");
    open_to_all(&w);
    // Whoever enters it notices.
    w.chmod("deps", 0o000);
    let o = privilege::run_as(65534, || w.record(checkpoint::Options::default()).unwrap()).unwrap();
    assert!(!o.is_partial(), "{:?}", o.skips);
    w.chmod("deps", 0o755);
}

#[test]
fn r66_a_cancelled_capture_leaves_no_row_and_no_leftovers() {
    let w = World::new();
    for i in 0..200 {
        w.write(&format!("d{}/f{i}", i % 5), "x");
    }
    w.checkpoint();
    w.write("new", "y");
    let store = crate::world::everything_below(&w.git_dir());
    let stop = AtomicBool::new(true);
    let control = Control { interrupt: &stop, progress: &|_, _, _| {} };
    let e = w.open().checkpoint(&checkpoint::Options::default(), &control).unwrap_err();
    assert_eq!(e.code, Code::Interrupted);
    store.assert_same(&crate::world::everything_below(&w.git_dir()), &Compare::default(), "store");
    assert_eq!(w.open().rows().unwrap().all.len(), 1);
}

#[test]
fn r69_switched_off_stays_off_and_says_so() {
    let mut w = World::new();
    w.write("a", "1");
    w.checkpoint();
    w.open().set_enabled(false).unwrap();
    assert_eq!(w.record(checkpoint::Options::default()).unwrap_err().code, Code::Disabled);
    let s = w.open().status().unwrap();
    assert_eq!(s["enabled"], false);
    assert!(s["reason"].as_str().unwrap().contains("backstitch disable"));
    w.open().set_enabled(true).unwrap();
    w.checkpoint();
    w.surroundings.disabled = true;
    assert_eq!(w.record(checkpoint::Options::default()).unwrap_err().code, Code::Disabled);
    assert_eq!(w.open().status().unwrap()["reason"], "BACKSTITCH_DISABLE is set");
}

#[test]
fn t02_unreadable_is_unknown_never_absent() {
    if !privilege::is_root() {
        return backstitch_testkit::skip::skip("t02", "needs root to drop its user id");
    }
    let w = World::new();
    w.write("secret", "old");
    w.write("dir/inner", "old");
    w.write("a", "1");
    open_to_all(&w);
    w.chmod("secret", 0o000);
    w.chmod("dir", 0o000);
    let o = privilege::run_as(65534, || w.record(checkpoint::Options::default()).unwrap()).unwrap();
    assert!(o.is_partial());
    let row = o.checkpoint.unwrap();
    assert_eq!(row.record.state, State::Partial);
    let mut named: Vec<_> = row.record.skipped.iter().map(|s| (s.path.as_str(), s.reason.as_str())).collect();
    named.sort_unstable();
    assert_eq!(named, [("dir", "unreadable"), ("secret", "unreadable")]);
    w.chmod("secret", 0o600);
    w.chmod("dir", 0o755);
    w.write("a", "2");
    let before = w.model().filter(|p, _| p != b"a");
    let o = privilege::run_as(65534, || w.restore_with(&row, Default::default()).unwrap()).unwrap();
    assert_eq!(o.items.iter().filter(|i| i.action.as_str() == "delete").count(), 0);
    before.assert_same(&w.model().filter(|p, _| p != b"a"), &Compare::untouched(), "unknown");
}

#[test]
fn store_is_accepted_by_stock_git_and_checks_out() {
    let w = World::new();
    w.write("a", "1");
    w.write("d/.gitattributes", "* text\n");
    w.write("x.sh", "#!/bin/sh\n");
    w.chmod("x.sh", 0o755);
    std::os::unix::fs::symlink("a", w.path("l")).unwrap();
    let c = w.checkpoint();
    let out = w.dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let git = Git::new().unwrap();
    git.fsck_strict(&w.git_dir()).unwrap();
    git.stock_checkout(&w.git_dir(), &format!("{}:files", c.commit), &out).unwrap();
    let found = crate::world::everything_below(&out);
    w.model().filter(|_, e| e.kind != backstitch_testkit::Kind::Dir).assert_same(
        &found.filter(|_, e| e.kind != backstitch_testkit::Kind::Dir),
        &Compare::as_git(),
        "stock checkout",
    );
}

#[test]
fn r64_each_of_fifty_steps_reads_what_it_changed() {
    let w = World::new();
    for i in 0..5000 {
        let dir = w.path(&format!("d{}", i % 100));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), format!("{i}")).unwrap();
    }
    w.checkpoint();
    // Settles what was too young to be trusted.
    w.checkpoint();
    let mut read = 0;
    for n in 0..50 {
        w.write(&format!("d{}/f{}", n % 100, n), format!("step {n}"));
        let o = w.record(checkpoint::Options::default()).unwrap();
        assert_eq!(o.checkpoint.unwrap().record.summary.modified, 1);
        read += o.read.0;
    }
    // What a step wrote may still be too young in the next ones.
    assert!((50..=200).contains(&read), "{read} files were read for 50 edits");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak < 200 << 10, "{peak} KiB at most");
}

//! Faults of earlier engines, one test for each.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::atomic::{AtomicUsize, Ordering},
};

use backstitch::{checkpoint, diff, error::Code, plan::Progress, restore, workspace::Control};
use backstitch_testkit::Git;

use crate::{
    support::{
        checkpoint_at, content, doctor, git, items, no_litter, open_at, repository, restore_at, rev,
        untouched,
    },
    world::{World, action, everything_below, same},
};

#[test]
fn t05_bits_links_and_a_vanished_object() {
    let w = World::new();
    w.write("script", "#!/bin/sh");
    w.chmod("script", 0o750);
    w.write("private", "p");
    w.chmod("private", 0o600);
    w.write("target", "t");
    symlink("target", w.path("link")).unwrap();
    let before = w.model();
    let c = w.checkpoint_paths(&["script", "private", "link"]);
    w.chmod("script", 0o644);
    w.write("private", "changed");
    w.chmod("private", 0o666);
    fs::remove_file(w.path("link")).unwrap();
    w.write("link", "a file in the place of the link");
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "bits and links; the target of the link was not followed");
    // An object that has vanished stops everything before it begins.
    let row = w.checkpoint();
    w.write("private", "2");
    w.write("script", "2");
    let now = w.model();
    for e in fs::read_dir(w.git_dir().join("objects/pack")).unwrap().flatten() {
        fs::remove_file(e.path()).unwrap();
    }
    let e = w.restore_with(&row, restore::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::StoreDamaged);
    untouched(&now, &w.root(), "nothing was begun");
}

#[test]
fn t06_names_that_begin_with_dots_are_inside() {
    let w = World::new();
    for p in ["..cache/x", "..a", "...", "d/..x/y", "d/.../z"] {
        w.write(p, p);
    }
    let before = w.model();
    let c = w.checkpoint();
    for p in ["..cache/x", "..a", "...", "d/..x/y", "d/.../z"] {
        fs::remove_file(w.path(p)).unwrap();
        let o = w.restore_with(&c, restore::Options { paths: vec![p.into()], ..Default::default() }).unwrap();
        assert!(!o.partial, "{p}: {:?}", items(&o));
        assert_eq!(w.read(p), p);
    }
    fs::remove_dir_all(w.path("..cache")).unwrap();
    w.restore(&c);
    same(&before, &w.model(), "whole");
}

#[test]
fn t07_diff_names_are_exact() {
    let w = World::new();
    let names: [&[u8]; 6] = [
        b"tab\there",
        b"new\nline",
        b"\xff\xfe",
        "ü → 仕様".as_bytes(),
        b"quote\"back\\slash",
        b" lead and trail ",
    ];
    let a = w.checkpoint();
    for n in names {
        fs::write(w.root().join(crate::support::os(n)), "x").unwrap();
    }
    let b = w.checkpoint();
    for options in [diff::Options::default(), diff::Options { stat: true, patch: true, ..Default::default() }]
    {
        let d = w.open().diff(Some(&a), Some(&b), &options, &Control::default()).unwrap();
        let mut found: Vec<&[u8]> = d.changes.iter().map(|c| c.path.as_slice()).collect();
        let mut wanted = names.to_vec();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }
    // The patch is one that git reads.
    let d = w
        .open()
        .diff(Some(&a), Some(&b), &diff::Options { patch: true, ..Default::default() }, &Control::default())
        .unwrap();
    let other = tempfile::tempdir().unwrap();
    let patch = w.dir.path().join("patch");
    fs::write(&patch, d.patch.unwrap()).unwrap();
    Git::new().unwrap().run(other.path(), ["apply".as_ref(), patch.as_os_str()]).unwrap();
    for n in names {
        assert_eq!(fs::read(other.path().join(crate::support::os(n))).unwrap(), b"x");
    }
}

#[test]
fn t08_diff_against_the_live_tree_shows_what_was_created_since() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    w.write("new/deep", "n");
    let d = w.open().diff(Some(&c), None, &diff::Options::default(), &Control::default()).unwrap();
    let found: Vec<String> = d.changes.iter().map(|c| format!("{} {}", c.status.as_str(), c.path)).collect();
    assert_eq!(found, ["M a", "A new/deep"]);
}

#[test]
fn t09_a_name_in_a_scoped_restore_is_no_pattern() {
    let w = World::new();
    for p in ["*.rs", "a.rs", "b.rs", "[ab].rs", "d?r/x", "dir/x", "!a.rs", "#x", "dir*/y"] {
        w.write(p, "1");
    }
    let c = w.checkpoint();
    for p in ["*.rs", "[ab].rs", "d?r", "!a.rs", "#x", "dir*"] {
        let before = w.model();
        for f in before.entries.iter().filter(|(_, e)| e.content.is_some()) {
            fs::write(w.root().join(crate::support::os(f.0)), "2").unwrap();
        }
        let o = w.restore_with(&c, restore::Options { paths: vec![p.into()], ..Default::default() }).unwrap();
        let changed: Vec<String> =
            o.items.iter().filter(|i| i.action.changes()).map(|i| i.path.to_string()).collect();
        assert_eq!(changed.len(), 1, "{p}: {changed:?}");
        assert!(changed[0] == p || changed[0].starts_with(&format!("{p}/")), "{p}: {changed:?}");
    }
    // A pattern is one when it is asked for.
    let o =
        w.restore_with(&c, restore::Options { globs: vec!["[ab].rs".into()], ..Default::default() }).unwrap();
    let changed: Vec<String> =
        o.items.iter().filter(|i| i.action.changes()).map(|i| i.path.to_string()).collect();
    assert_eq!(changed, ["a.rs", "b.rs"]);
}

#[test]
fn t10_a_store_inside_the_workspace_is_not_captured_into_itself() {
    let mut w = World::new();
    w.surroundings.store_base = w.path("tools/my store");
    w.write("a", "1");
    w.write("tools/own", "1");
    let c = w.checkpoint();
    assert_eq!(c.record.files, 2, "{:?}", c.record.skipped);
    for _ in 0..3 {
        assert!(w.checkpoint().record.unchanged, "its own growth is no change");
    }
    w.write("a", "2");
    w.write("made/x", "x");
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    assert!(!w.exists("made"), "emptied directories go");
    assert_eq!(w.open().rows().unwrap().all.len(), 5);
    w.undo().unwrap();
    assert_eq!(w.read("made/x"), "x");
    w.check_store();
}

#[test]
fn t14_the_executable_bit_is_data() {
    let w = World::new();
    for (f, mode) in [("run", 0o755), ("plain", 0o644), ("odd", 0o611), ("none", 0o000), ("group", 0o660)] {
        w.write(f, f);
        w.chmod(f, mode);
    }
    fs::create_dir(w.path("dir")).unwrap();
    w.chmod("dir", 0o1775);
    let before = w.model();
    let c = w.checkpoint();
    for f in ["run", "plain", "odd", "none", "group"] {
        w.chmod(f, 0o777);
    }
    w.chmod("dir", 0o700);
    let inode = fs::metadata(w.path("run")).unwrap().ino();
    let o = w.restore(&c);
    assert!(!o.partial && o.items.iter().all(|i| i.action.as_str() == "mode"), "{:?}", items(&o));
    same(&before, &w.model(), "bits only");
    assert_eq!(fs::metadata(w.path("run")).unwrap().ino(), inode, "the content was not written");
    // Setuid comes back only when asked for.
    w.chmod("run", 0o4755);
    let c = w.checkpoint();
    fs::remove_file(w.path("run")).unwrap();
    let o = w.restore_with(&c, restore::Options::default()).unwrap();
    assert!(o.partial, "it is told: {:?}", items(&o));
    assert_eq!(fs::metadata(w.path("run")).unwrap().mode() & 0o7777, 0o755);
    w.restore(&c);
    assert_eq!(fs::metadata(w.path("run")).unwrap().mode() & 0o7777, 0o4755);
}

#[test]
fn t15_nested_repositories_are_no_gitlinks() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    w.write("nested/f", "1");
    repository(&w.path("nested"));
    git(&w.root(), &["-c", "advice.addEmbeddedRepo=false", "add", "nested"]);
    let before = content(&w.root());
    let repo = everything_below(&w.path("nested/.git"));
    let c = w.checkpoint();
    let tree = Git::new().unwrap().tree_model(&w.git_dir(), &format!("{}:files", c.commit)).unwrap();
    assert!(tree.entries.contains_key(b"nested/f".as_slice()), "content, in a tree");
    fs::remove_file(w.path("nested/f")).unwrap();
    w.write("nested/new", "x");
    w.restore(&c);
    same(&before, &content(&w.root()), "restored");
    untouched(&repo, &w.path("nested/.git"), "its repository");
    // Where nested ones are a boundary, they are left out by rule and left alone.
    let mut b = World::new();
    b.set("BACKSTITCH_NESTED", "boundary");
    b.write("a", "1");
    b.write("nested/f", "1");
    repository(&b.path("nested"));
    let c = b.checkpoint();
    assert!(
        c.record.skipped.iter().any(|s| s.path == "nested" && s.reason == "nested"),
        "{:?}",
        c.record.skipped
    );
    b.write("nested/f", "2");
    let o = b.restore(&c);
    assert_eq!(b.read("nested/f"), "2", "{:?}", items(&o));
}

#[test]
fn t16_no_filter_runs() {
    let w = World::new();
    let oracle = Git::new().unwrap();
    let hostile = oracle.hostile_repository(&w.root()).unwrap();
    fs::write(w.path(".gitattributes"), "* filter=trap text eol=crlf\n").unwrap();
    w.write("x.txt", "a\nb\r\n");
    let before = w.model();
    let c = w.checkpoint();
    w.write("x.txt", "changed\n");
    w.restore(&c);
    same(&before, &w.model(), "bytes of the disk");
    assert!(hostile.sprung().unwrap().is_empty());
}

#[test]
fn t19_a_clock_that_goes_back_reorders_nothing() {
    let w = World::new();
    w.write("a", "1");
    let first = w.checkpoint();
    // The first row was made when the clock was far ahead.
    let root = rev(&w.git_dir(), &format!("{}^{{tree}}", first.commit));
    let ahead = first.record.created_ms + 10 * 365 * 86_400_000;
    doctor(&w, &first, &root, |r| r.created_ms = ahead);
    w.write("a", "2");
    let second = w.checkpoint();
    assert_eq!(
        second.record.parent.as_deref(),
        Some(first.record.id.as_str()),
        "the parent is the row before"
    );
    w.write("a", "3");
    let third = w.checkpoint();
    assert_eq!(third.record.parent.as_deref(), Some(second.record.id.as_str()));
    assert_eq!(w.find("@").unwrap().record.id, third.record.id);
    assert_eq!(w.find("@~2").unwrap().record.id, first.record.id);
    let order: Vec<String> = w.open().rows().unwrap().all.into_iter().map(|c| c.record.id.clone()).collect();
    assert_eq!(order, [first.record.id.clone(), second.record.id.clone(), third.record.id.clone()]);
}

/// The first group of files is written; then somebody changes something.
fn meanwhile<'a>(
    w: &'a World,
    what: &'a (dyn Fn() + Sync),
    count: &'a AtomicUsize,
) -> impl Fn(&str, u64, u64) + Sync + use<'a> {
    let _ = w;
    move |stage: &str, _: u64, _: u64| {
        if stage == "restoring" && count.fetch_add(1, Ordering::Relaxed) == 0 {
            what();
        }
    }
}

#[test]
fn t20_what_was_written_is_read_back() {
    let w = World::new();
    w.write("a/f", "recorded");
    w.write("b/f", "recorded");
    let c = w.checkpoint();
    w.write("a/f", "present");
    w.write("b/f", "present");
    let count = AtomicUsize::new(0);
    // An editor's save lands on what was just written.
    let save = || fs::write(w.path("a/f"), "saved after").unwrap();
    let progress = meanwhile(&w, &save, &count);
    let control = Control { progress: &progress, ..Control::default() };
    let o = w.open().restore(&c, &restore::Options::default(), &control).unwrap();
    assert!(count.load(Ordering::Relaxed) > 0, "the save happened");
    assert!(o.partial);
    let item = o.items.iter().find(|i| i.path == "a/f").unwrap();
    assert_eq!((item.result, item.reason.as_deref()), (Progress::Failed, Some("changed-after")));
    assert_eq!((w.read("a/f"), w.read("b/f")), ("saved after".into(), "recorded".into()));
    // Undo does not take the save for its own.
    w.undo().unwrap();
    assert_eq!((w.read("a/f"), w.read("b/f")), ("saved after".into(), "present".into()));
}

#[test]
fn t21_swaps_and_read_only_targets() {
    let w = World::new();
    w.write("file-then", "f");
    w.write("dir-then/x/y", "d");
    symlink("file-then", w.path("link-then")).unwrap();
    w.write("ro", "r");
    w.chmod("ro", 0o400);
    w.write("rodir/inner", "r");
    w.chmod("rodir", 0o555);
    w.write("chain-1", "1");
    w.write("chain-2", "2");
    let before = w.model();
    let c = w.checkpoint();
    fs::remove_file(w.path("file-then")).unwrap();
    w.write("file-then/deep/er", "now a directory");
    fs::remove_dir_all(w.path("dir-then")).unwrap();
    symlink("/nowhere", w.path("dir-then")).unwrap();
    fs::remove_file(w.path("link-then")).unwrap();
    w.write("link-then/x", "now a directory");
    w.chmod("ro", 0o600);
    w.write("ro", "changed");
    w.chmod("ro", 0o400);
    w.chmod("rodir", 0o755);
    w.write("rodir/inner", "changed");
    w.chmod("rodir", 0o555);
    // A chain of renames in a circle.
    fs::rename(w.path("chain-1"), w.path("t")).unwrap();
    fs::rename(w.path("chain-2"), w.path("chain-1")).unwrap();
    fs::rename(w.path("t"), w.path("chain-2")).unwrap();
    let dirty = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "restored");
    w.undo().unwrap();
    same(&dirty, &w.model(), "undone");
    no_litter(&dirty);
}

#[test]
fn t22_a_save_between_look_and_write_is_kept() {
    let w = World::new();
    for f in ["a/first", "b/saved", "b/removed", "b/replaced", "c/deleted-by-plan"] {
        w.write(f, "recorded");
    }
    fs::remove_file(w.path("c/deleted-by-plan")).unwrap();
    let c = w.checkpoint();
    for f in ["a/first", "b/saved", "b/removed", "b/replaced", "c/deleted-by-plan", "d/also"] {
        w.write(f, "present");
    }
    let count = AtomicUsize::new(0);
    let save = || {
        fs::write(w.path("b/saved"), "the editor's save").unwrap();
        fs::remove_file(w.path("b/removed")).unwrap();
        fs::remove_file(w.path("b/replaced")).unwrap();
        fs::create_dir(w.path("b/replaced")).unwrap();
        fs::write(w.path("c/deleted-by-plan"), "wanted after all").unwrap();
    };
    let progress = meanwhile(&w, &save, &count);
    let control = Control { progress: &progress, ..Control::default() };
    let o = w.open().restore(&c, &restore::Options::default(), &control).unwrap();
    assert!(count.load(Ordering::Relaxed) > 0 && o.partial, "{:?}", items(&o));
    assert_eq!(w.read("b/saved"), "the editor's save");
    assert_eq!(w.read("c/deleted-by-plan"), "wanted after all");
    assert!(w.path("b/replaced").is_dir() && !w.exists("b/removed"));
    assert_eq!(w.read("a/first"), "recorded");
    assert!(!w.exists("d"), "what nobody touched is done");
    for p in ["b/saved", "b/removed", "b/replaced", "c/deleted-by-plan"] {
        assert_eq!(action(&o, p).as_deref(), Some("conflict:changed"), "{:?}", items(&o));
    }
    no_litter(&w.model());
}

#[test]
fn t22_a_plan_that_was_confirmed_is_the_plan_that_is_done() {
    let w = World::new();
    w.write("a", "recorded");
    w.write("b", "recorded");
    let c = w.checkpoint();
    w.write("a", "present");
    let look = || w.restore_with(&c, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    let seen = look();
    assert_eq!(seen.plan, look().plan, "the same disk gives the same plan");
    let changes: [&dyn Fn(); 5] = [
        &|| w.write("a", "changed between"),
        &|| w.write("new", "made between"),
        &|| fs::remove_file(w.path("b")).unwrap(),
        &|| w.chmod("a", 0o600),
        &|| {
            fs::remove_file(w.path("a")).unwrap();
            symlink("b", w.path("a")).unwrap();
        },
    ];
    for change in changes {
        let seen = look();
        change();
        let before = w.model();
        let e =
            w.restore_with(&c, restore::Options { plan: Some(seen.plan), ..Default::default() }).unwrap_err();
        assert_eq!(e.code, Code::PlanChanged);
        untouched(&before, &w.root(), "refused");
    }
    let seen = look();
    let o =
        w.restore_with(&c, restore::Options { plan: Some(seen.plan.clone()), ..Default::default() }).unwrap();
    assert_eq!((&o.plan, items_of(&o)), (&seen.plan, items_of(&seen)), "done as shown");
}

fn items_of(o: &backstitch::operation::Outcome) -> Vec<(String, &'static str)> {
    o.items.iter().map(|i| (i.path.to_string(), i.action.as_str())).collect()
}

impl World {
    fn checkpoint_paths(&self, paths: &[&str]) -> backstitch::record::Checkpoint {
        let paths = paths.iter().map(|p| (*p).into()).collect();
        self.record(checkpoint::Options { paths, ..Default::default() }).unwrap().checkpoint.unwrap()
    }
}

/// A store that is used by another folder of the same name is never mixed up.
#[test]
fn t10_two_folders_of_one_name() {
    let w = World::new();
    w.write("x/app/f", "1");
    w.write("y/app/f", "2");
    let (x, y) = (w.path("x/app"), w.path("y/app"));
    let cx = checkpoint_at(&w, &x);
    let cy = checkpoint_at(&w, &y);
    w.write("x/app/f", "changed");
    restore_at(&w, &x, &cx).unwrap();
    assert_eq!((w.read("x/app/f"), w.read("y/app/f")), ("1".into(), "2".into()));
    assert_ne!(open_at(&w, &x).store_dir(), open_at(&w, &y).store_dir());
    assert!(open_at(&w, &y).rows().unwrap().by_id(&cy.record.id).is_some());
    assert!(fs::metadata(open_at(&w, &x).store_dir()).unwrap().permissions().mode() & 0o077 == 0, "private");
}

//! K10: names, types, modes, bytes, times.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
};

use backstitch::record::State;
use backstitch_testkit::{Compare, TreeModel, generate::HOSTILE, privilege, require, skip};

use crate::{
    support::{Volume, content, git, items, mkfifo, no_litter, os, repository, shell, with_xattrs, world_at},
    world::{World, action, everything_below, same},
};

fn hostile_names() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = HOSTILE.iter().map(|n| n.to_vec()).collect();
    all.push(vec![b'x'; 255]);
    all.push("漢".repeat(85).into_bytes());
    all.push(vec![0xff; 255]);
    all.push(b"%bs%".repeat(60));
    all
}

#[test]
fn r109_names_come_back_byte_by_byte() {
    let mut w = World::new();
    w.set("BACKSTITCH_INCLUDE", "*");
    let at = |n: &[u8]| w.root().join(os(n));
    let names = hostile_names();
    for n in &names {
        fs::write(at(n), n).unwrap();
        // The same as a directory and as a link.
        let dir = w.path("as-dir").join(os(n));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(os(n)), n).unwrap();
        fs::create_dir_all(w.path("as-link")).unwrap();
        symlink(os(n), w.path("as-link").join(os(n))).unwrap();
    }
    let first = w.model();
    let c = w.checkpoint();
    // Edit a third, delete a third, swap a third for something else; create unrelated ones.
    for (i, n) in names.iter().enumerate() {
        match i % 3 {
            0 => fs::write(at(n), "edited").unwrap(),
            1 => fs::remove_file(at(n)).unwrap(),
            _ => {
                fs::remove_file(at(n)).unwrap();
                fs::create_dir(at(n)).unwrap();
                fs::write(at(n).join("inner"), "x").unwrap();
            }
        }
        let mut other = n.clone();
        other.truncate(250);
        other.extend_from_slice(b"+new");
        fs::write(at(&other), "new").unwrap();
    }
    fs::remove_dir_all(w.path("as-dir")).unwrap();
    fs::remove_dir_all(w.path("as-link")).unwrap();
    let second = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&first, &w.model(), "restored");
    w.undo().unwrap();
    same(&second, &w.model(), "undone");
    // A name that looks like a pattern or an option is only a name when it is named.
    let star = backstitch::restore::Options { paths: vec!["*".into(), "-rf".into()], ..Default::default() };
    let o = w.restore_with(&c, star).unwrap();
    let changed: Vec<_> = o.items.iter().filter(|i| i.action.changes()).map(|i| i.path.to_string()).collect();
    assert!(
        changed.iter().all(|p| p == "*" || p.starts_with("*/") || p == "-rf" || p.starts_with("-rf/")),
        "{changed:?}"
    );
    w.check_store();
}

#[test]
fn r111_every_byte_comes_back() {
    let w = World::new();
    let all: Vec<u8> = (0..=255).collect();
    let files: BTreeMap<&str, Vec<u8>> = [
        ("all", all.clone()),
        ("all-twice", all.repeat(300)),
        ("nul", vec![0; 10_000]),
        ("one-nul", vec![0]),
        ("empty", Vec::new()),
        ("bad-utf8", b"\xff\xfe\x80abc\xc3\x28\xed\xa0\x80".to_vec()),
        ("bom", b"\xef\xbb\xbftext\r\n".to_vec()),
        ("utf16", b"\xff\xfea\0b\0\r\0\n\0".to_vec()),
        ("png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01".to_vec()),
        (
            "db.sqlite",
            [b"SQLite format 3\0".as_slice(), &[16, 0, 1, 1, 0, 64, 32, 32], &vec![7; 4096]].concat(),
        ),
        ("no-newline", b"a\nb".to_vec()),
        ("cr", b"a\rb\r\nc\n\r".to_vec()),
        ("conflict", b"<<<<<<< HEAD\n=======\n>>>>>>> x\n".to_vec()),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_vec()),
        // As large as what is streamed, and as what becomes an object of its own.
        ("streamed", all.repeat(9 << 12)),
        ("huge", all.repeat(68 << 10)),
    ]
    .into();
    for (name, bytes) in &files {
        w.write(name, bytes);
    }
    let before = w.model();
    let c = w.checkpoint();
    for name in files.keys() {
        w.write(name, "gone");
    }
    let dirty = w.model();
    w.restore(&c);
    same(&before, &w.model(), "restored");
    for (name, bytes) in &files {
        assert!(fs::read(w.path(name)).unwrap() == *bytes, "{name}");
    }
    w.undo().unwrap();
    same(&dirty, &w.model(), "undone");
    w.check_store();
}

#[test]
fn r111_holes_come_back_as_holes() {
    let w = World::new();
    let f = fs::File::create(w.path("sparse")).unwrap();
    f.set_len(24 << 20).unwrap();
    f.write_all_at(b"head", 0).unwrap();
    f.write_all_at(b"middle", 9 << 20).unwrap();
    drop(f);
    let tail = fs::File::create(w.path("all-hole")).unwrap();
    tail.set_len(3 << 20).unwrap();
    drop(tail);
    let blocks = |n: &str| fs::metadata(w.path(n)).unwrap().blocks();
    require!(blocks("sparse") < 2048, "no holes on this file system");
    let before = w.model();
    let c = w.checkpoint();
    for n in ["sparse", "all-hole"] {
        w.write(n, "x");
    }
    w.restore(&c);
    same(&before, &w.model(), "the same bytes");
    assert!(
        blocks("sparse") < 2048 && blocks("all-hole") < 256,
        "{} {}",
        blocks("sparse"),
        blocks("all-hole")
    );
}

#[test]
fn r113_both_spellings_are_kept_where_case_counts() {
    let w = World::new();
    require!(!w.path("../W").exists(), "this volume folds case");
    w.write("Hello.txt", "upper");
    w.write("hello.txt", "lower");
    w.write("Dir/x", "upper");
    w.write("dir/x", "lower");
    let before = w.model();
    let c = w.checkpoint();
    fs::remove_file(w.path("Hello.txt")).unwrap();
    fs::rename(w.path("Dir"), w.path("dIR")).unwrap();
    let dirty = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "both are back");
    w.undo().unwrap();
    same(&dirty, &w.model(), "undone");
    // A case-only rename is a rename here as anywhere.
    w.redo().unwrap();
    fs::remove_file(w.path("hello.txt")).unwrap();
    fs::rename(w.path("Hello.txt"), w.path("hELLO.txt")).unwrap();
    w.restore(&c);
    same(&before, &w.model(), "once more");
}

fn spelled(w: &World) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(w.root()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn r113_a_case_only_rename_where_case_does_not_count() {
    let Some(volume) = Volume::folding("r113_a_case_only_rename_where_case_does_not_count") else { return };
    let w = world_at(&volume.path());
    w.write("Hello.txt", "1");
    w.write("Dir/inner", "1");
    let c = w.checkpoint();
    fs::rename(w.path("Hello.txt"), w.path("tmp")).unwrap();
    fs::rename(w.path("tmp"), w.path("hello.txt")).unwrap();
    fs::rename(w.path("Dir"), w.path("tmp")).unwrap();
    fs::rename(w.path("tmp"), w.path("dir")).unwrap();
    assert_eq!(spelled(&w), ["dir", "hello.txt"]);
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(spelled(&w), ["Dir", "Hello.txt"]);
    assert_eq!((w.read("Hello.txt"), w.read("Dir/inner")), ("1".into(), "1".into()));
    w.undo().unwrap();
    assert_eq!(spelled(&w), ["dir", "hello.txt"]);
}

#[test]
fn r115_only_what_changed_is_written() {
    let w = World::new();
    for i in 0..1000 {
        w.write(&format!("d{}/s{}/f{i}", i % 10, i % 7), format!("source {i}"));
    }
    let c = w.checkpoint();
    for i in [3, 500, 999] {
        w.write(&format!("d{}/s{}/f{i}", i % 10, i % 7), "changed");
    }
    let before = w.model();
    let o = w.restore(&c);
    assert_eq!(o.items.len(), 3, "{:?}", items(&o));
    let after = w.model();
    let moved = before
        .entries
        .iter()
        .filter(|(p, e)| e.kind == backstitch_testkit::Kind::File && after.entries[*p].identity != e.identity)
        .count();
    assert_eq!(moved, 3, "997 files keep times and inode");
    assert!(before.touched_though_equal(&after).is_empty());
    // What is rewritten gets a time of its own, so that builds notice.
    for i in [3usize, 500, 999] {
        let p = format!("d{}/s{}/f{i}", i % 10, i % 7).into_bytes();
        let time = |m: &TreeModel| m.entries[&p].identity.as_ref().unwrap().mtime_ns;
        assert!(time(&after) > time(&before));
    }
}

#[test]
fn r115_make_rebuilds_only_what_depends_on_it() {
    require!(privilege::has_program("make"), "needs make");
    let mut w = World::new();
    // Else what was built is put back with what it was built from.
    w.set("BACKSTITCH_IGNORED", "none");
    w.write(".gitignore", "*.out\nlog\n");
    w.write(
        "Makefile",
        "all: $(patsubst %.in,%.out,$(wildcard *.in))\n%.out: %.in\n\tcp $< $@; echo $< >> log\n",
    );
    for i in 0..20 {
        w.write(&format!("f{i}.in"), format!("{i}"));
    }
    shell(&w.root(), "make -s");
    let c = w.checkpoint();
    let built = |names: &[&str]| {
        fs::write(w.path("log"), "").unwrap();
        shell(&w.root(), "make -s");
        let mut log: Vec<String> = w.read("log").lines().map(str::to_owned).collect();
        log.sort();
        assert_eq!(log, names);
    };
    built(&[]);
    for i in [1, 5, 7] {
        w.write(&format!("f{i}.in"), "changed");
    }
    let changed = ["f1.in", "f5.in", "f7.in"];
    built(&changed);
    w.restore(&c);
    built(&changed);
}

#[test]
fn r116_a_sparse_checkout_stays_sparse_and_odd_names_are_literal() {
    let w = World::new();
    for (p, t) in [
        ("small/a", "a"),
        ("big/b", "b"),
        ("big/deep/c", "c"),
        ("top", "t"),
        (":(top)*", "odd"),
        (":(glob)**", "odd"),
    ] {
        w.write(p, t);
    }
    repository(&w.root());
    git(&w.root(), &["sparse-checkout", "set", "--no-cone", "/*", "!/big/"]);
    assert!(!w.exists("big") && w.exists("small"));
    let before = w.model();
    let c = w.checkpoint();
    w.write("small/a", "changed");
    w.write("top", "changed");
    fs::remove_file(w.path(":(top)*")).unwrap();
    w.write("new", "x");
    // Only the odd one is meant.
    let one = backstitch::restore::Options { paths: vec![":(top)*".into()], ..Default::default() };
    w.restore_with(&c, one).unwrap();
    assert_eq!(
        (w.read(":(top)*"), w.read("small/a"), w.read("top")),
        ("odd".into(), "changed".into(), "changed".into())
    );
    w.restore(&c);
    assert!(!w.exists("big"));
    same(&before, &w.model(), "restored");
    // Nor does what appears in `big` for a moment count as missing.
    git(&w.root(), &["sparse-checkout", "disable"]);
    assert!(w.exists("big/b"));
    let c2 = w.checkpoint();
    git(&w.root(), &["sparse-checkout", "set", "--no-cone", "/*", "!/big/"]);
    w.restore(&c2);
    assert_eq!(w.read("big/deep/c"), "c");
}

#[test]
fn r117_what_cannot_be_stored_is_listed_by_type() {
    let w = World::new();
    let outside = w.dir.path().canonicalize().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s").unwrap();
    w.write("file", "f");
    symlink("nowhere/at/all", w.path("dangling")).unwrap();
    symlink("loop-b", w.path("loop-a")).unwrap();
    symlink("loop-a", w.path("loop-b")).unwrap();
    symlink(".", w.path("self")).unwrap();
    symlink("..", w.path("up")).unwrap();
    symlink(&outside, w.path("out")).unwrap();
    symlink("/proc/self/root", w.path("proc")).unwrap();
    mkfifo(&w.path("pipe"));
    let _socket = UnixListener::bind(w.path("sock")).unwrap();
    let c = w.checkpoint();
    let mut skips: Vec<(String, String)> =
        c.record.skipped.iter().map(|s| (s.path.clone(), s.reason.clone())).collect();
    skips.sort();
    assert_eq!(skips, [("pipe".into(), "fifo".into()), ("sock".into(), "socket".into())]);
    assert_eq!(c.record.state, State::Complete);
    assert_eq!(c.record.files, 8, "a file and seven links, nothing behind them");
    // Change all; what is special stays what it is.
    let links = ["dangling", "loop-a", "loop-b", "self", "up", "out", "proc"];
    let before = w.model();
    for l in links {
        fs::remove_file(w.path(l)).unwrap();
        fs::write(w.path(l), "a file now").unwrap();
    }
    w.write("file", "changed");
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "restored");
    assert_eq!(everything_below(&outside).entries.len(), 1);
    assert!(fs::symlink_metadata(w.path("pipe")).unwrap().mode() & 0o170_000 == 0o010_000);
    w.check_store();
}

#[test]
fn r117_something_special_where_the_row_has_a_file() {
    let w = World::new();
    for f in ["a", "b", "c/inner", "d"] {
        w.write(f, f);
    }
    let c = w.checkpoint();
    fs::remove_file(w.path("a")).unwrap();
    mkfifo(&w.path("a"));
    fs::remove_file(w.path("b")).unwrap();
    let _socket = UnixListener::bind(w.path("b")).unwrap();
    fs::remove_dir_all(w.path("c")).unwrap();
    mkfifo(&w.path("c"));
    w.write("d", "changed");
    // Never opened: a reader would wait for a writer for ever.
    let o = w.restore(&c);
    assert!(o.partial);
    assert_eq!(w.read("d"), "d");
    assert_eq!(action(&o, "a").as_deref(), Some("conflict:fifo"), "{:?}", items(&o));
    assert_eq!(action(&o, "b").as_deref(), Some("conflict:socket"));
    assert_eq!(action(&o, "c").as_deref(), Some("conflict:fifo"));
    for f in ["a", "c"] {
        assert_eq!(fs::symlink_metadata(w.path(f)).unwrap().mode() & 0o170_000, 0o010_000, "{f}");
    }
    // The other way round: a FIFO then, a file now. The row knows nothing of the file.
    let c2 = w.checkpoint();
    fs::remove_file(w.path("a")).unwrap();
    w.write("a", "somebody's file");
    let o = w.restore(&c2);
    assert_eq!(w.read("a"), "somebody's file", "{:?}", items(&o));
    // And undo where something special stands now.
    w.write("d", "again");
    w.restore(&c2);
    fs::remove_file(w.path("d")).unwrap();
    mkfifo(&w.path("d"));
    let o = w.undo().unwrap();
    assert!(o.partial && action(&o, "d").as_deref() == Some("conflict:special"), "{:?}", items(&o));
    no_litter(&w.model());
}

#[test]
fn r117_unreadable_files_as_an_ordinary_user() {
    require!(privilege::is_root(), "needs root to become somebody else");
    let w = World::new();
    w.write("ok", "1");
    w.write("secret", "1");
    w.write("closed/inner", "1");
    w.write("shut/inner", "1");
    fs::set_permissions(w.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    shell(&w.root(), &format!("chown -R {0}:{0} .", privilege::OTHER));
    w.chmod("secret", 0o000);
    w.chmod("closed", 0o000);
    let c = privilege::run_as(privilege::OTHER, || w.checkpoint()).unwrap();
    assert_eq!(c.record.state, State::Partial);
    let mut unreadable: Vec<_> =
        c.record.skipped.iter().filter(|s| s.reason == "unreadable").map(|s| s.path.clone()).collect();
    unreadable.sort();
    assert_eq!(unreadable, ["closed", "secret"]);
    w.write("ok", "2");
    let secret = fs::metadata(w.path("secret")).unwrap().ctime_nsec();
    let o = privilege::run_as(privilege::OTHER, || w.restore(&c)).unwrap();
    assert_eq!(w.read("ok"), "1", "{:?}", items(&o));
    assert_eq!(fs::metadata(w.path("secret")).unwrap().ctime_nsec(), secret, "unknown is left alone");
    assert_eq!(w.read("closed/inner"), "1");
    // Readable then, unreadable now: its bytes cannot be saved, so it stays.
    w.chmod("shut", 0o000);
    let o = privilege::run_as(privilege::OTHER, || w.restore(&c)).unwrap();
    assert!(o.partial, "{:?}", items(&o));
    w.chmod("shut", 0o755);
    assert_eq!(w.read("shut/inner"), "1");
}

#[test]
fn r117_what_came_into_a_folder_that_cannot_be_read_is_no_success() {
    require!(privilege::is_root(), "needs root to become somebody else");
    let w = World::new();
    w.write("ok", "1");
    fs::create_dir(w.path("empty")).unwrap();
    fs::set_permissions(w.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    shell(&w.root(), &format!("chown -R {0}:{0} .", privilege::OTHER));
    let c = privilege::run_as(privilege::OTHER, || w.checkpoint()).unwrap();
    w.write("empty/since", "nobody knows of it");
    w.chmod("empty", 0o000);
    let o = privilege::run_as(privilege::OTHER, || w.restore(&c)).unwrap();
    assert!(o.partial, "{:?}", items(&o));
    assert_eq!(w.read("empty/since"), "nobody knows of it");
}

#[test]
fn r120_dirty_submodule_links_to_folders_and_a_trailing_slash() {
    let w = World::new();
    let library = w.dir.path().canonicalize().unwrap().join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("lib.c"), "library").unwrap();
    repository(&library);
    w.write("dir/x", "x");
    repository(&w.root());
    git(
        &w.root(),
        &["-c", "protocol.file.allow=always", "submodule", "add", "-q", library.to_str().unwrap(), "sub"],
    );
    git(&w.root(), &["commit", "-q", "-m", "submodule"]);
    w.write("sub/lib.c", "dirty");
    w.write("sub/untracked", "u");
    symlink("dir", w.path("to-dir")).unwrap();
    symlink("dir/", w.path("to-dir-slash")).unwrap();
    symlink("sub//./", w.path("to-sub")).unwrap();
    let before = w.model();
    let c = w.checkpoint();
    w.write("sub/lib.c", "by the agent");
    fs::remove_file(w.path("sub/untracked")).unwrap();
    w.write("sub/new", "n");
    for l in ["to-dir", "to-dir-slash", "to-sub"] {
        fs::remove_file(w.path(l)).unwrap();
    }
    symlink("elsewhere/", w.path("to-dir")).unwrap();
    w.write("to-dir-slash/file", "a directory now");
    let dirty = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "restored");
    let touched = dirty.touched_though_equal(&w.model());
    assert!(touched.is_empty(), "{touched:?}");
    assert_eq!(fs::read_link(w.path("to-dir-slash")).unwrap().as_os_str(), "dir/");
    assert_eq!(fs::read_link(w.path("to-sub")).unwrap().as_os_str(), "sub//./");
    assert!(content(&w.root()).entries.contains_key(b"sub/untracked".as_slice()));
}

#[test]
fn r120_hard_links_are_replaced_alone() {
    let w = World::new();
    let outside = w.dir.path().canonicalize().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    for f in ["content", "mode", "deleted"] {
        w.write(f, "the same bytes");
    }
    let c = w.checkpoint();
    // The agent puts links to a file elsewhere in their places.
    fs::write(outside.join("theirs"), "their bytes").unwrap();
    fs::write(outside.join("same"), "the same bytes").unwrap();
    fs::set_permissions(outside.join("same"), fs::Permissions::from_mode(0o600)).unwrap();
    for (f, to) in [("content", "theirs"), ("mode", "same"), ("added", "theirs")] {
        let _ = fs::remove_file(w.path(f));
        fs::hard_link(outside.join(to), w.path(f)).unwrap();
    }
    let before = everything_below(&outside);
    let dirty = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("content"), "the same bytes");
    assert_eq!(fs::metadata(w.path("mode")).unwrap().mode() & 0o777, 0o644);
    assert!(!w.exists("added"));
    before.assert_same(
        &everything_below(&outside),
        &Compare::default(),
        "the other names keep content and mode",
    );
    let told: Vec<_> = o
        .items
        .iter()
        .filter(|i| i.reason.as_deref() == Some("unlinked"))
        .map(|i| i.path.to_string())
        .collect();
    assert_eq!(told, ["content", "mode"], "{:?}", items(&o));
    w.undo().unwrap();
    same(&dirty, &w.model(), "undone");
    before.assert_same(&everything_below(&outside), &Compare::default(), "after undo");
}

fn set_xattr(w: &World, path: &str, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(w.path(path), name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

#[test]
fn r120_extended_attributes() {
    let w = World::new();
    w.write("gone", "1");
    w.write("rewritten", "1");
    w.write("d/x", "1");
    if !set_xattr(&w, "gone", "user.note", b"a\0=% \xff") {
        skip::skip("r120_extended_attributes", "no extended attributes on this file system");
        return;
    }
    assert!(set_xattr(&w, "gone", "user.=odd %", b"") && set_xattr(&w, "d", "user.dir", b"d"));
    assert!(set_xattr(&w, "rewritten", "user.mine", b"then"));
    let before = with_xattrs(&w.root());
    let c = w.checkpoint();
    fs::remove_file(w.path("gone")).unwrap();
    fs::remove_dir_all(w.path("d")).unwrap();
    w.restore(&c);
    same(&before, &with_xattrs(&w.root()), "what had gone comes back with its attributes");
    // What is there keeps its own (SEMANTICS 17).
    w.write("rewritten", "2");
    assert!(set_xattr(&w, "rewritten", "user.mine", b"now"));
    w.restore(&c);
    assert_eq!(w.read("rewritten"), "1");
    let after = with_xattrs(&w.root());
    let kept = after.entries[b"rewritten".as_slice()].xattrs.as_ref().unwrap();
    assert!(kept.get(b"user.mine".as_slice()).is_some_and(|v| v == b"now"), "{kept:?}");
    w.check_store();
}

#[test]
fn r120_owners_as_root() {
    require!(privilege::is_root(), "needs root");
    let w = World::new();
    w.write("theirs", "1");
    w.write("d/theirs", "1");
    symlink("x", w.path("link")).unwrap();
    for p in ["theirs", "d/theirs", "d", "link"] {
        std::os::unix::fs::lchown(w.path(p), Some(1234), Some(4321)).unwrap();
    }
    let before = w.model();
    let c = w.checkpoint();
    shell(&w.root(), "rm -rf theirs d link");
    w.restore(&c);
    before.assert_same(&w.model(), &Compare { owner: true, ..Compare::default() }, "with their owners");
}

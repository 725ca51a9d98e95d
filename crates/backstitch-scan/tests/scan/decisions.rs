//! What is covered and what is listed with which reason.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
};

use backstitch_scan::*;

use crate::support::*;

fn small(setup: Setup) -> Setup {
    Setup { ignored: Ignored::Small, ..setup }
}

#[test]
fn ignored_directories_are_pruned_and_small_files_kept() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", ".env\nbuild/\n*.log\n");
    world.write(".env", "secret");
    world.write("src/debug.log", "x".repeat(2 << 20));
    world.write("src/small.log", "small");
    world.write("build/out.o", "o");
    world.write("build/deep/er/out.o", "o");
    let setup = small(Setup::of(world.root()));
    let outcome = world.check(&setup);
    assert_eq!(
        paths(&outcome.skips),
        [(".git".into(), "git"), ("build".into(), "ignored"), ("src/debug.log".into(), "ignored")]
    );
    assert_eq!(outcome.skips[2].bytes, Some(2 << 20));
    assert!(outcome.skips[1].is_dir && outcome.skips[1].bytes.is_none());
    assert_eq!(setup.covered(world.root()), [".env", ".gitignore", "src", "src/small.log"]);
    world.check_unchanged(&setup);

    assert_eq!(Setup::of(world.root()).covered(world.root()), [".gitignore", "src"]);
    let all = Setup { ignored: Ignored::All, ..Setup::of(world.root()) };
    assert_eq!(all.covered(world.root()).len(), 10);
    // The table was made under another policy.
    world.check(&all);
    world.check_unchanged(&all);
    world.check(&setup);

    // A large ignored file that shrinks is kept from then on; a kept one that grows is not.
    fs::write(world.path("src/debug.log"), "less").unwrap();
    fs::write(world.path("src/small.log"), "x".repeat(2 << 20)).unwrap();
    world.check(&setup);
    assert_eq!(setup.covered(world.root()), [".env", ".gitignore", "src", "src/debug.log"]);
}

#[test]
fn kept_ignored_files_have_a_budget_that_does_not_depend_on_threads() {
    let world = World::new();
    world.write(".gitignore", "*.local\n");
    for i in 0..40 {
        world.write(&format!("d{}/f{i}.local", i % 5), "x".repeat(4096));
    }
    let limits = Limits { ignored_total: 10 * 4096, ..Limits::default() };
    let setup = |threads| Setup { threads, limits: limits.clone(), ..small(Setup::of(world.root())) };
    let first = setup(1).covered(world.root());
    assert_eq!(first.iter().filter(|p| p.ends_with(".local")).count(), 10);
    for threads in [2, 4, 8] {
        assert_eq!(setup(threads).covered(world.root()), first);
    }
    let outcome = world.scan(&setup(2));
    assert_eq!(outcome.skips.len(), 30);
    assert!(outcome.skips.iter().all(|s| s.reason == Reason::Ignored && s.detail.is_some()));
    world.check_unchanged(&setup(2));
    // What is kept stays kept, though a path that sorts before it comes along.
    world.write("a.local", "y".repeat(4096));
    let outcome = world.scan(&setup(2));
    let covered: Vec<String> =
        world.sink.flatten(&outcome.root.unwrap()).into_keys().map(|p| p.to_string()).collect();
    assert_eq!(covered, first);
}

#[test]
fn sizes_of_new_and_grown_files_are_limited() {
    let world = World::new();
    init(world.root());
    let limits = Limits { new_file: 1000, grown_file: 3000, ..Limits::default() };
    let with = |settings: &RuleSettings| Setup {
        limits: limits.clone(),
        ..Setup::with(rules(world.root(), settings))
    };
    let setup = with(&RuleSettings::default());
    world.write("new", "x".repeat(1001));
    world.write("known", "x".repeat(1001));
    world.write("grows", "x".repeat(900));
    world.write("hole", "");
    fs::File::options().write(true).open(world.path("hole")).unwrap().set_len(1 << 40).unwrap();
    git(world.root(), &["add", "known"]);
    // A hole of a terabyte would be read: not here.
    fs::File::options().write(true).open(world.path("hole")).unwrap().set_len(1 << 20).unwrap();
    let outcome = world.check(&setup);
    assert_eq!(paths(&outcome.skips)[1..], [("new".into(), "limit")]);
    assert_eq!((outcome.skips[1].bytes, outcome.skips[1].detail.as_deref()), (Some(1001), Some("1000")));
    fs::write(world.path("grows"), "x".repeat(2900)).unwrap();
    assert_eq!(world.scan(&setup).skips.len(), 2, "a covered file may grow");
    fs::write(world.path("grows"), "x".repeat(9000)).unwrap();
    let outcome = world.scan(&setup);
    assert_eq!(paths(&outcome.skips)[1..], [("grows".into(), "limit"), ("new".into(), "limit")]);
    assert_eq!(outcome.skips[1].detail.as_deref(), Some("3000"));
    let pinned =
        with(&RuleSettings { include: vec!["grows".into(), "/new".into()], ..RuleSettings::default() });
    assert_eq!(world.check(&pinned).skips.len(), 1);
    world.check_unchanged(&pinned);
}

#[test]
fn special_types_are_listed_and_never_opened() {
    let world = World::new();
    world.write("dir/file", "x");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("dir/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(world.path("dir/socket")).unwrap();
    let mut expected: Vec<(String, &str)> =
        vec![("dir/fifo".into(), "fifo"), ("dir/socket".into(), "socket")];
    // Devices can be made by root only.
    let device = rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("dir/null"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        rustix::fs::makedev(1, 3),
    );
    if device.is_ok() {
        assert!(fs::metadata(world.path("dir/null")).unwrap().file_type().is_char_device());
        expected.insert(1, ("dir/null".into(), "char-device"));
    }
    // An ignore file that is none is neither opened nor a rule.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("dir/.gitignore"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    expected.insert(0, ("dir/.gitignore".into(), "fifo"));
    world.write("other/.gitignore/x", "x");
    let setup = Setup::of(world.root());
    let outcome = world.check(&setup);
    assert_eq!(paths(&outcome.skips), expected);
    assert_eq!(outcome.files, 2);
    assert!(outcome.skips.iter().all(|s| s.reason.by_rule()));
    world.check_unchanged(&setup);
}

#[test]
fn nothing_of_git_is_captured() {
    let world = World::new();
    init(world.root());
    world.write("file", "x");
    world.write("sub/.git", "not a repository");
    world.write("sub/file", "x");
    world.write("odd/.git/whatever", "x");
    world.write("odd/file", "x");
    world.write(".GIT/ordinary", "where case counts");
    world.write("work/file", "x");
    world.write("meta/HEAD", "ref: refs/heads/main\n");
    world.write("meta/objects/x", "");
    world.write("meta/refs/x", "");
    world.write("meta/config", "");
    world.write("work/.git", "gitdir: ../meta\n");
    world.write("bare.git/HEAD", "ref: refs/heads/main\n");
    world.write("bare.git/objects/x", "");
    world.write("bare.git/refs/x", "");
    let setup = Setup::of(world.root());
    let outcome = world.check(&setup);
    assert_eq!(
        paths(&outcome.skips),
        [
            (".git".into(), "git"),
            ("bare.git".into(), "bare-repository"),
            ("meta".into(), "bare-repository"),
            ("odd/.git".into(), "git"),
            ("sub/.git".into(), "git"),
            ("work/.git".into(), "git"),
        ]
    );
    assert_eq!(
        setup.covered(world.root()),
        [".GIT", ".GIT/ordinary", "file", "odd", "odd/file", "sub", "sub/file", "work", "work/file"]
    );
    let bare = Setup { bare: true, ..Setup::of(world.root()) };
    let outcome = world.check(&bare);
    assert!(!paths(&outcome.skips).contains(&("bare.git".into(), "bare-repository")));
    assert!(
        paths(&outcome.skips).contains(&("meta".into(), "git")),
        "what a gitfile points to is never content"
    );
    // It stops looking like one.
    fs::remove_dir_all(world.path("bare.git/refs")).unwrap();
    world.check(&setup);
    fs::create_dir(world.path("bare.git/refs")).unwrap();
    world.check(&setup);
}

#[test]
fn nested_repositories_are_content_or_boundaries() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "*.o\n");
    world.write("nested/src/x.c", "x");
    world.write("nested/src/x.o", "x");
    world.write("nested/src/x.tmp", "x");
    world.write("nested/known.tmp", "x");
    init(&world.path("nested"));
    world.write("nested/.gitignore", "*.tmp\n");
    git(&world.path("nested"), &["add", "-f", "known.tmp"]);
    let setup = Setup::of(world.root());
    let covered = setup.covered(world.root());
    // Its own rules hold in it, not those around it.
    assert_eq!(
        covered,
        [
            ".gitignore",
            "nested",
            "nested/.gitignore",
            "nested/known.tmp",
            "nested/src",
            "nested/src/x.c",
            "nested/src/x.o"
        ]
    );
    world.check(&setup);
    world.check_unchanged(&setup);
    git(&world.path("nested"), &["add", "-f", "src/x.tmp"]);
    world.check(&setup);
    assert!(setup.covered(world.root()).contains(&"nested/src/x.tmp".to_owned()));
    fs::write(world.path("nested/.git/info/exclude"), "*.c\n").unwrap();
    world.check(&setup);
    assert!(!setup.covered(world.root()).contains(&"nested/src/x.c".to_owned()));
    let boundary = Setup { nested: false, ..Setup::of(world.root()) };
    let outcome = world.check(&boundary);
    assert_eq!(paths(&outcome.skips), [(".git".into(), "git"), ("nested".into(), "nested")]);
    fs::remove_dir_all(world.path("nested/.git")).unwrap();
    let outcome = world.check(&boundary);
    assert!(!paths(&outcome.skips).contains(&("nested".into(), "nested")));
}

#[test]
fn tracked_paths_are_never_ignored() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "build/\n*.bin\n");
    world.write("build/keep/known", "x");
    world.write("build/keep/unknown", "x");
    world.write("build/other/unknown", "x");
    world.write("a.bin", "x");
    world.write("b.bin", "x");
    let setup = Setup::of(world.root());
    assert_eq!(world.check(&setup).skips.len(), 4);
    git(world.root(), &["add", "-f", "build/keep/known", "a.bin"]);
    // Rules are found once per operation; this is the next one.
    let setup = Setup::of(world.root());
    let outcome = world.check(&setup);
    assert_eq!(
        paths(&outcome.skips)[1..],
        [
            ("b.bin".into(), "ignored"),
            ("build/keep/unknown".into(), "ignored"),
            ("build/other".into(), "ignored")
        ]
    );
    // Small ignored files stand beside covered ones only outside of ignored directories.
    let small = small(Setup::of(world.root()));
    let covered = small.covered(world.root());
    assert_eq!(covered, [".gitignore", "a.bin", "b.bin", "build", "build/keep", "build/keep/known"]);
    world.check(&small);
}

#[test]
fn what_the_table_covers_can_be_kept_covered() {
    let world = World::new();
    world.write("src/a.txt", "x");
    world.write("src/deep/b.txt", "x");
    let setup = Setup::of(world.root());
    world.scan(&setup);
    world.write(".gitignore", "*\n");
    world.write("src/new.txt", "x");
    let keep = Setup { keep_covered: true, ..Setup::of(world.root()) };
    let outcome = world.scan(&keep);
    let covered: Vec<String> =
        world.sink.flatten(&outcome.root.unwrap()).into_keys().map(|p| p.to_string()).collect();
    assert_eq!(covered, ["src", "src/a.txt", "src/deep", "src/deep/b.txt"]);
    assert_eq!(paths(&outcome.skips), [(".gitignore".into(), "ignored"), ("src/new.txt".into(), "ignored")]);
    fs::write(world.path("src/a.txt"), "changed").unwrap();
    assert_eq!(world.scan(&keep).files, 2);
    let outcome = world.check(&setup);
    assert_eq!((outcome.files, outcome.dirs), (0, 1), "a new session follows the rules");
}

#[test]
fn never_entered_reserved_and_too_many() {
    let world = World::new();
    world.write("store/pack", "x");
    world.write("src/.backstitch-tmp-123", "x");
    world.write("src/file", "x");
    let meta = fs::metadata(world.path("store")).unwrap();
    let setup = Setup { never: vec![(meta.dev(), meta.ino())], ..Setup::of(world.root()) };
    let outcome = world.check(&setup);
    assert_eq!(paths(&outcome.skips), [("store".into(), "store")]);
    assert_eq!(outcome.files, 1);
    world.check_unchanged(&setup);
    world.check(&Setup::of(world.root()));
    let limits = Limits { entries: 3, ..Limits::default() };
    let outcome = Setup { limits, ..Setup::of(world.root()) }.scan(world.root(), None, &world.sink);
    assert!(outcome.unbounded && outcome.root.is_none() && outcome.update.is_none());
}

#[test]
fn a_rules_file_that_cannot_be_read_fails_closed() {
    let world = World::new();
    world.write("a/file", "x");
    world.write("a/.gitignore", "*");
    fs::set_permissions(world.path("a/.gitignore"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(world.path("a/.gitignore")).is_ok() {
        // Root reads everything: see `hostile`, which does this as somebody else.
        return;
    }
    let failed = Setup::of(world.root()).try_scan(world.root(), None, &world.sink);
    assert!(matches!(failed, Err(ScanError::Rules { path, .. }) if path.ends_with("a/.gitignore")));
}

#[test]
fn extended_attributes_go_to_the_sink() {
    let world = World::new();
    world.write("file", "x");
    world.write("dir/file", "x");
    let set = |path: &str, value: &[u8]| {
        rustix::fs::setxattr(world.path(path), "user.note", value, rustix::fs::XattrFlags::empty())
    };
    if set("file", b"one").is_err() || set("dir", b"two").is_err() {
        // A file system without them has none to be kept.
        return;
    }
    let setup = Setup::of(world.root());
    let xattrs = |outcome: &Outcome| {
        let stored = world.sink.stored.lock().unwrap();
        let Stored::Dir(children) = &stored[&outcome.root.unwrap().tree] else { panic!() };
        children
            .iter()
            .map(|(name, _, _, x)| (name.to_string(), x.clone().map(|x| x[0].1.to_string())))
            .collect::<Vec<_>>()
    };
    let one = |s: &str| Some(s.to_owned());
    let outcome = world.check(&setup);
    assert_eq!(xattrs(&outcome), [("dir".into(), one("two")), ("file".into(), one("one"))]);
    world.check_unchanged(&setup);
    // They are there when only something beside them changes.
    world.write("another", "x");
    let outcome = world.check(&setup);
    assert_eq!(outcome.read_files, 1);
    assert_eq!(
        xattrs(&outcome),
        [("another".into(), None), ("dir".into(), one("two")), ("file".into(), one("one"))]
    );
    set("dir", b"three").unwrap();
    let outcome = world.check(&setup);
    assert_eq!(xattrs(&outcome)[1], ("dir".into(), one("three")));
    rustix::fs::removexattr(world.path("dir"), "user.note").unwrap();
    let outcome = world.check(&setup);
    assert_eq!(xattrs(&outcome)[1], ("dir".into(), None));
    world.check_unchanged(&setup);
}

#[test]
fn litter_and_what_is_remade() {
    let world = World::new();
    for path in [
        ".DS_Store",
        "node_modules/x/index.js",
        "src/.a.txt.swp",
        "dist/app.js",
        "x.log",
        "__pycache__/a.pyc",
    ] {
        world.write(path, "x");
    }
    let setup = small(Setup::of(world.root()));
    assert_eq!(setup.covered(world.root()), ["dist", "dist/app.js", "src", "x.log"]);
    world.check(&setup);
    world.check_unchanged(&setup);
    init(world.root());
    let setup = small(Setup::of(world.root()));
    let covered = setup.covered(world.root());
    assert!(covered.contains(&"node_modules/x/index.js".into()) && !covered.contains(&".DS_Store".into()));
    git(world.root(), &["add", "-f", "src/.a.txt.swp"]);
    let setup = small(Setup::of(world.root()));
    assert!(setup.covered(world.root()).contains(&"src/.a.txt.swp".into()));
    world.check(&setup);
}

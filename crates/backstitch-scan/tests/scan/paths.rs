//! Named paths.

use std::{fs, os::unix::fs::MetadataExt};

use backstitch_scan::*;

use crate::support::*;

fn world() -> World {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "build/\n*.log\n");
    world.write("src/a.txt", "one");
    world.write("src/deep/b.txt", "two");
    world.write("src/deep/x.log", "log");
    world.write("build/out", "out");
    world.write("x.log", "log");
    std::os::unix::fs::symlink("src", world.path("link")).unwrap();
    world
}

fn text(found: &FoundWhat) -> String {
    match found {
        FoundWhat::Leaf { id, .. } => format!("leaf {id}"),
        FoundWhat::Dir { ids, skips, .. } => format!("dir {} {:?}", ids.tree, paths(skips)),
        FoundWhat::Absent => "absent".into(),
        FoundWhat::Skip(skip) => format!("{} {}", skip.reason.as_str(), skip.path),
    }
}

fn one(world: &World, setup: &Setup, path: &str, table: Option<&Table>) -> String {
    text(&setup.find(world.root(), &[path], table, &world.sink)[0].what)
}

#[test]
fn named_paths_are_looked_at_whatever_the_rules_say() {
    let world = world();
    let setup = Setup::of(world.root());
    let leaf = |content: &str| format!("leaf {}", hash("file", content.as_bytes()));
    assert_eq!(one(&world, &setup, "src/a.txt", None), leaf("one"));
    assert_eq!(one(&world, &setup, "x.log", None), leaf("log"));
    assert_eq!(one(&world, &setup, "build/out", None), leaf("out"));
    assert_eq!(one(&world, &setup, "link", None), format!("leaf {}", hash("link", b"src")));
    assert_eq!(one(&world, &setup, "src/nothing", None), "absent");
    assert_eq!(one(&world, &setup, "nothing/at/all", None), "absent");
    assert_eq!(one(&world, &setup, "src/a.txt/below", None), "absent");
    assert_eq!(one(&world, &setup, "link/a.txt", None), "scope link/a.txt");
    assert_eq!(one(&world, &setup, ".git/config", None), "git .git/config");
    assert_eq!(one(&world, &setup, ".git", None), "git .git");
    for path in ["..", "../x", "/etc/passwd", "src/../x.log", "src//a.txt", "./x.log", "src/"] {
        assert_eq!(one(&world, &setup, path, None), format!("scope {path}"));
    }
    assert_eq!(one(&world, &setup, "src/.backstitch-tmp-1", None), "scope src/.backstitch-tmp-1");
    let meta = fs::metadata(world.path("build")).unwrap();
    let never = Setup { never: vec![(meta.dev(), meta.ino())], ..Setup::of(world.root()) };
    assert_eq!(one(&world, &never, "build/out", None), "store build/out");
    let answers = setup.find(world.root(), &["x.log", "src/a.txt"], None, &world.sink);
    assert_eq!((answers[0].path.as_bstr(), answers[1].path.as_bstr()), ("x.log".into(), "src/a.txt".into()));
}

#[test]
fn directories_are_scanned_whole_with_the_rules() {
    let world = world();
    let setup = Setup::of(world.root());
    let answers = setup.find(world.root(), &["src", "build", ""], None, &world.sink);
    let FoundWhat::Dir { ids, skips, stat, .. } = &answers[0].what else { panic!() };
    assert_eq!(stat.kind, Kind::Dir);
    assert_eq!(paths(skips), [("src/deep/x.log".into(), "ignored")]);
    let covered: Vec<String> = world.sink.flatten(ids).into_keys().map(|p| p.to_string()).collect();
    assert_eq!(covered, ["a.txt", "deep", "deep/b.txt"]);
    let FoundWhat::Dir { ids, .. } = &answers[1].what else { panic!() };
    assert_eq!(world.sink.flatten(ids).len(), 1, "an ignored directory that is named is looked at");
    let full = setup.scan(world.root(), None, &world.sink);
    let FoundWhat::Dir { ids, skips, .. } = &answers[2].what else { panic!() };
    assert_eq!((Some(*ids), skips), (full.root, &full.skips));
}

#[test]
fn the_table_spares_reading() {
    let world = world();
    let setup = Setup::of(world.root());
    world.scan(&setup);
    let table = world.table();
    world.sink.reset();
    let answers = setup.find(world.root(), &["src/a.txt", "src/deep", "src"], table.as_ref(), &world.sink);
    assert_eq!(world.sink.calls(), (0, 0, 0));
    let fresh = Memory::default();
    let again = setup.find(world.root(), &["src/a.txt", "src/deep", "src"], None, &fresh);
    for (a, b) in answers.iter().zip(&again) {
        assert_eq!(text(&a.what), text(&b.what));
    }
    fs::write(world.path("src/deep/b.txt"), "new").unwrap();
    let answers = setup.find(world.root(), &["src/deep"], table.as_ref(), &world.sink);
    assert_eq!(world.sink.calls(), (1, 0, 1));
    assert!(matches!(&answers[0].what, FoundWhat::Dir { .. }));
}

#[test]
fn named_files_have_the_larger_limit() {
    let world = World::new();
    world.write("large", "x".repeat(2000));
    world.write("huge", "x".repeat(9000));
    let limits = Limits { new_file: 1000, grown_file: 5000, ..Limits::default() };
    let setup = Setup { limits, ..Setup::of(world.root()) };
    assert!(one(&world, &setup, "large", None).starts_with("leaf"));
    assert_eq!(one(&world, &setup, "huge", None), "limit huge");
}

#[test]
fn names_are_literal() {
    let world = World::new();
    for name in ["*", "[a]", "?", ":(top)x", "a\nb", "\\", "..x"] {
        world.write(name, name);
    }
    let setup = Setup::of(world.root());
    for name in ["*", "[a]", "?", ":(top)x", "a\nb", "\\", "..x"] {
        assert_eq!(one(&world, &setup, name, None), format!("leaf {}", hash("file", name.as_bytes())));
    }
}

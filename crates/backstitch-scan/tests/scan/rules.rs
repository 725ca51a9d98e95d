//! Rules from outside the tree, their order, and their stored form.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use backstitch_scan::*;

use crate::support::*;

fn settings(include: &[&str], exclude: &[&str]) -> RuleSettings {
    let lines = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
    RuleSettings { include: lines(include), exclude: lines(exclude), ..RuleSettings::default() }
}

fn covered(world: &World, settings: &RuleSettings) -> Vec<String> {
    let setup = Setup::with(rules(world.root(), settings));
    world.check(&setup);
    world.check_unchanged(&setup);
    setup.covered(world.root())
}

#[test]
fn own_ignore_files_and_settings_in_their_order() {
    let world = World::new();
    world.write(".gitignore", "*.log\n/build\n");
    world.write(".backstitchignore", "*.big\n!keep.log\n");
    for path in
        ["a.log", "keep.log", "x.big", "pin.big", "build/out", "build/pin/it", "secret", "sub/x.big", "sub/y"]
    {
        world.write(path, "x");
    }
    world.write("sub/.backstitchignore", "!x.big\n");
    assert_eq!(
        covered(&world, &settings(&[], &["secret"])),
        [".backstitchignore", ".gitignore", "keep.log", "sub", "sub/.backstitchignore", "sub/x.big", "sub/y"]
    );
    assert_eq!(
        covered(&world, &settings(&["pin.big", "build/pin/**"], &[])),
        [
            ".backstitchignore",
            ".gitignore",
            "build",
            "build/pin",
            "build/pin/it",
            "keep.log",
            "pin.big",
            "secret",
            "sub",
            "sub/.backstitchignore",
            "sub/x.big",
            "sub/y"
        ]
    );
    // Inside an included directory the more precise rule still counts.
    let list = covered(&world, &settings(&["build/"], &["out"]));
    assert!(list.contains(&"build/pin/it".into()) && !list.contains(&"build/out".into()));
    // Until it is trusted, a clone's ignore file only adds.
    let list = covered(&world, &RuleSettings { trust_backstitchignore: false, ..RuleSettings::default() });
    assert!(list.contains(&"x.big".into()) && list.contains(&"keep.log".into()));
}

#[test]
fn s4_25_nothing_re_admits_the_name_of_a_device() {
    let world = World::new();
    let repo = world.path("repo");
    for path in ["NUL", "aux/deep/x", "sub/com1.txt", "sub/lpt².log", "console", "x.con"] {
        world.write(&format!("repo/{path}"), "x");
    }
    world.write("repo/.gitignore", "!NUL\n!aux/\n");
    world.write("repo/.backstitchignore", "!NUL\n");
    init(&repo);
    git(&repo, &["add", "-A", "-f"]);
    let all = settings(&["NUL", "aux/deep/**", "com1.txt"], &[]);
    let list = |settings: &RuleSettings| Setup::with(rules(&repo, settings)).covered(&repo);
    let ordinary = [".backstitchignore", ".gitignore", "console", "sub", "x.con"];
    assert_eq!(list(&RuleSettings { device_names: true, ..all.clone() }), ordinary);
    // Elsewhere they are names.
    let mut names = ordinary.to_vec();
    names.extend(["NUL", "aux", "aux/deep", "aux/deep/x", "sub/com1.txt", "sub/lpt².log"]);
    names.sort_unstable();
    assert_eq!(list(&RuleSettings { device_names: false, ..all.clone() }), names);
    // A row's rules say which.
    let stored = rules(&repo, &RuleSettings { device_names: true, ..all });
    let read = Rules::from_bytes(&stored.to_bytes()).unwrap();
    assert_eq!(read.root(None, None).verdict("NUL".into(), false), Verdict::Exclude);
}

#[test]
fn excluded_and_ignored_differ() {
    let world = World::new();
    world.write(".gitignore", ".env\n");
    world.write(".env", "x");
    world.write("vault", "x");
    let rules = rules(world.root(), &settings(&[], &["vault"]));
    let chain = rules.root(Some(b".env\n"), None);
    assert_eq!(chain.verdict(".env".into(), false), Verdict::Ignore);
    assert_eq!(chain.verdict("vault".into(), false), Verdict::Exclude);
    assert_eq!(chain.verdict("other".into(), false), Verdict::Keep);
    let setup = Setup { ignored: Ignored::All, ..Setup::with(rules) };
    let outcome = world.check(&setup);
    assert_eq!(paths(&outcome.skips), [("vault".into(), "excluded")]);
}

#[test]
fn chains_answer_without_a_disk() {
    let world = World::new();
    let rules = rules(world.root(), &RuleSettings::default());
    let root = rules.root(Some(b"build/\n*.o\n"), None);
    let src = root.child_dir("src".into(), Some(b"!keep.o\nlocal/*.txt\n"), None);
    assert_eq!(src.verdict("a.o".into(), false), Verdict::Ignore);
    assert_eq!(src.verdict("keep.o".into(), false), Verdict::Keep);
    let local = src.child_dir("local".into(), None, None);
    assert_eq!(local.verdict("x.txt".into(), false), Verdict::Ignore);
    assert_eq!(local.digest(), src.digest());
    assert_ne!(root.digest(), src.digest());
    let build = root.child_dir("build".into(), Some(b"!*\n"), None);
    assert_eq!(build.verdict("anything".into(), false), Verdict::Ignore);
    // A chain as deep as can be is let go without trouble.
    let mut deep = root.clone();
    for _ in 0..20_000 {
        deep = deep.child_dir("d".into(), None, None);
    }
    drop(deep);
}

#[test]
fn rules_can_be_stored() {
    let world = World::new();
    init(world.root());
    world.write(".git/info/exclude", "from-exclude\n");
    world.write("home/.config/git/ignore", "from-global\n");
    world.write("sub/file", "x");
    world.write(".gitignore", "from-above\nsub/anchored\n");
    let found = rules(
        &world.path("sub"),
        &RuleSettings { home: Some(world.path("home")), ..settings(&["pin"], &["leave"]) },
    );
    let bytes = found.to_bytes();
    let read = Rules::from_bytes(&bytes).unwrap();
    assert_eq!(read.to_bytes(), bytes);
    assert_eq!(
        (read.digest(), read.root(None, None).digest()),
        (found.digest(), found.root(None, None).digest())
    );
    let chain = read.root(None, None);
    for name in ["from-exclude", "from-global", "from-above", "anchored"] {
        assert_eq!(chain.verdict(name.into(), false), Verdict::Ignore, "{name}");
    }
    assert_eq!(chain.verdict("pin".into(), false), Verdict::Include);
    assert_eq!(chain.verdict("leave".into(), false), Verdict::Exclude);
    assert_eq!(chain.verdict(".DS_Store".into(), false), Verdict::Exclude);
    for len in 0..bytes.len() {
        assert!(Rules::from_bytes(&bytes[..len]).is_none());
    }
}

fn with_home(world: &World, root: &Path) -> Vec<String> {
    let settings = RuleSettings { home: Some(world.path("home")), ..RuleSettings::default() };
    Setup::with(rules(root, &settings)).covered(root)
}

#[test]
fn gits_global_excludes_file_is_found() {
    let world = World::new();
    let repo = world.path("repo");
    for name in ["a", "b", "c", "d", "e"] {
        world.write(&format!("repo/{name}"), "x");
    }
    world.write("home/.config/git/ignore", "a\n");
    assert_eq!(with_home(&world, &repo).len(), 5, "outside of git it does not count");
    init(&repo);
    assert_eq!(with_home(&world, &repo), ["b", "c", "d", "e"]);
    world.write("home/.gitconfig", "[core]\n\texcludesFile = ~/other\n");
    world.write("home/other", "b\n");
    assert_eq!(with_home(&world, &repo), ["a", "c", "d", "e"]);
    // Includes, also conditional ones, relative to the file that includes.
    world.write("home/.gitconfig", "[include]\n\tpath = more\n[core]\n\texcludesFile = ~/other\n");
    world.write("home/more", "[core]\n\texcludesFile = ~/third\n");
    world.write("home/third", "c\n");
    assert_eq!(with_home(&world, &repo), ["a", "c", "d", "e"], "the last one counts");
    world.write(
        "home/.gitconfig",
        "[core]\n\texcludesFile = ~/other\n[includeIf \"gitdir:**/repo/\"]\n\tpath = more\n",
    );
    assert_eq!(with_home(&world, &repo), ["a", "b", "d", "e"]);
    world.write(
        "home/.gitconfig",
        "[core]\n\texcludesFile = ~/other\n[includeIf \"gitdir:**/elsewhere/\"]\n\tpath = more\n",
    );
    assert_eq!(with_home(&world, &repo), ["a", "c", "d", "e"]);
    git(&repo, &["config", "core.excludesFile", "d-rules"]);
    world.write("repo/d-rules", "d\nd-rules\n");
    assert_eq!(with_home(&world, &repo), ["a", "b", "c", "e"], "relative to the top");
    git(&repo, &["config", "core.excludesFile", ""]);
    assert_eq!(with_home(&world, &repo).len(), 6);
    git(&repo, &["config", "core.excludesFile", "/dev/null"]);
    assert_eq!(with_home(&world, &repo).len(), 6);
    fs::remove_file(repo.join("d-rules")).unwrap();
    let off = RuleSettings {
        global_excludes: Some(false),
        home: Some(world.path("home")),
        ..RuleSettings::default()
    };
    git(&repo, &["config", "--unset", "core.excludesFile"]);
    assert_eq!(Setup::with(rules(&repo, &off)).covered(&repo).len(), 5);
    fs::remove_dir_all(repo.join(".git")).unwrap();
    let on = RuleSettings { global_excludes: Some(true), ..off };
    assert_eq!(Setup::with(rules(&repo, &on)).covered(&repo).len(), 4);
}

#[test]
fn linked_work_trees_share_excludes_and_have_their_own_index() {
    let world = World::new();
    let main = world.path("main");
    world.write("main/file", "x");
    init(&main);
    git(&main, &["add", "."]);
    git(&main, &["commit", "-qm", "x"]);
    let linked = world.path("linked");
    git(&main, &["worktree", "add", "-q", linked.to_str().unwrap()]);
    world.write("main/.git/info/exclude", "*.tmp\n");
    world.write("linked/a.tmp", "x");
    world.write("linked/b.tmp", "x");
    git(&linked, &["add", "-f", "b.tmp"]);
    assert_eq!(Setup::of(&linked).covered(&linked), ["b.tmp", "file"]);
    git(&linked, &["config", "extensions.worktreeConfig", "true"]);
    world.write("linked/rules", "file2\n");
    world.write("linked/file2", "x");
    git(&linked, &["config", "--worktree", "core.excludesFile", "rules"]);
    assert_eq!(Setup::of(&linked).covered(&linked), ["b.tmp", "file", "rules"]);
}

#[test]
fn a_root_below_the_top_follows_the_rules_above_it() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "/a/b/anchored\nanywhere\n/b/no\nignored-root/\n");
    world.write("a/.gitignore", "b/from-a\n!anywhere\n");
    for name in ["anchored", "anywhere", "from-a", "no", "kept"] {
        world.write(&format!("a/b/{name}"), "x");
    }
    world.write("ignored-root/file", "x");
    let root = world.path("a/b");
    assert_eq!(Setup::of(&root).covered(&root), ["anywhere", "kept", "no"]);
    git(world.root(), &["add", "-f", "a/b/anchored"]);
    assert_eq!(Setup::of(&root).covered(&root), ["anchored", "anywhere", "kept", "no"]);
    let root = world.path("ignored-root");
    assert_eq!(Setup::of(&root).covered(&root), ["file"], "the root itself is never ignored");
}

#[test]
fn outside_of_git_ignore_files_count_unless_switched_off() {
    let world = World::new();
    world.write(".gitignore", "a\n");
    world.write("a", "x");
    world.write("b", "x");
    assert_eq!(Setup::of(world.root()).covered(world.root()), [".gitignore", "b"]);
    let off = RuleSettings { gitignore_outside_git: false, ..RuleSettings::default() };
    assert_eq!(Setup::with(rules(world.root(), &off)).covered(world.root()), [".gitignore", "a", "b"]);
    // A repository inside has its rules all the same.
    world.write("repo/.gitignore", "a\n");
    world.write("repo/a", "x");
    init(&world.path("repo"));
    let covered = Setup::with(rules(world.root(), &off)).covered(world.root());
    assert_eq!(covered, [".gitignore", "a", "b", "repo", "repo/.gitignore"]);
}

#[test]
fn git_variables_do_not_count() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "b\n");
    world.write("a", "x");
    world.write("b", "x");
    world.write(".git/rules", "*\n");
    let rules = world.path(".git/rules");
    let variables = [
        ("GIT_DIR", "/nonexistent"),
        ("GIT_WORK_TREE", "/nonexistent"),
        ("GIT_INDEX_FILE", "/nonexistent"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.excludesFile"),
        ("GIT_CONFIG_VALUE_0", rules.to_str().unwrap()),
    ];
    in_child("rules::child_with_git_variables", &world, &variables);
}

#[test]
#[ignore = "run by git_variables_do_not_count in a process of its own"]
fn child_with_git_variables() {
    let Some(root) = child_root() else { return };
    assert_eq!(Setup::of(&root).covered(&root), [".gitignore", "a"]);
}

#[test]
fn no_index_however_damaged_does_harm() {
    let world = World::new();
    init(world.root());
    for i in 0..20 {
        world.write(&format!("dir{}/file{i}", i % 3), "x");
    }
    git(world.root(), &["add", "."]);
    world.write(".gitignore", "*\n");
    let index = world.path(".git/index");
    for version in ["2", "4"] {
        git(world.root(), &["update-index", "--force-write-index", "--index-version", version]);
        let good = fs::read(&index).unwrap();
        assert_eq!(Setup::of(world.root()).covered(world.root()).len(), 23);
        let mut dice = Dice(5);
        for i in 0..400 {
            let mut bad = good.clone();
            if i % 2 == 0 {
                bad.truncate(dice.roll(good.len()));
            } else {
                let at = dice.roll(bad.len());
                bad[at] = dice.roll(256) as u8;
            }
            fs::write(&index, &bad).unwrap();
            match Setup::of(world.root()).try_scan(world.root(), None, &world.sink) {
                Ok(_) | Err(ScanError::Rules { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn broken_sources_fail_closed() {
    let world = World::new();
    init(world.root());
    world.write("file", "x");
    let discover = || {
        let settings = RuleSettings { home: Some(world.path("home")), ..RuleSettings::default() };
        Rules::discover(world.root(), &settings)
    };
    discover().unwrap();
    let failed = |expected: &str| match discover() {
        Err(ScanError::Rules { path, .. }) => assert!(path.ends_with(expected), "{path:?}"),
        other => panic!("{other:?}"),
    };
    world.write("home/.gitconfig", "[core\nbroken");
    failed("home/.gitconfig");
    fs::remove_file(world.path("home/.gitconfig")).unwrap();
    // The index is only asked when something is about to be ignored.
    world.write(".git/index", "no index");
    Setup::of(world.root()).scan(world.root(), None, &world.sink);
    world.write(".gitignore", "file\n");
    let failed = Setup::of(world.root()).try_scan(world.root(), None, &world.sink);
    assert!(matches!(failed, Err(ScanError::Rules { path, .. }) if path.ends_with(".git/index")));
}

#[test]
fn changes_of_rules_are_seen_with_a_table() {
    let world = World::new();
    init(world.root());
    for path in ["a.x", "a.y", "d/a.x", "d/e/a.y", "d/e/f/a.x"] {
        world.write(path, "x");
    }
    world.scan(&Setup::of(world.root()));
    let steps: &[(&str, &str)] = &[
        (".gitignore", "*.x\n"),
        ("d/e/.gitignore", "!a.x\n"),
        (".git/info/exclude", "*.y\n"),
        ("d/.gitignore", "e/\n"),
        ("d/.gitignore", "/e/f\n"),
        (".gitignore", "nothing\n"),
        ("d/.gitignore", ""),
        (".backstitchignore", "f\n"),
        (".backstitchignore", "# f\n"),
    ];
    for (file, content) in steps {
        fs::write(world.path(file), content).unwrap();
        let setup = Setup::of(world.root());
        world.check(&setup);
        world.check_unchanged(&setup);
    }
    for (file, _) in steps {
        let _ = fs::remove_file(world.path(file));
        world.check(&Setup::of(world.root()));
    }
}

#[test]
fn sha256_repositories_have_an_index_too() {
    let world = World::new();
    let root = world.path("r");
    fs::create_dir(&root).unwrap();
    git(&root, &["init", "-q", "--object-format=sha256"]);
    world.write("r/.gitignore", "*.x\n");
    world.write("r/a.x", "x");
    world.write("r/b.x", "x");
    git(&root, &["add", "-f", "a.x"]);
    assert_eq!(Setup::of(&root).covered(&root), [".gitignore", "a.x"]);
}

#[test]
fn sparse_indexes_count_what_lies_below_their_directories() {
    let world = World::new();
    let root = world.path("r");
    for path in ["in/a", "out/deep/b", "top"] {
        world.write(&format!("r/{path}"), "x");
    }
    init(&root);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-qm", "x"]);
    git(&root, &["sparse-checkout", "set", "--cone", "--sparse-index", "in"]);
    // Somebody put the file back, and a rule would leave it out.
    world.write("r/out/deep/b", "x");
    world.write("r/.gitignore", "out/\n*.x\n");
    world.write("r/in/c.x", "x");
    let covered = Setup::of(&root).covered(&root);
    assert_eq!(covered, [".gitignore", "in", "in/a", "out", "out/deep", "out/deep/b", "top"]);
}

#[test]
fn unreadable_git_directories_fail_closed() {
    let world = World::new();
    init(world.root());
    let dot_git: PathBuf = world.path(".git");
    fs::set_permissions(&dot_git, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&dot_git).is_err() {
        assert!(matches!(
            Rules::discover(world.root(), &RuleSettings::default()),
            Err(ScanError::Rules { .. })
        ));
    }
    fs::set_permissions(&dot_git, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_repository_that_ignores_the_root_has_nothing_to_say() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "*\n");
    world.write("project/src/main.c", "x");
    world.write("project/src/main.o", "x");
    let root = world.path("project");
    assert_eq!(Setup::of(&root).covered(&root), ["src", "src/main.c", "src/main.o"]);
    // But if it tracks something there, its word counts.
    git(world.root(), &["add", "-f", "project/src/main.c"]);
    assert_eq!(Setup::of(&root).covered(&root), ["src", "src/main.c"]);
}

#[test]
fn the_chain_of_a_directory_on_disk() {
    let world = World::new();
    init(world.root());
    world.write(".gitignore", "build/\n*.o\n");
    world.write("src/.gitignore", "!keep.o\n");
    world.write("src/deep/x", "x");
    world.write("build/.gitignore", "!*\n");
    world.write("nested/x.o", "x");
    init(&world.path("nested"));
    git(&world.path("nested"), &["add", "-f", "x.o"]);
    fs::write(world.path("nested/.git/info/exclude"), "secret\n").unwrap();
    let rules = rules(world.root(), &RuleSettings::default());
    let verdict =
        |dir: &str, name: &str| rules.at(world.root(), dir.into()).unwrap().verdict(name.into(), false);
    assert_eq!(verdict("", "a.o"), Verdict::Ignore);
    assert_eq!(verdict("src/deep", "a.o"), Verdict::Ignore);
    assert_eq!(verdict("src/deep", "keep.o"), Verdict::Keep);
    assert_eq!(verdict("build", "anything"), Verdict::Ignore);
    assert_eq!(verdict("nested", "a.o"), Verdict::Keep);
    assert_eq!(verdict("nested", "secret"), Verdict::Ignore);
    let nested = rules.at(world.root(), "nested".into()).unwrap();
    assert!(
        nested.is_tracked("x.o".into(), false).unwrap() && !nested.is_tracked("y.o".into(), false).unwrap()
    );
    assert!(matches!(rules.at(world.root(), "nowhere".into()), Err(ScanError::Io { .. })));
}

/// With whatever the table remembers, a scan sees what a scan without it sees.
#[test]
fn random_rules_and_indexes_with_a_table() {
    const NAMES: [&str; 6] = ["a", "b", "c.o", "d.o", "e", "f.tmp"];
    const LINES: [&str; 9] = ["a", "*.o", "!c.o", "/b", "e/", "*.tmp", "!*", "b/**/e", "**/a"];
    for seed in 0..15 {
        let world = World::new();
        init(world.root());
        let mut dice = Dice(seed);
        let policy = dice.pick(&[Ignored::None, Ignored::Small, Ignored::All]);
        for _ in 0..8 {
            for _ in 0..1 + dice.roll(5) {
                let mut path: Vec<&str> = (0..dice.roll(3)).map(|_| dice.pick(&NAMES)).collect();
                let dir = path.join("/");
                path.push(dice.pick(&NAMES));
                let path = path.join("/");
                let lines: Vec<&str> = (0..dice.roll(4)).map(|_| dice.pick(&LINES)).collect();
                match dice.roll(8) {
                    0..=2 => {
                        let _ = fs::create_dir_all(world.path(&dir));
                        let _ = fs::write(world.path(&path), "x".repeat(dice.roll(9)));
                    }
                    3 if world.path(&dir).is_dir() => {
                        let name = dice.pick(&[".gitignore", ".gitignore", ".backstitchignore"]);
                        fs::write(world.path(&dir).join(name), lines.join("\n")).unwrap();
                    }
                    4 => fs::write(world.path(".git/info/exclude"), lines.join("\n")).unwrap(),
                    5 if world.path(&path).exists() => drop(git(world.root(), &["add", "-f", "--", &path])),
                    6 => drop(git(world.root(), &["rm", "-rq", "--cached", "--ignore-unmatch", "--", &path])),
                    _ => {
                        let _ = fs::remove_dir_all(world.path(&path));
                    }
                }
            }
            let settings = RuleSettings {
                include: if dice.one_in(3) { vec!["/e/a".into()] } else { Vec::new() },
                exclude: if dice.one_in(3) { vec!["d.o".into()] } else { Vec::new() },
                ..RuleSettings::default()
            };
            let setup = || Setup { ignored: policy, ..Setup::with(rules(world.root(), &settings)) };
            world.check(&setup());
            world.check_unchanged(&setup());
        }
    }
}

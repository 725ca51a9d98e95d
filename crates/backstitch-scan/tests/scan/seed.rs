//! What git's index proves, with real git as the oracle.

use std::{collections::HashMap, fs, path::Path};

use backstitch_scan::*;

use crate::support::*;

/// Every write is long ago.
const LONG_AGO: i128 = -1_000_000_000_000;

/// What is there, by a scan.
fn stats(root: &Path) -> HashMap<String, Stat> {
    struct Look(std::sync::Mutex<HashMap<String, Stat>>);
    impl Sink for Look {
        type Scratch = ();
        fn scratch(&self) {}
        fn known(&self, (): &mut (), path: &BStr, stat: &Stat, _: i128) -> Option<Oid> {
            self.0.lock().unwrap().insert(path.to_string(), *stat);
            None
        }
        fn file(&self, (): &mut (), _: &BStr, _: &mut fs::File, _: &Stat) -> Result<Oid, SinkError> {
            Ok(hash("blob", b""))
        }
        fn link(&self, (): &mut (), _: &BStr, _: &[u8]) -> Result<Oid, SinkError> {
            Ok(hash("blob", b""))
        }
        fn dir(&self, (): &mut (), _: &Dir<'_>) -> Result<DirIds, SinkError> {
            Ok(DirIds { tree: hash("tree", b""), meta: None })
        }
        fn has(&self, _: &Oid) -> bool {
            false
        }
    }
    let look = Look(Default::default());
    let setup = Setup::of(root);
    scan(root, None, &look, &setup.options()).unwrap();
    look.0.into_inner().unwrap()
}

fn seed(root: &Path) -> Option<Seed> {
    rules(root, &RuleSettings::default()).seed()
}

fn listed(root: &Path) -> HashMap<String, String> {
    let out = String::from_utf8(git(root, &["ls-files", "-s", "-z"])).unwrap();
    let entry = |e: &str| {
        let (head, path) = e.split_once('\t')?;
        Some((path.to_owned(), head.split(' ').nth(1)?.to_owned()))
    };
    out.split('\0').filter_map(entry).collect()
}

#[test]
fn ids_are_those_of_the_index_in_any_order_and_version() {
    let temp = temp();
    let root = temp.path();
    init(root);
    let mut dice = Dice(7);
    for i in 0..300 {
        let dir = ["", "a/", "a/b/", "a.b/", "b/", "b/a/"][dice.roll(6)];
        write(root, &format!("{dir}f{i}"), format!("{i}"));
    }
    git(root, &["add", "-A"]);
    for version in ["2", "3", "4"] {
        git(root, &["update-index", "--index-version", version, "--force-write-index"]);
        let (seed, stats, listed) = (seed(root).unwrap(), stats(root), listed(root));
        assert_eq!((stats.len(), listed.len(), seed.ids().count()), (300, 300, 300));
        let mut place = SeedPlace::default();
        // A map's order is any order.
        for (path, stat) in &stats {
            let found = seed.content(&mut place, path.as_str().into(), stat, LONG_AGO).unwrap();
            assert_eq!(found.to_string(), listed[path]);
            let missing = format!("{path}x");
            assert_eq!(seed.content(&mut place, missing.as_str().into(), stat, LONG_AGO), None);
        }
        let mut sorted: Vec<_> = stats.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(b.0));
        for (path, stat) in sorted {
            assert!(seed.content(&mut place, path.as_str().into(), stat, LONG_AGO).is_some());
        }
    }
}

#[test]
fn nothing_is_proven_by_half() {
    let temp = temp();
    let root = temp.path();
    init(root);
    write(root, "sub/f", "content");
    write(root, "sub/g", "content");
    git(root, &["add", "-A"]);
    let stat = stats(root)["sub/f"];
    let seed = |root: &Path| seed(root).unwrap();
    let ask = |stat: &Stat, granularity| {
        seed(root).content(&mut SeedPlace::default(), "sub/f".into(), stat, granularity)
    };
    assert!(ask(&stat, LONG_AGO).is_some());
    // From a folder of the work tree.
    let below = seed(&root.join("sub"));
    assert!(below.content(&mut SeedPlace::default(), "f".into(), &stat, LONG_AGO).is_some());
    assert!(below.content(&mut SeedPlace::default(), "sub/f".into(), &stat, LONG_AGO).is_none());
    assert!(ask(&stat, 1_000_000_000_000).is_none(), "too young");
    for change in [
        (|s| s.mtime_ns += 1) as fn(&mut Stat),
        |s| s.ctime_ns -= 1,
        |s| s.ctime_ns += 1_000_000_000,
        |s| s.size += 1,
        |s| s.size += 1 << 32,
        |s| s.ino += 1,
        |s| s.dev += 1,
        |s| s.kind = Kind::Link,
    ] {
        let mut other = stat;
        change(&mut other);
        assert_eq!(ask(&other, LONG_AGO), None, "{other:?}");
    }
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        git(root, &["update-index", flag, "sub/f"]);
        assert_eq!(ask(&stat, LONG_AGO), None, "{flag}");
        git(root, &["update-index", &flag.replace("--", "--no-"), "sub/f"]);
        assert!(ask(&stat, LONG_AGO).is_some());
    }
}

#[test]
fn some_indexes_and_settings_prove_nothing() {
    for setting in [
        &["config", "core.checkStat", "minimal"][..],
        &["config", "core.trustCTime", "false"],
        &["config", "attr.tree", "HEAD"],
        &["update-index", "--split-index"],
    ] {
        let temp = temp();
        init(temp.path());
        write(temp.path(), "f", "content");
        git(temp.path(), &["add", "-A"]);
        assert!(seed(temp.path()).is_some());
        git(temp.path(), setting);
        assert!(seed(temp.path()).is_none(), "{setting:?}");
    }
    let temp = temp();
    git(temp.path(), &["init", "-q", "--object-format=sha256"]);
    write(temp.path(), "f", "content");
    git(temp.path(), &["add", "-A"]);
    assert!(seed(temp.path()).is_none());
}

/// Whatever git would convert by a filter, an encoding or a keyword is in doubt. The other way round it need not be so.
#[test]
fn what_git_converts_is_in_doubt() {
    const PATTERNS: &[&str] = &[
        "*", "*.c", "f?", "/f*", "a/*", "a/**", "**/b/*", "a/b", "b", "[ab]*", "F*", "\"q w\"", "a/b/f1",
        "!f1",
    ];
    const SETS: &[&str] = &[
        "filter=x",
        "-filter",
        "!filter",
        "ident",
        "-ident",
        "working-tree-encoding=UTF-16",
        "text=auto",
        "loud",
        "-loud",
        "louder",
        "binary",
    ];
    const NAMES: &[&str] =
        &["f1", "F2", "x.c", "b", "q w", "a/f1", "a/x.c", "a/b/f1", "a/b/b", "c/b/f", "c/x.C"];
    let mut proven = 0;
    for n in 0..60 {
        let mut dice = Dice(n);
        let temp = temp();
        let root = temp.path();
        init(root);
        if dice.one_in(3) {
            git(root, &["config", "core.ignoreCase", "true"]);
        }
        for name in NAMES {
            write(root, name, *name);
        }
        // Before git would refuse what cannot be converted.
        git(root, &["add", "-A"]);
        for file in [".gitattributes", "a/.gitattributes", "a/b/.gitattributes", ".git/info/attributes"] {
            if dice.one_in(2) {
                continue;
            }
            let mut text = String::new();
            if !file.starts_with('a') {
                text += "[attr]loud filter=x\n[attr]louder loud -text\n";
            }
            for _ in 0..dice.roll(4) {
                let (pattern, set) = (dice.pick(PATTERNS), dice.pick(SETS));
                text += &format!("{}{pattern} {set} {}\n", ["", " ", "\t"][dice.roll(3)], dice.pick(SETS));
            }
            write(root, file, text);
        }
        let (seed, stats) = (seed(root).unwrap(), stats(root));
        let mut place = SeedPlace::default();
        let ask = ["check-attr", "filter", "ident", "working-tree-encoding", "--"];
        let out = String::from_utf8(git(root, &[&ask[..], NAMES].concat())).unwrap();
        for name in NAMES {
            let off = |l: &str| l.ends_with(": unspecified") || l.ends_with(": unset");
            let converted = out.lines().any(|l| l.starts_with(&format!("{name}: ")) && !off(l));
            let found = seed.content(&mut place, (*name).into(), &stats[*name], LONG_AGO);
            assert!(!(converted && found.is_some()), "case {n}: {out}");
            proven += u32::from(found.is_some());
        }
    }
    assert!(proven > 60, "{proven}");
}

/// Git reads the attributes of its index where the file is gone or hidden.
#[test]
fn attributes_that_are_not_on_disk_as_listed_leave_all_in_doubt() {
    let temp = temp();
    let root = temp.path();
    init(root);
    for name in ["f", "a/f", "a/b/f", "c/f"] {
        write(root, name, name);
    }
    write(root, "a/.gitattributes", "");
    git(root, &["add", "-A"]);
    let stats = stats(root);
    let known = || {
        let seed = seed(root).unwrap();
        let mut place = SeedPlace::default();
        ["f", "a/f", "a/b/f", "c/f"]
            .map(|f| seed.content(&mut place, f.into(), &stats[f], LONG_AGO).is_some())
    };
    assert_eq!(known(), [true; 4]);
    write(root, "a/.gitattributes", "# something else\n");
    assert_eq!(known(), [true, false, false, true]);
    fs::remove_file(root.join("a/.gitattributes")).unwrap();
    assert_eq!(known(), [true, false, false, true]);
    // Not listed, and there.
    write(root, "c/.gitattributes", "f ident\n");
    assert_eq!(known(), [true, false, false, false]);
    // Neither file nor nothing.
    fs::create_dir(root.join(".gitattributes")).unwrap();
    assert!(seed(root).is_none());
}

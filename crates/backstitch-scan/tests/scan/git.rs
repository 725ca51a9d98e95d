//! Real git decides: generated trees with generated ignore files must be seen as git sees them.

use std::{collections::BTreeSet, fs, os::unix::ffi::OsStrExt, path::Path};

use backstitch_scan::*;

use crate::support::*;

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"ab",
    b"abc",
    b"foo",
    b"bar",
    b"foo.o",
    b"bar.o",
    b"x.c",
    b"build",
    b"lib",
    b"A",
    b"Foo",
    b"foo bar",
    b"foo ",
    b" foo",
    b"#x",
    b"!x",
    b"x!",
    b"[x]",
    b"x]",
    b"a-b",
    b"a\\b",
    b"*",
    b"**",
    b"?",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\t",
    b"tab\t",
    b"a\rb",
    b"cr\r",
    b"new\nline",
    b"$x",
    b"~x",
    b"x~",
    b"{a,b}",
    b"-",
    b"0",
    b"9",
    b"_",
    b"a.b.c",
    b"...",
    b"..x",
    b".x",
];

fn pattern(dice: &mut Dice, names: &[&[u8]]) -> Vec<u8> {
    const ATOMS: &[&[u8]] = &[
        b"*",
        b"**",
        b"?",
        b"***",
        b"[a-c]",
        b"[!a]",
        b"[^a]",
        b"[]a]",
        b"[a",
        b"[[:alpha:]]",
        b"[[:space:]]",
        b"[[:digit:]x]",
        b"[[:bad:]]",
        b"[a-",
        b"[\\]]",
        b"[\\a-\\c]",
        b"\\*",
        b"\\",
        b"\\a",
        b"/",
        b"//",
        b".",
        b" ",
        b"\\ ",
        b"*.o",
        b"f*o",
        b"a*",
        b"[/]",
        b"\\/",
        b"\xff",
        b"[\xc3]\xa9",
        b"[A-C]",
        b"[--0]",
        b"[c-a]",
        b"\t",
        b"\r",
        b"!",
        b"#",
        b"\\!",
        b"\\#",
        b"*/",
    ];
    let mut text = Vec::new();
    if dice.one_in(4) {
        text.push(b'!');
    }
    if dice.one_in(5) {
        text.push(b'/');
    }
    for i in 0..1 + dice.roll(3) {
        if i > 0 {
            text.push(b'/');
        }
        match dice.roll(8) {
            0 => text.extend_from_slice(b"**"),
            1 => text.push(b'*'),
            2..=4 => text.extend_from_slice(dice.pick(names)),
            _ => {
                for _ in 0..1 + dice.roll(3) {
                    if dice.one_in(2) {
                        text.extend_from_slice(dice.pick(ATOMS));
                    } else {
                        let name = dice.pick(names);
                        let cut = 1 + dice.roll(name.len());
                        text.extend_from_slice(&name[..cut.min(name.len())]);
                    }
                }
            }
        }
    }
    if dice.one_in(4) {
        text.push(b'/');
    }
    for _ in 0..dice.roll(3) {
        text.push(dice.pick(b" \r\\"));
    }
    text
}

fn ignore_file(dice: &mut Dice, names: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    if dice.one_in(10) {
        text.extend_from_slice(b"\xef\xbb\xbf");
    }
    for _ in 0..1 + dice.roll(6) {
        match dice.roll(14) {
            0 => text.extend_from_slice(b"# comment"),
            1 => {}
            2 => {
                text.extend_from_slice(&pattern(dice, names));
                text.extend_from_slice(b"\0tail");
            }
            _ => text.extend_from_slice(&pattern(dice, names)),
        }
        match dice.roll(8) {
            0 => text.extend_from_slice(b"\r\n"),
            _ => text.push(b'\n'),
        }
    }
    if dice.one_in(6) {
        text.pop();
    }
    text
}

fn fill(dice: &mut Dice, dir: &Path, depth: usize, names: &[&[u8]], in_patterns: &[&[u8]]) {
    for _ in 0..2 + dice.roll(5) {
        let name = dice.pick(names);
        let path = dir.join(os(name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match dice.roll(6) {
            0..=2 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                fill(dice, &path, depth - 1, names, in_patterns);
            }
            3 if dice.one_in(3) => std::os::unix::fs::symlink("a", &path).unwrap(),
            _ => fs::write(&path, name).unwrap(),
        }
    }
    if dice.one_in(2) {
        let path = dir.join(".gitignore");
        if dice.one_in(20) {
            fs::write(dir.join("rules"), "*\n").unwrap();
            let _ = std::os::unix::fs::symlink("rules", path);
        } else {
            fs::write(path, ignore_file(dice, in_patterns)).unwrap();
        }
    }
}

/// What git would show: tracked, or untracked and not ignored; files that are there.
fn git_files(root: &Path) -> BTreeSet<BString> {
    let out = git(root, &["ls-files", "-co", "--exclude-standard", "-z"]);
    out.split(|b| *b == 0)
        .filter(|p| !p.is_empty() && fs::symlink_metadata(root.join(os(p))).is_ok_and(|m| !m.is_dir()))
        .map(BString::from)
        .collect()
}

fn our_files(setup: &Setup, root: &Path) -> BTreeSet<BString> {
    let sink = Memory::default();
    let outcome = setup.scan(root, None, &sink);
    sink.flatten(&outcome.root.unwrap())
        .into_iter()
        .filter(|(_, (kind, _))| *kind != 'd')
        .map(|(p, _)| p)
        .collect()
}

/// Nothing is left out by built-ins here, since git knows none: names of the generator avoid them.
fn compare(seed: u64, root: &Path) {
    let setup = Setup::of(root);
    let (ours, theirs) = (our_files(&setup, root), git_files(root));
    if ours != theirs {
        let show = |p: &BString| p.clone();
        let kept: Vec<_> = ours.difference(&theirs).map(show).collect();
        let lost: Vec<_> = theirs.difference(&ours).map(show).collect();
        let mut files = Vec::new();
        collect_rules(root, &mut files);
        panic!("seed {seed}: only we keep {kept:?}; only git keeps {lost:?}; rules {files:#?}");
    }
}

fn collect_rules(dir: &Path, into: &mut Vec<(BString, BString)>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != ".git" {
                collect_rules(&entry.path(), into);
            }
        } else if entry.file_name() == ".gitignore" {
            into.push((
                entry.path().as_os_str().as_bytes().into(),
                fs::read(entry.path()).unwrap_or_default().into(),
            ));
        }
    }
    let exclude = dir.join(".git/info/exclude");
    if let Ok(bytes) = fs::read(&exclude) {
        into.push((exclude.as_os_str().as_bytes().into(), bytes.into()));
    }
}

fn generated(seed: u64) {
    let mut dir = temp();
    dir.disable_cleanup(std::env::var_os("BACKSTITCH_KEEP").is_some());
    let root = dir.path();
    let mut dice = Dice(seed);
    init(root);
    // Few names make patterns hit; many make odd ones meet.
    let some: Vec<&[u8]> = if dice.one_in(2) { NAMES[..10].to_vec() } else { NAMES.to_vec() };
    let fold = dice.one_in(4);
    // With core.ignoreCase git does not list what is tracked in another spelling: names differ by more than case then.
    let names: Vec<&[u8]> =
        some.iter().copied().filter(|n| !fold || !n.iter().any(u8::is_ascii_uppercase)).collect();
    fill(&mut dice, root, 3, &names, &some);
    if dice.one_in(2) {
        fs::create_dir_all(root.join(".git/info")).unwrap();
        fs::write(root.join(".git/info/exclude"), ignore_file(&mut dice, &some)).unwrap();
    }
    if fold {
        git(root, &["config", "core.ignoreCase", "true"]);
    }
    if dice.one_in(3) {
        fs::write(root.join(".git/global"), ignore_file(&mut dice, &some)).unwrap();
        git(root, &["config", "core.excludesFile", root.join(".git/global").to_str().unwrap()]);
    }
    if dice.one_in(2) {
        // Track some of everything, ignored or not.
        let mut all = Vec::new();
        every_file(root, root, &mut all);
        let chosen: Vec<u8> = all
            .into_iter()
            .filter(|_| dice.one_in(3))
            .flat_map(|mut p: Vec<u8>| {
                p.push(0);
                p
            })
            .collect();
        git_with(root, &["update-index", "--add", "-z", "--stdin"], &chosen);
        match dice.roll(4) {
            0 => drop(git(root, &["update-index", "--index-version", "4"])),
            1 => drop(git(root, &["update-index", "--split-index"])),
            _ => {}
        }
    }
    compare(seed, root);
}

fn every_file(root: &Path, dir: &Path, into: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != ".git" {
                every_file(root, &entry.path(), into);
            }
        } else {
            into.push(entry.path().strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec());
        }
    }
}

/// `BACKSTITCH_SEEDS=from..to` tries others, `BACKSTITCH_KEEP=1` leaves the trees.
#[test]
fn generated_trees_are_seen_as_git_sees_them() {
    let seeds = match std::env::var("BACKSTITCH_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").unwrap();
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..120,
    };
    seeds.for_each(generated);
}

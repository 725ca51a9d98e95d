//! Mutated input for each parser of the walk: a decision, at once, never a panic.

use std::fs;

use backstitch_testkit::fuzz::run;
use bstr::{BStr, ByteSlice};

use crate::{
    index::Tracked,
    pattern::List,
    rules::{RuleSettings, Rules},
};

const PATTERNS: &[&[u8]] = &[
    b"**/",
    b"/**",
    b"[!a-z]",
    b"[[:alpha:]]",
    b"\\",
    b"***a",
    b"*a*b*c",
    b"!",
    b"\\ ",
    b"[]-]",
    b"a/**/b",
    b"\n",
];

/// Lines of rules, a NUL, and a path.
#[test]
fn fuzz_ignore_rules() {
    let seeds: [&[u8]; 5] = [
        b"*.o\n!keep.o\n/build/\n\0src/a.o",
        b"a/**/b\n**/x\nfoo/**\n\0a/q/r/b",
        b"[[:digit:]]*[!z]\\*\n\0" as &[u8],
        b"\xef\xbb\xbf# comment\r\n  \\ \n\0x",
        b"*a*a*a*a*a*a*a*a*b\n\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    run("ignore-rules", &seeds, PATTERNS, |input| {
        let (rules, path) = input.split_at(input.find_byte(0).unwrap_or(input.len()));
        let path = path.get(1..).unwrap_or_default().as_bstr();
        let name = path.rsplit_str("/").next().unwrap_or_default().as_bstr();
        let list = List::parse(rules);
        assert!(!list.is_empty() || list.decide(path, name, true, false).is_none());
        [false, true].map(|fold| [false, true].map(|is_dir| list.decide(path, name, is_dir, fold)))
    });
}

/// A git index of version 2 with these paths.
fn index(version: u32, paths: &[&str]) -> Vec<u8> {
    let mut out = b"DIRC".to_vec();
    out.extend(version.to_be_bytes());
    out.extend((paths.len() as u32).to_be_bytes());
    for path in paths {
        let start = out.len();
        out.extend([0; 24]);
        out.extend(0o100644u32.to_be_bytes());
        out.extend([0; 12 + 20]);
        out.extend((path.len() as u16).to_be_bytes());
        if version == 4 {
            out.push(0);
        }
        out.extend(path.as_bytes());
        out.push(0);
        while version < 4 && !(out.len() - start).is_multiple_of(8) {
            out.push(0);
        }
    }
    out.extend([0; 20]);
    out
}

#[test]
fn fuzz_git_index() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("index");
    let seeds = [2, 3, 4].map(|v| index(v, &["a", "dir/b", "dir/sub/c"]));
    let words: [&[u8]; 6] = [b"DIRC", b"link\0\0\0\x14", b"sdir\0\0\0\0", &[0x40, 0], &[0x80, 0x80], b"TREE"];
    run("git-index", &seeds, &words, |input| {
        fs::write(&file, input).expect("written");
        let tracked = Tracked::new(file.clone(), 20, false);
        ["a", "dir", "dir/sub/c", "nothing"]
            .map(|p| tracked.lists(BStr::new(p), true).map_err(|e| e.to_string().len()))
    });
}

#[test]
fn fuzz_stored_rules() {
    let rules = |include: &[&str], exclude: &[&str]| {
        let owned = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
        let settings =
            RuleSettings { include: owned(include), exclude: owned(exclude), ..Default::default() };
        let dir = tempfile::tempdir().expect("dir");
        Rules::discover(dir.path(), &settings).expect("rules").to_bytes()
    };
    let seeds = [rules(&[], &[]), rules(&["*.env", "a/b"], &["/tmp/", "**/x"])];
    run("stored-rules", &seeds, PATTERNS, |input| {
        let rules = Rules::from_bytes(input)?;
        let again = rules.to_bytes();
        let back = Rules::from_bytes(&again).expect("what was written");
        assert_eq!(back.to_bytes(), again, "there and back");
        let root = rules.root(Some(b"*.o\n"), None);
        Some(["a.o", "b", "tmp"].map(|n| format!("{:?}", root.verdict(BStr::new(n), false))))
    });
}

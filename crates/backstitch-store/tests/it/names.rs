//! Names that git refuses, judged by git.

use std::collections::BTreeSet;

use crate::support::*;
use backstitch_store::*;

fn hostile() -> BTreeSet<Vec<u8>> {
    let heads = [
        ".git",
        ".GIT",
        ".gIt",
        ".g\u{200c}it",
        "\u{feff}.git",
        "\u{200d}.Git\u{206b}",
        "git~1",
        "GIT~2",
        "gi7eba~1",
        "gi7d29~9",
        "GI250A~1",
        ".gitmodules",
        ".GitModules",
        "gitmod~1",
        ".gitattributes",
        ".gitattribute",
        "gitatt~1",
        ".gitignore",
        "gitign~1",
        ".mailmap",
        "a",
        "%bs%",
        "%bs%%2egit",
        "%",
        "\u{e9}",
        ".",
        "..",
        "...",
        "con",
        "aux.txt",
        "x:y",
        "-",
        "~",
        " ",
        "\t",
        "\n",
        "\"",
        "g",
        ".g",
        ".gi",
    ];
    let tails = [
        "",
        " ",
        ".",
        ". . ",
        ":",
        "::$INDEX_ALLOCATION",
        ":x",
        "~",
        "~1",
        "/",
        "\\",
        "\\a",
        "\\.git",
        "\u{200c}",
        "\u{2060}",
        "x",
        "s",
        "\n",
        "\u{7f}",
        "%",
    ];
    let mut out = BTreeSet::new();
    for h in heads {
        for t in tails {
            for before in ["", "\\", "a\\", " ", "\u{206f}", ".", "%bs%"] {
                out.insert(format!("{before}{h}{t}").into_bytes());
            }
            out.insert([h.as_bytes(), b"\xff", t.as_bytes()].concat());
            out.insert([h.as_bytes(), t.as_bytes(), b"\xe2\x80"].concat());
            out.insert([b"\xe2\x80", h.as_bytes(), t.as_bytes()].concat());
        }
    }
    for b in 1..=255u8 {
        out.insert(vec![b]);
        out.insert([&b".git"[..], &[b]].concat());
        out.insert([&b".gitmodules"[..], &[b]].concat());
        out.insert([&b"git~"[..], &[b]].concat());
        out.insert([&[b][..], b".git"].concat());
    }
    out.retain(|n| !n.is_empty() && n != b"." && n != b".." && !n.contains(&b'/') && !n.contains(&0));
    out
}

/// As file, as link and as directory: git judges each by other rules.
#[test]
fn git_accepts_every_encoded_name() {
    let f = fixture();
    let all = hostile();
    assert!(all.len() > 6000, "{}", all.len());
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let odd = w.blob(&mut s, b"[submodule \"x\"]\n\turl = -evil\n\tpath = ../x\n").unwrap().0;
    let inner = w.tree(&mut s, &mut [file("f", odd)]).unwrap().0;
    let mut trees = Vec::new();
    for (mode, oid) in [(MODE_FILE, odd), (MODE_LINK, odd), (MODE_TREE, inner), (MODE_EXECUTABLE, odd)] {
        let entry = |n: &Vec<u8>| TreeEntry { mode, name: names::encode(n).into_owned().into(), oid };
        let mut entries: Vec<_> = all.iter().map(entry).collect();
        let tree = w.tree(&mut s, &mut entries).unwrap().0;
        trees.push(TreeEntry { mode: MODE_TREE, name: format!("{mode:o}").into(), oid: tree });
    }
    let root = w.tree(&mut s, &mut trees).unwrap().0;
    let commit = w.commit(&mut s, &root, b"names\n", 1).unwrap();
    w.finish().unwrap();
    f.set("names", commit);
    // Links called .mailmap or .gitignore are noted by git, which is not an error.
    let fsck = try_git(&f.store.git_dir(), f.path(), &["fsck", "--strict", "--full"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stderr));
    let index = f.path().join("index");
    let out = std::process::Command::new("git")
        .args(["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "read-tree", &root.to_string()])
        .current_dir(f.store.git_dir())
        .env("GIT_INDEX_FILE", &index)
        .env("HOME", f.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let odb = f.store.odb().unwrap();
    for t in odb.tree(&root).unwrap() {
        let back: BTreeSet<Vec<u8>> =
            odb.tree(&t.oid).unwrap().iter().map(|e| names::decode(&e.name).unwrap().into_owned()).collect();
        assert_eq!(back, all);
    }
}

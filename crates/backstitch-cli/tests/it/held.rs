//! What a checkpoint holds, folder by folder.

use std::os::unix::fs::symlink;

use crate::support::World;

#[test]
fn a_folder_a_file_and_all_of_it() {
    let w = World::new();
    symlink("a.txt", w.path("link")).unwrap();
    std::fs::create_dir(w.path("sub/deep")).unwrap();
    w.write("sub/deep/c", vec![b'x'; 2048]);
    w.chmod("a.txt", 0o644);
    w.chmod("bin", 0o644);
    w.chmod("sub", 0o755);
    w.chmod("sub/b.txt", 0o644);
    w.chmod("sub/deep", 0o755);
    w.save(&[]);
    // What is there now does not matter.
    w.write("a.txt", "much more than before\n");
    w.write("later", "x");
    w.shows(
        &["files", "@"],
        "
0644  14 B  a.txt
0644   3 B  bin
link        link → a.txt
0755  10 B  run.sh
0755        sub/
4 files, 1 folder, 32 B",
    );
    w.shows(
        &["files", "@", "sub", "-r"],
        "
0644      2 B  sub/b.txt
0755           sub/deep/
0644  2.0 KiB  sub/deep/c
2 files, 1 folder, 2.0 KiB",
    );
    w.shows(
        &["files", "@", "sub/b.txt"],
        "
0644  2 B  sub/b.txt
1 file, 0 folders, 2 B",
    );
    assert!(w.run(&["files", "@"]).stderr.contains("-r lists"));
    let v = w.json(&["files", "@", "link"]);
    assert_eq!(
        (v["entries"][0]["type"].as_str(), v["entries"][0]["target"].as_str()),
        (Some("link"), Some("a.txt"))
    );
    assert_eq!(w.fails(4, &["files", "@", "later"])["path"], "later");
    assert_eq!(w.fails(4, &["files", "@", "a.txt/x"])["code"], "no-such-path");
    assert_eq!(w.fails(5, &["files", "@", "../x"])["code"], "unsafe-path");
}

#[test]
fn what_was_left_out_is_told_where_it_is() {
    let w = World::new();
    w.write(".gitignore", "out/\n*.log\n");
    w.write("sub/x.log", "x");
    w.write("out/x", "x");
    w.json(&["config", "set", "ignored", "none"]);
    w.save(&[]);
    let reasons = |args: &[&str]| -> Vec<String> {
        let v = w.json(args);
        let list = v["not_covered"].as_array().unwrap().iter();
        list.map(|s| s["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(reasons(&["files", "@"]), ["out"]);
    assert_eq!(reasons(&["files", "@", "sub"]), ["sub/x.log"]);
    assert_eq!(reasons(&["files", "@", "-r"]), ["out", "sub/x.log"]);
    assert!(w.text(&["files", "@", "sub"]).contains("not covered  sub/x.log"));
}

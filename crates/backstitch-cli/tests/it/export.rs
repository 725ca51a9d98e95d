//! `export`

use std::{fs, process::Command};

use backstitch_testkit::{Compare, Git, TreeModel, privilege::has_program};

use crate::support::World;

#[test]
fn as_a_folder() {
    let (w, id) = World::recorded();
    let want = TreeModel::read(&w.ws).unwrap();
    w.write("a.txt", "changed\n");
    let out = w.top.join("out");
    let v = w.json(&["export", &id, out.to_str().unwrap()]);
    assert_eq!((v["checkpoint"].as_str(), v["form"].as_str()), (Some(id.as_str()), Some("folder")));
    want.assert_same(&TreeModel::read(&out).unwrap(), &Compare::default(), "the export");
    // Not over something.
    let run = w.cli.json(&w.ws, ["export", &id, out.to_str().unwrap()]).unwrap();
    assert_eq!(run.code, Some(5), "{run}");
    assert!(run.stderr.contains(out.to_str().unwrap()), "{run}");
}

#[test]
fn as_an_archive() {
    backstitch_testkit::require!(has_program("tar"), "needs tar");
    let (w, id) = World::recorded();
    let want = TreeModel::read(&w.ws).unwrap();
    let file = w.top.join("x.tar");
    w.json(&["export", &id, "--tar", file.to_str().unwrap()]);
    let out = w.top.join("out");
    fs::create_dir(&out).unwrap();
    let status = Command::new("tar").arg("-xpf").arg(&file).arg("-C").arg(&out).status().unwrap();
    assert!(status.success());
    want.assert_same(&TreeModel::read(&out).unwrap(), &Compare::default(), "the archive");
    assert_eq!(w.run(&["export", &id, "--tar", "-"]).stdout, fs::read(&file).unwrap());
}

#[test]
fn as_a_patch() {
    backstitch_testkit::require!(has_program("git"), "needs git");
    let (w, first) = World::changed();
    let second = w.save(&[]);
    let want = TreeModel::read(&w.ws).unwrap();
    let file = w.top.join("x.patch");
    w.json(&["export", &second, "--patch", file.to_str().unwrap()]);
    let out = w.top.join("out");
    w.json(&["export", &first, out.to_str().unwrap()]);
    let git = Git::new().unwrap();
    git.run(&out, ["apply", file.to_str().unwrap()]).unwrap();
    want.assert_same(&TreeModel::read(&out).unwrap(), &Compare::as_git(), "the patched folder");
}

#[test]
fn as_a_bundle() {
    backstitch_testkit::require!(has_program("git"), "needs git");
    let (w, id) = World::recorded();
    let file = w.top.join("x.bundle");
    w.json(&["export", &id, "--bundle", file.to_str().unwrap()]);
    let git = Git::new().unwrap();
    git.run(&w.top, ["init", "-q", "clone"]).unwrap();
    let heads = git.run(&w.top.join("clone"), ["bundle", "list-heads", file.to_str().unwrap()]).unwrap();
    let commit = w.json(&["show", &id])["checkpoint"]["commit"].as_str().unwrap().to_owned();
    assert!(String::from_utf8_lossy(&heads).contains(&commit));
    let name = String::from_utf8_lossy(&heads).split_whitespace().nth(1).unwrap().to_owned();
    git.run(&w.top.join("clone"), ["fetch", "-q", file.to_str().unwrap(), &name]).unwrap();
    let text = git.run(&w.top.join("clone"), ["show", "FETCH_HEAD:files/a.txt"]).unwrap();
    assert_eq!(text, b"one\ntwo\nthree\n");
}

#[test]
fn a_file_that_is_there_stays() {
    let (w, id) = World::recorded();
    let file = w.top.join("x.tar");
    fs::write(&file, "mine").unwrap();
    let e = w.fails(5, &["export", &id, "--tar", file.to_str().unwrap()]);
    assert_eq!((e["code"].as_str(), e["path"].as_str()), (Some("conflict"), file.to_str()));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    w.json(&["export", &id, "--tar", file.to_str().unwrap(), "--force"]);
    assert!(fs::read(&file).unwrap().len() > 1000);
    assert_eq!(fs::read_dir(&w.top).unwrap().count(), 2, "no temporary stays");
    // Two documents cannot share one output.
    let run = w.cli.json(&w.ws, ["export", &id, "--tar", "-"]).unwrap();
    assert_eq!(
        (run.code, run.error_code().as_deref(), run.stdout.len()),
        (Some(2), Some("usage"), 0),
        "{run}"
    );
}

#[test]
fn a_patch_of_everything_is_taken_by_git() {
    backstitch_testkit::require!(has_program("git"), "needs git");
    let w = World::new();
    w.write("big", vec![7; 3 << 20]);
    w.write(
        "noise",
        (0..70_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<_>>(),
    );
    w.write("file to link", "text\n");
    w.write("name with spaces.txt", "a\nb\n");
    w.write("folder to file/x", "x");
    w.write("bin moved", [0; 5000]);
    w.write("end", "no newline");
    w.write("gone.bin", b"\0gone");
    std::os::unix::fs::symlink("a.txt", w.path("link to file")).unwrap();
    std::os::unix::fs::symlink("a.txt", w.path("link")).unwrap();
    let first = w.save(&[]);
    w.write("bin", b"\0\xff changed");
    w.write("big", vec![8; 2 << 20]);
    w.write("noise", "");
    for (gone, content) in [("file to link", None), ("link to file", Some("now\n")), ("link", None)] {
        fs::remove_file(w.path(gone)).unwrap();
        match content {
            Some(text) => w.write(gone, text),
            None => std::os::unix::fs::symlink("run.sh", w.path(gone)).unwrap(),
        }
    }
    w.write("name with spaces.txt", "a\nB\n");
    fs::remove_dir_all(w.path("folder to file")).unwrap();
    w.write("folder to file", "y");
    fs::remove_file(w.path("sub/b.txt")).unwrap();
    fs::remove_dir(w.path("sub")).unwrap();
    w.write("file to folder/deep/x", b"\0x");
    fs::rename(w.path("bin moved"), w.path("bin there")).unwrap();
    w.write("end", "no newline still");
    fs::remove_file(w.path("gone.bin")).unwrap();
    w.write("new empty", "");
    w.write("new.bin", b"\0new");
    w.write("caf\u{e9}\n", "odd name\n");
    w.chmod("a.txt", 0o755);
    fs::create_dir(w.path("empty folder")).unwrap();
    w.chmod("name with spaces.txt", 0o640);
    let second = w.save(&[]);
    let want = TreeModel::read(&w.ws).unwrap().filter(|p, _| p != b"empty folder");
    let file = w.top.join("x.patch");
    let v = w.json(&["export", &second, "--patch", file.to_str().unwrap()]);
    assert!(v["warnings"].to_string().contains("empty folder is not in the patch"), "{v}");
    let out = w.top.join("out");
    w.json(&["export", &first, out.to_str().unwrap()]);
    let git = Git::new().unwrap();
    git.run(&out, ["apply", file.to_str().unwrap()]).unwrap();
    want.assert_same(&TreeModel::read(&out).unwrap(), &Compare::as_git(), "the patched folder");
    // And back; git itself loses a change of type between file and link there, also of its own patches.
    git.run(&out, ["apply", "-R", file.to_str().unwrap()]).unwrap();
    let back = w.top.join("back");
    w.json(&["export", &first, back.to_str().unwrap()]);
    let others = |m: TreeModel| m.filter(|p, _| p != b"link to file" && p != b"file to link");
    let (want, found) = (others(TreeModel::read(&back).unwrap()), others(TreeModel::read(&out).unwrap()));
    want.assert_same(&found, &Compare::as_git(), "reversed");
    // The first one, from nothing.
    let v = w.json(&["export", &first, "--patch", w.top.join("all.patch").to_str().unwrap()]);
    assert!(v["warnings"].is_null() || v["warnings"].as_array().unwrap().is_empty(), "{v}");
    let fresh = w.top.join("fresh");
    fs::create_dir(&fresh).unwrap();
    git.run(&fresh, ["apply", "../all.patch"]).unwrap();
    TreeModel::read(&back).unwrap().assert_same(
        &TreeModel::read(&fresh).unwrap(),
        &Compare::as_git(),
        "made anew",
    );
}

#[test]
fn a_bundle_holds_large_files_and_empty_folders() {
    backstitch_testkit::require!(has_program("git"), "needs git");
    let w = World::new();
    // Larger than what goes into a pack of ours.
    let large: Vec<u8> = (0..17u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    w.write("large.bin", &large);
    w.write("empty.txt", "");
    fs::create_dir(w.path("empty")).unwrap();
    let id = w.save(&[]);
    let file = w.top.join("x.bundle");
    w.json(&["export", &id, "--bundle", file.to_str().unwrap()]);
    let git = Git::new().unwrap();
    // As a pack, so that git does not leave out what it takes for granted.
    let clone = ["-c", "fetch.unpackLimit=1", "clone", "-q", "--mirror", file.to_str().unwrap(), "clone"];
    git.run(&w.top, clone).unwrap();
    let out = git.run(&w.top.join("clone"), ["fsck", "--strict"]).unwrap();
    assert!(!String::from_utf8_lossy(&out).contains("missing"), "{}", String::from_utf8_lossy(&out));
    let got = git.run(&w.top.join("clone"), ["show", "HEAD:files/large.bin"]).unwrap();
    assert!(got == large, "the large file came through");
}

#[test]
fn an_export_that_is_interrupted_says_what_is_there() {
    use backstitch::{
        error::Code,
        workspace::{Control, Surroundings, Workspace},
    };
    use std::sync::atomic::{AtomicBool, Ordering};
    let w = World::new();
    for n in 0..200 {
        w.write(&format!("many/{n}"), "x");
    }
    w.save(&[]);
    let s = Surroundings { store_base: w.cli.store_dir(), ..Surroundings::default() };
    let ws = Workspace::open(&w.ws, s).unwrap();
    let rows = ws.rows().unwrap();
    let stop = AtomicBool::new(false);
    let tick = |_: &str, done: u64, _: u64| stop.store(done > 20, Ordering::Relaxed);
    let mut archive = Vec::new();
    let control = Control { interrupt: &stop, progress: &tick };
    let e = ws.export_tar(rows.newest().unwrap(), &mut archive, &control).unwrap_err();
    assert_eq!(e.code, Code::Interrupted);
    // At once, so that it is known how far it came.
    let stop = AtomicBool::new(true);
    let out = w.top.join("out");
    let control = Control { interrupt: &stop, progress: &|_, _, _| {} };
    let e = ws.export_dir(rows.newest().unwrap(), &out, &control).unwrap_err();
    assert_eq!(e.code, Code::Interrupted);
    assert!(e.hint.unwrap().contains("holds a part of it"));
}

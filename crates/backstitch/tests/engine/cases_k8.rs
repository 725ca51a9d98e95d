//! K8: the user's own git is never touched.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use backstitch_testkit::{Compare, Git, TreeModel, git::HOSTILE_VARIABLES, privilege, require};

use crate::{
    support::{Stop, content, git, ids, items, no_litter, open_at, process, repository, untouched},
    world::{World, same},
};

fn dot_git(w: &World) -> TreeModel {
    TreeModel::read_all(&w.path(".git")).unwrap()
}

#[test]
fn r91_careful_staging_survives() {
    let w = World::new();
    w.write("a", "one\ntwo\nthree\nfour\n");
    w.write("b", "b\n");
    repository(&w.root());
    // Half of `a` is staged, and something is staged as added and as deleted.
    w.write("a", "ONE\ntwo\nthree\nfour\n");
    w.write("added", "new\n");
    git(&w.root(), &["add", "a", "added"]);
    git(&w.root(), &["rm", "-q", "--cached", "b"]);
    w.write("a", "ONE\ntwo\nthree\nFOUR\n");
    let staged = git(&w.root(), &["diff", "--cached"]);
    assert!(staged.contains("+ONE") && !staged.contains("FOUR"));
    let c = w.checkpoint();
    w.write("b", "by the agent\n");
    w.write("a", "by the agent\n");
    let before = dot_git(&w);
    w.restore(&c);
    w.undo().unwrap();
    w.redo().unwrap();
    untouched(&before, &w.path(".git"), "the index and all else");
    assert_eq!(git(&w.root(), &["diff", "--cached"]), staged);
    assert_eq!(w.read("a"), "ONE\ntwo\nthree\nFOUR\n");
}

#[test]
fn r92_head_branches_reflog_stash_and_config_stay() {
    let w = World::new();
    w.write("a", "1\n");
    repository(&w.root());
    w.write("a", "stashed\n");
    git(&w.root(), &["stash", "-q"]);
    git(&w.root(), &["config", "user.nick", "x"]);
    let c = w.checkpoint();
    for n in 2..4 {
        w.write("a", format!("{n}\n"));
        git(&w.root(), &["commit", "-q", "-a", "-m", "later"]);
    }
    git(&w.root(), &["checkout", "-q", "-b", "topic"]);
    git(&w.root(), &["tag", "t"]);
    let before = dot_git(&w);
    w.restore(&c);
    assert_eq!(w.read("a"), "1\n");
    untouched(&before, &w.path(".git"), "after restore");
    w.undo().unwrap();
    assert_eq!(w.read("a"), "3\n");
    untouched(&before, &w.path(".git"), "after undo");
    // Detached, in the middle of a merge: the same.
    git(&w.root(), &["checkout", "-q", "--detach", "HEAD~1"]);
    let before = dot_git(&w);
    w.checkpoint();
    w.restore(&c);
    untouched(&before, &w.path(".git"), "detached");
}

/// Variables as they are in a git hook, or worse.
fn lead_astray(c: &mut std::process::Command, victim: &Path) {
    for name in HOSTILE_VARIABLES {
        c.env(name, victim.join("odd").join(name));
    }
    c.env("GIT_DIR", victim.join(".git"))
        .env("GIT_WORK_TREE", victim)
        .env("GIT_INDEX_FILE", victim.join(".git/index"))
        .env("GIT_OBJECT_DIRECTORY", victim.join(".git/objects"))
        .env("GIT_COMMON_DIR", victim.join(".git"));
}

#[test]
fn r93_git_variables_lead_nowhere() {
    let w = World::new();
    w.write("a", "1");
    w.write(".gitignore", "ignored/\n");
    w.write("ignored/x", "x");
    repository(&w.root());
    let victim = w.dir.path().canonicalize().unwrap().join("victim");
    fs::create_dir(&victim).unwrap();
    // Its rules must not count either.
    fs::write(victim.join(".gitignore"), "*\n").unwrap();
    fs::write(victim.join("a"), "victim").unwrap();
    repository(&victim);
    fs::write(victim.join(".git/info/exclude"), "a\n").unwrap();
    let before = TreeModel::read_all(&victim).unwrap();
    let own = dot_git(&w);
    let run = |words: &[&str]| {
        let mut c = process(&w, words);
        lead_astray(&mut c, &victim);
        ids(c.spawn().unwrap())
    };
    let c = run(&["checkpoint", "1"]);
    assert_eq!(c.len(), 1);
    let first = w.model();
    let same_tree = w.checkpoint();
    assert!(same_tree.record.unchanged, "the same tree as without the variables");
    w.write("a", "2");
    w.write("b", "new");
    run(&["restore", &c[0]]);
    same(&first, &w.model(), "restored");
    run(&["undo"]);
    assert_eq!(w.read("a"), "2");
    run(&["redo"]);
    same(&first, &w.model(), "redone");
    untouched(&before, &victim, "the other repository");
    untouched(&own, &w.path(".git"), "its own repository");
    w.check_store();
}

#[test]
fn r93_from_inside_a_commit_hook() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    w.write("a", "2");
    git(&w.root(), &["add", "a"]);
    w.write("a", "3 not staged");
    let child = process(&w, &["checkpoint", "1"]);
    let quote = |s: &std::ffi::OsStr| format!("'{}'", s.to_str().unwrap());
    let mut line = String::new();
    for (k, v) in child.get_envs() {
        line.push_str(&format!("{}={} ", k.to_str().unwrap(), quote(v.unwrap())));
    }
    line.push_str(&quote(child.get_program()));
    for a in child.get_args() {
        line.push_str(&format!(" {}", quote(a)));
    }
    let hook = w.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ntest -n \"$GIT_INDEX_FILE\" || exit 9\n{line} >&2\n")).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    git(&w.root(), &["commit", "-q", "-m", "by the user"]);
    let c = w.find("@").unwrap();
    let mut bytes = Vec::new();
    w.open().cat(&c, "a".into(), &mut bytes).unwrap();
    assert_eq!(bytes, b"3 not staged");
    assert_eq!(git(&w.root(), &["show", "HEAD:a"]), "2", "the user's commit is the user's");
    assert_eq!(git(&w.root(), &["status", "--porcelain"]).trim(), "M a");
    git(&w.root(), &["fsck", "--strict"]);
}

#[test]
fn r94_signing_hooks_filters_and_line_endings_change_nothing() {
    let w = World::new();
    let oracle = Git::new().unwrap();
    let hostile = oracle.hostile_repository(&w.root()).unwrap();
    // The user's own home has the same settings.
    let home = w.dir.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::copy(w.path(".git/config"), home.join(".gitconfig")).unwrap();
    w.write("crlf.txt", "one\r\ntwo\nthree\r");
    w.write("lf.txt", "one\ntwo\n");
    w.write("ident.c", "/* $Id$ $Id: abc $ */\n");
    w.write("big.bin", vec![0u8; 3000]);
    w.write("x.globally-ignored", "small and ignored: kept");
    let before = w.model();
    let repo = dot_git(&w);
    let c = w.checkpoint();
    // The bytes are those of the disk, as stock git sees the blobs.
    let stored = oracle.tree_model(&w.git_dir(), &format!("{}:files", c.commit)).unwrap();
    content(&w.root()).assert_same(&stored, &Compare::as_git(), "stored bytes");
    // And those of a folder without any git.
    let plain = World::new();
    for name in ["crlf.txt", "lf.txt", "ident.c", "big.bin", "x.globally-ignored", ".gitattributes"] {
        fs::copy(w.path(name), plain.path(name)).unwrap();
    }
    let p = plain.checkpoint();
    let other = oracle.tree_model(&plain.git_dir(), &format!("{}:files", p.commit)).unwrap();
    other.assert_same(&stored, &Compare::as_git(), "as with no configuration at all");
    for name in ["crlf.txt", "lf.txt", "ident.c", "big.bin", ".gitattributes"] {
        w.write(name, "changed\n");
    }
    w.restore(&c);
    same(&before, &w.model(), "restored");
    untouched(&repo, &w.path(".git"), "the repository");
    assert_eq!(hostile.sprung().unwrap(), Vec::<String>::new(), "nothing was run");
    assert!(!hostile.elsewhere.exists());
    w.check_store();
}

#[test]
fn r94_a_repository_of_a_foreign_owner() {
    require!(privilege::is_root(), "needs root");
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    fs::create_dir(w.dir.path().join("home")).unwrap();
    fs::write(w.dir.path().join("home/.gitconfig"), "[safe]\n\tdirectory =\n").unwrap();
    for path in TreeModel::read_all(&w.root()).unwrap().entries.keys() {
        std::os::unix::fs::lchown(
            w.root().join(crate::support::os(path)),
            Some(privilege::OTHER),
            Some(privilege::OTHER),
        )
        .unwrap();
    }
    chown(w.root(), Some(privilege::OTHER), Some(privilege::OTHER)).unwrap();
    let (before, repo) = (w.model(), dot_git(&w));
    let c = w.checkpoint();
    w.write("a", "2");
    fs::remove_file(w.path("a")).unwrap();
    w.write("new", "by root");
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    let owners = Compare { owner: true, ..Compare::default() };
    before.assert_same(&w.model(), &owners, "restored, with its owner");
    untouched(&repo, &w.path(".git"), "the repository");
}

#[test]
fn r95_fifty_turns_leave_git_with_the_same_answers() {
    let w = World::new();
    w.write("a", "0");
    repository(&w.root());
    let ask = || {
        [
            &["for-each-ref"][..],
            &["fsck", "--full", "--strict"],
            &["count-objects", "-v"],
            &["log", "--all", "--format=%H"],
        ]
        .map(|args| git(&w.root(), args))
    };
    let before = ask();
    let repo = dot_git(&w);
    let mut rows = Vec::new();
    for n in 0..50 {
        w.write("a", format!("turn {n}"));
        rows.push(w.checkpoint());
    }
    for c in rows.iter().step_by(10) {
        w.restore(c);
    }
    untouched(&repo, &w.path(".git"), "the repository");
    assert_eq!(ask(), before);
    // Every ref of our own store is a commit, too: clients that assume so can read it.
    let kinds = Git::new()
        .unwrap()
        .command(&w.git_dir(), ["for-each-ref", "--format=%(objecttype)"])
        .env("GIT_DIR", w.git_dir())
        .output()
        .unwrap();
    let kinds = String::from_utf8(kinds.stdout).unwrap();
    assert!(kinds.lines().count() >= 55 && kinds.lines().all(|k| k == "commit"), "{kinds}");
}

#[test]
fn r97_status_after_a_restore_shows_what_the_user_would_expect() {
    let w = World::new();
    for f in ["same", "edited", "deleted", "d/inner"] {
        w.write(f, format!("{f}\n"));
    }
    repository(&w.root());
    w.write("edited", "before the checkpoint\n");
    w.write("untracked", "u\n");
    std::fs::remove_file(w.path("deleted")).unwrap();
    let expected = git(&w.root(), &["status", "--porcelain"]);
    let c = w.checkpoint();
    w.write("edited", "after\n");
    w.write("same", "after\n");
    w.write("deleted", "again\n");
    w.write("more/untracked", "u\n");
    std::fs::remove_dir_all(w.path("d")).unwrap();
    std::fs::remove_file(w.path("untracked")).unwrap();
    assert_ne!(git(&w.root(), &["status", "--porcelain"]), expected);
    w.restore(&c);
    assert_eq!(git(&w.root(), &["status", "--porcelain"]), expected);
    no_litter(&w.model());
    w.undo().unwrap();
    no_litter(&w.model());
}

#[test]
fn r100_the_users_git_never_waits_for_us() {
    let w = World::new();
    w.write("a", "0");
    repository(&w.root());
    w.checkpoint();
    let done = AtomicBool::new(false);
    let captured = std::thread::scope(|s| {
        let capture = s.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) || n == 0 {
                w.checkpoint();
                n += 1;
            }
            n
        });
        let stop = Stop(&done);
        // Fails on the first lock error.
        for n in 0..40 {
            w.write("a", format!("{n}"));
            w.write(&format!("f{n}"), "x");
            git(&w.root(), &["add", "-A"]);
            git(&w.root(), &["commit", "-q", "-m", "by the user"]);
        }
        drop(stop);
        capture.join().unwrap()
    });
    assert!(captured > 0);
    assert_eq!(git(&w.root(), &["log", "--format=%H"]).lines().count(), 41);
    let rows = w.open().rows().unwrap();
    assert!(rows.damaged.is_empty());
    let mut kinds = BTreeMap::new();
    for c in &rows.all {
        *kinds.entry(format!("{:?}", c.record.state)).or_insert(0) += 1;
    }
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    w.check_store();
}

/// A repository whose `.git` is a link is as much the user's as any.
#[test]
fn r92_dot_git_as_a_link() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    let real = w.dir.path().canonicalize().unwrap().join("repo");
    fs::rename(w.path(".git"), &real).unwrap();
    symlink(&real, w.path(".git")).unwrap();
    let c = w.checkpoint();
    let before = TreeModel::read_all(&real).unwrap();
    let link = fs::symlink_metadata(w.path(".git")).unwrap();
    w.write("a", "2");
    w.write("b", "2");
    w.restore(&c);
    assert_eq!(w.read("a"), "1");
    untouched(&before, &real, "the repository");
    let after = fs::symlink_metadata(w.path(".git")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((link.ino(), link.ctime()), (after.ino(), after.ctime()));
    assert_eq!(open_at(&w, &w.root()).rows().unwrap().all.len(), 2);
}

//! The user's git state: recorded as data, put back only by `--git-state`.

use std::{fs, path::Path, process::Command};

use backstitch::{error::Code, record::Checkpoint, restore, undo, workspace::Control};
use backstitch_testkit::{Git, TreeModel};

use crate::{
    support::{git, process, repository, shell, untouched},
    world::World,
};

/// All that git tells of a repository.
pub fn told(dir: &Path) -> String {
    let mut out = String::new();
    for args in [
        &["symbolic-ref", "-q", "HEAD"][..],
        &["rev-parse", "HEAD"],
        &["for-each-ref", "--format=%(refname) %(objectname)"],
        &["ls-files", "--stage", "-v"],
        &["diff", "--cached"],
        &["diff"],
        &["status", "--porcelain=v2", "--branch"],
        &["stash", "list", "--format=%H %gd %gs"],
    ] {
        let git = Git::new().unwrap();
        let said = git.command(dir, args).output().unwrap();
        out.push_str(&format!("$ git {}\n{}", args.join(" "), String::from_utf8_lossy(&said.stdout)));
    }
    out
}

pub fn back() -> restore::Options {
    restore::Options { git_state: true, ..restore::Options::default() }
}

pub fn put_back(w: &World, c: &Checkpoint) {
    let out = w.restore_with(c, back()).unwrap();
    assert!(!out.partial, "{:?}", out.items);
}

/// An object database without a fault, and nothing of ours left behind.
#[track_caller]
pub fn sound(dir: &Path) {
    let out =
        Git::new().unwrap().command(dir, ["fsck", "--full", "--strict", "--no-dangling"]).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stderr, out.stdout].concat()).into_owned();
    let faults = said.lines().any(|l| !l.starts_with("hint:") && !l.starts_with("notice:"));
    assert!(out.status.success() && !faults, "{}: {said}", out.status);
    let left = Command::new("find")
        .arg(dir.join(".git"))
        .args(["(", "-name", "*.lock", "-o", "-name", "*backstitch*", ")"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

/// A repository with three commits, a branch, tags, two stashes and a careful index.
pub fn busy(w: &World) {
    let root = w.root();
    w.write("a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n");
    w.write("dir/b", "b\n");
    repository(&root);
    for n in 1..3 {
        w.write("dir/b", format!("b{n}\n"));
        git(&root, &["commit", "-qam", &format!("change {n}")]);
    }
    git(&root, &["branch", "topic/x", "HEAD~1"]);
    git(&root, &["tag", "light"]);
    git(&root, &["tag", "-a", "heavy", "-m", "a tag"]);
    for n in 1..3 {
        w.write("dir/b", format!("stashed {n}\n"));
        git(&root, &["stash", "-q"]);
    }
    // The first line is staged, the last is not; something is added, something is deleted.
    w.write("a", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n");
    w.write("new", "new\n");
    git(&root, &["add", "a", "new"]);
    git(&root, &["rm", "-q", "--cached", "dir/b"]);
    w.write("a", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\nEIGHT\n");
}

#[test]
fn r78_staged_part_unstaged_rest_then_amend() {
    let w = World::new();
    let root = w.root();
    w.write("a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n");
    repository(&root);
    w.write("a", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n");
    git(&root, &["add", "a"]);
    w.write("a", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\nEIGHT\n");
    let before = told(&root);
    let c = w.checkpoint();
    git(&root, &["commit", "-qa", "--amend", "-m", "amended"]);
    let amended = told(&root);
    assert_ne!(before, amended);
    // Only when asked.
    let held = TreeModel::read_all(&w.path(".git")).unwrap();
    w.restore(&c);
    untouched(&held, &w.path(".git"), "without the option");
    put_back(&w, &c);
    assert_eq!(told(&root), before);
    sound(&root);
    w.undo().unwrap();
    assert_eq!(told(&root), amended);
    w.redo().unwrap();
    assert_eq!(told(&root), before);
    sound(&root);
    w.check_store();
}

/// What an agent breaks, undone although git has collected what it could.
fn wreck(script: &str) {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let before = told(&root);
    let c = w.checkpoint();
    shell(
        &root,
        &format!(
            "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x GIT_EDITOR=:\n{script}"
        ),
    );
    // It complains of a HEAD that points nowhere, and does the rest.
    let expire = ["reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all"];
    Git::new().unwrap().command(&root, expire).output().unwrap();
    git(&root, &["gc", "-q", "--prune=now"]);
    let wrecked = told(&root);
    assert_ne!(before, wrecked);
    let held = TreeModel::read_all(&w.path(".git")).unwrap();
    if w.restore(&c).operation.is_some() {
        untouched(&held, &w.path(".git"), "without the option");
        w.undo().unwrap();
    }
    put_back(&w, &c);
    assert_eq!(told(&root), before, "{script}");
    sound(&root);
    w.undo().unwrap();
    assert_eq!(told(&root), wrecked, "{script}");
    w.redo().unwrap();
    assert_eq!(told(&root), before, "{script}");
    sound(&root);
    // The next agent can go on.
    git(&root, &["commit", "-qm", "goes on"]);
    sound(&root);
    w.check_store();
}

#[test]
fn a_reset_and_a_clean_are_taken_back() {
    wreck("git reset -q --hard HEAD~2 && git clean -fdxq");
}

#[test]
fn dropped_stashes_come_back() {
    wreck("git stash drop -q stash@{1}; git stash drop -q");
}

#[test]
fn deleted_branches_and_tags_come_back() {
    wreck(
        "git checkout -qf topic/x && git branch -D main && git tag -d heavy light && git branch topic/y && git pack-refs --all",
    );
}

#[test]
fn a_wrecked_rebase_is_taken_back() {
    wreck(
        "git stash -q && git checkout -qf topic/x && echo other > dir/b && git commit -qam other && git rebase main || git status | grep -q 'rebase in progress'",
    );
}

#[test]
fn an_orphan_and_a_branch_in_the_way_of_another() {
    wreck(
        "git checkout -qf --orphan empty && git rm -rfq . && git branch -D topic/x && git branch topic main && git branch -D main",
    );
}

#[test]
fn a_merge_under_way_with_its_conflicts_comes_back() {
    let w = World::new();
    let root = w.root();
    w.write("f", "base\n");
    repository(&root);
    git(&root, &["checkout", "-qb", "side"]);
    w.write("f", "side\n");
    git(&root, &["commit", "-qam", "side"]);
    git(&root, &["checkout", "-q", "main"]);
    w.write("f", "main\n");
    git(&root, &["commit", "-qam", "main"]);
    assert!(Git::new().unwrap().run(&root, ["merge", "side"]).is_err());
    let before = told(&root);
    let head = fs::read(w.path(".git/MERGE_HEAD")).unwrap();
    let c = w.checkpoint();
    let state = w.open().git_state(&c).unwrap().unwrap();
    assert_eq!((state["operation"].as_str(), state["branch"].as_str()), (Some("merge"), Some("main")));
    git(&root, &["merge", "--abort"]);
    git(&root, &["branch", "-D", "side"]);
    git(&root, &["reflog", "expire", "--expire=now", "--all"]);
    git(&root, &["gc", "-q", "--prune=now"]);
    put_back(&w, &c);
    assert_eq!(told(&root), before);
    assert_eq!(fs::read(w.path(".git/MERGE_HEAD")).unwrap(), head);
    w.write("f", "both\n");
    git(&root, &["commit", "-qam", "merged"]);
    sound(&root);
}

#[test]
fn what_is_unchanged_is_shared_and_what_is_refused_changes_nothing() {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let c = w.checkpoint();
    let again = w.checkpoint();
    assert_eq!(c.tree, again.tree);
    // Stat data of the index is no part of the state.
    w.write("new", "new\n");
    git(&root, &["status"]);
    assert_eq!(w.checkpoint().tree, c.tree);
    git(&root, &["reset", "-q", "--hard", "HEAD~1"]);
    let held = told(&root);
    fs::write(w.path(".git/index.lock"), "").unwrap();
    let e = w.restore_with(&c, back()).unwrap_err();
    assert_eq!(e.code, Code::Busy);
    assert!(e.message.contains("index.lock"), "{e}");
    fs::remove_file(w.path(".git/index.lock")).unwrap();
    assert_eq!(told(&root), held);
    // The plan names what it would do, and a state that changed meanwhile is not what was agreed to.
    let plan = w.restore_with(&c, restore::Options { dry_run: true, ..back() }).unwrap();
    assert!(plan.git_names().contains(&"index".to_owned()), "{:?}", plan.git_names());
    assert_eq!(told(&root), held);
    git(&root, &["branch", "meanwhile"]);
    let e = w.restore_with(&c, restore::Options { plan: Some(plan.plan), ..back() }).unwrap_err();
    assert_eq!(e.code, Code::PlanChanged);
    put_back(&w, &c);
    // Somebody commits: the undo of the git state would lose that, and leaves it alone.
    git(&root, &["commit", "-qm", "by hand"]);
    let by_hand = told(&root);
    let e = w.open().undo(
        &undo::Options { on_conflict: Some(undo::OnConflict::Refuse), ..Default::default() },
        &Control::default(),
    );
    assert_eq!(e.unwrap_err().code, Code::Conflict);
    let out = w.undo().unwrap();
    assert!(out.partial && out.git_conflict().is_some());
    assert_eq!(git(&root, &["rev-parse", "HEAD"]), by_hand.lines().nth(3).map(|l| format!("{l}\n")).unwrap());
}

#[test]
fn killed_at_any_step_it_is_taken_back_by_the_next_command() {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let c = w.checkpoint();
    git(&root, &["checkout", "-qf", "topic/x"]);
    git(&root, &["branch", "-D", "main"]);
    git(&root, &["branch", "later"]);
    git(&root, &["pack-refs", "--all"]);
    git(&root, &["stash", "drop", "-q"]);
    // A file tells the steps of the tree from those of the repository.
    let wrecked = told(&root);
    let mut kills = 0;
    for n in 1.. {
        let mut p = process(&w, &["git-state", &c.record.id]);
        let out = p.env("BACKSTITCH_TEST_KILL_AFTER", n.to_string()).output().unwrap();
        if out.status.success() {
            break;
        }
        kills += 1;
        // Whoever opens the workspace next takes it back.
        let ws = w.open();
        assert!(n < 200, "{}", String::from_utf8_lossy(&out.stderr));
        drop(ws);
        assert_eq!(told(&root), wrecked, "killed at step {n}");
        sound(&root);
    }
    assert!(kills > 10, "only {kills} steps");
    w.undo().unwrap();
    assert_eq!(told(&root), wrecked);
    sound(&root);
}

#[test]
fn r85_a_folder_with_repositories_below_has_no_git_state_of_its_own() {
    let w = World::new();
    for name in ["front", "back"] {
        w.write(&format!("{name}/f"), name);
        repository(&w.path(name));
    }
    let c = w.checkpoint();
    assert!(w.open().git_state(&c).unwrap().is_none());
    let held = TreeModel::read_all(&w.path("front/.git")).unwrap();
    w.write("front/f", "changed");
    w.write("back/f", "changed");
    assert_eq!(w.restore_with(&c, back()).unwrap_err().code, Code::GitState);
    w.restore(&c);
    assert_eq!((w.read("front/f"), w.read("back/f")), ("front".into(), "back".into()));
    untouched(&held, &w.path("front/.git"), "no .git content changes");
}

#[test]
fn a_linked_work_tree_has_its_own_head_and_spares_the_other() {
    let w = World::new();
    let main = w.dir.path().join("main");
    fs::create_dir(&main).unwrap();
    fs::write(main.join("f"), "f\n").unwrap();
    repository(&main);
    let root = w.root();
    fs::remove_dir(&root).unwrap();
    git(&main, &["worktree", "add", "-q", "-b", "linked", root.to_str().unwrap()]);
    let before = told(&root);
    let c = w.checkpoint();
    w.write("f", "changed\n");
    git(&root, &["commit", "-qam", "more"]);
    put_back(&w, &c);
    assert_eq!(told(&root), before);
    // A branch that the other work tree stands on is not moved under it.
    w.write("f", "changed\n");
    git(&main, &["branch", "third"]);
    let c = w.checkpoint();
    git(&main, &["checkout", "-q", "third"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "there"]);
    let there = told(&main);
    assert_eq!(w.restore_with(&c, back()).unwrap_err().code, Code::GitState);
    assert_eq!(told(&main), there);
}

#[test]
fn other_kinds_of_repository_are_named() {
    let w = World::new();
    let root = w.root();
    w.write("f", "f");
    git(&root, &["init", "-q", "--object-format=sha256"]);
    let out = w.record(Default::default()).unwrap();
    let c = out.checkpoint.unwrap();
    assert!(c.record.notes.iter().any(|n| n.contains("SHA-256")), "{:?}", c.record.notes);
    assert_eq!(w.restore_with(&c, back()).unwrap_err().code, Code::GitState);
}

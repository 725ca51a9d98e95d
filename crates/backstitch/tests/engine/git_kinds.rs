//! The git state in repositories of every kind and in every position, and against what else works there.

use std::{fs, os::unix::fs::symlink, path::Path};

use backstitch::{error::Code, undo, workspace::Control};
use backstitch_testkit::{Git, TreeModel};

use crate::{
    git_state::{back, busy, put_back, sound, told},
    support::{git, items, process, repository, shell, untouched},
    world::World,
};

const WHO: &str = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x GIT_EDITOR=: GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null\n";

/// Two branches that change the same lines.
fn torn(w: &World) {
    let root = w.root();
    w.write("f", "base\n");
    w.write("g", "g\n");
    repository(&root);
    git(&root, &["checkout", "-qb", "side"]);
    for n in 1..4 {
        w.write("f", format!("side {n}\n"));
        git(&root, &["commit", "-qam", &format!("side {n}")]);
    }
    git(&root, &["checkout", "-q", "main"]);
    w.write("f", "main\n");
    git(&root, &["commit", "-qam", "main"]);
}

/// Gone with all that nothing reaches.
fn collect(root: &Path) {
    let git = Git::new().unwrap();
    // It complains of a HEAD that points nowhere, and does the rest.
    let words = ["reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all"];
    git.command(root, words).output().unwrap();
    git.run(root, ["gc", "-q", "--prune=now"]).unwrap();
}

/// A row in the position that `there` leads to comes back after `away`, whatever was collected; and back again; and the
/// position is one that git can go on from.
fn position(there: &str, away: &str, on: &str) {
    let w = World::new();
    let root = w.root();
    torn(&w);
    shell(&root, &format!("{WHO}{there}"));
    let before = told(&root);
    let c = w.checkpoint();
    shell(&root, &format!("{WHO}{away}"));
    collect(&root);
    let other = told(&root);
    assert_ne!(before, other, "{there}");
    put_back(&w, &c);
    assert_eq!(told(&root), before, "{there}");
    sound(&root);
    // The user's gc in between takes nothing that undo needs.
    collect(&root);
    w.undo().unwrap();
    assert_eq!(told(&root), other, "{there}");
    sound(&root);
    collect(&root);
    w.redo().unwrap();
    assert_eq!(told(&root), before, "{there}");
    shell(&root, &format!("{WHO}{on}"));
    sound(&root);
    w.check_store();
}

#[test]
fn a_rebase_that_stopped_goes_on() {
    position(
        "git checkout -q side; ! git rebase -q main 2>/dev/null",
        "git rebase --abort; git checkout -q main; git branch -D side",
        "echo both > f; git add f; ! git rebase --continue 2>/dev/null; echo both > f; git add f; ! git rebase --continue 2>/dev/null; echo both > f; git add f; git rebase --continue || git rebase --skip; test ! -d .git/rebase-merge",
    );
}

#[test]
fn a_rebase_by_patches_goes_on() {
    position(
        "git checkout -q side; ! git rebase -q --apply main >/dev/null 2>&1",
        "git rebase --abort; git checkout -q main; git branch -D side",
        "test -d .git/rebase-apply; git rebase --abort; test \"$(git symbolic-ref HEAD)\" = refs/heads/side",
    );
}

#[test]
fn a_row_of_picks_that_stopped_goes_on() {
    position(
        "! git cherry-pick side~2 side~1 side 2>/dev/null",
        "git cherry-pick --abort; git branch -D side",
        "test -f .git/CHERRY_PICK_HEAD; git cherry-pick --abort",
    );
}

#[test]
fn a_bisection_goes_on() {
    position(
        "git checkout -q side; git bisect start -q side side~3 2>/dev/null || git bisect start side side~3; test -f .git/BISECT_LOG",
        "git bisect reset; git checkout -q main",
        "git bisect good; git bisect reset",
    );
}

#[test]
fn a_revert_and_a_squash_under_way() {
    position(
        "! git revert --no-edit HEAD~1 2>/dev/null; true; echo x > x; git add x",
        "git reset -q --hard side",
        "git status -s",
    );
    position("! git merge --squash side 2>/dev/null", "git reset -q --hard side", "test -f .git/SQUASH_MSG");
}

#[test]
fn a_detached_head_an_unborn_branch_and_a_head_that_is_a_link() {
    position(
        "git checkout -q --detach side~1",
        "git checkout -qf main; git branch -D side",
        "git switch -qc again",
    );
    position(
        "git checkout -q --orphan unborn; echo n > n; git add n",
        "git checkout -qf main; git branch -D side",
        "git commit -qm first",
    );
    position(
        "rm .git/HEAD; ln -s refs/heads/side .git/HEAD; git reset -q --hard",
        "git checkout -qf main; git branch -D side",
        "git commit -q --allow-empty -m more",
    );
}

#[test]
fn symbolic_refs_notes_replacements_and_names_in_each_others_way() {
    position(
        "git symbolic-ref refs/heads/alias refs/heads/side; git notes add -m note; git replace --graft side main; git update-ref refs/custom/x side; git pack-refs --all; git commit -q --allow-empty -m loose",
        "git symbolic-ref -d refs/heads/alias; git update-ref -d refs/custom/x; git branch -D side; git branch side/deeper; git branch alias/deeper; git notes remove HEAD~1; git replace -d $(git replace -l)",
        "git rev-parse alias refs/custom/x",
    );
}

/// What is there at all, whatever git makes of it, is byte for byte as before.
fn refused(w: &World, c: &backstitch::record::Checkpoint, code: Code, word: &str) {
    let held = TreeModel::read_all(&w.root()).unwrap();
    let e = w.restore_with(c, back()).unwrap_err();
    assert_eq!(e.code, code, "{e}");
    assert!(e.message.contains(word), "{word}: {e}");
    untouched(&held, &w.root(), word);
}

#[test]
fn every_lock_that_git_may_hold_is_named_and_nothing_changes() {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let c = w.checkpoint();
    git(&root, &["checkout", "-qf", "topic/x"]);
    git(&root, &["branch", "-D", "main"]);
    git(&root, &["pack-refs", "--all"]);
    for lock in ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock"] {
        fs::write(w.path(".git").join(lock), "").unwrap();
        refused(&w, &c, Code::Busy, lock);
        fs::remove_file(w.path(".git").join(lock)).unwrap();
    }
    put_back(&w, &c);
    sound(&root);
}

#[test]
fn no_hook_and_no_filter_of_the_repository_is_run() {
    let w = World::new();
    busy(&w);
    let c = w.checkpoint();
    let ran = w.dir.path().join("ran");
    let script = format!("#!/bin/sh\necho \"$0\" >> '{}'\n", ran.display());
    for hook in [
        "reference-transaction",
        "post-checkout",
        "post-index-change",
        "post-rewrite",
        "pre-commit",
        "fsmonitor-watchman",
    ] {
        w.write(&format!(".git/hooks/{hook}"), &script);
        w.chmod(&format!(".git/hooks/{hook}"), 0o755);
    }
    let config = fs::read_to_string(w.path(".git/config")).unwrap();
    w.write(
        ".git/config",
        format!(
            "{config}[core]\n\tfsmonitor = .git/hooks/fsmonitor-watchman\n[filter \"x\"]\n\tclean = echo >> '{0}'\n\tsmudge = echo >> '{0}'\n\tprocess = echo >> '{0}'\n[alias]\n\tstatus = !echo >> '{0}'\n",
            ran.display()
        ),
    );
    fs::create_dir_all(w.path(".git/info")).unwrap();
    w.write(".git/info/attributes", "* filter=x\n");
    // Without git: with it the hooks would run.
    fs::copy(w.path(".git/refs/heads/topic/x"), w.path(".git/refs/heads/main")).unwrap();
    put_back(&w, &c);
    w.undo().unwrap();
    w.checkpoint();
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap());
}

/// The rest of the state goes back, the index file stays to the byte, and both are told.
fn index_left_alone(prepare: &[&[&str]], why: &str) {
    let w = World::new();
    let root = w.root();
    busy(&w);
    git(&root, &["reset", "-q", "--hard"]);
    for words in prepare {
        git(&root, words);
    }
    let c = w.checkpoint();
    let state = w.open().git_state(&c).unwrap().unwrap();
    assert!(state["index_left_out"].as_str().is_some_and(|s| s.contains(why)), "{state}");
    let main = git(&root, &["rev-parse", "main"]);
    git(&root, &["branch", "-f", "topic/x", "main"]);
    git(&root, &["tag", "-d", "light"]);
    let index = fs::read(w.path(".git/index")).unwrap();
    let out = w.restore_with(&c, back()).unwrap();
    assert!(out.partial && out.warnings.iter().any(|t| t.contains(why)), "{:?}", out.warnings);
    assert_eq!(fs::read(w.path(".git/index")).unwrap(), index, "{why}");
    assert_eq!(git(&root, &["rev-parse", "main"]), main);
    assert_ne!(git(&root, &["rev-parse", "topic/x"]), main);
    assert!(git(&root, &["tag"]).contains("light"));
    sound(&root);
    w.undo().unwrap();
    assert_eq!(git(&root, &["rev-parse", "topic/x"]), main);
    sound(&root);
}

#[test]
fn a_split_and_a_sparse_index_are_told_and_left_alone() {
    index_left_alone(&[&["update-index", "--split-index"]], "split");
    index_left_alone(
        &[&["sparse-checkout", "init", "--cone", "--sparse-index"], &["sparse-checkout", "set", "none"]],
        "sparse",
    );
}

#[test]
fn a_reftable_is_named_and_left_alone() {
    let w = World::new();
    let root = w.root();
    w.write("f", "f\n");
    let made = Git::new().unwrap().run(&root, ["init", "-q", "--ref-format=reftable"]);
    backstitch_testkit::require!(made.is_ok(), "this git knows no reftable");
    git(&root, &["add", "f"]);
    git(&root, &["commit", "-qm", "start"]);
    let out = w.record(Default::default()).unwrap();
    let c = out.checkpoint.unwrap();
    assert!(c.record.notes.iter().any(|n| n.contains("reftable")), "{:?}", c.record.notes);
    w.write("f", "changed\n");
    refused(&w, &c, Code::GitState, "did not record");
    w.restore(&c);
    assert_eq!(w.read("f"), "f\n");
}

#[test]
fn a_repository_that_borrows_objects_and_its_lender_goes() {
    let w = World::new();
    let lender = w.dir.path().join("lender");
    fs::create_dir(&lender).unwrap();
    fs::write(lender.join("f"), "f\n").unwrap();
    repository(&lender);
    fs::write(lender.join("f"), "2\n").unwrap();
    git(&lender, &["commit", "-qam", "second"]);
    let root = w.root();
    fs::remove_dir(&root).unwrap();
    git(w.dir.path(), &["clone", "-qs", lender.to_str().unwrap(), root.to_str().unwrap()]);
    git(&root, &["remote", "remove", "origin"]);
    w.write("g", "own\n");
    git(&root, &["add", "g"]);
    git(&root, &["commit", "-qm", "own"]);
    let before = told(&root);
    let c = w.checkpoint();
    git(&root, &["reset", "-q", "--hard", "HEAD~2"]);
    fs::remove_dir_all(&lender).unwrap();
    put_back(&w, &c);
    assert_eq!(told(&root), before);
    // Git names the lender that is gone; the rest is whole.
    fs::remove_file(w.path(".git/objects/info/alternates")).unwrap();
    sound(&root);
}

#[test]
fn a_submodule_and_a_nested_repository_keep_their_own_state() {
    let w = World::new();
    let root = w.root();
    let lib = w.dir.path().join("lib");
    fs::create_dir(&lib).unwrap();
    fs::write(lib.join("l"), "l\n").unwrap();
    repository(&lib);
    w.write("f", "f\n");
    repository(&root);
    shell(
        &root,
        &format!("{WHO}git -c protocol.file.allow=always submodule --quiet add '{}' sub", lib.display()),
    );
    git(&root, &["commit", "-qm", "with a submodule"]);
    w.write("nested/n", "n\n");
    repository(&w.path("nested"));
    let before = told(&root);
    let c = w.checkpoint();
    git(&root, &["reset", "-q", "--soft", "HEAD~1"]);
    w.write("sub/l", "changed\n");
    w.write("nested/n", "changed\n");
    git(&w.path("sub"), &["commit", "-qam", "inside"]);
    let held = TreeModel::read_all(&w.path(".git/modules")).unwrap();
    let nested = TreeModel::read_all(&w.path("nested/.git")).unwrap();
    let gitfile = fs::read(w.path("sub/.git")).unwrap();
    put_back(&w, &c);
    untouched(&held, &w.path(".git/modules"), "the submodule's");
    untouched(&nested, &w.path("nested/.git"), "the nested one's");
    assert_eq!(fs::read(w.path("sub/.git")).unwrap(), gitfile);
    assert_eq!((w.read("sub/l"), w.read("nested/n")), ("l\n".into(), "n\n".into()));
    // The submodule stands on another commit now, which only its own state says.
    let index =
        |text: &str| text.lines().filter(|l| l.starts_with("H ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(index(&told(&root)), index(&before));
    sound(&root);
}

/// A folder below the top of the work tree: the state is that of the repository, the files are the folder's.
#[test]
fn a_folder_inside_a_work_tree() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap().join("top");
    let inner = top.join("inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(top.join("beside"), "1\n").unwrap();
    fs::write(inner.join("f"), "1\n").unwrap();
    // Known before there is a repository above, it stays a workspace of its own.
    let w = crate::support::world_at(&inner);
    w.checkpoint();
    repository(&top);
    let before = told(&top);
    let c = w.checkpoint();
    fs::write(top.join("beside"), "2\n").unwrap();
    fs::write(inner.join("f"), "2\n").unwrap();
    git(&top, &["commit", "-qam", "both"]);
    put_back(&w, &c);
    assert_eq!(fs::read_to_string(top.join("beside")).unwrap(), "2\n", "not the folder's");
    assert_eq!(fs::read_to_string(inner.join("f")).unwrap(), "1\n");
    let line = |text: &str| text.lines().take(6).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(line(&told(&top)), line(&before));
    sound(&top);
}

#[test]
fn an_entry_whose_content_is_nowhere_is_refused_before_anything_changes() {
    let mut w = World::new();
    w.set("BACKSTITCH_NEVER_STORE", "*.key");
    let root = w.root();
    w.write("f", "f\n");
    repository(&root);
    w.write("my.key", "staged and never stored\n");
    git(&root, &["add", "my.key"]);
    let c = w.checkpoint();
    let before = told(&root);
    git(&root, &["reset", "-q"]);
    // The repository still has it.
    put_back(&w, &c);
    assert_eq!(told(&root), before);
    git(&root, &["reset", "-q"]);
    collect(&root);
    refused(&w, &c, Code::GitState, "my.key");
    sound(&root);
}

#[test]
fn a_repository_that_went_while_nobody_looked_stops_no_later_command() {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let c = w.checkpoint();
    git(&root, &["branch", "later"]);
    git(&root, &["reset", "-q", "--hard", "HEAD~1"]);
    w.write("a", "as the user has it\n");
    let held = w.read("a");
    let mut killed = process(&w, &["git-state", &c.record.id]);
    let out = killed.env("BACKSTITCH_TEST_KILL_AFTER", "5").output().unwrap();
    assert!(!out.status.success());
    fs::rename(w.path(".git"), w.dir.path().join("aside")).unwrap();
    let _ = w.open();
    assert_eq!(w.read("a"), held);
    w.checkpoint();
    w.check_store();
}

/// What an agent does to lead a write elsewhere: each place of the state as a link to a folder of the user's.
#[test]
fn links_in_the_repository_lead_nowhere_else() {
    for place in ["refs/heads", "refs/heads/topic", "logs", "objects", "rebase-merge"] {
        let w = World::new();
        busy(&w);
        w.write(".git/rebase-merge/done", "pick\n");
        let c = w.checkpoint();
        let away = w.dir.path().join("away");
        fs::create_dir(&away).unwrap();
        fs::remove_dir_all(w.path(".git").join(place)).unwrap();
        symlink(&away, w.path(".git").join(place)).unwrap();
        let out = w.restore_with(&c, back());
        let told = out.as_ref().map_or_else(|e| e.to_string(), |o| items(o).join(", "));
        let left: Vec<_> = fs::read_dir(&away).unwrap().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "{place}: {left:?}: {told}");
    }
}

#[test]
fn an_undo_leaves_what_the_user_did_to_other_names_since() {
    let w = World::new();
    let root = w.root();
    busy(&w);
    let c = w.checkpoint();
    git(&root, &["branch", "-D", "topic/x"]);
    put_back(&w, &c);
    // A branch of the user's, made since: no name that the operation changed.
    git(&root, &["branch", "mine"]);
    let out = w.open().undo(&undo::Options::default(), &Control::default()).unwrap();
    assert!(!out.partial, "{:?}", out.items);
    let branches = git(&root, &["branch", "--format=%(refname:short)"]);
    assert_eq!(branches, "main\nmine\n");
    sound(&root);
}

//! K6: changes that no tool announced.

use backstitch::{error::Code, restore, workspace::Control};
use backstitch_testkit::Compare;

use crate::{
    support::{content, git, items, open_at, repository, shell},
    world::{World, action, same},
};

#[test]
fn r72_hard_reset_and_clean_by_the_agent_are_taken_back() {
    let mut w = World::new();
    w.set("BACKSTITCH_INCLUDE", "cache/");
    for i in 0..8 {
        w.write(&format!("src/f{i}"), format!("committed {i}"));
    }
    w.write(".gitignore", "cache/\nout/\n*.local\n");
    repository(&w.root());
    for i in 0..5 {
        w.write(&format!("src/f{i}"), format!("a day of work {i}"));
    }
    w.write("src/untracked.rs", "new");
    w.write("cache/wanted", "opted in");
    w.write("settings.local", "small ignored file");
    w.write("out/huge", "ignored, not asked for");
    let c = w.checkpoint();
    let before = content(&w.root());
    git(&w.root(), &["reset", "-q", "--hard"]);
    git(&w.root(), &["clean", "-q", "-fdx"]);
    assert!(!w.exists("src/untracked.rs") && !w.exists("cache") && w.read("src/f0") == "committed 0");
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    let wanted = before.filter(|p, _| !p.starts_with(b"out"));
    same(&wanted, &content(&w.root()), "restored");
    w.check_store();
}

#[test]
fn r73_shell_deletion_without_git() {
    let w = World::new();
    w.write("src/a/b.c", "source");
    w.write(".gitignore", ".env\n*.secret\n");
    w.write(".env", "KEY=1");
    w.write("src/x.secret", "beside sources");
    let before = w.model();
    let c = w.checkpoint();
    shell(&w.root(), "rm -rf src .env .gitignore");
    assert!(w.model().entries.is_empty());
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "restored");
    // The same with the rules left in place: they protect the files, not their absence.
    shell(&w.root(), "rm -rf src .env");
    w.restore(&c);
    same(&before, &w.model(), "restored with its rules in force");
    w.undo().unwrap();
    assert!(!w.exists(".env") && w.exists(".gitignore"));
}

#[test]
fn r74_untracked_files_belong_to_a_checkpoint() {
    let w = World::new();
    w.write("old.ts", "tracked");
    repository(&w.root());
    w.write("new.ts", "untracked, first state");
    let c = w.checkpoint();
    w.write("new.ts", "changed by the agent");
    w.restore(&c);
    assert_eq!(w.read("new.ts"), "untracked, first state");
    std::fs::remove_file(w.path("new.ts")).unwrap();
    w.restore(&c);
    assert_eq!(w.read("new.ts"), "untracked, first state");
    // Staged and then unstaged by the agent: the index says nothing about the file.
    git(&w.root(), &["add", "new.ts"]);
    w.write("new.ts", "again");
    git(&w.root(), &["rm", "-q", "--cached", "-f", "new.ts"]);
    w.restore(&c);
    assert_eq!(w.read("new.ts"), "untracked, first state");
}

#[test]
fn r76_what_was_created_since_goes_with_the_directories_made_for_it() {
    let w = World::new();
    w.write("a", "a");
    std::fs::create_dir(w.path("was-empty")).unwrap();
    let c = w.checkpoint();
    let before = w.model();
    w.write("gen/x.ts", "made by the agent");
    w.write("gen/deep/er/y", "y");
    w.write("was-empty/z", "z");
    let dirty = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "what was made is gone, what was empty is still there");
    // Saved first.
    let safety = w.find("@safety").unwrap();
    let mut bytes = Vec::new();
    w.open().cat(&safety, "gen/x.ts".into(), &mut bytes).unwrap();
    assert_eq!(bytes, b"made by the agent");
    w.undo().unwrap();
    same(&dirty, &w.model(), "undone");
}

#[test]
fn r76_a_directory_with_somebody_elses_ignored_file_stays() {
    let w = World::new();
    w.write(".gitignore", "*.o\nbuild/\n");
    let c = w.checkpoint();
    w.write("gen/x.ts", "made by the agent");
    w.write("gen/x.o", "ignored then and now");
    w.write("gen/build/lib", "ignored directory");
    let o = w.restore(&c);
    assert!(!w.exists("gen/x.ts"));
    assert_eq!(w.read("gen/x.o"), "ignored then and now");
    assert_eq!(w.read("gen/build/lib"), "ignored directory");
    assert_eq!(action(&o, "gen").as_deref(), Some("keep:not-empty"), "{:?}", items(&o));
}

#[test]
fn r77_the_whole_folder_is_gone() {
    let w = World::new();
    w.write("src/main.rs", "fn main() {}");
    w.write("top", "x");
    std::fs::create_dir(w.path("empty")).unwrap();
    std::os::unix::fs::symlink("top", w.path("link")).unwrap();
    w.chmod("src/main.rs", 0o755);
    let root = w.root();
    let before = w.model();
    let c = w.checkpoint();
    std::fs::remove_dir_all(&root).unwrap();
    let rows = open_at(&w, &root).rows().unwrap();
    assert_eq!(rows.all.len(), 1, "the list works without the folder");
    let go = |options: &restore::Options| open_at(&w, &root).restore(&c, options, &Control::default());
    let e = go(&restore::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::Io);
    assert!(!root.exists(), "a refused restore makes no folder");
    std::fs::create_dir(&root).unwrap();
    let o = go(&restore::Options::default()).unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    before.assert_same(&w.model(), &Compare::default(), "everything is back");
    w.check_store();
}

#[test]
fn r77_a_folder_that_somebody_filled_anew_is_asked_for() {
    let w = World::new();
    w.write("a", "old life");
    let c = w.checkpoint();
    let root = w.root();
    // The old folder is kept aside, so that its inode cannot come back.
    std::fs::rename(&root, w.dir.path().join("aside")).unwrap();
    std::fs::create_dir(&root).unwrap();
    w.write("b", "new life");
    let before = w.model();
    let e = w.restore_with(&c, restore::Options::default()).unwrap_err();
    assert_eq!(e.code, Code::ReplacedWorkspace);
    crate::support::untouched(&before, &w.root(), "refused");
    let o = w.restore_with(&c, restore::Options { replaced: true, ..Default::default() }).unwrap();
    assert!(!o.partial);
    assert_eq!(w.read("a"), "old life");
    w.undo().unwrap();
    same(&before, &w.model(), "undone");
}

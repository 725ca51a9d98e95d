//! K7: the wrong tree.

use std::{fs, os::unix::fs::symlink};

use backstitch_testkit::{Compare, TreeModel};

use backstitch::{
    error::Code,
    names, restore, stores, undo,
    workspace::{Control, Workspace},
};

use crate::{
    support::{checkpoint_at, content, git, items, open_at, repository, restore_at, shell, untouched},
    world::{World, everything_below, same},
};

#[test]
fn r80_a_worktree_does_not_take_its_neighbours_checkpoint() {
    let w = World::new();
    w.write("a", "committed");
    repository(&w.root());
    let other = w.dir.path().join("other");
    git(&w.root(), &["worktree", "add", "-q", other.to_str().unwrap()]);
    let other = other.canonicalize().unwrap();
    fs::write(other.join("a"), "work in the second").unwrap();
    w.write("a", "work in the first");
    w.write("b", "only in the first");
    let c = w.checkpoint();
    let before = everything_below(&other);
    // By name there is nothing to find; nor with a store of its own.
    assert_eq!(open_at(&w, &other).rows().unwrap_err().code, Code::NoSuchStore);
    let own = checkpoint_at(&w, &other);
    let rows = open_at(&w, &other).rows().unwrap();
    assert_eq!(names::resolve(&rows, &c.record.id, None).unwrap_err().code, Code::NoSuchCheckpoint);
    assert_ne!(own.record.id, c.record.id);
    // Nor with the row in hand.
    let e = restore_at(&w, &other, &c).unwrap_err();
    assert_eq!(e.code, Code::ReplacedWorkspace);
    let forced = restore::Options { replaced: true, force: true, ..Default::default() };
    let e = open_at(&w, &other).restore(&c, &forced, &Control::default()).unwrap_err();
    assert_eq!(e.code, Code::StoreDamaged, "its objects are not in this store");
    untouched(&before, &other, "refused");
}

#[test]
fn r81_clones_have_histories_of_their_own() {
    let w = World::new();
    w.write("a", "the same first commit");
    repository(&w.root());
    let base = w.dir.path().canonicalize().unwrap();
    let clones: Vec<_> = (0..3).map(|i| base.join(format!("clone{i}"))).collect();
    let mut rows = Vec::new();
    for (i, dir) in clones.iter().enumerate() {
        git(&base, &["clone", "-q", w.root().to_str().unwrap(), dir.to_str().unwrap()]);
        fs::write(dir.join("a"), format!("edit in {i}")).unwrap();
        rows.push(checkpoint_at(&w, dir));
        fs::write(dir.join("a"), format!("later in {i}")).unwrap();
    }
    for (i, dir) in clones.iter().enumerate() {
        let all = open_at(&w, dir).rows().unwrap().all;
        assert_eq!(all.iter().map(|c| &c.record.id).collect::<Vec<_>>(), [&rows[i].record.id]);
    }
    restore_at(&w, &clones[1], &rows[1]).unwrap();
    let read = |i: usize| fs::read_to_string(clones[i].join("a")).unwrap();
    assert_eq!((read(0), read(1), read(2)), ("later in 0".into(), "edit in 1".into(), "later in 2".into()));
    // One is moved: its history is found again when asked for, and by nobody else.
    let moved = base.join("moved");
    fs::rename(&clones[2], &moved).unwrap();
    let mut ws = open_at(&w, &moved);
    assert_eq!(ws.rows().unwrap_err().code, Code::WrongWorkspace);
    assert_eq!(
        open_at(&w, &moved).relink(&clones[0]).unwrap_err().code,
        Code::WrongWorkspace,
        "that one is still there"
    );
    ws.relink(&clones[2]).unwrap();
    assert_eq!(ws.rows().unwrap().all[0].record.id, rows[2].record.id);
    restore_at(&w, &moved, &rows[2]).unwrap();
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "edit in 2");
}

#[test]
fn r82_a_linked_worktree_is_its_own_place() {
    let w = World::new();
    w.write("a", "committed");
    repository(&w.root());
    w.checkpoint();
    let linked = w.dir.path().canonicalize().unwrap().join("linked");
    git(&w.root(), &["worktree", "add", "-q", linked.to_str().unwrap()]);
    assert!(linked.join(".git").is_file());
    let before_main = everything_below(&w.root());
    let gitfile = fs::read(linked.join(".git")).unwrap();
    let c = checkpoint_at(&w, &linked);
    fs::write(linked.join("a"), "edited in the linked one").unwrap();
    fs::write(linked.join("new"), "x").unwrap();
    let edited = content(&linked);
    restore_at(&w, &linked, &c).unwrap();
    assert_eq!(fs::read_to_string(linked.join("a")).unwrap(), "committed");
    assert!(!linked.join("new").exists());
    open_at(&w, &linked).undo(&undo::Options::default(), &Control::default()).unwrap();
    same(&edited, &content(&linked), "undone in the linked one");
    assert_eq!(fs::read(linked.join(".git")).unwrap(), gitfile);
    untouched(&before_main, &w.root(), "main and its repository");
}

#[test]
fn r83_every_door_leads_to_one_workspace() {
    let w = World::new();
    w.write("src/deep/f", "1");
    w.write("g", "1");
    let root = w.root();
    let before = w.model();
    let c = w.checkpoint();
    let base = w.dir.path().canonicalize().unwrap();
    symlink(&root, base.join("by-link")).unwrap();
    symlink(root.join("src"), base.join("into-src")).unwrap();
    let doors = [
        root.clone(),
        root.join("src"),
        root.join("src/deep"),
        root.join("src/../src/./deep"),
        base.join("by-link"),
        base.join("by-link/src/deep"),
        base.join("into-src"),
        base.join("into-src/deep"),
        root.join("not/yet/there"),
    ];
    for (i, door) in doors.iter().enumerate() {
        let ws = open_at(&w, door);
        assert_eq!(ws.root(), root, "{}", door.display());
        assert_eq!(ws.rows().unwrap().by_id(&c.record.id).unwrap().tree, c.tree);
        w.write("src/deep/f", format!("changed {i}"));
        w.write("g", format!("changed {i}"));
        w.write("new", "x");
        let o = restore_at(&w, door, &c).unwrap();
        assert!(!o.partial, "{}: {:?}", door.display(), items(&o));
        same(&before, &w.model(), &door.display().to_string());
    }
    assert_eq!(backstitch::workspace::stores(&w.surroundings.store_base).len(), 1);
}

/// In a repository the first use from a sub-folder takes the top, too.
#[test]
fn r83_first_use_from_a_sub_folder_of_a_repository() {
    let w = World::new();
    w.write("sub/f", "1");
    w.write("g", "1");
    repository(&w.root());
    let c = checkpoint_at(&w, &w.path("sub"));
    w.write("g", "changed above the folder it was called from");
    restore_at(&w, &w.path("sub"), &c).unwrap();
    assert_eq!(w.read("g"), "1");
    assert_eq!(open_at(&w, &w.path("sub")).root(), w.root());
}

#[test]
fn r85_a_parent_folder_of_repositories_is_one_workspace() {
    let w = World::new();
    let base = w.dir.path().canonicalize().unwrap();
    let library = base.join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("lib.c"), "library").unwrap();
    repository(&library);
    w.write("front/app.ts", "front");
    w.write("back/main.go", "back");
    w.write("notes.md", "beside them");
    repository(&w.path("front"));
    repository(&w.path("back"));
    git(
        &w.path("back"),
        &["-c", "protocol.file.allow=always", "submodule", "add", "-q", library.to_str().unwrap(), "lib"],
    );
    git(&w.path("back"), &["commit", "-q", "-m", "submodule"]);
    assert!(w.path("back/lib/.git").is_file());
    // A work tree whose repository lies in the tree under another name, and a directory that looks like a bare one.
    w.write("third/z", "third");
    git(&w.path("third"), &["init", "-q", "--separate-git-dir", w.path("third.store").to_str().unwrap()]);
    git(&w.root(), &["init", "-q", "--bare", "bare.repo"]);
    let before = w.model();
    let c = w.checkpoint();
    let held: Vec<String> = {
        let ws = w.open();
        let mut names = Vec::new();
        let odb = ws.odb().unwrap();
        let root = backstitch::tree::Root::read(&odb, &c.tree).unwrap();
        backstitch::tree::walk(&odb, root.files, &mut |p, e| {
            if !e.node.is_dir() {
                names.push(p.to_string());
            }
            Ok(())
        })
        .unwrap();
        names.sort();
        names
    };
    assert_eq!(
        held,
        ["back/.gitmodules", "back/lib/lib.c", "back/main.go", "front/app.ts", "notes.md", "third/z"],
        "files of all, nothing of any repository"
    );
    for f in ["front/app.ts", "back/main.go", "back/lib/lib.c", "third/z", "notes.md"] {
        w.write(f, "edited by the agent");
        w.write(&format!("{f}.new"), "made by the agent");
    }
    fs::remove_file(w.path("back/.gitmodules")).unwrap();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "all back");
    let touched = before.touched_though_equal(&w.model());
    let git_files: Vec<_> = touched
        .iter()
        .map(|d| String::from_utf8_lossy(&d.path).into_owned())
        .filter(|p| {
            p.contains(".git/")
                || p.contains("third.store")
                || p.contains("bare.repo")
                || p.ends_with("/.git")
        })
        .collect();
    assert!(git_files.is_empty(), "{git_files:?}");
    for (dir, status) in [("front", ""), ("back", ""), ("third", "?? z")] {
        assert_eq!(git(&w.path(dir), &["status", "--porcelain"]).trim(), status, "{dir}");
    }
    w.check_store();
}

/// What was ordinary content and has become a repository's own folder since is left alone.
#[test]
fn r85_content_that_became_a_repository_is_not_written() {
    for script in [
        // A gitfile elsewhere in the tree points to it now.
        "git init -q --separate-git-dir x.store sub",
        // It looks like a bare repository now.
        "git init -q --bare x.store",
    ] {
        for named in [false, true] {
            let w = World::new();
            w.write("sub/f", "f");
            for f in ["config", "HEAD", "objects/only-then"] {
                w.write(&format!("x.store/{f}"), "ordinary");
            }
            let c = w.checkpoint();
            fs::remove_dir_all(w.path("x.store")).unwrap();
            shell(&w.root(), script);
            w.write("sub/f", "changed");
            let before = w.model();
            let paths = if named {
                vec!["sub".into(), "x.store/config".into(), "x.store/objects".into()]
            } else {
                Vec::new()
            };
            let o = w.restore_with(&c, restore::Options { paths, ..Default::default() }).unwrap();
            assert_eq!(w.read("sub/f"), "f");
            let after = w.model();
            let inside = |m: &TreeModel| m.filter(|p, _| p.starts_with(b"x.store"));
            inside(&before).assert_same(&inside(&after), &Compare::untouched(), script);
            assert!(o.partial, "what was left alone is told: {:?}", items(&o));
        }
    }
}

#[test]
fn r89_checkpoints_are_found_from_above_and_below() {
    let w = World::new();
    w.write("p/q/r/f", "1");
    let q = w.path("p/q");
    let c = checkpoint_at(&w, &q);
    let below = open_at(&w, &w.path("p/q/r"));
    assert_eq!(below.root(), q);
    assert_eq!(below.rows().unwrap().all[0].record.id, c.record.id);
    // From above it is another workspace, whose list of stores shows the one below with its folder.
    assert_eq!(open_at(&w, &w.path("p")).rows().unwrap_err().code, Code::NoSuchStore);
    let list = stores::stores_list(&w.surroundings).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0]["workspace"], q.to_str().unwrap());
    assert_eq!(list[0]["checkpoints"], 1);
    // A checkpoint of the folder above covers the one below, and each is found by its own.
    let p = checkpoint_at(&w, &w.path("p"));
    assert_eq!(Workspace::open(&w.path("p/q/r"), w.surroundings.clone()).unwrap().root(), q);
    w.write("p/q/r/f", "2");
    restore_at(&w, &w.path("p"), &p).unwrap();
    assert_eq!(w.read("p/q/r/f"), "1");
}

#[test]
fn r86_other_slashes_and_links_are_one_identity() {
    let w = World::new();
    w.write("a", "1");
    let root = w.root();
    let link = w.dir.path().join("junction");
    symlink(&root, &link).unwrap();
    let text = root.to_str().unwrap().to_owned();
    let mut rows = Vec::new();
    for spelled in [
        text.clone(),
        format!("{text}/"),
        format!("{text}//"),
        format!("/{text}/./"),
        text.replace('/', "//"),
        format!("{text}/../w"),
        format!("{}/", link.display()),
    ] {
        w.write("a", &spelled);
        let c = checkpoint_at(&w, spelled.as_ref());
        rows.push((spelled, c));
    }
    assert_eq!(backstitch::workspace::stores(&w.surroundings.store_base).len(), 1);
    // Each row is good from another spelling.
    let doors: Vec<&String> = rows.iter().map(|(s, _)| s).rev().collect();
    for ((spelled, c), door) in rows.iter().zip(doors) {
        assert_eq!(open_at(&w, door.as_ref()).root(), root, "{door}");
        restore_at(&w, door.as_ref(), c).unwrap();
        assert_eq!(w.read("a"), *spelled, "from {door}");
    }
}

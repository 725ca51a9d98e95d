//! K11: checkpoint data is untrusted input.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use backstitch::{
    error::Code,
    record::{Checkpoint, OPERATIONS},
    restore,
    workspace::{Control, Workspace},
};
use backstitch_store::Oid;
use backstitch_testkit::TreeModel;

use crate::{
    support::{Stop, doctor, items, no_litter, object, rev, set_ref, tree_bytes, untouched},
    world::{World, everything_below, same},
};

/// A row whose `files/` and `meta/` somebody wrote by hand, beside the parts of a true row.
struct Doctored {
    w: World,
    row: Checkpoint,
    blob: Oid,
}

impl Doctored {
    fn new() -> Doctored {
        let w = World::new();
        w.write("safe.txt", "recorded");
        w.write("sub/inner", "recorded");
        let row = w.checkpoint();
        w.write("safe.txt", "present");
        w.write("extra", "would be deleted");
        fs::create_dir(w.dir.path().join("outside")).unwrap();
        fs::write(w.dir.path().join("outside/x"), "outside").unwrap();
        let blob = object(&w.git_dir(), "blob", b"evil");
        Doctored { w, row, blob }
    }

    fn tree(&self, entries: &[(&str, &[u8], Oid)]) -> Oid {
        object(&self.w.git_dir(), "tree", &tree_bytes(entries))
    }

    fn part(&self, spec: &str) -> Oid {
        rev(&self.w.git_dir(), &format!("{}:{spec}", self.row.commit))
    }

    /// The row with this `files/`.
    fn files(&self, files: Oid) -> Checkpoint {
        let root = self.tree(&[("40000", b"files", files), ("40000", b"meta", self.part("meta"))]);
        doctor(&self.w, &self.row, &root, |_| {})
    }

    /// The row with this `meta/`.
    fn meta(&self, parts: &[(&str, &[u8], Oid)]) -> Checkpoint {
        let meta = self.tree(parts);
        let root = self.tree(&[("40000", b"files", self.part("files")), ("40000", b"meta", meta)]);
        doctor(&self.w, &self.row, &root, |_| {})
    }

    /// Every way to use the row is refused before the first write, and nothing anywhere changes.
    #[track_caller]
    fn refused(&self, c: &Checkpoint, what: &str) {
        let world =
            || TreeModel::read_all(&self.w.dir.path().canonicalize().unwrap().join("outside")).unwrap();
        let (inside, outside) = (self.w.model(), world());
        let refs = || {
            Workspace::open(&self.w.root(), self.w.surroundings.clone()).unwrap().rows().unwrap().all.len()
        };
        let before = refs();
        for options in [
            restore::Options { dry_run: true, ..Default::default() },
            restore::Options::default(),
            restore::Options { privileged: true, force: true, replaced: true, ..Default::default() },
            restore::Options { no_delete: true, ..Default::default() },
        ] {
            let shown = format!("{what}: {options:?}");
            match self.w.restore_with(c, options) {
                Ok(o) => panic!("{shown}: {:?}", items(&o)),
                Err(e) => assert!(matches!(e.code, Code::UnsafePath | Code::StoreDamaged), "{shown}: {e:?}"),
            }
        }
        // An export asks nothing of coverage and rules.
        if !what.starts_with("coverage") && !what.starts_with("rules") {
            let elsewhere = self.w.dir.path().join("export");
            let e = self.w.open().export_dir(c, &elsewhere, &Control::default());
            assert!(e.is_err(), "{what}: exported");
        }
        untouched(&inside, &self.w.root(), what);
        untouched(&outside, &self.w.dir.path().canonicalize().unwrap().join("outside"), what);
        assert_eq!(refs(), before, "{what}: no safety row, because nothing was begun");
        assert!(self.w.open().operations().unwrap().is_empty(), "{what}: no operation");
    }
}

#[test]
fn r122_hostile_names_are_refused_before_the_first_write() {
    let names: &[&[u8]] = &[
        b"..",
        b".",
        b"../outside",
        b"a/b",
        b"a/../../x",
        b"/etc/x",
        b"/",
        b".git",
        b".GIT",
        b".git ",
        b".g\xe2\x80\x8cit",
        b"git~1",
        b"a\\.git",
        b".gitmodules",
        b"%bs%",
        b"%bs%%2egit",
        b"%bs%.git",
        b"%bs%%2e",
        b"%bs%%2e%2e",
        b"%bs%%2e%2e%2foutside%2fx",
        b"%bs%a%2fb",
        b"%bs%%2fetc%2fx",
        b"%bs%a%00b",
        b"%bs%%00",
        b"%bs%plain",
        b"%bs%%2Egit",
        b"%bs%%",
        b"%bs%%2",
        b"%bs%%zz",
        b"%bs%meta",
    ];
    let d = Doctored::new();
    let safe = ("100644", b"safe.txt".as_slice(), d.part("files/safe.txt"));
    for name in names {
        for mode in ["100644", "100755", "120000", "40000"] {
            let oid = if mode == "40000" { d.tree(&[("100755", b"hooks", d.blob)]) } else { d.blob };
            let shown = format!("{mode} {}", name.escape_ascii());
            let c = d.files(d.tree(&[safe, (mode, name, oid)]));
            d.refused(&c, &shown);
        }
        // As deep as one likes, also below what is the same everywhere.
        let deep = d.tree(&[("100644", name, d.blob)]);
        let mid = d.tree(&[("40000", b"deep", deep)]);
        let c = d.files(d.tree(&[safe, ("40000", b"sub", mid)]));
        d.refused(&c, &format!("deep {}", name.escape_ascii()));
    }
}

/// What is hostile elsewhere is a name here.
#[test]
fn r122_names_of_other_systems_are_literal() {
    let d = Doctored::new();
    let names: &[&[u8]] =
        &[b"C:\\x", b"con", b"nul.txt", b"..cache", b"...", b"a\\..\\b", b"~root", b"$HOME"];
    let mut entries: Vec<(&str, &[u8], Oid)> = names.iter().map(|n| ("100644", *n, d.blob)).collect();
    entries.sort();
    let c = d.files(d.tree(&entries));
    let o = d.w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    let found: Vec<Vec<u8>> = d.w.model().entries.into_keys().collect();
    let mut wanted: Vec<Vec<u8>> = names.iter().map(|n| n.to_vec()).collect();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn r122_doubles_and_unknown_types_are_refused() {
    let d = Doctored::new();
    let empty = d.tree(&[]);
    let link = object(&d.w.git_dir(), "blob", b"../outside");
    let dir = d.tree(&[("100644", b"x", d.blob)]);
    // A link and a directory of one name: the second would be written through the first.
    for pair in [
        [("120000", link), ("40000", dir)],
        [("40000", dir), ("120000", link)],
        [("100644", d.blob), ("100644", d.blob)],
        [("100644", d.blob), ("40000", empty)],
    ] {
        let c = d.files(d.tree(&[(pair[0].0, b"a", pair[0].1), (pair[1].0, b"a", pair[1].1)]));
        d.refused(&c, &format!("double {pair:?}"));
    }
    for mode in
        ["160000", "0", "100600", "100666", "104755", "10644", "20000", "60000", "140000", "40755", "120777"]
    {
        let oid = if mode.starts_with("4") { dir } else { d.blob };
        let c = d.files(d.tree(&[(mode, b"a", oid)]));
        d.refused(&c, mode);
    }
    // Types that do not fit what they name, and things that are not there.
    let commit = d.row.commit;
    let nowhere = Oid::from_hex(b"1234567890123456789012345678901234567890").unwrap();
    for (mode, oid) in
        [("40000", d.blob), ("40000", commit), ("40000", nowhere), ("100644", nowhere), ("120000", nowhere)]
    {
        let c = d.files(d.tree(&[(mode, b"a", oid)]));
        d.refused(&c, &format!("{mode} of {oid}"));
    }
    d.refused(&d.files(d.blob), "files/ is a file");
    d.refused(&d.files(nowhere), "files/ is nowhere");
}

#[test]
fn r122_a_directory_named_as_a_file() {
    let d = Doctored::new();
    let dir = d.tree(&[("100644", b"x", d.blob)]);
    for mode in ["100644", "100755", "120000"] {
        for (what, oid) in [("tree", dir), ("commit", d.row.commit)] {
            let c = d.files(d.tree(&[(mode, b"a", oid)]));
            let (before, outside) = (d.w.model(), d.w.dir.path().join("outside"));
            let out = everything_below(&outside);
            let e = d.w.restore_with(&c, restore::Options::default()).unwrap_err();
            assert_eq!(e.code, Code::StoreDamaged, "{mode} of a {what}: {e}");
            same(&before, &d.w.model(), "put back");
            untouched(&out, &outside, "outside");
        }
    }
}

#[test]
fn r122_hostile_meta_is_refused() {
    let d = Doctored::new();
    let coverage = ("100644", b"coverage".as_slice(), d.part("meta/coverage"));
    let rules = ("100644", b"rules".as_slice(), d.part("meta/rules"));
    let lines = |text: &[u8]| {
        let blob = object(&d.w.git_dir(), "blob", text);
        d.tree(&[("100644", b"%bs%meta", blob)])
    };
    for text in [
        b"safe.txt".as_slice(),
        b"safe.txt 10000 - -",
        b"safe.txt 77777 - -",
        b"safe.txt -1 - -",
        b"safe.txt 644 x y",
        b"safe.txt 644 99999999999 0",
        b"safe.txt 644 - - trusted.overlay.opaque=y",
        b"safe.txt 644 - - security.selinux=system_u",
        b"safe.txt 644 - - security.ima=x",
        b"safe.txt 644 - - system.x=y",
        b"safe.txt 644 - - user.a%00b=y",
        b"safe.txt 644 - - novalue",
        b"%zz 644 - -",
        b"\xff\x00\x01",
    ] {
        let c = d.meta(&[coverage, rules, ("40000", b"tree", lines(text))]);
        d.refused(&c, &format!("meta {}", text.escape_ascii()));
    }
    d.refused(&d.meta(&[coverage, rules, ("40000", b"tree", d.blob)]), "meta/tree is a file");
    // Coverage and rules that are no such thing.
    let document = |text: &str| object(&d.w.git_dir(), "blob", text.as_bytes());
    for text in [
        "",
        "{",
        "[]",
        "{\"scope\":1}",
        "{\"scope\":\"workspace\",\"skips\":[{}]}",
        "{\"scope\":\"paths\",\"covers\":[\"%zz\"],\"skips\":[]}",
    ] {
        let c = d.meta(&[("100644", b"coverage", document(text)), rules]);
        d.refused(&c, &format!("coverage {text}"));
    }
    d.refused(&d.meta(&[coverage, ("100644", b"rules", document("\u{1}nonsense"))]), "rules");
    d.refused(&d.meta(&[("40000", b"coverage", d.part("files")), rules]), "coverage is a directory");
}

/// A coverage that names what lies elsewhere opens nothing there.
#[test]
fn r122_hostile_coverage_leads_nowhere() {
    for list in ["../outside", "/etc", "sub/../../outside", ".git", "a%00b", ""] {
        let d = Doctored::new();
        let text = format!("{{\"scope\":\"paths\",\"covers\":[\"{list}\"],\"skips\":[]}}");
        let blob = object(&d.w.git_dir(), "blob", text.as_bytes());
        let rules = ("100644", b"rules".as_slice(), d.part("meta/rules"));
        let meta = d.tree(&[("100644", b"coverage", blob), rules]);
        let root = d.tree(&[("40000", b"files", d.part("files")), ("40000", b"meta", meta)]);
        let c = doctor(&d.w, &d.row, &root, |r| {
            r.scope = "paths".into();
            r.covers = Some(vec![list.to_owned()]);
        });
        let base = d.w.dir.path().canonicalize().unwrap();
        let outside = everything_below(&base.join("outside"));
        match d.w.restore_with(&c, restore::Options::default()) {
            Ok(o) => assert!(
                o.items.iter().all(|i| !i.path.contains(&b'.') || i.path == "safe.txt"),
                "{:?}",
                items(&o)
            ),
            Err(e) => assert!(matches!(e.code, Code::UnsafePath | Code::StoreDamaged), "{list}: {e:?}"),
        }
        untouched(&outside, &base.join("outside"), list);
        no_litter(&d.w.model());
    }
}

/// Records whose ids are paths are no rows.
#[test]
fn r122_hostile_ids() {
    let d = Doctored::new();
    for id in ["../../x", "", "x", "0000000000000000/../y", "abcdefgh12345678"] {
        let git_dir = d.w.git_dir();
        let name = format!("{}{}", backstitch::record::CHECKPOINTS, d.row.record.id);
        let mut record = backstitch::record::Record::clone(&d.row.record);
        record.id = id.to_owned();
        let mut commit =
            format!("tree {}\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\n\n", d.row.tree)
                .into_bytes();
        commit.extend_from_slice(&record.message());
        set_ref(&git_dir, &name, &object(&git_dir, "commit", &commit));
        let rows = d.w.open().rows().unwrap();
        assert!(rows.all.is_empty() && rows.damaged.len() == 1, "{id:?}");
    }
}

/// An operation in the store that somebody wrote: neither undo nor recovery follows it out of the workspace.
#[test]
fn r122_hostile_operations() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    w.restore(&c);
    let outside = w.dir.path().canonicalize().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x"), "1").unwrap();
    let op = w.open().operations().unwrap().pop().unwrap();
    let git_dir = w.git_dir();
    let items_text = String::from_utf8(
        backstitch_testkit::Git::new()
            .unwrap()
            .blob(&git_dir, &rev(&git_dir, &format!("{}:items", op.commit)).to_string())
            .unwrap(),
    )
    .unwrap();
    let before = w.model();
    let out = everything_below(&outside);
    let forge = |path: &str, id: &str, state: &str| {
        let text = items_text.replace("\"path\":\"a\"", &format!("\"path\":\"{path}\""));
        assert!(text != items_text || path == "a");
        let blob = object(&git_dir, "blob", text.as_bytes());
        let tree = object(&git_dir, "tree", &tree_bytes(&[("100644", b"items", blob)]));
        let mut record = serde_json::to_value(&op.record).unwrap();
        record["id"] = id.into();
        record["state"] = state.into();
        let commit =
            format!("tree {tree}\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\n\nforged\n\n{record}\n");
        set_ref(
            &git_dir,
            &format!("{OPERATIONS}{}", op.record.id),
            &object(&git_dir, "commit", commit.as_bytes()),
        );
    };
    let journal = w.open().store_dir().join("journal/operation.json");
    for path in [
        "../outside/x",
        "/etc/x",
        "b/../../outside/x",
        ".git/hooks/x",
        "sub/.git/config",
        "a%00",
        "",
        ".",
        "..",
    ] {
        forge(path, &op.record.id, "done");
        let e = w.undo().unwrap_err();
        assert_eq!(e.code, Code::UnsafePath, "{path}: {e:?}");
        forge(path, &op.record.id, "running");
        fs::write(&journal, format!("{{\"op\":\"{}\",\"root\":\"x\"}}", op.record.id)).unwrap();
        // Reading goes on; nothing is changed until a person sets it aside.
        assert!(w.open().recovered.unwrap().contains("could not be taken back"));
        assert!(!w.open().rows().unwrap().all.is_empty());
        assert_eq!(w.undo().unwrap_err().code, Code::UnsafePath, "{path}");
        assert_eq!(w.record(Default::default()).map(|_| ()).unwrap_err().code, Code::UnsafePath, "{path}");
        let v = w.open().verify(true, &Control::default()).unwrap();
        assert!(v["repaired"][0].as_str().unwrap().starts_with("journal"), "{v:#}");
        assert!(!journal.exists());
        untouched(&before, &w.root(), path);
        untouched(&out, &outside, path);
    }
    // The id is part of the names of temporaries.
    let id = "x/../../outside/x";
    fs::create_dir(w.path(".backstitch-tmp-x")).unwrap();
    forge("a", id, "running");
    fs::write(&journal, format!("{{\"op\":\"{id}\",\"root\":\"x\"}}")).unwrap();
    assert!(w.open().recovered.is_none_or(|r| !r.contains("put back")));
    untouched(&out, &outside, id);
    assert_eq!(w.undo().unwrap_err().code, Code::StoreDamaged);
    w.open().verify(true, &Control::default()).unwrap();
    assert_eq!(w.undo().unwrap_err().code, Code::NothingToUndo);
    untouched(&out, &outside, id);
}

#[test]
fn r122_paths_of_the_caller() {
    let w = World::new();
    w.write("sub/a", "1");
    let c = w.checkpoint();
    w.write("sub/a", "2");
    let outside = w.dir.path().canonicalize().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "1").unwrap();
    let before = w.model();
    let out = everything_below(&outside);
    for path in [
        "../outside/a",
        "/etc/passwd",
        "sub/../../outside/a",
        "sub/../sub/a",
        ".git/config",
        "sub//a",
        "sub/a\0",
        "./sub/a",
    ] {
        for dry_run in [true, false] {
            let o = restore::Options { paths: vec![path.into()], dry_run, ..Default::default() };
            match w.restore_with(&c, o) {
                Err(_) => {}
                Ok(o) => assert!(
                    o.operation.is_none() && o.items.iter().all(|i| !i.action.changes()),
                    "{path}: {:?}",
                    items(&o)
                ),
            }
        }
        untouched(&before, &w.root(), path);
        untouched(&out, &outside, path);
    }
}

#[test]
fn r123_links_in_place_of_directories_lead_nowhere() {
    // The parent that is a link, at each depth; whole and by name.
    for depth in ["a", "a/b", "a/b/c"] {
        for named in [false, true] {
            let w = World::new();
            w.write("a/b/c/app.ini", "recorded");
            w.write("a/b/c/other", "recorded");
            let old = w.model();
            let c = w.checkpoint();
            let outside = w.dir.path().canonicalize().unwrap().join("outside");
            fs::create_dir_all(outside.join("b/c")).unwrap();
            for p in ["app.ini", "c/app.ini", "b/c/app.ini", "new"] {
                fs::create_dir_all(outside.join(p).parent().unwrap()).unwrap();
                fs::write(outside.join(p), "outside").unwrap();
            }
            let before = everything_below(&outside);
            fs::remove_dir_all(w.path(depth)).unwrap();
            symlink(&outside, w.path(depth)).unwrap();
            let dirty = w.model();
            let paths = if named { vec!["a/b/c/app.ini".into()] } else { Vec::new() };
            let o = w.restore_with(&c, restore::Options { paths, ..Default::default() }).unwrap();
            untouched(&before, &outside, &format!("{depth} {named}"));
            if named {
                // The link is not what was asked for: it stays, and that is told.
                assert!(o.partial, "{:?}", items(&o));
                same(&dirty, &w.model(), "left alone");
                continue;
            }
            assert!(!o.partial, "{:?}", items(&o));
            same(&old, &w.model(), "a real folder again");
            w.undo().unwrap();
            same(&dirty, &w.model(), "the link is back");
            untouched(&before, &outside, "after undo");
            w.redo().unwrap();
            same(&old, &w.model(), "redone");
            untouched(&before, &outside, "after redo");
        }
    }
}

#[test]
fn r123_undo_through_a_link_that_came_later() {
    let w = World::new();
    w.write("cfg/app.ini", "1");
    w.write("cfg/gone", "1");
    let c = w.checkpoint();
    w.write("cfg/app.ini", "2");
    w.write("cfg/made", "2");
    fs::remove_file(w.path("cfg/gone")).unwrap();
    w.restore(&c);
    let outside = w.dir.path().canonicalize().unwrap().join("outside");
    fs::rename(w.path("cfg"), &outside).unwrap();
    symlink(&outside, w.path("cfg")).unwrap();
    let before = everything_below(&outside);
    let o = w.undo().unwrap();
    assert!(o.partial, "{:?}", items(&o));
    untouched(&before, &outside, "undo");
}

/// A folder elsewhere that holds exactly what the plan expects: whoever followed the link would change it.
fn twin(w: &World) -> std::path::PathBuf {
    for f in ["a", "cfg/f", "cfg/deep/f", "cfg/deep/er/f"] {
        w.write(f, "recorded");
    }
    w.dir.path().canonicalize().unwrap().join("outside")
}

fn present(dir: &std::path::Path) {
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    for f in ["f", "deep/f", "deep/er/f", "extra", "deep/extra"] {
        fs::write(dir.join(f), "present").unwrap();
    }
}

/// The directory becomes a link after the first files were put back, before those below it are.
#[test]
fn r123_a_link_that_appears_in_the_middle_of_a_restore() {
    for depth in ["cfg", "cfg/deep", "cfg/deep/er"] {
        let w = World::new();
        let outside = twin(&w);
        let c = w.checkpoint();
        w.write("a", "present");
        present(&w.path("cfg"));
        present(&outside);
        let target = outside.join(depth.trim_start_matches("cfg").trim_start_matches('/'));
        let before = everything_below(&outside);
        let done = AtomicBool::new(false);
        let progress = |stage: &str, _: u64, _: u64| {
            if stage == "restoring" && !done.swap(true, Ordering::Relaxed) {
                fs::rename(w.path(depth), w.path("aside")).unwrap();
                symlink(&target, w.path(depth)).unwrap();
            }
        };
        let control = Control { progress: &progress, ..Control::default() };
        let o = w.open().restore(&c, &restore::Options::default(), &control).unwrap();
        assert!(done.load(Ordering::Relaxed) && o.partial, "{:?}", items(&o));
        assert_eq!(w.read("a"), "recorded");
        untouched(&before, &outside, depth);
        let _ = w.undo();
        untouched(&before, &outside, depth);
    }
}

/// A second hand swaps a directory for a link while restores run.
#[test]
fn r123_links_swapped_under_a_running_restore() {
    let w = World::new();
    let outside = twin(&w);
    let c = w.checkpoint();
    present(&w.path("cfg"));
    present(&outside);
    let before = everything_below(&outside);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let (link, real, aside) = (w.path("link"), w.path("cfg"), w.path("aside"));
            while !done.load(Ordering::Relaxed) {
                let _ = symlink(&outside, &link);
                let _ = fs::rename(&real, &aside);
                let _ = fs::rename(&link, &real);
                let _ = fs::rename(&real, &link);
                let _ = fs::rename(&aside, &real);
            }
        });
        let _stop = Stop(&done);
        for _ in 0..40 {
            // Goes through the link now and then, and changes nothing there.
            for f in ["cfg/f", "cfg/deep/f", "cfg/deep/er/f", "cfg/extra"] {
                let _ = fs::write(w.path(f), "present");
            }
            // May be refused, partial or done: it must only never reach what lies elsewhere.
            let _ = w.restore_with(&c, restore::Options::default());
            let _ = w.undo();
            same(&before, &everything_below(&outside), "elsewhere");
        }
    });
}

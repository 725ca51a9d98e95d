//! Files outside the workspace, and files that no checkpoint of everything covers.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use backstitch_testkit::{Compare, TreeModel};
use serde_json::{Value, json};

use crate::{sessions::Agent, support::World};

fn item<'a>(v: &'a Value, path: &str) -> &'a Value {
    v["items"].as_array().unwrap().iter().find(|i| i["path"] == path).unwrap_or(&Value::Null)
}

/// A folder beside the workspace.
fn beside(w: &World) -> PathBuf {
    let dir = w.top.join("beside");
    fs::create_dir(&dir).unwrap();
    dir
}

impl Agent<'_> {
    /// A tool that names the path and does this.
    fn does(&self, call: &str, path: &str, work: impl FnOnce()) {
        self.run(&["tool", "before", "--call", call, "--tool", "write", path]);
        work();
        self.run(&["tool", "after", "--call", call]);
    }
}

#[test]
fn s0_40_a_file_elsewhere_comes_back_when_it_is_asked_for() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    let file = dir.join("notes");
    fs::write(&file, "mine").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let new = dir.join("made/deep/new");
    let (file, new) = (file.to_str().unwrap(), new.to_str().unwrap());
    let before = TreeModel::read_all(&dir).unwrap();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c0", "a.txt", "agent");
    s.does("c1", file, || {
        fs::write(file, "agent").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    });
    s.does("c2", new, || {
        fs::create_dir_all(dir.join("made/deep")).unwrap();
        fs::write(new, "agent").unwrap();
    });
    // The first touch wins.
    s.does("c3", file, || fs::write(file, "agent again").unwrap());
    s.end();
    let after = TreeModel::read_all(&dir).unwrap();

    // Not asked for: listed, left, partial.
    let v = w.json_with(3, &["rewind", "1"]);
    for path in [file, new] {
        let i = item(&v, path);
        assert_eq!(
            (&i["action"], &i["reason"], &i["outside"]),
            (&"skip".into(), &"outside".into(), &true.into())
        );
    }
    assert_eq!(item(&v, "a.txt")["outside"], Value::Null);
    after.assert_same(&TreeModel::read_all(&dir).unwrap(), &Compare::untouched(), "not asked for");
    w.json(&["undo"]);

    let preview = w.json(&["rewind", "1", "--outside", "--dry-run"]);
    let v = w.json(&["rewind", "1", "--outside"]);
    assert_eq!((&v["plan"], &v["items"].as_array().unwrap().len()), (&preview["plan"], &5));
    assert_eq!(
        (&item(&v, file)["action"], &item(&v, new)["action"]),
        (&"overwrite".into(), &"delete".into())
    );
    before.assert_same(&TreeModel::read_all(&dir).unwrap(), &Compare::default(), "taken back");
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    // The safety row holds them.
    let row = w.json(&["show", v["safety"].as_str().unwrap()]);
    assert!(row["checkpoint"]["outside"].as_array().unwrap().contains(&file.into()), "{row}");

    // The operation goes back whole, and forward again.
    w.json(&["undo"]);
    after.assert_same(&TreeModel::read_all(&dir).unwrap(), &Compare::default(), "undone");
    w.json(&["redo"]);
    before.assert_same(&TreeModel::read_all(&dir).unwrap(), &Compare::default(), "redone");
    w.json(&["undo", "--outside"]);

    // In place only if still as it was left.
    w.json(&["rewind", "1", "--outside"]);
    fs::write(file, "by hand").unwrap();
    let v = w.json_with(3, &["undo"]);
    assert_eq!(
        (&item(&v, file)["action"], &item(&v, file)["reason"]),
        (&"conflict".into(), &"changed".into())
    );
    assert_eq!(fs::read_to_string(file).unwrap(), "by hand");
    assert_eq!(fs::read_to_string(new).unwrap(), "agent");
    assert_eq!(w.json(&["verify"])["ok"], true);
}

#[test]
fn s0_52_a_restore_takes_the_first_pre_image_after_its_row() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    let file = dir.join("notes");
    fs::write(&file, "0").unwrap();
    w.write(".gitignore", "/out\n/huge\n");
    w.write("out/log", "0");
    let path = file.to_str().unwrap();
    let s = Agent { w: &w, id: "s" };
    for n in 1..=3 {
        s.begin(&format!("k{n}"));
        s.does(&format!("o{n}"), path, || fs::write(path, n.to_string()).unwrap());
        s.does(&format!("i{n}"), "out/log", || w.write("out/log", n.to_string()));
        s.end();
    }
    s.begin("k4");
    s.does("new", "out/new", || w.write("out/new", "made"));
    s.end();
    let now = || (fs::read_to_string(path).unwrap(), w.read("out/log"));
    for (name, outside, inside) in
        [("prompt:1", "0", "0"), ("prompt:3", "2", "2"), ("turn:1", "1", "1"), ("turn:3", "3", "3")]
    {
        let v = w.json(&["restore", name, "--outside"]);
        assert_eq!(now(), (outside.into(), inside.into()), "{name}: {v}");
        assert!(w.exists("out/new"), "what is ignored is deleted by a rewind only");
        if v["operation"].is_string() {
            w.json(&["undo"]);
        }
    }
    // Without being asked the outside stays; a path may be named.
    let v = w.json_with(3, &["restore", "prompt:1"]);
    assert_eq!(item(&v, path)["reason"], "outside");
    assert_eq!(now(), ("3".into(), "0".into()));
    let v = w.json(&["restore", "prompt:2", "--outside", "--", path]);
    assert_eq!((v["items"].as_array().unwrap().len(), now()), (1, ("1".into(), "0".into())));
    w.json(&["undo", "2"]);
    // A rewind knows that the window saw it come into being.
    w.json(&["rewind", "4"]);
    assert!(!w.exists("out/new") && w.exists("out/log"));
}

#[test]
fn s2_15_a_path_below_a_link_is_where_the_link_leads() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    fs::write(dir.join("real"), "0").unwrap();
    symlink(&dir, w.path("into")).unwrap();
    symlink(dir.join("real"), w.path("leaf")).unwrap();
    let real = dir.join("real").to_str().unwrap().to_owned();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    let v = s.run(&["tool", "before", "--call", "c1", "into/real", "leaf"]);
    assert_eq!(v["checkpoint"]["outside"], json!([real]));
    assert_eq!(v["checkpoint"]["covers"], json!(["leaf"]));
    fs::write(w.path("leaf"), "through the link").unwrap();
    s.run(&["tool", "after", "--call", "c1"]);
    s.end();
    w.json(&["rewind", "1", "--outside"]);
    assert_eq!(fs::read_to_string(&real).unwrap(), "0");
    assert_eq!(fs::read_link(w.path("leaf")).unwrap(), dir.join("real"));
}

#[test]
fn r123_nothing_is_written_through_a_link_elsewhere() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    let victim = w.top.join("victim");
    fs::create_dir_all(dir.join("d")).unwrap();
    fs::create_dir(&victim).unwrap();
    let file = dir.join("d/f");
    fs::write(&file, "0").unwrap();
    let path = file.to_str().unwrap();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.does("c1", path, || fs::write(path, "agent").unwrap());
    s.end();
    // The folder above becomes a link to another one that holds the very bytes.
    fs::rename(dir.join("d"), dir.join("moved")).unwrap();
    fs::write(victim.join("f"), "agent").unwrap();
    symlink(&victim, dir.join("d")).unwrap();
    let (d, v) = (TreeModel::read_all(&dir).unwrap(), TreeModel::read_all(&victim).unwrap());
    let out = w.json_with(3, &["rewind", "1", "--outside"]);
    assert_eq!(item(&out, path)["action"], "conflict", "{out}");
    d.assert_same(&TreeModel::read_all(&dir).unwrap(), &Compare::untouched(), "the folder");
    v.assert_same(&TreeModel::read_all(&victim).unwrap(), &Compare::untouched(), "where the link leads");
}

#[test]
fn neither_a_git_nor_a_store_is_touched_elsewhere() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    fs::create_dir_all(dir.join(".git/hooks")).unwrap();
    let hook = dir.join(".git/hooks/post-checkout");
    let manifest = w.cli.only_store().unwrap().join("manifest.json");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    for (n, path) in [&hook, &manifest, &dir].into_iter().enumerate() {
        let call = n.to_string();
        let v =
            w.json_with(3, &["tool", "before", "--session", "s", "--call", &call, path.to_str().unwrap()]);
        assert_eq!(v["warnings"].as_array().unwrap().len(), 1, "{v}");
        w.cli.json(&w.ws, ["tool", "after", "--session", "s", "--call", &call]).unwrap();
    }
    fs::write(&hook, "agent").unwrap();
    s.end();
    let inode = fs::metadata(&manifest).unwrap().ino();
    let v = w.json(&["rewind", "1", "--outside"]);
    assert_eq!((v["items"].as_array().unwrap().len(), hook.exists()), (0, true), "{v}");
    assert_eq!(fs::metadata(&manifest).unwrap().ino(), inode);
}

#[test]
fn r76_a_folder_that_a_file_tool_made_goes_with_its_file() {
    let (w, _) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "gen/deep/x.ts", "x");
    s.write("c2", "sub/y.ts", "y");
    fs::create_dir(w.path("mine")).unwrap();
    s.write("c3", "mine/z.ts", "z");
    w.write("gen/of-mine", "");
    s.end();
    w.json_with(3, &["rewind", "1"]);
    assert!(!w.exists("gen/deep") && w.exists("gen/of-mine") && w.exists("sub/b.txt"));
    assert!(w.exists("mine") && !w.exists("mine/z.ts"));
}

#[test]
fn r132_a_fork_stands_on_its_parents_turns_and_touches() {
    let (w, _) = World::recorded();
    let file = beside(&w).join("notes");
    fs::write(&file, "0").unwrap();
    let path = file.to_str().unwrap();
    let p = Agent { w: &w, id: "p" };
    for n in 1..=3 {
        p.begin(&format!("k{n}"));
        p.does(&format!("o{n}"), path, || fs::write(path, n.to_string()).unwrap());
        p.write(&format!("i{n}"), "a.txt", &n.to_string());
        p.end();
        if n == 2 {
            w.json(&["session", "fork", "f", "--from", "p/turn:2"]);
        }
    }
    let now = || (w.read("a.txt"), fs::read_to_string(path).unwrap());
    // The turns of its line are the fork's, its touches too; what the parent did after the fork is not.
    for (name, inside, outside) in [("prompt:2", "1", "1"), ("turn:1", "1", "1"), ("turn:2", "2", "2")] {
        w.json(&["restore", name, "--outside", "--session", "f"]);
        assert_eq!(now(), (inside.into(), outside.into()), "{name}");
        w.json(&["undo"]);
    }
    assert_eq!(w.fails(4, &["show", "turn:3", "--session", "f"])["code"], "no-such-checkpoint");
    assert_eq!(w.json(&["show", "f/turn:1"])["checkpoint"]["session"], "p");
    assert_eq!(w.json(&["show", "@", "--session", "f"])["checkpoint"]["turn"], 2);
    let turns = |s: &str, all: bool| -> Vec<u64> {
        let v = w.json(
            &[&["list", "--session", s, "--kind", "prompt"][..], if all { &["--all"] } else { &[] }].concat(),
        );
        v["checkpoints"].as_array().unwrap().iter().rev().map(|c| c["turn"].as_u64().unwrap()).collect()
    };
    assert_eq!((turns("f", false), turns("p", false)), (vec![1, 2], vec![1, 2, 3]));
    // A branch that was left is hidden where it was left, and kept.
    w.json(&["rewind", "2", "--session", "p", "--outside"]);
    assert_eq!(now(), ("1".into(), "1".into()));
    assert_eq!((turns("f", false), turns("p", false)), (vec![1, 2], vec![1]));
    assert_eq!(turns("p", true), [1, 2, 3]);
    // The second one that takes back the same inherited turns finds that done.
    w.json(&["rewind", "1", "--session", "p", "--outside"]);
    assert_eq!(now(), ("one\ntwo\nthree\n".into(), "0".into()));
    let v = w.json(&["rewind", "1", "--session", "f", "--outside"]);
    assert_eq!((&v["operation"], &v["partial"]), (&Value::Null, &false.into()), "{v:#}");
    // Or takes them back itself, where the parent has not.
    w.json(&["undo", "2"]);
    w.json(&["rewind", "3", "--session", "p", "--outside"]);
    w.json(&["rewind", "1", "--session", "f", "--outside"]);
    assert_eq!(now(), ("one\ntwo\nthree\n".into(), "0".into()));
    assert_eq!((turns("f", false), turns("p", false)), (vec![], vec![1, 2]));
}

#[test]
fn r88_a_session_in_two_folders_is_taken_back_in_both_at_once() {
    let (w, _) = World::recorded();
    let other = w.top.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("x"), "0").unwrap();
    fs::write(other.join("y"), "0").unwrap();
    w.cli.json(&other, ["checkpoint"]).unwrap().ok().unwrap();
    let both = |args: &[&str]| {
        for root in [&w.ws, &other] {
            w.cli.json(root, [args, &["--session", "s"]].concat()).unwrap().ok().unwrap();
        }
    };
    let before = TreeModel::read_all(&w.top).unwrap();
    let mut first = None;
    for n in 1..=2 {
        let key = format!("k{n}");
        both(&["turn", "begin", "--key", &key]);
        let call = ["--call", key.as_str(), "--tool", "bash"];
        both(&[&["tool", "before"], &call[..]].concat());
        w.write("a.txt", n.to_string());
        fs::write(other.join("x"), n.to_string()).unwrap();
        fs::write(other.join(format!("new{n}")), "made").unwrap();
        both(&[&["tool", "after"], &call[..]].concat());
        both(&["turn", "end"]);
        first = first.or_else(|| Some(TreeModel::read_all(&w.top).unwrap()));
    }
    let (after, first) = (TreeModel::read_all(&w.top).unwrap(), first.unwrap());
    let now = |then: &TreeModel, what: &str| {
        then.assert_same(&TreeModel::read_all(&w.top).unwrap(), &Compare::default(), what);
    };
    let x = other.join("x").to_str().unwrap().to_owned();
    // The other folder is told, and left unless it is asked for.
    let v = w.json_with(3, &["rewind", "1"]);
    assert_eq!((&item(&v, &x)["reason"], &item(&v, &x)["outside"]), (&"outside".into(), &true.into()));
    assert_eq!(fs::read_to_string(&x).unwrap(), "2");
    w.json(&["undo"]);
    for (turn, then) in [("2", &first), ("1", &before)] {
        let v = w.json(&["rewind", turn, "--outside"]);
        assert!(v["items"].as_array().unwrap().iter().any(|i| i["path"] == x.as_str()), "{v:#}");
        now(then, turn);
        w.json(&["undo"]);
        now(&after, "one undo for both");
    }
    // From the other one as well.
    w.cli.json(&other, ["rewind", "1", "--outside"]).unwrap().ok().unwrap();
    now(&before, "from the other folder");
    w.cli.json(&other, ["undo"]).unwrap().ok().unwrap();
    now(&after, "and back");
    // All or nothing: what cannot be changed in one folder puts everything back.
    fs::write(other.join("y"), "by hand").unwrap();
    let v = w.json(&["rewind", "1", "--outside"]);
    assert_eq!(fs::read_to_string(other.join("y")).unwrap(), "by hand", "nobody else's: {v:#}");
    assert_eq!(w.json(&["verify"])["ok"], true);
}

#[test]
fn s0_53_s0_59_show_and_diff_tell_of_files_elsewhere_too() {
    let (w, _) = World::recorded();
    let dir = beside(&w);
    let (old, new) = (dir.join("notes"), dir.join("new"));
    fs::write(&old, "0\n").unwrap();
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.does("c1", old, || fs::write(old, "1\n2\n").unwrap());
    s.does("c2", new, || fs::write(new, "made\n").unwrap());
    s.write("c3", "a.txt", "x\n");
    s.end();
    let told = |v: &Value| -> Vec<(String, String, Value)> {
        let list = v["changes"].as_array().unwrap().iter();
        let text = |c: &Value, k: &str| c[k].as_str().unwrap().to_owned();
        list.map(|c| (text(c, "path"), text(c, "status"), c["outside"].clone())).collect()
    };
    let inside = ("a.txt".to_owned(), "M".to_owned(), Value::Null);
    let elsewhere = |path: &str, status: &str| (path.to_owned(), status.to_owned(), Value::Bool(true));
    let mut all = vec![elsewhere(new, "A"), elsewhere(old, "M"), inside];
    all.sort_by(|a, b| a.0.cmp(&b.0));
    for args in [&["show", "turn:1"][..], &["diff", "prompt:1", "turn:1"], &["diff", "prompt:1"]] {
        assert_eq!(told(&w.json(args)), all, "{args:?}");
    }
    let v = w.json(&["diff", "--stat", "prompt:1", "turn:1"]);
    let of_old = v["changes"].as_array().unwrap().iter().find(|c| c["path"] == old).unwrap();
    assert_eq!((&of_old["added"], &of_old["removed"]), (&2.into(), &1.into()));
    // By hand back to what it was: against the turn's beginning there is nothing to tell of it.
    fs::write(old, "0\n").unwrap();
    assert!(!told(&w.json(&["diff", "prompt:1"])).iter().any(|c| c.0 == old));
    assert_eq!(told(&w.json(&["diff", "turn:1"])), [elsewhere(old, "M")]);
    // A patch is about the folder: what it leaves out is named.
    let file = w.top.join("p");
    let run = w.run(&["export", "turn:1", "--patch", file.to_str().unwrap()]);
    assert!(format!("{run}").contains("notes"), "{run}");
    assert!(!fs::read_to_string(file).unwrap().contains("notes"));
}

/// The two folders are one operation: whichever system call fails, and whichever folder it is about.
#[test]
fn r98_what_fails_in_the_second_folder_puts_the_first_back() {
    use backstitch_testkit::privilege::has_program;
    backstitch_testkit::require!(has_program("strace"), "needs strace");
    let (mut w, _) = World::recorded();
    let other = w.top.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("x"), "0").unwrap();
    w.cli.json(&other, ["checkpoint"]).unwrap().ok().unwrap();
    for root in [&w.ws, &other] {
        let run =
            |args: &[&str]| w.cli.json(root, [args, &["--session", "s"]].concat()).unwrap().ok().unwrap();
        run(&["turn", "begin", "--key", "k"]);
        fs::write(root.join("new"), "made").unwrap();
        fs::write(root.join(if *root == other { "x" } else { "a.txt" }), "agent").unwrap();
        run(&["turn", "end"]);
    }
    let top = w.top.clone();
    let both = |p: &[u8]| p.starts_with(b"project") || p.starts_with(b"other");
    let tree = || TreeModel::read_all(&top).unwrap().filter(|p, _| both(p));
    let after = tree();
    let none: [&str; 0] = [];
    let (mut failed, mut undone) = (0, 0);
    for call in ["renameat2", "linkat", "unlinkat", "fchmod"] {
        for when in 1..=4 {
            let inject = format!("inject={call}:error=EIO:when={when}");
            let trace = format!("trace={call}");
            w.cli.wrap(["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, "--"]);
            let run = w.cli.json(&w.ws, ["rewind", "1", "--outside", "--session", "s"]).unwrap();
            w.cli.wrap(none);
            let now = tree();
            if run.code == Some(0) {
                undone += 1;
                assert_eq!(
                    (w.read("a.txt").as_str(), fs::read_to_string(other.join("x")).unwrap().as_str()),
                    ("one\ntwo\nthree\n", "0")
                );
                w.json(&["undo"]);
            } else {
                failed += 1;
                after.assert_same(&now, &Compare::default(), &format!("{call} {when}: {run}"));
                assert_eq!(w.json(&["status"])["in_flight"], Value::Null);
            }
        }
    }
    if failed == 0 {
        return backstitch_testkit::skip::skip("r98", "strace cannot trace here");
    }
    assert!(undone > 0);
    // A retry works.
    w.json(&["rewind", "1", "--outside", "--session", "s"]);
    assert!(!w.exists("new") && !other.join("new").exists());
    assert_eq!(w.json(&["verify"])["ok"], true);
}

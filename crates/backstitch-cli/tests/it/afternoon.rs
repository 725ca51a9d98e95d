//! One afternoon: two sessions at once in one folder, a person at work between and during their turns, a sub-agent, a fork, a
//! crash, files elsewhere. What a rewind takes back is the session's, to the byte, and nothing else.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt};

use backstitch_testkit::{Compare, Git, TreeModel};
use serde_json::Value;

use crate::{sessions::Agent, support::World};

/// The folder and what lies beside it.
fn all(w: &World) -> TreeModel {
    TreeModel::read_all(&w.top).unwrap()
}

/// Exactly these paths changed, and now they are as they were then.
fn only(before: &TreeModel, after: &TreeModel, then: &TreeModel, paths: &[&str], what: &str) {
    let c = Compare::default();
    let changed: BTreeSet<String> =
        before.differences(after, &c).iter().map(|d| String::from_utf8_lossy(&d.path).into_owned()).collect();
    let want: BTreeSet<String> = paths.iter().map(|p| (*p).to_owned()).collect();
    assert_eq!(changed, want, "{what}");
    let of = |m: &TreeModel| m.filter(|p, _| want.contains(&*String::from_utf8_lossy(p)));
    of(then).assert_same(&of(after), &c, what);
}

/// What was left, and why.
fn left(v: &Value) -> BTreeSet<String> {
    let items = v["items"].as_array().unwrap().iter();
    items
        .filter(|i| matches!(i["action"].as_str(), Some("skip" | "conflict" | "keep")))
        .map(|i| format!("{} {}", i["path"].as_str().unwrap(), i["reason"].as_str().unwrap_or("")))
        .collect()
}

fn set(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

impl Agent<'_> {
    /// A shell command.
    fn shell(&self, call: &str, work: impl FnOnce()) {
        self.run(&["tool", "before", "--call", call, "--tool", "bash"]);
        work();
        self.run(&["tool", "after", "--call", call]);
    }
}

#[test]
fn an_afternoon_of_several() {
    let w = World::new();
    for (path, text) in [
        ("src/x", "x0"),
        ("src/y", "y0"),
        ("src/z", "z0"),
        ("src/fragile", "f0"),
        ("readme", "r0"),
        (".gitignore", ".env\n"),
        (".env", "KEY=0"),
        ("vendor/lib/code.c", "c0"),
    ] {
        w.write(path, text);
    }
    // A nested repository with a history of its own.
    let git = Git::new().unwrap();
    let nested = w.path("vendor/lib");
    git.run(&nested, ["init", "-q"]).unwrap();
    git.run(&nested, ["add", "."]).unwrap();
    git.run(&nested, ["commit", "-qm", "first"]).unwrap();
    let beside = w.top.join("beside");
    fs::create_dir(&beside).unwrap();
    let notes = beside.join("notes").to_str().unwrap().to_owned();
    fs::write(&notes, "n0").unwrap();
    w.save(&[]);
    let morning = all(&w);

    let (a, b, f) = (Agent { w: &w, id: "a" }, Agent { w: &w, id: "b" }, Agent { w: &w, id: "f" });
    a.begin("a1");
    a.write("a1x", "src/x", "x by a");
    a.shell("a1s", || {
        fs::remove_file(w.path("src/y")).unwrap();
        fs::rename(w.path("src/z"), w.path("src/zz")).unwrap();
        fs::set_permissions(w.path("run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
        w.write("gen/out", "made");
    });
    a.write("a1e", ".env", "KEY=a");
    a.end();
    let after_one = all(&w);

    // Between the turns.
    w.write("a.txt", "by hand");
    w.write("mine.txt", "mine");

    b.begin("b1");
    a.begin("a2");
    a.run(&["tool", "before", "--call", "a2o", "--tool", "write", &notes]);
    fs::write(&notes, "n by a").unwrap();
    a.run(&["tool", "after", "--call", "a2o"]);
    b.write("b1c", "vendor/lib/code.c", "c by b");
    // During the turns.
    w.write("readme", "typed meanwhile");
    a.run(&["tool", "before", "--call", "h1", "--tool", "write", "--agent", "helper", "src/helper"]);
    w.write("src/helper", "by a sub-agent");
    a.run(&["tool", "after", "--call", "h1"]);
    a.run(&["checkpoint", "--kind", "agent-run", "--agent", "helper"]);
    b.shell("b1s", || {
        w.write("bdir/f", "by b");
        fs::remove_file(w.path("sub/b.txt")).unwrap();
    });
    a.shell("a2s", || fs::remove_file(w.path("src/x")).unwrap());
    a.end();
    b.end();
    w.json(&["session", "fork", "f", "--from", "a/turn:2"]);

    // The agent dies in the middle of a shell command, and comes back.
    a.begin("a3");
    a.run(&["tool", "before", "--call", "a3s", "--tool", "bash"]);
    fs::remove_file(w.path("run.sh")).unwrap();
    w.write("src/fragile", "half");
    a.begin("a4");
    a.write("a4n", "src/late", "late");
    a.end();
    f.begin("f1");
    f.write("f1x", "src/fork", "by the fork");
    f.end();
    w.write("src/zz", "z, mended by hand");
    let evening = all(&w);

    let same = |what: &str| evening.assert_same(&all(&w), &Compare::default(), what);
    let rewind = |code: i32, session: &str, to: &str| -> Value {
        let args = ["rewind", to, "--session", session, "--outside"];
        let preview = w.json_with(code, &[&args[..], &["--dry-run"]].concat());
        let v = w.json_with(code, &args);
        assert_eq!(
            (&v["plan"], &v["items"].as_array().map(Vec::len)),
            (&preview["plan"], &preview["items"].as_array().map(Vec::len))
        );
        v
    };

    // B's only turn.
    let v = rewind(3, "b", "1");
    let of_b = ["project/bdir", "project/bdir/f", "project/sub/b.txt", "project/vendor/lib/code.c"];
    only(&evening, &all(&w), &morning, &of_b, "b, turn 1");
    assert_eq!(left(&v), set(&["readme unattributed"]), "{v:#}");
    w.json(&["undo"]);
    same("b undone");

    // A's last three turns: the first one stays.
    let v = rewind(3, "a", "2");
    let since_two =
        ["beside/notes", "project/run.sh", "project/src/helper", "project/src/late", "project/src/x"];
    only(&evening, &all(&w), &after_one, &since_two, "a, turns 2 to 4");
    assert_eq!(left(&v), set(&["readme unattributed", "src/fragile unattributed"]), "{v:#}");
    w.json(&["undo"]);
    same("a, turns 2 to 4 undone");

    // All of A's.
    let v = rewind(3, "a", "1");
    let first = ["project/.env", "project/gen", "project/gen/out", "project/src/y", "project/src/z"];
    let of_a = [&since_two[..], &first[..]].concat();
    only(&evening, &all(&w), &morning, &of_a, "a");
    let kept = ["readme unattributed", "src/fragile unattributed", "src/zz changed"];
    assert_eq!(left(&v), set(&kept), "{v:#}");
    // Both, in either order, and both undone.
    let now = all(&w);
    rewind(3, "b", "1");
    only(&now, &all(&w), &morning, &of_b, "b after a");
    w.json(&["undo", "2"]);
    same("both undone");

    // The fork stands on A's first two turns; what A did after the fork is somebody else's.
    let v = rewind(3, "f", "1");
    let mut of_f: Vec<&str> =
        of_a.iter().copied().filter(|p| !matches!(*p, "project/run.sh" | "project/src/late")).collect();
    of_f.push("project/src/fork");
    only(&evening, &all(&w), &morning, &of_f, "f");
    let kept = ["readme unattributed", "run.sh deleted-by-other", "src/zz changed"];
    assert_eq!(left(&v), set(&kept), "{v:#}");
    // Then A finds those done, and takes back the rest.
    let now = all(&w);
    rewind(3, "a", "1");
    only(&now, &all(&w), &morning, &["project/run.sh", "project/src/late"], "a after f");
    w.json(&["undo", "2"]);
    same("all undone");
    w.json(&["redo", "2"]);
    w.json(&["undo", "2"]);
    same("and once more");

    assert_eq!(w.json(&["verify"])["ok"], true);
    git.run(&nested, ["fsck", "--strict"]).unwrap();
}

//! How checkpoints and paths are named.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use crate::support::World;

#[test]
fn every_form_of_a_checkpoint() {
    let w = World::new();
    let a = w.save(&["-m", "start"]);
    w.write("a.txt", "2\n");
    let b = w.save(&["--session", "s1", "-m", "with/slash"]);
    w.write("a.txt", "3\n");
    let c = w.save(&[]);
    let tool = w.save(&["--kind", "tool"]);
    let id = |name: &str| w.json(&["show", name])["checkpoint"]["id"].as_str().unwrap().to_owned();
    for (name, want) in [
        (a.as_str(), &a),
        (&b[..15], &b),
        ("@", &c),
        ("@~1", &b),
        ("@~2", &a),
        ("start", &a),
        ("label:start", &a),
        ("with/slash", &b),
        ("s1/@", &b),
        ("0s", &c),
        ("2099-01-01T00:00:00Z", &c),
        (tool.as_str(), &tool),
    ] {
        assert_eq!(&id(name), want, "{name}");
    }
    // A typed session narrows; the environment's does not.
    assert_eq!(w.json(&["--session", "s1", "show", "@"])["checkpoint"]["id"], b.as_str());
    let mut cli = backstitch_testkit::Cli::new(env!("CARGO_BIN_EXE_backstitch")).unwrap();
    cli.env("BACKSTITCH_STORE_DIR", w.cli.store_dir()).env("BACKSTITCH_SESSION", "s1");
    assert_eq!(cli.json(&w.ws, ["show", "@"]).unwrap().ok().unwrap()["checkpoint"]["id"], c.as_str());
    // Before an operation.
    w.json(&["restore", &a]);
    assert_eq!(w.json(&["show", "@safety"])["checkpoint"]["kind"], "safety");
}

#[test]
fn paths_are_relative_to_the_current_folder() {
    let (w, id) = World::recorded();
    w.write("b.txt", "root\n");
    w.write("sub/b.txt", "changed\n");
    w.write("sub/a.txt", "new\n");
    let sub = w.ws.join("sub");
    let changed = |dir: &std::path::Path, path: &OsStr| -> Vec<String> {
        let args: Vec<&OsStr> =
            vec!["restore".as_ref(), id.as_ref(), "--dry-run".as_ref(), "--".as_ref(), path];
        let v = w.json_in(dir, &args);
        v["items"].as_array().unwrap().iter().map(|i| i["path"].as_str().unwrap().to_owned()).collect()
    };
    let absolute = w.ws.join("sub/b.txt");
    symlink(&w.ws, w.top.join("link")).unwrap();
    let spelled = w.top.join("link/sub/b.txt");
    for (dir, path) in [
        (&sub, OsStr::new("b.txt")),
        (&sub, OsStr::new("./b.txt")),
        (&sub, OsStr::new("../sub//b.txt")),
        (&sub, OsStr::new("nothing/../b.txt")),
        (&w.ws, OsStr::new("sub/b.txt")),
        (&w.ws, OsStr::new("./sub/./b.txt")),
        (&w.ws, absolute.as_os_str()),
        (&sub, absolute.as_os_str()),
        (&w.ws, spelled.as_os_str()),
    ] {
        assert_eq!(changed(dir, path), ["sub/b.txt"], "{path:?}");
    }
    for path in ["sub/", "sub", "./sub/"] {
        assert_eq!(changed(&w.ws, path.as_ref()), ["sub/a.txt", "sub/b.txt"], "{path}");
    }
    assert_eq!(changed(&sub, ".".as_ref()), ["sub/a.txt", "sub/b.txt"]);
    assert_eq!(changed(&sub, "..".as_ref()).len(), 3);
    // Outside the workspace, -C names the folder that paths are relative to.
    let v = w.run_in(&w.top, &["-C", "project/sub", "--json", "diff", &id, "--", "b.txt"]).ok().unwrap();
    assert_eq!(v["changes"][0]["path"], "sub/b.txt");
}

#[test]
fn a_named_link_is_the_link_itself() {
    let (w, _) = World::recorded();
    symlink("a.txt", w.path("link")).unwrap();
    let id = w.save(&[]);
    fs::remove_file(w.path("link")).unwrap();
    symlink("bin", w.path("link")).unwrap();
    let v = w.json(&["restore", &id, "--", "link"]);
    assert_eq!(v["items"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read_link(w.path("link")).unwrap().to_str(), Some("a.txt"));
}

#[test]
fn odd_names_are_literal() {
    let (w, _) = World::recorded();
    let odd: [&[u8]; 7] = [b"--json", b"-x", b"*", b"[a]", b"a b\n", b"\xff\xfe", "é:\u{301}".as_bytes()];
    for name in odd {
        fs::write(w.ws.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let id = w.save(&[]);
    for name in odd {
        let path = w.ws.join(OsStr::from_bytes(name));
        fs::write(&path, "changed").unwrap();
        let args: Vec<OsString> =
            vec!["restore".into(), id.clone().into(), "--".into(), OsStr::from_bytes(name).into()];
        let v = w.json(&args);
        assert_eq!(v["items"].as_array().unwrap().len(), 1, "{name:?}");
        assert_eq!(fs::read(&path).unwrap(), name);
        // The same file by `cat` and `log`.
        let mut what = OsString::from(format!("{id}:"));
        what.push(OsStr::from_bytes(name));
        assert_eq!(w.run(&["cat".as_ref(), what.as_os_str()]).stdout, name);
        let v = w.json(&["log".as_ref(), "--".as_ref(), OsStr::from_bytes(name)]);
        assert!(!v["entries"].as_array().unwrap().is_empty());
    }
    let v = w.json(&["log".as_ref(), "--".as_ref(), OsStr::from_bytes(b"\xff\xfe")]);
    assert_eq!((v["path"].as_str(), v["path_base64"].as_str()), (Some("\u{fffd}\u{fffd}"), Some("//4=")));
}

#[test]
fn cat_splits_at_the_first_name_that_stands() {
    let (w, _) = World::recorded();
    w.write("x:y", "colon\n");
    w.write("sub/x", "inner\n");
    let id = w.save(&["-m", "with:colon"]);
    for what in ["@:x:y", "with:colon:x:y", "label:with:colon:x:y", "0s:x:y", &format!("{}:x:y", &id[..12])] {
        assert_eq!(w.text(&["cat", what]), "colon\n", "{what}");
    }
    // Paths in a name are relative to the workspace, unless they say where they begin.
    let sub = w.ws.join("sub");
    assert_eq!(w.run_in(&sub, &["cat", "@:sub/x"]).stdout, b"inner\n");
    assert_eq!(w.run_in(&sub, &["cat", "@:./x"]).stdout, b"inner\n");
    assert_eq!(w.run_in(&sub, &["cat", "@:../sub/x"]).stdout, b"inner\n");
    assert_eq!(w.run_in(&sub, &["cat", "@:x"]).code, Some(4));
    let e = w.fails(2, &["cat", "@:sub"]);
    assert_eq!(e["path"], "sub");
}

#[test]
fn a_label_with_a_slash_is_found_in_both_spellings() {
    let w = World::new();
    let id = w.save(&["-m", "feat/parser"]);
    w.write("a.txt", "2\n");
    w.save(&["--session", "feat"]);
    for name in ["label:feat/parser", "feat/parser"] {
        assert_eq!(w.json(&["show", name])["checkpoint"]["id"], id.as_str(), "{name}");
    }
}

//! `sync` between two machines through a bare repository.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use backstitch::{
    checkpoint,
    error::Code,
    record::{Checkpoint, Kind},
    restore,
    sync::{Options, Pulled, Pushed},
    workspace::Control,
};
use backstitch_testkit::Git;

use crate::{sessions::Agent, support::git, world::World};

fn bare(w: &World) -> PathBuf {
    let dir = w.dir.path().join("remote.git");
    fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "-q", "--bare"]);
    dir
}

fn to(remote: &Path) -> Options {
    Options { remote: OsString::from(remote), ..Options::default() }
}

#[track_caller]
fn push(w: &World, remote: &Path) -> Pushed {
    w.open().push(&to(remote), &Control::default()).unwrap()
}

#[track_caller]
fn pull(w: &World, remote: &Path) -> Pulled {
    w.open().pull(&to(remote), &Control::default()).unwrap()
}

/// One turn of a session that writes a file.
fn turn(w: &World, session: &str, key: &str, path: &str, text: &str) {
    Agent { w, id: session }.turn(key, path, text);
}

fn take_back(w: &World, session: &str, to: &str) {
    Agent { w, id: session }.rewind(to);
}

fn newest(w: &World) -> Checkpoint {
    w.find("@").unwrap()
}

#[test]
fn a_session_begun_here_is_rewound_there() {
    let (a, b) = (World::new(), World::new());
    let remote = bare(&a);
    a.write("src/f", "one\n");
    a.write("empty/.keep", "");
    a.chmod("src/f", 0o640);
    a.checkpoint();
    turn(&a, "s", "1", "src/f", "two\n");
    turn(&a, "s", "2", "src/g", "new\n");
    let sent = push(&a, &remote);
    assert_eq!(sent.checkpoints.len(), a.open().rows().unwrap().all.len());
    assert!(sent.left_out.is_empty() && sent.secrets.is_empty(), "{sent:?}");
    Git::new().unwrap().fsck_strict(&remote).unwrap();
    // The next one has nothing to send.
    assert!(push(&a, &remote).checkpoints.is_empty());

    let got = pull(&b, &remote);
    assert_eq!(got.checkpoints.len(), sent.checkpoints.len());
    assert!(got.refused.is_empty() && got.conflicts.is_empty(), "{got:?}");
    assert_eq!(got.sessions, ["s"]);
    b.check_store();
    assert!(pull(&b, &remote).checkpoints.is_empty());
    let there = newest(&b);
    assert_eq!(
        (there.record.kind, there.record.prompt.as_deref()),
        (Kind::Turn, None),
        "no prompt unless asked"
    );
    b.restore(&there);
    assert_eq!((b.read("src/f"), b.read("src/g")), ("two\n".into(), "new\n".into()));
    // Taken back where it was not made.
    take_back(&b, "s", "2");
    assert!(!b.exists("src/g"));
    b.undo().unwrap();
    // And continued there, back here.
    turn(&b, "s", "3", "src/h", "third\n");
    let sent = push(&b, &remote);
    assert!(!sent.checkpoints.is_empty());
    assert_eq!(sent.contents, 1, "what the remote has is not sent again: {sent:?}");
    let got = pull(&a, &remote);
    assert_eq!(got.checkpoints.len(), sent.checkpoints.len(), "{got:?}");
    assert!(got.conflicts.is_empty() && got.refused.is_empty(), "{got:?}");
    a.restore(&newest(&a));
    assert_eq!(a.read("src/h"), "third\n");
    a.check_store();
}

#[test]
fn a_session_continued_on_both_sides_is_told_and_nothing_is_lost() {
    let (a, b) = (World::new(), World::new());
    let remote = bare(&a);
    a.write("f", "one\n");
    turn(&a, "s", "1", "f", "two\n");
    push(&a, &remote);
    pull(&b, &remote);
    b.restore(&newest(&b));
    turn(&a, "s", "2", "f", "by a\n");
    turn(&b, "s", "2", "f", "by b\n");
    push(&a, &remote);
    let e = b.open().push(&to(&remote), &Control::default()).unwrap_err();
    assert_eq!(e.code, Code::Conflict, "{e}");
    let got = pull(&b, &remote);
    let [c] = got.conflicts.as_slice() else { panic!("{got:?}") };
    assert_eq!(c.session, "s");
    assert_eq!(got.sessions.as_slice(), std::slice::from_ref(&c.kept_as));
    assert_eq!(c.checkpoints, got.checkpoints.len() as u64);
    // Both are there, each in its session, and the fork can be rewound to what was before.
    let rows = b.open().rows().unwrap();
    let last = |s: &str| rows.of_session(s).last().copied().cloned().unwrap();
    b.restore(&last(&c.kept_as));
    assert_eq!(b.read("f"), "by a\n");
    b.restore(&last("s"));
    assert_eq!(b.read("f"), "by b\n");
    b.restore(&last(&c.kept_as));
    take_back(&b, &c.kept_as, "2");
    assert_eq!(b.read("f"), "two\n");
    // The other side hears of it with its next pull.
    push(&b, &remote);
    let got = pull(&a, &remote);
    assert_eq!(got.conflicts.len(), 1, "{got:?}");
    b.check_store();
    a.check_store();
}

#[test]
fn what_is_private_never_leaves() {
    let mut a = World::new();
    a.set("BACKSTITCH_SYNC_PRIVATE", "notes/,*.draft");
    let b = World::new();
    let remote = bare(&a);
    for (path, text) in [
        ("f", "open\n"),
        (".env", "TOKEN-OF-MINE\n"),
        ("notes/n", "PRIVATE-NOTE\n"),
        ("x.draft", "PRIVATE-DRAFT\n"),
        ("local.cfg", "IGNORED-LOCAL\n"),
        (".gitignore", "local.cfg\n"),
        ("deep/id_rsa", "KEY-OF-MINE\n"),
    ] {
        a.write(path, text);
    }
    let outside = a.dir.path().join("elsewhere");
    fs::write(&outside, "OUTSIDE-FILE\n").unwrap();
    a.record(checkpoint::Options { prompt: Some("PROMPT-OF-MINE".into()), ..Default::default() }).unwrap();
    let paths = vec![outside.to_str().unwrap().into()];
    a.record(checkpoint::Options {
        kind: Kind::Tool,
        paths,
        session: Some("s".into()),
        ..Default::default()
    })
    .unwrap();
    let dry = a.open().push(&Options { dry_run: true, ..to(&remote) }, &Control::default()).unwrap();
    let names: Vec<&str> = dry.left_out.iter().map(|t| t.path.as_str()).collect();
    assert_eq!(names, [".env", "deep/id_rsa", "local.cfg", "notes", "x.draft"], "{dry:?}");
    assert!(git(&remote, &["for-each-ref"]).is_empty(), "a dry run sends nothing");
    assert_eq!(push(&a, &remote).bytes, dry.bytes);
    let all = git(&remote, &["cat-file", "--batch-all-objects", "--batch"]);
    for word in [
        "TOKEN-OF-MINE",
        "PRIVATE-NOTE",
        "PRIVATE-DRAFT",
        "IGNORED-LOCAL",
        "KEY-OF-MINE",
        "OUTSIDE-FILE",
        "PROMPT-OF-MINE",
        "elsewhere",
    ] {
        assert!(!all.contains(word), "{word} was sent");
    }
    assert!(all.contains("open\n"));
    let dir = a.root();
    assert!(!all.contains(dir.to_str().unwrap()), "where the folder is stays here");
    // There it is unknown: what stands at its path stays.
    pull(&b, &remote);
    b.write(".env", "of b");
    b.write("notes/n", "of b");
    let first = b.open().rows().unwrap().all.iter().find(|c| c.record.covers.is_none()).unwrap().clone();
    b.restore(&first);
    assert_eq!(
        (b.read("f"), b.read(".env"), b.read("notes/n")),
        ("open\n".into(), "of b".into(), "of b".into())
    );
}

#[test]
fn what_looks_like_a_secret_inside_is_named_before_it_is_sent() {
    let a = World::new();
    let remote = bare(&a);
    a.write("config.ini", format!("key = AKIA{}\n", "A1".repeat(8)));
    a.write("plain", "nothing\n");
    a.checkpoint();
    let e = a.open().push(&to(&remote), &Control::default()).unwrap_err();
    assert_eq!(e.code, Code::Secrets);
    assert_eq!(e.list, ["config.ini (AWS access key)"]);
    assert!(git(&remote, &["for-each-ref"]).is_empty());
    let out = a.open().push(&Options { allow_secrets: true, ..to(&remote) }, &Control::default()).unwrap();
    assert_eq!(out.checkpoints.len(), 1);
}

#[test]
fn what_was_deleted_here_does_not_come_back() {
    let (a, b) = (World::new(), World::new());
    let remote = bare(&a);
    a.write("f", "1");
    a.checkpoint();
    push(&a, &remote);
    pull(&b, &remote);
    let c = newest(&b);
    b.open().delete(&[&c]).unwrap();
    assert!(pull(&b, &remote).checkpoints.is_empty());
    // A label that is given later reaches the remote.
    a.open().label(&newest(&a), Some("named")).unwrap();
    assert_eq!(push(&a, &remote).checkpoints.len(), 1);
}

/// Puts a commit under a row's name on the remote.
fn plant(remote: &Path, id: &str, tree: &str, message: &str) {
    let git = Git::new().unwrap();
    let mut c = git.command(remote, ["commit-tree", tree, "-m", message]);
    c.env("GIT_AUTHOR_NAME", "backstitch").env("GIT_AUTHOR_EMAIL", "backstitch@localhost");
    let out = c.output().unwrap();
    let commit = String::from_utf8(out.stdout).unwrap();
    git.run(remote, ["update-ref", &format!("refs/backstitch/checkpoints/{id}"), commit.trim()]).unwrap();
}

#[test]
fn a_hostile_remote_gets_nothing_in() {
    let (a, b) = (World::new(), World::new());
    let remote = bare(&a);
    a.write("f", "1");
    a.write("d/g", "2");
    a.checkpoint();
    push(&a, &remote);
    let good = newest(&a);
    let name = format!("refs/backstitch/checkpoints/{}", good.record.id);
    let message = git(&remote, &["log", "-1", "--format=%B", &name]);
    let tree = git(&remote, &["rev-parse", &format!("{name}^{{tree}}")]).trim().to_owned();
    let blob = git(&remote, &["rev-parse", &format!("{name}:files/f")]).trim().to_owned();
    let commit = git(&remote, &["rev-parse", &name]).trim().to_owned();
    let meta = git(&remote, &["rev-parse", &format!("{name}:meta")]).trim().to_owned();
    let make = |lines: &str| {
        use std::io::Write;
        let mut c = Git::new().unwrap().command(&remote, ["mktree", "--missing"]);
        let mut child =
            c.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let row = |files: &str| make(&format!("040000 tree {files}\tfiles\n040000 tree {meta}\tmeta\n"));
    let id = |n: u32| format!("01m8ptnfj3wth{n:03}");
    let as_id = |n: u32| message.replace(&good.record.id, &id(n));
    // Another's id, no record, no tree of a row, names and modes that no capture writes, what a row of a remote never has.
    plant(&remote, &id(1), &tree, &message);
    plant(&remote, &id(2), &tree, "no record");
    plant(&remote, &id(3), &make(""), &as_id(3));
    plant(&remote, &id(4), &row(&make(&format!("100644 blob {blob}\t%bs%..%2fetc\n"))), &as_id(4));
    plant(&remote, &id(5), &row(&make(&format!("160000 commit {commit}\tsub\n"))), &as_id(5));
    plant(
        &remote,
        &id(6),
        &make(&format!("040000 tree {tree}\tfiles\n040000 tree {meta}\tmeta\n040000 tree {tree}\toutside\n")),
        &as_id(6),
    );
    plant(
        &remote,
        &id(7),
        &tree,
        &as_id(7).replace("\"scope\":\"workspace\"", "\"scope\":\"workspace\",\"covers\":[\"../x\"]"),
    );
    plant(
        &remote,
        &id(8),
        &tree,
        &as_id(8).replace("\"kind\":\"manual\"", "\"kind\":\"manual\",\"session\":\"../../x\""),
    );
    git(&remote, &["update-ref", "refs/backstitch/checkpoints/not-an-id", &blob]);
    let got = pull(&b, &remote);
    assert_eq!(got.checkpoints.as_slice(), std::slice::from_ref(&good.record.id), "{got:#?}");
    for (n, why) in [
        (1, "has the id"),
        (2, "cannot be read"),
        (3, "no coverage"),
        (4, "the name"),
        (5, "has the mode 160000"),
        (6, "outside"),
        (7, "covers something else"),
        (8, "is not a session id"),
    ] {
        let refused = got.refused.iter().find(|r| r.checkpoint == id(n)).unwrap();
        assert!(refused.why.contains(why), "{n}: {refused:?}");
    }
    assert_eq!(got.refused.len(), 9, "{got:#?}");
    b.check_store();
    assert_eq!(b.open().rows().unwrap().all.len(), 1);
    b.restore_with(&newest(&b), restore::Options::default()).unwrap();
    assert_eq!((b.read("f"), b.read("d/g")), ("1".into(), "2".into()));
    assert_eq!(
        fs::read_dir(b.dir.path().join("data")).unwrap().flatten().filter(|e| e.file_name() == "x").count(),
        0
    );
}

#[test]
fn a_remote_that_is_none_is_named() {
    let a = World::new();
    a.write("f", "1");
    a.checkpoint();
    for word in ["nowhere", "-x"] {
        let e = a.open().push(&to(Path::new(word)), &Control::default()).unwrap_err();
        assert!(matches!(e.code, Code::Remote | Code::Usage), "{e}");
    }
    let gone = a.dir.path().join("gone.git");
    assert_eq!(a.open().push(&to(&gone), &Control::default()).unwrap_err().code, Code::Remote);
}

/// What others may put under the names of rows, beyond what the test above has.
#[test]
fn a_remote_that_lies_is_neither_believed_nor_waited_for() {
    let (a, b) = (World::new(), World::new());
    let remote = bare(&a);
    // Names that are ordinary here, whatever they are elsewhere.
    for name in ["A", "a", "aux", "nul.txt", "C:x", "git~1", "x\\y", "trailing. ", "\u{200c}.git"] {
        a.write(name, name);
    }
    a.checkpoint();
    push(&a, &remote);
    let good = newest(&a);
    let name = format!("refs/backstitch/checkpoints/{}", good.record.id);
    let message = git(&remote, &["log", "-1", "--format=%B", &name]);
    let tree = git(&remote, &["rev-parse", &format!("{name}^{{tree}}")]).trim().to_owned();
    let meta = git(&remote, &["rev-parse", &format!("{name}:meta")]).trim().to_owned();
    let make = |lines: &str| {
        use std::io::Write;
        let mut c = Git::new().unwrap().command(&remote, ["mktree"]);
        let mut child =
            c.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let id = |n: u32| format!("01m8ptnfj3wth{n:03}");
    let as_id = |n: u32| message.replace(&good.record.id, &id(n));
    // A few objects that are ten to the twelfth files.
    let mut bomb = git(&remote, &["rev-parse", &format!("{name}:files")]).trim().to_owned();
    for _ in 0..12 {
        bomb = make(&(0..10).map(|n| format!("040000 tree {bomb}\t{n}\n")).collect::<String>());
    }
    let bomb = make(&format!("040000 tree {bomb}\tfiles\n040000 tree {meta}\tmeta\n"));
    plant(&remote, &id(1), &bomb, &as_id(1));
    // A row of a version that is not known, and one that comes before all others and after them.
    plant(&remote, &id(2), &tree, &as_id(2).replace("\"v\":1", "\"v\":99"));
    plant(&remote, &id(3), &tree, &as_id(3).replace("\"seq\":", "\"seq\":18446744073709551615,\"x\":"));
    // Names that are other rows', and that are no rows at all.
    git(&remote, &["symbolic-ref", &format!("refs/backstitch/checkpoints/{}", id(4)), &name]);
    git(&remote, &["tag", "-a", "-m", "t", "t", &name]);
    git(&remote, &["update-ref", &format!("refs/backstitch/checkpoints/{}", id(5)), "refs/tags/t"]);
    for odd in ["deep/er", "%2e%2e", "\u{202e}evil", "-rf", "UPPERCASE0000000"] {
        git(&remote, &["update-ref", &format!("refs/backstitch/checkpoints/{odd}"), &name]);
    }
    let got = pull(&b, &remote);
    assert!(got.checkpoints.contains(&good.record.id), "{got:#?}");
    for n in [1, 2, 4, 5] {
        assert!(got.refused.iter().any(|r| r.checkpoint == id(n)), "{n}: {got:#?}");
        assert!(!got.checkpoints.contains(&id(n)), "{n}");
    }
    let rows = b.open().rows().unwrap();
    assert!(rows.all.iter().all(|c| c.record.seq < u64::MAX / 2), "there is always a next one");
    b.restore(rows.by_id(&good.record.id).unwrap());
    for name in ["A", "a", "aux", "C:x", "git~1"] {
        assert_eq!(b.read(name), name);
    }
    assert!(b.checkpoint().record.seq > 0);
    b.check_store();
}

#[test]
fn what_is_forgotten_leaves_with_the_next_push_and_does_not_come_back() {
    let (a, b, c) = (World::new(), World::new(), World::new());
    let remote = bare(&a);
    a.write("plain", "TO-BE-FORGOTTEN");
    a.write("f", "1");
    a.checkpoint();
    a.write("f", "2");
    a.checkpoint();
    push(&a, &remote);
    pull(&b, &remote);
    let forget = |w: &World| {
        let o = backstitch::forget::Options { paths: vec!["plain".into()], dry_run: false };
        w.open().forget(&o, &Control::default()).unwrap();
    };
    let listed = || {
        let all = git(&remote, &["for-each-ref", "--format=%(objectname)"]);
        all.lines().filter(|o| git(&remote, &["ls-tree", "-r", "--name-only", o]).contains("plain")).count()
    };
    assert_eq!(listed(), 2);
    forget(&a);
    assert_eq!(push(&a, &remote).checkpoints.len(), 2, "as they are now");
    assert_eq!(listed(), 0);
    // Whoever has it keeps it; whoever comes later never sees it, and leaves what stands there alone.
    assert!(pull(&b, &remote).checkpoints.is_empty());
    b.restore(&newest(&b));
    assert_eq!(b.read("plain"), "TO-BE-FORGOTTEN");
    push(&b, &remote);
    assert_eq!(listed(), 0, "a row that was made elsewhere is not sent again");
    pull(&c, &remote);
    c.write("plain", "of c");
    c.restore(&newest(&c));
    assert_eq!((c.read("plain"), c.read("f")), ("of c".into(), "2".into()));
    forget(&b);
    assert!(pull(&b, &remote).checkpoints.is_empty());
    assert!(!git(&b.git_dir(), &["cat-file", "--batch-all-objects", "--batch"]).contains("TO-BE-FORGOTTEN"));
    for w in [&a, &b, &c] {
        w.check_store();
    }
}

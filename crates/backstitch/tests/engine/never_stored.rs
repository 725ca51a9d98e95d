//! Secrets: what `never_store` names is in no row, no pre-image, no safety row, no git state and no pack, and is never changed.

use std::{fs, path::Path};

use backstitch::{
    checkpoint,
    record::{Kind, State},
    restore,
    session::ToolOptions,
    sync,
    workspace::Control,
};
use backstitch_testkit::Git;

use crate::{
    sessions::Agent,
    support::{git, items, repository},
    world::{World, action},
};

const SECRET: &str = "TOKEN-THAT-STAYS-WHERE-IT-IS";

fn world() -> World {
    let mut w = World::new();
    w.set("BACKSTITCH_NEVER_STORE", "*.env,secrets/,/config/key");
    w
}

/// No object of the store and no other file of it holds the secret.
#[track_caller]
fn nowhere(w: &World, what: &str) {
    let all = git(&w.git_dir(), &["cat-file", "--batch-all-objects", "--batch"]);
    assert!(!all.contains(SECRET), "{what}: an object of the store holds it");
    let mut stack = vec![w.dir.path().join("data")];
    while let Some(dir) = stack.pop() {
        for e in fs::read_dir(dir).unwrap().flatten() {
            match e.file_type().unwrap().is_dir() {
                true => stack.push(e.path()),
                false => {
                    let bytes = fs::read(e.path()).unwrap();
                    let found = bytes.windows(SECRET.len()).any(|b| b == SECRET.as_bytes());
                    assert!(!found, "{what}: {} holds it", e.path().display());
                }
            }
        }
    }
}

fn fill(w: &World) {
    for path in [".env", "deep/prod.ENV", "secrets/one", "secrets/deep/two", "config/key"] {
        w.write(path, SECRET);
    }
    for path in ["f", "deep/f", "config/f", "not/config/key"] {
        w.write(path, path);
    }
}

fn left_out(w: &World, name: &str) -> Vec<(String, String)> {
    let (doc, _) = w.open().show(&w.find(name).unwrap()).unwrap();
    doc.skips.into_iter().map(|s| (s.path, s.reason)).collect()
}

#[test]
fn what_is_never_stored_is_told_and_in_no_row() {
    let w = world();
    fill(&w);
    let c = w.checkpoint();
    assert_eq!(c.record.state, State::Complete, "left out by rule");
    let all =
        [".env", "config/key", "deep/prod.ENV", "secrets"].map(|p| (p.to_owned(), "never-stored".to_owned()));
    let told = left_out(&w, "@");
    assert_eq!(told, all);
    nowhere(&w, "a row of everything");
    // The second row, which trusts the table, says the same.
    w.write("f", "2");
    w.checkpoint();
    let told = left_out(&w, "@");
    assert_eq!(told, all);
    nowhere(&w, "a second row");
    // An ordinary way back leaves it alone and is whole.
    w.write(".env", format!("{SECRET} changed"));
    w.write("new", "new");
    let out = w.restore(&c);
    assert!(!out.partial, "{:?}", items(&out));
    assert_eq!(w.read(".env"), format!("{SECRET} changed"));
    assert!(!w.exists("new") && w.exists("secrets/deep/two"));
    nowhere(&w, "a restore");
    w.check_store();
}

#[test]
fn a_tool_that_names_it_records_nothing_and_a_rewind_leaves_it() {
    let w = world();
    fill(&w);
    let outside = w.dir.path().join("elsewhere.env");
    fs::write(&outside, SECRET).unwrap();
    w.checkpoint();
    let tool = |before| {
        let o = ToolOptions {
            session: "s".into(),
            call: Some("c".into()),
            tool: Some("Edit".into()),
            agent: None,
            paths: [".env", "f", "secrets/one", outside.to_str().unwrap()].map(Into::into).into(),
        };
        w.open().tool(before, &o, &Control::default()).unwrap();
    };
    let agent = Agent { w: &w, id: "s" };
    agent.begin("1");
    tool(true);
    for path in [".env", "f", "secrets/one"] {
        w.write(path, format!("{SECRET} by the agent"));
    }
    w.write("f", "by the agent");
    fs::write(&outside, format!("{SECRET} by the agent")).unwrap();
    tool(false);
    agent.end();
    nowhere(&w, "a window that names it");
    agent.rewind("1");
    assert_eq!(w.read("f"), "f");
    assert_eq!(w.read(".env"), format!("{SECRET} by the agent"));
    w.undo().unwrap();
    nowhere(&w, "a rewind and its undo");
    // A row that names it says that it does not hold it.
    let out = w
        .record(checkpoint::Options { paths: vec![".env".into()], kind: Kind::Manual, ..Default::default() })
        .unwrap();
    let c = out.checkpoint.unwrap();
    assert_eq!(left_out(&w, &c.record.id), [(".env".to_owned(), "never-stored".to_owned())]);
    w.write("f", "2");
    let out = w.restore_with(&c, restore::Options { paths: vec![".env".into()], ..Default::default() });
    if let Ok(out) = out {
        assert!(out.operation.is_none(), "{:?}", items(&out));
    }
    nowhere(&w, "a row that names it");
}

#[test]
fn rows_from_before_the_setting_put_nothing_over_it() {
    let mut w = World::new();
    w.write(".env", "OLD");
    w.write("f", "1");
    let c = w.checkpoint();
    w.write("f", "2");
    w.write(".env", "RECORDED");
    let second = w.checkpoint();
    w.restore(&c);
    w.set("BACKSTITCH_NEVER_STORE", "*.env");
    w.write(".env", SECRET);
    w.write("f", "3");
    // Restore, its undo, and the undo of what was done before the setting.
    let out = w.restore(&second);
    assert_eq!(action(&out, ".env").as_deref(), Some("skip:never-stored"));
    assert!(out.partial && w.read("f") == "2");
    assert_eq!(w.read(".env"), SECRET);
    w.undo().unwrap();
    w.write("f", "1");
    w.undo().unwrap();
    assert_eq!((w.read("f").as_str(), w.read(".env").as_str()), ("2", SECRET));
    // Gone, it does not come back either.
    fs::remove_file(w.path(".env")).unwrap();
    let out = w.restore(&c);
    assert_eq!(action(&out, ".env").as_deref(), Some("skip:never-stored"));
    assert!(!w.exists(".env"));
    w.write(".env", SECRET);
    w.checkpoint();
    nowhere(&w, "after the setting");
    w.check_store();
}

/// A repository that tracks the secret: neither its packs nor its commits are taken over.
#[test]
fn a_repository_that_tracks_it_is_neither_linked_nor_kept() {
    let w = world();
    fill(&w);
    let root = w.root();
    repository(&root);
    git(&root, &["rm", "-rq", "--cached", "secrets"]);
    git(&root, &["commit", "-qm", "no secrets"]);
    w.write("f", "staged");
    git(&root, &["add", "f"]);
    git(&root, &["gc", "-q"]);
    let c = w.checkpoint();
    nowhere(&w, "a seeded row with a git state");
    let state = w.open().git_state(&c).unwrap().unwrap();
    assert_eq!(state["kept"], 0);
    assert!(!state["missing"].as_array().unwrap().is_empty(), "{state}");
    // What the repository has itself comes back with it.
    let before = git(&root, &["ls-files", "--stage"]);
    git(&root, &["reset", "-q", "--hard", "HEAD"]);
    assert_ne!(git(&root, &["ls-files", "--stage"]), before);
    let out = w.restore_with(&c, restore::Options { git_state: true, ..Default::default() }).unwrap();
    assert!(!out.partial, "{:?}", items(&out));
    assert_eq!(git(&root, &["ls-files", "--stage"]), before);
    Git::new().unwrap().run(&root, ["fsck", "--strict"]).unwrap();
    nowhere(&w, "a git state that was put back");
    // Without the setting all of it is recorded: the search does find what is there.
    let mut other = World { dir: w.dir, surroundings: w.surroundings };
    other.surroundings.settings.retain(|(name, _)| name != "BACKSTITCH_NEVER_STORE");
    let c = other.checkpoint();
    assert_eq!(other.open().git_state(&c).unwrap().unwrap()["kept"], 2);
    let all = git(&other.git_dir(), &["cat-file", "--batch-all-objects", "--batch"]);
    assert!(all.contains(SECRET));
}

#[test]
fn it_neither_leaves_with_a_push_nor_comes_with_a_pull() {
    let mut a = World::new();
    a.write("my.env", SECRET);
    a.write("f", "1");
    a.checkpoint();
    let remote = a.dir.path().join("remote.git");
    fs::create_dir(&remote).unwrap();
    git(&remote, &["init", "-q", "--bare"]);
    let to = |remote: &Path| sync::Options { remote: remote.into(), ..Default::default() };
    let mut b = World::new();
    b.set("BACKSTITCH_NEVER_STORE", "*.env");
    a.open().push(&to(&remote), &Control::default()).unwrap();
    let got = b.open().pull(&to(&remote), &Control::default()).unwrap();
    assert!(got.checkpoints.is_empty());
    assert!(got.refused[0].why.contains("never_store"), "{got:?}");
    nowhere(&b, "a pull");
    // Set since, it keeps what older rows hold from leaving.
    a.set("BACKSTITCH_NEVER_STORE", "*.env");
    let other = a.dir.path().join("other.git");
    fs::create_dir(&other).unwrap();
    git(&other, &["init", "-q", "--bare"]);
    let sent = a.open().push(&to(&other), &Control::default()).unwrap();
    assert_eq!(sent.left_out[0].path, "my.env");
    assert!(!git(&other, &["cat-file", "--batch-all-objects", "--batch"]).contains(SECRET));
    let got = b.open().pull(&to(&other), &Control::default()).unwrap();
    assert_eq!(got.checkpoints.len(), 1, "{got:?}");
    nowhere(&b, "a second pull");
}

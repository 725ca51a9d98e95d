//! K11: what is recorded never leaves with the user's repository.

use std::{fs, path::Path};

use backstitch::{checkpoint, record::Kind, session::ToolOptions, workspace::Control};

use crate::{
    support::{git, repository},
    world::World,
};

/// Files below `dir` that hold `needle`, also where git deflated them: of a repository its objects are read through git.
fn holders(dir: &Path, needle: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut stack = vec![dir.to_owned()];
    while let Some(d) = stack.pop() {
        for e in fs::read_dir(&d).unwrap().flatten() {
            match e.file_type().unwrap() {
                t if t.is_dir() => stack.push(e.path()),
                _ => {
                    let bytes = fs::read(e.path()).unwrap_or_default();
                    if bytes.windows(needle.len()).any(|w| w == needle.as_bytes()) {
                        out.push(e.path().display().to_string());
                    }
                }
            }
        }
    }
    let all = git(dir, &["cat-file", "--batch-check=%(objectname) %(objecttype)", "--batch-all-objects"]);
    for line in all.lines() {
        let (oid, kind) = line.split_once(' ').unwrap();
        if git(dir, &["cat-file", kind, oid]).contains(needle) {
            out.push(line.to_owned());
        }
    }
    out
}

#[test]
fn r125_no_key_reaches_the_users_repository_or_what_it_pushes() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    let key = |what: &str| format!("sk-test-{what}-0123456789");
    w.write("secrets.env", key("file"));
    let s = Some("s".to_owned());
    w.record(checkpoint::Options {
        kind: Kind::Prompt,
        session: s.clone(),
        prompt: Some(format!("use {}", key("prompt"))),
        label: Some(key("title")),
        ..Default::default()
    })
    .unwrap();
    let tool = |before| {
        let o = ToolOptions {
            session: "s".into(),
            call: Some("c".into()),
            tool: Some("bash".into()),
            agent: None,
            paths: Vec::new(),
        };
        w.open().tool(before, &o, &Control::default()).unwrap();
    };
    tool(true);
    w.write("output.log", key("output"));
    tool(false);
    w.checkpoint();
    let target = w.dir.path().join("mirror.git");
    git(w.dir.path(), &["init", "-q", "--bare", target.to_str().unwrap()]);
    git(&w.root(), &["push", "-q", "--mirror", target.to_str().unwrap()]);
    for what in ["file", "prompt", "title", "output"] {
        assert_eq!(holders(&w.path(".git"), &key(what)), [""; 0], "{what}");
        assert_eq!(holders(&target, &key(what)), [""; 0], "{what}");
    }
    // The search does find what is there.
    assert!(!holders(&w.git_dir(), &key("prompt")).is_empty());
}

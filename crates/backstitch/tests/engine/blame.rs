//! `blame` and `log`: who changed what.

use std::fs;

use backstitch::{blame::Blame, error::Code, history::By, session::ToolOptions, workspace::Control};
use bstr::ByteSlice;

use crate::{
    sessions::{Agent, overlapping},
    world::World,
};

/// `outside`, `s/1 write`, `s/1 bash (helper)`, `restore`, `a or b`.
fn said(by: &By) -> String {
    match by.who {
        "turn" => {
            let word = |w: &Option<String>, a: &str, b: &str| {
                w.as_ref().map_or(String::new(), |w| format!("{a}{w}{b}"))
            };
            let (s, t) = (by.session.as_deref().unwrap(), by.turn.unwrap());
            format!("{s}/{t}{}{}", word(&by.tool, " ", ""), word(&by.agent, " (", ")"))
        }
        "shared" => by.sessions.join(" or "),
        who => who.to_owned(),
    }
}

fn lines(b: &Blame) -> Vec<String> {
    b.lines
        .iter()
        .map(|l| format!("{}: {}", l.text.trim_end().as_bstr(), said(&b.versions[l.version].by)))
        .collect()
}

fn blame(w: &World, path: &str) -> Vec<String> {
    lines(&w.open().blame(path.into(), None).unwrap())
}

#[test]
fn r18_each_line_is_somebodys() {
    let w = World::new();
    w.write("f", "old 1\nold 2\n");
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", "old 1\nwritten\nold 2\n");
    s.shell("c2", || w.write("f", "old 1\nwritten\nold 2\nby sed\n"));
    s.end();
    w.write("f", "mine\nold 1\nwritten\nold 2\nby sed\n");
    s.begin("k2");
    s.end();
    s.begin("k3");
    let o = |call: &str| ToolOptions {
        session: "s".into(),
        call: Some(call.into()),
        tool: Some("edit".into()),
        agent: Some("helper".into()),
        paths: vec!["f".into()],
    };
    w.open().tool(true, &o("c3"), &Control::default()).unwrap();
    w.write("f", "mine\nold 1\nwritten\nold 2\nby sed\nhelped\n");
    w.open().tool(false, &o("c3"), &Control::default()).unwrap();
    s.end();
    w.write("f", "mine\nold 1\nwritten\nold 2\nby sed\nhelped\njust now\n");
    let want = [
        "mine: outside",
        "old 1: outside",
        "written: s/1 write",
        "old 2: outside",
        "by sed: s/1 bash",
        "helped: s/3 edit (helper)",
        "just now: outside",
    ];
    assert_eq!(blame(&w, "f"), want);
    let b = w.open().blame("f".into(), None).unwrap();
    let row = |line: usize| b.versions[b.lines[line].version].row.as_ref().map(|c| c.record.kind.as_str());
    assert_eq!((row(6), row(5), row(0)), (None, Some("tool"), Some("prompt")));
    let by = &b.versions[b.lines[2].version].by;
    assert_eq!((by.evidence, by.call.as_deref()), (Some("named"), Some("c1")));
    assert_eq!(b.versions[b.lines[4].version].by.evidence, Some("window"));
    // As a row holds it.
    let c = w.find("s/turn:1").unwrap();
    assert_eq!(lines(&w.open().blame("f".into(), Some(&c)).unwrap()), [want[1], want[2], want[3], want[4]]);
    // The log says the same.
    let log: Vec<String> = w.open().log("f".into()).unwrap().iter().map(|e| said(&e.by)).collect();
    assert_eq!(log, ["s/3 edit (helper)", "outside", "s/1 bash", "s/1 write", "outside"]);
}

#[test]
fn r18_renames_are_followed() {
    let w = World::new();
    let text = |n: usize| (0..n).map(|i| format!("a line of text, number {i}\n")).collect::<String>();
    w.write("a", text(6));
    w.checkpoint();
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "a", &text(7));
    fs::create_dir(w.path("d")).unwrap();
    fs::rename(w.path("a"), w.path("d/b")).unwrap();
    w.checkpoint();
    s.begin("k2");
    s.shell("mv", || {
        fs::rename(w.path("d/b"), w.path("c")).unwrap();
        w.write("c", text(8));
    });
    s.end();
    let found = blame(&w, "c");
    assert_eq!(found.iter().filter(|l| l.ends_with(": outside")).count(), 6, "{found:?}");
    assert!(found[6].ends_with(": s/1 write") && found[7].ends_with(": s/2 bash"), "{found:?}");
    let log: Vec<String> = w
        .open()
        .log("c".into())
        .unwrap()
        .iter()
        .map(|e| {
            let old = e.change.old_path.as_ref().map_or(String::new(), |p| format!("{p} > "));
            format!("{} {old}{} {}", e.change.status.as_str(), e.change.path, said(&e.by))
        })
        .collect();
    assert_eq!(log, ["R d/b > c s/2 bash", "R a > d/b outside", "M a s/1 write", "A a outside"]);
    // A move that no row has seen yet.
    fs::rename(w.path("c"), w.path("e")).unwrap();
    assert_eq!(blame(&w, "e"), found);
    let log = w.open().log("a".into()).unwrap();
    assert_eq!(log[0].change.status.as_str(), "D");
}

#[test]
fn r18_what_an_operation_brings_back_stays_its_writers() {
    let w = World::new();
    w.write("f", "1\n2\n3\n");
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", "1\nagent\n3\n");
    let c = w.find("s/turn:1").unwrap();
    w.write("f", "all\nnew\n");
    w.checkpoint();
    w.restore(&c);
    let want = ["1: outside", "agent: s/1 write", "3: outside"];
    assert_eq!(blame(&w, "f"), want);
    w.checkpoint();
    assert_eq!(blame(&w, "f"), want);
    let log = w.open().log("f".into()).unwrap();
    assert_eq!((log[0].by.who, log[0].by.operation.is_some()), ("operation", true));
    s.rewind("1");
    assert_eq!(blame(&w, "f"), ["1: outside", "2: outside", "3: outside"]);
}

#[test]
fn r14_r36_sessions_beside_each_other() {
    let w = World::new();
    w.write("open", "0\n");
    let (a, b) = overlapping(&w);
    assert_eq!(blame(&w, "named"), ["by b: b/1 write"]);
    assert_eq!(blame(&w, "both"), ["by one of them: a or b"]);
    b.end();
    // A call that still runs.
    a.tool(true, "open", &["open"]);
    w.write("open", "0\nnow\n");
    w.checkpoint();
    w.write("open", "0\nnow\nand now\n");
    assert_eq!(blame(&w, "open"), ["0: outside", "now: a/1 write", "and now: a/1 write"]);
}

#[test]
fn what_has_no_lines_is_refused() {
    let w = World::new();
    w.write("bin", b"\0");
    w.write("d/f", "1\n");
    std::os::unix::fs::symlink("bin", w.path("link")).unwrap();
    w.checkpoint();
    let e = |p: &str| w.open().blame(p.into(), None).unwrap_err().code;
    assert_eq!(
        [e("bin"), e("d"), e("link"), e("gone")],
        [Code::Usage, Code::Usage, Code::Usage, Code::NoSuchPath]
    );
    assert_eq!(w.open().log("gone".into()).unwrap_err().code, Code::NoSuchPath);
    // Nothing of it is recorded yet.
    w.write("fresh", "1\n");
    assert_eq!(blame(&w, "fresh"), ["1: outside"]);
    w.write("empty", "");
    assert_eq!(blame(&w, "empty"), [] as [&str; 0]);
}

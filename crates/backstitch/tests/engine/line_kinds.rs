//! Texts of every kind through `revert`, parts of a restore, and `blame`: not a byte that nobody meant changes.

use backstitch::restore::Options;
use bstr::ByteSlice;

use crate::{
    sessions::Agent,
    support::items,
    world::{World, same},
};

/// Line ends, ends without one, encodings, sizes.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let text = |s: &str| s.as_bytes().to_vec();
    vec![
        ("unix", text("a\nb\nc\n")),
        ("dos", text("a\r\nb\r\nc\r\n")),
        ("mixed", text("a\r\nb\nc\r\n")),
        ("mac", text("a\rb\rc\r")),
        ("no-end", text("a\nb\nc")),
        ("dos-no-end", text("a\r\nb\r\nc")),
        ("empty", Vec::new()),
        ("one-end", text("\n")),
        ("ends", text("\n\n\r\n\n")),
        ("mark", text("\u{feff}a\nb\nc\n")),
        ("latin", b"a\n\xe9\xff\nc\n".to_vec()),
        ("feeds", text("a\x0cb\u{2028}c\x0bd\x1b[0m\n")),
        ("nul", b"a\0b\nc\n".to_vec()),
        ("late-nul", [vec![b'x'; 9000], b"\n\0\n".to_vec()].concat()),
        ("long", [vec![b'y'; 200_000], b"\nend".to_vec()].concat()),
        ("marks", text("<<<<<<< a\n=======\n>>>>>>> b\n")),
    ]
}

/// A name for each kind and each other one, with both contents.
fn each(mut f: impl FnMut(String, &[u8], &[u8])) {
    let all = kinds();
    for (a, from) in &all {
        for (b, to) in all.iter().filter(|(b, _)| b != a) {
            f(format!("{a}-{b}"), from, to);
        }
    }
}

#[test]
fn r133_from_any_kind_to_any_other_and_exactly_back() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    let all = kinds();
    w.checkpoint();
    s.begin("k1");
    s.shell("c1", || each(|name, from, _| w.write(&name, from)));
    s.end();
    let (before, row) = (w.model(), w.find("@").unwrap());
    s.begin("k2");
    s.shell("c2", || each(|name, _, to| w.write(&name, to)));
    s.end();
    let after = w.model();
    let o = s.revert("2");
    assert!(!o.partial, "{:?}", items(&o));
    same(&before, &w.model(), "reverted");
    w.undo().unwrap();
    same(&after, &w.model(), "undone");
    // Part by part, in two goes.
    let list = Options { dry_run: true, list_hunks: true, ..Options::default() };
    let plan = w.restore_with(&row, list.clone()).unwrap();
    let first: Vec<String> =
        plan.items.iter().filter_map(|i| i.hunks.first()).map(|h| h.id.clone()).collect();
    assert_eq!(first.len(), all.len() * (all.len() - 1));
    w.restore_with(&row, Options { hunks: Some(first), ..Options::default() }).unwrap();
    let plan = w.restore_with(&row, list).unwrap();
    let rest: Vec<String> = plan.items.iter().flat_map(|i| &i.hunks).map(|h| h.id.clone()).collect();
    w.restore_with(&row, Options { hunks: Some(rest), ..Options::default() }).unwrap();
    same(&before, &w.model(), "part by part");
    w.undo().unwrap();
    w.undo().unwrap();
    same(&after, &w.model(), "and back");
    // Every byte belongs to a line of somebody's.
    for (name, bytes) in &all {
        let other = if *name == "unix" { "dos" } else { "unix" };
        match w.open().blame(format!("{other}-{name}").as_str().into(), None) {
            Ok(b) => {
                let joined: Vec<u8> = b.lines.iter().flat_map(|l| l.text.to_vec()).collect();
                assert_eq!(joined.as_bstr(), bytes.as_bstr(), "{name}");
                assert!(b.lines.iter().all(|l| b.versions[l.version].by.who == "turn"), "{name}");
            }
            Err(e) => assert!(name.contains("nul") || name.contains("empty"), "{name}: {e}"),
        }
    }
    w.check_store();
}

/// A later change of another line stays as it is written, whatever its line's end.
#[test]
fn r133_the_other_end_of_a_file_of_any_kind_stays() {
    let w = World::new();
    let s = Agent { w: &w, id: "s" };
    let middle: String = (0..50).map(|n| format!("line {n}~")).collect();
    let huge: String = (0..100_000).map(|n| format!("line {n}~")).collect();
    let text = |first: &str, middle: &str, last: &str, end: &str| -> Vec<u8> {
        format!("{first}~{middle}{last}").replace('~', end).into_bytes()
    };
    let forms = [("unix", "\n", "~"), ("dos", "\r\n", "~"), ("open", "\n", ""), ("dos-open", "\r\n", "")];
    let write = |first: &str, last: &str| {
        for (name, end, tail) in forms {
            w.write(name, text(first, &middle, &format!("{last}{tail}"), end));
        }
        w.write("huge", text(first, &huge, &format!("{last}~"), "\n"));
        let latin = [b"\xe9 ".as_slice(), &text(first, &middle, last, "\n"), b" \xff".as_slice()].concat();
        w.write("latin", latin);
    };
    for (key, first, last) in [("k1", "one", "end"), ("k2", "ONE", "end"), ("k3", "ONE", "END")] {
        s.begin(key);
        s.shell("c", || write(first, last));
        s.end();
    }
    let after = w.model();
    let o = s.revert("2");
    assert!(!o.partial, "{:?}", items(&o));
    let reverted = w.model();
    write("one", "END");
    same(&w.model(), &reverted, "the first line back, the last as it was");
    write("ONE", "END");
    same(&after, &w.model(), "as after the third turn");
}

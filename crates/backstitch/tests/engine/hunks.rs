//! Parts of a restore.

use backstitch::{error::Code, hunks::Hunk, operation::Outcome, restore::Options};

use crate::world::{World, action, same};

fn text(changed: &[(usize, &str)]) -> String {
    let line =
        |i: usize| changed.iter().find(|(at, _)| *at == i).map_or(format!("line {i}"), |c| c.1.to_owned());
    (1..=20).map(|i| line(i) + "\n").collect()
}

fn hunks<'a>(o: &'a Outcome, path: &str) -> &'a [Hunk] {
    &o.items.iter().find(|i| i.path == path).unwrap().hunks
}

#[test]
fn d28_some_hunks_of_a_file_go_back() {
    let w = World::new();
    w.write("f", text(&[]));
    w.chmod("f", 0o644);
    w.write("gone/deep/g", "1");
    w.write("bin", b"\0old");
    let c = w.checkpoint();
    w.write("f", text(&[(3, "three"), (10, "ten"), (18, "eighteen")]));
    w.chmod("f", 0o600);
    std::fs::remove_dir_all(w.path("gone")).unwrap();
    w.write("bin", b"\0new");
    w.write("new", "1");
    let before = w.model();
    let list = Options { dry_run: true, list_hunks: true, ..Options::default() };
    let plan = w.restore_with(&c, list.clone()).unwrap();
    let f = hunks(&plan, "f");
    let kinds: Vec<&str> = f.iter().map(|h| h.what).collect();
    assert_eq!(kinds, ["lines", "lines", "lines", "mode"]);
    assert_eq!((f[1].present.line, f[1].present.text.to_string()), (10, "ten\n".into()));
    assert_eq!(f[1].wanted.text, "line 10\n");
    for p in ["gone/deep/g", "bin", "new"] {
        assert_eq!(hunks(&plan, p).len(), 1, "{p}");
        assert_eq!(hunks(&plan, p)[0].what, "whole");
    }
    let chosen = vec![f[0].id.clone(), f[2].id.clone(), hunks(&plan, "gone/deep/g")[0].id.clone()];
    let some = |ids: &[String]| Options { hunks: Some(ids.to_vec()), ..Options::default() };
    let o = w.restore_with(&c, some(&chosen)).unwrap();
    assert!(o.verified && !o.partial, "{:?}", o.items);
    assert_eq!(w.read("f"), text(&[(10, "ten")]));
    assert_eq!(w.model().entries[b"f".as_slice()].mode & 0o777, 0o600, "the bits were not chosen");
    assert_eq!(w.read("gone/deep/g"), "1");
    assert_eq!((w.read("bin").as_str(), w.exists("new")), ("\0new", true));
    assert_eq!(action(&o, "new").as_deref(), Some("keep:not-chosen"));
    let after = w.model();
    w.undo().unwrap();
    same(&before, &w.model(), "undone");
    w.redo().unwrap();
    same(&after, &w.model(), "redone");
    // An id means one hunk of one content.
    let e = w.restore_with(&c, some(&chosen)).unwrap_err();
    assert_eq!((e.code, e.list.len()), (Code::PlanChanged, 3));
    same(&after, &w.model(), "refused");
    // All that is left.
    let plan = w.restore_with(&c, list).unwrap();
    let all: Vec<String> = plan.items.iter().flat_map(|i| &i.hunks).map(|h| h.id.clone()).collect();
    w.restore_with(&c, some(&all)).unwrap();
    assert_eq!(w.read("f"), text(&[]));
    assert!(!w.exists("new"));
    w.check_store();
}

//! The main job: record, change, go back, take the going-back back.

use crate::world::{World, action, same};

#[test]
fn record_change_restore_undo_redo() {
    let w = World::new();
    w.write("a.txt", "one");
    w.write("d/b.txt", "two");
    std::fs::create_dir(w.path("empty")).unwrap();
    let old = w.model();
    let c = w.checkpoint();
    assert_eq!(c.record.summary.added, 2);
    w.write("a.txt", "ONE");
    w.write("new/deep/x", "x");
    std::fs::remove_file(w.path("d/b.txt")).unwrap();
    std::fs::remove_dir(w.path("empty")).unwrap();
    let new = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", o.items);
    assert_eq!(action(&o, "a.txt").as_deref(), Some("overwrite"));
    assert_eq!(action(&o, "d/b.txt").as_deref(), Some("create"));
    assert_eq!(action(&o, "new/deep/x").as_deref(), Some("delete"));
    assert_eq!(action(&o, "new").as_deref(), Some("rmdir"));
    same(&old, &w.model(), "restored");
    w.undo().unwrap();
    same(&new, &w.model(), "undone");
    w.redo().unwrap();
    same(&old, &w.model(), "redone");
    w.undo().unwrap();
    same(&new, &w.model(), "undone again");
    w.check_store();
}

#[test]
fn ten_levels_of_undo_and_redo() {
    let w = World::new();
    let mut models = Vec::new();
    let mut rows = Vec::new();
    for i in 0..=10 {
        w.write("f", format!("state {i}"));
        w.write(&format!("only-{i}"), "x");
        models.push(w.model());
        rows.push(w.checkpoint());
    }
    let mut states = vec![w.model()];
    for c in rows[..10].iter().rev() {
        w.restore(c);
        states.push(w.model());
    }
    for s in states[..10].iter().rev() {
        w.undo().unwrap();
        same(s, &w.model(), "undo");
    }
    assert_eq!(w.undo().unwrap_err().code.as_str(), "nothing-to-undo");
    for s in &states[1..] {
        w.redo().unwrap();
        same(s, &w.model(), "redo");
    }
    assert_eq!(w.redo().unwrap_err().code.as_str(), "nothing-to-redo");
    w.check_store();
}

#[test]
fn unchanged_costs_one_commit_and_matching_files_are_not_touched() {
    let w = World::new();
    for i in 0..50 {
        w.write(&format!("d{}/f{i}", i % 5), format!("{i}"));
    }
    let c = w.checkpoint();
    let again = w.checkpoint();
    assert!(again.record.unchanged);
    assert_eq!(c.tree, again.tree);
    w.write("d1/f1", "changed");
    let before = w.model();
    w.restore(&c);
    let after = w.model();
    let touched = before.touched_though_equal(&after);
    assert!(touched.is_empty(), "{touched:?}");
    assert_eq!(w.read("d1/f1"), "1");
}

#[test]
fn file_directory_and_link_swaps() {
    let w = World::new();
    w.write("x/inner", "1");
    w.write("y", "file");
    std::os::unix::fs::symlink("y", w.path("z")).unwrap();
    let old = w.model();
    let c = w.checkpoint();
    std::fs::remove_dir_all(w.path("x")).unwrap();
    w.write("x", "now a file");
    std::fs::remove_file(w.path("y")).unwrap();
    w.write("y/deep/er", "now a directory");
    std::fs::remove_file(w.path("z")).unwrap();
    std::fs::create_dir(w.path("z")).unwrap();
    let new = w.model();
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", o.items);
    same(&old, &w.model(), "restored");
    let o = w.undo().unwrap();
    assert!(!o.partial, "{:?}", o.items);
    same(&new, &w.model(), "undone");
}

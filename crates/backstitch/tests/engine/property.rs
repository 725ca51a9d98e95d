//! Random trees with hostile names, types and modes: what was recorded comes back exactly, and so does what was there.

use backstitch_testkit::generate::{self, Shape};

use crate::world::{World, same};

fn round(seed: u64) {
    let mut w = World::new();
    // Names that look like editors' litter are content here.
    w.set("BACKSTITCH_INCLUDE", "*");
    let shape = Shape { entries: 60, max_file: 60_000, ..Shape::default() };
    generate::tree(seed, &shape).write(&w.root()).unwrap();
    let first = w.model();
    let a = w.checkpoint();
    generate::edits(seed ^ 0xabcd, 30).apply(&w.root()).unwrap();
    let second = w.model();
    let b = w.checkpoint();
    generate::edits(seed ^ 0x1234, 30).apply(&w.root()).unwrap();
    let third = w.model();
    let what = |s: &str| format!("seed {seed}: {s}");
    let o = w.restore(&a);
    assert!(
        !o.partial,
        "seed {seed}: {:#?}",
        o.items
            .iter()
            .filter(|i| i.action.as_str() == "conflict" || i.action.as_str() == "keep")
            .collect::<Vec<_>>()
    );
    same(&first, &w.model(), &what("restore of the first"));
    let o = w.undo().unwrap();
    assert!(
        !o.partial,
        "seed {seed}: {:#?}",
        o.items.iter().filter(|i| !i.action.changes()).collect::<Vec<_>>()
    );
    same(&third, &w.model(), &what("undo"));
    w.restore(&b);
    same(&second, &w.model(), &what("restore of the second"));
    w.restore(&a);
    same(&first, &w.model(), &what("restore of the first from the second"));
    w.undo().unwrap();
    same(&second, &w.model(), &what("undo to the second"));
    w.undo().unwrap();
    same(&third, &w.model(), &what("undo to the third"));
    w.redo().unwrap();
    same(&second, &w.model(), &what("redo"));
    w.check_store();
}

#[test]
fn exactly_the_recorded_tree_and_back() {
    let rounds = std::env::var("BACKSTITCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    for seed in 0..rounds {
        round(seed);
    }
}

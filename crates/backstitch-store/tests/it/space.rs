//! Consolidation, collection, expunging, accounting.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use crate::support::*;
use backstitch_store::*;
use proptest::prelude::*;

/// What was written: content of blobs, children of trees and commits.
#[derive(Default)]
struct Model {
    blobs: HashMap<Oid, Vec<u8>>,
    links: HashMap<Oid, Vec<Oid>>,
    refs: BTreeMap<String, Oid>,
}

impl Model {
    fn reach(&self, roots: impl IntoIterator<Item = Oid>) -> BTreeSet<Oid> {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<Oid> = roots.into_iter().collect();
        while let Some(oid) = todo.pop() {
            if seen.insert(oid) {
                todo.extend(self.links.get(&oid).into_iter().flatten());
            }
        }
        seen
    }

    fn live(&self) -> BTreeSet<Oid> {
        self.reach(self.refs.values().copied())
    }

    /// A row of `files` (directory, name, content seed), all in one pack, or only its commit where nothing else is new.
    fn row(&mut self, f: &Fixture, id: &str, files: &[(u8, u8, u8)]) {
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let mut dirs: BTreeMap<u8, BTreeMap<u8, Oid>> = BTreeMap::new();
        let wanted: BTreeMap<(u8, u8), u8> = files.iter().map(|(d, n, seed)| ((*d, *n), *seed)).collect();
        for ((dir, name), seed) in &wanted {
            let content = content(*seed);
            let oid = w.blob(&mut s, &content).unwrap().0;
            self.blobs.insert(oid, content);
            dirs.entry(*dir).or_default().insert(*name, oid);
        }
        let mut top = Vec::new();
        for (dir, names) in dirs {
            let mut entries: Vec<TreeEntry> =
                names.iter().map(|(n, oid)| file(&format!("f{n}"), *oid)).collect();
            let tree = w.tree(&mut s, &mut entries).unwrap().0;
            self.links.insert(tree, names.values().copied().collect());
            top.push(TreeEntry { mode: MODE_TREE, name: format!("d{dir}").into(), oid: tree });
        }
        let below = top.iter().map(|e| e.oid).collect();
        let tree = w.tree(&mut s, &mut top).unwrap().0;
        self.links.insert(tree, below);
        let commit = w.commit(&mut s, &tree, format!("{id}\n").as_bytes(), 7).unwrap();
        self.links.insert(commit, vec![tree]);
        w.finish().unwrap();
        f.set(id, commit);
        self.refs.insert(name(id), commit);
    }

    fn delete(&mut self, f: &Fixture, id: &str) {
        self.refs.remove(&name(id));
        f.store.refs().apply(&[Edit { name: name(id), expect: Expect::Any, new: None }]).unwrap();
    }

    /// Exactly `expected` is in the store, each object once, as git and we see it.
    fn check(&self, f: &Fixture, expected: &BTreeSet<Oid>) {
        f.fsck();
        let out = f.git(&["cat-file", "--batch-check=%(objectname)", "--batch-all-objects"]);
        // Of the empty tree git and we differ about whether it has to be there.
        let empty = Oid::from_hex(b"4b825dc642cb6eb9a060e54bf8d69288fbee4904").unwrap();
        let there: BTreeSet<Oid> =
            out.lines().map(|l| Oid::from_hex(l).unwrap()).filter(|o| *o != empty).collect();
        assert_eq!(there, expected.iter().copied().filter(|o| *o != empty).collect());
        let odb = f.store.odb().unwrap();
        let fresh = Store::open(f.store.dir()).unwrap().odb().unwrap();
        for (oid, content) in &self.blobs {
            assert_eq!(odb.contains(oid), expected.contains(oid));
            if expected.contains(oid) {
                assert_eq!(&odb.blob(oid).unwrap(), content);
                assert_eq!(&fresh.blob(oid).unwrap(), content);
            }
        }
        assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    }
}

/// Similar to its neighbours, so that git finds deltas; some too large for a pack.
fn content(seed: u8) -> Vec<u8> {
    match seed {
        0 => noise(17 << 20, 5),
        1 => Vec::new(),
        _ => {
            let mut c = noise(3000, u64::from(seed / 16));
            c.extend_from_slice(&[seed; 40]);
            c
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Row(Vec<(u8, u8, u8)>),
    Delete(u8),
    Consolidate,
    /// Without grace.
    Collect,
    /// With a grace that covers everything.
    Spare,
    /// By stock git, with deltas.
    Deltas,
}

fn act() -> impl Strategy<Value = Act> {
    let files = proptest::collection::vec((0..3u8, 0..4u8, 1..60u8), 0..8);
    prop_oneof![
        6 => files.prop_map(Act::Row),
        4 => any::<u8>().prop_map(Act::Delete),
        2 => Just(Act::Consolidate),
        2 => Just(Act::Collect),
        1 => Just(Act::Spare),
        1 => Just(Act::Deltas),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn s4_30_collection_against_a_model(acts in proptest::collection::vec(act(), 1..24), big in any::<bool>()) {
        let f = fixture();
        let mut m = Model::default();
        let mut rows: Vec<String> = Vec::new();
        // Everything that was not collected, reachable or not.
        let mut there = m.live();
        if big {
            m.row(&f, "big", &[(0, 0, 0), (0, 1, 1)]);
            rows.push("big".into());
        }
        for (n, act) in acts.iter().enumerate() {
            there.extend(m.live());
            match act {
                Act::Row(files) => {
                    let id = format!("r{n}");
                    m.row(&f, &id, files);
                    rows.push(id);
                }
                Act::Delete(which) if !rows.is_empty() => {
                    let id = rows.remove(usize::from(*which) % rows.len());
                    m.delete(&f, &id);
                }
                Act::Delete(_) => {}
                Act::Consolidate => {
                    let swept = f.store.consolidate(&Care::default()).unwrap();
                    prop_assert!(swept.left.is_empty(), "{swept:?}");
                }
                Act::Collect => {
                    let told = f.store.collect(Duration::ZERO, &[], &Care { dry_run: true, ..Care::default() }).unwrap();
                    let swept = f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
                    prop_assert!(swept.left.is_empty(), "{swept:?}");
                    prop_assert_eq!(told.garbage_bytes, swept.garbage_bytes);
                    there = m.live();
                    m.check(&f, &there);
                    let again = f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
                    prop_assert_eq!((again.garbage_objects, again.freed_bytes), (0, 0));
                }
                Act::Spare => {
                    let hour = Duration::from_secs(3600);
                    f.store.collect(hour, &[], &Care::default()).unwrap();
                }
                Act::Deltas => {
                    f.git(&["repack", "-adf", "-q"]);
                    f.git(&["prune-packed"]);
                    // Git keeps what is reachable only, where it was packed.
                    let loose_or_live = f.git(&["cat-file", "--batch-check=%(objectname)", "--batch-all-objects"]);
                    there = loose_or_live.lines().map(|l| Oid::from_hex(l).unwrap()).collect();
                    f.store.odb().unwrap().refresh().unwrap();
                }
            }
        }
        there.extend(m.live());
        m.check(&f, &there);
    }
}

#[test]
fn consolidation_leaves_few_packs_and_all_readers_right() {
    let f = fixture();
    let mut m = Model::default();
    let mut handles = Vec::new();
    for n in 0..60u8 {
        m.row(&f, &format!("r{n}"), &[(0, n % 4, n + 1), (n % 3, 9, n / 2 + 1)]);
        if n % 20 == 0 {
            let odb = Store::open(f.store.dir()).unwrap().odb().unwrap();
            // Has seen its packs, and opened none of them.
            assert!(odb.contains(&m.refs[&name("r0")]));
            handles.push(odb);
        }
    }
    for n in 0..20 {
        m.row(&f, &format!("same{n}"), &[(0, 0, 7)]);
    }
    let all = m.live();
    let objects = || f.store.disk_usage().map(|u| u.packs + u.loose).unwrap();
    let before = objects();
    let told = f.store.consolidate(&Care { dry_run: true, ..Care::default() }).unwrap();
    let swept = f.store.consolidate(&Care::default()).unwrap();
    assert_eq!((swept.packs, swept.loose.1), ((61, 1), 1), "{swept:?}");
    assert_eq!((told.packs, told.loose, told.garbage_objects), (swept.packs, swept.loose, 0));
    assert!(objects() * 2 < before, "{before} -> {}", objects());
    for (oid, content) in &m.blobs {
        assert_eq!(&f.git(&["cat-file", "blob", &oid.to_string()]), content);
    }
    // Needed though no ref reaches it.
    f.git(&["cat-file", "-e", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]);
    m.check(&f, &all);
    for odb in handles {
        for (oid, content) in &m.blobs {
            assert_eq!(&odb.blob(oid).unwrap(), content);
        }
    }
    // Geometric: a small one beside a large one stays.
    m.row(&f, "more", &[(0, 0, 200)]);
    assert_eq!(f.store.consolidate(&Care::default()).unwrap().packs, (2, 2));
}

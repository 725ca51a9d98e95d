//! Consolidation, collection, expunging, accounting.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    concurrent::{as_child, child},
    support::*,
};
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

/// Bytes of each object as git tells them.
fn on_disk(f: &Fixture) -> HashMap<Oid, u64> {
    let out = f.git(&["cat-file", "--batch-check=%(objectname) %(objectsize:disk)", "--batch-all-objects"]);
    let text = String::from_utf8(out).unwrap();
    let pair = |l: &str| {
        let (oid, size) = l.split_once(' ').unwrap();
        (Oid::from_hex(oid.as_bytes()).unwrap(), size.parse().unwrap())
    };
    text.lines().map(pair).collect()
}

#[test]
fn bytes_of_rows_are_exact() {
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "a", &[(0, 0, 2), (0, 1, 3), (1, 0, 4)]);
    m.row(&f, "b", &[(0, 0, 2), (0, 1, 3), (1, 0, 5)]);
    m.row(&f, "same", &[(0, 0, 2), (0, 1, 3), (1, 0, 5)]);
    m.row(&f, "c", &[(0, 0, 6), (1, 0, 6), (2, 0, 0)]);
    m.row(&f, "d", &[(0, 0, 7)]);
    m.row(&f, "gone", &[(0, 0, 99)]);
    m.delete(&f, "gone");
    for round in 0..2 {
        let sizes = on_disk(&f);
        let sum = |oids: &BTreeSet<Oid>| oids.iter().map(|o| sizes[o]).sum::<u64>();
        let account = f.store.account("refs/", usize::MAX, &false.into()).unwrap().unwrap();
        assert_eq!(account.refs.len(), m.refs.len());
        for (name, commit) in &m.refs {
            let own = m.reach([*commit]);
            let others = m.reach(m.refs.iter().filter(|(n, _)| *n != name).map(|(_, o)| *o));
            let unique = own.difference(&others).copied().collect();
            let shared = own.intersection(&others).copied().collect();
            assert_eq!(account.refs[name], Share { unique: sum(&unique), shared: sum(&shared) }, "{name}");
        }
        assert_eq!(account.live, sum(&m.live()));
        assert!(account.garbage >= 3000, "{account:?}");
        // Known now, and not what it was once something changes.
        assert_eq!(f.store.account("refs/", 0, &false.into()).unwrap().unwrap(), account);
        f.store.consolidate(&Care::default()).unwrap();
        let again = f.store.account("refs/", 0, &false.into()).unwrap();
        assert_eq!(again.is_none(), round == 0);
    }
}

/// Sets the age of all files with objects.
fn age(f: &Fixture, by: Duration) {
    for p in f.files_in("git/objects") {
        let file = std::fs::File::options().write(true).open(p).unwrap();
        file.set_modified(std::time::SystemTime::now() - by).unwrap();
    }
}

#[test]
fn s4_29_what_a_young_object_points_to_stays() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "old", &[(0, 0, 2), (1, 0, 3)]);
    m.row(&f, "older", &[(0, 0, 40), (1, 0, 50)]);
    age(&f, 2 * DAY);
    // A tree that needs an old blob, and no ref needs it.
    m.row(&f, "young", &[(0, 0, 2), (1, 0, 60)]);
    let young = m.reach([m.refs[&name("young")]]);
    for id in ["old", "older", "young"] {
        m.delete(&f, id);
    }
    let swept = f.store.collect(DAY, &[], &Care::default()).unwrap();
    assert_eq!(swept.recent_objects, young.len() as u64);
    m.check(&f, &young);
    // Age is that of the content: joining packs does not make it young again.
    age(&f, 2 * DAY);
    m.row(&f, "x", &[(0, 0, 70)]);
    age(&f, 2 * DAY);
    f.store.consolidate(&Care::default()).unwrap();
    f.store.collect(DAY, &[], &Care::default()).unwrap();
    m.check(&f, &m.live());
}

#[test]
fn nothing_is_removed_while_anything_is_in_doubt() {
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "a", &[(0, 0, 2)]);
    m.row(&f, "b", &[(0, 0, 3)]);
    m.delete(&f, "b");
    let before = f.files_in("git/objects");
    // A row whose tree is missing.
    let w = f.store.writer().unwrap();
    let lost = Oid::from_hex(b"00000000000000000000000000000000000000aa").unwrap();
    let commit = w.commit(&mut w.scratch(), &lost, b"lost\n", 7).unwrap();
    w.finish().unwrap();
    f.set("lost", commit);
    let refused = f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap_err();
    assert!(
        matches!(&refused, Error::Damaged { what, .. } if what.contains("checkpoints/lost")),
        "{refused}"
    );
    assert!(before.iter().all(|p| p.exists()));
    // Joining needs no knowledge of what is needed.
    f.store.consolidate(&Care::default()).unwrap();
    // Once it is written down, the rest is tidied.
    f.store.note_damage(&[lost]).unwrap();
    assert_eq!(f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap().garbage_objects, 4);
    assert!(f.store.odb().unwrap().commit(&commit).is_ok());
    // A ref that cannot be read may need anything.
    std::fs::write(f.store.git_dir().join("refs/backstitch/checkpoints/torn"), "?").unwrap();
    assert!(f.store.collect(Duration::ZERO, &[], &Care::default()).is_err());
}

#[test]
fn changed_bytes_are_not_copied() {
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "a", &[(0, 0, 2)]);
    let first = f.packs();
    m.row(&f, "b", &[(0, 0, 3)]);
    let hit = f.packs().into_iter().find(|p| !first.contains(p)).unwrap();
    let mut bytes = std::fs::read(&hit).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&hit, &bytes).unwrap();
    let swept = f.store.consolidate(&Care::default()).unwrap();
    assert!(swept.left.iter().any(|(p, why)| *p == hit && why.contains("changed")), "{swept:?}");
    assert_eq!(std::fs::read(&hit).unwrap(), bytes);
    assert_eq!(f.store.odb().unwrap().commit(&m.refs[&name("a")]).unwrap().1, "a\n");
}

#[test]
fn what_a_crash_leaves_is_tidied() {
    let f = fixture();
    let mut m = Model::default();
    for n in 0..5 {
        m.row(&f, &format!("r{n}"), &[(0, 0, 2 + n)]);
    }
    // Dead after the new pack was placed and before the old ones went; or between index and pack.
    let saved: Vec<_> =
        f.files_in("git/objects/pack").into_iter().map(|p| (std::fs::read(&p).unwrap(), p)).collect();
    f.store.consolidate(&Care::default()).unwrap();
    let orphan = saved[1].1.with_extension("pack");
    for (bytes, path) in &saved {
        if *path != orphan.with_extension("idx") {
            std::fs::write(path, bytes).unwrap();
        }
    }
    std::fs::write(f.store.git_dir().join("objects/pack/tmp_gone_1_pack-x"), "x").unwrap();
    std::fs::write(f.store.git_dir().join("objects/pack/multi-pack-index"), "stale").unwrap();
    let told = f.store.collect(Duration::ZERO, &[], &Care { dry_run: true, ..Care::default() }).unwrap();
    let swept = f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
    assert_eq!((told.freed_bytes, told.packs), (swept.freed_bytes, swept.packs));
    assert_eq!((swept.garbage_objects, swept.packs), (0, (5, 1)));
    assert_eq!(f.files_in("git/objects/pack").len(), 2);
    m.check(&f, &m.live());
}

#[test]
fn s4_31_a_linked_pack_is_replaced_by_what_is_needed() {
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "a", &[(0, 0, 2)]);
    let pack = f.packs().remove(0);
    let theirs = f.path().join("theirs.pack");
    std::fs::hard_link(&pack, &theirs).unwrap();
    let bytes = std::fs::read(&theirs).unwrap();
    assert!(f.store.disk_usage().unwrap().linked > 0);
    f.store.consolidate(&Care::default()).unwrap();
    assert!(f.store.disk_usage().unwrap().linked > 0);
    f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
    assert_eq!(f.store.disk_usage().unwrap().linked, 0);
    assert_eq!(std::fs::read(&theirs).unwrap(), bytes);
    m.check(&f, &m.live());
}

#[test]
fn what_does_not_fit_is_left() {
    let f = fixture();
    let mut m = Model::default();
    m.row(&f, "a", &[(0, 0, 2)]);
    m.row(&f, "big", &[(0, 0, 2), (0, 1, 0), (0, 2, 200), (0, 3, 210)]);
    m.delete(&f, "a");
    let swept = f.store.collect(Duration::ZERO, &[], &Care { room: 0, ..Care::default() }).unwrap();
    assert!(!swept.left.is_empty());
    assert!(m.live().iter().all(|o| f.store.odb().unwrap().contains(o)));
    let swept = f.store.collect(Duration::ZERO, &[], &Care { room: 1 << 20, ..Care::default() }).unwrap();
    assert!(swept.left.is_empty());
    m.check(&f, &m.live());
}

/// Whether these bytes are in any file of the store.
fn found(f: &Fixture, needle: &[u8]) -> bool {
    f.files_in("").iter().any(|p| std::fs::read(p).unwrap().windows(needle.len()).any(|w| w == needle))
}

#[test]
fn s4_34_expunged_bytes_are_nowhere() {
    let f = fixture();
    let mut m = Model::default();
    let secret = noise(3000, 77);
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let oid = w.blob(&mut s, &secret).unwrap().0;
    let kept = w.blob(&mut s, &noise(3000, 78)).unwrap().0;
    let tree = w.tree(&mut s, &mut [file("secret", oid), file("kept", kept)]).unwrap().0;
    let commit = w.commit(&mut s, &tree, b"with\n", 7).unwrap();
    w.finish().unwrap();
    m.row(&f, "other", &[(0, 0, 5)]);
    f.set("with", commit);
    assert!(found(&f, &secret[100..200]));
    // While a row needs it, it stays, and is named.
    let swept = f.store.expunge(&[oid], &Care::default()).unwrap();
    assert_eq!(swept.still_reachable, [oid]);
    assert!(f.store.odb().unwrap().contains(&oid));
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let tree = w.tree(&mut s, &mut [file("kept", kept)]).unwrap().0;
    let without = w.commit(&mut s, &tree, b"without\n", 7).unwrap();
    w.finish().unwrap();
    f.set("with", without);
    f.store.refs().rows("refs/").unwrap();
    // As a writer that died would leave it.
    std::fs::write(f.store.git_dir().join("objects/pack/tmp_pack_1_x"), &secret).unwrap();
    std::fs::write(f.store.state_dir().join("stat.base"), &secret).unwrap();
    let swept = f.store.expunge(&[oid], &Care::default()).unwrap();
    assert!(swept.still_reachable.is_empty() && swept.left.is_empty(), "{swept:?}");
    assert!(!found(&f, &secret[100..200]));
    assert!(!f.store.odb().unwrap().contains(&oid));
    assert_eq!(f.store.odb().unwrap().blob(&kept).unwrap(), noise(3000, 78));
    f.git(&["cat-file", "-e", &format!("{without}:kept")]);
    f.git(&["fsck", "--connectivity-only"]);
}

#[test]
fn versions_of_a_file_take_what_differs() {
    const ROWS: usize = 60;
    let f = fixture();
    let version = |n: usize| {
        let mut text = noise(20_000, 3);
        text.splice(9_000..9_000, format!("line of row {n}; secret {}", n * 7919).into_bytes());
        text
    };
    let large = |n: usize| {
        let mut bytes = noise(600_000, 4);
        bytes[300_000 + n] ^= 1;
        bytes
    };
    let mut rows = Vec::new();
    for n in 0..ROWS {
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let mut entries = vec![file("text", w.blob(&mut s, &version(n)).unwrap().0)];
        if n % 10 == 0 {
            entries.push(file("large", w.blob(&mut s, &large(n)).unwrap().0));
        }
        // Neighbours that stay as they are: it is their names that trees repeat.
        for m in 0..200 {
            entries.push(file(&format!("neighbour {m}"), w.blob(&mut s, &[m]).unwrap().0));
        }
        let tree = w.tree(&mut s, &mut entries).unwrap().0;
        let commit = w.commit(&mut s, &tree, format!("row {n}\n").as_bytes(), 7).unwrap();
        w.finish().unwrap();
        f.set(&format!("row{n}"), commit);
        rows.push(commit);
    }
    let before = f.store.disk_usage().unwrap().packs;
    f.store.consolidate(&Care::default()).unwrap();
    let after = f.store.disk_usage().unwrap().packs;
    // One of each, a few whole ones at the ends of chains, and what differs.
    assert!(before > 4_000_000 && after < 1_000_000, "{before} -> {after}");
    f.fsck();
    let all_there = |gone: &dyn Fn(usize) -> bool| {
        let odb = Store::open(f.store.dir()).unwrap().odb().unwrap();
        for (n, commit) in rows.iter().enumerate().filter(|(n, _)| !gone(*n)) {
            let tree = odb.commit(commit).unwrap().0;
            let entries = odb.tree(&tree).unwrap();
            let at = |name: &str| entries.iter().find(|e| e.name == name).map(|e| odb.blob(&e.oid).unwrap());
            assert_eq!(at("text").unwrap(), version(n));
            assert_eq!(at("large"), (n % 10 == 0).then(|| large(n)));
        }
        assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    };
    all_there(&|_| false);
    // Rows that others build on go, and their bytes with them.
    let gone = |n: usize| n > 40 || n.is_multiple_of(10);
    let edits = (0..ROWS).filter(|n| gone(*n)).map(|n| Edit {
        name: name(&format!("row{n}")),
        expect: Expect::Any,
        new: None,
    });
    f.store.refs().apply(&edits.collect::<Vec<_>>()).unwrap();
    f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
    all_there(&gone);
    f.fsck();
    assert!(f.store.disk_usage().unwrap().packs < 200_000);
}

/// One capture as the engine makes them: the lock from the first look-up until the ref is in place.
fn capture(store: &Store, id: &str, seed: u8) -> Vec<(Oid, Vec<u8>)> {
    let _lock = store.lock_shared("store", Duration::from_secs(60)).unwrap();
    let w = store.writer().unwrap();
    let mut s = w.scratch();
    let mut blobs = Vec::new();
    // Half of the contents are those that others write and delete at the same time.
    for content in [content(2 + seed % 8), noise(2000, u64::from(seed) + 1000)] {
        blobs.push((w.blob(&mut s, &content).unwrap().0, content));
    }
    let mut entries: Vec<TreeEntry> =
        blobs.iter().enumerate().map(|(i, (oid, _))| file(&format!("f{i}"), *oid)).collect();
    let tree = w.tree(&mut s, &mut entries).unwrap().0;
    let mut top = [TreeEntry { mode: MODE_TREE, name: "d".into(), oid: tree }];
    let tree = w.tree(&mut s, &mut top).unwrap().0;
    let commit = w.commit(&mut s, &tree, format!("{id}\n").as_bytes(), 7).unwrap();
    w.finish().unwrap();
    store.refs().apply(&[Edit { name: name(id), expect: Expect::Any, new: Some(commit) }]).unwrap();
    blobs
}

/// Makes rows and deletes all but every fifth, whose contents must be there to the end.
fn work(store: &Store, who: &str, rounds: usize) -> Vec<(Oid, Vec<u8>)> {
    let mut kept = Vec::new();
    for n in 0..rounds {
        let id = format!("{who}-{n}");
        let blobs = capture(store, &id, n as u8);
        let odb = store.odb().unwrap();
        assert!(blobs.iter().all(|(oid, content)| odb.blob(oid).unwrap() == *content));
        if n % 5 == 0 {
            kept.extend(blobs);
        } else {
            store.refs().apply(&[Edit { name: name(&id), expect: Expect::Any, new: None }]).unwrap();
        }
    }
    kept
}

#[test]
fn capturing_process() {
    let Some((dir, n)) = as_child() else { return };
    work(&Store::open(&dir).unwrap().with_durability(Durability::None), &format!("p{n}"), 60);
}

#[test]
fn s4_29_captures_beside_collection() {
    let f = fixture();
    let done = AtomicBool::new(false);
    let children: Vec<_> =
        (0..2).map(|n| child("space::capturing_process", f.store.dir(), n).spawn().unwrap()).collect();
    let (kept, freed) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|n| {
                scope.spawn({
                    let f = &f;
                    move || work(&f.store, &format!("t{n}"), 60)
                })
            })
            .collect();
        let sweeper = scope.spawn(|| {
            let mut freed = 0;
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                let swept = match n % 3 {
                    0 => f.store.consolidate(&Care::default()),
                    _ => f.store.collect(Duration::ZERO, &[], &Care::default()),
                };
                freed += swept.unwrap().freed_bytes;
                n += 1;
            }
            freed
        });
        let kept: Vec<_> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        for mut c in children {
            assert!(c.wait().unwrap().success());
        }
        done.store(true, Ordering::Relaxed);
        (kept, sweeper.join().unwrap())
    });
    assert!(freed > 0);
    let odb = f.store.odb().unwrap();
    assert!(kept.iter().all(|(oid, content)| odb.blob(oid).unwrap() == *content));
    assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    let swept = f.store.collect(Duration::ZERO, &[], &Care::default()).unwrap();
    assert!(swept.left.is_empty() && swept.packs.1 <= 3, "{swept:?}");
    assert_eq!(f.store.refs().list("refs/").unwrap().len(), 4 * 12);
    assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    f.fsck();
}

//! Writing packs and reading them back, with git as the oracle.

use crate::support::*;
use backstitch_store::*;

#[test]
fn git_accepts_what_a_writer_writes() {
    let f = fixture();
    let (commit, tree) =
        f.checkpoint("a", &[("hello", b"hello\n"), ("empty", b""), ("noise", &noise(100_000, 1))]);
    f.fsck();
    assert_eq!(f.git(&["show", &format!("{commit}:hello")]), b"hello\n");
    assert_eq!(f.git(&["show", &format!("{commit}:noise")]), noise(100_000, 1));
    assert_eq!(f.git(&["rev-parse", &format!("{commit}^{{tree}}")]), format!("{tree}\n").as_bytes());
    assert_eq!(f.packs().len(), 1);
    let clone = f.path().join("clone");
    f.git(&["clone", "-q", "--mirror", ".", clone.to_str().unwrap()]);
    git_in(&clone, f.path(), &["fsck", "--strict"]);
    assert_eq!(git_in(&clone, f.path(), &["rev-parse", &name("a")]), format!("{commit}\n").as_bytes());
}

#[test]
fn a_lone_commit_is_loose_and_nothing_is_nothing() {
    let f = fixture();
    let (_, tree) = f.checkpoint("a", &[("x", b"x")]);
    let before = f.files_in("git");
    assert_eq!(f.store.writer().unwrap().finish().unwrap(), Written::default());
    assert_eq!(f.files_in("git"), before);
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    assert!(!w.blob(&mut s, b"x").unwrap().1);
    let c = w.commit(&mut s, &tree, b"again\n", -5).unwrap();
    assert_eq!(w.odb().commit(&c).unwrap(), (tree, "again\n".into()));
    let written = w.finish().unwrap();
    assert_eq!((written.objects, written.pack), (1, None));
    f.set("b", c);
    assert_eq!(f.packs().len(), 1);
    assert_eq!(f.store.odb().unwrap().commit(&c).unwrap(), (tree, "again\n".into()));
    assert_eq!(
        f.git(&["show", "-s", "--format=%at %an <%ae>%n%B", &c.to_string()]),
        b"0 backstitch <backstitch@localhost>\nagain\n\n"
    );
    f.fsck();
}

#[test]
fn git_made_deltas_are_read() {
    let f = fixture();
    let mut text: Vec<u8> = noise(60_000, 5).iter().map(|b| b % 64 + 32).collect();
    let mut all = Vec::new();
    for n in 0..60u8 {
        text[usize::from(n) * 900] = b'!';
        text.push(n % 64 + 32);
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let oid = w.blob(&mut s, &text).unwrap().0;
        all.push((oid, text.clone()));
        let tree = w.tree(&mut s, &mut [file("text", oid)]).unwrap().0;
        let c = w.commit(&mut s, &tree, b"x\n", i64::from(n)).unwrap();
        w.finish().unwrap();
        f.set(&n.to_string(), c);
    }
    let reader = f.store.odb().unwrap();
    assert_eq!(reader.blob(&all[7].0).unwrap(), all[7].1);
    for args in [
        &["repack", "-adfq", "--depth=50", "--window=20"][..],
        &["-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--depth=50"],
        &["multi-pack-index", "write"],
    ] {
        f.git(args);
        assert_eq!(f.packs().len(), 1);
        // The old packs are gone: the same handle finds the new one.
        for odb in [&reader, &Store::open(f.store.dir()).unwrap().odb().unwrap()] {
            for (oid, data) in &all {
                assert_eq!(odb.size(oid).unwrap(), data.len() as u64);
                assert_eq!(odb.kind(oid).unwrap(), ObjectKind::Blob);
                assert!(odb.blob(oid).unwrap() == *data);
                let mut out = Vec::new();
                odb.blob_to(oid, &mut out).unwrap();
                assert!(out == *data);
            }
        }
        let report = f.store.verify(&|_, _| {}, &false.into()).unwrap();
        assert!(report.damage.is_empty(), "{report:?}");
    }
    assert!(std::fs::metadata(&f.packs()[0]).unwrap().len() < 500_000, "git made no deltas");
}

#[test]
fn trees_are_sorted_and_checked() {
    let f = fixture();
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let blob = w.blob(&mut s, b"x").unwrap().0;
    let sub = w.tree(&mut s, &mut [file("x", blob)]).unwrap().0;
    let dir = |n: &str| TreeEntry { mode: MODE_TREE, name: n.into(), oid: sub };
    let mut entries = vec![
        dir("a"),
        file("a.c", blob),
        file("a-b", blob),
        dir("a0"),
        file("a1", blob),
        dir("ab"),
        file("z", blob),
    ];
    let orders = [entries.clone(), {
        entries.reverse();
        entries.clone()
    }];
    let trees: Vec<Oid> = orders.into_iter().map(|mut e| w.tree(&mut s, &mut e).unwrap().0).collect();
    assert_eq!(trees[0], trees[1]);
    let names: Vec<_> = w.odb().tree(&trees[0]).unwrap().into_iter().map(|e| e.name.to_string()).collect();
    assert_eq!(names, ["a-b", "a.c", "a", "a0", "a1", "ab", "z"]);
    for bad in [
        vec![dir("a"), file("a-b", blob), file("a", blob)],
        vec![file("", blob)],
        vec![file(".", blob)],
        vec![file("..", blob)],
        vec![file("a/b", blob)],
        vec![file("a\0", blob)],
        vec![TreeEntry { mode: 0o100600, name: "a".into(), oid: blob }],
    ] {
        assert!(matches!(w.tree(&mut s, &mut bad.clone()), Err(Error::Invalid { .. })), "{bad:?}");
    }
    assert!(matches!(w.commit(&mut s, &trees[0], b"a\0b", 0), Err(Error::Invalid { .. })));
    let empty = w.tree(&mut s, &mut []).unwrap().0;
    assert_eq!(empty.to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    let other = f.store.writer().unwrap();
    assert!(matches!(other.blob(&mut s, b"y"), Err(Error::Invalid { .. })));
    let c = w.commit(&mut s, &trees[0], b"m", i64::MAX).unwrap();
    w.finish().unwrap();
    f.set("t", c);
    f.fsck();
    assert_eq!(f.git(&["cat-file", "-t", &empty.to_string()]), b"tree\n");
}

#[test]
fn a_wrong_kind_is_an_error() {
    let f = fixture();
    let (commit, tree) = f.checkpoint("a", &[("x", b"x")]);
    let odb = f.store.odb().unwrap();
    assert!(matches!(odb.blob(&tree), Err(Error::Damaged { .. })));
    assert!(matches!(odb.tree(&commit), Err(Error::Damaged { .. })));
    assert!(matches!(odb.commit(&tree), Err(Error::Damaged { .. })));
    assert!(odb.blob_to(&commit, &mut Vec::new()).is_err());
    let nowhere = Oid::from([3; 20]);
    assert!(matches!(odb.blob(&nowhere), Err(Error::Missing { .. })));
    assert!(matches!(odb.size(&nowhere), Err(Error::Missing { .. })));
    assert!(!odb.contains(&nowhere) && odb.contains(&tree));
    let mut refusing: &mut [u8] = &mut [];
    let x = odb.tree(&tree).unwrap()[0].oid;
    assert!(matches!(odb.blob_to(&x, &mut refusing), Err(Error::Io { .. })));
}

mod any_objects {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn come_back(blobs in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..3000), 1usize..40), 1..30)) {
            let f = fixture();
            let w = f.store.writer().unwrap();
            let mut s = w.scratch();
            let blobs: Vec<Vec<u8>> = blobs.into_iter().map(|(b, n)| b.repeat(n)).collect();
            let mut entries = Vec::new();
            for (i, b) in blobs.iter().enumerate() {
                let oid = match i % 2 {
                    0 => w.blob(&mut s, b).unwrap().0,
                    _ => w.blob_from(&mut s, &mut &b[..], b.len() as u64).unwrap().0,
                };
                prop_assert_eq!(&w.odb().blob(&oid).unwrap(), b);
                entries.push(file(&i.to_string(), oid));
            }
            let tree = w.tree(&mut s, &mut entries).unwrap().0;
            prop_assert_eq!(&w.odb().tree(&tree).unwrap(), &entries);
            let commit = w.commit(&mut s, &tree, b"any\n", 0).unwrap();
            w.finish().unwrap();
            f.set("any", commit);
            f.fsck();
            let odb = f.store.odb().unwrap();
            for (e, i) in entries.iter().map(|e| (e, e.name.to_string().parse::<usize>().unwrap())) {
                prop_assert_eq!(&odb.blob(&e.oid).unwrap(), &blobs[i]);
            }
        }
    }
}

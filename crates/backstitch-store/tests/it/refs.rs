//! Refs, with git as the oracle.

use crate::support::*;
use backstitch_store::*;

fn oid(n: u32) -> Oid {
    let mut b = [1; 20];
    b[..4].copy_from_slice(&n.to_be_bytes());
    Oid::from(b)
}

#[test]
fn compare_and_swap() {
    let f = fixture();
    let refs = f.store.refs();
    let edit = |expect, new| refs.apply(&[Edit { name: name("x"), expect, new }]);
    assert_eq!(refs.get(&name("x")).unwrap(), None);
    edit(Expect::Absent, Some(oid(1))).unwrap();
    assert!(matches!(edit(Expect::Absent, Some(oid(2))), Err(Error::RefMoved { .. })));
    assert!(matches!(edit(Expect::Is(oid(2)), Some(oid(3))), Err(Error::RefMoved { .. })));
    edit(Expect::Is(oid(1)), Some(oid(2))).unwrap();
    refs.pack().unwrap();
    assert_eq!(refs.get(&name("x")).unwrap(), Some(oid(2)));
    edit(Expect::Is(oid(2)), Some(oid(3))).unwrap();
    assert_eq!(refs.list("refs/").unwrap(), vec![(name("x"), oid(3))]);
    edit(Expect::Is(oid(3)), None).unwrap();
    assert_eq!(refs.get(&name("x")).unwrap(), None);
    assert_eq!(refs.list("refs/").unwrap(), vec![]);
}

#[test]
fn git_lists_the_same_refs() {
    let f = fixture();
    let (a, _) = f.checkpoint("a", &[("x", b"1")]);
    let (b, _) = f.checkpoint("b", &[("x", b"2")]);
    let refs = f.store.refs();
    let check = || {
        let git = f.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let ours: String = refs.list("refs/").unwrap().iter().map(|(n, o)| format!("{n} {o}\n")).collect();
        assert_eq!(String::from_utf8(git).unwrap(), ours);
        f.fsck();
    };
    let set = |id: &str, oid| Edit { name: name(id), expect: Expect::Any, new: Some(oid) };
    let del = |id: &str| Edit { name: name(id), expect: Expect::Any, new: None };
    check();
    refs.apply(&[set("dir/one", a), set("dir/two", b), set("c", a)]).unwrap();
    check();
    refs.pack().unwrap();
    check();
    refs.apply(&[set("dir/one", b), set("d", a), del("b")]).unwrap();
    check();
    // In one go, in both directions of a clash.
    refs.apply(&[del("dir/one"), del("dir/two"), set("dir", a)]).unwrap();
    check();
    assert!(matches!(refs.apply(&[set("dir/x", a)]), Err(Error::Invalid { .. })));
    refs.pack().unwrap();
    assert!(matches!(refs.apply(&[set("dir/x", a)]), Err(Error::Invalid { .. })));
    refs.apply(&[del("dir"), set("dir/x", a)]).unwrap();
    check();
    refs.pack().unwrap();
    assert!(matches!(refs.apply(&[set("dir", a)]), Err(Error::Invalid { .. })));
    check();
    // Many at once.
    let many: Vec<Edit> =
        (0..500).map(|i| set(&format!("many/{i:03}"), if i % 2 == 0 { a } else { b })).collect();
    refs.apply(&many).unwrap();
    check();
    let half: Vec<Edit> = (0..250).map(|i| del(&format!("many/{i:03}"))).collect();
    refs.apply(&half).unwrap();
    check();
    // By git, read by us.
    f.git(&["pack-refs", "--all"]);
    f.git(&["update-ref", &name("by-git"), &a.to_string()]);
    check();
    f.git(&["update-ref", "-d", &name("many/300")]);
    check();
    // A tag is nothing of ours, and is kept as it is.
    let who = ["-c", "user.name=x", "-c", "user.email=x@x"];
    f.git(&[&who[..], &["tag", "-a", "-m", "x", "t", &a.to_string()]].concat());
    check();
    f.git(&["pack-refs", "--all"]);
    refs.apply(&[set("after", a)]).unwrap();
    refs.pack().unwrap();
    check();
    assert!(f.store.verify(&|_, _| {}, &false.into()).unwrap().damage.is_empty());
    assert_eq!(f.git(&["rev-parse", "t^{commit}"]), format!("{a}\n").as_bytes());
}

#[test]
fn a_batch_stops_at_the_first_mismatch() {
    let f = fixture();
    let refs = f.store.refs();
    let e = |id: &str, expect, new| Edit { name: name(id), expect, new };
    let batch = [
        e("a", Expect::Absent, Some(oid(1))),
        e("a", Expect::Is(oid(1)), Some(oid(2))),
        e("b", Expect::Is(oid(9)), Some(oid(3))),
        e("c", Expect::Any, Some(oid(4))),
    ];
    match refs.apply(&batch) {
        Err(Error::RefMoved { name: n }) => assert_eq!(n, name("b")),
        other => panic!("{other:?}"),
    }
    assert_eq!(refs.list("refs/").unwrap(), [(name("a"), oid(2))]);
}

#[test]
fn bad_names_are_refused() {
    let f = fixture();
    for bad in [
        "",
        "refs",
        "refs/heads/x",
        "refs/backstitch/",
        "refs/backstitch/../x",
        "refs/backstitch/a.lock",
        "refs/backstitch/a b",
        "refs/backstitch/.a",
        "refs/backstitch/a..b",
        "refs/backstitch//a",
        "/refs/backstitch/a",
        "refs/backstitch/a~1",
        "refs/backstitch/a\n",
    ] {
        let edit = Edit { name: bad.into(), expect: Expect::Any, new: Some(oid(1)) };
        assert!(matches!(f.store.refs().apply(&[edit]), Err(Error::Invalid { .. })), "{bad:?}");
    }
    assert!(f.store.refs().get("../../etc/passwd").is_err());
}

#[test]
fn prefixes_cut_anywhere() {
    let f = fixture();
    let all = ["a/b/c", "a/b/d", "a/bb", "ab", "b"];
    for (i, n) in all.iter().enumerate() {
        f.set(n, oid(i as u32));
        if i == 2 {
            f.store.refs().pack().unwrap();
        }
    }
    for prefix in [
        "",
        "refs/",
        "refs/backstitch/checkpoints/",
        "refs/backstitch/checkpoints/a",
        "refs/backstitch/checkpoints/a/",
        "refs/backstitch/checkpoints/a/b",
        "refs/backstitch/checkpoints/a/b/",
        "refs/backstitch/checkpoints/a/b/c",
        "refs/backstitch/checkpoints/zz",
        "refs/backstitch/checkpoints/b/",
        "refs/backst",
        "refs/../x",
        "x",
    ] {
        let got: Vec<String> = f.store.refs().list(prefix).unwrap().into_iter().map(|(n, _)| n).collect();
        let want: Vec<String> = all.iter().map(|n| name(n)).filter(|n| n.starts_with(prefix)).collect();
        assert_eq!(got, want, "{prefix}");
    }
}

#[test]
fn rows_come_from_the_cache_and_never_from_a_wrong_one() {
    let f = fixture();
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let commits: Vec<Oid> = (0..3000)
        .map(|i| {
            let data = i.to_string().into_bytes();
            let blob = w.blob(&mut s, &data).unwrap().0;
            let tree = w.tree(&mut s, &mut [file("f", blob)]).unwrap().0;
            w.commit(&mut s, &tree, format!("row {i}\n").as_bytes(), i).unwrap()
        })
        .collect();
    w.finish().unwrap();
    let edit = |i: usize, c: Oid| Edit { name: name(&format!("{i:05}")), expect: Expect::Any, new: Some(c) };
    let edits: Vec<Edit> = commits.iter().enumerate().map(|(i, c)| edit(i, *c)).collect();
    f.store.refs().apply(&edits).unwrap();
    let check = |want: &[Oid]| {
        let (rows, bad) = f.store.refs().rows("refs/backstitch/").unwrap();
        assert!(bad.is_empty());
        assert_eq!(rows.iter().map(|r| r.commit).collect::<Vec<_>>(), want);
        for r in &rows {
            let (tree, message) = f.store.odb().unwrap().commit(&r.commit).unwrap();
            assert_eq!((r.tree, &r.message), (tree, &message));
        }
    };
    check(&commits);
    let cache = f.files_in("state").remove(0);
    check(&commits);
    // A ref that moved, one that went, one that came.
    let mut want = commits.clone();
    want.swap(10, 20);
    f.store.refs().apply(&[edit(10, want[10]), edit(20, want[20])]).unwrap();
    check(&want);
    let gone = Edit { name: name("00005"), expect: Expect::Any, new: None };
    f.store.refs().apply(&[gone]).unwrap();
    want.remove(5);
    check(&want);
    // A damaged, a cut, a foreign and a missing cache.
    let bytes = std::fs::read(&cache).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 20) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        std::fs::write(&cache, bad).unwrap();
        check(&want);
        std::fs::write(&cache, &bytes[..at]).unwrap();
        check(&want);
    }
    std::fs::remove_dir_all(f.store.state_dir()).unwrap();
    check(&want);
    assert!(cache.exists());
}

#[test]
fn many_loose_refs_are_packed_by_themselves() {
    let f = fixture();
    let store = f.store.clone();
    for i in 0..1400u32 {
        store
            .refs()
            .apply(&[Edit { name: name(&i.to_string()), expect: Expect::Absent, new: Some(oid(i)) }])
            .unwrap();
    }
    // One whose id ends in zero makes it look.
    let look = Edit {
        name: name("look"),
        expect: Expect::Absent,
        new: Some(Oid::from([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
    };
    store.refs().apply(&[look]).unwrap();
    assert_eq!(f.files_in("git/refs").len(), 0);
    assert_eq!(store.refs().list("refs/").unwrap().len(), 1401);
}

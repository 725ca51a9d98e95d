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

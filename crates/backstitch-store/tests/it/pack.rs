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

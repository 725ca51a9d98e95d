//! Damaged stores: an error or a report, never a panic, a loop or wrong bytes.

use std::{collections::BTreeMap, path::Path};

use crate::support::*;
use backstitch_store::*;

fn verify(store: &Store) -> VerifyReport {
    store.verify(&|_, _| {}, &false.into()).unwrap()
}

/// Everything a store says, or how it fails to.
fn read_all(store: &Store) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let odb = store.odb().unwrap();
    let Ok((rows, _)) = store.refs().rows("refs/") else { return out };
    for row in rows {
        let Ok(entries) = odb.tree(&row.tree) else { continue };
        for e in entries {
            if let Ok(data) = odb.blob(&e.oid) {
                let mut streamed = Vec::new();
                assert_eq!(odb.blob_to(&e.oid, &mut streamed).unwrap(), data.len() as u64);
                assert_eq!(streamed, data);
                out.insert(format!("{} {}", e.name, e.oid), data);
            }
        }
    }
    out
}

fn small() -> Fixture {
    let f = fixture();
    f.checkpoint("a", &[("one", b"one one one one one one"), ("two", b"2"), ("three", &noise(300, 3))]);
    let (_, tree) = f.checkpoint("b", &[("one", b"one one one one one one"), ("four", b"4")]);
    let w = f.store.writer().unwrap();
    let c = w.commit(&mut w.scratch(), &tree, b"loose\n", 3).unwrap();
    w.finish().unwrap();
    f.set("c", c);
    f
}

#[test]
fn every_byte_flipped_in_turn() {
    let f = small();
    let whole = read_all(&f.store);
    assert_eq!(whole.len(), 4);
    assert!(verify(&f.store).damage.is_empty());
    // Once with loose and once with packed refs.
    for round in 0..2 {
        if round == 1 {
            f.store.refs().pack().unwrap();
        }
        for path in f.files_in("") {
            let bytes = std::fs::read(&path).unwrap();
            let rel = path.strip_prefix(f.store.dir()).unwrap().to_str().unwrap().to_owned();
            let is_object = rel.starts_with("git/objects");
            if round == 1 && is_object || rel.starts_with("locks") {
                continue;
            }
            make_writable(&path);
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << (at % 8);
                std::fs::write(&path, &bad).unwrap();
                let Ok(store) = Store::open(f.store.dir()) else {
                    assert!(rel.ends_with("manifest.json"));
                    continue;
                };
                let report = verify(&store);
                for d in &report.damage {
                    assert!(!d.what.is_empty());
                }
                let plain = |b: &[u8]| sirocco::decompress(sirocco::Format::Zlib, b, 1 << 20);
                // The last byte of compressed data may have bits that mean nothing.
                let idle = !rel.contains("/pack/") && plain(&bad).is_ok_and(|p| plain(&bytes) == Ok(p));
                if is_object && !idle {
                    assert!(!report.damage.is_empty(), "{rel} at {at} went unseen");
                    assert!(
                        report.damage.iter().any(|d| d.path == path),
                        "{rel} at {at}: {:?}",
                        report.damage
                    );
                }
                // Whatever can still be read is right.
                for (k, v) in read_all(&store) {
                    assert!(whole.get(&k).is_none_or(|w| *w == v), "{rel} at {at}: {k} has changed");
                }
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    assert!(verify(&f.store).damage.is_empty());
}

#[test]
fn every_length_cut() {
    let f = small();
    let whole = read_all(&f.store);
    for path in f.files_in("git") {
        let bytes = std::fs::read(&path).unwrap();
        make_writable(&path);
        let step = (bytes.len() / 200).max(1);
        let is_ref = path.starts_with(f.store.git_dir().join("refs"));
        // A ref may end without a newline.
        for len in (0..bytes.len()).step_by(step).filter(|&len| !is_ref || len != 40) {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let store = Store::open(f.store.dir()).unwrap();
            let report = verify(&store);
            if path.extension().is_some_and(|e| e == "pack" || e == "idx") || is_ref {
                assert!(!report.damage.is_empty(), "{path:?} cut at {len}");
            }
            for (k, v) in read_all(&store) {
                assert_eq!(whole[&k], v);
            }
        }
        std::fs::write(&path, &bytes).unwrap();
    }
}

fn make_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn damage_names_the_refs_it_hits() {
    let f = fixture();
    f.checkpoint("a", &[("x", b"shared"), ("y", b"only a")]);
    f.checkpoint("b", &[("x", b"shared"), ("y", b"only b")]);
    f.checkpoint("c", &[("z", b"something else")]);
    // Repacked by git, so that each object is alone in a loose file.
    for p in f.packs() {
        let moved = f.path().join(p.file_name().unwrap());
        std::fs::rename(&p, &moved).unwrap();
        std::fs::remove_file(p.with_extension("idx")).unwrap();
        let pack = std::fs::File::open(&moved).unwrap();
        let out = std::process::Command::new("git")
            .args(["unpack-objects", "-q"])
            .current_dir(f.store.git_dir())
            .stdin(pack)
            .status()
            .unwrap();
        assert!(out.success());
    }
    assert!(verify(&f.store).damage.is_empty());
    let shared = f.git(&["rev-parse", &format!("{}:x", name("a"))]);
    let shared = std::str::from_utf8(&shared).unwrap().trim().to_owned();
    let path = f.store.git_dir().join("objects").join(&shared[..2]).join(&shared[2..]);
    make_writable(&path);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"junk").unwrap();
    let report = verify(&f.store);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(report.damage[0].refs, [name("a"), name("b")]);
    assert_eq!(report.damage[0].oid.unwrap().to_string(), shared);
    assert_eq!(report.damage[0].path, path);
    // Gone instead of damaged.
    std::fs::remove_file(&path).unwrap();
    let report = verify(&f.store);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(report.damage[0].refs, [name("a"), name("b")]);
    // A sound second copy: still reported, but it hits nobody, and it is what is read.
    std::fs::write(&path, bytes).unwrap();
    f.git(&["repack", "-a", "-q"]);
    make_writable(&path);
    std::fs::write(&path, b"junk").unwrap();
    let report = verify(&f.store);
    assert_eq!(report.damage.len(), 1);
    assert!(report.damage[0].refs.is_empty());
    let oid = Oid::from_hex(shared.as_bytes()).unwrap();
    assert_eq!(Store::open(f.store.dir()).unwrap().odb().unwrap().blob(&oid).unwrap(), b"shared");
}

#[test]
fn a_lost_index_is_one_damage_with_its_refs() {
    let f = fixture();
    for n in 0..5u8 {
        f.checkpoint(&n.to_string(), &[("a", &[n]), ("b", &[n, n])]);
    }
    let idx = f.packs()[2].with_extension("idx");
    std::fs::write(&idx, b"not an index").unwrap();
    let report = verify(&f.store);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!((report.damage[0].path.clone(), report.damage[0].refs.len()), (idx, 1));
}

#[test]
fn a_row_that_cannot_be_read_is_not_dropped() {
    let f = fixture();
    let (a, _) = f.checkpoint("a", &[("x", b"x")]);
    f.set("gone", Oid::from([9; 20]));
    std::fs::write(f.store.git_dir().join(name("empty")), "").unwrap();
    let (rows, bad) = f.store.refs().rows("refs/").unwrap();
    assert_eq!(rows.iter().map(|r| r.commit).collect::<Vec<_>>(), [a]);
    let mut names: Vec<_> = bad.iter().map(|(n, _)| n.clone()).collect();
    names.sort();
    assert_eq!(names, [name("empty"), name("gone")]);
    let report = verify(&f.store);
    assert_eq!(report.damage.len(), 2);
    assert_eq!(report.damage.iter().map(|d| d.refs.len()).sum::<usize>(), 2);
    // A damaged ref can be replaced by who expects nothing of it.
    f.set("empty", a);
    assert_eq!(f.store.refs().get(&name("empty")).unwrap(), Some(a));
}

#[test]
fn verify_can_be_interrupted_and_tells_its_progress() {
    let f = small();
    assert!(matches!(f.store.verify(&|_, _| {}, &true.into()), Err(Error::Interrupted)));
    let last = std::cell::Cell::new((0, 0));
    let report = f.store.verify(&|done, total| last.set((done, total)), &false.into()).unwrap();
    assert_eq!(last.get(), (report.objects, report.objects));
    assert_eq!(report.refs, 3);
}

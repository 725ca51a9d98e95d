//! Packs that nobody would write, with sound checksums: reading them fails, and does so at once.

use crate::{
    Durability, Error, Odb, Oid,
    deflate::Deflater,
    hash::Sha1,
    idx::{self, IdxEntry},
    pack,
};
use proptest::prelude::*;

fn oid(n: u8) -> [u8; 20] {
    [n; 20]
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; Deflater::bound(data.len())];
    let n = Deflater::new().zlib(data, &mut out);
    out.truncate(n);
    out
}

/// A store's objects directory with one pack of these entries, each as it stands.
fn with_pack(entries: &[Vec<u8>]) -> (tempfile::TempDir, Odb) {
    let dir = tempfile::tempdir().expect("dir");
    let objects = dir.path().join("objects");
    std::fs::create_dir_all(objects.join("pack")).expect("dir");
    let mut bytes = pack::header(entries.len() as u32).to_vec();
    let mut index = Vec::new();
    for (i, e) in entries.iter().enumerate() {
        index.push(IdxEntry { oid: oid(i as u8 + 1), crc: crc32fast::hash(e), offset: bytes.len() as u64 });
        bytes.extend_from_slice(e);
    }
    let mut h = Sha1::new();
    h.update(&bytes);
    let sum = h.finish().expect("sum");
    bytes.extend_from_slice(sum.as_slice());
    let idx = idx::encode(&mut index, &sum).expect("idx");
    std::fs::write(objects.join(format!("pack/pack-{sum}.pack")), bytes).expect("write");
    std::fs::write(objects.join(format!("pack/pack-{sum}.idx")), idx).expect("write");
    let odb = Odb::new(dir.path(), objects);
    (dir, odb)
}

fn head(code: u8, mut size: u64) -> Vec<u8> {
    let mut out = vec![code << 4 | (size & 15) as u8];
    size >>= 4;
    while size > 0 {
        let last = out.len() - 1;
        out[last] |= 0x80;
        out.push((size & 0x7f) as u8);
        size >>= 7;
    }
    out
}

fn ref_delta(base: u8, delta: &[u8]) -> Vec<u8> {
    [&head(7, delta.len() as u64)[..], &oid(base), &zlib(delta)].concat()
}

fn all_fail(entries: &[Vec<u8>]) {
    let (_dir, odb) = with_pack(entries);
    for n in 1..=entries.len() as u8 {
        let id = Oid::from(oid(n));
        let err = odb.blob(&id).expect_err("hostile");
        assert!(matches!(err, Error::Damaged { .. }), "{err}");
        assert!(odb.blob_to(&id, &mut std::io::sink()).is_err());
        assert!(odb.tree(&id).is_err() && odb.commit(&id).is_err());
        let _ = (odb.size(&id), odb.kind(&id), odb.contains(&id));
    }
}

#[test]
fn deltas_in_a_circle() {
    all_fail(&[
        ref_delta(2, &[1, 1, 1, b'x']),
        ref_delta(3, &[1, 1, 1, b'x']),
        ref_delta(1, &[1, 1, 1, b'x']),
    ]);
    all_fail(&[ref_delta(1, &[1, 1, 1, b'x'])]);
}

#[test]
fn bases_that_are_not_there() {
    all_fail(&[ref_delta(99, &[1, 1, 1, b'x'])]);
    let inside = [&head(6, 4)[..], &[3], &zlib(&[1, 1, 1, b'x'])].concat();
    let before = [&head(6, 4)[..], &[0x7f], &zlib(&[1, 1, 1, b'x'])].concat();
    let itself = [&head(6, 4)[..], &[0], &zlib(&[1, 1, 1, b'x'])].concat();
    let far = [&head(6, 4)[..], &[0xff; 12], &[1], &zlib(&[1, 1, 1, b'x'])].concat();
    all_fail(&[inside, before, itself, far]);
}

#[test]
fn sizes_that_are_lies() {
    let claims = [0, 1, 9, 11, 1 << 20, 1 << 31, 1 << 40, (1 << 60) - 1];
    let entries: Vec<Vec<u8>> = claims
        .iter()
        .flat_map(|&s| (1..=4).map(move |code| [head(code, s), zlib(b"0123456789")].concat()))
        .collect();
    all_fail(&entries);
    // A delta that would make much of little.
    let base = [head(3, 10), zlib(b"0123456789")].concat();
    let big = [&[10u8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[0x90, 10].repeat(50)].concat();
    all_fail(&[base, ref_delta(1, &big)]);
    all_fail(&[vec![0xff; 40], vec![0x00], vec![0x50, 1, 2, 3], vec![0xb0]]);
}

proptest! {
    #[test]
    fn any_bytes_as_entries(entries in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..6)) {
        all_fail(&entries);
    }

    #[test]
    fn any_bytes_as_deltas(deltas in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..6)) {
        let mut entries = vec![[head(3, 10), zlib(b"0123456789")].concat()];
        entries.extend(deltas.iter().map(|d| ref_delta(1, &[&[10, 20][..], d].concat())));
        all_fail(&entries);
    }

    #[test]
    fn any_bytes_as_index(bytes in proptest::collection::vec(any::<u8>(), 0..3000), magic in any::<bool>()) {
        let (_dir, odb) = with_pack(&[[head(3, 1), zlib(b"x")].concat()]);
        let pack = odb.packs().expect("packs").packs[0].path.clone();
        let mut bytes = bytes;
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&[0xff, b't', b'O', b'c', 0, 0, 0, 2]);
        }
        std::fs::write(pack.with_extension("idx"), bytes).expect("write");
        let odb = Odb::new(odb.objects_dir(), odb.objects_dir().to_owned());
        prop_assert!(odb.blob(&Oid::from(oid(1))).is_err());
    }

    #[test]
    fn any_bytes_as_loose_object(data in proptest::collection::vec(any::<u8>(), 0..200), packed in any::<bool>()) {
        let (_dir, odb) = with_pack(&[]);
        let id = Oid::from(oid(1));
        let path = crate::loose::path(odb.objects_dir(), &id);
        crate::files::ensure_dir(path.parent().expect("parent")).expect("dir");
        std::fs::write(&path, if packed { zlib(&data) } else { data }).expect("write");
        crate::files::sync_dir(odb.objects_dir(), Durability::None).expect("sync");
        prop_assert!(odb.blob(&id).is_err());
        let _ = (odb.size(&id), odb.kind(&id));
    }
}

//! Mutated input for each parser of the store: an error or the truth, at once, never a panic.

use std::{fs, path::Path};

use backstitch_testkit::fuzz::run;

use crate::{
    Durability, Error, Manifest, Odb, Oid, Store, TreeEntry,
    deflate::Deflater,
    hash::{self, Sha1},
    idx::{self, Idx, IdxEntry},
    inflate::Inflater,
    loose, manifest, names,
    object::{self, Kind},
    pack, packed,
};

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; Deflater::bound(data.len())];
    let n = Deflater::new().zlib(data, &mut out);
    out.truncate(n);
    out
}

fn contents() -> Vec<Vec<u8>> {
    vec![Vec::new(), b"x".to_vec(), b"abcdefgh".repeat(700), (0..=255).collect(), vec![0; 70_000]]
}

/// Objects with their contents.
type Known = Vec<(Oid, Vec<u8>)>;

/// A pack of these contents and of a delta, and its index.
fn small_pack() -> (Vec<u8>, Vec<u8>, Known) {
    let all = contents();
    let mut bytes = pack::header(all.len() as u32 + 1).to_vec();
    let (mut index, mut known) = (Vec::new(), Vec::new());
    let mut head = [0; pack::ENTRY_HEADER_MAX];
    for data in all {
        let oid = hash::object_id(Kind::Blob, &data).expect("id");
        let offset = bytes.len() as u64;
        let n = pack::entry_header(Kind::Blob, data.len() as u64, &mut head);
        bytes.extend_from_slice(&head[..n]);
        bytes.extend(zlib(&data));
        let crc = crc32fast::hash(&bytes[offset as usize..]);
        index.push(IdxEntry { oid: hash::raw(&oid), crc, offset });
        known.push((oid, data));
    }
    let (base, whole) = known[3].clone();
    let delta = [&[0x80, 2, 4][..], &[0x90, 2, 2, b'y', b'z']].concat();
    let made = [&whole[..2], b"yz"].concat();
    let oid = hash::object_id(Kind::Blob, &made).expect("id");
    let offset = bytes.len() as u64;
    bytes.push(0x70 | delta.len() as u8);
    bytes.extend_from_slice(base.as_slice());
    bytes.extend(zlib(&delta));
    let crc = crc32fast::hash(&bytes[offset as usize..]);
    index.push(IdxEntry { oid: hash::raw(&oid), crc, offset });
    known.push((oid, made));
    let mut h = Sha1::new();
    h.update(&bytes);
    let sum = h.finish().expect("sum");
    bytes.extend_from_slice(sum.as_slice());
    let idx = idx::encode(&mut index, &sum).expect("index");
    (bytes, idx, known)
}

/// What all objects are read as: the truth, or an error.
fn read_all(objects: &Path, known: &[(Oid, Vec<u8>)]) -> Vec<String> {
    let odb = Odb::new(objects, objects.to_owned());
    known
        .iter()
        .map(|(oid, data)| {
            let _ = (odb.size(oid), odb.kind(oid), odb.contains(oid));
            match odb.blob(oid) {
                Ok(read) => {
                    assert_eq!(read, *data, "{oid} is not what its id says");
                    String::new()
                }
                Err(e) => kind(&e),
            }
        })
        .collect()
}

/// An error without its numbers and paths.
fn kind(e: &Error) -> String {
    e.to_string().chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').collect()
}

#[test]
fn fuzz_pack() {
    let dir = tempfile::tempdir().expect("dir");
    let (bytes, idx, known) = small_pack();
    fs::create_dir(dir.path().join("pack")).expect("dir");
    let path = dir.path().join("pack/pack-1.pack");
    fs::write(path.with_extension("idx"), idx).expect("index");
    fs::write(&path, &bytes).expect("pack");
    assert_eq!(read_all(dir.path(), &known), vec![""; known.len()]);
    run("pack", &[bytes], &[&[0x70], &[0x60, 1], &[0xff; 9], &zlib(b"0123456789")], |input| {
        fs::write(&path, input).expect("pack");
        read_all(dir.path(), &known)
    });
}

#[test]
fn fuzz_pack_index() {
    let dir = tempfile::tempdir().expect("dir");
    let (bytes, idx, known) = small_pack();
    fs::create_dir(dir.path().join("pack")).expect("dir");
    let path = dir.path().join("pack/pack-1.pack");
    fs::write(&path, &bytes).expect("pack");
    run("pack-index", &[idx], &[&[0x80, 0, 0, 0], &[0xff; 4]], |input| {
        fs::write(path.with_extension("idx"), input).expect("index");
        let entries = match Idx::open(&path.with_extension("idx")) {
            Ok(idx) => idx.entries().map(|e| e.len()).map_err(|e| e.len()),
            Err(e) => Err(kind(&e).len()),
        };
        (entries, read_all(dir.path(), &known))
    });
}

#[test]
fn fuzz_inflate() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("z");
    let seeds: Vec<Vec<u8>> = contents().iter().map(|c| zlib(c)).collect();
    run("inflate", &seeds, &[&[0x78, 0x9c], &[0x78, 1], &[1, 0, 0, 0xff, 0xff]], |input| {
        fs::write(&path, input).expect("written");
        let file = fs::File::open(&path).expect("opened");
        let mut inflater = Inflater::new();
        [0u64, 1, 5600, 1 << 40].map(|size| {
            let mut data = inflater.open(&file, 0, input.len() as u64);
            match data.whole(size) {
                Ok(bytes) => {
                    assert_eq!(bytes.len() as u64, size);
                    String::new()
                }
                Err(e) => e.to_string(),
            }
        })
    });
}

#[test]
fn fuzz_delta() {
    let base: Vec<u8> = (0..=255).collect();
    let seeds: [&[u8]; 3] =
        [&[0x80, 2, 4, 0x90, 2, 2, b'y', b'z'], &[0x80, 2, 0x80, 2, 0xb0, 0, 1], &[0x80, 2, 1, 1, b'x']];
    run("delta", &seeds, &[&[0xff; 8], &[0x7f], &[0x80, 2]], |delta| match pack::apply_delta(&base, delta) {
        Ok(made) => {
            assert_eq!(pack::delta_result_size(delta).expect("a size"), made.len() as u64);
            String::new()
        }
        Err(e) => e.to_string(),
    });
}

#[test]
fn fuzz_loose_object() {
    let dir = tempfile::tempdir().expect("dir");
    let oid = loose::write(dir.path(), Kind::Blob, b"content", &mut Deflater::new(), Durability::None)
        .expect("written")
        .0;
    let path = loose::path(dir.path(), &oid);
    let seed = fs::read(&path).expect("read");
    let known = [(oid, b"content".to_vec())];
    let raw = [&b"blob 7\0content"[..], b"blob 18446744073709551615\0", b"tree 0\0", b"commit 07\0content"];
    let seeds: Vec<Vec<u8>> = raw.iter().map(|r| zlib(r)).chain([seed]).collect();
    run("loose", &seeds, &[], |input| {
        fs::write(&path, input).expect("written");
        read_all(dir.path(), &known)
    });
}

#[test]
fn fuzz_tree() {
    let oid = hash::empty_tree();
    let mut entries: Vec<TreeEntry> = [(0o100644, "a"), (0o40000, "b"), (0o120000, "c"), (0o100755, "b.c")]
        .into_iter()
        .map(|(mode, name)| TreeEntry { mode, name: name.into(), oid })
        .collect();
    object::sort_tree(&mut entries).expect("sorted");
    let mut seed = Vec::new();
    object::encode_tree(&entries, &mut seed);
    run("tree", &[seed], &[b"100644 ", b"40000 ", b"../x\0", b".git\0", b"160000 s\0"], |input| {
        let parsed = object::parse_tree(input).map_err(|e| e.to_string());
        // Other types are for the reader of a row to refuse.
        let known = |e: &TreeEntry| [0o100644, 0o100755, 0o120000, 0o40000].contains(&e.mode);
        if let Ok(entries) = &parsed
            && entries.iter().all(known)
        {
            let mut again = Vec::new();
            object::encode_tree(entries, &mut again);
            assert_eq!(object::parse_tree(&again).as_ref(), Ok(entries), "reading what was written");
        }
        parsed.map(|e| e.len())
    });
}

#[test]
fn fuzz_commit() {
    let seed =
        object::encode_commit(&hash::empty_tree(), b"head\n\n{\"v\":1}\n", 1_700_000_000).expect("commit");
    run("commit", &[seed], &[b"parent ", b"\n\n", b"tree ", b"gpgsig "], |input| {
        object::parse_commit(input).map(|(_, message)| message.len())
    });
}

#[test]
fn fuzz_packed_refs() {
    let id = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let head = "# pack-refs with: peeled fully-peeled sorted \n";
    let seed = format!("{head}{id} refs/backstitch/checkpoints/a\n^{id}\n{id} refs/heads/b\n");
    let path = Path::new("packed-refs");
    run("packed-refs", &[seed.as_bytes()], &[b"refs/", id.as_bytes(), b"\n^", b".lock", b"\r\n"], |input| {
        let (refs, bad) = packed::parse_all(path, input);
        for r in &refs {
            assert!(crate::refs::is_ref_name(&r.name), "{:?}", r.name);
            if bad.is_empty() {
                let found = packed::find(path, input, &r.name).expect("all good");
                assert!(refs.iter().any(|o| o.name == r.name && Some(o.oid) == found), "{:?}", r.name);
            }
        }
        let _ = packed::find(path, input, "refs/heads/b");
        let good = packed::encode(&refs);
        assert_eq!(packed::parse_all(path, &good).0.len(), refs.len());
        (refs.len(), bad.iter().map(kind).collect::<Vec<_>>())
    });
}

#[test]
fn fuzz_names() {
    let words: [&[u8]; 9] =
        [b"%bs%", b"%2e", b".git", b"git~1", b"\\", b"\xe2\x80\x8c", b".gitmodules", b"::$INDEX", b"gi"];
    run("names", &[&b"%bs%%2egit"[..], b"a", b".GiT ", b"%bs%x"], &words, |input| {
        // No name is empty, or holds these.
        let input: Vec<u8> = input.iter().copied().filter(|b| !matches!(b, 0 | b'/')).chain(*b"x").collect();
        let input = &input[..];
        let stored = names::encode(input).into_owned();
        assert_eq!(names::decode(&stored).as_deref(), Some(input), "there and back");
        match names::decode(input) {
            Some(name) => {
                assert_eq!(names::encode(&name), input, "only what the encoder produces");
                true
            }
            None => false,
        }
    });
}

fn a_manifest() -> Manifest {
    Manifest {
        format: manifest::FORMAT,
        path: "/w".to_owned(),
        dev: 1,
        ino: 2,
        birth_ns: Some(3),
        created_ms: 4,
        last_used_ms: 5,
        extra: Default::default(),
    }
}

#[test]
fn fuzz_manifest() {
    let dir = tempfile::tempdir().expect("dir");
    a_manifest().write(dir.path(), Durability::None).expect("written");
    let path = dir.path().join(manifest::NAME);
    let seed = fs::read(&path).expect("read");
    run("manifest", &[seed], &[b"null", b"1e400", b"[[[[", b"\"format\": 2", b"-1"], |input| {
        fs::write(&path, input).expect("written");
        Manifest::read(dir.path()).map(|_| ()).map_err(|e| kind(&e))
    });
}

#[test]
fn fuzz_cache_of_rows() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::create(dir.path(), &a_manifest(), Durability::None).expect("store");
    let tree = hash::empty_tree();
    for n in 0..3 {
        let w = store.writer().expect("writer");
        let message = format!("row {n}\n\n{{\"n\":{n}}}\n");
        let commit = w.commit(&mut w.scratch(), &tree, message.as_bytes(), n).expect("commit");
        w.finish().expect("finished");
        let row = crate::Row {
            name: format!("refs/backstitch/checkpoints/r{n}"),
            commit,
            tree,
            message: message.into(),
        };
        store.refs().set(&row, crate::Expect::Absent).expect("ref");
    }
    let truth = || {
        let (rows, bad) = store.refs().rows("refs/backstitch/checkpoints/").expect("rows");
        assert!(bad.is_empty());
        rows.into_iter().map(|r| (r.name, r.commit, r.tree, r.message)).collect::<Vec<_>>()
    };
    let rows = truth();
    let state = store.state_dir();
    let cache = fs::read_dir(&state)
        .expect("state")
        .flatten()
        .map(|e| e.path())
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("rows-")));
    let Some(cache) = cache else { panic!("no cache was written") };
    let seed = fs::read(&cache).expect("read");
    run("cache-of-rows", &[seed], &[b"refs/backstitch/checkpoints/r1", &[0xff; 4]], |input| {
        fs::write(&cache, input).expect("written");
        assert_eq!(truth(), rows, "a damaged cache changes what is told");
    });
}

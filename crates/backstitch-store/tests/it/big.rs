//! Blobs that are never in memory as a whole.

use std::io::Read;

use crate::support::*;
use backstitch_store::*;

pub const SIZE: u64 = 40 << 20;

/// Generates bytes as they are read, so that no test holds them.
pub struct Source {
    left: u64,
    at: u64,
    noisy: bool,
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        // Odd sizes on purpose.
        let n = out.len().min(usize::try_from(self.left).unwrap()).min(70_001);
        for b in &mut out[..n] {
            self.at += 1;
            let x = self.at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *b = if self.noisy {
                (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()[7]
            } else {
                b"abcdefgh\n"[self.at as usize % 9]
            };
        }
        self.left -= n as u64;
        Ok(n)
    }
}

/// Checks what is written against a source, piece by piece; remembers the largest piece.
struct Sink {
    source: Source,
    most: usize,
    n: u64,
}

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut want = vec![0; bytes.len()];
        self.source.read_exact(&mut want)?;
        assert!(want == bytes, "content differs near {}", self.n);
        self.n += bytes.len() as u64;
        self.most = self.most.max(bytes.len());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn source(noisy: bool) -> Source {
    Source { left: SIZE, at: 0, noisy }
}

#[test]
fn huge_blobs_are_streamed_both_ways() {
    let f = fixture();
    for noisy in [false, true] {
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let (oid, new) = w.blob_from(&mut s, &mut source(noisy), SIZE).unwrap();
        assert!(new);
        assert_eq!(w.odb().size(&oid).unwrap(), SIZE);
        // Once more: found, and not kept twice.
        assert_eq!(w.blob_from(&mut s, &mut source(noisy), SIZE).unwrap(), (oid, false));
        let mut sink = Sink { source: source(noisy), most: 0, n: 0 };
        assert_eq!(w.odb().blob_to(&oid, &mut sink).unwrap(), SIZE);
        assert!(!f.store.odb().unwrap().contains(&oid), "visible before finish");
        let tree = w.tree(&mut s, &mut [file("big", oid)]).unwrap().0;
        let commit = w.commit(&mut s, &tree, b"big\n", 1).unwrap();
        let written = w.finish().unwrap();
        assert_eq!(written.objects, 3);
        match noisy {
            true => assert!(written.bytes > SIZE && written.bytes < SIZE + SIZE / 1000, "{}", written.bytes),
            false => assert!(written.bytes < SIZE / 20, "{}", written.bytes),
        }
        f.set(if noisy { "noisy" } else { "text" }, commit);
        let odb = f.store.odb().unwrap();
        assert_eq!((odb.size(&oid).unwrap(), odb.kind(&oid).unwrap()), (SIZE, ObjectKind::Blob));
        let mut sink = Sink { source: source(noisy), most: 0, n: 0 };
        assert_eq!(odb.blob_to(&oid, &mut sink).unwrap(), SIZE);
        assert_eq!(sink.n, SIZE);
        assert!(sink.most <= 1 << 20, "{} bytes at once", sink.most);
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        assert_eq!(w.blob_from(&mut s, &mut source(noisy), SIZE).unwrap(), (oid, false));
        assert_eq!(w.finish().unwrap(), Written::default());
    }
    f.fsck();
    assert!(f.files_in("git/objects").iter().all(|p| !p.to_str().unwrap().contains("tmp_")));
}

#[test]
fn a_reader_of_the_wrong_length_leaves_nothing() {
    let f = fixture();
    let before = f.files_in("git");
    for size in [10, 100_000, SIZE] {
        let w = f.store.writer().unwrap();
        let mut s = w.scratch();
        let kind = |e: Error| match e {
            Error::Io { source, .. } => source.kind(),
            e => panic!("{e}"),
        };
        let short =
            w.blob_from(&mut s, &mut Source { left: size - 1, at: 0, noisy: true }, size).unwrap_err();
        assert_eq!(kind(short), std::io::ErrorKind::UnexpectedEof);
        let long = w.blob_from(&mut s, &mut Source { left: size + 1, at: 0, noisy: true }, size).unwrap_err();
        assert_eq!(kind(long), std::io::ErrorKind::Other);
        assert_eq!(w.finish().unwrap(), Written::default());
        assert_eq!(f.files_in("git"), before);
    }
}

#[test]
fn a_damaged_huge_blob_is_an_error() {
    let f = fixture();
    let w = f.store.writer().unwrap();
    let mut s = w.scratch();
    let oid = w.blob_from(&mut s, &mut source(true), SIZE).unwrap().0;
    w.finish().unwrap();
    let hex = oid.to_string();
    let path = f.store.git_dir().join("objects").join(&hex[..2]).join(&hex[2..]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[30 << 20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let got = f.store.odb().unwrap().blob_to(&oid, &mut std::io::sink());
    assert!(matches!(got, Err(Error::Damaged { .. })), "{got:?}");
}

//! The last look: whether the bytes are anywhere in the store, packed, loose, or in a file of another kind.

use std::collections::{BTreeSet, HashMap};

use backstitch_store::{ObjectKind, Odb, Oid};

use super::{
    Outcome, Unreached, files_below,
    survey::{self, Survey},
};
use crate::{
    error::{Code, Error, Result},
    paths,
    workspace::{Control, Workspace},
};

/// Shorter contents are everywhere, and mean nothing.
const SHORT: usize = 8;
/// So much of a content is looked for.
const LONG: usize = 4096;

/// What is looked for.
#[derive(Default)]
pub(super) struct Needles {
    /// By their first eight bytes.
    by_start: HashMap<[u8; SHORT], Vec<Vec<u8>>>,
    /// Whether any begins with these two.
    begins: Vec<bool>,
    longest: usize,
    /// Contents that are too short to be looked for.
    short: usize,
}

impl Needles {
    /// The beginnings of these contents. One that cannot be read is not looked for.
    pub fn of(odb: &Odb, contents: &BTreeSet<Oid>) -> Needles {
        let mut out = Needles { begins: vec![false; 1 << 16], ..Needles::default() };
        for oid in contents {
            let mut head = Head(Vec::new());
            // The error is that the head is full.
            let _ = odb.blob_to(oid, &mut head);
            out.add(&head.0);
        }
        out
    }

    fn add(&mut self, content: &[u8]) {
        let content = &content[..content.len().min(LONG)];
        let Some(start) = content.first_chunk::<SHORT>() else {
            self.short += usize::from(!content.is_empty());
            return;
        };
        self.begins[usize::from(u16::from_be_bytes([start[0], start[1]]))] = true;
        self.longest = self.longest.max(content.len());
        self.by_start.entry(*start).or_default().push(content.to_vec());
    }

    fn found_in(&self, hay: &[u8]) -> bool {
        hay.windows(SHORT).enumerate().any(|(at, w)| {
            self.begins[usize::from(u16::from_be_bytes([w[0], w[1]]))]
                && w.first_chunk::<SHORT>()
                    .and_then(|w| self.by_start.get(w))
                    .is_some_and(|list| list.iter().any(|n| hay[at..].starts_with(n)))
        })
    }
}

/// Takes the beginning of a content.
struct Head(Vec<u8>);

impl std::io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() >= LONG {
            return Err(std::io::Error::other("enough"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Looks at a stream, across the borders of its pieces.
struct Stream<'a> {
    needles: &'a Needles,
    held: Vec<u8>,
    found: bool,
}

impl Stream<'_> {
    fn new(needles: &Needles) -> Stream<'_> {
        Stream { needles, held: Vec::new(), found: false }
    }
}

impl std::io::Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.found {
            self.held.extend_from_slice(bytes);
            self.found = self.needles.found_in(&self.held);
            let keep = self.held.len().min(self.needles.longest.saturating_sub(1));
            self.held.drain(..self.held.len() - keep);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Adds to `out` whatever still holds the bytes.
pub(super) fn search(
    ws: &Workspace,
    needles: &Needles,
    survey: &Survey,
    control: &Control<'_>,
    out: &mut Outcome,
) -> Result<()> {
    if needles.short > 0 {
        out.unreached.push(Unreached {
            what: "short",
            path: None,
            detail: format!(
                "{} contents of less than {SHORT} bytes were removed but not searched for",
                needles.short
            ),
            rows: Vec::new(),
        });
    }
    if needles.by_start.is_empty() {
        return Ok(());
    }
    let store = ws.store()?;
    let odb = store.odb()?;
    odb.refresh()?;
    let known: BTreeSet<Vec<u8>> =
        out.unreached.iter().filter_map(|u| u.path.clone().map(Into::into)).collect();
    let records = survey::records(ws)?;
    let objects: Vec<Oid> = store.object_sizes()?.into_keys().collect();
    for (n, oid) in objects.iter().enumerate() {
        if control.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::new(Code::Interrupted, "interrupted")
                .hint("the bytes are removed; call forget again for the search"));
        }
        (control.progress)("searching", n as u64, objects.len() as u64);
        let found = match odb.kind(oid) {
            Ok(ObjectKind::Blob) => {
                let mut s = Stream::new(needles);
                odb.blob_to(oid, &mut s).is_ok() && s.found
            }
            Ok(ObjectKind::Commit) => odb.commit(oid).is_ok_and(|(_, message)| needles.found_in(&message)),
            // Names are no content.
            _ => false,
        };
        if !found {
            continue;
        }
        if let Some(row) = records.get(oid) {
            out.unreached.push(Unreached {
                what: "record",
                path: None,
                detail: "the record (prompt, label) holds the bytes".to_owned(),
                rows: vec![row.clone()],
            });
        } else {
            let at = survey.elsewhere.get(oid).and_then(|l| l.first());
            let path = at.map(|(p, _)| p.clone());
            // Listed already as the same content at another path.
            if path.as_ref().is_some_and(|p| known.contains(p.as_slice())) {
                continue;
            }
            out.unreached.push(Unreached {
                what: "inside",
                path,
                detail: format!("object {oid} holds the bytes among others"),
                rows: at.map(|(_, row)| row.clone()).into_iter().collect(),
            });
        }
    }
    for file in files_below(store.dir()) {
        // Sound packs and objects were looked at decoded.
        let packed = file.extension().is_some_and(|e| e == "pack") && file.with_extension("idx").exists();
        if packed || is_loose(&file) {
            continue;
        }
        let mut s = Stream::new(needles);
        let read = std::fs::File::open(&file).and_then(|mut f| std::io::copy(&mut f, &mut s));
        if read.is_ok() && s.found {
            out.unreached.push(Unreached {
                what: "file",
                path: Some(paths::bytes(&file).into()),
                detail: "holds the bytes as they are".to_owned(),
                rows: Vec::new(),
            });
        }
    }
    Ok(())
}

/// `ab/cdef…`
fn is_loose(path: &std::path::Path) -> bool {
    let hex = |s: Option<&std::ffi::OsStr>, n: usize| {
        s.and_then(|s| s.to_str()).is_some_and(|s| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    hex(path.file_name(), 38) && hex(path.parent().and_then(|p| p.file_name()), 2)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn needles(list: &[&[u8]]) -> Needles {
        let mut out = Needles { begins: vec![false; 1 << 16], ..Needles::default() };
        list.iter().for_each(|n| out.add(n));
        out
    }

    #[test]
    fn found_across_the_borders_of_pieces() {
        let n = needles(&[b"correct horse battery", b"0123456789"]);
        let hay = b"....correct horse battery staple";
        for piece in 1..hay.len() {
            let mut s = Stream::new(&n);
            hay.chunks(piece).for_each(|c| s.write_all(c).expect("taken"));
            assert!(s.found, "pieces of {piece}");
        }
        let mut s = Stream::new(&n);
        s.write_all(b"correct horse batterz 012345678 9").expect("taken");
        assert!(!s.found);
    }

    #[test]
    fn short_contents_are_counted_and_not_looked_for() {
        let n = needles(&[b"", b"1234567", b"12345678"]);
        assert_eq!((n.short, n.by_start.len()), (1, 1));
    }
}

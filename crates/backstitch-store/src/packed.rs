//! The file `packed-refs`.

use std::{io, path::Path};

use bstr::ByteSlice;

use crate::{Error, Oid, refs::is_ref_name};

/// One line, with the peeled id of a tag where a foreign program wrote one.
#[derive(Clone, Debug)]
pub(crate) struct PackedRef {
    pub(crate) name: String,
    pub(crate) oid: Oid,
    pub(crate) peeled: Option<Oid>,
}

const HEADER: &[u8] = b"# pack-refs with: sorted \n";

/// The bytes of the file; empty if it is not there.
pub(crate) fn load(path: &Path) -> Result<Vec<u8>, Error> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::io(path)(e)),
    }
}

/// One ref, without taking all apart.
pub(crate) fn find(path: &Path, bytes: &[u8], name: &str) -> Result<Option<Oid>, Error> {
    let needle = [b" ", name.as_bytes()].concat();
    for at in bytes.find_iter(&needle) {
        let end = bytes.get(at + needle.len()).copied();
        let start = at.checked_sub(40).filter(|&s| s == 0 || bytes[s - 1] == b'\n');
        if let (Some(start), None | Some(b'\n')) = (start, end) {
            return match Oid::from_hex(&bytes[start..at]) {
                Ok(oid) if !oid.is_null() => Ok(Some(oid)),
                _ => Err(Error::damaged(path, format!("the id of {name} is no id"))),
            };
        }
    }
    Ok(None)
}

/// All refs, sorted by name; the first line that is none fails all. For who writes the file anew.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<PackedRef>, Error> {
    let (refs, bad) = parse_all(path, bytes);
    match bad.into_iter().next() {
        Some(e) => Err(e),
        None => Ok(refs),
    }
}

/// All refs, sorted by name, and what is wrong with the other lines. For readers.
pub(crate) fn parse_all(path: &Path, bytes: &[u8]) -> (Vec<PackedRef>, Vec<Error>) {
    let mut out: Vec<PackedRef> = Vec::with_capacity(bytes.len() / 80);
    let mut bad = Vec::new();
    let mut sorted = true;
    for line in bytes.lines() {
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let read = match line.strip_prefix(b"^") {
            Some(peeled) => match (out.last_mut(), Oid::from_hex(peeled)) {
                (Some(last), Ok(oid)) => {
                    last.peeled = Some(oid);
                    Some(None)
                }
                _ => None,
            },
            None => parse_line(line).map(Some),
        };
        match read {
            Some(Some(r)) => {
                sorted &= out.last().is_none_or(|last| last.name < r.name);
                out.push(r);
            }
            Some(None) => {}
            None => bad.push(Error::damaged(path, format!("a line is no ref: {:?}", line.as_bstr()))),
        }
    }
    if !sorted {
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out.dedup_by(|b, a| a.name == b.name);
    }
    (out, bad)
}

fn parse_line(line: &[u8]) -> Option<PackedRef> {
    let (hex, rest) = line.split_at_checked(40)?;
    let name = rest.strip_prefix(b" ")?.to_str().ok().filter(|n| is_ref_name(n))?;
    let oid = Oid::from_hex(hex).ok().filter(|o| !o.is_null())?;
    Some(PackedRef { name: name.to_owned(), oid, peeled: None })
}

/// The file for `refs`, which are sorted.
pub(crate) fn encode(refs: &[PackedRef]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER.len() + refs.iter().map(|r| r.name.len() + 42).sum::<usize>());
    out.extend_from_slice(HEADER);
    for r in refs {
        out.extend_from_slice(format!("{} {}\n", r.oid, r.name).as_bytes());
        if let Some(peeled) = &r.peeled {
            out.extend_from_slice(format!("^{peeled}\n").as_bytes());
        }
    }
    out
}

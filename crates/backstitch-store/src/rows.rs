//! The commits behind refs, through a cache that may vanish at any moment.
//!
//! The file is a log of what the commits say, keyed by name and id of the commit, each entry with a checksum of its own. An
//! id never changes its meaning, so a cached row is right whenever its ref still has that id. Whoever sets a ref appends its
//! row ([`Refs::set`]), so that the next process need not read its commit.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bstr::{BString, ByteSlice};

use crate::{
    Durability, Edit, Error, Expect, Oid, Refs,
    files::{self},
    hash::{self, OID_LEN},
    refs::Staged,
};

/// A ref and its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Full ref name.
    pub name: String,
    /// What it points to.
    pub commit: Oid,
    /// The commit's tree.
    pub tree: Oid,
    /// The commit's whole message.
    pub message: BString,
}

const MAGIC: &[u8; 8] = b"bsrows\0\x02";
/// The file is written anew when more than this and a 64th of the rows are not in it.
const SLACK: usize = 16;

impl Refs<'_> {
    /// The commits behind the refs whose names start with `prefix`, sorted by name. A ref whose commit cannot be read
    /// is in the second list.
    ///
    /// The cache may hold messages of rows that are gone until it is written anew; who must be rid of them deletes
    /// [`state_dir`](crate::Store::state_dir).
    #[allow(clippy::type_complexity)]
    pub fn rows(&self, prefix: &str) -> Result<(Vec<Row>, Vec<(String, Error)>), Error> {
        let (refs, mut bad) = self.list_all(prefix)?;
        let path = self.cache_path(prefix)?;
        let bytes = std::fs::read(&path).unwrap_or_default();
        let (cached, whole) = decode(&bytes);
        let mut rows = Vec::with_capacity(refs.len());
        let mut missed = 0;
        let mut next = 0;
        let odb = self.store.odb()?;
        for (name, commit) in refs {
            // Both are sorted by name.
            while cached.get(next).is_some_and(|c| c.name < name.as_str()) {
                next += 1;
            }
            let hit = cached.get(next).filter(|c| c.name == name && hash::oid(c.commit) == Some(commit));
            if let Some(c) = hit
                && let Some(tree) = hash::oid(c.tree)
            {
                rows.push(Row { name, commit, tree, message: c.message.into() });
                continue;
            }
            missed += 1;
            match odb.commit(&commit) {
                Ok((tree, message)) => rows.push(Row { name, commit, tree, message }),
                Err(e) => bad.push((name, e)),
            }
        }
        let stale = cached.len().saturating_sub(rows.len() + SLACK) > cached.len() / 4;
        if missed > SLACK + rows.len() / 64 || stale || !whole && !rows.is_empty() {
            // Only a cache: a failure to write it is no failure.
            let _ = self.write_cache(&path, &rows);
        }
        Ok((rows, bad))
    }

    /// Lets a ref point to a commit that was just written, and remembers what that says.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn set(&self, row: &Row, expect: Expect) -> Result<(), Error> {
        self.set_with(row, expect, None)
    }

    /// The same, where the ref's file was written together with the commit ([`Writer::finish_for`](crate::Writer::finish_for)).
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn set_staged(&self, row: &Row, expect: Expect, staged: Staged) -> Result<(), Error> {
        self.set_with(row, expect, Some(staged))
    }

    fn set_with(&self, row: &Row, expect: Expect, staged: Option<Staged>) -> Result<(), Error> {
        let edit = Edit { name: row.name.clone(), expect, new: Some(row.commit) };
        self.apply_with(&[edit], staged)?;
        // Only a cache.
        let _ = self.remember(row);
        Ok(())
    }

    fn remember(&self, row: &Row) -> Result<(), Error> {
        let prefix = row.name.rfind('/').map_or("", |end| &row.name[..=end]);
        let path = self.cache_path(prefix)?;
        let mut open = OpenOptions::new();
        let (mut file, mut bytes) = match open.append(true).open(&path) {
            Ok(file) => (file, Vec::new()),
            Err(_) => {
                let file = open.create_new(true).mode(0o600).open(&path).map_err(Error::io(&path))?;
                (file, MAGIC.to_vec())
            }
        };
        encode(row, &mut bytes);
        // One call, so that entries of several processes follow one another.
        file.write_all(&bytes).map_err(Error::io(&path))
    }

    fn cache_path(&self, prefix: &str) -> Result<PathBuf, Error> {
        let id = hash::object_id(crate::object::Kind::Blob, prefix.as_bytes())?.to_string();
        Ok(self.store.state_dir().join(format!("rows-{}", &id[..16])))
    }

    fn write_cache(&self, path: &Path, rows: &[Row]) -> Result<(), Error> {
        // Held so that nobody takes the temporary for a dead process's.
        let _alive = self.store.lock_shared(crate::ALIVE, Duration::ZERO)?;
        let dir = self.store.state_dir();
        let mut bytes = Vec::with_capacity(rows.iter().map(|r| r.name.len() + r.message.len() + 64).sum());
        bytes.extend_from_slice(MAGIC);
        rows.iter().for_each(|r| encode(r, &mut bytes));
        files::replace(&dir, "rows", path, &bytes, Durability::None)
    }
}

struct Cached<'a> {
    name: &'a str,
    commit: &'a [u8],
    tree: &'a [u8],
    message: &'a [u8],
}

/// Appends an entry: length and CRC-32 of what follows, ids, length of the name, name, message.
fn encode(r: &Row, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(r.commit.as_slice());
    out.extend_from_slice(r.tree.as_slice());
    out.extend_from_slice(&(r.name.len() as u32).to_le_bytes());
    out.extend_from_slice(r.name.as_bytes());
    out.extend_from_slice(&r.message);
    let body = &out[start + 8..];
    let (len, crc) = ((body.len() as u32).to_le_bytes(), crc32fast::hash(body).to_le_bytes());
    out[start..start + 4].copy_from_slice(&len);
    out[start + 4..start + 8].copy_from_slice(&crc);
}

/// The entries, sorted by name, of several with one name the last; and whether the file was sound up to its end.
fn decode(bytes: &[u8]) -> (Vec<Cached<'_>>, bool) {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else { return (Vec::new(), bytes.is_empty()) };
    let mut out: Vec<Cached<'_>> = Vec::with_capacity(rest.len() / 512);
    let mut sorted = true;
    while let Some((entry, tail)) = entry(rest) {
        sorted &= out.last().is_none_or(|last| last.name < entry.name);
        out.push(entry);
        rest = tail;
    }
    if !sorted {
        // Stable: the later one stays behind, and is kept.
        out.sort_by(|a, b| a.name.cmp(b.name));
        out.dedup_by(|later, earlier| {
            let same = later.name == earlier.name;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
    }
    (out, rest.is_empty())
}

fn entry(bytes: &[u8]) -> Option<(Cached<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (body, tail) = rest.split_at_checked(word(0)? as usize)?;
    if word(4)? != crc32fast::hash(body) {
        return None;
    }
    let (commit, body) = body.split_at_checked(OID_LEN)?;
    let (tree, body) = body.split_at_checked(OID_LEN)?;
    let (len, body) = body.split_first_chunk::<4>()?;
    let (name, message) = body.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((Cached { name: name.to_str().ok()?, commit, tree, message }, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, message: &str) -> Row {
        let id = hash::empty_tree();
        Row { name: name.into(), commit: id, tree: id, message: message.into() }
    }

    #[test]
    fn the_last_of_a_name_counts_and_a_torn_end_costs_only_itself() {
        let mut bytes = MAGIC.to_vec();
        for (name, message) in [("b", "1"), ("c", "1"), ("a", "1"), ("b", "2"), ("b", "3")] {
            encode(&row(name, message), &mut bytes);
        }
        let seen = |bytes: &[u8]| {
            let (all, whole) = decode(bytes);
            let all: Vec<String> = all.iter().map(|c| format!("{}{}", c.name, c.message.as_bstr())).collect();
            (all.join(" "), whole)
        };
        assert_eq!(seen(&bytes), ("a1 b3 c1".into(), true));
        assert_eq!(seen(&bytes[..bytes.len() - 1]), ("a1 b2 c1".into(), false));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(seen(&bytes), ("a1 b2 c1".into(), false));
        assert_eq!(seen(b""), (String::new(), true));
        assert_eq!(seen(b"bsrows\0\x01what there was before"), (String::new(), false));
    }
}

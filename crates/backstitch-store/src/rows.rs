//! The commits behind refs, through a cache that may vanish at any moment.
//!
//! The file is a copy of what the commits say, keyed by name and id of the commit, with a checksum over all. An id
//! never changes its meaning, so a cached row is right whenever its ref still has that id.

use std::{path::PathBuf, time::Duration};

use bstr::{BString, ByteSlice};

use crate::{
    Durability, Error, Oid, Refs,
    files::{self},
    hash::{self, OID_LEN},
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

const MAGIC: &[u8; 8] = b"bsrows\0\x01";
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
        let cached = decode(&bytes).unwrap_or_default();
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
        if missed > SLACK + rows.len() / 64 || stale {
            // Only a cache: a failure to write it is no failure.
            let _ = self.write_cache(&path, &rows);
        }
        Ok((rows, bad))
    }

    fn cache_path(&self, prefix: &str) -> Result<PathBuf, Error> {
        let id = hash::object_id(crate::object::Kind::Blob, prefix.as_bytes())?.to_string();
        Ok(self.store.state_dir().join(format!("rows-{}", &id[..16])))
    }

    fn write_cache(&self, path: &std::path::Path, rows: &[Row]) -> Result<(), Error> {
        // Held so that nobody takes the temporary for a dead process's.
        let _alive = self.store.lock_shared(crate::ALIVE, Duration::ZERO)?;
        let dir = self.store.state_dir();
        files::replace(&dir, "rows", path, &encode(rows), Durability::None)
    }
}

struct Cached<'a> {
    name: &'a str,
    commit: &'a [u8],
    tree: &'a [u8],
    message: &'a [u8],
}

/// Magic, number of rows, per row: lengths of name and message, ids, name, message; CRC-32 of all before it.
fn encode(rows: &[Row]) -> Vec<u8> {
    let size: usize = rows.iter().map(|r| r.name.len() + r.message.len() + 48).sum();
    let mut out = Vec::with_capacity(size + 20);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(rows.len() as u64).to_le_bytes());
    for r in rows {
        out.extend_from_slice(&(r.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&(r.message.len() as u32).to_le_bytes());
        out.extend_from_slice(r.commit.as_slice());
        out.extend_from_slice(r.tree.as_slice());
        out.extend_from_slice(r.name.as_bytes());
        out.extend_from_slice(&r.message);
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<Cached<'_>>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32fast::hash(body) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let count = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let mut out = Vec::with_capacity(usize::try_from(count).ok()?.min(bytes.len() / 48));
    for _ in 0..count {
        let name_len = u32::from_le_bytes(take(4)?.try_into().ok()?) as usize;
        let message_len = u32::from_le_bytes(take(4)?.try_into().ok()?) as usize;
        let commit = take(OID_LEN)?;
        let tree = take(OID_LEN)?;
        let name = take(name_len)?.to_str().ok()?;
        let message = take(message_len)?;
        out.push(Cached { name, commit, tree, message });
    }
    Some(out)
}

//! Trees and commits as bytes and back.

use bstr::{BStr, BString, ByteSlice};

use crate::{Error, Oid, hash};

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Content of a file or the text of a link.
    Blob,
    /// A directory.
    Tree,
    /// A checkpoint.
    Commit,
}

/// [`ObjectKind`] and what foreign git programs may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Blob,
    Tree,
    Commit,
    Tag,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Blob => "blob",
            Kind::Tree => "tree",
            Kind::Commit => "commit",
            Kind::Tag => "tag",
        }
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"blob" => Kind::Blob,
            b"tree" => Kind::Tree,
            b"commit" => Kind::Commit,
            b"tag" => Kind::Tag,
            _ => return None,
        })
    }

    /// The type in a pack entry's header.
    pub(crate) fn code(self) -> u8 {
        match self {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::Commit,
            2 => Kind::Tree,
            3 => Kind::Blob,
            4 => Kind::Tag,
            _ => return None,
        })
    }

    pub(crate) fn public(self) -> Option<ObjectKind> {
        Some(match self {
            Kind::Blob => ObjectKind::Blob,
            Kind::Tree => ObjectKind::Tree,
            Kind::Commit => ObjectKind::Commit,
            Kind::Tag => return None,
        })
    }
}

/// Mode of a plain file.
pub const MODE_FILE: u32 = 0o100644;
/// Mode of an executable file.
pub const MODE_EXECUTABLE: u32 = 0o100755;
/// Mode of a symbolic link.
pub const MODE_LINK: u32 = 0o120000;
/// Mode of a directory.
pub const MODE_TREE: u32 = 0o40000;
/// Mode of a commit of another repository: it is not in the store. Only trees of the user's repository have it.
pub const MODE_GITLINK: u32 = 0o160000;

/// One line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// [`MODE_FILE`], [`MODE_EXECUTABLE`], [`MODE_LINK`], [`MODE_TREE`] or [`MODE_GITLINK`].
    pub mode: u32,
    /// As stored (maybe encoded, see [`names`](crate::names)).
    pub name: BString,
    /// What it holds.
    pub oid: Oid,
}

impl TreeEntry {
    pub(crate) fn is_tree(&self) -> bool {
        self.mode == MODE_TREE
    }
}

/// Sorts into git's order (a directory as if its name ended in `/`) and checks what git would refuse.
pub(crate) fn sort_tree(entries: &mut [TreeEntry]) -> Result<(), Error> {
    for e in entries.iter() {
        if !matches!(e.mode, MODE_FILE | MODE_EXECUTABLE | MODE_LINK | MODE_TREE | MODE_GITLINK) {
            return Err(Error::invalid(format!("{:o} is no mode of a tree entry ({:?})", e.mode, e.name)));
        }
        if e.name.is_empty() || e.name == "." || e.name == ".." || e.name.find_byteset(b"/\0").is_some() {
            return Err(Error::invalid(format!("{:?} is no name for a tree entry", e.name)));
        }
    }
    // A file and a directory of one name are not neighbours in git's order, so this order looks for doubles first.
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(w) = entries.windows(2).find(|w| w[0].name == w[1].name) {
        return Err(Error::invalid(format!("{:?} is twice in one tree", w[0].name)));
    }
    let key = |e: &TreeEntry| e.is_tree();
    entries.sort_by(|a, b| {
        let n = a.name.len().min(b.name.len());
        a.name[..n].cmp(&b.name[..n]).then_with(|| {
            let at = |e: &TreeEntry| e.name.get(n).copied().unwrap_or(if key(e) { b'/' } else { 0 });
            at(a).cmp(&at(b))
        })
    });
    Ok(())
}

/// Appends the bytes of a tree whose entries are sorted.
pub(crate) fn encode_tree(entries: &[TreeEntry], out: &mut Vec<u8>) {
    out.reserve(entries.iter().map(|e| e.name.len() + 28).sum());
    for e in entries {
        let mode: &[u8] = match e.mode {
            MODE_EXECUTABLE => b"100755 ",
            MODE_LINK => b"120000 ",
            MODE_TREE => b"40000 ",
            MODE_GITLINK => b"160000 ",
            _ => b"100644 ",
        };
        out.extend_from_slice(mode);
        out.extend_from_slice(&e.name);
        out.push(0);
        out.extend_from_slice(e.oid.as_slice());
    }
}

/// The id that a tree of these entries has, whether it is in any store or not.
///
/// # Errors
/// A name or mode that no tree holds, or a name twice.
pub fn tree_id(entries: &mut [TreeEntry]) -> Result<Oid, Error> {
    sort_tree(entries)?;
    let mut data = Vec::new();
    encode_tree(entries, &mut data);
    hash::object_id(Kind::Tree, &data)
}

/// One entry as it lies in a tree, with its bytes.
struct RawEntry<'a> {
    mode: u32,
    name: &'a BStr,
    oid: Oid,
    bytes: &'a [u8],
}

/// Takes the first entry off a tree.
fn split_entry<'a>(data: &mut &'a [u8]) -> Result<Option<RawEntry<'a>>, String> {
    if data.is_empty() {
        return Ok(None);
    }
    let space = data.find_byte(b' ').filter(|n| (1..=6).contains(n)).ok_or("a tree entry has no mode")?;
    let mut mode = 0u32;
    for &b in &data[..space] {
        if !(b'0'..=b'7').contains(&b) {
            return Err("a tree entry's mode is no number".into());
        }
        mode = mode << 3 | u32::from(b - b'0');
    }
    let rest = &data[space + 1..];
    let end = rest.find_byte(0).filter(|&n| n > 0).ok_or("a tree entry has no name")?;
    let oid =
        rest.get(end + 1..end + 1 + hash::OID_LEN).and_then(hash::oid).ok_or("a tree entry is cut off")?;
    let (bytes, left) = data.split_at(space + 1 + end + 1 + hash::OID_LEN);
    *data = left;
    Ok(Some(RawEntry { mode, name: rest[..end].as_bstr(), oid, bytes }))
}

impl RawEntry<'_> {
    fn to_entry(&self) -> TreeEntry {
        TreeEntry { mode: self.mode, name: self.name.into(), oid: self.oid }
    }
}

/// Reads a tree; what is wrong with it as text.
pub(crate) fn parse_tree(mut data: &[u8]) -> Result<Vec<TreeEntry>, String> {
    let mut entries = Vec::with_capacity(data.len() / 36 + 1);
    while let Some(e) = split_entry(&mut data)? {
        entries.push(e.to_entry());
    }
    Ok(entries)
}

/// The entries of two trees that do not stand in both, each in the order of its tree. What is the same in both costs no more
/// than looking at it.
pub(crate) fn parse_changes(mut a: &[u8], mut b: &[u8]) -> Result<(Vec<TreeEntry>, Vec<TreeEntry>), String> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (mut x, mut y) = (split_entry(&mut a)?, split_entry(&mut b)?);
    loop {
        match (&x, &y) {
            (Some(p), Some(q)) if p.bytes == q.bytes => {
                (x, y) = (split_entry(&mut a)?, split_entry(&mut b)?);
            }
            // In git's order only names of which one begins with the other may stand otherwise; what is then not found to be
            // the same is told on both sides, which is true of it too.
            (Some(p), q) if q.as_ref().is_none_or(|q| p.name <= q.name) => {
                let same_name = q.as_ref().is_some_and(|q| p.name == q.name);
                left.push(p.to_entry());
                if same_name {
                    right.extend(q.as_ref().map(RawEntry::to_entry));
                    y = split_entry(&mut b)?;
                }
                x = split_entry(&mut a)?;
            }
            (_, Some(q)) => {
                right.push(q.to_entry());
                y = split_entry(&mut b)?;
            }
            (_, None) => return Ok((left, right)),
        }
    }
}

/// The bytes of a parentless commit.
pub(crate) fn encode_commit(tree: &Oid, message: &[u8], time_s: i64) -> Result<Vec<u8>, Error> {
    if message.contains(&0) {
        return Err(Error::invalid("a commit message cannot hold NUL"));
    }
    let time = time_s.clamp(0, i64::from(i32::MAX));
    let who = "backstitch <backstitch@localhost>";
    let mut out =
        format!("tree {tree}\nauthor {who} {time} +0000\ncommitter {who} {time} +0000\n\n").into_bytes();
    out.extend_from_slice(message);
    Ok(out)
}

/// Tree and message of a commit; what is wrong with it as text.
pub(crate) fn parse_commit(data: &[u8]) -> Result<(Oid, BString), String> {
    let tree = data
        .strip_prefix(b"tree ")
        .and_then(|rest| rest.get(..2 * hash::OID_LEN))
        .and_then(|hex| Oid::from_hex(hex).ok())
        .ok_or("a commit names no tree")?;
    let body = data.find(b"\n\n").ok_or("a commit has no message")?;
    Ok((tree, data[body + 2..].into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    type Entries = BTreeMap<String, (bool, u8)>;

    fn tree(entries: &Entries) -> Vec<u8> {
        let mut list: Vec<TreeEntry> = entries
            .iter()
            .map(|(name, (is_dir, id))| TreeEntry {
                mode: if *is_dir { MODE_TREE } else { MODE_FILE },
                name: name.as_str().into(),
                oid: hash::object_id(Kind::Blob, &[*id]).unwrap(),
            })
            .collect();
        sort_tree(&mut list).unwrap();
        let mut out = Vec::new();
        encode_tree(&list, &mut out);
        out
    }

    proptest! {
        /// What is told of two trees, without what is told of both alike, is exactly what differs.
        #[test]
        fn changes_of_trees(
            a in prop::collection::btree_map("[a-c](\\.|-|[a-c]){0,2}", (any::<bool>(), 0u8..3), 0..12),
            b in prop::collection::btree_map("[a-c](\\.|-|[a-c]){0,2}", (any::<bool>(), 0u8..3), 0..12),
        ) {
            let (x, y) = (tree(&a), tree(&b));
            let (left, right) = parse_changes(&x, &y).unwrap();
            let (all_x, all_y) = (parse_tree(&x).unwrap(), parse_tree(&y).unwrap());
            let only = |these: &[TreeEntry], others: &[TreeEntry]| -> Vec<TreeEntry> {
                these.iter().filter(|e| !others.contains(e)).cloned().collect()
            };
            prop_assert_eq!(only(&left, &right), only(&all_x, &all_y));
            prop_assert_eq!(only(&right, &left), only(&all_y, &all_x));
            prop_assert!(parse_changes(&x, &x).unwrap().0.is_empty());
        }
    }
}

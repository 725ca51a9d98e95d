//! What a folder holds at one moment.

mod compare;
mod read;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

pub use compare::{Compare, Difference, ModeRule, What};
pub use read::{Options, blob_id};

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Special,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Link => "link",
            Kind::Special => "special file",
        })
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The id that git gives these bytes, in hexadecimal, and their number.
    Blob {
        /// Forty hexadecimal digits.
        id: String,
        /// The length in bytes.
        size: u64,
    },
    /// The bytes could not be read; the reason.
    Unreadable(String),
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Blob { id, size } => write!(f, "{size} bytes {}", id.get(..10).unwrap_or(id)),
            Content::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

/// What tells whether an entry was touched, though it looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Change time, nanoseconds since 1970.
    pub ctime_ns: i128,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u64,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its type.
    pub kind: Kind,
    /// The permission bits, `0o7777`; those of a link mean nothing and are 0.
    pub mode: u32,
    /// Of a file: what it holds.
    pub content: Option<Content>,
    /// Of a link: its text.
    pub link: Option<Vec<u8>>,
    /// Its extended attributes below `user.`, and its access control lists; `None` where they were not read. Links have none.
    pub xattrs: Option<Xattrs>,
    /// Absent where the entry was not read from a disk.
    pub identity: Option<Identity>,
}

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a folder holds: raw byte paths, relative to the root, with `/` between their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeModel {
    /// The root itself.
    pub root: Entry,
    /// Everything below it, empty directories included.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

impl TreeModel {
    /// A model of nothing: an empty root.
    pub fn empty() -> Self {
        TreeModel {
            root: Entry {
                kind: Kind::Dir,
                mode: 0o755,
                content: None,
                link: None,
                xattrs: None,
                identity: None,
            },
            entries: BTreeMap::new(),
        }
    }
}

//! The store of Backstitch: a bare git repository written by our own code. It knows no workspace.
//!
//! # What it does
//!
//! - [`Writer`]: many threads hash, compress and append objects; [`finish`](Writer::finish) puts one new pack and its
//!   index in place, or a single commit as a loose object.
//! - [`Writer::adopt`]: the packs of another repository, linked into the store, or its objects copied as they are.
//! - [`Odb`]: reads packs (with deltas), loose objects, and what a writer has not finished; everything read is
//!   checked against its id.
//! - [`Refs`]: compare-and-swap under an advisory lock, loose and packed, and [`rows`](Refs::rows), the commits behind
//!   many refs through a cache.
//! - [`Store`]: the layout, private from the first byte; [locks](Store::lock_exclusive) that die with their owner;
//!   [`verify`](Store::verify), which re-hashes everything and names the refs that damage hits.
//! - [`Store::consolidate`], [`Store::collect`], [`Store::expunge`]: few packs, and no bytes that nobody needs, beside
//!   running captures. [`Store::account`]: whose bytes they are.
//! - [`names`]: a reversible encoding for file names that git refuses.
//!
//! Stock git reads the result (`git fsck --strict`, `git show`, `git clone --mirror`); none is needed.
//!
//! # Example
//!
//! ```
//! use backstitch_store::{Durability, Edit, Expect, FORMAT, MODE_FILE, Manifest, Store, TreeEntry};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let tmp = tempfile::tempdir()?;
//! # let dir = tmp.path().join("store");
//! let manifest = Manifest {
//!     format: FORMAT, path: "/home/me/project".into(), dev: 1, ino: 2, birth_ns: None,
//!     created_ms: 0, last_used_ms: 0, extra: Default::default(),
//! };
//! let store = Store::create(&dir, &manifest, Durability::Full)?;
//!
//! let writer = store.writer()?;
//! let mut scratch = writer.scratch();
//! let (blob, _) = writer.blob(&mut scratch, b"fn main() {}\n")?;
//! let mut entries = vec![TreeEntry { mode: MODE_FILE, name: "main.rs".into(), oid: blob }];
//! let (tree, _) = writer.tree(&mut scratch, &mut entries)?;
//! let commit = writer.commit(&mut scratch, &tree, b"first\n", 1_700_000_000)?;
//! writer.finish()?;
//!
//! let name = "refs/backstitch/checkpoints/one".to_string();
//! store.refs().apply(&[Edit { name, expect: Expect::Absent, new: Some(commit) }])?;
//!
//! let (rows, unreadable) = store.refs().rows("refs/backstitch/")?;
//! assert!(unreadable.is_empty());
//! assert_eq!(rows[0].message, "first\n");
//! assert_eq!(store.odb()?.blob(&blob)?, b"fn main() {}\n");
//! # Ok(()) }
//! ```
//!
//! # Limits
//!
//! - SHA-1 repositories only, as stock git makes them by default. Content that is a known kind of SHA-1 collision
//!   attack is refused.
//! - Unix only: modes, advisory locks on open files.
//! - Advisory locks must work on the file system of the store. On a network file system that keeps them local two
//!   machines do not see each other.
//! - Blobs of more than 16 MiB become loose objects. Smaller ones, and every tree and commit, are in memory as a whole
//!   while they are written or read.
//! - A multi-pack-index is not needed and not used; the packs it covers are read by their own indexes.
//! - Alternates are not followed: a store never borrows objects.
#![deny(missing_docs)]

mod account;
mod adopt;
mod bases;
mod collect;
mod deflate;
mod delta;
mod error;
mod files;
#[cfg(test)]
mod fuzz;
mod hash;
#[cfg(test)]
mod hostile;
mod idx;
mod inflate;
mod inventory;
mod layout;
mod lock;
mod loose;
mod manifest;
mod mark;
pub mod names;
mod object;
mod odb;
mod pack;
mod packed;
mod parked;
mod pending;
mod reach;
mod refs;
mod release;
mod repack;
mod rows;
mod store;
mod stream;
mod sweep;
mod usage;
mod verify;
mod writer;

pub use bstr::{BStr, BString, ByteSlice};
pub use gix_hash::ObjectId as Oid;

pub use account::{Account, Share};
pub use adopt::Adopted;
pub use collect::{Care, Swept};
pub use deflate::zlib;
pub use error::Error;
pub use lock::Lock;
pub use manifest::{FORMAT, Manifest};
pub use object::{
    MODE_EXECUTABLE, MODE_FILE, MODE_GITLINK, MODE_LINK, MODE_TREE, ObjectKind, TreeEntry, tree_id,
};
pub use odb::Odb;
pub use parked::TakenIn;
pub use refs::{Edit, Expect, Listed, Refs, Staged};
pub use rows::Row;
pub(crate) use store::{ALIVE, GATE};
pub use store::{Durability, Store};
pub use usage::DiskUsage;
pub use verify::{Damage, VerifyReport};
pub use writer::{Scratch, Writer, Written};

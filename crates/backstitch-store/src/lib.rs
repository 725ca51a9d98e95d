//! The store of Backstitch: a bare git repository written by our own code. Knows no workspace.
//!
//! (interface sketch: bodies to be written; names and signatures are what the engine codes against)
#![allow(missing_docs, unused, clippy::todo)]

use std::{io, path::{Path, PathBuf}, fs::File, ops::Range};
pub use gix_hash::ObjectId as Oid;
pub use bstr::{BStr, BString, ByteSlice};

/// `objects/pack` pack + index, refs, locks, manifest of one workspace's history.
pub struct Store {}

/// How much is synced before something is reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability { /// fdatasync pack, idx, directory, ref, in that order
    #[default] Full, /// nothing is synced (tests, scratch)
    None }

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Real path of the workspace, bytes kept exactly (percent-escaped when not UTF-8).
    pub path: String,
    pub dev: u64, pub ino: u64, pub birth_ns: Option<i128>,
    pub created_ms: i64, pub last_used_ms: i64,
    /// Unknown fields are kept.
    #[serde(flatten)] pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Every error names the path and carries what to do. The engine maps them to stable codes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {source}", path.display())] Io { path: PathBuf, source: io::Error },
    #[error("{}: damaged: {what}", path.display())] Damaged { path: PathBuf, what: String },
    #[error("object {oid} is missing from the store {}", path.display())] Missing { path: PathBuf, oid: Oid },
    #[error("{}: another process holds the lock", path.display())] Busy { path: PathBuf },
    #[error("{}: no store here", path.display())] NoStore { path: PathBuf },
    #[error("{}: format {found} is newer than this program knows ({known})", path.display())] TooNew { path: PathBuf, found: u32, known: u32 },
    #[error("ref {name} changed meanwhile")] RefMoved { name: String },
    #[error("interrupted")] Interrupted,
}

impl Store {
    /// Creates the layout of DESIGN 4 with 0700/0600 from the first byte; idempotent, an interrupted creation is completed.
    pub fn create(dir: &Path, manifest: &Manifest, durability: Durability) -> Result<Store, Error> { todo!() }
    /// Opens; works when empty directories were dropped by a copying tool (they are re-created on first write). Read-only stores open.
    pub fn open(dir: &Path) -> Result<Store, Error> { todo!() }
    pub fn dir(&self) -> &Path { todo!() }
    /// `state/` (caches), `journal/`, `parked/`.
    pub fn state_dir(&self) -> PathBuf { todo!() }
    pub fn journal_dir(&self) -> PathBuf { todo!() }
    pub fn manifest(&self) -> &Manifest { todo!() }
    /// temp + fsync + rename.
    pub fn write_manifest(&self, m: &Manifest) -> Result<(), Error> { todo!() }
    /// A reading handle; cheap to clone, Send; packs are rescanned on a miss.
    pub fn odb(&self) -> Result<Odb, Error> { todo!() }
    /// A new pack in the making. Nothing is visible until `finish`; drop removes the temporary.
    pub fn writer(&self) -> Result<Writer, Error> { todo!() }
    pub fn refs(&self) -> Refs<'_> { todo!() }
    /// Advisory lock file `locks/<name>` (flock through std File::lock*; the file is never removed). Blocks up to `wait`, with backoff.
    pub fn lock_shared(&self, name: &str, wait: std::time::Duration) -> Result<Lock, Error> { todo!() }
    pub fn lock_exclusive(&self, name: &str, wait: std::time::Duration) -> Result<Lock, Error> { todo!() }
    /// Re-hash every object, check pack and idx checksums, reachability of every ref; names the refs hit by each damage.
    pub fn verify(&self, progress: &dyn Fn(u64, u64), interrupt: &std::sync::atomic::AtomicBool) -> Result<VerifyReport, Error> { todo!() }
    /// Bytes on disk (allocated blocks): packs, loose, refs, state, other.
    pub fn disk_usage(&self) -> Result<DiskUsage, Error> { todo!() }
}
pub struct DiskUsage { pub total: u64, pub packs: u64, pub loose: u64, pub state: u64 , pub linked: u64}

/// Held lock; released on drop and by process death. Proves to callees that it is held.
pub struct Lock { _f: File }

#[derive(Clone)]
pub struct Odb {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind { Blob, Tree, Commit }
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry { /// 0o100644, 0o100755, 0o120000, 0o40000
    pub mode: u32, /// as stored (maybe `%bs%`-encoded)
    pub name: BString, pub oid: Oid }

impl Odb {
    pub fn contains(&self, oid: &Oid) -> bool { todo!() }
    pub fn size(&self, oid: &Oid) -> Result<u64, Error> { todo!() }
    pub fn blob(&self, oid: &Oid) -> Result<Vec<u8>, Error> { todo!() }
    /// Streams without holding the whole in memory where the object is stored undeltified.
    pub fn blob_to(&self, oid: &Oid, out: &mut dyn io::Write) -> Result<u64, Error> { todo!() }
    /// Entries in git order; the empty tree always reads as empty.
    pub fn tree(&self, oid: &Oid) -> Result<Vec<TreeEntry>, Error> { todo!() }
    /// (tree id, whole message bytes).
    pub fn commit(&self, oid: &Oid) -> Result<(Oid, BString), Error> { todo!() }
}

/// Sync: many threads add; each brings a Scratch of its own.
pub struct Writer {}
pub struct Scratch {}
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written { pub objects: u64, pub bytes: u64, pub pack: Option<PathBuf> }

impl Writer {
    pub fn scratch(&self) -> Scratch { todo!() }
    /// Hash, look up (this writer's set, then the odb), deflate and append when new. Returns the id; `true` if it was new.
    pub fn blob(&self, s: &mut Scratch, data: &[u8]) -> Result<(Oid, bool), Error> { todo!() }
    /// Exactly `size` bytes are read from `from`; fewer or more is `io::ErrorKind::UnexpectedEof`/`Other` and nothing is kept.
    /// Bounded memory at any size; above a threshold (16 MiB) streamed by itself.
    pub fn blob_from(&self, s: &mut Scratch, from: &mut dyn io::Read, size: u64) -> Result<(Oid, bool), Error> { todo!() }
    /// Entries in any order with names as stored; sorted into git order here. Duplicate names are an error.
    pub fn tree(&self, s: &mut Scratch, entries: &mut Vec<TreeEntry>) -> Result<(Oid, bool), Error> { todo!() }
    /// Parentless; fixed identity `backstitch <backstitch@localhost>`, time clamped to 0..2^31-1; NUL in `message` is the caller's error.
    pub fn commit(&self, s: &mut Scratch, tree: &Oid, message: &[u8], time_s: i64) -> Result<Oid, Error> { todo!() }
    /// Reads back objects added to this writer but not yet finished (trees and small blobs; needed by tree editing), else the odb.
    pub fn odb(&self) -> &Odb { todo!() }
    /// Trailer, idx, sync, rename pack, then idx. Nothing to write: nothing happens. Only a commit: one loose object.
    pub fn finish(self) -> Result<Written, Error> { todo!() }
}

/// Refs below `refs/backstitch/`: loose files and packed-refs, our own temporary + rename under `locks/refs`, never a `.lock` file.
pub struct Refs<'a> { store: &'a Store }
pub enum Expect { Any, Absent, Is(Oid) }
pub struct Edit { pub name: String, pub expect: Expect, /// None deletes
    pub new: Option<Oid> }
#[derive(Clone, Debug)]
pub struct Row { /// full ref name
    pub name: String, pub commit: Oid, pub tree: Oid, pub message: BString }

impl Refs<'_> {
    pub fn get(&self, name: &str) -> Result<Option<Oid>, Error> { todo!() }
    /// Sorted by name.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Oid)>, Error> { todo!() }
    /// Each edit is atomic (compare-and-swap under the refs lock); the batch is applied in order and stops at the first mismatch.
    pub fn apply(&self, edits: &[Edit]) -> Result<(), Error> { todo!() }
    /// Loose refs into packed-refs (many thousands stay cheap). Readers see every ref at every moment.
    pub fn pack(&self) -> Result<(), Error> { todo!() }
    /// The commits behind the refs of `prefix`, through a cache in `state/` that is checked against the refs and may be deleted at any moment.
    /// 10,000 rows: well under 30 ms when cached. A row whose commit cannot be read is returned in the second list, never dropped in silence.
    pub fn rows(&self, prefix: &str) -> Result<(Vec<Row>, Vec<(String, Error)>), Error> { todo!() }
}

#[derive(Debug, Default)]
pub struct VerifyReport { pub objects: u64, pub bytes: u64, pub refs: u64, pub damage: Vec<Damage> }
#[derive(Debug)]
pub struct Damage { pub path: PathBuf, pub oid: Option<Oid>, pub what: String, /// refs that reach it
    pub refs: Vec<String> }

/// SEMANTICS 27: names that git refuses.
pub mod names {
    use super::*;
    pub fn encode(name: &[u8]) -> std::borrow::Cow<'_, [u8]> { todo!() }
    /// None: not a name that `encode` produces (`..`, `/`, NUL, bad escapes, empty): hostile data.
    pub fn decode(stored: &[u8]) -> Option<std::borrow::Cow<'_, [u8]>> { todo!() }
}

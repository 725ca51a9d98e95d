//! Walk, ignore rules and stat table of Backstitch. Knows no store.
//!
//! (interface sketch: bodies to be written; names and signatures are what the engine codes against)
#![allow(missing_docs, unused, clippy::todo)]

use std::{io, path::{Path, PathBuf}, fs::File, sync::{Arc, atomic::AtomicBool}, time::Instant};
pub use gix_hash::ObjectId as Oid;
pub use bstr::{BStr, BString, ByteSlice};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind { File, Link, Dir }

/// What lstat said (statx, never followed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat { pub kind: Kind, /// permission bits 0o7777
    pub mode: u32, pub size: u64, pub blocks512: u64, pub mtime_ns: i128, pub ctime_ns: i128, pub dev: u64, pub ino: u64, pub nlink: u64, pub uid: u32, pub gid: u32 }

/// Extended attributes that are kept: `user.*`, `system.posix_acl_access`, `system.posix_acl_default`, `security.capability`. Sorted by name.
pub type Xattrs = Vec<(BString, BString)>;

/// Ids that the sink gave for one directory: opaque to the scan, cached in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirIds { pub tree: Oid, pub meta: Option<Oid> }

#[derive(Clone, Debug)]
pub enum ChildId { /// content id of a file or link
    Leaf(Oid), Dir(DirIds) }

/// One covered child of a completed directory, names raw, sorted by raw name.
pub struct Child<'a> { pub name: &'a BStr, pub stat: &'a Stat, pub id: ChildId, pub xattrs: Option<&'a Xattrs> }
/// One directory all of whose children are done.
pub struct Dir<'a> { /// relative to the root, "" for the root
    pub path: &'a BStr, pub stat: &'a Stat, pub xattrs: Option<&'a Xattrs>, pub children: &'a [Child<'a>] }

/// Where content goes. Errors of `Err(io)` kind mean "this path is unreadable" (skip, listed); `Fatal` ends the scan.
pub trait Sink: Sync {
    type Scratch: Send;
    fn scratch(&self) -> Self::Scratch;
    /// Reads exactly `stat.size` bytes from `file` (opened O_NOFOLLOW|O_NONBLOCK, checked to be the regular file of `stat`).
    fn file(&self, s: &mut Self::Scratch, path: &BStr, file: &mut File, stat: &Stat) -> Result<Oid, SinkError>;
    fn link(&self, s: &mut Self::Scratch, path: &BStr, target: &[u8]) -> Result<Oid, SinkError>;
    fn dir(&self, s: &mut Self::Scratch, dir: &Dir<'_>) -> Result<DirIds, SinkError>;
    /// Asked for table entries when the row that vouches for the table is gone.
    fn has(&self, id: &Oid) -> bool;
}
#[derive(Debug)]
pub enum SinkError { /// reading this file failed
    Read(io::Error), /// the store failed; the scan ends with this
    Fatal(Box<dyn std::error::Error + Send + Sync>) }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored { None, Small, All }

#[derive(Clone, Debug)]
pub struct Limits { /// files unseen before above this are skipped (32 MiB)
    pub new_file: u64, /// a covered file that passes this, or grows by more since its last entry, is skipped (256 MiB)
    pub grown_file: u64, /// an ignored file up to this beside covered ones is kept (1 MiB)
    pub ignored_file: u64, /// all kept ignored files together (64 MiB)
    pub ignored_total: u64, /// more entries than this: `Outcome::unbounded` and stop at once (2,000,000)
    pub entries: u64 }

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    // by rule
    Ignored, Excluded, Special(SpecialType), Git, Store, Nested, BareRepository, Scope,
    // against the rules: the row is partial
    Unreadable, Unstable, Limit, Budget, Time, Vanished,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialType { Fifo, Socket, CharDevice, BlockDevice, Unknown }
impl Reason { /// `ignored`, `excluded`, `fifo`, `socket`, `git`, `unreadable`, `limit` ...: stable strings
    pub fn as_str(&self) -> &'static str { todo!() }
    pub fn by_rule(&self) -> bool { todo!() }
    pub fn parse(s: &str) -> Option<Reason> { todo!() } }
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip { pub path: BString, pub reason: Reason, pub bytes: Option<u64>, /// errno text or size limit
    pub detail: Option<String> , pub is_dir: bool }

pub struct Options<'a> {
    pub threads: usize, pub rules: &'a Rules, pub limits: Limits, pub ignored: Ignored,
    pub nested_is_content: bool, pub bare_is_content: bool,
    /// (dev, ino) of directories never entered (the store, other stores, host state).
    pub never: &'a [(u64, u64)],
    /// What the table covers stays covered whatever the rules say now.
    pub keep_covered: bool, pub paranoid: bool,
    /// false: the row that vouches for the table is gone; ids are checked with `Sink::has`.
    pub table_vouched: bool,
    pub deadline: Option<Instant>, pub interrupt: &'a AtomicBool,
    /// (entries seen, bytes read)
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Sources of rules outside the tree, found once per operation; cheap to clone.
#[derive(Clone)]
pub struct Rules {}
#[derive(Clone, Debug, Default)]
pub struct RuleSettings { /// gitignore-syntax patterns that re-admit / leave out, in that order after built-ins
    pub include: Vec<String>, pub exclude: Vec<String>, /// honour core.excludesFile (default only inside a git work tree)
    pub global_excludes: Option<bool>, /// honour .gitignore outside git (true)
    pub gitignore_outside_git: bool, /// a `.git`'s user state is read from here in tests
    pub home: Option<PathBuf> }
impl Rules {
    /// Reads git's configuration files for core.excludesFile, core.ignoreCase, info/exclude of the (common) git dir, ignore files of parents up to the
    /// git top when `root` lies below it. Ignores every GIT_* variable. Fails (never "nothing ignored") when a rules source exists but cannot be read.
    pub fn discover(root: &Path, settings: &RuleSettings) -> Result<Rules, ScanError> { todo!() }
    /// All sources as bytes (to store on a row) and back; together with the tree's own ignore files they decide every path.
    pub fn to_bytes(&self) -> Vec<u8> { todo!() }
    pub fn from_bytes(b: &[u8]) -> Option<Rules> { todo!() }
    pub fn digest(&self) -> [u8; 20] { todo!() }
    /// Decisions for the root directory, given the contents of its own `.gitignore` / `.backstitchignore`.
    pub fn root(&self, gitignore: Option<&[u8]>, backstitchignore: Option<&[u8]>) -> DirRules { todo!() }
}
/// The rules in force for the children of one directory; clones are cheap (Arc chain).
#[derive(Clone)]
pub struct DirRules {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict { Keep, /// by an ignore rule (small files may be kept)
    Ignore, /// by configuration or built-in: never kept
    Exclude, /// pinned by `include`
    Include }
impl DirRules {
    pub fn child_dir(&self, name: &BStr, gitignore: Option<&[u8]>, backstitchignore: Option<&[u8]>) -> DirRules { todo!() }
    pub fn verdict(&self, name: &BStr, is_dir: bool) -> Verdict { todo!() }
    pub fn digest(&self) -> [u8; 20] { todo!() }
}

/// The memory-mapped stat table: flat base + append log, checksum per segment. A cache: any damage reads as "no table".
pub struct Table {}
impl Table {
    pub fn open(dir: &Path) -> Option<Table> { todo!() }
    /// Opaque note of whoever saved it (the engine stores the vouching row and session).
    pub fn note(&self) -> &BStr { todo!() }
}

#[derive(Debug)]
pub struct Outcome {
    /// None when unbounded / interrupted before the root was done.
    pub root: Option<DirIds>, pub root_stat: Option<Stat>,
    pub skips: Vec<Skip>,
    pub files: u64, pub dirs: u64, pub links: u64, pub bytes: u64,
    pub read_files: u64, pub read_bytes: u64, pub listed_dirs: u64,
    pub unbounded: bool,
    /// What `save` writes; nothing when nothing changed.
    pub update: Option<TableUpdate>,
}
#[derive(Debug)]
pub struct TableUpdate {}
impl TableUpdate {
    /// Appends to the log or rewrites the base (temporary + rename) under an exclusive try-lock; losing the race is not an error.
    pub fn save(self, dir: &Path, note: &BStr) -> io::Result<()> { todo!() }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    #[error("{}: {source}", path.display())] Io { path: PathBuf, source: io::Error },
    #[error("{}: cannot evaluate ignore rules: {what}", path.display())] Rules { path: PathBuf, what: String },
    #[error("{0}")] Sink(Box<dyn std::error::Error + Send + Sync>),
    #[error("interrupted")] Interrupted,
}

/// One parallel pass: walk + read what changed + ids bottom-up.
pub fn scan<S: Sink>(root: &Path, table: Option<&Table>, sink: &S, options: &Options<'_>) -> Result<Outcome, ScanError> { todo!() }

/// The same for named paths only (literal, relative to root): `Present` with id, `Absent`, or `Skip`. Rules do not apply: a named path is looked at.
/// Directories are scanned whole with the rules. Never follows a link in a parent component.
pub fn scan_paths<S: Sink>(root: &Path, paths: &[BString], table: Option<&Table>, sink: &S, options: &Options<'_>) -> Result<Vec<Found>, ScanError> { todo!() }
pub struct Found { pub path: BString, pub what: FoundWhat }
pub enum FoundWhat { Leaf { stat: Stat, id: Oid, xattrs: Option<Xattrs> }, Dir { stat: Stat, ids: DirIds, skips: Vec<Skip>, xattrs: Option<Xattrs> }, Absent, Skip(Skip) }

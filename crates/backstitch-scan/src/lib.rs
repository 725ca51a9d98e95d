//! Walk, ignore rules and stat table of Backstitch. Knows no store.
//!
//! # What it does
//!
//! - [`scan`] walks a folder through directory handles on several threads, hands what changed to a [`Sink`], and gives the
//!   ids of the root that the sink made bottom-up. It never follows a link and never leaves the folder.
//! - [`Table`] remembers what a scan saw. With it the next scan reads only files whose device, inode, size, times or mode
//!   changed, or whose times were too fresh to be trusted when they were read, and lists only directories that changed. A
//!   tree in which nothing changed costs one stat per entry: less than a bare walk, which has to list directories too.
//! - [`Rules`] and [`DirRules`] say what is looked at: exactly git's own rules (`.gitignore` at every level,
//!   `info/exclude`, `core.excludesFile`, what the index lists), `.backstitchignore` in the same syntax, settings, and a
//!   short list of built-ins. Rules that cannot be read fail the scan: they never become "nothing is ignored".
//! - Whatever is not covered is a [`Skip`] with its [`Reason`]. A path that is neither covered nor below a skip is not
//!   there.
//! - [`scan_paths`] looks at named paths only, in time that does not depend on the size of the tree.
//!
//! # Example
//!
//! ```
//! use std::{fs::File, io::Read, sync::atomic::AtomicBool};
//! use backstitch_scan::*;
//!
//! /// Hashes and forgets.
//! struct Hashing;
//!
//! fn hash(bytes: &[u8]) -> Result<Oid, SinkError> {
//!     let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
//!     hasher.update(bytes);
//!     hasher.try_finalize().map_err(|e| SinkError::Fatal(e.to_string().into()))
//! }
//!
//! impl Sink for Hashing {
//!     type Scratch = Vec<u8>;
//!     fn scratch(&self) -> Vec<u8> {
//!         Vec::new()
//!     }
//!     fn file(&self, buf: &mut Vec<u8>, _: &BStr, file: &mut File, stat: &Stat) -> Result<Oid, SinkError> {
//!         buf.resize(stat.size as usize, 0);
//!         file.read_exact(buf).map_err(SinkError::Read)?;
//!         hash(buf)
//!     }
//!     fn link(&self, _: &mut Vec<u8>, _: &BStr, target: &[u8]) -> Result<Oid, SinkError> {
//!         hash(target)
//!     }
//!     fn dir(&self, buf: &mut Vec<u8>, dir: &Dir<'_>) -> Result<DirIds, SinkError> {
//!         buf.clear();
//!         for child in dir.children {
//!             buf.extend_from_slice(child.name);
//!             buf.extend(format!("\0{:?}", child.id).bytes());
//!         }
//!         Ok(DirIds { tree: hash(buf)?, meta: None })
//!     }
//!     fn has(&self, _: &Oid) -> bool {
//!         false
//!     }
//! }
//!
//! let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! std::fs::write(folder.path().join("kept.txt"), "content")?;
//! std::fs::write(folder.path().join("left.out"), "content")?;
//! std::fs::write(folder.path().join(".gitignore"), "*.out\n")?;
//!
//! let rules = Rules::discover(folder.path(), &RuleSettings::default())?;
//! let interrupt = AtomicBool::new(false);
//! let options = Options {
//!     threads: 2,
//!     rules: &rules,
//!     limits: Limits::default(),
//!     ignored: Ignored::None,
//!     nested_is_content: true,
//!     bare_is_content: false,
//!     never: &[],
//!     keep_covered: false,
//!     paranoid: false,
//!     quiet: None,
//!     note_anew: false,
//!     table_vouched: true,
//!     deadline: None,
//!     interrupt: &interrupt,
//!     progress: &|_, _| {},
//! };
//! let table = Table::open(state.path());
//! let outcome = scan(folder.path(), table.as_ref(), &Hashing, &options)?;
//! assert_eq!(outcome.files, 2);
//! assert_eq!((outcome.skips[0].path.as_bstr(), outcome.skips[0].reason), ("left.out".into(), Reason::Ignored));
//! if let Some(update) = outcome.update {
//!     update.save(state.path(), "note".into())?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! - A change that leaves size, both times and inode as they were is not seen: a write through a memory mapping that the
//!   system has not yet accounted for, or clocks that step back. [`Options::paranoid`] reads everything.
//! - Names of directories are taken from the table only on file systems that were tested (ext4, xfs, btrfs, tmpfs);
//!   elsewhere every directory is listed, and times must be two seconds old.
//! - A file that changes each time it is read is listed as unstable. A database and its log are read until none of them
//!   changes meanwhile, three rounds at most: one that is in use is captured as a crash would leave it, at best.
//! - The interrupt flag is looked at between files. A sink that reads a huge file must look at it too.
//! - Rules: an ignore file that git would read from its index because a sparse checkout left it out does not count.
//!   `core.excludesFile` with `%(prefix)` is an error. What a split index replaces or deletes still counts as tracked
//!   until git folds the index, and so does everything below a directory entry of a sparse index: in doubt a path is
//!   kept. `safe.directory` is not asked: nothing of a repository but its patterns, settings and index is read.
//! - `include` finds things inside ignored directories only if its pattern has a slash (`build/keep/*.txt`); for a bare
//!   name no ignored directory is searched.
//! - Object ids in the table are SHA-1.
//! - Windows is not supported. macOS is written for and not tested.
#![deny(missing_docs)]

mod bare;
mod builtin;
mod clock;
mod digest;
#[cfg(test)]
mod fuzz;
mod glob;
mod handle;
mod index;
mod paths;
mod pattern;
mod repository;
mod rules;
mod seed;
mod table;
mod types;
mod walk;

use std::path::Path;

pub use bare::bare_walk;
pub use bstr::{BStr, BString, ByteSlice};
pub use clock::{Clock, SystemClock};
pub use gix_hash::ObjectId as Oid;
pub use index::entries::{IndexEntry, index_entries};
pub use paths::{scan_paths, scan_paths_at};
pub use rules::{DirRules, RuleSettings, Rules, Verdict};
pub use seed::{Repository, Seed, SeedPlace};
pub use table::{
    Table, TableUpdate,
    quiet::{Heard, Noise, Quiet},
};
pub use types::{
    Child, ChildId, Dir, DirIds, Found, FoundWhat, Ignored, Kind, Limits, Options, Outcome, Reason,
    ScanError, Sink, SinkError, Skip, SpecialType, Stat, Xattrs,
};

/// One parallel pass: walk, read what changed, make ids bottom-up.
pub fn scan<S: Sink>(
    root: &Path,
    table: Option<&Table>,
    sink: &S,
    options: &Options<'_>,
) -> Result<Outcome, ScanError> {
    scan_at(root, table, sink, options, &SystemClock)
}

/// [`scan`] with a clock of the caller's.
pub fn scan_at<S: Sink>(
    root: &Path,
    table: Option<&Table>,
    sink: &S,
    options: &Options<'_>,
    clock: &dyn Clock,
) -> Result<Outcome, ScanError> {
    let fd =
        handle::open_root(root).map_err(|e| ScanError::Io { path: root.to_owned(), source: e.into() })?;
    let nothing = Default::default();
    let ground = walk::Ground {
        root,
        sink,
        options,
        clock,
        git_dirs: &nothing,
        dropped: &Default::default(),
        named: false,
        quiet: options.quiet,
    };
    let start = walk::Start {
        fd: fd.into(),
        path: BString::default(),
        rules: None,
        record: table.and_then(|t| t.0.record(0)),
    };
    walk::run(&ground, table, &start).map(|pass| pass.outcome)
}

//! Walk, ignore rules and stat table of Backstitch. Knows no store.
#![deny(missing_docs)]

mod bare;
mod builtin;
mod clock;
mod digest;
mod glob;
mod handle;
mod index;
mod paths;
mod pattern;
mod repository;
mod rules;
mod table;
mod types;
mod walk;

use std::path::Path;

pub use bare::bare_walk;
pub use bstr::{BStr, BString, ByteSlice};
pub use clock::{Clock, SystemClock};
pub use gix_hash::ObjectId as Oid;
pub use paths::{scan_paths, scan_paths_at};
pub use rules::{DirRules, RuleSettings, Rules, Verdict};
pub use table::{Table, TableUpdate};
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
    };
    let start = walk::Start {
        fd: fd.into(),
        path: BString::default(),
        rules: None,
        record: table.and_then(|t| t.0.record(0)),
    };
    walk::run(&ground, table, &start).map(|pass| pass.outcome)
}

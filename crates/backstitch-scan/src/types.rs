//! What goes into a scan and what comes out of it.

use std::{fs::File, io, path::PathBuf, sync::atomic::AtomicBool, time::Instant};

use bstr::{BStr, BString};

use crate::{Oid, Quiet, Rules, TableUpdate};

/// What a covered path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Dir,
}

/// What the system says about one path, never following a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// File, link or directory.
    pub kind: Kind,
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// Apparent size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks512: u64,
    /// Time of the last change of content, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Time of the last change of content or attributes, in nanoseconds since 1970.
    pub ctime_ns: i128,
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Stat {
    /// The size that limits are compared with: a hole does not count.
    pub fn stored_size(&self) -> u64 {
        self.size.min(self.blocks512.saturating_mul(512))
    }
}

/// Extended attributes that are kept: `user.*`, `system.posix_acl_access`, `system.posix_acl_default`,
/// `security.capability`. Sorted by name.
pub type Xattrs = Vec<(BString, BString)>;

/// Ids that the sink gave for one directory: opaque to the scan, cached in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirIds {
    /// Id of the directory's tree.
    pub tree: Oid,
    /// Id of what the tree cannot say, where there is any.
    pub meta: Option<Oid>,
}

/// The id of one child of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildId {
    /// Content id of a file or link.
    Leaf(Oid),
    /// Ids of a directory.
    Dir(DirIds),
}

/// One covered child of a completed directory; the name is raw.
#[derive(Debug)]
pub struct Child<'a> {
    /// Raw name, without any slash.
    pub name: &'a BStr,
    /// What the system said of it in this scan.
    pub stat: &'a Stat,
    /// Its id.
    pub id: ChildId,
    /// Its extended attributes, where it has any that are kept.
    pub xattrs: Option<&'a Xattrs>,
}

/// One directory all of whose children are done.
#[derive(Debug)]
pub struct Dir<'a> {
    /// Relative to the root, empty for the root.
    pub path: &'a BStr,
    /// What the system said of it in this scan.
    pub stat: &'a Stat,
    /// Its extended attributes, where it has any that are kept.
    pub xattrs: Option<&'a Xattrs>,
    /// The covered children, sorted by raw name.
    pub children: &'a [Child<'a>],
}

/// Where content goes.
///
/// All calls may come from several threads at once, each with its own scratch.
pub trait Sink: Sync {
    /// Buffers of one thread.
    type Scratch: Send;
    /// Makes the buffers of one thread.
    fn scratch(&self) -> Self::Scratch;
    /// Takes the content of a regular file: exactly `stat.size` bytes, read from the start of `file`.
    ///
    /// The file was opened without following links and is known to be the regular file of `stat`. It is looked at again
    /// afterwards: if it changed while it was read, the call comes a second and third time, and only the last id counts.
    /// A sink that reads a huge file should look at the caller's interrupt flag itself and return a read error; the scan
    /// looks at the flag between files only.
    fn file(
        &self,
        s: &mut Self::Scratch,
        path: &BStr,
        file: &mut File,
        stat: &Stat,
    ) -> Result<Oid, SinkError>;
    /// Asked before a file is read whose stat data the table does not prove: the id of its content, if something else
    /// proves it and the sink has it. Two changes of the file within `granularity_ns` may leave the same times.
    fn known(&self, s: &mut Self::Scratch, path: &BStr, stat: &Stat, granularity_ns: i128) -> Option<Oid> {
        let _ = (s, path, stat, granularity_ns);
        None
    }
    /// Takes the text of a symbolic link.
    fn link(&self, s: &mut Self::Scratch, path: &BStr, target: &[u8]) -> Result<Oid, SinkError>;
    /// Takes a directory all of whose children are done.
    fn dir(&self, s: &mut Self::Scratch, dir: &Dir<'_>) -> Result<DirIds, SinkError>;
    /// Asked for table entries when the row that vouches for the table is gone.
    fn has(&self, id: &Oid) -> bool;
    /// Asked for paths that the table does not know and that a rule or limit would leave out: the size of the file in the
    /// row that this scan builds on, 0 for a link or directory, `None` if that row does not cover the path.
    ///
    /// Only a sink that can answer after its table was lost needs to do better than `None`.
    fn covered(&self, path: &BStr) -> Option<u64> {
        let _ = path;
        None
    }
}

/// Why a sink did not take something.
#[derive(Debug)]
pub enum SinkError {
    /// Reading this file failed: the path is listed as unreadable and the scan goes on. An error of the kind
    /// `QuotaExceeded` means that the sink takes no more: the path is listed with `budget`.
    Read(io::Error),
    /// The store failed: the scan ends with this.
    Fatal(Box<dyn std::error::Error + Send + Sync>),
}

/// What happens to ignored files that stand beside covered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// They are left out.
    None,
    /// Small ones are kept ([`Limits::ignored_file`], [`Limits::ignored_total`]).
    Small,
    /// Everything ignored is kept, ignored directories too.
    All,
}

/// Sizes above which things are left out.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Files unseen before and unknown to git above this are skipped (32 MiB).
    pub new_file: u64,
    /// A covered file that passes this, or grows by more since its last entry, is skipped (256 MiB).
    pub grown_file: u64,
    /// An ignored file up to this beside covered ones is kept (1 MiB).
    pub ignored_file: u64,
    /// All kept ignored files together (64 MiB).
    pub ignored_total: u64,
    /// More entries than this: [`Outcome::unbounded`], and the scan stops at once (2,000,000).
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            new_file: 32 << 20,
            grown_file: 256 << 20,
            ignored_file: 1 << 20,
            ignored_total: 64 << 20,
            entries: 2_000_000,
        }
    }
}

/// Why a path is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// By rule: an ignore rule.
    Ignored,
    /// By rule: configuration, `.backstitchignore` or a built-in exclude.
    Excluded,
    /// By rule: neither file, link nor directory; never opened.
    Special(SpecialType),
    /// By rule: a `.git`, or what a gitfile points to.
    Git,
    /// By rule: a directory that the caller never wants entered.
    Store,
    /// By rule: a nested repository while those are boundaries.
    Nested,
    /// By rule: a directory that looks like a bare repository.
    BareRepository,
    /// By rule: outside what was asked for.
    Scope,
    /// Could not be opened or read.
    Unreadable,
    /// Changed each time it was read.
    Unstable,
    /// Over a size limit.
    Limit,
    /// No room left in the budget of the caller.
    Budget,
    /// The deadline passed first.
    Time,
    /// Went away while it was looked at.
    Vanished,
    /// By rule: a person had its bytes removed. No scan gives this reason.
    Forgotten,
    /// By rule: another machine has it and did not send it. No scan gives this reason.
    Private,
    /// By rule: the setting `never_store` names it.
    NeverStored,
}

/// The types that are listed and never opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialType {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something this version does not know.
    Unknown,
}

/// Every reason with its stable text, in the order of [`Reason`].
const REASONS: [(Reason, &str); 21] = [
    (Reason::Ignored, "ignored"),
    (Reason::Excluded, "excluded"),
    (Reason::Special(SpecialType::Fifo), "fifo"),
    (Reason::Special(SpecialType::Socket), "socket"),
    (Reason::Special(SpecialType::CharDevice), "char-device"),
    (Reason::Special(SpecialType::BlockDevice), "block-device"),
    (Reason::Special(SpecialType::Unknown), "special"),
    (Reason::Git, "git"),
    (Reason::Store, "store"),
    (Reason::Nested, "nested"),
    (Reason::BareRepository, "bare-repository"),
    (Reason::Scope, "scope"),
    (Reason::Unreadable, "unreadable"),
    (Reason::Unstable, "unstable"),
    (Reason::Limit, "limit"),
    (Reason::Budget, "budget"),
    (Reason::Time, "time"),
    (Reason::Vanished, "vanished"),
    (Reason::Forgotten, "forgotten"),
    (Reason::Private, "private"),
    (Reason::NeverStored, "never-stored"),
];

impl Reason {
    /// Stable text: `ignored`, `excluded`, `fifo`, `socket`, `git`, `unreadable`, `limit`, ...
    pub fn as_str(&self) -> &'static str {
        REASONS[usize::from(self.code())].1
    }

    /// True if the path was left out by rule, so that the row is still complete.
    pub fn by_rule(&self) -> bool {
        !matches!(
            self,
            Reason::Unreadable
                | Reason::Unstable
                | Reason::Limit
                | Reason::Budget
                | Reason::Time
                | Reason::Vanished
        )
    }

    /// The reason with this text.
    pub fn parse(s: &str) -> Option<Reason> {
        REASONS.iter().find(|(_, text)| *text == s).map(|(reason, _)| *reason)
    }

    /// Position in [`REASONS`]; the table stores it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Reason::Ignored => 0,
            Reason::Excluded => 1,
            Reason::Special(SpecialType::Fifo) => 2,
            Reason::Special(SpecialType::Socket) => 3,
            Reason::Special(SpecialType::CharDevice) => 4,
            Reason::Special(SpecialType::BlockDevice) => 5,
            Reason::Special(SpecialType::Unknown) => 6,
            Reason::Git => 7,
            Reason::Store => 8,
            Reason::Nested => 9,
            Reason::BareRepository => 10,
            Reason::Scope => 11,
            Reason::Unreadable => 12,
            Reason::Unstable => 13,
            Reason::Limit => 14,
            Reason::Budget => 15,
            Reason::Time => 16,
            Reason::Vanished => 17,
            Reason::Forgotten => 18,
            Reason::Private => 19,
            Reason::NeverStored => 20,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Reason> {
        REASONS.get(usize::from(code)).map(|(reason, _)| *reason)
    }
}

/// A path that is not covered, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Relative to the root.
    pub path: BString,
    /// Why.
    pub reason: Reason,
    /// Size in bytes, where it is known.
    pub bytes: Option<u64>,
    /// The system's error text, or the limit.
    pub detail: Option<String>,
    /// True if the path is a directory: nothing below it is covered either.
    pub is_dir: bool,
}

/// How to scan.
pub struct Options<'a> {
    /// Threads that walk, read and call the sink; at least one.
    pub threads: usize,
    /// Rules from outside the tree.
    pub rules: &'a Rules,
    /// Size limits.
    pub limits: Limits,
    /// What happens to ignored files.
    pub ignored: Ignored,
    /// Nested repositories are ordinary content without their `.git`.
    pub nested_is_content: bool,
    /// Directories that look like bare repositories are ordinary content.
    pub bare_is_content: bool,
    /// `(dev, ino)` of directories never entered (the store, other stores, host state).
    pub never: &'a [(u64, u64)],
    /// What the table covers stays covered whatever the rules say now.
    pub keep_covered: bool,
    /// Trust no stat: read everything.
    pub paranoid: bool,
    /// False: the row that vouches for the table is gone; ids are checked with [`Sink::has`] and directory ids are made
    /// anew with [`Sink::dir`].
    pub table_vouched: bool,
    /// Directories that a watcher vouches for, made from this very table.
    pub quiet: Option<&'a Quiet>,
    /// The table is to be saved also where nothing changed: its note is to be another.
    pub note_anew: bool,
    /// What is not done by then is listed with [`Reason::Time`].
    pub deadline: Option<Instant>,
    /// Set by the caller to end the scan with [`ScanError::Interrupted`].
    pub interrupt: &'a AtomicBool,
    /// Called now and then, from any thread, with (entries seen, bytes read).
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// What a scan found.
#[derive(Debug)]
pub struct Outcome {
    /// `None` when unbounded.
    pub root: Option<DirIds>,
    /// What the system said of the root.
    pub root_stat: Option<Stat>,
    /// Every path that is not covered, sorted by path.
    pub skips: Vec<Skip>,
    /// Covered files.
    pub files: u64,
    /// Covered directories, the root included.
    pub dirs: u64,
    /// Covered links.
    pub links: u64,
    /// Apparent bytes of the covered files.
    pub bytes: u64,
    /// Files handed to the sink.
    pub read_files: u64,
    /// Bytes handed to the sink.
    pub read_bytes: u64,
    /// Directories that had to be listed.
    pub listed_dirs: u64,
    /// There were more entries than [`Limits::entries`].
    pub unbounded: bool,
    /// What [`TableUpdate::save`] writes; nothing when nothing changed.
    pub update: Option<TableUpdate>,
    /// Directories that were held for quiet ([`Quiet::to_be_proven`]) and were not.
    pub lies: Vec<BString>,
}

/// What was found at a named path.
#[derive(Debug)]
pub struct Found {
    /// The path as it was asked for.
    pub path: BString,
    /// What is there.
    pub what: FoundWhat,
}

/// What is at a named path.
#[derive(Debug)]
pub enum FoundWhat {
    /// A file or link.
    Leaf {
        /// What the system said of it.
        stat: Stat,
        /// Its content id.
        id: Oid,
        /// Its extended attributes, where it has any that are kept.
        xattrs: Option<Xattrs>,
    },
    /// A directory, scanned whole.
    Dir {
        /// What the system said of it.
        stat: Stat,
        /// Its ids.
        ids: DirIds,
        /// What is not covered below it.
        skips: Vec<Skip>,
        /// Its extended attributes, where it has any that are kept.
        xattrs: Option<Xattrs>,
    },
    /// Nothing: looked at, and not there.
    Absent,
    /// Something that is not covered.
    Skip(Skip),
}

/// Why a scan ended without an outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The root could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path that failed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A source of ignore rules exists and cannot be read or understood: nothing may be taken for "not ignored".
    #[error("{}: cannot evaluate ignore rules: {what}", path.display())]
    Rules {
        /// The file that failed.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The sink failed.
    #[error("{0}")]
    Sink(Box<dyn std::error::Error + Send + Sync>),
    /// The caller's interrupt flag was set.
    #[error("interrupted")]
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_stable_texts() {
        for (i, (reason, text)) in REASONS.iter().enumerate() {
            assert_eq!(usize::from(reason.code()), i);
            assert_eq!(reason.as_str(), *text);
            assert_eq!(Reason::parse(text), Some(*reason));
            assert_eq!(Reason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(Reason::parse("nonsense"), None);
        assert!(Reason::Git.by_rule() && !Reason::Limit.by_rule());
    }
}

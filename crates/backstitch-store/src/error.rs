//! The one error type of this crate.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::Oid;

/// What went wrong. Every variant names the path or ref it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory it was about.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something in the store is not what it was when it was written.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An object that something asked for is nowhere in the store.
    #[error("object {oid} is missing from the store {}", path.display())]
    Missing {
        /// The store.
        path: PathBuf,
        /// The object.
        oid: Oid,
    },
    /// The wait for a lock ran out.
    #[error("{}: another process holds the lock", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory holds no store.
    #[error("{}: no store here", path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer program.
    #[error("{}: format {found} is newer than this program knows ({known})", path.display())]
    TooNew {
        /// The manifest.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// A compare-and-swap found another value.
    #[error("ref {name} changed meanwhile")]
    RefMoved {
        /// The full ref name.
        name: String,
    },
    /// The caller passed something that git's format cannot hold.
    #[error("{what}")]
    Invalid {
        /// What, and why not.
        what: String,
    },
    /// The caller's interrupt flag was set.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    /// True for a file or directory that is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

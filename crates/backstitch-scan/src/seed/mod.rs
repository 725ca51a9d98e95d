//! Contents that need not be read, because git has read them: the user's index says of a path what it held when its stat
//! data was taken, and the stat data of now says that nothing happened since.
//!
//! Nothing is believed that could be otherwise. An entry counts only
//! - without `assume-valid`, `skip-worktree`, `intent-to-add` and conflict stage, for a regular file, in an index of its
//!   own (neither split nor under a file system monitor) of a repository with SHA-1 ids;
//! - if size, inode, mtime and ctime are equal to the nanosecond, on the device of the index;
//! - if both times lie before the index was written by more than the file system's granularity: what is younger may have
//!   changed after git read it ("racy");
//! - if no attribute may have git convert the content ([`attributes`]).
//!
//! What attributes said when git read the file may be another thing than what they say now. Conversions of line ends and
//! keywords always change the length; so the caller compares the object's size with the file's. That is also the whole
//! proof for `text`, `eol`, `core.autocrlf` and `core.eol`: they only ever remove bytes.

mod attributes;
mod listed;

use std::{path::PathBuf, sync::Arc};

use bstr::{BStr, BString};

use crate::{Oid, Rules, types::Stat};
use attributes::{Attributes, Doubts};
use listed::Listed;

/// Where the user's repository is, and what its configuration says about trust.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Top of the work tree.
    pub(crate) top: PathBuf,
    /// The work tree's own git directory.
    pub(crate) git_dir: PathBuf,
    /// The git directory that all work trees share.
    pub(crate) common: PathBuf,
    /// `core.attributesFile`, or where it is by default.
    pub(crate) attributes_file: Option<PathBuf>,
    /// Nothing in the configuration weakens what an index entry means.
    pub(crate) is_strict: bool,
    /// Ids are SHA-256.
    pub(crate) sha256: bool,
}

/// Where the user's repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Top of the work tree.
    pub top: PathBuf,
    /// The work tree's own git directory: HEAD and index are here.
    pub git_dir: PathBuf,
    /// The git directory that all work trees share: objects and branches are here.
    pub common: PathBuf,
    /// Ids are SHA-256.
    pub sha256: bool,
}

/// What the index of the user's repository proves; for any thread.
#[derive(Debug)]
pub struct Seed {
    objects: PathBuf,
    /// The root's path from the top of the work tree: empty, or with a slash at its end.
    prefix: BString,
    listed: Listed,
    attributes: Attributes,
}

/// Where one thread was last: neighbours are asked for one after the other.
#[derive(Debug, Default)]
pub struct SeedPlace {
    full: BString,
    at: usize,
    dir: Option<(BString, Arc<Doubts>)>,
}

impl Rules {
    /// The directory with the objects of the repository around the root, if there is one.
    pub fn git_objects(&self) -> Option<PathBuf> {
        self.0.repo.origin.as_ref().map(|origin| origin.common.join("objects"))
    }

    /// The repository around the root, if there is one.
    pub fn repository(&self) -> Option<Repository> {
        let Origin { top, git_dir, common, sha256, .. } = self.0.repo.origin.clone()?;
        Some(Repository { top, git_dir, common, sha256 })
    }

    /// What the index of the repository around the root proves, if it is one that can be believed.
    ///
    /// ```
    /// # use backstitch_scan::{RuleSettings, Rules};
    /// # let folder = tempfile::tempdir()?;
    /// let rules = Rules::discover(folder.path(), &RuleSettings::default())?;
    /// assert!(rules.seed().is_none(), "a folder outside of git");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seed(&self) -> Option<Seed> {
        let inner = &*self.0;
        let origin = inner.repo.origin.as_ref().filter(|origin| origin.is_strict)?;
        let listed = Listed::read(&origin.git_dir.join("index"))?;
        let mut prefix = BString::default();
        for (name, _) in &inner.above {
            prefix.extend_from_slice(name);
            prefix.push(b'/');
        }
        let attributes = Attributes::read(origin, &listed)?;
        Some(Seed { objects: origin.common.join("objects"), prefix, listed, attributes })
    }
}

impl Seed {
    /// The directory with the repository's objects.
    pub fn objects(&self) -> &std::path::Path {
        &self.objects
    }

    /// The ids that may be asked for.
    pub fn ids(&self) -> impl Iterator<Item = Oid> + '_ {
        self.listed.ids()
    }

    /// The id of what the file at `path` (from the root) holds, if that is proven but for the size of the object, which is
    /// to be `stat.size`. Times of its file system are that fine.
    pub fn content(
        &self,
        place: &mut SeedPlace,
        path: &BStr,
        stat: &Stat,
        granularity_ns: i128,
    ) -> Option<Oid> {
        let SeedPlace { full, at, dir } = place;
        full.clear();
        full.extend_from_slice(&self.prefix);
        full.extend_from_slice(path);
        let entry = self.listed.find(full, at)?;
        if !self.listed.proves(entry, stat, granularity_ns) {
            return None;
        }
        let end = full.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let doubts = match dir {
            Some((of, doubts)) if of[..] == full[..end] => doubts.clone(),
            _ => {
                let doubts = self.attributes.of_dir(&full[..end], &self.listed);
                *dir = Some((full[..end].into(), doubts.clone()));
                doubts
            }
        };
        (!doubts.concern(full)).then(|| entry.oid())
    }
}

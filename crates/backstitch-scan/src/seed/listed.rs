//! The files of an index whose stat data means something.

use std::{fs::File, io::Read, os::unix::fs::MetadataExt, path::Path};

use bstr::{BString, ByteSlice};

use crate::{
    Oid,
    index::entries,
    types::{Kind, Stat},
};

const ID_LEN: usize = 20;
/// An index above this is not looked at.
const MAX: u64 = 1 << 30;

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing {
    /// Start and length in the pool.
    path: (u32, u32),
    /// Seconds and nanoseconds.
    ctime: (u32, u32),
    mtime: (u32, u32),
    ino: u32,
    size: u32,
    id: [u8; ID_LEN],
}

impl Listing {
    pub(super) fn oid(&self) -> Oid {
        Oid::from(self.id)
    }
}

#[derive(Debug)]
pub(super) struct Listed {
    pool: Vec<u8>,
    /// In byte order of their paths.
    files: Vec<Listing>,
    /// Directories whose `.gitattributes` the index lists in whatever way.
    attributed: Vec<BString>,
    /// When the index was written, in nanoseconds since 1970.
    time_ns: i128,
    dev: u64,
}

impl Listed {
    /// Reads the index. `None` where there is none, or it is of a kind in which entries mean something else.
    pub(super) fn read(path: &Path) -> Option<Listed> {
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > MAX {
            return None;
        }
        let mut data = Vec::with_capacity(usize::try_from(meta.len()).ok()? + 1);
        file.take(MAX).read_to_end(&mut data).ok()?;
        let time = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        let mut listed = Listed {
            pool: Vec::with_capacity(data.len() / 2),
            files: Vec::with_capacity(data.len() / 96),
            attributed: Vec::new(),
            // The earlier of the two: a touched file is no younger than its inode says.
            time_ns: time(meta.mtime(), meta.mtime_nsec()).min(time(meta.ctime(), meta.ctime_nsec())),
            dev: meta.dev(),
        };
        let extensions = entries::read(&data, ID_LEN, |entry| listed.add(&entry))?;
        // Split (`link`), monitored (`FSMN`), or something that git itself must not pass over.
        let strange = |name: &[u8; 4]| match name {
            b"sdir" => false,
            b"FSMN" => true,
            name => !name[0].is_ascii_uppercase(),
        };
        (!extensions.iter().any(|(name, _)| strange(name))).then_some(listed)
    }

    fn add(&mut self, entry: &entries::Entry<'_>) -> Option<()> {
        if let Some(dir) = entry.path.strip_suffix(b".gitattributes")
            && (dir.is_empty() || dir.ends_with(b"/"))
        {
            self.attributed.push(dir.strip_suffix(b"/").unwrap_or(dir).into());
        }
        // `assume-valid` and stage; `skip-worktree` and `intent-to-add`.
        let plain = entry.flags & 0xb000 == 0 && entry.more_flags & 0x6000 == 0;
        if !plain || entry.mode() & 0o170_000 != 0o100_000 || entry.path.is_empty() {
            return Some(());
        }
        // Out of order: not written by git.
        if self.files.last().is_some_and(|last| self.path(last) >= entry.path) {
            return None;
        }
        let from = u32::try_from(self.pool.len()).ok()?;
        self.pool.extend_from_slice(entry.path);
        self.files.push(Listing {
            path: (from, u32::try_from(entry.path.len()).ok()?),
            ctime: (entry.number(0), entry.number(1)),
            mtime: (entry.number(2), entry.number(3)),
            ino: entry.number(5),
            size: entry.number(9),
            id: *entry.id.first_chunk()?,
        });
        Some(())
    }

    fn path(&self, of: &Listing) -> &[u8] {
        let (start, len) = of.path;
        &self.pool[start as usize..][..len as usize]
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Oid> + '_ {
        self.files.iter().map(Listing::oid)
    }

    /// Looks from `at` on first, in growing steps, and remembers where it was.
    pub(super) fn find(&self, path: &[u8], at: &mut usize) -> Option<&Listing> {
        let mut lo = 0;
        let mut hi = self.files.len();
        let mut step = 1;
        let mut next = *at;
        while next < hi {
            match self.path(&self.files[next]).cmp(path) {
                std::cmp::Ordering::Less => lo = next + 1,
                std::cmp::Ordering::Equal => {
                    *at = next + 1;
                    return Some(&self.files[next]);
                }
                std::cmp::Ordering::Greater => {
                    hi = next;
                    break;
                }
            }
            next += step;
            step *= 4;
        }
        let found = self.files[lo..hi].binary_search_by(|f| self.path(f).cmp(path));
        *at = lo + found.map_or_else(|i| i, |i| i + 1);
        found.ok().map(|i| &self.files[lo + i])
    }

    /// Nothing happened to the file since git read it.
    pub(super) fn proves(&self, listing: &Listing, stat: &Stat, granularity_ns: i128) -> bool {
        let same = |ns: i128, (s, rest): (u32, u32)| {
            ns == i128::from(s) * 1_000_000_000 + i128::from(rest) && ns + granularity_ns < self.time_ns
        };
        stat.kind == Kind::File
            && stat.dev == self.dev
            && stat.size == u64::from(listing.size)
            // Git keeps the lower half.
            && stat.ino as u32 == listing.ino
            && same(stat.mtime_ns, listing.mtime)
            && same(stat.ctime_ns, listing.ctime)
    }

    /// True if the index lists a `.gitattributes` in this directory.
    pub(super) fn is_attributed(&self, dir: &[u8]) -> bool {
        self.attributed.iter().any(|d| d.as_bytes() == dir)
    }
}

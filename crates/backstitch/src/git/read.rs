//! Reading a `.git`: no lock, no git, nothing written.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use backstitch_scan::{Repository, Rules};
use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice, ByteVec};

use crate::{
    error::{Code, Error, Result},
    paths,
};

/// What changed so lately may change again without another time.
const FRESH_NS: i128 = 2_000_000_000;
/// Of one file of an operation under way, and of all.
const FILE_MAX: u64 = 4 << 20;
const FILES_MAX: u64 = 64 << 20;
const INDEX_MAX: u64 = 1 << 30;
const PACKED_MAX: u64 = 256 << 20;
/// Directories below `refs/`, levels of them.
const DEPTH: usize = 40;

/// Files beside HEAD that say that something is under way.
pub(super) const FILES: &[&str] = &[
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "SQUASH_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "ORIG_HEAD",
    "BISECT_START",
    "BISECT_LOG",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "BISECT_EXPECTED_REV",
    "BISECT_ANCESTORS_OK",
    "BISECT_FIRST_PARENT",
    "BISECT_RUN",
];
/// Directories of the same.
pub(super) const DIRS: &[&str] = &["rebase-merge", "rebase-apply", "sequencer"];
/// Refs that each work tree has for itself.
pub(super) const OWN_REFS: &[&str] = &["bisect", "worktree", "rewritten"];

/// A repository that is read.
pub(crate) struct Repo {
    pub(crate) place: Repository,
    /// Its objects, then those of its alternates.
    pub(crate) objects: Vec<Odb>,
}

/// What was read.
#[derive(Default)]
pub(crate) struct Raw {
    /// `ref: refs/heads/main`, or an id.
    pub(crate) head: BString,
    /// Every ref but remote-tracking ones.
    pub(crate) refs: BTreeMap<BString, BString>,
    /// What remote-tracking refs point to.
    pub(crate) remotes: Vec<Oid>,
    pub(crate) stash: Option<Vec<u8>>,
    pub(crate) index: Option<Vec<u8>>,
    pub(crate) operation: BTreeMap<BString, Vec<u8>>,
}

fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A regular file of a bearable size; `None` where there is nothing.
pub(super) fn read_file(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(f) => f,
        Err(e) if is_absent(&e) => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
    };
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, max + 1), &mut bytes).map_err(|e| Error::io(path, e))?;
    if bytes.len() as u64 > max {
        return Err(Error::new(Code::Failed, format!("{}: larger than such a file may be", path.display()))
            .at(path)
            .hint("`git fsck` examines the repository; the files themselves are recorded"));
    }
    Ok(Some(bytes))
}

/// Names and types in a directory, sorted; none where there is none.
fn names(dir: &Path) -> Result<Vec<(BString, fs::FileType)>> {
    let list = match fs::read_dir(dir) {
        Ok(list) => list,
        Err(e) if is_absent(&e) => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(dir, e)),
    };
    let mut out = Vec::new();
    for e in list {
        let e = e.map_err(|e| Error::io(dir, e))?;
        match e.file_type() {
            Ok(t) => out.push((Vec::from_os_string(e.file_name()).unwrap_or_default().into(), t)),
            Err(e) if is_absent(&e) => {}
            Err(e) => return Err(Error::io(dir, e)),
        }
    }
    out.sort_by(|a: &(BString, _), b| a.0.cmp(&b.0));
    Ok(out)
}

fn locked(name: &BStr) -> bool {
    name.ends_with(b".lock")
}

/// Git takes the name for that of a ref.
pub(crate) fn is_ref_name(name: &BStr) -> bool {
    name.starts_with(b"refs/")
        && name.len() < 1024
        && !name.contains_str("..")
        && !name.contains_str("@{")
        && !name.iter().any(|b| *b <= b' ' || *b == 0x7f || b"~^:?*[\\".contains(b))
        && name.split_str("/").all(|part| {
            !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".") && !part.ends_with(b".lock")
        })
}

/// An id, or `ref: ` and a ref's name.
pub(crate) fn is_value(value: &BStr) -> bool {
    match value.strip_prefix(b"ref: ") {
        Some(name) => is_ref_name(name.as_bstr()),
        None => value.len() == 40 && Oid::from_hex(value).is_ok(),
    }
}

impl Repo {
    /// The repository around a workspace.
    pub(crate) fn of(rules: &Rules) -> Option<Repo> {
        let place = rules.repository()?;
        let mut objects = vec![place.common.join("objects")];
        let mut at = 0;
        // Alternates may have some of their own.
        while at < objects.len() && objects.len() < 16 {
            let dir = objects[at].clone();
            if let Ok(Some(text)) = read_file(&dir.join("info/alternates"), 1 << 20) {
                for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with(b"#")) {
                    let other = dir.join(paths::to_path(Path::new(""), line.as_bstr()));
                    if !objects.contains(&other) {
                        objects.push(other);
                    }
                }
            }
            at += 1;
        }
        let objects = objects.iter().map(|dir| Odb::of_repository(dir)).collect();
        Some(Repo { place, objects })
    }

    /// # Errors
    /// `failed` for a repository of a kind that is not known, with what it is.
    pub(crate) fn refuse_unknown(&self) -> Result<()> {
        let common = &self.place.common;
        let what = match () {
            () if self.place.sha256 => "its ids are SHA-256",
            () if common.join("reftable").is_dir() => "its refs are a reftable",
            () if common.join("refs").is_symlink() => "its refs are a link to somewhere else",
            () => return Ok(()),
        };
        Err(Error::new(Code::GitState, format!("{}: {what}", self.place.common.display()))
            .at(&self.place.common)
            .hint("git states are recorded of repositories with SHA-1 ids and refs as files"))
    }

    /// Where a ref's file is.
    pub(crate) fn ref_file(&self, name: &BStr) -> PathBuf {
        let own =
            |part: &&str| name.strip_prefix(b"refs/").is_some_and(|n| n.starts_with_str(format!("{part}/")));
        let dir = match name.starts_with(b"refs/") && !OWN_REFS.iter().any(own) {
            true => &self.place.common,
            false => &self.place.git_dir,
        };
        paths::to_path(dir, name)
    }

    /// What tells this state from any other: a few stats. `None` where something is so fresh that it may change unseen.
    pub(crate) fn signature(&self) -> Result<Option<Vec<u8>>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
        let mut out = Vec::new();
        let mut fresh = false;
        let mut add = |path: &Path| -> Result<()> {
            match fs::symlink_metadata(path) {
                Ok(m) => {
                    let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
                    let (mtime, ctime) = (ns(m.mtime(), m.mtime_nsec()), ns(m.ctime(), m.ctime_nsec()));
                    fresh |= mtime.max(ctime) + FRESH_NS > now;
                    for n in [i128::from(m.dev()), i128::from(m.ino()), i128::from(m.size()), mtime, ctime] {
                        out.extend_from_slice(&n.to_le_bytes());
                    }
                }
                Err(e) if is_absent(&e) => out.push(0),
                Err(e) => return Err(Error::io(path, e)),
            }
            Ok(())
        };
        let Repository { git_dir, common, .. } = &self.place;
        for path in [git_dir.clone(), common.clone(), git_dir.join("HEAD"), git_dir.join("index")] {
            add(&path)?;
        }
        add(&common.join("packed-refs"))?;
        add(&common.join("logs/refs/stash"))?;
        for name in FILES {
            add(&git_dir.join(name))?;
        }
        let mut dirs: Vec<(PathBuf, usize)> = vec![(common.join("refs"), 0)];
        if git_dir != common {
            dirs.push((git_dir.join("refs"), 0));
        }
        // A ref is replaced by rename, so a directory's times tell of its refs; files of an operation are written in place.
        while let Some((dir, depth)) = dirs.pop() {
            add(&dir)?;
            for (name, kind) in names(&dir)?.into_iter().filter(|(_, t)| t.is_dir() && depth < DEPTH) {
                debug_assert!(kind.is_dir());
                dirs.push((paths::to_path(&dir, name.as_bstr()), depth + 1));
            }
        }
        for dir in DIRS {
            let dir = git_dir.join(dir);
            add(&dir)?;
            for (name, _) in names(&dir)? {
                add(&paths::to_path(&dir, name.as_bstr()))?;
            }
        }
        Ok((!fresh).then_some(out))
    }

    /// The present state.
    pub(crate) fn read(&self) -> Result<Raw> {
        let Repository { git_dir, common, .. } = &self.place;
        let mut raw = Raw { head: self.head()?, ..Raw::default() };
        let mut refs: BTreeMap<BString, BString> = BTreeMap::new();
        if let Some(packed) = read_file(&common.join("packed-refs"), PACKED_MAX)? {
            for line in packed.lines().filter(|l| !l.starts_with(b"#") && !l.starts_with(b"^")) {
                if let Some((id, name)) = line.split_once_str(" ") {
                    refs.insert(name.into(), id.into());
                }
            }
        }
        self.loose(&common.join("refs"), "refs".into(), 0, &mut refs)?;
        if git_dir != common {
            for part in OWN_REFS {
                let name = format!("refs/{part}");
                refs.retain(|n, _| !n.starts_with_str(format!("{name}/")));
                self.loose(&git_dir.join(&name), name.into(), 0, &mut refs)?;
            }
        }
        refs.retain(|n, v| is_ref_name(n.as_bstr()) && is_value(v.as_bstr()));
        raw.remotes = (refs.iter())
            .filter(|(n, _)| n.starts_with(b"refs/remotes/"))
            .filter_map(|(_, v)| Oid::from_hex(v).ok())
            .collect();
        refs.retain(|n, _| !n.starts_with(b"refs/remotes/") && !n.starts_with(b"refs/prefetch/"));
        raw.refs = refs;
        raw.stash = read_file(&common.join("logs/refs/stash"), FILE_MAX)?;
        raw.index = read_file(&git_dir.join("index"), INDEX_MAX)?;
        let mut left = FILES_MAX;
        for name in FILES {
            if let Some(bytes) = read_file(&git_dir.join(name), FILE_MAX)? {
                raw.operation.insert((*name).into(), bytes);
            }
        }
        for name in DIRS {
            self.files_below(&git_dir.join(name), (*name).into(), 0, &mut left, &mut raw.operation)?;
        }
        Ok(raw)
    }

    pub(crate) fn head(&self) -> Result<BString> {
        let path = self.place.git_dir.join("HEAD");
        if let Ok(target) = fs::read_link(&path) {
            return Ok([b"ref: ", paths::bytes(&target).as_bytes()].concat().into());
        }
        let text = read_file(&path, 4096)?.unwrap_or_default();
        let value = tidy(&text);
        match is_value(value.as_bstr()) {
            true => Ok(value),
            false => {
                Err(Error::new(Code::Failed, format!("{}: not a HEAD that can be read", path.display()))
                    .at(path)
                    .hint("`git status` says what is wrong with it; the files themselves are recorded"))
            }
        }
    }

    fn loose(
        &self,
        dir: &Path,
        base: BString,
        depth: usize,
        out: &mut BTreeMap<BString, BString>,
    ) -> Result<()> {
        for (name, kind) in names(dir)? {
            let path = paths::to_path(dir, name.as_bstr());
            let full = paths::join(base.as_bstr(), &name);
            if kind.is_dir() && depth < DEPTH {
                self.loose(&path, full, depth + 1, out)?;
            } else if kind.is_file()
                && !locked(name.as_bstr())
                && let Some(text) = read_file(&path, 4096)?
            {
                out.insert(full, tidy(&text));
            }
        }
        Ok(())
    }

    fn files_below(
        &self,
        dir: &Path,
        base: BString,
        depth: usize,
        left: &mut u64,
        out: &mut BTreeMap<BString, Vec<u8>>,
    ) -> Result<()> {
        for (name, kind) in names(dir)? {
            let path = paths::to_path(dir, name.as_bstr());
            let full = paths::join(base.as_bstr(), &name);
            if kind.is_dir() && depth < 3 {
                self.files_below(&path, full, depth + 1, left, out)?;
            } else if kind.is_file() && !locked(name.as_bstr()) {
                let Some(bytes) = read_file(&path, FILE_MAX.min(*left))? else { continue };
                *left = left.saturating_sub(bytes.len() as u64);
                out.insert(full, bytes);
            }
        }
        Ok(())
    }

    /// An object with git's header, from wherever the repository has it.
    pub(crate) fn object(&self, oid: &Oid) -> Option<Vec<u8>> {
        self.objects.iter().find_map(|odb| odb.serialized(oid).ok())
    }

    /// The repository has it.
    pub(crate) fn has(&self, oid: &Oid) -> bool {
        self.objects.iter().any(|odb| odb.contains(oid))
    }

    /// Size of an object.
    pub(crate) fn size(&self, oid: &Oid) -> Option<u64> {
        self.objects.iter().find_map(|odb| odb.size(oid).ok())
    }
}

/// A value as git reads it: the first line, a symbolic one with one space.
pub(crate) fn tidy(text: &[u8]) -> BString {
    let line = text.lines().next().unwrap_or_default().trim();
    match line.strip_prefix(b"ref:") {
        Some(name) => [b"ref: ", name.trim()].concat().into(),
        None => line.into(),
    }
}

//! Git's lock files, held so that a crash leaves none that nobody dares to remove.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Change, Repo, file_of};
use crate::error::{Code, Error, Result};
use bstr::ByteSlice;

struct Held {
    temp: PathBuf,
    lock: PathBuf,
    target: PathBuf,
    put: bool,
}

/// The locks of one operation; what is not put is let go of when this is dropped.
pub(super) struct Locks<'a> {
    repo: &'a Repo,
    op: &'a str,
    held: Vec<Held>,
    /// Told before each step.
    tick: &'a dyn Fn(),
}

fn prefix(op: &str) -> String {
    format!(".backstitch-tmp-{op}-g")
}

fn lock_of(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    target.with_file_name(name)
}

fn busy(lock: &Path) -> Error {
    Error::new(Code::Busy, format!("{}: git holds this lock", lock.display())).at(lock).hint(
        "try again when git has ended; if none runs, a git that died left the file and it may be removed",
    )
}

/// # Errors
/// `busy`, naming the lock, where git holds one that a change needs.
pub(super) fn refuse_locked(repo: &Repo, list: &[Change]) -> Result<()> {
    let index = lock_of(&file_of(repo, "index".into()));
    let packed = lock_of(&repo.place.common.join("packed-refs"));
    let of = |c: &Change| lock_of(&file_of(repo, c.name.as_bstr()));
    match [index, packed].into_iter().chain(list.iter().map(of)).find(|l| l.symlink_metadata().is_ok()) {
        Some(lock) if !list.is_empty() => Err(busy(&lock)),
        _ => Ok(()),
    }
}

/// What is written stays in the repository: a directory of it that is a link leads who knows where.
///
/// # Errors
/// `git-state`, naming the link.
pub(super) fn refuse_links(repo: &Repo, list: &[Change]) -> Result<()> {
    let (own, common) = (&repo.place.git_dir, &repo.place.common);
    let mut dirs = BTreeSet::from([common.join("objects")]);
    for c in list {
        let file = file_of(repo, c.name.as_bstr());
        let log = super::refs::log_of(repo, c.name.as_bstr());
        for path in [&file, &log] {
            let above = path.ancestors().skip(1);
            dirs.extend(above.take_while(|d| d != own && d != common).map(Path::to_owned));
        }
    }
    match dirs.iter().find(|d| d.is_symlink()) {
        Some(link) if !list.is_empty() => Err(Error::new(
            Code::GitState,
            format!(
                "{} is a link: a git state is put back only into a repository of its own",
                link.display()
            ),
        )
        .at(link)
        .hint("leave out --git-state, or put a directory there; nothing was changed")),
        _ => Ok(()),
    }
}

pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io(dir, e))
}

/// Removes a file that may be gone already.
pub(super) fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(Error::io(file, e))
        }
        _ => Ok(()),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|m| (m.dev(), m.ino()))
}

impl<'a> Locks<'a> {
    pub fn new(repo: &'a Repo, op: &'a str, tick: &'a dyn Fn()) -> Locks<'a> {
        Locks { repo, op, held: Vec::new(), tick }
    }

    /// A step of whoever holds the locks.
    pub fn step(&self) {
        (self.tick)();
    }

    /// Locks a file, and prepares what is to stand there. Gives its number.
    pub fn take(&mut self, target: &Path, content: &[u8]) -> Result<usize> {
        let dir = match target.starts_with(&self.repo.place.git_dir) {
            true => &self.repo.place.git_dir,
            false => &self.repo.place.common,
        };
        let temp = dir.join(format!("{}{}", prefix(self.op), self.held.len()));
        let lock = lock_of(target);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
        }
        let write = || {
            let mut f = fs::OpenOptions::new().write(true).create_new(true).open(&temp)?;
            f.write_all(content)?;
            f.sync_all()
        };
        self.step();
        write().map_err(|e| Error::io(&temp, e))?;
        self.step();
        self.held.push(Held {
            temp: temp.clone(),
            lock: lock.clone(),
            target: target.to_owned(),
            put: false,
        });
        match fs::hard_link(&temp, &lock) {
            Ok(()) => Ok(self.held.len() - 1),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(busy(&lock)),
            Err(e) => Err(Error::io(&lock, e)),
        }
    }

    /// Puts the content in place, which ends the lock.
    pub fn put(&mut self, n: usize) -> Result<()> {
        self.step();
        let h = &mut self.held[n];
        fs::rename(&h.lock, &h.target).map_err(|e| Error::io(&h.target, e))?;
        h.put = true;
        (self.tick)();
        remove(&h.temp)?;
        h.target.parent().map_or(Ok(()), sync_dir)
    }

    /// Lets go of a lock that was taken to keep git away.
    pub fn free(&mut self, n: usize) -> Result<()> {
        let h = &mut self.held[n];
        if !h.put {
            h.put = true;
            if identity(&h.lock).is_some_and(|i| identity(&h.temp) == Some(i)) {
                remove(&h.lock)?;
            }
        }
        remove(&h.temp)
    }

    /// Lets go of all.
    pub fn end(mut self) -> Result<()> {
        (0..self.held.len()).try_for_each(|n| self.free(n))
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        for n in 0..self.held.len() {
            let _ = self.free(n);
        }
    }
}

/// Removes what a process that died while it changed these files left of its locks.
pub(super) fn sweep(repo: &Repo, op: &str, files: &[PathBuf]) -> Result<()> {
    let mut temps = Vec::new();
    for dir in [&repo.place.git_dir, &repo.place.common] {
        for e in fs::read_dir(dir).map_err(|e| Error::io(dir, e))?.flatten() {
            if e.file_name().as_encoded_bytes().starts_with(prefix(op).as_bytes()) {
                temps.push(e.path());
            }
        }
    }
    let ours: Vec<(u64, u64)> = temps.iter().filter_map(|t| identity(t)).collect();
    let more = [file_of(repo, "index".into()), repo.place.common.join("packed-refs")];
    for lock in files.iter().chain(&more).map(|f| lock_of(f)) {
        if identity(&lock).is_some_and(|i| ours.contains(&i)) {
            remove(&lock)?;
        }
    }
    // Objects that were being written, by the names that git gives to such.
    let objects = repo.place.common.join("objects");
    for fan in fs::read_dir(&objects).map_err(|e| Error::io(&objects, e))?.flatten() {
        remove(&fan.path().join(super::objects::temporary(op)))?;
    }
    temps.iter().try_for_each(|t| remove(t))
}

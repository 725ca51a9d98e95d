//! Every directory listed, every entry's stat read, on all cores.

use std::{
    ffi::CString,
    fmt, io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// All entries that are no directories.
    pub others: u64,
    /// Directories, the root among them.
    pub dirs: u64,
    /// The sizes of the files, together.
    pub bytes: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, {} directories, {} bytes", self.others, self.dirs, self.bytes)
    }
}

/// A directory still to be listed: its parent's handle and its name there.
type Job = (Arc<OwnedFd>, CString);

/// Directories that any thread may take, and how many threads are without work.
struct Queue {
    state: Mutex<(Vec<Job>, usize)>,
    wake: Condvar,
    threads: usize,
}

impl Queue {
    /// The next directory; waits for one. `None` when all threads wait.
    fn take(&self) -> Option<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = state.0.pop() {
            return Some(job);
        }
        state.1 += 1;
        loop {
            if state.1 == self.threads {
                self.wake.notify_all();
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            if let Some(job) = state.0.pop() {
                state.1 -= 1;
                return Some(job);
            }
        }
    }

    /// Gives jobs away if somebody waits for them.
    fn share(&self, jobs: &mut Vec<Job>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 > 0 {
            let keep = jobs.len() / 2;
            state.0.extend(jobs.drain(keep..));
            self.wake.notify_all();
        }
    }
}

/// Walks; with `read`, reads every file as well.
pub fn walk(root: &Path, threads: usize, read: bool) -> io::Result<Seen> {
    let top = rustix::fs::openat(CWD, root, DIR, Mode::empty())?;
    let first = (Arc::new(top), CString::from(c"."));
    let queue = Queue { state: Mutex::new((vec![first], 0)), wake: Condvar::new(), threads };
    let mut total = Seen::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&queue, read))).collect();
        for worker in workers {
            let seen = worker.join().map_err(|_| io::Error::other("a thread has panicked"))??;
            total.others += seen.others;
            total.dirs += seen.dirs;
            total.bytes += seen.bytes;
        }
        Ok(total)
    })
}

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn work(queue: &Queue, read: bool) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut space = vec![MaybeUninit::uninit(); 64 << 10];
    let mut content = vec![0; if read { 256 << 10 } else { 0 }];
    let mut own: Vec<Job> = Vec::new();
    let mut failure = None;
    while let Some(job) = own.pop().or_else(|| queue.take()) {
        if failure.is_some() {
            continue;
        }
        if let Err(error) = list(&job, &mut space, &mut content, &mut own, &mut seen) {
            failure = Some(error);
        }
        if own.len() > 1 {
            queue.share(&mut own);
        }
    }
    failure.map_or(Ok(seen), Err)
}

fn list(
    job: &Job,
    space: &mut [MaybeUninit<u8>],
    content: &mut [u8],
    own: &mut Vec<Job>,
    seen: &mut Seen,
) -> io::Result<()> {
    let dir = Arc::new(rustix::fs::openat(&job.0, &job.1, DIR, Mode::empty())?);
    seen.dirs += 1;
    let mut entries = RawDir::new(&dir, space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::Directory => own.push((dir.clone(), name.to_owned())),
            FileType::RegularFile => {
                seen.others += 1;
                seen.bytes += stat.stx_size;
                if !content.is_empty() {
                    let file =
                        rustix::fs::openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                    while rustix::io::read(&file, &mut *content)? > 0 {}
                }
            }
            _ => seen.others += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn everything_is_seen_once_by_any_number_of_threads() {
        let dir = std::env::temp_dir().join(format!("bare-walk-{}", std::process::id()));
        let mut expected = Seen { dirs: 1, ..Seen::default() };
        for a in 0..7 {
            for b in 0..5 {
                let folder = dir.join(format!("{a}/{b}"));
                fs::create_dir_all(&folder).unwrap();
                for c in 0..3 {
                    fs::write(folder.join(format!("{c}")), vec![b'x'; c]).unwrap();
                }
                std::os::unix::fs::symlink("nowhere", folder.join("link")).unwrap();
            }
        }
        expected.dirs += 7 + 35;
        expected.others += 35 * 4;
        expected.bytes += 35 * 3;
        for threads in [1, 2, 5] {
            assert_eq!(walk(&dir, threads, false).unwrap(), expected);
            assert_eq!(walk(&dir, threads, true).unwrap(), expected);
        }
        fs::remove_dir_all(&dir).unwrap();
        assert!(walk(&dir, 2, false).is_err());
    }
}

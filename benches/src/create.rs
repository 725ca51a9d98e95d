//! The same files and directories made anew, on all cores.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

enum Thing {
    File(Vec<u8>, u32),
    Link(PathBuf),
}

/// Reads everything below `from`, then makes it below `to`; returns how long the making took.
pub fn create(from: &Path, to: &Path, threads: usize) -> io::Result<Duration> {
    let (mut dirs, mut things) = (vec![PathBuf::new()], Vec::new());
    let mut next = 0;
    while next < dirs.len() {
        let dir = dirs[next].clone();
        next += 1;
        for item in fs::read_dir(from.join(&dir))? {
            let item = item?;
            let (path, kind) = (dir.join(item.file_name()), item.file_type()?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_symlink() {
                things.push((path, Thing::Link(fs::read_link(item.path())?)));
            } else if kind.is_file() {
                let mode = item.metadata()?.permissions().mode();
                things.push((path, Thing::File(fs::read(item.path())?, mode)));
            }
        }
    }
    let start = Instant::now();
    for dir in &dirs {
        fs::create_dir(to.join(dir))?;
    }
    // Neighbours go to one thread, as they would from a list of directories.
    const CHUNK: usize = 64;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || -> io::Result<()> {
            loop {
                let at = next.fetch_add(CHUNK, Ordering::Relaxed);
                if at >= things.len() {
                    return Ok(());
                }
                for (path, thing) in &things[at..(at + CHUNK).min(things.len())] {
                    make(&to.join(path), thing)?;
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| io::Error::other("a thread has panicked"))??;
        }
        Ok(start.elapsed())
    })
}

fn make(path: &Path, thing: &Thing) -> io::Result<()> {
    match thing {
        Thing::Link(text) => symlink(text, path),
        Thing::File(bytes, mode) => {
            use std::{io::Write, os::unix::fs::OpenOptionsExt};
            fs::OpenOptions::new().write(true).create_new(true).mode(*mode).open(path)?.write_all(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_made() {
        let top = std::env::temp_dir().join(format!("bare-create-{}", std::process::id()));
        let (from, to) = (top.join("from"), top.join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::write(from.join("a/b/file"), "content").unwrap();
        symlink("b", from.join("a/link")).unwrap();
        create(&from, &to, 2).unwrap();
        assert_eq!(fs::read(to.join("a/b/file")).unwrap(), b"content");
        assert_eq!(fs::read_link(to.join("a/link")).unwrap(), Path::new("b"));
        assert!(to.join("empty").is_dir());
        assert!(create(&from, &to, 2).is_err());
        fs::remove_dir_all(&top).unwrap();
    }
}

//! The least that a walk can cost.

use std::{io, mem::MaybeUninit, os::fd::AsFd, path::Path, sync::Arc};

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    handle::{self, Hint, Names, Node},
    types::Kind,
    walk::queue::{Queue, lock},
};

/// Lists and stats everything below `root` through directory handles, and does nothing else: what benchmarks measure a scan
/// against. Returns the number of entries and the bytes of all files; what cannot be opened is left out.
pub fn bare_walk(root: &Path, threads: usize) -> io::Result<(u64, u64)> {
    let threads = threads.max(1);
    let first = handle::open_root(root)?;
    let queue: Queue<(Option<Arc<OwnedFd>>, Box<CStr>)> = Queue::new((None, Box::from(c"")));
    let first = Mutex::new(Some(first));
    let (entries, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let left = AtomicUsize::new(1);
    let run = || {
        let mut own = Default::default();
        let mut names = Names::default();
        let mut buf = vec![MaybeUninit::uninit(); 1 << 16];
        let (mut seen, mut size) = (0, 0);
        while let Some((parent, name)) = queue.next(&mut own) {
            let fd = match &parent {
                Some(parent) => handle::open_dir(parent.as_fd(), &name).ok(),
                None => lock(&first).take(),
            };
            drop(parent);
            if let Some(fd) = fd {
                names.clear();
                let _ = handle::list(fd.as_fd(), &mut buf, &mut names);
                let fd = Arc::new(fd);
                for (start, len, hint) in &names.list {
                    let name = &names.pool[*start as usize..][..usize::from(*len) + 1];
                    let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
                    seen += 1;
                    let mut is_dir = *hint == Hint::Dir;
                    if let Ok(Node::Covered(stat)) = handle::stat_at(fd.as_fd(), name) {
                        is_dir = stat.kind == Kind::Dir;
                        size += if stat.kind == Kind::File { stat.size } else { 0 };
                    }
                    if is_dir {
                        left.fetch_add(1, Ordering::Relaxed);
                        own.push_back((Some(fd.clone()), Box::from(name)));
                    }
                }
            }
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                queue.stop();
            }
        }
        entries.fetch_add(seen, Ordering::Relaxed);
        bytes.fetch_add(size, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            queue.expect();
            scope.spawn(run);
        }
        run();
    });
    Ok((entries.into_inner(), bytes.into_inner()))
}

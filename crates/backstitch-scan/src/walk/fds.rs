//! How many directories are open at a time.
//!
//! A directory stays open after it was entered, because its children are opened relative to it. Where there are too many,
//! those opened first are closed: they lie nearest to the root, are needed last, and are opened again in a few steps.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, Weak},
};

use rustix::io::Errno;

use super::{Walk, node::Node, queue::lock};
use crate::{
    handle::{self, Node as Seen},
    types::Sink,
};

pub(crate) struct Budget<'t> {
    open: Mutex<VecDeque<Weak<Node<'t>>>>,
    most: usize,
}

impl<'t> Budget<'t> {
    pub(crate) fn new() -> Budget<'t> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        let most = usize::try_from(limit / 8).unwrap_or(usize::MAX).clamp(4, 1024);
        Budget { open: Mutex::default(), most }
    }

    /// Takes note of a directory that stays open, and closes the oldest if there are too many.
    pub(crate) fn note(&self, node: &Arc<Node<'t>>) {
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(node));
        if open.len() <= self.most * 2 {
            return;
        }
        // Most are done by now.
        open.retain(|node| node.strong_count() > 0);
        while open.len() > self.most {
            let oldest = open.pop_front().and_then(|node| node.upgrade());
            if let Some(oldest) = oldest {
                lock(&oldest.fd).take();
            }
        }
    }

    /// Closes all that can be closed.
    pub(crate) fn close_all(&self) {
        for node in lock(&self.open).drain(..).filter_map(|node| node.upgrade()) {
            lock(&node.fd).take();
        }
    }
}

impl<'t, S: Sink> Walk<'t, '_, S> {
    /// The handle of a directory, opened again if it was closed meanwhile.
    pub(crate) fn fd_of(&self, node: &Arc<Node<'t>>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = &*lock(&node.fd) {
            return Ok(fd.clone());
        }
        // Down again from the nearest directory that is still open.
        let mut closed = vec![node];
        let mut fd = loop {
            let lowest = closed[closed.len() - 1];
            match &lowest.parent {
                None => {
                    closed.pop();
                    break self.start.fd.clone();
                }
                Some((parent, _)) => {
                    if let Some(fd) = &*lock(&parent.fd) {
                        break fd.clone();
                    }
                    closed.push(parent);
                }
            }
        };
        for node in closed.into_iter().rev() {
            if let Some((parent, slot)) = &node.parent {
                let next = self.open_dir(fd.as_fd(), parent.name(*slot))?;
                match handle::stat_fd(&next)? {
                    Seen::Covered(stat) if stat.dev == node.stat.dev && stat.ino == node.stat.ino => {}
                    // Another directory stands here now.
                    _ => return Err(Errno::STALE),
                }
                fd = Arc::new(next);
            }
        }
        *lock(&node.fd) = Some(fd.clone());
        self.fds.note(node);
        Ok(fd)
    }

    /// Opens a child directory; makes room if the process has too many files open.
    pub(crate) fn open_dir(
        &self,
        dir: std::os::fd::BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> Result<OwnedFd, Errno> {
        match handle::open_dir(dir, name) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.fds.close_all();
                handle::open_dir(dir, name)
            }
            other => other,
        }
    }
}

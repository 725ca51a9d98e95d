//! The proofs that writing code asks for. Locks of workspaces are taken in the order of their paths.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use backstitch_store::{Lock, Store};
use bstr::{BString, ByteSlice};

use super::{Workspace, from_manifest_path, stores};
use crate::{
    error::{Code, Error, Result},
    paths,
};

/// Proof that captures may write rows: holds the workspace's and the store's lock shared.
pub struct CaptureLock {
    _workspace: Lock,
    _store: Lock,
}

/// Proof that the work tree may be changed.
pub struct OperationLock {
    _workspaces: Vec<Lock>,
    _store: Lock,
}

/// Proof that nothing is recorded and no work tree changes.
pub(crate) struct WorkspaceLock {
    _workspaces: Vec<Lock>,
}

impl OperationLock {
    /// Lets go of the store, which whoever removes files from it takes alone.
    pub(crate) fn without_store(self) -> WorkspaceLock {
        WorkspaceLock { _workspaces: self._workspaces }
    }
}

impl Workspace {
    /// Takes a lock, waiting as long as the settings say or until it is interrupted.
    pub(crate) fn lock(&self, store: &Store, name: &str, exclusive: bool) -> Result<Lock> {
        const SLICE: Duration = Duration::from_millis(100);
        crate::network::check(store.dir(), &self.settings)?;
        let end = Instant::now() + self.lock_wait();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = left.min(SLICE);
            let taken = match exclusive {
                true => store.lock_exclusive(name, wait),
                false => store.lock_shared(name, wait),
            };
            let interrupted = self.interrupt.as_ref().is_some_and(|i| i.load(Ordering::Relaxed));
            match taken {
                Err(backstitch_store::Error::Busy { .. }) if interrupted => {
                    return Err(Error::new(
                        Code::Interrupted,
                        "interrupted while waiting for another process; nothing was changed",
                    ));
                }
                Err(backstitch_store::Error::Busy { .. }) if left > SLICE => {}
                r => return Ok(r?),
            }
        }
    }

    /// Known workspaces above and below, and those that hold the files elsewhere, with their stores.
    fn relatives(&self, elsewhere: &[BString]) -> BTreeMap<PathBuf, PathBuf> {
        stores(&self.surroundings.store_base)
            .into_iter()
            .filter_map(|k| k.manifest.ok().map(|m| (from_manifest_path(&m.path), k.dir)))
            .filter(|(p, dir)| {
                let holds = |f: &BString| paths::to_path(&self.root, f.as_bstr()).starts_with(p);
                *dir != self.store_dir
                    && (p.starts_with(&self.root) || self.root.starts_with(p) || elsewhere.iter().any(holds))
            })
            .collect()
    }

    /// Many captures at once; excludes operations on the work tree.
    pub fn lock_capture(&self) -> Result<CaptureLock> {
        let store = self.store()?;
        // A process that died since this workspace was opened may have left the tree half way.
        for _ in 0..8 {
            let held = CaptureLock {
                _workspace: self.lock(store, "workspace", false)?,
                _store: self.lock(store, "store", false)?,
            };
            if !crate::recover::is_pending(self) {
                return Ok(held);
            }
            drop(held);
            crate::recover::if_needed(self)?;
        }
        Err(Error::new(Code::Busy, format!("{}: an operation waits to be taken back", self.root.display()))
            .at(&self.root)
            .hint("try again in a moment"))
    }

    /// One operation at a time, here and in every known workspace above and below. Locks are taken in the order of
    /// their workspaces' paths, so two operations cannot wait for each other.
    pub fn lock_operation(&self) -> Result<OperationLock> {
        self.lock_operation_with(&[])
    }

    /// The same for an operation that may change these files elsewhere, by absolute path.
    pub(crate) fn lock_operation_with(&self, elsewhere: &[BString]) -> Result<OperationLock> {
        let mut order = self.relatives(elsewhere);
        order.insert(self.root.clone(), self.store_dir.clone());
        let mut held = Vec::new();
        for (root, dir) in order {
            let store = Store::open(&dir)?;
            held.push(self.lock(&store, "workspace", true).map_err(|e| {
                match e.code {
                    Code::Busy => Error::new(
                        Code::Busy,
                        format!("{}: a capture or an operation is running here", root.display()),
                    )
                    .at(&root)
                    .hint("try again when it has ended; nothing was changed"),
                    _ => e,
                }
            })?);
        }
        let store = self.lock(self.store()?, "store", false)?;
        if crate::recover::is_pending(self) {
            crate::recover::locked(self)?;
        }
        Ok(OperationLock { _workspaces: held, _store: store })
    }
}

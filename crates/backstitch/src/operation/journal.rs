//! The pointer to a running operation: it stands from before the first change until the record says how it ended.

use std::path::PathBuf;

use backstitch_store::{Expect, Oid, Row};
use serde::{Deserialize, Serialize};

use super::{OpRecord, OpState, all};
use crate::{
    error::{Error, Result},
    record::OPERATIONS,
    workspace::Workspace,
};

#[derive(Serialize, Deserialize)]
pub(crate) struct Journal {
    pub op: String,
    pub root: String,
    /// Directories that were opened for the operation, with the bits that they get back.
    #[serde(default)]
    pub loosen: Vec<(String, u32)>,
}

pub(crate) fn journal_file(ws: &Workspace) -> Result<PathBuf> {
    Ok(ws.store()?.journal_dir().join("operation.json"))
}

/// The record in the store says that the operation is done.
pub(super) fn is_done(ws: &Workspace, id: &str) -> bool {
    all(ws).is_ok_and(|(ops, _)| ops.iter().any(|o| o.record.id == id && o.record.state == OpState::Done))
}

/// Where the journal is while it is written.
fn unfinished(journal: &std::path::Path) -> PathBuf {
    journal.with_extension("new")
}

/// A journal was begun, and its writer is at work or died.
pub(crate) fn has_unfinished(ws: &Workspace) -> bool {
    journal_file(ws).is_ok_and(|file| unfinished(&file).symlink_metadata().is_ok())
}

/// Removes what a dead process left of a journal that it did not finish. The caller holds the workspace's lock alone.
pub(crate) fn drop_unfinished(journal: &std::path::Path) -> std::io::Result<()> {
    match std::fs::remove_file(unfinished(journal)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

pub(super) fn write_journal(path: &std::path::Path, content: &Journal) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    // Whoever writes holds the workspace's lock alone: one name will do, and what a dead process left under it goes.
    let temp = unfinished(path);
    let written = (|| {
        drop_unfinished(path)?;
        let mut f = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        f.write_all(&serde_json::to_vec(content).unwrap_or_default())?;
        f.sync_all()?;
        std::fs::rename(&temp, path)
    })();
    written.map_err(|e| {
        // The error that is told is the first one.
        let _ = drop_unfinished(path);
        Error::io(path, e)
    })?;
    sync_parent(path)
}

fn sync_parent(path: &std::path::Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io(dir, e))
}

/// Marks the operation and drops the journal, in this order.
pub(crate) fn finish(
    ws: &Workspace,
    op: &mut OpRecord,
    from: Oid,
    tree: &Oid,
    state: OpState,
    journal: &std::path::Path,
) -> Result<()> {
    op.state = state;
    let writer = ws.store()?.writer()?;
    let mut s = writer.scratch();
    let message = op.message();
    let commit = writer.commit(&mut s, tree, &message, op.created_ms.div_euclid(1000))?;
    writer.finish()?;
    let row = Row { name: format!("{OPERATIONS}{}", op.id), commit, tree: *tree, message: message.into() };
    ws.store()?.refs().set(&row, Expect::Is(from))?;
    match std::fs::remove_file(journal) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io(journal, e)),
    }
    sync_parent(journal)
}

//! Everything around rows: status, verify, doctor, pin, label, delete, log, cat, export, stores, relink.
#![allow(unused)]
use std::{io::Write, path::{Path, PathBuf}};

use bstr::{BStr, BString};
use serde_json::Value;

use crate::{
    diff::Change,
    error::Result,
    record::Checkpoint,
    workspace::{Control, Surroundings, Workspace},
};

impl Workspace {
    /// CONTRACT's `status` object (with `exists`, `warnings`, `untrusted`). Works without a store.
    pub fn status(&self) -> Result<Value> {
        unimplemented!()
    }
    /// `{"ok","objects","bytes","checkpoints","damage":[{"path","object","what","checkpoints"}],"rows_damaged":[...],"repaired":[...]}`.
    /// Damage is not an `Err`: the caller exits with 7 when `ok` is false.
    pub fn verify(&self, repair: bool, control: &Control<'_>) -> Result<Value> {
        unimplemented!()
    }
    /// `{"ok","checks":[{"name","ok","detail"}]}`; `drill` restores the newest row into a scratch folder and compares.
    pub fn doctor(&self, drill: bool, control: &Control<'_>) -> Result<Value> {
        unimplemented!()
    }
    /// Returns the changed row.
    pub fn pin(&self, c: &Checkpoint, on: bool) -> Result<Checkpoint> {
        unimplemented!()
    }
    /// `None` takes the label away.
    pub fn label(&self, c: &Checkpoint, label: Option<&str>) -> Result<Checkpoint> {
        unimplemented!()
    }
    /// Moves rows to the trash as one operation; returns its id. `undo` brings them back.
    pub fn delete(&self, rows: &[&Checkpoint]) -> Result<String> {
        unimplemented!()
    }
    /// Writes a recorded file's bytes (a link's text).
    pub fn cat(&self, c: &Checkpoint, path: &BStr, out: &mut dyn Write) -> Result<()> {
        unimplemented!()
    }
    /// Rows that changed a path, newest first.
    pub fn log(&self, path: &BStr) -> Result<Vec<(Checkpoint, Change)>> {
        unimplemented!()
    }
    /// All that a row left out, and what changed in it against its parent.
    pub fn show(&self, c: &Checkpoint) -> Result<(crate::coverage::Document, Vec<Change>)> {
        unimplemented!()
    }
    /// `list --check`: every object that the row needs is in the store and readable. `Some(reason)`: cannot be restored.
    pub fn check(&self, c: &Checkpoint) -> Result<Option<String>> {
        unimplemented!()
    }
    /// Writes the row as a folder (must be empty or absent). Returns files written.
    pub fn export_dir(&self, c: &Checkpoint, dir: &Path, control: &Control<'_>) -> Result<u64> {
        unimplemented!()
    }
    /// Writes a tar archive.
    pub fn export_tar(&self, c: &Checkpoint, out: &mut dyn Write, control: &Control<'_>) -> Result<u64> {
        unimplemented!()
    }
    /// Writes what changed against the parent as a patch.
    pub fn export_patch(&self, c: &Checkpoint, out: &mut dyn Write, control: &Control<'_>) -> Result<u64> {
        unimplemented!()
    }
    /// Writes a git bundle with the row's commit.
    pub fn export_bundle(&self, c: &Checkpoint, out: &mut dyn Write, control: &Control<'_>) -> Result<u64> {
        unimplemented!()
    }
    /// Makes the store of `old` the store of this (moved) workspace.
    pub fn relink(&mut self, old: &Path) -> Result<()> {
        unimplemented!()
    }
}

/// `[{"dir","workspace","exists","created","last_used","bytes","checkpoints","ok","error"}]`
pub fn stores_list(surroundings: &Surroundings) -> Result<Vec<Value>> {
    unimplemented!()
}
/// Strict: a direct child of the base, a readable manifest, no live owner, not the present workspace. `purge` skips the health check.
/// Returns the bytes freed.
pub fn stores_delete(surroundings: &Surroundings, name: &str, purge: bool) -> Result<u64> {
    unimplemented!()
}

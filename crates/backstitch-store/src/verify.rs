//! Placeholder.
use crate::{Error, Oid, Store};
use std::path::PathBuf;
/// What `verify` found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// n
    pub objects: u64,
    /// n
    pub bytes: u64,
    /// n
    pub refs: u64,
    /// n
    pub damage: Vec<Damage>,
}
/// One damage.
#[derive(Debug)]
pub struct Damage {
    /// p
    pub path: PathBuf,
    /// o
    pub oid: Option<Oid>,
    /// w
    pub what: String,
    /// refs that reach it
    pub refs: Vec<String>,
}
impl Store {
    /// Verify.
    pub fn verify(
        &self,
        _progress: &dyn Fn(u64, u64),
        _interrupt: &std::sync::atomic::AtomicBool,
    ) -> Result<VerifyReport, Error> {
        Ok(VerifyReport::default())
    }
}

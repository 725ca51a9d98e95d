//! One runner for all integration tests of the scan.
#![allow(clippy::unwrap_used, missing_docs)]

mod decisions;
mod git;
mod hostile;
mod paths;
mod quiet;
mod rules;
mod seed;
mod support;
mod table;
mod trust;

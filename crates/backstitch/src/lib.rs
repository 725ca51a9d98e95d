//! The engine of Backstitch.
#![allow(missing_docs)]
pub mod admin;
pub mod capture;
pub mod checkpoint;
pub mod coverage;
pub mod diff;
pub mod error;
pub mod export;
pub mod health;
pub mod meta;
pub mod names;
pub mod operation;
pub mod paths;
pub mod place;
pub mod plan;
pub mod record;
mod recover;
pub mod restore;
pub mod settings;
pub mod tree;
pub mod undo;
pub mod view;
pub mod workspace;

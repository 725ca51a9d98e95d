//! Checkpoint and rewind for the folders that coding agents work in: the engine.
//!
//! # What it does
//!
//! Records what a folder holds as rows in a store beside it, compares rows and the live tree, goes back to any row, and
//! takes the going-back back. Content, type, permission bits, link text and empty directories come back exactly; what a
//! row does not cover is never touched; every change of the work tree is an operation that can be undone, also after the
//! process died half way.
//!
//! # Example
//!
//! ```
//! use backstitch::{
//!     checkpoint, restore, undo,
//!     workspace::{Control, Surroundings, Workspace},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path().join("work");
//! # std::fs::create_dir(&folder)?;
//! let surroundings = Surroundings { store_base: scratch.path().join("data"), ..Surroundings::default() };
//! let mut ws = Workspace::open(&folder, surroundings)?;
//! let control = Control::default();
//!
//! std::fs::write(folder.join("a.txt"), "by hand")?;
//! let row = ws.checkpoint(&checkpoint::Options::default(), &control)?.checkpoint.ok_or("no row")?;
//!
//! std::fs::write(folder.join("a.txt"), "by an agent")?;
//! let outcome = ws.restore(&row, &restore::Options::default(), &control)?;
//! assert!(outcome.verified && !outcome.partial);
//! assert_eq!(std::fs::read_to_string(folder.join("a.txt"))?, "by hand");
//!
//! ws.undo(&undo::Options::default(), &control)?;
//! assert_eq!(std::fs::read_to_string(folder.join("a.txt"))?, "by an agent");
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! Every call fails with [`error::Error`], whose [`error::Code`] is stable and shared with the command line's exit
//! status. Partial success is no error: it is in the outcome, path by path.
//!
//! # Limits
//!
//! Linux only so far. Paths are bytes, relative to the workspace, with `/`. A [`workspace::Workspace`] is one process's
//! view: rows made by others appear at the next call. Calls block; long ones look at [`workspace::Control::interrupt`].
#![deny(missing_docs)]

pub mod admin;
pub mod attribution;
pub mod bisect;
pub mod blame;
pub mod capture;
pub mod checkpoint;
pub mod coverage;
pub mod diff;
pub mod error;
pub mod export;
pub mod flight;
pub mod forget;
#[cfg(test)]
mod fuzz;
pub mod git;
pub mod health;
pub mod held;
pub mod history;
pub mod hunks;
mod live;
pub mod merge;
pub mod meta;
mod moves;
pub mod names;
pub mod network;
pub mod operation;
mod parents;
mod past;
pub mod patch;
pub mod paths;
pub mod people;
pub mod place;
pub mod plan;
pub mod preimage;
pub mod prune;
pub mod record;
mod recover;
pub mod removal;
pub mod restore;
pub mod retention;
pub mod rewind;
mod room;
mod roots;
mod row;
mod sample;
mod seed;
pub mod session;
pub mod settings;
pub mod space;
pub mod stores;
pub mod sync;
pub mod tool;
pub mod trash;
pub mod tree;
pub mod trust;
pub mod turn;
pub mod undo;
pub mod view;
pub mod watch;
mod wide;
pub mod workspace;

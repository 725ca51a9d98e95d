//! Tools for the tests of Backstitch. Not published.
//!
//! # What it does
//!
//! - [`TreeModel`]: what a folder holds at one moment, and a comparison that names each difference.
//! - [`generate`]: random trees and edits with hostile names, types and modes; seeded, or as proptest strategies.
//! - [`Git`]: stock git as the oracle: `fsck --strict`, a row's tree read or checked out by git itself.
//! - [`Cli`]: runs the program in isolation and returns its JSON, exit code and messages.
//! - [`Rpc`]: a host that talks to `serve` and `mcp`.
//! - [`privilege`]: work as another user, small file systems of one's own.
//! - [`skip`]: a test that cannot run here says so where it is counted.
//!
//! # Example
//!
//! ```
//! use backstitch_testkit::{Compare, TreeModel, generate};
//!
//! let dir = tempfile::tempdir()?;
//! generate::tree(7, &generate::Shape::default()).write(dir.path())?;
//! let before = TreeModel::read(dir.path())?;
//! generate::edits(8, 20).apply(dir.path())?;
//! let after = TreeModel::read(dir.path())?;
//! for difference in before.differences(&after, &Compare::default()) {
//!     println!("{difference}");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Limits
//!
//! Linux and macOS only. Extended attributes are read only when asked for. Work as another user and mounts need root.

pub mod cli;
pub mod fuzz;
pub mod generate;
pub mod git;
pub mod model;
pub mod privilege;
pub mod rpc;
pub mod skip;
pub mod text;

pub use cli::{Cli, Run};
pub use git::Git;
pub use model::{Compare, Difference, Entry, Kind, TreeModel};
pub use rpc::Rpc;

//! The engine from its public API.
#![allow(clippy::unwrap_used, missing_docs)]

mod property;
mod story;
mod world;

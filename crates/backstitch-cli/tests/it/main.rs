//! One runner; a file per concern. The library has its own tests: these prove what is seen from outside.
#![allow(clippy::unwrap_used, missing_docs)]

mod agents;
mod blame;
mod checkpoint;
mod configuration;
mod diff;
mod exits;
mod export;
mod gc;
mod json;
mod list;
mod names;
mod output;
mod outside;
mod pages;
mod restore;
mod revert;
mod rewind;
mod sessions;
mod sessions_space;
mod stores;
mod support;
mod terminal;
mod walk;
mod workspace;

//! One runner; a file per concern. Payloads are those that the clients really sent.
#![allow(clippy::unwrap_used, missing_docs)]

mod garbage;
mod install;
mod payloads;
mod stories;
mod support;

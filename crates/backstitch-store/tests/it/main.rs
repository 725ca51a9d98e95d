//! One runner; a file per concern.
#![allow(clippy::unwrap_used, missing_docs)]

mod pack;
mod refs;
mod support;

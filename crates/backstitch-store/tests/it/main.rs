//! One runner; a file per concern.
#![allow(clippy::unwrap_used, missing_docs)]

mod big;
mod concurrent;
mod crash;
mod damage;
mod layout;
mod names;
mod pack;
mod refs;
mod space;
mod support;

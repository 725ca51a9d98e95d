//! The engine from its public API.
#![allow(clippy::unwrap_used, missing_docs)]

mod cases_k1;
mod cases_k2;
mod cases_k3;
mod cases_k6;
mod property;
mod story;
mod support;
mod world;

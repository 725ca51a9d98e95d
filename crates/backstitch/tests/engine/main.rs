//! The engine from its public API.
#![allow(clippy::unwrap_used, missing_docs)]

mod blame;
mod cases_k1;
mod cases_k10;
mod cases_k11;
mod cases_k12;
mod cases_k2;
mod cases_k3;
mod cases_k4;
mod cases_k6;
mod cases_k7;
mod cases_k8;
mod cases_k9;
mod flight;
mod hunks;
mod merge;
mod privacy;
mod property;
mod seeds;
mod sessions;
mod story;
mod support;
mod traps;
mod traps_history;
mod world;

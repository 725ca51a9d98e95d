//! The watcher: a process per workspace that notes in which directories something happened.
//!
//! A capture asks it before it looks, and then looks only at those directories, at what is above them, and at what is in
//! doubt by itself. It is never more than a short cut: where it is not there, does not answer in time, answers about
//! another life of itself, or was caught missing something, everything is looked at.
//!
//! Why that is right: the answer's epoch ends with a cookie, a file that the watcher made in the store and saw come by in
//! the one queue in which all events stand in their order. Whatever happened before it was asked is in the answer;
//! whatever happens after has a later epoch. A capture notes the epoch in the stat table only after it has looked. So a
//! directory without noise since the table's epoch is as the table says, if it was watched all the time: one that was not
//! counts as noisy until it was looked at once more.

mod client;
mod daemon;
mod noise;
mod wire;

pub use daemon::run;

pub(crate) use client::{ask, distrust, start_if_wanted};

/// The socket, and what else the watcher keeps in the store's `state/`.
const SOCKET: &str = "watch.sock";
/// Says why no watcher is used any longer.
const DISTRUSTED: &str = "watch.distrusted";
/// Says why a watcher could not go on.
const ENDED: &str = "watch.ended";

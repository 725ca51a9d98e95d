//! `cargo xtask bench`.
use crate::{
    Result,
    args::{Command, Parsed},
};
/// The table entry.
pub const COMMAND: Command = Command {
    name: "bench",
    about: "Us, git and a bare walk in turn on the same trees",
    details: "",
    options: &[],
};
/// The task.
pub fn run(_: &Parsed) -> Result<bool> {
    Err("being built".into())
}

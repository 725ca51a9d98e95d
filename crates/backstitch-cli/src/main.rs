//! The backstitch binary.
fn main() {}

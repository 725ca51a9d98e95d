//! Random trees and random edits.
//!
//! Both come in two forms that make the same values: from a seed ([`tree`], [`edits`]), for campaigns and benchmarks that must
//! be repeatable; and as proptest strategies ([`trees`], [`scripts`]), which shrink to the few entries or edits that matter.

mod edit;
mod names;
mod rng;
mod tree;

pub use edit::{Action, Edit, Script, edits, scripts};
pub use names::{EVERY_BYTE_BUT_TWO, HOSTILE, name, name_strategy};
pub use rng::{Rng, noise};
pub use tree::{Bytes, Node, Part, Shape, TreeSpec, project, tree, trees};

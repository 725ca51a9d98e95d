//! Objects that deltas build on, kept for the next delta.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use crate::object::Kind;

/// Delta bases kept, in each of two generations.
const BASES_MAX: usize = 24 << 20;

/// Pack and offset.
pub(crate) type BaseKey = (PathBuf, u64);
type Base = (Kind, Arc<Vec<u8>>);

/// Bases of deltas: what was used since the last turn of generations, and before it.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    young: HashMap<BaseKey, Base>,
    old: HashMap<BaseKey, Base>,
    bytes: usize,
}

impl Bases {
    pub(crate) fn get(&mut self, key: &BaseKey) -> Option<Base> {
        if let Some(b) = self.young.get(key) {
            return Some(b.clone());
        }
        let b = self.old.remove(key)?;
        self.put(key.clone(), b.clone());
        Some(b)
    }

    pub(crate) fn put(&mut self, key: BaseKey, base: Base) {
        if base.1.len() > BASES_MAX / 2 {
            return;
        }
        if self.bytes + base.1.len() > BASES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += base.1.len();
        self.young.insert(key, base);
    }
}

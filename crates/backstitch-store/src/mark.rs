//! Which objects are needed.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    Error, Odb, Oid,
    hash::{self, OID_LEN},
    inventory::Inventory,
    object::Kind,
    reach,
};

/// Marks over an inventory. An object that is not in it was written later: it is followed, not marked.
pub(crate) struct Marks<'a> {
    odb: &'a Odb,
    inventory: &'a Inventory,
    /// By number.
    pub(crate) live: Vec<bool>,
    /// Objects marked by the last calls of [`root`](Self::root), in order; emptied by the caller.
    pub(crate) fresh: Vec<u32>,
    late: HashSet<[u8; OID_LEN]>,
    /// Damage that `verify --repair` wrote down: nothing more is lost by going on.
    known_damage: HashSet<Oid>,
    interrupt: &'a AtomicBool,
}

impl<'a> Marks<'a> {
    pub(crate) fn new(odb: &'a Odb, inventory: &'a Inventory, interrupt: &'a AtomicBool) -> Marks<'a> {
        let mut live = vec![false; inventory.ids.len()];
        if let Some(n) = inventory.find(&hash::raw(&hash::empty_tree())) {
            live[n as usize] = true;
        }
        Marks {
            odb,
            inventory,
            live,
            fresh: Vec::new(),
            late: HashSet::new(),
            known_damage: crate::verify::known_damage(odb.objects_dir()),
            interrupt,
        }
    }

    /// Marks what `root` reaches. An object that cannot be read is an error, unless its damage is known or `lenient`.
    pub(crate) fn root(&mut self, root: Oid, lenient: bool) -> Result<(), Error> {
        let mut todo: Vec<(Oid, Option<Kind>)> = vec![(root, None)];
        while let Some((oid, kind)) = todo.pop() {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let id = hash::raw(&oid);
            let here = self.inventory.find(&id);
            let seen = match here {
                Some(n) => std::mem::replace(&mut self.live[n as usize], true),
                None => !self.late.insert(id),
            };
            if seen || oid == hash::empty_tree() {
                continue;
            }
            self.fresh.extend(here);
            if kind == Some(Kind::Blob) {
                if here.is_none() && !self.odb.contains(&oid) && !lenient && !self.known_damage.contains(&oid)
                {
                    return Err(self.odb.missing(&oid));
                }
                continue;
            }
            let below = match self.kind(&oid, kind)? {
                Some(Kind::Blob) => continue,
                _ => self.odb.read(&oid).and_then(|(kind, data)| {
                    reach::links(kind, &data).ok_or_else(|| self.odb.mistaken(&oid, "cannot be understood"))
                }),
            };
            match below {
                Ok(below) => todo.extend(below),
                Err(_) if lenient || self.known_damage.contains(&oid) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// An object that is not in the inventory was reached.
    pub(crate) fn needs(&self, oid: &Oid) -> bool {
        self.late.contains(&hash::raw(oid))
    }

    /// The store's copy of it cannot be read, as `verify --repair` wrote down.
    pub(crate) fn is_damaged(&self, oid: &Oid) -> bool {
        self.known_damage.contains(oid)
    }

    /// What the object is, where that shows without reading all of it.
    fn kind(&self, oid: &Oid, expected: Option<Kind>) -> Result<Option<Kind>, Error> {
        match expected {
            Some(kind) => Ok(Some(kind)),
            None => Ok(self.odb.head(oid).ok().and_then(|(kind, _)| kind)),
        }
    }
}

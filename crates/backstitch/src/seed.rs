//! Contents that a capture need not read, because the user's git repository has them: ids from its index, as far as they
//! are proven (`backstitch_scan::Seed`), and the objects themselves linked or copied into the store.
//!
//! The index is read when a capture first finds something that the stat table does not know: at a first capture at once,
//! later only once there is so much of it that reading the index is less work than reading the files.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use backstitch_scan::{Rules, Seed, SeedPlace, Stat};
use backstitch_store::{Oid, Scratch, Writer};
use bstr::BStr;

/// A capture that has a stat table reads so many files before it reads git's index.
const LATER: u32 = 256;

/// What one capture may take over.
pub(crate) struct Seeding<'a> {
    rules: &'a Rules,
    /// Files to be read as ever before it begins.
    wait: u32,
    asked: AtomicU32,
    may_copy: bool,
    interrupt: &'a AtomicBool,
    seed: OnceLock<Option<Seed>>,
    adopted: OnceLock<()>,
}

impl<'a> Seeding<'a> {
    /// `first`: the stat table knows nothing. `may_copy`: there is room for objects that cannot be linked.
    pub(crate) fn new(
        rules: &'a Rules,
        first: bool,
        may_copy: bool,
        interrupt: &'a AtomicBool,
    ) -> Seeding<'a> {
        Seeding {
            rules,
            wait: if first { 0 } else { LATER },
            asked: AtomicU32::new(0),
            may_copy,
            interrupt,
            seed: OnceLock::new(),
            adopted: OnceLock::new(),
        }
    }

    /// The id of a file's content, which is in the store then.
    pub(crate) fn known(
        &self,
        writer: &Writer,
        (scratch, place): (&mut Scratch, &mut SeedPlace),
        path: &BStr,
        stat: &Stat,
        granularity_ns: i128,
    ) -> Option<Oid> {
        if self.wait > 0 && self.asked.fetch_add(1, Ordering::Relaxed) < self.wait {
            return None;
        }
        let seed = self.seed.get_or_init(|| self.rules.seed()).as_ref()?;
        let oid = seed.content(place, path, stat, granularity_ns)?;
        let size = match writer.packed_size(scratch, &oid) {
            Some(size) => size,
            None => {
                self.adopted.get_or_init(|| {
                    // What cannot be taken over is read.
                    let _ = writer.adopt(seed.objects(), self.may_copy, &mut seed.ids(), self.interrupt);
                });
                writer.packed_size(scratch, &oid)?
            }
        };
        // An object of another size is what git made of the file, or was made from.
        (size == stat.size).then_some(oid)
    }
}

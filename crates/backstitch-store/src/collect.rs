//! Fewer files, and no bytes that nobody needs: consolidation, collection and expunging.
//!
//! All three are one mechanism: which objects stay is decided beside running captures, they are copied (or made deltas) into
//! new packs that are durable, and then, in short moments in which no capture runs, the files that they came from go. So
//! at every byte each object that stays is in the store at least once, and a reader that held a pack that is gone looks
//! again and finds it elsewhere.

use std::{
    collections::HashSet,
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use crate::{
    Edit, Error, Expect, Odb, Oid, Store, hash,
    inventory::{Inventory, PackFile},
    layout::{self, Step, Zeal},
    mark::Marks,
    parked,
    repack::{self, Repack},
    sweep::{End, Sweeper},
};

/// How to go about it.
#[derive(Clone, Copy)]
pub struct Care<'a> {
    /// Change nothing, only tell what would be done.
    pub dry_run: bool,
    /// How long to wait for another collection, and then for a moment in which no capture runs.
    pub wait: Duration,
    /// Bytes that may be written before anything goes. What needs more is left as it is, and named.
    pub room: u64,
    /// Set to stop; what was done by then stays done.
    pub interrupt: &'a AtomicBool,
    /// Told (steps done, in all).
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Default for Care<'_> {
    fn default() -> Self {
        Care {
            dry_run: false,
            wait: Duration::from_secs(30),
            room: u64::MAX,
            interrupt: &NEVER,
            progress: &|_, _| {},
        }
    }
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects that stay.
    pub live_objects: u64,
    /// Their bytes as stored.
    pub live_bytes: u64,
    /// Objects that go, or would if it were worth it: nothing needs them.
    pub garbage_objects: u64,
    /// Their bytes as stored.
    pub garbage_bytes: u64,
    /// Of those that stay: not reachable, but younger than the grace, or needed by such.
    pub recent_objects: u64,
    /// Their bytes as stored.
    pub recent_bytes: u64,
    /// Bytes on disk that became free, less those of new files.
    pub freed_bytes: u64,
    /// Bytes on disk of new packs.
    pub written_bytes: u64,
    /// Packs before and after.
    pub packs: (u64, u64),
    /// Loose objects before and after.
    pub loose: (u64, u64),
    /// Files that were left as they are, and why.
    pub left: Vec<(PathBuf, String)>,
    /// Of the objects to be expunged: those that a ref still reaches. They were left.
    pub still_reachable: Vec<Oid>,
}

/// Which objects go.
#[derive(Clone, Copy)]
enum Remove<'a> {
    Nothing,
    Unreachable { grace: Duration, let_go: &'a [(String, Oid)] },
    These(&'a HashSet<Oid>),
}

/// The lock of whoever removes files: one at a time.
pub(crate) const COLLECT: &str = "collect";
/// So often a capture that needs what was about to go makes the decision anew.
const ROUNDS: u32 = 3;

impl Store {
    /// Joins packs, and loose objects of ordinary size, so that of any number few are left, each at least twice as large
    /// as all smaller ones together. Entries are copied as they are; nothing is lost, whether a ref needs it or not.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one runs. A file that cannot be read is in `left`.
    ///
    /// ```
    /// # use backstitch_store::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tmp = tempfile::tempdir()?;
    /// # let manifest = Manifest { format: FORMAT, path: "/x".into(), dev: 1, ino: 2, birth_ns: None,
    /// #     created_ms: 0, last_used_ms: 0, extra: Default::default() };
    /// # let store = Store::create(&tmp.path().join("store"), &manifest, Durability::None)?;
    /// for text in ["one", "two", "three"] {
    ///     let writer = store.writer()?;
    ///     writer.blob(&mut writer.scratch(), text.as_bytes())?;
    ///     writer.finish()?;
    /// }
    /// assert_eq!(store.consolidate(&Care::default())?.packs, (3, 1));
    /// // No ref needs them: a collection without grace frees them.
    /// let swept = store.collect(std::time::Duration::ZERO, &[], &Care::default())?;
    /// assert_eq!((swept.garbage_objects, swept.packs), (3, (1, 0)));
    /// # Ok(()) }
    /// ```
    pub fn consolidate(&self, care: &Care<'_>) -> Result<Swept, Error> {
        self.space(Remove::Nothing, Zeal::Join, care)
    }

    /// Removes objects that no ref reaches and that are older than `grace`, and consolidates. What a young object points
    /// to stays with it. Parked contents that no ref reaches go at once. Without grace every such byte goes; with it,
    /// packs are written anew only where at least a tenth becomes free, or where they came from elsewhere, and what deltas
    /// build on stays. The refs in `let_go` count as gone, and are
    /// deleted once it is certain that nothing is in doubt, if they still have these ids.
    ///
    /// Runs beside captures; only the removal of files, in moments of some ten milliseconds, excludes who holds the lock
    /// `store` shared.
    ///
    /// # Errors
    /// [`Error::Damaged`] where a ref, or an object that one needs, cannot be read and is not known to be damaged:
    /// nothing is removed while anything is in doubt. [`Error::Busy`] while another one runs.
    pub fn collect(
        &self,
        grace: Duration,
        let_go: &[(String, Oid)],
        care: &Care<'_>,
    ) -> Result<Swept, Error> {
        let zeal = if grace.is_zero() { Zeal::All } else { Zeal::Worthwhile };
        self.space(Remove::Unreachable { grace, let_go }, zeal, care)
    }

    /// Removes these objects from every pack and every loose file, at once and whatever their age, with all caches and
    /// remains of dead processes, which may hold their bytes too. Those that a ref still reaches are left and named.
    ///
    /// # Errors
    /// As [`collect`](Self::collect). A file that could not be written anew is in `left`: the bytes are still in it.
    pub fn expunge(&self, oids: &[Oid], care: &Care<'_>) -> Result<Swept, Error> {
        let these: HashSet<Oid> = oids.iter().copied().collect();
        let swept = self.space(Remove::These(&these), Zeal::All, care)?;
        if !care.dry_run {
            self.drop_caches()?;
        }
        Ok(swept)
    }

    fn space(&self, remove: Remove<'_>, zeal: Zeal, care: &Care<'_>) -> Result<Swept, Error> {
        let _one = self.lock_exclusive(COLLECT, care.wait)?;
        if !care.dry_run {
            self.clean_stale()?;
        }
        let mut total: Option<Swept> = None;
        for round in 1.. {
            let (swept, revived) = self.round(remove, zeal, care)?;
            let total =
                total.get_or_insert_with(|| Swept { freed_bytes: 0, written_bytes: 0, ..swept.clone() });
            total.freed_bytes += swept.freed_bytes;
            total.written_bytes += swept.written_bytes;
            total.packs.1 = swept.packs.1;
            total.loose.1 = swept.loose.1;
            total.left = swept.left;
            if !revived || round >= ROUNDS {
                break;
            }
        }
        Ok(total.unwrap_or_default())
    }

    /// One decision and its execution; true if it was cut short by a capture that needs something which was to go.
    fn round(&self, remove: Remove<'_>, zeal: Zeal, care: &Care<'_>) -> Result<(Swept, bool), Error> {
        let odb = self.odb()?;
        let inventory = Inventory::take(&odb)?;
        let mut marks = Marks::new(&odb, &inventory, care.interrupt);
        let mut swept = Swept {
            packs: (inventory.packs.len() as u64, inventory.packs.len() as u64),
            loose: (inventory.loose.len() as u64, inventory.loose.len() as u64),
            ..Swept::default()
        };
        let mut sweeper = Sweeper::new(self, &odb, &inventory);
        let keep = self.decide(remove, &inventory, &mut marks, &mut sweeper, &mut swept)?;
        let expunged = |file: &PackFile| file.entries.iter().any(|e| !keep[e.object as usize]);
        let stay = |file: &PackFile| match remove {
            Remove::Nothing => file.linked || file.seed || file.kept,
            Remove::Unreachable { .. } => file.kept,
            Remove::These(_) => (file.linked || file.kept) && !expunged(file),
        };
        let steps = layout::steps(&inventory, &keep, zeal, &stay);
        let orphans = match remove {
            Remove::Nothing => &[][..],
            _ => &inventory.orphans[..],
        };
        if care.dry_run {
            swept.predict(&inventory, &steps, orphans);
            for (_, path) in self.parked_garbage(&odb, remove, &marks)? {
                swept.freed_bytes += disk_of_file(&path);
            }
            return Ok((swept, false));
        }
        if let Remove::Unreachable { let_go, .. } = remove {
            self.let_go(let_go)?;
        }
        let mut room = care.room;
        let mut revived = false;
        {
            let alive = self.alive()?;
            for (n, step) in steps.iter().enumerate() {
                (care.progress)(n as u64, steps.len() as u64);
                if care.interrupt.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                if step.bytes > room {
                    swept.leave(&inventory, step, format!("{} bytes of room are needed", step.bytes));
                    continue;
                }
                let new = match self.write(&odb, &inventory, step) {
                    Ok(new) => new,
                    Err(e) if is_local(&e) => {
                        swept.leave(&inventory, step, e.to_string());
                        continue;
                    }
                    Err(e) => return Err(e),
                };
                let needs_all = matches!(remove, Remove::Nothing);
                let guard = (!needs_all).then_some((&mut marks, &keep[..]));
                let gone = sweeper.retire(step, new.as_deref(), guard, care.wait)?;
                let written = new.as_deref().map_or(0, disk_of);
                swept.freed_bytes += gone.bytes.saturating_sub(written);
                swept.written_bytes += written;
                swept.packs.1 = swept.packs.1 + u64::from(new.is_some()) - gone.packs;
                swept.loose.1 -= gone.loose;
                room = room.saturating_add(gone.bytes).saturating_sub(written);
                match gone.end {
                    End::Done => {}
                    End::Busy => swept.leave(&inventory, step, "captures are running".to_owned()),
                    End::Revived => {
                        revived = true;
                        break;
                    }
                }
            }
            drop(alive);
        }
        (care.progress)(steps.len() as u64, steps.len() as u64);
        if !orphans.is_empty() {
            swept.freed_bytes += self.remove_orphans(orphans)?;
        }
        odb.refresh()?;
        if !revived {
            swept.freed_bytes += self.sweep_parked(&odb, remove, &mut marks, &mut sweeper, care.wait)?;
        }
        Ok((swept, revived))
    }

    /// Parked contents that nothing needs, or that are objects of the store by now.
    fn parked_garbage(
        &self,
        odb: &Odb,
        remove: Remove<'_>,
        marks: &Marks<'_>,
    ) -> Result<Vec<(Oid, PathBuf)>, Error> {
        if self.is_changing_the_tree() {
            return Ok(Vec::new());
        }
        let goes = |oid: &Oid| match remove {
            _ if odb.holds_copy(oid) => !marks.is_damaged(oid),
            Remove::Nothing => false,
            Remove::Unreachable { .. } => !marks.needs(oid),
            Remove::These(these) => these.contains(oid) && !marks.needs(oid),
        };
        Ok(parked::list(self.dir())?.into_iter().filter(|(oid, _)| goes(oid)).collect())
    }

    /// Removes them, in a moment in which nothing is recorded and no operation runs. Bytes on disk that became free.
    fn sweep_parked(
        &self,
        odb: &Odb,
        remove: Remove<'_>,
        marks: &mut Marks<'_>,
        sweeper: &mut Sweeper<'_>,
        wait: Duration,
    ) -> Result<u64, Error> {
        if self.parked_garbage(odb, remove, marks)?.is_empty() {
            return Ok(0);
        }
        sweeper.alone(marks, wait, |marks| {
            let gone = self.parked_garbage(odb, remove, marks)?;
            gone.iter().map(|(_, path)| parked::remove(path)).sum()
        })
    }

    fn let_go(&self, refs: &[(String, Oid)]) -> Result<(), Error> {
        let edit =
            |(name, oid): &(String, Oid)| Edit { name: name.clone(), expect: Expect::Is(*oid), new: None };
        for edits in refs.iter().map(edit).collect::<Vec<_>>().chunks(500) {
            let mut rest = edits;
            while !rest.is_empty() {
                match self.refs().apply(rest) {
                    Ok(()) => break,
                    // What somebody has moved meanwhile counts as new; those before it are gone.
                    Err(Error::RefMoved { name }) => {
                        let at = rest.iter().position(|e| e.name == name).unwrap_or(rest.len());
                        rest = rest.get(at + 1..).unwrap_or_default();
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Which objects stay, by number.
    fn decide(
        &self,
        remove: Remove<'_>,
        inventory: &Inventory,
        marks: &mut Marks<'_>,
        sweeper: &mut Sweeper<'_>,
        swept: &mut Swept,
    ) -> Result<Vec<bool>, Error> {
        let mut keep = vec![true; inventory.ids.len()];
        match remove {
            Remove::Nothing => {}
            Remove::Unreachable { grace, let_go } => {
                if let Some((path, what)) = inventory.set.broken.first() {
                    return Err(Error::damaged(path, what));
                }
                sweeper.mark_refs(marks, let_go)?;
                keep.copy_from_slice(&marks.live);
                let now = SystemTime::now();
                let young = |t: SystemTime| now.duration_since(t).map_or(!grace.is_zero(), |age| age < grace);
                // What somebody else's pack holds besides is nobody's here, whatever its age.
                let packed = inventory.packs.iter().filter(|f| young(f.modified) && !f.seed);
                let packed = packed.flat_map(|f| f.entries.iter().map(|e| e.object));
                let loose = inventory.loose.iter().filter(|f| young(f.modified)).map(|f| f.object);
                let recent: Vec<u32> = packed.chain(loose).filter(|n| !keep[*n as usize]).collect();
                for n in recent {
                    marks.root(inventory.oid(n), true)?;
                }
                for (n, live) in marks.live.iter().enumerate() {
                    if *live && !keep[n] {
                        swept.recent_objects += 1;
                        swept.recent_bytes += inventory.stored(n as u32);
                        keep[n] = true;
                    }
                }
                if !grace.is_zero() {
                    // So that entries can be copied as they are.
                    inventory.keep_bases(&mut keep);
                }
            }
            Remove::These(these) => {
                sweeper.mark_refs(marks, &[])?;
                for oid in these {
                    let Some(n) = inventory.find(&hash::raw(oid)) else { continue };
                    match marks.live[n as usize] {
                        true => swept.still_reachable.push(*oid),
                        false => keep[n as usize] = false,
                    }
                }
                swept.still_reachable.sort_unstable();
                // Everything else stays, so nothing else can come back to life.
                for (n, k) in keep.iter().enumerate() {
                    marks.live[n] |= *k;
                }
            }
        }
        for (n, k) in keep.iter().enumerate() {
            let stored = inventory.stored(n as u32);
            if !k && inventory.is_free(n as u32) {
                continue;
            }
            let (objects, bytes) = match k {
                true => (&mut swept.live_objects, &mut swept.live_bytes),
                false => (&mut swept.garbage_objects, &mut swept.garbage_bytes),
            };
            *objects += 1;
            *bytes += stored;
        }
        marks.fresh.clear();
        Ok(keep)
    }

    /// Writes what a step keeps; none if that is nothing.
    fn write(&self, odb: &Odb, inventory: &Inventory, step: &Step) -> Result<Option<PathBuf>, Error> {
        if step.keep.is_empty() {
            return Ok(None);
        }
        let count = u32::try_from(step.keep.len());
        let count = count.map_err(|_| Error::invalid("too many objects for one pack"))?;
        let versions = repack::versions(odb, inventory, &step.keep)?;
        let mut new = Repack::new(odb, inventory, count)?.with_versions(versions);
        let done = step.keep.iter().try_for_each(|n| new.add(*n));
        step.packs.iter().for_each(|p| inventory.packs[*p].pack.close());
        done?;
        let packs = step.packs.iter().map(|p| inventory.packs[*p].modified);
        let loose = step.loose.iter().map(|n| inventory.loose[*n].modified);
        let modified = packs.chain(loose).max().unwrap_or(SystemTime::UNIX_EPOCH);
        new.finish(modified, self.durability()).map(Some)
    }
}

/// Touches only the files of one step.
fn is_local(e: &Error) -> bool {
    match e {
        Error::Damaged { .. } | Error::Missing { .. } => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ),
        _ => false,
    }
}

fn disk_of(pack: &std::path::Path) -> u64 {
    disk_of_file(pack) + disk_of_file(&pack.with_extension("idx"))
}

fn disk_of_file(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |m| m.blocks() * 512)
}

impl Swept {
    fn leave(&mut self, inventory: &Inventory, step: &Step, why: String) {
        let packs = step.packs.iter().map(|p| inventory.packs[*p].pack.path.clone());
        let loose = step.loose.iter().map(|n| inventory.loose[*n].path.clone());
        self.left.extend(packs.chain(loose).map(|p| (p, why.clone())));
    }

    fn predict(&mut self, inventory: &Inventory, steps: &[Step], orphans: &[PathBuf]) {
        let mut gone: u64 = orphans.iter().map(|p| disk_of(p)).sum();
        let mut leaving = HashSet::new();
        for step in steps {
            gone += step.gone;
            self.written_bytes += step.bytes;
            self.packs.1 = self.packs.1 + u64::from(!step.keep.is_empty()) - step.packs.len() as u64;
            self.loose.1 -= step.loose.len() as u64;
            leaving.extend(step.loose.iter().copied());
        }
        let dir = |n: usize| inventory.loose[n].path.parent();
        let staying: HashSet<_> =
            (0..inventory.loose.len()).filter(|n| !leaving.contains(n)).map(dir).collect();
        let emptied: HashSet<_> = leaving.iter().map(|n| dir(*n)).filter(|d| !staying.contains(d)).collect();
        gone += layout::on_disk(1) * emptied.len() as u64;
        self.freed_bytes = gone.saturating_sub(self.written_bytes);
    }
}

//! Room: collection, consolidation, and whose bytes they are.

use std::{
    collections::HashMap,
    io,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use backstitch_store::{Account, Care, Error as StoreError, Oid, Store, Swept};
use serde_json::{Value, json};

use crate::{
    error::{Code, Result},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, TRASH},
    room::free,
    workspace::{Control, Workspace},
};

/// A row in the trash is freed by itself after this.
const TRASH_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// What no ref reaches is kept this long by collection that runs by itself.
const GRACE: Duration = Duration::from_secs(24 * 3600);
/// A capture that finds more packs than this has them joined.
const PACKS: usize = 50;
/// A capture that finds more loose objects than this has them joined.
const LOOSE: usize = 1000;
/// A row whose commit is a loose object counts all of them once in so many times.
const DICE: u8 = 16;
/// Of the 256 folders of loose objects one in so many is counted.
const SAMPLE: usize = 16;
/// So long after one start no other process is started.
const PAUSE: Duration = Duration::from_secs(1);
/// So long after one start packs from elsewhere are no reason for another.
const RETRY: Duration = Duration::from_secs(600);
/// How long collection that runs by itself waits for moments without captures.
const PATIENCE: Duration = Duration::from_secs(60);
/// A capture that finds more loose refs than this has them packed, too.
const LOOSE_REFS: usize = 64;
/// What collection leaves free on the disk.
const SPARE: u64 = 16 << 20;
/// A list computes the bytes of rows where the store holds no more objects than this, some ten milliseconds' work; of a
/// larger store it gives them only if they are known already.
const QUICK: usize = 4_000;

/// What a collection did, or would do.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Rows of the trash that are gone for good.
    pub rows: u64,
    /// Bytes on disk that became free.
    pub freed: u64,
    /// Bytes on disk that the store takes afterwards.
    pub used: u64,
    /// The store's part.
    pub swept: Swept,
}

impl Collection {
    /// Something was left as it is.
    pub fn is_partial(&self) -> bool {
        !self.swept.left.is_empty()
    }

    /// CONTRACT's answer to `gc`.
    pub fn to_json(&self) -> Value {
        let s = &self.swept;
        json!({
            "dry_run": self.dry_run,
            "checkpoints": self.rows,
            "freed_bytes": self.freed,
            "used_bytes": self.used,
            "live_bytes": s.live_bytes,
            "garbage_bytes": s.garbage_bytes,
            "garbage_objects": s.garbage_objects,
            "recent_bytes": s.recent_bytes,
            "packs": {"before": s.packs.0, "after": s.packs.1},
            "loose": {"before": s.loose.0, "after": s.loose.1},
            "left": s.left.iter().map(|(path, why)| {
                json!({"path": paths::bytes(path).to_string(), "reason": why})
            }).collect::<Vec<_>>(),
            "partial": self.is_partial(),
        })
    }
}

/// Refs that a collection lets go of.
type Trash = Vec<(String, Oid)>;

impl Workspace {
    /// Frees at once everything that no row, operation or session needs, the trash included, and joins packs. A row that
    /// was deleted cannot be brought back after this. With `dry_run` nothing is changed, and what is told is within a few
    /// per cent of what would be freed.
    ///
    /// # Errors
    /// `store-damaged` where something that a row needs cannot be read and `verify --repair` has not dealt with it:
    /// nothing is removed while anything is in doubt. `busy` while another collection runs.
    pub fn gc(&self, dry_run: bool, control: &Control<'_>) -> Result<Collection> {
        let trash = self.trash(None)?;
        self.collect(trash, Duration::ZERO, dry_run, self.lock_wait(), control)
    }

    /// What runs by itself: frees what has been in the trash for a week and what nobody has needed for a day, and joins
    /// packs. None if somebody else is at it.
    ///
    /// # Errors
    /// As [`gc`](Self::gc), but with damage packs are joined all the same.
    pub fn maintain(&self, control: &Control<'_>) -> Result<Option<Collection>> {
        match self.store()?.lock_exclusive("collect", Duration::ZERO) {
            Ok(free) => drop(free),
            Err(StoreError::Busy { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        // A failure of the policy keeps more than it wants, and nothing else.
        let _ = self.prune_when_idle();
        let trash = self.trash(Some(TRASH_KEPT))?;
        match self.collect(trash, GRACE, false, PATIENCE, control) {
            Err(e) if e.code == Code::StoreDamaged => {
                let swept = self.store()?.consolidate(&self.care(PATIENCE, control)?)?;
                self.store()?.refs().pack()?;
                Ok(Some(Collection { freed: swept.freed_bytes, swept, ..Collection::default() }))
            }
            done => done.map(Some),
        }
    }

    /// Refs in the trash; with `age` only those of rows that were deleted longer ago, as operations tell.
    fn trash(&self, age: Option<Duration>) -> Result<Trash> {
        let mut trash = self.store()?.refs().list(TRASH)?;
        let Some(age) = age else { return Ok(trash) };
        let mut deleted: HashMap<String, i64> = HashMap::new();
        for op in self.operations()? {
            for (id, _) in &op.record.rows {
                let last = deleted.entry(id.clone()).or_insert(i64::MIN);
                *last = op.record.created_ms.max(*last);
            }
        }
        let limit = record::now_ms().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        // A row whose deletion no operation names is a person's to free.
        trash.retain(|(name, _)| deleted.get(&name[TRASH.len()..]).is_some_and(|at| *at < limit));
        Ok(trash)
    }

    /// How carefully a collection goes about it: as long as `wait`, with what the disk has left.
    pub(crate) fn care<'a>(&self, wait: Duration, control: &Control<'a>) -> Result<Care<'a>> {
        let room = free(self.store()?.dir()).map_or(u64::MAX, |f| f.saturating_sub(SPARE));
        Ok(Care { wait, room, interrupt: control.interrupt, ..Care::default() })
    }

    fn collect(
        &self,
        trash: Trash,
        grace: Duration,
        dry_run: bool,
        wait: Duration,
        control: &Control<'_>,
    ) -> Result<Collection> {
        let store = self.store()?;
        let of_refs = refs_freed(store, &trash)?;
        let progress = |done: u64, total: u64| (control.progress)("collecting", done, total);
        let care = Care { dry_run, progress: &progress, ..self.care(wait, control)? };
        let mut swept = store.collect(grace, &trash, &care)?;
        if !dry_run {
            self.take_in(&mut swept, wait)?;
        }
        if of_refs.pack && !dry_run {
            store.refs().pack()?;
        }
        let freed = swept.freed_bytes + of_refs.bytes;
        let used = store.used()?;
        Ok(Collection {
            dry_run,
            rows: trash.len() as u64,
            freed,
            used: if dry_run { used.saturating_sub(freed) } else { used },
            swept,
        })
    }

    /// What is still parked is needed: it becomes objects where there is room by now. Not while an operation runs, which
    /// may be reading it.
    fn take_in(&self, swept: &mut Swept, wait: Duration) -> Result<()> {
        let store = self.store()?;
        if store.parked()?.is_empty() {
            return Ok(());
        }
        let _lock = match self.lock_capture() {
            Err(e) if e.code == Code::Busy => return Ok(()),
            lock => lock?,
        };
        let taken = store.take_in(self.above_floor()?, wait)?;
        swept.freed_bytes = (swept.freed_bytes + taken.freed_bytes).saturating_sub(taken.written_bytes);
        swept.written_bytes += taken.written_bytes;
        swept.left.extend(taken.left);
        Ok(())
    }

    /// Bytes on disk that are the store's alone, and those that it shares with the user's repository by links.
    pub(crate) fn used(&self) -> Result<(u64, u64)> {
        let u = self.store()?.disk_usage()?;
        Ok((u.total.saturating_sub(u.linked), u.linked))
    }

    /// Whose bytes they are, by id of the row. With `quick` none where it is not known and would take long.
    ///
    /// # Errors
    /// An index of the store that cannot be read.
    pub fn bytes(&self, quick: bool, control: &Control<'_>) -> Result<Option<Account>> {
        let most = if quick { QUICK } else { usize::MAX };
        Ok(self.store()?.account(CHECKPOINTS, most, control.interrupt)?)
    }

    /// Starts a process that joins packs, and takes in what is parked, if this row is the one that makes it worth while.
    /// The process has nothing of this one's: no pipes, no terminal, no session, no folder.
    pub(crate) fn tend(&self, commit: &Oid, loose: bool) {
        let parked = |s: &Store| {
            let room = self.above_floor().unwrap_or(0);
            s.parked().is_ok_and(|all| all.iter().any(|(_, bytes)| *bytes <= room))
        };
        let needed = |s: &Store| needs_tending(s, commit, loose) || parked(s);
        if self.tends_itself() && self.store().is_ok_and(needed) {
            self.start_tending();
        }
    }

    /// Work that nobody has to wait for may go to a process of its own.
    pub(crate) fn tends_itself(&self) -> bool {
        self.surroundings().program.is_some() && self.settings().flag("gc.auto")
    }

    /// Starts the process, unless one was started just now. Best effort: the next row comes by again.
    pub(crate) fn start_tending(&self) {
        if let (Some(program), Ok(store)) = (&self.surroundings().program, self.store()) {
            let _ = self.spawn_tending(store, program);
        }
    }

    fn spawn_tending(&self, store: &Store, program: &PathBuf) -> io::Result<()> {
        match store.lock_exclusive("collect", Duration::ZERO) {
            Ok(free) => drop(free),
            Err(_) => return Ok(()),
        }
        let mark = store.state_dir().join("tended");
        let last = mark.metadata().and_then(|m| m.modified());
        if last.is_ok_and(|t| SystemTime::now().duration_since(t).is_ok_and(|age| age < PAUSE)) {
            return Ok(());
        }
        std::fs::write(&mark, b"")?;
        let mut child = Command::new(program)
            .args(["gc", "--auto", "--as-person", "--store-dir"])
            .arg(&self.surroundings().store_base)
            .arg("-C")
            .arg(self.root())
            .current_dir("/")
            .env_remove("BACKSTITCH_SESSION")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        // Where this process lives on, it takes leave of the other; if not, somebody else does.
        std::thread::Builder::new().spawn(move || drop(child.wait())).map(drop)
    }
}

fn needs_tending(store: &Store, commit: &Oid, loose: bool) -> bool {
    let objects = store.git_dir().join("objects");
    let count = |dir: PathBuf, suffix: &str| {
        std::fs::read_dir(dir).map_or(0, |entries| {
            entries.flatten().filter(|e| e.file_name().to_string_lossy().ends_with(suffix)).count()
        })
    };
    if count(objects.join("pack"), ".idx") > PACKS
        || count(store.git_dir().join(CHECKPOINTS), "") > LOOSE_REFS
    {
        return true;
    }
    // Packs that came from elsewhere are replaced soon; what there was no room for is not tried with every row.
    let mark = store.state_dir().join("tended").metadata().and_then(|m| m.modified());
    if store.has_seeds()
        && !mark.is_ok_and(|t| SystemTime::now().duration_since(t).is_ok_and(|age| age < RETRY))
    {
        return true;
    }
    // Ids are as good as dice.
    loose
        && commit.as_slice()[19].is_multiple_of(DICE)
        && (0..=255u8).step_by(SAMPLE).map(|b| count(objects.join(format!("{b:02x}")), "")).sum::<usize>()
            > LOOSE / SAMPLE
}

/// What becomes free among the refs.
struct RefsFreed {
    bytes: u64,
    /// The loose ones are to be packed.
    pack: bool,
}

fn refs_freed(store: &Store, trash: &Trash) -> Result<RefsFreed> {
    let git = store.git_dir();
    let loose = store.refs().loose("refs/")?;
    let block = |len: u64| len.next_multiple_of(4096);
    let gone: std::collections::HashSet<&str> = trash.iter().map(|(n, _)| n.as_str()).collect();
    let staying: Vec<&String> = loose.iter().filter(|n| !gone.contains(n.as_str())).collect();
    let pack = staying.len() > LOOSE_REFS;
    let on_disk = |name: &String| git.join(name).metadata().map_or(0, |m| m.blocks() * 512);
    let bytes: u64 = loose.iter().filter(|n| pack || gone.contains(n.as_str())).map(on_disk).sum();
    let old = git.join("packed-refs").metadata().map_or((0, 0), |m| (m.len(), m.blocks() * 512));
    let line = |name: &str| name.len() as u64 + 42;
    let leaves: u64 =
        trash.iter().map(|(n, _)| n).filter(|n| loose.binary_search(n).is_err()).map(|n| line(n)).sum();
    let comes: u64 = if pack { staying.iter().map(|n| line(n)).sum() } else { 0 };
    let new = if leaves + comes == 0 { old.1 } else { block((old.0 + comes).saturating_sub(leaves).max(27)) };
    Ok(RefsFreed { bytes: (bytes + old.1).saturating_sub(new), pack })
}

/// Puts `bytes` into the shape of a row, where they are known.
pub fn put_bytes(shape: &mut Value, row: &Checkpoint, account: Option<&Account>) {
    let name = format!("{CHECKPOINTS}{}", row.record.id);
    if let (Some(share), Some(m)) = (account.and_then(|a| a.refs.get(&name)), shape.as_object_mut()) {
        m.insert("bytes".to_owned(), json!({"unique": share.unique, "shared": share.shared}));
    }
}

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
/// So long after one start no other process is started.
const PAUSE: Duration = Duration::from_secs(60);
/// How long collection that runs by itself waits for moments without captures.
const PATIENCE: Duration = Duration::from_secs(60);
/// More loose refs than this are packed on the way.
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

    /// What [`gc`](Self::gc) would free if these refs (full names) were gone as well, in bytes on disk.
    ///
    /// # Errors
    /// As [`gc`](Self::gc).
    pub fn would_free(&self, refs: &[String], control: &Control<'_>) -> Result<u64> {
        let care = Care { dry_run: true, ..self.care(self.lock_wait(), control)? };
        let store = self.store()?;
        let mut gone = self.trash(None)?;
        for name in refs {
            gone.extend(store.refs().get(name)?.map(|oid| (name.clone(), oid)));
        }
        Ok(store.collect(Duration::ZERO, &gone, &care)?.freed_bytes)
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
        let trash = self.trash(Some(TRASH_KEPT))?;
        match self.collect(trash, GRACE, false, PATIENCE, control) {
            Err(e) if e.code == Code::StoreDamaged => {
                let swept = self.store()?.consolidate(&self.care(PATIENCE, control)?)?;
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

    fn care<'a>(&self, wait: Duration, control: &Control<'a>) -> Result<Care<'a>> {
        let room = rustix::fs::statvfs(self.store()?.dir())
            .map_or(u64::MAX, |v| v.f_bavail.saturating_mul(v.f_frsize).saturating_sub(SPARE));
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
        let swept = store.collect(grace, &trash, &care)?;
        if of_refs.pack && !dry_run {
            store.refs().pack()?;
        }
        let freed = swept.freed_bytes + of_refs.bytes;
        let used = self.used()?.0;
        Ok(Collection {
            dry_run,
            rows: trash.len() as u64,
            freed,
            used: if dry_run { used.saturating_sub(freed) } else { used },
            swept,
        })
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

    /// Starts a process that joins packs, if this row is the one that makes it worth while. The process has nothing of
    /// this one's: no pipes, no terminal, no session, no folder.
    pub(crate) fn tend(&self, commit: &Oid, loose: bool) {
        let Some(program) = &self.surroundings().program else { return };
        let Ok(store) = self.store() else { return };
        if !self.settings().flag("gc.auto") || !needs_tending(store, commit, loose) {
            return;
        }
        // Best effort: the next row comes by again.
        let _ = self.start_tending(store, program);
    }

    fn start_tending(&self, store: &Store, program: &PathBuf) -> io::Result<()> {
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
        // The shell closes what a host may have left open, and ends at once, so that nobody has to wait for the other.
        let script = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; \"$0\" \"$@\" </dev/null >/dev/null 2>&1 &";
        Command::new("/bin/sh")
            .args(["-c", script])
            .arg(program)
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
            .status()
            .map(drop)
    }
}

fn needs_tending(store: &Store, commit: &Oid, loose: bool) -> bool {
    let objects = store.git_dir().join("objects");
    let count = |dir: PathBuf, suffix: &str| {
        std::fs::read_dir(dir).map_or(0, |entries| {
            entries.flatten().filter(|e| e.file_name().to_string_lossy().ends_with(suffix)).count()
        })
    };
    if count(objects.join("pack"), ".idx") > PACKS {
        return true;
    }
    // Ids are as good as dice.
    loose
        && commit.as_slice()[19].is_multiple_of(DICE)
        && (0..=255u8).map(|b| count(objects.join(format!("{b:02x}")), "")).sum::<usize>() > LOOSE
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

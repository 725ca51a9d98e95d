//! The store's ceiling and the floor of free disk space (DESIGN rule 6): looked at before anything is written, and room
//! made where the policy has something to give.

use std::{path::Path, time::Duration};

use backstitch_store::{Care, Odb, Oid};
use bstr::ByteSlice;

use crate::{
    capture::Room,
    error::{Code, Error, Result},
    operation::OpKind,
    paths,
    place::Place,
    plan::{Action, Item, Plan, Stand},
    record::{self, Checkpoint, TRASH},
    retention::{self, Facts},
    settings::show_bytes,
    trash,
    tree::Node,
    workspace::{Control, Workspace},
};

/// Free bytes for this user; none where the file system does not say.
pub(crate) fn free(dir: &Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|v| v.f_bavail.saturating_mul(v.f_frsize))
}

/// The reason of a path that is kept because its present bytes can be neither copied nor moved into the store.
pub(crate) const NO_ROOM: &str = "no-room";

/// What a person should know of paths that were kept for want of room.
pub(crate) fn warning(items: &[Item]) -> Option<String> {
    let mut kept = items.iter().filter(|i| i.reason.as_deref() == Some(NO_ROOM));
    let first = kept.next()?.path.to_str_lossy();
    let paths = match kept.count() {
        0 => format!("{first} was kept"),
        n => format!("{first} and {n} more were kept"),
    };
    Some(format!(
        "{paths}: free disk space is below the floor, and the present bytes can be neither copied nor moved into the \
         store; free some space, or lower `free_floor`, and do it again"
    ))
}

impl Workspace {
    /// Bytes that may be written before the floor of free disk space is met.
    pub(crate) fn above_floor(&self) -> Result<u64> {
        let floor = self.settings().int("free_floor");
        Ok(free(self.store()?.dir()).map_or(u64::MAX, |free| free.saturating_sub(floor)))
    }

    /// What an operation's look at the present may add. The floor refuses no operation: what does not fit is only hashed.
    pub(crate) fn room_to_look(&self) -> Result<Room> {
        Ok(Room::then_hashing(self.above_floor()?))
    }

    /// Decides where the present bytes of the plan's paths will be (SEMANTICS 14): in the store while there is room above
    /// the floor, else in `parked/`, moved there when they are replaced or deleted. What can be neither is kept. `odb`
    /// sees what was stored already. The caller settles the plan afterwards.
    pub(crate) fn find_room(&self, plan: &mut Plan, odb: &Odb) -> Result<()> {
        let mut room = self.above_floor()?;
        let size = |i: &Item| {
            let is_file = |s: &Stand| matches!(s.node, Node::File { .. });
            let path = paths::to_path(self.root(), i.path.as_bstr());
            let known = i.from.as_ref().is_some_and(is_file);
            known.then(|| path.symlink_metadata().map_or(0, |m| m.len()))
        };
        if plan.items.iter().filter_map(size).sum::<u64>() <= room {
            return Ok(());
        }
        let mut place = Place::of(self, "plan")?;
        for i in &mut plan.items {
            let Some(bytes) = size(i) else { continue };
            if i.from.as_ref().and_then(|s| s.node.oid()).is_none_or(|oid| odb.holds_copy(&oid)) {
                continue;
            }
            if bytes <= room {
                room -= bytes;
                continue;
            }
            plan.unheld.insert(i.path.clone());
            if i.action.changes() && !place.can_park(i.path.as_bstr()) {
                i.leave(Action::Keep, NO_ROOM);
            }
        }
        Ok(())
    }

    /// The floor of free disk space, for recording.
    ///
    /// # Errors
    /// `over-budget`.
    pub(crate) fn check_room(&self) -> Result<()> {
        let dir = self.store()?.dir();
        let Some(free) = free(dir) else { return Ok(()) };
        let floor = self.settings().int("free_floor");
        if free < floor {
            return Err(Error::new(
                Code::OverBudget,
                format!(
                    "{}: {} of disk space are free, below the floor of {}",
                    dir.display(),
                    show_bytes(free),
                    show_bytes(floor)
                ),
            )
            .at(dir)
            .hint("free some space, or lower `free_floor`; `backstitch gc` frees what the trash holds"));
        }
        Ok(())
    }

    /// Before a row: makes room where the store is over its ceiling or the disk below its floor, and refuses where that
    /// is not enough.
    ///
    /// # Errors
    /// `over-budget`: nothing was recorded.
    pub(crate) fn ensure_room(&self, control: &Control<'_>) -> Result<()> {
        let store = self.store()?;
        let budget = self.settings().int("budget");
        let used = || Ok::<u64, Error>(store.used()?);
        let lack = |used: u64| {
            let floor = self.settings().int("free_floor");
            let below = free(store.dir()).map_or(0, |f| floor.saturating_sub(f));
            let over = if used < budget { 0 } else { used - budget + 1 };
            over.max(below)
        };
        // Measured only where what was added up since the last time is too much.
        if lack(store.used_at_most()?) == 0 {
            return Ok(());
        }
        let need = lack(used()?);
        if need == 0 {
            return Ok(());
        }
        self.make_room(need, budget / 10, control)?;
        self.check_room()?;
        let used = used()?;
        if used < budget {
            return Ok(());
        }
        Err(Error::new(
            Code::OverBudget,
            format!(
                "{}: the store holds {} of a budget of {}, and nothing is left that may go by itself",
                store.dir().display(),
                show_bytes(used),
                show_bytes(budget)
            ),
        )
        .at(store.dir())
        .hint("raise `budget`, unpin or delete checkpoints and run `backstitch gc`; nothing was recorded"))
    }

    /// Frees the trash; if that is less than `need`, the oldest of the shortest-lived rows as well, never a pinned one,
    /// the newest, or what an open turn or a fork stands on. Where all of that is not enough, no row goes: recording is
    /// refused either way. `spare` more is freed if there is so much, so that the next rows need not do the same. What
    /// another process is freeing already is left to it.
    fn make_room(&self, need: u64, spare: u64, control: &Control<'_>) -> Result<()> {
        let store = self.store()?;
        let refs = store.refs();
        let Ok(_one) = store.lock_exclusive("prune", Duration::ZERO) else { return Ok(()) };
        let before = store.used()?;
        if !refs.list(TRASH)?.is_empty() {
            self.free_trash(control)?;
        }
        let freed = before.saturating_sub(store.used()?);
        let left = need.saturating_sub(freed);
        if left == 0 {
            return Ok(());
        }
        {
            // No operation runs, whose target might go.
            let _lock = self.lock_capture()?;
            let rows = self.rows()?;
            let (operations, sessions) = (self.operations()?, self.session_records()?);
            let facts = Facts {
                rows: &rows.all,
                sessions: &sessions,
                operations: &operations,
                now_ms: record::now_ms(),
            };
            let order = retention::for_room(&facts);
            let gone = self.least(&order, left, spare, control)?;
            if gone.is_empty() {
                return Ok(());
            }
            self.to_trash(OpKind::Prune, gone.iter().map(|c| trash::row(c)).collect(), trash::automatic())?;
        }
        self.free_trash(control)
    }

    fn free_trash(&self, control: &Control<'_>) -> Result<()> {
        match self.gc(false, control) {
            // Another one is at it.
            Err(e) if e.code == Code::Busy => Ok(()),
            r => r.map(drop),
        }
    }

    /// The shortest beginning of `order` that frees `need`, and `spare` if there is so much; nothing where it does not.
    fn least<'a>(
        &self,
        order: &[&'a Checkpoint],
        need: u64,
        spare: u64,
        control: &Control<'_>,
    ) -> Result<Vec<&'a Checkpoint>> {
        let ids: Vec<Oid> = order.iter().map(|c| c.commit).collect();
        let (mut sum, mut end) = (0, 0);
        for (n, bytes) in self.released(&ids, control)?.into_iter().enumerate() {
            if sum >= need.saturating_add(spare) {
                break;
            }
            sum += bytes;
            // A row that frees only its own record is not worth losing.
            if bytes > SMALL {
                end = n + 1;
            }
        }
        Ok(if sum < need { Vec::new() } else { order[..end].to_vec() })
    }

    /// Frees what no ref needs; the trash stays.
    pub(crate) fn collect_now(&self, control: &Control<'_>) -> Result<()> {
        let store = self.store()?;
        let progress = |done: u64, total: u64| (control.progress)("freeing space", done, total);
        let care = Care { progress: &progress, ..self.care(self.lock_wait(), control)? };
        match store.collect(Duration::ZERO, &[], &care) {
            // Another one is at it.
            Err(backstitch_store::Error::Busy { .. }) => Ok(()),
            r => Ok(r.map(drop)?),
        }
    }
}

/// A row's own commit and coverage.
const SMALL: u64 = 16 << 10;

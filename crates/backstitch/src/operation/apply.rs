//! Changing the tree as the items say, reading it back, and making it durable.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bstr::{BStr, BString, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    paths,
    place::{self, Place, Ready, Step, Syncs, Unexpected},
    plan::{Action, Item, Progress, Stand},
    room::NO_ROOM,
    tree,
    workspace::Control,
};

fn take(item: &mut Item, step: Step) {
    match step {
        Ok(()) => item.result = Progress::Done,
        // What the present file has could not be given to its replacement: it was not touched (SEMANTICS 17).
        Err(Unexpected(why @ ("owner" | "attributes"))) => {
            item.result = Progress::Failed;
            item.reason = Some(why.to_owned());
        }
        Err(Unexpected(why @ NO_ROOM)) => item.leave(Action::Keep, why),
        Err(Unexpected("not-empty")) if item.action == Action::Rmdir => item.leave(Action::Keep, "not-empty"),
        Err(Unexpected(why)) => item.leave(Action::Conflict, why),
    }
}

pub(super) fn todo(i: &Item) -> bool {
    i.action.changes() && i.result == Progress::Pending
}

fn check_interrupt(control: &Control<'_>) -> Result<()> {
    if control.interrupt.load(Ordering::Relaxed) {
        return Err(Error::new(Code::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Changes the tree: what is in the way goes first, then directories, contents, deletions, emptied directories, modes.
/// An unforeseen error leaves everything to the caller's rollback.
pub(crate) fn apply(
    place: &mut Place,
    items: &mut [Item],
    loosen: &[(BString, u32)],
    threads: usize,
    control: &Control<'_>,
) -> Result<()> {
    for (dir, mode) in loosen {
        let _ = place.chmod(dir.as_bstr(), true, mode | 0o700)?;
    }
    // In the way: what stands below a directory that becomes a file, and names that only differ in case from new ones.
    let made: BTreeSet<Vec<u8>> =
        items.iter().filter(|i| todo(i) && i.from.is_none()).map(|i| i.path.to_lowercase()).collect();
    let collides = |i: &Item| i.to.is_none() && made.contains(&i.path.to_lowercase());
    let swaps: Vec<BString> = items
        .iter()
        .filter(|i| todo(i) && i.was_dir() && !i.becomes_dir() && (i.to.is_some() || collides(i)))
        .map(|i| i.path.clone())
        .collect();
    let early =
        |i: &Item| collides(i) || swaps.iter().any(|s| paths::is_under(i.path.as_bstr(), s.as_bstr()));
    for n in (0..items.len()).rev() {
        check_interrupt(control)?;
        let i = &mut items[n];
        if !todo(i) || i.to.is_some() || !early(i) {
            continue;
        }
        let step = match &i.from {
            Some(s) if s.node.is_dir() => place.rmdir(i.path.as_bstr())?,
            Some(s) => place.delete(n, i.path.as_bstr(), s)?,
            None => Ok(()),
        };
        take(i, step);
    }
    place.forget();
    // Swapped directories are empty now.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if todo(i)
            && i.was_dir()
            && !i.becomes_dir()
            && i.to.is_some()
            && let Err(Unexpected(why)) = place.rmdir(i.path.as_bstr())?
        {
            i.leave(Action::Conflict, why);
        }
    }
    place.forget();
    // Directories, parents first; a file in the way goes.
    for (n, i) in items.iter_mut().enumerate() {
        if !todo(i) || !i.becomes_dir() || i.was_dir() {
            continue;
        }
        if let Some(from) = i.from.clone()
            && let Err(why) = place.delete(n, i.path.as_bstr(), &from)?
        {
            take(i, Err(why));
            continue;
        }
        match place.mkdir(i.path.as_bstr())? {
            Ok(()) => {
                if let Some(to) = &i.to {
                    place.dress_dir(i.path.as_bstr(), &to.attrs)?;
                }
            }
            Err(Unexpected(why)) => i.leave(Action::Conflict, why),
        }
    }
    place.forget();
    leaves(place, items, threads, control)?;
    // Emptied directories, children first.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if todo(i) && i.action == Action::Rmdir {
            let step = place.rmdir(i.path.as_bstr())?;
            take(i, step);
        }
    }
    place.forget();
    // Modes, children first: a directory may become read-only.
    for n in (0..items.len()).rev() {
        let i = &mut items[n];
        if !todo(i) {
            continue;
        }
        let Some(mode) = i.to.as_ref().and_then(|s| s.node.mode()) else { continue };
        let present = i.from.as_ref().and_then(|s| s.node.mode());
        let mode = place.allowed_mode(mode, present);
        let step = place.chmod(i.path.as_bstr(), i.becomes_dir(), mode)?;
        take(i, step);
    }
    tighten(place, items, loosen)
}

/// Directories that were opened for this get their bits back, unless an item gave them new ones.
fn tighten(place: &mut Place, items: &[Item], loosen: &[(BString, u32)]) -> Result<()> {
    for (dir, mode) in loosen.iter().rev() {
        if !items.iter().any(|i| i.path == *dir && i.result == Progress::Done) {
            let _ = place.chmod(dir.as_bstr(), true, *mode)?;
        }
    }
    Ok(())
}

/// So many contents are made at a time before they are synced together and get their names: each is an open file, of which
/// a process may have 1,024, or fewer. Each sync waits for the disk, so the more the better.
fn batch_size() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).clamp(8, 4096)
}

/// Files and links: contents first, then deletions, each directory by one thread at a time. A content is durable before it
/// gets its name.
fn leaves(place: &mut Place, items: &mut [Item], threads: usize, control: &Control<'_>) -> Result<()> {
    for deleting in [false, true] {
        let mut groups: BTreeMap<BString, Vec<usize>> = BTreeMap::new();
        let mut total = 0;
        for (n, i) in items.iter().enumerate() {
            let leaf = match deleting {
                // The bits of a file with several names belong to all of them: it is replaced like a changed one.
                false if i.action == Action::Mode => {
                    todo(i) && !i.becomes_dir() && place.links(i.path.as_bstr()) > 1
                }
                false => matches!(i.action, Action::Create | Action::Overwrite) && !i.becomes_dir(),
                true => i.action == Action::Delete,
            };
            if todo(i) && leaf {
                groups.entry(paths::split(i.path.as_bstr()).0.to_owned()).or_default().push(n);
                total += 1;
            }
        }
        let mut crew = Crew::new(place, total, groups.len(), threads, control)?;
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        if deleting || place.syncs != Syncs::Batches {
            let steps = crew.work(place, &groups, true, |place, n| match (&items[n].from, &items[n].to) {
                (Some(from), None) => place.delete(n, items[n].path.as_bstr(), from),
                (_, Some(to)) => place.put(n, items[n].path.as_bstr(), stands(&items[n]), to),
                (None, None) => Ok(Ok(())),
            })?;
            steps.into_iter().for_each(|(n, step)| take(&mut items[n], step));
        } else {
            for batch in batches(groups) {
                let ready: Mutex<BTreeMap<usize, Ready>> = Mutex::default();
                let made = crew.work(place, &batch, false, |place, n| {
                    let Some(to) = &items[n].to else { return Ok(Ok(())) };
                    let made = place.ready(n, items[n].path.as_bstr(), stands(&items[n]), to)?;
                    Ok(made.map(|content| drop(lock(&ready).insert(n, content))))
                })?;
                made.into_iter().filter(|(_, s)| s.is_err()).for_each(|(n, step)| take(&mut items[n], step));
                place.sync_all()?;
                place.forget();
                let steps = crew.work(place, &batch, true, |place, n| {
                    let content = lock(&ready).remove(&n);
                    let (Some(content), Some(to)) = (content, &items[n].to) else { return Ok(Ok(())) };
                    place.put_ready(n, items[n].path.as_bstr(), stands(&items[n]), to, content)
                })?;
                // What was not made keeps the reason.
                steps
                    .into_iter()
                    .filter(|(n, _)| todo(&items[*n]))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|(n, step)| take(&mut items[n], step));
            }
        }
        place.forget();
    }
    Ok(())
}

/// What stands where a leaf is put: the directory that stood there is gone by now.
fn stands(i: &Item) -> Option<&Stand> {
    i.from.as_ref().filter(|f| !f.node.is_dir())
}

/// Groups of one directory each, in batches of bounded size. No directory is twice in a batch.
fn batches(groups: Vec<Vec<usize>>) -> Vec<Vec<Vec<usize>>> {
    let mut out: Vec<Vec<Vec<usize>>> = Vec::new();
    let (size, mut room) = (batch_size(), 0);
    for group in groups.iter().flat_map(|g| g.chunks(size)) {
        if group.len() > room {
            out.push(Vec::new());
            room = size;
        }
        room -= group.len();
        if let Some(batch) = out.last_mut() {
            batch.push(group.to_vec());
        }
    }
    out
}

/// Threads with handles of their own.
struct Crew<'a> {
    others: Vec<Place>,
    control: &'a Control<'a>,
    total: usize,
    done: AtomicUsize,
}

impl<'a> Crew<'a> {
    /// As many hands as are worth it for so many items in so many groups.
    fn new(
        place: &Place,
        total: usize,
        groups: usize,
        threads: usize,
        control: &'a Control<'a>,
    ) -> Result<Crew<'a>> {
        let helpers = if total < 32 { 0 } else { threads.saturating_sub(1).min(groups) };
        let others = (0..helpers).map(|_| place.another()).collect::<Result<_>>()?;
        Ok(Crew { others, control, total, done: AtomicUsize::new(0) })
    }

    /// Does one thing with each item of the groups. At the first error nothing more is begun.
    fn work(
        &mut self,
        place: &mut Place,
        groups: &[Vec<usize>],
        counts: bool,
        one: impl Fn(&mut Place, usize) -> Result<Step> + Sync,
    ) -> Result<Vec<(usize, Step)>> {
        let Crew { others, control, total, done } = self;
        let (control, total) = (*control, *total);
        let steps: Mutex<Vec<(usize, Step)>> = Mutex::default();
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let next = AtomicUsize::new(0);
        let work = |place: &mut Place| {
            place.forget();
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut mine = Vec::with_capacity(group.len());
                for &n in group {
                    let stop = check_interrupt(control).err().or_else(|| match one(place, n) {
                        Ok(step) => {
                            mine.push((n, step));
                            None
                        }
                        Err(e) => Some(e),
                    });
                    if let Some(e) = stop {
                        next.store(groups.len(), Ordering::Relaxed);
                        lock(&failed).get_or_insert(e);
                        break;
                    }
                }
                if counts {
                    let done = done.fetch_add(mine.len(), Ordering::Relaxed) + mine.len();
                    (control.progress)("restoring", done as u64, total as u64);
                }
                lock(&steps).append(&mut mine);
            }
        };
        if others.is_empty() || groups.len() < 2 {
            work(place);
        } else {
            std::thread::scope(|s| {
                for p in others.iter_mut() {
                    let work = &work;
                    s.spawn(move || work(p));
                }
                work(place);
            });
        }
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(e) => Err(e),
            None => Ok(steps.into_inner().unwrap_or_else(|e| e.into_inner())),
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Reads every changed path back. A path that somebody changed in the meantime is a conflict, not ours.
pub(super) fn verify(
    place: &mut Place,
    items: &mut [Item],
    threads: usize,
    control: &Control<'_>,
) -> Result<()> {
    let mut groups: BTreeMap<&BStr, Vec<usize>> = BTreeMap::new();
    for (n, i) in items.iter().enumerate().filter(|(_, i)| i.result == Progress::Done) {
        groups.entry(paths::split(i.path.as_bstr()).0).or_default().push(n);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    let mut crew = Crew::new(place, groups.iter().map(Vec::len).sum(), groups.len(), threads, control)?;
    let steps = crew.work(place, &groups, false, |place, n| {
        let i = &items[n];
        let found = place.inspect(i.path.as_bstr())?;
        let mut want = i.to.clone();
        if let Some(s) = &mut want {
            let present = i.from.as_ref().and_then(|s| s.node.mode());
            match &mut s.node {
                tree::Node::File { mode, .. } | tree::Node::Dir { mode } => {
                    *mode = place.allowed_mode(*mode, present)
                }
                tree::Node::Link { .. } => {}
            }
        }
        Ok(if place::matches(&found, want.as_ref()) { Ok(()) } else { Err(Unexpected("changed-after")) })
    })?;
    for (n, step) in steps {
        if let Err(Unexpected(why)) = step {
            items[n].result = Progress::Failed;
            items[n].reason = Some(why.to_owned());
        }
    }
    Ok(())
}

/// New names, contents and permission bits reach the disk before the journal goes.
pub(super) fn sync(place: &mut Place, items: &[Item], loosen: &[(BString, u32)]) -> Result<()> {
    if place.syncs != Syncs::Each {
        return place.sync_all();
    }
    let done = || items.iter().filter(|i| i.result == Progress::Done);
    let mut dirs: BTreeSet<&BStr> = done().map(|i| paths::split(i.path.as_bstr()).0).collect();
    // Their own bits.
    dirs.extend(done().filter(|i| i.becomes_dir()).map(|i| i.path.as_bstr()));
    dirs.extend(loosen.iter().map(|(dir, _)| dir.as_bstr()));
    for i in done().filter(|i| i.action == Action::Mode && !i.becomes_dir()) {
        place.sync_file(i.path.as_bstr())?;
    }
    for d in dirs {
        place.sync_dir(d)?;
    }
    Ok(())
}

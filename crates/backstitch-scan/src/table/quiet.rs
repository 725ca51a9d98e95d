//! Directories in which nothing can have changed.
//!
//! A watcher names the directories in which something happened since the table was written. What is neither one of them
//! nor above one of them, and leaves no doubt by its record, need not be looked at: [`Quiet`] holds the topmost of these
//! with what there is below.

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
};

use bstr::{BStr, BString, ByteSlice};

use super::{
    Inner, Table,
    record::{self, EntryKind, Record},
};
use crate::{
    Verdict, handle,
    rules::Decision,
    types::{Ignored, Kind, Options, Reason, Skip},
};

/// Where something may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Noise {
    /// Path of a directory, relative to the root.
    pub path: BString,
    /// Anything below it may be other than it was.
    pub below: bool,
}

/// A directory, with all below it, that need not be looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) files: u64,
    pub(crate) dirs: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// Of files that are kept though a rule leaves them out.
    pub(crate) ignored: u64,
    pub(crate) entries: u64,
    pub(crate) skips: Vec<Skip>,
}

/// What need not be looked at, by number in the table that it was made from.
#[derive(Debug, Default)]
pub struct Quiet {
    pub(crate) tops: HashMap<u32, Part>,
    /// All of them, where somebody wants to know whether that was right.
    pub(crate) members: HashSet<u32>,
    /// Look at everything all the same, and tell what was wrongly held for quiet.
    pub(crate) prove: bool,
}

impl Quiet {
    /// True if everything is looked at all the same.
    pub fn is_proof(&self) -> bool {
        self.prove
    }

    /// Nothing is believed: everything is looked at, and the outcome tells what was wrongly held for quiet.
    pub fn to_be_proven(mut self) -> Quiet {
        self.prove = true;
        self
    }
}

impl Table {
    /// Paths of all directories that are covered, parents first; the root is the empty path.
    pub fn directories(&self) -> Vec<BString> {
        let mut all = vec![BString::default()];
        let mut left = vec![(0, BString::default())];
        while let Some((id, path)) = left.pop() {
            for entry in self.0.record(id).iter().flat_map(Record::entries) {
                if let (EntryKind::Dir, Some(child), Some(name)) =
                    (entry.kind(), entry.directory(), entry.name())
                {
                    let path = handle::join(&path, name.to_bytes());
                    all.push(path.clone());
                    left.push((child, path));
                }
            }
        }
        all
    }

    /// What is quiet for a scan with these options if there is noise only there. The root is always looked at.
    pub fn quiet(&self, noise: &[Noise], options: &Options<'_>) -> Quiet {
        let mut noisy: HashMap<u32, bool> = HashMap::new();
        for n in noise {
            if let Some(id) = self.0.number(n.path.as_bstr()) {
                *noisy.entry(id).or_default() |= n.below;
            }
        }
        let mut quiet = Quiet::default();
        let Some(root) = self.0.record(0) else { return quiet };
        let mut gather =
            Gather { table: &self.0, noisy: &noisy, dev: root.dev(), options, quiet: &mut quiet };
        gather.run();
        quiet
    }
}

/// One directory on the way down.
struct Level<'t> {
    id: u32,
    path: BString,
    record: Record<'t>,
    /// Position of the next entry.
    next: usize,
    /// Nothing in it, nor below it, has to be looked at so far.
    quiet: bool,
    /// No rule leaves the directory itself out.
    open: bool,
    below_noise: bool,
    part: Part,
    /// Child directories that are quiet as a whole.
    children: Vec<(u32, Part)>,
}

struct Gather<'a> {
    table: &'a Inner,
    noisy: &'a HashMap<u32, bool>,
    dev: u64,
    options: &'a Options<'a>,
    quiet: &'a mut Quiet,
}

impl<'a> Gather<'a> {
    fn level(&self, id: u32, path: BString, open: bool, above: bool) -> Option<Level<'a>> {
        let record = self.table.record(id)?;
        let noise = self.noisy.get(&id).copied();
        let below_noise = above || noise == Some(true);
        let settled = record.has(record::CLEAN)
            && !record.has(record::XATTRS | record::LINKED | record::DOT_GIT)
            && record.dev() == self.dev;
        Some(Level {
            id,
            path,
            record,
            next: 0,
            quiet: settled && noise.is_none() && !below_noise && id != 0,
            open,
            below_noise,
            part: Part { dirs: 1, entries: 1 + record.len() as u64, ..Part::default() },
            children: Vec::new(),
        })
    }

    /// Without recursion: trees are as deep as they like.
    fn run(&mut self) {
        let Some(root) = self.level(0, BString::default(), true, false) else { return };
        let mut stack = vec![root];
        while let Some(level) = stack.last_mut() {
            if level.next < level.record.len() {
                let entry = level.record.entry(level.next);
                level.next += 1;
                match take(level, &entry, self.options) {
                    Some(child) => {
                        let name = entry.name().map_or(&b""[..], CStr::to_bytes);
                        let path = handle::join(&level.path, name);
                        let (open, above) = (level.open && !left_out(entry.decision()), level.below_noise);
                        match self.level(child, path, open, above) {
                            Some(child) => stack.push(child),
                            None => level.quiet = false,
                        }
                    }
                    None => continue,
                }
                continue;
            }
            let Some(done) = stack.pop() else { return };
            let up = stack.last_mut();
            if done.quiet {
                self.quiet.members.insert(done.id);
                let mut part = done.part;
                for (_, child) in done.children {
                    part.add(child);
                }
                match up {
                    Some(up) => up.children.push((done.id, part)),
                    None => drop(part),
                }
                continue;
            }
            // What is quiet below a directory that is looked at is a top.
            self.quiet.tops.extend(done.children);
            if let Some(up) = up {
                up.quiet = false;
            }
        }
    }
}

/// Takes one entry in; the number of a child directory that has to be gone through.
fn take(level: &mut Level<'_>, entry: &record::Entry<'_>, options: &Options<'_>) -> Option<u32> {
    let decision = entry.decision();
    let left_out = left_out(decision);
    match entry.kind() {
        EntryKind::Dir => {
            let child = entry.directory();
            level.quiet &= child.is_some() && (!left_out || decision.tracked);
            child
        }
        EntryKind::Leaf(kind) => {
            level.quiet &= entry.is_clean();
            if left_out && !decision.tracked {
                // It was kept then; is it today?
                let stored = entry.last_size().unwrap_or(u64::MAX);
                let small = level.open && stored <= options.limits.ignored_file;
                level.quiet &= options.keep_covered
                    || decision.verdict == Verdict::Ignore
                        && match options.ignored {
                            Ignored::None => false,
                            Ignored::All => true,
                            Ignored::Small => small,
                        };
                level.part.ignored += stored;
            }
            match kind {
                Kind::File => {
                    level.part.files += 1;
                    level.part.bytes += entry.size();
                }
                _ => level.part.links += 1,
            }
            None
        }
        EntryKind::Skip(reason) => {
            let is_dir = entry.is_dir();
            level.quiet &= match reason {
                Reason::Ignored => is_dir,
                Reason::Excluded | Reason::Git | Reason::Special(_) => true,
                _ => false,
            };
            let name = entry.name().map_or(&b""[..], CStr::to_bytes);
            let sized = !is_dir && matches!(reason, Reason::Ignored | Reason::Excluded);
            level.part.skips.push(Skip {
                path: handle::join(&level.path, name),
                reason,
                bytes: sized.then(|| entry.size()),
                detail: None,
                is_dir,
            });
            None
        }
    }
}

fn left_out(decision: Decision) -> bool {
    matches!(decision.verdict, Verdict::Ignore | Verdict::Exclude)
}

impl Part {
    fn add(&mut self, other: Part) {
        self.files += other.files;
        self.dirs += other.dirs;
        self.links += other.links;
        self.bytes += other.bytes;
        self.ignored += other.ignored;
        self.entries += other.entries;
        self.skips.extend(other.skips);
    }
}

impl Inner {
    /// The number of the covered directory at a path.
    fn number(&self, path: &BStr) -> Option<u32> {
        let mut id = 0;
        for name in path.split_str("/").filter(|n| !n.is_empty()) {
            let record = self.record(id)?;
            let entry = record.entry(record.find(name.as_bstr())?);
            id = match entry.kind() {
                EntryKind::Dir => entry.directory()?,
                _ => return None,
            };
        }
        Some(id)
    }
}

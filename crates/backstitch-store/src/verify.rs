//! Re-hashing everything, and telling which refs damage hits.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
};

use crate::{
    Error, Odb, Oid, Store, adopt,
    hash::{self, OID_LEN},
    idx::IdxEntry,
    inventory,
    loose::{self, Hashing},
    object::Kind,
    odb::PackSet,
    pack::{self, Pack},
    parked, reach,
};

/// Objects per piece of work.
const PIECE: usize = 256;
/// So many damaged objects of one pack are named one by one; the rest together.
const NAMED_MAX: usize = 64;

/// What [`Store::verify`] found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Copies of objects that were re-hashed.
    pub objects: u64,
    /// Their uncompressed bytes.
    pub bytes: u64,
    /// Refs whose objects were followed.
    pub refs: u64,
    /// What is wrong; empty for a sound store.
    pub damage: Vec<Damage>,
    /// Packs without an index: left by a process that died between two renames, or by a loss of the index. Not damage
    /// by themselves: nothing that a ref reaches lies in them alone unless an object is reported missing.
    pub orphans: Vec<PathBuf>,
    /// Sound commits that no ref names: rows that were removed and not yet collected, or whose refs were lost.
    pub unnamed: Vec<Oid>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct Damage {
    /// The file it is in, or should be in.
    pub path: PathBuf,
    /// The object, where it is one.
    pub oid: Option<Oid>,
    /// What is wrong.
    pub what: String,
    /// The refs that reach it and find no other copy.
    pub refs: Vec<String>,
}

enum Job {
    /// Checksums of a pack and its index.
    Sums(Arc<Pack>),
    Packed(Arc<Pack>, Vec<IdxEntry>),
    Loose(Vec<(Oid, PathBuf)>),
    Parked(Vec<(Oid, PathBuf)>),
}

#[derive(Default)]
struct Done {
    work: u64,
    good: Vec<([u8; OID_LEN], Kind)>,
    bytes: u64,
    bad: Vec<(PathBuf, Option<Oid>, String)>,
}

impl Store {
    /// Re-hashes every object, checks the checksums of packs and indexes, and follows every ref. `progress` gets the
    /// number of objects done and in all. Damage is in the report; an error means that the store could not be looked
    /// at, or that `interrupt` was set. Of packs that came from elsewhere ([`Writer::adopt`](crate::Writer::adopt)) only what
    /// some ref needs is looked at.
    ///
    /// The caller keeps sweeps away meanwhile: a pack that goes while this runs is reported as lost.
    pub fn verify(&self, progress: &dyn Fn(u64, u64), interrupt: &AtomicBool) -> Result<VerifyReport, Error> {
        let git = self.git_dir();
        let objects = git.join("objects");
        let odb = Odb::new(self.dir(), objects.clone());
        let set = odb.packs()?;
        let mut report =
            VerifyReport { orphans: inventory::orphans(&objects, &set)?, ..VerifyReport::default() };
        let mut hits: HashMap<Oid, Vec<usize>> = HashMap::new();
        for (path, what) in &set.broken {
            report.note(path.clone(), None, what.clone());
        }
        let (refs, bad) = self.refs().list_all("refs/")?;
        let needed = match set.packs.iter().any(|p| adopt::is_seed(&p.path)) {
            true => Some(reach::all(&odb, &refs, interrupt)?),
            false => None,
        };
        let (jobs, total) = self.jobs(&objects, &set, needed.as_ref(), &mut report, &mut hits)?;
        let mut good: HashMap<Oid, Kind> = HashMap::new();
        let mut done = 0;
        progress(0, total);
        run(&odb, &set, &jobs, interrupt, |result| {
            done += result.work;
            progress(done, total);
            report.objects += result.good.len() as u64;
            report.bytes += result.bytes;
            good.extend(result.good.into_iter().filter_map(|(id, kind)| Some((hash::oid(&id)?, kind))));
            for (path, oid, what) in result.bad {
                let at = report.note_object(path, oid, what);
                if let Some(oid) = oid {
                    hits.entry(oid).or_default().push(at);
                }
            }
        });
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        self.check_head(&mut report);
        report.refs = (refs.len() + bad.len()) as u64;
        for (name, e) in bad {
            let at = report.note(git.join(&name), None, what_of(e));
            report.damage[at].refs.push(name);
        }
        let named: HashSet<Oid> = refs.iter().map(|(_, oid)| *oid).collect();
        report.unnamed = good
            .iter()
            .filter(|(oid, kind)| **kind == Kind::Commit && !named.contains(*oid))
            .map(|(oid, _)| *oid)
            .collect();
        report.unnamed.sort_unstable();
        let reached = reach::follow(&odb, &good, &refs, interrupt)?;
        for oid in &reached.bad {
            if hits.contains_key(oid) {
                continue;
            }
            // Lost with its pack, with an unreadable index (the first note), or simply gone.
            let lost = set.lost.iter().find(|p| matches!(p.idx.find(&hash::raw(oid)), Ok(Some(_))));
            if let Some(pack) = lost {
                let noted = report.damage.iter().position(|d| d.path == pack.path);
                let at = noted
                    .unwrap_or_else(|| report.note(pack.path.clone(), None, "the pack is missing".into()));
                hits.entry(*oid).or_default().push(at);
                continue;
            }
            let at = match (set.broken.is_empty(), good.get(oid)) {
                (false, None) => 0,
                (true, None) => {
                    report.note(loose::path(&objects, oid), Some(*oid), "the object is missing".into())
                }
                (_, Some(kind)) => {
                    let what = format!("the object is a {}, which is not what refers to it", kind.name());
                    report.note(objects.clone(), Some(*oid), what)
                }
            };
            hits.entry(*oid).or_default().push(at);
        }
        for (name, bad) in reached.refs {
            let at: HashSet<usize> = bad.iter().filter_map(|oid| hits.get(oid)).flatten().copied().collect();
            at.into_iter().for_each(|at| report.damage[at].refs.push(name.clone()));
        }
        report.damage.iter_mut().for_each(|d| d.refs.sort_unstable());
        Ok(report)
    }

    fn jobs(
        &self,
        objects: &Path,
        set: &PackSet,
        needed: Option<&HashSet<Oid>>,
        report: &mut VerifyReport,
        hits: &mut HashMap<Oid, Vec<usize>>,
    ) -> Result<(Vec<Job>, u64), Error> {
        let mut jobs = Vec::new();
        let mut total = 0;
        for p in &set.packs {
            let mut entries = match p.idx.entries() {
                Ok(entries) => entries,
                Err(what) => {
                    report.note(p.path.with_extension("idx"), None, what);
                    continue;
                }
            };
            // Of a pack that came from elsewhere only what some ref needs is this store's business.
            let seed = needed.filter(|_| adopt::is_seed(&p.path));
            if let Some(needed) = seed {
                entries.retain(|e| needed.contains(&Oid::from(e.oid)));
            }
            if let Err(e) = p.probe() {
                // One report for the pack, whatever number of objects it held.
                let at = report.note(p.path.clone(), None, what_of(e));
                for e in &entries {
                    hits.entry(Oid::from(e.oid)).or_default().push(at);
                }
                continue;
            }
            if entries.windows(2).any(|w| w[0].oid >= w[1].oid) {
                report.note(p.path.with_extension("idx"), None, "the index is out of order".into());
            }
            total += entries.len() as u64;
            // In the order of the file: it is read once, and bases come before what was made from them.
            entries.sort_unstable_by_key(|e| e.offset);
            jobs.extend(entries.chunks(PIECE).map(|c| Job::Packed(p.clone(), c.to_vec())));
            if seed.is_none() {
                jobs.push(Job::Sums(p.clone()));
            }
        }
        let loose = loose::list(objects)?;
        total += loose.len() as u64;
        jobs.extend(loose.chunks(PIECE / 16).map(|c| Job::Loose(c.to_vec())));
        let parked = parked::list(self.dir())?;
        total += parked.len() as u64;
        jobs.extend(parked.chunks(1).map(|c| Job::Parked(c.to_vec())));
        Ok((jobs, total))
    }

    /// Not needed by us, but stock git sees no repository without it.
    fn check_head(&self, report: &mut VerifyReport) {
        let path = self.git_dir().join("HEAD");
        match std::fs::read(&path) {
            Ok(bytes) if bytes.starts_with(b"ref: refs/") || Oid::from_hex(bytes.trim_ascii()).is_ok() => {}
            Ok(_) => drop(report.note(path, None, "HEAD names no ref".into())),
            Err(e) => drop(report.note(path, None, e.to_string())),
        }
    }
}

impl VerifyReport {
    fn note(&mut self, path: PathBuf, oid: Option<Oid>, what: String) -> usize {
        self.damage.push(Damage { path, oid, what, refs: Vec::new() });
        self.damage.len() - 1
    }

    /// As [`note`](Self::note), but does not go on for ever about one file.
    fn note_object(&mut self, path: PathBuf, oid: Option<Oid>, what: String) -> usize {
        let of_file = self.damage.iter().filter(|d| d.path == path).count();
        if of_file <= NAMED_MAX {
            return self.note(path, oid, what);
        }
        let more = "more objects of this file are damaged";
        match self.damage.iter().position(|d| d.path == path && d.what == more) {
            Some(at) => at,
            None => self.note(path, None, more.into()),
        }
    }
}

fn what_of(e: Error) -> String {
    match e {
        Error::Damaged { what, .. } => what,
        Error::Io { source, .. } => source.to_string(),
        e => e.to_string(),
    }
}

/// Spreads `jobs` over all cores; `take` runs on this thread.
fn run(odb: &Odb, set: &PackSet, jobs: &[Job], interrupt: &AtomicBool, mut take: impl FnMut(Done)) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len());
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if interrupt.load(Ordering::Relaxed) || send.send(job.run(odb, set, interrupt)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        receive.into_iter().for_each(&mut take);
    });
}

impl Job {
    fn run(&self, odb: &Odb, set: &PackSet, interrupt: &AtomicBool) -> Done {
        let mut done = Done::default();
        match self {
            Job::Sums(p) => {
                let idx = p.path.with_extension("idx");
                let pack_sum = sums(&p.path, &mut done.bad);
                if sums(&idx, &mut done.bad).is_some()
                    && let (Some(sum), Ok(named)) = (pack_sum, pack_named_by(&idx))
                    && sum != named
                {
                    done.bad.push((idx, None, "the index belongs to another pack".into()));
                }
            }
            Job::Packed(p, entries) => {
                for e in entries {
                    if interrupt.load(Ordering::Relaxed) {
                        break;
                    }
                    done.work += 1;
                    let oid = Oid::from(e.oid);
                    match odb.check_packed(set, p, e.offset, &oid) {
                        Ok((kind, size)) => done.good(&oid, kind, size),
                        Err(e) => done.bad.push((p.path.clone(), Some(oid), what_of(e))),
                    }
                }
            }
            Job::Loose(files) | Job::Parked(files) => {
                let parked = matches!(self, Job::Parked(_));
                for (oid, path) in files {
                    if interrupt.load(Ordering::Relaxed) {
                        break;
                    }
                    done.work += 1;
                    let found = match parked {
                        true => parked::check(oid, path),
                        false => check_loose(odb, oid, path),
                    };
                    match found {
                        Ok(Some((kind, size))) => done.good(oid, kind, size),
                        Ok(None) => {}
                        Err(e) => done.bad.push((path.clone(), Some(*oid), what_of(e))),
                    }
                }
            }
        }
        done
    }
}

impl Done {
    fn good(&mut self, oid: &Oid, kind: Kind, size: u64) {
        self.good.push((hash::raw(oid), kind));
        self.bytes += size;
    }
}

/// None if it was removed meanwhile.
fn check_loose(odb: &Odb, oid: &Oid, path: &Path) -> Result<Option<(Kind, u64)>, Error> {
    let mut hashing = Hashing { out: None, header: None, hash: None };
    match odb.with_inflater(|i| loose::read(i, path, &mut hashing)) {
        Err(e) if e.is_not_found() => return Ok(None),
        done => done?,
    }
    let Hashing { header, hash, .. } = hashing;
    match (header, hash.map(hash::Sha1::finish).transpose()?) {
        (Some(header), Some(id)) if id == *oid => Ok(Some(header)),
        _ => Err(Error::damaged(path, "the object has changed")),
    }
}

/// Checks that the last 20 bytes of a file are the hash of the rest; that hash if so.
fn sums(path: &Path, bad: &mut Vec<(PathBuf, Option<Oid>, String)>) -> Option<Oid> {
    let look = || {
        let file = File::open(path).map_err(Error::io(path))?;
        let len = file.metadata().map_err(Error::io(path))?.len();
        pack::checksums(&file, path, len)
    };
    match look() {
        Ok((said, is)) if said == is => Some(is),
        Ok(_) => {
            bad.push((path.to_owned(), None, "the checksum is wrong".into()));
            None
        }
        Err(e) => {
            bad.push((path.to_owned(), None, what_of(e)));
            None
        }
    }
}

/// The pack checksum that an index holds.
fn pack_named_by(idx: &Path) -> Result<Oid, Error> {
    let bytes = std::fs::read(idx).map_err(Error::io(idx))?;
    let at = bytes.len().checked_sub(2 * OID_LEN);
    at.and_then(|at| hash::oid(&bytes[at..at + OID_LEN]))
        .ok_or_else(|| Error::damaged(idx, "the index is cut off"))
}

/// Beside the objects: ids that `Store::note_damage` was told of, one in a line.
const DAMAGED: &str = "info/backstitch-damaged";

/// Ids of objects that are in the store and cannot be read.
pub(crate) fn known_damage(objects: &std::path::Path) -> std::collections::HashSet<Oid> {
    let text = std::fs::read(objects.join(DAMAGED)).unwrap_or_default();
    text.split(|b| *b == b'\n').filter_map(|l| Oid::from_hex(l).ok()).collect()
}

impl Store {
    /// Remembers objects that [`verify`](Store::verify) found damaged: a writer that is given their content stores it anew,
    /// and reading falls back to that sound copy. An empty list forgets.
    pub fn note_damage(&self, ids: &[Oid]) -> Result<(), Error> {
        let objects = self.git_dir().join("objects");
        let mut text = String::new();
        for id in ids {
            text.push_str(&format!("{id}\n"));
        }
        crate::files::ensure_dir(&objects.join("info"))?;
        crate::files::replace(
            &objects.join("info"),
            "new",
            &objects.join(DAMAGED),
            text.as_bytes(),
            self.durability(),
        )
    }
}

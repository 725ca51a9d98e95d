//! Refs below `refs/backstitch/`: loose files and `packed-refs`.
//!
//! Writers exclude each other by the lock `refs`; readers wait for nobody. A reader looks at loose files first and at
//! `packed-refs` second, and every change keeps a ref visible for that order: packing writes `packed-refs` before it
//! removes loose files, deleting rewrites `packed-refs` first and then removes the loose file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bstr::ByteSlice;

use crate::{
    Error, Lock, Oid, Store,
    files::{self, Temp, Unsynced},
    packed::{self, PackedRef},
};

/// Below this lies everything that is written here.
const ROOT: &str = "refs/backstitch/";
/// More loose refs than this, and a 64th of the packed ones, are packed by who sets one: every reader opens each of them.
/// Well above the number from which they are packed where nobody waits for it.
const LOOSE_MAX: usize = 192;
/// One set in so many looks how many there are.
const DICE: u8 = 16;
/// About the bytes of a packed ref.
const PACKED_LINE: usize = 100;
/// A batch that sets more refs than this writes them into `packed-refs` at once.
const BATCH_LOOSE_MAX: usize = 32;
/// How long a writer waits for another one.
const WAIT: Duration = Duration::from_secs(30);

/// Refs of a store.
#[derive(Clone, Copy, Debug)]
pub struct Refs<'a> {
    pub(crate) store: &'a Store,
}

/// What a ref must be for an [`Edit`] to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// There is no such ref.
    Absent,
    /// Exactly this.
    Is(Oid),
}

/// One change of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Full name, below `refs/backstitch/`.
    pub name: String,
    /// Checked under the lock.
    pub expect: Expect,
    /// None deletes.
    pub new: Option<Oid>,
}

/// The file of a ref to come, synced and not in place: nobody sees it. Removed on drop.
#[derive(Debug)]
pub struct Staged {
    temp: Temp,
    oid: Oid,
    /// Proves to `clean_stale` that the temporary has an owner.
    _alive: Arc<Lock>,
}

impl Staged {
    pub(crate) fn new(git: &Path, oid: &Oid, alive: Arc<Lock>) -> Result<Staged, Error> {
        Ok(Staged { temp: loose_file(git, oid)?, oid: *oid, _alive: alive })
    }

    pub(crate) fn temp(&self) -> &Temp {
        &self.temp
    }
}

/// A temporary with the content of a ref, not synced.
fn loose_file(git: &Path, oid: &Oid) -> Result<Temp, Error> {
    let mut temp = Temp::new(git, "ref")?;
    temp.write(format!("{oid}\n").as_bytes())?;
    Ok(temp)
}

/// Refs that can be read and refs that cannot.
pub type Listed = (Vec<(String, Oid)>, Vec<(String, Error)>);

impl Refs<'_> {
    fn git(&self) -> PathBuf {
        self.store.git_dir()
    }

    fn packed_path(&self) -> PathBuf {
        self.git().join("packed-refs")
    }

    fn lock(&self) -> Result<Lock, Error> {
        self.store.lock_exclusive("refs", WAIT)
    }

    /// What `name` points to.
    pub fn get(&self, name: &str) -> Result<Option<Oid>, Error> {
        check_name(name)?;
        if let Some(oid) = read_loose(&self.git().join(name))? {
            return Ok(Some(oid));
        }
        let path = self.packed_path();
        packed::find(&path, &packed::load(&path)?, name)
    }

    /// The refs whose names start with `prefix`, sorted by name. One that cannot be read fails all; see
    /// [`list_all`](Self::list_all).
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Oid)>, Error> {
        let (refs, mut bad) = self.list_all(prefix)?;
        match bad.pop() {
            Some((_, e)) => Err(e),
            None => Ok(refs),
        }
    }

    /// As [`list`](Self::list), with the refs that cannot be read in a list of their own.
    pub fn list_all(&self, prefix: &str) -> Result<Listed, Error> {
        let mut bad = Vec::new();
        // By name; none hides what is packed, because the loose one counts and cannot be read.
        let mut loose = Vec::new();
        for name in self.loose_names(prefix)? {
            match read_loose(&self.git().join(&name)) {
                Ok(Some(oid)) => loose.push((name, Some(oid))),
                // Packed or deleted since the directory was read.
                Ok(None) => {}
                Err(e) => {
                    bad.push((name.clone(), e));
                    loose.push((name, None));
                }
            }
        }
        let path = self.packed_path();
        let (packed, wrong) = packed::parse_all(&path, &packed::load(&path)?);
        bad.extend(wrong.into_iter().map(|e| ("packed-refs".to_owned(), e)));
        let start = packed.partition_point(|r| r.name.as_str() < prefix);
        let packed = packed.into_iter().skip(start).take_while(|r| r.name.starts_with(prefix));
        let mut refs = Vec::with_capacity(loose.len() + packed.size_hint().1.unwrap_or(0));
        let mut loose = loose.into_iter().peekable();
        for r in packed {
            while let Some((name, oid)) = loose.next_if(|(name, _)| *name < r.name) {
                refs.extend(oid.map(|oid| (name, oid)));
            }
            match loose.next_if(|(name, _)| *name == r.name) {
                Some((name, oid)) => refs.extend(oid.map(|oid| (name, oid))),
                None => refs.push((r.name, r.oid)),
            }
        }
        refs.extend(loose.filter_map(|(name, oid)| Some((name, oid?))));
        Ok((refs, bad))
    }

    /// How many refs start with `prefix`, those that cannot be read included.
    pub fn count(&self, prefix: &str) -> Result<usize, Error> {
        let loose = self.loose_names(prefix)?;
        let path = self.packed_path();
        let (packed, wrong) = packed::parse_all(&path, &packed::load(&path)?);
        let start = packed.partition_point(|r| r.name.as_str() < prefix);
        let packed = packed[start..].iter().take_while(|r| r.name.starts_with(prefix));
        let only_packed = packed.filter(|r| loose.binary_search(&r.name).is_err()).count();
        Ok(loose.len() + only_packed + wrong.len())
    }

    /// Names of the refs that start with `prefix` and have files of their own, sorted.
    pub fn loose(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.loose_names(prefix)
    }

    fn loose_names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let git = self.git();
        // The directories of the prefix need not be searched for.
        let base = match prefix.rfind('/') {
            Some(end) if prefix.starts_with("refs/") && prefix[..end].split('/').all(is_component) => {
                &prefix[..end]
            }
            _ => "refs",
        };
        let mut out = Vec::new();
        let mut todo = vec![base.to_owned()];
        while let Some(dir) = todo.pop() {
            let entries = match fs::read_dir(git.join(&dir)) {
                Ok(entries) => entries,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(e) => return Err(Error::io(&git.join(&dir))(e)),
            };
            for entry in entries {
                let entry = entry.map_err(Error::io(&git.join(&dir)))?;
                let Some(name) =
                    entry.file_name().to_str().filter(|n| is_component(n)).map(|n| format!("{dir}/{n}"))
                else {
                    continue;
                };
                let is_dir = entry.file_type().map_err(Error::io(&entry.path()))?.is_dir();
                let below = format!("{name}/");
                if is_dir && (below.starts_with(prefix) || prefix.starts_with(&below)) {
                    todo.push(name);
                } else if !is_dir && name.starts_with(prefix) {
                    out.push(name);
                }
            }
        }
        out.sort_unstable();
        Ok(out)
    }

    /// Carries out `edits`. Expectations are checked in order, each against what the edits before it leave; at the
    /// first that does not hold the ones before it are carried out and the error names the ref. Each ref changes at
    /// once and wholly; what is set is set before anything is deleted, but for names that
    /// clash with one that goes.
    pub fn apply(&self, edits: &[Edit]) -> Result<(), Error> {
        self.apply_with(edits, None)
    }

    /// The same; the file of the ref that gets the staged id is there already.
    pub(crate) fn apply_with(&self, edits: &[Edit], staged: Option<Staged>) -> Result<(), Error> {
        if edits.is_empty() {
            return Ok(());
        }
        for e in edits {
            check_name(&e.name)?;
            if !e.name.starts_with(ROOT) {
                return Err(Error::invalid(format!("{} is not below {ROOT}", e.name)));
            }
            if e.new.is_some_and(|oid| oid.is_null()) {
                return Err(Error::invalid(format!("{} cannot point to nothing", e.name)));
            }
        }
        let _lock = self.lock()?;
        let path = self.packed_path();
        let bytes = packed::load(&path)?;
        let mut now: HashMap<&str, Option<Oid>> = HashMap::new();
        let mut moved = None;
        for e in edits {
            let old = match now.get(e.name.as_str()) {
                Some(old) => *old,
                None => match read_loose(&self.git().join(&e.name)) {
                    Ok(Some(oid)) => Some(oid),
                    Ok(None) => packed::find(&path, &bytes, &e.name)?,
                    // A damaged ref may be replaced or deleted by who asks for nothing of it.
                    Err(Error::Damaged { .. }) if e.expect == Expect::Any => None,
                    Err(e) => return Err(e),
                },
            };
            let fits = match e.expect {
                Expect::Any => true,
                Expect::Absent => old.is_none(),
                Expect::Is(oid) => old == Some(oid),
            };
            if !fits {
                moved = Some(Error::RefMoved { name: e.name.clone() });
                break;
            }
            now.insert(&e.name, e.new);
        }
        let mut sets: Vec<(&str, Oid)> = now.iter().filter_map(|(n, o)| Some((*n, (*o)?))).collect();
        let mut gone: Vec<&str> = now.iter().filter(|(_, o)| o.is_none()).map(|(n, _)| *n).collect();
        sets.sort_unstable();
        gone.sort_unstable();
        self.write(&path, &bytes, &sets, &gone, staged)?;
        if let Some(e) = moved {
            return Err(e);
        }
        // Looking at the number of loose refs now and then is enough, and ids are as good as dice.
        let most = LOOSE_MAX + bytes.len() / PACKED_LINE / 64;
        let looks = sets.iter().any(|(_, oid)| oid.as_slice()[19].is_multiple_of(DICE));
        if looks && self.loose_names(ROOT)?.len() > most {
            self.pack_locked(&_lock)?;
        }
        Ok(())
    }

    /// Under the lock: sets, then deletions.
    fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        sets: &[(&str, Oid)],
        gone: &[&str],
        mut staged: Option<Staged>,
    ) -> Result<(), Error> {
        let durability = self.store.durability();
        let many = sets.len() > BATCH_LOOSE_MAX;
        let mut dirs = BTreeSet::new();
        for (name, _) in sets {
            self.check_clash(path, bytes, name, gone)?;
        }
        // A ref whose name is a directory of one that goes, or the reverse, has to wait for that.
        let waits = |name: &str| gone.iter().any(|g| is_below(g, name) || is_below(name, g));
        let (late, early): (Vec<_>, Vec<_>) = sets.iter().filter(|_| !many).partition(|(n, _)| waits(n));
        for (name, oid) in early {
            self.write_loose(name, oid, staged.take_if(|s| s.oid == oid), &mut dirs)?;
        }
        let in_packed = gone.iter().any(|n| matches!(packed::find(path, bytes, n), Ok(Some(_)) | Err(_)));
        if in_packed || many {
            let mut all: BTreeMap<String, PackedRef> =
                packed::parse(path, bytes)?.into_iter().map(|r| (r.name.clone(), r)).collect();
            gone.iter().for_each(|n| drop(all.remove(*n)));
            if many {
                for (name, oid) in sets {
                    let name = (*name).to_owned();
                    all.insert(name.clone(), PackedRef { name, oid: *oid, peeled: None });
                }
            }
            self.replace_packed(&all.into_values().collect::<Vec<_>>())?;
        }
        let stale = sets.iter().filter(|_| many).map(|(n, _)| *n);
        for name in gone.iter().copied().chain(stale) {
            self.remove_loose(name, &mut dirs)?;
        }
        for (name, oid) in late {
            self.write_loose(name, oid, staged.take_if(|s| s.oid == oid), &mut dirs)?;
        }
        let dirs: Vec<_> = dirs.iter().filter(|d| d.is_dir()).map(|d| Unsynced::Dir(d)).collect();
        files::sync_together(&dirs, durability)
    }

    fn write_loose(
        &self,
        name: &str,
        oid: Oid,
        staged: Option<Staged>,
        dirs: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        let git = self.git();
        let temp = match staged {
            Some(Staged { temp, .. }) => temp,
            None => {
                let temp = loose_file(&git, &oid)?;
                temp.sync(self.store.durability())?;
                temp
            }
        };
        place(temp, &git.join(name), &git, dirs)
    }

    /// A ref cannot be both a file and a directory.
    fn check_clash(&self, path: &Path, bytes: &[u8], name: &str, gone: &[&str]) -> Result<(), Error> {
        let clash = |other: &str| Error::invalid(format!("{name} cannot be beside {other}"));
        let mut end = name.len();
        while let Some(at) = name[..end].rfind('/').filter(|&at| at + 1 > ROOT.len()) {
            let above = &name[..at];
            if !gone.contains(&above)
                && (self.git().join(above).is_file() || packed::find(path, bytes, above)?.is_some())
            {
                return Err(clash(above));
            }
            end = at;
        }
        let below = format!(" {name}/");
        if bytes.contains_str(&below) {
            let inside = packed::parse(path, bytes)?;
            if let Some(r) =
                inside.iter().find(|r| r.name.starts_with(&below[1..]) && !gone.contains(&r.name.as_str()))
            {
                return Err(clash(&r.name));
            }
        }
        Ok(())
    }

    fn replace_packed(&self, refs: &[PackedRef]) -> Result<(), Error> {
        let durability = self.store.durability();
        files::replace(&self.git(), "refs", &self.packed_path(), &packed::encode(refs), durability)?;
        files::sync_dir(&self.git(), durability)
    }

    fn remove_loose(&self, name: &str, dirs: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        let path = self.git().join(name);
        match fs::remove_file(&path) {
            Ok(()) => {
                dirs.extend(path.parent().map(Path::to_owned));
                Ok(())
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            // Only directories of that name are there.
            Err(_) if path.is_dir() => Ok(()),
            Err(e) => Err(Error::io(&path)(e)),
        }
    }

    /// Moves loose refs into `packed-refs`. Readers see every ref at every moment.
    pub fn pack(&self) -> Result<(), Error> {
        let lock = self.lock()?;
        self.pack_locked(&lock)
    }

    fn pack_locked(&self, _lock: &Lock) -> Result<(), Error> {
        let mut loose = Vec::new();
        for name in self.loose_names("refs/")? {
            // A damaged ref stays where it is, for `verify` to name.
            if let Ok(Some(oid)) = read_loose(&self.git().join(&name)) {
                loose.push((name, oid));
            }
        }
        if loose.is_empty() {
            return Ok(());
        }
        let path = self.packed_path();
        let mut all: BTreeMap<String, PackedRef> =
            packed::parse(&path, &packed::load(&path)?)?.into_iter().map(|r| (r.name.clone(), r)).collect();
        for (name, oid) in &loose {
            let same = all.get(name).is_some_and(|r| r.oid == *oid);
            if !same {
                all.insert(name.clone(), PackedRef { name: name.clone(), oid: *oid, peeled: None });
            }
        }
        self.replace_packed(&all.into_values().collect::<Vec<_>>())?;
        let mut dirs = BTreeSet::new();
        for (name, _) in &loose {
            self.remove_loose(name, &mut dirs)?;
        }
        dirs.iter().try_for_each(|d| files::sync_dir(d, self.store.durability()))
    }
}

fn is_below(name: &str, dir: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// Renames a ref into place, through empty directories that are in the way.
fn place(temp: Temp, to: &Path, git: &Path, dirs: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
    let Some(parent) = to.parent() else { return Err(Error::invalid("a ref has no directory")) };
    // Every new directory on the way is an entry of the one above it.
    let mut above = parent;
    while above.starts_with(git) && !above.is_dir() {
        above = above.parent().unwrap_or(git);
        dirs.insert(above.to_owned());
    }
    files::ensure_dir(parent)?;
    if to.is_dir() {
        remove_empty_dirs(to)?;
    }
    temp.place(to)?;
    dirs.insert(parent.to_owned());
    Ok(())
}

fn remove_empty_dirs(dir: &Path) -> Result<(), Error> {
    let mut todo = vec![(dir.to_owned(), false)];
    while let Some((dir, seen)) = todo.pop() {
        if seen {
            fs::remove_dir(&dir).map_err(Error::io(&dir))?;
            continue;
        }
        let inside = files::names(&dir)?;
        todo.push((dir.clone(), true));
        todo.extend(inside.into_iter().map(|n| (dir.join(n), false)).filter(|(p, _)| p.is_dir()));
    }
    Ok(())
}

/// None if there is no such file.
fn read_loose(path: &Path) -> Result<Option<Oid>, Error> {
    // Every process reads every loose ref: no call more than it takes.
    let mut buffer = [0; 64];
    let mut len = 0;
    let read = fs::File::open(path).and_then(|mut file| {
        while len < buffer.len() {
            match file.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    });
    let bytes = match read {
        Ok(()) => &buffer[..len],
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(Error::io(path)(e)),
    };
    let hex = bytes.trim_ascii_end();
    match Oid::from_hex(hex) {
        Ok(oid) if hex.len() == 40 && len < buffer.len() && !oid.is_null() => Ok(Some(oid)),
        _ => Err(Error::damaged(path, "a ref that holds no id")),
    }
}

/// What `git check-ref-format` takes for one part of a name. In one pass: every process asks it of every ref.
fn is_component(part: &str) -> bool {
    let mut last = b'.';
    for &b in part.as_bytes() {
        let bad = match b {
            b'.' => last == b'.',
            b'{' => last == b'@',
            b' ' | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\' | b'/' => true,
            _ => b < 0x20 || b == 0x7f,
        };
        if bad {
            return false;
        }
        last = b;
    }
    last != b'.' && !part.ends_with(".lock")
}

/// Below `refs/`, and as git takes it.
pub(crate) fn is_ref_name(name: &str) -> bool {
    // Nearly every name, of thousands in one file.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'/';
    if let Some(rest) = name.strip_prefix("refs/")
        && rest.bytes().all(plain)
        && !rest.is_empty()
        && !name.contains("//")
        && !name.ends_with('/')
    {
        return true;
    }
    name.starts_with("refs/") && name.split('/').all(is_component)
}

fn check_name(name: &str) -> Result<(), Error> {
    match is_ref_name(name) {
        true => Ok(()),
        false => Err(Error::invalid(format!("{name:?} is no name for a ref"))),
    }
}

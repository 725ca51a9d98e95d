//! A disk that keeps apart what was done and what is durable, and the images that a power cut may leave of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
};

/// An inode of the model.
pub type Ino = usize;

/// The folder that everything is in.
pub const ROOT: Ino = 0;

/// A block that lands or does not.
const BLOCK: usize = 4096;

/// What an inode is, and holds from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory.
    Dir,
    /// A file with what it held when the recording began.
    File(Vec<u8>),
    /// A link with its text.
    Link(Vec<u8>),
}

/// One thing that was done.
#[derive(Debug)]
pub enum Change {
    /// Entries of directories get an inode or none, all at once.
    Names(Vec<(Ino, Vec<u8>, Option<Ino>)>),
    /// Bytes of a file.
    Write(Ino, usize, Vec<u8>),
    /// The length of a file.
    Size(Ino, usize),
    /// Permission bits.
    Mode(Ino, u32),
}

/// What a sync covers.
#[derive(Debug)]
pub enum Cover {
    /// Content and length of a file (`fdatasync`).
    Data(Ino),
    /// A file or a directory with its entries (`fsync`).
    Whole(Ino),
    /// These, by somebody who is not traced.
    Known(BTreeSet<Ino>),
    /// Everything (`syncfs`).
    All,
}

#[derive(Debug)]
enum Event {
    Change(Change),
    /// Everything that it covers and that came before the event of this number is durable. Of what, for people.
    Sync(Cover, usize, String),
}

/// What a power cut does to what is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Names and modes land in the order in which they were made; any sync of a file that has grown forces all before it
    /// (ext4, xfs). Contents land in any part.
    Journal,
    /// Names and modes land in order, but only the sync of their own directory or file forces them.
    Ordered,
    /// Each name, mode and block lands or does not, by itself.
    Anything,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 3] = [Model::Journal, Model::Ordered, Model::Anything];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Model::Journal => "journal",
            Model::Ordered => "ordered",
            Model::Anything => "anything",
        }
    }
}

/// Which of what is not durable landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Nothing.
    Nothing,
    /// Everything: the image of a killed process.
    Everything,
    /// All names and modes, no content and no length.
    Names,
    /// All names, modes and lengths; contents are zeros.
    Zeros,
    /// All contents, no names.
    Data,
    /// By dice.
    Dice(u64),
}

impl fmt::Display for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Landing::Nothing => f.write_str("nothing landed"),
            Landing::Everything => f.write_str("everything landed"),
            Landing::Names => f.write_str("names landed, no contents"),
            Landing::Zeros => f.write_str("names and lengths landed, contents are zeros"),
            Landing::Data => f.write_str("contents landed, no names"),
            Landing::Dice(seed) => write!(f, "dice {seed}"),
        }
    }
}

/// Syncs that are passed over, to see whether they are missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// None.
    Nothing,
    /// The one with this number.
    One(usize),
    /// All from this number on.
    From(usize),
}

impl Without {
    fn leaves_out(self, event: usize) -> bool {
        match self {
            Without::Nothing => false,
            Without::One(n) => n == event,
            Without::From(n) => event >= n,
        }
    }
}

/// An entry of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Its bits.
    Dir(u32),
    /// Its bits and bytes.
    File(u32, Vec<u8>),
    /// Its text.
    Link(Vec<u8>),
}

/// Everything below the root, by path.
pub type Image = BTreeMap<Vec<u8>, Entry>;

/// Names in a moment.
type Names = BTreeMap<(Ino, Vec<u8>), Ino>;

/// The disk.
#[derive(Debug, Default)]
pub struct Disk {
    inodes: Vec<(Body, u32)>,
    base: Names,
    live: Names,
    sizes: HashMap<Ino, usize>,
    events: Vec<Event>,
}

fn dice(seed: u64, what: u64) -> u64 {
    let mut z = seed ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Disk {
    /// What stands in `root` now, all of it durable.
    pub fn of(root: &Path) -> io::Result<Disk> {
        let mut disk = Disk { inodes: vec![(Body::Dir, 0o755)], ..Disk::default() };
        let mut names = Vec::new();
        disk.load(root, ROOT, &mut names, &mut BTreeSet::new(), &mut HashMap::new())?;
        for (dir, name, ino) in names {
            disk.base.insert((dir, name), ino);
        }
        disk.live = disk.base.clone();
        Ok(disk)
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// A new inode.
    pub fn inode(&mut self, body: Body, mode: u32) -> Ino {
        if let Body::File(bytes) = &body {
            self.sizes.insert(self.inodes.len(), bytes.len());
        }
        self.inodes.push((body, mode));
        self.inodes.len() - 1
    }

    /// Whether it is a file.
    pub fn is_file(&self, ino: Ino) -> bool {
        matches!(self.inodes[ino].0, Body::File(_))
    }

    /// The present length of a file.
    pub fn size(&self, ino: Ino) -> usize {
        self.sizes.get(&ino).copied().unwrap_or(0)
    }

    /// What has this name now.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.live.get(&(dir, name.to_vec())).copied()
    }

    /// Something is done.
    pub fn change(&mut self, change: Change) {
        match &change {
            Change::Names(entries) => {
                for (dir, name, ino) in entries {
                    match ino {
                        Some(ino) => self.live.insert((*dir, name.clone()), *ino),
                        None => self.live.remove(&(*dir, name.clone())),
                    };
                }
            }
            Change::Write(ino, at, bytes) => {
                let size = self.sizes.entry(*ino).or_default();
                *size = (*size).max(at + bytes.len());
            }
            Change::Size(ino, len) => {
                self.sizes.insert(*ino, *len);
            }
            Change::Mode(..) => {}
        }
        self.events.push(Event::Change(change));
    }

    /// A sync that began when there were `began` events has ended.
    pub fn sync(&mut self, cover: Cover, began: usize, what: String) {
        self.events.push(Event::Sync(cover, began, what));
    }

    /// Takes over what somebody who is not traced did below `top` (a folder in the root), as durable.
    pub fn take_over(&mut self, root: &Path, top: &[u8]) -> io::Result<()> {
        let dir = self.find(ROOT, top).ok_or_else(|| io::Error::other("no such folder"))?;
        let mut gone = Vec::new();
        let mut open = vec![dir];
        while let Some(dir) = open.pop() {
            for ((_, name), ino) in self.live.range((dir, Vec::new())..(dir + 1, Vec::new())) {
                gone.push((dir, name.clone(), None));
                open.extend(matches!(self.inodes[*ino].0, Body::Dir).then_some(*ino));
            }
        }
        self.change(Change::Names(gone.clone()));
        let mut names = Vec::new();
        let mut all: BTreeSet<Ino> = gone.into_iter().map(|(dir, ..)| dir).collect();
        all.insert(dir);
        self.load(
            &root.join(std::ffi::OsStr::from_bytes(top)),
            dir,
            &mut names,
            &mut all,
            &mut HashMap::new(),
        )?;
        self.change(Change::Names(names.into_iter().map(|(d, n, i)| (d, n, Some(i))).collect()));
        let now = self.events.len();
        self.sync(Cover::Known(all), now, String::new());
        Ok(())
    }

    fn load(
        &mut self,
        path: &Path,
        dir: Ino,
        names: &mut Vec<(Ino, Vec<u8>, Ino)>,
        all: &mut BTreeSet<Ino>,
        known: &mut HashMap<u64, Ino>,
    ) -> io::Result<()> {
        for item in fs::read_dir(path)? {
            let item = item?;
            let meta = item.metadata()?;
            let mode = meta.permissions().mode() & 0o7777;
            let ino = if meta.is_dir() {
                let ino = self.inode(Body::Dir, mode);
                self.load(&item.path(), ino, names, all, known)?;
                ino
            } else if meta.is_symlink() {
                let text = fs::read_link(item.path())?.into_os_string();
                self.inode(Body::Link(text.as_bytes().to_vec()), mode)
            } else if meta.is_file() {
                // One file may have several names.
                match known.get(&meta.ino()) {
                    Some(ino) => *ino,
                    None => {
                        let bytes = fs::read(item.path())?;
                        let ino = self.inode(Body::File(bytes), mode);
                        known.insert(meta.ino(), ino);
                        ino
                    }
                }
            } else {
                return Err(io::Error::other(format!("{}: no file", item.path().display())));
            };
            all.insert(ino);
            names.push((dir, item.file_name().as_bytes().to_vec(), ino));
        }
        Ok(())
    }

    /// The syncs among some events, with what they are of.
    pub fn syncs(&self, range: std::ops::Range<usize>) -> Vec<(usize, &str)> {
        let sync = |n: usize| match &self.events[n] {
            Event::Sync(cover, _, what) if !matches!(cover, Cover::Known(_)) => Some((n, what.as_str())),
            _ => None,
        };
        range.filter_map(sync).collect()
    }

    /// Which of the first `n` events are durable.
    fn durable(&self, n: usize, model: Model, without: Without) -> Vec<bool> {
        let mut out = vec![false; n];
        // Names and modes before this one are durable.
        let mut forced = 0;
        for (at, event) in self.events[..n].iter().enumerate() {
            let Event::Sync(cover, began, _) = event else { continue };
            if without.leaves_out(at) && !matches!(cover, Cover::Known(_)) {
                continue;
            }
            let mut grew = false;
            for (i, event) in self.events[..*began.min(&at)].iter().enumerate() {
                let Event::Change(change) = event else { continue };
                let covered = match (change, cover) {
                    (_, Cover::All) => true,
                    // A name that moves to another directory is durable with that one.
                    (Change::Names(names), Cover::Whole(dir)) => {
                        let moves = names.iter().any(|(.., ino)| ino.is_some());
                        names.iter().any(|(d, _, ino)| d == dir && (ino.is_some() || !moves))
                    }
                    (Change::Names(names), Cover::Known(all)) => names.iter().any(|(d, ..)| all.contains(d)),
                    (Change::Write(ino, ..) | Change::Size(ino, _), Cover::Data(f) | Cover::Whole(f)) => {
                        ino == f
                    }
                    (Change::Mode(ino, _), Cover::Whole(f)) => ino == f,
                    (
                        Change::Write(ino, ..) | Change::Size(ino, _) | Change::Mode(ino, _),
                        Cover::Known(all),
                    ) => all.contains(ino),
                    _ => false,
                };
                let meta = matches!(change, Change::Names(_) | Change::Mode(..));
                grew |= covered && !out[i] && !meta;
                // Somebody else's sync of the work tree forces nothing of ours.
                if covered && meta && !matches!(cover, Cover::Known(_)) {
                    forced = forced.max(i + 1);
                }
                out[i] |= covered;
            }
            if model == Model::Journal && grew && !matches!(cover, Cover::Known(_)) {
                forced = forced.max(*began);
            }
        }
        if model != Model::Anything {
            for (i, event) in self.events[..forced].iter().enumerate() {
                out[i] |= matches!(event, Event::Change(Change::Names(_) | Change::Mode(..)));
            }
        }
        out
    }

    /// Whether the event changes more than content, or ends a sync: where the states differ most.
    pub fn is_turn(&self, n: usize) -> bool {
        !matches!(self.events[n], Event::Change(Change::Write(..) | Change::Size(..)))
    }

    /// The image after a power cut behind the first `n` events.
    pub fn image(&self, n: usize, model: Model, landing: Landing, without: Without) -> Image {
        let durable = self.durable(n, model, without);
        let open: Vec<usize> = (0..n)
            .filter(|i| !durable[*i])
            .filter(|i| matches!(self.events[*i], Event::Change(Change::Names(_) | Change::Mode(..))))
            .collect();
        // In order: up to this one.
        let prefix = match landing {
            Landing::Dice(seed) if !open.is_empty() => {
                usize::try_from(dice(seed, 1) % (open.len() as u64 + 1)).unwrap_or(0)
            }
            _ => 0,
        };
        let limit = open.get(prefix).copied().unwrap_or(n);
        let many = match landing {
            Landing::Dice(seed) => dice(seed, 2) % 4,
            _ => 0,
        };
        let lands = |i: usize| match landing {
            Landing::Nothing | Landing::Data => false,
            Landing::Everything | Landing::Names | Landing::Zeros => true,
            Landing::Dice(_) if model != Model::Anything => i < limit,
            // One that lands, one that does not, or half of them.
            Landing::Dice(seed) => match many {
                0 => open.get(prefix) == Some(&i),
                1 => open.get(prefix) != Some(&i),
                _ => dice(seed, i as u64 + 16) & 1 == 0,
            },
        };
        let mut names = self.base.clone();
        let mut modes: HashMap<Ino, u32> = HashMap::new();
        let mut sure: HashMap<Ino, Vec<u8>> = HashMap::new();
        let mut full: HashMap<Ino, Vec<u8>> = HashMap::new();
        for (i, event) in self.events[..n].iter().enumerate() {
            let Event::Change(change) = event else { continue };
            match change {
                Change::Names(entries) if durable[i] || lands(i) => {
                    for (dir, name, ino) in entries {
                        match ino {
                            Some(ino) => names.insert((*dir, name.clone()), *ino),
                            None => names.remove(&(*dir, name.clone())),
                        };
                    }
                }
                Change::Mode(ino, mode) if durable[i] || lands(i) => {
                    modes.insert(*ino, *mode);
                }
                Change::Names(_) | Change::Mode(..) => {}
                Change::Write(ino, ..) | Change::Size(ino, _) => {
                    let apply = |bytes: &mut Vec<u8>| match change {
                        Change::Write(_, at, new) => {
                            let end = at + new.len();
                            bytes.resize(bytes.len().max(end), 0);
                            bytes[*at..end].copy_from_slice(new);
                        }
                        Change::Size(_, len) => bytes.resize(*len, 0),
                        _ => {}
                    };
                    let start = || match &self.inodes[*ino].0 {
                        Body::File(bytes) => bytes.clone(),
                        _ => Vec::new(),
                    };
                    apply(full.entry(*ino).or_insert_with(start));
                    let sure = sure.entry(*ino).or_insert_with(start);
                    if durable[i] {
                        apply(sure);
                    }
                }
            }
        }
        let content = |ino: Ino, start: &[u8]| -> Vec<u8> {
            let (Some(old), Some(new)) = (sure.get(&ino), full.get(&ino)) else { return start.to_vec() };
            if old == new {
                return old.clone();
            }
            let zeros = || {
                let mut out = old.clone();
                out.resize(new.len(), 0);
                out
            };
            let seed = match landing {
                Landing::Nothing | Landing::Names => return old.clone(),
                Landing::Everything | Landing::Data => return new.clone(),
                Landing::Zeros => return zeros(),
                Landing::Dice(seed) => dice(seed, ino as u64 + 1000),
            };
            match seed % 5 {
                0 => old.clone(),
                1 => new.clone(),
                2 => zeros(),
                // A part of it, with the length that goes with it.
                3 => {
                    let blocks = new.len().div_ceil(BLOCK) as u64;
                    let keep = usize::try_from((seed >> 8) % (blocks + 1)).unwrap_or(0) * BLOCK;
                    new[..keep.min(new.len())].to_vec()
                }
                _ => {
                    let mut out = zeros();
                    for (b, start) in (0..new.len()).step_by(BLOCK).enumerate() {
                        if dice(seed, b as u64) & 1 == 0 {
                            let end = (start + BLOCK).min(new.len());
                            out[start..end].copy_from_slice(&new[start..end]);
                        }
                    }
                    out
                }
            }
        };
        let mut image = Image::new();
        let mut todo = vec![(ROOT, Vec::new(), 0)];
        while let Some((dir, path, depth)) = todo.pop() {
            for ((_, name), ino) in names.range((dir, Vec::new())..(dir + 1, Vec::new())) {
                let mut path: Vec<u8> = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                let (body, mode) = &self.inodes[*ino];
                let mode = modes.get(ino).copied().unwrap_or(*mode);
                let entry = match body {
                    Body::Dir => {
                        // Two names of one directory: a half move. A file system would not show a circle.
                        if depth < 64 {
                            todo.push((*ino, path.clone(), depth + 1));
                        }
                        Entry::Dir(mode)
                    }
                    Body::File(bytes) => Entry::File(mode, content(*ino, bytes)),
                    Body::Link(text) => Entry::Link(text.clone()),
                };
                image.insert(path, entry);
            }
        }
        image
    }
}

/// What stands in `root` on the real disk.
pub fn read(root: &Path) -> io::Result<Image> {
    let mut image = Image::new();
    let mut todo = vec![(root.to_path_buf(), Vec::new())];
    while let Some((dir, path)) = todo.pop() {
        for item in fs::read_dir(&dir)? {
            let item = item?;
            let mut path: Vec<u8> = path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(item.file_name().as_bytes());
            let meta = item.metadata()?;
            let mode = meta.permissions().mode() & 0o7777;
            let entry = if meta.is_dir() {
                todo.push((item.path(), path.clone()));
                Entry::Dir(mode)
            } else if meta.is_symlink() {
                Entry::Link(fs::read_link(item.path())?.into_os_string().as_bytes().to_vec())
            } else {
                Entry::File(mode, fs::read(item.path())?)
            };
            image.insert(path, entry);
        }
    }
    Ok(image)
}

/// Makes `root` hold the image. What is there already stays untouched, with its inode and times.
pub fn write(root: &Path, image: &Image) -> io::Result<()> {
    let at = |path: &[u8]| root.join(std::ffi::OsStr::from_bytes(path));
    let found = read(root)?;
    for (path, old) in found.iter().rev() {
        let stays = match (old, image.get(path)) {
            (Entry::Dir(_), Some(Entry::Dir(_))) => true,
            (old, new) => Some(old) == new,
        };
        match old {
            _ if stays => {}
            Entry::Dir(_) => fs::remove_dir(at(path))?,
            _ => fs::remove_file(at(path))?,
        }
    }
    for (path, new) in image {
        let path = at(path);
        match new {
            Entry::Dir(_) if !path.is_dir() || path.is_symlink() => fs::create_dir(&path)?,
            Entry::File(mode, bytes) if path.symlink_metadata().is_err() => {
                fs::write(&path, bytes)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
            }
            Entry::Link(text) if path.symlink_metadata().is_err() => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(text), &path)?;
            }
            _ => {}
        }
    }
    for (path, new) in image.iter().rev() {
        if let Entry::Dir(mode) = new
            && found.get(path) != Some(new)
        {
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `new` is written under a temporary name and renamed over `old`, with a sync of the file only.
    fn replaced(sync_file: bool) -> Disk {
        let mut disk = Disk { inodes: vec![(Body::Dir, 0o755)], ..Disk::default() };
        let old = disk.inode(Body::File(b"old".to_vec()), 0o600);
        disk.base.insert((ROOT, b"f".to_vec()), old);
        disk.live = disk.base.clone();
        let new = disk.inode(Body::File(Vec::new()), 0o600);
        disk.change(Change::Names(vec![(ROOT, b"t".to_vec(), Some(new))]));
        disk.change(Change::Write(new, 0, b"new".to_vec()));
        if sync_file {
            let now = disk.len();
            disk.sync(Cover::Data(new), now, String::new());
        }
        disk.change(Change::Names(vec![(ROOT, b"t".to_vec(), None), (ROOT, b"f".to_vec(), Some(new))]));
        disk
    }

    fn seen(disk: &Disk, model: Model) -> BTreeSet<Vec<u8>> {
        (0..400)
            .map(Landing::Dice)
            .chain([Landing::Nothing, Landing::Everything, Landing::Names, Landing::Zeros, Landing::Data])
            .map(|landing| match disk.image(disk.len(), model, landing, Without::Nothing).get(&b"f"[..]) {
                Some(Entry::File(_, bytes)) => bytes.clone(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_rename_without_a_sync_of_the_content_may_show_nothing_of_it() {
        let all = |list: [&[u8]; 4]| list.map(<[u8]>::to_vec).into_iter().collect::<BTreeSet<_>>();
        for model in Model::ALL {
            assert_eq!(seen(&replaced(false), model), all([b"old", b"new", b"", b"\0\0\0"]), "{model:?}");
            let sure: BTreeSet<Vec<u8>> = [b"old".to_vec(), b"new".to_vec()].into();
            assert_eq!(seen(&replaced(true), model), sure, "{model:?}");
        }
    }

    #[test]
    fn a_sync_of_the_directory_keeps_the_name_and_one_that_began_before_does_not() {
        for (late, names) in [(true, 1), (false, 2)] {
            let mut disk = replaced(true);
            let began = if late { disk.len() } else { disk.len() - 1 };
            disk.sync(Cover::Whole(ROOT), began, String::new());
            assert_eq!(seen(&disk, Model::Anything).len(), names, "{late}");
        }
    }

    #[test]
    fn a_later_sync_of_another_file_forces_names_only_in_a_journal() {
        let mut disk = replaced(true);
        let other = disk.inode(Body::File(Vec::new()), 0o600);
        disk.change(Change::Write(other, 0, b"x".to_vec()));
        let now = disk.len();
        disk.sync(Cover::Data(other), now, String::new());
        assert_eq!(seen(&disk, Model::Journal).len(), 1);
        assert_eq!(seen(&disk, Model::Ordered).len(), 2);
        assert_eq!(seen(&disk, Model::Anything).len(), 2);
    }

    #[test]
    fn images_stand_on_the_disk_as_they_are_and_what_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut image: Image = [
            (b"d".to_vec(), Entry::Dir(0o700)),
            (b"d/f".to_vec(), Entry::File(0o640, b"1".to_vec())),
            (b"l".to_vec(), Entry::Link(b"d/f".to_vec())),
        ]
        .into();
        write(dir.path(), &image).unwrap();
        assert_eq!(read(dir.path()).unwrap(), image);
        let before = fs::symlink_metadata(dir.path().join("d/f")).unwrap();
        image.remove(&b"l"[..]);
        image.insert(b"l".to_vec(), Entry::Dir(0o755));
        image.insert(b"l/x".to_vec(), Entry::File(0o600, Vec::new()));
        write(dir.path(), &image).unwrap();
        assert_eq!(read(dir.path()).unwrap(), image);
        let after = fs::symlink_metadata(dir.path().join("d/f")).unwrap();
        assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
    }
}

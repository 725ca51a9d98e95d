//! What a folder holds at one moment.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

use crate::text::{brief, show};

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Special,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Link => "link",
            Kind::Special => "special file",
        })
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The id that git gives these bytes, in hexadecimal, and their number.
    Blob {
        /// Forty hexadecimal digits.
        id: String,
        /// The length in bytes.
        size: u64,
    },
    /// The bytes could not be read; the reason.
    Unreadable(String),
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Blob { id, size } => write!(f, "{size} bytes {}", id.get(..10).unwrap_or(id)),
            Content::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

/// What tells whether an entry was touched, though it looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Change time, nanoseconds since 1970.
    pub ctime_ns: i128,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u64,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its type.
    pub kind: Kind,
    /// The permission bits, `0o7777`; those of a link mean nothing and are 0.
    pub mode: u32,
    /// Of a file: what it holds.
    pub content: Option<Content>,
    /// Of a link: its text.
    pub link: Option<Vec<u8>>,
    /// Its extended attributes below `user.`, and its access control lists; `None` where they were not read. Links have none.
    pub xattrs: Option<Xattrs>,
    /// Absent where the entry was not read from a disk.
    pub identity: Option<Identity>,
}

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// How two models are compared.
#[derive(Clone, Debug)]
pub struct Compare {
    /// Which permission bits count.
    pub mode: ModeRule,
    /// Whether inode, mtime and ctime of files and links must be the same.
    pub identity: bool,
    /// Whether owner and group must be the same.
    pub owner: bool,
    /// Whether the root's own mode counts.
    pub root: bool,
}

/// Which permission bits count in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeRule {
    /// All of `0o7777`.
    Exact,
    /// Of files, whether the owner may execute them; of directories, none. What git keeps.
    Executable,
    /// None.
    Ignore,
}

impl Default for Compare {
    fn default() -> Self {
        Compare { mode: ModeRule::Exact, identity: false, owner: false, root: false }
    }
}

impl Compare {
    /// Type, content, link text and the executable bit: what a stock git tree says.
    pub fn as_git() -> Self {
        Compare { mode: ModeRule::Executable, ..Compare::default() }
    }

    /// As the default, and nothing may have been written: inode, mtime, ctime, owner, group and the root too.
    pub fn untouched() -> Self {
        Compare { mode: ModeRule::Exact, identity: true, owner: true, root: true }
    }
}

/// One difference between two models, as "left" (expected) and "right" (found).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, relative to the root; empty for the root.
    pub path: Vec<u8>,
    /// What differs.
    pub what: What,
}

/// What differs at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    Missing { left: Kind },
    Extra { right: Kind },
    Kind { left: Kind, right: Kind },
    Mode { left: u32, right: u32 },
    Content { left: Content, right: Content },
    Link { left: Vec<u8>, right: Vec<u8> },
    Inode { left: u64, right: u64 },
    Mtime { left: i128, right: i128 },
    Ctime { left: i128, right: i128 },
    Owner { left: (u32, u32), right: (u32, u32) },
    Xattrs { left: Xattrs, right: Xattrs },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", brief(&self.path))?;
        match &self.what {
            What::Missing { left } => write!(f, "missing ({left})"),
            What::Extra { right } => write!(f, "not expected ({right})"),
            What::Kind { left, right } => write!(f, "type {left} -> {right}"),
            What::Mode { left, right } => write!(f, "mode {left:04o} -> {right:04o}"),
            What::Content { left, right } => write!(f, "content {left} -> {right}"),
            What::Link { left, right } => write!(f, "link {} -> {}", brief(left), brief(right)),
            What::Inode { left, right } => write!(f, "inode {left} -> {right}"),
            What::Mtime { left, right } => write!(f, "mtime {left} -> {right}"),
            What::Ctime { left, right } => write!(f, "ctime {left} -> {right}"),
            What::Xattrs { left, right } => {
                let text = |x: &Xattrs| {
                    let pairs: Vec<String> =
                        x.iter().map(|(k, v)| format!("{}={}", show(k), show(v))).collect();
                    format!("{{{}}}", pairs.join(" "))
                };
                write!(f, "attributes {} -> {}", text(left), text(right))
            }
            What::Owner { left, right } => {
                write!(f, "owner {}:{} -> {}:{}", left.0, left.1, right.0, right.1)
            }
        }
    }
}

/// What a folder holds: raw byte paths, relative to the root, with `/` between their parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeModel {
    /// The root itself.
    pub root: Entry,
    /// Everything below it, empty directories included.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// What to read of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether entries named exactly `.git` are entered.
    pub git: bool,
    /// Whether the content of files is read.
    pub content: bool,
    /// Whether extended attributes are read, of what can be opened.
    pub xattrs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { git: false, content: true, xattrs: false }
    }
}

impl TreeModel {
    /// A model of nothing: an empty root.
    pub fn empty() -> Self {
        TreeModel {
            root: Entry {
                kind: Kind::Dir,
                mode: 0o755,
                content: None,
                link: None,
                xattrs: None,
                identity: None,
            },
            entries: BTreeMap::new(),
        }
    }

    /// Reads a folder without what is named `.git`.
    pub fn read(root: &Path) -> io::Result<Self> {
        Self::read_with(root, Options::default())
    }

    /// Reads a folder with every `.git` in it.
    pub fn read_all(root: &Path) -> io::Result<Self> {
        Self::read_with(root, Options { git: true, ..Options::default() })
    }

    /// Reads a folder. Links are never followed; an entry that vanishes meanwhile is an error.
    pub fn read_with(root: &Path, options: Options) -> io::Result<Self> {
        let dir = rustix::fs::openat(CWD, root, DIR_FLAGS, Mode::empty())
            .map_err(|e| at(root.as_os_str().as_bytes(), e))?;
        let stat = rustix::fs::fstat(&dir)?;
        let mut model = TreeModel { root: entry_of(&stat, Kind::Dir), entries: BTreeMap::new() };
        read_dir(&dir, &mut Vec::new(), options, &mut model.entries)?;
        Ok(model)
    }

    /// Every difference, in the order of the paths. `self` is what was expected.
    pub fn differences(&self, found: &TreeModel, compare: &Compare) -> Vec<Difference> {
        let mut out = Vec::new();
        if compare.root {
            differ(&[], &self.root, &found.root, compare, &mut out);
        }
        for (path, left) in &self.entries {
            match found.entries.get(path) {
                None => out.push(Difference { path: path.clone(), what: What::Missing { left: left.kind } }),
                Some(right) => differ(path, left, right, compare, &mut out),
            }
        }
        for (path, right) in &found.entries {
            if !self.entries.contains_key(path) {
                out.push(Difference { path: path.clone(), what: What::Extra { right: right.kind } });
            }
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        out
    }

    /// Whether nothing differs.
    pub fn same(&self, found: &TreeModel, compare: &Compare) -> bool {
        self.differences(found, compare).is_empty()
    }

    /// The differences as text, at most `limit` lines and a count of the rest; `None` when there are none.
    pub fn report(&self, found: &TreeModel, compare: &Compare, limit: usize) -> Option<String> {
        let all = self.differences(found, compare);
        if all.is_empty() {
            return None;
        }
        let mut out = String::new();
        for difference in all.iter().take(limit) {
            out.push_str(&format!("  {difference}\n"));
        }
        if all.len() > limit {
            out.push_str(&format!("  and {} more\n", all.len() - limit));
        }
        Some(out)
    }

    /// Panics with the list of differences, if there are any.
    #[track_caller]
    pub fn assert_same(&self, found: &TreeModel, compare: &Compare, what: &str) {
        if let Some(report) = self.report(found, compare, 40) {
            panic!("{what}: the trees differ (expected -> found):\n{report}");
        }
    }

    /// Files and links that are equal in both and yet were written, replaced or had their times changed.
    ///
    /// This is what a restore must not do: an entry that already matches is never opened for writing.
    pub fn touched_though_equal(&self, after: &TreeModel) -> Vec<Difference> {
        let plain = Compare::default();
        let strict = Compare::untouched();
        let mut out = Vec::new();
        for (path, left) in &self.entries {
            if let Some(right) = after.entries.get(path) {
                let mut found = Vec::new();
                differ(path, left, right, &plain, &mut found);
                if found.is_empty() {
                    differ(path, left, right, &strict, &mut out);
                }
            }
        }
        out
    }

    /// Paths at which this folder is neither as in `old` nor as in `new` (absence included).
    pub fn neither(&self, old: &TreeModel, new: &TreeModel, compare: &Compare) -> Vec<Vec<u8>> {
        let equal =
            |path: &[u8], a: &TreeModel, b: &TreeModel| match (a.entries.get(path), b.entries.get(path)) {
                (None, None) => true,
                (Some(l), Some(r)) => {
                    let mut found = Vec::new();
                    differ(path, l, r, compare, &mut found);
                    found.is_empty()
                }
                _ => false,
            };
        let mut paths: Vec<&Vec<u8>> =
            self.entries.keys().chain(old.entries.keys()).chain(new.entries.keys()).collect();
        paths.sort();
        paths.dedup();
        paths.into_iter().filter(|p| !equal(p, old, self) && !equal(p, new, self)).cloned().collect()
    }

    /// The entries for which `keep` says yes.
    pub fn filter(&self, keep: impl Fn(&[u8], &Entry) -> bool) -> TreeModel {
        TreeModel {
            root: self.root.clone(),
            entries: self
                .entries
                .iter()
                .filter(|(p, e)| keep(p, e))
                .map(|(p, e)| (p.clone(), e.clone()))
                .collect(),
        }
    }

    /// The number of entries of a type.
    pub fn count(&self, kind: Kind) -> usize {
        self.entries.values().filter(|e| e.kind == kind).count()
    }
}

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

fn at(path: &[u8], error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", show(path)))
}

fn entry_of(stat: &rustix::fs::Stat, kind: Kind) -> Entry {
    let nanos = |s: i64, n: i64| i128::from(s) * 1_000_000_000 + i128::from(n);
    #[allow(clippy::unnecessary_cast)]
    let identity = Identity {
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        mtime_ns: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink as u64,
    };
    #[allow(clippy::unnecessary_cast)]
    let mode = if kind == Kind::Link { 0 } else { stat.st_mode as u32 & 0o7777 };
    Entry { kind, mode, content: None, link: None, xattrs: None, identity: Some(identity) }
}

fn read_dir(
    dir: &OwnedFd,
    prefix: &mut Vec<u8>,
    options: Options,
    out: &mut BTreeMap<Vec<u8>, Entry>,
) -> io::Result<()> {
    let mut names = Vec::new();
    for item in Dir::read_from(dir).map_err(|e| at(prefix, e))? {
        let item = item.map_err(|e| at(prefix, e))?;
        let name = item.file_name().to_bytes();
        if name != b"." && name != b".." && (options.git || name != b".git") {
            names.push(item.file_name().to_owned());
        }
    }
    let base = prefix.len();
    for name in names {
        if base > 0 {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(name.to_bytes());
        let stat = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| at(prefix, e))?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        };
        let mut entry = entry_of(&stat, kind);
        match kind {
            Kind::Link => {
                let text = rustix::fs::readlinkat(dir, &name, Vec::new()).map_err(|e| at(prefix, e))?;
                entry.link = Some(text.into_bytes());
            }
            Kind::File if options.content => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                entry.content = Some(match rustix::fs::openat(dir, &name, flags, Mode::empty()) {
                    Ok(fd) => {
                        if options.xattrs {
                            entry.xattrs = Some(xattrs(&fd).map_err(|e| at(prefix, e))?);
                        }
                        blob(fs::File::from(fd)).map_err(|e| at(prefix, e))?
                    }
                    Err(error) => Content::Unreadable(error.to_string()),
                });
            }
            Kind::Dir => match rustix::fs::openat(dir, &name, DIR_FLAGS, Mode::empty()) {
                Ok(fd) => {
                    if options.xattrs {
                        entry.xattrs = Some(xattrs(&fd).map_err(|e| at(prefix, e))?);
                    }
                    read_dir(&fd, prefix, options, out)?;
                }
                Err(error) => entry.content = Some(Content::Unreadable(error.to_string())),
            },
            _ => {}
        }
        out.insert(prefix.clone(), entry);
        prefix.truncate(base);
    }
    Ok(())
}

/// The attributes that a checkpoint keeps; a file system without any has none.
fn xattrs(fd: &OwnedFd) -> io::Result<Xattrs> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(fd, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut out = Xattrs::new();
    for name in names[..length].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        if name.starts_with(b"user.")
            || name.starts_with(b"system.posix_acl_")
            || name == b"security.capability"
        {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::fgetxattr(fd, name, &mut value[..])?;
            value.truncate(length);
            out.insert(name.to_vec(), value);
        }
    }
    Ok(out)
}

/// The id that git gives to what is left to read of `file`.
fn blob(mut file: fs::File) -> io::Result<Content> {
    let size = file.metadata()?.len();
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(format!("blob {size}\0").as_bytes());
    let mut buffer = vec![0; (size.clamp(1, 1 << 18)) as usize];
    let mut seen = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                seen += n as u64;
            }
        }
    }
    if seen != size {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok(Content::Blob { id: hex(hasher)?, size })
}

/// The id that git gives to these bytes as a blob.
pub fn blob_id(bytes: &[u8]) -> io::Result<String> {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(format!("blob {}\0", bytes.len()).as_bytes());
    hasher.update(bytes);
    hex(hasher)
}

fn hex(hasher: gix_hash::Hasher) -> io::Result<String> {
    Ok(hasher.try_finalize().map_err(io::Error::other)?.to_hex().to_string())
}

fn differ(path: &[u8], left: &Entry, right: &Entry, compare: &Compare, out: &mut Vec<Difference>) {
    let mut push = |what| out.push(Difference { path: path.to_vec(), what });
    if left.kind != right.kind {
        push(What::Kind { left: left.kind, right: right.kind });
        return;
    }
    let bits = |entry: &Entry| match (compare.mode, entry.kind) {
        (ModeRule::Ignore, _) | (_, Kind::Link) => 0,
        (ModeRule::Exact, _) => entry.mode,
        (ModeRule::Executable, Kind::File) => {
            if entry.mode & 0o100 == 0 {
                0o644
            } else {
                0o755
            }
        }
        (ModeRule::Executable, _) => 0,
    };
    if bits(left) != bits(right) {
        push(What::Mode { left: bits(left), right: bits(right) });
    }
    if let (Some(l), Some(r)) = (&left.content, &right.content)
        && l != r
    {
        push(What::Content { left: l.clone(), right: r.clone() });
    } else if left.content.is_some() != right.content.is_some() {
        let text = |c: &Option<Content>| c.clone().unwrap_or(Content::Unreadable("not read".into()));
        push(What::Content { left: text(&left.content), right: text(&right.content) });
    }
    if left.link != right.link {
        let text = |l: &Option<Vec<u8>>| l.clone().unwrap_or_default();
        push(What::Link { left: text(&left.link), right: text(&right.link) });
    }
    if let (Some(l), Some(r)) = (&left.xattrs, &right.xattrs)
        && l != r
    {
        push(What::Xattrs { left: l.clone(), right: r.clone() });
    }
    if let (Some(l), Some(r)) = (left.identity, right.identity) {
        if compare.identity && left.kind != Kind::Dir {
            if (l.dev, l.ino) != (r.dev, r.ino) {
                push(What::Inode { left: l.ino, right: r.ino });
            }
            if l.mtime_ns != r.mtime_ns {
                push(What::Mtime { left: l.mtime_ns, right: r.mtime_ns });
            }
            if l.ctime_ns != r.ctime_ns {
                push(What::Ctime { left: l.ctime_ns, right: r.ctime_ns });
            }
        }
        if compare.owner && (l.uid, l.gid) != (r.uid, r.gid) {
            push(What::Owner { left: (l.uid, l.gid), right: (r.uid, r.gid) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A small tree with one of everything.
    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::write(root.join("file"), "one").unwrap();
        fs::create_dir_all(root.join("sub/empty")).unwrap();
        fs::write(root.join("sub/run.sh"), "#!/bin/sh\n").unwrap();
        symlink("file", root.join("link")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: x\n").unwrap();
        dir
    }

    /// Applies `change`, and returns what the comparison says of it.
    fn after(compare: &Compare, change: impl FnOnce(&Path)) -> Vec<String> {
        let dir = sample();
        let before = TreeModel::read_all(dir.path()).unwrap();
        assert!(before.same(&before.clone(), &Compare::untouched()));
        change(dir.path());
        let now = TreeModel::read_all(dir.path()).unwrap();
        before.differences(&now, compare).iter().map(|d| d.to_string()).collect()
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn content_ids_are_gits() {
        assert_eq!(blob_id(b"").unwrap(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n").unwrap(), "ce013625030ba8dba906f756967f9e9ca394464a");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "hello\n").unwrap();
        let model = TreeModel::read(dir.path()).unwrap();
        let id = "ce013625030ba8dba906f756967f9e9ca394464a".to_string();
        assert_eq!(model.entries[&b"a"[..]].content, Some(Content::Blob { id, size: 6 }));
    }

    #[test]
    fn reads_every_kind_and_leaves_git_out_unless_told() {
        let dir = sample();
        let names = |m: &TreeModel| m.entries.keys().map(|k| show(k)).collect::<Vec<_>>();
        let model = TreeModel::read(dir.path()).unwrap();
        assert_eq!(names(&model), ["file", "link", "sub", "sub/empty", "sub/run.sh"]);
        let all = TreeModel::read_all(dir.path()).unwrap();
        assert_eq!(names(&all), [".git", ".git/HEAD", "file", "link", "sub", "sub/empty", "sub/run.sh"]);
        assert_eq!((all.count(Kind::Dir), all.count(Kind::File), all.count(Kind::Link)), (3, 3, 1));
    }

    #[test]
    fn sees_each_kind_of_difference() {
        let plain = Compare::default();
        assert_eq!(after(&plain, |_| ()), [""; 0]);
        assert_eq!(after(&plain, |r| fs::remove_file(r.join("file")).unwrap()), ["file: missing (file)"]);
        assert_eq!(after(&plain, |r| fs::write(r.join("new"), "").unwrap()), ["new: not expected (file)"]);
        assert_eq!(after(&plain, |r| fs::create_dir(r.join("d")).unwrap()), ["d: not expected (directory)"]);
        assert_eq!(
            after(&plain, |r| fs::remove_dir(r.join("sub/empty")).unwrap()),
            ["sub/empty: missing (directory)"]
        );
        assert_eq!(after(&plain, |r| chmod(&r.join("file"), 0o600)), ["file: mode 0644 -> 0600"]);
        assert_eq!(after(&plain, |r| chmod(&r.join("sub"), 0o1777)), ["sub: mode 0755 -> 1777"]);
        let content = after(&plain, |r| fs::write(r.join("file"), "two").unwrap());
        assert_eq!(content.len(), 1);
        assert!(content[0].starts_with("file: content 3 bytes "), "{content:?}");
        let link = after(&plain, |r| {
            fs::remove_file(r.join("link")).unwrap();
            symlink("elsewhere", r.join("link")).unwrap();
        });
        assert_eq!(link, ["link: link file -> elsewhere"]);
        let kind = after(&plain, |r| {
            fs::remove_file(r.join("file")).unwrap();
            fs::create_dir(r.join("file")).unwrap();
        });
        assert_eq!(kind, ["file: type file -> directory"]);
        assert_eq!(after(&plain, |r| fs::write(r.join(".git/HEAD"), "moved\n").unwrap()).len(), 1);
    }

    #[test]
    fn sees_extended_attributes_when_they_are_read() {
        let dir = sample();
        let set = |path: &str, value: &[u8]| {
            let file = fs::File::open(dir.path().join(path)).unwrap();
            rustix::fs::fsetxattr(&file, "user.note", value, rustix::fs::XattrFlags::empty())
        };
        crate::require!(set("file", b"one").is_ok(), "no extended attributes on this file system");
        let read =
            || TreeModel::read_with(dir.path(), Options { xattrs: true, ..Options::default() }).unwrap();
        let before = read();
        assert_eq!(
            before.entries[&b"file"[..]].xattrs,
            Some(Xattrs::from([(b"user.note".to_vec(), b"one".to_vec())]))
        );
        set("file", b"two").unwrap();
        set("sub", b"new").unwrap();
        let said: Vec<String> =
            before.differences(&read(), &Compare::default()).iter().map(|d| d.to_string()).collect();
        let expected =
            ["file: attributes {user.note=one} -> {user.note=two}", "sub: attributes {} -> {user.note=new}"];
        assert_eq!(said, expected);
        assert!(before.same(&TreeModel::read(dir.path()).unwrap(), &Compare::default()));
    }

    #[test]
    fn sees_a_rewrite_with_the_same_bytes() {
        let strict = Compare::untouched();
        assert_eq!(after(&strict, |_| ()), [""; 0]);
        let replaced = after(&strict, |r| {
            let bytes = fs::read(r.join("file")).unwrap();
            fs::write(r.join("other"), bytes).unwrap();
            fs::rename(r.join("other"), r.join("file")).unwrap();
        });
        assert!(replaced.iter().any(|d| d.starts_with("file: inode ")), "{replaced:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let times = after(&strict, |r| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(r.join("file"), "one").unwrap();
        });
        assert!(times.iter().any(|d| d.starts_with("file: mtime ")), "{times:?}");
        assert!(times.iter().any(|d| d.starts_with("file: ctime ")), "{times:?}");
        assert!(!times.iter().any(|d| d.starts_with("file: inode ")), "{times:?}");
    }

    #[test]
    fn names_what_was_touched_though_equal() {
        let dir = sample();
        let before = TreeModel::read(dir.path()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(dir.path().join("file"), "one").unwrap();
        fs::write(dir.path().join("sub/run.sh"), "changed").unwrap();
        let now = TreeModel::read(dir.path()).unwrap();
        let touched = before.touched_though_equal(&now);
        assert!(!touched.is_empty());
        assert!(touched.iter().all(|d| d.path == b"file"), "{touched:?}");
    }

    #[test]
    fn finds_paths_that_are_neither_old_nor_new() {
        let dir = sample();
        let old = TreeModel::read(dir.path()).unwrap();
        fs::write(dir.path().join("file"), "new").unwrap();
        fs::remove_file(dir.path().join("link")).unwrap();
        let new = TreeModel::read(dir.path()).unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        let mixed = TreeModel::read(dir.path()).unwrap();
        let plain = Compare::default();
        assert!(mixed.neither(&old, &new, &plain).is_empty());
        fs::write(dir.path().join("file"), "torn").unwrap();
        fs::write(dir.path().join("left-over"), "").unwrap();
        let torn = TreeModel::read(dir.path()).unwrap();
        assert_eq!(torn.neither(&old, &new, &plain), [b"file".to_vec(), b"left-over".to_vec()]);
    }

    #[test]
    fn gits_view_knows_the_executable_bit_only() {
        let as_git = Compare::as_git();
        assert_eq!(after(&as_git, |r| chmod(&r.join("file"), 0o600)), [""; 0]);
        assert_eq!(after(&as_git, |r| chmod(&r.join("sub"), 0o700)), [""; 0]);
        assert_eq!(after(&as_git, |r| chmod(&r.join("file"), 0o755)), ["file: mode 0644 -> 0755"]);
    }
}

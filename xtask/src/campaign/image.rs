//! What a folder holds, in memory: to compare with, and to make the folder so again without making its root anew.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use backstitch_testkit::text::brief;

/// Names that only we use, for what does not stay.
pub const TEMPORARY: &[u8] = b".backstitch-tmp-";

/// One entry: its type, with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file's bytes.
    File(Vec<u8>),
    /// A directory.
    Dir,
    /// A link's text.
    Link(Vec<u8>),
    /// Anything else.
    Other,
}

/// By what it is known that an entry was not touched: inode, mtime, ctime.
type Stamp = (u64, i64, i64, i64, i64);

#[derive(Clone, Debug)]
struct Entry {
    thing: Thing,
    mode: u32,
    modified: SystemTime,
    stamp: Stamp,
}

/// A folder, every `.git` in it included.
#[derive(Clone, Debug, Default)]
pub struct Image(BTreeMap<Vec<u8>, Entry>);

fn stamp(meta: &fs::Metadata) -> Stamp {
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
}

fn mode(meta: &fs::Metadata) -> u32 {
    if meta.is_symlink() { 0 } else { meta.mode() & 0o7777 }
}

/// `at` for every entry below `root`, parents first.
fn walk(root: &Path, mut at: impl FnMut(Vec<u8>, &Path, fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    let mut open = vec![(root.to_path_buf(), Vec::new())];
    while let Some((dir, prefix)) = open.pop() {
        for item in fs::read_dir(&dir)? {
            let item = item?;
            let mut path = prefix.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(item.file_name().as_bytes());
            let (full, meta) = (item.path(), item.metadata()?);
            if meta.is_dir() {
                open.push((full.clone(), path.clone()));
            }
            at(path, &full, meta)?;
        }
    }
    Ok(())
}

impl Image {
    /// Reads a folder. Links are not followed.
    pub fn read(root: &Path) -> io::Result<Image> {
        let mut out = BTreeMap::new();
        walk(root, |path, full, meta| {
            let thing = if meta.is_dir() {
                Thing::Dir
            } else if meta.is_symlink() {
                Thing::Link(fs::read_link(full)?.as_os_str().as_bytes().to_vec())
            } else if meta.is_file() {
                Thing::File(fs::read(full)?)
            } else {
                Thing::Other
            };
            let modified = meta.modified()?;
            out.insert(path, Entry { thing, mode: mode(&meta), modified, stamp: stamp(&meta) });
            Ok(())
        })?;
        Ok(Image(out))
    }

    /// What is at a path.
    pub fn get(&self, path: &[u8]) -> Option<&Thing> {
        self.0.get(path).map(|e| &e.thing)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The raw paths.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }

    /// Only what the choice keeps.
    pub fn only(mut self, keep: impl Fn(&[u8]) -> bool) -> Image {
        self.0.retain(|path, _| keep(path));
        self
    }

    /// Makes `root` hold exactly this. What has its stamp still is left as it is.
    pub fn put_back(&mut self, root: &Path) -> io::Result<()> {
        let full = |path: &[u8]| root.join(OsStr::from_bytes(path));
        let mut now = BTreeMap::new();
        walk(root, |path, _, meta| {
            now.insert(path, (meta.is_dir(), stamp(&meta)));
            Ok(())
        })?;
        let stays = |path: &[u8], dir: bool, stamp: Stamp| {
            self.0.get(path).is_some_and(|e| if dir { e.thing == Thing::Dir } else { e.stamp == stamp })
        };
        // Children before their parents.
        now.retain(|path, (dir, stamp)| {
            stays(path, *dir, *stamp) || {
                gone(&full(path), *dir);
                false
            }
        });
        for path in leftover_dirs(root, self)? {
            fs::remove_dir_all(path)?;
        }
        for (path, entry) in &self.0 {
            if now.contains_key(path) {
                continue;
            }
            let target = full(path);
            match &entry.thing {
                Thing::Dir => fs::create_dir(&target)?,
                Thing::Link(text) => symlink(OsStr::from_bytes(text), &target)?,
                Thing::File(bytes) => {
                    let mut file = fs::File::create_new(&target)?;
                    file.write_all(bytes)?;
                    file.set_modified(entry.modified)?;
                    file.set_permissions(fs::Permissions::from_mode(entry.mode))?;
                }
                Thing::Other => return Err(io::Error::other(format!("{}: not to be made", brief(path)))),
            }
        }
        for (path, entry) in self.0.iter().rev() {
            let target = full(path);
            if entry.thing == Thing::Dir && mode(&target.symlink_metadata()?) != entry.mode {
                fs::set_permissions(&target, fs::Permissions::from_mode(entry.mode))?;
            }
        }
        for (path, entry) in &mut self.0 {
            entry.stamp = stamp(&full(path).symlink_metadata()?);
        }
        Ok(())
    }

    /// Paths that differ in type, mode, content or link text, each with what differs. Our temporaries do not count with `ours`.
    pub fn differences(&self, found: &Image, ours: bool) -> Vec<String> {
        let counts = |path: &[u8]| !ours || !path.split(|b| *b == b'/').any(|n| n.starts_with(TEMPORARY));
        let mut out = Vec::new();
        for (path, left) in self.0.iter().filter(|(p, _)| counts(p)) {
            match found.0.get(path) {
                None => out.push(format!("{}: missing ({})", brief(path), left.thing.kind())),
                Some(right) if right.thing != left.thing => {
                    let (a, b) = (left.thing.kind(), right.thing.kind());
                    let what = if a == b { format!("another {a}") } else { format!("{a} is now a {b}") };
                    out.push(format!("{}: {what}", brief(path)));
                }
                Some(right) if right.mode != left.mode => {
                    out.push(format!("{}: mode {:o} is now {:o}", brief(path), left.mode, right.mode));
                }
                Some(_) => {}
            }
        }
        for (path, right) in found.0.iter().filter(|(p, _)| counts(p)) {
            if !self.0.contains_key(path) {
                out.push(format!("{}: not expected ({})", brief(path), right.thing.kind()));
            }
        }
        out
    }

    /// Whether both hold the same.
    pub fn same(&self, found: &Image) -> bool {
        self.differences(found, true).is_empty()
    }

    /// What was written to since the stamps were taken.
    pub fn touched(&self, found: &Image) -> Vec<String> {
        let mut out = self.differences(found, false);
        for (path, left) in &self.0 {
            if found.0.get(path).is_some_and(|right| right.stamp != left.stamp) {
                out.push(format!("{}: written to (inode or times)", brief(path)));
            }
        }
        out
    }

    /// Paths at which this is neither as in the one nor as in the other.
    pub fn neither(&self, old: &Image, new: &Image) -> Vec<String> {
        let view = |image: &Image, path: &[u8]| image.0.get(path).map(|e| (e.thing.clone(), e.mode));
        let mut paths: Vec<&Vec<u8>> = self.0.keys().chain(old.0.keys()).chain(new.0.keys()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
            .into_iter()
            .filter(|p| !p.split(|b| *b == b'/').any(|n| n.starts_with(TEMPORARY)))
            .filter(|p| {
                let now = view(self, p);
                now != view(old, p) && now != view(new, p)
            })
            .map(|p| brief(p))
            .collect()
    }
}

impl Thing {
    fn kind(&self) -> &'static str {
        match self {
            Thing::File(_) => "file",
            Thing::Dir => "directory",
            Thing::Link(_) => "link",
            Thing::Other => "special file",
        }
    }
}

/// Directories are taken away afterwards: what is in them may stand later in the order.
fn gone(path: &Path, dir: bool) {
    if !dir {
        let _ = fs::remove_file(path);
    }
}

fn leftover_dirs(root: &Path, image: &Image) -> io::Result<Vec<PathBuf>> {
    let mut out: Vec<PathBuf> = Vec::new();
    walk(root, |path, full, meta| {
        let above = out.iter().any(|top| full.starts_with(top));
        if meta.is_dir() && !above && image.get(&path) != Some(&Thing::Dir) {
            out.push(full.to_path_buf());
        }
        Ok(())
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_again_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for name in ["a", "a/b", "empty"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("a/file"), "one").unwrap();
        fs::write(root.join("a/b/deep"), "two").unwrap();
        symlink("nowhere", root.join("link")).unwrap();
        fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o711)).unwrap();
        let mut image = Image::read(root).unwrap();
        assert!(image.touched(&Image::read(root).unwrap()).is_empty());

        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a"), "a file").unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::create_dir_all(root.join("link/x/y")).unwrap();
        fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o700)).unwrap();
        let found = Image::read(root).unwrap();
        assert_eq!(image.differences(&found, false).len(), 8, "{:?}", image.differences(&found, false));

        image.put_back(root).unwrap();
        assert!(image.touched(&Image::read(root).unwrap()).is_empty());
        assert_eq!(fs::read(root.join("a/b/deep")).unwrap(), b"two");
        fs::write(root.join("a/file"), "one").unwrap();
        let found = Image::read(root).unwrap();
        assert!(image.same(&found) && image.touched(&found).len() == 1);
    }

    #[test]
    fn what_is_neither_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            fs::write(dir.path().join("x"), text).unwrap();
            Image::read(dir.path()).unwrap()
        };
        let (old, new, torn) = (write("old"), write("new"), write("torn"));
        assert_eq!(torn.neither(&old, &new), ["x"]);
        assert!(new.neither(&old, &new).is_empty());
        fs::write(dir.path().join(".backstitch-tmp-1-x1"), "").unwrap();
        assert!(Image::read(dir.path()).unwrap().neither(&old, &torn).is_empty());
        assert_eq!(torn.differences(&Image::read(dir.path()).unwrap(), false).len(), 1);
    }
}

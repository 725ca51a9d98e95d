//! Random edits.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
};

use proptest::prelude::*;

use super::{
    Bytes, Rng, name,
    names::name_strategy,
    tree::{LINKS, dir_mode, file_bytes, file_mode},
};
use crate::{
    Kind, TreeModel,
    model::Options,
    text::{join, show},
};

/// What is done at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A file there gets these bytes; anything else there is left.
    Overwrite(Bytes),
    /// A file there is replaced through a temporary and a rename.
    Replace(Bytes),
    /// A file there gets a line more.
    Append,
    /// A file there is cut to its half.
    Truncate,
    /// The same number of other bytes.
    SameSize,
    /// Whatever is there goes, with all below it.
    Remove,
    /// A file of this name is made in the directory there (or beside the file there).
    Create(Vec<u8>, Bytes),
    /// A directory of this name is made there.
    Mkdir(Vec<u8>),
    /// A link of this name and text is made there.
    Link(Vec<u8>, Vec<u8>),
    /// Renamed to this name, in its directory; what has the name is replaced where the system allows it.
    Rename(Vec<u8>),
    /// Moved into another directory.
    Move(usize),
    /// Its letters change their case.
    CaseRename,
    /// Other permission bits.
    Chmod(u64),
    /// Whatever is there becomes a file.
    ToFile(Bytes),
    /// Whatever is there becomes a directory with a file in it.
    ToDir(Bytes),
    /// Whatever is there becomes a link.
    ToLink(Vec<u8>),
    /// Changes places with another entry.
    Swap(usize),
    /// Only its times change.
    Touch,
}

/// One edit: an action at a path that is chosen when it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Chooses among the entries that are there at that moment (modulo their number).
    pub at: usize,
    /// What is done.
    pub action: Action,
}

/// Edits, one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script(pub Vec<Edit>);

impl Script {
    /// Carries them out below `root` and tells what was done. What is impossible at its path is left out.
    pub fn apply(&self, root: &Path) -> io::Result<Vec<String>> {
        let mut done = Vec::new();
        for edit in &self.0 {
            if let Some(text) = edit.apply(root)? {
                done.push(text);
            }
        }
        Ok(done)
    }
}

impl Edit {
    /// Carries the edit out and tells what was done; `None` when there was nothing to do it to.
    pub fn apply(&self, root: &Path) -> io::Result<Option<String>> {
        let model = TreeModel::read_with(root, Options { content: false, ..Options::default() })?;
        let paths: Vec<&Vec<u8>> = model.entries.keys().collect();
        let path: Vec<u8> = if paths.is_empty() { Vec::new() } else { paths[self.at % paths.len()].clone() };
        let kind = model.entries.get(&path).map_or(Kind::Dir, |e| e.kind);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => path[..slash].to_vec(),
            None => Vec::new(),
        };
        let folder = if kind == Kind::Dir { path.clone() } else { parent.clone() };
        let target = join(root, &path);
        let whole = path.is_empty();
        let is_file = kind == Kind::File;
        let result = match &self.action {
            Action::Overwrite(bytes) if is_file => {
                fs::File::create(&target).and_then(|mut file| bytes.write_to(&mut file))
            }
            Action::Replace(bytes) if is_file => {
                let temporary = join(root, &below(&parent, b"replacing~"));
                let made = fs::File::create_new(&temporary)
                    .and_then(|mut file| bytes.write_to(&mut file))
                    .and_then(|()| fs::rename(&temporary, &target));
                if made.is_err() {
                    fs::remove_file(&temporary).or_else(not_there)?;
                }
                made
            }
            Action::Append if is_file => fs::OpenOptions::new()
                .append(true)
                .open(&target)
                .and_then(|mut file| file.write_all(b"appended\n")),
            Action::Truncate if is_file => {
                fs::OpenOptions::new().write(true).open(&target).and_then(|file| {
                    let half = file.metadata()?.len() / 2;
                    file.set_len(half)
                })
            }
            Action::SameSize if is_file => fs::read(&target).and_then(|mut bytes| {
                bytes.iter_mut().for_each(|b| *b = b.wrapping_add(1));
                fs::write(&target, bytes)
            }),
            Action::Remove if !whole => remove(&target),
            Action::Create(name, bytes) => fs::File::create_new(join(root, &below(&folder, name)))
                .and_then(|mut file| bytes.write_to(&mut file)),
            Action::Mkdir(name) => fs::create_dir(join(root, &below(&folder, name))),
            Action::Link(name, text) => symlink(OsStr::from_bytes(text), join(root, &below(&folder, name))),
            Action::Rename(name) if !whole => fs::rename(&target, join(root, &below(&parent, name))),
            Action::Move(to) if !whole => {
                let dirs: Vec<&Vec<u8>> =
                    paths.iter().copied().filter(|p| model.entries[*p].kind == Kind::Dir).collect();
                let base = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
                let into: &[u8] = if dirs.is_empty() { b"" } else { dirs[to % dirs.len()] };
                fs::rename(&target, join(root, &below(into, base)))
            }
            Action::CaseRename if !whole => {
                let base = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
                let flipped: Vec<u8> =
                    base.iter()
                        .map(|b| {
                            if b.is_ascii_lowercase() {
                                b.to_ascii_uppercase()
                            } else {
                                b.to_ascii_lowercase()
                            }
                        })
                        .collect();
                if flipped == b".git" {
                    return Ok(None);
                }
                fs::rename(&target, join(root, &below(&parent, &flipped)))
            }
            Action::Chmod(seed) if !whole && matches!(kind, Kind::File | Kind::Dir) => {
                let mut rng = Rng::new(*seed);
                let root_user = crate::privilege::is_root();
                let mode =
                    if is_file { file_mode(&mut rng, root_user) } else { dir_mode(&mut rng, root_user) };
                fs::set_permissions(&target, fs::Permissions::from_mode(mode))
            }
            Action::ToFile(bytes) if !whole && !is_file => remove(&target)
                .and_then(|()| fs::File::create_new(&target))
                .and_then(|mut file| bytes.write_to(&mut file)),
            Action::ToDir(bytes) if !whole && kind != Kind::Dir => remove(&target)
                .and_then(|()| fs::create_dir(&target))
                .and_then(|()| fs::File::create_new(target.join("inside")))
                .and_then(|mut file| bytes.write_to(&mut file)),
            Action::ToLink(text) if !whole => {
                remove(&target).and_then(|()| symlink(OsStr::from_bytes(text), &target))
            }
            Action::Swap(with) if paths.len() > 1 => {
                let other = join(root, paths[with % paths.len()]);
                if other.starts_with(&target) || target.starts_with(&other) {
                    return Ok(None);
                }
                let aside = join(root, b"swapping~");
                fs::rename(&target, &aside)
                    .and_then(|()| fs::rename(&other, &target))
                    .and_then(|()| fs::rename(&aside, &other))
            }
            Action::Touch if is_file => fs::OpenOptions::new()
                .append(true)
                .open(&target)
                .and_then(|file| file.set_modified(std::time::SystemTime::now())),
            _ => return Ok(None),
        };
        match result {
            Ok(()) => Ok(Some(format!("{:?} at {}", self.action, show(&path)))),
            // The name is taken, or a path too long, or a directory in the way: not an edit that can be made here.
            Err(error) if error.raw_os_error().is_some() && !is_serious(&error) => Ok(None),
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("{:?} at {}: {error}", self.action, show(&path))))
            }
        }
    }
}

fn is_serious(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
        || error.raw_os_error() == Some(5)
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn remove(target: &Path) -> io::Result<()> {
    if target.symlink_metadata()?.is_dir() { fs::remove_dir_all(target) } else { fs::remove_file(target) }
}

fn link_text(rng: &mut Rng) -> Vec<u8> {
    rng.pick(LINKS).to_vec()
}

fn action(rng: &mut Rng, name: impl Fn(&mut Rng) -> Vec<u8>) -> Action {
    const MAX: usize = 60_000;
    match rng.below(100) {
        0..14 => Action::Overwrite(file_bytes(rng, MAX)),
        14..22 => Action::Replace(file_bytes(rng, MAX)),
        22..27 => Action::Append,
        27..31 => Action::Truncate,
        31..35 => Action::SameSize,
        35..47 => Action::Remove,
        47..59 => Action::Create(name(rng), file_bytes(rng, MAX)),
        59..63 => Action::Mkdir(name(rng)),
        63..66 => Action::Link(name(rng), link_text(rng)),
        66..72 => Action::Rename(name(rng)),
        72..76 => Action::Move(rng.below(1 << 16)),
        76..79 => Action::CaseRename,
        79..86 => Action::Chmod(rng.bits()),
        86..89 => Action::ToFile(file_bytes(rng, MAX)),
        89..92 => Action::ToDir(file_bytes(rng, MAX)),
        92..95 => Action::ToLink(link_text(rng)),
        95..98 => Action::Swap(rng.below(1 << 16)),
        _ => Action::Touch,
    }
}

/// `count` edits from a seed.
pub fn edits(seed: u64, count: usize) -> Script {
    let mut rng = Rng::new(seed);
    Script((0..count).map(|_| Edit { at: rng.below(1 << 16), action: action(&mut rng, name) }).collect())
}

/// Up to `max` edits; they shrink edit by edit.
pub fn scripts(max: usize) -> impl Strategy<Value = Script> {
    let edit = (any::<u16>(), any::<u64>(), name_strategy()).prop_map(|(at, seed, name)| Edit {
        at: at.into(),
        action: action(&mut Rng::new(seed), |_| name.clone()),
    });
    proptest::collection::vec(edit, 0..=max).prop_map(Script)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Compare, generate};

    fn word(action: &Action) -> String {
        format!("{action:?}").split(['(', ' ']).next().unwrap().to_owned()
    }

    #[test]
    fn the_same_seed_makes_the_same_edits() {
        let shape = generate::Shape { entries: 80, ..Default::default() };
        let run = || {
            let dir = tempfile::tempdir().unwrap();
            generate::tree(3, &shape).write(dir.path()).unwrap();
            edits(4, 60).apply(dir.path()).unwrap();
            (TreeModel::read(dir.path()).unwrap(), dir)
        };
        let ((a, _x), (b, _y)) = (run(), run());
        a.assert_same(&b, &Compare::default(), "one seed");
    }

    #[test]
    fn every_action_happens() {
        let mut asked = BTreeSet::new();
        let mut done = BTreeSet::new();
        for seed in 0..12 {
            let dir = tempfile::tempdir().unwrap();
            generate::tree(seed, &generate::Shape { entries: 60, ..Default::default() })
                .write(dir.path())
                .unwrap();
            let before = TreeModel::read(dir.path()).unwrap();
            let script = edits(seed, 60);
            asked.extend(script.0.iter().map(|e| word(&e.action)));
            for edit in &script.0 {
                if edit.apply(dir.path()).unwrap().is_some() {
                    done.insert(word(&edit.action));
                }
            }
            let after = TreeModel::read(dir.path()).unwrap();
            assert!(!before.same(&after, &Compare::default()), "seed {seed} changed nothing");
            assert!(!after.entries.keys().any(|p| p.ends_with(b"swapping~") || p.ends_with(b"replacing~")));
        }
        assert_eq!(asked.len(), 18);
        assert_eq!(asked, done);
    }

    #[test]
    fn an_empty_folder_can_be_edited() {
        let dir = tempfile::tempdir().unwrap();
        let done = edits(1, 100).apply(dir.path()).unwrap();
        assert!(done.len() > 20, "{done:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_script_runs_on_any_tree(spec in generate::trees(generate::Shape::default()), script in scripts(20)) {
            let dir = tempfile::tempdir().unwrap();
            spec.write(dir.path()).unwrap();
            script.apply(dir.path()).unwrap();
            TreeModel::read(dir.path()).unwrap();
        }
    }
}

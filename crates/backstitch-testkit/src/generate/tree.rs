//! Random trees.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
};

use proptest::prelude::*;

use super::{Rng, name, names::name_strategy};
use crate::text::join;

/// What a file holds, as a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Exactly these.
    Exact(Vec<u8>),
    /// Lines of text.
    Text {
        /// Which text.
        seed: u64,
        /// How many bytes.
        len: usize,
    },
    /// Incompressible bytes.
    Binary {
        /// Which bytes.
        seed: u64,
        /// How many.
        len: usize,
    },
    /// A hole, with a little data in its middle and at its end.
    Sparse {
        /// Which data.
        seed: u64,
        /// The size with its holes.
        len: u64,
    },
}

impl Bytes {
    /// Writes them to a file that is empty.
    pub fn write_to(&self, file: &mut fs::File) -> io::Result<()> {
        match self {
            Bytes::Exact(bytes) => file.write_all(bytes),
            Bytes::Text { seed, len } => file.write_all(&text(*seed, *len)),
            Bytes::Binary { seed, len } => file.write_all(&binary(*seed, *len)),
            Bytes::Sparse { seed, len } => {
                file.set_len(*len)?;
                let data = binary(*seed, 100);
                for at in [len / 2, len.saturating_sub(100)] {
                    file.seek(SeekFrom::Start(at))?;
                    file.write_all(&data[..(len - at).min(100) as usize])?;
                }
                Ok(())
            }
        }
    }
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: &[&str] = &[
        "fn", "let", "value", "return", "if", "the", "buffer", "0x1f", "==", "{", "}", "=>", "state",
        "index", "path",
    ];
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        let end = if rng.chance(15) { b'\n' } else { b' ' };
        out.extend_from_slice(rng.pick(WORDS).as_bytes());
        out.push(end);
    }
    out.truncate(len);
    out
}

fn binary(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.bits().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// One entry's type and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A file with these bytes and permission bits.
    File(Bytes, u32),
    /// A directory with these permission bits.
    Dir(u32),
    /// A link with this text.
    Link(Vec<u8>),
    /// A FIFO.
    Fifo,
}

/// One entry, hung under one of the directories before it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Chooses the directory (modulo their number; the root is the first).
    pub parent: usize,
    /// The name.
    pub name: Vec<u8>,
    /// The rest.
    pub node: Node,
}

/// What a generated tree may hold.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How many entries, about.
    pub entries: usize,
    /// Whether files may be unreadable to their owner; sensible for root only, who can read them all the same.
    pub unreadable: bool,
    /// Whether directories may be read-only to their owner; sensible for root only.
    pub read_only_dirs: bool,
    /// Whether there may be FIFOs.
    pub specials: bool,
    /// The largest file.
    pub max_file: usize,
    /// The deepest path, in parts.
    pub max_depth: usize,
}

impl Default for Shape {
    fn default() -> Self {
        let root = crate::privilege::is_root();
        Shape {
            entries: 40,
            unreadable: root,
            read_only_dirs: root,
            specials: false,
            max_file: 300_000,
            max_depth: 8,
        }
    }
}

/// A tree as a value: raw paths and what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSpec {
    /// Every entry; the parents of each are in it as well.
    pub nodes: BTreeMap<Vec<u8>, Node>,
}

impl TreeSpec {
    /// Hangs each part under a directory before it. Parts that find their name taken are left out.
    pub fn from_parts(parts: &[Part], max_depth: usize) -> Self {
        let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
        let mut nodes = BTreeMap::new();
        for part in parts {
            let mut path = dirs[part.parent % dirs.len()].clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&part.name);
            if nodes.contains_key(&path) {
                continue;
            }
            if let Node::Dir(_) = part.node
                && path.split(|b| *b == b'/').count() < max_depth
            {
                dirs.push(path.clone());
            }
            nodes.insert(path, part.node.clone());
        }
        TreeSpec { nodes }
    }

    /// Makes the tree below `root`, which must exist and hold none of it. Modes are set last, deepest first.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        for (path, node) in &self.nodes {
            let target = join(root, path);
            match node {
                Node::Dir(_) => fs::create_dir(&target)?,
                Node::File(bytes, mode) => {
                    let mut file = fs::File::create_new(&target)?;
                    bytes.write_to(&mut file)?;
                    file.set_permissions(fs::Permissions::from_mode(*mode))?;
                }
                Node::Link(text) => symlink(OsStr::from_bytes(text), &target)?,
                Node::Fifo => make_fifo(&target)?,
            }
        }
        for (path, node) in self.nodes.iter().rev() {
            if let Node::Dir(mode) = node {
                fs::set_permissions(join(root, path), fs::Permissions::from_mode(*mode))?;
            }
        }
        Ok(())
    }
}

pub(super) fn make_fifo(path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .map_err(io::Error::from);
    #[cfg(not(target_os = "linux"))]
    return Err(io::Error::new(io::ErrorKind::Unsupported, format!("no FIFO at {}", path.display())));
}

const FILE_MODES: &[u32] = &[0o644, 0o755, 0o600, 0o444, 0o640, 0o664, 0o700, 0o555, 0o666, 0o777, 0o1644];
const DIR_MODES: &[u32] = &[0o755, 0o755, 0o755, 0o700, 0o775, 0o2775, 0o2755, 0o1777, 0o711];

/// Texts of links: dangling, loops, upwards, absolute, to directories, strange bytes, long.
pub(super) const LINKS: &[&[u8]] = &[
    b"nowhere",
    b".",
    b"..",
    b"../..",
    b"loop",
    b"./loop/loop",
    b"/",
    b"/nonexistent/absolute",
    b"/dev/null",
    b"a",
    b"src1",
    b"a/b/../c",
    b"trailing/",
    b" ",
    b"new\nline",
    b"\xff\xfe",
    "公共.cpp".as_bytes(),
    b".git",
    b".git/config",
    b"-rf",
];

pub(super) fn file_mode(rng: &mut Rng, unreadable: bool) -> u32 {
    if rng.chance(55) {
        0o644
    } else if unreadable && rng.chance(10) {
        *rng.pick(&[0, 0o200, 0o111])
    } else {
        *rng.pick(FILE_MODES)
    }
}

pub(super) fn dir_mode(rng: &mut Rng, read_only: bool) -> u32 {
    if rng.chance(60) {
        0o755
    } else if read_only && rng.chance(15) {
        *rng.pick(&[0o555, 0o500, 0])
    } else {
        *rng.pick(DIR_MODES)
    }
}

pub(super) fn file_bytes(rng: &mut Rng, max: usize) -> Bytes {
    let seed = rng.bits();
    let cap = |n: usize| n.min(max);
    match rng.below(100) {
        0..10 => Bytes::Exact(Vec::new()),
        10..15 => {
            Bytes::Exact(rng.pick(&[&b"\r\n"[..], b"x", b"no newline", b"$Id$\n", b"a\r\nb\n\0"]).to_vec())
        }
        15..70 => Bytes::Text { seed, len: cap(1 + rng.below(4_000)) },
        70..88 => Bytes::Binary { seed, len: cap(1 + rng.below(4_000)) },
        88..94 => Bytes::Text { seed, len: cap(rng.below(60_000)) },
        94..97 => Bytes::Binary { seed, len: cap(rng.below(300_000)) },
        _ => Bytes::Sparse { seed, len: cap(1 << 18) as u64 },
    }
}

fn link_text(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(5) { vec![b'l'; 1 + rng.below(4000)] } else { rng.pick(LINKS).to_vec() }
}

/// A tree from a seed.
pub fn tree(seed: u64, shape: &Shape) -> TreeSpec {
    let mut rng = Rng::new(seed);
    let parts: Vec<Part> = (0..shape.entries)
        .map(|_| {
            let node = match rng.below(100) {
                0..25 => Node::Dir(dir_mode(&mut rng, shape.read_only_dirs)),
                25..37 => Node::Link(link_text(&mut rng)),
                37..40 if shape.specials => Node::Fifo,
                _ => Node::File(file_bytes(&mut rng, shape.max_file), file_mode(&mut rng, shape.unreadable)),
            };
            Part { parent: rng.below(1 << 16), name: name(&mut rng), node }
        })
        .collect();
    TreeSpec::from_parts(&parts, shape.max_depth)
}

/// An ordinary project from a seed: `files` text files of 1-8 KB in folders of about eight, plain names and modes.
pub fn project(seed: u64, files: usize) -> TreeSpec {
    let mut rng = Rng::new(seed);
    let mut nodes = BTreeMap::new();
    for n in 0..files {
        let (top, mid) = (n / 64, n / 8);
        let dir = if files <= 16 { "src".to_owned() } else { format!("pkg{top}/mod{mid}") };
        if files > 16 {
            nodes.entry(format!("pkg{top}").into_bytes()).or_insert(Node::Dir(0o755));
        }
        nodes.entry(dir.clone().into_bytes()).or_insert(Node::Dir(0o755));
        let ext = *rng.pick(&["rs", "ts", "py", "md", "json"]);
        let len = 200 + rng.below(4_000);
        let mode = if rng.chance(3) { 0o755 } else { 0o644 };
        nodes.insert(
            format!("{dir}/file{n}.{ext}").into_bytes(),
            Node::File(Bytes::Text { seed: rng.bits(), len }, mode),
        );
    }
    TreeSpec { nodes }
}

/// Trees of up to `shape.entries` entries; they shrink entry by entry.
pub fn trees(shape: Shape) -> impl Strategy<Value = TreeSpec> {
    let (max_depth, entries) = (shape.max_depth, shape.entries);
    proptest::collection::vec(part(shape), 0..=entries)
        .prop_map(move |parts| TreeSpec::from_parts(&parts, max_depth))
}

fn part(shape: Shape) -> impl Strategy<Value = Part> {
    let Shape { unreadable, read_only_dirs, specials, max_file, .. } = shape;
    let file = any::<u64>().prop_map(move |seed| {
        let mut rng = Rng::new(seed);
        Node::File(file_bytes(&mut rng, max_file), file_mode(&mut rng, unreadable))
    });
    let dir = any::<u64>().prop_map(move |seed| Node::Dir(dir_mode(&mut Rng::new(seed), read_only_dirs)));
    let link = any::<u64>().prop_map(|seed| Node::Link(link_text(&mut Rng::new(seed))));
    let plain = "[a-z]{0,8}".prop_map(|s| Node::File(Bytes::Exact(s.into_bytes()), 0o644));
    let node = prop_oneof![
        20 => plain,
        35 => file,
        28 => dir,
        14 => link,
        3 => Just(Node::Fifo).prop_map(move |n| if specials { n } else { Node::Dir(0o755) }),
    ];
    (any::<u16>(), name_strategy(), node).prop_map(|(parent, name, node)| Part {
        parent: parent.into(),
        name,
        node,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compare, Kind, TreeModel};

    #[test]
    fn the_same_seed_makes_the_same_tree() {
        let shape = Shape { entries: 200, ..Shape::default() };
        assert_eq!(tree(5, &shape), tree(5, &shape));
        assert_ne!(tree(5, &shape), tree(6, &shape));
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tree(5, &shape).write(a.path()).unwrap();
        tree(5, &shape).write(b.path()).unwrap();
        let (a, b) = (TreeModel::read(a.path()).unwrap(), TreeModel::read(b.path()).unwrap());
        a.assert_same(&b, &Compare::default(), "one seed");
        assert!(a.count(Kind::Dir) > 10 && a.count(Kind::Link) > 5 && a.count(Kind::File) > 50);
    }

    #[test]
    fn what_is_written_is_what_was_meant() {
        for seed in 0..20 {
            let spec = tree(seed, &Shape { specials: cfg!(target_os = "linux"), ..Shape::default() });
            let dir = tempfile::tempdir().unwrap();
            spec.write(dir.path()).unwrap();
            let model = TreeModel::read(dir.path()).unwrap();
            assert_eq!(model.entries.len(), spec.nodes.len());
            for (path, node) in &spec.nodes {
                let found = &model.entries[path];
                match node {
                    Node::File(_, mode) => assert_eq!((found.kind, found.mode), (Kind::File, *mode)),
                    Node::Dir(mode) => assert_eq!((found.kind, found.mode), (Kind::Dir, *mode)),
                    Node::Link(text) => assert_eq!(found.link.as_ref(), Some(text)),
                    Node::Fifo => assert_eq!(found.kind, Kind::Special),
                }
            }
        }
    }

    #[test]
    fn a_project_has_its_files() {
        let spec = project(1, 1000);
        assert_eq!(spec.nodes.values().filter(|n| matches!(n, Node::File(..))).count(), 1000);
    }

    #[test]
    fn sparse_files_have_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut file = fs::File::create_new(&path).unwrap();
        Bytes::Sparse { seed: 1, len: 1 << 24 }.write_to(&mut file).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 1 << 24);
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 1000);
        assert!(fs::read(&path).unwrap().iter().any(|b| *b != 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn every_tree_can_be_written(spec in trees(Shape::default())) {
            let dir = tempfile::tempdir().unwrap();
            spec.write(dir.path()).unwrap();
            prop_assert_eq!(TreeModel::read(dir.path()).unwrap().entries.len(), spec.nodes.len());
        }
    }
}

//! The trees that are measured on.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use backstitch_testkit::{
    Git,
    generate::{self, Bytes, Rng},
    privilege::{has_program, is_root},
};

use crate::{Result, tools};

/// Names the folder where ready-made trees are kept, instead of `trees` below cargo's target folder.
pub const CACHE: &str = "BACKSTITCH_TREES";

/// One of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// A small project of 1,000 files.
    Small,
    /// The source of Linux, from Debian's package.
    Linux,
    /// The same as a clean, packed git repository.
    LinuxGit,
    /// So many small files.
    Synth(usize),
    /// Packages of npm.
    Js,
    /// Large files that do not compress; the sizes are divided by this.
    Big(u64),
}

impl Tree {
    /// Those of this name: of `synth` one for each number of files.
    pub fn parse(name: &str, files: &[usize], scale: u64) -> Result<Vec<Tree>> {
        Ok(match name {
            "small" => vec![Tree::Small],
            "linux" => vec![Tree::Linux],
            "linux-git" => vec![Tree::LinuxGit],
            "synth" => files.iter().map(|n| Tree::Synth(*n)).collect(),
            "js" => vec![Tree::Js],
            "big" => vec![Tree::Big(scale.max(1))],
            "none" => Vec::new(),
            _ => {
                return Err(format!(
                    "--tree: {name:?} is none of small, linux, linux-git, synth, js, big, none"
                )
                .into());
            }
        })
    }

    /// Its name, also as a folder.
    pub fn name(self) -> String {
        match self {
            Tree::Small => "small".into(),
            Tree::Linux => "linux".into(),
            Tree::LinuxGit => "linux-git".into(),
            Tree::Synth(files) => format!("synth-{files}"),
            Tree::Js => "js".into(),
            Tree::Big(1) => "big".into(),
            // Under a name of its own no goal is for it.
            Tree::Big(scale) => format!("big-by-{scale}"),
        }
    }

    /// What it is.
    pub fn title(self) -> String {
        match self {
            Tree::Small => "SMALL: a generated project of 1,000 files".into(),
            Tree::Linux => "LINUX: the source of Linux, a plain folder".into(),
            Tree::LinuxGit => "LINUX-GIT: the source of Linux, a clean packed git repository".into(),
            Tree::Synth(files) => format!("SYNTH: {files} generated small files"),
            Tree::Js => "JS: packages of npm that no rule leaves out".into(),
            Tree::Big(1) => "BIG: 12 files of 2.1 GiB that do not compress".into(),
            Tree::Big(scale) => format!("BIG: 12 files of 2.1 GiB / {scale} that do not compress"),
        }
    }

    /// Whether everything on it takes moments.
    pub fn is_small(self) -> bool {
        self == Tree::Small
    }

    /// How often that is measured which takes seconds, without a wish.
    pub fn long_rounds(self, rounds: usize) -> usize {
        match self {
            Tree::Small => rounds,
            Tree::Big(_) => 1,
            _ => 3,
        }
    }

    /// Whether an operation is for it.
    pub fn takes(self, operation: &str) -> bool {
        match (self, operation) {
            (Tree::Big(_), _) => {
                ["first", "unchanged", "watched-unchanged", "big-edit", "cancel"].contains(&operation)
            }
            (_, "big-edit") => false,
            (_, "list" | "hooks") => self == Tree::Small,
            (_, "seeded") => !matches!(self, Tree::LinuxGit | Tree::Js),
            _ => true,
        }
    }

    /// Settings of ours that it needs.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        match self {
            Tree::Big(_) => {
                ["BACKSTITCH_LIMITS_NEW_FILE", "BACKSTITCH_LIMITS_GROWN_FILE", "BACKSTITCH_CHECKPOINT_LIMIT"]
                    .map(|key| (key, "64GiB".to_owned()))
                    .to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Lays a fresh copy at `to`.
    pub fn lay(self, to: &Path) -> Result<()> {
        match self {
            Tree::Small => {
                fs::create_dir_all(to)?;
                generate::project(1, 1_000).write(to)?;
            }
            Tree::Synth(files) => synth(to, files)?,
            Tree::Linux => copy(&linux()?, to)?,
            Tree::LinuxGit => {
                copy(&linux()?, to)?;
                println!("making it a repository");
                make_repository(to)?;
            }
            Tree::Js => {
                copy(&js()?, to)?;
                rename_modules(to)?;
            }
            Tree::Big(scale) => big(to, scale)?,
        }
        Ok(())
    }
}

/// Makes a folder a clean, packed git repository.
pub fn make_repository(dir: &Path) -> Result<()> {
    let git = Git::new()?;
    for args in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["commit", "-q", "-m", "All of it"],
        &["repack", "-a", "-d", "-q"],
        &["update-index", "-q", "--force-write-index", "--refresh"],
    ] {
        git.run(dir, args)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    println!("copying {}", from.display());
    tools::quiet(Command::new("cp").arg("-a").arg(from).arg(to))?;
    Ok(())
}

/// Small text files, about eight to a directory, in directories four deep.
fn synth(to: &Path, files: usize) -> Result<()> {
    println!("making {files} files");
    let mut rng = Rng::new(2);
    for number in 0..files {
        let dir = to.join(format!("a{}/b{}/c{}", number / 4096, number / 256, number / 8));
        if number % 8 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let bytes = Bytes::Text { seed: rng.bits(), len: 100 + rng.below(2_500) };
        bytes.write_to(&mut fs::File::create_new(dir.join(format!("file{number}.txt")))?)?;
    }
    Ok(())
}

/// The file of [`Tree::Big`] in whose middle something is changed.
pub const MIDDLE: &str = "136MiB.bin";

/// Ten files of 100 MiB, one of 136 MiB, one of 1 GiB.
fn big(to: &Path, scale: u64) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut sizes: Vec<(String, u64)> = (0..10).map(|n| (format!("100MiB-{n}.bin"), 100)).collect();
    sizes.push((MIDDLE.into(), 136));
    sizes.push(("1GiB.bin".into(), 1024));
    println!("making {} files", sizes.len());
    for (seed, (name, mib)) in (3..).zip(sizes) {
        let file = std::io::BufWriter::new(fs::File::create_new(to.join(name))?);
        incompressible(file, seed, (mib << 20) / scale)?;
    }
    Ok(())
}

/// Random bytes, the same for the same seed.
fn incompressible(mut to: impl Write, seed: u64, len: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let mut left = len;
    let mut block = [0; 1 << 16];
    while left > 0 {
        block.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&rng.bits().to_le_bytes()));
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        to.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(to.flush()?)
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes in its files.
    pub bytes: u64,
    /// Bytes that it takes on disk.
    pub disk: u64,
}

/// How large a folder is.
pub fn size(dir: &Path) -> Result<Size> {
    use std::os::unix::fs::MetadataExt;
    let (mut total, mut open) = (Size::default(), vec![dir.to_path_buf()]);
    while let Some(dir) = open.pop() {
        for item in fs::read_dir(dir)? {
            let item = item?;
            let meta = item.metadata()?;
            total.disk += meta.blocks() * 512;
            if meta.is_dir() {
                open.push(item.path());
            } else if meta.is_file() {
                total.bytes += meta.len();
            }
        }
    }
    Ok(total)
}

/// Every `node_modules` becomes `modules`, so that no rule leaves it out.
fn rename_modules(dir: &Path) -> Result<()> {
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for item in fs::read_dir(&dir)? {
            let item = item?;
            if item.file_type()?.is_dir() {
                let mut path = item.path();
                if item.file_name() == "node_modules" {
                    let new = dir.join("modules");
                    fs::rename(&path, &new).map_err(|e| format!("{}: {e}", path.display()))?;
                    path = new;
                }
                open.push(path);
            }
        }
    }
    Ok(())
}

/// Well-known packages of npm, with what they need.
const PACKAGES: &[&str] = &[
    "@angular/cli",
    "@angular/core",
    "@ant-design/icons",
    "@babel/preset-env",
    "@fluentui/react-icons",
    "@mui/icons-material",
    "@mui/material",
    "@nestjs/cli",
    "@tabler/icons-react",
    "antd",
    "aws-sdk",
    "core-js",
    "date-fns",
    "eslint",
    "firebase",
    "gatsby",
    "googleapis",
    "jest",
    "lodash",
    "lodash-es",
    "lucide-react",
    "mathjs",
    "next",
    "nx",
    "react",
    "react-dom",
    "rxjs",
    "storybook",
    "three",
    "typescript",
    "webpack",
];

/// Installed packages of npm; fetched when they are not there.
fn js() -> Result<PathBuf> {
    let cache = cache()?;
    let ready = cache.join("js");
    if ready.join("node_modules").is_dir() {
        return Ok(ready);
    }
    if !has_program("npm") {
        return Err(format!("no packages of npm, and no npm: put a folder `js` with `node_modules` into the folder that {CACHE} names").into());
    }
    let partial = cache.join("js.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let wanted: serde_json::Map<String, serde_json::Value> =
        PACKAGES.iter().map(|name| ((*name).to_owned(), "*".into())).collect();
    let manifest =
        serde_json::json!({ "name": "js", "version": "1.0.0", "private": true, "dependencies": wanted });
    fs::write(partial.join("package.json"), serde_json::to_vec_pretty(&manifest)?)?;
    println!("fetching packages of npm");
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps"]);
    tools::quiet(npm.current_dir(&partial))?;
    fs::rename(&partial, &ready)?;
    Ok(ready)
}

fn cache() -> Result<PathBuf> {
    match std::env::var_os(CACHE) {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => Ok(tools::target()?.join("trees")),
    }
}

/// The unpacked source of Linux; fetched and unpacked when it is not there.
fn linux() -> Result<PathBuf> {
    let cache = cache()?;
    let ready = cache.join("linux");
    if ready.join(".gitignore").is_file() {
        return Ok(ready);
    }
    fs::create_dir_all(&cache)?;
    let partial = cache.join("linux.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let archive = linux_archive(&partial)?;
    println!("unpacking {}", archive.display());
    let tree = partial.join("tree");
    fs::create_dir(&tree)?;
    tools::quiet(
        Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&tree).arg("--strip-components=1"),
    )?;
    // Debian ignores everything but its own folder, which would leave nothing to record.
    let ignore = tree.join(".gitignore");
    let text = fs::read_to_string(&ignore)?;
    fs::write(&ignore, without_debians_rules(&text)?)?;
    fs::rename(&tree, &ready)?;
    fs::remove_dir_all(&partial)?;
    Ok(ready)
}

fn without_debians_rules(text: &str) -> Result<&str> {
    match text.find("#\n# Debian packaging: ignore everything") {
        Some(end) => Ok(&text[..end]),
        None if text.lines().any(|line| line == "/*") => {
            Err("the .gitignore of linux-source ignores everything, in a new way".into())
        }
        None => Ok(text),
    }
}

/// The archive of Debian's package: the installed one, else one that is downloaded and not installed.
fn linux_archive(scratch: &Path) -> Result<PathBuf> {
    let find = |dir: &Path| -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|item| item.path()).collect();
        found.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("linux-source-")));
        found.retain(|p| p.to_string_lossy().contains(".tar."));
        found.sort();
        found.pop()
    };
    if let Some(archive) = find(Path::new("/usr/src")) {
        return Ok(archive);
    }
    if !has_program("apt-get") || !has_program("dpkg-deb") {
        return Err(
            format!("no source of Linux: unpack one to `linux` in the folder that {CACHE} names").into()
        );
    }
    println!("fetching linux-source");
    if is_root() {
        tools::quiet(Command::new("apt-get").args(["-q", "update"]))?;
    }
    let depends = tools::quiet(Command::new("apt-cache").args(["depends", "linux-source"]))?;
    let package = String::from_utf8_lossy(&depends)
        .split_ascii_whitespace()
        .find(|word| word.starts_with("linux-source-"))
        .ok_or("no package linux-source is known to apt")?
        .to_owned();
    tools::quiet(Command::new("apt-get").args(["-q", "download", &package]).current_dir(scratch))?;
    let deb = fs::read_dir(scratch)?
        .flatten()
        .map(|item| item.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .ok_or("apt-get download has brought no package")?;
    tools::quiet(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(scratch.join("package")))?;
    find(&scratch.join("package/usr/src")).ok_or_else(|| format!("{package} holds no archive").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_rules_are_cut_off() {
        let text = "*.o\n#\n# Debian packaging: ignore everything at the top level\n#\n/*\n!/debian/\n";
        assert_eq!(without_debians_rules(text).unwrap(), "*.o\n");
        assert_eq!(without_debians_rules("*.o\n").unwrap(), "*.o\n");
        assert!(without_debians_rules("*.o\n/*\n").is_err());
    }

    #[test]
    fn generated_trees_have_as_many_files_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        synth(dir.path(), 1000).unwrap();
        let model = backstitch_testkit::TreeModel::read(dir.path()).unwrap();
        assert_eq!(model.count(backstitch_testkit::Kind::File), 1000);
    }

    #[test]
    fn no_rule_leaves_packages_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("node_modules/a/node_modules/b")).unwrap();
        rename_modules(dir.path()).unwrap();
        assert!(dir.path().join("modules/a/modules/b").is_dir());
        assert!(!dir.path().join("node_modules").exists());
    }

    #[test]
    fn large_files_have_their_sizes_and_do_not_repeat() {
        let dir = tempfile::tempdir().unwrap();
        big(dir.path(), 4096).unwrap();
        assert_eq!(size(dir.path()).unwrap().bytes, ((1000 + 136 + 1024) << 20) / 4096);
        let bytes = fs::read(dir.path().join(MIDDLE)).unwrap();
        assert_eq!(bytes.len(), (136 << 20) / 4096);
        let mut blocks: Vec<&[u8]> = bytes.chunks_exact(8).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), bytes.len() / 8);
    }

    #[test]
    fn trees_have_names_and_operations() {
        let names = |name, files: &[usize]| -> Vec<String> {
            Tree::parse(name, files, 1).unwrap().into_iter().map(Tree::name).collect()
        };
        assert_eq!(names("synth", &[1_000, 10_000]), ["synth-1000", "synth-10000"]);
        assert_eq!((names("big", &[]), names("none", &[])), (vec!["big".to_owned()], Vec::new()));
        assert!(Tree::parse("nothing", &[], 1).is_err());
        assert!(Tree::Big(1).takes("big-edit") && !Tree::Big(1).takes("10"));
        assert!(Tree::Small.takes("list") && !Tree::Linux.takes("list"));
    }
}

//! The trees that are measured on.

use std::{
    fs,
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
}

impl Tree {
    /// The one of this name.
    pub fn parse(name: &str, files: usize) -> Result<Tree> {
        match name {
            "small" => Ok(Tree::Small),
            "linux" => Ok(Tree::Linux),
            "linux-git" => Ok(Tree::LinuxGit),
            "synth" => Ok(Tree::Synth(files)),
            _ => Err(format!("--tree: {name:?} is none of small, linux, linux-git, synth").into()),
        }
    }

    /// Its name as a folder.
    pub fn name(self) -> String {
        match self {
            Tree::Small => "small".into(),
            Tree::Linux => "linux".into(),
            Tree::LinuxGit => "linux-git".into(),
            Tree::Synth(files) => format!("synth-{files}"),
        }
    }

    /// What it is.
    pub fn title(self) -> String {
        match self {
            Tree::Small => "SMALL: a generated project of 1,000 files".into(),
            Tree::Linux => "LINUX: the source of Linux, a plain folder".into(),
            Tree::LinuxGit => "LINUX-GIT: the source of Linux, a clean packed git repository".into(),
            Tree::Synth(files) => format!("SYNTH: {files} generated small files"),
        }
    }

    /// Whether everything on it takes moments.
    pub fn is_small(self) -> bool {
        self == Tree::Small
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
        let dir = tempfile_dir();
        synth(&dir, 1000).unwrap();
        let model = backstitch_testkit::TreeModel::read(&dir).unwrap();
        assert_eq!(model.count(backstitch_testkit::Kind::File), 1000);
        fs::remove_dir_all(dir).unwrap();
    }

    fn tempfile_dir() -> PathBuf {
        std::env::temp_dir().join(format!("backstitch-synth-{}", std::process::id()))
    }
}

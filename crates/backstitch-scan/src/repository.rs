//! Finding git repositories and reading their part of the rules. Nothing is ever written, `GIT_*` variables do not count.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use bstr::{BString, ByteSlice};
use gix_config::file::{Metadata, includes, init};

use crate::{
    index::Tracked,
    rules::{Repo, RuleSettings, Rules},
    seed::Origin,
    types::{ScanError, Skip},
};

/// Ignore files above this are refused: git ignores them, but that would mean "nothing is ignored".
const MAX_RULES: u64 = 100 << 20;

/// Where a repository keeps its things.
#[derive(Clone, Debug)]
pub(crate) struct GitDirs {
    /// Own directory of this work tree: its index is here.
    pub(crate) git_dir: PathBuf,
    /// Shared by all work trees: configuration and `info/exclude`.
    pub(crate) common: PathBuf,
}

fn rules_error(path: &Path, what: impl ToString) -> ScanError {
    ScanError::Rules { path: path.to_owned(), what: what.to_string() }
}

/// True for what only means that there is nothing at this path.
fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a source of rules whole, following links; `None` if there is no such regular file.
fn read_source(path: &Path) -> Result<Option<Vec<u8>>, ScanError> {
    let file = match fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
    {
        Ok(file) => file,
        Err(e) if is_absent(&e) => return Ok(None),
        Err(e) => return Err(rules_error(path, e)),
    };
    let meta = file.metadata().map_err(|e| rules_error(path, e))?;
    if !meta.is_file() {
        return Ok(None);
    }
    read_limited(file).map(Some).map_err(|e| rules_error(path, e))
}

/// Reads a rules file of a bearable size.
pub(crate) fn read_limited(file: fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, MAX_RULES + 1), &mut bytes)?;
    if bytes.len() as u64 > MAX_RULES {
        return Err(io::Error::other("too large for a file of rules"));
    }
    Ok(bytes)
}

impl GitDirs {
    /// The repository of the directory `dir`, if its `.git` is one.
    pub(crate) fn of(dir: &Path) -> Result<Option<GitDirs>, ScanError> {
        let dot_git = dir.join(".git");
        let meta = match fs::metadata(&dot_git) {
            Ok(meta) => meta,
            Err(e) if is_absent(&e) || e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Ok(None);
            }
            Err(e) => return Err(rules_error(&dot_git, e)),
        };
        let git_dir = if meta.is_dir() {
            dot_git
        } else if meta.is_file() {
            match gitfile_target(&dot_git)? {
                Some(target) => target,
                None => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        GitDirs::at(git_dir)
    }

    /// `git_dir` if git would take it for one: `HEAD`, `objects/` and `refs/`.
    fn at(git_dir: PathBuf) -> Result<Option<GitDirs>, ScanError> {
        let common = match read_source(&git_dir.join("commondir"))? {
            Some(text) => git_dir.join(OsStr::from_bytes(text.trim_end_with(|c| c == '\n' || c == '\r'))),
            None => git_dir.clone(),
        };
        let head = git_dir.join("HEAD");
        let valid = match fs::symlink_metadata(&head) {
            Ok(meta) if meta.is_symlink() => {
                fs::read_link(&head).is_ok_and(|target| target.as_os_str().as_bytes().starts_with(b"refs/"))
            }
            Ok(_) => read_source(&head)?.is_some_and(|text| is_head(&text)),
            Err(e) if is_absent(&e) => false,
            Err(e) => return Err(rules_error(&head, e)),
        };
        let whole = valid && common.join("objects").is_dir() && common.join("refs").is_dir();
        Ok(whole.then_some(GitDirs { git_dir, common }))
    }
}

fn is_head(text: &[u8]) -> bool {
    if let Some(target) = text.strip_prefix(b"ref:") {
        return target.trim_start().starts_with(b"refs/");
    }
    let hex = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    hex == 40 || hex == 64
}

/// What the gitfile `file` points to.
pub(crate) fn gitfile_target(file: &Path) -> Result<Option<PathBuf>, ScanError> {
    let Some(text) = read_source(file)? else { return Ok(None) };
    let Some(target) = text.strip_prefix(b"gitdir: ") else { return Ok(None) };
    let target = target.trim_end_with(|c| c == '\n' || c == '\r');
    let base = file.parent().unwrap_or(Path::new("/"));
    Ok((!target.is_empty()).then(|| base.join(OsStr::from_bytes(target))))
}

/// Device and inode of what a gitfile points to, and its path.
pub(crate) type Pointed = ((u64, u64), PathBuf);

/// What the gitfile `file` points to; `None` if there is no gitfile, or nothing there.
pub(crate) fn place_of_gitfile(file: &Path) -> Result<Option<Pointed>, ScanError> {
    if !fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let Some(target) = gitfile_target(file)? else { return Ok(None) };
    Ok(fs::metadata(&target).ok().map(|meta| ((meta.dev(), meta.ino()), target)))
}

/// True if `target` lies below `root` and none of `skips`, which are sorted by path, lies above it or is it.
pub(crate) fn is_reached(root: &Path, target: &Path, skips: &[Skip]) -> bool {
    let (Ok(root), Ok(target)) = (root.canonicalize(), target.canonicalize()) else { return false };
    let Ok(below) = target.strip_prefix(root) else { return false };
    let below = below.as_os_str().as_bytes();
    let ends = below.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).chain([below.len()]);
    !ends.into_iter().any(|end| skips.binary_search_by(|s| s.path.as_slice().cmp(&below[..end])).is_ok())
}

/// The nearest directory from `root` upwards that is the top of a git work tree, on the same device.
fn find_top(root: &Path) -> Result<Option<(PathBuf, GitDirs)>, ScanError> {
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    let home = device(root);
    for dir in root.ancestors() {
        if device(dir) != home {
            break;
        }
        if let Some(dirs) = GitDirs::of(dir)? {
            return Ok(Some((dir.to_owned(), dirs)));
        }
    }
    Ok(None)
}

/// What git's configuration files say.
#[derive(Debug, Default)]
struct Config {
    excludes_file: Option<PathBuf>,
    attributes_file: Option<PathBuf>,
    fold: bool,
    sha256: bool,
    /// An index entry may stand for something else than a file with exactly its stat data, or attributes come from
    /// elsewhere.
    is_lax: bool,
}

struct Homes {
    home: Option<PathBuf>,
    /// Where git's folder lies: `$XDG_CONFIG_HOME` or `~/.config`.
    xdg: Option<PathBuf>,
}

impl Homes {
    fn of(settings: &RuleSettings) -> Homes {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        match &settings.home {
            Some(home) => Homes { home: Some(home.clone()), xdg: Some(home.join(".config")) },
            None => {
                let home = set("HOME");
                let xdg = set("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|h| h.join(".config")));
                Homes { home, xdg }
            }
        }
    }
}

fn read_config(dirs: Option<&GitDirs>, top: &Path, homes: &Homes) -> Result<Config, ScanError> {
    use gix_config::Source;
    let mut files = vec![(PathBuf::from("/etc/gitconfig"), Source::System)];
    if let Some(xdg) = &homes.xdg {
        files.push((xdg.join("git/config"), Source::Git));
    }
    if let Some(home) = &homes.home {
        files.push((home.join(".gitconfig"), Source::User));
    }
    if let Some(dirs) = dirs {
        files.push((dirs.common.join("config"), Source::Local));
    }
    let branch = dirs.and_then(|d| fs::read(d.git_dir.join("HEAD")).ok());
    let branch: Option<BString> =
        branch.as_deref().and_then(|head| head.strip_prefix(b"ref:")).map(|name| name.trim().into());
    let interpolate = gix_config::path::interpolate::Context {
        git_install_dir: None,
        home_dir: homes.home.as_deref(),
        home_for_user: Some(gix_config::path::interpolate::home_for_user),
    };
    let conditional = includes::conditional::Context {
        git_dir: dirs.map(|d| d.git_dir.as_path()),
        branch_name: branch.as_ref().and_then(|name| name.as_bstr().try_into().ok()),
    };
    let options = init::Options {
        includes: includes::Options::follow(interpolate, conditional),
        lossy: true,
        ignore_io_errors: false,
    };
    let mut config = Config::default();
    let mut sections = gix_config::File::default();
    let mut add = |path: &Path, source: Source| -> Result<(), ScanError> {
        let Some(mut bytes) = read_source(path)? else { return Ok(()) };
        let meta = Metadata::from(source).at(path);
        let file = gix_config::File::from_bytes_owned(&mut bytes, meta, options);
        let mut file = file.map_err(|e| rules_error(path, format!("{e:#}")))?;
        file.resolve_includes(options).map_err(|e| rules_error(path, format!("{e:#}")))?;
        sections.append(file).map_err(|e| rules_error(path, format!("{e:#}")))?;
        Ok(())
    };
    for (path, source) in &files {
        add(path, *source)?;
    }
    let on = |file: &gix_config::File, key: &str| file.boolean(key).ok().flatten().unwrap_or(false);
    if let Some(dirs) = dirs {
        let local = dirs.common.join("config");
        if read_source(&local)?.is_some_and(|text| text.to_lowercase().contains_str("worktreeconfig")) {
            add(&dirs.git_dir.join("config.worktree"), Source::Worktree)?;
        }
    }
    config.fold = on(&sections, "core.ignoreCase");
    config.sha256 =
        sections.string("extensions.objectFormat").is_some_and(|f| f.eq_ignore_ascii_case(b"sha256"));
    let off = |file: &gix_config::File, key: &str| file.boolean(key).ok().flatten() == Some(false);
    config.is_lax = off(&sections, "core.trustCTime")
        || sections.string("core.checkStat").is_some_and(|v| !v.eq_ignore_ascii_case(b"default"))
        || sections.string("attr.tree").is_some();
    // Relative paths start where git runs: at the top of the work tree.
    let file_of = |key: &str, default: &str| match sections.string(key) {
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => {
            let path = gix_config::Path::from(value.clone()).interpolate(interpolate);
            let path =
                path.map_err(|e| rules_error(Path::new(OsStr::from_bytes(&value)), format!("{e:#}")))?;
            Ok(Some(top.join(path)))
        }
        None => Ok(homes.xdg.as_ref().map(|xdg| xdg.join(default))),
    };
    config.excludes_file = file_of("core.excludesFile", "git/ignore")?;
    match file_of("core.attributesFile", "git/attributes") {
        Ok(file) => config.attributes_file = file,
        // Ignore rules do not depend on it.
        Err(_) => config.is_lax = true,
    }
    Ok(config)
}

/// What the repository at `top` contributes.
pub(crate) fn read_repo(top: &Path, dirs: &GitDirs, settings: &RuleSettings) -> Result<Repo, ScanError> {
    let config = read_config(Some(dirs), top, &Homes::of(settings))?;
    let global = match (&config.excludes_file, settings.global_excludes) {
        (Some(path), None | Some(true)) => read_source(path)?,
        _ => None,
    };
    let hash_len = if config.sha256 { 32 } else { 20 };
    let origin = Origin {
        top: top.to_owned(),
        git_dir: dirs.git_dir.clone(),
        common: dirs.common.clone(),
        attributes_file: config.attributes_file,
        is_strict: !config.is_lax && !config.sha256,
        sha256: config.sha256,
    };
    Ok(Repo {
        global,
        exclude: read_source(&dirs.common.join("info/exclude"))?,
        fold: config.fold,
        tracked: Some(Tracked::new(dirs.git_dir.join("index"), hash_len, config.fold)),
        is_git: true,
        origin: Some(origin),
    })
}

impl Rules {
    /// Reads git's configuration files for `core.excludesFile` and `core.ignoreCase`, `info/exclude` of the (common) git
    /// directory, and the ignore files of parents up to the top of the work tree when `root` lies below it.
    ///
    /// All `GIT_*` variables are ignored. `root` itself is always looked at: where the repository above ignores it and
    /// tracks nothing in it, the root counts as lying outside of git (a home folder under git that ignores everything
    /// must not make projects in it invisible).
    ///
    /// A repository's index is read when it is first asked and remembered, so rules should be found anew for each
    /// operation.
    ///
    /// # Errors
    ///
    /// [`ScanError::Rules`] if a source exists but cannot be read or understood: never "nothing is ignored".
    pub fn discover(root: &Path, settings: &RuleSettings) -> Result<Rules, ScanError> {
        let root =
            std::path::absolute(root).map_err(|source| ScanError::Io { path: root.to_owned(), source })?;
        let Some((top, dirs)) = find_top(&root)? else { return outside_git(&root, settings) };
        let mut above = Vec::new();
        let mut dir = top.clone();
        for part in root.strip_prefix(&top).unwrap_or(Path::new("")) {
            let content = crate::handle::read_rules_at(&dir, ".gitignore")
                .map_err(|e| rules_error(&dir.join(".gitignore"), e))?;
            above.push((part.to_owned().into_vec().into(), content));
            dir.push(part);
        }
        let rules = Rules::new(read_repo(&top, &dirs, settings)?, above, settings);
        if rules.ignores_root()? { outside_git(&root, settings) } else { Ok(rules) }
    }
}

/// The rules of a root that lies in no repository.
fn outside_git(root: &Path, settings: &RuleSettings) -> Result<Rules, ScanError> {
    let global = match settings.global_excludes {
        Some(true) => match read_config(None, root, &Homes::of(settings))?.excludes_file {
            Some(path) => read_source(&path)?,
            None => None,
        },
        _ => None,
    };
    Ok(Rules::new(Repo { global, ..Repo::default() }, Vec::new(), settings))
}

//! Stock git, as the oracle.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::{
    Entry, Kind, TreeModel,
    model::Content,
    text::{join, show},
};

/// Runs git without any of the user's settings.
#[derive(Debug)]
pub struct Git {
    home: tempfile::TempDir,
}

/// The environment variables by which a program can be led to another repository or made to run other programs.
pub const HOSTILE_VARIABLES: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_TEMPLATE_DIR",
    "GIT_EXEC_PATH",
];

impl Git {
    /// With an empty home of its own.
    pub fn new() -> io::Result<Git> {
        Ok(Git { home: tempfile::tempdir()? })
    }

    /// Its home, where a test may lay a `.gitconfig`.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A git command that starts in `dir`.
    pub fn command<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("git");
        command.env_clear();
        for key in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(key) {
                command.env(key, value);
            }
        }
        command
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", self.home().join(".config"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Test").env(format!("GIT_{who}_EMAIL"), "test@localhost");
            command.env(format!("GIT_{who}_DATE"), "2024-01-01T00:00:00Z");
        }
        command.args(["-c", "safe.directory=*", "-c", "init.defaultBranch=main", "-c", "gc.auto=0"]);
        command.args(args).current_dir(dir).stdin(Stdio::null());
        command
    }

    /// Runs git and returns what it wrote, or an error with its words.
    pub fn run<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> io::Result<Vec<u8>> {
        finish(&mut self.command(dir, args))
    }

    /// `git fsck --strict` over everything in a bare repository. Anything it says, other than what is merely unreachable, is
    /// an error.
    pub fn fsck_strict(&self, git_dir: &Path) -> Result<(), String> {
        let args = ["fsck", "--strict", "--full", "--no-dangling", "--no-progress"];
        let mut command = self.command(git_dir, args);
        command.env("GIT_DIR", git_dir);
        let Output { status, stdout, stderr } = command.output().map_err(|e| e.to_string())?;
        let said: Vec<String> = [stdout, stderr]
            .iter()
            .flat_map(|o| String::from_utf8_lossy(o).lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| !line.starts_with("notice: "))
            // Advice about links that a checkout does not follow; the names themselves are accepted.
            .filter(|line| !line.contains(": mailmapSymlink:") && !line.contains(": gitignoreSymlink:"))
            .collect();
        if status.success() && said.is_empty() {
            Ok(())
        } else {
            Err(format!("fsck: {status}\n{}", said.join("\n")))
        }
    }

    /// What git itself reads in a tree, such as `COMMIT:files`, with the names decoded (see [`decode_name`]).
    ///
    /// Compare it by [`Compare::as_git`](crate::Compare::as_git).
    pub fn tree_model(&self, git_dir: &Path, tree: &str) -> io::Result<TreeModel> {
        let mut command = self.command(git_dir, ["ls-tree", "-r", "-t", "-z", "-l", "--full-tree", tree]);
        command.env("GIT_DIR", git_dir);
        let listing = finish(&mut command)?;
        let mut model = TreeModel::empty();
        for record in listing.split(|b| *b == 0).filter(|r| !r.is_empty()) {
            let bad = || io::Error::other(format!("ls-tree: {}", show(record)));
            let tab = record.iter().position(|b| *b == b'\t').ok_or_else(bad)?;
            let head = std::str::from_utf8(&record[..tab]).map_err(io::Error::other)?;
            let [mode, _, id, size] = head.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
                return Err(bad());
            };
            let path = decode_path(&record[tab + 1..]).ok_or_else(bad)?;
            let (kind, bits) = match mode {
                "100644" => (Kind::File, 0o644),
                "100755" => (Kind::File, 0o755),
                "120000" => (Kind::Link, 0),
                "040000" => (Kind::Dir, 0o755),
                _ => return Err(bad()),
            };
            let mut entry =
                Entry { kind, mode: bits, content: None, link: None, xattrs: None, identity: None };
            match kind {
                Kind::File => {
                    entry.content =
                        Some(Content::Blob { id: id.to_owned(), size: size.parse().map_err(|_| bad())? });
                }
                Kind::Link => entry.link = Some(self.blob(git_dir, id)?),
                _ => {}
            }
            if model.entries.insert(path, entry).is_some() {
                return Err(bad());
            }
        }
        Ok(model)
    }

    /// The bytes of one object that is a blob.
    pub fn blob(&self, git_dir: &Path, id: &str) -> io::Result<Vec<u8>> {
        let mut command = self.command(git_dir, ["cat-file", "blob", id]);
        command.env("GIT_DIR", git_dir);
        finish(&mut command)
    }

    /// Clones the repository with `--mirror`, over git's own transport, checks a tree such as `COMMIT:files` out of the clone
    /// into the empty folder `dest` with stock git, gives the names their true form, and makes the empty directories.
    ///
    /// Fails where an encoded name is longer than a file system takes; [`Git::tree_model`] does not.
    pub fn stock_checkout(&self, git_dir: &Path, tree: &str, dest: &Path) -> io::Result<()> {
        let scratch = tempfile::tempdir()?;
        let mirror = scratch.path().join("mirror");
        let from = git_dir.as_os_str();
        let to = mirror.as_os_str();
        self.run(
            scratch.path(),
            [
                OsStr::new("clone"),
                OsStr::new("-q"),
                OsStr::new("--mirror"),
                OsStr::new("--no-local"),
                from,
                to,
            ],
        )?;
        let mut command = self.command(dest, ["read-tree", "--reset", "-u", tree]);
        command
            .env("GIT_DIR", &mirror)
            .env("GIT_WORK_TREE", dest)
            .env("GIT_INDEX_FILE", scratch.path().join("index"));
        finish(&mut command)?;
        decode_below(dest)?;
        for (path, entry) in &self.tree_model(&mirror, tree)?.entries {
            if entry.kind == Kind::Dir {
                fs::create_dir_all(join(dest, path))?;
            }
        }
        Ok(())
    }

    /// Makes `dir` a repository in which everything that could interfere is switched on: hooks, signing, line-ending
    /// conversion, filters, a global ignore file, a monitor. Whatever of it is run leaves a file in [`Hostile::traps`].
    pub fn hostile_repository(&self, dir: &Path) -> io::Result<Hostile> {
        let traps = self.home().join("traps");
        fs::create_dir_all(&traps)?;
        let trap = |name: &str| -> io::Result<PathBuf> {
            let path = self.home().join(format!("trap-{name}"));
            let marker = traps.join(name);
            fs::write(&path, format!("#!/bin/sh\n: > '{}'\nexec cat\n", marker.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            Ok(path)
        };
        self.run(dir, ["init", "-q"])?;
        let hooks = dir.join(".git/hooks");
        fs::create_dir_all(&hooks)?;
        for hook in [
            "pre-commit",
            "post-commit",
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "pre-auto-gc",
        ] {
            let target = hooks.join(hook);
            if !target.exists() {
                symlink(trap(hook)?, target)?;
            }
        }
        let ignore = self.home().join("global-ignore");
        fs::write(&ignore, "*.globally-ignored\n")?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let settings = [
            ("commit.gpgSign", "true".to_owned()),
            ("tag.gpgSign", "true".to_owned()),
            ("gpg.program", text(trap("gpg")?)),
            ("core.autocrlf", "true".to_owned()),
            ("core.safecrlf", "true".to_owned()),
            ("core.excludesFile", text(ignore)),
            ("core.fsmonitor", text(trap("fsmonitor")?)),
            ("core.attributesFile", text(self.home().join("global-attributes"))),
            ("filter.trap.clean", text(trap("clean")?)),
            ("filter.trap.smudge", text(trap("smudge")?)),
            ("filter.trap.required", "true".to_owned()),
            ("diff.external", text(trap("diff")?)),
        ];
        for (key, value) in settings {
            self.run(dir, ["config", key, &value])?;
        }
        fs::write(self.home().join("global-attributes"), "* text=auto ident filter=trap\n")?;
        fs::write(
            dir.join(".gitattributes"),
            "*.txt text eol=crlf working-tree-encoding=UTF-16 filter=trap\n",
        )?;
        fs::write(dir.join("crlf.txt"), "one\r\ntwo\n")?;
        fs::write(dir.join("ident.c"), "/* $Id$ */\n")?;
        Ok(Hostile { traps, elsewhere: self.home().join("elsewhere") })
    }
}

/// What [`Git::hostile_repository`] has laid.
#[derive(Debug)]
pub struct Hostile {
    /// Stays empty unless a hook, filter, signer or other helper was run.
    pub traps: PathBuf,
    /// Where [`Hostile::lead_astray`] points to; it must never come into being.
    pub elsewhere: PathBuf,
}

impl Hostile {
    /// What was run although it should not have been.
    pub fn sprung(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in fs::read_dir(&self.traps)? {
            names.push(item?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// The variables of [`HOSTILE_VARIABLES`], all pointing elsewhere.
    pub fn lead_astray(&self) -> Vec<(String, PathBuf)> {
        HOSTILE_VARIABLES.iter().map(|name| ((*name).to_owned(), self.elsewhere.join(name))).collect()
    }
}

/// The true name behind a name in a stored tree; `None` if no true name is stored so.
///
/// `%bs%` at the start marks a name whose other bytes, outside `[A-Za-z0-9_-]`, are written as `%xx`. This is a second,
/// independent reading of the rule, on purpose.
pub fn decode_name(stored: &[u8]) -> Option<Vec<u8>> {
    let Some(mut rest) = stored.strip_prefix(b"%bs%") else {
        return Some(stored.to_vec());
    };
    let mut name = Vec::new();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = tail.get(..2)?;
            if !digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
                return None;
            }
            name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &tail[2..];
        } else if first.is_ascii_alphanumeric() || matches!(first, b'_' | b'-') {
            name.push(first);
            rest = tail;
        } else {
            return None;
        }
    }
    let hostile = matches!(&name[..], b"" | b"." | b"..") || name.iter().any(|b| matches!(b, 0 | b'/'));
    (!hostile).then_some(name)
}

fn decode_path(stored: &[u8]) -> Option<Vec<u8>> {
    let parts: Option<Vec<Vec<u8>>> = stored.split(|b| *b == b'/').map(decode_name).collect();
    Some(parts?.join(&b'/'))
}

/// Renames every entry below `dir` to its true name, the deepest first.
fn decode_below(dir: &Path) -> io::Result<()> {
    for item in fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()? {
        if item.file_type()?.is_dir() {
            decode_below(&item.path())?;
        }
        let stored = item.file_name();
        let name = decode_name(stored.as_bytes())
            .ok_or_else(|| io::Error::other(format!("no name is stored as {}", show(stored.as_bytes()))))?;
        if name != stored.as_bytes() {
            fs::rename(item.path(), dir.join(OsStr::from_bytes(&name)))?;
        }
    }
    Ok(())
}

fn finish(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("git {}: {}: {}", args.join(" "), output.status, words.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compare, generate};

    fn repository() -> (Git, tempfile::TempDir) {
        let (git, dir) = (Git::new().unwrap(), tempfile::tempdir().unwrap());
        git.run(dir.path(), ["init", "-q"]).unwrap();
        (git, dir)
    }

    fn commit(git: &Git, dir: &Path) -> String {
        git.run(dir, ["add", "-A"]).unwrap();
        git.run(dir, ["commit", "-q", "--allow-empty", "-m", "x"]).unwrap();
        String::from_utf8(git.run(dir, ["rev-parse", "HEAD"]).unwrap()).unwrap().trim().to_owned()
    }

    #[test]
    fn decoding_is_strict() {
        let same: [&[u8]; 3] = [b"plain", b"%2e", b"\xff"];
        for name in same {
            assert_eq!(decode_name(name).as_deref(), Some(name));
        }
        assert_eq!(decode_name(b"%bs%%2eGIT").as_deref(), Some(&b".GIT"[..]));
        assert_eq!(decode_name(b"%bs%%25bs%25x").as_deref(), Some(&b"%bs%x"[..]));
        let bad: [&[u8]; 8] =
            [b"%bs%", b"%bs%%2e%2e", b"%bs%%2", b"%bs%%2E", b"%bs%.git", b"%bs%%2f", b"%bs%a%00", b"%bs%%g0"];
        for name in bad {
            assert_eq!(decode_name(name), None, "{}", show(name));
        }
    }

    #[test]
    fn reads_what_git_has_recorded_and_sees_a_change() {
        let (git, dir) = repository();
        generate::project(1, 40).write(dir.path()).unwrap();
        symlink("pkg0", dir.path().join("link")).unwrap();
        let commit = commit(&git, dir.path());
        let disk = TreeModel::read(dir.path()).unwrap();
        let recorded = git.tree_model(&dir.path().join(".git"), &commit).unwrap();
        disk.assert_same(&recorded, &Compare::as_git(), "as committed");
        fs::write(dir.path().join("more"), "").unwrap();
        let now = TreeModel::read(dir.path()).unwrap();
        assert_eq!(now.differences(&recorded, &Compare::as_git()).len(), 1);
    }

    #[test]
    fn checks_out_through_a_mirror_with_names_decoded_and_empty_directories() {
        let (git, dir) = repository();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/%bs%%2eGIT"), "x").unwrap();
        fs::write(dir.path().join("%bs%%2egitattributes"), "* text eol=crlf\n").unwrap();
        let commit = commit(&git, dir.path());
        // Git refuses to put an empty directory into its index, but not into a tree.
        let empty = git.run(dir.path(), ["hash-object", "-w", "-t", "tree", "/dev/null"]).unwrap();
        let mut listing = git.run(dir.path(), ["ls-tree", &commit]).unwrap();
        let line = format!("040000 tree {}\tvoid\n", String::from_utf8_lossy(&empty).trim());
        listing.extend_from_slice(line.as_bytes());
        let file = git.home().join("listing");
        fs::write(&file, listing).unwrap();
        let mut mktree = git.command(dir.path(), ["mktree"]);
        mktree.stdin(fs::File::open(&file).unwrap());
        let tree = String::from_utf8(finish(&mut mktree).unwrap()).unwrap().trim().to_owned();
        git.run(
            dir.path(),
            ["update-ref", "refs/x", &{
                let id = git.run(dir.path(), ["commit-tree", "-m", "y", &tree]).unwrap();
                String::from_utf8(id).unwrap().trim().to_owned()
            }],
        )
        .unwrap();
        let dest = tempfile::tempdir().unwrap();
        git.stock_checkout(&dir.path().join(".git"), "refs/x", dest.path()).unwrap();
        let model = TreeModel::read(dest.path()).unwrap();
        let names: Vec<String> = model.entries.keys().map(|k| show(k)).collect();
        assert_eq!(names, [".gitattributes", "sub", "sub/.GIT", "void"]);
    }

    #[test]
    fn fsck_is_clean_until_something_is_wrong() {
        let (git, dir) = repository();
        fs::write(dir.path().join("a"), "x").unwrap();
        commit(&git, dir.path());
        let git_dir = dir.path().join(".git");
        git.fsck_strict(&git_dir).unwrap();
        let blob = String::from_utf8(git.run(dir.path(), ["rev-parse", "HEAD:a"]).unwrap()).unwrap();
        let (head, tail) = blob.trim().split_at(2);
        let object = git_dir.join("objects").join(head).join(tail);
        fs::remove_file(&object).unwrap();
        assert!(git.fsck_strict(&git_dir).unwrap_err().contains("missing blob"));
    }

    #[test]
    fn the_users_settings_do_not_reach_git_and_traps_spring() {
        let (git, dir) = (Git::new().unwrap(), tempfile::tempdir().unwrap());
        let hostile = git.hostile_repository(dir.path()).unwrap();
        assert_eq!(hostile.sprung().unwrap(), [""; 0]);
        // Stock git run carelessly does run them: the traps work.
        let _ = git.run(dir.path(), ["-c", "core.safecrlf=false", "add", "ident.c"]);
        assert!(!hostile.sprung().unwrap().is_empty());
        assert_eq!(hostile.lead_astray().len(), HOSTILE_VARIABLES.len());
    }
}

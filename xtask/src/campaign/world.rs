//! A home, a workspace and a folder elsewhere, in which commands are run and which can be made again as they were.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_testkit::{Cli, Git, Run, generate};
use serde_json::Value;

use super::{image::Image, trace::Places};
use crate::Result;

/// The folders, and the program that works in them.
pub struct World {
    /// The program, with its home.
    pub cli: Cli,
    /// The folder that it works on.
    pub workspace: PathBuf,
    /// A folder with files outside the workspace.
    pub elsewhere: PathBuf,
    /// Chooses files and edits.
    pub seed: u64,
    /// A bare repository that checkpoints are sent to, where there is one.
    pub remote: PathBuf,
    stores: PathBuf,
}

/// A row as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// The tree with all it holds.
    pub tree: String,
    /// Label, pin and the like: what can be changed.
    pub marks: String,
}

/// All folders at one moment, and the rows.
pub struct State {
    /// The workspace without the `.git` of a repository at its top, whose files are never twice the same.
    pub workspace: Image,
    /// What git tells of that repository.
    pub repository: String,
    /// The folder elsewhere.
    pub elsewhere: Image,
    /// The home with the stores.
    pub home: Image,
    /// The rows.
    pub rows: Vec<Row>,
    /// What the remote has, by name.
    pub sent: Vec<String>,
    /// The workspace and the remote to the last file, to make them again.
    whole: Image,
    remote: Image,
}

impl State {
    /// Nothing at all.
    pub fn empty() -> State {
        State {
            workspace: Image::default(),
            repository: String::new(),
            elsewhere: Image::default(),
            home: Image::default(),
            rows: Vec::new(),
            sent: Vec::new(),
            whole: Image::default(),
            remote: Image::default(),
        }
    }

    /// The home without stores: settings of ours and of agents.
    pub fn settings(&self) -> Image {
        settings(self.home.clone())
    }
}

/// The home without stores and notes: settings of ours and of agents.
pub fn settings(home: Image) -> Image {
    home.only(|path| !path.starts_with(b"stores/") && path != b"stores")
}

impl World {
    /// Makes the folders below `dir`, which is emptied.
    pub fn new(binary: &Path, dir: &Path, seed: u64) -> Result<World> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        let [workspace, home, elsewhere] = ["workspace", "home", "elsewhere"].map(|name| dir.join(name));
        for folder in [&workspace, &home, &elsewhere] {
            fs::create_dir_all(folder)?;
        }
        let mut cli = Cli::with_home(binary, &home)?;
        cli.timeout = Duration::from_secs(60);
        // What runs by itself would run into the next round, and one thread makes each run like the other.
        cli.env("BACKSTITCH_GC_AUTO", "false").env("BACKSTITCH_THREADS", "1");
        let stores = cli.store_dir();
        Ok(World { cli, workspace, elsewhere, seed, remote: dir.join("remote.git"), stores })
    }

    /// The folders by which calls are told apart.
    pub fn places(&self) -> Places<'_> {
        Places {
            workspace: &self.workspace,
            elsewhere: &self.elsewhere,
            stores: &self.stores,
            home: self.cli.home(),
        }
    }

    /// Fills the workspace: an ordinary project, hostile names and modes, links, empty folders, a nested repository, and what
    /// [`World::swap`] turns round.
    pub fn fill(&self) -> Result<()> {
        let at = |name: &str| self.workspace.join(name);
        generate::project(self.seed, 110).write(&self.workspace)?;
        fs::create_dir(at("hostile"))?;
        generate::tree(self.seed, &generate::Shape { entries: 60, max_file: 20_000, ..Default::default() })
            .write(&at("hostile"))?;
        for dir in [
            "swap/dir-to-file/deep/er",
            "swap/left",
            "swap/right",
            "swap/dir-to-link",
            "empty/one",
            "empty/two",
        ] {
            fs::create_dir_all(at(dir))?;
        }
        for file in [
            "swap/dir-to-file/deep/er/x",
            "swap/dir-to-file/y",
            "swap/file-to-dir",
            "swap/file-to-link",
            "swap/first",
            "swap/second",
            "swap/left/a",
            "swap/right/b",
            "swap/dir-to-link/z",
            "swap/gone",
            "swap/mode",
        ] {
            fs::write(at(file), format!("{file} before\n"))?;
        }
        symlink("first", at("swap/link-to-file"))?;
        symlink("left", at("swap/link-to-dir"))?;
        fs::write(at("large"), b"some lines of text\n".repeat(12_000))?;
        let nested = at("vendor/nested");
        for dir in [".git/objects/info", ".git/objects/pack", ".git/refs/heads", ".git/refs/tags", "src"] {
            fs::create_dir_all(nested.join(dir))?;
        }
        fs::write(nested.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        fs::write(nested.join(".git/config"), "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")?;
        fs::write(nested.join("src/lib.c"), "int nested;\n")?;
        for file in ["notes.txt", "todo.txt"] {
            fs::write(self.elsewhere.join(file), format!("{file} before\n"))?;
        }
        Ok(())
    }

    /// Types change, names are exchanged, and the like.
    pub fn swap(&self) -> Result<()> {
        let at = |name: &str| self.workspace.join("swap").join(name);
        let exchange = |a: &str, b: &str| -> Result<()> {
            fs::rename(at(a), at("aside"))?;
            fs::rename(at(b), at(a))?;
            Ok(fs::rename(at("aside"), at(b))?)
        };
        fs::remove_dir_all(at("dir-to-file"))?;
        fs::write(at("dir-to-file"), "a file now\n")?;
        fs::remove_file(at("file-to-dir"))?;
        fs::create_dir_all(at("file-to-dir/empty"))?;
        fs::write(at("file-to-dir/in"), "below what was a file\n")?;
        fs::remove_file(at("file-to-link"))?;
        symlink("../large", at("file-to-link"))?;
        fs::remove_file(at("link-to-file"))?;
        fs::write(at("link-to-file"), "was a link\n")?;
        fs::remove_file(at("link-to-dir"))?;
        fs::create_dir(at("link-to-dir"))?;
        fs::remove_dir_all(at("dir-to-link"))?;
        symlink("right", at("dir-to-link"))?;
        exchange("first", "second")?;
        exchange("left", "right")?;
        fs::remove_file(at("gone"))?;
        fs::write(at("new"), "new\n")?;
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o750))?;
        fs::remove_dir(self.workspace.join("empty/one"))?;
        fs::create_dir(self.workspace.join("empty/three"))?;
        fs::write(self.workspace.join("vendor/nested/src/lib.c"), "int nested = 1;\n")?;
        Ok(())
    }

    /// Random edits of the hostile part and of the project.
    pub fn edit(&self, which: u64, count: usize) -> Result<()> {
        // Edits below the part that is turned round would keep it from being turned.
        for (part, count) in [("hostile", count / 2), ("pkg0", count - count / 2)] {
            generate::edits(self.seed * 100 + which, count).apply(&self.workspace.join(part))?;
        }
        Ok(())
    }

    /// Runs the program with `--json` under a wrapper.
    pub fn run(&mut self, words: &[String], wrapper: &[String]) -> Result<Run> {
        self.cli.wrap(wrapper);
        let run = self.cli.json(&self.workspace, words);
        self.cli.wrap([""; 0]);
        Ok(run?)
    }

    /// A command that must succeed, or succeed in part.
    pub fn done(&self, words: &[&str]) -> Result<Value> {
        let run = self.cli.json(&self.workspace, words)?;
        if run.elapsed > Duration::from_secs(20) {
            return Err(format!("{words:?} took {:?}: a stale lock?", run.elapsed).into());
        }
        Ok(if run.code == Some(3) { run.value()? } else { run.ok()? })
    }

    /// Records a row and gives its id.
    pub fn checkpoint(&self) -> Result<String> {
        let value = self.done(&["checkpoint"])?;
        Ok(value["checkpoint"]["id"]
            .as_str()
            .ok_or_else(|| format!("a checkpoint without an id: {value}"))?
            .to_owned())
    }

    /// All rows, newest first.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let run = self.cli.json(&self.workspace, ["list", "--all"])?;
        if run.error_code().as_deref() == Some("no-such-store") {
            return Ok(Vec::new());
        }
        let value = run.ok()?;
        let rows = value["checkpoints"].as_array().ok_or("list gives no rows")?;
        rows.iter()
            .map(|row| {
                let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
                let marks = format!("{} {} {}", row["label"], row["pinned"], row["entry"]);
                Ok(Row { id: text("id"), tree: text("tree"), marks })
            })
            .collect()
    }

    /// Everything as it is now.
    pub fn state(&self) -> Result<State> {
        let rows = self.rows()?;
        let whole = Image::read(&self.workspace)?;
        Ok(State {
            workspace: without_git(&whole),
            repository: self.repository()?,
            elsewhere: Image::read(&self.elsewhere)?,
            home: Image::read(self.cli.home())?,
            rows,
            sent: self.sent()?,
            whole,
            remote: self.remote_files()?,
        })
    }

    /// The workspace as [`State::workspace`] has it.
    pub fn files(&self) -> Result<Image> {
        Ok(without_git(&Image::read(&self.workspace)?))
    }

    /// What git tells of the repository at the top of the workspace, and what of ours or of a lock is in it; empty where
    /// there is none.
    pub fn repository(&self) -> Result<String> {
        let dir = self.workspace.join(".git");
        let mut out = String::new();
        if !dir.exists() {
            return Ok(out);
        }
        let git = Git::new()?;
        for words in [
            &["symbolic-ref", "-q", "HEAD"][..],
            &["for-each-ref", "--format=%(refname) %(objectname)"],
            &["ls-files", "--stage", "-v"],
            &["diff", "--cached", "--name-status"],
            &["stash", "list", "--format=%H %gd %gs"],
            &["fsck", "--full", "--strict", "--no-dangling"],
        ] {
            let said = git.command(&self.workspace, words).env("GIT_OPTIONAL_LOCKS", "0").output()?;
            let [told, complaints] =
                [said.stdout, said.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
            out.push_str(&format!("$ git {}\n{told}{complaints}", words.join(" ")));
        }
        let is_left = |path: &[u8]| {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
            name.ends_with(b".lock")
                || name.starts_with(b"tmp_obj")
                || name.starts_with(super::image::TEMPORARY)
        };
        for path in Image::read(&dir)?.paths().filter(|p| is_left(p)) {
            out.push_str(&format!("left behind: {}\n", String::from_utf8_lossy(path)));
        }
        Ok(out)
    }

    /// The names of what the remote has; it must be whole.
    pub fn sent(&self) -> Result<Vec<String>> {
        if !self.remote.exists() {
            return Ok(Vec::new());
        }
        let git = Git::new()?;
        git.fsck_strict(&self.remote)?;
        let all = git.run(&self.remote, ["for-each-ref", "--format=%(refname)"])?;
        Ok(String::from_utf8_lossy(&all).lines().map(str::to_owned).collect())
    }

    fn remote_files(&self) -> Result<Image> {
        Ok(if self.remote.exists() { Image::read(&self.remote)? } else { Image::default() })
    }

    /// Makes all folders again as they were.
    pub fn put_back(&self, state: &mut State) -> Result<()> {
        state.whole.put_back(&self.workspace)?;
        state.workspace = without_git(&state.whole);
        if self.remote.exists() {
            state.remote.put_back(&self.remote)?;
        }
        state.elsewhere.put_back(&self.elsewhere)?;
        state.home.put_back(self.cli.home())?;
        Ok(())
    }
}

fn without_git(whole: &Image) -> Image {
    whole.clone().only(|path| path != b".git" && !path.starts_with(b".git/"))
}

/// Nothing may be run on a folder above: below a git work tree, the program would take that work tree's top.
pub fn own_workspace(cli: &Cli, workspace: &Path) -> Result<()> {
    let own = workspace.canonicalize()?;
    let above = own.ancestors().skip(1).find(|dir| dir.join(".git").exists());
    if let Some(above) = above {
        return Err(format!(
            "{} lies in the git work tree {}: choose another folder",
            own.display(),
            above.display()
        )
        .into());
    }
    let status = cli.json(workspace, ["status"])?.ok()?;
    match status["workspace"].as_str() {
        Some(taken) if Path::new(taken) == own => Ok(()),
        taken => {
            Err(format!("the program takes {taken:?} for the workspace instead of {}", own.display()).into())
        }
    }
}

//! Those that are measured, each as processes of its own.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use backstitch_testkit::{Cli, Git};
use serde_json::Value;

use crate::Result;

/// Ours.
pub struct Ours {
    cli: Cli,
}

impl Ours {
    /// With an empty home, and so without a store.
    pub fn new(binary: &Path, home: &Path) -> Result<Ours> {
        fs::create_dir_all(home)?;
        Ok(Ours { cli: Cli::with_home(binary, home)? })
    }

    /// The driver.
    pub fn cli(&self) -> &Cli {
        &self.cli
    }

    /// Where the store's repository is.
    pub fn repository(&self) -> Result<PathBuf> {
        Ok(self.cli.only_store()?.join("git"))
    }

    /// Runs a command, and returns its time and its document. Code 3 (something was left out, and is listed) is no failure here.
    pub fn run(&self, tree: &Path, args: &[&str]) -> Result<(Duration, Value)> {
        let words = std::iter::once("--json").chain(args.iter().copied());
        let mut command = self.cli.command(tree, words);
        let start = Instant::now();
        let output = command.output()?;
        let time = start.elapsed();
        match output.status.code() {
            Some(0 | 3) => Ok((time, serde_json::from_slice(&output.stdout)?)),
            _ => Err(format!(
                "backstitch {args:?}: {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )
            .into()),
        }
    }

    /// A checkpoint: its time and its id.
    pub fn checkpoint(&self, tree: &Path) -> Result<(Duration, String)> {
        let (time, value) = self.run(tree, &["checkpoint"])?;
        let id = value["checkpoint"]["id"].as_str().ok_or_else(|| format!("no id in {value}"))?;
        Ok((time, id.to_owned()))
    }

    /// Going back.
    pub fn restore(&self, tree: &Path, id: &str) -> Result<Duration> {
        let (time, value) = self.run(tree, &["restore", id])?;
        if value["partial"].as_bool() != Some(false) {
            return Err(format!("the restore is partial: {}", value["counts"]).into());
        }
        Ok(time)
    }

    /// A checkpoint that nobody times: the most memory that it used, in MiB.
    pub fn peak_memory(&self, tree: &Path) -> Result<u64> {
        let mut child = self
            .cli
            .command(tree, ["--json", "checkpoint"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait()?.is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
            peak = peak.max(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default());
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(peak.div_ceil(1024))
    }
}

/// What other tools do: git, with a repository beside the tree.
pub struct Shadow {
    git: Git,
    dir: PathBuf,
}

impl Shadow {
    /// With an empty repository; its making is not timed.
    pub fn new(dir: &Path) -> Result<Shadow> {
        let git = Git::new()?;
        fs::create_dir_all(dir)?;
        git.run(dir, ["init", "-q", "--bare", "."])?;
        Ok(Shadow { git, dir: dir.to_path_buf() })
    }

    /// Its repository.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn step(&self, tree: &Path, args: &[&str]) -> Result<String> {
        let mut command: Command = self.git.command(tree, args.iter().map(OsStr::new));
        command.env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", tree);
        let output = command.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    /// A snapshot: its time and its tree.
    pub fn snapshot(&self, tree: &Path) -> Result<(Duration, String)> {
        let start = Instant::now();
        self.step(tree, &["add", "-A"])?;
        let id = self.step(tree, &["write-tree"])?;
        let commit = self.step(tree, &["commit-tree", &id, "-m", "x"])?;
        self.step(tree, &["update-ref", &format!("refs/x/{commit}"), &commit])?;
        Ok((start.elapsed(), id))
    }

    /// Going back.
    pub fn restore(&self, tree: &Path, id: &str) -> Result<Duration> {
        let start = Instant::now();
        self.step(tree, &["read-tree", "--reset", "-u", id])?;
        self.step(tree, &["clean", "-fdq"])?;
        Ok(start.elapsed())
    }
}

/// The system itself.
pub struct Bare(pub PathBuf);

impl Bare {
    /// A walk on all cores, as a process.
    pub fn walk(&self, tree: &Path) -> Result<Duration> {
        let start = Instant::now();
        let output = Command::new(&self.0).arg("walk").arg(tree).stdin(Stdio::null()).output()?;
        let time = start.elapsed();
        if output.status.success() { Ok(time) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }

    /// The making of the same files at a new place; reading them first is not counted.
    pub fn create(&self, from: &Path, to: &Path) -> Result<Duration> {
        let output = Command::new(&self.0).arg("create").arg(from).arg(to).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match text.parse() {
            Ok(nanos) if output.status.success() => Ok(Duration::from_nanos(nanos)),
            _ => Err(format!("bare create: {}", String::from_utf8_lossy(&output.stderr).trim()).into()),
        }
    }
}

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

use super::machine;
use crate::Result;

/// Ours. Without a watcher, unless one was started by [`Ours::watch`]; that one ends with this value at the latest.
pub struct Ours {
    cli: Cli,
    env: Vec<(String, String)>,
    watched: Option<PathBuf>,
}

impl Drop for Ours {
    fn drop(&mut self) {
        // On the way out of an error or a panic; whoever asks for the result has called `unwatch`.
        if let Some(tree) = self.watched.take() {
            let _ = self.run(&tree, &["watch", "stop"]);
        }
    }
}

impl Ours {
    /// With an empty home, and so without a store.
    pub fn new(binary: &Path, home: &Path, env: &[(&str, String)]) -> Result<Ours> {
        fs::create_dir_all(home)?;
        let mut ours = Ours { cli: Cli::with_home(binary, home)?, env: Vec::new(), watched: None };
        ours.set("BACKSTITCH_WATCH", "off");
        for (key, value) in env {
            ours.set(key, value);
        }
        Ok(ours)
    }

    /// Sets a variable from now on.
    pub fn set(&mut self, key: &str, value: &str) {
        self.env.push((key.to_owned(), value.to_owned()));
        self.cli.env(key, value);
    }

    /// Starts a watcher of the tree.
    pub fn watch(&mut self, tree: &Path) -> Result<()> {
        self.set("BACKSTITCH_WATCH", "auto");
        self.set("BACKSTITCH_WATCH_FROM", "1");
        // Should this process be killed, the watcher does not stay for long.
        self.set("BACKSTITCH_WATCH_IDLE", "120");
        self.watched = Some(tree.to_path_buf());
        let (_, value) = self.run(tree, &["watch", "start"])?;
        match value["watcher"]["running"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(format!("no watcher runs: {}", value["watcher"]).into()),
        }
    }

    /// Ends it.
    pub fn unwatch(&mut self) -> Result<()> {
        // First of all, so that the next command starts no other one.
        self.set("BACKSTITCH_WATCH", "off");
        let Some(tree) = self.watched.take() else { return Ok(()) };
        self.run(&tree, &["watch", "stop"])?;
        let (_, value) = self.run(&tree, &["watch", "status"])?;
        match value["watcher"]["running"].as_bool() {
            Some(false) => Ok(()),
            _ => Err(format!("the watcher still runs: {}", value["watcher"]).into()),
        }
    }

    /// The same with the same home, run by strace, which writes its count of system calls to `file`.
    pub fn counted(&self, file: &Path) -> Result<Ours> {
        let mut env: Vec<(&str, String)> = self.env.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        // A collection beside it would be counted, too.
        env.push(("BACKSTITCH_GC_AUTO", "false".into()));
        let mut ours = Ours::new(self.cli.binary(), self.cli.home(), &env)?;
        ours.cli.wrap([
            "strace".as_ref(),
            "-f".as_ref(),
            "-c".as_ref(),
            "-o".as_ref(),
            file.as_os_str(),
            "--".as_ref(),
        ]);
        Ok(ours)
    }

    /// The driver.
    pub fn cli(&self) -> &Cli {
        &self.cli
    }

    /// Where the store's repository is.
    pub fn repository(&self) -> Result<PathBuf> {
        Ok(self.cli.only_store()?.join("git"))
    }

    /// The bytes that the store takes on disk.
    pub fn store_size(&self) -> Result<u64> {
        Ok(super::trees::size(&self.cli.only_store()?)?.disk)
    }

    /// Runs a command, and returns its time and its document. Code 3 (something was left out, and is listed) is no failure here.
    pub fn run(&self, tree: &Path, args: &[&str]) -> Result<(Duration, Value)> {
        let words = std::iter::once("--json").chain(args.iter().copied());
        let mut command = self.cli.command(tree, words);
        machine::sync();
        let start = Instant::now();
        let output = command.output()?;
        let time = start.elapsed();
        match output.status.code() {
            Some(0 | 3) if output.stdout.is_empty() => Ok((time, Value::Null)),
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

    /// A command that nobody times: the most memory that it used, in MiB. What it took in its last moment may be missed.
    pub fn peak_memory(&self, tree: &Path, args: &[&str]) -> Result<u64> {
        let words = std::iter::once("--json").chain(args.iter().copied());
        let mut command = self.cli.command(tree, words);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        let code = loop {
            if let Some(code) = child.try_wait()? {
                break code;
            }
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
            peak = peak.max(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default());
            // No sleep: short commands are over in a few milliseconds.
            std::thread::yield_now();
        };
        match code.code() {
            Some(0 | 3) => Ok(peak.div_ceil(1024)),
            _ => Err(format!("backstitch {args:?}: {code}").into()),
        }
    }
}

/// The calls that strace has counted.
pub fn calls(table: &str) -> Option<u64> {
    let mut sum = None;
    for line in table.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // Share, seconds, microseconds of each, calls, perhaps errors, name.
        if let (5 | 6, Some(Ok(calls))) = (words.len(), words.get(3).map(|w| w.parse::<u64>()))
            && words.last() != Some(&"total")
        {
            sum = Some(sum.unwrap_or(0) + calls);
        }
    }
    sum
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
        machine::sync();
        let start = Instant::now();
        self.step(tree, &["add", "-A"])?;
        let id = self.step(tree, &["write-tree"])?;
        let commit = self.step(tree, &["commit-tree", &id, "-m", "x"])?;
        self.step(tree, &["update-ref", &format!("refs/x/{commit}"), &commit])?;
        Ok((start.elapsed(), id))
    }

    /// Going back.
    pub fn restore(&self, tree: &Path, id: &str) -> Result<Duration> {
        machine::sync();
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
        machine::sync();
        let start = Instant::now();
        let output = Command::new(&self.0).arg("walk").arg(tree).stdin(Stdio::null()).output()?;
        let time = start.elapsed();
        if output.status.success() { Ok(time) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }

    /// The making of the same files at a new place; reading them first is not counted.
    pub fn create(&self, from: &Path, to: &Path) -> Result<Duration> {
        machine::sync();
        let output = Command::new(&self.0).arg("create").arg(from).arg(to).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match text.parse() {
            Ok(nanos) if output.status.success() => Ok(Duration::from_nanos(nanos)),
            _ => Err(format!("bare create: {}", String::from_utf8_lossy(&output.stderr).trim()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_calls_are_added_up() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ------------------\n \
                     45.57    0.001771          27        64         8 openat\n \
                     10.60    0.000412         137         3           fdatasync\n\
                     ------ ----------- ----------- --------- --------- ------------------\n\
                     100.00    0.003886           8        67         8 total\n";
        assert_eq!(calls(table), Some(67));
        assert_eq!(calls("strace: cannot\n"), None);
    }
}

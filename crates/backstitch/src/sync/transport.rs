//! Git as the carrier. Everything else is done without it: only whoever synchronises needs it, and it sees a scratch
//! repository that has no hooks and no settings of the folder's.

use std::{
    ffi::{OsStr, OsString},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::Ordering,
        mpsc::{self, Receiver},
    },
    time::Duration,
};

use super::Options;
use crate::{
    error::{Code, Error, Result},
    workspace::{Control, Workspace},
};

/// What git may know of the surroundings: how to get in.
const KEPT: &[&str] = &["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS"];
/// What it would do besides, or let the other side do.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "transfer.fsckObjects=true",
    "fetch.recurseSubmodules=no",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    "fetch.writeCommitGraph=false",
    "fetch.bundleURI=",
    "transfer.bundleURI=false",
    // A connection on which nothing moves for two minutes has ended.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
];
/// Of what git says, for the error.
const SAID: usize = 16 << 10;

/// How long after git's end to wait for more: a process that it left behind (ssh's shared connection) may hold its pipes open.
const LINGER: Duration = Duration::from_secs(2);

/// What a pipe brings, read beside.
struct Said {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Said {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Said {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = mpsc::channel();
        let into = bytes.clone();
        if let Some(mut pipe) = pipe {
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                while let Ok(n @ 1..) = pipe.read(&mut part) {
                    let mut all = into.lock().unwrap_or_else(|e| e.into_inner());
                    // Whoever writes more is not made to wait.
                    let room = SAID.saturating_sub(all.len()).min(n);
                    all.extend_from_slice(&part[..room]);
                }
                let _ = end.send(());
            });
        }
        Said { bytes, ended }
    }

    fn end(self) -> Vec<u8> {
        // Also where there was no pipe: its sender is gone.
        let _ = self.ended.recv_timeout(LINGER);
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

pub(super) struct Transport<'a> {
    git_dir: PathBuf,
    remote: OsString,
    may_ask: bool,
    control: &'a Control<'a>,
}

/// A git that knows nothing of the caller's repository.
fn git(settings: &[&str]) -> Command {
    let mut c = Command::new("git");
    for (name, _) in std::env::vars_os() {
        let kept = KEPT.iter().any(|k| name == *k);
        if name.as_encoded_bytes().starts_with(b"GIT_") && !kept {
            c.env_remove(name);
        }
    }
    c.env("LC_ALL", "C").env("BACKSTITCH_DISABLE", "1");
    for s in settings {
        c.args(["-c", s]);
    }
    c
}

/// An address without the password in it.
fn shown(remote: &str) -> String {
    match remote.split_once("://").and_then(|(how, rest)| Some((how, rest.split_once('@')?.1))) {
        Some((how, rest)) => format!("{how}://{rest}"),
        None => remote.to_owned(),
    }
}

impl<'a> Transport<'a> {
    /// # Errors
    /// `usage` for a remote that git would take for an option; `remote` where there is no git.
    pub(super) fn new(
        ws: &Workspace,
        git_dir: &Path,
        options: &Options,
        control: &'a Control<'a>,
    ) -> Result<Transport<'a>> {
        let word = &options.remote;
        let bytes = word.as_encoded_bytes();
        if bytes.is_empty() || bytes.starts_with(b"-") {
            return Err(Error::new(Code::Usage, format!("{} is no remote", word.display())).hint(
                "name an address, a path, or a remote of the repository: `git remote -v` lists those",
            ));
        }
        let mut t = Transport {
            git_dir: git_dir.to_owned(),
            remote: word.clone(),
            may_ask: options.may_ask,
            control,
        };
        // A single word is a remote of the folder's repository.
        if !bytes.iter().any(|b| matches!(b, b'/' | b':' | b'\\')) {
            let mut c = git(&["core.fsmonitor=false"]);
            c.arg("-C").arg(ws.root()).args(["remote", "get-url", "--"]).arg(word);
            let said = t.run(c).map_err(|e| match e.code {
                Code::Interrupted => e,
                _ => Error::new(
                    Code::Remote,
                    format!(
                        "{} is neither a path nor an address nor a remote of the repository here",
                        word.display()
                    ),
                )
                .hint("`git remote -v` lists those; name a path as ./NAME"),
            })?;
            let line = said.split(|b| *b == b'\n').next().unwrap_or_default();
            t.remote = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(line).to_owned();
        }
        Ok(t)
    }

    fn command(&self) -> Command {
        let mut c = git(SETTINGS);
        c.env("GIT_DIR", &self.git_dir).current_dir(&self.git_dir);
        if !self.may_ask {
            c.env("GIT_TERMINAL_PROMPT", "0");
        }
        c
    }

    pub(super) fn fetch(&self, refs: &[String]) -> Result<()> {
        let mut c = self.command();
        c.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--"]);
        c.arg(&self.remote).args(refs);
        self.run(c).map(drop)
    }

    pub(super) fn push(&self, refs: &[String]) -> Result<()> {
        let mut c = self.command();
        c.args(["push", "--quiet", "--no-verify", "--"]).arg(&self.remote).args(refs);
        self.run(c).map(drop)
    }

    /// What it wrote to its standard output.
    fn run(&self, mut c: Command) -> Result<Vec<u8>> {
        let started = c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(Code::Remote, "there is no git program on the PATH")
                .hint("`sync` carries checkpoints with git: install it; nothing else needs it"),
            _ => Error::new(Code::Remote, format!("git cannot be run: {e}")),
        })?;
        let out = Said::of(child.stdout.take());
        let err = Said::of(child.stderr.take());
        let status = self.wait(&mut child)?;
        let (out, err) = (out.end(), err.end());
        if status.success() {
            return Ok(out);
        }
        let said: Vec<String> = String::from_utf8_lossy(&err)
            .lines()
            .map(|l| l.chars().filter(|c| !c.is_control()).collect::<String>())
            .filter(|l| !l.trim().is_empty())
            .collect();
        let name = shown(&self.remote.to_string_lossy());
        let said = said.join("; ").replace(&*self.remote.to_string_lossy(), &name);
        Err(Error::new(Code::Remote, format!("{name}: git failed: {said}"))
            .hint("the remote must be a git repository that can be read and, for a push, written"))
    }

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus> {
        loop {
            let gone = child.try_wait().map_err(|e| Error::new(Code::Remote, format!("git: {e}")))?;
            if self.control.interrupt.load(Ordering::Relaxed) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::new(Code::Interrupted, "interrupted"));
            }
            match gone {
                Some(status) => return Ok(status),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

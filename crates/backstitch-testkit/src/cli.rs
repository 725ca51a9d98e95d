//! Runs the program as a user would, in isolation.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Names the program to run, before any other place is looked at.
pub const BINARY: &str = "BACKSTITCH_BIN";

/// The program with a home and a base folder for stores of its own.
#[derive(Debug)]
pub struct Cli {
    binary: PathBuf,
    home: PathBuf,
    _own: Option<tempfile::TempDir>,
    env: Vec<(OsString, Option<OsString>)>,
    wrapper: Vec<OsString>,
    user: Option<u32>,
    /// A run that takes longer is ended and is an error.
    pub timeout: Duration,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// The arguments, to be shown in messages.
    pub args: String,
    /// The exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, lossily.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
}

/// With this variable every workspace of a test gets a watcher, however small it is.
pub const WATCHED: &str = "BACKSTITCH_TEST_WATCHED";

impl Cli {
    /// The program that was built together with the calling test: `$BACKSTITCH_BIN`, else `backstitch` beside the folder of the
    /// test's own executable.
    pub fn find() -> io::Result<Cli> {
        if let Some(path) = std::env::var_os(BINARY) {
            return Cli::new(PathBuf::from(path));
        }
        let own = std::env::current_exe()?;
        let beside =
            own.ancestors().skip(1).take(2).map(|dir| dir.join("backstitch")).find(|path| path.is_file());
        Cli::new(beside.ok_or_else(|| {
            let hint =
                format!("no `backstitch` beside {}: build it first, or name it in {BINARY}", own.display());
            io::Error::new(io::ErrorKind::NotFound, hint)
        })?)
    }

    /// This program, with a new temporary home.
    pub fn new(binary: impl Into<PathBuf>) -> io::Result<Cli> {
        let own = tempfile::tempdir()?;
        // Without links in it: the program may print real paths.
        let home = own.path().canonicalize()?;
        let mut cli = Cli::with_home(binary, &home)?;
        cli._own = Some(own);
        Ok(cli)
    }

    /// This program, with a home that the caller owns; nothing is deleted at the end.
    pub fn with_home(binary: impl Into<PathBuf>, home: &Path) -> io::Result<Cli> {
        let binary = binary.into().canonicalize()?;
        let timeout = Duration::from_secs(120);
        Ok(Cli {
            binary,
            home: home.to_path_buf(),
            _own: None,
            env: Vec::new(),
            wrapper: Vec::new(),
            user: None,
            timeout,
        })
    }

    /// Sets a variable for all runs to come.
    pub fn env(&mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        self.env.push((key.into(), Some(value.into())));
        self
    }

    /// Runs the program under another one, such as `strace -f --`, from now on.
    pub fn wrap<S: Into<OsString>>(&mut self, wrapper: impl IntoIterator<Item = S>) -> &mut Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Runs the program as this user from now on (needs root). The home must be writable for that user.
    pub fn user(&mut self, id: u32) -> &mut Self {
        self.user = Some(id);
        self
    }

    /// The program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The base folder of the stores.
    pub fn store_dir(&self) -> PathBuf {
        self.home.join("stores")
    }

    /// The folder of the only store there is, the one with `manifest.json` in it.
    pub fn only_store(&self) -> io::Result<PathBuf> {
        let mut found = Vec::new();
        find_stores(&self.store_dir(), 4, &mut found)?;
        match found.len() {
            1 => Ok(found.remove(0)),
            n => Err(io::Error::other(format!("{n} stores below {}", self.store_dir().display()))),
        }
    }

    /// The command, not yet started: `backstitch -C WORKSPACE ARGS...`, with nothing of the caller's environment but the path.
    pub fn command<S: AsRef<OsStr>>(&self, workspace: &Path, args: impl IntoIterator<Item = S>) -> Command {
        let mut words = self.wrapper.clone();
        words.push(self.binary.clone().into());
        words.push("-C".into());
        words.push(workspace.into());
        words.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().current_dir(&self.home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.env("BACKSTITCH_STORE_DIR", self.store_dir());
        // What a machine has for a pager is no matter of a test.
        command.env("BACKSTITCH_PAGER", "");
        for (key, folder) in [
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(key, self.home.join(folder));
        }
        if std::env::var_os(WATCHED).is_some() {
            command.env("BACKSTITCH_WATCH_FROM", "1").env("BACKSTITCH_WATCH_IDLE", "60");
        }
        for (key, value) in &self.env {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        if let Some(id) = self.user {
            command = crate::privilege::as_user(id, &command);
            // The wrapper copied variables, not their absence.
            let kept: Vec<_> =
                command.get_envs().map(|(k, v)| (k.to_owned(), v.map(OsStr::to_owned))).collect();
            command.env_clear();
            for (key, value) in kept {
                if let Some(value) = value {
                    command.env(key, value);
                }
            }
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        workspace: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> io::Result<Run> {
        let args: Vec<OsString> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let shown = args.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
        run_to_end(&mut self.command(workspace, &args), self.timeout, shown)
    }

    /// Runs it with `--json`.
    pub fn json<S: AsRef<OsStr>>(
        &self,
        workspace: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> io::Result<Run> {
        let mut words = vec![OsString::from("--json")];
        words.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self.run(workspace, words)
    }
}

impl Run {
    /// The one JSON document on standard output.
    pub fn value(&self) -> io::Result<Value> {
        serde_json::from_slice(&self.stdout)
            .map_err(|e| io::Error::other(format!("not one JSON document: {e}\n{self}")))
    }

    /// The `code` of the error document on standard error, as `--json` gives it.
    pub fn error_code(&self) -> Option<String> {
        let document = self.stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok())?;
        Some(document.get("error")?.get("code")?.as_str()?.to_owned())
    }

    /// The JSON document of a run that ended with code 0.
    pub fn ok(&self) -> io::Result<Value> {
        self.expect(0)
    }

    /// The JSON document of a run that ended with this code (null if it wrote none).
    pub fn expect(&self, code: i32) -> io::Result<Value> {
        if self.code != Some(code) {
            return Err(io::Error::other(format!("expected exit code {code}\n{self}")));
        }
        if self.stdout.is_empty() { Ok(Value::Null) } else { self.value() }
    }

    /// Whether the program ended in one of the documented ways: no panic, no signal, no undocumented code.
    pub fn ended_properly(&self) -> bool {
        matches!(self.code, Some(0..=7 | 130)) && !self.stderr.contains("panicked at")
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let clip = |text: &str| text.chars().take(2_000).collect::<String>();
        write!(f, "backstitch {}: code {:?} signal {:?}", self.args, self.code, self.signal)?;
        write!(f, "\n--- stdout\n{}\n--- stderr\n{}", clip(stdout.trim()), clip(self.stderr.trim()))
    }
}

/// The raw path of an entry of a JSON answer: `path_base64` where the name is no UTF-8, else `path`.
pub fn path_of(entry: &Value) -> Option<Vec<u8>> {
    match entry.get("path_base64").and_then(Value::as_str) {
        Some(text) => base64(text),
        None => Some(entry.get("path")?.as_str()?.as_bytes().to_vec()),
    }
}

/// Reads base64, of the usual alphabet, with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut out) = (0u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | ALPHABET.iter().position(|a| *a == byte)? as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(out)
}

fn find_stores(dir: &Path, depth: usize, out: &mut Vec<PathBuf>) -> io::Result<()> {
    if dir.join("manifest.json").is_file() {
        out.push(dir.to_path_buf());
    } else if depth > 0 {
        for item in std::fs::read_dir(dir)? {
            let item = item?;
            if item.file_type()?.is_dir() {
                find_stores(&item.path(), depth - 1, out)?;
            }
        }
    }
    Ok(())
}

/// Runs a command to its end, with both outputs read. A child of it that keeps an output open is an error, too: whoever calls
/// the program from a pipe would wait for that child.
pub fn run_to_end(command: &mut Command, timeout: Duration, args: String) -> io::Result<Run> {
    let start = Instant::now();
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| {
            io::Error::new(e.kind(), format!("{}: {e}", command.get_program().to_string_lossy()))
        })?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    // The end of its output mostly is its own end; looking at short intervals is for the rest.
    let (mut nap, mut early) = (Duration::from_micros(200), None);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{args}: still running after {timeout:?}"),
            ));
        }
        if early.is_some() {
            std::thread::sleep(nap);
        } else {
            early = stdout.recv_timeout(nap).ok();
            if early.is_some() {
                nap = Duration::from_micros(50);
            }
        }
        nap = (nap * 2).min(Duration::from_millis(5));
    };
    let elapsed = start.elapsed();
    let grace = Duration::from_secs(5);
    let late = |_| io::Error::other(format!("{args}: ended, but something it started keeps its output open"));
    let stdout = match early {
        Some(bytes) => bytes,
        None => stdout.recv_timeout(grace).map_err(late)?,
    };
    let stderr = String::from_utf8_lossy(&stderr.recv_timeout(grace).map_err(late)?).into_owned();
    Ok(Run { args, code: status.code(), signal: status.signal(), stdout, stderr, elapsed })
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A broken pipe ends the output; what came is what there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = send.send(bytes);
    });
    receive
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// A stand-in for the program.
    fn fake(script: &str) -> (Cli, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fake");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (Cli::new(path).unwrap(), dir)
    }

    #[test]
    fn arguments_environment_and_results_arrive() {
        let (mut cli, dir) = fake(
            r#"echo "{\"args\":\"$*\",\"home\":\"$HOME\",\"x\":\"$X\",\"git\":\"$GIT_DIR\",\"store\":\"$BACKSTITCH_STORE_DIR\"}"; echo '{"error":{"code":"busy"}}' >&2; exit 6"#,
        );
        cli.env("X", "set");
        let run = cli.json(dir.path(), ["status"]).unwrap();
        assert!(run.ok().is_err());
        assert!(run.ended_properly());
        let value = run.expect(6).unwrap();
        assert_eq!(value["args"], format!("-C {} --json status", dir.path().display()));
        assert_eq!(value["home"], cli.home().to_string_lossy().as_ref());
        assert_eq!(value["store"], cli.store_dir().to_string_lossy().as_ref());
        assert_eq!((&value["x"], &value["git"]), (&"set".into(), &"".into()));
        assert_eq!(run.error_code().as_deref(), Some("busy"));
    }

    #[test]
    fn bad_ends_are_told() {
        let (cli, dir) = fake("kill -9 $$");
        let run = cli.run(dir.path(), ["x"]).unwrap();
        assert_eq!((run.code, run.signal, run.ended_properly()), (None, Some(9), false));
        let (cli, dir) = fake("echo thread panicked at here >&2; exit 101");
        assert!(!cli.run(dir.path(), ["x"]).unwrap().ended_properly());
        let (cli, dir) = fake("echo '{} {}'");
        assert!(cli.run(dir.path(), ["x"]).unwrap().value().is_err());
    }

    #[test]
    fn a_hanging_program_and_a_kept_pipe_are_errors() {
        let (mut cli, dir) = fake("exec sleep 60");
        cli.timeout = Duration::from_millis(300);
        assert_eq!(cli.run(dir.path(), ["x"]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (cli, dir) = fake("sleep 7 & exit 0");
        assert!(cli.run(dir.path(), ["x"]).unwrap_err().to_string().contains("keeps its output open"));
    }

    #[test]
    fn raw_paths_are_read_from_answers() {
        for (entry, path) in [
            (serde_json::json!({"path": "a/b"}), Some(&b"a/b"[..])),
            (serde_json::json!({"path": "\u{fffd}", "path_base64": "/w=="}), Some(b"\xff")),
            (serde_json::json!({"path": "x", "path_base64": "YWJj"}), Some(b"abc")),
            (serde_json::json!({"path": "x", "path_base64": "?"}), None),
            (serde_json::json!({}), None),
        ] {
            assert_eq!(path_of(&entry).as_deref(), path, "{entry}");
        }
    }

    #[test]
    fn the_only_store_is_found() {
        let (cli, _dir) = fake("");
        let store = cli.store_dir().join("stores/name-0123456789abcdef");
        fs::create_dir_all(&store).unwrap();
        assert!(cli.only_store().is_err());
        fs::write(store.join("manifest.json"), "{}").unwrap();
        assert_eq!(cli.only_store().unwrap(), store);
    }
}

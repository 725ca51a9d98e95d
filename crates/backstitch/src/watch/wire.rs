//! What a capture and the watcher say to each other: one line of JSON each way, over a socket in the store's private folder.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_scan::{Heard, Noise};
use serde::{Deserialize, Serialize};

use super::SOCKET;
use crate::paths;

/// One line is at most this long; more noise than that is "anything".
const LINE: u64 = 4 << 20;
/// How long a line may take.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// A moment in a watcher's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// Which life: a watcher that lost track begins another one.
    pub instance: String,
    /// Everything that happened before it is in it.
    pub epoch: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ask {
    /// What happened since.
    Since(Option<Token>),
    /// How it is.
    Status,
    /// It is to end.
    Stop,
}

/// Escaped path of a directory, and what of it: these escaped names, all of it, or all below too.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Said(String, What);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Names(Vec<String>),
    All,
    Below,
}

impl Said {
    pub fn of(noise: &Noise) -> Said {
        let what = match &noise.what {
            Heard::Names(names) => What::Names(names.iter().map(|n| paths::escape(n)).collect()),
            Heard::All => What::All,
            Heard::Below => What::Below,
        };
        Said(paths::escape(&noise.path), what)
    }

    pub fn noise(self) -> Option<Noise> {
        let plain = |s: String| paths::unescape(s.as_bytes());
        let what = match self.1 {
            What::Names(names) => Heard::Names(names.into_iter().map(plain).collect::<Option<_>>()?),
            What::All => Heard::All,
            What::Below => Heard::Below,
        };
        Some(Noise { path: plain(self.0)?, what })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Noise {
        token: Token,
        /// None: anything may have happened.
        noise: Option<Vec<Said>>,
    },
    Status {
        pid: u32,
        directories: u64,
        since_ms: i64,
        noisy: u64,
    },
    Ends,
}

/// A name for the socket that is short however deep the store lies; good while the file is open.
fn address(state: &Path) -> io::Result<(File, PathBuf)> {
    let dir = File::open(state)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(SOCKET);
    Ok((dir, path))
}

pub(super) fn listen(state: &Path) -> io::Result<UnixListener> {
    let (_dir, path) = address(state)?;
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    UnixListener::bind(&path)
}

/// Asks; an error where nobody is there, or does not answer in time.
pub(super) fn ask(state: &Path, ask: &Ask) -> io::Result<Answer> {
    let (_dir, path) = address(state)?;
    let stream = UnixStream::connect(&path)?;
    say(&stream, ask)?;
    hear(&stream)
}

pub(super) fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

pub(super) fn hear<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE)).read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => Ok(serde_json::from_slice(&line)?),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

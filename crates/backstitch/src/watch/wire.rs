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

use serde::{Deserialize, Serialize};

use super::SOCKET;

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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Noise {
        token: Token,
        /// Escaped paths of directories, and whether all below is meant; none: anything may have happened.
        noise: Option<Vec<(String, bool)>>,
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

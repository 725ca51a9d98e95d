//! The watcher's process.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    ENDED, SOCKET,
    noise::{Ears, End},
    wire::{self, Answer, Ask, Said},
};
use crate::{
    error::{Code, Error, Result},
    record,
    workspace::Workspace,
};

/// Watches the workspace until nobody has asked for as long as the setting `watch_idle` says, until it is told to end, or
/// until the workspace or its store is gone. `ready` is called once questions are answered.
///
/// # Errors
/// `busy` where another process watches; `no-such-store`; `failed` where the system gives no more watches.
pub fn run(ws: &Workspace, ready: impl FnOnce()) -> Result<()> {
    let store = ws.store()?;
    let state = store.state_dir();
    // One that was killed may be a moment from letting go.
    let _lock = store.lock_exclusive("watch", Duration::from_secs(2))?;
    let failed = |e: io::Error| Error::io(&state, e);
    let ended = state.join(ENDED);
    let _ = std::fs::remove_file(&ended);
    let end = |e: End| match e {
        End::Gone => Error::new(Code::Failed, "the workspace or its store is gone").at(ws.root()),
        End::Limit(e) => {
            let why = format!(
                "the system watches no more directories ({e}); fs.inotify.max_user_watches says how many"
            );
            let _ = std::fs::write(&ended, &why);
            Error::new(Code::Failed, why)
                .at(ws.root())
                .hint("captures look at everything, as without a watcher")
        }
    };
    let mut watcher = Watcher {
        ears: Ears::open(ws.root(), &state).map_err(end)?,
        listener: wire::listen(&state).map_err(failed)?,
        mounts: File::open("/proc/self/mountinfo").ok(),
        since_ms: record::now_ms(),
    };
    watcher.listener.set_nonblocking(true).map_err(failed)?;
    ready();
    let idle = Duration::from_secs(ws.settings().int("watch_idle"));
    let done = watcher.serve(idle);
    let _ = std::fs::remove_file(state.join(SOCKET));
    match done {
        Ok(()) | Err(End::Gone) => Ok(()),
        Err(e) => Err(end(e)),
    }
}

struct Watcher {
    ears: Ears,
    listener: UnixListener,
    /// Becomes ready when something is mounted or unmounted.
    mounts: Option<File>,
    since_ms: i64,
}

impl Watcher {
    fn serve(&mut self, idle: Duration) -> std::result::Result<(), End> {
        let mut last = Instant::now();
        loop {
            let left = idle.saturating_sub(last.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            self.wait(left).map_err(End::Limit)?;
            self.look_at_mounts()?;
            self.ears.drain()?;
            self.ears.follow()?;
            while let Ok((stream, _)) = self.listener.accept() {
                last = Instant::now();
                if self.answer(&stream)? {
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let mut fds =
            vec![PollFd::new(self.ears.queue(), PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.mounts.as_ref().map(|m| PollFd::new(m, PollFlags::PRI)));
        let left = Timespec { tv_sec: left.as_secs() as i64 + 1, tv_nsec: 0 };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// What is mounted over a directory hides it without an event.
    fn look_at_mounts(&mut self) -> std::result::Result<(), End> {
        let Some(mounts) = &self.mounts else { return Ok(()) };
        let mut fds = [PollFd::from_borrowed_fd(mounts.as_fd(), PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(n) if n > 0 => self.ears.begin_anew(),
            _ => Ok(()),
        }
    }

    /// True where it was the last answer.
    fn answer(&mut self, stream: &UnixStream) -> std::result::Result<bool, End> {
        // A client that says nothing is not waited for long; what it does not hear it does not believe.
        let Ok(ask) = wire::hear::<Ask>(stream) else { return Ok(false) };
        let answer = match &ask {
            Ask::Since(since) => {
                self.look_at_mounts()?;
                let sure = self.ears.catch_up()?;
                let (token, noise) = self.ears.since(since.as_ref().filter(|_| sure));
                Answer::Noise { token, noise: noise.map(|all| all.iter().map(Said::of).collect()) }
            }
            Ask::Status => Answer::Status {
                pid: std::process::id(),
                directories: self.ears.watched() as u64,
                since_ms: self.since_ms,
                noisy: self.ears.noisy() as u64,
            },
            Ask::Stop => Answer::Ends,
        };
        let _ = wire::say(stream, &answer);
        let _ = (&mut &*stream).flush();
        Ok(matches!(ask, Ask::Stop))
    }
}

/// Where the watcher's state lies, for those who only ask.
pub(super) fn state(ws: &Workspace) -> Option<PathBuf> {
    Some(ws.store().ok()?.state_dir())
}

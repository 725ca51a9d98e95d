//! A program on a terminal, and what that terminal shows.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::support::World;

/// A terminal that shows nothing new for so long shows nothing any more.
const LIMIT: Duration = Duration::from_secs(60);

/// A program whose three streams are one terminal.
pub struct Session {
    master: File,
    pub child: Child,
    /// Everything that was written to it.
    pub seen: String,
    screen: vt100::Parser,
}

impl Session {
    /// On a terminal of 24 lines with 80 columns.
    pub fn start(w: &World, args: &[&str]) -> Session {
        Session::sized(w, args, 24, 80)
    }

    /// On a terminal of this size.
    pub fn sized(w: &World, args: &[&str], rows: u16, columns: u16) -> Session {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || -> OwnedFd {
            rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
                .unwrap()
        };
        let slave = open();
        tcsetwinsize(&slave, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let child = w
            .cli
            .command(&w.ws, args)
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let screen = vt100::Parser::new(rows, columns, 0);
        Session { master: File::from(master), child, seen: String::new(), screen }
    }

    /// Reads more. `false`: the program is gone.
    fn more(&mut self) -> bool {
        let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        let mut buffer = [0; 4096];
        let mut fds = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing more comes after\n{}", self.shown());
        match self.master.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.screen.process(&buffer[..n]);
                self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
                true
            }
        }
    }

    /// Reads until this was written; `None`: until the program is gone.
    pub fn until(&mut self, text: Option<&str>) -> &str {
        while text.is_none_or(|t| !self.seen.contains(t)) {
            if !self.more() {
                assert!(text.is_none(), "ended after\n{}", self.seen);
                break;
            }
        }
        &self.seen
    }

    /// What the terminal shows now.
    pub fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until the terminal shows what is asked for; gives what it shows.
    pub fn shows(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shown();
            if is_there(&shown) {
                return shown;
            }
            assert!(begun.elapsed() < LIMIT, "no {what} in\n{shown}");
            assert!(self.more(), "ended without {what}\n{shown}\n{}", self.seen);
        }
    }

    /// Reads until the terminal shows this text.
    pub fn see(&mut self, text: &str) -> String {
        self.shows(text, |s| s.contains(text))
    }

    /// Types.
    pub fn answer(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Exit code, and all that was written.
    pub fn end(mut self) -> (Option<i32>, String) {
        self.until(None);
        (self.child.wait().unwrap().code(), self.seen)
    }

    /// The terminal goes; the exit code.
    pub fn hang_up(mut self) -> Option<i32> {
        drop(self.master);
        let pid = rustix::process::Pid::from_child(&self.child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap() == 0 {
            self.child.kill().unwrap();
        }
        self.child.wait().unwrap().code()
    }
}

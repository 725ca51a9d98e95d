//! Questions on a terminal, and reading that a signal ends.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
};

use backstitch::error::{Code, Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Reads once from standard input, past the buffer of the standard library, whose content cannot be waited for.
/// Signals arrive as a flag, so that is looked at now and then.
pub fn read(buffer: &mut [u8], interrupt: &AtomicBool) -> Result<usize> {
    let stdin = io::stdin();
    let slice = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::new(Code::Interrupted, "interrupted; nothing was changed"));
        }
        let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        // Where it cannot be waited for, reading says why.
        if let Ok(0) | Err(Errno::INTR) = poll(&mut fds, Some(&slice)) {
            continue;
        }
        match rustix::io::read(stdin.as_fd(), &mut *buffer) {
            Ok(n) => return Ok(n),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => {
                return Err(Error::new(Code::Io, format!("standard input cannot be read: {e}"))
                    .hint("say the text in the call itself, or name a file"));
            }
        }
    }
}

/// Everything on standard input.
pub fn read_stdin(interrupt: &AtomicBool) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 1 << 14];
    loop {
        match read(&mut buffer, interrupt)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Asks on the terminal; only `y` and `yes` mean yes.
pub fn yes(question: &str, interrupt: &AtomicBool) -> Result<bool> {
    let line = line(&format!("{question} [y/N] "), interrupt)?;
    Ok(line.eq_ignore_ascii_case(b"y") || line.eq_ignore_ascii_case(b"yes"))
}

/// Asks on the terminal for one line; empty at its end.
pub fn line(question: &str, interrupt: &AtomicBool) -> Result<Vec<u8>> {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{question}");
    let _ = err.flush();
    drop(err);
    let mut answer = Vec::new();
    let mut buffer = [0; 256];
    while !answer.contains(&b'\n') {
        match read(&mut buffer, interrupt)? {
            0 => break,
            n => answer.extend_from_slice(&buffer[..n]),
        }
    }
    let line = answer.split(|b| *b == b'\n').next().unwrap_or_default();
    Ok(line.trim_ascii().to_vec())
}

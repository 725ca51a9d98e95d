//! Reading a payload: bounded in size and in time, and never an error.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Kept of a payload; the rest is read and dropped, so that the client never writes into a closed pipe.
pub const LIMIT: usize = 32 << 20;
/// Waited for the next piece.
pub const WAIT: Duration = Duration::from_secs(5);

/// All that can be had from a pipe, up to `limit` bytes and as long as no piece takes longer than `wait`.
pub fn read(from: impl AsFd, limit: usize, wait: Duration) -> Vec<u8> {
    let fd = from.as_fd();
    let mut all = Vec::new();
    let mut buffer = [0; 1 << 16];
    let mut end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return all;
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return all,
            Err(Errno::INTR) => continue,
            // What cannot be waited for tells why when it is read.
            Ok(_) | Err(_) => {}
        }
        match rustix::io::read(fd, &mut buffer[..]) {
            Ok(0) => return all,
            Ok(n) => {
                let room = limit.saturating_sub(all.len()).min(n);
                all.extend_from_slice(&buffer[..room]);
                end = Instant::now() + wait;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bounded_in_size() {
        let (r, mut w) = std::io::pipe().expect("a pipe");
        let writer = std::thread::spawn(move || w.write_all(&vec![b'x'; 1 << 20]));
        assert_eq!(read(&r, 1000, WAIT).len(), 1000);
        writer.join().expect("joined").expect("the pipe was read to its end");
    }

    #[test]
    fn bounded_in_time() {
        let (r, mut w) = std::io::pipe().expect("a pipe");
        w.write_all(b"half").expect("written");
        // The writer stays: nobody says that it is over.
        assert_eq!(read(&r, 1000, Duration::from_millis(1)), b"half");
        drop(w);
        assert_eq!(read(&r, 1000, WAIT), b"");
    }
}

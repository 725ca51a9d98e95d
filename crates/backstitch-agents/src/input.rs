//! Reading a payload: bounded in size and in time, and never an error.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde_json::Value;

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

/// JSON as clients write it. Those in JavaScript cut texts by halves of characters and write the half that is left as an escape,
/// which stands for no character. Where they write such a text as a name or a content, U+FFFD is what arrives: so here.
///
/// # Errors
/// What is no JSON even so.
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes).or_else(|e| match mended(bytes) {
        Some(whole) => serde_json::from_slice(&whole),
        None => Err(e),
    })
}

/// The same with U+FFFD for every half of a pair; none if there was no such half.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let hex = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let mut out = Vec::with_capacity(bytes.len());
    let (mut at, mut any) = (0, false);
    while at < bytes.len() {
        let len = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.extend_from_slice(b"\\ufffd");
                (at, any) = (at + 6, true);
                continue;
            }
            // A backslash and what it escapes, which may be another one.
            _ => {
                if bytes[at] == b'\\' {
                    2
                } else {
                    1
                }
            }
        };
        let end = bytes.len().min(at + len);
        out.extend_from_slice(&bytes[at..end]);
        at = end;
    }
    any.then_some(out)
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

    #[test]
    fn halves_of_characters_cost_only_themselves() {
        let text =
            |json: &str| parse(json.as_bytes()).map(|v| v.as_str().unwrap_or_default().to_owned()).ok();
        for (json, want) in [
            (r#""plain""#, Some("plain")),
            (r#""\ud83d\ude00""#, Some("😀")),
            (r#""cut \ud83d""#, Some("cut \u{fffd}")),
            (r#""\ude00 \uD83D\ud83d\ude00\ud83d""#, Some("\u{fffd} \u{fffd}😀\u{fffd}")),
            (r#""no escape: \\ud83d, one: \ud83d""#, Some("no escape: \\ud83d, one: \u{fffd}")),
            (r#""\ud8""#, None),
            (r#""\ud83d"#, None),
            (r#""\ud83d" more"#, None),
        ] {
            assert_eq!(text(json).as_deref(), want, "{json}");
        }
    }
}

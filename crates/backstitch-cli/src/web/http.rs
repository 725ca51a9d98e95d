//! HTTP/1.1 for one page: a request to a connection, and bounds on everything that a stranger can send or leave out.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// The longest head, and the most lines in it.
const LONGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// The longest body.
const LONGEST_BODY: u64 = 1 << 20;
/// So long may a request, and so long the taking of an answer last.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is still coming after the answer is read and thrown away for so long, or the answer would be lost with it.
const LINGER: Duration = Duration::from_secs(1);
/// How often it is looked whether all ends.
const SLICE: Duration = Duration::from_millis(100);

/// A connection whose request is being read.
pub struct Connection<'a> {
    stream: TcpStream,
    ended: &'a AtomicBool,
    until: Instant,
    /// What was read behind the head.
    ahead: Vec<u8>,
}

/// What stands before the body.
#[derive(Debug, Default)]
pub struct Head {
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
}

/// Why there is no request, as a status; `None`: there is nobody to tell it to.
#[derive(Debug, PartialEq, Eq)]
pub struct Bad(pub Option<u16>);

impl Head {
    /// A header. Said twice, it is not clear what holds: it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all =
            self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = all.next();
        if all.next().is_some() { Some("") } else { first }
    }

    /// The length of the body: said once, in digits, and not in pieces.
    fn length(&self) -> Result<u64, Bad> {
        if self.get("Transfer-Encoding").is_some() {
            return Err(Bad(Some(411)));
        }
        let Some(text) = self.get("Content-Length") else { return Ok(0) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(n) if digits && n <= LONGEST_BODY => Ok(n),
            _ if digits => Err(Bad(Some(413))),
            _ => Err(Bad(Some(400))),
        }
    }
}

/// A head in these bytes and its length; `None`: more is to come.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Bad> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Bad(Some(431))),
        Err(_) => return Err(Bad(Some(400))),
    };
    let text = |t: Option<&str>| t.unwrap_or_default().to_owned();
    let headers =
        request.headers.iter().map(|h| (h.name.to_owned(), String::from_utf8_lossy(h.value).into_owned()));
    let head = Head { method: text(request.method), target: text(request.path), headers: headers.collect() };
    Ok(Some((head, length)))
}

impl<'a> Connection<'a> {
    /// Of a client that has just come; `ended` is set when nobody is answered any more.
    pub fn new(stream: TcpStream, ended: &'a AtomicBool) -> io::Result<Connection<'a>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, ended, until: Instant::now() + PATIENCE, ahead: Vec::new() })
    }

    /// Reads what is there, and waits for it as long as there is patience. `None`: nothing comes any more.
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        while !self.ended.load(Ordering::Relaxed) && Instant::now() < self.until {
            match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(n) => return Some(n),
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// The head.
    pub fn head(&mut self) -> Result<Head, Bad> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            if let Some((head, length)) = parse(&bytes)? {
                self.ahead = bytes.split_off(length);
                return Ok(head);
            }
            if bytes.len() >= LONGEST_HEAD {
                return Err(Bad(Some(431)));
            }
            match self.read(&mut buffer) {
                Some(n) => bytes.extend_from_slice(&buffer[..n]),
                None => return Err(Bad((!bytes.is_empty()).then_some(408))),
            }
        }
    }

    /// The body that the head announces.
    pub fn body(&mut self, head: &Head) -> Result<Vec<u8>, Bad> {
        let length = usize::try_from(head.length()?).map_err(|_| Bad(Some(413)))?;
        let mut body = std::mem::take(&mut self.ahead);
        let waits = head.get("Expect").is_some_and(|e| e.eq_ignore_ascii_case("100-continue"));
        if waits && body.len() < length {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| Bad(None))?;
        }
        let mut buffer = [0; 1 << 14];
        while body.len() < length {
            let n = self.read(&mut buffer).ok_or(Bad(Some(408)))?;
            body.extend_from_slice(&buffer[..n]);
        }
        // Nobody asks twice in one connection.
        body.truncate(length);
        Ok(body)
    }

    /// Answers, and ends the connection.
    pub fn answer(mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            reason(status),
            body.len()
        );
        headers.iter().for_each(|(n, v)| head.push_str(&format!("{n}: {v}\r\n")));
        head.push_str("\r\n");
        // Who does not wait for the answer does not get it.
        let sent = self.stream.write_all(head.as_bytes()).and_then(|()| self.stream.write_all(body));
        if sent.is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        // A connection that is closed with bytes unread is reset, and takes the answer with it.
        self.until = Instant::now() + LINGER;
        let mut buffer = [0; 1 << 14];
        while self.read(&mut buffer).is_some() {}
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        parse(text.as_bytes()).expect("a head").expect("the whole head").0
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let text = "POST /call/list?x HTTP/1.1\r\nHost: a\r\nHOST: b\r\nContent-Length: 3\r\n\r\nabc";
        for n in 0..text.len() - 3 {
            assert!(parse(&text.as_bytes()[..n]).expect("no fault").is_none(), "{n}");
        }
        let (h, n) = parse(text.as_bytes()).expect("no fault").expect("whole");
        assert_eq!((h.method.as_str(), h.target.as_str(), &text[n..]), ("POST", "/call/list?x", "abc"));
        assert_eq!((h.get("host"), h.get("content-length"), h.get("origin")), (Some(""), Some("3"), None));
        for bad in
            ["nonsense\r\n\r\n", "GET / HTTP/9\r\n\r\n", "GET / HTTP/1.1\r\na b: c\r\n\r\n", "\x16\x03\x01"]
        {
            assert_eq!(parse(bad.as_bytes()).err(), Some(Bad(Some(400))), "{bad:?}");
        }
        let many = "x: y\r\n".repeat(MOST_HEADERS + 1);
        assert_eq!(parse(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).err(), Some(Bad(Some(431))));
    }

    #[test]
    fn a_body_is_as_long_as_one_number_says() {
        let of = |lines: &str| head(&format!("POST / HTTP/1.1\r\n{lines}\r\n")).length();
        assert_eq!(of(""), Ok(0));
        assert_eq!(of("Content-Length: 12\r\n"), Ok(12));
        assert_eq!(of("Content-Length: 1048577\r\n"), Err(Bad(Some(413))));
        assert_eq!(of("Content-Length: 99999999999999999999999\r\n"), Err(Bad(Some(413))));
        for odd in ["-1", "+1", "1 2", "0x1", ""] {
            assert_eq!(of(&format!("Content-Length: {odd}\r\n")), Err(Bad(Some(400))), "{odd:?}");
        }
        assert_eq!(of("Content-Length: 1\r\nContent-Length: 2\r\n"), Err(Bad(Some(400))));
        assert_eq!(of("Transfer-Encoding: chunked\r\n"), Err(Bad(Some(411))));
    }
}

//! `backstitch ui`: a page on this machine, for reviewing what agents did.
//!
//! [`http`] reads requests and bounds what a stranger can send, [`guard`] decides who may ask (a token nobody can guess, and only
//! this host's own page), [`calls`] answers with the methods of `backstitch serve`, [`page`] is the one document. What changes the
//! folder is planned first and applied by its digest.

mod calls;
mod guard;
mod http;
mod page;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backstitch::error::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use self::{
    calls::Calls,
    guard::{Guard, Refused},
    http::{Bad, Connection, Head},
};
use crate::{context::Context, table};

/// Connections at the same time. More wait in the system's queue.
const MOST: usize = 64;
/// How often signals are looked at.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Serves until a signal arrives.
pub fn run(cx: &Context, a: &table::Web) -> Result<u8> {
    let calls = Calls::new(cx)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, a.port.unwrap_or(0)));
    let failed = |e: std::io::Error| {
        Error::new(Code::Io, format!("{address} cannot be listened to: {e}"))
            .hint("name another port with --port, or leave it out")
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let guard = Guard::new(port)?;
    let url = guard.url();
    if cx.ui.json {
        cx.ui.document(json!({"url": url, "port": port}))?;
    } else {
        cx.ui.line(&url)?;
        cx.ui.note("Open this address in a browser of this machine. Who knows it may change the folder. Ctrl-C ends it.");
    }
    cx.ui.finish()?;
    let ended = Arc::clone(&cx.interrupt);
    let open = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        while !ended.load(Ordering::Relaxed) {
            if open.load(Ordering::Relaxed) >= MOST {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            // A connection that broke is nobody's concern but its owner's.
            let Ok((stream, _)) = listener.accept() else {
                let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&SLICE));
                continue;
            };
            let Ok(connection) = Connection::new(stream, &ended) else { continue };
            open.fetch_add(1, Ordering::Relaxed);
            let (guard, calls, open) = (&guard, &calls, &open);
            let work = move || {
                serve(guard, calls, connection);
                open.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("page".to_owned()).spawn_scoped(scope, work).is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    Ok(0)
}

/// What every answer says to the browser.
const HEADERS: &[(&str, &str)] = &[
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
];

/// An answer: status, kind of content, policy, content.
type Answer = (u16, &'static str, String, Vec<u8>);

fn json_answer(status: u16, value: &Value) -> Answer {
    (status, "application/json", page::NOTHING.to_owned(), value.to_string().into_bytes())
}

fn serve(guard: &Guard, calls: &Calls, mut connection: Connection<'_>) {
    let answer = match connection.head() {
        Ok(head) => answer(guard, calls, &mut connection, &head),
        Err(bad) => refused(bad),
    };
    let Some((status, kind, policy, body)) = answer else { return };
    let own = [("Content-Type", kind), ("Content-Security-Policy", policy.as_str())];
    let headers: Vec<(&str, &str)> = HEADERS.iter().copied().chain(own).collect();
    connection.answer(status, &headers, &body);
}

/// What is no request is told so, where somebody is there to be told.
fn refused(Bad(status): Bad) -> Option<Answer> {
    let status = status?;
    let why = match status {
        408 => "the request did not come to its end in time",
        411 => "the body's length is not said",
        413 => "the body is too long",
        431 => "the head is too long",
        _ => "this is no request",
    };
    Some(json_answer(status, &refusal("usage", why)))
}

/// Who may not ask is refused before anything else of the request is read.
fn answer(guard: &Guard, calls: &Calls, connection: &mut Connection<'_>, head: &Head) -> Option<Answer> {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let asked = guard::Asked {
        host: head.get("Host"),
        origin: head.get("Origin"),
        header: head.get(guard::HEADER),
        query,
        is_page: head.method == "GET" && path == "/",
    };
    if let Err(Refused(why)) = guard.admit(&asked) {
        return Some(json_answer(403, &refusal("refused", why)));
    }
    if asked.is_page {
        return Some(match page::document() {
            Ok((policy, document)) => (200, "text/html; charset=utf-8", policy, document.into_bytes()),
            Err(e) => json_answer(500, &crate::problem::document(&e)),
        });
    }
    let Some(method) = path.strip_prefix("/call/") else {
        return Some(json_answer(404, &refusal("no-such-path", "there is only the page, and /call/METHOD")));
    };
    if head.method != "POST" {
        return Some(json_answer(405, &refusal("usage", "methods are called with POST")));
    }
    if head.get("Content-Type").is_none_or(|t| t.split(';').next() != Some("application/json")) {
        return Some(json_answer(415, &refusal("usage", "the body is application/json")));
    }
    let body = match connection.body(head) {
        Ok(body) => body,
        Err(bad) => return refused(bad),
    };
    let (status, value) = calls.call(method, &body);
    Some(json_answer(status, &value))
}

fn refusal(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "hint": "open the address that `backstitch ui` printed"}})
}

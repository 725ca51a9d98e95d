//! `backstitch ui`: a page on this machine, for reviewing what agents did.
//!
//! [`guard`] decides who may ask (a token nobody can guess, and only this host's own page), [`calls`] answers with the methods
//! of `backstitch serve`, [`page`] is the one document. What changes the folder is planned first and applied by its digest.

mod calls;
mod guard;
mod page;

use std::{
    io::Read,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backstitch::error::{Code, Error, Result};
use serde_json::{Value, json};
use tiny_http::{Header, Method, Request, Response, Server};

use self::{
    calls::Calls,
    guard::{Guard, Refused},
};
use crate::{context::Context, table};

/// Requests that are answered at the same time.
const WORKERS: usize = 4;
/// The longest body of a request, in bytes.
const LONGEST: u64 = 1 << 20;
/// How often signals are looked at.
const SLICE: Duration = Duration::from_millis(100);

/// Serves until a signal arrives.
pub fn run(cx: &Context, a: &table::Web) -> Result<u8> {
    let calls = Calls::new(cx)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, a.port.unwrap_or(0)));
    let server = Server::http(address).map_err(|e| {
        Error::new(Code::Io, format!("{address} cannot be listened to: {e}"))
            .hint("name another port with --port, or leave it out")
    })?;
    let port = server.server_addr().to_ip().map_or(0, |a| a.port());
    let guard = Guard::new(port)?;
    let url = guard.url();
    if cx.ui.json {
        cx.ui.document(json!({"url": url, "port": port}))?;
    } else {
        cx.ui.line(&url)?;
        cx.ui.note("Open this address in a browser of this machine. Who knows it may change the folder. Ctrl-C ends it.");
    }
    cx.ui.finish()?;
    let (ended, all) = (AtomicBool::new(false), Arc::new((guard, calls)));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    // A connection that broke is nobody's concern but its owner's.
                    let Ok(request) = server.recv() else { continue };
                    answer(&all.0, &all.1, request);
                }
            });
        }
        while !cx.interrupt.load(Ordering::Relaxed) {
            std::thread::sleep(SLICE);
        }
        ended.store(true, Ordering::Relaxed);
        (0..WORKERS).for_each(|_| server.unblock());
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

fn respond(request: Request, status: u16, kind: &str, policy: &str, body: Vec<u8>) {
    let mut response = Response::from_data(body).with_status_code(status);
    let own = [("Content-Type", kind), ("Content-Security-Policy", policy)];
    for (name, value) in HEADERS.iter().copied().chain(own) {
        if let Ok(h) = Header::from_bytes(name, value) {
            response.add_header(h);
        }
    }
    // Who does not wait for the answer does not get it.
    let _ = request.respond(response);
}

fn respond_json(request: Request, status: u16, value: &Value) {
    respond(request, status, "application/json", page::NOTHING, value.to_string().into_bytes());
}

fn answer(guard: &Guard, calls: &Calls, mut request: Request) {
    let header = |name: &'static str| {
        let mut all = request.headers().iter().filter(|h| h.field.equiv(name)).map(|h| h.value.as_str());
        let first = all.next();
        // Said twice, it is not clear what holds.
        if all.next().is_some() { Some("") } else { first }
    };
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let asked = guard::Asked {
        host: header("Host"),
        origin: header("Origin"),
        header: header(guard::HEADER),
        query,
        is_page: *request.method() == Method::Get && path == "/",
    };
    if let Err(Refused(why)) = guard.admit(&asked) {
        return respond_json(request, 403, &refusal("refused", why));
    }
    if asked.is_page {
        let (policy, document) = match page::document() {
            Ok(made) => made,
            Err(e) => return respond_json(request, 500, &crate::problem::document(&e)),
        };
        return respond(request, 200, "text/html; charset=utf-8", &policy, document.into_bytes());
    }
    let Some(method) = path.strip_prefix("/call/").map(str::to_owned) else {
        return respond_json(
            request,
            404,
            &refusal("no-such-path", "there is only the page, and /call/METHOD"),
        );
    };
    if *request.method() != Method::Post {
        return respond_json(request, 405, &refusal("usage", "methods are called with POST"));
    }
    if header("Content-Type").is_none_or(|t| t.split(';').next() != Some("application/json")) {
        return respond_json(request, 415, &refusal("usage", "the body is application/json"));
    }
    let mut body = Vec::new();
    if request.as_reader().take(LONGEST + 1).read_to_end(&mut body).is_err() {
        return respond_json(request, 400, &refusal("usage", "the body ended too early"));
    }
    if body.len() as u64 > LONGEST {
        return respond_json(request, 413, &refusal("usage", "the body is too long"));
    }
    let (status, value) = calls.call(&method, &body);
    respond_json(request, status, &value);
}

fn refusal(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "hint": "open the address that `backstitch ui` printed"}})
}

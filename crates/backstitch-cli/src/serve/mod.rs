//! `backstitch serve`: JSON-RPC 2.0, one message a line, on standard input and output.
//!
//! [`lines`] cuts the input, [`message`] reads it, [`method`] is the table (made from the command line's), [`server`] answers,
//! [`lanes`] is where calls run, [`outbox`] is the only writer. One rule keeps it right: calls that write run one after
//! another for each workspace, in the order in which they came; calls that only read run beside them, and so does the capture of
//! a turn that takes long ([`beside`]).

mod beside;
pub mod call;
pub mod calls;
mod feed;
pub mod lanes;
pub mod lines;
pub mod message;
pub mod method;
pub mod outbox;
pub mod page;
pub mod plans;
pub mod schema;
mod server;
mod special;
mod turns;

use std::sync::Arc;

use backstitch::error::{Code, Result};

use self::{
    lines::{Line, Lines},
    message::Reply,
    outbox::Outbox,
    server::Server,
};
use crate::context::Context;

/// The longest message, in bytes.
pub const LONGEST: usize = 8 << 20;

/// Serves until the input ends, `shutdown` is called or a signal arrives. Calls that were taken on are carried out.
pub fn run(cx: &Context) -> Result<u8> {
    let outbox = Arc::new(Outbox::start(std::io::stdout())?);
    let server = Arc::new(Server::new(cx, Arc::clone(&outbox))?);
    let code = read(cx, &outbox, |line| server.take(line));
    if code == Code::Interrupted.exit() {
        server.interrupt_all();
    }
    server.finish();
    outbox.close();
    Ok(code)
}

/// Reads messages until the input ends, a signal arrives, or no more are wanted.
pub fn read(cx: &Context, outbox: &Arc<Outbox>, mut take: impl FnMut(&[u8]) -> bool) -> u8 {
    let mut lines = Lines::new(&cx.interrupt);
    loop {
        match lines.next() {
            Line::Text(text) if take(&text) => {}
            Line::Text(_) | Line::End => return 0,
            Line::TooLong(bytes) => Reply::anonymous(outbox).fault(message::too_long(bytes)),
            Line::Interrupted => return Code::Interrupted.exit(),
        }
    }
}

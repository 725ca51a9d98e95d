//! `backstitch serve`: JSON-RPC 2.0, one message a line, on standard input and output.
//!
//! [`lines`] cuts the input, [`message`] reads it, [`method`] is the table (made from the command line's), [`server`] answers,
//! [`lanes`] is where calls run, [`outbox`] is the only writer. One rule keeps it right: calls that write run one after
//! another for each workspace, in the order in which they came; calls that only read run beside them.

mod call;
mod feed;
mod lanes;
mod lines;
mod message;
pub mod method;
mod outbox;
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
    let mut lines = Lines::new(&cx.interrupt);
    let code = loop {
        match lines.next() {
            Line::Text(text) => {
                if !server.take(&text) {
                    break 0;
                }
            }
            Line::TooLong(bytes) => Reply::anonymous(&outbox).fault(message::too_long(bytes)),
            Line::End => break 0,
            Line::Interrupted => {
                server.interrupt_all();
                break Code::Interrupted.exit();
            }
        }
    };
    server.finish();
    outbox.close();
    Ok(code)
}

//! The picker: what `rewind` without an argument, and `backstitch` alone, show on a terminal.
//!
//! [`timeline`] makes the list out of rows, [`model`] is what keys and answers do to the state (pure; [`value`] is what passes
//! between it and the rest), [`view`] draws it,
//! [`screen`] is the terminal, [`plain`] the same as numbered questions, for screen readers and terminals without a cursor,
//! and [`work`] is all that touches the folder: calls of the engine, and nothing else. A plan is shown before anything
//! happens, and carried out by its digest.

mod keys;
mod model;
mod plain;
mod screen;
mod timeline;
mod value;
mod view;
mod work;

use std::io::{self, IsTerminal};

use backstitch::{
    error::{Code, Error, Result},
    rewind::Options,
    workspace::Workspace,
};

use self::work::Desk;
use crate::{command::restore, context::Context};

/// How it was called.
pub struct Start {
    /// What a rewind, a revert or a restore is told beside its target.
    pub options: Options,
    /// Numbered questions, whatever the terminal can do.
    pub plain: bool,
    /// Choosing nothing is no failure.
    pub browse: bool,
}

/// Lets a person choose what is taken back. Ends with what the last change ended with.
///
/// # Errors
/// `interrupted` where nothing was changed, unless it was only to be looked at.
pub fn run(cx: &Context, ws: &Workspace, start: Start) -> Result<u8> {
    // Damaged rows are named, and the others shown.
    cx.rows(ws)?;
    let plain = start.plain || wants_plain(ws.settings().word("picker"));
    let desk = Desk::new(cx, ws, start.options);
    let done = if plain { plain::run(cx, &desk)? } else { screen::run(cx, &desk)? };
    let Some(last) = done.last() else {
        if start.browse {
            return Ok(0);
        }
        return Err(Error::new(Code::Interrupted, "nothing was chosen; nothing was changed")
            .hint("`backstitch rewind N` takes back turn N and all after it"));
    };
    let code = restore::code(last);
    // The screen is gone; what was done stays readable.
    if !plain {
        done.iter().try_for_each(|out| restore::finish(&cx.ui, out, "undo").map(|_| ()))?;
    }
    Ok(code)
}

/// Questions instead of a screen: as set, or where a cursor cannot be moved.
fn wants_plain(setting: &str) -> bool {
    match setting {
        "plain" => true,
        "screen" => false,
        _ => {
            let term = std::env::var_os("TERM").filter(|t| !t.is_empty());
            term.is_none_or(|t| t == "dumb") || !io::stdout().is_terminal()
        }
    }
}

//! Carrying out one command in this process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
};

use backstitch::{
    error::{Code, Result},
    workspace::Surroundings,
};
use serde_json::{Map, Value};

use super::message::{Fault, code};
use crate::{
    command,
    context::{Context, Tick},
    table::{Command, Global},
    ui::Ui,
};

/// What a call needs beside its words.
pub struct Around {
    /// Options of every command, with the workspace's root in them.
    pub global: Global,
    /// The environment, with the options applied.
    pub surroundings: Surroundings,
    /// Set to end it.
    pub interrupt: Arc<AtomicBool>,
    /// Told how far it is.
    pub tick: Box<Tick>,
}

impl Around {
    /// The same as for a command that was typed with `--json`, but its document is kept.
    pub fn context(self) -> Context {
        Context::of(self.global, Ui::captured(), self.surroundings, self.interrupt, self.tick)
    }
}

/// Runs it; the result is its JSON document, with `exit` where it would end with another code than 0.
pub fn run(around: Around, command: Command) -> Result<Value, Fault> {
    guarded(|| {
        let cx = around.context();
        let exit = command::run(&cx, command)?;
        Ok(document(&cx, exit))
    })
}

/// The document that a command left.
pub fn document(cx: &Context, exit: u8) -> Value {
    let mut document = cx.ui.take_document().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(m) = document.as_object_mut().filter(|_| exit != 0) {
        m.insert("exit".to_owned(), exit.into());
    }
    document
}

/// A fault of this program ends one call, not the server.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Fault::from),
        Err(_) => Err(Fault::new(
            code::INTERNAL,
            Code::Failed,
            "a fault of backstitch; its standard error says more",
        )
        .hint("what was begun is put right by the next call")),
    }
}

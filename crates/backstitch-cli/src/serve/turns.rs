//! Captures of turns: told at once, waited for by whoever wants to.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backstitch::{
    error::{Code, Error, Result},
    record::Kind,
    turn::Begun,
    view,
    workspace::{Control, Workspace},
};
use serde_json::{Value, json};

use super::{
    call::Around,
    message::{Fault, Reply, code},
};

/// A capture of another process is waited for this long.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Turns that are remembered after their capture has ended.
const REMEMBERED: usize = 64;

/// Which turn is meant.
#[derive(Clone, Debug)]
pub struct Name {
    /// The workspace.
    pub root: PathBuf,
    /// The session; `None`: the only one.
    pub session: Option<String>,
    /// The host's key.
    pub key: Option<String>,
    /// Id of the row.
    pub id: Option<String>,
}

struct Capture {
    token: u64,
    name: Name,
    /// Known once the row has an id.
    told: Option<Value>,
    /// Calls of `turn/begin` that wait for the id.
    begins: Vec<Reply>,
    /// Calls of `turn/wait`.
    waits: Vec<Reply>,
    /// It goes on beside the lane of its workspace.
    beside: bool,
    /// It has ended: with a row, or with this error.
    ended: Option<Option<Value>>,
}

impl Capture {
    fn is(&self, name: &Name) -> bool {
        self.name.root == name.root
            && name.session.as_ref().is_none_or(|s| self.name.session.as_ref().is_none_or(|own| own == s))
            && name.key.as_ref().is_none_or(|k| self.name.key.as_ref() == Some(k))
            && name.id.as_ref().is_none_or(|i| self.name.id.as_ref() == Some(i))
    }
}

/// All captures of this process.
#[derive(Default)]
pub struct Turns {
    state: Mutex<State>,
    /// One that went on beside its lane has ended.
    end: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    captures: VecDeque<Capture>,
}

impl State {
    fn captures_in(&self, root: &Path) -> bool {
        self.captures.iter().any(|c| c.beside && c.ended.is_none() && c.name.root == root)
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn is to begin. `None`: the same one is being captured already, and the call is answered with it.
    pub fn begin(&self, name: Name, reply: Reply) -> Option<u64> {
        let mut held = self.lock();
        let same = held.captures.iter_mut().find(|c| c.ended.is_none() && name.key.is_some() && c.is(&name));
        if let Some(c) = same {
            match c.told.clone() {
                Some(told) => {
                    drop(held);
                    reply.result(told);
                }
                None => c.begins.push(reply),
            }
            return None;
        }
        held.next += 1;
        let token = held.next;
        held.captures.push_back(Capture {
            token,
            name,
            told: None,
            begins: vec![reply],
            waits: Vec::new(),
            beside: false,
            ended: None,
        });
        Some(token)
    }

    /// The row has an id: whoever began the turn is answered.
    pub fn told(&self, token: u64, session: &str, begun: &Begun) {
        let told =
            json!({"id": begun.id, "turn": begun.turn, "session": session, "pending": !begun.recorded});
        let mut held = self.lock();
        let Some(c) = held.captures.iter_mut().find(|c| c.token == token) else { return };
        c.name.id = Some(begun.id.clone());
        c.name.session = Some(session.to_owned());
        c.told = Some(told.clone());
        let replies = std::mem::take(&mut c.begins);
        drop(held);
        replies.into_iter().for_each(|r| r.result(told.clone()));
    }

    /// The capture has ended: whoever waits is answered.
    pub fn ended(&self, token: u64, outcome: Result<Value, Fault>) {
        let mut held = self.lock();
        let Some(c) = held.captures.iter_mut().find(|c| c.token == token) else { return };
        let outcome = outcome.map_err(|f| f.document());
        c.ended = Some(outcome.as_ref().err().cloned());
        self.end.notify_all();
        let mut replies = std::mem::take(&mut c.begins);
        replies.append(&mut c.waits);
        while held.captures.iter().filter(|c| c.ended.is_some()).count() > REMEMBERED {
            let oldest = held.captures.iter().position(|c| c.ended.is_some());
            oldest.and_then(|at| held.captures.remove(at));
        }
        drop(held);
        for reply in replies {
            match outcome.clone() {
                Ok(v) => reply.result(v),
                Err(e) => reply.error(e),
            }
        }
    }

    /// A capture goes on beside its lane, or does so no longer.
    pub fn goes_on(&self, token: u64, beside: bool) {
        if let Some(c) = self.lock().captures.iter_mut().find(|c| c.token == token) {
            c.beside = beside;
        }
    }

    /// Captures go on beside the lane of this workspace.
    pub fn captures_in(&self, root: &Path) -> bool {
        self.lock().captures_in(root)
    }

    /// Waits until none does.
    pub fn wait_for_captures(&self, root: &Path, interrupt: &AtomicBool) -> Result<(), Fault> {
        const SLICE: Duration = Duration::from_millis(50);
        let mut held = self.lock();
        while held.captures_in(root) {
            if interrupt.load(Ordering::Relaxed) {
                let e = Error::new(Code::Interrupted, "cancelled before it began; nothing was changed");
                return Err(e.into());
            }
            held = self.end.wait_timeout(held, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Waits for a turn. The call comes back where its capture does not run: the store knows.
    pub fn wait(&self, name: &Name, reply: Reply) -> Option<Reply> {
        let mut held = self.lock();
        match held.captures.iter_mut().rev().find(|c| c.is(name)) {
            Some(Capture { ended: None, waits, .. }) => {
                waits.push(reply);
                None
            }
            Some(Capture { ended: Some(Some(error)), .. }) => {
                let error = error.clone();
                drop(held);
                reply.error(error);
                None
            }
            _ => Some(reply),
        }
    }

    /// Ends the waiting of the call with this id.
    pub fn cancel(&self, id: &Value) {
        let mut held = self.lock();
        let mut gone = Vec::new();
        for c in &mut held.captures {
            gone.extend(c.waits.extract_if(.., |r| r.id() == Some(id)));
        }
        drop(held);
        for reply in gone {
            reply.fault(
                Fault::new(code::CANCELLED, Code::Interrupted, "cancelled")
                    .hint("the capture goes on; ask again"),
            );
        }
    }
}

/// The `prompt` row of a turn as the store has it, once no other process is about to fill it.
pub fn look_up(name: &Name, around: Around) -> Result<Value> {
    let interrupt = Arc::clone(&around.interrupt);
    let ws = Workspace::open(&name.root, around.surroundings)?;
    let mut row = Value::Null;
    if ws.has_store() {
        let rows = ws.rows()?;
        let found = rows.all.iter().rev().find(|c| {
            let r = &c.record;
            r.kind == Kind::Prompt
                && name.session.as_ref().is_none_or(|s| r.session.as_ref() == Some(s))
                && name.key.as_ref().is_none_or(|k| r.turn_key.as_ref() == Some(k))
                && name.id.as_ref().is_none_or(|i| r.id == *i)
        });
        if let Some(c) = found {
            let control = Control { interrupt: &interrupt, ..Control::default() };
            let c = match c.record.in_flight() {
                true => ws.turn_wait(&c.record.id, LONGEST_WAIT, &control)?,
                false => c.clone(),
            };
            row = view::checkpoint(&ws, &c);
        }
    }
    Ok(json!({"checkpoint": row, "warnings": []}))
}

/// The workspace of a name.
pub fn name_of(root: &Path, session: Option<String>, key: Option<String>, id: Option<String>) -> Name {
    Name { root: root.to_owned(), session, key, id }
}

//! Answering calls.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use backstitch::{
    error::{Code, Error, Result},
    session::{Session, SessionRecord},
    view,
    workspace::{Surroundings, Workspace},
};
use clap::Parser;
use serde_json::{Map, Value, json};

use super::{
    LONGEST,
    call::{self, Around},
    calls::{self, After, Calls, crowded},
    feed::Feed,
    lanes::Lane,
    message::{self, Call, Fault, Reply, code},
    method::{self, Method, Methods, Step},
    outbox::Outbox,
    plans::Plans,
    schema,
    special::{self, Special},
    turns::{self, Turns},
};
use crate::{
    context::{self, Context, Tick},
    problem,
    table::{self, Cli, Global},
};

/// Version of the protocol; a change that breaks hosts changes it.
const PROTOCOL: u64 = 1;
/// One host's connection.
pub struct Server {
    outbox: Arc<Outbox>,
    calls: Arc<Calls>,
    methods: Methods,
    surroundings: Surroundings,
    /// The folder that the process was started in or for.
    start: PathBuf,
    folder: Mutex<PathBuf>,
    session: Mutex<Option<String>>,
    initialized: AtomicBool,
    interval: AtomicU64,
    pub(super) turns: Turns,
    plans: Plans,
    /// Sessions that were at work on this connection.
    pub(super) opened: Mutex<HashSet<(PathBuf, String)>>,
    feed: Feed,
    farewells: Mutex<Vec<Reply>>,
}

/// Where a call takes place.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) global: Global,
    pub(super) surroundings: Surroundings,
    pub(super) root: PathBuf,
}

impl Place {
    fn lane(&self, reads: bool) -> Lane {
        if reads { Lane::Reading } else { Lane::Of(self.root.clone()) }
    }
}

pub(super) fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Serves the folder that the context names, in its surroundings.
    pub fn new(cx: &Context, outbox: Arc<Outbox>) -> Result<Server> {
        let start = std::path::absolute(&cx.folder).map_err(|e| Error::io(&cx.folder, e))?;
        // Relative paths of calls are relative to the workspace, never to wherever this process was started.
        std::env::set_current_dir("/").map_err(|e| Error::io(Path::new("/"), e))?;
        Ok(Server {
            feed: Feed::new(Arc::clone(&outbox)),
            outbox,
            calls: Arc::default(),
            methods: method::methods(),
            session: Mutex::new(cx.surroundings.session.clone()),
            surroundings: cx.surroundings.clone(),
            folder: Mutex::new(start.clone()),
            start,
            initialized: AtomicBool::new(false),
            interval: AtomicU64::new(250),
            turns: Turns::default(),
            plans: Plans::default(),
            opened: Mutex::default(),
            farewells: Mutex::default(),
        })
    }

    /// Takes a message. `false`: no more are wanted.
    pub fn take(self: &Arc<Self>, line: &[u8]) -> bool {
        for call in message::read(line, &self.outbox) {
            self.call(call, line.len());
        }
        held(&self.farewells).is_empty()
    }

    /// A signal arrived.
    pub fn interrupt_all(&self) {
        self.calls.interrupt_all();
    }

    /// Waits for what was begun; then `shutdown` is answered.
    pub fn finish(&self) {
        if self.outbox.is_broken() {
            // Nobody reads the answers; what is recorded or put back all the same goes on.
            self.calls.interrupt_reading();
        }
        self.calls.finish();
        let farewells = std::mem::take(&mut *held(&self.farewells));
        farewells.into_iter().for_each(|r| r.result(json!({})));
    }

    fn call(self: &Arc<Self>, call: Call, bytes: usize) {
        let Call { method, params, reply } = call;
        if method == "$/cancelRequest" {
            self.cancel(params.get("id").unwrap_or(&Value::Null));
            return reply.result(Value::Null);
        }
        if method == "rpc.discover" {
            return reply.result(schema::document(&self.methods));
        }
        let Some(m) = self.methods.get(&method) else {
            return reply.fault(
                Fault::new(code::METHOD, Code::Usage, format!("there is no method {:?}", cut(&method)))
                    .hint("docs/reference/rpc.md lists all methods"),
            );
        };
        if !self.initialized.load(Ordering::Relaxed) && method != "initialize" {
            return reply.fault(
                Fault::new(code::NOT_INITIALIZED, Code::Usage, format!("{method} came before `initialize`"))
                    .hint("call `initialize` first"),
            );
        }
        if m.special {
            let mut params = params;
            if method == "initialize" {
                // Hosts and servers of different ages must be able to meet.
                params.retain(|name, _| m.has(name));
            }
            match self.ready::<Special>(m, params) {
                Ok((what, place)) => self.special(what, place, reply, bytes),
                Err(e) => reply.fault(e.into()),
            }
            return;
        }
        let params = match self.plans.params(m, params) {
            Ok(params) => params,
            Err(e) => return reply.fault(e.into()),
        };
        let whole = self.methods.get(&m.words.join("/")).unwrap_or(m);
        let (command, place) = match self.ready::<Cli>(whole, params.clone()) {
            Ok(ready) => ready,
            Err(e) => return reply.fault(e.into()),
        };
        let command = match command {
            table::Command::Turn(table::Turn::Begin(a)) if !a.wait => {
                return self.turn_begin(a, place, reply, bytes);
            }
            table::Command::Tool(tool) => return self.tool(tool, place, reply, bytes),
            command => command,
        };
        let plan = (m.step == Step::Plan).then(|| (m.command(), params.clone()));
        let server = Arc::clone(self);
        let reads = whole.reads(&params);
        self.run(place.lane(reads), place, reply, bytes, move |around, root| {
            if !reads {
                server.turns.wait_for_captures(root, &around.interrupt)?;
            }
            let result = call::run(around, command);
            if let (Some((command, params)), Ok(v)) = (plan, &result) {
                server.plans.remember(command, params, v, root);
            }
            result
        });
    }

    /// Carries out work in its lane, and answers.
    pub(super) fn run(
        self: &Arc<Self>,
        lane: Lane,
        place: Place,
        reply: Reply,
        bytes: usize,
        work: impl FnOnce(Around, &Path) -> Result<Value, Fault> + Send + 'static,
    ) {
        let id = reply.id().cloned();
        let slot = Arc::new(Mutex::new(Some(reply)));
        let own = Arc::clone(&slot);
        let taken = self.enqueue(lane, place, id, bytes, move |outcome| {
            let result = outcome.and_then(|(around, root)| work(around, &root));
            Box::new(move || {
                if let Some(reply) = held(&own).take() {
                    reply.settle(result);
                }
            })
        });
        if !taken && let Some(reply) = held(&slot).take() {
            reply.fault(crowded());
        }
    }

    /// Puts work into the lane of its workspace; what it changed is told afterwards.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        lane: Lane,
        place: Place,
        id: Option<Value>,
        bytes: usize,
        work: impl FnOnce(Result<(Around, PathBuf), Fault>) -> After + Send + 'static,
    ) -> bool {
        let Place { global, surroundings, root } = place;
        let reads = lane == Lane::Reading;
        let tick = self.ticker(id.clone());
        let server = Arc::clone(self);
        self.calls.enqueue(&lane, id, bytes, move |flag| {
            let writes = !reads && flag.is_ok();
            if writes {
                server.feed.begin(&root, &surroundings);
            }
            let around = |interrupt| Around { global, surroundings: surroundings.clone(), interrupt, tick };
            let after = work(flag.map(|flag| (around(flag), root.clone())));
            Box::new(move || {
                after();
                if writes {
                    server.feed.look(&root, &surroundings);
                }
            })
        })
    }

    fn cancel(&self, id: &Value) {
        self.calls.cancel(id);
        self.turns.cancel(id);
    }

    /// Tells the host how far a call is, now and then.
    fn ticker(&self, id: Option<Value>) -> Box<Tick> {
        let Some(id) = id else { return Box::new(|_, _, _| {}) };
        let outbox = Arc::clone(&self.outbox);
        calls::ticker(self.interval.load(Ordering::Relaxed), move |what, done, total| {
            let total = (total > 0).then_some(total);
            outbox.notify("$/progress", json!({"id": id, "what": what, "done": done, "total": total}));
        })
    }

    /// Reads the parameters, and finds the workspace that they are about.
    fn ready<C: Words>(&self, m: &Method, params: Map<String, Value>) -> Result<(C::What, Place)> {
        let words = C::read(m.argv(&params)?).map_err(|e| problem::of_words(&e))?;
        let (mut global, what) = words.parts();
        let mut surroundings = self.surroundings.clone();
        surroundings.session.clone_from(&held(&self.session));
        let surroundings = context::apply(surroundings, &global)?;
        let folder = match global.workspace.take() {
            Some(dir) => self.start.join(dir),
            None => held(&self.folder).clone(),
        };
        let root = Workspace::find_root(&folder, &surroundings)?;
        global.workspace = Some(root.clone());
        Ok((what, Place { global, surroundings, root }))
    }

    fn special(self: &Arc<Self>, what: special::Method, place: Place, reply: Reply, bytes: usize) {
        match what {
            special::Method::Initialize(a) => {
                self.interval.store(a.progress_interval, Ordering::Relaxed);
                self.initialized.store(true, Ordering::Relaxed);
                reply.result(json!({
                    "name": "backstitch",
                    "version": env!("CARGO_PKG_VERSION"),
                    "protocol": PROTOCOL,
                    "message_bytes": LONGEST,
                }));
            }
            special::Method::Shutdown => held(&self.farewells).push(reply),
            special::Method::Workspace(special::Workspace::Open) => {
                held(&self.folder).clone_from(&place.root);
                let server = Arc::clone(self);
                self.run(Lane::Reading, place, reply, bytes, move |around, root| {
                    call::guarded(|| {
                        server.feed.begin(root, &around.surroundings);
                        let cx = around.context();
                        let ws = cx.workspace()?;
                        cx.ui.document(json!({
                            "workspace": ws.root().to_string_lossy(),
                            "store": ws.store_dir().to_string_lossy(),
                            "exists": ws.has_store(),
                            "enabled": ws.disabled().is_none(),
                            "reason": ws.disabled(),
                            "scope": if ws.is_unbounded() { "touched" } else { "workspace" },
                        }))?;
                        Ok(call::document(&cx, 0))
                    })
                });
            }
            special::Method::Session(special::Session::Open(a)) => {
                let Some(session) = place.surroundings.session.clone() else {
                    let e = Error::new(Code::Usage, "which session is opened is not said")
                        .hint("name it in `session`");
                    return reply.fault(e.into());
                };
                if let Err(e) = backstitch::session::check_session(&session) {
                    return reply.fault(e.into());
                }
                *held(&self.session) = Some(session.clone());
                let fresh = held(&self.opened).insert((place.root.clone(), session.clone()));
                self.run(place.lane(false), place, reply, bytes, move |around, _| {
                    call::guarded(|| {
                        let cx = around.context();
                        open_session(&cx, &session, &a, fresh)?;
                        Ok(call::document(&cx, 0))
                    })
                });
            }
            special::Method::Turn(special::Turn::Wait(a)) => {
                let name = turns::name_of(&place.root, place.surroundings.session.clone(), a.key, a.id);
                let Some(reply) = self.turns.wait(&name, reply) else { return };
                self.run(Lane::Reading, place, reply, bytes, move |around, _| {
                    call::guarded(|| turns::look_up(&name, around))
                });
            }
        }
    }
}

/// A session is opened, and forked where it is new and has a parent. A parent that is not known here is a warning.
fn open_session(cx: &Context, id: &str, a: &special::SessionOpen, fresh: bool) -> Result<()> {
    let mut ws = cx.workspace()?;
    if fresh {
        ws.session_open(id)?;
    }
    let find = |ws: &Workspace| -> Result<Option<Session>> {
        Ok(match ws.has_store() {
            true => ws.sessions()?.into_iter().find(|s| s.record.id == id),
            false => None,
        })
    };
    let mut known = find(&ws)?;
    if let Some(parent) = a.parent.as_deref().filter(|p| known.is_none() && *p != id) {
        let rows = if ws.has_store() { cx.rows(&ws)? } else { Default::default() };
        let from = match &a.from {
            Some(name) => backstitch::names::resolve(&rows, name, Some(parent)).ok(),
            None => rows.of_session(parent).pop(),
        };
        match from {
            Some(from) => {
                ws.fork(id, from)?;
                known = find(&ws)?;
            }
            None => cx.ui.warn(&format!(
                "session {parent:?} has no such checkpoint here; {id:?} begins without a parent"
            )),
        }
    }
    let session = known.unwrap_or(Session {
        record: SessionRecord { v: 1, id: id.to_owned(), ..SessionRecord::default() },
        rows: 0,
        turns: 0,
        last_ms: 0,
        open_turn: None,
    });
    cx.ui.document(json!({"session": view::session(&session)}))
}

/// Two tables of words that are read in the same way.
trait Words: Sized {
    type What;
    fn read(argv: Vec<std::ffi::OsString>) -> std::result::Result<Self, clap::Error>;
    fn parts(self) -> (Global, Self::What);
}

impl Words for Cli {
    type What = table::Command;
    fn read(argv: Vec<std::ffi::OsString>) -> std::result::Result<Self, clap::Error> {
        Cli::try_parse_from(argv)
    }
    fn parts(self) -> (Global, table::Command) {
        (self.global, self.command)
    }
}

impl Words for Special {
    type What = special::Method;
    fn read(argv: Vec<std::ffi::OsString>) -> std::result::Result<Self, clap::Error> {
        Special::try_parse_from(argv)
    }
    fn parts(self) -> (Global, special::Method) {
        (self.global, self.method)
    }
}

/// A name that somebody sent, short enough to be told.
fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

//! Answering calls.

use std::{
    collections::{HashSet, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
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
    feed::Feed,
    lanes::{Lane, Lanes},
    message::{self, Call, Fault, Reply, code},
    method::{self, Method, Methods, Step},
    outbox::Outbox,
    special::{self, Special},
    turns::{self, Turns},
};
use crate::{
    command::turn,
    context::{self, Context, Tick},
    problem,
    table::{self, Cli, Global},
};

/// Version of the protocol; a change that breaks hosts changes it.
const PROTOCOL: u64 = 1;
/// Plans that are remembered.
const PLANS: usize = 64;

/// Commands that change the work tree only by the digest of a plan (SEMANTICS 20).
const PLANNED: &[&str] = &["restore", "rewind", "revert"];

/// A call that was taken on.
struct Running {
    id: Option<Value>,
    interrupt: Arc<AtomicBool>,
    reads: bool,
}

/// What was planned, by its digest.
struct Planned {
    digest: String,
    command: String,
    root: PathBuf,
    params: Map<String, Value>,
}

/// One host's connection.
pub struct Server {
    outbox: Arc<Outbox>,
    lanes: Lanes,
    methods: Methods,
    surroundings: Surroundings,
    /// The folder that the process was started in or for.
    start: PathBuf,
    folder: Mutex<PathBuf>,
    session: Mutex<Option<String>>,
    initialized: AtomicBool,
    interval: AtomicU64,
    running: Mutex<Vec<Running>>,
    turns: Turns,
    plans: Mutex<VecDeque<Planned>>,
    /// Sessions that were at work on this connection.
    opened: Mutex<HashSet<(PathBuf, String)>>,
    feed: Feed,
    farewells: Mutex<Vec<Reply>>,
}

/// A call whose words were understood.
struct Ready<C> {
    what: C,
    global: Global,
    surroundings: Surroundings,
    root: PathBuf,
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
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
            lanes: Lanes::default(),
            methods: method::methods(),
            session: Mutex::new(cx.surroundings.session.clone()),
            surroundings: cx.surroundings.clone(),
            folder: Mutex::new(start.clone()),
            start,
            initialized: AtomicBool::new(false),
            interval: AtomicU64::new(250),
            running: Mutex::default(),
            turns: Turns::default(),
            plans: Mutex::default(),
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
        held(&self.running).iter().for_each(|r| r.interrupt.store(true, Ordering::Relaxed));
    }

    /// Waits for what was begun; then `shutdown` is answered.
    pub fn finish(&self) {
        if self.outbox.is_broken() {
            // Nobody reads the answers; what is recorded or put back all the same goes on.
            let all = held(&self.running);
            all.iter().filter(|r| r.reads).for_each(|r| r.interrupt.store(true, Ordering::Relaxed));
        }
        self.lanes.finish();
        let farewells = std::mem::take(&mut *held(&self.farewells));
        farewells.into_iter().for_each(|r| r.result(json!({})));
    }

    fn call(self: &Arc<Self>, call: Call, bytes: usize) {
        let Call { method, params, reply } = call;
        if method == "$/cancelRequest" {
            self.cancel(params.get("id").unwrap_or(&Value::Null));
            return reply.result(Value::Null);
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
                Ok(ready) => self.special(ready, reply, bytes),
                Err(e) => reply.fault(e.into()),
            }
            return;
        }
        let params = match self.planned(m, params) {
            Ok(params) => params,
            Err(e) => return reply.fault(e.into()),
        };
        let whole = self.methods.get(&m.words.join("/")).unwrap_or(m);
        let ready = match self.ready::<Cli>(whole, params.clone()) {
            Ok(ready) => ready,
            Err(e) => return reply.fault(e.into()),
        };
        match ready.what {
            table::Command::Turn(table::Turn::Begin(a)) if !a.wait => {
                self.turn_begin(
                    Ready {
                        what: a,
                        global: ready.global,
                        surroundings: ready.surroundings,
                        root: ready.root,
                    },
                    reply,
                    bytes,
                );
            }
            command => {
                let reads = whole.reads(&params);
                let plan = (m.step == Step::Plan).then(|| (m.command(), params));
                let root = ready.root.clone();
                let server = Arc::clone(self);
                self.run(reads, root, ready.surroundings, ready.global, reply, bytes, move |around, root| {
                    let result = call::run(around, command);
                    if let (Some((command, params)), Ok(v)) = (plan, &result) {
                        server.remember(command, params, v, root);
                    }
                    result
                });
            }
        }
    }

    /// Carries out work in its lane, and answers.
    #[allow(clippy::too_many_arguments)]
    fn run(
        self: &Arc<Self>,
        reads: bool,
        root: PathBuf,
        surroundings: Surroundings,
        global: Global,
        reply: Reply,
        bytes: usize,
        work: impl FnOnce(Around, &Path) -> Result<Value, Fault> + Send + 'static,
    ) {
        let slot = Arc::new(Mutex::new(Some(reply)));
        let id = held(&slot).as_ref().and_then(|r| r.id().cloned());
        let own = Arc::clone(&slot);
        let taken = self.enqueue(reads, root, surroundings, global, id, bytes, move |outcome| {
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

    /// Puts work into its lane. It is told that it was cancelled instead, where that is so; what it gives back is called once the
    /// call counts as ended. `false`: too much is waiting.
    #[allow(clippy::too_many_arguments)]
    fn enqueue(
        self: &Arc<Self>,
        reads: bool,
        root: PathBuf,
        surroundings: Surroundings,
        global: Global,
        id: Option<Value>,
        bytes: usize,
        work: impl FnOnce(Result<(Around, PathBuf), Fault>) -> Box<dyn FnOnce()> + Send + 'static,
    ) -> bool {
        let interrupt = Arc::new(AtomicBool::new(false));
        let tick = self.ticker(id.clone());
        held(&self.running).push(Running { id, interrupt: Arc::clone(&interrupt), reads });
        let lane = if reads { Lane::Reading } else { Lane::Of(root.clone()) };
        let (server, flag) = (Arc::clone(self), Arc::clone(&interrupt));
        let taken = self.lanes.push(
            &lane,
            bytes,
            Box::new(move || {
                if !reads {
                    server.feed.begin(&root, &surroundings);
                }
                let outcome = match flag.load(Ordering::Relaxed) {
                    true => Err(cancelled()),
                    false => Ok((
                        Around {
                            global,
                            surroundings: surroundings.clone(),
                            interrupt: Arc::clone(&flag),
                            tick,
                        },
                        root.clone(),
                    )),
                };
                let after = work(outcome);
                server.ended(&flag);
                after();
                if !reads {
                    server.feed.look(&root, &surroundings);
                }
            }),
        );
        if !taken {
            self.ended(&interrupt);
        }
        taken
    }

    fn ended(&self, interrupt: &Arc<AtomicBool>) {
        held(&self.running).retain(|r| !Arc::ptr_eq(&r.interrupt, interrupt));
    }

    fn cancel(&self, id: &Value) {
        for r in held(&self.running).iter().filter(|r| r.id.as_ref() == Some(id)) {
            r.interrupt.store(true, Ordering::Relaxed);
        }
        self.turns.cancel(id);
    }

    /// Tells the host how far a call is, now and then.
    fn ticker(&self, id: Option<Value>) -> Box<Tick> {
        let Some(id) = id else { return Box::new(|_, _, _| {}) };
        let (outbox, interval) = (Arc::clone(&self.outbox), self.interval.load(Ordering::Relaxed));
        let (start, last) = (Instant::now(), AtomicU64::new(0));
        Box::new(move |what, done, total| {
            let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            let before = last.load(Ordering::Relaxed);
            let due = now.saturating_sub(before) >= interval;
            // Another thread tells the same.
            if due && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                let total = (total > 0).then_some(total);
                outbox.notify("$/progress", json!({"id": id, "what": what, "done": done, "total": total}));
            }
        })
    }

    /// Reads the parameters, and finds the workspace that they are about.
    fn ready<C: Words>(&self, m: &Method, params: Map<String, Value>) -> Result<Ready<C::What>> {
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
        Ok(Ready { what, global, surroundings, root })
    }

    /// The parameters of a method in two steps.
    fn planned(&self, m: &Method, mut params: Map<String, Value>) -> Result<Map<String, Value>> {
        let command = m.command();
        let says =
            |params: &Map<String, Value>, name: &str| params.get(name).is_some_and(|v| *v != Value::Null);
        match m.step {
            Step::Whole if PLANNED.contains(&command.as_str()) => {
                let dry = params.get("dry_run").or(params.get("dry-run")) == Some(&true.into());
                if !dry && !says(&params, "plan") {
                    return Err(Error::new(
                        Code::Usage,
                        format!("{command} is applied by the digest of its plan"),
                    )
                    .hint(format!("call {command}/plan, show it, then {command}/apply with its `plan`")));
                }
            }
            Step::Whole => {}
            Step::Plan | Step::Apply => {
                let extra = ["dry_run", "dry-run"].into_iter().find(|n| params.contains_key(*n));
                let extra = extra.or((m.step == Step::Plan && params.contains_key("plan")).then_some("plan"));
                if let Some(extra) = extra {
                    return Err(Error::new(Code::Usage, format!("{} has no parameter {extra:?}", m.name))
                        .hint("docs/reference/rpc.md lists the parameters of every method"));
                }
                if m.step == Step::Plan {
                    params.insert("dry_run".to_owned(), true.into());
                } else {
                    params = self.remembered(m, params)?;
                }
            }
        }
        Ok(params)
    }

    fn remembered(&self, m: &Method, params: Map<String, Value>) -> Result<Map<String, Value>> {
        let Some(digest) = params.get("plan").and_then(Value::as_str) else {
            return Err(Error::new(Code::Usage, format!("{} needs `plan`, the digest of a plan", m.name))
                .hint(format!("{}/plan gives one", m.command())));
        };
        let around = ["plan", "workspace", "session", "store_dir", "store-dir", "as_person", "as-person"];
        if params.keys().any(|k| !around.contains(&k.as_str())) {
            return Ok(params);
        }
        let plans = held(&self.plans);
        let known = plans.iter().rev().find(|p| p.digest == digest && p.command == m.command());
        let Some(known) = known else {
            return Err(Error::new(Code::Usage, format!("no plan {digest:?} was made on this connection"))
                .hint(format!("call {0}/plan first, or say again what {0}/plan was told", m.command())));
        };
        let mut all = known.params.clone();
        all.remove("dry_run");
        all.entry("workspace").or_insert_with(|| known.root.to_string_lossy().into());
        all.extend(params);
        Ok(all)
    }

    fn remember(&self, command: String, params: Map<String, Value>, plan: &Value, root: &Path) {
        let Some(digest) = plan.get("plan").and_then(Value::as_str) else { return };
        let mut plans = held(&self.plans);
        if plans.len() >= PLANS {
            plans.pop_front();
        }
        plans.push_back(Planned { digest: digest.to_owned(), command, root: root.to_owned(), params });
    }

    fn turn_begin(self: &Arc<Self>, ready: Ready<table::TurnBegin>, reply: Reply, bytes: usize) {
        let Ready { what, global, surroundings, root } = ready;
        let name = turns::name_of(&root, surroundings.session.clone(), what.key.clone(), None);
        let id = reply.id().cloned();
        let Some(token) = self.turns.begin(name, reply) else { return };
        let server = Arc::clone(self);
        let taken = self.enqueue(false, root, surroundings, global, id, bytes, move |outcome| {
            let result = outcome.and_then(|(around, root)| {
                call::guarded(|| {
                    let cx = around.context();
                    let exit = turn::begin_told(&cx, what, &|session, begun| {
                        held(&server.opened).insert((root.clone(), session.to_owned()));
                        server.turns.told(token, session, begun);
                    })?;
                    Ok(call::document(&cx, exit))
                })
            });
            Box::new(move || server.turns.ended(token, result))
        });
        if !taken {
            self.turns.ended(token, Err(crowded()));
        }
    }

    fn special(self: &Arc<Self>, ready: Ready<special::Method>, reply: Reply, bytes: usize) {
        let Ready { what, global, surroundings, root } = ready;
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
                held(&self.folder).clone_from(&root);
                let server = Arc::clone(self);
                self.run(true, root, surroundings, global, reply, bytes, move |around, root| {
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
                let Some(session) = surroundings.session.clone() else {
                    let e = Error::new(Code::Usage, "which session is opened is not said")
                        .hint("name it in `session`");
                    return reply.fault(e.into());
                };
                if let Err(e) = backstitch::session::check_session(&session) {
                    return reply.fault(e.into());
                }
                *held(&self.session) = Some(session.clone());
                let fresh = held(&self.opened).insert((root.clone(), session.clone()));
                self.run(false, root, surroundings, global, reply, bytes, move |around, _| {
                    call::guarded(|| {
                        let cx = around.context();
                        open_session(&cx, &session, &a, fresh)?;
                        Ok(call::document(&cx, 0))
                    })
                });
            }
            special::Method::Turn(special::Turn::Wait(a)) => {
                let name = turns::name_of(&root, surroundings.session.clone(), a.key, a.id);
                let Some(reply) = self.turns.wait(&name, reply) else { return };
                self.run(true, root, surroundings, global, reply, bytes, move |around, _| {
                    call::guarded(|| turns::look_up(&name, around.surroundings))
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
            None => rows.all.iter().rev().find(|c| c.record.session.as_deref() == Some(parent)),
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

fn crowded() -> Fault {
    Error::new(Code::Busy, "too many calls are waiting").hint("wait for answers before calling again").into()
}

fn cancelled() -> Fault {
    Error::new(Code::Interrupted, "cancelled before it began; nothing was changed").into()
}

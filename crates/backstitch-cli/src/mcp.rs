//! `backstitch mcp`: a few of the methods as tools of the Model Context Protocol, for agents.
//!
//! The policy: an agent may checkpoint, list, compare and show, and take back its own session's work. It names no other session, no
//! other folder, nothing outside of it, and overwrites nothing of others. What is not in [`TOOLS`] does not exist for it.
//!
//! Where the host names a session (`--session`, `BACKSTITCH_SESSION`), its hooks record the turns. Where it does not, this process is
//! a session of its own, whose turns begin with each checkpoint.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use backstitch::{
    error::{Code, Error, Result},
    record,
    workspace::{Surroundings, Workspace},
};
use clap::Parser;
use serde_json::{Map, Value, json};

use crate::{
    context::{Context, Tick},
    serve::{
        self,
        call::{self, Around},
        calls::{self, Calls, crowded},
        lanes::Lane,
        message::{self, Call, Fault, Reply, code},
        method::{self, Method, Methods, Param},
        outbox::Outbox,
        schema,
    },
    table::{Cli, Global},
};

/// Versions of the protocol, the newest first.
const PROTOCOLS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A longer result would fill the agent's context: it is asked to narrow.
const LONGEST_RESULT: usize = 100_000;

/// A tool: a method, with the parameters that an agent may use.
struct Tool {
    name: &'static str,
    method: &'static str,
    about: &'static str,
    params: &'static [&'static str],
    /// Beyond what the table requires.
    required: &'static [&'static str],
    /// Parameters that hold where nothing is said.
    defaults: &'static [(&'static str, u64)],
    reads: bool,
    destroys: bool,
}

/// All tools.
const TOOLS: &[Tool] = &[
    Tool {
        name: "checkpoint_create",
        method: "checkpoint",
        about: "Record the present state of the workspace, so that it can be compared with and gone back to.",
        params: &["label", "if_changed", "paths"],
        required: &[],
        defaults: &[],
        reads: false,
        destroys: false,
    },
    Tool {
        name: "checkpoint_list",
        method: "list",
        about: "List checkpoints, newest first.",
        params: &["kind", "since", "limit", "all"],
        required: &[],
        defaults: &[("limit", 20)],
        reads: true,
        destroys: false,
    },
    Tool {
        name: "checkpoint_show",
        method: "show",
        about: "Show one checkpoint: what it covers, what it left out, and what changed in it.",
        params: &["checkpoint"],
        required: &[],
        defaults: &[],
        reads: true,
        destroys: false,
    },
    Tool {
        name: "diff",
        method: "diff",
        about: "Compare a checkpoint with another one, or with the workspace as it is now. Without names: the newest one with the \
                workspace.",
        params: &["from", "to", "stat", "name_status", "patch", "turn", "paths"],
        required: &[],
        defaults: &[],
        reads: true,
        destroys: false,
    },
    Tool {
        name: "log",
        method: "log",
        about: "The versions of one file, newest first: the checkpoint that recorded each, and which turn, tool or sub-agent made it, \
                or that it happened outside.",
        params: &["path", "limit"],
        required: &[],
        defaults: &[("limit", 20)],
        reads: true,
        destroys: false,
    },
    Tool {
        name: "blame",
        method: "blame",
        about: "Who wrote each line of a file: a turn, a tool call, a sub-agent, or `outside`.",
        params: &["path", "at"],
        required: &[],
        defaults: &[],
        reads: true,
        destroys: false,
    },
    Tool {
        name: "rewind_plan",
        method: "rewind/plan",
        about: "Plan to take back what this session did since a turn or checkpoint, and nothing else. Changes nothing; the result's \
                `plan` is the digest for rewind_apply.",
        params: &["to", "paths", "glob", "no_delete"],
        required: &["to"],
        defaults: &[],
        reads: false,
        destroys: false,
    },
    Tool {
        name: "rewind_apply",
        method: "rewind/apply",
        about: "Carry out a plan of rewind_plan. Refused if anything changed since. `undo` takes it back.",
        params: &["plan"],
        required: &["plan"],
        defaults: &[],
        reads: false,
        destroys: true,
    },
    Tool {
        name: "revert_plan",
        method: "revert/plan",
        about: "Plan to take back what one turn of this session did and to keep what came after it. Changes nothing; parts that \
                later turns changed again are listed as conflicts and stay. The result's `plan` is the digest for revert_apply.",
        params: &["to", "paths", "glob", "no_delete"],
        required: &["to"],
        defaults: &[],
        reads: false,
        destroys: false,
    },
    Tool {
        name: "revert_apply",
        method: "revert/apply",
        about: "Carry out a plan of revert_plan. Refused if anything changed since. `undo` takes it back.",
        params: &["plan"],
        required: &["plan"],
        defaults: &[],
        reads: false,
        destroys: true,
    },
    Tool {
        name: "undo",
        method: "undo",
        about: "Take back the newest rewind_apply or revert_apply that is not undone. Paths that changed since are kept.",
        params: &[],
        required: &[],
        defaults: &[],
        reads: false,
        destroys: true,
    },
];

impl Tool {
    fn method<'a>(&self, methods: &'a Methods) -> Option<&'a Method> {
        methods.get(self.method)
    }

    /// Its parameters, as an agent sees them.
    fn params(&self, methods: &Methods) -> Vec<Param> {
        let all = self.method(methods).map(|m| m.params.clone()).unwrap_or_default();
        let mut own: Vec<Param> =
            all.into_iter().filter(|p| self.params.contains(&p.name.as_str())).collect();
        for p in &mut own {
            p.required |= self.required.contains(&p.name.as_str());
            if let Some((_, n)) = self.defaults.iter().find(|(name, _)| *name == p.name) {
                p.default = Some(n.to_string());
            }
        }
        own
    }

    fn document(&self, methods: &Methods) -> Value {
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": schema::of_params(self.params(methods).iter()),
            "annotations": {
                "readOnlyHint": self.reads,
                "destructiveHint": self.destroys,
                "idempotentHint": self.reads,
                "openWorldHint": false,
            },
        })
    }
}

/// What `tools/list` says.
pub fn tools() -> Value {
    let methods = method::methods();
    json!({"tools": TOOLS.iter().map(|t| t.document(&methods)).collect::<Vec<_>>()})
}

/// A plan that was shown: its digest, and the method and parameters that carry it out.
struct Planned {
    digest: String,
    method: &'static str,
    params: Map<String, Value>,
}

/// One agent's connection.
struct Server {
    outbox: Arc<Outbox>,
    calls: Arc<Calls>,
    methods: Methods,
    global: Global,
    surroundings: Surroundings,
    root: PathBuf,
    session: String,
    /// No host records turns: they begin with each checkpoint.
    alone: bool,
    initialized: AtomicBool,
    /// What the newest plans were made of, by their digests.
    plans: Mutex<Vec<Planned>>,
    /// Operations that were carried out here and not undone yet. What a person took back is not the agent's to bring again.
    operations: Mutex<Vec<String>>,
}

/// Serves until the input ends or a signal arrives.
pub fn run(cx: &Context) -> Result<u8> {
    let mut surroundings = cx.surroundings.clone();
    let root = Workspace::find_root(&cx.folder, &surroundings)?;
    std::env::set_current_dir("/").map_err(|e| Error::io(std::path::Path::new("/"), e))?;
    let named = surroundings.session.clone();
    let session = named.clone().unwrap_or_else(|| format!("mcp-{}", record::new_id(record::now_ms())));
    backstitch::session::check_session(&session)?;
    surroundings.session = Some(session.clone());
    // Whoever calls is an agent, whatever the environment says.
    surroundings.agent_context.get_or_insert_with(|| "MCP".to_owned());
    let outbox = Arc::new(Outbox::start(std::io::stdout())?);
    let server = Arc::new(Server {
        outbox: Arc::clone(&outbox),
        calls: Arc::default(),
        methods: method::methods(),
        global: Cli::try_parse_from(["backstitch", "status"])
            .map_err(|e| crate::problem::of_words(&e))?
            .global,
        surroundings,
        root,
        session,
        alone: named.is_none(),
        initialized: AtomicBool::new(false),
        plans: Mutex::default(),
        operations: Mutex::default(),
    });
    let code = serve::read(cx, &outbox, |line| {
        for call in message::read(line, &outbox) {
            server.call(call, line.len());
        }
        true
    });
    if code == Code::Interrupted.exit() {
        server.calls.interrupt_all();
    }
    server.calls.finish();
    outbox.close();
    Ok(code)
}

impl Server {
    fn call(self: &Arc<Self>, call: Call, bytes: usize) {
        let Call { method, params, reply } = call;
        match method.as_str() {
            "initialize" => {
                self.initialized.store(true, Ordering::Relaxed);
                let wanted = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
                let version = PROTOCOLS.iter().find(|p| **p == wanted).unwrap_or(&PROTOCOLS[0]);
                reply.result(json!({
                    "protocolVersion": version,
                    "capabilities": {"tools": {"listChanged": false}},
                    "serverInfo": {"name": "backstitch", "title": "Backstitch", "version": env!("CARGO_PKG_VERSION")},
                    "instructions": "Checkpoints of the workspace. Create one before a risky change. To go back, call rewind_plan, \
                                     look at its items, then rewind_apply with its `plan`: only this session's own work is taken \
                                     back, and undo brings it again.",
                }));
            }
            "ping" => reply.result(json!({})),
            "notifications/cancelled" => {
                self.calls.cancel(params.get("requestId").unwrap_or(&Value::Null));
                reply.result(json!({}));
            }
            name if name.starts_with("notifications/") => reply.result(json!({})),
            "tools/list" | "tools/call" if !self.initialized.load(Ordering::Relaxed) => reply.fault(
                Fault::new(code::NOT_INITIALIZED, Code::Usage, format!("{method} came before `initialize`"))
                    .hint("call `initialize` first"),
            ),
            "tools/list" => {
                reply.result(
                    json!({"tools": TOOLS.iter().map(|t| t.document(&self.methods)).collect::<Vec<_>>()}),
                );
            }
            "tools/call" => self.tool(params, reply, bytes),
            _ => reply.fault(
                Fault::new(code::METHOD, Code::Usage, "there is no such method")
                    .hint("tools/list and tools/call are there"),
            ),
        }
    }

    fn tool(self: &Arc<Self>, mut params: Map<String, Value>, reply: Reply, bytes: usize) {
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(tool) = TOOLS.iter().find(|t| t.name == name) else {
            return reply.fault(
                Fault::new(code::PARAMS, Code::Usage, "there is no such tool").hint("tools/list names them"),
            );
        };
        let token =
            params.get("_meta").and_then(|m| m.get("progressToken")).filter(|t| !t.is_null()).cloned();
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(m)) => m,
            Some(_) => {
                return reply.fault(
                    Fault::new(code::PARAMS, Code::Usage, "`arguments` is not an object")
                        .hint("arguments have names, as the tool's inputSchema says"),
                );
            }
        };
        let id = reply.id().cloned();
        let slot = Arc::new(Mutex::new(Some(reply)));
        let (server, own) = (Arc::clone(self), Arc::clone(&slot));
        let lane = if tool.reads { Lane::Reading } else { Lane::Of(self.root.clone()) };
        let taken = self.calls.enqueue(&lane, id, bytes, move |flag| {
            let result = flag.and_then(|flag| server.carry_out(tool, arguments, &flag, token));
            Box::new(move || {
                if let Some(reply) = held(&own).take() {
                    reply.result(told(result));
                }
            })
        });
        if !taken && let Some(reply) = held(&slot).take() {
            reply.result(told(Err(crowded())));
        }
    }

    fn carry_out(
        &self,
        tool: &Tool,
        mut arguments: Map<String, Value>,
        flag: &Arc<AtomicBool>,
        token: Option<Value>,
    ) -> Result<Value, Fault> {
        let allowed = tool.params(&self.methods);
        if let Some(bad) = arguments.keys().find(|k| !allowed.iter().any(|p| p.name == **k)) {
            return Err(wrong(format!("{} has no argument {bad:?}", tool.name)));
        }
        let given =
            |arguments: &Map<String, Value>, name: &str| arguments.get(name).is_some_and(|v| !v.is_null());
        if let Some(p) = allowed.iter().find(|p| p.required && !given(&arguments, &p.name)) {
            return Err(wrong(format!("{} needs `{}`", tool.name, p.name)));
        }
        for (name, n) in tool.defaults {
            if !given(&arguments, name) {
                arguments.insert((*name).to_owned(), (*n).into());
            }
        }
        let run =
            |method: &str, params: Map<String, Value>, tick: Box<Tick>| self.run(method, &params, flag, tick);
        let tick = self.ticker(token);
        match tool.name {
            "checkpoint_create" if self.alone && !given(&arguments, "paths") => {
                self.end_turn(flag)?;
                arguments.insert("kind".to_owned(), "prompt".into());
                run("checkpoint", arguments, tick)
            }
            "rewind_plan" | "revert_plan" => {
                self.next_turn(flag)?;
                let method = back(tool);
                let mut params = arguments.clone();
                params.insert("dry_run".to_owned(), true.into());
                let plan = run(method, params, tick)?;
                if let Some(digest) = plan.get("plan").and_then(Value::as_str) {
                    let mut plans = held(&self.plans);
                    plans.retain(|p| p.method != method || p.digest != digest);
                    if plans.len() >= 16 {
                        plans.remove(0);
                    }
                    plans.push(Planned { digest: digest.to_owned(), method, params: arguments });
                }
                Ok(plan)
            }
            "rewind_apply" | "revert_apply" => {
                let method = back(tool);
                let digest = arguments.get("plan").and_then(Value::as_str).unwrap_or_default();
                let planned = held(&self.plans)
                    .iter()
                    .find(|p| p.method == method && p.digest == digest)
                    .map(|p| p.params.clone());
                let Some(mut params) = planned else {
                    return Err(wrong("that plan was not made here".to_owned()));
                };
                params.insert("plan".to_owned(), digest.into());
                let done = run(method, params, tick)?;
                held(&self.operations).extend(done["operation"].as_str().map(str::to_owned));
                self.next_turn(flag)?;
                Ok(done)
            }
            "undo" => {
                let Some(operation) = held(&self.operations).last().cloned() else {
                    return Err(Error::new(
                        Code::NothingToUndo,
                        "nothing was taken back here that is not undone",
                    )
                    .hint("rewind_apply and revert_apply are what can be undone")
                    .into());
                };
                arguments.insert("operation".to_owned(), operation.clone().into());
                let done = run("undo", arguments, tick)?;
                held(&self.operations).retain(|o| *o != operation);
                self.next_turn(flag)?;
                Ok(done)
            }
            _ => run(tool.method, arguments, tick),
        }
    }

    /// Where no host does: what was done so far belongs to a turn that ends here, what follows to the next one.
    fn next_turn(&self, flag: &Arc<AtomicBool>) -> Result<(), Fault> {
        if self.alone && self.end_turn(flag)? {
            self.run("turn/begin", &Map::new(), flag, Box::new(|_, _, _| {}))?;
        }
        Ok(())
    }

    /// `true` if a turn was open.
    fn end_turn(&self, flag: &Arc<AtomicBool>) -> Result<bool, Fault> {
        let done = self.run("turn/end", &Map::new(), flag, Box::new(|_, _, _| {}))?;
        Ok(!done["checkpoint"].is_null())
    }

    fn run(
        &self,
        method: &str,
        params: &Map<String, Value>,
        flag: &Arc<AtomicBool>,
        tick: Box<Tick>,
    ) -> Result<Value, Fault> {
        let m = self.methods.get(method).ok_or_else(|| wrong(format!("there is no method {method:?}")))?;
        let argv = m.argv(params).map_err(Fault::from)?;
        let cli = Cli::try_parse_from(argv).map_err(|e| Fault::from(crate::problem::of_words(&e)))?;
        // Named as if it were typed where something is taken back: no other session can be named then.
        let typed = matches!(method, "rewind" | "revert" | "undo");
        let global = Global {
            workspace: Some(self.root.clone()),
            json: true,
            session: typed.then(|| self.session.clone()),
            ..self.global.clone()
        };
        let around =
            Around { global, surroundings: self.surroundings.clone(), interrupt: Arc::clone(flag), tick };
        call::run(around, cli.command)
    }

    fn ticker(&self, token: Option<Value>) -> Box<Tick> {
        let Some(token) = token else { return Box::new(|_, _, _| {}) };
        let outbox = Arc::clone(&self.outbox);
        calls::ticker(250, move |what, done, total| {
            let mut m = json!({"progressToken": token, "progress": done, "message": what});
            if let Some(m) = m.as_object_mut().filter(|_| total > 0) {
                m.insert("total".to_owned(), total.into());
            }
            outbox.notify("notifications/progress", m);
        })
    }
}

/// The method that a plan, or carrying it out, is one of.
fn back(tool: &Tool) -> &'static str {
    if tool.name.starts_with("revert") { "revert" } else { "rewind" }
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(message: String) -> Fault {
    Error::new(Code::Usage, message).hint("the tool's inputSchema says what it takes").into()
}

/// The result of a tool: as a document, and as its text for hosts that know only text. Errors are results, too, so that the
/// agent sees them.
fn told(outcome: Result<Value, Fault>) -> Value {
    let outcome = outcome.and_then(|v| match v.to_string() {
        text if text.len() > LONGEST_RESULT => Err(Error::new(
            Code::Usage,
            format!("the result has {} bytes, more than the {LONGEST_RESULT} that fit", text.len()),
        )
        .hint("ask for less: `limit`, `paths`, `name_status`, or without `patch`")
        .into()),
        text => Ok((v, text)),
    });
    match outcome {
        Ok((v, text)) => {
            json!({"content": [{"type": "text", "text": text}], "structuredContent": v, "isError": false})
        }
        Err(fault) => {
            let e = fault.shape();
            json!({"content": [{"type": "text", "text": e.to_string()}], "structuredContent": e, "isError": true})
        }
    }
}

//! Answers, by the methods of `backstitch serve`.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool};

use backstitch::error::{Code, Error};
use clap::Parser;
use serde_json::{Map, Value};

use crate::{
    context::{self, Context},
    problem,
    serve::{
        call::{self, Around},
        message::Fault,
        method::{self, Methods, Step},
        plans::Plans,
    },
    table::{Cli, Global},
};

/// The methods that the page calls. Whatever changes the folder is applied by the digest of a plan.
const METHODS: &[&str] = &[
    "status",
    "list",
    "show",
    "diff",
    "files",
    "cat",
    "operations",
    "session/list",
    "session/show",
    "restore/plan",
    "restore/apply",
    "rewind/plan",
    "rewind/apply",
    "revert/plan",
    "revert/apply",
    "undo/plan",
    "undo/apply",
    "redo/plan",
    "redo/apply",
    "pin",
    "unpin",
    "label",
];

/// Parameters that would lead elsewhere.
const ELSEWHERE: &[&str] = &["workspace", "store_dir", "store-dir", "as_person", "as-person"];

/// One folder, and the plans that were made of it here.
pub struct Calls {
    methods: Methods,
    plans: Plans,
    global: Global,
    surroundings: backstitch::workspace::Surroundings,
    root: std::path::PathBuf,
    interrupt: Arc<AtomicBool>,
    /// Calls that write come one after another.
    writing: Mutex<()>,
}

impl Calls {
    /// Of the folder that the context names. It must be recorded.
    pub fn new(cx: &Context) -> Result<Calls, Error> {
        let ws = cx.workspace()?;
        ws.store()?;
        let global = Cli::try_parse_from(["backstitch", "status"]).map_err(|e| problem::of_words(&e))?.global;
        let root = ws.root().to_owned();
        drop(ws);
        Ok(Calls {
            methods: method::methods(),
            plans: Plans::default(),
            global: Global { workspace: Some(root.clone()), json: true, ..global },
            surroundings: cx.surroundings.clone(),
            root,
            interrupt: Arc::clone(&cx.interrupt),
            writing: Mutex::default(),
        })
    }

    /// Status and document.
    pub fn call(&self, method: &str, body: &[u8]) -> (u16, Value) {
        match self.answer(method, body) {
            Ok(v) => (200, v),
            Err(fault) => {
                let v = fault.shape();
                let status = match v["error"]["code"].as_str() {
                    Some(c) => status(c),
                    None => 500,
                };
                (status, v)
            }
        }
    }

    fn answer(&self, name: &str, body: &[u8]) -> Result<Value, Fault> {
        let usage = |message: String| {
            Error::new(Code::Usage, message).hint("docs/picker.md lists what the page calls")
        };
        let m = self.methods.get(name).filter(|_| METHODS.contains(&name));
        let m = m.ok_or_else(|| {
            usage(format!("there is no method {:?} here", name.chars().take(80).collect::<String>()))
        })?;
        let params: Map<String, Value> =
            serde_json::from_slice(body).map_err(|e| usage(format!("the body is no JSON object: {e}")))?;
        if let Some(bad) = params.keys().find(|k| ELSEWHERE.contains(&k.as_str())) {
            return Err(usage(format!("`{bad}` cannot be said here")).into());
        }
        let params = self.plans.params(m, params)?;
        let whole = self.methods.get(&m.words.join("/")).unwrap_or(m);
        let cli = Cli::try_parse_from(whole.argv(&params)?).map_err(|e| problem::of_words(&e))?;
        let surroundings = context::apply(self.surroundings.clone(), &cli.global)?;
        let around = Around {
            global: Global { session: cli.global.session, ..self.global.clone() },
            surroundings,
            interrupt: Arc::clone(&self.interrupt),
            tick: Box::new(|_, _, _| {}),
        };
        let _writing =
            (!whole.reads(&params)).then(|| self.writing.lock().unwrap_or_else(PoisonError::into_inner));
        let result = call::run(around, cli.command)?;
        if m.step == Step::Plan {
            self.plans.remember(m.command(), params, &result, &self.root);
        }
        Ok(result)
    }
}

/// As the exit code of the same command says.
fn status(code: &str) -> u16 {
    let exit = Code::ALL.iter().find(|c| c.as_str() == code).map_or(1, |c| c.exit());
    match exit {
        2 => 400,
        4 => 404,
        5 => 409,
        6 => 503,
        _ => 500,
    }
}

//! Messages: from a line to calls, from results to answers.

use std::sync::{Arc, Mutex, PoisonError};

use backstitch::error::{Code, Error};
use serde_json::{Map, Value, json};

use super::{LONGEST, outbox::Outbox};
use crate::problem;

/// Values in a message, at most.
pub const MOST_VALUES: usize = 100_000;
/// Calls in a batch, at most.
pub const MOST_CALLS: usize = 100;

/// What JSON-RPC says about an error, beside the product's own code.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a request.
    pub const REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD: i64 = -32601;
    /// Wrong parameters.
    pub const PARAMS: i64 = -32602;
    /// A fault of this program.
    pub const INTERNAL: i64 = -32603;
    /// The call failed; `data.code` says how.
    pub const FAILED: i64 = -32000;
    /// Called before `initialize`.
    pub const NOT_INITIALIZED: i64 = -32002;
    /// Cancelled, or ended by a signal.
    pub const CANCELLED: i64 = -32800;
}

/// An error, as it goes out.
#[derive(Debug)]
pub struct Fault {
    rpc: i64,
    error: Error,
}

impl Fault {
    /// Of the protocol.
    pub fn new(rpc: i64, code: Code, message: impl Into<String>) -> Fault {
        Fault { rpc, error: Error::new(code, message) }
    }

    /// Says what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.error.hint = Some(hint.into());
        self
    }

    /// As the command line would write it.
    pub fn shape(&self) -> Value {
        problem::document(&self.error)
    }

    /// As JSON-RPC wants it.
    pub fn document(&self) -> Value {
        let mut data = problem::document(&self.error)["error"].take();
        if let Some(m) = data.as_object_mut() {
            m.remove("message");
            m.insert("exit".to_owned(), self.error.code.exit().into());
        }
        json!({"code": self.rpc, "message": self.error.message, "data": data})
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let rpc = match error.code {
            Code::Interrupted => code::CANCELLED,
            c if c.exit() == Code::Usage.exit() => code::PARAMS,
            _ => code::FAILED,
        };
        Fault { rpc, error }
    }
}

/// A line that was passed over.
pub fn too_long(bytes: u64) -> Fault {
    Fault::new(code::REQUEST, Code::Usage, format!("a message of {bytes} bytes is too long"))
        .hint(format!("a message is one line of at most {LONGEST} bytes; this one was not read"))
}

/// Answers of a batch, until all are there.
struct Batch {
    left: usize,
    answers: Vec<Value>,
}

/// Where an answer goes. Dropped without one, it says that the call was lost: nobody waits for ever.
pub struct Reply {
    /// `None`: a notification, nothing is answered.
    id: Option<Value>,
    outbox: Arc<Outbox>,
    batch: Option<Arc<Mutex<Batch>>>,
    done: bool,
}

impl Reply {
    /// To a message whose id could not be read.
    pub fn anonymous(outbox: &Arc<Outbox>) -> Reply {
        Reply { id: Some(Value::Null), outbox: Arc::clone(outbox), batch: None, done: false }
    }

    /// The call's id; `None` for a notification.
    pub fn id(&self) -> Option<&Value> {
        self.id.as_ref()
    }

    /// The result.
    pub fn result(self, result: Value) {
        self.answer("result", result);
    }

    /// An error.
    pub fn fault(self, fault: Fault) {
        self.answer("error", fault.document());
    }

    /// An error that was written down before.
    pub fn error(self, document: Value) {
        self.answer("error", document);
    }

    /// Either.
    pub fn settle(self, outcome: Result<Value, Fault>) {
        match outcome {
            Ok(v) => self.result(v),
            Err(f) => self.fault(f),
        }
    }

    fn answer(mut self, key: &str, value: Value) {
        self.finish(key, value);
    }

    fn finish(&mut self, key: &str, value: Value) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let answer = self.id.take().map(|id| {
            let mut m = Map::new();
            m.insert("jsonrpc".to_owned(), "2.0".into());
            m.insert("id".to_owned(), id);
            m.insert(key.to_owned(), value);
            Value::Object(m)
        });
        let Some(batch) = &self.batch else {
            if let Some(answer) = answer {
                self.outbox.send(&answer);
            }
            return;
        };
        let mut held = batch.lock().unwrap_or_else(PoisonError::into_inner);
        held.answers.extend(answer);
        held.left -= 1;
        if held.left == 0 && !held.answers.is_empty() {
            let all = Value::Array(std::mem::take(&mut held.answers));
            drop(held);
            self.outbox.send(&all);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let lost = Fault::new(code::INTERNAL, Code::Failed, "the call was lost")
            .hint("this is a fault of backstitch; what was begun is put right by the next call");
        self.finish("error", lost.document());
    }
}

/// A request or a notification.
pub struct Call {
    /// The method.
    pub method: String,
    /// Its parameters by name.
    pub params: Map<String, Value>,
    /// Where the answer goes.
    pub reply: Reply,
}

/// Commas outside of texts: a measure of how much memory a message takes once it is read.
fn commas(line: &[u8]) -> usize {
    let (mut in_text, mut escaped, mut n) = (false, false, 0);
    for b in line {
        match b {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' if !in_text => n += 1,
            _ => {}
        }
    }
    n
}

/// Reads a line. What is wrong is answered here.
pub fn read(line: &[u8], outbox: &Arc<Outbox>) -> Vec<Call> {
    let anonymous = || Reply::anonymous(outbox);
    if commas(line) > MOST_VALUES {
        anonymous().fault(
            Fault::new(code::REQUEST, Code::Usage, "a message holds too many values")
                .hint(format!("it may hold {MOST_VALUES} at most; this one was not read")),
        );
        return Vec::new();
    }
    let value = match backstitch_agents::input::parse(line) {
        Ok(v) => v,
        Err(e) => {
            anonymous().fault(
                Fault::new(code::PARSE, Code::Usage, format!("not JSON: {e}"))
                    .hint("a message is one line of JSON in UTF-8, nested less than 128 deep"),
            );
            return Vec::new();
        }
    };
    let parts = match value {
        Value::Array(parts) if parts.is_empty() => {
            anonymous().fault(malformed("a batch is empty"));
            return Vec::new();
        }
        Value::Array(parts) if parts.len() > MOST_CALLS => {
            anonymous()
                .fault(malformed(format!("a batch has {} calls, more than {MOST_CALLS}", parts.len())));
            return Vec::new();
        }
        Value::Array(parts) => parts,
        one => return call(one, None, outbox).into_iter().collect(),
    };
    let batch = Arc::new(Mutex::new(Batch { left: parts.len(), answers: Vec::new() }));
    parts.into_iter().filter_map(|p| call(p, Some(Arc::clone(&batch)), outbox)).collect()
}

fn malformed(why: impl Into<String>) -> Fault {
    Fault::new(code::REQUEST, Code::Usage, why).hint(
        "a request is an object with `jsonrpc` \"2.0\", an `id` (text or a whole number), `method` and `params` (an object)",
    )
}

fn call(value: Value, batch: Option<Arc<Mutex<Batch>>>, outbox: &Arc<Outbox>) -> Option<Call> {
    let mut reply = Reply { id: Some(Value::Null), outbox: Arc::clone(outbox), batch, done: false };
    let Value::Object(mut m) = value else {
        reply.fault(malformed("a message is not an object"));
        return None;
    };
    reply.id = match m.remove("id") {
        None => None,
        Some(id) if id.is_string() || id.is_i64() || id.is_u64() || id.is_null() => Some(id),
        Some(_) => {
            reply.fault(malformed("an id is neither text nor a whole number"));
            return None;
        }
    };
    // Whoever sends what is no call at all is told, id or not.
    let told = |mut reply: Reply, why: &str| {
        reply.id.get_or_insert(Value::Null);
        reply.fault(malformed(why));
        None
    };
    if m.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return told(reply, "`jsonrpc` is not \"2.0\"");
    }
    let Some(Value::String(method)) = m.remove("method") else {
        return told(reply, "`method` is missing or not text");
    };
    let params = match m.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => {
            reply.fault(
                Fault::new(code::PARAMS, Code::Usage, "`params` is not an object")
                    .hint("parameters have names, such as {\"path\": \"a.txt\"}"),
            );
            return None;
        }
    };
    Some(Call { method, params, reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of the connection: each is answered or becomes a call, whatever it holds.
    #[test]
    fn fuzz_messages() {
        let outbox = Arc::new(Outbox::start(std::io::sink()).expect("an outbox"));
        let seeds = [
            r#"{"jsonrpc":"2.0","id":1,"method":"checkpoint/create","params":{"label":"x","paths":["a"]}}"#,
            r#"[{"jsonrpc":"2.0","method":"turn/begin","params":{}},{"jsonrpc":"2.0","id":"x","method":"list"}]"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"$/cancel","params":{"id":1}}"#,
        ];
        let words: [&[u8]; 10] = [
            b"null",
            b"[]",
            b"{}",
            b"1.5",
            b"\"id\":",
            b"[[[[[[[[",
            b"\"\\ud800\"",
            b"99999999999999999999",
            b"\"params\":[]",
            b",",
        ];
        backstitch_testkit::fuzz::run("rpc", &seeds, &words, |input| {
            let calls = read(input, &outbox);
            assert!(calls.len() <= MOST_CALLS, "{} calls", calls.len());
            let told: Vec<(String, usize)> =
                calls.iter().map(|c| (c.method.chars().take(4).collect(), c.params.len())).collect();
            told
        });
        outbox.close();
        assert!(!outbox.is_broken());
    }
}

//! A scripted model on loopback: Anthropic Messages, OpenAI Responses and Chat Completions, Gemini generateContent, streamed.
//!
//! It keeps no state: which answer comes is read from the conversation in the request, so that a rewound or resumed one gets the
//! answer of the place where it is. Every request is kept, for the story to look at.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::Result;

/// The prompt that is answered by a file tool.
pub const WRITE: &str = "STORY-WRITE";
/// The prompt that is answered by a shell command.
pub const SHELL: &str = "STORY-SHELL";
/// The last words of every answer.
pub const DONE: &str = "All done.";

/// A running model.
pub struct Model {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Model {
    /// Starts one that works in this folder. It ends with the process.
    pub fn start(folder: &Path) -> Result<Model> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, folder) = (Arc::clone(&requests), folder.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, folder) = (Arc::clone(&kept), folder.clone());
                std::thread::spawn(move || drop(serve(stream, &kept, &folder)));
            }
        });
        Ok(Model { port, requests })
    }

    /// Bodies of the requests that declared tools, since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// The dialects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

fn api_of(path: &str) -> Option<Api> {
    let path = path.split('?').next().unwrap_or_default();
    Some(match path {
        p if p.ends_with("/messages") => Api::Anthropic,
        p if p.ends_with("/chat/completions") => Api::Chat,
        p if p.ends_with("/responses") => Api::Responses,
        p if p.ends_with("enerateContent") => Api::Gemini,
        _ => return None,
    })
}

/// One connection, request after request.
fn serve(stream: TcpStream, kept: &Mutex<Vec<String>>, folder: &Path) -> Result<()> {
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut length, mut chunked) = (0usize, false);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(n) = line.strip_prefix("content-length:") {
                length = n.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        while chunked {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim().split(';').next().unwrap_or("0"), 16)?;
            let mut piece = vec![0; size + 2];
            reader.read_exact(&mut piece)?;
            body.extend_from_slice(&piece[..size]);
            chunked = size > 0;
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match api_of(&path) {
            Some(api) => {
                let tools = tools(api, &body);
                if !tools.is_empty() {
                    kept.lock().unwrap_or_else(|e| e.into_inner()).push(body.to_string());
                }
                let streamed = api == Api::Gemini && path.contains(":stream") || body["stream"] == true;
                let events = reply(api, &answer(api, &body, &tools, folder));
                match streamed {
                    true => send_events(&mut out, &events)?,
                    false => send(&mut out, "200 OK", &whole(api, &events))?,
                }
            }
            None if path.contains("count") => {
                send(&mut out, "200 OK", &json!({"input_tokens": 10, "totalTokens": 10}))?;
            }
            None => send(&mut out, "404 Not Found", &json!({"error": {"message": "no such path"}}))?,
        }
    }
}

fn send(out: &mut TcpStream, status: &str, body: &Value) -> Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Ok(out.write_all((head + &body).as_bytes())?)
}

fn send_events(out: &mut TcpStream, events: &[Event]) -> Result<()> {
    let mut body = String::new();
    for (name, data) in events {
        if !name.is_empty() {
            body.push_str(&format!("event: {name}\n"));
        }
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        body.push_str(&format!("data: {data}\n\n"));
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Ok(out.write_all((head + &body).as_bytes())?)
}

/// Names of the tools that a request declares, and whether they take free text.
fn tools(api: Api, body: &Value) -> Vec<(String, bool)> {
    let list = body["tools"].as_array().cloned().unwrap_or_default();
    let list = match api {
        Api::Gemini => list
            .iter()
            .filter_map(|t| t["functionDeclarations"].as_array().cloned())
            .flatten()
            .collect::<Vec<_>>(),
        Api::Chat => list.iter().map(|t| t["function"].clone()).collect(),
        Api::Anthropic | Api::Responses => list,
    };
    list.iter().filter_map(|t| Some((t["name"].as_str()?.to_owned(), t["type"] == "custom"))).collect()
}

/// What the model does next.
enum Step {
    Say(String),
    Call { name: String, free: bool, input: Value },
}

/// The rows of a conversation: a prompt of ours, a call of a tool, or something else.
fn rows(api: Api, body: &Value) -> Vec<(Option<&'static str>, bool)> {
    let list = match api {
        Api::Anthropic | Api::Chat => &body["messages"],
        Api::Responses => &body["input"],
        Api::Gemini => &body["contents"],
    };
    list.as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(|m| {
            let text = m.to_string();
            let by_user = m["role"] == "user";
            let prompt = [WRITE, SHELL].into_iter().find(|p| by_user && text.contains(p));
            let call = match api {
                Api::Responses => m["type"].as_str().is_some_and(|t| t.ends_with("_call")),
                Api::Gemini => m["role"] == "model" && text.contains("\"functionCall\""),
                Api::Anthropic => m["role"] == "assistant" && text.contains("\"tool_use\""),
                Api::Chat => m["role"] == "assistant" && text.contains("\"tool_calls\""),
            };
            (prompt, call)
        })
        .collect()
}

fn answer(api: Api, body: &Value, tools: &[(String, bool)], folder: &Path) -> Step {
    let rows = rows(api, body);
    let done = || Step::Say(DONE.to_owned());
    // The last message is the one to answer, but for results of tools and what clients add.
    let Some(at) = rows.iter().rposition(|(p, _)| p.is_some()) else { return done() };
    let later = body.to_string();
    let answered = rows[at..].iter().any(|(_, call)| *call);
    // Another prompt came after it.
    let moved_on = later.rfind("STORY-NEXT") > later.rfind(rows[at].0.unwrap_or_default());
    if answered || moved_on || tools.is_empty() {
        return done();
    }
    let has = |name: &str| tools.iter().find(|(n, _)| n == name).map(|(n, free)| (n.clone(), *free));
    let file = |rel: &str| folder.join(rel).to_string_lossy().into_owned();
    let choices: Vec<(&str, Value)> = match rows[at].0 {
        Some(WRITE) => vec![
            ("Write", json!({"file_path": file("new.txt"), "content": "new\n"})),
            ("write_file", json!({"file_path": file("new.txt"), "content": "new\n"})),
            ("write", json!({"filePath": file("new.txt"), "content": "new\n"})),
            ("apply_patch", "*** Begin Patch\n*** Add File: new.txt\n+new\n*** End Patch".into()),
        ],
        _ => {
            let line = format!(
                "cd {} && echo changed > old.txt && rm new.txt && mkdir -p made && echo x > made/x",
                quoted(folder)
            );
            vec![
                ("Bash", json!({"command": line, "description": "a step of the story"})),
                ("run_shell_command", json!({"command": line, "description": "a step of the story"})),
                ("bash", json!({"command": line, "description": "a step of the story"})),
                ("exec_command", json!({"cmd": line})),
                ("shell_command", json!({"command": line})),
            ]
        }
    };
    choices
        .into_iter()
        .find_map(|(name, input)| has(name).map(|(name, free)| Step::Call { name, free, input }))
        .unwrap_or_else(|| Step::Say(format!("None of the tools can do it: {tools:?}")))
}

fn quoted(path: &Path) -> String {
    format!("'{}'", PathBuf::from(path).display().to_string().replace('\'', "'\\''"))
}

/// An event of a stream: its name, which may be empty, and its data.
type Event = (&'static str, Value);

fn reply(api: Api, step: &Step) -> Vec<Event> {
    match api {
        Api::Anthropic => anthropic(step),
        Api::Chat => chat(step),
        Api::Responses => responses(step),
        Api::Gemini => gemini(step),
    }
}

/// The same answer in one piece.
fn whole(api: Api, events: &[Event]) -> Value {
    match api {
        Api::Anthropic => {
            let text = json!([{"type": "text", "text": DONE}]);
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": text,
                   "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}})
        }
        Api::Chat => json!({"id": "c1", "object": "chat.completion", "created": 0, "model": "scripted",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": DONE}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}),
        Api::Responses => events.last().map(|(_, v)| v["response"].clone()).unwrap_or_default(),
        Api::Gemini => events.first().map(|(_, v)| v.clone()).unwrap_or_default(),
    }
}

fn id(prefix: &str) -> String {
    format!("{prefix}{}", unique())
}

/// Unique within the process, and unlike that of any other.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:x}x{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn anthropic(step: &Step) -> Vec<Event> {
    let usage = json!({"input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
    let message = json!({"id": id("msg_"), "type": "message", "role": "assistant", "model": "scripted", "content": [],
                         "stop_reason": null, "stop_sequence": null, "usage": usage});
    let (block, delta, stop) = match step {
        Step::Say(text) => {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}), "end_turn")
        }
        Step::Call { name, input, .. } => (
            json!({"type": "tool_use", "id": id("toolu_"), "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input.to_string()}),
            "tool_use",
        ),
    };
    vec![
        ("message_start", json!({"type": "message_start", "message": message})),
        ("content_block_start", json!({"type": "content_block_start", "index": 0, "content_block": block})),
        ("content_block_delta", json!({"type": "content_block_delta", "index": 0, "delta": delta})),
        ("content_block_stop", json!({"type": "content_block_stop", "index": 0})),
        (
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage}),
        ),
        ("message_stop", json!({"type": "message_stop"})),
    ]
}

fn chat(step: &Step) -> Vec<Event> {
    let base = |choices: Value| json!({"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": choices});
    let (delta, finish) = match step {
        Step::Say(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Step::Call { name, input, .. } => (
            json!({"role": "assistant", "tool_calls": [{"index": 0, "id": id("call_"), "type": "function",
                   "function": {"name": name, "arguments": input.to_string()}}]}),
            "tool_calls",
        ),
    };
    let mut last = base(json!([]));
    last["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20});
    vec![
        ("", base(json!([{"index": 0, "delta": delta, "finish_reason": null}]))),
        ("", base(json!([{"index": 0, "delta": {}, "finish_reason": finish}]))),
        ("", last),
        ("", "[DONE]".into()),
    ]
}

fn responses(step: &Step) -> Vec<Event> {
    let (empty, item) = match step {
        Step::Say(text) => {
            let item = json!({"type": "message", "id": id("msg_"), "role": "assistant", "status": "completed",
                              "content": [{"type": "output_text", "text": text, "annotations": []}]});
            let mut empty = item.clone();
            empty["content"] = json!([]);
            (empty, item)
        }
        Step::Call { name, free: true, input } => {
            let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            let item = json!({"type": "custom_tool_call", "id": id("ctc_"), "call_id": id("call_"), "name": name, "input": text,
                              "status": "completed"});
            (item.clone(), item)
        }
        Step::Call { name, input, .. } => {
            let item = json!({"type": "function_call", "id": id("fc_"), "call_id": id("call_"), "name": name,
                              "arguments": input.to_string(), "status": "completed"});
            (item.clone(), item)
        }
    };
    let response = |status: &str, output: Value, usage: Value| {
        json!({"id": "resp_1", "object": "response", "created_at": 0, "status": status, "model": "scripted", "output": output,
               "parallel_tool_calls": true, "error": null, "incomplete_details": null, "usage": usage})
    };
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
                       "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20});
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]), Value::Null)}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": empty}),
    ];
    if let Step::Say(text) = step {
        events.push(json!({"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0,
                           "delta": text}));
    }
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    events
        .push(json!({"type": "response.completed", "response": response("completed", json!([item]), usage)}));
    const NAMES: &[&str] = &[
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ];
    events
        .into_iter()
        .enumerate()
        .map(|(n, mut e)| {
            e["sequence_number"] = n.into();
            let name = NAMES.iter().find(|x| e["type"] == **x).copied().unwrap_or_default();
            (name, e)
        })
        .collect()
}

fn gemini(step: &Step) -> Vec<Event> {
    let part = match step {
        Step::Say(text) => json!({"text": text}),
        Step::Call { name, input, .. } => {
            json!({"functionCall": {"id": id("call_"), "name": name, "args": input}, "thoughtSignature": "c2ln"})
        }
    };
    let content = json!({"role": "model", "parts": [part]});
    vec![(
        "",
        json!({"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "modelVersion": "scripted",
               "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}}),
    )]
}

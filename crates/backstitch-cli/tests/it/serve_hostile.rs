//! `backstitch serve` and whatever comes over the wire.

use backstitch_testkit::{Rpc, generate::Rng};
use serde_json::{Value, json};

use crate::{serve::serve, support::World};

/// Answers are as if nothing had been.
fn alive(rpc: &mut Rpc) {
    assert!(rpc.ok("config/list", json!({})).unwrap()["settings"].is_array());
}

fn end(rpc: Rpc) {
    let (code, stderr) = rpc.end().unwrap();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn malformed_messages_are_told_and_passed_over() {
    let w = World::new();
    let mut rpc = serve(&w);
    let deep =
        |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000)).into_bytes();
    let cases: Vec<(Vec<u8>, i64, Value)> = vec![
        (b"{".to_vec(), -32700, Value::Null),
        (b"nonsense".to_vec(), -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\"} trailing".to_vec(), -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"li\xffst\"}".to_vec(), -32700, Value::Null),
        (b"\xef\xbb\xbf{}".to_vec(), -32700, Value::Null),
        (b"\0\0\0".to_vec(), -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1e999,\"method\":\"list\"}".to_vec(), -32700, Value::Null),
        // Half a character is read as JavaScript reads it; as a time it is nonsense.
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\",\"params\":{\"since\":\"\\ud800\"}}".to_vec(),
            -32602,
            json!(1),
        ),
        (deep("[", "]"), -32700, Value::Null),
        (deep("{\"a\":", "}"), -32700, Value::Null),
        (b"7".to_vec(), -32600, Value::Null),
        (b"null".to_vec(), -32600, Value::Null),
        (b"[]".to_vec(), -32600, Value::Null),
        (b"{}".to_vec(), -32600, Value::Null),
        (b"{\"id\":5,\"method\":\"list\"}".to_vec(), -32600, 5.into()),
        (b"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"list\"}".to_vec(), -32600, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5}".to_vec(), -32600, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}".to_vec(), -32600, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":7}".to_vec(), -32600, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"list\"}".to_vec(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"list\"}".to_vec(), -32600, Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":99999999999999999999,\"method\":\"list\"}".to_vec(),
            -32600,
            Value::Null,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":[1]}".to_vec(), -32602, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":\"x\"}".to_vec(), -32602, 5.into()),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":{\"nonsense\":1}}".to_vec(),
            -32602,
            5.into(),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":{\"limit\":\"1\"}}".to_vec(),
            -32602,
            5.into(),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":{\"limit\":-1}}".to_vec(),
            -32602,
            5.into(),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":{\"kind\":\"odd\"}}".to_vec(),
            -32602,
            5.into(),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"list\",\"params\":{\"session\":\"\"}}".to_vec(),
            -32602,
            5.into(),
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"show\"}".to_vec(), -32602, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"\"}".to_vec(), -32601, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"serve\"}".to_vec(), -32601, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"mcp\"}".to_vec(), -32601, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"help\"}".to_vec(), -32601, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"List\"}".to_vec(), -32601, 5.into()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"$/unknown\"}".to_vec(), -32601, 5.into()),
    ];
    for (line, code, id) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        rpc.line(&line).unwrap();
        let answer = rpc.next_answer().unwrap();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&code.into(), &id), "{shown}: {answer}");
        let data = &answer["error"]["data"];
        assert!(
            data["code"] == "usage" && data["hint"].is_string() && data["exit"] == 2,
            "{shown}: {answer}"
        );
    }
    // Blank lines and another end of a line are nothing.
    rpc.raw(b"\n\r\n   \n").unwrap();
    rpc.raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"crlf\",\"method\":\"config/list\"}\r\n").unwrap();
    assert_eq!(rpc.next_answer().unwrap()["id"], "crlf");
    alive(&mut rpc);
    // The last line has no end.
    rpc.raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"config/list\"}").unwrap();
    rpc.hang_up();
    assert_eq!(rpc.next_answer().unwrap()["id"], "last");
    end(rpc);
}

#[test]
fn ids_come_back_as_they_were() {
    let w = World::new();
    let mut rpc = serve(&w);
    for id in [
        json!(0),
        json!(-7),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("ä\u{0}\n"),
        json!(null),
        json!("1"),
        json!("x".repeat(100_000)),
    ] {
        rpc.line(json!({"jsonrpc": "2.0", "id": id, "method": "config/path"}).to_string()).unwrap();
        assert_eq!(rpc.next_answer().unwrap()["id"], id);
    }
    // The same id again, while the first call may still run: both are answered.
    for _ in 0..2 {
        rpc.line(json!({"jsonrpc": "2.0", "id": 1, "method": "config/path"}).to_string()).unwrap();
    }
    assert_eq!(rpc.next_answer().unwrap()["id"], rpc.next_answer().unwrap()["id"]);
    end(rpc);
}

#[test]
fn notifications_are_carried_out_and_not_answered() {
    let w = World::new();
    let mut rpc = serve(&w);
    rpc.notify("checkpoint/create", json!({"label": "quiet"})).unwrap();
    rpc.notify("checkpoint/create", json!({"nonsense": true})).unwrap();
    rpc.notify("nonsense", json!({})).unwrap();
    rpc.notify("$/unknown", json!({})).unwrap();
    rpc.notify("turn/begin", json!({"session": "s"})).unwrap();
    let wait = rpc.request("turn/end", json!({"session": "s"})).unwrap();
    assert_eq!(rpc.next_answer().unwrap()["id"], wait, "the only answer");
    assert_eq!(rpc.ok("list", json!({})).unwrap()["checkpoints"].as_array().unwrap().len(), 3);
    end(rpc);
}

#[test]
fn nothing_comes_before_initialize() {
    let w = World::new();
    let mut rpc = Rpc::start(w.cli.command(&w.ws, ["serve"])).unwrap();
    for method in ["list", "checkpoint/create", "turn/begin", "session/open", "shutdown"] {
        let e = rpc.fails(method, json!({})).unwrap();
        assert_eq!(e["code"], -32002, "{method}");
    }
    rpc.notify("checkpoint/create", json!({})).unwrap();
    let hello = rpc.ok("initialize", json!({"client": "x", "version": "1"})).unwrap();
    assert_eq!((&hello["name"], &hello["protocol"]), (&"backstitch".into(), &1.into()));
    assert!(hello["version"].as_str().unwrap().starts_with("0."));
    assert_eq!(rpc.fails("list", json!({})).unwrap()["data"]["code"], "no-such-store");
    end(rpc);
}

#[test]
fn batches() {
    let w = World::new();
    let mut rpc = serve(&w);
    let r = |id: Value, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
    let n = json!({"jsonrpc": "2.0", "method": "config/list"});
    rpc.line(
        json!([
            r(1.into(), "config/path"),
            n,
            7,
            [],
            r("x".into(), "nonsense"),
            r(2.into(), "checkpoint/create")
        ])
        .to_string(),
    )
    .unwrap();
    let all = rpc.next_answer().unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 5, "{all:?}");
    let of = |id: Value| all.iter().find(|a| a["id"] == id).unwrap();
    assert!(of(1.into())["result"].is_object() && of(2.into())["result"]["checkpoint"].is_object());
    assert_eq!(of("x".into())["error"]["code"], -32601);
    assert_eq!(all.iter().filter(|a| a["error"]["code"] == -32600 && a["id"].is_null()).count(), 2);
    // Only notifications: nothing comes.
    rpc.line(json!([n, n]).to_string()).unwrap();
    alive(&mut rpc);
    // A batch may end the conversation; all of it is answered.
    rpc.line(json!([r(8.into(), "shutdown"), r(9.into(), "config/path")]).to_string()).unwrap();
    assert_eq!(rpc.next_answer().unwrap().as_array().unwrap().len(), 2);
    end(rpc);
}

#[test]
fn a_huge_line_is_passed_over_in_bounded_memory() {
    let w = World::new();
    let mut rpc = serve(&w);
    let chunk = vec![b'a'; 1 << 20];
    rpc.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"").unwrap();
    for _ in 0..100 {
        rpc.raw(&chunk).unwrap();
    }
    rpc.raw(b"\"}\n").unwrap();
    let answer = rpc.next_answer().unwrap();
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32600), &Value::Null), "{answer}");
    alive(&mut rpc);
    // Short in bytes, huge once read; a batch whose answers would be huge.
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\"}";
    for bomb in [
        format!("[{}0]", "0,".repeat(4 << 20 >> 1)),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"diff\",\"params\":{{\"paths\":[{}\"\"]}}}}",
            "\"\",".repeat(1 << 20)
        ),
        format!("[{}]", vec![call; 5_000].join(",")),
    ] {
        rpc.line(bomb).unwrap();
        let answer = rpc.next_answer().unwrap();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32600), &Value::Null), "{answer}");
    }
    let most = rpc.most_memory().unwrap();
    assert!(most < 96 << 20, "{most}");
    // One that just fits is read.
    let prompt = "p".repeat(7 << 20);
    rpc.ok("turn/begin", json!({"session": "s", "prompt": prompt, "wait": true})).unwrap();
    // One without an end, too.
    rpc.raw(&vec![b' '; 9 << 20]).unwrap();
    rpc.hang_up();
    assert_eq!(rpc.next_answer().unwrap()["error"]["code"], -32600);
    end(rpc);
}

#[test]
fn a_flood_is_answered_or_refused_and_ends() {
    let w = World::new();
    let mut rpc = serve(&w);
    const MANY: u64 = 3_000;
    let ids: Vec<u64> = (0..MANY).map(|_| rpc.request("config/path", json!({})).unwrap()).collect();
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..MANY {
        let a = rpc.next_answer().unwrap();
        assert!(a["result"].is_object() || a["error"]["data"]["code"] == "busy", "{a}");
        answered.push(a["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, ids);
    assert!(rpc.most_memory().unwrap() < 256 << 20);
    alive(&mut rpc);
    end(rpc);
}

#[test]
fn noise_ends_nothing() {
    let w = World::new();
    let mut rpc = serve(&w);
    let seeds = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "list", "params": {"limit": 3, "all": true}}).to_string(),
        json!({"jsonrpc": "2.0", "id": "x", "method": "turn/wait", "params": {"key": "k", "session": "s"}}).to_string(),
        json!([{"jsonrpc": "2.0", "id": 2, "method": "config/get", "params": {"key": "budget"}}]).to_string(),
        json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 3, "method": "diff", "params": {"paths": ["a", {"path_base64": "/w=="}]}}).to_string(),
    ];
    let mut rng = Rng::new(1);
    let mut random = |below: usize| rng.below(below);
    for n in 0..3_000 {
        let mut bytes = seeds[n % seeds.len()].clone().into_bytes();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes[at] = u8::try_from(random(256)).unwrap(),
                1 => {
                    bytes.remove(at);
                }
                2 => bytes.insert(at, b"{}[]\",:0-"[random(9)]),
                3 => bytes.truncate(at.max(1)),
                _ => {
                    let part = bytes[at..].to_vec();
                    bytes.extend(part);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        // A method that ends the conversation, or a line feed, would only end this test.
        bytes.retain(|b| *b != b'\n');
        rpc.line(&bytes).unwrap();
    }
    alive(&mut rpc);
    end(rpc);
}

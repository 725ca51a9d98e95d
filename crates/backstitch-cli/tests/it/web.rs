//! The page: who is answered, and what it does.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{sessions::Agent, support::World, terminal::two_turns};

/// `backstitch ui`, running.
pub struct Served {
    child: Child,
    pub url: String,
    pub port: u16,
    token: String,
}

impl Served {
    pub fn start(w: &World, args: &[&str]) -> Served {
        let words = [&["ui", "--json"], args].concat();
        let mut child = w.cli.command(&w.ws, words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let v: Value = serde_json::from_str(&line).unwrap();
        let url = v["url"].as_str().unwrap().to_owned();
        let token = url.split("token=").nth(1).unwrap().to_owned();
        let port = v["port"].as_u64().unwrap().try_into().unwrap();
        Served { child, url, port, token }
    }

    /// Bytes as they are; status, head and body of the answer.
    fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, String) {
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(n, v)| text.push_str(&format!("{n}: {v}\r\n")));
        self.raw(&format!("{text}\r\n{body}"))
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// As the page calls.
    fn call(&self, method: &str, params: &Value) -> (u16, Value) {
        let (host, path) = (self.host(), format!("/call/{method}"));
        let headers =
            [("Host", &*host), ("X-Backstitch-Token", &self.token), ("Content-Type", "application/json")];
        let (status, _, body) = self.request("POST", &path, &headers, &params.to_string());
        (status, serde_json::from_str(&body).unwrap())
    }

    fn done(&self, method: &str, params: &Value) -> Value {
        let (status, v) = self.call(method, params);
        assert_eq!(status, 200, "{method} {params} {v}");
        v
    }

    /// Ends it as Ctrl-C does.
    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Of a test that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_the_token_nothing_is_said() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let (host, path) = (s.host(), s.url.split_once(&format!(":{}", s.port)).unwrap().1.to_owned());
    assert!(s.token.len() == 64 && s.url.starts_with("http://127.0.0.1:"), "{}", s.url);
    let json = ("Content-Type", "application/json");
    for (method, path, headers) in [
        ("GET", "/", vec![]),
        ("GET", "/?token=", vec![]),
        ("GET", "/?token=0000000000000000000000000000000000000000000000000000000000000000", vec![]),
        ("GET", "/favicon.ico", vec![]),
        ("GET", "/call/list", vec![]),
        ("POST", "/call/list", vec![json]),
        ("POST", "/call/rewind/apply", vec![json, ("X-Backstitch-Token", "x")]),
        // The token of the address opens the page, and nothing else.
        ("POST", &format!("/call/list{}", &path[1..]), vec![json]),
        ("OPTIONS", "/call/list", vec![("Access-Control-Request-Method", "POST")]),
    ] {
        let headers: Vec<_> = [("Host", &*host)].into_iter().chain(headers).collect();
        let (status, head, body) = s.request(method, path, &headers, "{}");
        assert_eq!(status, 403, "{method} {path}\n{head}");
        assert!(
            !body.contains("do k") && !head.to_lowercase().contains("access-control-allow"),
            "{head}{body}"
        );
    }
    assert_eq!(s.request("GET", &path, &[("Host", &host)], "").0, 200);
    s.end();
}

#[test]
fn another_page_is_refused_whatever_it_knows() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let (host, json) = (s.host(), ("Content-Type", "application/json"));
    let token = ("X-Backstitch-Token", &*s.token);
    let evil = format!("evil.example:{}", s.port);
    for headers in [
        // A name that was made to mean this machine.
        vec![("Host", &*evil), token, json],
        vec![("Host", "evil.example"), token, json],
        vec![token, json],
        vec![("Host", &*host), ("Host", "evil.example"), token, json],
        vec![("Host", &*host), ("Origin", "http://evil.example"), token, json],
        vec![("Host", &*host), ("Origin", "null"), token, json],
    ] {
        let (status, _, body) = s.request("POST", "/call/list", &headers, "{}");
        assert!(matches!(status, 400 | 403), "{headers:?} {status}");
        assert!(!body.contains("do k"), "{body}");
    }
    let own = format!("http://{host}");
    let headers = [("Host", &*host), ("Origin", &*own), token, json];
    assert_eq!(s.request("POST", "/call/list", &headers, "{}").0, 200);
    s.end();
}

#[test]
fn only_posts_of_json_are_calls_and_only_the_pages_own() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let (host, token) = (s.host(), ("X-Backstitch-Token", &*s.token));
    let json = ("Content-Type", "application/json");
    let base = [("Host", &*host), token];
    for (method, path, extra, body, want) in [
        ("GET", "/call/list", Some(json), "", 405),
        ("PUT", "/call/rewind/apply", Some(json), "{}", 405),
        ("POST", "/call/list", None, "{}", 415),
        ("POST", "/call/list", Some(("Content-Type", "text/plain")), "{}", 415),
        ("POST", "/call/list", Some(json), "[]", 400),
        ("POST", "/call/list", Some(json), "{", 400),
        ("POST", "/call/list", Some(json), "{\"nonsense\":1}", 400),
        ("POST", "/elsewhere", Some(json), "{}", 404),
        ("GET", "/../etc/passwd", None, "", 404),
    ] {
        let headers: Vec<_> = base.iter().copied().chain(extra).collect();
        assert_eq!(s.request(method, path, &headers, body).0, want, "{method} {path} {body}");
    }
    // What is not for a page is not there, nor is another folder.
    for method in
        ["forget", "gc", "export", "rewind", "restore", "undo", "config/set", "session/purge", "initialize"]
    {
        assert_eq!(s.call(method, &json!({})).0, 400, "{method}");
    }
    for params in [json!({"workspace": "/"}), json!({"store_dir": "/x"}), json!({"as_person": true})] {
        assert_eq!(s.call("list", &params).0, 400, "{params}");
    }
    let long = format!("{{\"session\":\"{}\"}}", "x".repeat(1 << 20));
    let headers: Vec<_> = base.iter().copied().chain([json]).collect();
    assert_eq!(s.request("POST", "/call/list", &headers, &long).0, 413);
    s.end();
}

#[test]
fn the_page_allows_only_its_own_script() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let path = s.url.split_once(&format!(":{}", s.port)).unwrap().1.to_owned();
    let (status, head, body) = s.request("GET", &path, &[("Host", &s.host())], "");
    assert_eq!(status, 200, "{head}");
    let policy = head.lines().find_map(|l| l.strip_prefix("Content-Security-Policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(nonce.len() == 32 && body.contains(&format!("<script nonce=\"{nonce}\">")), "{policy}");
    assert!(!body.contains(&s.token), "the address is enough");
    for header in [
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
        "Cache-Control: no-store",
    ] {
        assert!(head.contains(header), "{head}");
    }
    s.end();
}

#[test]
fn a_plan_is_applied_by_its_digest_and_undone() {
    let w = two_turns();
    let s = Served::start(&w, &["--no-open"]);
    let params = json!({"to": "turn:2", "session": "s"});
    let plan = s.done("rewind/plan", &params);
    assert!(plan["dry_run"] == true && w.read("a.txt") == "2\n", "{plan}");
    // Something else, nothing at all, and not any more.
    assert_eq!(s.call("rewind/apply", &json!({"plan": "0000"})).0, 400);
    assert_eq!(s.call("rewind/apply", &json!({})).0, 400);
    w.write("a.txt", "meanwhile\n");
    let (status, v) = s.call("rewind/apply", &json!({"plan": plan["plan"]}));
    assert_eq!((status, v["error"]["code"].as_str()), (409, Some("plan-changed")), "{v}");
    assert_eq!(w.read("a.txt"), "meanwhile\n");
    w.write("a.txt", "2\n");
    let plan = s.done("rewind/plan", &params);
    let out = s.done("rewind/apply", &json!({"plan": plan["plan"]}));
    assert!(out["verified"] == true && w.read("a.txt") == "1\n", "{out}");
    let plan = s.done("undo/plan", &json!({}));
    assert_eq!(w.read("a.txt"), "1\n");
    s.done("undo/apply", &json!({"plan": plan["plan"]}));
    assert_eq!(w.read("a.txt"), "2\n");
    s.end();
}

#[test]
fn the_whole_tree_of_a_checkpoint_is_read_folder_by_folder() {
    let (w, id) = World::recorded();
    let s = Served::start(&w, &[]);
    let names = |v: &Value| -> Vec<String> {
        let list = v["entries"].as_array().unwrap().iter();
        list.map(|e| format!("{} {}", e["type"].as_str().unwrap(), e["path"].as_str().unwrap())).collect()
    };
    let top = s.done("files", &json!({"checkpoint": id}));
    assert_eq!(names(&top), ["file a.txt", "file bin", "file run.sh", "directory sub"]);
    let sub = s.done("files", &json!({"checkpoint": id, "path": "sub"}));
    assert_eq!(names(&sub), ["file sub/b.txt"]);
    // Then, and not now.
    w.write("a.txt", "later\n");
    let file = s.done("cat", &json!({"what": format!("{id}:a.txt")}));
    assert_eq!(file["content_base64"], backstitch::paths::base64(b"one\ntwo\nthree\n").as_str());
    // Nothing else can be read in this way.
    for what in ["../../etc/passwd", "/etc/passwd", ".git/config", "nothing"] {
        let (status, v) = s.call("cat", &json!({"what": format!("{id}:{what}")}));
        assert!(matches!(status, 404 | 409), "{what}: {status} {v}");
        let (status, v) = s.call("files", &json!({"checkpoint": id, "path": what}));
        assert!(matches!(status, 404 | 409), "{what}: {status} {v}");
    }
    s.end();
}

#[test]
fn names_that_are_no_text_are_named_byte_by_byte() {
    use std::os::unix::ffi::OsStrExt;
    let w = World::new();
    let dir = std::ffi::OsStr::from_bytes(b"d\xff");
    std::fs::create_dir(w.ws.join(dir)).unwrap();
    std::fs::write(w.ws.join(dir).join("f"), "here\n").unwrap();
    let id = w.save(&[]);
    let s = Served::start(&w, &[]);
    let b64 = backstitch::paths::base64;
    let d = s.done("files", &json!({"checkpoint": id, "path": {"path_base64": b64(b"d\xff")}}));
    assert_eq!(d["entries"][0]["path_base64"], b64(b"d\xff/f").as_str());
    let what = [id.as_bytes(), b":d\xff/f"].concat();
    let file = s.done("cat", &json!({"what": {"path_base64": b64(&what)}}));
    assert_eq!(file["content_base64"], b64(b"here\n").as_str());
    s.end();
}

/// Whoever has no token, or takes no part in the conversation, keeps nobody else waiting.
#[test]
fn strangers_that_send_nothing_more_stop_nobody() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let (host, all) = (s.host(), s.done("status", &json!({}))["checkpoints"].clone());
    let mut open = Vec::new();
    for n in 0..12 {
        let mut stream = TcpStream::connect(("127.0.0.1", s.port)).unwrap();
        let text = match n % 4 {
            0 => String::new(),
            1 => "POST /call/list HT".to_owned(),
            2 => format!("POST /call/list HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n{{"),
            _ => "POST / HTTP/1.1\r\nHost: evil\r\nContent-Length: 18446744073709551615\r\n\r\n".to_owned(),
        };
        stream.write_all(text.as_bytes()).unwrap();
        open.push(stream);
    }
    for _ in 0..8 {
        assert_eq!(s.done("status", &json!({}))["checkpoints"], all);
    }
    // One with the token that says how much it will send, and does not.
    let token = &s.token;
    let head = format!(
        "POST /call/list HTTP/1.1\r\nHost: {host}\r\nX-Backstitch-Token: {token}\r\nContent-Type: application/json\r\n"
    );
    let mut slow = TcpStream::connect(("127.0.0.1", s.port)).unwrap();
    slow.write_all(format!("{head}Content-Length: 9\r\n\r\n{{").as_bytes()).unwrap();
    assert_eq!(s.raw(&format!("{head}Content-Length: 99999999999999999999\r\n\r\n")).0, 413);
    assert_eq!(s.raw(&format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")).0, 411);
    assert_eq!(s.raw(&format!("{head}X: {}\r\n\r\n", "x".repeat(20_000))).0, 431);
    assert_eq!(s.raw("\x16\x03\x01\x02\r\n\r\n").0, 400);
    assert_eq!(s.done("status", &json!({}))["checkpoints"], all);
    // Nor do they keep it from ending.
    s.end();
    drop((open, slow));
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let w = two_turns();
    let s = Served::start(&w, &[]);
    let e = w.fails(1, &["ui", "--port", &s.port.to_string()]);
    assert!(e["hint"].as_str().unwrap().contains("--port"), "{e}");
    s.end();
    let empty = World::new();
    assert_eq!(empty.fails(4, &["ui"])["code"], "no-such-store");
}

/// A world whose names and texts try to be markup.
pub fn hostile() -> World {
    let (w, _) = World::recorded();
    let agent = Agent { w: &w, id: "s" };
    let prompt = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    agent.run(&["turn", "begin", "--key", "k", "--prompt", prompt]);
    agent.write(
        "c",
        "<img src=x onerror=document.title='owned'>.txt",
        "</pre><script>document.title='owned'</script>\n",
    );
    agent.write("d", "a.txt", "one\nTWO\nthree\n");
    agent.end();
    w
}

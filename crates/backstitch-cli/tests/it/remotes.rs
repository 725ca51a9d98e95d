//! `sync` over http and ssh: git's own server behind a loopback of the test, and ssh whose other side is a command here.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use backstitch_testkit::{Git, cli::Run, require};
use serde_json::Value;

use crate::support::World;

fn bare(w: &World) -> PathBuf {
    let dir = w.top.join("remotes/r.git");
    fs::create_dir_all(&dir).unwrap();
    let git = Git::new().unwrap();
    git.run(&dir, ["init", "-q", "--bare"]).unwrap();
    git.run(&dir, ["config", "http.receivepack", "true"]).unwrap();
    dir
}

fn refs(remote: &Path) -> usize {
    let all = Git::new().unwrap().run(remote, ["for-each-ref", "--format=%(refname)"]).unwrap();
    all.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count()
}

fn rows(w: &World) -> usize {
    w.json(&["list", "--all"])["checkpoints"].as_array().unwrap().len()
}

#[track_caller]
fn refused(run: &Run, code: &str, words: &str) {
    assert_eq!(run.code, Some(if code == "remote" { 1 } else { 5 }), "{run}");
    assert_eq!(run.error_code().as_deref(), Some(code), "{run}");
    assert!(run.stderr.contains(words), "{words}: {run}");
}

/// How the server behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Wants a name and a word.
    Guarded,
    /// Ends the connection in the middle of an answer of this service.
    Cuts(&'static str),
    /// Takes everything and answers nothing.
    Mute(&'static str),
}

/// git http-backend on a port of its own, until it is dropped.
struct Server {
    port: u16,
    asked: Arc<AtomicUsize>,
}

fn backend() -> Option<PathBuf> {
    let path = Command::new("git").arg("--exec-path").output().ok()?.stdout;
    let dir = PathBuf::from(String::from_utf8(path).ok()?.trim());
    (dir.join("git-remote-http").exists() && dir.join("git-http-backend").exists())
        .then(|| dir.join("git-http-backend"))
}

type Head = Vec<(String, String)>;

/// The first line of a message, its head by lower-case names, and its body.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Head, Vec<u8>)> {
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).ok().filter(|n| *n > 0)?;
        Some(text.trim_end().to_owned())
    };
    let first = line()?;
    let mut head = Vec::new();
    loop {
        let text = line()?;
        let Some((name, value)) = text.split_once(':') else { break };
        head.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let find = |name: &str| head.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let mut body = Vec::new();
    if find("expect").is_some() {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if let Some(n) = find("content-length") {
        body.resize(n.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if find("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let n = usize::from_str_radix(size.trim(), 16).ok()?;
            let from = body.len();
            body.resize(from + n, 0);
            reader.read_exact(&mut body[from..]).ok()?;
            reader.read_line(&mut String::new()).ok()?;
            if n == 0 {
                break;
            }
        }
    }
    Some((first, head, body))
}

fn serve(stream: TcpStream, root: &Path, backend: &Path, manner: Manner) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (first, head, body) = request(&mut reader)?;
    let find = |name: &str| head.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or("");
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut out = reader.into_inner();
    // "user:word" in base 64.
    if manner == Manner::Guarded && find("authorization") != "Basic dXNlcjp3b3Jk" {
        let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"r\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return out.write_all(answer.as_bytes()).ok();
    }
    if matches!(manner, Manner::Mute(service) if path.ends_with(service)) {
        return Some(());
    }
    let mut child = Command::new(backend)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", root)
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", find("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", find("content-encoding"))
        .env("GIT_PROTOCOL", find("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let feed = std::thread::spawn(move || {
        let _ = stdin.write_all(&body);
    });
    let mut said = Vec::new();
    child.stdout.take()?.read_to_end(&mut said).ok()?;
    feed.join().ok()?;
    child.wait().ok()?;
    let at = said.windows(4).position(|w| w == b"\r\n\r\n")?;
    let (head, body) = (String::from_utf8_lossy(&said[..at]).into_owned(), &said[at + 4..]);
    let status = head.lines().find_map(|l| l.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest: String =
        head.lines().filter(|l| !l.starts_with("Status:")).map(|l| format!("{l}\r\n")).collect();
    let answer =
        format!("HTTP/1.1 {status}\r\n{rest}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    out.write_all(answer.as_bytes()).ok()?;
    let cut = matches!(manner, Manner::Cuts(service) if path.ends_with(service));
    out.write_all(if cut { &body[..body.len() / 2] } else { body }).ok()
}

impl Server {
    fn new(root: &Path, backend: &Path, manner: Manner) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let (root, backend, count) = (root.to_owned(), backend.to_owned(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The last visitor only wants this to end.
                if count.fetch_add(1, Ordering::SeqCst) >= usize::MAX / 2 {
                    break;
                }
                let (root, backend) = (root.clone(), backend.clone());
                std::thread::spawn(move || serve(stream, &root, &backend, manner));
            }
        });
        Server { port, asked }
    }

    fn address(&self, user: &str) -> String {
        format!("http://{user}127.0.0.1:{}/r.git", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.asked.store(usize::MAX / 2, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// No proxy of whoever runs the tests.
fn alone(w: &mut World) {
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        w.cli.env(name, "");
    }
    w.cli.env("no_proxy", "127.0.0.1");
}

fn two() -> (World, World, PathBuf) {
    let (mut a, mut b) = (World::new(), World::new());
    alone(&mut a);
    alone(&mut b);
    // More than git sends in one piece of known length.
    let noise: Vec<u8> =
        (0..1_500_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    a.write("noise", noise);
    a.save(&[]);
    a.write("a.txt", "changed\n");
    a.save(&["--session", "s"]);
    let remote = bare(&a);
    (a, b, remote)
}

#[test]
fn over_http_there_and_back() {
    let backend = backend();
    require!(backend.is_some(), "git was built without http");
    let (a, b, remote) = two();
    let server = Server::new(remote.parent().unwrap(), &backend.unwrap(), Manner::Good);
    let at = server.address("");
    let sent = a.json(&["sync", "push", &at]);
    assert_eq!(sent["checkpoints"].as_array().unwrap().len(), rows(&a));
    assert_eq!(refs(&remote), rows(&a));
    assert_eq!(a.json(&["sync", "push", &at])["checkpoints"], Value::Array(vec![]));
    let got = b.json(&["sync", "pull", &at]);
    assert_eq!(got["checkpoints"].as_array().unwrap().len(), rows(&a));
    b.json(&["restore", "@"]);
    assert_eq!(b.read("a.txt"), "changed\n");
    b.write("b.txt", "from there\n");
    b.save(&["--session", "s"]);
    b.json(&["sync", "push", &at]);
    a.json(&["sync", "pull", &at]);
    a.json(&["restore", "@"]);
    assert_eq!(a.read("b.txt"), "from there\n");
}

#[test]
fn over_http_a_word_is_asked_for_and_never_shown() {
    let backend = backend();
    require!(backend.is_some(), "git was built without http");
    let (a, b, remote) = two();
    let server = Server::new(remote.parent().unwrap(), &backend.unwrap(), Manner::Guarded);
    for at in [server.address(""), server.address("user:wrong@")] {
        let run = a.cli.json(&a.ws, ["sync", "push", &at]).unwrap();
        refused(&run, "remote", "127.0.0.1");
        assert!(!run.stderr.contains("wrong"), "{run}");
    }
    assert_eq!(refs(&remote), 0);
    a.json(&["sync", "push", &server.address("user:word@")]);
    let before = rows(&a);
    assert_eq!(refs(&remote), before);
    let run = b.cli.json(&b.ws, ["sync", "pull", &server.address("")]).unwrap();
    refused(&run, "remote", "127.0.0.1");
    b.json(&["sync", "pull", &server.address("user:word@")]);
    assert_eq!(rows(&b), before);
}

/// Whatever the connection does, both sides stay whole, and the next try over a good one does the rest.
#[test]
fn over_http_a_connection_that_ends_in_the_middle_loses_nothing() {
    let backend = backend();
    require!(backend.is_some(), "git was built without http");
    let backend = backend.unwrap();
    for manner in [
        Manner::Cuts("/info/refs"),
        Manner::Cuts("/git-receive-pack"),
        Manner::Mute("/info/refs"),
        Manner::Mute("/git-receive-pack"),
    ] {
        let (a, _, remote) = two();
        let server = Server::new(remote.parent().unwrap(), &backend, manner);
        let run = a.cli.json(&a.ws, ["sync", "push", &server.address("")]).unwrap();
        refused(&run, "remote", "127.0.0.1");
        Git::new().unwrap().fsck_strict(&remote).unwrap();
        let good = Server::new(remote.parent().unwrap(), &backend, Manner::Good);
        a.json(&["sync", "push", &good.address("")]);
        assert_eq!(refs(&remote), rows(&a));
    }
    for manner in
        [Manner::Cuts("/info/refs"), Manner::Cuts("/git-upload-pack"), Manner::Mute("/git-upload-pack")]
    {
        let (a, b, remote) = two();
        let good = Server::new(remote.parent().unwrap(), &backend, Manner::Good);
        a.json(&["sync", "push", &good.address("")]);
        let server = Server::new(remote.parent().unwrap(), &backend, manner);
        b.save(&[]);
        let run = b.cli.json(&b.ws, ["sync", "pull", &server.address("")]).unwrap();
        refused(&run, "remote", "127.0.0.1");
        assert_eq!(rows(&b), 1);
        assert_eq!(b.json(&["verify"])["ok"], true);
        b.json(&["sync", "pull", &good.address("")]);
        assert_eq!(rows(&b), 1 + rows(&a));
        assert_eq!(b.json(&["verify"])["ok"], true);
    }
}

/// An ssh whose other side is a shell here.
fn ssh(w: &mut World, script: &str) {
    let file = w.top.join("ssh");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    w.cli.env("GIT_SSH_COMMAND", &file).env("GIT_SSH_VARIANT", "simple");
}

/// The other side's answers end after so many bytes, and with them the connection.
fn ends_after(bytes: usize) -> String {
    format!("shift; mkfifo \"$0.$$\"; sh -c \"$*\" <&0 >\"$0.$$\" & exec head -c {bytes} <\"$0.$$\"")
}

const RUN: &str = "shift; exec sh -c \"$*\"";

#[test]
fn over_ssh_there_and_back() {
    let (mut a, mut b, remote) = two();
    ssh(&mut a, RUN);
    ssh(&mut b, RUN);
    let at = format!("somewhere:{}", remote.display());
    a.json(&["sync", "push", &at]);
    assert_eq!(refs(&remote), rows(&a));
    let got = b.json(&["sync", "pull", &format!("ssh://me@somewhere{}", remote.display())]);
    assert_eq!(got["checkpoints"].as_array().unwrap().len(), rows(&a));
    // A connection that stays open for the next one holds git's pipes, and not us. It ends with the file.
    let flag = b.top.join("stays");
    fs::write(&flag, "").unwrap();
    ssh(
        &mut b,
        &format!("(while [ -e '{}' ]; do sleep 0.1; done) </dev/null >/dev/null & {RUN}", flag.display()),
    );
    b.save(&[]);
    let run = b.cli.json(&b.ws, ["sync", "push", &at]);
    fs::remove_file(&flag).unwrap();
    run.unwrap().ok().unwrap();
}

#[test]
fn over_ssh_what_fails_is_told_and_loses_nothing() {
    let (mut a, mut b, remote) = two();
    let at = format!("somewhere:{}", remote.display());
    ssh(&mut a, "echo 'me@somewhere: Permission denied (publickey).' >&2; exit 255");
    let run = a.cli.json(&a.ws, ["sync", "push", &at]).unwrap();
    refused(&run, "remote", "Permission denied (publickey)");
    // The connection ends after so many bytes, on the way there and on the way back.
    for bytes in [0, 4, 100, 1000, 20_000] {
        for script in [format!("shift; head -c {bytes} | sh -c \"$*\""), ends_after(bytes)] {
            ssh(&mut a, &script);
            let run = a.cli.json(&a.ws, ["sync", "push", &at]).unwrap();
            // Where all went there before the end came, git may have got its answer.
            if run.code != Some(0) {
                refused(&run, "remote", "somewhere");
            }
            Git::new().unwrap().fsck_strict(&remote).unwrap();
        }
    }
    ssh(&mut a, RUN);
    a.json(&["sync", "push", &at]);
    assert_eq!(refs(&remote), rows(&a));
    b.save(&[]);
    for bytes in [0, 4, 100, 1000, 20_000] {
        ssh(&mut b, &ends_after(bytes));
        let run = b.cli.json(&b.ws, ["sync", "pull", &at]).unwrap();
        refused(&run, "remote", "somewhere");
        assert_eq!(rows(&b), 1, "{bytes}");
    }
    ssh(&mut b, RUN);
    b.json(&["sync", "pull", &at]);
    assert_eq!(rows(&b), 1 + rows(&a));
    assert_eq!(b.json(&["verify"])["ok"], true);
}

#[test]
fn an_agent_does_not_send_what_is_recorded() {
    let (a, _, remote) = two();
    let at = remote.to_str().unwrap();
    let run = |words: &[&str]| {
        let mut c = a.cli.command(&a.ws, words.iter().chain(&["--json"]));
        c.env("BACKSTITCH_SESSION", "s").output().unwrap()
    };
    for words in [&["sync", "push", at][..], &["sync", "push", "--dry-run", at]] {
        let out = run(words);
        assert_eq!(out.status.code(), Some(5));
        assert!(String::from_utf8_lossy(&out.stderr).contains("agent-context"));
    }
    assert_eq!(refs(&remote), 0);
    assert!(run(&["sync", "push", at, "--as-person"]).status.success());
    assert_eq!(refs(&remote), rows(&a));
    // What others sent may be fetched.
    assert!(run(&["sync", "pull", at]).status.success());
}

//! A host that talks to the program in JSON, one message a line.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

/// A running server and both ends of its pipes. Ended when dropped.
#[derive(Debug)]
pub struct Rpc {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: mpsc::Receiver<Vec<u8>>,
    stderr: mpsc::Receiver<String>,
    next: u64,
    answers: Vec<Value>,
    notes: VecDeque<Value>,
    /// Whoever waits longer than this for a message is told so.
    pub timeout: Duration,
}

impl Rpc {
    /// Starts it.
    pub fn start(mut command: Command) -> io::Result<Rpc> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (send, messages) = mpsc::channel();
        let out = child.stdout.take();
        std::thread::spawn(move || {
            let Some(out) = out else { return };
            let mut out = BufReader::new(out);
            loop {
                let mut line = Vec::new();
                match out.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) if send.send(line).is_err() => return,
                    Ok(_) => {}
                }
            }
        });
        let (send, stderr) = mpsc::channel();
        let err = child.stderr.take();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut err) = err {
                // What came is what there is.
                let _ = err.read_to_end(&mut bytes);
            }
            let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        let stdin = child.stdin.take();
        Ok(Rpc {
            child,
            stdin,
            messages,
            stderr,
            next: 0,
            answers: Vec::new(),
            notes: VecDeque::new(),
            timeout: Duration::from_secs(60),
        })
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
        stdin.write_all(bytes)?;
        stdin.flush()
    }

    /// Sends a line.
    pub fn line(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        let mut line = text.as_ref().to_vec();
        line.push(b'\n');
        self.raw(&line)
    }

    /// Sends a request; returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> io::Result<u64> {
        self.next += 1;
        let id = self.next;
        self.line(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())?;
        Ok(id)
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) -> io::Result<()> {
        self.line(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
    }

    /// The next message of any kind.
    pub fn read(&mut self) -> io::Result<Value> {
        let line = self
            .messages
            .recv_timeout(self.timeout)
            .map_err(|e| io::Error::other(format!("no message: {e}")))?;
        serde_json::from_slice(&line)
            .map_err(|e| io::Error::other(format!("{e}: {:?}", String::from_utf8_lossy(&line))))
    }

    /// The next message that is no notification.
    pub fn next_answer(&mut self) -> io::Result<Value> {
        if !self.answers.is_empty() {
            return Ok(self.answers.remove(0));
        }
        loop {
            let m = self.read()?;
            if m.get("method").is_none() {
                return Ok(m);
            }
            self.notes.push_back(m);
        }
    }

    /// The answer to this request, whatever comes before it.
    pub fn answer(&mut self, id: u64) -> io::Result<Value> {
        let mine = |m: &Value| m.get("id") == Some(&id.into());
        if let Some(at) = self.answers.iter().position(mine) {
            return Ok(self.answers.remove(at));
        }
        loop {
            let m = self.read()?;
            if m.get("method").is_some() {
                self.notes.push_back(m);
            } else if mine(&m) {
                return Ok(m);
            } else {
                self.answers.push(m);
            }
        }
    }

    /// No answer has come yet to this request, though what was sent after it was answered.
    pub fn is_open(&self, id: u64) -> bool {
        !self.answers.iter().any(|m| m.get("id") == Some(&id.into()))
    }

    /// Calls; the result, or the error.
    pub fn call(&mut self, method: &str, params: Value) -> io::Result<Result<Value, Value>> {
        let id = self.request(method, params)?;
        let mut m = self.answer(id)?;
        Ok(match m.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(m["error"].take()),
        })
    }

    /// Calls; an error is one.
    pub fn ok(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.call(method, params)?.map_err(|e| io::Error::other(format!("{method}: {e}")))
    }

    /// Calls; a result is an error.
    pub fn fails(&mut self, method: &str, params: Value) -> io::Result<Value> {
        match self.call(method, params)? {
            Ok(v) => Err(io::Error::other(format!("{method} did not fail: {v}"))),
            Err(e) => Ok(e),
        }
    }

    /// The next notification of this method.
    pub fn note(&mut self, method: &str) -> io::Result<Value> {
        let wanted = |m: &Value| m.get("method").and_then(Value::as_str) == Some(method);
        if let Some(at) = self.notes.iter().position(wanted) {
            return Ok(self.notes.remove(at).unwrap_or_default());
        }
        loop {
            let m = self.read()?;
            if wanted(&m) {
                return Ok(m);
            }
            match m.get("method") {
                Some(_) => self.notes.push_back(m),
                None => self.answers.push(m),
            }
        }
    }

    /// Closes its input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Closes its input and waits: the exit code (`None`: a signal), and what it wrote to standard error.
    pub fn end(mut self) -> io::Result<(Option<i32>, String)> {
        self.stdin = None;
        // Its end is the end of its standard error.
        let stderr = self
            .stderr
            .recv_timeout(self.timeout)
            .map_err(|e| io::Error::other(format!("still running: {e}")))?;
        Ok((self.child.wait()?.code(), stderr))
    }

    /// The most memory that it has ever held, in bytes.
    pub fn most_memory(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.map(|n| n * 1024).ok_or_else(|| io::Error::other("no VmHWM"))
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

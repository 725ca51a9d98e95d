//! The page in a real browser, driven over its own debugging pipe.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use backstitch_testkit::privilege::has_program;
use serde_json::{Value, json};

use crate::{
    support::World,
    web::{Served, hostile},
};

/// Names under which it is installed.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// Headless, with one page.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start(program: &str) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // The pipe is descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--window-size=1000,640",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Browser { child, to, from, session: None, last: 0, _profile: profile }
    }

    /// Calls; gives the result.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|e| panic!("{method}: {e}"))
    }

    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(s) = &self.session {
            message["sessionId"] = s.clone().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            let n = self.from.read_until(0, &mut bytes).unwrap();
            assert!(n > 0, "the browser ended at {method}");
            bytes.pop();
            let v: Value = serde_json::from_slice(&bytes).unwrap();
            if v["id"] == self.last {
                return if v["error"].is_null() { Ok(v["result"].clone()) } else { Err(v["error"].clone()) };
            }
        }
    }

    fn open(&mut self, url: &str) {
        let target = self.call("Target.createTarget", json!({"url": url}))["targetId"].clone();
        let session = self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        // Until the page has come there is nothing, or another document, to ask.
        let script = json!({"expression": "document.readyState === 'complete' && location.href", "returnByValue": true});
        let begun = std::time::Instant::now();
        while !self.try_call("Runtime.evaluate", script.clone()).is_ok_and(|v| v["result"]["value"] == url) {
            assert!(begun.elapsed().as_secs() < 60, "the page does not come");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn eval(&mut self, script: &str) -> Value {
        let v = self.call(
            "Runtime.evaluate",
            json!({"expression": script, "awaitPromise": true, "returnByValue": true, "timeout": 60_000}),
        );
        assert!(v["exceptionDetails"].is_null(), "{script}: {v}");
        v["result"]["value"].clone()
    }

    /// Waits until this is true of the page.
    fn until(&mut self, condition: &str) {
        let script = format!(
            "new Promise((yes, no) => {{ const look = () => {{ try {{ if ({condition}) yes(true); }} catch {{}} }}; \
             setInterval(look, 20); setTimeout(() => no(new Error(document.body.innerText)), 60000); look(); }})"
        );
        assert_eq!(self.eval(&script), true);
    }

    fn sees(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    fn click(&mut self, text: &str) {
        let find = format!(
            "[...document.querySelectorAll('button')].find(b => b.innerText.includes({}) && !b.disabled)",
            json!(text)
        );
        self.until(&find);
        self.eval(&format!("{find}.click()"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn browser() -> Option<Browser> {
    let found = BROWSERS.iter().find(|b| has_program(b));
    if found.is_none() {
        backstitch_testkit::skip::skip("the page in a browser", "needs chromium");
    }
    found.map(|program| Browser::start(program))
}

#[test]
fn a_turn_is_reviewed_taken_back_and_brought_again() {
    let Some(mut b) = browser() else { return };
    let w = hostile();
    let s = Served::start(&w, &[]);
    b.open(&s.url);
    b.until("document.querySelector('#turns button') !== null");
    // What looks like markup stays text, wherever it comes from.
    b.sees("<script>document.title='owned'</script>");
    b.click("<script>");
    b.sees("<img src=x onerror=document.title='owned'>.txt");
    b.click("<img src=x onerror=document.title='owned'>.txt");
    b.sees("+</pre><script>document.title='owned'</script>");
    b.click("a.txt");
    b.sees("+TWO");
    assert_eq!(b.eval("document.title"), "backstitch");
    assert_eq!(b.eval("document.querySelectorAll('img, pre script').length"), 0);
    // All files, then: a folder is read when it is opened, and names and contents are text there, too.
    b.click("All files after it");
    b.sees("▸ sub/");
    b.click("▸ sub/");
    b.sees("▾ sub/");
    b.until("[...document.querySelectorAll('#whole button')].some(b => b.innerText.startsWith('b.txt'))");
    b.eval(
        "[...document.querySelectorAll('#whole button')].find(b => b.innerText.startsWith('<img')).click()",
    );
    b.sees("</pre><script>document.title='owned'</script>");
    b.sees("Put only this file back to this…");
    assert_eq!(b.eval("document.title"), "backstitch");
    assert_eq!(b.eval("document.querySelectorAll('img, pre script').length"), 0);
    // The policy keeps others out as well.
    let fetched = b.eval("fetch('http://127.0.0.1:1/').then(() => 'sent', e => 'refused')");
    assert_eq!(fetched, "refused");
    b.click("Take back this turn and all after it");
    b.until("document.getElementById('plan').open");
    b.sees("overwrite a.txt");
    assert_eq!(w.read("a.txt"), "one\nTWO\nthree\n", "a plan changes nothing");
    b.click("Change nothing");
    b.until("!document.getElementById('plan').open");
    b.click("Take back this turn and all after it");
    b.click("Carry out this plan");
    b.sees("Done: Take back turn 1 of s");
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\n");
    b.click("Undo the newest operation");
    b.click("Carry out this plan");
    b.sees("Done: Undo the newest operation");
    assert_eq!(w.read("a.txt"), "one\nTWO\nthree\n");
    s.end();
}

/// The picture in the docs is made by this test, where `BACKSTITCH_PICTURES` is set.
#[test]
fn the_picture_in_the_docs() {
    if std::env::var_os("BACKSTITCH_PICTURES").is_none() {
        return;
    }
    let Some(mut b) = browser() else { return };
    let w: World = crate::picker::afternoon();
    let s = Served::start(&w, &[]);
    b.open(&s.url);
    b.click("write tests");
    b.click("README.md");
    b.sees("+more");
    let folder = w.ws.to_string_lossy().into_owned();
    b.eval(&format!("document.getElementById('folder').textContent = document.getElementById('folder').textContent.replace({}, '~/project')", json!(folder)));
    let png = b.call("Page.captureScreenshot", json!({"format": "png"}))["data"].as_str().unwrap().to_owned();
    let bytes = backstitch::paths::from_base64(&png).unwrap();
    assert!(bytes.len() < 200_000);
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/ui.png");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
    s.end();
}

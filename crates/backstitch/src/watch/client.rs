//! Asking the watcher.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use backstitch_scan::{Heard, Noise, Quiet, Table};
use bstr::{BString, ByteSlice};
use serde_json::{Value, json};

use super::{
    DISTRUSTED, ENDED, SOCKET,
    daemon::state,
    wire::{self, Answer, Ask, Said, Token},
};
use crate::{
    error::{Code, Error, Result},
    paths, record,
    workspace::Workspace,
};

/// So often everything is looked at all the same, and compared with what the watcher said.
const PROOF_MS: i64 = 10 * 60 * 1000;

/// What the watcher answered, and what is noted in the table of it.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    token: Token,
    proven_ms: Option<i64>,
}

/// Two words of the table's note: the epoch that it holds for, and when everything was last looked at.
fn noted(note: &str) -> Option<Watched> {
    let word = |name: &str| note.split(' ').find_map(|w| w.strip_prefix(name));
    let (instance, epoch) = word("watch:")?.split_once(':')?;
    Some(Watched {
        token: Token { instance: instance.to_owned(), epoch: epoch.parse().ok()? },
        proven_ms: word("proven:").and_then(|ms| ms.parse().ok()),
    })
}

impl Watched {
    /// The words.
    pub fn note(&self) -> String {
        let proven = self.proven_ms.map(|ms| format!(" proven:{ms}")).unwrap_or_default();
        format!("watch:{}:{}{proven}", self.token.instance, self.token.epoch)
    }

    /// Everything was looked at.
    pub fn proven(mut self) -> Watched {
        self.proven_ms = Some(record::now_ms());
        self
    }
}

/// What the watcher says of a table's directories; `None` where there is none to ask. Without a
/// [`Quiet`] everything is to be looked at.
pub(crate) fn ask(ws: &Workspace, table: Option<&Table>) -> Option<(Watched, Option<Quiet>)> {
    // Other hosts write there too, and are not heard.
    let state = state(ws).filter(|_| !ws.settings().flag("shared_store"))?;
    if state.join(SOCKET).symlink_metadata().is_err() || state.join(DISTRUSTED).exists() {
        return None;
    }
    let before = table.and_then(|t| noted(t.note().to_str().ok()?));
    let since = before.as_ref().map(|b| b.token.clone());
    let Ok(Answer::Noise { token, noise }) = wire::ask(&state, &Ask::Since(since.clone())) else {
        return None;
    };
    // An answer about another life says nothing about this table.
    let same = since.is_some_and(|s| s.instance == token.instance && s.epoch < token.epoch);
    let noise: Option<Vec<Noise>> =
        noise.filter(|_| same).and_then(|all| all.into_iter().map(Said::noise).collect());
    let proven_ms = before.and_then(|b| b.proven_ms);
    let fresh = proven_ms.is_some_and(|ms| (0..PROOF_MS).contains(&(record::now_ms() - ms)));
    let quiet = table.zip(noise).map(|(table, noise)| {
        let quiet = table.quiet(&noise);
        if fresh { quiet } else { quiet.to_be_proven() }
    });
    Some((Watched { token, proven_ms }, quiet))
}

/// These were said to be quiet, and are not as they were. What happened only after it was asked is in its next answer; of
/// the rest it was wrong, and nobody believes it any longer.
pub(crate) fn distrust(ws: &Workspace, watched: &Watched, changed: &[BString]) {
    let Some(state) = state(ws) else { return };
    let Ok(Answer::Noise { token, noise: Some(noise) }) =
        wire::ask(&state, &Ask::Since(Some(watched.token.clone())))
    else {
        return;
    };
    let noise: Vec<Noise> = noise.into_iter().filter_map(Said::noise).collect();
    let said = |path: &BString| {
        let (dir, name) = paths::split(path.as_bstr());
        noise.iter().any(|n| match &n.what {
            _ if n.path == *path => true,
            Heard::Names(names) => n.path == dir && names.contains(name),
            Heard::All => n.path == dir,
            Heard::Below => paths::is_under(path.as_bstr(), n.path.as_bstr()),
        })
    };
    let missed: Vec<&BString> = changed.iter().filter(|p| !said(p)).collect();
    if missed.is_empty() || token.instance != watched.token.instance {
        return;
    }
    let names: Vec<String> = missed.iter().take(5).map(|p| p.to_str_lossy().into_owned()).collect();
    let why = format!("the watcher missed changes in {}", names.join(", "));
    let _ = std::fs::write(state.join(DISTRUSTED), why);
    let _ = wire::ask(&state, &Ask::Stop);
}

/// Starts a watcher for a workspace that is large enough to be worth one. Best effort.
pub(crate) fn start_if_wanted(ws: &Workspace, files: u64) {
    let s = ws.settings();
    if s.word("watch") != "auto" || s.flag("shared_store") || files < s.int("watch_from") {
        return;
    }
    let Ok(store) = ws.store() else { return };
    let state = store.state_dir();
    if [DISTRUSTED, ENDED].iter().any(|f| state.join(f).exists()) {
        return;
    }
    // A socket outlives a watcher that was killed; its lock does not.
    let dead = || store.lock_exclusive("watch", Duration::ZERO).is_ok();
    if state.join(SOCKET).symlink_metadata().is_err() || dead() {
        let _ = spawn(ws);
    }
}

fn spawn(ws: &Workspace) -> io::Result<()> {
    let Some(program) = &ws.surroundings().program else {
        return Err(io::Error::other("there is no program to start"));
    };
    let mut child = Command::new("/bin/sh")
        // The shell ends at once, so that nobody has to wait for the other.
        .args(["-c", "\"$0\" \"$@\" </dev/null 2>/dev/null &"])
        .arg(program)
        .args(["watcher", "--store-dir"])
        .arg(&ws.surroundings().store_base)
        .arg("-C")
        .arg(ws.root())
        .current_dir("/")
        .env_remove("BACKSTITCH_SESSION")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // It says a line, or ends; both close the pipe.
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        io::Read::read_to_string(&mut io::Read::take(out, 1 << 12), &mut said)?;
    }
    child.wait()?;
    match said.trim().is_empty() {
        false => Ok(()),
        true => Err(io::Error::other("it ended at once")),
    }
}

impl Workspace {
    /// The watcher: `running`, with `pid`, `directories`, `since`, `noisy`; else `reason`, where there is one.
    pub fn watcher(&self) -> Value {
        let Some(state) = state(self) else {
            return json!({"running": false, "reason": "nothing is recorded here"});
        };
        let said = |file: &str| std::fs::read_to_string(state.join(file)).ok();
        match wire::ask(&state, &Ask::Status) {
            Ok(Answer::Status { pid, directories, since_ms, noisy }) => json!({
                "running": true,
                "pid": pid,
                "directories": directories,
                "since": record::rfc3339(since_ms),
                "noisy": noisy,
                "reason": said(DISTRUSTED),
            }),
            _ => json!({"running": false, "reason": said(DISTRUSTED).or_else(|| said(ENDED))}),
        }
    }

    /// Starts the watcher, and returns when it answers. One that runs already is left alone; what was held against an
    /// earlier one is forgotten.
    ///
    /// # Errors
    /// `failed` where it ends at once, and says why.
    pub fn watch_start(&self) -> Result<Value> {
        let state = self.store()?.state_dir();
        for file in [DISTRUSTED, ENDED] {
            let _ = std::fs::remove_file(state.join(file));
        }
        if self.watcher()["running"] != true {
            spawn(self).map_err(|e| {
                let why = self.watcher()["reason"].as_str().map(str::to_owned);
                Error::new(
                    Code::Failed,
                    format!("the watcher did not start: {}", why.unwrap_or(e.to_string())),
                )
                .at(self.root())
                .hint("captures look at everything, as without a watcher")
            })?;
        }
        Ok(self.watcher())
    }

    /// Ends the watcher, and returns when it has; one that is not there has ended.
    pub fn watch_stop(&self) -> Result<Value> {
        let store = self.store()?;
        let _ = wire::ask(&store.state_dir(), &Ask::Stop);
        // It holds this lock as long as it lives.
        drop(store.lock_exclusive("watch", Duration::from_secs(10))?);
        Ok(self.watcher())
    }
}

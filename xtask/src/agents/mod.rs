//! `cargo xtask agents`: the real clients, offline, against a scripted model.

mod client;
mod mcp;
mod model;
mod picture;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::Value;

use self::{
    client::{Client, Installed},
    model::Model,
};
use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "agents",
    about: "The real agents, offline: prompt, write, shell, rewind, undo, with each client that can be installed",
    details: "cargo xtask agents [claude|codex|gemini|opencode|mcp ...]\n\n\
              Installs each client by npm in the version that was tried (below target/agents; nothing of it is kept in the\n\
              repository), runs it with an empty home and environment against a model that plays a script on 127.0.0.1, with\n\
              the hooks that `backstitch install` wrote. A client that cannot be installed is skipped, and counted as skipped.\n\
              `mcp` is no agent but the official client library of the Model Context Protocol, which plays the story of docs/mcp.md.\n\
              The last line is `N passed, N failed, N skipped`.",
    options: &[
        Opt {
            name: "--clients",
            value: Some("LIST"),
            help: "only these, with commas between; the same as naming them",
        },
        Opt { name: "--binary", value: Some("FILE"), help: "the program (otherwise it is built)" },
        Opt {
            name: "--pictures",
            value: Some("FOLDER"),
            help: "instead of the story, write there what stands in a terminal (needs tmux)",
        },
        Opt { name: "--keep", value: None, help: "keep the scratch folders, and say where they are" },
    ],
};

/// Clients may be named without an option.
pub fn spelled(words: impl Iterator<Item = String>) -> Vec<String> {
    let (mut named, mut out) = (Vec::new(), Vec::new());
    for w in words {
        match w == mcp::NAME || Client::ALL.iter().any(|c| c.name() == w) {
            true => named.push(w),
            false => out.push(w),
        }
    }
    if !named.is_empty() {
        out.push(format!("--clients={}", named.join(",")));
    }
    out
}

/// Runs it.
pub fn run(options: &Parsed) -> Result<bool> {
    let with_mcp = options.text("--clients").is_none_or(|list| list.split(',').any(|n| n == mcp::NAME));
    let wanted: Vec<Client> = match options.text("--clients") {
        None => Client::ALL.to_vec(),
        Some(list) => list
            .split(',')
            .filter(|n| *n != mcp::NAME)
            .map(|n| Client::ALL.iter().copied().find(|c| c.name() == n).ok_or(format!("no client {n:?}")))
            .collect::<Result<_, _>>()?,
    };
    let binary = match options.text("--binary") {
        Some(file) => PathBuf::from(file).canonicalize()?,
        None => {
            tools::stream(tools::cargo(["build", "--quiet", "-p", "backstitch-cli"])?, |_| {})?;
            tools::target()?.join("debug/backstitch")
        }
    };
    let base = tools::target()?.join("agents");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for client in wanted {
        let dir = match client.install(&base) {
            Ok(dir) => dir,
            Err(e) => {
                println!("skipped  {}: {}", client.name(), e.to_string().lines().last().unwrap_or_default());
                skipped += 1;
                continue;
            }
        };
        // Outside of every git work tree: the workspace is the folder itself.
        let name = format!("backstitch-agents-{}-{}", client.name(), std::process::id());
        let scratch = std::env::temp_dir().canonicalize()?.join(name);
        let began = Instant::now();
        let done = match options.text("--pictures") {
            Some(to) => picture::take(client, &dir, &scratch, &binary, Path::new(to)),
            None => story(client, dir, &scratch, &binary),
        };
        match done {
            Ok(()) => {
                println!("passed   {} in {:.1} s", client.name(), began.elapsed().as_secs_f64());
                passed += 1;
            }
            Err(e) => {
                println!("FAILED   {}: {e}", client.name());
                failed += 1;
            }
        }
        match options.has("--keep") {
            true => println!("kept: {}", scratch.display()),
            false => fs::remove_dir_all(&scratch)?,
        }
    }
    if with_mcp {
        match mcp::install(&base) {
            Err(e) => {
                println!("skipped  mcp: {}", e.to_string().lines().last().unwrap_or_default());
                skipped += 1;
            }
            Ok(dir) => match mcp::story(&dir, &binary) {
                Ok(()) => {
                    println!("passed   mcp");
                    passed += 1;
                }
                Err(e) => {
                    println!("FAILED   mcp: {e}");
                    failed += 1;
                }
            },
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// Ends the story with a reason unless it holds.
macro_rules! must {
    ($condition:expr, $($reason:tt)*) => {
        if !$condition {
            return Err(format!($($reason)*).into());
        }
    };
}

/// What lies in the folder: path and content, without what belongs to the clients.
fn files(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut out = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(&dir)? {
            let (path, kind) = {
                let e = e?;
                (e.path(), e.file_type()?)
            };
            let rel = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            if rel.starts_with('.') {
                continue;
            }
            match kind.is_dir() {
                true => todo.push(path),
                false => out.push((rel, fs::read_to_string(&path)?)),
            }
        }
    }
    out.sort();
    Ok(out)
}

fn story(client: Client, dir: PathBuf, scratch: &Path, binary: &Path) -> Result<()> {
    let model = Model::start(&scratch.join("project"))?;
    let c = Installed::new(client, dir, scratch, binary.to_owned(), model.port)?;
    let step = |what: &str| println!("  {}: {what}", client.name());
    let put = |rel: &str, text: &str| fs::write(c.folder.join(rel), text);
    put("mine.txt", "mine\n")?;
    put("old.txt", "old\n")?;

    let before = files(&c.home).unwrap_or_default();
    c.backstitch(&["install", client.name(), "--yes"])?;
    step("installed");
    c.prompt("STORY-WRITE please", true)?;
    let written = files(&c.folder)?;
    must!(written.iter().any(|(p, t)| p == "new.txt" && t == "new\n"), "nothing was written: {written:?}");
    step("the model wrote a file");
    // A person works in between.
    put("mine.txt", "mine, later\n")?;
    let second = files(&c.folder)?;
    c.prompt("STORY-SHELL please", false)?;
    let after = files(&c.folder)?;
    must!(after.iter().any(|(p, t)| p == "old.txt" && t == "changed\n"), "no command ran: {after:?}");
    must!(!c.folder.join("new.txt").exists(), "new.txt is still there");
    step("the model ran a shell command");

    let sessions: Value = serde_json::from_str(&c.backstitch(&["session", "list", "--json"])?)?;
    let sessions = sessions["sessions"].as_array().cloned().unwrap_or_default();
    must!(sessions.len() == 1 && sessions[0]["turns"] == 2, "one session with two turns: {sessions:?}");
    let session = sessions[0]["id"].as_str().unwrap_or_default().to_owned();
    let rows = c.backstitch(&["session", "show", &session, "--json"])?;
    let rows: Value = serde_json::from_str(&rows)?;
    let kinds: Vec<String> = rows["checkpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| format!("{}{}", r["kind"].as_str().unwrap_or_default(), r["turn"]))
        .collect();
    for kind in ["prompt1", "tool1", "turn1", "prompt2", "tool2", "turn2"] {
        must!(kinds.iter().any(|k| k == kind), "no {kind} row: {kinds:?}");
    }
    step("two turns with their windows are recorded");

    c.backstitch(&["rewind", "2", "--session", &session])?;
    must!(files(&c.folder)? == second, "the rewind left {:?}, not {second:?}", files(&c.folder)?);
    step("rewind 2 took back the shell command, and left what a person wrote");
    model.take();
    c.prompt("STORY-NEXT please", false)?;
    let told: Vec<String> =
        model.take().into_iter().filter(|r| r.contains("Backstitch took work back")).collect();
    must!(!told.is_empty(), "the model was not told");
    must!(told[0].contains("new.txt") && told[0].contains("old.txt"), "the model was not told the paths");
    step("the model's next request says which paths changed");

    c.backstitch(&["undo", "--session", &session])?;
    must!(files(&c.folder)? == after, "undo left {:?}, not {after:?}", files(&c.folder)?);
    step("undo put everything back");
    model.take();
    let answer = c.prompt("backstitch rewind 2", false)?;
    must!(files(&c.folder)? == second, "the typed rewind left {:?}, not {second:?}", files(&c.folder)?);
    match (client, model.take().len()) {
        (Client::Opencode, _) | (_, 0) => {}
        (_, n) => must!(false, "the typed rewind went to the model in {n} requests"),
    }
    step("typed in the client, `backstitch rewind 2` does the same");
    if client == Client::Claude {
        // The answer names the command that resumes the conversation before that turn, in a fork.
        let answer: Value = serde_json::from_str(&answer)?;
        let answer = answer["result"].as_str().unwrap_or_default().to_owned();
        let line = answer.lines().find_map(|l| l.split_once("claude --resume ")).ok_or(answer.clone())?.1;
        let words: Vec<&str> = std::iter::once("--resume").chain(line.split_whitespace()).collect();
        c.prompt_with("STORY-NEXT in the fork", false, &words)?;
        let asked = model.take().pop().ok_or("the fork asked nothing")?;
        must!(asked.contains("STORY-WRITE") && !asked.contains("STORY-SHELL"), "the fork knows of the turn");
        let sessions: Value = serde_json::from_str(&c.backstitch(&["session", "list", "--json"])?)?;
        let of = |s: &&Value| s["parent"] == session.as_str();
        must!(sessions["sessions"].as_array().into_iter().flatten().any(|s| of(&s)), "no fork: {sessions}");
        step("resumed before that turn, the conversation is without it, and the fork knows its parent");
    }
    let log = scratch.join("home/.local/share/backstitch/hooks.log");
    must!(!log.exists(), "the hooks complained: {}", fs::read_to_string(&log)?);
    c.backstitch(&["uninstall", client.name(), "--yes", "--as-person"])?;
    must!(files(&c.home).unwrap_or_default() == before, "uninstall left something in the home");
    step("uninstalled");
    Ok(())
}

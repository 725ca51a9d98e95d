//! What an agent waits for, from the start of a hook's process to its end.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    contenders::Ours,
    machine,
    report::Report,
    row::OURS,
    stats::{part, seconds},
    trees::Tree,
};
use crate::Result;

const NAMES: [&str; 6] = [
    "UserPromptSubmit",
    "PreToolUse Write",
    "PostToolUse Write",
    "PreToolUse Bash",
    "PostToolUse Bash",
    "Stop",
];

/// One turn after the other, each with a file tool and a shell command that writes, on a small tree of its own in `dir`. Adds a row
/// for each hook, `hook NAME` or `watched-hook NAME`.
pub fn measure(binary: &Path, dir: &Path, turns: usize, watched: bool, report: &mut Report) -> Result<()> {
    let tree = dir.join("tree");
    fs::create_dir_all(dir)?;
    Tree::Small.lay(&tree)?;
    let mut ours = Ours::new(binary, &dir.join("home"), &[])?;
    if watched {
        ours.checkpoint(&tree)?;
        ours.watch(&tree)?;
    }
    let measured = rounds(&ours, &tree, turns, if watched { "watched-hook" } else { "hook" }, report);
    let ended = ours.unwatch();
    measured.and(ended)
}

fn rounds(ours: &Ours, tree: &Path, turns: usize, prefix: &str, report: &mut Report) -> Result<()> {
    let busy = machine::wait_for_peace();
    // The first turn of all fills the store: that is another figure.
    for turn in 0..=turns {
        for name in NAMES {
            let (event, tool) = name.split_once(' ').unwrap_or((name, ""));
            let file = tree.join("written.txt");
            let payload = json!({
                "session_id": "bench", "cwd": tree, "hook_event_name": event, "prompt_id": format!("p{turn}"),
                "prompt": "The next step, please.", "tool_name": tool, "tool_use_id": format!("t{turn}-{tool}"),
                "tool_input": {"file_path": file, "command": "make", "content": "x".repeat(2000)}, "background_tasks": [],
            });
            if event == "PostToolUse" {
                fs::write(&file, format!("{turn} {tool}"))?;
            }
            let time = once(ours, tree, &payload)?;
            if turn > 0 {
                let row = report.row(&format!("{prefix} {name}"));
                row.busy = busy;
                row.add(OURS, time);
            }
        }
    }
    match complaints(ours.cli().home())? {
        None => Ok(()),
        Some(text) => Err(format!("the hooks complained: {text}").into()),
    }
}

/// What hooks had to say, which they never say to the agent.
fn complaints(home: &Path) -> Result<Option<String>> {
    let mut open: Vec<PathBuf> = vec![home.to_path_buf()];
    while let Some(dir) = open.pop() {
        for item in fs::read_dir(dir)? {
            let item = item?;
            if item.file_name() == "hooks.log" {
                return Ok(Some(fs::read_to_string(item.path())?));
            }
            if item.file_type()?.is_dir() {
                open.push(item.path());
            }
        }
    }
    Ok(None)
}

/// The times of each hook, without the goals.
pub fn print(report: &Report) {
    println!("{:<34} {:>10} {:>10} {:>10}", "hook", "p50", "p99", "slowest");
    for row in &report.rows {
        let at = |share| part(row.of(OURS), share).map_or("-".into(), seconds);
        println!("{:<34} {:>10} {:>10} {:>10}", row.operation, at(0.5), at(0.99), at(1.0));
    }
}

fn once(ours: &Ours, tree: &Path, payload: &Value) -> Result<Duration> {
    let text = payload.to_string();
    let mut c = Command::new(ours.cli().binary());
    c.args(["hook", "claude"]).env_clear().current_dir(ours.cli().home());
    // The agent's folder is in the payload: no option tells it.
    for (key, value) in ours.cli().command(tree, ["status"]).get_envs() {
        if let Some(value) = value {
            c.env(key, value);
        }
    }
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let mut child = c.spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(text.as_bytes())?;
    let out = child.wait_with_output()?;
    let time = began.elapsed();
    if !out.status.success() || !out.stderr.is_empty() {
        return Err(format!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(time)
}

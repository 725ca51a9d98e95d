//! `cargo xtask bench --hooks`: what an agent waits for, from the start of a hook's process to its end.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{machine, stats, trees::Tree};
use crate::Result;

/// Goal of the slowest of a hundred, on a small tree.
const GOAL: Duration = Duration::from_millis(15);

/// One turn after the other, each with a file tool and a shell command that writes. Returns whether the goal was reached.
pub fn run(binary: &Path, dir: &Path, turns: usize, gate: bool) -> Result<bool> {
    let (tree, home) = (dir.join("tree"), dir.join("home"));
    fs::create_dir_all(&home)?;
    Tree::parse("small", 0)?.lay(&tree)?;
    const NAMES: [&str; 6] = [
        "UserPromptSubmit",
        "PreToolUse Write",
        "PostToolUse Write",
        "PreToolUse Bash",
        "PostToolUse Bash",
        "Stop",
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); NAMES.len()];
    // The first turn of all fills the store: that is another figure.
    for turn in 0..=turns {
        for (n, name) in NAMES.iter().enumerate() {
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
            let time = once(binary, &home, &payload)?;
            if turn > 0 {
                times[n].push(time);
            }
        }
    }
    println!(
        "{}\nhook processes on a small tree, {turns} turns, durable, one after the other\n",
        machine::describe(dir)
    );
    println!("{:<20} {:>10} {:>10} {:>10}", "hook", "p50", "p99", "slowest");
    let mut good = true;
    let mut all: Vec<Duration> = Vec::new();
    for (name, list) in NAMES.iter().zip(&mut times) {
        good &= line(name, list) <= GOAL;
        all.extend(list.iter());
    }
    line("all", &mut all);
    println!("\ngoal: p99 of each within {}", stats::show(GOAL));
    let log = home.join(".local/share/backstitch/hooks.log");
    if log.exists() {
        return Err(format!("the hooks complained: {}", fs::read_to_string(&log)?).into());
    }
    Ok(good || !gate)
}

/// Prints a line; returns the time of the slowest of a hundred.
fn line(name: &str, list: &mut [Duration]) -> Duration {
    list.sort();
    let at = |part: f64| {
        let n = ((list.len() as f64 * part).ceil() as usize).clamp(1, list.len().max(1));
        list.get(n - 1).copied().unwrap_or_default()
    };
    let (half, most, worst) = (at(0.5), at(0.99), at(1.0));
    println!("{name:<20} {:>10} {:>10} {:>10}", stats::show(half), stats::show(most), stats::show(worst));
    most
}

fn once(binary: &Path, home: &Path, payload: &Value) -> Result<Duration> {
    let text = payload.to_string();
    let mut c = Command::new(binary);
    c.args(["hook", "claude"]).env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
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

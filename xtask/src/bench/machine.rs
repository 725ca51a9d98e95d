//! The machine that is measured on.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use crate::tools;

/// One line: cores, memory, file system, kernel, git.
pub fn describe(dir: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, Into::into);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
        line.split_once(':').map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
    };
    let memory: u64 =
        field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let word = |command: &mut Command| {
        tools::quiet(command)
            .map(|out| String::from_utf8_lossy(&out).trim().to_owned())
            .unwrap_or_else(|_| "?".into())
    };
    let system = word(Command::new("stat").args(["-f", "-c", "%T"]).arg(dir));
    let git = word(Command::new("git").arg("--version"));
    format!(
        "{cores} cores ({}), {} GiB, {system}, Linux {}, {git}",
        field(&read("/proc/cpuinfo"), "model name"),
        memory.div_ceil(1 << 20),
        kernel.trim()
    )
}

/// When this is, to the second, in UTC.
pub fn now() -> String {
    let said = tools::quiet(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]));
    said.map_or_else(|_| "?".into(), |out| String::from_utf8_lossy(&out).trim().to_owned())
}

/// The commit that is checked out, and whether something differs from it.
pub fn commit() -> String {
    let git = |args: &[&str]| -> Option<String> {
        let out = tools::quiet(&mut tools::command("git", args).ok()?).ok()?;
        Some(String::from_utf8_lossy(&out).trim().to_owned())
    };
    let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "?".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => id,
        _ => format!("{id} with changes"),
    }
}

/// How busy the machine is, from 0 to 1, over a moment.
fn busy() -> Option<f64> {
    let sample = || -> Option<(u64, u64)> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = line.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
        // Idle, and waiting for a disk.
        Some((times.iter().sum(), times.get(3)? + times.get(4)?))
    };
    let before = sample()?;
    std::thread::sleep(Duration::from_millis(60));
    let after = sample()?;
    let all = after.0.saturating_sub(before.0);
    (all > 0).then(|| 1.0 - (after.1.saturating_sub(before.1)) as f64 / all as f64)
}

/// Waits until nobody else works, three seconds at most; returns whether somebody still did.
pub fn wait_for_peace() -> bool {
    for _ in 0..50 {
        match busy() {
            None => return false,
            Some(share) if share < 0.15 => return false,
            Some(_) => {}
        }
    }
    true
}

/// The processor time of all our children that have ended; to a hundredth of a second.
pub fn children_cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        fields.split_ascii_whitespace().skip(13).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Lets what was written reach the disk, so that it is not counted against the next.
pub fn sync() {
    // Without `sync` the figures are noisier, not wrong.
    let _ = Command::new("sync").status();
}

const STAMP: &str = ".backstitch-bench-deleted";

/// Says so if a run has deleted much here a few minutes ago.
pub fn warn_of_deletions(base: &Path) {
    let stamp = fs::metadata(base.join(STAMP)).and_then(|m| m.modified());
    if let Ok(at) = stamp
        && SystemTime::now().duration_since(at).unwrap_or_default() < Duration::from_secs(360)
    {
        println!(
            "note: the run before has deleted its trees minutes ago; on ext4, making files is slower until that is forgotten"
        );
    }
}

/// Remembers that much was deleted here.
pub fn note_deletions(base: &Path) {
    // It only serves the note above.
    let _ = fs::write(base.join(STAMP), "");
}

//! `cargo xtask bench --sessions`: what many long sessions cost, take and give back.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use backstitch_testkit::generate::{self, Rng};
use serde_json::Value;

use super::{
    machine,
    report::Report,
    row::{Made, OURS},
    stats,
};
use crate::Result;

/// How much is done.
pub struct Size {
    pub sessions: usize,
    pub turns: usize,
    pub files: usize,
}

struct Bench<'a> {
    binary: &'a Path,
    dir: &'a Path,
}

impl Bench<'_> {
    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn run(&self, words: &[&str]) -> Result<(Value, Duration)> {
        let mut c = Command::new(self.binary);
        c.env_clear().env("HOME", self.dir.join("home")).env("PATH", "/usr/bin:/bin");
        c.env("BACKSTITCH_WATCH", "off");
        c.arg("-C").arg(self.tree()).arg("--store-dir").arg(self.dir.join("store")).arg("--json").args(words);
        let began = Instant::now();
        let out = c.output()?;
        let time = began.elapsed();
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(format!("{words:.3?}: {}: {said}", out.status).into());
        }
        match out.stdout.is_empty() {
            true => Ok((Value::Null, time)),
            false => Ok((serde_json::from_slice(&out.stdout)?, time)),
        }
    }

    fn number(&self, words: &[&str], field: &str) -> Result<u64> {
        let (v, _) = self.run(words)?;
        Ok(v[field].as_u64().ok_or_else(|| format!("{words:?} tells no {field}"))?)
    }

    /// On disk.
    fn used(&self) -> Result<u64> {
        files(&self.dir.join("store"))?.iter().map(|p| Ok(p.metadata()?.blocks() * 512)).sum()
    }

    /// Packs joined and what is old enough collected, as it happens by itself; waits for one that runs already.
    fn maintain(&self) -> Result<()> {
        loop {
            if !self.run(&["gc", "--auto"])?.0.is_null() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(dir)? {
            let e = e?;
            match e.file_type()? {
                t if t.is_dir() => todo.push(e.path()),
                t if t.is_file() => out.push(e.path()),
                _ => {}
            }
        }
    }
    out.sort();
    Ok(out)
}

/// Adds a line to a file, as an agent does. Bytes of the line, and of the file afterwards.
fn edit(rng: &mut Rng, path: &Path) -> Result<(u64, u64)> {
    let mut text = fs::read(path)?;
    let line = format!("let value = compute({}, {});\n", rng.below(1 << 20), rng.below(1 << 20));
    let at = text.iter().skip(rng.below(text.len().max(1))).position(|b| *b == b'\n').map_or(0, |i| i + 1);
    text.splice(at..at, line.bytes());
    fs::write(path, &text)?;
    Ok((line.len() as u64, text.len() as u64))
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Carries it out.
pub fn run(binary: &Path, dir: &Path, size: &Size, made: &Made) -> Result<Report> {
    let b = Bench { binary, dir };
    // Goals are for the usual number of files, turns and sessions, or more.
    let title = format!(
        "SESSIONS: {} sessions of {} turns with 4 edits each on a generated project",
        size.sessions, size.turns
    );
    let mut report = Report::new("sessions", &title, made);
    fs::create_dir_all(dir.join("home"))?;
    fs::create_dir_all(b.tree())?;
    generate::project(7, size.files).write(&b.tree())?;
    let all = files(&b.tree())?;
    let length = |p: &PathBuf| p.metadata().map_or(0, |m| m.len());
    let copy: u64 = all.iter().map(length).sum();
    (report.files, report.bytes) = (all.len() as u64, copy);
    // Of ordinary size; the others are changed rarely.
    let sources: Vec<PathBuf> = all.into_iter().filter(|p| (200..100_000).contains(&length(p))).collect();
    println!(
        "{} sessions of {} turns with 4 edits each on {} files ({}), durable, each call a process\n",
        size.sessions,
        size.turns,
        size.files,
        mib(copy),
    );
    let mut rng = Rng::new(3);
    let (mut lines, mut contents) = (0, 0);
    let mut costs = Vec::new();
    for s in 0..size.sessions {
        let session = format!("s{s}");
        let (mut begins, mut ends, before) = (Vec::new(), Vec::new(), machine::children_cpu());
        for t in 0..size.turns {
            begins
                .push(b.run(&["turn", "begin", "--session", &session, "--prompt", &format!("step {t}")])?.1);
            for _ in 0..4 {
                let path = rng.pick(&sources);
                let (line, content) = edit(&mut rng, path)?;
                lines += line;
                contents += content;
            }
            ends.push(b.run(&["turn", "end", "--session", &session])?.1);
        }
        let middle = |l: &[Duration]| stats::middle(l).unwrap_or_default();
        let (begin, end) = (middle(&begins), middle(&ends));
        let cost = (machine::children_cpu() - before) / u32::try_from(size.turns)?;
        println!(
            "session {:>2}: begin {:>9}   end {:>9}   processor {:>9} a turn",
            s + 1,
            stats::show(begin),
            stats::show(end),
            stats::show(cost)
        );
        costs.push(cost.as_secs_f64());
        begins.iter().for_each(|time| report.row("sessions turn begin").add(OURS, *time));
        ends.iter().for_each(|time| report.row("sessions turn end").add(OURS, *time));
    }
    // Halves, so that one disturbed session decides nothing.
    let (first, last) = costs.split_at(costs.len() / 2);
    let growth = match (stats::median(first), stats::median(last)) {
        (Some(a), Some(z)) => z / a.max(1e-9),
        _ => 1.0,
    };
    report.row("sessions").set("later/first turns", growth);

    let raw = b.used()?;
    b.maintain()?;
    let consolidated = b.used()?;
    let ratio = consolidated as f64 / (copy + contents) as f64;
    println!(
        "\none copy {}, contents that turns wrote {} (lines that they added {}); the store: {} as captured, {} consolidated",
        mib(copy),
        mib(contents),
        mib(lines),
        mib(raw),
        mib(consolidated),
    );
    let row = report.row("sessions");
    row.set("store/copy and changes", ratio);
    row.set("as captured MiB", raw as f64 / f64::from(1 << 20));
    row.set("consolidated MiB", consolidated as f64 / f64::from(1 << 20));
    for words in [&["list"][..], &["list", "--all"]] {
        let row = report.row(&format!("sessions {}", words.join(" ")));
        for _ in 0..11 {
            let (v, time) = b.run(words)?;
            row.add(OURS, time);
            row.set("rows", v["checkpoints"].as_array().map_or(0, Vec::len) as f64);
        }
    }

    // What the policy took is out of the way, so that what is measured is what is deleted here.
    b.run(&["gc"])?;
    let list = b.run(&["list", "--all"])?.0;
    let ids: Vec<&str> =
        list["checkpoints"].as_array().into_iter().flatten().filter_map(|c| c["id"].as_str()).collect();
    let gone: Vec<&str> = ids.iter().enumerate().filter(|(n, _)| n % 10 != 0).map(|(_, id)| *id).collect();
    b.run(&[&["delete"][..], &gone].concat())?;
    let unique = b.number(&["gc", "--dry-run"], "garbage_bytes")?;
    let before = b.used()?;
    let done = AtomicBool::new(false);
    let (collected, beside) = thread::scope(|scope| -> Result<(Duration, usize)> {
        let writers: Vec<_> = (0..2)
            .map(|n| {
                let (b, done, path) = (&b, &done, &sources[n]);
                scope.spawn(move || -> std::result::Result<usize, String> {
                    let mut rng = Rng::new(100 + n as u64);
                    let mut beside = 0;
                    let session = format!("beside{n}");
                    while !done.load(Ordering::Relaxed) {
                        edit(&mut rng, path).map_err(|e| e.to_string())?;
                        let words = ["checkpoint", "--kind", "turn", "--session", &session];
                        b.run(&words).map_err(|e| e.to_string())?;
                        beside += usize::from(!done.load(Ordering::Relaxed));
                    }
                    Ok(beside)
                })
            })
            .collect();
        let out = b.run(&["gc"]);
        done.store(true, Ordering::Relaxed);
        let mut beside = 0;
        for w in writers {
            beside += w.join().map_err(|_| "a writer panicked")??;
        }
        Ok((out?.1, beside))
    })?;
    let after = b.used()?;
    let part = before.saturating_sub(after) as f64 / unique as f64;
    println!(
        "{} of {} rows deleted, {} that only they needed; {} on disk before, {} after a collection of {} beside which {beside} rows were made",
        gone.len(),
        ids.len(),
        mib(unique),
        mib(before),
        mib(after),
        stats::show(collected),
    );
    report.row("sessions").set("freed", part);
    report.row("sessions").set("rows made while it was collected", beside as f64);
    let some = if beside > 0 { Ok(()) } else { Err("none was made".into()) };
    report.fact("rows are made while it is collected", some);
    let sound = b.run(&["verify"])?.0["ok"] == true;
    let sound = if sound { Ok(()) } else { Err("verify tells of damage".into()) };
    report.fact("every object of the store is sound", sound);
    let left = b.run(&["list", "--all", "--check"])?.0;
    let left: Vec<&Value> = left["checkpoints"].as_array().into_iter().flatten().collect();
    let kept = ids.iter().filter(|id| !gone.contains(id));
    let there =
        kept.clone().filter(|id| left.iter().any(|c| c["id"] == **id && c["restorable"] == true)).count();
    let kept = kept.count();
    let all = if there == kept { Ok(()) } else { Err(format!("{there} of {kept}")) };
    report.fact("rows that were kept can be restored", all);
    println!();
    Ok(report)
}

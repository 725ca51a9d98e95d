//! What nobody but ours has: windows of tools, a long history, a long list, hooks; and counts of system calls.

use std::{
    fs,
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    contenders::{Ours, calls},
    hooks, machine,
    rounds::Bench,
    row::OURS,
    stats, trees,
};
use crate::{Result, tools};

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The name of a row whose goals hold for the usual number only.
fn named(name: &str, number: usize, usual: usize) -> String {
    if number == usual { name.into() } else { format!("{name}-{number}") }
}

/// Checkpoints of `history`, without a wish.
pub const HISTORY: usize = 500;
/// Rows of `list`, without a wish.
pub const ROWS: usize = 10_000;
/// So many at each end of a history are compared.
const ENDS: usize = 20;

impl Bench<'_> {
    /// Paths of files that may be edited, relative to the tree, evenly spread.
    fn some_files(&self, count: usize) -> Vec<String> {
        let inside = |path: &Path| Some(path.strip_prefix(&self.tree).ok()?.to_str()?.to_owned());
        let all: Vec<String> = self.files.iter().filter_map(|path| inside(path)).collect();
        (0..count).filter_map(|n| all.get(n * all.len() / count.max(1)).cloned()).collect()
    }

    fn begin_turn(&self, session: &str) -> Result<()> {
        self.ours.run(&self.tree, &["turn", "begin", "--session", session, "--prompt", "The next step"])?;
        Ok(())
    }

    /// Both ends of a tool that writes a named file.
    pub(super) fn tool(&mut self, prefix: &str) -> Result<()> {
        println!("{prefix}tool: {} rounds", self.plan.rounds);
        let session = format!("{prefix}bench");
        self.begin_turn(&session)?;
        for (round, path) in self.some_files(self.plan.rounds).into_iter().enumerate() {
            for end in ["before", "after"] {
                if end == "after" {
                    let mut file = fs::OpenOptions::new().append(true).open(self.tree.join(&path))?;
                    writeln!(file, "written by a tool")?;
                }
                let disturbed = machine::wait_for_peace();
                let before_cpu = machine::children_cpu();
                let call = format!("{prefix}{round}");
                let time = self.ours.run(&self.tree, &window(end, &session, &call, &path))?.0;
                let cpu = machine::children_cpu() - before_cpu;
                let row = self.report.row(&format!("{prefix}tool-{end}"));
                row.busy |= disturbed;
                row.add(OURS, time);
                row.add_cpu(OURS, cpu);
            }
        }
        self.ours.run(&self.tree, &["turn", "end", "--session", &session])?;
        Ok(())
    }

    /// A hundred bytes in the middle of a large file.
    pub(super) fn big_edit(&mut self) -> Result<()> {
        let path = self.tree.join(trees::MIDDLE);
        self.ours.run(&self.tree, &["gc"])?;
        let before = self.ours.store_size()?;
        let middle = fs::metadata(&path)?.len() / 2;
        self.checkpoints("big-edit", |bench| {
            bench.edits += 1;
            let mut file = fs::OpenOptions::new().write(true).open(&path)?;
            file.seek(SeekFrom::Start(middle + 1_000 * bench.edits as u64))?;
            let line = format!("{:0>100}", bench.edits);
            Ok(file.write_all(line.as_bytes())?)
        })?;
        let raw = self.ours.store_size()?;
        self.ours.run(&self.tree, &["gc"])?;
        let after = self.ours.store_size()?;
        // One more was made for the memory.
        let each = |bytes: u64| mib(bytes.saturating_sub(before)) / (self.plan.rounds + 1) as f64;
        let (raw, after) = (each(raw), each(after));
        let row = self.report.row("big-edit");
        row.set("growth of one as captured MiB", raw);
        row.set("growth of one after gc MiB", after);
        Ok(())
    }

    /// How the store and the time of a checkpoint grow.
    pub(super) fn history(&mut self) -> Result<()> {
        let number = self.plan.history;
        println!("history: {number} checkpoints of 10 edits");
        let mut ours = self.plan.ours("ours-history")?;
        ours.set("BACKSTITCH_GC_AUTO", "false");
        ours.checkpoint(&self.tree)?;
        let base = ours.store_size()?;
        let mut times = Vec::with_capacity(number);
        let disturbed = machine::wait_for_peace();
        for _ in 0..number {
            self.edit(10)?;
            times.push(ours.checkpoint(&self.tree)?.0);
        }
        let raw = ours.store_size()?;
        let packs = join(&ours, &self.tree)?;
        let joined = ours.store_size()?;
        ours.run(&self.tree, &["gc"])?;
        let collected = ours.store_size()?;
        let sound = ours.run(&self.tree, &["verify"])?.1["ok"] == true;
        let row = self.report.row(&named("history", number, HISTORY));
        row.busy = disturbed;
        times.iter().for_each(|time| row.add(OURS, *time));
        for (name, size) in
            [("as captured MiB", raw), ("joined by itself MiB", joined), ("after gc MiB", collected)]
        {
            row.set(name, mib(size) - mib(base));
        }
        row.set("packs before", packs.0 as f64);
        row.set("packs joined by itself", packs.1 as f64);
        let ends = ENDS.min(number / 2).max(1);
        let list = row.of(OURS);
        if let (Some(first), Some(last)) = (list.get(..ends), list.get(list.len().saturating_sub(ends)..)) {
            let growth = stats::median(last).unwrap_or(0.0) / stats::median(first).unwrap_or(0.0).max(1e-9);
            row.set("time of the last/first 20", growth);
        }
        let holds = if sound { Ok(()) } else { Err("verify tells of damage".to_owned()) };
        self.report.fact("history: every object of the store is sound after the collection", holds);
        Ok(())
    }

    /// A list of many rows.
    pub(super) fn list(&mut self) -> Result<()> {
        let number = self.plan.rows;
        println!("list: {number} rows are made");
        let ours = self.plan.ours("ours-list")?;
        fill(&ours, &self.tree, number)?;
        let name = named("list", number, ROWS);
        for _ in 0..self.plan.rounds {
            let disturbed = machine::wait_for_peace();
            let before_cpu = machine::children_cpu();
            let (time, value) = ours.run(&self.tree, &["list", "--all"])?;
            let cpu = machine::children_cpu() - before_cpu;
            let listed = value["checkpoints"].as_array().map_or(0, Vec::len);
            if listed != number {
                return Err(format!("list: {listed} rows of {number}").into());
            }
            let row = self.report.row(&name);
            row.busy |= disturbed;
            row.add(OURS, time);
            row.add_cpu(OURS, cpu);
        }
        let memory = ours.peak_memory(&self.tree, &["list", "--all"])?;
        self.report.row(&name).set("memory MiB", memory as f64);
        Ok(())
    }

    /// From the interrupt of a first checkpoint, at several moments of it, to the end of the process.
    pub(super) fn cancel(&mut self) -> Result<()> {
        println!("cancel: a first checkpoint is interrupted");
        for round in 0..self.plan.rounds * 2 {
            let ours = self.plan.ours(&format!("ours-cancel-{round}"))?;
            let disturbed = machine::wait_for_peace();
            let mut command = ours.cli().command(&self.tree, ["--json", "checkpoint"]);
            machine::sync();
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            // Not a wait for anything: where in its work it is hit is what the rounds vary.
            thread::sleep(Duration::from_millis(50 + 150 * round as u64));
            let began = Instant::now();
            tools::quiet(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
            let status = child.wait()?;
            let time = began.elapsed();
            if status.code() != Some(130) {
                println!("cancel: round {round} came too late ({status})");
                continue;
            }
            let row = self.report.row("cancel");
            row.busy |= disturbed;
            row.add(OURS, time);
        }
        Ok(())
    }

    /// What an agent waits for.
    pub(super) fn hooks(&mut self) -> Result<()> {
        for watched in [false, true] {
            println!("hooks: {} turns{}", self.plan.turns, if watched { " beside a watcher" } else { "" });
            let dir = self.plan.dir.join(if watched { "hooks-watched" } else { "hooks" });
            hooks::measure(&self.plan.binary, &dir, self.plan.turns, watched, &mut self.report)?;
        }
        Ok(())
    }

    /// How often the system is called.
    pub(super) fn calls(&mut self) -> Result<()> {
        if let Err(why) = tools::can_trace() {
            println!("SKIPPED: calls: {why}");
            return Ok(());
        }
        println!("calls: one run of each under strace");
        let table = self.plan.dir.join("calls.txt");
        let count = |bench: &mut Self, name: &str, args: &[&str]| -> Result<()> {
            bench.ours.counted(&table)?.run(&bench.tree, args)?;
            let number = calls(&fs::read_to_string(&table)?).ok_or("strace has counted nothing")?;
            bench.report.row("calls").set(name, number as f64);
            Ok(())
        };
        self.ours.checkpoint(&self.tree)?;
        count(self, "unchanged", &["checkpoint"])?;
        self.edit(10)?;
        count(self, "10", &["checkpoint"])?;
        self.begin_turn("calls")?;
        let path = self.some_files(1).pop().ok_or("no file to edit")?;
        count(self, "tool-before", &window("before", "calls", "calls", &path))?;
        fs::OpenOptions::new().append(true).open(self.tree.join(&path))?.write_all(b"written by a tool\n")?;
        count(self, "tool-after", &window("after", "calls", "calls", &path))?;
        self.ours.run(&self.tree, &["turn", "end", "--session", "calls"])?;
        self.watched(|bench| count(bench, "watched-unchanged", &["checkpoint"]))
    }
}

/// One end of a tool's window.
fn window<'a>(end: &'a str, session: &'a str, call: &'a str, path: &'a str) -> [&'a str; 9] {
    ["tool", end, "--session", session, "--tool", "write", "--call", call, path]
}

/// What happens by itself, until nothing is joined any more: the packs before and after.
fn join(ours: &Ours, tree: &Path) -> Result<(u64, u64)> {
    let mut first = None;
    // Each time joins packs of about one size, so a few times are enough.
    for _ in 0..100 {
        let value = ours.run(tree, &["gc", "--auto"])?.1;
        if value.is_null() {
            // Another collection runs.
            thread::sleep(Duration::from_millis(100));
            continue;
        }
        let packs = |when: &str| {
            value["packs"][when].as_u64().ok_or_else(|| format!("gc --auto tells no packs: {value}"))
        };
        let (before, after) = (packs("before")?, packs("after")?);
        let first = *first.get_or_insert(before);
        if before == after {
            return Ok((first, after));
        }
    }
    Err("gc --auto joins packs without an end".into())
}

/// Makes so many rows, in one process.
fn fill(ours: &Ours, tree: &Path, number: usize) -> Result<()> {
    let mut child = ours
        .cli()
        .command(tree, ["serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut to = child.stdin.take().ok_or("no input")?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut call = |id: usize, method: &str, params: Value| -> Result<()> {
        writeln!(to, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let line = lines.next().ok_or("serve has ended")??;
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == json!(id) && answer.get("method").is_none() {
                return match answer.get("error") {
                    Some(error) => Err(format!("{method}: {error}").into()),
                    None => Ok(()),
                };
            }
        }
    };
    let mut filled = call(0, "initialize", json!({ "client": "bench", "version": "1" }));
    for id in 1..=number {
        filled = filled.and_then(|()| call(id, "checkpoint/create", json!({})));
    }
    drop(to);
    let ended = child.wait()?;
    filled?;
    if ended.success() { Ok(()) } else { Err(format!("serve: {ended}").into()) }
}

//! Prints how long a bare walk, a first scan and an unchanged scan of a folder take.
//!
//! `cargo run --release -p backstitch-scan --example walk -- FOLDER [ROUNDS] [THREADS]`
//!
//! The sink makes ids out of stat data and reads nothing, so that what is measured is the scan itself. Rounds take turns;
//! medians are printed, and the ratio to the bare walk beside them.

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use backstitch_scan::{
    BStr, ByteSlice, Dir, DirIds, Ignored, Limits, Oid, Options, Outcome, RuleSettings, Rules, ScanError,
    Sink, SinkError, Stat, Table, bare_walk, scan,
};

/// Counts calls; an id is a cheap mixture of what the stat says.
#[derive(Default)]
struct Counting {
    files: AtomicU64,
    dirs: AtomicU64,
}

fn id(words: &[u64]) -> Oid {
    let mut bytes = [0u8; 20];
    let mut mixed = 0xcbf2_9ce4_8422_2325u64;
    for (i, word) in words.iter().enumerate() {
        mixed = (mixed ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        bytes[i % 3 * 6..][..8].copy_from_slice(&mixed.to_le_bytes());
    }
    Oid::Sha1(bytes)
}

impl Sink for Counting {
    type Scratch = ();
    fn scratch(&self) {}
    fn file(&self, (): &mut (), _: &BStr, _: &mut File, stat: &Stat) -> Result<Oid, SinkError> {
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(id(&[stat.ino, stat.size, stat.mtime_ns as u64]))
    }
    fn link(&self, (): &mut (), _: &BStr, target: &[u8]) -> Result<Oid, SinkError> {
        Ok(id(&[target.len() as u64, target.iter().map(|b| u64::from(*b)).sum()]))
    }
    fn dir(&self, (): &mut (), dir: &Dir<'_>) -> Result<DirIds, SinkError> {
        self.dirs.fetch_add(1, Ordering::Relaxed);
        let words: Vec<u64> = dir.children.iter().map(|c| c.stat.ino ^ c.name.len() as u64).collect();
        Ok(DirIds { tree: id(&words), meta: None })
    }
    fn has(&self, _: &Oid) -> bool {
        true
    }
}

fn run(
    root: &Path,
    table: Option<&Table>,
    rules: &Rules,
    threads: usize,
    sink: &Counting,
) -> Result<Outcome, ScanError> {
    let interrupt = AtomicBool::new(false);
    scan(
        root,
        table,
        sink,
        &Options {
            threads,
            rules,
            limits: Limits::default(),
            ignored: Ignored::Small,
            nested_is_content: true,
            bare_is_content: false,
            never: &[],
            keep_covered: false,
            paranoid: false,
            quiet: None,
            note_anew: false,
            table_vouched: true,
            deadline: None,
            interrupt: &interrupt,
            progress: &|_, _| {},
        },
    )
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let root = args.next().ok_or("usage: walk FOLDER [ROUNDS] [THREADS]")?;
    let root = Path::new(&root);
    let number = |arg: Option<std::ffi::OsString>| arg.and_then(|a| a.to_str().and_then(|a| a.parse().ok()));
    let rounds = number(args.next()).unwrap_or(7);
    let threads =
        number(args.next()).unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get()));
    let state = tempfile::tempdir()?;
    let rules = Rules::discover(root, &RuleSettings::default())?;

    let (entries, bytes) = bare_walk(root, threads)?;
    println!("{entries} entries, {bytes} bytes, {threads} threads, {rounds} rounds");
    let first = run(root, None, &rules, threads, &Counting::default())?;
    println!(
        "covered: {} files, {} dirs, {} links; {} skipped",
        first.files,
        first.dirs,
        first.links,
        first.skips.len()
    );
    for skip in first.skips.iter().take(5) {
        println!("  {} {}", skip.reason.as_str(), skip.path.as_bstr());
    }
    let begun = Instant::now();
    first.update.ok_or("nothing to save")?.save(state.path(), b"walk".as_bstr())?;
    println!("save {:?}", begun.elapsed());
    let size = |name: &str| state.path().join(name).metadata().map_or(0, |m| m.len());
    println!("table {} bytes, {:.1} per entry", size("stat.base"), size("stat.base") as f64 / entries as f64);

    let (mut bare, mut fresh, mut same, mut open) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        let begun = Instant::now();
        bare_walk(root, threads)?;
        bare.push(begun.elapsed());

        let begun = Instant::now();
        run(root, None, &rules, threads, &Counting::default())?;
        fresh.push(begun.elapsed());

        let begun = Instant::now();
        let table = Table::open(state.path()).ok_or("no table")?;
        open.push(begun.elapsed());
        let sink = Counting::default();
        let outcome = run(root, Some(&table), &rules, threads, &sink)?;
        same.push(begun.elapsed());
        if round == 0 {
            println!(
                "unchanged: {} files read, {} dirs made, {} listed, update {}",
                sink.files.into_inner(),
                sink.dirs.into_inner(),
                outcome.listed_dirs,
                outcome.update.is_some()
            );
        }
    }
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let (bare, fresh, same) = (median(bare), median(fresh), median(same));
    println!("bare walk      {bare:?}");
    println!("first scan     {fresh:?}  {:.2}x", ratio(fresh, bare));
    println!("unchanged scan {same:?}  {:.2}x (opening the table {:?})", ratio(same, bare), median(open));
    Ok(())
}

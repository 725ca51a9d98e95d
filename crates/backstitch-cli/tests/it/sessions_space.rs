//! Many sessions, many turns: what the store takes, what a list costs, what deleting frees.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use backstitch::{
    record::{CHECKPOINTS, TRASH},
    turn::TurnOptions,
    workspace::{Control, Surroundings, Workspace},
};
use backstitch_testkit::generate::{self, Rng};

use crate::support::World;

/// What was measured.
#[derive(Debug)]
struct Figures {
    /// Bytes of the files before the first turn.
    copy: u64,
    /// Bytes of all files that turns wrote.
    changes: u64,
    rows: usize,
    /// On disk before and after consolidation, and after collection.
    raw: u64,
    consolidated: u64,
    collected: u64,
    /// Of the rows that were deleted: bytes that nothing else needs.
    unique: u64,
    freed: u64,
    /// Rows that other processes made meanwhile.
    beside: usize,
    list_ms: u128,
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(dir).unwrap() {
            let e = e.unwrap();
            match e.file_type().unwrap() {
                t if t.is_dir() => todo.push(e.path()),
                t if t.is_file() => out.push(e.path()),
                _ => {}
            }
        }
    }
    out.sort();
    out
}

fn size(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

/// Changes a few lines of a few files, as an agent does; bytes of those files afterwards.
fn edit(rng: &mut Rng, files: &[PathBuf], n: usize) -> u64 {
    let mut bytes = 0;
    for _ in 0..4 {
        let path = rng.pick(files);
        let mut text = fs::read(path).unwrap();
        let line = format!("let value_{n} = compute({}, {});\n", rng.below(1 << 20), rng.below(1 << 20));
        let at =
            text.iter().skip(rng.below(text.len().max(1))).position(|b| *b == b'\n').map_or(0, |i| i + 1);
        text.splice(at..at, line.bytes());
        fs::write(path, &text).unwrap();
        bytes += text.len() as u64;
    }
    bytes
}

fn measure(sessions: usize, turns: usize, count: usize) -> Figures {
    let w = World::new();
    fs::create_dir(w.path("src")).unwrap();
    generate::project(7, count).write(&w.path("src")).unwrap();
    let all = files(&w.ws);
    let copy = all.iter().map(|p| size(p)).sum();
    // Of ordinary size; the others are changed rarely.
    let sources: Vec<PathBuf> = all.into_iter().filter(|p| (200..100_000).contains(&size(p))).collect();
    let open = || {
        let s = Surroundings {
            store_base: w.cli.store_dir(),
            settings: vec![("BACKSTITCH_DURABILITY".into(), "none".into())],
            ..Surroundings::default()
        };
        Workspace::open(&w.ws, s).unwrap()
    };
    let control = Control::default();
    let mut ws = open();
    let mut rng = Rng::new(3);
    let mut changes = 0;
    for s in 0..sessions {
        let session = format!("s{s}");
        for t in 0..turns {
            let o = TurnOptions {
                session: session.clone(),
                key: None,
                prompt: Some(format!("{t}")),
                entry: None,
            };
            ws.turn_begin(&o, &control).unwrap();
            changes += edit(&mut rng, &sources, t);
            ws.turn_end(&session, None, "completed", &control).unwrap();
        }
    }
    let used = || w.json(&["status"])["used_bytes"].as_u64().unwrap();
    let raw = used();
    w.json(&["gc", "--auto"]);
    let consolidated = used();
    let start = Instant::now();
    let list = w.json(&["list", "--all"]);
    let mut list_ms = start.elapsed().as_millis();
    let rows = list["checkpoints"].as_array().unwrap().len();
    for _ in 0..4 {
        let start = Instant::now();
        w.json(&["list", "--all"]);
        list_ms = list_ms.min(start.elapsed().as_millis());
    }

    // Nine of ten go, while others go on.
    let known = ws.rows().unwrap();
    let gone: Vec<_> = known.all.iter().enumerate().filter(|(n, _)| n % 10 != 0).map(|(_, c)| c).collect();
    let names: Vec<String> = gone.iter().map(|c| format!("{CHECKPOINTS}{}", c.record.id)).collect();
    let unique = ws.store().unwrap().collect(
        std::time::Duration::ZERO,
        &names.iter().zip(&gone).map(|(n, c)| (n.clone(), c.commit)).collect::<Vec<_>>(),
        &backstitch_store::Care { dry_run: true, ..Default::default() },
    );
    let unique = unique.unwrap().garbage_bytes;
    ws.delete(&gone).unwrap();
    assert!(ws.store().unwrap().refs().list(TRASH).unwrap().len() == gone.len());
    let before = ws.store().unwrap().account("refs/", usize::MAX, &false.into()).unwrap().unwrap();
    let done = AtomicBool::new(false);
    let (swept, made) = std::thread::scope(|scope| {
        let others: Vec<_> = (0..2)
            .map(|n| {
                let (done, open, sources) = (&done, &open, &sources);
                scope.spawn(move || {
                    let mut ws = open();
                    let mut rng = Rng::new(100 + n);
                    let mut ids = Vec::new();
                    while !done.load(Ordering::Relaxed) || ids.is_empty() {
                        edit(&mut rng, sources, ids.len());
                        let out = ws.checkpoint(&Default::default(), &Control::default()).unwrap();
                        ids.push(out.checkpoint.unwrap().record.id.clone());
                    }
                    ids
                })
            })
            .collect();
        let swept = ws.gc(false, &control).unwrap();
        done.store(true, Ordering::Relaxed);
        let made: Vec<String> = others.into_iter().flat_map(|o| o.join().unwrap()).collect();
        (swept, made)
    });
    assert!(!swept.is_partial(), "{swept:?}");
    let after = ws.store().unwrap().account("refs/", usize::MAX, &false.into()).unwrap().unwrap();
    let collected = used();
    let odb = ws.store().unwrap().odb().unwrap();
    assert_eq!(w.json(&["verify"])["ok"], true);
    let left: HashSet<String> = ws.rows().unwrap().all.into_iter().map(|c| c.record.id.clone()).collect();
    assert_eq!(left.len(), rows - gone.len() + made.len());
    assert!(made.iter().all(|id| left.contains(id)));
    println!("live {} -> {}, garbage {} -> {}", before.live, after.live, before.garbage, after.garbage);
    Figures {
        copy,
        changes,
        rows,
        raw,
        consolidated,
        collected,
        unique,
        // What there is of garbage afterwards is commits of rows that were overtaken by one of the other thread.
        freed: if gone.iter().any(|c| odb.contains(&c.commit)) { 0 } else { swept.swept.garbage_bytes },
        beside: made.len(),
        list_ms,
    }
}

fn holds(f: &Figures) {
    println!(
        "{} rows; one copy {} and changes {}; on disk {} as captured, {} consolidated, {} after collection; \
         {} of {} unique bytes freed beside {} captures; list {} ms",
        f.rows, f.copy, f.changes, f.raw, f.consolidated, f.collected, f.freed, f.unique, f.beside, f.list_ms
    );
    assert!(f.consolidated as f64 <= 1.2 * (f.copy + f.changes) as f64, "{f:?}");
    assert!(f.freed as f64 >= 0.8 * f.unique as f64, "{f:?}");
    assert!(f.beside > 0);
}

/// `cargo xtask bench --sessions 20 --gate` is the same with twenty sessions of a hundred turns on 5,000 files.
#[test]
fn small_sessions_take_little_and_are_freed() {
    holds(&measure(3, 12, 200));
}

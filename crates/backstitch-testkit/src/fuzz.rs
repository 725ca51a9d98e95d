//! Fuzzing of parsers inside the ordinary tests: mutations of good inputs, led by what the parser says about them.
//!
//! # Example
//! ```
//! backstitch_testkit::fuzz::run("numbers", &[b"12"], &[b"-"], |input| {
//!     std::str::from_utf8(input).ok().and_then(|text| text.parse::<i64>().ok()).is_some()
//! });
//! ```
//!
//! # Limits
//! No instrumentation: an input counts as new if the parser's answer (a value, an error's text) is. A run takes [`ROUNDS`] inputs
//! with a fixed seed, or as many as there is time for in `BACKSTITCH_FUZZ_SECONDS`, then with a seed of its own, which is shown. An
//! input that panics, takes longer than [`HANG`] or more memory than [`MEMORY`] is written to the folder for temporary files.

use std::{
    collections::HashSet,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::generate::Rng;

/// Inputs of an ordinary run.
pub const ROUNDS: usize = 4000;
/// One input may take this long on a busy machine.
pub const HANG: Duration = Duration::from_secs(30);
/// A run may need this much more memory than was in use before, in bytes.
pub const MEMORY: u64 = 512 << 20;
/// How many seconds a run takes.
pub const SECONDS: &str = "BACKSTITCH_FUZZ_SECONDS";

const LONGEST: usize = 256 << 10;
const CORPUS: usize = 2000;

/// Calls `target` with the seeds, and then with mutations of them and of what gave a new answer. `words` are put in now and then.
///
/// # Panics
/// Where the target does, or needs too much memory. A hang ends the process.
pub fn run<S: AsRef<[u8]>, A: Hash>(
    name: &str,
    seeds: &[S],
    words: &[&[u8]],
    mut target: impl FnMut(&[u8]) -> A,
) {
    let seconds = std::env::var(SECONDS).ok().and_then(|s| s.parse::<f64>().ok()).filter(|s| *s > 0.0);
    let seed = if seconds.is_some() { RandomState::new().build_hasher().finish() } else { 1 };
    let mut rng = Rng::new(seed);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|s| s.as_ref().to_vec()).collect();
    corpus.push(Vec::new());
    let first = corpus.len();
    let mut answers = HashSet::new();
    let start = Instant::now();
    let memory = most_memory();
    let watch = Watch::start(name);
    let mut done = 0usize;
    loop {
        let over = match seconds {
            Some(s) => start.elapsed().as_secs_f64() >= s,
            None => done >= ROUNDS,
        };
        if done >= first && over {
            break;
        }
        let input = match corpus.get(done).filter(|_| done < first) {
            Some(seed) => seed.clone(),
            None => mutate(&mut rng, &corpus, words),
        };
        done += 1;
        watch.set(&input);
        let answer = catch_unwind(AssertUnwindSafe(|| target(&input)));
        watch.set(&[]);
        match answer {
            Ok(answer) => {
                let mut hasher = DefaultHasher::new();
                answer.hash(&mut hasher);
                if answers.insert(hasher.finish()) && done > first && corpus.len() < CORPUS {
                    corpus.push(input);
                }
            }
            Err(panic) => {
                eprintln!(
                    "fuzz {name}: seed {seed:#x}, input {}: {}",
                    keep(name, &input).display(),
                    show(&input)
                );
                resume_unwind(panic);
            }
        }
        if done.is_multiple_of(64) {
            let more = most_memory().saturating_sub(memory);
            assert!(
                more < MEMORY,
                "fuzz {name}: {more} bytes of memory after {}",
                keep(name, &corpus[corpus.len() - 1]).display()
            );
        }
    }
    println!("fuzz {name}: {done} inputs, {} answers, {:.1} s", answers.len(), start.elapsed().as_secs_f64());
}

fn show(input: &[u8]) -> String {
    crate::text::show(&input[..input.len().min(400)])
}

fn keep(name: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = std::env::temp_dir().join(format!("backstitch-fuzz-{name}-{:016x}", hasher.finish()));
    // The message has the beginning of it anyway.
    let _ = std::fs::write(&path, input);
    path
}

/// The most memory this process has had, in bytes; 0 where the system does not tell.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The input that is being read, and since when.
type Present = Option<(Vec<u8>, Instant)>;

/// Ends the process when one input takes too long.
struct Watch {
    now: Arc<Mutex<Present>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn start(name: &str) -> Watch {
        let watch = Watch { now: Arc::default(), over: Arc::default() };
        let (now, over, name) = (watch.now.clone(), watch.over.clone(), name.to_owned());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(500));
                let Ok(now) = now.lock() else { return };
                if let Some((input, since)) = &*now
                    && since.elapsed() > HANG
                {
                    eprintln!("fuzz {name}: hangs with {}: {}", keep(&name, input).display(), show(input));
                    std::process::abort();
                }
            }
        });
        watch
    }

    fn set(&self, input: &[u8]) {
        if let Ok(mut now) = self.now.lock() {
            *now = (!input.is_empty()).then(|| (input.to_vec(), Instant::now()));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

const NUMBERS: &[u64] = &[
    0,
    1,
    7,
    8,
    15,
    16,
    20,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// One to a few changes of one of the inputs.
fn mutate(rng: &mut Rng, corpus: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut out = rng.pick(corpus).clone();
    for _ in 0..=rng.below(4) {
        let len = out.len();
        let at = rng.below(len + 1);
        let end = at + rng.below((len - at).min(64) + 1);
        let mut put = |at: usize, bytes: &[u8], over: bool| {
            let end = if over { (at + bytes.len()).min(out.len()) } else { at };
            out.splice(at..end, bytes.iter().copied());
        };
        match rng.below(13) {
            0 if at < len => out[at] ^= 1 << rng.below(8),
            1 if at < len => out[at] = rng.bits() as u8,
            2 if at < len => out[at] = out[at].wrapping_add(if rng.chance(50) { 1 } else { 255 }),
            3 => drop(out.drain(at..end)),
            4 => {
                let piece = out[at..end].to_vec();
                let to = rng.below(len + 1);
                out.splice(to..to, piece);
            }
            5 => {
                let piece = out[at..end].repeat(1 + rng.below(40));
                out.splice(at..at, piece);
            }
            6 => out.truncate(at),
            7 => {
                let number = rng.pick(NUMBERS).wrapping_sub(rng.below(2) as u64);
                let size = 1 << rng.below(4);
                let bytes = number.to_be_bytes();
                let little = number.to_le_bytes();
                let bytes = if rng.chance(50) { &bytes[8 - size..] } else { &little[..size] };
                put(at, bytes, rng.chance(70));
            }
            8 => {
                let number = rng.pick(NUMBERS).to_string();
                put(at, number.as_bytes(), rng.chance(30));
            }
            9 | 10 if !words.is_empty() => put(at, words[rng.below(words.len())], rng.chance(30)),
            11 => {
                let other = rng.pick(corpus);
                let from = rng.below(other.len() + 1);
                out.truncate(at);
                out.extend_from_slice(&other[from..]);
            }
            12 => {
                let other = rng.pick(corpus);
                let from = rng.below(other.len() + 1);
                let to = from + rng.below((other.len() - from).min(64) + 1);
                put(at, &other[from..to], rng.chance(50));
            }
            _ => put(at, &[rng.bits() as u8], false),
        }
        out.truncate(LONGEST);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_new_answers_is_built_upon() {
        // Found only byte by byte.
        let found = std::cell::Cell::new(0);
        run("ladder", &[b"...."], &[], |input: &[u8]| {
            let n = input.iter().zip(b"ab\xff\0").take_while(|(a, b)| a == b).count();
            found.set(found.get().max(n));
            n
        });
        assert!(found.get() >= 3, "{}", found.get());
    }

    #[test]
    #[should_panic(expected = "seven")]
    fn a_panic_is_passed_on() {
        run("panics", &[b"6"], &[], |input: &[u8]| assert!(input.first() != Some(&b'7'), "seven"));
    }
}

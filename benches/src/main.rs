//! The yardsticks of `cargo xtask bench`: what the system itself costs, with no work of ours on top.
//!
//! - `bare walk DIR`: lists every directory below and stats every entry, through directory handles.
//! - `bare read DIR`: the same, and reads every file.
//! - `bare create FROM TO`: reads everything below FROM into memory, then makes the same files and directories in the new folder TO.
//!   It prints how long the making took, in nanoseconds; the reading does not count.
//!
//! All on as many threads as there are cores, or `--threads N`. They share no code with the product, so that they cannot become slow
//! together with it.

mod create;
mod walk;

use std::{io, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let mut threads = std::thread::available_parallelism().map_or(1, Into::into);
    let mut words = Vec::new();
    let mut args = std::env::args_os().skip(1);
    while let Some(word) = args.next() {
        if word == "--threads" {
            let number = args.next().and_then(|n| n.to_str()?.parse().ok());
            threads = number.ok_or_else(|| io::Error::other("--threads needs a number"))?;
        } else {
            words.push(PathBuf::from(word));
        }
    }
    let words: Vec<&PathBuf> = words.iter().collect();
    match words[..] {
        [what, dir] if what.as_os_str() == "walk" => println!("{}", walk::walk(dir, threads, false)?),
        [what, dir] if what.as_os_str() == "read" => println!("{}", walk::walk(dir, threads, true)?),
        [what, from, to] if what.as_os_str() == "create" => {
            println!("{}", create::create(from, to, threads)?.as_nanos());
        }
        _ => {
            return Err(io::Error::other(
                "usage: bare walk DIR | bare read DIR | bare create FROM TO [--threads N]",
            ));
        }
    }
    Ok(())
}

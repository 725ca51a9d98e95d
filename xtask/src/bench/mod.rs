//! `cargo xtask bench`: us, git's own way and the bare system in turn on the same trees, as ratios.

mod contenders;
mod hooks;
mod machine;
mod report;
mod rounds;
mod sessions;
mod stats;
mod trees;

use std::{
    fs,
    path::{Path, PathBuf},
};

use report::Report;
use rounds::Plan;
use serde_json::Value;
use trees::Tree;

use crate::{
    Result,
    args::{Command, Opt, Parsed},
    tools,
};

/// The table entry.
pub const COMMAND: Command = Command {
    name: "bench",
    about: "Measures us, git's own way and the bare system in turn on the same trees",
    details: "Ours is the release build of `backstitch`, durable, with its store beside the tree. Git's way is what other tools run:\n\
              `git add -A && git write-tree && git commit-tree && git update-ref` with a GIT_DIR beside the tree, and\n\
              `git read-tree --reset -u TREE && git clean -fd` to go back; it syncs nothing and saves nothing before it goes back.\n\
              Bare is a walk of the tree on all cores (getdents64 and statx, nothing else); for the restore of the larger half of\n\
              a tree, the making of the same files.\n\
              \n\
              In each round all of them run in turn, in changing order, after the same edits on the same tree. Shown are medians\n\
              of whole processes and the medians of the ratios of each round's pairs. Differences under 8 % are noise. In the first\n\
              round of each kind of restore (in all rounds of a small tree) the result is compared by content, type, mode and link\n\
              text, and what matched before must have kept its inode and times. At the end git checks our store.\n\
              \n\
              Old stores are kept until the end: after many deletions, ext4 makes new files slowly for some minutes.",
    options: &[
        Opt {
            name: "--tree",
            value: Some("LIST"),
            help: "small, linux, linux-git (as a clean repository), synth, with commas (small,linux)",
        },
        Opt { name: "--files", value: Some("N"), help: "how many files synth has (100000)" },
        Opt {
            name: "--operation",
            value: Some("LIST"),
            help: "first, unchanged, 10, 1000, restore-10, restore-1000, restore-half (all these), seeded (first, of the tree as a clean git repository)",
        },
        Opt { name: "--rounds", value: Some("N"), help: "rounds of the short operations (7)" },
        Opt {
            name: "--long-rounds",
            value: Some("N"),
            help: "rounds of those that take seconds: first and restore-half (3; of a small tree as --rounds)",
        },
        Opt {
            name: "--without",
            value: Some("LIST"),
            help: "leave out git, bare, check (the comparison of restored trees) or fsck",
        },
        Opt {
            name: "--delete",
            value: Some("HOW"),
            help: "before restore-half: rm (default), or move the folders away",
        },
        Opt { name: "--binary", value: Some("FILE"), help: "this program as ours; nothing is built" },
        Opt {
            name: "--dir",
            value: Some("DIR"),
            help: "where to work; not in a git work tree (the folder for temporary files)",
        },
        Opt {
            name: "--hooks",
            value: None,
            help: "instead: the hook processes that an agent waits for, over --rounds turns (200)",
        },
        Opt {
            name: "--sessions",
            value: Some("N"),
            help: "instead: so many sessions of --turns turns on --files files (5000): cost, space, list, collection",
        },
        Opt { name: "--turns", value: Some("N"), help: "turns of each of the --sessions (100)" },
        Opt { name: "--keep", value: None, help: "keep the working folder" },
        Opt { name: "--json", value: Some("FILE"), help: "write every figure to this file" },
        Opt { name: "--gate", value: None, help: "fail if a figure misses its goal" },
    ],
};

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    let list = |name: &str, default: &str| -> Vec<String> {
        options
            .text(name)
            .unwrap_or(default)
            .split(',')
            .map(|s| s.trim().to_owned())
            .filter(|s| !s.is_empty())
            .collect()
    };
    let operations = list("--operation", "first,unchanged,10,1000,restore-10,restore-1000,restore-half");
    let without = list("--without", "");
    check_words("--operation", &operations, rounds::OPERATIONS)?;
    check_words("--without", &without, &["git", "bare", "check", "fsck"])?;
    let how = options.text("--delete").unwrap_or("rm");
    check_words("--delete", &[how.to_owned()], &["rm", "move"])?;
    let files = options.value("--files", 100_000)?;
    let trees: Vec<Tree> =
        list("--tree", "small,linux").iter().map(|name| Tree::parse(name, files)).collect::<Result<_>>()?;

    let release = tools::target()?.join("release");
    let mut build = vec!["build", "--release"];
    let instead = options.has("--hooks") || options.has("--sessions");
    if !instead {
        build.extend(["--package", "backstitch-bench"]);
    }
    if options.text("--binary").is_none() {
        build.extend(["--package", "backstitch-cli"]);
    }
    if build.len() > 2 && !tools::stream(tools::cargo(build)?, |_| ())? {
        return Err("the release build fails".into());
    }
    let binary = match options.text("--binary") {
        Some(path) => PathBuf::from(path).canonicalize().map_err(|e| format!("{path}: {e}"))?,
        None => release.join("backstitch"),
    };
    let base = match options.text("--dir") {
        Some(dir) => std::path::absolute(dir)?,
        None => std::env::temp_dir(),
    };
    machine::warn_of_deletions(&base);
    let dir = base.join(format!("backstitch-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let dir = dir.canonicalize()?;
    if options.has("--hooks") {
        let good = hooks::run(&binary, &dir, options.value("--rounds", 200)?, options.has("--gate"))?;
        fs::remove_dir_all(&dir)?;
        return Ok(good);
    }
    if options.has("--sessions") {
        let size = sessions::Size {
            sessions: options.value("--sessions", 20)?,
            turns: options.value("--turns", 100)?,
            files: options.value("--files", 5_000)?,
        };
        let good = sessions::run(&binary, &dir, &size, options.has("--gate"))?;
        fs::remove_dir_all(&dir)?;
        machine::note_deletions(&base);
        return Ok(good);
    }
    println!("{}", machine::describe(&dir));

    let rounds: usize = options.value("--rounds", 7)?;
    let mut good = true;
    let mut all = Vec::new();
    for tree in trees {
        let long = if tree.is_small() { rounds } else { 3 };
        let plan = Plan {
            tree,
            dir: dir.join(tree.name()),
            binary: binary.clone(),
            bare: release.join("bare"),
            operations: operations.clone(),
            rounds,
            long_rounds: options.value("--long-rounds", long)?,
            git: !without.contains(&"git".into()),
            yardstick: !without.contains(&"bare".into()),
            check: !without.contains(&"check".into()),
            fsck: !without.contains(&"fsck".into()),
            delete: how == "rm",
        };
        println!("\n=== {}", tree.title());
        let report = plan.carry_out()?;
        println!();
        report.print();
        good &= report.correct() && (!options.has("--gate") || report.reaches_goals());
        all.push(report);
    }
    if let Some(file) = options.text("--json") {
        write_json(Path::new(file), &dir, &all)?;
    }
    if options.has("--keep") {
        println!("\nkept: {}", dir.display());
    } else {
        fs::remove_dir_all(&dir)?;
        machine::note_deletions(&base);
    }
    Ok(good)
}

fn check_words(option: &str, given: &[String], known: &[&str]) -> Result<()> {
    match given.iter().find(|word| !known.contains(&word.as_str())) {
        None => Ok(()),
        Some(word) => Err(format!("{option}: {word:?} is none of {}", known.join(", ")).into()),
    }
}

fn write_json(file: &Path, dir: &Path, reports: &[Report]) -> Result<()> {
    let trees: Vec<Value> = reports.iter().map(Report::to_json).collect();
    let document = serde_json::json!({ "machine": machine::describe(dir), "trees": trees });
    Ok(fs::write(file, serde_json::to_vec_pretty(&document)?)?)
}

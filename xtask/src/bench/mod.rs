//! `cargo xtask bench`: us, git's own way and the bare system in turn on the same trees, as ratios.

mod alone;
mod contenders;
mod goals;
mod hooks;
mod machine;
mod page;
mod peers;
mod report;
mod rounds;
mod row;
mod sessions;
mod stats;
mod trees;

use std::{
    fs,
    path::{Path, PathBuf},
};

use report::Report;
use rounds::Plan;
use row::Made;
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
              Ours has no watcher, but in the operations whose names begin with `watched-`. `tool` is both ends of a tool that\n\
              names its file; `history` many checkpoints of 10 edits, with what the store grows; `list` a long list (small only);\n\
              `hooks` an agent's hook processes (small only); `big-edit` 100 bytes in the middle of a large file (big only);\n\
              `calls` counts system calls with strace; `peers` are jj, restic and rustic, where they are on PATH; `seeded` is the\n\
              first checkpoint of the tree as a clean git repository.\n\
              \n\
              Old stores are kept until the end: after many deletions, ext4 makes new files slowly for some minutes.",
    options: &[
        Opt {
            name: "--tree",
            value: Some("LIST"),
            help: "small, linux, linux-git (as a clean repository), synth, js (packages of npm), big (2.1 GiB that do not\ncompress), with commas (small,linux); none measures nothing",
        },
        Opt {
            name: "--files",
            value: Some("LIST"),
            help: "how many files synth has (100000), one tree for each number",
        },
        Opt {
            name: "--operation",
            value: Some("LIST"),
            help: "first, unchanged, 10, 1000, restore-10, restore-1000, restore-half, big-edit (all these), watched-unchanged,\nwatched-10, watched-1000, watched-restore-10, watched-restore-1000, tool, watched-tool, calls, history, list,\nhooks, peers, cancel, seeded; all: whatever the tree takes",
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
        Opt {
            name: "--turns",
            value: Some("N"),
            help: "turns of each of the --sessions (100), of the operation hooks (1000)",
        },
        Opt { name: "--history", value: Some("N"), help: "checkpoints of the operation history (500)" },
        Opt { name: "--rows", value: Some("N"), help: "rows of the operation list (10000)" },
        Opt { name: "--scale", value: Some("N"), help: "divide the sizes of big by this, to try it (1)" },
        Opt { name: "--keep", value: None, help: "keep the working folder" },
        Opt { name: "--json", value: Some("FILE"), help: "write every figure to this file, after each tree" },
        Opt {
            name: "--write",
            value: Some("FILE"),
            help: "put the figures into this page, between its marks",
        },
        Opt {
            name: "--add",
            value: Some("LIST"),
            help: "take up what earlier runs wrote with --json; of each tree and operation the newest stays",
        },
        Opt { name: "--gate", value: None, help: "fail if a figure misses its goal" },
    ],
};

/// What is measured without a wish, as far as the tree takes it.
const USUAL: &str = "first,unchanged,10,1000,restore-10,restore-1000,restore-half,big-edit";

/// The task.
pub fn run(options: &Parsed) -> Result<bool> {
    let mut all = measure(options)?;
    for file in list(options, "--add", "") {
        let text = fs::read(&file).map_err(|e| format!("{file}: {e}"))?;
        let earlier = serde_json::from_slice(&text).map_err(|e| format!("{file}: {e}"))?;
        report::add(&mut all, &earlier).ok_or_else(|| format!("{file}: not of this program"))?;
    }
    if options.has("--add") {
        for report in &all {
            println!();
            report.print();
        }
    }
    if let Some(file) = options.text("--json") {
        write_json(Path::new(file), &all)?;
    }
    if let Some(file) = options.text("--write") {
        let seen = |name: &&str| all.iter().flat_map(|r| &r.rows).any(|row| row.seconds.contains_key(*name));
        let missing: Vec<&str> = peers::missing().into_iter().filter(|name| !seen(name)).collect();
        tools::write_section(file, page::MARKS, &page::section(&all, &missing))?;
    }
    let gate = options.has("--gate");
    Ok(all.iter().all(|report| report.correct() && (!gate || report.reaches_goals())))
}

fn list(options: &Parsed, name: &str, default: &str) -> Vec<String> {
    let text = options.text(name).unwrap_or(default);
    text.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect()
}

/// Whatever is asked for.
fn measure(options: &Parsed) -> Result<Vec<Report>> {
    let operations = list(options, "--operation", USUAL);
    let without = list(options, "--without", "");
    check_words("--operation", &operations, &[rounds::OPERATIONS, &["all"]].concat())?;
    check_words("--without", &without, &["git", "bare", "check", "fsck"])?;
    let how = options.text("--delete").unwrap_or("rm");
    check_words("--delete", &[how.to_owned()], &["rm", "move"])?;
    let (hooks, sessions) = (options.has("--hooks"), options.has("--sessions"));
    let files: Vec<usize> = list(options, "--files", if sessions { "5000" } else { "100000" })
        .iter()
        .map(|n| n.parse().map_err(|_| format!("--files: cannot read {n:?}")))
        .collect::<Result<_, _>>()?;
    let scale = options.value("--scale", 1)?;
    let mut trees = Vec::new();
    for name in list(options, "--tree", "small,linux") {
        trees.extend(Tree::parse(&name, &files, scale)?);
    }
    if trees.is_empty() && !hooks && !sessions {
        return Ok(Vec::new());
    }

    let release = tools::target()?.join("release");
    let mut build = vec!["build", "--release"];
    if !hooks && !sessions {
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
    let made = Made {
        machine: machine::describe(&dir),
        date: machine::now(),
        commit: match options.text("--binary") {
            Some(_) => "unknown (a given program)".into(),
            None => machine::commit(),
        },
    };
    println!("{}", made.machine);

    let mut all: Vec<Report> = Vec::new();
    if hooks {
        let turns = options.value("--rounds", 200)?;
        println!("hook processes on a small tree, {turns} turns, durable, one after the other\n");
        let mut report = Report::new(&Tree::Small.name(), &Tree::Small.title(), &made);
        for (watched, name) in [(false, "plain"), (true, "watched")] {
            hooks::measure(&binary, &dir.join(name), turns, watched, &mut report)?;
        }
        hooks::print(&report);
        all.push(report);
    } else if sessions {
        let size = sessions::Size {
            sessions: options.value("--sessions", 20)?,
            turns: options.value("--turns", 100)?,
            files: files.first().copied().unwrap_or(5_000),
        };
        all.push(sessions::run(&binary, &dir, &size, &made)?);
    } else {
        let rounds: usize = options.value("--rounds", 7)?;
        let has = |word: &str| !without.contains(&word.to_owned());
        for tree in trees {
            let plan = Plan {
                tree,
                dir: dir.join(tree.name()),
                binary: binary.clone(),
                bare: release.join("bare"),
                operations: wanted(tree, &operations),
                rounds,
                long_rounds: options.value("--long-rounds", tree.long_rounds(rounds))?,
                git: has("git"),
                yardstick: has("bare"),
                check: has("check"),
                fsck: has("fsck"),
                delete: how == "rm",
                history: options.value("--history", alone::HISTORY)?,
                rows: options.value("--rows", alone::ROWS)?,
                turns: options.value("--turns", 1_000)?,
                // Later rows are newer.
                made: Made { date: machine::now(), ..made.clone() },
            };
            println!("\n=== {}", tree.title());
            all.push(plan.carry_out()?);
            println!();
            if let (Some(report), false) = (all.last(), options.has("--add")) {
                report.print();
            }
            // Whatever happens to the next tree.
            if let Some(file) = options.text("--json") {
                write_json(Path::new(file), &all)?;
            }
        }
    }
    if (hooks || sessions) && !options.has("--add") {
        all.iter().for_each(Report::print);
    }
    if options.has("--keep") {
        println!("\nkept: {}", dir.display());
    } else {
        fs::remove_dir_all(&dir)?;
        machine::note_deletions(&base);
    }
    Ok(all)
}

/// The operations that a tree takes of those that were asked for; it is said which it does not take.
fn wanted(tree: Tree, asked: &[String]) -> Vec<String> {
    let all = asked.iter().any(|o| o == "all");
    let (taken, left): (Vec<String>, Vec<String>) = match all {
        true => rounds::OPERATIONS.iter().map(|o| (*o).to_owned()).partition(|o| tree.takes(o)),
        false => asked.iter().cloned().partition(|o| tree.takes(o)),
    };
    if !all && !left.is_empty() {
        println!("not for {}: {}", tree.name(), left.join(", "));
    }
    taken
}

fn check_words(option: &str, given: &[String], known: &[&str]) -> Result<()> {
    match given.iter().find(|word| !known.contains(&word.as_str())) {
        None => Ok(()),
        Some(word) => Err(format!("{option}: {word:?} is none of {}", known.join(", ")).into()),
    }
}

fn write_json(file: &Path, reports: &[Report]) -> Result<()> {
    let text = serde_json::to_vec_pretty(&report::document(reports))?;
    Ok(fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?)
}

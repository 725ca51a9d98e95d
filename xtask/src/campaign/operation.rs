//! The commands that are hit, as data: how their world is prepared, and how they are done again and taken back.

use std::fs;

use backstitch_testkit::{Cli, Git};

use super::world::World;
use crate::Result;

/// One command.
pub struct Operation {
    /// What it is called by.
    pub name: &'static str,
    /// What is typed, for people.
    pub typed: &'static str,
    /// Makes the world before the command; gives its arguments.
    pub prepare: fn(&mut World) -> Result<Vec<String>>,
    /// What is done after a hit, to see that life goes on.
    pub again: Again,
    /// Whether an unfinished one is meant to be given again: it waits for that.
    pub waits: bool,
    /// Settings by variable, from the first fault on.
    pub env: &'static [(&'static str, &'static str)],
}

/// How a command is done again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The same command leads to the new state, and `undo` back to the old one.
    Undo,
    /// The same command leads to the new state if it was not reached, and the other one back to the old one.
    Back(&'static str),
    /// The same command may be given again; where what it names is gone by then, it says so.
    Repeat,
    /// As that, and each row that is listed can be restored.
    Rows,
    /// As `Repeat`, and then everything is on both sides of the remote.
    Sent,
}

/// All of them.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "first",
        typed: "checkpoint (no store yet)",
        prepare: first,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "checkpoint",
        typed: "checkpoint",
        prepare: checkpoint,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "threads",
        typed: "checkpoint (4 threads)",
        prepare: checkpoint,
        again: Again::Repeat,
        waits: false,
        env: &[("BACKSTITCH_THREADS", "4")],
    },
    Operation {
        name: "restore",
        typed: "restore ROW",
        prepare: restore,
        again: Again::Undo,
        waits: false,
        env: &[],
    },
    Operation {
        name: "parked",
        typed: "restore ROW (below the floor of free space)",
        prepare: parked,
        again: Again::Undo,
        waits: false,
        env: &[("BACKSTITCH_FREE_FLOOR", "8000000TB")],
    },
    Operation {
        name: "undo",
        typed: "undo",
        prepare: undo,
        again: Again::Back("redo"),
        waits: false,
        env: &[],
    },
    Operation {
        name: "redo",
        typed: "redo",
        prepare: redo,
        again: Again::Back("undo"),
        waits: false,
        env: &[],
    },
    Operation {
        name: "rewind",
        typed: "rewind turn:1 --outside",
        prepare: rewind,
        again: Again::Back("undo"),
        waits: false,
        env: &[],
    },
    Operation {
        name: "revert",
        typed: "revert turn:2 --outside",
        prepare: revert,
        again: Again::Back("undo"),
        waits: false,
        env: &[],
    },
    Operation {
        name: "git-state",
        typed: "restore ROW --git-state",
        prepare: git_state,
        again: Again::Undo,
        waits: false,
        env: &[],
    },
    Operation {
        name: "git-state-undo",
        typed: "undo (of a restore with --git-state)",
        prepare: git_state_undo,
        again: Again::Back("redo"),
        waits: false,
        env: &[],
    },
    Operation {
        name: "push",
        typed: "sync push REMOTE",
        prepare: push,
        again: Again::Sent,
        waits: true,
        env: &[],
    },
    Operation {
        name: "pull",
        typed: "sync pull REMOTE",
        prepare: pull,
        again: Again::Sent,
        waits: true,
        env: &[],
    },
    Operation {
        name: "turn-begin",
        typed: "turn begin",
        prepare: turn_begin,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "turn-end",
        typed: "turn end",
        prepare: turn_end,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "tool-before",
        typed: "tool before PATH…",
        prepare: tool_before,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "tool-after",
        typed: "tool after PATH…",
        prepare: tool_after,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "fork",
        typed: "session fork",
        prepare: fork,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "session-delete",
        typed: "session delete",
        prepare: session_delete,
        again: Again::Rows,
        waits: false,
        env: &[],
    },
    Operation {
        name: "label",
        typed: "label ROW NAME",
        prepare: label,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "pin",
        typed: "pin ROW ROW",
        prepare: pin,
        again: Again::Repeat,
        waits: false,
        env: &[],
    },
    Operation {
        name: "delete",
        typed: "delete ROW ROW",
        prepare: delete,
        again: Again::Rows,
        waits: false,
        env: &[],
    },
    Operation {
        name: "prune",
        typed: "prune",
        prepare: prune,
        again: Again::Rows,
        waits: false,
        env: &[("BACKSTITCH_RETENTION_ROWS", "2")],
    },
    Operation { name: "gc", typed: "gc", prepare: gc, again: Again::Rows, waits: false, env: &[] },
    Operation {
        name: "forget",
        typed: "forget PATH",
        prepare: forget,
        again: Again::Rows,
        waits: true,
        env: &[],
    },
    Operation {
        name: "install",
        typed: "install claude",
        prepare: install,
        again: Again::Repeat,
        waits: true,
        env: &[],
    },
    Operation {
        name: "uninstall",
        typed: "uninstall claude",
        prepare: uninstall,
        again: Again::Repeat,
        waits: true,
        env: &[],
    },
    Operation {
        name: "config",
        typed: "config set budget 10GiB",
        prepare: config,
        again: Again::Repeat,
        waits: true,
        env: &[],
    },
];

fn words(words: &[&str]) -> Result<Vec<String>> {
    Ok(words.iter().map(|w| (*w).to_owned()).collect())
}

fn first(world: &mut World) -> Result<Vec<String>> {
    world.fill()?;
    words(&["checkpoint"])
}

/// A row, and many changes since.
fn edited(world: &World) -> Result<String> {
    world.fill()?;
    let first = world.checkpoint()?;
    world.edit(1, 40)?;
    world.swap()?;
    Ok(first)
}

fn checkpoint(world: &mut World) -> Result<Vec<String>> {
    edited(world)?;
    words(&["checkpoint"])
}

fn restore(world: &mut World) -> Result<Vec<String>> {
    let first = edited(world)?;
    world.checkpoint()?;
    words(&["restore", &first])
}

fn parked(world: &mut World) -> Result<Vec<String>> {
    let first = edited(world)?;
    words(&["restore", &first])
}

fn undo(world: &mut World) -> Result<Vec<String>> {
    let restore = restore(world)?;
    world.done(&["restore", &restore[1]])?;
    words(&["undo"])
}

fn redo(world: &mut World) -> Result<Vec<String>> {
    undo(world)?;
    world.done(&["undo"])?;
    words(&["redo"])
}

/// A call of a tool that names paths here and elsewhere.
fn file_tool(world: &World, call: &str) -> Result<Vec<String>> {
    let notes = world.elsewhere.join("notes.txt").to_string_lossy().into_owned();
    let large = world.workspace.join("large").to_string_lossy().into_owned();
    words(&["--session", "s", "--call", call, "--tool", "Edit", &large, &notes])
}

/// Two turns of a session: files here and elsewhere by name, then what a shell does.
fn session(world: &World) -> Result<()> {
    world.fill()?;
    let run = |words: &[&str]| world.done(words).map(|_| ());
    let tool = |end: &str, call: &str| -> Result<()> {
        let tail = file_tool(world, call)?;
        let mut all = vec!["tool", end];
        all.extend(tail.iter().map(String::as_str));
        run(&all)
    };
    let shell =
        |end: &str, call: &str| run(&["tool", end, "--session", "s", "--call", call, "--tool", "Bash"]);
    run(&["turn", "begin", "--session", "s", "--key", "k1", "--prompt", "the first"])?;
    tool("before", "c1")?;
    fs::write(world.workspace.join("large"), b"other lines of text\n".repeat(9_000))?;
    fs::write(world.elsewhere.join("notes.txt"), "notes of the agent\n")?;
    tool("after", "c1")?;
    shell("before", "c2")?;
    world.edit(1, 40)?;
    shell("after", "c2")?;
    run(&["turn", "end", "--session", "s", "--key", "k1"])?;
    run(&["turn", "begin", "--session", "s", "--key", "k2", "--prompt", "the second"])?;
    shell("before", "c3")?;
    world.swap()?;
    shell("after", "c3")?;
    run(&["turn", "end", "--session", "s", "--key", "k2"])
}

fn rewind(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    words(&["rewind", "turn:1", "--session", "s", "--outside"])
}

fn revert(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    words(&["revert", "turn:2", "--session", "s", "--outside"])
}

/// A repository with branches, tags, stashes and a careful index, and a row of that; then an agent's wreckage.
fn git_state(world: &mut World) -> Result<Vec<String>> {
    world.fill()?;
    let git = Git::new()?;
    let run = |words: &[&str]| git.run(&world.workspace, words).map(|_| ());
    let write = |text: &str| fs::write(world.workspace.join("swap/first"), text);
    run(&["init", "-q"])?;
    run(&["add", "pkg0", "swap"])?;
    run(&["commit", "-qm", "start"])?;
    for n in 1..4 {
        write(&format!("change {n}\n"))?;
        run(&["commit", "-qam", &format!("change {n}")])?;
    }
    run(&["branch", "topic/x", "HEAD~2"])?;
    run(&["tag", "-a", "heavy", "-m", "a tag"])?;
    for n in 1..3 {
        write(&format!("stashed {n}\n"))?;
        run(&["stash", "-q"])?;
    }
    write("staged\n")?;
    run(&["add", "swap/first"])?;
    write("not staged\n")?;
    let row = world.checkpoint()?;
    run(&["stash", "drop", "-q"])?;
    run(&["reset", "-q", "--hard", "HEAD~2"])?;
    run(&["checkout", "-q", "topic/x"])?;
    run(&["branch", "-D", "main"])?;
    run(&["branch", "topic/y"])?;
    run(&["tag", "-d", "heavy"])?;
    run(&["reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all"])?;
    run(&["gc", "-q", "--prune=now"])?;
    words(&["restore", &row, "--git-state"])
}

fn git_state_undo(world: &mut World) -> Result<Vec<String>> {
    let restore = git_state(world)?;
    world.done(&restore.iter().map(String::as_str).collect::<Vec<_>>())?;
    words(&["undo"])
}

fn remote(world: &World) -> Result<String> {
    fs::create_dir(&world.remote)?;
    Git::new()?.run(&world.remote, ["init", "-q", "--bare"])?;
    Ok(world.remote.to_string_lossy().into_owned())
}

fn push(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    let remote = remote(world)?;
    world.done(&["sync", "push", &remote])?;
    world.edit(4, 20)?;
    world.checkpoint()?;
    world.checkpoint()?;
    words(&["sync", "push", &remote])
}

/// What another machine sent, into a store that has rows of its own.
fn pull(world: &mut World) -> Result<Vec<String>> {
    let remote = remote(world)?;
    let dir = world.remote.with_file_name("other");
    let [files, home] = ["workspace", "home"].map(|name| dir.join(name));
    for folder in [&files, &home] {
        fs::create_dir_all(folder)?;
    }
    let other = Cli::with_home(world.cli.binary(), &home)?;
    for n in 1..4 {
        fs::create_dir_all(files.join("d"))?;
        fs::write(files.join(format!("d/{n}")), format!("{n}\n").repeat(n * 1000))?;
        other.json(&files, ["checkpoint"])?.ok()?;
    }
    other.json(&files, ["sync", "push", &remote])?.ok()?;
    edited(world)?;
    words(&["sync", "pull", &remote])
}

fn turn_begin(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    world.edit(2, 12)?;
    words(&["turn", "begin", "--session", "s", "--key", "k3", "--prompt", "the third"])
}

fn turn_end(world: &mut World) -> Result<Vec<String>> {
    let begin = turn_begin(world)?;
    world.done(&begin.iter().map(String::as_str).collect::<Vec<_>>())?;
    world.edit(3, 12)?;
    words(&["turn", "end", "--session", "s", "--key", "k3"])
}

fn tool_before(world: &mut World) -> Result<Vec<String>> {
    turn_end(world)?;
    let mut all = words(&["tool", "before"])?;
    all.extend(file_tool(world, "c9")?);
    Ok(all)
}

fn tool_after(world: &mut World) -> Result<Vec<String>> {
    let mut all = tool_before(world)?;
    world.done(&all.iter().map(String::as_str).collect::<Vec<_>>())?;
    fs::write(world.workspace.join("large"), b"third lines of text\n".repeat(5_000))?;
    fs::write(world.elsewhere.join("notes.txt"), "later notes\n")?;
    all[1] = "after".into();
    Ok(all)
}

fn fork(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    words(&["session", "fork", "--session", "s", "--from", "turn:1", "t"])
}

fn session_delete(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    world.checkpoint()?;
    words(&["session", "delete", "s"])
}

/// Several rows; the ids, oldest first.
fn history(world: &World) -> Result<Vec<String>> {
    let mut ids = vec![edited(world)?];
    ids.push(world.checkpoint()?);
    for which in 2..5 {
        world.edit(which, 10)?;
        ids.push(world.checkpoint()?);
    }
    for _ in 0..3 {
        ids.push(world.checkpoint()?);
    }
    Ok(ids)
}

fn label(world: &mut World) -> Result<Vec<String>> {
    let ids = history(world)?;
    words(&["label", &ids[1], "named"])
}

fn pin(world: &mut World) -> Result<Vec<String>> {
    let ids = history(world)?;
    words(&["pin", &ids[0], &ids[2]])
}

fn delete(world: &mut World) -> Result<Vec<String>> {
    let ids = history(world)?;
    words(&["delete", &ids[0], &ids[2]])
}

fn prune(world: &mut World) -> Result<Vec<String>> {
    session(world)?;
    for n in 3..7 {
        let key = format!("k{n}");
        world.done(&["turn", "begin", "--session", "s", "--key", &key, "--prompt", "and on"])?;
        world.edit(n, 6)?;
        world.done(&["turn", "end", "--session", "s", "--key", &key])?;
    }
    words(&["prune"])
}

fn gc(world: &mut World) -> Result<Vec<String>> {
    let ids = history(world)?;
    world.done(&["delete", &ids[1], &ids[2]])?;
    words(&["gc"])
}

fn forget(world: &mut World) -> Result<Vec<String>> {
    history(world)?;
    words(&["forget", "large", "--yes"])
}

fn agents(world: &World) -> Result<()> {
    world.fill()?;
    world.checkpoint()?;
    let folder = world.cli.home().join(".claude");
    fs::create_dir(&folder)?;
    fs::write(
        folder.join("settings.json"),
        "{\n  \"model\": \"large\",\n  \"permissions\": {\"allow\": [\"Bash(ls)\"]}\n}\n",
    )?;
    Ok(())
}

fn install(world: &mut World) -> Result<Vec<String>> {
    agents(world)?;
    words(&["install", "claude", "--yes"])
}

fn uninstall(world: &mut World) -> Result<Vec<String>> {
    agents(world)?;
    world.done(&["install", "claude", "--yes"])?;
    words(&["uninstall", "claude", "--yes"])
}

fn config(world: &mut World) -> Result<Vec<String>> {
    world.fill()?;
    world.checkpoint()?;
    world.done(&["config", "set", "prompts", "snippet"])?;
    words(&["config", "set", "budget", "10GiB"])
}

//! Other tools that keep states of a folder, where they are on the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use backstitch_testkit::privilege::has_program;

use super::{machine, rounds::Bench, row::OURS};
use crate::{Result, tools};

/// One of them.
trait Peer {
    /// Its program.
    fn name(&self) -> &'static str;

    /// The command that makes its empty store.
    fn prepare(&self, dir: &Path, tree: &Path) -> Command;

    /// The command that records the tree.
    fn record(&self, dir: &Path, tree: &Path) -> Command;

    /// What it has put into the tree.
    fn inside(&self) -> Option<&'static str> {
        None
    }
}

/// Its state lies in the tree; any command records first.
struct Jj;

impl Peer for Jj {
    fn name(&self) -> &'static str {
        "jj"
    }

    fn prepare(&self, _: &Path, tree: &Path) -> Command {
        let mut c = Command::new("jj");
        c.args(["git", "init"]).current_dir(tree);
        c
    }

    fn record(&self, _: &Path, tree: &Path) -> Command {
        let mut c = Command::new("jj");
        c.args(["--config", "snapshot.max-new-file-size=0", "log", "--no-graph", "-r", "none()"])
            .current_dir(tree);
        c
    }

    fn inside(&self) -> Option<&'static str> {
        Some(".jj")
    }
}

/// restic, and rustic, which is called in the same way.
struct Backup(&'static str);

impl Backup {
    fn command(&self, dir: &Path, words: &[&str]) -> Command {
        let mut c = Command::new(self.0);
        c.arg("-r").arg(dir.join("repository")).args(words);
        for program in ["RESTIC", "RUSTIC"] {
            c.env(format!("{program}_PASSWORD"), "bench");
        }
        c
    }
}

impl Peer for Backup {
    fn name(&self) -> &'static str {
        self.0
    }

    fn prepare(&self, dir: &Path, _: &Path) -> Command {
        self.command(dir, &["init"])
    }

    fn record(&self, dir: &Path, tree: &Path) -> Command {
        let mut c = self.command(dir, &["backup"]);
        c.arg(tree);
        c
    }
}

const ALL: &[&dyn Peer] = &[&Jj, &Backup("restic"), &Backup("rustic")];

/// Those that are not here.
pub fn missing() -> Vec<&'static str> {
    ALL.iter().map(|peer| peer.name()).filter(|name| !has_program(name)).collect()
}

/// The tool and the operation of a row of this kind.
pub fn split(operation: &str) -> Option<(&str, &str)> {
    let (who, rest) = operation.split_once(' ')?;
    ALL.iter().any(|peer| peer.name() == who).then_some((who, rest))
}

impl Bench<'_> {
    /// First, unchanged and ten edits, in turn with ours.
    pub(super) fn peers(&mut self) -> Result<()> {
        for peer in ALL {
            if !has_program(peer.name()) {
                println!("SKIPPED: peers: {} is not here", peer.name());
                continue;
            }
            println!("peers: {}", peer.name());
            let measured = self.beside(*peer);
            if let Some(name) = peer.inside() {
                fs::remove_dir_all(self.tree.join(name))?;
            }
            measured?;
        }
        Ok(())
    }

    fn beside(&mut self, peer: &dyn Peer) -> Result<()> {
        let dir = self.plan.dir.join(peer.name());
        fs::create_dir_all(&dir)?;
        let ours = self.plan.ours(&format!("ours-beside-{}", peer.name()))?;
        run(peer.prepare(&dir, &self.tree), &dir)?;
        for (operation, rounds, edits) in
            [("first", 1, 0), ("unchanged", self.plan.rounds, 0), ("10", self.plan.rounds, 10)]
        {
            for round in 0..rounds {
                self.edit(edits)?;
                let mut turns = [OURS, peer.name()];
                turns.rotate_left(round % 2);
                for who in turns {
                    let disturbed = machine::wait_for_peace();
                    let time = if who == OURS {
                        ours.checkpoint(&self.tree)?.0
                    } else {
                        run(peer.record(&dir, &self.tree), &dir)?
                    };
                    let row = self.report.row(&format!("{} {operation}", peer.name()));
                    row.busy |= disturbed;
                    row.add(who, time);
                }
            }
        }
        Ok(())
    }
}

/// With a home of its own.
fn run(mut command: Command, home: &Path) -> Result<Duration> {
    let home: PathBuf = home.join("home");
    fs::create_dir_all(&home)?;
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config"));
    command.env("XDG_CACHE_HOME", home.join("cache"));
    machine::sync();
    let start = Instant::now();
    tools::quiet(&mut command)?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_tools_are_known_by_their_names() {
        assert_eq!(split("jj unchanged"), Some(("jj", "unchanged")));
        assert_eq!(split("rustic 10"), Some(("rustic", "10")));
        assert_eq!((split("hook Stop"), split("first")), (None, None));
    }
}

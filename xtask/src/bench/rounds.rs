//! The rounds: the same edits for everybody, everybody in turn.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_testkit::{Compare, Git, Kind, TreeModel, model::Options, text};

use super::{
    contenders::{Bare, Ours, Shadow},
    machine,
    report::Report,
    row::{BARE, GIT, Made, OURS},
    trees::{self, Tree},
};
use crate::{Result, campaign::own_workspace};

/// Everything that can be measured. What ends in a number is after so many edits; `watched-` is the same beside a watcher.
pub const OPERATIONS: &[&str] = &[
    "first",
    "unchanged",
    "10",
    "1000",
    "restore-10",
    "restore-1000",
    "restore-half",
    "watched-unchanged",
    "watched-10",
    "watched-1000",
    "watched-restore-10",
    "watched-restore-1000",
    "tool",
    "watched-tool",
    "big-edit",
    "calls",
    "history",
    "list",
    "hooks",
    "peers",
    "cancel",
    "seeded",
];

/// Those with a store of their own.
const APART: &[&str] = &["first", "history", "list", "hooks", "peers", "cancel", "seeded"];

/// What to measure, and how.
pub struct Plan {
    /// The tree.
    pub tree: Tree,
    /// Where everything of it lies.
    pub dir: PathBuf,
    /// Our program.
    pub binary: PathBuf,
    /// The bare programs.
    pub bare: PathBuf,
    /// Of [`OPERATIONS`].
    pub operations: Vec<String>,
    /// Rounds of the short ones.
    pub rounds: usize,
    /// Rounds of those that take seconds.
    pub long_rounds: usize,
    /// Whether git takes part.
    pub git: bool,
    /// Whether the bare programs do.
    pub yardstick: bool,
    /// Whether restored trees are compared.
    pub check: bool,
    /// Whether git checks our store at the end.
    pub fsck: bool,
    /// Whether the half is removed, rather than moved away.
    pub delete: bool,
    /// Checkpoints of `history`.
    pub history: usize,
    /// Rows of `list`.
    pub rows: usize,
    /// Turns of `hooks`.
    pub turns: usize,
    /// Where and when.
    pub made: Made,
}

/// Who is to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Git,
    Bare,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Ours => OURS,
            Who::Git => GIT,
            Who::Bare => BARE,
        }
    }
}

/// A bench under way.
pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) tree: PathBuf,
    pub(super) ours: Ours,
    git: Option<Shadow>,
    bare: Bare,
    /// The regular files that may be edited, in order.
    pub(super) files: Vec<PathBuf>,
    pub(super) report: Report,
    /// Counts the edits, so that each makes something new.
    pub(super) edits: usize,
}

impl Plan {
    /// Lays the tree, runs the rounds, checks the results.
    pub fn carry_out(&self) -> Result<Report> {
        fs::create_dir_all(&self.dir)?;
        let tree = self.dir.join("tree");
        self.tree.lay(&tree)?;
        let model = TreeModel::read_with(&tree, Options { content: false, ..Options::default() })?;
        let mut report = Report::new(&self.tree.name(), &self.tree.title(), &self.made);
        let count = |kind| model.count(kind) as u64;
        (report.files, report.links, report.dirs) = (count(Kind::File), count(Kind::Link), count(Kind::Dir));
        report.bytes = trees::size(&tree)?.bytes;
        println!("{}", report.head());
        let files = model
            .entries
            .iter()
            .filter(|(path, entry)| entry.kind == Kind::File && !is_rule(path))
            .map(|(path, _)| text::join(&tree, path))
            .collect();
        let mut bench = Bench {
            plan: self,
            ours: self.ours("ours-0")?,
            git: if self.git { Some(Shadow::new(&self.dir.join("git-0"))?) } else { None },
            bare: Bare(self.bare.clone()),
            tree,
            files,
            report,
            edits: 0,
        };
        own_workspace(bench.ours.cli(), &bench.tree)?;
        let ran = bench.run();
        if let Err(error) = ran {
            // What was measured before is kept.
            bench.report.fact("everything that was asked for is measured", Err(error.to_string()));
        }
        // Ends a watcher, if there is one.
        drop(bench.ours);
        Ok(bench.report)
    }

    /// Ours with a home of this name.
    pub fn ours(&self, home: &str) -> Result<Ours> {
        Ours::new(&self.binary, &self.dir.join(home), &self.tree.settings())
    }

    fn asked(&self, operation: &str) -> bool {
        self.operations.iter().any(|o| o == operation)
    }
}

/// An edit of such a file would change what is recorded.
fn is_rule(path: &[u8]) -> bool {
    [&b".gitignore"[..], b".gitattributes", b".backstitchignore", b".backstitch.toml"]
        .iter()
        .any(|n| path.ends_with(n))
}

impl Bench<'_> {
    fn run(&mut self) -> Result<()> {
        machine::sync();
        if self.plan.yardstick {
            self.bare.walk(&self.tree)?;
        }
        if self.plan.asked("first") {
            self.first("first", "")?;
        }
        if self.plan.operations.iter().any(|o| !APART.contains(&o.as_str())) {
            self.beside_one_store()?;
        }
        for (name, measure) in [
            ("history", Self::history as fn(&mut Self) -> Result<()>),
            ("list", Self::list),
            ("hooks", Self::hooks),
            ("peers", Self::peers),
            ("cancel", Self::cancel),
        ] {
            if self.plan.asked(name) {
                measure(self)?;
            }
        }
        self.seeded()
    }

    /// What starts from a first checkpoint that nobody times.
    fn beside_one_store(&mut self) -> Result<()> {
        self.ours.checkpoint(&self.tree)?;
        if let Some(git) = &self.git {
            git.snapshot(&self.tree)?;
        }
        self.short("")?;
        if self.plan.asked("restore-half") {
            let half = larger_half(&self.tree)?;
            println!("restore-half: {} of {} files go, in {} folders", half.1, half.2, half.0.len());
            self.restores("restore-half", self.plan.long_rounds, |bench, round| {
                bench.remove(&half.0, round)
            })?;
            self.bare_creation(&half.0)?;
        }
        if self.plan.operations.iter().any(|o| o.starts_with("watched-")) {
            self.watched(|bench| bench.short("watched-"))?;
        }
        if self.plan.asked("big-edit") {
            self.big_edit()?;
        }
        if self.plan.asked("calls") {
            self.calls()?;
        }
        let size = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ours = size(self.ours.store_size()?);
        self.report.row("stores at the end").set("ours MiB", ours);
        if let Some(git) = &self.git {
            let git = size(trees::size(git.dir())?.disk);
            self.report.row("stores at the end").set("git MiB", git);
        }
        self.git_checks_store()
    }

    /// The short operations whose names begin so.
    fn short(&mut self, prefix: &str) -> Result<()> {
        let rounds = self.plan.rounds;
        let name = format!("{prefix}unchanged");
        if self.plan.asked(&name) {
            self.checkpoints(&name, |_| Ok(()))?;
        }
        for count in [10, 1000] {
            let name = format!("{prefix}{count}");
            if self.plan.asked(&name) {
                self.checkpoints(&name, |bench| bench.edit(count))?;
            }
        }
        for count in [10, 1000] {
            let name = format!("{prefix}restore-{count}");
            if self.plan.asked(&name) {
                self.restores(&name, rounds, |bench, _| bench.edit(count))?;
            }
        }
        if self.plan.asked(&format!("{prefix}tool")) {
            self.tool(prefix)?;
        }
        Ok(())
    }

    /// Something beside a watcher, which is ended in any case.
    pub(super) fn watched(&mut self, measure: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        println!("a watcher starts");
        let started = self.ours.watch(&self.tree);
        // The first one after its start looks at everything.
        let measured = started.and_then(|()| self.ours.checkpoint(&self.tree)).and_then(|_| measure(self));
        let ended = self.ours.unwatch();
        measured.and(ended)
    }

    /// Those who take part, in an order that changes with the round.
    fn order(&self, round: usize) -> Vec<Who> {
        let mut all = vec![Who::Ours];
        if self.plan.git {
            all.push(Who::Git);
        }
        if self.plan.yardstick {
            all.push(Who::Bare);
        }
        let by = round % all.len();
        all.rotate_left(by);
        all
    }

    fn note(&mut self, operation: &str, who: Who, took: (Duration, Duration), disturbed: bool) {
        let (time, cpu) = took;
        let row = self.report.row(operation);
        row.busy |= disturbed;
        row.add(who.name(), time);
        row.add_cpu(who.name(), cpu);
    }

    /// First checkpoints of the tree as a clean, packed git repository.
    fn seeded(&mut self) -> Result<()> {
        if !self.plan.asked("seeded") {
            return Ok(());
        }
        println!("seeded: the tree becomes a repository");
        trees::make_repository(&self.tree)?;
        self.first("seeded", "seeded-")?;
        self.git_checks_store()
    }

    fn git_checks_store(&mut self) -> Result<()> {
        if self.plan.fsck {
            println!("git fsck --strict of our store");
            let result = Git::new()?.fsck_strict(&self.ours.repository()?);
            self.report.fact("git fsck --strict of our store", result);
        }
        Ok(())
    }

    /// First checkpoints, each into a store of its own; the old ones stay where they are.
    fn first(&mut self, name: &str, prefix: &str) -> Result<()> {
        for round in 0..self.plan.long_rounds {
            println!("{name}: round {} of {}", round + 1, self.plan.long_rounds);
            for who in self.order(round) {
                machine::sync();
                let disturbed = machine::wait_for_peace();
                let before_cpu = machine::children_cpu();
                let time = match who {
                    Who::Ours => {
                        self.ours = self.plan.ours(&format!("{prefix}ours-{}", round + 1))?;
                        self.ours.checkpoint(&self.tree)?.0
                    }
                    Who::Git => {
                        let git = Shadow::new(&self.plan.dir.join(format!("{prefix}git-{}", round + 1)))?;
                        let time = git.snapshot(&self.tree)?.0;
                        self.git = Some(git);
                        time
                    }
                    Who::Bare => self.bare.walk(&self.tree)?,
                };
                let cpu = machine::children_cpu() - before_cpu;
                self.note(name, who, (time, cpu), disturbed);
            }
        }
        let size = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ours = size(self.ours.store_size()?);
        let memory = self.plan.ours(&format!("{prefix}ours-memory"))?;
        let memory = memory.peak_memory(&self.tree, &["checkpoint"])?;
        let git = self.git.as_ref().map(|git| trees::size(git.dir())).transpose()?;
        let row = self.report.row(name);
        row.set("store MiB", ours);
        row.set("memory MiB", memory as f64);
        if let Some(git) = git {
            row.set("git's store MiB", size(git.disk));
            row.set("store/git", ours / size(git.disk).max(1e-9));
        }
        Ok(())
    }

    /// Checkpoints after a change.
    pub(super) fn checkpoints(&mut self, name: &str, change: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        println!("{name}: {} rounds", self.plan.rounds);
        for round in 0..self.plan.rounds {
            change(self)?;
            for who in self.order(round) {
                let disturbed = machine::wait_for_peace();
                let before_cpu = machine::children_cpu();
                let time = match (who, &self.git) {
                    (Who::Ours, _) => self.ours.checkpoint(&self.tree)?.0,
                    (Who::Git, Some(git)) => git.snapshot(&self.tree)?.0,
                    _ => self.bare.walk(&self.tree)?,
                };
                let cpu = machine::children_cpu() - before_cpu;
                self.note(name, who, (time, cpu), disturbed);
            }
        }
        // Once more, as looking at the memory takes time.
        change(self)?;
        let memory = self.ours.peak_memory(&self.tree, &["checkpoint"])?;
        self.report.row(name).set("memory MiB", memory as f64);
        Ok(())
    }

    /// Going back after `change`, for each in turn. Before a turn its snapshot is taken anew, so that it knows every file's stat.
    fn restores(
        &mut self,
        name: &str,
        rounds: usize,
        change: impl Fn(&mut Self, usize) -> Result<()>,
    ) -> Result<()> {
        let target = TreeModel::read(&self.tree)?;
        for round in 0..rounds {
            if round == 0 || !self.plan.tree.is_small() {
                println!("{name}: round {} of {rounds}", round + 1);
            }
            for who in self.order(round) {
                let compare =
                    self.plan.check && who == Who::Ours && (round == 0 || self.plan.tree.is_small());
                match who {
                    Who::Ours => {
                        let id = self.ours.checkpoint(&self.tree)?.1;
                        change(self, round)?;
                        let before = if compare { Some(TreeModel::read(&self.tree)?) } else { None };
                        machine::sync();
                        let disturbed = machine::wait_for_peace();
                        let before_cpu = machine::children_cpu();
                        let time = self.ours.restore(&self.tree, &id)?;
                        let cpu = machine::children_cpu() - before_cpu;
                        self.note(name, who, (time, cpu), disturbed);
                        if let Some(before) = before {
                            self.compare(name, &target, &before)?;
                        }
                    }
                    Who::Git => {
                        let Some(git) = self.git.take() else { continue };
                        let id = git.snapshot(&self.tree)?.1;
                        change(self, round)?;
                        machine::sync();
                        let disturbed = machine::wait_for_peace();
                        let before_cpu = machine::children_cpu();
                        let time = git.restore(&self.tree, &id)?;
                        self.git = Some(git);
                        let cpu = machine::children_cpu() - before_cpu;
                        self.note(name, who, (time, cpu), disturbed);
                    }
                    Who::Bare if name != "restore-half" => {
                        let disturbed = machine::wait_for_peace();
                        let before_cpu = machine::children_cpu();
                        let time = self.bare.walk(&self.tree)?;
                        let cpu = machine::children_cpu() - before_cpu;
                        self.note(name, who, (time, cpu), disturbed);
                    }
                    Who::Bare => {}
                }
            }
        }
        let id = self.ours.checkpoint(&self.tree)?.1;
        change(self, rounds)?;
        let memory = self.ours.peak_memory(&self.tree, &["restore", &id])?;
        self.report.row(name).set("memory MiB", memory as f64);
        Ok(())
    }

    fn compare(&mut self, name: &str, target: &TreeModel, before: &TreeModel) -> Result<()> {
        let after = TreeModel::read(&self.tree)?;
        let differences = target.report(&after, &Compare { root: true, ..Compare::default() }, 20);
        let what =
            format!("{name}: restored tree equal by content, type, mode, link text, empty directories");
        self.report.fact(&what, differences.map_or(Ok(()), Err));
        let touched = before.touched_though_equal(&after);
        let list: Vec<String> = touched.iter().take(20).map(ToString::to_string).collect();
        let what = format!("{name}: what matched kept its inode, mtime and ctime");
        self.report.fact(&what, if list.is_empty() { Ok(()) } else { Err(list.join("\n")) });
        Ok(())
    }

    /// Appends a line to so many files, spread evenly over the tree; other ones each time.
    pub(super) fn edit(&mut self, count: usize) -> Result<()> {
        self.edits += 1;
        let count = count.min(self.files.len());
        for n in 0..count {
            let at = (n * self.files.len() / count + self.edits) % self.files.len();
            match fs::OpenOptions::new().append(true).open(&self.files[at]) {
                Ok(mut file) => writeln!(file, "edit {}", self.edits)?,
                // What a rule leaves out does not come back with `restore-half`, least of all by git.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(format!("{}: {e}", self.files[at].display()).into()),
            }
        }
        Ok(())
    }

    fn remove(&mut self, folders: &[PathBuf], round: usize) -> Result<()> {
        self.edits += 1;
        for (number, folder) in folders.iter().enumerate() {
            if self.plan.delete {
                fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            } else {
                fs::rename(folder, self.plan.dir.join(format!("moved-{}-{round}-{number}", self.edits)))?;
            }
        }
        Ok(())
    }

    /// Making the same files at another place, by the same number of threads, after the same deletions.
    fn bare_creation(&mut self, folders: &[PathBuf]) -> Result<()> {
        if !self.plan.yardstick {
            return Ok(());
        }
        for round in 0..self.plan.long_rounds {
            machine::sync();
            let disturbed = machine::wait_for_peace();
            let before_cpu = machine::children_cpu();
            let mut time = Duration::ZERO;
            for (number, folder) in folders.iter().enumerate() {
                time += self.bare.create(folder, &self.plan.dir.join(format!("bare-{round}-{number}")))?;
            }
            let cpu = machine::children_cpu() - before_cpu;
            self.note("restore-half", Who::Bare, (time, cpu), disturbed);
        }
        Ok(())
    }
}

/// The fewest top folders that hold more than half of all files; how many files they hold; how many there are.
fn larger_half(tree: &Path) -> Result<(Vec<PathBuf>, usize, usize)> {
    let model = TreeModel::read_with(tree, Options { content: false, ..Options::default() })?;
    let mut by_folder: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut all = 0;
    for (path, entry) in &model.entries {
        if entry.kind == Kind::Dir {
            continue;
        }
        all += 1;
        if let Some(slash) = path.iter().position(|b| *b == b'/') {
            *by_folder.entry(&path[..slash]).or_default() += 1;
        }
    }
    let mut folders: Vec<(&[u8], usize)> = by_folder.into_iter().collect();
    folders.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (mut chosen, mut held) = (Vec::new(), 0);
    for (folder, count) in folders {
        if held * 2 > all {
            break;
        }
        held += count;
        chosen.push(text::join(tree, folder));
    }
    Ok((chosen, held, all))
}

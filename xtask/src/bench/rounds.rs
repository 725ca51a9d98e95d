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
    report::{Report, Samples},
    trees::{self, Tree},
};
use crate::{Result, campaign::own_workspace};

/// Everything that can be measured.
pub const OPERATIONS: &[&str] =
    &["first", "unchanged", "10", "1000", "restore-10", "restore-1000", "restore-half", "seeded"];

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
}

/// Who is to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Git,
    Bare,
}

/// A bench under way.
struct Bench<'a> {
    plan: &'a Plan,
    tree: PathBuf,
    ours: Ours,
    git: Option<Shadow>,
    bare: Bare,
    /// The regular files that may be edited, in order.
    files: Vec<PathBuf>,
    report: Report,
    /// Counts the edits, so that each makes something new.
    edits: usize,
}

impl Plan {
    /// Lays the tree, runs the rounds, checks the results.
    pub fn carry_out(&self) -> Result<Report> {
        fs::create_dir_all(&self.dir)?;
        let tree = self.dir.join("tree");
        self.tree.lay(&tree)?;
        let model = TreeModel::read_with(&tree, Options { content: false, ..Options::default() })?;
        let report = Report::new(self.tree, &model);
        println!("{}", report.head());
        let files = model
            .entries
            .iter()
            .filter(|(path, entry)| entry.kind == Kind::File && !is_rule(path))
            .map(|(path, _)| text::join(&tree, path))
            .collect();
        let mut bench = Bench {
            plan: self,
            ours: Ours::new(&self.binary, &self.dir.join("ours-0"))?,
            git: if self.git { Some(Shadow::new(&self.dir.join("git-0"))?) } else { None },
            bare: Bare(self.bare.clone()),
            tree,
            files,
            report,
            edits: 0,
        };
        own_workspace(bench.ours.cli(), &bench.tree)?;
        bench.run()?;
        Ok(bench.report)
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
        self.bare.walk(&self.tree)?;
        if self.plan.asked("first") {
            self.first("first", "")?;
        }
        if self.plan.operations.iter().all(|o| o == "first" || o == "seeded") {
            return self.seeded();
        }
        // What follows starts from a first checkpoint that nobody times.
        self.ours.checkpoint(&self.tree)?;
        if let Some(git) = &self.git {
            git.snapshot(&self.tree)?;
        }
        if self.plan.asked("unchanged") {
            self.checkpoints("unchanged", 0)?;
        }
        for count in [10, 1000] {
            if self.plan.asked(&count.to_string()) {
                self.checkpoints(&count.to_string(), count)?;
            }
        }
        for count in [10, 1000] {
            let name = format!("restore-{count}");
            if self.plan.asked(&name) {
                self.restores(&name, self.plan.rounds, |bench, _| bench.edit(count))?;
            }
        }
        if self.plan.asked("restore-half") {
            let half = larger_half(&self.tree)?;
            println!("restore-half: {} of {} files go, in {} folders", half.1, half.2, half.0.len());
            self.restores("restore-half", self.plan.long_rounds, |bench, round| {
                bench.remove(&half.0, round)
            })?;
            self.bare_creation(&half.0)?;
        }
        self.seeded()?;
        self.report.store = tree_size(&self.ours.cli().only_store()?)?;
        self.report.git_store = self.git.as_ref().map_or(Ok(0), |git| tree_size(git.dir()))?;
        self.git_checks_store()
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
        let samples: &mut Samples = self.report.samples(operation);
        samples.disturbed |= disturbed;
        match who {
            Who::Ours => {
                samples.ours.push(time);
                samples.ours_cpu.push(cpu);
            }
            Who::Git => {
                samples.git.push(time);
                samples.git_cpu.push(cpu);
            }
            Who::Bare => samples.bare.push(time),
        }
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
        let stored = |who: &str, round: usize| self.plan.dir.join(format!("{prefix}{who}-{}", round + 1));
        for round in 0..self.plan.long_rounds {
            println!("{name}: round {} of {}", round + 1, self.plan.long_rounds);
            for who in self.order(round) {
                machine::sync();
                let disturbed = machine::wait_for_peace();
                let before_cpu = machine::children_cpu();
                let time = match who {
                    Who::Ours => {
                        self.ours = Ours::new(&self.plan.binary, &stored("ours", round))?;
                        self.ours.checkpoint(&self.tree)?.0
                    }
                    Who::Git => {
                        let git = Shadow::new(&stored("git", round))?;
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
        if name != "first" && self.plan.asked("first") {
            return Ok(());
        }
        self.report.first_store = tree_size(&self.ours.cli().only_store()?)?;
        self.report.git_first_store = self.git.as_ref().map_or(Ok(0), |git| tree_size(git.dir()))?;
        let memory = Ours::new(&self.plan.binary, &self.plan.dir.join(format!("{prefix}ours-memory")))?;
        self.report.peak_mib = memory.peak_memory(&self.tree)?;
        Ok(())
    }

    /// Checkpoints after so many edits.
    fn checkpoints(&mut self, name: &str, edits: usize) -> Result<()> {
        println!("{name}: {} rounds", self.plan.rounds);
        for round in 0..self.plan.rounds {
            self.edit(edits)?;
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
    fn edit(&mut self, count: usize) -> Result<()> {
        self.edits += 1;
        let count = count.min(self.files.len());
        for n in 0..count {
            let at = (n * self.files.len() / count + self.edits) % self.files.len();
            let mut file = fs::OpenOptions::new().append(true).open(&self.files[at])?;
            writeln!(file, "edit {}", self.edits)?;
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

/// The bytes that a folder takes on disk.
fn tree_size(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let (mut total, mut open) = (0, vec![dir.to_path_buf()]);
    while let Some(dir) = open.pop() {
        for item in fs::read_dir(dir)? {
            let item = item?;
            let meta = item.metadata()?;
            total += meta.blocks() * 512;
            if meta.is_dir() {
                open.push(item.path());
            }
        }
    }
    Ok(total)
}

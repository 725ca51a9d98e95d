//! `cargo xtask package`: the Debian package and the npm packages of a program that is built already, and a look at each.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use backstitch_testkit::privilege::has_program;
use serde_json::{Value, json};

use crate::{
    Result,
    args::{Command as Entry, Opt, Parsed},
    tools::{self, quiet},
};

/// The table entry.
pub const COMMAND: Entry = Entry {
    name: "package",
    about: "The Debian package and the npm packages of the program, made and looked at",
    details: "Makes manual pages, completions, the .deb (by cargo-deb, from the metadata of backstitch-cli) and the tarballs of npm\n\
              in target/package, then unpacks or installs each without network and runs what is in it. A missing tool is\n\
              named, and what it would make is left out.",
    options: &[
        Opt { name: "--binary", value: Some("FILE"), help: "this program; default: a new debug build" },
        Opt { name: "--release", value: None, help: "a release build instead" },
        Opt { name: "--deb", value: None, help: "a missing cargo-deb is an error" },
    ],
};

/// What makes a Debian package is here.
pub fn deb_tools() -> bool {
    has_program("cargo-deb") && has_program("dpkg-deb")
}

/// The folder of the packages for npm, in the repository.
const NPM: &str = "integrations/npm";

/// Makes and looks at all of them.
pub fn run(options: &Parsed) -> Result<bool> {
    let made = Made::new(&tools::program(options)?)?;
    for line in made.npm()? {
        println!("{line}");
    }
    match made.deb() {
        Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
        Err(error) if options.has("--deb") => return Err(error),
        Err(error) => println!("no Debian package: {error}"),
    }
    Ok(true)
}

/// A program with its pages, in `target/package`.
pub struct Made {
    out: PathBuf,
    program: PathBuf,
    version: String,
}

impl Made {
    /// Makes what the program can make of itself.
    pub fn new(binary: &Path) -> Result<Made> {
        let out = tools::target()?.join("package");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        fs::create_dir_all(out.join("bin"))?;
        fs::create_dir_all(out.join("completions"))?;
        let program = out.join("bin/backstitch");
        // Only a build for other processors cannot be stripped here; it is larger then.
        if quiet(Command::new("strip").arg("-o").arg(&program).arg(binary)).is_err() {
            fs::copy(binary, &program)?;
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let said = String::from_utf8(quiet(Command::new(&program).arg("--version"))?)?;
        if said.trim() != format!("backstitch {version}") {
            return Err(format!("the program says {said:?}, and the workspace {version}").into());
        }
        for package in [NPM, "integrations/pi"] {
            let manifest = manifest(&tools::root()?.join(package))?;
            let wanted: Vec<&Value> =
                manifest["optionalDependencies"].as_object().into_iter().flat_map(|o| o.values()).collect();
            if manifest["version"] != version.as_str() || wanted.iter().any(|v| **v != version.as_str()) {
                return Err(format!("{package}/package.json is not of version {version}").into());
            }
        }
        quiet(Command::new(&program).args(["man", "--out"]).arg(out.join("man")))?;
        for (shell, file) in [("bash", "backstitch"), ("zsh", "_backstitch"), ("fish", "backstitch.fish")] {
            let script = quiet(Command::new(&program).args(["completions", shell]))?;
            fs::write(out.join("completions").join(file), script)?;
        }
        Ok(Made { out, program, version })
    }

    /// The packages for npm, installed together without network.
    pub fn npm(&self) -> Result<Vec<String>> {
        if !has_program("npm") {
            return Err("npm is not here".into());
        }
        let root = tools::root()?;
        let (arch, cpu) = match std::env::consts::ARCH {
            "x86_64" => ("x64", "x64"),
            "aarch64" => ("arm64", "arm64"),
            other => return Err(format!("there is no npm package for {other}").into()),
        };
        let platform = self.out.join("npm").join(format!("backstitch-linux-{arch}"));
        fs::create_dir_all(platform.join("bin"))?;
        fs::copy(&self.program, platform.join("bin/backstitch"))?;
        let of_launcher = manifest(&root.join(NPM))?;
        let own = json!({
            "name": format!("backstitch-linux-{arch}"),
            "version": self.version,
            "description": format!("The program backstitch for Linux on {arch}; install the package backstitch."),
            "license": of_launcher["license"],
            "repository": of_launcher["repository"],
            "os": ["linux"],
            "cpu": [cpu],
            "files": ["bin", "LICENSE-MIT", "LICENSE-APACHE"],
        });
        fs::write(platform.join("package.json"), serde_json::to_string_pretty(&own)? + "\n")?;
        let launcher = self.out.join("npm/backstitch");
        copy(&root.join(NPM), &launcher)?;
        let pi = self.out.join("npm/backstitch-pi");
        fs::create_dir_all(&pi)?;
        for file in ["package.json", "README.md"] {
            fs::copy(root.join("integrations/pi").join(file), pi.join(file))?;
        }
        copy(&root.join("integrations/pi/src"), &pi.join("src"))?;
        let mut tarballs = Vec::new();
        for dir in [&platform, &launcher, &pi] {
            for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
                fs::copy(root.join(licence), dir.join(licence))?;
            }
            let mut pack = Command::new("npm");
            pack.args(["pack", "--silent", "--pack-destination"]).arg(&self.out).current_dir(dir);
            let name = String::from_utf8(quiet(&mut pack)?)?;
            tarballs.push(self.out.join(name.lines().last().unwrap_or_default().trim()));
        }

        let there = tempfile::tempdir()?;
        let home = there.path();
        fs::write(home.join("package.json"), "{\"private\":true}\n")?;
        let mut install = Command::new("npm");
        install.args([
            "install",
            "--offline",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ]);
        install.args(["--omit=peer", "--no-package-lock", "--cache"]).arg(home.join("cache"));
        quiet(install.args(&tarballs).current_dir(home))?;
        let run = |arguments: &[&str]| {
            let mut command = Command::new(home.join("node_modules/.bin/backstitch"));
            command.args(arguments).env("BACKSTITCH_STORE_DIR", home.join("stores")).current_dir(home);
            command.stdin(std::process::Stdio::null());
            command.output()
        };
        let said = run(&["--version"])?;
        if String::from_utf8_lossy(&said.stdout).trim() != format!("backstitch {}", self.version) {
            return Err(format!("from npm: {said:?}").into());
        }
        // The program's own exit status comes through.
        let code = run(&["show", "nothing-like-this"])?.status.code();
        if code != Some(4) {
            return Err(format!("from npm: exit code {code:?} instead of 4").into());
        }
        let asked = "const at = require('node:module').createRequire(process.argv[1] + '/src/binary.ts'); console.log(at('backstitch').binary())";
        let found =
            quiet(Command::new("node").args(["-e", asked]).arg(home.join("node_modules/backstitch-pi")))?;
        let found = PathBuf::from(String::from_utf8(found)?.trim());
        if fs::read(&found)? != fs::read(&self.program)? {
            return Err(format!("the extension for pi finds {}", found.display()).into());
        }
        Ok(tarballs.iter().map(|t| format!("{}: installed without network, and run", t.display())).collect())
    }

    /// The Debian package, unpacked.
    pub fn deb(&self) -> Result<Vec<String>> {
        if !deb_tools() {
            return Err("cargo-deb (`cargo install cargo-deb`) or dpkg-deb is not here".into());
        }
        let architecture = String::from_utf8(quiet(Command::new("dpkg").arg("--print-architecture"))?)?;
        let file = self.out.join(format!("backstitch_{}_{}.deb", self.version, architecture.trim()));
        let mut make =
            tools::cargo(["deb", "--package", "backstitch-cli", "--no-build", "--no-strip", "--output"])?;
        quiet(make.arg(&file))?;
        let there = tempfile::tempdir()?;
        quiet(Command::new("dpkg-deb").arg("-x").arg(&file).arg(there.path()))?;
        let pages = fs::read_dir(self.out.join("man"))?.count();
        let packed = fs::read_dir(there.path().join("usr/share/man/man1"))?.count();
        if pages == 0 || pages != packed {
            return Err(format!("{packed} of {pages} manual pages are in the package").into());
        }
        for path in [
            "usr/share/bash-completion/completions/backstitch",
            "usr/share/zsh/vendor-completions/_backstitch",
            "usr/share/fish/vendor_completions.d/backstitch.fish",
            "usr/share/doc/backstitch/copyright",
            "usr/share/man/man1/backstitch-restore.1.gz",
        ] {
            if !there.path().join(path).is_file() {
                return Err(format!("the package has no /{path}").into());
            }
        }
        let said = String::from_utf8(quiet(
            Command::new(there.path().join("usr/bin/backstitch")).arg("--version"),
        )?)?;
        let field = |name: &str| -> Result<String> {
            let out = quiet(Command::new("dpkg-deb").arg("-f").arg(&file).arg(name))?;
            Ok(String::from_utf8(out)?.trim().to_owned())
        };
        let version = field("Version")?;
        if said.trim() != format!("backstitch {}", self.version) || !version.starts_with(&self.version) {
            return Err(format!("the package is of version {version}, its program {said:?}").into());
        }
        let needs = field("Depends")?;
        Ok(vec![format!("{}: {pages} manual pages, depends on {needs}; unpacked, and run", file.display())])
    }
}

fn manifest(dir: &Path) -> Result<Value> {
    let file = dir.join("package.json");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()).into())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

//! The clients: what is installed, and how each is run with an empty home, an empty environment and nothing but the model.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{Result, tools};

/// One of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Claude,
    Codex,
    Gemini,
    Opencode,
}

/// No client takes longer for a prompt.
const LIMIT: Duration = Duration::from_secs(150);

/// A client that is installed, with a home of its own.
pub struct Installed {
    pub client: Client,
    /// Where npm put it.
    dir: PathBuf,
    /// Its home.
    pub home: PathBuf,
    /// The folder it works in.
    pub folder: PathBuf,
    /// The program's folder goes first in its search path.
    pub binary: PathBuf,
    port: u16,
}

impl Client {
    pub const ALL: &'static [Client] = &[Client::Claude, Client::Codex, Client::Gemini, Client::Opencode];

    pub fn name(self) -> &'static str {
        match self {
            Client::Claude => "claude",
            Client::Codex => "codex",
            Client::Gemini => "gemini",
            Client::Opencode => "opencode",
        }
    }

    /// Packages, in the versions that were tried.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Client::Claude => &["@anthropic-ai/claude-code@2.1.332"],
            Client::Codex => &["@openai/codex@0.171.0"],
            Client::Gemini => &["@google/gemini-cli@0.61.0"],
            Client::Opencode => &["opencode-ai@1.18.33"],
        }
    }

    /// The program, below the folder that npm installed into, and what runs it.
    fn program(self, dir: &Path) -> (Option<&'static str>, PathBuf) {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
        let modules = dir.join("node_modules");
        match self {
            Client::Claude => {
                (None, modules.join(format!("@anthropic-ai/claude-code-{system}-{arch}/claude")))
            }
            Client::Codex => (Some("node"), modules.join("@openai/codex/bin/codex.js")),
            Client::Gemini => (Some("node"), modules.join("@google/gemini-cli/bundle/gemini.js")),
            Client::Opencode => (None, modules.join(format!("opencode-{system}-{arch}/bin/opencode"))),
        }
    }

    /// Installs it by npm, once. The error says why it cannot be had.
    pub fn install(self, base: &Path) -> Result<PathBuf> {
        let dir = base.join(self.name());
        if self.program(&dir).1.is_file() {
            return Ok(dir);
        }
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("package.json"), "{\"private\":true}\n")?;
        let mut npm =
            tools::command("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])?;
        npm.arg(&dir).args(self.packages());
        println!("installing {}: {}", self.name(), self.packages().join(" "));
        tools::quiet(&mut npm)?;
        if self == Client::Opencode {
            // What its plugins may import. Else it asks the registry for it at each start, for more than a minute.
            let own = dir.join("plugin");
            fs::create_dir_all(&own)?;
            fs::write(own.join("package.json"), "{\"private\":true}\n")?;
            let flags = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
            tools::quiet(tools::command("npm", flags)?.arg(&own).arg("@opencode-ai/plugin@1.18.33"))?;
        }
        match self.program(&dir).1.is_file() {
            true => Ok(dir),
            false => Err("the package holds no program for this machine".into()),
        }
    }
}

impl Installed {
    pub fn new(
        client: Client,
        dir: PathBuf,
        scratch: &Path,
        binary: PathBuf,
        port: u16,
    ) -> Result<Installed> {
        let (home, folder) = (scratch.join("home"), scratch.join("project"));
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&folder)?;
        let installed = Installed { client, dir, home, folder, binary, port };
        installed.configure()?;
        Ok(installed)
    }

    /// What the client needs to talk to the model and to nobody else.
    fn configure(&self) -> Result<()> {
        let base = format!("http://127.0.0.1:{}", self.port);
        match self.client {
            Client::Claude => {}
            Client::Codex => {
                fs::create_dir_all(self.home.join(".codex"))?;
                let config = format!(
                    "model = \"gpt-5.5\"\nmodel_provider = \"scripted\"\napproval_policy = \"never\"\n\
                     sandbox_mode = \"danger-full-access\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n\
                     [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{base}/v1\"\nwire_api = \"responses\"\n\
                     env_key = \"SCRIPTED_KEY\"\nrequest_max_retries = 0\nstream_max_retries = 0\n"
                );
                fs::write(self.home.join(".codex/config.toml"), config)?;
            }
            Client::Gemini => {
                fs::create_dir_all(self.home.join(".gemini"))?;
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": false},
                    "telemetry": {"enabled": false},
                    "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
                });
                fs::write(self.home.join(".gemini/settings.json"), serde_json::to_vec_pretty(&settings)?)?;
            }
            Client::Opencode => {
                let config = self.home.join(".config/opencode");
                fs::create_dir_all(&config)?;
                fs::create_dir_all(self.folder.join(".opencode"))?;
                let settings = json!({
                    "autoupdate": false, "share": "disabled", "snapshot": false, "model": "scripted/scripted",
                    "small_model": "scripted/scripted", "enabled_providers": ["scripted"],
                    "permission": {"edit": "allow", "bash": "allow"},
                    "provider": {"scripted": {
                        "npm": "@ai-sdk/openai-compatible", "name": "scripted",
                        "options": {"baseURL": format!("{base}/v1"), "apiKey": "none"},
                        "models": {"scripted": {"name": "scripted", "limit": {"context": 128000, "output": 8192}, "tool_call": true}},
                    }},
                });
                fs::write(config.join("opencode.json"), serde_json::to_vec_pretty(&settings)?)?;
                for place in [config, self.folder.join(".opencode")] {
                    let mut copy = tools::command("cp", ["-R"])?;
                    tools::quiet(copy.arg(self.dir.join("plugin/.")).arg(&place))?;
                }
            }
        }
        Ok(())
    }

    /// A command with the client's home and no environment but what it needs.
    pub fn bare(&self, program: &Path) -> Command {
        let own = self.binary.parent().unwrap_or(Path::new("/"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(own.to_owned()).chain(std::env::split_paths(&path)));
        let base = format!("http://127.0.0.1:{}", self.port);
        let mut c = Command::new(program);
        c.env_clear().current_dir(&self.folder).stdin(Stdio::null());
        c.env("PATH", path.unwrap_or_default())
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb");
        let variables: &[(&str, &str)] = match self.client {
            Client::Claude => &[
                ("ANTHROPIC_BASE_URL", &base),
                ("ANTHROPIC_API_KEY", "none"),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_ERROR_REPORTING", "1"),
            ],
            Client::Codex => &[("SCRIPTED_KEY", "none")],
            Client::Gemini => &[
                ("GEMINI_API_KEY", "none"),
                ("GOOGLE_GEMINI_BASE_URL", &base),
                ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
                ("NO_BROWSER", "1"),
            ],
            Client::Opencode => &[
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
                ("npm_config_fetch_retries", "0"),
            ],
        };
        for (k, v) in variables {
            c.env(k, v);
        }
        c
    }

    /// `backstitch` as a person calls it beside the client.
    pub fn backstitch(&self, args: &[&str]) -> Result<String> {
        let mut c = self.bare(&self.binary);
        let out = c.args(args).output()?;
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        match out.status.code() {
            Some(0 | 3) => Ok(stdout.into_owned()),
            _ => Err(format!("backstitch {}: {}\n{stdout}{stderr}", args.join(" "), out.status).into()),
        }
    }

    /// The client as a person types it, below a folder for the search path: what keeps it offline is in there.
    pub fn typed(&self, bin: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let (runner, program) = self.client.program(&self.dir);
        let run = format!("{}'{}'", runner.map(|r| format!("{r} ")).unwrap_or_default(), program.display());
        let line = match self.client {
            Client::Claude => {
                format!("{run} \"$@\" --permission-mode acceptEdits --allowedTools Bash Write Edit Read")
            }
            Client::Codex => {
                format!(
                    "shift; {run} exec --skip-git-repo-check --dangerously-bypass-hook-trust \"$@\" 2>/dev/null"
                )
            }
            Client::Gemini => format!("{run} \"$@\" -m gemini-2.5-flash --approval-mode yolo"),
            Client::Opencode => format!("{run} \"$@\""),
        };
        fs::create_dir_all(bin)?;
        let file = bin.join(self.client.name());
        fs::write(&file, format!("#!/bin/sh\n{line}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// What a person types to send a prompt without the client's full screen; `first` begins a session.
    pub fn line(&self, text: &str, first: bool) -> String {
        let goes_on = |flag: &str| if first { String::new() } else { format!("{flag} ") };
        match self.client {
            Client::Claude => format!("claude {}-p '{text}'", goes_on("--continue")),
            Client::Codex => format!("codex exec {}'{text}'", goes_on("resume --last")),
            Client::Gemini => format!("gemini {}-p '{text}'", goes_on("--resume latest")),
            Client::Opencode => format!("opencode run {}'{text}'", goes_on("--continue")),
        }
    }

    /// Sends one prompt, in a new session or the last one; what the client printed.
    pub fn prompt(&self, text: &str, first: bool) -> Result<String> {
        self.prompt_with(text, first, &[])
    }

    /// The same, in the session that these words of its command line name.
    pub fn prompt_with(&self, text: &str, first: bool, session: &[&str]) -> Result<String> {
        let (runner, program) = self.client.program(&self.dir);
        let mut c = match runner {
            Some(r) => {
                let mut c = self.bare(Path::new(r));
                c.arg(&program);
                c
            }
            None => self.bare(&program),
        };
        match self.client {
            Client::Claude => {
                c.args(["-p", text, "--permission-mode", "acceptEdits", "--output-format", "json"]);
                match session {
                    [] if first => {}
                    [] => drop(c.arg("--continue")),
                    words => drop(c.args(words)),
                }
                c.args(["--allowedTools", "Bash", "Write", "Edit", "Read"]);
            }
            Client::Codex => {
                c.args(["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]);
                if !first {
                    c.args(["resume", "--last"]);
                }
                c.arg(text);
            }
            Client::Gemini => {
                c.args(["-p", text, "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-o", "json"]);
                if !first {
                    c.args(["--resume", "latest"]);
                }
            }
            Client::Opencode => {
                c.arg("run");
                if !first {
                    c.arg("--continue");
                }
                c.args(["--format", "json", text]);
            }
        }
        run(c)
    }
}

/// Runs it to its end, or ends it.
fn run(mut c: Command) -> Result<String> {
    let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut p) = pipe {
                let _ = p.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|p| Box::new(p) as _));
    let err = read(child.stderr.take().map(|p| Box::new(p) as _));
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(s) => break s,
            None if Instant::now() > end => {
                child.kill()?;
                child.wait()?;
                return Err(format!("it did not end within {} s", LIMIT.as_secs()).into());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = out.join().unwrap_or_default();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{status}\n{text}\n{}", err.join().unwrap_or_default()).into()),
    }
}

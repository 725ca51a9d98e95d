//! A client's configuration: written reversibly, and taken out byte for byte.
//!
//! [`install`] and [`uninstall`] make a [`Plan`], which can be shown and applied. What stood in a file before is kept in
//! `installed/` in the base folder of all stores. Where the file has not been touched since, `uninstall` puts exactly that back;
//! else it takes out our entries and leaves everything else where it is.

mod file;
mod line;
mod opencode;
mod settings;

use std::path::{Path, PathBuf};

use backstitch::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};

pub use file::Change;

use crate::Agent;

/// Whose configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The user's: every project.
    User,
    /// The project's: everybody who works in it.
    Project,
}

impl Scope {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::User => "user",
            Scope::Project => "project",
        }
    }
}

/// Where things are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The user's home.
    pub home: PathBuf,
    /// The project's root.
    pub project: PathBuf,
    /// Base folder of all stores.
    pub base: PathBuf,
    /// How a shell calls this program.
    pub program: Program,
    /// The clients' own folders, where variables move them.
    pub moved: Moved,
}

/// Folders that variables name.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// `CLAUDE_CONFIG_DIR`
    pub claude: Option<PathBuf>,
    /// `CODEX_HOME`
    pub codex: Option<PathBuf>,
    /// `GEMINI_CLI_HOME`: the folder in which `.gemini` is.
    pub gemini: Option<PathBuf>,
    /// `OPENCODE_CONFIG_DIR`, else `XDG_CONFIG_HOME/opencode`
    pub opencode: Option<PathBuf>,
}

impl Moved {
    /// From the process's environment.
    pub fn of_process() -> Moved {
        let dir = |n: &str| std::env::var_os(n).map(PathBuf::from).filter(|p| p.is_absolute());
        Moved {
            claude: dir("CLAUDE_CONFIG_DIR"),
            codex: dir("CODEX_HOME"),
            gemini: dir("GEMINI_CLI_HOME"),
            opencode: dir("OPENCODE_CONFIG_DIR")
                .or_else(|| dir("XDG_CONFIG_HOME").map(|d| d.join("opencode"))),
        }
    }
}

/// How a shell calls this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// By its name: it is found on the search path.
    Name,
    /// By its place.
    At(PathBuf),
}

impl Program {
    /// This process's program: by name where the search path leads to the very same file.
    pub fn of_process() -> Program {
        let Ok(own) = std::env::current_exe().and_then(|p| p.canonicalize()) else { return Program::Name };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|d| d.join("backstitch"))
            .find(|p| p.is_file())
            .and_then(|p| p.canonicalize().ok());
        if found.as_ref() == Some(&own) { Program::Name } else { Program::At(own) }
    }

    /// A line for a shell that calls a hook, and succeeds whatever becomes of it: also where the program is gone.
    pub fn line(&self, agent: Agent, event: &str) -> String {
        let agent = agent.as_str();
        match self {
            Program::Name => {
                format!(
                    "command -v backstitch >/dev/null || exit 0; backstitch hook {agent} {event} || exit 0"
                )
            }
            Program::At(path) => {
                let quoted = format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"));
                format!("[ -x {quoted} ] || exit 0; {quoted} hook {agent} {event} || exit 0")
            }
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// The client.
    pub agent: Agent,
    /// Whose configuration.
    pub scope: Scope,
    /// File by file; empty where nothing is to be done.
    pub changes: Vec<Change>,
    /// What a person should know or do.
    pub notes: Vec<String>,
}

/// What was there before.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    v: u32,
    path: String,
    /// `None`: there was no file.
    before: Option<String>,
    /// Digest of what was written.
    written: String,
    /// Folders that were made.
    made: Vec<PathBuf>,
}

impl Places {
    /// The file that is changed.
    pub fn file(&self, agent: Agent, scope: Scope) -> PathBuf {
        let user =
            |moved: &Option<PathBuf>, usual: &str| moved.clone().unwrap_or_else(|| self.home.join(usual));
        let m = &self.moved;
        match (agent, scope) {
            (Agent::Claude, Scope::User) => user(&m.claude, ".claude").join("settings.json"),
            (Agent::Claude, Scope::Project) => self.project.join(".claude/settings.json"),
            (Agent::Codex, Scope::User) => user(&m.codex, ".codex").join("hooks.json"),
            (Agent::Codex, Scope::Project) => self.project.join(".codex/hooks.json"),
            (Agent::Gemini, Scope::User) => user(&m.gemini, "").join(".gemini/settings.json"),
            (Agent::Gemini, Scope::Project) => self.project.join(".gemini/settings.json"),
            (Agent::Opencode, Scope::User) => {
                user(&m.opencode, ".config/opencode").join("plugin/backstitch.js")
            }
            (Agent::Opencode, Scope::Project) => self.project.join(".opencode/plugin/backstitch.js"),
        }
    }

    fn kept_file(&self, path: &Path) -> PathBuf {
        let digest = backstitch::settings::digest(path.as_os_str().as_encoded_bytes());
        self.base.join("installed").join(format!("{digest}.json"))
    }

    fn kept(&self, path: &Path) -> Option<Kept> {
        serde_json::from_slice(&std::fs::read(self.kept_file(path)).ok()?).ok()
    }
}

/// What stands in the file without us, and what we add to it.
fn content(agent: Agent, path: &Path, text: &str, places: &Places) -> Result<String> {
    match agent {
        Agent::Opencode => opencode::plugin(path, text, places),
        _ => settings::add(agent, path, text, &places.program),
    }
}

/// The text without our entries; `None`: nothing of the file is left.
fn without(agent: Agent, path: &Path, text: &str) -> Result<Option<String>> {
    match agent {
        Agent::Opencode => Ok((!opencode::is_ours(text)).then(|| text.to_owned())),
        _ => settings::remove(agent, path, text).map(Some),
    }
}

/// Writes our entries into the client's configuration. Done twice, it changes nothing.
///
/// # Errors
/// `bad-setting` for a file that cannot be read as what it is, naming it and the line; `io`.
pub fn install(agent: Agent, scope: Scope, places: &Places) -> Result<Plan> {
    let path = file::real(&places.file(agent, scope))?;
    let now = file::read(&path)?;
    let base = match (&now, places.kept(&path)) {
        // As we left it: what stood before is known exactly.
        (Some(text), Some(kept)) if kept.written == digest(text) => kept.before,
        (Some(text), _) => without(agent, &path, text)?,
        (None, _) => None,
    };
    let after = content(agent, &path, base.as_deref().unwrap_or_default(), places)?;
    let mut changes = Vec::new();
    if now.as_deref() != Some(after.as_str()) {
        changes.push(Change { path, before: now, base, after: Some(after) });
    }
    Ok(Plan { agent, scope, changes, notes: notes(agent, scope, places) })
}

/// Takes our entries out again.
///
/// # Errors
/// As [`install`].
pub fn uninstall(agent: Agent, scope: Scope, places: &Places) -> Result<Plan> {
    let path = file::real(&places.file(agent, scope))?;
    let mut changes = Vec::new();
    if let Some(now) = file::read(&path)? {
        let kept = places.kept(&path);
        let after = match &kept {
            Some(k) if k.written == digest(&now) => k.before.clone(),
            _ => without(agent, &path, &now)?,
        };
        // A file that we made goes when nothing of anybody's is left in it.
        let ours = kept.as_ref().is_some_and(|k| k.before.is_none());
        let after = after.filter(|t| !(ours && settings::is_empty(t)));
        if after.as_ref() != Some(&now) {
            changes.push(Change { path, before: Some(now), base: None, after });
        }
    }
    Ok(Plan { agent, scope, changes, notes: Vec::new() })
}

fn digest(text: &str) -> String {
    backstitch::settings::digest(text.as_bytes())
}

impl Plan {
    /// Does it.
    ///
    /// # Errors
    /// `plan-changed` where a file is no longer what the plan was made from; `io`. A file is wholly old or wholly new.
    pub fn apply(&self, places: &Places) -> Result<()> {
        for c in &self.changes {
            if file::read(&c.path)? != c.before {
                return Err(Error::new(
                    Code::PlanChanged,
                    format!("{} was changed meanwhile", c.path.display()),
                )
                .at(&c.path)
                .hint("try again; nothing was changed"));
            }
            let kept_file = places.kept_file(&c.path);
            match &c.after {
                Some(text) if self.installs(c) => {
                    let made = match places.kept(&c.path) {
                        Some(k) if c.before.is_some() => k.made,
                        _ => file::missing(&c.path),
                    };
                    let kept = Kept {
                        v: 1,
                        path: c.path.to_string_lossy().into_owned(),
                        before: c.base.clone(),
                        written: digest(text),
                        made,
                    };
                    let json = serde_json::to_vec(&kept).unwrap_or_default();
                    // First: a file of ours without it could only be taken out roughly.
                    file::private(&places.base)?;
                    backstitch::settings::write_file(&kept_file, &json)?;
                    file::write(&c.path, text)?;
                }
                Some(text) => {
                    file::write(&c.path, text)?;
                    let _ = std::fs::remove_file(&kept_file);
                }
                None => {
                    let made = places.kept(&c.path).map(|k| k.made).unwrap_or_default();
                    std::fs::remove_file(&c.path).map_err(|e| Error::io(&c.path, e))?;
                    let _ = std::fs::remove_file(&kept_file);
                    // Only empty ones go.
                    made.iter().rev().for_each(|d| drop(std::fs::remove_dir(d)));
                }
            }
        }
        Ok(())
    }

    fn installs(&self, c: &Change) -> bool {
        c.after.as_deref().is_some_and(|t| match self.agent {
            Agent::Opencode => opencode::is_ours(t),
            agent => settings::holds_ours(agent, t),
        })
    }
}

fn notes(agent: Agent, scope: Scope, places: &Places) -> Vec<String> {
    let mut out = Vec::new();
    match agent {
        Agent::Claude => {}
        Agent::Codex => {
            out.push(
                "Codex runs no hook that you have not trusted, and skips it without a word: open Codex, type /hooks, and trust \
                 those of backstitch"
                    .to_owned(),
            );
            if scope == Scope::Project {
                out.push("the project itself must be trusted in Codex as well".to_owned());
            }
        }
        Agent::Gemini => {
            if scope == Scope::Project {
                out.push("Gemini CLI asks once whether it may run a project's hooks".to_owned());
            }
        }
        Agent::Opencode => {
            if !opencode::snapshots_are_off(places) {
                out.push(
                    "opencode takes snapshots of its own, and its /undo would put files back beside Backstitch: set \"snapshot\": \
                     false in opencode.json"
                        .to_owned(),
                );
            }
        }
    }
    if let Program::At(path) = &places.program {
        out.push(format!(
            "backstitch is not on the search path: the hooks call {}; install again when it moves",
            path.display()
        ));
    }
    out
}

//! What the library may know of the process around it.

use std::path::PathBuf;

use super::private_dir;
use crate::{error::Result, settings};

/// What the library may know of its surroundings. [`Surroundings::of_process`] reads them; the engine itself never
/// looks at the environment.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The user's settings file.
    pub user_config: Option<PathBuf>,
    /// Base folder of all stores.
    pub store_base: PathBuf,
    /// `BACKSTITCH_DISABLE=1`.
    pub disabled: bool,
    /// The session in whose name rows are made.
    pub session: Option<String>,
    /// The session inside which the process runs: it is not removed from below it.
    pub inside: Option<String>,
    /// Settings by environment variable.
    pub settings: Vec<(String, String)>,
    /// The host variable that shows that an agent is calling (SEMANTICS 36).
    pub agent_context: Option<String>,
    /// The `backstitch` program, where processes that tidy up may be started; none: nothing runs by itself.
    pub program: Option<PathBuf>,
}

/// Variables by which agents are recognised.
const AGENT_VARIABLES: &[&str] = &[
    "BACKSTITCH_SESSION",
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_THREAD_ID",
    "GEMINI_CLI",
    "OPENCODE",
    "PI_CODING_AGENT",
];

impl Surroundings {
    /// Reads the process's environment.
    pub fn of_process() -> Surroundings {
        let var = |n: &str| std::env::var_os(n).filter(|v| !v.is_empty());
        // Where the environment does not say it, as the system knows the user: else rows would go where nobody looks for them.
        let home = var("HOME").map(PathBuf::from).or_else(std::env::home_dir).filter(|p| p.is_absolute());
        let absolute = |n: &str| var(n).map(PathBuf::from).filter(|p| p.is_absolute());
        let under_home = |rel: &str| home.as_ref().map(|h| h.join(rel));
        let (data, config) = if cfg!(target_os = "macos") {
            (under_home("Library/Application Support"), under_home("Library/Application Support"))
        } else {
            (
                absolute("XDG_DATA_HOME").or_else(|| under_home(".local/share")),
                absolute("XDG_CONFIG_HOME").or_else(|| under_home(".config")),
            )
        };
        let truthy = |v: &std::ffi::OsStr| !matches!(v.to_str(), Some("0" | "false" | "no" | ""));
        Surroundings {
            store_base: var("BACKSTITCH_STORE_DIR").map(PathBuf::from).unwrap_or_else(|| {
                data.unwrap_or_else(|| {
                    std::env::temp_dir().join(format!("backstitch-{}", rustix::process::getuid().as_raw()))
                })
                .join("backstitch")
            }),
            user_config: var("BACKSTITCH_CONFIG")
                .map(PathBuf::from)
                .or_else(|| config.map(|c| c.join("backstitch/config.toml"))),
            disabled: var("BACKSTITCH_DISABLE").is_some_and(|v| truthy(&v)),
            session: var("BACKSTITCH_SESSION").and_then(|v| v.into_string().ok()),
            inside: var("BACKSTITCH_SESSION").and_then(|v| v.into_string().ok()),
            settings: std::env::vars().filter(|(k, _)| k.starts_with("BACKSTITCH_")).collect(),
            program: None,
            agent_context: AGENT_VARIABLES.iter().find(|n| var(n).is_some()).map(|n| n.to_string()),
            home,
        }
    }

    fn trust_file(&self) -> PathBuf {
        self.store_base.join("trust.json")
    }

    /// Digests of project files that a person trusts.
    pub fn trusted(&self) -> Vec<String> {
        std::fs::read(self.trust_file())
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or_default()
    }

    /// Adds a digest.
    pub fn trust(&self, digest: &str) -> Result<()> {
        let mut all = self.trusted();
        if !all.iter().any(|d| d == digest) {
            all.push(digest.to_owned());
            let json = serde_json::to_vec(&all).unwrap_or_default();
            private_dir(&self.store_base)?;
            settings::write_file(&self.trust_file(), &json)?;
        }
        Ok(())
    }
}

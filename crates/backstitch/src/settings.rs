//! Settings in layers: environment over project over user over defaults, field by field.
//!
//! One table of keys is the source of `config list`, of the reference page and of every check. Project files come with
//! clones and can be written by agents: what narrows coverage, disables or lowers retention in them takes effect only
//! after `config trust` of exactly that content.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::error::{Code, Error, Result};

/// Name of the project's settings file at the workspace's root.
pub const PROJECT_FILE: &str = ".backstitch.toml";

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Bool,
    /// Bytes: a number, or text such as `32MiB`.
    Bytes,
    /// A whole number.
    Int,
    /// Seconds.
    Seconds,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted name.
    pub name: &'static str,
    /// Form.
    pub form: Form,
    /// Default in TOML.
    pub default: &'static str,
    /// One line.
    pub help: &'static str,
    /// A project may not lower or switch this without trust.
    pub guard: Guard,
}

/// Which changes by a project file need trust (SEMANTICS 37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None.
    Free,
    /// A smaller number.
    Lower,
    /// A larger number.
    Higher,
    /// Any change.
    Any,
    /// These words.
    Words(&'static [&'static str]),
}

const MIB: u64 = 1 << 20;

/// Every setting.
pub const KEYS: &[Key] = &[
    Key {
        name: "enabled",
        form: Form::Bool,
        default: "true",
        help: "record at all",
        guard: Guard::Words(&["false"]),
    },
    Key {
        name: "ignored",
        form: Form::Choice(&["none", "small", "all"]),
        default: "\"small\"",
        help: "which ignored files beside covered ones are kept",
        guard: Guard::Words(&["none"]),
    },
    Key {
        name: "include",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) that are always covered",
        guard: Guard::Free,
    },
    Key {
        name: "exclude",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) that are never covered",
        guard: Guard::Any,
    },
    Key {
        name: "nested",
        form: Form::Choice(&["content", "boundary"]),
        default: "\"content\"",
        help: "nested repositories: ordinary content, or left out",
        guard: Guard::Words(&["boundary"]),
    },
    Key {
        name: "bare",
        form: Form::Choice(&["skip", "content"]),
        default: "\"skip\"",
        help: "directories that look like bare repositories",
        guard: Guard::Free,
    },
    Key {
        name: "gitignore_outside_git",
        form: Form::Bool,
        default: "true",
        help: "honour .gitignore files outside git repositories",
        guard: Guard::Words(&["true"]),
    },
    Key {
        name: "global_excludes",
        form: Form::Choice(&["auto", "always", "never"]),
        default: "\"auto\"",
        help: "git's core.excludesFile: inside repositories, always, never",
        guard: Guard::Words(&["always"]),
    },
    Key {
        name: "limits.new_file",
        form: Form::Bytes,
        default: "\"32MiB\"",
        help: "larger files never recorded before are left out and listed",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.grown_file",
        form: Form::Bytes,
        default: "\"256MiB\"",
        help: "recorded files that pass this, or grow by more at once, are left out and listed",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.ignored_file",
        form: Form::Bytes,
        default: "\"1MiB\"",
        help: "ignored files up to this are kept (`ignored = small`)",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.ignored_total",
        form: Form::Bytes,
        default: "\"64MiB\"",
        help: "kept ignored files together",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.entries",
        form: Form::Int,
        default: "2000000",
        help: "more entries than this narrow the workspace to touched files",
        guard: Guard::Lower,
    },
    Key {
        name: "budget",
        form: Form::Bytes,
        default: "\"20GiB\"",
        help: "the store's ceiling",
        guard: Guard::Lower,
    },
    Key {
        name: "free_floor",
        form: Form::Bytes,
        default: "\"512MiB\"",
        help: "free disk space that recording leaves alone",
        guard: Guard::Higher,
    },
    Key {
        name: "checkpoint_limit",
        form: Form::Bytes,
        default: "\"4GiB\"",
        help: "new content that one checkpoint may add",
        guard: Guard::Lower,
    },
    Key {
        name: "durability",
        form: Form::Choice(&["full", "none"]),
        default: "\"full\"",
        help: "what is synced before a row is reported",
        guard: Guard::Words(&["none"]),
    },
    Key {
        name: "lock_wait",
        form: Form::Seconds,
        default: "10",
        help: "how long to wait for another process",
        guard: Guard::Free,
    },
    Key {
        name: "capture_time",
        form: Form::Seconds,
        default: "300",
        help: "what a capture has not looked at by then is left out and listed; 0: no limit",
        guard: Guard::Lower,
    },
    Key {
        name: "gate_timeout",
        form: Form::Seconds,
        default: "30",
        help: "how long a tool without named paths waits for its turn's checkpoint",
        guard: Guard::Free,
    },
    Key {
        name: "threads",
        form: Form::Int,
        default: "0",
        help: "threads of a capture; 0: one per core",
        guard: Guard::Free,
    },
    Key {
        name: "gc.auto",
        form: Form::Bool,
        default: "true",
        help: "join packs and free old trash in a process of its own when there is much of it",
        guard: Guard::Words(&["false"]),
    },
    Key {
        name: "prompts",
        form: Form::Choice(&["full", "snippet", "none"]),
        default: "\"full\"",
        help: "how much of a prompt is recorded",
        guard: Guard::Free,
    },
    Key {
        name: "retention.days",
        form: Form::Int,
        default: "30",
        help: "days after a session's last activity",
        guard: Guard::Lower,
    },
    Key {
        name: "retention.rows",
        form: Form::Int,
        default: "100",
        help: "automatic rows kept per session",
        guard: Guard::Lower,
    },
];

/// Finds a key.
pub fn key(name: &str) -> Result<&'static Key> {
    KEYS.iter().find(|k| k.name == name).ok_or_else(|| {
        Error::new(Code::BadSetting, format!("there is no setting {name:?}"))
            .hint("`backstitch config list` shows all of them")
    })
}

/// A value in its checked form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Bool.
    Bool(bool),
    /// Bytes, counts, seconds.
    Int(u64),
    /// Choice.
    Word(String),
    /// List.
    List(Vec<String>),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Built in.
    Default,
    /// The user's file.
    User,
    /// The project's file.
    Project,
    /// The environment.
    Environment,
}

/// `32MiB`, `1.5 GB`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let t = text.trim();
    let end = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = (t[..end].parse::<f64>().ok()?, t[end..].trim());
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "kb" => 1000,
        "m" | "mib" => MIB,
        "mb" => 1_000_000,
        "g" | "gib" => 1 << 30,
        "gb" => 1_000_000_000,
        "t" | "tib" => 1 << 40,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    let n = number * factor as f64;
    (n.is_finite() && (0.0..9e18).contains(&n)).then_some(n as u64)
}

/// `1.2 MiB`.
pub fn show_bytes(n: u64) -> String {
    let mut v = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if v < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{n} B") } else { format!("{v:.1} {unit}") };
        }
        v /= 1024.0;
    }
    format!("{n} B")
}

fn check(k: &Key, v: &toml::Value) -> Result<Value> {
    let bad = || {
        let want = match k.form {
            Form::Bool => "true or false".to_owned(),
            Form::Bytes => "a size such as \"32MiB\"".to_owned(),
            Form::Int | Form::Seconds => "a whole number".to_owned(),
            Form::Choice(words) => format!("one of {}", words.join(", ")),
            Form::List => "a list of texts".to_owned(),
        };
        Error::new(Code::BadSetting, format!("{} takes {want}, not {v}", k.name))
    };
    let int = |v: &toml::Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
    match k.form {
        Form::Bool => v.as_bool().map(Value::Bool),
        Form::Bytes => int(v).or_else(|| v.as_str().and_then(parse_bytes)).map(Value::Int),
        Form::Int | Form::Seconds => int(v).map(Value::Int),
        Form::Choice(words) => v.as_str().filter(|w| words.contains(w)).map(|w| Value::Word(w.to_owned())),
        Form::List => v
            .as_array()
            .and_then(|a| a.iter().map(|x| x.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>())
            .map(Value::List),
    }
    .ok_or_else(bad)
}

/// Reads a value as typed on the command line.
pub fn parse_value(k: &Key, text: &str) -> Result<(Value, toml::Value)> {
    let raw = match k.form {
        Form::Bytes | Form::Choice(_) => toml::Value::String(text.to_owned()),
        Form::List => match format!("v = {text}").parse::<toml::Table>() {
            Ok(mut t) if text.trim_start().starts_with('[') => {
                t.remove("v").unwrap_or_else(|| toml::Value::Array(Vec::new()))
            }
            _ => toml::Value::Array(
                text.split(',')
                    .filter(|s| !s.is_empty())
                    .map(|s| toml::Value::String(s.trim().to_owned()))
                    .collect(),
            ),
        },
        _ => format!("v = {text}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut t| t.remove("v"))
            .unwrap_or_else(|| toml::Value::String(text.to_owned())),
    };
    Ok((check(k, &raw)?, raw))
}

fn get<'a>(t: &'a toml::Table, dotted: &str) -> Option<&'a toml::Value> {
    let mut parts = dotted.split('.').peekable();
    let mut at = t;
    while let Some(p) = parts.next() {
        let v = at.get(p)?;
        if parts.peek().is_none() {
            return Some(v);
        }
        at = v.as_table()?;
    }
    None
}

/// The settings in force and where each comes from.
#[derive(Clone, Debug)]
pub struct Settings {
    values: BTreeMap<&'static str, (Value, Source)>,
    /// What a person should know: broken files, held-back values.
    pub warnings: Vec<String>,
    /// The project's file holds values that wait for `config trust`.
    pub untrusted: Vec<String>,
    /// Digest of the project's file, if there is one.
    pub project_digest: Option<String>,
}

/// Where settings are read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The user's file.
    pub user: Option<PathBuf>,
    /// The project's file.
    pub project: Option<PathBuf>,
    /// `BACKSTITCH_…` variables that name settings, such as `BACKSTITCH_BUDGET=1GiB`.
    pub environment: Vec<(String, String)>,
    /// Digests of project files that a person trusts.
    pub trusted: Vec<String>,
}

/// SHA-1 hex of some bytes: names a content, guards nothing against forgery by its owner.
pub fn digest(bytes: &[u8]) -> String {
    let mut h = gix_hash::hasher(gix_hash::Kind::Sha1);
    h.update(bytes);
    h.try_finalize().map(|o| o.to_string()).unwrap_or_else(|_| "collision".to_owned())
}

impl Settings {
    /// Reads all layers. A broken file is a visible warning and the layer below, never silence and never a failure.
    pub fn load(sources: &Sources) -> Settings {
        let mut s = Settings {
            values: BTreeMap::new(),
            warnings: Vec::new(),
            untrusted: Vec::new(),
            project_digest: None,
        };
        for k in KEYS {
            let raw =
                format!("v = {}", k.default).parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
            if let Some(Ok(v)) = raw.as_ref().map(|v| check(k, v)) {
                s.values.insert(k.name, (v, Source::Default));
            }
        }
        if let Some(path) = &sources.user {
            s.layer(path, Source::User, &sources.trusted);
        }
        if let Some(path) = &sources.project {
            s.layer(path, Source::Project, &sources.trusted);
        }
        for (name, text) in &sources.environment {
            let Some(k) = KEYS.iter().find(|k| env_name(k) == *name) else { continue };
            match parse_value(k, text) {
                Ok((v, _)) => {
                    s.values.insert(k.name, (v, Source::Environment));
                }
                Err(e) => s.warnings.push(format!("{name}: {e}; the setting below it is used")),
            }
        }
        s
    }

    fn layer(&mut self, path: &Path, source: Source, trusted: &[String]) {
        let bytes = match std::fs::read(path) {
            Ok(b) => b,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return,
            Err(e) => {
                self.warnings.push(format!("{}: {e}; its settings are not used", path.display()));
                return;
            }
        };
        let digest = digest(&bytes);
        let is_trusted = source != Source::Project || trusted.contains(&digest);
        if source == Source::Project {
            self.project_digest = Some(digest);
        }
        let table = match std::str::from_utf8(&bytes)
            .map_err(|e| e.to_string())
            .and_then(|t| t.parse::<toml::Table>().map_err(|e| e.message().to_owned()))
        {
            Ok(t) => t,
            Err(e) => {
                self.warnings.push(format!("{}: {e}; its settings are not used", path.display()));
                return;
            }
        };
        let mut known = Vec::new();
        for k in KEYS {
            known.push(k.name);
            let Some(raw) = get(&table, k.name) else { continue };
            match check(k, raw) {
                Ok(v) => {
                    if !is_trusted && self.narrows(k, &v) {
                        self.untrusted.push(k.name.to_owned());
                    } else {
                        self.values.insert(k.name, (v, source));
                    }
                }
                Err(e) => {
                    self.warnings.push(format!("{}: {e}; the setting below it is used", path.display()))
                }
            }
        }
        for unknown in flatten(&table, "").into_iter().filter(|n| !known.contains(&n.as_str())) {
            self.warnings.push(format!("{}: there is no setting {unknown:?}", path.display()));
        }
        if !self.untrusted.is_empty() && source == Source::Project {
            self.warnings.push(format!(
                "{}: {} would narrow what is kept; not in force until `backstitch config trust`",
                path.display(),
                self.untrusted.join(", ")
            ));
        }
    }

    fn narrows(&self, k: &Key, new: &Value) -> bool {
        let old = self.values.get(k.name).map(|(v, _)| v);
        if old == Some(new) {
            return false;
        }
        let numbers = match (old, new) {
            (Some(Value::Int(a)), Value::Int(b)) => Some((*a, *b)),
            _ => None,
        };
        match k.guard {
            Guard::Free => false,
            Guard::Any => true,
            Guard::Lower => numbers.is_none_or(|(a, b)| b < a),
            Guard::Higher => numbers.is_none_or(|(a, b)| b > a),
            Guard::Words(words) => match new {
                Value::Word(w) => words.contains(&w.as_str()),
                Value::Bool(b) => words.contains(&if *b { "true" } else { "false" }),
                _ => true,
            },
        }
    }

    /// A value with its source.
    pub fn get(&self, name: &str) -> Result<(&Value, Source)> {
        let k = key(name)?;
        self.values
            .get(k.name)
            .map(|(v, s)| (v, *s))
            .ok_or_else(|| Error::new(Code::BadSetting, format!("{name} has no value")))
    }

    /// A number.
    pub fn int(&self, name: &'static str) -> u64 {
        match self.values.get(name) {
            Some((Value::Int(n), _)) => *n,
            _ => 0,
        }
    }

    /// A switch.
    pub fn flag(&self, name: &'static str) -> bool {
        matches!(self.values.get(name), Some((Value::Bool(true), _)))
    }

    /// A word.
    pub fn word(&self, name: &'static str) -> &str {
        match self.values.get(name) {
            Some((Value::Word(w), _)) => w,
            _ => "",
        }
    }

    /// A list.
    pub fn list(&self, name: &'static str) -> Vec<String> {
        match self.values.get(name) {
            Some((Value::List(l), _)) => l.clone(),
            _ => Vec::new(),
        }
    }

    /// All, in the table's order.
    pub fn all(&self) -> impl Iterator<Item = (&'static Key, &Value, Source)> {
        KEYS.iter().filter_map(|k| self.values.get(k.name).map(|(v, s)| (k, v, *s)))
    }
}

/// The environment variable of a setting: `limits.new_file` is `BACKSTITCH_LIMITS_NEW_FILE`.
pub fn env_name(k: &Key) -> String {
    format!("BACKSTITCH_{}", k.name.replace('.', "_").to_ascii_uppercase())
}

fn flatten(t: &toml::Table, prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (k, v) in t {
        let name = if prefix.is_empty() { k.clone() } else { format!("{prefix}.{k}") };
        match v {
            toml::Value::Table(inner) => out.extend(flatten(inner, &name)),
            _ => out.push(name),
        }
    }
    out
}

/// Writes one value into a settings file: temporary, sync, rename; other content of the file is kept as data, not as text.
pub fn set(path: &Path, name: &str, text: &str) -> Result<()> {
    let k = key(name)?;
    let (_, raw) = parse_value(k, text)?;
    let mut table = match std::fs::read_to_string(path) {
        Ok(t) => t.parse::<toml::Table>().map_err(|e| {
            Error::new(Code::BadSetting, format!("{}: {}", path.display(), e.message()))
                .at(path)
                .hint("repair the file first; it was not changed")
        })?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => toml::Table::new(),
        Err(e) => return Err(Error::io(path, e)),
    };
    let parts: Vec<&str> = name.split('.').collect();
    let mut at = &mut table;
    for p in &parts[..parts.len() - 1] {
        at = at
            .entry(p.to_string())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()))
            .as_table_mut()
            .ok_or_else(|| {
                Error::new(Code::BadSetting, format!("{}: {p} is not a table", path.display())).at(path)
            })?;
    }
    at.insert(parts[parts.len() - 1].to_owned(), raw);
    write_file(path, toml::to_string(&table).unwrap_or_default().as_bytes())
}

/// Temporary beside, sync, rename.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, e))?;
    let tmp = dir.join(format!(".backstitch-tmp-{}", crate::record::new_id(crate::record::now_ms())));
    let result = (|| {
        let mut f = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
        f.write_all(bytes)?;
        f.sync_all()?;
        std::fs::rename(&tmp, path)
    })();
    result.map_err(|e| {
        let _ = std::fs::remove_file(&tmp);
        Error::io(path, e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(user: &str, project: &str, env: &[(&str, &str)], trust: bool) -> Settings {
        let d = tempfile::tempdir().expect("a temporary folder");
        let (u, p) = (d.path().join("u"), d.path().join("p"));
        std::fs::write(&u, user).expect("written");
        std::fs::write(&p, project).expect("written");
        Settings::load(&Sources {
            user: Some(u),
            project: Some(p),
            environment: env.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect(),
            trusted: if trust { vec![digest(project.as_bytes())] } else { vec![] },
        })
    }

    #[test]
    fn every_default_is_valid() {
        let s = Settings::load(&Sources::default());
        assert_eq!(s.all().count(), KEYS.len());
        assert!(s.warnings.is_empty());
    }

    #[test]
    fn environment_over_project_over_user() {
        let s = load("budget = \"1GiB\"\nthreads = 3", "budget = \"30GiB\"", &[], false);
        assert_eq!(s.int("budget"), 30 << 30);
        assert_eq!(s.int("threads"), 3);
        let s = load("", "budget = \"30GiB\"", &[("BACKSTITCH_BUDGET", "5")], false);
        assert_eq!(s.get("budget").expect("known"), (&Value::Int(5), Source::Environment));
    }

    #[test]
    fn a_project_may_not_narrow_without_trust() {
        let narrow = "exclude = [\"src\"]\nenabled = false\nignored = \"none\"\n[limits]\nnew_file = 1";
        let s = load("", narrow, &[], false);
        assert!(s.flag("enabled"));
        assert!(s.list("exclude").is_empty());
        assert_eq!(s.untrusted.len(), 4);
        assert!(!s.warnings.is_empty());
        let s = load("", narrow, &[], true);
        assert!(!s.flag("enabled") && s.untrusted.is_empty());
        assert!(load("", "include = [\"x\"]", &[], false).untrusted.is_empty());
    }

    #[test]
    fn a_broken_file_is_a_warning_and_the_default() {
        let s = load("budget = ", "ignored = \"maybe\"", &[("BACKSTITCH_THREADS", "many")], false);
        assert_eq!(s.int("budget"), 20 << 30);
        assert_eq!(s.warnings.len(), 3, "{:?}", s.warnings);
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("32MiB"), Some(32 << 20));
        assert_eq!(parse_bytes("1.5 k"), Some(1536));
        assert_eq!(parse_bytes("2GB"), Some(2_000_000_000));
        assert_eq!(parse_bytes("x"), None);
        assert_eq!(parse_bytes("5 parsecs"), None);
        assert_eq!(show_bytes(1536), "1.5 KiB");
    }

    #[test]
    fn set_keeps_the_rest() {
        let d = tempfile::tempdir().expect("a temporary folder");
        let f = d.path().join("new/c.toml");
        set(&f, "limits.new_file", "5MiB").expect("set");
        set(&f, "include", "a,b").expect("set");
        set(&f, "enabled", "false").expect("set");
        let t = std::fs::read_to_string(&f).expect("read");
        assert!(t.contains("new_file = \"5MiB\"") && t.contains("enabled = false"), "{t}");
        assert!(set(&f, "nonsense", "1").is_err());
        assert!(set(&f, "enabled", "perhaps").is_err());
    }
}

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

mod beside;
mod keys;
mod value;

use value::check;

pub use beside::Beside;
pub use keys::{Form, Guard, KEYS, Key, env_name, key};
pub use value::{Value, parse_bytes, parse_value, show_bytes};

/// Name of the project's settings file at the workspace's root.
pub const PROJECT_FILE: &str = ".backstitch.toml";

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

/// Larger files are no settings and no rules that a person trusts.
const MAX_FILE: u64 = 16 << 20;

/// Reads a file that somebody else may have put there: never waits for a pipe, and never reads without an end. Links are
/// followed. `None` where there is none.
///
/// # Errors
/// It is no regular file, is larger than 16 MiB, or cannot be read.
pub fn read_file(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use std::{io::Read, os::unix::fs::OpenOptionsExt};
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let checked = |m: std::fs::Metadata| match m.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other("not a regular file")),
    };
    // Looked at first: to open a device may already do something.
    let file = match std::fs::metadata(path)
        .and_then(checked)
        .and_then(|()| std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path))
    {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    checked(file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(std::io::Error::other("larger than 16 MiB")),
        false => Ok(Some(bytes)),
    }
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
        let bytes = match read_file(path) {
            Ok(Some(b)) => b,
            Ok(None) => return,
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
            Guard::Rise(words) => {
                let rank = |v: &Value| match v {
                    Value::Word(w) => words.iter().position(|x| x == w),
                    _ => None,
                };
                old.is_none_or(|old| rank(new) > rank(old))
            }
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
    let text = read_file(path).and_then(|bytes| {
        bytes.map(String::from_utf8).transpose().map_err(|_| std::io::Error::other("not text"))
    });
    let mut table = match text {
        Ok(Some(t)) => t.parse::<toml::Table>().map_err(|e| {
            Error::new(Code::BadSetting, format!("{}: {}", path.display(), e.message()))
                .at(path)
                .hint("repair the file first; it was not changed")
        })?,
        Ok(None) => toml::Table::new(),
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
    use std::io::Write;
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, e))?;
    let mut temporary = Beside::new(dir, 0o600).map_err(|e| Error::io(path, e))?;
    let written = temporary.file.write_all(bytes).and_then(|()| temporary.place(path));
    written.map_err(|e| Error::io(path, e))
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

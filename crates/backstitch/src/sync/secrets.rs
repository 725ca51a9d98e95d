//! What looks like a secret: by its name, which leaves a path out of what is sent, and by its content, which is asked about.

use bstr::{BStr, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    paths,
};

/// Names (ignore-file syntax) of files that hold secrets, wherever they are.
pub const NAMES: &[&str] = &[
    ".env",
    ".env.*",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    "credentials.json",
    "service-account*.json",
    "secrets.*",
    ".ssh/",
    ".gnupg/",
    ".aws/",
    ".azure/",
    ".kube/",
];

/// Larger contents are not looked into.
pub(super) const LOOKED_AT: u64 = 1 << 20;

/// Beginnings of tokens, how many characters of what kind follow at least, and what it is.
const TOKENS: &[(&str, usize, &str)] = &[
    ("AKIA", 16, "AWS access key"),
    ("ASIA", 16, "AWS access key"),
    ("ghp_", 36, "GitHub token"),
    ("gho_", 36, "GitHub token"),
    ("ghs_", 36, "GitHub token"),
    ("github_pat_", 50, "GitHub token"),
    ("glpat-", 20, "GitLab token"),
    ("xoxb-", 20, "Slack token"),
    ("xoxp-", 20, "Slack token"),
    ("sk-ant-", 40, "API key"),
    ("sk_live_", 20, "API key"),
    ("AIza", 35, "API key"),
    ("npm_", 36, "npm token"),
];

/// What a content looks like.
///
/// ```
/// # use backstitch::sync::secrets::inside;
/// assert_eq!(inside(b"key = AKIAABCDEFGHIJKLMNOP\n"), Some("AWS access key"));
/// assert_eq!(inside(b"AKIA and other words"), None);
/// ```
pub fn inside(bytes: &[u8]) -> Option<&'static str> {
    if bytes.find_iter("-----BEGIN ").any(|at| {
        let line = bytes[at..].lines().next().unwrap_or_default();
        line.ends_with(b"PRIVATE KEY-----") || line.ends_with(b"PRIVATE KEY BLOCK-----")
    }) {
        return Some("private key");
    }
    for (start, least, what) in TOKENS {
        for at in bytes.find_iter(start) {
            // In the middle of a longer word it is something else.
            if at > 0 && bytes[at - 1].is_ascii_alphanumeric() {
                continue;
            }
            let rest = &bytes[at + start.len()..];
            let n = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count();
            if n >= *least {
                return Some(what);
            }
        }
    }
    None
}

/// Patterns; the last that matches decides, `!` in front makes it say no.
pub(super) struct Patterns(Vec<gix_glob::Pattern>);

impl Patterns {
    /// The names above, then what the settings add and what they except.
    pub(super) fn new(private: &[String], send: &[String]) -> Result<Patterns> {
        let bad = |p: &str| Error::new(Code::BadSetting, format!("{p:?} is not a pattern"));
        let mut out = Vec::new();
        let except: Vec<String> = send.iter().map(|p| format!("!{p}")).collect();
        // What is named private stays private, whatever is excepted from the names that are built in.
        for p in NAMES
            .iter()
            .copied()
            .chain(except.iter().map(String::as_str))
            .chain(private.iter().map(String::as_str))
        {
            out.push(gix_glob::Pattern::from_bytes(p.as_bytes()).ok_or_else(|| bad(p))?);
        }
        Ok(Patterns(out))
    }

    /// The path itself is meant; who walks asks of its directories first.
    pub(super) fn meant(&self, path: &BStr, is_dir: bool) -> bool {
        let basename = path.rfind_byte(b'/').map(|i| i + 1);
        let hit = self.0.iter().rev().find(|g| {
            g.matches_repo_relative_path(
                path,
                basename,
                Some(is_dir),
                gix_glob::pattern::Case::Fold,
                gix_glob::wildmatch::Mode::NO_MATCH_SLASH_LITERAL,
            )
        });
        hit.is_some_and(|g| !g.is_negative())
    }

    /// The path or a directory above it is meant.
    pub(super) fn above(&self, path: &BStr) -> bool {
        self.meant(path, false) || paths::parents(path).any(|dir| self.meant(dir, true))
    }
}

//! The project's own files of settings and rules, and whether a person trusts them (SEMANTICS 37).

use serde_json::{Map, Value};

use crate::{
    record::Record,
    settings::{self, PROJECT_FILE},
    workspace::Workspace,
};

/// Name of the project's own rules.
pub const IGNORE_FILE: &str = ".backstitchignore";

/// In a row's record: digests of the project's files when it was made.
pub(crate) const PROJECT: &str = "project";

/// One of the files, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// Its name at the root.
    pub name: &'static str,
    /// Of its content.
    pub digest: String,
    /// A person trusts exactly this content.
    pub trusted: bool,
    /// Something in it waits for trust.
    pub held_back: bool,
}

/// A pattern that leaves something out: neither empty, a comment, nor one that re-admits.
fn narrows(rules: &[u8]) -> bool {
    rules
        .split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .any(|l| !l.is_empty() && !l.starts_with(b"#") && !l.starts_with(b"!"))
}

impl Workspace {
    /// The project's files that are there.
    pub fn project_files(&self) -> Vec<ProjectFile> {
        let files: Vec<(&str, Vec<u8>)> = [PROJECT_FILE, IGNORE_FILE]
            .into_iter()
            .filter_map(|name| Some((name, settings::read_file(&self.root().join(name)).ok()??)))
            .collect();
        if files.is_empty() {
            return Vec::new();
        }
        let trusted = self.surroundings().trusted();
        files
            .into_iter()
            .map(|(name, bytes)| {
                let digest = settings::digest(&bytes);
                let trusted = trusted.contains(&digest);
                let held_back = match name {
                    PROJECT_FILE => !self.settings().untrusted.is_empty(),
                    _ => !trusted && narrows(&bytes),
                };
                ProjectFile { name, digest, trusted, held_back }
            })
            .collect()
    }

    /// What of the project's files is not in force: settings by name, the file of rules by its own.
    pub fn untrusted(&self) -> Vec<String> {
        let mut out = self.settings().untrusted.clone();
        out.extend(
            self.project_files()
                .iter()
                .filter(|f| f.name == IGNORE_FILE && f.held_back)
                .map(|f| f.name.to_owned()),
        );
        out
    }

    /// What changed in the project's files since a row: a sentence for each.
    pub fn project_changes(&self, since: &Record) -> Vec<String> {
        changes(since.extra.get(PROJECT), &self.project_files())
    }
}

/// Digests for a row's record; nothing where there are no such files.
pub(crate) fn digests(files: &[ProjectFile]) -> Option<Value> {
    let m: Map<String, Value> = files.iter().map(|f| (f.name.to_owned(), f.digest.clone().into())).collect();
    (!m.is_empty()).then_some(Value::Object(m))
}

pub(crate) fn changes(before: Option<&Value>, now: &[ProjectFile]) -> Vec<String> {
    let of = |name: &str| before.and_then(|b| b.get(name)).and_then(Value::as_str);
    [PROJECT_FILE, IGNORE_FILE]
        .into_iter()
        .filter_map(|name| {
            let file = now.iter().find(|f| f.name == name);
            if file.map(|f| f.digest.as_str()) == of(name) {
                return None;
            }
            Some(match file {
                None => format!("{name} is gone"),
                Some(f) if f.held_back => {
                    format!("{name} changed; what narrows coverage in it waits for `backstitch config trust`")
                }
                Some(_) => format!("{name} changed"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_rules_narrows_if_it_leaves_anything_out() {
        assert!(!narrows(b"") && !narrows(b"# a\n\n  \n!keep\n"));
        assert!(narrows(b"!keep\nsrc/\n"));
    }
}

//! Reading payloads leniently: a field that is missing or of another type is not there.

use std::path::PathBuf;

use serde_json::Value;

/// The text at a dotted path; empty text counts as none.
pub fn text<'a>(v: &'a Value, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(v, |v, part| v.get(part))?.as_str().filter(|s| !s.is_empty())
}

/// The same, owned.
pub fn owned(v: &Value, path: &str) -> Option<String> {
    text(v, path).map(str::to_owned)
}

/// The first of some fields that holds text.
pub fn first<'a>(v: &'a Value, paths: &[&str]) -> Option<&'a str> {
    paths.iter().find_map(|p| text(v, p))
}

/// A path at a dotted path.
pub fn path(v: &Value, at: &str) -> Option<PathBuf> {
    text(v, at).filter(|s| !s.contains('\0')).map(PathBuf::from)
}

/// Paths in some fields of a tool's input.
pub fn paths(input: &Value, fields: &[&str]) -> Vec<PathBuf> {
    fields.iter().filter_map(|f| path(input, f)).collect()
}

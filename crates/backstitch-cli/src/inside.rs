//! Paths as typed, to paths relative to the workspace. Lexical: a link that is named is the link itself.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use backstitch::{
    error::{Code, Error, Result},
    workspace::Workspace,
};
use bstr::BString;

use crate::table::Change;

/// The folder that relative paths are relative to: the current one where it lies in the workspace, else the named one.
pub fn base(ws: &Workspace, named: &Path) -> PathBuf {
    let current = std::env::current_dir().ok().and_then(|c| c.canonicalize().ok());
    match current {
        Some(c) if c.starts_with(ws.root()) => c,
        _ => match named.canonicalize() {
            Ok(n) if n.starts_with(ws.root()) => n,
            _ => ws.root().to_owned(),
        },
    }
}

/// One path; empty for the workspace itself.
pub fn one(ws: &Workspace, base: &Path, path: &OsStr) -> Result<BString> {
    let refuse = |why: &str| {
        Err(Error::new(Code::UnsafePath, format!("{} {why}", Path::new(path).display())).at(path).hint(
            "paths are relative to the current folder and must lie inside the workspace; nothing was changed",
        ))
    };
    if path.is_empty() {
        return Err(Error::new(Code::Usage, "a path is empty").hint("`.` means the current folder"));
    }
    match ws.locate(&base.join(path)) {
        Some(inner) => Ok(inner),
        None => refuse(&format!("is outside the workspace {}", ws.root().display())),
    }
}

/// Some paths; the empty one is the workspace itself.
pub fn list(ws: &Workspace, named: &Path, list: &[OsString]) -> Result<Vec<BString>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let base = base(ws, named);
    let mut out = list.iter().map(|p| one(ws, &base, p)).collect::<Result<Vec<_>>>()?;
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// Some paths wherever they are: those outside the workspace are absolute.
pub fn anywhere(ws: &Workspace, named: &Path, list: &[OsString]) -> Result<Vec<BString>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let base = base(ws, named);
    if list.iter().any(|p| p.is_empty()) {
        return Err(Error::new(Code::Usage, "a path is empty").hint("`.` means the current folder"));
    }
    let mut out: Vec<BString> = list.iter().map(|p| ws.locate_anywhere(&base.join(p))).collect();
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

fn narrowed(all: Vec<BString>) -> Vec<BString> {
    if all.iter().any(|p| p.is_empty()) { Vec::new() } else { all }
}

/// Some paths to which a call is limited; none where one of them is the workspace itself.
pub fn scope(ws: &Workspace, named: &Path, paths: &[OsString]) -> Result<Vec<BString>> {
    list(ws, named, paths).map(narrowed)
}

/// What a change of the folder is limited to: paths, patterns, and paths that are left alone. With `outside` also files
/// elsewhere.
pub fn change(
    ws: &Workspace,
    named: &Path,
    change: &Change,
    outside: bool,
) -> Result<(Vec<BString>, Vec<String>, Vec<BString>)> {
    let paths = match outside {
        true => anywhere(ws, named, &change.paths).map(narrowed),
        false => scope(ws, named, &change.paths),
    }?;
    // A path that is the whole workspace takes everything, whatever the patterns say.
    let everything = !change.paths.is_empty() && paths.is_empty();
    let globs = if everything { Vec::new() } else { change.glob.clone() };
    Ok((paths, globs, list(ws, named, &change.busy)?))
}

/// A path typed as part of another word (`cat ID:PATH`): relative to the workspace, unless it says where it begins.
pub fn of_row(ws: &Workspace, named: &Path, path: &[u8]) -> Result<BString> {
    let path = OsStr::from_bytes(path);
    let first = Path::new(path).components().next();
    match first {
        Some(Component::CurDir | Component::ParentDir) => one(ws, &base(ws, named), path),
        _ => one(ws, ws.root(), path),
    }
}

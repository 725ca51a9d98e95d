//! Paths as typed, to paths relative to the workspace. Lexical: a link that is named is the link itself.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use backstitch::{
    error::{Code, Error, Result},
    paths,
    workspace::Workspace,
};
use bstr::BString;

/// `a/./b/../c/` to `a/c`. `None` where `..` leads above the root of the file system's own spelling.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for c in path.components() {
        match c {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            c => out.push(c),
        }
    }
    out
}

/// Where an absolute path lies in the workspace.
fn relative(root: &Path, absolute: &Path) -> Option<PathBuf> {
    if let Ok(rest) = absolute.strip_prefix(root) {
        return Some(rest.to_owned());
    }
    // Another spelling of the way there: the shortest part of it that resolves into the workspace. The last name is not
    // followed, unless it is the workspace itself.
    let parts: Vec<&OsStr> = absolute.iter().collect();
    for n in 1..=parts.len() {
        let head: PathBuf = parts[..n].iter().collect();
        let Ok(real) = head.canonicalize() else { return None };
        let Ok(inner) = real.strip_prefix(root) else { continue };
        if n == parts.len() && real != root {
            return None;
        }
        let mut out = inner.to_owned();
        out.extend(&parts[n..]);
        return Some(out);
    }
    None
}

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
    let absolute = lexical(&base.join(path));
    match relative(ws.root(), &absolute) {
        Some(inner) => Ok(paths::bytes(&inner).into()),
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

/// Some paths, and those of them that lie outside the workspace.
pub fn sorted<'a>(
    ws: &Workspace,
    named: &Path,
    list: &'a [OsString],
) -> Result<(Vec<BString>, Vec<&'a OsString>)> {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    if list.is_empty() {
        return Ok((inside, outside));
    }
    let base = base(ws, named);
    for p in list {
        match one(ws, &base, p) {
            Ok(path) => inside.push(path),
            Err(e) if e.code == Code::UnsafePath => outside.push(p),
            Err(e) => return Err(e),
        }
    }
    inside.sort_unstable();
    inside.dedup();
    Ok((inside, outside))
}

/// Some paths to which a call is limited; none where one of them is the workspace itself.
pub fn scope(ws: &Workspace, named: &Path, paths: &[OsString]) -> Result<Vec<BString>> {
    let all = list(ws, named, paths)?;
    Ok(if all.iter().any(|p| p.is_empty()) { Vec::new() } else { all })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter() {
        for (given, want) in [("/a/./b/../c/", "/a/c"), ("/a//b/", "/a/b"), ("/../a", "/a")] {
            assert_eq!(lexical(Path::new(given)), Path::new(want));
        }
    }

    #[test]
    fn links_on_the_way_are_followed_and_the_last_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().canonicalize().expect("real");
        let root = top.join("ws");
        std::fs::create_dir_all(root.join("sub")).expect("made");
        std::fs::write(root.join("sub/f"), "").expect("made");
        for (to, at) in [("ws", "link"), ("ws/sub", "inner"), ("ws/sub/f", "file")] {
            std::os::unix::fs::symlink(top.join(to), top.join(at)).expect("made");
        }
        let rel = |p: &str| relative(&root, &top.join(p)).map(|p| p.to_string_lossy().into_owned());
        assert_eq!(rel("ws/sub/f").as_deref(), Some("sub/f"));
        assert_eq!(rel("link/sub/f").as_deref(), Some("sub/f"));
        assert_eq!(rel("link").as_deref(), Some(""));
        assert_eq!(rel("link/gone/x").as_deref(), Some("gone/x"));
        assert_eq!(rel("inner/f").as_deref(), Some("sub/f"));
        assert_eq!(rel("file"), None);
        assert_eq!(rel("inner"), None);
        assert_eq!(rel("elsewhere"), None);
    }
}

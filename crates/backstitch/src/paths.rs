//! Paths are bytes inside; text at the edges, with a reversible form in JSON. A path in the workspace is relative to its root
//! and never begins with `/`; a path that does is absolute, and stands for a file elsewhere.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use bstr::{BStr, BString, ByteSlice};

/// The path is absolute: a file outside the workspace.
pub fn is_outside(path: &BStr) -> bool {
    path.first() == Some(&b'/')
}

/// `a/b` joined; an empty base is the root.
pub fn join(base: &BStr, name: &[u8]) -> BString {
    if base.is_empty() {
        return name.into();
    }
    let mut p = BString::new(Vec::with_capacity(base.len() + 1 + name.len()));
    p.extend_from_slice(base);
    if base != "/" {
        p.push(b'/');
    }
    p.extend_from_slice(name);
    p
}

/// Parent (empty for the root's children and for `/` itself) and last name.
pub fn split(path: &BStr) -> (&BStr, &BStr) {
    match path.rfind_byte(b'/') {
        Some(0) if path.len() > 1 => (path[..1].as_bstr(), path[1..].as_bstr()),
        Some(0) => (b"".as_bstr(), path),
        Some(i) => (path[..i].as_bstr(), path[i + 1..].as_bstr()),
        None => (b"".as_bstr(), path),
    }
}

/// `path` is `of` or below it. The empty path is the root of the workspace: nothing absolute is below it.
pub fn is_under(path: &BStr, of: &BStr) -> bool {
    if of.is_empty() || of == "/" {
        return is_outside(path) != of.is_empty();
    }
    path == of || (path.starts_with(of) && path.get(of.len()) == Some(&b'/'))
}

/// Every directory above the path, the nearest first, without the root.
pub fn parents(path: &BStr) -> impl Iterator<Item = &BStr> {
    std::iter::successors(Some(split(path).0), |p| Some(split(p).0))
        .take_while(|p| !p.is_empty() && *p != "/")
}

/// A path below the workspace that may be read from a record: no step up, no `.git`, nothing that is no name.
pub fn is_safe(path: &BStr) -> bool {
    !path.is_empty()
        && path.split_str("/").all(|part| {
            !part.is_empty() && part != b"." && part != b".." && part != b".git" && !part.contains(&0)
        })
}

/// The file system's form of a byte path; absolute ones stay as they are.
pub fn to_path(root: &Path, rel: &BStr) -> PathBuf {
    if rel.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(rel)) }
}

/// Bytes of a path.
pub fn bytes(path: &Path) -> &BStr {
    path.as_os_str().as_bytes().as_bstr()
}

/// `a/./b/../c/` to `a/c`. `None` where `..` leads above the root of the file system's own spelling.
pub(crate) fn lexical(path: &Path) -> PathBuf {
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
pub(crate) fn relative(root: &Path, absolute: &Path) -> Option<PathBuf> {
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

/// `%xx` for everything that is not plain, readable ASCII; reversible.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_graphic() && b != b'%' {
            out.push(b as char);
        } else {
            out.push_str(&format!("%{b:02x}"));
        }
    }
    out
}

/// Inverse of [`escape`]; `None` for text it does not produce.
pub fn unescape(text: &[u8]) -> Option<BString> {
    let mut out = Vec::with_capacity(text.len());
    let mut i = 0;
    while i < text.len() {
        if text[i] == b'%' {
            let hex = text.get(i + 1..i + 3)?;
            out.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            i += 3;
        } else {
            out.push(text[i]);
            i += 1;
        }
    }
    Some(out.into())
}

const B64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding, for `path_base64`.
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let n = u32::from(chunk[0]) << 16
            | u32::from(*chunk.get(1).unwrap_or(&0)) << 8
            | u32::from(*chunk.get(2).unwrap_or(&0));
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(B64[(n >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Inverse of [`base64`]; `None` for what it does not make.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut n: u32 = 0;
        for i in 0..4 {
            let d = match chunk.get(i) {
                Some(b) => B64.iter().position(|x| x == b)?,
                None => 0,
            };
            n = n << 6 | d as u32;
        }
        out.extend_from_slice(&n.to_be_bytes()[1..chunk.len().max(1)]);
    }
    (base64(&out) == text).then_some(out)
}

/// A path in JSON: `path` lossily, and `path_base64` where it is not UTF-8.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JsonPath {
    /// The path, lossily where it is not UTF-8.
    pub path: String,
    /// The exact bytes where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl From<&BStr> for JsonPath {
    fn from(p: &BStr) -> Self {
        match p.to_str() {
            Ok(s) => JsonPath { path: s.to_owned(), path_base64: None },
            Err(_) => JsonPath { path: p.to_str_lossy().into_owned(), path_base64: Some(base64(p)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_is_by_component() {
        let b = |s: &'static str| BStr::new(s);
        assert!(is_under(b("a/b"), b("a")));
        assert!(is_under(b("a"), b("a")));
        assert!(is_under(b("a"), b("")));
        assert!(!is_under(b("ab"), b("a")));
        assert!(!is_under(b("a"), b("a/b")));
        assert!(is_under(b("/a/b"), b("/a")) && is_under(b("/a"), b("/")));
        assert!(!is_under(b("/a"), b("")) && !is_under(b("a"), b("/")) && !is_under(b("/ab"), b("/a")));
    }

    #[test]
    fn absolute_paths_end_at_the_root() {
        let b = |s: &'static str| BStr::new(s);
        assert_eq!(split(b("/a/b")), (b("/a"), b("b")));
        assert_eq!(split(b("/a")), (b("/"), b("a")));
        assert_eq!(split(b("/")), (b(""), b("/")));
        assert_eq!(join(b("/"), b"a"), "/a");
        assert_eq!(parents(b("/a/b/c")).collect::<Vec<_>>(), ["/a/b", "/a"]);
        assert_eq!(parents(b("a/b/c")).collect::<Vec<_>>(), ["a/b", "a"]);
        assert_eq!(parents(b("a")).count() + parents(b("/a")).count(), 0);
    }

    #[test]
    fn escape_is_reversible() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(escape(&all).as_bytes()).as_deref().map(|b| b.as_slice()), Some(all.as_slice()));
        assert_eq!(unescape(b"%zz"), None);
        assert_eq!(unescape(b"%2"), None);
    }

    #[test]
    fn base64_known() {
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        let all: Vec<u8> = (0..=255).collect();
        for n in 0..all.len() {
            assert_eq!(from_base64(&base64(&all[..n])).as_deref(), Some(&all[..n]));
        }
        for bad in ["Z", "Zg", "Zg=", "Zh==", "====", "Zm9v=", "Z g=", "Zm-v"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }

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

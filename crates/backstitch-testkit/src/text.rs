//! Raw bytes for the eyes of people.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Writes bytes so that they can be read and told apart: printable text as it is, everything else escaped.
///
/// ```
/// assert_eq!(backstitch_testkit::text::show(b"a\nb\xff\\"), "a\\nb\\xff\\\\");
/// ```
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || c.is_control() || is_invisible(c) {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if out.ends_with(' ') {
        out.pop();
        out.push_str("\\x20");
    }
    if out.is_empty() {
        out.push('.');
    }
    out
}

/// The same for a path, with each long part cut; for messages, where the path is only to be recognised.
///
/// ```
/// assert_eq!(backstitch_testkit::text::brief(&[b"a/".to_vec(), vec![b'x'; 255]].concat()), "a/xxxxxxxxxxxxxxxx...(255 bytes)");
/// ```
pub fn brief(path: &[u8]) -> String {
    const LONGEST: usize = 48;
    let part = |part: &[u8]| {
        if part.len() <= LONGEST {
            show(part)
        } else {
            let head = String::from_utf8_lossy(&part[..16]);
            format!("{}...({} bytes)", show(head.trim_end_matches('\u{fffd}').as_bytes()), part.len())
        }
    };
    path.split(|b| *b == b'/').map(part).collect::<Vec<_>>().join("/")
}

/// Combining marks and zero-width characters: two names that look alike must not read alike.
fn is_invisible(c: char) -> bool {
    matches!(c as u32, 0x300..=0x36f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xa0)
}

/// The path below `root` that these raw bytes name.
pub fn join(root: &Path, relative: &[u8]) -> PathBuf {
    if relative.is_empty() { root.to_path_buf() } else { root.join(OsStr::from_bytes(relative)) }
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn names_that_differ_read_differently() {
        let names: [&[u8]; 8] = [
            b"a",
            b"a ",
            b"a\n",
            "é".as_bytes(),
            "e\u{301}".as_bytes(),
            b"\xff",
            b"\\xff",
            "a\u{200b}".as_bytes(),
        ];
        let shown: std::collections::BTreeSet<String> = names.iter().map(|n| show(n)).collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
    }
}

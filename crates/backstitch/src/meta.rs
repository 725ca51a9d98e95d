//! What a git tree cannot say, one blob per directory that needs it, in a tree that mirrors `files/`.
//!
//! A line per child, and one named `.` for the directory itself, sorted by name:
//! `name SP mode SP uid SP gid (SP xattr=value)*`, name and attributes escaped, mode octal, `-` for an ordinary owner.
//! What is ordinary (0644, 0755, no attributes, the workspace's owner) has no line, and a directory without lines and
//! without marked descendants has no meta tree: an edit costs meta only where meta changed.

use std::collections::BTreeMap;

use backstitch_scan::{Kind, Stat, Xattrs};
use bstr::{BString, ByteSlice};

use crate::paths::{escape, unescape};

/// Name of the blob inside a mirrored directory. The encoder of names never produces it.
pub const BLOB: &[u8] = b"%bs%meta";

/// Owner and attributes where they are not ordinary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attrs {
    /// Owner and group, where they differ from the workspace's.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes, sorted.
    pub xattrs: Xattrs,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Exact permission bits.
    pub mode: u32,
    /// The rest.
    pub attrs: Attrs,
}

/// The permission bits that need no line.
pub fn ordinary_mode(kind: Kind, executable: bool) -> u32 {
    match kind {
        Kind::Dir => 0o755,
        Kind::Link => 0o777,
        Kind::File if executable => 0o755,
        Kind::File => 0o644,
    }
}

/// The line of one entry, where it needs one.
pub fn line(stat: &Stat, xattrs: Option<&Xattrs>, owner: (u32, u32)) -> Option<Line> {
    let ordinary = ordinary_mode(stat.kind, stat.mode & 0o100 != 0);
    let mode = if stat.kind == Kind::Link { ordinary } else { stat.mode & 0o7777 };
    let attrs = Attrs {
        owner: ((stat.uid, stat.gid) != owner).then_some((stat.uid, stat.gid)),
        xattrs: xattrs.cloned().unwrap_or_default(),
    };
    (mode != ordinary || attrs != Attrs::default()).then_some(Line { mode, attrs })
}

/// The blob.
pub fn encode(lines: &BTreeMap<BString, Line>) -> Vec<u8> {
    let mut out = String::new();
    for (name, l) in lines {
        out.push_str(&escape(name));
        out.push_str(&format!(" {:o}", l.mode));
        match l.attrs.owner {
            Some((u, g)) => out.push_str(&format!(" {u} {g}")),
            None => out.push_str(" - -"),
        }
        for (k, v) in &l.attrs.xattrs {
            // `=` inside a key is escaped by hand: `escape` leaves it alone.
            out.push_str(&format!(" {}={}", escape(k).replace('=', "%3d"), escape(v)));
        }
        out.push('\n');
    }
    out.into_bytes()
}

/// Inverse of [`encode`]; `None` for anything else.
pub fn decode(blob: &[u8]) -> Option<BTreeMap<BString, Line>> {
    let mut lines = BTreeMap::new();
    for text in blob.lines() {
        let mut fields = text.split_str(" ");
        let name = unescape(fields.next()?)?;
        let mode = u32::from_str_radix(fields.next()?.to_str().ok()?, 8).ok()?;
        if mode > 0o7777 {
            return None;
        }
        let number = |f: &[u8]| -> Option<Option<u32>> {
            if f == b"-" {
                return Some(None);
            }
            Some(Some(f.to_str().ok()?.parse().ok()?))
        };
        let (u, g) = (number(fields.next()?)?, number(fields.next()?)?);
        let mut xattrs = Xattrs::new();
        for f in fields {
            let eq = f.find_byte(b'=')?;
            let key = unescape(&f[..eq])?;
            // What no capture writes is not given to a file because a store says so.
            let known = key.starts_with(b"user.")
                || [
                    b"system.posix_acl_access".as_bstr(),
                    b"system.posix_acl_default".as_bstr(),
                    b"security.capability".as_bstr(),
                ]
                .contains(&key.as_bstr());
            if !known || key.contains(&0) {
                return None;
            }
            xattrs.push((key, unescape(&f[eq + 1..])?));
        }
        let attrs = Attrs { owner: u.zip(g), xattrs };
        lines.insert(name, Line { mode, attrs });
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut lines = BTreeMap::new();
        lines.insert(BString::from("."), Line { mode: 0o1777, attrs: Attrs::default() });
        lines.insert(
            BString::from(&b" a\n=%\xff"[..]),
            Line {
                mode: 0o600,
                attrs: Attrs {
                    owner: Some((0, 7)),
                    xattrs: vec![
                        ("user.a=b c".into(), vec![0, 255, b'=', b' '].into()),
                        ("user.e".into(), "".into()),
                    ],
                },
            },
        );
        assert_eq!(decode(&encode(&lines)), Some(lines));
    }

    #[test]
    fn hostile_text_is_refused() {
        for bad in ["a", "a 9", "a 10000 - -", "a 644 x -", "a 644 - - novalue", "%zz 644 - -", "a 77777 - -"]
        {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}

//! Names that git refuses or would act on, made harmless and back.
//!
//! `git fsck` fails on trees with names such as `.GIT` or `git~1`, and a stock checkout would apply a stored
//! `.gitattributes`. Such names are stored as `%bs%` followed by the name with every byte outside `[A-Za-z0-9_-]`
//! as `%xx`. The encoding is reversible, and only what [`encode`] produces is accepted by [`decode`].
//!
//! ```
//! use backstitch_store::names;
//! assert_eq!(&*names::encode(b"main.rs"), b"main.rs");
//! assert_eq!(&*names::encode(b".gitattributes"), b"%bs%%2egitattributes");
//! assert_eq!(names::decode(b"%bs%%2egitattributes").as_deref(), Some(&b".gitattributes"[..]));
//! assert_eq!(names::decode(b"../escape"), None);
//! ```

use std::borrow::Cow;

const MARK: &[u8] = b"%bs%";

/// The name to store for a file called `name`.
pub fn encode(name: &[u8]) -> Cow<'_, [u8]> {
    if !must_encode(name) {
        return Cow::Borrowed(name);
    }
    let mut out = Vec::with_capacity(MARK.len() + 3 * name.len());
    out.extend_from_slice(MARK);
    for &b in name {
        if b.is_ascii_alphanumeric() || b == b'_' || b == b'-' {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        }
    }
    Cow::Owned(out)
}

/// The file name behind a stored one. None where [`encode`] would not have produced it (`..`, `/`, NUL, empty, a bad
/// escape, a name that should have been encoded): such data is hostile.
pub fn decode(stored: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(mut rest) = stored.strip_prefix(MARK) else {
        return (is_file_name(stored) && !must_encode(stored)).then_some(Cow::Borrowed(stored));
    };
    let mut name = Vec::with_capacity(rest.len());
    while let Some((&b, tail)) = rest.split_first() {
        if b == b'%' {
            let (hex, tail) = tail.split_first_chunk::<2>()?;
            name.push(nibble(hex[0])? << 4 | nibble(hex[1])?);
            rest = tail;
        } else {
            name.push(b);
            rest = tail;
        }
    }
    (is_file_name(&name) && encode(&name) == stored).then_some(Cow::Owned(name))
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn nibble(b: u8) -> Option<u8> {
    HEX.iter().position(|&h| h == b).and_then(|n| u8::try_from(n).ok())
}

fn is_file_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|&b| b == b'/' || b == 0)
}

fn must_encode(name: &[u8]) -> bool {
    name.starts_with(MARK) || name.split(|&b| b == b'\\').any(part_must_encode)
}

/// One `\`-separated part: git takes `\` for a separator where a checkout may happen on Windows.
fn part_must_encode(part: &[u8]) -> bool {
    // Nearly every name: neither `.` nor `g` first, and nothing ignorable in front of them.
    match part.first() {
        Some(b'.' | b'g' | b'G' | 0x80..) => {}
        _ => return false,
    }
    let seen = fold(part);
    if let Some(rest) = seen.strip_prefix(b".git")
        && matches!(rest.first(), None | Some(b' ' | b'.' | b':' | 0x80..))
    {
        return true;
    }
    seen.starts_with(b".gitmodules")
        || seen.starts_with(b".gitattributes")
        || (seen.starts_with(b"gi") && seen.contains(&b'~'))
}

/// Lower case, without the code points that HFS+ does not see.
fn fold(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((&b, tail)) = rest.split_first() {
        match rest {
            [0xe2, 0x80, 0x8c..=0x8f | 0xaa..=0xae, tail @ ..]
            | [0xe2, 0x81, 0xaa..=0xaf, tail @ ..]
            | [0xef, 0xbb, 0xbf, tail @ ..] => rest = tail,
            _ => {
                out.push(b.to_ascii_lowercase());
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b".git".to_vec()),
            Just(b".GIT".to_vec()),
            Just(b"gi".to_vec()),
            Just(b"~1".to_vec()),
            Just(b"%bs%".to_vec()),
            Just(b"%2e".to_vec()),
            Just(b"\\".to_vec()),
            Just(b"modules".to_vec()),
            Just("\u{200c}".as_bytes().to_vec()),
            Just("\u{feff}".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 1..6).prop_map(|p| p.concat())
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in hostile()) {
            prop_assume!(is_file_name(&name));
            let stored = encode(&name);
            let back = decode(&stored);
            prop_assert_eq!(back.as_deref(), Some(&name[..]));
        }

        #[test]
        fn only_what_encode_produces_is_accepted(stored in hostile()) {
            if let Some(name) = decode(&stored) {
                prop_assert_eq!(&*encode(&name), &stored[..]);
            }
        }
    }

    #[test]
    fn ordinary_names_are_untouched() {
        for name in ["a", ".gitignore", ".github", "git", "gi", "a~1", "%", "%b", ".gitkeep", "\u{e9}"] {
            assert_eq!(&*encode(name.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn hostile_stored_names_are_refused() {
        for bad in [
            &b""[..],
            b".",
            b"..",
            b"a/b",
            b"a\0",
            b".git",
            b".GiT",
            b"git~1",
            b"%bs%",
            b"%bs%a",
            b"%bs%%2",
            b"%bs%%2E",
            b"%bs%%2e%2e",
            b"%bs%%2f",
            b"%bs%.git",
            b".git\\x",
            b"%bs%%2egit%2fx",
        ] {
            assert_eq!(decode(bad), None, "{:?}", bstr::BStr::new(bad));
        }
    }
}

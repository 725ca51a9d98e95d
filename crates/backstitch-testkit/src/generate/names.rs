//! Names that have broken programs before.

use proptest::prelude::*;

use super::Rng;

/// How many bytes a name may hold: all but `/` and NUL.
pub const EVERY_BYTE_BUT_TWO: usize = 254;

/// Names that programs got wrong: quoting, options, globs, encodings, git's forbidden and special names, our own escapes.
///
/// `.git` itself is not among them: it is never captured, and has tests of its own. Nor are files that change what is
/// ignored.
pub const HOSTILE: &[&[u8]] = &[
    b" ",
    b" leading",
    b"trailing ",
    b"trailing.",
    b"-",
    b"-rf",
    b"--",
    b"--help",
    b"new\nline",
    b"\n",
    b"tab\there",
    b"carriage\rreturn",
    b"back\\slash",
    b"C:\\windows",
    b"quote\"double",
    b"quote'single",
    b"*[x]?",
    b"*",
    b"**",
    b"!bang",
    b"#hash",
    b"~",
    b"~user",
    b"$HOME",
    b"${x}",
    b"$(touch x)",
    b"`x`",
    b"a;b",
    b"a|b&c",
    b"%",
    b"%s%n",
    b"%bs%",
    b"%bs%x",
    b"%bs%%2egit",
    b"%2egit",
    b":",
    b":(glob)*",
    b"@",
    b"@{0}",
    b"^{tree}",
    b"{}",
    b"con",
    b"nul.txt",
    b"...",
    b"..cache",
    b"..a",
    b".hidden",
    b".GIT",
    b".Git",
    b".git ",
    b".git.",
    b".git. .",
    b".git:x",
    b".git\\x",
    b"a\\.git",
    b".git\xc3\xa9",
    b".g\xe2\x80\x8cit",
    b".git\xe2\x80\x8d",
    b".gitx",
    b"git~1",
    b"GIT~2",
    b"gi7eba~1",
    b".gitmodules",
    b".GitModules",
    b".gitattributes",
    b".gitattributes ",
    b".mailmap",
    b"gitmod~1",
    b".lock",
    b"index.lock",
    b"x.lock",
    b"HEAD.lock",
    b"meta",
    b"files",
    b"outside",
    b"\xff\xfe",
    b"latin\xe9",
    b"half\xc3",
    b"\x01\x02\x1b[31m",
    b"\x7f",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"\xef\xac\x81le",
    "公共.cpp".as_bytes(),
    "仕様.md".as_bytes(),
    "파일".as_bytes(),
    "каталог".as_bytes(),
    "العربية".as_bytes(),
    "😀.txt".as_bytes(),
    "👩‍👩‍👧".as_bytes(),
    "ß".as_bytes(),
    "ẞ".as_bytes(),
    "İ".as_bytes(),
    "a\u{202e}b".as_bytes(),
    "no\u{a0}break".as_bytes(),
    b"README",
    b"readme",
    b"ReadMe",
    b"a",
    b"A",
    b"a.txt",
    b"a.b",
    b"a-b",
    b"a0",
];

/// The byte that this number stands for in a name: never `/`, never NUL.
fn byte(n: usize) -> u8 {
    let n = n % EVERY_BYTE_BUT_TWO;
    let n = if n + 1 < b'/' as usize { n + 1 } else { n + 2 };
    n as u8
}

/// Whether a folder can hold an entry of this name, and a checkpoint should.
fn usable(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !matches!(
            name,
            b"." | b".." | b".git" | b".gitignore" | b".backstitchignore" | b".backstitch.toml"
        )
        && !name.starts_with(b".backstitch-tmp-")
        && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// A name: ordinary, hostile, of random bytes, or as long as names get.
pub fn name(rng: &mut Rng) -> Vec<u8> {
    let kind = rng.below(100);
    let name = match kind {
        0..45 => format!("{}{}", rng.pick(&["src", "file", "mod", "x", "data", "Test"]), rng.below(200))
            .into_bytes(),
        45..80 => rng.pick(HOSTILE).to_vec(),
        80..95 => (0..1 + rng.below(12)).map(|_| byte(rng.below(EVERY_BYTE_BUT_TWO))).collect(),
        95..98 => vec![byte(rng.below(EVERY_BYTE_BUT_TWO)); 255],
        _ => long(&rng.pick(&["é", "漢", "x"]).repeat(255), rng.below(9)),
    };
    if usable(&name) { name } else { b"name".to_vec() }
}

/// The longest name that begins with this text, cut at a character, with a number at its end.
fn long(text: &str, number: usize) -> Vec<u8> {
    let mut end = 254;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{number}", &text[..end]).into_bytes()
}

/// The same names as a strategy that shrinks to short, ordinary ones.
pub fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |n| proptest::collection::vec((0..EVERY_BYTE_BUT_TWO).prop_map(byte), n);
    prop_oneof![
        40 => "[a-c][a-z0-9]{0,3}(\\.[a-z]{1,3})?".prop_map(String::into_bytes),
        40 => proptest::sample::select(HOSTILE).prop_map(<[u8]>::to_vec),
        12 => bytes(1..=12),
        4 => bytes(200..=255),
        4 => ("[éx漢]", 0..9usize).prop_map(|(c, n)| long(&c.repeat(255), n)),
    ]
    .prop_map(|name| if usable(&name) { name } else { b"name".to_vec() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_hostile_name_is_usable_and_unlike_the_others() {
        for name in HOSTILE {
            assert!(usable(name), "{}", crate::text::show(name));
        }
        assert_eq!(HOSTILE.iter().collect::<BTreeSet<_>>().len(), HOSTILE.len());
    }

    #[test]
    fn random_bytes_reach_all_but_two() {
        let all: BTreeSet<u8> = (0..EVERY_BYTE_BUT_TWO).map(byte).collect();
        assert_eq!(all.len(), EVERY_BYTE_BUT_TWO);
        assert!(!all.contains(&0) && !all.contains(&b'/'));
    }

    #[test]
    fn seeded_names_are_usable_and_some_are_as_long_as_can_be() {
        let mut rng = Rng::new(1);
        let names: Vec<Vec<u8>> = (0..3000).map(|_| name(&mut rng)).collect();
        assert!(names.iter().all(|n| usable(n)));
        assert!(names.iter().any(|n| n.len() == 255));
        assert!(names.iter().any(|n| std::str::from_utf8(n).is_err()));
    }

    proptest! {
        #[test]
        fn strategy_names_are_usable(name in name_strategy()) {
            prop_assert!(usable(&name));
        }
    }
}

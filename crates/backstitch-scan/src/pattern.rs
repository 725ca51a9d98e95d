//! Lines of ignore files, read and matched exactly as git does.
//!
//! Parsing is by hand because the last details count: only a UTF-8 byte-order mark is dropped, a carriage return goes only
//! before the line's end, a line ends at a NUL, spaces at its end go unless escaped, and the literal part in front of the
//! first wildcard is compared before (not by) the matcher: so `foo**/bar` matches `foox/y/bar`.

use bstr::{BStr, BString, ByteSlice};

use crate::glob::{Glob, is_special};

/// One line of an ignore file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Without leading `!` and trailing `/`.
    text: BString,
    /// Length of the part before the first of `*?[\`.
    literal: usize,
    pub(crate) negative: bool,
    dir_only: bool,
    /// Matches the name alone: no slash but the last.
    name_only: bool,
    /// `*literal`.
    ends_with: bool,
    /// What follows the literal part; for names alone, all of it.
    glob: Option<Glob>,
}

impl Pattern {
    /// Reads one line, already without line end and trailing spaces.
    pub(crate) fn parse(line: &[u8]) -> Pattern {
        let (negative, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (dir_only, text) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let literal = text.iter().position(|b| is_special(*b)).unwrap_or(text.len());
        let name_only = !text.contains(&b'/');
        let ends_with = text.first() == Some(&b'*') && !text[1..].iter().any(|b| is_special(*b));
        let glob = match (name_only, ends_with) {
            _ if literal == text.len() => None,
            (true, true) => None,
            (true, false) => Some(Glob::new(text, false)),
            (false, _) => Some(Glob::new(&text[literal..], true)),
        };
        Pattern { literal, negative, dir_only, name_only, ends_with, glob, text: text.into() }
    }

    /// `path` is relative to the directory of the ignore file and `name` its last part.
    pub(crate) fn matches(&self, path: &BStr, name: &BStr, is_dir: bool, fold: bool) -> bool {
        if self.dir_only && !is_dir {
            return false;
        }
        if self.name_only { self.matches_name(name, fold) } else { self.matches_path(path, fold) }
    }

    fn matches_name(&self, name: &BStr, fold: bool) -> bool {
        if self.literal == self.text.len() {
            equal(&self.text, name, fold)
        } else if self.ends_with {
            let tail = &self.text[1..];
            name.len() >= tail.len() && equal(tail, &name[name.len() - tail.len()..], fold)
        } else {
            self.glob.as_ref().is_some_and(|glob| glob.matches(name, fold))
        }
    }

    fn matches_path(&self, path: &BStr, fold: bool) -> bool {
        let (text, literal) = match self.text.strip_prefix(b"/") {
            Some(rest) => (rest, self.literal - 1),
            None => (&self.text[..], self.literal),
        };
        if literal > path.len() || !equal(&text[..literal], &path[..literal], fold) {
            return false;
        }
        match &self.glob {
            Some(glob) => glob.matches(&path[literal..], fold),
            None => path.len() == literal,
        }
    }

    /// True if only the name counts, so that a path need not be put together.
    pub(crate) fn is_name_only(&self) -> bool {
        self.name_only
    }

    /// True if the pattern could match something below the directory `path` though it does not match the directory.
    ///
    /// Only patterns with a slash say where they look; a bare name is not searched for in a pruned directory.
    pub(crate) fn may_match_below(&self, path: &BStr, fold: bool) -> bool {
        if self.name_only {
            return false;
        }
        let text = self.text.strip_prefix(b"/").unwrap_or(&self.text);
        let mut parts = text.split(|b| *b == b'/');
        for component in path.split(|b| *b == b'/') {
            match parts.next() {
                None => return false,
                Some(b"**") => return true,
                Some(part) => {
                    if !Glob::new(part, false).matches(component, fold) {
                        return false;
                    }
                }
            }
        }
        parts.next().is_some()
    }
}

fn equal(a: &[u8], b: &[u8], fold: bool) -> bool {
    if fold { a.eq_ignore_ascii_case(b) } else { a == b }
}

/// What a name must begin and end with for a pattern to match; a cheap test that spares most patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    first: Option<u8>,
    last: Option<u8>,
    dir_only: bool,
}

impl Key {
    fn of(pattern: &Pattern) -> Key {
        let text = &pattern.text[..];
        // A byte behind a backslash, or the last of a bracket, is no literal of its own.
        let last = match text {
            [.., b, c] if !is_special(*c) && *c != b']' && *b != b'\\' => Some(*c),
            [c] if !is_special(*c) => Some(*c),
            _ => None,
        };
        let first = match text {
            [b'\\', b, ..] => Some(*b),
            [b, ..] if !is_special(*b) => Some(*b),
            _ => None,
        };
        Key { first: first.filter(|_| pattern.name_only), last, dir_only: pattern.dir_only }
    }

    fn allows(self, first: u8, last: u8, is_dir: bool, fold: bool) -> bool {
        let same = |key: Option<u8>, b: u8| {
            key.is_none_or(|key| if fold { key.eq_ignore_ascii_case(&b) } else { key == b })
        };
        (is_dir || !self.dir_only) && same(self.first, first) && same(self.last, last)
    }
}

/// The patterns of one file or setting, in order; the last match decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    patterns: Vec<Pattern>,
    /// One for each pattern.
    keys: Vec<Key>,
    needs_path: bool,
}

impl List {
    /// Reads an ignore file.
    pub(crate) fn parse(bytes: &[u8]) -> List {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut patterns = Vec::new();
        for line in bytes.split(|b| *b == b'\n') {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.find_byte(0).map_or(line, |nul| &line[..nul]);
            let line = trim_spaces(line);
            if !line.is_empty() {
                patterns.push(Pattern::parse(line));
            }
        }
        List::new(patterns)
    }

    /// Takes each text as one line.
    pub(crate) fn from_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> List {
        List::new(
            lines
                .into_iter()
                .filter(|l| !l.is_empty())
                .map(|l| Pattern::parse(trim_spaces(l.as_bytes())))
                .collect(),
        )
    }

    fn new(patterns: Vec<Pattern>) -> List {
        let needs_path = patterns.iter().any(|p| !p.is_name_only());
        List { keys: patterns.iter().map(Key::of).collect(), patterns, needs_path }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// False if every pattern looks at the name alone.
    pub(crate) fn needs_path(&self) -> bool {
        self.needs_path
    }

    /// `Some(true)` if the last matching pattern is negative.
    pub(crate) fn decide(&self, path: &BStr, name: &BStr, is_dir: bool, fold: bool) -> Option<bool> {
        let (first, last) = (*name.first()?, *name.last()?);
        let candidates =
            self.keys.iter().enumerate().rev().filter(|(_, k)| k.allows(first, last, is_dir, fold));
        candidates
            .map(|(i, _)| &self.patterns[i])
            .find(|p| p.matches(path, name, is_dir, fold))
            .map(|p| p.negative)
    }

    /// True if a positive pattern could match below the directory `path`.
    pub(crate) fn may_match_below(&self, path: &BStr, fold: bool) -> bool {
        self.patterns.iter().any(|p| !p.negative && p.may_match_below(path, fold))
    }
}

/// Drops spaces at the end; a backslash protects the one after it.
fn trim_spaces(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut i = 0;
    while i < line.len() {
        match line[i] {
            b' ' => i += 1,
            b'\\' if i + 1 == line.len() => return line,
            b'\\' => {
                i += 2;
                end = i;
            }
            _ => {
                i += 1;
                end = i;
            }
        }
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(list: &[u8], path: &str, is_dir: bool) -> Option<bool> {
        let name = path.rsplit('/').next().unwrap();
        List::parse(list).decide(path.into(), name.into(), is_dir, false).map(|negative| !negative)
    }

    #[test]
    fn lines() {
        assert_eq!(trim_spaces(b"a  "), b"a");
        assert_eq!(trim_spaces(b"a\\  "), b"a\\ ");
        assert_eq!(trim_spaces(b"a \\"), b"a \\");
        assert_eq!(trim_spaces(b"   "), b"");
        assert_eq!(ignored(b"\xef\xbb\xbfa\r\nb\r", "a", false), Some(true));
        assert_eq!(ignored(b"a\r\nb\r", "b", false), Some(true));
        assert_eq!(ignored(b"a\0b\n", "a", false), Some(true));
        assert_eq!(ignored(b"#a\n\\#a\n", "#a", false), Some(true));
        assert_eq!(ignored(b"\t\n", "\t", false), Some(true));
    }

    #[test]
    fn anchors_and_directories() {
        assert_eq!(ignored(b"/a", "b/a", false), None);
        assert_eq!(ignored(b"a/b", "a/b", false), Some(true));
        assert_eq!(ignored(b"a/b", "x/a/b", false), None);
        assert_eq!(ignored(b"a/", "a", false), None);
        assert_eq!(ignored(b"a/", "a", true), Some(true));
        assert_eq!(ignored(b"*.o\n!keep.o", "d/keep.o", false), Some(false));
        assert_eq!(ignored(b"**/x", "a/b/x", false), Some(true));
    }

    #[test]
    fn below() {
        let list = List::parse(b"build/keep/*.txt\n/a/**/b\nname\n");
        assert!(list.may_match_below("build".into(), false));
        assert!(list.may_match_below("build/keep".into(), false));
        assert!(!list.may_match_below("build/other".into(), false));
        assert!(list.may_match_below("a/x/y".into(), false));
        assert!(!list.may_match_below("name".into(), false));
    }
}

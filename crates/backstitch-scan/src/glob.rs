//! Wildcards, with git's meaning to the last corner.
//!
//! A pattern is compiled once to tokens and matched as a set of positions that moves along the text, so that no pattern,
//! however it was made, takes more than its length times the text's.
//!
//! Corners that count: with case folded, an escaped capital matches nothing; a range compares raw bytes, then the capital of
//! the text's letter; `**` crosses slashes only between slashes or ends; a bracket without an end, an unknown class and a
//! backslash at the end match nothing at all.

/// One step of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// This byte; an escaped one is not folded.
    Byte { byte: u8, escaped: bool },
    /// Any byte but a slash.
    Any,
    /// One of a set.
    Set(Box<Set>),
    /// Any number of bytes but slashes.
    Star,
    /// Any number of bytes.
    Stars,
    /// Goes on behind the next two tokens too: `**/` may stand for nothing.
    MaySkip,
    /// Nothing matches.
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Set {
    plain: [u64; 4],
    /// The same for texts in lower case.
    folded: [u64; 4],
}

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    tokens: Box<[Token]>,
    /// `*`, `?` and sets do not match a slash.
    path: bool,
}

/// A byte that ends the literal part of a pattern.
pub(crate) fn is_special(b: u8) -> bool {
    matches!(b, b'*' | b'?' | b'[' | b'\\')
}

impl Glob {
    /// Compiles a pattern; with `path`, slashes are matched by slashes and `**` only.
    pub(crate) fn new(pattern: &[u8], path: bool) -> Glob {
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut at = 0;
        while let Some(&byte) = pattern.get(at) {
            at += 1;
            match byte {
                b'?' => tokens.push(Token::Any),
                b'\\' => {
                    match pattern.get(at) {
                        Some(&byte) => tokens.push(Token::Byte { byte, escaped: true }),
                        None => tokens.push(Token::Never),
                    }
                    at += 1;
                }
                b'*' => {
                    let first = at - 1;
                    let stars = 1 + pattern[at..].iter().take_while(|b| **b == b'*').count();
                    at = first + stars;
                    let before = first == 0 || pattern[first - 1] == b'/';
                    let rest = &pattern[at..];
                    let after = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
                    if !path {
                        tokens.push(Token::Stars);
                    } else if stars > 1 && before && after {
                        if rest.starts_with(b"/") {
                            tokens.push(Token::MaySkip);
                        }
                        tokens.push(Token::Stars);
                    } else {
                        tokens.push(Token::Star);
                    }
                }
                b'[' => match Set::parse(&pattern[at..]) {
                    Some((set, len)) => {
                        tokens.push(Token::Set(Box::new(set)));
                        at += len;
                    }
                    None => {
                        tokens.push(Token::Never);
                        break;
                    }
                },
                byte => tokens.push(Token::Byte { byte, escaped: false }),
            }
        }
        Glob { tokens: tokens.into_boxed_slice(), path }
    }

    /// True if the whole text matches.
    pub(crate) fn matches(&self, text: &[u8], fold: bool) -> bool {
        let count = self.tokens.len() + 1;
        let (mut small_a, mut small_b) = ([false; 64], [false; 64]);
        let (mut large_a, mut large_b);
        let (mut now, mut next) = if count <= small_a.len() {
            (&mut small_a[..count], &mut small_b[..count])
        } else {
            (large_a, large_b) = (vec![false; count], vec![false; count]);
            (&mut large_a[..], &mut large_b[..])
        };
        now[0] = true;
        for &raw in text {
            let byte = if fold { raw.to_ascii_lowercase() } else { raw };
            next.fill(false);
            let mut alive = false;
            for i in 0..self.tokens.len() {
                if !now[i] {
                    continue;
                }
                let to = match &self.tokens[i] {
                    Token::MaySkip => {
                        // Without taking anything: the stars, or what follows their slash.
                        now[i + 1] = true;
                        now[(i + 3).min(count - 1)] = true;
                        continue;
                    }
                    Token::Star => {
                        now[i + 1] = true;
                        (byte != b'/').then_some(i)
                    }
                    Token::Stars => {
                        now[i + 1] = true;
                        Some(i)
                    }
                    Token::Any => (!self.path || byte != b'/').then_some(i + 1),
                    Token::Set(set) => (set.has(byte, fold) && !(self.path && byte == b'/')).then_some(i + 1),
                    Token::Byte { byte: b, escaped } => {
                        let b = if fold && !escaped { b.to_ascii_lowercase() } else { *b };
                        (b == byte).then_some(i + 1)
                    }
                    Token::Never => return false,
                };
                if let Some(to) = to {
                    next[to] = true;
                    alive = true;
                }
            }
            if !alive {
                return false;
            }
            std::mem::swap(&mut now, &mut next);
        }
        // What is left must be able to stand for nothing.
        for i in 0..self.tokens.len() {
            if now[i] {
                match self.tokens[i] {
                    Token::Star | Token::Stars => now[i + 1] = true,
                    Token::MaySkip => {
                        now[i + 1] = true;
                        now[(i + 3).min(count - 1)] = true;
                    }
                    _ => {}
                }
            }
        }
        now[count - 1]
    }
}

impl Set {
    /// Reads a bracket from behind its `[`; also the bytes that it took. `None` if it matches nothing whatever comes.
    fn parse(pattern: &[u8]) -> Option<(Set, usize)> {
        let mut set = Set::default();
        let mut at = 0;
        let negated = matches!(pattern.first(), Some(b'!' | b'^'));
        if negated {
            at += 1;
        }
        let mut previous = None;
        let mut first = true;
        loop {
            let byte = *pattern.get(at)?;
            if byte == b']' && !first {
                break;
            }
            first = false;
            at += 1;
            match byte {
                b'\\' => {
                    let byte = *pattern.get(at)?;
                    at += 1;
                    set.add(byte);
                    previous = Some(byte);
                }
                b'-' if previous.is_some() && pattern.get(at).is_some_and(|b| *b != b']') => {
                    let mut last = pattern[at];
                    at += 1;
                    if last == b'\\' {
                        last = *pattern.get(at)?;
                        at += 1;
                    }
                    set.add_range(previous.unwrap_or(last), last);
                    previous = None;
                }
                b'[' if pattern.get(at) == Some(&b':') => {
                    let name = &pattern[at + 1..];
                    let len = name.iter().position(|b| *b == b']')?;
                    match name[..len].strip_suffix(b":") {
                        Some(name) => {
                            set.add_class(name)?;
                            at += 1 + len + 1;
                            previous = None;
                        }
                        // No class after all: the bracket stands for itself.
                        None => {
                            set.add(b'[');
                            previous = Some(b'[');
                        }
                    }
                }
                byte => {
                    set.add(byte);
                    previous = Some(byte);
                }
            }
        }
        if negated {
            for word in set.plain.iter_mut().chain(&mut set.folded) {
                *word = !*word;
            }
        }
        Some((set, at + 1))
    }

    fn has(&self, byte: u8, fold: bool) -> bool {
        let words = if fold { &self.folded } else { &self.plain };
        words[usize::from(byte >> 6)] & 1 << (byte & 63) != 0
    }

    fn put(words: &mut [u64; 4], byte: u8) {
        words[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn add(&mut self, byte: u8) {
        Self::put(&mut self.plain, byte);
        // Not folded: the text is.
        Self::put(&mut self.folded, byte);
    }

    fn add_range(&mut self, first: u8, last: u8) {
        for byte in first..=last {
            self.add(byte);
            if byte.is_ascii_uppercase() {
                Self::put(&mut self.folded, byte.to_ascii_lowercase());
            }
        }
    }

    fn add_class(&mut self, name: &[u8]) -> Option<()> {
        let is_in: fn(u8) -> bool = match name {
            b"alnum" => |b| b.is_ascii_alphanumeric(),
            b"alpha" => |b| b.is_ascii_alphabetic(),
            b"blank" => |b| matches!(b, b' ' | b'\t'),
            b"cntrl" => |b| b.is_ascii_control(),
            b"digit" => |b| b.is_ascii_digit(),
            b"graph" => |b| b.is_ascii_graphic(),
            b"lower" => |b| b.is_ascii_lowercase(),
            b"print" => |b| matches!(b, b' '..=b'~'),
            b"punct" => |b| b.is_ascii_punctuation(),
            b"space" => |b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'),
            b"upper" => |b| b.is_ascii_uppercase(),
            b"xdigit" => |b| b.is_ascii_hexdigit(),
            _ => return None,
        };
        for byte in (0..=255).filter(|b| is_in(*b)) {
            self.add(byte);
        }
        if name == b"upper" {
            (b'a'..=b'z').for_each(|byte| Self::put(&mut self.folded, byte));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes(), true).matches(text.as_bytes(), false)
    }

    #[test]
    fn stars() {
        for (pattern, text) in [
            ("*", "a"),
            ("*", ""),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("**", "a/b"),
            ("**/b", "b"),
            ("**/b", "a/x/b"),
            ("a/**/b", "a/b"),
            ("a/**/b", "a/x/y/b"),
            ("a/**", "a/b/c"),
            ("***/b", "a/b"),
            ("**\\/b", "a/b"),
            ("*/b", "a/b"),
            ("**/", "a/"),
        ] {
            assert!(path(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("*", "a/b"),
            ("a**b", "a/b"),
            ("a/**", "a"),
            ("**\\/b", "b"),
            ("?", "/"),
            ("[!a]", "/"),
            ("*/b", "b"),
            ("a*c", "abd"),
            ("a", ""),
        ] {
            assert!(!path(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn sets() {
        for (pattern, text) in [
            ("[abc]", "b"),
            ("[a-c]", "b"),
            ("[!a]", "b"),
            ("[^a]", "b"),
            ("[]]", "]"),
            ("[]a]", "a"),
            ("[a-]", "-"),
            ("[--0]", "."),
            ("[[:digit:]x]", "7"),
            ("[[:a]", ":"),
            ("[\\]]", "]"),
            ("[\\a-\\c]", "b"),
            ("[[-b]", "a"),
        ] {
            assert!(path(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("[a", "a"),
            ("[", "["),
            ("[[:bad:]]", "b"),
            ("[c-a]", "b"),
            ("a\\", "a\\"),
            ("a\\", "a"),
            ("[a\\", "a"),
        ] {
            assert!(!path(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn folding() {
        let fold =
            |pattern: &str, text: &str| Glob::new(pattern.as_bytes(), true).matches(text.as_bytes(), true);
        assert!(fold("aB?", "AbC") && fold("[A-C]", "b") && fold("[a-c]", "B") && fold("[[:upper:]]", "x"));
        assert!(!fold("\\A", "a") && !fold("[A]", "a") && !fold("[c-a]", "b"));
    }

    #[test]
    fn hard_patterns_take_no_time() {
        let pattern = "*a".repeat(500) + "b";
        assert!(!path(&pattern, &"a".repeat(5000)));
        let pattern = "**/a/".repeat(200) + "b";
        assert!(!path(&pattern, &"a/".repeat(2000)));
    }
}

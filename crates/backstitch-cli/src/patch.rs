//! Lines of a patch for eyes: what each one is, and which of its words changed.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput, Interner};

/// Longer lines, and longer runs of lines, are not compared word by word.
const LONG_LINE: usize = 4096;
/// See [`LONG_LINE`].
const LONG_RUN: usize = 64;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Names and modes of the two files.
    Head,
    /// Where a hunk begins.
    Place,
    /// New.
    Added,
    /// Gone.
    Removed,
    /// On both sides.
    Same,
    /// A remark, such as that there is no newline at the end.
    Remark,
}

/// A line of a patch.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub kind: Kind,
    /// Which of its bytes differ from the line that it stands for or that stands for it. Nothing where there is no such line.
    pub changed: Vec<Range<usize>>,
}

/// What each line is: only between two heads do `+` and `-` tell.
fn kinds(lines: &[&[u8]]) -> Vec<Kind> {
    let mut in_hunk = false;
    lines
        .iter()
        .map(|l| match l.first() {
            Some(b'@') if l.starts_with(b"@@") => {
                in_hunk = true;
                Kind::Place
            }
            Some(b'+') if in_hunk => Kind::Added,
            Some(b'-') if in_hunk => Kind::Removed,
            Some(b' ') if in_hunk => Kind::Same,
            Some(b'\\') if in_hunk => Kind::Remark,
            None if in_hunk => Kind::Same,
            _ => {
                in_hunk = false;
                Kind::Head
            }
        })
        .collect()
}

/// The lines of a patch; the words of those in `window` are compared.
pub fn lines(patch: &[&[u8]], window: Range<usize>) -> Vec<Line> {
    let kinds = kinds(patch);
    let mut out: Vec<Line> = kinds.iter().map(|k| Line { kind: *k, changed: Vec::new() }).collect();
    let is_change = |i: usize| matches!(kinds.get(i), Some(Kind::Added | Kind::Removed));
    let mut at = window.start.min(patch.len());
    // A run that began above the window.
    while at > 0 && is_change(at - 1) {
        at -= 1;
    }
    while at < window.end.min(patch.len()) {
        let run = |from: usize, kind: Kind| (from..patch.len()).take_while(|i| kinds[*i] == kind).count();
        let gone = run(at, Kind::Removed);
        let new = run(at + gone, Kind::Added);
        if gone > 0 && new > 0 && gone <= LONG_RUN && new <= LONG_RUN {
            pair(patch, &mut out, at..at + gone, at + gone..at + gone + new);
        }
        at += (gone + new).max(1);
    }
    out
}

/// Finds for each line that went the one that came in its place, in order.
fn pair(patch: &[&[u8]], out: &mut [Line], gone: Range<usize>, new: Range<usize>) {
    let mut next = new.start;
    for g in gone {
        let found = (next..new.end).find_map(|n| Some((n, words(&patch[g][1..], &patch[n][1..])?)));
        if let Some((n, (left, right))) = found {
            let moved =
                |ranges: Vec<Range<usize>>| ranges.into_iter().map(|r| r.start + 1..r.end + 1).collect();
            out[g].changed = moved(left);
            out[n].changed = moved(right);
            next = n + 1;
        }
    }
}

/// Words, runs of blanks, and everything else byte by byte.
fn tokens(line: &[u8]) -> Vec<&[u8]> {
    let class = |b: u8| match b {
        b if b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80 => 0,
        b' ' | b'\t' => 1,
        _ => 2,
    };
    line.chunk_by(|a, b| class(*a) == class(*b) && class(*a) != 2).collect()
}

type Sides = (Vec<Range<usize>>, Vec<Range<usize>>);

/// What differs between two lines that are at least half the same; else they are two lines and no change of one.
fn words(old: &[u8], new: &[u8]) -> Option<Sides> {
    if old.len() > LONG_LINE || new.len() > LONG_LINE {
        return None;
    }
    let (a, b) = (tokens(old), tokens(new));
    let mut interner = Interner::new(a.len() + b.len());
    let before = a.iter().map(|t| interner.intern(*t)).collect();
    let after = b.iter().map(|t| interner.intern(*t)).collect();
    let diff = Diff::compute(Algorithm::Myers, &InternedInput { before, after, interner });
    let weight = |list: &[&[u8]]| -> usize {
        list.iter().filter(|t| !t.iter().all(u8::is_ascii_whitespace)).map(|t| t.len()).sum()
    };
    let kept: Vec<&[u8]> =
        a.iter().enumerate().filter(|(i, _)| !diff.is_removed(*i as u32)).map(|(_, t)| *t).collect();
    if 4 * weight(&kept) < weight(&a) + weight(&b) {
        return None;
    }
    Some((ranges(&a, &|i| diff.is_removed(i)), ranges(&b, &|i| diff.is_added(i))))
}

/// Bytes of the tokens that changed, with the blanks between two of them.
fn ranges(tokens: &[&[u8]], changed: &dyn Fn(u32) -> bool) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let (mut at, mut blank) = (0, false);
    for (i, t) in tokens.iter().enumerate() {
        let is_blank = t.iter().all(u8::is_ascii_whitespace);
        if changed(i as u32) {
            match out.last_mut() {
                Some(last) if last.end == at || (blank && last.end == at - tokens[i - 1].len()) => {
                    last.end = at + t.len();
                }
                _ => out.push(at..at + t.len()),
            }
        }
        blank = is_blank;
        at += t.len();
    }
    out
}

/// A line in pieces, each with whether it changed.
pub fn pieces<'a>(line: &'a [u8], changed: &[Range<usize>]) -> Vec<(&'a [u8], bool)> {
    let mut out = Vec::new();
    let mut at = 0;
    for r in changed {
        let (start, end) = (r.start.min(line.len()), r.end.min(line.len()));
        if at < start {
            out.push((&line[at..start], false));
        }
        if start < end {
            out.push((&line[start..end], true));
        }
        at = end.max(at);
    }
    if at < line.len() {
        out.push((&line[at..], false));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patch: &str) -> Vec<(Kind, Vec<String>)> {
        let text: Vec<&[u8]> = patch.lines().map(str::as_bytes).collect();
        let all = lines(&text, 0..text.len());
        let word = |t: &[u8], r: &Range<usize>| String::from_utf8_lossy(&t[r.clone()]).into_owned();
        all.iter().zip(&text).map(|(l, t)| (l.kind, l.changed.iter().map(|r| word(t, r)).collect())).collect()
    }

    fn marked(patch: &str) -> Vec<Vec<String>> {
        of(patch).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn a_line_is_what_stands_before_it_says() {
        let kinds: Vec<Kind> = of("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a\n+++ b\n c\n\\ No newline\ndiff --git a/y b/y\n--- a/y")
            .into_iter()
            .map(|(k, _)| k)
            .collect();
        use Kind::{Added, Head, Place, Remark, Removed, Same};
        assert_eq!(kinds, [Head, Head, Head, Place, Removed, Added, Same, Remark, Head, Head]);
    }

    #[test]
    fn only_the_words_that_changed() {
        assert_eq!(
            marked("@@\n-let total = count + 1;\n+let total = sum + 10;\n same"),
            [
                vec![],
                vec!["count".to_owned(), "1".to_owned()],
                vec!["sum".to_owned(), "10".to_owned()],
                vec![]
            ]
        );
        // Blanks between two changed words are a part of what changed.
        assert_eq!(
            marked("@@\n-call(first, one two)\n+call(first, three four)")[1..],
            [vec!["one two".to_owned()], vec!["three four".to_owned()]]
        );
        // Something was put in: the other side has nothing to show.
        assert_eq!(marked("@@\n-f(a)\n+f(a, b)")[1..], [vec![], vec![", b".to_owned()]]);
    }

    #[test]
    fn lines_that_are_not_alike_are_no_pair() {
        assert_eq!(marked("@@\n-alpha beta\n+gamma delta epsilon")[1..], [Vec::<String>::new(), vec![]]);
        // The second of the new lines stands for the first of the old ones.
        let all = marked("@@\n-let a = old(b, c);\n+// a remark\n+let a = new(b, c);");
        assert_eq!(all[1..], [vec!["old".to_owned()], vec![], vec!["new".to_owned()]]);
    }

    #[test]
    fn a_window_in_the_middle_of_a_run_knows_its_beginning() {
        let text: Vec<&[u8]> = vec![b"@@", b"-let a = 1;", b"-let b = 1;", b"+let a = 2;", b"+let b = 2;"];
        let all = lines(&text, 4..5);
        assert_eq!(all[4].changed.first(), Some(&(9..10)));
        // Nothing above it is compared without need.
        let long: Vec<&[u8]> = vec![b"@@", b"-let a = 1;", b"+let a = 2;", b" ", b"-x = 1", b"+x = 2"];
        let all = lines(&long, 4..6);
        assert!(all[1].changed.is_empty() && !all[5].changed.is_empty());
    }

    #[test]
    fn any_bytes_are_cut_into_pieces_that_make_the_line_again() {
        let line = b"a \xff\xfe(b)\t";
        for ends in [&[][..], &[(0, 1)], &[(2, 4), (5, 6)], &[(7, 99)], &[(0, 8)]] {
            let changed: Vec<Range<usize>> = ends.iter().map(|(a, b)| *a..*b).collect();
            let all = pieces(line, &changed);
            assert_eq!(all.iter().flat_map(|(p, _)| p.to_vec()).collect::<Vec<u8>>(), line);
        }
        assert_eq!(tokens(line).concat(), line);
    }
}

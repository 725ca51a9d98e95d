//! Three-way merge of one path: line by line for text, by value for type and mode.
//!
//! `base` is what somebody left, `present` is what stands there now, `wanted` is what stood there before. A change from
//! `base` to `wanted` is carried over to `present`. Changes of disjoint lines are merged, also where they touch; where both
//! sides changed the same lines, or put different lines into one place, that is a [`Clash`]: the present lines stay and
//! both sides are told.
//!
//! # Limits
//!
//! Text is what holds no NUL byte in its first 8000 and is at most 16 MiB. Anything else is one value.

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use backstitch_store::{Odb, Oid};
use bstr::{BString, ByteSlice};
use imara_diff::{Algorithm, Diff, Hunk, InternedInput, sources::byte_lines};

use crate::{
    attribution::{Step, same},
    diff::{TEXT_LIMIT, is_text},
    error::{Error, Result},
    paths, place,
    plan::Stand,
    tree::Node,
};

/// Some lines of one side.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Lines {
    /// Number of the first, from 1; where there is none, of the line before which nothing stands.
    pub line: u64,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub text: BString,
}

/// A place where both sides changed the same thing. The present side stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// `lines`, or `mode` with the permission bits in octal as text.
    pub what: &'static str,
    /// What is there now.
    pub present: Lines,
    /// What the change that is taken back had left.
    pub base: Lines,
    /// What stood there before it.
    pub wanted: Lines,
}

/// What becomes of a clash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Settle {
    /// The present lines stay.
    #[default]
    Present,
    /// The wanted lines are put there.
    Wanted,
    /// Both, between conflict markers.
    Markers,
}

/// A merged text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The lines.
    pub text: Vec<u8>,
    /// Where both sides changed the same.
    pub clashes: Vec<Clash>,
}

/// Changed lines between two texts.
pub(crate) fn hunks(input: &InternedInput<&[u8]>) -> Vec<Hunk> {
    let mut d = Diff::compute(Algorithm::Histogram, input);
    d.postprocess_lines(input);
    d.hunks().collect()
}

/// Two changes of one base meet: they share a base line, or both put lines into one place.
fn meet(a: &Range<u32>, b: &Range<u32>) -> bool {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => a.start == b.start,
        (true, false) => b.start < a.start && a.start < b.end,
        (false, true) => a.start < b.start && b.start < a.end,
        (false, false) => a.start < b.end && b.start < a.end,
    }
}

/// The hunks of one side.
struct Side<'a> {
    lines: Vec<&'a [u8]>,
    hunks: Vec<Hunk>,
    next: usize,
}

impl<'a> Side<'a> {
    fn new(base: &'a [u8], text: &'a [u8]) -> Side<'a> {
        let input = InternedInput::new(byte_lines(base), byte_lines(text));
        let hunks = hunks(&input);
        Side { lines: input.after.iter().map(|t| input.interner[*t]).collect(), hunks, next: 0 }
    }

    fn peek(&self) -> Option<&Hunk> {
        self.hunks.get(self.next)
    }

    /// Takes the hunks that meet `group` and widens it; the range of those taken.
    fn take(&mut self, group: &mut Range<u32>) {
        while let Some(h) = self.peek().filter(|h| meet(&h.before, group)) {
            group.start = group.start.min(h.before.start);
            group.end = group.end.max(h.before.end);
            self.next += 1;
        }
    }

    /// This side's lines for base lines `group`, of which hunks `from..self.next` changed some.
    fn range(&self, group: &Range<u32>, from: usize) -> Range<usize> {
        // What lies before a group was settled by earlier hunks: they shift what follows.
        let (first, last) = match &self.hunks[from..self.next] {
            [] => {
                let shift =
                    self.hunks[..from].last().map_or(0, |h| i64::from(h.after.end) - i64::from(h.before.end));
                let at = |n: u32| usize::try_from(i64::from(n) + shift).unwrap_or(0);
                return at(group.start)..at(group.end);
            }
            [only] => (only, only),
            [first, .., last] => (first, last),
        };
        let start = first.after.start - (first.before.start - group.start);
        let end = last.after.end + (group.end - last.before.end);
        start as usize..end as usize
    }
}

/// Appends lines, each on its own.
pub(crate) fn put(out: &mut Vec<u8>, lines: &[&[u8]]) {
    for l in lines {
        // A last line without an end that is the last one no longer.
        if out.last().is_some_and(|b| *b != b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(l);
    }
}

/// Some of these lines.
pub(crate) fn cut(lines: &[&[u8]], range: Range<usize>) -> Lines {
    Lines { line: range.start as u64 + 1, count: range.len() as u64, text: lines[range].concat().into() }
}

/// Carries the change from `base` to `wanted` over to `present`.
pub fn text(base: &[u8], present: &[u8], wanted: &[u8], settle: Settle) -> Merged {
    let base_lines: Vec<&[u8]> = base.lines_with_terminator().collect();
    let (mut p, mut w) = (Side::new(base, present), Side::new(base, wanted));
    let mut out = Merged { text: Vec::with_capacity(present.len()), clashes: Vec::new() };
    let mut at = 0u32;
    loop {
        let key = |h: &Hunk| (h.before.start, h.before.end);
        let first = match (p.peek(), w.peek()) {
            (None, None) => break,
            (Some(h), None) | (None, Some(h)) => h,
            (Some(a), Some(b)) => {
                if key(b) < key(a) {
                    b
                } else {
                    a
                }
            }
        };
        let mut group = first.before.clone();
        let (p0, w0) = (p.next, w.next);
        loop {
            let before = (p.next, w.next);
            p.take(&mut group);
            w.take(&mut group);
            if before == (p.next, w.next) {
                break;
            }
        }
        put(&mut out.text, &base_lines[at as usize..group.start as usize]);
        at = group.end;
        let (pr, wr) = (p.range(&group, p0), w.range(&group, w0));
        if w.next == w0 {
            put(&mut out.text, &p.lines[pr]);
            continue;
        }
        if p.next == p0 {
            put(&mut out.text, &w.lines[wr]);
            continue;
        }
        // What both did alike at the ends of the place is agreed.
        let (a, b) = (&p.lines[pr.clone()], &w.lines[wr.clone()]);
        let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
        put(&mut out.text, &a[..head]);
        let only = |s: &Side<'_>, from: usize, all: &Range<usize>| {
            s.hunks[from..s.next].iter().all(|h| {
                let (start, end) = (h.after.start as usize, h.after.end as usize);
                start < end && (end <= all.start + head || start >= all.end - tail)
            })
        };
        // A side whose changes all are agreed has none in what is left.
        let (p_agreed, w_agreed) = (only(&p, p0, &pr), only(&w, w0, &wr));
        let (pr, wr) = (pr.start + head..pr.end - tail, wr.start + head..wr.end - tail);
        if w_agreed {
            put(&mut out.text, &p.lines[pr]);
        } else if p_agreed {
            put(&mut out.text, &w.lines[wr]);
        } else if !pr.is_empty() || !wr.is_empty() {
            let clash = Clash {
                what: "lines",
                present: cut(&p.lines, pr.clone()),
                base: cut(&base_lines, group.start as usize..group.end as usize),
                wanted: cut(&w.lines, wr.clone()),
            };
            match settle {
                Settle::Present => put(&mut out.text, &p.lines[pr]),
                Settle::Wanted => put(&mut out.text, &w.lines[wr]),
                Settle::Markers => {
                    put(&mut out.text, &[b"<<<<<<< present\n"]);
                    put(&mut out.text, &p.lines[pr]);
                    put(&mut out.text, &[b"||||||| base\n"]);
                    put(&mut out.text, &base_lines[group.start as usize..group.end as usize]);
                    put(&mut out.text, &[b"=======\n"]);
                    put(&mut out.text, &w.lines[wr]);
                    put(&mut out.text, &[b">>>>>>> wanted\n"]);
                }
            }
            out.clashes.push(clash);
        }
        put(&mut out.text, &a[a.len() - tail..]);
    }
    put(&mut out.text, &base_lines[at as usize..]);
    out
}

/// Where a line number of `later` was in `earlier`.
fn line_before(earlier: &[u8], later: &[u8], line: u64) -> u64 {
    let input = InternedInput::new(byte_lines(earlier), byte_lines(later));
    let mut shift = 0i64;
    for h in hunks(&input) {
        if u64::from(h.after.end) >= line {
            break;
        }
        shift = i64::from(h.before.end) - i64::from(h.after.end);
    }
    u64::try_from(i64::try_from(line).unwrap_or(i64::MAX).saturating_add(shift)).unwrap_or(1).max(1)
}

/// What a merge came to.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// This shall stand there; clashes are what was not settled.
    To(Option<Stand>, Vec<Clash>),
    /// It cannot be merged, for this reason.
    Cannot(&'static str),
}

/// Reads contents of three places: the store, the disk, and what was merged just now.
pub(crate) struct Contents<'a> {
    /// The store.
    pub odb: &'a Odb,
    /// The workspace.
    pub root: PathBuf,
    /// Merged contents that are nowhere else yet.
    pub new: BTreeMap<Oid, Vec<u8>>,
}

impl Contents<'_> {
    /// Of a text; `None` where it is none, or where the disk holds something else by now.
    pub fn text(&self, path: &bstr::BStr, oid: &Oid) -> Result<Option<Vec<u8>>> {
        if let Some(bytes) = self.new.get(oid) {
            return Ok(Some(bytes.clone()));
        }
        let bytes = if self.odb.contains(oid) {
            if self.odb.size(oid)? > TEXT_LIMIT {
                return Ok(None);
            }
            self.odb.blob(oid)?
        } else {
            let file = paths::to_path(&self.root, path);
            let m = file.symlink_metadata().map_err(|e| Error::io(&file, e))?;
            if !m.is_file() || m.len() > TEXT_LIMIT {
                return Ok(None);
            }
            let bytes = std::fs::read(&file).map_err(|e| Error::io(&file, e))?;
            if place::hash(&bytes).map_err(|e| Error::io(&file, e))? != *oid {
                return Ok(None);
            }
            bytes
        };
        Ok(is_text(&bytes).then_some(bytes))
    }

    /// Takes `steps` back from what stands at `path` now, the last one first.
    pub fn take_back(
        &mut self,
        path: &bstr::BStr,
        steps: &[Step],
        now: Option<&Stand>,
        settle: Settle,
    ) -> Result<Verdict> {
        let start = now.cloned();
        let mut present = start.clone();
        let mut clashes = Vec::new();
        for step in steps.iter().rev() {
            let (base, wanted) = (&step.left, &step.from);
            if same(&present, base) {
                present = wanted.clone();
                continue;
            }
            if same(&present, wanted) || same(base, wanted) {
                continue;
            }
            let (Some(b), Some(p), Some(w)) = (base, &present, wanted) else {
                return Ok(Verdict::Cannot(if present.is_none() { "deleted-by-other" } else { "changed" }));
            };
            let (
                Node::File { oid: bo, mode: bm },
                Node::File { oid: po, mode: pm },
                Node::File { oid: wo, mode: wm },
            ) = (&b.node, &p.node, &w.node)
            else {
                let kinds = [b, p, w].map(|s| s.node.kind());
                let one = kinds[0] == kinds[1] && kinds[1] == kinds[2];
                return Ok(Verdict::Cannot(if one { "changed" } else { "type" }));
            };
            let mode = match () {
                () if pm == bm || pm == wm => *wm,
                () if wm == bm => *pm,
                () => {
                    let bits = |m: &u32| Lines { text: format!("{m:04o}").into(), ..Lines::default() };
                    clashes.push(Clash { what: "mode", present: bits(pm), base: bits(bm), wanted: bits(wm) });
                    if settle == Settle::Wanted { *wm } else { *pm }
                }
            };
            let oid = match () {
                () if po == bo || po == wo => *wo,
                () if wo == bo => *po,
                () => {
                    let texts = (self.text(path, bo)?, self.text(path, po)?, self.text(path, wo)?);
                    let (Some(base), Some(present), Some(wanted)) = texts else {
                        return Ok(Verdict::Cannot("binary"));
                    };
                    let mut merged = text(&base, &present, &wanted, settle);
                    // Line numbers are those of the file as it stands there.
                    if let Some(Node::File { oid, .. }) = start.as_ref().map(|s| &s.node)
                        && oid != po
                        && let Some(first) = self.text(path, oid)?
                    {
                        for c in &mut merged.clashes {
                            c.present.line = line_before(&first, &present, c.present.line);
                        }
                    }
                    clashes.append(&mut merged.clashes);
                    let oid = place::hash(&merged.text)
                        .map_err(|e| Error::io(&paths::to_path(&self.root, path), e))?;
                    if oid != *po {
                        self.new.insert(oid, merged.text);
                    }
                    oid
                }
            };
            // Owner and attributes are the present file's, as for every replacement.
            present = Some(Stand { node: Node::File { oid, mode }, attrs: p.attrs.clone() });
        }
        if settle == Settle::Wanted {
            clashes.clear();
        }
        Ok(Verdict::To(present, clashes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(base: &str, present: &str, wanted: &str) -> (String, usize) {
        let m = text(base.as_bytes(), present.as_bytes(), wanted.as_bytes(), Settle::Present);
        (String::from_utf8(m.text).expect("text"), m.clashes.len())
    }

    #[test]
    fn disjoint_lines_are_merged_also_where_they_touch() {
        assert_eq!(merge("1\n2\n3\n4\n", "1\n2\n3\nD\n", "A\n2\n3\n4\n"), ("A\n2\n3\nD\n".into(), 0));
        assert_eq!(merge("1\n2\n3\n", "1\nB\n3\n", "1\n2\nC\n"), ("1\nB\nC\n".into(), 0));
        // A block at the end goes, one that was put behind it stays.
        assert_eq!(merge("1\na\nb\n", "1\na\nb\nmine\n", "1\n"), ("1\nmine\n".into(), 0));
        assert_eq!(merge("", "a\n", ""), ("a\n".into(), 0));
        assert_eq!(merge("a\n", "", "a\n"), (String::new(), 0));
    }

    #[test]
    fn the_same_change_on_both_sides_is_no_clash() {
        assert_eq!(merge("1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n"), ("1\nx\n3\n".into(), 0));
        assert_eq!(merge("1\n2\n3\n", "1\nx\ny\n3\n", "1\nx\nz\n3\n"), ("1\nx\ny\n3\n".into(), 1));
        // Taken back before, and the line beside it changed since.
        assert_eq!(merge("0\n1\n2\n3\n", "0\nx\ny\n3\n", "0\nx\n2\n3\n"), ("0\nx\ny\n3\n".into(), 0));
        assert_eq!(merge("0\n1\n2\n3\n", "0\n1\ny\n3\n", "0\nx\ny\n3\n"), ("0\nx\ny\n3\n".into(), 0));
    }

    #[test]
    fn a_clash_names_both_sides_and_the_present_stays() {
        let (base, present, wanted) = ("0\n1\n2\n3\n4\n", "new\n0\n1\nP\n3\n4\n", "0\n1\nW\n3\nF\n");
        let m = text(base.as_bytes(), present.as_bytes(), wanted.as_bytes(), Settle::Present);
        assert_eq!(m.text.as_bstr(), "new\n0\n1\nP\n3\nF\n", "the other place is merged");
        let lines = |line, t: &str| Lines { line, count: 1, text: t.into() };
        assert_eq!(
            m.clashes,
            [Clash {
                what: "lines",
                present: lines(4, "P\n"),
                base: lines(3, "2\n"),
                wanted: lines(3, "W\n")
            }]
        );
        let m = text(base.as_bytes(), present.as_bytes(), wanted.as_bytes(), Settle::Wanted);
        assert_eq!(m.text.as_bstr(), "new\n0\n1\nW\n3\nF\n");
        let m = text(base.as_bytes(), present.as_bytes(), wanted.as_bytes(), Settle::Markers);
        assert_eq!(
            m.text.as_bstr(),
            "new\n0\n1\n<<<<<<< present\nP\n||||||| base\n2\n=======\nW\n>>>>>>> wanted\n3\nF\n"
        );
    }

    #[test]
    fn two_insertions_at_one_place_have_no_order() {
        assert_eq!(merge("1\n2\n", "1\na\n2\n", "1\nb\n2\n"), ("1\na\n2\n".into(), 1));
    }

    #[test]
    fn lines_are_never_glued_together() {
        assert_eq!(merge("1\n2\n", "1\n2\nmine\n", "1\nW"), ("1\nW\nmine\n".into(), 0));
        assert_eq!(merge("1\n2", "0\n1\n2", "1\n2\n"), ("0\n1\n2\n".into(), 0));
    }

    #[test]
    fn line_numbers_are_found_in_the_earlier_text() {
        let (earlier, later) = (b"a\nb\nc\nd\n", b"new\na\nc\nd\n");
        for (line, was) in [(2, 1), (3, 3), (4, 4)] {
            assert_eq!(line_before(earlier, later, line), was, "{line}");
        }
    }
}

//! Changes as text: unified hunks, and patches that `git apply` takes.

use backstitch_store::Oid;
use bstr::{BStr, BString, ByteSlice};
use imara_diff::{InternedInput, sources::byte_lines};

use crate::{diff::Change, merge, tree::Node};

/// Unified hunks with three lines of context, lines added, lines removed.
pub fn lines(old: &[u8], new: &[u8]) -> (Vec<u8>, u64, u64) {
    const CONTEXT: u32 = 3;
    let input = InternedInput::new(byte_lines(old), byte_lines(new));
    let list = merge::hunks(&input);
    let mut out = Vec::new();
    let (before, after) = (input.before.len() as u32, input.after.len() as u32);
    let mut hunks = list.iter().cloned().peekable();
    while let Some(first) = hunks.next() {
        let mut group = vec![first];
        while let Some(h) = hunks.peek() {
            let gap = h.before.start - group.last().map_or(0, |g| g.before.end);
            if gap > 2 * CONTEXT {
                break;
            }
            group.extend(hunks.next());
        }
        let (Some(f), Some(l)) = (group.first(), group.last()) else { break };
        let (b0, a0) = (f.before.start.saturating_sub(CONTEXT), f.after.start.saturating_sub(CONTEXT));
        let lead = (f.before.start - b0).min(f.after.start - a0);
        let (b0, a0) = (f.before.start - lead, f.after.start - lead);
        let tail = (before - l.before.end).min(after - l.after.end).min(CONTEXT);
        let (b1, a1) = (l.before.end + tail, l.after.end + tail);
        let range = |s: u32, e: u32| match e - s {
            0 => format!("{s},0"),
            1 => format!("{}", s + 1),
            n => format!("{},{n}", s + 1),
        };
        out.extend_from_slice(format!("@@ -{} +{} @@\n", range(b0, b1), range(a0, a1)).as_bytes());
        let mut put = |mark: u8, token: imara_diff::Token| {
            let line: &[u8] = input.interner[token];
            out.push(mark);
            out.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        };
        let mut at = b0;
        for h in &group {
            for i in at..h.before.start {
                put(b' ', input.before[i as usize]);
            }
            for i in h.before.clone() {
                put(b'-', input.before[i as usize]);
            }
            for i in h.after.clone() {
                put(b'+', input.after[i as usize]);
            }
            at = h.before.end;
        }
        for i in at..b1 {
            put(b' ', input.before[i as usize]);
        }
    }
    let (added, removed) =
        list.iter().fold((0, 0), |(a, r), h| (a + h.after.len() as u64, r + h.before.len() as u64));
    (out, added, removed)
}

fn git_mode(n: &Node) -> u32 {
    match n {
        Node::File { mode, .. } if mode & 0o100 != 0 => 0o100755,
        Node::File { .. } => 0o100644,
        Node::Link { .. } => 0o120000,
        Node::Dir { .. } => 0o40000,
    }
}

/// Quotes like git where a name holds a quote, a backslash, a control character or is not ASCII.
fn quote(prefix: &[u8], path: &BStr) -> Vec<u8> {
    let plain = path.iter().all(|b| (0x20..0x7f).contains(b) && *b != b'"' && *b != b'\\');
    let mut out = Vec::new();
    if !plain {
        out.push(b'"');
    }
    out.extend_from_slice(prefix);
    for &b in path.iter() {
        match b {
            _ if plain => out.push(b),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x20..0x7f => out.push(b),
            _ => out.extend_from_slice(format!("\\{b:03o}").as_bytes()),
        }
    }
    if !plain {
        out.push(b'"');
    }
    out
}

/// A name after `---` or `+++`; git ends one that holds a space with a tab.
fn side(p: &mut Vec<u8>, mark: &str, name: Option<(&str, &BString)>) {
    p.extend_from_slice(mark.as_bytes());
    p.push(b' ');
    match name {
        Some((prefix, path)) => {
            p.extend_from_slice(&quote(prefix.as_bytes(), path.as_bstr()));
            if path.contains(&b' ') {
                p.push(b'\t');
            }
        }
        None => p.extend_from_slice(b"/dev/null"),
    }
    p.push(b'\n');
}

/// One end of a change.
pub(crate) struct End<'a> {
    /// What stands there.
    pub node: &'a Node,
    /// Its content, where it is wanted.
    pub content: Option<&'a [u8]>,
}

/// A change as text. With `full`, binary contents are written out, so that `git apply` can make them, and what git cannot
/// say is left out: `false` comes back where that is all.
pub(crate) fn write(
    p: &mut Vec<u8>,
    c: &Change,
    x: Option<&End<'_>>,
    y: Option<&End<'_>>,
    full: bool,
) -> bool {
    let dir = |e: &Option<&End<'_>>| e.is_some_and(|e| e.node.is_dir());
    if let (Some(a), Some(b)) = (x, y)
        && a.node.kind() != b.node.kind()
    {
        // A change of type is a file that goes and one that comes.
        let gone = write(p, c, x, None, full);
        return write(p, c, None, y, full) || gone;
    }
    if full && (dir(&x) || dir(&y)) {
        return false;
    }
    let (ox, oy) = (x.and_then(|e| e.node.oid()), y.and_then(|e| e.node.oid()));
    let (mx, my) = (x.map(|e| git_mode(e.node)), y.map(|e| git_mode(e.node)));
    if full && ox == oy && mx == my && c.old_path.is_none() {
        return false;
    }
    header(p, c, mx, my);
    if ox == oy {
        return true;
    }
    if let (Some(old), Some(new)) = (text(x), text(y)) {
        let (hunks, ..) = lines(old, new);
        if !hunks.is_empty() {
            let old_path = c.old_path.as_ref().unwrap_or(&c.path);
            side(p, "---", x.map(|_| ("a/", old_path)));
            side(p, "+++", y.map(|_| ("b/", &c.path)));
            p.extend_from_slice(&hunks);
        }
    } else if full {
        let oid = |o: Option<Oid>| o.unwrap_or(Oid::null(gix_hash::Kind::Sha1));
        p.extend_from_slice(format!("index {}..{}\nGIT binary patch\n", oid(ox), oid(oy)).as_bytes());
        for e in [y, x] {
            literal(p, e.and_then(|e| e.content).unwrap_or_default());
        }
    } else {
        p.extend_from_slice(b"Binary files differ\n");
    }
    true
}

/// Nothing, or a text; `None` for what is none.
fn text<'a>(e: Option<&End<'a>>) -> Option<&'a [u8]> {
    match e {
        Some(e) => e.content.filter(|b| crate::diff::is_text(b)),
        None => Some(b""),
    }
}

fn header(p: &mut Vec<u8>, c: &Change, x: Option<u32>, y: Option<u32>) {
    let old = c.old_path.as_ref().unwrap_or(&c.path);
    p.extend_from_slice(b"diff --git ");
    p.extend_from_slice(&quote(b"a/", old.as_bstr()));
    p.push(b' ');
    p.extend_from_slice(&quote(b"b/", c.path.as_bstr()));
    p.push(b'\n');
    let mut say = |s: String| p.extend_from_slice(s.as_bytes());
    match (x, y) {
        (None, Some(n)) => say(format!("new file mode {n:o}\n")),
        (Some(n), None) => say(format!("deleted file mode {n:o}\n")),
        (Some(a), Some(b)) if a != b => say(format!("old mode {a:o}\nnew mode {b:o}\n")),
        _ => {}
    }
    if let Some(old) = &c.old_path {
        p.extend_from_slice(b"rename from ");
        p.extend_from_slice(&quote(b"", old.as_bstr()));
        p.extend_from_slice(b"\nrename to ");
        p.extend_from_slice(&quote(b"", c.path.as_bstr()));
        p.push(b'\n');
    }
}

const B85: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// A whole content as git's binary patches hold it: deflated, 52 bytes a line in base 85 after a letter for the length.
fn literal(p: &mut Vec<u8>, data: &[u8]) {
    p.extend_from_slice(format!("literal {}\n", data.len()).as_bytes());
    for line in backstitch_store::zlib(data).chunks(52) {
        let n = line.len() as u8;
        p.push(if n <= 26 { b'A' + n - 1 } else { b'a' + n - 27 });
        for four in line.chunks(4) {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            let mut value = u32::from_be_bytes(word);
            let mut five = [0; 5];
            for slot in five.iter_mut().rev() {
                *slot = B85[(value % 85) as usize];
                value /= 85;
            }
            p.extend_from_slice(&five);
        }
        p.push(b'\n');
    }
    p.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_what_git_apply_reads() {
        let old: Vec<u8> = (1..=20).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        let new = old.replace("line 3\n", "line three\n").replace("line 20\n", "line 20\nend");
        let (text, added, removed) = lines(&old, &new);
        assert_eq!((added, removed), (2, 1));
        let text = text.to_str_lossy();
        assert!(
            text.starts_with("@@ -1,6 +1,6 @@\n line 1\n line 2\n-line 3\n+line three\n line 4\n"),
            "{text}"
        );
        assert!(text.ends_with("+end\n\\ No newline at end of file\n"), "{text}");
        let (text, ..) = lines(b"", b"a\n");
        assert_eq!(text.to_str_lossy(), "@@ -0,0 +1 @@\n+a\n");
    }

    #[test]
    fn names_are_quoted_like_gits() {
        assert_eq!(quote(b"a/", BStr::new("x y")), b"a/x y");
        assert_eq!(quote(b"a/", BStr::new("x\ny\"\u{e9}")), b"\"a/x\\ny\\\"\\303\\251\"".to_vec());
    }

    #[test]
    fn literals_are_gits() {
        let mut p = Vec::new();
        literal(&mut p, b"");
        assert!(p.starts_with(b"literal 0\n") && p.ends_with(b"\n\n"), "{}", p.as_bstr());
        let mut p = Vec::new();
        literal(&mut p, &[0; 200]);
        assert!(p.iter().all(|b| b.is_ascii_graphic() || *b == b'\n' || *b == b' '));
    }
}

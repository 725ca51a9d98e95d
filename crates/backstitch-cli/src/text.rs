//! Text for people: names that cannot play tricks on a terminal, ages, columns.

use backstitch::{
    names, paths,
    record::{Checkpoint, now_ms},
    workspace::Rows,
};
use bstr::ByteSlice;
use jiff::{Timestamp, tz::TimeZone};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Shortest form of an id that is shown.
const SHORT_ID: usize = 8;

/// Characters that change how others look, or look like nothing.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c as u32, 0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb)
}

/// A path as it is where that is plain, else in double quotes with git's escapes.
pub fn name(path: &[u8]) -> String {
    let plain = path.to_str().is_ok_and(|s| {
        !s.chars().any(|c| is_deceptive(c) || c == '"' || c == '\\')
            && !s.starts_with(' ')
            && !s.ends_with(' ')
    });
    if plain && !path.is_empty() {
        return path.to_str_lossy().into_owned();
    }
    let mut out = String::from("\"");
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if is_deceptive(c) => {
                    let mut buffer = [0; 4];
                    for b in c.encode_utf8(&mut buffer).bytes() {
                        out.push_str(&format!("\\{b:03o}"));
                    }
                }
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\{b:03o}"));
        }
    }
    out.push('"');
    out
}

/// A sentence for the terminal: control characters of names in it are shown, not obeyed.
pub fn tame(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        if is_deceptive(c) && c != '\n' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A line of a file for the terminal: as [`tame`], but a tab is a tab.
pub fn tame_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => out.push(c),
            c if is_deceptive(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Ends a sentence, but never right after something that a person may want to copy.
pub fn sentence(message: &str) -> String {
    let text = tame(message.trim_end());
    let last = text.rsplit(char::is_whitespace).next().unwrap_or("");
    let copied = last.contains('/') || names::is_full_id(last) || last.len() >= 40;
    if copied || last.ends_with(['.', '!', '?', ':', '`', '"', '…']) { text } else { text + "." }
}

/// `3s`, `5m`, `2h`, `4d`, `3w`, `2y` ago; an absolute local time where `absolute`.
pub fn age(ms: i64, absolute: bool) -> String {
    if absolute {
        return match Timestamp::from_millisecond(ms) {
            Ok(t) => t.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => "unknown".to_owned(),
        };
    }
    let seconds = now_ms().saturating_sub(ms) / 1000;
    match seconds {
        ..0 => "in future".to_owned(),
        0..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        86_400..1_209_600 => format!("{}d ago", seconds / 86_400),
        1_209_600..63_072_000 => format!("{}w ago", seconds / 604_800),
        _ => format!("{}y ago", seconds / 31_536_000),
    }
}

/// `1 file`, `2 files`.
pub fn count(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// `1, 3-5` of ascending numbers.
pub fn numbers(list: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for n in list {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *n => *end = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let shown: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    shown.join(", ")
}

/// Ids cut to what still finds exactly one row.
pub struct ShortIds(Vec<String>, Vec<String>);

impl ShortIds {
    /// Of these rows.
    pub fn of(rows: &Rows) -> ShortIds {
        let mut ids: Vec<String> = rows.all.iter().map(|c| c.record.id.clone()).collect();
        ids.sort_unstable();
        ShortIds(ids, rows.all.iter().filter_map(|c| c.record.label.clone()).collect())
    }

    /// The shortest form, at least eight characters.
    pub fn short<'a>(&self, id: &'a str) -> &'a str {
        let at = self.0.partition_point(|x| x.as_str() < id);
        let common = |other: Option<&String>| {
            other.map_or(0, |o| o.bytes().zip(id.bytes()).take_while(|(a, b)| a == b).count())
        };
        let next = if self.0.get(at).is_some_and(|x| x == id) { at + 1 } else { at };
        let shared = common(at.checked_sub(1).and_then(|i| self.0.get(i))).max(common(self.0.get(next)));
        let mut len = (shared + 1).max(SHORT_ID);
        // A label or a time of the same letters would be found first.
        while id
            .get(..len)
            .is_some_and(|p| names::parse_time(p, 0).is_some() || self.1.iter().any(|l| l == p))
        {
            len += 1;
        }
        id.get(..len).unwrap_or(id)
    }
}

/// Label, else the beginning of the prompt, else what made the row.
pub fn headline(c: &Checkpoint) -> String {
    let r = &c.record;
    let text = match (&r.label, &r.prompt) {
        (Some(l), _) => l.clone(),
        (None, Some(p)) => p.lines().find(|l| !l.trim().is_empty()).unwrap_or("").trim().to_owned(),
        (None, None) => r.tool.clone().or_else(|| r.agent.clone()).unwrap_or_default(),
    };
    text.chars().map(|c| if is_deceptive(c) { '\u{fffd}' } else { c }).collect()
}

/// Cut to a display width, with an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w + 1 > width {
            break;
        }
        used += w;
        out.push(c);
    }
    out.push('…');
    out
}

/// Cut to a display width, keeping the end, which says most of a path.
pub fn tail(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = Vec::new();
    let mut used = 1;
    for c in text.chars().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept.into_iter().rev().collect()
}

/// One cell: what is measured, and the colour around it.
pub struct Cell {
    text: String,
    style: &'static str,
    right: bool,
}

impl Cell {
    /// Plain text.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), style: "", right: false }
    }

    /// In a colour (one of [`crate::ui::style`]; empty for none).
    pub fn styled(text: impl Into<String>, style: &'static str) -> Cell {
        Cell { text: text.into(), style, right: false }
    }

    /// Aligned to the right.
    pub fn right(mut self) -> Cell {
        self.right = true;
        self
    }
}

/// Rows of cells, aligned by display width. The last column is cut where the terminal ends.
pub fn columns(rows: &[Vec<Cell>], terminal: Option<usize>, colour: bool) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n)
        .map(|i| rows.iter().filter_map(|r| r.get(i)).map(|c| c.text.width()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        let mut at = 0;
        for (i, cell) in row.iter().enumerate() {
            let last = i + 1 == row.len();
            let text = match terminal {
                Some(t) if last => cut(&cell.text, t.saturating_sub(at).max(12)),
                _ => cell.text.clone(),
            };
            let pad = " ".repeat(widths[i].saturating_sub(text.width()));
            let shown = if colour && !cell.style.is_empty() && !text.is_empty() {
                format!("{}{text}\x1b[0m", cell.style)
            } else {
                text
            };
            match (cell.right, last) {
                (true, _) => line.extend([pad.as_str(), &shown]),
                (false, true) => line.push_str(&shown),
                (false, false) => line.extend([shown.as_str(), &pad]),
            }
            if !last {
                line.push_str("  ");
            }
            at += widths[i] + 2;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The path of a record in its escaped form, for eyes.
pub fn unescaped(text: &str) -> String {
    match paths::unescape(text.as_bytes()) {
        Some(b) => name(&b),
        None => tame(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_quoted() {
        assert_eq!(name(b"src/a b.rs"), "src/a b.rs");
        assert_eq!(name("é".as_bytes()), "é");
        assert_eq!(name(b"a\nb"), "\"a\\nb\"");
        assert_eq!(name(b"\xff"), "\"\\377\"");
        assert_eq!(name(b"q\"\\"), "\"q\\\"\\\\\"");
        assert_eq!(name(b" x"), "\" x\"");
        assert_eq!(name(b"\x1b[31m"), "\"\\033[31m\"");
        assert_eq!(name("a\u{202e}b".as_bytes()), "\"a\\342\\200\\256b\"");
        assert_eq!(name(b""), "\"\"");
    }

    #[test]
    fn sentences_end_but_not_after_what_is_copied() {
        assert_eq!(sentence("there is nothing to undo"), "there is nothing to undo.");
        assert_eq!(sentence("nothing is recorded for /a/b"), "nothing is recorded for /a/b");
        assert_eq!(sentence("take 0123456789abcdef"), "take 0123456789abcdef");
        assert_eq!(sentence("try `backstitch list`"), "try `backstitch list`");
        assert_eq!(sentence("a\x1bb"), "a\\u{1b}b.");
    }

    #[test]
    fn runs_of_numbers() {
        for (list, want) in [(&[][..], ""), (&[3], "3"), (&[1, 3, 4, 5, 7], "1, 3-5, 7")] {
            assert_eq!(numbers(list), want);
        }
    }

    #[test]
    fn ages() {
        let now = now_ms();
        assert_eq!(age(now - 90_000, false), "1m ago");
        assert_eq!(age(now - 3 * 86_400_000, false), "3d ago");
        assert_eq!(age(now + 100_000, false), "in future");
        assert_eq!(age(0, true).len(), 19);
    }

    #[test]
    fn wide_characters_align() {
        let rows = vec![vec![Cell::new("日本"), Cell::new("x")], vec![Cell::new("a"), Cell::new("y")]];
        assert_eq!(columns(&rows, None, false), "日本  x\na     y\n");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(tail("日本語", 5), "…本語");
        assert_eq!(tail("src/a.rs", 8), "src/a.rs");
        assert_eq!(tail("src/a.rs", 6), "…/a.rs");
    }
}

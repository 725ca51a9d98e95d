//! Drawing the state. Whatever a colour says, a sign or a word says as well.

mod plan;

use backstitch::{diff::Change, plan::Action, record::Summary};
use bstr::ByteSlice;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Wrap},
};
use unicode_width::UnicodeWidthStr;

pub use self::plan::{hunk_head, hunk_lines};
use super::{
    model::Model,
    timeline::Entry,
    value::{Ask, Look, Marks, Screen, Wanted},
};
use crate::{
    command::restore,
    patch::{self, Kind},
    text,
};

/// Colours, or none at all.
#[derive(Clone, Copy)]
pub struct Theme {
    colour: bool,
}

/// What a piece of text is.
#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Dim,
    Bold,
    Added,
    Removed,
    Changed,
    Warning,
    Chosen,
}

impl Theme {
    /// As the options and the terminal say.
    pub fn new(colour: bool) -> Theme {
        Theme { colour }
    }

    fn style(self, tone: Tone) -> Style {
        let s = Style::new();
        if !self.colour {
            return s;
        }
        match tone {
            Tone::Plain => s,
            Tone::Dim => s.add_modifier(Modifier::DIM),
            Tone::Bold => s.add_modifier(Modifier::BOLD),
            Tone::Added => s.fg(Color::Green),
            Tone::Removed => s.fg(Color::Red),
            Tone::Changed => s.fg(Color::Cyan),
            Tone::Warning => s.fg(Color::Magenta),
            Tone::Chosen => s.add_modifier(Modifier::REVERSED),
        }
    }

    fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }

    fn line(self, tone: Tone, text: impl Into<String>) -> Line<'static> {
        Line::from(self.span(tone, text))
    }
}

/// What a long call is doing.
pub struct Busy {
    /// In words.
    pub what: String,
    /// How far.
    pub done: u64,
    /// Of how much; 0: unknown.
    pub total: u64,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, m: &mut Model, root: &str, theme: Theme, busy: Option<&Busy>) {
    let [head, body, said, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(said_height(m, frame.area().width)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let v = View { m, theme, width: usize::from(body.width) };
    let (title, lines, page) = match v.m.screen() {
        Screen::List => v.list(body, root),
        Screen::Entry { file, scroll } => v.entry(body, *file, *scroll),
        Screen::Hunks { path, out, at, chosen } => {
            let title = format!("Hunks of {}: Space chooses", text::name(path));
            let (lines, page) = v.hunks(body, out, *at, &|id| chosen.contains(id));
            (title, lines, page)
        }
        Screen::Plan { ask, choice, out, scroll } => v.plan(body, ask, choice, out, *scroll),
        Screen::Done { ask, out, scroll } => v.done(body, ask, out, *scroll),
        Screen::Input { what, typed } => {
            let (title, hint) = match what {
                Wanted::Folder => ("Export", "Write this state into which new folder?"),
                Wanted::Label => ("Label", "Which label? Empty: none."),
            };
            let lines = vec![
                Line::default(),
                theme.line(Tone::Plain, hint),
                theme.line(Tone::Bold, format!("> {}_", text::tame(typed))),
            ];
            (title.to_owned(), lines, 1)
        }
        Screen::Help => ("Keys".to_owned(), v.help(), 1),
    };
    let keys_text = v.keys();
    frame.render_widget(
        Paragraph::new(theme.line(Tone::Bold, text::cut(&title, usize::from(head.width)))),
        head,
    );
    frame.render_widget(Paragraph::new(lines), body);
    match busy {
        Some(b) => {
            let far = if b.total > 0 { format!(" {}/{}", b.done, b.total) } else { format!(" {}", b.done) };
            let far = if b.done == 0 { String::new() } else { far };
            let line = format!("{}{far} … (Esc stops it)", text::tame(&b.what));
            frame.render_widget(Paragraph::new(theme.line(Tone::Bold, line)), said);
        }
        None => {
            if let Some((line, bad)) = &v.m.said {
                let tone = if *bad { Tone::Warning } else { Tone::Plain };
                let p = Paragraph::new(theme.line(tone, line.clone())).wrap(Wrap { trim: true });
                frame.render_widget(p, said);
            }
        }
    }
    frame.render_widget(
        Paragraph::new(theme.line(Tone::Dim, text::cut(&keys_text, usize::from(keys.width)))),
        keys,
    );
    m.page = page;
}

fn said_height(m: &Model, width: u16) -> u16 {
    let long = m.said.as_ref().map_or(0, |(s, _)| s.width());
    u16::try_from(long.div_ceil(usize::from(width.max(1)).saturating_sub(4).max(1))).unwrap_or(1).clamp(1, 3)
}

/// `+1 ~2 -3`
fn size(s: Option<Summary>) -> String {
    let Some(s) = s else { return "…".to_owned() };
    let parts: Vec<String> = [("+", s.added), ("~", s.modified), ("-", s.deleted), (">", s.renamed)]
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(sign, n)| format!("{sign}{n}"))
        .collect();
    if parts.is_empty() { "=".to_owned() } else { parts.join(" ") }
}

/// First of the lines that are shown, so that this one is among them.
fn window(at: usize, len: usize, height: usize) -> usize {
    at.saturating_sub(height / 2).min(len.saturating_sub(height))
}

fn pad(text: &str, width: usize) -> String {
    let text = text::cut(text, width);
    let gap = " ".repeat(width.saturating_sub(text.width()));
    text + &gap
}

struct View<'a> {
    m: &'a Model,
    theme: Theme,
    width: usize,
}

type Drawn = (String, Vec<Line<'static>>, usize);

impl View<'_> {
    fn marker(&self, chosen: bool) -> &'static str {
        if chosen { "> " } else { "  " }
    }

    fn list(&self, area: Rect, root: &str) -> Drawn {
        let m = self.m;
        let hidden = match m.hidden() {
            0 => String::new(),
            n => format!(", {n} taken back (Tab shows them)"),
        };
        let title = format!("backstitch {root}: {} of {}{hidden}", m.shown().len(), m.total());
        let mut out = vec![self.theme.line(Tone::Plain, format!("Filter: {}_", text::tame(&m.filter)))];
        let height = usize::from(area.height).saturating_sub(2);
        // Most of it for the list; the rest shows what the chosen turn did.
        let rows = if height < 10 { height } else { height.div_ceil(2) };
        let first = window(m.at, m.shown().len(), rows);
        for (n, e) in m.shown().enumerate().skip(first).take(rows) {
            out.push(self.row(e, n == m.at));
        }
        if m.shown().len() == 0 {
            let empty = if m.filter.is_empty() {
                "There is no turn and no checkpoint yet."
            } else {
                "Nothing fits the filter."
            };
            out.push(self.theme.line(Tone::Dim, empty));
        }
        out.resize(rows + 1, Line::default());
        if height >= 10
            && let Some(e) = m.entry()
        {
            out.push(self.theme.line(Tone::Dim, "─".repeat(self.width)));
            let about = if e.prompt.is_empty() {
                e.title()
            } else {
                format!("{}: {}", e.title(), text::tame(&e.prompt.replace('\n', " ")))
            };
            out.push(self.theme.line(Tone::Bold, text::cut(&about, self.width)));
            let room = usize::from(area.height).saturating_sub(out.len());
            out.extend(self.files(e, None, room));
        }
        (title, out, rows)
    }

    fn row(&self, e: &Entry, chosen: bool) -> Line<'static> {
        let t = self.theme;
        let turn = e.turn.map(|n| format!("{n}")).unwrap_or_else(|| "·".to_owned());
        let mut spans = vec![
            t.span(Tone::Plain, self.marker(chosen)),
            t.span(Tone::Changed, format!("{turn:>3} ")),
            t.span(Tone::Dim, format!("{:>8} ", text::age(e.when, false))),
            t.span(Tone::Plain, pad(&size(e.size), 11) + " "),
        ];
        if self.m.many_sessions() {
            let s = text::tame(e.session.as_deref().unwrap_or("-"));
            spans.push(t.span(Tone::Dim, pad(&s, 10) + " "));
        }
        let used: usize = spans.iter().map(|s| s.content.width()).sum();
        let marks = if e.marks.is_empty() { String::new() } else { format!("[{}] ", e.marks.join(", ")) };
        spans.push(t.span(Tone::Warning, marks.clone()));
        spans.push(t.span(
            Tone::Plain,
            text::cut(&e.headline, self.width.saturating_sub(used + marks.width()).max(8)),
        ));
        let line = Line::from(spans);
        if chosen { line.style(t.style(Tone::Chosen)) } else { line }
    }

    /// The changed files of an entry, as many as fit.
    fn files(&self, e: &Entry, chosen: Option<usize>, room: usize) -> Vec<Line<'static>> {
        let t = self.theme;
        let Some(look) = self.m.look(e) else { return vec![t.line(Tone::Dim, "  …")] };
        if look.changes.is_empty() && look.not_covered.is_empty() {
            return vec![t.line(Tone::Dim, "  no file was changed")];
        }
        let total = look.changes.len() + look.not_covered.len();
        let first = window(chosen.unwrap_or(0), total, room);
        let fits = if total > room && chosen.is_none() { room.saturating_sub(1) } else { room };
        // Only what is shown is made: there may be many.
        let line = |n: usize| match (
            look.changes.get(n),
            look.not_covered.get(n.wrapping_sub(look.changes.len())),
        ) {
            (Some(c), _) => self.change(c, look, chosen == Some(n)),
            (None, Some((p, why))) => {
                t.line(Tone::Warning, format!("  ? {}  (not covered: {})", text::name(p), text::tame(why)))
            }
            (None, None) => Line::default(),
        };
        let mut out: Vec<Line<'static>> = (first..total).take(fits).map(line).collect();
        if total > room && chosen.is_none() {
            out.push(t.line(Tone::Dim, format!("  and {} more", total - fits)));
        }
        out
    }

    fn change(&self, c: &Change, look: &Look, chosen: bool) -> Line<'static> {
        let t = self.theme;
        let tone = match c.status.as_str() {
            "A" => Tone::Added,
            "D" => Tone::Removed,
            _ => Tone::Changed,
        };
        let lines = match (c.added, c.removed) {
            (Some(a), Some(r)) => format!("  +{a} -{r}"),
            _ if c.binary => "  binary".to_owned(),
            _ => String::new(),
        };
        let old = c.old_path.as_ref().map(|p| format!("  (was {})", text::name(p))).unwrap_or_default();
        let mark = mark(look.marks.as_ref(), c).map(|m| format!("  {m}")).unwrap_or_default();
        let line = Line::from(vec![
            t.span(Tone::Plain, self.marker(chosen)),
            t.span(tone, c.status.as_str()),
            t.span(Tone::Plain, format!(" {}{old}", text::name(&c.path))),
            t.span(Tone::Dim, lines),
            t.span(Tone::Warning, mark),
        ]);
        if chosen { line.style(t.style(Tone::Chosen)) } else { line }
    }

    fn entry(&self, area: Rect, file: usize, scroll: usize) -> Drawn {
        let Some(e) = self.m.entry() else { return (String::new(), Vec::new(), 1) };
        let height = usize::from(area.height);
        let top = (height / 3).max(3);
        let mut out = Vec::new();
        if !e.prompt.is_empty() {
            out.push(
                self.theme.line(Tone::Bold, text::cut(&text::tame(&e.prompt.replace('\n', " ")), self.width)),
            );
        }
        out.extend(self.files(e, Some(file), top.saturating_sub(out.len())));
        out.push(self.theme.line(Tone::Dim, "─".repeat(self.width)));
        let page = height.saturating_sub(out.len());
        if let Some(look) = self.m.look(e)
            && let Some(c) = look.changes.get(file)
        {
            match look.patches.get(&c.path) {
                None => out.push(self.theme.line(Tone::Dim, "…")),
                Some(text) => out.extend(self.patch(text, scroll, page)),
            }
        }
        let marks = if e.marks.is_empty() { String::new() } else { format!(" [{}]", e.marks.join(", ")) };
        let title = format!("{}, {}, {}{marks}", e.title(), text::age(e.when, false), size(e.size));
        (title, out, page.saturating_sub(1))
    }

    fn patch(&self, patch: &[u8], scroll: usize, room: usize) -> Vec<Line<'static>> {
        let lines: Vec<&[u8]> = patch.lines().collect();
        let first = scroll.min(lines.len().saturating_sub(room));
        let window = first..lines.len().min(first + room);
        let all = patch::lines(&lines, if self.theme.colour { window.clone() } else { 0..0 });
        window
            .map(|i| {
                let tone = patch_tone(all[i].kind);
                let shown = |(piece, changed): (&[u8], bool)| {
                    let s = self.theme.span(tone, text::tame(&expand(&piece.to_str_lossy())));
                    if changed { s.patch_style(Style::new().add_modifier(Modifier::REVERSED)) } else { s }
                };
                Line::from_iter(patch::pieces(lines[i], &all[i].changed).into_iter().map(shown))
            })
            .collect()
    }

    fn help(&self) -> Vec<Line<'static>> {
        const HELP: &[&str] = &[
            "",
            "In the list",
            "  letters        show only what holds these words: prompt, session, turn:3",
            "  up, down       choose     Enter  open     Tab  also what was taken back",
            "  Ctrl-Z         plan of undoing the newest operation",
            "  Esc            clears the filter, then ends",
            "In a turn",
            "  r              take back this turn and all after it",
            "  v              take back only this turn",
            "  c              put everything back to what it was before the turn",
            "  f              put the chosen file back     h  choose hunks of it",
            "  u              plan of undoing the newest operation",
            "  e              export the state     p  pin, unpin     l  label",
            "  PgUp, PgDn     scroll the text",
            "In a plan",
            "  y              carry it out     n, Esc  change nothing",
            "After it",
            "  u              undo it     r  redo what was undone     q  end",
            "",
            "Any key goes back.",
        ];
        HELP.iter().map(|l| self.theme.line(Tone::Plain, *l)).collect()
    }

    fn keys(&self) -> String {
        match self.m.screen() {
            Screen::List => "type: filter  Enter: open  Tab: all  ^Z: undo  ?: help  Esc: end",
            Screen::Entry { .. } if self.m.entry().is_some_and(|e| e.turn.is_none()) => {
                "c: put back  f: file  h: hunks  u: undo  e: export  p: pin  l: label  Esc: back"
            }
            Screen::Entry { .. } => {
                "r: rewind to here  v: only this  c: code  f: file  h: hunks  u: undo  ?: more"
            }
            Screen::Hunks { .. } => "Space: choose  a: all  Enter: plan  Esc: back",
            Screen::Plan { .. } => "y: carry out this plan  n: change nothing",
            Screen::Done { ask: Ask::Undo(_), .. } => "r: redo  u: undo more  Enter: list  q: end",
            Screen::Done { .. } => "u: undo this  Enter: list  q: end",
            Screen::Input { .. } => "Enter: go on  Esc: back",
            Screen::Help => "any key: back",
        }
        .to_owned()
    }
}

/// What a rewind would do with a file that it leaves alone.
fn mark(marks: Option<&Marks>, c: &Change) -> Option<String> {
    let (action, why) = marks?.get(&c.path)?;
    let sign = match action {
        Action::Conflict => "! conflict",
        Action::Skip => "? skipped",
        _ => "= kept",
    };
    Some(format!("{sign}: {}", text::tame(&restore::why(why))))
}

fn patch_tone(kind: Kind) -> Tone {
    match kind {
        Kind::Head => Tone::Bold,
        Kind::Added => Tone::Added,
        Kind::Removed => Tone::Removed,
        Kind::Place => Tone::Changed,
        Kind::Same => Tone::Plain,
        Kind::Remark => Tone::Dim,
    }
}

fn expand(line: &str) -> String {
    line.replace('\t', "    ")
}

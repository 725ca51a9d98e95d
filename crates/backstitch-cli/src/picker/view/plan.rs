//! Plans, what came of them, and the parts that can be chosen.

use backstitch::{
    hunks::Hunk,
    operation::Outcome,
    plan::{Action, Item, Progress},
    undo::OnConflict,
};
use bstr::ByteSlice;
use ratatui::{layout::Rect, text::Line};

use super::{Drawn, Tone, View, expand};
use crate::{
    command::restore,
    picker::value::{Ask, Choice, Offers},
    text,
};

impl View<'_> {
    pub(super) fn hunks(
        &self,
        area: Rect,
        out: &Outcome,
        at: usize,
        chosen: &dyn Fn(&str) -> bool,
    ) -> (Vec<Line<'static>>, usize) {
        let mut lines = Vec::new();
        let mut starts = Vec::new();
        for (n, h) in out.items.iter().flat_map(|i| &i.hunks).enumerate() {
            starts.push(lines.len());
            let tick = if chosen(&h.id) { "[x]" } else { "[ ]" };
            let tone = if n == at { Tone::Chosen } else { Tone::Bold };
            lines.push(self.theme.line(tone, format!("{}{tick} {}", self.marker(n == at), hunk_head(h))));
            lines.extend(hunk_lines(h).into_iter().map(|(mark, l)| {
                let tone = if mark == '+' { Tone::Added } else { Tone::Removed };
                self.theme.line(tone, format!("      {mark}{l}"))
            }));
        }
        let height = usize::from(area.height);
        let first = starts.get(at).copied().unwrap_or(0).min(lines.len().saturating_sub(height));
        (lines.into_iter().skip(first).collect(), 1)
    }

    fn items(&self, out: &Outcome) -> Vec<Line<'static>> {
        let t = self.theme;
        let order = |i: &&Item| match (i.action.changes(), i.result, i.action) {
            (true, Progress::Failed, _) => 1,
            (true, ..) => 0,
            (_, _, Action::Conflict) => 2,
            (_, _, Action::Skip) => 3,
            _ => 4,
        };
        let mut items: Vec<&Item> = out.items.iter().collect();
        items.sort_by_key(order);
        items
            .into_iter()
            .map(|i| {
                let failed = i.result == Progress::Failed;
                let (sign, tone) = match i.action {
                    _ if failed => ("!", Tone::Warning),
                    Action::Create | Action::Mkdir => ("+", Tone::Added),
                    Action::Delete | Action::Rmdir => ("-", Tone::Removed),
                    Action::Overwrite | Action::Mode => ("~", Tone::Changed),
                    Action::Conflict => ("!", Tone::Warning),
                    Action::Skip | Action::Keep => ("=", Tone::Dim),
                };
                let verb = restore::verb(i.action, out.dry_run || failed);
                let verb = if failed { format!("not possible: {verb}") } else { verb.to_owned() };
                let to = i.moved_to.as_ref().map(|p| format!(" to {}", text::name(p))).unwrap_or_default();
                let why = i.reason.as_deref().filter(|r| !r.is_empty());
                let why =
                    why.map(|r| format!("  ({}{to})", text::tame(&restore::why(r)))).unwrap_or_default();
                Line::from(vec![
                    t.span(tone, format!("  {sign} {verb} ")),
                    t.span(Tone::Plain, text::name(&i.path)),
                    t.span(Tone::Dim, why),
                ])
            })
            .collect()
    }

    fn outcome(
        &self,
        area: Rect,
        out: &Outcome,
        scroll: usize,
        head: Vec<Line<'static>>,
    ) -> (Vec<Line<'static>>, usize) {
        let mut lines = head;
        lines.push(self.theme.line(Tone::Bold, restore::headline(out)));
        let room = usize::from(area.height).saturating_sub(lines.len() + 1);
        let items = self.items(out);
        let total = items.len();
        let first = scroll.min(total.saturating_sub(room));
        lines.extend(items.into_iter().skip(first).take(room));
        if total > room {
            lines.push(
                self.theme
                    .line(Tone::Dim, format!("  {} to {} of {total}", first + 1, (first + room).min(total))),
            );
        }
        (lines, room)
    }

    pub(super) fn plan(&self, area: Rect, ask: &Ask, choice: &Choice, out: &Outcome, scroll: usize) -> Drawn {
        let t = self.theme;
        let mut head = Vec::new();
        if !out.takes_back.is_empty() {
            let one = if out.takes_back.len() == 1 { "turn" } else { "turns" };
            head.push(t.line(Tone::Plain, format!("takes back {one} {}", text::numbers(&out.takes_back))));
        }
        let offers = Offers::of(out, choice);
        if offers.conflicts {
            let what = match choice.on_conflict {
                OnConflict::Keep | OnConflict::Refuse => "is kept as it is (k: merge it)",
                OnConflict::Merge => "is merged line by line (k: overwrite it)",
                OnConflict::Overwrite => "is OVERWRITTEN (k: keep it)",
            };
            head.push(t.line(Tone::Warning, format!("what somebody else changed since {what}")));
        }
        if offers.outside {
            let what = if choice.outside {
                "are changed, too (o: leave them)"
            } else {
                "are left (o: change them, too)"
            };
            head.push(t.line(Tone::Warning, format!("files outside the workspace {what}")));
        }
        if offers.unattributed {
            let what = if choice.unattributed {
                "is taken back, too (a: leave it)"
            } else {
                "stays (a: take it back, too)"
            };
            head.push(t.line(Tone::Warning, format!("what changed outside the session's tool calls {what}")));
        }
        let (lines, page) = self.outcome(area, out, scroll, head);
        (format!("PLAN: {}", ask.title()), lines, page)
    }

    pub(super) fn done(&self, area: Rect, ask: &Ask, out: &Outcome, scroll: usize) -> Drawn {
        let mut head = Vec::new();
        for w in &out.warnings {
            head.push(self.theme.line(Tone::Warning, format!("warning: {}", text::sentence(w))));
        }
        if out.partial {
            head.push(
                self.theme.line(Tone::Warning, "Something was left as it is; the list says what and why."),
            );
        }
        let (lines, page) = self.outcome(area, out, scroll, head);
        (format!("DONE: {}", ask.title()), lines, page)
    }
}

/// Where a part is.
pub fn hunk_head(h: &Hunk) -> String {
    match h.what {
        "whole" => "the whole path".to_owned(),
        "mode" => format!("mode {} to {}", h.present.text, h.wanted.text),
        _ => {
            format!("line {}, {} to {}", h.present.line, text::count(h.present.count, "line"), h.wanted.count)
        }
    }
}

/// What it takes away and puts in.
pub fn hunk_lines(h: &Hunk) -> Vec<(char, String)> {
    if h.what != "lines" {
        return Vec::new();
    }
    let side = |mark, l: &bstr::BString| {
        l.lines().map(move |l| (mark, text::tame(&expand(&l.to_str_lossy())))).collect::<Vec<_>>()
    };
    let mut out = side('-', &h.present.text);
    out.extend(side('+', &h.wanted.text));
    out
}

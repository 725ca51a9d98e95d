//! The list: a turn is one entry with both its ends; checkpoints by hand and beginnings of sessions are entries of their own.

use std::collections::{HashMap, HashSet};

use backstitch::{
    record::{Checkpoint, Kind, State, Summary},
    workspace::Rows,
};

use crate::text;

/// One line of the list.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The row that restore, export, pin and label are about: of a turn, the state before it.
    pub row: String,
    /// What the changes are counted from; `None`: nothing.
    pub from: Option<String>,
    /// What they lead to; `None`: the folder as it is.
    pub to: Option<String>,
    /// Its session.
    pub session: Option<String>,
    /// Its turn.
    pub turn: Option<u64>,
    /// Prompt or label.
    pub headline: String,
    /// The whole prompt.
    pub prompt: String,
    /// Milliseconds since 1970.
    pub when: i64,
    /// How much changed; `None` while a turn is open.
    pub size: Option<Summary>,
    /// What a person should see at a glance.
    pub marks: Vec<String>,
    /// It was taken back.
    pub left: bool,
    /// Kept whatever the policy says.
    pub pinned: bool,
    /// Its label.
    pub label: Option<String>,
    /// Can be a target of restore.
    pub restorable: bool,
}

impl Entry {
    /// All words are found in it, whatever their case.
    pub fn matches(&self, filter: &str) -> bool {
        let number = self.turn.map(|n| format!("turn:{n}")).unwrap_or_default();
        let session = self.session.as_deref().unwrap_or_default();
        let label = self.label.as_deref().unwrap_or_default();
        let hay = format!("{number}\n{session}\n{label}\n{}\n{}", self.prompt, self.marks.join("\n"))
            .to_lowercase();
        // Short words are found in ids by chance.
        let is_id = |w: &str| w.len() >= 6 && self.row.starts_with(w);
        filter.to_lowercase().split_whitespace().all(|w| hay.contains(w) || is_id(w))
    }

    /// `turn 3 of s1`, or what else it is.
    pub fn title(&self) -> String {
        match (self.turn, &self.session) {
            (Some(n), Some(s)) => format!("turn {n} of {}", text::tame(s)),
            (None, Some(s)) => format!("checkpoint {} of {}", self.row, text::tame(s)),
            _ => format!("checkpoint {}", self.row),
        }
    }
}

/// All entries, newest first. `of`: a session whose line they must be of; its turns count as its own, also inherited ones.
pub fn entries(rows: &Rows, left: &HashSet<&str>, line: Option<(&str, &HashSet<&str>)>) -> Vec<Entry> {
    let shown = |c: &&Checkpoint| {
        matches!(c.record.kind, Kind::Prompt | Kind::Manual | Kind::SessionStart)
            && line.is_none_or(|(_, l)| l.contains(c.record.id.as_str()))
    };
    let ends: HashMap<_, &Checkpoint> = rows
        .all
        .iter()
        .filter(|e| e.record.kind == Kind::Turn)
        .map(|e| ((e.record.session.as_deref(), e.record.turn), e))
        .collect();
    let make = |c: &Checkpoint| {
        let r = &c.record;
        let is_turn = r.kind == Kind::Prompt && r.turn.is_some() && r.session.is_some();
        let end = ends.get(&(r.session.as_deref(), r.turn)).filter(|_| is_turn);
        let mut marks = Vec::new();
        if let (true, None) = (is_turn, end) {
            marks.push("open".to_owned());
        }
        if let Some(s) = end.and_then(|e| e.record.status.as_deref()).filter(|s| *s != "completed") {
            marks.push(text::tame(s));
        }
        let is_left = left.contains(r.id.as_str());
        for (on, mark) in [
            (is_left, "taken back"),
            (r.in_flight(), "being recorded"),
            (r.state == State::Gap && !r.in_flight(), "not recorded"),
            (r.state == State::Failed, "failed"),
            (r.implausible(), "implausibly empty"),
            (r.pinned, "pinned"),
        ] {
            if on {
                marks.push(mark.to_owned());
            }
        }
        // Left out against the rules: the row cannot bring it back.
        let skipped = if r.state == State::Partial { r.skipped_total } else { 0 };
        if skipped > 0 {
            marks.push(format!("{skipped} not covered"));
        }
        let mut headline = text::headline(c);
        if headline.is_empty() && r.kind == Kind::SessionStart {
            headline = "(the session began)".to_owned();
        }
        Entry {
            row: r.id.clone(),
            from: if is_turn { Some(r.id.clone()) } else { r.parent.clone() },
            to: if is_turn { end.map(|e| e.record.id.clone()) } else { Some(r.id.clone()) },
            session: line.map(|(s, _)| s.to_owned()).or_else(|| r.session.clone()),
            turn: r.turn.filter(|_| is_turn),
            prompt: r.prompt.clone().or_else(|| r.label.clone()).unwrap_or_default(),
            headline,
            when: r.created_ms,
            size: if is_turn { end.map(|e| e.record.summary) } else { Some(r.summary) },
            marks,
            left: is_left,
            pinned: r.pinned,
            label: r.label.clone(),
            restorable: r.is_restorable(),
        }
    };
    rows.all.iter().rev().filter(shown).map(make).collect()
}

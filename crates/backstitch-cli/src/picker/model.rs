//! What keys and answers do to the state. Pure: nothing here reads a file or writes to a terminal.

use std::collections::{BTreeMap, BTreeSet};

use backstitch::{diff::Change, error::Code, operation::Outcome, rewind, undo::OnConflict};
use bstr::{BString, ByteSlice};

use super::{
    keys::Key,
    timeline::Entry,
    value::{Answer, Ask, Choice, Effect, Look, Offers, Screen, Wanted},
};
use crate::text;

/// The whole state.
pub struct Model {
    entries: Vec<Entry>,
    looks: BTreeMap<String, Look>,
    failed: BTreeSet<String>,
    /// Typed so far.
    pub filter: String,
    shown: Vec<usize>,
    /// Which one of the shown.
    pub at: usize,
    /// Also what was taken back.
    pub all: bool,
    /// What is shown; those below it come back.
    screens: Vec<Screen>,
    /// The last thing that was said, and whether it is bad.
    pub said: Option<(String, bool)>,
    /// How plans are begun.
    choice: Choice,
    /// Only look.
    dry_run: bool,
    /// What was done, oldest first.
    pub done: Vec<Outcome>,
    /// Lines that fit; told by the view.
    pub page: usize,
}

fn step(at: &mut usize, key: Key, len: usize, page: usize) -> bool {
    let last = len.saturating_sub(1);
    *at = match key {
        Key::Up => at.saturating_sub(1),
        Key::Down => at.saturating_add(1).min(last),
        Key::PageUp => at.saturating_sub(page.max(1)),
        Key::PageDown => at.saturating_add(page.max(1)).min(last),
        Key::Home => 0,
        Key::End => last,
        _ => return false,
    };
    true
}

impl Model {
    /// Of a list.
    pub fn new(entries: Vec<Entry>, options: &rewind::Options) -> Model {
        let mut m = Model {
            entries: Vec::new(),
            looks: BTreeMap::new(),
            failed: BTreeSet::new(),
            filter: String::new(),
            shown: Vec::new(),
            at: 0,
            all: false,
            screens: vec![Screen::List],
            said: None,
            choice: Choice::of(options),
            dry_run: options.dry_run,
            done: Vec::new(),
            page: 10,
        };
        m.take(entries);
        m
    }

    fn take(&mut self, entries: Vec<Entry>) {
        let chosen = self.entry().map(|e| e.row.clone());
        self.entries = entries;
        self.looks.clear();
        self.failed.clear();
        self.sift();
        if let Some(at) = self.shown.iter().position(|i| Some(&self.entries[*i].row) == chosen.as_ref()) {
            self.at = at;
        }
    }

    fn sift(&mut self) {
        let fits = |e: &Entry| (self.all || !e.left) && e.matches(&self.filter);
        self.shown = (0..self.entries.len()).filter(|i| fits(&self.entries[*i])).collect();
        self.at = self.at.min(self.shown.len().saturating_sub(1));
    }

    /// The screen.
    pub fn screen(&self) -> &Screen {
        self.screens.last().unwrap_or(&Screen::List)
    }

    /// What is listed.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.shown.iter().map(|i| &self.entries[*i])
    }

    /// How many there are in all.
    pub fn total(&self) -> usize {
        self.entries.iter().filter(|e| self.all || !e.left).count()
    }

    /// How many were taken back.
    pub fn hidden(&self) -> usize {
        if self.all { 0 } else { self.entries.iter().filter(|e| e.left).count() }
    }

    /// Entries of more than one session are there.
    pub fn many_sessions(&self) -> bool {
        let mut of = self.entries.iter().filter_map(|e| e.session.as_deref());
        of.next().is_some_and(|first| of.any(|s| s != first))
    }

    /// The chosen entry.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.get(*self.shown.get(self.at)?)
    }

    /// What is known of an entry.
    pub fn look(&self, e: &Entry) -> Option<&Look> {
        self.looks.get(&e.row)
    }

    fn change(&self, file: usize) -> Option<(&Entry, &Change)> {
        let e = self.entry()?;
        Some((e, self.look(e)?.changes.get(file)?))
    }

    /// Work that makes the screen complete and can be given up at any time.
    pub fn idle(&self) -> Option<Effect> {
        let e = self.entry()?;
        let wanted = match (self.screen(), self.look(e)) {
            (Screen::List | Screen::Entry { .. }, None) => Effect::Look(e.clone()),
            (Screen::Entry { file, .. }, Some(look)) => {
                match look.changes.get(*file).filter(|c| !look.patches.contains_key(&c.path)) {
                    Some(c) => Effect::Patch(e.clone(), c.path.clone()),
                    None if look.marks.is_none() && e.turn.is_some() => Effect::Marks(e.clone()),
                    None => return None,
                }
            }
            _ => return None,
        };
        (!self.failed.contains(&idle_name(&wanted))).then_some(wanted)
    }

    fn tell(&mut self, text: impl Into<String>, bad: bool) {
        self.said = Some((text.into(), bad));
    }

    fn plan(&self, ask: Ask) -> Option<Effect> {
        Some(Effect::Plan { ask, choice: self.choice.clone(), straight: false })
    }

    fn back(&mut self) {
        if self.screens.len() > 1 {
            self.screens.pop();
        }
    }

    fn home(&mut self) {
        self.screens.truncate(1);
    }

    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Option<Effect> {
        self.said = None;
        if key == Key::Ctrl('c') {
            return Some(Effect::Quit);
        }
        if key == Key::Ctrl('z') && !matches!(self.screen(), Screen::Plan { .. } | Screen::Done { .. }) {
            return self.plan(Ask::Undo(None));
        }
        let page = self.page;
        match self.screens.last_mut() {
            None | Some(Screen::List) => self.list_key(key),
            Some(Screen::Help) => {
                self.back();
                None
            }
            Some(Screen::Entry { .. }) => self.entry_key(key),
            Some(Screen::Hunks { .. }) => self.hunks_key(key),
            Some(Screen::Plan { out, scroll, .. }) => {
                if step(scroll, key, out.items.len(), page) {
                    None
                } else {
                    self.plan_key(key)
                }
            }
            Some(Screen::Done { out, scroll, .. }) => {
                if step(scroll, key, out.items.len(), page) {
                    None
                } else {
                    self.done_key(key)
                }
            }
            Some(Screen::Input { .. }) => self.input_key(key),
        }
    }

    fn list_key(&mut self, key: Key) -> Option<Effect> {
        if step(&mut self.at, key, self.shown.len(), self.page) {
            return None;
        }
        match key {
            Key::Enter if self.entry().is_some() => self.screens.push(Screen::Entry { file: 0, scroll: 0 }),
            Key::Char('?') if self.filter.is_empty() => self.screens.push(Screen::Help),
            Key::Char(c) => {
                self.filter.push(c);
                self.at = 0;
                self.sift();
            }
            Key::Backspace => {
                self.filter.pop();
                self.sift();
            }
            Key::Tab => {
                self.all = !self.all;
                self.sift();
            }
            Key::Esc if self.filter.is_empty() => return Some(Effect::Quit),
            Key::Esc => {
                self.filter.clear();
                self.sift();
            }
            _ => {}
        }
        None
    }

    fn entry_key(&mut self, key: Key) -> Option<Effect> {
        let e = self.entry()?.clone();
        let files = self.look(&e).map_or(0, |l| l.changes.len());
        let page = self.page;
        let Some(Screen::Entry { file, scroll }) = self.screens.last_mut() else { return None };
        match key {
            Key::Up | Key::Down | Key::Home | Key::End => {
                step(file, key, files, page);
                *scroll = 0;
                return None;
            }
            Key::PageDown | Key::Char(' ') => {
                *scroll = scroll.saturating_add(page.max(1));
                return None;
            }
            Key::PageUp => {
                *scroll = scroll.saturating_sub(page.max(1));
                return None;
            }
            _ => {}
        }
        let path = self.file_path();
        let is_turn = e.turn.is_some();
        match key {
            Key::Esc | Key::Left | Key::Char('q') => self.back(),
            Key::Char('?') => self.screens.push(Screen::Help),
            Key::Char('r') | Key::Enter if is_turn => return self.plan(Ask::Rewind(e)),
            Key::Char('v') if is_turn => return self.plan(Ask::Revert(e)),
            Key::Char('r' | 'v') => self.tell("This is no turn: c puts the folder back to it.", true),
            Key::Char('u') => return self.plan(Ask::Undo(None)),
            Key::Char('p') => {
                let on = !e.pinned;
                return Some(Effect::Pin(e, on));
            }
            Key::Char('l') => {
                let typed = e.label.clone().unwrap_or_default();
                self.screens.push(Screen::Input { what: Wanted::Label, typed });
            }
            Key::Char('c' | 'e' | 'f' | 'h') | Key::Enter if !e.restorable => {
                self.tell("Nothing can be restored from this one: it was not recorded.", true);
            }
            Key::Char('c') | Key::Enter => {
                return self.plan(Ask::Restore { entry: e, paths: Vec::new(), hunks: None });
            }
            Key::Char('e') => {
                self.screens.push(Screen::Input { what: Wanted::Folder, typed: String::new() });
            }
            Key::Char('f' | 'h') => match path {
                None => self.tell("No file is chosen.", true),
                Some(p) if key == Key::Char('h') => return Some(Effect::Hunks(e, p)),
                Some(p) => {
                    let mut paths = vec![p];
                    // A moved file goes back to where it was.
                    paths.extend(self.moved_from());
                    return self.plan(Ask::Restore { entry: e, paths, hunks: None });
                }
            },
            _ => {}
        }
        None
    }

    /// The chosen file of the entry on the screen.
    fn file_path(&self) -> Option<BString> {
        let Screen::Entry { file, .. } = self.screen() else { return None };
        self.change(*file).map(|(_, c)| c.path.clone())
    }

    fn moved_from(&self) -> Option<BString> {
        let Screen::Entry { file, .. } = self.screen() else { return None };
        self.change(*file).and_then(|(_, c)| c.old_path.clone())
    }

    fn hunks_key(&mut self, key: Key) -> Option<Effect> {
        let entry = self.entry()?.clone();
        let page = self.page;
        let Some(Screen::Hunks { path, out, at, chosen }) = self.screens.last_mut() else { return None };
        let ids: Vec<String> = out.items.iter().flat_map(|i| &i.hunks).map(|h| h.id.clone()).collect();
        if step(at, key, ids.len(), page) {
            return None;
        }
        match key {
            Key::Char(' ' | 'x') => {
                if let Some(id) = ids.get(*at).filter(|id| !chosen.remove(*id)) {
                    chosen.insert(id.clone());
                }
            }
            Key::Char('a') if chosen.len() == ids.len() => chosen.clear(),
            Key::Char('a') => chosen.extend(ids),
            Key::Enter if chosen.is_empty() => self.tell("No hunk is chosen: Space chooses one.", true),
            Key::Enter => {
                let hunks = Some(chosen.iter().cloned().collect());
                let paths = vec![path.clone()];
                return self.plan(Ask::Restore { entry, paths, hunks });
            }
            Key::Esc | Key::Left | Key::Char('q') => self.back(),
            _ => {}
        }
        None
    }

    fn plan_key(&mut self, key: Key) -> Option<Effect> {
        let Some(Screen::Plan { ask, choice, out, .. }) = self.screens.last() else { return None };
        let offers = Offers::of(out, choice);
        let mut next = choice.clone();
        match key {
            Key::Char('y') if self.dry_run => {
                self.tell("--dry-run: plans are shown, and not carried out.", true);
                return None;
            }
            Key::Char('y') if !out.items.iter().any(|i| i.action.changes()) && out.rows.is_empty() => {
                self.tell("There is nothing to do.", true);
                return None;
            }
            Key::Char('y') => {
                return Some(Effect::Apply { ask: ask.clone(), choice: next, plan: out.plan.clone() });
            }
            Key::Enter => {
                self.tell("y carries this plan out, Esc changes nothing.", false);
                return None;
            }
            Key::Char('k') if offers.conflicts => {
                next.on_conflict = match next.on_conflict {
                    OnConflict::Keep | OnConflict::Refuse => OnConflict::Merge,
                    OnConflict::Merge => OnConflict::Overwrite,
                    OnConflict::Overwrite => OnConflict::Keep,
                };
            }
            Key::Char('o') if offers.outside => next.outside = !next.outside,
            Key::Char('a') if offers.unattributed => next.unattributed = !next.unattributed,
            Key::Esc | Key::Left | Key::Char('n' | 'q') => {
                self.back();
                self.tell("Nothing was changed.", false);
                return None;
            }
            _ => return None,
        }
        Some(Effect::Plan { ask: ask.clone(), choice: next, straight: false })
    }

    fn done_key(&mut self, key: Key) -> Option<Effect> {
        let Some(Screen::Done { ask, out, .. }) = self.screens.last() else { return None };
        let straight = |ask| Some(Effect::Plan { ask, choice: Choice::default(), straight: true });
        match (key, ask) {
            (Key::Char('q'), _) => return Some(Effect::Quit),
            (Key::Char('r'), Ask::Undo(_)) => return straight(Ask::Redo(None)),
            (Key::Char('u') | Key::Ctrl('z'), a) if !matches!(a, Ask::Undo(_)) => {
                return straight(Ask::Undo(out.operation.clone()));
            }
            (Key::Char('u') | Key::Ctrl('z'), _) => return self.plan(Ask::Undo(None)),
            (Key::Esc | Key::Enter | Key::Left, _) => self.home(),
            _ => {}
        }
        None
    }

    fn input_key(&mut self, key: Key) -> Option<Effect> {
        let e = self.entry()?.clone();
        let Some(Screen::Input { what, typed }) = self.screens.last_mut() else { return None };
        match key {
            Key::Char(c) => typed.push(c),
            Key::Backspace => {
                typed.pop();
            }
            Key::Ctrl('u') => typed.clear(),
            Key::Esc => self.back(),
            Key::Enter => {
                let (what, typed) = (*what, std::mem::take(typed).trim().to_owned());
                self.back();
                return match what {
                    Wanted::Label => Some(Effect::Label(e, Some(typed).filter(|t| !t.is_empty()))),
                    Wanted::Folder if typed.is_empty() => None,
                    Wanted::Folder => Some(Effect::Export(e, typed)),
                };
            }
            _ => {}
        }
        None
    }

    /// Work ended.
    pub fn answer(&mut self, answer: Answer) -> Option<Effect> {
        match answer {
            Answer::Looked(row, Ok(look)) => {
                self.looks.insert(row, look);
            }
            Answer::Patched(row, path, Ok(text)) => {
                if let Some(l) = self.looks.get_mut(&row) {
                    l.patches.insert(path, text);
                }
            }
            Answer::Marked(row, Ok(marks)) => {
                if let Some(l) = self.looks.get_mut(&row) {
                    l.marks = Some(marks);
                }
            }
            Answer::Looked(row, Err(e)) => self.gave_up(format!("look {row}"), &e),
            Answer::Patched(row, path, Err(e)) => {
                self.gave_up(format!("patch {row} {}", path.to_str_lossy()), &e);
            }
            // What cannot be planned says so when it is asked for.
            Answer::Marked(row, Err(e)) if e.code != Code::Interrupted => {
                self.failed.insert(format!("marks {row}"));
            }
            Answer::Marked(_, Err(_)) => {}
            Answer::Planned { ask, choice, straight, out: Ok(out) } => {
                let whole = !out.partial && out.items.iter().any(|i| i.action.changes());
                if straight && whole && !self.dry_run {
                    return Some(Effect::Apply { ask, choice, plan: out.plan });
                }
                if matches!(self.screen(), Screen::Plan { .. }) {
                    self.screens.pop();
                }
                self.screens.push(Screen::Plan { ask, choice, out, scroll: 0 });
            }
            Answer::Applied { ask, out: Ok(out), .. } => {
                self.home();
                self.done.push(out.clone());
                self.screens.push(Screen::Done { ask, out, scroll: 0 });
                return Some(Effect::Reload);
            }
            Answer::Hunked(Ok(out)) => match out.items.iter().find(|i| !i.hunks.is_empty()) {
                None => self.tell("This file is already as it was then: there is no hunk to choose.", false),
                Some(i) => {
                    let path = i.path.clone();
                    self.screens.push(Screen::Hunks { path, out, at: 0, chosen: BTreeSet::new() });
                }
            },
            Answer::Entries(Ok(list)) => self.take(list),
            Answer::Told(Ok(text)) => {
                self.tell(text, false);
                return Some(Effect::Reload);
            }
            Answer::Applied { ask, choice, out: Err(e) } if e.code == Code::PlanChanged => {
                self.tell("Something changed meanwhile; nothing was done. This is the new plan.", true);
                return Some(Effect::Plan { ask, choice, straight: false });
            }
            Answer::Planned { out: Err(e), .. }
            | Answer::Applied { out: Err(e), .. }
            | Answer::Hunked(Err(e))
            | Answer::Entries(Err(e))
            | Answer::Told(Err(e)) => self.failure(&e),
        }
        None
    }

    fn failure(&mut self, e: &backstitch::error::Error) {
        let hint = crate::problem::hint(e).map(|h| format!(" {}", text::sentence(&h))).unwrap_or_default();
        self.tell(format!("{}{hint}", text::sentence(&e.message)), true);
    }

    fn gave_up(&mut self, name: String, e: &backstitch::error::Error) {
        // A key came between: it is asked for again.
        if e.code != Code::Interrupted {
            self.failed.insert(name);
            self.failure(e);
        }
    }
}

fn idle_name(e: &Effect) -> String {
    match e {
        Effect::Look(e) => format!("look {}", e.row),
        Effect::Patch(e, path) => format!("patch {} {}", e.row, path.to_str_lossy()),
        Effect::Marks(e) => format!("marks {}", e.row),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;

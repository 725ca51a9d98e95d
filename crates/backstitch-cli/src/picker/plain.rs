//! The same as numbered questions: nothing moves on the terminal, and every line is read once.

use backstitch::{
    error::{Code, Error, Result},
    operation::Outcome,
    undo::OnConflict,
};
use bstr::{BString, ByteSlice};

use super::{
    timeline::Entry,
    value::{Answer, Ask, Choice, Effect, Look, Offers},
    view::{hunk_head, hunk_lines},
    work::Desk,
};
use crate::{ask, command::restore, context::Context, problem, text, ui::style};

/// How many entries are told at once.
const PAGE: usize = 20;

struct Plain<'a> {
    cx: &'a Context,
    desk: &'a Desk<'a>,
    done: Vec<Outcome>,
}

/// Runs until the person ends it; what was done, oldest first.
pub fn run(cx: &Context, desk: &Desk<'_>) -> Result<Vec<Outcome>> {
    let mut p = Plain { cx, desk, done: Vec::new() };
    p.list()?;
    Ok(p.done)
}

impl Plain<'_> {
    fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.cx.ui.line(text)
    }

    fn ask(&self, question: &str) -> Result<String> {
        self.cx.progress.clear();
        self.cx.ui.finish()?;
        let answer = ask::line(&format!("{question} "), &self.cx.interrupt)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn work(&self, effect: Effect) -> Answer {
        self.desk.run(effect, &self.cx.control())
    }

    /// An error that the person can do something about is told, and the questions go on.
    fn survive<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(v) => Ok(Some(v)),
            Err(e) if self.cx.interrupt.load(std::sync::atomic::Ordering::Relaxed) => Err(e),
            Err(e) => {
                self.cx.ui.finish()?;
                problem::report(&self.cx.ui, &e);
                Ok(None)
            }
        }
    }

    fn list(&mut self) -> Result<()> {
        let mut filter = String::new();
        loop {
            let mut all = self.desk.entries()?;
            all.retain(|e| !e.left && e.matches(&filter));
            if all.is_empty() && filter.is_empty() {
                return Err(Error::new(Code::NoSuchCheckpoint, "there is no turn to take back")
                    .hint("`backstitch list --all` shows every checkpoint"));
            }
            if all.is_empty() {
                self.line(format!("Nothing holds {:?}.", text::tame(&filter)))?;
            }
            for (n, e) in all.iter().take(PAGE).enumerate() {
                self.line(format!("{}. {}", n + 1, told(e)))?;
            }
            if all.len() > PAGE {
                self.line(format!("{} older ones; words find them", all.len() - PAGE))?;
            }
            let answer = self.ask("Which one? [a number, words to look for, u: undo, Enter: end]")?;
            match answer.as_str() {
                "" if !filter.is_empty() => filter.clear(),
                "" | "q" => return Ok(()),
                "u" => self.change(Ask::Undo(None))?,
                _ => match answer.parse::<usize>() {
                    Ok(n) if (1..=all.len().min(PAGE)).contains(&n) => self.entry(&all[n - 1])?,
                    Ok(n) => self.line(format!("There is no number {n} in the list."))?,
                    Err(_) => filter = answer,
                },
            }
        }
    }

    fn entry(&mut self, e: &Entry) -> Result<()> {
        let Answer::Looked(_, look) = self.work(Effect::Look(e.clone())) else { return Ok(()) };
        let Some(look) = self.survive(look)? else { return Ok(()) };
        self.line(self.cx.ui.paint(style::BOLD, &told(e)))?;
        self.files(&look)?;
        let turn = [
            ("take back this turn and all after it", 'r'),
            ("take back only this turn", 'v'),
            ("put everything back to what it was before", 'c'),
        ];
        let row = [("put everything back to what it was then", 'c')];
        let actions = if e.turn.is_some() { &turn[..] } else { &row[..] };
        let more = [
            ("put one file back", 'f'),
            ("choose hunks of one file", 'h'),
            ("show the changes of one file", 'd'),
            ("export this state into a folder", 'e'),
            (if e.pinned { "unpin" } else { "pin" }, 'p'),
            ("label", 'l'),
        ];
        let all: Vec<_> = actions.iter().chain(&more).collect();
        for (n, (words, _)) in all.iter().enumerate() {
            self.line(format!("{}. {words}", n + 1))?;
        }
        loop {
            let answer = self.ask("What shall be done? [a number, Enter: back]")?;
            if answer.is_empty() || answer == "q" {
                return Ok(());
            }
            let Some((_, what)) = answer.parse::<usize>().ok().and_then(|n| all.get(n.checked_sub(1)?))
            else {
                self.line(format!("{:?} is no number in the list.", text::tame(&answer)))?;
                continue;
            };
            return self.act(*what, e, &look);
        }
    }

    fn act(&mut self, what: char, e: &Entry, look: &Look) -> Result<()> {
        let whole = Ask::Restore { entry: e.clone(), paths: Vec::new(), hunks: None };
        match what {
            'r' => self.change(Ask::Rewind(e.clone())),
            'v' => self.change(Ask::Revert(e.clone())),
            'c' => self.change(whole),
            'p' => self.say(Effect::Pin(e.clone(), !e.pinned)),
            'l' => {
                let label = self.ask("Which label? [Enter: none]")?;
                self.say(Effect::Label(e.clone(), Some(label).filter(|l| !l.is_empty())))
            }
            'e' => match self.ask("Into which new folder? [Enter: nowhere]")? {
                to if to.is_empty() => Ok(()),
                to => self.say(Effect::Export(e.clone(), to)),
            },
            _ => {
                let Some(at) = self.file(look)? else { return Ok(()) };
                let c = &look.changes[at];
                match what {
                    'f' => {
                        let paths =
                            [Some(c.path.clone()), c.old_path.clone()].into_iter().flatten().collect();
                        self.change(Ask::Restore { entry: e.clone(), paths, hunks: None })
                    }
                    'h' => self.hunks(e, &c.path),
                    _ => self.patch(e, &c.path),
                }
            }
        }
    }

    fn say(&self, effect: Effect) -> Result<()> {
        if let Answer::Told(told) = self.work(effect)
            && let Some(text) = self.survive(told)?
        {
            self.line(text::tame(&text))?;
        }
        Ok(())
    }

    fn files(&self, look: &Look) -> Result<()> {
        if look.changes.is_empty() {
            self.line("No file was changed.")?;
        }
        for c in look.changes.iter().take(PAGE) {
            let word = match c.status.as_str() {
                "A" => "new",
                "D" => "deleted",
                "R" => "moved",
                "T" => "another type",
                _ => "changed",
            };
            let lines = match (c.added, c.removed) {
                (Some(a), Some(r)) => format!(", {} added, {r} removed", text::count(a, "line")),
                _ => String::new(),
            };
            self.line(format!("{word}: {}{lines}", text::name(&c.path)))?;
        }
        if look.changes.len() > PAGE {
            self.line(format!("and {} more", look.changes.len() - PAGE))?;
        }
        for (p, why) in look.not_covered.iter().take(PAGE) {
            self.line(format!("not covered: {} ({})", text::name(p), text::tame(why)))?;
        }
        Ok(())
    }

    fn file(&self, look: &Look) -> Result<Option<usize>> {
        for (n, c) in look.changes.iter().enumerate() {
            self.line(format!("{}. {}", n + 1, text::name(&c.path)))?;
        }
        let answer = self.ask("Which file? [a number, Enter: none]")?;
        Ok(answer.parse::<usize>().ok().and_then(|n| n.checked_sub(1)).filter(|n| *n < look.changes.len()))
    }

    fn patch(&self, e: &Entry, path: &BString) -> Result<()> {
        if let Answer::Patched(.., patch) = self.work(Effect::Patch(e.clone(), path.clone()))
            && let Some(text) = self.survive(patch)?
        {
            for l in text.lines() {
                self.line(text::tame(&l.to_str_lossy().replace('\t', "    ")))?;
            }
        }
        Ok(())
    }

    fn hunks(&mut self, e: &Entry, path: &BString) -> Result<()> {
        let Answer::Hunked(out) = self.work(Effect::Hunks(e.clone(), path.clone())) else { return Ok(()) };
        let Some(out) = self.survive(out)? else { return Ok(()) };
        let hunks: Vec<_> = out.items.iter().flat_map(|i| &i.hunks).collect();
        if hunks.is_empty() {
            return self.line("This file is already as it was then: there is no hunk to choose.");
        }
        for (n, h) in hunks.iter().enumerate() {
            self.line(format!("{}. {}", n + 1, hunk_head(h)))?;
            for (mark, l) in hunk_lines(h) {
                self.line(format!("{mark}{l}"))?;
            }
        }
        let answer = self.ask("Which hunks? [numbers, Enter: none]")?;
        let numbers = answer.split([',', ' ']).filter_map(|w| w.parse::<usize>().ok()?.checked_sub(1));
        let chosen: Vec<String> = numbers.filter_map(|n| hunks.get(n)).map(|h| h.id.clone()).collect();
        if chosen.is_empty() {
            return self.line("Nothing was chosen; nothing was changed.");
        }
        self.change(Ask::Restore { entry: e.clone(), paths: vec![path.clone()], hunks: Some(chosen) })
    }

    /// Shows a plan, asks, and carries it out by its digest.
    fn change(&mut self, ask: Ask) -> Result<()> {
        let mut choice = Choice::of(&self.desk.options);
        loop {
            let effect = Effect::Plan { ask: ask.clone(), choice: choice.clone(), straight: false };
            let Answer::Planned { out, .. } = self.work(effect) else { return Ok(()) };
            let Some(out) = self.survive(out)? else { return Ok(()) };
            self.line(self.cx.ui.paint(style::BOLD, &ask.title()))?;
            restore::tell(&self.cx.ui, &out, "")?;
            let nothing = !out.items.iter().any(|i| i.action.changes()) && out.rows.is_empty();
            if self.desk.options.dry_run {
                return self.line("--dry-run: plans are shown, and not carried out.");
            }
            let offers = Offers::of(&out, &choice);
            if nothing && offers == Offers::default() {
                return Ok(());
            }
            let mut more = String::new();
            for (on, words) in [
                (offers.conflicts, ", k: keep, merge or overwrite what others changed"),
                (offers.outside, ", o: files outside the workspace, too, or not"),
                (offers.unattributed, ", a: what changed outside tool calls, too, or not"),
            ] {
                more.push_str(if on { words } else { "" });
            }
            match self.ask(&format!("Carry out this plan? [y/N{more}]"))?.to_lowercase().as_str() {
                "y" | "yes" => {
                    let effect = Effect::Apply { ask: ask.clone(), choice, plan: out.plan };
                    let Answer::Applied { out, .. } = self.work(effect) else { return Ok(()) };
                    if let Some(out) = self.survive(out)? {
                        self.cx.progress.clear();
                        restore::tell(&self.cx.ui, &out, "undo")?;
                        self.done.push(out);
                        return self.after(&ask);
                    }
                    return Ok(());
                }
                "k" if offers.conflicts => {
                    choice.on_conflict = match choice.on_conflict {
                        OnConflict::Keep | OnConflict::Refuse => OnConflict::Merge,
                        OnConflict::Merge => OnConflict::Overwrite,
                        OnConflict::Overwrite => OnConflict::Keep,
                    }
                }
                "o" if offers.outside => choice.outside = !choice.outside,
                "a" if offers.unattributed => choice.unattributed = !choice.unattributed,
                _ => return self.line("Nothing was changed."),
            }
        }
    }

    fn after(&mut self, ask: &Ask) -> Result<()> {
        if matches!(ask, Ask::Undo(_)) {
            return Ok(());
        }
        let operation = self.done.last().and_then(|o| o.operation.clone());
        match self.ask("Is it as you want it? [Enter: yes, u: undo it]")?.as_str() {
            "u" => self.change(Ask::Undo(operation)),
            _ => Ok(()),
        }
    }
}

/// An entry in one line.
fn told(e: &Entry) -> String {
    let size = e.size.map_or("still open".to_owned(), |s| s.line());
    let marks = if e.marks.is_empty() { String::new() } else { format!(", {}", e.marks.join(", ")) };
    let words = if e.headline.is_empty() { String::new() } else { format!(": {}", e.headline) };
    format!("{}, {}, {size}{marks}{words}", e.title(), text::age(e.when, false))
}

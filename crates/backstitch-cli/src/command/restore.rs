//! `restore`, and how plans and outcomes are told.

use backstitch::{
    error::{Code, Error, Result},
    operation::Outcome,
    plan::{Action, Item, Progress},
    restore::Options,
    view,
};

use bstr::ByteSlice;

use super::hunks;
use crate::{
    ask,
    context::{Context, PARTIAL},
    inside,
    table::{Change, Restore},
    text::{self, Cell},
    ui::{Ui, style},
};

/// Makes the covered paths what a checkpoint holds.
pub fn run(cx: &Context, a: Restore) -> Result<u8> {
    if a.hunks && !a.change.dry_run && !cx.ui.can_ask {
        return Err(Error::new(Code::Usage, "--hunks asks, and there is nobody to ask")
            .hint("`--hunks --dry-run` lists the hunks, `--hunk ID` restores one; nothing was changed"));
    }
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let target = cx.find(&rows, &a.checkpoint)?;
    let (paths, globs, busy) = inside::change(&ws, &cx.folder, &a.change, a.outside)?;
    let Change { dry_run, no_delete, no_safety, plan, privileged, yes, .. } = a.change;
    let mut options = Options {
        paths,
        globs,
        dry_run,
        no_delete,
        no_safety,
        busy,
        plan,
        replaced: a.replaced,
        privileged,
        force: a.force,
        outside: a.outside,
        session: cx.surroundings.session.clone(),
        hunks: (!a.hunk.is_empty()).then_some(a.hunk),
        list_hunks: a.hunks,
        git_state: a.git_state,
    };
    if a.hunks && !dry_run {
        let preview = ws.restore(target, &Options { dry_run: true, ..options.clone() }, &cx.control())?;
        cx.progress.clear();
        let chosen = hunks::ask(cx, &preview.items)?;
        if chosen.is_empty() {
            cx.ui.note("Nothing was chosen; nothing was changed.");
            return Ok(0);
        }
        // What is named by its id is what was looked at.
        options.hunks = Some(chosen);
        options.plan = None;
        options.list_hunks = false;
        let out = ws.restore(target, &options, &cx.control())?;
        cx.progress.stop();
        return finish(&cx.ui, &out, "undo");
    }
    // Who names a plan has seen it.
    if cx.ui.can_ask && !yes && !dry_run && options.plan.is_none() {
        options.plan =
            agreed(cx, ws.restore(target, &Options { dry_run: true, ..options.clone() }, &cx.control())?)?;
    }
    let out = ws.restore(target, &options, &cx.control())?;
    cx.progress.stop();
    finish(&cx.ui, &out, "undo")
}

/// Shows a plan that overwrites or deletes something, and asks whether to go on. Gives the digest of what was agreed to;
/// none where there was nothing to ask about.
pub fn agreed(cx: &Context, preview: Outcome) -> Result<Option<String>> {
    cx.progress.clear();
    let overwrites = |i: &Item| matches!(i.action, Action::Overwrite | Action::Delete);
    if !preview.items.iter().any(overwrites) && preview.git_names().is_empty() {
        return Ok(None);
    }
    tell(&cx.ui, &preview, "")?;
    agree(cx)?;
    Ok(Some(preview.plan))
}

/// Asks whether to go on.
pub fn agree(cx: &Context) -> Result<()> {
    cx.ui.finish()?;
    if ask::yes("Carry out this plan?", &cx.interrupt)? {
        return Ok(());
    }
    Err(Error::new(Code::Interrupted, "not confirmed; nothing was changed").hint("--yes skips the question"))
}

/// Tells about an outcome; returns the exit code.
pub fn finish(ui: &Ui, out: &Outcome, back: &str) -> Result<u8> {
    if ui.json {
        ui.document(view::outcome(out))?;
    } else {
        tell(ui, out, back)?;
    }
    Ok(code(out))
}

/// The exit code of an outcome.
pub fn code(out: &Outcome) -> u8 {
    if out.partial { PARTIAL } else { 0 }
}

/// What is done to a path, in words.
pub fn verb(action: Action, planned: bool) -> &'static str {
    match (action, planned) {
        (Action::Create, true) => "create",
        (Action::Create, false) => "created",
        (Action::Overwrite, true) => "overwrite",
        (Action::Overwrite, false) => "overwritten",
        (Action::Delete, true) => "delete",
        (Action::Delete, false) => "deleted",
        (Action::Mode, true) => "change the mode of",
        (Action::Mode, false) => "mode changed",
        (Action::Mkdir, true) => "create the folder",
        (Action::Mkdir, false) => "folder created",
        (Action::Rmdir, true) => "remove the folder",
        (Action::Rmdir, false) => "folder removed",
        (Action::Keep, _) => "kept",
        (Action::Conflict, _) => "conflict",
        (Action::Skip, _) => "skipped",
    }
}

fn colour(i: &Item) -> &'static str {
    if i.result == Progress::Failed {
        return style::WARNING;
    }
    match i.action {
        Action::Create | Action::Mkdir => style::ADDED,
        Action::Delete | Action::Rmdir => style::REMOVED,
        Action::Overwrite | Action::Mode => style::CHANGED,
        Action::Conflict => style::WARNING,
        Action::Keep | Action::Skip => style::DIM,
    }
}

/// Reasons in words for people; the stable word stays visible.
pub fn why(reason: &str) -> String {
    if let Some(rest) = reason.strip_prefix("not-covered-then:") {
        return format!("not covered then: {rest}");
    }
    let said = match reason {
        "already" => "already as wanted",
        "no-delete" => "--no-delete",
        "no-room" => "no room for its bytes above the floor of free disk space",
        "no-safety" => "no listed checkpoint holds its bytes",
        "changed" => "changed since by somebody else",
        "changed-after" => "changed by somebody else right after",
        "shared" => "another session's tool ran at the same time",
        "changed-between" => "changed by somebody else between two of the session's changes",
        "unattributed" => "changed outside the session's tool calls; --include-unattributed takes it back",
        "not-chosen" => "not chosen",
        "part" => "in part",
        "merged" => "merged with what was changed since",
        "type" => "of another type now",
        "binary" => "changed since by somebody else, and not text that could be merged",
        "moved" => "moved by somebody else",
        "deleted-by-other" => "deleted since by somebody else",
        "outside" => "outside the workspace; --outside takes it along",
        "busy" => "open in an editor",
        "permission" => "no permission",
        "setid-dropped" => "setuid and setgid bits left out; --privileged restores them",
        "unlinked" => "was a hard link; the other names keep the old content",
        other => other,
    };
    said.to_owned()
}

/// What is done or would be done, in numbers.
pub fn headline(out: &Outcome) -> String {
    let count = |a: Action| {
        let counts = |i: &&Item| i.action == a && i.result != Progress::Failed;
        out.items.iter().filter(counts).count()
    };
    let parts: Vec<String> = Action::ALL
        .iter()
        .filter(|a| a.changes() && count(**a) > 0)
        .map(|a| match (count(*a), a) {
            (n, Action::Mkdir | Action::Rmdir) => {
                let folders = text::count(n as u64, "folder");
                match (out.dry_run, a) {
                    (true, a) => format!("{folders} to {}", noun(*a)),
                    (false, Action::Mkdir) => format!("{folders} created"),
                    (false, _) => format!("{folders} removed"),
                }
            }
            (n, a) if out.dry_run => format!("{n} to {}", noun(*a)),
            (n, a) => format!("{n} {}", verb(*a, false)),
        })
        .collect();
    let moved = match (out.rows.len(), out.rows_back) {
        (0, _) => None,
        (1, true) => Some("1 checkpoint back in the list".to_owned()),
        (n, true) => Some(format!("{n} checkpoints back in the list")),
        (1, false) => Some("1 checkpoint to the trash".to_owned()),
        (n, false) => Some(format!("{n} checkpoints to the trash")),
    };
    match (parts.is_empty(), out.dry_run) {
        (true, _) if moved.is_some() => moved.unwrap_or_default(),
        (true, _) if !out.git_names().is_empty() => "no file to change".to_owned(),
        (true, true) => "nothing to do".to_owned(),
        (true, false) => "nothing was to be done".to_owned(),
        (false, _) => parts.join(", "),
    }
}

/// Counts, then the items in groups: what is changed, what is left alone and why.
pub fn tell(ui: &Ui, out: &Outcome, back: &str) -> Result<()> {
    let failed = |i: &&Item| i.result == Progress::Failed;
    let changing: Vec<&Item> = out.items.iter().filter(|i| i.action.changes() && !failed(i)).collect();
    let failing: Vec<&Item> = out.items.iter().filter(|i| i.action.changes() && failed(i)).collect();
    if !out.takes_back.is_empty() {
        let one = if out.takes_back.len() == 1 { "turn" } else { "turns" };
        ui.line(format!("takes back {one} {}", text::numbers(&out.takes_back)))?;
    }
    ui.line(ui.paint(style::BOLD, &headline(out)))?;
    let most = if ui.verbose { usize::MAX } else { 30 };
    let group = |items: &[&Item], label: &dyn Fn(&Item) -> String| -> Result<()> {
        let rows: Vec<Vec<Cell>> = items
            .iter()
            .take(most)
            .map(|i| {
                let mut path = text::name(&i.path);
                if let Some(r) = i.reason.as_deref().filter(|r| !r.is_empty()) {
                    let to = i.moved_to.as_ref().map(|p| format!(" to {}", text::name(p)));
                    path.push_str(&format!("  ({}{})", text::tame(&why(r)), to.unwrap_or_default()));
                }
                vec![Cell::new(""), Cell::styled(label(i), colour(i)), Cell::new(path)]
            })
            .collect();
        ui.print(text::columns(&rows, None, ui.colour))?;
        for i in items.iter().take(most) {
            clashes(ui, i)?;
            hunks::list(ui, i)?;
        }
        if items.len() > most {
            ui.line(format!("  and {} more; -v lists them", items.len() - most))?;
        }
        Ok(())
    };
    group(&changing, &|i| verb(i.action, out.dry_run).to_owned())?;
    group(&failing, &|i| format!("not possible: {}", verb(i.action, true)))?;
    for action in [Action::Conflict, Action::Skip, Action::Keep] {
        let items: Vec<&Item> = out.items.iter().filter(|i| i.action == action).collect();
        if !items.is_empty() {
            group(&items, &|i| verb(i.action, out.dry_run).to_owned())?;
        }
    }
    git(ui, out)?;
    if out.dry_run {
        ui.line(format!("plan {}", out.plan))?;
    }
    ui.finish()?;
    if !out.dry_run {
        // Conflicts are in the list already.
        out.warnings.iter().filter(|w| !w.contains(" was left alone: ")).for_each(|w| ui.warn(w));
        if out.operation.is_some() && !back.is_empty() {
            ui.note(format!("take it back: backstitch {back}"));
        }
    }
    if out.dry_run
        && !back.is_empty()
        && (!changing.is_empty() || !out.rows.is_empty() || !out.git_names().is_empty())
    {
        ui.note("carry it out: the same command with --plan and this plan in place of --dry-run");
    }
    if out.partial {
        ui.note("Something was left as it is; the list says what and why.");
    }
    Ok(())
}

/// What happens to the user's repository.
fn git(ui: &Ui, out: &Outcome) -> Result<()> {
    let names = out.git_names();
    if !names.is_empty() {
        let verb = if out.dry_run { "to put back in .git" } else { "put back in .git" };
        let list: Vec<String> = names.iter().map(|n| text::tame(n)).collect();
        ui.line(format!("{verb}: {}", list.join(", ")))?;
    }
    if let Some(why) = out.git_conflict() {
        ui.line(format!("conflict  .git  ({})", text::tame(why)))?;
    }
    Ok(())
}

/// Both sides of what was changed twice, and stays.
fn clashes(ui: &Ui, i: &Item) -> Result<()> {
    const LINES: usize = 10;
    for c in &i.clashes {
        let name = text::name(&i.path);
        if c.what != "lines" {
            ui.line(format!(
                "  conflict in {name}: the {} {} stays, {} was wanted",
                c.what, c.present.text, c.wanted.text
            ))?;
            continue;
        }
        ui.line(format!("  conflict in {name}, line {}:", c.present.line))?;
        for (mark, colour, side) in
            [("stays ", style::ADDED, &c.present), ("wanted", style::REMOVED, &c.wanted)]
        {
            if side.count == 0 {
                ui.line(format!("    {mark} | (no line)"))?;
            }
            for l in side.text.lines().take(if ui.verbose { usize::MAX } else { LINES }) {
                let line = text::tame(&l.to_str_lossy());
                ui.line(format!("    {}", ui.paint(colour, &format!("{mark} | {line}"))))?;
            }
            if !ui.verbose && side.count > LINES as u64 {
                ui.line(format!("    {mark} | … {} lines in all", side.count))?;
            }
        }
    }
    Ok(())
}

fn noun(a: Action) -> &'static str {
    match a {
        Action::Mode => "change the mode of",
        Action::Mkdir => "create",
        Action::Rmdir => "remove",
        a => a.as_str(),
    }
}

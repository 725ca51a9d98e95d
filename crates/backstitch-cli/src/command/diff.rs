//! `diff`

use backstitch::{
    diff::{Change, Diff, Options, Status},
    error::{Code, Result},
    record::Checkpoint,
    view,
    workspace::Rows,
};
use bstr::ByteSlice;
use unicode_width::UnicodeWidthStr;

use crate::{
    context::Context,
    inside,
    patch::{self, Kind},
    table,
    text::{self, Cell},
    ui::{Ui, style},
};

/// Compares two rows, or a row with the folder.
pub fn run(cx: &Context, a: &table::Diff) -> Result<u8> {
    cx.ui.page();
    let ws = cx.workspace()?;
    let rows = cx.rows(&ws)?;
    let (from, to) = sides(cx, a, &rows)?;
    let options = Options {
        paths: inside::scope(&ws, &cx.folder, &a.paths)?,
        stat: a.stat || cx.ui.json,
        patch: a.patch,
        binary: false,
    };
    let d = ws.diff(Some(from), to, &options, &cx.control())?;
    cx.progress.stop();
    let ui = &cx.ui;
    if ui.json {
        ui.document(view::diff(&d))?;
        return Ok(0);
    }
    if a.patch {
        self::patch(ui, d.patch.as_deref().unwrap_or_default())?;
    } else if a.name_status {
        for c in &d.changes {
            let old = c.old_path.as_ref().map(|p| format!("\t{}", text::name(p))).unwrap_or_default();
            ui.line(format!("{}{old}\t{}", c.status.as_str(), text::name(&c.path)))?;
        }
    } else if a.stat {
        ui.print(stat(ui, &d.changes))?;
    } else {
        ui.print(listing(ui, &d.changes))?;
    }
    ui.finish()?;
    tell_uncovered(ui, &d);
    Ok(0)
}

fn sides<'a>(
    cx: &Context,
    a: &table::Diff,
    rows: &'a Rows,
) -> Result<(&'a Checkpoint, Option<&'a Checkpoint>)> {
    if let Some(n) = a.turn {
        let from = cx.find(rows, format!("prompt:{n}").as_ref())?;
        let after = cx.find(rows, format!("turn:{n}").as_ref());
        return match after {
            Ok(to) => Ok((from, Some(to))),
            // The turn is still running.
            Err(e) if e.code == Code::NoSuchCheckpoint => Ok((from, None)),
            Err(e) => Err(e),
        };
    }
    let from = match &a.from {
        Some(name) => cx.find(rows, name)?,
        None => cx.find(rows, "@".as_ref()).or_else(|e| rows.newest().ok_or(e))?,
    };
    let to = a.to.as_ref().map(|name| cx.find(rows, name)).transpose()?;
    Ok((from, to))
}

fn colour_of(s: Status) -> &'static str {
    match s {
        Status::Added => style::ADDED,
        Status::Deleted => style::REMOVED,
        _ => style::CHANGED,
    }
}

fn arrow(c: &Change) -> String {
    match &c.old_path {
        Some(old) => format!("{} → {}", text::name(old), text::name(&c.path)),
        None => text::name(&c.path),
    }
}

/// Letter, path, and what is special about it; then the counts.
pub fn listing(ui: &Ui, changes: &[Change]) -> String {
    let rows: Vec<Vec<Cell>> = changes
        .iter()
        .map(|c| {
            let mut special = Vec::new();
            if c.binary {
                special.push("Bin".to_owned());
            }
            if let Some((a, b)) = c.mode_change {
                special.push(format!("mode {a:04o} → {b:04o}"));
            }
            let mut row = vec![Cell::styled(c.status.as_str(), colour_of(c.status)), Cell::new(arrow(c))];
            if !special.is_empty() {
                row.push(Cell::styled(special.join(", "), style::DIM));
            }
            row
        })
        .collect();
    text::columns(&rows, None, ui.colour) + &total(changes) + "\n"
}

/// `3 files: +1 ~1 -1`.
fn total(changes: &[Change]) -> String {
    let mut s = backstitch::record::Summary::default();
    for c in changes {
        match c.status {
            Status::Added => s.added += 1,
            Status::Deleted => s.deleted += 1,
            Status::Renamed => s.renamed += 1,
            Status::Modified | Status::TypeChanged => s.modified += 1,
        }
    }
    s.line()
}

/// Path, count, and a bar in proportion.
fn stat(ui: &Ui, changes: &[Change]) -> String {
    let names: Vec<String> = changes.iter().map(arrow).collect();
    let width = ui.width().unwrap_or(100);
    let left = names.iter().map(|n| n.width()).max().unwrap_or(0).min(70);
    let left = if ui.terminal { left.min(width.saturating_sub(22).max(20)) } else { left };
    let lines = |c: &Change| c.added.unwrap_or(0) + c.removed.unwrap_or(0);
    let most = changes.iter().map(lines).max().unwrap_or(0);
    let digits = most.to_string().len().max(3);
    let room = width.saturating_sub(left + digits + 6).clamp(10, 60) as u64;
    let scale = |n: u64| if most <= room { n } else { (n * room).div_ceil(most) };
    let mut out = String::new();
    for (c, name) in changes.iter().zip(&names) {
        // On a terminal every bar begins at the same column.
        let name = if ui.terminal { text::tail(name, left) } else { name.clone() };
        let pad = " ".repeat(left.saturating_sub(name.width()));
        let right = if c.binary {
            format!("{:>digits$}", "Bin")
        } else {
            let bar = |sign: &str, n: Option<u64>, colour: &str| {
                let n = usize::try_from(scale(n.unwrap_or(0))).unwrap_or(0);
                ui.paint(if n > 0 { colour } else { "" }, &sign.repeat(n))
            };
            let plus = bar("+", c.added, style::ADDED);
            let minus = bar("-", c.removed, style::REMOVED);
            format!("{:>digits$} {plus}{minus}", lines(c))
        };
        out.push_str(format!(" {name}{pad} | {right}").trim_end());
        out.push('\n');
    }
    let (added, removed) =
        changes.iter().fold((0, 0), |(a, r), c| (a + c.added.unwrap_or(0), r + c.removed.unwrap_or(0)));
    if changes.is_empty() {
        return total(changes) + "\n";
    }
    out + &format!("{}; {} added, {} removed\n", total(changes), text::count(added, "line"), removed)
}

/// Lines of a patch, in colours where there are some; the words that changed within a line are set apart. A terminal is shown
/// control characters and does not obey them; anything else gets every byte as it is.
pub fn patch(ui: &Ui, bytes: &[u8]) -> Result<()> {
    if !ui.colour && !ui.terminal {
        return ui.raw(bytes);
    }
    let text: Vec<&[u8]> = bytes.lines_with_terminator().collect();
    let bare: Vec<&[u8]> = text.iter().map(|l| l.strip_suffix(b"\n").unwrap_or(l)).collect();
    let all = match ui.colour {
        true => patch::lines(&bare, 0..bare.len()),
        false => patch::lines(&bare, 0..0),
    };
    for ((line, bare), l) in text.iter().zip(&bare).zip(&all) {
        let colour = match l.kind {
            Kind::Head => style::BOLD,
            Kind::Place => style::CHANGED,
            Kind::Added => style::ADDED,
            Kind::Removed => style::REMOVED,
            Kind::Same | Kind::Remark => "",
        };
        let colour = if ui.colour { colour } else { "" };
        ui.print(colour)?;
        for (piece, changed) in patch::pieces(bare, &l.changed) {
            ui.print(if changed { style::WORD } else { "" })?;
            match ui.terminal {
                true => ui.print(text::tame_line(&piece.to_str_lossy()))?,
                false => ui.raw(piece)?,
            }
            ui.print(if changed { style::NO_WORD } else { "" })?;
        }
        ui.print(if colour.is_empty() { "" } else { "\x1b[0m" })?;
        ui.raw(&line[bare.len()..])?;
    }
    Ok(())
}

/// Paths of which one side does not speak are no changes, but they are named.
fn tell_uncovered(ui: &Ui, d: &Diff) {
    if d.not_covered.is_empty() {
        return;
    }
    let n = text::count(d.not_covered.len() as u64, "path");
    let more = if ui.verbose { "" } else { "; -v lists them" };
    ui.note(format!("not compared: {n} that one side does not cover{more}"));
    if ui.verbose {
        for (path, why) in &d.not_covered {
            ui.note(format!("  {} ({why})", text::name(path)));
        }
    }
}

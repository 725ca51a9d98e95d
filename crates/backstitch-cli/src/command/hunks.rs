//! Parts of a restore: listing them, and choosing them one by one.

use backstitch::{error::Result, hunks::Hunk, plan::Item};
use bstr::ByteSlice;

use crate::{
    ask,
    context::Context,
    text,
    ui::{Ui, style},
};

const HELP: &str = "y - restore this one
n - leave it as it is
a - restore this one and all later ones of this path
d - leave this one and all later ones of this path
q - leave this one and all that follow
? - this text";

/// The lines of a part, as in a unified diff.
fn show(ui: &Ui, h: &Hunk) -> Result<()> {
    match h.what {
        "whole" => return Ok(()),
        "mode" => return ui.line(format!("  mode {} → {}", h.present.text, h.wanted.text)),
        _ => {}
    }
    let (p, w) = (&h.present, &h.wanted);
    let at = format!("  @@ -{},{} +{},{} @@", p.line, p.count, w.line, w.count);
    ui.line(ui.paint(style::CHANGED, &at))?;
    for (mark, colour, side) in [("-", style::REMOVED, p), ("+", style::ADDED, w)] {
        for l in side.text.lines() {
            ui.line(ui.paint(colour, &format!("  {mark}{}", text::tame(&l.to_str_lossy()))))?;
        }
    }
    Ok(())
}

/// The parts of an item with their ids.
pub fn list(ui: &Ui, i: &Item) -> Result<()> {
    for h in &i.hunks {
        ui.line(format!("  hunk {} of {}", ui.paint(style::ID, &h.id), text::name(&i.path)))?;
        show(ui, h)?;
    }
    Ok(())
}

/// Asks about every part; the ids of those that were chosen.
pub fn ask(cx: &Context, items: &[Item]) -> Result<Vec<String>> {
    let mut chosen = Vec::new();
    for i in items {
        // What was said about all that follows of this path.
        let mut rest: Option<bool> = None;
        for (n, h) in i.hunks.iter().enumerate() {
            let yes = loop {
                if let Some(r) = rest {
                    break r;
                }
                let name = text::name(&i.path);
                cx.ui.line(cx.ui.paint(style::BOLD, &format!("{} {name}", i.action.as_str())))?;
                show(&cx.ui, h)?;
                cx.ui.finish()?;
                let question = match h.what {
                    "whole" => "Restore this path".to_owned(),
                    _ => format!("({}/{}) Restore this hunk", n + 1, i.hunks.len()),
                };
                let answer = ask::line(&format!("{question} [y,n,q,a,d,?]? "), &cx.interrupt)?;
                match answer.to_ascii_lowercase().as_slice() {
                    b"y" | b"yes" => break true,
                    b"n" | b"no" | b"" => break false,
                    b"a" => rest = Some(true),
                    b"d" => rest = Some(false),
                    b"q" => return Ok(chosen),
                    _ => cx.ui.line(HELP)?,
                }
            };
            if yes {
                chosen.push(h.id.clone());
            }
        }
    }
    Ok(chosen)
}

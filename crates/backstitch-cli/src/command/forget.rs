//! `forget`

use backstitch::{
    error::{Code, Error, Result},
    forget::{Options, Unreached},
    settings::show_bytes,
};
use bstr::ByteSlice;

use crate::{
    ask,
    context::{Context, PARTIAL},
    inside,
    table::Forget,
    text,
};

/// Removes paths and their bytes from everything that is recorded.
pub fn run(cx: &Context, a: &Forget) -> Result<u8> {
    let ws = cx.workspace()?;
    let paths = inside::anywhere(&ws, &cx.folder, &a.paths)?;
    let mut options = Options { paths, dry_run: true };
    if !a.dry_run {
        cx.ui.for_good("the paths from every checkpoint");
        if cx.ui.can_ask && !a.yes {
            let told = ws.forget(&options, &cx.control())?;
            cx.progress.stop();
            let rows = text::count(told.rows.len() as u64, "checkpoint");
            let question = format!("{rows} will be written anew. Remove?");
            if !ask::yes(&question, &cx.interrupt)? {
                return Err(Error::new(Code::Interrupted, "nothing was changed"));
            }
        }
        options.dry_run = false;
    }
    let out = ws.forget(&options, &cx.control())?;
    cx.progress.stop();
    let code = if out.is_clean() { 0 } else { PARTIAL };
    if cx.ui.json {
        cx.ui.document(out.json())?;
        return Ok(code);
    }
    let ui = &cx.ui;
    let would = if a.dry_run { "would be " } else { "" };
    ui.line(format!(
        "{} and {} {would}written anew; {} ({}) {would}removed",
        text::count(out.rows.len() as u64, "checkpoint"),
        text::count(out.operations.len() as u64, "operation"),
        text::count(out.contents, "content"),
        show_bytes(out.bytes),
    ))?;
    if !out.unreached.is_empty() {
        ui.line("not reached:")?;
    }
    for u in &out.unreached {
        ui.line(format!("  {}", line(u)))?;
    }
    ui.finish()?;
    for p in &out.present {
        let name = text::name(p);
        ui.note(format!(
            "{name} is still in the folder: the next checkpoint records it again unless `exclude` names it."
        ));
    }
    if !out.operations.is_empty() {
        ui.note("undo of these operations leaves the paths alone, and says so.");
    }
    Ok(code)
}

fn line(u: &Unreached) -> String {
    let path = match &u.path {
        Some(p) => format!("{}: ", text::name(p.as_bstr())),
        None => String::new(),
    };
    let rows = if u.rows.is_empty() { String::new() } else { format!(" ({})", u.rows.join(", ")) };
    format!("{path}{}{rows}", text::tame(&u.detail))
}

//! `gc`

use backstitch::{error::Result, paths, settings::show_bytes};
use bstr::ByteSlice;

use crate::{
    context::{Context, PARTIAL},
    table::Gc,
    text,
};

/// Frees what nothing needs.
pub fn run(cx: &Context, a: &Gc) -> Result<u8> {
    if a.auto {
        // Away from the terminal and behind those who wait; either may fail and changes nothing else. Not last of all: on a
        // busy machine it would never end, and everybody would go through more packs with each turn.
        let _ = rustix::process::setsid();
        let _ = rustix::process::nice(10);
    }
    let ws = cx.workspace()?;
    let done = match a.auto {
        true => ws.maintain(&cx.control())?,
        false => Some(ws.gc(a.dry_run, &cx.control())?),
    };
    cx.progress.stop();
    let Some(done) = done else { return Ok(0) };
    let code = if done.is_partial() { PARTIAL } else { 0 };
    if cx.ui.json {
        cx.ui.document(done.to_json())?;
        return Ok(code);
    }
    let rows = match done.rows {
        0 => String::new(),
        n => format!(" and {} of the trash", text::count(n, "checkpoint")),
    };
    let verb = if a.dry_run { "would be freed" } else { "freed" };
    let what = text::count(done.swept.garbage_objects, "object");
    cx.ui.line(format!("{} {verb} ({what}{rows})", show_bytes(done.freed)))?;
    let (before, after) = done.swept.packs;
    if before != after {
        cx.ui.line(format!("{} become {after}", text::count(before, "pack")))?;
    }
    cx.ui.line(format!("the store takes {}", show_bytes(done.used)))?;
    cx.ui.finish()?;
    if a.dry_run && done.freed > 0 {
        cx.ui.note("carry it out: backstitch gc");
    }
    for (path, why) in &done.swept.left {
        cx.ui.warn(&format!("{} was left as it is: {why}", text::tame(&paths::bytes(path).to_str_lossy())));
    }
    Ok(code)
}

//! `stores`, `relink`, `enable`, `disable`

use backstitch::{
    error::{Code, Error, Result},
    paths,
    settings::show_bytes,
    stores,
    workspace::{Workspace, incarnation},
};
use bstr::ByteSlice;
use serde_json::{Value, json};

use crate::{
    context::Context,
    table::{Relink, StoreNames},
    text::{self, Cell},
    ui::style,
};

/// Records a workspace again, or no longer.
pub fn switch(cx: &Context, on: bool) -> Result<u8> {
    let mut ws = cx.workspace()?;
    ws.set_enabled(on)?;
    let reason = ws.disabled();
    if cx.ui.json {
        let workspace = paths::bytes(ws.root()).to_str_lossy();
        cx.ui.document(json!({"workspace": workspace, "enabled": reason.is_none(), "reason": reason}))?;
        return Ok(0);
    }
    let root = text::name(paths::bytes(ws.root()));
    match &reason {
        None => cx.ui.line(format!("recording is on for {root}"))?,
        Some(why) => cx.ui.line(format!("recording is off for {root}: {}", text::tame(why)))?,
    }
    cx.ui.finish()?;
    if !on {
        cx.ui.note("switch it on again: backstitch enable");
    }
    Ok(0)
}

/// All stores.
pub fn list(cx: &Context) -> Result<u8> {
    let all = stores::stores_list(&cx.surroundings)?;
    if cx.ui.json {
        cx.ui.document(json!({"stores": all}))?;
        return Ok(0);
    }
    let string = |v: &Value, k: &str| v.get(k).and_then(Value::as_str).map(str::to_owned);
    let table: Vec<Vec<Cell>> = all
        .iter()
        .map(|s| {
            let dir = string(s, "dir").unwrap_or_default();
            let name = string(s, "name").unwrap_or_else(|| dir.rsplit('/').next().unwrap_or("").to_owned());
            let bytes = s.get("bytes").and_then(Value::as_u64).map_or("?".to_owned(), show_bytes);
            let rows = s
                .get("checkpoints")
                .and_then(Value::as_u64)
                .map_or("?".to_owned(), |n| text::count(n, "checkpoint"));
            let mut about = string(s, "workspace").unwrap_or_default();
            if s.get("exists").and_then(Value::as_bool) == Some(false) {
                about.push_str(" (not there)");
            }
            if let Some(e) = string(s, "error") {
                about = format!("[{e}] {about}");
            }
            vec![
                Cell::styled(text::tame(&name), style::ID),
                Cell::new(bytes).right(),
                Cell::new(rows).right(),
                Cell::new(text::tame(about.trim())),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, cx.ui.width(), cx.ui.colour))?;
    if all.is_empty() {
        cx.ui.note("No store is below this base folder yet.");
    }
    Ok(0)
}

/// Removes stores for good. All names are checked before anything is removed.
pub fn remove(cx: &Context, a: &StoreNames, purge: bool) -> Result<u8> {
    // A damaged store must not stand in the way of removing it.
    let present = Workspace::open(&cx.folder, cx.surroundings.clone()).ok();
    let present = present.as_ref().and_then(|ws| ws.store_dir().file_name()).map(|n| n.to_string_lossy());
    for name in &a.names {
        if !purge && present.as_deref() == Some(name.as_str()) {
            return Err(Error::new(Code::Conflict, format!("{name} is the store of the present workspace"))
                .at(name)
                .hint("`backstitch stores purge` removes it all the same; nothing was removed"));
        }
        let dir = cx.surroundings.store_base.join("stores").join(name);
        if !name.contains('/') && dir.symlink_metadata().is_err() {
            return Err(Error::new(Code::NoSuchStore, format!("there is no store {name:?}"))
                .at(&dir)
                .hint("`backstitch stores list` shows all; nothing was removed"));
        }
    }
    cx.warn_for_good(&format!("{} and all that is recorded in it", a.names.join(", ")), a.yes)?;
    let mut freed = 0;
    for name in &a.names {
        freed += stores::stores_delete(&cx.surroundings, name, purge)?;
    }
    if cx.ui.json {
        cx.ui.document(json!({"deleted": a.names, "bytes": freed}))?;
    } else {
        for name in &a.names {
            cx.ui.line(format!("{} removed", cx.ui.paint(style::ID, name)))?;
        }
        cx.ui.line(format!("{} freed", show_bytes(freed)))?;
    }
    Ok(0)
}

/// Attaches the store of a folder that was moved here.
pub fn relink(cx: &Context, a: &Relink) -> Result<u8> {
    let mut ws = cx.workspace()?;
    ws.relink(&a.old)?;
    let rows = ws.rows()?;
    let count = rows.all.len() as u64;
    if cx.ui.json {
        cx.ui.document(json!({
            "workspace": paths::bytes(ws.root()).to_str_lossy(),
            "store": paths::bytes(ws.store_dir()).to_str_lossy(),
            "checkpoints": count,
        }))?;
    } else {
        let root = text::name(paths::bytes(ws.root()));
        cx.ui.line(format!("{} attached to {root}", text::count(count, "checkpoint")))?;
        cx.ui.finish()?;
        let now = incarnation(ws.root())?;
        if rows.newest().is_some_and(|c| c.record.incarnation != now) {
            cx.ui.note(
                "hint: this is not the same folder, only its content: `restore` wants to hear --replaced.",
            );
        }
    }
    Ok(0)
}

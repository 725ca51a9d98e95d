//! `status`, `verify`, `doctor`

use backstitch::{
    error::{Code, Result},
    settings::show_bytes,
};
use serde_json::Value;

use crate::{
    context::{Context, PARTIAL},
    table::{Doctor, Verify},
    text::{self, Cell},
    ui::style,
};

fn string<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or("")
}

fn number(v: &Value, key: &str) -> u64 {
    v.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is(v: &Value, key: &str) -> bool {
    v.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// How things stand.
pub fn status(cx: &Context) -> Result<u8> {
    let ws = cx.workspace()?;
    let v = ws.status()?;
    if cx.ui.json {
        cx.ui.document(v)?;
        return Ok(0);
    }
    let ui = &cx.ui;
    let mut facts: Vec<(&str, String)> =
        vec![("workspace", text::tame(string(&v, "workspace"))), ("store", text::tame(string(&v, "store")))];
    if !is(&v, "exists") {
        // A warning, such as that the folder was moved, has a better advice.
        let advice = match list(&v, "warnings").is_empty() {
            true => "; `backstitch checkpoint` records the folder",
            false => "",
        };
        facts.push(("", format!("nothing is recorded yet{advice}")));
    }
    facts.push((
        "recording",
        match v.get("reason").and_then(Value::as_str) {
            None => "on".to_owned(),
            Some(why) => format!("off: {}", text::tame(why)),
        },
    ));
    facts.push((
        "scope",
        match string(&v, "scope") {
            "touched" => {
                "touched: this folder is too wide to be covered whole; only named files are recorded"
                    .to_owned()
            }
            other => text::tame(other),
        },
    ));
    let (used, budget) = (number(&v, "used_bytes"), number(&v, "budget_bytes"));
    facts.push(("size", format!("{} of {}", show_bytes(used), show_bytes(budget))));
    let sessions = text::count(number(&v, "sessions"), "session");
    facts.push(("checkpoints", format!("{} in {sessions}", number(&v, "checkpoints"))));
    if let Some(last) = v.get("last").filter(|l| l.is_object()) {
        let label = last.get("label").and_then(Value::as_str).map(|l| format!(" {}", text::tame(l)));
        let created = string(last, "created");
        let age = created.parse::<jiff::Timestamp>().map(|t| text::age(t.as_millisecond(), ui.verbose));
        let age = age.unwrap_or_else(|_| created.to_owned());
        let label = label.unwrap_or_default();
        facts.push(("last", format!("{} {}{label} ({age})", string(last, "id"), string(last, "kind"))));
    }
    if let Some(state) = v.get("git").filter(|g| g.is_object()) {
        facts.push(("git", super::show::git(state)));
    }
    let running = v.get("in_flight").filter(|x| !x.is_null());
    facts.push((
        "operation",
        match running {
            None => "none in flight".to_owned(),
            Some(o) => format!("{} is in flight", string(o, "operation")),
        },
    ));
    let watcher = match v.get("watcher") {
        None | Some(Value::Null) => "none".to_owned(),
        Some(w) => super::watch::line(w),
    };
    facts.push(("watcher", watcher));
    let table: Vec<Vec<Cell>> =
        facts.into_iter().map(|(n, v)| vec![Cell::styled(n, style::DIM), Cell::new(v)]).collect();
    ui.print(text::columns(&table, None, ui.colour))?;
    let uncovered = list(&v, "not_covered");
    if !uncovered.is_empty() {
        ui.line("\nnot covered (the largest):")?;
        for s in uncovered {
            let bytes = s.get("bytes").and_then(Value::as_u64).map(|n| format!(", {}", show_bytes(n)));
            let setting = match string(s, "setting") {
                "" | "none" => String::new(),
                what => format!("; to cover it: {what}"),
            };
            let name = text::name(string(s, "path").as_bytes());
            ui.line(format!("  {name} ({}{}){setting}", string(s, "reason"), bytes.unwrap_or_default()))?;
        }
    }
    ui.finish()?;
    for w in list(&v, "warnings").iter().filter_map(Value::as_str) {
        ui.warn(w);
    }
    for d in list(&v, "damaged") {
        ui.warn(&format!("{} is damaged: {}", string(d, "row"), string(d, "why")));
    }
    Ok(0)
}

/// Every object and every row.
pub fn verify(cx: &Context, a: &Verify) -> Result<u8> {
    let ws = cx.workspace()?;
    let mut v = ws.verify(a.repair, &cx.control())?;
    if a.worktree {
        v["worktree"] = ws.sample(&cx.control())?;
    }
    cx.progress.stop();
    let ok = is(&v, "ok");
    let stale = v.get("worktree").map_or(&[][..], |s| list(s, "differ"));
    let code = match (ok, stale.is_empty()) {
        (true, true) => 0,
        (true, false) => PARTIAL,
        (false, _) => Code::StoreDamaged.exit(),
    };
    if cx.ui.json {
        cx.ui.document(v)?;
        return Ok(code);
    }
    let ui = &cx.ui;
    let what = format!(
        "{} ({}) and {}",
        text::count(number(&v, "objects"), "object"),
        show_bytes(number(&v, "bytes")),
        text::count(number(&v, "checkpoints"), "checkpoint"),
    );
    ui.line(match ok {
        true => format!("{what}: no damage"),
        false => format!("{what}: {}", ui.paint(style::REMOVED, "damaged")),
    })?;
    for d in list(&v, "damage") {
        let object = string(d, "object");
        let object = if object.is_empty() { String::new() } else { format!(" {object}") };
        ui.line(format!("  {}{object}: {}", text::tame(string(d, "path")), text::tame(string(d, "what"))))?;
        let hit: Vec<&str> = list(d, "checkpoints").iter().filter_map(Value::as_str).collect();
        if !hit.is_empty() {
            ui.line(format!("    checkpoints hit: {}", hit.join(", ")))?;
        }
    }
    for r in list(&v, "rows_damaged") {
        let shown = match r {
            Value::String(s) => s.clone(),
            other => format!("{}: {}", string(other, "row"), string(other, "why")),
        };
        ui.line(format!("  damaged row {}", text::tame(&shown)))?;
    }
    if let Some(why) = v.get("operations").and_then(Value::as_str) {
        ui.line(format!("  operations cannot be read: {}", text::tame(why)))?;
    }
    if let Some(s) = v.get("worktree") {
        let files = text::count(number(s, "read"), "file");
        ui.line(match stale.len() {
            0 => format!("{files} of the folder read: all as recorded"),
            n => format!("{files} of the folder read: {n} changed without a sign of it"),
        })?;
        for path in stale {
            ui.line(format!("  {}", text::name(string(path, "path").as_bytes())))?;
        }
    }
    for r in list(&v, "repaired") {
        let shown = r.as_str().map_or_else(|| r.to_string(), str::to_owned);
        ui.line(format!("  set aside: {}", text::tame(&shown)))?;
    }
    ui.finish()?;
    if !stale.is_empty() {
        ui.note("hint: `backstitch checkpoint --paranoid` reads and records everything.");
    }
    if !ok {
        let hint = match a.repair {
            true => "hint: checkpoints that are not named here can be restored.",
            false => {
                "hint: `backstitch verify --repair` sets damaged parts aside; other checkpoints can be restored."
            }
        };
        ui.note(hint);
    }
    Ok(code)
}

/// The surroundings.
pub fn doctor(cx: &Context, a: &Doctor) -> Result<u8> {
    let ws = cx.workspace()?;
    let v = ws.doctor(a.drill, &cx.control())?;
    cx.progress.stop();
    let code = if is(&v, "ok") { 0 } else { Code::Failed.exit() };
    if cx.ui.json {
        cx.ui.document(v)?;
        return Ok(code);
    }
    let table: Vec<Vec<Cell>> = list(&v, "checks")
        .iter()
        .map(|c| {
            let (word, colour) = if is(c, "ok") { ("ok", style::ADDED) } else { ("bad", style::REMOVED) };
            let detail = text::tame(string(c, "detail"));
            vec![Cell::styled(word, colour), Cell::new(text::tame(string(c, "name"))), Cell::new(detail)]
        })
        .collect();
    cx.ui.print(text::columns(&table, None, cx.ui.colour))?;
    Ok(code)
}

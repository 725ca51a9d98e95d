//! `hook`, `install`, `uninstall`

use backstitch::{
    error::{Code, Error, Result},
    view,
};
use backstitch_agents::install::{self, Moved, Places, Plan, Program, Scope};
use serde_json::json;

use super::{diff, restore};
use crate::{
    context::Context,
    table::{Hook, Install},
    text,
};

/// One hook process.
pub fn hook(cx: &Context, a: &Hook) -> Result<u8> {
    backstitch_agents::hook::run(&a.agent, a.event.as_deref(), cx.surroundings.clone());
    Ok(0)
}

/// Writes an agent's configuration, or takes it out.
pub fn install(cx: &Context, a: &Install, on: bool) -> Result<u8> {
    let agent = backstitch_agents::Agent::from(a.agent);
    let scope = if a.project { Scope::Project } else { Scope::User };
    let places = places(cx)?;
    let plan = match on {
        true => install::install(agent, scope, &places)?,
        false => install::uninstall(agent, scope, &places)?,
    };
    if !cx.ui.json {
        show(cx, &plan, on)?;
    }
    if !a.dry_run && !plan.changes.is_empty() {
        if cx.ui.can_ask && !a.yes {
            restore::agree(cx)?;
        }
        plan.apply(&places)?;
    }
    if cx.ui.json {
        document(cx, &plan, a.dry_run)?;
        return Ok(0);
    }
    let files = text::count(plan.changes.len() as u64, "file");
    match (plan.changes.is_empty(), a.dry_run) {
        (true, _) => {}
        (_, true) => cx.ui.note("Nothing was written."),
        (_, false) => cx.ui.note(format!("{files} written.")),
    }
    for n in &plan.notes {
        cx.ui.note(format!("note: {}", text::sentence(n)));
    }
    Ok(0)
}

fn places(cx: &Context) -> Result<Places> {
    let s = &cx.surroundings;
    let home = s.home.clone().ok_or_else(|| {
        Error::new(Code::Usage, "the home folder is not known").hint("set HOME; nothing was changed")
    })?;
    Ok(Places {
        home,
        project: cx.workspace()?.root().to_owned(),
        base: s.store_base.clone(),
        program: Program::of_process(),
        moved: Moved::of_process(),
    })
}

fn show(cx: &Context, plan: &Plan, on: bool) -> Result<()> {
    for c in &plan.changes {
        diff::patch(&cx.ui, &c.diff())?;
    }
    cx.ui.finish()?;
    if plan.changes.is_empty() {
        let what = if on { "is installed already" } else { "was not installed" };
        cx.ui.note(format!("Backstitch {what} for {} ({} scope).", plan.agent.title(), plan.scope.as_str()));
    }
    Ok(())
}

fn document(cx: &Context, plan: &Plan, dry_run: bool) -> Result<()> {
    let files: Vec<_> = plan
        .changes
        .iter()
        .map(|c| {
            let mut m = serde_json::Map::new();
            view::put_path(&mut m, "path", backstitch::paths::bytes(&c.path));
            m.insert("action".to_owned(), c.action().into());
            m.insert("diff".to_owned(), String::from_utf8_lossy(&c.diff()).into_owned().into());
            serde_json::Value::Object(m)
        })
        .collect();
    cx.ui.document(json!({
        "agent": plan.agent.as_str(),
        "scope": plan.scope.as_str(),
        "dry_run": dry_run,
        "files": files,
        "notes": plan.notes,
    }))
}

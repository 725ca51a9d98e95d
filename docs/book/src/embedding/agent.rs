//! An agent that records its work, and takes it back.

use std::{error::Error, fs, path::Path};

use backstitch::{
    rewind,
    tool::ToolOptions,
    turn::TurnOptions,
    undo,
    workspace::{Control, Surroundings, Workspace},
};

/// Works in a folder for one prompt, takes that back, and takes the taking-back back.
///
/// # Errors
/// Whatever the engine or the disk says.
pub fn work(folder: &Path, surroundings: Surroundings) -> Result<Vec<String>, Box<dyn Error>> {
    let mut ws = Workspace::open(folder, surroundings)?;
    // Progress, cancelling and a clock go in here; the default has none of them.
    let control = Control::default();
    let session = "conversation-9".to_owned();

    let prompt = TurnOptions {
        session: session.clone(),
        key: Some("message-1".to_owned()),
        prompt: Some("Write a greeting".to_owned()),
        ..TurnOptions::default()
    };
    let begun = ws.turn_begin(&prompt, &control)?.checkpoint.ok_or("no row")?;
    let turn = begun.record.turn.ok_or("no turn")?;

    // A tool that names its file costs that file only.
    let write = ToolOptions {
        session: session.clone(),
        call: Some("call-1".to_owned()),
        tool: Some("write".to_owned()),
        paths: vec!["greeting.txt".into()],
        ..ToolOptions::default()
    };
    ws.tool(true, &write, &control)?;
    fs::write(folder.join("greeting.txt"), "Hello\n")?;
    ws.tool(false, &write, &control)?;

    // One that names none, such as a shell, costs a look at the folder at both ends.
    let shell = ToolOptions {
        call: Some("call-2".to_owned()),
        tool: Some("shell".to_owned()),
        paths: Vec::new(),
        ..write
    };
    ws.tool(true, &shell, &control)?;
    fs::remove_file(folder.join("notes.txt"))?;
    ws.tool(false, &shell, &control)?;
    ws.turn_end(&session, Some("message-1"), "completed", &control)?;

    // "Take that back": show the plan first, then carry out exactly that plan.
    let back = rewind::Options {
        to: turn.to_string(),
        session: Some(session),
        dry_run: true,
        ..rewind::Options::default()
    };
    let plan = ws.rewind(&back, &control)?;
    let mut said: Vec<String> =
        plan.items.iter().map(|i| format!("{} {}", i.action.as_str(), i.path)).collect();
    let outcome = ws.rewind(&rewind::Options { dry_run: false, plan: Some(plan.plan), ..back }, &control)?;
    said.push(format!("taken back, and read back: {}", outcome.verified));

    ws.undo(&undo::Options::default(), &control)?;
    said.push(format!("undone: {}", fs::read_to_string(folder.join("greeting.txt"))?.trim()));
    Ok(said)
}

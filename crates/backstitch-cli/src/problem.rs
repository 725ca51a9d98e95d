//! Errors: one line for people or one document for machines, and the exit code.

use std::ffi::OsString;

use backstitch::{
    error::{Code, Error},
    view,
};
use bstr::ByteSlice;
use clap::error::ErrorKind;
use serde_json::{Map, Value, json};

use crate::{
    text,
    ui::{Ui, style},
};

/// The error document.
pub fn document(e: &Error) -> Value {
    let mut m = Map::new();
    m.insert("code".to_owned(), e.code.as_str().into());
    m.insert("message".to_owned(), e.message.clone().into());
    if let Some(p) = &e.path {
        view::put_path(&mut m, "path", p.as_bstr());
    }
    if let Some(h) = hint(e) {
        m.insert("hint".to_owned(), h.into());
    }
    if !e.list.is_empty() {
        m.insert("list".to_owned(), e.list.clone().into());
    }
    json!({"error": m})
}

/// What to do: what the library says, else what holds for every error of this code.
pub fn hint(e: &Error) -> Option<String> {
    if e.hint.is_some() {
        return e.hint.clone();
    }
    general(e.code).map(str::to_owned)
}

/// What helps against every error of this code, where the library says nothing more exact.
pub fn general(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Failed => "`backstitch doctor` checks the surroundings",
        Code::Io => "check that the path exists and that you may read and write it",
        Code::Usage => "`backstitch COMMAND --help` shows how it is called",
        Code::Ambiguous => "give a full id from the list",
        Code::BadLabel => "choose another label",
        Code::BadSetting => "`backstitch config list` shows all settings and their values",
        Code::NoSuchCheckpoint => "`backstitch list --all` shows every checkpoint",
        Code::NoSuchSession => "`backstitch session list` shows all of them",
        Code::NoSuchOperation | Code::NothingToUndo | Code::NothingToRedo => {
            "`backstitch operations` shows what was done"
        }
        Code::NoSuchPath => "`backstitch log PATH` finds the checkpoints of a path",
        Code::NoSuchStore => "`backstitch stores list` shows every store",
        Code::Conflict | Code::ReplacedWorkspace => "nothing was changed; look at the plan with --dry-run",
        Code::PlanChanged => "look at the new plan with --dry-run; nothing was changed",
        Code::WrongWorkspace => "`backstitch relink OLD-PATH` attaches a moved workspace",
        Code::OverBudget => "free some space, or raise the setting; nothing was changed",
        Code::UnsafePath => "name paths inside the workspace; nothing was changed",
        Code::NotRestorable => "`backstitch list --check` marks what can be restored",
        Code::SharedStore => "name a local folder with --store-dir",
        Code::AgentContext => "a person adds --as-person",
        Code::Disabled => "`backstitch status` says which switch is off",
        Code::Busy => "try again when the other process has ended; nothing was changed",
        Code::StoreDamaged => "`backstitch verify` names the checkpoints that are hit",
        Code::Remote => "`git ls-remote REMOTE` shows whether it can be reached; nothing was changed here",
        Code::Secrets => {
            "leave the paths out with `sync.private`, or say --allow-secrets; nothing was pushed"
        }
        Code::GitState => "restore without --git-state: the files alone; the repository was not touched",
        Code::Interrupted => "what was begun was put back; call it again",
        _ => return None,
    })
}

/// Tells about an error; returns the exit code.
pub fn report(ui: &Ui, e: &Error) -> u8 {
    if ui.json {
        ui.say(document(e).to_string());
        return e.code.exit();
    }
    ui.say(format!("{} {}", ui.paint_err(style::REMOVED, "error:"), text::sentence(&e.message)));
    if let Some(p) = &e.path {
        let shown = text::name(p);
        if !e.message.contains(shown.trim_matches('"')) {
            ui.say(format!("  path: {shown}"));
        }
    }
    for line in &e.list {
        ui.say(format!("  {}", text::tame(line)));
    }
    if let Some(h) = hint(e) {
        ui.say(format!("  {} {}", ui.paint_err(style::DIM, "hint:"), text::sentence(&h)));
    }
    e.code.exit()
}

/// What clap found wrong.
pub fn of_words(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("wrong usage");
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "a command is missing".to_owned()
        }
        ErrorKind::MissingRequiredArgument => {
            // The arguments follow on indented lines of their own.
            let names: Vec<&str> =
                text.lines().skip(1).take_while(|l| l.starts_with(' ')).map(str::trim).collect();
            format!("{} {}", first.trim_start_matches("error: "), names.join(", "))
        }
        _ => first.trim_start_matches("error: ").to_owned(),
    };
    let tip = text.lines().find_map(|l| l.trim().strip_prefix("tip: ")).map(str::to_owned);
    Error::new(Code::Usage, message)
        .hint(tip.or_else(|| general(Code::Usage).map(str::to_owned)).unwrap_or_default())
}

/// What clap found wrong, or the help that was asked for.
pub fn usage(error: &clap::Error, words: &[OsString]) -> u8 {
    let wants_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = words.iter().skip(1).take_while(|w| *w != "--").any(|w| w == "--json");
    if wants_help || !json {
        // A closed output is nothing to tell anybody about.
        let _ = error.print();
        return if wants_help { 0 } else { Code::Usage.exit() };
    }
    let e = of_words(error);
    let _ =
        std::io::Write::write_all(&mut std::io::stderr().lock(), format!("{}\n", document(&e)).as_bytes());
    e.code.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_to_do() {
        for code in Code::ALL {
            assert!(hint(&Error::new(*code, "x")).is_some(), "{}", code.as_str());
        }
    }
}

//! Commands typed as a prompt: `/backstitch:rewind 2`, or `backstitch undo` where the client keeps the slash for itself. The hook
//! carries them out, the model is not asked. Without a number nothing is changed.

use std::fmt::Write;

use backstitch::{
    error::{Code, Result},
    operation::Outcome,
    plan::{Action, Progress},
    record::{Kind, one_line},
    rewind, session, undo,
    workspace::{Control, Workspace},
};

use crate::{Agent, deliver, notice::Notice, told, transcript};

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// The turns to choose from.
    List,
    /// Take back a turn and all later ones.
    Rewind {
        /// The turn.
        turn: u64,
        /// Only show what would be done.
        preview: bool,
        /// Files outside the workspace too.
        outside: bool,
    },
    /// Take back the newest operation.
    Undo,
    /// Take back the newest undo.
    Redo,
    /// Not understood: how it is meant.
    Usage,
}

const USAGE: &str = "Backstitch: `rewind` lists the turns, `rewind N` takes back turn N and all later ones (`--dry-run` only shows \
                     it, `--outside` takes files outside the folder along), `undo` and `redo` walk. Nothing was changed.";

/// The command in a prompt, if it is nothing but one.
pub fn parse(prompt: &str) -> Option<Typed> {
    let prompt = prompt.trim();
    if prompt.len() > 200 || prompt.contains('\n') {
        return None;
    }
    // Some clients put a prompt of the command line in quotes.
    let prompt = prompt.strip_prefix('"').and_then(|p| p.strip_suffix('"')).unwrap_or(prompt).trim();
    let rest = prompt.strip_prefix('/').unwrap_or(prompt).strip_prefix("backstitch")?;
    let rest = rest.strip_prefix([':', ' '])?;
    let mut words = rest.split_whitespace();
    let name = words.next()?;
    let (options, plain): (Vec<&str>, Vec<&str>) = words.partition(|w| w.starts_with("--"));
    let known = options.iter().all(|o| matches!(*o, "--dry-run" | "--outside"));
    Some(match (name, plain.as_slice()) {
        ("rewind", [] | ["list"]) if options.is_empty() => Typed::List,
        ("rewind", [n]) if known => match number(n) {
            Some(turn) => Typed::Rewind {
                turn,
                preview: options.contains(&"--dry-run"),
                outside: options.contains(&"--outside"),
            },
            None => Typed::Usage,
        },
        ("undo", []) if options.is_empty() => Typed::Undo,
        ("redo", []) if options.is_empty() => Typed::Redo,
        ("rewind", _) => Typed::Usage,
        // A sentence.
        _ => return None,
    })
}

fn number(word: &str) -> Option<u64> {
    let word = word.strip_prefix("turn:").or(word.strip_prefix("prompt:")).unwrap_or(word);
    word.parse().ok().filter(|n| (1..=1_000_000).contains(n))
}

/// Carries it out; what a person reads.
pub fn run(agent: Agent, n: &Notice, ws: &mut Workspace, typed: &Typed) -> String {
    let result = match typed {
        Typed::Usage => Ok(USAGE.to_owned()),
        Typed::List => list(n, ws),
        Typed::Rewind { turn, preview, outside } => rewind(agent, n, ws, *turn, *preview, *outside),
        Typed::Undo => walk(n, ws, true),
        Typed::Redo => walk(n, ws, false),
    };
    result.unwrap_or_else(|e| match e.code {
        Code::NoSuchStore => "Backstitch: nothing is recorded here yet.".to_owned(),
        _ => format!("Backstitch: {}", deliver::problem(&e)),
    })
}

fn list(n: &Notice, ws: &Workspace) -> Result<String> {
    let rows = ws.rows()?;
    let left = session::abandoned(&rows, &ws.operations()?, Some(&n.session));
    let records = ws.session_records()?;
    let turns: Vec<_> = session::line(&rows, &records, &n.session)
        .into_iter()
        .filter(|c| c.record.kind == Kind::Prompt && !left.contains(c.record.id.as_str()))
        .collect();
    if turns.is_empty() {
        return Ok("Backstitch: this session has no turn to take back yet.".to_owned());
    }
    let mut out = String::from("Backstitch: `rewind N` takes back turn N and all later ones.\n");
    for c in turns.iter().rev().take(20) {
        let prompt = c.record.prompt.as_deref().map(|p| one_line(p, 60)).unwrap_or_default();
        let _ = writeln!(out, "{:>4}  {prompt}", c.record.turn.unwrap_or(0));
    }
    if turns.len() > 20 {
        let _ = writeln!(out, "      and {} before them", turns.len() - 20);
    }
    Ok(out.trim_end().to_owned())
}

fn rewind(
    agent: Agent,
    n: &Notice,
    ws: &Workspace,
    turn: u64,
    preview: bool,
    outside: bool,
) -> Result<String> {
    ws.store()?;
    let o = rewind::Options {
        to: format!("turn:{turn}"),
        session: Some(n.session.clone()),
        dry_run: preview,
        outside,
        ..rewind::Options::default()
    };
    let out = ws.rewind(&o, &Control::default())?;
    let mut text = outcome(&out, "took back", "undo");
    if preview {
        return Ok(text);
    }
    text.push_str(&conversation(agent, n, ws, turn)?);
    Ok(text)
}

fn walk(n: &Notice, ws: &Workspace, back: bool) -> Result<String> {
    ws.store()?;
    let o = undo::Options { session: Some(n.session.clone()), ..undo::Options::default() };
    let out = match back {
        true => ws.undo(&o, &Control::default())?,
        false => ws.redo(&o, &Control::default())?,
    };
    Ok(match back {
        true => outcome(&out, "undid", "redo"),
        false => outcome(&out, "redid", "undo"),
    })
}

/// What was done, path by path, and what takes it back.
fn outcome(out: &Outcome, did: &str, back: &str) -> String {
    let changed: Vec<_> = out
        .items
        .iter()
        .filter(|i| i.action.changes() && (out.dry_run || i.result == Progress::Done))
        .collect();
    let mut text = match (changed.len(), out.dry_run) {
        (0, _) => "Backstitch: there is nothing to change.".to_owned(),
        (k, false) => format!("Backstitch {did} {}; `backstitch {back}` takes that back.", paths(k)),
        (k, true) => format!("Backstitch would take back {}. Nothing was changed.", paths(k)),
    };
    for i in changed.iter().take(30) {
        let _ = write!(text, "\n  {:<9} {}", i.action.as_str(), told::shown(&i.path));
    }
    if changed.len() > 30 {
        let _ = write!(text, "\n  and {} more", changed.len() - 30);
    }
    let left = |i: &&backstitch::plan::Item| {
        matches!(i.action, Action::Conflict | Action::Skip) || i.result == Progress::Failed
    };
    for i in out.items.iter().filter(left).take(30) {
        let why = i.reason.as_deref().unwrap_or("not as it was left");
        let _ = write!(text, "\n  left alone: {} ({why})", told::shown(&i.path));
    }
    text
}

fn paths(n: usize) -> String {
    if n == 1 { "1 path".to_owned() } else { format!("{n} paths") }
}

/// How the conversation goes back as well: a hook cannot do it.
fn conversation(agent: Agent, n: &Notice, ws: &Workspace, turn: u64) -> Result<String> {
    let rows = ws.rows()?;
    let records = ws.session_records()?;
    let line = session::line(&rows, &records, &n.session);
    let begun = line.iter().find(|c| c.record.kind == Kind::Prompt && c.record.turn == Some(turn));
    let answer = begun
        .and_then(|c| c.record.entry.as_deref())
        .zip(n.transcript.as_ref())
        .and_then(|(entry, file)| transcript::answer_before(file, entry));
    Ok(match (agent, answer) {
        (Agent::Claude, Some(answer)) => format!(
            "\nThe conversation stays. To go on before that turn: claude --resume {} --resume-session-at {answer} --fork-session\n\
             or, in this one, /rewind and \"Restore conversation\".",
            n.session
        ),
        (Agent::Claude, None) => {
            "\nThe conversation stays; /rewind and \"Restore conversation\" takes it back too.".to_owned()
        }
        (Agent::Codex, _) => {
            "\nThe conversation stays: press Esc twice to go back to an earlier message.".to_owned()
        }
        (Agent::Gemini, _) => "\nThe conversation stays; /rewind takes it back too.".to_owned(),
        // The plugin does it.
        (Agent::Opencode, _) => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_sentences() {
        let rewind = |turn, preview| Some(Typed::Rewind { turn, preview, outside: false });
        for (prompt, want) in [
            ("/backstitch:rewind 2", rewind(2, false)),
            ("backstitch rewind turn:12", rewind(12, false)),
            (" /backstitch rewind 3 --dry-run ", rewind(3, true)),
            (
                "/backstitch:rewind 4 --outside",
                Some(Typed::Rewind { turn: 4, preview: false, outside: true }),
            ),
            ("\"backstitch rewind 5\"", rewind(5, false)),
            ("/backstitch:rewind 4 --force", Some(Typed::Usage)),
            ("/backstitch:rewind", Some(Typed::List)),
            ("/backstitch:rewind x", Some(Typed::Usage)),
            ("/backstitch:rewind 0", Some(Typed::Usage)),
            ("/backstitch:rewind 1 2 3", Some(Typed::Usage)),
            ("/backstitch:undo", Some(Typed::Undo)),
            ("backstitch redo", Some(Typed::Redo)),
            ("backstitch undo the parser change please", None),
            ("backstitch is a fine tool", None),
            ("backstitchrewind 2", None),
            ("rewind 2", None),
            ("backstitch rewind 2\nand more", None),
            ("", None),
        ] {
            assert_eq!(parse(prompt), want, "{prompt}");
        }
    }
}

//! Hooks in a JSON file: added and removed in place. Comments, order, blanks and unknown keys stay as they are.

use std::path::Path;

use backstitch::error::Result;
use jsonc_parser::{
    CollectOptions, ParseOptions, ast,
    common::Ranged,
    cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode},
    parse_to_ast,
};

use super::{Program, file, line::is_ours};
use crate::Agent;

/// One hook: its event, the tools it is for, and how long the client waits in seconds.
type Hook = (&'static str, Option<&'static str>, u32);

const CLAUDE_TOOLS: Option<&str> = Some("Write|Edit|MultiEdit|NotebookEdit|Bash|PowerShell|Monitor|mcp__.*");
const GEMINI_TOOLS: Option<&str> = Some("write_file|replace|run_shell_command|save_memory|mcp_.*");

const CLAUDE: &[Hook] = &[
    ("SessionStart", None, 30),
    ("UserPromptSubmit", None, 60),
    ("PreToolUse", CLAUDE_TOOLS, 60),
    ("PostToolUse", CLAUDE_TOOLS, 60),
    ("PostToolUseFailure", CLAUDE_TOOLS, 60),
    ("SubagentStop", None, 60),
    ("Stop", None, 60),
    ("SessionEnd", None, 30),
];
const CODEX: &[Hook] = &[
    ("SessionStart", None, 30),
    ("UserPromptSubmit", None, 60),
    ("PreToolUse", None, 60),
    ("PostToolUse", None, 60),
    ("SubagentStop", None, 60),
    ("Stop", None, 60),
    // The client cuts it to three seconds.
    ("SessionEnd", None, 3),
];
const GEMINI: &[Hook] = &[
    ("SessionStart", None, 30),
    ("BeforeAgent", None, 60),
    ("BeforeTool", GEMINI_TOOLS, 60),
    ("AfterTool", GEMINI_TOOLS, 60),
    ("AfterAgent", None, 60),
    ("SessionEnd", None, 30),
];

/// The hooks that a client has.
pub fn hooks(agent: Agent) -> &'static [Hook] {
    match agent {
        Agent::Claude => CLAUDE,
        Agent::Codex => CODEX,
        Agent::Gemini => GEMINI,
        Agent::Opencode => &[],
    }
}

const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

const BOM: char = '\u{feff}';

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
}

/// The file is what it should be, as far as we go into it: an object, with `hooks` an object of arrays, each key once.
fn check(path: &Path, text: &str) -> Result<()> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS)
        .map_err(|e| file::broken(path, line_of(text, e.range().start), &format!("{}", e.kind())))?;
    let refuse = |at: usize, why: &str| Err(file::broken(path, line_of(text, at), why));
    let object = match &parsed.value {
        None => return Ok(()),
        Some(ast::Value::Object(o)) => o,
        Some(v) => return refuse(v.range().start, "the settings are not a JSON object"),
    };
    let named = |o: &ast::Object<'_>, name: &str| -> Vec<usize> {
        o.properties.iter().filter(|p| p.name.as_str() == name).map(|p| p.range.start).collect()
    };
    if let [_, second, ..] = named(object, "hooks").as_slice() {
        return refuse(*second, "`hooks` stands here for the second time");
    }
    let Some(hooks) = object.get("hooks") else { return Ok(()) };
    let ast::Value::Object(hooks) = &hooks.value else {
        return refuse(hooks.range.start, "`hooks` is not an object");
    };
    for p in &hooks.properties {
        if let [_, second, ..] = named(hooks, p.name.as_str()).as_slice() {
            return refuse(*second, &format!("`{}` stands here for the second time", p.name.as_str()));
        }
        if !matches!(p.value, ast::Value::Array(_)) && p.name.as_str() != "enabled" {
            return refuse(p.range.start, &format!("`hooks.{}` is not an array", p.name.as_str()));
        }
    }
    Ok(())
}

fn parse(path: &Path, text: &str) -> Result<CstRootNode> {
    CstRootNode::parse(text, &OPTIONS)
        .map_err(|e| file::broken(path, line_of(text, e.range().start), &format!("{}", e.kind())))
}

fn text(s: &str) -> CstInputValue {
    CstInputValue::String(s.to_owned())
}

/// One entry of an event's array.
fn entry(agent: Agent, hook: &Hook, program: &Program) -> CstInputValue {
    let (event, matcher, seconds) = hook;
    let wait = if agent == Agent::Gemini { seconds * 1000 } else { *seconds };
    let mut command = vec![
        ("type".to_owned(), text("command")),
        ("command".to_owned(), text(&program.line(agent, event))),
        ("timeout".to_owned(), CstInputValue::Number(wait.to_string())),
    ];
    if agent == Agent::Gemini {
        command.insert(0, ("name".to_owned(), text("backstitch")));
    }
    let mut group = Vec::new();
    if let Some(m) = matcher {
        group.push(("matcher".to_owned(), text(m)));
    }
    group.push(("hooks".to_owned(), CstInputValue::Array(vec![CstInputValue::Object(command)])));
    CstInputValue::Object(group)
}

/// The text with our hooks. `base` holds none.
pub fn add(agent: Agent, path: &Path, base: &str, program: &Program) -> Result<String> {
    let (bom, body) = match base.strip_prefix(BOM) {
        Some(rest) => (true, rest),
        None => (false, base),
    };
    let new = body.trim().is_empty();
    let body = if new { "{\n}\n" } else { body };
    check(path, body)?;
    let root = parse(path, body)?;
    let object = root.object_value_or_set();
    let all = object.object_value_or_set("hooks");
    for hook in hooks(agent) {
        all.array_value_or_set(hook.0).append(entry(agent, hook, program));
    }
    let out = root.to_string();
    Ok(if bom { format!("{BOM}{out}") } else { out })
}

/// The commands in a group of an event's array that are ours.
fn ours(group: &CstObject, agent: Agent) -> Vec<CstNode> {
    let Some(list) = group.array_value("hooks") else { return Vec::new() };
    let is = |n: &CstNode| {
        let command = n.as_object().and_then(|o| o.get("command")).and_then(|p| p.value());
        let line = command.and_then(|v| v.as_string_lit()).and_then(|s| s.decoded_value().ok());
        line.is_some_and(|l| is_ours(&l, agent))
    };
    list.elements().into_iter().filter(is).collect()
}

fn groups(list: &CstArray) -> Vec<CstObject> {
    list.elements().iter().filter_map(CstNode::as_object).collect()
}

/// Some hook in it is ours.
pub fn holds_ours(agent: Agent, text: &str) -> bool {
    let Ok(root) = CstRootNode::parse(text.trim_start_matches(BOM), &OPTIONS) else { return false };
    let Some(all) = root.object_value().and_then(|o| o.object_value("hooks")) else { return false };
    all.properties()
        .iter()
        .filter_map(|p| p.array_value())
        .any(|list| groups(&list).iter().any(|g| !ours(g, agent).is_empty()))
}

/// The text without our hooks; what is empty because of that goes too.
pub fn remove(agent: Agent, path: &Path, now: &str) -> Result<String> {
    let (bom, body) = match now.strip_prefix(BOM) {
        Some(rest) => (true, rest),
        None => (false, now),
    };
    if body.trim().is_empty() {
        return Ok(now.to_owned());
    }
    check(path, body)?;
    if !holds_ours(agent, body) {
        return Ok(now.to_owned());
    }
    let root = parse(path, body)?;
    if let Some(property) = root.object_value().and_then(|o| o.get("hooks"))
        && let Some(all) = property.object_value()
    {
        for event in all.properties() {
            let Some(list) = event.array_value() else { continue };
            let mut emptied = false;
            for group in groups(&list) {
                let mine = ours(&group, agent);
                if mine.is_empty() {
                    continue;
                }
                let rest = group.array_value("hooks").map_or(0, |l| l.elements().len()) - mine.len();
                mine.into_iter().for_each(CstNode::remove);
                if rest == 0 {
                    group.remove();
                    emptied = true;
                }
            }
            if emptied && list.elements().is_empty() {
                event.remove();
            }
        }
        if all.properties().is_empty() {
            property.remove();
        }
    }
    let out = root.to_string();
    Ok(if bom { format!("{BOM}{out}") } else { out })
}

/// Nothing is in it but an empty object.
pub fn is_empty(text: &str) -> bool {
    let body = text.trim_start_matches(BOM).trim();
    body.is_empty() || body.split_whitespace().collect::<String>() == "{}"
}

//! Pages that are made from the table: completions, manual, reference.

use std::{fmt::Write, path::Path};

use backstitch::{
    error::{Code, Error, Result},
    settings::{Form, Guard, KEYS, Key, env_name},
};
use clap::{Command, CommandFactory};
use serde_json::{Value, json};

use crate::{
    mcp, problem, serve,
    table::{Cli, Page},
    text,
    ui::Ui,
};

fn command() -> Command {
    let mut c = Cli::command().term_width(0);
    c.build();
    c
}

/// A completion script.
pub fn completions(ui: &Ui, shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "backstitch", &mut script);
    if ui.json {
        let text = String::from_utf8_lossy(&script);
        ui.document(json!({"shell": shell.to_string(), "script": text}))?;
    } else {
        ui.raw(&script)?;
    }
    Ok(0)
}

fn render(c: &Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(c.clone())
        .render(&mut page)
        .map_err(|e| Error::fault(format!("the manual page cannot be made: {e}")))?;
    Ok(page)
}

/// The commands for people, with the full name of each (`backstitch-config-set`).
fn visible(c: &Command, name: &str, out: &mut Vec<(String, Command)>) {
    out.push((name.to_owned(), c.clone()));
    for s in c.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        visible(s, &format!("{name}-{}", s.get_name()), out);
    }
}

/// The manual page, or all of them as files.
pub fn man(ui: &Ui, out: Option<&Path>) -> Result<u8> {
    let c = command();
    let Some(dir) = out else {
        let page = render(&c)?;
        if ui.json {
            ui.document(json!({"page": String::from_utf8_lossy(&page)}))?;
        } else {
            ui.raw(&page)?;
        }
        return Ok(0);
    };
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, e).hint("name a folder that you may write"))?;
    let mut all = Vec::new();
    visible(&c, "backstitch", &mut all);
    let mut written = Vec::new();
    for (name, c) in all {
        let file = dir.join(format!("{name}.1"));
        let page = render(&c.display_name(name))?;
        std::fs::write(&file, page).map_err(|e| Error::io(&file, e))?;
        written.push(file.to_string_lossy().into_owned());
    }
    if ui.json {
        ui.document(json!({"written": written}))?;
    } else {
        for f in written {
            ui.line(text::name(f.as_bytes()))?;
        }
    }
    Ok(0)
}

/// A reference page, in Markdown.
pub fn reference(ui: &Ui, page: Page) -> Result<u8> {
    let page = match page {
        Page::Commands => commands_page(),
        Page::Settings => settings_page(),
        Page::Rpc => serve::page::page(),
        Page::RpcSchema => schema(&serve::schema::document(&serve::method::methods())),
        Page::McpSchema => schema(&mcp::tools()),
    };
    if ui.json {
        ui.document(json!({"page": page}))?;
    } else {
        ui.print(page)?;
    }
    Ok(0)
}

fn schema(document: &Value) -> String {
    serde_json::to_string_pretty(document).unwrap_or_default() + "\n"
}

fn plain(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|t| t.to_string()).unwrap_or_default().trim().to_owned()
}

fn options(c: &Command, global: bool, out: &mut String) {
    let mut rows = String::new();
    for a in c.get_arguments() {
        let id = a.get_id().as_str();
        if a.is_hide_set() || a.is_global_set() != global || id == "help" || id == "version" {
            continue;
        }
        let mut name = match (a.get_short(), a.get_long()) {
            (Some(s), Some(l)) => format!("`-{s}`, `--{l}`"),
            (Some(s), None) => format!("`-{s}`"),
            (None, Some(l)) => format!("`--{l}`"),
            (None, None) => String::new(),
        };
        if a.get_action().takes_values() {
            let values: Vec<&str> =
                a.get_value_names().unwrap_or_default().iter().map(|v| v.as_str()).collect();
            let value = values.join(" ");
            name = match (name.is_empty(), a.is_last_set()) {
                (false, _) => format!("{name} `{value}`"),
                (true, true) => format!("`-- {value}...`"),
                (true, false) => format!("`{value}`"),
            };
        }
        let help = plain(a.get_long_help().or(a.get_help()));
        let mut help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        if !help.ends_with('.') {
            help.push('.');
        }
        let words: Vec<String> = match a.get_action().takes_values() {
            true => a.get_possible_values().iter().map(|p| format!("`{}`", p.get_name())).collect(),
            false => Vec::new(),
        };
        if !words.is_empty() {
            let _ = write!(help, " One of {}.", words.join(", "));
        }
        let defaults: Vec<String> = match a.get_action().takes_values() {
            true => a.get_default_values().iter().map(|d| format!("`{}`", d.to_string_lossy())).collect(),
            false => Vec::new(),
        };
        if !defaults.is_empty() {
            let _ = write!(help, " Default: {}.", defaults.join(", "));
        }
        let _ = writeln!(rows, "| {name} | {} |", help.replace('|', "\\|"));
    }
    if !rows.is_empty() {
        let _ = write!(out, "\n| argument | meaning |\n|---|---|\n{rows}");
    }
}

fn section(c: &Command, name: &str, examples: &Value, out: &mut String) {
    let aliases: Vec<&str> = c.get_visible_aliases().collect();
    let mut about = plain(c.get_long_about().or(c.get_about()));
    if !about.ends_with('.') {
        about.push('.');
    }
    let _ = write!(out, "\n## {name}\n\n{about}\n");
    if !aliases.is_empty() {
        let _ = write!(out, "\nAlso called: `{}`\n", aliases.join("`, `"));
    }
    let inner: Vec<&Command> =
        c.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help").collect();
    if inner.is_empty() {
        let usage = c.clone().render_usage().to_string();
        let _ = write!(out, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
        options(c, false, out);
        if let Some(example) = examples.get(name) {
            let text = serde_json::to_string_pretty(example).unwrap_or_default();
            let _ = write!(out, "\nWith `--json`, for example:\n\n```json\n{text}\n```\n");
        }
    }
    for s in inner {
        section(s, &format!("{name} {}", s.get_name()), examples, out);
    }
}

/// What the commands print with `--json`, as the tests have seen it.
const EXAMPLES: &str = include_str!("examples.json");

fn commands_page() -> String {
    let c = command();
    let examples: Value = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let mut out = String::from(
        "# Commands\n\n<!-- Made by `backstitch reference > docs/reference/commands.md`; a test fails when it is out of date. -->\n",
    );
    let _ = write!(out, "\n{}\n\n## Options of every command\n", plain(c.get_long_about()));
    options(&c, true, &mut out);
    out.push_str(
        "\nA document may also hold `warnings` (what else a person should know) and `recovered` (what was put right first, \
         because an earlier run had been killed). A path that is not UTF-8 stands lossily in `path` and exactly in \
         `path_base64`.\n",
    );
    let _ = write!(
        out,
        "\n## Names, environment, exit codes\n\n```text\n{}\n```\n",
        plain(c.get_after_long_help())
    );
    for s in c.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        section(s, s.get_name(), &examples, &mut out);
    }
    out.push_str(
        "\n## Errors\n\nWith `--json`, an error is one document on standard error, for example:\n\n",
    );
    let text = serde_json::to_string_pretty(&examples["error"]).unwrap_or_default();
    let _ = write!(out, "```json\n{text}\n```\n");
    out.push_str(
        "\nThe `code` is one of these. `hint` says what to do; where nothing more exact is known, it is the last column.\n",
    );
    out.push_str("\n| code | exit code | what to do |\n|---|---|---|\n");
    for code in Code::ALL {
        let hint = problem::general(*code).unwrap_or_default();
        let _ = writeln!(out, "| `{}` | {} | {hint} |", code.as_str(), code.exit());
    }
    out
}

fn form(k: &Key) -> String {
    match k.form {
        Form::Bool => "`true` or `false`".to_owned(),
        Form::Bytes => "a size: bytes, or text such as `32MiB`".to_owned(),
        Form::Int => "a whole number".to_owned(),
        Form::Count => "a whole number of at least 1".to_owned(),
        Form::Seconds => "seconds".to_owned(),
        Form::List => "a list of texts".to_owned(),
        Form::Choice(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
    }
}

fn guard(k: &Key) -> String {
    match k.guard {
        Guard::Free => "no".to_owned(),
        Guard::Any => "yes".to_owned(),
        Guard::Lower => "if it is lower".to_owned(),
        Guard::Higher => "if it is higher".to_owned(),
        Guard::Rise(_) => "if it records more".to_owned(),
        Guard::Words(words) => {
            format!("if it is {}", words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or "))
        }
    }
}

fn settings_page() -> String {
    let mut out = String::from(
        "# Settings\n\n<!-- Made by `backstitch reference settings > docs/reference/settings.md`; a test fails when it is out of date. -->\n",
    );
    out.push_str(
        "\nA setting comes from the environment, else from the project's file (`.backstitch.toml` at the workspace's root), \
         else from the user's file (`backstitch config path` names it), else it has its default. A file that cannot be read \
         is a warning, and the layer below it holds.\n\nProject files come with clones and can be written by agents: a value \
         of theirs that narrows what is kept holds only after `backstitch config trust`, for exactly that content of the file.\n",
    );
    out.push_str("\n| setting | value | default | environment | needs trust in a project | meaning |\n|---|---|---|---|---|---|\n");
    for k in KEYS {
        let _ = writeln!(
            out,
            "| `{}` | {} | `{}` | `{}` | {} | {} |",
            k.name,
            form(k),
            k.default.trim_matches('"'),
            env_name(k),
            guard(k),
            k.help
        );
    }
    out
}

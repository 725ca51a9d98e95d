//! `config`

use std::path::PathBuf;

use backstitch::{
    error::{Code, Error, Result},
    paths,
    settings::{self, Form, PROJECT_FILE, Value as Setting, show_bytes},
    view,
    workspace::Workspace,
};
use bstr::ByteSlice;
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    table::Set,
    text::{self, Cell},
    ui::style,
};

fn shown(form: Form, v: &Setting) -> String {
    match v {
        Setting::Bool(b) => b.to_string(),
        Setting::Int(n) if form == Form::Bytes => show_bytes(*n),
        Setting::Int(n) => n.to_string(),
        Setting::Word(w) => w.clone(),
        Setting::List(l) => {
            format!("[{}]", l.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", "))
        }
    }
}

fn word(v: impl serde::Serialize) -> String {
    match serde_json::to_value(v) {
        Ok(Value::String(s)) => s,
        _ => String::new(),
    }
}

/// One setting.
pub fn get(cx: &Context, name: &str) -> Result<u8> {
    let key = settings::key(name)?;
    let ws = cx.workspace()?;
    let (value, source) = ws.settings().get(name)?;
    if cx.ui.json {
        cx.ui.document(json!({"key": key.name, "value": value, "source": source}))?;
    } else {
        cx.ui.line(shown(key.form, value))?;
        cx.ui.finish()?;
        cx.ui.note(format!("source: {}", word(source)));
    }
    Ok(0)
}

/// All settings.
pub fn list(cx: &Context) -> Result<u8> {
    let ws = cx.workspace()?;
    let s = ws.settings();
    if cx.ui.json {
        let all: Vec<Value> = s
            .all()
            .map(|(k, v, source)| {
                json!({
                    "key": k.name,
                    "value": v,
                    "source": source,
                    "default": k.default.trim_matches('"'),
                    "help": k.help,
                })
            })
            .collect();
        cx.ui.document(json!({"settings": all, "warnings": s.warnings, "untrusted": s.untrusted}))?;
        return Ok(0);
    }
    let table: Vec<Vec<Cell>> = s
        .all()
        .map(|(k, v, source)| {
            vec![
                Cell::styled(k.name, style::ID),
                Cell::new(shown(k.form, v)),
                Cell::styled(word(source), style::DIM),
                Cell::new(k.help),
            ]
        })
        .collect();
    cx.ui.print(text::columns(&table, None, cx.ui.colour))?;
    Ok(0)
}

fn project_file(ws: &Workspace) -> PathBuf {
    ws.root().join(PROJECT_FILE)
}

fn user_file(cx: &Context) -> Result<PathBuf> {
    cx.surroundings.user_config.clone().ok_or_else(|| {
        Error::new(Code::Failed, "there is no place for the user's settings")
            .hint("set HOME, or name a file in BACKSTITCH_CONFIG")
    })
}

/// Changes one setting in a file.
pub fn set(cx: &Context, a: &Set) -> Result<u8> {
    let key = settings::key(&a.key)?;
    let file = match a.project {
        true => project_file(&cx.workspace()?),
        false => user_file(cx)?,
    };
    settings::set(&file, &a.key, &a.value)?;
    let ws = cx.workspace()?;
    let (value, source) = ws.settings().get(key.name)?;
    if cx.ui.json {
        let mut m = Map::new();
        m.insert("key".to_owned(), key.name.into());
        m.insert("value".to_owned(), json!(value));
        m.insert("source".to_owned(), json!(source));
        view::put_path(&mut m, "file", paths::bytes(&file));
        cx.ui.document(Value::Object(m))?;
        return Ok(0);
    }
    cx.ui.line(format!("{} = {}", key.name, shown(key.form, value)))?;
    cx.ui.finish()?;
    let from = word(source);
    if from != if a.project { "project" } else { "user" } {
        cx.ui.warn(&format!("the value in force comes from the {from} settings"));
    }
    Ok(0)
}

/// Where settings are read from.
pub fn path(cx: &Context) -> Result<u8> {
    let ws = cx.workspace()?;
    let project = project_file(&ws);
    if cx.ui.json {
        let mut m = Map::new();
        match &cx.surroundings.user_config {
            Some(p) => view::put_path(&mut m, "user", paths::bytes(p)),
            None => {
                m.insert("user".to_owned(), Value::Null);
            }
        }
        view::put_path(&mut m, "project", paths::bytes(&project));
        cx.ui.document(Value::Object(m))?;
        return Ok(0);
    }
    let user = cx.surroundings.user_config.as_ref().map(|p| text::name(paths::bytes(p)));
    for (what, file, there) in [
        ("user", user, cx.surroundings.user_config.as_ref().is_some_and(|p| p.exists())),
        ("project", Some(text::name(paths::bytes(&project))), project.exists()),
    ] {
        let state = if there { "" } else { "  (not there)" };
        cx.ui.line(format!("{what:<8} {}{state}", file.unwrap_or_else(|| "none".to_owned())))?;
    }
    Ok(0)
}

/// The project's file, as it is now, may narrow what is kept.
pub fn trust(cx: &Context) -> Result<u8> {
    let ws = cx.workspace()?;
    let file = project_file(&ws);
    let ignore = ws.root().join(".backstitchignore");
    let mut trusted = Vec::new();
    for f in [&file, &ignore] {
        match settings::read_file(f) {
            Ok(Some(bytes)) => {
                cx.surroundings.trust(&settings::digest(&bytes))?;
                trusted.push(f);
            }
            Ok(None) => {}
            Err(e) => return Err(Error::io(f, e)),
        }
    }
    if trusted.is_empty() {
        return Err(Error::new(Code::NoSuchPath, format!("there is no {}", file.display()))
            .at(&file)
            .hint("only a project's own settings file needs trust"));
    }
    if cx.ui.json {
        let list: Vec<String> = trusted.iter().map(|f| paths::bytes(f).to_str_lossy().into_owned()).collect();
        cx.ui.document(json!({"trusted": list}))?;
    } else {
        for f in trusted {
            cx.ui.line(format!("trusted as it is now: {}", text::name(paths::bytes(f))))?;
        }
        cx.ui.finish()?;
        cx.ui.note("A change of the file needs trust again.");
    }
    Ok(0)
}

//! The table of methods, made from the table of commands.
//!
//! A method's parameters are the command's long options and its positional arguments, by name; they are turned into words and
//! read by the same parser, so that defaults, conflicts and errors are the command line's.

use std::{any::TypeId, collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt};

use backstitch::error::{Code, Error, Result};
use clap::{ArgAction, Command, CommandFactory, ValueHint};
use serde_json::{Map, Value};

use super::special::Special;
use crate::table::Cli;

/// Commands that are no methods, and why.
pub const NOT_METHODS: &[(&str, &str)] = &[
    ("serve", "is the server"),
    ("mcp", "is a server of its own"),
    ("hook", "reads standard input"),
    ("ui", "is for a person at a screen"),
    ("capture", "is started by `turn begin --no-wait`"),
];

/// Second names: those of the hosts' vocabulary.
const ALIASES: &[(&str, &str)] = &[
    ("checkpoint/create", "checkpoint"),
    ("checkpoint/list", "list"),
    ("checkpoint/show", "show"),
    ("checkpoint/delete", "delete"),
    ("checkpoint/pin", "pin"),
    ("checkpoint/unpin", "unpin"),
    ("checkpoint/label", "label"),
];

/// Commands that only read, whatever their options.
const READING: &[&str] = &[
    "list",
    "show",
    "diff",
    "files",
    "cat",
    "log",
    "blame",
    "bisect",
    "operations",
    "session list",
    "session show",
    "status",
    "doctor",
    "config get",
    "config list",
    "config path",
    "stores list",
    "watch status",
    "completions",
    "man",
    "reference",
    "export",
    "turn wait",
];

/// Options that say how a terminal is written to.
const OF_TERMINALS: &[&str] = &["json", "quiet", "verbose", "color", "no-progress", "no-pager", "plain"];

/// What a parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// A whole number, not negative.
    Number,
    /// Text.
    Text,
    /// A list of texts.
    List,
}

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Just text.
    Plain,
    /// A path: relative to the workspace, or absolute; or `{"path_base64": ...}`.
    Path,
    /// A file or folder anywhere: absolute.
    Absolute,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name, with `_` for the option's `-`.
    pub name: String,
    /// The long option; `None` for a positional argument.
    long: Option<String>,
    /// Place among the positional arguments.
    index: usize,
    /// Stands after `--`.
    last: bool,
    /// What it holds.
    pub form: Form,
    /// What its text means.
    pub meaning: Meaning,
    /// The only words that are allowed; empty: any.
    pub words: Vec<String>,
    /// What holds where it is not said.
    pub default: Option<String>,
    /// Must be there.
    pub required: bool,
    /// Every method has it.
    pub global: bool,
    /// The help text, in one line.
    pub help: String,
}

/// What a method does with its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All of it.
    Whole,
    /// `--dry-run`.
    Plan,
    /// `--plan DIGEST`.
    Apply,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its name, such as `session/list`.
    pub name: String,
    /// The words of its command; of a special method, its own.
    pub words: Vec<String>,
    /// It is in [`Special`], not in [`Cli`].
    pub special: bool,
    /// Which part.
    pub step: Step,
    /// The help text, in one paragraph.
    pub about: String,
    /// Its parameters.
    pub params: Vec<Param>,
}

/// All methods by name.
pub type Methods = BTreeMap<String, Method>;

/// Makes the table.
pub fn methods() -> Methods {
    let mut all = Methods::new();
    for (mut command, special) in [(Cli::command(), false), (Special::command(), true)] {
        command.build();
        collect(&command, &mut Vec::new(), special, &mut all);
    }
    for (alias, name) in ALIASES {
        if let Some(m) = all.get(*name).cloned() {
            all.insert((*alias).to_owned(), Method { name: (*alias).to_owned(), ..m });
        }
    }
    all
}

fn collect(c: &Command, words: &mut Vec<String>, special: bool, all: &mut Methods) {
    let inner: Vec<&Command> = c.get_subcommands().filter(|s| s.get_name() != "help").collect();
    for s in &inner {
        if words.is_empty() && !special && NOT_METHODS.iter().any(|(n, _)| *n == s.get_name()) {
            continue;
        }
        words.push(s.get_name().to_owned());
        collect(s, words, special, all);
        words.pop();
    }
    if !inner.is_empty() || words.is_empty() {
        return;
    }
    let m = Method {
        name: words.join("/"),
        words: words.clone(),
        special,
        step: Step::Whole,
        about: one_line(c.get_long_about().or(c.get_about())),
        params: c.get_arguments().filter_map(param).collect(),
    };
    if m.has("plan") && m.has("dry_run") {
        for (step, end) in [(Step::Plan, "plan"), (Step::Apply, "apply")] {
            let mut m = Method { name: format!("{}/{end}", m.name), step, ..m.clone() };
            m.params.retain(|p| p.name != "dry_run" && (step == Step::Apply || p.name != "plan"));
            for p in &mut m.params {
                // What was planned is remembered: only its digest must be said.
                p.required = if step == Step::Apply { p.name == "plan" } else { p.required };
            }
            all.insert(m.name.clone(), m);
        }
    }
    all.insert(m.name.clone(), m);
}

fn one_line(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(|t| t.to_string()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn param(a: &clap::Arg) -> Option<Param> {
    let long = a.get_long().map(str::to_owned);
    let name = long.clone().unwrap_or_else(|| a.get_id().as_str().to_owned());
    let of_clap = matches!(
        a.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    if of_clap || OF_TERMINALS.contains(&name.as_str()) {
        return None;
    }
    let takes = a.get_action().takes_values();
    let kind = a.get_value_parser().type_id();
    let number = [TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()].iter().any(|t| kind == *t);
    let form = match (takes, a.get_action()) {
        (false, _) => Form::Flag,
        (true, ArgAction::Append) => Form::List,
        (true, _) if number => Form::Number,
        (true, _) => Form::Text,
    };
    let meaning = match a.get_value_hint() {
        ValueHint::AnyPath => Meaning::Path,
        ValueHint::DirPath | ValueHint::FilePath | ValueHint::ExecutablePath => Meaning::Absolute,
        _ => Meaning::Plain,
    };
    let of_values = |b: bool| takes && b;
    Some(Param {
        name: name.replace('-', "_"),
        index: a.get_index().unwrap_or(0),
        last: a.is_last_set(),
        form,
        meaning,
        words: match of_values(true) {
            true => a.get_possible_values().iter().map(|p| p.get_name().to_owned()).collect(),
            false => Vec::new(),
        },
        default: a.get_default_values().first().filter(|_| takes).map(|d| d.to_string_lossy().into_owned()),
        required: a.is_required_set(),
        global: a.is_global_set(),
        help: one_line(a.get_long_help().or(a.get_help())),
        long,
    })
}

fn usage(message: impl Into<String>) -> Error {
    Error::new(Code::Usage, message).hint("docs/reference/rpc.md lists the parameters of every method")
}

impl Method {
    /// It has this parameter.
    pub fn has(&self, name: &str) -> bool {
        self.params.iter().any(|p| p.name == name)
    }

    /// Its command's words, joined.
    pub fn command(&self) -> String {
        self.words.join(" ")
    }

    /// It changes nothing, so that it may run beside others.
    pub fn reads(&self, params: &Map<String, Value>) -> bool {
        let command = self.command();
        READING.contains(&command.as_str())
            || command == "verify" && params.get("repair") != Some(&true.into())
    }

    /// The words of a command line that says the same.
    ///
    /// # Errors
    /// `usage` for a parameter that does not exist, or that holds what it cannot.
    pub fn argv(&self, params: &Map<String, Value>) -> Result<Vec<OsString>> {
        let mut options: Vec<OsString> = Vec::new();
        let mut places: BTreeMap<usize, Vec<OsString>> = BTreeMap::new();
        let mut last: Vec<OsString> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (given, value) in params {
            let name = given.replace('-', "_");
            let p = self
                .params
                .iter()
                .find(|p| p.name == name)
                .ok_or_else(|| usage(format!("{} has no parameter {given:?}", self.name)))?;
            if seen.contains(&p.name.as_str()) {
                return Err(usage(format!("`{}` is said twice", p.name)));
            }
            seen.push(&p.name);
            let values = p.values(value)?;
            match &p.long {
                Some(long) if p.form == Form::Flag => {
                    options.extend(values.iter().map(|_| OsString::from(format!("--{long}"))));
                }
                Some(long) => options.extend(values.into_iter().map(|v| {
                    let mut word = OsString::from(format!("--{long}="));
                    word.push(v);
                    word
                })),
                None if p.last => last = values,
                None if values.is_empty() => {}
                None => {
                    places.insert(p.index, values);
                }
            }
        }
        if let Some(missing) = self.params.iter().find(|p| {
            p.long.is_none()
                && !p.last
                && !places.contains_key(&p.index)
                && places.keys().any(|i| *i > p.index)
        }) {
            return Err(usage(format!("{}: `{}` is needed with the others", self.name, missing.name)));
        }
        let mut argv: Vec<OsString> = vec!["backstitch".into(), "--json".into()];
        argv.extend(self.words.iter().map(OsString::from));
        argv.extend(options);
        let has_last = self.params.iter().any(|p| p.last);
        let places: Vec<OsString> = places.into_values().flatten().collect();
        if let Some(bad) = places.iter().find(|v| has_last && v.as_encoded_bytes().starts_with(b"-")) {
            // Before `--` it would be an option.
            return Err(usage(format!("{}: {bad:?} begins with a dash", self.name))
                .hint("a label that begins with a dash is named as `label:-...`"));
        }
        if !has_last && !places.is_empty() {
            argv.push("--".into());
        }
        argv.extend(places);
        if !last.is_empty() {
            argv.push("--".into());
            argv.extend(last);
        }
        Ok(argv)
    }
}

impl Param {
    fn wrong(&self, value: &Value) -> Error {
        let wanted = match self.form {
            Form::Flag => "true or false",
            Form::Number => "a whole number",
            Form::Text => "text",
            Form::List => "a list of texts",
        };
        let mut shown = value.to_string();
        if shown.len() > 80 {
            let end = shown.char_indices().map(|(i, _)| i).take_while(|i| *i <= 80).last().unwrap_or(0);
            shown.truncate(end);
            shown.push_str("...");
        }
        usage(format!("`{}` is {wanted}, not {shown}", self.name))
    }

    /// The words for its value; `null` is as good as left out, and so is a flag that is `false`.
    fn values(&self, value: &Value) -> Result<Vec<OsString>> {
        match (self.form, value) {
            (_, Value::Null) | (Form::Flag, Value::Bool(false)) => Ok(Vec::new()),
            (Form::Flag, Value::Bool(true)) => Ok(vec![OsString::new()]),
            (Form::Number, Value::Number(n)) if n.is_u64() => Ok(vec![n.to_string().into()]),
            (Form::Text, v) => Ok(vec![self.text(v)?]),
            (Form::List, Value::Array(list)) => list.iter().map(|v| self.text(v)).collect(),
            (_, other) => Err(self.wrong(other)),
        }
    }

    fn text(&self, value: &Value) -> Result<OsString> {
        let text: OsString = match value {
            Value::String(s) => s.into(),
            Value::Object(m) if self.meaning != Meaning::Plain && m.len() == 1 => m
                .get("path_base64")
                .and_then(Value::as_str)
                .and_then(backstitch::paths::from_base64)
                .map(OsString::from_vec)
                .ok_or_else(|| self.wrong(value))?,
            // A turn's number, where a name is asked for.
            Value::Number(n) if n.is_u64() && self.meaning == Meaning::Plain => n.to_string().into(),
            other => return Err(self.wrong(other)),
        };
        let bytes = text.as_encoded_bytes();
        // No command line can hold one; a prompt may come from a file, and does hold them.
        if bytes.contains(&0) && self.name != "prompt" {
            return Err(usage(format!("`{}` holds a NUL", self.name)));
        }
        if self.meaning == Meaning::Absolute && !bytes.starts_with(b"/") {
            return Err(usage(format!("`{}` must be an absolute path, not {text:?}", self.name)));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn argv(name: &str, params: Value) -> Result<Vec<String>> {
        let all = methods();
        let params = params.as_object().expect("an object").clone();
        let words = all[name].argv(&params)?;
        Ok(words.into_iter().skip(2).map(|w| w.into_string().expect("text")).collect())
    }

    #[test]
    fn every_command_is_a_method_or_says_why_not() {
        fn walk(c: &Command, words: &str, all: &Methods) {
            for s in c.get_subcommands().filter(|s| s.get_name() != "help") {
                let name = if words.is_empty() {
                    s.get_name().to_owned()
                } else {
                    format!("{words}/{}", s.get_name())
                };
                if NOT_METHODS.iter().any(|(n, _)| *n == name) {
                    assert!(!all.contains_key(&name), "{name}");
                } else if s.has_subcommands() {
                    walk(s, &name, all);
                } else {
                    let m = all.get(&name).unwrap_or_else(|| panic!("no method for {name}"));
                    for a in s.get_arguments().filter_map(param) {
                        assert!(m.has(&a.name), "{name} {}", a.name);
                    }
                }
            }
        }
        let mut c = Cli::command();
        c.build();
        walk(&c, "", &methods());
    }

    #[test]
    fn the_contract_has_these_methods() {
        let all = methods();
        for name in [
            "initialize",
            "workspace/open",
            "session/open",
            "session/fork",
            "session/end",
            "turn/begin",
            "turn/wait",
            "turn/bind",
            "turn/end",
            "tool/before",
            "tool/after",
            "checkpoint/create",
            "checkpoint/list",
            "checkpoint/show",
            "checkpoint/delete",
            "checkpoint/pin",
            "checkpoint/label",
            "diff",
            "restore/plan",
            "restore/apply",
            "rewind/plan",
            "rewind/apply",
            "revert/plan",
            "revert/apply",
            "undo",
            "redo",
            "status",
            "shutdown",
            "cat",
            "log",
            "blame",
            "operations",
            "session/list",
            "export",
            "verify",
        ] {
            assert!(all.contains_key(name), "{name}");
        }
    }

    #[test]
    fn parameters_become_words() {
        assert_eq!(
            argv(
                "checkpoint",
                json!({"label": "--x", "pin": true, "if-changed": false, "paths": ["-a", "b"]})
            )
            .expect("words"),
            ["checkpoint", "--label=--x", "--pin", "--", "-a", "b"]
        );
        assert_eq!(argv("rewind/plan", json!({"to": 2})).expect("words"), ["rewind", "2"]);
        assert_eq!(argv("undo", json!({"steps": 2})).expect("words"), ["undo", "--", "2"]);
        assert_eq!(argv("list", json!({"limit": null})).expect("words"), ["list"]);
    }

    #[test]
    fn a_value_never_becomes_an_option() {
        for (name, params) in [
            ("restore", json!({"checkpoint": "--force"})),
            ("rewind/plan", json!({"to": "--force"})),
            ("diff", json!({"from": "-C/"})),
        ] {
            assert_eq!(argv(name, params).expect_err(name).code, Code::Usage);
        }
        for (name, params, want) in [
            ("show", json!({"checkpoint": "--as-person"}), "--as-person"),
            ("label", json!({"checkpoint": "@", "label": "--clear"}), "--clear"),
        ] {
            let words = argv(name, params).expect("words");
            assert!(words.iter().position(|w| w == "--") < words.iter().position(|w| w == want), "{words:?}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused() {
        for (name, params) in [
            ("list", json!({"limit": "3"})),
            ("list", json!({"limit": -1})),
            ("list", json!({"limit": 1.5})),
            ("list", json!({"nonsense": 1})),
            ("list", json!({"json": true})),
            ("list", json!({"all": "yes"})),
            ("diff", json!({"to": "@"})),
            ("diff", json!({"name_status": true, "name-status": true})),
            ("checkpoint", json!({"paths": "a"})),
            ("checkpoint", json!({"paths": [1]})),
            ("checkpoint", json!({"label": "a\u{0}b"})),
            ("checkpoint", json!({"prompt_file": "-"})),
            ("export", json!({"checkpoint": "@", "tar": "x.tar"})),
            ("checkpoint", json!({"label": {"path_base64": "eA=="}})),
        ] {
            assert_eq!(
                argv(name, params.clone()).expect_err(&params.to_string()).code,
                Code::Usage,
                "{params}"
            );
        }
        let all = methods();
        let params = json!({"paths": [{"path_base64": "/w=="}]});
        let words = all["checkpoint"].argv(params.as_object().expect("object")).expect("words");
        assert_eq!(words.last().expect("one").as_encoded_bytes(), b"\xff");
    }
}

//! Configuration: written, repeated, taken out, byte for byte; what is broken is refused.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use backstitch::error::Code;
use backstitch_agents::{
    Agent,
    install::{self, Moved, Places, Program, Scope},
};
use serde_json::Value;

struct Home {
    places: Places,
    _dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (home, project) = (top.join("home"), top.join("project"));
        fs::create_dir_all(&home).unwrap();
        fs::create_dir_all(&project).unwrap();
        let places =
            Places { home, project, base: top.join("base"), program: Program::Name, moved: Moved::default() };
        Home { places, _dir: dir }
    }

    fn file(&self, agent: Agent, scope: Scope) -> PathBuf {
        self.places.file(agent, scope)
    }

    fn put(&self, agent: Agent, text: &str) -> PathBuf {
        let file = self.file(agent, Scope::User);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn install(&self, agent: Agent, scope: Scope) -> usize {
        let plan = install::install(agent, scope, &self.places).unwrap();
        plan.apply(&self.places).unwrap();
        plan.changes.len()
    }

    fn uninstall(&self, agent: Agent, scope: Scope) -> usize {
        let plan = install::uninstall(agent, scope, &self.places).unwrap();
        plan.apply(&self.places).unwrap();
        plan.changes.len()
    }
}

const JSON: &[Agent] = &[Agent::Claude, Agent::Codex, Agent::Gemini];

/// Files as people have them.
const FILES: &[&str] = &[
    "{}",
    "{}\n",
    "{\n}\n",
    "",
    "\n\n",
    "{\"model\":\"x\",\"hooks\":{}}",
    "{\n  // mine\n  \"model\": \"x\", /* keep */\n  \"zeta\": 1,\n  \"alpha\": [1,2 , 3],\n}\n",
    "\u{feff}{\r\n\t\"model\": \"x\"\r\n}\r\n",
    "{\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\n                \"matcher\": \"Bash\",\n                \"hooks\": [{ \"type\": \"command\", \"command\": \"my-own-check\" }] // careful\n            }\n        ],\n        \"Stop\": []\n    },\n    \"env\": { \"A\": \"1\" }\n}",
    "{\"hooks\":{\"SessionStart\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"echo hi\"}]}],\"BeforeTool\":[]}}",
];

#[test]
fn out_again_byte_for_byte() {
    for agent in JSON.iter().copied() {
        for text in FILES {
            let h = Home::new();
            let file = h.put(agent, text);
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            assert_eq!(h.install(agent, Scope::User), 1, "{text}");
            let once = fs::read_to_string(&file).unwrap();
            assert_ne!(&once, text);
            assert_eq!(h.install(agent, Scope::User), 0, "done twice, it changes nothing: {text}");
            // Another place of the program: the entries are replaced, not doubled.
            let mut moved = Home { places: h.places.clone(), _dir: tempfile::tempdir().unwrap() };
            moved.places.program = Program::At("/opt/it's here/backstitch".into());
            assert_eq!(moved.install(agent, Scope::User), 1);
            let events = fs::read_to_string(&file).unwrap().matches(" hook ").count();
            assert_eq!(events, once.matches(" hook ").count());
            assert_eq!(h.uninstall(agent, Scope::User), 1);
            assert_eq!(&fs::read_to_string(&file).unwrap(), text, "{}", agent.as_str());
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
            assert_eq!(h.uninstall(agent, Scope::User), 0);
        }
    }
}

#[test]
fn everything_of_the_users_stays_in_place_and_in_order() {
    for agent in JSON.iter().copied() {
        for text in FILES {
            let h = Home::new();
            let file = h.put(agent, text);
            h.install(agent, Scope::User);
            let after = fs::read_to_string(&file).unwrap();
            // Every line of it that is no bracket, comma or blank is still there, in order.
            let mut rest = after.as_str();
            for piece in
                text.split(['\n', '\r', '{', '}', '[', ']', ',']).map(str::trim).filter(|p| p.len() > 1)
            {
                let at = rest.find(piece).unwrap_or_else(|| panic!("{piece:?} of {text}\nnot in\n{after}"));
                rest = &rest[at + piece.len()..];
            }
        }
    }
}

#[test]
fn edited_meanwhile_only_our_entries_go() {
    for agent in JSON.iter().copied() {
        for text in FILES.iter().filter(|t| t.trim().len() > 2) {
            let h = Home::new();
            let file = h.put(agent, text);
            h.install(agent, Scope::User);
            let bom = text.starts_with('\u{feff}');
            let installed = fs::read_to_string(&file).unwrap();
            let at = installed.find('{').unwrap() + 1;
            let edited = format!("{}\"added\": \"later\",{}", &installed[..at], &installed[at..]);
            fs::write(&file, edited).unwrap();
            h.uninstall(agent, Scope::User);
            let left = fs::read_to_string(&file).unwrap();
            assert!(!left.contains("backstitch"), "{left}");
            assert_eq!(left.starts_with('\u{feff}'), bom);
            assert!(
                left.contains("\"added\": \"later\"") && left.contains("//") == text.contains("//"),
                "{left}"
            );
            // As values it is the user's file and the addition; an empty `hooks` of the user's own may be gone.
            let value = |t: &str| -> Value {
                let strict: String = t
                    .trim_start_matches('\u{feff}')
                    .lines()
                    .map(|l| l.split("//").next().unwrap().replace("/* keep */", "") + "\n")
                    .collect::<String>()
                    .replace(",\n}", "\n}");
                serde_json::from_str(&strict).unwrap_or_else(|e| panic!("{e}: {strict}"))
            };
            let mut want = value(text);
            want["added"] = "later".into();
            let mut got = value(&left);
            for v in [&mut want, &mut got] {
                if let Some(hooks) = v.get_mut("hooks").and_then(Value::as_object_mut) {
                    hooks.retain(|_, v| v.as_array().is_none_or(|a| !a.is_empty()));
                    if hooks.is_empty() {
                        v.as_object_mut().unwrap().remove("hooks");
                    }
                }
            }
            assert_eq!(got, want, "{left}");
        }
    }
}

#[test]
fn where_there_was_nothing_there_is_nothing_again() {
    for agent in Agent::ALL.iter().copied() {
        for scope in [Scope::User, Scope::Project] {
            let h = Home::new();
            assert_eq!(h.install(agent, scope), 1);
            let file = h.file(agent, scope);
            assert!(file.is_file());
            assert_eq!(h.install(agent, scope), 0);
            let other = if scope == Scope::User { Scope::Project } else { Scope::User };
            assert_eq!(h.uninstall(agent, other), 0, "the other scope has nothing of ours");
            h.uninstall(agent, scope);
            for dir in [&h.places.home, &h.places.project] {
                assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{}", agent.as_str());
            }
        }
    }
}

#[test]
fn a_file_that_came_to_be_and_was_edited_keeps_what_was_added() {
    let h = Home::new();
    h.install(Agent::Claude, Scope::User);
    let file = h.file(Agent::Claude, Scope::User);
    let text = fs::read_to_string(&file).unwrap().replacen('{', "{\n  \"model\": \"x\",", 1);
    fs::write(&file, text).unwrap();
    h.uninstall(Agent::Claude, Scope::User);
    let left: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({"model": "x"}));
}

#[test]
fn broken_files_are_named_with_their_line_and_left() {
    for (text, line, why) in [
        ("{\n  \"a\": 1\n  \"b\": 2\n}", 2, "comma"),
        ("{\n  \"a\": ", 2, ""),
        ("[]", 1, "not a JSON object"),
        ("{\n\n\"hooks\": []}", 3, "`hooks` is not an object"),
        ("{\"hooks\": {\n\"Stop\": {}}}", 2, "`hooks.Stop` is not an array"),
        ("{\"hooks\": {},\n\"hooks\": {}}", 2, "second time"),
        ("{'a': 1}", 1, ""),
    ] {
        let h = Home::new();
        let file = h.put(Agent::Claude, text);
        for result in [
            install::install(Agent::Claude, Scope::User, &h.places).map(|_| ()),
            install::uninstall(Agent::Claude, Scope::User, &h.places).map(|_| ()),
        ] {
            let e = result.unwrap_err();
            assert_eq!(e.code, Code::BadSetting, "{text}");
            let place = format!("{}:{line}: ", file.display());
            assert!(e.message.starts_with(&place) && e.message.contains(why), "{text}: {}", e.message);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    let h = Home::new();
    let file = h.put(Agent::Codex, "");
    fs::write(&file, b"{\n\"a\": \"\xff\"}").unwrap();
    let e = install::install(Agent::Codex, Scope::User, &h.places).unwrap_err();
    assert!(e.message.contains(":2: "), "{}", e.message);
}

#[test]
fn a_link_stays_a_link_and_a_change_in_between_is_seen() {
    let h = Home::new();
    let file = h.file(Agent::Claude, Scope::User);
    let real = h.places.home.join("dotfiles.json");
    fs::write(&real, "{}").unwrap();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    h.install(Agent::Claude, Scope::User);
    assert!(file.is_symlink() && fs::read_to_string(&real).unwrap().contains("backstitch"));
    h.uninstall(Agent::Claude, Scope::User);
    assert_eq!(fs::read_to_string(&real).unwrap(), "{}");

    let plan = install::install(Agent::Claude, Scope::User, &h.places).unwrap();
    fs::write(&real, "{\"a\":1}").unwrap();
    assert_eq!(plan.apply(&h.places).unwrap_err().code, Code::PlanChanged);
    assert_eq!(fs::read_to_string(&real).unwrap(), "{\"a\":1}");
}

#[test]
fn what_is_written_is_what_the_clients_read() {
    let h = Home::new();
    for agent in JSON.iter().copied() {
        h.install(agent, Scope::User);
        let v: Value =
            serde_json::from_str(&fs::read_to_string(h.file(agent, Scope::User)).unwrap()).unwrap();
        for (event, groups) in v["hooks"].as_object().unwrap() {
            let hook = &groups[0]["hooks"][0];
            assert_eq!(hook["type"], "command");
            let line = hook["command"].as_str().unwrap();
            let want = format!("backstitch hook {} {event} || exit 0", agent.as_str());
            assert!(
                line.starts_with("command -v backstitch >/dev/null || exit 0; ") && line.ends_with(&want)
            );
            let wait = hook["timeout"].as_u64().unwrap();
            assert_eq!(wait >= 1000, agent == Agent::Gemini, "seconds or milliseconds");
        }
    }
    let tools = Program::At("/opt/it's/backstitch".into()).line(Agent::Gemini, "BeforeTool");
    assert!(tools.starts_with("[ -x '/opt/it'\\''s/backstitch' ] || exit 0; "), "{tools}");
}

#[test]
fn the_lines_of_the_hooks_succeed_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("it's backstitch");
    let run = |line: &str| {
        let mut c = std::process::Command::new("sh");
        c.args(["-c", line]).env("PATH", "/usr/bin:/bin").stdin(std::process::Stdio::null());
        let out = c.output().unwrap();
        (out.status.code(), out.stdout.len())
    };
    // Not there; there and dying.
    assert_eq!(run(&Program::Name.line(Agent::Gemini, "BeforeTool")), (Some(0), 0));
    let line = Program::At(program.clone()).line(Agent::Gemini, "BeforeTool");
    assert_eq!(run(&line), (Some(0), 0));
    fs::write(&program, "#!/bin/sh\nexit 101\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&line), (Some(0), 0));
    fs::write(&program, "#!/bin/sh\nkill -9 $$\n").unwrap();
    assert_eq!(run(&line), (Some(0), 0));
}

#[test]
fn somebody_elses_plugin_file_is_refused() {
    let h = Home::new();
    h.put(Agent::Opencode, "export const Mine = 1;\n");
    let e = install::install(Agent::Opencode, Scope::User, &h.places).unwrap_err();
    assert_eq!(e.code, Code::Conflict);
    assert_eq!(h.uninstall(Agent::Opencode, Scope::User), 0);
    let notes = |h: &Home| install::install(Agent::Opencode, Scope::Project, &h.places).unwrap().notes;
    assert!(notes(&h).iter().any(|n| n.contains("snapshot")));
    fs::write(h.places.project.join("opencode.json"), "{ \"snapshot\" : false }").unwrap();
    assert!(!notes(&h).iter().any(|n| n.contains("snapshot")));
}

#[test]
fn codex_is_never_made_to_trust_us() {
    let h = Home::new();
    let plan = install::install(Agent::Codex, Scope::User, &h.places).unwrap();
    plan.apply(&h.places).unwrap();
    assert!(plan.notes.iter().any(|n| n.contains("/hooks")));
    let written: Vec<_> = fs::read_dir(h.places.home.join(".codex")).unwrap().flatten().collect();
    assert_eq!(written.len(), 1);
    assert!(!fs::read_to_string(written[0].path()).unwrap().contains("trusted"));
}

/// A wrapper or a versioned file: the program has another name than its own.
#[test]
fn a_program_of_any_name_is_installed_once_and_taken_out() {
    let mut h = Home::new();
    for (n, name) in ["bs-1.2", "back stitch; it's", "x/backstitch"].into_iter().enumerate() {
        for agent in JSON.iter().copied() {
            h.places.program = Program::At(h.places.home.join(name));
            let file = h.put(agent, FILES[n]);
            assert_eq!(h.install(agent, Scope::User), 1);
            let once = fs::read_to_string(&file).unwrap();
            assert_eq!(h.install(agent, Scope::User), 0, "{name}");
            // Another version of it takes the place of this one.
            h.places.program = Program::Name;
            h.install(agent, Scope::User);
            let other = fs::read_to_string(&file).unwrap();
            assert_eq!(once.matches(" hook ").count(), other.matches(" hook ").count());
            h.uninstall(agent, Scope::User);
            assert_eq!(fs::read_to_string(&file).unwrap(), FILES[n]);
        }
    }
}

#[test]
fn a_line_that_only_speaks_of_us_stays() {
    let own = "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"echo no backstitch hook claude here\"}]}]}}";
    let h = Home::new();
    let file = h.put(Agent::Claude, own);
    assert_eq!(h.uninstall(Agent::Claude, Scope::User), 0);
    h.install(Agent::Claude, Scope::User);
    assert!(fs::read_to_string(&file).unwrap().contains("echo no backstitch hook claude here"));
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("no backstitch", "still no backstitch"))
        .unwrap();
    h.uninstall(Agent::Claude, Scope::User);
    let left = fs::read_to_string(&file).unwrap();
    assert!(left.contains("echo still no backstitch hook claude here"), "{left}");
    assert_eq!(left.matches("\"command\"").count(), 2, "{left}");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let h = Home::new();
    let file = h.put(Agent::Gemini, "");
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let e = install::install(Agent::Gemini, Scope::User, &h.places).unwrap_err();
    assert_eq!(e.code, Code::BadSetting);
}

//! Lines for a shell in a client's configuration: which of them are ours.

use crate::Agent;

/// A line that calls a hook of ours: one of this program's, under whatever name it was installed, in this or an earlier version.
/// A line that only speaks of it is somebody's own.
pub fn is_ours(line: &str, agent: Agent) -> bool {
    let commands = commands(line);
    let guarded = |program: &str| commands.iter().any(|c| *c == ["[", "-x", program, "]"]);
    let calls = |c: &Vec<String>| {
        let words =
            c.iter().skip_while(|w| is_setting(w) || matches!(w.as_str(), "exec" | "env" | "command"));
        let words: Vec<&str> = words.take(3).map(String::as_str).collect();
        let [program, "hook", of] = words[..] else { return false };
        let name = program.rsplit('/').next().unwrap_or(program);
        Agent::parse(of) == Some(agent) && (name.starts_with("backstitch") || guarded(program))
    };
    commands.iter().any(calls)
}

/// `NAME=value` before a command.
fn is_setting(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The words of each command of a line, quotes taken off. Substitutions are words like others.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    let mut end = |word: &mut Option<String>, next: bool| {
        if let (Some(w), Some(last)) = (word.take(), all.last_mut()) {
            last.push(w);
        }
        if next {
            all.push(Vec::new());
        }
    };
    while let Some(c) = chars.next() {
        match c {
            ';' | '&' | '|' | '\n' => end(&mut word, true),
            c if c.is_whitespace() => end(&mut word, false),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.extend(if c == '\\' { chars.next() } else { Some(c) });
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    end(&mut word, false);
    all
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::install::Program;

    #[test]
    fn what_was_written_is_known_again_whatever_the_program_is_called() {
        let at = |p: &str| Program::At(PathBuf::from(p));
        for program in [
            Program::Name,
            at("/usr/bin/backstitch"),
            at("/opt/bs-1.2"),
            at("/my dir/it's \"the\" one; really/bs"),
        ] {
            for agent in [Agent::Claude, Agent::Codex, Agent::Gemini] {
                let line = program.line(agent, "Stop");
                for other in Agent::ALL {
                    assert_eq!(is_ours(&line, *other), agent == *other, "{line}");
                }
            }
        }
        for line in [
            "backstitch hook claude Stop",
            "command -v backstitch >/dev/null || exit 0; backstitch hook claude PreToolUse",
            "\"/x/backstitch\" hook claude-code Stop",
            "BACKSTITCH_DISABLE=0 exec backstitch-0.1.0 hook claude Stop >> /tmp/log",
        ] {
            assert!(is_ours(line, Agent::Claude), "{line}");
        }
    }

    #[test]
    fn what_only_speaks_of_it_is_somebodys_own() {
        for line in [
            "",
            "echo do not run backstitch hook claude here",
            "grep -q 'backstitch hook claude Stop' settings.json",
            "'backstitch hook claude Stop'",
            "/opt/other hook claude Stop",
            "[ -x /opt/one ] || exit 0; /opt/other hook claude Stop",
            "backstitch status; other-tool hook claude Stop",
            "backstitch hook codex Stop",
        ] {
            assert!(!is_ours(line, Agent::Claude), "{line}");
        }
    }
}

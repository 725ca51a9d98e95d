//! The clients' own files of the conversation: which row a prompt became, and where a fork comes from. They are read only, from
//! the end, and only so far; a line that is no JSON is passed over.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde_json::Value;

use crate::{input, payload};

/// Read at most this much of a transcript, from its end.
const LIMIT: u64 = 64 << 20;
/// The prompt's row is near the end while its turn runs.
pub const NEAR: u64 = 1 << 20;

/// The last bytes of a file, from the beginning of a line on.
fn tail(path: &Path, limit: u64) -> Option<Vec<u8>> {
    // What is no file is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut f = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let m = f.metadata().ok().filter(|m| m.is_file())?;
    let start = m.len().saturating_sub(limit);
    f.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    f.take(limit).read_to_end(&mut bytes).ok()?;
    if start > 0 {
        let first = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| i + 1);
        bytes.drain(..first);
    }
    Some(bytes)
}

fn holds(line: &[u8], what: &str) -> bool {
    bstr::ByteSlice::contains_str(line, what)
}

/// A prompt's row: from a user, not in a sub-agent, no result of a tool.
fn is_prompt(row: &Value) -> bool {
    let results = row.get("message").and_then(|m| m.get("content")).and_then(Value::as_array);
    payload::text(row, "type") == Some("user")
        && row.get("isSidechain") != Some(&Value::Bool(true))
        && row.get("isMeta") != Some(&Value::Bool(true))
        && !results.is_some_and(|c| c.iter().any(|p| payload::text(p, "type") == Some("tool_result")))
}

/// Claude Code: the `uuid` of the row that the prompt with this id became. `near` looks at the last megabyte only.
pub fn entry_of(path: &Path, prompt: &str, near: bool) -> Option<String> {
    let bytes = tail(path, if near { NEAR } else { LIMIT })?;
    bytes
        .split(|b| *b == b'\n')
        .filter(|l| holds(l, prompt))
        .filter_map(|l| input::parse(l).ok())
        .find(|row| payload::text(row, "promptId") == Some(prompt) && is_prompt(row))
        .and_then(|row| payload::owned(&row, "uuid"))
}

/// What a forked conversation carries over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The session that it names as its origin.
    pub parent: Option<String>,
    /// Ids of entries and turns in it.
    pub ids: Vec<String>,
}

/// What the transcript of a fork carries: Claude Code keeps the `uuid` of every row, Codex names `forked_from_id` and the
/// `turn_id` of every turn. `None` where there is no file yet.
pub fn inherited(path: &Path) -> Option<Inherited> {
    let bytes = tail(path, LIMIT)?;
    let mut out = Inherited::default();
    for line in bytes.split(|b| *b == b'\n') {
        if !["\"uuid\"", "turn_id", "forked_from_id"].iter().any(|w| holds(line, w)) {
            continue;
        }
        let Ok(row) = input::parse(line) else { continue };
        if out.parent.is_none() {
            out.parent = payload::owned(&row, "payload.forked_from_id");
        }
        if is_prompt(&row) {
            out.ids.extend(payload::owned(&row, "uuid"));
        }
        out.ids.extend(payload::owned(&row, "payload.turn_id"));
    }
    Some(out)
}

/// Claude Code: the answer's row before the prompt's, up to which a conversation can be resumed. `None` for a first prompt.
pub fn answer_before(path: &Path, entry: &str) -> Option<String> {
    let bytes = tail(path, LIMIT)?;
    let mut rows: HashMap<String, (Option<String>, bool)> = HashMap::new();
    for line in bytes.split(|b| *b == b'\n').filter(|l| holds(l, "\"uuid\"")) {
        let Ok(row) = input::parse(line) else { continue };
        let Some(id) = payload::owned(&row, "uuid") else { continue };
        let answer = payload::text(&row, "type") == Some("assistant");
        rows.insert(id, (payload::owned(&row, "parentUuid"), answer));
    }
    let mut at = rows.get(entry)?.0.clone();
    // Never more steps than rows: a chain may bite its tail.
    for _ in 0..rows.len() {
        let id = at?;
        let (parent, answer) = rows.get(&id)?;
        if *answer {
            return Some(id);
        }
        at = parent.clone();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"{"type":"queue-operation","sessionId":"s"}
{"type":"user","uuid":"u1","parentUuid":null,"promptId":"p1","isSidechain":false,"message":{"content":"Go"}}
{"type":"attachment","uuid":"x1","parentUuid":"u1"}
{"type":"assistant","uuid":"a1","parentUuid":"x1","message":{"content":[]}}
{"type":"user","uuid":"r1","parentUuid":"a1","promptId":"p1","message":{"content":[{"type":"tool_result"}]}}
{"type":"assistant","uuid":"a2","parentUuid":"r1"}
{"type":"system","uuid":"y1","parentUuid":"a2"}
{"type":"user","uuid":"side","parentUuid":"y1","promptId":"p2","isSidechain":true,"message":{"content":"x"}}
not json "uuid" p2
{"type":"user","uuid":"u2","parentUuid":"y1","promptId":"p2","message":{"content":"More"}}"#;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let f = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(f.path(), text).expect("written");
        f
    }

    #[test]
    fn prompts_are_found_and_results_of_tools_are_not() {
        let f = file(ROWS);
        assert_eq!(entry_of(f.path(), "p1", true).as_deref(), Some("u1"));
        assert_eq!(entry_of(f.path(), "p2", false).as_deref(), Some("u2"));
        assert_eq!(entry_of(f.path(), "p3", false), None);
        assert_eq!(entry_of(Path::new("/nonexistent/x"), "p1", false), None);
        assert_eq!(inherited(f.path()).expect("read").ids, ["u1", "u2"]);
        assert_eq!(inherited(Path::new("/nonexistent/x")), None);
    }

    #[test]
    fn the_answer_before_a_prompt() {
        let f = file(ROWS);
        assert_eq!(answer_before(f.path(), "u2").as_deref(), Some("a2"));
        assert_eq!(answer_before(f.path(), "u1"), None);
        let circle = file("{\"uuid\":\"a\",\"parentUuid\":\"b\"}\n{\"uuid\":\"b\",\"parentUuid\":\"a\"}\n");
        assert_eq!(answer_before(circle.path(), "a"), None);
    }

    #[test]
    fn a_rollout_names_its_origin() {
        let f = file(
            "{\"type\":\"session_meta\",\"payload\":{\"id\":\"n\",\"forked_from_id\":\"o\"}}\n{\"type\":\"turn_context\",\"payload\":{\"turn_id\":\"t1\"}}\n",
        );
        let want = Inherited { parent: Some("o".into()), ids: vec!["t1".into()] };
        assert_eq!(inherited(f.path()), Some(want));
    }

    #[test]
    fn only_the_end_of_a_long_file_is_read() {
        let filler = format!("{{\"uuid\":\"{}\"}}\n", "f".repeat(1000)).repeat(1100);
        let f = file(&format!("{}\n{filler}{ROWS}", ROWS.replace("\"p1\"", "\"p0\"")));
        assert_eq!(entry_of(f.path(), "p0", true), None);
        assert_eq!(entry_of(f.path(), "p0", false).as_deref(), Some("u1"));
        assert_eq!(entry_of(f.path(), "p1", true).as_deref(), Some("u1"));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).expect("made");
        assert_eq!((entry_of(&pipe, "p1", true), inherited(&pipe)), (None, None));
    }
}

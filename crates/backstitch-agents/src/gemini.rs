//! Gemini CLI: no ids of turns and calls. A turn's key is the time of its prompt, as the client tells it.

use serde_json::Value;

use crate::{
    claude,
    hook::Host,
    notice::{Event, Notice, Tool},
    payload,
};

/// Tools that never write.
const READERS: &[&str] = &[
    "read_file",
    "read_many_files",
    "list_directory",
    "glob",
    "grep_search",
    "search_file_content",
    "google_web_search",
    "web_fetch",
    "write_todos",
    "activate_skill",
    "ask_user",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_internal_docs",
];

/// The notice in a payload; `None` for what is of no concern here.
pub fn read(said: Option<&str>, p: &Value, host: &Host) -> Option<Notice> {
    let at = payload::text(p, "timestamp").unwrap_or_default();
    let tool = || {
        let name = payload::text(p, "tool_name")?;
        let input = p.get("tool_input").unwrap_or(&Value::Null);
        let paths = claude::named(name, input, READERS, &["write_file", "replace"], &["file_path"])?;
        Some(Tool {
            key: None,
            call: claude::unnamed(name, input, at),
            name: name.to_owned(),
            agent: None,
            paths,
        })
    };
    let event = match claude::event(said, p)? {
        "SessionStart" => Event::Open { forked: false },
        "BeforeAgent" => Event::Prompt {
            key: payload::owned(p, "timestamp"),
            entry: None,
            text: payload::owned(p, "prompt").unwrap_or_default(),
        },
        "BeforeTool" => Event::Before(tool()?),
        "AfterTool" => Event::After(tool()?),
        "AfterAgent" => Event::End { key: None },
        "SessionEnd" => Event::Close,
        // `PreCompress` comes before every request of the model: it says nothing.
        _ => return None,
    };
    claude::notice(p, host, event)
}

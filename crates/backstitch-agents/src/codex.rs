//! Codex: Claude Code's form with `turn_id` for turns, and patches instead of paths.

use serde_json::Value;

use crate::{claude, hook::Host, notice::Notice, patch, payload};

/// Tools that never write.
const READERS: &[&str] =
    &["update_plan", "view_image", "web_search", "list_mcp_resources", "read_mcp_resource", "tool_search"];

/// The notice in a payload; `None` for what is of no concern here.
pub fn read(said: Option<&str>, p: &Value, host: &Host) -> Option<Notice> {
    let key = payload::owned(p, "turn_id");
    let event = claude::shared(claude::event(said, p)?, p, key, |name, input| match name {
        _ if READERS.contains(&name) => None,
        "apply_patch" => {
            Some(patch::paths(payload::first(input, &["command", "input", "patch"]).unwrap_or_default()))
        }
        _ => Some(Vec::new()),
    })?;
    claude::notice(p, host, event)
}

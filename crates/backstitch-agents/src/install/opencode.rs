//! The plugin file for opencode.

use std::path::Path;

use backstitch::error::{Code, Error, Result};

use super::{Places, Program};

/// The plugin, with the program's name in place of this word.
const TEMPLATE: &str = include_str!("opencode.js");
const PROGRAM: &str = "\"@PROGRAM@\"";
/// Its first words: a file without them is somebody else's.
const MARK: &str = "// Backstitch for opencode.";

/// A file that we wrote.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The plugin's text. `base` is what else stands in the file.
pub fn plugin(path: &Path, base: &str, places: &Places) -> Result<String> {
    if !base.is_empty() {
        return Err(Error::new(Code::Conflict, format!("{}: this file is not ours", path.display()))
            .at(path)
            .hint("move it away first; nothing was changed"));
    }
    let program = match &places.program {
        Program::Name => "backstitch".to_owned(),
        Program::At(p) => p.to_string_lossy().into_owned(),
    };
    let quoted = serde_json::to_string(&program).unwrap_or_default();
    Ok(TEMPLATE.replace(PROGRAM, &quoted))
}

/// The user or the project has switched opencode's own snapshots off.
pub fn snapshots_are_off(places: &Places) -> bool {
    let user = places.moved.opencode.clone().unwrap_or_else(|| places.home.join(".config/opencode"));
    let files = [
        user.join("opencode.json"),
        user.join("opencode.jsonc"),
        places.project.join("opencode.json"),
        places.project.join("opencode.jsonc"),
    ];
    files.iter().filter_map(|f| std::fs::read_to_string(f).ok()).any(|text| {
        let flat: String = text.split_whitespace().collect();
        flat.contains("\"snapshot\":false")
    })
}

//! The official client library of the Model Context Protocol, in TypeScript.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Result, tools};

/// As it is named on the command line.
pub const NAME: &str = "mcp";
/// In the version that was tried.
const PACKAGE: &str = "@modelcontextprotocol/sdk@1.32.2";

/// Installs it by npm, once. The error says why it cannot be had.
pub fn install(base: &Path) -> Result<PathBuf> {
    let dir = base.join(NAME);
    let library = dir.join("node_modules/@modelcontextprotocol/sdk/dist/esm/client/index.js");
    if !library.is_file() {
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("package.json"), "{\"private\":true}\n")?;
        println!("installing {NAME}: {PACKAGE}");
        let flags = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        tools::quiet(tools::command("npm", flags)?.arg(&dir).arg(PACKAGE))?;
    }
    match library.is_file() {
        true => Ok(dir),
        false => Err("the package holds no client".into()),
    }
}

/// Plays `mcp_story.mjs` in a folder of its own.
pub fn story(dir: &Path, binary: &Path) -> Result<()> {
    // Outside of every git work tree: the workspace is the folder itself.
    let top =
        std::env::temp_dir().canonicalize()?.join(format!("backstitch-agents-mcp-{}", std::process::id()));
    let (home, folder) = (top.join("home"), top.join("project"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&folder)?;
    let script = tools::root()?.join("xtask/src/agents/mcp_story.mjs");
    let mut node = tools::command("node", [&script, dir, &folder])?;
    node.arg(binary).arg("-C").arg(&folder).arg("mcp");
    node.env_clear().env("HOME", &home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ended = tools::stream(node, |_| {});
    fs::remove_dir_all(&top)?;
    match ended? {
        true => Ok(()),
        false => Err("the story did not come to its end".into()),
    }
}

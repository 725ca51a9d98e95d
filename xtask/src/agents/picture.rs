//! `--pictures`: what a person sees, taken from a terminal in which the real client runs.

use std::{fs, path::Path, time::Duration};

use super::{
    client::{Client, Installed},
    model::Model,
};
use crate::{Result, tools};

const COLUMNS: &str = "100";
/// In steps of a fifth of a second.
const PATIENCE: u32 = 900;

/// Plays a short afternoon in a terminal of its own, and writes what stands on its screen.
pub fn take(client: Client, dir: &Path, scratch: &Path, binary: &Path, to: &Path) -> Result<()> {
    let model = Model::start(&scratch.join("project"))?;
    let c = Installed::new(client, dir.to_owned(), scratch, binary.to_owned(), model.port)?;
    let bin = scratch.join("bin");
    c.typed(&bin)?;
    fs::write(c.folder.join("old.txt"), "old\n")?;
    fs::write(c.folder.join("mine.txt"), "mine\n")?;
    // Where a client hands a typed command on to its model, or does not show the answer, it is typed beside it.
    let shows = matches!(client, Client::Claude | Client::Gemini);
    let take_back = match shows {
        true => [c.line("backstitch rewind", false), c.line("backstitch rewind 2", false)],
        false => ["backstitch rewind 2 --dry-run".to_owned(), "backstitch rewind 2".to_owned()],
    };
    let [look, take] = take_back;
    let lines = [
        format!("backstitch install {} --yes >/dev/null", client.name()),
        c.line("STORY-WRITE please", true),
        c.line("STORY-SHELL please", false),
        "backstitch list".to_owned(),
        look,
        take,
        "backstitch undo".to_owned(),
    ];
    let script: String = lines
        .iter()
        .map(|l| format!("printf '%s\\n' \"$ {}\"\n{l} </dev/null\necho\n", l.replace('"', "\\\"")))
        .collect();
    let file = scratch.join("afternoon.sh");
    fs::write(&file, script)?;
    let socket = format!("backstitch-pictures-{}", std::process::id());
    let tmux = |words: &[&str]| {
        let mut t = c.bare(Path::new("tmux"));
        let path = format!("{}:{}", bin.display(), path_of(&t));
        t.env("PATH", path).env("TERM", "xterm-256color").env("NO_COLOR", "1");
        t.args(["-L", &socket, "-f", "/dev/null"]).args(words);
        tools::quiet(&mut t)
    };
    let run = format!("sh '{}'", file.display());
    tmux(&["new-session", "-d", "-x", COLUMNS, "-y", "50", "cat"])?;
    tmux(&["set-option", "-g", "remain-on-exit", "on"])?;
    tmux(&["respawn-pane", "-k", "-c", &c.folder.to_string_lossy(), &run])?;
    let mut left = PATIENCE;
    while tmux(&["display-message", "-p", "#{pane_dead}"])?.trim_ascii() != b"1" {
        left = left.checked_sub(1).ok_or("the terminal did not come to its end")?;
        std::thread::sleep(Duration::from_millis(200));
    }
    let seen = String::from_utf8_lossy(&tmux(&["capture-pane", "-p", "-S", "-2000"])?).into_owned();
    let _ = tmux(&["kill-server"]);
    let seen: Vec<&str> =
        seen.lines().map(str::trim_end).filter(|l| !l.starts_with("Pane is dead")).collect();
    let seen = seen.join("\n").replace(&*c.folder.to_string_lossy(), "~/project");
    let seen = seen.replace(&*c.home.to_string_lossy(), "~");
    fs::create_dir_all(to)?;
    fs::write(to.join(format!("{}.txt", client.name())), format!("{}\n", seen.trim_end()))?;
    Ok(())
}

fn path_of(command: &std::process::Command) -> String {
    let path = command.get_envs().find(|(k, _)| *k == "PATH").and_then(|(_, v)| v);
    path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

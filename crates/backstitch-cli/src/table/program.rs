//! Words of the commands about the program itself: agents that call it, shells, manual pages.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueHint};

use super::words::{Agent, Page};

/// `hook`
#[derive(Args, Debug)]
pub struct Hook {
    /// The agent.
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The event, as the client names it [default: as the payload says].
    #[arg(value_name = "EVENT")]
    pub event: Option<String>,
}

impl Hook {
    /// A hook as its clients call it, without options. An agent waits for every hook, so this one command is also read
    /// without building the whole table.
    pub fn plain(words: &[OsString]) -> Option<Hook> {
        let (name, rest) = words.get(1..)?.split_first()?;
        let (agent, event) = match rest {
            [agent] => (agent, None),
            [agent, event] => (agent, Some(event)),
            _ => return None,
        };
        let plain = |w: &OsString| w.to_str().filter(|w| !w.starts_with('-')).map(str::to_owned);
        let hook = Hook {
            agent: plain(agent)?,
            event: match event {
                Some(e) => Some(plain(e)?),
                None => None,
            },
        };
        (name == "hook").then_some(hook)
    }
}

/// `install`, `uninstall`
#[derive(Args, Debug)]
pub struct Install {
    /// The agent.
    #[arg(value_name = "AGENT")]
    pub agent: Agent,
    /// The project's configuration, for everybody who works in it [default: the user's, for every project].
    #[arg(long)]
    pub project: bool,
    /// Show the change; write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `ui`
#[derive(Args, Debug)]
pub struct Web {
    /// The port [default: any that is free].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Understood for the sake of scripts: no browser is opened, the address is printed.
    #[arg(long)]
    pub no_open: bool,
}

/// `completions`
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `man`
#[derive(Args, Debug)]
pub struct Man {
    /// Write one page for each command into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// `reference`
#[derive(Args, Debug)]
pub struct Reference {
    /// Which page.
    #[arg(value_name = "PAGE", default_value = "commands")]
    pub page: Page,
}

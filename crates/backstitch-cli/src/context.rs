//! What the words mean after the environment is applied.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use backstitch::{
    error::{Code, Error, Result},
    names,
    record::Checkpoint,
    session::{self, Session},
    workspace::{Control, Rows, Surroundings, Workspace},
};

use clap::{Parser, error::ErrorKind};

use crate::{
    ask, command, problem,
    progress::Progress,
    table::{Cli, Command, Global, Hook},
    ui::Ui,
};

/// Exit code of work that left something out.
pub const PARTIAL: u8 = 3;

/// Everything that a command needs.
pub struct Context {
    /// Where and how to write.
    pub ui: Ui,
    /// The folder that was named, or the current one.
    pub folder: PathBuf,
    /// `--session` as typed.
    pub session: Option<String>,
    /// The environment, with the options applied.
    pub surroundings: Surroundings,
    /// Set by a signal.
    pub interrupt: Arc<AtomicBool>,
    /// Told by the library.
    pub progress: Progress,
    tick: Box<Tick>,
}

/// What was done, how much of it, how much in all (0: unknown).
pub type Tick = dyn Fn(&str, u64, u64) + Send + Sync;

/// Runs a command; returns the exit code.
pub fn run(cli: Cli) -> u8 {
    let ui = Ui::new(&cli.global);
    let surroundings = match surroundings(&cli.global) {
        Ok(s) => s,
        Err(e) => return problem::report(&ui, &e),
    };
    let context = Context::new(cli.global, ui, surroundings);
    let result = command::run(&context, cli.command).and_then(|code| context.ui.finish().map(|()| code));
    context.progress.stop();
    // A pager gives the terminal back before anything else is said there.
    let _ = result.is_err().then(|| context.ui.finish());
    match result {
        Ok(code) => code,
        Err(_) if context.ui.is_broken() => 0,
        Err(e) => problem::report(&context.ui, &e),
    }
}

/// No command was typed: on a terminal, where something is recorded, that is the picker. `None`: it is an error.
pub fn run_alone(error: &clap::Error, words: &[OsString]) -> Option<u8> {
    let missing = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    let terminals = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    if !missing || !terminals {
        return None;
    }
    let mut cli = Cli::try_parse_from(words.iter().cloned().chain(["rewind".into()])).ok()?;
    let Command::Rewind(rewind) = &mut cli.command else { return None };
    rewind.browse = true;
    let folder = cli.global.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let surroundings = surroundings(&cli.global).ok()?;
    let known = !cli.global.json && Workspace::open(&folder, surroundings).is_ok_and(|ws| ws.has_store());
    known.then(|| run(cli))
}

/// Runs a hook: nothing but the environment says where, and it never fails.
pub fn run_hook(hook: &Hook) {
    let s = Surroundings { program: std::env::current_exe().ok(), ..Surroundings::of_process() };
    let base = std::path::absolute(&s.store_base).unwrap_or_else(|_| s.store_base.clone());
    backstitch_agents::hook::run(&hook.agent, hook.event.as_deref(), Surroundings { store_base: base, ..s });
}

/// The environment, with the options applied.
pub fn surroundings(g: &Global) -> Result<Surroundings> {
    apply(Surroundings { program: std::env::current_exe().ok(), ..Surroundings::of_process() }, g)
}

/// Surroundings with the options applied.
pub fn apply(mut s: Surroundings, g: &Global) -> Result<Surroundings> {
    if let Some(dir) = &g.store_dir {
        s.store_base.clone_from(dir);
    }
    s.store_base = std::path::absolute(&s.store_base)
        .map_err(|e| Error::io(&s.store_base, e).hint("name a folder with --store-dir"))?;
    if let Some(id) = &g.session {
        if id.is_empty() || id.chars().any(char::is_control) {
            return Err(Error::new(Code::Usage, format!("{id:?} cannot be the name of a session"))
                .hint("a name has at least one character, and no control characters"));
        }
        s.session = Some(id.clone());
    }
    if g.as_person {
        s.agent_context = None;
    }
    Ok(s)
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

impl Context {
    fn new(g: Global, ui: Ui, surroundings: Surroundings) -> Context {
        let interrupt = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            // The second one ends the process at once; the next command puts things right. Without a handler the first
            // one does that.
            let second = signal_hook::flag::register_conditional_default(signal, Arc::clone(&interrupt));
            if let Ok(id) = second {
                let _ = signal_hook::flag::register(signal, Arc::clone(&interrupt));
                if signal == signal_hook::consts::SIGINT {
                    ui.ends_at_second(Some(id));
                }
            }
        }
        let progress = Progress::new(ui.progress);
        let told = progress.clone();
        let tick = move |what: &str, done, total| told.tick(what, done, total);
        Context { progress, ..Context::of(g, ui, surroundings, interrupt, Box::new(tick)) }
    }

    /// For a server: no signals, no terminal; somebody else is told of progress.
    pub fn of(
        g: Global,
        ui: Ui,
        surroundings: Surroundings,
        interrupt: Arc<AtomicBool>,
        tick: Box<Tick>,
    ) -> Context {
        Context {
            folder: g.workspace.unwrap_or_else(|| PathBuf::from(".")),
            session: g.session,
            surroundings,
            interrupt,
            tick,
            progress: Progress::new(false),
            ui,
        }
    }

    /// For long work.
    pub fn control(&self) -> Control<'_> {
        Control { interrupt: &self.interrupt, progress: &*self.tick }
    }

    /// Says, before anything else, that this cannot be undone; on a terminal, asks.
    ///
    /// # Errors
    /// `interrupted` where the answer is not yes.
    pub fn warn_for_good(&self, what: &str, yes: bool) -> Result<()> {
        self.ui.for_good(what);
        if self.ui.can_ask && !yes && !ask::yes("Remove?", &self.interrupt)? {
            return Err(Error::new(Code::Interrupted, "nothing was removed"));
        }
        Ok(())
    }

    /// The workspace of the named folder.
    pub fn workspace(&self) -> Result<Workspace> {
        let mut ws = Workspace::open(&self.folder, self.surroundings.clone())?;
        ws.interrupted_by(Arc::clone(&self.interrupt));
        if let Some(said) = &ws.recovered {
            self.ui.recovered(said);
        }
        // A broken file of settings is never passed over in silence.
        self.ui.warn_all(&ws.settings().warnings);
        Ok(ws)
    }

    /// All rows; damaged ones are named.
    pub fn rows(&self, ws: &Workspace) -> Result<Rows> {
        let rows = ws.rows()?;
        for (name, why) in &rows.damaged {
            self.ui.warn(&format!("{name} is damaged: {why}"));
        }
        Ok(rows)
    }

    /// The row that a name stands for. Numbers of turns belong to the session of the environment; every other form is
    /// narrowed only by a session that was typed.
    pub fn find<'a>(&self, rows: &'a Rows, name: &OsStr) -> Result<&'a Checkpoint> {
        let name = String::from_utf8_lossy(name.as_bytes());
        let numbered = name.starts_with("turn:") || name.starts_with("prompt:");
        let session = if numbered { self.surroundings.session.as_deref() } else { self.session.as_deref() };
        names::resolve(rows, &name, session)
    }

    /// The session that a command is about: the one in its words, else of `--session` or the environment, else the only
    /// one there is.
    ///
    /// # Errors
    /// `ambiguous` with the list; `no-such-session`.
    pub fn known_session(&self, ws: &Workspace, named: Option<&str>) -> Result<Session> {
        let mut all = ws.sessions()?;
        let named = named.or(self.surroundings.session.as_deref());
        let at = match named {
            Some(id) => all.iter().position(|s| s.record.id == id).ok_or_else(|| session::no_session(id))?,
            None if all.len() > 1 => {
                return Err(Error::new(Code::Ambiguous, "there is more than one session")
                    .list(sorted(all.into_iter().map(|s| s.record.id).collect()))
                    .hint("name one with --session"));
            }
            None if all.is_empty() => {
                return Err(Error::new(Code::NoSuchSession, "there is no session here"));
            }
            None => 0,
        };
        Ok(all.swap_remove(at))
    }
}

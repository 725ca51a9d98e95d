//! The commands: from what was typed to the library, and from its outcome to text or JSON.

mod agents;
mod bisect;
mod checkpoint;
mod config;
mod diff;
mod export;
mod files;
mod flight;
mod forget;
mod gc;
mod health;
mod held;
mod hunks;
mod list;
mod operations;
mod prune;
pub mod restore;
mod rewind;
mod rows;
mod session;
mod show;
mod stores;
mod sync;
pub mod turn;
mod walk;
mod watch;

use backstitch::error::Result;

use crate::{
    context::Context,
    mcp, pages, serve,
    table::{Command, Config, Session, Stores, Sync, Tool, Turn, Watch},
    web,
};

/// What a command is called, where it is one of a person (SEMANTICS 36); for others nothing. A test holds it against the
/// table.
fn of_people(command: &Command) -> &'static str {
    match command {
        Command::Delete(_) => "delete",
        Command::Prune(_) => "prune",
        Command::Forget(_) => "forget",
        Command::Gc(_) => "gc",
        Command::Disable => "disable",
        Command::Uninstall(_) => "uninstall",
        Command::Relink(_) => "relink",
        Command::Session(Session::Delete(_)) => "session delete",
        Command::Session(Session::Purge(_)) => "session purge",
        Command::Config(Config::Set(_)) => "config set",
        Command::Config(Config::Trust) => "config trust",
        Command::Stores(Stores::Delete(_)) => "stores delete",
        Command::Stores(Stores::Purge(_)) => "stores purge",
        Command::Sync(Sync::Push(_)) => "sync push",
        _ => "",
    }
}

/// Carries out a command; returns the exit code.
pub fn run(cx: &Context, command: Command) -> Result<u8> {
    cx.surroundings.refuse_agents(of_people(&command))?;
    match command {
        Command::Checkpoint(a) => checkpoint::run(cx, a),
        Command::List(a) => list::run(cx, &a),
        Command::Show(a) => show::run(cx, &a),
        Command::Diff(a) => diff::run(cx, &a),
        Command::Files(a) => held::run(cx, &a),
        Command::Cat(a) => files::cat(cx, &a),
        Command::Log(a) => files::log(cx, &a),
        Command::Blame(a) => files::blame(cx, &a),
        Command::Bisect(a) => bisect::run(cx, &a),
        Command::Restore(a) => restore::run(cx, a),
        Command::Rewind(a) => rewind::run(cx, a, rewind::Reach::Since),
        Command::Revert(a) => rewind::run(cx, a, rewind::Reach::Only),
        Command::Undo(a) => walk::run(cx, &a, walk::Direction::Undo),
        Command::Redo(a) => walk::run(cx, &a, walk::Direction::Redo),
        Command::Operations(a) => operations::run(cx, &a),
        Command::Turn(Turn::Begin(a)) => turn::begin(cx, a),
        Command::Capture(a) => flight::capture(cx, &a),
        Command::Turn(Turn::End(a)) => turn::end(cx, &a),
        Command::Turn(Turn::Bind(a)) => turn::bind(cx, &a),
        Command::Tool(Tool::Before(a)) => turn::tool(cx, a, true),
        Command::Tool(Tool::After(a)) => turn::tool(cx, a, false),
        Command::Session(Session::List) => session::list(cx),
        Command::Session(Session::Show(a)) => session::show(cx, &a),
        Command::Session(Session::Fork(a)) => session::fork(cx, &a),
        Command::Session(Session::End(a)) => session::end(cx, &a),
        Command::Session(Session::Delete(a)) => session::delete(cx, &a),
        Command::Session(Session::Purge(a)) => session::purge(cx, &a),
        Command::Status => health::status(cx),
        Command::Verify(a) => health::verify(cx, &a),
        Command::Doctor(a) => health::doctor(cx, &a),
        Command::Pin(a) => rows::pin(cx, &a, true),
        Command::Unpin(a) => rows::pin(cx, &a, false),
        Command::Label(a) => rows::label(cx, &a),
        Command::Delete(a) => rows::delete(cx, &a),
        Command::Prune(a) => prune::run(cx, &a),
        Command::Forget(a) => forget::run(cx, &a),
        Command::Gc(a) => gc::run(cx, &a),
        Command::Export(a) => export::run(cx, &a),
        Command::Serve => serve::run(cx),
        Command::Mcp => mcp::run(cx),
        Command::Ui(a) => web::run(cx, &a),
        Command::Completions(a) => pages::completions(&cx.ui, a.shell),
        Command::Man(a) => pages::man(&cx.ui, a.out.as_deref()),
        Command::Reference(a) => pages::reference(&cx.ui, a.page),
        Command::Config(Config::Get(a)) => config::get(cx, &a.key),
        Command::Config(Config::Set(a)) => config::set(cx, &a),
        Command::Config(Config::List) => config::list(cx),
        Command::Config(Config::Path) => config::path(cx),
        Command::Config(Config::Trust) => config::trust(cx),
        Command::Enable => stores::switch(cx, true),
        Command::Disable => stores::switch(cx, false),
        Command::Stores(Stores::List) => stores::list(cx),
        Command::Stores(Stores::Delete(a)) => stores::remove(cx, &a, false),
        Command::Stores(Stores::Purge(a)) => stores::remove(cx, &a, true),
        Command::Sync(Sync::Push(a)) => sync::push(cx, a),
        Command::Sync(Sync::Pull(a)) => sync::pull(cx, a),
        Command::Relink(a) => stores::relink(cx, &a),
        Command::Watch(Watch::Start) => watch::tell(cx, |ws| ws.watch_start()),
        Command::Watch(Watch::Stop) => watch::tell(cx, |ws| ws.watch_stop()),
        Command::Watch(Watch::Status) => watch::tell(cx, |ws| Ok(ws.watcher())),
        Command::Watcher => watch::run(cx),
        Command::Hook(a) => agents::hook(cx, &a),
        Command::Install(a) => agents::install(cx, &a, true),
        Command::Uninstall(a) => agents::install(cx, &a, false),
    }
}

#[cfg(test)]
mod tests {
    use backstitch::people::is_for_people;
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::table::Cli;

    /// Every command of the table with the words that it needs.
    fn lines(c: &clap::Command, above: &str, out: &mut Vec<(String, Vec<String>)>) {
        for s in c.get_subcommands().filter(|s| s.get_name() != "help") {
            let name = format!("{above} {}", s.get_name()).trim().to_owned();
            if s.has_subcommands() {
                lines(s, &name, out);
                continue;
            }
            let mut words: Vec<String> = name.split(' ').map(str::to_owned).collect();
            words.extend(s.get_positionals().filter(|a| a.is_required_set()).map(|a| {
                let one = a.get_possible_values().first().map(|v| v.get_name().to_owned());
                one.unwrap_or_else(|| "x".to_owned())
            }));
            out.push((name, words));
        }
    }

    #[test]
    fn sem36_what_removes_is_not_for_agents() {
        let (mut c, mut all) = (Cli::command(), Vec::new());
        c.build();
        lines(&c, "", &mut all);
        let mut found = Vec::new();
        for (name, words) in all.into_iter().filter(|(name, _)| is_for_people(name)) {
            let line = ["backstitch".to_owned()].into_iter().chain(words);
            let cli = Cli::try_parse_from(line).expect(&name);
            assert_eq!(of_people(&cli.command), name);
            found.push(name);
        }
        for name in [
            "delete",
            "forget",
            "prune",
            "gc",
            "disable",
            "uninstall",
            "config set",
            "relink",
            "stores purge",
            "sync push",
        ] {
            assert!(found.iter().any(|f| f == name), "{name}");
        }
        assert!(!found.iter().any(|f| f == "config get" || f == "stores list" || f == "undo"));
    }
}

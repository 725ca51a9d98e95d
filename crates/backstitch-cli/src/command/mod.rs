//! The commands: from what was typed to the library, and from its outcome to text or JSON.

mod agents;
mod checkpoint;
mod config;
mod diff;
mod export;
mod files;
mod flight;
mod gc;
mod health;
mod hunks;
mod list;
mod operations;
mod restore;
mod rewind;
mod rows;
mod session;
mod show;
mod stores;
pub mod turn;
mod walk;

use backstitch::error::Result;

use crate::{
    context::Context,
    pages, serve,
    table::{Command, Config, Session, Stores, Tool, Turn},
};

/// Carries out a command; returns the exit code.
pub fn run(cx: &Context, command: Command) -> Result<u8> {
    match command {
        Command::Checkpoint(a) => checkpoint::run(cx, a),
        Command::List(a) => list::run(cx, &a),
        Command::Show(a) => show::run(cx, &a),
        Command::Diff(a) => diff::run(cx, &a),
        Command::Cat(a) => files::cat(cx, &a),
        Command::Log(a) => files::log(cx, &a),
        Command::Blame(a) => files::blame(cx, &a),
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
        Command::Session(Session::Purge(_)) => session::purge(cx),
        Command::Status => health::status(cx),
        Command::Verify(a) => health::verify(cx, &a),
        Command::Doctor(a) => health::doctor(cx, &a),
        Command::Pin(a) => rows::pin(cx, &a, true),
        Command::Unpin(a) => rows::pin(cx, &a, false),
        Command::Label(a) => rows::label(cx, &a),
        Command::Delete(a) => rows::delete(cx, &a),
        Command::Gc(a) => gc::run(cx, &a),
        Command::Export(a) => export::run(cx, &a),
        Command::Serve => serve::run(cx),
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
        Command::Relink(a) => stores::relink(cx, &a),
        Command::Hook(a) => agents::hook(cx, &a),
        Command::Install(a) => agents::install(cx, &a, true),
        Command::Uninstall(a) => agents::install(cx, &a, false),
    }
}

//! The one table of commands and options. Help, manual pages, completions and the reference page are made from it.
//!
//! Parsing never touches the disk; what the words mean is decided in [`crate::context`].

mod config;
mod keep;
mod operation;
mod program;
mod row;
mod session;
mod store;
mod words;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

pub use self::{
    config::{Config, Set},
    keep::{Forget, Prune, Purge},
    operation::{Change, Operations, Restore, Rewind, Walk},
    program::{Completions, Hook, Install, Man, Reference, Web},
    row::{Blame, Cat, Checkpoint, Diff, Export, Files, Label, List, Log, Named, Several},
    session::{
        Bisect, Capture, Fork, Session, SessionDelete, SessionName, Tool, ToolCall, Turn, TurnBegin,
        TurnBind, TurnEnd,
    },
    store::{Doctor, Gc, Relink, StoreNames, Stores, Sync, SyncPull, SyncPush, Verify, Watch},
    words::{Color, Page, Scope},
};

/// Checkpoint and rewind for folders that coding agents work in.
///
/// Records what a folder holds, shows what changed since, goes back to any recorded state, and takes the going-back
/// back. Nothing is ever written into the folder's own `.git`.
#[derive(Debug, Parser)]
#[command(
    name = "backstitch",
    version,
    after_help = "`backstitch COMMAND --help` tells all about a command.",
    after_long_help = AFTER,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    disable_help_subcommand = false
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Checkpoints are named by an id or an unambiguous prefix of it, `@` (the newest), `@~N` (N before it), `turn:N`, \
`prompt:N`, a label, or a time (`10m`, `2h`, `14:05`, RFC 3339). `SESSION/...` narrows a name to one session.

Paths after `--` are literal and relative to the current folder (or, where that lies outside the workspace, to the \
folder named with -C). Nothing in them is a pattern.

Environment:
  BACKSTITCH_STORE_DIR   base folder of all stores
  BACKSTITCH_SESSION     the session a row belongs to
  BACKSTITCH_DISABLE=1   nothing is captured
  BACKSTITCH_CONFIG      the user's settings file
  BACKSTITCH_PAGER       shows long results on a terminal, before PAGER; empty or `cat`: nothing does
  NO_COLOR               no colours

Exit codes:
  0    done
  1    failed
  2    wrong usage
  3    partial: something was skipped, conflicting or not covered; the list says what
  4    no such checkpoint, session, turn, store or path
  5    refused: a conflict, a changed plan, a wrong workspace, over budget, an unsafe path
  6    busy: a lock or a running operation
  7    the store is damaged
  130  interrupted";

/// Options of every command, anywhere on the line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The workspace, or any folder inside it [default: found from the current folder].
    ///
    /// Without it: the nearest known workspace at or above the current folder, else the top of the git work tree, else
    /// the current folder. The root, a sub-folder and a symlinked spelling give the same workspace.
    #[arg(short = 'C', long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,
    /// Base folder of all stores [default: the platform's data folder + `backstitch`].
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store_dir: Option<PathBuf>,
    /// One JSON document on standard output; errors as JSON on standard error. Never asks.
    #[arg(long, global = true)]
    pub json: bool,
    /// Only results, warnings and errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell more: everything that was skipped, absolute times.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Colours [default: auto].
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = false)]
    pub color: Option<Color>,
    /// Never show progress. It is shown only on a terminal, for work of over half a second.
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Never page. Long results on a terminal go through BACKSTITCH_PAGER, else PAGER, else `less -FRX`.
    #[arg(long, global = true)]
    pub no_pager: bool,
    /// The session that a row belongs to, or that a command is about [default: `BACKSTITCH_SESSION`].
    #[arg(long, global = true, value_name = "ID", allow_hyphen_values = true)]
    pub session: Option<String>,
    /// Carry out a command that is not for agents, though an agent's variable is in the environment.
    #[arg(long, global = true)]
    pub as_person: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record the present state of the folder.
    ///
    /// Prints the id and a summary line. With paths after `--` only those are looked at; the rest is as last recorded.
    #[command(visible_alias = "save")]
    Checkpoint(Checkpoint),
    /// List checkpoints, newest first.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show one checkpoint: its row, its coverage, what it left out, and what changed in it.
    Show(Named),
    /// Compare a checkpoint with another one, or with the folder as it is now.
    ///
    /// Without names: the newest checkpoint against the folder, files created since included. Renames are found.
    Diff(Diff),
    /// List what a checkpoint holds in a folder, and what it left out there.
    Files(Files),
    /// Print a file as a checkpoint holds it.
    Cat(Cat),
    /// List the checkpoints that changed a path, newest first, with who changed it. Renames are followed.
    Log(Log),
    /// Tell who wrote each line of a file: a session's turn with its tool and sub-agent, an operation, or "outside".
    ///
    /// "Outside" is what happened in no turn and no tool call: people, builds, and what was there before recording began.
    /// Lines that an operation brought back are told as those who wrote them. Renames are followed.
    Blame(Blame),
    /// Find which turn of a session broke something, by running a command in the states between its turns.
    ///
    /// Each state is written into a folder of its own in the folder for temporary files, in which the command runs; it
    /// is removed afterwards. The workspace is not touched. Ignored files that are not recorded are not there: let the
    /// command install what it needs. Ends with 4 where no turn broke it, with 3 where it cannot be told which one did.
    Bisect(Bisect),
    /// Make the covered paths what a checkpoint holds. Can be undone.
    ///
    /// The present state is recorded first. A path is deleted only if the checkpoint positively did not hold it. On a
    /// terminal, a plan that overwrites or deletes is shown and asked about first; an answer other than yes changes
    /// nothing and ends with exit code 130.
    Restore(Restore),
    /// Take back what a session did in a turn and all later ones, and nothing else. Can be undone.
    ///
    /// A path is changed only if it still holds what the session left there. On a terminal, a plan that overwrites or
    /// deletes is shown and asked about first; an answer other than yes changes nothing and ends with exit code 130.
    Rewind(Rewind),
    /// Take back what a session did in one turn, and keep what came later. Can be undone.
    ///
    /// Lines that were not changed again since go back to what they were before the turn, also in files that were moved.
    /// What was changed again stays, and is listed with both sides as a conflict.
    Revert(Rewind),
    /// Take back the newest operation not yet undone, on the paths that it changed only.
    Undo(Walk),
    /// Take back the newest undo.
    Redo(Walk),
    /// List the operations, newest first.
    Operations(Operations),
    /// Begin, end and bind the turns of a session: what a host calls around a prompt.
    #[command(subcommand)]
    Turn(Turn),
    /// Record both ends of a tool call: what a host calls around a tool.
    #[command(subcommand)]
    Tool(Tool),
    /// List, show, fork, end and delete sessions.
    #[command(subcommand)]
    Session(Session),
    /// Tell about workspace, store, size, budget, coverage, and what is not covered.
    Status,
    /// Check every object and every row of the store; name the checkpoints that are hit.
    Verify(Verify),
    /// Check the surroundings: permissions, locks, file systems, settings.
    Doctor(Doctor),
    /// Keep checkpoints whatever the policy says.
    Pin(Several),
    /// Let the policy decide about checkpoints again.
    Unpin(Several),
    /// Give a checkpoint a label, or take it away.
    Label(Label),
    /// Move checkpoints to the trash. `undo` brings them back.
    Delete(Several),
    /// Move to the trash what the retention policy lets go. `undo` brings it back.
    Prune(Prune),
    /// Remove paths from every checkpoint, and their bytes from the store. CANNOT BE UNDONE.
    ///
    /// Files in the folder stay as they are. Ends with a search of the store, and lists what it cannot reach: the same
    /// content at other paths, the folder's own git repository, exports. Called again, it finishes what was interrupted.
    Forget(Forget),
    /// Free the space of what was deleted, at once and for good, and tidy the store.
    ///
    /// Checkpoints in the trash cannot be brought back after this. Runs beside captures. What cannot be rewritten now, for
    /// want of room or because a capture runs all the time, is left and named.
    Gc(Gc),
    /// Write a checkpoint as a folder, an archive, a patch or a git bundle.
    Export(Export),
    /// Carry checkpoints to and from a git remote: a path, an address (ssh, https), or a remote of the repository here.
    ///
    /// Needs a git program. Never sent are files outside the workspace, git states, owners, extended attributes, paths of the setting
    /// `sync.private`, ignored files, and files whose names look like secrets; prompts only when asked. What arrives is
    /// looked at whole before it is listed.
    #[command(subcommand)]
    Sync(Sync),
    /// Start, end and ask the watcher, which saves captures from looking at everything.
    ///
    /// Large workspaces get one by themselves, and it ends by itself when nobody asks it for an hour (settings `watch`,
    /// `watch_from`, `watch_idle`). A capture never depends on it.
    #[command(subcommand)]
    Watch(Watch),
    /// Serve a host over JSON-RPC 2.0, one message a line, on standard input and output.
    ///
    /// Every command is a method. `-C` and `--session` are the defaults of calls that name none. Ends when the input ends, after
    /// what was begun.
    Serve,
    /// Serve an agent over the Model Context Protocol, on standard input and output.
    ///
    /// An agent may checkpoint, list, compare and show, and take back its own session's work: that of `--session` or
    /// `BACKSTITCH_SESSION`, else a session that begins with this process, whose turns begin with each checkpoint.
    Mcp,
    /// Show the timeline in a browser of this machine, until Ctrl-C.
    ///
    /// Prints the address of the page. It holds a token that nobody can guess: who knows it may change the folder. Served are
    /// only this machine and this page. The page shows turns, files and changes, and takes back what is chosen: the plan is
    /// shown first, and carried out exactly as it was shown.
    Ui(Web),
    /// Print a completion script.
    Completions(Completions),
    /// Print the manual page, or write all of them.
    Man(Man),
    /// Read and change settings.
    #[command(subcommand)]
    Config(Config),
    /// Record this workspace again.
    Enable,
    /// Record nothing of this workspace until `enable`.
    Disable,
    /// List and remove stores, of all workspaces.
    #[command(subcommand)]
    Stores(Stores),
    /// Attach the store of a folder that was moved here.
    Relink(Relink),
    /// Take an agent's hook payload on standard input: what an installed agent calls.
    ///
    /// Never fails and never blocks the agent: whatever happens, it ends with exit code 0, and standard output is empty or what
    /// the client reads. Problems are told on standard error and in `hooks.log` in the base folder of all stores.
    Hook(Hook),
    /// Write an agent's configuration, so that its work is recorded. Shows the change first.
    ///
    /// Done twice, it changes nothing. `uninstall` takes it out again, byte for byte.
    Install(Install),
    /// Take out of an agent's configuration what `install` wrote.
    Uninstall(Install),
    /// Fill the row of a turn that was begun with `--no-wait`; started by that command.
    #[command(hide = true)]
    Capture(Capture),
    /// Watch the workspace until nobody asks any longer; started by `watch start`.
    #[command(hide = true)]
    Watcher,
    /// Print a reference page, in Markdown.
    #[command(hide = true)]
    Reference(Reference),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        fn walk(c: &clap::Command) {
            assert!(c.get_about().is_some(), "{}", c.get_name());
            for a in c.get_arguments() {
                assert!(a.get_help().is_some(), "{} {}", c.get_name(), a.get_id());
            }
            c.get_subcommands().for_each(walk);
        }
        let mut c = Cli::command();
        c.build();
        walk(&c);
    }

    #[test]
    fn global_options_stand_anywhere() {
        for line in [
            "backstitch --json -C x list",
            "backstitch list -C x --json",
            "backstitch config get k --json -C x",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect(line);
            assert!(cli.global.json && cli.global.workspace.is_some(), "{line}");
        }
    }

    #[test]
    fn what_follows_two_dashes_is_literal() {
        let cli = Cli::try_parse_from(["backstitch", "diff", "@", "--", "--json", "-x"]).expect("parsed");
        let Command::Diff(d) = cli.command else { panic!("not a diff") };
        assert!(!cli.global.json);
        assert_eq!(d.paths, ["--json", "-x"]);
    }

    #[test]
    fn commands_of_later_issues_do_not_exist() {
        assert!(Cli::try_parse_from(["backstitch", "sync", "r"]).is_err());
    }
}

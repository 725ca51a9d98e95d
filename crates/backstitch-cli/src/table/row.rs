//! Words of the commands that make, show and compare checkpoints.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueHint};

use super::words::{Kind, Retention, Scope, recordable};

/// `checkpoint`
#[derive(Args, Debug)]
pub struct Checkpoint {
    /// A label, by which the checkpoint can be named (at most 200 bytes).
    #[arg(short = 'm', long = "label", value_name = "LABEL", allow_hyphen_values = true)]
    pub label: Option<String>,
    /// The prompt that the turn begins with.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file", allow_hyphen_values = true)]
    pub prompt: Option<OsString>,
    /// Read the prompt from a file; `-` is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,
    /// What it is recorded for.
    #[arg(long, value_name = "KIND", default_value = "manual", value_parser = recordable())]
    pub kind: Kind,
    /// Id of the conversation's entry.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub entry: Option<String>,
    /// The host's key of the turn that the row belongs to.
    ///
    /// Without it, rows of a session of the kinds `turn`, `tool` and `agent-run` belong to its open turn, and one of kind
    /// `prompt` begins a new one.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub turn: Option<String>,
    /// The sub-agent.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub agent: Option<String>,
    /// The tool.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub tool: Option<String>,
    /// How long it is kept [default: forensic for manual rows, else standard].
    #[arg(long, value_name = "CLASS")]
    pub retention: Option<Retention>,
    /// Keep it whatever the policy says.
    #[arg(long)]
    pub pin: bool,
    /// How wide to look.
    #[arg(long, value_name = "SCOPE", default_value = "workspace")]
    pub scope: Scope,
    /// No row when nothing changed since the last one.
    #[arg(long)]
    pub if_changed: bool,
    /// Trust no file's time and size: read everything. For clocks that were set back and file systems that forget times.
    #[arg(long)]
    pub paranoid: bool,
    /// Only these are looked at.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `list`
#[derive(Args, Debug)]
pub struct List {
    /// Only rows of this kind.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Only rows recorded at or after this time (`10m`, `2h`, `14:05`, RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// At most this many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// All rows: those of tools and sub-agents, and of turns that a rewind took back, as well.
    #[arg(long)]
    pub all: bool,
    /// Oldest first.
    #[arg(long)]
    pub reverse: bool,
    /// Read every object that a row needs, and mark rows that cannot be restored.
    #[arg(long)]
    pub check: bool,
}

/// One checkpoint.
#[derive(Args, Debug)]
pub struct Named {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
}

/// Some checkpoints.
#[derive(Args, Debug)]
pub struct Several {
    /// Ids or prefixes, `@`, `@~N`, `turn:N`, `prompt:N`, labels, or times.
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub checkpoints: Vec<OsString>,
}

/// `label`
#[derive(Args, Debug)]
pub struct Label {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// The label (at most 200 bytes).
    #[arg(value_name = "LABEL", required_unless_present = "clear", conflicts_with = "clear")]
    pub label: Option<String>,
    /// Take the label away.
    #[arg(long)]
    pub clear: bool,
}

/// `diff`
#[derive(Args, Debug)]
pub struct Diff {
    /// The older side [default: the newest checkpoint].
    #[arg(value_name = "FROM")]
    pub from: Option<OsString>,
    /// The newer side [default: the folder as it is now].
    #[arg(value_name = "TO")]
    pub to: Option<OsString>,
    /// Count changed lines.
    #[arg(long, group = "form")]
    pub stat: bool,
    /// Only letters and paths, separated by tabs.
    #[arg(long, group = "form")]
    pub name_status: bool,
    /// The changed text, as a unified diff.
    #[arg(long, group = "form")]
    pub patch: bool,
    /// What turn N changed: from `prompt:N` to `turn:N`, or to the folder while the turn runs.
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    pub turn: Option<u64>,
    /// Only these, with all below.
    #[arg(last = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
}

/// `cat`
#[derive(Args, Debug)]
pub struct Cat {
    /// The checkpoint, a colon, and the path, relative to the workspace (`./x`: relative to the current folder).
    #[arg(value_name = "CHECKPOINT:PATH", value_hint = ValueHint::AnyPath)]
    pub what: OsString,
}

/// `files`
#[derive(Args, Debug)]
pub struct Files {
    /// The checkpoint.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// The folder, relative to the current folder [default: the workspace].
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: Option<OsString>,
    /// With all that is below it.
    #[arg(short, long)]
    pub recursive: bool,
}

/// `log`
#[derive(Args, Debug)]
pub struct Log {
    /// The path, relative to the current folder.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: OsString,
    /// At most this many rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// `blame`
#[derive(Args, Debug)]
pub struct Blame {
    /// The file, relative to the current folder.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: OsString,
    /// As this checkpoint holds it [default: as it is on the disk].
    #[arg(long, value_name = "CHECKPOINT")]
    pub at: Option<OsString>,
}

/// `export`
#[derive(Args, Debug)]
#[command(
    override_usage = "backstitch export [OPTIONS] <CHECKPOINT> <DIR|--tar FILE|--patch FILE|--bundle FILE>"
)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["dir", "tar", "patch", "bundle"]))]
pub struct Export {
    /// Id or prefix, `@`, `@~N`, `turn:N`, `prompt:N`, label, or time.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: OsString,
    /// A folder that is empty or not there yet.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// A tar archive; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tar: Option<PathBuf>,
    /// What changed against the checkpoint before, as a patch; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub patch: Option<PathBuf>,
    /// A git bundle; `-` is standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bundle: Option<PathBuf>,
    /// Replace a file that is there already.
    #[arg(long, conflicts_with = "dir")]
    pub force: bool,
}

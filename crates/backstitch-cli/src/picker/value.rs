//! What passes between the state, the work and the screen.

use std::collections::{BTreeMap, BTreeSet};

use backstitch::{diff::Change, error::Result, operation::Outcome, plan::Action, rewind, undo::OnConflict};
use bstr::BString;

use super::timeline::Entry;
use crate::text;

/// A change of the folder that can be planned.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A turn and all after it.
    Rewind(Entry),
    /// One turn.
    Revert(Entry),
    /// The state of a row: of all paths, of some, or of some parts.
    Restore {
        /// Whose row.
        entry: Entry,
        /// Only these.
        paths: Vec<BString>,
        /// Only these parts.
        hunks: Option<Vec<String>>,
    },
    /// The newest operation, or this one.
    Undo(Option<String>),
    /// The newest undo.
    Redo(Option<String>),
}

impl Ask {
    /// What it is, for a heading.
    pub fn title(&self) -> String {
        match self {
            Ask::Rewind(e) => format!("Take back {} and all after it", e.title()),
            Ask::Revert(e) => format!("Take back only {}", e.title()),
            Ask::Restore { entry, paths, hunks } => {
                let what = match (paths.as_slice(), hunks) {
                    ([], _) => "everything".to_owned(),
                    ([p], None) => text::name(p),
                    ([p], Some(h)) => format!("{} of {}", text::count(h.len() as u64, "hunk"), text::name(p)),
                    (many, _) => text::count(many.len() as u64, "path"),
                };
                let when = if entry.turn.is_some() { "before" } else { "at" };
                format!("Put {what} back to what it was {when} {}", entry.title())
            }
            Ask::Undo(_) => "Undo".to_owned(),
            Ask::Redo(_) => "Redo".to_owned(),
        }
    }
}

/// What a person answered to what a plan leaves alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Paths that somebody else changed.
    pub on_conflict: OnConflict,
    /// Files outside the workspace.
    pub outside: bool,
    /// What changed outside the session's tool calls.
    pub unattributed: bool,
}

impl Choice {
    /// As the options say.
    pub fn of(o: &rewind::Options) -> Choice {
        Choice { on_conflict: o.on_conflict, outside: o.outside, unattributed: o.include_unattributed }
    }
}

/// Work that the state asks for.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The changes of an entry.
    Look(Entry),
    /// One file of it, as text.
    Patch(Entry, BString),
    /// What a rewind to it would leave alone.
    Marks(Entry),
    /// A plan. `straight`: it is carried out at once if it leaves nothing out.
    Plan {
        /// Of what.
        ask: Ask,
        /// How.
        choice: Choice,
        /// Without another key.
        straight: bool,
    },
    /// A plan that was shown.
    Apply {
        /// Of what.
        ask: Ask,
        /// How.
        choice: Choice,
        /// Its digest.
        plan: String,
    },
    /// The parts of one file.
    Hunks(Entry, BString),
    /// Into a folder.
    Export(Entry, String),
    /// Keep it, or no longer.
    Pin(Entry, bool),
    /// Give it a label, or none.
    Label(Entry, Option<String>),
    /// The list anew.
    Reload,
    /// The end.
    Quit,
}

/// What the work gave.
#[derive(Debug)]
pub enum Answer {
    /// [`Effect::Look`]
    Looked(String, Result<Look>),
    /// [`Effect::Patch`]
    Patched(String, BString, Result<Vec<u8>>),
    /// [`Effect::Marks`]
    Marked(String, Result<Marks>),
    /// [`Effect::Plan`]
    Planned {
        /// Of what.
        ask: Ask,
        /// How.
        choice: Choice,
        /// Without another key.
        straight: bool,
        /// The preview.
        out: Result<Outcome>,
    },
    /// [`Effect::Apply`]
    Applied {
        /// Of what.
        ask: Ask,
        /// How.
        choice: Choice,
        /// What was done.
        out: Result<Outcome>,
    },
    /// [`Effect::Hunks`]
    Hunked(Result<Outcome>),
    /// [`Effect::Reload`]
    Entries(Result<Vec<Entry>>),
    /// Something to say.
    Told(Result<String>),
}

/// Paths that a rewind would leave alone, and why.
pub type Marks = BTreeMap<BString, (Action, String)>;

/// What is known of an entry.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Its changes.
    pub changes: Vec<Change>,
    /// What one of its ends does not speak for.
    pub not_covered: Vec<(BString, String)>,
    /// Texts that were looked at.
    pub patches: BTreeMap<BString, Vec<u8>>,
    /// What a rewind to it would leave alone, once that is known.
    pub marks: Option<Marks>,
}

/// What is on the screen.
#[derive(Debug)]
pub enum Screen {
    /// The timeline.
    List,
    /// One entry: its files and the text of one of them.
    Entry {
        /// The file.
        file: usize,
        /// First line of its text.
        scroll: usize,
    },
    /// The parts of a file, to be chosen.
    Hunks {
        /// Their file.
        path: BString,
        /// With their parts.
        out: Outcome,
        /// Which one.
        at: usize,
        /// The chosen ones.
        chosen: BTreeSet<String>,
    },
    /// What would be done.
    Plan {
        /// Of what.
        ask: Ask,
        /// How.
        choice: Choice,
        /// The preview.
        out: Outcome,
        /// First line.
        scroll: usize,
    },
    /// What was done.
    Done {
        /// Of what.
        ask: Ask,
        /// How it ended.
        out: Outcome,
        /// First line.
        scroll: usize,
    },
    /// A line is typed.
    Input {
        /// What for.
        what: Wanted,
        /// So far.
        typed: String,
    },
    /// The keys.
    Help,
}

/// What a typed line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A folder to export to.
    Folder,
    /// A label.
    Label,
}

/// What can be asked about a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Something is kept because somebody else changed it.
    pub conflicts: bool,
    /// Something lies outside the workspace.
    pub outside: bool,
    /// Something changed outside the session's tool calls.
    pub unattributed: bool,
}

impl Offers {
    /// What a plan left alone, or was told not to.
    pub fn of(out: &Outcome, choice: &Choice) -> Offers {
        let left = |reason: &str| out.items.iter().any(|i| i.reason.as_deref() == Some(reason));
        let conflicts = out.items.iter().any(|i| i.action == Action::Conflict || !i.clashes.is_empty());
        Offers {
            conflicts: conflicts || choice.on_conflict != OnConflict::Keep,
            outside: left("outside") || choice.outside,
            unattributed: left("unattributed") || choice.unattributed,
        }
    }
}

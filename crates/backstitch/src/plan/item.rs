//! One path of a plan: what must stand there, what shall, and how far it came.

use bstr::{BString, ByteSlice};
use serde::{Deserialize, Serialize};

use crate::{
    hunks::Hunk,
    merge::Clash,
    meta::Attrs,
    paths,
    tree::{Entry, Node},
};

/// What stands at a path, with owner and attributes where they are not ordinary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Type, content, mode.
    pub node: Node,
    /// The rest.
    pub attrs: Attrs,
}

impl Stand {
    pub(crate) fn of(e: &Entry) -> Stand {
        Stand { node: e.node.clone(), attrs: e.attrs.clone() }
    }
}

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A file or link comes into being.
    Create,
    /// A file, link or directory is replaced.
    Overwrite,
    /// A file or link goes.
    Delete,
    /// Only the permission bits change.
    Mode,
    /// A directory comes into being.
    Mkdir,
    /// An empty directory goes.
    Rmdir,
    /// Left as it is, by rule.
    Keep,
    /// Left as it is, because somebody else changed it.
    Conflict,
    /// Not spoken for by this call.
    Skip,
}

impl Action {
    /// Something is changed.
    pub fn changes(self) -> bool {
        !matches!(self, Action::Keep | Action::Conflict | Action::Skip)
    }

    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Overwrite => "overwrite",
            Action::Delete => "delete",
            Action::Mode => "mode",
            Action::Mkdir => "mkdir",
            Action::Rmdir => "rmdir",
            Action::Keep => "keep",
            Action::Conflict => "conflict",
            Action::Skip => "skip",
        }
    }

    /// All of them.
    pub const ALL: &'static [Action] = &[
        Action::Create,
        Action::Overwrite,
        Action::Delete,
        Action::Mode,
        Action::Mkdir,
        Action::Rmdir,
        Action::Keep,
        Action::Conflict,
        Action::Skip,
    ];
}

/// How far an item came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Not yet (a preview), or nothing to do.
    Pending,
    /// Done and verified.
    Done,
    /// Not possible; the path is as it was.
    Failed,
}

/// One path of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Relative to the workspace; absolute for a file elsewhere.
    pub path: BString,
    /// What is done.
    pub action: Action,
    /// Why, where it is not obvious: a stable word.
    pub reason: Option<String>,
    /// What must stand there; `None`: nothing.
    pub from: Option<Stand>,
    /// What will stand there; `None`: nothing.
    pub to: Option<Stand>,
    /// How far it came.
    pub result: Progress,
    /// Where somebody moved it.
    pub moved_to: Option<BString>,
    /// Places in it that both sides changed: they stay as they are.
    pub clashes: Vec<Clash>,
    /// Its parts, where they were asked for.
    pub hunks: Vec<Hunk>,
}

impl Item {
    /// The item that takes `from` to `to`; `None` where they are equal.
    pub fn transition(path: BString, from: Option<Stand>, to: Option<Stand>) -> Option<Item> {
        let action = match (from.as_ref().map(|s| &s.node), to.as_ref().map(|s| &s.node)) {
            (None, None) => return None,
            (Some(a), Some(b)) if a == b => return None,
            (None, Some(Node::Dir { .. })) => Action::Mkdir,
            (None, Some(_)) => Action::Create,
            (Some(Node::Dir { .. }), None) => Action::Rmdir,
            (Some(_), None) => Action::Delete,
            (Some(Node::Dir { .. }), Some(Node::Dir { .. })) => Action::Mode,
            (Some(Node::File { oid: a, .. }), Some(Node::File { oid: b, .. })) if a == b => Action::Mode,
            (Some(_), Some(_)) => Action::Overwrite,
        };
        Some(Item {
            path,
            action,
            reason: None,
            from,
            to,
            result: Progress::Pending,
            moved_to: None,
            clashes: Vec::new(),
            hunks: Vec::new(),
        })
    }

    /// Leaves the path alone.
    pub fn keep(path: BString, action: Action, reason: &str) -> Item {
        Item {
            path,
            action,
            reason: Some(reason.to_owned()),
            from: None,
            to: None,
            result: Progress::Pending,
            moved_to: None,
            clashes: Vec::new(),
            hunks: Vec::new(),
        }
    }

    /// Turns a change into leaving alone.
    pub fn leave(&mut self, action: Action, reason: &str) {
        self.action = action;
        self.reason = Some(reason.to_owned());
    }

    /// A file outside the workspace.
    pub fn is_outside(&self) -> bool {
        paths::is_outside(self.path.as_bstr())
    }

    pub(crate) fn was_dir(&self) -> bool {
        self.from.as_ref().is_some_and(|s| s.node.is_dir())
    }

    pub(crate) fn becomes_dir(&self) -> bool {
        self.to.as_ref().is_some_and(|s| s.node.is_dir())
    }
}

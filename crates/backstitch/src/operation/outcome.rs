//! What an operation did, or would do.

use backstitch_scan::Reason;

use crate::{
    git::put::Move,
    plan::{Action, Item, Progress},
};

/// What an operation did, or would do: preview and real run have the same shape.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The operation; `None` for previews and where there was nothing to do.
    pub operation: Option<String>,
    /// A preview.
    pub dry_run: bool,
    /// Digest of the plan.
    pub plan: String,
    /// Row or operation that it goes to.
    pub target: String,
    /// Safety row.
    pub safety: Option<String>,
    /// Path by path.
    pub items: Vec<Item>,
    /// Every change was read back.
    pub verified: bool,
    /// Something was kept, skipped or failed.
    pub partial: bool,
    /// Checkpoints that were moved, instead of paths.
    pub rows: Vec<String>,
    /// They were moved back into the list, not to the trash.
    pub rows_back: bool,
    /// Turns that it takes back (rewind).
    pub takes_back: Vec<u64>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// The user's git state, where it was asked for or goes along.
    pub(crate) git: Option<Move>,
}

impl Outcome {
    /// What a plan would do.
    pub(crate) fn preview(items: Vec<Item>, plan: String, target: String, takes_back: Vec<u64>) -> Outcome {
        Outcome {
            operation: None,
            dry_run: true,
            plan,
            target,
            safety: None,
            partial: is_partial(&items),
            items,
            verified: false,
            rows: Vec::new(),
            rows_back: false,
            takes_back,
            warnings: Vec::new(),
            git: None,
        }
    }
}

impl Outcome {
    /// With what it does to the user's repository.
    pub(crate) fn with_git(mut self, git: Option<Move>) -> Outcome {
        if let Some(m) = &git {
            self.warnings.extend(m.warnings.iter().cloned());
            // An index that is left alone is part of what was asked for.
            self.partial |= m.falls_short();
        }
        self.git = git;
        self
    }

    /// Names of the repository that change: HEAD, refs, the index, files of an operation under way.
    pub fn git_names(&self) -> Vec<String> {
        self.git.iter().flat_map(|m| &m.changes).map(|c| c.name.to_string()).collect()
    }

    /// Why the git state is left alone.
    pub fn git_conflict(&self) -> Option<&str> {
        self.git.as_ref()?.conflict.as_deref()
    }
}

/// An item counts against completeness unless it is settled by rule or already as wanted.
fn is_shortfall(i: &Item) -> bool {
    if !i.clashes.is_empty() {
        return true;
    }
    match i.action {
        Action::Conflict | Action::Skip => true,
        Action::Keep => {
            !matches!(
                i.reason.as_deref(),
                Some(
                    "already"
                        | "moved"
                        | "not-chosen"
                        | "no-delete"
                        | "ignored"
                        | "excluded"
                        | "ignored-then"
                        | "excluded-then"
                        | "never-stored-then"
                        | "not-empty"
                )
            ) && !i.reason.as_deref().is_some_and(left_out_by_rule_then)
        }
        _ => {
            i.result == Progress::Failed
                || i.reason.as_deref().is_some_and(|r| r == "setid-dropped" || was_missed(r))
        }
    }
}

/// What is below could not be looked at, against the rules.
fn was_missed(reason: &str) -> bool {
    Reason::parse(reason).is_some_and(|r| !r.by_rule())
}

/// The target does not speak for the path because a rule left it out; what was left out against the rules (too large,
/// unreadable) should have been there, and is missed.
fn left_out_by_rule_then(reason: &str) -> bool {
    reason
        .strip_prefix("not-covered-then:")
        .is_some_and(|then| Reason::parse(then).is_some_and(|r| r.by_rule()))
}

/// Something in these items falls short of what was asked for.
pub fn is_partial(items: &[Item]) -> bool {
    items.iter().any(is_shortfall)
}

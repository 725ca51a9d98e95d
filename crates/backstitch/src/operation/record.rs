//! An operation in the store: its record, and its items with what came of them.

use backstitch_store::{Odb, Oid};
use bstr::ByteSlice;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Code, Error, Result},
    plan::{self, Action, Item, Progress},
    record::{self, OPERATIONS},
    tree::{self, DirRef},
    workspace::Workspace,
};

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    /// Restore of a checkpoint.
    Restore,
    /// Taking back what a session did.
    Rewind,
    /// Taking back one turn.
    Revert,
    /// Inverse of another operation.
    Undo,
    /// Inverse of an undo.
    Redo,
    /// Rows moved to the trash by name.
    Delete,
    /// Rows and operations moved to the trash by the policy.
    Prune,
}

impl OpKind {
    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            OpKind::Restore => "restore",
            OpKind::Rewind => "rewind",
            OpKind::Revert => "revert",
            OpKind::Undo => "undo",
            OpKind::Redo => "redo",
            OpKind::Delete => "delete",
            OpKind::Prune => "prune",
        }
    }
}

/// How far an operation came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpState {
    /// In flight, or its process died.
    Running,
    /// Done and verified.
    Done,
    /// Taken back: the tree is as before.
    RolledBack,
}

/// An item that did not come out as planned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exception {
    /// Number of the item.
    pub n: usize,
    /// What became of it.
    pub action: Action,
    /// Why.
    pub reason: String,
}

/// The record of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpRecord {
    /// Version.
    pub v: u32,
    /// Id.
    pub id: String,
    /// Order.
    pub seq: u64,
    /// Kind.
    pub kind: OpKind,
    /// State.
    pub state: OpState,
    /// The row that it went to, or the operation that it inverts.
    pub target: String,
    /// The operation that it takes back (undo, redo).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverts: Option<String>,
    /// Session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The safety row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety: Option<String>,
    /// Digest of the plan.
    pub plan: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Paths changed.
    pub changed: u64,
    /// Where it stands among the rows: the order of its safety row.
    #[serde(default)]
    pub at: u64,
    /// Turns that it took back (rewind).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_back: Vec<u64>,
    /// Items that came out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<Exception>,
    /// Refs moved (delete): name and commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(String, String)>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl OpRecord {
    pub(super) fn message(&self) -> Vec<u8> {
        record::encode(&format!("{} {} (paths: {})", self.kind.as_str(), self.id, self.changed), self)
    }
}

/// An operation with its objects.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The record.
    pub record: OpRecord,
    /// The commit.
    pub commit: Oid,
    /// `before`, `after`, `items`.
    pub tree: Oid,
}

impl Operation {
    /// What it left in the workspace.
    pub(crate) fn after(&self, odb: &Odb) -> Result<DirRef> {
        match odb.tree(&self.tree)?.into_iter().find(|e| e.name == "after") {
            Some(e) => Ok(tree::Root::read(odb, &e.oid)?.files),
            None => Ok(DirRef::default()),
        }
    }

    /// Its items with their results.
    pub fn items(&self, odb: &Odb) -> Result<Vec<Item>> {
        let entry = odb.tree(&self.tree)?.into_iter().find(|e| e.name == "items");
        let mut items = match entry {
            Some(e) => plan::decode_items(&odb.blob(&e.oid)?)?,
            None => Vec::new(),
        };
        for i in &mut items {
            if self.record.state == OpState::Done && i.action.changes() {
                i.result = Progress::Done;
            }
        }
        for x in &self.record.exceptions {
            if let Some(i) = items.get_mut(x.n) {
                i.result = if x.action.changes() { Progress::Failed } else { Progress::Pending };
                i.leave(x.action, &x.reason);
            }
        }
        Ok(items)
    }
}

/// The user's git state before and after an operation, from its tree.
pub(crate) fn git_states(odb: &Odb, tree: &Oid) -> Result<(Option<Oid>, Option<Oid>)> {
    let (mut before, mut after) = (None, None);
    for e in odb.tree(tree)? {
        match e.name.as_slice() {
            b"before" => before = tree::Root::read(odb, &e.oid)?.git,
            b"after" => after = tree::Root::read(odb, &e.oid)?.git,
            _ => {}
        }
    }
    Ok((before, after))
}

/// All operations, oldest first.
pub fn operations(ws: &Workspace) -> Result<Vec<Operation>> {
    let (good, bad) = all(ws)?;
    match bad.into_iter().next() {
        None => Ok(good),
        Some((name, why)) => {
            Err(Error::new(Code::StoreDamaged, format!("the operation {name} cannot be read: {why}"))
                .hint("`backstitch verify --repair` sets it aside"))
        }
    }
}

/// Ref names and reasons.
type Unreadable = Vec<(String, String)>;

/// All that can be read, oldest first, and those that cannot, with the reason.
pub(crate) fn all(ws: &Workspace) -> Result<(Vec<Operation>, Unreadable)> {
    let (rows, bad) = ws.store()?.refs().rows(OPERATIONS)?;
    let mut bad: Vec<(String, String)> = bad.into_iter().map(|(n, e)| (n, e.to_string())).collect();
    let mut good = Vec::new();
    for r in rows {
        let record = record::decode::<OpRecord>(r.message.as_bstr(), &r.name)
            .and_then(|record| record::check_id(&record.id, &r.name).map(|()| record));
        match record {
            Ok(record) => good.push(Operation { record, commit: r.commit, tree: r.tree }),
            Err(e) => bad.push((r.name, e.message)),
        }
    }
    good.sort_by(|a, b| (a.record.seq, &a.record.id).cmp(&(b.record.seq, &b.record.id)));
    Ok((good, bad))
}

//! What changed in the stores, as notifications.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use backstitch::{
    error::Result,
    view,
    workspace::{Surroundings, Workspace},
};
use serde_json::{Value, json};

use super::outbox::Outbox;

/// More changes than these at once are told as one.
const MOST: usize = 100;

/// Rows and operations as they were told last: id and what changes with every change.
#[derive(Default)]
struct Known {
    rows: BTreeMap<String, String>,
    operations: BTreeMap<String, String>,
}

/// Compares the stores with what was told, and tells the difference. What other processes did is told with it.
pub struct Feed {
    outbox: Arc<Outbox>,
    known: Mutex<HashMap<PathBuf, Known>>,
}

impl Feed {
    /// Tells through this.
    pub fn new(outbox: Arc<Outbox>) -> Feed {
        Feed { outbox, known: Mutex::default() }
    }

    /// From now on changes of this workspace are told.
    pub fn begin(&self, root: &Path, surroundings: &Surroundings) {
        let is_known = self.known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(root);
        if !is_known {
            self.look(root, surroundings);
        }
    }

    /// Tells what changed since. A store that cannot be read is the next call's error, not ours.
    pub fn look(&self, root: &Path, surroundings: &Surroundings) {
        let _ = self.compare(root, surroundings);
    }

    fn compare(&self, root: &Path, surroundings: &Surroundings) -> Result<()> {
        let ws = Workspace::open(root, surroundings.clone())?;
        let mut now = Known::default();
        let (rows, operations) = match ws.has_store() {
            true => (ws.rows()?, ws.operations()?),
            false => Default::default(),
        };
        for c in &rows.all {
            now.rows.insert(c.record.id.clone(), c.commit.to_string());
        }
        for o in &operations {
            now.operations.insert(o.record.id.clone(), format!("{:?}", o.record.state));
        }
        let mut held = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = held.insert(root.to_owned(), now) else { return Ok(()) };
        let Some(now) = held.get(root) else { return Ok(()) };
        let workspace = root.to_string_lossy();
        self.tell("checkpoint", &workspace, &before.rows, &now.rows, &|id| {
            rows.by_id(id).map_or(Value::Null, |c| view::checkpoint(&ws, c))
        });
        self.tell("operation", &workspace, &before.operations, &now.operations, &|id| {
            operations.iter().find(|o| o.record.id == id).map_or(Value::Null, view::operation)
        });
        Ok(())
    }

    fn tell(
        &self,
        what: &str,
        workspace: &str,
        before: &BTreeMap<String, String>,
        now: &BTreeMap<String, String>,
        shape: &dyn Fn(&str) -> Value,
    ) {
        let gone = before.keys().filter(|id| !now.contains_key(*id)).map(|id| (id, "deleted"));
        let come = now.iter().filter_map(|(id, state)| match before.get(id) {
            None => Some((id, "created")),
            Some(old) if old != state => Some((id, "updated")),
            Some(_) => None,
        });
        let changes: Vec<(&String, &str)> = gone.chain(come).collect();
        let method = format!("{what}/changed");
        if changes.len() > MOST {
            self.outbox
                .notify(&method, json!({"workspace": workspace, "change": "many", "count": changes.len()}));
            return;
        }
        for (id, change) in changes {
            self.outbox.notify(
                &method,
                json!({"workspace": workspace, "change": change, "id": id, what: shape(id)}),
            );
        }
    }
}

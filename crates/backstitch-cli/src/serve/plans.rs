//! Plan first, apply by digest (SEMANTICS 20): what was planned is remembered, so that its digest is all that must be said.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use backstitch::error::{Code, Error, Result};
use serde_json::{Map, Value};

use super::method::{Method, Step};

/// Plans that are remembered.
const REMEMBERED: usize = 64;

/// Commands that change the work tree only by the digest of a plan.
const PLANNED: &[&str] = &["restore", "rewind", "revert"];

/// Parameters that say where, not what.
const PLACES: &[&str] = &["plan", "workspace", "session", "store_dir", "store-dir", "as_person", "as-person"];

struct Planned {
    digest: String,
    command: String,
    root: PathBuf,
    params: Map<String, Value>,
}

/// The plans of a connection.
#[derive(Default)]
pub struct Plans(Mutex<VecDeque<Planned>>);

impl Plans {
    /// The parameters of the whole command that a step of it stands for.
    ///
    /// # Errors
    /// `usage` where it would be applied without a plan, or by one that is not known.
    pub fn params(&self, m: &Method, mut params: Map<String, Value>) -> Result<Map<String, Value>> {
        let command = m.command();
        let dry = ["dry_run", "dry-run"].into_iter().find(|n| params.contains_key(*n));
        match m.step {
            Step::Whole if PLANNED.contains(&command.as_str()) => {
                let is_dry = dry.is_some_and(|n| params[n] == true);
                if !is_dry && params.get("plan").is_none_or(Value::is_null) {
                    return Err(Error::new(
                        Code::Usage,
                        format!("{command} is applied by the digest of its plan"),
                    )
                    .hint(format!("call {command}/plan, show it, then {command}/apply with its `plan`")));
                }
            }
            Step::Whole => {}
            Step::Plan | Step::Apply => {
                let extra = dry.or((m.step == Step::Plan && params.contains_key("plan")).then_some("plan"));
                if let Some(extra) = extra {
                    return Err(Error::new(Code::Usage, format!("{} has no parameter {extra:?}", m.name))
                        .hint("docs/reference/rpc.md lists the parameters of every method"));
                }
                if m.step == Step::Plan {
                    params.insert("dry_run".to_owned(), true.into());
                } else {
                    params = self.recall(m, params)?;
                }
            }
        }
        Ok(params)
    }

    fn recall(&self, m: &Method, params: Map<String, Value>) -> Result<Map<String, Value>> {
        let Some(digest) = params.get("plan").and_then(Value::as_str) else {
            return Err(Error::new(Code::Usage, format!("{} needs `plan`, the digest of a plan", m.name))
                .hint(format!("{}/plan gives one", m.command())));
        };
        if params.keys().any(|k| !PLACES.contains(&k.as_str())) {
            return Ok(params);
        }
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = plans.iter().rev().find(|p| p.digest == digest && p.command == m.command()) else {
            return Err(Error::new(Code::Usage, format!("no plan {digest:?} was made on this connection"))
                .hint(format!("call {0}/plan first, or say again what {0}/plan was told", m.command())));
        };
        let mut all = known.params.clone();
        all.remove("dry_run");
        all.entry("workspace").or_insert_with(|| known.root.to_string_lossy().into());
        all.extend(params);
        Ok(all)
    }

    /// What a plan was made of.
    pub fn remember(&self, command: String, params: Map<String, Value>, plan: &Value, root: &Path) {
        let Some(digest) = plan.get("plan").and_then(Value::as_str) else { return };
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= REMEMBERED {
            plans.pop_front();
        }
        plans.push_back(Planned { digest: digest.to_owned(), command, root: root.to_owned(), params });
    }
}

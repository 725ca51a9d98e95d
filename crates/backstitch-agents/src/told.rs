//! What changed under the model since its last request (SEMANTICS 22): one line, from the operations since the session's last
//! prompt. What was taken back and put back again did not change.

use std::collections::{BTreeMap, btree_map::Entry};

use backstitch::{
    error::Result,
    operation::OpState,
    plan::{Progress, Stand},
    record::Kind,
    session,
    workspace::{Rows, Workspace},
};
use bstr::{BString, ByteSlice};

/// As many paths as are named.
const NAMED: usize = 20;

/// The line; `None` where nothing changed, or where the session has no earlier turn to know better from. `key` is the turn that
/// is beginning: said twice, it hears the same.
pub fn since_last_prompt(ws: &Workspace, rows: &Rows, id: &str, key: Option<&str>) -> Result<Option<String>> {
    let operations = ws.operations()?;
    if operations.is_empty() {
        return Ok(None);
    }
    let records = ws.session_records()?;
    let line = session::line(rows, &records, id);
    let last = line
        .iter()
        .rev()
        .find(|c| c.record.kind == Kind::Prompt && (key.is_none() || c.record.turn_key.as_deref() != key));
    let Some(last) = last.map(|c| c.record.seq) else { return Ok(None) };
    let odb = ws.odb()?;
    let mut net: BTreeMap<BString, (Option<Stand>, Option<Stand>)> = BTreeMap::new();
    for o in operations
        .iter()
        .filter(|o| o.record.state == OpState::Done && o.record.rows.is_empty() && o.record.at > last)
    {
        for i in o.items(&odb)?.into_iter().filter(|i| i.result == Progress::Done && i.action.changes()) {
            match net.entry(i.path) {
                Entry::Vacant(e) => {
                    e.insert((i.from, i.to));
                }
                Entry::Occupied(mut e) => e.get_mut().1 = i.to,
            }
        }
    }
    let is_dir = |s: &Option<Stand>| s.as_ref().is_some_and(|s| s.node.is_dir());
    let changed: Vec<String> = net
        .iter()
        .filter(|(_, (from, to))| {
            from.as_ref().map(|s| &s.node) != to.as_ref().map(|s| &s.node) && !is_dir(from) && !is_dir(to)
        })
        .map(|(path, (from, to))| {
            let what = match (from, to) {
                (None, _) => "created",
                (_, None) => "deleted",
                _ => "changed",
            };
            format!("{} {what}", shown(path))
        })
        .collect();
    if changed.is_empty() {
        return Ok(None);
    }
    let more = match changed.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let named = changed.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok(Some(format!(
        "Backstitch took work back on disk since your last request: {named}{more}. What you remember of these files no longer \
         holds: read them again before you rely on them or edit them."
    )))
}

/// A path in one line, whatever is in it.
pub fn shown(path: &[u8]) -> String {
    let text: String = path
        .to_str_lossy()
        .chars()
        .take(120)
        .flat_map(|c| match c.is_control() || c == '`' {
            true => c.escape_unicode().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect();
    format!("`{text}`")
}

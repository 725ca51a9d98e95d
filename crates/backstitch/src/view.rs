//! The JSON shapes of CONTRACT: one place for command line, RPC and MCP.

use bstr::ByteSlice;
use serde_json::{Map, Value, json};

use crate::{
    bisect::Bisected,
    blame::Blame,
    diff::{Change, Diff},
    git::{self, put::Move},
    held::{Folder, Held},
    history::By,
    hunks::Hunk,
    merge::{Clash, Lines},
    operation::{Operation, Outcome},
    paths::{self, JsonPath},
    record::{Checkpoint, Kind, rfc3339},
    tree::Node,
    workspace::Workspace,
};

/// A path in a JSON object: lossily under `key`, and exactly under `key_base64` where it is not UTF-8.
pub fn put_path(m: &mut Map<String, Value>, key: &str, path: &bstr::BStr) {
    let p = JsonPath::from(path);
    m.insert(key.to_owned(), p.path.into());
    if let Some(b) = p.path_base64 {
        m.insert(format!("{key}_base64"), b.into());
    }
}

/// What a row holds in a folder.
pub fn folder(c: &Checkpoint, f: &Folder) -> Value {
    let entry = |e: &Held| {
        let mut m = Map::new();
        put_path(&mut m, "path", e.path.as_bstr());
        let kind = match e.node {
            Node::File { .. } => "file",
            Node::Link { .. } => "link",
            Node::Dir { .. } => "directory",
        };
        m.insert("type".to_owned(), kind.into());
        m.insert("mode".to_owned(), e.node.mode().map(|m| format!("{m:04o}")).into());
        m.insert("bytes".to_owned(), e.bytes.into());
        if let Some(t) = &e.target {
            put_path(&mut m, "target", t.as_bstr());
        }
        Value::Object(m)
    };
    let mut m = Map::new();
    m.insert("checkpoint".to_owned(), c.record.id.clone().into());
    put_path(&mut m, "path", f.path.as_bstr());
    m.insert("entries".to_owned(), f.entries.iter().map(entry).collect());
    m.insert("not_covered".to_owned(), json!(f.skips));
    Value::Object(m)
}

/// A checkpoint. `skipped` holds the first of what was left out; `show` gives all.
pub fn checkpoint(ws: &Workspace, c: &Checkpoint) -> Value {
    let r = &c.record;
    json!({
        "id": r.id,
        "kind": r.kind.as_str(),
        "session": r.session,
        "turn": r.turn,
        "agent": r.agent,
        "tool": r.tool,
        "phase": r.phase,
        "call": r.call,
        "status": r.status,
        "label": r.label,
        "prompt": r.prompt,
        "entry": r.entry,
        "parent": r.parent,
        "created": rfc3339(r.created_ms),
        "state": r.state,
        "unchanged": r.unchanged,
        "tree": c.tree.to_string(),
        "commit": c.commit.to_string(),
        "summary": r.summary,
        "files": r.files,
        "skipped": r.skipped,
        "skipped_total": r.skipped_total,
        "scope": r.scope,
        "covers": r.covers,
        "outside": r.outside_paths().map(|p| p.to_str_lossy().into_owned()).collect::<Vec<_>>(),
        "retention": r.retention,
        "pinned": r.pinned,
        "workspace": paths::bytes(ws.root()).to_str_lossy(),
        "bytes": {"unique": Value::Null, "shared": Value::Null},
        "restorable": r.is_restorable(),
        "in_flight": r.in_flight(),
        "gated": r.gated(),
        "notes": r.notes,
        "reason": r.reason,
        "operation": r.operation,
        "origin": crate::sync::origin_of(r),
    })
}

/// Longer texts of one side of a conflict are cut; the numbers of lines tell how much there is.
const SIDE: usize = 16 << 10;

/// One side of a place.
fn side(what: &str, l: &Lines) -> Value {
    let text = l.text[..l.text.len().min(SIDE)].to_str_lossy();
    match what {
        "lines" => json!({"line": l.line, "lines": l.count, "text": text}),
        _ => json!({"text": text}),
    }
}

/// A place that both sides changed.
fn clash(c: &Clash) -> Value {
    let side = |l| side(c.what, l);
    json!({"what": c.what, "present": side(&c.present), "base": side(&c.base), "wanted": side(&c.wanted)})
}

/// A part that can be chosen.
fn hunk(h: &Hunk) -> Value {
    match h.what {
        "whole" => json!({"id": h.id, "what": h.what}),
        what => json!({
            "id": h.id,
            "what": what,
            "present": side(what, &h.present),
            "wanted": side(what, &h.wanted),
        }),
    }
}

/// A plan or outcome.
pub fn outcome(o: &Outcome) -> Value {
    let mut counts: Map<String, Value> =
        crate::plan::Action::ALL.iter().map(|a| (a.as_str().to_owned(), 0u64.into())).collect();
    let items: Vec<Value> = o
        .items
        .iter()
        .map(|i| {
            let n = counts.get(i.action.as_str()).and_then(Value::as_u64).unwrap_or(0) + 1;
            counts.insert(i.action.as_str().to_owned(), n.into());
            let mut m = Map::new();
            put_path(&mut m, "path", i.path.as_bstr());
            if i.is_outside() {
                m.insert("outside".to_owned(), true.into());
            }
            m.insert("action".to_owned(), i.action.as_str().into());
            m.insert("reason".to_owned(), i.reason.clone().into());
            m.insert("result".to_owned(), json!(i.result));
            if let Some(to) = &i.moved_to {
                put_path(&mut m, "moved_to", to.as_bstr());
            }
            if !i.hunks.is_empty() {
                m.insert("hunks".to_owned(), i.hunks.iter().map(hunk).collect());
            }
            if !i.clashes.is_empty() {
                m.insert("conflicts".to_owned(), i.clashes.iter().map(clash).collect());
            }
            Value::Object(m)
        })
        .collect();
    json!({
        "operation": o.operation,
        "dry_run": o.dry_run,
        "plan": o.plan,
        "target": o.target,
        "safety": o.safety,
        "items": items,
        "counts": counts,
        "verified": o.verified,
        "partial": o.partial,
        "takes_back": o.takes_back,
        "warnings": o.warnings,
        "git": o.git.as_ref().map(git_move),
    })
}

/// What a plan or outcome does to the user's repository.
fn git_move(m: &Move) -> Value {
    let side = |v: &Option<git::values::Value>| v.as_ref().map(git::values::Value::text);
    let one = |c: &git::values::Change| json!({"name": c.name.to_str_lossy(), "from": side(&c.from), "to": side(&c.to)});
    json!({"changes": m.changes.iter().map(one).collect::<Vec<_>>(), "conflict": m.conflict})
}

/// One changed path.
pub fn change(c: &Change) -> Value {
    let mut m = Map::new();
    put_path(&mut m, "path", c.path.as_bstr());
    match &c.old_path {
        Some(p) => put_path(&mut m, "old_path", p.as_bstr()),
        None => {
            m.insert("old_path".to_owned(), Value::Null);
        }
    }
    m.insert("status".to_owned(), c.status.as_str().into());
    m.insert(
        "mode_change".to_owned(),
        c.mode_change
            .map_or(Value::Null, |(a, b)| json!({"from": format!("{a:04o}"), "to": format!("{b:04o}")})),
    );
    m.insert("binary".to_owned(), c.binary.into());
    m.insert("added".to_owned(), c.added.into());
    m.insert("removed".to_owned(), c.removed.into());
    if paths::is_outside(c.path.as_bstr()) {
        m.insert("outside".to_owned(), true.into());
    }
    Value::Object(m)
}

/// Who made a change.
pub fn by(b: &By) -> Value {
    json!({
        "who": b.who,
        "session": b.session,
        "sessions": b.sessions,
        "turn": b.turn,
        "tool": b.tool,
        "call": b.call,
        "agent": b.agent,
        "evidence": b.evidence,
        "operation": b.operation,
    })
}

/// A search for the turn that broke something. `turn` is the one that did it, null where none or more than one is left, or
/// where it happened in no turn.
pub fn bisected(session: &str, b: &Bisected<&Checkpoint>) -> Value {
    let state = |c: &Checkpoint| json!({"checkpoint": c.record.id, "turn": c.record.turn, "kind": c.record.kind.as_str()});
    let turn = match b.suspects.as_slice() {
        [c] if c.record.kind == Kind::Turn => c.record.turn,
        _ => None,
    };
    let steps = b.steps.iter().map(|s| {
        let mut v = state(s.row);
        v["verdict"] = s.verdict.as_str().into();
        v
    });
    json!({
        "session": session,
        "result": b.ending.as_str(),
        "turn": turn,
        "suspects": b.suspects.iter().map(|c| state(c)).collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
    })
}

/// Who wrote each line.
pub fn blame(b: &Blame) -> Value {
    let lines: Vec<Value> = b
        .lines
        .iter()
        .enumerate()
        .map(|(n, l)| {
            let v = &b.versions[l.version];
            let mut m = Map::new();
            m.insert("line".to_owned(), (n + 1).into());
            let text = l.text.strip_suffix(b"\n").unwrap_or(&l.text);
            m.insert("text".to_owned(), text.to_str_lossy().into());
            if text.to_str().is_err() {
                m.insert("text_base64".to_owned(), paths::base64(text).into());
            }
            m.insert("checkpoint".to_owned(), v.row.as_ref().map(|c| c.record.id.clone()).into());
            m.insert("created".to_owned(), v.row.as_ref().map(|c| rfc3339(c.record.created_ms)).into());
            put_path(&mut m, "path", v.path.as_bstr());
            m.insert("by".to_owned(), by(&v.by));
            Value::Object(m)
        })
        .collect();
    let mut m = Map::new();
    put_path(&mut m, "path", b.path.as_bstr());
    m.insert("checkpoint".to_owned(), b.at.clone().into());
    m.insert("lines".to_owned(), lines.into());
    Value::Object(m)
}

/// A diff.
pub fn diff(d: &Diff) -> Value {
    let mut v = json!({
        "from": d.from,
        "to": d.to,
        "changes": d.changes.iter().map(change).collect::<Vec<_>>(),
        "not_covered": d.not_covered.iter().map(|(p, r)| {
            let mut m = Map::new();
            put_path(&mut m, "path", p.as_bstr());
            m.insert("reason".to_owned(), r.clone().into());
            Value::Object(m)
        }).collect::<Vec<_>>(),
    });
    if let (Some(patch), Some(m)) = (&d.patch, v.as_object_mut()) {
        m.insert("patch".to_owned(), patch.to_str_lossy().into());
    }
    v
}

/// A session.
pub fn session(s: &crate::session::Session) -> Value {
    json!({
        "id": s.record.id,
        "parent": s.record.parent,
        "fork_row": s.record.fork_row,
        "ended": s.record.ended,
        "created": rfc3339(s.record.created_ms),
        "last": rfc3339(s.last_ms),
        "rows": s.rows,
        "turns": s.turns,
        "open_turn": s.open_turn,
    })
}

/// An operation.
pub fn operation(o: &Operation) -> Value {
    let r = &o.record;
    json!({
        "id": r.id,
        "kind": r.kind.as_str(),
        "state": r.state,
        "target": r.target,
        "inverts": r.inverts,
        "session": r.session,
        "safety": r.safety,
        "plan": r.plan,
        "created": rfc3339(r.created_ms),
        "changed": r.changed,
        "takes_back": r.takes_back,
        "rows": r.rows.iter().map(|(id, _)| id).collect::<Vec<_>>(),
    })
}

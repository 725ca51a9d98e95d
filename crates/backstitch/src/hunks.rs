//! Parts of a restore: the hunks of a text, the bits of a file, or an item as a whole.
//!
//! A hunk is named by what it changes into what, and where. A name that was read from a preview means exactly that hunk;
//! after the file has changed there it means nothing.

use std::ops::Range;

use bstr::{BString, ByteSlice};
use imara_diff::{InternedInput, sources::byte_lines};

use crate::{
    error::{Code, Error, Result},
    merge::{self, Contents, Lines},
    paths, place,
    plan::{self, Action, Item, Plan, Stand},
    settings::digest,
    tree::Node,
};

/// A part that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Its name.
    pub id: String,
    /// `lines`, `mode` (with the bits in octal as text), or `whole`.
    pub what: &'static str,
    /// What is there now.
    pub present: Lines,
    /// What would be there.
    pub wanted: Lines,
}

/// Length of a name.
const ID: usize = 12;

fn id(parts: &[&[u8]]) -> String {
    let mut id = digest(&parts.join(&0));
    id.truncate(ID);
    id
}

/// Contents of both ends, where both are text.
fn texts(item: &Item, contents: &Contents<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (Some(Node::File { oid: a, .. }), Some(Node::File { oid: b, .. })) =
        (item.from.as_ref().map(|s| &s.node), item.to.as_ref().map(|s| &s.node))
    else {
        return Ok(None);
    };
    if a == b {
        return Ok(None);
    }
    let path = item.path.as_bstr();
    Ok(contents.text(path, a)?.zip(contents.text(path, b)?))
}

/// The parts of an item, in the order of its lines.
pub(crate) fn of(item: &Item, contents: &Contents<'_>) -> Result<Vec<Hunk>> {
    if !item.action.changes() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    if let Some((old, new)) = texts(item, contents)? {
        let input = InternedInput::new(byte_lines(&old), byte_lines(&new));
        let (a, b): (Vec<&[u8]>, Vec<&[u8]>) =
            (old.lines_with_terminator().collect(), new.lines_with_terminator().collect());
        for h in merge::hunks(&input) {
            let lines = |of: &[&[u8]], at: Range<u32>| merge::cut(of, at.start as usize..at.end as usize);
            let (present, wanted) = (lines(&a, h.before), lines(&b, h.after));
            let line = present.line.to_string();
            let id = id(&[&item.path, line.as_bytes(), &present.text, &wanted.text]);
            out.push(Hunk { id, what: "lines", present, wanted });
        }
        let mode = |s: &Option<Stand>| s.as_ref().and_then(|s| s.node.mode()).unwrap_or(0);
        let (from, to) = (mode(&item.from), mode(&item.to));
        if from != to {
            let bits = |m: u32| Lines { text: format!("{m:04o}").into(), ..Lines::default() };
            let id = id(&[&item.path, b"mode", &bits(from).text, &bits(to).text]);
            out.push(Hunk { id, what: "mode", present: bits(from), wanted: bits(to) });
        }
        return Ok(out);
    }
    let whole = plan::encode_items(std::slice::from_ref(item));
    out.push(Hunk { id: id(&[&whole]), what: "whole", present: Lines::default(), wanted: Lines::default() });
    Ok(out)
}

/// Leaves of a plan only what was chosen. Folders that it needs come along.
///
/// # Errors
/// `plan-changed` with the names that mean nothing.
pub(crate) fn choose(plan: &mut Plan, contents: &mut Contents<'_>, chosen: &[String]) -> Result<()> {
    let mut unknown: Vec<String> = chosen.to_vec();
    let mut left: Vec<usize> = Vec::new();
    for (n, item) in plan.items.iter_mut().enumerate() {
        let hunks = of(item, contents)?;
        let picked: Vec<bool> = hunks.iter().map(|h| chosen.contains(&h.id)).collect();
        unknown.retain(|c| !hunks.iter().any(|h| h.id == *c));
        if hunks.is_empty() || picked.iter().all(|p| *p) {
            continue;
        }
        if !picked.contains(&true) {
            left.push(n);
            continue;
        }
        let (Some((old, _)), Some(from), Some(to)) = (texts(item, contents)?, &item.from, &item.to) else {
            continue;
        };
        let lines: Vec<&[u8]> = old.lines_with_terminator().collect();
        let mut text: Vec<u8> = Vec::with_capacity(old.len());
        let mut at = 0;
        let (mut mode, mut stand) = (from.node.mode().unwrap_or(0), from.clone());
        for (h, _) in hunks.iter().zip(&picked).filter(|(_, p)| **p) {
            if h.what == "mode" {
                mode = to.node.mode().unwrap_or(mode);
                continue;
            }
            let start = usize::try_from(h.present.line).unwrap_or(1) - 1;
            merge::put(&mut text, &lines[at..start]);
            merge::put(&mut text, &h.wanted.text.lines_with_terminator().collect::<Vec<_>>());
            at = start + usize::try_from(h.present.count).unwrap_or(0);
        }
        merge::put(&mut text, &lines[at..]);
        let oid = place::hash(&text)
            .map_err(|e| Error::io(&paths::to_path(&contents.root, item.path.as_bstr()), e))?;
        contents.new.insert(oid, text);
        stand.node = Node::File { oid, mode };
        if let Some(part) = Item::transition(item.path.clone(), item.from.clone(), Some(stand)) {
            *item = Item { reason: Some("part".to_owned()), ..part };
        }
    }
    if !unknown.is_empty() {
        return Err(Error::new(Code::PlanChanged, format!("no hunk is named {}", unknown.join(", ")))
            .list(unknown)
            .hint("the file changed there since; list the hunks again with --hunks --dry-run; nothing was changed"));
    }
    let needed: Vec<BString> = plan
        .items
        .iter()
        .enumerate()
        .filter(|(n, i)| i.action.changes() && i.to.is_some() && !left.contains(n))
        .map(|(_, i)| i.path.clone())
        .collect();
    for n in left {
        let i = &mut plan.items[n];
        let below = |p: &BString| p != &i.path && paths::is_under(p.as_bstr(), i.path.as_bstr());
        if i.action != Action::Mkdir || !needed.iter().any(below) {
            i.leave(Action::Keep, "not-chosen");
        }
    }
    Ok(())
}

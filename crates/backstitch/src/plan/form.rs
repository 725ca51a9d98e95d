//! Items as an operation keeps them: one line of JSON each. Reading refuses every path that must never be written.

use backstitch_store::Oid;
use bstr::ByteSlice;
use serde::{Deserialize, Serialize};

use super::{Action, Item, Progress, Stand};
use crate::{
    error::{Code, Error, Result},
    meta::Attrs,
    paths,
    tree::Node,
};

#[derive(Serialize, Deserialize)]
struct StandRecord {
    t: char,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct ItemRecord {
    path: String,
    /// The path is absolute: a file outside the workspace. Without this word no absolute path is taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    outside: bool,
    action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<StandRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<StandRecord>,
}

fn to_record(s: &Stand) -> StandRecord {
    StandRecord {
        t: match s.node {
            Node::File { .. } => 'f',
            Node::Link { .. } => 'l',
            Node::Dir { .. } => 'd',
        },
        mode: s.node.mode(),
        oid: s.node.oid().map(|o| o.to_string()),
        owner: s.attrs.owner,
        xattrs: s.attrs.xattrs.iter().map(|(k, v)| (paths::escape(k), paths::escape(v))).collect(),
    }
}

fn from_record(r: StandRecord) -> Option<Stand> {
    let oid = || Oid::from_hex(r.oid.as_deref()?.as_bytes()).ok();
    let node = match r.t {
        'f' => Node::File { oid: oid()?, mode: r.mode? & 0o7777 },
        'l' => Node::Link { oid: oid()? },
        'd' => Node::Dir { mode: r.mode? & 0o7777 },
        _ => return None,
    };
    let xattrs = r
        .xattrs
        .iter()
        .map(|(k, v)| Some((paths::unescape(k.as_bytes())?, paths::unescape(v.as_bytes())?)))
        .collect::<Option<_>>()?;
    Some(Stand { node, attrs: Attrs { owner: r.owner, xattrs } })
}

/// Bytes of an operation's `items` blob: one line of JSON per item.
pub fn encode_items(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for i in items {
        let r = ItemRecord {
            path: paths::escape(&i.path),
            outside: i.is_outside(),
            action: i.action,
            reason: i.reason.clone(),
            from: i.from.as_ref().map(to_record),
            to: i.to.as_ref().map(to_record),
        };
        out.extend_from_slice(&serde_json::to_vec(&r).unwrap_or_default());
        out.push(b'\n');
    }
    out
}

/// Inverse of [`encode_items`].
pub fn decode_items(bytes: &[u8]) -> Result<Vec<Item>> {
    let bad = || Error::new(Code::StoreDamaged, "the items of an operation are not in the known form");
    bytes
        .lines()
        .map(|l| {
            let r: ItemRecord = serde_json::from_slice(l).map_err(|_| bad())?;
            let stand = |r: Option<StandRecord>| match r {
                None => Ok(None),
                Some(r) => from_record(r).map(Some).ok_or_else(bad),
            };
            let path = paths::unescape(r.path.as_bytes()).ok_or_else(bad)?;
            let within = match r.outside {
                true => path.strip_prefix(b"/").map(ByteSlice::as_bstr),
                false => Some(path.as_bstr()),
            };
            if !within.is_some_and(paths::is_safe) {
                return Err(Error::new(
                    Code::UnsafePath,
                    format!("an operation names {path:?}, which must never be written"),
                )
                .at_bytes(path)
                .hint("nothing was changed; `backstitch verify` examines the store"));
            }
            Ok(Item {
                path,
                action: r.action,
                reason: r.reason,
                from: stand(r.from)?,
                to: stand(r.to)?,
                result: Progress::Pending,
                moved_to: None,
                clashes: Vec::new(),
                hunks: Vec::new(),
            })
        })
        .collect()
}

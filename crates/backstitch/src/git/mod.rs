//! The user's git state as data: HEAD, refs, stash, index, an operation under way, and the objects that they need.
//!
//! Reading writes nothing to a `.git` and runs no git. Only [`put`], which `restore --git-state` and its undo call, writes
//! there, by git's own rules.
//!
//! A row's `meta/git` is a tree:
//!
//! ```text
//! heads      HEAD and every ref but tags and remote-tracking ones: a line `name SP value` each
//! tags       refs/tags, in the same form
//! stash      the stash's reflog, which is the list of stashes
//! index/     the index's stage 0 as a tree, names encoded as in files/, submodules as mode 160000
//! flags      entries of the index that a tree cannot say: conflict stages, flags, intent to add
//! sides/     blobs of such entries, by id
//! operation/ files of a merge, rebase, cherry-pick, revert or bisect under way
//! kept/xx/   commits and tags with git's header, by id, and `<id>.tree`: a commit's tree, names encoded
//! about      JSON: how many are kept, what could not be
//! ```

mod index;
mod keep;
mod moves;
pub(crate) mod put;
mod read;
pub(crate) mod values;

use std::{io::Write, path::PathBuf};

use backstitch_scan::Rules;
use backstitch_store::{MODE_FILE, MODE_TREE, Oid, TreeEntry, Writer};
use bstr::{BString, ByteSlice};
use serde::{Deserialize, Serialize};

pub(crate) use self::{read::Repo, values::Values};
use crate::{
    error::{Code, Error, Result},
    paths,
    workspace::Workspace,
};

/// Marks a record whose row has looked at the git state; other rows carry that of the row before.
pub(crate) const SEEN: &str = "git";

/// Marks an operation that changed the git state.
pub(crate) const CHANGED: &str = "git_state";

/// What a reader should know of a recorded git state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Form.
    pub v: u32,
    /// Commits and tags that are kept.
    pub kept: u64,
    /// There are older ones that are not, because they are many; they stay where the user's repository has them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub older: bool,
    /// Objects that could not be kept: not in the repository, too large, or in a form that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The patterns of what was not to be stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub never: String,
    /// Why the index is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
}

/// Looks at the repository around a workspace and puts its state into `writer`.
///
/// `carried` is the state in the row before, whose objects are in the store. What cannot be read never fails a capture: it
/// comes back as a note.
pub(crate) fn record(
    ws: &Workspace,
    rules: &Rules,
    writer: &Writer,
    carried: Option<Oid>,
) -> (Option<Oid>, Option<String>) {
    if !ws.settings().flag("git_state") {
        return (None, None);
    }
    let Some(repo) = Repo::of(rules) else { return (None, None) };
    match look(ws, &repo, rules, writer, carried) {
        Ok(oid) => (Some(oid), None),
        Err(e) => (None, Some(format!("the git state was not recorded: {}", e.message))),
    }
}

fn cache(ws: &Workspace) -> Result<PathBuf> {
    Ok(crate::live::table_dir(ws)?.join("git"))
}

/// The state, from the cache where nothing was touched since.
fn look(ws: &Workspace, repo: &Repo, rules: &Rules, writer: &Writer, carried: Option<Oid>) -> Result<Oid> {
    repo.refuse_unknown()?;
    let file = cache(ws)?;
    let signature = || -> Result<Option<Vec<u8>>> {
        Ok(repo.signature()?.map(|mark| [mark.as_slice(), rules.never().as_bytes()].concat()))
    };
    let before = signature()?;
    if let (Some(oid), Some(mark)) = (carried, &before)
        && std::fs::read(&file).is_ok_and(|known| known == cached(&oid, mark))
    {
        return Ok(oid);
    }
    // What git changes meanwhile is read again; a repository that never rests is recorded as it was seen last.
    let mut seen = before;
    for _ in 0..3 {
        let (oid, whole) = write(repo, rules, writer, carried)?;
        let after = signature()?;
        if after == seen {
            if let Some(mark) = after.filter(|_| whole) {
                // A cache: where it cannot be written the next capture reads again.
                let _ = save(&file, &cached(&oid, &mark));
            }
            return Ok(oid);
        }
        seen = after;
    }
    Err(Error::new(Code::Failed, "the repository changed each time it was read")
        .hint("the files were recorded; the next checkpoint reads the git state again"))
}

fn cached(oid: &Oid, mark: &[u8]) -> Vec<u8> {
    [oid.to_string().as_bytes(), b" ", mark].concat()
}

fn save(file: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut f = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    f.write_all(bytes)
}

/// Reads everything and writes the tree; `false` where a later look may keep more.
pub(crate) fn write(
    repo: &Repo,
    rules: &Rules,
    writer: &Writer,
    carried: Option<Oid>,
) -> Result<(Oid, bool)> {
    let raw = repo.read()?;
    let mut s = writer.scratch();
    let mut about = About { v: 1, never: rules.never(), ..About::default() };
    // What was kept under other patterns is looked at anew.
    let before = match carried {
        Some(oid) if Values::read(writer.odb(), &oid).is_ok_and(|v| v.about.never == about.never) => {
            values::parts(writer.odb(), &oid)?
        }
        _ => Default::default(),
    };
    let mut keep = keep::Keep::new(repo, rules, writer);
    let mut out: Vec<TreeEntry> = Vec::new();
    let mut put = |name: &str, mode: u32, oid: Oid| out.push(TreeEntry { mode, name: name.into(), oid });

    let (tags, heads): (Vec<_>, Vec<_>) = raw.refs.iter().partition(|(n, _)| n.starts_with(b"refs/tags/"));
    let line = |(name, value): (&BString, &BString)| format!("{} {}\n", paths::escape(name), value);
    let head = format!("HEAD {}\n", raw.head);
    let heads: String = std::iter::once(head).chain(heads.into_iter().map(line)).collect();
    put("heads", MODE_FILE, writer.blob(&mut s, heads.as_bytes())?.0);
    let tags: String = tags.into_iter().map(line).collect();
    if !tags.is_empty() {
        put("tags", MODE_FILE, writer.blob(&mut s, tags.as_bytes())?.0);
    }
    if let Some(log) = &raw.stash {
        put("stash", MODE_FILE, writer.blob(&mut s, log)?.0);
    }
    if let Some(bytes) = &raw.index {
        match index::parse(bytes) {
            Ok(entries) => {
                let made = index::write(&entries, before.get("index").copied(), &mut keep, &mut s)?;
                put("index", MODE_TREE, made.tree);
                if !made.flags.is_empty() {
                    put("flags", MODE_FILE, writer.blob(&mut s, &made.flags)?.0);
                }
                if !made.sides.is_empty() {
                    let mut sides: Vec<TreeEntry> = made
                        .sides
                        .iter()
                        .map(|oid| TreeEntry { mode: MODE_FILE, name: oid.to_string().into(), oid: *oid })
                        .collect();
                    put("sides", MODE_TREE, writer.tree(&mut s, &mut sides)?.0);
                }
            }
            Err(why) => about.index = Some(why.to_owned()),
        }
    }
    if !raw.operation.is_empty() {
        let files = raw.operation.iter().map(|(p, b)| (p.as_bstr(), b.as_slice()));
        put("operation", MODE_TREE, values::write_files(writer, &mut s, files)?);
    }
    let (kept, whole) = keep.history(&raw, before.get("kept").copied(), &mut about, &mut s)?;
    if let Some(kept) = kept {
        put("kept", MODE_TREE, kept);
    }
    about.missing = keep.missing();
    let about = serde_json::to_vec(&about).unwrap_or_default();
    put("about", MODE_FILE, writer.blob(&mut s, &about)?.0);
    Ok((writer.tree(&mut s, &mut out)?.0, whole))
}

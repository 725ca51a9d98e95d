//! Putting a recorded git state back: the one place that writes to the user's `.git`, by git's own rules.
//!
//! Every name is locked with git's `NAME.lock` before it is changed, looked at again under the lock, and replaced by
//! rename; refs that move get a line in their reflog. A lock of ours is a second name of a file
//! `.backstitch-tmp-<operation>-g<n>`, so whoever finds one after a crash knows whose it is.

mod lock;
mod objects;
mod refs;

use std::{cell::Cell, path::PathBuf};

use backstitch_store::{Odb, Oid};
use bstr::{BStr, BString, ByteSlice};

use self::lock::Locks;
use super::{
    index,
    read::{Repo, read_file},
    values::{Change, INDEX, STASH_LOG, Value, Values, changes},
};
use crate::{
    error::{Code, Error, Result},
    paths,
    workspace::{Control, Workspace},
};

/// A change of the git state, as part of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// The state before, as recorded.
    pub from: Oid,
    /// The state after.
    pub to: Oid,
    pub changes: Vec<Change>,
    pub warnings: Vec<String>,
    /// Why it is left alone.
    pub conflict: Option<String>,
}

impl Move {
    /// Something of it is left alone.
    pub(crate) fn falls_short(&self) -> bool {
        self.conflict.is_some() || !self.warnings.is_empty()
    }

    /// What goes into the plan's digest.
    pub(crate) fn name(&self, target: &str) -> String {
        let mut out = target.to_owned();
        for c in &self.changes {
            let side = |v: &Option<Value>| v.as_ref().map(Value::text).unwrap_or_default();
            out.push_str(&format!("\ngit {} {} {}", paths::escape(&c.name), side(&c.from), side(&c.to)));
        }
        out
    }
}

/// The repository around a workspace.
///
/// # Errors
/// `git-state` where there is none, or of a kind that is not known.
pub(crate) fn repository(ws: &Workspace) -> Result<Repo> {
    let repo = Repo::of(&ws.rules()?).ok_or_else(|| {
        Error::new(Code::GitState, format!("{} lies in no git work tree", ws.root().display()))
            .at(ws.root())
            .hint("leave out --git-state; nothing was changed")
    })?;
    repo.refuse_unknown()?;
    Ok(repo)
}

/// What leads from the present state, which is in `odb` as `now`, to `to`.
///
/// # Errors
/// `busy` where git holds a lock; `git-state` where an object is nowhere, or another work tree has a branch checked out.
pub(crate) fn plan(repo: &Repo, odb: &Odb, now: Oid, to: Oid) -> Result<Move> {
    let (from, wanted) = (Values::read(odb, &now)?, Values::read(odb, &to)?);
    let list = changes(&from, &wanted);
    let mut warnings = Vec::new();
    for (v, when) in [(&from, "now"), (&wanted, "then")] {
        if let Some(why) = &v.about.index {
            warnings.push(format!("the index is left alone: {why} {when}"));
        }
    }
    lock::refuse_links(repo, &list)?;
    lock::refuse_locked(repo, &list)?;
    refs::refuse_elsewhere(repo, &list)?;
    objects::refuse_missing(repo, odb, &wanted)?;
    Ok(Move { from: now, to, changes: list, warnings, conflict: None })
}

/// Where a name of the state is.
fn file_of(repo: &Repo, name: &BStr) -> PathBuf {
    match name.starts_with(b"refs/") {
        true => repo.ref_file(name),
        false if name == STASH_LOG => paths::to_path(&repo.place.common, name),
        false => paths::to_path(&repo.place.git_dir, name),
    }
}

/// Changes the user's repository. `op` names the temporaries, `why` goes into the reflogs.
///
/// # Errors
/// `busy` where git holds a lock, `plan-changed` where something is no longer as it was; what was done by then stays, and
/// is taken back by [`roll_back`].
pub(crate) fn apply(
    repo: &Repo,
    odb: &Odb,
    op: &str,
    why: &str,
    m: &Move,
    control: &Control<'_>,
) -> Result<()> {
    let (from, to) = (Values::read(odb, &m.from)?, Values::read(odb, &m.to)?);
    let steps = Cell::new(0);
    let tick = || {
        steps.set(steps.get() + 1);
        (control.progress)("putting the git state back", steps.get(), 0);
    };
    carry_out(repo, odb, (op, why), &m.changes, (&from, &to), &tick)?;
    let seen = |c: &&Change| !is_at(repo, odb, &c.name, c.to.as_ref()).unwrap_or(false);
    match m.changes.iter().find(seen) {
        None => Ok(()),
        Some(c) => Err(Error::new(Code::Failed, format!("{} is not as it was put", c.name))
            .hint("another git works here: end it and call again")
            .at(file_of(repo, c.name.as_bstr()))),
    }
}

fn carry_out(
    repo: &Repo,
    odb: &Odb,
    (op, why): (&str, &str),
    list: &[Change],
    (from, to): (&Values, &Values),
    tick: &dyn Fn(),
) -> Result<()> {
    objects::bring(repo, odb, to, op)?;
    let mut locks = Locks::new(repo, op, tick);
    // The index and HEAD first: while they are locked no git of this work tree changes anything.
    let of = |name: &str| list.iter().find(|c| c.name == name);
    let index = match of(INDEX) {
        Some(c) => Some(locks.take(&file_of(repo, INDEX.into()), &index_bytes(repo, odb, to, c)?)?),
        None => Some(locks.take(&file_of(repo, INDEX.into()), b"")?),
    };
    let head = match of("HEAD") {
        Some(c) => Some(locks.take(&file_of(repo, "HEAD".into()), &line_of(c.to.as_ref()))?),
        None => None,
    };
    for c in list {
        if !is_at(repo, odb, &c.name, c.from.as_ref())? {
            return Err(Error::new(
                Code::PlanChanged,
                format!("{} of the repository changed just now", c.name),
            )
            .at(file_of(repo, c.name.as_bstr()))
            .hint("look at the new plan with --dry-run"));
        }
    }
    let is_ref = |c: &&Change| c.name.starts_with(b"refs/");
    let gone: Vec<&Change> = list.iter().filter(is_ref).filter(|c| c.to.is_none()).collect();
    refs::delete(repo, &mut locks, &gone)?;
    for c in list.iter().filter(is_ref).filter(|c| c.to.is_some()) {
        refs::update(repo, &mut locks, c, (from, to), why)?;
    }
    for c in list.iter().filter(|c| !c.name.starts_with(b"refs/") && c.name != INDEX && c.name != "HEAD") {
        let file = file_of(repo, c.name.as_bstr());
        match &c.to {
            Some(Value::File(oid)) => {
                let n = locks.take(&file, &odb.blob(oid)?)?;
                locks.put(n)?;
            }
            _ => lock::remove(&file)?,
        }
    }
    for dir in super::read::DIRS {
        // Where nothing is left in it, git takes it for an operation under way.
        let dir = repo.place.git_dir.join(dir);
        if !to.map.keys().any(|k| {
            k.starts_with_str(format!("{}/", paths::bytes(dir.file_name().unwrap_or_default().as_ref())))
        }) {
            let _ = std::fs::remove_dir(&dir);
        }
    }
    if let (Some(n), Some(c)) = (index, of(INDEX)) {
        match c.to {
            Some(_) => locks.put(n)?,
            None => lock::remove(&file_of(repo, INDEX.into()))?,
        }
    }
    refs::log_head(repo, (from, to), of("HEAD").is_some(), why)?;
    if let Some(n) = head {
        locks.put(n)?;
    }
    locks.end()
}

fn line_of(value: Option<&Value>) -> Vec<u8> {
    match value {
        Some(Value::Text(t)) => [t.as_slice(), b"\n"].concat(),
        _ => Vec::new(),
    }
}

fn index_bytes(repo: &Repo, odb: &Odb, to: &Values, c: &Change) -> Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    if c.to.is_none() {
        return Ok(Vec::new());
    }
    let file = file_of(repo, INDEX.into());
    let written = std::fs::metadata(&file).map_or((0, 0), |m| (m.mtime() as u32, m.mtime_nsec() as u32));
    let present = read_file(&file, 1 << 30)?.and_then(|b| index::parse(&b).ok()).unwrap_or_default();
    index::encode(&to.index(odb)?, &present, written)
}

/// The name holds that value now.
fn is_at(repo: &Repo, odb: &Odb, name: &BString, value: Option<&Value>) -> Result<bool> {
    let file = file_of(repo, name.as_bstr());
    if name == "HEAD" {
        return Ok(repo.head().ok().map(Value::Text).as_ref() == value);
    }
    if name.starts_with(b"refs/") {
        return Ok(refs::value(repo, name.as_bstr())?.map(Value::Text).as_ref() == value);
    }
    let bytes = read_file(&file, 1 << 30)?;
    Ok(match (bytes, value) {
        (None, None) => true,
        (Some(bytes), Some(Value::File(oid))) => odb.blob(oid)? == bytes,
        (Some(bytes), Some(Value::Index { tree, flags })) => {
            let Ok(mut now) = index::parse(&bytes) else { return Ok(false) };
            now.iter_mut().for_each(|e| e.stat = [0; 40]);
            now == index::read(odb, tree, flags.as_ref())?
        }
        _ => false,
    })
}

/// Takes back what an operation did to the repository, whole or half way: each name that is as it left it. Returns the
/// names that somebody else changed.
pub(crate) fn roll_back(
    ws: &Workspace,
    odb: &Odb,
    op: &str,
    before: &Oid,
    after: &Oid,
) -> Result<Vec<String>> {
    let repo = match repository(ws) {
        // Somebody removed or converted it since: nothing of it is as the operation left it.
        Err(e) if e.code == Code::GitState => return Ok(vec![".git".to_owned()]),
        repo => repo?,
    };
    let (from, to) = (Values::read(odb, after)?, Values::read(odb, before)?);
    let list = changes(&from, &to);
    let files: Vec<PathBuf> = list.iter().map(|c| file_of(&repo, c.name.as_bstr())).collect();
    lock::sweep(&repo, op, &files)?;
    let (mut back, mut left) = (Vec::new(), Vec::new());
    for c in list {
        if is_at(&repo, odb, &c.name, c.to.as_ref())? {
            continue;
        }
        match is_at(&repo, odb, &c.name, c.from.as_ref())? {
            true => back.push(c),
            false => left.push(format!(".git/{}", c.name)),
        }
    }
    if !back.is_empty() {
        carry_out(&repo, odb, (op, "taken back"), &back, (&from, &to), &|| {})?;
    }
    Ok(left)
}

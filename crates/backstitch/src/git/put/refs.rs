//! Refs as git changes them: loose files, packed-refs, reflogs.

use std::{collections::BTreeSet, fs, io::Write, path::Path};

use backstitch_store::Oid;
use bstr::{BStr, BString, ByteSlice};

use super::{
    Change, Repo, Value, Values, line_of,
    lock::{Locks, remove, sync_dir},
};
use crate::{
    error::{Code, Error, Result},
    git::read::{read_file, tidy},
    paths, record,
};

/// A ref's present value.
pub(super) fn value(repo: &Repo, name: &BStr) -> Result<Option<BString>> {
    if let Some(text) = read_file(&repo.ref_file(name), 4096)? {
        return Ok(Some(tidy(&text)));
    }
    let packed = read_file(&repo.place.common.join("packed-refs"), 256 << 20)?.unwrap_or_default();
    let found = packed.lines().filter_map(|l| l.split_once_str(" ")).find(|(_, n)| *n == name.as_bytes());
    Ok(found.map(|(id, _)| id.into()))
}

/// # Errors
/// `git-state` where another work tree of the repository has a branch checked out that would change.
pub(super) fn refuse_elsewhere(repo: &Repo, list: &[Change]) -> Result<()> {
    let (own, common) = (&repo.place.git_dir, &repo.place.common);
    let mut heads = Vec::new();
    if own.canonicalize().ok() != common.canonicalize().ok() {
        heads.push(common.join("HEAD"));
    }
    if let Ok(others) = fs::read_dir(common.join("worktrees")) {
        let other = |p: &std::path::PathBuf| p.canonicalize().ok() != own.canonicalize().ok();
        heads.extend(others.flatten().map(|e| e.path()).filter(other).map(|p| p.join("HEAD")));
    }
    for file in heads {
        let Some(text) = read_file(&file, 4096)? else { continue };
        let head = tidy(&text);
        let Some(branch) = head.strip_prefix(b"ref: ") else { continue };
        if list.iter().any(|c| c.name == branch) {
            return Err(Error::new(
                Code::GitState,
                format!("{} is checked out in another work tree ({})", branch.as_bstr(), file.display()),
            )
            .at(&file)
            .hint("switch that work tree to another branch first; nothing was changed"));
        }
    }
    Ok(())
}

pub(super) fn log_of(repo: &Repo, name: &BStr) -> std::path::PathBuf {
    let base = if name == "HEAD" { &repo.place.git_dir } else { &repo.place.common };
    paths::to_path(&base.join("logs"), name)
}

fn text(value: Option<&Value>) -> Option<&BString> {
    match value {
        Some(Value::Text(t)) => Some(t),
        _ => None,
    }
}

fn changed(name: &BStr) -> Error {
    Error::new(Code::PlanChanged, format!("{name} of the repository changed just now"))
        .hint("look at the new plan with --dry-run")
}

/// Deletes refs, loose and packed, with their reflogs, as git does.
pub(super) fn delete(repo: &Repo, locks: &mut Locks<'_>, list: &[&Change]) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    let mut taken = Vec::new();
    for c in list {
        taken.push(locks.take(&repo.ref_file(c.name.as_bstr()), b"")?);
        if value(repo, c.name.as_bstr())?.as_ref() != text(c.from.as_ref()) {
            return Err(changed(c.name.as_bstr()));
        }
    }
    let packed = repo.place.common.join("packed-refs");
    let names: BTreeSet<&[u8]> = list.iter().map(|c| c.name.as_slice()).collect();
    if let Some(bytes) = read_file(&packed, 256 << 20)? {
        let mut kept = Vec::with_capacity(bytes.len());
        let (mut dropped, mut any) = (false, false);
        for line in bytes.lines_with_terminator() {
            // A peeled line belongs to the ref before it.
            if !line.starts_with(b"^") {
                let name = line.trim_end().split_once_str(" ").map(|(_, n)| n);
                dropped = !line.starts_with(b"#") && name.is_some_and(|n| names.contains(n));
                any |= dropped;
            }
            if !dropped {
                kept.extend_from_slice(line);
            }
        }
        if any {
            let n = locks.take(&packed, &kept)?;
            locks.put(n)?;
        }
    }
    for (c, n) in list.iter().zip(taken) {
        let file = repo.ref_file(c.name.as_bstr());
        locks.step();
        remove(&file)?;
        remove(&log_of(repo, c.name.as_bstr()))?;
        file.parent().map_or(Ok(()), sync_dir)?;
        locks.free(n)?;
        prune(&repo.place.common.join("refs"), file);
        prune(&repo.place.common.join("logs/refs"), log_of(repo, c.name.as_bstr()));
    }
    Ok(())
}

/// Removes the directories above a file that is gone, as long as they are empty, but `refs/heads` and its like.
fn prune(base: &Path, mut at: std::path::PathBuf) {
    while at.pop() && at.strip_prefix(base).is_ok_and(|rest| rest.components().count() > 1) {
        if fs::remove_dir(&at).is_err() {
            break;
        }
    }
}

/// Sets one ref, with a line in its reflog.
pub(super) fn update(
    repo: &Repo,
    locks: &mut Locks<'_>,
    c: &Change,
    (from, to): (&Values, &Values),
    why: &str,
) -> Result<()> {
    let file = repo.ref_file(c.name.as_bstr());
    // Empty directories of refs that are gone may stand in the way.
    if file.is_dir() {
        clear(&file);
    }
    let n = locks.take(&file, &line_of(c.to.as_ref()))?;
    if value(repo, c.name.as_bstr())?.as_ref() != text(c.from.as_ref()) {
        return Err(changed(c.name.as_bstr()));
    }
    // The stash's reflog is its list, and is put back whole.
    if c.name != "refs/stash" {
        log(repo, c.name.as_bstr(), from.resolve(c.name.as_bstr()), to.resolve(c.name.as_bstr()), why)?;
    }
    locks.put(n)
}

fn clear(dir: &Path) {
    if let Ok(list) = fs::read_dir(dir) {
        list.flatten().filter(|e| e.path().is_dir()).for_each(|e| clear(&e.path()));
    }
    let _ = fs::remove_dir(dir);
}

/// A line in HEAD's reflog, where it comes to another commit or stands for another branch.
pub(super) fn log_head(repo: &Repo, (from, to): (&Values, &Values), switched: bool, why: &str) -> Result<()> {
    let (old, new) = (from.resolve("HEAD".into()), to.resolve("HEAD".into()));
    if !switched && old == new || new.is_none() {
        return Ok(());
    }
    log(repo, "HEAD".into(), old, new, why)
}

fn log(repo: &Repo, name: &BStr, old: Option<Oid>, new: Option<Oid>, why: &str) -> Result<()> {
    let file = log_of(repo, name);
    let wanted = name == "HEAD" || name.starts_with(b"refs/heads/");
    // A repository without logs wants none.
    let logs = wanted && repo.place.common.join("logs").is_dir();
    if !file.is_file() && !logs {
        return Ok(());
    }
    let null = Oid::null(gix_hash::Kind::Sha1);
    let line = format!(
        "{} {} backstitch <backstitch@localhost> {} +0000\tbackstitch: {why}\n",
        old.unwrap_or(null),
        new.unwrap_or(null),
        record::now_ms() / 1000
    );
    if file.is_dir() {
        clear(&file);
    }
    let append = || {
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut f = fs::OpenOptions::new().append(true).create(true).open(&file)?;
        f.write_all(line.as_bytes())?;
        f.sync_all()
    };
    append().map_err(|e| Error::io(&file, e))
}

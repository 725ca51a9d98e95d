//! The objects of a recorded state, for a repository that no longer has them.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
};

use backstitch_store::{MODE_GITLINK, MODE_TREE, Odb, Oid, names, tree_id, zlib};
use bstr::{BStr, ByteSlice};

use super::{Repo, Value, Values, lock::sync_dir};
use crate::error::{Code, Error, Result};

const DEPTH: usize = 2000;

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(Code::StoreDamaged, format!("a recorded git object is not what it should be: {what}"))
}

/// What an object is called while an operation writes it; git collects what has such a name.
pub(super) fn temporary(op: &str) -> String {
    format!("tmp_obj_{op}")
}

/// Ids of the parents in a commit with git's header.
fn parents(bytes: &[u8]) -> Vec<Oid> {
    let Some(body) = bytes.strip_prefix(b"commit ").and_then(|b| Some(&b[b.find_byte(0)? + 1..])) else {
        return Vec::new();
    };
    let head = body.lines().take_while(|l| !l.is_empty());
    head.filter_map(|l| l.strip_prefix(b"parent ")).filter_map(|hex| Oid::from_hex(hex).ok()).collect()
}

/// # Errors
/// `git-state` where something that the state needs is neither kept nor in the repository.
pub(super) fn refuse_missing(repo: &Repo, odb: &Odb, to: &Values) -> Result<()> {
    let kept = to.kept(odb)?;
    let refuse = |what: &BStr, oid: &Oid| {
        Err(Error::new(
            Code::GitState,
            format!("{what} needs the object {oid}, which the repository no longer has and the checkpoint did not keep"),
        )
        .at(&repo.place.common)
        .hint("fetch it from a remote, or leave out --git-state; nothing was changed"))
    };
    for (name, value) in &to.map {
        if let Value::Text(text) = value
            && let Ok(oid) = Oid::from_hex(text)
            && !kept.contains_key(&oid)
            && !repo.has(&oid)
        {
            return refuse(name.as_bstr(), &oid);
        }
    }
    for e in to.index(odb)?.iter().filter(|e| e.mode != MODE_GITLINK) {
        if !odb.contains(&e.oid) && !repo.has(&e.oid) {
            return refuse(format!("the index entry {}", e.path).as_str().into(), &e.oid);
        }
    }
    // The ends of a shallow repository are wherever it says.
    if repo.place.common.join("shallow").exists() {
        return Ok(());
    }
    for (oid, (blob, _)) in &kept {
        for p in parents(&odb.blob(blob)?) {
            if !kept.contains_key(&p) && !repo.has(&p) {
                return refuse(format!("the commit {oid}").as_str().into(), &p);
            }
        }
    }
    Ok(())
}

struct Bring<'a> {
    repo: &'a Repo,
    odb: &'a Odb,
    op: &'a str,
    /// Trees as stored, and their ids in the repository.
    trees: HashMap<Oid, Oid>,
    blobs: HashSet<Oid>,
    dirs: HashSet<std::path::PathBuf>,
}

/// Writes the objects that the repository does not have, as loose objects, durable before anything names them.
pub(super) fn bring(repo: &Repo, odb: &Odb, to: &Values, op: &str) -> Result<()> {
    let mut b = Bring { repo, odb, op, trees: HashMap::new(), blobs: HashSet::new(), dirs: HashSet::new() };
    for e in to.index(odb)?.iter().filter(|e| e.mode != MODE_GITLINK) {
        // Of what could not be kept there is only the name.
        if odb.contains(&e.oid) {
            b.blob(&e.oid)?;
        }
    }
    for (oid, (object, tree)) in to.kept(odb)? {
        if let Some(tree) = tree {
            b.tree(&tree, 0)?;
        }
        if !repo.has(&oid) {
            b.write(&oid, &odb.blob(&object)?)?;
        }
    }
    b.dirs.iter().try_for_each(|d| sync_dir(d))
}

impl Bring<'_> {
    fn blob(&mut self, oid: &Oid) -> Result<()> {
        if self.blobs.insert(*oid) && !self.repo.has(oid) {
            let bytes = self.odb.serialized(oid)?;
            self.write(oid, &bytes)?;
        }
        Ok(())
    }

    fn tree(&mut self, stored: &Oid, depth: usize) -> Result<Oid> {
        if let Some(raw) = self.trees.get(stored) {
            return Ok(*raw);
        }
        if depth > DEPTH {
            return Err(damaged("a tree that is too deep"));
        }
        let mut entries = self.odb.tree(stored)?;
        for e in &mut entries {
            e.name = names::decode(&e.name).ok_or_else(|| damaged("a name"))?.into_owned().into();
            match e.mode {
                MODE_GITLINK => {}
                MODE_TREE => e.oid = self.tree(&e.oid, depth + 1)?,
                _ => self.blob(&e.oid)?,
            }
        }
        let raw = tree_id(&mut entries)?;
        // Readers know the empty tree without its object; git's own check wants it.
        let hex = raw.to_string();
        let loose = self.repo.place.common.join("objects").join(&hex[..2]).join(&hex[2..]);
        if !self.repo.has(&raw) || entries.is_empty() && !loose.exists() {
            let mut body = Vec::new();
            for e in &entries {
                body.extend_from_slice(format!("{:o} ", e.mode).as_bytes());
                body.extend_from_slice(&e.name);
                body.push(0);
                body.extend_from_slice(e.oid.as_slice());
            }
            let bytes = [format!("tree {}\0", body.len()).as_bytes(), &body].concat();
            self.write(&raw, &bytes)?;
        }
        self.trees.insert(*stored, raw);
        Ok(raw)
    }

    fn write(&mut self, oid: &Oid, bytes: &[u8]) -> Result<()> {
        let mut sum = gix_hash::hasher(gix_hash::Kind::Sha1);
        sum.update(bytes);
        if sum.try_finalize().map_err(damaged)? != *oid {
            return Err(damaged(oid));
        }
        let hex = oid.to_string();
        let dir = self.repo.place.common.join("objects").join(&hex[..2]);
        fs::create_dir_all(&dir).map_err(|e| Error::io(&dir, e))?;
        let (file, temp) = (dir.join(&hex[2..]), dir.join(temporary(self.op)));
        let put = || {
            match fs::remove_file(&temp) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut f = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&temp)?;
            f.write_all(&zlib(bytes))?;
            f.set_permissions(fs::Permissions::from_mode(0o444))?;
            f.sync_all()?;
            fs::rename(&temp, &file)
        };
        put().map_err(|e| Error::io(&file, e))?;
        if let Some(up) = dir.parent() {
            self.dirs.insert(up.to_owned());
        }
        self.dirs.insert(dir);
        Ok(())
    }
}

//! Stores of all workspaces: listing, removing, attaching one to a folder that was moved, and noticing that one is gone.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use backstitch_store::Store;
use bstr::ByteSlice;
use serde_json::{Value, json};

use crate::{
    error::{Code, Error, Result},
    paths,
    record::{self, CHECKPOINTS, Checkpoint, Record, rfc3339},
    removal::live_turn,
    settings,
    workspace::{
        Surroundings, Workspace, from_manifest_path, incarnation, manifest_path, store_name, stores,
    },
};

impl Workspace {
    /// Makes the store of `old` the store of this workspace, which was moved here.
    ///
    /// # Errors
    /// `no-such-store`, `wrong-workspace` where the old folder is still there or this one has rows of its own.
    pub fn relink(&mut self, old: &Path) -> Result<()> {
        let old = std::path::absolute(old).map_err(|e| Error::io(old, e))?;
        // The folder may be gone; what stood above it mostly is not. Stores are called by real paths.
        let old = match (old.parent().map(Path::canonicalize), old.file_name()) {
            (Some(Ok(above)), Some(name)) => above.join(name),
            _ => old,
        };
        let real = old.canonicalize();
        let base = &self.surroundings().store_base;
        let dir = base.join("stores").join(store_name(&old));
        if self.has_store() {
            return Err(Error::new(
                Code::WrongWorkspace,
                format!("{} has a store of its own", self.root().display()),
            )
            .at(self.root())
            .hint("`backstitch stores delete` removes it, if its checkpoints are not wanted"));
        }
        // A copy has another inode than the folder that the rows were made of; so has what stands at the old path now.
        if real.as_deref().is_ok_and(|r| r == self.root()) {
            return Err(
                Error::new(Code::WrongWorkspace, format!("{} is this folder", old.display())).at(&old)
            );
        }
        let here = incarnation(self.root())?;
        let recorded_inc = stores(base)
            .into_iter()
            .filter_map(|k| k.manifest.ok())
            .find(|m| from_manifest_path(&m.path) == old);
        let is_this = recorded_inc.is_some_and(|m| {
            (m.dev, m.ino, m.birth_ns) == (here.dev, here.ino, here.birth_ns.map(i128::from))
        });
        if old.is_dir() && !is_this {
            return Err(Error::new(Code::WrongWorkspace, format!("{} is still there", old.display()))
                .at(&old)
                .hint("relink is for a folder that was moved; a copy has a history of its own"));
        }
        let missing = || {
            Error::new(Code::NoSuchStore, format!("there is no store for {}", old.display()))
                .at(&old)
                .hint("`backstitch stores list` shows all")
        };
        if dir.join("manifest.json").symlink_metadata().is_err() {
            return Err(missing());
        }
        let store = Store::open(&dir)?;
        let recorded = from_manifest_path(&store.manifest().path);
        if recorded != old && recorded != self.root() {
            return Err(missing());
        }
        let lock = store.lock_exclusive("workspace", self.lock_wait())?;
        let inc = incarnation(self.root())?;
        let mut m = store.manifest().clone();
        m.path = manifest_path(self.root());
        (m.dev, m.ino, m.birth_ns) = (inc.dev, inc.ino, inc.birth_ns.map(i128::from));
        store.write_manifest(&m)?;
        std::fs::rename(&dir, self.store_dir()).map_err(|e| Error::io(self.store_dir(), e))?;
        forget_known(base, &store_name(&old))?;
        drop(lock);
        let again = Workspace::open(self.root(), self.surroundings().clone())?;
        *self = again;
        self.note_known()
    }
}

/// All stores: `[{"name","dir","workspace","exists","created","last_used","bytes","checkpoints","ok","error"}]`.
pub fn stores_list(surroundings: &Surroundings) -> Result<Vec<Value>> {
    let mut out = Vec::new();
    for k in stores(&surroundings.store_base) {
        let name = k.dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let (mut bytes, mut count, mut error) =
            (Value::Null, Value::Null, k.manifest.as_ref().err().cloned());
        match Store::open(&k.dir) {
            Ok(store) => {
                bytes = store.disk_usage().map(|d| d.total.into()).unwrap_or(Value::Null);
                match store.refs().list(CHECKPOINTS) {
                    Ok(l) => count = l.len().into(),
                    Err(e) => error = error.or(Some(e.to_string())),
                }
            }
            Err(e) => error = error.or(Some(e.to_string())),
        }
        let m = k.manifest.ok();
        let path = m.as_ref().map(|m| from_manifest_path(&m.path));
        out.push(json!({
            "name": name,
            "dir": paths::bytes(&k.dir).to_str_lossy(),
            "workspace": path.as_ref().map(|p| paths::bytes(p).to_str_lossy().into_owned()),
            "exists": path.as_ref().is_some_and(|p| p.is_dir()),
            "created": m.as_ref().map(|m| rfc3339(m.created_ms)),
            "last_used": m.as_ref().map(|m| rfc3339(m.last_used_ms)),
            "bytes": bytes,
            "checkpoints": count,
            "ok": error.is_none(),
            "error": error,
        }));
    }
    Ok(out)
}

/// Removes a store for good. Strict: a plain name, a readable manifest, no live owner and no open turn; `purge` is for
/// half-broken stores and skips the health check only. Returns the bytes freed. A store that vanished meanwhile is no error.
///
/// # Errors
/// `unsafe-path`, `no-such-store`, `store-damaged` (without `purge`), `busy`.
pub fn stores_delete(surroundings: &Surroundings, name: &str, purge: bool) -> Result<u64> {
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if !plain {
        return Err(Error::new(Code::UnsafePath, format!("{name:?} is not the name of a store")).at(name));
    }
    let base = surroundings.store_base.join("stores");
    let dir = base.join(name);
    match dir.symlink_metadata() {
        Ok(m) if m.is_dir() => {}
        Ok(_) => return Err(Error::new(Code::UnsafePath, format!("{} is no folder", dir.display())).at(&dir)),
        Err(_) => {
            return Err(Error::new(Code::NoSuchStore, format!("there is no store {name:?}"))
                .at(&dir)
                .hint("`backstitch stores list` shows all"));
        }
    }
    let mut locks = Vec::new();
    // Nobody uses it, whatever state it is in.
    for l in ["workspace", "store", "collect"] {
        if dir.join("locks").is_dir() {
            locks.push(Store::lock_at(&dir, l, Duration::ZERO)?);
        }
    }
    match Store::open(&dir) {
        Ok(store) => refuse_live(&store, name)?,
        Err(e) if !purge => {
            return Err(
                Error::from(e).hint("`backstitch stores purge` removes a store that cannot be opened")
            );
        }
        Err(_) => {}
    }
    let freed = folder_bytes(&dir);
    // Out of sight first: a half-removed store is never taken for a store.
    let aside = surroundings.store_base.join(format!("removed-{}", record::new_id(record::now_ms())));
    match std::fs::rename(&dir, &aside) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::io(&dir, e)),
    }
    forget_known(&surroundings.store_base, name)?;
    std::fs::remove_dir_all(&aside).map_err(|e| Error::io(&aside, e))?;
    sweep(&surroundings.store_base);
    Ok(freed)
}

/// A session at work in it is not removed from below its feet.
fn refuse_live(store: &Store, name: &str) -> Result<()> {
    let Ok((rows, _)) = store.refs().rows(CHECKPOINTS) else { return Ok(()) };
    let mut of: BTreeMap<String, Vec<Checkpoint>> = BTreeMap::new();
    for row in rows {
        let Ok(record) = Record::parse(&row) else { continue };
        let Some(session) = record.session.clone() else { continue };
        of.entry(session).or_default().push(Checkpoint {
            record: record.into(),
            commit: row.commit,
            tree: row.tree,
        });
    }
    for (session, mut own) in of {
        own.sort_by(|a, b| a.record.order().cmp(&b.record.order()));
        if let Some(turn) = live_turn(&own.iter().collect::<Vec<_>>()) {
            return Err(Error::new(
                Code::Busy,
                format!("turn {turn} of session {session:?} is open in the store {name}"),
            )
            .at(store.dir())
            .hint("`backstitch session end` ends it; nothing was removed"));
        }
    }
    Ok(())
}

/// What an interrupted removal left.
fn sweep(base: &Path) {
    for e in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if e.file_name().to_string_lossy().starts_with("removed-") {
            let _ = std::fs::remove_dir_all(e.path());
        }
    }
}

/// Where it is noted that a store was made, beside the stores themselves.
fn known_file(base: &Path, name: &str) -> PathBuf {
    base.join("known").join(name)
}

fn forget_known(base: &Path, name: &str) -> Result<()> {
    let file = known_file(base, name);
    match std::fs::remove_file(&file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&file, e)),
        _ => Ok(()),
    }
}

impl Workspace {
    /// Notes that there is a store, so that its loss is noticed. Done once.
    pub(crate) fn note_known(&self) -> Result<()> {
        let Some(name) = self.store_dir().file_name() else { return Ok(()) };
        let file = known_file(&self.surroundings().store_base, &name.to_string_lossy());
        if file.exists() {
            return Ok(());
        }
        if let Some(dir) = file.parent() {
            crate::workspace::private_dir(dir)?;
        }
        let made = self.store()?.manifest().created_ms;
        let line = json!({"path": manifest_path(self.root()), "created_ms": made}).to_string();
        settings::write_file(&file, line.as_bytes())
    }

    /// There was a store of this workspace, nobody removed it by name, and it is gone: a sentence that says so.
    pub fn vanished(&self) -> Option<String> {
        let name = self.store_dir().file_name()?.to_string_lossy().into_owned();
        let text = std::fs::read(known_file(&self.surroundings().store_base, &name)).ok()?;
        if self.store_dir().symlink_metadata().is_ok() {
            return None;
        }
        let v: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        let since = v.get("created_ms").and_then(Value::as_i64).map(|ms| format!(", made {},", rfc3339(ms)));
        Some(format!(
            "the store of this folder{} is gone, and its checkpoints with it: {}",
            since.unwrap_or_default(),
            self.store_dir().display()
        ))
    }
}

fn folder_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    let mut stack: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(d) = stack.pop() {
        for e in std::fs::read_dir(&d).into_iter().flatten().flatten() {
            let Ok(m) = e.path().symlink_metadata() else { continue };
            total += m.blocks() * 512;
            if m.is_dir() {
                stack.push(e.path());
            }
        }
    }
    total
}

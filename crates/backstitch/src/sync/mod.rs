//! `sync`: checkpoints through any git remote.
//!
//! What is sent is not the store's rows but copies without what is private ([`filter`]): a parentless commit for each, under
//! the same ref name, with the same id. What arrives is a stranger's: it is fetched into a scratch repository, looked
//! at whole ([`arrive`]), and only then written as rows of this store.
//!
//! A copy depends on nothing but the row and the rules, so what the remote has need not be remembered: it is made again and
//! compared. A row that arrived keeps the words of its copy, from which the copy's commit is made again, so that git knows on
//! both ways what the other side has.

mod arrive;
mod filter;
pub mod secrets;
mod transport;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
};

use backstitch_store::{Durability, Edit, Expect, Manifest, Odb, Oid, Store, Writer};
use bstr::{BString, ByteSlice};
use serde::{Deserialize, Serialize};

use self::{filter::Filter, transport::Transport};
use crate::{
    error::{Code, Error, Result},
    record::{self, CHECKPOINTS, Kind, Record, State},
    session::{self, SESSIONS, SessionRecord},
    workspace::{Control, Rows, Workspace},
};

/// In a record that arrived: from where, and the words that its copy has.
pub(crate) const SYNCED: &str = "synced";
/// In a copy: the store that made the row.
const ORIGIN: &str = "origin";

/// What a row that arrived says of its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Synced {
    /// The store that made it.
    pub origin: String,
    /// The session that it had there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The message of its copy's commit.
    pub message: String,
}

impl Synced {
    pub(crate) fn of(record: &Record) -> Option<Synced> {
        serde_json::from_value(record.extra.get(SYNCED)?.clone()).ok()
    }
}

/// How to synchronise.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What git takes for a remote: a path, an address, or the name of a remote of the folder's repository.
    pub remote: OsString,
    /// Tell what would be done.
    pub dry_run: bool,
    /// Prompts go along.
    pub prompts: bool,
    /// What looks like a secret inside a file goes along.
    pub allow_secrets: bool,
    /// Git may ask a person on the terminal.
    pub may_ask: bool,
}

/// A path and what about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Told {
    /// Path in the workspace.
    pub path: String,
    /// Why: `private`, `ignored`, or what it looks like.
    pub what: String,
}

/// What was sent, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pushed {
    /// Nothing was sent.
    pub dry_run: bool,
    /// Rows that the remote did not have, or had otherwise.
    pub checkpoints: Vec<String>,
    /// Contents that no row on the remote has, and their bytes.
    pub contents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Paths that were left out of them.
    pub left_out: Vec<Told>,
    /// Paths whose content looks like a secret.
    pub secrets: Vec<Told>,
}

/// A session that was continued on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Diverged {
    /// The session.
    pub session: String,
    /// The session, a fork of it, that holds what the other side did.
    pub kept_as: String,
    /// Rows in it that arrived now.
    pub checkpoints: u64,
}

/// A row that was not taken.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// As the remote names it.
    pub checkpoint: String,
    /// Why.
    pub why: String,
}

/// What arrived, or would.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pulled {
    /// Nothing was written.
    pub dry_run: bool,
    /// Rows that were not here.
    pub checkpoints: Vec<String>,
    /// Their sessions, as they are called here.
    pub sessions: Vec<String>,
    /// Sessions that were continued on both sides.
    pub conflicts: Vec<Diverged>,
    /// Rows that are not what a row may be.
    pub refused: Vec<Refused>,
}

/// What this store knows of itself, beside its rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    v: u32,
    /// This store, to other stores.
    origin: String,
    /// Rows that arrived once: whoever deletes one does not want it back.
    #[serde(default)]
    seen: BTreeSet<String>,
}

impl Known {
    fn file(ws: &Workspace) -> PathBuf {
        ws.store_dir().join("sync.json")
    }

    fn read(ws: &Workspace) -> Result<Known> {
        let file = Known::file(ws);
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                Error::new(Code::StoreDamaged, format!("{}: {e}", file.display()))
                    .at(&file)
                    .hint("remove it: rows that were pulled and deleted here come back then")
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Ok(Known { v: 1, origin: record::new_id(record::now_ms()), ..Known::default() })
            }
            Err(e) => Err(Error::io(&file, e)),
        }
    }

    fn write(&self, ws: &Workspace) -> Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = Known::file(ws);
        let temp = file.with_extension("new");
        let write = || {
            let mut f = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temp)?;
            f.write_all(&serde_json::to_vec(self).unwrap_or_default())?;
            f.sync_all()?;
            std::fs::rename(&temp, &file)
        };
        write().map_err(|e| Error::io(&file, e))
    }
}

/// A repository between store and remote. It reads the store's objects and is removed with this value.
struct Scratch {
    store: Store,
    dir: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const HAVE: &str = "refs/backstitch/have/";
const SEND: &str = "refs/backstitch/send/";
const INCOMING: &str = "refs/backstitch/incoming/";

impl Scratch {
    /// # Errors
    /// `io`. The caller holds the lock `sync`, so what lies there is a dead process's.
    fn new(ws: &Workspace) -> Result<Scratch> {
        let dir = ws.store()?.state_dir().join("sync");
        match std::fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&dir, e)),
            _ => {}
        }
        let manifest = Manifest { extra: Default::default(), ..ws.store()?.manifest().clone() };
        let store = Store::create(&dir, &manifest, Durability::None)?;
        let scratch = Scratch { store, dir };
        let info = scratch.git().join("objects/info");
        let objects = ws.store()?.git_dir().join("objects");
        let mut line = objects.as_os_str().as_encoded_bytes().to_vec();
        line.push(b'\n');
        std::fs::create_dir_all(&info)
            .and_then(|()| std::fs::write(info.join("alternates"), line))
            .map_err(|e| Error::io(&info, e))?;
        Ok(scratch)
    }

    fn git(&self) -> PathBuf {
        self.store.git_dir()
    }

    fn point(&self, refs: impl IntoIterator<Item = (String, Oid)>) -> Result<()> {
        let edit = |(name, oid)| Edit { name, expect: Expect::Any, new: Some(oid) };
        let edits: Vec<Edit> = refs.into_iter().map(edit).collect();
        if !edits.is_empty() {
            self.store.refs().apply(&edits)?;
            self.store.refs().pack()?;
        }
        Ok(())
    }

    /// Refs by the last part of their names.
    fn list(&self, prefix: &str) -> Result<BTreeMap<String, Oid>> {
        let (refs, _) = self.store.refs().list_all(prefix)?;
        Ok(refs.into_iter().filter_map(|(n, oid)| Some((n.strip_prefix(prefix)?.to_owned(), oid))).collect())
    }
}

/// The row goes to remotes.
fn is_sent(r: &Record) -> bool {
    r.kind != Kind::Safety && matches!(r.state, State::Complete | State::Partial) && !r.in_flight()
}

/// This store's rows as the remote has them, or will.
struct Copies {
    /// By id: the copy's commit.
    all: BTreeMap<String, Oid>,
    /// Rows that were made elsewhere.
    foreign: HashSet<String>,
    left_out: HashMap<String, Vec<Told>>,
}

impl Workspace {
    /// Sends rows that the remote does not have, without what is private.
    ///
    /// # Errors
    /// `remote` where git fails or is missing; `conflict` where somebody else continued one of the sessions: pull first;
    /// `secrets` where a content looks like one. Nothing is sent then.
    pub fn push(&self, options: &Options, control: &Control<'_>) -> Result<Pushed> {
        let _one = self.store()?.lock_exclusive("sync", self.lock_wait())?;
        let _objects = self.store()?.lock_shared("store", self.lock_wait())?;
        let mut known = Known::read(self)?;
        let rows = self.rows()?;
        let odb = self.odb()?;
        let scratch = Scratch::new(self)?;
        let writer = scratch.store.writer()?;
        let copies = self.copies(&rows, &odb, &writer, &known, options.prompts)?;
        writer.finish()?;
        let transport = Transport::new(self, &scratch.git(), options, control)?;
        let remote = fetch(&scratch, &transport, &copies)?;
        let strange = Strange { odb: scratch.store.odb()?, own: &odb };

        let mut out = Pushed { dry_run: options.dry_run, ..Pushed::default() };
        let send: BTreeMap<&String, Oid> = copies
            .all
            .iter()
            .filter(|(id, oid)| match remote.get(*id) {
                Some(there) => there != *oid && !copies.foreign.contains(*id),
                None => true,
            })
            .map(|(id, oid)| (id, *oid))
            .collect();
        let of = |id: &String| rows.by_id(id).and_then(|c| c.record.session.clone());
        let sessions: BTreeSet<String> = send.keys().filter_map(|id| of(id)).collect();
        for (id, oid) in
            remote.iter().filter(|(id, _)| !copies.all.contains_key(*id) && !known.seen.contains(*id))
        {
            // What cannot be read is told by the pull.
            let Ok(r) = strange.record(id, oid) else { continue };
            if origin(&r) != Some(known.origin.as_str())
                && r.session.as_ref().is_some_and(|s| sessions.contains(s))
            {
                return Err(Error::new(
                    Code::Conflict,
                    format!("session {:?} was continued elsewhere", r.session.as_deref().unwrap_or("")),
                )
                .hint("`backstitch sync pull` first: it keeps both; nothing was sent"));
            }
        }
        let there: Vec<Oid> = remote.values().copied().collect();
        let mut blobs =
            Blobs { odb: &strange, trees: HashSet::new(), seen: HashSet::new(), found: Vec::new() };
        for oid in there.iter().filter(|o| strange.commit(o).is_ok()) {
            blobs.add(oid)?;
        }
        blobs.found.clear();
        for (id, oid) in &send {
            out.checkpoints.push((*id).clone());
            out.left_out.extend(copies.left_out.get(*id).into_iter().flatten().cloned());
            blobs.add(oid)?;
        }
        out.left_out.sort();
        out.left_out.dedup();
        for (path, oid) in &blobs.found {
            let bytes = strange.size(oid)?;
            out.contents += 1;
            out.bytes += bytes;
            if bytes <= secrets::LOOKED_AT
                && let Some(what) = secrets::inside(&strange.blob(oid)?)
            {
                out.secrets.push(Told { path: path.to_str_lossy().into_owned(), what: what.to_owned() });
            }
        }
        out.secrets.sort();
        out.secrets.dedup();
        if options.dry_run {
            return Ok(out);
        }
        if !out.secrets.is_empty() && !options.allow_secrets {
            let list: Vec<String> = out.secrets.iter().map(|s| format!("{} ({})", s.path, s.what)).collect();
            return Err(Error::new(Code::Secrets, format!("{} looks like a secret", list.join(", ")))
                .list(list)
                .hint("`sync.private` leaves paths out, --allow-secrets sends them; nothing was sent"));
        }
        scratch.point(send.iter().map(|(id, oid)| (format!("{SEND}{id}"), *oid)))?;
        let mut words = Vec::new();
        if !send.is_empty() {
            words.push(format!("+{SEND}*:{CHECKPOINTS}*"));
        }
        let forks = self.forks(&rows, &sessions, &scratch)?;
        if forks > 0 {
            words.push(format!("{SESSIONS}*:{SESSIONS}*"));
        }
        if !words.is_empty() {
            transport.push(&words)?;
        }
        // What is deleted here later does not come back with a pull.
        known.seen.extend(send.keys().map(|id| (*id).clone()));
        known.write(self)?;
        Ok(out)
    }

    /// Takes rows that are not here, as far as they are what rows may be.
    ///
    /// # Errors
    /// `remote` where git fails or is missing. Rows that are refused are no error: they are listed.
    pub fn pull(&mut self, options: &Options, control: &Control<'_>) -> Result<Pulled> {
        self.create_store()?;
        self.ensure_room(control)?;
        let ws = &*self;
        let _one = ws.store()?.lock_exclusive("sync", ws.lock_wait())?;
        let objects = ws.store()?.lock_shared("store", ws.lock_wait())?;
        let mut known = Known::read(ws)?;
        let rows = ws.rows()?;
        let odb = ws.odb()?;
        let scratch = Scratch::new(ws)?;
        let writer = scratch.store.writer()?;
        let copies = ws.copies(&rows, &odb, &writer, &known, options.prompts)?;
        writer.finish()?;
        let transport = Transport::new(ws, &scratch.git(), options, control)?;
        let remote = fetch(&scratch, &transport, &copies)?;
        let strange = Strange { odb: scratch.store.odb()?, own: &odb };
        // Locks are taken in their order. What is collected between is missed below, and pulled the next time.
        drop(objects);
        let lock = ws.lock_capture()?;
        let rows = ws.rows()?;
        let new = remote.iter().filter(|(id, _)| rows.by_id(id).is_none() && !known.seen.contains(*id));
        let new: Vec<(&String, &Oid)> = new.collect();
        let mut out = arrive::take(ws, &strange, &rows, &known, &new, options.dry_run, control, &lock)?;
        out.dry_run = options.dry_run;
        if !options.dry_run {
            let forks = scratch.list("refs/backstitch/incoming-sessions/")?;
            arrive::forks(ws, &strange, &forks)?;
            let refused: HashSet<&str> = out.refused.iter().map(|r| r.checkpoint.as_str()).collect();
            // What is refused is looked at again: a later version may take it.
            known.seen = remote.keys().filter(|id| !refused.contains(id.as_str())).cloned().collect();
            known.write(ws)?;
        }
        Ok(out)
    }

    /// The copies of all rows, in `writer`.
    fn copies(
        &self,
        rows: &Rows,
        odb: &Odb,
        writer: &Writer,
        known: &Known,
        prompts: bool,
    ) -> Result<Copies> {
        let mut s = writer.scratch();
        let mut filter = Filter::new(self, odb, writer, &known.origin, prompts)?;
        let mut out = Copies { all: BTreeMap::new(), foreign: HashSet::new(), left_out: HashMap::new() };
        for c in rows.all.iter().filter(|c| is_sent(&c.record)) {
            let id = c.record.id.clone();
            if let Some(from) = Synced::of(&c.record) {
                let time = c.record.created_ms.div_euclid(1000);
                let oid = writer.commit(&mut s, &c.tree, from.message.as_bytes(), time)?;
                out.all.insert(id.clone(), oid);
                out.foreign.insert(id);
                continue;
            }
            let (oid, left_out) = filter.copy(&mut s, c)?;
            out.all.insert(id.clone(), oid);
            out.left_out.insert(id, left_out);
        }
        Ok(out)
    }

    /// Puts the records of forked sessions into the scratch repository; says how many.
    fn forks(&self, rows: &Rows, sessions: &BTreeSet<String>, scratch: &Scratch) -> Result<usize> {
        let there = scratch.list("refs/backstitch/incoming-sessions/")?;
        let writer = scratch.store.writer()?;
        let mut s = writer.scratch();
        let mut refs = Vec::new();
        let (tree, _) = writer.tree(&mut s, &mut Vec::new())?;
        for (id, r) in rows.sessions.iter().filter(|(id, r)| sessions.contains(*id) && r.parent.is_some()) {
            let name = session::session_ref(id);
            if there.contains_key(name.strip_prefix(SESSIONS).unwrap_or(&name)) {
                continue;
            }
            let bare = SessionRecord { extra: Default::default(), ended: false, ..r.clone() };
            let message = record::encode(&format!("session {id}"), &bare);
            refs.push((name, writer.commit(&mut s, &tree, &message, r.created_ms.div_euclid(1000))?));
        }
        writer.finish()?;
        let n = refs.len();
        scratch.point(refs)?;
        Ok(n)
    }
}

fn fetch(scratch: &Scratch, transport: &Transport<'_>, copies: &Copies) -> Result<BTreeMap<String, Oid>> {
    scratch.point(copies.all.iter().map(|(id, oid)| (format!("{HAVE}{id}"), *oid)))?;
    transport.fetch(&[
        format!("+{CHECKPOINTS}*:{INCOMING}*"),
        format!("+{SESSIONS}*:refs/backstitch/incoming-sessions/*"),
    ])?;
    scratch.list(INCOMING)
}

fn origin(r: &Record) -> Option<&str> {
    r.extra.get(ORIGIN).and_then(serde_json::Value::as_str)
}

/// Objects of the scratch repository, and where it does not have them those of the store.
struct Strange<'a> {
    odb: Odb,
    own: &'a Odb,
}

impl Strange<'_> {
    fn either<T>(&self, read: impl Fn(&Odb) -> std::result::Result<T, backstitch_store::Error>) -> Result<T> {
        match read(self.own) {
            Ok(v) => Ok(v),
            Err(_) => Ok(read(&self.odb)?),
        }
    }

    fn commit(&self, oid: &Oid) -> Result<(Oid, BString)> {
        self.either(|o| o.commit(oid))
    }

    fn tree(&self, oid: &Oid) -> Result<Vec<backstitch_store::TreeEntry>> {
        self.either(|o| o.tree(oid))
    }

    fn blob(&self, oid: &Oid) -> Result<Vec<u8>> {
        self.either(|o| o.blob(oid))
    }

    fn size(&self, oid: &Oid) -> Result<u64> {
        self.either(|o| o.size(oid))
    }

    fn record(&self, id: &str, oid: &Oid) -> Result<Record> {
        let (_, message) = self.commit(oid)?;
        let record: Record = record::decode(message.as_bstr(), id)?;
        record::check_id(&record.id, id)?;
        Ok(record)
    }
}

/// Collects the contents of commits, each once, with the first path that holds it.
struct Blobs<'a> {
    odb: &'a Strange<'a>,
    trees: HashSet<Oid>,
    seen: HashSet<Oid>,
    found: Vec<(BString, Oid)>,
}

impl Blobs<'_> {
    fn add(&mut self, commit: &Oid) -> Result<()> {
        let (tree, _) = self.odb.commit(commit)?;
        for e in self.odb.tree(&tree)?.into_iter().filter(|e| e.name == "files") {
            self.below(&e.oid, BString::default(), 0)?;
        }
        Ok(())
    }

    fn below(&mut self, tree: &Oid, base: BString, depth: usize) -> Result<()> {
        if depth > arrive::DEPTH || !self.trees.insert(*tree) {
            return Ok(());
        }
        for e in self.odb.tree(tree)? {
            let name = backstitch_store::names::decode(&e.name).unwrap_or_else(|| e.name.as_slice().into());
            let path = crate::paths::join(base.as_bstr(), &name);
            if e.mode == backstitch_store::MODE_TREE {
                self.below(&e.oid, path, depth + 1)?;
            } else if self.seen.insert(e.oid) {
                self.found.push((path, e.oid));
            }
        }
        Ok(())
    }
}

/// The store that a row came from, where it came from another.
pub(crate) fn origin_of(r: &Record) -> Option<String> {
    Synced::of(r).map(|s| s.origin)
}

/// What a remote is called: a path becomes absolute, since git runs elsewhere.
pub fn remote(folder: &Path, word: &OsString) -> OsString {
    let here = folder.join(word);
    match here.exists() {
        true => std::path::absolute(&here).unwrap_or(here).into_os_string(),
        false => word.clone(),
    }
}

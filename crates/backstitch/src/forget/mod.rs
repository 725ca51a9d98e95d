//! `forget`: a path and its bytes leave every row, every operation, the trash and the store's files (SEMANTICS 34).
//!
//! Order: what is to be forgotten is noted durably (`journal/forget.json`), then every row and operation that holds the
//! path is written anew without it and all refs move, then what no ref needs any longer is removed from packs and loose
//! files with all caches, then the store is searched for the bytes, then the note goes. A kill after any step is finished
//! by repeating the call: rows that are done hold the path no more, and the note still says which bytes are to go.
//!
//! A row does not take what it no longer holds for absent: the path is listed as left out (`forgotten`), so that going
//! back to it leaves alone what stands there.

mod rewrite;
mod search;
mod survey;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use backstitch_store::{Care, Odb, Oid};
use bstr::{BString, ByteSlice};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    error::{Code, Error, Result},
    paths, settings, view,
    workspace::{Control, Workspace},
};

/// Why an item of an operation, or a path of a row, is no longer known.
pub const FORGOTTEN: &str = "forgotten";

/// What to forget.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Relative to the root, or absolute for files elsewhere; each with all below it.
    pub paths: Vec<BString>,
    /// Tell, and change nothing.
    pub dry_run: bool,
}

/// Something that still holds the bytes, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// `other-path`, `inside`, `record`, `row`, `file`, `repository`, `short`, `elsewhere`.
    pub what: &'static str,
    /// The path, in the workspace or of a file.
    pub path: Option<BString>,
    /// For people.
    pub detail: String,
    /// Rows and operations.
    pub rows: Vec<String>,
}

/// What was forgotten, or would be.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A preview.
    pub dry_run: bool,
    /// Paths.
    pub paths: Vec<BString>,
    /// Rows that were written anew, those in the trash included.
    pub rows: Vec<String>,
    /// Operations that were written anew: undoing them leaves the path alone.
    pub operations: Vec<String>,
    /// Different contents that go.
    pub contents: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Paths that still stand in the folder: the next row records them again.
    pub present: Vec<BString>,
    /// What it cannot reach.
    pub unreached: Vec<Unreached>,
    /// An earlier call was interrupted, and this one finished it.
    pub resumed: bool,
}

impl Outcome {
    /// Nothing in the store holds the bytes any longer.
    pub fn is_clean(&self) -> bool {
        self.unreached.iter().all(|u| matches!(u.what, "repository" | "elsewhere" | "short"))
    }

    /// The JSON shape.
    pub fn json(&self) -> Value {
        let put = |m: &mut Map<String, Value>, p: &BString| view::put_path(m, "path", p.as_bstr());
        let list = |l: &[BString]| -> Vec<Value> {
            l.iter()
                .map(|p| {
                    let mut m = Map::new();
                    put(&mut m, p);
                    Value::Object(m)
                })
                .collect()
        };
        let unreached: Vec<Value> = self
            .unreached
            .iter()
            .map(|u| {
                let mut m = Map::new();
                m.insert("what".to_owned(), u.what.into());
                match &u.path {
                    Some(p) => put(&mut m, p),
                    None => {
                        m.insert("path".to_owned(), Value::Null);
                    }
                }
                m.insert("detail".to_owned(), u.detail.clone().into());
                m.insert("checkpoints".to_owned(), u.rows.clone().into());
                Value::Object(m)
            })
            .collect();
        json!({
            "dry_run": self.dry_run,
            "paths": list(&self.paths),
            "checkpoints": self.rows,
            "operations": self.operations,
            "contents": self.contents,
            "bytes": self.bytes,
            "present": list(&self.present),
            "unreached": unreached,
            "clean": self.is_clean(),
            "resumed": self.resumed,
        })
    }
}

/// The note of a call under way: durable before the first row changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Note {
    /// Escaped.
    paths: BTreeSet<String>,
    /// Contents that are to go.
    contents: BTreeSet<String>,
}

impl Note {
    fn file(ws: &Workspace) -> Result<PathBuf> {
        Ok(ws.store()?.journal_dir().join("forget.json"))
    }

    fn read(ws: &Workspace) -> Result<Option<Note>> {
        let file = Note::file(ws)?;
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| {
                Error::new(Code::StoreDamaged, format!("{}: {e}", file.display()))
                    .at(&file)
                    .hint("remove the file and forget the same paths again")
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&file, e)),
        }
    }

    fn ids(&self) -> impl Iterator<Item = Oid> {
        self.contents.iter().filter_map(|c| Oid::from_hex(c.as_bytes()).ok())
    }
}

impl Workspace {
    /// A call to [`Workspace::forget`] that did not come to its end: its paths.
    pub fn unfinished_forget(&self) -> Option<Vec<BString>> {
        let note = Note::read(self).ok()??;
        Some(note.paths.iter().filter_map(|p| paths::unescape(p.as_bytes())).collect())
    }

    /// Removes paths from every row, operation and trash, and their bytes from the store. Cannot be undone. Files in the
    /// folder stay as they are. Nothing is recorded meanwhile.
    ///
    /// # Errors
    /// `no-such-path` where no row or operation holds any of them; `busy`; `store-damaged` where what is needed cannot be
    /// told. After an error, or a kill, the same call goes on where it was.
    pub fn forget(&self, options: &Options, control: &Control<'_>) -> Result<Outcome> {
        let lock = self.lock_operation()?;
        let odb = self.odb()?;
        let earlier = Note::read(self)?;
        let mut paths: BTreeSet<BString> = options.paths.iter().cloned().collect();
        if let Some(note) = &earlier {
            paths.extend(note.paths.iter().filter_map(|p| paths::unescape(p.as_bytes())));
        }
        if paths.is_empty() || paths.iter().any(|p| p.is_empty() || p == "/") {
            return Err(Error::new(Code::Usage, "the whole folder cannot be forgotten path by path")
                .hint("`backstitch stores purge` removes all that is recorded of it"));
        }
        let paths: Vec<BString> = paths.into_iter().collect();
        let survey = survey::Survey::take(self, &odb, &paths, control)?;
        if survey.refs.is_empty() && earlier.is_none() {
            return Err(Error::new(
                Code::NoSuchPath,
                format!("no checkpoint or operation holds {}", paths[0].to_str_lossy()),
            )
            .at_bytes(paths[0].clone())
            .hint("paths are relative to the current folder; nothing was changed"));
        }
        let mut doomed: BTreeSet<Oid> = survey.contents.clone();
        doomed.extend(earlier.iter().flat_map(Note::ids));
        let going: BTreeSet<Oid> =
            doomed.iter().copied().filter(|o| !survey.elsewhere.contains_key(o)).collect();
        let mut out = Outcome {
            dry_run: options.dry_run,
            rows: survey.ids(false),
            operations: survey.ids(true),
            contents: going.len() as u64,
            present: paths
                .iter()
                .filter(|p| paths::to_path(self.root(), p.as_bstr()).symlink_metadata().is_ok())
                .cloned()
                .collect(),
            resumed: earlier.is_some(),
            ..Outcome::default()
        };
        let sizes = self.store()?.object_sizes()?;
        out.bytes = going.iter().filter_map(|o| sizes.get(o)).sum();
        out.unreached.extend(survey.unreadable.iter().cloned());
        out.unreached.extend(elsewhere(&doomed, &survey));
        out.unreached.extend(self.in_repository(&doomed));
        out.unreached.push(Unreached {
            what: "elsewhere",
            path: None,
            detail:
                "exports, bundles, remotes and copies of the store that were made before are not known here"
                    .to_owned(),
            rows: Vec::new(),
        });
        out.paths = paths.clone();
        if options.dry_run {
            return Ok(out);
        }
        // Read while they can be: what the search looks for.
        let needles = search::Needles::of(&odb, &doomed);
        self.write_note(&paths, &doomed)?;
        let edits = rewrite::rewrite(self, &odb, &survey.refs, &paths)?;
        self.store()?.refs().apply(&edits)?;
        let alone = lock.without_store();
        self.erase(&going, control, &mut out)?;
        search::search(self, &needles, &survey, control, &mut out)?;
        drop(alone);
        let file = Note::file(self)?;
        std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
        Ok(out)
    }

    fn write_note(&self, paths: &[BString], doomed: &BTreeSet<Oid>) -> Result<()> {
        let note = Note {
            paths: paths.iter().map(|p| paths::escape(p)).collect(),
            contents: doomed.iter().map(Oid::to_string).collect(),
        };
        let file = Note::file(self)?;
        settings::write_file(&file, &serde_json::to_vec(&note).unwrap_or_default())?;
        let dir = file.parent().unwrap_or(&file);
        std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| Error::io(dir, e))
    }

    /// What no ref needs leaves packs, loose files, caches and parked copies.
    fn erase(&self, going: &BTreeSet<Oid>, control: &Control<'_>, out: &mut Outcome) -> Result<()> {
        let store = self.store()?;
        let progress = |done: u64, total: u64| (control.progress)("erasing", done, total);
        let care = Care { interrupt: control.interrupt, progress: &progress, ..Care::default() };
        let again = |e: backstitch_store::Error| {
            Error::from(e).hint("the paths left every checkpoint; call forget again to remove their bytes")
        };
        // The trees and records of before go first: they name what goes then.
        let first = store.collect(std::time::Duration::ZERO, &[], &care).map_err(again)?;
        let ids: Vec<Oid> = going.iter().copied().collect();
        let second = store.expunge(&ids, &care).map_err(again)?;
        for (path, why) in first.left.into_iter().chain(second.left) {
            out.unreached.push(Unreached {
                what: "file",
                path: Some(paths::bytes(&path).into()),
                detail: format!("could not be written anew: {why}"),
                rows: Vec::new(),
            });
        }
        for file in files_below(&store.parked_dir()) {
            let Ok(bytes) = std::fs::read(&file) else { continue };
            let id = settings::digest(&[format!("blob {}\0", bytes.len()).as_bytes(), &bytes].concat());
            if Oid::from_hex(id.as_bytes()).is_ok_and(|o| going.contains(&o)) {
                std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
            }
        }
        Ok(())
    }

    /// Contents that the folder's own git repository holds under the same ids.
    fn in_repository(&self, doomed: &BTreeSet<Oid>) -> Option<Unreached> {
        let objects = self.rules().ok()?.git_objects().filter(|o| o.is_dir())?;
        let odb = Odb::of_repository(&objects);
        let held = doomed.iter().filter(|o| odb.contains(o)).count();
        (held > 0).then(|| Unreached {
            what: "repository",
            path: Some(paths::bytes(&objects).into()),
            detail: format!(
                "the folder's own git repository holds {held} of the contents; it is never written"
            ),
            rows: Vec::new(),
        })
    }
}

/// The same content at paths that were not named.
fn elsewhere(doomed: &BTreeSet<Oid>, survey: &survey::Survey) -> Vec<Unreached> {
    let mut by_path: BTreeMap<&BString, BTreeSet<&str>> = BTreeMap::new();
    for oid in doomed {
        for (path, row) in survey.elsewhere.get(oid).into_iter().flatten() {
            by_path.entry(path).or_default().insert(row);
        }
    }
    by_path
        .into_iter()
        .map(|(path, rows)| Unreached {
            what: "other-path",
            path: Some(path.clone()),
            detail: "holds the same content; forget it too to remove the bytes".to_owned(),
            rows: rows.into_iter().map(str::to_owned).collect(),
        })
        .collect()
}

/// Every ordinary file below a directory, in no order.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(d) = todo.pop() {
        for e in std::fs::read_dir(&d).into_iter().flatten().flatten() {
            match e.file_type() {
                Ok(t) if t.is_dir() => todo.push(e.path()),
                Ok(t) if t.is_file() => out.push(e.path()),
                _ => {}
            }
        }
    }
    out
}

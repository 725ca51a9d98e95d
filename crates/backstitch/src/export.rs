//! Any checkpoint as a folder, an archive, a patch or a git bundle.

use std::{collections::HashSet, io::Write, path::Path, sync::atomic::Ordering};

use backstitch_store::TreeEntry;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    diff::{self, Options as DiffOptions},
    error::{Code, Error, Result},
    operation, paths,
    place::{self, Place, Syncs},
    plan::{Item, Progress, Stand},
    record::{CHECKPOINTS, Checkpoint},
    tree::{self, Entry, Node, Root},
    workspace::{Control, Workspace},
};

impl Workspace {
    fn entries(&self, c: &Checkpoint) -> Result<Vec<(BString, Entry)>> {
        let _lock = self.store()?.lock_shared("store", self.lock_wait())?;
        let odb = self.odb()?;
        let root = Root::read(&odb, &c.tree)?;
        let mut all = Vec::new();
        tree::walk(&odb, root.files, &mut |p, e| {
            all.push((p.to_owned(), e.clone()));
            Ok(())
        })?;
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Writes the row as a folder, which must be empty or absent. Returns the number of files and links.
    ///
    /// # Errors
    /// `conflict` where the folder holds anything; `io`, and what was written is taken away again.
    pub fn export_dir(&self, c: &Checkpoint, dir: &Path, control: &Control<'_>) -> Result<u64> {
        match std::fs::read_dir(dir) {
            Ok(mut d) => {
                if d.next().is_some() {
                    return Err(Error::new(Code::Conflict, format!("{} is not empty", dir.display()))
                        .at(dir)
                        .hint("name a folder that does not exist yet; nothing was written"));
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, e))?;
            }
            Err(e) => return Err(Error::io(dir, e)),
        }
        let mut place = Place::open(dir, self.odb()?, &c.record.id, self.owner())?;
        place.syncs = Syncs::AtEnd;
        let mut items: Vec<Item> = self
            .entries(c)?
            .into_iter()
            .filter_map(|(path, e)| {
                Item::transition(path, None, Some(Stand { node: e.node, attrs: e.attrs }))
            })
            .collect();
        // What was begun in a new folder is not for us to remove: somebody may have put something there meanwhile.
        let partly = |mut e: Error| {
            e.path.get_or_insert_with(|| paths::bytes(dir).to_owned());
            e.hint(format!("{} holds a part of it: remove it before you export there again", dir.display()))
        };
        operation::apply(&mut place, &mut items, &[], self.threads(), control).map_err(partly)?;
        place.sync_all()?;
        if let Some(i) = items.iter().find(|i| i.result != Progress::Done) {
            return Err(Error::new(
                Code::Io,
                format!(
                    "{}: could not be written: {}",
                    i.path.to_str_lossy(),
                    i.reason.as_deref().unwrap_or("unknown")
                ),
            )
            .at_bytes(i.path.clone()));
        }
        Ok(items.iter().filter(|i| !i.becomes_dir()).count() as u64)
    }

    /// Writes a tar archive with exact modes and link texts.
    pub fn export_tar(&self, c: &Checkpoint, out: &mut dyn Write, control: &Control<'_>) -> Result<u64> {
        let odb = self.odb()?;
        let err = |e| Error::io(Path::new("the archive"), e);
        let mut tar = tar::Builder::new(out);
        let mut n = 0;
        let (uid, gid) = self.owner();
        let entries = self.entries(c)?;
        let total = entries.len() as u64;
        for (done, (path, e)) in (0..).zip(entries) {
            (control.progress)("writing", done, total);
            if control.interrupt.load(Ordering::Relaxed) {
                return Err(Error::new(Code::Interrupted, "interrupted; no archive was made")
                    .hint("call it again: it begins anew"));
            }
            let mut h = tar::Header::new_gnu();
            h.set_mtime(u64::try_from(c.record.created_ms.div_euclid(1000)).unwrap_or(0));
            let (u, g) = e.attrs.owner.unwrap_or((uid, gid));
            h.set_uid(u.into());
            h.set_gid(g.into());
            let name = paths::to_path(Path::new(""), path.as_bstr());
            match e.node {
                Node::Dir { mode } => {
                    h.set_entry_type(tar::EntryType::Directory);
                    h.set_mode(mode);
                    h.set_size(0);
                    tar.append_data(&mut h, name, std::io::empty()).map_err(err)?;
                }
                Node::File { oid, mode } => {
                    let bytes = odb.blob(&oid)?;
                    h.set_entry_type(tar::EntryType::Regular);
                    h.set_mode(mode);
                    h.set_size(bytes.len() as u64);
                    tar.append_data(&mut h, name, bytes.as_slice()).map_err(err)?;
                    n += 1;
                }
                Node::Link { oid } => {
                    let text = odb.blob(&oid)?;
                    h.set_entry_type(tar::EntryType::Symlink);
                    h.set_mode(0o777);
                    h.set_size(0);
                    tar.append_link(&mut h, name, paths::to_path(Path::new(""), BStr::new(&text)))
                        .map_err(err)?;
                    n += 1;
                }
            }
        }
        tar.finish().map_err(err)?;
        Ok(n)
    }

    /// Writes what the row changed against its parent (against nothing for a first row) as a patch for `git apply`.
    /// Returns the number of changed paths, and those whose change git cannot say: empty directories, permission bits
    /// other than the owner's x, and files outside the workspace.
    pub fn export_patch(
        &self,
        c: &Checkpoint,
        out: &mut dyn Write,
        _control: &Control<'_>,
    ) -> Result<(u64, Vec<BString>)> {
        let rows = self.rows()?;
        let parent = c.record.parent.as_deref().and_then(|p| rows.by_id(p));
        let d = diff::against(
            &self.odb()?,
            &rows,
            parent,
            c,
            &DiffOptions { patch: true, binary: true, ..DiffOptions::default() },
        )?;
        out.write_all(d.patch.as_deref().unwrap_or_default())
            .map_err(|e| Error::io(Path::new("the patch"), e))?;
        Ok((d.changes.len() as u64, d.unsaid))
    }

    /// Writes a git bundle (version 2) that holds the row's commit under its ref, with everything that it needs.
    /// Returns the number of contents.
    pub fn export_bundle(&self, c: &Checkpoint, out: &mut dyn Write, control: &Control<'_>) -> Result<u64> {
        let _lock = self.store()?.lock_shared("store", self.lock_wait())?;
        let odb = self.odb()?;
        let (mut seen, mut n) = (HashSet::from([c.commit, c.tree]), 0);
        let (mut list, mut trees) = (vec![c.commit, c.tree], vec![c.tree]);
        while let Some(tree) = trees.pop() {
            for TreeEntry { mode, oid, .. } in odb.tree(&tree)? {
                if !seen.insert(oid) {
                    continue;
                }
                list.push(oid);
                match mode {
                    backstitch_store::MODE_TREE => trees.push(oid),
                    _ => n += 1,
                }
            }
        }
        let io = |e| Error::io(Path::new("the bundle"), e);
        write!(out, "# v2 git bundle\n{0} HEAD\n{0} {CHECKPOINTS}{1}\n\n", c.commit, c.record.id)
            .map_err(io)?;
        let total = list.len() as u64;
        odb.write_pack(&list, out, &mut |done| {
            (control.progress)("writing", done, total);
            !control.interrupt.load(Ordering::Relaxed)
        })?;
        Ok(n)
    }

    /// Compares a folder with a row path by path; the paths that differ.
    pub(crate) fn compare_dir(&self, c: &Checkpoint, dir: &Path) -> Result<Vec<String>> {
        let mut place = Place::open(dir, self.odb()?, &c.record.id, self.owner())?;
        let mut differ = Vec::new();
        for (path, e) in self.entries(c)? {
            let found = place.inspect(path.as_bstr())?;
            let mut want = Stand { node: e.node, attrs: e.attrs };
            match &mut want.node {
                Node::File { mode, .. } | Node::Dir { mode } => *mode = place.allowed_mode(*mode, None),
                Node::Link { .. } => {}
            }
            if !place::matches(&found, Some(&want)) {
                differ.push(path.to_str_lossy().into_owned());
            }
        }
        Ok(differ)
    }
}

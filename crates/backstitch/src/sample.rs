//! `verify --worktree`: does the folder hold what its times and sizes say?

use bstr::{BString, ByteSlice};
use serde_json::{Value, json};

use backstitch_scan::FoundWhat;
use backstitch_store::Oid;

use crate::{
    capture::Room,
    error::Result,
    live, paths, record, restore, tree,
    workspace::{Control, Workspace},
};

/// So many files are read at most,
const FILES: usize = 1000;
/// and so many bytes.
const BYTES: u64 = 256 << 20;

/// Files by path with their contents.
type Believed = Vec<(BString, Oid)>;

impl Workspace {
    /// Reads up to 1,000 files (256 MiB) of the folder, others each time, and compares them with what a capture would
    /// believe without reading. Nothing is recorded.
    ///
    /// The document: `read`, and `differ`, a list of paths. One differs where a file was changed and its size, inode,
    /// mtime and ctime were not: a clock that was set back, a device that was written to directly.
    pub fn sample(&self, control: &Control<'_>) -> Result<Value> {
        let before = self.believed(control)?;
        let (mut read, mut differ) = (0, Vec::new());
        if let Some((live, files)) = &before {
            // A stride through all of them, from a point that moves on.
            let step = files.len().div_ceil(FILES).max(1);
            let first = record::now_ms().unsigned_abs() % step as u64;
            let mut left = BYTES;
            let mut chosen = files.iter().skip(first as usize).step_by(step).collect::<Vec<_>>();
            chosen.retain(|(_, oid)| {
                let size = live.writer.odb().size(oid).unwrap_or(0);
                let fits = size <= left;
                left -= if fits { size } else { 0 };
                fits
            });
            let names: Vec<BString> = chosen.iter().map(|(p, _)| p.clone()).collect();
            let found = restore::look_at(self, &names, live, control)?;
            read = found.len();
            differ = chosen
                .into_iter()
                .zip(found)
                .filter(|((_, oid), f)| matches!(&f.what, FoundWhat::Leaf { id, .. } if id != oid))
                .map(|((p, oid), _)| (p.clone(), *oid))
                .collect();
        }
        // What was written to meanwhile is not believed any longer.
        if !differ.is_empty() {
            let after = self.believed(control)?.map(|(_, files)| files).unwrap_or_default();
            differ.retain(|d| after.binary_search(d).is_ok());
        }
        let differ: Vec<_> = differ.iter().map(|(p, _)| paths::JsonPath::from(p.as_bstr())).collect();
        Ok(json!({"read": read, "differ": differ}))
    }

    /// The contents that a capture would take for those of the files; `None` where the folder is too wide.
    fn believed(&self, control: &Control<'_>) -> Result<Option<(live::Live, Believed)>> {
        let Some(live) = live::scan_all(self, true, Room::unlimited(), control)? else { return Ok(None) };
        let mut files = Vec::new();
        tree::walk(live.writer.odb(), live.files, &mut |path, e| {
            if let tree::Node::File { oid, .. } = &e.node {
                files.push((path.to_owned(), *oid));
            }
            Ok(())
        })?;
        files.sort_unstable();
        Ok(Some((live, files)))
    }
}

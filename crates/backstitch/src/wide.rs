//! Folders too wide to be covered whole, and what lies in them.

use std::{
    collections::VecDeque,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bstr::{BString, ByteSlice};
use serde_json::{Value, json};

use crate::{
    paths,
    workspace::{Rows, Workspace},
};

/// How the note ends of a row that looked at nothing because its folder is too wide.
pub(crate) const NARROWED: &str = "only named files are recorded";

/// Entries that a look at sizes may list.
const MOST: usize = 20_000;

/// How much lies below a path.
struct Size {
    path: BString,
    bytes: u64,
    /// All of it was counted.
    whole: bool,
}

/// Sizes by a look at no more than [`MOST`] entries, dealt out evenly: the answer takes as long in a home of any size.
fn sizes(root: &Path, tops: Vec<BString>, never: &[(u64, u64)]) -> Vec<Size> {
    let mut left = MOST;
    let mut out: Vec<(Size, VecDeque<PathBuf>)> = tops
        .into_iter()
        .map(|path| {
            let first = paths::to_path(root, path.as_bstr());
            (Size { path, bytes: 0, whole: false }, VecDeque::from([first]))
        })
        .collect();
    let mut going = true;
    while going && left > 0 {
        going = false;
        for (size, queue) in &mut out {
            let Some(at) = queue.pop_front() else { continue };
            going = true;
            let Ok(m) = at.symlink_metadata() else { continue };
            size.bytes += m.len().min(m.blocks().saturating_mul(512));
            if !m.is_dir() || never.contains(&(m.dev(), m.ino())) {
                continue;
            }
            for e in std::fs::read_dir(&at).into_iter().flatten().flatten() {
                if left == 0 {
                    // Not all of it: the queue stays, so that the size counts as unfinished.
                    queue.push_back(at);
                    break;
                }
                left -= 1;
                match e.file_type() {
                    Ok(t) if t.is_dir() => queue.push_back(e.path()),
                    _ => {
                        let bytes = e.metadata().map_or(0, |m| m.len().min(m.blocks().saturating_mul(512)));
                        size.bytes += bytes;
                    }
                }
            }
        }
    }
    out.into_iter().map(|(s, queue)| Size { whole: queue.is_empty(), ..s }).collect()
}

impl Workspace {
    /// Too wide to be covered whole: by its place, or because the last capture that tried found too many entries. A person's
    /// next checkpoint tries again.
    pub(crate) fn is_wide(&self, rows: &Rows) -> bool {
        let narrowed = |r: &crate::record::Record| r.notes.iter().any(|n| n.ends_with(NARROWED));
        let last = rows.all.iter().rev().map(|c| &c.record);
        self.is_unbounded()
            || last
                .filter(|r| r.kind.is_counted())
                .find(|r| r.covers.is_none() || narrowed(r))
                .is_some_and(|r| narrowed(r))
    }

    /// The five largest things that no row of such a folder covers, and what would cover them.
    pub(crate) fn largest_uncovered(&self) -> Vec<Value> {
        let names = std::fs::read_dir(self.root()).into_iter().flatten().flatten().take(MOST);
        let tops = names.map(|e| paths::bytes(Path::new(&e.file_name())).to_owned()).collect();
        let mut found = sizes(self.root(), tops, &self.never());
        found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        let tell = |s: Size| {
            let place = paths::to_path(self.root(), s.path.as_bstr());
            let how = match place.is_dir() {
                true => format!("a workspace of its own: backstitch -C {} checkpoint", place.display()),
                false => format!("named by a tool, or: backstitch checkpoint -- {}", place.display()),
            };
            json!({
                "path": s.path.to_str_lossy(),
                "reason": "scope",
                "bytes": s.bytes,
                "at_least": !s.whole,
                "setting": how,
            })
        };
        found.into_iter().take(5).map(tell).collect()
    }
}

//! `blame`: who wrote each line of a file.

use bstr::{BStr, BString, ByteSlice};
use imara_diff::{InternedInput, sources::byte_lines};

use crate::{
    diff::{TEXT_LIMIT, is_text},
    error::{Code, Error, Result},
    history::{Version, Witness, versions},
    merge, paths,
    place::{Found, Place},
    record::Checkpoint,
    tree::{self, Node},
    workspace::Workspace,
};

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its bytes, with its end.
    pub text: BString,
    /// The version (in [`Blame::versions`]) that brought it.
    pub version: usize,
}

/// A file line by line.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The file.
    pub path: BString,
    /// The row that it is read from; `None`: the disk.
    pub at: Option<String>,
    /// In order.
    pub lines: Vec<Line>,
    /// Oldest first.
    pub versions: Vec<Version>,
}

/// Which version each line of a text came with. Of a version that an operation made, lines that an earlier one held are
/// that one's: a restore writes nothing.
fn origins(texts: &[Option<Vec<u8>>], is_operation: &[bool]) -> Vec<usize> {
    let mut all: Vec<Vec<usize>> = Vec::with_capacity(texts.len());
    for (n, text) in texts.iter().enumerate() {
        let text = text.as_deref().unwrap_or_default();
        let mut of: Vec<Option<usize>> = vec![None; text.lines_with_terminator().count()];
        for before in (0..n).rev() {
            let older = texts[before].as_deref().unwrap_or_default();
            let input = InternedInput::new(byte_lines(older), byte_lines(text));
            let (mut x, mut y) = (0, 0);
            let mut same = |to: (u32, u32), from: (u32, u32)| {
                for (a, b) in (from.0..to.0).zip(from.1..to.1) {
                    let slot = &mut of[b as usize];
                    if slot.is_none() {
                        *slot = all[before].get(a as usize).copied();
                    }
                }
            };
            for h in merge::hunks(&input) {
                same((h.before.start, h.after.start), (x, y));
                (x, y) = (h.before.end, h.after.end);
            }
            same((input.before.len() as u32, input.after.len() as u32), (x, y));
            if !is_operation[n] || of.iter().all(Option::is_some) {
                break;
            }
        }
        all.push(of.into_iter().map(|o| o.unwrap_or(n)).collect());
    }
    all.pop().unwrap_or_default()
}

impl Workspace {
    /// Who wrote each line of a file: as it stands on the disk, or in the row `at`. Renames are followed.
    ///
    /// # Errors
    /// `no-such-path`; `usage` for what is no text file.
    pub fn blame(&self, path: &BStr, at: Option<&Checkpoint>) -> Result<Blame> {
        let odb = self.odb()?;
        let rows = self.rows()?;
        let missing = |what: &str| {
            Error::new(Code::NoSuchPath, format!("{}: {what}", path.to_str_lossy()))
                .at_bytes(path)
                .hint("`backstitch log PATH` lists the checkpoints that changed a path; --at names one")
        };
        let no_text = |what: &str| {
            Error::new(Code::Usage, format!("{} is {what}, and has no lines", path.to_str_lossy()))
                .at_bytes(path)
                .hint("`backstitch log PATH` tells who changed it")
        };
        let (live, now) = match at {
            Some(c) => {
                let root = tree::Root::read(&odb, &c.tree)?;
                let e = tree::lookup(&odb, root.files, path)?
                    .ok_or_else(|| missing(&format!("checkpoint {} does not hold it", c.record.id)))?;
                let oid = match e.node {
                    Node::File { oid, .. } => oid,
                    Node::Link { .. } => return Err(no_text("a link")),
                    Node::Dir { .. } => return Err(no_text("a directory")),
                };
                (None, (odb.size(&oid)? <= TEXT_LIMIT).then(|| odb.blob(&oid)).transpose()?)
            }
            None => {
                let mut place = Place::open(self.root(), odb.clone(), "", self.owner())?;
                let stand = match place.inspect(path)? {
                    Found::Is(s) => s,
                    Found::Absent => return Err(missing("it is not on the disk")),
                    Found::Special => return Err(no_text("a special file")),
                };
                match stand.node {
                    Node::File { .. } => {}
                    Node::Link { .. } => return Err(no_text("a link")),
                    Node::Dir { .. } => return Err(no_text("a directory")),
                }
                let file = paths::to_path(self.root(), path);
                let size = file.metadata().map_err(|e| Error::io(&file, e))?.len();
                let text = match size <= TEXT_LIMIT {
                    true => Some(std::fs::read(&file).map_err(|e| Error::io(&file, e))?),
                    false => None,
                };
                (Some(stand), text)
            }
        };
        let now = now.filter(|t| is_text(t)).ok_or_else(|| no_text("not text"))?;
        let witness = Witness::of(&rows, self.operations()?);
        let mut list = versions(self, &odb, &rows, &witness, path, at, live.as_ref())?;
        list.reverse();
        let mut texts: Vec<Option<Vec<u8>>> = Vec::with_capacity(list.len());
        for v in &list {
            let oid = v.stand.as_ref().and_then(|s| s.node.oid());
            let text = match oid {
                Some(oid) if odb.contains(&oid) && odb.size(&oid)? <= TEXT_LIMIT => Some(odb.blob(&oid)?),
                _ => None,
            };
            texts.push(text.filter(|t| is_text(t)));
        }
        if let Some(last) = texts.last_mut() {
            *last = Some(now.clone());
        }
        let operations: Vec<bool> = list.iter().map(|v| v.by.operation.is_some()).collect();
        let lines = now
            .lines_with_terminator()
            .zip(origins(&texts, &operations))
            .map(|(text, version)| Line { text: text.into(), version })
            .collect();
        Ok(Blame { path: path.to_owned(), at: at.map(|c| c.record.id.clone()), lines, versions: list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_from_the_version_that_brought_them() {
        let t = |s: &str| Some(s.as_bytes().to_vec());
        let texts = [t("a\nb\n"), t("a\nx\nb\n"), t("a\nb\ny\n"), t("a\nx\nb\n")];
        assert_eq!(origins(&texts, &[false; 4]), [0, 3, 0]);
        // A restore brings back what was somebody's.
        assert_eq!(origins(&texts, &[false, false, false, true]), [0, 1, 0]);
        // Nothing and binary content between.
        assert_eq!(origins(&[t("a\n"), None, t("a\nb\n")], &[false; 3]), [2, 2]);
        assert_eq!(origins(&[], &[]), [] as [usize; 0]);
    }
}

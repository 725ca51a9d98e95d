//! Attributes that have git convert contents, so that an object may differ from its file.
//!
//! Only the question "may this path be converted by a filter, an encoding or `ident`?" is answered, and towards yes: every
//! line that sets one of them counts for all paths that its pattern matches, whatever later lines say, and matches with
//! and without regard to case. So no order of precedence has to be got right. The patterns are those of ignore files, and
//! so is the matcher.
//!
//! Git takes attributes from the index where a work tree lacks the file. A directory whose `.gitattributes` is listed and
//! not on disk as listed is in doubt as a whole, with all below it.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bstr::{BStr, BString, ByteSlice};

use super::{Origin, listed::Listed};
use crate::{handle, pattern::Pattern, types::Stat, walk::queue::lock};

/// Attributes by which an object's bytes are not the file's.
const CONVERTING: [&[u8]; 3] = [b"filter", b"working-tree-encoding", b"ident"];
/// Where git installations have attributes for everybody.
const SYSTEM: [&str; 4] = [
    "/etc/gitattributes",
    "/usr/local/etc/gitattributes",
    "/usr/etc/gitattributes",
    "/opt/homebrew/etc/gitattributes",
];
/// A file above this is not taken apart: all that it may concern is in doubt.
const MAX: u64 = 1 << 20;

/// What concerns the files of one directory.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    above: Option<Arc<Doubts>>,
    /// Length of the directory's path with its slash: patterns look at what follows.
    skip: usize,
    patterns: Vec<Pattern>,
    /// All below, whatever the name.
    all: bool,
    /// None of those above says anything either.
    none: bool,
}

impl Doubts {
    fn new(above: Option<Arc<Doubts>>, skip: usize, lines: Option<Vec<Pattern>>) -> Doubts {
        let all = lines.is_none() || above.as_ref().is_some_and(|a| a.all);
        let patterns = lines.unwrap_or_default();
        let none = !all && patterns.is_empty() && above.as_ref().is_none_or(|a| a.none);
        Doubts { above, skip, patterns, all, none }
    }

    /// True if the content of this file, by its path from the top, may be converted.
    pub(super) fn concern(&self, path: &[u8]) -> bool {
        if self.none || self.all {
            return self.all;
        }
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let hit = |level: &Doubts| {
            let below: &BStr = path[level.skip..].into();
            let matches = |p: &Pattern, fold| p.matches(below, name.into(), false, fold);
            level.patterns.iter().any(|p| matches(p, false) || matches(p, true))
        };
        let mut level = Some(self);
        while let Some(here) = level {
            if hit(here) {
                return true;
            }
            level = here.above.as_deref();
        }
        false
    }
}

/// The attributes of one repository.
#[derive(Debug)]
pub(super) struct Attributes {
    top: PathBuf,
    /// Names that stand for a converting attribute.
    macros: Vec<BString>,
    /// What holds everywhere.
    global: Arc<Doubts>,
    dirs: Mutex<HashMap<BString, Arc<Doubts>>>,
}

impl Attributes {
    /// Reads what holds for the whole repository. `None` if a source cannot be read.
    pub(super) fn read(origin: &Origin, listed: &Listed) -> Option<Attributes> {
        let mut files: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        files.extend(origin.attributes_file.clone());
        files.push(origin.common.join("info/attributes"));
        let mut sources = Vec::new();
        for file in &files {
            sources.extend(source(file).ok()?);
        }
        // Macros may be made here too.
        let own = in_tree(&origin.top, b"", listed).ok()?;
        let mut macros: Vec<BString> = CONVERTING.iter().map(|name| BString::from(*name)).collect();
        loop {
            let before = macros.len();
            for line in sources.iter().chain(&own).flat_map(|s| s.lines()) {
                if let Some((name, true)) = line.trim_start().strip_prefix(b"[attr]").map(|l| {
                    let mut words = words(l);
                    let name = words.next().unwrap_or_default();
                    (name, words.any(|w| sets(w, &macros)))
                }) && !macros.iter().any(|m| m == name)
                {
                    macros.push(name.into());
                }
            }
            if macros.len() == before {
                break;
            }
        }
        let mut lines = Some(Vec::new());
        for source in &sources {
            lines = lines.and_then(|mut all| {
                all.extend(parse(source, &macros)?);
                Some(all)
            });
        }
        let global = Arc::new(Doubts::new(None, 0, lines));
        Some(Attributes { top: origin.top.clone(), macros, global, dirs: Mutex::default() })
    }

    /// What concerns the files in `dir`, a path from the top.
    pub(super) fn of_dir(&self, dir: &[u8], listed: &Listed) -> Arc<Doubts> {
        if let Some(known) = lock(&self.dirs).get(dir.as_bstr()) {
            return known.clone();
        }
        let mut above = self.global.clone();
        let ends = dir.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i);
        for end in [0].into_iter().chain(ends).chain([dir.len()]) {
            let here = &dir[..end];
            let known = lock(&self.dirs).get(here.as_bstr()).cloned();
            above = match known {
                Some(known) => known,
                None => {
                    let lines = match in_tree(&self.top, here, listed) {
                        Ok(None) => Some(Vec::new()),
                        Ok(Some(bytes)) => parse(&bytes, &self.macros),
                        Err(_) => None,
                    };
                    let skip = if here.is_empty() { 0 } else { here.len() + 1 };
                    let made = Arc::new(Doubts::new(Some(above), skip, lines));
                    lock(&self.dirs).insert(here.into(), made.clone());
                    made
                }
            };
        }
        above
    }
}

/// The `.gitattributes` of a directory of the work tree; an error where that is not all that git may read there.
fn in_tree(top: &Path, dir: &[u8], listed: &Listed) -> io::Result<Option<Vec<u8>>> {
    let other = || io::Error::other("not as the index lists it");
    let path = top.join(std::ffi::OsStr::from_bytes(dir)).join(".gitattributes");
    let is_listed = listed.is_attributed(dir);
    match handle::stat_path(&path) {
        Ok(stat) if is_listed => {
            let mut full = BString::from(dir);
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(b".gitattributes");
            if !is_same(listed, &full, &stat) {
                return Err(other());
            }
        }
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound && !is_listed => return Ok(None),
        Err(e) => return Err(e),
    }
    source(&path)
}

/// The file is as the index lists it. That a write may have been too close to be seen does not matter: what is on disk is
/// read, and only what was listed before could be something else.
fn is_same(listed: &Listed, path: &[u8], stat: &Stat) -> bool {
    listed.find(path, &mut 0).is_some_and(|entry| listed.proves(entry, stat, -1))
}

/// Reads a file of attributes.
fn source(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX => {}
        Ok(_) => return Err(io::Error::other("no file of attributes")),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    }
    fs::read(path).map(Some)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| b" \t\r\n".contains(b)).filter(|w| !w.is_empty())
}

/// The word sets one of these attributes.
fn sets(word: &[u8], names: &[BString]) -> bool {
    let name = word.split(|b| *b == b'=').next().unwrap_or(word);
    names.iter().any(|n| n == name)
}

/// The patterns of the lines that set a converting attribute. `None` if a line cannot be understood.
fn parse(bytes: &[u8], macros: &[BString]) -> Option<Vec<Pattern>> {
    let mut patterns = Vec::new();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for line in bytes.split(|b| *b == b'\n') {
        let line = line.trim_start_with(|c| " \t\r".contains(c));
        if line.is_empty() || line[0] == b'#' || line.starts_with(b"[attr]") {
            continue;
        }
        // A pattern in quotes may hold blanks: where any word after its first sets something, all is in doubt.
        let mut words = words(line);
        let pattern = words.next()?;
        if !words.any(|w| sets(w, macros)) {
            continue;
        }
        if pattern.starts_with(b"\"") {
            return None;
        }
        // Git passes over negated ones.
        if !pattern.starts_with(b"!") {
            patterns.push(Pattern::parse(pattern));
        }
    }
    Some(patterns)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn doubts(text: &str) -> Option<Doubts> {
        let macros: Vec<BString> = CONVERTING.iter().map(|n| BString::from(*n)).collect();
        parse(text.as_bytes(), &macros).map(|p| Doubts::new(None, 0, Some(p)))
    }

    #[test]
    fn lines_that_convert() {
        let d = doubts(
            "# a comment\n*.psd filter=lfs diff=lfs merge=lfs -text\n*.txt text=auto eol=crlf\n/a/b ident\n\
             *.c -filter\n*.h !ident\nd/ filter=x\n!no filter=x\n\t*.utf working-tree-encoding=UTF-16\r\n",
        )
        .unwrap();
        for path in ["x.psd", "deep/x.psd", "X.PSD", "a/b", "y.utf"] {
            assert!(d.concern(path.as_bytes()), "{path}");
        }
        for path in ["x.txt", "c/a/b", "x.c", "x.h", "d/x", "no"] {
            assert!(!d.concern(path.as_bytes()), "{path}");
        }
        assert!(!d.none && doubts("*.txt text\n").unwrap().none);
        assert!(doubts("\"with blank\" filter=lfs\n").is_none());
        assert!(doubts("\"a filter=b\" text\n").is_none(), "in doubt");
    }
}

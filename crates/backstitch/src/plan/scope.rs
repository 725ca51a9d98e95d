//! Which paths a call speaks about.

use backstitch_store::Odb;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    error::{Code, Error, Result},
    paths,
    tree::{self, DirRef},
};

/// Which paths a call speaks about.
#[derive(Default)]
pub struct Scope {
    /// Literal paths, each with all below it.
    pub paths: Vec<BString>,
    /// Patterns in ignore-file syntax.
    pub globs: Vec<gix_glob::Pattern>,
    /// Paths whose open editors hold unsaved text.
    pub busy: Vec<BString>,
}

impl Scope {
    /// Parses patterns.
    pub fn new(paths: Vec<BString>, globs: &[String], busy: Vec<BString>) -> Result<Scope> {
        let globs = globs
            .iter()
            .map(|g| {
                gix_glob::Pattern::from_bytes_without_negation(g.as_bytes()).ok_or_else(|| {
                    Error::new(Code::Usage, format!("{g:?} is not a pattern"))
                        .hint("patterns look like `*.rs` or `src/**`; a path is named after `--`")
                })
            })
            .collect::<Result<_>>()?;
        Ok(Scope { paths, globs, busy })
    }

    /// Everything is meant.
    pub fn is_everything(&self) -> bool {
        self.paths.is_empty() && self.globs.is_empty()
    }

    /// Every pattern means something: in one of the trees, or among other paths.
    ///
    /// # Errors
    /// `no-such-path` with the pattern.
    pub(crate) fn check_patterns(&self, odb: &Odb, trees: &[DirRef], others: &[&BStr]) -> Result<()> {
        for g in &self.globs {
            let one = Scope { globs: vec![g.clone()], ..Scope::default() };
            let mut hit = others.iter().any(|p| one.contains(p, false));
            for t in trees {
                if hit {
                    break;
                }
                tree::walk(odb, *t, &mut |p, e| {
                    hit = hit || one.contains(p, e.node.is_dir());
                    Ok(())
                })?;
            }
            if !hit {
                return Err(Error::new(Code::NoSuchPath, format!("{g}: nothing matches this pattern"))
                    .at_bytes(g.to_string())
                    .hint(
                        "patterns are those of ignore files, relative to the workspace; nothing was changed",
                    ));
            }
        }
        Ok(())
    }

    /// The path is meant.
    pub fn contains(&self, path: &BStr, is_dir: bool) -> bool {
        self.is_everything()
            || self.paths.iter().any(|p| paths::is_under(path, p.as_bstr()))
            // Patterns speak of the workspace.
            || !paths::is_outside(path) && self.globs.iter().any(|g| {
                let mut at = path;
                let mut dir = is_dir;
                loop {
                    let basename = at.rfind_byte(b'/').map(|i| i + 1);
                    if g.matches_repo_relative_path(
                        at,
                        basename,
                        Some(dir),
                        gix_glob::pattern::Case::Sensitive,
                        gix_glob::wildmatch::Mode::NO_MATCH_SLASH_LITERAL,
                    ) {
                        return true;
                    }
                    if at.find_byte(b'/').is_none() {
                        return false;
                    }
                    at = paths::split(at).0;
                    dir = true;
                }
            })
    }
}

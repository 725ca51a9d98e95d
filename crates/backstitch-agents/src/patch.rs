//! Which paths a patch of the `apply_patch` form names.

use std::path::PathBuf;

/// What stands before a path.
const HEADS: &[&str] = &["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// Paths in the order of their naming, each once. Lines of content begin with `+`, `-` or a blank, so that a text about
/// patches names nothing.
pub fn paths(patch: &str) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = Vec::new();
    for line in patch.lines() {
        let line = line.trim_end_matches('\r');
        if let Some(name) = HEADS.iter().find_map(|h| line.strip_prefix(h)) {
            let path = PathBuf::from(name.trim());
            if !path.as_os_str().is_empty() && !name.contains('\0') && !out.contains(&path) {
                out.push(path);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line() {
        let patch = "*** Begin Patch\n*** Add File: a b.txt\n+one\n+*** Delete File: no.txt\n*** Update File: src/x.rs\r\n\
                     *** Move to: src/y.rs\n@@\n *** Add File: no2\n-a\n+b\n*** Delete File: /abs/z\n*** Update File: a b.txt\n\
                     *** End Patch";
        let want: Vec<PathBuf> =
            ["a b.txt", "src/x.rs", "src/y.rs", "/abs/z"].iter().map(PathBuf::from).collect();
        assert_eq!(paths(patch), want);
        assert!(paths("").is_empty() && paths("*** Add File: \n*** Add File:x").is_empty());
    }
}

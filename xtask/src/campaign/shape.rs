//! How names in the store look: whatever looks otherwise after a fault was left behind by it.

use std::collections::BTreeSet;

use super::image::{Image, TEMPORARY};

/// Forms of paths that may stay.
#[derive(Default)]
pub struct Shapes(BTreeSet<String>);

impl Shapes {
    /// The paths of this home may stay.
    pub fn learn(&mut self, home: &Image) {
        self.0.extend(home.paths().filter(|p| !is_temporary(p)).map(form));
    }

    /// This path may stay, whether or not it was there.
    pub fn allow(&mut self, path: &[u8]) {
        self.0.insert(form(path));
    }

    /// Paths that look like none that were learnt, or like temporaries.
    pub fn unknown(&self, home: &Image) -> Vec<String> {
        home.paths()
            .filter(|path| is_temporary(path) || !self.0.contains(&form(path)))
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }
}

fn is_temporary(path: &[u8]) -> bool {
    // Locks of git's kind would stay; those of the store are advisory, and their files are never removed.
    let text = String::from_utf8_lossy(path);
    let ours = text.split('/').any(|name| name.as_bytes().starts_with(TEMPORARY) || name.starts_with("tmp_"));
    ours || (text.contains("/git/") && text.ends_with(".lock"))
}

/// Ids, digests and numbers are one like the other.
fn form(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let part = |word: &str| {
        let id = word.len() == 16 && word.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        let hex = word.len() >= 2 && word.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
        match () {
            () if id => "ID".to_owned(),
            () if hex && (word.len() == 2 || word.len() >= 16) => "HEX".to_owned(),
            () if word.bytes().all(|b| b.is_ascii_digit()) => "N".to_owned(),
            () => word.to_owned(),
        }
    };
    let split = |name: &str| {
        name.split('-')
            .map(|w| w.split('.').map(part).collect::<Vec<_>>().join("."))
            .collect::<Vec<_>>()
            .join("-")
    };
    text.split('/').map(split).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_digests_are_alike_and_temporaries_are_not() {
        assert_eq!(
            form(b"objects/pack/pack-0123456789abcdef0123456789abcdef01234567.idx"),
            "objects/pack/pack-HEX.idx"
        );
        assert_eq!(form(b"refs/backstitch/checkpoints/01m8qsak5a59d0vb"), "refs/backstitch/checkpoints/ID");
        assert_eq!(form(b"objects/ab/cdef0123456789abcdef"), "objects/HEX/HEX");
        assert_eq!(form(b"journal/operation.new"), "journal/operation.new");
        assert!(
            is_temporary(b"a/tmp_pack_1")
                && is_temporary(b"x/git/index.lock")
                && !is_temporary(b"x/state/stat.lock")
        );
    }
}

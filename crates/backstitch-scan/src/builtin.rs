//! What is left out without being asked, unless git tracks it.

/// Litter of operating systems and editors: left out everywhere.
pub(crate) const LITTER: &[&str] = &[
    ".DS_Store",
    ".AppleDouble/",
    ".Spotlight-V100/",
    ".TemporaryItems/",
    ".Trashes/",
    ".fseventsd/",
    "Thumbs.db",
    "ehthumbs.db",
    "lost+found/",
    ".Trash-*/",
    ".nfs????????????????????????",
    ".fuse_hidden*",
    ".*.sw[a-p]",
    ".#*",
    "\\#*\\#",
    // Only files are editors' litter.
    "!.*.sw[a-p]/",
    "!.#*/",
    "!\\#*\\#/",
];

/// What tools make again by themselves: left out where no git repository says what counts. Names that also stand for real
/// sources (`build`, `dist`, `target`, `vendor`, `*.log`) are not here.
pub(crate) const REMADE: &[&str] = &[
    "node_modules/",
    "bower_components/",
    ".pnpm-store/",
    ".yarn/cache/",
    ".npm/",
    "__pycache__/",
    "*.pyc",
    ".venv/",
    ".tox/",
    ".nox/",
    ".eggs/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".ipynb_checkpoints/",
    ".gradle/",
    ".terraform/",
    ".next/",
    ".nuxt/",
    ".svelte-kit/",
    ".angular/",
    ".turbo/",
    ".parcel-cache/",
    ".dart_tool/",
    ".direnv/",
    ".stack-work/",
    ".ccls-cache/",
    ".cache/clangd/",
    ".idea/workspace.xml",
    ".idea/shelf/",
    ".vs/",
];

/// True for a name that Windows takes for a device, in any folder, whatever follows its first dot: `CON`, `PRN`, `AUX`,
/// `NUL`, `COM` and `LPT` with a digit from 1 to 9 or with a superscript 1, 2 or 3. Case, and dots and blanks at the end, do not count.
pub(crate) fn is_device_name(name: &[u8]) -> bool {
    let stem = name.split(|b| *b == b'.').next().unwrap_or_default();
    let end = stem.iter().rposition(|b| *b != b' ').map_or(0, |n| n + 1);
    let Some((head, rest)) = stem[..end].split_at_checked(3) else { return false };
    let is = |words: &[&[u8]]| words.iter().any(|w| head.eq_ignore_ascii_case(w));
    match rest {
        [] => is(&[b"CON", b"PRN", b"AUX", b"NUL"]),
        // Superscripts one, two and three in UTF-8.
        [b'1'..=b'9'] | [0xc2, 0xb9 | 0xb2 | 0xb3] => is(&[b"COM", b"LPT"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4x_20_device_names_in_all_their_forms() {
        for yes in [
            "CON",
            "prn",
            "Aux",
            "nul",
            "COM1",
            "lpt9",
            "NUL.txt",
            "con.tar.gz",
            "com¹",
            "COM².log",
            "LPT³",
            "nul.",
            "nul ",
            "NUL . ",
            "aux .c",
            "CON..",
            "PRN   ",
        ] {
            assert!(is_device_name(yes.as_bytes()), "{yes:?}");
        }
        for no in [
            "",
            "CO",
            "CON1",
            "COM",
            "COM0",
            "LPT",
            "COM10",
            "COM⁴",
            "com¹²",
            "console",
            " con",
            ".con",
            "x.con",
            "nul-",
            "aux_",
            "NULL",
            "COM\u{b9}\u{b9}",
            "c on",
        ] {
            assert!(!is_device_name(no.as_bytes()), "{no:?}");
        }
        assert!(!is_device_name(b"COM\xb9"), "no UTF-8, no superscript");
    }
}

//! Small notes between one hook process and the next: empty or short files in the store's `state/hooks/`, deletable at any moment.
//!
//! Without them work is attributed more coarsely, and never wrongly: a fork is a session of its own, a prompt that no person
//! typed begins a turn.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Marks above this number are looked through for old ones.
const MANY: usize = 200;
/// Older ones go then.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);
/// A mark longer than this is nobody's.
const LIMIT: u64 = 1 << 20;

/// The marks of one store.
pub struct Marks(PathBuf);

impl Marks {
    /// Below the store's folder; nothing is created.
    pub fn of(store: &Path) -> Marks {
        Marks(store.join("state/hooks"))
    }

    fn path(&self, what: &str, name: &str) -> PathBuf {
        let digest = backstitch::settings::digest(name.as_bytes());
        self.0.join(format!("{what}-{}", digest.chars().take(32).collect::<String>()))
    }

    /// Leaves a mark; `false` where there is one already. Of several processes one gets `true`.
    pub fn leave(&self, what: &str, name: &str, content: &[u8]) -> bool {
        let write = || -> std::io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            let mut f =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path(what, name))?;
            f.write_all(content)
        };
        let new = write().is_ok();
        if new {
            self.sweep();
        }
        new
    }

    /// Whether there is one.
    pub fn has(&self, what: &str, name: &str) -> bool {
        self.path(what, name).exists()
    }

    /// Its content.
    pub fn read(&self, what: &str, name: &str) -> Option<Vec<u8>> {
        let path = self.path(what, name);
        let m = path.symlink_metadata().ok().filter(|m| m.is_file() && m.len() <= LIMIT)?;
        let bytes = fs::read(path).ok()?;
        (bytes.len() as u64 <= m.len().max(LIMIT)).then_some(bytes)
    }

    /// Takes it away.
    pub fn clear(&self, what: &str, name: &str) {
        let _ = fs::remove_file(self.path(what, name));
    }

    fn sweep(&self) {
        let Ok(dir) = fs::read_dir(&self.0) else { return };
        let all: Vec<fs::DirEntry> = dir.flatten().collect();
        if all.len() <= MANY {
            return;
        }
        let now = SystemTime::now();
        for e in all {
            let age = e.metadata().and_then(|m| m.modified()).ok().and_then(|t| now.duration_since(t).ok());
            if age.is_some_and(|a| a > OLD) {
                let _ = fs::remove_file(e.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_gets_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let m = Marks::of(dir.path());
        assert!(!m.has("x", "a"));
        assert!(m.leave("x", "a/../b", b"1") && !m.leave("x", "a/../b", b"2"));
        assert_eq!(m.read("x", "a/../b").as_deref(), Some(&b"1"[..]));
        assert_eq!(m.read("y", "a/../b"), None);
        m.clear("x", "a/../b");
        assert!(!m.has("x", "a/../b"));
    }

    #[test]
    fn old_ones_go_when_there_are_many() {
        let dir = tempfile::tempdir().expect("a folder");
        let m = Marks::of(dir.path());
        for n in 0..=MANY {
            m.leave("x", &n.to_string(), b"");
        }
        let long_ago = SystemTime::now() - OLD - Duration::from_secs(60);
        for n in 0..50 {
            let f = OpenOptions::new().write(true).open(m.path("x", &n.to_string())).expect("there");
            f.set_modified(long_ago).expect("set");
        }
        m.leave("x", "new", b"");
        assert!(!m.has("x", "0") && !m.has("x", "49") && m.has("x", "50") && m.has("x", "new"));
    }
}

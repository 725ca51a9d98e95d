//! Work as another user, and small file systems of one's own. Both need root; ask first, and skip visibly without it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The user and group id of nobody in particular: no such account is needed.
pub const OTHER: u32 = 65_534;

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this program is found on the path.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|dir| dir.join(name).is_file())
}

/// The same command, run as the user and group `id` without supplementary groups, by `setpriv` of util-linux.
///
/// Environment and working directory are taken over.
pub fn as_user(id: u32, command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.arg(format!("--reuid={id}")).arg(format!("--regid={id}")).args(["--clear-groups", "--"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    wrapped
}

/// Runs a closure on a thread that has the rights of the user and group `id` only. Needs root.
///
/// On Linux the rights belong to the thread (and to the threads that it starts), so other tests of the process keep theirs.
#[cfg(target_os = "linux")]
pub fn run_as<T: Send>(id: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use rustix::{fs::Gid, fs::Uid};

    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            set_thread_groups(&[])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            Ok(work())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A file system in memory, of a limited size, mounted for as long as this value lives.
#[derive(Debug)]
pub struct Tmpfs {
    dir: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts one of `size` bytes with further mount options, such as `nr_inodes=100`. `None`, with the reason recorded as a
    /// skip, where this is not allowed.
    pub fn mount(what: &str, size: u64, options: &str) -> io::Result<Option<Tmpfs>> {
        if !is_root() || !has_program("mount") {
            crate::skip::skip(what, "mounting needs root");
            return Ok(None);
        }
        let dir = tempfile::tempdir()?;
        let comma = if options.is_empty() { "" } else { "," };
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=0755{comma}{options}"), "backstitch-test"])
            .arg(dir.path())
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            crate::skip::skip(what, &format!("mount: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return Ok(None);
        }
        Ok(Some(Tmpfs { path: dir.path().to_path_buf(), dir: Some(dir) }))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.path).status().is_ok_and(|s| s.success());
        if !done && let Some(dir) = self.dir.take() {
            // Never delete through a mount that is still there.
            let left = dir.keep();
            eprintln!("still mounted: {}", left.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::require;

    fn secret() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        (dir, file)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_closure_loses_its_rights_and_the_test_keeps_them() {
        require!(is_root(), "needs root");
        let (_dir, file) = secret();
        let refused = run_as(OTHER, || fs::read(&file).map_err(|e| e.kind())).unwrap();
        assert_eq!(refused, Err(io::ErrorKind::PermissionDenied));
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }

    #[test]
    fn a_command_loses_its_rights() {
        require!(is_root() && has_program("setpriv"), "needs root and setpriv");
        let (_dir, file) = secret();
        let mut cat = Command::new("cat");
        cat.arg(&file).env("LC_ALL", "C");
        assert!(cat.output().unwrap().status.success());
        let refused = as_user(OTHER, &cat).output().unwrap();
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
    }

    #[test]
    fn a_small_disk_gets_full_and_goes_away() {
        let Some(disk) =
            Tmpfs::mount("a_small_disk_gets_full_and_goes_away", 1 << 20, "nr_inodes=64").unwrap()
        else {
            return;
        };
        let path = disk.path().to_path_buf();
        let error = fs::write(path.join("big"), vec![1; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(disk);
        assert!(!path.join("big").exists());
    }
}

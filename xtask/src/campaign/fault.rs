//! The faults, as data. A further one is a further row.

use super::trace::Call;

/// Something that goes wrong at one system call.
pub struct Fault {
    /// What it is called by.
    pub name: &'static str,
    /// What strace does at the call.
    pub inject: &'static str,
    /// Whether it stays from that call on, as a full disk does.
    pub stays: bool,
    /// The calls that it can hit.
    pub calls: &'static [&'static [&'static str]],
    /// Of `openat` only those that create.
    pub creating: bool,
    /// How the run ends.
    pub ends: Ends,
}

/// How a run ends that was hit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// By the signal.
    Killed,
    /// With one of the documented exit codes.
    ByItself,
}

const OPEN: &[&str] = &["openat", "open"];
const LOOK: &[&str] = &["statx", "newfstatat", "faccessat2"];
const READ: &[&str] = &["read", "pread64", "readv", "getdents64", "readlink", "readlinkat", "lseek"];
const MAP: &[&str] = &["mmap"];
const LOCK: &[&str] = &["flock", "fcntl"];
const DATA: &[&str] =
    &["write", "pwrite64", "writev", "pwritev", "copy_file_range", "sendfile", "ftruncate", "fallocate"];
const SYNC: &[&str] = &["fsync", "fdatasync", "syncfs", "sync_file_range"];
const NAMES: &[&str] = &[
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdir",
    "mkdirat",
    "mknodat",
];
const GONE: &[&str] = &["unlink", "unlinkat", "rmdir"];
const MODES: &[&str] = &[
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "utimensat",
    "fsetxattr",
    "fremovexattr",
];
const INTERRUPTED: &[&str] =
    &["read", "pread64", "write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync"];

const fn error(name: &'static str, inject: &'static str, calls: &'static [&'static [&'static str]]) -> Fault {
    Fault { name, inject, stays: false, calls, creating: false, ends: Ends::ByItself }
}

/// Every fault there is.
pub const FAULTS: &[Fault] = &[
    Fault {
        ends: Ends::Killed,
        ..error("kill", "signal=KILL", &[DATA, SYNC, NAMES, GONE, MODES, OPEN, MAP, LOCK])
    },
    error("eio-write", "error=EIO", &[DATA, SYNC, NAMES, GONE, MODES]),
    error("eio-read", "error=EIO", &[READ, OPEN, LOOK]),
    Fault { creating: true, ..error("enospc", "error=ENOSPC", &[DATA, SYNC, NAMES, OPEN]) },
    Fault { creating: true, ..error("edquot", "error=EDQUOT", &[DATA, NAMES, OPEN]) },
    // Not of `openat`: those that make nothing would fail from there on, too, which no disk does.
    Fault { stays: true, ..error("full", "error=ENOSPC", &[DATA, SYNC, NAMES]) },
    error("eacces", "error=EACCES", &[OPEN, LOOK, NAMES, GONE, MODES]),
    error("emfile", "error=EMFILE", &[OPEN]),
    error("eintr", "error=EINTR", &[INTERRUPTED, OPEN, LOCK]),
    error("enomem", "error=ENOMEM", &[MAP]),
];

impl Fault {
    /// Whether it can hit this call.
    pub fn suits(&self, call: &Call) -> bool {
        let only_changing = match call.name.as_str() {
            // Most of them only ask for flags.
            "fcntl" => true,
            "openat" | "open" => self.creating,
            _ => false,
        };
        (call.changes || !only_changing) && self.calls.iter().any(|group| group.contains(&&*call.name))
    }

    /// How it is shown as the head of a column.
    pub fn title(&self) -> String {
        match self.name {
            "kill" => "KILL".into(),
            "full" => "ENOSPC from there on".into(),
            "eio-write" => "EIO (writing)".into(),
            "eio-read" => "EIO (reading)".into(),
            other => other.to_uppercase(),
        }
    }
}

/// The names of all calls that some fault can hit.
pub fn all_calls() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        FAULTS.iter().flat_map(|f| f.calls.iter()).flat_map(|g| g.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

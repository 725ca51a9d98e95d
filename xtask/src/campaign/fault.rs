//! The faults, as data. A further one is a further row.

/// Something that goes wrong at one system call.
pub struct Fault {
    /// What it is called by.
    pub name: &'static str,
    /// What strace does at the call.
    pub inject: &'static str,
    /// Whether it stays from that call on, as a full disk does.
    pub stays: bool,
    /// The calls that it can hit; empty for all.
    pub calls: &'static [&'static str],
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

const READ: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "openat",
    "open",
    "statx",
    "newfstatat",
    "getdents64",
    "readlinkat",
    "lseek",
];
const WRITE: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "copy_file_range",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "linkat",
    "symlinkat",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "utimensat",
    "flock",
];
const SPACE: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "copy_file_range",
    "ftruncate",
    "fallocate",
    "mkdir",
    "mkdirat",
    "linkat",
    "symlinkat",
    "rename",
    "renameat",
    "renameat2",
    "fsync",
    "fdatasync",
];
const RIGHTS: &[&str] = &[
    "openat",
    "open",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "symlinkat",
    "linkat",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "utimensat",
    "statx",
    "newfstatat",
];

/// Every fault there is.
pub const FAULTS: &[Fault] = &[
    Fault { name: "kill", inject: "signal=KILL", stays: false, calls: &[], ends: Ends::Killed },
    Fault { name: "eio-read", inject: "error=EIO", stays: false, calls: READ, ends: Ends::ByItself },
    Fault { name: "eio-write", inject: "error=EIO", stays: false, calls: WRITE, ends: Ends::ByItself },
    Fault { name: "enospc", inject: "error=ENOSPC", stays: true, calls: SPACE, ends: Ends::ByItself },
    Fault { name: "eacces", inject: "error=EACCES", stays: false, calls: RIGHTS, ends: Ends::ByItself },
    Fault {
        name: "emfile",
        inject: "error=EMFILE",
        stays: false,
        calls: &["openat", "open", "dup", "pipe2"],
        ends: Ends::ByItself,
    },
    Fault {
        name: "eintr",
        inject: "error=EINTR",
        stays: false,
        calls: &["read", "write", "openat", "flock", "pwrite64"],
        ends: Ends::ByItself,
    },
];

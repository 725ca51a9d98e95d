//! One error type with stable codes, shared by library, exit status and RPC.

use std::{fmt, io, path::Path};

use bstr::BString;

/// Stable error codes. The text form ([`Code::as_str`]) is what JSON, RPC and MCP carry;
/// [`Code::exit`] is the exit status of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Something failed that was not foreseen; the message says what.
    Failed,
    /// Reading or writing failed.
    Io,
    /// The call's words are wrong.
    Usage,
    /// A name stands for more than one row; the list says which.
    Ambiguous,
    /// A label that looks like another form of name, or an unusable one.
    BadLabel,
    /// A setting that does not exist or cannot have that value.
    BadSetting,
    /// No checkpoint has this name.
    NoSuchCheckpoint,
    /// No session has this name.
    NoSuchSession,
    /// No operation has this name.
    NoSuchOperation,
    /// The path is neither in the checkpoint nor on the disk.
    NoSuchPath,
    /// Nothing was ever recorded for this workspace.
    NoSuchStore,
    /// There is no operation left to undo.
    NothingToUndo,
    /// There is no undone operation to redo.
    NothingToRedo,
    /// Something changed since, and `refuse` was asked for.
    Conflict,
    /// The plan that was confirmed is not the plan that would be carried out now.
    PlanChanged,
    /// The store belongs to another workspace.
    WrongWorkspace,
    /// The folder at this path is not the one that the rows were made of.
    ReplacedWorkspace,
    /// The budget or the floor of free disk space forbids it.
    OverBudget,
    /// A path that leaves the workspace, enters a `.git`, or cannot be a name.
    UnsafePath,
    /// The row cannot be a target: failed, a gap, or implausibly empty.
    NotRestorable,
    /// The store would lie on a network file system.
    SharedStore,
    /// Git, which carries checkpoints to and from remotes, failed or is missing.
    Remote,
    /// What would be sent looks like a secret.
    Secrets,
    /// The repository's git state is of a kind that is not known, or cannot be put back.
    GitState,
    /// Not allowed from inside an agent's environment.
    AgentContext,
    /// Recording is switched off.
    Disabled,
    /// Another process holds the lock.
    Busy,
    /// The store is damaged.
    StoreDamaged,
    /// Interrupted by a signal or a cancellation.
    Interrupted,
}

impl Code {
    /// Every code, for the reference page.
    pub const ALL: &'static [Code] = &[
        Code::Failed,
        Code::Io,
        Code::Usage,
        Code::Ambiguous,
        Code::BadLabel,
        Code::BadSetting,
        Code::NoSuchCheckpoint,
        Code::NoSuchSession,
        Code::NoSuchOperation,
        Code::NoSuchPath,
        Code::NoSuchStore,
        Code::NothingToUndo,
        Code::NothingToRedo,
        Code::Conflict,
        Code::PlanChanged,
        Code::WrongWorkspace,
        Code::ReplacedWorkspace,
        Code::OverBudget,
        Code::UnsafePath,
        Code::NotRestorable,
        Code::SharedStore,
        Code::Remote,
        Code::Secrets,
        Code::GitState,
        Code::AgentContext,
        Code::Disabled,
        Code::Busy,
        Code::StoreDamaged,
        Code::Interrupted,
    ];

    /// The stable string.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Failed => "failed",
            Code::Io => "io",
            Code::Usage => "usage",
            Code::Ambiguous => "ambiguous",
            Code::BadLabel => "bad-label",
            Code::BadSetting => "bad-setting",
            Code::NoSuchCheckpoint => "no-such-checkpoint",
            Code::NoSuchSession => "no-such-session",
            Code::NoSuchOperation => "no-such-operation",
            Code::NoSuchPath => "no-such-path",
            Code::NoSuchStore => "no-such-store",
            Code::NothingToUndo => "nothing-to-undo",
            Code::NothingToRedo => "nothing-to-redo",
            Code::Conflict => "conflict",
            Code::PlanChanged => "plan-changed",
            Code::WrongWorkspace => "wrong-workspace",
            Code::ReplacedWorkspace => "replaced-workspace",
            Code::OverBudget => "over-budget",
            Code::UnsafePath => "unsafe-path",
            Code::NotRestorable => "not-restorable",
            Code::SharedStore => "shared-store",
            Code::Remote => "remote",
            Code::Secrets => "secrets",
            Code::GitState => "git-state",
            Code::AgentContext => "agent-context",
            Code::Disabled => "disabled",
            Code::Busy => "busy",
            Code::StoreDamaged => "store-damaged",
            Code::Interrupted => "interrupted",
        }
    }

    /// The exit status of the command line.
    pub fn exit(self) -> u8 {
        match self {
            Code::Failed | Code::Io | Code::Remote => 1,
            Code::Usage | Code::Ambiguous | Code::BadLabel | Code::BadSetting => 2,
            Code::NoSuchCheckpoint
            | Code::NoSuchSession
            | Code::NoSuchOperation
            | Code::NoSuchPath
            | Code::NoSuchStore
            | Code::NothingToUndo
            | Code::NothingToRedo => 4,
            Code::Conflict
            | Code::PlanChanged
            | Code::WrongWorkspace
            | Code::ReplacedWorkspace
            | Code::OverBudget
            | Code::UnsafePath
            | Code::NotRestorable
            | Code::SharedStore
            | Code::Secrets
            | Code::GitState
            | Code::AgentContext
            | Code::Disabled => 5,
            Code::Busy => 6,
            Code::StoreDamaged => 7,
            Code::Interrupted => 130,
        }
    }
}

/// What went wrong, where, and what to do.
#[derive(Debug)]
pub struct Error {
    /// The stable code.
    pub code: Code,
    /// One sentence for a person.
    pub message: String,
    /// The path that it is about.
    pub path: Option<BString>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The candidates of an ambiguous name, the paths of a conflict.
    pub list: Vec<String>,
}

/// Result of the engine's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a code and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), path: None, hint: None, list: Vec::new() }
    }

    /// What cannot be: a fault of this program, and no business of whoever called it.
    pub fn fault(message: impl Into<String>) -> Self {
        Error::new(Code::Failed, message)
            .hint("this is a fault of backstitch: please report it, with what was called; `backstitch doctor` checks the surroundings")
    }

    /// A failed system call on a path.
    pub fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Error::new(Code::Io, format!("{}: {source}", path.display())).at(path)
    }

    /// Names the path.
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        use std::os::unix::ffi::OsStrExt;
        self.path = Some(path.as_ref().as_os_str().as_bytes().into());
        self
    }

    /// Names the path, as bytes relative to the workspace.
    pub fn at_bytes(mut self, path: impl Into<BString>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Says what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Lists candidates or paths.
    pub fn list(mut self, list: Vec<String>) -> Self {
        self.list = list;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<backstitch_store::Error> for Error {
    fn from(e: backstitch_store::Error) -> Self {
        use backstitch_store::Error as S;
        let message = e.to_string();
        let (code, path, hint) = match e {
            S::Io { path, source } if source.kind() == io::ErrorKind::StorageFull => {
                (Code::OverBudget, Some(path), Some("free some disk space; nothing was changed"))
            }
            S::Io { path, source } if source.kind() == io::ErrorKind::QuotaExceeded => (
                Code::OverBudget,
                Some(path),
                Some("your quota on this disk is used up; nothing was changed"),
            ),
            S::Io { path, .. } => (Code::Io, Some(path), None),
            S::Damaged { path, .. } | S::Missing { path, .. } => (
                Code::StoreDamaged,
                Some(path),
                Some("`backstitch verify` names the checkpoints that are hit"),
            ),
            S::Busy { path } => {
                (Code::Busy, Some(path), Some("another backstitch process is at work here; try again"))
            }
            S::NoStore { path } => (Code::NoSuchStore, Some(path), None),
            S::TooNew { path, .. } => {
                (Code::StoreDamaged, Some(path), Some("this store was written by a newer backstitch; update"))
            }
            S::RefMoved { .. } => (Code::Busy, None, Some("another process changed it; try again")),
            S::Interrupted => (Code::Interrupted, None, None),
            _ => (Code::Failed, None, None),
        };
        let mut e = Error::new(code, message);
        e.path = path.map(|p| {
            use std::os::unix::ffi::OsStringExt;
            p.into_os_string().into_vec().into()
        });
        e.hint = hint.map(str::to_owned);
        e
    }
}

impl From<backstitch_scan::ScanError> for Error {
    fn from(e: backstitch_scan::ScanError) -> Self {
        use backstitch_scan::ScanError as S;
        let message = e.to_string();
        match e {
            S::Io { path, source } => Error::io(&path, source),
            S::Rules { path, .. } => Error::new(Code::Failed, message)
                .at(path)
                .hint("make the file readable, or remove it; without it, what is ignored is not known"),
            S::Sink(inner) => match inner.downcast::<backstitch_store::Error>() {
                Ok(e) => (*e).into(),
                Err(inner) => match inner.downcast::<Error>() {
                    Ok(e) => *e,
                    Err(_) => Error::fault(message),
                },
            },
            S::Interrupted => Error::new(Code::Interrupted, message),
            _ => Error::fault(message),
        }
    }
}

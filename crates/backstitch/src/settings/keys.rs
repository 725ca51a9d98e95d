//! The one table of settings.

use crate::error::{Code, Error, Result};

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Bool,
    /// Bytes: a number, or text such as `32MiB`.
    Bytes,
    /// A whole number.
    Int,
    /// A whole number of at least 1.
    Count,
    /// Seconds.
    Seconds,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted name.
    pub name: &'static str,
    /// Form.
    pub form: Form,
    /// Default in TOML.
    pub default: &'static str,
    /// One line.
    pub help: &'static str,
    /// A project may not lower or switch this without trust.
    pub guard: Guard,
}

/// Which changes by a project file need trust (SEMANTICS 37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None.
    Free,
    /// A smaller number.
    Lower,
    /// A larger number.
    Higher,
    /// Any change.
    Any,
    /// A word further to the right in this list.
    Rise(&'static [&'static str]),
    /// These words.
    Words(&'static [&'static str]),
}

/// Every setting.
pub const KEYS: &[Key] = &[
    Key {
        name: "enabled",
        form: Form::Bool,
        default: "true",
        help: "record at all",
        guard: Guard::Words(&["false"]),
    },
    Key {
        name: "ignored",
        form: Form::Choice(&["none", "small", "all"]),
        default: "\"small\"",
        help: "which ignored files beside covered ones are kept",
        guard: Guard::Words(&["none"]),
    },
    Key {
        name: "include",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) that are always covered",
        guard: Guard::Free,
    },
    Key {
        name: "exclude",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) that are never covered",
        guard: Guard::Any,
    },
    Key {
        name: "never_store",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) of what is never recorded, also where a tool or a call names it; such paths are never changed either",
        guard: Guard::Any,
    },
    Key {
        name: "nested",
        form: Form::Choice(&["content", "boundary"]),
        default: "\"content\"",
        help: "nested repositories: ordinary content, or left out",
        guard: Guard::Words(&["boundary"]),
    },
    Key {
        name: "bare",
        form: Form::Choice(&["skip", "content"]),
        default: "\"skip\"",
        help: "directories that look like bare repositories",
        guard: Guard::Free,
    },
    Key {
        name: "git_state",
        form: Form::Bool,
        default: "true",
        help: "record HEAD, refs, stash, index and what is under way of the repository around the folder",
        guard: Guard::Words(&["false"]),
    },
    Key {
        name: "sync.private",
        form: Form::List,
        default: "[]",
        help: "patterns (ignore-file syntax) that `sync` never sends, besides names that look like secrets",
        guard: Guard::Any,
    },
    Key {
        name: "sync.send",
        form: Form::List,
        default: "[]",
        help: "patterns that `sync` sends though their names look like secrets, such as `.env.example`",
        guard: Guard::Any,
    },
    Key {
        name: "gitignore_outside_git",
        form: Form::Bool,
        default: "true",
        help: "honour .gitignore files outside git repositories",
        guard: Guard::Words(&["true"]),
    },
    Key {
        name: "global_excludes",
        form: Form::Choice(&["auto", "always", "never"]),
        default: "\"auto\"",
        help: "git's core.excludesFile: inside repositories, always, never",
        guard: Guard::Words(&["always"]),
    },
    Key {
        name: "limits.new_file",
        form: Form::Bytes,
        default: "\"32MiB\"",
        help: "larger files never recorded before are left out and listed",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.grown_file",
        form: Form::Bytes,
        default: "\"256MiB\"",
        help: "recorded files that pass this, or grow by more at once, are left out and listed",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.ignored_file",
        form: Form::Bytes,
        default: "\"1MiB\"",
        help: "ignored files up to this are kept (`ignored = small`)",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.ignored_total",
        form: Form::Bytes,
        default: "\"64MiB\"",
        help: "kept ignored files together",
        guard: Guard::Lower,
    },
    Key {
        name: "limits.entries",
        form: Form::Int,
        default: "2000000",
        help: "more entries than this narrow the workspace to touched files",
        guard: Guard::Lower,
    },
    Key {
        name: "budget",
        form: Form::Bytes,
        default: "\"20GiB\"",
        help: "the store's ceiling",
        guard: Guard::Lower,
    },
    Key {
        name: "free_floor",
        form: Form::Bytes,
        default: "\"512MiB\"",
        help: "free disk space that recording leaves alone",
        guard: Guard::Higher,
    },
    Key {
        name: "checkpoint_limit",
        form: Form::Bytes,
        default: "\"4GiB\"",
        help: "new content that one checkpoint may add",
        guard: Guard::Lower,
    },
    Key {
        name: "durability",
        form: Form::Choice(&["full", "none"]),
        default: "\"full\"",
        help: "what is synced before a row is reported",
        guard: Guard::Words(&["none"]),
    },
    Key {
        name: "lock_wait",
        form: Form::Seconds,
        default: "10",
        help: "how long to wait for another process",
        guard: Guard::Free,
    },
    Key {
        name: "capture_time",
        form: Form::Seconds,
        default: "300",
        help: "what a capture has not looked at by then is left out and listed, but at `turn begin`, which goes on in the background; 0: no limit",
        guard: Guard::Lower,
    },
    Key {
        name: "watch",
        form: Form::Choice(&["auto", "off"]),
        default: "\"auto\"",
        help: "`auto`: large workspaces get a watcher by themselves, which saves captures from looking at everything",
        guard: Guard::Free,
    },
    Key {
        name: "watch_from",
        form: Form::Count,
        default: "20000",
        help: "files from which a workspace is large enough for a watcher",
        guard: Guard::Free,
    },
    Key {
        name: "watch_idle",
        form: Form::Seconds,
        default: "3600",
        help: "a watcher that nobody asked for so long ends by itself",
        guard: Guard::Free,
    },
    Key {
        name: "prompt_time",
        form: Form::Int,
        default: "50",
        help: "milliseconds that an agent's hook captures at a prompt; a capture that takes longer goes on in the background, while tools wait at the gate",
        guard: Guard::Free,
    },
    Key {
        name: "gate_timeout",
        form: Form::Seconds,
        default: "30",
        help: "how long a tool without named paths waits for its turn's checkpoint",
        guard: Guard::Free,
    },
    Key {
        name: "threads",
        form: Form::Int,
        default: "0",
        help: "threads of a capture; 0: one per core",
        guard: Guard::Free,
    },
    Key {
        name: "seed",
        form: Form::Bool,
        default: "true",
        help: "take contents that git's index proves unchanged from the folder's own repository, whose packs are linked (else copied), instead of reading the files",
        guard: Guard::Free,
    },
    Key {
        name: "gc.auto",
        form: Form::Bool,
        default: "true",
        help: "join packs and free old trash in a process of its own when there is much of it",
        guard: Guard::Words(&["false"]),
    },
    Key {
        name: "prompts",
        form: Form::Choice(&["full", "snippet", "none"]),
        default: "\"full\"",
        help: "how much of a prompt is recorded",
        guard: Guard::Rise(&["none", "snippet", "full"]),
    },
    Key {
        name: "retention.days",
        form: Form::Count,
        default: "30",
        help: "days after a session's last activity until its rows go, but for pinned and `forensic` ones",
        guard: Guard::Lower,
    },
    Key {
        name: "retention.short_days",
        form: Form::Count,
        default: "7",
        help: "days that rows of the class `short` are kept",
        guard: Guard::Lower,
    },
    Key {
        name: "retention.rows",
        form: Form::Count,
        default: "100",
        help: "automatic rows kept per session, windows of tools going with their turns; its first row, pinned, manual, safety and `forensic` ones do not count",
        guard: Guard::Lower,
    },
    Key {
        name: "picker",
        form: Form::Choice(&["auto", "screen", "plain"]),
        default: "\"auto\"",
        help: "how `rewind` without an argument asks: on the whole screen, or in plain numbered questions for screen readers; `auto`: plain where TERM is `dumb` or not set",
        guard: Guard::Free,
    },
    Key {
        name: "shared_store",
        form: Form::Bool,
        default: "false",
        help: "allow a store on a network file system",
        guard: Guard::Words(&["true"]),
    },
    Key {
        name: "windows_names",
        form: Form::Choice(&["auto", "keep", "leave-out"]),
        default: "\"auto\"",
        help: "names that Windows takes for devices (`NUL`, `com1.txt`): `auto` leaves them out on Windows only",
        guard: Guard::Words(&["leave-out"]),
    },
];

/// Finds a key.
pub fn key(name: &str) -> Result<&'static Key> {
    KEYS.iter().find(|k| k.name == name).ok_or_else(|| {
        Error::new(Code::BadSetting, format!("there is no setting {name:?}"))
            .hint("`backstitch config list` shows all of them")
    })
}

/// The environment variable of a setting: `limits.new_file` is `BACKSTITCH_LIMITS_NEW_FILE`.
pub fn env_name(k: &Key) -> String {
    format!("BACKSTITCH_{}", k.name.replace('.', "_").to_ascii_uppercase())
}

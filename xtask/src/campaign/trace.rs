//! What strace wrote: which system calls a run makes, and where each belongs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// Where a call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A pack, or its temporary.
    Pack,
    /// The index of a pack, or its temporary.
    Index,
    /// An object by itself.
    Loose,
    /// A ref, packed or not, or its temporary.
    Ref,
    /// The manifest.
    Manifest,
    /// Caches.
    State,
    /// The journal of a restore.
    Journal,
    /// The files of the locks.
    Lock,
    /// Files put aside.
    Parked,
    /// The rest of the store.
    Store,
    /// A temporary of ours in the work tree.
    Temporary,
    /// The user's files.
    WorkTree,
    /// Files outside the workspace.
    Outside,
    /// Settings, of the user and of agents.
    Settings,
    /// Libraries, terminals, the rest of the machine.
    Elsewhere,
}

impl Class {
    /// Each of them.
    pub const ALL: [Class; 15] = [
        Class::Pack,
        Class::Index,
        Class::Loose,
        Class::Ref,
        Class::Manifest,
        Class::State,
        Class::Journal,
        Class::Lock,
        Class::Parked,
        Class::Store,
        Class::Temporary,
        Class::WorkTree,
        Class::Outside,
        Class::Settings,
        Class::Elsewhere,
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Pack => "store: pack",
            Class::Index => "store: pack index",
            Class::Loose => "store: loose object",
            Class::Ref => "store: ref",
            Class::Manifest => "store: manifest",
            Class::State => "store: state",
            Class::Journal => "store: journal",
            Class::Lock => "store: lock",
            Class::Parked => "store: parked",
            Class::Store => "store: other",
            Class::Temporary => "work tree: temporary",
            Class::WorkTree => "work tree",
            Class::Outside => "outside",
            Class::Settings => "settings",
            Class::Elsewhere => "elsewhere",
        })
    }
}

/// One system call of a run.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// The how-manieth of this name it is in its thread; strace counts the same way.
    pub nth: usize,
    /// Where it works.
    pub class: Class,
    /// Whether it changes something that outlives the run.
    pub changes: bool,
    /// Whether it goes to the standard output or error.
    pub output: bool,
}

/// The folders by which calls are told apart.
pub struct Places<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// A folder outside it.
    pub elsewhere: &'a Path,
    /// The base folder of the stores.
    pub stores: &'a Path,
    /// The home.
    pub home: &'a Path,
}

const CHANGES: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "copy_file_range",
    "sendfile",
    "splice",
    "ftruncate",
    "truncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "fchownat",
    "lchown",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "msync",
];

/// Reads a log of `strace -f -y -s 0 -o`. Lines that are no beginning of a call are passed over.
pub fn read(log: &str, places: &Places<'_>) -> Vec<Call> {
    let mut counts: BTreeMap<(u32, String), usize> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let (Ok(thread), rest) = (thread.parse::<u32>(), rest.trim_start()) else { continue };
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            continue;
        }
        let nth = counts.entry((thread, name.to_owned())).or_default();
        *nth += 1;
        let creates =
            name.starts_with("open") && (arguments.contains("O_CREAT") || arguments.contains("O_TRUNC"));
        let shares = name == "mmap" && arguments.contains("MAP_SHARED") && arguments.contains("PROT_WRITE");
        let locks = name == "flock" || (name == "fcntl" && arguments.contains("SETLK"));
        calls.push(Call {
            name: name.to_owned(),
            nth: *nth,
            class: classify(arguments, places),
            changes: creates || shares || locks || CHANGES.contains(&name),
            output: arguments.starts_with("1<") || arguments.starts_with("2<"),
        });
    }
    calls
}

/// The most telling class among the paths that a call names. A renamed file belongs where it goes.
fn classify(arguments: &str, places: &Places<'_>) -> Class {
    let paths = paths(arguments);
    paths
        .iter()
        .rev()
        .map(|path| class_of(path, places))
        .find(|class| *class != Class::Elsewhere)
        .unwrap_or(Class::Elsewhere)
}

/// The paths in the arguments of a call: `5</a/b>` with a name after it is `/a/b/name`.
fn paths(arguments: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut base: Option<String> = None;
    let mut rest = arguments;
    while let Some(at) = rest.find(['<', '"']) {
        let tail = &rest[at + 1..];
        let close = if rest.as_bytes()[at] == b'<' { '>' } else { '"' };
        let Some(end) = tail.find(close) else { break };
        let text = &tail[..end];
        if close == '>' {
            if let Some(folder) = base.replace(text.to_owned()) {
                out.push(folder);
            }
        } else if text.starts_with('/') {
            base = None;
            out.push(text.to_owned());
        } else if let Some(folder) = base.take() {
            out.push(if text.is_empty() { folder } else { format!("{folder}/{text}") });
        }
        rest = &tail[end + 1..];
    }
    out.extend(base);
    out
}

fn class_of(path: &str, places: &Places<'_>) -> Class {
    let path = path.trim_end_matches("(deleted)");
    let below = |folder: &Path| {
        path.strip_prefix(&*folder.to_string_lossy()).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(inside) = below(places.workspace) {
        // A file that has no name yet is shown as `#` and its inode.
        let unnamed = |part: &str| {
            part.len() > 1 && part.starts_with('#') && part[1..].bytes().all(|b| b.is_ascii_digit())
        };
        let ours = inside.split('/').any(|part| part.starts_with(".backstitch-tmp-") || unnamed(part));
        return if ours { Class::Temporary } else { Class::WorkTree };
    }
    if let Some(inside) = below(places.elsewhere) {
        let ours = inside.split('/').any(|part| part.starts_with(".backstitch-tmp-"));
        return if ours { Class::Temporary } else { Class::Outside };
    }
    let Some(inside) = below(places.stores) else {
        return if below(places.home).is_some() { Class::Settings } else { Class::Elsewhere };
    };
    let mut class = Class::Store;
    for part in inside.split('/') {
        class = match (class, part) {
            (Class::Store, "pack") => Class::Pack,
            (Class::Store, "refs" | "packed-refs" | "logs") => Class::Ref,
            (Class::Store, "state") => Class::State,
            (Class::Store, "journal") => Class::Journal,
            (Class::Store, "locks") => Class::Lock,
            (Class::Store, "parked") => Class::Parked,
            (Class::Store, _) if part.starts_with("packed-refs") => Class::Ref,
            (Class::Store, _) if part.contains("manifest") => Class::Manifest,
            (Class::Store, _) if part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Class::Loose
            }
            (Class::Pack, _) if part.contains("idx") => Class::Index,
            (class, _) => class,
        };
    }
    class
}

/// The calls that can be hit: those that touch what we look at, each name and number once. Where threads share the work, several
/// calls have one number, and the first that comes to it is hit.
pub fn places_to_hit(calls: &[Call], suitable: impl Fn(&Call) -> bool) -> Vec<&Call> {
    let mut seen = BTreeSet::new();
    calls
        .iter()
        .filter(|c| c.class != Class::Elsewhere && suitable(c))
        .filter(|c| seen.insert((&c.name, c.nth)))
        .collect()
}

/// Chooses `wanted` of these calls: a third spread evenly over all of them, a third over those that change something, a third over
/// those that change the store, which are few and decide much. The first and the last of each are taken. With fewer calls than
/// wanted, all are.
pub fn spread(all: &[&Call], wanted: usize) -> Vec<Call> {
    let in_tree = |c: &Call| matches!(c.class, Class::WorkTree | Class::Temporary);
    let mut taken = vec![false; all.len()];
    let mut left = wanted.min(all.len());
    let mut take = |count: usize, from: &dyn Fn(&Call) -> bool| {
        let open: Vec<usize> = (0..all.len()).filter(|n| !taken[*n] && from(all[*n])).collect();
        let count = count.min(open.len()).min(left);
        for n in 0..count {
            let at = if count == 1 { open.len() - 1 } else { n * (open.len() - 1) / (count - 1) };
            taken[open[at]] = true;
        }
        left -= count;
    };
    take(wanted / 3, &|c| c.changes && !in_tree(c));
    take(wanted / 3, &|c| c.changes);
    take(wanted, &|_| true);
    all.iter().zip(taken).filter(|(_, t)| *t).map(|(c, _)| (*c).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"100   execve("/usr/bin/x", ...) = 0
100   openat(AT_FDCWD</h>, "/lib/libc.so", O_RDONLY|O_CLOEXEC) = 3</lib/libc.so>
100   openat(AT_FDCWD</h>, "/h/stores/s/n-1/git/objects/pack/tmp_1.pack", O_WRONLY|O_CREAT|O_EXCL, 0600) = 4</h/stores/s/n-1/git/objects/pack/tmp_1.pack>
101   statx(5</w>, "file", AT_SYMLINK_NOFOLLOW, STATX_ALL <unfinished ...>
100   write(4</h/stores/s/n-1/git/objects/pack/tmp_1.pack>, ""..., 90) = 90
101   <... statx resumed>, {...}) = 0
100   renameat2(6</h/stores/s/n-1/git/objects/pack>, "tmp_1.idx", 6</h/stores/s/n-1/git/objects/pack>, "pack-1.idx", 0) = 0
100   renameat2(7</w>, ".backstitch-tmp-9", 7</w>, "file", RENAME_EXCHANGE) = 0
101   unlinkat(7</w>, ".backstitch-tmp-9", 0) = ?
101   +++ killed by SIGKILL +++
"#;

    fn places() -> Places<'static> {
        Places {
            workspace: Path::new("/w"),
            elsewhere: Path::new("/e"),
            stores: Path::new("/h/stores"),
            home: Path::new("/h"),
        }
    }

    fn calls() -> Vec<Call> {
        read(LOG, &places())
    }

    #[test]
    fn calls_are_counted_by_thread_and_classed_by_path() {
        let seen: Vec<(String, usize, Class, bool)> =
            calls().into_iter().map(|c| (c.name, c.nth, c.class, c.changes)).collect();
        let expected = [
            ("execve", 1, Class::Elsewhere, false),
            ("openat", 1, Class::Elsewhere, false),
            ("openat", 2, Class::Pack, true),
            ("statx", 1, Class::WorkTree, false),
            ("write", 1, Class::Pack, true),
            ("renameat2", 1, Class::Index, true),
            ("renameat2", 2, Class::WorkTree, true),
            ("unlinkat", 1, Class::Temporary, true),
        ];
        assert_eq!(seen, expected.map(|(n, i, c, m)| (n.to_owned(), i, c, m)));
    }

    #[test]
    fn places_in_the_store_are_told_apart() {
        let places = places();
        for (path, class) in [
            ("/h/stores/s/n/git/refs/backstitch/checkpoints/1", Class::Ref),
            ("/h/stores/s/n/git/packed-refs.tmp", Class::Ref),
            ("/h/stores/s/n/git/objects/ab/cdef", Class::Loose),
            ("/h/stores/s/n/journal/op", Class::Journal),
            ("/h/stores/s/n/state/table", Class::State),
            ("/h/stores/s/n/locks/store", Class::Lock),
            ("/h/stores/s/n/manifest.json", Class::Manifest),
            ("/h/stores/s/n/git/config", Class::Store),
            ("/h/config/backstitch/config.toml", Class::Settings),
            ("/w/hostile/#10011311", Class::Temporary),
            ("/w/hostile/#hash", Class::WorkTree),
            ("/e/notes.txt", Class::Outside),
            ("/e/.backstitch-tmp-1-x0", Class::Temporary),
            ("/wider", Class::Elsewhere),
            ("/etc/passwd", Class::Elsewhere),
        ] {
            assert_eq!(class_of(path, &places), class, "{path}");
        }
    }

    #[test]
    fn chosen_calls_are_spread_and_never_elsewhere() {
        let calls: Vec<Call> = (0..1000)
            .map(|n| Call {
                name: "x".into(),
                nth: n,
                class: if n < 100 {
                    Class::Elsewhere
                } else if n % 20 == 0 {
                    Class::Journal
                } else {
                    Class::WorkTree
                },
                changes: n % 10 == 0,
                output: false,
            })
            .collect();
        let all = places_to_hit(&calls, |_| true);
        let chosen = spread(&all, 42);
        assert_eq!(chosen.len(), 42);
        assert!(chosen.iter().filter(|c| c.changes).count() >= 28);
        assert!(chosen.iter().filter(|c| c.class == Class::Journal).count() >= 14);
        assert!(chosen.iter().all(|c| c.nth >= 100));
        let mut places: Vec<usize> = chosen.iter().map(|c| c.nth).collect();
        assert_eq!((places[0], places[41]), (100, 999));
        places.dedup();
        assert_eq!(places.len(), 42);
        assert!(places.windows(2).all(|w| w[1] - w[0] < 80), "{places:?}");
        assert_eq!(spread(&all, 5000).len(), 900);
        assert!(places_to_hit(&calls, |_| false).is_empty());
        let twice = [calls.clone(), calls.clone()].concat();
        assert_eq!(places_to_hit(&twice, |_| true).len(), 900);
    }
}

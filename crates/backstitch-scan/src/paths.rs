//! Looking at named paths only.

use std::{
    collections::HashSet,
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use bstr::{BStr, BString, ByteSlice};
use rustix::io::Errno;

use crate::{
    Table, builtin,
    clock::{Clock, SystemClock},
    handle::{self, Hint, Names, Node as Seen},
    repository::{self, GitDirs},
    rules::{DirRules, State, read_both},
    table::record::Record,
    types::{Found, FoundWhat, Kind, Options, Reason, ScanError, Sink, Skip, Stat},
    walk::{
        self, Ground, Halt, Start, Walk, Worker,
        examine::{Place, is_dot_git},
        node::{Done, KEEP, Node, items},
    },
};

/// Looks at the paths `paths` (literal, relative to `root`) and nothing else.
///
/// Rules do not apply: a named path is looked at, up to [`Limits::grown_file`](crate::Limits::grown_file). A directory is
/// scanned whole, and below it the rules apply. A link in a parent component is never followed: such a path is a
/// [`Reason::Scope`] skip, as is one that is not relative, has `.` or `..` in it, or is reserved for a restore's
/// temporaries. The answers come in the order of the paths.
pub fn scan_paths<S: Sink>(
    root: &Path,
    paths: &[BString],
    table: Option<&Table>,
    sink: &S,
    options: &Options<'_>,
) -> Result<Vec<Found>, ScanError> {
    scan_paths_at(root, paths, table, sink, options, &SystemClock)
}

/// [`scan_paths`] with a clock of the caller's.
pub fn scan_paths_at<S: Sink>(
    root: &Path,
    paths: &[BString],
    table: Option<&Table>,
    sink: &S,
    options: &Options<'_>,
    clock: &dyn Clock,
) -> Result<Vec<Found>, ScanError> {
    let fd =
        handle::open_root(root).map_err(|e| ScanError::Io { path: root.to_owned(), source: e.into() })?;
    let ground = Ground {
        root,
        sink,
        options,
        clock,
        git_dirs: &HashSet::new(),
        dropped: &HashSet::new(),
        named: true,
        quiet: None,
    };
    let search = Search { ground, root: Arc::new(fd), table };
    let mut worker = Worker::new(sink.scratch());
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        if options.interrupt.load(Ordering::Relaxed) {
            return Err(ScanError::Interrupted);
        }
        let what = match search.find(&mut worker, path.as_bstr()) {
            Ok(what) => what,
            Err(Halt::Error(e)) => return Err(e),
            Err(Halt::Stopped) => return Err(ScanError::Interrupted),
        };
        found.push(Found { path: path.clone(), what });
    }
    Ok(found)
}

struct Search<'t, 'o, S> {
    ground: Ground<'o, S>,
    root: Arc<OwnedFd>,
    table: Option<&'t Table>,
}

/// A directory on the way to a named path.
struct Step<'t> {
    fd: Arc<OwnedFd>,
    stat: Stat,
    path: BString,
    record: Option<Record<'t>>,
}

fn skip(path: &BStr, reason: Reason, is_dir: bool, detail: Option<&str>) -> FoundWhat {
    FoundWhat::Skip(Skip {
        path: path.into(),
        reason,
        bytes: None,
        detail: detail.map(str::to_owned),
        is_dir,
    })
}

fn unreadable(path: &BStr, e: Errno) -> FoundWhat {
    skip(path, Reason::Unreadable, false, Some(&handle::error_text(&e.into())))
}

impl<'t, S: Sink> Search<'t, '_, S> {
    fn find(&self, w: &mut Worker<'t, S>, path: &BStr) -> Result<FoundWhat, Halt> {
        if self.ground.options.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(skip(path, Reason::Time, false, None));
        }
        let stat = match handle::stat_fd(&self.root) {
            Ok(Seen::Covered(stat)) => stat,
            Ok(_) => return Ok(skip(path, Reason::Unreadable, false, Some("the root is no directory"))),
            Err(e) => return Ok(unreadable(path, e)),
        };
        let record = self.table.and_then(|t| t.0.record(0));
        let mut steps = vec![Step { fd: self.root.clone(), stat, path: BString::default(), record }];
        if path.is_empty() {
            return self.directory(&steps, None, path);
        }
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let odd = |part: &&[u8]| part.is_empty() || *part == b"." || *part == b".." || part.contains(&0);
        if parts.iter().any(odd) {
            return Ok(skip(path, Reason::Scope, false, Some("not a path below the root")));
        }
        if parts.iter().any(|part| walk::is_reserved(part)) {
            return Ok(skip(path, Reason::Scope, false, Some("reserved for temporaries")));
        }
        if self.ground.options.rules.0.settings.device_names
            && parts.iter().any(|part| builtin::is_device_name(part))
        {
            return Ok(skip(path, Reason::Excluded, false, Some("a device of Windows")));
        }
        if self.ground.options.rules.is_never(path, false) {
            return Ok(skip(path, Reason::NeverStored, false, None));
        }
        let mut git_dirs = HashSet::new();
        for (i, part) in parts.iter().enumerate() {
            // Without NULs, as was just asked.
            let Ok(name) = CString::new(*part) else { return Ok(skip(path, Reason::Scope, false, None)) };
            let here = &steps[steps.len() - 1];
            if is_dot_git(here.fd.as_fd(), &name, None) {
                return Ok(skip(path, Reason::Git, false, None));
            }
            git_dirs.extend(self.gitfile(here)?);
            let place = match handle::stat_at(here.fd.as_fd(), &name) {
                Ok(seen) => seen,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(FoundWhat::Absent),
                Err(e) => return Ok(unreadable(path, e)),
            };
            let last = i + 1 == parts.len();
            match place {
                Seen::Covered(stat) if stat.kind == Kind::Dir => {
                    let key = (stat.dev, stat.ino);
                    if git_dirs.contains(&key) {
                        return Ok(skip(path, Reason::Git, last, None));
                    }
                    if last && self.ground.options.rules.is_never(path, true) {
                        return Ok(skip(path, Reason::NeverStored, true, None));
                    }
                    if self.ground.options.never.contains(&key) {
                        return Ok(skip(path, Reason::Store, last, None));
                    }
                    match self.step(here, &name) {
                        Ok(next) => steps.push(next),
                        Err(Errno::NOENT) => return Ok(FoundWhat::Absent),
                        Err(e) => return Ok(unreadable(path, e)),
                    }
                }
                Seen::Covered(_) if last => return self.leaf(w, here, &name, path),
                Seen::Special(special, ..) if last => {
                    return Ok(skip(path, Reason::Special(special), false, None));
                }
                Seen::Covered(stat) if stat.kind == Kind::Link => {
                    return Ok(skip(path, Reason::Scope, false, Some("a parent is a symbolic link")));
                }
                _ => return Ok(FoundWhat::Absent),
            }
        }
        self.directory(&steps, Some(&parts), path)
    }

    fn step(&self, here: &Step<'t>, name: &std::ffi::CStr) -> Result<Step<'t>, Errno> {
        let fd = handle::open_dir(here.fd.as_fd(), name)?;
        let Seen::Covered(stat) = handle::stat_fd(&fd)? else { return Err(Errno::STALE) };
        let raw = name.to_bytes().as_bstr();
        let entry = here.record.and_then(|r| r.find(raw).map(|i| r.entry(i)));
        let record = entry.and_then(|e| e.directory()).and_then(|id| self.table.and_then(|t| t.0.record(id)));
        Ok(Step { fd: Arc::new(fd), stat, path: handle::join(&here.path, raw), record })
    }

    /// What the gitfile in a directory points to.
    fn gitfile(&self, here: &Step<'t>) -> Result<Option<(u64, u64)>, ScanError> {
        match handle::stat_at(here.fd.as_fd(), c".git") {
            Ok(Seen::Covered(stat)) if stat.kind == Kind::File => {}
            _ => return Ok(None),
        }
        let file = walk::below(self.ground.root, here.path.as_bstr()).join(".git");
        Ok(repository::place_of_gitfile(&file)?.map(|(place, _)| place))
    }

    fn leaf(
        &self,
        w: &mut Worker<'t, S>,
        here: &Step<'t>,
        name: &std::ffi::CStr,
        path: &BStr,
    ) -> Result<FoundWhat, Halt> {
        let start = Start { fd: here.fd.clone(), path: here.path.clone(), rules: None, record: here.record };
        let walk = Walk::new(&self.ground, self.table.map(|t| &*t.0), start);
        let mut names = Names::default();
        names.push(name.to_bytes(), Hint::Other);
        let node = Arc::new(Node {
            parent: None,
            stat: here.stat,
            xattrs: None,
            id: 0,
            record: here.record,
            flags: 0,
            decision: KEEP,
            state: State::Normal,
            digest: Default::default(),
            index: 0,
            index_changed: true,
            decided: false,
            loud: false,
            heard: None,
            rules: OnceLock::new(),
            fd: Mutex::new(Some(here.fd.clone())),
            body: items(&names, here.record),
            pending: AtomicU32::new(1),
            done: Mutex::default(),
        });
        let place = Place { node: &node, fd: here.fd.as_fd(), matcher: None, clock: walk.clock.now_ns() };
        Ok(match walk.read_named(w, place)? {
            Done::Leaf { stat, oid, xattrs, .. } => {
                FoundWhat::Leaf { stat, id: oid, xattrs: xattrs.map(|x| *x) }
            }
            Done::Skip { reason, is_dir, size, detail, .. } => {
                FoundWhat::Skip(Skip { path: path.into(), reason, bytes: size, detail, is_dir })
            }
            Done::Absent => FoundWhat::Absent,
            Done::Dir { .. } => skip(path, Reason::Unstable, true, None),
        })
    }

    /// Scans the last of `steps` whole.
    fn directory(&self, steps: &[Step<'t>], parts: Option<&[&[u8]]>, path: &BStr) -> Result<FoundWhat, Halt> {
        let last = &steps[steps.len() - 1];
        let rules = match parts.and_then(|parts| parts.split_last()) {
            Some((name, above)) => {
                let mut rules = self.rules(&steps[0], None)?;
                for (step, name) in steps[1..].iter().zip(above) {
                    rules = self.rules(step, Some((&rules, name.as_bstr())))?;
                }
                Some((rules, BString::from(*name)))
            }
            None => None,
        };
        let start = Start { fd: last.fd.clone(), path: path.into(), rules, record: last.record };
        let ground = Ground { named: false, ..self.ground };
        let pass = walk::run(&ground, self.table, &start)?;
        Ok(match pass.ids {
            Some((ids, stat, xattrs)) => {
                FoundWhat::Dir { stat, ids, skips: pass.outcome.skips, xattrs: xattrs.map(|x| *x) }
            }
            None => skip(path, Reason::Limit, true, Some("too many entries")),
        })
    }

    /// The rules below a directory on the way.
    fn rules(&self, step: &Step<'t>, above: Option<(&DirRules, &BStr)>) -> Result<DirRules, ScanError> {
        let dir = walk::below(self.ground.root, step.path.as_bstr());
        let (git, own) = read_both(step.fd.as_fd(), &dir)?;
        let rules = self.ground.options.rules;
        let Some((above, name)) = above else { return Ok(rules.root(git.as_deref(), own.as_deref())) };
        let repo = match GitDirs::of(&dir)? {
            Some(dirs) => Some(Arc::new(repository::read_repo(&dir, &dirs, &rules.0.settings)?)),
            None => None,
        };
        Ok(above.child(name, State::Normal, git.as_deref(), own.as_deref(), repo))
    }
}

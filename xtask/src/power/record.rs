//! From a log of strace to what was done to the disk.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::disk::{Body, Change, Cover, Disk, Ino, ROOT};
use crate::Result;

/// The calls that are recorded. Whatever else changes a file would show as a difference between model and disk at the end.
const CALLS: &str = "open,openat,creat,read,write,pwrite64,writev,pwritev,pwritev2,lseek,truncate,ftruncate,fallocate,\
    copy_file_range,sendfile,splice,mmap,fsync,fdatasync,sync_file_range,syncfs,sync,msync,rename,renameat,renameat2,\
    link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,chmod,fchmod,fchmodat,?fchmodat2,\
    chdir,fchdir,close,?close_range,dup,dup2,dup3,fcntl,clone,?clone3,fork,vfork,execve";

/// The words that run a program so that its log can be read here.
pub fn strace(log: &Path) -> Vec<String> {
    let calls: String = CALLS.split_whitespace().collect();
    ["strace", "-f", "-xx", "-s", "67108864", "-e", &format!("trace={calls}"), "-o"]
        .map(str::to_owned)
        .into_iter()
        .chain([log.to_string_lossy().into_owned(), "--".to_owned()])
        .collect()
}

/// An open file.
struct Open {
    ino: Ino,
    at: usize,
    append: bool,
    /// By which it was opened.
    path: String,
}

type Fd = Rc<RefCell<Open>>;

/// What threads of one process share.
#[derive(Default)]
struct Process {
    cwd: PathBuf,
    fds: HashMap<i64, Fd>,
}

/// Reads logs into a disk.
pub struct Recorder<'a> {
    root: &'a Path,
    disk: &'a mut Disk,
    threads: HashMap<u32, Rc<RefCell<Process>>>,
}

/// One call with its arguments, as strace shows it.
struct Call<'a> {
    thread: u32,
    name: &'a str,
    args: Vec<&'a str>,
    /// What it gave; negative where it failed.
    result: i64,
}

impl<'a> Recorder<'a> {
    /// For what happens below `root`, which `disk` is a model of.
    pub fn new(root: &'a Path, disk: &'a mut Disk) -> Recorder<'a> {
        Recorder { root, disk, threads: HashMap::new() }
    }

    /// Takes over what a run did that began in `cwd`.
    pub fn log(&mut self, log: &str, cwd: &Path) -> Result<()> {
        self.threads.clear();
        // Who was made by whom: a child's first call may stand before its parent's return.
        let mut parents: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        let mut begun: HashMap<u32, (String, usize)> = HashMap::new();
        let mut lines = Vec::new();
        for line in log.lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let (Ok(thread), rest) = (thread.parse::<u32>(), rest.trim()) else { continue };
            let (text, start) = if let Some(text) = rest.strip_suffix("<unfinished ...>") {
                if text.starts_with("close(") {
                    // The number is free as soon as the call works, and another thread may show up with it before it returns.
                    lines.push((thread, Some(format!("{})  = 0", text.trim_end())), lines.len()));
                    continue;
                }
                lines.push((thread, None, 0));
                begun.insert(thread, (text.trim_end().to_owned(), lines.len() - 1));
                continue;
            } else if rest.starts_with("<... ") {
                let Some((text, start)) = begun.remove(&thread) else { continue };
                let Some((_, end)) = rest.split_once(" resumed>") else { continue };
                (format!("{text}{end}"), Some(start))
            } else if rest.starts_with(['+', '-']) {
                continue;
            } else {
                (rest.to_owned(), None)
            };
            if let Some(call) = parse(thread, &text)
                && matches!(call.name, "clone" | "clone3" | "fork" | "vfork")
                && let Ok(child) = u32::try_from(call.result)
            {
                parents.insert(child, (thread, text.contains("CLONE_FILES")));
            }
            lines.push((thread, Some(text), start.unwrap_or(lines.len())));
        }
        // How many events there were when a line was reached.
        let mut reached = Vec::with_capacity(lines.len());
        for (thread, text, start) in &lines {
            reached.push(self.disk.len());
            let Some(text) = text else { continue };
            let call =
                parse(*thread, text).ok_or_else(|| format!("a line that cannot be read: {}", short(text)))?;
            let process = self.process(*thread, &parents, cwd);
            self.call(&call, &process, reached[*start]).map_err(|e| format!("{e}: {}", short(text)))?;
        }
        Ok(())
    }

    fn process(
        &mut self,
        thread: u32,
        parents: &BTreeMap<u32, (u32, bool)>,
        cwd: &Path,
    ) -> Rc<RefCell<Process>> {
        if let Some(known) = self.threads.get(&thread) {
            return known.clone();
        }
        let process = match parents.get(&thread) {
            Some((parent, true)) => self.process(*parent, parents, cwd),
            Some((parent, false)) => {
                let parent = self.process(*parent, parents, cwd);
                let parent = parent.borrow();
                Rc::new(RefCell::new(Process { cwd: parent.cwd.clone(), fds: parent.fds.clone() }))
            }
            None => Rc::new(RefCell::new(Process { cwd: cwd.to_path_buf(), fds: HashMap::new() })),
        };
        self.threads.insert(thread, process.clone());
        process
    }

    /// The directory and the name of a path below the root; nothing if it is elsewhere.
    fn place(&self, process: &Process, base: &str, path: &[u8]) -> Result<Option<(Ino, Vec<u8>)>> {
        let (mut dir, rest) = if path.starts_with(b"/") || base.starts_with("AT_FDCWD") {
            let path = process.cwd.join(std::ffi::OsStr::from_bytes(path));
            let Ok(inside) = path.strip_prefix(self.root) else { return Ok(None) };
            (ROOT, inside.as_os_str().as_bytes().to_vec())
        } else {
            let fd: i64 = base.parse().map_err(|_| "an unknown directory")?;
            let Some(fd) = process.fds.get(&fd) else { return Ok(None) };
            (fd.borrow().ino, path.to_vec())
        };
        let parts: Vec<&[u8]> = rest.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
        let Some((last, above)) = parts.split_last() else { return Ok(Some((dir, Vec::new()))) };
        for part in above {
            if *part == b".." {
                return Err("a path with dots".into());
            }
            dir = match self.disk.find(dir, part) {
                Some(ino) => ino,
                None => return Err("a path that the model does not know".into()),
            };
        }
        Ok(Some((dir, last.to_vec())))
    }

    /// What a path leads to.
    fn inode(&self, place: &(Ino, Vec<u8>)) -> Option<Ino> {
        if place.1.is_empty() { Some(place.0) } else { self.disk.find(place.0, &place.1) }
    }

    fn call(&mut self, c: &Call<'_>, process: &Rc<RefCell<Process>>, began: usize) -> Result<()> {
        if c.result < 0 {
            return Ok(());
        }
        let mut process = process.borrow_mut();
        let arg = |n: usize| c.args.get(n).copied().ok_or("an argument is missing");
        let number = |n: usize| -> Result<i64> { Ok(arg(n)?.parse().map_err(|_| "no number")?) };
        let fd = |n: usize, process: &Process| -> Result<Option<Fd>> {
            Ok(arg(n)?.parse::<i64>().ok().and_then(|fd| process.fds.get(&fd).cloned()))
        };
        match c.name {
            "open" | "creat" | "openat" => {
                let at = usize::from(c.name == "openat");
                let base = if at == 1 { arg(0)? } else { "AT_FDCWD" };
                let flags = if c.name == "creat" { "O_WRONLY|O_CREAT|O_TRUNC" } else { arg(at + 1)? };
                let mode = c.args.get(at + if c.name == "creat" { 1 } else { 2 }).copied();
                let mode = mode.and_then(|m| u32::from_str_radix(m, 8).ok()).unwrap_or(0o644);
                process.fds.remove(&c.result);
                let Some(place) = self.place(&process, base, &string(arg(at)?)?)? else { return Ok(()) };
                let ino = if flags.contains("O_TMPFILE") {
                    self.disk.inode(Body::File(Vec::new()), mode)
                } else {
                    match self.inode(&place) {
                        Some(ino) => ino,
                        None if flags.contains("O_CREAT") => {
                            let ino = self.disk.inode(Body::File(Vec::new()), mode);
                            self.disk.change(Change::Names(vec![(place.0, place.1, Some(ino))]));
                            ino
                        }
                        // Another thread is about to give it this name: its call began earlier and ended later.
                        None if flags.contains("O_RDONLY") => return Ok(()),
                        None => return Err("a file that the model does not know".into()),
                    }
                };
                if flags.contains("O_TRUNC") && self.disk.size(ino) > 0 {
                    self.disk.change(Change::Size(ino, 0));
                }
                let path = String::from_utf8_lossy(&string(arg(at)?)?).into_owned();
                let open = Open { ino, at: 0, append: flags.contains("O_APPEND"), path };
                process.fds.insert(c.result, Rc::new(RefCell::new(open)));
            }
            "close" => drop(process.fds.remove(&number(0)?)),
            "close_range" => {
                let from = number(0)?;
                let to = number(1).unwrap_or(i64::MAX);
                if !c.args.get(2).is_some_and(|f| f.contains("CLOEXEC")) {
                    process.fds.retain(|fd, _| *fd < from || *fd > to);
                }
            }
            "dup" | "dup2" | "dup3" => match fd(0, &process)? {
                Some(open) => drop(process.fds.insert(c.result, open)),
                None => drop(process.fds.remove(&c.result)),
            },
            "fcntl" if arg(1)?.starts_with("F_DUPFD") => match fd(0, &process)? {
                Some(open) => drop(process.fds.insert(c.result, open)),
                None => drop(process.fds.remove(&c.result)),
            },
            // Everything that is opened here is closed by it.
            "execve" => process.fds.clear(),
            "chdir" => process.cwd = PathBuf::from(std::ffi::OsStr::from_bytes(&string(arg(0)?)?)),
            "fchdir" => return Err("not modelled".into()),
            "read" => {
                if let Some(open) = fd(0, &process)? {
                    open.borrow_mut().at += usize::try_from(c.result)?;
                }
            }
            "lseek" => {
                if let Some(open) = fd(0, &process)? {
                    open.borrow_mut().at = usize::try_from(c.result)?;
                }
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                let Some(open) = fd(0, &process)? else { return Ok(()) };
                let mut bytes = string(arg(1)?)?;
                let n = usize::try_from(c.result)?;
                if bytes.len() < n {
                    return Err("the log holds fewer bytes than were written".into());
                }
                bytes.truncate(n);
                let mut open = open.borrow_mut();
                let at = match c.name {
                    "write" | "writev" if open.append => self.disk.size(open.ino),
                    "write" | "writev" => open.at,
                    _ => usize::try_from(number(3)?)?,
                };
                if matches!(c.name, "write" | "writev") {
                    open.at = at + n;
                }
                if n > 0 {
                    self.disk.change(Change::Write(open.ino, at, bytes));
                }
            }
            "ftruncate" => {
                let Some(open) = fd(0, &process)? else { return Ok(()) };
                let (ino, len) = (open.borrow().ino, usize::try_from(number(1)?)?);
                if self.disk.size(ino) != len {
                    self.disk.change(Change::Size(ino, len));
                }
            }
            "fsync" | "fdatasync" => {
                let Some(open) = fd(0, &process)? else { return Ok(()) };
                let ino = open.borrow().ino;
                let whole = c.name == "fsync" || !self.disk.is_file(ino);
                let path = open.borrow().path.clone();
                let path = path.strip_prefix(&*self.root.to_string_lossy()).unwrap_or(&path).to_owned();
                let cover = if whole { Cover::Whole(ino) } else { Cover::Data(ino) };
                self.disk.sync(cover, began, format!("{} {path}", c.name));
            }
            "syncfs" | "sync" => self.disk.sync(Cover::All, began, c.name.to_owned()),
            // It promises nothing.
            "sync_file_range" => {}
            "mkdir" | "mkdirat" => {
                let at = usize::from(c.name == "mkdirat");
                let base = if at == 1 { arg(0)? } else { "AT_FDCWD" };
                let mode = u32::from_str_radix(arg(at + 1)?, 8)? & !0o022;
                if let Some((dir, name)) = self.place(&process, base, &string(arg(at)?)?)? {
                    let ino = self.disk.inode(Body::Dir, mode);
                    self.disk.change(Change::Names(vec![(dir, name, Some(ino))]));
                }
            }
            "symlink" | "symlinkat" => {
                let base = if c.name == "symlinkat" { arg(1)? } else { "AT_FDCWD" };
                let path = string(arg(c.args.len() - 1)?)?;
                if let Some((dir, name)) = self.place(&process, base, &path)? {
                    let ino = self.disk.inode(Body::Link(string(arg(0)?)?), 0o777);
                    self.disk.change(Change::Names(vec![(dir, name, Some(ino))]));
                }
            }
            "unlink" | "rmdir" | "unlinkat" => {
                let at = usize::from(c.name == "unlinkat");
                let base = if at == 1 { arg(0)? } else { "AT_FDCWD" };
                if let Some((dir, name)) = self.place(&process, base, &string(arg(at)?)?)? {
                    self.disk.change(Change::Names(vec![(dir, name, None)]));
                }
            }
            "rename" | "renameat" | "renameat2" => {
                let at = usize::from(c.name != "rename");
                let (one, two) = if at == 1 { (arg(0)?, arg(2)?) } else { ("AT_FDCWD", "AT_FDCWD") };
                let from = self.place(&process, one, &string(arg(at)?)?)?;
                let to = self.place(&process, two, &string(arg(2 * at + 1)?)?)?;
                let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
                let moved = self.inode(&from).ok_or("a name that the model does not know")?;
                let exchange = c.args.last().is_some_and(|f| f.contains("RENAME_EXCHANGE"));
                let other = if exchange { self.inode(&to) } else { None };
                self.disk.change(Change::Names(vec![(from.0, from.1, other), (to.0, to.1, Some(moved))]));
            }
            "link" | "linkat" => {
                let at = usize::from(c.name == "linkat");
                let (one, two) = if at == 1 { (arg(0)?, arg(2)?) } else { ("AT_FDCWD", "AT_FDCWD") };
                let path = string(arg(at)?)?;
                let ino = match path.strip_prefix(b"/proc/self/fd/") {
                    Some(fd) => {
                        let fd: i64 = std::str::from_utf8(fd)?.parse()?;
                        process.fds.get(&fd).map(|open| open.borrow().ino)
                    }
                    None => self.place(&process, one, &path)?.and_then(|place| self.inode(&place)),
                };
                let to = self.place(&process, two, &string(arg(2 * at + 1)?)?)?;
                if let (Some(ino), Some((dir, name))) = (ino, to) {
                    self.disk.change(Change::Names(vec![(dir, name, Some(ino))]));
                }
            }
            "chmod" | "fchmodat" | "fchmodat2" => {
                let at = usize::from(c.name != "chmod");
                let base = if at == 1 { arg(0)? } else { "AT_FDCWD" };
                let mode = u32::from_str_radix(arg(at + 1)?, 8)?;
                let path = string(arg(at)?)?;
                let ino = match path.strip_prefix(b"/proc/self/fd/") {
                    Some(fd) => {
                        let fd: i64 = std::str::from_utf8(fd)?.parse()?;
                        process.fds.get(&fd).map(|open| open.borrow().ino)
                    }
                    None => self.place(&process, base, &path)?.and_then(|place| self.inode(&place)),
                };
                if let Some(ino) = ino {
                    self.disk.change(Change::Mode(ino, mode));
                }
            }
            "fchmod" => {
                if let Some(open) = fd(0, &process)? {
                    let ino = open.borrow().ino;
                    self.disk.change(Change::Mode(ino, u32::from_str_radix(arg(1)?, 8)?));
                }
            }
            "mmap" => {
                let shared = arg(3)?.contains("MAP_SHARED") && arg(2)?.contains("PROT_WRITE");
                if shared && fd(4, &process)?.is_some() {
                    return Err("not modelled".into());
                }
            }
            "fallocate" | "copy_file_range" | "sendfile" | "splice" | "truncate" | "mknod" | "mknodat" => {
                let to = match c.name {
                    "copy_file_range" | "splice" => 2,
                    _ => 0,
                };
                if fd(to, &process)?.is_some() || c.name.starts_with("mk") || c.name == "truncate" {
                    return Err("not modelled".into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A line for messages.
fn short(text: &str) -> String {
    let mut out: String = text.chars().take(300).collect();
    out.push_str(" ... ");
    out.extend(text.chars().rev().take(120).collect::<Vec<_>>().into_iter().rev());
    out
}

/// `name(arguments) = result`. Nothing where there is no result.
fn parse(thread: u32, text: &str) -> Option<Call<'_>> {
    let (name, rest) = text.split_once('(')?;
    let (mut depth, mut quoted, mut start) = (0usize, false, 0);
    let mut args = Vec::new();
    let mut end = None;
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                end = Some(at);
                break;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(rest[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let end = end?;
    args.push(rest[start..end].trim());
    let result = rest[end + 1..].trim_start().strip_prefix('=')?.trim_start();
    let result = result.split([' ', '\t']).next()?;
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).unwrap_or(0),
        // A call that never returned did not happen.
        None => result.parse().unwrap_or(-1),
    };
    Some(Call { thread, name, args, result }).filter(|c| c.thread > 0)
}

/// The bytes of all strings in an argument, which strace was told to write in hexadecimal.
fn string(arg: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = arg;
    while let Some(at) = rest.find('"') {
        let tail = &rest[at + 1..];
        let end = tail.find('"').ok_or("a string without an end")?;
        for digits in tail[..end].split("\\x").skip(1) {
            out.push(u8::from_str_radix(digits, 16)?);
        }
        rest = &tail[end + 1..];
        if rest.starts_with("...") {
            return Err("a string was cut off".into());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::disk::{Entry, Landing, Model, Without};

    fn hex(text: &str) -> String {
        let bytes: String = text.bytes().map(|b| format!("\\x{b:02x}")).collect();
        format!("\"{bytes}\"")
    }

    #[test]
    fn threads_offsets_and_interrupted_calls() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::of(dir.path()).unwrap();
        let path = |name: &str| hex(&format!("/w/{name}"));
        let log = [
            format!("10 openat(AT_FDCWD, {}, O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3", path("a")),
            format!("10 write(3, {}, 2) = 2", hex("xy")),
            "10 clone3({flags=CLONE_VM|CLONE_FILES, exit=0} => {parent_tid=[11]}, 88 <unfinished ...>".into(),
            "11 fdatasync(3 <unfinished ...>".into(),
            "10 <... clone3 resumed>) = 11".into(),
            format!("10 write(3, {}, 3) = 3", hex("zzz")),
            "11 <... fdatasync resumed>) = 0".into(),
            "11 +++ exited with 0 +++".into(),
            format!("10 rename({}, {}) = 0", path("a"), path("b")),
            format!("10 unlink({}) = -1 ENOENT (No such file or directory)", path("a")),
            "10 fcntl(3, F_GETFD)                 = 0x1 (flags FD_CLOEXEC)".into(),
            "10 close(3)                          = 0".into(),
            format!("10 write(3, {}, 1) = 1", hex("n")),
        ]
        .join("\n");
        Recorder::new(Path::new("/w"), &mut disk).log(&log, Path::new("/w")).unwrap();
        let all = disk.image(disk.len(), Model::Anything, Landing::Everything, Without::Nothing);
        assert_eq!(all, [(b"b".to_vec(), Entry::File(0o600, b"xyzzz".to_vec()))].into());
        // The sync began before the second write.
        let names = disk.image(disk.len(), Model::Anything, Landing::Names, Without::Nothing);
        assert_eq!(names[&b"b"[..]], Entry::File(0o600, b"xy".to_vec()));
        assert!(disk.image(disk.len(), Model::Anything, Landing::Data, Without::Nothing).is_empty());
    }
}

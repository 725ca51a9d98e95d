//! Doctored stores, trees that strain the system, clocks that jump.

use std::{
    fs,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use backstitch::{
    checkpoint,
    error::Code,
    record::Checkpoint,
    restore,
    workspace::{Control, Workspace},
};
use backstitch_testkit::{
    TreeModel,
    generate::{Rng, noise},
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

use crate::{
    support::{items, open_at},
    world::{World, same},
};

/// Every file of the store that is not only a lock.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for e in fs::read_dir(dir).unwrap().flatten() {
            match e.file_type().unwrap().is_dir() {
                true if e.file_name() == "locks" => {}
                true => open.push(e.path()),
                false => out.push(e.path()),
            }
        }
    }
    out.sort();
    out
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for e in fs::read_dir(from).unwrap().flatten() {
        match e.file_type().unwrap().is_dir() {
            true => copy(&e.path(), &to.join(e.file_name())),
            false => drop(fs::copy(e.path(), to.join(e.file_name())).unwrap()),
        }
    }
}

/// A store with two rows, an operation, packed and loose refs and caches, and a copy of it.
struct Small {
    w: World,
    dir: PathBuf,
    good: PathBuf,
    row: Checkpoint,
    then: TreeModel,
    now: TreeModel,
}

impl Small {
    fn new() -> Small {
        let w = World::new();
        w.write("a", "first");
        w.write("d/b", noise(300, 1));
        w.chmod("d/b", 0o640);
        let row = w.checkpoint();
        let then = w.model();
        w.write("a", "second");
        w.write("d/c", "new");
        w.checkpoint();
        w.restore(&row);
        w.undo().unwrap();
        let now = w.model();
        let dir = w.open().store_dir().to_owned();
        let good = w.dir.path().join("good");
        copy(&dir, &good);
        Small { w, dir, good, row, then, now }
    }

    /// Does what people do with the store as it is now. Everything ends with the truth or an error that says something.
    fn try_out(&self, what: &str) {
        let control = Control::default();
        let say = |e: &backstitch::error::Error| {
            assert!(!e.message.is_empty() && e.code.exit() != 0, "{what}: {e:?}");
        };
        let Ok(ws) = Workspace::open(&self.w.root(), self.w.surroundings.clone()).inspect_err(say) else {
            return;
        };
        let verified = ws.verify(false, &control).inspect_err(say);
        if let Ok(rows) = ws.rows().inspect_err(say) {
            if let Some(c) = rows.by_id(&self.row.record.id).cloned() {
                let _ = ws.check(&c).inspect_err(say);
                match ws.restore(&c, &restore::Options::default(), &control).inspect_err(say) {
                    Ok(o) if !o.partial => same(&self.then, &self.w.model(), what),
                    Ok(_) => {}
                    Err(_) => same(&self.now, &self.w.model(), &format!("{what}: refused")),
                }
            } else {
                let told = !rows.damaged.is_empty() || verified.as_ref().is_ok_and(|v| v["ok"] == false);
                assert!(told || verified.is_err(), "{what}: a row is gone and nobody says so");
            }
        }
        // Whatever stands there now: nothing of ours is left lying, and nothing else was touched.
        for path in self.w.model().entries.keys() {
            assert!(
                self.then.entries.contains_key(path) || self.now.entries.contains_key(path),
                "{what}: {:?}",
                String::from_utf8_lossy(path)
            );
        }
    }

    fn again(&self) {
        fs::remove_dir_all(&self.dir).unwrap();
        copy(&self.good, &self.dir);
        let _ = fs::remove_dir_all(self.w.path("d"));
        self.w.write("a", "second");
        self.w.write("d/b", noise(300, 1));
        self.w.chmod("d/b", 0o640);
        self.w.write("d/c", "new");
    }

    fn with(&self, what: &str, doctor: impl FnOnce()) {
        self.again();
        doctor();
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| self.try_out(what)));
        assert!(done.is_ok(), "{what}");
    }
}

/// All of them take minutes: a sample, and all where fuzzing takes a minute or more.
fn stride(len: usize, most: usize) -> usize {
    let seconds = std::env::var(backstitch_testkit::fuzz::SECONDS).ok().and_then(|s| s.parse::<u64>().ok());
    if seconds.is_some_and(|s| s >= 60) { 1 } else { len.div_ceil(most).max(1) }
}

#[test]
fn r103_any_flipped_byte_of_a_store_is_an_error_or_makes_no_difference() {
    let s = Small::new();
    let mut rng = Rng::new(5);
    for file in files_of(&s.good) {
        let rel = file.strip_prefix(&s.good).unwrap().to_owned();
        let bytes = fs::read(&file).unwrap();
        let step = stride(bytes.len(), 12);
        for at in (rng.below(step)..bytes.len()).step_by(step) {
            let bit = 1u8 << rng.below(8);
            s.with(&format!("{} at {at} bit {bit}", rel.display()), || {
                let f = fs::OpenOptions::new().write(true).open(s.dir.join(&rel)).unwrap();
                f.write_all_at(&[bytes[at] ^ bit], at as u64).unwrap();
            });
        }
    }
}

#[test]
fn r103_files_of_a_store_cut_to_any_length_or_gone() {
    let s = Small::new();
    for file in files_of(&s.good) {
        let rel = file.strip_prefix(&s.good).unwrap().to_owned();
        let bytes = fs::read(&file).unwrap();
        let step = stride(bytes.len(), 5);
        for len in (0..bytes.len()).step_by(step) {
            s.with(&format!("{} cut to {len}", rel.display()), || {
                fs::OpenOptions::new()
                    .write(true)
                    .open(s.dir.join(&rel))
                    .unwrap()
                    .set_len(len as u64)
                    .unwrap();
            });
        }
        // A ref that is gone is a row that was deleted: nothing tells the two apart.
        if rel.starts_with("git/refs/backstitch/checkpoints") {
            continue;
        }
        s.with(&format!("{} gone", rel.display()), || fs::remove_file(s.dir.join(&rel)).unwrap());
        s.with(&format!("{} a directory", rel.display()), || {
            fs::remove_file(s.dir.join(&rel)).unwrap();
            fs::create_dir(s.dir.join(&rel)).unwrap();
        });
    }
}

/// A path of many thousand bytes, by handles: no system call takes it whole.
fn deep_down(root: &Path, levels: usize, make: bool) -> Option<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = openat(CWD, root, flags, Mode::empty()).unwrap();
    for level in 0..levels {
        let name = format!("level-{level:04}");
        if make {
            rustix::fs::mkdirat(&dir, &name, Mode::from_raw_mode(0o755)).unwrap();
        }
        dir = openat(dir, &name, flags, Mode::empty()).ok()?;
    }
    Some(dir)
}

fn remove_deep(root: &Path) {
    // From above, one level at a time: what is below moves up first.
    loop {
        let Ok(below) = fs::read_dir(root.join("level-0000")) else { return };
        for e in below.flatten() {
            match e.file_type().unwrap().is_dir() {
                true => fs::rename(e.path(), root.join("next")).unwrap(),
                false => fs::remove_file(e.path()).unwrap(),
            }
        }
        fs::remove_dir(root.join("level-0000")).unwrap();
        if fs::rename(root.join("next"), root.join("level-0000")).is_err() {
            return;
        }
    }
}

#[test]
fn r109_a_thousand_levels_and_paths_longer_than_the_system_takes_come_back() {
    const LEVELS: usize = 1000;
    let w = World::new();
    w.write("top", "1");
    let put = |text: &[u8]| {
        let dir = deep_down(&w.root(), LEVELS, false).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(dir, "leaf", flags, Mode::from_raw_mode(0o644)).unwrap();
        rustix::io::write(file, text).unwrap();
    };
    let get = || {
        let dir = deep_down(&w.root(), LEVELS, false)?;
        let file = openat(dir, "leaf", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = [0; 16];
        let n = rustix::io::read(file, &mut bytes).unwrap();
        Some(bytes[..n].to_vec())
    };
    deep_down(&w.root(), LEVELS, true);
    put(b"first");
    let c = w.checkpoint();
    assert_eq!(c.record.state, backstitch::record::State::Complete, "{:?}", c.record.skipped);
    put(b"second");
    w.restore(&c);
    assert_eq!(get().as_deref(), Some(&b"first"[..]));
    remove_deep(&w.root());
    assert!(!w.exists("level-0000"));
    w.restore(&c);
    assert_eq!(get().as_deref(), Some(&b"first"[..]), "made again from the top down");
    w.undo().unwrap();
    assert!(!w.exists("level-0000"), "and gone again");
    w.redo().unwrap();
    assert!(get().is_some());
    let dir = deep_down(&w.root(), LEVELS, false).unwrap();
    unlinkat(dir.as_fd(), "leaf", AtFlags::empty()).unwrap();
    remove_deep(&w.root());
}

#[test]
fn r53_a_hundred_thousand_entries_in_one_directory() {
    let w = World::new();
    fs::create_dir(w.path("many")).unwrap();
    for i in 0..100_000 {
        fs::File::create(w.path(&format!("many/{i:06}"))).unwrap();
    }
    let c = w.checkpoint();
    assert_eq!(c.record.files, 100_000);
    for i in (0..100_000).step_by(997) {
        fs::remove_file(w.path(&format!("many/{i:06}"))).unwrap();
    }
    w.write("many/000001", "changed");
    let o = w.restore_with(&c, restore::Options::default()).unwrap();
    assert!(!o.partial);
    assert_eq!(o.items.iter().filter(|i| i.action.changes()).count(), 102);
    assert_eq!(fs::read_dir(w.path("many")).unwrap().count(), 100_000);
    assert_eq!(w.read("many/000001"), "");
}

/// Times that nobody would expect, and a clock that is set back between two edits.
#[test]
fn t19_files_from_the_future_and_from_before_the_epoch() {
    let w = World::new();
    let at = |seconds: i64| match u64::try_from(seconds) {
        Ok(s) => SystemTime::UNIX_EPOCH + Duration::from_secs(s),
        Err(_) => SystemTime::UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()),
    };
    let set = |name: &str, seconds: i64| {
        fs::File::options().write(true).open(w.path(name)).unwrap().set_modified(at(seconds)).unwrap();
    };
    let times = [0, 1, -1, -2_000_000_000, 4_102_444_800, 7_000_000_000, 15_000_000_000];
    for (n, seconds) in times.iter().enumerate() {
        w.write(&format!("f{n}"), "same size 1");
        set(&format!("f{n}"), *seconds);
    }
    let c = w.checkpoint();
    let then = w.model();
    for (n, seconds) in times.iter().enumerate() {
        // In place, of one size, and with the time put back: only the change time tells.
        let f = fs::OpenOptions::new().write(true).open(w.path(&format!("f{n}"))).unwrap();
        f.write_all_at(b"same size 2", 0).unwrap();
        drop(f);
        set(&format!("f{n}"), *seconds);
    }
    let second = w.checkpoint();
    assert_eq!(second.record.summary.modified, times.len() as u64, "{:?}", second.record.summary);
    w.restore(&c);
    same(&then, &w.model(), "all came back");
    // A restored file is new for builds, whatever time it had.
    let recent = SystemTime::now() - Duration::from_secs(3600);
    for n in 0..times.len() {
        assert!(fs::metadata(w.path(&format!("f{n}"))).unwrap().modified().unwrap() > recent, "f{n}");
    }
}

/// Names that differ in one byte only, of every byte that a name may have, alone and at the end of the longest name.
#[test]
fn r109_every_byte_in_a_name_comes_back() {
    use std::os::unix::ffi::OsStrExt;
    let w = World::new();
    let names: Vec<Vec<u8>> = (1..=255u8)
        .filter(|b| *b != b'/' && *b != b'.')
        .flat_map(|b| [vec![b], [&[b'n'; 254][..], &[b]].concat(), vec![b'.', b]])
        .collect();
    let at = |name: &[u8]| w.root().join(std::ffi::OsStr::from_bytes(name));
    for name in &names {
        fs::write(at(name), name).unwrap();
    }
    let c = w.checkpoint();
    let then = w.model();
    for (n, name) in names.iter().enumerate() {
        match n % 3 {
            0 => fs::remove_file(at(name)).unwrap(),
            1 => fs::write(at(name), "changed").unwrap(),
            _ => {}
        }
    }
    let o = w.restore(&c);
    assert!(!o.partial, "{:?}", items(&o));
    same(&then, &w.model(), "names and contents");
}

/// Who may only read a store lists, compares and exports; who wants to write is told what is wrong and with what path.
#[test]
fn r103_a_store_that_may_only_be_read_is_read() {
    if !backstitch_testkit::privilege::is_root() {
        return backstitch_testkit::skip::skip(
            "r103_a_store_that_may_only_be_read_is_read",
            "another user needs root",
        );
    }
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    // Everybody may read and nobody else may write.
    let open_up = |dir: &Path, top: &Path| {
        let mut todo = vec![dir.to_owned()];
        while let Some(dir) = todo.pop() {
            let mode = fs::metadata(&dir).unwrap().mode();
            fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(mode | 0o055)).unwrap();
            for e in fs::read_dir(&dir).unwrap().flatten() {
                match e.file_type().unwrap().is_dir() {
                    true => todo.push(e.path()),
                    false => {
                        let mode = e.metadata().unwrap().mode();
                        fs::set_permissions(
                            e.path(),
                            std::os::unix::fs::PermissionsExt::from_mode(mode | 0o044),
                        )
                        .unwrap();
                    }
                }
            }
        }
        assert!(dir.starts_with(top));
    };
    open_up(w.dir.path(), w.dir.path());
    let before = w.model();
    backstitch_testkit::privilege::run_as(4711, || {
        let mut ws = open_at(&w, &w.root());
        let rows = ws.rows().unwrap();
        let row = rows.by_id(&c.record.id).unwrap();
        assert!(ws.check(row).unwrap().is_none());
        let e = ws.checkpoint(&checkpoint::Options::default(), &Control::default()).unwrap_err();
        assert!(!matches!(e.code, Code::StoreDamaged), "{e}");
        assert!(e.message.contains('/'), "names the path: {e}");
        // Neither the folder nor the store may be written to: the path is named, and nothing is begun.
        let o = ws.restore(row, &restore::Options::default(), &Control::default()).unwrap();
        assert!(o.partial && o.operation.is_none(), "{o:?}");
        assert_eq!(o.items.iter().map(|i| i.reason.as_deref()).collect::<Vec<_>>(), [Some("permission")]);
    })
    .unwrap();
    same(&before, &w.model(), "nothing was changed");
    w.restore(&c);
    assert_eq!(w.read("a"), "1", "its owner goes on");
}

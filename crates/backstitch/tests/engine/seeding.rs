//! Seeding from the user's git repository: the same rows with and without, and nothing borrowed (SEMANTICS 31).

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use backstitch::{checkpoint, forget, record::Checkpoint, workspace::Control};
use backstitch_store::{DiskUsage, Store};
use backstitch_testkit::{
    Git,
    generate::{Rng, noise},
    privilege::{Tmpfs, has_program},
};

use crate::{
    support::{content, open_at, process, shell},
    world::{World, same},
};

/// More than two changes need to have different times.
const GRANULARITY_NS: i128 = 20_000_000;

/// Git with the home that the engine reads too. False: it did not want to.
fn try_git(w: &World, dir: &Path, args: &[&str]) -> bool {
    let home = w.surroundings.home.as_ref().unwrap();
    let mut c = Git::new().unwrap().command(dir, args);
    c.env("HOME", home).env("XDG_CONFIG_HOME", home.join(".config"));
    c.output().unwrap().status.success()
}

#[track_caller]
fn git(w: &World, dir: &Path, args: &[&str]) {
    assert!(try_git(w, dir, args), "git {args:?}");
}

fn settle(w: &World) {
    settle_at(w, &w.root());
}

/// The index becomes younger than everything in the folder, by enough.
fn settle_at(w: &World, dir: &Path) {
    use std::os::unix::fs::MetadataExt;
    let probe = w.dir.path().join("probe");
    let ctime = || {
        fs::write(&probe, "x").unwrap();
        let m = fs::metadata(&probe).unwrap();
        i128::from(m.ctime()) * 1_000_000_000 + i128::from(m.ctime_nsec())
    };
    let start = ctime();
    while ctime() <= start + 2 * GRANULARITY_NS {
        std::thread::yield_now();
    }
    try_git(w, dir, &["update-index", "-q", "--force-write-index", "--refresh"]);
}

/// A row of `root` in the world's store, or without seeding in one of its own.
fn record(w: &World, root: &Path, seed: bool) -> (Checkpoint, u64) {
    let other = tempfile::tempdir().unwrap();
    let mut twin = World { dir: other, surroundings: w.surroundings.clone() };
    twin.set("BACKSTITCH_SEED", if seed { "true" } else { "false" });
    if !seed {
        twin.surroundings.store_base = twin.dir.path().join("data");
    }
    let mut ws = open_at(&twin, root);
    let out = ws.checkpoint(&checkpoint::Options::default(), &Control::default()).unwrap();
    (out.checkpoint.unwrap(), out.read.0)
}

fn seeds(w: &World, root: &Path) -> Vec<PathBuf> {
    let dir = open_at(w, root).store_dir().join("git/objects/pack");
    let packs = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    packs.filter(|p| p.to_string_lossy().contains("pack-seed-") && p.extension().unwrap() == "pack").collect()
}

fn usage(w: &World) -> DiskUsage {
    Store::open(w.open().store_dir()).unwrap().disk_usage().unwrap()
}

/// A committed and packed repository with a history in deltas.
fn packed(w: &World) {
    let root = w.root();
    let home = w.surroundings.home.as_ref().unwrap();
    fs::create_dir_all(home).unwrap();
    git(w, &root, &["init", "-q"]);
    for round in 0..3 {
        for i in 0..40 {
            let text = format!("line of file {i}\n").repeat(20 + i) + &format!("round {round}\n");
            w.write(&format!("d{}/tracked-{i}", i % 5), text);
        }
        w.write("noise", noise(3000, round));
        git(w, &root, &["add", "-A"]);
        git(w, &root, &["commit", "-q", "-m", "round"]);
    }
    git(w, &root, &["gc", "-q", "--aggressive"]);
    settle(w);
}

#[test]
fn s4_31_a_clean_repository_is_linked_and_its_rows_outlive_it() {
    let mut w = World::new();
    // A row would need the history, too.
    w.set("BACKSTITCH_GIT_STATE", "false");
    packed(&w);
    let root = w.root();
    let (plain, read) = record(&w, &root, false);
    assert_eq!(read, 41);
    let before = content(&root);
    let (seeded, read) = record(&w, &root, true);
    assert_eq!((read, plain.tree), (0, seeded.tree));
    let linked = usage(&w).linked;
    assert!(linked > 0 && seeds(&w, &root).len() == 1);
    // What the user's history holds besides is nobody's garbage.
    let account = w.open().bytes(false, &Control::default()).unwrap().unwrap();
    assert!(account.garbage < 100, "the empty tree at most: {}", account.garbage);
    w.check_store();
    // Nothing links to it any more: now it is this store's alone.
    fs::remove_dir_all(root.join(".git")).unwrap();
    let alone = usage(&w);
    assert_eq!(alone.linked, 0);
    for i in 0..5 {
        fs::remove_dir_all(root.join(format!("d{i}"))).unwrap();
    }
    w.restore(&seeded);
    same(&before, &content(&root), "restored");
    // Idle work copies what is needed, as it is, and lets go of the rest.
    w.open().maintain(&Control::default()).unwrap().unwrap();
    assert_eq!(seeds(&w, &root), [] as [PathBuf; 0]);
    assert!(usage(&w).packs < alone.packs);
    w.check_store();
    fs::remove_file(root.join("d1/tracked-1")).unwrap();
    w.restore(&seeded);
    same(&before, &content(&root), "restored from what was copied");
}

#[test]
fn s4_31_idle_work_drops_the_link_and_leaves_the_user_s_pack() {
    let w = World::new();
    packed(&w);
    let root = w.root();
    let (seeded, _) = record(&w, &root, true);
    let theirs: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(root.join(".git/objects/pack"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.clone(), fs::read(&p).unwrap()))
        .collect();
    assert!(usage(&w).linked > 0);
    let told = w.open().gc(true, &Control::default()).unwrap();
    assert_eq!((told.swept.garbage_objects, told.freed), (0, 0), "a link frees nothing");
    w.open().maintain(&Control::default()).unwrap().unwrap();
    assert_eq!((usage(&w).linked, seeds(&w, &root).len()), (0, 0));
    assert!(theirs.iter().all(|(p, bytes)| fs::read(p).unwrap() == *bytes));
    w.check_store();
    // Nothing comes back with the next row: it is all there.
    let (again, read) = record(&w, &root, true);
    assert_eq!((again.tree, read, seeds(&w, &root).len()), (seeded.tree, 0, 0));
    // Nor where the stat table is lost.
    fs::remove_dir_all(w.open().store_dir().join("state")).unwrap();
    let (again, read) = record(&w, &root, true);
    assert_eq!((again.tree, read, seeds(&w, &root).len()), (seeded.tree, 0, 0));
    w.open().gc(false, &Control::default()).unwrap();
    w.check_store();
}

#[test]
fn s4_31_where_nothing_can_be_linked_entries_are_copied() {
    let Some(elsewhere) = Tmpfs::mount("s4_31 copies", 64 << 20, "").unwrap() else { return };
    let mut w = World::new();
    w.surroundings.store_base = elsewhere.path().join("data");
    packed(&w);
    let root = w.root();
    let (plain, _) = record(&w, &root, false);
    let before = content(&root);
    let (seeded, read) = record(&w, &root, true);
    assert_eq!((read, plain.tree), (0, seeded.tree));
    assert_eq!((usage(&w).linked, seeds(&w, &root).len()), (0, 0));
    fs::remove_dir_all(root.join(".git")).unwrap();
    fs::remove_dir_all(root.join("d3")).unwrap();
    w.check_store();
    w.restore(&seeded);
    same(&before, &content(&root), "restored");
}

#[test]
fn s4_31_a_later_capture_takes_over_what_a_checkout_wrote() {
    let w = World::new();
    packed(&w);
    let root = w.root();
    let (_, read) = record(&w, &root, true);
    assert_eq!(read, 0);
    w.open().maintain(&Control::default()).unwrap().unwrap();
    for i in 0..400 {
        w.write(&format!("many/{i}"), format!("{i}\n"));
    }
    git(&w, &root, &["add", "-A"]);
    git(&w, &root, &["commit", "-q", "-m", "many"]);
    git(&w, &root, &["repack", "-q", "-d"]);
    settle(&w);
    let (seeded, read) = record(&w, &root, true);
    let (plain, _) = record(&w, &root, false);
    assert_eq!(seeded.tree, plain.tree);
    assert!((256..400).contains(&read), "{read}");
    w.check_store();
}

#[test]
fn s4_31_forgotten_bytes_leave_with_the_link() {
    let w = World::new();
    let secret = noise(2000, 99);
    w.write("secret", &secret);
    packed(&w);
    let root = w.root();
    record(&w, &root, true);
    assert!(usage(&w).linked > 0);
    let options = forget::Options { paths: vec!["secret".into()], dry_run: false };
    let out = w.open().forget(&options, &Control::default()).unwrap();
    assert!(out.is_clean(), "{:?}", out.unreached);
    assert!(out.unreached.iter().any(|u| u.what == "repository"), "{:?}", out.unreached);
    assert_eq!((usage(&w).linked, seeds(&w, &root).len()), (0, 0));
    let oid = String::from_utf8(
        Git::new().unwrap().run(&root, ["hash-object", "secret"]).unwrap().trim_ascii().to_vec(),
    )
    .unwrap();
    let ask = ["cat-file", "-e", &oid];
    let there = |dir: &Path| Git::new().unwrap().command(dir, ask).env("GIT_DIR", dir).output().unwrap();
    assert!(there(&root.join(".git")).status.success(), "the user's repository is never written");
    assert!(!there(&w.git_dir()).status.success());
    w.check_store();
}

#[test]
fn s4_31_verify_looks_at_what_rows_need() {
    let mut w = World::new();
    // A row would need the history, too.
    w.set("BACKSTITCH_GIT_STATE", "false");
    packed(&w);
    let root = w.root();
    let (row, _) = record(&w, &root, true);
    let pack = seeds(&w, &root).remove(0);
    let list = Git::new().unwrap().run(&root, ["verify-pack", "-v", &pack.to_string_lossy()]).unwrap();
    let list = String::from_utf8(list).unwrap();
    let hash = |round| {
        fs::write(w.dir.path().join("probe"), noise(3000, round)).unwrap();
        let out = Git::new().unwrap().run(w.dir.path(), ["hash-object", "probe"]).unwrap();
        String::from_utf8(out.trim_ascii().to_vec()).unwrap()
    };
    let damage = |oid: &str| {
        let line = list.lines().find(|l| l.starts_with(oid)).unwrap();
        let at: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        shell(&root, &format!("chmod u+w {}", pack.display()));
        let file = fs::OpenOptions::new().read(true).write(true).open(&pack).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at + 1000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x55], at + 1000).unwrap();
    };
    // History that no row needs.
    damage(&hash(1));
    let v = w.open().verify(false, &Control::default()).unwrap();
    assert_eq!(v["ok"], true, "{v:#}");
    damage(&hash(2));
    let v = w.open().verify(false, &Control::default()).unwrap();
    assert_eq!(v["ok"], false);
    assert!(v.to_string().contains(&row.record.id), "{v:#}");
}

#[test]
fn s4_31_no_tracked_file_is_opened() {
    if !has_program("strace") {
        backstitch_testkit::skip::skip("s4_31 opens", "there is no strace");
        return;
    }
    let w = World::new();
    packed(&w);
    w.write("fresh", "not in the index");
    let log = w.dir.path().join("log");
    let child = process(&w, &["checkpoint", "1"]);
    let mut c = Command::new("strace");
    c.args(["-f", "-e", "trace=open,openat,openat2", "-o"]).arg(&log).arg(child.get_program());
    c.args(child.get_args());
    c.envs(child.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let out = c.output().unwrap();
    if !out.status.success() {
        backstitch_testkit::skip::skip("s4_31 opens", &String::from_utf8_lossy(&out.stderr));
        return;
    }
    let log = fs::read_to_string(&log).unwrap();
    let opened = |name: &str| log.lines().any(|l| l.contains(name));
    assert!(opened("\"fresh\""), "the log shows what is read");
    assert!(!opened("tracked-") && !opened("\"noise\""));
}

/// One of the repositories that people have: how it was made, and where the workspace is.
struct Case<'a> {
    w: &'a World,
    rng: Rng,
    root: PathBuf,
    /// What was done, for messages.
    steps: Vec<String>,
}

const ATTRIBUTES: &[&str] = &[
    "* text=auto",
    "*.txt text eol=crlf",
    "*.txt -text",
    "*.up filter=up",
    "sub/*.bin filter=up",
    "*.ptr filter=ptr -text",
    "*.id ident",
    "*.u16 text working-tree-encoding=UTF-16LE",
    "[attr]loud filter=up",
    "*.bin loud",
    "/a.txt !text",
    "\"b c.txt\" filter=up",
    "*.up -filter",
];

const FILES: &[&str] = &[
    "a.txt",
    "b c.txt",
    "c.up",
    "d.bin",
    "e.id",
    "f.ptr",
    "g.u16",
    "h",
    "sub/a.txt",
    "sub/b.bin",
    "sub/c.up",
    "sub/deep/a.txt",
    "sub/deep/d.id",
    "other/x.txt",
    "other/y",
];

impl Case<'_> {
    fn does(&mut self, step: impl Into<String>) {
        self.steps.push(step.into());
    }

    fn git(&mut self, dir: &Path, args: &[&str]) -> bool {
        let done = try_git(self.w, dir, args);
        self.does(format!("git {}{}", args.join(" "), if done { "" } else { " (failed)" }));
        done
    }

    fn text(&mut self) -> Vec<u8> {
        let lines = self.rng.below(60);
        let end = *self.rng.pick(&["\n", "\n", "\r\n"]);
        let mut out = Vec::new();
        for i in 0..lines {
            let word = *self.rng.pick(&["lower", "UPPER", "$Id$", "$Id: 0123 $", "some more words"]);
            out.extend_from_slice(format!("{i} {word}{end}").as_bytes());
        }
        out
    }

    fn fill(&mut self, dir: &Path) {
        for name in FILES {
            if self.rng.chance(15) {
                continue;
            }
            let bytes = match name.rsplit('.').next().unwrap() {
                "u16" => self.text().iter().flat_map(|b| [*b, 0]).collect(),
                "bin" if self.rng.chance(50) => noise(self.rng.below(5000), self.rng.bits()),
                _ => self.text(),
            };
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    fn attributes(&mut self, file: &Path) {
        let lines: Vec<&str> = ATTRIBUTES.iter().copied().filter(|_| self.rng.chance(20)).collect();
        self.does(format!("{}: {lines:?}", file.display()));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, lines.join("\n") + "\n").unwrap();
    }

    fn make(&mut self) {
        let base = self.w.dir.path().to_owned();
        let home = base.join("home");
        fs::create_dir_all(&home).unwrap();
        let mut config = "[filter \"up\"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\
             [filter \"ptr\"]\n\tclean = cksum\n\tsmudge = cat\n[protocol \"file\"]\n\tallow = always\n[core]\n"
            .to_owned();
        for line in [
            "autocrlf = true",
            "autocrlf = input",
            "eol = crlf",
            "trustCTime = false",
            "checkStat = minimal",
            "ignoreCase = true",
            "fileMode = false",
            "attributesFile = ~/attrs",
            "splitIndex = true",
        ] {
            if self.rng.chance(7) {
                self.does(line);
                config += &format!("\t{line}\n");
            }
        }
        fs::write(home.join(".gitconfig"), config).unwrap();
        if self.rng.chance(20) {
            self.attributes(&home.join("attrs"));
        }
        if self.rng.chance(15) {
            self.attributes(&home.join(".config/git/attributes"));
        }
        let origin = base.join("origin");
        fs::create_dir(&origin).unwrap();
        let format = if self.rng.chance(8) { "--object-format=sha256" } else { "--object-format=sha1" };
        self.git(&origin, &["init", "-q", format]);
        self.git(&origin, &["config", "uploadpack.allowFilter", "true"]);
        if self.rng.chance(40) {
            self.git(&origin, &["config", "index.version", "4"]);
        }
        if self.rng.chance(50) {
            self.attributes(&origin.join(".gitattributes"));
        }
        if self.rng.chance(25) {
            self.attributes(&origin.join("sub/.gitattributes"));
        }
        if self.rng.chance(15) {
            self.attributes(&origin.join(".git/info/attributes"));
        }
        for round in 0..1 + self.rng.below(3) {
            if round == 0 {
                self.fill(&origin);
            } else {
                let name = *self.rng.pick(FILES);
                let text = self.text();
                fs::create_dir_all(origin.join(name).parent().unwrap()).unwrap();
                fs::write(origin.join(name), text).unwrap();
            }
            self.git(&origin, &["add", "-A"]);
            self.git(&origin, &["commit", "-q", "-m", "x"]);
        }
        let packing: &[&[&str]] = &[
            &["gc", "-q"],
            &["gc", "-q"],
            &["gc", "-q", "--aggressive"],
            &["repack", "-q", "-d"],
            &["status"],
        ];
        let how = *self.rng.pick(packing);
        self.git(&origin, how);
        let w = self.w.root();
        fs::remove_dir(&w).unwrap();
        let to = w.to_string_lossy().into_owned();
        let url = format!("file://{}", origin.display());
        let moved = |case: &mut Self| {
            fs::rename(&origin, &w).unwrap();
            case.does("in place");
        };
        self.root = w.clone();
        let cloned = match self.rng.below(10) {
            0 => self.git(&origin, &["worktree", "add", "-q", &to, "-b", "other"]),
            1 => self.git(&base, &["clone", "-q", "-s", "origin", &to]),
            2 => self.git(&base, &["clone", "-q", "--depth", "1", &url, &to]),
            3 => self.git(&base, &["clone", "-q", "--filter=blob:none", &url, &to]),
            _ => false,
        };
        if !cloned {
            let _ = fs::remove_dir_all(&w);
            moved(self);
            match self.rng.below(6) {
                0 => {
                    self.git(&w, &["sparse-checkout", "set", "--cone", "--sparse-index", "sub"]);
                }
                1 => {
                    self.git(&w, &["update-index", "--split-index"]);
                }
                2 => {
                    let nested = w.join("nested");
                    fs::create_dir(&nested).unwrap();
                    self.git(&nested, &["init", "-q"]);
                    self.fill(&nested);
                    self.git(&nested, &["add", "-A"]);
                    self.git(&nested, &["commit", "-q", "-m", "x"]);
                    self.git(&nested, &["gc", "-q"]);
                    self.git(&w, &["add", "nested"]);
                    self.git(&w, &["commit", "-q", "-m", "nested"]);
                }
                3 if w.join("sub").is_dir() => {
                    self.does("the workspace is a folder of the work tree");
                    self.root = w.join("sub");
                }
                _ => {}
            }
        }
        if self.rng.chance(85) {
            settle_at(self.w, &w);
            self.does("settled");
        }
        for _ in 0..self.rng.below(5) {
            self.change(&w);
        }
    }

    fn change(&mut self, w: &Path) {
        let name = *self.rng.pick(FILES);
        let path = w.join(name);
        if !path.is_file() {
            return;
        }
        let what = self.rng.below(17);
        self.does(format!("change {what} of {name}"));
        let append = || {
            let mut bytes = fs::read(&path).unwrap();
            bytes.extend_from_slice(b"more\n");
            fs::write(&path, bytes).unwrap();
        };
        // As long as it was, and as old.
        let alter = || {
            let times = fs::metadata(&path).unwrap().modified().unwrap();
            let bytes: Vec<u8> = fs::read(&path).unwrap().iter().map(|b| b ^ 1).collect();
            fs::write(&path, bytes).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        };
        match what {
            0 => append(),
            1 | 2 => alter(),
            3 => shell(w, &format!("chmod 755 '{name}'")),
            4 => fs::remove_file(&path).unwrap(),
            5 => fs::rename(&path, w.join("moved")).unwrap(),
            6 => {
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink("h", &path).unwrap();
            }
            7 => {
                self.git(w, &["update-index", "--assume-unchanged", name]);
                alter();
            }
            8 => {
                self.git(w, &["update-index", "--skip-worktree", name]);
                append();
                settle_at(self.w, w);
            }
            9 => {
                fs::write(w.join("intended"), "intended").unwrap();
                self.git(w, &["add", "-N", "intended"]);
                settle_at(self.w, w);
            }
            10 => self.attributes(&w.join(".gitattributes")),
            11 => {
                let value = *self.rng.pick(&["true", "input", "false"]);
                self.git(w, &["config", "core.autocrlf", value]);
            }
            12 => {
                alter();
                self.git(w, &["add", name]);
            }
            13 => {
                let _ = rustix::fs::setxattr(&path, "user.note", b"x", rustix::fs::XattrFlags::empty());
            }
            14 => {
                let twin = path.with_extension("twin");
                fs::hard_link(&path, twin).unwrap();
            }
            15 => {
                // Of a conflict.
                let sed = "git ls-files -s -- h | sed 's/ 0\\t/ 2\\t/' > ../stages; git rm -q --cached h; \
                           git update-index --index-info < ../stages";
                shell(w, &format!("({sed}) >/dev/null 2>&1 || true"));
                settle_at(self.w, w);
            }
            _ => {
                self.git(w, &["rm", "-q", "--cached", ".gitattributes"]);
            }
        }
    }
}

#[test]
fn s4_31_rows_are_the_same_with_and_without() {
    let (mut read, mut seeded_read, mut linked) = (0, 0, 0);
    for n in 0..16 {
        let w = World::new();
        let mut case =
            Case { w: &w, rng: Rng::new(n), root: PathBuf::new(), steps: vec![format!("case {n}")] };
        case.make();
        let root = case.root.clone();
        let (plain, a) = record(&w, &root, false);
        let (seeded, b) = record(&w, &root, true);
        assert_eq!(plain.tree, seeded.tree, "{:#?}", case.steps);
        (read, seeded_read) = (read + a, seeded_read + b);
        let count = seeds(&w, &root).len();
        linked += u64::from(count > 0);
        if count == 0 {
            continue;
        }
        // The repository goes, and idle work comes.
        for git_dir in [w.root().join(".git"), w.dir.path().join("origin")] {
            let _ = fs::remove_dir_all(git_dir);
        }
        let ws = open_at(&w, &root);
        let sound = |what: &str| {
            let steps = &case.steps;
            let fsck = Git::new().unwrap().fsck_strict(&ws.store_dir().join("git"));
            assert!(fsck.is_ok(), "{what}: {fsck:?} {steps:#?}");
            let v = ws.verify(false, &Control::default()).unwrap();
            assert_eq!(v["ok"], true, "{what}: {v:#} {steps:#?}");
        };
        sound("without the repository");
        ws.maintain(&Control::default()).unwrap();
        assert_eq!(seeds(&w, &root).len(), 0);
        sound("after idle work");
        ws.gc(false, &Control::default()).unwrap();
        sound("after a person's collection");
    }
    // How many of them are settled enough depends on the machine's clock and disk.
    assert!(linked >= 4 && seeded_read < read, "{linked} linked; read {seeded_read} of {read}");
}

//! A session at work in several workspaces: one rewind takes back all of it, one undo brings all of it back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use backstitch::{
    error::{Code, Result},
    operation::Outcome,
    rewind,
    session::{ToolOptions, TurnOptions},
    undo::OnConflict,
    workspace::Control,
};

use crate::{
    support::{items, open_at},
    world::{World, action},
};

/// Two workspaces with one store base: `f` in the first, `g` in the other.
struct Two {
    w: World,
    other: PathBuf,
}

impl Two {
    fn new(text: &str) -> Two {
        let w = World::new();
        w.write("f", text);
        let other = w.dir.path().canonicalize().unwrap().join("other");
        fs::create_dir(&other).unwrap();
        // No content there is in the store of the first.
        fs::write(other.join("g"), there(text)).unwrap();
        Two { w, other }
    }

    fn begin(&self, dir: &Path, session: &str, key: Option<&str>) {
        let o =
            TurnOptions { session: session.into(), key: key.map(str::to_owned), prompt: None, entry: None };
        open_at(&self.w, dir).turn_begin(&o, &Control::default()).unwrap();
    }

    fn tool(&self, dir: &Path, session: &str, before: bool, file: &str) {
        let o = ToolOptions {
            session: session.into(),
            call: Some(format!("write {file}")),
            tool: Some("write".into()),
            agent: None,
            paths: vec![file.into()],
        };
        open_at(&self.w, dir).tool(before, &o, &Control::default()).unwrap();
    }

    /// The rest of a turn, in which a file tool writes one file.
    fn work(&self, dir: &Path, file: &str, text: &str) {
        self.tool(dir, "s", true, file);
        let text = if dir == self.other { there(text) } else { text.to_owned() };
        fs::write(dir.join(file), text).unwrap();
        self.tool(dir, "s", false, file);
        open_at(&self.w, dir).turn_end("s", None, "completed", &Control::default()).unwrap();
    }

    /// A turn in both.
    fn turn(&self, key: &str, text: &str) {
        for (dir, file) in [(self.w.root(), "f"), (self.other.clone(), "g")] {
            self.begin(&dir, "s", Some(key));
            self.work(&dir, file, text);
        }
    }

    fn take_back(&self, revert: bool, to: &str, o: rewind::Options) -> Result<Outcome> {
        let o = rewind::Options { to: to.into(), session: Some("s".into()), outside: true, ..o };
        match revert {
            true => self.w.open().revert(&o, &Control::default()),
            false => self.w.open().rewind(&o, &Control::default()),
        }
    }

    fn rewind(&self, to: &str, o: rewind::Options) -> Result<Outcome> {
        self.take_back(false, to, o)
    }

    fn both(&self) -> (String, String) {
        let g = fs::read_to_string(self.other.join("g")).unwrap();
        (self.w.read("f"), g.strip_prefix(THERE).unwrap().to_owned())
    }

    fn g(&self, o: &Outcome) -> Option<String> {
        action(o, self.other.join("g").to_str().unwrap())
    }
}

const THERE: &str = "there\n";

fn there(text: &str) -> String {
    format!("{THERE}{text}")
}

fn of(f: &str, g: &str) -> (String, String) {
    (f.to_owned(), g.to_owned())
}

#[test]
fn one_rewind_takes_back_what_was_done_in_both() {
    let t = Two::new("0");
    t.turn("k1", "1");
    t.turn("k2", "2");
    let preview = t.rewind("2", rewind::Options { dry_run: true, ..Default::default() }).unwrap();
    assert_eq!((t.g(&preview).as_deref(), t.both()), (Some("overwrite"), of("2", "2")));
    // Not asked for it is told, and left.
    let here = rewind::Options { to: "2".into(), session: Some("s".into()), ..Default::default() };
    let o = t.w.open().rewind(&here, &Control::default()).unwrap();
    assert_eq!((t.g(&o).as_deref(), t.both()), (Some("skip:outside"), of("1", "2")));
    t.w.undo().unwrap();
    let o = t.rewind("2", rewind::Options::default()).unwrap();
    assert_eq!(t.both(), of("1", "1"), "{:?}", items(&o));
    t.w.undo().unwrap();
    assert_eq!(t.both(), of("2", "2"));
    let o = t.rewind("1", rewind::Options::default()).unwrap();
    assert_eq!(t.both(), of("0", "0"), "{:?}", items(&o));
}

#[test]
fn a_revert_takes_back_its_turn_alone_in_both() {
    let t = Two::new("0");
    t.turn("k1", "1");
    for (dir, file) in [(t.w.root(), "f2"), (t.other.clone(), "g2")] {
        t.begin(&dir, "s", Some("k2"));
        t.work(&dir, file, "2");
    }
    let o = t.take_back(true, "1", rewind::Options::default()).unwrap();
    assert_eq!(t.both(), of("0", "0"), "{:?}", items(&o));
    assert!(t.w.exists("f2") && t.other.join("g2").exists());
}

#[test]
fn without_keys_the_clock_says_what_belongs_together() {
    let t = Two::new("0");
    let (here, there) = (t.w.root(), t.other.clone());
    t.begin(&here, "s", None);
    // All of its turn there lies between the beginning here and the first tool here.
    t.begin(&there, "s", None);
    t.work(&there, "g", "1");
    t.work(&here, "f", "1");
    let o = t.rewind("1", rewind::Options::default()).unwrap();
    assert_eq!(t.both(), of("0", "0"), "{:?}", items(&o));
}

#[test]
fn a_window_of_another_session_there_is_waited_for() {
    let t = Two::new("0");
    t.turn("k1", "1");
    t.begin(&t.other, "b", Some("b1"));
    t.tool(&t.other, "b", true, "x");
    assert_eq!(t.rewind("1", rewind::Options::default()).unwrap_err().code, Code::Busy);
    let preview = t.rewind("1", rewind::Options { dry_run: true, ..Default::default() }).unwrap();
    assert_eq!((t.g(&preview).as_deref(), t.both()), (Some("overwrite"), of("1", "1")));
    t.rewind("1", rewind::Options { force: true, ..Default::default() }).unwrap();
    assert_eq!(t.both(), of("0", "0"));
}

#[test]
fn lines_that_a_person_changed_there_since_are_merged() {
    let t = Two::new("a\nb\nc\nd\ne\n");
    t.turn("k1", "a\nb\nc\nd\nE\n");
    fs::write(t.other.join("g"), there("A\nb\nc\nd\nE\n")).unwrap();
    let merge = |dry_run| rewind::Options { dry_run, on_conflict: OnConflict::Merge, ..Default::default() };
    let preview = t.rewind("1", merge(true)).unwrap();
    assert_eq!(t.g(&preview).as_deref(), Some("overwrite"), "{:?}", items(&preview));
    t.rewind("1", merge(false)).unwrap();
    assert_eq!(t.both(), of("a\nb\nc\nd\ne\n", "A\nb\nc\nd\ne\n"));
}

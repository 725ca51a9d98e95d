//! The picker, as a person uses it.

use rustix::process::{Pid, Signal, kill_process};

use crate::{pty::Session, sessions::Agent, support::World, terminal::two_turns};

const DOWN: &str = "\x1b[B";
const END: &str = "\x1b[F";
const ESC: &str = "\x1b";

fn on_screen(mut w: World) -> World {
    w.cli.env("TERM", "xterm-256color");
    w
}

/// The line with the mark of what is chosen.
fn chosen(shown: &str) -> &str {
    shown.lines().find(|l| l.starts_with("> ")).unwrap_or_default()
}

#[test]
fn a_turn_is_taken_back_and_brought_again() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    let shown = s.see("M a.txt");
    assert!(shown.contains("do k1") && chosen(&shown).contains("do k2"), "{shown}");
    s.answer("\r");
    // The text of the change.
    let shown = s.see("+2");
    assert!(shown.contains("-1") && shown.contains("turn 2 of s"), "{shown}");
    s.answer("r");
    let shown = s.see("PLAN: Take back turn 2 of s and all after it");
    assert!(shown.contains("overwrite a.txt"), "{shown}");
    assert_eq!(w.read("a.txt"), "2\n", "a plan changes nothing");
    s.answer("y");
    let shown = s.see("DONE: Take back");
    assert!(shown.contains("overwritten a.txt"), "{shown}");
    assert_eq!(w.read("a.txt"), "1\n");
    s.answer("u");
    s.see("DONE: Undo");
    assert_eq!(w.read("a.txt"), "2\n");
    s.answer("r");
    s.see("DONE: Redo");
    assert_eq!(w.read("a.txt"), "1\n");
    s.answer("q");
    let (code, seen) = s.end();
    assert_eq!(code, Some(0), "{seen}");
    // What was done is told once the screen is gone.
    let after = seen.rsplit("\x1b[?1049l").next().unwrap();
    assert!(after.contains("1 overwritten") && after.contains("take it back: backstitch undo"), "{after}");
}

#[test]
fn what_is_typed_filters() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    s.answer("k1");
    let shown = s.shows("only k1", |s| !s.contains("do k2") && s.contains("Filter: k1"));
    assert!(chosen(&shown).contains("do k1"), "{shown}");
    s.answer("x");
    s.see("Nothing fits the filter.");
    s.answer(ESC);
    s.see("do k2");
    s.answer(ESC);
    let (code, _) = s.end();
    assert_eq!(code, Some(130));
    assert_eq!(w.read("a.txt"), "2\n");
}

#[test]
fn a_plan_that_no_longer_fits_changes_nothing() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    s.answer("\rr");
    s.see("PLAN:");
    w.write("a.txt", "meanwhile\n");
    s.answer("y");
    // The new plan leaves what somebody else wrote alone, and says so.
    let shown = s.see("Something changed meanwhile; nothing was done.");
    let shown = if shown.contains("! conflict") { shown } else { s.see("! conflict a.txt") };
    assert!(shown.contains("PLAN:") && shown.contains("k: merge it"), "{shown}");
    assert_eq!(w.read("a.txt"), "meanwhile\n");
    s.answer("k");
    s.see("is merged line by line");
    s.answer("k");
    s.see("is OVERWRITTEN");
    s.answer("y");
    s.see("DONE:");
    assert_eq!(w.read("a.txt"), "1\n");
    s.answer("u");
    s.see("DONE: Undo");
    assert_eq!(w.read("a.txt"), "meanwhile\n");
    s.answer("q");
    assert_eq!(s.end().0, Some(0));
}

#[test]
fn a_small_terminal_shows_what_matters() {
    let (w, _) = World::recorded();
    let w = on_screen(w);
    let agent = Agent { w: &w, id: "a-session-with-a-name-that-goes-on-and-on" };
    for n in 1..=40 {
        agent.turn(&format!("k{n} {}", "and a long prompt ".repeat(12)), "a.txt", &format!("{n}\n"));
    }
    let mut s = Session::start(&w, &["rewind"]);
    let shown = s.see("M a.txt");
    assert!(chosen(&shown).contains("do k40") && shown.contains("Enter: open"), "{shown}");
    assert_eq!(shown.lines().count(), 24);
    s.answer(END);
    // The oldest: the checkpoint by hand.
    s.shows("the oldest", |s| chosen(s).contains(" \u{b7} "));
    s.answer(ESC);
    s.end();
}

#[test]
fn a_tiny_terminal_is_no_reason_to_fail() {
    let w = on_screen(two_turns());
    for (rows, columns) in [(6, 30), (3, 12), (2, 8), (60, 250)] {
        let mut s = Session::sized(&w, &["rewind"], rows, columns);
        // Keys are keys once the screen is there.
        s.until(Some("\x1b[?25l"));
        if columns >= 30 {
            s.shows("the choice", |s| chosen(s).contains("2 "));
            s.answer("\rr");
            s.see("PLAN: Take back turn 2");
        }
        s.answer("\x03");
        let (code, seen) = s.end();
        assert_eq!(code, Some(130), "{rows} {columns} {seen:?}");
    }
}

/// Parameters of colours, in what was written.
fn has_colours(seen: &str) -> bool {
    let codes = seen.split("\x1b[").skip(1).filter_map(|s| s.split_once('m').map(|(c, _)| c));
    let sgr = codes.filter(|c| c.bytes().all(|b| b.is_ascii_digit() || b == b';'));
    sgr.flat_map(|c| c.split(';')).any(|c| matches!(c.parse(), Ok(30..=37 | 40..=47 | 90..=107 | 38 | 48)))
}

#[test]
fn without_colours_signs_say_the_same() {
    for (variable, args, coloured) in [
        (None, &["rewind"][..], true),
        (Some(("NO_COLOR", "1")), &["rewind"], false),
        (Some(("NO_COLOR", "1")), &["--color", "always", "rewind"], true),
        (None, &["--color", "never", "rewind"], false),
    ] {
        let mut w = on_screen(two_turns());
        if let Some((key, value)) = variable {
            w.cli.env(key, value);
        }
        let mut s = Session::start(&w, args);
        s.see("M a.txt");
        s.answer("\rr");
        let shown = s.see("PLAN:");
        assert!(shown.contains("~ overwrite a.txt"), "{shown}");
        s.answer("n");
        s.see("Nothing was changed.");
        s.answer("\x03");
        let (_, seen) = s.end();
        assert_eq!(has_colours(&seen), coloured, "{args:?} {seen:?}");
    }
}

#[test]
fn alone_it_is_the_picker_where_something_is_recorded() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &[]);
    s.see("do k2");
    s.answer(ESC);
    assert_eq!(s.end().0, Some(0));
    let empty = on_screen(World::new());
    let (code, seen) = Session::start(&empty, &[]).end();
    assert!(code == Some(2) && seen.contains("Usage"), "{code:?} {seen}");
}

#[test]
fn one_file_and_one_hunk() {
    let (w, _) = World::recorded();
    let w = on_screen(w);
    let agent = Agent { w: &w, id: "s" };
    agent.begin("k1");
    agent.write("c1", "a.txt", "ONE\ntwo\nthree\nfour\n");
    agent.write("c2", "sub/b.txt", "B\n");
    agent.end();
    let mut s = Session::start(&w, &["rewind"]);
    s.see("M sub/b.txt");
    s.answer("\r");
    s.see("+ONE");
    s.answer(DOWN);
    s.see("+B");
    s.answer("f");
    let shown = s.see("PLAN: Put sub/b.txt back");
    assert!(!shown.contains("a.txt"), "{shown}");
    s.answer("y");
    s.see("DONE:");
    assert_eq!((w.read("sub/b.txt").as_str(), w.read("a.txt").as_str()), ("b\n", "ONE\ntwo\nthree\nfour\n"));
    s.answer("\r");
    s.see("Enter: open");
    s.answer("\r");
    s.see("+ONE");
    s.answer("h");
    s.see("Hunks of a.txt");
    s.answer(" \r");
    s.see("PLAN: Put 1 hunk of a.txt back");
    s.answer("y");
    s.see("DONE:");
    assert_eq!(w.read("a.txt"), "one\ntwo\nthree\nfour\n");
    s.answer("q");
    assert_eq!(s.end().0, Some(0));
}

#[test]
fn keys_from_before_a_plan_do_not_carry_it_out() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    // All at once: open, plan, and what somebody types who reads nothing.
    s.answer("\rryyyy\r\r");
    s.see("PLAN:");
    s.answer("n");
    s.see("Nothing was changed.");
    s.answer("\x03");
    assert_eq!(s.end().0, Some(130));
    assert_eq!(w.read("a.txt"), "2\n");
}

#[test]
fn files_outside_are_asked_about() {
    let (w, _) = World::recorded();
    let w = on_screen(w);
    let other = w.top.join("other.txt");
    std::fs::write(&other, "before\n").unwrap();
    let agent = Agent { w: &w, id: "s" };
    agent.begin("k1");
    agent.run(&["tool", "before", "--call", "c", "--tool", "write", other.to_str().unwrap()]);
    std::fs::write(&other, "after\n").unwrap();
    agent.run(&["tool", "after", "--call", "c"]);
    agent.write("d", "a.txt", "agent\n");
    agent.end();
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k1");
    s.answer("\rr");
    let shown = s.see("files outside the workspace are left (o: change them, too)");
    assert!(shown.contains("other.txt"), "{shown}");
    s.answer("o");
    s.see("files outside the workspace are changed, too");
    s.answer("y");
    s.see("DONE:");
    assert_eq!(
        (std::fs::read_to_string(&other).unwrap().as_str(), w.read("a.txt").as_str()),
        ("before\n", "one\ntwo\nthree\n")
    );
    s.answer("u");
    s.see("DONE: Undo");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "after\n");
    s.answer("q");
    assert_eq!(s.end().0, Some(0));
}

#[test]
fn a_row_is_named_pinned_and_exported() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    s.answer("\r");
    s.see("+2");
    s.answer("p");
    s.see("[pinned]");
    s.answer("l");
    s.see("Which label?");
    s.answer("before\r");
    s.see("Label: before");
    s.answer("e");
    s.see("Write this state");
    let to = w.top.join("out");
    s.answer(&format!("{}\r", to.display()));
    s.see("written to");
    assert_eq!(std::fs::read_to_string(to.join("a.txt")).unwrap(), "1\n");
    let row = w.json(&["show", "label:before"])["checkpoint"].clone();
    assert!(row["pinned"] == true && row["turn"] == 2, "{row}");
    s.answer("\x03");
    s.end();
}

#[test]
fn a_prompt_cannot_play_tricks() {
    let (w, _) = World::recorded();
    let w = on_screen(w);
    let agent = Agent { w: &w, id: "s" };
    agent.run(&["turn", "begin", "--key", "k", "--prompt", "\x1b]0;owned\x07\x1b[2Jx\u{202e}y"]);
    agent.write("c", "a\x1b[31m.txt", "new\n");
    agent.end();
    let mut s = Session::start(&w, &["rewind"]);
    s.see("A \"a\\033[31m.txt\"");
    s.answer("\r");
    s.see("+new");
    s.answer("\x03");
    let (_, seen) = s.end();
    assert!(
        !["\x1b]0;", "\x1b[2J", "\x07", "\u{202e}", "\x1b[31m."].iter().any(|t| seen.contains(t)),
        "{seen:?}"
    );
}

#[test]
fn a_signal_ends_it_and_puts_the_terminal_back() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    kill_process(Pid::from_child(&s.child), Signal::TERM).unwrap();
    let (code, seen) = s.end();
    assert_eq!(code, Some(130), "{seen}");
    assert!(seen.contains("\x1b[?1049l") && seen.contains("\x1b[?25h"), "{seen:?}");
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let w = on_screen(two_turns());
    let mut s = Session::start(&w, &["rewind"]);
    s.see("do k2");
    assert_eq!(s.hang_up(), Some(130));
}

#[test]
fn plain_questions_do_the_same() {
    // A terminal without a name, one without a cursor, an option, a setting.
    for (variable, args) in [
        (None, &["rewind"][..]),
        (Some(("TERM", "dumb")), &["rewind"]),
        (Some(("TERM", "xterm")), &["rewind", "--plain"]),
        (Some(("BACKSTITCH_PICKER", "plain")), &["rewind"]),
    ] {
        let mut w = two_turns();
        if let Some((key, value)) = variable {
            w.cli.env(key, value);
        }
        let mut s = Session::start(&w, args);
        let seen = s.until(Some("Which one?"));
        assert!(seen.contains("1. turn 2 of s,") && seen.contains(": do k2"), "{seen}");
        s.answer("1\n");
        let seen = s.until(Some("What shall be done?"));
        assert!(seen.contains("changed: a.txt, 1 line added, 1 removed"), "{seen}");
        s.answer("1\n");
        let seen = s.until(Some("Carry out this plan?"));
        assert!(seen.contains("takes back turn 2") && w.read("a.txt") == "2\n", "{seen}");
        s.answer("y\n");
        s.until(Some("Is it as you want it?"));
        assert_eq!(w.read("a.txt"), "1\n");
        s.answer("u\n");
        s.until(Some("Undo"));
        s.answer("y\n");
        s.until(Some("take it back: backstitch undo"));
        // The list again, and the end.
        s.answer("k1\n");
        s.until(Some("1. turn 1 of s,"));
        s.answer("\n\n");
        let (code, seen) = s.end();
        assert_eq!(code, Some(0), "{seen}");
        assert_eq!(w.read("a.txt"), "2\n");
        assert!(!seen.contains("\x1b[?1049h"), "{seen:?}");
    }
}

#[test]
fn plain_questions_about_one_file() {
    let (w, _) = World::recorded();
    let agent = Agent { w: &w, id: "s" };
    agent.begin("k1");
    agent.write("c1", "a.txt", "ONE\ntwo\nthree\nfour\n");
    agent.write("c2", "sub/b.txt", "B\n");
    agent.end();
    w.write("sub/b.txt", "mine\n");
    let mut s = Session::start(&w, &["rewind"]);
    let mut go = |answer: &str, text: &str| {
        s.answer(answer);
        s.seen.clear();
        s.until(Some(text)).to_owned()
    };
    let menu = go("1\n", "What shall be done?");
    assert!(
        menu.contains("1. take back this turn and all after it") && menu.contains("5. choose hunks"),
        "{menu}"
    );
    go("6\n", "Which file?");
    let text = go("1\n", "Which one?");
    assert!(text.contains("-one") && text.contains("+ONE") && text.contains("+four"), "{text}");
    go("1\n", "What shall be done?");
    go("5\n", "Which file?");
    let parts = go("1\n", "Which hunks?");
    assert!(parts.contains("1. line 1, 1 line to 1") && parts.contains("2. line 4, 1 line to 0"), "{parts}");
    go("2\n", "Carry out this plan?");
    go("y\n", "Is it as you want it?");
    assert_eq!(w.read("a.txt"), "ONE\ntwo\nthree\n");
    go("\n", "Which one?");
    // What somebody else changed is asked about.
    go("1\n", "What shall be done?");
    let plan = go("1\n", "Carry out this plan?");
    assert!(plan.contains("sub/b.txt"), "{plan}");
    go("k\n", "Carry out this plan?");
    let plan = go("k\n", "Carry out this plan?");
    assert!(plan.contains("overwrite"), "{plan}");
    go("y\n", "Is it as you want it?");
    assert_eq!(w.read("sub/b.txt"), "b\n");
    let plan = go("u\n", "Carry out this plan?");
    assert!(plan.contains("Undo"), "{plan}");
    go("y\n", "Which one?");
    assert_eq!(w.read("sub/b.txt"), "mine\n");
    s.answer("\n");
    assert_eq!(s.end().0, Some(0));
}

#[test]
fn plain_questions_can_be_left() {
    let w = two_turns();
    for answers in [&["\n"][..], &["q\n"], &["7\n", "\n"], &["1\n", "\n", "\n"], &["1\n", "1\n", "n\n", "\n"]]
    {
        let mut s = Session::start(&w, &["rewind"]);
        answers.iter().for_each(|a| s.answer(a));
        let (code, seen) = s.end();
        assert_eq!(code, Some(130), "{answers:?}\n{seen}");
        assert_eq!(w.read("a.txt"), "2\n");
    }
}

/// A project on which two agents worked.
pub fn afternoon() -> World {
    let w = World::new();
    w.write("README.md", "# Demo\n");
    w.write("src/main.rs", "fn main() {\n    parse();\n}\n");
    w.write("src/parser/mod.rs", "pub fn parse() {}\n");
    w.write("notes.txt", "mine\n");
    w.save(&["-m", "before the agents"]);
    let turn = |session, key: &str, prompt: &str, work: &dyn Fn()| {
        let a = Agent { w: &w, id: session };
        a.run(&["turn", "begin", "--key", key, "--prompt", prompt]);
        a.run(&["tool", "before", "--call", key, "--tool", "bash"]);
        work();
        a.run(&["tool", "after", "--call", key]);
        a.end();
    };
    turn("s1", "1", "rename the parser to reader", &|| {
        std::fs::rename(w.path("src/parser"), w.path("src/reader")).unwrap();
        w.write("src/main.rs", "fn main() {\n    read();\n}\n");
    });
    turn("s1", "2", "write tests for the reader, and say so in the README", &|| {
        w.write("src/reader/tests.rs", "#[test]\nfn reads() {\n    super::parse();\n}\n");
        w.write("README.md", "# Demo\n\nmore\n");
    });
    turn("s2", "1", "tidy up what nobody needs", &|| {
        std::fs::remove_file(w.path("notes.txt")).unwrap();
        w.write("README.md", "# Demo\n\nmore, and tidy\n");
    });
    w
}

/// Ages in seconds depend on the machine; those in the picture do not.
fn aged(shown: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in shown.lines() {
        let mut line = line.trim_end().to_owned();
        for unit in ["s ago", "m ago"] {
            let Some(end) = line.find(unit) else { continue };
            let digits = line[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
            let spaces = line[..end - digits].bytes().rev().take_while(|b| *b == b' ').count();
            let width = if spaces == 1 { 2 } else { spaces + digits };
            line.replace_range(end - digits - spaces..end + 1, &format!("{:>1$}m", "5", width));
        }
        out.push(line);
    }
    out.join("\n") + "\n"
}

/// A key that is held down is followed, and the screen shows where it led.
#[test]
fn keys_that_come_faster_than_they_can_be_shown() {
    let w = World::new();
    let s = crate::sessions::Agent { w: &w, id: "s" };
    s.run(&["turn", "begin", "--key", "k", "--prompt", "many"]);
    s.run(&["tool", "before", "--call", "c", "--tool", "bash"]);
    for n in 0..1500 {
        w.write(&format!("many/{n:04}"), "x\n");
    }
    s.run(&["tool", "after", "--call", "c"]);
    s.end();
    let w = on_screen(w);
    let mut s = Session::start(&w, &["rewind"]);
    s.see("and 1");
    s.answer("\r");
    s.see("> A many/0000");
    // No more at once than the terminal holds for a reader.
    for n in 1..=14 {
        s.answer(&DOWN.repeat(100));
        s.see(&format!("> A many/{:04}", n * 100));
    }
    s.answer("\x03");
    assert_eq!(s.end().0, Some(130));
}

/// The pictures in the docs are what a terminal shows. `BACKSTITCH_PICTURES=1` writes them anew.
#[test]
fn the_pictures_in_the_docs() {
    let w = on_screen(afternoon());
    let mut s = Session::start(&w, &["rewind", "--color", "never"]);
    s.see("D notes.txt  +0 -1");
    let list = aged(&s.shown());
    s.answer(DOWN);
    s.see("A src/reader/tests.rs");
    s.answer("\r");
    s.see("! conflict: changed since by somebody else");
    let turn = aged(&s.shown());
    s.answer("r");
    s.shows("the plan", |s| s.contains("PLAN:") && s.contains("n: change nothing"));
    let plan = aged(&s.shown());
    s.answer("\x03");
    s.end();
    let rule = format!("{}\n", "=".repeat(80));
    let all = format!("{list}{rule}{turn}{rule}{plan}");
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/picker.txt");
    if std::env::var_os("BACKSTITCH_PICTURES").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &all).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(stored, all, "BACKSTITCH_PICTURES=1 writes {}", file.display());
}

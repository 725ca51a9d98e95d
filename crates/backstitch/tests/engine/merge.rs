//! `revert`, and merging in rewind and undo.

use std::fs;

use backstitch::{
    error::Code,
    merge::Clash,
    operation::Outcome,
    rewind::Options,
    undo::{self, OnConflict},
    workspace::Control,
};
use backstitch_testkit::{Compare, generate::Rng};

use crate::{
    sessions::Agent,
    support::items,
    world::{World, action, same},
};

/// `line 1` to `line N`, with some replaced.
fn text(n: usize, changed: &[(usize, &str)]) -> String {
    (1..=n)
        .map(|i| match changed.iter().find(|(at, _)| *at == i) {
            Some((_, t)) => format!("{t}\n"),
            None => format!("line {i}\n"),
        })
        .collect()
}

fn clashes(o: &Outcome) -> Vec<(String, Clash)> {
    o.items.iter().flat_map(|i| i.clashes.iter().map(|c| (i.path.to_string(), c.clone()))).collect()
}

fn merge() -> Options {
    Options { on_conflict: OnConflict::Merge, ..Options::default() }
}

#[test]
fn r133_one_prompt_of_six_is_taken_back() {
    let w = World::new();
    w.write("f", text(30, &[]));
    let s = Agent { w: &w, id: "s" };
    let mut done: Vec<(usize, &str)> = Vec::new();
    let turns: [&[(usize, &str)]; 6] = [
        &[(2, "one")],
        &[(6, "two")],
        &[(10, "three"), (20, "three too"), (25, "three as well")],
        &[(11, "four")],
        &[(20, "five, over three")],
        &[(28, "six")],
    ];
    for (n, lines) in turns.iter().enumerate() {
        s.begin(&format!("k{n}"));
        done.retain(|(at, _)| lines.iter().all(|(l, _)| l != at));
        done.extend(lines.iter());
        s.write("c", "f", &text(30, &done));
        if n == 2 {
            s.write("new", "made by three", "x");
        }
        s.end();
    }
    let before = w.model();
    let preview = s.revert_with("3", Options { dry_run: true, ..Options::default() }).unwrap();
    before.assert_same(&w.model(), &Compare::untouched(), "previewed");
    let o = s.revert_with("turn:3", Options { plan: Some(preview.plan), ..Options::default() }).unwrap();
    assert_eq!(o.takes_back, [3]);
    done.retain(|(_, t)| *t != "three" && *t != "three as well");
    assert_eq!(w.read("f"), text(30, &done));
    assert!(!w.exists("made by three"));
    // What was changed again is told, with both sides, and stays.
    assert!(o.partial && o.verified);
    let found = clashes(&o);
    let [(path, c)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((path.as_str(), c.what, c.present.line, c.present.count), ("f", "lines", 20, 1));
    assert_eq!(
        (c.present.text.to_string(), c.base.text.to_string(), c.wanted.text.to_string()),
        ("five, over three\n".into(), "three too\n".into(), "line 20\n".into())
    );
    let after = w.model();
    w.undo().unwrap();
    same(&before, &w.model(), "one undo");
    w.redo().unwrap();
    same(&after, &w.model(), "redone");
    // A second time there is nothing to do but to tell.
    let again = s.revert("3");
    assert!(again.operation.is_none() && again.partial, "{:?}", items(&again));
    let e =
        s.revert_with("3", Options { on_conflict: OnConflict::Refuse, ..Options::default() }).unwrap_err();
    assert_eq!((e.code, e.list.as_slice()), (Code::Conflict, &["f".to_owned()][..]));
    s.revert_with("3", Options { on_conflict: OnConflict::Overwrite, ..Options::default() }).unwrap();
    done.retain(|(at, _)| *at != 20);
    assert_eq!(w.read("f"), text(30, &done));
    w.check_store();
}

#[test]
fn r133_what_nobody_touched_since_goes_back_exactly() {
    let w = World::new();
    w.write("a", "0");
    w.write("bin", b"\0\x01");
    w.write("gone", "precious");
    w.chmod("bin", 0o640);
    let old = w.model();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.shell("c", || {
        w.write("a", "1");
        w.write("bin", b"\0\x02");
        w.chmod("bin", 0o750);
        fs::remove_file(w.path("gone")).unwrap();
        w.write("d/e/f", "new");
    });
    s.end();
    let new = w.model();
    s.turn("k2", "later", "kept");
    let o = s.revert("1");
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("later"), "kept");
    fs::remove_file(w.path("later")).unwrap();
    same(&old, &w.model(), "reverted");
    w.undo().unwrap();
    same(&new, &w.model(), "undone");
}

#[test]
fn r133_renames_are_followed() {
    let w = World::new();
    w.write("f", text(30, &[]));
    w.write("g", text(30, &[(15, "g")]));
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.write("c1", "f", &text(30, &[(5, "agent")]));
    s.write("c2", "g", &text(30, &[(15, "g"), (5, "agent")]));
    s.write("c3", "made", &text(9, &[(3, "made")]));
    s.end();
    s.begin("k2");
    s.shell("mv", || {
        fs::create_dir(w.path("sub")).unwrap();
        for n in ["f", "g", "made"] {
            fs::rename(w.path(n), w.path(&format!("sub/{n}"))).unwrap();
        }
        w.write("sub/f", text(30, &[(5, "agent"), (25, "later")]));
    });
    s.end();
    let o = s.revert("1");
    assert_eq!(w.read("sub/f"), text(30, &[(25, "later")]), "{:?}", items(&o));
    assert_eq!(w.read("sub/g"), text(30, &[(15, "g")]));
    assert!(!w.exists("f") && !w.exists("g"));
    let i = o.items.iter().find(|i| i.path == "f").unwrap();
    assert_eq!(
        (action(&o, "f").as_deref(), i.moved_to.as_ref().unwrap().to_string()),
        (Some("keep:moved"), "sub/f".into())
    );
    // What it made and somebody moved is not removed behind their back.
    assert_eq!(action(&o, "made").as_deref(), Some("conflict:moved"));
    assert!(w.exists("sub/made") && o.partial);
    w.undo().unwrap();
    assert_eq!(w.read("sub/f"), text(30, &[(5, "agent"), (25, "later")]));
}

#[test]
fn r133_binary_mode_type_and_deletion_are_told() {
    let w = World::new();
    for n in ["bin", "mode", "type", "gone", "again"] {
        w.write(n, format!("\0{n} 0"));
    }
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.shell("c", || {
        for n in ["bin", "mode", "type", "gone"] {
            w.write(n, format!("\0{n} 1"));
        }
        w.chmod("mode", 0o600);
        fs::remove_file(w.path("again")).unwrap();
        w.write("made", "1");
    });
    s.end();
    w.write("bin", "\0bin 2");
    w.chmod("mode", 0o755);
    fs::remove_file(w.path("type")).unwrap();
    std::os::unix::fs::symlink("bin", w.path("type")).unwrap();
    fs::remove_file(w.path("gone")).unwrap();
    w.write("again", "mine");
    w.write("made", "2");
    let o = s.revert("1");
    for (path, want) in [
        ("bin", "conflict:binary"),
        ("type", "conflict:type"),
        ("gone", "conflict:deleted-by-other"),
        ("again", "conflict:changed"),
        ("made", "conflict:changed"),
        // The content goes back, the bits stay.
        ("mode", "overwrite"),
    ] {
        assert_eq!(action(&o, path).as_deref(), Some(want), "{path}: {:?}", items(&o));
    }
    let found = clashes(&o);
    let [(path, c)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((path.as_str(), c.what, c.present.text.to_string()), ("mode", "mode", "0755".into()));
    assert_eq!(w.read("mode"), "\0mode 0");
    assert_eq!((w.read("bin"), w.read("made")), ("\0bin 2".into(), "2".into()));
    // All of it, if asked for; the safety row holds what was there.
    let before = w.model();
    let all = Options { on_conflict: OnConflict::Overwrite, ..Options::default() };
    let o = s.revert_with("1", all).unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(
        (w.read("bin"), w.read("gone"), w.exists("made")),
        ("\0bin 0".into(), "\0gone 0".into(), false)
    );
    w.undo().unwrap();
    same(&before, &w.model(), "undone");
}

#[test]
fn s13_a_rewind_merges_what_the_user_changed_since() {
    let w = World::new();
    w.write("f", text(20, &[]));
    w.write("moved", text(20, &[(1, "moved")]));
    w.write("shared", text(20, &[(2, "x")]));
    let s = Agent { w: &w, id: "s" };
    for n in 1..=2 {
        s.begin(&format!("k{n}"));
        s.write("c", "f", &text(20, &[(3, "agent"), (10, ["agent", "agent again"][n - 1])]));
        s.write("m", "moved", &text(20, &[(1, "moved"), (5, "agent")]));
        s.end();
    }
    w.write("f", text(20, &[(3, "agent"), (10, "mine"), (17, "mine")]));
    fs::rename(w.path("moved"), w.path("elsewhere")).unwrap();
    let keep = s.rewind_with("1", Options { dry_run: true, ..Options::default() }).unwrap();
    assert_eq!(action(&keep, "f").as_deref(), Some("conflict:changed"));
    assert_eq!(action(&keep, "moved").as_deref(), Some("conflict:moved"));
    let before = w.model();
    let o = s.rewind_with("1", merge()).unwrap();
    assert_eq!(w.read("f"), text(20, &[(10, "mine"), (17, "mine")]), "{:?}", items(&o));
    assert_eq!(w.read("elsewhere"), text(20, &[(1, "moved")]), "the old content at the new place");
    assert!(!w.exists("moved") && o.partial);
    let found = clashes(&o);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].1.wanted.text.to_string(), found[0].1.present.line), ("line 10\n".into(), 10));
    w.undo().unwrap();
    same(&before, &w.model(), "undone");
    // Markers only if they are asked for.
    s.rewind_with("1", Options { markers: true, ..merge() }).unwrap();
    let f = w.read("f");
    assert!(
        f.contains("<<<<<<< present\nmine\n||||||| base\nagent again\n=======\nline 10\n>>>>>>> wanted\n"),
        "{f}"
    );
}

#[test]
fn what_the_user_did_between_two_turns_stays_in_a_merge() {
    let w = World::new();
    w.write("f", text(20, &[]));
    let s = Agent { w: &w, id: "s" };
    s.turn("k1", "f", &text(20, &[(3, "one")]));
    w.write("f", text(20, &[(3, "one"), (8, "mine")]));
    s.turn("k2", "f", &text(20, &[(3, "one"), (8, "mine"), (15, "two")]));
    let o = s.rewind("1");
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed-between"));
    let o = s.rewind_with("1", merge()).unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("f"), text(20, &[(8, "mine")]));
    w.undo().unwrap();
    let o = s.revert("1");
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!(w.read("f"), text(20, &[(8, "mine"), (15, "two")]));
    // A rewind after a revert knows what that did.
    s.rewind_with("1", merge()).unwrap();
    assert_eq!(w.read("f"), text(20, &[(8, "mine")]));
}

#[test]
fn s18_an_undo_merges_if_it_is_asked_to() {
    let w = World::new();
    w.write("f", text(20, &[]));
    w.write("g", text(20, &[(9, "g")]));
    let c = w.checkpoint();
    w.write("f", text(20, &[(3, "mine"), (10, "mine")]));
    w.write("g", text(20, &[(9, "g"), (3, "mine")]));
    w.restore(&c);
    w.write("f", text(20, &[(10, "other"), (18, "since")]));
    fs::rename(w.path("g"), w.path("h")).unwrap();
    let before = w.model();
    let o = undo::Options { on_conflict: Some(OnConflict::Merge), ..Default::default() };
    let out = w.open().undo(&o, &Control::default()).unwrap();
    assert_eq!(w.read("f"), text(20, &[(3, "mine"), (10, "other"), (18, "since")]));
    assert_eq!(w.read("h"), text(20, &[(9, "g"), (3, "mine")]), "{:?}", items(&out));
    assert!(out.partial && clashes(&out).len() == 1, "{:?}", items(&out));
    w.redo().unwrap();
    same(&before, &w.model(), "redone");
}

const BLOCKS: usize = 8;

/// A file of blocks that are edited whole, between lines that nobody edits.
#[derive(Clone, PartialEq)]
struct Doc(Vec<Vec<String>>);

impl Doc {
    fn new(name: &str) -> Doc {
        Doc((0..BLOCKS).map(|b| (0..2).map(|l| format!("{name} {b} {l}")).collect()).collect())
    }

    fn text(&self, name: &str) -> String {
        let mut out = String::new();
        for (n, b) in self.0.iter().enumerate() {
            out.push_str(&format!(
                "---- {name} {n}: a long line that nobody ever changes in this file ----\n"
            ));
            b.iter().for_each(|l| out.push_str(&format!("{l}\n")));
        }
        out
    }
}

/// Who changed which blocks of which file: a turn, or nobody.
type Edit = (Option<usize>, usize, Vec<usize>);

fn history(seed: u64) {
    const FILES: usize = 3;
    let w = World::new();
    let mut rng = Rng::new(seed);
    let names: Vec<String> = (0..FILES).map(|f| format!("f{f}")).collect();
    let mut places = names.clone();
    let mut docs: Vec<Doc> = names.iter().map(|n| Doc::new(n)).collect();
    for (n, d) in names.iter().zip(&docs) {
        w.write(n, d.text(n));
    }
    let s = Agent { w: &w, id: "s" };
    let mut edits: Vec<Edit> = Vec::new();
    let mut states: Vec<Vec<Doc>> = vec![docs.clone()];
    let turns = 4 + rng.below(3);
    let target = 1 + rng.below(turns - 1);
    for turn in 1..=turns {
        s.begin(&format!("k{turn}"));
        let calls = 1 + rng.below(2);
        for call in 0..calls {
            let f = rng.below(FILES);
            let blocks: Vec<usize> = (0..BLOCKS).filter(|_| rng.below(4) == 0).collect();
            for b in &blocks {
                let lines = rng.below(4);
                docs[f].0[*b] = (0..lines).map(|l| format!("turn {turn} call {call} {b} {l}")).collect();
            }
            s.write(&format!("c{call}"), &places[f], &docs[f].text(&names[f]));
            edits.push((Some(turn), f, blocks));
            states.push(docs.clone());
        }
        s.end();
        if rng.below(2) == 0 {
            let f = rng.below(FILES);
            let b = rng.below(BLOCKS);
            docs[f].0[b] = vec![format!("by hand after {turn}")];
            w.write(&places[f], docs[f].text(&names[f]));
            edits.push((None, f, vec![b]));
            states.push(docs.clone());
        }
        if turn > target && rng.below(4) == 0 {
            let f = rng.below(FILES);
            let to = format!("moved/{turn}-{f}");
            fs::create_dir_all(w.path("moved")).unwrap();
            fs::rename(w.path(&places[f]), w.path(&to)).unwrap();
            places[f] = to;
        }
    }
    // The history without the turn: a block that it edited is what it was before, unless it was edited again since.
    let mut want = docs.clone();
    let mut again = [0; FILES];
    for f in 0..FILES {
        for b in 0..BLOCKS {
            let of_block: Vec<usize> = edits
                .iter()
                .enumerate()
                .filter(|(_, e)| e.1 == f && e.2.contains(&b))
                .map(|(n, _)| n)
                .collect();
            let mine: Vec<usize> = of_block.iter().copied().filter(|n| edits[*n].0 == Some(target)).collect();
            let (Some(first), Some(last)) = (mine.first(), mine.last()) else { continue };
            let (was, left) = (&states[*first][f].0[b], &states[last + 1][f].0[b]);
            if of_block.iter().all(|n| n <= last) {
                want[f].0[b].clone_from(was);
            } else if was != left && docs[f].0[b] != *left && docs[f].0[b] != *was {
                again[f] += 1;
            } else if docs[f].0[b] == *left {
                want[f].0[b].clone_from(was);
            }
        }
    }
    let before = w.model();
    let o = s.revert(&target.to_string());
    for f in 0..FILES {
        let told: usize =
            o.items.iter().filter(|i| i.path == places[f].as_str()).map(|i| i.clashes.len()).sum();
        let what = format!("seed {seed}, turn {target}, {}: {:?}", places[f], items(&o));
        assert_eq!(w.read(&places[f]), want[f].text(&names[f]), "{what}");
        assert_eq!(told, again[f], "{what}");
    }
    assert_eq!(o.partial, again.iter().any(|n| *n > 0), "seed {seed}: {:?}", items(&o));
    if o.operation.is_some() {
        w.undo().unwrap();
    }
    same(&before, &w.model(), &format!("seed {seed}: undone"));
}

#[test]
fn r133_a_reverted_turn_is_a_history_without_it() {
    let rounds = std::env::var("BACKSTITCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..rounds {
        history(seed);
    }
}

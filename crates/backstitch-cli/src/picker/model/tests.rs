use backstitch::{
    checkpoint,
    diff::Status,
    error::Error,
    plan::{Action, Item},
    restore,
    workspace::{Control, Surroundings, Workspace},
};

use super::*;

fn entry(row: &str, turn: Option<u64>, words: &str) -> Entry {
    Entry {
        row: row.to_owned(),
        turn,
        session: Some("s".to_owned()),
        headline: words.to_owned(),
        prompt: words.to_owned(),
        restorable: true,
        ..Entry::default()
    }
}

fn model() -> Model {
    let mut left = entry("c", Some(1), "taken back");
    left.left = true;
    let list = vec![
        entry("a", Some(2), "write the tests"),
        entry("b", Some(1), "rename the parser"),
        left,
        entry("d", None, "by hand"),
    ];
    Model::new(list, &rewind::Options::default())
}

/// What the engine says of a plan, with these items.
fn out(plan: &str, items: Vec<Item>) -> Outcome {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("w");
    std::fs::create_dir(&folder).expect("a folder");
    let surroundings = Surroundings { store_base: scratch.path().join("data"), ..Surroundings::default() };
    let control = Control::default();
    let mut ws = Workspace::open(&folder, surroundings).expect("a workspace");
    let row =
        ws.checkpoint(&checkpoint::Options::default(), &control).expect("a row").checkpoint.expect("a row");
    let dry = restore::Options { dry_run: true, ..restore::Options::default() };
    let mut out = ws.restore(&row, &dry, &control).expect("a plan");
    out.plan = plan.to_owned();
    out.target = String::new();
    out.partial = items.iter().any(|i| !i.action.changes());
    out.items = items;
    out
}

fn changing() -> Item {
    Item::keep("f".into(), Action::Delete, "")
}

fn conflict() -> Item {
    Item::keep("g".into(), Action::Conflict, "changed")
}

fn change(path: &str) -> Change {
    Change {
        path: path.into(),
        old_path: None,
        status: Status::Modified,
        mode_change: None,
        binary: false,
        added: None,
        removed: None,
    }
}

fn typed(m: &mut Model, text: &str) {
    text.chars().for_each(|c| assert!(m.key(Key::Char(c)).is_none()));
}

fn rows(m: &Model) -> Vec<&str> {
    m.shown().map(|e| e.row.as_str()).collect()
}

/// Answers what was asked for with this plan.
fn planned(m: &mut Model, effect: Option<Effect>, items: Vec<Item>) -> Option<Effect> {
    let Some(Effect::Plan { ask, choice, straight }) = effect else { panic!("{effect:?}") };
    m.answer(Answer::Planned { ask, choice, straight, out: Ok(out("digest", items)) })
}

/// At the plan of a rewind.
fn at_plan(items: Vec<Item>) -> Model {
    let mut m = model();
    m.key(Key::Enter);
    let asked = m.key(Key::Char('r'));
    assert!(
        matches!(&asked, Some(Effect::Plan { ask: Ask::Rewind(e), straight: false, .. }) if e.row == "a")
    );
    assert!(planned(&mut m, asked, items).is_none());
    assert!(matches!(m.screen(), Screen::Plan { .. }));
    m
}

#[test]
fn what_was_taken_back_is_hidden_until_it_is_asked_for() {
    let mut m = model();
    assert_eq!((rows(&m), m.hidden(), m.total()), (vec!["a", "b", "d"], 1, 3));
    m.key(Key::Tab);
    assert_eq!((rows(&m), m.hidden(), m.total()), (vec!["a", "b", "c", "d"], 0, 4));
}

#[test]
fn typing_filters_by_words_and_escape_clears_before_it_ends() {
    let mut m = model();
    typed(&mut m, "PARSER re");
    assert_eq!(rows(&m), ["b"]);
    assert_eq!(m.entry().map(|e| e.row.as_str()), Some("b"));
    typed(&mut m, "zzz");
    assert!(rows(&m).is_empty() && m.entry().is_none() && m.idle().is_none());
    m.key(Key::Enter);
    assert!(matches!(m.screen(), Screen::List), "nothing to open");
    assert!(m.key(Key::Esc).is_none());
    assert_eq!(rows(&m).len(), 3);
    typed(&mut m, "turn:2");
    assert_eq!(rows(&m), ["a"]);
    m.key(Key::Esc);
    assert!(matches!(m.key(Key::Esc), Some(Effect::Quit)));
}

#[test]
fn an_id_is_found_by_its_beginning_only() {
    let list = vec![entry("01m8rjk1atg82j0m", Some(2), "do it"), entry("01m8rjzzzzzzzzzz", Some(1), "again")];
    for (filter, want) in [("k1", 0), ("01m8", 0), ("01m8rj", 2), ("01m8rjk", 1), ("82j0m", 0)] {
        let mut m = Model::new(list.clone(), &rewind::Options::default());
        typed(&mut m, filter);
        assert_eq!(m.shown().len(), want, "{filter}");
    }
}

#[test]
fn the_choice_stays_within_the_list() {
    let mut m = model();
    for (key, want) in [
        (Key::Up, 0),
        (Key::Down, 1),
        (Key::End, 2),
        (Key::Down, 2),
        (Key::PageUp, 0),
        (Key::PageDown, 2),
        (Key::Home, 0),
    ] {
        m.key(key);
        assert_eq!(m.at, want, "{key:?}");
    }
    m.key(Key::End);
    typed(&mut m, "tests");
    assert_eq!(m.entry().map(|e| e.row.as_str()), Some("a"));
}

#[test]
fn nothing_is_applied_but_the_plan_that_was_shown() {
    let mut m = at_plan(vec![changing()]);
    match m.key(Key::Char('y')) {
        Some(Effect::Apply { ask: Ask::Rewind(e), plan, .. }) => {
            assert_eq!((e.row.as_str(), plan.as_str()), ("a", "digest"))
        }
        other => panic!("{other:?}"),
    }
    for key in [Key::Esc, Key::Char('n'), Key::Char('q'), Key::Left] {
        let mut m = at_plan(vec![changing()]);
        assert!(m.key(key).is_none());
        assert!(matches!(m.screen(), Screen::Entry { .. }), "{key:?}");
    }
    // There is nothing in it.
    let mut m = at_plan(vec![conflict()]);
    assert!(m.key(Key::Char('y')).is_none() && m.said.as_ref().is_some_and(|s| s.1));
    // Who presses Return again and again has read nothing.
    let mut m = at_plan(vec![changing()]);
    assert!(m.key(Key::Enter).is_none() && matches!(m.screen(), Screen::Plan { .. }));
}

#[test]
fn a_dry_run_is_never_carried_out() {
    let options = rewind::Options { dry_run: true, ..rewind::Options::default() };
    let mut m = Model::new(vec![entry("a", Some(1), "x")], &options);
    m.key(Key::Enter);
    let asked = m.key(Key::Char('c'));
    planned(&mut m, asked, vec![changing()]);
    assert!(m.key(Key::Char('y')).is_none() && m.key(Key::Enter).is_none());
}

#[test]
fn a_plan_offers_only_what_it_left_alone() {
    let mut m = at_plan(vec![changing()]);
    for key in ['k', 'o', 'a'] {
        assert!(m.key(Key::Char(key)).is_none(), "{key}");
    }
    let left = |why: &str| Item::keep("o".into(), Action::Skip, why);
    let mut m = at_plan(vec![changing(), conflict(), left("outside"), left("unattributed")]);
    let choice = |e: Option<Effect>| match e {
        Some(Effect::Plan { choice, straight: false, .. }) => choice,
        other => panic!("{other:?}"),
    };
    assert!(choice(m.key(Key::Char('o'))).outside && choice(m.key(Key::Char('a'))).unattributed);
    // Keep, merge, overwrite, and round again; also once no conflict is left.
    for want in [OnConflict::Merge, OnConflict::Overwrite, OnConflict::Keep] {
        let asked = m.key(Key::Char('k'));
        assert!(
            matches!(&asked, Some(Effect::Plan { choice, .. }) if choice.on_conflict == want),
            "{asked:?}"
        );
        let items = if want == OnConflict::Keep { vec![conflict()] } else { vec![changing()] };
        planned(&mut m, asked, items);
    }
    m.key(Key::Esc);
    assert!(matches!(m.screen(), Screen::Entry { .. }), "plans replace each other");
}

#[test]
fn undo_is_one_key_where_it_takes_back_everything_and_a_plan_where_not() {
    let done = || {
        let mut m = at_plan(vec![changing()]);
        let Some(Effect::Apply { ask, choice, .. }) = m.key(Key::Char('y')) else { panic!() };
        let mut result = out("digest", vec![changing()]);
        (result.operation, result.dry_run) = (Some("op".to_owned()), false);
        assert!(matches!(m.answer(Answer::Applied { ask, choice, out: Ok(result) }), Some(Effect::Reload)));
        assert!(matches!(m.screen(), Screen::Done { .. }) && m.done.len() == 1);
        m
    };
    let mut m = done();
    let asked = m.key(Key::Char('u'));
    assert!(
        matches!(&asked, Some(Effect::Plan { ask: Ask::Undo(Some(id)), straight: true, .. }) if id == "op"),
        "{asked:?}"
    );
    assert!(
        matches!(planned(&mut m, asked, vec![changing()]), Some(Effect::Apply { plan, .. }) if plan == "digest")
    );
    let mut m = done();
    let asked = m.key(Key::Char('u'));
    assert!(planned(&mut m, asked, vec![changing(), conflict()]).is_none());
    assert!(matches!(m.screen(), Screen::Plan { .. }));
}

#[test]
fn a_plan_that_no_longer_fits_is_made_anew() {
    let mut m = at_plan(vec![changing()]);
    let Some(Effect::Apply { ask, choice, .. }) = m.key(Key::Char('y')) else { panic!() };
    let e = Error::new(Code::PlanChanged, "changed");
    let next = m.answer(Answer::Applied { ask, choice, out: Err(e) });
    assert!(planned(&mut m, next, vec![conflict()]).is_none());
    assert!(m.done.is_empty() && m.said.as_ref().is_some_and(|s| s.1));
    m.key(Key::Esc);
    assert!(matches!(m.screen(), Screen::Entry { .. }));
}

#[test]
fn what_is_missing_on_the_screen_is_asked_for_once() {
    let mut m = model();
    assert!(matches!(m.idle(), Some(Effect::Look(e)) if e.row == "a"));
    // A key came between: it is asked for again. An error is told, and it is not.
    m.answer(Answer::Looked("a".to_owned(), Err(Error::new(Code::Interrupted, "stopped"))));
    assert!(m.idle().is_some() && m.said.is_none());
    m.key(Key::Down);
    m.answer(Answer::Looked("b".to_owned(), Err(Error::new(Code::Io, "broken"))));
    assert!(m.idle().is_none() && m.said.is_some());
    m.key(Key::Up);
    m.answer(Answer::Looked("a".to_owned(), Ok(Look { changes: vec![change("f")], ..Look::default() })));
    assert!(m.idle().is_none());
    m.key(Key::Enter);
    assert!(matches!(m.idle(), Some(Effect::Patch(_, p)) if p == "f"));
    m.answer(Answer::Patched("a".to_owned(), "f".into(), Ok(b"+x".to_vec())));
    assert!(matches!(m.idle(), Some(Effect::Marks(_))));
    m.answer(Answer::Marked("a".to_owned(), Ok(BTreeMap::new())));
    assert!(m.idle().is_none());
}

#[test]
fn a_checkpoint_by_hand_is_no_turn() {
    let mut m = model();
    m.key(Key::End);
    m.key(Key::Enter);
    for key in ['r', 'v'] {
        assert!(m.key(Key::Char(key)).is_none() && m.said.as_ref().is_some_and(|s| s.1));
    }
    assert!(matches!(m.key(Key::Char('c')), Some(Effect::Plan { ask: Ask::Restore { .. }, .. })));
    let mut e = entry("x", Some(1), "gap");
    e.restorable = false;
    let mut m = Model::new(vec![e], &rewind::Options::default());
    m.key(Key::Enter);
    for key in ['c', 'e', 'f', 'h'] {
        assert!(m.key(Key::Char(key)).is_none() && m.said.as_ref().is_some_and(|s| s.1), "{key}");
    }
}

#[test]
fn typed_lines_end_in_what_they_are_for() {
    let mut m = model();
    m.key(Key::Enter);
    m.key(Key::Char('l'));
    typed(&mut m, "goood");
    m.key(Key::Backspace);
    m.key(Key::Backspace);
    typed(&mut m, "d");
    assert!(matches!(m.key(Key::Enter), Some(Effect::Label(_, Some(l))) if l == "good"));
    m.key(Key::Char('e'));
    assert!(m.key(Key::Enter).is_none(), "no folder, no export");
    m.key(Key::Char('e'));
    typed(&mut m, "out");
    assert!(matches!(m.key(Key::Enter), Some(Effect::Export(_, to)) if to == "out"));
    assert!(matches!(m.key(Key::Char('p')), Some(Effect::Pin(_, true))));
}

#[test]
fn ctrl_c_ends_it_anywhere() {
    for mut m in [model(), at_plan(vec![changing()])] {
        assert!(matches!(m.key(Key::Ctrl('c')), Some(Effect::Quit)));
    }
}

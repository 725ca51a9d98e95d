//! K2: nothing newer is lost; every change can be taken back.

use backstitch::{
    checkpoint,
    error::Code,
    names, restore,
    undo::{OnConflict, Options as UndoOptions},
    workspace::Control,
};
use backstitch_testkit::Compare;

use crate::world::{World, action, same};

#[test]
fn r13_hand_edit_survives_a_restore_through_undo() {
    let w = World::new();
    w.write("a.txt", "v0");
    let c = w.checkpoint();
    w.write("a.txt", "v1");
    w.checkpoint();
    w.write("a.txt", "v2 by hand");
    let o = w.restore(&c);
    let safety = w.find(&o.safety.unwrap()).unwrap();
    let mut bytes = Vec::new();
    w.open().cat(&safety, "a.txt".into(), &mut bytes).unwrap();
    assert_eq!(bytes, b"v2 by hand");
    w.undo().unwrap();
    assert_eq!(w.read("a.txt"), "v2 by hand");
}

#[test]
fn r14_nothing_to_do_is_no_operation() {
    let w = World::new();
    w.write("x", "1");
    let c = w.checkpoint();
    let before = w.model();
    let o = w.restore(&c);
    assert!(o.operation.is_none() && o.safety.is_none() && o.items.is_empty());
    before.assert_same(&w.model(), &Compare::untouched(), "untouched");
    assert!(w.open().operations().unwrap().is_empty());
}

#[test]
fn r16_undo_of_a_restore_and_redo() {
    let w = World::new();
    let mut models = Vec::new();
    let mut rows = Vec::new();
    for i in 0..3 {
        w.write("f", format!("{i}"));
        w.write(&format!("g{i}"), "x");
        models.push(w.model());
        rows.push(w.checkpoint());
    }
    w.restore(&rows[0]);
    same(&models[0], &w.model(), "restore");
    w.undo().unwrap();
    same(&models[2], &w.model(), "undo");
    w.redo().unwrap();
    same(&models[0], &w.model(), "redo");
}

#[test]
fn r18_undo_leaves_what_somebody_changed_since() {
    let w = World::new();
    w.write("f", "old");
    w.write("g", "old");
    let c = w.checkpoint();
    w.write("f", "agent");
    w.write("g", "agent");
    w.restore(&c);
    w.write("f", "by another program");
    let o = w.undo().unwrap();
    assert!(o.partial);
    assert_eq!(action(&o, "f").as_deref(), Some("conflict:changed"));
    assert_eq!((w.read("f"), w.read("g")), ("by another program".into(), "agent".into()));
}

#[test]
fn r18_refuse_changes_nothing_and_overwrite_is_saved_first() {
    let w = World::new();
    w.write("f", "old");
    w.write("g", "old");
    let c = w.checkpoint();
    w.write("f", "agent");
    w.write("g", "agent");
    w.restore(&c);
    w.write("f", "mine");
    let before = w.model();
    let with =
        |p| w.open().undo(&UndoOptions { on_conflict: Some(p), ..Default::default() }, &Control::default());
    let e = with(OnConflict::Refuse).unwrap_err();
    assert_eq!((e.code, e.list.as_slice()), (Code::Conflict, &["f".to_owned()][..]));
    before.assert_same(&w.model(), &Compare::untouched(), "refused");
    let o = with(OnConflict::Overwrite).unwrap();
    assert!(!o.partial);
    assert_eq!(w.read("f"), "agent");
    w.redo().unwrap();
    assert_eq!(w.read("f"), "mine", "what was overwritten comes back");
}

#[test]
fn r19_opening_writes_nothing_to_the_work_tree() {
    let w = World::new();
    w.write("a", "1");
    w.checkpoint();
    let before = w.model();
    for _ in 0..3 {
        let ws = w.open();
        ws.status().unwrap();
        ws.rows().unwrap();
    }
    before.assert_same(&w.model(), &Compare::untouched(), "opened");
}

#[test]
fn r20_a_busy_file_is_kept_and_can_be_restored_later() {
    let w = World::new();
    w.write("f", "1");
    w.write("g", "1");
    let c = w.checkpoint();
    w.write("f", "2");
    w.write("g", "2");
    let o = w.restore_with(&c, restore::Options { busy: vec!["f".into()], ..Default::default() }).unwrap();
    assert!(o.partial);
    assert_eq!(action(&o, "f").as_deref(), Some("keep:busy"));
    assert_eq!((w.read("f"), w.read("g")), ("2".into(), "1".into()));
    assert!(w.find(&c.record.id).is_ok());
    w.restore(&c);
    assert_eq!(w.read("f"), "1");
}

#[test]
fn r22_a_deleted_row_comes_back_by_undo() {
    let w = World::new();
    w.write("a", "1");
    let c = w
        .record(checkpoint::Options { label: Some("base".into()), ..Default::default() })
        .unwrap()
        .checkpoint
        .unwrap();
    let d = w.checkpoint();
    let tree = w.model();
    w.open().delete(&[&c, &d]).unwrap();
    assert_eq!(w.find("base").unwrap_err().code, Code::NoSuchCheckpoint);
    w.undo().unwrap();
    assert_eq!(w.find("base").unwrap().record.id, c.record.id);
    assert_eq!(w.find(&d.record.id).unwrap().commit, d.commit);
    w.redo().unwrap();
    assert!(w.find("base").is_err());
    w.undo().unwrap();
    assert!(w.find("base").is_ok());
    tree.assert_same(&w.model(), &Compare::untouched(), "the tree has no part in it");
    w.check_store();
}

#[test]
fn r136_redo_is_refused_with_a_reason_after_a_new_edit() {
    let w = World::new();
    let mut rows = Vec::new();
    for i in 0..6 {
        w.write("f", format!("{i}"));
        rows.push(w.checkpoint());
    }
    for c in rows[..5].iter().rev() {
        w.restore(c);
    }
    for _ in 0..5 {
        w.undo().unwrap();
    }
    for _ in 0..3 {
        w.redo().unwrap();
    }
    w.write("f", "new edit");
    let before = w.model();
    let e = w.redo().unwrap_err();
    assert_eq!((e.code, e.list.as_slice()), (Code::Conflict, &["f".to_owned()][..]));
    before.assert_same(&w.model(), &Compare::untouched(), "refused");
    // Abandoned states are still listed, and a new operation closes the branch.
    assert_eq!(w.open().operations().unwrap().len(), 5 + 5 + 3);
    w.restore(&rows[0]);
    assert_eq!(w.redo().unwrap_err().code, Code::NothingToRedo);
    let first = w.open().operations().unwrap()[0].record.id.clone();
    assert!(
        w.open()
            .undo(&UndoOptions { operation: Some(first), ..Default::default() }, &Control::default())
            .is_ok()
    );
}

#[test]
fn t22_an_editor_saving_between_look_and_write_keeps_its_save() {
    let w = World::new();
    w.write("f", "then");
    w.write("g", "then");
    let c = w.checkpoint();
    w.write("f", "now");
    w.write("g", "now");
    let plan = w.restore_with(&c, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    assert!(plan.operation.is_none() && plan.dry_run);
    w.write("f", "saved by an editor");
    let before = w.model();
    let e = w
        .restore_with(&c, restore::Options { plan: Some(plan.plan.clone()), ..Default::default() })
        .unwrap_err();
    assert_eq!(e.code, Code::PlanChanged);
    before.assert_same(&w.model(), &Compare::untouched(), "refused");
    w.write("f", "now");
    let o =
        w.restore_with(&c, restore::Options { plan: Some(plan.plan.clone()), ..Default::default() }).unwrap();
    assert_eq!(o.plan, plan.plan, "preview and real run are one plan");
    let shape = |o: &backstitch::operation::Outcome| {
        o.items.iter().map(|i| (i.path.clone(), i.action, i.reason.clone())).collect::<Vec<_>>()
    };
    assert_eq!(shape(&o), shape(&plan));
}

#[test]
fn a_preview_makes_no_row_and_no_object() {
    let w = World::new();
    w.write("f", "then");
    let c = w.checkpoint();
    w.write("f", "now, in bytes that no row holds");
    let store = || crate::world::everything_below(&w.git_dir());
    let before = (store(), w.model());
    let o = w.restore_with(&c, restore::Options { dry_run: true, ..Default::default() }).unwrap();
    assert_eq!(o.items.len(), 1);
    before.0.assert_same(&store(), &Compare::default(), "store");
    before.1.assert_same(&w.model(), &Compare::untouched(), "tree");
}

#[test]
fn no_safety_keeps_what_no_listed_row_holds() {
    let w = World::new();
    w.write("held", "1");
    w.write("unheld", "1");
    let c = w.checkpoint();
    w.write("held", "2");
    w.checkpoint();
    w.write("unheld", "never recorded");
    let rows = w.open().rows().unwrap().all.len();
    let o = w.restore_with(&c, restore::Options { no_safety: true, ..Default::default() }).unwrap();
    assert_eq!(action(&o, "unheld").as_deref(), Some("keep:no-safety"));
    assert!(o.safety.is_none() && o.partial);
    assert_eq!((w.read("held"), w.read("unheld")), ("1".into(), "never recorded".into()));
    assert_eq!(w.open().rows().unwrap().all.len(), rows, "no listed row");
    w.undo().unwrap();
    assert_eq!(w.read("held"), "2", "and yet it can be undone");
}

#[test]
fn r134_named_row_single_file_recovery_point() {
    let w = World::new();
    w.write("src/a.ts", "then");
    w.write("src/b.ts", "then");
    w.record(checkpoint::Options { label: Some("before refactor".into()), ..Default::default() }).unwrap();
    w.write("src/a.ts", "now");
    w.write("src/b.ts", "now");
    let c = w.find("before refactor").unwrap();
    let o = w
        .restore_with(&c, restore::Options { paths: vec!["src/a.ts".into()], ..Default::default() })
        .unwrap();
    assert_eq!(o.items.len(), 1);
    assert_eq!((w.read("src/a.ts"), w.read("src/b.ts")), ("then".into(), "now".into()));
    let safety = w.find(&o.safety.unwrap()).unwrap();
    let mut bytes = Vec::new();
    w.open().cat(&safety, "src/a.ts".into(), &mut bytes).unwrap();
    assert_eq!(bytes, b"now");
}

#[test]
fn r105_labels_and_names() {
    let w = World::new();
    w.write("a", "1");
    let first = w.checkpoint();
    for bad in ["@x", "turn:3", "prompt:1", "label:x", "10m", "14:05", "", "a\nb", first.record.id.as_str()] {
        let e = w.record(checkpoint::Options { label: Some(bad.into()), ..Default::default() }).unwrap_err();
        assert_eq!((e.code, e.code.exit()), (Code::BadLabel, 2), "{bad:?}");
    }
    let twice = || checkpoint::Options { label: Some("twice".into()), ..Default::default() };
    w.record(twice()).unwrap();
    w.record(twice()).unwrap();
    let e = w.find("twice").unwrap_err();
    assert_eq!((e.code, e.list.len()), (Code::Ambiguous, 2));
    assert_eq!(w.find("@~2").unwrap().record.id, first.record.id);
    assert_eq!(w.find(&first.record.id[..15]).unwrap().record.id, first.record.id);
    assert_eq!(w.find("zzzz").unwrap_err().code, Code::NoSuchCheckpoint);
    let now = w.find("0s").unwrap();
    assert_eq!(now.record.label.as_deref(), Some("twice"));
    let rows = w.open().rows().unwrap();
    assert_eq!(names::resolve(&rows, "turn:1", None).unwrap_err().code, Code::NoSuchSession);
}

/// Two machines see one folder; each has a store of its own, and neither shortens the other's history.
#[test]
fn r21_two_engines_on_one_folder_keep_two_whole_histories() {
    let here = World::new();
    let there = {
        let mut s = here.surroundings.clone();
        s.store_base = here.dir.path().join("other machine");
        s
    };
    let far = || backstitch::workspace::Workspace::open(&here.root(), there.clone()).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..6 {
        here.write("f", format!("{n}"));
        if n % 2 == 0 {
            ours.push((here.checkpoint(), n));
        } else {
            let o = far().checkpoint(&checkpoint::Options::default(), &Control::default()).unwrap();
            theirs.push((o.checkpoint.unwrap(), n));
        }
    }
    assert_eq!(here.open().rows().unwrap().all.len(), 3);
    assert_eq!(far().rows().unwrap().all.len(), 3);
    for (row, n) in &theirs {
        far().restore(row, &restore::Options::default(), &Control::default()).unwrap();
        assert_eq!(here.read("f"), format!("{n}"));
    }
    for (row, n) in &ours {
        here.restore(row);
        assert_eq!(here.read("f"), format!("{n}"));
    }
}

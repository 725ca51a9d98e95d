//! Promises of earlier engines that no other test shows. Each is named by its row in `docs/seeds.md`.

use std::{collections::BTreeSet, fs};

use backstitch::{
    error::Code,
    record::{Kind, Retention},
    restore, stores,
    workspace::Surroundings,
};
use backstitch_testkit::{Compare, Git};

use crate::{
    sessions::Agent,
    support::{checkpoint_at, git, items, open_at, repository},
    world::World,
};

#[test]
fn s0_12_what_private_and_global_excludes_name_is_left_alone() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    let home = w.surroundings.home.clone().unwrap();
    fs::create_dir(&home).unwrap();
    fs::write(home.join(".gitconfig"), "[core]\n\texcludesFile = ~/rules\n").unwrap();
    fs::write(home.join("rules"), "global/\n").unwrap();
    fs::write(w.path(".git/info/exclude"), "private/\n").unwrap();
    w.write("private/x", "1");
    w.write("global/x", "1");
    let c = w.checkpoint();
    let skipped: BTreeSet<(&str, &str)> =
        c.record.skipped.iter().map(|s| (s.path.as_str(), s.reason.as_str())).collect();
    assert!(skipped.is_superset(&[("private", "ignored"), ("global", "ignored")].into()), "{skipped:?}");
    assert_eq!(c.record.files, 1);
    w.write("a", "2");
    w.write("private/y", "made since");
    w.write("global/y", "made since");
    let hidden = |w: &World| w.model().filter(|p, _| p.starts_with(b"private") || p.starts_with(b"global"));
    let before = hidden(&w);
    let o = w.restore(&c);
    assert_eq!(items(&o), ["a: overwrite"]);
    before.assert_same(&hidden(&w), &Compare::untouched(), "left alone");
    // Neither file was written, or pointed elsewhere.
    assert_eq!(fs::read_to_string(home.join(".gitconfig")).unwrap(), "[core]\n\texcludesFile = ~/rules\n");
    assert_eq!(fs::read_to_string(w.path(".git/info/exclude")).unwrap(), "private/\n");
}

#[test]
fn s0_15_rows_are_parentless_commits_of_a_fixed_identity() {
    let w = World::new();
    w.write("a", "1");
    repository(&w.root());
    git(&w.root(), &["config", "user.name", "The User"]);
    let long = format!("{}\nsecond line", "many words ".repeat(60));
    w.record(backstitch::checkpoint::Options {
        prompt: Some(long.clone()),
        session: Some("s".into()),
        kind: Kind::Prompt,
        ..Default::default()
    })
    .unwrap();
    w.write("a", "2");
    w.record(backstitch::checkpoint::Options { label: Some("before lunch".into()), ..Default::default() })
        .unwrap();
    w.write("a", "3");
    w.restore(&w.find("before lunch").unwrap());
    let ask = |args: &[&str]| {
        let mut c = Git::new().unwrap().command(&w.git_dir(), args);
        let out = c.env("GIT_DIR", w.git_dir()).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let format = "%(refname)|%(authorname) %(authoremail) %(committername)|%(parent)|%(subject)";
    let (_, refs) = ask(&["for-each-ref", &format!("--format={format}")]);
    let mut authors = BTreeSet::new();
    let mut subjects = Vec::new();
    for line in refs.lines() {
        let [name, author, parent, subject] = line.splitn(4, '|').collect::<Vec<_>>()[..] else { panic!() };
        assert!(name.starts_with("refs/backstitch/"), "{name}");
        assert_eq!(parent, "", "{name}: its content goes when it goes");
        authors.insert(author.to_owned());
        subjects.push(subject.to_owned());
    }
    assert_eq!(subjects.len(), 4, "two rows, a safety row, an operation: {refs}");
    assert_eq!(authors.len(), 1, "{authors:?}");
    assert!(!authors.first().unwrap().contains("The User"));
    // A line for people: the kind, the label or the beginning of the prompt.
    assert!(subjects.iter().any(|s| s.starts_with("manual ") && s.contains("before lunch")), "{subjects:?}");
    let prompt = subjects.iter().find(|s| s.starts_with("prompt ")).unwrap();
    assert!(prompt.contains("many words") && prompt.len() < 200, "{prompt}");
    assert!(!ask(&["rev-parse", "-q", "--verify", "HEAD"]).0, "HEAD says nothing");
    // The whole prompt is in the record.
    let rows = w.open().rows().unwrap();
    assert_eq!(rows.all[0].record.prompt.as_deref(), Some(long.as_str()));
    assert_eq!(
        rows.all[1].record.parent.as_deref(),
        Some(rows.all[0].record.id.as_str()),
        "kept in the record"
    );
}

#[test]
fn s0_18_stores_are_listed_and_a_missing_base_has_none() {
    let w = World::new();
    assert!(!w.surroundings.store_base.exists());
    assert_eq!(stores::stores_list(&w.surroundings).unwrap(), Vec::<serde_json::Value>::new());
    assert!(!w.surroundings.store_base.exists(), "looking makes nothing");
    w.write("x/f", "1");
    w.write("y/f", "1");
    checkpoint_at(&w, &w.path("x"));
    checkpoint_at(&w, &w.path("y"));
    fs::write(w.surroundings.store_base.join("stores/a file"), "x").unwrap();
    assert_eq!(stores::stores_list(&w.surroundings).unwrap().len(), 2);
}

#[test]
fn s0_45_the_first_touch_of_a_turn_wins_and_older_rows_stay() {
    let w = World::new();
    w.write("f", "0");
    let s = Agent { w: &w, id: "s" };
    let begun = s.begin("k1");
    for n in 1..=3 {
        s.write(&format!("c{n}"), "f", &format!("{n}"));
    }
    // Named for the first time, when the turn's row is long made.
    s.write("c4", "new-one", "x");
    s.end();
    assert_eq!(w.find(&begun.record.id).unwrap().commit, begun.commit, "a row is never written again");
    s.rewind("1");
    assert_eq!(w.read("f"), "0");
    assert!(!w.exists("new-one"));
    w.undo().unwrap();
    assert_eq!((w.read("f"), w.read("new-one")), ("3".into(), "x".into()));
}

#[test]
fn s2_10_a_repository_around_the_store_does_not_see_it() {
    let mut w = World::new();
    w.surroundings.store_base = w.path("tools/data");
    w.write("a", "1");
    w.write(".gitignore", "*.o\n");
    repository(&w.root());
    w.checkpoint();
    assert_eq!(git(&w.root(), &["status", "--porcelain", "--ignored=no"]), "");
    assert_eq!(w.read(".gitignore"), "*.o\n", "the user's own file is the user's");
    let own = w.path("tools/data/.gitignore");
    assert_eq!(fs::read_to_string(&own).unwrap(), "*\n");
    // Whoever changed it knows why.
    fs::write(&own, "*\n!stores/\n").unwrap();
    w.checkpoint();
    assert_eq!(fs::read_to_string(&own).unwrap(), "*\n!stores/\n");
}

#[test]
fn s3_39_a_safety_row_names_its_operation_and_is_kept_long() {
    let w = World::new();
    w.write("a", "1");
    let c = w.checkpoint();
    w.write("a", "2");
    let o = w.restore(&c);
    let safety = w.find(o.safety.as_deref().unwrap()).unwrap();
    assert_eq!((safety.record.kind, safety.record.retention), (Kind::Safety, Retention::Forensic));
    assert_eq!(safety.record.operation, o.operation);
    assert_eq!(o.target, c.record.id);
    let all = w.open().operations().unwrap();
    assert_eq!((all.len(), all[0].record.target.as_str()), (1, c.record.id.as_str()));
    // Nothing to do: no row, and nothing to name.
    let o = w.restore(&c);
    assert!(o.safety.is_none() && w.open().rows().unwrap().all.len() == 2);
}

#[test]
fn s4_20_what_only_looks_like_litter_is_content() {
    let content = [
        ".claude/settings.json",
        ".pi/extensions/x.ts",
        ".vscode/settings.json",
        "vendor/lib.c",
        "project.iml",
        ".idea/modules.xml",
        "types/index.d.ts",
        "build/x",
        "dist/x",
        "target/x",
        "coverage/x",
        "x.log",
        "x.tmp",
    ];
    let litter = [".DS_Store", "sub/.DS_Store", "sub/deep/Thumbs.db", "sub/.x.swp"];
    let remade = ["node_modules/x", "sub/node_modules/x", "sub/__pycache__/x.pyc"];
    for in_git in [false, true] {
        let w = World::new();
        if in_git {
            repository(&w.root());
        }
        for p in content.iter().chain(&litter).chain(&remade) {
            w.write(p, "x");
        }
        let c = w.checkpoint();
        let held = |p: &str| w.open().cat(&c, p.into(), &mut Vec::new()).is_ok();
        assert!(content.iter().all(|p| held(p)), "{in_git}");
        assert!(litter.iter().all(|p| !held(p)), "{in_git}");
        assert!(remade.iter().all(|p| held(p) == in_git), "the repository's own rules say what counts");
    }
}

#[test]
fn s4_23_a_nested_repository_opened_by_itself_is_an_ordinary_workspace() {
    let w = World::new();
    w.write("beside", "1");
    w.write("inner/f", "1");
    repository(&w.path("inner"));
    w.checkpoint();
    let inner = open_at(&w, &w.path("inner"));
    assert_eq!(inner.root(), w.path("inner"));
    let c = checkpoint_at(&w, &w.path("inner"));
    w.write("inner/f", "2");
    w.write("beside", "2");
    let o = open_at(&w, &w.path("inner"))
        .restore(&c, &restore::Options::default(), &backstitch::workspace::Control::default())
        .unwrap();
    assert!(!o.partial, "{:?}", items(&o));
    assert_eq!((w.read("inner/f"), w.read("beside")), ("1".into(), "2".into()));
}

#[test]
fn s4_31_a_store_in_use_is_not_deleted() {
    let w = World::new();
    w.write("a", "1");
    w.checkpoint();
    let ws = w.open();
    let name = ws.store_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let delete = |purge| stores::stores_delete(&w.surroundings, &name, purge);
    let held = ws.lock_capture().unwrap();
    for purge in [false, true] {
        assert_eq!(delete(purge).unwrap_err().code, Code::Busy, "purge: {purge}");
    }
    assert_eq!(w.open().rows().unwrap().all.len(), 1);
    drop(held);
    drop(ws);
    // A child that another test starts at this moment may hold a copy of the lock until it runs its program.
    let freed = loop {
        match delete(false) {
            Err(e) if e.code == Code::Busy => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    };
    assert!(freed > 0);
    assert_eq!(delete(false).unwrap_err().code, Code::NoSuchStore);
}

/// Everything the engine knows of its surroundings is handed in.
#[test]
fn s2_71_nothing_is_taken_from_the_process() {
    let w = World::new();
    let Surroundings { home, store_base, .. } = &w.surroundings;
    assert!(home.as_ref().unwrap().starts_with(w.dir.path()) && store_base.starts_with(w.dir.path()));
    w.write("a", "1");
    w.checkpoint();
    assert!(w.open().store_dir().starts_with(w.dir.path()));
}

#[test]
fn s4_25_s4x_20_names_of_devices_are_names_here_and_left_out_where_windows_matters() {
    let mut w = World::new();
    let odd = ["NUL", "aux/x", "sub/com1.txt", "sub/LPT³.log"];
    for p in odd {
        w.write(p, "1");
    }
    w.write("nulls", "1");
    let kept = w.checkpoint();
    assert_eq!((kept.record.files, kept.record.skipped_total), (5, 0));
    for p in odd {
        w.write(p, "2");
    }
    let o = w.restore(&kept);
    assert!(!o.partial, "{:?}", items(&o));
    assert!(odd.iter().all(|p| w.read(p) == "1"));

    let plain = w.surroundings.settings.clone();
    w.set("BACKSTITCH_WINDOWS_NAMES", "leave-out");
    w.set("BACKSTITCH_INCLUDE", "NUL,aux/x");
    w.write(".gitignore", "!NUL\n");
    let without = w.checkpoint();
    let skipped: BTreeSet<(&str, &str)> =
        without.record.skipped.iter().map(|s| (s.path.as_str(), s.reason.as_str())).collect();
    let all = ["NUL", "aux", "sub/LPT³.log", "sub/com1.txt"].map(|p| (p, "excluded"));
    assert_eq!(skipped, all.into(), "named, and by rule");
    assert_eq!(without.record.state, backstitch::record::State::Complete);
    // Not even a tool that names one has it opened.
    let agent = Agent { w: &w, id: "s" };
    agent.begin("k");
    agent.write("c", "NUL", "agent");
    let named = w.open().rows().unwrap().all.into_iter().rfind(|c| c.record.kind == Kind::Tool).unwrap();
    assert_eq!(named.record.skipped[0].reason, "excluded");
    // Rows that hold them stay as they are, and nothing is deleted for their sake.
    assert_eq!(w.find(&kept.record.id).unwrap().commit, kept.commit);
    w.restore(&without);
    assert_eq!((w.read("NUL").as_str(), w.read("aux/x").as_str()), ("agent", "1"));
    w.surroundings.settings = plain;
    w.restore(&kept);
    assert_eq!(w.read("NUL"), "1");
    w.check_store();
}

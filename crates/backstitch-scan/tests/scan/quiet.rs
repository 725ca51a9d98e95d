//! What a watcher vouches for is not looked at; all else is.

use std::{fs, os::unix::fs::PermissionsExt};

use backstitch_scan::*;

use crate::support::*;

fn world() -> World {
    let world = World::new();
    for dir in ["a", "a/deep", "a/deep/er", "b", "b/x", "c"] {
        world.write(&format!("{dir}/one.txt"), format!("one of {dir}"));
        world.write(&format!("{dir}/two.txt"), format!("two of {dir}"));
    }
    world.write("c/.gitignore", "*.out\n");
    world.write("c/left.out", "ignored");
    world.scan(&Setup::of(world.root()));
    world
}

fn noise(paths: &[(&str, bool)]) -> Vec<Noise> {
    let what = |below| if below { Heard::Below } else { Heard::All };
    paths.iter().map(|(p, below)| Noise { path: BString::from(*p), what: what(*below) }).collect()
}

fn quiet(world: &World, noisy: &[(&str, bool)]) -> Setup {
    quiet_for(world, Ignored::None, noisy)
}

fn quiet_for(world: &World, ignored: Ignored, noisy: &[(&str, bool)]) -> Setup {
    let mut setup = Setup { ignored, ..Setup::of(world.root()) };
    setup.quiet = Some(world.table().unwrap().quiet(&noise(noisy)));
    setup
}

/// Behind the watcher's back.
fn change(world: &World, path: &str) {
    fs::write(world.path(path), "changed").unwrap();
}

#[test]
fn what_is_quiet_is_not_looked_at() {
    let world = world();
    for dir in ["a", "a/deep", "a/deep/er", "b", "b/x", "c"] {
        change(&world, &format!("{dir}/one.txt"));
    }
    // The root is looked at, and nothing stands in it.
    let before = world.sink.flatten(&world.scan(&quiet(&world, &[])).root.unwrap());
    assert_eq!(before["b/one.txt".as_bytes().as_bstr()].1, b"one of b");
    // What is left out for its size is looked at again, nothing else beside it.
    assert_eq!(before["c/one.txt".as_bytes().as_bstr()].1, b"one of c");
    // Directories above a noisy one are gone through, and nothing in them is looked at.
    let seen = world.scan(&quiet(&world, &[("a/deep", false)]));
    assert_eq!(seen.read_files, 1, "of a/deep");
    let seen = world.scan(&quiet(&world, &[("a/deep", true)]));
    assert_eq!(seen.read_files, 1, "of a/deep/er, which lies below");
    let seen = world.scan(&quiet(&world, &[("b/x", false), ("gone", true)]));
    assert_eq!(seen.read_files, 1, "of b/x");
    world.check(&Setup::of(world.root()));
    world.check_unchanged(&Setup::of(world.root()));
}

#[test]
fn counts_and_skips_of_what_is_quiet_are_told() {
    let world = world();
    let full = world.scan(&Setup::of(world.root()));
    let half = world.scan(&quiet(&world, &[("b", false)]));
    assert_eq!(
        (half.files, half.dirs, half.links, half.bytes, half.root, paths(&half.skips)),
        (full.files, full.dirs, full.links, full.bytes, full.root, paths(&full.skips))
    );
    assert_eq!(paths(&half.skips), [("c/left.out".to_owned(), "ignored")]);
}

#[test]
fn what_is_in_doubt_is_looked_at_all_the_same() {
    let world = world();
    // Another name for it, under which it is written to.
    fs::hard_link(world.path("b/x/one.txt"), world.path("other-name")).unwrap();
    world.scan(&Setup::of(world.root()));
    change(&world, "other-name");
    assert_eq!(world.scan(&quiet(&world, &[])).read_files, 2, "both names");
    // The rules above are others.
    world.write(".gitignore", "two.txt\n");
    let ruled = world.scan(&quiet(&world, &[]));
    let left_out = ("a/deep/er/two.txt".to_owned(), "ignored");
    assert!(paths(&ruled.skips).contains(&left_out), "{:?}", ruled.skips);
    world.check(&Setup::of(world.root()));
    // Nothing vouches for the table, or nothing is to be believed.
    change(&world, "a/deep/one.txt");
    let unvouched = Setup { vouched: false, ..quiet(&world, &[]) };
    assert_eq!(world.scan(&unvouched).read_files, 1);
    change(&world, "a/deep/one.txt");
    let paranoid = Setup { paranoid: true, ..quiet(&world, &[]) };
    assert!(world.scan(&paranoid).read_files > 6);
    // Another folder at the root's path.
    let aside = world.path("../aside-of-it");
    fs::rename(world.path("a"), &aside).unwrap();
    fs::create_dir(world.path("a")).unwrap();
    world.write("a/one.txt", "another a");
    world.check(&quiet(&world, &[("a", true)]));
    fs::remove_dir_all(aside).unwrap();
}

#[test]
fn a_file_whose_times_were_fresh_is_read_again() {
    let world = World::new();
    world.write("a/one.txt", "one");
    let now = Setup { clock: Ahead(0), ..Setup::of(world.root()) };
    world.scan(&now);
    let again = Setup { clock: Ahead(0), ..quiet(&world, &[]) };
    assert_eq!(world.scan(&again).read_files, 1);
}

#[test]
fn a_proof_finds_what_the_watcher_missed() {
    let world = world();
    fs::set_permissions(world.path("c/two.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    change(&world, "a/deep/one.txt");
    let mut setup = quiet(&world, &[("c", false)]);
    setup.quiet = setup.quiet.map(Quiet::to_be_proven);
    let mut told = world.check(&setup);
    told.lies.sort();
    assert_eq!(told.lies, ["a", "a/deep"], "c was named");
    let mut setup = quiet(&world, &[]);
    setup.quiet = setup.quiet.map(Quiet::to_be_proven);
    assert!(world.check(&setup).lies.is_empty());
    // A name in a directory of which it heard another.
    change(&world, "b/one.txt");
    fs::remove_file(world.path("b/two.txt")).unwrap();
    world.write("b/new.txt", "new");
    let what = Heard::Names(["new.txt".into()].into());
    let mut setup = quiet(&world, &[]);
    let quiet = world.table().unwrap().quiet(&[Noise { path: "b".into(), what }]);
    setup.quiet = Some(quiet.to_be_proven());
    assert_eq!(world.check(&setup).lies, ["b/one.txt", "b/two.txt"]);
}

#[test]
fn what_is_kept_though_a_rule_leaves_it_out_is_quiet_while_it_would_be_kept_again() {
    let world = world();
    world.write("b/.gitignore", "one.txt\n");
    let of = |ignored, noisy: &[(&str, bool)]| quiet_for(&world, ignored, noisy);
    world.scan(&of(Ignored::Small, &[("b", false)]));
    change(&world, "b/one.txt");
    assert_eq!(world.scan(&of(Ignored::Small, &[])).read_files, 0);
    // Another policy: nothing of the table's decisions holds.
    let strict = world.scan(&of(Ignored::None, &[]));
    assert!(paths(&strict.skips).contains(&("b/one.txt".to_owned(), "ignored")), "{:?}", strict.skips);
}

#[test]
fn of_a_directory_only_the_names_that_were_heard_are_looked_at() {
    let world = world();
    change(&world, "b/one.txt");
    change(&world, "b/two.txt");
    world.write("b/new.txt", "new");
    let names = |names: &[&str]| {
        let what = Heard::Names(names.iter().map(|n| BString::from(*n)).collect());
        let mut setup = Setup::of(world.root());
        setup.quiet = Some(world.table().unwrap().quiet(&[Noise { path: "b".into(), what }]));
        setup
    };
    // The directory changed too, so that its names are listed.
    let seen = world.scan(&names(&["two.txt", "new.txt"]));
    assert_eq!((seen.read_files, seen.listed_dirs), (2, 1));
    assert_eq!(world.scan(&names(&[])).read_files, 0);
    assert_eq!(world.scan(&names(&["one.txt"])).read_files, 1);
    world.check(&Setup::of(world.root()));
}

/// Linking tells nothing to the directory of the first name, and neither does writing under the second.
#[test]
fn a_file_that_got_another_name_and_was_written_to_under_it() {
    let world = world();
    fs::hard_link(world.path("a/deep/one.txt"), world.path("b/other")).unwrap();
    change(&world, "b/other");
    let what = Heard::Names(["other".into()].into());
    let quiet = world.table().unwrap().quiet(&[Noise { path: "b".into(), what }]);
    world.check(&Setup { quiet: Some(quiet), ..Setup::of(world.root()) });
}

/// What a watcher says of the difference between two moments.
fn heard(before: &Moment, after: &Moment) -> Vec<Noise> {
    let mut noise: Vec<Noise> = Vec::new();
    for path in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(path), after.get(path));
        if old == new {
            continue;
        }
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let what = Heard::Names([BString::from(name)].into());
        noise.push(Noise { path: dir.into(), what });
        let is_dir = |m: Option<&Seen>| m.is_some_and(|m| m.0);
        if (is_dir(old) || is_dir(new)) && old.map(|m| m.1) != new.map(|m| m.1) {
            noise.push(Noise { path: path.as_str().into(), what: Heard::Below });
        } else if is_dir(new) {
            noise.push(Noise { path: path.as_str().into(), what: Heard::Names(Default::default()) });
        }
    }
    noise
}

/// A directory, which one, and what else the system says of it.
type Seen = (bool, u64, (i64, i64, i64, i64, u64, u32));
type Moment = std::collections::BTreeMap<String, Seen>;

fn moment(world: &World) -> Moment {
    use std::os::unix::fs::MetadataExt;
    let mut all = Moment::new();
    let mut left = vec![String::new()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(world.path(&dir)).unwrap().map(Result::unwrap) {
            let m = entry.path().symlink_metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let rest = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec(), m.size(), m.mode());
            all.insert(path.clone(), (m.is_dir(), m.ino(), rest));
            if m.is_dir() {
                left.push(path);
            }
        }
    }
    all
}

#[test]
fn many_rounds_of_random_edits_that_are_heard() {
    for seed in 100..112 {
        let world = World::new();
        let mut dice = Dice(seed);
        let ignored = dice.pick(&[Ignored::None, Ignored::Small, Ignored::All]);
        let setup = || Setup { threads: 1 + seed as usize % 3, ignored, ..Setup::of(world.root()) };
        if dice.roll(2) == 0 {
            world.write(".gitignore", "e\n");
        }
        world.scan(&setup());
        for round in 0..12 {
            let before = moment(&world);
            for _ in 0..1 + dice.roll(6) {
                crate::trust::edit(&world, &mut dice, round);
            }
            if let Some((path, _)) = before.iter().filter(|(_, m)| !m.0).nth(dice.roll(8)) {
                // In place, and under another name.
                let _ = fs::write(world.path(path), "in place");
                let _ = fs::hard_link(world.path(path), world.path(&format!("link{round}")));
            }
            let noise = heard(&before, &moment(&world));
            let quiet = world.table().unwrap().quiet(&noise);
            // Now and then everything is looked at all the same: nothing was kept from us.
            let quiet = if dice.roll(4) == 0 { quiet.to_be_proven() } else { quiet };
            let told = world.check(&Setup { quiet: Some(quiet), ..setup() });
            assert_eq!(told.lies, [""; 0], "seed {seed}, round {round}");
        }
    }
}

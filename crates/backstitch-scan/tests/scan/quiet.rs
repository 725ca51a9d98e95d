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
    paths.iter().map(|(p, below)| Noise { path: BString::from(*p), below: *below }).collect()
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
    // What was left out for its size is looked at again.
    assert_eq!(before["c/one.txt".as_bytes().as_bstr()].1, b"changed");
    // Directories above a noisy one are looked at too.
    let seen = world.scan(&quiet(&world, &[("a/deep", false)]));
    assert_eq!(seen.read_files, 2, "of a and of a/deep");
    let seen = world.scan(&quiet(&world, &[("a/deep", true)]));
    assert_eq!(seen.read_files, 1, "of a/deep/er, which lies below");
    let seen = world.scan(&quiet(&world, &[("b/x", false), ("gone", true)]));
    assert_eq!(seen.read_files, 2, "of b and b/x");
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

//! The table is a cache: damaged in any way it is no table, never a wrong one.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use backstitch_scan::*;

use crate::support::*;

const FILES: [&str; 2] = ["stat.base", "stat.log"];

fn world_with_log() -> World {
    let world = World::new();
    for i in 0..30 {
        world.write(&format!("dir{}/file{i}", i % 7), format!("content {i}"));
    }
    let setup = Setup::of(world.root());
    world.scan(&setup);
    world.write("dir3/file3", "changed");
    world.scan(&setup);
    world
}

#[test]
fn any_damage_reads_as_no_table() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    assert!(world.table().is_some());
    for name in FILES {
        let path = world.state.path().join(name);
        let good = fs::read(&path).unwrap();
        let mut dice = Dice(1);
        let places: Vec<usize> =
            (0..good.len().min(64)).chain((0..80).map(|_| dice.roll(good.len()))).collect();
        for at in places {
            let mut bad = good.clone();
            bad[at] ^= 1 << dice.roll(8);
            replace(&path, &bad);
            match world.table() {
                None => {}
                // The name of the base can differ: then the log does not count, and what it held is seen on the disk. A
                // record can be damaged: then its directory is looked at as a new one.
                Some(table) => {
                    let sink = Memory::default();
                    let full = setup.scan(world.root(), None, &sink);
                    let known = setup.scan(world.root(), Some(&table), &world.sink);
                    assert_eq!(known.root, full.root, "{name} at {at}");
                }
            }
        }
        for len in (0..64).chain((0..40).map(|_| dice.roll(good.len()))).filter(|len| *len < good.len()) {
            replace(&path, &good[..len]);
            if let Some(table) = world.table() {
                let full = setup.scan(world.root(), None, &Memory::default());
                assert_eq!(
                    setup.scan(world.root(), Some(&table), &world.sink).root,
                    full.root,
                    "{name} cut to {len}"
                );
                assert_eq!(len, 28, "only a log without any segment is whole");
            }
        }
        replace(&path, &good);
    }
    assert!(world.table().is_some());
}

/// The checksums are made right, so that what is behind them is reached: reading goes on or ends, at once.
#[test]
fn fuzz_stat_table() {
    let world = world_with_log();
    let files = FILES.map(|name| world.state.path().join(name));
    let good = files.each_ref().map(|f| fs::read(f).unwrap());
    for (n, start) in [(0, 40), (1, 36)] {
        replace(&files[1 - n], &good[1 - n]);
        backstitch_testkit::fuzz::run(
            FILES[n],
            &[&good[n]],
            &[&[0xff; 4], &[0; 8], &[0, 0, 0, 0x80]],
            |input| {
                let mut bytes = input.to_vec();
                if bytes.len() > start {
                    let crc = crc32fast::hash(&bytes[start..]).to_le_bytes();
                    let len = bytes.len();
                    if n == 0 {
                        seal(&mut bytes);
                    } else {
                        bytes[28..32].copy_from_slice(&((len - start) as u32).to_le_bytes());
                        bytes[32..36].copy_from_slice(&crc);
                    }
                }
                replace(&files[n], &bytes);
                world.table().map(|table| (table.note().len(), table.directories().len()))
            },
        );
    }
}

/// Makes length and checksums of a base right, as far as it says where they are.
fn seal(bytes: &mut [u8]) {
    let word = |b: &[u8], at: usize| b.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b) as usize);
    let len = bytes.len() as u64;
    bytes[24..32].copy_from_slice(&len.to_le_bytes());
    let spans = 40 + 28 + word(bytes, 40 + 24).unwrap_or(0);
    let count = word(bytes, spans).unwrap_or(0);
    let end = (spans + 4).saturating_add(count.saturating_mul(16)).min(bytes.len());
    for span in (spans + 4..end).step_by(16) {
        let record = || {
            let start = 40usize.checked_add(word(bytes, span)?)?;
            bytes.get(start..start.checked_add(word(bytes, span + 8)?)?)
        };
        if let Some(crc) = record().map(crc32fast::hash)
            && let Some(place) = bytes.get_mut(span + 12..span + 16)
        {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }
    let crc = crc32fast::hash(&bytes[40..end]).to_le_bytes();
    bytes[32..36].copy_from_slice(&crc);
}

/// As the table's own code does: the old file may be mapped.
fn replace(path: &std::path::Path, bytes: &[u8]) {
    let new = path.with_extension("test");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn without_its_base_or_log() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    let log = world.state.path().join("stat.log");
    let kept = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    world.check(&setup);
    world.check_unchanged(&setup);
    // A log of another base does not count.
    let other = world_with_log();
    fs::copy(other.state.path().join("stat.base"), world.state.path().join("stat.base2")).unwrap();
    fs::rename(world.state.path().join("stat.base2"), world.state.path().join("stat.base")).unwrap();
    replace(&log, &kept);
    let table = world.table().expect("a base alone is a table");
    let full = setup.scan(world.root(), None, &Memory::default());
    assert_eq!(setup.scan(world.root(), Some(&table), &world.sink).root, full.root);
    fs::remove_file(world.state.path().join("stat.base")).unwrap();
    assert!(world.table().is_none());
    world.check(&setup);
}

#[test]
fn files_are_private_and_the_note_is_kept() {
    let world = world_with_log();
    for entry in fs::read_dir(world.state.path()).unwrap().flatten().filter(|e| e.file_name() != "tick") {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
    assert_eq!(world.table().unwrap().note(), "note");
    let setup = Setup::of(world.root());
    world.write("dir1/more", "x");
    let table = world.table();
    let outcome = setup.scan(world.root(), table.as_ref(), &world.sink);
    outcome.update.unwrap().save(world.state.path(), b"another \0 note".as_bstr()).unwrap();
    assert_eq!(world.table().unwrap().note().as_bytes(), b"another \0 note");
    assert!(Table::open(&world.path("nowhere")).is_none());
}

#[test]
fn the_log_grows_and_is_folded_into_the_base() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    let base = || fs::metadata(world.state.path().join("stat.base")).unwrap().ino();
    let log = || fs::metadata(world.state.path().join("stat.log")).unwrap().len();
    let (first, before) = (base(), log());
    world.write("dir4/file4", "changed too");
    world.check(&setup);
    assert!(base() == first && log() > before, "a small change is appended");
    let mut folded = false;
    for i in 0..200 {
        world.write(&format!("dir{}/f{i}", i % 7), "x".repeat(i));
        world.scan(&setup);
        folded |= base() != first;
    }
    assert!(folded);
    world.check(&setup);
    world.check_unchanged(&setup);
}

#[test]
fn of_two_savers_the_second_gives_way() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    let table = world.table();
    world.write("dir1/one", "1");
    let one = setup.scan(world.root(), table.as_ref(), &world.sink).update.unwrap();
    world.write("dir2/two", "2");
    let two = setup.scan(world.root(), table.as_ref(), &world.sink).update.unwrap();
    two.save(world.state.path(), b"two".as_bstr()).unwrap();
    one.save(world.state.path(), b"one".as_bstr()).unwrap();
    assert_eq!(world.table().unwrap().note(), "two");
    world.check_unchanged(&setup);
}

#[test]
fn a_saver_that_finds_the_lock_taken_gives_way() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    let lock = fs::File::options().write(true).open(world.state.path().join("stat.lock")).unwrap();
    lock.lock().unwrap();
    world.write("dir1/one", "1");
    let table = world.table();
    let update = setup.scan(world.root(), table.as_ref(), &world.sink).update.unwrap();
    update.save(world.state.path(), b"lost".as_bstr()).unwrap();
    assert_eq!(world.table().unwrap().note(), "note");
}

#[test]
fn many_savers_at_once() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (world, setup) = (&world, &setup);
            scope.spawn(move || {
                for n in 0..10 {
                    world.write(&format!("dir{i}/new{n}"), format!("{i} {n}"));
                    let table = world.table();
                    let outcome = setup.scan(world.root(), table.as_ref(), &world.sink);
                    if let Some(update) = outcome.update {
                        update.save(world.state.path(), b"x".as_bstr()).unwrap();
                    }
                }
            });
        }
    });
    assert!(world.table().is_some(), "whole whoever came first");
    world.check(&setup);
    world.check_unchanged(&setup);
}

#[test]
fn a_full_disk_is_an_error_and_no_harm() {
    let world = world_with_log();
    let setup = Setup::of(world.root());
    world.write("dir1/one", "1");
    let table = world.table();
    let update = setup.scan(world.root(), table.as_ref(), &world.sink).update.unwrap();
    assert!(update.save(&world.path("nowhere"), b"x".as_bstr()).is_err());
    world.check(&setup);
}

#[test]
fn an_edit_in_a_large_directory_is_a_small_entry_of_the_log() {
    let world = World::new();
    for i in 0..2000 {
        world.write(&format!("large/file{i}"), format!("{i}"));
    }
    let setup = Setup::of(world.root());
    world.scan(&setup);
    let log = || fs::metadata(world.state.path().join("stat.log")).unwrap().len();
    for i in 0..20 {
        let before = log();
        world.write(&format!("large/file{i}"), format!("changed {i}"));
        world.check(&setup);
        assert!(log() - before < 1000, "{before} {}", log());
        world.check_unchanged(&setup);
    }
}

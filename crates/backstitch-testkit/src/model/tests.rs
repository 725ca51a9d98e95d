use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::text::show;

use super::{
    read::{Options, blob_id},
    *,
};

/// A small tree with one of everything.
fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("file"), "one").unwrap();
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("sub/run.sh"), "#!/bin/sh\n").unwrap();
    symlink("file", root.join("link")).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    fs::write(root.join(".git/HEAD"), "ref: x\n").unwrap();
    dir
}

/// Applies `change`, and returns what the comparison says of it.
fn after(compare: &Compare, change: impl FnOnce(&Path)) -> Vec<String> {
    let dir = sample();
    let before = TreeModel::read_all(dir.path()).unwrap();
    assert!(before.same(&before.clone(), &Compare::untouched()));
    change(dir.path());
    let now = TreeModel::read_all(dir.path()).unwrap();
    before.differences(&now, compare).iter().map(|d| d.to_string()).collect()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn content_ids_are_gits() {
    assert_eq!(blob_id(b"").unwrap(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    assert_eq!(blob_id(b"hello\n").unwrap(), "ce013625030ba8dba906f756967f9e9ca394464a");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "hello\n").unwrap();
    let model = TreeModel::read(dir.path()).unwrap();
    let id = "ce013625030ba8dba906f756967f9e9ca394464a".to_string();
    assert_eq!(model.entries[&b"a"[..]].content, Some(Content::Blob { id, size: 6 }));
}

#[test]
fn reads_every_kind_and_leaves_git_out_unless_told() {
    let dir = sample();
    let names = |m: &TreeModel| m.entries.keys().map(|k| show(k)).collect::<Vec<_>>();
    let model = TreeModel::read(dir.path()).unwrap();
    assert_eq!(names(&model), ["file", "link", "sub", "sub/empty", "sub/run.sh"]);
    let all = TreeModel::read_all(dir.path()).unwrap();
    assert_eq!(names(&all), [".git", ".git/HEAD", "file", "link", "sub", "sub/empty", "sub/run.sh"]);
    assert_eq!((all.count(Kind::Dir), all.count(Kind::File), all.count(Kind::Link)), (3, 3, 1));
}

#[test]
fn sees_each_kind_of_difference() {
    let plain = Compare::default();
    assert_eq!(after(&plain, |_| ()), [""; 0]);
    assert_eq!(after(&plain, |r| fs::remove_file(r.join("file")).unwrap()), ["file: missing (file)"]);
    assert_eq!(after(&plain, |r| fs::write(r.join("new"), "").unwrap()), ["new: not expected (file)"]);
    assert_eq!(after(&plain, |r| fs::create_dir(r.join("d")).unwrap()), ["d: not expected (directory)"]);
    assert_eq!(
        after(&plain, |r| fs::remove_dir(r.join("sub/empty")).unwrap()),
        ["sub/empty: missing (directory)"]
    );
    assert_eq!(after(&plain, |r| chmod(&r.join("file"), 0o600)), ["file: mode 0644 -> 0600"]);
    assert_eq!(after(&plain, |r| chmod(&r.join("sub"), 0o1777)), ["sub: mode 0755 -> 1777"]);
    let content = after(&plain, |r| fs::write(r.join("file"), "two").unwrap());
    assert_eq!(content.len(), 1);
    assert!(content[0].starts_with("file: content 3 bytes "), "{content:?}");
    let link = after(&plain, |r| {
        fs::remove_file(r.join("link")).unwrap();
        symlink("elsewhere", r.join("link")).unwrap();
    });
    assert_eq!(link, ["link: link file -> elsewhere"]);
    let kind = after(&plain, |r| {
        fs::remove_file(r.join("file")).unwrap();
        fs::create_dir(r.join("file")).unwrap();
    });
    assert_eq!(kind, ["file: type file -> directory"]);
    assert_eq!(after(&plain, |r| fs::write(r.join(".git/HEAD"), "moved\n").unwrap()).len(), 1);
}

#[test]
fn sees_extended_attributes_when_they_are_read() {
    let dir = sample();
    let set = |path: &str, value: &[u8]| {
        let file = fs::File::open(dir.path().join(path)).unwrap();
        rustix::fs::fsetxattr(&file, "user.note", value, rustix::fs::XattrFlags::empty())
    };
    crate::require!(set("file", b"one").is_ok(), "no extended attributes on this file system");
    let read = || TreeModel::read_with(dir.path(), Options { xattrs: true, ..Options::default() }).unwrap();
    let before = read();
    assert_eq!(
        before.entries[&b"file"[..]].xattrs,
        Some(Xattrs::from([(b"user.note".to_vec(), b"one".to_vec())]))
    );
    set("file", b"two").unwrap();
    set("sub", b"new").unwrap();
    let said: Vec<String> =
        before.differences(&read(), &Compare::default()).iter().map(|d| d.to_string()).collect();
    let expected =
        ["file: attributes {user.note=one} -> {user.note=two}", "sub: attributes {} -> {user.note=new}"];
    assert_eq!(said, expected);
    assert!(before.same(&TreeModel::read(dir.path()).unwrap(), &Compare::default()));
}

#[test]
fn sees_a_rewrite_with_the_same_bytes() {
    let strict = Compare::untouched();
    assert_eq!(after(&strict, |_| ()), [""; 0]);
    let replaced = after(&strict, |r| {
        let bytes = fs::read(r.join("file")).unwrap();
        fs::write(r.join("other"), bytes).unwrap();
        fs::rename(r.join("other"), r.join("file")).unwrap();
    });
    assert!(replaced.iter().any(|d| d.starts_with("file: inode ")), "{replaced:?}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let times = after(&strict, |r| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(r.join("file"), "one").unwrap();
    });
    assert!(times.iter().any(|d| d.starts_with("file: mtime ")), "{times:?}");
    assert!(times.iter().any(|d| d.starts_with("file: ctime ")), "{times:?}");
    assert!(!times.iter().any(|d| d.starts_with("file: inode ")), "{times:?}");
}

#[test]
fn names_what_was_touched_though_equal() {
    let dir = sample();
    let before = TreeModel::read(dir.path()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(dir.path().join("file"), "one").unwrap();
    fs::write(dir.path().join("sub/run.sh"), "changed").unwrap();
    let now = TreeModel::read(dir.path()).unwrap();
    let touched = before.touched_though_equal(&now);
    assert!(!touched.is_empty());
    assert!(touched.iter().all(|d| d.path == b"file"), "{touched:?}");
}

#[test]
fn finds_paths_that_are_neither_old_nor_new() {
    let dir = sample();
    let old = TreeModel::read(dir.path()).unwrap();
    fs::write(dir.path().join("file"), "new").unwrap();
    fs::remove_file(dir.path().join("link")).unwrap();
    let new = TreeModel::read(dir.path()).unwrap();
    symlink("file", dir.path().join("link")).unwrap();
    let mixed = TreeModel::read(dir.path()).unwrap();
    let plain = Compare::default();
    assert!(mixed.neither(&old, &new, &plain).is_empty());
    fs::write(dir.path().join("file"), "torn").unwrap();
    fs::write(dir.path().join("left-over"), "").unwrap();
    let torn = TreeModel::read(dir.path()).unwrap();
    assert_eq!(torn.neither(&old, &new, &plain), [b"file".to_vec(), b"left-over".to_vec()]);
}

#[test]
fn gits_view_knows_the_executable_bit_only() {
    let as_git = Compare::as_git();
    assert_eq!(after(&as_git, |r| chmod(&r.join("file"), 0o600)), [""; 0]);
    assert_eq!(after(&as_git, |r| chmod(&r.join("sub"), 0o700)), [""; 0]);
    assert_eq!(after(&as_git, |r| chmod(&r.join("file"), 0o755)), ["file: mode 0644 -> 0755"]);
}

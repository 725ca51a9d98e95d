//! The calls that every Unix has; on Linux only where the kernel lacks the better ones.

use std::{ffi::CStr, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};

use super::{Node, node};

// The types of the fields differ from system to system.
#[allow(clippy::unnecessary_cast)]
fn to_node(s: &rustix::fs::Stat) -> Node {
    let time = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    node(
        FileType::from_raw_mode(s.st_mode as _),
        crate::types::Stat {
            kind: crate::types::Kind::File,
            mode: s.st_mode as u32 & 0o7777,
            size: s.st_size as u64,
            blocks512: s.st_blocks as u64,
            mtime_ns: time(s.st_mtime as i64, s.st_mtime_nsec as i64),
            ctime_ns: time(s.st_ctime as i64, s.st_ctime_nsec as i64),
            dev: s.st_dev as u64,
            ino: s.st_ino as u64,
            nlink: s.st_nlink as u64,
            uid: s.st_uid,
            gid: s.st_gid,
        },
    )
}

pub(crate) fn stat_at(dir: impl AsFd, name: &CStr) -> Result<Node, Errno> {
    Ok(to_node(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

pub(crate) fn stat_fd(fd: impl AsFd) -> Result<Node, Errno> {
    Ok(to_node(&rustix::fs::fstat(fd)?))
}

#[cfg(any(not(target_os = "linux"), test))]
pub(crate) fn list(
    dir: std::os::fd::BorrowedFd<'_>,
    _: &mut [std::mem::MaybeUninit<u8>],
    names: &mut super::Names,
) -> Result<(), Errno> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        names.push_entry(entry.file_name().to_bytes(), entry.file_type());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::mem::MaybeUninit;

    use crate::handle::{Names, linux, open_root};

    #[test]
    fn both_ways_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..50 {
            std::fs::write(dir.path().join(format!("file{i}")), "x".repeat(i)).unwrap();
        }
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::os::unix::fs::symlink("file1", dir.path().join("link")).unwrap();
        let fd = open_root(dir.path()).unwrap();
        let fd = std::os::fd::AsFd::as_fd(&fd);
        let mut buf = vec![MaybeUninit::uninit(); 4096];
        let (mut a, mut b) = (Names::default(), Names::default());
        linux::list(fd, &mut buf, &mut a).unwrap();
        super::list(fd, &mut buf, &mut b).unwrap();
        a.sort();
        b.sort();
        let all = |names: &Names| -> Vec<Vec<u8>> {
            names
                .list
                .iter()
                .map(|(at, len, _)| names.pool[*at as usize..][..usize::from(*len)].to_vec())
                .collect()
        };
        assert_eq!((all(&a), a.list.len()), (all(&b), 52));
        for name in all(&a) {
            let name = std::ffi::CString::new(name).unwrap();
            let (x, y) = (linux::stat_at(fd, &name).unwrap(), super::stat_at(fd, &name).unwrap());
            assert_eq!(format!("{x:?}"), format!("{y:?}"));
        }
        assert_eq!(format!("{:?}", linux::stat_fd(fd)), format!("{:?}", super::stat_fd(fd)));
    }
}

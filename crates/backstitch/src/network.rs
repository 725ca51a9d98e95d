//! Stores on network file systems: refused unless `shared_store = true` (SEMANTICS 35), because locks there may hold for one
//! machine only.

use std::path::Path;

use crate::{
    error::{Code, Error, Result},
    settings::Settings,
};

/// Numbers by which `statfs` tells network and cluster file systems.
const TYPES: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x1983_0326, "BeeGFS"),
];

/// The name of a network file system, by the number that `statfs` gives.
///
/// ```
/// # use backstitch::network::name_of;
/// assert_eq!(name_of(0x6969), Some("NFS"));
/// assert_eq!(name_of(0xef53), None); // ext4
/// ```
pub fn name_of(kind: u64) -> Option<&'static str> {
    TYPES.iter().find(|(n, _)| *n == kind & 0xffff_ffff).map(|(_, name)| *name)
}

/// An option of a mount that keeps locks on this machine, from the lines of `/proc/self/mountinfo`.
pub fn local_locks(mountinfo: &str, major: u32, minor: u32) -> Option<&str> {
    let device = format!("{major}:{minor}");
    let line = mountinfo.lines().rfind(|l| l.split(' ').nth(2) == Some(&device))?;
    // The file system's own options are the last field.
    let options = line.rsplit(' ').next()?.split(',').chain(line.split(' ').nth(5)?.split(','));
    let mut local = options.filter(|o| {
        *o == "nolock" || *o == "nobrl" || o.strip_prefix("local_lock=").is_some_and(|v| v != "none")
    });
    local.next()
}

/// The decision: what kind of file system, what the settings say, how it is mounted.
pub fn verdict(kind: u64, shared: bool, local: Option<&str>) -> std::result::Result<(), String> {
    match (name_of(kind), shared, local) {
        (None, ..) | (Some(_), true, None) => Ok(()),
        (Some(name), false, _) => Err(format!("a store on a network file system ({name})")),
        (Some(name), true, Some(option)) => {
            Err(format!("a store on {name} mounted with `{option}`, which keeps locks on one machine"))
        }
    }
}

/// The name of this machine.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".to_owned() } else { name.trim().to_owned() }
}

/// Looks at the nearest folder that is there.
///
/// # Errors
/// `shared-store`.
pub(crate) fn check(dir: &Path, settings: &Settings) -> Result<()> {
    let Some(there) = dir.ancestors().find(|a| a.is_dir()) else { return Ok(()) };
    let Ok(s) = rustix::fs::statfs(there) else { return Ok(()) };
    let kind = s.f_type as u64;
    if name_of(kind).is_none() {
        return Ok(());
    }
    let info = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dev = std::os::unix::fs::MetadataExt::dev(&there.metadata().map_err(|e| Error::io(there, e))?);
    let local = local_locks(&info, rustix::fs::major(dev), rustix::fs::minor(dev));
    verdict(kind, settings.flag("shared_store"), local).map_err(|what| {
        Error::new(Code::SharedStore, format!("{}: {what} is refused", dir.display())).at(dir).hint(
            "name a local folder with --store-dir, or set `shared_store = true` if locks hold across machines",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sem35_a_network_file_system_is_refused_unless_the_settings_allow_it() {
        for kind in [0x6969, 0xff53_4d42, 0xffff_ffff_ff53_4d42, 0xfe53_4d42, 0x0102_1997] {
            assert!(verdict(kind, false, None).is_err(), "{kind:x}");
            assert!(verdict(kind, true, None).is_ok(), "{kind:x}");
            assert!(verdict(kind, true, Some("nolock")).is_err(), "{kind:x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlay
        for kind in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert!(verdict(kind, false, Some("nolock")).is_ok(), "{kind:x}");
        }
    }

    #[test]
    fn mounts_that_keep_locks_local_are_known_by_their_options() {
        let line =
            |options: &str| format!("36 35 0:45 / /mnt rw,noatime shared:1 - nfs4 host:/x {options}\n");
        let other = "20 1 8:1 / / rw - ext4 /dev/sda1 rw,nolock\n";
        for (options, want) in [
            ("rw,vers=4.2,local_lock=none", None),
            ("rw,local_lock=flock", Some("local_lock=flock")),
            ("rw,nolock", Some("nolock")),
        ] {
            assert_eq!(local_locks(&format!("{other}{}", line(options)), 0, 45), want);
        }
        assert_eq!(local_locks(other, 0, 45), None);
    }
}

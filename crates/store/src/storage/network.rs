//! Detects network file systems, where it is up to the server whether a lock keeps others out.

use std::path::Path;

/// By the number that the kernel gives them (`statfs`).
#[cfg(target_os = "linux")]
const NETWORKED: [(u32, &str); 11] = [
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6573_5546, "FUSE"),
];

/// What kind of file system a path is on, if it is one of another machine.
#[cfg(target_os = "linux")]
pub fn network_file_system(path: &Path) -> Option<&'static str> {
    // The numbers have 32 bits, whatever the width of the field.
    let kind = rustix::fs::statfs(path).ok()?.f_type as u32;
    name(kind)
}

#[cfg(target_os = "linux")]
fn name(kind: u32) -> Option<&'static str> {
    NETWORKED.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// What kind of file system a path is on, if it is one of another machine; here that is not known.
#[cfg(not(target_os = "linux"))]
pub fn network_file_system(_path: &Path) -> Option<&'static str> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_told_from_those_of_this_one() {
        assert_eq!((name(0x6969), name(0x0bd0_0bd0)), (Some("NFS"), Some("Lustre")));
        let (ext4, tmpfs) = (0xef53, 0x0102_1994);
        assert_eq!((name(ext4), name(tmpfs)), (None, None));
        assert_eq!(network_file_system(Path::new("/proc")), None);
    }
}

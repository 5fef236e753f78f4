//! Shared repositories (as with git's `core.sharedRepository`): a group of users may read and write all files,
//! whichever user made them.

use crate::{Result, storage::local::failed};
use std::{
    fs::{self, Metadata, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// What a directory gives to new directories in it: its group.
const SET_GROUP: u32 = 0o2000;
const GROUP_READS_AND_WRITES: u32 = 0o060;
const GROUP_ENTERS: u32 = 0o070;

/// Gives a directory and all below it to its group, to read and write; files made there later are the group's too,
/// whatever their maker's umask. Rights of other users stay as they were. It fails where the file system has no access
/// control lists, or something there is another user's.
pub fn share_with_group(root: &Path) -> Result<()> {
    let found = fs::symlink_metadata(root).map_err(failed("look at", root))?;
    if found.is_symlink() {
        return Ok(());
    }
    if !found.is_dir() {
        return add_mode(root, &found, GROUP_READS_AND_WRITES);
    }
    // First: what others make meanwhile is then the group's.
    add_mode(root, &found, SET_GROUP | GROUP_ENTERS)?;
    give_new_files_to_group(root, found.permissions().mode() & 0o7).map_err(failed("share", root))?;
    for entry in fs::read_dir(root).map_err(failed("list", root))? {
        share_with_group(&entry.map_err(failed("list", root))?.path())?;
    }
    Ok(())
}

fn add_mode(path: &Path, found: &Metadata, more: u32) -> Result<()> {
    let mode = found.permissions().mode() & 0o7777;
    match mode | more {
        same if same == mode => Ok(()),
        wanted => fs::set_permissions(path, Permissions::from_mode(wanted)).map_err(failed("share", path)),
    }
}

/// A default access control list stands in for the umask in a directory and in those that are made in it: acl(5).
#[cfg(target_os = "linux")]
fn give_new_files_to_group(dir: &Path, others: u32) -> io::Result<()> {
    const VERSION: u32 = 2;
    const OWNER: u16 = 0x01;
    const GROUP: u16 = 0x04;
    const OTHERS: u16 = 0x20;
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, rights) in [(OWNER, 7), (GROUP, 7), (OTHERS, others as u16)] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        // Of no user and no group in particular.
        list.extend(u32::MAX.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    Ok(rustix::fs::setxattr(dir, "system.posix_acl_default", &list, flags)?)
}

/// Elsewhere than on Linux such lists are of another kind.
#[cfg(not(target_os = "linux"))]
fn give_new_files_to_group(_dir: &Path, _others: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

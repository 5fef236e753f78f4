//! File stamps (inode, size, times): cached contents are valid as long as the file's stamp is the same.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A file that was changed this long ago gets a new timestamp from the next change: file system clocks are coarse.
const TICK: Duration = Duration::from_secs(1);

/// A file in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file at a path, through links; none: there is no file.
    pub(crate) fn from_path(path: &Path) -> io::Result<Option<Stamp>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Stamp::from_metadata(&found))),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Of a file that was looked at.
    pub(crate) fn from_metadata(found: &Metadata) -> Stamp {
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Returns whether any later change would change the stamp: not if the last one is too recent.
    pub(crate) fn is_settled(&self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now > since + TICK)
    }

    /// Whether it is the same file, in whichever state.
    pub(crate) fn is_same_file(&self, other: &Stamp) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Whether there is nothing at the path.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_or_changed_has_another_stamp() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        assert_eq!(Stamp::from_path(&path).expect("looked"), None);
        assert_eq!(Stamp::from_path(&path.join("below")).expect("looked"), None);
        fs::write(&path, "true").expect("written");
        let first = Stamp::from_path(&path).expect("looked").expect("there");
        assert!(!first.is_settled(), "it was written just now");
        fs::write(&other, "true").expect("written");
        fs::rename(&other, &path).expect("replaced");
        let second = Stamp::from_path(&path).expect("looked").expect("there");
        assert!(first != second && !first.is_same_file(&second));
        fs::write(&path, "false").expect("changed");
        let third = Stamp::from_path(&path).expect("looked").expect("there");
        assert!(second != third && second.is_same_file(&third));
    }

    #[test]
    fn what_was_changed_long_ago_is_settled() {
        let long_ago = Stamp { device: 1, inode: 1, size: 0, modified: (0, 0), changed: (1_000_000_000, 0) };
        assert!(long_ago.is_settled());
        let tomorrow = Stamp { changed: (i64::MAX / 4, 0), ..long_ago };
        assert!(!tomorrow.is_settled(), "a clock that was set back must not hide changes");
    }
}

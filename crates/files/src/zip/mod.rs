//! Reads the directory of a zip archive.

mod checksums;
mod end;
mod entries;

use crate::{bytes::Trouble, layout::ReadAt};

/// The entries of an archive, in the order of their offsets in the file.
pub(crate) struct Directory {
    pub(crate) entries: Vec<Entry>,
}

/// One entry of an archive.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Neither compressed nor encrypted: the payload is the entry's content.
    pub(crate) stored: bool,
    /// Offset of the first byte of the payload in the file.
    pub(crate) payload: u64,
    /// Length of the payload in bytes.
    pub(crate) len: u64,
}

/// The largest directory that is read.
const MAX_DIRECTORY: u64 = 256 << 20;

/// Reads and checks the directory: every entry has a name of its own, a local header that says the same, and a payload
/// that lies before the directory and overlaps no other entry.
pub(crate) fn read(src: &dyn ReadAt) -> Result<Directory, Trouble> {
    let end = end::find(src)?;
    let entries = entries::read(src, &end)?;
    Ok(Directory { entries })
}

/// What is to be written where for every stored entry's checksum to be that of its payload.
pub(crate) fn checksums(src: &dyn ReadAt) -> Result<Vec<(u64, Vec<u8>)>, Trouble> {
    let end = end::find(src)?;
    checksums::read(src, &end)
}

/// The name of the entry whose local header begins the file, for files without a directory.
pub(crate) fn first_name(src: &dyn ReadAt) -> Result<String, Trouble> {
    entries::first_name(src)
}

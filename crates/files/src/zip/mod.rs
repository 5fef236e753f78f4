//! Reads the directory of a zip archive.

mod checksums;
mod end;
mod entries;

use crate::{bytes::Trouble, layout::ReadAt};
pub(crate) use entries::first_name;

pub(crate) struct Entry {
    pub(crate) name: String,
    /// Neither compressed nor encrypted: the payload is the entry's content.
    pub(crate) stored: bool,
    /// Offset of the first byte of the payload in the file.
    pub(crate) payload: u64,
    pub(crate) len: u64,
}

/// The largest directory that is read.
const MAX_DIRECTORY: u64 = 256 << 20;

/// Reads and checks the directory: every entry has a name of its own, a local header that says the same, and a payload
/// that lies before the directory and overlaps no other entry. The entries are in the order of their offsets.
pub(crate) fn read(src: &dyn ReadAt) -> Result<Vec<Entry>, Trouble> {
    entries::read(src, &end::find(src)?)
}

/// What is to be written where for every stored entry's checksum to be that of its payload.
pub(crate) fn checksums(src: &dyn ReadAt) -> Result<Vec<(u64, Vec<u8>)>, Trouble> {
    checksums::read(src, &end::find(src)?)
}

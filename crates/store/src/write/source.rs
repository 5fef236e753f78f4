//! Byte sources of files to be stored.

use mdl_codec::Span;
use mdl_files::{FileSource, ReadAt};

/// A file to be stored. One in a device's memory can be read like any other: it is then copied.
pub trait Source: ReadAt {
    /// The bytes at `offset`, if all of them lie end to end in one device's memory. They stay there as long as the
    /// source does.
    fn on_device(&self, offset: u64, len: u64) -> Option<Span> {
        let _ = (offset, len);
        None
    }
}

impl Source for FileSource {}

impl Source for Vec<u8> {}

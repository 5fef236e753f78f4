//! Byte sources of files to be stored.

use mdl_codec::{Encoded, Span};
use mdl_files::{Extent, FileSource, ReadAt};
use mdl_objects::Id;

/// A file to be stored. One in a device's memory can be read like any other: it is then copied.
pub trait Source: ReadAt {
    /// The bytes at `offset`, if all of them lie end to end in one device's memory. They stay there as long as the
    /// source does.
    fn on_device(&self, offset: u64, len: u64) -> Option<Span> {
        let _ = (offset, len);
        None
    }

    /// The id of the tensor at an extent, if it is known. It is believed only where the repository has that tensor: the
    /// bytes are not read then.
    fn known_id(&self, extent: &Extent) -> Option<Id> {
        let _ = extent;
        None
    }

    /// Tells the id of the tensor at an extent, now that its bytes were read and hashed.
    fn hashed(&self, extent: &Extent, id: Id) {
        let _ = (extent, id);
    }

    /// The tensor's segments as an engine encodes them without bases, if they are there: they are what `read_at`
    /// decodes, and need not be encoded again.
    fn encoded(&self, extent: &Extent) -> Option<Vec<Encoded>> {
        let _ = extent;
        None
    }
}

impl Source for FileSource {}

impl Source for Vec<u8> {}

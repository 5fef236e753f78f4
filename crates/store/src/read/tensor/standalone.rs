//! Segments without bases, for memory that keeps tensors encoded.

use crate::{Result, error::bad_object, pack::segment_len, read::TensorReader};
use mdl_codec::{Bases, scheme_of};

impl TensorReader<'_> {
    /// Segment `index`, encoded without bases: as it is stored if it needs none (its checksum was compared, once in
    /// this process), else decoded and encoded again. `own` says which.
    pub fn standalone(&self, index: usize) -> Result<(Vec<u8>, bool)> {
        self.check_stored()?;
        let stored = self.retry_on_repack(|reader| reader.encoded(0, index))?;
        if !scheme_of(&stored).map_err(bad_object(self.id()))?.needs_base() {
            return Ok((stored, true));
        }
        let raw = self.segment(index)?;
        debug_assert_eq!(raw.len(), segment_len(self.byte_len(), index));
        let alone = self.odb.engine().encode(self.header().dtype, &raw, Bases::NONE, None);
        Ok((alone.map_err(bad_object(self.id()))?.bytes, false))
    }
}

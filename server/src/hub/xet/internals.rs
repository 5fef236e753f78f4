//! The parsers of shards and xorbs as the fuzz targets call them.

use super::{
    shard::{self, Segment},
    xorb::Xorbs,
};
use crate::problem::Result;
use std::{io::Cursor, ops::Range};

/// The files of a shard: length, and number of segments.
pub fn files(shard: &[u8]) -> Result<Vec<(u64, usize)>> {
    shard::files(shard)?.map(|file| file.map(|f| (f.size(), f.segments.len()))).collect()
}

/// The bytes of consecutive chunks of a xorb, which are so many.
pub fn chunks(xorb: &[u8], chunks: Range<u32>, bytes: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let segment = Segment { xorb: [0; 32], chunks, bytes };
    Xorbs::new(|_: &str| Ok(Cursor::new(xorb))).read(&segment, &mut |chunk| {
        out.extend_from_slice(chunk);
        Ok(())
    })?;
    Ok(out)
}

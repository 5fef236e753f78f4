//! Recomputes a container's own checksums after a payload in it was replaced.

use crate::{
    layout::{Format, ReadAt, ScanError},
    zip,
};

/// Offset and bytes of what has to be written for the checksums inside `src`, a sound file of this format, to be those
/// of its payloads: the CRC-32 of the uncompressed entries of zip archives (`.pt`, `.npz`). Other formats have none.
pub fn checksums(src: &dyn ReadAt, format: Format) -> Result<Vec<(u64, Vec<u8>)>, ScanError> {
    match format {
        Format::TorchZip | Format::Npz => zip::checksums(src).map_err(|t| t.in_format(format)),
        _ => Ok(Vec::new()),
    }
}

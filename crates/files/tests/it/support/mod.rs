//! Tiny writers of checkpoint files, good and bad, for the tests.
#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "this is all test code, outside of any #[test]")]

pub mod gguf;
pub mod legacy;
pub mod npy;
pub mod pickle;
pub mod safetensors;
pub mod zip;

use mdl_files::{Layout, ScanError, scan};
use std::path::Path;

/// Scans bytes under a file name.
pub fn scanned(bytes: &[u8], name: &str) -> Result<Layout, ScanError> {
    scan(&bytes.to_vec(), Path::new(name))
}

/// `name dtype shape` of every extent.
pub fn extents(layout: &Layout) -> Vec<String> {
    let line = |e: &mdl_files::Extent| format!("{} {} {:?}", e.name, e.dtype, e.shape);
    layout.extents.iter().map(line).collect()
}

/// `name extent+offset shape strides` of every view.
pub fn views(layout: &Layout) -> Vec<String> {
    let line = |v: &mdl_files::View| format!("{} {}+{} {:?} {:?}", v.name, v.extent, v.offset, v.shape, v.strides);
    layout.views.iter().map(line).collect()
}

/// The reason a file is refused for.
pub fn refusal(bytes: &[u8], name: &str) -> String {
    match scanned(bytes, name) {
        Err(ScanError::Damaged { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// Asserts that a scan ends in a layout that keeps its promises, or in an error.
pub fn survives(bytes: &[u8], name: &str) {
    match scanned(bytes, name) {
        Ok(layout) => layout.check(bytes.len() as u64).unwrap(),
        Err(ScanError::Damaged { reason, .. }) => assert!(!reason.is_empty() && reason.len() < 1000),
        Err(ScanError::Io(e)) => panic!("a slice does not fail: {e}"),
    }
}

/// Every truncation and every single-bit flip.
pub fn survives_damage(good: &[u8], name: &str) {
    for len in 0..good.len() {
        survives(&good[..len], name);
    }
    let mut bytes = good.to_vec();
    for bit in 0..8 * good.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        survives(&bytes, name);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

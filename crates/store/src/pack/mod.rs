//! Packs: immutable files of encoded objects with an index at their end. Specified in docs/format.md, "Packs".

mod format;
pub mod payload;
mod reader;
mod tensor_header;
mod writer;

pub use format::{MAGIC, NO_MAGIC, PACK_DIR, PackId, Record, decode_records, encode_records, encode_tail};
pub use reader::Pack;
pub use tensor_header::{PROBE, Parsed, TensorHeader, segment_count, segment_len};
pub use writer::{NewObject, PackWriter};

/// Bytes of a payload that are in memory at once where one is copied or read through.
const CHUNK: u64 = 1 << 20;

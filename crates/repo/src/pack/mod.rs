//! Packs: immutable files of encoded objects with an index at their end. Specified in docs/format.md, "Packs".

mod format;
mod reader;
mod writer;

pub use format::{PackId, Record};
pub use reader::Pack;
pub use writer::{NewObject, PackWriter};

pub(crate) use format::{MAGIC, NO_MAGIC, PACK_DIR, decode_records, encode_records, encode_tail};

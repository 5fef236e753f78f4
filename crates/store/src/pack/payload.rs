//! Payloads of all objects but tensors: compressed, decompressed, verified. Specified in docs/format.md, "Packs".

use crate::{
    RepoError, Result,
    pack::{Pack, Record},
    storage::Storage,
};
use mdl_objects::Id;

/// Largest object that is held in memory whole (everything but tensors). Writers cut blobs far below this.
const MAX_WHOLE: u64 = 1 << 30;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 3;

/// Encodes an object that is no tensor: a byte that says how, then the bytes, zstd-compressed where that is smaller.
pub(crate) fn wrap(content: &[u8]) -> Vec<u8> {
    let mut out = vec![ZSTD];
    if let Ok(packed) = zstd::bulk::compress(content, ZSTD_LEVEL)
        && packed.len() < content.len()
    {
        out.extend_from_slice(&packed);
    } else {
        out[0] = RAW;
        out.extend_from_slice(content);
    }
    out
}

/// Undoes `wrap`; `logical` is the length the record promises.
fn unwrap(payload: &[u8], logical: usize) -> Result<Vec<u8>, &'static str> {
    let bytes = match payload.split_first() {
        Some((&RAW, rest)) => rest.to_vec(),
        Some((&ZSTD, rest)) => {
            // The frame's own promise is checked first, so that a lying record earns no memory.
            match zstd::zstd_safe::get_frame_content_size(rest) {
                Ok(Some(n)) if n == logical as u64 => {}
                _ => return Err("its compressed frame has another length"),
            }
            zstd::bulk::decompress(rest, logical).map_err(|_| "its compressed frame is damaged")?
        }
        _ => return Err("unknown payload encoding"),
    };
    if bytes.len() == logical { Ok(bytes) } else { Err("its length is not what its record says") }
}

/// Canonical bytes of a copy of an object that is no tensor, verified against its id.
pub(crate) fn content(storage: &dyn Storage, pack: &Pack, record: &Record) -> Result<Vec<u8>> {
    let bad = |why: &str| RepoError::corrupt(format!("{} {}", record.kind, record.id.short()), why);
    if record.logical > MAX_WHOLE || record.len > MAX_WHOLE {
        return Err(bad("larger than any writer makes it"));
    }
    let payload = pack.payload(storage, record)?;
    let bytes = unwrap(&payload, record.logical as usize).map_err(bad)?;
    if Id::from_content(record.kind, &bytes) != record.id {
        return Err(bad("its content is not what its id says"));
    }
    Ok(bytes)
}

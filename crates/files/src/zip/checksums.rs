//! The CRC-32 of every stored entry, and where the archive keeps it.

use super::{
    end::End,
    entries::{STREAMED, place, record},
};
use crate::{
    bytes::{Trouble, bad, take, u32_at},
    layout::ReadAt,
};

/// Offsets of the CRC-32 in a record of the directory and in a local header.
const IN_RECORD: u64 = 16;
const IN_HEADER: u64 = 14;
/// May or may not begin what follows a streamed payload.
const DESCRIPTOR_MAGIC: u32 = 0x0807_4b50;
/// Bytes of a payload that are in memory at once.
const PIECE: u64 = 1 << 20;

/// Offset and bytes of every checksum that is not its payload's.
pub(super) fn read(src: &dyn ReadAt, end: &End) -> Result<Vec<(u64, Vec<u8>)>, Trouble> {
    let Some(directory) = take(src, end.at, end.len)? else {
        return bad("the archive's directory leaves the file");
    };
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(rest) = directory.get(at..).filter(|r| !r.is_empty()) {
        let Some((entry, len)) = record(rest) else {
            return bad("the archive's directory is broken");
        };
        let (header, placed) = place(src, &entry, end)?;
        if placed.stored {
            let crc = crc(src, placed.payload, placed.len)?;
            let mut places = vec![end.at + at as u64 + IN_RECORD];
            if entry.flags & STREAMED == 0 {
                places.push(header + IN_HEADER);
            } else {
                // What streams leave in the header is 0, or already the checksum.
                let known = take(src, header + IN_HEADER, 4)?.and_then(|b| u32_at(&b, 0));
                places.extend(known.filter(|k| *k != 0).map(|_| header + IN_HEADER));
                let behind = placed.payload + placed.len;
                let magic = take(src, behind, 4)?.and_then(|b| u32_at(&b, 0)) == Some(DESCRIPTOR_MAGIC);
                places.push(if magic { behind + 4 } else { behind });
            }
            for place in places {
                let now = take(src, place, 4)?.and_then(|b| u32_at(&b, 0));
                if now != Some(crc) {
                    out.push((place, crc.to_le_bytes().to_vec()));
                }
            }
        }
        at += len;
    }
    Ok(out)
}

fn crc(src: &dyn ReadAt, start: u64, len: u64) -> Result<u32, Trouble> {
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; len.min(PIECE) as usize];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIECE) as usize;
        src.read_at(start + done, &mut piece[..n])?;
        hasher.update(&piece[..n]);
        done += n as u64;
    }
    Ok(hasher.finalize())
}

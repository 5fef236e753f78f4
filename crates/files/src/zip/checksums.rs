//! The CRC-32 of every stored entry, and where the archive keeps it.

use super::{
    end::End,
    entries::{STREAMED, directory, place, records},
};
use crate::{
    bytes::{Trouble, take, u32_at},
    layout::ReadAt,
};
use std::io;

/// Offsets of the CRC-32 in a record of the directory and in a local header.
const IN_RECORD: u64 = 16;
const IN_HEADER: u64 = 14;
/// May or may not begin what follows a streamed payload.
const DESCRIPTOR_MAGIC: u32 = 0x0807_4b50;
/// Bytes of a payload that are in memory at once.
const PIECE: u64 = 1 << 20;

/// Offset and bytes of every checksum that is not its payload's.
pub(super) fn read(src: &dyn ReadAt, end: &End) -> Result<Vec<(u64, Vec<u8>)>, Trouble> {
    let directory = directory(src, end)?;
    let mut out = Vec::new();
    for record in records(&directory) {
        let (at, record) = record?;
        let (header, entry) = place(src, &record, end)?;
        if !entry.stored {
            continue;
        }
        let crc = crc(src, entry.payload, entry.len)?;
        let field = |at: u64| io::Result::Ok(take(src, at, 4)?.and_then(|b| u32_at(&b, 0)));
        let mut places = vec![end.at + at as u64 + IN_RECORD];
        if record.flags & STREAMED == 0 {
            places.push(header + IN_HEADER);
        } else {
            // What streams leave in the header is 0, or already the checksum.
            let known = field(header + IN_HEADER)?;
            places.extend(known.filter(|k| *k != 0).map(|_| header + IN_HEADER));
            let behind = entry.payload + entry.len;
            let magic = field(behind)? == Some(DESCRIPTOR_MAGIC);
            places.push(if magic { behind + 4 } else { behind });
        }
        for place in places {
            if field(place)? != Some(crc) {
                out.push((place, crc.to_le_bytes().to_vec()));
            }
        }
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

//! Mends shards and xorbs: magic, counts, lengths.

use crate::xet::{HEADER, RECORD};

const MAGIC: &[u8; 32] = b"HFRepoMetaData\0UigEj{\x81W\x83\xa5\xbd\xd9\\\xcd\xd1J\xa9";
/// Most segments of a file.
const SEGMENTS: u8 = 5;

/// The head, counts that the records fill, segments with chunks, and the end.
pub fn xet_shard(data: &mut Vec<u8>) {
    data.resize(data.len().next_multiple_of(RECORD).max(RECORD), 0);
    data[..32].copy_from_slice(MAGIC);
    data[32..40].copy_from_slice(&2u64.to_le_bytes());
    let mut at = RECORD;
    while let Some(head) = data.get_mut(at..at + RECORD).filter(|r| !r.starts_with(&[0xff; 32])) {
        head[35] |= 0x40;
        head[36] %= SEGMENTS;
        head[37..40].fill(0);
        let (checked, count) = (head[35] & 0x80 != 0, usize::from(head[36]));
        for segment in data[at + RECORD..].chunks_exact_mut(RECORD).take(count) {
            segment[36] |= 1;
            segment[41..44].fill(0);
            let end = u32::from(segment[40]) + 1 + u32::from(segment[44]);
            segment[44..48].copy_from_slice(&end.to_le_bytes());
        }
        at += RECORD * (2 + count * (1 + usize::from(checked)));
    }
    data.resize(at, 0);
    data.extend([0xff; 32]);
    data.extend([0; 16]);
}

/// Versions, and stored lengths that end inside.
pub fn xet_xorb(data: &mut Vec<u8>) {
    let mut at = 0;
    while at + HEADER <= data.len() {
        let most = data.len() - at - HEADER;
        let header = &mut data[at..at + HEADER];
        let said = usize::from(u16::from_le_bytes([header[1], header[2]]));
        let stored = if said > most { said % (most + 1) } else { said };
        header[0] = 0;
        header[1..4].copy_from_slice(&(stored as u32).to_le_bytes()[..3]);
        header[4] %= 4;
        if header[4] == 0 {
            header.copy_within(1..4, 5);
        }
        at += HEADER + stored;
    }
    data.truncate(at);
}

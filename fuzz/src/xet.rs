//! Targets: shards and xorbs, which the Hub's clients upload by the Xet protocol.

use mdl_server::xet_internals as xet;

/// Length of every record of a shard.
pub const RECORD: usize = 48;
/// Length of what stands before a chunk.
pub const HEADER: usize = 8;

/// A shard. Each file, and each of its segments, has a record of its own, and no part is empty.
pub fn xet_shard(data: &[u8]) {
    let Ok(files) = xet::files(data) else { return };
    let records: usize = files.iter().map(|(_, segments)| segments + 2).sum();
    assert!(data.len() >= (records + 2) * RECORD, "{files:?} of {} bytes", data.len());
    assert!(files.iter().all(|(bytes, segments)| *bytes >= *segments as u64), "{files:?}");
}

/// A xorb. Chunks have the lengths that their headers state, alone and together, and no other.
pub fn xet_xorb(data: &[u8]) {
    let lens = lengths(data);
    let (count, sum) = (lens.len() as u32, lens.iter().sum::<u64>());
    let all = xet::chunks(data, 0..count, sum);
    assert!(xet::chunks(data, 0..count, sum + 1).is_err(), "longer than its chunks");
    assert!(xet::chunks(data, 0..count + 1, sum).is_err(), "a chunk more than there are");
    let alone = |at: u32| xet::chunks(data, at..at + 1, lens[at as usize]);
    let each: Result<Vec<Vec<u8>>, _> = (0..count).map(alone).collect();
    if let Ok(all) = all {
        assert!(all.len() as u64 == sum, "{} bytes, not {sum}", all.len());
        assert!(each.is_ok_and(|each| each.concat() == all), "chunks alone are not those of all");
    }
}

/// What the headers say, as far as they do.
fn lengths(data: &[u8]) -> Vec<u64> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(header) = data.get(at..at + HEADER).filter(|h| h[0] == 0) {
        let three = |from: usize| u64::from(u32::from_le_bytes([header[from], header[from + 1], header[from + 2], 0]));
        out.push(three(5));
        at += HEADER + three(1) as usize;
    }
    out
}

//! Mends tar headers: their checksums, and the end of the archive.

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const SIZE: std::ops::Range<usize> = 124..136;

/// Walks from header to header as the sizes say and writes each checksum anew; two empty blocks follow.
pub fn tar(data: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(block) = data.get_mut(at..at + BLOCK) {
        if block.iter().all(|b| *b == 0) {
            return;
        }
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[SIZE].iter().copied().filter(|b| (b'0'..=b'7').contains(b));
        let size = digits.fold(0usize, |n, b| n.saturating_mul(8).saturating_add(usize::from(b - b'0')));
        at = at.saturating_add(BLOCK).saturating_add(size.min(1 << 20).next_multiple_of(BLOCK));
    }
    data.resize(at.min(data.len().next_multiple_of(BLOCK)), 0);
    data.resize(data.len() + 2 * BLOCK, 0);
}

//! The reconstruction of every key, as a table small enough for shared memory.

use mdl_codec::{
    Dtype,
    engine_internals::{NO_BIN, NON_FINITE, PROTECT, restore_words},
    quant::{Codebook, Cuts, Grid},
};

/// Keys of a line.
const LINE: usize = 16;
const LINES: usize = (1 << 16) / LINE;
/// Room for entries: a codebook makes at most 520 runs of keys, each with a line that it shares with the next.
const ENTRIES: usize = 8832;
/// Length of a table.
pub(super) const BYTES: usize = 4 * LINES + 2 * ENTRIES;

/// Lines of u32 (first entry, and above it the part of the key that is added to it: 15, or 0 where all keys of the line
/// become the same), then entries of u16. None where there are more than fit, which no codebook brings about.
pub(super) fn table(dtype: Dtype, cuts: &Cuts, codebook: &Codebook) -> Option<Vec<u8>> {
    let words = restore_words(dtype, Grid::from_dtype(dtype).ok()?, cuts, codebook);
    // A float that is finite has no such upper half.
    let entry = |word: &u32| match *word {
        PROTECT => 0xFFFF,
        NON_FINITE => 0xFFFE,
        NO_BIN => 0xFFFD,
        w => (w >> 16) as u16,
    };
    let mut entries: Vec<u16> = Vec::with_capacity(ENTRIES);
    let mut out = Vec::with_capacity(BYTES);
    let mut last = None;
    for line in words.as_chunks::<LINE>().0 {
        let same = line.iter().all(|w| *w == line[0]).then_some(line[0]);
        // Neighbours that become the same share an entry.
        if same.is_none() || same != last {
            let all = if same.is_some() { &line[..1] } else { &line[..] };
            entries.extend(all.iter().map(entry));
        }
        last = same;
        let (width, mask) = if same.is_some() { (1, 0) } else { (LINE, LINE - 1) };
        out.extend(((entries.len() - width) as u32 | (mask as u32) << 16).to_le_bytes());
    }
    if entries.len() > ENTRIES {
        return None;
    }
    entries.resize(ENTRIES, 0);
    out.extend(entries.iter().flat_map(|e| e.to_le_bytes()));
    Some(out)
}

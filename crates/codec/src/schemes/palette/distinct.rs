//! The distinct numbers of a sample and how often each occurs.

use crate::schemes::Numbers;

/// Slots of the table; a power of two, more than twice as many as numbers that are kept.
const SLOTS: usize = 1 << 12;
/// Most distinct numbers that are ever counted.
pub(super) const MOST: usize = SLOTS / 2;

/// Numbers and counts, in no order that means anything; `None` once there are more than `most(i)` distinct ones (at
/// most [`MOST`]) among the first `i + 1`.
pub(super) fn distinct(numbers: Numbers, part: &[u8], most: impl Fn(usize) -> usize) -> Option<Vec<(u64, u32)>> {
    let mut slots = vec![0u16; SLOTS];
    let mut found: Vec<(u64, u32)> = Vec::with_capacity(64);
    for i in 0..part.len() / numbers.size {
        let v = numbers.load(part, i);
        let mut at = (v.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % SLOTS;
        loop {
            // A slot is a place in the list, counted from 1; 0 is a free one.
            match found.get_mut(usize::from(slots[at]).wrapping_sub(1)) {
                Some((w, n)) if *w == v => {
                    *n += 1;
                    break;
                }
                Some(_) => at = (at + 1) % SLOTS,
                None => {
                    found.push((v, 1));
                    slots[at] = found.len() as u16;
                    break;
                }
            }
        }
        if found.len() > most(i).min(MOST) {
            return None;
        }
    }
    Some(found)
}

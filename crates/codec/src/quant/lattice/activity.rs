//! Activity: a coding context from the elements before a group, how far levels moved lately, and in the same column.
//!
//! Everything is in 1/256 of a level. Two averages: of the groups before (each weighs half of the next), and of the
//! column (a sixteenth for the newest). A column here is a place modulo the smallest multiple of the matrix's columns
//! that is at least 32, so that a group never meets a column twice.

use crate::entropy::LANES;

/// Steps of activity with a parent and without.
pub(super) const STEPS: usize = 16;
pub(super) const STEPS_ALONE: usize = 28;
/// Longest period for which columns are kept.
const COLUMNS_MAX: usize = 1 << 16;

/// The state between two groups of a block.
#[derive(Debug)]
pub(super) struct Activity {
    lately: u32,
    /// Averages of the columns; none where they would be met less than twice.
    columns: Vec<u16>,
    /// Next column, and how many have been met.
    at: usize,
    met: usize,
    top: i32,
}

/// Columns that are kept in a block of `n` elements of a matrix of `cols` columns (at least 1); 0 for none.
pub fn period(cols: usize, n: usize) -> usize {
    let period = LANES.div_ceil(cols).saturating_mul(cols);
    if period <= COLUMNS_MAX && 2 * period <= n { period } else { 0 }
}

impl Activity {
    /// At the start of a block of `n` elements of a matrix of `cols` columns (at least 1); steps of activity are below
    /// `steps`.
    pub(super) fn new(cols: usize, n: usize, steps: usize) -> Self {
        Activity { lately: 0, columns: vec![0; period(cols, n)], at: 0, met: 0, top: steps as i32 - 1 }
    }

    /// Steps of activity of the next `out.len()` elements, at most 32.
    #[inline(always)]
    pub(super) fn steps(&mut self, out: &mut [u8; LANES]) {
        let lately = self.lately;
        if self.columns.is_empty() {
            out.fill(step(lately, self.top));
            return;
        }
        let kept = self.columns.len();
        if self.met < kept {
            // Columns met for the first time start at what is usual lately.
            let end = (self.met + LANES).min(kept);
            self.columns[self.met..end].fill(lately as u16);
            self.met = end;
        }
        if let Some(c) = self.columns.get(self.at..).and_then(|c| c.first_chunk::<LANES>()) {
            for (o, &c) in out.iter_mut().zip(c) {
                *o = step((lately + u32::from(c)) >> 1, self.top);
            }
        } else {
            for (i, o) in out.iter_mut().enumerate() {
                let c = self.columns[(self.at + i) % kept];
                *o = step((lately + u32::from(c)) >> 1, self.top);
            }
        }
    }

    /// Learns how far the levels of that group (all 32 places; those past the end are 0) are from what was predicted.
    #[inline(always)]
    pub(super) fn learn(&mut self, far: &[u8; LANES]) {
        let sum: u32 = far.iter().map(|&f| u32::from(f)).sum();
        self.lately = (self.lately + 8 * sum) >> 1;
        let kept = self.columns.len();
        if kept == 0 {
            return;
        }
        let one = |c: &mut u16, f: u8| *c = *c - (*c >> 4) + 16 * u16::from(f);
        if let Some(c) = self.columns.get_mut(self.at..).and_then(|c| c.first_chunk_mut::<LANES>()) {
            c.iter_mut().zip(far).for_each(|(c, &f)| one(c, f));
        } else {
            for (i, &f) in far.iter().enumerate() {
                one(&mut self.columns[(self.at + i) % kept], f);
            }
        }
        self.at += LANES;
        if self.at >= kept {
            self.at -= kept;
        }
    }
}

/// 0 below 8; then two steps an octave (8, 12, 16, 24, ...), cut off at `top`.
#[inline(always)]
fn step(v: u32, top: i32) -> u8 {
    // A float's exponent and its first mantissa bit.
    let half_octaves = ((v as f32).to_bits() >> 22) as i32;
    (half_octaves - 259).clamp(0, top) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_half_octaves() {
        let s: Vec<u8> = [0, 7, 8, 11, 12, 15, 16, 24, 32, 65_535].map(|v| step(v, 99)).into();
        assert_eq!(s, [0, 0, 1, 1, 2, 2, 3, 4, 5, 26]);
        assert_eq!(step(65_535, 15), 15);
    }

    #[test]
    fn averages_stay_in_range_and_columns_wrap() {
        for cols in [1, 7, 32, 33, 100] {
            let mut a = Activity::new(cols, 10_000, STEPS_ALONE);
            assert!(a.columns.len() >= LANES && a.columns.len().is_multiple_of(cols));
            let mut out = [0; LANES];
            for _ in 0..300 {
                a.steps(&mut out);
                a.learn(&[255; LANES]);
            }
            a.steps(&mut out);
            assert_eq!(out, [26; LANES], "{cols}");
            for _ in 0..6000 {
                a.steps(&mut out);
                a.learn(&[0; LANES]);
            }
            a.steps(&mut out);
            assert!(out.iter().all(|&s| s <= 1), "{cols}");
        }
        assert!(Activity::new(100, 199, STEPS).columns.is_empty());
        assert!(Activity::new(usize::MAX, 1000, STEPS).columns.is_empty());
    }
}
